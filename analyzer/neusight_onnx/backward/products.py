"""Gradients of products and convolutions: two products (or two directions) and the sum for a bias."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from neusight_onnx.backward.pointwise import passed
from neusight_onnx.backward.registry import BackwardContext, Derivative, Flow, Unknown, dense, differentiates, reduce_to
from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Conv, Elementwise, Gemm, Kernel, Movement, Reduction, TensorSpec
from neusight_onnx.lowering.views import copy_kernel
from neusight_onnx.strides import channels_last_strides, contiguous_strides, expand_strides, view_strides


class Side(NamedTuple):
    """An operand of a product as BLAS gets it: copies made for it, and whether it is stored transposed."""

    copies: tuple[Movement, ...]
    transposed: bool

    @property
    def kept_bytes(self) -> int:
        """Bytes of the copy that autograd keeps in place of the operand; 0 where it keeps the operand."""
        return self.copies[-1].written if self.copies else 0


def side(dtype: DataType, shape: tuple[int, ...], strides: tuple[int, ...], target: tuple[int, ...]) -> Side:
    """The operand seen as ``target`` (b, rows, cols) or (rows, cols), a copy where its strides don't allow that."""
    copies: tuple[Movement, ...] = ()
    seen = view_strides(shape, strides, target)
    if seen is None:
        copies = (copy_kernel(dtype, shape, strides),)
        seen = contiguous_strides(target)
    rows, cols = target[-2:]
    row_stride, col_stride = seen[-2:]
    if (col_stride == 1 or cols == 1) and (row_stride >= max(1, cols) or rows == 1):
        return Side(copies, False)
    if (row_stride == 1 or rows == 1) and (col_stride >= max(1, rows) or cols == 1):
        return Side(copies, True)
    return Side((*copies, copy_kernel(dtype, target, seen)), False)


def by_left(kernel: Gemm, gradient_transposed: bool) -> Gemm:
    """(b, m, n) @ (b, n, k): the result's gradient and the right operand transposed."""
    return Gemm(
        batch=kernel.batch,
        m=kernel.m,
        n=kernel.k,
        k=kernel.n,
        b_batch=kernel.b_batch,
        transpose_a=gradient_transposed,
        transpose_b=not kernel.transpose_b,
        b_is_weight=kernel.b_is_weight,
        b_is_cast_weight=kernel.b_is_cast_weight,
        dtype=kernel.dtype,
        b_dtype=kernel.b_dtype,
    )


def by_right(kernel: Gemm, gradient_transposed: bool) -> Gemm:
    """(b, k, m) @ (b, m, n): the left operand transposed and the result's gradient."""
    return Gemm(
        batch=kernel.batch,
        m=kernel.k,
        n=kernel.n,
        k=kernel.m,
        a_batch=kernel.a_batch,
        transpose_a=not kernel.transpose_a,
        transpose_b=gradient_transposed,
        dtype=kernel.dtype,
        a_dtype=kernel.a_dtype,
    )


def by_weight(kernel: Gemm, gradient_transposed: bool) -> Gemm:
    """As :func:`by_right`; the gradient of a weight that is kept as (n, k) is made as such: (n, m) @ (m, k)."""
    if not kernel.transpose_b:
        return by_right(kernel, gradient_transposed)
    return Gemm(
        batch=kernel.batch,
        m=kernel.n,
        n=kernel.k,
        k=kernel.m,
        b_batch=kernel.a_batch,
        transpose_a=not gradient_transposed,
        transpose_b=kernel.transpose_a,
        dtype=kernel.dtype,
        b_dtype=kernel.a_dtype,
    )


def bias_sum(dtype: DataType, n: int, rows: int, shape: tuple[int, ...]) -> Reduction:
    """The sum over rows that is a bias's gradient."""
    return Reduction(
        operation="sum", outputs=n, reduced=rows, inner=n, dtype=dtype, output=TensorSpec(dtype=dtype, shape=shape)
    )


