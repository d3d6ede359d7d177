"""Einsum: contractions as matrix products, the rest as sums, products element by element and views."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Elementwise, Gemm, Kernel, Reduction, TensorSpec
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.matrix_operands import Operand
from neusight_onnx.lowering.registry import Free, Kernels, Outcome, Unsupported, lowers
from neusight_onnx.lowering.views import Layout, copy_kernel
from neusight_onnx.strides import contiguous_strides, is_contiguous


@dataclass(frozen=True, slots=True)
class _Term:
    """An operand of an einsum: one letter a dimension, sizes, strides."""

    letters: tuple[str, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _parse(equation: str, shapes: list[tuple[int, ...]]) -> tuple[list[tuple[str, ...]], tuple[str, ...]] | None:
    """Letters of each operand and of the output; an ellipsis' dimensions are called "0", "1", … from the right."""
    equation = equation.replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        return None
    longest = 0
    letters: list[tuple[str, ...]] = []
    for term, shape in zip(terms, shapes, strict=True):
        if "..." in term:
            before, _, after = term.partition("...")
            count = len(shape) - len(before) - len(after)
            if count < 0:
                return None
            longest = max(longest, count)
            letters.append((*before, *(str(place) for place in range(count - 1, -1, -1)), *after))
        else:
            letters.append(tuple(term))
        if len(letters[-1]) != len(shape):
            return None
    ellipsis = tuple(str(place) for place in range(longest - 1, -1, -1))
    if arrow:
        before, dots, after = right.partition("...")
        return letters, (*before, *(ellipsis if dots else ()), *after)
    seen = [letter for term in letters for letter in term]
    once = sorted({letter for letter in seen if seen.count(letter) == 1 and not letter.isdigit()})
    return letters, (*ellipsis, *once)


@lowers("Einsum", gives="depends", note="a contraction is a gemm; else pointwise, a reduction or a transpose")
def einsum(context: NodeContext) -> Outcome:
    """Contracts from left to right, as PyTorch does without a path optimiser."""
    shapes = [context.shape(index) for index in range(len(context.inputs))]
    parsed = _parse(context.text("equation", ""), shapes)
    if parsed is None:
        return Unsupported(reason=f"the equation {context.text('equation', '')!r} doesn't fit the operands' ranks")
    letters, output = parsed
    dtype = context.dtype(0)
    kernels: list[Kernel] = []
    terms = []
    for index, (names, shape) in enumerate(zip(letters, shapes, strict=True)):
        term = _diagonal(_Term(names, shape, context.strides(index)))
        elsewhere = {name for other, held in enumerate(letters) if other != index for name in held} | set(output)
        terms.append(_summed(term, elsewhere, dtype, kernels))
    result = terms[0]
    for index, term in enumerate(terms[1:], 1):
        later = {name for following in terms[index + 1 :] for name in following.letters}
        result = _contracted(result, term, later | set(output), dtype, context, kernels)
    order = [name for name in output if name in result.letters]
    strides = tuple(result.strides[result.letters.index(name)] for name in order)
    shape = tuple(result.shape[result.letters.index(name)] for name in order)
    missing = len(output) - len(order)
    if is_contiguous(shape, strides) or missing:
        return Kernels(kernels=tuple(kernels)) if kernels else Free(reason="a view of its operand", host=True)
    if not context.lazy:
        kernels.append(replace(copy_kernel(dtype, shape, strides), operation="transpose"))
        return Kernels(kernels=tuple(kernels))
    layouts = (context.view(0, shape, strides) or Layout(strides=strides),)
    if kernels:
        return Kernels(kernels=tuple(kernels), layouts=layouts)
    return Free(reason="a view: its strides are permuted", host=True, layouts=layouts)


def _diagonal(term: _Term) -> _Term:
    """A letter that stands twice in a term: the diagonal, whose stride is the sum of both."""
    sizes: dict[str, int] = {}
    strides: dict[str, int] = {}
    for name, size, stride in zip(term.letters, term.shape, term.strides, strict=True):
        sizes[name] = max(size, sizes.get(name, 1))
        strides[name] = strides.get(name, 0) + stride
    return _Term(tuple(sizes), tuple(sizes.values()), tuple(strides.values()))


