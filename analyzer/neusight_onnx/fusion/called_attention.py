"""Attention that a graph writes out and that PyTorch's model calls as one function.

An exporter writes ``scaled_dot_product_attention`` as products and a softmax, and libraries switch it off for an export
(timm: ``set_exportable``, Hugging Face: ``attn_implementation="eager"``), so that the file shows operators that the
model doesn't execute. In 16 bits PyTorch has one kernel for it (flash, or memory-efficient where there is a mask), and
models have called it by default since 2023 (timm 0.9: ``use_fused_attn``; Hugging Face 4.36: "sdpa"). In FP32 written
attention is taken as it is written: that is how it was measured.

Two things in a file say that its written attention is the model's own, in 16 bits, too. Other attention of it is a call
(both factors scaled, or an operator): whoever exported it didn't switch calls off. Or a mask of windows is added in a
view of five dimensions, as implementations of Swin do that don't call the function (Microsoft's, torchvision's, timm's
unless ``TIMM_FUSED_ATTN=2``, transformers' before 5).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.patterns.registry import PATTERNS, recognise
from neusight_onnx.fusion.patterns.search import OWN, Match, Pattern, Search, Trail
from neusight_onnx.fusion.patterns.softmax import over_last_axis
from neusight_onnx.graph.model import InferredGraph, Node
from neusight_onnx.runtime import Runtime, as_runtime

PYTORCH = frozenset({"eager", "compiled"})
BY_PARTS = 5
"""Dimensions that no fused kernel takes ("All fused kernels requires query, key and value to be 4 dimensional",
``sdp_utils_cpp.h``): PyTorch executes the formula, of 16 bits in FP32 (``_scaled_dot_product_attention_math``, 2.9)."""
NARROW = frozenset({DataType.FLOAT16, DataType.BFLOAT16})


def with_called_attention(graph: InferredGraph, *, runtime: Runtime | str, autocast: bool) -> InferredGraph:
    """``graph`` with written attention in 16 bits as one operator, and said so, also where it is left as it is written.

    ``autocast``: the products run in 16 bits, whatever the graph holds; else its values' types decide.
    """
    calls = recognise(graph, runtime=runtime, rules=CALLS)
    called = recognise(calls, runtime=runtime, rules=ANY_TYPE if autocast else IN_NARROW_TYPES)
    written = _count(called) - _count(calls)
    left = _left(called, any_type=autocast)
    said = []
    if written and (reason := _why_own(calls)):
        said.append(f"{_attentions(written)} that the graph writes out, executed as written: {reason}")
        called, written = calls, 0
    by_parts = _count_by_parts(called)
    if found := written - (by_parts - _count_by_parts(calls)):
        said.append(
            f"{_attentions(found)} that the graph writes out: one kernel each, as PyTorch models call "
            "scaled_dot_product_attention in 16 bits, also those exported without it; a model that doesn't call it "
            "takes longer"
        )
    if by_parts:
        wide = " in float32" if as_runtime(runtime).widens_attention else ""
        said.append(
            f"{_attentions(by_parts)} of five dimensions that the graph writes out: products and a softmax{wide}, "
            "which scaled_dot_product_attention makes of such, as it has one kernel for four dimensions only"
        )
    if left:
        said.append(
            f"{_attentions(left)} that the graph writes out, executed as written in 16 bits, too: between product and "
            "softmax there is more than scaled_dot_product_attention does, or its kernels don't read such operands"
        )
    found_in = graph if called is calls else called
    return replace(found_in, assumptions=(*graph.assumptions, *said)) if said else found_in


def _attentions(count: int) -> str:
    return f"{count:,} {'attention' if count == 1 else 'attentions'}"


def _count(graph: InferredGraph) -> int:
    own = sum(node.op_type == "ScaledDotProductAttention" and node.domain == OWN for node in graph.graph.nodes)
    return own + sum(_count(body) for body in graph.bodies.values())


def _why_own(graph: InferredGraph) -> str | None:
    """What in ``graph``, whose calls are recognised, says that attention which it writes out is the model's own."""
    if _calls(graph):
        return "other attention of this file is a call of scaled_dot_product_attention, so that this isn't"
    if _masks_windows(graph):
        return "masks of windows are added in five dimensions, as models that don't call the function do (Swin)"
    return None


def _calls(graph: InferredGraph) -> bool:
    named = {("Attention", ""), ("ScaledDotProductAttention", OWN)}
    own = any((node.op_type, node.domain) in named for node in graph.graph.nodes)
    return own or any(_calls(body) for body in graph.bodies.values())


