"""Writes the example models: whole graphs, no weights.

    python examples/make_models.py [FOLDER]

Every weight is declared with its type and shape as external data in a file that does not exist, which is all that
an analysis needs. The architectures are written down from their papers; nothing is taken from a trained model.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, checker, helper, numpy_helper

OPSET = 17  # the first with LayerNormalization
IR_VERSION = 8  # what came with opset 17


@dataclass(slots=True)
class GraphWriter:
    """Collects nodes and weights; ``weight`` and ``node`` return the name of the tensor that they made."""

    weights_file: str
    nodes: list[NodeProto] = field(default_factory=list)
    initializers: list[TensorProto] = field(default_factory=list)
    weight_bytes: int = 0

    def weight(self, name: str, *shape: int) -> str:
        """A float32 tensor of this shape whose content lies in the (absent) weights file."""
        length = 4 * prod(shape)
        tensor = TensorProto(name=name, dims=shape, data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
        entries = {"location": self.weights_file, "offset": str(self.weight_bytes), "length": str(length)}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
        self.initializers.append(tensor)
        self.weight_bytes += length
        return name

    def constant(self, name: str, value: float | Sequence[int], dtype: type[np.generic]) -> str:
        """A small tensor whose content stands in the graph."""
        self.initializers.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def node(self, op_type: str, name: str, inputs: Sequence[str], **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op_type, list(inputs), [f"{name}_output"], name=name, **attributes))
        return f"{name}_output"

    def model(self, name: str, inputs: Sequence[ValueInfoProto], outputs: dict[str, ValueInfoProto]) -> ModelProto:
        """``outputs``: the tensor that an output's value is, and the output's declaration."""
        renamed = {tensor: info.name for tensor, info in outputs.items()}
        for node in self.nodes:
            node.input[:] = [renamed.get(tensor, tensor) for tensor in node.input]
            node.output[:] = [renamed.get(tensor, tensor) for tensor in node.output]
        graph = helper.make_graph(self.nodes, name, inputs, list(outputs.values()), initializer=self.initializers)
        return helper.make_model(
            graph,
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET)],
            producer_name="neusight-onnx examples",
        )


# -- ResNet-50 -----------------------------------------------------------------------------------------------


def resnet50() -> ModelProto:
    """ResNet-50 for images of 3 x 224 x 224 and 1000 classes.

    He, Zhang, Ren, Sun: "Deep Residual Learning for Image Recognition", 2015, table 1 and figure 5 (right). As in
    most implementations since, the stride of a stage is in its first 3x3 convolution, not in the 1x1 before it.
    25,557,032 parameters and 53,120 running statistics of batch normalization.
    """
    writer = GraphWriter(weights_file="resnet50.weights")
    x = _convolution(writer, "stem", "images", (3, 64), size=7, stride=2)
    x = writer.node("MaxPool", "stem.pool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for stage, (block_count, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)], start=1):
        for block in range(block_count):
            stride = 2 if stage > 1 and block == 0 else 1
            x = _bottleneck(writer, f"stage{stage}.{block}", x, (channels, width), stride)
            channels = 4 * width
    x = writer.node("GlobalAveragePool", "pool", [x])
    x = writer.node("Flatten", "flatten", [x], axis=1)
    weight, bias = writer.weight("classifier.weight", 1000, channels), writer.weight("classifier.bias", 1000)
    x = writer.node("Gemm", "classifier", [x, weight, bias], transB=1)
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, 224, 224])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 1000])
    return writer.model("resnet50", [images], {x: logits})


def _bottleneck(writer: GraphWriter, name: str, x: str, channels: tuple[int, int], stride: int) -> str:
    """1x1 down to ``width``, 3x3, 1x1 up to 4 x ``width``, plus the input (projected where its shape differs)."""
    inputs, width = channels
    branch = _convolution(writer, f"{name}.reduce", x, (inputs, width))
    branch = _convolution(writer, f"{name}.spatial", branch, (width, width), size=3, stride=stride)
    branch = _convolution(writer, f"{name}.expand", branch, (width, 4 * width), relu=False)
    if stride != 1 or inputs != 4 * width:
        x = _convolution(writer, f"{name}.project", x, (inputs, 4 * width), stride=stride, relu=False)
    x = writer.node("Add", f"{name}.add", [branch, x])
    return writer.node("Relu", f"{name}.relu", [x])


def _convolution(
    writer: GraphWriter,
    name: str,
    x: str,
    channels: tuple[int, int],
    *,
    size: int = 1,
    stride: int = 1,
    relu: bool = True,
) -> str:
    """Convolution without bias, batch normalization, and ReLU unless told otherwise."""
    inputs, outputs = channels
    filters = writer.weight(f"{name}.conv.weight", outputs, inputs, size, size)
    pads, strides = [size // 2] * 4, [stride] * 2
    x = writer.node("Conv", f"{name}.conv", [x, filters], kernel_shape=[size, size], strides=strides, pads=pads)
    parts = [writer.weight(f"{name}.norm.{part}", outputs) for part in ("scale", "shift", "mean", "variance")]
    x = writer.node("BatchNormalization", f"{name}.norm", [x, *parts], epsilon=1e-5)
    return writer.node("Relu", f"{name}.relu", [x]) if relu else x


# -- BERT base -----------------------------------------------------------------------------------------------

_HIDDEN, _HEADS, _LAYERS = 768, 12, 12
_VOCABULARY, _POSITIONS, _SEGMENTS = 30522, 512, 2
_LOWEST = float(np.finfo(np.float32).min)


def bert_base() -> ModelProto:
    """The encoder of BERT base, with embeddings, attention mask and pooler; batch and sequence length are free.

    Devlin, Chang, Lee, Toutanova: "BERT: Pre-training of Deep Bidirectional Transformers for Language
    Understanding", 2018, section 3 and appendix A.2. GELU is written out with Erf and attention with two MatMul,
    as exporters leave them at this opset. 109,482,240 parameters.
    """
    writer = GraphWriter(weights_file="bert_base.weights")
    writer.constant("zero", 0, np.int64)
    writer.constant("one", 1, np.int64)
    writer.constant("axes_1_2", [1, 2], np.int64)
    writer.constant("split_heads", [0, 0, _HEADS, _HIDDEN // _HEADS], np.int64)
    writer.constant("merge_heads", [0, 0, _HIDDEN], np.int64)
    writer.constant("head_scale", (_HIDDEN // _HEADS) ** -0.5, np.float32)
    for name, value in {"one_f": 1.0, "half": 0.5, "sqrt_2": 2**0.5, "lowest": _LOWEST}.items():
        writer.constant(name, value, np.float32)

    x = _embeddings(writer)
    mask = writer.node("Unsqueeze", "mask.unsqueeze", ["attention_mask", "axes_1_2"])
    mask = writer.node("Cast", "mask.cast", [mask], to=TensorProto.FLOAT)
    mask = writer.node("Sub", "mask.invert", ["one_f", mask])
    mask = writer.node("Mul", "mask.scale", [mask, "lowest"])
    for layer in range(_LAYERS):
        x = _encoder_layer(writer, f"layer{layer}", x, mask)
    first = writer.node("Gather", "pooler.first", [x, "zero"], axis=1)
    weight, bias = writer.weight("pooler.weight", _HIDDEN, _HIDDEN), writer.weight("pooler.bias", _HIDDEN)
    pooled = writer.node("Gemm", "pooler.dense", [first, weight, bias], transB=1)
    pooled = writer.node("Tanh", "pooler.tanh", [pooled])

    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"]) for name in names]
    hidden = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "sequence", _HIDDEN])
    pooler = helper.make_tensor_value_info("pooler_output", TensorProto.FLOAT, ["batch", _HIDDEN])
    return writer.model("bert_base", inputs, {x: hidden, pooled: pooler})


def _embeddings(writer: GraphWriter) -> str:
    """Words + segments + positions 0, 1, … of the sequence, normalized."""
    table = writer.weight("embeddings.words", _VOCABULARY, _HIDDEN)
    x = writer.node("Gather", "embeddings.word", [table, "input_ids"])
    segments = writer.weight("embeddings.segments", _SEGMENTS, _HIDDEN)
    x = writer.node(
        "Add", "embeddings.add_segment", [x, writer.node("Gather", "embeddings.segment", [segments, "token_type_ids"])]
    )
    shape = writer.node("Shape", "embeddings.shape", ["input_ids"])
    length = writer.node("Gather", "embeddings.length", [shape, "one"])
    numbers = writer.node("Range", "embeddings.range", ["zero", length, "one"])
    positions = writer.weight("embeddings.positions", _POSITIONS, _HIDDEN)
    x = writer.node(
        "Add", "embeddings.add_position", [x, writer.node("Gather", "embeddings.position", [positions, numbers])]
    )
    return _layer_norm(writer, "embeddings.norm", x)


def _encoder_layer(writer: GraphWriter, name: str, x: str, mask: str) -> str:
    """Self-attention and a feed-forward of 4 x the width, each added to its input and then normalized."""
    heads = {}
    for part in ("query", "key", "value"):
        projected = _linear(writer, f"{name}.attention.{part}", x, _HIDDEN, _HIDDEN)
        split = writer.node("Reshape", f"{name}.attention.{part}.split", [projected, "split_heads"])
        order = [0, 2, 3, 1] if part == "key" else [0, 2, 1, 3]
        heads[part] = writer.node("Transpose", f"{name}.attention.{part}.transpose", [split], perm=order)
    scores = writer.node("MatMul", f"{name}.attention.scores", [heads["query"], heads["key"]])
    scores = writer.node("Mul", f"{name}.attention.scale", [scores, "head_scale"])
    scores = writer.node("Add", f"{name}.attention.mask", [scores, mask])
    weights = writer.node("Softmax", f"{name}.attention.softmax", [scores], axis=-1)
    context = writer.node("MatMul", f"{name}.attention.context", [weights, heads["value"]])
    context = writer.node("Transpose", f"{name}.attention.transpose", [context], perm=[0, 2, 1, 3])
    context = writer.node("Reshape", f"{name}.attention.merge", [context, "merge_heads"])
    attended = _linear(writer, f"{name}.attention.output", context, _HIDDEN, _HIDDEN)
    x = _layer_norm(writer, f"{name}.attention.norm", writer.node("Add", f"{name}.attention.add", [attended, x]))

    inner = _gelu(
        writer, f"{name}.feed_forward.gelu", _linear(writer, f"{name}.feed_forward.up", x, _HIDDEN, 4 * _HIDDEN)
    )
    outer = _linear(writer, f"{name}.feed_forward.down", inner, 4 * _HIDDEN, _HIDDEN)
    return _layer_norm(writer, f"{name}.norm", writer.node("Add", f"{name}.add", [outer, x]))


def _linear(writer: GraphWriter, name: str, x: str, inputs: int, outputs: int) -> str:
    product = writer.node("MatMul", f"{name}.matmul", [x, writer.weight(f"{name}.weight", inputs, outputs)])
    return writer.node("Add", f"{name}.add_bias", [product, writer.weight(f"{name}.bias", outputs)])


def _layer_norm(writer: GraphWriter, name: str, x: str) -> str:
    parts = [writer.weight(f"{name}.{part}", _HIDDEN) for part in ("scale", "shift")]
    return writer.node("LayerNormalization", name, [x, *parts], axis=-1, epsilon=1e-12)


def _gelu(writer: GraphWriter, name: str, x: str) -> str:
    """x * (1 + erf(x / sqrt 2)) / 2."""
    error = writer.node("Erf", f"{name}.erf", [writer.node("Div", f"{name}.div", [x, "sqrt_2"])])
    factor = writer.node("Add", f"{name}.add_one", [error, "one_f"])
    return writer.node("Mul", f"{name}.halve", [writer.node("Mul", f"{name}.mul", [x, factor]), "half"])


MODELS = {"resnet50": resnet50, "bert_base": bert_base}


def check(model: ModelProto) -> None:
    """onnx's own check, shapes and types included. It wants the weights file: one full of zeros will do."""
    external = [{entry.key: entry.value for entry in tensor.external_data} for tensor in model.graph.initializer]
    with tempfile.TemporaryDirectory() as folder:
        for entries in filter(None, external):
            with (Path(folder) / entries["location"]).open("ab") as weights:
                weights.truncate(int(entries["offset"]) + int(entries["length"]))  # ascending: takes no disk space
        path = Path(folder) / "model.onnx"
        path.write_bytes(model.SerializeToString())
        checker.check_model(str(path), full_check=True)


def main(arguments: Sequence[str]) -> None:
    folder = Path(arguments[0]) if arguments else Path(__file__).resolve().parent
    for name, make in MODELS.items():
        model = make()
        check(model)
        path = folder / f"{name}.onnx"
        path.write_bytes(model.SerializeToString(deterministic=True))
        print(f"{path}: {len(model.graph.node)} nodes, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
