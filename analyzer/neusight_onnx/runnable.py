"""Whether a runtime runs a model in a number format on a GPU; if not, why, and what would do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from neusight_onnx.dtypes import BY_ONNX_CODE, DataType
from neusight_onnx.errors import NotSupportedError
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.model import Graph, Initializer, Model
from neusight_onnx.precision import UNITS, Precision, refusal
from neusight_onnx.runtime import Misfit, get_runtime, misfit

_STORED = {
    DataType.FLOAT8E4M3FN: "fp8",
    DataType.FLOAT8E5M2: "fp8",
    DataType.FLOAT8E4M3FNUZ: "fp8",
    DataType.FLOAT8E5M2FNUZ: "fp8",
    DataType.FLOAT4E2M1: "fp4",
}
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


def runtime_misfit(model: Model, precision: Precision, runtime: str, gpu: GpuSpec) -> Misfit | None:
    """Why a runtime, or its release, doesn't take the GPU, the precision, or a format that the file stores."""
    found = misfit(runtime, gpu, precision.name)
    if found is None and get_runtime(runtime).fallback == "refused":
        stored = (misfit(runtime, gpu, name) for name in sorted(narrow_floats(model.graph)))
        found = next((each for each in stored if each is not None), None)
    return found


def refused(model: Model, precision: Precision, runtime: str, gpu: GpuSpec) -> Refused | None:
    """Why ``runtime`` (as ``--runtime`` calls it) doesn't run a model in ``precision`` on a GPU; None if it does."""
    if (reason := refusal(precision, gpu)) is not None:
        return Refused(what="precision", message=reason)
    if (found := runtime_misfit(model, precision, runtime, gpu)) is not None:
        return Refused(what="runtime", message=str(found))
    if (reason := without_units(model.graph, runtime, gpu)) is not None:
        return Refused(what="runtime", message=reason)
    return None


def require_runnable(model: Model, precision: Precision, runtime: str, gpu: GpuSpec) -> None:
    """Raises NotSupportedError where :func:`refused` has a reason."""
    found = refused(model, precision, runtime, gpu)
    if found is not None:
        raise NotSupportedError(found.message)
