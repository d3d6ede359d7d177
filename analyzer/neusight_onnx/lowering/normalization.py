"""Normalizations: a statistic over a group of elements, then scale and shift."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import (
    Elementwise,
    GatherScatter,
    Kernel,
    Movement,
    Normalization,
    Reduction,
    TensorSpec,
)
from neusight_onnx.lowering.batch_norm import batch_norm_of
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.grouped_norm import group_norm_of, instance_norm_of
from neusight_onnx.lowering.registry import Kernels, Outcome, lowers

SPLIT_INSTANCE_COLUMNS = 40_000
"""Elements from which an engine's instances are normalized in parts: those of 33,124 by one kernel that keeps no sums
in memory, those of 50,176 by several (64 channels; TensorRT for RTX 1.7.1, compute capability 8.6)."""


def _parameters(context: NodeContext, *indices: int) -> int:
    return sum(context.spec(index).element_count for index in indices if context.has(index))


@lowers("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization", gives="normalization")
@lowers("SimplifiedLayerNormalization", domain="com.microsoft", gives="normalization")
def layer(context: NodeContext) -> Outcome:
    """Rows are the dimensions before ``axis``, columns those from it on."""
    shape = context.shape(0)
    axis = context.integer("axis", -1) % max(len(shape), 1)
    of_module = context.integer("by_formula", 0) == 1
    by_formula = of_module or not context.executor.fused_rms_norm
    if context.runtime == "eager" and context.node.op_type != "LayerNormalization" and by_formula:
        return Kernels(
            kernels=(
                *context.contiguous(0),
                *_rms_by_parts(context, prod(shape[:axis]), prod(shape[axis:]), wide=of_module),
            )
        )
    kernel = Normalization(
        method="layer" if context.node.op_type == "LayerNormalization" else "rms",
        rows=prod(shape[:axis]),
        cols=prod(shape[axis:]),
        parameter_count=_parameters(context, 1, 2),
        dtype=context.dtype(0),
        extra_outputs=context.other_outputs(),
    )
    if context.runtime == "eager" and kernel.method == "layer" and context.executor.norm_kernels == 2:
        moments = Reduction(
            operation="mean",
            outputs=kernel.rows,
            reduced=kernel.cols,
            dtype=kernel.dtype,
            output=TensorSpec(dtype=DataType.FLOAT32, shape=(kernel.rows, 2)),
        )
        return Kernels(kernels=(*context.contiguous(0), moments, kernel))
    return Kernels(kernels=(*context.contiguous(0), kernel))


def _rms_by_parts(context: NodeContext, rows: int, cols: int, *, wide: bool) -> tuple[Kernel, ...]:
    """x (rows, cols) by its formula: squares, their means, plus epsilon, the inverse root, x times it, scaled.

    ``wide``: of 16 bits all but the scale is computed in float32, between two casts.
    """
    given = TensorSpec(dtype=context.dtype(0), shape=(rows, cols))
    x = replace(given, dtype=DataType.FLOAT32) if wide and given.dtype.bits < DataType.FLOAT32.bits else given
    mean = TensorSpec(dtype=x.dtype, shape=(rows, 1))
    steps: list[Kernel] = [
        *_cast(given, x),
        Elementwise(operations=("mul",), inputs=(x,), output=x),
        Reduction(operation="mean", outputs=rows, reduced=cols, dtype=x.dtype, output=mean),
        Elementwise(operations=("add",), inputs=(mean,), output=mean),
        Elementwise(operations=("rsqrt",), inputs=(mean,), output=mean),
        Elementwise(operations=("mul",), inputs=(x, mean), output=x),
        *_cast(x, given),
    ]
    if context.has(1):
        scale = TensorSpec(dtype=context.dtype(1), shape=(cols,))
        steps.append(Elementwise(operations=("mul",), inputs=(given, scale), output=given))
    return tuple(steps)


def _cast(source: TensorSpec, target: TensorSpec) -> tuple[Movement, ...]:
    """The kernel that casts a tensor, if the types differ."""
    if source.dtype is target.dtype:
        return ()
    size = (source.byte_count, target.byte_count)
    return (Movement(operation="cast", dtype=source.dtype, shape=source.shape, read=size[0], written=size[1]),)


@lowers("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain="com.microsoft", gives="normalization")
def skip_layer(context: NodeContext) -> Outcome:
    """input + skip (+ bias), normalized; the sum is written too where it is asked for."""
    shape = context.shape(0)
    simplified = context.node.op_type == "SkipSimplifiedLayerNormalization"
    bias = 3 if simplified else 4
    parameters = _parameters(context, *((2,) if simplified else (2, 3)))
    extra = [context.spec(1)]
    fused = ["add"]
    if context.has(bias):
        extra.append(context.spec(bias))
        fused.append("bias")
    kernel = Normalization(
        method="rms" if simplified else "layer",
        rows=prod(shape[:-1]),
        cols=shape[-1],
        parameter_count=parameters,
        dtype=context.dtype(0),
        fused=tuple(fused),
        extra_inputs=tuple(extra),
        extra_outputs=context.other_outputs(),
    )
    return Kernels(kernels=(kernel,))


@lowers("EmbedLayerNormalization", domain="com.microsoft", gives="depends", note="embeddings added, then normalized")
def embed_layer(context: NodeContext) -> Outcome:
    output = context.out()
    cols = output.shape[-1]
    rows = tuple(
        GatherScatter(
            operation="embedding",
            moved=output.element_count,
            run=cols,
            dtype=output.dtype,
            index_count=context.spec(0).element_count,
            index_dtype=context.dtype(0),
        )
        for table in (2, 3, 4)
        if context.has(table)
    )
    norm = Normalization(
        method="layer",
        rows=output.element_count // cols if cols else 0,
        cols=cols,
        parameter_count=_parameters(context, 5, 6),
        dtype=output.dtype,
        fused=("add",) * (len(rows) - 1),
        extra_inputs=(output,) * (len(rows) - 1),
        extra_outputs=context.other_outputs(),
    )
    return Kernels(kernels=(*rows, norm))


def _normalizes_by_batch(context: NodeContext) -> bool:
    """Whether the batch's own mean and variance are taken: an attribute says so, of another name and sense before 14.

    From 7 to 13 only the outputs beside Y say it, which exporters list at inference, too, and leave unused.
    """
    if context.version >= 14:
        return context.integer("training_mode", 0) == 1
    return context.version < 7 and context.integer("is_test", 0) == 0 and context.has_output(1)


@lowers("BatchNormalization", gives="normalization", note="at inference one pass: scale and shift per channel")
def batch(context: NodeContext) -> Outcome:
    """x (n, c, *spatial). In training the statistics of each channel are taken first: c rows of n * spatial."""
    shape = context.shape(0)
    channels = shape[1] if len(shape) > 1 else 1
    is_function = context.integer("own_statistics", 0) == 1
    if is_function and context.runtime == "eager":
        return Kernels(kernels=batch_norm_of(context).forward())
    if _normalizes_by_batch(context):
        copies = context.contiguous(0, channels_last=True)
        if context.runtime in ("eager", "compiled") and not is_function:
            kernels = batch_norm_of(context).forward()
            return Kernels(kernels=(*copies, *kernels), layouts=context.channels_last_output())
        training = Normalization(
            method="batch",
            rows=channels,
            cols=prod(shape) // channels if channels else 0,
            parameter_count=_parameters(context, 1, 2, 3, 4),
            dtype=context.dtype(0),
            fused=("statistics",),
            extra_outputs=context.other_outputs(),
        )
        return Kernels(kernels=(*copies, training), layouts=context.channels_last_output())
    rows = (shape[0] if shape else 1) * channels
    kernel = Normalization(
        method="batch",
        rows=rows,
        cols=prod(shape[2:]),
        parameter_count=_parameters(context, 1, 2, 3, 4),
        dtype=context.dtype(0),
    )
    before: tuple[Kernel, ...] = context.contiguous(0, channels_last=True)
    if len(shape) == 2 and context.runtime == "eager":
        before = (*before, *_of_running_statistics(channels))
    return Kernels(kernels=(*before, kernel), layouts=context.channels_last_output())


def _of_running_statistics(channels: int) -> tuple[Kernel, ...]:
    """What PyTorch's own batch normalization makes of running statistics: a copy of the means, inverse deviations.

    It takes features without positions, (n, c); cuDNN's takes images (as torch 2.9.1 launches LeViT on stand-ins for
    CUDA's libraries; ``_batch_norm_impl_index``).
    """
    wide = TensorSpec(dtype=DataType.FLOAT32, shape=(channels,))
    size = wide.byte_count
    return (
        Movement(operation="copy", dtype=wide.dtype, shape=wide.shape, read=size, written=size),
        Elementwise(operations=("rsqrt",), inputs=(wide,), output=wide),
    )


@lowers("InstanceNormalization", gives="normalization", note="a group is one channel of one sample")
def instance(context: NodeContext) -> Outcome:
    shape = context.shape(0)
    if context.runtime == "eager":
        return Kernels(kernels=(*context.contiguous(0), *instance_norm_of(context).forward()))
    kernel = Normalization(
        method="instance",
        rows=shape[0] * shape[1],
        cols=prod(shape[2:]),
        parameter_count=_parameters(context, 1, 2),
        dtype=context.dtype(0),
        is_split=context.runtime == "tensorrt" and prod(shape[2:]) >= SPLIT_INSTANCE_COLUMNS,
    )
    return Kernels(kernels=(*context.contiguous(0), kernel))


@lowers("GroupNormalization", gives="normalization")
def group(context: NodeContext) -> Outcome:
    shape = context.shape(0)
    if context.runtime == "eager":
        return Kernels(kernels=(*context.contiguous(0), *group_norm_of(context).forward()))
    groups = context.integer("num_groups", 1)
    kernel = Normalization(
        method="group",
        rows=shape[0] * groups,
        cols=prod(shape[1:]) // groups,
        parameter_count=_parameters(context, 1, 2),
        dtype=context.dtype(0),
        is_split=context.runtime == "tensorrt",
    )
    return Kernels(kernels=(*context.contiguous(0), kernel))


@lowers("GroupNorm", "SkipGroupNorm", domain="com.microsoft", gives="normalization")
def contributed_group(context: NodeContext) -> Outcome:
    source = context.spec(0)
    groups = context.integer("groups", 1)
    fused: tuple[str, ...] = ("silu",) if context.integer("activation", 0) else ()
    extra: tuple[TensorSpec, ...] = ()
    if context.node.op_type == "SkipGroupNorm":
        extra = tuple(context.spec(index) for index in (3, 4) if context.has(index))
        fused = ("add",) * len(extra) + fused
    kernel = Normalization(
        method="group",
        rows=source.shape[0] * groups,
        cols=prod(source.shape[1:]) // groups,
        parameter_count=_parameters(context, 1, 2),
        dtype=source.dtype,
        fused=fused,
        extra_inputs=extra,
        extra_outputs=(context.out(1),) if context.has_output(1) else (),
        is_split=True,
    )
    return Kernels(kernels=(kernel,))


@lowers("LRN", gives="normalization", note="over neighbouring channels")
def local_response(context: NodeContext) -> Outcome:
    shape = context.shape(0)
    kernel = Normalization(
        method="local_response", rows=shape[0] * prod(shape[2:]), cols=shape[1], dtype=context.dtype(0)
    )
    # pooled over channels in row-major order, but divided as the input lies
    return Kernels(kernels=(*context.contiguous(0), kernel), layouts=context.channels_last_output())


@lowers("LpNormalization", gives="normalization")
def lp(context: NodeContext) -> Outcome:
    shape = context.shape(0)
    axis = context.integer("axis", -1) % max(len(shape), 1)
    cols = shape[axis] if shape else 1
    rows = prod(shape) // cols if cols else 0
    kernel = Normalization(method="lp", rows=rows, cols=cols, dtype=context.dtype(0))
    return Kernels(kernels=(*context.contiguous(0), kernel))


@lowers("MeanVarianceNormalization", gives="normalization")
def mean_variance(context: NodeContext) -> Outcome:
    shape = context.shape(0)
    axes = {axis % len(shape) for axis in context.integers("axes") or (0, 2, 3)}
    cols = prod(size for axis, size in enumerate(shape) if axis in axes)
    rows = prod(shape) // cols if cols else 0
    kernel = Normalization(method="layer", rows=rows, cols=cols, dtype=context.dtype(0))
    return Kernels(kernels=(*context.contiguous(0), kernel))


@lowers("GatedRMSNorm", "BranchwiseRMSNorm", "RMSNormRotary", domain="com.microsoft", gives="normalization")
def contributed_rms(context: NodeContext) -> Outcome:
    shape = context.shape(0)
    cols = shape[-1]
    extra = tuple(context.spec(index) for index in range(1, len(context.inputs)) if context.has(index))
    kernel = Normalization(
        method="rms",
        rows=prod(shape[:-1]),
        cols=cols,
        dtype=context.dtype(0),
        fused=("mul",),
        extra_inputs=extra,
        extra_outputs=context.other_outputs(),
    )
    return Kernels(kernels=(kernel,))


def fill(spec: TensorSpec) -> Movement:
    """The kernel that writes a constant everywhere."""
    return Movement(operation="fill", dtype=spec.dtype, shape=spec.shape, read=0, written=spec.byte_count)
