"""NSX4xx: number formats that the GPU has no units for. They follow from the kernels' types and the GPU's figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from neusight_onnx.checks.registry import Found, Scope, checks
from neusight_onnx.checks.subject import Subject
from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.model import file_name
from neusight_onnx.kernel_formats import kernel_dtype
from neusight_onnx.kernels import Attention, Conv, Gemm, Kernel, NodeWork, Recurrent
from neusight_onnx.precision import UNITS, leaves_out, refusal
from neusight_onnx.report.quantities import counted, duration
from neusight_onnx.report.verdict import Severity
from neusight_onnx.runnable import FNUZ, narrow_floats, without_units

_FP8 = frozenset({DataType.FLOAT8E4M3FN, DataType.FLOAT8E5M2, DataType.FLOAT8E4M3FNUZ, DataType.FLOAT8E5M2FNUZ})
_INT8 = frozenset({DataType.INT8, DataType.UINT8})
_BF16 = frozenset({DataType.BFLOAT16})
_FP16 = frozenset({DataType.FLOAT16})
_FP4 = frozenset({DataType.FLOAT4E2M1})

PACKED_RATIO = 2.2
"""FP16 on vector lanes, two packed in one, is twice the FP32 rate at most (NVIDIA Pascal tuning guide, AMD Vega); a
tenth more for datasheets that round. What is faster are tensor cores."""


PACKED_FP16 = frozenset({5.3, 6.0, 6.2})
"""Compute capabilities that run FP16 at twice the FP32 rate on vector lanes, accumulating in FP16, so that their specs
have no rate with FP32 accumulation (NVIDIA CUDA C++ Programming Guide, arithmetic throughput; 6.1 has a 64th)."""


def _has_matrix_units(gpu: GpuSpec) -> bool:
    """Whether the GPU has tensor (matrix) cores: they came with formats, or rates, that vector lanes don't have."""
    peaks = gpu.peak_flops_per_s
    newer = {"bf16", "tf32", "fp8"} & peaks.keys()
    return bool(newer) or peaks.get("fp16", 0.0) > PACKED_RATIO * peaks["fp32"]


def _products(kernel: Kernel) -> bool:
    return isinstance(kernel, Gemm | Conv | Attention | Recurrent)


def kernel_types(work: Sequence[NodeWork]) -> frozenset[tuple[DataType, bool]]:
    """The types that kernels compute in, and whether some product of matrices does."""
    return frozenset((kernel_dtype(kernel), _products(kernel)) for item in work for kernel in item.kernels)


def _found(subject: Subject, dtypes: frozenset[DataType], why: str, *, products: bool = True) -> Iterator[Found]:
    """One finding for all nodes that compute in one of ``dtypes`` (products of matrices, or anything)."""
    if subject.prepared is None or not any(
        dtype in dtypes and (product or not products) for dtype, product in subject.kernel_types
    ):
        return
    nodes = {
        file_name(work.node): kernel_dtype(kernel).label
        for work in subject.prepared.work
        for kernel in work.kernels[:1]
        if any(kernel_dtype(each) in dtypes and (_products(each) or not products) for each in work.kernels)
    }
    if nodes:
        kinds = ", ".join(dict.fromkeys(nodes.values()))
        yield Found(
            message=f"{counted(len(nodes), 'node computes', 'nodes compute')} in {kinds}; {why}",
            node=next(iter(nodes)),
        )


def _no_units(subject: Subject, name: str) -> str:
    """That the GPU has none for a format, or that its file states no rate of theirs."""
    units = UNITS[name][0]
    if leaves_out(subject.gpu, name):
        return f"no rate of {subject.gpu.name}'s {units} units is stated"
    return f"{subject.gpu.name} has no {units} units"


