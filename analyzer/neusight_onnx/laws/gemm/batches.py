"""Batches beside a batch of products, whose residuals tell of its own: one that was measured scatters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.laws.base import Column, Columns

_OF_A_BATCH = ("b", "read_bytes", "write_bytes", "flops")
_STEPS = (-1.0, 0.0, 1.0, 2.0)


def batches(cols: Columns) -> tuple[NDArray[np.int64], Columns, Column]:
    """The places of products in a batch, the columns of the four powers of two around each, and their weights.

    Weights are those of a cubic B-spline: a batch's correction changes from one power of two to the next by no more
    than theirs do. A T4's of (512, 64) @ (64, 512) take 6.3 to 14.7 us a product, by no rule of the batch: over 1,948
    of models' sizes the nearest batch's residual misses by 20.5 % (no residual: 21.3 %), the mean of the four nearest
    by 17.0 %; an A100's by 5.1 and 4.4 % (6.3), a P100's by 1.5 and 1.4 % (4.0).
    """
    rows = np.flatnonzero(cols["b"] > 1)
    power = np.log2(cols["b"][rows])
    begun = np.floor(power)
    powers = np.stack([begun + step for step in _STEPS])
    # one product has other kernels
    found = np.exp2(np.maximum(powers, 1.0))
    columns = {
        name: np.concatenate(
            [column[rows] * (other / cols["b"][rows] if name in _OF_A_BATCH else 1.0) for other in found]
        )
        for name, column in cols.items()
    }
    return rows, columns, _spline(np.abs(power - powers))


def _spline(apart: Column) -> Column:
    """The cubic B-spline of distances in steps; those of four steps around a place sum to 1."""
    near = 2.0 / 3.0 - apart**2 + apart**3 / 2.0
    far = np.maximum(2.0 - apart, 0.0) ** 3 / 6.0
    return np.where(apart < 1.0, near, far)
