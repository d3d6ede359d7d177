"""What has no kernel on the GPU: the CPU computes it, copies around it, or the runtime refuses it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from engine_graphs import BOTH, TO_HEADS, prepared_for_ort
from graphs import inferred
from models import decoder
from neusight_onnx.analysis import analyze
from neusight_onnx.fusion.runtimes import fused_graph
from neusight_onnx.gpu import load_gpu
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.kernels import HostWork, Transfer
from neusight_onnx.lowering.walk import ON_HOST
from neusight_onnx.predictor import predict
from neusight_onnx.preparation import works_of
from neusight_onnx.runtime import RUNTIMES


@pytest.mark.parametrize(
    ("rows", "target", "open_sizes", "executed"),
    [
        ("r = Sqrt(x)", "b1, n1, four, four", True, []),
        ("r = Sqrt(x)", "b1, n1, four, four", False, []),
        # n is no size of the first place; one such number is found by -1
        ("r = Sqrt(x)", "n1, four, eight", True, []),
        (BOTH, "m1, four, four", True, []),
        (BOTH, "m1, minus, four", True, ["Shape", "Gather", "Gather", "Mul", "Unsqueeze", "Concat"]),
    ],
    ids=["sizes of the input", "fixed sizes", "one other size", "one number", "two numbers"],
)
def test_shape_arithmetic_that_a_run_executes(
    rows: str, target: str, open_sizes: bool, executed: list[str], tmp_path: Path
) -> None:
    text = TO_HEADS.format(rows=rows, target=target)
    works = prepared_for_ort(text, ["batch", "tokens", 16] if open_sizes else [2, 3, 16], tmp_path).work
    found = [work.op_type for work in works if work.free == ON_HOST and work.host_operation]
    assert found == executed


UNIQUE = "a = Relu(x)\nd = Det(a)\ne = Relu(d)\ny = Det(a)"


@pytest.mark.parametrize(
    ("left", "on_host"), [(TensorProto.UINT8, True), (TensorProto.INT8, False)], ids=["uint8", "int8"]
)
def test_products_of_integers_have_a_kernel_for_int8_alone(left: int, on_host: bool) -> None:
    graph = inferred(
        "y = MatMulInteger(x, w)", {"x": (3, 4)}, weights={"w": (4, 5)}, types={"x": left, "w": TensorProto.INT8}
    )
    work = works_of(graph, RUNTIMES["onnxruntime"])[-1]
    found = [type(kernel).__name__ for kernel in work.kernels]
    assert found == (["Transfer", "HostWork", "Transfer"] if on_host else ["Gemm"])


@pytest.mark.parametrize(
    ("kind", "on_host"),
    [
        *((kind, False) for kind in (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT4, TensorProto.FLOAT8E4M3FN)),
        *((kind, True) for kind in (TensorProto.INT16, TensorProto.UINT16)),
    ],
)
def test_quantising_to_16_bits_has_no_kernel(kind: int, on_host: bool) -> None:
    """As onnxruntime-gpu 1.31.1 places these nodes (benchmarks/cuda_standin.py)."""
    graph = inferred(
        "r = Relu(x)\ny = QuantizeLinear(r, scale, zero)",
        {"x": (4, 8)},
        weights={"scale": (), "zero": ()},
        types={"zero": kind},
        opset=21,
    )
    kernels = works_of(graph, RUNTIMES["onnxruntime"])[-1].kernels
    assert any(isinstance(kernel, HostWork) for kernel in kernels) == on_host


@pytest.mark.parametrize(
    ("text", "shape", "kind", "opset", "on_host"),
    [
        ("y = MaxPool<kernel_shape = [2, 2]>(x)", (1, 3, 8, 8), TensorProto.FLOAT, 21, False),
        ("y = MaxPool<kernel_shape = [2, 2]>(x)", (1, 3, 8, 8), TensorProto.FLOAT, 22, True),
        ("y = Pad(x, places)", (4,), TensorProto.FLOAT, 17, False),
        ("y = Pad(x, places)", (4,), TensorProto.INT64, 17, True),
        ("y = ArgMax<axis = 1>(x)", (4, 8), TensorProto.FLOAT, 17, False),
        ("y = ArgMax<axis = 1, select_last_index = 1>(x)", (4, 8), TensorProto.FLOAT, 17, True),
        ("y = GridSample(x, grid)", (1, 2, 4, 4), TensorProto.FLOAT, 17, False),
        ("y = GridSample(x, grid)", (1, 2, 4, 4), TensorProto.FLOAT16, 17, True),
        ('y = ConvTranspose<auto_pad = "SAME_UPPER">(x, w)', (1, 2, 4, 4), TensorProto.FLOAT, 17, True),
        ("y = ConvTranspose(x, w)", (1, 2, 4, 4), TensorProto.FLOAT, 17, False),
    ],
)
def test_onnx_runtime_has_kernels_by_version_type_and_form(
    text: str, shape: tuple[int, ...], kind: int, opset: int, on_host: bool
) -> None:
    """As onnxruntime-gpu 1.31.1 places these nodes (benchmarks/cuda_standin.py)."""
    graph = inferred(
        text,
        {"x": shape},
        weights={"w": (2, 2, 3, 3), "grid": (1, 4, 4, 2)},
        constants={"places": np.array([1, 1], np.int64)},
        types={"x": kind, "grid": kind},
        opset=opset,
    )
    kernels = works_of(graph, RUNTIMES["onnxruntime"])[-1].kernels
    assert any(isinstance(kernel, HostWork) for kernel in kernels) == on_host


@pytest.mark.parametrize(("kind", "on_host"), [(TensorProto.FLOAT16, False), (TensorProto.FLOAT, True)])
def test_grouped_queries_have_a_kernel_in_16_bits_alone(kind: int, on_host: bool) -> None:
    graph = inferred(
        "y, nk, nv = com.microsoft.GroupQueryAttention<num_heads=4, kv_num_heads=2>(q, k, v, pk, pv, n, t)",
        {"q": (1, 3, 32), "k": (1, 3, 16), "v": (1, 3, 16), "pk": (1, 2, 5, 8), "pv": (1, 2, 5, 8), "n": (1,)},
        constants={"t": np.array(8, np.int32)},
        types=dict.fromkeys(("q", "k", "v", "pk", "pv"), kind) | {"n": TensorProto.INT32},
    )
    kernels = works_of(graph, RUNTIMES["onnxruntime"])[-1].kernels
    assert any(isinstance(kernel, HostWork) for kernel in kernels) == on_host


def test_what_a_convolution_on_the_host_takes() -> None:
    """Its MACs are counted, at the rate of a server's cores, four times more or less."""
    graph = inferred(
        "y = QLinearConv<pads=[1, 1, 1, 1]>(x, s, z, w, s, z, s, z)",
        {"x": (32, 64, 56, 56)},
        weights={"w": (64, 64, 3, 3), "s": (), "z": ()},
        types=dict.fromkeys(("x", "w", "z"), TensorProto.UINT8),
    )
    (work,) = works_of(graph, RUNTIMES["onnxruntime"])
    (kernel,) = (kernel for kernel in work.kernels if isinstance(kernel, HostWork))
    assert kernel.macs == 32 * 64 * 56 * 56 * 64 * 9
    (found,) = predict([kernel], load_gpu("l4"))
    assert 0.5 * 2 * kernel.macs / found.latency_us * 1e6 < 3e12 < 2 * 2 * kernel.macs / found.latency_us * 1e6
    assert found.high_us == pytest.approx(4 * found.latency_us)
    assert found.low_us == pytest.approx(found.latency_us / 4)


