"""What L2 holds of the weights from one run to the next."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from graphs import inferred
from neusight_onnx import analyze
from neusight_onnx.gpu import load_gpu
from neusight_onnx.lowering import lower
from neusight_onnx.memory import kept_in_l2, run_bytes, run_memory

ROOT = Path(__file__).parents[1]


def test_a_run_touches_weights_without_the_rows_that_it_does_not_look_up_and_what_is_alive_at_the_peak() -> None:
    """A table of 1,000 rows of 64, two layers of 64 x 64; beside a layer's input of 8 x 64 is its output alive, and the
    model's ids of 8 bytes each."""
    graph = inferred(
        """
        rows = Gather(table, ids)
        first = MatMul(rows, one)
        second = MatMul(first, two)
        """,
        {"ids": (8,)},
        weights={"table": (1000, 64), "one": (64, 64), "two": (64, 64)},
        types={"ids": 7},
    )
    run = run_memory(graph, lower(graph, runtime="onnxruntime"), "onnxruntime")
    assert run_bytes(run) == 4 * (2 * 64 * 64 + 2 * 8 * 64) + 8 * 8


def test_a_table_that_is_multiplied_by_as_well_is_touched_as_a_whole() -> None:
    graph = inferred(
        """
        rows = Gather(table, ids)
        scores = Gemm <transB = 1> (rows, table)
        """,
        {"ids": (8,)},
        weights={"table": (1000, 64)},
        types={"ids": 7},
    )
    run = run_memory(graph, lower(graph, runtime="onnxruntime"), "onnxruntime")
    assert run_bytes(run) == 4 * (1000 * 64 + 8 * 64 + 8 * 1000) + 8 * 8


@pytest.mark.parametrize(
    ("gpu", "megabytes", "low", "high"),
    [
        # .9 of 96 MiB are held, 90.6 MB; of an A100's 40 MiB in two partitions .9 x .75, 28.3 MB
        pytest.param("l40s", 45.3, 0.98, 0.99, id="half of what is held"),
        pytest.param("l40s", 90.6, 0.49, 0.51, id="all of it"),
        pytest.param("l40s", 181.2, 0.01, 0.02, id="twice that"),
        pytest.param("a100-sxm-80gb", 28.3, 0.49, 0.51, id="two partitions"),
        pytest.param("mi300x", 1.0, 0.0, 0.0, id="AMD"),
    ],
)
def test_share_that_stays(gpu: str, megabytes: float, low: float, high: float) -> None:
    graph = inferred("y = MatMul(x, w)", {"x": (1, 1)}, weights={"w": (1, 1)})
    run = replace(
        run_memory(graph, lower(graph, runtime="onnxruntime"), "onnxruntime"),
        touched_weight_bytes=round(megabytes * 1e6),
    )
    assert low <= kept_in_l2(run, load_gpu(gpu)) <= high


def test_a_larger_l2_keeps_more_weights_without_a_cliff() -> None:
    """ResNet-50's filters in 8 bits, 25.5 MB, take an L4 45 us longer from DRAM than from L2, and go by degrees."""
    small = replace(load_gpu("l4"), l2_bytes=12 << 20)
    sizes = [small.l2_bytes * 2 ** (step / 8) for step in range(25)]
    every = [replace(small, l2_bytes=round(size)) for size in sizes]
    times_us = [
        1e3
        * analyze(
            ROOT / "examples" / "resnet50.onnx", gpu=gpu, batch=1, precision="int8", runtime="tensorrt"
        ).totals.latency_ms
        for gpu in every
    ]
    steps = [before - after for before, after in pairwise(times_us)]
    assert min(steps) > -1.0
    assert max(steps) < 15.0
    assert times_us[0] - times_us[-1] > 40.0


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        pytest.param("l40s", ["a run touches 52.7 MiB and L2 is 96.0 MiB, so that 95.1 % of the weights"], id="fits"),
        pytest.param("a10", [], id="6 MiB"),
    ],
)
def test_the_report_says_what_stays(gpu: str, said: list[str]) -> None:
    report = analyze(ROOT / "examples" / "resnet50.onnx", gpu=gpu, batch=1, precision="fp16", runtime="tensorrt")
    found = [line for line in report.assumptions if line.startswith("runs follow each other")]
    assert len(found) == len(said)
    assert all(part in line for part, line in zip(said, found, strict=True))
