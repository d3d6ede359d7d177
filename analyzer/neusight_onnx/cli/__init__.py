"""The command line: parse, call one library function, print, exit code."""

from __future__ import annotations

import os
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs ``neusight-onnx`` with ``arguments`` (those of the process by default); returns the exit code."""
    # numpy's BLAS starts a thread a core, which spin for want of work; the products here are far too small for them
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from neusight_onnx.cli.app import run

    return run(arguments)
