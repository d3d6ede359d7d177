"""``compare``: ranges of sizes, prices, the cases and their order, its reports and its command."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import onnx
import pytest

from models import decoder, external_tensor, graph, linear, model, node, tensor, value
from neusight_onnx import analyze, load_gpu
from neusight_onnx.backward import make_training
from neusight_onnx.cli import main
from neusight_onnx.comparison.assumed import assumed_by_all
from neusight_onnx.comparison.cases import compare
from neusight_onnx.comparison.grid import MOST_CASES, combinations, parse_dim_lists
from neusight_onnx.comparison.points import sweep
from neusight_onnx.comparison.prices import Prices, parse_prices, read_prices
from neusight_onnx.errors import BindingError, ComparisonError, ModelError, NeusightError, NotSupportedError
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.report.comparison_machine import comparison_to_csv, comparison_to_json
from neusight_onnx.report.comparison_markdown import comparison_to_markdown
from neusight_onnx.report.comparison_terminal import comparison_to_terminal
from neusight_onnx.report.comparison_words import lines
from neusight_onnx.report.layout import Canvas
from neusight_onnx.report.quantities import significant
from test_report_machine import SCHEMA, documented_keys, keys_of

ROOT = Path(__file__).parents[1]
RESNET = ROOT / "examples" / "resnet50.onnx"


# --- lists of sizes ---------------------------------------------------------------------------------------------------

LISTS = {
    "one size": (["batch=8"], {"batch": (8,)}),
    "several": (["batch=1,8,32"], {"batch": (1, 8, 32)}),
    "each once": (["batch=8,8,1"], {"batch": (8, 1)}),
    "two dims": (["batch=1,8,seq=128"], {"batch": (1, 8), "seq": (128,)}),
    "two options": (["batch=1", "seq=2,3"], {"batch": (1,), "seq": (2, 3)}),
    "blanks": (["batch = 1, 2"], {"batch": (1, 2)}),
    "factor": (["s=128..4096*2"], {"s": (128, 256, 512, 1024, 2048, 4096)}),
    "factor that misses the end": (["s=3..50*3"], {"s": (3, 9, 27)}),
    "steps": (["s=128..512+128"], {"s": (128, 256, 384, 512)}),
    "steps that miss the end": (["s=1..6+2"], {"s": (1, 3, 5)}),
    "by one": (["s=1..4"], {"s": (1, 2, 3, 4)}),
    "one of a range": (["s=7..7*2"], {"s": (7,)}),
    "from zero": (["past=0..2"], {"past": (0, 1, 2)}),
    "dots, factors": (["b=1,2,4,...,32"], {"b": (1, 2, 4, 8, 16, 32)}),
    "dots, steps": (["b=8,16,24,...,40"], {"b": (8, 16, 24, 32, 40)}),
    "two before the dots are steps": (["b=1,2,...,5"], {"b": (1, 2, 3, 4, 5)}),
    "two that only factors lead on from": (["b=2,6,...,18"], {"b": (2, 6, 10, 14, 18)}),
    "factors where steps miss": (["b=4,12,...,36"], {"b": (4, 12, 20, 28, 36)}),
    "factors only": (["b=3,9,...,81"], {"b": (3, 9, 15, 21, 27, 33, 39, 45, 51, 57, 63, 69, 75, 81)}),
    "one character": (["b=1,2,4,…,16,s=3"], {"b": (1, 2, 4, 8, 16), "s": (3,)}),
    "range and size": (["b=1,8..32*2"], {"b": (1, 8, 16, 32)}),
}


@pytest.mark.parametrize(("texts", "expected"), LISTS.values(), ids=LISTS.keys())
def test_lists_of_sizes(texts: list[str], expected: dict[str, tuple[int, ...]]) -> None:
    assert parse_dim_lists(texts) == expected


BAD_LISTS = {
    "no name": (["8,16"], "is no binding"),
    "no size": (["batch="], "''"),
    "negative": (["batch=-1"], "batch=-1"),
    "word": (["batch=many"], "'many'"),
    "twice": (["batch=1", "batch=2"], "twice"),
    "backwards": (["b=8..1"], "backwards"),
    "no step": (["b=1..8+0"], "never gets further"),
    "factor one": (["b=1..8*1"], "never gets further"),
    "factor of zero": (["b=0..8*2"], "never gets further"),
    "dots first": (["b=...,8"], "needs two sizes"),
    "dots last": (["b=1,2,..."], "last size"),
    "more after the dots": (["b=1,2,...,8,9"], "last size"),
    "no way there": (["b=1,2,4,...,20"], "no equal steps or factors lead from 1,2,4 to 20"),
    "dots backwards": (["b=4,2,...,1"], "no equal steps"),
    "too many": (["b=1..5000"], "more than 1,024 sizes"),
    "too many by dots": (["b=1,2,...,99999999"], "more than 1,024 sizes"),
    "half a range": (["b=1.."], "1.. is no range"),
}


@pytest.mark.parametrize(("texts", "says"), BAD_LISTS.values(), ids=BAD_LISTS.keys())
def test_lists_that_can_not_be_meant(texts: list[str], says: str) -> None:
    with pytest.raises(NeusightError, match=re.escape(says)) as raised:
        parse_dim_lists(texts)
    assert isinstance(raised.value, BindingError | ComparisonError)


def test_combinations_vary_the_last_dim_fastest() -> None:
    found = combinations({"b": (1, 2), "s": (3, 4)})
    assert found == [{"b": 1, "s": 3}, {"b": 1, "s": 4}, {"b": 2, "s": 3}, {"b": 2, "s": 4}]
    assert combinations({}) == [{}]
    assert len(combinations({"b": range(1, 33), "s": range(1, 33)})) == MOST_CASES
    with pytest.raises(ComparisonError, match="1,056 cases"):
        combinations({"b": range(1, 34), "s": range(1, 33)})
    with pytest.raises(ComparisonError, match="2,048 cases"):
        combinations({"b": range(1024)}, others=2)


# --- prices -----------------------------------------------------------------------------------------------------------

PRICES = {
    "an hour": ("a100=2.1/h", {"a100-sxm-80gb": 2.1}),
    "a minute": ("t4=0.01/min", {"t4": 0.6}),
    "a second": ("t4=0.001/s", {"t4": 3.6}),
    "a day": ("t4=24/day", {"t4": 1.0}),
    "nothing": ("t4=0/h", {"t4": 0.0}),
    "another name of it": ("Tesla T4=.5 / hr", {"t4": 0.5}),
    "two": ("t4=.5/h, l4=.8/h", {"t4": 0.5, "l4": 0.8}),
}


@pytest.mark.parametrize(("text", "expected"), PRICES.values(), ids=PRICES.keys())
def test_prices(text: str, expected: dict[str, float]) -> None:
    assert parse_prices([text]).per_h == pytest.approx(expected)


BAD_PRICES = {
    "negative": (["a100=-2/h"], "below zero"),
    "no unit": (["a100=2"], "unit of time is missing"),
    "wrong unit": (["a100=2/hours"], "'hours' is no unit"),
    "a word": (["a100=cheap"], "is no price"),
    "no GPU": (["2.1/h"], "names no GPU"),
    "a decimal comma": (["a100=2,1/h"], "'1/h' is no GPU with its price; write a100=2.1/h, or a list"),
    "names with a comma": (["a100,l4=1/h"], "'a100' is no GPU with its price"),
    "unknown GPU": (["a1000=1/h"], "unknown GPU"),
    "two prices": (["a100=2/h", "A100-SXM4-80GB=3/h"], "has another price already"),
    "endless": (["a100=1e99/h", "t4=" + "9" * 400 + "/h"], "is no price"),
}


@pytest.mark.parametrize(("texts", "says"), BAD_PRICES.values(), ids=BAD_PRICES.keys())
def test_prices_that_can_not_be_meant(texts: list[str], says: str) -> None:
    with pytest.raises(ComparisonError, match=re.escape(says)):
        parse_prices(texts)


FILES = {
    "toml": (
        "p.toml",
        'currency = "USD"\n[per-hour]\na100 = 2\nt4 = "0.5/h"',
        {"a100-sxm-80gb": 2.0, "t4": 0.5},
        "USD",
    ),
    "csv": ("p.csv", "gpu,price_per_h\na100,2\n# old\n\nTesla T4, 0.5\n", {"a100-sxm-80gb": 2.0, "t4": 0.5}, ""),
    "toml of texts": ("p.toml", '[per-hour]\na100 = "2.5"\nt4 = "12/day"', {"a100-sxm-80gb": 2.5, "t4": 0.5}, ""),
    "csv with commas at the ends": (
        "p.csv",
        "gpu,price_per_h,\na100,2,\nt4,0.5,\n",
        {"a100-sxm-80gb": 2.0, "t4": 0.5},
        "",
    ),
    "csv with more columns": (
        "p.csv",
        "Instance, Price per h ,GPU\nsmall,2,a100\n,0.5,t4\n",
        {"a100-sxm-80gb": 2.0, "t4": 0.5},
        "",
    ),
    "csv of machines with one GPU": ("p.csv", "gpu,price_per_h\ng5.2xlarge,1.2\ng5.xlarge,1\n", {"a10g": 1.0}, ""),
    "csv of semicolons": ("p.csv", "gpu;price_per_h\nt4;1\n", {"t4": 1.0}, ""),
    "a pipe's tabs": ("p", "gpu\tprice_per_h\nt4\t1\n", {"t4": 1.0}, ""),
    "csv with a machine that isn't known": ("p.csv", "gpu,price_per_h\np2.xlarge,0.9\nt4,1\n", {"t4": 1.0}, ""),
    "toml with a GPU that isn't known": ("p.toml", "[per-hour]\nx100 = 9\nt4 = 1", {"t4": 1.0}, ""),
    "csv by what stands in it": ("63", "# of May\nGPU,Price per h\nt4,1\n", {"t4": 1.0}, ""),
    "toml by what stands in it": ("63", "[per-hour]\nt4 = 1\n", {"t4": 1.0}, ""),
    "csv of a spreadsheet": ("p.CSV", '\ufeffGPU,price_per_h\r\n"t4",0.001/s\r\n', {"t4": 3.6}, ""),
}


@pytest.mark.parametrize(("name", "text", "expected", "currency"), FILES.values(), ids=FILES.keys())
def test_files_of_prices(name: str, text: str, expected: dict[str, float], currency: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text.encode())
    read = read_prices(tmp_path / name)
    assert read.per_h == pytest.approx(expected)
    assert read.currency == currency


BAD_FILES = {
    "negative": ("p.toml", b"[per-hour]\na100 = -1", "below zero"),
    "negative in csv": ("p.csv", b"gpu,price_per_h\na100,-1", "below zero"),
    "not a number": ("p.toml", b"[per-hour]\na100 = nan", "is no price"),
    "truth": ("p.toml", b"[per-hour]\na100 = true", "is no number"),
    "a list": ("p.toml", b"[per-hour]\na100 = [1]", "is no number"),
    "unknown key": ("p.toml", b"a100 = 1", "unknown key 'a100'"),
    "currency": ("p.toml", b"currency = 3\n[per-hour]\nt4 = 1", "'currency'"),
    "empty": ("p.toml", b"", "has no prices"),
    "empty table": ("p.toml", b"[per-hour]", "has no prices"),
    "no toml": ("p.toml", b"gpu,price_per_h", "is not TOML"),
    "no text": ("p.toml", b"\xff\xfe\x00", "UTF-8"),
    "no price in csv": ("p.csv", b"gpu,price_per_h\na100,much", "a100,much is no price; write lines such as a100,2.1"),
    "no price in toml": ("p.toml", b'[per-hour]\na100 = "much"', "is no price; write a100 = 2.1"),
    "csv of two prices": ("p.csv", b"gpu,price_per_h,price_per_h\na100,2,3", "first line"),
    "csv of a short line": ("p.csv", b"gpu,price_per_h\na100", "has 1 cell"),
    "two prices of a machine": ("p.csv", b"gpu,price_per_h\ng5.xlarge,2\ng5.xlarge,3", "another price already"),
    "a price of a GPU and of its machine": ("p.csv", b"gpu,price_per_h\na10g,2\ng5.xlarge,3", "another price already"),
    "csv without a head": ("p.csv", b"a100,2", "first line"),
    "csv without lines": ("p.csv", b"gpu,price_per_h\n", "has no prices"),
    "csv of three": ("p.csv", b"gpu,price_per_h\n\n# old\na100,2,3", "p.csv, line 4: a100,2,3 has 3 cells"),
    "csv with a quote": ("p.csv", b'gpu,price_per_h\n"a100,2', "is not CSV"),
    "unknown GPU": ("p.csv", b"gpu,price_per_h\nx100,2", "unknown GPU"),
    "unknown GPU without a price": ("p.csv", b"gpu,price_per_h\nx100,much\nt4,1", "x100,much is no price"),
    "unknown file": ("p.csv", b"gpu,price_per_h\nt4,1\nmine.toml,2", "mine.toml: no such file"),
    "large": ("p.csv", b"#" * (2 << 20), "1 MB"),
}


@pytest.mark.parametrize(("name", "content", "says"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_files_of_prices_that_can_not_be_meant(name: str, content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ComparisonError, match=re.escape(says)):
        read_prices(tmp_path / name)


def test_prices_of_options_go_over_those_of_a_file() -> None:
    base = Prices(per_h={"t4": 1.0, "l4": 2.0}, currency="USD")
    assert Prices(per_h={"t4": 3.0}).over(base) == Prices(per_h={"t4": 3.0, "l4": 2.0}, currency="USD")


# --- cases ------------------------------------------------------------------------------------------------------------


def test_every_case_has_the_figures_of_an_analysis() -> None:
    found = compare(RESNET, gpus=["a100", "t4"], dims={"batch": (1, 4)}, runtimes=("eager", "compiled"))
    assert len(found.cases) == 8
    assert found.varied == ("gpu", "precision", "runtime", "batch")  # TF32 in convolutions, where the GPU has it
    for case in found.cases:
        report = analyze(RESNET, gpu=case.gpu, dims=dict(case.dims), runtime=case.runtime)
        assert case.totals == report.totals
        assert case.unsupported_count == len(report.unsupported)
        assert sum(case.bound_shares.values()) == pytest.approx(1)
        assert (case.bound == "host") == report.host.is_bound
        for bound in set(case.bound_shares) - {"host"}:
            spent_us = sum(row.latency_us for row in report.kernels if row.bound == bound)
            assert case.bound_shares[bound] == pytest.approx(spent_us / 1e3 / report.totals.latency_ms)


def test_a_run_that_the_host_holds_up_is_bound_by_it() -> None:
    """However short the GPU waits: with ten times the bandwidth it would only wait longer."""
    bert = str(ROOT / "examples" / "bert_base.onnx")
    found = compare(bert, gpus=["h100"], dims={"batch": (8, 64), "sequence": (128,)})
    small, large = sorted(found.cases, key=lambda case: case.dims["batch"])
    assert small.bound == "host"
    assert small.bound_shares["host"] < min(0.2, small.bound_shares["compute"])
    assert large.bound != "host"


@pytest.mark.parametrize(
    ("sort", "figure", "descending"),
    [
        ("latency", lambda case: case.totals.latency_ms, False),
        ("throughput", lambda case: case.totals.throughput_per_s, True),
        ("memory", lambda case: case.totals.memory.peak_bytes, False),
        ("cost", lambda case: case.cost(), False),
    ],
    ids=["latency", "throughput", "memory", "cost"],
)
def test_order(sort: str, figure, descending: bool) -> None:  # type: ignore[no-untyped-def]  # lambdas of the table
    prices = parse_prices(["a100=2/h", "t4=0.4/h"])
    found = compare(RESNET, gpus=["a100", "t4"], dims={"batch": (1, 8, 64)}, prices=prices, sort=sort)
    figures = [figure(case) for case in found.cases]
    assert figures == sorted(figures, reverse=descending)
    assert found.has_best


def test_what_does_not_fit_is_last_and_never_best() -> None:
    found = compare(RESNET, gpus=["t4"], dims={"batch": (4000, 1)}, sort="throughput")
    assert [case.totals.memory.fits for case in found.cases] == [True, False]
    assert found.cases[1].totals.throughput_per_s > found.cases[0].totals.throughput_per_s
    none = compare(RESNET, gpus=["t4"], dims={"batch": 4000})
    assert not none.has_best
    shown = comparison_to_terminal(none, Canvas(width=80))
    assert "none fits" in shown
    assert "too large" in shown
    assert "\n*" not in shown


def test_a_price_of_a_machine_is_divided_among_its_gpus(tmp_path: Path) -> None:
    """p4d.24xlarge has eight GPUs: its price as it is would make each of them cost as much as all."""
    (tmp_path / "p.csv").write_text("gpu,price_per_h\ng5.xlarge,1\nl4,0.7\np4d.24xlarge,32\n")
    prices = parse_prices(["a100-sxm-40gb=4.5/h"]).over(read_prices(tmp_path / "p.csv"))
    assert prices.per_h == {"a10g": 1.0, "l4": 0.7, "a100-sxm-40gb": 4.5}
    assert prices.machines == {"a10g": "g5.xlarge"}
    prices = parse_prices(["p4d.24xlarge=32/h", "v100=1/h"]).over(read_prices(tmp_path / "p.csv"))
    assert prices.per_h["a100-sxm-40gb"] == pytest.approx(4.0)
    assert prices.machines == {"a10g": "g5.xlarge", "a100-sxm-40gb": "p4d.24xlarge"}
    said = compare(RESNET, gpus=["p4d.24xlarge", "g5.xlarge"], dims={"batch": 1}, prices=prices).assumptions
    assert "GPU: 'p4d.24xlarge' is taken as one 'a100-sxm-40gb'" in " ".join(said)
    costs = [text for text in said if text.startswith("costs:")]
    assert costs == ["costs: the price of 'p4d.24xlarge' is divided among its 8 GPUs, as if all of them were busy"]


def test_machines_with_the_same_gpu_have_prices_of_their_own() -> None:
    """A list of all that a cloud rents prices a GPU several times: the cheapest counts, or the one that is named."""
    prices = parse_prices(["g5.2xlarge=1.2/h", "g5.xlarge=1/h", "g5.12xlarge=6/h"])
    for gpu, price in (("a10g", 1.0), ("g5.xlarge", 1.0), ("g5.2xlarge", 1.2), ("g5.12xlarge", 1.5)):
        found = compare(RESNET, gpus=[gpu], dims={"batch": 1}, prices=prices)
        assert found.cases[0].price_per_h == pytest.approx(price)
    assert any("divided among its 4 GPUs" in text for text in found.assumptions)
    said = "costs: of machines with the same GPU, 'g5.12xlarge' is counted, not 'g5.2xlarge' (1.20), 'g5.xlarge' (1.00)"
    assert any(text.startswith(said) for text in found.assumptions)
    assert parse_prices(["a10g=2/h"]).over(prices) == parse_prices(["a10g=2/h"])


def test_machines_with_the_same_gpu_are_compared_each_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """Their kernels take the same time; what an hour costs, and among how many GPUs it is divided, differs."""
    prices = parse_prices(["g5.2xlarge=1.2/h", "g5.xlarge=1/h", "g5.12xlarge=6/h"])
    found = compare(RESNET, gpus=["g5.2xlarge", "g5.xlarge", "G5.xlarge"], prices=prices, sort="cost")
    assert [(case.gpu.name, case.price_per_h) for case in found.cases] == [("g5.xlarge", 1.0), ("g5.2xlarge", 1.2)]
    assert found.cases[0].totals == found.cases[1].totals
    assert found.varied == ("gpu",)
    said = " ".join(found.assumptions)
    assert "'g5.2xlarge' is taken as one 'a10g'" in said
    assert "'g5.12xlarge' (1.50)" in said  # which isn't compared
    assert "'g5.2xlarge' (" not in said
    (alone,) = compare(RESNET, gpus=["g5.2xlarge"]).cases
    assert (alone.gpu.name, alone.gpu_model) == ("g5.2xlarge", "a10g")
    mixed = compare(RESNET, gpus=["a10g", "g5.2xlarge"], prices=prices).cases
    assert {case.gpu.name: case.price_per_h for case in mixed} == {"a10g": 1.0, "g5.2xlarge": 1.2}


def test_a_machine_keeps_the_name_that_it_was_asked_for_by() -> None:
    """So that rows can be joined to what was asked, whether or not another machine has the same GPU."""
    found = compare(RESNET, gpus=["g6e.xlarge", "g5.xlarge", "g5.2xlarge", "t4"])
    models = {case.gpu.name: case.gpu_model for case in found.cases}
    assert models == {"g6e.xlarge": "l40s", "g5.xlarge": "a10g", "g5.2xlarge": "a10g", "t4": "t4"}
    assert {(row["gpu"], row["gpu_model"]) for row in csv.DictReader(comparison_to_csv(found).splitlines())} == {
        *models.items()
    }
    assert {line[0] for line in lines(found)} == {"g6e.xlarge (l40s)", "g5.xlarge (a10g)", "g5.2xlarge (a10g)", "t4"}


def test_lines_of_a_list_that_name_no_gpu_are_said(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("gpu,price_per_h\nt4,1\nx100,2\ninf2.xlarge,.76\n")
    (said,) = (
        notice.message
        for notice in compare(RESNET, gpus="t4", prices=tmp_path / "p.csv").warnings
        if notice.code == "unknown_price"
    )
    assert said.startswith(f"no price is taken from {tmp_path}/p.csv, line 3: x100,2: unknown GPU 'x100'")
    assert said.endswith("; nor from 1 more line")
    with pytest.raises(ComparisonError, match="unknown GPU 'x100'"):  # an option names one to compare
        parse_prices(["t4=1/h", "x100=2/h"])


def test_a_price_of_a_family_of_machines_is_one_gpus() -> None:
    prices = parse_prices(["p4d=32/h", "t4=1/h"])
    assert prices.per_h["a100-sxm-40gb"] == 32.0
    said = compare(RESNET, gpus=["p4d", "t4"], dims={"batch": 1}, prices=prices).assumptions
    assert (
        "costs: a price of 'p4d' is taken as one GPU's; divide that of a machine with several by their number" in said
    )
    alone = compare(RESNET, gpus=["t4"], dims={"batch": 1}, prices=prices).assumptions
    assert not any(text.startswith("costs:") for text in alone)


def test_a_price_of_a_card_of_several_gpus_is_said_to_be_one_gpus() -> None:
    prices = parse_prices(["mi250x=2/h", "a16=1/h", "t4=1/h"])
    said = compare(RESNET, gpus=["mi250x", "a16", "t4", "mi250"], dims={"batch": 1}, prices=prices).assumptions
    assert [text for text in said if text.startswith("costs:")] == [
        f"costs: the price of {name} is taken as that of one of the {count} GPUs of its card, whose figures these are; "
        f"divide that of a whole card by {count}"
        for name, count in (("mi250x", 2), ("a16", 4))
    ]


def test_cost_of_a_million() -> None:
    """A GPU of 3.6 an hour costs 0.001 a second: a million runs of 8 samples at L ms cost 1000 * L / 8 / 1000."""
    found = compare(RESNET, gpus=["a100", "t4"], dims={"batch": 8}, prices=parse_prices(["t4=3.6/h"]), sort="cost")
    first, second = found.cases
    assert first.cost() == pytest.approx(first.totals.latency_ms / 8)
    assert first.cost(16.0) == pytest.approx(2.0)
    assert second.cost() is None  # no price: last, whatever its latency
    assert second.totals.latency_ms < first.totals.latency_ms


@pytest.mark.parametrize("given", [["--gpu", "a30, t4,l4"], ["--gpu", "a30", "--gpu", "t4,l4"]], ids=["one", "two"])
def test_gpus_in_a_list(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(RESNET), *given, "--format", "json", "--sort", "cost", "--price", "a30=1/h"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {case["gpu"] for case in shown["cases"]} == {"a30", "t4", "l4"}


@pytest.mark.parametrize(
    ("given", "said"),
    [("a30,,t4", "'a30,,t4' has an empty name in its list"), ("a30,t5", "unknown GPU 't5'"), (",", "an empty name")],
)
def test_a_bad_gpu_in_a_list_is_named(given: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(RESNET), "--gpu", given]) == 2
    assert said in capsys.readouterr().err


def test_why_fewer_bits_are_slower_is_said() -> None:
    """ONNX Runtime's CUDA provider multiplies no INT8; TensorRT's builder keeps layers in 16 bits."""
    model = ROOT / "examples" / "bert_base.onnx"
    found = compare(
        model, gpus=["t4"], batch=(8,), precisions=("fp16", "int8"), runtimes=("onnxruntime", "tensorrt")
    ).assumptions
    assert sum("CUDA provider multiplies no int8" in text for text in found) == 1
    assert sum(text.startswith("int8: convolutions and linear layers") for text in found) == 1
    assert not any(text.startswith("int8") for text in compare(model, gpus=["t4"], precisions=("fp16",)).assumptions)


def test_one_gpu_by_two_names_is_one_case() -> None:
    assert len(compare(RESNET, gpus=["t4", "Tesla T4"], precisions=("auto", "fp32")).cases) == 1


def test_gpus_of_one_name_are_cases_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files by their paths, specs by number; a price by their name holds for all."""
    text = (Path(__file__).parents[1] / "specs" / "t4.toml").read_text(encoding="utf-8")
    (tmp_path / "other").mkdir()
    files = [tmp_path / "t4.toml", tmp_path / "other" / "t4.toml"]
    for file, bandwidth in zip(files, (300, 280), strict=True):
        file.write_text(text.replace("memory_bandwidth_gb_s = 320", f"memory_bandwidth_gb_s = {bandwidth}"))
    own = replace(load_gpu("t4"), memory_bytes_per_s=2.9e11)
    found = compare(RESNET, gpus=["t4", *files, own, own], prices=parse_prices(["t4=1/h"]))
    bandwidths = {case.gpu.name: case.gpu.memory_bytes_per_s / 1e9 for case in found.cases}
    assert bandwidths == {"t4": 320, str(files[0]): 300, str(files[1]): 280, "t4 (2)": 290}
    assert all(case.price_per_h == 1.0 for case in found.cases)
    given = ["compare", str(RESNET), "--gpu", "t4", *(part for file in files for part in ("--gpu", str(file)))]
    for form in ("csv", "json", "markdown"):
        assert main([*given, "--format", form]) == 0
        out = capsys.readouterr().out.replace("\\", "")  # Markdown escapes what a path may have
        assert all(str(file) in out for file in files), form


