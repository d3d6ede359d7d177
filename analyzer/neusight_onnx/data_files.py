"""Where the data that ships with the code lies: GPU files (``specs``) and exported predictors (``predictors``)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

_PACKAGE = Path(__file__).resolve().parent


def data_folder(name: Literal["specs", "predictors"]) -> Path:
    """The folder of shipped data called ``name``.

    An installed wheel has it beside this module; in an editable install the module is still in the checkout,
    as ``analyzer/neusight_onnx``, and the folder is at the checkout's root. The folder need not exist.
    """
    beside = _PACKAGE / name
    if beside.is_dir():
        return beside
    return _PACKAGE.parent.parent / name
