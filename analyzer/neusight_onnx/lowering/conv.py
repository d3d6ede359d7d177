"""Convolutions of any rank, plain and transposed."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Conv, Elementwise, Kernel, TensorSpec
from neusight_onnx.lowering.context import SEPARATE_BIAS, NodeContext, written_channels_last
from neusight_onnx.lowering.normalization import fill
from neusight_onnx.lowering.registry import Kernels, Outcome, lowers
from neusight_onnx.lowering.views import copy_kernel


def conv_kernel(
    context: NodeContext,
    *,
    data: int = 0,
    weight: int = 1,
    transposed: bool = False,
    last: bool = False,
    ordered: bool = False,
    dtype: DataType | None = None,
    epilogue: tuple[str, ...] = (),
    extra_read_bytes: int = 0,
) -> Conv:
    """Padding needs no word: the output's shape holds it. ``last``: data and output are (n, *spatial, c); ``ordered``:
    they lie so in memory."""
    source, filters, out = context.spec(data), context.spec(weight), context.out()
    rank = len(filters.shape) - 2
    spatial = source.shape[1:-1] if last else source.shape[2:]
    grid = out.shape[1:-1] if last else out.shape[2:]
    groups = context.integer("group", 1)
    kind = dtype or source.dtype
    ordered = ordered or last or context.channels_last(data)
    return Conv(
        n=source.shape[0],
        c=source.shape[-1] if last else source.shape[1],
        k=filters.shape[1] * groups if transposed else filters.shape[0],
        groups=groups,
        spatial=spatial,
        out=grid,
        filter=filters.shape[2:],
        strides=context.integers("strides") or (1,) * rank,
        dilations=context.integers("dilations") or (1,) * rank,
        transposed=transposed,
        channels_last=ordered,
        dtype=kind,
        input_dtype=None if source.dtype is kind else source.dtype,
        weight_dtype=None if filters.dtype is kind else filters.dtype,
        output_dtype=None if out.dtype is kind else out.dtype,
        epilogue=epilogue,
        extra_read_bytes=extra_read_bytes,
    )


def _channel_bias(context: NodeContext) -> Elementwise:
    """A bias in a kernel of its own: cuDNN's plain convolution has none."""
    out = context.out()
    bias = TensorSpec(dtype=out.dtype, shape=(out.shape[1],) + (1,) * (len(out.shape) - 2))
    return Elementwise(operations=("add",), inputs=(out, bias), output=out)


@lowers("Conv", "ConvTranspose", gives="conv", note="in eager and onnxruntime the bias is a kernel of its own")
def conv(context: NodeContext) -> Outcome:
    """PyTorch's convolution works and writes channels last where its input or its filters lie so
    (``cudnn_conv_suggest_memory_format`` of ATen/native/ConvUtils.h), and copies the one that doesn't. TorchInductor
    has both copied in every run where it decided so (``kernel/conv.py``)."""
    transposed = context.node.op_type == "ConvTranspose"
    biased = context.has(2)
    ordered = len(context.shape(0)) in context.order.ranks
    copies = context.dense_channels_last(0) if ordered else context.contiguous(0, channels_last=True)
    if ordered and not context.order.given:
        copies += context.dense_channels_last(1)
    layouts = written_channels_last(context.out().shape) if ordered else context.channels_last_output()
    kernels: list[Kernel] = list(copies)
    is_own = context.runtime == "eager" and not transposed and _is_pytorchs_depthwise(context, ordered=ordered)
    apart = biased and context.runtime in SEPARATE_BIAS and not is_own
    epilogue = ("bias",) if biased and not apart else ()
    kernel = conv_kernel(context, transposed=transposed, ordered=ordered, epilogue=epilogue)
    if context.runtime == "eager" and not transposed and (uneven := _uneven_pads(context)) is not None:
        padded = replace(context.spec(0), shape=(*context.shape(0)[:2], *uneven))
        kernels += [fill(padded), copy_kernel(context.dtype(0), context.shape(0), context.strides(0))]
        kernel = replace(kernel, spatial=uneven)
    kernels += [kernel, _channel_bias(context)] if apart else [kernel]
    return Kernels(kernels=tuple(kernels), layouts=layouts)


