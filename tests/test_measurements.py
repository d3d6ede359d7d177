"""Own measurements: what is timed in which order, the file, and how it is read back. torch where it is, never a GPU."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from measurements import __main__ as program
from measurements.calls import Call, call_for
from measurements.cases import (
    Case,
    cases_of,
    default_kernels,
    kernels_of_models,
    padding_of,
    read_shapes,
    recast,
    timeable,
    window_of,
    write_shapes,
)
from measurements.plan import kind, ordered, stratum
from measurements.session import LOST, LOST_REASON, DeviceLostError, SkipCaseError, Timing, begun_file, run
from measurements.supervision import GRACE_S, STALL_S, supervise
from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import DataError, NeusightError
from neusight_onnx.kernel_formats import kernel_dtype
from neusight_onnx.kernels import (
    KERNEL_CLASSES,
    Attention,
    Conv,
    Elementwise,
    GatherScatter,
    Gemm,
    Kernel,
    Movement,
    Normalization,
    Pooling,
    Reduction,
    Softmax,
    Sort,
    TensorSpec,
)
from neusight_onnx.learning.kernel_text import kernel_from_text, kernel_to_text
from neusight_onnx.learning.measured import (
    COLUMNS,
    append,
    is_measured,
    measured_rows,
)

ROOT = Path(__file__).parent.parent
FP32, FP16, BF16 = DataType.FLOAT32, DataType.FLOAT16, DataType.BFLOAT16


def spec(*shape: int, dtype: DataType = FP32) -> TensorSpec:
    return TensorSpec(dtype=dtype, shape=shape)


def conv(**values: Any) -> Conv:
    usual: dict[str, Any] = {"n": 2, "c": 8, "k": 16, "spatial": (14, 14), "out": (14, 14), "filter": (3, 3)}
    usual |= {"strides": (1, 1), "dilations": (1, 1), "dtype": FP32}
    return Conv(**{**usual, **values})


def linear(m: int, n: int = 64, k: int = 32) -> Gemm:
    return Gemm(m=m, n=n, k=k, b_is_weight=True, transpose_b=True, dtype=FP32)


# --- the file


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(conv(groups=2, direction="weight", dilations=(2, 1), epilogue=("bias",)), id="conv"),
        pytest.param(Gemm(m=1, n=2, k=3, dtype=BF16, b_dtype=DataType.INT4, b_is_weight=True), id="narrow weights"),
        pytest.param(Gemm(m=1, n=2, k=3, dtype=BF16, kept_in_l2=0.5, activity=0.25), id="shares"),
        pytest.param(
            Elementwise(operations=("add",), inputs=(spec(4, 8), spec(1, 8)), output=spec(4, 8)), id="broadcast"
        ),
        pytest.param(
            Attention(b=1, h=2, g=1, s=3, t=4, d=5, v=5, causal=True, window=2, mask=spec(3, 4), dtype=FP16),
            id="attention",
        ),
        pytest.param(
            Movement(operation="transpose", dtype=FP32, shape=(2, 3), permutation=(1, 0), read=24, written=24),
            id="transpose",
        ),
        pytest.param(
            Elementwise(
                operations=("gather", "relu"),
                inputs=(spec(4, 8),),
                output=spec(4, 8),
                generated=True,
                moves=(
                    Movement(operation="copy", dtype=FP32, shape=(8, 4), permutation=(1, 0), read=128, written=128),
                    GatherScatter(
                        operation="gather", moved=32, run=8, dtype=FP32, index_count=4, index_dtype=DataType.INT64
                    ),
                ),
            ),
            id="moves",
        ),
    ],
)
def test_a_kernel_comes_back_from_its_text(kernel: Kernel) -> None:
    assert kernel_from_text(kernel_to_text(kernel)) == kernel


def test_the_text_of_a_kernel_is_stable() -> None:
    """Files hold it for years, and a run goes on where a file ends by comparing it."""
    assert kernel_to_text(linear(5)) == (
        '{"class":"Gemm","m":5,"n":64,"k":32,"transpose_b":true,"b_is_weight":true,"dtype":"float32"}'
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "no JSON"),
        ("[1]", "no class that is known"),
        ('{"class":"Fft"}', "no class that is known"),
        ('{"class":"Gemm","m":1,"n":2,"k":3}', "lacks dtype"),
        ('{"class":"Gemm","m":1,"n":2,"k":3,"dtype":"float33"}', "dtype is 'float33' and no number format"),
        ('{"class":"Gemm","m":1.5,"n":2,"k":3,"dtype":"float32"}', "m is 1.5 and no size"),
        ('{"class":"Gemm","m":"1","n":2,"k":3,"dtype":"float32"}', "m is '1' and no size"),
        ('{"class":"Gemm","m":-1,"n":2,"k":3,"dtype":"float32"}', "m is -1 and no size"),
        ('{"class":"Gemm","m":null,"n":2,"k":3,"dtype":"float32"}', "m is None and no size"),
        ('{"class":"Gemm","m":true,"n":2,"k":3,"dtype":"float32"}', "m is True and no size"),
        ('{"class":"Gemm","m":[1],"n":2,"k":3,"dtype":"float32"}', r"m is \[1\] and no size"),
        pytest.param(
            f'{{"class":"Gemm","m":{10**30},"n":2,"k":3,"dtype":"float32"}}', "and no size", id="beyond 64 bits"
        ),
        pytest.param("[" * 100_000, "no JSON", id="nested too deep"),
        ('{"class":["Gemm"]}', "no class that is known"),
        ('{"class":"Gemm","m":1,"n":2,"k":3,"dtype":["float32"]}', r"dtype is \['float32'\] and no number format"),
        ('{"class":"Gemm","m":1,"n":2,"k":3,"dtype":"float32","epilogue":"relu"}', "epilogue is 'relu' and no list"),
        (
            '{"class":"Gemm","m":1,"n":2,"k":3,"dtype":"float32","repeated":1}',
            "repeated is 1 and neither true nor false",
        ),
        ('{"class":"Gemm","m":1,"n":2,"k":3,"dtype":"float32","activity":-0.5}', "activity is -0.5 and no share"),
        ('{"class":"Elementwise","operations":["add"],"inputs":[3],"output":{}}', "inputs is 3 and no tensor"),
        (
            '{"class":"Elementwise","operations":["add"],"inputs":[],"output":{"dtype":"float32","shape":[1]},'
            '"moves":[{"class":"Gemm","m":1,"n":2,"k":3,"dtype":"float32"}]}',
            "and no movement or lookup",
        ),
        (kernel_to_text(conv(out=())), "one size for each dimension"),
        (kernel_to_text(conv(spatial=(), out=(), filter=(), strides=(), dilations=())), "one size for each dimension"),
        (kernel_to_text(conv(groups=3)), "groups 3 does not divide"),
        (
            '{"class":"Movement","operation":"transpose","dtype":"float32","shape":[2,3],"permutation":[1,2],'
            '"read":24,"written":24}',
            r"permutation \[1, 2\] is none of the 2 axes of shape",
        ),
        ('{"class":"Conv","direction":"up"}', "direction is 'up' and none of forward, data, weight"),
        ('{"class":"Gemm","m":0,"n":2,"k":3,"dtype":"float32"}', "m is 0: a size is 1 or more"),
        ('{"class":"Gemm","batch":0,"m":1,"n":2,"k":3,"dtype":"float32"}', "batch is 0: a size is 1 or more"),
        (
            '{"class":"Movement","operation":"copy","dtype":"float32","shape":[4,0],"read":0,"written":16}',
            r"shape is \[4, 0\]: a size is 1 or more",
        ),
        ('{"class":"Gemm","m":1,"n":2,"k":3,"dtype":"float32","colour":"red"}', "a Gemm has no colour"),
    ],
)
def test_texts_that_are_no_kernel(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        kernel_from_text(text)


def row(timed: Kernel, **values: object) -> dict[str, object]:
    """Of a file; the precision is that of the kernel's tensors where none is given."""
    precision = "fp32" if kernel_dtype(timed) is FP32 else "fp16"
    usual: dict[str, object] = {"gpu": "h100-sxm", "precision": precision, "cache": "cold", "status": "measured"}
    return {**usual, "latency_us": 12.5, "kernel": kernel_to_text(timed), **values}