def test_files_of_one_name_have_prices_of_their_own(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "specs" / "t4.toml").read_text(encoding="utf-8")
    files = [tmp_path / folder / "my.toml" for folder in "ab"]
    for file, bandwidth in zip(files, (300, 280), strict=True):
        file.parent.mkdir()
        file.write_text(text.replace("memory_bandwidth_gb_s = 320", f"memory_bandwidth_gb_s = {bandwidth}"))
    prices = parse_prices([f"{file}={price}/h" for file, price in zip(files, (1, 2), strict=True)])
    found = compare(RESNET, gpus=files, prices=prices)
    assert {case.gpu.name: case.price_per_h for case in found.cases} == {str(files[0]): 1.0, str(files[1]): 2.0}
    assert not [notice for notice in found.warnings if notice.code == "unused_price"]
    (alone,) = compare(RESNET, gpus=files[:1], prices=parse_prices([f"{files[0]}=1/h"])).cases
    assert alone.price_per_h == 1.0
    with pytest.raises(ComparisonError, match="has another price already"):
        parse_prices([f"{files[0]}=1/h,{files[0]}=2/h"])


def test_the_price_of_a_file_is_no_other_gpus(tmp_path: Path) -> None:
    """One of two files of a name is priced, by another spelling of its path: the other has no price, nor has the GPU of
    that name that ships."""
    text = (Path(__file__).parents[1] / "specs" / "t4.toml").read_text(encoding="utf-8")
    files = [tmp_path / folder / "t4.toml" for folder in "ab"]
    for file, bandwidth in zip(files, (300, 280), strict=True):
        file.parent.mkdir()
        file.write_text(text.replace("memory_bandwidth_gb_s = 320", f"memory_bandwidth_gb_s = {bandwidth}"))
    spelt = f"{tmp_path}/b/../a/t4.toml"
    found = compare(RESNET, gpus=[*files, "t4"], prices=parse_prices([f"{spelt}=2/h"]))
    prices = {case.gpu.memory_bytes_per_s / 1e9: case.price_per_h for case in found.cases}
    assert prices == {300: 2.0, 280: None, 320: None}
    beside = parse_prices([f"{spelt}=2/h", "t4=1/h"])
    found = compare(RESNET, gpus=[*files, "t4"], prices=beside)
    assert [case.price_per_h for case in found.cases if case.gpu.name == str(files[0])] == [2.0]
    assert sorted(case.price_per_h or 0 for case in found.cases) == [1.0, 1.0, 2.0]
    alone = compare(RESNET, gpus=[files[1]], prices=parse_prices([f"{spelt}=2/h"]))
    assert [notice.code for notice in alone.warnings if notice.code == "unused_price"] == ["unused_price"]
    # an option's price of the name goes over a list's price of the file
    assert parse_prices(["t4=1/h"]).over(parse_prices([f"{spelt}=2/h"])).per_h == {"t4": 1.0}
    # two files of one GPU have one price
    files[1].write_text(files[0].read_text())
    with pytest.raises(ComparisonError, match="has another price already"):
        parse_prices([f"{files[0]}=1/h,{files[1]}=2/h"])


