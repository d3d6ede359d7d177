"""What ``compare`` found, as a value: every format of its report is made from it (schema version 1, only grows)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.model import Notice
from neusight_onnx.report.model import Totals

SAMPLES = 1_000_000
"""Costs are those of so many inferences; a batch of n is n inferences."""


class SortKey(StrEnum):
    """What the best case has the least of (of throughput: the most)."""

    LATENCY = "latency"
    THROUGHPUT = "throughput"
    MEMORY = "memory"
    COST = "cost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One way to run the model, and what it would take.

    ``gpu`` is called as it was asked for (a file's path, a cloud's machine), ``gpu_model`` as it is in itself.
    ``product_formats``: of 8 and 4 bits that products run in beside ``precision``.
    ``bound_shares``: of the latency, by what bounds it, the largest first. ``price_per_h``: of the GPU, None where no
    price was given.
    """

    gpu: GpuSpec
    gpu_model: str
    precision: str
    runtime: str
    dims: Mapping[str, int]
    totals: Totals
    bound_shares: Mapping[str, float]
    unsupported_count: int
    price_per_h: float | None = None
    product_formats: tuple[str, ...] = ()

    @property
    def is_costed(self) -> bool:
        """Whether any time could be worked out; if not, everything that takes time is unsupported."""
        return self.totals.is_costed

    @property
    def bound(self) -> str:
        """What bounds most of the latency, or "host" where it takes longer than the kernels; "" where nothing does."""
        return next(iter(self.bound_shares), "")

    def cost(self, latency_ms: float | None = None) -> float | None:
        """Price of a million inferences on a GPU that does nothing else; at another latency if one is given."""
        latency_ms = self.totals.latency_ms if latency_ms is None else latency_ms
        if self.price_per_h is None or not latency_ms:
            return None
        samples = self.totals.throughput_per_s * self.totals.latency_ms / 1e3  # of one run, or one step of training
        return self.price_per_h * latency_ms / 3.6e6 / samples * SAMPLES

    def token_cost(self, latency_ms: float | None = None) -> float | None:
        """Price of a million tokens in the same way; None where the model keeps no keys and values."""
        cost, tokens_per_s = self.cost(latency_ms), self.totals.tokens_per_s
        if cost is None or not tokens_per_s:
            return None
        return cost * self.totals.throughput_per_s / tokens_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The cases, best first by ``sort``; then those with nodes that count as nothing, last what doesn't fit.

    ``has_best``: the first case is the best; False where none that fits has a cost of all its nodes, or nothing is
    known to sort by. ``varied`` names what the cases differ in: "gpu", "precision", "runtime" and names of dims.
    ``currency``: of the prices, "" if unknown.
    """

    tool_version: str
    model_path: str
    model_sha256: str
    cases: tuple[Case, ...]
    sort: SortKey
    has_best: bool
    varied: tuple[str, ...]
    currency: str
    assumptions: tuple[str, ...]
    warnings: tuple[Notice, ...]
    mode: str = "inference"
    cuda_graph: bool = False
    include_io: bool = False
    channels_last: bool = False

    @property
    def in_tokens(self) -> bool:
        """Whether throughput and cost are told in tokens, not in samples: every case keeps keys and values."""
        return in_tokens(self.cases)

    def cost(self, case: Case) -> float | None:
        """What a case costs, of a million tokens or samples."""
        return case.token_cost() if self.in_tokens else case.cost()


def in_tokens(cases: Iterable[Case]) -> bool:
    """Whether every case has tokens to be told in."""
    return all(case.totals.tokens_per_s is not None for case in cases)
