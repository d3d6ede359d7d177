"""The Gradient operator: derivatives of one value by others, through the nodes between them."""

from __future__ import annotations

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Node, file_name
from neusight_onnx.kernels import Elementwise, Gemm, Kernel, Reduction, TensorSpec
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.normalization import fill
from neusight_onnx.lowering.registry import Kernels, Outcome, Unsupported, lowers

PASSED_ON = frozenset({"Add", "Sub", "Sum", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})
"""Their derivative is that of their result (for Sub with a sign that the next kernel applies): no kernel."""

SCALED = {"Mul": ("mul",), "Div": ("div",), "Pow": ("pow", "mul")}
"""Derivative by an operand: the result's times a function of both operands."""

FROM_RESULT = frozenset({"Relu", "Tanh", "Sigmoid", "Exp", "Sqrt", "LeakyRelu", "Elu", "Selu", "Softplus", "Erf"})
FROM_INPUT = frozenset({"Abs", "Neg", "Log", "Sin", "Cos", "Reciprocal", "Gelu", "HardSigmoid", "HardSwish"})
"""One kernel: the result's derivative times a function of what was saved."""


@lowers(
    "Gradient",
    domain="ai.onnx.preview.training",
    gives="depends",
    note="the backward kernels of the nodes between; pointwise ones and products",
    needs_shapes=False,
)
def gradient(context: NodeContext) -> Outcome:
    """A fill of ones, then the kernels of each node between ``y`` and ``xs``, last node first."""
    wanted = context.node.attributes.get("xs")
    y = context.node.attributes.get("y")
    y = y.decode("utf-8", "replace") if isinstance(y, bytes) else y
    if not isinstance(wanted, tuple) or not isinstance(y, str) or y not in context.graph.values:
        return Unsupported(reason="its attributes xs and y name no values of this graph")
    sources = {name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in wanted}
    depends = set(sources)
    for node in context.graph.graph.nodes:
        if depends.intersection(node.inputs):
            depends.update(node.outputs)
    seed = _spec(context, y)
    if seed is None:
        return Unsupported(reason=f"the shape of '{y}' is not known")
    kernels: list[Kernel] = [fill(seed)]
    reached = {y}
    for node in reversed(context.graph.graph.nodes):
        if not reached.intersection(node.outputs):
            continue
        operands = [name for name in node.inputs if name in depends]
        for name in operands:
            step = _backward(context, node, name)
            if step is None:
                return Unsupported(
                    reason=f"the gradient of {node.op_type} '{file_name(node.name)}' is not modelled yet"
                )
            kernels += step
            into = _spec(context, name)
            if name in reached and into is not None:
                kernels.append(Elementwise(operations=("add",), inputs=(into, into), output=into))
            reached.add(name)
    return Kernels(kernels=tuple(kernels))


def _backward(context: NodeContext, node: Node, name: str) -> list[Kernel] | None:
    """Kernels that take the derivative by ``node``'s result to that by its input ``name``; None if not modelled."""
    result, into = _spec(context, node.outputs[0]), _spec(context, name)
    if node.domain or result is None or into is None:
        return None
    kernels: list[Kernel]
    if node.op_type in PASSED_ON:
        kernels = []
    elif node.op_type in SCALED:
        needed = [other for other in node.inputs if node.op_type != "Mul" or other != name] or [name]
        saved = tuple(spec for other in needed if (spec := _spec(context, other)) is not None)
        kernels = [Elementwise(operations=SCALED[node.op_type], inputs=(result, *saved), output=result)]
    elif node.op_type in FROM_RESULT or node.op_type in FROM_INPUT:
        saved = (result,) if node.op_type in FROM_RESULT else (into,)
        kernels = [Elementwise(operations=("mul",), inputs=(result, *saved), output=into)]
    elif node.op_type in ("MatMul", "Gemm") and len(result.shape) == len(into.shape) == 2:
        return [_product(context, node, name, result)]
    else:
        return None
    if result.element_count > into.element_count:
        summed = result.element_count // max(into.element_count, 1)
        kernels.append(
            Reduction(operation="sum", outputs=into.element_count, reduced=summed, dtype=result.dtype, output=into)
        )
    return kernels


def _product(context: NodeContext, node: Node, name: str, result: TensorSpec) -> Kernel:
    """(m, k) @ (k, n): by the left operand (m, n) @ (n, k), by the right one (k, m) @ (m, n)."""
    m, n = result.shape
    other = _spec(context, node.inputs[1 if name == node.inputs[0] else 0])
    assert other is not None
    k = other.element_count // (n if name == node.inputs[0] else m)
    if name == node.inputs[0]:
        return Gemm(m=m, n=k, k=n, dtype=result.dtype, transpose_b=True)
    if len(node.inputs) > 2 and name == node.inputs[2]:
        into = _spec(context, name)
        assert into is not None
        return Reduction(
            operation="sum", outputs=into.element_count, reduced=m, inner=n, dtype=result.dtype, output=into
        )
    return Gemm(m=k, n=n, k=m, dtype=result.dtype, transpose_a=True)


def _spec(context: NodeContext, name: str) -> TensorSpec | None:
    value = context.graph.values.get(name)
    if value is None or value.shape is None:
        return None
    return TensorSpec(dtype=value.dtype or DataType.FLOAT32, shape=value.shape)