def _summed(term: _Term, elsewhere: set[str], dtype: DataType, kernels: list[Kernel]) -> _Term:
    """Sums the letters that stand nowhere else before anything is multiplied."""
    alone = [name for name in term.letters if name not in elsewhere]
    sizes = dict(zip(term.letters, term.shape, strict=True))
    if not alone:
        return term
    kept = tuple(name for name in term.letters if name in elsewhere)
    shape = tuple(sizes[name] for name in kept)
    reduced = prod(sizes[name] for name in alone)
    if reduced != 1:
        last = max(term.letters.index(name) for name in alone)
        kernels.append(
            Reduction(
                operation="sum",
                outputs=prod(shape),
                reduced=reduced,
                inner=max(prod(term.shape[last + 1 :]), 1),
                dtype=dtype,
                output=TensorSpec(dtype=dtype, shape=shape),
            )
        )
    return _Term(kept, shape, contiguous_strides(shape))


def _contracted(
    left: _Term, right: _Term, needed: set[str], dtype: DataType, context: NodeContext, kernels: list[Kernel]
) -> _Term:
    """Two terms become one: (b, m, k) @ (b, k, n); dimensions of size 1 belong to neither side's sums."""
    sizes = dict(zip(left.letters, left.shape, strict=True))
    for name, size in zip(right.letters, right.shape, strict=True):
        sizes[name] = max(size, sizes.get(name, 1))
    in_left = {name for name, size in zip(left.letters, left.shape, strict=True) if size != 1}
    in_right = {name for name, size in zip(right.letters, right.shape, strict=True) if size != 1}
    order = tuple(dict.fromkeys((*left.letters, *right.letters)))
    batch = tuple(name for name in order if name in in_left and name in in_right and name in needed)
    summed = tuple(name for name in order if name in in_left and name in in_right and name not in needed)
    rows = tuple(name for name in order if name in in_left and name not in in_right)
    cols = tuple(name for name in order if name in in_right and name not in in_left)
    ones = tuple(name for name in order if sizes[name] == 1 and name in needed)
    if summed:
        first = _folded(left, (batch, rows, summed), sizes, dtype, context)
        second = _folded(right, (batch, summed, cols), sizes, dtype, context)
        transpose_a, first = first.for_blas() if context.lazy else (False, first)
        transpose_b, second = second.for_blas() if context.lazy else (False, second)
        kernels.extend((*first.copies, *second.copies))
        kernels.append(
            Gemm(
                batch=prod(sizes[name] for name in batch),
                m=prod(sizes[name] for name in rows),
                n=prod(sizes[name] for name in cols),
                k=prod(sizes[name] for name in summed),
                transpose_a=transpose_a,
                transpose_b=transpose_b,
                dtype=dtype,
            )
        )
        names = (*ones, *batch, *rows, *cols)
    else:
        names = tuple(name for name in order if name in needed or name in rows or name in cols)
        shape = tuple(sizes[name] for name in names)
        inputs = tuple(
            TensorSpec(
                dtype=dtype,
                shape=tuple(term.shape[term.letters.index(name)] if name in term.letters else 1 for name in names),
            )
            for term in (left, right)
        )
        wide = tuple(spec for spec in inputs if spec.element_count != 1) or inputs[:1]
        kernels.append(Elementwise(operations=("mul",), inputs=wide, output=TensorSpec(dtype=dtype, shape=shape)))
    shape = tuple(sizes[name] for name in names)
    return _Term(names, shape, contiguous_strides(shape))


def _folded(
    term: _Term, groups: tuple[tuple[str, ...], ...], sizes: dict[str, int], dtype: DataType, context: NodeContext
) -> Operand:
    """The term permuted to the three groups and reshaped to rank 3: a copy where its strides don't allow a view."""
    names = [name for group in groups for name in group]
    shape = tuple(term.shape[term.letters.index(name)] for name in names)
    strides = tuple(term.strides[term.letters.index(name)] for name in names)
    target = tuple(prod(sizes[name] for name in group) for group in groups)
    return Operand(shape, strides, dtype).reshaped(target)
