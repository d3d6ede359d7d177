"""neusight-onnx: how fast an ONNX model runs on a GPU that you do not have, from the graph alone.

>>> from neusight_onnx import analyze
>>> analyze("m.onnx", gpu="a100", dims={"batch": 8}).totals.latency_ms  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neusight_onnx.analysis import analyze
    from neusight_onnx.checks import check
    from neusight_onnx.comparison.cases import compare
    from neusight_onnx.comparison.changes import diff
    from neusight_onnx.comparison.points import sweep
    from neusight_onnx.errors import NeusightError
    from neusight_onnx.gpu import GpuSpec, available_gpus, load_gpu
    from neusight_onnx.graph.read import read_model
    from neusight_onnx.inspection import Inspection, inspect_model
    from neusight_onnx.report.model import Report

__version__ = "0.1.0"

_HOMES = {
    "analyze": "neusight_onnx.analysis",
    "check": "neusight_onnx.checks",
    "compare": "neusight_onnx.comparison.cases",
    "diff": "neusight_onnx.comparison.changes",
    "NeusightError": "neusight_onnx.errors",
    "GpuSpec": "neusight_onnx.gpu",
    "available_gpus": "neusight_onnx.gpu",
    "load_gpu": "neusight_onnx.gpu",
    "read_model": "neusight_onnx.graph.read",
    "sweep": "neusight_onnx.comparison.points",
    "Inspection": "neusight_onnx.inspection",
    "inspect_model": "neusight_onnx.inspection",
    "Report": "neusight_onnx.report.model",
}

__all__ = [
    "GpuSpec",
    "Inspection",
    "NeusightError",
    "Report",
    "__version__",
    "analyze",
    "available_gpus",
    "check",
    "compare",
    "diff",
    "inspect_model",
    "load_gpu",
    "read_model",
    "sweep",
]


def __getattr__(name: str) -> object:
    # Names are fetched on first use: `neusight-onnx --help` must not pay for importing onnx.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'neusight_onnx' has no attribute {name!r}")
