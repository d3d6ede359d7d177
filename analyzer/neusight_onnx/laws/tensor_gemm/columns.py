"""Products on matrix units as columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neusight_onnx.kernels import Gemm, Kernel
from neusight_onnx.laws.base import Column
from neusight_onnx.laws.matrix_units import PIPES, pipe_of_product
from neusight_onnx.laws.tensor_gemm import unaligned


def batch_and_rows(kernel: Gemm) -> tuple[int, int]:
    """A batch that shares its right operand is one product of b m rows, which is what libraries are handed."""
    batch, m = kernel.batch, kernel.m
    if batch > 1 and kernel.b_batch == 1 and kernel.a_batch in (None, batch) and not kernel.transpose_a:
        return 1, batch * m
    return batch, m


def columns(kernels: Sequence[Kernel]) -> dict[str, Column]:
    """Gemm kernels as columns: sizes, bytes an element as multiplied and as stored, and the pipe's number."""
    rows: list[tuple[float, ...]] = []
    for kernel in kernels:
        assert isinstance(kernel, Gemm)
        batch, m = batch_and_rows(kernel)
        multiplied = kernel.dtype.bits / 8
        a_stored = (kernel.a_dtype or kernel.dtype).bits / 8
        b_stored = (kernel.b_dtype or kernel.dtype).bits / 8
        rows.append(
            (
                batch,
                m,
                kernel.n,
                kernel.k,
                min(multiplied, a_stored),
                b_stored,
                (kernel.output_dtype or kernel.dtype).bits / 8,
                multiplied,
                a_stored if a_stored > multiplied else 0.0,
                float(kernel.tensor_scale and a_stored > multiplied),
                float(b_stored < multiplied),
                kernel.read_bytes,
                kernel.write_bytes,
                kernel.flops,
                float(PIPES.index(pipe_of_product(kernel))),
                float(kernel.repeated or not kernel.b_is_weight),
                kernel.kept_in_l2 if kernel.b_is_weight else 0.0,
                float(kernel.rotated),
                float(kernel.unsplit),
                float(kernel.burst),
                kernel.activity,
                kernel.beside_read_bytes,
                float("bias" in kernel.epilogue),
                *unaligned.vectors(kernel, m),
                float(kernel.row_padding == "copied"),
            )
        )
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(_COLUMNS))
    return {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(_COLUMNS)}


_COLUMNS = (
    "b",
    "m",
    "n",
    "k",
    "a_bytes",
    "b_bytes",
    "out_bytes",
    "multiplied_bytes",
    "converted_bytes",
    "tensor_scale",
    "unpacks",
    "read_bytes",
    "write_bytes",
    "flops",
    "pipe",
    "repeated",
    "kept_in_l2",
    "rotated",
    "unsplit",
    "burst",
    "activity",
    "beside_bytes",
    "bias",
    "operand_vector",
    "result_vector",
    "copied_rows",
)
