"""The two sides of a matrix product: what views make of them, and when they must be copied for BLAS."""

from __future__ import annotations

from dataclasses import dataclass, replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Movement
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.views import copy_kernel
from neusight_onnx.strides import contiguous_strides, is_contiguous, view_strides


@dataclass(frozen=True, slots=True)
class Operand:
    """One side of a product after views: shape (b, rows, cols) or (rows, cols), its strides, copies paid so far."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DataType
    copies: tuple[Movement, ...] = ()

    def reshaped(self, shape: tuple[int, ...]) -> Operand:
        """As PyTorch's reshape: a view if the strides allow it, else a contiguous copy."""
        strides = view_strides(self.shape, self.strides, shape)
        if strides is not None:
            return Operand(shape, strides, self.dtype, self.copies)
        return replace(self.contiguous(), shape=shape, strides=contiguous_strides(shape))

    def contiguous(self) -> Operand:
        """As PyTorch's contiguous: itself if its elements lie in order, else a copy."""
        if is_contiguous(self.shape, self.strides):
            return self
        copy = copy_kernel(self.dtype, self.shape, self.strides)
        return Operand(self.shape, contiguous_strides(self.shape), self.dtype, (*self.copies, copy))

    def for_blas(self) -> tuple[bool, Operand]:
        """(whether it is stored transposed, the operand): BLAS takes a matrix whose rows or columns are dense.

        As PyTorch prepares matrices: one of the two last strides must be 1 and the other at least the length of
        what it steps over, else the matrix is copied.
        """
        rows, cols = self.shape[-2:]
        row_stride, col_stride = self.strides[-2:]
        if (col_stride == 1 or cols == 1) and (row_stride >= max(1, cols) or rows == 1):
            return False, self
        if (row_stride == 1 or rows == 1) and (col_stride >= max(1, rows) or cols == 1):
            return True, self
        return False, self.contiguous()


def operand_of(context: NodeContext, index: int) -> Operand:
    return Operand(context.shape(index), context.strides(index), context.dtype(index))


def is_weight(context: NodeContext, index: int) -> bool:
    value = context.value(index)
    return value is not None and value.is_constant


def is_cast_weight(context: NodeContext, index: int) -> bool:
    value = context.value(index)
    return value is not None and value.is_cast_weight
