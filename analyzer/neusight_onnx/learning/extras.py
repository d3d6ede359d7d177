"""Packages of the ``learning`` extra, imported where they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from neusight_onnx.errors import NeusightError

EXTRA_HINT = "pip install 'neusight-onnx[learning]'"


def require(module: str) -> Any:
    """Imports a package of the ``learning`` extra, or says what is missing and how to get it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != module.split(".")[0]:
            raise
        raise NeusightError(f"{module.split('.')[0]} is not installed: {EXTRA_HINT}") from error
    except OSError as error:  # a library of the system that its machine code is linked with
        hint = " (Debian and Ubuntu: apt-get install libgomp1)" if "libgomp" in str(error) else ""
        raise NeusightError(f"{module.split('.')[0]} is installed, but does not load: {error}{hint}") from error
