"""How predictors are made: readers, fit, export, training and evaluation, on data made here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest

pytest.importorskip("lightgbm", reason="needs the learning extra and libgomp", exc_type=(ImportError, OSError))
pytest.importorskip("pyarrow", reason="needs the learning extra")
pytest.importorskip("scipy", reason="needs the learning extra")

import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from neusight_onnx.cli.evaluation import evaluation_to_terminal
from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import DataError, NeusightError
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import Conv, Elementwise, Gemm, Normalization, Softmax
from neusight_onnx.laws.catalog import LAWS, apply_law
from neusight_onnx.laws.conv.law import CONV
from neusight_onnx.laws.gemm.law import GEMM
from neusight_onnx.laws.tensor_gemm.law import TENSOR_GEMM
from neusight_onnx.learning import entry as entries_of
from neusight_onnx.learning import export
from neusight_onnx.learning.datasets.neusight import NEUSIGHT_KERNELS
from neusight_onnx.learning.datasets.parts import Measurements
from neusight_onnx.learning.datasets.products import TENSOR_CORE_GEMM
from neusight_onnx.learning.datasets.registry import read_measurements, read_parts
from neusight_onnx.learning.datasets.training_rows import product_levels
from neusight_onnx.learning.entry import best_weight
from neusight_onnx.learning.evaluate import evaluate, evaluation_to_json
from neusight_onnx.learning.extras import require
from neusight_onnx.learning.fitting import (
    HOST_KNOTS,
    RESIDUALS,
    ResidualSettings,
    fit_law,
    host_floor_us,
    residual_rows,
)
from neusight_onnx.learning.heldout import (
    USUAL_FLOORS_US,
    Launch,
    event_us,
    launch_floors,
    launch_of,
    launches_of,
)
from neusight_onnx.learning.interval_widths import with_session_widths
from neusight_onnx.learning.kernel_text import kernel_to_text
from neusight_onnx.learning.measured import append
from neusight_onnx.learning.train import train, train_matrix_units
from neusight_onnx.predictor import list_predictors
from neusight_onnx.report.layout import Canvas

NAMES = ("b", "m", "n", "k", "rows", "cols")
CONV_NAMES = ("in_channels", "out_channels", "filter_size", "in_size", "stride", "padding")
GPUS = ("t4", "v100-pcie-32gb", "a100-pcie-40gb")


def row(op: str, gpu: str = "t4", latency_ms: float = 1.0, split: str = "test", **sizes: float) -> dict[str, Any]:
    empty: dict[str, Any] = dict.fromkeys((*NAMES, *CONV_NAMES))
    return {**empty, "split": split, "gpu": gpu, "op": op, "latency_ms": latency_ms, "kernel_name": "k", **sizes}


def write(folder: Path, rows: list[dict[str, Any]], file: str = NEUSIGHT_KERNELS) -> Path:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {
        name: pa.array([entry[name] for entry in rows], pa.float64())
        if name in (*NAMES, *CONV_NAMES)
        else pa.array([entry[name] for entry in rows])
        for name in rows[0]
    }
    pq.write_table(pa.table(columns), path)
    return folder


def gemm_rows(count: int, *, seed: int, floor_us: float = 25.0) -> list[dict[str, Any]]:
    """Products of random sizes with times that the law gives for other constants than its priors."""
    random = np.random.default_rng(seed)
    constants = {constant.name: constant.prior for constant in GEMM.constants} | {"pipe_overhead": 1.2}
    rows = []
    for gpu in GPUS:
        for op in ("bmm", "linear"):
            sizes = np.exp(random.uniform(np.log(8), np.log(3000), (count, 4))).astype(int).tolist()
            sizes = [(max(b // 32, 2) if op == "bmm" else 1, m, n, k) for b, m, n, k in sizes]
            linear: dict[str, Any] = {"b_is_weight": True, "epilogue": ("bias",)} if op == "linear" else {}
            kernels = [Gemm(batch=b, m=m, n=n, k=k, dtype=DataType.FLOAT32, **linear) for b, m, n, k in sizes]
            times_us = apply_law(GEMM, kernels, load_gpu(gpu), constants).result.latency_us
            noise = np.exp(random.normal(0.0, 0.02, count))
            shown_us = np.maximum(floor_us, 0.72 * floor_us + times_us * noise)
            for (b, m, n, k), us in zip(sizes, shown_us.tolist(), strict=True):
                rows.append(row(op, gpu, us / 1e3, b=b, m=m, n=n, k=k))
    return rows


def linear_rows(gpu: str, split: str, names: list[str]) -> list[dict[str, Any]]:
    return [
        row("linear", gpu, split=split, b=1, m=64, n=64, k=64 * (i + 1)) | {"kernel_name": name}
        for i, name in enumerate(names)
    ]


def test_sessions_of_compiled_kernels_added_the_bias_apart(tmp_path: Path) -> None:
    """The session counts, not the row: two of three compiled kernels are plain cuBLAS, one of three is not."""
    assembled, compiled = "maxwell_sgemm_32x128_tn", "sgemm_128x128x8_NT_vec"
    rows = linear_rows("p4", "test", [compiled, assembled, compiled])
    rows += linear_rows("p4", "train", [assembled, compiled, assembled])
    rows += linear_rows("mi100", "test", ["Cijk_Alik_Bljk_SB_MT128x64x32", "", "Cijk_Alik_Bljk_SB_MT64x64x32"])
    found = read_measurements(write(tmp_path, rows), (NEUSIGHT_KERNELS,))[0]
    assert found.operation.tolist() == ["linear_unfused"] * 3 + ["linear"] * 6
    assert [kernel.epilogue for kernel in found.kernels if isinstance(kernel, Gemm)] == [()] * 3 + [("bias",)] * 6


def matrix_unit_row(
    gpu: str, dtype: str, m: int, n: int, k: int, *, latency_ms: float = 0.01, framework: str = "vllm"
) -> dict[str, Any]:
    sizes = {"m": m, "n": n, "k": k}
    return {"gpu": gpu, "framework": framework, "dtype": dtype, **sizes, "latency_ms": latency_ms}


def matrix_unit_rows(count: int, *, seed: int) -> list[dict[str, Any]]:
    """bf16 and FP8 products of random sizes with times that the law gives for other constants than its priors.

    Sizes are multiples of 8, as in the measured data.
    """
    random = np.random.default_rng(seed)
    law = TENSOR_GEMM
    constants = {constant.name: constant.prior for constant in law.constants} | {"pipe_overhead": 1.2}
    bf16, fp8 = DataType.BFLOAT16, DataType.FLOAT8E4M3FN
    rows = []
    for gpu in ("l40s", "h100-sxm"):
        for label, framework, dtype in (("bfloat16", "sglang", bf16), ("fp8", "trtllm", fp8), ("fp8", "vllm", fp8)):
            sizes = (8 * np.exp(random.uniform(np.log(2), np.log(750), (count, 3))).astype(int)).tolist()
            stored = bf16 if dtype is fp8 else None
            usual = Gemm(m=1, n=1, k=1, dtype=dtype, a_dtype=stored, output_dtype=stored, b_is_weight=True)
            of_framework = {"tensor_scale": framework == "trtllm", "rotated": framework == "sglang"}
            kernels = [replace(usual, m=m, n=n, k=k, burst=True, **of_framework) for m, n, k in sizes]
            times_us = apply_law(law, kernels, load_gpu(gpu), constants).result.latency_us
            # a framework that must not be trained on takes ten times as long
            slow = 10.0 if (label, framework) == ("fp8", "vllm") else 1.0
            latencies_ms = slow * np.exp(random.normal(0.0, 0.02, count)) * times_us / 1e3
            for (m, n, k), latency_ms in zip(sizes, latencies_ms.tolist(), strict=True):
                rows.append(matrix_unit_row(gpu, label, m, n, k, latency_ms=latency_ms, framework=framework))
    return rows


def own_rows(count: int, *, seed: int) -> list[dict[str, object]]:
    """Products in fp16 on an A100, as the program of own measurements writes them."""
    random = np.random.default_rng(seed)
    constants = {constant.name: constant.prior for constant in TENSOR_GEMM.constants} | {"pipe_overhead": 1.2}
    sizes = np.exp(random.uniform(np.log(64), np.log(6000), (count, 3))).astype(int).tolist()
    kernels = [Gemm(m=m, n=n, k=k, dtype=DataType.FLOAT16, b_is_weight=True) for m, n, k in sizes]
    ran = [replace(kernel, burst=True) for kernel in kernels]
    times_us = apply_law(TENSOR_GEMM, ran, load_gpu("a100-sxm-80gb"), constants).result.latency_us.tolist()
    usual = {"gpu": "a100-sxm-80gb", "precision": "fp16", "cache": "cold", "status": "measured"}
    return [
        {**usual, "latency_us": time_us, "kernel": kernel_to_text(kernel)}
        for time_us, kernel in zip(times_us, kernels, strict=True)
    ]


@pytest.fixture(scope="module", autouse=True)
def short_training() -> Iterator[None]:
    """A tenth of FP32 products' trees, and two of the five folds: what training does is tested, on hundreds of rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(RESIDUALS, "gemm", replace(RESIDUALS["gemm"], tree_count=100))
        patch.setattr(entries_of, "FOLDS", 2)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("data"), gemm_rows(100, seed=1))


