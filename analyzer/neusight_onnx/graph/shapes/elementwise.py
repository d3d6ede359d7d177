"""Operators that work element by element, with numpy's broadcasting, and their arithmetic on small tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
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
    if ctx.bounded and ctx.node.op_type not in _RISING:
        data = _unary_end(ctx, data)
        return (ctx.same(),) if data is None else (ctx.tensor(ctx.dtype(0), data.shape, data),)
    if function is None:
        return (ctx.same(),)
    return (ctx.tensor(ctx.dtype(0), data.shape, np.asarray(function(data), data.dtype)),)


def _unary_end(ctx: NodeContext, data: Data) -> Data | None:
    """This run's end of a function that falls somewhere; None where it isn't told."""
    other = ctx.opposite(0)
    if other is None or other.shape != data.shape:
        return None
    low, high = np.minimum(data, other), np.maximum(data, other)
    match ctx.node.op_type:
        case "Abs":
            furthest = np.maximum(np.abs(low), np.abs(high))
            nearest = np.where((low < 0) & (high > 0), 0, np.minimum(np.abs(low), np.abs(high)))
            return np.asarray(nearest if ctx.low_run else furthest, data.dtype)
        case "BitwiseNot":
            return np.asarray(np.invert(high if ctx.low_run else low))
        case "Reciprocal":
            one_sign = (low > 0) | (high < 0)
            return np.asarray(1 / (high if ctx.low_run else low), data.dtype) if one_sign.all() else None
        case _:
            return None


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
    """This run's end of a sum, difference, product, quotient or power of intervals; None where it isn't told."""
    op_type = ctx.node.op_type
    a, b, other_a, other_b = ctx.data(0), ctx.data(1), ctx.opposite(0), ctx.opposite(1)
    if a is None or b is None or other_a is None or other_b is None or a.shape != other_a.shape:
        return None
    if b.shape != other_b.shape:
        return None
    low_b, high_b = np.minimum(b, other_b), np.maximum(b, other_b)
    seconds = [low_b, high_b]
    match op_type:
        case "Div" if b.dtype.kind in "iu":
            # a divisor that is valid isn't 0: those next to it count, where they are possible
            seconds = [np.where(end == 0, np.where(high_b > 0, 1, -1), end) for end in seconds]
            seconds += [np.clip(np.ones_like(b), *seconds)]
            if (low_b < 0).any():
                seconds += [np.where((low_b < 0) & (high_b > 0), -1, seconds[0])]
        case "Div" if not ((low_b > 0) | (high_b < 0)).all():
            return None
        case "Pow" if not ((np.minimum(a, other_a) >= 1) & (low_b >= 0)).all():
            return _power_end(ctx, np.minimum(a, other_a), np.maximum(a, other_a), low_b, high_b)
    corners = [_evaluate_binary(op_type, x, y) for x in (a, other_a) for y in seconds]
    floats = [_evaluate_float(op_type, x, y) for x in (a, other_a) for y in seconds]
    if any(corner is None or not _holds(a.dtype, size) for corner, size in zip(corners, floats, strict=True)):
        return None
    return np.asarray(reduce(np.minimum if ctx.low_run else np.maximum, corners))  # type: ignore[arg-type]  # none is None


def _power_end(ctx: NodeContext, low: Data, high: Data, least: Data, most: Data) -> Data | None:
    """Powers with one exponent: they rise with a base that is not negative, and with the base's size where even."""
    if not np.array_equal(least, most) or (least < 0).any():
        return None
    if not (low >= 0).all():
        if not (least % 2 == 0).all():
            return None
        furthest = np.maximum(np.abs(low), np.abs(high))
        nearest = np.where((low < 0) & (high > 0), 0, np.minimum(np.abs(low), np.abs(high)))
        low, high = np.asarray(nearest, low.dtype), np.asarray(furthest, high.dtype)
    base = low if ctx.low_run else high
    return _evaluate_binary("Pow", base, least) if _holds(base.dtype, _evaluate_float("Pow", base, least)) else None


def _evaluate_float(op_type: str, a: Data, b: Data) -> Data:
    x, y = a.astype(np.float64), b.astype(np.float64)
    result = _evaluate_binary(op_type, x, y)
    assert result is not None
    return result


_FITS_INT64 = 2.0**62
"""Below this a sum or product that is computed in double precision tells that the integer one did not overflow."""


def _holds(dtype: np.dtype[Any], result: Data) -> bool:
    """Whether numbers fit the type: an end of an interval that wraps around is none."""
    if not np.isfinite(result).all():
        return False
    if dtype.kind not in "iu":
        return True
    limits = np.iinfo(dtype)
    return bool((np.abs(result) < _FITS_INT64).all() and (result >= limits.min).all() and (result <= limits.max).all())


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
    return (replace(ctx.tensor(dtype or ctx.dtype(1), ctx.broadcast(0, 1)), span=_moved_span(ctx)),)


