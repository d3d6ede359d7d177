"""ONNX Runtime's transpose optimiser: Transposes move towards each other until they cancel or become one.

Its rules (``onnx_transpose_optimization.cc``; those of 1.32, held by ``benchmarks/fusion_ort.py``): a Transpose of an
operand moves behind an operator that works in any order of dimensions where that leaves fewer dimensions to move.
Operands that would have to be put into the order from before it count as many as they have, constants none, one that a
Transpose made less than none; results count, too, unless another Transpose comes behind them.

:mod:`.optimizer` decides which move, by :mod:`.cost`; :mod:`.rules` says how each operator works in another order,
:mod:`.edits` puts that into the graph, a :mod:`.moving` one. :mod:`.orders` has the arithmetic of orders.
"""