# --- readers


@pytest.mark.parametrize(
    ("entry", "kernel"),
    [
        pytest.param(
            row("bmm", b=2, m=3, n=5, k=7),
            Gemm(batch=2, m=3, n=5, k=7, dtype=DataType.FLOAT32),
            id="bmm",
        ),
        pytest.param(
            row("linear", b=1, m=3, n=5, k=7),
            Gemm(m=3, n=5, k=7, dtype=DataType.FLOAT32, b_is_weight=True, transpose_b=True, epilogue=("bias",)),
            id="linear",
        ),
        pytest.param(
            row("conv", b=4, in_channels=8, out_channels=16, filter_size=3, in_size=10, stride=2, padding=1),
            Conv(
                n=4,
                c=8,
                k=16,
                spatial=(10, 10),
                out=(5, 5),
                filter=(3, 3),
                strides=(2, 2),
                dilations=(1, 1),
                dtype=DataType.FLOAT32,
            ),
            id="conv",
        ),
        pytest.param(row("softmax", rows=8, cols=9), Softmax(rows=8, cols=9, dtype=DataType.FLOAT32), id="softmax"),
        pytest.param(
            row("ln", rows=8, cols=12),
            Normalization(method="layer", rows=8, cols=12, parameter_count=24, dtype=DataType.FLOAT32),
            id="ln",
        ),
    ],
)
def test_rows_become_kernels(entry: dict[str, Any], kernel: object, tmp_path: Path) -> None:
    (found,) = read_measurements(write(tmp_path, [entry]), (NEUSIGHT_KERNELS,))
    assert found.kernels == (kernel,)
    assert found.measured_us.tolist() == [1000.0]
    assert found.session.tolist() == [f"t4/{entry['op']}/test"]


@pytest.mark.parametrize(
    ("op", "operation", "read_bytes"),
    [("add", "add", 2 * 4 * 32), ("addu", "add", 4 * 32), ("powu", "pow", 4 * 32), ("relu", "relu", 4 * 32)],
)
def test_scalar_operands_are_not_read(op: str, operation: str, read_bytes: int, tmp_path: Path) -> None:
    (found,) = read_measurements(write(tmp_path, [row(op, rows=4, cols=8)]), (NEUSIGHT_KERNELS,))
    (kernel,) = found.kernels
    assert isinstance(kernel, Elementwise)
    assert kernel.operations == (operation,)
    assert kernel.read_bytes == read_bytes