def _masks_windows(graph: InferredGraph) -> bool:
    """Whether scores (n windows, h, s, s) get a mask as (n, windows, h, s, s), and a softmax follows."""
    makers = {name: node for node in graph.graph.nodes for name in node.outputs}

    def rank(name: str) -> int:
        value = graph.values.get(name)
        return len(value.shape or ()) if value is not None else 0

    for softmax in graph.graph.nodes:
        joined = makers.get(softmax.inputs[0]) if softmax.op_type == "Softmax" and not softmax.domain else None
        masked = makers.get(joined.inputs[0]) if joined is not None and joined.op_type == "Reshape" else None
        if masked is None or masked.op_type != "Add" or rank(masked.outputs[0]) != BY_PARTS:
            continue
        apart = [node for name in masked.inputs if (node := makers.get(name)) is not None and node.op_type == "Reshape"]
        if any(rank(node.inputs[0]) == rank(softmax.inputs[0]) == BY_PARTS - 1 for node in apart):
            return True
    return any(_masks_windows(body) for body in graph.bodies.values())


def _count_by_parts(graph: InferredGraph) -> int:
    values = [
        graph.values.get(node.inputs[0])
        for node in graph.graph.nodes
        if node.op_type == "ScaledDotProductAttention" and node.domain == OWN
    ]
    own = sum(value is not None and len(value.shape or ()) == BY_PARTS for value in values)
    return own + sum(_count_by_parts(body) for body in graph.bodies.values())


_BETWEEN = frozenset(
    {"Add", "Cast", "Div", "Identity", "Max", "Mul", "Reshape", "Softmax", "Sub", "Transpose", "Where"}
)
_MOST_BETWEEN = 16


def _left(graph: InferredGraph, *, any_type: bool) -> int:
    """How many softmaxes still stand between two products of activations, the first of 16 bits unless ``any_type``."""
    found = sum(_left(body, any_type=any_type) for body in graph.bodies.values())
    softmaxes = [node for node in graph.graph.nodes if node.op_type == "Softmax" and not node.domain]
    if not softmaxes:
        return found
    producers = {name: node for node in graph.graph.nodes for name in node.outputs}
    consumers: dict[str, list[Node]] = {}
    for node in graph.graph.nodes:
        for name in node.inputs:
            consumers.setdefault(name, []).append(node)

    def reaches_product(start: Node, *, upwards: bool) -> bool:
        pending, seen = [start], {start.name}
        while pending and len(seen) <= _MOST_BETWEEN:
            node = pending.pop()
            if upwards:
                others = [producers[name] for name in node.inputs if name in producers]
            else:
                others = [user for name in node.outputs for user in consumers.get(name, ())]
            for other in others:
                if other.domain or other.name in seen:
                    continue
                values = [graph.values.get(name) for name in other.inputs[:2]]
                if other.op_type == "MatMul" and not any(value is None or value.is_constant for value in values):
                    first = values[0]
                    return any_type or (first is not None and first.dtype in NARROW)
                if other.op_type in _BETWEEN:
                    seen.add(other.name)
                    pending.append(other)
        return False

    return found + sum(
        reaches_product(node, upwards=True) and reaches_product(node, upwards=False) for node in softmaxes
    )


def _scaled(trail: Trail, name: str) -> str:
    """What a number scales, if ``name`` is that; else ``name``."""
    search = trail.search
    attempt = _copied(trail)
    node = attempt.up(name, "Mul", "Div")
    if node is None or len(search.consumers.get(node.outputs[0], ())) != 1 or node.outputs[0] in search.kept:
        return name
    for value, scalar in (tuple(node.inputs), tuple(reversed(node.inputs))):
        if node.op_type == "Div" and value != node.inputs[0]:
            continue
        if search.shape(scalar) in ((), (1,)) and search.shape(value) not in ((), (1,)):
            trail.nodes.update(attempt.nodes)
            return value
    return name


def _copied(trail: Trail) -> Trail:
    return Trail(trail.search, casts=trail.casts, nodes=dict(trail.nodes))


def _product(trail: Trail, name: str) -> tuple[Node, tuple[str, ...]] | None:
    """(product, masks) if ``name`` is a product's scores, with what models do to them before the softmax.

    From the softmax upwards, each or none: a reshape that keeps rows and columns and a lower limit (OPT), an added
    mask, that reshape, a filled mask (GPT-2), a scale. Other orders are models that don't call the function (BLOOM).
    """
    name = _clamped(trail, _reshaped(trail, name))
    attempt = _copied(trail)
    plus = attempt.up(name, "Add")
    if plus is not None and len(plus.inputs) == 2:
        for scores, mask in (tuple(plus.inputs), tuple(reversed(plus.inputs))):
            added = _copied(attempt)
            found = _filled_product(added, _reshaped(added, scores))
            if found is not None:
                trail.nodes.update(added.nodes)
                return found[0], (mask, *found[1])
    return _filled_product(trail, _reshaped(trail, name))


