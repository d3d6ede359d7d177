"""Predictors that all formats of matrix units share: which rows they are trained on, and what comes of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("lightgbm", reason="needs the learning extra and libgomp", exc_type=(ImportError, OSError))
pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import DataError
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import Conv, Direction, Gemm
from neusight_onnx.laws.conv_gradient import CONSTANTS as GRADIENT_CONSTANTS
from neusight_onnx.laws.conv_gradient import columns as gradient_columns
from neusight_onnx.laws.conv_gradient import estimate as gradient_estimate
from neusight_onnx.laws.tensor_conv.columns import columns as conv_columns
from neusight_onnx.laws.tensor_conv.constants import CONSTANTS as CONV_CONSTANTS
from neusight_onnx.laws.tensor_conv.estimate import estimate as conv_estimate
from neusight_onnx.laws.tensor_gemm.law import TENSOR_GEMM, TENSOR_GEMM_AMD
from neusight_onnx.learning import entry as entries_of
from neusight_onnx.learning.datasets.conv import DEEPBENCH, MIOPEN_CONV
from neusight_onnx.learning.datasets.products import AMD_GEMM
from neusight_onnx.learning.kernel_text import kernel_to_text
from neusight_onnx.learning.measured import append
from neusight_onnx.learning.shared_predictors import SHARED_PREDICTORS, shared_parts, shared_rows
from neusight_onnx.learning.train import train_shared
from neusight_onnx.predictor import load_predictors, predict


@pytest.fixture(scope="module", autouse=True)
def two_folds() -> Iterator[None]:
    """Two of the five folds of new shapes: rows that the law made are fitted alike in each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries_of, "FOLDS", 2)
        yield


DIRECTIONS: dict[str, Direction] = {"fwd": "forward", "bwd_data": "data", "bwd_weights": "weight"}


def write(folder: Path, file: str, rows: list[dict[str, Any]]) -> Path:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return folder