def test_biases_of_quantised_models_are_dequantised_on_the_host() -> None:
    """The provider dequantises bytes, not the INT32 of a bias: 2,048 floats are copied to the GPU in every run."""
    graph = inferred(
        "d = DequantizeLinear(b, scale)\ny = Add(x, d)",
        {"x": (3, 2048)},
        weights={"b": (2048,)},
        constants={"scale": np.float32(0.5)},
        types={"b": TensorProto.INT32},
    )
    runtime = RUNTIMES["onnxruntime"]
    work = works_of(fused_graph(graph, runtime), runtime)[0]
    assert [type(kernel).__name__ for kernel in work.kernels] == ["HostWork", "Transfer"]
    assert isinstance(work.kernels[-1], Transfer)
    assert work.kernels[-1].byte_count == 4 * 2048


def test_an_operator_without_a_kernel_runs_on_the_host() -> None:
    """(3, 4, 4) floats are copied to the host once, for both of the operators that read them; the results come back."""
    graph = inferred(UNIQUE, {"x": (3, 4, 4)}, outputs=["e", "y"])
    works = works_of(fused_graph(graph, RUNTIMES["onnxruntime"]), RUNTIMES["onnxruntime"])
    found = {work.node: [type(kernel).__name__ for kernel in work.kernels] for work in works}
    names = [node.name for node in graph.graph.nodes]
    assert [found[name] for name in names] == [
        ["Elementwise"],
        ["Transfer", "HostWork", "Transfer"],
        ["Elementwise"],
        ["HostWork", "Transfer"],
    ]
    first = next(work for work in works if work.node == names[1])
    assert [kernel.byte_count for kernel in first.kernels if isinstance(kernel, Transfer)] == [4 * 48, 4 * 3]
    assert first.host_waits


