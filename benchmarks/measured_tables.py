"""Tables of measured models beside ours: how far, by what ran them and what they are."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from measured_rows import AS_MEASURED, EQUIVALENT, LAST, STATED
from neusight_onnx import __version__


@dataclass(frozen=True, kw_only=True)
class Case:
    """One measured row beside ours. ``analytic_share``: of the predicted time, without a learned predictor;
    ``class_shares``: of the predicted time, by kernel class."""

    model: str
    file: str
    is_vision: bool
    group: str
    source: str
    gpu: str
    precision: str
    batch: int
    size: str
    measured_ms: float
    ours_ms: float
    low_ms: float
    high_ms: float
    kernel_ms: float
    analytic_share: float
    class_shares: dict[str, float]
    release: str = ""
    family: str = ""

    @property
    def is_equivalent(self) -> bool:
        return self.group.endswith(EQUIVALENT)

    @property
    def is_as_measured(self) -> bool:
        return self.group.endswith(AS_MEASURED)

    @property
    def row(self) -> tuple[object, ...]:
        """What tells a measured row from others, whatever it is judged on."""
        return self.model, self.source, self.gpu, self.precision, self.batch, self.size, self.measured_ms

    @property
    def error(self) -> float:
        return self.ours_ms / self.measured_ms - 1.0

    @property
    def factor(self) -> float:
        return max(self.ours_ms / self.measured_ms, self.measured_ms / self.ours_ms)


def identity_of(case: Case) -> tuple[object, ...]:
    return case.file, case.group, case.source, case.gpu, case.precision, case.batch, case.size, case.measured_ms


def under_today(cases: Sequence[Case], today: Today) -> list[Case]:
    return [today.get(identity_of(case), case) for case in cases]


def rank_correlation(cases: Sequence[Case]) -> float | None:
    """Spearman's, between measured and predicted times; None for fewer than five."""
    if len(cases) < 5:
        return None

    def ranks(values: Sequence[float]) -> list[float]:
        order = sorted(range(len(values)), key=values.__getitem__)
        found = [0.0] * len(values)
        for rank, place in enumerate(order):
            found[place] = float(rank)
        return found

    return statistics.correlation(
        ranks([case.measured_ms / case.batch for case in cases]), ranks([case.ours_ms / case.batch for case in cases])
    )


def line(label: str, cases: Sequence[Case]) -> str:
    errors = [case.error for case in cases]
    absolute = [abs(error) for error in errors]
    rank = rank_correlation(cases)
    inside = sum(case.low_ms <= case.measured_ms <= case.high_ms for case in cases)
    below = statistics.median(1.0 - case.low_ms / case.ours_ms for case in cases)
    above = statistics.median(case.high_ms / case.ours_ms - 1.0 for case in cases)
    return (
        f"{label:<58}{len(cases):>5}{statistics.mean(absolute):>8.1%}{statistics.median(absolute):>8.1%}"
        f"{statistics.median(errors):>+8.1%}{max(absolute):>8.0%}{'' if rank is None else f'{rank:.3f}':>7}"
        f"{inside / len(cases):>7.0%}{f'-{below:.0%} +{above:.0%}':>12}"
        f"{statistics.mean(case.analytic_share for case in cases):>9.0%}"
    )


HEADS = (
    f"{'':<58}{'rows':>5}{'mean':>8}{'median':>8}{'bias':>8}{'worst':>8}{'rank':>7}{'in 80%':>7}{'interval':>12}"
    f"{'analytic':>9}"
)

TODAY = "    today's release"


Today = Mapping[tuple[object, ...], "Case"]
"""What today's release makes of the rows that an earlier one measured, where that differs."""


def table(cases: Sequence[Case], left_out: Mapping[str, int], *, every: int, today: Today | None = None) -> str:
    """All sections, and how many rows are left out for which reason."""
    today = today or {}
    lines = [
        f"neusight-onnx {__version__}, Python {platform.python_version()}, {platform.machine()}; "
        "predictors trained on single kernels only, see predictors/manifest.json",
        *(["", f"every {every}. row only"] if every > 1 else []),
        "",
        "Errors are absolute (bias: the median of the signed ones). rank: Spearman's correlation of the time a sample.",
        "in 80%: measured within our 80 % interval; interval: its ends around the prediction, medians.",
        "analytic: share of the predicted time without a learned predictor.",
        "Each row is judged under the release that measured it, and beside it as if today's had, where that differs.",
        *_targets(cases, today),
        *_by_runtime(cases, today),
        *_by_family(cases, today),
        *_by_source(cases, today),
        *_by_largest_class(cases),
        *_by_model(cases),
        "",
        *(f"left out: {count} rows: {reason}" for reason, count in sorted(left_out.items())),
    ]
    return "\n".join(lines)


