"""The HTML report: what a file may do to it, its size, and the page at work in headless Chromium."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import neusight_onnx
from chromium import Page, browser
from neusight_onnx import load_gpu
from neusight_onnx.comparison.points import sweep
from neusight_onnx.graph.model import Notice
from neusight_onnx.report.html import sweep_to_html, to_html
from neusight_onnx.report.html.data import MOST_ROWS, MOST_STEPS, NAME_BUDGET
from neusight_onnx.report.html.page import BOUNDS
from neusight_onnx.report.model import FusionSummary, HostSummary, MemoryPoint, Report
from neusight_onnx.report.sweep import Sweep
from report_cases import HOSTILE, KERNELS, REPORT, empty_report, hostile_report

FOLDER = Path(neusight_onnx.__file__).parent / "report" / "html"

WORST = f"</script><img src=x onerror=alert(1)>'\"`${{1}}&lt;<!--{HOSTILE}"
"""A name that would end the script element, an attribute, a template literal, or begin a comment."""


class Outline(HTMLParser):
    """The elements of a page, their attributes, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[int, str] = {}
        self._open = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open = True

    def handle_endtag(self, tag: str) -> None:
        self._open = False

    def handle_data(self, data: str) -> None:
        place = len(self.elements) - 1
        if self._open:
            self.texts[place] = self.texts.get(place, "") + data

    def of(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(each[1], self.texts.get(i, "")) for i, each in enumerate(self.elements) if each[0] == tag]


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return dict(json.loads(found[1]))


def worst_report() -> Report:
    """Names of the worst kind everywhere, one of them a megabyte long."""
    report = hostile_report()
    rows = (
        replace(report.kernels[0], nodes=(WORST, "n" * 1_000_000), op_types=(WORST,), dims={WORST: WORST}),
        *report.kernels[1:],
    )
    timeline = (MemoryPoint(node=WORST, live_bytes=1, peak_bytes=2),)
    memory = replace(report.totals.memory, timeline=timeline, peak_node=WORST, assumptions=(WORST,))
    return replace(
        report,
        kernels=rows,
        model=replace(report.model, path=f"{WORST}{'m' * 1_000_000}.onnx", opsets={WORST: 1}),
        settings=replace(report.settings, dims={WORST: 8}),
        totals=replace(report.totals, memory=memory),
        assumptions=(WORST,),
    )


