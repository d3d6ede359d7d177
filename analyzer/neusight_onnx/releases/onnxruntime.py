"""What changed in ONNX Runtime's CUDA provider and in its optimiser until the release that is described.

Seen in onnxruntime-gpu's wheels themselves: the newest patch of each release that is named was run on stand-ins for
CUDA's libraries (``benchmarks/cuda_standin.py``), the graphs that it prepares and the kernels that it launches compared
(``benchmarks/results/fusion_releases.md``). PyPI has no wheel with the CUDA provider of releases before 1.11 but for
Pythons that are gone: they are taken to do what 1.11 does.
"""

from __future__ import annotations

from neusight_onnx.releases import Change, History
from neusight_onnx.releases.cudnn import after_cudnn7

_GRAPHS = "graphs that the CUDA provider of onnxruntime-gpu {} prepares"
_LAUNCHES = "kernels that onnxruntime-gpu {} launches for Attention in FP16, for compute capabilities 7.0, 7.5 and 8.0"
_INSTRUCTIONS = "launches and machine code of SkipLayerNormalization in onnxruntime-gpu {}, 64 to 4,096 columns"
_DECODING = (
    "launches of MultiHeadAttention and of GroupQueryAttention's decoding in FP16 in onnxruntime-gpu {}, as an H100"
)
_MESSAGES = "messages in the CUDA provider of onnxruntime-gpu {}"
_CODE = "machine code and PTX in the CUDA provider of onnxruntime-gpu {} on PyPI"

