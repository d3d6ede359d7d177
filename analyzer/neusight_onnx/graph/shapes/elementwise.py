"""Operators that work element by element, with numpy's broadcasting, and their arithmetic on small tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Value
from neusight_onnx.graph.shapes.context import MAX_DATA, NUMPY, Data, NodeContext, broadcast_shapes
from neusight_onnx.graph.shapes.registry import rule

_Ufunc = Callable[..., Any]

# Functions of one tensor that keep dtype and shape; those without a function are not evaluated.
_UNARY: dict[str, _Ufunc | None] = {
    "Abs": np.abs,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Exp": np.exp,
    "Floor": np.floor,
    "Log": np.log,
    "Reciprocal": lambda x: 1 / x,
    "Relu": lambda x: np.maximum(x, 0),
    "Round": np.rint,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Sign": np.sign,
    "Sin": np.sin,
    "Sqrt": np.sqrt,
    "Tanh": np.tanh,
    "BitwiseNot": np.invert,
    **dict.fromkeys(
        (
            *("Acos", "Acosh", "Affine", "Asin", "Asinh", "Atan", "Atanh", "Celu", "Cosh", "Elu", "Erf", "Gelu"),
            *("HardSigmoid", "HardSwish", "Hardmax", "LRN", "LeakyRelu", "LogSoftmax", "LpNormalization"),
            *("MeanVarianceNormalization", "Mish", "ParametricSoftplus", "ScaledTanh", "Selu", "Shrink", "Sinh"),
            *("ImageScaler", "Softmax", "Softplus", "Softsign", "Swish", "Tan", "ThresholdedRelu", "Scale"),
            *("MemcpyFromHost", "MemcpyToHost"),
        )
    ),
}

# Of these a greater input never gives a smaller result, so both ends of an interval pass through.
_RISING = frozenset({"Ceil", "Exp", "Floor", "Log", "Relu", "Round", "Sigmoid", "Sign", "Sqrt", "Tanh"})


@rule(*_UNARY)
def _unary(ctx: NodeContext) -> Sequence[Value]:
    data = ctx.data(0)
    if data is None:
        return (ctx.same(),)
    function = _UNARY[ctx.node.op_type]
    if function is None or (ctx.bounded and ctx.node.op_type not in _RISING):
        return (ctx.same(),)
    return (ctx.tensor(ctx.dtype(0), data.shape, np.asarray(function(data), data.dtype)),)


@rule("Neg")
def _neg(ctx: NodeContext) -> Sequence[Value]:
    data = ctx.opposite(0)
    return (ctx.same(),) if data is None else (ctx.tensor(ctx.dtype(0), data.shape, np.asarray(-data)),)


@rule("Not")
def _not(ctx: NodeContext) -> Sequence[Value]:
    data = ctx.opposite(0)
    if data is None:
        return (ctx.same(dtype=DataType.BOOL),)
    return (ctx.tensor(DataType.BOOL, data.shape, np.asarray(np.logical_not(data))),)


@rule("IsNaN", "IsInf")
def _is(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(dtype=DataType.BOOL),)


@rule("Clip")
def _clip(ctx: NodeContext) -> Sequence[Value]:
    data = ctx.data(0)
    if data is None or ctx.node.version < 11:
        return (ctx.same(),)
    for index, function in ((1, np.maximum), (2, np.minimum)):
        if ctx.has(index):
            limit = ctx.data(index)
            if limit is None:
                return (ctx.same(),)
            data = np.asarray(function(data, limit), data.dtype)
    return (ctx.tensor(ctx.dtype(0), data.shape, data),)


def int_divide(a: Data, b: Data) -> Data | None:
    """Integer division as ONNX has it, towards zero; None where the divisor is 0."""
    if not np.all(b):
        return None
    quotient = np.asarray(np.floor_divide(a, b))
    remainder = np.asarray(np.remainder(a, b))
    rounded_down = (remainder != 0) & ((a < 0) != (b < 0))
    return np.asarray(quotient + rounded_down.astype(quotient.dtype)) if rounded_down.any() else quotient


def _evaluate_binary(op_type: str, a: Any, b: Any) -> Data | None:
    match op_type:
        case "Add":
            result = a + b
        case "Sub":
            result = a - b
        case "Mul":
            result = a * b
        case "Div":
            result = int_divide(a, b) if a.dtype.kind in "iu" else a / b
            if result is None:
                return None
        case "Pow":
            exact = a.dtype.kind in "iu" and (b.dtype.kind == "f" or (b.size and int(b.min()) < 0))
            result = np.power(a.astype(np.float64), b) if exact else np.power(a, b)
        case _:
            return None
    return np.asarray(result, a.dtype)


def _interval_binary(ctx: NodeContext) -> Data | None:
    """This run's end of a sum, difference, product or quotient of intervals; None where it isn't told."""
    op_type = ctx.node.op_type
    a, b, other_a, other_b = ctx.data(0), ctx.data(1), ctx.opposite(0), ctx.opposite(1)
    if a is None or b is None or other_a is None or other_b is None:
        return None
    if op_type == "Add":
        return _evaluate_binary("Add", a, b)
    if op_type == "Sub":
        return _evaluate_binary("Sub", a, other_b)
    least = min((int(item.min()) for item in (a, b, other_a, other_b) if item.size), default=0)
    if op_type == "Mul":
        if least >= 0:
            return _evaluate_binary("Mul", a, b)
        products = [np.asarray(x * y) for x in (a, other_a) for y in (b, other_b)]
        return reduce(np.minimum if ctx.low_run else np.maximum, products)
    if op_type == "Div" and least >= 0:
        # a divisor that is valid is at least 1 where it counts something
        divisor = np.maximum(other_b, 1) if other_b.dtype.kind in "iu" else other_b
        return _evaluate_binary("Div", a, divisor)
    return None


@rule("Add", "Sub", "Mul", "Div", "Pow")
def _arithmetic(ctx: NodeContext) -> Sequence[Value]:
    a = ctx.data(0)
    b = ctx.data(1) if a is not None else None
    dtype = ctx.dtype(0)
    if a is not None and b is not None and dtype in NUMPY:
        result = _interval_binary(ctx) if ctx.bounded else _evaluate_binary(ctx.node.op_type, a, b)
        if result is not None and result.size <= MAX_DATA:
            return (ctx.tensor(dtype, result.shape, result),)
    if ctx.node.version < 7 and ctx.integer("broadcast", 0):
        return (ctx.same(),)
    return (ctx.tensor(dtype or ctx.dtype(1), ctx.broadcast(0, 1)),)


@rule("Mod")
def _mod(ctx: NodeContext) -> Sequence[Value]:
    a, b = ctx.data(0), ctx.data(1)
    shape = ctx.broadcast(0, 1)
    if a is None or b is None or not np.all(b) or ctx.bounded:
        return (ctx.tensor(ctx.dtype(0), shape),)
    result = np.fmod(a, b) if ctx.integer("fmod", 0) else np.mod(a, b)
    return (ctx.tensor(ctx.dtype(0), shape, np.asarray(result, a.dtype)),)


@rule("BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
def _bits(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.broadcast(0, 1)
    a, b = ctx.data(0), ctx.data(1)
    if a is None or b is None or ctx.bounded:
        return (ctx.tensor(ctx.dtype(0), shape),)
    function: _Ufunc
    if ctx.node.op_type == "BitShift":
        function = np.left_shift if ctx.text("direction", "LEFT") == "LEFT" else np.right_shift
    else:
        function = {"BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor}[
            ctx.node.op_type
        ]
    return (ctx.tensor(ctx.dtype(0), shape, np.asarray(function(a, b), a.dtype)),)


@rule("PRelu")
def _prelu(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(),)


_COMPARISONS: dict[str, _Ufunc] = {
    "Equal": np.equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
}


@rule(*_COMPARISONS)
def _compare(ctx: NodeContext) -> Sequence[Value]:
    a, b = ctx.data(0), ctx.data(1)
    op_type = ctx.node.op_type
    result: Any = None
    if a is not None and b is not None:
        if not ctx.bounded:
            result = _COMPARISONS[op_type](a, b)
        else:
            other_a, other_b = ctx.opposite(0), ctx.opposite(1)
            if other_a is not None and other_b is not None:
                if op_type.startswith("Less"):
                    result = _COMPARISONS[op_type](other_a, b)
                elif op_type.startswith("Greater"):
                    result = _COMPARISONS[op_type](a, other_b)
                elif ctx.low_run:
                    result = (a == other_a) & (b == other_b) & (a == b)
                else:
                    result = (other_a <= b) & (other_b <= a)
    if result is not None and np.size(result) <= MAX_DATA:
        return (ctx.tensor(DataType.BOOL, np.shape(result), np.asarray(result)),)
    if ctx.node.version < 7 and ctx.integer("broadcast", 0):
        return (ctx.same(dtype=DataType.BOOL),)
    return (ctx.tensor(DataType.BOOL, ctx.broadcast(0, 1)),)


_LOGIC: dict[str, _Ufunc] = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}


@rule(*_LOGIC)
def _logic(ctx: NodeContext) -> Sequence[Value]:
    a, b = ctx.data(0), ctx.data(1)
    if ctx.node.version < 7 and ctx.integer("broadcast", 0):
        return (ctx.same(dtype=DataType.BOOL),)
    shape = ctx.broadcast(0, 1)
    if a is None or b is None or (ctx.bounded and ctx.node.op_type == "Xor"):
        return (ctx.tensor(DataType.BOOL, shape),)
    result = np.asarray(_LOGIC[ctx.node.op_type](a, b))
    return (ctx.tensor(DataType.BOOL, shape, result if result.size <= MAX_DATA else None),)


_VARIADIC: dict[str, _Ufunc | None] = {
    "Sum": lambda items: reduce(np.add, items),
    "Max": lambda items: reduce(np.maximum, items),
    "Min": lambda items: reduce(np.minimum, items),
    "Mean": None,
}


@rule(*_VARIADIC)
def _variadic(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.broadcast()
    function = _VARIADIC[ctx.node.op_type]
    arrays = ctx.all_data() if function is not None else None
    if arrays is None or function is None:
        return (ctx.tensor(ctx.dtype(0), shape),)
    result = np.asarray(function(arrays))
    return (ctx.tensor(ctx.dtype(0), result.shape, result if result.size <= MAX_DATA else None),)


@rule("Where")
def _where(ctx: NodeContext) -> Sequence[Value]:
    condition, x, y = ctx.data(0), ctx.data(1), ctx.data(2)
    dtype = ctx.dtype(1) or ctx.dtype(2)
    if condition is not None and x is not None and y is not None:
        other = ctx.opposite(0)
        result = np.where(condition, x, y)
        if other is not None and not np.array_equal(condition, other):
            # undecided where the ends of the condition differ: either operand may come out
            either = np.minimum(x, y) if ctx.low_run else np.maximum(x, y)
            result = np.where(condition == other, result, either)
        if result.size <= MAX_DATA:
            return (ctx.tensor(dtype, result.shape, result),)
    elif x is not None and y is not None and condition is None and x.size <= MAX_DATA and y.size <= MAX_DATA:
        return (_where_undecided(ctx, dtype, x, y),)
    return (ctx.tensor(dtype, ctx.broadcast(0, 1, 2)),)


def _where_undecided(ctx: NodeContext, dtype: DataType | None, x: Data, y: Data) -> Value:
    """Nothing is known of the condition: an interval from the lesser to the greater operand."""
    shape = ctx.broadcast(0, 1, 2)
    joined = broadcast_shapes(x.shape, y.shape)
    if joined != shape or ctx.bounded or dtype is None or not dtype.is_integer:
        return ctx.tensor(dtype, shape)
    return Value(dtype=dtype, shape=shape, data=np.maximum(x, y), data_low=np.minimum(x, y), is_constant=ctx.constant)


@rule("Cast", "CastLike")
def _cast(ctx: NodeContext) -> Sequence[Value]:
    if ctx.node.op_type == "CastLike":
        dtype = ctx.dtype(1)
    elif isinstance(ctx.attribute("to"), str):  # opset 1 to 5: the name of the type
        dtype = {"FLOAT": DataType.FLOAT32, "DOUBLE": DataType.FLOAT64}.get(
            ctx.text("to", ""), DataType.__members__.get(ctx.text("to", ""))
        )
    else:
        dtype = ctx.type_attribute("to", None)
    data = ctx.data(0)
    target = None if dtype is None else NUMPY.get(dtype)
    if data is None or target is None:
        return (Value(dtype=dtype, shape=ctx.shape(0), is_constant=ctx.constant),)
    return (ctx.tensor(dtype, data.shape, data.astype(target)),)


@rule("BitCast")
def _bit_cast(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(dtype=ctx.type_attribute("to", None)),)


@rule("Identity", intervals=True)
def _identity(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.value(0),)


@rule("Dropout", deterministic=False)
def _dropout(ctx: NodeContext) -> Sequence[Value]:
    """The identity, unless it is told to train."""
    version = ctx.node.version
    if version >= 12:
        mode = ctx.data(2)
        trains = ctx.has(2) and (mode is None or bool(mode.any()))
    else:
        trains = version < 7 and not ctx.integer("is_test", 0)
    mask_dtype = DataType.BOOL if version >= 10 else ctx.dtype(0)
    return (ctx.tensor(ctx.dtype(0), ctx.shape(0), None if trains else ctx.data(0)), ctx.same(dtype=mask_dtype))


@rule("SwiGLU")
def _swiglu(ctx: NodeContext) -> Sequence[Value]:
    """Two operands of one shape, or both halves side by side in the last dimension."""
    shape = ctx.shape(0)
    if ctx.has(1):
        return (ctx.tensor(ctx.dtype(0), ctx.broadcast(0, 1)),)
    return (ctx.tensor(ctx.dtype(0), (*shape[:-1], shape[-1] // 2)),)


@rule("Bernoulli", deterministic=False)
def _bernoulli(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(dtype=ctx.type_attribute("dtype", ctx.dtype(0))),)
