"""Models as read from bytes."""

from __future__ import annotations

from pathlib import Path

from onnx import ModelProto

from models import function, graph, model, node, value
from neusight_onnx.graph.model import Model
from neusight_onnx.graph.read import read_model_bytes


def read(proto: ModelProto) -> Model:
    return read_model_bytes(proto.SerializeToString(), label="m.onnx")


def codes(read_in: Model) -> list[str]:
    return [notice.code for notice in read_in.warnings]


def doubling(levels: int) -> ModelProto:
    """2**levels nodes from a few bytes: each function calls the next one twice."""
    functions = [function("F0", "x", "y", [node("Relu", "x", "y")])]
    for level in range(1, levels + 1):
        call = f"F{level - 1}"
        functions.append(
            function(
                f"F{level}", "x", "y", [node(call, "x", "t", domain="local"), node(call, "t", "y", domain="local")]
            )
        )
    main = graph([node(f"F{levels}", "x", "y", domain="local")], [value("x")])
    return model(main, functions, {"": 17, "local": 1})


def saved(tmp_path: Path, proto: ModelProto) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path
