"""Gradients of what works on rows: softmax, normalizations, reductions, pooling, attention, recurrent cells."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

from neusight_onnx.backward.products import by_left, by_right, by_weight
from neusight_onnx.backward.registry import (
    BackwardContext,
    Derivative,
    Flow,
    Unknown,
    dense,
    differentiates,
)
from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import (
    Attention,
    Elementwise,
    Gemm,
    Kernel,
    Movement,
    Normalization,
    Pooling,
    Recurrent,
    Reduction,
    Softmax,
    TensorSpec,
)
from neusight_onnx.lowering.batch_norm import batch_norm_of
from neusight_onnx.lowering.grouped_norm import GroupNorm, group_norm_of, instance_norm_of
from neusight_onnx.lowering.normalization import fill
from neusight_onnx.lowering.reduction import reduced_axes

_STATISTIC = DataType.FLOAT32
_INDEX = DataType.INT64


def softmax_kernels(kernel: Softmax, gradient: TensorSpec) -> tuple[Kernel, ...]:
    """PyTorch multiplies g by the result in a kernel of its own, then sums rows and subtracts; log-softmax in one."""
    result = TensorSpec(dtype=kernel.output_dtype or kernel.dtype, shape=gradient.shape)
    backward = replace(kernel, fused=(), extra_inputs=(result,), extra_outputs=(), backward=True)
    if kernel.log:
        return (backward,)
    return (Elementwise(operations=("mul",), inputs=(gradient, result), output=result), backward)


@differentiates("Softmax", "LogSoftmax")
def softmax(context: BackwardContext) -> Derivative | Unknown:
    kernel = next((kernel for kernel in context.kernels if isinstance(kernel, Softmax)), None)
    if kernel is None:
        return Unknown(reason="its softmax was not lowered")
    return Derivative(
        kernels=(*context.contiguous_gradient(), *softmax_kernels(kernel, context.out())),
        flows=context.own(0),
        saved=(context.output_name(),),
    )


@differentiates("MaskedSoftmax", domain="neusight")
def masked_softmax(context: BackwardContext) -> Derivative | Unknown:
    """Scale, mask and softmax in one: the result alone is kept, the scale is a number, what was masked gets zeros."""
    found = softmax(context)
    if isinstance(found, Unknown):
        return found
    kernels = list(found.kernels)
    flows = dict(found.flows)
    for index in sorted(context.needs - {0}):
        kernels += context.summed(index)
        flows[index] = Flow()
    return Derivative(kernels=tuple(kernels), flows=flows, saved=found.saved)


def normalization_input(kernel: Normalization, gradient: TensorSpec, statistics: int) -> Normalization:
    """The kernel for the input's gradient: reads x, g, the scale and ``statistics`` numbers a row."""
    saved = TensorSpec(dtype=_STATISTIC, shape=(kernel.rows, statistics))
    fused = tuple(name for name in kernel.fused if name == "statistics")
    return replace(
        kernel, backward=True, fused=fused, extra_inputs=(gradient, saved), extra_outputs=(), output_dtype=None
    )


def normalization_parameters(kernel: Normalization, gradient: TensorSpec, count: int) -> Reduction:
    """The kernel for the gradients of scale and shift: sums over rows of g * (x - mean) * rstd and of g."""
    return Reduction(
        operation="norm_parameters",
        outputs=kernel.cols,
        reduced=kernel.rows,
        inner=kernel.cols,
        dtype=kernel.dtype,
        output=TensorSpec(dtype=kernel.dtype, shape=(count, kernel.cols)),
        fused=("sub", "mul", "mul"),
        extra_inputs=(gradient,),
    )


def _normalization(context: BackwardContext) -> Normalization | None:
    return next((kernel for kernel in context.kernels if isinstance(kernel, Normalization)), None)