def many(count: int) -> Report:
    """``count`` kernels, each of other sizes, at places with names as exporters write them; as many nodes in memory."""
    rows = tuple(
        replace(
            KERNELS[place % len(KERNELS)],
            id=f"{place}.0",
            count=1,
            nodes=(f"/model/layers.{place // 70}/self_attn/MatMul_{place}", f"/model/layers.{place // 70}/Add_{place}"),
            dims={"m": place + 1, "n": 4096},
            latency_us=2.0 + place % 977,
        )
        for place in range(count)
    )
    timeline = tuple(MemoryPoint(node=f"/n{i}", live_bytes=i, peak_bytes=2 * i) for i in range(count))
    memory = replace(REPORT.totals.memory, timeline=timeline)
    total_ms = sum(row.latency_us for row in rows) / 1e3
    return replace(REPORT, kernels=rows, totals=replace(REPORT.totals, latency_ms=total_ms, memory=memory))


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("report", [REPORT, worst_report(), empty_report()], ids=["plain", "hostile", "empty"])
def test_nothing_is_fetched_and_nothing_runs_but_the_page_s_own_script(report: Report) -> None:
    text = to_html(report)
    page = Outline(text)
    policy = next(
        attributes["content"] for attributes, _ in page.of("meta") if attributes.get("http-equiv") is not None
    )
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in policy
    scripts = page.of("script")
    assert [attributes for attributes, _ in scripts] == [
        {"type": "application/json", "id": "data"},
        {"type": "module"},
    ]
    ((_, style),) = page.of("style")
    for rule, content in (("script-src", scripts[1][1]), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert {tag for tag, _ in page.elements} & {"img", "iframe", "object", "embed", "form", "base", "a"} == set()
    for tag, attributes in page.elements:
        assert not {"src", "style", "srcset"} & set(attributes), tag
        assert not [name for name in attributes if name.startswith("on")], tag
        assert attributes.get("href", "data:,") == "data:,"


def test_names_are_text_wherever_they_stand() -> None:
    text = to_html(worst_report())
    assert len(Outline(text).elements) == len(Outline(to_html(plain_twin())).elements)
    assert "<img src=x" not in text
    for unseen in ("\x1b", "\x00", "\r", "\u202e"):
        assert unseen not in text
    assert len(text) < 250_000, "a megabyte of a name is cut"
    data = data_of(text)
    assert any(name.startswith("</script><img src=x onerror=alert(1)>") for name in data["names"])


def plain_twin() -> Report:
    """The report of :func:`worst_report` with harmless names in its place: the same elements."""
    report = worst_report()
    rows = (replace(report.kernels[0], nodes=("a", "b"), op_types=("Op",), dims={"m": 1}), *report.kernels[1:])
    memory = replace(
        report.totals.memory,
        timeline=(MemoryPoint(node="a", live_bytes=1, peak_bytes=2),),
        peak_node="a",
        assumptions=("a",),
    )
    return replace(
        report,
        kernels=rows,
        model=replace(report.model, path="m.onnx", opsets={"a": 1}),
        settings=replace(report.settings, dims={"a": 8}),
        totals=replace(report.totals, memory=memory),
        assumptions=("a",),
    )


def test_the_summary_stands_in_the_page_without_scripts() -> None:
    text = to_html(REPORT)
    for said in (
        "tiny_block.onnx <span>on</span> NVIDIA A100-SXM4-80GB",
        "at least 4.80 ms",
        "80 % interval 4.30 ms to 5.50 ms",
        '<span class="badge good">fits</span>',
        "1 not supported",
        "no rule for this operator",
        "seq = 512, a default (--dim seq=N changes it)",
        "4.72 ms in kernels, 79.8 µs waiting for the host",
        "fusion: 7 nodes in 2 kernels: 5 kernels and 3.00 MB of traffic less than one each",
    ):
        assert said in text, said
    assert "host-bound" not in text


def test_a_host_that_takes_longer_and_a_cuda_graph_are_said() -> None:
    settings = replace(REPORT.settings, runtime="onnxruntime", cuda_graph=True)
    host = HostSummary(host_ms=9.0, is_bound=True, free_from_batch=32)
    text = to_html(replace(REPORT, settings=settings, host=host))
    assert "onnxruntime in a CUDA graph" in text
    assert "host-bound: the host takes 9.00 ms, no longer from a batch of about 32 on" in text


def test_fusion_is_not_said_where_it_saved_nothing() -> None:
    assert "fusion:" not in to_html(replace(REPORT, fusion=FusionSummary()))


def test_every_bound_has_a_colour() -> None:
    style = (FOLDER / "page.css").read_text("utf-8")
    assert [bound for bound in BOUNDS if f".b-{bound}" not in style] == []


def test_equal_kernels_are_one_point_and_all_rows_are_there() -> None:
    data = data_of(to_html(REPORT))
    # two layers with the same linear layer, a softmax, a gather
    assert [group["runs"] for group in data["groups"]] == [2, 2, 1]
    assert [row[0] for row in data["rows"]] == [0, 0, 1, 2]
    assert data["names"][data["groups"][0]["place"]] == "/h.*/mlp/fc/MatMul+Add"
    gemm = data["groups"][0]
    assert gemm["us"] == 2200.0
    assert gemm["flops"] == 2 * 4096 * 4096 * 1024 + 4096 * 4096
    softmax = data["groups"][1]
    assert softmax["us"] == 145.0, "of one run of two"
    assert [roof["name"] for roof in data["roofs"]] == ["FP32"]


@pytest.mark.parametrize(
    ("precision", "dtype", "roofs"),
    [
        ("tf32", "float32", ["FP32", "TF32"]),
        ("fp16", "float16", ["FP32", "FP16, tensor cores"]),
        ("fp32", "float32", ["FP32"]),
    ],
)
def test_the_roofs_are_those_of_the_types_in_use(precision: str, dtype: str, roofs: list[str]) -> None:
    report = replace(
        REPORT,
        settings=replace(REPORT.settings, precision=precision),
        kernels=tuple(replace(row, dtype=dtype) for row in KERNELS),
    )
    assert [roof["name"] for roof in data_of(to_html(report))["roofs"]] == roofs


@pytest.mark.parametrize(
    ("gpu", "dtype", "name"),
    [
        ("p4", "int8", "INT8, vector lanes"),
        ("v100", "int8", "INT8, vector lanes"),  # its tensor cores take FP16 alone
        ("v100", "float16", "FP16, tensor cores"),
        ("t4", "int8", "INT8, tensor cores"),
        ("mi50", "float16", "FP16, vector lanes"),
        ("mi300x", "int8", "INT8, matrix cores"),
    ],
)
def test_a_roof_is_called_by_the_units_that_multiply(gpu: str, dtype: str, name: str) -> None:
    report = replace(REPORT, gpu=load_gpu(gpu), kernels=tuple(replace(row, dtype=dtype) for row in KERNELS))
    assert name in [roof["name"] for roof in data_of(to_html(report))["roofs"]]


def test_size_is_bounded_and_what_is_left_out_is_counted() -> None:
    report = many(MOST_ROWS + 500)
    text = to_html(report)
    data = data_of(text)
    assert len(data["rows"]) == MOST_ROWS
    assert data["left_out"] == 500
    kept = [data["groups"][row[0]]["us"] * row[2] for row in data["rows"]]
    assert sum(kept) + data["left_out_us"] == pytest.approx(sum(row.latency_us for row in report.kernels), rel=1e-4)
    assert len(data["memory"]["steps"]) <= MOST_STEPS
    peak = max(point.peak_bytes for point in report.totals.memory.timeline or ())
    assert max(step[3] for step in data["memory"]["steps"]) == peak
    assert len(text) < 15_000_000


def test_names_together_are_bounded() -> None:
    rows = tuple(
        replace(KERNELS[0], id=f"{i}.0", nodes=tuple(f"{i:06}{j:03}{'x' * 2_000}" for j in range(12)))
        for i in range(8_000)
    )
    names = data_of(to_html(replace(REPORT, kernels=rows)))["names"]
    assert sum(map(len, names)) < NAME_BUDGET + 8_000 * 13 * 50


# --- in a browser -----------------------------------------------------------------------------------------------------

needs_browser = pytest.mark.skipif(browser() is None, reason="no Chromium is installed (Debian: apt install chromium)")


@pytest.fixture(scope="module", params=["light", "dark"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if browser() is None:
        pytest.skip("no Chromium is installed (Debian: apt install chromium)")
    folder = tmp_path_factory.mktemp("page")
    (folder / "report.html").write_text(to_html(many(10_000)), "utf-8")
    with Page(folder / "report.html", folder / "profile", scheme=request.param) as opened:
        opened.scheme = request.param
        yield opened


def rows_of(page: Page, column: int) -> list[str]:
    cells = f"#grid tbody tr:not(.space) td:nth-child({column})"
    return list(page.value(f"[...document.querySelectorAll('{cells}')].map(cell => cell.textContent)"))


def filtered(page: Page, words: str) -> str:
    page.value(
        f"(() => {{ const field = document.getElementById('filter'); field.value = {json.dumps(words)};"
        "field.dispatchEvent(new Event('input')); })()"
    )
    page.frame()
    return str(page.value("document.getElementById('count').textContent"))


def test_ten_thousand_kernels_open_quickly_without_a_word_in_the_console(page: Page) -> None:
    assert page.complaints == []
    assert len(page.requests) == 1, "the file itself"
    # an idle core takes half a second; a machine that does other things may take some
    assert page.value("performance.getEntriesByType('navigation')[0].loadEventEnd") < 10_000
    assert page.value("document.querySelectorAll('*').length") < 4_000, "only what is in view"


def test_the_colours_are_those_of_the_system(page: Page) -> None:
    background = page.value("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(245, 246, 248)", "dark": "rgb(14, 18, 23)"}[page.scheme]
    page.value("document.querySelector('[data-theme-choice=light]').click()")
    assert page.value("getComputedStyle(document.body).backgroundColor") == "rgb(245, 246, 248)"
    page.value("document.querySelector('[data-theme-choice=dark]').click()")
    assert page.value("getComputedStyle(document.body).backgroundColor") == "rgb(14, 18, 23)"
    page.value("document.querySelector('[data-theme-choice=auto]').click()")
    assert page.value("getComputedStyle(document.body).backgroundColor") == background


def test_a_click_on_a_head_sorts(page: Page) -> None:
    if page.value("document.getElementById('grouped').checked"):
        page.value("document.getElementById('grouped').click()")
    assert filtered(page, "").startswith("10,000 of 10,000 kernels")
    head = "document.querySelector('#grid th:nth-child(7) button').click()"
    times = rows_of(page, 7)
    assert times[0] == "978 µs"  # 2 + 976
    page.value(head)
    page.frame()
    assert rows_of(page, 7)[0] == "2.00 µs"
    assert page.value("document.querySelector('#grid th:nth-child(7)').ariaSort") == "ascending"
    page.value(head)
    page.frame()
    assert rows_of(page, 7) == times


def test_the_filter_takes_every_word(page: Page) -> None:
    if page.value("document.getElementById('grouped').checked"):
        page.value("document.getElementById('grouped').click()")
    # layer 7: kernels 490 to 559, each with its own MatMul
    assert filtered(page, "layers.7/ matmul").startswith("70 of 10,000 kernels")
    assert filtered(page, "LAYERS.7/ matmul_500").startswith("1 of 10,000 kernels")
    assert filtered(page, "no such thing").startswith("0 of 10,000 kernels")
    assert "No kernel matches." in page.value("document.querySelector('#grid tbody').textContent")
    assert filtered(page, "").startswith("10,000 of 10,000 kernels")


def test_kernels_of_several_nodes_can_be_picked_out(tmp_path: Path) -> None:
    if browser() is None:
        pytest.skip("no Chromium is installed (Debian: apt install chromium)")
    (tmp_path / "report.html").write_text(to_html(REPORT), "utf-8")
    with Page(tmp_path / "report.html", tmp_path / "profile") as page:
        page.frame()
        # two linear layers of a product and a sum each, as one line; a softmax and a gather of one node
        assert sorted(rows_of(page, 2)) == ["", "", "2"]
        page.value("document.getElementById('fused').click()")
        page.frame()
        assert rows_of(page, 2) == ["2"]
        page.value("document.querySelector('#grid tbody tr:not(.space)').click()")
        told = page.value("document.getElementById('detail').textContent")
        assert "At 2 places, 2 nodes in one kernel" in told
        assert "/h.0/mlp/fc/MatMul + /h.0/mlp/fc/Add" in told
        assert page.complaints == []


def test_scrolling_shows_the_rest(page: Page) -> None:
    filtered(page, "")
    page.value("document.getElementById('grid').scrollTop = 28 * 5000")
    page.frame()
    page.frame()
    assert len(rows_of(page, 1)) < 100
    assert page.value("document.getElementById('grid').scrollHeight") > 28 * 10_000
    assert page.value("document.querySelector('#grid tbody tr.space td').getBoundingClientRect().height") > 28 * 4_900


def test_a_class_filters_table_and_plot(page: Page) -> None:
    filtered(page, "")
    page.value("document.querySelector('.bars.classes button').click()")
    page.frame()
    assert "5,000 of 10,000" in page.value("document.getElementById('count').textContent")
    assert page.value("document.querySelectorAll('#roofline .point.dim').length") > 0
    page.value("document.querySelector('.bars.classes button').click()")
    page.frame()
    assert page.value("document.querySelectorAll('#roofline .point.dim').length") == 0


def test_a_row_tells_more(page: Page) -> None:
    filtered(page, "matmul_1234")
    page.value("document.querySelector('#grid tbody tr:not(.space)').click()")
    told = page.value("document.getElementById('detail').textContent")
    for said in ("/model/layers.17/self_attn/MatMul_1234", "/model/layers.17/Add_1234", "Predicted by", "interval"):
        assert said in told
    filtered(page, "")


def test_hovering_a_point_names_its_node(page: Page) -> None:
    page.value("document.getElementById('roofline').scrollIntoView()")
    page.frame()
    box = page.value(
        "(() => { const box = document.querySelector('#roofline .point').getBoundingClientRect();"
        "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
    )
    page.send("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    page.frame()
    assert page.value("document.getElementById('tip').hidden") is False
    told = page.value("document.getElementById('tip').textContent")
    assert "/model/layers." in told
    assert "FLOP/s" in told
    page.send("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=2)


@needs_browser
@pytest.mark.parametrize("report", [worst_report(), empty_report(), REPORT], ids=["hostile", "empty", "plain"])
def test_hard_reports_open_without_errors(report: Report, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(to_html(report), "utf-8")
    with Page(tmp_path / "report.html", tmp_path / "profile") as page:
        page.frame()
        assert page.complaints == []
        assert page.value("document.querySelectorAll('img').length") == 0
        page.value("document.querySelector('#grid tbody tr:not(.space)')?.click()")
        assert page.complaints == []


def swept(**changes: Any) -> Sweep:
    """bert_base over two dims: sizes that fit, and a limit of latency that the largest miss."""
    found = sweep(
        Path(__file__).parents[1] / "examples" / "bert_base.onnx",
        gpu="t4",
        dims={"batch": (1, 8, 64), "sequence": (64, 512)},
        max_latency_ms=200.0,
    )
    return replace(found, **changes)


def test_a_sweep_s_page_holds_every_point() -> None:
    found = swept(model_path=f"{WORST}.onnx", assumptions=(WORST,), warnings=(Notice(code="odd", message=WORST),))
    text = sweep_to_html(found)
    page = Outline(text)
    assert len(page.of("table")) == 3, "what was found, and the points of two lengths"
    assert sum(cell in ("1", "8", "64") for _, cell in page.of("td")) >= len(found.points) == 6
    data = data_of(text)
    assert data["axis"] == "batch"
    assert {point["series"] for point in data["points"]} == {"sequence=64", "sequence=512"}
    assert [point["ms"] for point in data["points"]] == pytest.approx(
        [point.totals.latency_ms for point in found.points if point.totals], rel=1e-5
    )
    assert not page.of("img")


@needs_browser
def test_a_sweep_is_drawn(tmp_path: Path) -> None:
    found = swept()
    (tmp_path / "sweep.html").write_text(sweep_to_html(found), "utf-8")
    unfit = sum(point.totals is not None and not point.totals.memory.fits for point in found.points)
    with Page(tmp_path / "sweep.html", tmp_path / "profile") as page:
        page.frame()
        assert page.value("document.querySelectorAll('#sweep-chart circle').length") == len(found.points)
        assert page.value("document.querySelectorAll('#sweep-chart .limit').length") == 1
        assert page.value("document.querySelectorAll('#sweep-chart circle.open').length") == unfit
        page.value("document.querySelectorAll('#sweep .tabs button')[1].click()")
        page.frame()
        assert page.value("document.querySelectorAll('#sweep-chart .band').length") == 0
        assert page.complaints == []
