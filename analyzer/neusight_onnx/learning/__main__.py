"""``python -m neusight_onnx.learning train DATA --output predictors``: how `make predictors` makes them.

``python -m neusight_onnx.learning deployments DATA --output predictors`` only tells anew, without training, how far
other deployments lie from what the predictors say.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from neusight_onnx.errors import NeusightError
from neusight_onnx.laws.catalog import LAWS
from neusight_onnx.learning.datasets.attention import ATTENTION
from neusight_onnx.learning.datasets.registry import files_in, has_files
from neusight_onnx.learning.datasets.training_rows import MATRIX_UNIT_FILES, TRAINING_FILES
from neusight_onnx.learning.deployments import deployments
from neusight_onnx.learning.shared_predictors import SHARED_NAMES, SHARED_PREDICTORS
from neusight_onnx.learning.train import MATRIX_UNIT_FORMATS, train, train_attention, train_matrix_units, train_shared


def main(arguments: list[str] | None = None) -> int:
    """Parses, trains, and prints errors on one line."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "deployments":
            deployments(options.data, options.output)
        elif options.classes or options.formats or options.shared:
            _train_named(options)
        else:
            _train_all(options.data, options.output, options.seed)
    except NeusightError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m neusight_onnx.learning", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("train", help="make the predictors from measured kernels")
    command.add_argument("data", type=Path, help="folder of measured data")
    command.add_argument("--output", type=Path, default=Path("predictors"), help="where the predictors go")
    command.add_argument("--seed", type=int, default=0, help="same data and seed, same predictors")
    command.add_argument(
        "--class",
        dest="classes",
        action="append",
        choices=sorted((*LAWS, "attention")),
        help="train only this kernel class: in FP32, attention in 16 and 8 bits",
    )
    command.add_argument(
        "--format",
        dest="formats",
        action="append",
        choices=sorted(MATRIX_UNIT_FORMATS),
        help="train only products on matrix units, in this number format",
    )
    command.add_argument(
        "--shared",
        action="append",
        choices=SHARED_NAMES,
        help="train only this predictor that all formats of matrix units share",
    )
    levels = commands.add_parser(
        "deployments", help="tell anew how far runs lie from predictions, as train does at last"
    )
    levels.add_argument("data", type=Path, help="folder of measured data")
    levels.add_argument("--output", type=Path, default=Path("predictors"), help="where the predictors are")
    return parser


def _train_named(options: argparse.Namespace) -> None:
    """What the options name; raises DataError where the folder has nothing to train one of them on."""
    classes = tuple(name for name in options.classes or () if name in LAWS)
    if classes:
        train(options.data, options.output, seed=options.seed, classes=classes)
    if options.formats:
        train_matrix_units(options.data, options.output, seed=options.seed, formats=tuple(options.formats))
    if options.shared:
        train_shared(options.data, options.output, seed=options.seed, names=tuple(options.shared))
    if "attention" in (options.classes or ()):
        train_attention(options.data, options.output, seed=options.seed)


_KINDS: tuple[tuple[str, Sequence[str], Callable[..., object]], ...] = (
    ("FP32", TRAINING_FILES, train),
    ("products on matrix units", MATRIX_UNIT_FILES, train_matrix_units),
    ("what formats of matrix units share", tuple(predictor.file for predictor in SHARED_PREDICTORS), train_shared),
    ("attention", ATTENTION, train_attention),
)
"""What predictors are of, the files that have rows of it, and what trains them."""


def _train_all(data: Path, output: Path, seed: int) -> None:
    """All that the folder has files of, and at last what deployments have in common; raises DataError for none."""
    files_in(data, list(dict.fromkeys(name for _, files, _ in _KINDS for name in files)))
    for what, files, make in _KINDS:
        if has_files(data, files):
            make(data, output, seed=seed)
        else:
            print(f"{what}: none of {', '.join(dict.fromkeys(files))}: kept as they were")
    deployments(data, output)


if __name__ == "__main__":
    sys.exit(main())
