"""What is shipped: predictors as the manifest of their folder describes them, each checked against its law."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.data_files import data_folder
from neusight_onnx.errors import PredictorError

MANIFEST_NAME = "manifest.json"
MANIFEST_VERSION = 1
DEPLOYMENTS_NAME = "deployments.json"
DEPLOYMENTS_VERSION = 1
REBUILD = "rebuild with `make predictors`"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Errors on what was left out, in per cent; ``bias`` is the median signed error.

    Rows of at least 50 us, 5 us where the kernel's own time was measured.
    """

    protocol: str
    gpu: str
    operation: str
    row_count: int
    mape_percent: float
    median_ape_percent: float
    bias_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorInfo:
    """A shipped predictor as its manifest describes it; errors are None where too little data gave none."""

    name: str
    kernel_class: str
    dtype: str
    gpus: tuple[str, ...]
    row_count: int
    file: str
    byte_count: int
    leave_one_gpu_out_percent: float | None
    new_shapes_percent: float | None
    held_out: tuple[HeldOut, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """Half widths in log of the intervals of a predictor, and what share of their variance is the GPU's level.

    ``seen``: a new shape on a measured GPU in the session that was measured; ``session`` and ``throttled_session``:
    another session on it, where the card holds its boost clock and where it can't; ``unseen``: another GPU; ``law``:
    a shape outside the training data, for which only the law stands. ``deployment``: what the kernels of a run have in
    common on a measured GPU with another library, program and card; ``beyond``: on a GPU that was not measured.
    """

    seen: float
    unseen: float
    law: float
    seen_level_share: float = 1.0
    unseen_level_share: float = 1.0
    session: float = 0.0
    throttled_session: float = 0.0
    deployment: float = 0.0
    beyond: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictor:
    """What a manifest entry says, ready for use; ``sha256`` is checked when the trees are loaded.

    ``left_out``: by name of a trained GPU, the constants that a fit without it gave. ``formats``: labels of the number
    formats whose kernels were measured, or run as those that were. ``narrow_operands``: it stands for products of
    fewer bits that run on FP32's lanes. ``law_vectors``: of the GPUs whose measurements carry the law, also through
    constants that it shares with another predictor.
    """

    name: str
    kernel_class: str
    dtype: str
    path: Path
    sha256: str
    constants: Mapping[str, float]
    gpus: tuple[str, ...]
    gpu_vectors: tuple[tuple[float, ...], ...]
    feature_low: NDArray[np.float64]
    feature_high: NDArray[np.float64]
    unseen_weight: float
    interval: Widths
    amd_interval: Widths
    left_out: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    formats: tuple[str, ...] = ()
    narrow_operands: bool = False
    law_vectors: tuple[tuple[float, ...], ...] = ()


Predictors: TypeAlias = Mapping[tuple[str, str], Predictor]
"""Predictors by kernel class and dtype."""


def list_predictors(folder: Path | None = None) -> tuple[PredictorInfo, ...]:
    """What is shipped, from the manifest alone (onnxruntime isn't needed).

    Raises PredictorError if there is no manifest or it can't be understood.
    """
    folder = data_folder("predictors") if folder is None else folder
    infos = []
    for entry in _manifest_entries(folder):
        try:
            path = folder / entry["file"]
            infos.append(
                PredictorInfo(
                    name=entry["name"],
                    kernel_class=entry["kernel_class"],
                    dtype=entry["dtype"],
                    gpus=tuple(gpu["name"] for gpu in entry["training"]["gpus"]),
                    row_count=entry["training"]["row_count"],
                    file=entry["file"],
                    byte_count=path.stat().st_size if path.is_file() else 0,
                    leave_one_gpu_out_percent=entry["held_out"]["leave_one_gpu_out_percent"],
                    new_shapes_percent=entry["held_out"]["new_shapes_percent"],
                    held_out=tuple(HeldOut(**row) for row in entry["held_out"]["rows"]),
                )
            )
        except (KeyError, TypeError) as error:
            raise PredictorError(f"{folder / MANIFEST_NAME}: entry without {error}; {REBUILD}") from error
    return tuple(infos)


def _manifest_entries(folder: Path) -> list[dict[str, Any]]:
    path = folder / MANIFEST_NAME
    try:
        manifest = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise PredictorError(f"{path} is missing: no predictors are installed; {REBUILD}") from error
    except (OSError, ValueError) as error:
        raise PredictorError(f"can't read {path}: {error}; {REBUILD}") from error
    if not isinstance(manifest, dict) or manifest.get("schema_version") != MANIFEST_VERSION:
        version = manifest.get("schema_version") if isinstance(manifest, dict) else None
        raise PredictorError(f"{path} has schema version {version}, this version reads {MANIFEST_VERSION}; {REBUILD}")
    entries: list[dict[str, Any]] = manifest["predictors"]
    return entries


@lru_cache(maxsize=4)
def load_predictors(folder: Path) -> Predictors:
    """Predictors of a folder by (kernel class, dtype), each checked against its law; read once per process."""
    from neusight_onnx.laws.catalog import law_of

    found: dict[tuple[str, str], Predictor] = {}
    shared: dict[tuple[str, str], tuple[str, str] | None] = {}
    common = _common(folder)
    for entry in _manifest_entries(folder):
        try:
            usual, amd = (common.get((entry["name"], vendor), {}) for vendor in ("", "amd"))
            law = law_of(entry["kernel_class"], entry["dtype"])
            constants = {name: float(constant["value"]) for name, constant in entry["constants"].items()}
            predictor = Predictor(
                name=entry["name"],
                kernel_class=entry["kernel_class"],
                dtype=entry["dtype"],
                path=folder / entry["file"],
                sha256=entry["sha256"],
                constants=constants,
                gpus=tuple(gpu["name"] for gpu in entry["training"]["gpus"]),
                gpu_vectors=tuple(tuple(gpu["vector"]) for gpu in entry["training"]["gpus"]),
                feature_low=np.array(entry["feature_low"], dtype=np.float64),
                feature_high=np.array(entry["feature_high"], dtype=np.float64),
                unseen_weight=float(entry["unseen_residual_weight"]),
                interval=replace(_widths(entry["interval"]), **usual),
                amd_interval=replace(_widths(entry["interval"].get("amd", entry["interval"])), **(amd or usual)),
                left_out=entry.get("left_out_constants", {}),
                formats=tuple(entry.get("formats", (entry["dtype"],))),
            )
            names = tuple(entry["features"])
        except (KeyError, TypeError, ValueError) as error:
            raise PredictorError(f"{folder / MANIFEST_NAME}: entry without {error}; {REBUILD}") from error
        if law is None or names != law.feature_names or set(constants) != {c.name for c in law.constants}:
            raise PredictorError(
                f"{folder / MANIFEST_NAME}: {predictor.name} was made for another law of {predictor.kernel_class} "
                f"(features or constants differ); {REBUILD}"
            )
        found[predictor.kernel_class, predictor.dtype] = predictor
        shared[predictor.kernel_class, predictor.dtype] = law.constants_of
    for key, predictor in tuple(found.items()):
        source = found.get(shared[key] or key, predictor)
        vectors = dict.fromkeys((*predictor.gpu_vectors, *source.gpu_vectors))
        found[key] = replace(predictor, law_vectors=tuple(vectors))
    return found


def _common(folder: Path) -> dict[tuple[str, str], dict[str, float]]:
    """What kernels of a run have in common, by predictor and "amd" or "": nothing where the folder doesn't say.

    Raises PredictorError where it can't be understood.
    """
    path = folder / DEPLOYMENTS_NAME
    if not path.is_file():
        return {}
    found: dict[tuple[str, str], dict[str, float]] = {}
    try:
        content = json.loads(path.read_bytes())
        if content["schema_version"] != DEPLOYMENTS_VERSION:
            raise PredictorError(f"{path} has another schema version than {DEPLOYMENTS_VERSION}; {REBUILD}")
        for name, entry in content["predictors"].items():
            for vendor, parts in (("", entry), ("amd", entry.get("amd", {}))):
                found[name, vendor] = {
                    field: float(parts[part]["half_width_log"])
                    for part, field in (("measured", "deployment"), ("unmeasured", "beyond"))
                    if part in parts
                }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PredictorError(f"can't understand {path}: {error!r}; {REBUILD}") from error
    return found


def _widths(interval: Mapping[str, Any]) -> Widths:
    """The widths of a manifest entry; one without the newer keys has one level and no spread between sessions."""
    return Widths(
        seen=float(interval["seen_half_width_log"]),
        unseen=float(interval["unseen_half_width_log"]),
        law=float(interval["law_half_width_log"]),
        seen_level_share=float(interval.get("seen_level_share", 1.0)),
        unseen_level_share=float(interval.get("unseen_level_share", 1.0)),
        session=float(interval.get("session_half_width_log", 0.0)),
        throttled_session=float(interval.get("throttled_session_half_width_log", 0.0)),
    )


def without_gpu(predictors: Predictors, gpu: str) -> Predictors:
    """The predictors as if nothing had been measured on the GPU of that name: the law with the constants of a fit
    without it, and no residual, whose trees have seen it.

    A class that wasn't trained on the GPU stays as it is. Raises PredictorError where there are no such constants.
    """
    found = {}
    for key, predictor in predictors.items():
        if gpu not in predictor.gpus:
            found[key] = predictor
            continue
        if gpu not in predictor.left_out:
            raise PredictorError(f"{predictor.name} holds no constants that were fitted without {gpu}; {REBUILD}")
        found[key] = replace(
            predictor, constants=predictor.left_out[gpu], gpu_vectors=(), law_vectors=(), unseen_weight=0.0
        )
    return found
