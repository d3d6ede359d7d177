"""What moves elements without computing: transposes, views, slices, concatenation, padding, fills, resizing."""

from __future__ import annotations

from math import gcd, prod

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Elementwise, Movement
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.elementwise import alias
from neusight_onnx.lowering.normalization import fill
from neusight_onnx.lowering.registry import Free, Kernels, Outcome, lowers
from neusight_onnx.lowering.views import Layout
from neusight_onnx.strides import expand_strides, is_channels_last, view_strides

METADATA = "only the shape changes, no element moves"
VIEW = "a view: strides change, no element moves"


def move(context: NodeContext, operation: str, *, read: int | None = None, index: int = 0) -> Kernels:
    """One kernel that writes output 0 and reads as many elements (or ``read``)."""
    out = context.out()
    count = out.element_count if read is None else read
    dtype = context.dtype(index)
    kernel = Movement(
        operation=operation, dtype=dtype, shape=out.shape, read=dtype.bytes_of(count), written=out.byte_count
    )
    return Kernels(kernels=(kernel,))


def _on_host(context: NodeContext) -> bool:
    """Whether the first input is text."""
    value = context.value(0)
    return value is not None and value.dtype is DataType.STRING


TEXT = Free(reason="text is handled on the host", host=True)


@lowers(
    "Reshape",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    gives="free",
    note="a view; a copy where strides forbid it",
    needs_shapes=False,
)
@lowers("ExpandDims", domain="com.microsoft", gives="free", note="a view", needs_shapes=False)
def reshape(context: NodeContext) -> Outcome:
    """A view where the strides allow it; else (lazy views only) the copy that an earlier view has put off."""
    layout = context.layout(0)
    if layout is None:
        return Free(reason=METADATA, host=True)
    source, target = context.inputs[0], context.outputs[0]
    if source is None or target is None or source.shape is None or target.shape is None:
        return Free(reason=METADATA, host=True)
    strides = view_strides(source.shape, layout.strides, target.shape)
    if strides is None:
        return Kernels(kernels=context.contiguous(0))
    return Free(reason=METADATA, host=True, layouts=(context.view(0, target.shape, strides),))


@lowers(
    "MemcpyFromHost",
    "MemcpyToHost",
    gives="free",
    note="copies from and to the host are not counted",
    needs_shapes=False,
)
def memcpy(context: NodeContext) -> Outcome:
    return alias(context, "copies from and to the host are not counted")


@lowers("Identity", gives="free", note="passes its input on", needs_shapes=False)
def identity(context: NodeContext) -> Outcome:
    return alias(context, "passes its input on")


@lowers("SliceAssignment", domain="neusight", gives="depends", note="recognised: a slice that is written in place")
def slice_assignment(context: NodeContext) -> Outcome:
    """x and the elements y of its slice: PyTorch copies y there; a compiled loop selects between the two everywhere."""
    updates = context.spec(1)
    if context.runtime == "compiled":
        kernel = Elementwise(operations=("where",), inputs=(context.spec(0), updates), output=context.out())
        return Kernels(kernels=(kernel,))
    size = updates.byte_count
    copy = Movement(operation="copy", dtype=updates.dtype, shape=updates.shape, read=size, written=size)
    return Kernels(kernels=(copy,), layouts=(context.layout(0),))


@lowers("InPlace", domain="neusight", gives="free", note="recognised: read where it lies")
def in_place(context: NodeContext) -> Outcome:
    return Free(reason="read where it lies by the kernels behind it")


@lowers("Shape", "Size", gives="free", note="shape arithmetic on the host", needs_shapes=False)
def shape(context: NodeContext) -> Outcome:
    return Free(reason="shape arithmetic on the host")


@lowers("Constant", gives="free", note="part of the model", needs_shapes=False)
def constant(context: NodeContext) -> Outcome:
    return Free(reason="part of the model")


@lowers("Transpose", gives="movement", note="a view in eager and compiled")
def transpose(context: NodeContext) -> Outcome:
    source = context.shape(0)
    axes = context.integers("perm") or tuple(range(len(source) - 1, -1, -1))
    moved = [axis for axis in axes if source[axis] != 1]
    if moved == sorted(moved) and context.layout(0) is None:
        return Free(reason="only dimensions of size 1 change places", host=True)
    if not context.lazy:
        dtype = context.dtype(0)
        size = dtype.bytes_of(prod(source))
        kernel = Movement(operation="transpose", dtype=dtype, shape=source, permutation=axes, read=size, written=size)
        return Kernels(kernels=(kernel,))
    strides = context.strides(0)
    target = tuple(source[axis] for axis in axes)
    return Free(reason=VIEW, host=True, layouts=(context.view(0, target, tuple(strides[axis] for axis in axes)),))


