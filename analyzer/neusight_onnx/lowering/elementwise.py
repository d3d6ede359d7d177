"""Pointwise operators: every output element is a function of one element of each input."""

from __future__ import annotations

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Elementwise, GatherScatter, Kernel, Movement, Reduction, Softmax, TensorSpec
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.normalization import fill
from neusight_onnx.lowering.registry import Free, Kernels, Outcome, lowers
from neusight_onnx.lowering.views import Layout, copy_kernel, latest, pointwise_strides
from neusight_onnx.strides import expand_strides, is_contiguous

UNARY = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "BitwiseNot": "not",
    "Ceil": "ceil",
    "Celu": "celu",
    "Cos": "cos",
    "Cosh": "cosh",
    "Elu": "elu",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "HardSigmoid": "hardsigmoid",
    "HardSwish": "hardswish",
    "IsInf": "isinf",
    "IsNaN": "isnan",
    "LeakyRelu": "leaky_relu",
    "Log": "log",
    "Mish": "mish",
    "Neg": "neg",
    "Not": "not",
    "Reciprocal": "reciprocal",
    "Relu": "relu",
    "Round": "round",
    "Selu": "selu",
    "Shrink": "shrink",
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Sqrt": "sqrt",
    "Swish": "silu",
    "Tan": "tan",
    "Tanh": "tanh",
    "ThresholdedRelu": "threshold",
}
BINARY = {
    "Add": "add",
    "And": "and",
    "BitShift": "shift",
    "BitwiseAnd": "and",
    "BitwiseOr": "or",
    "BitwiseXor": "xor",
    "Div": "div",
    "Equal": "eq",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "Less": "lt",
    "LessOrEqual": "le",
    "Mod": "mod",
    "Mul": "mul",
    "Or": "or",
    "PRelu": "prelu",
    "Sub": "sub",
    "Xor": "xor",
}
VARIADIC = {"Max": "max", "Mean": "add", "Min": "min", "Sum": "add"}
SCALAR_POWERS = {
    2.0: "pow_scalar",
    3.0: "pow_scalar",
    -2.0: "pow_scalar",
    0.5: "sqrt",
    -0.5: "rsqrt",
    -1.0: "reciprocal",
}
"""What PyTorch runs for ``pow`` with these exponents in place of the general power: a few multiplications, a root
or a reciprocal (its pow documents the special cases; measured: pow with 2 or 3 costs what mul costs)."""


def pointwise(
    context: NodeContext,
    operations: tuple[str, ...],
    indices: tuple[int, ...],
    *,
    extra_outputs: tuple[TensorSpec, ...] = (),
) -> Kernels:
    """One pointwise kernel over the inputs at ``indices``; operands of one element are no traffic."""
    output = context.out()
    operands = [index for index in indices if context.has(index)]
    wide = [index for index in operands if context.inputs[index].element_count != 1]  # type: ignore[union-attr]  # has() says it is there
    read = wide or operands[:1]
    kernel = Elementwise(
        operations=operations,
        inputs=tuple(context.spec(index) for index in read),
        output=output,
        extra_outputs=extra_outputs,
    )
    return Kernels(kernels=(kernel,), layouts=pointwise_layouts(context, tuple(wide)))


def pointwise_layouts(context: NodeContext, indices: tuple[int, ...]) -> tuple[Layout | None, ...]:
    """The layout of what a pointwise kernel writes: () if it is contiguous."""
    layouts = [layout for index in indices if (layout := context.layout(index)) is not None]
    if not layouts:
        return ()
    shape = context.out().shape
    operands = [(context.shape(index), context.strides(index)) for index in indices]
    strides = pointwise_strides(shape, operands)
    if is_contiguous(shape, strides):
        return ()
    origins = latest(origin for layout in layouts for origin in layout.origins)
    return (Layout(strides=strides, origins=origins),)


@lowers(*UNARY, gives="elementwise")
def unary(context: NodeContext) -> Outcome:
    if context.node.op_type == "HardSwish" and not context.executor.has_hard_swish:
        x = context.spec(0)
        inner = Elementwise(operations=("hardsigmoid",), inputs=(x,), output=context.out())
        return Kernels(
            kernels=(inner, Elementwise(operations=("mul",), inputs=(x, context.out()), output=context.out()))
        )
    return pointwise(context, (UNARY[context.node.op_type],), (0,))


@lowers(*BINARY, gives="elementwise")
def binary(context: NodeContext) -> Outcome:
    return pointwise(context, (BINARY[context.node.op_type],), tuple(range(len(context.inputs))))