def _moved_span(ctx: NodeContext) -> tuple[int, int] | None:
    """The span of integers that all have one number added, taken off or as a factor; None for anything else."""
    for at, other in ((0, 1), (1, 0)):
        span, number = ctx.value(at).span, ctx.data(other)
        if span is None or number is None or number.size != 1 or number.dtype.kind not in "iu" or ctx.bounded:
            continue
        step = int(number.ravel()[0])
        match ctx.node.op_type:
            case "Add":
                return span[0] + step, span[1] + step
            case "Sub" if at == 0:
                return span[0] - step, span[1] - step
            case "Sub":
                return step - span[1], step - span[0]
            case "Mul":
                least, most = sorted((span[0] * step, span[1] * step))
                return least, most
    return None


@rule("Mod")
def _mod(ctx: NodeContext) -> Sequence[Value]:
    a, b = ctx.data(0), ctx.data(1)
    shape = ctx.broadcast(0, 1)
    if ctx.bounded:
        result = _mod_end(ctx)
        return (ctx.tensor(ctx.dtype(0), shape, result if result is None or result.shape == shape else None),)
    if a is None or b is None or not np.all(b):
        return (ctx.tensor(ctx.dtype(0), shape),)
    result = np.fmod(a, b) if ctx.integer("fmod", 0) else np.mod(a, b)
    return (ctx.tensor(ctx.dtype(0), shape, np.asarray(result, a.dtype)),)


def _mod_end(ctx: NodeContext) -> Data | None:
    """This run's end of the remainder by positive integers; it falls back to 0 at each multiple."""
    a, b, other_a, other_b = ctx.data(0), ctx.data(1), ctx.opposite(0), ctx.opposite(1)
    if a is None or b is None or other_a is None or other_b is None or a.dtype.kind not in "iu":
        return None
    if a.shape != other_a.shape or b.shape != other_b.shape:
        return None
    low, high = np.minimum(a, other_a), np.maximum(a, other_a)
    least, most = np.minimum(b, other_b), np.maximum(b, other_b)
    if (most < 1).any() or (ctx.integer("fmod", 0) and (low < 0).any()):
        return None
    if (least < 0).any():
        return None
    divisor = np.maximum(most, 1)
    if np.array_equal(least, most) and np.array_equal(low // divisor, high // divisor):
        return np.asarray((low if ctx.low_run else high) % divisor, a.dtype)
    if ctx.low_run:
        # what is less than every divisor stays as it is
        return np.asarray(np.where((low >= 0) & (high < least), low, 0), a.dtype)
    return np.asarray(np.where(low >= 0, np.minimum(high, divisor - 1), divisor - 1), a.dtype)


@rule("BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
def _bits(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.broadcast(0, 1)
    a, b = ctx.data(0), ctx.data(1)
    if ctx.bounded:
        result = _mask_end(ctx)
        return (ctx.tensor(ctx.dtype(0), shape, result if result is None or result.shape == shape else None),)
    if a is None or b is None:
        return (ctx.tensor(ctx.dtype(0), shape),)
    function: _Ufunc
    if ctx.node.op_type == "BitShift":
        function = np.left_shift if ctx.text("direction", "LEFT") == "LEFT" else np.right_shift
    else:
        function = {"BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor}[
            ctx.node.op_type
        ]
    return (ctx.tensor(ctx.dtype(0), shape, np.asarray(function(a, b), a.dtype)),)


def _mask_end(ctx: NodeContext) -> Data | None:
    """This run's end of a BitwiseAnd: from 0 to the lesser of what isn't negative."""
    a, b, other_a, other_b = ctx.data(0), ctx.data(1), ctx.opposite(0), ctx.opposite(1)
    if a is None or b is None or other_a is None or other_b is None or ctx.node.op_type != "BitwiseAnd":
        return None
    if a.shape != other_a.shape or b.shape != other_b.shape:
        return None
    first, second = (np.minimum(a, other_a) >= 0), (np.minimum(b, other_b) >= 0)
    if not (first | second).all():
        return None
    if ctx.low_run:
        return np.zeros(np.broadcast_shapes(a.shape, b.shape), a.dtype)
    most_a, most_b = np.maximum(a, other_a), np.maximum(b, other_b)
    return np.asarray(np.where(first & second, np.minimum(most_a, most_b), np.where(first, most_a, most_b)), a.dtype)


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
    if data is not None and target is not None and ctx.bounded:
        converted = _cast_end(ctx, data, target)
    else:
        converted = None if data is None or target is None else data.astype(target)
    if converted is None:
        span = ctx.value(0).span if dtype in (DataType.INT32, DataType.INT64) else None
        return (Value(dtype=dtype, shape=ctx.shape(0), is_constant=ctx.constant, span=span),)
    return (ctx.tensor(dtype, converted.shape, converted),)


def _cast_end(ctx: NodeContext, data: Data, target: np.dtype[np.generic]) -> Data | None:
    """This run's end of what is converted; None where a number does not fit and wraps around."""
    other = ctx.opposite(0)
    if other is None or other.shape != data.shape:
        return None
    if target.kind == "b":  # every number but 0 is true
        surely = (np.minimum(data, other) > 0) | (np.maximum(data, other) < 0)
        return np.asarray(surely if ctx.low_run else surely | (data != 0) | (other != 0))
    if target.kind in "iu" and not (
        _holds(target, np.trunc(data.astype(np.float64))) and _holds(target, np.trunc(other.astype(np.float64)))
    ):
        return None
    return np.asarray(data.astype(target))


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