def test_rows_come_back(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    append(path, [row(linear(1), layout="nhwc", kernel_name="a + b")])
    append(path, [row(linear(2), status="skipped", reason="out of memory", latency_us=None), row(linear(3))])
    found = measured_rows(path)
    assert [kernel.m for kernel in (entry.kernel for entry in found) if isinstance(kernel, Gemm)] == [1, 3]
    assert (found[0].layout, found[0].kernel_name, found[0].latency_us, found[0].gpu) == (
        "nhwc",
        "a + b",
        12.5,
        "h100-sxm",
    )
    with path.open(newline="") as stream:
        assert tuple(next(csv.reader(stream))) == COLUMNS
    assert is_measured(path)
    other = tmp_path / "gpus.csv"
    other.write_text("name,kernel\n")
    assert not is_measured(other)


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"latency_us": "nan"}, "row 2: latency_us is nan"),
        ({"latency_us": -1}, "row 2: latency_us is -1"),
        ({"latency_us": 1e300}, r"row 2: latency_us is 1e\+300, which no kernel takes"),
        ({"latency_us": 1e-3}, "row 2: latency_us is 0.001, which no kernel takes"),
        ({"latency_us": "fast"}, "row 2: latency_us is 'fast', which is no number"),
        ({"precision": "fp12"}, "row 2: precision 'fp12' is none of"),
        ({"precision": "bf16"}, "row 2: precision is bf16, but its kernel is in float32"),
        ({"kernel_class": "conv"}, "row 2: kernel_class is 'conv', but its kernel is a gemm"),
        ({"status": "foo"}, "row 2: status 'foo' is none of measured, skipped"),
        ({"cache": "luke"}, "row 2: cache 'luke' is none of cold, warm"),
        ({"layout": "nchw16"}, "row 2: layout 'nchw16' is none of empty, nhwc"),
        ({"kernel": kernel_to_text(linear(10**15))}, "row 2: its kernel moves more than 4 TiB"),
        ({"kernel": "?"}, "row 2: the kernel is no JSON"),
        ({"kernel": kernel_to_text(linear(0))}, "row 2: m is 0: a size is 1 or more"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_rows_that_cannot_be(values: dict[str, object], fault: str, tmp_path: Path) -> None:
    append(tmp_path / "own.csv", [row(linear(1), **values)])
    with pytest.raises(DataError, match=fault):
        measured_rows(tmp_path / "own.csv")


def test_a_file_without_its_columns(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("kernel,latency_us\n")
    with pytest.raises(DataError, match="has no column gpu, precision, layout, cache, status"):
        measured_rows(tmp_path / "own.csv")


def test_the_readme_says_what_every_column_holds() -> None:
    table = (ROOT / "measurements" / "README.md").read_text().partition("## Columns")[2]
    cells = [line.partition("| ")[2].partition(" |")[0] for line in table.splitlines()]
    assert {name for cell in cells for name in cell.split("`")[1::2]} == set(COLUMNS)


# --- what may be timed


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        pytest.param(conv(), (1, 1), id="3x3 keeps its size"),
        pytest.param(conv(filter=(7, 7), strides=(2, 2), spatial=(224, 224), out=(112, 112)), (3, 3), id="stem"),
        pytest.param(conv(filter=(4, 4), strides=(4, 4), spatial=(224, 224), out=(56, 56)), (0, 0), id="patches"),
        pytest.param(conv(dilations=(2, 2)), (2, 2), id="dilated"),
        pytest.param(conv(filter=(2, 2)), None, id="SAME of an even window: not alike on both sides"),
    ],
)
def test_padding_follows_from_the_sizes(kernel: Conv, expected: tuple[int, int] | None) -> None:
    assert padding_of(kernel) == expected


