"""Gradients of pointwise operators: the kernels that PyTorch's derivative formulas launch, one for each operation.

Formulas as ``tools/autograd/derivatives.yaml`` of PyTorch 2 writes them; each operator in a formula is a kernel in
eager mode. ``g`` is the result's gradient.
"""

from __future__ import annotations

from typing import NamedTuple

from neusight_onnx.backward.registry import BackwardContext, Derivative, Flow, Unknown, differentiates
from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Elementwise, Kernel, Movement, TensorSpec
from neusight_onnx.lowering.elementwise import is_number
from neusight_onnx.lowering.normalization import fill
from neusight_onnx.lowering.views import copy_kernel


class Formula(NamedTuple):
    """``saved``: "input", "output" or "" (nothing). ``kernels``: (operation, tensors that it reads)."""

    saved: str
    kernels: tuple[tuple[str, int], ...]


def _fused(saved: str, operation: str) -> Formula:
    """One kernel reads g and what was saved."""
    return Formula(saved, ((operation, 2),))


_OTHER_FUNCTIONS = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "tan")

FORMULAS: dict[str, Formula] = {
    "relu": _fused("output", "threshold_backward"),
    "threshold": _fused("input", "threshold_backward"),
    "leaky_relu": _fused("input", "leaky_relu_backward"),
    "elu": _fused("input", "elu"),
    "celu": _fused("input", "elu"),
    "selu": _fused("input", "elu"),
    "gelu": _fused("input", "gelu_backward"),
    "gelu_tanh": _fused("input", "gelu_tanh_backward"),
    "silu": _fused("input", "silu_backward"),
    "mish": _fused("input", "mish_backward"),
    "hardswish": _fused("input", "hardswish_backward"),
    "hardsigmoid": _fused("input", "hardsigmoid_backward"),
    "softplus": _fused("input", "softplus_backward"),
    "softsign": _fused("input", "div"),
    "shrink": _fused("input", "shrink_backward"),
    "clamp": _fused("input", "clamp_backward"),
    "tanh": _fused("output", "tanh_backward"),
    "sigmoid": _fused("output", "sigmoid_backward"),
    "exp": _fused("output", "mul"),
    "log": _fused("input", "div"),
    "neg": Formula("", (("neg", 1),)),
    "triu": Formula("", (("triu", 1),)),
    "tril": Formula("", (("tril", 1),)),
    # g / (2 y)
    "sqrt": Formula("output", (("mul", 1), ("div", 2))),
    # -0.5 g y^3
    "rsqrt": Formula("output", (("mul", 1), ("pow_scalar", 1), ("mul", 2))),
    # -g (y y)
    "reciprocal": Formula("output", (("neg", 1), ("mul", 1), ("mul", 2))),
    # g sgn(x)
    "abs": Formula("input", (("sign", 1), ("mul", 2))),
    "sin": Formula("input", (("cos", 1), ("mul", 2))),
    "cos": Formula("input", (("sin", 1), ("neg", 1), ("mul", 2))),
    # 2 / sqrt(pi) exp(-x^2) g
    "erf": Formula("input", (("pow_scalar", 1), ("neg", 1), ("exp", 1), ("mul", 1), ("mul", 2))),
    # g (n x^(n - 1))
    "pow_scalar": Formula("input", (("pow_scalar", 1), ("mul", 1), ("mul", 2))),
    "pow": Formula("input", (("pow", 1), ("mul", 1), ("mul", 2))),
    # g / (1 + x^2) and its like: a square, a sum or difference (with a root), a quotient
    **dict.fromkeys(_OTHER_FUNCTIONS, Formula("input", (("mul", 1), ("add", 1), ("div", 2)))),
}
"""By the operation's name in a kernel."""


def formula_kernels(formula: Formula, gradient: TensorSpec, result: TensorSpec) -> tuple[Kernel, ...]:
    """The kernels of a formula over elements of ``result``; the first operand of the last one is the gradient."""
    count = len(formula.kernels)
    found = []
    for index, (operation, reads) in enumerate(formula.kernels):
        first = gradient if index == count - 1 else result
        inputs = (first, result)[:reads]
        found.append(Elementwise(operations=(operation,), inputs=inputs, output=result))
    return tuple(found)


def of_operation(context: BackwardContext, operation: str) -> Derivative | Unknown:
    """The derivative of a node that is one operation of one tensor (its other inputs are numbers)."""
    formula = FORMULAS.get(operation)
    if formula is None:
        return Unknown(reason=f"the derivative of {operation} is not modelled yet")
    saved = {"input": context.name(0), "output": context.output_name()}.get(formula.saved)
    return Derivative(
        kernels=formula_kernels(formula, context.gradient(), context.out()),
        flows=context.own(0),
        saved=(saved,) if saved else (),
    )