def test_tensorrt_refuses_what_its_parser_lacks() -> None:
    graph = inferred(UNIQUE, {"x": (3, 4, 4)}, outputs=["e", "y"])
    works = works_of(fused_graph(graph, RUNTIMES["tensorrt"]), RUNTIMES["tensorrt"])
    reasons = [work.unsupported for work in works if work.unsupported]
    assert len(reasons) == 2
    assert all("TensorRT's parser has no Det" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("nodes", "copied", "runtime"),
    [
        # n in 0 .. 4, made by a kernel; two ranges read it
        ("n = ArgMax<keepdims=0>(v)\na = Range(zero, n, one)\ny = Range(n, five, one)", [1, 0], "onnxruntime"),
        ("n = ArgMax<keepdims=1>(v)\nm = Squeeze(n)\ny = Range(zero, m, one)", [1], "onnxruntime"),
        ("n = ArgMax<keepdims=0>(v)\ny = Range(zero, n, one)", [0], "eager"),
        # fed, computed from a shape, or known
        ("y = Range(zero, fed, one)", [0], "onnxruntime"),
        ("y = Range(zero, five, one)", [0], "onnxruntime"),
    ],
    ids=["once", "behind a view", "another runtime", "fed", "known"],
)
def test_sizes_that_kernels_make_are_copied_to_the_host(nodes: str, copied: list[int], runtime: str) -> None:
    """ONNX Runtime's Range reads its numbers on the host: a MemcpyToHost each, for which the host waits."""
    graph = inferred(
        nodes,
        {"v": (5,), "fed": ()},
        constants={"zero": np.array(0), "one": np.array(1), "five": np.array(5)},
        types={"fed": TensorProto.INT64},
        outputs=["y"] if "a =" not in nodes else ["a", "y"],
    )
    works = works_of(fused_graph(graph, RUNTIMES[runtime]), RUNTIMES[runtime])
    ranges = [work for work in works if work.op_type == "Range"]
    found = [[kernel for kernel in work.kernels if isinstance(kernel, Transfer)] for work in ranges]
    assert [len(kernels) for kernels in found] == copied
    assert all(kernel.byte_count == 8 and kernel.direction == "to_host" for kernels in found for kernel in kernels)
    assert [work.host_waits for work in ranges] == [bool(count) for count in copied]


def test_copies_at_the_boundary_are_counted_where_they_are_asked_for() -> None:
    """Without: two kernels. With: 4 x 16 floats in before, as many out behind; the nodes stay four."""
    path = Path(__file__).parent.parent / "examples" / "resnet50.onnx"
    bare = analyze(path, gpu="t4", dims={"batch": 2}, runtime="onnxruntime")
    copied = analyze(path, gpu="t4", dims={"batch": 2}, runtime="onnxruntime", include_io=True)
    moved = [row for row in copied.kernels if row.kernel_class == "transfer"]
    assert [(row.nodes, row.read_bytes) for row in moved] == [
        (("(inputs)",), 2 * 3 * 224 * 224 * 4),
        (("(outputs)",), 2 * 1000 * 4),
    ]
    assert copied.coverage == replace(bare.coverage, latency_share=copied.coverage.latency_share)
    assert copied.totals.latency_ms > bare.totals.latency_ms
    assert copied.settings.include_io
    assert not bare.settings.include_io


def test_keys_and_values_stay_on_the_gpu_where_copies_are_counted() -> None:
    """Of a decoder's step over 2,047 keys only ids and the mask go in, of 8 bytes each, and the scores come back."""
    model = read_model_bytes(decoder().SerializeToString())
    found = analyze(model, gpu="l4", batch=8, dims={"total_sequence_length": 2048}, include_io=True)
    moved = Counter[str]()
    for row in found.kernels:
        if row.kernel_class == "transfer":
            moved[row.nodes[0]] += row.read_bytes
    scores = next(value for value in found.model.outputs if value.name == "logits")
    assert moved == {"(inputs)": 8 * (1 + 2048) * 8, "(outputs)": 8 * scores.shape[-1] * 2}
    assert any("past and present keys and values stay on the GPU" in said for said in found.assumptions)
