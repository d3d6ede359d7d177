"""What changed in PyTorch, operator by operator ("eager") and compiled, until the release that is described.

GPUs: a release's libraries hold code for the compute capabilities that its CUDA knew. Of those in NVIDIA's containers,
which come before the packages of pytorch.org, the first is counted (their release notes, as remembered): 20.06 with 1.6
and CUDA 11.0, 22.09 with 1.13 and CUDA 11.8, 25.01 with 2.6 and CUDA 12.8. CUDA's release notes say which GPUs each was
the first to take: 11.0 compute capability 8.0, 11.8 8.9 and 9.0, 12.8 10.0 and 12.0. Code for 8.0 runs on 8.6 and 8.9.
"""

from __future__ import annotations

from neusight_onnx.releases import Change, History

_CUDA = "release notes of CUDA and of NVIDIA's PyTorch containers, as remembered"
_BLACKWELL = Change(
    since=(2, 6),
    what="runs on GPUs of compute capability 10.0 and later (CUDA 12.8)",
    before="compute capability up to 9.0",
    source=_CUDA,
    fields={"most_capability": 9.0},
)

_FORMULA = Change(
    since=(2, 5),
    what="attention without a fused kernel (of five dimensions) is computed in FP32, rows without a key become zeros",
    before="attention of five dimensions is computed in its own 16 bits",
    source="operators of torch 2.1.2, 2.4.1 and 2.9.1 on stand-ins for CUDA's libraries; "
    "torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp is new in 2.5",
    fields={"widens_attention": False},
)
_MASKS = Change(
    since=(2, 1),
    what="a mask goes into the one kernel of attention in 16 bits (memory-efficient attention)",
    before="attention with a mask is computed by its formula: queries and keys scaled, a product, the mask added, a "
    "softmax, a product",
    source="launches of torch 2.0.1 and 2.1.2 on stand-ins for CUDA's libraries, compute capabilities 7.0 to 8.9",
    fields={"attention_masks": False},
    last=(2, 0),
)