@pytest.mark.parametrize(
    ("side", "out", "window", "expected"),
    [(112, 56, 9, (3, 2, 1)), (56, 28, 4, (2, 2, 0)), (14, 14, 9, (3, 1, 1)), (14, 7, 6, None), (14, 2, 4, None)],
    ids=["3x3 stride 2", "2x2", "3x3 stride 1", "not square", "windows with gaps between them"],
)
def test_pooling_windows(side: int, out: int, window: int, expected: tuple[int, int, int] | None) -> None:
    pool = Pooling(operation="max", input=spec(1, 8, side, side), output=spec(1, 8, out, out), window=window)
    assert window_of(pool) == expected


@pytest.mark.parametrize(
    ("kernel", "bare"),
    [
        pytest.param(conv(epilogue=("bias", "relu")), conv(), id="cuDNN adds no bias in eager mode"),
        pytest.param(
            replace(linear(4), epilogue=("bias", "gelu")), replace(linear(4), epilogue=("bias",)), id="cuBLAS does"
        ),
        pytest.param(replace(linear(4), b_dtype=DataType.INT8), None, id="narrow weights"),
        pytest.param(conv(channels_last=True), conv(), id="the case says in which order elements lie"),
        pytest.param(conv(transposed=True), None, id="transposed"),
        pytest.param(
            Elementwise(operations=("add", "relu"), inputs=(spec(4), spec(4)), output=spec(4)), None, id="fused"
        ),
        pytest.param(
            Elementwise(operations=("where",), inputs=(spec(4), spec(4)), output=spec(4)), None, id="no call of ours"
        ),
        pytest.param(
            Sort(operation="topk", rows=1, cols=8, kept=2, dtype=FP32, output_bytes=8), None, id="no class of ours"
        ),
        pytest.param(Softmax(rows=0, cols=8, dtype=FP32), None, id="nothing to do"),
    ],
)
def test_what_eager_mode_runs_as_one_call(kernel: Kernel, bare: Kernel | None) -> None:
    assert timeable(kernel) == bare


def test_precisions_and_layouts() -> None:
    found = cases_of([conv(), linear(4), Softmax(rows=4, cols=8, dtype=FP32)], directions=True)
    counts: dict[str, int] = {}
    for case in found:
        counts[KERNEL_CLASSES[type(case.kernel)]] = counts.get(KERNEL_CLASSES[type(case.kernel)], 0) + 1
    # 3 precisions x 2 layouts x 3 directions; 3 precisions; fp32 and fp16
    assert counts == {"conv": 18, "gemm": 3, "softmax": 2}
    stored = {(case.precision, case.kernel.dtype) for case in found if isinstance(case.kernel, Gemm)}
    assert stored == {("fp16", FP16), ("bf16", BF16), ("tf32", FP32)}
    assert len({case.key for case in found}) == len(found)


def test_recast_takes_every_float_along() -> None:
    move = Movement(operation="transpose", dtype=FP32, shape=(4, 8), permutation=(1, 0), read=128, written=128)
    halved = recast(move, FP16)
    assert (halved.read_bytes, halved.write_bytes) == (64, 64)
    added = recast(Elementwise(operations=("add",), inputs=(spec(4), spec(4)), output=spec(4)), BF16)
    assert (added.read_bytes, added.write_bytes) == (16, 8)


def test_the_built_in_list_holds_what_public_data_lack() -> None:
    cases = cases_of(default_kernels())
    names = {stratum(case)[:4] for case in cases}
    for name in ("1x1", "3x3", "3x3 strided", "stem", "depthwise 9", "depthwise 49", "grouped 9"):
        for precision in ("fp16", "bf16", "tf32"):
            for layout in ("", "nhwc"):
                assert ("conv", name, precision, layout) in names
    found = {name[0] for name in names}
    assert found == {
        *("conv", "gemm", "attention", "softmax", "normalization", "elementwise", "reduction", "pooling", "movement"),
        "gather_scatter",
    }
    for kernel in default_kernels():
        assert timeable(kernel) == kernel


def test_kernels_of_models(tmp_path: Path) -> None:
    """A symbolic batch gets each size, one that is fixed the size it has; files that are no model are named."""
    nodes = [onnx.helper.make_node("Relu", ["x"], ["y"]), onnx.helper.make_node("Softmax", ["y"], ["z"])]
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT16, ["batch", 8]) for name in ("x", "z")]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "test", values[:1], values[1:]))
    onnx.save(model, str(tmp_path / "model.onnx"))
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    kernels, faults = kernels_of_models([tmp_path / "model.onnx", tmp_path / "broken.onnx"], [1, 16])
    assert set(kernels) == {
        *(Elementwise(operations=("relu",), inputs=(spec(n, 8),), output=spec(n, 8)) for n in (1, 16)),
        *(Softmax(rows=n, cols=8, dtype=FP32, library="pytorch") for n in (1, 16)),
    }
    assert len(faults) == 1
    assert "broken.onnx" in faults[0]
    write_shapes(tmp_path / "shapes.txt", kernels)
    assert read_shapes(tmp_path / "shapes.txt") == kernels
    (tmp_path / "shapes.txt").write_text("{}\n")
    with pytest.raises(DataError, match=r"shapes.txt, line 1: the kernel is of no class"):
        read_shapes(tmp_path / "shapes.txt")


