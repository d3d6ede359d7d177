"""Quantised graphs: pairs of QuantizeLinear and DequantizeLinear fold into the kernels between them.

A quantised file writes every operator in floating point, with a DequantizeLinear before and a QuantizeLinear behind:
that is how it says in which type the operator is to run. Here the operator takes the quantised values themselves. A
product whose operands are both quantised multiplies integers (or 8-bit floats) and scales its sums on the way out; one
whose weights alone are quantised reads small weights and multiplies in floating point. What only moves, compares or
averages elements runs on the small type. What finds no partner stays a kernel of its own, a constant's
DequantizeLinear, too: runtimes keep those out of what they compute once, or the weights were large again.

Dynamically quantised files multiply integers as such and dequantise by a Cast and a Mul: these fold into the product.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.patterns.search import LONGEST_CHAIN, OWN
from neusight_onnx.graph.model import InferredGraph, Node, Origin, Value, kept_values
from neusight_onnx.kernels import Elementwise, NodeWork

PRODUCTS = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm", "Linear"})
INTEGER_PRODUCTS = {"MatMulInteger": "QuantizedMatMul", "ConvInteger": "QuantizedConv"}
MATRIX_PRODUCTS = frozenset({"MatMul", "Gemm", "Linear"})
"""Those that have kernels for small weights beside activations in floating point."""

ACTIVATIONS = frozenset(
    {
        "Clip",
        "Elu",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Mish",
        "Relu",
        "Sigmoid",
        "Softplus",
        "Swish",
        "Tanh",
        "ThresholdedRelu",
    }
)
"""What a product applies to its sums before it rounds them: functions of one element."""

POINTWISE = ACTIVATIONS | {"Abs", "Add", "Div", "Max", "Min", "Mul", "Neg", "PRelu", "Sub", "Sum"}
REDUCING = frozenset(
    {"AveragePool", "GlobalAveragePool", "GlobalLpPool", "LpPool", "LogSoftmax", "ReduceMean", "ReduceSum", "Softmax"}
)
MOVING = frozenset(
    {
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "GlobalMaxPool",
        "Identity",
        "MaxPool",
        "Pad",
        "ReduceMax",
        "ReduceMin",
        "Reshape",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    }
)
"""What hands elements on as they are: it runs on quantised ones if they mean the same before and behind it."""
CARRIERS = POINTWISE | REDUCING | MOVING | {"Concat", "Resize", "Upsample"}
_ALL_INPUTS = POINTWISE | {"Concat"}
_DOMAINS = ("", "com.microsoft")
_NARROW = frozenset({DataType.INT4, DataType.UINT4, DataType.INT8, DataType.UINT8})
_SCALES = frozenset({DataType.FLOAT32, DataType.FLOAT16})
_ROUNDING = frozenset({"QuantizeLinear", "DequantizeLinear"})


@dataclass(slots=True)
class _Folding:
    """A graph while its pairs are folded: who makes and uses its values, and what became of its nodes."""

    values: dict[str, Value]
    producers: Mapping[str, Node]
    consumers: Mapping[str, list[Node]]
    kept: frozenset[str]
    gone: set[str] = field(default_factory=set)
    replaced: dict[str, Node] = field(default_factory=dict)

    def is_constant(self, name: str) -> bool:
        value = self.values.get(name)
        return value is not None and value.is_constant

    def element_count(self, name: str) -> int | None:
        value = self.values.get(name)
        return None if value is None or value.shape is None else value.element_count

    def dequantizer(self, name: str) -> Node | None:
        """The DequantizeLinear that makes a value, Identity between them (as of shared weights) being nothing."""
        for _ in range(LONGEST_CHAIN):
            node = self.producers.get(name)
            if node is None:
                return None
            if node.op_type == "DequantizeLinear" and node.domain in _DOMAINS:
                return node
            if node.op_type != "Identity" or node.domain:
                return None
            name = node.inputs[0]
        return None

    def only_user(self, name: str) -> Node | None:
        users = self.consumers.get(name, ())
        return users[0] if len(users) == 1 and name not in self.kept else None

    def quantizer(self, name: str) -> Node | None:
        """The QuantizeLinear that alone uses a value."""
        node = self.only_user(name)
        if node is None or node.op_type != "QuantizeLinear" or node.domain not in _DOMAINS:
            return None
        return node if node.inputs[0] == name and name not in node.inputs[1:] else None


def fold_quantization(graph: InferredGraph, *, only_weights: bool = False, generated: bool = False) -> InferredGraph:
    """``graph`` with quantised operators in place of what stands between DequantizeLinear and QuantizeLinear.

    Holds in every runtime: a file with such pairs is meant for one that has these kernels. Apply it to recognised
    graphs, whose operators are those that a runtime executes. Nodes list what they swallowed as origins. A graph
    without DequantizeLinear and products of integers comes back as it is, its bodies folded.

    ``only_weights``: what ONNX Runtime's CUDA provider makes a MatMulNBits of, and nothing else
    (:func:`_is_narrow_product`). ``generated``: as a compiler has it, whose kernels round what they compute, as those
    of TensorRT for RTX 1.7: a Resize of floats writes few bits, and a Concat of parts with several scales, which can't
    be written by what makes its parts, is one pointwise kernel from integers to integers.
    """
    bodies = {
        key: fold_quantization(body, only_weights=only_weights, generated=generated)
        for key, body in graph.bodies.items()
    }
    if any(bodies[key] is not body for key, body in graph.bodies.items()):
        graph = replace(graph, bodies=bodies)
    nodes = graph.graph.nodes
    if not any(node.op_type == "DequantizeLinear" or node.op_type in INTEGER_PRODUCTS for node in nodes):
        return graph
    folding = _indexed(graph)
    for node in nodes:
        if node.name in folding.gone or node.name in folding.replaced:
            continue
        if only_weights:
            if _is_narrow_product(folding, node):
                _fold_product(folding, node)
        elif node.op_type in PRODUCTS and node.domain in ("", OWN):
            _fold_product(folding, node)
        elif node.op_type in INTEGER_PRODUCTS and not node.domain:
            _fold_integer_product(folding, node)
        elif node.op_type in CARRIERS and not node.domain:
            _fold_carrier(folding, node, generated=generated)
    left = _without_unused(
        [folding.replaced.get(node.name, node) for node in nodes if node.name not in folding.gone], folding
    )
    _keep_at_run_time(left, folding.values)
    return replace(graph, graph=replace(graph.graph, nodes=tuple(left)), values=folding.values)


def _indexed(graph: InferredGraph) -> _Folding:
    producers: dict[str, Node] = {}
    consumers: dict[str, list[Node]] = defaultdict(list)
    for node in graph.graph.nodes:
        producers.update((name, node) for name in node.outputs if name)
        for name in dict.fromkeys(node.inputs):
            consumers[name].append(node)
    return _Folding(values=dict(graph.values), producers=producers, consumers=consumers, kept=kept_values(graph))


# --- Products ---------------------------------------------------------------------------------------------------------


def _fold_product(folding: _Folding, node: Node) -> None:
    """left @ right (+ bias), the right operand quantised; the left one, too, or it stays in floating point."""
    left, right = folding.dequantizer(node.inputs[0]), folding.dequantizer(node.inputs[1])
    second = None if right is None else right.inputs[0]
    weight_only = left is None
    if left is not None and not _is_factored_out(folding, left, _summed(folding, node, 0)):
        return
    if right is not None and not weight_only and not _is_factored_out(folding, right, _summed(folding, node, 1)):
        return
    if right is None and node.op_type in MATRIX_PRODUCTS:
        right, second = _behind_transpose(folding, node.inputs[1], weight_only=weight_only)
    if right is None or second is None:
        return
    if weight_only and (node.op_type not in MATRIX_PRODUCTS or not folding.is_constant(second)):
        return
    merged = [right] if left is None else [left, right]
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    shift = folding.dequantizer(bias) if bias else None
    if shift is not None:
        merged.append(shift)
        bias = shift.inputs[0]
    behind = _Behind(output=node.outputs[0]) if weight_only else _behind_product(folding, node.outputs[0])
    merged += behind.nodes
    parameters = [
        name for pair in merged if pair.op_type == "DequantizeLinear" and pair is not shift for name in pair.inputs[1:]
    ]
    residual = behind.residual
    # a sum waits for both of its operands, so that the kernel stands where the sum stood
    stands = node if residual is None else next(each for each in behind.nodes if each.op_type == "Add")
    folding.gone.update(each.name for each in behind.nodes if each.op_type != "DequantizeLinear")
    folding.gone.add(node.name)
    folding.gone.discard(stands.name)
    folding.replaced[stands.name] = replace(
        node,
        name=stands.name,
        op_type=f"Quantized{node.op_type}",
        domain=OWN,
        inputs=(
            node.inputs[0] if left is None else left.inputs[0],
            second,
            bias,
            *parameters,
            *(() if residual is None else (residual.inputs[0],)),
        ),
        outputs=(behind.output,),
        attributes={
            **node.attributes,
            "applied": behind.applied,
            "weight_only": int(weight_only),
            "has_residual": int(residual is not None),
        },
        origins=_origins(merged, node),
    )


def _summed(folding: _Folding, node: Node, operand: int) -> frozenset[int]:
    """The dimensions of an operand of a product that its sums go over."""
    value = folding.values.get(node.inputs[operand])
    if value is None or value.shape is None:
        return frozenset()
    rank = len(value.shape)
    if node.op_type == "ConvTranspose":
        return frozenset(range(rank)) - ({0} if operand == 0 else {1})
    if node.op_type == "Conv":
        return frozenset(range(rank)) - {0}
    swapped = bool(node.attributes.get("transA" if operand == 0 else "transB"))
    return frozenset({rank - 1 - int((operand == 1) != swapped)})


def _is_factored_out(folding: _Folding, pair: Node, summed: frozenset[int]) -> bool:
    """Whether the scales of a quantised operand are the same for all that is added up, so that sums of integers can be
    scaled: one scale, or those of a dimension that isn't ``summed``. With a scale for each of what is summed it is a
    product of floats, as TensorRT for RTX 1.7 builds it. Blocks have instructions that scale them."""
    before = folding.values.get(pair.inputs[0])
    if before is None or before.shape is None or not before.dtype or not before.dtype.is_integer:
        return True
    if pair.attributes.get("block_size") or folding.element_count(pair.inputs[1]) in (None, 1):
        return True
    axis = pair.attributes.get("axis", 1)
    return not isinstance(axis, int) or axis % len(before.shape) not in summed


def _is_narrow_product(folding: _Folding, node: Node) -> bool:
    """Whether ONNX Runtime's CUDA provider multiplies by weights as they are stored: a MatMul or Gemm of floats by a
    constant matrix of integers that nothing else reads, with one scale, one a column, or blocks of 16 or more rows.

    So onnxruntime-gpu 1.31 does on stand-ins for CUDA's libraries (its pass is DQMatMulToMatMulNBits). Gemm's transB
    isn't among them, a Transpose behind the DequantizeLinear only where there are no blocks.
    """
    if node.op_type not in MATRIX_PRODUCTS or node.domain not in ("", OWN) or node.attributes.get("transB"):
        return False
    pair, column = folding.producers.get(node.inputs[1]), 1
    if pair is not None and pair.op_type == "Transpose" and not pair.domain:
        pair, column = folding.producers.get(pair.inputs[0]), 0
    if pair is None or pair.op_type != "DequantizeLinear" or pair.domain not in _DOMAINS:
        return False
    others = [name for at, name in enumerate(node.inputs) if at != 1 and name]
    if folding.only_user(pair.outputs[0]) is None or any(folding.dequantizer(name) for name in others):
        return False
    if folding.only_user(pair.inputs[0]) is not pair:  # a weight that is dequantised for each of several readers
        return False
    if column == 0 and pair.version < 21 and pair.inputs[0] not in folding.producers:
        return False  # the Transpose isn't moved in front of it, but taken into the product
    weight, scale = folding.values.get(pair.inputs[0]), folding.values.get(pair.inputs[1])
    if weight is None or scale is None or not all(folding.is_constant(name) for name in pair.inputs if name):
        return False
    if weight.shape is None or len(weight.shape) != 2 or weight.dtype not in _NARROW or scale.dtype not in _SCALES:
        return False
    axis = pair.attributes.get("axis", 1)
    axis = axis % 2 if isinstance(axis, int) else 1
    block = pair.attributes.get("block_size", 0)
    if isinstance(block, int) and block:
        return column == 1 and axis == 0 and block >= 16
    return folding.element_count(pair.inputs[1]) == 1 or axis == column


def _behind_transpose(folding: _Folding, name: str, *, weight_only: bool) -> tuple[Node | None, str | None]:
    """The DequantizeLinear of a constant matrix that is transposed behind it, as if it was transposed before.

    Transposing quantised constants is done once, when the model is loaded.
    """
    transpose = folding.producers.get(name)
    if transpose is None or transpose.op_type != "Transpose" or transpose.domain or folding.only_user(name) is None:
        return None, None
    right = folding.dequantizer(transpose.inputs[0])
    before = None if right is None else folding.values.get(right.inputs[0])
    if right is None or before is None or not before.is_constant:
        return None, None
    summed = frozenset({len(before.shape or ()) - 1})  # what the Transpose makes the last dimension but one
    if not weight_only and not _is_factored_out(folding, right, summed):
        return None, None
    folding.replaced[transpose.name] = replace(transpose, inputs=(right.inputs[0], *transpose.inputs[1:]))
    folding.values[name] = replace(folding.values[name], dtype=before.dtype, data=None)
    return right, name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Behind:
    """What a product does to its sums: the nodes it takes along, the steps that it ``applied``, what it writes.

    ``residual``: the DequantizeLinear, among ``nodes``, of a quantised tensor that is added.
    """

    output: str
    nodes: tuple[Node, ...] = ()
    applied: tuple[str, ...] = ()
    residual: Node | None = None


def _behind_product(folding: _Folding, output: str) -> _Behind:
    """The sum with a quantised tensor, then an activation and a QuantizeLinear, as far as they are there.

    A sum with floats is taken only where the result stays in floats, by an engine's epilogues: "the precision of the
    first input to the element-wise addition layer determines the precision of the output of the fusion" (TensorRT's
    developer guide, "Q/DQ Layer-Placement Recommendations": "Quantize the residual input in skip connections").
    """
    nodes: list[Node] = []
    steps: list[str] = []
    plus, residual = _quantised_sum(folding, output)
    if plus is not None and residual is not None:
        nodes += [residual, plus]
        steps.append("add")
        output = plus.outputs[0]
    activation = folding.only_user(output)
    if activation is not None and activation.op_type in ACTIVATIONS and not activation.domain:
        quantizer = folding.quantizer(activation.outputs[0])
        if quantizer is not None and activation.inputs[0] == output and output not in activation.inputs[1:]:
            nodes.append(activation)
            steps.append(activation.op_type.lower())
            output = activation.outputs[0]
    quantizer = folding.quantizer(output)
    if quantizer is not None:
        nodes.append(quantizer)
        output = quantizer.outputs[0]
    steps.append("dequantize" if quantizer is None else "requantize")
    return _Behind(output=output, nodes=tuple(nodes), applied=tuple(steps), residual=residual)


def _quantised_sum(folding: _Folding, output: str) -> tuple[Node | None, Node | None]:
    """The Add of a product's result to a tensor of its shape that is quantised with one scale; that one's
    DequantizeLinear."""
    plus = folding.only_user(output)
    if plus is None or plus.op_type != "Add" or plus.domain or plus.inputs[0] == plus.inputs[1]:
        return None, None
    other = _other(plus, output)
    residual = folding.dequantizer(other)
    if residual is None or not all(folding.element_count(name) == 1 for name in residual.inputs[1:] if name):
        return None, None
    value, result = folding.values.get(residual.inputs[0]), folding.values.get(output)
    if value is None or result is None or value.is_constant or value.shape is None or value.shape != result.shape:
        return None, None
    return plus, residual


def _fold_integer_product(folding: _Folding, node: Node) -> None:
    """MatMulInteger or ConvInteger, a Cast to floats, a Mul by scales and perhaps the Add of a bias: one kernel.

    The product of both scales, often a Mul of its own, is formed there, too.
    """
    cast = folding.only_user(node.outputs[0])
    if cast is None or cast.op_type != "Cast" or cast.domain:
        return
    scaled = folding.only_user(cast.outputs[0])
    if scaled is None or scaled.op_type != "Mul" or scaled.domain:
        return
    columns = _columns(folding, node)
    scale = _other(scaled, cast.outputs[0])
    if columns is None or folding.element_count(scale) not in (1, columns):
        return
    merged = [node, cast, scaled]
    scales = [scale]
    factor = folding.producers.get(scale)
    is_factor = factor is not None and factor.op_type == "Mul" and not factor.domain
    if factor is not None and is_factor and folding.only_user(scale) is scaled:
        if not all(folding.element_count(name) in (1, columns) for name in factor.inputs):
            return
        merged.insert(0, factor)
        scales = list(factor.inputs)
    bias = ""
    added = folding.only_user(scaled.outputs[0])
    if added is not None and added.op_type == "Add" and not added.domain:
        name = _other(added, scaled.outputs[0])
        if folding.is_constant(name) and folding.element_count(name) == columns:
            bias = name
            merged.append(added)
    last = merged.pop()
    folding.gone.update(each.name for each in merged)
    folding.replaced[last.name] = replace(
        node,
        name=last.name,
        op_type=INTEGER_PRODUCTS[node.op_type],
        domain=OWN,
        inputs=(*node.inputs[:2], bias, *(name for name in node.inputs[2:] if name), *scales),
        outputs=last.outputs,
        attributes={**node.attributes, "applied": ("dequantize",), "weight_only": 0},
        origins=_origins(merged, last),
    )


def _columns(folding: _Folding, node: Node) -> int | None:
    """How many results of a product have scales and biases of their own: columns, or channels."""
    value = folding.values.get(node.outputs[0])
    if value is None or not value.shape or len(value.shape) < 2:
        return None
    return value.shape[1 if node.op_type == "ConvInteger" else -1]


def _other(node: Node, name: str) -> str:
    """The operand beside ``name`` of a node that has two."""
    return node.inputs[1] if node.inputs[0] == name else node.inputs[0]


# --- Everything else --------------------------------------------------------------------------------------------------


def _fold_carrier(folding: _Folding, node: Node, *, generated: bool) -> None:
    """An operator between pairs runs on the quantised values themselves."""
    is_resized = generated and node.op_type in ("Resize", "Upsample") and folding.dequantizer(node.inputs[0]) is None
    inputs = list(node.inputs)
    pairs: list[Node] = []
    for place, name in enumerate(inputs if node.op_type in _ALL_INPUTS else inputs[:1]):
        pair = folding.dequantizer(name)
        if pair is not None and all(folding.element_count(scale) == 1 for scale in pair.inputs[1:] if scale):
            pairs.append(pair)
            inputs[place] = pair.inputs[0]
        elif name and not is_resized and not (folding.is_constant(name) and folding.element_count(name) == 1):
            if node.op_type == "Gather":
                _fold_lookup(folding, node)
            return
    quantizers = [folding.quantizer(name) for name in node.outputs if name]
    found = [quantizer for quantizer in quantizers if quantizer is not None]
    fits = node.op_type not in MOVING or all(_same_scale(folding, pairs[0], each) for each in found if pairs)
    if not (pairs or is_resized) or not found or len(found) < len(quantizers) or not fits:
        if node.op_type == "Gather":
            _fold_lookup(folding, node)
        return
    folding.gone.update(quantizer.name for quantizer in found)
    written = iter(found)
    rescales = (
        generated and node.op_type == "Concat" and not all(_same_scale(folding, pair, found[0]) for pair in pairs)
    )
    folding.replaced[node.name] = replace(
        node,
        op_type="RescalingConcat" if rescales else node.op_type,
        domain=OWN if rescales else node.domain,
        inputs=tuple(inputs),
        outputs=tuple(next(written).outputs[0] if name else "" for name in node.outputs),
        origins=_origins([*pairs, *found], node),
    )


def _fold_lookup(folding: _Folding, node: Node) -> None:
    """Rows of a quantised table: only those that are looked up are dequantised."""
    pair = folding.dequantizer(node.inputs[0])
    table = None if pair is None else folding.values.get(pair.inputs[0])
    if pair is None or table is None or not table.is_constant or table.shape is None or table.dtype is None:
        return
    scales = folding.element_count(pair.inputs[1]) or 1
    folding.replaced[node.name] = replace(
        node,
        op_type="GatherBlockQuantized",
        domain="com.microsoft",
        inputs=(pair.inputs[0], node.inputs[1], *pair.inputs[1:]),
        attributes={"bits": table.dtype.bits, "block_size": max(table.element_count // scales, 1)},
        origins=_origins([pair], node),
    )


def _same_scale(folding: _Folding, before: Node, behind: Node) -> bool:
    """Whether elements mean the same in front of a DequantizeLinear and behind a QuantizeLinear."""
    source, target = folding.values.get(before.inputs[0]), folding.values.get(behind.outputs[0])
    if source is None or target is None or source.dtype is not target.dtype:
        return False
    for place in (1, 2):
        first, second = (node.inputs[place] if place < len(node.inputs) else "" for node in (before, behind))
        if first == second:
            continue
        known = [folding.values[name].data if name in folding.values else None for name in (first, second)]
        one, other = known
        if one is None or other is None or not np.array_equal(one, other):
            return False
    return True


# --- What is left -----------------------------------------------------------------------------------------------------


def _origins(merged: Iterable[Node], node: Node) -> tuple[Origin, ...]:
    """The nodes of the file that ``node`` now stands for, itself last."""
    found = [origin for each in (*merged, node) for origin in each.stands_for]
    return tuple(dict.fromkeys(found))


def _with_idle(node: Node, idle: Mapping[str, Node]) -> tuple[Origin, ...]:
    """The node's origins, and what it read that is left out and that no other node accounts for."""
    extra: list[Node] = []
    waiting = [name for name in node.inputs if name in idle]
    while waiting:
        extra.append(idle[waiting.pop()])
        waiting += [name for name in extra[-1].inputs[:1] if name in idle]
    if not extra:
        return node.origins
    own = node.stands_for
    more = [origin for item in extra for origin in item.stands_for]
    return tuple(dict.fromkeys((*own, *more)))


