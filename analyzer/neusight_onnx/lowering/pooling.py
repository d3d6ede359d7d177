"""Windows over space."""

from __future__ import annotations

from math import prod

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import GatherScatter, Kernel, Pooling, TensorSpec
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.normalization import fill
from neusight_onnx.lowering.registry import Kernels, Outcome, lowers


@lowers("MaxPool", "AveragePool", "LpPool", gives="pooling")
@lowers("MaxPool", "AveragePool", domain="com.microsoft.nchwc", gives="pooling", note="as without blocks of channels")
def windowed(context: NodeContext) -> Outcome:
    window = prod(context.integers("kernel_shape") or ())
    operation = context.node.op_type.removesuffix("Pool").lower()
    extra: tuple[TensorSpec, ...] = ()
    if operation == "max" and (context.has_output(1) or context.runtime == "eager"):
        # PyTorch's max pooling on a GPU always writes where each maximum was, as int64.
        extra = (TensorSpec(dtype=DataType.INT64, shape=context.out().shape),)
    kernel = Pooling(
        operation=operation, input=context.spec(0), output=context.out(), window=window, extra_outputs=extra
    )
    copies = context.contiguous(0, channels_last=True)
    return Kernels(kernels=(*copies, kernel), layouts=context.channels_last_output())


@lowers("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", gives="pooling")
@lowers(
    "GlobalAveragePool",
    "GlobalMaxPool",
    domain="com.microsoft.nchwc",
    gives="pooling",
    note="as without blocks of channels",
)
def over_everything(context: NodeContext) -> Outcome:
    kernel = Pooling(
        operation="global_" + context.node.op_type.removeprefix("Global").removesuffix("Pool").lower(),
        input=context.spec(0),
        output=context.out(),
        window=prod(context.shape(0)[2:]),
    )
    return Kernels(kernels=(kernel,))


@lowers("NhwcMaxPool", "MaxpoolWithMask", domain="com.microsoft", gives="pooling")
def contributed(context: NodeContext) -> Outcome:
    window = prod(context.integers("kernel_shape") or ())
    kernel = Pooling(operation="max", input=context.spec(0), output=context.out(), window=window)
    return Kernels(kernels=(kernel,))


@lowers("MaxUnpool", gives="gather_scatter", note="zeros, then a scatter")
def unpool(context: NodeContext) -> Outcome:
    source, places = context.spec(0), context.spec(1)
    scatter = GatherScatter(
        operation="scatter",
        moved=source.element_count,
        run=1,
        dtype=source.dtype,
        index_count=places.element_count,
        index_dtype=places.dtype,
    )
    return Kernels(kernels=(fill(context.out()), scatter))


@lowers("MaxRoiPool", "RoiAlign", gives="pooling", note="reads at most the whole feature map")
@lowers("CropAndResize", domain="com.microsoft", gives="pooling")
def regions(context: NodeContext) -> Outcome:
    source, out = context.spec(0), context.out()
    ratio = context.integer("sampling_ratio", 0)
    spatial = prod(out.shape[2:])
    if context.node.op_type == "RoiAlign":
        # 4 neighbours for each sample; a ratio of 0 adapts to the region, 2 x 2 is its usual size
        window = 4 * (ratio * ratio if ratio else 4)
    elif context.node.op_type == "CropAndResize":
        window = 4
    else:
        window = max(prod(source.shape[2:]) // max(spatial, 1), 1)
    touched = min(source.element_count, out.element_count * window)
    read = source if touched == source.element_count else TensorSpec(dtype=source.dtype, shape=(touched,))
    kernels: tuple[Kernel, ...] = (Pooling(operation="region", input=read, output=out, window=window),)
    return Kernels(kernels=kernels)
