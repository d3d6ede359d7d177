"""What ``check`` found, as a value: every format of its report is made from it (schema version 1, only grows)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.report.model import HostSummary, MemoryEstimate, Totals


class Severity(StrEnum):
    """How bad a finding is, worst first. A note never fails a check unless it is asked to."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    def fails(self, fail_on: Severity) -> bool:
        """Whether a finding of this severity fails a check that fails on ``fail_on`` and worse."""
        order = tuple(Severity)
        return order.index(self) <= order.index(fail_on)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a code stands for: ``explanation`` says why it matters, ``fix`` in one line what would do."""

    code: str
    title: str
    severity: Severity
    explanation: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing found wanting.

    ``model``: its file, or the configuration where that is at fault. ``node``: the operator, tensor or dim at fault,
    None where it is the model as a whole. ``targets`` names those that it holds for. ``allowed``: the reason that the
    user gave for allowing it; it fails nothing then.
    """

    code: str
    title: str
    severity: Severity
    model: str
    node: str | None
    message: str
    fix: str
    targets: tuple[str, ...]
    allowed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetVerdict:
    """What was judged for one target.

    ``limits`` are those asked for, as texts; ``codes`` the checks that had something to judge. ``totals`` is None where
    the latency could not be predicted, ``not_predicted`` says why; ``memory`` is None where the shapes don't agree.
    ``assumptions``: what stands in for what neither the model nor the target says. ``host``: whether the host takes
    longer than the GPU; None where the latency could not be predicted. ``product_formats``: of 8 and 4 bits, which
    products multiply as the file says.
    """

    name: str
    model: str
    gpu: GpuSpec
    precision: str
    runtime: str
    dims: Mapping[str, int]
    limits: Mapping[str, str]
    at: str
    codes: tuple[str, ...]
    parameter_count: int
    unsupported_count: int
    totals: Totals | None
    not_predicted: str | None
    memory: MemoryEstimate | None
    passed: bool
    assumptions: tuple[str, ...] = ()
    mode: str = "inference"
    cuda_graph: bool = False
    include_io: bool = False
    channels_last: bool = False
    host: HostSummary | None = None
    product_formats: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MistakenTarget:
    """A target that can't be meant as it is written, of which nothing was judged: what was asked for, and ``mistake``,
    what is wrong with it. ``gpu`` is as written."""

    name: str
    model: str
    gpu: str
    mode: str
    precision: str
    runtime: str
    cuda_graph: bool
    include_io: bool
    channels_last: bool
    dims: Mapping[str, int]
    limits: Mapping[str, str]
    at: str
    mistake: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of a check: its targets, what was found, and ``rules``, all that could have been.

    ``config``: the file that the targets or their limits came from. ``mistaken``: targets that could not be judged.
    """

    tool_version: str
    fail_on: Severity
    config: str | None
    targets: tuple[TargetVerdict, ...]
    findings: tuple[Finding, ...]
    rules: tuple[Rule, ...] = field(repr=False)
    mistaken: tuple[MistakenTarget, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether nothing fails: every finding is allowed, or milder than ``fail_on``."""
        return not any(self.fails(finding) for finding in self.findings)

    def fails(self, finding: Finding) -> bool:
        """Whether this finding fails the check."""
        return finding.allowed is None and finding.severity.fails(self.fail_on)