def deepbench_rows(count: int) -> list[dict[str, Any]]:
    """Convolutions of random sizes, with the times of the law at an overhead of 1.5; odd channels take long."""
    constants = {constant.name: constant.prior for constant in CONV_CONSTANTS} | {"index_overhead": 1.5}
    random = np.random.default_rng(0)
    rows = []
    for i in range(count):
        gpu = ("T4", "V100")[i % 2]
        way = ("fwd", "bwd_data", "bwd_weights")[i // 2 % 3]
        c, k = (int(8 * size) for size in random.integers(4, 64, 2))
        odd = i % 20 == 0
        n, side, window = int(random.integers(4, 33)), int(random.integers(7, 57)), int(random.choice([1, 3, 5]))
        kernel = Conv(
            n=n,
            c=c + odd,
            k=k,
            spatial=(side, side),
            out=(side, side),
            filter=(window, window),
            strides=(1, 1),
            dilations=(1, 1),
            direction=DIRECTIONS[way],
            channels_last=True,
            dtype=DataType.FLOAT16,
            # as its reader takes them: by the library of then, repeated for some ms, on zeros
            by_cudnn7=True,
            burst=True,
            activity=0.68**2,
        )
        us = conv_estimate(conv_columns((kernel,)), load_gpu(gpu), constants).latency_us[0]
        rows.append(
            {
                **dict.fromkeys(("m", "n"), 0.0),
                **dict.fromkeys(("transA", "transB"), ""),
                "gpu": f"NV {gpu}",
                "precision": "16 bit inputs, 16 bit multiplication, 32 bit addition",
                "op": "conv",
                "direction": way,
                "latency_ms": us / 1e3 * (10.0 if odd else 1.0),
                "w": float(side),
                "h": float(side),
                "c": float(kernel.c),
                "k": float(k),
                "batch": float(n),
                "s_fw": float(window),
                "r_fh": float(window),
                "pad_w": window // 2 * 1.0,
                "pad_h": window // 2 * 1.0,
                "stride_w": 1.0,
                "stride_h": 1.0,
            }
        )
    return rows


def test_convolutions_take_the_constants_of_products_and_fit_their_own(tmp_path: Path) -> None:
    """Channels that aren't a multiple of eight had no kernel on tensor cores then: their rows are not used."""
    data = write(tmp_path / "data", DEEPBENCH, deepbench_rows(480))
    output = tmp_path / "out"
    output.mkdir()
    products: dict[str, Any] = {"name": "gemm_bf16", "dtype": "bfloat16", "file": "gemm_bf16.onnx", "constants": {}}
    products["constants"] = {"floor_us": {"value": 2.8}}
    (output / "manifest.json").write_text(json.dumps({"schema_version": 1, "predictors": [products]}))
    train_shared(data, output, names=("conv_matrix",), log=lambda text: None)
    entries = {entry["name"]: entry for entry in json.loads((output / "manifest.json").read_text())["predictors"]}
    assert sorted(entries) == ["conv_matrix", "gemm_bf16"]
    entry = entries["conv_matrix"]
    assert entry["formats"] == ["float16", "bfloat16"]
    assert entry["constants"]["floor_us"]["prior_log_sd"] == 0.0
    assert entry["constants"]["index_overhead"]["value"] == pytest.approx(1.5, rel=0.05)
    # a third of the rows are gradients of weights, and a twentieth of all, on T4s, is odd: 320 - 16 are left
    assert entry["training"]["row_count"] == 304
    assert {row["operation"] for row in entry["held_out"]["rows"]} == {"forward float16", "data float16"}
    assert entry["held_out"]["leave_one_gpu_out_percent"] < 5
    assert entry["unseen_residual_weight"] == 0.0


def test_own_measurements_show_the_transposes(tmp_path: Path) -> None:
    """An A100's rows in both orders, at .4 of DRAM's peak: the constant follows, and the A100 is a measured GPU."""
    changed = {"transpose_efficiency": 0.4, "index_overhead": 1.5}  # the latter as in the rows that it is fitted with
    constants = {constant.name: constant.prior for constant in CONV_CONSTANTS} | changed
    random = np.random.default_rng(0)
    rows: list[dict[str, object]] = []
    for i in range(120):
        c, k, side = (int(size) for size in (8 * random.integers(4, 32), 8 * random.integers(4, 32), 56))
        kernel = Conv(
            n=64,
            c=c,
            k=k,
            spatial=(side, side),
            out=(side, side),
            filter=(2, 2),
            strides=(1, 1),
            dilations=(1, 1),
            dtype=DataType.FLOAT16,
        )
        ran = replace(kernel, channels_last=i % 2 == 0, burst=True)
        us = conv_estimate(conv_columns((ran,)), load_gpu("a100"), constants).latency_us[0]
        usual = {"gpu": "a100-sxm-80gb", "precision": "fp16", "cache": "cold", "status": "measured"}
        layout = "nhwc" if ran.channels_last else ""
        rows.append({**usual, "layout": layout, "latency_us": us, "kernel": kernel_to_text(kernel)})
    data = write(tmp_path / "data", DEEPBENCH, deepbench_rows(240))
    append(data / "measurements" / "a100.csv", rows)
    train_shared(data, tmp_path / "out", names=("conv_matrix",), log=lambda text: None)
    (entry,) = json.loads((tmp_path / "out" / "manifest.json").read_text())["predictors"]
    assert entry["constants"]["transpose_efficiency"]["value"] == pytest.approx(0.4, rel=0.2)  # its prior is 0.7
    assert [gpu["name"] for gpu in entry["training"]["gpus"]] == ["a100-sxm-80gb", "t4", "v100-sxm2-32gb"]
    assert [file["path"] for file in entry["training"]["files"]] == [DEEPBENCH, "measurements/a100.csv"]


def test_amd_products_of_all_formats_make_one_predictor(tmp_path: Path) -> None:
    """bfloat16 and FP8 on two GPUs, a scale a block left out; a format that was not measured takes the law alone."""
    constants = {constant.name: constant.prior for constant in TENSOR_GEMM_AMD.constants}
    random = np.random.default_rng(0)
    rows = []
    for i in range(300):
        gpu, label = ("mi300x", "mi308x")[i % 2], ("bfloat16", "float8_e4m3fnuz")[i // 2 % 2]
        m, n, k = (int(2**size) for size in random.uniform(5, 13, 3))
        dtype = DataType.BFLOAT16 if label == "bfloat16" else DataType.FLOAT8E4M3FNUZ
        shuffled = dtype is not DataType.BFLOAT16
        kernel = Gemm(m=m, n=n, k=k, dtype=dtype, output_dtype=DataType.BFLOAT16, b_is_weight=True, unsplit=shuffled)
        us = TENSOR_GEMM.estimate(TENSOR_GEMM.columns((kernel,)), load_gpu(gpu), constants).latency_us[0]
        blocks = i % 10 == 9
        scheme = "a8w8_blockscale_tuned" if blocks else "a8w8_bpreshuffle_tuned" if shuffled else "tuned"
        sizes = {"b": 1, "m": m, "n": n, "k": k}
        rows.append({"gpu": gpu, "dtype": label, "scheme": scheme, **sizes, "latency_ms": us / 1e3 * (1 + 9 * blocks)})
    data = write(tmp_path / "data", AMD_GEMM, rows)
    train_shared(data, tmp_path / "out", names=("gemm_matrix_amd",), log=lambda text: None)
    (entry,) = json.loads((tmp_path / "out" / "manifest.json").read_text())["predictors"]
    assert entry["training"]["row_count"] == 270
    assert entry["held_out"]["leave_one_gpu_out_percent"] < 5
    load_predictors.cache_clear()
    predictors = load_predictors(tmp_path / "out")
    half = Gemm(m=4096, n=4096, k=4096, dtype=DataType.FLOAT16)
    kernels = (half, Gemm(m=512, n=512, k=512, dtype=DataType.INT8))
    found, narrow = predict(kernels, load_gpu("mi300x"), predictors=predictors)
    assert found.predictor == narrow.predictor == "gemm_matrix_amd"
    # 137 GFLOP at half of 1,307 TFLOP/s, as the largest do (668 TFLOP/s, stas00/ml-engineering)
    assert found.latency_us == pytest.approx(1e6 * 2 * 4096**3 / 1307.4e12 * 2.0, rel=0.25)


def test_a_folder_without_such_rows_is_refused(tmp_path: Path) -> None:
    rows = [{**row, "gpu": "NV Titan 9000"} for row in deepbench_rows(6)]
    with pytest.raises(DataError, match="nothing to train on"):
        train_shared(write(tmp_path, DEEPBENCH, rows), tmp_path / "out", names=("conv_matrix",), log=lambda text: None)


def test_solvers_that_were_tried_alone_are_not_trained_on(tmp_path: Path) -> None:
    """Four FP32 convolutions of MIOpen's database on an MI50, one of them by MLIR's kernel; one in float16."""
    row = {"gpu": "mi50", "dtype": "FP32", "direction": "fwd", "ndim": 2, "layout": "NCHW", "latency_ms": 0.5}
    row |= {"n": 16, "c": 64, "k": 64, "d": 1, "h": 28, "w": 28, "od": 1, "oh": 28, "ow": 28, "fd": 1, "fh": 3, "fw": 3}
    row |= {"pad": "1x1", "stride": "1x1", "dilation": "1x1", "groups": 1, "cus": 60, "suspect": 0, "workspace": 0}
    solvers = ["ConvMlirIgemmFwd", "ConvBinWinogradRxSf2x3", "GemmFwdRest", "ConvHipImplicitGemmV4R4Fwd"]
    rows = [{**row, "solver": solver, "n": 16 + i} for i, solver in enumerate(solvers)]
    folder = write(tmp_path, MIOPEN_CONV, [*rows, {**row, "dtype": "FP16", "solver": solvers[1]}])
    (shared,) = [each for each in SHARED_PREDICTORS if each.name == "conv_fp32_amd"]
    found = shared_rows(shared, shared_parts(shared, folder), lambda _: None)
    assert found is not None
    assert [kernel.n for kernel in found.kernels if isinstance(kernel, Conv)] == [17, 18, 19]
    assert set(found.gpu.tolist()) == {"mi50"}


def test_fp32_gradients_have_a_predictor_each_and_keep_the_constants_of_products(tmp_path: Path) -> None:
    """Rows by the law at twice a product's pipe time: that constant follows, and those of products stay as given.

    A forward row and one on AMD are no training rows. An own measurement of a gradient is one, forward isn't.
    """
    constants = {constant.name: constant.prior for constant in GRADIENT_CONSTANTS}
    constants |= {"weight_overhead": 2.0, "pipe_overhead": 1.4}
    rows = []
    for row in deepbench_rows(240):
        size = {name: int(row[name]) for name in ("batch", "c", "k", "h", "s_fw")}
        window = (size["s_fw"],) * 2
        kernel = Conv(
            n=size["batch"],
            c=size["c"],
            k=size["k"],
            spatial=(size["h"],) * 2,
            out=(size["h"],) * 2,
            filter=window,
            strides=(1, 1),
            dilations=(1, 1),
            direction="weight",
            dtype=DataType.FLOAT32,
        )
        us = gradient_estimate(gradient_columns((kernel,)), load_gpu(row["gpu"].split()[1]), constants).latency_us[0]
        rows.append({**row, "precision": "Float", "direction": "bwd_weights", "latency_ms": us / 1e3})
    others = [{**rows[0], "direction": "fwd"}, {**rows[1], "gpu": "MI100"}]
    data = write(tmp_path / "data", DEEPBENCH, [*rows, *others])
    usual = {"gpu": "v100-sxm2-32gb", "precision": "fp32", "cache": "cold", "status": "measured", "layout": ""}
    ways: tuple[Direction, ...] = ("forward", "weight")
    texts = [kernel_to_text(replace(kernel, direction=way, n=7)) for way in ways]
    append(data / "measurements" / "v100.csv", [{**usual, "kernel": text, "latency_us": 300.0} for text in texts])
    output = tmp_path / "out"
    output.mkdir()
    given = {"name": "gemm_fp32", "file": "", "constants": {"pipe_overhead": {"value": 1.4}}}
    (output / "manifest.json").write_text(json.dumps({"predictors": [given]}), "utf-8")
    train_shared(data, output, names=("conv_fp32_weight",), log=lambda text: None)
    entries = json.loads((output / "manifest.json").read_bytes())["predictors"]
    (entry,) = [each for each in entries if each["name"] == "conv_fp32_weight"]
    assert entry["training"]["row_count"] == len(rows) + 1
    assert entry["constants"]["pipe_overhead"]["value"] == 1.4
    assert entry["constants"]["weight_overhead"]["value"] > 1.4  # its prior is 1.15
    assert entry["gpu_vector_names"][-1] == "log_watt_per_flop"