def test_equal_kernels_share_a_group(tmp_path: Path) -> None:
    rows = [row("bmm", gpu, b=2, m=m, n=5, k=7) for m, gpu in ((3, "t4"), (4, "t4"), (3, "p4"))]
    (found,) = read_measurements(write(tmp_path, rows), (NEUSIGHT_KERNELS,))
    assert found.shape_group.tolist() == [0, 1, 0]


@pytest.mark.parametrize("fault", ["empty-folder", "no-parquet", "missing-column", "unknown-op"])
def test_data_that_cannot_be_read(fault: str, tmp_path: Path) -> None:
    if fault == "no-parquet":
        (tmp_path / "neusight").mkdir()
        (tmp_path / NEUSIGHT_KERNELS).write_text("latency")
    if fault == "missing-column":
        entry = row("bmm", b=1, m=1, n=1, k=1)
        del entry["cols"]
        write(tmp_path, [entry])
    if fault == "unknown-op":
        write(tmp_path, [row("fft", rows=1, cols=1)])
    with pytest.raises(DataError):
        read_parts(tmp_path)


def test_a_missing_extra_says_how_to_get_it() -> None:
    with pytest.raises(NeusightError, match=r"pip install 'neusight-onnx\[learning\]'"):
        require("no_such_package_here")


def test_an_extra_without_a_library_of_the_system_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """LightGBM's machine code is linked with OpenMP's library, which a small image of Linux lacks."""

    def unlinked(name: str) -> None:
        raise OSError("libgomp.so.1: cannot open shared object file")

    monkeypatch.setattr("neusight_onnx.learning.extras.import_module", unlinked)
    with pytest.raises(NeusightError, match=r"^lightgbm is installed, but does not load: libgomp.*apt-get install"):
        require("lightgbm")


# --- export


@pytest.mark.parametrize(
    ("threshold", "rounded"),
    [
        (1.0, 1.0),
        (0.1, float(np.nextafter(np.float32(0.1), np.float32(0)))),  # float32(0.1) is above 0.1
        (-0.1, float(np.float32(-0.1))),  # float32(-0.1) is below -0.1
        (1e-40, float(np.float32(1e-40)) if float(np.float32(1e-40)) <= 1e-40 else 9.99994610111476e-41),
    ],
)
def test_thresholds_are_rounded_down(threshold: float, rounded: float) -> None:
    found = export.round_down(threshold)
    assert found == rounded
    assert found <= threshold
    assert float(np.nextafter(np.float32(found), np.float32(np.inf))) > threshold or found == threshold


def test_export_agrees_with_lightgbm_on_20000_rows() -> None:
    """Thresholds lie between neighbouring floats, so that rounding them wrongly sends rows to another leaf."""
    import lightgbm

    random = np.random.default_rng(0)
    grid = np.float32(1.0) + np.arange(64, dtype=np.float32) * np.float32(2.0**-23)
    features = np.stack([random.choice(grid, 20000), random.normal(size=20000).astype(np.float32)], axis=1).astype(
        np.float32
    )
    label = np.sin(1e7 * (features[:, 0].astype(np.float64) - 1)) + features[:, 1]
    booster = lightgbm.train(
        {"objective": "regression_l1", "num_leaves": 31, "min_data_in_leaf": 5, "verbose": -1, "num_threads": 1},
        lightgbm.Dataset(features, label=label),
        num_boost_round=60,
    )
    model = export.to_onnx(booster, name="test", feature_count=2)
    assert export.parity(model, booster, features) <= 1e-4


# --- fit


def test_fit_finds_the_speed_that_the_data_was_made_with(folder: Path) -> None:
    """Made with a pipe 14 % slower than the prior says: the fit goes two fifths of the way, priors hold it back."""
    (measurements,) = read_measurements(folder, (NEUSIGHT_KERNELS,))
    fit = fit_law(GEMM, measurements, {gpu: load_gpu(gpu) for gpu in GPUS}, seed=0)
    kernels = (Gemm(m=4096, n=4096, k=2048, dtype=DataType.FLOAT32, b_is_weight=True, epilogue=("bias",)),)
    priors = {constant.name: constant.prior for constant in GEMM.constants}
    for gpu in (
        "v100-pcie-32gb",
        "a100-pcie-40gb",
    ):  # power holds the T4 to one speed, the V100 nearly
        fitted, prior, true = (
            np.log(apply_law(GEMM, kernels, load_gpu(gpu), constants).result.latency_us[0])
            for constants in (fit.constants, priors, priors | {"pipe_overhead": 1.2})
        )
        assert prior < true - 0.08
        assert abs(fitted - true) < 0.6 * (true - prior)
    assert {name: session.host_us for name, session in fit.sessions.items()} == pytest.approx(
        {f"{gpu}/{op}/test": 20.0 for gpu in GPUS for op in ("bmm", "linear")}, abs=2.5
    )


def test_a_throttled_session_does_not_move_the_constants(tmp_path: Path) -> None:
    """T4's train split ran at 60 % of the speed of its test split: that is the session's level, not the card's."""
    rows = gemm_rows(80, seed=2)
    slow = [
        {**entry, "split": "train", "latency_ms": 0.02 + (entry["latency_ms"] - 0.02) / 0.6}
        for entry in gemm_rows(80, seed=3)
        if entry["gpu"] == "t4"
    ]
    (measurements,) = read_measurements(write(tmp_path, rows + slow), (NEUSIGHT_KERNELS,))
    fit = fit_law(GEMM, measurements, {gpu: load_gpu(gpu) for gpu in GPUS}, seed=0)
    assert fit.constants["energy_pj"] == pytest.approx(15.3, rel=0.07)
    assert fit.sessions["t4/linear/train"].level == pytest.approx(0.6, rel=0.06)
    assert fit.sessions["t4/linear/test"].level == 1.0


