"""The weights of linear layers, convolutions and experts stored in few bits."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import cast

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import InferredGraph, Initializer, Node
from neusight_onnx.lowering.precision import PLAIN

_LINEAR = frozenset(
    {
        *(("", name) for name in ("Gemm", "MatMul")),
        *(("neusight", name) for name in ("Linear", "SharedLinear")),
        *(
            ("com.microsoft", name)
            for name in (
                "Attention",
                "FusedGemm",
                "FusedMatMul",
                "FusedMatMulActivation",
                "GemmFastGelu",
                "TransposeMatMul",
            )
        ),
    }
)
"""What multiplies by its second operand."""

_CONVOLUTIONS = frozenset(
    {
        *(("", name) for name in ("Conv", "ConvTranspose")),
        *(("com.microsoft", name) for name in ("FusedConv", "NhwcConv", "NhwcFusedConv")),
    }
)

_EXPERTS = frozenset({("com.microsoft", "MoE")})
"""Mixtures of experts: weights fc1, fc2 and fc3 are inputs 2, 4 and 6."""


def with_weights(
    graph: InferredGraph, weights: DataType, *, convolutions: bool = False, experts: bool = False
) -> InferredGraph:
    """``graph`` with the weights of its linear layers stored as ``weights``, those that nothing else reads.

    ``convolutions``, ``experts``: theirs, too.
    """
    kinds = _LINEAR | (_CONVOLUTIONS if convolutions else frozenset()) | (_EXPERTS if experts else frozenset())
    bodies = {
        key: with_weights(body, weights, convolutions=convolutions, experts=experts)
        for key, body in graph.bodies.items()
    }
    narrow: set[str] = set()
    others: set[str] = {declared.name for declared in graph.graph.outputs}
    for node in graph.graph.nodes:
        places = _weight_places(node, kinds)
        for place, name in enumerate(node.inputs):
            value = graph.values.get(name)
            if place in places and value is not None and value.is_constant and len(value.shape or ()) >= 2:
                narrow.add(name)
            else:
                others.add(name)
    found = {name for name in narrow - others if graph.values[name].dtype in PLAIN}
    if not found:
        return replace(graph, bodies=bodies)
    values = {**graph.values, **{name: replace(graph.values[name], dtype=weights) for name in found}}
    initializers: dict[str, Initializer] = dict(graph.graph.initializers)
    initializers.update((name, replace(initializers[name], dtype=weights)) for name in found if name in initializers)
    return replace(graph, graph=replace(graph.graph, initializers=initializers), values=values, bodies=bodies)


def narrowed_count(before: InferredGraph, after: InferredGraph) -> int:
    """How many weights :func:`with_weights` stores otherwise."""
    own = sum(
        prod(value.shape or ())
        for name, value in after.values.items()
        if (old := before.values.get(name)) is not None and old.dtype is not value.dtype
    )
    return own + sum(narrowed_count(before.bodies[key], body) for key, body in after.bodies.items())


def _weight_places(node: Node, kinds: frozenset[tuple[str, str]]) -> range:
    """Which inputs of a node are weights that a product of ``kinds`` multiplies by, alone or with an epilogue."""
    key, count = (node.domain, node.op_type), len(node.inputs)
    if key == ("neusight", "WithEpilogue"):
        key = (str(node.attributes["product_domain"]), str(node.attributes["product"]))
        count = cast("int", node.attributes["product_inputs"])
    if key not in kinds or count < 2:
        return range(0)
    if key in _EXPERTS:
        return range(2, 7, 2)
    if key == ("neusight", "SharedLinear"):
        return range(1, count)
    return range(1, 2)
