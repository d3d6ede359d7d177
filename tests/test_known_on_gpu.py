"""Which nodes that follow from open sizes alone are kernels in ONNX Runtime: as onnxruntime-gpu 1.31.1 ran these graphs
on stand-ins for CUDA's libraries (provider by its profile, launches by the stand-ins' log)."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import parser

from neusight_onnx import analyze
from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.read import read_model
from neusight_onnx.kernels import HostWork, NodeWork, Transfer
from neusight_onnx.precision import resolve
from neusight_onnx.preparation import infer_shapes, prepare

X = "float[n, 4] x"
CONSTANTS = """
    <int64 i0 = {0}, int64 i1 = {1}, int64[1] v0 = {0}, int64[1] v1 = {1}, int64[1] v4 = {4}, int64[1] minus = {-1},
     float one = {1}>
"""
ROWS = "s = Shape(x) n = Gather<axis = 0>(s, i0)"


def write(inputs: str, nodes: str, folder: Path, *, opset: int = 17) -> Path:
    """A file of a graph that gives a value y."""
    head = f'<ir_version: 8, opset_import: ["": {opset}, "com.microsoft": 1]>'
    text = f"{head} g ({inputs}) => (y) {CONSTANTS} {{ {nodes} }}"
    path = folder / "model.onnx"
    onnx.save(parser.parse_model(text.replace("(y)", "(float y)", 1)), path)
    model = onnx.load(path)
    model.graph.output[0].ClearField("type")
    onnx.save(model, path)
    return path


def works(
    inputs: str, nodes: str, folder: Path, *, runtime: str = "onnxruntime", opset: int = 17
) -> tuple[NodeWork, ...]:
    """The work of such a graph, with n = 3."""
    path = write(inputs, nodes, folder, opset=opset)
    dims = {"n": 3} if "[n" in inputs else {}
    shaped = infer_shapes(read_model(path), make_bindings(dims, None, None, None))
    return prepare(shaped, precision=resolve("auto", DataType.FLOAT32), runtime=runtime).work


@pytest.mark.parametrize(
    ("inputs", "nodes", "launched"),
    [
        pytest.param(X, f"{ROWS} y = Range(i0, n, i1)", ["Range"], id="a-kernel-that-takes-sizes-from-the-host"),
        pytest.param(X, f"{ROWS} r = Range(i0, n, i1) y = Less(r, n)", ["Range", "Less"], id="what-follows-from-it"),
        pytest.param(X, f"{ROWS} c = Cast<to = 1>(n) r = Sqrt(c) y = Div(one, r)", [], id="numbers-of-the-host"),
        pytest.param(
            X.replace("float", "float16"), f"{ROWS} c = Cast<to = 10>(n) y = Sqrt(c)", ["Sqrt"], id="16-bits-never"
        ),
        pytest.param(
            X,
            "s = Shape(x) c = ConstantOfShape(s) k = Cast<to = 7>(c) y = Add(k, i1)",
            ["ConstantOfShape", "Cast", "Add"],
            id="a-fill-of-an-open-size",
        ),
        pytest.param(
            X + ", float[1, 4] w",
            "s = Shape(x) n = Gather<axis = 0>(s, v0) h = Concat<axis = 0>(n, v4) k = Shape(h) c = ConstantOfShape(k)"
            " d = Cast<to = 7>(c) e = Equal(h, d) t = Where(e, d, h) y = Expand(w, t)",
            ["Expand"],
            id="torch-exporter's-expand-whose-rank-is-folded",
        ),
        pytest.param(X, "s = Shape(x) e = Slice(s, v0, v1, v0) y = Add(e, i1)", [], id="a-slice-at-constants"),
        pytest.param(
            X,
            "s = Shape(x) e = Slice(s, v0, v1, v0) m = Min(e, v1) f = Slice(s, v0, m, v0) y = Add(f, i1)",
            ["Slice", "Add"],
            id="a-slice-at-computed-places",
        ),
        pytest.param(
            X + ", float[9, 4] w",
            f"{ROWS} r = Range(i0, n, i1) y = Gather<axis = 0>(w, r)",
            ["Slice"],
            id="positions-cut-from-a-table",
        ),
        pytest.param(
            X + ", float[9, 4] w",
            f"{ROWS} r = Range(i0, n, i1) g = Gather<axis = 0>(w, r) k = Cast<to = 1>(r) y = MatMul(k, g)",
            ["Range", "Gather", "Cast", "MatMul"],
            id="positions-that-are-read-elsewhere",
        ),
        pytest.param("float[2, 4] x", f"{ROWS} y = Range(i0, n, i1)", [], id="fixed-sizes-are-folded"),
    ],
)
def test_nodes_of_known_values_that_are_kernels(inputs: str, nodes: str, launched: list[str], tmp_path: Path) -> None:
    assert [work.op_type for work in works(inputs, nodes, tmp_path) if work.kernels] == launched


def test_an_expand_to_ones_that_are_counted_off_a_shape_goes(tmp_path: Path) -> None:
    """As exporters write ``repeat``; the count of a computed shape's numbers is known at load, the shape isn't."""
    ones = "o = ConstantOfShape<value = int64[1] {1}>(k)"
    for target, expected in ((ones, ["Relu", "Tanh"]), ("o = Mul(h, v1)", ["Relu", "Expand", "Tanh"])):
        nodes = f"v = Unsqueeze(n, v0) h = Concat<axis = 0>(v, v4) k = Shape(h) {target}"
        nodes += " r = Relu(x) e = Expand(r, o) y = Tanh(e)"
        found = works(X, f"{ROWS} {nodes}", tmp_path)
        assert [work.op_type for work in found if work.kernels] == expected


def test_a_large_constant_stays_on_the_gpu(tmp_path: Path) -> None:
    """One of up to 100 numbers goes to the CPU with the node that reads it."""
    for count, expected in ((100, []), (101, ["Add"])):
        numbers = ", ".join(str(number) for number in range(count))
        nodes = f"{ROWS} b = Constant<value = int64[{count}] {{{numbers}}}>() y = Add(b, n)"
        assert [work.op_type for work in works(X, nodes, tmp_path) if work.kernels] == expected


@pytest.mark.parametrize(
    ("nodes", "copied"),
    [
        pytest.param("h = Relu(x) f = Cast<to = 1>(n) y = Div(h, f)", [("Div", 4)], id="a-number-of-the-host"),
        pytest.param(
            "h = Relu(x) f = Cast<to = 1>(n) d = Div(h, f) y = Mul(d, f)", [("Div", 4)], id="once-for-all-readers"
        ),
        pytest.param("r = Range(i0, n, i1) y = Less(r, n)", [("Less", 8)], id="beside-what-a-kernel-made"),
        pytest.param(
            "h = Relu(x) v = Unsqueeze(n, v0) c = Concat<axis = 0>(v, v4) y = Resize(h, , , c)",
            [],
            id="sizes-of-an-image-are-read-on-the-host",
        ),
        pytest.param("y = Range(i0, n, i1)", [], id="read-on-the-host"),
        pytest.param(
            "f = Cast<to = 1>(n) p = Constant<value = int64[4] {0, 0, 0, 1}>() h = Relu(x) y = Pad(h, p, f)",
            [],
            id="the-number-that-fills-is-read-on-the-host",
        ),
        pytest.param(
            "m = Sub(n, n) a = Unsqueeze(m, v0) h = Relu(x) y = ReduceMax(h, a)",
            [],
            id="places-of-a-reduction-are-read-on-the-host",
        ),
    ],
)
def test_what_the_host_computes_of_sizes_is_copied_to_kernels(
    nodes: str, copied: list[tuple[str, int]], tmp_path: Path
) -> None:
    """MemcpyFromHost as ONNX Runtime adds them; the host waits for none."""
    found = works(X, f"{ROWS} {nodes}", tmp_path, opset=18)
    copies = [(work, kernel) for work in found for kernel in work.kernels if isinstance(kernel, Transfer)]
    assert [(work.op_type, kernel.byte_count) for work, kernel in copies] == copied
    assert all(kernel.direction == "to_device" and not kernel.is_waited_for for _, kernel in copies)
    assert not any(work.host_waits for work in found)


@pytest.mark.parametrize(
    ("nodes", "to_device"),
    [
        pytest.param("r = Range(i0, n, i1) y = Gather<axis = 0>(w, r)", 1, id="a-length"),
        pytest.param("m = Add(n, i1) r = Range(n, m, i1) y = Gather<axis = 0>(w, r)", 2, id="a-beginning-and-an-end"),
    ],
)
def test_places_of_a_slice_that_was_a_range_go_to_the_gpu_and_back(nodes: str, to_device: int, tmp_path: Path) -> None:
    """Three MemcpyToHost, which the host waits for, and a MemcpyFromHost for each place that is no constant."""
    cut = works(X + ", float[9, 4] w", f"{ROWS} {nodes}", tmp_path)[-1]
    directions = [kernel.direction for kernel in cut.kernels if isinstance(kernel, Transfer)]
    assert directions == ["to_device"] * to_device + ["to_host"] * 3
    assert cut.host_waits


def test_a_range_of_fixed_sizes_is_gathered_as_the_constant_that_it_is(tmp_path: Path) -> None:
    found = works("float[3, 4] x, float[9, 4] w", f"{ROWS} r = Range(i0, n, i1) y = Gather<axis = 0>(w, r)", tmp_path)
    assert [work.op_type for work in found if work.kernels] == ["Gather"]


@pytest.mark.parametrize(
    ("inputs", "nodes", "on_cpu"),
    [
        pytest.param(X, "f = Cast<to = 1>(n) m = Mul(x, f) y = Exp(m)", ["Mul", "Exp"], id="and-what-follows"),
        pytest.param(
            X + ", float[4, 4] w",
            "f = Cast<to = 1>(n) m = Mul(x, f) y = MatMul(m, w)",
            ["Mul", "MatMul"],
            id="products",
        ),
        pytest.param(X, "h = Relu(x) f = Cast<to = 1>(n) y = Mul(h, f)", [], id="not-beside-what-a-kernel-made"),
        pytest.param(
            X,
            "v = Unsqueeze(n, v0) c = Concat<axis = 0>(v, v4) y = Resize(x, , , c)",
            [],
            id="not-as-a-size-of-a-kernel",
        ),
        pytest.param(X.replace("float", "float16"), "f = Cast<to = 10>(n) y = Mul(x, f)", [], id="not-in-16-bits"),
    ],
)
def test_an_input_of_the_model_beside_sizes_is_computed_on_by_the_cpu(
    inputs: str, nodes: str, on_cpu: list[str], tmp_path: Path
) -> None:
    found = works(inputs, f"{ROWS} {nodes}", tmp_path, opset=18)
    assert [work.op_type for work in found if any(isinstance(kernel, HostWork) for kernel in work.kernels)] == on_cpu


def test_a_copy_of_a_size_keeps_the_run_from_a_cuda_graph(tmp_path: Path) -> None:
    """The provider takes sizes that only the host reads, and refuses a session with a copy."""
    path = write(X, f"{ROWS} r = Range(i0, n, i1) f = Cast<to = 1>(r) u = Unsqueeze(f, v1) y = Add(x, u)", tmp_path)
    assert analyze(path, gpu="a100", dims={"n": 3}, cuda_graph=True).settings.cuda_graph
    path = write(X, f"{ROWS} h = Relu(x) f = Cast<to = 1>(n) y = Div(h, f)", tmp_path)
    report = analyze(path, gpu="a100", dims={"n": 3}, cuda_graph=True)
    assert any("is copied in the middle of the run" in said for said in report.assumptions)


DECODER = "float16[1, 1, 64] q, float16[1, 1, 32] k, float16[1, 1, n, 32] pk, float16[1, 1, n, 32] pv, int32[1] lens"
TOTAL = "s = Shape(pk) i2 = Constant<value_int = 2>() n = Gather<axis = 0>(s, i2) a = Add(n, i1) t = Cast<to = 6>(a)"
GROUPED = "y, pn, vn = com.microsoft.GroupQueryAttention<num_heads = 2, kv_num_heads = 1>(q, k, k, pk, pv, lens, t)"


def test_lengths_that_a_contrib_operator_takes_from_the_host_are_not_copied(tmp_path: Path) -> None:
    """A decoder as ONNX Runtime GenAI writes it, which the provider captures: of total_sequence_length it makes no
    MemcpyFromHost (1.31.1 on stand-ins)."""
    found = works(DECODER, f"{TOTAL} {GROUPED}", tmp_path)
    assert not any(isinstance(kernel, Transfer) for work in found for kernel in work.kernels)
    path = write(DECODER, f"{TOTAL} {GROUPED}", tmp_path)
    assert analyze(path, gpu="a100", dims={"n": 3}, cuda_graph=True).settings.cuda_graph


def test_a_length_that_a_kernel_made_comes_back_for_a_contrib_operator(tmp_path: Path) -> None:
    """A MemcpyToHost, which the host waits for (1.31.1 on stand-ins)."""
    attention = works(DECODER + ", int32 u", f"t = Add(u, u) {GROUPED}", tmp_path)[-1]
    assert [k.direction for k in attention.kernels if isinstance(k, Transfer)] == ["to_host"]
    assert attention.host_waits


@pytest.mark.parametrize("runtime", ["eager", "tensorrt"])
def test_others_know_such_values_before_the_run(runtime: str, tmp_path: Path) -> None:
    assert not any(work.kernels for work in works(X, f"{ROWS} y = Range(i0, n, i1)", tmp_path, runtime=runtime))