def test_kernels_behind_the_host_are_left_to_the_law(tmp_path: Path) -> None:
    """add on a T4: 1-4 us of kernel behind 26 us of host say nothing, and the residual is 0 there; 10-15 us say too
    little to be used; large ones show 20 % above the law (320 GB/s at .751)."""
    rows = []
    for count in (64, 128, 256, 20_000, 30_000, 100_000, 200_000, 400_000, 800_000):
        kernel_us = 1.2 * (12 * 16 * count / (0.751 * 320e9) * 1e6)
        rows += [row("add", latency_ms=max(26.0, 12.0 + kernel_us) / 1e3, rows=count + i, cols=16) for i in range(20)]
    (measurements,) = read_measurements(write(tmp_path, rows), (NEUSIGHT_KERNELS,))
    law, specs = LAWS["elementwise"], {"t4": load_gpu("t4")}
    fixed = {constant.name: constant.prior for constant in law.constants}
    fit = fit_law(law, measurements, specs, seed=0, fixed=fixed)
    residuals = residual_rows(law, measurements, specs, fit, ResidualSettings(), seed=0)
    by_size = {
        int(size): np.median(residuals.log_ratio[np.abs(measurements_rows(measurements)[residuals.rows] - size) < 20])
        for size in (64, 128, 256, 400_000, 800_000)
    }
    assert by_size[64] == by_size[128] == by_size[256] == 0.0
    assert by_size[400_000] == pytest.approx(np.log(1.2), abs=0.05)
    assert by_size[800_000] == pytest.approx(np.log(1.2), abs=0.05)
    assert not np.any(np.abs(measurements_rows(measurements)[residuals.rows] - 20_000) < 20)


def measurements_rows(measurements: Measurements) -> NDArray[np.int64]:
    return np.array([kernel.output.shape[0] for kernel in measurements.kernels if isinstance(kernel, Elementwise)])


def test_host_floor_is_the_first_percentile() -> None:
    assert host_floor_us(np.arange(101.0)) == 1.0


def test_launch_floors() -> None:
    """bmm's tiny kernels show 22 us when quick; linear has none, nor has the other GPU: what is usual for them stands.

    No floor that wasn't seen is above the session's smallest time (the other GPU's linear took 45 us).
    """
    kernel = np.array([2.0] * 5 + [100.0, 200.0, 300.0])
    measured = np.array([22.0, 22.0, 22.0, 23.0, 90.0, 120.0, 220.0, 45.0])
    gpu = np.array(["a"] * 7 + ["b"])
    operation = np.array(["bmm"] * 6 + ["linear"] * 2)
    found = launch_floors(measured, kernel, gpu, operation, np.full(8, "test"), "gemm")
    assert found.tolist() == pytest.approx([22.0] * 6 + [USUAL_FLOORS_US["linear"], 45.0])


def test_each_session_has_its_own_floor() -> None:
    """Two sessions of one operation: 20 us and 40 us of floor; a third, of one kernel, takes a tenth from below."""
    measured = np.array([20.0] * 5 + [40.0] * 6 + [70.0])
    split = np.array(["test"] * 5 + ["train"] * 6 + ["more"])
    found = launch_floors(measured, np.full(12, 1.0), np.full(12, "a"), np.full(12, "ln"), split, "normalization")
    assert found.tolist() == [20.0] * 5 + [40.0] * 6 + [20.0]


def test_sessions_without_tiny_kernels_show_the_floor_in_their_quickest_small_ones() -> None:
    """LayerNorm kernels of 10-24 us on a host that takes 47 us: the larger ones show a part of the kernel."""
    kernel = np.linspace(10.0, 24.0, 15)
    measured = np.maximum(47.0, 34.0 + kernel)
    names = np.full(15, "ln")
    found = launch_floors(measured, kernel, np.full(15, "a"), names, names, "normalization")
    assert found.tolist() == [47.0] * 15


@pytest.mark.parametrize(
    ("gpu", "kernel_class", "kernel_us", "expected_us"),
    [
        pytest.param("t4", "elementwise", 10.0, 30.0, id="hidden behind the end event"),
        pytest.param("t4", "elementwise", 100.0, 114.1, id="NVIDIA, elementwise: .47 of the floor before it"),
        pytest.param("t4", "softmax", 100.0, 121.6, id="NVIDIA, softmax: .72"),
        pytest.param("mi100", "softmax", 100.0, 128.5, id="AMD, softmax: .95"),
    ],
)
def test_what_an_event_pair_shows(gpu: str, kernel_class: str, kernel_us: float, expected_us: float) -> None:
    launch = launch_of(np.array([30.0]), np.array([gpu]), {gpu: load_gpu(gpu)}, kernel_class)
    assert event_us(np.array([kernel_us]), launch) == pytest.approx([expected_us])
    nothing = Launch(floor_us=np.zeros(1), before_us=np.zeros(1))
    assert event_us(np.array([kernel_us]), nothing).tolist() == [kernel_us]


def drifting_rows(count: int) -> list[dict[str, Any]]:
    """Convolutions of random sizes, in random order, with a host time that grows from 60 us to 460 us."""
    random = np.random.default_rng(5)
    constants = {constant.name: constant.prior for constant in CONV.constants}
    rows = []
    for gpu in GPUS:
        sizes = np.exp(random.uniform(np.log(2), np.log(400), (count, 3))).astype(int).tolist()
        convs = [
            Conv(
                n=min(b, 64),
                c=c,
                k=k,
                spatial=(side, side),
                out=(side, side),
                filter=(3, 3),
                strides=(1, 1),
                dilations=(1, 1),
                dtype=DataType.FLOAT32,
            )
            for (b, c, k), side in zip(sizes, random.integers(5, 60, count).tolist(), strict=True)
        ]
        times_us = apply_law(CONV, convs, load_gpu(gpu), constants).result.latency_us
        shown_us = np.linspace(60.0, 460.0, count) + times_us * np.exp(random.normal(0.0, 0.02, count))
        for conv, us in zip(convs, shown_us.tolist(), strict=True):
            side = conv.spatial[0]
            sizes_of = {"in_channels": conv.c, "out_channels": conv.k, "filter_size": 3, "in_size": side}
            rows.append(row("conv", gpu, us / 1e3, b=conv.n, stride=1, padding=1, **sizes_of))
    return rows