# --- the order


def gemms(*sizes: int) -> list[Case]:
    return [Case(kernel=recast(linear(m), FP16), precision="fp16") for m in sizes]


def widths(cases: list[Case]) -> list[int]:
    return [case.kernel.m for case in cases if isinstance(case.kernel, Gemm)]


def test_the_middle_first_then_the_farthest() -> None:
    """log2 of m is 0 to 8: 16 is the middle; 1 and 256 are equally far (the smaller text, "m":1, comes first)."""
    assert widths(ordered(gemms(1, 2, 4, 8, 16, 32, 64, 128, 256))) == [16, 1, 256, 4, 64, 128, 2, 32, 8]


def test_what_is_there_counts_as_chosen() -> None:
    cases = gemms(1, 16, 256, 512)
    done = {case.key for case in cases if isinstance(case.kernel, Gemm) and case.kernel.m in (256, 16)}
    assert widths(ordered(cases, done)) == [1, 512]


def test_strata_take_turns_by_weight() -> None:
    """fp16 products have weight 1, tf32 2, softmax 1/2: their i-th turn comes at (i + 1/2) / weight."""
    products = gemms(1, 2, 4, 8)
    cases = products + [replace(case, precision="tf32") for case in products]
    cases += [Case(kernel=Softmax(rows=rows, cols=8, dtype=FP16), precision="fp16") for rows in (1, 2)]
    names = [f"{stratum(case)[0]} {case.precision}" for case in ordered(cases)]
    tf32, fp16, softmax = "gemm tf32", "gemm fp16", "softmax fp16"
    # .25 | .5 | .75 | 1 (softmax) | 1.25 | 1.5 | 1.75 | 2.5 | 3 (softmax) | 3.5
    assert names == [tf32, fp16, tf32, softmax, tf32, fp16, tf32, fp16, softmax, fp16]


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (conv(groups=8, k=8), "depthwise 9"),
        (conv(groups=4), "grouped 9"),
        (conv(c=3), "stem"),
        (conv(filter=(1, 1), strides=(2, 2), out=(7, 7)), "1x1 strided"),
        (conv(filter=(5, 5)), "large"),
        (Elementwise(operations=("mul",), inputs=(spec(4),), output=spec(4)), "mul scalar"),
        (Elementwise(operations=("add",), inputs=(spec(4, 2), spec(1, 2)), output=spec(4, 2)), "add broadcast"),
        (Attention(b=1, h=1, g=1, s=1, t=9, d=8, v=8, dtype=FP16), "decode"),
    ],
    ids=["depthwise", "grouped", "stem", "strided", "large", "scalar", "broadcast", "decode"],
)
def test_kinds(kernel: Kernel, name: str) -> None:
    assert kind(kernel) == name


def test_the_order_is_the_same_every_time() -> None:
    cases = cases_of(default_kernels())
    first = [case.key for case in ordered(cases)[:200]]
    assert [case.key for case in ordered(list(reversed(cases)))[:200]] == first
    assert len(set(first)) == 200


# --- a run


class FakeTimer:
    """Takes a second a case; what to answer is by the product's m."""

    gpu = "h100-sxm"

    def __init__(self, answers: Mapping[int, BaseException] | None = None) -> None:
        self.now = 0.0
        self.timed: list[int] = []
        self.answers = answers or {}

    def clock(self) -> float:
        return self.now

    def facts(self) -> Mapping[str, object]:
        return {"device_name": "NVIDIA H100 80GB HBM3", "sm_clock_mhz": 1980, "torch": "2.9.1"}

    def time(self, case: Case) -> Timing:
        self.now += 1.0
        assert isinstance(case.kernel, Gemm)
        self.timed.append(case.kernel.m)
        if case.kernel.m in self.answers:
            raise self.answers[case.kernel.m]
        return Timing(
            latency_us=float(case.kernel.m),
            low_us=0.9 * case.kernel.m,
            high_us=1.23456789,
            launches=100,
            repeats=7,
            buffer_sets=3,
            set_bytes=4096,
            cache="cold",
        )


