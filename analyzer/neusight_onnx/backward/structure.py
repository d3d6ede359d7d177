"""Gradients of what moves elements: views stay views where they can, what was left out is filled with zeros."""

from __future__ import annotations

from math import prod

from neusight_onnx.backward.registry import BackwardContext, Derivative, Flow, dense, differentiates, sum_kernel
from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import GatherScatter, Kernel, Movement, Sort, TensorSpec
from neusight_onnx.lowering.normalization import fill
from neusight_onnx.lowering.views import copy_kernel
from neusight_onnx.strides import view_strides

UNSORTED_INDICES = 3072
"""Indices up to which PyTorch's embedding adds rows without sorting them (embedding_dense_backward_cuda)."""


def _passes(context: BackwardContext) -> Derivative:
    return Derivative(flows={0: Flow(strides=context.strides.get(0), shares=0)})


@differentiates("Identity", "MemcpyFromHost", "MemcpyToHost", "Dropout", "BitCast", inputs=(0,))
def same(context: BackwardContext) -> Derivative:
    return _passes(context)


@differentiates("Reshape", "Flatten", "Squeeze", "Unsqueeze", inputs=(0,))
@differentiates("ExpandDims", domain="com.microsoft", inputs=(0,))
def reshape(context: BackwardContext) -> Derivative:
    """The gradient reshaped back: a view where its strides allow it, else a copy."""
    return _reshaped(context)


def _reshaped(context: BackwardContext) -> Derivative:
    strides = context.strides.get(0)
    if strides is None:
        return _passes(context)
    out, target = context.out(), context.shape(0)
    seen = view_strides(out.shape, strides, target)
    if seen is None:
        return Derivative(kernels=(copy_kernel(out.dtype, out.shape, strides),), flows={0: Flow()})
    return Derivative(flows={0: Flow(strides=dense(target, seen), shares=0)})


@differentiates("Transpose")
def transpose(context: BackwardContext) -> Derivative:
    """A view; where transposes move elements (no lazy views), a kernel that moves them back."""
    source = context.shape(0)
    if context.kernels:
        moved = [kernel for kernel in context.kernels if isinstance(kernel, Movement)]
        return Derivative(kernels=tuple(moved), flows={0: Flow()})
    axes = context.forward.integers("perm") or tuple(range(len(source) - 1, -1, -1))
    strides = context.gradient_strides()
    back = [0] * len(source)
    for place, axis in enumerate(axes):
        back[axis] = strides[place]
    return Derivative(flows={0: Flow(strides=dense(source, tuple(back)), shares=0)})


@differentiates("Expand", inputs=(0,))
def expand(context: BackwardContext) -> Derivative:
    sums = context.summed(0)
    if not sums:
        return _reshaped(context)
    return Derivative(kernels=sums, flows={0: Flow()})


@differentiates("Tile", inputs=(0,))
def tile(context: BackwardContext) -> Derivative:
    """(r1, s1, r2, s2, ...) summed over the repeats."""
    source, out = context.shape(0), context.out()
    if source == out.shape:
        return _passes(context)
    shape: list[int] = []
    axes = []
    for small, large in zip(source, out.shape, strict=True):
        repeats = large // small if small else 1
        if repeats > 1:
            axes.append(len(shape))
            shape.append(repeats)
        shape.append(small)
    spec = TensorSpec(dtype=out.dtype, shape=tuple(shape))
    return Derivative(kernels=(sum_kernel(spec, tuple(axes), source),), flows={0: Flow()})


def _placed(context: BackwardContext) -> Derivative:
    """Zeros of the input's shape, and a copy of the gradient into its place."""
    out, whole = context.out(), context.whole(0)
    copy = Movement(
        operation="copy",
        dtype=out.dtype,
        shape=out.shape,
        read=context.gradient().byte_count,
        written=out.byte_count,
    )
    return Derivative(kernels=(fill(whole), copy), flows={0: Flow()})


@differentiates("Slice", inputs=(0,))
def slice_(context: BackwardContext) -> Derivative:
    flips = tuple(kernel for kernel in context.kernels if isinstance(kernel, Movement) and kernel.operation == "flip")
    if context.shape(0) == context.out().shape:
        return Derivative(kernels=flips, flows=context.own(0)) if flips else _passes(context)
    return _placed(context)


