"""Zeros around an image that a convolution lays down itself: a Pad that engines fold into what reads it.

ONNX Runtime's rule (``pad_fusion.cc``; ``tests/test_ort_optimiser.py`` holds it): by constants, in constant mode, with
zero, no rows taken away, in no batch or channel, for a convolution or a mean over windows that pads nothing itself,
which alone reads it. TensorRT has it for convolutions (its guide's "Padding and Convolution/
Deconvolution"; TensorRT for RTX 1.7.1 lists no layer for such a Pad, and two for one in front of a pooling).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np

from neusight_onnx.graph.model import Attribute, InferredGraph, Node, kept_values
from neusight_onnx.runtime import Runtime

ADDITIONAL = {"onnxruntime": ("AveragePool",), "tensorrt": ()}
"""What else than convolutions takes a Pad, by engine."""


def with_folded_pads(graph: InferredGraph, runtime: Runtime) -> InferredGraph:
    """``graph`` without Pads whose zeros the reader lays down itself; bodies of control flow, too."""
    bodies = {key: with_folded_pads(body, runtime) for key, body in graph.bodies.items()}
    if any(bodies[key] is not body for key, body in graph.bodies.items()):
        graph = replace(graph, bodies=bodies)
    pads = [node for node in graph.graph.nodes if node.op_type == "Pad" and not node.domain]
    if not pads:
        return graph
    readers: dict[str, list[Node]] = defaultdict(list)
    for node in graph.graph.nodes:
        for name in dict.fromkeys(node.inputs):
            readers[name].append(node)
    kept = kept_values(graph)
    padded: dict[str, Node] = {}
    gone: set[str] = set()
    for pad in pads:
        users, around = readers[pad.outputs[0]], _zeros_around(graph, pad)
        if around is None or len(users) != 1 or pad.outputs[0] in kept:
            continue
        if runtime.name == "onnxruntime" and pad.inputs[2:] == ("",):
            continue  # a number that is left out by an empty name is none that it knows
        if _takes(users[0], pad, around, runtime):
            gone.add(pad.name)
            padded[users[0].name] = _padded(users[0], pad, around)
    if not gone:
        return graph
    removed = {pad.outputs[0] for pad in pads if pad.name in gone}
    nodes = tuple(padded.get(node.name, node) for node in graph.graph.nodes if node.name not in gone)
    values = {name: value for name, value in graph.values.items() if name not in removed}
    return replace(graph, graph=replace(graph.graph, nodes=nodes), values=values)


def _zeros_around(graph: InferredGraph, pad: Node) -> tuple[int, ...] | None:
    """Zeros before and behind each spatial dimension, as ``pads`` of a convolution has them; None: it does more."""
    if pad.attributes.get("mode", "constant") != "constant" or len(pad.inputs) > 3:
        return None
    given: Any
    number: Any
    if pad.version < 11:
        given, number = pad.attributes.get("pads"), pad.attributes.get("value", 0.0)
    else:
        value = graph.values.get(pad.inputs[1])
        given = value.data if value is not None and value.is_constant else None
        number = 0.0
        if len(pad.inputs) > 2 and pad.inputs[2]:
            filled = graph.values.get(pad.inputs[2])
            number = filled.data if filled is not None and filled.is_constant else None
    if given is None or number is None or np.any(np.asarray(number) != 0):
        return None
    sizes = [int(size) for size in np.asarray(given).ravel()]
    source = graph.values.get(pad.inputs[0])
    if source is None or source.shape is None or len(sizes) != 2 * len(source.shape):
        return None
    before, behind = sizes[: len(sizes) // 2], sizes[len(sizes) // 2 :]
    if min(sizes, default=-1) < 0 or any((*before[:2], *behind[:2])):
        return None
    return (*before[2:], *behind[2:])


def _takes(node: Node, pad: Node, around: tuple[int, ...], runtime: Runtime) -> bool:
    if node.domain or node.attributes.get("auto_pad", "NOTSET") != "NOTSET":
        return False
    if node.inputs[0] != pad.outputs[0] or pad.outputs[0] in node.inputs[1:]:
        return False
    if node.op_type == "Conv":
        return len(_pads_of(node)) in (0, len(around))
    if node.op_type not in ADDITIONAL.get(runtime.name, ()) or node.attributes.get("ceil_mode", 0):
        return False
    return not any(_pads_of(node))


def _pads_of(node: Node) -> tuple[int, ...]:
    given = node.attributes.get("pads", ())
    return tuple(size for size in given if isinstance(size, int)) if isinstance(given, tuple) else ()


def _padded(node: Node, pad: Node, around: tuple[int, ...]) -> Node:
    own = _pads_of(node) or (0,) * len(around)
    attributes: dict[str, Attribute] = {
        **node.attributes,
        "pads": tuple(a + b for a, b in zip(own, around, strict=True)),
    }
    if node.op_type == "AveragePool":
        attributes["count_include_pad"] = 1
    origins = (*pad.stands_for, *node.stands_for)
    inputs = (pad.inputs[0], *node.inputs[1:])
    return replace(node, inputs=inputs, attributes=attributes, origins=origins)