def _without_unused(nodes: list[Node], folding: _Folding) -> list[Node]:
    """Leaves out each DequantizeLinear (and Identity) whose users were all folded; forgets values that are gone.

    What is known before the run uses nothing in it: Shape of a dequantised value is Shape of the quantised one.
    """
    used = set(folding.kept)
    dropped: dict[str, str] = {}
    idle: dict[str, Node] = {}
    left = []
    for node in reversed(nodes):
        is_idle = node.op_type == "Identity" and not node.domain
        is_idle |= node.op_type == "DequantizeLinear" and node.domain in _DOMAINS
        if is_idle and used.isdisjoint(node.outputs) and folding.consumers.get(node.outputs[0]):
            dropped[node.outputs[0]] = node.inputs[0]
            idle[node.outputs[0]] = node
            continue
        left.append(node)
        if not all(_is_known(folding.values.get(name)) for name in node.outputs if name):
            used.update(node.inputs)
    left.reverse()
    if dropped:
        claimed = {origin.name for node in left for origin in node.origins}
        idle = {name: node for name, node in idle.items() if node.name not in claimed}
        left = [
            replace(
                node,
                inputs=tuple(_source(name, dropped) for name in node.inputs),
                origins=_with_idle(node, idle),
            )
            if not dropped.keys().isdisjoint(node.inputs)
            else node
            for node in left
        ]
    written = {name for node in left for name in node.outputs}
    gone = folding.gone | set(folding.replaced)
    for name, node in folding.producers.items():
        if name not in written and (node.name in gone or name in dropped):
            folding.values.pop(name, None)
    return left


