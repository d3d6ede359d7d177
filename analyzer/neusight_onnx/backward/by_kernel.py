"""Gradients of operators without a rule of their own, from the kernels that they became, last kernel first."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import assert_never

from neusight_onnx.backward.pointwise import FORMULAS, of_operation
from neusight_onnx.backward.products import bias_sum, by_left, by_right, by_weight, convolution_kernels
from neusight_onnx.backward.registry import BackwardContext, Derivative, Flow, Unknown, is_differentiable
from neusight_onnx.backward.rows import (
    attention_kernels,
    normalization_input,
    normalization_parameters,
    softmax_kernels,
)
from neusight_onnx.kernels import (
    Attention,
    Conv,
    Elementwise,
    GatherScatter,
    Gemm,
    HostWork,
    Kernel,
    Movement,
    Normalization,
    Opaque,
    Pooling,
    Recurrent,
    Reduction,
    Softmax,
    Sort,
    TensorSpec,
    Transfer,
)


def by_kernels(context: BackwardContext) -> Derivative | Unknown:
    """The kernels of a node turned round. A node that is free passes its gradient on, if it keeps its elements."""
    kernels = context.kernels
    operations = kernels[0].operations if len(kernels) == 1 and isinstance(kernels[0], Elementwise) else ()
    wide = [index for index in range(len(context.forward.inputs)) if context.is_wide(index)]
    if len(operations) == 1 and operations[0] in FORMULAS and wide in ([0], []):
        return of_operation(context, operations[0])
    if not kernels and _keeps_elements(context):  # an Einsum that only permutes
        return Derivative(flows={index: Flow(shares=0) for index in context.needs})
    if not kernels:
        return Unknown(reason=f"the gradient of {context.op_type} is not modelled yet")
    found: list[Kernel] = [*context.contiguous_gradient()]
    for kernel in reversed(kernels):
        turned = _turned(kernel, context)
        if turned is None:
            return Unknown(reason=f"the gradient of {context.op_type} is not modelled yet")
        found += turned
    floats = [index for index in wide if is_differentiable(context.forward.dtype(index))]
    saved = (*(context.name(index) for index in floats), context.output_name())
    return Derivative(kernels=tuple(found), flows=context.own(*sorted(context.needs)), saved=saved)


def _keeps_elements(context: BackwardContext) -> bool:
    """Whether the result has the elements of the only input that needs a gradient, in whatever order."""
    sizes = [prod(context.shape(index)) for index in context.needs]
    return sizes == [context.out().element_count]


def _turned(kernel: Kernel, context: BackwardContext) -> list[Kernel] | None:
    """The gradient of one kernel for all of its operands; None where there is no model of it."""
    match kernel:
        case Gemm():
            found: list[Kernel] = []
            result = TensorSpec(dtype=kernel.dtype, shape=(kernel.batch, kernel.m, kernel.n))
            found += [
                Elementwise(operations=(FORMULAS[name].kernels[-1][0],), inputs=(result, result), output=result)
                for name in kernel.epilogue
                if name in FORMULAS
            ]
            found += [
                by_left(kernel, False),
                by_weight(kernel, False) if kernel.is_linear else by_right(kernel, False),
            ]
            if "bias" in kernel.epilogue:
                found.append(bias_sum(kernel.dtype, kernel.n, kernel.rows, (kernel.n,)))
            return found
        case Conv():
            needs = (0, 1, 2) if "bias" in kernel.epilogue else (0, 1)
            return convolution_kernels(kernel, needs)
        case Elementwise():
            first, *others = kernel.inputs or (kernel.output,)
            return [replace(kernel, inputs=(kernel.output, *kernel.inputs), output=first, extra_outputs=tuple(others))]
        case Softmax():
            return list(softmax_kernels(kernel, TensorSpec(dtype=kernel.dtype, shape=(kernel.rows, kernel.cols))))
        case Normalization():
            gradient = TensorSpec(dtype=kernel.dtype, shape=(kernel.rows, kernel.cols))
            found = [normalization_input(kernel, gradient, 2)]
            if kernel.parameter_count:
                found.append(normalization_parameters(kernel, gradient, 2))
            return found
        case Reduction():
            whole = TensorSpec(dtype=kernel.dtype, shape=(kernel.outputs, kernel.reduced))
            return [Elementwise(operations=("mul",), inputs=(kernel.output, whole), output=whole)]
        case Pooling():
            name = f"{kernel.operation}_backward"
            return [replace(kernel, operation=name, input=kernel.output, output=kernel.input, extra_outputs=())]
        case Attention():
            return list(attention_kernels(kernel))
        case GatherScatter():
            return [replace(kernel, operation="scatter_add", base=None)]
        case Movement():
            return [replace(kernel, read=kernel.written, written=kernel.read or kernel.written)]
        case Recurrent():
            weights = Gemm(
                batch=kernel.directions,
                m=kernel.gates * kernel.h,
                n=kernel.h,
                k=kernel.steps * kernel.b,
                transpose_a=True,
                dtype=kernel.dtype,
            )
            return [replace(kernel, extra_outputs=()), weights]
        case Sort() | Opaque() | Transfer() | HostWork():
            return None
        case _:
            assert_never(kernel)
