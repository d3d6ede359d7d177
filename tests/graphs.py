"""Small graphs for tests: nodes in ONNX's text syntax, everything else in tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.model import InferredGraph, Model
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.graph.shapes import infer

DOMAINS = {"com.microsoft": 1, "ai.onnx.ml": 3, "ai.onnx.preview.training": 1, "acme": 1}


def split(nodes: str) -> list[onnx.NodeProto]:
    """Nodes of a text with one a line."""
    return [parser.parse_node(line.strip()) for line in nodes.strip().splitlines() if line.strip()]


def value_info(name: str, shape: Sequence[int] | None, dtype: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def read_graph(
    nodes: str | list[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, ...]],
    *,
    weights: Mapping[str, tuple[int, ...]] | None = None,
    constants: Mapping[str, object] | None = None,
    types: Mapping[str, int] | None = None,
    outputs: Sequence[str] | None = None,
    opset: int = 17,
) -> Model:
    """The graph as it is read from a file.

    ``inputs`` and ``weights`` map names to shapes (float32 unless ``types`` says otherwise; weights are zeros),
    ``constants`` names to values. ``outputs`` are those of the last node unless given.
    """
    listed = split(nodes) if isinstance(nodes, str) else nodes
    kinds = types or {}
    initializers = [
        numpy_helper.from_array(
            np.zeros(shape, helper.tensor_dtype_to_np_dtype(kinds.get(name, TensorProto.FLOAT))), name
        )
        for name, shape in (weights or {}).items()
    ]
    for name, value in (constants or {}).items():
        array = np.asarray(value)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        initializers.append(numpy_helper.from_array(array, name))
    graph = helper.make_graph(
        listed,
        "graph",
        [value_info(name, shape, kinds.get(name, TensorProto.FLOAT)) for name, shape in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in (outputs or [name for name in listed[-1].output if name])],
        initializers,
    )
    opsets = [
        helper.make_opsetid("", opset),
        *(helper.make_opsetid(name, version) for name, version in DOMAINS.items()),
    ]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return read_model_bytes(model.SerializeToString())


def inferred(
    nodes: str | list[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, ...]],
    *,
    weights: Mapping[str, tuple[int, ...]] | None = None,
    constants: Mapping[str, object] | None = None,
    types: Mapping[str, int] | None = None,
    outputs: Sequence[str] | None = None,
    opset: int = 17,
) -> InferredGraph:
    """The graph of :func:`read_graph` with every fact inferred."""
    model = read_graph(nodes, inputs, weights=weights, constants=constants, types=types, outputs=outputs, opset=opset)
    return infer(model, Bindings())
