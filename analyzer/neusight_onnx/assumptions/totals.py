"""What follows from the totals of a report: shares and ranges that hang on data, and warnings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from neusight_onnx.assembly import Counted, stream_steps
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.model import Notice
from neusight_onnx.report.model import (
    TIGHT,
    Coverage,
    Totals,
    UnsupportedNode,
)
from neusight_onnx.report.quantities import capacity, percent
from neusight_onnx.runtime import Runtime
from neusight_onnx.stream import stream_time_us

if TYPE_CHECKING:
    pass


def share_by_data(coverage: Coverage) -> Iterator[str]:
    """Which share of the time hangs on shapes that depend on data."""
    if coverage.data_dependent_share > 0:
        yield (
            f"{percent(coverage.data_dependent_share)} of the kernels' time goes to tensors whose shape depends on "
            "data: counted at the greatest that it can be, or as is stated here"
        )


def range_of_branches(counted: Counted, totals: Totals, runtime: Runtime) -> Iterator[str]:
    """The latency if every undecided If took its faster branch, beside the one that is shown."""
    if counted.faster is None or not counted.said:
        return
    steps = stream_steps(counted.faster, lambda prediction: prediction.latency_us, runtime)
    least_ms = stream_time_us(steps, runtime) / 1e3
    least, shown = f"{least_ms:.3g} ms", f"{totals.latency_ms:.3g} ms"
    if least != shown:
        yield (
            "if every If whose condition is not known took its faster branch, the latency would be "
            f"{least}, not {shown}"
        )


def own_warnings(totals: Totals, unsupported: Sequence[UnsupportedNode], spec: GpuSpec) -> Iterator[Notice]:
    """Warnings that follow from the totals: a lower bound, memory that does not suffice or is tight."""
    if totals.partial:
        count = len(unsupported)
        yield Notice(
            code="partial",
            message=f"{count:,} {'node is' if count == 1 else 'nodes are'} not supported and counted as nothing: "
            "the totals are a lower bound",
        )
    memory = totals.memory
    if not memory.fits:
        yield Notice(
            code="memory",
            message=f"needs about {capacity(memory.peak_bytes)}, {spec.name} has {capacity(memory.available_bytes)}: "
            "it does not fit",
        )
    elif memory.verdict == TIGHT:
        yield Notice(
            code="memory_tight",
            message=f"may need up to {capacity(memory.high_bytes)}, {spec.name} has "
            f"{capacity(memory.available_bytes)} and a process can't have all of it: it is tight",
        )
