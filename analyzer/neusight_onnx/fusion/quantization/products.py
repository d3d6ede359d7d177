"""Quantised products: the pairs around them, a sum, an activation and scales fold into one kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.patterns.search import OWN
from neusight_onnx.fusion.quantization.folding import DOMAINS, Folding, origins
from neusight_onnx.graph.model import Node

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

_NARROW = frozenset({DataType.INT4, DataType.UINT4, DataType.INT8, DataType.UINT8})
_SCALES = frozenset({DataType.FLOAT32, DataType.FLOAT16})


def fold_product(folding: Folding, node: Node) -> None:
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
        origins=origins(merged, node),
    )


def _summed(folding: Folding, node: Node, operand: int) -> frozenset[int]:
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


def _is_factored_out(folding: Folding, pair: Node, summed: frozenset[int]) -> bool:
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


def is_narrow_product(folding: Folding, node: Node) -> bool:
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
    if pair is None or pair.op_type != "DequantizeLinear" or pair.domain not in DOMAINS:
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


def _behind_transpose(folding: Folding, name: str, *, weight_only: bool) -> tuple[Node | None, str | None]:
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


def _behind_product(folding: Folding, output: str) -> _Behind:
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


def _quantised_sum(folding: Folding, output: str) -> tuple[Node | None, Node | None]:
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


def fold_integer_product(folding: Folding, node: Node) -> None:
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
        origins=origins(merged, last),
    )


def _columns(folding: Folding, node: Node) -> int | None:
    """How many results of a product have scales and biases of their own: columns, or channels."""
    value = folding.values.get(node.outputs[0])
    if value is None or not value.shape or len(value.shape) < 2:
        return None
    return value.shape[1 if node.op_type == "ConvInteger" else -1]


def _other(node: Node, name: str) -> str:
    """The operand beside ``name`` of a node that has two."""
    return node.inputs[1] if node.inputs[0] == name else node.inputs[0]