def test_a_run_ends_with_its_time_and_goes_on_later(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    cases = gemms(1, 2, 4, 8, 16)
    first = FakeTimer()
    outcome = run(first, cases, path, seconds=2.5, clock=first.clock)
    assert (outcome.measured, outcome.skipped, outcome.left) == (3, 0, 2)
    assert outcome.line(path) == f"3 kernels measured, 0 skipped, 2 left for another run, in 3 s: {path}"
    second = FakeTimer({8: SkipCaseError("out of memory")})
    outcome = run(second, cases, path, seconds=60.0, clock=second.clock)
    assert (outcome.measured, outcome.skipped, outcome.left) == (1, 1, 0)
    assert sorted(first.timed + second.timed) == [1, 2, 4, 8, 16]
    third = FakeTimer()
    assert run(third, cases, path, seconds=60.0, clock=third.clock).measured == 0
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 5
    (skipped,) = [entry for entry in rows if entry["status"] == "skipped"]
    assert (skipped["reason"], skipped["latency_us"], skipped["device_name"]) == (
        "out of memory",
        "",
        "NVIDIA H100 80GB HBM3",
    )
    assert rows[0]["high_us"] == "1.2346"
    assert rows[0]["kernel_class"] == "gemm"
    assert rows[0]["sm_clock_mhz"] == "1980"


def test_another_gpu_measures_the_same_again(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    append(path, [row(case.kernel, gpu="l4", precision=case.precision) for case in gemms(1, 2)])
    timer = FakeTimer()
    assert run(timer, gemms(1, 2), path, seconds=60.0, clock=timer.clock).measured == 2


def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    timer = FakeTimer()
    run(timer, gemms(1, 2), path, seconds=60.0, clock=timer.clock)
    content = path.read_bytes()
    path.write_bytes(content[:-20])
    again = FakeTimer()
    assert run(again, gemms(1, 2), path, seconds=60.0, clock=again.clock).measured == 1
    assert len(measured_rows(path)) == 2


def test_a_lost_gpu_ends_the_run_and_is_not_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    timer = FakeTimer({2: DeviceLostError("the GPU takes no more work")})
    outcome = run(timer, gemms(1, 2, 4), path, seconds=60.0, clock=timer.clock)
    assert outcome.lost == "the GPU takes no more work"
    assert outcome.line(path).endswith("; ended early: the GPU takes no more work")
    again = FakeTimer()
    run(again, gemms(1, 2, 4), path, seconds=60.0, clock=again.clock)
    assert 2 not in again.timed
    assert sorted(timer.timed + again.timed) == [1, 2, 4]


class SkippingTimer(FakeTimer):
    def time(self, case: Case) -> Timing:
        raise SkipCaseError("enough")


def test_after_two_ended_processes_a_stratum_waits_for_all_others(tmp_path: Path) -> None:
    """A kind of kernel that takes the GPU down costs the start of a process a case."""
    path = tmp_path / "own.csv"
    softmaxes = cases_of([Softmax(rows=2**i, cols=64, dtype=FP32) for i in range(5)])
    fatal = [case for case in softmaxes if case.precision == "fp16"]
    for ended, waits in ((1, False), (2, True)):
        path.unlink(missing_ok=True)
        for case in fatal[:ended]:
            lost = {"status": "skipped", "reason": f"{LOST_REASON} after: an illegal memory access", "latency_us": None}
            append(path, [row(case.kernel, precision=case.precision, **lost)])
        run(SkippingTimer(), softmaxes, path, seconds=60.0)
        with path.open(newline="") as stream:
            timed = [entry["precision"] for entry in csv.DictReader(stream)][ended:]
        assert len(timed) == 10 - ended
        assert (timed[-3:] == ["fp16"] * 3) == waits, f"{ended} ended"


def test_the_case_in_which_a_process_ended_is_not_tried_again(tmp_path: Path) -> None:
    """A segmentation fault, or a kernel that never comes back: the note beside the file says what ran."""
    path = tmp_path / "new" / "own.csv"
    killed = FakeTimer({2: KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        run(killed, gemms(1, 2, 4), path, seconds=60.0, clock=killed.clock)
    assert begun_file(path).exists()
    again = FakeTimer()
    run(again, gemms(1, 2, 4), path, seconds=60.0, clock=again.clock)
    assert 2 not in again.timed
    assert sorted(killed.timed + again.timed) == [1, 2, 4]
    with path.open(newline="") as stream:
        reasons = [entry["reason"] for entry in csv.DictReader(stream) if entry["status"] == "skipped"]
    assert reasons == ["the process ended while it was timed"]
    assert not begun_file(path).exists()
    begun_file(path).write_text("{")  # the process ended while it wrote the note
    assert run(FakeTimer(), gemms(1), path, seconds=60.0).measured == 0


class FakeProcess:
    """Writes a row every ``every_s`` seconds and ends with ``code`` after ``rows`` of them; None: it hangs then."""

    def __init__(self, clock: FakeClock, path: Path, rows: int, code: int | None, every_s: float = 1.0) -> None:
        self.clock, self.path, self.rows, self.code, self.every_s = clock, path, rows, code, every_s
        self.begun, self.written, self.killed = clock.now, 0, False

    def poll(self) -> int | None:
        while self.written < min(int((self.clock.now - self.begun) / self.every_s), self.rows):
            self.written += 1
            with self.path.open("a") as stream:
                stream.write("row\n")
        ended = self.written == self.rows and self.clock.now >= self.begun + self.rows * self.every_s
        return self.code if ended else None

    def kill(self) -> None:
        self.killed = True

    def wait(self) -> int:
        assert self.killed
        return -9


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("processes", "code", "took_s", "rows"),
    [
        pytest.param([(30, 0)], 0, 30, 30, id="one that ends by itself"),
        pytest.param([(5, LOST), (20, -11), (9, 0)], 0, 34, 34, id="lost, then a signal, then the rest"),
        pytest.param([(5, None), (9, 0)], 0, 5 + STALL_S + 9, 14, id="one that hangs"),
        pytest.param([(0, 2)], 2, 0, 0, id="an error of the user's is no reason to go on"),
        pytest.param([(3, LOST), (0, LOST), (0, LOST)], 1, 3, 3, id="nothing goes any more"),
        pytest.param([(1000, 0)], 0, 240 + GRACE_S, 260, id="beyond its time"),
        pytest.param([(233, LOST)], 0, 233, 233, id="too late for another one"),
    ],
)
def test_a_run_goes_on_in_another_process(
    processes: list[tuple[int, int | None]], code: int, took_s: float, rows: int, tmp_path: Path
) -> None:
    path, clock, left = tmp_path / "own.csv", FakeClock(), iter(processes)
    given: list[float] = []

    def start(seconds: float) -> FakeProcess:
        given.append(seconds)
        count, ends = next(left)
        return FakeProcess(clock, path, count, ends)

    assert supervise(start, path, seconds=240.0, clock=clock, sleep=clock.sleep) == code
    assert clock.now - 100.0 == pytest.approx(took_s, abs=3.0)
    assert given[0] == 240.0
    assert given == sorted(given, reverse=True)
    assert (len(path.read_text().splitlines()) if path.exists() else 0) == pytest.approx(rows, abs=1)
    assert next(left, None) is None


# --- reading for training and judging


@pytest.fixture
def measured_folder(tmp_path: Path) -> Path:
    pytest.importorskip("pyarrow", reason="needs the learning extra")
    rows = [
        row(recast(conv(), FP16), layout="nhwc"),
        row(recast(conv(n=4), FP16), layout=""),
        row(linear(64), precision="tf32"),
        row(Softmax(rows=8, cols=8, dtype=FP16), cache="warm", gpu="warp-9"),
        row(Softmax(rows=65_536, cols=4096, dtype=FP16), latency_us=400.0),
        row(Softmax(rows=65_536, cols=4096, dtype=FP16), latency_us=400.0, gpu="NVIDIA H100 80GB HBM3"),
    ]
    append(tmp_path / "measurements" / "h100.csv", rows)
    return tmp_path


@pytest.mark.parametrize("place", ["", "measurements"])
def test_files_are_found_in_a_folder_or_below_it(place: str, measured_folder: Path) -> None:
    from neusight_onnx.learning.datasets.registry import read_parts

    parts = read_parts(measured_folder / place)
    found = {(part.kernel_class, part.dtype, part.variant): part for part in parts}
    assert {("conv", "float16", "nhwc, cold"), ("conv", "float16", "cold"), ("softmax", "float16", "warm")} <= set(
        found
    )
    own = found["conv", "float16", "nhwc, cold"]
    assert own.load is not None
    measurements = own.load(np.array([0]))
    assert measurements.kernels == (replace(recast(conv(channels_last=True), FP16), burst=True),)
    assert measurements.measured_us.tolist() == [12.5]
    assert measurements.scored_us == 5.0
    # a name that nvidia-smi prints is the GPU's
    assert found["softmax", "float16", "cold"].gpu.tolist() == ["h100-sxm", "h100-sxm"]
    # TF32's kernels are a type of their own as soon as there are any
    assert ("gemm", "tf32", "cold") in found


def test_predictions_are_judged_on_own_measurements(measured_folder: Path) -> None:
    from neusight_onnx.learning.evaluate import evaluate

    found = evaluate(measured_folder)
    assert {(group.kernel_class, group.dtype) for group in found.groups} >= {
        ("conv", "float16"),
        ("softmax", "float16"),
    }
    assert {skip.gpu for skip in found.skipped if "no spec" in skip.reason} == {"warp-9"}
    # 65,536 x 4,096 halves read and written are 1.07 GB: 320 us at 3.35 TB/s, 305 less what the L2 holds back
    (group,) = [g for g in found.groups if g.kernel_class == "softmax" and g.gpu == "h100-sxm" and g.size == "all"]
    assert group.roofline_mape_percent == pytest.approx(22.0, abs=3.0)


# --- the program


def test_the_program_plans_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; from measurements.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    plan = subprocess.run(
        [sys.executable, "-c", code, "plan", "--first", "3"], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert len(plan.stdout.splitlines()) == 3
    assert "cases: conv" in plan.stderr
    missing = subprocess.run(
        [sys.executable, "-c", code, "run", "--alone", "-o", "never.csv"], capture_output=True, text=True, cwd=ROOT
    )
    assert (missing.returncode, missing.stderr) == (
        2,
        "error: torch is not installed: pip install 'neusight-onnx[measure]'\n",
    )
    assert not (ROOT / "never.csv").exists()


def test_the_program_lists_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "shapes.txt"
    model = ROOT / "examples" / "resnet50.onnx"
    assert program.main(["shapes", str(model), "-o", str(target), "--batch", "2"]) == 0
    kernels = read_shapes(target)
    assert {kernel.n for kernel in kernels if isinstance(kernel, Conv)} >= {2}
    assert program.main(["plan", "--shapes", str(target), "--first", "1"]) == 0
    assert program.main(["plan", "--shapes", str(tmp_path / "none.txt")]) == 2
    for count in ("-1", "1.5"):
        with pytest.raises(SystemExit) as caught:
            program.main(["plan", "--shapes", str(target), "--first", count])
        assert caught.value.code == 2
    assert "can't read" in capsys.readouterr().err


# --- timing, on a device made up here


class FakeEvent:
    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda, self._at_us = cuda, 0.0

    def record(self) -> None:
        assert self._cuda.streams, "events are recorded on the stream that is timed"
        self._at_us = self._cuda.now_us

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, other: FakeEvent) -> float:
        return (other._at_us - self._at_us) / 1e3


class FakeGraph:
    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda, self.launches = cuda, 0

    def replay(self) -> None:
        assert self.cuda.streams, "a graph is replayed on the stream that is timed"
        self.cuda.now_us += self.launches * self.cuda.launch_us
        self.cuda.replayed += self.launches


class FakeCuda:
    """A device on which every launch takes ``launch_us``; eager ones, behind the host, at least 10 us."""

    OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {})

    def __init__(self, launch_us: float, free_bytes: int = 80 << 30) -> None:
        self.launch_us, self.free_bytes = launch_us, free_bytes
        self.now_us, self.replayed, self.alive = 0.0, 0, True
        self.streams: list[str] = []
        self.captured: FakeGraph | None = None
        self.sets: list[int] = []
        self.fault: Exception | None = None
        self.broken_capture = False

    def launch(self, shared: object, own: tuple[int, ...]) -> object:
        if self.fault is not None:
            raise self.fault
        if self.captured is not None:
            self.captured.launches += 1
            self.sets.append(own[0])
        else:
            self.now_us += max(self.launch_us, 10.0)
        return object()

    def synchronize(self) -> None:
        if not self.alive:
            raise RuntimeError("an illegal memory access was encountered")

    def randn(self, *shape: int, device: str) -> Any:
        if self.broken_capture:
            raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")
        return np.zeros(shape)

    @contextmanager
    def stream(self, stream: str) -> Iterator[None]:
        self.streams.append(stream)
        yield
        self.streams.pop()

    @contextmanager
    def graph(self, graph: FakeGraph, stream: str) -> Iterator[None]:
        assert stream == "side"
        self.captured = graph
        yield
        self.captured = None

    def mem_get_info(self) -> tuple[int, int]:
        return self.free_bytes, 80 << 30

    def namespace(self) -> SimpleNamespace:
        names = ("synchronize", "stream", "graph", "mem_get_info", "OutOfMemoryError")
        return SimpleNamespace(
            **{name: getattr(self, name) for name in names},
            init=lambda: None,
            empty_cache=lambda: None,
            memory_reserved=lambda: 0,
            memory_allocated=lambda: 0,
            is_available=lambda: True,
            get_device_properties=lambda device: SimpleNamespace(name="NVIDIA H100 80GB HBM3", L2_cache_size=50 << 20),
            get_device_capability=lambda device: (9, 0),
            Stream=lambda: "side",
            Event=lambda enable_timing: FakeEvent(self),
            CUDAGraph=lambda: FakeGraph(self),
        )


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[FakeCuda, Any]]]:
    """Makes a timer on a device; nvidia-smi, which isn't there, says nothing."""
    from measurements import device as module

    timers = []

    def make(launch_us: float, warm: bool = False, **values: Any) -> tuple[FakeCuda, Any]:
        cuda = FakeCuda(launch_us, **values)
        switched: list[bool] = []
        torch = SimpleNamespace(
            cuda=cuda.namespace(),
            inference_mode=nullcontext,
            backends=SimpleNamespace(
                cudnn=SimpleNamespace(version=lambda: 90100),
                cuda=SimpleNamespace(matmul=SimpleNamespace(), enable_math_sdp=switched.append),
            ),
            randn=cuda.randn,
            mm=cuda.launch,
            version=SimpleNamespace(cuda="12.8"),
            __version__="2.9.1",
        )
        count = iter(range(10_000))
        call = Call(shared=tuple, operands=lambda: (next(count),), run=cuda.launch)
        monkeypatch.setattr(module, "require_torch", lambda: torch)
        monkeypatch.setattr(module, "call_for", lambda case, torch, place: call)
        monkeypatch.setenv("PATH", "")
        timers.append(module.CudaTimer(case_s=0.5, warm=warm))
        assert switched == [False], "attention that isn't one kernel is skipped"
        return cuda, timers[-1]

    yield make
    for timer in timers:
        timer.close()