def rolled(context: BackwardContext) -> Derivative:
    """Both parts of a roll (see ``rolls``): the gradient rolled back."""
    whole = context.whole(0)
    size = whole.byte_count
    kernel = Movement(operation="concat", dtype=whole.dtype, shape=whole.shape, read=size, written=size)
    return Derivative(kernels=(kernel,), flows={0: Flow()})


@differentiates("Split", inputs=(0,))
def split(context: BackwardContext) -> Derivative:
    """The parts' gradients concatenated, with zeros for those that have none."""
    if len(context.forward.outputs) == 1:
        return _passes(context)
    whole = context.whole(0)
    missing = [
        fill(context.out(index))
        for index in range(len(context.forward.outputs))
        if index not in context.arrived and context.forward.has_output(index)
    ]
    read = sum(context.gradient(index).byte_count for index in context.arrived)
    read += sum(kernel.written for kernel in missing)
    kernel = Movement(operation="concat", dtype=whole.dtype, shape=whole.shape, read=read, written=whole.byte_count)
    return Derivative(kernels=(*missing, kernel), flows={0: Flow()})


@differentiates("Concat")
def concat(context: BackwardContext) -> Derivative:
    """Views of the gradient."""
    strides = context.gradient_strides()
    flows = {index: Flow(strides=dense(context.shape(index), strides), shares=0) for index in context.needs}
    return Derivative(flows=flows)


@differentiates("Reordered", domain="neusight")
def reordered(context: BackwardContext) -> Derivative:
    """The gradients as cuDNN writes them, in the order that the module holds its weights in."""
    return Derivative(flows={index: Flow(shares=0) for index in context.needs})


@differentiates("Pad", inputs=(0,))
@differentiates("Pad", domain="com.microsoft", inputs=(0,))
def pad(context: BackwardContext) -> Derivative:
    """What lies inside, copied out of the gradient."""
    source = context.whole(0)
    if source.shape == context.out().shape:
        return _passes(context)
    size = source.byte_count
    kernel = Movement(operation="copy", dtype=source.dtype, shape=source.shape, read=size, written=size)
    return Derivative(kernels=(kernel,), flows=context.own(0))


@differentiates("DepthToSpace", "SpaceToDepth")
def rearrange(context: BackwardContext) -> Derivative:
    """The permutation the other way: as many elements move as far."""
    if not context.kernels:
        return _passes(context)
    return Derivative(kernels=context.kernels, flows={0: Flow()})


@differentiates("Resize", "Upsample", inputs=(0,))
def resize(context: BackwardContext) -> Derivative:
    """Zeros, then each result's gradient is added to the inputs that it came from."""
    source, out = context.whole(0), context.out()
    if source.shape == out.shape:
        return _passes(context)
    forward = next(
        (kernel for kernel in context.kernels if isinstance(kernel, Movement) and kernel.operation != "copy"), None
    )
    kernel = Movement(
        operation="resize",
        dtype=out.dtype,
        shape=out.shape,
        read=context.gradient().byte_count,
        written=source.byte_count,
        flops_per_element=forward.flops_per_element if forward else 0,
    )
    return Derivative(kernels=(*context.ordered_gradient(), fill(source), kernel), flows=context.own(0))


# --- Through indices --------------------------------------------------------------------------------------------------


def scatter_add(target: TensorSpec, moved: int, run: int, indices: TensorSpec) -> GatherScatter:
    """Adds ``moved`` elements into a tensor through indices, in place."""
    return GatherScatter(
        operation="scatter_add",
        moved=moved,
        run=run,
        dtype=target.dtype,
        index_count=indices.element_count,
        index_dtype=indices.dtype,
    )


def _sort(indices: TensorSpec) -> Sort:
    """Sorts indices, so that equal ones meet; it writes where each came from, too."""
    count = indices.element_count
    return Sort(
        operation="sort",
        rows=1,
        cols=count,
        kept=count,
        dtype=indices.dtype,
        output_bytes=2 * DataType.INT64.bytes_of(count),
    )


