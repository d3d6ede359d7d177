"""A run: cases in their order until the time is up, each written as soon as it is timed. No torch here."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from measurements.cases import Case
from measurements.plan import ordered, stratum
from neusight_onnx.errors import OutputError
from neusight_onnx.kernels import KERNEL_CLASSES
from neusight_onnx.learning.kernel_text import kernel_to_text
from neusight_onnx.learning.measured import COLUMNS, MEASURED, SKIPPED, append, read_rows


class SkipCaseError(Exception):
    """A case that can't be timed on this GPU; the message is the reason."""


class DeviceLostError(Exception):
    """The GPU takes no more work in this process; the message says what was done last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Time of one launch in us: the median of the repeats, and the 10th and 90th percentile."""

    latency_us: float
    low_us: float
    high_us: float
    launches: int
    repeats: int
    buffer_sets: int
    set_bytes: int
    cache: str
    kernel_name: str = ""


class Timer(Protocol):
    """What times cases: a GPU, or in tests none."""

    @property
    def gpu(self) -> str:
        """The GPU's name as predictions know it."""
        ...

    def facts(self) -> Mapping[str, object]:
        """Columns that say with what was measured, clocks as they are now."""
        ...

    def time(self, case: Case) -> Timing:
        """Times a case. Raises SkipCaseError, or DeviceLostError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended."""

    measured: int
    skipped: int
    left: int
    seconds: float
    lost: str = ""

    def line(self, path: Path) -> str:
        """For the person who waits."""
        end = f"; ended early: {self.lost}" if self.lost else ""
        return (
            f"{self.measured:,} kernels measured, {self.skipped:,} skipped, {self.left:,} left for another run, "
            f"in {self.seconds:.0f} s: {path}{end}"
        )


def done_in(path: Path, gpu: str) -> set[tuple[str, str, str]]:
    """Keys of the cases that a file holds for a GPU, timed or skipped."""
    if not path.exists() or path.stat().st_size == 0:
        return set()
    return {(row["kernel"], row["precision"], row["layout"]) for row in read_rows(path) if row["gpu"] == gpu}


def mend(path: Path) -> None:
    """Removes a last line that was cut off in the middle, as where a run was ended."""
    if not path.exists():
        return
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        path.write_bytes(content[: content.rfind(b"\n") + 1])


LOST = 3
"""Exit code of a process that can't go on, where another one can."""


def begun_file(path: Path) -> Path:
    """Where the row of the case that is being timed stands until it has ended: beside the file of measurements."""
    return path.with_name(f".{path.name}.begun")


def begin(path: Path, row: Mapping[str, object]) -> None:
    """Notes the case that is timed next. Raises OutputError if it can't be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        begun_file(path).write_text(json.dumps(row), encoding="utf-8")
    except OSError as error:
        raise OutputError(f"can't write {begun_file(path)}: {error.strerror}; give another file") from error


def settle(path: Path) -> None:
    """Adds the case in which a process ended before, so that it isn't tried again, to the file. Removes the note."""
    note = begun_file(path)
    try:
        row = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        row = None
    if isinstance(row, dict) and set(row) <= set(COLUMNS):
        append(path, [{**row, "status": SKIPPED, "reason": ENDED}])
    note.unlink(missing_ok=True)


ENDED = "the process ended while it was timed"


def run(
    timer: Timer,
    cases: Sequence[Case],
    path: Path,
    *,
    seconds: float,
    say: Callable[[str], None] = lambda text: None,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Times cases until ``seconds`` have passed or none is left, and adds them to the file at ``path``.

    Cases that the file holds for this GPU are not timed again. A case that has begun is ended, so that a run takes at
    most one case longer. A case in which an earlier process ended is noted as skipped. Raises DataError or OutputError
    if the file can't be read or written.
    """
    start = clock()
    mend(path)
    settle(path)
    waiting = _fatal_last(ordered(cases, done_in(path, timer.gpu)), cases, path, timer.gpu)
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    lost, begun, said_at = "", 0, start
    for case in waiting:
        if clock() - start >= seconds:
            break
        begun += 1
        row: dict[str, object] = dict(_described(case, timer.gpu))
        begin(path, row)
        try:
            timing = timer.time(case)
        except SkipCaseError as error:
            row |= {"status": SKIPPED, "reason": str(error)}
            reasons[str(error)] += 1
        except DeviceLostError as error:
            row |= {"status": SKIPPED, "reason": str(error)}
            lost = str(error)
        else:
            row |= {"status": MEASURED}
            row |= {
                name: round(getattr(timing, name), 4) if name.endswith("_us") else getattr(timing, name)
                for name in Timing.__dataclass_fields__
            }
        facts = dict(timer.facts()) if not lost else {}
        append(path, [{**facts, **row}])
        begun_file(path).unlink(missing_ok=True)
        counts[str(row["status"])] += 1
        if lost:
            break
        if clock() - said_at >= SAY_EVERY_S:
            said_at = clock()
            say(f"{begun:,} of {len(waiting):,}, {max(seconds - (said_at - start), 0.0):.0f} s left")
    for reason, count in reasons.most_common(5):
        say(f"skipped {count:,}: {reason}")
    return Outcome(
        measured=counts[MEASURED],
        skipped=counts[SKIPPED],
        left=len(waiting) - begun,
        seconds=clock() - start,
        lost=lost,
    )


SAY_EVERY_S = 15.0


FATAL = 2
"""So many cases of a stratum in which a process ended, and its others come last: each costs another one's start."""


def _fatal_last(waiting: Sequence[Case], cases: Sequence[Case], path: Path, gpu: str) -> list[Case]:
    """The cases in their order, those behind that are like ones in which processes ended."""
    if not path.exists() or path.stat().st_size == 0:
        return list(waiting)
    ended = {
        (row["kernel"], row["precision"], row["layout"])
        for row in read_rows(path)
        if row["gpu"] == gpu and (row.get("reason", "").startswith((ENDED, LOST_REASON)))
    }
    counts = Counter(stratum(case) for case in cases if case.key in ended)
    return sorted(waiting, key=lambda case: counts[stratum(case)] >= FATAL)


LOST_REASON = "the GPU takes no more work in this process"
"""How the reason of a case begins behind which nothing can be timed in its process."""


def _described(case: Case, gpu: str) -> dict[str, object]:
    found = {
        "gpu": gpu,
        "kernel_class": KERNEL_CLASSES[type(case.kernel)],
        "precision": case.precision,
        "layout": case.layout,
        "kernel": kernel_to_text(case.kernel),
    }
    assert set(found) <= set(COLUMNS)
    return dict(found)
