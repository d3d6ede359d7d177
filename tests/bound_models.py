"""Models whose sizes tests bind."""

from __future__ import annotations

import onnx

from models import graph, model
from neusight_onnx.graph.model import Model
from neusight_onnx.graph.read import read_model_bytes


def with_inputs(*inputs: onnx.ValueInfoProto, nodes: list[onnx.NodeProto] | None = None) -> Model:
    return read_model_bytes(model(graph(nodes or [], inputs)).SerializeToString())


GROUPED = "GroupQueryAttention"