@lowers("Expand", gives="movement", note="a view in eager and compiled")
def expand(context: NodeContext) -> Outcome:
    source, target = context.shape(0), context.out().shape
    if prod(source) == prod(target) and context.layout(0) is None:
        return Free(reason=METADATA, host=True)
    if not context.lazy:
        return move(context, "expand", read=prod(source))
    strides = expand_strides(source, context.strides(0), target)
    return Free(reason=VIEW, host=True, layouts=(context.view(0, target, strides),))


@lowers("Slice", gives="movement", note="a view in eager and compiled, unless a step is negative")
def slice_(context: NodeContext) -> Outcome:
    if _on_host(context):
        return TEXT
    source, target = context.shape(0), context.out().shape
    steps = context.ints(4) if context.has(4) else None
    rank = len(source)
    axes = context.ints(3) if context.has(3) else context.integers("axes")
    pairs = dict(zip((axis % rank for axis in axes or range(rank)), steps or (), strict=False))
    if source == target and all(step > 0 for step in pairs.values()):
        return alias(context, "keeps everything", host=True)
    if not context.lazy:
        is_copy = context.runtime == "onnxruntime" and all(step == 1 for step in pairs.values())
        return move(context, "copy" if is_copy and _lies_together(source, target) else "slice")
    if any(step < 0 for step in pairs.values()):
        return move(context, "flip")
    strides = tuple(stride * pairs.get(axis, 1) for axis, stride in enumerate(context.strides(0)))
    return Free(reason=VIEW, host=True, layouts=(context.view(0, target, strides),))