@lowers("Where", gives="elementwise", note="in eager a copy before, where a number is chosen")
def where(context: NodeContext) -> Outcome:
    """``masked_fill``, which is exported with its number in front, fills a copy (as torch 2.9.1 launches it).

    A number behind may be the code's, which PyTorch puts on the GPU first by a fill, or a buffer of the model: GPT-2's
    was measured without one.
    """
    if context.runtime == "eager" and is_number(context, 1) and not is_number(context, 2):
        out = context.out()
        strides = expand_strides(context.shape(2), context.strides(2), out.shape)
        kernel = Elementwise(operations=("where",), inputs=(context.spec(0), out), output=out)
        return Kernels(kernels=(copy_kernel(out.dtype, out.shape, strides), kernel))
    return pointwise(context, ("where",), (0, 1, 2))


def is_number(context: NodeContext, index: int) -> bool:
    """Whether an input is a number of the model's code: a constant without dimensions."""
    value = context.value(index)
    return value is not None and value.is_constant and value.shape == ()


@lowers(*VARIADIC, gives="elementwise", note="n inputs are n - 1 kernels in eager, one elsewhere")
def variadic(context: NodeContext) -> Outcome:
    operation = VARIADIC[context.node.op_type]
    count = len(context.inputs)
    if count == 1:
        return alias(context, "of one input, it is that input")
    mean: tuple[str, ...] = ("div",) if context.node.op_type == "Mean" else ()
    if not context.lazy or (count == 2 and not mean):
        return pointwise(context, (operation,) * (count - 1) + mean, tuple(range(count)))
    output = context.out()
    kernels: list[Kernel] = []
    for index in range(1, count):
        inputs = (output if index > 1 else context.spec(0), context.spec(index))
        wide = tuple(spec for spec in inputs if spec.element_count != 1) or inputs[:1]
        kernels.append(Elementwise(operations=(operation,), inputs=wide, output=output))
    if mean:
        kernels.append(Elementwise(operations=mean, inputs=(output,), output=output))
    return Kernels(kernels=tuple(kernels))


@lowers("Pow", gives="elementwise", note="with a scalar exponent of 2, 3, -2, 0.5, -0.5 or -1: its cheap form")
def power(context: NodeContext) -> Outcome:
    exponent = context.number(1)
    if exponent == 1.0:
        return pointwise(context, ("copy",), (0,))
    if exponent in SCALAR_POWERS:
        return pointwise(context, (SCALAR_POWERS[exponent],), (0,))
    return pointwise(context, ("pow",), (0, 1))


EXPERIMENTS = {
    "Affine": ("mul", "add"),
    "ImageScaler": ("mul", "add"),
    "ParametricSoftplus": ("softplus",),
    "Scale": ("mul",),
    "ScaledTanh": ("tanh",),
}


@lowers(*EXPERIMENTS, gives="elementwise", note="an experiment of early opsets")
def experiment(context: NodeContext) -> Outcome:
    return pointwise(context, EXPERIMENTS[context.node.op_type], (0,))


@lowers("Clip", gives="elementwise")
def clip(context: NodeContext) -> Outcome:
    return pointwise(context, ("clamp",), (0,))


@lowers("Gelu", gives="elementwise")
def gelu(context: NodeContext) -> Outcome:
    tanh = context.text("approximate", "none") == "tanh"
    return pointwise(context, ("gelu_tanh" if tanh else "gelu",), (0,))


@lowers("Gelu", "QuickGelu", "FastGelu", "BiasGelu", "BiasAdd", domain="com.microsoft", gives="elementwise")
def contributed_gelu(context: NodeContext) -> Outcome:
    name = {"Gelu": "gelu", "QuickGelu": "silu", "FastGelu": "gelu_tanh", "BiasGelu": "gelu", "BiasAdd": "add"}
    operations: tuple[str, ...] = (name[context.node.op_type],)
    if context.node.op_type in ("FastGelu", "BiasGelu", "BiasAdd") and context.has(1):
        operations = ("add", *operations)
    return pointwise(context, operations, tuple(range(len(context.inputs))))


@lowers("Rsqrt", domain="neusight", gives="elementwise", note="recognised: 1 / sqrt(x)")
def rsqrt(context: NodeContext) -> Outcome:
    return pointwise(context, ("rsqrt",), (0,))


@lowers("Addcmul", domain="neusight", gives="elementwise", note="recognised: x + 1.0 * (a * b), PyTorch's addcmul")
def addcmul(context: NodeContext) -> Outcome:
    return pointwise(context, ("mul", "add"), (0, 1, 2))


@lowers("Glu", domain="neusight", gives="elementwise", note="recognised: left half * sigmoid(right half)")
def glu(context: NodeContext) -> Outcome:
    kernel = Elementwise(operations=("sigmoid", "mul"), inputs=(context.spec(0),), output=context.out())
    return Kernels(kernels=(*context.contiguous(0), kernel))


