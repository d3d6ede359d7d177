"""What takes a tensor apart: Slices and Gathers that ONNX Runtime makes one Split."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest

from engine_graphs import BOTH, TO_HEADS, prepared_for_ort
from graphs import inferred
from neusight_onnx.fusion.runtimes import fused_graph
from neusight_onnx.preparation import works_of
from neusight_onnx.runtime import RUNTIMES

INTEGERS = {
    name: np.array(value, np.int64)
    for name, value in {
        "i0": 0,
        "i1": 1,
        "i2": 2,
        "n0": [0],
        "four": [4],
        "last": [-1],
        "most": [2**62],
        "five": [5],
    }.items()
}
HALVES = """
a = Slice(x, n0, four, last)
b = Slice(x, {start}, most, last)
n = Neg(b)
r = Concat<axis=-1>(n, a)
y = Mul(r, x)
"""
APART = {
    # (2, 6, 3, 4, 8) as (3, 2, 4, 6, 8): one copy of all 1,152 numbers, 384 a part; the Transpose comes last
    "queries, keys and values by index": (
        """
        t = Transpose<perm=[2, 0, 3, 1, 4]>(x)
        q = Gather<axis=0>(t, i0)
        k = Gather<axis=0>(t, i1)
        v = Gather<axis=0>(t, i2)
        s = Add(q, k)
        y = Mul(s, v)
        """,
        (2, 6, 3, 4, 8),
        [("Split", 4 * 1152), ("Add", 4 * 384), ("Mul", 4 * 384), ("Transpose", 4 * 384)],
    ),
    "the same by a Split": (
        """
        t = Transpose<perm=[2, 0, 3, 1, 4]>(x)
        q, k, v = Split<axis=0>(t)
        s = Add(q, k)
        y = Mul(s, v)
        """,
        (2, 6, 3, 4, 8),
        [("Split", 4 * 1152), ("Add", 4 * 384), ("Mul", 4 * 384), ("Transpose", 4 * 384)],
    ),
    "halves of what is read whole as well": (
        HALVES.format(start="four"),
        (2, 3, 8),
        [("Split", 4 * 48), ("Neg", 4 * 24), ("Concat", 4 * 48), ("Mul", 4 * 48)],
    ),
    "a gap": (
        HALVES.format(start="five").replace("y = Mul(r, x)", "y = Relu(r)"),
        (2, 3, 8),
        [("Slice", 4 * 24), ("Slice", 4 * 18), ("Neg", 4 * 18), ("Concat", 4 * 42), ("Relu", 4 * 42)],
    ),
}


@pytest.mark.parametrize(("nodes", "shape", "expected"), APART.values(), ids=APART.keys())
def test_what_takes_a_tensor_apart(nodes: str, shape: tuple[int, ...], expected: list[tuple[str, int]]) -> None:
    graph = inferred(nodes, {"x": shape}, constants=INTEGERS)
    fused = fused_graph(graph, RUNTIMES["onnxruntime"])
    works = [work for work in works_of(fused, RUNTIMES["onnxruntime"]) if work.kernels]
    assert [(work.op_type, sum(kernel.write_bytes for kernel in work.kernels)) for work in works] == expected
    for node in fused.graph.nodes:
        if node.op_type == "Transpose":
            before, behind = fused.values[node.inputs[0]].shape, fused.values[node.outputs[0]].shape
            assert before is not None
            assert tuple(before[place] for place in cast("tuple[int, ...]", node.attributes["perm"])) == behind


def test_parts_of_what_has_no_known_size_stay_apart(tmp_path: Path) -> None:
    """ONNX Runtime knows no sizes behind a Reshape to two computed numbers, unless the file fixes all sizes."""
    text = TO_HEADS.format(rows=BOTH, target="m1, minus, four").replace("y = Reshape", "h = Reshape")
    text += "".join(f"\np{at} = Gather<axis=2>(h, i{at})" for at in range(4))
    text += "\na = Add(p0, p1)\nc = Add(p2, p3)\ny = Add(a, c)"
    for shape, expected in ((["batch", "tokens", 16], ["Gather"] * 4), ([2, 3, 16], ["Split"])):
        works = prepared_for_ort(text, shape, tmp_path).work
        assert [work.op_type for work in works if work.kernels and work.op_type in ("Gather", "Split")] == expected
