"""What ONNX Runtime's CUDA provider launches for an operator beside the kernel that others have for it, or instead.

Seen where onnxruntime-gpu 1.31.1 ran each of them on stand-ins for CUDA's libraries, in FP32 and FP16
(``benchmarks/launches_ort.py``): which kernels of its own it launched, which calls of cuDNN and cuBLAS it made, and
what it had the driver copy and fill. What cuDNN launches for one call is taken to be one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import COPIED_PLACES, IN_PLACE
from neusight_onnx.kernels import (
    Elementwise,
    GatherScatter,
    Gemm,
    Kernel,
    Movement,
    Pooling,
    Reduction,
    Softmax,
    Sort,
    TensorSpec,
    Transfer,
)
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.indexing import ones_scattered
from neusight_onnx.lowering.reduction import REDUCE, reduced_axes
from neusight_onnx.lowering.registry import Free, Kernels, Outcome

COLUMNS_OF_A_BLOCK = 2_048
"""From so many elements a row on several blocks sum it, whose count is set to 0 first."""
COUNTED_BY_A_BLOCK = 256
"""Elements among which a block counts those that aren't zero (the template argument of NonZeroCountEachBlockKernel)."""
SORTED_BY_A_BLOCK = 4_864
"""Elements up to which one block sorts pairs of float and int32 (CUB's single tile, 256 threads of 19: launches for
4,864 and 4,865 boxes)."""
DIGITS = 4
"""Of float32, by which CUB sorts more elements: a kernel each, with what they are counted by set to 0 before."""
ENDLESS = 2**63 - 1
"""Where a Slice ends that its optimiser takes out if it begins at 0."""


def by_provider(context: NodeContext, outcome: Outcome) -> Outcome:
    """``outcome``, what an operator's rule says, as the provider executes it."""
    part = None if context.node.domain else PARTS.get(context.node.op_type)
    return outcome if part is None else part(context, outcome)


def _copied(spec: TensorSpec) -> Movement:
    size = spec.byte_count
    return Movement(operation="copy", dtype=spec.dtype, shape=spec.shape, read=size, written=size)


def _filled(spec: TensorSpec) -> Movement:
    return Movement(operation="fill", dtype=spec.dtype, shape=spec.shape, read=0, written=spec.byte_count)


def _cast(spec: TensorSpec, dtype: DataType) -> Movement:
    written = dtype.bytes_of(spec.element_count)
    return Movement(operation="cast", dtype=dtype, shape=spec.shape, read=spec.byte_count, written=written)


def _transposed(spec: TensorSpec, axes: tuple[int, ...]) -> Movement:
    """A Transpose; a copy where only dimensions of size 1 change places."""
    moved = [axis for axis in axes if spec.shape[axis] != 1]
    if moved == sorted(moved):
        return _copied(spec)
    size = spec.byte_count
    return Movement(
        operation="transpose", dtype=spec.dtype, shape=spec.shape, permutation=axes, read=size, written=size
    )


def _pointwise(operation: str, output: TensorSpec, *inputs: TensorSpec) -> Elementwise:
    return Elementwise(operations=(operation,), inputs=inputs, output=output)


# --- Reductions -------------------------------------------------------------------------------------------------------


def _sums(source: TensorSpec, axes: frozenset[int], output: TensorSpec, kernel: Reduction) -> tuple[Kernel, ...] | None:
    """Its own sums of rows that lie together, or of what lies in front; None where cuDNN reduces."""
    reduced = [axis in axes for axis, size in enumerate(source.shape) if size != 1]
    if any(reduced) and reduced == sorted(reduced, reverse=True):  # in front: blocks add to the result
        return _filled(output), kernel
    if reduced != sorted(reduced):
        return None
    done = TensorSpec(dtype=DataType.INT32, shape=(kernel.outputs,))
    return ((_filled(done),) if kernel.reduced >= COLUMNS_OF_A_BLOCK else ()) + (kernel,)


