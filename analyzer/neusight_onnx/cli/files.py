"""What the texts of the command line name: the model, a GPU's file, where the report goes, and how wide that is."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from neusight_onnx.cli.output import STANDARD_OUTPUT, check_target, standard_output_is_plain
from neusight_onnx.cli.progress import wants_sequences
from neusight_onnx.errors import ModelError, OutputError, SpecError

if TYPE_CHECKING:
    from neusight_onnx.graph.model import Model
    from neusight_onnx.report.layout import Canvas

_PIPED_WIDTH = 80
_LEAST_WIDTH = 60
_MOST_WIDTH = 120
"""Wider lines are harder to follow from one end to the other."""


def model_path(text: str) -> Path:
    if not text:
        raise ModelError("the model's path is empty; give a .onnx file")
    if text == "-":
        raise ModelError("standard input ('-') isn't read here; give the path of a file")
    return Path(text)


def one_gpu(names: Sequence[str]) -> str:
    """The GPU of a command that takes one; SpecError if there are several."""
    if len(names) > 1:
        raise SpecError(f"--gpu is given {len(names)} times ({', '.join(names)}); give one, or use compare for several")
    return names[0]


def several_gpus(texts: Sequence[str] | None) -> tuple[str, ...]:
    """The GPUs of a command that takes several: each --gpu is one, or a list with commas (no GPU has one in its name).

    SpecError for a list with nothing between two commas.
    """
    found: list[str] = []
    for text in texts or ():
        parts = [text] if "," not in text or os.path.isfile(text) else [part.strip() for part in text.split(",")]
        if len(parts) > 1 and "" in parts:
            raise SpecError(f"--gpu {text[:60]!a} has an empty name in its list; write it as --gpu a100,l4")
        found += parts
    return tuple(found)


def gpu_file(text: str) -> list[Path]:
    """The file that ``--gpu`` may mean; none if it can only be a name."""
    return [Path(text)] if text.lower().endswith(".toml") or "/" in text or os.sep in text else []


def target_path(text: str | None) -> Path | None:
    if text == "":
        raise OutputError("-o is empty; give it a file's name, or leave it out")
    return None if text is None else Path(text)


def read_guarded(path: Path, target: Path | None) -> Path | Model:
    """What the library is given: the path; or the model, where a file will be written that must not be its weights."""
    if target is None or target == STANDARD_OUTPUT:
        return path
    from neusight_onnx.graph.read import read_model
    from neusight_onnx.inspection import external_files

    model = read_model(path)
    # a model that is a link may have its weights beside the file that it links to
    folders = (path.parent, Path(os.path.realpath(path)).parent)
    files = (folder / name for name in external_files(model) for folder in folders)
    check_target(target, *((file, "a file of the model's weights") for file in files))
    return model


def canvas_for(output: Path | None) -> Canvas:
    """How the text will be seen: on a terminal in its width and with colour, else without either."""
    from neusight_onnx.report.layout import Canvas

    to_terminal = output is None and sys.stdout is not None and sys.stdout.isatty()
    asked = to_terminal or "COLUMNS" in os.environ
    columns = shutil.get_terminal_size((_PIPED_WIDTH, 24)).columns if asked else _PIPED_WIDTH
    return Canvas(
        width=min(max(columns, _LEAST_WIDTH), _MOST_WIDTH),
        colour=to_terminal and wants_sequences(),
        plain=output is None and standard_output_is_plain(),
    )
