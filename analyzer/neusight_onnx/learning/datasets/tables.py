"""Parquet files as columns, and what readers do with columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.errors import DataError
from neusight_onnx.learning.extras import require

Table = Mapping[str, NDArray[Any]]
"""Columns of a file by name, all of one length."""


def read_table(path: Path, columns: Sequence[str]) -> Table:
    """The named columns of a parquet file. Raises DataError if it can't be read or lacks one."""
    parquet = require("pyarrow.parquet")
    arrow = require("pyarrow")
    try:
        present = parquet.read_schema(path).names
        missing = [name for name in columns if name not in present]
        table = None if missing else parquet.read_table(path, columns=list(columns))
    except (OSError, arrow.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"can't read {path}: {reason}; expected a parquet file with {', '.join(columns)}") from error
    if table is None:
        raise DataError(f"{path} has no column {', '.join(missing)}")
    return {name: table.column(name).to_numpy(zero_copy_only=False) for name in columns}


def has_columns(path: Path, columns: Sequence[str]) -> bool:
    """Whether a parquet file has all of the named columns. Raises DataError if it can't be read."""
    parquet = require("pyarrow.parquet")
    arrow = require("pyarrow")
    try:
        return set(columns) <= set(parquet.read_schema(path).names)
    except (OSError, arrow.ArrowException) as error:
        raise DataError(f"can't read {path}: {str(error).splitlines()[0]}") from error


def ints(values: NDArray[Any]) -> list[int]:
    """A column as whole numbers; what is missing is 0."""
    found: list[int] = np.nan_to_num(values.astype(np.float64)).astype(np.int64).tolist()
    return found


def strings(values: NDArray[Any]) -> NDArray[np.str_]:
    """A column as text; what is missing is empty."""
    return np.array(["" if value is None else str(value) for value in values.tolist()], dtype=np.str_)


def take(table: Table, rows: NDArray[np.int64]) -> Table:
    """The given rows (indices) of all columns."""
    return {name: column[rows] for name, column in table.items()}


def grouped(*columns: NDArray[Any]) -> list[tuple[tuple[str, ...], NDArray[np.int64]]]:
    """Rows that agree in all columns, by what they hold there, in order."""
    keys = list(zip(*(strings(column).tolist() for column in columns), strict=True))
    rows: dict[tuple[str, ...], list[int]] = {}
    for i, key in enumerate(keys):
        rows.setdefault(key, []).append(i)
    return [(key, np.array(rows[key], dtype=np.int64)) for key in sorted(rows)]