def test_one_gpu_needs_no_list() -> None:
    found = compare(RESNET, gpus="t4", precisions="fp16", runtimes="tensorrt")
    assert [(case.gpu.name, case.precision, case.runtime) for case in found.cases] == [("t4", "fp16", "tensorrt")]


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        pytest.param({"gpus": []}, ComparisonError, "nothing to compare", id="no GPU"),
        pytest.param({"sort": "cost"}, ComparisonError, "needs prices", id="cost without prices"),
        pytest.param({"sort": "speed"}, ComparisonError, "can't sort by 'speed'", id="sort"),
        pytest.param({"precisions": ("fp32", "fp9")}, NotSupportedError, "'fp9'", id="precision"),
        pytest.param({"runtimes": ("openvino",)}, NotSupportedError, "'openvino'", id="runtime"),
        pytest.param({"dims": {"batch": (1, -2)}}, NeusightError, "batch=-2", id="size"),
        pytest.param({"dims": {"bath": (1, 2)}}, BindingError, "bath", id="dim"),
        pytest.param({"dims": {"batch": range(1, 1030)}}, ComparisonError, "1,029 cases", id="too many"),
    ],
)
def test_refusals(arguments: dict[str, object], kind: type[NeusightError], says: str) -> None:
    with pytest.raises(kind, match=re.escape(says)):
        compare(RESNET, **{"gpus": ["t4"], **arguments})  # type: ignore[arg-type]  # a table of wrong arguments