@differentiates("Gather", inputs=(0,))
def gather(context: BackwardContext) -> Derivative:
    """Zeros of the table's size, and the gradient's rows added through the indices; a single place is copied."""
    gathered = next((kernel for kernel in context.kernels if isinstance(kernel, GatherScatter)), None)
    if gathered is None:
        return _placed(context)
    whole = context.whole(0)
    indices = context.whole(1)
    kernels: tuple[Kernel, ...] = (
        *context.contiguous_gradient(),
        fill(whole),
        *((_sort(indices),) if indices.element_count > UNSORTED_INDICES else ()),
        scatter_add(whole, gathered.moved, gathered.run, indices),
    )
    return Derivative(kernels=kernels, flows={0: Flow()}, saved=(context.name(1),))


@differentiates("EmbeddingBag", domain="neusight", inputs=(0,))
def embedding_bag(context: BackwardContext) -> Derivative:
    """Of sums and means the indices are sorted, however few, and each adds its bag's gradient to a row of zeros; of
    maxima each element is added where it came from, and those places are kept (launches of torch 2.9.1)."""
    whole, indices, out = context.whole(0), context.whole(1), context.out()
    kernels: list[Kernel] = [*context.contiguous_gradient()]
    if context.forward.text("operation", "sum") == "max":
        places = TensorSpec(dtype=DataType.INT64, shape=out.shape)
        kernels += [fill(whole), scatter_add(whole, out.element_count, 1, places)]
        return Derivative(kernels=tuple(kernels), flows={0: Flow()}, kept_bytes=places.byte_count)
    width = whole.shape[-1]
    kernels += [_sort(indices), fill(whole), scatter_add(whole, indices.element_count * width, width, indices)]
    # the bag of each index, and how many each bag has
    kept_bytes = DataType.INT64.bytes_of(indices.element_count + out.shape[0])
    return Derivative(kernels=tuple(kernels), flows={0: Flow()}, saved=(context.name(1),), kept_bytes=kept_bytes)


@differentiates("GatherElements", "GatherND", inputs=(0,))
def gather_elements(context: BackwardContext) -> Derivative:
    whole, indices, out = context.whole(0), context.whole(1), context.out()
    run = max(prod(out.shape) // max(prod(indices.shape[:-1]), 1), 1) if context.op_type == "GatherND" else 1
    kernels = (fill(whole), scatter_add(whole, out.element_count, run, indices))
    return Derivative(kernels=kernels, flows={0: Flow()}, saved=(context.name(1),))


@differentiates("ScatterElements", "ScatterND", "Scatter", inputs=(0, 2))
def scatter(context: BackwardContext) -> Derivative:
    """The base's gradient is a copy with zeros at the indices, the updates' is what stands there."""
    out, indices, updates = context.out(), context.whole(1), context.whole(2)
    kernels: list[Kernel] = []
    size = out.byte_count
    moved = updates.element_count
    run = max(moved // max(prod(indices.shape[:-1]), 1), 1) if context.op_type == "ScatterND" else 1
    if 0 in context.needs:
        kernels.append(Movement(operation="copy", dtype=out.dtype, shape=out.shape, read=size, written=size))
        kernels.append(scatter_add(out, moved, run, indices))
    if 2 in context.needs:
        kernels.append(
            GatherScatter(
                operation="gather",
                moved=moved,
                run=run,
                dtype=out.dtype,
                index_count=indices.element_count,
                index_dtype=indices.dtype,
            )
        )
    return Derivative(kernels=tuple(kernels), flows=context.own(0, 2), saved=(context.name(1),))


@differentiates("TopK", inputs=(0,))
def top(context: BackwardContext) -> Derivative:
    """Zeros, and the values' gradient written back to their places."""
    whole = context.whole(0)
    indices = TensorSpec(dtype=DataType.INT64, shape=context.out().shape)
    kernels = (fill(whole), scatter_add(whole, context.out().element_count, 1, indices))
    return Derivative(kernels=kernels, flows={0: Flow()}, kept_bytes=indices.byte_count)
