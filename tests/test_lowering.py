"""What operators become: the cases by family, what is free, and the table of rules."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import defs

from graphs import inferred
from lowering_cases.case import INT8, Case, Shapes, ew
from lowering_cases.conv import CONV
from lowering_cases.elementwise import ELEMENTWISE
from lowering_cases.movement import MOVEMENTS
from lowering_cases.products import EINSUM, GEMM, MATMUL, QUANTISED
from lowering_cases.rows import NORMS, REDUCTIONS
from lowering_cases.sequences import ATTENTION, RECURRENT
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import KERNEL_CLASSES, Elementwise, Gemm, HostWork, Opaque, TreeWalk
from neusight_onnx.lowering import lower, operator_table
from neusight_onnx.lowering.placement import place
from neusight_onnx.lowering.registry import RULES, lowers
from neusight_onnx.predictor import predict
from neusight_onnx.runtime import RUNTIMES

OTHERS = [
    Case(
        name="stft",
        nodes="y = STFT(x, step, w)",
        inputs={"x": (1, 64, 1)},
        constants={"step": 16},
        weights={"w": (16,)},
        expected=[(Opaque, {"operation": "fft", "operation_count": 5 * 4 * 16 * 4})],
    ),
    *(
        Case(
            name=f"trees, {rows} rows",
            nodes="y = ai.onnx.ml.TreeEnsembleRegressor<n_targets=1, nodes_treeids=[0,0,0,1,1,1],"
            " nodes_nodeids=[0,1,2,0,1,2], nodes_featureids=[0,0,0,1,0,0], nodes_truenodeids=[1,0,0,1,0,0],"
            " nodes_falsenodeids=[2,0,0,2,0,0], target_ids=[0,0,0,0]>(x)",
            inputs={"x": (rows, 2)},
            expected=[(Opaque, {"operation": "trees", "operation_count": 2 * rows * 2 * 2, "read": 8 * rows + read})],
        )
        for rows, read in ((1, 4 * 16), (10, 6 * 16))  # the nodes that are visited, all at most
    ),
    Case(
        name="linear classifier",
        nodes="l, y = ai.onnx.ml.LinearClassifier<classlabels_ints=[0,1,2], intercepts=[0.0,0.0,0.0],"
        " coefficients=[1.0,1.0,1.0,1.0,1.0,1.0]>(x)",
        inputs={"x": (5, 2)},
        expected=[(Gemm, {"m": 5, "n": 3, "k": 2, "epilogue": ("bias",)}), ew("argmax", read=60, written=40)],
    ),
]
FAMILIES = {
    "matmul": MATMUL,
    "gemm": GEMM,
    "einsum": EINSUM,
    "conv": CONV,
    "elementwise": ELEMENTWISE,
    "normalization": NORMS,
    "reduction": REDUCTIONS,
    "movement": MOVEMENTS,
    "recurrent": RECURRENT,
    "attention": ATTENTION,
    "quantised": QUANTISED,
    "others": OTHERS,
}
CASES = [(f"{family}: {case.name}", case) for family, cases in FAMILIES.items() for case in cases]


@pytest.mark.parametrize("case", [case for _, case in CASES], ids=[name for name, _ in CASES])
def test_kernels_of_an_operator(case: Case) -> None:
    weights = dict(case.weights)
    for name in ("xz", "wz", "yz"):
        if name in case.nodes:
            weights.setdefault(name, ())
    graph = inferred(
        case.nodes, case.inputs, weights=weights, constants=case.constants, types=case.types, opset=case.opset
    )
    work = lower(graph, runtime=case.runtime)[-1]
    assert work.unsupported is None
    found = [
        (type(kernel), {name: getattr(kernel, name) for name in facts})
        for kernel, (_, facts) in zip(work.kernels, case.expected, strict=False)
    ]
    assert found == case.expected
    assert len(work.kernels) == len(case.expected)
    assert work.host_operation


UNALIGNED = {"attention: rotary", "others: linear classifier", "movement: gather n-d"}
"""Whose operands are read at other places than broadcasting finds: tables by position, scores of a row, indices."""


@pytest.mark.parametrize("runtime", ["eager", "onnxruntime"])
@pytest.mark.parametrize(
    "case",
    [case for name, case in CASES if name not in UNALIGNED],
    ids=[name for name, _ in CASES if name not in UNALIGNED],
)
def test_operands_of_pointwise_kernels_broadcast_to_their_result(case: Case, runtime: str) -> None:
    """What is read again, and from where, is told by the shapes: a vector must lie along its axis."""
    weights = {name: () for name in ("xz", "wz", "yz") if name in case.nodes} | case.weights
    graph = inferred(
        case.nodes, case.inputs, weights=weights, constants=case.constants, types=case.types, opset=case.opset
    )
    for kernel in (kernel for work in lower(graph, runtime=runtime) for kernel in work.kernels):
        if isinstance(kernel, Elementwise):
            for spec in kernel.inputs:
                is_same = spec.element_count == kernel.output.element_count
                assert is_same or np.broadcast_shapes(spec.shape, kernel.output.shape) == kernel.output.shape


@pytest.mark.parametrize(
    ("shape", "scale", "attributes", "aligned"),
    [
        pytest.param((6, 4, 3, 3), (6,), "axis=0", (6, 1, 1, 1), id="filters by output channel"),
        pytest.param((6, 4, 3, 3), (4,), "axis=1", (4, 1, 1), id="by input channel"),
        pytest.param((3, 3, 3, 3), (3,), "axis=0", (3, 1, 1, 1), id="every axis of one size"),
        pytest.param((2, 8, 5, 5), (8,), "axis=-3", (8, 1, 1), id="a negative axis"),
        pytest.param((2, 8, 5), (5,), "axis=2", (5,), id="the last axis"),
        pytest.param((2, 8, 5), (8,), "", (8, 1), id="axis 1, unless stated"),
        pytest.param((8,), (8,), "axis=0", (8,), id="a vector"),
        pytest.param((8, 64), (8, 4), "axis=1, block_size=16", (8, 4), id="blocks"),
    ],
)
@pytest.mark.parametrize("operator", ["QuantizeLinear", "DequantizeLinear"])
def test_scales_lie_along_their_axis(
    operator: str, shape: tuple[int, ...], scale: tuple[int, ...], attributes: str, aligned: tuple[int, ...]
) -> None:
    types = {"z": INT8} if operator == "QuantizeLinear" else {"x": INT8, "z": INT8}
    nodes = f"y = {operator}<{attributes}>(x, s, z)" if attributes else f"y = {operator}(x, s, z)"
    graph = inferred(nodes, {"x": shape}, weights={"s": scale, "z": scale}, types=types, opset=21)
    (kernel,) = lower(graph, runtime="eager")[-1].kernels
    assert isinstance(kernel, Elementwise)
    assert [spec.shape for spec in kernel.inputs] == [shape, aligned, aligned]


@pytest.mark.parametrize("axis", [0, 1])
def test_filters_with_a_scale_a_channel_take_what_one_scale_takes(axis: int) -> None:
    """512 x 512 x 3 x 3 on a T4 took 25 times as long: each scale was taken to be read again from far away."""
    times = []
    for scale in ((512,), ()):
        graph = inferred(
            f"y = DequantizeLinear<axis={axis}>(x, s)",
            {"x": (512, 512, 3, 3)},
            weights={"s": scale},
            types={"x": INT8},
        )
        (kernel,) = lower(graph, runtime="eager")[-1].kernels
        (prediction,) = predict([kernel], load_gpu("t4"))
        times.append(prediction.latency_us)
    assert times[0] == pytest.approx(times[1], rel=0.02)


FREE = [
    ("reshape", "y = Reshape(x, s)", {"x": (4, 8)}, {"s": [32]}, "eager", "no element moves", True),
    ("flatten", "y = Flatten(x)", {"x": (4, 8, 2)}, {}, "tensorrt", "no element moves", True),
    ("transpose is a view", "y = Transpose<perm=[1,0]>(x)", {"x": (4, 8)}, {}, "eager", "view", True),
    ("transpose of ones", "y = Transpose<perm=[1,0]>(x)", {"x": (1, 8)}, {}, "tensorrt", "size 1", True),
    ("slice is a view", "y = Slice(x, s, e)", {"x": (4, 8)}, {"s": [1], "e": [3]}, "eager", "view", True),
    ("whole slice", "y = Slice(x, s, e)", {"x": (4, 8)}, {"s": [0], "e": [9]}, "tensorrt", "keeps", True),
    ("split is views", "y, z = Split<axis=1>(x)", {"x": (4, 8)}, {}, "compiled", "view", True),
    ("expand is a view", "y = Expand(x, s)", {"x": (1, 8)}, {"s": [4, 8]}, "eager", "view", True),
    ("one index is a view", "y = Gather(x, i)", {"x": (4, 8)}, {"i": 2}, "eager", "view", True),
    ("identity", "y = Identity(x)", {"x": (4,)}, {}, "eager", "passes", False),
    ("dropout", "y = Dropout(x)", {"x": (4,)}, {}, "eager", "dropout", True),
    ("cast to the same type", "y = Cast<to=1>(x)", {"x": (4,)}, {}, "tensorrt", "type stays", True),
    ("shape", "y = Shape(x)", {"x": (4, 8)}, {}, "eager", "host", False),
    ("shape arithmetic", "s = Shape(x)\ny = Mul(s, two)", {"x": (4, 8)}, {"two": [2]}, "eager", "host", False),
    ("constants", "y = Add(a, b)", {"x": (1,)}, {"a": [1.0], "b": [2.0]}, "eager", "loaded", False),
    ("nothing to do", "e = Slice(x, a, a)\ny = Relu(e)", {"x": (4, 8)}, {"a": [0]}, "eager", "no elements", True),
]


@pytest.mark.parametrize(
    ("nodes", "inputs", "constants", "runtime", "reason", "host"),
    [row[1:] for row in FREE],
    ids=[row[0] for row in FREE],
)
def test_free_nodes_say_why(
    nodes: str, inputs: Shapes, constants: dict[str, object], runtime: str, reason: str, host: bool
) -> None:
    work = lower(inferred(nodes, inputs, constants=constants), runtime=runtime)[-1]
    assert work.free is not None
    assert reason in work.free
    assert work.host_operation == host
    assert work.kernels == ()


@pytest.mark.parametrize(
    ("length", "runtime", "written"),
    [
        pytest.param(128, "eager", None, id="what may describe a shape"),
        pytest.param(129, "eager", 129 * 4, id="a tensor, as PyTorch fills a mask"),
        pytest.param(129, "tensorrt", None, id="folded by a compiler"),
    ],
)
def test_a_tensor_that_follows_from_shapes_is_filled_in_every_run(
    length: int, runtime: str, written: int | None
) -> None:
    work = lower(inferred("s = Shape(x)\nm = ConstantOfShape(s)\ny = Add(x, m)", {"x": (length,)}), runtime=runtime)[1]
    assert work.op_type == "ConstantOfShape"
    assert [kernel.write_bytes for kernel in work.kernels] == ([] if written is None else [written])


def test_unknown_operator_and_its_cascade() -> None:
    works = lower(inferred("m = acme.MyOp(x)\ny = Relu(m)", {"x": (4, 8)}), runtime="eager")
    assert works[0].unsupported == "no lowering for acme::MyOp"
    assert works[1].unsupported == f"shape unknown because of {works[0].node}"


def test_second_claim_is_refused() -> None:
    with pytest.raises(ValueError, match="Relu has a rule already"):
        lowers("Relu", gives="elementwise")(RULES["", "Relu"].function)


@pytest.mark.parametrize("domain", ["", "ai.onnx.ml"])
def test_every_operator_of_the_standard_has_a_rule(domain: str) -> None:
    known = {schema.name for schema in defs.get_all_schemas_with_history() if schema.domain == domain}
    assert known - {name for there, name, _, _ in operator_table() if there == domain} == set()


def test_operator_table_names_kernel_classes() -> None:
    table = operator_table()
    assert [row[:2] for row in table] == sorted({row[:2] for row in table})
    assert {row[2] for row in table} <= {*KERNEL_CLASSES.values(), "free", "depends", "unsupported"}


@pytest.mark.parametrize(
    ("reader", "outputs", "kernels"),
    [("n = Not(m)", ["n", "y"], 1), ("n = Neg(y)", ["n"], 0), ("n = Neg(y)", ["n", "m"], 1)],
    ids=["another node reads it", "nothing reads it", "it is an output"],
)
def test_a_dropout_mask_is_written_where_something_reads_it(reader: str, outputs: list[str], kernels: int) -> None:
    graph = inferred(
        f"""
        y, m = Dropout(x)
        {reader}
    """,
        {"x": (4, 8)},
        outputs=outputs,
    )
    assert len(lower(graph, runtime="eager")[0].kernels) == kernels


@pytest.mark.parametrize(
    ("nodes", "written"),
    [
        ("y = TensorScatter(x, u)", 2 * 8 * 4),
        ("c = Neg(x)\ny = TensorScatter(c, u)", 2 * 8 * 4 + 2 * 16 * 8 * 4),
        ("c = TensorScatter(x, u)\ny = Neg(c)", 2 * 8 * 4 + 2 * 16 * 8 * 4),
    ],
    ids=["the caller's buffer", "a computed one", "not given back"],
)
def test_a_cache_that_is_bound_is_written_in_place(nodes: str, written: int) -> None:
    graph = inferred(nodes, {"x": (2, 16, 8), "u": (2, 1, 8)}, opset=24)
    (work,) = (work for work in lower(graph, runtime="onnxruntime") if work.op_type == "TensorScatter")
    assert work.kernels[0].write_bytes == written


def test_the_host_walks_down_trees() -> None:
    """ONNX Runtime's CUDA provider has no trees: what goes to the CPU keeps how many nodes are visited."""
    (trees,) = [case for name, case in CASES if name == "others: trees, 10 rows"]
    graph = inferred(trees.nodes, trees.inputs)
    works = place(graph, lower(graph, runtime="onnxruntime"), RUNTIMES["onnxruntime"])
    (walk,) = [kernel.walk for work in works for kernel in work.kernels if isinstance(kernel, HostWork)]
    assert walk == TreeWalk(rows=10, trees=2, depth=2, nodes=6)
