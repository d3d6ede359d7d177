"""Arguments from Python that can't be meant: one clear line, a NeusightError, as the command line says it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from neusight_onnx import NeusightError, analyze, check, compare, diff, sweep
from neusight_onnx.checks import Target
from neusight_onnx.checks.config import read_config
from neusight_onnx.comparison.prices import Prices, as_prices, read_prices

RESNET = Path(__file__).parents[1] / "examples" / "resnet50.onnx"
BATCHES = {"batch": (1, 8)}


def target(**settings: Any) -> Target:
    return Target(name="case", model=RESNET, gpu="t4", **settings)


def of_reports(**settings: Any) -> object:
    report = analyze(RESNET, gpu="t4")
    return diff(report, report, **settings)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        pytest.param(lambda: compare(RESNET, gpus="l4", prices=5), "prices is 5; give a mapping", id="prices"),
        pytest.param(
            lambda: compare(RESNET, gpus="l4", prices={"l4": None}), "the price of 'l4' is no number", id="no price"
        ),
        pytest.param(
            lambda: compare(RESNET, gpus="l4", prices={"l4": "8 a day"}), "'l4' = '8 a day' is no price", id="bad price"
        ),
        pytest.param(lambda: compare(RESNET, gpus="l4", precisions=[]), "precisions is empty", id="no precision"),
        pytest.param(lambda: compare(RESNET, gpus=None), "gpus is None; give a name", id="gpus"),
        pytest.param(lambda: compare(RESNET, gpus="l4", precisions=None), "precisions is None", id="precisions"),
        pytest.param(lambda: compare(RESNET, gpus="l4", sort=None), "can't sort by 'None'", id="sort"),
        pytest.param(lambda: analyze(RESNET, gpu="l4", training="adamw"), "training is 'adamw'; give", id="plan"),
        pytest.param(lambda: compare(RESNET, gpus="l4", training=True), "training is True; give a plan", id="true"),
        pytest.param(lambda: sweep(RESNET, gpu="l4", dims=BATCHES, training=False), "training is False", id="false"),
        pytest.param(lambda: check([target(training="sgd")]), "training is 'sgd'; give a plan", id="plan of a target"),
        pytest.param(
            lambda: sweep(RESNET, gpu="l4", dims=BATCHES, max_latency_ms="5ms"), "max_latency_ms is '5ms'", id="time"
        ),
        pytest.param(lambda: of_reports(limit="5%"), "limit is '5%'; give a share", id="share"),
        pytest.param(lambda: of_reports(limit=float("nan")), "limit is nan; give a share", id="no number"),
        pytest.param(lambda: of_reports(limit=-0.1), "limit is -0.1; give a share", id="below zero"),
        pytest.param(lambda: of_reports(gpu="t4"), "two reports are compared as they are", id="gpu of reports"),
        pytest.param(lambda: of_reports(precision="fp16"), "two reports are compared", id="precision of reports"),
        pytest.param(lambda: check([target()], fail_on="foo"), "fail_on is 'foo'; choose 'error'", id="severity"),
        pytest.param(lambda: check(RESNET), "targets is", id="no target"),
    ],
)
def test_what_can_not_be_meant_is_one_line(call: Callable[[], object], says: str) -> None:
    with pytest.raises(NeusightError, match=re.escape(says)) as caught:
        call()
    assert len(str(caught.value).splitlines()) == 1


def test_prices_may_be_a_mapping_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text('currency = "USD"\n[per-hour]\nl4 = 3.6\n')
    written: tuple[str | Path | Mapping[str, float | str], ...] = (path, str(path), {"l4": 3.6}, {"L4": "0.06/min"})
    for prices in written:
        (case,) = compare(RESNET, gpus="l4", batch=8, prices=prices, sort="cost").cases
        assert case.cost() == pytest.approx(case.totals.latency_ms / 8)
    assert as_prices(None) == Prices()


def test_a_target_may_stand_alone_and_a_severity_be_a_text() -> None:
    alone, listed = check(target(), fail_on="error"), check([target()], fail_on="error")
    assert alone == listed
    assert alone.fail_on.value == "error"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with a name here")
@pytest.mark.parametrize(
    "read", [read_prices, read_config, lambda path: diff(path, path)], ids=["prices", "config", "report"]
)
def test_a_pipe_is_refused_and_not_waited_for(read: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "given.json"
    os.mkfifo(path)
    with pytest.raises(NeusightError, match="not a regular file"):
        read(path)


@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="there are no descriptors by name here")
def test_a_pipe_that_a_shell_opened_is_read() -> None:
    """``--prices <(...)``; its writer may have ended before."""
    reading, writing = os.pipe()
    os.write(writing, b"gpu,price_per_h\nt4,1\n")
    os.close(writing)
    try:
        assert read_prices(Path(f"/dev/fd/{reading}")).per_h == {"t4": 1.0}
    finally:
        os.close(reading)