def _refused_whole(subject: Subject, name: str) -> Iterator[Found]:
    """That the GPU refuses a format that no kernel multiplies: the target's (ONNX Runtime widens what has no kernels in
    it), or one of the file that an engine isn't built of."""
    if subject.precision.name == name:
        reason = refusal(subject.precision, subject.gpu)
        if reason is not None:
            yield Found(message=reason)
    elif name in narrow_floats(subject.model.graph):
        reason = without_units(subject.model.graph, subject.target.runtime, subject.gpu)
        if reason is not None:
            yield Found(message=reason)


@checks(
    "NSX401",
    "no bfloat16 on this GPU",
    severity=Severity.ERROR,
    scope=Scope.TARGET,
    explanation="The model computes in bfloat16, and the GPU has no units for it (NVIDIA's have since Ampere: not "
    "V100, T4 or older). Runtimes refuse it or convert to float32 and back around every operator.",
    fix="use fp16 or fp32 on this GPU, or take one since Ampere",
)
def bfloat16(subject: Subject) -> Iterator[Found]:
    # what is left beside a format that is refused itself (NSX402, NSX405) nobody asked for
    is_rest = subject.precision.name in ("fp8", "fp4") and subject.stored not in _BF16
    if "bf16" not in subject.gpu.peak_flops_per_s and not (is_rest and refusal(subject.precision, subject.gpu)):
        yield from _found(subject, _BF16, _no_units(subject, "bf16"), products=False)


@checks(
    "NSX402",
    "no FP8 on this GPU",
    severity=Severity.ERROR,
    scope=Scope.TARGET,
    explanation="The model multiplies 8-bit floats, and the GPU has no units for them (NVIDIA's have since Ada and "
    "Hopper), or none for this variant: the FNUZ formats are not NVIDIA's.",
    fix="use int8 or fp16 on this GPU, or take one since Ada or Hopper",
)
def fp8(subject: Subject) -> Iterator[Found]:
    if "fp8" not in subject.gpu.peak_flops_per_s:
        found = list(_found(subject, _FP8, _no_units(subject, "fp8")))
        yield from found or _refused_whole(subject, "fp8")
    elif subject.gpu.vendor == "NVIDIA":
        yield from _found(subject, FNUZ, f"{subject.gpu.name} has FP8 units, but not for FNUZ formats")


@checks(
    "NSX403",
    "INT8 without tensor cores",
    severity=Severity.WARNING,
    scope=Scope.TARGET,
    explanation="The model multiplies 8-bit integers, and the GPU has no tensor cores for them: before Turing it runs "
    "them on its vector lanes (DP4A: Volta and the smaller chips of Pascal, not P100). A quantised model may be slower "
    "there than the one that it was made from. Where a GPU has the units and no rate of them is stated (Blackwell "
    "Ultra, which has few), the rate of 16 bits stands in.",
    fix="run the model that is not quantised on this GPU, take one since Turing, or state the rate in a GPU file",
)
def int8(subject: Subject) -> Iterator[Found]:
    peaks = subject.gpu.peak_flops_per_s
    if "int8" in peaks and _has_matrix_units(subject.gpu) and not subject.gpu.int8_on_lanes:
        return
    why, fix = f"{subject.gpu.name} has no INT8 tensor cores", None
    if leaves_out(subject.gpu, "int8"):
        why = f"no rate of {subject.gpu.name}'s INT8 units is stated, that of 16 bits stands in"
        fix = "state int8_tops in a GPU file (gpus NAME --format toml prints one to begin with)"
    for found in _found(subject, _INT8, why):
        yield replace(found, fix=fix)


@checks(
    "NSX404",
    "no fast FP16 on this GPU",
    severity=Severity.WARNING,
    scope=Scope.TARGET,
    explanation="The model computes in float16, and the GPU has no rate for it: GeForce and Tesla cards of Pascal's "
    "smaller chips (P4, P40, GTX 10) run it at a 64th of the FP32 rate (NVIDIA CUDA C++ Programming Guide, "
    "arithmetic throughput of compute capability 6.1).",
    fix="use fp32 on this GPU",
)
def fp16(subject: Subject) -> Iterator[Found]:
    gpu = subject.gpu
    if "fp16" not in gpu.peak_flops_per_s and gpu.compute_capability not in PACKED_FP16:
        yield from _found(subject, _FP16, f"{gpu.name} has no float16 rate of use", products=False)