def _uneven_pads(context: NodeContext) -> tuple[int, ...] | None:
    """What PyTorch pads images to before a convolution of them: cuDNN has as many zeros in front as behind.

    None: nothing. (``conv2d`` with ``padding="same"`` and an even filter, and models that call ``pad`` themselves: a
    fill and a copy as torch 2.9.1 launches both.)
    """
    spatial, out, filters = context.shape(0)[2:], context.out().shape[2:], context.shape(1)[2:]
    rank = len(spatial)
    pads = context.integers("pads")
    more = [0] * rank
    if context.text("auto_pad", "NOTSET").startswith("SAME"):
        strides, dilations = (context.integers(name) or (1,) * rank for name in ("strides", "dilations"))
        for axis in range(rank):
            needed = (out[axis] - 1) * strides[axis] + (filters[axis] - 1) * dilations[axis] + 1 - spatial[axis]
            more[axis] = max(needed, 0) % 2
    elif pads is not None and len(pads) == 2 * rank:
        more = [abs(pads[axis + rank] - pads[axis]) for axis in range(rank)]
    return tuple(size + extra for size, extra in zip(spatial, more, strict=True)) if any(more) else None


CUDNN_DEPTHWISE_CHANNELS = 32
CUDNN_DEPTHWISE_FILTERS = (1, 3, 5)


def _is_pytorchs_depthwise(context: NodeContext, *, ordered: bool) -> bool:
    """Whether PyTorch's own kernel convolves channel by channel, which adds the bias itself.

    cuDNN has those of channels last and, in FP16 and up to two dimensions, those that ``use_cudnn_depthwise`` of
    ATen/native/Convolution.cpp picks (torch 2.9.1; launches of ten shapes on stand-ins for CUDA's libraries agree).
    MIOpen's adds none: on AMD's GPUs a kernel for the bias follows that isn't counted.
    """
    shape, filters = context.shape(0), context.shape(1)
    channels = shape[1]
    if not 1 < channels == context.integer("group", 1) or filters[0] % channels:
        return False
    if ordered or context.channels_last(0):
        return False
    rank = len(shape) - 2
    if context.dtype(0) is not DataType.FLOAT16 or rank > 2:
        return True
    strides = (1,) * (2 - rank) + (context.integers("strides") or (1,) * rank)
    dilations = context.integers("dilations") or (1,)
    (height, width), window = ((1,) * (2 - rank) + shape[2:]), ((1,) * (2 - rank) + filters[2:])
    is_taken = set(dilations) == {1} and channels >= CUDNN_DEPTHWISE_CHANNELS
    if not is_taken or (strides[0] != strides[1] and height != 1):
        return True
    return not _is_quick_in_cudnn(shape[0], channels, height, width, window, strides[1])


def _is_quick_in_cudnn(n: int, c: int, height: int, width: int, window: tuple[int, ...], stride: int) -> bool:
    """``check_cudnn_depthwise_workload_with_filter``: shapes whose kernel of cuDNN was found quicker there."""
    if height == 1 and stride == 1:
        return True
    taps = window[1]
    if window[0] != taps or taps not in CUDNN_DEPTHWISE_FILTERS or width < 7 or stride not in (1, 2):
        return False
    if stride == 1:
        return True
    if n == 1:
        return taps != 1 or width <= 28
    if taps == 1:
        return n <= 16 and c >= 128 and width <= 7
    return c >= 512 or (c >= 256 and width >= 28)


@lowers("DeformConv", gives="conv", note="a convolution that also reads offsets and masks")
def deformable(context: NodeContext) -> Outcome:
    extra = sum(context.spec(index).byte_count for index in (2, 4) if context.has(index))
    epilogue = ("bias",) if context.has(3) else ()
    return Kernels(kernels=(conv_kernel(context, epilogue=epilogue, extra_read_bytes=extra),))


