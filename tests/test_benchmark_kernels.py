"""The benchmark of kernels: which predictors it shows, and what stands in for a generation."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightgbm", reason="needs the learning extra and libgomp", exc_type=(ImportError, OSError))

from neusight_onnx.errors import DataError

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def kernels() -> Iterator[Any]:
    """The program, which finds its neighbours beside it; tests have modules of the same names."""
    sys.path.append(str(BENCHMARKS))
    specification = importlib.util.spec_from_file_location("benchmark_of_kernels", BENCHMARKS / "kernels.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    yield module
    sys.path.remove(str(BENCHMARKS))


def entry(name: str, kernel_class: str, gpus: list[str], rows: list[tuple[str, str, float]]) -> dict[str, Any]:
    held_out = [
        {
            "protocol": protocol,
            "gpu": gpu,
            "operation": "run",
            "row_count": 10,
            "mape_percent": error,
            "median_ape_percent": 0.75 * error,
            "bias_percent": -1.0,
        }
        for protocol, gpu, error in rows
    ]
    training = {"gpus": [{"name": gpu} for gpu in gpus]}
    return {"name": name, "kernel_class": kernel_class, "dtype": "bfloat16", "training": training} | {
        "held_out": {"rows": held_out}
    }


PASCAL_AND_AMPERE = entry(
    "gemm_x",
    "gemm",
    ["p4", "p100-pcie-16gb", "a100-pcie-40gb"],
    [
        ("leave_one_gpu_out", "p4", 10.0),
        ("leave_one_gpu_out", "a100-pcie-40gb", 20.0),
        ("leave_one_generation_out", "p4", 30.0),
        ("new_shapes", "p4", 4.0),
        ("new_shapes", "a100-pcie-40gb", 6.0),
    ],
)


def test_a_gpu_alone_in_its_generation_stands_for_it(kernels: Any) -> None:
    assert kernels.lone_gpus(PASCAL_AND_AMPERE) == {"a100-pcie-40gb"}
    found = kernels.by_protocol(PASCAL_AND_AMPERE)["leave_one_generation_out"]
    assert {key: row["mape_percent"] for key, row in found.items()} == {
        ("p4", "run"): 30.0,
        ("a100-pcie-40gb", "run"): 20.0,
    }


def test_the_summary_averages_over_gpus(kernels: Any) -> None:
    roofline = {("gemm", "bfloat16", "p4", "run"): 50.0, ("gemm", "bfloat16", "a100-pcie-40gb", "run"): 70.0}
    (line,) = [text for text in kernels.summary([PASCAL_AND_AMPERE], roofline) if text.startswith("| gemm_x")]
    assert line.split(" | ")[2:] == ["20", "15.0", "25.0", "5.0", "11.2", "20.0 (a100-pcie-40gb)", "60.0 |"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [(None, ["gemm_x", "conv_y"]), (["conv"], ["conv_y"]), (["gemm_x"], ["gemm_x"])],
    ids=["all", "a class", "a predictor"],
)
def test_what_is_shown(names: list[str] | None, expected: list[str], kernels: Any) -> None:
    entries = [PASCAL_AND_AMPERE, entry("conv_y", "conv", ["t4"], [])]
    assert [found["name"] for found in kernels.chosen(entries, names)] == expected


def test_an_unknown_name_is_refused_with_what_there_is(kernels: Any) -> None:
    with pytest.raises(DataError, match="no predictor or kernel class softmax; there are gemm, gemm_x"):
        kernels.chosen([PASCAL_AND_AMPERE], ["softmax"])


@pytest.mark.parametrize(
    ("label", "operation"),
    [("bfloat16", "run"), ("matrix+amd", "tuned bfloat16"), ("float32/weight", "weight float32")],
    ids=["of one format", "shared: the operation names the format", "of a gradient, as shared ones"],
)
def test_the_roofline_stands_beside_each_gpu(label: str, operation: str, kernels: Any) -> None:
    known = {("gemm", "bfloat16", "p4", "run"): 51.25, ("gemm", "matrix", "p4", "tuned bfloat16"): 51.25}
    known |= {("gemm", "matrix", "p4", "weight float32"): 51.25}
    shown = {**PASCAL_AND_AMPERE, "dtype": label}
    assert kernels.roofline_cell(known, shown, ("p4", operation)) == [51.25]
    assert kernels.roofline_cell(known, shown, ("t4", operation)) == []
