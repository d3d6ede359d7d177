"""The law of matrix products on matrix units (tensor cores, matrix cores): 16-bit floats, 8-bit, 4-bit.

``(b, m, k) @ (b, k, n) -> (b, m, n)``. As in the law of FP32 products, tiles of the output are spread over SMs and the
times of the pipe, of DRAM and of L2 compete (p-norm); the tile and the split of the reduction are those of the menu
with the smallest time. What differs: the pipe is the number format's own dense peak, its clock is what the power limit
leaves it; a block whose tile leaves the pipe idle waits for the loads of its steps of k; operands that are stored in
another type than they are multiplied in are converted (activations by a kernel before, weights inside); and what L2
still holds isn't read from DRAM: activations and output that fit beside the weights, of weights only those that the
last repetition left there.

GPUs that fetch tiles and issue products by units of their own (``matrix_units.asynchronous``) have constants of their
own where that tells: what a launch takes, how well loads stream, how much of them is hidden behind the products.
How well they stream goes with HBM's channels, as streaming kernels do, and has a constant of its own on GDDR.

What the number formats' pipes do is in :mod:`neusight_onnx.laws.matrix_units`, what the power limit leaves of the clock
in :mod:`neusight_onnx.laws.matrix_unit_power`: convolutions and attention have them, too. Here :mod:`.memory` says what
products read from DRAM and what L2 keeps, :mod:`.conversion` what it takes to convert an operand before,
:mod:`.int8_lanes` which products are vector lanes', :mod:`.times` has the competing times, :mod:`.tiles` the choice
among tiles, :mod:`.estimate` the law's answer.

Everything is vectorised over kernels; inside, arrays have shape (candidates, kernels).
"""
