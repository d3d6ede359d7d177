"""Operators that slide a window over space: convolutions and pooling, and what resamples space."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Value
from neusight_onnx.graph.shapes.context import NodeContext, UnknownShape
from neusight_onnx.graph.shapes.registry import rule

_CONTRIB = "com.microsoft"

NCHWC = "com.microsoft.nchwc"
"""Operators on ONNX Runtime's layout for one CPU's vectors: (n, c, *spatial), c in blocks, padded with zeros to whole
ones. It writes them into files that it saves at the level "all"."""

_BLOCK = 8
"""Channels in a block where nothing says more: 8 with AVX2 and NEON, 16 with AVX-512 (onnxruntime's MLAS)."""


def slide(
    ctx: NodeContext, spatial: Sequence[int], kernel: Sequence[int], *, ceil_mode: bool = False
) -> tuple[int, ...]:
    """Places of a window: floor((size + pads - dilation (kernel - 1) - 1) / stride) + 1 along each axis.

    With ``auto_pad`` SAME it is ceil(size / stride) whatever the window. With ``ceil_mode`` the last window may
    reach beyond the padding, but must not start there.
    """
    rank = len(spatial)
    strides = ctx.integer_list("strides") or (1,) * rank
    dilations = ctx.integer_list("dilations") or (1,) * rank
    pads = ctx.integer_list("pads") or (0,) * (2 * rank)
    auto_pad = ctx.text("auto_pad", "NOTSET")
    if not (len(kernel) == len(strides) == len(dilations) == rank and len(pads) == 2 * rank):
        # what is written for several numbers of dimensions fits none, whatever an input has
        written = {2 * len(kernel), 2 * len(strides), 2 * len(dilations), len(pads)}
        raise ctx.error(
            f"kernel {list(kernel)}, strides {list(strides)}, dilations {list(dilations)} and pads {list(pads)} "
            f"do not fit {rank} spatial dimensions",
            at_any_size=len(kernel) == rank and len(written) > 1,
        )
    if min(strides, default=1) < 1:
        raise ctx.error(f"strides {list(strides)} are not positive")
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        return tuple(-(-size // stride) for size, stride in zip(spatial, strides, strict=True))
    if auto_pad == "VALID":
        pads = (0,) * (2 * rank)
    result = []
    for axis, size in enumerate(spatial):
        stride = strides[axis]
        reach = dilations[axis] * (kernel[axis] - 1) + 1
        room = size + pads[axis] + pads[axis + rank] - reach
        if room < 0:
            ctx.require(
                size == 0 or ceil_mode,
                f"its window of {reach} does not fit axis {axis} of {list(spatial)}, pads {list(pads)}",
            )
            result.append(0)
            continue
        places = room // stride + 1
        if ceil_mode:
            places = -(-room // stride) + 1
            if (places - 1) * stride >= size + pads[axis]:
                places -= 1
        result.append(places)
    return tuple(result)


def _kernel_of(ctx: NodeContext, weight: tuple[int, ...]) -> tuple[int, ...]:
    return ctx.integer_list("kernel_shape") or weight[2:]


def conv_shape(ctx: NodeContext, x: tuple[int, ...], weight: tuple[int, ...]) -> tuple[int, ...]:
    """``(n, c, *spatial)`` by ``(k, c / groups, *kernel)`` -> ``(n, k, *places)``."""
    if len(x) != len(weight) or len(x) < 2:
        raise ctx.error(f"input and weight differ in rank: {ctx.shown(0, 1)}", at_any_size=True)
    groups = ctx.integer("group", 1)
    if x[1] != weight[1] * groups:
        ctx.require(False, f"{x[1]} channels are not {groups} groups of {weight[1]} ({ctx.shown(0, 1)})")
    kernel = _kernel_of(ctx, weight)
    if tuple(kernel) != weight[2:]:
        raise ctx.error(f"kernel_shape {list(kernel)} is not that of its weight ({ctx.shown(1)})", at_any_size=True)
    return (x[0], weight[0], *slide(ctx, x[2:], kernel))


@rule("Conv")
@rule("FusedConv", domain=_CONTRIB)
def _conv(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(ctx.dtype(0), conv_shape(ctx, ctx.shape(0), ctx.shape(1))),)


@rule("Conv", domain=NCHWC)
def _conv_blocked(ctx: NodeContext) -> Sequence[Value]:
    """The weight's channels are padded, too: they say how many there are, whatever block the file was made for."""
    x, weight = ctx.shape(0), ctx.shape(1)
    if len(x) != len(weight) or len(x) < 2:
        raise ctx.error(f"input and weight differ in rank: {ctx.shown(0, 1)}")
    return (ctx.tensor(ctx.dtype(0), (x[0], weight[0], *slide(ctx, x[2:], _kernel_of(ctx, weight)))),)


@rule("ReorderInput", domain=NCHWC)
def _reorder_input(ctx: NodeContext) -> Sequence[Value]:
    """(n, c, *spatial), or channels last -> (n, c in whole blocks, *spatial)."""
    n, *rest = ctx.shape(0)
    c, *spatial = (rest[-1], *rest[:-1]) if ctx.integer("channels_last", 0) else rest
    return (ctx.tensor(ctx.dtype(0), (n, -(-c // _BLOCK) * _BLOCK, *spatial)),)


@rule("ReorderOutput", domain=NCHWC)
def _reorder_output(ctx: NodeContext) -> Sequence[Value]:
    """(n, c in whole blocks, *spatial) -> (n, c, *spatial), or channels last."""
    n, blocked, *spatial = ctx.shape(0)
    c = ctx.integer("channels", blocked)
    return (ctx.tensor(ctx.dtype(0), (n, *spatial, c) if ctx.integer("channels_last", 0) else (n, c, *spatial)),)


@rule("Upsample", domain=NCHWC)
def _upsample_blocked(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    scales = ctx.integer_list("scales") or (1,) * len(shape)
    return (ctx.tensor(ctx.dtype(0), [size * scale for size, scale in zip(shape, scales, strict=True)]),)


@rule("ConvInteger")
def _conv_integer(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(DataType.INT32, conv_shape(ctx, ctx.shape(0), ctx.shape(1))),)


@rule("QLinearConv")
@rule("QLinearConv", domain=_CONTRIB)
def _qlinear_conv(ctx: NodeContext) -> Sequence[Value]:
    """x, its scale and zero point, w, its scale and zero point, y's scale and zero point, bias."""
    x, weight = ctx.shape(0), ctx.shape(3)
    if ctx.integer("channels_last", 0):
        n, k, *places = conv_shape(ctx, (x[0], x[-1], *x[1:-1]), weight)
        return (ctx.tensor(ctx.dtype(7), (n, *places, k)),)
    return (ctx.tensor(ctx.dtype(7), conv_shape(ctx, x, weight)),)


@rule("NhwcConv", "NhwcFusedConv", domain=_CONTRIB)
def _nhwc_conv(ctx: NodeContext) -> Sequence[Value]:
    """Channels last in the input (n, *spatial, c); the weight's layout is Conv's."""
    x, weight = ctx.shape(0), ctx.shape(1)
    n, k, *places = conv_shape(ctx, (x[0], x[-1], *x[1:-1]), weight)
    return (ctx.tensor(ctx.dtype(0), (n, *places, k)),)


@rule("DeformConv")
def _deform_conv(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(ctx.dtype(0), conv_shape(ctx, ctx.shape(0), ctx.shape(1))),)


@rule("ConvTranspose")
@rule("ConvTransposeWithDynamicPads", domain=_CONTRIB)
def _conv_transpose(ctx: NodeContext) -> Sequence[Value]:
    """``(n, c, *spatial)`` by ``(c, k / groups, *kernel)``: stride (size - 1) + reach + output_padding - pads."""
    x, weight = ctx.shape(0), ctx.shape(1)
    if len(x) != len(weight):
        raise ctx.error(f"input and weight differ in rank: {ctx.shown(0, 1)}")
    if x[1] != weight[0]:
        ctx.require(False, f"{x[1]} channels of the input are not the weight's {weight[0]} ({ctx.shown(0, 1)})")
    rank = len(x) - 2
    channels = weight[1] * ctx.integer("group", 1)
    given = ctx.integer_list("output_shape")
    if given:
        return (ctx.tensor(ctx.dtype(0), (x[0], channels, *given[-rank:])),)
    kernel = _kernel_of(ctx, weight)
    strides = ctx.integer_list("strides") or (1,) * rank
    dilations = ctx.integer_list("dilations") or (1,) * rank
    extra = ctx.integer_list("output_padding") or (0,) * rank
    pads: Sequence[int] = ctx.integer_list("pads") or (0,) * (2 * rank)
    if ctx.node.op_type == "ConvTransposeWithDynamicPads" and ctx.has(2):
        pads = ctx.integers(2)
    auto_pad = ctx.text("auto_pad", "NOTSET")
    places = []
    for axis, size in enumerate(x[2:]):
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            places.append(size * strides[axis])
            continue
        padding = 0 if auto_pad == "VALID" else pads[axis] + pads[axis + rank]
        reach = dilations[axis] * (kernel[axis] - 1) + 1
        places.append(strides[axis] * (size - 1) + reach + extra[axis] - padding)
    return (ctx.tensor(ctx.dtype(0), (x[0], channels, *places)),)


@rule("MaxPool")
@rule("MaxPool", domain=NCHWC)
def _max_pool(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    kernel = ctx.integer_list("kernel_shape") or ()
    places = slide(ctx, shape[2:], kernel, ceil_mode=bool(ctx.integer("ceil_mode", 0)))
    result = (*shape[:2], *places)
    return (ctx.tensor(ctx.dtype(0), result), ctx.tensor(DataType.INT64, result))


@rule("AveragePool", "LpPool")
@rule("AveragePool", domain=NCHWC)
@rule("MaxpoolWithMask", domain=_CONTRIB)
def _average_pool(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    kernel = ctx.integer_list("kernel_shape") or ()
    if ctx.node.op_type == "LpPool" and ctx.node.version < 2 and len(kernel) != len(shape) - 2:
        raise ctx.error("its kernel_shape is missing")
    places = slide(ctx, shape[2:], kernel, ceil_mode=bool(ctx.integer("ceil_mode", 0)))
    return (ctx.tensor(ctx.dtype(0), (*shape[:2], *places)),)


@rule("NhwcMaxPool", domain=_CONTRIB)
def _nhwc_max_pool(ctx: NodeContext) -> Sequence[Value]:
    n, *spatial, c = ctx.shape(0)
    places = slide(ctx, spatial, ctx.integer_list("kernel_shape") or (), ceil_mode=bool(ctx.integer("ceil_mode", 0)))
    return (ctx.tensor(ctx.dtype(0), (n, *places, c)),)


@rule("QLinearAveragePool", domain=_CONTRIB)
def _qlinear_average_pool(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    kernel = ctx.integer_list("kernel_shape") or ()
    ceil_mode = bool(ctx.integer("ceil_mode", 0))
    if ctx.integer("channels_last", 0):
        places = slide(ctx, shape[1:-1], kernel, ceil_mode=ceil_mode)
        return (ctx.tensor(ctx.dtype(0), (shape[0], *places, shape[-1])),)
    return (ctx.tensor(ctx.dtype(0), (*shape[:2], *slide(ctx, shape[2:], kernel, ceil_mode=ceil_mode))),)


@rule("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
@rule("GlobalAveragePool", "GlobalMaxPool", domain=NCHWC)
def _global_pool(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    return (ctx.tensor(ctx.dtype(0), (*shape[:2], *(1,) * (len(shape) - 2))),)


@rule("QLinearGlobalAveragePool", domain=_CONTRIB)
def _qlinear_global_pool(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    ones = (1,) * (len(shape) - 2)
    result = (shape[0], *ones, shape[-1]) if ctx.integer("channels_last", 0) else (*shape[:2], *ones)
    return (ctx.tensor(ctx.dtype(0), result),)


@rule("MaxUnpool")
def _max_unpool(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    if ctx.has(2):
        return (ctx.tensor(ctx.dtype(0), ctx.integers(2)),)
    rank = len(shape) - 2
    kernel = ctx.integer_list("kernel_shape") or ()
    strides = ctx.integer_list("strides") or (1,) * rank
    pads = ctx.integer_list("pads") or (0,) * (2 * rank)
    places = [
        strides[axis] * (size - 1) + kernel[axis] - pads[axis] - pads[axis + rank]
        for axis, size in enumerate(shape[2:])
    ]
    return (ctx.tensor(ctx.dtype(0), (*shape[:2], *places)),)


@rule("MaxRoiPool")
def _max_roi_pool(ctx: NodeContext) -> Sequence[Value]:
    pooled = ctx.integer_list("pooled_shape") or ()
    return (ctx.tensor(ctx.dtype(0), (ctx.shape(1)[0], ctx.shape(0)[1], *pooled)),)


@rule("RoiAlign")
def _roi_align(ctx: NodeContext) -> Sequence[Value]:
    size = (ctx.integer("output_height", 1), ctx.integer("output_width", 1))
    return (ctx.tensor(ctx.dtype(0), (ctx.shape(1)[0], ctx.shape(0)[1], *size)),)


@rule("CropAndResize", domain=_CONTRIB)
def _crop_and_resize(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(ctx.dtype(0), (ctx.shape(1)[0], ctx.shape(0)[1], *ctx.integers(3))),)


@rule("GridSample")
@rule("GridSample", domain=_CONTRIB)
def _grid_sample(ctx: NodeContext) -> Sequence[Value]:
    """x (n, c, *spatial), grid (n, *out, rank) -> (n, c, *out)."""
    shape, grid = ctx.shape(0), ctx.shape(1)
    return (ctx.tensor(ctx.dtype(0), (*shape[:2], *grid[1:-1])),)


@rule("AffineGrid")
def _affine_grid(ctx: NodeContext) -> Sequence[Value]:
    """theta (n, r, r + 1), size (n, c, *spatial) -> (n, *spatial, r)."""
    n, _, *spatial = ctx.integers(1)
    return (ctx.tensor(ctx.dtype(0), (n, *spatial, len(spatial))),)


def scaled(size: int, scale: float) -> int:
    """floor(size x scale) in the float32 in which runtimes compute it."""
    return floor(np.float32(size) * np.float32(scale))


@rule("Upsample")
def _upsample(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    if ctx.node.version < 7 and "scales" not in ctx.node.attributes:
        n, c, h, w = shape
        result = [n, c, scaled(h, ctx.number("height_scale", 1.0)), scaled(w, ctx.number("width_scale", 1.0))]
        return (ctx.tensor(ctx.dtype(0), result),)
    scales: Sequence[float] = ctx.number_list("scales") or ctx.known(1).ravel().tolist()
    return (ctx.tensor(ctx.dtype(0), [scaled(size, scale) for size, scale in zip(shape, scales, strict=True)]),)


@rule("Resize")
def _resize(ctx: NodeContext) -> Sequence[Value]:
    """Sizes as given, or each dimension times its scale, rounded down; opset 18 can name axes and keep the aspect."""
    shape = ctx.shape(0)
    if ctx.node.version < 11:
        scales = ctx.known(1).ravel().tolist()
        return (ctx.tensor(ctx.dtype(0), [scaled(size, scale) for size, scale in zip(shape, scales, strict=True)]),)
    axes = ctx.integer_list("axes")
    places = list(range(len(shape))) if axes is None else [ctx.axis(axis, len(shape)) for axis in axes]
    result = list(shape)
    if ctx.has(3) and ctx.shape(3) != (0,):
        sizes = ctx.integers(3)
        policy = ctx.text("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            ratios = [size / shape[place] for size, place in zip(sizes, places, strict=True)]
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            sizes = [floor(ratio * shape[place] + 0.5) for place in places]
        for place, size in zip(places, sizes, strict=True):
            result[place] = size
        return (ctx.tensor(ctx.dtype(0), result),)
    if not ctx.has(2):
        raise ctx.error("it has neither scales nor sizes")
    scales = ctx.known(2).ravel().tolist()
    if min(scales, default=1) <= 0:
        raise ctx.error(f"scales {scales} are not positive", at_any_size=True)
    if not scales:
        raise UnknownShape(None)
    crop = ctx.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    region = ctx.known(1).ravel().tolist() if crop else []
    for index, (place, scale) in enumerate(zip(places, scales, strict=True)):
        part = region[index + len(places)] - region[index] if crop else 1.0
        result[place] = scaled(shape[place], scale * part) if crop else scaled(shape[place], scale)
    return (ctx.tensor(ctx.dtype(0), result),)


@rule("CausalConvWithState")
def _causal_conv(ctx: NodeContext) -> Sequence[Value]:
    """x (b, c, l), weight (c, 1, k) -> x's shape, and the last k - 1 positions (b, c, k - 1)."""
    b, c, _ = ctx.shape(0)
    return (ctx.same(), ctx.tensor(ctx.dtype(0), (b, c, ctx.shape(1)[-1] - 1)))


@rule("CausalConvWithState", domain=_CONTRIB)
def _causal_conv_contrib(ctx: NodeContext) -> Sequence[Value]:
    """As ai.onnx's in one dimension; a past state that is given has the present state's shape."""
    x, weight = ctx.shape(0), ctx.shape(1)
    last = bool(ctx.integer("channels_last", 0))
    channels = ctx.integer("input_channels", 0)
    output = (*x[:-1], channels) if last and channels else x
    if ctx.has(3):
        present = ctx.same(3)
    else:
        length = ctx.integer("state_length", 0) or (weight[-1] - 1) * ctx.integer("dilation", 1)
        c = x[-1] if last else x[1]
        present = ctx.tensor(ctx.dtype(0), (x[0], c, length, *(x[3:] if not last else ())))
    capacity = ctx.integer("state_update_capacity", 0)
    update = ctx.tensor(ctx.dtype(0), (x[0], capacity, channels or x[-1]))
    return (ctx.tensor(ctx.dtype(0), output), present, update)


@rule("VarlenCausalConvWithState", domain=_CONTRIB)
def _varlen_causal_conv(ctx: NodeContext) -> Sequence[Value]:
    state = ctx.same(4)
    batch, channels, *_ = ctx.shape(4)
    return (ctx.same(), state, ctx.tensor(ctx.dtype(0), (batch, ctx.integer("state_update_capacity", 0), channels)))
