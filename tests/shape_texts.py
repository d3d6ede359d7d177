"""Small models as text, and the shapes that are inferred of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import parser

from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.graph.shapes import infer

OPSETS = '"" : {opset}, "com.microsoft" : 1, "ai.onnx.ml" : 3, "my.custom" : 1'


def inferred(text: str, opset: int = 18, **bound: Any) -> InferredGraph:
    """The inference of ``g (inputs) => (outputs) <initializers> { nodes }`` with the keywords as bindings."""
    header = f"<ir_version: 9, opset_import: [{OPSETS.format(opset=opset)}]>\n"
    model = parser.parse_model(header + text)
    if "values" in bound:
        bound["values"] = {name: np.array(value) for name, value in bound["values"].items()}
    return infer(read_model_bytes(model.SerializeToString()), Bindings(**bound))


def shape(result: InferredGraph, name: str) -> tuple[int, ...] | None:
    return result.values[name].shape


def node_name(result: InferredGraph, op_type: str) -> str:
    return next(node.name for node in result.graph.nodes if node.op_type == op_type)
