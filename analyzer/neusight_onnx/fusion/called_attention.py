"""Attention that a graph writes out and that PyTorch's model calls as one function.

An exporter writes ``scaled_dot_product_attention`` as products and a softmax, and libraries switch it off for an export
(timm: ``set_exportable``, Hugging Face: ``attn_implementation="eager"``), so that the file shows operators that the
model doesn't execute. In 16 bits PyTorch has one kernel for it (flash, or memory-efficient where there is a mask), and
models have called it by default since 2023 (timm 0.9: ``use_fused_attn``; Hugging Face 4.36: "sdpa"). In FP32 written
attention is taken as it is written: that is how it was measured.
"""

from __future__ import annotations

from dataclasses import replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.patterns import OWN, Match, Pattern, Search, Trail, over_last_axis, recognise
from neusight_onnx.graph.model import InferredGraph, Node

PYTORCH = frozenset({"eager", "compiled"})
NARROW = frozenset({DataType.FLOAT16, DataType.BFLOAT16})


def with_called_attention(graph: InferredGraph, *, runtime: str, autocast: bool) -> InferredGraph:
    """``graph`` with written attention in 16 bits as one operator, and said so.

    ``autocast``: the products run in 16 bits, whatever the graph holds; else its values' types decide.
    """
    called = recognise(graph, runtime=runtime, rules=ANY_TYPE if autocast else IN_NARROW_TYPES)
    if called is graph:
        return graph
    count = _count(called) - _count(graph)
    said = (
        f"{count} {'attention' if count == 1 else 'attentions'} that the graph writes out: one kernel each, as PyTorch "
        "models call scaled_dot_product_attention in 16 bits, also those exported without it"
    )
    return replace(called, assumptions=(*called.assumptions, said))


def _count(graph: InferredGraph) -> int:
    own = sum(node.op_type == "ScaledDotProductAttention" and node.domain == OWN for node in graph.graph.nodes)
    return own + sum(_count(body) for body in graph.bodies.values())


def _scaled(trail: Trail, name: str) -> str:
    """What a number scales, if ``name`` is that; else ``name``."""
    search = trail.search
    attempt = Trail(search, casts=trail.casts, nodes=dict(trail.nodes))
    node = attempt.up(name, "Mul", "Div")
    if node is None or len(search.consumers.get(node.outputs[0], ())) != 1 or node.outputs[0] in search.kept:
        return name
    for value, scalar in (tuple(node.inputs), tuple(reversed(node.inputs))):
        if node.op_type == "Div" and value != node.inputs[0]:
            continue
        if search.is_constant(scalar) and search.shape(scalar) in ((), (1,)) and not search.is_constant(value):
            trail.nodes.update(attempt.nodes)
            return value
    return name


def _masked(trail: Trail, name: str) -> tuple[str, tuple[str, ...]]:
    """(scores, mask) if ``name`` is their sum and the scores are a product, scaled or not; else ``name`` alone."""
    search = trail.search
    attempt = Trail(search, casts=trail.casts, nodes=dict(trail.nodes))
    plus = attempt.up(name, "Add")
    if plus is None:
        return name, ()
    for scores, mask in (tuple(plus.inputs), tuple(reversed(plus.inputs))):
        maker = search.producers.get(attempt.root(scores))
        if maker is not None and not maker.domain and maker.op_type in ("MatMul", "Mul", "Div"):
            trail.nodes.update(attempt.nodes)
            return scores, (mask,)
    return name, ()


def _written(search: Search, anchor: Node, *, any_type: bool) -> Match | str:
    """softmax(scale * (q @ k^T) + mask) @ v, the scale being on the product, on q or on k, or left out."""
    if not over_last_axis(search, anchor):
        return "the softmax isn't over the last axis"
    trail = Trail(search, casts=True)
    trail.add(anchor)
    name, mask = _masked(trail, anchor.inputs[0])
    scores = trail.up(_scaled(trail, name), "MatMul")
    if scores is None:
        return "the softmax isn't over a product"
    product = trail.down(anchor.outputs[0], "MatMul")
    if product is None or trail.root(product.inputs[0]) != trail.root(anchor.outputs[0]):
        return "the weights are not only multiplied with values"
    query, key = (_scaled(trail, operand) for operand in scores.inputs)
    operands = (query, key, product.inputs[1])
    shapes = [search.shape(operand) for operand in operands]
    if any(shape is None or len(shape) not in (3, 4) for shape in shapes):
        return "queries, keys and values don't have three or four dimensions"
    if any(search.is_constant(operand) for operand in operands):
        return "a factor is a constant"
    value = search.values.get(scores.inputs[0])
    if not any_type and (value is None or value.dtype not in NARROW):
        return "PyTorch is taken to call one kernel in 16 bits only"
    return trail.finish("ScaledDotProductAttention", (*operands, *mask), product.outputs[0], domain=OWN)


def _rules(any_type: bool) -> tuple[Pattern, ...]:
    return (
        Pattern(
            name="attention that the model calls",
            anchors=("Softmax",),
            runtimes=PYTORCH,
            find=lambda search, anchor: _written(search, anchor, any_type=any_type),
        ),
    )


ANY_TYPE = _rules(any_type=True)
IN_NARROW_TYPES = _rules(any_type=False)