@checks(
    "NSX405",
    "no FP4 on this GPU",
    severity=Severity.ERROR,
    scope=Scope.TARGET,
    explanation="The model multiplies 4-bit floats, and the GPU has no units for them (NVIDIA's have since Blackwell, "
    "AMD's since CDNA 4).",
    fix="use fp8 or int8 on this GPU, or take one since Blackwell or CDNA 4",
)
def fp4(subject: Subject) -> Iterator[Found]:
    if "fp4" not in subject.gpu.peak_flops_per_s:
        found = list(_found(subject, _FP4, _no_units(subject, "fp4")))
        yield from found or _refused_whole(subject, "fp4")


@checks(
    "NSX406",
    "number format that the GPU can't run",
    severity=Severity.ERROR,
    scope=Scope.TARGET,
    explanation="The precision that the target asks for needs units that the GPU doesn't have, so that no runtime "
    "would run the model in it there (TF32 came with Ampere, tensor cores for INT8 with Turing): nothing is predicted. "
    "bfloat16, FP8 and FP4 have codes of their own, which name the nodes.",
    fix="ask for fp16 or fp32 on this GPU, or take a newer one",
)
def precision(subject: Subject) -> Iterator[Found]:
    reason = refusal(subject.precision, subject.gpu)
    name = subject.precision.name.removesuffix("-model")
    told = name in ("fp8", "fp4") or (name == "bf16" and any(dtype in _BF16 for dtype, _ in subject.kernel_types))
    if reason is not None and not told:
        yield Found(message=reason)


@checks(
    "NSX407",
    "format that hardly concerns the model",
    severity=Severity.WARNING,
    scope=Scope.TARGET,
    explanation="The precision that the target asks for is one of 8 or 4 bits, and less than a tenth of the FLOPs of "
    "products and convolutions run in it in this runtime (of a convolutional network often its last layer alone), or "
    "most bytes of weights are those of experts, which stay as they are: what is judged is, in effect, the type that "
    "all the rest runs in.",
    fix="ask for the type that the message names, or take a runtime that has such kernels (--runtime tensorrt)",
)
def hardly_narrowed(subject: Subject) -> Iterator[Found]:
    if subject.little_narrowed is not None:
        of_engine = subject.target.runtime.startswith("tensorrt")
        yield Found(
            message=subject.little_narrowed,
            fix="ask for the type that the message names, or for int8, which convolutions have, too; a file whose "
            "Q/DQ nodes ask for more is predicted by --precision auto"
            if of_engine
            else None,
        )


@checks(
    "NSX408",
    "rows that matrix units don't load whole",
    severity=Severity.NOTE,
    scope=Scope.TARGET,
    explanation="Products in 16 bits or TF32 have rows that are no multiple of 16 bytes (8 elements of 16 bits, 4 of "
    "TF32), such as the 50,257 columns of a vocabulary. Libraries have slower kernels for them, and on Hopper and "
    "Blackwell older instructions. It is found where padding would save a fiftieth of the kernels' time; TensorRT pads "
    "by itself, and torch.compile where copies are worth it. Nobody measured such kernels publicly: what is saved is "
    "worked out from the instructions that they need.",
    fix="pad the size to a multiple of 8 in the model (a vocabulary with unused rows), or take a runtime that pads "
    "(--runtime tensorrt)",
)
def loose_rows(subject: Subject) -> Iterator[Found]:
    gain = subject.padding
    if gain is None:
        return
    m, n, k = (f"{size:,}" for size in gain.sizes)
    others = f"; with {counted(gain.others, 'other node')} {duration(gain.saved_us)} of the run" if gain.others else ""
    yield Found(
        message=f"a product of {m} x {n} x {k} takes {duration(gain.latency_us)}, padded to multiples of 8 "
        f"{duration(gain.padded_us)}{others}",
        node=gain.node,
    )
