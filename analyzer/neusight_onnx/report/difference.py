"""What ``diff`` found between two reports, as a value (schema version 1, only grows)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neusight_onnx.report.quantities import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two reports: where it is from, its settings and totals. ``classes``: ms by kernel class."""

    source: str
    model_path: str
    gpu: str
    precision: str
    runtime: str
    dims: Mapping[str, int]
    latency_ms: float
    latency_low_ms: float
    latency_high_ms: float
    throughput_per_s: float
    memory_bytes: int | None
    overhead_ms: float
    kernel_count: int
    unsupported_count: int
    partial: bool
    classes: Mapping[str, float]
    mode: str = "inference"
    cuda_graph: bool = False
    include_io: bool = False
    channels_last: bool = False
    runtime_release: str | None = None
    product_formats: tuple[str, ...] = ()
    tokens_per_s: float | None = None

    @property
    def is_costed(self) -> bool:
        """Whether any time could be worked out."""
        return self.latency_ms > 0 or not self.partial


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelChange:
    """Equal kernels (class, dtype, dims) that one report has more of, or that take another time.

    ``status``: "new" (only in the new report), "gone" (only in the old one) or "changed" (their number, their time, or
    their form: as many of the same class, from the same nodes, in another dtype or other dims; ``old_dtype`` and
    ``old_dims`` then, else None). ``nodes``: some that they come from. Times and counts are those of all together.
    """

    status: str
    kernel_class: str
    dtype: str
    dims: Mapping[str, object]
    nodes: tuple[str, ...]
    old_count: int
    new_count: int
    old_us: float
    new_us: float
    old_dtype: str | None = None
    old_dims: Mapping[str, object] | None = None

    @property
    def delta_us(self) -> float:
        """Positive where the new report takes longer."""
        return self.new_us - self.old_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Old against new. ``kernels``: the largest change of time first.

    ``new_unsupported``: (operator, reason, number of nodes) that the old report does not have, ``gone_unsupported``
    likewise. ``notes``: what else differs and makes the comparison less than like for like. ``limit``: the growth of
    latency that is allowed, as a share; None without a limit.
    """

    tool_version: str
    old: Side
    new: Side
    kernels: tuple[KernelChange, ...]
    new_unsupported: tuple[tuple[str, str, int], ...]
    gone_unsupported: tuple[tuple[str, str, int], ...]
    notes: tuple[str, ...]
    limit: float | None = None

    @property
    def growth(self) -> float | None:
        """Of the latency, as a share of the old one: 0.05 is 5 % slower; None where the old one is 0."""
        return self.new.latency_ms / self.old.latency_ms - 1 if self.old.latency_ms else None

    @property
    def unjudged(self) -> str | None:
        """Why the change of the latency isn't known, where the new report's latency lacks what the old one's has."""
        for side in (self.old, self.new):
            if not side.is_costed:
                return f"nothing of {side.source} could be costed"
        more = sum(count for _, _, count in self.new_unsupported)
        if not more:
            return None
        return f"{counted(more, 'node counts', 'nodes count')} as nothing, and did not before"

    @property
    def is_over(self) -> bool:
        """Whether the latency grew over the limit; from nothing, any growth is over it."""
        if self.limit is None:
            return False
        return self.new.latency_ms > 0 if self.growth is None else self.growth > self.limit

    @property
    def failed(self) -> bool:
        """Whether there is a limit that the latency is over, or may be over for all that is known."""
        return self.limit is not None and (self.is_over or self.unjudged is not None)