@pytest.fixture(scope="module")
def drifting(tmp_path_factory: pytest.TempPathFactory) -> Measurements:
    folder = write(tmp_path_factory.mktemp("drift"), drifting_rows(400))
    (measurements,) = read_measurements(folder, (NEUSIGHT_KERNELS,))
    return measurements


def test_position_is_the_order_of_measuring(drifting: Measurements) -> None:
    assert drifting.position is not None
    for gpu in GPUS:
        assert drifting.position[drifting.gpu == gpu].tolist() == pytest.approx(np.linspace(0.0, 1.0, 400).tolist())
    half = drifting.select(np.arange(200))
    assert half.position is not None
    assert half.position[-1] == pytest.approx(199 / 399)


def test_host_time_that_drifts_is_told_from_the_kernels(drifting: Measurements) -> None:
    """Both ways of finding it: beside the law's constants, and read off the smallest kernels."""
    specs = {gpu: load_gpu(gpu) for gpu in GPUS}
    fit = fit_law(CONV, drifting, specs, seed=0)
    true_us = np.linspace(60.0, 460.0, HOST_KNOTS)
    for gpu in GPUS:
        session = fit.sessions[f"{gpu}/conv/test"]
        assert session.host_knots_us == pytest.approx(true_us.tolist(), abs=20.0)
        assert session.host_at_us(np.array([0.5]))[0] == pytest.approx(260.0, abs=20.0)
    launches = launches_of(CONV, drifting, specs, fit)
    assert drifting.position is not None
    np.testing.assert_allclose(launches.before_us, 60.0 + 400.0 * drifting.position, atol=25.0)


# --- training and evaluation


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("predictors")
    train(folder, output, seed=3, log=lambda text: None)
    return output


def test_training_writes_what_the_predictor_reads(trained: Path, folder: Path) -> None:
    manifest = json.loads((trained / "manifest.json").read_text())
    (entry,) = manifest["predictors"]
    assert entry["name"] == "gemm_fp32"
    assert [gpu["name"] for gpu in entry["training"]["gpus"]] == sorted(GPUS)
    assert entry["training"]["row_count"] == 600
    assert entry["parity"]["row_count"] >= 10_000
    assert entry["parity"]["largest_relative_error"] <= 1e-4
    assert entry["held_out"]["new_shapes_percent"] < 5
    found = evaluate(folder, predictors=trained)
    (summary,) = [group for group in found.groups if group.gpu == "all" and group.size == "50 us and above"]
    assert summary.mape_percent < 5
    assert summary.mape_percent < summary.roofline_mape_percent
    assert 0.7 < summary.coverage <= 1.0


def test_training_is_reproducible(trained: Path, folder: Path, tmp_path: Path) -> None:
    train(folder, tmp_path, seed=3, log=lambda text: None)
    for name in ("manifest.json", "gemm_fp32.onnx"):
        assert (tmp_path / name).read_bytes() == (trained / name).read_bytes()


@pytest.mark.parametrize(
    ("entry", "dtype", "kernel"),
    [
        pytest.param(
            matrix_unit_row("l40s", "bfloat16", 3, 5, 7, framework="sglang"),
            "bfloat16",
            Gemm(
                m=3,
                n=5,
                k=7,
                dtype=DataType.BFLOAT16,
                b_is_weight=True,
                transpose_b=True,
                repeated=True,
                rotated=True,
                burst=True,
            ),
            id="bf16-with-copies-of-activations",
        ),
        pytest.param(
            matrix_unit_row("l40s", "bfloat16", 3, 5, 7, framework="vllm"),
            "bfloat16",
            Gemm(
                m=3,
                n=5,
                k=7,
                dtype=DataType.BFLOAT16,
                b_is_weight=True,
                transpose_b=True,
                repeated=True,
                burst=True,
                activity=0.68,
            ),
            id="weights-that-were-not-set",
        ),
        pytest.param(
            matrix_unit_row("l40s", "fp8", 9, 5, 7, framework="trtllm"),
            "float8e4m3fn",
            Gemm(
                m=9,
                n=5,
                k=7,
                dtype=DataType.FLOAT8E4M3FN,
                a_dtype=DataType.BFLOAT16,
                output_dtype=DataType.BFLOAT16,
                tensor_scale=True,
                b_is_weight=True,
                transpose_b=True,
                repeated=True,
                burst=True,
            ),
            id="fp8-with-a-scale-a-tensor",
        ),
        pytest.param(
            matrix_unit_row("h100-sxm", "fp8", 3, 5, 7, framework="sglang"),
            "float8e4m3fn",
            Gemm(
                m=3,
                n=5,
                k=7,
                dtype=DataType.FLOAT8E4M3FN,
                a_dtype=DataType.BFLOAT16,
                output_dtype=DataType.BFLOAT16,
                b_is_weight=True,
                transpose_b=True,
                repeated=True,
                rotated=True,
                burst=True,
            ),
            id="fp8-with-a-scale-a-row",
        ),
        pytest.param(
            matrix_unit_row("l40s", "int4_wo", 3, 5, 7, framework="trtllm"),
            "bfloat16+int4",
            Gemm(
                m=3,
                n=5,
                k=7,
                dtype=DataType.BFLOAT16,
                b_dtype=DataType.INT4,
                b_is_weight=True,
                transpose_b=True,
                burst=True,
                activity=0.68**2,
            ),
            id="weights-of-4-bits-from-dram",
        ),
        pytest.param(
            matrix_unit_row("h100-sxm", "int8_wo", 3, 5, 7, framework="sglang"),
            "bfloat16+int8",
            Gemm(
                m=3,
                n=5,
                k=7,
                dtype=DataType.BFLOAT16,
                b_dtype=DataType.INT8,
                b_is_weight=True,
                transpose_b=True,
                repeated=True,
                rotated=True,
                burst=True,
            ),
            id="weights-of-8-bits-replayed",
        ),
    ],
)
def test_matrix_unit_rows_become_kernels(entry: dict[str, Any], dtype: str, kernel: Gemm, tmp_path: Path) -> None:
    (part,) = read_parts(write(tmp_path, [entry], TENSOR_CORE_GEMM))
    assert (part.dtype, part.variant) == (dtype, entry["framework"])
    assert part.load is not None
    found = part.load()
    assert found.kernels == (kernel,)
    assert found.measured_us.tolist() == [10.0]
    assert found.scored_us == 5.0


