"""What ONNX Runtime's ``quantize_static`` writes of a float graph where it is told to quantise products alone.

``quantize_static(..., quant_format=QDQ, op_types_to_quantize=["Conv", "ConvTranspose", "Gemm", "MatMul"])`` of
onnxruntime 1.32, all else as it is by default, of a file that ``quant_pre_process`` prepared: each tensor that such a
node reads or writes has one pair, which all its readers share; a constant is stored in INT8 with a DequantizeLinear, a
constant bias in INT32 (``quantization/qdq_quantizer.py`` and ``operators``). Bodies of control flow are left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.quantization.pairs import is_rounding
from neusight_onnx.graph.model import InferredGraph, Initializer, Node, Value, kept_values, made_name

QUANTIZED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""``op_types_to_quantize``: convolutions and linear layers, and by MatMul products of two activations as well."""
_BIASED = frozenset({"Conv", "ConvTranspose", "Gemm"})
_BIAS = 2
_FLOATS = (DataType.FLOAT32, DataType.FLOAT16)
_PAIRS_SINCE = 10
"""Opset that brought QuantizeLinear."""


@dataclass(slots=True, kw_only=True)
class _Written:
    """The file as far as it is written: facts of its values, and its constants."""

    values: dict[str, Value]
    initializers: dict[str, Initializer]

    def constant(self, name: str, dtype: DataType, shape: tuple[int, ...]) -> str:
        data = np.zeros(shape, np.float32 if dtype in _FLOATS else np.int32) if not shape else None
        self.values[name] = Value(dtype=dtype, shape=shape, data=data, is_constant=True)
        self.initializers[name] = Initializer(name=name, dtype=dtype, shape=shape, data=data)
        return name

    def rounding(self, like: Node, op_type: str, operands: tuple[str, str], stored: DataType, tensor: str) -> Node:
        """A QuantizeLinear or DequantizeLinear (source, target) of ``tensor`` beside ``like``, with one scale."""
        source, target = operands
        floats = self.values[tensor].dtype
        assert floats is not None
        scale = self.constant(made_name(tensor, "scale"), floats, ())
        zero = self.constant(made_name(tensor, "zero point"), stored, ())
        return Node(
            name=made_name(like.name, op_type, tensor),
            op_type=op_type,
            version=max(like.version, _PAIRS_SINCE),
            inputs=(source, scale, zero),
            outputs=(target,),
            origins=like.stands_for,
        )

    def stored(self, tensor: str, dtype: DataType, like: Node) -> Node:
        """A constant's DequantizeLinear."""
        value = self.values[tensor]
        assert value.shape is not None
        narrow = self.constant(made_name(tensor, "quantised"), dtype, value.shape)
        wide = made_name(tensor, "dequantised")
        self.values[wide] = replace(value, data=None, data_low=None)
        return self.rounding(like, "DequantizeLinear", (narrow, wide), dtype, tensor)

    def pair(self, tensor: str, ends: tuple[str, str], like: Node) -> Iterator[Node]:
        """A tensor's QuantizeLinear and DequantizeLinear, between ``ends``."""
        between = made_name(tensor, "quantised")
        value = replace(self.values[tensor], data=None, data_low=None)
        self.values[between] = replace(value, dtype=DataType.INT8)
        for end in ends:
            self.values[end] = value
        yield self.rounding(like, "QuantizeLinear", (ends[0], between), DataType.INT8, tensor)
        yield self.rounding(like, "DequantizeLinear", (between, ends[1]), DataType.INT8, tensor)