def _kernel(context: BackwardContext, operation: str, *others: TensorSpec) -> Elementwise:
    """One kernel that reads the result's gradient and ``others`` (numbers left out) and writes the result's shape."""
    wide = tuple(spec for spec in others if spec.element_count != 1)
    return Elementwise(operations=(operation,), inputs=(context.gradient(), *wide), output=context.out())


def passed(context: BackwardContext, index: int) -> tuple[tuple[Kernel, ...], Flow]:
    """The result's gradient passed on to an input: as it is, or summed where the input was broadcast."""
    sums = context.summed(index)
    if sums:
        return sums, Flow()
    return (), Flow(strides=context.strides.get(0), shares=0)


@differentiates("Add", "Sum")
def add(context: BackwardContext) -> Derivative:
    """The gradient passes on to every operand; no kernel but the sums of broadcast ones."""
    kernels: list[Kernel] = []
    flows: dict[int, Flow] = {}
    for index in sorted(context.needs):
        sums, flows[index] = passed(context, index)
        kernels += sums
    return Derivative(kernels=tuple(kernels), flows=flows)


@differentiates("Mean")
def mean(context: BackwardContext) -> Derivative:
    """The mean of operands: their sum's gradient, divided by their number."""
    flows = {index: Flow() for index in context.needs}
    sums = [kernel for index in sorted(context.needs) for kernel in context.summed(index)]
    return Derivative(kernels=(_kernel(context, "div"), *sums), flows=flows)


@differentiates("Sub")
def sub(context: BackwardContext) -> Derivative:
    kernels: list[Kernel] = []
    flows: dict[int, Flow] = {}
    if 0 in context.needs:
        sums, flows[0] = passed(context, 0)
        kernels += sums
    if 1 in context.needs:
        kernels += [_kernel(context, "neg"), *context.summed(1)]
        flows[1] = Flow()
    return Derivative(kernels=tuple(kernels), flows=flows)


@differentiates("Mul")
def mul(context: BackwardContext) -> Derivative:
    """g * b and g * a, each if it is needed; b is kept for a's and a for b's."""
    kernels: list[Kernel] = []
    saved = []
    for index in sorted(context.needs):
        other = 1 - index
        kernels += [_kernel(context, "mul", context.spec(other)), *context.summed(index)]
        if context.is_wide(other):
            saved.append(context.name(other))
    return Derivative(kernels=tuple(kernels), flows=context.own(0, 1), saved=tuple(saved))


@differentiates("Addcmul", domain="neusight")
def addcmul(context: BackwardContext) -> Derivative:
    """x + 1.0 * (a * b): g passes on to x; g * (b * 1.0) and g * (a * 1.0), each if it is needed."""
    kernels: list[Kernel] = []
    flows = context.own(1, 2)
    saved = []
    if 0 in context.needs:
        sums, flows[0] = passed(context, 0)
        kernels += sums
    for index in sorted(context.needs - {0}):
        other = 3 - index
        scaled = Elementwise(operations=("mul",), inputs=(context.spec(other),), output=context.spec(other))
        kernels += [scaled, _kernel(context, "mul", context.spec(other)), *context.summed(index)]
        saved.append(context.name(other))
    return Derivative(kernels=tuple(kernels), flows=flows, saved=tuple(saved))


@differentiates("Div")
def div(context: BackwardContext) -> Derivative:
    """g / b, and -g * ((a / b) / b)."""
    kernels: list[Kernel] = []
    saved: dict[str, None] = {}
    out = context.out()
    if 0 in context.needs:
        kernels += [_kernel(context, "div", context.spec(1)), *context.summed(0)]
        if context.is_wide(1):
            saved[context.name(1)] = None
    if 1 in context.needs:
        divisor = (context.spec(1),) if context.is_wide(1) else ()
        kernels += [
            _kernel(context, "neg"),
            Elementwise(operations=("div",), inputs=(context.spec(0), *divisor), output=out),
            Elementwise(operations=("div",), inputs=(out, *divisor), output=out),
            Elementwise(operations=("mul",), inputs=(out, out), output=out),
            *context.summed(1),
        ]
        saved |= dict.fromkeys(context.name(index) for index in (0, 1) if context.is_wide(index))
    return Derivative(kernels=tuple(kernels), flows=context.own(0, 1), saved=tuple(saved))