@pytest.mark.parametrize(
    ("gpu", "m", "variant"),
    [
        pytest.param("l40s", 8, "trtllm, vector lanes", id="few-rows-on-ada"),
        pytest.param("l40s", 9, "trtllm", id="more-rows"),
        pytest.param("h100-sxm", 8, "trtllm", id="hopper-has-the-librarys"),
        pytest.param("no-such-gpu", 8, "trtllm", id="unknown-gpu"),
    ],
)
def test_fp8_on_vector_lanes_is_apart(gpu: str, m: int, variant: str, tmp_path: Path) -> None:
    rows = [matrix_unit_row(gpu, "fp8", m, 4096, 4096, framework="trtllm")]
    assert [part.variant for part in read_parts(write(tmp_path, rows, TENSOR_CORE_GEMM))] == [variant]


@pytest.mark.parametrize(
    ("row", "variant"),
    [
        pytest.param({}, "sglang, weights held in L2", id="weights-of-32-MiB"),
        pytest.param({"versions": 3}, "sglang", id="without-the-version"),
        pytest.param({"n": 8192}, "sglang", id="beyond-the-L2"),
        pytest.param({"m": 512}, "sglang", id="many-rows-show-nothing"),
        pytest.param({"n": 256}, "sglang", id="small-weights-show-nothing"),
        pytest.param({"dtype": "fp8", "n": 8192}, "sglang, weights held in L2", id="by-bytes"),
        pytest.param({"framework": "trtllm"}, "trtllm", id="another-framework"),
        pytest.param({"gpu": "l40s"}, "sglang", id="another-gpu"),
    ],
)
def test_rows_that_found_their_weights_in_l2_are_apart(row: dict[str, Any], variant: str, tmp_path: Path) -> None:
    held = {**matrix_unit_row("h100-sxm", "bfloat16", 4, 4096, 4096, framework="sglang"), "versions": 4, **row}
    assert [part.variant for part in read_parts(write(tmp_path, [held], TENSOR_CORE_GEMM))] == [variant]
    (part,) = read_parts(write(tmp_path, [{k: v for k, v in held.items() if k != "versions"}], TENSOR_CORE_GEMM))
    assert part.variant == held["framework"]


def test_events_around_lone_runs_are_taken_off(tmp_path: Path) -> None:
    """A lone run shows 6 us more than replays of the same small products on an A100, 2.5 on an L40S; FP8 is replayed.

    A GPU without such replays has the median of the others (4.25); what is left of a long product is all but 6 us.
    """
    rows: list[dict[str, Any]] = []
    for gpu, events_ms in (("a100-sxm-80gb", 0.006), ("l40s", 0.0025)):
        for m in (1, 16, 64):
            rows.append(matrix_unit_row(gpu, "bfloat16", m, 128, 128, framework="trtllm", latency_ms=0.004))
            rows.append(matrix_unit_row(gpu, "sq", m, 128, 128, framework="trtllm", latency_ms=0.004 + events_ms))
        rows.append(matrix_unit_row(gpu, "sq", 4096, 4096, 4096, framework="trtllm", latency_ms=0.3))
    rows.append(matrix_unit_row("h100-sxm", "sq", 4096, 4096, 4096, framework="trtllm", latency_ms=0.3))
    rows.append(matrix_unit_row("l40s", "fp8", 4096, 4096, 4096, framework="trtllm", latency_ms=0.3))
    found = {part.dtype: part.load() for part in read_parts(write(tmp_path, rows, TENSOR_CORE_GEMM)) if part.load}
    times = zip(found["int8"].gpu.tolist(), found["int8"].measured_us.tolist(), strict=True)
    assert sorted({(gpu, round(time, 3)) for gpu, time in times}) == [
        ("a100-sxm-80gb", 4.0),
        ("a100-sxm-80gb", 294.0),
        ("h100-sxm", 295.75),
        ("l40s", 4.0),
        ("l40s", 297.5),
    ]
    assert found["float8e4m3fn"].measured_us.tolist() == [300.0]
    assert set(found["bfloat16"].measured_us.tolist()) == {4.0}


def test_frameworks_are_not_pooled(tmp_path: Path) -> None:
    rows = [matrix_unit_row("l40s", "fp8", 8, 8, 8, framework=name) for name in ("vllm", "sglang", "vllm")]
    rows.append(matrix_unit_row("l40s", "fp8_block", 8, 8, 8))
    found = [
        (part.dtype, part.variant, part.gpu.size, part.load is not None)
        for part in read_parts(write(tmp_path, rows, TENSOR_CORE_GEMM))
    ]
    assert found == [
        ("float8e4m3fn", "sglang", 1, True),
        ("float8e4m3fn", "vllm", 2, True),
        ("fp8_block", "vllm", 1, False),
    ]