@differentiates("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
@differentiates("SimplifiedLayerNormalization", domain="com.microsoft")
def layer(context: BackwardContext) -> Derivative | Unknown:
    """Two kernels: the input's gradient by rows, and those of scale and shift by columns. x, mean and rstd are kept."""
    kernel = _normalization(context)
    if kernel is None:
        return Unknown(reason="its normalization was not lowered")
    statistics = 2 if kernel.method == "layer" else 1
    kernels: list[Kernel] = [*context.contiguous_gradient()]
    if 0 in context.needs:
        kernels.append(normalization_input(kernel, context.out(), statistics))
    parameters = len(context.needs & {1, 2})
    if parameters:
        kernels.append(normalization_parameters(kernel, context.out(), parameters))
    return Derivative(
        kernels=tuple(kernels),
        flows=context.own(0, 1, 2),
        saved=(context.name(0),),
        kept_bytes=_STATISTIC.bytes_of(statistics * kernel.rows),
    )


@differentiates("BatchNormalization", inputs=(0, 1, 2))
def batch(context: BackwardContext) -> Derivative:
    """All three gradients at once: sums of g and g * x by channel, then the input's. x, mean and deviation are kept."""
    norm = batch_norm_of(context.forward)
    return Derivative(
        kernels=(*context.ordered_gradient(), *norm.backward(context.out())),
        flows=context.own(0, 1, 2),
        saved=(context.name(0),),
        kept_bytes=_STATISTIC.bytes_of(2 * norm.channels),
    )


def _grouped(context: BackwardContext) -> Derivative:
    """In PyTorch's own kernels; x, and a mean and a deviation of each group or channel, are kept."""
    is_group = context.op_type == "GroupNormalization"
    norm = group_norm_of(context.forward) if is_group else instance_norm_of(context.forward)
    rows = norm.n * (norm.groups if isinstance(norm, GroupNorm) else norm.c)
    parameters = len(context.needs & {1, 2})
    kernels = norm.backward(parameters) if isinstance(norm, GroupNorm) else norm.backward(context.out(), parameters)
    return Derivative(
        kernels=(*context.contiguous_gradient(), *kernels),
        flows={index: Flow() for index in sorted(context.needs & {0, 1, 2})},
        saved=(context.name(0),),
        kept_bytes=_STATISTIC.bytes_of(2 * rows),
    )


@differentiates("InstanceNormalization", "GroupNormalization", inputs=(0, 1, 2))
@differentiates("GroupNorm", domain="com.microsoft", inputs=(0, 1, 2))
def group(context: BackwardContext) -> Derivative | Unknown:
    """Sums by row, the input's gradient from them, and a small sum over samples for scale and shift."""
    if context.forward.runtime == "eager" and context.forward.node.domain == "":
        return _grouped(context)
    kernel = _normalization(context)
    if kernel is None:
        return Unknown(reason="its normalization was not lowered")
    kernels: list[Kernel] = [*context.contiguous_gradient(), normalization_input(kernel, context.out(), 2)]
    shape = context.shape(0)
    if context.needs & {1, 2} and len(shape) > 1:
        sums = TensorSpec(dtype=kernel.dtype, shape=(len(context.needs & {1, 2}), shape[1]))
        kernels.append(
            Reduction(
                operation="sum", outputs=shape[1], reduced=shape[0], inner=shape[1], dtype=kernel.dtype, output=sums
            )
        )
    return Derivative(
        kernels=tuple(kernels),
        flows={index: Flow() for index in sorted(context.needs & {0, 1, 2})},
        saved=(context.name(0),),
        kept_bytes=_STATISTIC.bytes_of(2 * kernel.rows),
    )


# --- Reductions -------------------------------------------------------------------------------------------------------


def _expanded(context: BackwardContext) -> tuple[int, ...]:
    """Strides of the result's gradient repeated along the reduced axes, whether the result keeps them or not."""
    strides, shape = context.gradient_strides(), context.shape(0)
    reduced = {axis % len(shape) for axis in reduced_axes(context.forward) or ()}
    if len(strides) == len(shape):
        return tuple(0 if axis in reduced else stride for axis, stride in enumerate(strides))
    kept = iter(strides)
    return tuple(0 if axis in reduced else next(kept, 0) for axis in range(len(shape)))


REDUCED: dict[str, tuple[str, tuple[str, ...]]] = {
    "ReduceL1": ("input", ("sign", "mul")),
    "ReduceL2": ("both", ("div", "mul")),
    "ReduceLogSum": ("input", ("div",)),
    "ReduceLogSumExp": ("both", ("sub", "exp", "mul")),
    "ReduceMax": ("both", ("eq", "div", "mul")),
    "ReduceMin": ("both", ("eq", "div", "mul")),
    "ReduceProd": ("both", ("mul", "div")),
    "ReduceSumSquare": ("input", ("mul", "mul")),
}
"""What is kept (the input, or the result, too), and the kernels over all elements."""


@differentiates("ReduceSum", inputs=(0,))
def reduced_sum(context: BackwardContext) -> Derivative:
    """A view: the gradient repeated."""
    return Derivative(flows={0: Flow(strides=dense(context.shape(0), _expanded(context)), shares=0)})


@differentiates("ReduceMean", inputs=(0,))
def reduced_mean(context: BackwardContext) -> Derivative:
    """The repeated gradient divided by the number of elements: one kernel that writes all of them."""
    return _divided(context)


def _divided(context: BackwardContext) -> Derivative:
    kernel = Elementwise(operations=("div",), inputs=(_over_reduced(context),), output=context.whole(0))
    return Derivative(kernels=(kernel,), flows=context.own(0))


def _over_reduced(context: BackwardContext) -> TensorSpec:
    """The result's gradient as a kernel repeats it over the input: 1 along each reduced axis, gone or not."""
    gradient, shape = context.gradient(), context.shape(0)
    if len(gradient.shape) == len(shape):
        return gradient
    strides = _expanded(context)
    return replace(gradient, shape=tuple(size if stride else 1 for size, stride in zip(shape, strides, strict=True)))


@differentiates(*REDUCED, inputs=(0,))
def reduced_by(context: BackwardContext) -> Derivative:
    """Kernels over all elements of the input, one of them with the repeated gradient."""
    kept, operations = REDUCED[context.op_type]
    whole = context.whole(0)
    kernels: list[Kernel] = [
        Elementwise(
            operations=(name,), inputs=(context.spec(0), *(() if place else (_over_reduced(context),))), output=whole
        )
        for place, name in enumerate(operations)
    ]
    saved = (context.name(0), *((context.output_name(),) if kept == "both" else ()))
    return Derivative(kernels=tuple(kernels), flows=context.own(0), saved=saved)


@differentiates("CumSum", inputs=(0,))
def cumulative(context: BackwardContext) -> Derivative:
    """The sum from the other end: flip, cumulative sum, flip."""
    out = context.out()
    flip = Elementwise(operations=("flip",), inputs=(out,), output=out)
    return Derivative(kernels=(flip, *context.kernels, flip), flows=context.own(0))


# --- Pooling ----------------------------------------------------------------------------------------------------------


@differentiates("MaxPool", "AveragePool", "LpPool", inputs=(0,))
@differentiates("MaxPool", "AveragePool", domain="com.microsoft.nchwc", inputs=(0,))
def windowed(context: BackwardContext) -> Derivative:
    """Each input element looks at the windows that hold it; a maximum's place was kept as int64, after a fill."""
    out, source = context.out(), context.whole(0)
    sizes = context.forward.integers("kernel_shape") or ()
    steps = context.forward.integers("strides") or (1,) * len(sizes)
    window = prod(ceil(size / step) for size, step in zip(sizes, steps, strict=False))
    is_max = context.op_type == "MaxPool"
    places = (TensorSpec(dtype=_INDEX, shape=out.shape),) if is_max else ()
    kernel = Pooling(
        operation="max_backward" if is_max else "average_backward",
        input=context.gradient(),
        output=source,
        window=max(window, 1),
        extra_inputs=places,
    )
    zeros = (fill(source),) if is_max else ()
    return Derivative(
        kernels=(*context.ordered_gradient(), *zeros, kernel),
        flows=context.own(0),
        saved=(context.name(0),),
        kept_bytes=sum(spec.byte_count for spec in places),
    )


@differentiates("GlobalAveragePool", inputs=(0,))
@differentiates("GlobalAveragePool", domain="com.microsoft.nchwc", inputs=(0,))
def everywhere(context: BackwardContext) -> Derivative:
    return _divided(context)


@differentiates("GlobalMaxPool", inputs=(0,))
@differentiates("GlobalMaxPool", domain="com.microsoft.nchwc", inputs=(0,))
def highest(context: BackwardContext) -> Derivative:
    """Zeros, and a write at each maximum's place."""
    source = context.whole(0)
    kernel = Elementwise(operations=("copy",), inputs=(context.gradient(),), output=context.out())
    return Derivative(
        kernels=(fill(source), kernel),
        flows=context.own(0),
        saved=(context.name(0),),
        kept_bytes=_INDEX.bytes_of(context.out().element_count),
    )


# --- Attention --------------------------------------------------------------------------------------------------------


def attention_kernels(kernel: Attention) -> tuple[Kernel, ...]:
    """What PyTorch launches for the three gradients, which one kernel makes.

    FlashAttention 2 sums g * result by query ahead of it. The memory-efficient kernel, which a mask is run by, sums
    within in 16 bits, and has the FP32 sums of the queries' gradient filled with zeros; in FP32 PyTorch multiplies and
    sums before, turns the sums, and fills where blocks share a query (launches of torch 2.9.1 on stand-ins for CUDA's
    libraries, A100 and H100).
    """
    rows = kernel.b * kernel.h * kernel.s
    gradients = replace(kernel, backward=True, cache_write_elements=0, extra_outputs=())
    if kernel.dtype is DataType.FLOAT32:
        return (*_dots_in_fp32(kernel), gradients)
    if kernel.mask is not None and kernel.dtype.bits == DataType.FLOAT16.bits:
        return (fill(TensorSpec(dtype=_STATISTIC, shape=(rows, kernel.d))), gradients)
    result = TensorSpec(dtype=kernel.dtype, shape=(rows, kernel.v))
    dot = Reduction(
        operation="sum",
        outputs=rows,
        reduced=kernel.v,
        dtype=kernel.dtype,
        output=TensorSpec(dtype=_STATISTIC, shape=(rows,)),
        fused=("mul",),
        extra_inputs=(result,),
    )
    return (dot, gradients)


KEYS_A_BLOCK = 64
ENOUGH_BLOCKS = 256
"""Of the memory-efficient kernel backwards: one block takes all keys of a head where heads alone are so many blocks and
the keys at most two blocks' (``kernel_backward.h``; 96 heads of 128 keys are split, 384 aren't)."""


def _dots_in_fp32(kernel: Attention) -> tuple[Kernel, ...]:
    """g * result, its sums by query, their copy from (b, s, h) to (b, h, s), zeros for what blocks add up."""
    heads = kernel.b * kernel.h
    rows = heads * kernel.s
    result = TensorSpec(dtype=kernel.dtype, shape=(rows, kernel.v))
    sums = TensorSpec(dtype=_STATISTIC, shape=(rows,))
    product = Elementwise(operations=("mul",), inputs=(result, result), output=result)
    dot = Reduction(operation="sum", outputs=rows, reduced=kernel.v, dtype=kernel.dtype, output=sums)
    size = sums.byte_count
    turned = Movement(operation="copy", dtype=sums.dtype, shape=(kernel.b, kernel.h, kernel.s), read=size, written=size)
    is_turned = kernel.h > 1 and kernel.s > 1
    blocks = 1 if heads >= ENOUGH_BLOCKS and kernel.t <= 2 * KEYS_A_BLOCK else ceil(kernel.t / KEYS_A_BLOCK)
    zeros = fill(TensorSpec(dtype=_STATISTIC, shape=(rows, kernel.d)))
    return (product, dot, *((turned,) if is_turned else ()), *((zeros,) if blocks > 1 else ()))


def _tokens_first(shape: tuple[int, ...], transposed: bool) -> tuple[int, ...] | None:
    """(b, h, s, d) (or (b, h, d, s)) as fused attention writes it: (b, s, h, d) in memory."""
    if len(shape) != 4:
        return None
    _, h, rows, cols = shape
    s, d = (cols, rows) if transposed else (rows, cols)
    strides = (s * h * d, d, 1, h * d) if transposed else (s * h * d, d, h * d, 1)
    return dense(shape, strides)


@differentiates("Attention", inputs=(0, 1, 2, 3))
@differentiates("ScaledDotProductAttention", domain="neusight", inputs=(0, 1, 2, 3))
def attention(context: BackwardContext) -> Derivative | Unknown:
    """Queries, keys, values, the result and a number a query are kept; the scores are made anew."""
    kernel = next((kernel for kernel in context.kernels if isinstance(kernel, Attention)), None)
    if kernel is None:
        return _attention_by_formula(context)
    recognised = context.op_type == "ScaledDotProductAttention"
    kernels: list[Kernel] = [*context.contiguous_gradient(), *attention_kernels(kernel)]
    flows: dict[int, Flow] = {
        index: Flow(strides=_tokens_first(context.shape(index), recognised and index == 1))
        for index in (0, 1, 2)
        if index in context.needs
    }
    if 3 in context.needs:
        scores = TensorSpec(dtype=kernel.dtype, shape=(kernel.b, kernel.h, kernel.s, kernel.t))
        kernels.append(_mask_sum(scores, context.whole(3)))
        flows[3] = Flow()
    saved = tuple(context.name(index) for index in (0, 1, 2))
    return Derivative(
        kernels=tuple(kernels),
        flows=flows,
        saved=(*saved, context.output_name()),
        kept_bytes=_STATISTIC.bytes_of(kernel.b * kernel.h * kernel.s),
    )


def _mask_sum(scores: TensorSpec, mask: TensorSpec) -> Reduction:
    """The gradient of a mask: that of the scores, summed over what it was repeated for."""
    return Reduction(
        operation="sum",
        outputs=mask.element_count,
        reduced=max(scores.element_count // max(mask.element_count, 1), 1),
        inner=mask.element_count,
        dtype=scores.dtype,
        output=mask,
    )


def _attention_by_formula(context: BackwardContext) -> Derivative | Unknown:
    """Of products and a softmax, of 16 bits in FP32 (not before PyTorch 2.5): scaled queries and keys, values and the
    softmax's result are kept as such."""
    products = [kernel for kernel in context.kernels if isinstance(kernel, Gemm)]
    softmax = next((kernel for kernel in context.kernels if isinstance(kernel, Softmax)), None)
    if len(products) != 2 or softmax is None:
        return Unknown(reason="its attention was not lowered")
    scores, values = products
    wide = scores.dtype
    narrow = context.out().dtype is not wide
    weights = TensorSpec(dtype=wide, shape=(scores.batch, scores.m, scores.n))
    gradient = replace(context.out(), dtype=wide)
    kernels: list[Kernel] = list(context.contiguous_gradient())
    if narrow:
        kernels.append(Elementwise(operations=("cast",), inputs=(context.out(),), output=gradient))
    kept_bytes = weights.byte_count
    kernels += [by_left(values, False), by_right(values, False)]
    if any(isinstance(kernel, Elementwise) and "dropout" in kernel.operations for kernel in context.kernels):
        mask = replace(weights, dtype=DataType.BOOL)
        kernels.append(Elementwise(operations=("mul",), inputs=(weights, mask), output=weights))
        kept_bytes += weights.byte_count + mask.byte_count  # the dropped weights, which values were multiplied with
    kernels += [*softmax_kernels(softmax, weights), by_left(scores, False), by_right(scores, False)]
    for index in (0, 1, 2):
        operand = context.whole(index)
        whole = replace(operand, dtype=wide)
        kept_bytes += whole.byte_count if narrow or index < 2 else 0
        if index < 2:
            kernels.append(Elementwise(operations=("mul",), inputs=(whole,), output=whole))
        if narrow:
            kernels.append(Elementwise(operations=("cast",), inputs=(whole,), output=operand))
    if 3 in context.needs:
        kernels.append(_mask_sum(weights, context.whole(3)))
    return Derivative(
        kernels=tuple(kernels),
        flows={index: Flow() for index in (0, 1, 2, 3) if index in context.needs},
        saved=() if narrow else (context.name(2),),
        kept_bytes=kept_bytes,
    )


# --- Recurrent cells --------------------------------------------------------------------------------------------------


@differentiates("LSTM", "GRU", "RNN", inputs=(0, 1, 2, 3, 5, 6))
def recurrent(context: BackwardContext) -> Derivative | Unknown:
    """The steps in reverse, then products for the input and for both weights; the gates of every step are kept.

    The steps leave the gradients of the initial states, too. Where the last states alone have a gradient, zeros stand
    for that of the steps' results (``_cudnn_rnn_backward`` in ``ATen/native/cudnn/RNN.cpp``).
    """
    product = next((kernel for kernel in context.kernels if isinstance(kernel, Gemm)), None)
    serial = next((kernel for kernel in context.kernels if isinstance(kernel, Recurrent)), None)
    if product is None or serial is None:
        return Unknown(reason="its steps were not lowered")
    steps = TensorSpec(dtype=serial.dtype, shape=(serial.steps, serial.b, serial.directions * serial.h))
    kernels: list[Kernel] = [*(() if 0 in context.arrived else (fill(steps),)), replace(serial, extra_outputs=())]
    if 0 in context.needs:
        kernels.append(by_left(product, False))
    if 1 in context.needs:
        kernels.append(by_weight(product, False))
    if 2 in context.needs:
        kernels.append(
            Gemm(
                batch=serial.directions,
                m=serial.gates * serial.h,
                n=serial.h,
                k=serial.steps * serial.b,
                transpose_a=True,
                dtype=serial.dtype,
            )
        )
    if 3 in context.needs:
        gates = serial.directions * serial.gates * serial.h
        rows = serial.steps * serial.b
        bias = context.whole(3)
        kernels.append(
            Reduction(operation="sum", outputs=gates, reduced=rows, inner=gates, dtype=serial.dtype, output=bias)
        )
    states = serial.directions * serial.steps * serial.b * serial.h
    return Derivative(
        kernels=tuple(kernels),
        flows=context.own(0, 1, 2, 3, 5, 6),
        saved=(context.name(0), context.output_name()),
        kept_bytes=serial.dtype.bytes_of(states * (serial.gates + 1)),
    )