EAGER = History(
    project="PyTorch",
    first=(1, 5),
    newest=(2, 9),
    changes=(
        _FORMULA,
        Change(
            since=(1, 6),
            what="runs on GPUs of compute capability 8.0 and later (CUDA 11)",
            before="compute capability up to 7.5",
            source=_CUDA,
            fields={"most_capability": 7.5},
            last=(1, 5),
        ),
        Change(
            since=(1, 6),
            what="FP16 products take matrix units whatever their sizes (cuBLAS 11)",
            before="FP16 products take matrix units only where rows of all operands are multiples of 8 elements",
            source="NVIDIA's Matrix Multiplication Background User's Guide: requirements of cuBLAS before and since "
            "11.0; " + _CUDA,
            fields={"units_want_eights": True},
            last=(1, 5),
        ),
        Change(
            since=(1, 7),
            what="FP32 products, convolutions and recurrent layers take TF32 units where there are some",
            before="FP32 products are IEEE FP32",
            source="release notes of 1.7: TF32 is enabled by default on Ampere; 1.7.1's ATen/Context.h "
            "(allow_tf32_cudnn, allow_tf32_cublas) and ATen/cudnn/Descriptors.h",
            fields={"tf32": "none"},
        ),
        Change(
            since=(1, 9),
            what="stacks of matrices are copied before a product only where no view of them would do",
            before="stacks of matrices that aren't contiguous are copied before a product (heads of attention in a "
            "batch of one, transposed keys)",
            source="operators of matmul in torch 1.5.1, 1.7.1, 1.8.1 and 1.9.1 (autograd's profiler): contiguous, then "
            "reshape; launches of BERT in torch 1.5.1 on stand-ins for CUDA's libraries",
            fields={"contiguous_stacks": True},
        ),
        Change(
            since=(1, 11),
            what="layer normalization is one kernel",
            before="layer normalization is two kernels: moments of the rows, then what they are for",
            source="names of kernels in the libraries of torch 1.9.1, 1.10.2 and 1.11.0: RowwiseMomentsCUDAKernel and "
            "LayerNormForwardCUDAKernel alone, then vectorized_layer_norm_kernel beside them",
            fields={"norm_kernels": 2},
        ),
        Change(
            since=(1, 12),
            what="FP32 matrix products are IEEE FP32 unless asked otherwise; convolutions and recurrent layers still "
            "take TF32 units",
            before="FP32 products take TF32 units where there are some",
            source="release notes of 1.12: torch.backends.cuda.matmul.allow_tf32 is False by default; 1.12.1's "
            "ATen/Context.h (allow_tf32_cudnn is true)",
            fields={"tf32": "all"},
        ),
        Change(
            since=(1, 12),
            what="the bias of a linear layer is part of its product (cublasLt), for inputs of two and three dimensions",
            before="the bias of a linear layer of three and more dimensions is a kernel behind the product; of two it "
            "is copied to all rows before, and the product added to it",
            source="operators of torch 1.10.2, 1.11.0 and 1.12.1 (autograd's profiler): linear is matmul, add_, then "
            "addmm; gemm_and_bias is new in 1.12.1's ATen/cuda/CUDABlas.h",
            fields={"flattens": 2, "bias_first": True},
        ),
        Change(
            since=(1, 13),
            what="runs on GPUs of compute capability 9.0 (CUDA 11.8)",
            before="compute capability up to 8.9",
            source=_CUDA,
            fields={"most_capability": 8.9},
        ),
        Change(
            since=(2, 0),
            what="attention in 16 bits is one kernel (scaled_dot_product_attention)",
            before="attention is computed as it is written, in products and a softmax",
            source="PyTorch 2.0's release notes: torch.nn.functional.scaled_dot_product_attention is new, with kernels "
            "of FlashAttention and memory-efficient attention",
            fields={"calls_attention": False},
            lacks=frozenset({"scaled dot-product attention"}),
            last=(1, 13),
        ),
        Change(
            since=(2, 0),
            what="kernels of the optimizer go through many parameters (foreach)",
            before="each operation of the optimizer is a kernel for each parameter",
            source="PyTorch 2.0's release notes, as remembered: foreach is the default of optimizers on a GPU",
            fields={"foreach_optimizer": False},
            in_training=True,
            last=(1, 13),
        ),
        Change(
            since=(2, 0),
            what="gradients are given back after a step (zero_grad's set_to_none)",
            before="gradients are filled with zeros after a step, and added to in the next",
            source="PyTorch 2.0's release notes: zero_grad(set_to_none=True) is the default",
            fields={"frees_gradients": False},
            in_training=True,
            last=(1, 13),
        ),
        Change(
            since=(2, 1),
            what="the bias of a linear layer is part of its product for inputs of any number of dimensions",
            before="the bias of a linear layer of four and more dimensions is a kernel behind the product",
            source="launches of torch 1.13.1, 2.0.1 and 2.1.2 on stand-ins for CUDA's libraries (ConvNeXt)",
            fields={"flattens": 3},
            last=(2, 0),
        ),
        _MASKS,
        _BLACKWELL,
        Change(
            since=(2, 7),
            what="softmax reads rows of up to 9,216 columns once (16 bits, NVIDIA): a warp up to 2,048, then a block",
            before="softmax reads rows of more than 1,024 columns three times, a block a row",
            source="names of kernels in the libraries of torch 2.6.0, 2.7.1 and 2.8.0: cunn_SoftMaxForwardReg, and "
            "softmax_warp_forward of 2^11 columns; launches of 2.9.1 on stand-ins for CUDA's libraries",
            fields={"softmax_in_registers": False},
        ),
        Change(
            since=(2, 8),
            what="rows of whole 16 bytes that one index picks (embedding, index_select, x[i]) are copied so",
            before="rows are looked up element by element",
            source="launches of torch 2.7.1, 2.8.0 and 2.9.1 on stand-ins for CUDA's libraries "
            "(vectorized_gather_kernel)",
            fields={"vector_lookups": "none"},
        ),
        Change(
            since=(2, 9),
            what="an RMS normalization that is one operator is one kernel",
            before="an RMS normalization is computed by its formula, in six kernels",
            source="launches of rms_norm in torch 2.4.1 and 2.9.1 on stand-ins for CUDA's libraries; that 2.8 didn't "
            "yet as remembered of the pull request's date",
            fields={"fused_rms_norm": False},
        ),
    ),
)

COMPILED = History(
    project="PyTorch",
    first=(2, 0),  # torch.compile is new in 2.0 (its release notes)
    newest=(2, 9),
    changes=(_MASKS, _FORMULA, _BLACKWELL),
)