def forward_product(context: BackwardContext) -> Gemm | None:
    return next((kernel for kernel in context.kernels if isinstance(kernel, Gemm)), None)


def _saved(context: BackwardContext, sides: dict[int, Side]) -> tuple[tuple[str, ...], int]:
    """What is kept of the operands: for the gradient of each side the other one, as BLAS got it."""
    saved: dict[str, None] = {}
    kept_bytes = 0
    for index in (0, 1):
        if 1 - index in context.needs:
            kept_bytes += sides[index].kept_bytes
            if not sides[index].kept_bytes:
                saved[context.name(index)] = None
    return tuple(saved), kept_bytes


@differentiates("MatMul")
@differentiates("Linear", domain="neusight")
def matmul(context: BackwardContext) -> Derivative | Unknown:
    """``(b, m, k) @ (b, k, n)``: a's gradient is g @ b^T, b's is a^T @ g; sums where one was broadcast.

    A vector in front of a matrix is one with one row.
    """
    kernel = forward_product(context)
    left, right = context.shape(0), context.shape(1)
    if kernel is None:
        return Unknown(reason="its product was not lowered")
    if len(right) == 1 or (len(left) == 1 and len(right) > 2):
        return _by_vector(context, kernel.dtype)
    dtype = kernel.dtype
    out = context.out()
    if len(right) == 2 and kernel.batch == 1:
        rows = prod(left[:-1])
        sides = {
            0: side(dtype, left, context.forward.strides(0), (rows, kernel.k)),
            1: side(dtype, right, context.forward.strides(1), (kernel.k, kernel.n)),
        }
        arrived = side(dtype, out.shape, context.gradient_strides(), (rows, kernel.n))
    else:
        batch_shape = out.shape[:-2]
        sides = {}
        for index, (shape, (rows, cols)) in enumerate(((left, left[-2:]), (right, right[-2:]))):
            target = (*batch_shape, rows, cols)
            strides = expand_strides(shape, context.forward.strides(index), target)
            sides[index] = side(dtype, target, strides, (kernel.batch, rows, cols))
        arrived = side(dtype, out.shape, context.gradient_strides(), (kernel.batch, *out.shape[-2:]))
    kernels: list[Kernel] = list(arrived.copies)
    if 0 in context.needs:
        kernels.append(by_left(kernel, arrived.transposed))
        if kernel.batch > 1 or len(right) > 2:
            kernels += reduce_to(TensorSpec(dtype=dtype, shape=(*out.shape[:-1], kernel.k)), left)
    if 1 in context.needs:
        if len(right) == 2 and kernel.batch == 1:
            kernels.append(by_weight(kernel, arrived.transposed))
        else:
            kernels.append(by_right(kernel, arrived.transposed))
            kernels += reduce_to(TensorSpec(dtype=dtype, shape=(*out.shape[:-2], kernel.k, kernel.n)), right)
    if 2 in context.needs:
        kernels.append(bias_sum(dtype, kernel.n, kernel.m, context.shape(2)))
    saved, kept_bytes = _saved(context, sides)
    return Derivative(kernels=tuple(kernels), flows=context.own(0, 1, 2), saved=saved, kept_bytes=kept_bytes)