@lowers("BiasSplitGelu", domain="com.microsoft", gives="elementwise", note="(x + bias) halved: left * gelu(right)")
def bias_split_gelu(context: NodeContext) -> Outcome:
    kernel = Elementwise(
        operations=("add", "gelu", "mul"), inputs=(context.spec(0), context.spec(1)), output=context.out()
    )
    return Kernels(kernels=(kernel,))


@lowers("SwiGLU", gives="elementwise", note="silu(gate) * value")
@lowers("SwiGLU", domain="com.microsoft", gives="elementwise", note="silu(gate) * value")
def swiglu(context: NodeContext) -> Outcome:
    inputs = tuple(context.spec(index) for index in range(len(context.inputs)) if context.has(index))
    return Kernels(kernels=(Elementwise(operations=("silu", "mul"), inputs=inputs, output=context.out()),))


@lowers(
    "ScaledSiLU", "GatedAdd", "ComplexMul", "ComplexMulConj", "MulInteger", domain="com.microsoft", gives="elementwise"
)
def contributed_pointwise(context: NodeContext) -> Outcome:
    operations = {
        "ScaledSiLU": ("silu", "mul"),
        "GatedAdd": ("mul", "add"),
        "ComplexMul": ("mul", "mul", "add"),
        "ComplexMulConj": ("mul", "mul", "add"),
        "MulInteger": ("sub", "sub", "mul"),
    }[context.node.op_type]
    return pointwise(context, operations, tuple(range(len(context.inputs))))


STREAMS = {
    "HyperConnectionPostMix": ("mul", "add", "mul", "add"),
    "HyperConnectionPreMix": ("mul", "add"),
    "LinearAttentionGate": ("add", "softplus", "mul", "sigmoid"),
    "SampleOp": ("copy",),
}


@lowers(*STREAMS, domain="com.microsoft", gives="elementwise")
def streams(context: NodeContext) -> Outcome:
    """Inputs may be wider than the output (streams that are mixed): all of them are read."""
    inputs = tuple(context.spec(index) for index in range(len(context.inputs)) if context.has(index))
    kernel = Elementwise(
        operations=STREAMS[context.node.op_type],
        inputs=inputs,
        output=context.out(),
        extra_outputs=context.other_outputs(),
    )
    return Kernels(kernels=(kernel,))


@lowers("IsAllFinite", domain="com.microsoft", gives="elementwise")
def all_finite(context: NodeContext) -> Outcome:
    inputs = tuple(context.spec(index) for index in range(len(context.inputs)) if context.has(index))
    kernels = tuple(Elementwise(operations=("isfinite",), inputs=(spec,), output=context.out()) for spec in inputs)
    return Kernels(kernels=kernels)


@lowers("Dropout", gives="depends", note="free at inference; a mask that is read is filled")
def dropout(context: NodeContext) -> Outcome:
    training = context.data(2)
    if context.version < 7:
        active = context.integer("is_test", 0) == 0 and context.version == 1 and context.has_output(1)
    else:
        active = training is not None and bool(training.reshape(-1)[0])
    if not active:
        same = alias(context, "dropout does nothing at inference", host=True)
        if not context.has_output(1):
            return same
        mask = fill(context.out(1))
        if context.lazy:
            return Kernels(kernels=(mask,), layouts=same.layouts)
        # ONNX Runtime drops a Dropout, but not one whose mask is read: it copies the values
        copied = context.spec(0)
        size = copied.byte_count
        copy = Movement(operation="copy", dtype=copied.dtype, shape=copied.shape, read=size, written=size)
        return Kernels(kernels=(copy, mask))
    return pointwise(context, ("dropout",), (0,), extra_outputs=context.other_outputs())


@lowers("Dropout", domain="neusight", gives="elementwise", note="in training: writes a mask of a byte an element, too")
def training_dropout(context: NodeContext) -> Outcome:
    return pointwise(context, ("dropout",), (0,), extra_outputs=context.other_outputs())


@lowers("BiasDropout", "BitmaskDropout", "BitmaskBiasDropout", domain="com.microsoft", gives="elementwise")
def contributed_dropout(context: NodeContext) -> Outcome:
    if context.node.op_type == "BitmaskDropout":
        return alias(context, "dropout does nothing at inference", host=True)
    adds = ("add",) * (2 if context.has(2) else 1)
    return pointwise(context, adds, (0, 1, 2), extra_outputs=context.other_outputs())


@lowers("Bernoulli", "RandomNormalLike", "RandomUniformLike", gives="elementwise")
@lowers("RandomNormal", "RandomUniform", gives="elementwise", note="writes only")
def random(context: NodeContext) -> Outcome:
    read = (context.spec(0),) if context.node.op_type == "Bernoulli" else ()
    return Kernels(kernels=(Elementwise(operations=("random",), inputs=read, output=context.out()),))


