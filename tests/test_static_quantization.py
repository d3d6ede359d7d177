"""``--precision int8`` of ONNX Runtime is the file that its ``quantize_static`` writes.

Expected are the nodes that ``quantize_static`` of onnxruntime 1.32 wrote of the same graphs, calibrated with random
numbers: QDQ, ``op_types_to_quantize=["Conv", "ConvTranspose", "Gemm", "MatMul"]``; of the one with a BatchNormalization
after ``quant_pre_process``.
"""

from __future__ import annotations

from collections import Counter

import pytest

from graphs import inferred
from neusight_onnx.fusion.quantization.static import with_static_quantization
from neusight_onnx.graph.model import InferredGraph

W, B, P = (8, 8, 3, 3), (8,), (8, 8, 1, 1)
CASES = {
    "x * sigmoid(x)": (
        "c = Conv<pads=[1,1,1,1]>(x, w, b)\ns = Sigmoid(c)\nm = Mul(c, s)\ny = Conv(m, v)",
        {"x": (1, 8, 16, 16)},
        {"w": W, "b": B, "v": P},
        {"Conv": 2, "DequantizeLinear": 7, "Mul": 1, "QuantizeLinear": 4, "Sigmoid": 1},
    ),
    "a residual sum": (
        "c = Conv<pads=[1,1,1,1]>(x, w, b)\nr = Relu(c)\nd = Conv<pads=[1,1,1,1]>(r, w2, b2)\n"
        "a = Add(d, r)\ny = Relu(a)",
        {"x": (1, 8, 16, 16)},
        {"w": W, "b": B, "w2": W, "b2": B},
        {"Add": 1, "Conv": 2, "DequantizeLinear": 8, "QuantizeLinear": 4, "Relu": 2},
    ),
    "BatchNormalization": (
        "c = Conv<pads=[1,1,1,1]>(x, w)\nn = BatchNormalization(c, s, b, m, v)\ny = Relu(n)",
        {"x": (1, 8, 16, 16)},
        {"w": W, "s": B, "b": B, "m": B, "v": B},
        {"Conv": 1, "DequantizeLinear": 4, "QuantizeLinear": 2, "Relu": 1},
    ),
    "attention": (
        "q = MatMul(x, wq)\nqb = Add(q, bq)\nk = MatMul(x, wk)\nkt = Transpose<perm=[0,2,1]>(k)\ns = MatMul(qb, kt)\n"
        "p = Softmax(s)\nv = MatMul(x, wv)\no = MatMul(p, v)\ny = MatMul(o, wo)",
        {"x": (2, 16, 32)},
        {"wq": (32, 32), "bq": (32,), "wk": (32, 32), "wv": (32, 32), "wo": (32, 32)},
        {"Add": 1, "DequantizeLinear": 14, "MatMul": 6, "QuantizeLinear": 10, "Softmax": 1, "Transpose": 1},
    ),
    "Gemm": (
        "h = Gemm<transB=1>(x, w, b)\nr = Relu(h)\ny = Gemm<transB=1>(r, v, c)",
        {"x": (4, 32)},
        {"w": (64, 32), "b": (64,), "v": (8, 64), "c": (8,)},
        {"DequantizeLinear": 8, "Gemm": 2, "QuantizeLinear": 4, "Relu": 1},
    ),
    "an output that is read, and a weight of two": (
        "c = Conv(x, w)\nd = Conv(c, w)\ne = Sin(x)\nf = Add(d, e)\ny = Conv(f, v)",
        {"x": (1, 8, 16, 16)},
        {"w": P, "v": P},
        {"Add": 1, "Conv": 3, "DequantizeLinear": 7, "QuantizeLinear": 5, "Sin": 1},
    ),
}


def counts(graph: InferredGraph) -> dict[str, int]:
    return dict(sorted(Counter(node.op_type for node in graph.graph.nodes).items()))


@pytest.mark.parametrize(("nodes", "inputs", "weights", "expected"), CASES.values(), ids=CASES.keys())
def test_nodes_are_those_that_quantize_static_writes(
    nodes: str, inputs: dict[str, tuple[int, ...]], weights: dict[str, tuple[int, ...]], expected: dict[str, int]
) -> None:
    outputs = ["y", "c"] if "d = Conv(c, w)" in nodes else ["y"]
    written = with_static_quantization(inferred(nodes, inputs, weights=weights, outputs=outputs))
    assert counts(written) == expected
    made = {name for node in written.graph.nodes for name in node.outputs} | set(inputs)
    for node in written.graph.nodes:
        assert all(name in made or name in written.graph.initializers for name in node.inputs), node


def test_floats_of_what_is_stored_in_few_bits_are_gone() -> None:
    nodes, inputs, weights, _ = CASES["x * sigmoid(x)"]
    written = with_static_quantization(inferred(nodes, inputs, weights=weights))
    held = Counter((each.dtype.label, each.shape) for each in written.graph.initializers.values() if each.shape)
    assert held == {("int8", W): 1, ("int8", P): 1, ("int32", B): 1}


def test_a_file_that_multiplies_nothing_stays_as_it_is() -> None:
    graph = inferred("y = Relu(x)", {"x": (4, 4)})
    assert with_static_quantization(graph) is graph