ONNXRUNTIME = History(
    project="ONNX Runtime",
    first=(1, 4),
    newest=(1, 31),
    changes=(
        after_cudnn7(
            (1, 5),
            source="ONNX Runtime's table of CUDA versions, as remembered: 1.4 is built with cuDNN 7.6, 1.5 with 8.0",
        ),
        Change(
            since=(1, 7),
            what="runs on GPUs of compute capability 8.0 and later (CUDA 11)",
            before="compute capability up to 7.5 (CUDA 10)",
            source="ONNX Runtime's table of CUDA versions, as remembered: 1.6 is built with 10.2, 1.7 with 11.0",
            fields={"most_capability": 7.5},
        ),
        Change(
            since=(1, 7),
            what="FP16 products take matrix units whatever their sizes (cuBLAS 11)",
            before="FP16 products take matrix units only where rows of all operands are multiples of 8 elements",
            source="NVIDIA's Matrix Multiplication Background User's Guide: requirements of cuBLAS before and since "
            "11.0; CUDA 10.2 until 1.6 and 11.0 from 1.7 on, by ONNX Runtime's table of requirements, as remembered",
            fields={"units_want_eights": True},
        ),
        Change(
            since=(1, 12),
            what="a normalization that casts to FP32 in between is one kernel behind the deviations from the mean",
            before="a normalization that casts to FP32 in between runs as it is written",
            source=_GRAPHS.format("1.11 and 1.12"),
            fields={"norms_in_fp32": "apart"},
        ),
        Change(
            since=(1, 12),
            what="a mask joins softmax where opset 13 or later is used",
            before="masks are added in kernels of their own where opset 13 or later is used",
            source=_GRAPHS.format("1.11 and 1.12"),
            lacks=frozenset({"mask and softmax"}),
        ),
        Change(
            since=(1, 13),
            what="attention operators of com.microsoft in 16 bits with a list of lengths find a fused kernel",
            before="attention operators of com.microsoft run by parts",
            source=_LAUNCHES.format("1.12 and 1.13"),
            fields={"fused_attention": "none"},
        ),
        Change(
            since=(1, 13),
            what="the bias of Attention's projection is added by the kernel that puts heads first",
            before="the bias of Attention's projection is written to all rows before the product",
            source=_LAUNCHES.format("1.12 and 1.13"),
            fields={"biases_attention_first": True},
        ),
        Change(
            since=(1, 13),
            what="formulas with a Pow of opset 15 and later are recognised: normalizations, GELU by tanh",
            before="normalizations and GELU by tanh that are written with a Pow of opset 15 or later run as written",
            source=_GRAPHS.format("1.12 and 1.13"),
            fields={"newest_pow": 14},
        ),
        Change(
            since=(1, 13),
            what="SkipLayerNormalization of up to 1,024 columns takes four elements a thread at once",
            before="SkipLayerNormalization takes an element a thread at a time",
            source=_INSTRUCTIONS.format("1.12 and 1.13"),
            fields={"skip_norm_at_once": 1},
        ),
        Change(
            since=(1, 14),
            what="attention operators of com.microsoft find a fused kernel wherever there is one",
            before="attention operators of com.microsoft in FP32 or without a list of lengths run by parts",
            source=_LAUNCHES.format("1.13 and 1.14"),
            fields={"fused_attention": "lengths"},
        ),
        Change(
            since=(1, 14),
            what="a normalization that casts to FP32 in between is one kernel",
            before="a normalization that casts to FP32 in between is one kernel behind the deviations from the mean",
            source=_GRAPHS.format("1.13 and 1.14"),
            fields={"norms_in_fp32": "deviation"},
        ),
        Change(
            since=(1, 14),
            what="x * sigmoid(x) is one kernel",
            before="x * sigmoid(x) is two kernels",
            source=_GRAPHS.format("1.13 and 1.14"),
            lacks=frozenset({"SiLU"}),
        ),
        Change(
            since=(1, 14),
            what="Gathers that take a tensor apart are one Split",
            before="Gathers that take a tensor apart are kernels of their own",
            source=_GRAPHS.format("1.13, 1.14 and 1.17") + ": some forms from 1.14 on, others from 1.17 or 1.22",
            fields={"splits_gathers": False},
        ),
        Change(
            since=(1, 14),
            what="a sum joins the normalization behind it where symbols show that both addends have one shape, too",
            before="a sum joins the normalization behind it in files that fix all sizes only",
            source=_GRAPHS.format("1.11, 1.13 and 1.14"),
            fields={"norms_of_sums_at_open_sizes": False},
        ),
        Change(
            since=(1, 16),
            what="SkipLayerNormalization takes eight elements a thread at once",
            before="SkipLayerNormalization takes four elements a thread at once up to 1,024 columns, one beyond",
            source=_INSTRUCTIONS.format("1.13, 1.14, 1.15 and 1.16"),
            fields={"skip_norm_at_once": 4},
        ),
        Change(
            since=(1, 17),
            what="a file converted to float16 has names for sizes behind a Reshape to a computed shape, by which sums "
            "join normalizations (opset 14 and later)",
            before="a file converted to float16 says no sizes behind a Reshape to a computed shape",
            source="the converter runs onnx's inference, which names them since onnx 1.15; 1.17 is built with that",
            fields={"converted_sizes_have_names": False},
        ),
        Change(
            since=(1, 17),
            what="a bias joins GELU behind a Reshape to a computed shape, too",
            before="a bias joins GELU only where its width is known: not behind a Reshape to a computed shape",
            source=_GRAPHS.format("1.11, 1.14, 1.16 and 1.17"),
            fields={"biased_gelu_at_open_sizes": False},
        ),
        Change(
            since=(1, 17),
            what="sums with 0 and products with 1 are taken out before formulas are looked for (the epsilon of a "
            "normalization in FP16 may be 0)",
            before="sums with 0 and products with 1 stay",
            source=_GRAPHS.format("1.16 and 1.17"),
            fields={"drops_neutral": False},
        ),
        Change(
            since=(1, 18),
            what="Relu of the sum of a convolution in FP32 and a tensor is a kernel of its own, as is the sum",
            before="sum and Relu behind a convolution in FP32 are part of it",
            source=_GRAPHS.format("1.17 and 1.18"),
            had=frozenset({"sum and activation into convolution"}),
        ),
        Change(
            since=(1, 19),
            what="runs on GPUs of compute capability 10.0 and later (CUDA 12)",
            before="compute capability up to 9.0 (CUDA 11, whose libraries know no later one)",
            source="libcublas.so.11 and .12 that the CUDA provider of onnxruntime-gpu 1.18 and 1.19 on PyPI loads; "
            "builds of 1.17 and 1.18 for CUDA 12 were elsewhere, as remembered",
            fields={"most_capability": 9.0},
        ),
        Change(
            since=(1, 20),
            what="Relu behind a convolution in FP32 is a kernel of its own",
            before="Relu behind a convolution in FP32 is part of it",
            source=_GRAPHS.format("1.19 and 1.20"),
            had=frozenset({"activation into convolution"}),
        ),
        Change(
            since=(1, 21),
            what="where a file fixes all sizes, a bias joins a product of more than two dimensions (a Gemm)",
            before="biases of products of more than two dimensions are added in kernels of their own, or with GELU, or "
            "with a sum and normalization",
            source=_GRAPHS.format("1.20 and 1.21"),
            fields={"biased_stacks": False},
        ),
        Change(
            since=(1, 21),
            what="its own kernels are compiled for compute capability 9.0, too",
            before="its own kernels are compiled for compute capabilities up to 8.0, by the driver for later ones",
            source=_CODE.format("1.11, 1.15, 1.18, 1.19, 1.20 and 1.21"),
            fields={"compiled_for": (5.2, 6.0, 6.1, 7.0, 7.5, 8.0)},
        ),
        Change(
            since=(1, 24),
            what="HardSwish is one kernel",
            before="HardSwish is two kernels",
            source=_GRAPHS.format("1.23 and 1.24"),
            fields={"has_hard_swish": False},
        ),
        Change(
            since=(1, 25),
            what="a bias joins the normalization of a sum whichever operand of its own sum it is",
            before="a bias joins the normalization of a sum as the second operand of its own sum only",
            source=_GRAPHS.format("1.14, 1.17, 1.21, 1.23, 1.24, 1.25 and 1.26"),
            fields={"joins_first_bias": False},
        ),
        Change(
            since=(1, 27),
            what="a QMoE with weights of the gate beside fc1 (fc3) is refused",
            before="a QMoE may have weights of the gate beside fc1 (fc3)",
            source=_MESSAGES.format("1.22, 1.23, 1.25, 1.26, 1.27, 1.29 and 1.30"),
            fields={"gates_apart": "all"},
        ),
        Change(
            since=(1, 28),
            what="its own kernels are compiled for compute capabilities 7.5 to 12.0",
            before="its own kernels are compiled for compute capabilities 6.0 to 9.0, for later ones by the driver",
            source=_CODE.format("1.24, 1.25, 1.26 and 1.28") + "; 1.27 was not looked at",
            fields={"compiled_for": (6.0, 7.0, 7.5, 8.0, 8.6, 9.0)},
        ),
        Change(
            since=(1, 28),
            what="attention operators of com.microsoft in 16 bits take cuDNN's kernels from compute capability 9.0 on",
            before="attention operators of com.microsoft take FlashAttention 2 from compute capability 9.0 on, too",
            source=_DECODING.format("1.24, 1.25, 1.26, 1.27 and 1.28"),
            fields={"fused_attention": "any"},
        ),
        Change(
            since=(1, 28),
            what="GroupQueryAttention decodes by XQA, one block for the heads that share keys",
            before="GroupQueryAttention decodes by FlashAttention 2, a block for each head",
            source=_DECODING.format("1.24, 1.25, 1.26, 1.27 and 1.28"),
            fields={"has_xqa": False},
        ),
        Change(
            since=(1, 31),
            what="a QMoE of FP8 in blocks may have weights of the gate beside fc1 (fc3)",
            before="a QMoE with weights of the gate beside fc1 (fc3) is refused",
            source=_MESSAGES.format("1.30 and 1.31"),
            fields={"gates_apart": "none"},
        ),
        Change(
            since=(1, 31),
            what="its own kernels are compiled for compute capabilities 7.5 to 9.0 and 12.0, for no later ones",
            before="its own kernels are compiled for compute capability 10.0, too, for those after 12.0 by the driver",
            source=_CODE.format("1.28 and 1.31") + "; releases between were not looked at",
            fields={"compiled_for": (7.5, 8.0, 8.6, 8.9, 9.0, 10.0, 12.0), "has_ptx": True},
        ),
    ),
)
