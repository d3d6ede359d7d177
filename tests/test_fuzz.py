"""Damaged models through the whole analysis: one line of complaint or a sound report, in bounded time and memory.

``make fuzz`` runs 10,000 of them. Damage that only the reader meets is in test_read_fuzz.py.
"""

from __future__ import annotations

import os
import random
import resource
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models import external_tensor, graph, model, nested_ifs, node, tensor, value
from models.mutations import mutated, originals
from neusight_onnx import analyze
from neusight_onnx.errors import NeusightError
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.inspection import inspect_model

CASES = min(int(os.environ.get("NEUSIGHT_FUZZ_CASES", "250")), 2_000)
"""The long run of the whole analysis is benchmarks/fuzz.py; here hypothesis shrinks what it finds."""

ORIGINALS = originals()
SECONDS = 5
MEGABYTES = 400


@pytest.mark.parametrize("content", ORIGINALS, ids=range(len(ORIGINALS)))
def test_the_fuzzed_models_are_analysed(content: bytes) -> None:
    """Else the fuzzing would never get past the front door."""
    report = analyze(read_model_bytes(content), gpu="a100", precision="fp32")
    assert not report.totals.partial
    assert report.coverage.node_count > 0


@settings(max_examples=CASES, deadline=None)
@given(which=st.integers(0, len(ORIGINALS) - 1), seed=st.integers(0, 2**32))
def test_fuzz_analysis(which: int, seed: int) -> None:
    sound(mutated(ORIGINALS[which], random.Random(seed)))


def sound(content: bytes) -> None:
    """Analysed or refused, as it should be."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    try:
        read = read_model_bytes(content)
        inspect_model(read)
        report = analyze(read, gpu="a100", precision="fp32")
    except NeusightError as error:
        message = str(error)
        assert "\n" not in message
        assert len(message) < 2_000
    else:
        totals = report.totals
        assert 0 <= totals.latency_low_ms <= totals.latency_ms <= totals.latency_high_ms < float("inf")
        assert min((kernel.latency_us for kernel in report.kernels), default=1.0) > 0
        assert totals.flops >= 0
        assert totals.read_bytes >= 0
    assert time.perf_counter() - start < SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < MEGABYTES


def chained(name: str) -> bytes:
    nodes = [node("Relu", "x", name), node("Relu", name, "y", name)]
    return model(graph(nodes, [value("x", (4,))], [value("y", None)])).SerializeToString()


def sized(*shape: int) -> bytes:
    return model(graph([node("Relu", "x", "y")], [value("x", shape)], [value("y", None)])).SerializeToString()


def multiplied(times: int) -> bytes:
    """A tensor that doubles in size as often as this."""
    nodes = [node("Concat", f"v{index} v{index}", f"v{index + 1}", axis=0) for index in range(times)]
    return model(graph(nodes, [value("v0", (2,))], [value(f"v{times}", None)])).SerializeToString()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(chained("n" * 1_000_000), id="names of 1 MB"),
        pytest.param(chained("a\n\x1b[31m\u202e"), id="names with control characters"),
        pytest.param(nested_ifs(60), id="60 branches deep"),
        pytest.param(nested_ifs(1000), id="1,000 branches deep"),
        pytest.param(sized(2**62), id="a dim of 2^62"),
        pytest.param(sized(2**31, 2**31, 2**31), id="2^93 elements"),
        pytest.param(sized(-5, 4), id="a negative dim"),
        pytest.param(sized(0, 4), id="no elements"),
        pytest.param(sized(*[1] * 200), id="200 dims"),
        pytest.param(multiplied(80), id="doubled 80 times"),
    ],
)
def test_extremes(content: bytes) -> None:
    sound(content)


@pytest.mark.parametrize("location", ["../../etc/passwd", "/etc/passwd", "link.bin", "folder/secret.bin"])
def test_nothing_outside_the_folder_is_read(location: str, tmp_path: Path) -> None:
    """The target of a Reshape would stand in a file outside; through a path, a link, or a folder that is a link."""
    outside, folder = tmp_path / "outside", tmp_path / "model"
    outside.mkdir()
    folder.mkdir()
    secret = outside / "secret.bin"
    secret.write_bytes(tensor("", np.array([2, 2])).raw_data)
    (folder / "link.bin").symlink_to(secret)
    (folder / "folder").symlink_to(outside)
    proto = model(
        graph(
            [node("Reshape", "x t", "y")],
            [value("x", (4,))],
            [value("y", None)],
            [external_tensor("t", (2,), location, 7)],
        )
    )
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(NeusightError) as error:
        analyze(path, gpu="a100")
    assert "\n" not in str(error.value)
    assert ("by a link" in str(error.value)) is (location in ("link.bin", "folder/secret.bin"))
