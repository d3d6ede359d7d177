"""Memory and parameters: graphs built by hand, bytes worked out by hand (float32, 4 bytes an element)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, TensorProto, helper

from models import function, graph, model, node, tensor, value
from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.model import Declared, Graph, InferredGraph, Initializer, Node, Value
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.kernels import Gemm, Movement, NodeWork
from neusight_onnx.memory import memory_on, parameter_summary, run_memory
from neusight_onnx.memory.policy import CONTEXT_BYTES, HOPPER_WORKSPACE_BYTES, WORKSPACE_BYTES
from neusight_onnx.report.model import MemoryEstimate

GPU = GpuSpec(
    name="test",
    label="Test",
    vendor="NVIDIA",
    architecture="Ampere",
    compute_capability=8.0,
    process_nm=7,
    sm_count=100,
    fp32_lanes_per_sm=64,
    clock_hz=1e9,
    warp_size=32,
    memory_bytes=CONTEXT_BYTES + 10_000,
    memory_type="HBM2",
    memory_bytes_per_s=1e12,
    l2_bytes=1 << 20,
    l1_bytes_per_sm=None,
    shared_memory_bytes_per_sm=None,
    register_bytes_per_sm=None,
    max_threads_per_sm=2048,
    power_w=300,
    peak_flops_per_s={"fp32": 1e13},
)
COPY = Movement(operation="copy", dtype=DataType.FLOAT32, shape=(1,), read=4, written=4)
GEMM = Gemm(m=1, n=1, k=1, dtype=DataType.FLOAT32)


def floats(*shape: int, data: bool = False, constant: bool = False) -> Value:
    content = np.zeros(shape, np.int64) if data else None
    return Value(dtype=DataType.INT64 if data else DataType.FLOAT32, shape=shape, data=content, is_constant=constant)


def build(
    nodes: Sequence[Node],
    values: Mapping[str, Value] | None = None,
    inputs: Sequence[str] = ("x",),
    outputs: Sequence[str] = ("y",),
    weights: Mapping[str, tuple[int, ...]] | None = None,
    bodies: Mapping[tuple[str, str], InferredGraph] | None = None,
) -> InferredGraph:
    """Every value is (100,) float32 unless ``values`` says otherwise."""
    initializers = {
        name: Initializer(name=name, dtype=DataType.FLOAT32, shape=shape) for name, shape in (weights or {}).items()
    }
    known = {name: floats(100) for n in nodes for name in (*n.inputs, *n.outputs)}
    known |= {name: floats(100) for name in inputs}
    known |= {name: floats(*shape, constant=True) for name, shape in (weights or {}).items()}
    known |= dict(values or {})
    return InferredGraph(
        graph=Graph(
            name="g",
            nodes=tuple(nodes),
            inputs=tuple(Declared(name=name) for name in inputs),
            outputs=tuple(Declared(name=name) for name in outputs),
            initializers=initializers,
            declared={},
        ),
        values=known,
        bodies=bodies or {},
    )


def op(name: str, inputs: str, outputs: str, op_type: str = "Relu", **attributes: Graph) -> Node:
    return Node(
        name=name, op_type=op_type, inputs=tuple(inputs.split()), outputs=tuple(outputs.split()), attributes=attributes
    )


def test_a_merged_value_takes_memory_only_if_it_is_written() -> None:
    """x, a, y where a is written; x, y where its kernel keeps a to itself. Its weight counts either way."""
    nodes = [op("1", "x w", "a"), op("2", "a", "y")]
    graph_in = build(nodes, weights={"w": (50,)})
    sizes = {}
    for written in (True, False):
        work = [
            NodeWork(node="1", op_type="Add", free="merged", merged_into="2", written=written),
            NodeWork(node="2", op_type="Relu", kernels=(COPY,)),
        ]
        found = memory_on(run_memory(graph_in, work, "compiled"), GPU)
        sizes[written] = (found.activation_bytes, found.weight_bytes)
    assert sizes == {True: (1200, 200), False: (800, 200)}


def test_onnxruntime_asks_its_arena_for_each_weight() -> None:
    """20 weights of 65 MiB, as onnxruntime-gpu 1.31 logs them: regions of 128, 128, 256, 512 and 1024 MiB. What the run
    needs finds room there."""
    names = [f"w{at}" for at in range(20)]
    nodes = [op(f"n{at}", f"{'x' if not at else f'a{at - 1}'} w{at}", f"a{at}", "Add") for at in range(20)]
    graph_in = build(nodes, outputs=("a19",), weights=dict.fromkeys(names, (65 << 18, 1)))
    work = [NodeWork(node=n.name, op_type=n.op_type, kernels=(COPY,)) for n in nodes]
    found = memory_on(run_memory(graph_in, work, "onnxruntime"), GPU)
    assert found.weight_bytes == 1300 << 20
    assert found.peak_bytes == CONTEXT_BYTES + (2048 << 20)


def estimate(graph_in: InferredGraph, free: Sequence[str] = (), gpu: GpuSpec = GPU) -> MemoryEstimate:
    """All nodes are copies but those in ``free``."""
    pending, work = [graph_in], []
    while pending:
        current = pending.pop()
        pending.extend(current.bodies.values())
        for n in current.graph.nodes:
            kernels = () if n.name in free else (COPY,)
            work.append(
                NodeWork(node=n.name, op_type=n.op_type, kernels=kernels, free="a view" if n.name in free else None)
            )
    return memory_on(run_memory(graph_in, work, "eager"), gpu)


CHAIN = [op("1", "x", "a"), op("2", "a", "b"), op("3", "b", "y")]
"""x stays (400), and at most two of a, b, y live at once (800)."""

CASES: list[tuple[str, InferredGraph, Sequence[str], int, int]] = [
    ("chain", build(CHAIN), (), 1200, 0),
    # a is read again at the end: x, a, b, c.
    ("residual", build([op("1", "x", "a"), op("2", "a", "b"), op("3", "b", "c"), op("4", "c a", "y")]), (), 1600, 0),
    ("nothing", build([], outputs=("x",)), (), 400, 0),
    ("twice-read", build([op("1", "x", "a"), op("2", "a a", "y")]), (), 1200, 0),
    # u is never read and goes at once: x, a, u, then x, a, y.
    ("unread-output", build([op("1", "x", "a u"), op("2", "a", "y")]), (), 1200, 0),
    # The view keeps a alive and takes nothing: x, a, b | x, a, b, y.
    (
        "view",
        build([op("1", "x", "a"), op("v", "a", "r", "Reshape"), op("2", "x", "b"), op("3", "r b", "y")]),
        ("v",),
        1600,
        0,
    ),
    (
        "view-of-a-view-returned",
        build([op("1", "x", "a"), op("v", "a", "r", "Reshape"), op("w", "r", "y", "Transpose")]),
        ("v", "w"),
        800,
        0,
    ),
    # Shapes lie on the host and keep nothing alive: x, a | x, a, b | x, b, y.
    (
        "shape-on-the-host",
        build(
            [op("1", "x", "a"), op("s", "a", "s", "Shape"), op("2", "a", "b"), op("3", "b", "c"), op("4", "c s", "y")],
            {"s": floats(1, data=True)},
        ),
        ("s",),
        1200,
        0,
    ),
    (
        "weights",
        build([op("1", "x w", "a"), op("2", "a w", "b"), op("3", "b v", "y")], weights={"w": (50,), "v": (5, 5)}),
        (),
        1200,
        300,
    ),
    # Nobody but a free node reads shape, so it is no weight.
    (
        "weight-for-the-host",
        build([op("v", "x shape", "y", "Reshape")], weights={"shape": (2,)}),
        ("v",),
        400,
        0,
    ),
    # A transposed weight is the same memory; an expanded one is new memory, and only what a kernel reads counts.
    (
        "weight-transposed-at-load",
        build(
            [op("t", "w", "wt", "Transpose"), op("1", "x wt", "y")],
            {"wt": floats(50, constant=True)},
            weights={"w": (50,)},
        ),
        ("t",),
        800,
        200,
    ),
    (
        "weight-expanded-at-load",
        build(
            [op("e", "w", "we", "Expand"), op("1", "x we", "y")],
            {"we": floats(50, 10, constant=True)},
            weights={"w": (50,)},
        ),
        ("e",),
        800,
        2000,
    ),
    (
        "constant-node",
        build([op("c", "", "k", "Constant"), op("1", "x k", "y")], {"k": floats(30, constant=True)}),
        ("c",),
        800,
        120,
    ),
    ("unknown-shape", build(CHAIN, {"a": Value(dtype=DataType.FLOAT32, shape=None)}), (), 1200, 0),
    ("half-a-byte", build(CHAIN, {"b": Value(dtype=DataType.INT4, shape=(101,))}), (), 851, 0),
    (
        "sequence",
        build(
            [op("1", "x", "a", "SplitToSequence"), op("2", "a", "y")],
            {"a": Value(dtype=DataType.FLOAT32, shape=None, kind="sequence", elements=(floats(30), floats(70)))},
        ),
        (),
        1200,
        0,
    ),
]


@pytest.mark.parametrize(
    ("built", "free", "activation_bytes", "weight_bytes"), [row[1:] for row in CASES], ids=[row[0] for row in CASES]
)
def test_memory(built: InferredGraph, free: Sequence[str], activation_bytes: int, weight_bytes: int) -> None:
    got = estimate(built, free)
    assert (got.activation_bytes, got.weight_bytes) == (activation_bytes, weight_bytes)
    assert got.workspace_bytes == 0
    assert got.context_bytes == CONTEXT_BYTES
    assert got.peak_bytes == activation_bytes + weight_bytes + got.allocator_bytes + CONTEXT_BYTES
    assert got.low_bytes <= got.peak_bytes <= got.high_bytes


def test_branches_are_not_live_together() -> None:
    """then: a, b (800 at once, then the output b); else: c (2000). x 400, condition 400: the else branch decides."""
    then = build([op("t1", "x", "a"), op("t2", "a w", "b")], inputs=(), outputs=("b",), weights={"w": (25,)})
    otherwise = build([op("e1", "x", "c")], {"c": floats(500)}, inputs=(), outputs=("c",))
    built = build(
        [op("if", "cond", "y", "If", then_branch=then.graph, else_branch=otherwise.graph)],
        inputs=("x", "cond"),
        bodies={("if", "then_branch"): then, ("if", "else_branch"): otherwise},
    )
    got = estimate(built)
    assert got.activation_bytes == 400 + 400 + 2000
    assert got.weight_bytes == 100


def test_a_loop_carries_its_state_in_the_same_memory() -> None:
    """x 400 lives throughout and comes in as the state; the stacked output (1000 elements) exists while the body runs:
    x, y 400, stack 4000, and in the body n 8, i 8 (alias of n), go 1, t 400, out 400."""
    body = build(
        [op("b1", "state", "t"), op("b2", "t", "out")],
        {"i": floats(1, data=True), "go": Value(dtype=DataType.BOOL, shape=()), "state": floats(100)},
        inputs=("i", "go", "state"),
        outputs=("go", "out", "t"),
    )
    built = build(
        [op("loop", "n go0 x", "y stack", "Loop", body=body.graph)],
        {
            "n": floats(1, data=True),
            "go0": Value(dtype=DataType.BOOL, shape=()),
            "stack": floats(10, 100),
        },
        inputs=("n", "go0", "x"),
        outputs=("y", "stack"),
        bodies={("loop", "body"): body},
    )
    got = estimate(built)
    assert got.activation_bytes == (8 + 1 + 400) + (400 + 4000) + (400 + 400)


@pytest.mark.parametrize(
    ("vendor", "capability", "expected"),
    [
        ("NVIDIA", 8.0, WORKSPACE_BYTES),
        ("NVIDIA", 9.0, HOPPER_WORKSPACE_BYTES),
        ("NVIDIA", 10.0, HOPPER_WORKSPACE_BYTES),
        ("AMD", None, WORKSPACE_BYTES),
    ],
)
def test_workspace(vendor: str, capability: float | None, expected: int) -> None:
    gpu = replace(GPU, vendor=vendor, compute_capability=capability)
    work = [NodeWork(node="1", op_type="MatMul", kernels=(GEMM,))]
    got = memory_on(run_memory(build([op("1", "x", "y", "MatMul")]), work, "eager"), gpu)
    assert got.workspace_bytes == expected
    assert got.peak_bytes == 800 + expected + got.allocator_bytes + CONTEXT_BYTES
    assert not got.fits


def test_a_long_chain_takes_linear_time_and_constant_memory() -> None:
    nodes = [op(str(i), f"v{i}", f"v{i + 1}") for i in range(20_000)]
    got = estimate(build(nodes, inputs=("v0",), outputs=("v20000",)))
    assert got.activation_bytes == 1200


# --- parameters -------------------------------------------------------------------------------------------------------

ARRAY = np.zeros((10, 20), np.float32)


def branch(name: str) -> GraphProto:
    return graph([node("Add", "x inner", name)], [], [value(name)], [tensor("inner", np.zeros(7, np.float32))])


def packed(bits: int) -> ModelProto:
    """x (batch, 64) @ w (64, 3) in ``bits``, a block of 32: 3 x 2 x 32 weights beside 6 scales."""
    attributes = {"K": 64, "N": 3, "block_size": 32, **({} if bits == 4 else {"bits": bits})}
    weights = tensor("w", np.zeros((3, 2, 4 * bits), np.uint8))
    scales = tensor("s", np.ones(6, np.float32))
    multiply = node("MatMulNBits", "x w s", "y", "fc", domain="com.microsoft", **attributes)
    opsets = {"": 17, "com.microsoft": 1}
    return model(graph([multiply], [value("x", ["batch", 64])], [value("y")], [weights, scales]), opsets=opsets)


def packed_in_a_branch() -> ModelProto:
    """The same in 4 bits, multiplied in a branch, as merged decoders are: the weight stands outside."""
    whole = packed(4)
    opsets = {"": 17, "com.microsoft": 1}
    multiply = graph([whole.graph.node[0]], [], [value("y")], name="then")
    other = graph([node("Neg", "x", "z")], [], [value("z")], name="else")
    chosen = node("If", "flag", "out", "if", then_branch=multiply, else_branch=other)
    flag = value("flag", [], TensorProto.BOOL)
    inputs = [flag, *whole.graph.input]
    return model(graph([chosen], inputs, [value("out")], list(whole.graph.initializer)), opsets=opsets)


PARAMETERS: list[tuple[str, ModelProto, tuple[int, int]]] = [
    ("none", model(graph([])), (0, 0)),
    ("weights", model(graph([], initializers=[tensor("a", ARRAY), tensor("b", np.zeros(3, np.float16))])), (203, 806)),
    (
        "tied-weights-once",
        model(graph([node("Gemm", "x a", "y"), node("Gemm", "y a", "z")], [value("x")], [], [tensor("a", ARRAY)])),
        (200, 800),
    ),
    (
        "no-indices-no-masks",
        model(
            graph(
                [],
                initializers=[
                    tensor("shape", np.array([1, 2])),
                    tensor("table", np.zeros(100_000, np.int64)),
                    tensor("mask", np.zeros(100_000, np.bool_)),
                    tensor("k", np.zeros(8, np.int32)),
                ],
            )
        ),
        (0, 0),
    ),
    (
        "quantised",
        model(
            graph(
                [],
                initializers=[
                    tensor("w", np.zeros((4, 5), np.int8)),
                    tensor("bias", np.zeros(9, np.int32)),
                    helper.make_tensor("four", TensorProto.INT4, (5, 3), [1] * 15),
                ],
            )
        ),
        (44, 20 + 36 + 8),
    ),
    (
        "constant-nodes",
        model(
            graph(
                [
                    node("Constant", "", "big", value=tensor("", ARRAY)),
                    node("Constant", "", "eps", value=tensor("", np.array(1e-5, np.float32))),
                    node("Constant", "", "shape", value=tensor("", np.array([1, -1]))),
                ]
            )
        ),
        (200, 800),
    ),
    (
        "branches",
        model(
            graph(
                [node("If", "c", "y", then_branch=branch("t"), else_branch=branch("e"))],
                [value("x"), value("c", (), TensorProto.BOOL)],
            )
        ),
        (14, 56),
    ),
    (
        "function-called-twice",
        model(
            graph([node("F", "x", "y", domain="local"), node("F", "y", "z", domain="local")], [value("x")]),
            [function("F", "x", "y", [node("Constant", "", "k", value=tensor("", ARRAY)), node("Mul", "x k", "y")])],
            {"": 17, "local": 1},
        ),
        (200, 800),
    ),
    ("4 bits in bytes", packed(4), (192, 96 + 24)),
    ("2 bits in bytes", packed(2), (192, 48 + 24)),
    ("8 bits in bytes", packed(8), (192, 192 + 24)),
    ("4 bits in bytes, for a branch", packed_in_a_branch(), (192, 96 + 24)),
]


@pytest.mark.parametrize(("proto", "expected"), [row[1:] for row in PARAMETERS], ids=[row[0] for row in PARAMETERS])
def test_parameters(proto: ModelProto, expected: tuple[int, int]) -> None:
    assert parameter_summary(read_model_bytes(proto.SerializeToString())) == expected
