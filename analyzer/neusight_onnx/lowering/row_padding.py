"""Which products a runtime pads rows of to whole vectors of 16 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neusight_onnx.kernels import Gemm, Kernel, NodeWork
from neusight_onnx.kernels.products import RowPadding

_ELEMENTS = 8
"""Of 16 bits: rows of a multiple of them are whole vectors in any wider format, too."""


def with_row_padding(works: Sequence[NodeWork], padding: RowPadding) -> tuple[NodeWork, ...]:
    """``works`` and their alternatives with the products marked (``Gemm.row_padding``) that have rows to pad."""

    def marked(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
        return tuple(
            replace(kernel, row_padding=padding) if isinstance(kernel, Gemm) and _has_odd_rows(kernel) else kernel
            for kernel in kernels
        )

    return tuple(
        replace(work, kernels=marked(work.kernels), alternatives=tuple(map(marked, work.alternatives)))
        if any(_has_odd_rows(kernel) for way in (work.kernels, *work.alternatives) for kernel in way)
        else work
        for work in works
    )


def _has_odd_rows(kernel: Kernel) -> bool:
    """Whether a side that may be a row isn't a multiple."""
    return isinstance(kernel, Gemm) and any(side % _ELEMENTS for side in (kernel.n, kernel.k))
