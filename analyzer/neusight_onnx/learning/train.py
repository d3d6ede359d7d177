"""Makes the predictors of a data folder, kind by kind, and writes them with their manifest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from neusight_onnx.errors import DataError, OutputError
from neusight_onnx.gpu import load_gpu
from neusight_onnx.laws.base import with_fixed
from neusight_onnx.laws.catalog import LAWS, law_of
from neusight_onnx.learning.datasets.attention import ATTENTION
from neusight_onnx.learning.datasets.parts import known_gpus
from neusight_onnx.learning.datasets.registry import file_sha256, measured_folder, read_measurements, read_parts
from neusight_onnx.learning.datasets.training_rows import (
    MATRIX_UNIT_FILES,
    TRAINED_ATTENTION,
    TRAINED_VARIANTS,
    TRAINING_FILES,
    implementation_levels,
    product_levels,
    read_attention,
    with_own,
)
from neusight_onnx.learning.entry import DTYPE_SUFFIX, MANY_ROWS, train_class
from neusight_onnx.learning.interval_widths import implementation_widths
from neusight_onnx.learning.residuals import ResidualSettings
from neusight_onnx.learning.shared_predictors import SHARED_NAMES, SHARED_PREDICTORS, shared_parts, shared_rows
from neusight_onnx.predictor.manifest import MANIFEST_NAME, MANIFEST_VERSION

MATRIX_UNIT_FORMATS = tuple(TRAINED_VARIANTS)
"""Number formats of products on matrix units."""

ATTENTION_SETTINGS = ResidualSettings(
    tree_count=240, leaf_count=40, learning_rate=0.1, rows_per_leaf=15, l2=1.0, row_limit=60_000
)
"""Fused attention has ten thousand rows a GPU and operation, and which of a library's kernels ran follows their
sizes."""

MATRIX_UNIT_SETTINGS = ResidualSettings(tree_count=500, leaf_count=72, learning_rate=0.08, rows_per_leaf=15, l2=1.0)
"""Products on matrix units have twenty thousand rows a GPU, and their own times without a host's in them."""


