"""The law of convolutions on matrix units (tensor cores, matrix cores): 16-bit floats, TF32, 8-bit.

Input (n, c, *spatial), weight (k, c / g, *filter), output (n, k, *out); gradients are the products of
``kernels.Conv.implicit_gemm``. Three kinds of kernel compete, and their soft minimum is what a library takes
(:mod:`.estimate`):

- implicit GEMM (:mod:`.implicit_gemm`), ``(b, m, k) @ (b, k, n) -> (b, m, n)`` with a group an entry of the batch: the
  law of products on matrix units, with tiles that are narrow where channels are few (:mod:`.tiles`), and channels
  padded to what a matrix instruction and a load of 16 bytes take (:mod:`.columns`); NVIDIA's library packs groups of
  few channels in one tile. What NVIDIA's transposes around it is in :mod:`.transposes`, what AMD's kernels of it spend
  beside the product in :mod:`.miopen_issue`, which of AMD's there are in :mod:`.miopen_solvers`, those on vector lanes
  in :mod:`.miopen_lanes`, and how they split a gradient of weights in :mod:`.miopen_splits`; AMD's Winograd in several
  passes is in :mod:`.miopen_passes`;
- a product an image of the batch (:mod:`.image_products`);
- a kernel per output element on vector lanes (:mod:`.direct`), for depthwise convolutions and their like.

Everything is vectorised over kernels; inside, arrays have shape (candidates, kernels).
"""
