"""The law of fused attention on matrix units: prefill, decoding and encoders, in 16 and 8 bits.

``(b, h, s, d) x (b, g, t, d) -> (b, h, s, v)``, g key-value heads shared by h / g query heads each. A block of threads
holds a tile of queries and walks over tiles of keys (a *step* each): two products on the matrix pipe, an exponential a
pair in between. Queries of the heads that share keys may stand in one tile (*packed*). What competes (p-norm):

- *compute*: all steps over all SMs, the softmax partly hidden behind the products (with mma by another block of the SM,
  where shared memory holds two); blocks have a prologue and an epilogue; a causal mask or a window leaves out the tiles
  that nobody looks at.
- *latency*: the block with the most steps, one after the other.
- *memory*: queries, keys, values and output through DRAM, as far as L2 doesn't hold them; with mma, keys and values
  from L2 as far as it does.
- *l2*: keys and values are fetched again by every tile of queries.

Beside them stand the floor of a launch, the loads before a block's first step and its stores after the last, the second
kernel that adds parts where rows of keys are split among blocks, and the kernel that appends keys and values to a
cache.

Which kernels run (:mod:`.kernel_choice`) follows from the instructions: FlashAttention 2 on mma (Ampere, Ada, GeForce),
FlashAttention 3 on WGMMA (Hopper), TensorRT-LLM's and FlashAttention 4 on tcgen05 (data-centre Blackwell). PyTorch and
ONNX Runtime have FlashAttention 2 on all of them, and CUTLASS's memory-efficient attention (:mod:`.memory_efficient`)
where it can't run; ONNX Runtime has XQA (:mod:`.xqa`) and cuDNN's, too: laws of their own with the same constants
(:mod:`.law`). Where keys are stored in fewer bits than
queries, mma runs FlashInfer's, whose warps unpack them in registers; Hopper and Blackwell multiply in FP8, which
FlashAttention 3 transposes values for. Queries of 8 bits have TensorRT-LLM's kernels (:mod:`.mma_fp8` for mma's).
AMD's matrix cores, on which no attention was measured, have Composable Kernel's tiles, and products that take what
products alone do there.

:mod:`.tiles` has the tiles of each library, :mod:`.schedule` the steps, parts and blocks that follow, :mod:`.rates`
what the GPU gives them, :mod:`.step` the time of a step, :mod:`.dram` that of bytes, :mod:`.second_kernels` that of the
kernels beside; :mod:`.times` joins them to the competing times, and :mod:`.estimate` those to the law's answer.
Everything is vectorised over kernels.
"""