def test_sizes_that_the_model_refuses_are_left_out() -> None:
    """A Reshape to (1, 12): one sample only."""
    baked = model(
        graph(
            [node("Reshape", "x target", "y", "flat")],
            [value("x", ["batch", 3, 4])],
            [value("y", None)],
            [tensor("target", np.array([1, 12], np.int64))],
        )
    )
    read = read_model_bytes(baked.SerializeToString())
    found = compare(read, gpus=["t4", "a100"], dims={"batch": (1, 8, 9)})
    assert [case.dims["batch"] for case in found.cases] == [1, 1]
    left_out = [notice.message for notice in found.warnings if notice.code == "refused"]
    assert [text.partition(": ")[0] for text in left_out] == ["left out with batch=8", "left out with batch=9"]
    assert "flat" in left_out[0]
    with pytest.raises(ModelError, match="the model refuses all of these sizes; with batch=8: "):
        compare(read, gpus=["t4"], dims={"batch": (8, 9)})
    with pytest.raises(ModelError, match=r"^Reshape"):
        compare(read, gpus=["t4"], dims={"batch": 8})


# --- reports ----------------------------------------------------------------------------------------------------------


def test_json_is_documented_key_by_key() -> None:
    found = compare(RESNET, gpus=["a100", "t4"], dims={"batch": (1, 8)}, prices=parse_prices(["a100=2/h"]))
    found = replace(found, cases=tuple(replace(case, product_formats=("int8",)) for case in found.cases))
    text = SCHEMA.read_text("utf-8").partition("`neusight-onnx compare MODEL --format json` prints")[2]
    documented = documented_keys(text.partition("\n`neusight-onnx")[0])
    maps = {path for path, kind in documented.items() if kind.startswith("map")}
    missing = {"warnings[].node"}  # optional
    assert keys_of(json.loads(comparison_to_json(found)), "", maps) | missing == set(documented)


