"""Operators that run other nodes: their bodies are walked by ``walk``; here stands only what they cost themselves."""

from __future__ import annotations

from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.registry import Free, Outcome, lowers


@lowers("If", "Loop", "Scan", "SequenceMap", gives="depends", note="the work of its bodies", needs_shapes=False)
def body(context: NodeContext) -> Outcome:
    return Free(reason="the nodes of its body stand for it", host=True)
