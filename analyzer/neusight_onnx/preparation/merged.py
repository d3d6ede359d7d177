"""What fusion saves of a run, and where rules didn't merge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from neusight_onnx.fusion.patterns.search import Verdict
from neusight_onnx.graph.model import file_name
from neusight_onnx.kernels import NodeWork
from neusight_onnx.lowering.context import LAZY_VIEWS
from neusight_onnx.preparation.models import PreparedModel
from neusight_onnx.report.model import FusionSummary, NearMiss

if TYPE_CHECKING:
    pass


def near_misses(verdicts: Sequence[Verdict]) -> tuple[NearMiss, ...]:
    """Where a rule looked and didn't merge; not where it did so from another of the formula's nodes (a normalization
    has two means)."""
    merged = {(verdict.rule, name) for verdict in verdicts for name in verdict.merged}
    return tuple(
        NearMiss(rule=verdict.rule, node=file_name(verdict.node), reason=verdict.reason)
        for verdict in verdicts
        if verdict.reason is not None and (verdict.rule, verdict.node) not in merged
    )


def fusion_of(prepared: PreparedModel, executed: Sequence[NodeWork]) -> FusionSummary:
    """What fusion saves of a run: where an engine's builder chooses among ways to do the work, by what it chose."""
    from neusight_onnx.fusion.savings import savings

    works = executed if prepared.runtime.times_kernels else prepared.merged
    saved = savings(prepared.unfused, works, lazy=prepared.runtime.name in LAZY_VIEWS)
    return FusionSummary(
        fused_kernel_count=saved.fused_count,
        fused_node_count=saved.node_count,
        saved_kernel_count=saved.kernel_count,
        saved_bytes=saved.byte_count,
        near_misses=prepared.near_misses,
    )
