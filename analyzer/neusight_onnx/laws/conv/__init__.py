"""The law of convolutions: the cheapest of the algorithms that libraries have for one.

Input (n, c, *spatial), weight (k, c / g, *filter), output (n, k, *out). Gradients are convolutions of their own
(``kernels.Conv.implicit_gemm``): that of the input is one with c and k, input and output changed places, that of the
weight reduces over positions, which blocks share out. On NVIDIA they have a law of their own (``conv_gradient.py``);
elsewhere forward constants stand for them. The algorithms:

- implicit GEMM: per group, ``(n prod(out), c / g prod(filter)) @ (c / g prod(filter), k / g)``, the law of matrix
  products on those sizes with the convolution's own bytes (its input is read once, not once a filter tap);
- fused Winograd F(2x2, 3x3): 16 products of (n out / 4, c) @ (c, k) in one kernel, 2.25 times fewer multiply-adds. A
  block makes 32 channels of 32 tiles of 2x2 outputs; libraries have the block shapes of ``fused_shapes`` (images x
  rows x columns of tiles), and the grids that were recorded follow from them exactly;
- Winograd F(4x4, 3x3) in steps: filter, input and output are transformed by kernels of their own, 36 products of
  (n out / 16, c) @ (c, k) between them, 4 times fewer multiply-adds. Images are padded to a multiple of 16, as the
  recorded grids show. MIOpen's FP32 choices have fused Winograd only;
- a kernel per output element, of convolutions in groups alone: a depthwise one has no reduction over channels that a
  GEMM could use. Elsewhere a thread would go through all channels by itself: of dense convolutions that it would do
  soonest (few outputs), MI50, MI100 and MI210 take twice to three times as long (MIOpen's find database, 7,000 rows),
  and what kernels are called on P4, P100, V100, T4 and A100 is implicit GEMM or Winograd (NeuSight's).

:mod:`.columns` is what the law takes from kernels, :mod:`.algorithms` their tiles and times, :mod:`.estimate` the
answer, :mod:`.features` what the residual sees.
"""
