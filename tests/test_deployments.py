"""What a run's kernels have in common: by hand, and found again in data made here."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("lightgbm", reason="needs the learning extra and libgomp", exc_type=(ImportError, OSError))
pytest.importorskip("pyarrow", reason="needs the learning extra")
pytest.importorskip("scipy", reason="needs the learning extra")

import pyarrow as pa
import pyarrow.parquet as pq

from neusight_onnx.data_files import data_folder
from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import DataError, OutputError, PredictorError
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import Attention, Conv, Gemm, Kernel, Softmax
from neusight_onnx.learning.__main__ import main
from neusight_onnx.learning.datasets.products import CONSTANT_OPERAND, TENSOR_CORE_GEMM
from neusight_onnx.learning.deployments import _of_kin, common_variance, deployments, run_of
from neusight_onnx.predictor import estimate, load_predictors
from neusight_onnx.predictor.manifest import DEPLOYMENTS_NAME, MANIFEST_NAME


def product(n: int, m: int = 64) -> Gemm:
    return Gemm(m=m, n=n, k=256, dtype=DataType.BFLOAT16, b_is_weight=True)


def products(count: int, m: int = 64) -> list[Kernel]:
    return [product(n, m) for n in range(1, count + 1)]


@pytest.mark.parametrize(
    ("kernels", "errors", "times", "expected"),
    [
        pytest.param(products(4), [0.1] * 4, [1.0] * 4, (0.01, 1), id="all alike: (.1^2 - .1^2 / 4) / (1 - 1 / 4)"),
        pytest.param(
            products(4), [0.1, -0.1, 0.1, -0.1], [1.0] * 4, (-0.01 / 3, 1), id="nothing alike: (0 - .0025) / .75"
        ),
        # weights .5, .1 (5 times): mean .2 x .5, q = .3, mean square .02: (.01 - .006) / .7
        pytest.param(
            products(6), [0.2, 0.0, 0.0, 0.0, 0.0, 0.0], [5.0] + [1.0] * 5, (0.004 / 0.7, 1), id="one long kernel"
        ),
        pytest.param(
            [*products(4), *products(4, m=96)],
            [0.1] * 4 + [-0.1] * 4,
            [1.0] * 8,
            (0.01, 2),
            id="two runs, each with a level",
        ),
        pytest.param([product(1)] * 4, [0.1] * 4, [1.0] * 4, None, id="one kernel four times is one"),
        pytest.param([*products(4), product(4)], [0.1] * 5, [1.0] * 5, (0.01, 1), id="a repeated kernel counts once"),
        pytest.param([], [], [], None, id="nothing"),
    ],
)
def test_common_variance(
    kernels: list[Kernel], errors: list[float], times: list[float], expected: tuple[float, int] | None
) -> None:
    found = common_variance(kernels, np.array(errors), np.array(times))
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert found[0] == pytest.approx(expected[0])
        assert found[1] == expected[1]


def test_products_of_many_programs_are_one_run() -> None:
    kernels = [*products(4), *products(4, m=96)]
    found = common_variance(kernels, np.array([0.1] * 4 + [-0.1] * 4), np.ones(8), one_run=True)
    assert found is not None
    assert found[0] == pytest.approx((0.0 - 0.01 / 8) / (7 / 8))


CONV = Conv(
    n=8,
    c=16,
    k=16,
    spatial=(4, 4),
    out=(4, 4),
    filter=(1, 1),
    strides=(1, 1),
    dilations=(1, 1),
    dtype=DataType.FLOAT16,
)
PREFILL = Attention(b=1, h=8, g=8, s=128, t=128, d=64, v=64, causal=True, dtype=DataType.BFLOAT16)


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        pytest.param(product(1), product(2), True, id="products of as many rows"),
        pytest.param(product(1), product(1, m=8), False, id="products of other rows"),
        pytest.param(CONV, replace(CONV, k=32), True, id="convolutions of a batch"),
        pytest.param(CONV, replace(CONV, n=4), False, id="convolutions of another batch"),
        pytest.param(CONV, replace(CONV, direction="weight"), False, id="gradients"),
        pytest.param(PREFILL, replace(PREFILL, h=16), True, id="attention over as many keys"),
        pytest.param(PREFILL, replace(PREFILL, s=1), False, id="decoding"),
        pytest.param(
            Softmax(rows=2, cols=3, dtype=DataType.FLOAT32),
            Softmax(rows=5, cols=7, dtype=DataType.FLOAT32),
            True,
            id="any rows of softmax",
        ),
    ],
)
def test_which_kernels_run_together(first: Kernel, second: Kernel, together: bool) -> None:
    assert (run_of(first) == run_of(second)) is together


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """A folder with the shipped predictor of 16-bit products alone."""
    folder = tmp_path / "predictors"
    folder.mkdir()
    manifest = json.loads((data_folder("predictors") / MANIFEST_NAME).read_text())
    entries = [entry for entry in manifest["predictors"] if entry["name"] == "gemm_bf16"]
    (folder / MANIFEST_NAME).write_text(json.dumps({**manifest, "predictors": entries}))
    shutil.copy(data_folder("predictors") / entries[0]["file"], folder)
    return folder


VLLM, SLOWER = 0.3, 0.2


def measured(folder: Path, predictors: Path, *, versions: bool) -> Path:
    """Products on an H100 as the predictor has them: vLLM's take ``VLLM`` (log) longer, the slowest version of SGLang's
    ``SLOWER``, each product 2 % more or less."""
    random = np.random.default_rng(5)
    predictor = load_predictors(predictors)["gemm", "bfloat16"]
    h100 = load_gpu("h100-sxm")
    sizes = [(m, n, k) for m in (512, 2048, 8192) for n in (1024, 2048, 4096, 6144) for k in (1024, 4096)]
    columns: dict[str, list[object]] = {}
    for framework, level, activity in (("sglang", 0.0, 1.0), ("vllm", VLLM, CONSTANT_OPERAND)):
        kernels = [
            replace(product(n, m), k=k, transpose_b=True, repeated=True, burst=True, activity=activity)
            for m, n, k in sizes
        ]
        times = estimate(kernels, h100, predictor).latency_us * np.exp(level + random.normal(0.0, 0.02, len(kernels)))
        for (m, n, k), time_us in zip(sizes, times.tolist(), strict=True):
            row: dict[str, object] = {
                "gpu": "h100-sxm",
                "framework": framework,
                "dtype": "bfloat16",
                "m": m,
                "n": n,
                "k": k,
            }
            row["latency_ms"] = time_us / 1e3
            if versions:
                row |= {"slowest_version_ms": time_us * float(np.exp(SLOWER)) / 1e3, "versions": 2}
            for name, value in row.items():
                columns.setdefault(name, []).append(value)
    file = folder / TENSOR_CORE_GEMM
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table(columns), file)
    return folder


@pytest.mark.parametrize("versions", [True, False])
def test_levels_are_found_again(versions: bool, shipped: Path, tmp_path: Path) -> None:
    before = load_predictors(shipped)["gemm", "bfloat16"].interval
    assert (before.deployment, before.beyond) == (0.0, 0.0)
    data = measured(tmp_path / "data", shipped, versions=versions)
    assert main(["deployments", str(data), "--output", str(shipped)]) == 0
    load_predictors.cache_clear()
    content = json.loads((shipped / DEPLOYMENTS_NAME).read_text())
    entry = content["predictors"]["gemm_bf16"]
    evidence = {item["source"]: item for item in entry["measured"]["evidence"]}
    vllm, slowest = f"{TENSOR_CORE_GEMM}, vllm", f"{TENSOR_CORE_GEMM}, sglang, slowest version"
    assert set(evidence) == ({vllm, slowest} if versions else {vllm})
    assert evidence[vllm]["log_sd"] == pytest.approx(VLLM, rel=0.05)
    assert evidence[vllm]["run_count"] == 3
    expected = VLLM**2
    if versions:
        assert evidence[slowest]["log_sd"] == pytest.approx(SLOWER, rel=0.05)
        expected = (VLLM**2 + SLOWER**2) / 2
    # one GPU and two of its kin, which are itself: three degrees of freedom, of which t's 90 % are 1.638
    assert entry["measured"]["log_sd"] == pytest.approx(expected**0.5, rel=0.05)
    assert entry["measured"]["half_width_log"] == pytest.approx(1.638 * expected**0.5, rel=0.05)
    # another GPU has what the law errs without the H100, and another deployment's level beside
    assert entry["unmeasured"]["log_sd"] >= entry["measured"]["log_sd"]
    left_out = [item["source"] for item in entry["unmeasured"]["evidence"]]
    assert left_out == [f"{TENSOR_CORE_GEMM}, left out"]
    after = load_predictors(shipped)["gemm", "bfloat16"].interval
    assert after.deployment == entry["measured"]["half_width_log"]
    assert after.beyond == entry["unmeasured"]["half_width_log"]


def test_what_other_data_told_is_kept(shipped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = json.loads((shipped / MANIFEST_NAME).read_text())
    manifest["predictors"].append({**manifest["predictors"][0], "name": "gemm_fp8", "dtype": "float8e4m3fn"})
    (shipped / MANIFEST_NAME).write_text(json.dumps(manifest))
    old = {"measured": {"half_width_log": 0.28}, "unmeasured": {"half_width_log": 0.32}}
    told = {"gemm_bf16": old, "gemm_fp8": old, "no_predictor": old}
    (shipped / DEPLOYMENTS_NAME).write_text(json.dumps({"schema_version": 1, "predictors": told}))
    data = measured(tmp_path / "data", shipped, versions=False)
    assert main(["deployments", str(data), "--output", str(shipped)]) == 0
    found = json.loads((shipped / DEPLOYMENTS_NAME).read_text())["predictors"]
    assert list(found) == ["gemm_bf16", "gemm_fp8"]
    assert found["gemm_fp8"] == old != found["gemm_bf16"]
    assert "no rows that tell of gemm_fp8: kept as they were" in capsys.readouterr().out


def test_a_folder_without_fp32_trains_what_it_has(
    shipped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = json.loads((shipped / MANIFEST_NAME).read_text())["predictors"]
    data = measured(tmp_path / "data", shipped, versions=False)
    assert main(["train", str(data), "--output", str(shipped)]) == 0
    after = json.loads((shipped / MANIFEST_NAME).read_text())["predictors"]
    changed = {new["name"] for old, new in zip(before, after, strict=True) if new != old}
    assert changed == {"gemm_bf16"}
    said = capsys.readouterr().out
    assert "FP32: none of neusight/kernels_fp32.parquet: kept as they were" in said
    assert "gemm_bf16: a half width of" in said
    # what is asked for by its name isn't passed over
    assert main(["train", str(data), "--output", str(shipped), "--class", "gemm"]) == 2
    assert "has none of neusight/kernels_fp32.parquet" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("{", id="no JSON"),
        pytest.param("[]", id="a list"),
        pytest.param('{"schema_version": 99, "predictors": {}}', id="another version"),
        pytest.param('{"schema_version": 1, "predictors": {"gemm_bf16": {"measured": {}}}}', id="no width"),
        pytest.param('{"schema_version": 1, "predictors": {"gemm_bf16": []}}', id="no parts"),
    ],
)
def test_a_file_that_cant_be_understood_is_refused(content: str, shipped: Path) -> None:
    (shipped / DEPLOYMENTS_NAME).write_text(content)
    with pytest.raises(PredictorError, match=DEPLOYMENTS_NAME):
        load_predictors(shipped)


def test_data_without_such_kernels_is_refused(shipped: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing to tell"):
        deployments(tmp_path, shipped)


def test_a_folder_that_cant_be_written_is_said(shipped: Path, tmp_path: Path) -> None:
    data = measured(tmp_path / "data", shipped, versions=False)
    (shipped / DEPLOYMENTS_NAME).mkdir()
    with pytest.raises(OutputError, match="can't write"):
        deployments(data, shipped)


def test_another_deployment_that_nobody_measured_is_taken_from_the_other_vendors() -> None:
    known = {("conv_fp32", False): {"t4": 0.04}, ("gemm_fp32", True): {"mi100": 0.01}, ("conv_matrix_amd", True): {}}
    assert _of_kin(("conv_matrix_amd", True), known) == [0.04]
    assert _of_kin(("conv_matrix_amd", True), {**known, ("conv_fp32", True): {"mi100": 0.09}}) == [0.09]
    assert _of_kin(("conv_matrix", False), known) == [0.04]


def test_shipped_predictors_say_more_of_a_measured_gpu() -> None:
    """On a GPU that wasn't measured a run's kernels have no less in common than on one that was."""
    told = json.loads((data_folder("predictors") / DEPLOYMENTS_NAME).read_text())["predictors"]
    names = {predictor.name for predictor in load_predictors(data_folder("predictors")).values()}
    assert set(told) <= names
    assert {"gemm_bf16", "gemm_fp32", "conv_fp32", "conv_matrix", "attention_bf16"} <= set(told)
    unknown = [name for name, entry in told.items() if entry.get("measured", {}).get("log_sd", 0.0) == 0.0]
    assert not unknown, "as if the run of another library were known to be alike"
    for entry in told.values():
        assert entry["unmeasured"]["log_sd"] >= 0.9 * entry.get("measured", entry["unmeasured"])["log_sd"]
