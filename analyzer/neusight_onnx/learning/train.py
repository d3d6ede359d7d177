"""Makes the predictors of a data folder: fit, judge on what is left out, export, and write down all of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import BY_LABEL
from neusight_onnx.errors import DataError, OutputError, SpecError
from neusight_onnx.gpu import GpuSpec, load_gpu
from neusight_onnx.kernels import (
    MATRIX_FORMATS,
    OF_WEIGHT,
    Conv,
    Kernel,
    kernel_dtype,
    measured_format,
    predictor_label,
)
from neusight_onnx.laws.bandwidth import is_amd
from neusight_onnx.laws.base import Law
from neusight_onnx.laws.catalog import LAWS, law_of
from neusight_onnx.laws.tensor_conv.law import with_products
from neusight_onnx.laws.tensor_gemm import serves
from neusight_onnx.learning import export
from neusight_onnx.learning.datasets.attention import ATTENTION
from neusight_onnx.learning.datasets.conv import DEEPBENCH, MIOPEN_CONV
from neusight_onnx.learning.datasets.own import OWN, own_files
from neusight_onnx.learning.datasets.parts import EVENTS, Measurements, Part, one_after_another
from neusight_onnx.learning.datasets.products import AMD_GEMM, OTHER_KERNELS
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
from neusight_onnx.learning.fitting import RESIDUALS, ResidualSettings, Session, residual_rows
from neusight_onnx.learning.heldout import (
    FOLDS,
    OWN_SHARE,
    SCORED_US,
    LeftOut,
    Scored,
    Trained,
    leave_out,
    mape_percent,
    new_shapes,
    on_matrix_units,
    train_once,
)
from neusight_onnx.power import holds_clock
from neusight_onnx.predictor.manifest import MANIFEST_NAME, MANIFEST_VERSION
from neusight_onnx.similarity import FAMILIAR_DISTANCE, MATRIX_VECTOR_NAMES, VECTOR_NAMES

COVERAGE = 0.8
"""Share of cases that an interval is meant to hold."""

LONE_GPU_HALF_WIDTH_LOG = 0.5
"""Half width (log) on another GPU where one alone was measured, so that nothing shows it. A judgement: products on
matrix units in formats that were measured on two GPUs err by .53-.63 on the one that is left out."""

MOST_COVERAGE = 0.9
"""Quantile of held-out errors that a width is, at most: the tail beyond is made of the odd rows of single sessions."""

UNSEEN_WEIGHTS = (0.0, 0.5, 1.0)
"""Weights of the residual on an unseen GPU that are tried; the best by leave-one-GPU-out error is shipped."""

WEIGHT_GAIN_PERCENT = 1.0
"""The residual is used on unseen GPUs only if it lowers that error by so many points: less is chance, with few GPUs."""

DTYPE_SUFFIX = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float8e4m3fn": "fp8",
    "int8": "int8",
    "bfloat16+int8": "w8a16",
    "bfloat16+int4": "w4a16",
    "float4e2m1": "fp4",
    "matrix": "matrix",
    "matrix/weight": "matrix_weight",
    "matrix+amd": "matrix_amd",
    "matrix/weight+amd": "matrix_weight_amd",
    "bfloat16+float8e4m3fn": "bf16_kv8",
}
"""How a predictor's file names the number format (``kernels.predictor_label``)."""

MATRIX_UNIT_FORMATS = tuple(TRAINED_VARIANTS)
"""Number formats of products on matrix units."""

ATTENTION_SETTINGS = ResidualSettings(
    tree_count=240, leaf_count=40, learning_rate=0.1, rows_per_leaf=15, l2=1.0, row_limit=60_000
)
"""Fused attention has ten thousand rows a GPU and operation, and which of a library's kernels ran follows their
sizes."""

MATRIX_UNIT_SETTINGS = ResidualSettings(tree_count=500, leaf_count=72, learning_rate=0.08, rows_per_leaf=15, l2=1.0)
"""Products on matrix units have twenty thousand rows a GPU, and their own times without a host's in them."""
MANY_ROWS = 40_000
"""From so many rows on they bear ``MATRIX_UNIT_SETTINGS``; formats with fewer have the usual trees."""