def test_levels_of_other_frameworks_products(tmp_path: Path) -> None:
    """vLLM takes 1.5 times TensorRT-LLM's time at 20 common shapes; another format and a given scale don't count."""
    sizes = range(2, 22)
    rows = [matrix_unit_row("l40s", "fp8", 8 * m, 8, 8, framework="trtllm", latency_ms=0.1) for m in (*sizes, 99)]
    rows += [matrix_unit_row("l40s", "fp8", 8 * m, 8, 8, framework="vllm", latency_ms=0.15) for m in (*sizes, 98)]
    # so short that they show the kernels that convert
    rows += [matrix_unit_row("l40s", "fp8", 8 * m, 8, 16, framework="trtllm") for m in range(2, 99)]
    rows += [matrix_unit_row("l40s", "fp8", 8 * m, 8, 16, framework="vllm", latency_ms=0.005) for m in range(2, 99)]
    rows += [matrix_unit_row("l40s", "fp8_static", 8 * m, 8, 8, framework="trtllm") for m in sizes]
    rows += [matrix_unit_row("l40s", "bfloat16", 8 * m, 8, 8, framework="trtllm") for m in sizes]
    parts = read_parts(write(tmp_path, rows, TENSOR_CORE_GEMM))
    (trained,) = (part for part in parts if (part.dtype, part.variant) == ("float8e4m3fn", "trtllm"))
    assert trained.load is not None
    assert product_levels(parts, trained.load()) == {"l40s": [pytest.approx(np.log(1.5))]}


def test_training_products_on_matrix_units(trained: Path, tmp_path: Path) -> None:
    """The FP32 predictor of the folder stays; of FP8 the framework that is ten times slower isn't used.

    Own measurements in fp16 on a third GPU are trained on with bf16's rows, which have the same predictor.
    """
    output = tmp_path / "out"
    copytree(trained, output)
    data = write(tmp_path / "data", matrix_unit_rows(150, seed=2), TENSOR_CORE_GEMM)
    append(data / "measurements" / "a100.csv", own_rows(60, seed=4))
    train_matrix_units(data, output, log=lambda text: None)
    entries = {entry["name"]: entry for entry in json.loads((output / "manifest.json").read_text())["predictors"]}
    assert sorted(entries) == ["gemm_bf16", "gemm_fp32", "gemm_fp8"]
    for name, more, own in (("gemm_bf16", {"a100-sxm-80gb"}, ["measurements/a100.csv"]), ("gemm_fp8", set(), [])):
        training = entries[name]["training"]
        assert entries[name]["held_out"]["new_shapes_percent"] < 5
        assert set(entries[name]["left_out_constants"]) == {"l40s", "h100-sxm"} | more
        assert training["row_count"] == 300 + 60 * len(more)
        assert [file["path"] for file in training["files"]] == [TENSOR_CORE_GEMM, *own]
    found = evaluate(data, predictors=output)
    bounds = entries["gemm_bf16"]
    assert all(float(np.float32(bound)) == bound for bound in (*bounds["feature_low"], *bounds["feature_high"]))
    errors = {(g.dtype, g.variant): g.mape_percent for g in found.groups if g.gpu == "all" and g.size == "all"}
    assert errors["bfloat16", "sglang"] < 5
    assert errors["float16", "cold"] < 5
    assert errors["float8e4m3fn", "trtllm"] < 5
    assert 80 < errors["float8e4m3fn", "vllm"] < 95
    assert {group.size for group in found.groups} >= {"5 us and above"}


def test_training_keeps_predictors_that_the_data_says_nothing_of(trained: Path, folder: Path, tmp_path: Path) -> None:
    """``train`` is asked for all classes of FP32, and the folder has rows of products alone."""
    output, lines = tmp_path / "out", list[str]()
    copytree(trained, output)
    manifest = json.loads((output / "manifest.json").read_text())
    (product,) = manifest["predictors"]
    others = [
        {**product, "name": "softmax_fp32", "kernel_class": "softmax", "file": "softmax_fp32.onnx"},
        {**product, "name": "gemm_fp8", "dtype": "float8e4m3fn", "file": "gemm_fp8.onnx"},
    ]
    stale = {**product, "sha256": "of an earlier training"}
    (output / "manifest.json").write_text(json.dumps({**manifest, "predictors": [stale, *others]}))
    train(folder, output, seed=3, log=lines.append)
    found = json.loads((output / "manifest.json").read_text())["predictors"]
    assert found == sorted([product, *others], key=lambda entry: entry["name"])
    assert [line for line in lines if "kept" in line] == ["softmax_fp32: no rows of it in the data, kept as it was"]


