"""Whether a runtime runs a model in a number format on a GPU; if not, why, and what would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from neusight_onnx.compatibility import Misfit, misfit
from neusight_onnx.dtypes import BY_ONNX_CODE, DataType
from neusight_onnx.errors import NotSupportedError
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.bodies import nodes_of
from neusight_onnx.graph.model import Graph, Initializer, Model, Node
from neusight_onnx.kernels import Attention, Conv, Gemm, NodeWork
from neusight_onnx.precision import FORMATS, UNITS, Precision, refusal
from neusight_onnx.runtime import Runtime, get_runtime

_STORED = {
    DataType.FLOAT8E4M3FN: "fp8",
    DataType.FLOAT8E5M2: "fp8",
    DataType.FLOAT8E4M3FNUZ: "fp8",
    DataType.FLOAT8E5M2FNUZ: "fp8",
    DataType.FLOAT4E2M1: "fp4",
}
FNUZ = frozenset({DataType.FLOAT8E4M3FNUZ, DataType.FLOAT8E5M2FNUZ})
"""Formats of 8 bits that no GPU by NVIDIA multiplies, whatever other FP8 units it has."""
_TYPE_ATTRIBUTES = ("to", "output_dtype")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why a model isn't run; ``what`` must change: "precision" or "runtime"."""

    what: str
    message: str


def narrow_floats(graph: Graph) -> frozenset[str]:
    """The formats of 8 and 4 bits ("fp8", "fp4") that a file stores values in or converts to."""
    return frozenset(_STORED[dtype] for dtype in _types(graph) if dtype in _STORED)


def _types(graph: Graph) -> Iterator[DataType]:
    """Types of constants, and those that conversions name; of bodies, too."""
    yield from (item.dtype for item in graph.initializers.values())
    for node in graph.nodes:
        for name, value in node.attributes.items():
            if isinstance(value, Initializer):
                yield value.dtype
            elif isinstance(value, Graph):
                yield from _types(value)
            elif name in _TYPE_ATTRIBUTES and isinstance(value, int):
                found = BY_ONNX_CODE.get(value)
                if found is not None:
                    yield found


def without_units(graph: Graph, runtime: str, gpu: GpuSpec) -> str | None:
    """That an engine's builder refuses a file with 8- or 4-bit floats on a GPU that has no units for them."""
    if get_runtime(runtime).fallback != "refused":
        return None
    lacking = sorted(narrow_floats(graph) - gpu.peak_flops_per_s.keys())
    if not lacking:
        return None
    units, _, since = UNITS[lacking[0]]
    return (
        f"runtime {runtime} on {gpu.name}: the file stores {units}, for which the GPU has no units, so that no engine "
        f"is built; take --runtime onnxruntime, a file without {units}, or {since}"
    )


def require_units(works: Sequence[NodeWork], runtime: Runtime, gpu: GpuSpec) -> None:
    """NotSupportedError where products of 8- or 4-bit floats are left to run on a GPU that has no units for them.

    PyTorch's ``torch._scaled_mm`` refuses such GPUs ("only supported on CUDA devices with compute capability >= 9.0 or
    8.9, or ROCm MI300+"), and so does ONNX Runtime's GemmFloat8. Pairs of quantisation that a runtime executes as
    kernels of their own around products of wider floats aren't meant: conversions run everywhere.
    """
    lacking = {
        dtype: name
        for dtype, name in _STORED.items()
        if name not in gpu.peak_flops_per_s or (dtype in FNUZ and gpu.vendor == "NVIDIA")
    }
    if not lacking:
        return
    nodes_of = Counter(
        dtype
        for work in works
        if work.kernels
        for dtype in {kernel.dtype for kernel in work.kernels if isinstance(kernel, Attention | Conv | Gemm)}
        if dtype in lacking
    )
    for dtype, name in lacking.items():
        if count := nodes_of[dtype]:
            units, _, since = UNITS[name]
            nodes = "1 node multiplies" if count == 1 else f"{count:,} nodes multiply"
            others = "" if runtime.name == "onnxruntime" else "take --runtime onnxruntime, which widens them first, or "
            if name in gpu.peak_flops_per_s:
                units, since = "FNUZ", f"{DataType.FLOAT8E4M3FN.label}, or AMD's CDNA 3"
            raise NotSupportedError(
                f"runtime {runtime.label} on {gpu.name}: {nodes} {dtype.label}, and the GPU has no {units} units; "
                f"{others}take {since}"
            )


