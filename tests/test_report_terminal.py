"""The reports for readers: whole golden files, width, colour, ASCII, names that misbehave, small pieces."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from neusight_onnx.graph.model import Notice
from neusight_onnx.lowering.walk import UNKNOWN_BECAUSE
from neusight_onnx.report.execution import standing_text
from neusight_onnx.report.gpus import gpu_to_terminal, gpus_to_terminal
from neusight_onnx.report.grouping import (
    by_bound,
    by_kernel_class,
    common_name,
    folded,
    merged_text,
    place_of,
    slowest,
    unsupported_groups,
)
from neusight_onnx.report.layout import Canvas, Part, bar, columns, render, stacked_bar
from neusight_onnx.report.machine import to_csv, to_json
from neusight_onnx.report.markdown import to_markdown
from neusight_onnx.report.model import KernelRow, Report, UnsupportedNode
from neusight_onnx.report.quantities import (
    capacity,
    counted,
    duration,
    parameters,
    percent,
    printable,
    scaled,
    shorten,
    significant,
    tile_text,
)
from neusight_onnx.report.terminal import to_terminal
from report_cases import GPU, KERNELS, REPORT, SOFTMAX, empty_report, gemm_row, hostile_report

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(
    ("name", "render"),
    [
        pytest.param("report.txt", lambda: to_terminal(REPORT, width=80, colour=False), id="terminal"),
        pytest.param("report_ascii.txt", lambda: to_terminal(REPORT, width=80, colour=False, plain=True), id="ascii"),
        pytest.param("report.json", lambda: to_json(REPORT), id="json"),
        pytest.param("report.csv", lambda: to_csv(REPORT), id="csv"),
        pytest.param("report.md", lambda: to_markdown(REPORT), id="markdown"),
    ],
)
def test_golden(name: str, render: Callable[[], str]) -> None:
    """Whole reports; NEUSIGHT_UPDATE_GOLDEN=1 rewrites the files after a change that was meant."""
    text = render()
    if os.environ.get("NEUSIGHT_UPDATE_GOLDEN"):
        (GOLDEN / name).write_text(text, encoding="utf-8")
    assert text == (GOLDEN / name).read_text(encoding="utf-8")


def test_assumptions_of_every_run_are_counted_and_shown_in_full_when_asked() -> None:
    always = ("the host takes a while", "inputs are there")
    report = replace(REPORT, assumptions=(always[0], "seq = 512, a default", always[1]), standing=frozenset(always))
    short = to_terminal(report, width=120, colour=False)
    assert "seq = 512, a default" in short
    assert not any(text in short for text in always)
    assert "3 more hold for every such run" in short  # with how the interval was made
    assert "interval: from the errors" not in short
    for whole in ("\n".join(standing_text(report)), to_markdown(report), to_json(report)):
        assert all(text in whole for text in always)
        assert "more hold" not in whole


@pytest.mark.parametrize(("count", "said"), [(1, "1 new token each"), (512, "512 new tokens each")])
def test_models_with_a_cache_have_tokens_a_second(count: int, said: str) -> None:
    totals = replace(REPORT.totals, memory=replace(REPORT.totals.memory, new_token_count=count))
    report = replace(REPORT, totals=totals)
    assert json.loads(to_json(report))["totals"]["tokens_per_s"] == pytest.approx(
        totals.throughput_per_s * count, rel=1e-4
    )
    for text in (to_terminal(report, width=120, colour=False), to_markdown(report)):
        assert f"{said}: {significant(totals.throughput_per_s * count)} tokens/s" in text
    assert "tokens/s" not in to_terminal(REPORT, width=120, colour=False)
    assert json.loads(to_json(REPORT))["totals"]["tokens_per_s"] is None


def test_more_bytes_than_the_memory_moves_come_from_caches() -> None:
    least_ms = (REPORT.totals.read_bytes + REPORT.totals.write_bytes) / REPORT.gpu.memory_bytes_per_s * 1e3
    for factor, said in ((2, False), (0.5, True)):
        report = replace(REPORT, totals=replace(REPORT.totals, latency_ms=factor * least_ms))
        assert ("of peak, caches serve the rest)" in to_terminal(report, width=120, colour=False)) is said


def test_sizes_that_stand_in_are_one_sentence() -> None:
    def sentence(name: str, size: int, option: str) -> str:
        return f"{name} = {size} (default, the model leaves it free; --dim {option} changes it)"

    alone = sentence("batch", 1, "batch=N")
    assert folded(["x", alone]) == ["x", alone]
    two = folded(["x", alone, "y", sentence("seq", 128, "seq=N"), "total = 9 (default: seq + 1, ...)"])
    assert two == [
        "x",
        "batch = 1, seq = 128 (defaults, the model leaves them free; --dim batch=N,seq=N changes them)",
        "y",
        "total = 9 (default: seq + 1, ...)",
    ]
    (many,) = folded(sentence(f"s{n}", n, f"s{n}=N") for n in range(1, 31))
    assert many.startswith("s1 = 1, s2 = 2,")
    assert "s12 = 12 and 18 more (defaults, the model leaves them free; --dim NAME=N,... changes them)" in many
    quoted = [alone, sentence("the seq", 128, "'the seq=N'")]
    assert folded(quoted) == quoted  # a shell would take it apart in a list


@pytest.mark.parametrize("report", [REPORT, hostile_report(), empty_report()], ids=["fixed", "hostile", "empty"])
@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal_and_nothing_steers_it(report: Report, width: int) -> None:
    text = to_terminal(report, width=width, colour=False)
    assert max(len(line) for line in text.splitlines()) <= width
    assert all(char.isprintable() or char == "\n" for char in text)
    assert not re.search(r"[ \t]+$", text, re.MULTILINE)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_figures_are_never_cut(width: int) -> None:
    """Cut short, "153,125,000 waves" would be others; names give way."""
    slow = replace(REPORT.kernels[0], latency_us=2.02e12, wave_count=153_125_000, count=1_234_567_890)
    totals = replace(REPORT.totals, latency_ms=2.02e9, kernel_ms=2.02e9)
    report = replace(REPORT, kernels=(slow, *REPORT.kernels[1:]), totals=totals)
    text = to_terminal(report, width=width, colour=False)
    lines = text.splitlines()
    (by_class,) = (line for line in lines if line.startswith("  gemm "))
    assert re.match(r"  gemm +1,234,567,\d{3}  2,020,000 s +100 % ", by_class)
    (kernel,) = (line for line in lines if line.startswith("  1 "))
    assert re.search(r" 2,020,000 s .* 153,125,000 ", kernel)
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [24, 40, 80])
def test_columns_cut_names_and_no_figures(width: int) -> None:
    rows = [("a_very_long_name_of_a_thing", "another_long_name", "137,969", "3.24 MB")]
    heads = (("name", "left"), ("kind", "left"), ("rows", "right"), ("size", "right"))
    text = render([columns(heads, rows, Canvas(width=width))], Canvas(width=width))
    assert "137,969  3.24 MB" in text if width > 24 else "…" in text
    assert ("a_very_long_name_of_a_thing" in text) is (width == 80)


def test_colour_only_adds_escape_sequences() -> None:
    coloured = to_terminal(REPORT, width=80, colour=True)
    assert "\x1b[" in coloured
    without = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    # colour tells the segments of stacked bars apart, so their shades differ; nothing else may
    same_shade = str.maketrans("▒░▞▪▬", "█████")
    lines = [line.rstrip() for line in without.translate(same_shade).splitlines()]
    assert to_terminal(REPORT, width=80, colour=False).translate(same_shade).splitlines() == lines


def test_plain_report_is_ascii() -> None:
    assert to_terminal(REPORT, width=80, colour=False, plain=True).isascii()
    assert gpu_to_terminal(GPU, Canvas(width=80, plain=True)).isascii()


@pytest.mark.parametrize(("top", "shown"), [(0, 0), (2, 2), (10, 3)])
def test_top_limits_the_kernels(top: int, shown: int) -> None:
    text = to_terminal(REPORT, width=80, colour=False, top=top)
    names = ("/h.*/mlp/fc/MatMul+Add", "/h.0/attn/Softmax", "/embed/Gather")
    listed = text.partition("Slowest kernels")[2].partition("Not supported")[0]
    assert sum(name in listed for name in names) == shown


def test_a_partial_total_is_a_lower_bound_and_says_so() -> None:
    assert "at least 4.80 ms" in to_terminal(REPORT, width=80, colour=False)
    whole = replace(REPORT, totals=replace(REPORT.totals, partial=False))
    assert "at least" not in to_terminal(whole, width=80, colour=False)


def test_what_does_not_fit_says_so() -> None:
    memory = replace(REPORT.totals.memory, verdict="does not fit", peak_bytes=100 * 2**30)
    report = replace(REPORT, totals=replace(REPORT.totals, memory=memory))
    assert "100 GiB of 80.0 GiB: does not fit" in to_terminal(report, width=80, colour=False)


def test_markdown_keeps_its_tables_whole() -> None:
    lines = to_markdown(hostile_report()).splitlines()
    table = [line for line in lines if line.startswith("|")]
    start = next(i for i, line in enumerate(table) if line.startswith("| node | class"))
    columns = {len(re.findall(r"(?<!\\)\|", line)) for line in table[start : start + 6]}
    assert columns == {11}


def test_classes_and_bounds_share_the_total() -> None:
    classes = by_kernel_class(REPORT)
    assert [(part.label, part.kernel_count) for part in classes] == [("gemm", 2), ("softmax", 2), ("gather_scatter", 1)]
    assert classes[0].share == pytest.approx(4400 / 4800)
    assert sum(part.share for part in by_bound(REPORT)) == pytest.approx(1.0)


def test_equal_kernels_are_one_line() -> None:
    first = slowest(REPORT)[0]
    assert (first.place, first.run_count, first.latency_us) == ("/h.*/mlp/fc/MatMul+Add", 2, 4400.0)
    assert len(slowest(REPORT)) == 3


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(["/a"], "/a", id="one"),
        pytest.param(["/h.0/fc", "/h.11/fc"], "/h.*/fc", id="number varies"),
        pytest.param(["/l4/h.0/fc", "/l4/h.1/fc"], "/l4/h.*/fc", id="equal numbers stay"),
        pytest.param(["/a", "/b", "/c"], "/a and 2 more", id="different"),
        pytest.param(["/h.0/q", "/h.0/k", "/h.1/q", "/h.1/k"], "/h.*/q and 1 more", id="two kinds"),
        pytest.param(["/h.0/ln/(4 nodes)", "/h.1/ln/(5 nodes)"], "/h.*/ln/(nodes)", id="number of nodes varies"),
        pytest.param(["/fc", "/fc_1"], "/fc and 1 more", id="suffix"),
    ],
)
def test_common_name(names: list[str], expected: str) -> None:
    assert common_name(names) == expected


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param(SOFTMAX, "/h.0/attn/Softmax", id="one node"),
        pytest.param(gemm_row(3, 1.0), "/h.3/mlp/fc/MatMul+Add", id="two nodes"),
        pytest.param(
            replace(SOFTMAX, nodes=("/ln/Pow", "/ln/Sub", "/ln/Add", "/ln/Div")), "/ln/(4 nodes)", id="many nodes"
        ),
        pytest.param(replace(SOFTMAX, nodes=("a", "b", "c", "d")), "a (+3)", id="nothing in common"),
        pytest.param(replace(SOFTMAX, nodes=()), "2.0", id="no node"),
    ],
)
def test_place_of(row: KernelRow, expected: str) -> None:
    assert place_of(row) == expected


MANY = ("/ln/Pow", "/ln/Sub", "/ln/Add", "/ln/Div")


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param(gemm_row(3, 1.0), "", id="its nodes are named"),
        pytest.param(replace(SOFTMAX, nodes=MANY, op_types=("Pow", "Sub", "Add")), "Pow+Sub+Add", id="only counted"),
        pytest.param(
            replace(SOFTMAX, nodes=MANY * 3, op_types=tuple("ABCDEFGHI")), "A+B+C+D+E+F+G+H+...", id="of many kinds"
        ),
    ],
)
def test_a_kernel_whose_nodes_are_only_counted_names_their_operators(row: KernelRow, expected: str) -> None:
    assert merged_text(row) == expected
    report = replace(REPORT, kernels=(row,))
    for text in (to_terminal(report, width=120, colour=False), to_markdown(report)):
        assert (f"{row.kernel_class} of {expected}" in text) is bool(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(duration(0.0), "0 µs", id="zero"),
        pytest.param(duration(0.5), "0.500 µs", id="below one"),
        pytest.param(duration(999.4), "999 µs", id="last µs"),
        pytest.param(duration(999.6), "1.00 ms", id="rounds into ms"),
        pytest.param(duration(12_345), "12.3 ms", id="ms"),
        pytest.param(duration(999_600), "1.00 s", id="rounds into s"),
        pytest.param(duration(3.6e9), "3,600 s", id="an hour"),
        pytest.param(scaled(4, "FLOP"), "4 FLOP", id="small counts are exact"),
        pytest.param(scaled(4.5, "FLOP/s"), "4.50 FLOP/s", id="small rates are not"),
        pytest.param(scaled(999, "B"), "999 B", id="no prefix"),
        pytest.param(scaled(999.6, "B"), "1.00 kB", id="rounds into k"),
        pytest.param(scaled(6.56e10, "FLOP"), "65.6 GFLOP", id="giga"),
        pytest.param(scaled(25_557_032, ""), "25.6 M", id="no unit"),
        pytest.param(parameters(3_030_000_000), "3.03 B", id="billions"),
        pytest.param(capacity(999), "999 B", id="bytes"),
        pytest.param(capacity(85_899_345_920), "80.0 GiB", id="GiB"),
        pytest.param(percent(0.0), "0 %", id="none"),
        pytest.param(percent(1e-6), "<0.1 %", id="hardly"),
        pytest.param(percent(0.5), "50.0 %", id="half"),
        pytest.param(percent(0.9999), "100 %", id="nearly all"),
        pytest.param(significant(9_876_543.0), "9,880,000", id="groups thousands"),
        pytest.param(significant(1234.5), "1,230", id="rounds integers"),
        pytest.param(significant(0.01234), "0.0123", id="leading zeros"),
        pytest.param(significant(9.999), "10.0", id="carries"),
        pytest.param(counted(1, "node"), "1 node", id="singular"),
        pytest.param(counted(1200, "node"), "1,200 nodes", id="plural"),
        pytest.param(tile_text({"n": 128, "m": 64, "threads": 128, "split_k": 8}), "64x128 split_k=8", id="split tile"),
        pytest.param(tile_text({"n": 128, "m": 64, "threads": 128, "split_k": 1}), "64x128", id="tile"),
        pytest.param(tile_text({"rows": 4, "cols": 768}), "4x768", id="rows"),
        pytest.param(shorten("abcdefghij", 10), "abcdefghij", id="fits"),
        pytest.param(shorten("abcdefghijk", 7), "ab…hijk", id="middle goes"),
        pytest.param(printable("a\nb\x1b[1m\u202e"), "a\\nb\\x1b[1m\\u202e", id="escapes"),
        pytest.param(printable("模型/é"), "模型/é", id="letters stay"),
    ],
)
def test_quantities(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.0, ""), (1e-9, "▏"), (0.5, "████"), (0.55, "████▍"), (1.0, "████████"), (1.5, "████████")],
)
def test_bar(share: float, expected: str) -> None:
    assert bar(share, 8, Canvas(width=80)) == expected


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        pytest.param({"m": 4, "n": 5, "k": 6, "transpose_b": 1}, " m=4 n=5 k=6 transpose_b ", id="gemm"),
        pytest.param(
            {"n": 1, "filter": (3, 3), "strides": (1, 1), "dilations": (2, 1)},
            " n=1 filter=3x3 dilations=2x1 ",
            id="conv: strides of 1 go without saying",
        ),
        pytest.param(
            {"operations": "add", "inputs_0": (8, 2), "inputs_1": (2,), "output": (8, 2)},
            " add · 8x2, 2 -> 8x2 ",
            id="elementwise",
        ),
        pytest.param(
            {"operation": "copy", "shape": (8, 2), "read": 64, "written": 64},
            " copy · shape=8x2 ",
            id="movement: bytes are for the JSON",
        ),
    ],
)
def test_kernel_details(dims: dict[str, int | str | tuple[int, ...]], expected: str) -> None:
    text = to_terminal(replace(REPORT, kernels=(replace(SOFTMAX, dims=dims),)), width=120, colour=False)
    assert expected in text


def test_stacked_bar_shows_every_part_and_fills_its_width() -> None:
    parts = [Part(label=str(i), share=share, style="") for i, share in enumerate((0.97, 0.02, 0.01))]
    text = stacked_bar(parts, 10, Canvas(width=80)).plain
    assert text == "██████ ▒ ░"
    nothing = [replace(part, share=0.0) for part in parts]
    assert stacked_bar(nothing, 10, Canvas(width=80)).plain == ""


def bounds(*shares: float) -> str:
    """The line of what bounds the time, of kernels with these shares of it (bounds in the order of the report)."""
    names = ("compute", "memory", "l2")
    rows = tuple(
        replace(SOFTMAX, id=name, bound=name, latency_us=1e3 * share)
        for name, share in zip(names, shares, strict=False)
    )
    totals = replace(REPORT.totals, latency_ms=1.0, kernel_ms=1.0, overhead_ms=0.0)
    text = to_terminal(replace(REPORT, kernels=rows, totals=totals), width=80, colour=False)
    return " ".join(re.findall(r"Bound by +(.*)", text))


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        pytest.param((1.0,), "compute 100 %", id="one alone"),
        pytest.param((0.02, 0.98), "memory 98.0 %, compute 2.0 %", id="nearly one alone"),
        pytest.param(
            (0.6, 0.4),
            "████████████████ ▒▒▒▒▒▒▒▒▒▒▒ █ compute 60.0 % ▒ memory 40.0 %",
            id="a bar where it shows something",
        ),
    ],
)
def test_a_bar_of_one_segment_is_said_in_words(shares: tuple[float, ...], expected: str) -> None:
    assert re.sub(" +", " ", bounds(*shares)) == expected


@pytest.mark.parametrize("render", [lambda report: to_terminal(report, width=80, colour=False), to_markdown])
def test_where_nothing_could_be_costed_there_are_no_figures(render: Callable[[Report], str]) -> None:
    nothing = empty_report()
    unsupported = (UnsupportedNode(node="/act/Relu", op_type="Relu", reason="shape unknown because of x"),)
    report = replace(nothing, totals=replace(nothing.totals, partial=True), unsupported=unsupported)
    text = render(report)
    assert re.search(r"unknown(\*\*)?: nothing could be costed", text)
    assert "Relu '/act/Relu': shape unknown because of x" in text
    assert not re.search("interval|samples/s|at least|kernel class", text)
    declared = Notice(code="input-shape-unknown", message="the model declares no shape for its input 'x'")
    assert "declares no shape" in render(replace(report, warnings=(declared,)))


def test_gpu_table_and_gpu_in_full() -> None:
    table = gpus_to_terminal([GPU], Canvas(width=80))
    assert re.search(r"a100-sxm-80gb +Ampere +108 +80.0 GiB +2039 +19.5 +312 +400", table)
    full = gpu_to_terminal(GPU, Canvas(width=80))
    assert "a datasheet" in full
    assert "TF32   156 TFLOP/s" in full


def test_gpu_table_is_sorted_as_people_count() -> None:
    amd = replace(GPU, name="mi100", vendor="AMD", architecture="CDNA", compute_capability=None)
    gpus = [amd, *(replace(GPU, name=name, compute_capability=version) for name, version in NVIDIA)]
    lines = gpus_to_terminal(gpus, Canvas(width=80)).splitlines()[1:6]
    assert [line.split()[0] for line in lines] == ["h20", "h100", "a2", "a10", "mi100"]


NVIDIA = (("a10", 8.6), ("a2", 8.6), ("h100", 9.0), ("h20", 9.0))


def test_every_kernel_is_in_the_json_whatever_top_says() -> None:
    assert to_json(REPORT).count('"id"') == len(KERNELS)


CHAIN = (
    UnsupportedNode(node="a", op_type="MyOp", reason="no lowering for acme::MyOp"),
    UnsupportedNode(node="b", op_type="Gemm", reason="shape unknown because of a"),
    UnsupportedNode(node="c", op_type="Relu", reason="shape unknown because of a"),
    UnsupportedNode(node="d", op_type="MyOp", reason="no lowering for acme::MyOp"),
    UnsupportedNode(node="e", op_type="Relu", reason="shape unknown because of d"),
    UnsupportedNode(node="r", op_type="Range", reason="shape unknown because of r"),
    UnsupportedNode(node="s", op_type="Add", reason="shape unknown because of r"),
    UnsupportedNode(node="t", op_type="Mul", reason="shape unknown because of an input"),
)


def test_a_cascade_is_folded_into_its_cause() -> None:
    groups = unsupported_groups(CHAIN)
    assert [(group.op_type, group.node, group.extent) for group in groups] == [
        ("MyOp", "a", "2 nodes and 3 behind them"),
        ("Range", "r", "1 node and 1 behind it"),
        ("Mul", "t", "1 node"),
    ]
    assert sum(group.node_count + group.behind_count for group in groups) == len(CHAIN)


def test_the_cascade_speaks_as_lowering_does() -> None:
    assert CHAIN[1].reason == f"{UNKNOWN_BECAUSE}a"


def test_gpus_whose_names_are_shared_are_one_sentence() -> None:
    """``compare --all-gpus`` by short names: a line each hides what else is assumed, folded they hide what is taken."""
    machine = "GPU: 'g5' is taken as one 'a10g' (which GPUs a cloud's machine has is from general knowledge)"
    v100 = "GPU: 'v100' is taken as 'v100-sxm2'; --gpu 'v100-pcie' or 'v100s' for the others"
    assert folded([v100, "x", machine]) == [v100, "x", machine]
    assert folded(
        [
            v100,
            machine,
            "x",
            "GPU: 'k1' is taken as 'k1-a'; --gpu 'k1-b' for the other",
            machine.replace("g5", "p4d").replace("a10g", "a100"),
        ]
    ) == [
        "GPUs: 'v100' is taken as 'v100-sxm2' (not 'v100-pcie', 'v100s'), 'k1' as 'k1-a' (not 'k1-b'); --gpu takes any "
        "of them",
        "GPUs: 'g5' is taken as one 'a10g', 'p4d' as one 'a100' (which GPUs a cloud's machine has is from general "
        "knowledge)",
        "x",
    ]


@pytest.mark.parametrize(
    ("sentences", "expected"),
    [
        (["a 'x': 1", "a 'y': 1", "a 'z': 1"], ["a 'x': 1", "a 'y': 1", "a 'z': 1"]),
        (
            ["b", *(f"NonZero 'n{i}': at most 4" for i in range(5)), "c"],
            ["b", "NonZero 'n0': at most 4", "NonZero 'n1': at most 4 (and 3 more like this)", "c"],
        ),
        (
            [f"NonZero 'n{i}': at most {4 * i} of {i}" for i in range(5)],
            ["NonZero 'n0': at most 0 of 0", "NonZero 'n1': at most 4 of 1 (and 3 more like this)"],
        ),
        ([f"NonZero 'n': at most {i}" for i in range(4)], [f"NonZero 'n': at most {i}" for i in range(4)]),
    ],
    ids=["few", "many of a kind", "with figures of their own", "other figures are not alike"],
)
def test_sentences_that_differ_in_names_are_folded(sentences: list[str], expected: list[str]) -> None:
    assert folded(sentences) == expected