def _targets(cases: Sequence[Case], today: Today) -> Iterator[str]:
    """What is aimed at, on the graphs at hand and, where there are some, on files as measured in their place."""
    at_hand = [case for case in cases if not case.is_as_measured]
    rebuilt = {case.row: case for case in cases if case.is_as_measured}

    def as_measured(members: Sequence[Case]) -> list[Case]:
        """The same rows, on files as measured where there are some; none where there is no such file."""
        found = [rebuilt.get(case.row, case) for case in members]
        return found if found != members else []

    def large_images(group: str) -> list[Case]:
        return [case for case in cases if case.is_vision and case.batch >= 64 and case.group == group]

    served = [
        case
        for case in at_hand
        if case.group.startswith("onnx") and case.precision == "fp16" and case.batch >= 8 and not case.is_equivalent
    ]
    if any(not case.is_equivalent for case in cases):
        yield from ("", "Targets", HEADS)
    for label, members in (
        ("vision, batch >= 64, eager (median <= 15 %, rank >= .95)", large_images("eager")),
        ("    the same, images channels last", large_images(f"eager, {LAST}")),
        ("onnxruntime, fp16, batch >= 8 (median <= 20 %)", served),
        ("    the same rows, on files as measured", as_measured(served)),
    ):
        yield from _with_today(label, members, today)
    single = [case for case in at_hand if case.batch == 1 and not case.is_equivalent]
    for label, members in (
        ("batch 1 within a factor of 1.5 (80 %)", single),
        ("    the same rows, on files as measured", as_measured(single)),
    ):
        if members:
            near, was = (sum(case.factor <= 1.5 for case in found) for found in (members, under_today(members, today)))
            yield (
                f"{label}: {near} of {len(members)}, {near / len(members):.0%}"
                f" (today's release: {was}, {was / len(members):.0%})"
            )


def _by_runtime(cases: Sequence[Case], today: Today) -> Iterator[str]:
    yield from ("", "By runtime, GPU and precision", HEADS)
    for key, members in _grouped(cases, lambda case: (case.group, case.gpu, case.precision)):
        yield from _with_today(", ".join(key), members, today)
        yield from _by_batch(members)


def _by_family(cases: Sequence[Case], today: Today) -> Iterator[str]:
    of_families = [case for case in cases if case.family]
    if of_families:
        yield from ("", "Equivalent graphs by family, runtime, GPU and precision", HEADS)
    for key, members in _grouped(of_families, lambda case: (case.family, case.group, case.gpu, case.precision)):
        family, group, gpu, precision = key
        shown = group.removesuffix(f", {EQUIVALENT}")
        yield from _with_today(f"{family}: {shown}, {gpu}, {precision}", members, today)
        yield from _by_batch(members)


def _by_source(cases: Sequence[Case], today: Today) -> Iterator[str]:
    yield from ("", "By what was measured", HEADS)
    for key, members in _grouped(cases, lambda case: (case.group, case.source, case.gpu, case.release)):
        group, said, gpu, release = key
        # a label that has its release needs none beside it
        shown = f", taken as {release}" if release and STATED.search(said) is None else ""
        yield from _with_today(f"{group}, {said}, {gpu}{shown}", members, today)


def _by_largest_class(cases: Sequence[Case]) -> Iterator[str]:
    yield from ("", "By what a model spends most of its predicted time on, eager and compiled", HEADS)
    chosen = [case for case in cases if case.group in ("eager", "compiled")]
    for (group, largest), members in _grouped(
        chosen, lambda case: (case.group, max(case.class_shares, key=case.class_shares.__getitem__))
    ):
        yield line(f"{group}: {largest}", members)


def _by_model(cases: Sequence[Case]) -> Iterator[str]:
    yield from ("", "By model (all its rows)", HEADS)
    for (name,), members in _grouped(
        cases, lambda case: (f"{case.model}, {AS_MEASURED}" if case.is_as_measured else case.model,)
    ):
        yield line(name, members)


def _grouped(cases: Iterable[Case], key: Callable[[Case], tuple[str, ...]]) -> list[tuple[tuple[str, ...], list[Case]]]:
    """The cases by a key, in its order."""
    groups: dict[tuple[str, ...], list[Case]] = {}
    for case in cases:
        groups.setdefault(key(case), []).append(case)
    return sorted(groups.items())


def _with_today(label: str, members: Sequence[Case], today: Today) -> list[str]:
    """The line of some rows, and the one as if today's release had run them, where that isn't the same."""
    if not members:
        return []
    others = under_today(members, today)
    differ = any(other.ours_ms != case.ours_ms for other, case in zip(others, members, strict=True))
    return [line(label, members), *([line(TODAY, others)] if differ else [])]


def _by_batch(members: Sequence[Case]) -> list[str]:
    parts = {label: [case for case in members if test(case.batch)] for label, test in BATCHES}
    return [line(f"    batch {label}", part) for label, part in parts.items() if 0 < len(part) < len(members)]


BATCHES: tuple[tuple[str, Callable[[int], bool]], ...] = (
    ("1", lambda batch: batch == 1),
    ("2 to 7", lambda batch: 1 < batch < 8),
    ("8 to 63", lambda batch: 8 <= batch < 64),
    (">= 64", lambda batch: batch >= 64),
)