def test_formats_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    # one precision: its column would leave no room for whole names
    command = ["compare", str(RESNET), "--gpu", "a100", "--gpu", "t4", "--precision", "fp32", "--dim", "batch=1,8"]
    command += ["--price", "t4=1/h"]
    texts = {}
    for form in ("rich", "json", "csv", "markdown"):
        assert main([*command, "--format", form]) == 0
        texts[form] = capsys.readouterr().out
    cases = json.loads(texts["json"])["cases"]
    rows = list(csv.DictReader(StringIO(texts["csv"])))
    assert list(rows[0]) == ["dims.batch" if key == "dims" else key for key in cases[0]]
    assert [int(row["dims.batch"]) for row in rows] == [case["dims"]["batch"] for case in cases]
    assert {row["partial"] for row in rows} == {"false"}
    assert [float(row["latency_ms"]) for row in rows] == [case["latency_ms"] for case in cases]
    lines = [line for line in texts["rich"].splitlines() if re.match(r"[* ]  (a100|t4)", line)]
    tables = [line for line in texts["markdown"].splitlines() if re.match(r"\| \**(a100|t4)", line)]
    assert [line[3:].split()[0] for line in lines] == [case["gpu"] for case in cases]
    assert [line.strip("| *").split("*")[0].split(" ")[0] for line in tables] == [case["gpu"] for case in cases]
    assert lines[0].startswith("*")
    assert tables[0].count("**") == 2 * 8


