"""Attention that a model writes itself and TensorRT runs as one kernel, reading its operands where they lie.

TensorRT has fused kernels for attention in 16 and 8 bits, for heads of at most 256 that are a multiple of 8 (developer
guide, "Multi-Head Attention Fusion"). What else they take was read off engines that TensorRT for RTX 1.7 builds without
a GPU, alike for compute capabilities 7.5 to 12.0 (``benchmarks/results/fusion_trt.md``): any scale, added or selecting
masks one behind another, limits of the scores (Clip, Max), a selection behind the softmax, Reshapes between that leave
rows alone (windows of Swin), casts between floating-point types, tensors of three and more dimensions, values as wide
as keys, between pairs of quantisation the QuantizeLinear of the weights (not of scores). They read queries, keys and
values by strides, heads being dense: Transposes of (b, s, h, d), and what takes the three out of one tensor, are gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import cast

from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.compiled_attention import HEADS_FIRST, permutation_of, reads_of
from neusight_onnx.fusion.patterns.search import LONGEST_CHAIN, OWN, Verdict
from neusight_onnx.fusion.quantization.pairs import is_rounding
from neusight_onnx.graph.model import InferredGraph, Node
from neusight_onnx.kernels import Attention, Kernel, NodeWork
from neusight_onnx.strides import contiguous_strides, regrouped_order, view_strides

SMALLEST_HEAD, LARGEST_HEAD, HEAD_STEP = 16, 256, 8
"""The guide has multiples of 8 up to 256. The engines looked at ran heads of 8 by parts, and took odd ones, too."""
FUSED_TYPES = frozenset({DataType.FLOAT16, DataType.BFLOAT16, DataType.INT8, DataType.FLOAT8E4M3FN})
ENGINE_RULE = "attention in one kernel"


@dataclass(frozen=True, slots=True)
class _Index:
    """A graph's nodes by what they make and read. ``uses``: how often the elements of a value are read;
    ``not_numbers``: the IsNaN over a value; ``order``: places of nodes, by name."""

    graph: InferredGraph
    order: Mapping[str, int]
    makers: Mapping[str, Node]
    readers: Mapping[str, Node]
    not_numbers: Mapping[str, Node]
    uses: Counter[str]


@dataclass(frozen=True, slots=True)
class _Fused:
    """Attention in one kernel: the node that stands for it (its second product's), which reads queries, keys and values
    (``operands``) by strides; the nodes that it was (``members``), in their order."""

    node: Node
    operands: tuple[str, ...]
    transposed_key: bool
    members: tuple[Node, ...] = ()


def fuse_attention(graph: InferredGraph) -> tuple[InferredGraph, tuple[Verdict, ...]]:
    """``graph`` (recognised for "tensorrt") with attention as one operator, in bodies, too, and why some isn't."""
    bodies = {key: fuse_attention(body)[0] for key, body in graph.bodies.items()}
    if any(bodies[key] is not body for key, body in graph.bodies.items()):
        graph = replace(graph, bodies=bodies)
    nodes = graph.graph.nodes
    written = [
        node for node in nodes if (node.domain, node.op_type) in (("", "Softmax"), ("neusight", "MaskedSoftmax"))
    ]
    exported = [node for node in nodes if (node.domain, node.op_type) == ("neusight", "ScaledDotProductAttention")]
    if not written and not exported:
        return graph, ()
    index = _indexed(graph)
    fused: list[_Fused] = []
    replaced: dict[str, Node] = {}
    verdicts: list[Verdict] = []
    for node in exported:
        reason = _operand_refusal(graph, node.inputs[:3])
        if reason is None:
            fused.append(_Fused(node, node.inputs[:3], node.attributes.get("transposed_key", 1) == 1))
        else:
            replaced[node.name] = replace(node, attributes={**node.attributes, "by_parts": 1})
            verdicts.append(Verdict(rule=ENGINE_RULE, node=node.name, reason=reason))
    for softmax in written:
        found = _around(index, softmax)
        if isinstance(found, _Fused):
            fused.append(found)
            verdicts.append(
                Verdict(rule=ENGINE_RULE, node=softmax.name, merged=tuple(node.name for node in found.members))
            )
        else:
            verdicts.append(Verdict(rule=ENGINE_RULE, node=softmax.name, reason=found))
    replaced.update(_read_in_place(index, fused))
    replaced.update({item.node.name: item.node for item in fused if item.members})
    if not replaced:
        return graph, tuple(verdicts)
    gone = {node.name for item in fused for node in item.members if node.name != item.node.name}
    kept = tuple(replaced.get(node.name, node) for node in nodes if node.name not in gone)
    return replace(graph, graph=replace(graph.graph, nodes=kept)), tuple(verdicts)


def _indexed(graph: InferredGraph) -> _Index:
    nodes = graph.graph.nodes
    return _Index(
        graph=graph,
        order={node.name: place for place, node in enumerate(nodes)},
        makers={name: node for node in nodes for name in node.outputs},
        readers={name: node for node in nodes if node.op_type not in ("Shape", "Size") for name in node.inputs},
        not_numbers={node.inputs[0]: node for node in nodes if node.op_type == "IsNaN"},
        uses=Counter(reads_of(graph)),
    )


def _around(index: _Index, softmax: Node) -> _Fused | str | None:
    """The attention that a softmax is part of, or why it is none in one kernel."""
    values = index.graph.values
    above = _above(index.graph, softmax, index.makers, index.uses)
    if above.end is None or not _multiplies(
        above.end, "FusedMatMul"
    ):  # scales and masks of quantised scores are no part of either
        above = _above(index.graph, softmax, index.makers, index.uses, scaled=True)
        if above.end is None or above.end.op_type != QUANTISED:
            return "the softmax isn't over a product"
    below = _below(index.graph, softmax, index.readers, index.not_numbers, index.uses)
    scores, product = above.end, below.end
    reason = _engine_refusal(index.graph, above, softmax, below, index.uses)
    if reason is not None or scores is None or product is None:
        return reason
    masks = [name for name in (*above.operands, *softmax.inputs[1:]) if values[name].shape not in ((), (1,))]
    masks.sort(key=lambda name: values[name].element_count or 0)  # of several the largest is read most
    operands = (*scores.inputs[:2], product.inputs[1])
    transposed_key = scores.attributes.get("transB", 0) != 1
    inner = (*above.passed, scores, softmax, *below.passed, product)
    members = tuple(sorted(inner, key=lambda node: index.order[node.name]))
    attention = replace(
        product,
        op_type="ScaledDotProductAttention",
        domain="neusight",
        inputs=(*operands, *masks[-1:]),
        attributes={"transposed_key": int(transposed_key)},
        origins=tuple(dict.fromkeys(origin for node in members for origin in node.stands_for)),
    )
    return _Fused(attention, operands, transposed_key, members)


def _read_in_place(index: _Index, fused: Iterable[_Fused]) -> dict[str, Node]:
    """What copies nothing, since attention reads its operands by strides and writes its result by them, by name."""
    views: dict[str, Node] = {}
    times: Counter[str] = Counter()
    gone: dict[str, Node] = {}
    for item in fused:
        for place, name in enumerate(item.operands):
            dense = -2 if place == 1 and item.transposed_key else -1
            views.update((node.name, node) for node in _views_above(index.graph, name, dense, index.makers))
            times[name] += 1
        result = item.node.outputs[0]
        behind = index.readers.get(result)
        if behind is not None and index.uses[result] == 1 and permutation_of(behind) == HEADS_FIRST:
            gone[behind.name] = behind
    for node in sorted(views.values(), key=lambda node: -index.order[node.name]):
        # what all of its readers read where it lies: other attention, or views that are no copies themselves
        if all(index.uses[name] == times[name] for name in node.outputs if name):
            times[node.inputs[0]] += 1
            if node.op_type in MOVING_VIEWS:
                gone[node.name] = node
    return {name: replace(node, op_type="InPlace", domain="neusight", attributes={}) for name, node in gone.items()}


MOVING_VIEWS = frozenset({"Transpose", "Split", "Slice", "Gather"})
"""Operators that copy what a kernel which reads by strides can read where it lies."""


@dataclass(frozen=True, slots=True)
class _Way:
    """From a softmax to a product: ``end`` (None: there is none), the nodes ``passed``, the ``operands`` of these."""

    end: Node | None
    last: str
    passed: tuple[Node, ...] = ()
    operands: tuple[str, ...] = ()


QUANTISED = "QuantizedMatMul"
"""A product of operands that are quantised both (``fusion/quantization/``)."""


def _multiplies(node: Node, *ops: str) -> bool:
    """Whether a node is a MatMul, one of ``ops``, or a product of quantised operands that writes floats."""
    if node.op_type == QUANTISED:
        return node.domain == OWN and not node.attributes.get("weight_only", 0)
    return node.op_type == "MatMul" or node.op_type in ops


def _is_float_cast(graph: InferredGraph, node: Node) -> bool:
    """Whether a node is a Cast between floating-point types, or passes its input on."""
    if node.domain or node.op_type not in ("Cast", "Identity"):
        return False
    types = [
        None if (value := graph.values.get(name)) is None else value.dtype for name in (*node.inputs, *node.outputs)
    ]
    return all(kind is not None and kind.is_float for kind in types)


def _keeps_rows(graph: InferredGraph, node: Node) -> bool:
    """Whether a node is a Reshape of all but the last two dimensions."""
    if node.domain or node.op_type not in ("Reshape", "Squeeze", "Unsqueeze"):
        return False
    shapes = [
        None if (value := graph.values.get(name)) is None else value.shape for name in (node.inputs[0], node.outputs[0])
    ]
    return (
        all(shape is not None and len(shape) > 1 for shape in shapes)
        and len({shape[-2:] for shape in shapes if shape is not None}) == 1
    )


def _is_limit(graph: InferredGraph, node: Node) -> bool:
    """Whether a node bounds its first input by numbers."""
    if node.domain or node.op_type not in ("Clip", "Max", "Min"):
        return False
    bounds = [graph.values.get(name) for name in node.inputs[1:] if name]
    return all(value is not None and value.element_count == 1 for value in bounds)


def _above(
    graph: InferredGraph, softmax: Node, makers: Mapping[str, Node], uses: Counter[str], *, scaled: bool = False
) -> _Way:
    """Up from the softmax over casts, Reshapes, limits, scales and masks (those right before it are part of it
    already, unless ``scaled``)."""
    name = softmax.inputs[0]
    passed: list[Node] = []
    operands: list[str] = []
    for _ in range(LONGEST_CHAIN):
        node = makers.get(name)
        if node is None or uses[name] != 1:
            break
        if _is_float_cast(graph, node) or _keeps_rows(graph, node) or _is_limit(graph, node):
            source = node.inputs[0]
        elif (passed or scaled) and (step := _scale_or_mask(graph, node, name)) is not None:
            source, others = step
            operands.extend(others)
        else:
            break
        passed.append(node)
        name = source
    return _Way(makers.get(name), name, tuple(passed), tuple(operands))


def _scale_or_mask(graph: InferredGraph, node: Node, result: str) -> tuple[str, tuple[str, ...]] | None:
    """(scores, the other operands) of a scale by one number, a sum with a mask or a selection by one."""
    if node.domain or node.op_type not in ("Add", "Mul", "Div", "Where"):
        return None
    values = graph.values
    shape = values[result].shape if result in values else None
    places = [1, 2] if node.op_type == "Where" else [0] if node.op_type == "Div" else [0, 1]
    full = [
        node.inputs[place]
        for place in places
        if (value := values.get(node.inputs[place])) is not None and value.shape == shape and not value.is_constant
    ]
    if len(full) != 1:
        return None
    others = tuple(name for name in node.inputs if name != full[0])
    known = [values.get(name) for name in others]
    if any(value is None or value.shape is None for value in known):
        return None
    if node.op_type in ("Mul", "Div") and any(value is not None and value.element_count != 1 for value in known):
        return None
    return full[0], others


def _below(
    graph: InferredGraph,
    softmax: Node,
    readers: Mapping[str, Node],
    not_numbers: Mapping[str, Node],
    uses: Counter[str],
) -> _Way:
    """Down from the softmax over casts, over a selection of zeros, or of zeros in place of what is no number, and over
    what rounds the weights."""
    name = softmax.outputs[0]
    passed: list[Node] = []
    for _ in range(LONGEST_CHAIN):
        node = readers.get(name)
        asked = not_numbers.get(name)
        if uses[name] == 2 and asked is not None and uses[asked.outputs[0]] == 1:
            selected = readers.get(asked.outputs[0])
            if selected is None or selected.op_type != "Where" or name not in selected.inputs:
                break
            passed.append(asked)
            node = selected
        elif (
            uses[name] != 1
            or node is None
            or not (_is_float_cast(graph, node) or _selects(graph, node, name) or is_rounding(node, "QuantizeLinear"))
        ):
            break
        passed.append(node)
        name = node.outputs[0]
    return _Way(readers.get(name), name, tuple(passed))


def _selects(graph: InferredGraph, node: Node, name: str) -> bool:
    """Whether a node takes ``name`` or a number, by a condition that broadcasts."""
    if node.domain or node.op_type != "Where" or name not in node.inputs[1:]:
        return False
    other = graph.values.get(node.inputs[2] if node.inputs[1] == name else node.inputs[1])
    return other is not None and other.element_count == 1


def _views_above(graph: InferredGraph, name: str, dense: int, makers: Mapping[str, Node]) -> list[Node]:
    """The nodes above an operand of fused attention that only say where its elements lie, the nearest first.

    From any of them on, the operand's elements lie by strides in what that node reads, its axis ``dense`` with 1; below
    the Transpose of keys a Reshape, which copies nothing, may read another order.
    """
    chain: list[tuple[Node, str]] = []
    read = 0
    for _ in range(LONGEST_CHAIN):
        node = makers.get(name)
        source = None if node is None or not node.inputs else graph.values.get(node.inputs[0])
        if node is None or source is None or source.shape is None or source.is_constant:
            break
        strides = _seen_through(graph, ((node, name), *reversed(chain)), contiguous_strides(source.shape))
        if strides is None or len(strides) < 2:
            break
        is_dense = strides[dense] == 1
        if not is_dense and node.op_type in MOVING_VIEWS:
            break
        chain.append((node, name))
        if is_dense:
            read = len(chain)
        name = node.inputs[0]
    return [node for node, _ in chain[:read]]


def _seen_through(
    graph: InferredGraph, views: Sequence[tuple[Node, str]], strides: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Strides of the last result of ``views``, nodes with what they write, from those that the first reads.

    A Transpose between two Reshapes may be one of more dimensions (torch.onnx's dynamo exporter folds batch and heads
    to transpose keys): that is a view even where the first Reshape by itself takes a copy.
    """
    place = 0
    found: tuple[int, ...] | None = strides
    while place < len(views) and found is not None:
        order = _regrouped(graph, views[place : place + 3])
        if order is not None:
            found = tuple(found[axis] for axis in order)
            place += 3
        else:
            found = _seen_by(graph, *views[place], found)
            place += 1
    return found


def _regrouped(graph: InferredGraph, views: Sequence[tuple[Node, str]]) -> tuple[int, ...] | None:
    """The order to which Reshape, Transpose and Reshape transpose; None where ``views`` are others."""
    if [node.op_type for node, _ in views] != ["Reshape", "Transpose", "Reshape"] or any(n.domain for n, _ in views):
        return None
    names = (views[0][0].inputs[0], views[0][1], views[2][1])
    shapes = [None if (value := graph.values.get(name)) is None else value.shape for name in names]
    source, grouped, target = shapes
    if source is None or grouped is None or target is None:
        return None
    order = permutation_of(views[1][0]) or tuple(reversed(range(len(grouped))))
    return regrouped_order(source, grouped, order, target)


def _seen_by(graph: InferredGraph, node: Node, result: str, strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides of a view's result from those of its input; None where it is no view, or can't be told."""
    source, target = graph.values.get(node.inputs[0]), graph.values.get(result)
    if node.domain or source is None or target is None or source.shape is None or target.shape is None:
        return None
    match node.op_type:
        case "Transpose":
            axes = permutation_of(node) or tuple(reversed(range(len(strides))))
            return tuple(strides[axis] for axis in axes)
        case "Split":
            return strides
        case "Squeeze" | "Unsqueeze" | "Reshape" | "Flatten":
            return view_strides(source.shape, strides, target.shape)
        case "Gather":
            index = graph.values.get(node.inputs[1])
            axis = node.attributes.get("axis", 0)
            if index is None or index.data is None or index.shape != () or not isinstance(axis, int):
                return None
            axis %= len(strides)
            return (*strides[:axis], *strides[axis + 1 :])
        case "Slice":
            return _sliced(graph, node, strides)
        case _:
            return None


def _sliced(graph: InferredGraph, node: Node, strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides of a Slice forwards, whose axes and steps are known."""
    given: list[list[int] | None] = []
    for place in (3, 4):
        if len(node.inputs) <= place or not node.inputs[place]:
            given.append(None)
            continue
        value = graph.values.get(node.inputs[place])
        if value is None or value.data is None:
            return None
        given.append([int(item) for item in value.data.reshape(-1)])
    axes, steps = given
    if steps is None:
        return strides
    wanted = range(len(strides)) if axes is None else [axis % len(strides) for axis in axes]
    by_axis = dict(zip(wanted, steps, strict=False))
    if any(step < 1 for step in steps):
        return None
    return tuple(stride * by_axis.get(axis, 1) for axis, stride in enumerate(strides))


def by_parts(work: NodeWork) -> NodeWork:
    """``work`` with two products and a softmax in place of each fused attention."""
    if not any(isinstance(kernel, Attention) for kernel in work.kernels):
        return work
    kernels: list[Kernel] = []
    for kernel in work.kernels:
        kernels.extend(kernel.parts() if isinstance(kernel, Attention) else (kernel,))
    return replace(work, kernels=tuple(kernels), alternatives=())


def _engine_refusal(graph: InferredGraph, above: _Way, softmax: Node, below: _Way, uses: Counter[str]) -> str | None:
    """Why a softmax and the products around it aren't one kernel of TensorRT; None if they are."""
    scores, product = above.end, below.end
    if scores is None or not _multiplies(scores, "FusedMatMul") or scores.attributes.get("transA", 0):
        return "the softmax isn't over a product"
    if any(uses[name] != 1 for name in (above.last, below.last)):
        return "the scores or weights are used elsewhere, too"
    if product is None or not _multiplies(product) or product.inputs[0] != below.last:
        return "its result is not multiplied with values"
    if product.op_type != scores.op_type and QUANTISED in (product.op_type, scores.op_type):
        return "one of its products is of quantised operands, the other isn't"
    if scores.op_type == QUANTISED and "requantize" in cast("tuple[str, ...]", scores.attributes["applied"]):
        return "the scores are rounded"
    axis = softmax.attributes.get("axis", -1 if softmax.version >= 13 else 1)
    shape = None if (value := graph.values.get(softmax.inputs[0])) is None else value.shape
    if softmax.op_type == "Softmax" and (shape is None or axis not in (-1, len(shape) - 1)):
        return "the softmax isn't over the last dimension"
    return _operand_refusal(graph, (*scores.inputs[:2], product.inputs[1]))


def _operand_refusal(graph: InferredGraph, names: Sequence[str]) -> str | None:
    """Why queries, keys and values aren't what a fused kernel of TensorRT takes; None if they are."""
    values = [graph.values.get(name) for name in names]
    shapes = [value.shape for value in values if value is not None and value.shape is not None]
    if len(shapes) < 3 or any(len(shape) < 3 for shape in shapes) or prod(shapes[0][:-2]) == 1:
        return "queries, keys and values aren't those of several heads"
    query = values[0]
    if query is None or query.dtype not in FUSED_TYPES:
        return "it has fused kernels in 16 and 8 bits only"
    if not SMALLEST_HEAD <= shapes[0][-1] <= LARGEST_HEAD or shapes[0][-1] % HEAD_STEP:
        kernels = f"its kernels are for multiples of {HEAD_STEP} from {SMALLEST_HEAD} to {LARGEST_HEAD}"
        return f"a head of {shapes[0][-1]}: {kernels}"
    if shapes[2][-1] != shapes[0][-1]:
        return "a head of its values is as wide as none of its keys"
    return None