def with_static_quantization(graph: InferredGraph) -> InferredGraph:
    """``graph`` as ``quantize_static`` writes it; nodes that the file quantises stay as they are."""
    written = _Written(values=dict(graph.values), initializers=dict(graph.graph.initializers))
    nodes = _with_folded_norms(graph, written)
    before = {name for node in nodes if is_rounding(node, "DequantizeLinear") for name in node.outputs}
    quantised = [
        node
        for node in nodes
        if node.op_type in QUANTIZED and not node.domain and before.isdisjoint(node.inputs) and len(node.inputs) > 1
    ]
    tensors = [name for node in quantised for name in (*node.inputs[:_BIAS], node.outputs[0])]
    rounded = {name for name in tensors if _is_float(written.values.get(name)) and name not in before}
    if not rounded:
        return graph
    biased = {node.name for node in quantised if node.op_type in _BIASED and len(node.inputs) > _BIAS}
    outputs = {declared.name for declared in graph.graph.outputs}
    constants: list[Node] = []
    """Their DequantizeLinear nodes wait for nothing and stand in front."""
    found: list[Node] = []
    wide: dict[str, str] = {}

    def read(tensor: str, like: Node) -> str:
        """A tensor's name for those who read it, once what rounds it is written."""
        if tensor in rounded and tensor not in wide:
            if written.values[tensor].is_constant:
                constants.append(written.stored(tensor, DataType.INT8, like))
                wide[tensor] = constants[-1].outputs[0]
            else:
                wide[tensor] = made_name(tensor, "dequantised")
                found.extend(written.pair(tensor, (tensor, wide[tensor]), like))
        return wide.get(tensor, tensor)

    for node in nodes:
        inputs = [read(name, node) for name in node.inputs]
        if node.name in biased and _is_constant(bias := written.values.get(node.inputs[_BIAS])) and _is_float(bias):
            own = made_name(node.inputs[_BIAS], node.name)
            written.values[own] = written.values[node.inputs[_BIAS]]
            constants.append(written.stored(own, DataType.INT32, node))
            inputs[_BIAS] = constants[-1].outputs[0]
        renamed = {name: made_name(name, "unrounded") for name in node.outputs if name in rounded and name in outputs}
        found.append(
            replace(node, inputs=tuple(inputs), outputs=tuple(renamed.get(name, name) for name in node.outputs))
        )
        for name, source in renamed.items():
            wide[name] = name
            found.extend(written.pair(name, (source, name), node))
    initializers = _still_read(written.initializers, (*constants, *found), kept_values(graph))
    whole = replace(graph.graph, nodes=(*constants, *found), initializers=initializers)
    return replace(graph, graph=whole, values=written.values)


def _is_float(value: Value | None) -> bool:
    return value is not None and value.kind == "tensor" and value.dtype in _FLOATS and value.shape is not None


def _is_constant(value: Value | None) -> bool:
    return value is not None and value.is_constant


def _still_read(
    initializers: dict[str, Initializer], nodes: Iterable[Node], kept: frozenset[str]
) -> dict[str, Initializer]:
    """Without the floats of what is stored in few bits."""
    read = kept.union(*(node.inputs for node in nodes))
    return {name: constant for name, constant in initializers.items() if name in read}


def _with_folded_norms(graph: InferredGraph, written: _Written) -> Sequence[Node]:
    """A BatchNormalization behind a convolution is folded by ``quant_pre_process``: the convolution has a bias then."""
    nodes, kept = graph.graph.nodes, kept_values(graph)
    if not any(node.op_type == "BatchNormalization" for node in nodes):
        return nodes
    reads = Counter(name for node in nodes for name in node.inputs if name)
    norms = {
        node.inputs[0]: node
        for node in nodes
        if node.op_type == "BatchNormalization"
        and not node.domain
        and reads[node.inputs[0]] == 1
        and node.inputs[0] not in kept
        and all(_is_constant(written.values.get(name)) for name in node.inputs[1:])
    }
    found: list[Node] = []
    gone: set[str] = set()
    for node in nodes:
        norm = norms.get(node.outputs[0]) if node.op_type == "Conv" and not node.domain and node.outputs else None
        if norm is None or not _is_constant(written.values.get(node.inputs[1])):
            found.append(node)
            continue
        gone.add(norm.name)
        bias = made_name(norm.inputs[2], "folded", norm.name)
        parameter = written.values[norm.inputs[2]]
        if parameter.dtype is not None and parameter.shape is not None:
            written.constant(bias, parameter.dtype, parameter.shape)
        origins = (*node.stands_for, *norm.stands_for)
        found.append(replace(node, inputs=(*node.inputs[:2], bias), outputs=norm.outputs[:1], origins=origins))
    return [node for node in found if node.name not in gone]