def test_what_a_csv_has_no_room_for_is_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compare", str(RESNET), "--gpu", "v100", "--gpu", "a100", "--precision", "bf16", "--format", "csv"]
    assert main(command) == 0
    assert "warning: left out: precision bf16 on v100" in capsys.readouterr().err
    assert main([*command, "-q"]) == 0
    assert not capsys.readouterr().err


def test_what_training_has_no_model_of_is_left_out() -> None:
    """As what a GPU can't run: one format or runtime among several doesn't end the comparison."""
    training = make_training()
    found = compare(
        RESNET, gpus=["h100"], precisions=["fp32", "fp8"], runtimes=["eager", "onnxruntime"], training=training
    )
    assert [(case.precision, case.runtime) for case in found.cases] == [("fp32", "eager")]
    said = [notice.message for notice in found.warnings if notice.message.startswith("left out: training")]
    assert {text.partition(";")[0] for text in said} == {
        "left out: training in fp8 has no model",
        "left out: training has no model in runtime 'onnxruntime'",
    }
    with pytest.raises(NotSupportedError, match="training in fp8 has no model"):
        compare(RESNET, gpus=["h100"], precisions=["fp8"], training=training)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    found = compare(
        RESNET,
        gpus=["rtx-pro-6000-server", "t4"],
        dims={"batch": (1, 8000)},
        runtimes=("eager", "compiled"),
        precisions=("fp32",),
        prices=parse_prices(["t4=1/h"]),
    )
    for canvas in (Canvas(width=width), Canvas(width=width, plain=True)):
        text = comparison_to_terminal(found, canvas)
        assert max(map(len, text.splitlines())) <= width
        assert text.isascii() or not canvas.plain
        # no figure is cut short
        assert canvas.ellipsis not in text
    assert comparison_to_markdown(found).count("\n| ") == 2 + len(found.cases)


def test_a_lower_bound_is_marked(tmp_path: Path) -> None:
    model = linear()
    model.graph.node[2].op_type, model.graph.node[2].domain = "Mystery", "own"
    model.opset_import.append(onnx.helper.make_opsetid("own", 1))
    onnx.save(model, tmp_path / "m.onnx")
    found = compare(tmp_path / "m.onnx", gpus=["t4", "a100"], dims={"batch": 2})
    text = comparison_to_terminal(found, Canvas(width=80))
    assert " >" in text
    assert "1 node not supported" in text
    # nothing wins by what counts as nothing
    assert not found.has_best
    assert "none is the best" in text