def _lies_together(source: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether a slice of ``target`` is one run of ``source``'s elements, which ONNX Runtime has the driver copy.

    So it is where nothing but ones stands in front of the last dimension that is cut.
    """
    last = max((axis for axis, (old, new) in enumerate(zip(source, target, strict=True)) if old != new), default=0)
    return all(size == 1 for size in target[:last])


def _parts(context: NodeContext, source: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """Sizes of a split's results along its axis, which those of size 1 may have lost; () where not all are known."""
    counts = [value.element_count for value in context.outputs if value is not None]
    each = prod(source[:axis]) * prod(source[axis + 1 :])
    known = [count for count in counts if count is not None]
    return tuple(count // each for count in known) if each and len(known) == len(context.outputs) else ()


@lowers("Split", gives="movement", note="views in eager and compiled")
def split(context: NodeContext) -> Outcome:
    if len(context.outputs) == 1:
        return alias(context, "into one part: passes its input on")
    if not context.lazy:
        source = context.spec(0)
        axis = context.integer("axis", 0) % max(len(source.shape), 1)
        parts = _parts(context, source.shape, axis)
        kernel = Movement(
            operation="split",
            dtype=source.dtype,
            shape=source.shape,
            read=source.byte_count,
            written=source.byte_count,
            run=max(gcd(*parts) * prod(source.shape[axis + 1 :]), 1),
            parts=parts,
        )
        return Kernels(kernels=(kernel,))
    strides = context.strides(0)
    layouts: list[Layout | None] = []
    for value in context.outputs:
        known = value is not None and value.shape is not None
        layouts.append(context.view(0, value.shape, strides) if known and value.shape is not None else None)  # type: ignore[union-attr]  # known says it is there
    return Free(reason=VIEW, host=True, layouts=tuple(layouts))


@lowers("Concat", gives="movement")
def concat(context: NodeContext) -> Outcome:
    """One kernel. PyTorch's takes strided inputs as they are, others run by run.

    In eager mode tensors of several types, and of more than ``PARALLEL_CAT_DIMENSIONS``, are copied one by one.
    """
    if _on_host(context):
        return TEXT
    parts = [context.spec(index) for index in range(len(context.inputs)) if context.has(index)]
    full = [part for part in parts if part.element_count]
    if len(parts) == 1:
        return alias(context, "of one input, it is that input")
    out = context.out()
    strided = any(context.layout(index) is not None for index in range(len(context.inputs)) if context.has(index))
    axis = context.integer("axis", 1 if context.version < 4 else 0) % max(len(out.shape), 1)
    run = 1 if strided else max(gcd(*(prod(part.shape[axis:]) for part in full)), 1)
    layouts: tuple[Layout | None, ...] = ()
    present = [index for index in range(len(context.inputs)) if context.has(index)]
    if strided and all(map(context.channels_last, present)):
        layouts = context.channels_last_output(present[0])
        if all(is_channels_last(context.shape(index), context.strides(index)) for index in present):
            run = max(gcd(*(_inside(part.shape, axis) for part in full)), 1)
    apart = len(out.shape) > PARALLEL_CAT_DIMENSIONS or len({part.dtype for part in full}) > 1
    kernels = tuple(
        Movement(
            operation="concat",
            dtype=out.dtype,
            shape=out.shape if group is full else group[0].shape,
            read=sum(part.byte_count for part in group),
            written=out.dtype.bytes_of(sum(part.element_count for part in group)),
            run=run,
        )
        for group in ([[part] for part in full] if context.runtime == "eager" and apart else [full])
    )
    return Kernels(kernels=kernels, layouts=layouts)


PARALLEL_CAT_DIMENSIONS = 4
"""Dimensions of the largest result that PyTorch's kernel of all inputs writes (CAT_ARRAY_MAX_INPUT_DIMS of ATen's
native/cuda/Shape.cu, which also asks for one type)."""


def _inside(shape: tuple[int, ...], axis: int) -> int:
    """Elements of (n, c, *spatial) from an axis on, as they lie in (n, *spatial, c) order."""
    order = (0, *range(2, len(shape)), 1)
    return prod(shape[other] for other in order[order.index(axis) :])


@lowers("Tile", gives="movement")
def tile(context: NodeContext) -> Outcome:
    if context.shape(0) == context.out().shape:
        return alias(context, "repeats nothing", host=True)
    return move(context, "tile", read=context.spec(0).element_count)


@lowers("Pad", gives="movement", note="in eager a constant one is a fill and a copy")
@lowers("Pad", domain="com.microsoft", gives="movement")
def pad(context: NodeContext) -> Outcome:
    source, out = context.spec(0), context.out()
    kept = min(source.element_count, out.element_count)
    constant = context.text("mode", "constant") == "constant"
    if context.runtime == "eager" and constant:
        size = source.dtype.bytes_of(kept)
        copy = Movement(operation="copy", dtype=source.dtype, shape=source.shape, read=size, written=size)
        if source.shape == out.shape:  # a clone (aten's constant_pad_nd)
            return Kernels(kernels=(copy,), layouts=context.channels_last_output())
        return Kernels(kernels=(fill(out), copy), layouts=context.channels_last_output())
    if source.shape == out.shape:
        return alias(context, "pads nothing", host=True)
    layouts = context.channels_last_output() if constant else ()
    return Kernels(kernels=move(context, "pad", read=kept).kernels, layouts=layouts)


@lowers("ConstantOfShape", "Range", "EyeLike", gives="movement", note="a fill; small ones are known on the host")
@lowers("Range", domain="com.microsoft", gives="movement")
def made(context: NodeContext) -> Outcome:
    return Kernels(kernels=(fill(context.out()),))


@lowers("HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix", gives="movement", note="a fill")
def windows(context: NodeContext) -> Outcome:
    return Kernels(kernels=(fill(context.out()),))


@lowers("DepthToSpace", "SpaceToDepth", gives="movement")
def rearrange(context: NodeContext) -> Outcome:
    """A permutation of (n, c', b, b, h, w): one copy."""
    n, c, h, w = context.shape(0)
    block = context.integer("blocksize", 1)
    if block == 1:
        return alias(context, "of blocks of one, nothing moves", host=True)
    if context.node.op_type == "SpaceToDepth":
        shape, axes = (n, c, h // block, block, w // block, block), (0, 3, 5, 1, 2, 4)
    elif context.text("mode", "DCR") == "DCR":
        shape, axes = (n, block, block, c // block**2, h, w), (0, 3, 4, 1, 5, 2)
    else:
        shape, axes = (n, c // block**2, block, block, h, w), (0, 1, 4, 2, 5, 3)
    dtype = context.dtype(0)
    size = dtype.bytes_of(prod(shape))
    kernel = Movement(operation="transpose", dtype=dtype, shape=shape, permutation=axes, read=size, written=size)
    return Kernels(kernels=(kernel,))


RESIZE_FLOPS = {"nearest": 0, "linear": 3, "cubic": 7}
"""Operations per output element and spatial dimension: one interpolation (2 multiply-adds less one), or four taps."""
LAST_CHANNELS = {1: 4, 4: 16}
"""Channels from which PyTorch's resizing has a kernel for (n, h, w, c), by neighbours of an element
(``UpSampleNearest2d.cu``, ``UpSampleBilinear2d.cu``); others read the one order by strides and write it so."""


@lowers("Resize", "Upsample", gives="movement", note="shape is the output's")
@lowers("Upsample", domain="com.microsoft.nchwc", gives="movement", note="as without blocks of channels")
def resize(context: NodeContext) -> Outcome:
    source, out = context.spec(0), context.out()
    if source.shape == out.shape:
        return alias(context, "keeps the size", host=True)
    mode = context.text("mode", "nearest")
    changed = sum(old != new for old, new in zip(source.shape, out.shape, strict=True))
    taps = {"nearest": 1, "linear": 2, "cubic": 4}.get(mode, 1) ** changed
    is_image = len(out.shape) > 2 and source.shape[:2] == out.shape[:2]
    layouts = context.channels_last_output()
    has_last = layouts and taps in LAST_CHANNELS and out.shape[1] >= LAST_CHANNELS[taps]
    kernel = Movement(
        operation="resize",
        dtype=source.dtype,
        shape=out.shape,
        read=source.dtype.bytes_of(min(source.element_count, out.element_count * taps)),
        written=out.byte_count,
        flops_per_element=RESIZE_FLOPS.get(mode, 0) * changed,
        run=out.shape[1] if has_last else 1,
        taps=taps if is_image else 0,
    )
    return Kernels(kernels=(*context.contiguous(0, channels_last=True), kernel), layouts=layouts)


@lowers(
    "ReorderInput",
    "ReorderOutput",
    domain="com.microsoft.nchwc",
    gives="depends",
    note="a transpose where channels are last, else free: blocks of channels serve one CPU",
)
def reorder(context: NodeContext) -> Outcome:
    """(n, c, h, w) or (n, h, w, c) to blocks of channels and back."""
    if not context.integer("channels_last", 0):
        return Free(reason="blocks of channels are for one CPU's vectors, a GPU leaves elements where they are")
    source, out = context.spec(0), context.out()
    last = len(source.shape) - 1
    axes = (0, last, *range(1, last)) if context.node.op_type == "ReorderInput" else (0, *range(2, last + 1), 1)
    kernel = Movement(
        operation="transpose",
        dtype=source.dtype,
        shape=source.shape,
        permutation=axes,
        read=source.byte_count,
        written=out.byte_count,
    )
    return Kernels(kernels=(*context.contiguous(0), kernel))


@lowers("GridSample", gives="movement")
@lowers("GridSample", domain="com.microsoft", gives="movement")
def grid_sample(context: NodeContext) -> Outcome:
    source, grid, out = context.spec(0), context.spec(1), context.out()
    mode = context.text("mode", "linear")
    spatial = len(out.shape) - 2
    kernel = Movement(
        operation="grid_sample",
        dtype=source.dtype,
        shape=out.shape,
        read=source.byte_count + grid.byte_count,
        written=out.byte_count,
        flops_per_element={"nearest": 0, "cubic": 7, "bicubic": 7}.get(mode, 3) * spatial,
    )
    return Kernels(kernels=(kernel,))


@lowers("AffineGrid", gives="movement", note="writes a grid from a small matrix")
def affine_grid(context: NodeContext) -> Outcome:
    out = context.out()
    kernel = Movement(
        operation="affine_grid",
        dtype=out.dtype,
        shape=out.shape,
        read=context.spec(0).byte_count,
        written=out.byte_count,
        flops_per_element=2 * out.shape[-1],
    )
    return Kernels(kernels=(kernel,))


@lowers("Col2Im", gives="movement", note="sums overlapping blocks")
def col2im(context: NodeContext) -> Outcome:
    source, out = context.spec(0), context.out()
    kernel = Movement(
        operation="col2im",
        dtype=source.dtype,
        shape=out.shape,
        read=source.byte_count,
        written=out.byte_count,
        flops_per_element=max(source.element_count // max(out.element_count, 1), 1),
    )
    return Kernels(kernels=(kernel,))


@lowers("UnfoldTensor", domain="com.microsoft", gives="movement")
def unfold(context: NodeContext) -> Outcome:
    return move(context, "unfold")


@lowers("Crop", gives="movement", note="an experiment of early opsets")
@lowers("CenterCropPad", gives="movement")
def crop(context: NodeContext) -> Outcome:
    return move(context, "pad", read=min(context.spec(0).element_count, context.out().element_count))


@lowers("ReverseSequence", gives="movement")
def reverse(context: NodeContext) -> Outcome:
    return move(context, "flip")


@lowers("RemovePadding", "RestorePadding", domain="com.microsoft", gives="movement")
def padding(context: NodeContext) -> Outcome:
    return move(context, "pad", read=min(context.spec(0).element_count, context.out().element_count))