ENGINE_ROUNDS_TO = frozenset(
    {DataType.INT8, DataType.UINT8, DataType.INT4, DataType.FLOAT4E2M1}
    | {dtype for dtype, name in _STORED.items() if name == "fp8"}
)
"""What TensorRT's parser quantises to and dequantises from; of constants not UINT8.

This and that zero points must be 0: what the parser of TensorRT for RTX 1.7, the same as TensorRT's, answers to files
with one other pair each ("Non-zero zero point is not supported", "input has type Int32 but must have type FP8, FP4,
Int4, Int8, or UInt8", "Found unsupported input type of UINT8").
"""
SYMMETRIC = (
    "quantise it to INT8 about zero, biases left in floats (ONNX Runtime's quantiser: ActivationSymmetric, "
    "WeightSymmetric, QuantizeBias=False)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedPair:
    """A QuantizeLinear or DequantizeLinear that an engine's builder doesn't take, and why; ``alike``: how many it
    doesn't take for the like of it, this one among them; ``others``: for something else."""

    node: str
    op_type: str
    reason: str
    alike: int
    others: int

    @property
    def more(self) -> str:
        """How many more there are, "" if none."""
        more = [f"{self.alike - 1:,} more alike"] if self.alike > 1 else []
        more += [f"{self.others:,} for other types or zero points"] if self.others else []
        return f" ({', '.join(more)})" if more else ""


def refused_pair(graph: Graph, runtime: str) -> RefusedPair | None:
    """The first pair for which ``runtime``, an engine's builder, refuses a file; bodies are looked at, too."""
    if get_runtime(runtime).fallback != "refused":
        return None
    found = list(_refused_pairs(graph, {}))
    if not found:
        return None
    node, refusal = found[0]
    alike = sum(other.kind == refusal.kind for _, other in found)
    return RefusedPair(
        node=node.name, op_type=node.op_type, reason=refusal.reason, alike=alike, others=len(found) - alike
    )


@dataclass(frozen=True, slots=True)
class _Refusal:
    """``kind``: what refusals that are told together have in common: a type, or that a zero point isn't 0."""

    kind: str
    reason: str


def _refused_pairs(graph: Graph, outer: Mapping[str, Initializer]) -> Iterator[tuple[Node, _Refusal]]:
    constants = {**outer, **graph.initializers}
    for node in graph.nodes:
        held = node.attributes.get("value")
        if node.op_type == "Constant" and isinstance(held, Initializer):
            constants.update(dict.fromkeys(node.outputs, held))
        elif node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            refusal = _why_refused(node, constants)
            if refusal is not None:
                yield node, refusal
        for value in node.attributes.values():
            if isinstance(value, Graph):
                yield from _refused_pairs(value, constants)


def _why_refused(node: Node, constants: Mapping[str, Initializer]) -> _Refusal | None:
    source, _, about, *_ = (*node.inputs, "", "", "")  # shapes aren't inferred yet: inputs may lack
    data, zero = constants.get(source), constants.get(about)
    stored = data if node.op_type == "DequantizeLinear" else None
    for constant in (stored, zero):
        if constant is not None and constant.dtype not in ENGINE_ROUNDS_TO:
            label = constant.dtype.label.upper()
            return _Refusal(label, f"has {label}, TensorRT takes INT8, INT4, FP8 and FP4")
    if stored is not None and stored.dtype is DataType.UINT8:
        return _Refusal("UINT8", "reads a constant of UINT8, TensorRT takes those of INT8, INT4, FP8 and FP4")
    if zero is not None and zero.data is not None and zero.dtype.is_integer and zero.data.any():
        value = zero.data[zero.data != 0].flat[0]
        return _Refusal("zero point", f"has the zero point {value}, TensorRT takes 0 alone")
    return None


ENGINE_LACKS = frozenset({"DynamicQuantizeLinear", "ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"})
"""ONNX's operators of quantisation beside pairs: TensorRT's parser has none of them (``lowering/engine_parser.py``)."""
BY_PAIRS = (
    "quantise it in pairs of QuantizeLinear and DequantizeLinear (ONNX Runtime's quantiser: quantize_static with "
    "QuantFormat.QDQ, ActivationSymmetric, WeightSymmetric, QuantizeBias=False)"
)


def without_engine(graph: Graph, runtime: str) -> str | None:
    """That an engine's builder refuses a file for how it is quantised."""
    found = refused_pair(graph, runtime)
    if found is None:
        return _without_pairs(graph, runtime)
    return (
        f"runtime {runtime}: {found.op_type} node '{found.node}' {found.reason}{found.more}, so that no engine is "
        f"built; {SYMMETRIC}, or take --runtime onnxruntime"
    )


def _without_pairs(graph: Graph, runtime: str) -> str | None:
    """That an engine's builder refuses a file that is quantised by other operators than pairs."""
    if get_runtime(runtime).fallback != "refused":
        return None
    lacking = [node for node in nodes_of(graph) if not node.domain and node.op_type in ENGINE_LACKS]
    if not lacking:
        return None
    more = f" and {len(lacking) - 1:,} more of quantisation" if lacking[1:] else ""
    return (
        f"runtime {runtime}: TensorRT's parser has no {lacking[0].op_type} (node '{lacking[0].name}'{more}), so that "
        f"no engine is built; {BY_PAIRS}, or take --runtime onnxruntime"
    )


_QUANTISED = ENGINE_LACKS | {"QuantizeLinear", "DequantizeLinear"}
"""Operators of quantised files in ONNX. What PyTorch quantises itself runs other operators than it exports as these."""


def quantised_for_others(graph: Graph, runtime: str) -> str | None:
    """That PyTorch, as ``runtime`` (eager, compiled), runs no such file as this quantised one; None for other files."""
    label = get_runtime(runtime).name
    if label not in ("eager", "compiled") or not any(node.op_type in _QUANTISED for node in nodes_of(graph)):
        return None
    return (
        f"PyTorch runs no file quantised in ONNX: {label} stands for its way of launching, with the kernels of a "
        "runtime that folds QuantizeLinear and DequantizeLinear (docs/quantization.md); --runtime tensorrt has them"
    )


def runtime_misfit(model: Model, precision: Precision, runtime: str, gpu: GpuSpec) -> Misfit | None:
    """Why a runtime, or its release, doesn't take the GPU, the precision, or a format that the file stores."""
    found = misfit(runtime, gpu, precision.name)
    if found is None and get_runtime(runtime).fallback == "refused":
        stored = (misfit(runtime, gpu, name) for name in sorted(narrow_floats(model.graph)))
        found = next((each for each in stored if each is not None), None)
    return found


def untrained(precision: Precision) -> str | None:
    """That training has no model in a precision; None for one that it has."""
    if precision.weights is None:
        return None
    supported = ", ".join(name for name, found in FORMATS.items() if found.weights is None)
    return f"training in {precision.name} has no model; supported now: {supported}"


def refused(
    model: Model, precision: Precision, runtime: str, gpu: GpuSpec, *, in_training: bool = False
) -> Refused | None:
    """Why ``runtime`` (as ``--runtime`` calls it) doesn't run a model in ``precision`` on a GPU; None if it does.

    ``in_training``: what has no model in training is refused as such, whatever the GPU has.
    """
    if in_training and (reason := untrained(precision)) is not None:
        return Refused(what="precision", message=reason)
    if (reason := refusal(precision, gpu)) is not None:
        return Refused(what="precision", message=reason)
    if (found := runtime_misfit(model, precision, runtime, gpu)) is not None:
        return Refused(what="runtime", message=str(found))
    if (reason := without_units(model.graph, runtime, gpu)) is not None:
        return Refused(what="runtime", message=reason)
    if (reason := without_engine(model.graph, runtime)) is not None:
        return Refused(what="runtime", message=reason)
    return None


def require_runnable(
    model: Model, precision: Precision, runtime: str, gpu: GpuSpec, *, in_training: bool = False
) -> None:
    """Raises NotSupportedError where :func:`refused` has a reason."""
    found = refused(model, precision, runtime, gpu, in_training=in_training)
    if found is not None:
        raise NotSupportedError(found.message)
