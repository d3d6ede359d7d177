"""``python -m neusight_onnx.learning train DATA --output predictors``: how `make predictors` makes them.

``python -m neusight_onnx.learning deployments DATA --output predictors`` only tells anew, without training, how far
other deployments lie from what the predictors say.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from neusight_onnx.errors import NeusightError
from neusight_onnx.laws.catalog import LAWS
from neusight_onnx.learning.datasets.attention import ATTENTION
from neusight_onnx.learning.datasets.registry import has_files
from neusight_onnx.learning.datasets.training_rows import MATRIX_UNIT_FILES
from neusight_onnx.learning.deployments import deployments
from neusight_onnx.learning.shared_predictors import SHARED_NAMES, SHARED_PREDICTORS
from neusight_onnx.learning.train import (
    MATRIX_UNIT_FORMATS,
    train,
    train_attention,
    train_matrix_units,
    train_shared,
)


def main(arguments: list[str] | None = None) -> int:
    """Parses, trains, and prints errors on one line."""
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
    options = parser.parse_args(arguments)
    try:
        if options.command == "deployments":
            deployments(options.data, options.output)
            return 0
        everything = not (options.classes or options.formats or options.shared)
        classes = tuple(LAWS) if everything else tuple(name for name in options.classes or () if name in LAWS)
        if classes:
            train(options.data, options.output, seed=options.seed, classes=classes)
        if options.formats or (everything and has_files(options.data, MATRIX_UNIT_FILES)):
            formats = tuple(options.formats or MATRIX_UNIT_FORMATS)
            train_matrix_units(options.data, options.output, seed=options.seed, formats=formats)
        shared = [predictor.file for predictor in SHARED_PREDICTORS]
        if options.shared or (everything and has_files(options.data, shared)):
            names = tuple(options.shared or SHARED_NAMES)
            train_shared(options.data, options.output, seed=options.seed, names=names)
        if "attention" in (options.classes or ()) or (everything and has_files(options.data, ATTENTION)):
            train_attention(options.data, options.output, seed=options.seed)
        if everything:
            deployments(options.data, options.output)
    except NeusightError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