CONV_OF_1_MB = Case(kernel=recast(conv(n=16, c=64, k=64), FP16), precision="fp16")
"""16 x 64 x 14 x 14 halves in and as many out, and 64 x 64 x 9 of weights: 876,544 bytes."""


def test_a_launch_is_the_graphs_time_over_its_launches(device: Callable[..., tuple[FakeCuda, Any]]) -> None:
    """Twice the L2 of 50 MiB takes 120 sets of 876,544 bytes, each its turn in a graph."""
    cuda, timer = device(7.0)
    found = timer.time(CONV_OF_1_MB)
    assert found.set_bytes == 876_544
    assert (found.buffer_sets, found.cache) == (120, "cold")
    assert found.latency_us == found.low_us == found.high_us == pytest.approx(7.0)
    assert cuda.sets == list(range(120))
    assert (found.launches, found.repeats) == (120, 11)
    # 840 us a graph: three of them between two events, after one that keeps the device busy
    assert cuda.replayed == 120 * (2 + 11 * (1 + 3))
    assert timer.facts()["torch"] == "2.9.1"
    assert (timer.gpu, timer.facts()["device_name"]) == ("h100-sxm", "NVIDIA H100 80GB HBM3")


def test_small_kernels_stay_in_the_cache_and_are_marked(device: Callable[..., tuple[FakeCuda, Any]]) -> None:
    """100 launches of one set: an eager launch takes 10 us, and a graph is meant to take 1,000."""
    _, timer = device(2.0)
    found = timer.time(Case(kernel=Softmax(rows=8, cols=8, dtype=FP16), precision="fp16"))
    assert (found.buffer_sets, found.launches, found.cache) == (1, 100, "warm")
    assert found.latency_us == pytest.approx(2.0)


