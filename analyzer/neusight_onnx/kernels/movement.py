"""What moves elements: by a formula, through indices, or into order."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels.tensors import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """Copies without arithmetic: transpose, concat, slice, pad, expand, tile, cast, copy, fill, resize, split.

    ``read`` are the bytes really read (a slice reads what it keeps); ``permutation`` for transposes, of
    ``shape`` (the source's shape), so that a predictor can tell coalesced from strided. ``run``: elements that stay
    together, each run starting at a multiple of its length on both sides (1: not known to). ``parts``: sizes along its
    axis of what a split gives, where known. ``taps``: of a resize (n, c, *spatial), how many neighbours an element is
    made of (0: not told). ``library`` is as in :class:`Elementwise`.
    """

    operation: str
    dtype: DataType
    shape: tuple[int, ...]
    permutation: tuple[int, ...] | None = None
    read: int
    written: int
    flops_per_element: int = 0
    run: int = 1
    parts: tuple[int, ...] = ()
    taps: int = 0
    library: str = ""

    @property
    def macs(self) -> int:
        return 0

    @property
    def flops(self) -> int:
        return self.flops_per_element * prod(self.shape)

    @property
    def read_bytes(self) -> int:
        return self.read

    @property
    def write_bytes(self) -> int:
        return self.written


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherScatter:
    """Reads or writes through indices: embedding, indexing, scatter.

    ``moved`` elements of ``dtype`` go through ``index_count`` indices of ``index_dtype``, in contiguous runs of
    ``run`` elements. Only what is touched is read; a scatter out of place also copies its ``base`` (all of it
    read and written). ``access`` and ``library`` are as in :class:`Elementwise`.
    """

    operation: str
    moved: int
    run: int
    dtype: DataType
    index_count: int
    index_dtype: DataType
    base: TensorSpec | None = None
    access: str = ""
    library: str = ""

    @property
    def macs(self) -> int:
        return 0

    @property
    def flops(self) -> int:
        return 0

    @property
    def read_bytes(self) -> int:
        total = self.dtype.bytes_of(self.moved) + self.index_dtype.bytes_of(self.index_count)
        return total + (self.base.byte_count if self.base else 0)

    @property
    def write_bytes(self) -> int:
        return self.dtype.bytes_of(self.moved) + (self.base.byte_count if self.base else 0)


Move: TypeAlias = Movement | GatherScatter
"""What a kernel may do to the places of elements."""

GENERATED = "generated"
"""Library of a move that a compiler wrote: a loop over elements, as an :class:`Elementwise` kernel of its."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sort:
    """Sorting, top-k, unique, non-maximum suppression, non-zero: ``rows`` independent problems of ``cols``.

    ``candidates``: of non-maximum suppression, how many boxes of all problems pass the score's threshold; None: all.
    ``library`` is as in :class:`Elementwise`, of top-k and non-maximum suppression (which ONNX Runtime's sorts before).
    """

    operation: str
    rows: int
    cols: int
    kept: int
    dtype: DataType
    output_bytes: int
    candidates: int | None = None
    library: str = ""

    @property
    def macs(self) -> int:
        return 0

    @property
    def flops(self) -> int:
        return self.rows * self.cols * max(1, (self.cols - 1).bit_length())

    @property
    def read_bytes(self) -> int:
        return self.dtype.bytes_of(self.rows * self.cols)

    @property
    def write_bytes(self) -> int:
        return self.output_bytes