def _reduction(context: NodeContext, outcome: Outcome) -> Outcome:
    """A mean is a sum and a quotient; what cuDNN reduces is filled with zeros first. Integers are as the rule says."""
    axes = reduced_axes(context)
    if not isinstance(outcome, Kernels) or axes is None or not context.dtype(0).is_float:
        return outcome
    (kernel,) = outcome.kernels
    assert isinstance(kernel, Reduction)
    source, output = context.spec(0), context.out()
    chosen = frozenset(axis % max(len(source.shape), 1) for axis in axes)
    before: tuple[Kernel, ...] = ()
    behind: tuple[Kernel, ...] = ()
    match kernel.operation:
        case "mean":
            behind = (_pointwise("div", output, output),)
        case "logsum":
            behind = (_pointwise("log", output, output),)
        case "sumsquare":
            before = (_pointwise("mul", source, source),)
        case "sum":
            pass
        case _:
            return Kernels(kernels=(_filled(output), kernel))
    own = _sums(source, chosen, output, replace(kernel, operation="sum"))
    return Kernels(kernels=(_filled(output), kernel) if own is None else (*before, *own, *behind))


def _argument(context: NodeContext, outcome: Outcome) -> Outcome:
    """Over the last dimension a kernel of its own; else cuDNN, which gives places of 32 bits and takes no FP16."""
    source, output = context.spec(0), context.out()
    rank = max(len(source.shape), 1)
    if not isinstance(outcome, Kernels) or context.integer("axis", 0) % rank == rank - 1:
        return outcome
    places = replace(output, dtype=DataType.UINT32)
    widened = (_cast(source, DataType.FLOAT32),) if source.dtype is DataType.FLOAT16 else ()
    kernels = tuple(
        replace(kernel, dtype=DataType.FLOAT32 if widened else kernel.dtype, output=places)
        if isinstance(kernel, Reduction)
        else kernel
        for kernel in outcome.kernels
    )
    return Kernels(kernels=(_filled(places), *widened, *kernels, _cast(places, output.dtype)))


# --- Softmax and normalizations ---------------------------------------------------------------------------------------


def _softmax(context: NodeContext, outcome: Outcome) -> Outcome:
    """Since opset 13 over the last dimension alone: another one is brought there, and back."""
    source = context.spec(0)
    rank = len(source.shape)
    axis = context.integer("axis", -1) % max(rank, 1)
    if not isinstance(outcome, Kernels) or context.version < 13 or axis >= rank - 1:
        return outcome
    axes = list(range(rank))
    axes[axis], axes[-1] = axes[-1], axes[axis]
    moved = TensorSpec(dtype=source.dtype, shape=tuple(source.shape[place] for place in axes))
    kernels = [replace(kernel, inner=1) if isinstance(kernel, Softmax) else kernel for kernel in outcome.kernels]
    return Kernels(kernels=(_transposed(source, tuple(axes)), *kernels, _transposed(moved, tuple(axes))))


def _instance(context: NodeContext, outcome: Outcome) -> Outcome:
    """cuDNN's batch normalization, as of one sample with all samples' channels.

    Of several samples, mean and deviation are applied by a kernel of its own, and four vectors are filled before.
    """
    if not isinstance(outcome, Kernels):
        return outcome
    source, scale = context.spec(0), context.spec(1)
    samples, channels = source.shape[:2]
    if samples == 1:
        narrow = scale.dtype in (DataType.FLOAT16, DataType.BFLOAT16)
        return replace(outcome, kernels=(*([_cast(scale, DataType.FLOAT32)] * 2 * narrow), *outcome.kernels))
    each = TensorSpec(dtype=DataType.FLOAT32, shape=(samples, channels, *(1 for _ in source.shape[2:])))
    applied = Elementwise(operations=("sub", "mul", "mul", "add"), inputs=(source, each), output=context.out())
    return replace(outcome, kernels=(*([_filled(each)] * 4), *outcome.kernels, applied))


def _batch(context: NodeContext, outcome: Outcome) -> Outcome:
    """Parameters of 16 bits are widened in every run."""
    if not isinstance(outcome, Kernels) or context.dtype(1).bits > 16:
        return outcome
    widened = [_cast(context.spec(place), DataType.FLOAT32) for place in range(1, 5)]
    return replace(outcome, kernels=(*widened, *outcome.kernels))