def test_the_same_operands_on_request(device: Callable[..., tuple[FakeCuda, Any]]) -> None:
    _, timer = device(7.0, warm=True)
    found = timer.time(CONV_OF_1_MB)
    assert (found.buffer_sets, found.launches, found.cache) == (1, 100, "warm")


def test_a_case_is_bounded(device: Callable[..., tuple[FakeCuda, Any]]) -> None:
    """40 ms a launch: one launch a graph and six repeats of two replays in half a second; 400 ms are too long."""
    cuda, timer = device(40_000.0)
    found = timer.time(CONV_OF_1_MB)
    assert (found.launches, found.repeats, found.cache) == (1, 6, "warm")
    assert cuda.now_us == (4 + 2 + 2 + 6 * 2) * 40_000.0
    _, slow = device(400_000.0)
    with pytest.raises(SkipCaseError, match="a launch takes 400 ms"):
        slow.time(CONV_OF_1_MB)


def test_tf32_is_switched_for_each_case(device: Callable[..., tuple[FakeCuda, Any]]) -> None:
    _, timer = device(7.0)
    backends = timer._torch.backends
    for precision, allowed in (("tf32", True), ("fp32", False), ("tf32", True)):
        timer.time(Case(kernel=conv(), precision=precision))
        assert backends.cuda.matmul.allow_tf32 is backends.cudnn.allow_tf32 is allowed
    assert backends.cudnn.benchmark is True


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (FakeCuda.OutOfMemoryError("CUDA out of memory"), "out of memory"),
        (RuntimeError("not implemented\n  for 'Half'"), "not implemented for 'Half'"),
        (TypeError("unexpected keyword argument 'enable_gqa'"), "unexpected keyword argument 'enable_gqa'"),
    ],
    ids=["memory", "no kernel", "older torch"],
)
def test_what_a_case_raises_is_its_reason(
    fault: Exception, reason: str, device: Callable[..., tuple[FakeCuda, Any]]
) -> None:
    cuda, timer = device(7.0)
    cuda.fault = fault
    with pytest.raises(SkipCaseError, match=reason):
        timer.time(CONV_OF_1_MB)