@lowers("Multinomial", gives="elementwise", note="draws by the cumulative distribution")
def multinomial(context: NodeContext) -> Outcome:
    scores = context.spec(0)
    probabilities = Elementwise(operations=("exp",), inputs=(scores,), output=scores)
    draws = Elementwise(operations=("random",), inputs=(scores,), output=context.out())
    return Kernels(kernels=(probabilities, draws))


@lowers("Cast", "CastLike", gives="movement", note="free where the type stays; text is handled on the host")
def cast(context: NodeContext) -> Outcome:
    source, target = context.spec(0), context.out()
    if DataType.STRING in (source.dtype, target.dtype):
        return Free(reason="text is handled on the host", host=True)
    if source.dtype is target.dtype:
        return alias(context, "the type stays the same", host=True)
    kernel = Movement(
        operation="cast", dtype=source.dtype, shape=target.shape, read=source.byte_count, written=target.byte_count
    )
    return Kernels(kernels=(kernel,), layouts=pointwise_layouts(context, (0,)))


@lowers("BitCast", gives="free", note="a view: the same bytes under another type")
def bit_cast(context: NodeContext) -> Outcome:
    return Free(reason="a view: the same bytes under another type", host=True)


def alias(context: NodeContext, reason: str, *, host: bool = False) -> Free:
    """The output is the first input: it lies where that lies."""
    layout = context.layout(0) if context.node.inputs and context.node.inputs[0] else None
    return Free(reason=reason, host=host, layouts=(layout,))


@lowers("Trilu", gives="elementwise")
@lowers("Trilu", domain="com.microsoft", gives="elementwise")
def trilu(context: NodeContext) -> Outcome:
    upper = context.integer("upper", 1) == 1
    kernel = Elementwise(operations=("triu" if upper else "tril",), inputs=(context.spec(0),), output=context.out())
    return Kernels(kernels=(kernel,))


@lowers("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", gives="depends", note="gather of the targets, mean")
def losses(context: NodeContext) -> Outcome:
    scores = context.spec(0)
    targets = context.spec(1)
    kernels: list[Kernel] = []
    if context.node.op_type == "SoftmaxCrossEntropyLoss":
        cols = scores.shape[1]
        rows = scores.element_count // cols if cols else 0
        inner = rows // scores.shape[0] if scores.shape[0] else 1
        kernels.append(Softmax(rows=rows, cols=cols, inner=max(inner, 1), dtype=scores.dtype, log=True))
    kernels.append(
        GatherScatter(
            operation="gather",
            moved=targets.element_count,
            run=1,
            dtype=scores.dtype,
            index_count=targets.element_count,
            index_dtype=targets.dtype,
        )
    )
    if context.text("reduction", "mean") != "none":
        kernels.append(
            Reduction(
                operation=context.text("reduction", "mean"),
                outputs=1,
                reduced=targets.element_count,
                dtype=scores.dtype,
                output=context.out(),
            )
        )
    return Kernels(kernels=tuple(kernels))


@lowers("RotaryEmbedding", gives="elementwise", note="x * cos + rotated x * sin")
def rotary(context: NodeContext) -> Outcome:
    return rotary_kernel(context, (1, 2), 3)


@lowers("RotaryEmbedding", "GemmaRotaryEmbedding", "MRotaryEmbedding", domain="com.microsoft", gives="elementwise")
def contributed_rotary(context: NodeContext) -> Outcome:
    if context.node.op_type == "GemmaRotaryEmbedding":
        kernel = Elementwise(
            operations=("mul", "mul", "add"),
            inputs=tuple(context.spec(index) for index in range(1, len(context.inputs)) if context.has(index)),
            output=context.out(),
            extra_outputs=context.other_outputs(),
        )
        return Kernels(kernels=(kernel,))
    return rotary_kernel(context, (2, 3), 1)


def rotary_kernel(context: NodeContext, tables: tuple[int, int], positions: int) -> Kernels:
    """Reads x, the rows of the tables of cosines and sines that its positions need, and the positions."""
    source = context.spec(0)
    steps = source.shape[1] if len(source.shape) == 3 else source.shape[-2]
    inputs = [source]
    for index in tables:
        table = context.spec(index)
        if context.has(positions) and len(table.shape) == 2:
            rows = min(table.shape[0], max(context.spec(positions).element_count, steps))
            table = TensorSpec(dtype=table.dtype, shape=(rows, table.shape[1]))
        inputs.append(table)
    if context.has(positions):
        inputs.append(context.spec(positions))
    kernel = Elementwise(operations=("mul", "mul", "add"), inputs=tuple(inputs), output=context.out())
    return Kernels(kernels=(kernel,))
