"""Reads measured kernels: files of public measurements -> kernels, each with its GPU, session and latency.

A data folder has the layout that CONTRIBUTING.md lists; any subset of its files will do. The modules beside this
one know the files' columns, one module a source; only ``learning`` imports pyarrow.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from neusight_onnx.errors import DataError
from neusight_onnx.learning.datasets.attention import ATTENTION, attention_reader
from neusight_onnx.learning.datasets.conv import DEEPBENCH, MIOPEN_CONV, read_deepbench, read_miopen
from neusight_onnx.learning.datasets.llm_layers import LLM_LAYERS, VIDUR_LAYERS, read_llm_layers, read_vidur
from neusight_onnx.learning.datasets.neusight import NEUSIGHT_KERNELS, read_neusight
from neusight_onnx.learning.datasets.own import own_files, read_own
from neusight_onnx.learning.datasets.parts import Measurements, Part
from neusight_onnx.learning.datasets.products import AMD_GEMM, TENSOR_CORE_GEMM, read_amd_gemm, read_tensor_core_gemm
from neusight_onnx.learning.datasets.quantize import QUANTIZE, read_quantize

READERS: dict[str, Callable[[Path], list[Part]]] = {
    NEUSIGHT_KERNELS: read_neusight,
    TENSOR_CORE_GEMM: read_tensor_core_gemm,
    AMD_GEMM: read_amd_gemm,
    VIDUR_LAYERS: read_vidur,
    LLM_LAYERS: read_llm_layers,
    QUANTIZE: read_quantize,
    MIOPEN_CONV: read_miopen,
    DEEPBENCH: read_deepbench,
    **{file: attention_reader(file) for file in ATTENTION},
}
"""What can be read, by the file's path in the data folder."""


_WHOLE_MODELS = "whole models and no kernels: they judge what is predicted of models, and nothing else"
NOT_READ: Mapping[str, str] = {
    "end_to_end/": _WHOLE_MODELS,
    "neusight/end_to_end": _WHOLE_MODELS,
    "neusight/operators_in_models": "operators inside whole models: they judge, as those do",
    "neusight/operator_graphs": "lists of operators, of which nothing was measured",
    "collectives/": "transfers between GPUs, of which no class of kernels is predicted",
}
"""How the paths of known files that have no reader begin, and why there is none."""


def files_without_reader(data_folder: Path) -> dict[str, str]:
    """The data files of the folder, and of the folders in it, that nothing reads, with the reason."""
    folder = measured_folder(data_folder)
    read = {*READERS, *own_files(folder)}
    found = [
        path for pattern in ("*", "*/*") for kind in ("parquet", "csv") for path in folder.glob(f"{pattern}.{kind}")
    ]
    names = sorted({path.relative_to(folder).as_posix() for path in found if path.is_file()} - read)
    unknown = "no reader for a file of this name"
    return {
        name: next((reason for start, reason in NOT_READ.items() if name.startswith(start)), unknown) for name in names
    }


def measured_folder(path: Path) -> Path:
    """The folder of measured data: ``path``, or its ``data`` where that holds the files and ``path`` does not."""
    inner = path / "data"

    def holds(folder: Path) -> bool:
        return any((folder / name).is_file() for name in READERS) or bool(own_files(folder))

    return inner if not holds(path) and holds(inner) else path


def has_files(data_folder: Path, files: Sequence[str]) -> bool:
    """Whether the folder of measured data has one of ``files``."""
    folder = measured_folder(data_folder)
    return any((folder / name).is_file() for name in files)


def files_in(data_folder: Path, files: Sequence[str] | None = None) -> list[str]:
    """Those of ``files`` (default: all that have a reader) that the folder has. Raises DataError if it has none."""
    if not os.path.exists(data_folder):
        raise DataError(f"{data_folder} does not exist; pass the folder that holds the measured data")
    if not os.path.isdir(data_folder):
        raise DataError(f"{data_folder} is a file; pass the folder that holds the measured data")
    folder = measured_folder(data_folder)
    wanted = (*READERS, *own_files(folder)) if files is None else tuple(files)
    present = [name for name in wanted if (folder / name).is_file()]
    if not present:
        own = " or CSV files of measurements/" if files is None else ""
        raise DataError(
            f"{data_folder} has none of {', '.join(wanted)}{own}; pass the folder that holds the measured data"
        )
    return present


def read_parts(data_folder: Path, files: Sequence[str] | None = None) -> list[Part]:
    """Reads those of ``files`` (default: all that have a reader) that the folder has, without making kernels.

    Raises DataError if the folder has none of them, or one can't be read.
    """
    folder = measured_folder(data_folder)
    return [
        part
        for name in files_in(data_folder, files)
        for part in (READERS[name](folder / name) if name in READERS else read_own(name, folder / name))
    ]


def read_measurements(data_folder: Path, files: Sequence[str]) -> list[Measurements]:
    """Reads ``files`` as far as the folder has them, kernels made. Raises DataError as ``read_parts`` does."""
    return [part.load() for part in read_parts(data_folder, files) if part.load is not None]


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
