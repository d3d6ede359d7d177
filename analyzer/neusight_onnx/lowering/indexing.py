"""Reading and writing through indices."""

from __future__ import annotations

from math import ceil, prod

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import GatherScatter, Movement, Reduction
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.movement import TEXT, VIEW
from neusight_onnx.lowering.normalization import fill
from neusight_onnx.lowering.registry import Free, Kernels, Outcome, lowers


@lowers("Gather", gives="gather_scatter", note="a single known index is a view in eager and compiled")
def gather(context: NodeContext) -> Outcome:
    """(…, axis, rest) by indices: runs of prod(rest) elements each."""
    source, places = context.shape(0), context.value(1)
    if context.dtype(0) is DataType.STRING:
        return TEXT
    assert places is not None
    assert places.shape is not None
    axis = context.integer("axis", 0) % max(len(source), 1)
    known = context.ints(1)
    single = prod(places.shape) == 1 and (known is not None or not places.shape)
    if context.lazy and single:
        strides = context.strides(0)
        target = context.out().shape
        kept = (*strides[:axis], *(0 for _ in places.shape), *strides[axis + 1 :])
        return Free(reason=VIEW, host=True, layouts=(context.view(0, target, kept),))
    out = context.out()
    value = context.value(0)
    table = value is not None and value.is_constant and axis == 0
    kernel = GatherScatter(
        operation="embedding" if table else "gather",
        moved=out.element_count,
        run=max(prod(source[axis + 1 :]), 1),
        dtype=out.dtype,
        index_count=prod(places.shape),
        index_dtype=context.dtype(1),
    )
    return Kernels(kernels=(kernel,))


@lowers("GatherElements", gives="gather_scatter")
def gather_elements(context: NodeContext) -> Outcome:
    out, places = context.out(), context.spec(1)
    kernel = GatherScatter(
        operation="gather",
        moved=out.element_count,
        run=1,
        dtype=out.dtype,
        index_count=places.element_count,
        index_dtype=places.dtype,
    )
    return Kernels(kernels=(kernel,))


@lowers("GatherND", gives="gather_scatter")
@lowers("GatherND", domain="com.microsoft", gives="gather_scatter")
def gather_nd(context: NodeContext) -> Outcome:
    """Each index tuple of length q picks a run over the dimensions behind the q it fixes."""
    out, places, source = context.out(), context.spec(1), context.shape(0)
    fixed = context.integer("batch_dims", 0) + (places.shape[-1] if places.shape else 0)
    kernel = GatherScatter(
        operation="gather",
        moved=out.element_count,
        run=max(prod(source[fixed:]), 1),
        dtype=out.dtype,
        index_count=places.element_count,
        index_dtype=places.dtype,
    )
    return Kernels(kernels=(kernel,))


@lowers("GatherPacked", "TorchEmbedding", domain="com.microsoft", gives="gather_scatter")
def packed(context: NodeContext) -> Outcome:
    out, places = context.out(), context.spec(1)
    kernel = GatherScatter(
        operation="embedding",
        moved=out.element_count,
        run=out.shape[-1] if out.shape else 1,
        dtype=out.dtype,
        index_count=places.element_count,
        index_dtype=places.dtype,
    )
    return Kernels(kernels=(kernel,))


def scatter(context: NodeContext, run: int, places: int, updates: int) -> Kernels:
    """Out of place: the base is copied, then ``updates`` elements are written through the indices."""
    index = context.spec(places)
    kernel = GatherScatter(
        operation="scatter",
        moved=updates,
        run=run,
        dtype=context.dtype(0),
        index_count=index.element_count,
        index_dtype=index.dtype,
        base=context.out(),
    )
    return Kernels(kernels=(kernel,))


@lowers("ScatterElements", "Scatter", gives="gather_scatter")
def scatter_elements(context: NodeContext) -> Outcome:
    return scatter(context, 1, 1, context.spec(2).element_count)


@lowers("ScatterND", gives="gather_scatter")
def scatter_nd(context: NodeContext) -> Outcome:
    places = context.shape(1)
    run = prod(context.shape(0)[places[-1] if places else 0 :])
    return scatter(context, max(run, 1), 1, context.spec(2).element_count)


@lowers("TensorScatter", gives="gather_scatter", note="writes into a cache")
def tensor_scatter(context: NodeContext) -> Outcome:
    """New rows into a cache. A cache that comes from the caller and goes back is taken to be one buffer, as memory
    counts it: rows alone are written. Else it is copied first, as by ONNX Runtime's kernel where both buffers differ
    (``core/providers/cuda/llm/tensorscatter.cc``, as remembered: a copy unless their addresses are one)."""
    graph = context.graph.graph
    past, present = context.node.inputs[0], context.node.outputs[0]
    is_bound = any(declared.name == past for declared in graph.inputs) and any(
        declared.name == present for declared in graph.outputs
    )
    updates = context.spec(1)
    index = context.spec(2) if context.has(2) else None
    kernel = GatherScatter(
        operation="scatter",
        moved=updates.element_count,
        run=updates.shape[-1],
        dtype=updates.dtype,
        index_count=0 if index is None else index.element_count,
        index_dtype=DataType.INT64 if index is None else index.dtype,
        base=None if is_bound else context.out(),
    )
    return Kernels(kernels=(kernel,))


@lowers("OneHot", gives="gather_scatter", note="a fill and a scatter in eager, one kernel elsewhere")
def one_hot(context: NodeContext) -> Outcome:
    places, out = context.spec(0), context.out()
    if context.lazy:
        return Kernels(kernels=(fill(out), ones_scattered(context)))
    written = Movement(
        operation="one_hot", dtype=out.dtype, shape=out.shape, read=places.byte_count, written=out.byte_count
    )
    return Kernels(kernels=(written,))


def ones_scattered(context: NodeContext) -> GatherScatter:
    """The kernel that writes OneHot's ones where the rest is filled already."""
    places = context.spec(0)
    return GatherScatter(
        operation="scatter",
        moved=places.element_count,
        run=1,
        dtype=context.out().dtype,
        index_count=places.element_count,
        index_dtype=places.dtype,
    )


@lowers("EmbeddingBag", domain="neusight", gives="reduction", note="recognised: a loop over bags of rows")
def embedding_bag(context: NodeContext) -> Outcome:
    """l indices into (v, d), in bags of l / b on average: (b, d)."""
    out, indices = context.out(), context.spec(1)
    bags, width = out.shape
    kernel = Reduction(
        operation=context.text("operation", "sum"),
        outputs=out.element_count,
        reduced=max(ceil(indices.element_count / max(bags, 1)), 1),
        inner=max(width, 1),
        dtype=out.dtype,
        output=out,
        extra_inputs=(indices,),
    )
    return Kernels(kernels=(kernel,))


@lowers("Compress", gives="gather_scatter")
def compress(context: NodeContext) -> Outcome:
    out, chosen, source = context.out(), context.spec(1), context.shape(0)
    axis = context.node.attributes.get("axis")
    run = prod(source[axis % len(source) + 1 :]) if isinstance(axis, int) and source else 1
    kernel = GatherScatter(
        operation="gather",
        moved=out.element_count,
        run=max(run, 1),
        dtype=out.dtype,
        index_count=chosen.element_count,
        index_dtype=chosen.dtype,
    )
    return Kernels(kernels=(kernel,), host_waits=True)