def _is_known(value: Value | None) -> bool:
    return value is not None and value.data is not None


def _source(name: str, dropped: Mapping[str, str]) -> str:
    for _ in range(LONGEST_CHAIN):
        if name not in dropped:
            break
        name = dropped[name]
    return name


def rounding_apart(works: Sequence[NodeWork]) -> list[NodeWork]:
    """The work of QuantizeLinear and DequantizeLinear that stayed operators of their own."""
    return [work for work in works if work.op_type in _ROUNDING and work.kernels]


def rounding_kernels(works: Sequence[NodeWork]) -> dict[str, int]:
    """How many kernels only quantise or dequantise, by node: of operators of their own, and of products that are asked
    for in few bits by a runtime that has the pairs around them alone."""
    counts = {work.node: len(work.kernels) for work in rounding_apart(works)}
    for work in works:
        steps = [kernel.operations for kernel in work.kernels if isinstance(kernel, Elementwise)]
        if ("quantize",) in steps and ("dequantize",) in steps:
            counts[work.node] = steps.count(("quantize",)) + steps.count(("dequantize",))
    return counts


def dequantized_at_run_time(graph: InferredGraph) -> InferredGraph:
    """``graph`` unfolded, in which constants that are dequantised are so in every run, as :func:`fold_quantization` has
    it for those that find no partner."""
    bodies = {key: dequantized_at_run_time(body) for key, body in graph.bodies.items()}
    is_same = all(bodies[key] is body for key, body in graph.bodies.items())
    if is_same and not any(node.op_type == "DequantizeLinear" for node in graph.graph.nodes):
        return graph
    values = dict(graph.values)
    _keep_at_run_time(graph.graph.nodes, values)
    return replace(graph, values=values, bodies=bodies)


def _keep_at_run_time(nodes: Iterable[Node], values: dict[str, Value]) -> None:
    """A constant that is still dequantised is so in every run, and so is what is made from it.

    Small contents that shape inference knows are none of a GPU's business and stay as they are.
    """
    late: set[str] = set()
    for node in nodes:
        begins = node.op_type == "DequantizeLinear" and node.domain in _DOMAINS
        if not begins and late.isdisjoint(node.inputs):
            continue
        for name in node.outputs:
            value = values.get(name)
            if value is not None and value.is_constant and value.data is None:
                values[name] = replace(value, is_constant=False)
                late.add(name)
