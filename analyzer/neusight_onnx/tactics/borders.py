"""What int8 takes where it begins and ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import InferredGraph, Node
from neusight_onnx.kernels import (
    Conv,
    GatherScatter,
    Movement,
    NodeWork,
)
from neusight_onnx.tactics.operands import operand_of, turn, written


def at_the_borders(graph: InferredGraph, narrow: Sequence[NodeWork], wide: Sequence[NodeWork]) -> tuple[NodeWork, ...]:
    """``narrow`` with what int8 takes where it begins and ends; ``wide``: the same nodes in 16 bits.

    A convolution writes 16 bits where something reads them that has no kernel for int8, or where they leave the model;
    one that reads an input of the model, which has the type that it is bound with, has it quantised by a kernel before
    (the reformatting of inputs that TensorRT's profiles list as a layer, as remembered).
    """
    differing = {new.node for new, old in zip(narrow, wide, strict=True) if new.kernels != old.kernels}
    works = {work.node: work for work in narrow}
    readers: dict[str, list[Node]] = {}
    leaving: set[str] = set()
    made_by: dict[str, Node] = {}
    pending = [graph]
    while pending:
        part = pending.pop()
        pending += part.bodies.values()
        leaving.update(declared.name for declared in part.graph.outputs)
        for node in part.graph.nodes:
            made_by.update((name, node) for name in node.outputs)
            for name in node.inputs:
                readers.setdefault(name, []).append(node)
    entering = {declared.name for declared in graph.graph.inputs}

    @cache
    def takes_int8(name: str) -> bool:
        if name in leaving:
            return False
        for node in readers.get(name, ()):
            work = works.get(node.name)
            if work is not None and work.merged_into is not None:
                work = works.get(work.merged_into)
            if work is None or work.node in differing:
                continue
            if work.kernels and not isinstance(work.kernels[-1], Movement | GatherScatter):
                return False
            is_same = bool(work.parts) or name == node.inputs[0]  # a view of it, or it is a part of what is joined
            if not work.kernels and is_same and not all(map(takes_int8, node.outputs)):
                return False
        return True

    def is_input(name: str) -> bool:
        while name not in entering:
            maker = made_by.get(name)
            work = None if maker is None else works.get(maker.name)
            if maker is None or work is None or work.kernels or work.merged_into is not None or not maker.inputs:
                return False
            name = maker.inputs[0]
        return True

    found = []
    nodes = {node.name: node for node in made_by.values()}
    for work, old in zip(narrow, wide, strict=True):
        own, kernels = nodes.get(work.node), work.kernels
        last = kernels[-1] if kernels else None
        if own is None or work.node not in differing or not isinstance(last, Conv) or last.dtype is not DataType.INT8:
            found.append(work)
            continue
        before = old.kernels[-1]
        if isinstance(before, Conv) and not all(map(takes_int8, own.outputs)):
            last = replace(last, output_dtype=written(before))
        operand = operand_of(before) if own.inputs and is_input(own.inputs[0]) else None
        quantised = None if operand is None else turn("quantize", operand, DataType.INT8)
        found.append(replace(work, kernels=(*kernels[:-1], *([] if quantised is None else [quantised]), last)))
    return tuple(found)
