"""The long fuzz: damaged model files through the whole analysis, each within bounds of time and memory.

    python benchmarks/fuzz.py [--cases 10000] [--seed 0] [--only CASE]

Each runtime in turn runs them. A case is sound if it ends in a NeusightError of one line or in a report. Anything else
(another exception, more than 10 seconds, 400 MB more than before) is printed with its number, which ``--only`` runs
again with its traceback.
Exit code 1 if there was any.
"""

from __future__ import annotations

import argparse
import random
import resource
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import TypedDict

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from models.mutations import mutated, originals  # noqa: E402  # the tests' folder comes onto the path above
from neusight_onnx import analyze  # noqa: E402
from neusight_onnx.errors import NeusightError, PredictorError  # noqa: E402
from neusight_onnx.graph.read import read_model_bytes  # noqa: E402
from neusight_onnx.runtime import KNOWN_RUNTIMES  # noqa: E402

SECONDS = 10
MEGABYTES = 400


class Way(TypedDict):
    """How a model is run."""

    runtime: str
    channels_last: bool


WAYS = [
    *(Way(runtime=runtime, channels_last=False) for runtime in KNOWN_RUNTIMES),
    Way(runtime="compiled", channels_last=True),
]


def late(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def peak_megabytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def way_of(case: int, sources: list[bytes]) -> Way:
    """All ways in turn, so that each meets each of the models."""
    return WAYS[(case + case // len(sources)) % len(WAYS)]


def content_of(case: int, seed: int, sources: list[bytes]) -> bytes:
    return mutated(sources[case % len(sources)], random.Random(seed * 1_000_003 + case))


def outcome(content: bytes, way: Way) -> str:
    """ "report" or the code of the error; whatever else is raised goes through."""
    try:
        report = analyze(read_model_bytes(content), gpu="a100", precision="fp32", **way)
    except PredictorError:
        raise
    except NeusightError as error:
        message = str(error)
        if "\n" in message or len(message) > 2000:
            raise ValueError(f"a message of {len(message)} characters or several lines: {message[:200]!r}") from error
        return f"refused ({error.code})"
    if not 0 <= report.totals.latency_ms < float("inf"):
        raise ValueError(f"a latency of {report.totals.latency_ms} ms")
    return "report"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    sources = originals()
    for case, source in enumerate(sources * len(WAYS)):
        outcome(source, way_of(case, sources))  # imports, predictors: all that is loaded once
    if options.only is not None:
        print(outcome(content_of(options.only, options.seed, sources), way_of(options.only, sources)))
        return 0
    signal.signal(signal.SIGALRM, late)
    outcomes: Counter[str] = Counter()
    faults: list[str] = []
    slowest = (0.0, 0)
    peak = peak_megabytes()
    for case in range(options.cases):
        content = content_of(case, options.seed, sources)
        start = time.perf_counter()
        signal.alarm(SECONDS)
        try:
            outcomes[outcome(content, way_of(case, sources))] += 1
        except Exception as error:  # what can be raised is what this looks for
            faults.append(f"case {case}: {type(error).__name__}: {str(error)[:150]!r}")
        finally:
            signal.alarm(0)
        slowest = max(slowest, (time.perf_counter() - start, case))
        if peak_megabytes() > peak + MEGABYTES:
            faults.append(f"case {case}: {peak_megabytes() - peak} MB more")
        peak = peak_megabytes()
    for name, count in outcomes.most_common():
        print(f"{count:8d}  {name}")
    print(f"{len(faults):8d}  faults; slowest {slowest[0]:.2f} s (case {slowest[1]}), peak {peak} MB")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
