"""What changed in TensorRT until the release that is described.

NVIDIA's documents say it: release notes, support matrices and the developer guide of each release, all as remembered.
"""

from __future__ import annotations

from math import inf

from neusight_onnx.releases import Change, History
from neusight_onnx.releases.cudnn import after_cudnn7

_IN_GUIDES = frozenset({"bias", "scale", "Add", "Relu", "Clip", "Gelu"})
EPILOGUES = {
    "conv": _IN_GUIDES | {"Sigmoid", "Tanh", "Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "Swish"},
    "gemm": _IN_GUIDES | {"HardSigmoid", "HardSwish", "LeakyRelu"},
}
"""What convolutions and products of the newest release apply before they write."""

TENSORRT = History(
    project="TensorRT",
    first=(7, 0),
    newest=(11, 0),
    changes=(
        after_cudnn7((7, 1), source="release notes: 7.0 is built for cuDNN 7.6, 7.1 for 8.0"),
        Change(
            since=(7, 1),
            what="runs on GPUs of compute capability 8.0 and later",
            before="compute capability up to 7.5",
            source="release notes of NVIDIA's TensorRT container 20.06 (7.1, CUDA 11.0), the first for the A100",
            fields={"most_capability": 7.5},
        ),
        Change(
            since=(8, 5),
            what="runs on GPUs of compute capability 8.9 and 9.0",
            before="compute capability up to 8.7",
            source="release notes of 8.5: support for Hopper and Ada",
            fields={"most_capability": 8.7},
            last=(8, 4),
        ),
        Change(
            since=(8, 6),
            what="attention in 16 and 8 bits is one kernel (since Turing)",
            before="attention is two products and a softmax, scaled and masked, on every GPU",
            source="the developer guides of 8.0 to 8.4 list no such fusion under their types of fusions, and NVIDIA's "
            "own demos took plugins for it: BERT's, and Stable Diffusion's with 8.5, which went with 8.6",
            fields={"attention_capability": inf},
        ),
        Change(
            since=(9, 0),
            what="runs on GPUs of compute capability 7.0 and later",
            before="also on earlier ones, of compute capability 5.0 and later",
            source="release notes: 8.6 is the last release for Maxwell and Pascal",
            fields={"least_capability": 5.0},
            last=(8, 6),
        ),
        Change(
            since=(9, 0),
            what="computes in bfloat16 and FP8",
            before="computes in no bfloat16 and no FP8",
            source="release notes of 9.0, the first whose builder has the flags kBF16 and, beyond a preview, kFP8",
            fields={"lacks_formats": frozenset({"bf16", "fp8", "int4w", "fp4"})},
            last=(8, 6),
        ),
        Change(
            since=(10, 0),
            what="takes weights in INT4",
            before="takes no weights in INT4",
            source="release notes of 10.0: INT4 weight-only quantisation",
            fields={"lacks_formats": frozenset({"int4w", "fp4"})},
            last=(9, 3),
        ),
        Change(
            since=(10, 0),
            what="activations other than Relu, Clip and Gelu, SiLU among them, are part of a convolution",
            before="activations other than Relu, Clip and Gelu behind a convolution are kernels of their own",
            source="the developer guides of 7 and 8 list no others; build logs of 7.0 to 8.6 have layers PWN(Sigmoid, "
            "Mul) and PWN(LeakyRelu) behind those of convolutions (YOLOv3 to v8). Which release between 8.6 and 10 "
            "changed it is not known",
            fields={"products": {**EPILOGUES, "conv": _IN_GUIDES}},
            last=(9, 3),
        ),
        Change(
            since=(10, 5),
            what="runs on GPUs of compute capability 7.5 and later",
            before="also on those of 7.0",
            source="release notes: 10.4 is the last release for Volta",
            fields={"least_capability": 7.0},
        ),
        Change(
            since=(10, 8),
            what="runs on GPUs of compute capability 10.0 and later",
            before="compute capability up to 9.0",
            source="release notes of 10.8: support for Blackwell",
            fields={"most_capability": 9.0},
        ),
        Change(
            since=(10, 8),
            what="computes in FP4",
            before="computes in no FP4",
            source="release notes of 10.8: FP4 on Blackwell",
            fields={"lacks_formats": frozenset({"fp4"})},
        ),
    ),
)
