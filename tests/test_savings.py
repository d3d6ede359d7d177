"""What fusion saved: kernels against the nodes that they stand for, each node once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphs import inferred
from neusight_onnx.analysis import predict_report
from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.runtimes import fused_graph
from neusight_onnx.fusion.savings import Savings, savings
from neusight_onnx.gpu import load_gpu
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.read import read_model
from neusight_onnx.kernels import Elementwise, NodeWork, TensorSpec
from neusight_onnx.precision import FORMATS
from neusight_onnx.preparation import fusion_of, infer_shapes, prepare, works_of
from neusight_onnx.runtime import get_runtime

EXAMPLES = Path(__file__).parent.parent / "examples"
GRAPH = inferred("a = Sqrt(x)\nb = Exp(a)\nc = Neg(a)", {"x": (4, 8)}, outputs=["b", "c"])
TENSOR = TensorSpec(dtype=DataType.FLOAT32, shape=(4, 8))
KERNEL = Elementwise(operations=("sqrt", "exp"), inputs=(TENSOR,), output=TENSOR)
"""Reads and writes 2 x 32 x 4 = 256 bytes, as each of the three nodes alone does."""
A, B, C = (node.name for node in GRAPH.graph.nodes)


def work(node: str, *origins: str, op_type: str = "Exp", kernels: int = 1, count: int = 1) -> NodeWork:
    named = tuple((name, "Op") for name in origins)
    return NodeWork(node=node, op_type=op_type, origins=named, kernels=(KERNEL,) * kernels, count=count)


@pytest.mark.parametrize(
    ("works", "expected"),
    [
        pytest.param([work(A, A), work(B, B)], Savings(), id="nothing is merged"),
        pytest.param(
            [work(B, A, B)], Savings(fused_count=1, node_count=2, kernel_count=1, byte_count=256), id="two in one"
        ),
        pytest.param(
            [work(B, A, B), work(C, A, C)],
            Savings(fused_count=2, node_count=3, kernel_count=1, byte_count=256),
            id="one node is computed in two kernels",
        ),
        pytest.param(
            [work(B, A, B, C, kernels=2)],
            Savings(fused_count=2, node_count=3, kernel_count=1, byte_count=256),
            id="three in two",
        ),
        pytest.param([work(B, A, B, kernels=2)], Savings(), id="two in two: what a builder took instead"),
        pytest.param(
            [work(B, A, B, count=5)],
            Savings(fused_count=5, node_count=10, kernel_count=5, byte_count=1280),
            id="in a loop of five",
        ),
        pytest.param(
            [work(f"{B}/cast x", A, B, op_type="Cast"), work(B, A, B)],
            Savings(fused_count=1, node_count=2, kernel_count=1, byte_count=256),
            id="a cast that a precision added",
        ),
    ],
)
def test_kernels_against_the_nodes_that_they_stand_for(works: list[NodeWork], expected: Savings) -> None:
    assert savings(GRAPH, works, lazy=True) == expected


def test_a_compiler_that_computes_a_cheap_node_in_each_reader_merges_it_once() -> None:
    graph = inferred(
        "h = Mul(x, two)\np = ReduceSum<keepdims = 0>(h, axis)\nq = ReduceMax<axes = [0], keepdims = 0>(h)",
        {"x": (64, 64)},
        constants={"two": 2.0, "axis": np.array([1], dtype=np.int64)},
        outputs=["p", "q"],
    )
    runtime = get_runtime("compiled")
    works = works_of(fused_graph(graph, runtime), runtime)
    merged = [item for item in works if len(item.origins) > 1]
    assert len(merged) == 2, "the product is computed in front of both reductions"
    found = savings(graph, works, lazy=True)
    assert (found.fused_count, found.node_count, found.kernel_count) == (2, 3, 1)


def test_what_is_saved_is_what_an_engine_runs() -> None:
    """Where the builder takes products and epilogues in kernels of their own, those are not counted as one."""
    model = read_model(EXAMPLES / "bert_base.onnx")
    prepared = prepare(
        infer_shapes(model, make_bindings({"batch": 1, "sequence": 128}, None, None, None)),
        precision=FORMATS["fp16"],
        runtime="tensorrt",
    )
    report = predict_report(prepared, load_gpu("h100-sxm"), asked_precision="fp16")
    fewest = sum(len(work.kernels) for work in prepared.work)
    more = sum(row.count for row in report.kernels) - fewest
    assert more > 0
    assert report.fusion.saved_kernel_count == fusion_of(prepared, prepared.merged).saved_kernel_count - more