def test_training_skips_gpus_without_a_spec(folder: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    with pytest.raises(DataError, match="nothing to train on"):
        train(write(tmp_path, [row("bmm", "warp-9", b=2, m=3, n=5, k=7)]), tmp_path / "out", log=lines.append)
    assert any("warp-9" in line for line in lines)


def test_evaluation_counts_what_it_cannot_judge(trained: Path, tmp_path: Path) -> None:
    write(tmp_path, [*gemm_rows(20, seed=9), row("bmm", "warp-9", b=2, m=3, n=5, k=7), row("ln", rows=8, cols=8)])
    write(tmp_path, [matrix_unit_row("h100-sxm", "fp8_block", 8, 8, 8)] * 7, TENSOR_CORE_GEMM)
    found = evaluate(tmp_path, predictors=trained)
    reasons = {(skip.kernel_class, skip.dtype, skip.gpu): (skip.row_count, skip.reason) for skip in found.skipped}
    assert reasons["gemm", "fp8_block", "h100-sxm"][0] == 7
    assert reasons["gemm", "float32", "warp-9"][0] == 1
    assert "no spec" in reasons["gemm", "float32", "warp-9"][1]
    judged = {
        (group.kernel_class, group.method): group.row_count
        for group in found.groups
        if group.gpu == "all" and group.size == "all"
    }
    assert judged == {("gemm", "learned"): 120, ("normalization", "analytic"): 1}
    encoded = json.loads(json.dumps(evaluation_to_json(found)))
    assert encoded["groups"][0]["row_count"] == 120


def test_evaluation_by_the_analytic_law_where_no_predictor_is(trained: Path, tmp_path: Path) -> None:
    """8 GB/s short of a 100 us kernel: T = 2 us + bytes / (share x 320 GB/s), far above the launch and inside x/÷ 2."""
    write(tmp_path, [row("add", latency_ms=3.2, rows=65536, cols=1024)])
    (found,) = [group for group in evaluate(tmp_path, predictors=trained).groups if group.gpu == "t4"][:1]
    assert (found.method, found.trained_on, found.coverage) == ("analytic", False, 1.0)
    # 3 x 256 MiB at 320 GB/s are 2,517 us; T4s reach about three quarters of that
    assert found.roofline_mape_percent == pytest.approx(21.4, abs=1.0)
    assert found.mape_percent < 10.0


def test_evaluation_with_the_gpu_left_out(trained: Path, folder: Path) -> None:
    """The constants of a fit without the GPU, no trees: every GPU is one that nothing was measured on."""
    seen, unseen = (evaluate(folder, predictors=trained, leave_out=leave_out) for leave_out in (False, True))
    errors = [
        {
            group.gpu: group.mape_percent
            for group in found.groups
            if group.gpu in GPUS and group.size == "50 us and above"
        }
        for found in (seen, unseen)
    ]
    assert set(errors[0]) == set(errors[1]) == set(GPUS)
    assert all(errors[0][gpu] < errors[1][gpu] for gpu in GPUS)
    assert {group.trained_on for group in unseen.groups if group.gpu in GPUS} == {False}
    assert evaluate(folder, predictors=trained, classes=["conv"]).groups == ()


def test_a_file_that_cannot_be_read_is_said_and_the_others_are_judged(trained: Path, tmp_path: Path) -> None:
    write(tmp_path, gemm_rows(5, seed=9))
    write(tmp_path, [{"gpu": "t4", "latency_ms": 1.0}], TENSOR_CORE_GEMM)
    found = evaluate(tmp_path, predictors=trained)
    (skip,) = found.skipped
    assert (skip.file, skip.row_count) == (TENSOR_CORE_GEMM, 0)
    assert "has no column framework, dtype, m, n, k" in skip.reason
    assert found.groups
    (tmp_path / NEUSIGHT_KERNELS).unlink()
    with pytest.raises(DataError, match="has no column"):
        evaluate(tmp_path, predictors=trained)


def test_files_that_nothing_reads_are_said(trained: Path, tmp_path: Path) -> None:
    write(tmp_path, gemm_rows(5, seed=9))
    names = ("end_to_end/measured.parquet", "collectives/nccl.parquet", "conv/mine.parquet", "gpus.csv", "notes.txt")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("name\n")
    found = evaluate(tmp_path, predictors=trained)
    reasons = {skip.file: skip.reason for skip in found.skipped}
    assert list(reasons) == ["collectives/nccl.parquet", "conv/mine.parquet", "end_to_end/measured.parquet", "gpus.csv"]
    assert "transfers between GPUs" in reasons["collectives/nccl.parquet"]
    assert "whole models" in reasons["end_to_end/measured.parquet"]
    assert reasons["conv/mine.parquet"] == "no reader for a file of this name"
    shown = evaluation_to_terminal(found, Canvas(width=200))
    assert "collectives/nccl.parquet: transfers between GPUs" in shown


def test_a_sample_is_the_same_every_time_and_even_among_gpus(tmp_path: Path) -> None:
    rows = [matrix_unit_row(gpu, "bfloat16", 8 + i, 8, 8) for gpu in ("l40s", "h100-sxm") for i in range(50)]
    (part,) = read_parts(write(tmp_path, rows[:70], TENSOR_CORE_GEMM))
    chosen = part.sample(30)
    assert chosen.tolist() == part.sample(30).tolist() == sorted(set(chosen.tolist()))
    assert sorted(part.gpu[chosen].tolist()) == ["h100-sxm"] * 20 + ["l40s"] * 30
    assert part.sample(100).size == 70


def test_one_gpu_alone_has_no_leave_one_out_error(tmp_path: Path) -> None:
    rows = [entry for entry in gemm_rows(60, seed=4) if entry["gpu"] == "t4"]
    train(write(tmp_path, rows), tmp_path / "out", log=lambda text: None)
    (info,) = list_predictors(tmp_path / "out")
    assert info.leave_one_gpu_out_percent is None
    assert info.new_shapes_percent is not None


def test_evaluation_of_an_unseen_gpu(trained: Path, tmp_path: Path) -> None:
    write(tmp_path, [row("bmm", "h100-sxm", 1.0, b=64, m=512, n=512, k=512)])
    found = evaluate(tmp_path, predictors=trained)
    (group,) = [group for group in found.groups if group.gpu == "h100-sxm" and group.size == "all"]
    assert group.trained_on is False


def test_the_residual_is_left_out_without_evidence(folder: Path) -> None:
    (measurements,) = read_measurements(folder, (NEUSIGHT_KERNELS,))
    assert best_weight({}, measurements) == 0.0


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        pytest.param((0.0, 0.0), (0.05, 0.17), id="one session a GPU: the others'"),
        pytest.param((0.02, 0.0), (0.02, 0.0), id="sessions of their own"),
    ],
)
def test_the_spread_between_sessions_is_borrowed_where_none_shows(
    own: tuple[float, float], expected: tuple[float, float]
) -> None:
    names = ("session_half_width_log", "throttled_session_half_width_log")
    widths = {"seen_half_width_log": 0.1, **dict(zip(names, own, strict=True))}
    found = with_session_widths(widths, {"seen_half_width_log": 0.3, **dict(zip(names, (0.05, 0.17), strict=True))})
    assert found == {"seen_half_width_log": 0.1, **dict(zip(names, expected, strict=True))}