def _filled_product(trail: Trail, name: str) -> tuple[Node, tuple[str, ...]] | None:
    masks: tuple[str, ...] = ()
    attempt = _copied(trail)
    where = attempt.up(name, "Where")
    if where is not None:
        condition, first, second = where.inputs
        scores = second if _is_number(attempt, first) else first if _is_number(attempt, second) else None
        if scores is None:
            return None
        trail.nodes.update(attempt.nodes)
        name, masks = scores, (condition,)
    product = trail.up(_scaled(trail, name), "MatMul")
    return None if product is None else (product, masks)


def _is_number(trail: Trail, name: str) -> bool:
    return trail.search.is_constant(name) and prod(trail.search.shape(name) or ()) == 1


def _clamped(trail: Trail, name: str) -> str:
    """What a number is a lower limit of, if ``name`` is that; else ``name``."""
    attempt = _copied(trail)
    node = attempt.up(name, "Max")
    if node is None or len(node.inputs) != 2:
        return name
    for value, limit in (tuple(node.inputs), tuple(reversed(node.inputs))):
        if _is_number(attempt, limit):
            trail.nodes.update(attempt.nodes)
            return value
    return name


def _reshaped(trail: Trail, name: str) -> str:
    """What ``name`` is a reshape of, rows and columns kept; else ``name``."""
    attempt = _copied(trail)
    node = attempt.up(name, "Reshape")
    if node is None:
        return name
    source, target = (trail.search.shape(each) for each in (node.inputs[0], node.outputs[0]))
    if source is None or target is None or source[-2:] != target[-2:]:
        return name
    trail.nodes.update(attempt.nodes)
    return node.inputs[0]


def _lies_across(search: Search, name: str) -> bool:
    """Whether a value is a Transpose that leaves its rows across memory, as where channels attend to channels (DaViT).

    PyTorch's fused kernels take operands whose last stride is one; for others ``scaled_dot_product_attention`` runs
    products and a softmax itself (``check_last_dim_stride_equals_1`` in ATen's sdp_utils_cpp.h; seen on stand-ins for
    CUDA's libraries), so that models that attend so have no reason to call it.
    """
    node = search.producers.get(name)
    if node is None or node.domain or node.op_type != "Transpose":
        return False
    axes = node.attributes.get("perm")
    return not isinstance(axes, tuple) or axes[-1] != len(axes) - 1


def _written(search: Search, anchor: Node, *, any_type: bool, ranks: tuple[int, ...]) -> Match | str:
    """softmax(scale * (q @ k^T) + mask) @ v, the scale being on the product, on q or on k, or left out.

    The mask may be added, or filled in where a condition says so.
    """
    if not over_last_axis(search, anchor):
        return "the softmax isn't over the last axis"
    trail = Trail(search, casts=True)
    trail.add(anchor)
    found = _product(trail, anchor.inputs[0])
    if found is None:
        return "the softmax isn't over a product"
    scores, masks = found
    if search.shape(scores.outputs[0]) != search.shape(anchor.inputs[0]):
        return "the softmax isn't over the product's dimensions"
    product = trail.down(anchor.outputs[0], "MatMul")
    if product is None or trail.root(product.inputs[0]) != trail.root(anchor.outputs[0]):
        return "the weights are not only multiplied with values"
    query, key = (_scaled(trail, operand) for operand in scores.inputs)
    operands = (query, key, product.inputs[1])
    shapes = [search.shape(operand) for operand in operands]
    if any(shape is None or len(shape) not in ranks for shape in shapes):
        return f"queries, keys and values don't have {' or '.join(map(str, ranks))} dimensions"
    if any(search.is_constant(operand) for operand in operands):
        return "a factor is a constant"
    if any(_lies_across(search, operand) for operand in (query, product.inputs[1])):
        return "queries or values lie across memory: PyTorch's kernels read dense rows"
    value = search.values.get(scores.inputs[0])
    if not any_type and (value is None or value.dtype not in NARROW):
        return "PyTorch is taken to call one kernel in 16 bits only"
    # of two masks models make one, with the dimensions of both
    mask = sorted(masks, key=lambda name: -prod(search.shape(name) or ()))[:1]
    return trail.finish("ScaledDotProductAttention", (*operands, *mask), product.outputs[0], domain=OWN)


def _rules(any_type: bool) -> tuple[Pattern, ...]:
    return (
        Pattern(
            name="attention that the model calls",
            anchors=("Softmax",),
            runtimes=PYTORCH,
            find=lambda search, anchor: _written(search, anchor, any_type=any_type, ranks=(3, 4)),
        ),
        Pattern(
            name="attention of five dimensions that the model calls",
            anchors=("Softmax",),
            runtimes=PYTORCH,
            find=lambda search, anchor: _written(search, anchor, any_type=any_type, ranks=(BY_PARTS,)),
        ),
    )


CALLS = tuple(
    rule for rule in PATTERNS if rule.name in ("keys transposed between Reshapes", "scaled dot-product attention")
)
"""What exporters make of a call: both factors scaled."""
ANY_TYPE = _rules(any_type=True)
IN_NARROW_TYPES = _rules(any_type=False)
