"""What ``sweep`` found, as a value: every format of its report is made from it (schema version 1, only grows)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.model import Notice
from neusight_onnx.report.model import Totals

KNEE_SHARE = 0.9
"""The knee is the smallest batch that reaches this share of the highest throughput of the sizes that fit: beyond it a
batch that grows brings latency and little else. The share is this project's choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The model at some sizes. ``totals`` is None where the model refuses them, ``refused`` says why.

    ``dims``: of the dims that vary, as asked for. ``bound_shares``: of the latency, by what bounds it, largest first.
    """

    dims: Mapping[str, int]
    totals: Totals | None
    bound_shares: Mapping[str, float]
    unsupported_count: int
    refused: str | None = None

    @property
    def is_costed(self) -> bool:
        """Whether any time could be worked out."""
        return self.totals is not None and self.totals.is_costed


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What was found along the axis, the other dims being ``dims``: sizes of those swept, None where none is so.

    ``knee``: see :data:`KNEE_SHARE`, only where the axis is a batch. ``largest_that_fits``: with the verdict "fits".
    ``largest_in_time``: that meets the limit of latency and fits the memory; None without a limit.
    ``not_judged``: which of "knee" and "largest_in_time" are None since nodes of a point count as nothing, so that its
    latency is a lower bound.
    ``points``: indices into those of the sweep, by size.
    """

    dims: Mapping[str, int]
    points: tuple[int, ...]
    knee: int | None
    largest_that_fits: int | None
    largest_in_time: int | None
    not_judged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A model on one GPU at many sizes.

    ``axis``: the dim that each series runs along: the batch if it varies, else the last one given. ``varied``: all
    that vary. ``dims``: those that don't; ``derived``: those that weren't asked for and vary all the same.
    ``product_formats``: of 8 and 4 bits that products run in beside ``precision``.
    ``max_latency_ms``: the limit, judged ``at`` "upper" (the pessimistic end of the interval) or "median".
    """

    tool_version: str
    model_path: str
    model_sha256: str
    gpu: GpuSpec
    precision: str
    runtime: str
    dims: Mapping[str, int]
    axis: str
    axis_is_batch: bool
    varied: tuple[str, ...]
    max_latency_ms: float | None
    at: str
    points: tuple[Point, ...]
    series: tuple[Series, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[Notice, ...]
    mode: str = "inference"
    cuda_graph: bool = False
    include_io: bool = False
    channels_last: bool = False
    product_formats: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