def train(
    data_folder: Path,
    output: Path,
    *,
    seed: int = 0,
    classes: Sequence[str] = tuple(LAWS),
    log: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Trains a predictor per kernel class and dtype found in the training files; writes models and manifest.

    Predictors that the output's manifest describes and the data says nothing of are kept. The same data and seed
    give the same files. Raises DataError (nothing to read), NeusightError (the ``learning`` extra is missing),
    OutputError (the folder can't be written).
    """
    data_folder = measured_folder(data_folder)
    measured = read_measurements(data_folder, TRAINING_FILES)
    files = [
        {"path": name, "sha256": file_sha256(data_folder / name)}
        for name in TRAINING_FILES
        if (data_folder / name).is_file()
    ]
    entries: dict[str, dict[str, Any]] = {}
    models: dict[str, bytes] = {}
    for measurements in measured:
        if measurements.kernel_class not in classes:
            continue
        specs = known_gpus(measurements, log)
        if not specs:
            log(f"{measurements.kernel_class}: no row is of a known GPU, skipped")
            continue
        entry, model = train_class(
            LAWS[measurements.kernel_class], measurements, specs, seed=seed, files=files, log=log
        )
        entries[entry["name"]] = entry
        models[entry["file"]] = model
    if not entries:
        raise DataError(f"{data_folder} has no rows of {', '.join(classes)} on a known GPU: nothing to train on")
    return _write(
        output,
        entries,
        models,
        asked=lambda entry: entry["dtype"] == "float32" and entry["kernel_class"] in classes,
        log=log,
    )


def train_matrix_units(
    data_folder: Path,
    output: Path,
    *,
    seed: int = 0,
    formats: Sequence[str] = MATRIX_UNIT_FORMATS,
    log: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Trains the predictors of products on matrix units, one a number format, and keeps all others of the manifest.

    Of a format that several frameworks ran, the rows of one are used (``TRAINED_VARIANTS``), and those of own
    measurements. Raises as ``train`` does.
    """
    parts = read_parts(data_folder, MATRIX_UNIT_FILES)
    data_folder = measured_folder(data_folder)
    entries: dict[str, dict[str, Any]] = {}
    models: dict[str, bytes] = {}
    for part in parts:
        if part.load is None or part.dtype not in formats or part.variant != TRAINED_VARIANTS[part.dtype]:
            continue
        measurements, own = with_own(part.load(), data_folder)
        specs = known_gpus(measurements, log)
        law = law_of(measurements.kernel_class, measurements.dtype)
        if not specs or law is None:
            log(f"{measurements.dtype}: no row is of a known GPU, skipped")
            continue
        files = [{"path": name, "sha256": file_sha256(data_folder / name)} for name in (*MATRIX_UNIT_FILES, *own)]
        settings = MATRIX_UNIT_SETTINGS if len(measurements) >= MANY_ROWS else ResidualSettings()
        entry, model = train_class(law, measurements, specs, seed=seed, files=files, log=log, settings=settings)
        entry["interval"].update(implementation_widths(product_levels(parts, measurements)))
        entries[entry["name"]] = entry
        models[entry["file"]] = model
    if not entries:
        raise DataError(f"{data_folder} has no rows of {', '.join(formats)} on a known GPU: nothing to train on")
    return _write(
        output,
        entries,
        models,
        asked=lambda entry: entry["kernel_class"] == "gemm" and entry["dtype"] in formats,
        log=log,
    )


def train_attention(
    data_folder: Path, output: Path, *, seed: int = 0, log: Callable[[str], None] = print
) -> dict[str, Any]:
    """Trains the predictors of fused attention, one a number format, and keeps all others of the manifest.

    The rows are those of one framework (``TRAINED_ATTENTION``). Raises as ``train`` does.
    """
    entries: dict[str, dict[str, Any]] = {}
    models: dict[str, bytes] = {}
    folder = measured_folder(data_folder)
    for label in TRAINED_ATTENTION:
        measurements = read_attention(data_folder, label)
        law = law_of("attention", label)
        specs = known_gpus(measurements, log) if measurements is not None else {}
        if measurements is None or law is None or not specs:
            log(f"attention in {label}: no row is of a known GPU, skipped")
            continue
        files = [
            {"path": name, "sha256": file_sha256(folder / name)} for name in ATTENTION if (folder / name).is_file()
        ]
        entry, model = train_class(
            law, measurements, specs, seed=seed, files=files, log=log, settings=ATTENTION_SETTINGS
        )
        entry["interval"].update(implementation_widths(implementation_levels(data_folder, measurements)))
        entries[entry["name"]] = entry
        models[entry["file"]] = model
    if not entries:
        raise DataError(f"{data_folder} has no rows of fused attention on a known GPU: nothing to train on")
    return _write(output, entries, models, asked=lambda entry: entry["kernel_class"] == "attention", log=log)


def train_shared(
    data_folder: Path,
    output: Path,
    *,
    seed: int = 0,
    names: Sequence[str] = SHARED_NAMES,
    log: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Trains the predictors that all formats of matrix units share, and keeps all others of the manifest.

    Convolutions on GPUs by NVIDIA take the constants of products from the manifest's ``gemm_bf16``, gradients of those
    in FP32 the ones of ``gemm_fp32`` (without it, their priors): what was measured of them is on Pascal, Volta and
    Turing alone. Raises as ``train`` does.
    """
    folder = measured_folder(data_folder)
    entries: dict[str, dict[str, Any]] = {}
    models: dict[str, bytes] = {}
    for shared in SHARED_PREDICTORS:
        if shared.name not in names or not (folder / shared.file).is_file():
            continue
        parts = shared_parts(shared, folder)
        measurements = shared_rows(shared, parts, log)
        if measurements is None:
            log(f"{shared.name}: no row is of a known GPU, skipped")
            continue
        law = law_of(shared.kernel_class, shared.label)
        assert law is not None, "every shared predictor has a law"
        if law.constants_of is not None:
            kernel_class, label = law.constants_of
            law = with_fixed(law, _constants_of(output, f"{kernel_class}_{DTYPE_SUFFIX[label]}"))
        entry, model = train_class(
            law,
            measurements,
            {name: load_gpu(name) for name in sorted(set(measurements.gpu.tolist()))},
            seed=seed,
            files=[
                {"path": file, "sha256": file_sha256(folder / file)} for file in dict.fromkeys(p.file for p in parts)
            ],
            log=log,
            settings=shared.settings,
            thorough=True,
            unseen_weights=shared.unseen_weights,
        )
        own = {part.dtype for part in parts if part.file != shared.file}
        entries[entry["name"]] = {**entry, "formats": [*shared.formats, *sorted(own - set(shared.formats))]}
        models[entry["file"]] = model
    if not entries:
        raise DataError(f"{data_folder} has no rows of {', '.join(names)} on a known GPU: nothing to train on")
    return _write(output, entries, models, asked=lambda entry: entry["name"] in names, log=log)


def _constants_of(output: Path, name: str) -> dict[str, float]:
    """The fitted constants of a predictor that the output's manifest has; none without."""
    path = output / MANIFEST_NAME
    found = json.loads(path.read_bytes()).get("predictors", []) if path.is_file() else []
    return {
        constant: float(fitted["value"])
        for entry in found
        if entry["name"] == name
        for constant, fitted in entry["constants"].items()
    }


def _write(
    output: Path,
    entries: dict[str, dict[str, Any]],
    models: Mapping[str, bytes],
    *,
    asked: Callable[[Mapping[str, Any]], bool],
    log: Callable[[str], None],
) -> dict[str, Any]:
    """Writes what was trained over what the folder has; says which of the predictors ``asked`` for weren't trained."""
    path = output / MANIFEST_NAME
    if path.is_file():
        old = json.loads(path.read_bytes())
        for entry in old.get("predictors", []):
            if entry["name"] not in entries:
                entries[entry["name"]] = entry
                if asked(entry):
                    log(f"{entry['name']}: no rows of it in the data, kept as it was")
    for entry in entries.values():
        if entry["file"] in models:
            entry["sha256"] = hashlib.sha256(models[entry["file"]]).hexdigest()
    manifest = {"schema_version": MANIFEST_VERSION, "predictors": [entries[name] for name in sorted(entries)]}
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name, content in models.items():
            (output / name).write_bytes(content)
        path.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise OutputError(f"can't write predictors to {output}: {error.strerror}") from error
    return manifest