@differentiates("Pow")
def power(context: BackwardContext) -> Derivative | Unknown:
    """g (n x^(n - 1)) by the base; by an exponent that is trained g (y log x)."""
    operation = getattr(context.kernels[0], "operations", ("pow",))[0] if context.kernels else "pow"
    if operation == "copy":
        kernels, flow = passed(context, 0)
        return Derivative(kernels=kernels, flows={0: flow})
    found = of_operation(context, operation) if 0 in context.needs else Derivative()
    if 1 not in context.needs or isinstance(found, Unknown):
        return found
    out = context.out()
    by_exponent = (
        Elementwise(operations=("log",), inputs=(context.spec(0),), output=out),
        Elementwise(operations=("mul",), inputs=(out, out), output=out),
        Elementwise(operations=("mul",), inputs=(context.gradient(), out), output=out),
        *context.summed(1),
    )
    saved = dict.fromkeys((*found.saved, context.name(0), context.output_name()))
    return Derivative(
        kernels=(*found.kernels, *by_exponent), flows={**found.flows, **context.own(1)}, saved=tuple(saved)
    )


@differentiates("Where", inputs=(1, 2))
def where(context: BackwardContext) -> Derivative:
    """where(c, g, 0) and where(c, 0, g), or masked_fill(g, c, 0), which fills a copy: the condition is kept."""
    kernels: list[Kernel] = []
    forward = context.forward
    is_filled = is_number(forward, 1) and not is_number(forward, 2)
    for index in sorted(context.needs):
        if forward.runtime == "eager":
            out = context.out()
            copy = copy_kernel(out.dtype, out.shape, context.gradient_strides())
            kernels.append(copy if is_filled else fill(TensorSpec(dtype=out.dtype, shape=())))
        kernels += [_kernel(context, "where", context.spec(0)), *context.summed(index)]
    return Derivative(kernels=tuple(kernels), flows=context.own(1, 2), saved=(context.name(0),))


@differentiates("Max", "Min")
def extreme(context: BackwardContext) -> Derivative | Unknown:
    """Of two operands a, b: (where(a == b, g / 2, g)).masked_fill(a < b, 0), each if it is needed."""
    if len(context.forward.inputs) == 1:
        return Derivative(flows={0: Flow(strides=context.strides.get(0), shares=0)})
    if len(context.forward.inputs) > 2:
        return Unknown(reason="the gradient of a maximum of more than two tensors is not modelled yet")
    out = context.out()
    operands = tuple(context.spec(index) for index in (0, 1) if context.is_wide(index)) or (out,)
    mask = TensorSpec(dtype=DataType.BOOL, shape=out.shape)
    kernels: list[Kernel] = []
    for index in sorted(context.needs):
        kernels += [
            Elementwise(operations=("eq",), inputs=operands, output=mask),
            _kernel(context, "div"),
            Elementwise(operations=("where",), inputs=(mask, context.gradient(), out), output=out),
            Elementwise(operations=("lt",), inputs=operands, output=mask),
            Elementwise(operations=("where",), inputs=(mask, out), output=out),
            *context.summed(index),
        ]
    saved = tuple(context.name(index) for index in (0, 1) if context.is_wide(index))
    return Derivative(kernels=tuple(kernels), flows=context.own(0, 1), saved=saved)


@differentiates("PRelu")
def prelu(context: BackwardContext) -> Derivative:
    """One kernel writes both gradients, that of the slope in full, which is summed."""
    out = context.out()
    own = (out,) if 1 in context.needs else ()
    kernel = Elementwise(
        operations=("prelu_backward",),
        inputs=(context.gradient(), context.spec(0), *((context.spec(1),) if context.is_wide(1) else ())),
        output=out,
        extra_outputs=own,
    )
    sums = context.summed(1) if 1 in context.needs else ()
    saved = tuple(context.name(index) for index in (0, 1) if context.is_wide(index))
    return Derivative(kernels=(kernel, *sums), flows=context.own(0, 1), saved=saved)


@differentiates("Dropout", domain="neusight", inputs=(0,))
def dropout(context: BackwardContext) -> Derivative:
    """g * mask / (1 - rate), one kernel; the mask of one byte an element is kept."""
    mask = context.out(1)
    return Derivative(kernels=(_kernel(context, "mul", mask),), flows=context.own(0), saved=(context.output_name(1),))


@differentiates("Glu", domain="neusight")
def glu(context: BackwardContext) -> Derivative:
    """One kernel: both halves' gradients from x and g."""
    kernel = Elementwise(
        operations=("sigmoid", "mul", "mul"), inputs=(context.gradient(), context.spec(0)), output=context.whole(0)
    )
    return Derivative(kernels=(kernel,), flows=context.own(0), saved=(context.name(0),))


@differentiates("Cast", "CastLike", inputs=(0,))
def cast(context: BackwardContext) -> Derivative:
    """Cast back; nothing where the type stayed."""
    source, target = context.whole(0), context.out()
    if source.dtype is target.dtype:
        return Derivative(flows={0: Flow(strides=context.strides.get(0), shares=0)})
    kernel = Movement(
        operation="cast",
        dtype=target.dtype,
        shape=target.shape,
        read=context.gradient().byte_count,
        written=source.byte_count,
    )
    return Derivative(kernels=(kernel,), flows={0: Flow(strides=context.strides.get(0))})
