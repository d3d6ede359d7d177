"""Our rules for ONNX Runtime against its own optimiser, which runs here without a GPU (the CPU provider's passes)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from benchmarks.fusion_ort import compare, optimised
from graphs import split, value_info
from test_patterns import MATCHING, NUMBERS, WEIGHTS

EXAMPLES = Path(__file__).parent.parent / "examples"


def as_file(nodes: str, inputs: dict[str, tuple[int, ...]], folder: Path) -> Path:
    """The model of a row; a Relu behind it, since some rules leave an output of the graph alone."""
    listed = split(f"{nodes}\nz = Relu(y)")
    used = {name for node in listed for name in node.input}
    numbers = NUMBERS | {"groups": [0, 4, -1], "back": [2, 8, 4, 4], "last": [-1]}
    constants = [
        numpy_helper.from_array(np.asarray(value, np.int64 if isinstance(value, list) else np.float32), name)
        for name, value in numbers.items()
        if name in used
    ]
    constants += [
        numpy_helper.from_array(np.zeros(shape, np.float32), name) for name, shape in WEIGHTS.items() if name in used
    ]
    graph = helper.make_graph(
        listed,
        "graph",
        [value_info(name, shape, onnx.TensorProto.FLOAT) for name, shape in inputs.items()],
        [value_info("z", None, onnx.TensorProto.FLOAT)],
        constants,
    )
    path = folder / "row.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.parametrize(
    ("nodes", "inputs", "runtimes"),
    [pytest.param(row[1], row[2], row[4], id=row[0]) for row in MATCHING if not row[0].startswith("attention")],
)
def test_our_rules_are_its(
    nodes: str, inputs: dict[str, tuple[int, ...]], runtimes: tuple[str, ...], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    written = optimised(as_file(nodes, inputs, tmp_path), work)
    left = [node.op_type for node in written.graph.node if node.op_type not in ("Reshape", "Relu")]
    assert (len(left) == 1) == ("onnxruntime" in runtimes), left


@pytest.mark.parametrize("name", ["resnet50", "bert_base"])
def test_the_examples_have_the_operators_that_it_writes(name: str) -> None:
    """But for what shapes are computed with, and where positions are cut from a table."""
    compared = compare(EXAMPLES / f"{name}.onnx")
    assert not compared.differences
    assert compared.ours.total() < compared.before.total()