def _by_vector(context: BackwardContext, dtype: DataType) -> Derivative:
    """``(..., k) @ (k,)`` or ``(k,) @ (b, k, n)``: every row gets the vector times its gradient, in a pointwise kernel;
    the vector's gradient is a product with all rows (of two vectors pointwise, too: launches of torch 2.9.1)."""
    vector = 1 if len(context.shape(1)) == 1 else 0
    matrix = 1 - vector
    whole, small, gradient = context.whole(matrix), context.whole(vector), context.gradient()
    if vector == 1:
        across, along = replace(gradient, shape=(*gradient.shape, 1)), small
    else:
        across = replace(gradient, shape=(*gradient.shape[:-1], 1, *gradient.shape[-1:]))
        along = replace(small, shape=(*small.shape, 1))
    kernels: list[Kernel] = []
    if matrix in context.needs:
        kernels.append(Elementwise(operations=("mul",), inputs=(across, along), output=whole))
    if vector in context.needs and whole.shape == small.shape:
        kernels.append(Elementwise(operations=("mul",), inputs=(gradient, whole), output=small))
    elif vector in context.needs:
        k = small.element_count
        kernels.append(Gemm(m=k, n=1, k=whole.element_count // max(k, 1), transpose_a=True, dtype=dtype))
    saved = tuple(context.name(index) for index in (0, 1) if 1 - index in context.needs)
    return Derivative(kernels=tuple(kernels), flows=context.own(0, 1), saved=saved)


@differentiates("Gemm")
def gemm(context: BackwardContext) -> Derivative | Unknown:
    """A' (m, k) @ B' (k, n) + C: as a product; C's gradient is a sum, or the result's where C is of its shape."""
    kernel = forward_product(context)
    if kernel is None:
        return Unknown(reason="its product was not lowered")
    arrived = side(kernel.dtype, context.out().shape, context.gradient_strides(), (kernel.m, kernel.n))
    kernels: list[Kernel] = list(arrived.copies)
    flows = context.own(0, 1)
    if 0 in context.needs:
        kernels.append(by_left(kernel, arrived.transposed))
    if 1 in context.needs:
        kernels.append(by_weight(kernel, arrived.transposed))
    if 2 in context.needs:
        if kernel.epilogue[:1] == ("bias",):
            kernels.append(bias_sum(kernel.dtype, kernel.n, kernel.m, context.shape(2)))
            flows[2] = Flow()
        else:
            sums, flows[2] = passed(context, 2)
            kernels += sums
    saved = tuple(context.name(index) for index in (0, 1) if 1 - index in context.needs)
    return Derivative(kernels=tuple(kernels), flows=flows, saved=saved)


def convolution_kernels(kernel: Conv, needs: Sequence[int] | frozenset[int]) -> list[Kernel]:
    """The gradients of input (0), weight (1) and bias (2)."""
    plain = replace(kernel, epilogue=(), extra_read_bytes=0, extra_write_bytes=0)
    found: list[Kernel] = []
    if 0 in needs:
        found.append(replace(plain, direction="data"))
    if 1 in needs:
        found.append(replace(plain, direction="weight"))
    if 2 in needs:
        dtype, positions = kernel.output_dtype or kernel.dtype, prod(kernel.out)
        found.append(
            Reduction(
                operation="sum",
                outputs=kernel.k,
                reduced=kernel.n * positions,
                inner=positions if positions > 1 and not kernel.channels_last else kernel.k,
                dtype=dtype,
                output=TensorSpec(dtype=dtype, shape=(kernel.k,)),
            )
        )
    return found


@differentiates("Conv", "ConvTranspose")
def conv(context: BackwardContext) -> Derivative | Unknown:
    """The convolution in its other two directions; the bias's gradient is a sum over everything but channels.

    What works channels last does so backwards, and writes the input's gradient in that order. Of an image that was
    padded before, what lies inside is copied out.
    """
    kernel = next((kernel for kernel in context.kernels if isinstance(kernel, Conv)), None)
    if kernel is None:
        return Unknown(reason="its convolution was not lowered")
    kernels = (*context.ordered_gradient(), *convolution_kernels(kernel, context.needs))
    if 0 in context.needs and context.op_type == "Conv" and kernel.spatial != context.shape(0)[2:]:
        whole = context.whole(0)
        kernels += (copy_kernel(whole.dtype, whole.shape, contiguous_strides(whole.shape)),)
    saved = []
    if 1 in context.needs:
        saved.append(context.name(0))
    if 0 in context.needs:
        saved.append(context.name(1))
    flows = context.own(0, 1, 2)
    if 0 in flows:
        shape = context.shape(0)
        flows[0] = Flow(strides=dense(shape, channels_last_strides(shape)) if kernel.channels_last else None)
    return Derivative(kernels=kernels, flows=flows, saved=tuple(saved))