PROTOCOL = (
    f"Rows of at least {SCORED_US:g} us, 5 us where the kernel's own time was measured; where an operation was "
    "measured in two splits, 'test' (sizes of real models) is scored. leave_one_gpu_out: constants, sessions and trees "
    "fitted without any row of that GPU; leave_one_generation_out: without any GPU of that architecture; new_shapes: "
    f"{FOLDS} folds by exact kernel (one of them for products on matrix units with {MANY_ROWS:,} rows), trained on the "
    "GPU but never on the shape. The session's launch floor, read off "
    "its kernels below 50 us, is added to the predicted kernel time (of convolutions, whose host slows down as a "
    "session goes on, a floor that follows it, read off the smallest kernels by prediction; nothing where the kernel's "
    "own time was measured). "
    "Error of a predictor: mean over GPU x operation."
)


def train(
    data_folder: Path,
    output: Path,
    *,
    seed: int = 0,
    classes: Sequence[str] = tuple(LAWS),
    log: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Trains a predictor per kernel class and dtype found in the training files; writes models and manifest.

    Predictors of classes not in ``classes`` that the folder's manifest describes are kept. The same data and seed
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
        output, entries, models, kept=lambda entry: entry["dtype"] != "float32" or entry["kernel_class"] not in classes
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
        entry["interval"].update(_implementation_widths(product_levels(parts, measurements)))
        entries[entry["name"]] = entry
        models[entry["file"]] = model
    if not entries:
        raise DataError(f"{data_folder} has no rows of {', '.join(formats)} on a known GPU: nothing to train on")
    return _write(
        output,
        entries,
        models,
        kept=lambda entry: entry["kernel_class"] != "gemm" or entry["dtype"] not in formats,
    )


def _implementation_widths(levels: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Another framework's kernels stand for another session on a measured GPU: 80 % of their levels."""
    if not levels:
        return {}
    width = _rounded(_width([np.array(found) for found in levels.values()]))
    return {
        "session_half_width_log": width,
        "throttled_session_half_width_log": width,
        "session_method": "80 % of the levels of another framework's kernels against the trained ones",
    }


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
        entry["interval"].update(_implementation_widths(implementation_levels(data_folder, measurements)))
        entries[entry["name"]] = entry
        models[entry["file"]] = model
    if not entries:
        raise DataError(f"{data_folder} has no rows of fused attention on a known GPU: nothing to train on")
    return _write(output, entries, models, kept=lambda entry: entry["kernel_class"] != "attention")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPredictor:
    """A predictor of all formats of matrix units: its class and label, the file and the rows that it is trained on.

    ``measured``: labels of the file's parts. ``formats``: labels of kernels that those rows stand for.
    ``unseen_weights``: weights of the residual on unseen GPUs that are tried.
    """

    kernel_class: str
    label: str
    file: str
    measured: tuple[str, ...]
    formats: tuple[str, ...]
    settings: ResidualSettings
    unseen_weights: tuple[float, ...] = UNSEEN_WEIGHTS

    @property
    def name(self) -> str:
        return f"{self.kernel_class}_{DTYPE_SUFFIX[self.label]}"

    @property
    def amd(self) -> bool:
        return self.label.endswith("+amd")

    def takes(self, part: Part) -> bool:
        """Whether it is trained on rows of the part, if they are of its maker's GPUs."""
        gradient = part.kernel_class == "conv" and part.variant == "weight"
        return (
            part.file == self.file
            and part.kernel_class == self.kernel_class
            and part.dtype in self.measured
            and gradient == (OF_WEIGHT in self.label)
            and part.variant != OTHER_KERNELS
        )

    def operation(self, part: Part) -> str:
        """What rows of the part are called in its figures: direction or implementation, and format."""
        dtype = BY_LABEL[part.dtype]
        return f"{part.variant} {part.dtype if self.kernel_class == 'conv' else measured_format(dtype)}"


_SIXTEEN_BITS = ("float16", "bfloat16")
_CONVOLUTIONS = ResidualSettings(
    tree_count=400, leaf_count=128, learning_rate=0.08, rows_per_leaf=15, l2=1.0, row_limit=400_000
)
"""MIOpen's find database: a hundred thousand convolutions a GPU, whose solver follows the exact sizes."""

SHARED_PREDICTORS: tuple[SharedPredictor, ...] = (
    SharedPredictor(
        kernel_class="gemm",
        label="matrix+amd",
        file=AMD_GEMM,
        measured=("bfloat16", "float8e4m3fn", "float8e4m3fnuz", "int8"),
        formats=("bfloat16", "float8e4m3fn", "int8"),
        settings=ResidualSettings(),
    ),
    *(
        SharedPredictor(
            kernel_class="conv",
            label=f"matrix{of}",
            file=DEEPBENCH,
            measured=("float16",),
            formats=_SIXTEEN_BITS,
            settings=ResidualSettings(tree_count=100, leaf_count=8, rows_per_leaf=20),
            # Volta and Turing with one library of 2019: what trees learn of its choices says nothing of later ones
            unseen_weights=(0.0,),
        )
        for of in ("", "/weight")
    ),
    *(
        SharedPredictor(
            kernel_class="conv",
            label=f"matrix{of}+amd",
            file=MIOPEN_CONV,
            measured=_SIXTEEN_BITS,
            formats=_SIXTEEN_BITS,
            settings=_CONVOLUTIONS,
        )
        for of in ("", "/weight")
    ),
)


SHARED_NAMES = tuple(predictor.name for predictor in SHARED_PREDICTORS)


def train_shared(
    data_folder: Path,
    output: Path,
    *,
    seed: int = 0,
    names: Sequence[str] = SHARED_NAMES,
    log: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Trains the predictors that all formats of matrix units share, and keeps all others of the manifest.

    Convolutions on GPUs by NVIDIA take the constants of products from the manifest's ``gemm_bf16`` (without it, their
    priors): what was measured of them is on Volta and Turing alone. Raises as ``train`` does.
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
            law = with_products(_constants_of(output, f"{kernel_class}_{DTYPE_SUFFIX[label]}"))
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
    return _write(output, entries, models, kept=lambda entry: entry["name"] not in entries)


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


def shared_parts(shared: SharedPredictor, folder: Path) -> list[Part]:
    """The parts that a shared predictor is trained on, own measurements of such kernels among them."""
    parts = [part for part in read_parts(folder, (shared.file,)) if part.load is not None and shared.takes(part)]
    if shared.kernel_class != "conv" or shared.amd:
        return parts
    formats = {dtype.label for dtype in MATRIX_FORMATS}
    own = [part for file in own_files(folder) for part in read_parts(folder, (file,))]
    return parts + [part for part in own if part.kernel_class == "conv" and part.dtype in formats and part.load]


def shared_rows(
    shared: SharedPredictor, parts: Sequence[Part], log: Callable[[str], None], *, sampled: int | None = None
) -> Measurements | None:
    """The rows of the parts that are of its GPUs and directions, each format and direction an operation.

    ``sampled``: at most so many of each GPU and part.
    """
    found = []
    for part in parts:
        assert part.load is not None, "a part without kernels isn't chosen"
        rows = part.load(None if sampled is None else part.sample(sampled))
        specs = known_gpus(rows, log)
        served = {name: spec for name, spec in specs.items() if serves(spec, kernel_dtype(rows.kernels[0]))}
        mine = {name for name, spec in served.items() if is_amd(spec) == shared.amd}
        kept = np.isin(rows.gpu, sorted(mine)) & np.isfinite(rows.measured_us)
        if part.file != shared.file:
            of_weight = OF_WEIGHT in shared.label
            kept = kept & np.array(
                [predictor_label(kernel).endswith(OF_WEIGHT) == of_weight for kernel in rows.kernels]
            )
        elif shared.kernel_class == "conv" and not shared.amd:
            kept = kept & np.array([_fills_loads(kernel) for kernel in rows.kernels])
        rows = rows.select(kept)
        if len(rows):
            gpu = np.array([specs[name].name for name in rows.gpu.tolist()])
            name = shared.operation(part) if part.file == shared.file else f"{OWN} {part.variant} {part.dtype}"
            found.append(replace(rows, gpu=gpu, operation=np.full(len(rows), name), dtype=shared.label))
    return one_after_another(found) if found else None


def _fills_loads(kernel: Kernel) -> bool:
    """Whether channels are a multiple of eight: cuDNN 7.6, which DeepBench's rows ran with, had no kernel on tensor
    cores for others, which later ones pad."""
    assert isinstance(kernel, Conv)
    return kernel.c // kernel.groups % 8 == 0 and kernel.k // kernel.groups % 8 == 0


def known_gpus(measurements: Measurements, log: Callable[[str], None] = print) -> dict[str, GpuSpec]:
    """Specs of the GPUs that rows name; GPUs without a spec are reported and left out."""
    specs: dict[str, GpuSpec] = {}
    for name in sorted(set(measurements.gpu.tolist())):
        try:
            specs[name] = load_gpu(name)
        except SpecError as error:
            count = int(np.count_nonzero(measurements.gpu == name))
            log(f"{measurements.file}: {count} rows of {name} skipped: {error}")
    return specs


def train_class(
    law: Law,
    measurements: Measurements,
    specs: Mapping[str, GpuSpec],
    *,
    seed: int,
    files: Sequence[Mapping[str, str]],
    log: Callable[[str], None] = print,
    settings: ResidualSettings | None = None,
    thorough: bool = False,
    unseen_weights: Sequence[float] = UNSEEN_WEIGHTS,
) -> tuple[dict[str, Any], bytes]:
    """One predictor: its manifest entry and its ONNX file.

    ``thorough``: GPUs are left out with all of the trees, however many rows there are.
    """
    settings = RESIDUALS.get(law.kernel_class, ResidualSettings()) if settings is None else settings
    name = f"{law.kernel_class}_{DTYPE_SUFFIX[measurements.dtype]}"
    singles = {gpu: (gpu,) for gpu in specs}
    many = len(measurements) >= MANY_ROWS and measurements.timing != EVENTS
    # whether trees help on an unseen GPU at all shows with a quarter of them
    few = replace(settings, tree_count=settings.tree_count // 4, row_limit=settings.row_limit // 4)
    tried = leave_out(
        law,
        measurements,
        specs,
        singles,
        seed=seed,
        settings=few if many and not thorough else settings,
        unseen_weights=unseen_weights,
    )
    unseen_weight = best_weight(tried, measurements)
    log(f"{name}: residual weight on unseen GPUs {unseen_weight:g}")
    trained = train_once(law, measurements, specs, seed=seed, settings=settings)
    unseen = {gpu: left.scored[unseen_weight] for gpu, left in tried.items()}
    generations: dict[str, list[str]] = {}
    for gpu, spec in specs.items():
        generations.setdefault(spec.architecture, []).append(gpu)
    alone = {key: gpus for key, gpus in generations.items() if len(gpus) > 1}
    by_generation = leave_out(
        law, measurements, specs, alone, seed=seed, settings=settings, unseen_weights=(unseen_weight,)
    )
    # a fifth of many rows is enough to tell the error
    seen = new_shapes(law, measurements, specs, seed=seed, settings=settings, fold_count=1 if many else FOLDS)
    rows = [row for gpu in sorted(unseen) for row in _errors("leave_one_gpu_out", measurements, unseen[gpu])]
    for key in sorted(by_generation):
        rows += _errors("leave_one_generation_out", measurements, by_generation[key].scored[unseen_weight])
    rows += _errors("new_shapes", measurements, seen)
    residuals = residual_rows(law, measurements, specs, trained.fit, settings, seed=seed)
    model = export.to_onnx(trained.booster, name=name, feature_count=len(law.feature_names))
    compared = export.parity_rows(residuals.features, seed=seed)
    worst = export.parity(model, trained.booster, compared)
    summary = {key: _mean_error(rows, key) for key in ("leave_one_gpu_out", "new_shapes")}
    log(f"{name}: " + ", ".join(f"{key} {value:.1f} %" for key, value in summary.items() if value is not None))
    constants = {
        constant.name: {
            "value": _rounded(trained.fit.constants[constant.name]),
            "prior": constant.prior,
            "prior_log_sd": _rounded(constant.prior_log_sd),
            "source": constant.source,
        }
        for constant in law.constants
    }
    entry = {
        "name": name,
        "kernel_class": law.kernel_class,
        "dtype": measurements.dtype,
        "file": f"{name}.onnx",
        "constants": constants,
        "left_out_constants": {
            # without the only GPU that was measured, nothing but the priors is left
            gpu: {
                constant.name: _rounded(tried[gpu].constants[constant.name] if gpu in tried else constant.prior)
                for constant in law.constants
            }
            for gpu in specs
        },
        "features": list(law.feature_names),
        # to the last digit: of a feature that all rows share (one GPU's ridge) a rounded bound leaves every row outside
        "feature_low": trained.feature_low.tolist(),
        "feature_high": trained.feature_high.tolist(),
        "unseen_residual_weight": unseen_weight,
        "familiar_distance": FAMILIAR_DISTANCE,
        "gpu_vector_names": list(MATRIX_VECTOR_NAMES if on_matrix_units(measurements) else VECTOR_NAMES),
        "training": _training(measurements, specs, trained, settings, files=files, seed=seed),
        "held_out": {
            "protocol": PROTOCOL,
            **{f"{key}_percent": None if value is None else _rounded(value) for key, value in summary.items()},
            "rows": rows,
            **_own_times(measurements, unseen, seen),
        },
        "interval": _interval(
            measurements,
            unseen,
            seen,
            law_alone={gpu: _judged(measurements, left.scored[0.0]) for gpu, left in tried.items()},
            sessions=trained.fit.sessions,
            specs=specs,
        ),
        "parity": {"row_count": len(compared), "largest_relative_error": float(f"{worst:.3g}")},
    }
    return entry, model


def best_weight(tried: Mapping[str, LeftOut], measurements: Measurements) -> float:
    """Weight of the residual on an unseen GPU with the least leave-one-GPU-out error; 0 unless it is clearly better."""
    if not tried:
        return 0.0
    errors = {
        weight: float(np.mean([_gpu_error(measurements, left.scored[weight]) for left in tried.values()]))
        for weight in next(iter(tried.values())).scored
    }
    best = min(errors, key=lambda weight: errors[weight])
    return best if errors[best] < errors[0.0] - WEIGHT_GAIN_PERCENT else 0.0


def _training(
    measurements: Measurements,
    specs: Mapping[str, GpuSpec],
    trained: Trained,
    settings: ResidualSettings,
    *,
    files: Sequence[Mapping[str, str]],
    seed: int,
) -> dict[str, Any]:
    return {
        "files": [dict(entry) for entry in files],
        "row_count": int(sum(session.row_count for session in trained.fit.sessions.values())),
        "gpus": [
            {"name": gpu, "vector": [_rounded(value) for value in vector]}
            for gpu, vector in zip(trained.fit.gpus, trained.vectors, strict=True)
        ],
        "sessions": [
            {
                "name": session.name,
                "host_us": round(session.host_us, 1),
                **(
                    {"host_along_us": [round(value, 1) for value in session.host_knots_us]}
                    if len(session.host_knots_us) > 1
                    else {}
                ),
                "level": round(session.level, 3),
                "row_count": session.row_count,
                "used": session.used,
            }
            for session in trained.fit.sessions.values()
        ],
        "dtype": measurements.dtype,
        "seed": seed,
        "residual": asdict(settings),
    }


def _errors(protocol: str, measurements: Measurements, scored: Scored) -> list[dict[str, Any]]:
    """A row per GPU and operation, as ``predictor.HeldOut`` reads it."""
    found = []
    gpu, operation = measurements.gpu[scored.rows], measurements.operation[scored.rows]
    pairs = sorted(set(zip(gpu.tolist(), operation.tolist(), strict=True)))
    for name, op in pairs:
        error = scored.log_error[(gpu == name) & (operation == op)]
        found.append(
            {
                "protocol": protocol,
                "gpu": name,
                "operation": op,
                "row_count": int(error.size),
                "mape_percent": round(mape_percent(error), 2),
                "median_ape_percent": round(100 * float(np.median(np.abs(np.expm1(error)))), 2),
                "bias_percent": round(100 * float(np.expm1(np.median(error))), 2),
            }
        )
    return found


def _judged(measurements: Measurements, scored: Scored) -> NDArray[np.float64]:
    """Errors that make intervals: of the kernel's own time where the host's time drifts, else of the event time.

    A host time of several hundred us would hide most of a kernel's error in the event time.
    """
    return scored.log_error if measurements.position is None else scored.own_log_error


def _own_times(measurements: Measurements, unseen: Mapping[str, Scored], seen: Scored) -> dict[str, Any]:
    """Errors of kernels' own times (measured less the host's time) by GPU, where the host's time drifts."""
    if measurements.position is None:
        return {}
    gpu_of = measurements.gpu[seen.rows][seen.own]
    errors = {
        "leave_one_gpu_out": {gpu: scored.own_log_error for gpu, scored in unseen.items()},
        "new_shapes": {gpu: seen.own_log_error[gpu_of == gpu] for gpu in sorted(set(gpu_of.tolist()))},
    }
    found = {
        protocol: {
            gpu: {
                "row_count": int(error.size),
                "mape_percent": round(mape_percent(error), 2),
                "bias_percent": round(100 * float(np.expm1(np.median(error))), 2),
            }
            for gpu, error in by_gpu.items()
        }
        for protocol, by_gpu in errors.items()
    }
    rule = (
        "measured less the host's time, which grows along these sessions, against the predicted kernel, on rows where "
        f"it is at least {100 * OWN_SHARE:g} % of what was measured"
    )
    return {"own_time": {"rule": rule, **found}}


def _mean_error(rows: Sequence[Mapping[str, Any]], protocol: str) -> float | None:
    errors = [row["mape_percent"] for row in rows if row["protocol"] == protocol]
    return float(np.mean(errors)) if errors else None


def _gpu_error(measurements: Measurements, scored: Scored) -> float:
    return float(np.mean([row["mape_percent"] for row in _errors("", measurements, scored)]))


def _width(errors: Sequence[NDArray[np.float64]], coverage: float = COVERAGE) -> float:
    """Half width in log that holds ``coverage`` of absolute errors, every GPU weighing the same."""
    values = np.concatenate([np.abs(error) for error in errors])
    weights = np.concatenate([np.full(error.size, 1.0 / error.size) for error in errors])
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(int(np.searchsorted(share, coverage)), values.size - 1)])


def _level_share(errors: Sequence[NDArray[np.float64]]) -> float:
    """Share of the errors' variance that the rows of a GPU have in common, every GPU weighing the same."""
    levels = np.array([np.median(error) for error in errors])
    common = float(np.mean(levels**2))
    own = float(np.mean([np.mean((error - np.median(error)) ** 2) for error in errors]))
    return common / (common + own) if common + own > 0 else 1.0


def _coverage(errors: Mapping[str, NDArray[np.float64]], coverage: float) -> dict[str, float]:
    """How many of a GPU's rows lie in the width that the other GPUs' errors give."""
    return {
        gpu: round(float(np.mean(np.abs(error) <= _width([errors[o] for o in errors if o != gpu], coverage))), 3)
        for gpu, error in errors.items()
        if len(errors) > 1
    }


def _session_widths(sessions: Sequence[Session], specs: Mapping[str, GpuSpec]) -> tuple[float, float]:
    """Half widths in log of the speed of another session: of cards that hold their boost clock, of those that can not.

    From the fitted levels of the sessions beside the one that is a GPU's own (its level is 1 by definition).
    """
    spread: dict[bool, dict[str, list[float]]] = {True: {}, False: {}}
    for session in sessions:
        gpu = session.name.split("/", 1)[0]
        if session.level != 1.0 and session.used:
            spread[holds_clock(specs[gpu])].setdefault(gpu, []).append(abs(float(np.log(session.level))))
    steady, throttled = (
        _width([np.array(levels) for levels in spread[holds].values()]) if spread[holds] else 0.0
        for holds in (True, False)
    )
    return steady, max(steady, throttled)


_SESSION_WIDTHS = ("session_half_width_log", "throttled_session_half_width_log")


def with_session_widths(widths: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Widths of some GPUs; the spread between sessions is that of ``others`` where these show none.

    With one session a GPU nothing tells how far another would be off, which is no proof that it would be equal.
    """
    shown = any(widths[name] for name in _SESSION_WIDTHS)
    return {**widths, **({} if shown else {name: others[name] for name in _SESSION_WIDTHS})}


def _interval(
    measurements: Measurements,
    unseen: Mapping[str, Scored],
    seen: Scored,
    *,
    law_alone: Mapping[str, NDArray[np.float64]],
    sessions: Mapping[str, Session],
    specs: Mapping[str, GpuSpec],
) -> dict[str, Any]:
    """Widths from held-out errors, and how often a GPU's rows lie in the width that the other GPUs give.

    AMD's GPUs run other kernels by other libraries: where there are two, they have widths of their own ("amd").
    """
    amd = {gpu for gpu, spec in specs.items() if is_amd(spec)}
    apart = len(amd) >= 2 and len(specs) - len(amd) >= 2
    others = set(specs) - amd if apart else set(specs)
    gpu_of = measurements.gpu[seen.rows]
    if measurements.position is not None:
        gpu_of = gpu_of[seen.own]
    judged = _judged(measurements, seen)

    def of(gpus: set[str]) -> dict[str, Any]:
        return _widths(
            {gpu: _judged(measurements, unseen[gpu]) for gpu in sorted(gpus & set(unseen))},
            {gpu: judged[gpu_of == gpu] for gpu in sorted(gpus & set(gpu_of.tolist()))},
            {gpu: law_alone[gpu] for gpu in sorted(gpus & set(law_alone))},
            [session for session in sessions.values() if session.name.split("/", 1)[0] in gpus],
            specs,
        )

    usual = of(others)
    own = with_session_widths(of(amd), usual) if apart else {}
    return {
        "coverage": COVERAGE,
        **usual,
        **({"amd": own} if own else {}),
        "method": "the width that holds 80 % of held-out errors and half a GPU more, GPUs weighing the same: seen from "
        "new shapes, unseen from left-out GPUs, law from left-out GPUs without the residual; coverage: rows of a GPU "
        "inside the width that the other GPUs' errors give; level_share: of the variance, what a GPU's rows "
        "have in common; session: 80 % of the levels of other sessions on a measured GPU (AMD has one each: the "
        "others' there)",
    }


def _widths(
    unseen: Mapping[str, NDArray[np.float64]],
    seen: Mapping[str, NDArray[np.float64]],
    law_alone: Mapping[str, NDArray[np.float64]],
    sessions: Sequence[Session],
    specs: Mapping[str, GpuSpec],
) -> dict[str, Any]:
    """The widths of some GPUs from their held-out errors in log."""

    def share(count: int) -> float:
        # one more GPU than were left out is to be covered: with few of them, the quantile lies a little higher
        return min(COVERAGE * (1.0 + 0.5 / max(count, 1)), MOST_COVERAGE)

    seen_width = _width(list(seen.values()), share(len(seen)))
    if unseen:
        unseen_width = max(_width(list(unseen.values()), share(len(unseen))), seen_width)
    else:
        unseen_width = max(2.0 * seen_width, LONE_GPU_HALF_WIDTH_LOG)
    law_width = (
        max(_width(list(law_alone.values()), share(len(law_alone))), unseen_width) if law_alone else unseen_width
    )
    steady, throttled = _session_widths(sessions, specs)
    return {
        "seen_half_width_log": _rounded(seen_width),
        "unseen_half_width_log": _rounded(unseen_width),
        "law_half_width_log": _rounded(law_width),
        "seen_level_share": _rounded(_level_share(list(seen.values()))),
        "unseen_level_share": _rounded(_level_share(list(unseen.values()))) if unseen else 1.0,
        "session_half_width_log": _rounded(steady),
        "throttled_session_half_width_log": _rounded(throttled),
        "left_out_coverage": _coverage(unseen, share(len(unseen) - 1)),
        "seen_coverage": _coverage(seen, share(len(seen) - 1)),
    }


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _write(
    output: Path,
    entries: dict[str, dict[str, Any]],
    models: Mapping[str, bytes],
    *,
    kept: Callable[[Mapping[str, Any]], bool],
) -> dict[str, Any]:
    path = output / MANIFEST_NAME
    if path.is_file():
        old = json.loads(path.read_bytes())
        for entry in old.get("predictors", []):
            if kept(entry):
                entries.setdefault(entry["name"], entry)
    import hashlib

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