@lowers("ConvInteger", gives="conv")
def integer(context: NodeContext) -> Outcome:
    extra = sum(spec.byte_count for index in (2, 3) if context.has(index) and (spec := context.spec(index)).shape)
    return Kernels(kernels=(conv_kernel(context, extra_read_bytes=extra),))


@lowers("FusedConv", "NhwcConv", "NhwcFusedConv", "ConvTransposeWithDynamicPads", domain="com.microsoft", gives="conv")
def contributed(context: NodeContext) -> Outcome:
    last = context.node.op_type.startswith("Nhwc")
    epilogue = ["bias"] if context.has(2) and context.node.op_type != "ConvTransposeWithDynamicPads" else []
    if context.node.op_type == "ConvTransposeWithDynamicPads" and context.has(3):
        epilogue.append("bias")
    if context.node.op_type in ("FusedConv", "NhwcFusedConv") and context.has(3):
        epilogue.append("add")
    activation = context.text("activation", "").lower()
    if activation:
        epilogue.append(activation)
    transposed = context.node.op_type == "ConvTransposeWithDynamicPads"
    return Kernels(kernels=(conv_kernel(context, transposed=transposed, last=last, epilogue=tuple(epilogue)),))


@lowers("Conv", domain="com.microsoft.nchwc", gives="conv", note="as without blocks, with the channels that pad them")
def blocked(context: NodeContext) -> Outcome:
    """x (n, c, h, w) by (k, c / groups, r, s), a bias, and a tensor to add; c and k fill whole blocks.

    The blocks fit one CPU's vectors. A GPU has no use for them, but the zeros that fill them are part of the model.
    """
    epilogue = [name for name, index in (("bias", 2), ("add", 3)) if context.has(index)]
    activation = context.text("activation", "").lower()
    if activation:
        epilogue.append(activation)
    return Kernels(kernels=(conv_kernel(context, epilogue=tuple(epilogue)),))


@lowers("CausalConvWithState", gives="conv", note="depthwise over time, with a state carried along")
@lowers(
    "CausalConvWithState", "VarlenCausalConvWithState", domain="com.microsoft", gives="conv", note="depthwise over time"
)
def causal(context: NodeContext) -> Outcome:
    """x (b, c, s) with filters (c, 1, w): every channel is a group. The state is read and written anew."""
    source, filters, out = context.spec(0), context.spec(1), context.out()
    channels, width = filters.shape[0], prod(filters.shape[1:])
    steps = out.element_count // max(channels, 1)
    bias, state = (3, 4) if context.node.op_type == "VarlenCausalConvWithState" else (2, 3)
    activation = context.text("activation", "none").lower()
    kernel = Conv(
        n=1,
        c=channels,
        k=channels,
        groups=channels,
        spatial=(steps,),
        out=(steps,),
        filter=(width,),
        strides=(1,),
        dilations=(1,),
        dtype=source.dtype,
        weight_dtype=None if filters.dtype is source.dtype else filters.dtype,
        epilogue=(*(("bias",) if context.has(bias) else ()), *((activation,) if activation != "none" else ())),
        extra_read_bytes=context.spec(state).byte_count if context.has(state) else 0,
        extra_write_bytes=sum(spec.byte_count for spec in context.other_outputs()),
    )
    return Kernels(kernels=(kernel,))


@lowers("WordConvEmbedding", domain="com.microsoft", gives="conv")
def word_embedding(context: NodeContext) -> Outcome:
    """Characters (s, w) are embedded, convolved over w and reduced by max: filters (k, 1, width, embedding)."""
    words, width = context.shape(0)[-2:]
    filters = context.spec(1)
    k, _, span, embedding = filters.shape
    kernel = Conv(
        n=words,
        c=1,
        k=k,
        spatial=(width, embedding),
        out=(max(width - span + 1, 1), 1),
        filter=(span, embedding),
        strides=(1, 1),
        dilations=(1, 1),
        dtype=filters.dtype,
        epilogue=("bias", "tanh", "max"),
    )
    return Kernels(kernels=(kernel,))