def test_a_device_that_is_gone_is_told_from_a_case_that_fails(device: Callable[..., tuple[FakeCuda, Any]]) -> None:
    cuda, timer = device(7.0)
    cuda.fault, cuda.alive = RuntimeError("illegal memory access"), False
    with pytest.raises(DeviceLostError, match="no more work"):
        timer.time(CONV_OF_1_MB)


def test_a_capture_that_broke_off_ends_the_process(device: Callable[..., tuple[FakeCuda, Any]]) -> None:
    """CUDA's random numbers believe for ever after that they are captured: every later case would be skipped."""
    cuda, timer = device(7.0)
    cuda.fault, cuda.broken_capture = RuntimeError("operation not permitted when stream is capturing"), True
    with pytest.raises(DeviceLostError, match="no more work in this process after: operation not permitted"):
        timer.time(CONV_OF_1_MB)


def test_what_does_not_fit_is_not_tried(device: Callable[..., tuple[FakeCuda, Any]]) -> None:
    _, timer = device(7.0, free_bytes=2_000_000)
    with pytest.raises(SkipCaseError, match=r"needs 0\.0 GB"):
        timer.time(CONV_OF_1_MB)
    _, turing = device(7.0)
    turing._capability = (7, 5)
    with pytest.raises(SkipCaseError, match="no bf16 below compute capability 8"):
        turing.time(replace(CONV_OF_1_MB, precision="bf16"))


# --- calls, where torch is there (on its CPU)


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is in no extra of the tests")


def small(kernel: Kernel) -> bool:
    return kernel.read_bytes + kernel.write_bytes < 8e6 and kernel.macs < 2e8


def sampled() -> Iterator[Case]:
    seen: set[tuple[str, ...]] = set()
    for case in ordered([case for case in cases_of(default_kernels(), directions=True) if small(case.kernel)]):
        if stratum(case) not in seen and case.precision != "bf16":
            seen.add(stratum(case))
            yield case


def test_every_kind_of_case_has_a_call_that_reads_and_writes_its_bytes(torch: Any) -> None:
    count = 0
    for case in sampled():
        call = call_for(case, torch, "cpu")
        shared, own = call.shared(), call.operands()
        result = call.run(shared, own)
        where = f"{stratum(case)}: {case.kernel}"
        extra = sum(spec.byte_count for spec in getattr(case.kernel, "extra_outputs", ()))
        assert result.numel() * result.element_size() == case.kernel.write_bytes - extra, where
        if KERNEL_CLASSES[type(case.kernel)] != "gather_scatter":
            kernel = case.kernel
            read = sum(tensor.numel() * tensor.element_size() for tensor in own)
            if isinstance(kernel, Normalization) and kernel.method == "batch":  # its parameters are FP32 at any rate
                read -= kernel.parameter_count * (4 - kernel.dtype.bytes_of(1))
            idle = 0  # of three operands a gradient reads two
            if isinstance(kernel, Conv) and kernel.direction != "forward":
                idle = read - kernel.read_bytes
                assert idle == kernel.write_bytes, where
            assert read - idle == kernel.read_bytes, where
        count += 1
    assert count > 60


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        pytest.param(
            Gemm(m=3, n=4, k=5, transpose_a=True, dtype=FP32), lambda torch, a, b: a @ b, id="transposed product"
        ),
        pytest.param(
            Reduction(operation="max", outputs=6, reduced=4, inner=3, dtype=FP32, output=spec(2, 3)),
            lambda torch, x: x.amax(1),
            id="strided maximum",
        ),
        pytest.param(
            Normalization(method="layer", rows=3, cols=8, parameter_count=16, dtype=FP32),
            lambda torch, x, w, b: (x - x.mean(1, True)) / (x.var(1, False, keepdim=True) + 1e-5).sqrt() * w + b,
            id="LayerNorm",
        ),
        pytest.param(
            Attention(b=1, h=2, g=2, s=4, t=4, d=8, v=8, causal=True, dtype=FP32),
            lambda torch, q, k, v: (
                (q @ k.transpose(2, 3) / 8**0.5).masked_fill(~torch.ones(4, 4).tril().bool(), -1e9).softmax(3) @ v
            ),
            id="attention",
        ),
    ],
)
def test_calls_compute_what_they_are_named_after(kernel: Kernel, expected: Callable[..., Any], torch: Any) -> None:
    call = call_for(Case(kernel=kernel, precision="fp32"), torch, "cpu")
    own = call.operands()
    assert torch.allclose(call.run(call.shared(), own), expected(torch, *own), atol=1e-4)


def test_a_machine_without_a_gpu_is_told(torch: Any) -> None:
    from measurements.device import require_torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(NeusightError, match="no CUDA device"):
        require_torch()