def test_a_lower_bound_never_wins() -> None:
    model = read_model_bytes(decoder().SerializeToString())
    found = compare(model, gpus=["h100"], batch=1, runtimes=("tensorrt", "onnxruntime"))
    whole, part = found.cases
    assert (whole.runtime, part.runtime) == ("onnxruntime", "tensorrt")
    assert part.totals.partial
    assert part.totals.latency_ms < whole.totals.latency_ms
    assert found.has_best
    assert "best: the lowest latency of those whose nodes all have a cost" in comparison_to_markdown(found)


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    onnx.save(linear(), tmp_path / "m.onnx")
    onnx.save(linear(external_tensor("w", [4, 3], "w.bin")), tmp_path / "external.onnx")
    (tmp_path / "p.toml").write_text("[per-hour]\nt4 = 1")
    (tmp_path / "bad.csv").write_text("gpu,price_per_h\nt4,-1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


GOOD = ["compare", "m.onnx", "--gpu", "t4"]
MISUSE = {
    "no GPU": (["compare", "m.onnx"], ["nothing to compare"]),
    "both": ([*GOOD, "--all-gpus"], ["exclude each other"]),
    "unknown GPU": (["compare", "m.onnx", "--gpu", "a1000"], ["unknown GPU"]),
    "range": ([*GOOD, "--dim", "batch=8..1"], ["--dim", "backwards"]),
    "unknown dim": ([*GOOD, "--dim", "bach=1,2"], ["with bach=1", "batch"]),
    "precision": ([*GOOD, "--precision", "fp4"], ["fp4 on t4", "no FP4 units"]),
    "no such precision": ([*GOOD, "--precision", "fp33"], ["'fp33'", "fp32"]),
    "empty name": ([*GOOD, "--runtime", "eager,"], ["--runtime has an empty name"]),
    "negative price": ([*GOOD, "--price", "t4=-1/h"], ["below zero"]),
    "negative price in a file": ([*GOOD, "--prices", "bad.csv"], ["bad.csv", "below zero"]),
    "no file of prices": ([*GOOD, "--prices", "absent.toml"], ["absent.toml does not exist"]),
    "cost": ([*GOOD, "--sort", "cost"], ["needs prices"]),
    "too many": ([*GOOD, "--dim", "batch=1..1024", "--runtime", "eager,compiled"], ["2,048 cases"]),
    "empty prices": ([*GOOD, "--prices", ""], ["--prices is empty", "'-' for standard input"]),
    "output is the prices": ([*GOOD, "--prices", "p.toml", "-o", "p.toml"], ["-o is the file of prices itself"]),
    "output is the weights": (["compare", "external.onnx", "--gpu", "t4", "-o", "w.bin"], ["model's weights"]),
}


@pytest.mark.parametrize(("arguments", "says"), MISUSE.values(), ids=MISUSE.keys())
def test_misuse_is_one_line(
    arguments: list[str], says: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    for text in says:
        assert text in err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.skipif(not os.path.exists("/dev/stdin"), reason="there is no standard input by name here")
@pytest.mark.parametrize("by", ["pipe", "file"])
@pytest.mark.parametrize("text", ["gpu,price_per_h\nt4,.5\n", "[per-hour]\nt4 = .5"], ids=["CSV", "neither"])
def test_prices_from_standard_input(by: str, text: str, folder: Path) -> None:
    """``curl ... | neusight-onnx compare ... --prices -``, or ``< FILE``: errors call it by its path."""
    command = [sys.executable, "-m", "neusight_onnx", *GOOD, "--prices", "-", "--sort", "cost", "--format", "csv"]
    (folder / "given").write_text(text)
    with (folder / "given").open() as file:
        given = {"input": text} if by == "pipe" else {"stdin": file}
        run = subprocess.run(command, capture_output=True, text=True, check=False, **given)
    if "price_per_h" in text:
        assert (run.returncode, run.stderr) == (0, "")
        (row,) = csv.DictReader(run.stdout.splitlines())
        assert float(row["price_per_h"]) == 0.5
    else:  # TOML wants a digit in front
        assert run.returncode == 2
        assert run.stderr.startswith("error: /dev/stdin is not TOML")


def test_all_gpus(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from neusight_onnx.gpu import gpu_names

    assert main(["compare", "m.onnx", "--all-gpus", "--format", "json", "-o", "all.json"]) == 0
    assert capsys.readouterr().out == ""
    cases = json.loads((folder / "all.json").read_text())["cases"]
    assert {case["gpu"] for case in cases} == set(gpu_names())


def test_examples_of_the_help_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--help"]) == 0
    commands = re.findall(r"^ *neusight-onnx (compare .*)$", capsys.readouterr().out, re.MULTILINE)
    assert len(commands) >= 4
    (folder / "m.onnx").rename(folder / "model.onnx")
    for command in commands:
        assert main(shlex.split(command)) == 0, command


def test_a_price_of_a_gpu_that_is_not_compared_is_said() -> None:
    given = parse_prices(["t4=1/h", "l4=2/h"]).over(Prices(per_h={"p4": 1.0}))
    found = compare(RESNET, gpus=["t4"], prices=given)
    said = [notice.message for notice in found.warnings if notice.code == "unused_price"]
    assert said == ["a price is given for l4, which isn't compared; add --gpu l4 for it"]


UNDECIDED = """<ir_version: 9, opset_import: ["" : 17]> g (float[batch, 64, 64] x, bool c) => (float[a, b, d] y) {
    y = If(c) <then_branch = t () => (float[a, b, d] p) { p = Relu(x) },
               else_branch = e () => (float[a, b, d] q) { h = MatMul(x, x)  q = MatMul(h, x) }>
}"""


def test_gpus_that_short_names_mean_are_said_in_one_sentence() -> None:
    found = compare(RESNET, gpus=["a100", "v100", "g5.xlarge", "p3"])
    for text in (comparison_to_terminal(found, Canvas(width=120)), comparison_to_markdown(found)):
        said = " ".join(text.split())
        assert said.count("is taken as") == 2
        assert "'a100' is taken as 'a100-sxm-80gb' (not 'a100-pcie-40gb', 'a100-pcie-80gb', 'a100-sxm-40gb'), " in said
        assert "'g5.xlarge' is taken as one 'a10g', 'p3' as one 'v100-sxm2-16gb' (which" in said
    assert sum("is taken as" in text for text in found.assumptions) == 4  # for programs, each by itself


def test_what_stands_in_for_a_condition_is_said_once() -> None:
    """Compared and swept as analysed: the branch that is counted is said, not once more for each of its figures."""
    model = read_model_bytes(onnx.parser.parse_model(UNDECIDED).SerializeToString())
    alone = [text for text in analyze(model, gpu="t4").assumptions if text.startswith(("batch", "If", "if"))]
    assert len(alone) == 3
    assert compare(model, gpus=["t4"]).assumptions == tuple(alone)
    of_one = " (of one case; in others the figures differ)"
    for found in (
        compare(model, gpus=["t4", "a30"], dims={"batch": [1, 4096]}).assumptions,
        sweep(model, gpu="t4", dims={"batch": [1, 64, 4096]}).assumptions,
    ):
        # the batch is given, the slower branch is the same at every size
        assert [text.removesuffix(of_one)[:20] for text in found] == [text[:20] for text in alone[1:]]
        assert all(text.endswith(of_one) for text in found)


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        pytest.param([["n = 3"], ["n = 3"]], ["n = 3"], id="alike"),
        pytest.param([["'if_1' 2.5 us"], ["'if_2' 2.5 us"]], ["'if_1' 2.5 us", "'if_2' 2.5 us"], id="other-names"),
        pytest.param(
            [["'a' 1.2e-05 us", "x"], ["'a' 7 us"]],
            ["'a' 1.2e-05 us (of one case; in others the figures differ)", "x"],
            id="other-figures",
        ),
    ],
)
def test_assumptions_of_many_cases(cases: list[list[str]], expected: list[str]) -> None:
    assert assumed_by_all(cases) == tuple(expected)


@pytest.mark.parametrize(
    ("who", "said"),
    [
        pytest.param([0, 1, 2, 3], "x", id="all"),
        pytest.param([1, 3], "x (holds for int8)", id="a precision"),
        pytest.param([0, 1], "x (holds for tensorrt)", id="a runtime"),
        pytest.param([2], "x (holds for fp16 in eager)", id="a precision in a runtime"),
    ],
)
def test_whose_an_assumption_is(who: list[int], said: str) -> None:
    settings = [("fp16", "tensorrt"), ("int8", "tensorrt"), ("fp16", "eager"), ("int8", "eager")]
    assert assumed_by_all([["x"] if place in who else [] for place in range(4)], settings) == (said,)


@pytest.mark.parametrize(
    ("who", "said"),
    [
        pytest.param({"batch=1"}, "x (holds for batch=1)", id="a size"),
        pytest.param({"t4"}, "x (holds for t4)", id="a GPU"),
        pytest.param({"t4", "batch=1"}, "x (holds for t4 at batch=1)", id="a GPU at a size"),
        pytest.param({"l4", "batch=1", "seq=8"}, "x (holds for l4 at batch=1 seq=8)", id="a GPU at two sizes"),
    ],
)
def test_at_which_gpu_and_size_an_assumption_holds(who: set[str], said: str) -> None:
    settings = [
        ("auto", "eager", gpu, f"batch={batch}", f"seq={seq}")
        for gpu in ("t4", "l4", "h100")
        for batch in (1, 8)
        for seq in (8, 16)
    ]
    assert assumed_by_all([["x"] if who <= set(setting) else [] for setting in settings], settings) == (said,)


def test_an_assumption_of_many_cases_names_none() -> None:
    settings = [("auto", "eager", f"gpu-{place}") for place in range(9)]
    own: list[list[str]] = [["x"] if place % 2 else [] for place in range(9)]
    assert assumed_by_all(own, settings) == ("x (holds for gpu-1, gpu-3, gpu-5, gpu-7)",)
    own[0] = ["x"]
    assert assumed_by_all(own, settings) == ("x (of some cases)",)


def test_what_a_builder_leaves_in_float16_at_one_size_is_not_said_of_all() -> None:
    """At 4,096 rows the product is int8's; at one row what converts operands costs more than int8 saves."""
    weight = tensor("w", np.ones((512, 512), np.float32))
    wide = model(graph([node("MatMul", "x w", "y", "fc")], [value("x", ("batch", 512))], [value("y", None)], [weight]))
    read = read_model_bytes(wide.SerializeToString())
    alone = {
        batch: set(analyze(read, gpu="t4", precision="int8", runtime="tensorrt", batch=batch).assumptions)
        for batch in (1, 4096)
    }
    kept = next(text for text in alone[1] - alone[4096] if "stay" in text)
    said = f"{kept} (holds for batch=1)"
    assert said in sweep(read, gpu="t4", precision="int8", runtime="tensorrt", dims={"batch": [1, 4096]}).assumptions
    assert (
        said
        in compare(read, gpus=["t4"], runtimes=["tensorrt"], precisions=["int8"], dims={"batch": [1, 4096]}).assumptions
    )


def test_a_gpu_file_is_priced_by_the_name_that_the_table_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my.toml").write_text((ROOT / "specs" / "l4.toml").read_text())
    monkeypatch.chdir(tmp_path)
    for name in ("my", "my.toml"):
        arguments = ["compare", str(RESNET), "--gpu", "my.toml,t4", "--price", f"{name}=3.6/h", "--format", "json"]
        assert main(arguments) == 0
        cases = json.loads(capsys.readouterr().out)["cases"]
        costs = {case["gpu"]: case["cost_per_million"] for case in cases}
        assert costs["my"] > 0
        assert costs["t4"] is None


def test_models_with_a_cache_are_compared_by_tokens_a_second() -> None:
    found = compare(ROOT / "examples" / "bert_base.onnx", gpus=["t4", "l4"], dims={"batch": [2], "sequence": [16]})
    assert "tokens/s" not in comparison_to_terminal(found, Canvas(width=120))
    assert [case["tokens_per_s"] for case in json.loads(comparison_to_json(found))["cases"]] == [None, None]
    cases = tuple(
        replace(case, totals=replace(case.totals, memory=replace(case.totals.memory, new_token_count=3)))
        for case in found.cases
    )
    decoder = replace(found, cases=cases)
    tokens = [significant(3 * case.totals.throughput_per_s) for case in cases]
    for text in (comparison_to_terminal(decoder, Canvas(width=120)), comparison_to_markdown(decoder)):
        assert "tokens/s" in text
        assert "per s: samples" not in text
        assert all(figure in text for figure in tokens)
    # one run whose tokens can't be told: all are compared by samples
    mixed = comparison_to_terminal(replace(found, cases=(cases[0], found.cases[1])), Canvas(width=120))
    assert "tokens/s" not in mixed
    assert significant(cases[0].totals.throughput_per_s) in mixed


def test_a_precision_is_not_cut_short() -> None:
    """Columns stand nearer before a name loses its end: bf16-model and bf16-mod... would not tell formats apart."""
    found = compare(
        ROOT / "examples" / "bert_base.onnx",
        gpus=["a100", "l4"],
        runtimes=["onnxruntime", "tensorrt"],
        dims={"batch": [1, 8], "sequence": [128, 384]},
        precisions=["bf16-model", "tf32"],
    )
    text = comparison_to_terminal(found, Canvas(width=60, colour=False, plain=False))
    assert "bf16-model" in text
    assert "onnxruntime" in text
    assert "…" not in text.partition("\n\n")[2].partition("\n\n")[0]
    assert max(map(len, text.splitlines())) <= 60


def test_what_a_narrow_terminal_shows() -> None:
    """Names break after a sign, the interval stays before what can be worked out, and nothing absent is explained."""
    gpus, runtimes = ["a100", "v100-pcie-32gb"], ["eager", "compiled"]
    found = compare(RESNET, gpus=gpus, dims={"batch": [1, 8]}, runtimes=runtimes, precisions=["fp32"])
    text = comparison_to_terminal(found, Canvas(width=64, colour=False, plain=False))
    assert "a100-sxm-   " in text
    assert "\n   80gb" in text
    assert re.search(r"\d-\d[\d.]* ms", text)
    assert "left out to fit 64 columns: bound, per s" in text
    assert "per s: samples" not in text
    assert "bound: what" not in text
    by_throughput = compare(RESNET, gpus=["a100", "v100-pcie-32gb"], dims={"batch": [1, 8]}, sort="throughput")
    text = comparison_to_terminal(by_throughput, Canvas(width=60, colour=False, plain=False))
    assert "per s" in text


def test_cost_and_order_are_told_in_tokens_where_throughput_is() -> None:
    """A longer prompt costs more for each run and less for each token."""
    dims = {"past_sequence_length": 0, "sequence_length": (16, 256), "batch_size": 1}
    read = read_model_bytes(decoder().SerializeToString())
    prices = parse_prices(["h100=3.6/h"])
    found = compare(read, gpus=["h100"], dims=dims, prices=prices, sort="cost")
    first, second = found.cases
    assert [first.dims["sequence_length"], second.dims["sequence_length"]] == [256, 16]
    assert first.totals.latency_ms > second.totals.latency_ms
    # 0.001 a second: a million tokens, 256 of them in L ms, cost 1000 * L / 256 / 1000
    assert found.cost(first) == first.token_cost() == pytest.approx(first.totals.latency_ms / 256)
    text = comparison_to_terminal(found, Canvas(width=120))
    assert "cost: of a million tokens" in text
    assert significant(first.totals.latency_ms / 256) in text
    case = json.loads(comparison_to_json(found))["cases"][0]
    assert case["cost_per_million"] == pytest.approx(256 * case["cost_per_million_tokens"], rel=1e-4)
    by_throughput = compare(read, gpus=["h100"], dims=dims, sort="throughput").cases
    assert [case.dims["sequence_length"] for case in by_throughput] == [256, 16]


@pytest.mark.parametrize(
    ("runtime", "precision", "batches", "warned"),
    [
        pytest.param("onnxruntime", "auto", [16, 17], True, id="both sides"),
        pytest.param("onnxruntime", "int4w", [16, 17], True, id="as asked"),
        pytest.param("onnxruntime", "auto", [8, 16], False, id="few rows"),
        pytest.param("onnxruntime", "auto", [17, 32], False, id="many rows"),
        pytest.param("onnxruntime", "int8", [16, 17], False, id="int8, which is widened at all sizes"),
        pytest.param("compiled", "auto", [16, 17], False, id="a runtime that widens none"),
    ],
)
def test_sizes_on_both_sides_of_widening_are_warned_of(
    runtime: str, precision: str, batches: list[int], warned: bool
) -> None:
    model = read_model_bytes(decoder().SerializeToString())
    compared = compare(model, gpus="l4", batch=batches, runtimes=runtime, precisions=precision)
    swept = sweep(model, gpu="l4", batch=batches, runtime=runtime, precision=precision)
    for warnings in (compared.warnings, swept.warnings):
        messages = [notice.message for notice in warnings if notice.code == "widened"]
        assert [f"{runtime} multiplies weights of few bits as stored up to 16 rows" in text for text in messages] == (
            [True] if warned else []
        )


@pytest.mark.parametrize(("batch", "said"), [(16, []), (17, ["15 products of over 16 rows with weights of few bits"])])
def test_weights_that_a_file_stores_in_few_bits_are_said_to_be_widened(batch: int, said: list[str]) -> None:
    """Seven products in each of two layers, and the head."""
    model = read_model_bytes(decoder().SerializeToString())
    for assumptions in (
        analyze(model, gpu="l4", batch=batch).assumptions,
        compare(model, gpus="l4", batch=batch).assumptions,
    ):
        assert [text.partition(",")[0] for text in assumptions if "widens all its weights" in text] == said


@pytest.mark.parametrize("sizes", [(), None, 1.5], ids=["none", "None", "a fraction"])
def test_sizes_that_are_none(sizes: object) -> None:
    with pytest.raises(BindingError, match=r"N has no sizes|N is .*; give a size or a list"):
        compare(RESNET, gpus=["t4"], dims={"N": sizes})  # type: ignore[dict-item]  # wrong on purpose
