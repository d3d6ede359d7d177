"""``python -m measurements run --minutes 8 --output FILE.csv``: see README.md beside this file."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from measurements.cases import Case, cases_of, default_kernels, kernels_of_models, model_files, read_shapes, say
from measurements.cases import write_shapes as write_list
from measurements.plan import ordered, stratum
from measurements.session import LOST, run
from measurements.supervision import measuring, supervise
from neusight_onnx.errors import NeusightError


def _count(text: str) -> int:
    """A number of cases, 0 and up; argparse says the text of the error."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of cases; give 0 or more")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m measurements", description="Times kernels on an NVIDIA GPU.")
    commands = parser.add_subparsers(dest="command", required=True)
    measure = commands.add_parser("run", help="time kernels until the minutes are up")
    measure.add_argument("--output", "-o", type=Path, required=True, help="CSV file; one that is there is continued")
    measure.add_argument(
        "--minutes", type=float, default=8.0, help="time for all, libraries' start included (default: 8)"
    )
    measure.add_argument("--case-seconds", type=float, default=0.5, help="about the most for one kernel (default: 0.5)")
    measure.add_argument("--gpu", default="", help="what to call the GPU (default: its canonical name)")
    measure.add_argument("--no-choice", action="store_true", help="cuDNN's heuristics in place of trying algorithms")
    measure.add_argument("--warm", action="store_true", help="the same operands in every launch (a file of its own)")
    measure.add_argument("--kernel-names", action="store_true", help="ask the profiler what ran (slower)")
    measure.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)  # in this process, unsupervised
    plan = commands.add_parser("plan", help="what would be timed, in order; no GPU and no torch needed")
    plan.add_argument("--first", type=_count, default=20, help="so many of them (default: 20)")
    for command in (measure, plan):
        command.add_argument(
            "--shapes", type=Path, help="list of kernels that `shapes` wrote (default: the built-in one)"
        )
        command.add_argument("--directions", action="store_true", help="gradients of convolutions, too")
    shapes = commands.add_parser("shapes", help="list the kernels of ONNX models; no GPU and no torch needed")
    shapes.add_argument("models", type=Path, nargs="+", help="ONNX files, or folders of them")
    shapes.add_argument("--output", "-o", type=Path, required=True, help="where the list goes")
    shapes.add_argument("--batch", type=int, action="append", help="batch size, repeatable (default: 1, 8, 32)")
    return parser


def _cases(options: argparse.Namespace) -> list[Case]:
    kernels = default_kernels() if options.shapes is None else read_shapes(options.shapes)
    return cases_of(kernels, directions=options.directions)


def main(arguments: list[str] | None = None) -> int:
    """Parses, runs one command, prints errors on one line."""
    began = time.monotonic()
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(arguments)
    try:
        if options.command == "shapes":
            kernels, faults = kernels_of_models(model_files(options.models), options.batch or [1, 8, 32])
            for fault in faults:
                say(f"left out: {fault}")
            write_list(options.output, kernels)
            say(f"{len(kernels):,} kernels: {options.output}")
        elif options.command == "plan":
            cases = _cases(options)
            for case in ordered(cases)[: options.first]:
                print(" ".join(part for part in stratum(case) if part), case.key[0], sep="\t")
            counts = Counter(stratum(case)[0] for case in cases)
            say(f"{len(cases):,} cases: " + ", ".join(f"{name} {count:,}" for name, count in counts.most_common()))
        elif options.alone:
            return _measure(options, began)
        else:
            _cases(options)  # what is wrong with a list of shapes is said once
            return supervise(measuring(arguments), options.output, seconds=60.0 * options.minutes, say=say)
    except NeusightError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        say("ended by hand; the file holds what was measured, and the same command goes on with the rest")
        return 130
    return 0


def _measure(options: argparse.Namespace, began: float) -> int:
    """Measures in this process, until the minutes since ``began`` are up."""
    from measurements.device import CudaTimer

    cases = _cases(options)
    timer = CudaTimer(
        gpu=options.gpu,
        case_s=options.case_seconds,
        choose=not options.no_choice,
        kernel_names=options.kernel_names,
        warm=options.warm,
    )
    try:
        timer.wake()
        left_s = 60.0 * options.minutes - (time.monotonic() - began)
        outcome = run(timer, cases, options.output, seconds=left_s, say=say)
    finally:
        timer.close()
    print(outcome.line(options.output), flush=True)
    return LOST if outcome.lost else 0


if __name__ == "__main__":
    sys.exit(main())
