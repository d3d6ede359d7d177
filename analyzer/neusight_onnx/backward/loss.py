"""The loss behind the results, and where gradients start."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from neusight_onnx.backward.rows import softmax_kernels
from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Elementwise, GatherScatter, Kernel, Movement, Reduction, Softmax, TensorSpec
from neusight_onnx.lowering.normalization import fill

FEWEST_IMAGE_DIMENSIONS = 4
"""Results of this rank on are maps of classes, (n, c, *spatial); below, the last dimension holds the classes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Kernels of a loss of one result, forwards and backwards, and the bytes that it keeps in between."""

    forward: tuple[Kernel, ...]
    backward: tuple[Kernel, ...]
    kept_bytes: int


def loss_of(kind: str, result: TensorSpec) -> Loss:
    """``kind``: "cross-entropy", "mse" or "none" (the result's gradient comes from elsewhere)."""
    if kind == "cross-entropy":
        return cross_entropy(result)
    return squared_error(result) if kind == "mse" else Loss(forward=(), backward=(), kept_bytes=0)


def cross_entropy(result: TensorSpec) -> Loss:
    """log_softmax over the classes and the mean of the targets' entries; in float32, as models cast narrower ones.

    Backwards: zeros with a number at each target, then log-softmax's gradient. The log-probabilities are kept.
    """
    shape = result.shape
    axis = 1 if len(shape) >= FEWEST_IMAGE_DIMENSIONS else len(shape) - 1
    cols = shape[axis] if shape else 1
    rows = prod(shape) // cols if cols else 0
    inner = max(prod(shape[axis + 1 :]), 1)
    narrow = result.dtype.bits < DataType.FLOAT32.bits
    wide = TensorSpec(dtype=DataType.FLOAT32 if narrow else result.dtype, shape=shape)
    softmax = Softmax(rows=rows, cols=cols, inner=inner, dtype=wide.dtype, log=True)
    picked = Reduction(
        operation="mean",
        outputs=1,
        reduced=rows,
        dtype=wide.dtype,
        output=TensorSpec(dtype=wide.dtype, shape=()),
        extra_inputs=(TensorSpec(dtype=DataType.INT64, shape=(rows,)),),
    )
    placed = GatherScatter(
        operation="scatter", moved=rows, run=1, dtype=wide.dtype, index_count=rows, index_dtype=DataType.INT64
    )
    forward: tuple[Kernel, ...] = (softmax, picked)
    backward: tuple[Kernel, ...] = (fill(wide), placed, *softmax_kernels(softmax, wide))
    if narrow:
        forward = (_cast(result, wide), *forward)
        backward = (*backward, _cast(wide, result))
    return Loss(forward=forward, backward=backward, kept_bytes=wide.byte_count)


def squared_error(result: TensorSpec) -> Loss:
    """(x - y)^2 and its mean; backwards one kernel of both. The targets are as large as the result."""
    squares = Elementwise(operations=("sub", "pow_scalar"), inputs=(result, result), output=result)
    mean = Reduction(
        operation="mean",
        outputs=1,
        reduced=result.element_count,
        dtype=result.dtype,
        output=TensorSpec(dtype=result.dtype, shape=()),
    )
    backward = Elementwise(operations=("sub", "mul"), inputs=(result, result), output=result)
    return Loss(forward=(squares, mean), backward=(backward,), kept_bytes=result.byte_count)


def _cast(source: TensorSpec, target: TensorSpec) -> Movement:
    return Movement(
        operation="cast",
        dtype=source.dtype,
        shape=source.shape,
        read=source.byte_count,
        written=target.byte_count,
    )
