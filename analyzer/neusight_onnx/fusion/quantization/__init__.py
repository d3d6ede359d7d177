"""Quantised graphs: pairs of QuantizeLinear and DequantizeLinear fold into the kernels between them.

A quantised file writes every operator in floating point, with a DequantizeLinear before and a QuantizeLinear behind:
that is how it says in which type the operator is to run. Here the operator takes the quantised values themselves. A
product whose operands are both quantised multiplies integers (or 8-bit floats) and scales its sums on the way out; one
whose weights alone are quantised reads small weights and multiplies in floating point. What only moves, compares or
averages elements runs on the small type. What finds no partner stays a kernel of its own, a constant's
DequantizeLinear, too: runtimes keep those out of what they compute once, or the weights were large again.

Dynamically quantised files multiply integers as such and dequantise by a Cast and a Mul: these fold into the product.

``pairs`` says which pairs a file has, ``moves`` where TensorRT puts them, ``fold`` folds them: ``products`` and
``carriers`` by what stands between, ``unused`` takes away what is left without readers. ``folding`` is the state that
they share; ``at_run_time`` has what finds no partner.
"""
