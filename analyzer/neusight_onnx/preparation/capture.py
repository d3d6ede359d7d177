"""Whether a run can be captured as a CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from neusight_onnx.graph.model import InferredGraph, file_name
from neusight_onnx.kernels import Kernel, NodeWork, Transfer
from neusight_onnx.preparation.models import PreparedModel
from neusight_onnx.runtime import Runtime

if TYPE_CHECKING:
    pass


def _is_copy(kernel: Kernel) -> bool:
    return isinstance(kernel, Transfer)


def uncapturable(graph: InferredGraph, work: Sequence[NodeWork], runtime: Runtime) -> str | None:
    """Why a run can't be captured as a CUDA graph: the host decides something in the middle of it."""
    waited = next((item.node for item in work if item.kernels and item.host_waits), None)
    if waited is not None:
        return f"the host waits for {file_name(waited)} in the middle of the run"
    copied = next((item.node for item in work if not item.is_boundary and any(map(_is_copy, item.kernels))), None)
    if copied is not None:  # onnxruntime-gpu 1.31.1 refuses such a session, and takes shapes that are the CPU's alone
        return f"what the host computes of sizes for {file_name(copied)} is copied in the middle of the run"
    if graph.bodies and runtime.fallback != "none":
        owner = file_name(next(iter(graph.bodies))[0])
        return f"{owner} is control flow, whose branches and trips the host decides"
    undecided = next((node for node in graph.graph.nodes if node.op_type == "If"), None)
    if undecided is not None:
        return f"the host waits for the condition of {file_name(undecided.name)}"
    return None


def why_uncaptured(prepared: PreparedModel) -> str | None:
    """Why a run can't be captured as a CUDA graph, asked for or not; None where it can."""
    return uncapturable(prepared.graph, prepared.work, prepared.runtime)
