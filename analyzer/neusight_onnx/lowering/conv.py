"""Convolutions of any rank, plain and transposed."""

from __future__ import annotations

from math import prod

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Conv, Elementwise, Kernel, TensorSpec
from neusight_onnx.lowering.context import SEPARATE_BIAS, NodeContext, written_channels_last
from neusight_onnx.lowering.registry import Kernels, Outcome, lowers


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
    if context.runtime in SEPARATE_BIAS and biased:
        kernels += [conv_kernel(context, transposed=transposed, ordered=ordered), _channel_bias(context)]
    else:
        epilogue = ("bias",) if biased else ()
        kernels.append(conv_kernel(context, transposed=transposed, ordered=ordered, epilogue=epilogue))
    return Kernels(kernels=tuple(kernels), layouts=layouts)


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
