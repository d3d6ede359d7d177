"""The command line: parse, call one library function, print, exit code."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs ``neusight-onnx`` with ``arguments`` (those of the process by default); returns the exit code."""
    from neusight_onnx.cli.app import run

    return run(arguments)
