"""Operators that run other nodes: their bodies are walked by ``walk``; here stands only what they cost themselves."""

from __future__ import annotations

from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.registry import Free, Outcome, Unsupported, lowers


@lowers("If", "Loop", "Scan", "SequenceMap", gives="depends", note="the work of its bodies", needs_shapes=False)
def body(context: NodeContext) -> Outcome:
    return Free(reason="the nodes of its body stand for it", host=True)


@lowers(
    "BeamSearch",
    "GreedySearch",
    "Sampling",
    "WhisperBeamSearch",
    domain="com.microsoft",
    gives="depends",
    note="not supported: its decoder runs an unknown number of times",
    needs_shapes=False,
)
def generation(context: NodeContext) -> Outcome:
    return Unsupported(reason="how often its decoder runs depends on what it generates")