def _group(context: NodeContext, outcome: Outcome) -> Outcome:
    """No kernel, so the operators that define it: E[x²] - E[x]² in FP32, a quotient, casts (of FP32, too)."""
    if not isinstance(outcome, Kernels):
        return outcome
    source, shape = context.spec(0), context.shape(0)
    rows = shape[0] * context.integer("num_groups", 1)
    x = TensorSpec(dtype=DataType.FLOAT32, shape=(rows, source.element_count // max(rows, 1)))
    row = TensorSpec(dtype=DataType.FLOAT32, shape=(rows, 1))
    channels = TensorSpec(dtype=source.dtype, shape=(1, shape[1], *(1 for _ in shape[2:])))
    total = Reduction(operation="sum", outputs=rows, reduced=x.shape[1], dtype=x.dtype, output=row)
    mean = (*(_sums(x, frozenset({1}), row, total) or ()), _pointwise("div", row, row))
    return Kernels(
        kernels=(
            _cast(source, x.dtype),
            *mean,
            _pointwise("sub", x, x, row),
            _pointwise("mul", x, x),
            *mean,
            _pointwise("mul", row, row),
            _pointwise("sub", row, row, row),
            _pointwise("add", row, row),
            _pointwise("sqrt", row, row),
            _pointwise("div", x, x, row),
            _cast(x, source.dtype),
            _cast(context.spec(1), source.dtype),
            _pointwise("mul", source, source, channels),
            _pointwise("add", source, source, channels),
        )
    )


# --- What moves -------------------------------------------------------------------------------------------------------


def _same(context: NodeContext, outcome: Outcome) -> Outcome:
    """What leaves all elements where they are is a copy nevertheless, unless its optimiser takes it out."""
    if not isinstance(outcome, Free) or not context.has_output(0):
        return outcome
    axes = context.integers("perm")
    if context.node.op_type == "Transpose" and axes is not None and list(axes) == sorted(axes):
        return outcome
    if context.node.op_type == "Slice":
        starts, ends = (context.ints(place) if context.has(place) else None for place in (1, 2))
        if starts is None or ends is None or (set(starts) <= {0} and set(ends) <= {ENDLESS}):
            return outcome
    out = context.out()
    return outcome if out.dtype is DataType.STRING or not out.element_count else Kernels(kernels=(_copied(out),))


def _slice(context: NodeContext, outcome: Outcome) -> Outcome:
    """One that its optimiser made of a gathered Range has start, end and step on the GPU, and copies each to the host.

    The host waits for these three; before, what the CPU made of them is copied to the GPU.
    """
    outcome = _same(context, outcome)
    moved = context.integer(COPIED_PLACES, -1)
    if moved < 0 or not isinstance(outcome, Kernels):
        return outcome
    size = DataType.INT64.bytes_of(1)
    given = Transfer(direction="to_device", dtype=DataType.INT64, byte_count=size, is_waited_for=False)
    back = Transfer(direction="to_host", dtype=DataType.INT64, byte_count=size)
    return replace(outcome, kernels=(*[given] * moved, *[back] * 3, *outcome.kernels), host_waits=True)


def _expand(context: NodeContext, outcome: Outcome) -> Outcome:
    """To the shape that there is: a copy, and the kernel all the same, unless the shape is a constant."""
    shape = context.value(1)
    if shape is None or shape.is_constant:
        return outcome
    copied = _same(context, outcome)
    if not isinstance(outcome, Free) or not isinstance(copied, Kernels):
        return outcome
    (copy,) = copied.kernels
    assert isinstance(copy, Movement)
    return Kernels(kernels=(copy, replace(copy, operation="expand")))


def _view(context: NodeContext, outcome: Outcome) -> Outcome:
    """An output of the graph has memory of its own, so that a view which gives it is a copy."""
    given = {declared.name for declared in context.graph.graph.outputs}
    return _same(context, outcome) if given.intersection(context.node.outputs) else outcome


def _cast_kept(context: NodeContext, outcome: Outcome) -> Outcome:
    """A Cast to its own type goes, unless it gives an output of the graph: then it is a kernel as any other."""
    source = context.spec(0)
    if isinstance(outcome, Free) and source.dtype is context.out().dtype and source.dtype is not DataType.STRING:
        return Kernels(kernels=(_cast(source, source.dtype),))
    return outcome


def _non_zero(context: NodeContext, outcome: Outcome) -> Outcome:
    """How many a block of 256 elements has, running sums of that in two kernels (CUB's scan), then the places."""
    if not isinstance(outcome, Kernels):
        return outcome
    source = context.spec(0)
    counts = TensorSpec(dtype=DataType.INT32, shape=(-(-source.element_count // COUNTED_BY_A_BLOCK),))
    counted = Reduction(
        operation="sum", outputs=counts.element_count, reduced=COUNTED_BY_A_BLOCK, dtype=source.dtype, output=counts
    )
    return replace(outcome, kernels=(counted, _filled(counts), _pointwise("add", counts, counts), *outcome.kernels))


def _suppression(context: NodeContext, outcome: Outcome) -> Outcome:
    """A sample and class after another, the host waiting for each: numbers, a sort, the boxes in its order, (how many
    pass the threshold, read by the host,) a mask of zeros, overlaps and the walk over them, numbers, the places that
    are left, how many, read by the host, and the result's rows, made and copied (not seen on stand-ins, which keep no
    box; as remembered of ``non_max_suppression_impl.cu``).
    """
    if not isinstance(outcome, Kernels):
        return outcome
    (kernel,) = outcome.kernels
    assert isinstance(kernel, Sort)
    problems, boxes = max(kernel.rows, 1), kernel.cols
    passed = boxes if kernel.candidates is None else min(boxes, -(-kernel.candidates // problems))
    kept = -(-kernel.kept // problems)
    order = TensorSpec(dtype=DataType.INT32, shape=(boxes,))
    numbers = TensorSpec(dtype=DataType.INT32, shape=(passed,))
    mask = TensorSpec(dtype=DataType.INT32, shape=(passed, -(-passed // 32)))
    rows = TensorSpec(dtype=DataType.INT64, shape=(kept, 3))
    one = TensorSpec(dtype=DataType.INT64, shape=(1,))
    threshold = context.number(4) if context.has(4) else 0.0
    counted: tuple[Kernel, ...] = ()
    if threshold is None or threshold > 0.0:
        count = Reduction(operation="sum", outputs=1, reduced=boxes, dtype=kernel.dtype, output=one)
        counted = (count, Transfer(direction="to_host", dtype=DataType.INT64, byte_count=one.byte_count))
    kernels: tuple[Kernel, ...] = (
        _filled(order),
        *_sorted_boxes(kernel),
        GatherScatter(
            operation="gather",
            moved=4 * boxes,
            run=4,
            dtype=kernel.dtype,
            index_count=boxes,
            index_dtype=DataType.INT32,
        ),
        *counted,
        _filled(mask),
        replace(
            kernel,
            rows=1,
            kept=kept,
            candidates=passed,
            output_bytes=mask.byte_count,
            library="onnxruntime",
        ),
        _filled(numbers),
        _filled(one),
        _pointwise("add", numbers, numbers),
        Transfer(direction="to_host", dtype=DataType.INT32, byte_count=4),
    )
    if kept:
        kernels = (*kernels, _pointwise("add", rows, rows), _copied(rows))
    return replace(outcome, kernels=kernels, repeats=problems)


def _sorted_boxes(kernel: Sort) -> tuple[Kernel, ...]:
    """One block's sort, or CUB's by digits: what is counted set to 0, counts, their sums, a pass for each digit."""
    boxes = kernel.cols
    pairs = TensorSpec(dtype=DataType.INT32, shape=(boxes, 2))
    if boxes <= SORTED_BY_A_BLOCK:
        return (replace(kernel, operation="sort", rows=1, kept=boxes, candidates=None, output_bytes=pairs.byte_count),)
    counts = TensorSpec(dtype=DataType.INT32, shape=(DIGITS * 256,))
    zeros = _filled(replace(counts, shape=(512,)))
    counted = Reduction(
        operation="sum",
        outputs=counts.element_count,
        reduced=-(-boxes // counts.element_count),
        dtype=DataType.INT32,
        output=counts,
    )
    passes = (zeros, _copied(pairs)) * DIGITS
    return (_filled(counts), _filled(counts), counted, _pointwise("add", counts, counts), *passes)


def _resize(context: NodeContext, outcome: Outcome) -> Outcome:
    """A kernel finds the places, a line and column each, another takes the elements. To the same size it copies."""
    if not isinstance(outcome, Kernels):
        return _same(context, outcome)
    places = TensorSpec(dtype=DataType.INT64, shape=(sum(context.out().shape[2:]),))
    return replace(outcome, kernels=(_pointwise("add", places), *outcome.kernels))


def _scatter(context: NodeContext, outcome: Outcome) -> Outcome:
    """The driver copies what is written into, unless ScatterND may write there."""
    if not isinstance(outcome, Kernels):
        return outcome
    (kernel,) = outcome.kernels
    assert isinstance(kernel, GatherScatter)
    copies = () if context.integer(IN_PLACE, 0) else (_copied(context.out()),)
    return Kernels(kernels=(*copies, replace(kernel, base=None)))


def _gather_nd(context: NodeContext, outcome: Outcome) -> Outcome:
    """A kernel adds each tuple of indices up to a place."""
    if not isinstance(outcome, Kernels):
        return outcome
    indices = context.spec(1)
    places = TensorSpec(dtype=DataType.INT64, shape=indices.shape[:-1])
    return replace(outcome, kernels=(_pointwise("add", places, indices), *outcome.kernels))


def _one_hot(context: NodeContext, outcome: Outcome) -> Outcome:
    """Where the other elements are known to be 0, the driver fills, and a kernel writes the ones."""
    values = context.data(2)
    if not isinstance(outcome, Kernels) or values is None or not values.size or values.reshape(-1)[0] != 0:
        return outcome
    return Kernels(kernels=(_filled(context.out()), ones_scattered(context)))


def _pool(context: NodeContext, outcome: Outcome) -> Outcome:
    """Of 8 bits in FP32, with casts on both sides."""
    source = context.spec(0)
    if not isinstance(outcome, Kernels) or source.dtype not in (DataType.INT8, DataType.UINT8):
        return outcome
    wide, out = replace(source, dtype=DataType.FLOAT32), replace(context.out(), dtype=DataType.FLOAT32)
    kernels = [
        replace(kernel, input=wide, output=out) if isinstance(kernel, Pooling) else kernel for kernel in outcome.kernels
    ]
    return Kernels(kernels=(_cast(source, wide.dtype), *kernels, _cast(out, source.dtype)))


# --- Einsum -----------------------------------------------------------------------------------------------------------


def _einsum(context: NodeContext, outcome: Outcome) -> Outcome:
    """Two operands are brought to (batch, left, sum) and (batch, sum, right) and multiplied.

    The right one and the result are copied besides, of one operand the result.
    """
    if not isinstance(outcome, Kernels):
        return outcome
    left, _, output = context.text("equation", "").replace(" ", "").partition("->")
    terms = left.split(",")
    is_plain = output and all(len(set(term)) == len(term) and term.isalpha() for term in (*terms, output))
    if len(terms) == 1:
        return replace(outcome, kernels=(*outcome.kernels, _copied(context.out())))
    if (
        len(terms) != 2
        or not is_plain
        or any(place for place in set(left) - {","} if left.count(place) + output.count(place) < 2)
    ):
        return outcome
    one, other = terms
    sizes = dict(zip((*one, *other), (*context.shape(0), *context.shape(1)), strict=True))
    batch = [letter for letter in one if letter in other and letter in output]
    summed = [letter for letter in one if letter in other and letter not in output]
    rows = [letter for letter in one if letter not in other]
    columns = [letter for letter in other if letter not in one]
    kernels: list[Kernel] = []
    for place, (term, wanted) in enumerate(((one, batch + rows + summed), (other, batch + summed + columns))):
        if list(term) != wanted:
            kernels.append(_transposed(context.spec(place), tuple(term.index(letter) for letter in wanted)))
    kernels.append(_copied(context.spec(1)))
    m, n, k, b = (prod(sizes[letter] for letter in letters) for letters in (rows, columns, summed, batch))
    kernels.append(Gemm(batch=b, m=m, n=n, k=k, dtype=context.dtype(0)))
    made = batch + rows + columns
    result = TensorSpec(dtype=context.out().dtype, shape=tuple(sizes[letter] for letter in made))
    if made != list(output):
        kernels.append(_transposed(result, tuple(made.index(letter) for letter in output)))
    return replace(outcome, kernels=(*kernels, _copied(context.out())))


PARTS: Mapping[str, Callable[[NodeContext, Outcome], Outcome]] = {
    **dict.fromkeys(("ArgMax", "ArgMin"), _argument),
    **dict.fromkeys(("Concat", "Pad", "Split", "Tile", "Transpose"), _same),
    **dict.fromkeys(("Flatten", "Reshape", "Squeeze", "Unsqueeze"), _view),
    **dict.fromkeys(REDUCE, _reduction),
    **dict.fromkeys(("LogSoftmax", "Softmax"), _softmax),
    **dict.fromkeys(("Scatter", "ScatterElements", "ScatterND"), _scatter),
    "BatchNormalization": _batch,
    "Cast": _cast_kept,
    "Einsum": _einsum,
    "Expand": _expand,
    "GatherND": _gather_nd,
    "GroupNormalization": _group,
    "InstanceNormalization": _instance,
    "MaxPool": _pool,
    "NonMaxSuppression": _suppression,
    "NonZero": _non_zero,
    "OneHot": _one_hot,
    "Resize": _resize,
    "Slice": _slice,
}
