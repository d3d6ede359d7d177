"""Instructions of ONNX Runtime's kernels that compute or move element by element."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, gcd, prod

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Elementwise, Movement, TensorSpec
from neusight_onnx.laws.issue_counts import (
    INNER_PARTS,
    INSTRUCTIONS,
    OPERATION_INSTRUCTIONS,
    TRANSPOSED_TILE,
    VECTOR_BYTES,
)


def pointwise(kernel: Elementwise, *, hopper: bool) -> float:
    """Instructions of each element of the result."""
    n, narrow = kernel.output.element_count, kernel.output.dtype.bits <= 16
    bits = "16" if narrow else "32"
    found = [spec for spec in kernel.inputs if 1 < spec.element_count < n]
    match kernel.operations:
        case ("add", "gelu"):
            return INSTRUCTIONS[f"bias gelu {bits}"].each(hopper=hopper)
        case ("add", "gelu_tanh"):
            return INSTRUCTIONS[f"bias fast gelu {bits}"].each(hopper=hopper)
        case ("gelu_tanh",):
            return INSTRUCTIONS[f"fast gelu {bits}"].each(hopper=hopper)
        case ("clamp",):
            return INSTRUCTIONS["clip"].each(hopper=hopper)
        case _:
            pass
    dimensions = len(kernel.output.shape)
    if "where" in kernel.operations:
        base = INSTRUCTIONS["where broadcast"].each(dimensions, hopper=hopper) if found else None
        base = INSTRUCTIONS["where"].each(hopper=hopper) if base is None else base
    elif not found:
        base = INSTRUCTIONS["binary" if len(kernel.inputs) > 1 else "unary"].each(hopper=hopper)
    elif is_vector_on_the_right(kernel.inputs, n):
        is_first = _elements_before(found[0].shape, kernel.output.shape) == 1
        base = INSTRUCTIONS["vector first" if is_first else "vector"].each(hopper=hopper)
    else:
        both = "both" if len(found) > 1 else "one"
        base = INSTRUCTIONS[f"broadcast {both}"].each(dimensions, hopper=hopper)
    return base + sum(OPERATION_INSTRUCTIONS.get(name, 0.0) for name in kernel.operations)


def is_vector_on_the_right(inputs: Sequence[TensorSpec], output_elements: int) -> bool:
    """Whether one operand, not the first, is a vector along one dimension and the others are whole or numbers."""
    spread = [spec for spec in inputs if 1 < spec.element_count < output_elements]
    return len(spread) == 1 and sum(size != 1 for size in spread[0].shape) == 1 and spread[0] is not inputs[0]


def _elements_before(vector: Sequence[int], output: Sequence[int]) -> int:
    """Elements of the dimensions before the one that a vector lies along: (64, 1, 1) on (2, 64, 9, 9) has 2."""
    places = [len(output) - len(vector) + axis for axis, size in enumerate(vector) if size != 1]
    return prod(output[: places[0]])


def moved(kernel: Movement, *, hopper: bool) -> float:
    """Instructions of all threads; 0 of a movement that is a library's or the driver's."""
    size = max(kernel.dtype.bits / 8, 1.0)
    count = kernel.written / size
    rank = len(kernel.shape)
    match kernel.operation:
        case "transpose" if kernel.permutation is not None:
            return _transposed(kernel.shape, kernel.permutation, kernel.dtype, hopper=hopper)
        case "slice":
            return count * INSTRUCTIONS["slice"].each(rank, hopper=hopper)
        case "split" if 0 < len(kernel.parts) <= INNER_PARTS and kernel.run < kernel.shape[-1]:
            vector = gcd(int(kernel.run * size), VECTOR_BYTES)
            return kernel.written / vector * INSTRUCTIONS["split vector"].each(hopper=hopper)
        case "split":
            name = "split" if len(set(kernel.parts)) < 2 else "split unequal"
            return count * INSTRUCTIONS[name].each(hopper=hopper)
        case "bias" | "concat" | "pad":
            return count * INSTRUCTIONS[kernel.operation].each(hopper=hopper)
        case "expand":
            return count * INSTRUCTIONS["expand" if rank > 2 else "expand 2d"].each(hopper=hopper)
        case "resize":
            return count * INSTRUCTIONS[f"resize {kernel.taps}"].each(hopper=hopper)
        case "cast":
            return count * INSTRUCTIONS["unary"].each(hopper=hopper)
        case _:
            return 0.0


def _transposed(shape: Sequence[int], permutation: Sequence[int], dtype: DataType, *, hopper: bool) -> float:
    sizes, order = merged(shape, permutation)
    rank, count = len(order), prod(sizes)
    if order == tuple(range(rank)):
        return 0.0  # a copy
    is_matrix = order == (1, 0)
    if is_matrix and dtype in (DataType.FLOAT32, DataType.FLOAT64):
        return 0.0  # cuBLAS's
    if order == (0, 2, 1) or (is_matrix and dtype in (DataType.FLOAT16, DataType.BFLOAT16)):
        *batch, rows, columns = sizes
        tiles = prod(batch) * ceil(rows / TRANSPOSED_TILE) * ceil(columns / TRANSPOSED_TILE)
        each = INSTRUCTIONS["transpose matrix" if is_matrix else "transpose tile"].each(hopper=hopper)
        return tiles * TRANSPOSED_TILE**2 * each
    row_bytes = sizes[-1] * dtype.bits / 8
    if order[-1] == rank - 1 and rank <= 4 and row_bytes % VECTOR_BYTES == 0:
        return count * dtype.bits / 8 / VECTOR_BYTES * INSTRUCTIONS["transpose vector"].each(hopper=hopper)
    return count * INSTRUCTIONS["transpose"].each(rank, hopper=hopper)


def merged(shape: Sequence[int], permutation: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and permutation of what is left when dimensions of one element go and neighbours that stay such merge.

    (2, 3, 4, 5) by (0, 2, 3, 1) is (2, 3, 20) by (0, 2, 1).
    """
    axes = [axis for axis in permutation if shape[axis] != 1]
    left = [axis for axis in range(len(shape)) if shape[axis] != 1]
    follows = dict(pairwise(left))
    sizes: dict[int, int] = {}
    head = -1
    for index, axis in enumerate(axes):
        if index == 0 or follows.get(axes[index - 1]) != axis:
            head = axis
        sizes[head] = sizes.get(head, 1) * shape[axis]
    heads = sorted(sizes)
    return tuple(sizes[axis] for axis in heads), tuple(heads.index(axis) for axis in sizes)
