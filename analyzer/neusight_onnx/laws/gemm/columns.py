"""Matrix products as columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neusight_onnx.kernels import Gemm, Kernel
from neusight_onnx.laws.base import Column


def columns(kernels: Sequence[Kernel]) -> dict[str, Column]:
    """Gemm kernels as columns: b, m, n, k, bytes of one entry's operands, of all unique ones and of the output, layout.

    A batch that shares its right operand is one product of b m rows, which is what libraries are handed.
    """
    rows: list[tuple[float, ...]] = []
    for kernel in kernels:
        assert isinstance(kernel, Gemm)
        batch, m = kernel.batch, kernel.m
        shares_b = kernel.b_batch == 1 and kernel.a_batch in (None, batch)
        if batch > 1 and shares_b and not kernel.transpose_a:
            batch, m = 1, batch * m
        a_bits = (kernel.a_dtype or kernel.dtype).bits
        b_bits = (kernel.b_dtype or kernel.dtype).bits
        out_bits = (kernel.output_dtype or kernel.dtype).bits
        rows.append(
            (
                batch,
                m,
                kernel.n,
                kernel.k,
                a_bits / 8,
                b_bits / 8,
                out_bits / 8,
                kernel.read_bytes,
                kernel.write_bytes,
                kernel.flops,
                "bias" in kernel.epilogue,
                not kernel.transpose_a,
                kernel.transpose_b,
                kernel.any_tile,
            )
        )
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(_COLUMNS))
    return {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(_COLUMNS)}


_COLUMNS = (
    *("b", "m", "n", "k", "a_bytes", "b_bytes", "out_bytes", "read_bytes", "write_bytes", "flops", "bias"),
    *("left_along_k", "right_along_k", "any_tile"),
)
