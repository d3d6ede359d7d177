"""Small models for tests, built with onnx's own helpers or, where onnx refuses to, byte by byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

Shape = Sequence[int | str | None] | None


def value(name: str, shape: Shape = (), dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def node(op_type: str, inputs: str, outputs: str, name: str = "", domain: str = "", **attributes: object) -> NodeProto:
    """Inputs and outputs separated by spaces, "-" for one that is left out."""
    return helper.make_node(
        op_type,
        ["" if part == "-" else part for part in inputs.split()],
        ["" if part == "-" else part for part in outputs.split()],
        name=name or None,
        domain=domain,
        **attributes,
    )


def tensor(name: str, array: NDArray[np.generic]) -> TensorProto:
    return numpy_helper.from_array(array, name)


def external_tensor(
    name: str, dims: Sequence[int], location: str, dtype: int = TensorProto.FLOAT, **entries: int | str
) -> TensorProto:
    result = TensorProto(name=name, dims=dims, data_type=dtype, data_location=TensorProto.EXTERNAL)
    for key, entry in {"location": location, **entries}.items():
        result.external_data.add(key=key, value=str(entry))
    return result


def graph(
    nodes: Sequence[NodeProto],
    inputs: Sequence[onnx.ValueInfoProto] = (),
    outputs: Sequence[onnx.ValueInfoProto] = (),
    initializers: Sequence[TensorProto] = (),
    name: str = "g",
) -> GraphProto:
    return helper.make_graph(nodes, name, inputs, outputs, initializers)


def model(
    main: GraphProto,
    functions: Sequence[FunctionProto] = (),
    opsets: Mapping[str, int] | None = None,
    ir_version: int = 8,
) -> ModelProto:
    imports = [helper.make_opsetid(domain, version) for domain, version in (opsets or {"": 17}).items()]
    return helper.make_model(main, functions=functions, opset_imports=imports, ir_version=ir_version)


def function(
    name: str,
    inputs: str,
    outputs: str,
    nodes: Sequence[NodeProto],
    attributes: Sequence[str] = (),
    defaults: Sequence[AttributeProto] = (),
    opsets: Mapping[str, int] | None = None,
    domain: str = "local",
) -> FunctionProto:
    imports = [helper.make_opsetid(key, version) for key, version in (opsets or {"": 17, "local": 1}).items()]
    return helper.make_function(
        domain, name, inputs.split(), outputs.split(), list(nodes), imports, attributes, list(defaults)
    )


def reference(name: str, attribute: str, kind: AttributeProto.AttributeType) -> AttributeProto:
    """An attribute ``name`` that takes the value of the function's ``attribute``."""
    return AttributeProto(name=name, ref_attr_name=attribute, type=kind)


def decoder() -> ModelProto:
    """A decoder of two layers as ONNX Runtime GenAI exports it: 4 bits in MatMulNBits, GroupQueryAttention with rotary
    embeddings and a cache in 16 bits, lengths made of the mask; weights in a file that isn't there."""
    f16, int32, int64, byte = TensorProto.FLOAT16, TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8
    ms, hidden, heads, groups, size, inner, words = "com.microsoft", 256, 4, 2, 64, 512, 1000
    weights = [tensor("one", np.array([1])), tensor("zero", np.array([0])), tensor("axis", np.array(1))]
    nodes = [
        node("ReduceSum", "mask one", "lengths", "mask/sum"),
        node("Sub", "lengths one", "before", "mask/sub"),
        node("Cast", "before", "seqlens_k", "mask/cast", to=int32),
        node("Shape", "mask", "mask_shape", "mask/shape"),
        node("Gather", "mask_shape axis", "total64", "mask/total"),
        node("Cast", "total64", "total", "mask/total/cast", to=int32),
        node("Gather", "embed ids", "x", "embed"),
        node("SimplifiedLayerNormalization", "x norm", "n", "first/norm", epsilon=1e-5),
    ]

    def weight(name: str, *shape: int, dtype: int = f16) -> str:
        weights.append(external_tensor(name, shape, "decoder.onnx.data", dtype))
        return name

    def product(x: str, name: str, k: int, n: int, y: str = "") -> str:
        packed = f"{weight(f'{name}.q', n, k // 32, 16, dtype=byte)} {weight(f'{name}.s', n * k // 32)}"
        y = y or f"{name}.y"
        nodes.append(node("MatMulNBits", f"{x} {packed}", y, name, ms, K=k, N=n, bits=4, block_size=32))
        return y

    for name, shape in {"embed": (words, hidden), "norm": (hidden,), "cos": (4096, 32), "sin": (4096, 32)}.items():
        weight(name, *shape)
    past, present = [], []
    x, n = "x", "n"
    for layer in ("0", "1"):
        q, k, v = (product(n, f"{layer}/{part}", hidden, width) for part, width in (("q", 256), ("k", 128), ("v", 128)))
        for kind in ("key", "value"):
            at = ["batch_size", groups, "past_sequence_length", size]
            past.append(value(f"past.{layer}.{kind}", at, f16))
            present.append(value(f"present.{layer}.{kind}", ["batch_size", groups, "total_sequence_length", size], f16))
        caches = f"past.{layer}.key past.{layer}.value", f"present.{layer}.key present.{layer}.value"
        nodes.append(
            node(
                "GroupQueryAttention",
                f"{q} {k} {v} {caches[0]} seqlens_k total cos sin",
                f"{layer}/a {caches[1]}",
                f"{layer}/attention",
                ms,
                num_heads=heads,
                kv_num_heads=groups,
                do_rotary=1,
            )
        )
        o = product(f"{layer}/a", f"{layer}/o", hidden, hidden)
        skip = f"{layer}/n - - {layer}/x"
        norm = weight(f"{layer}/norm", hidden)
        nodes.append(node("SkipSimplifiedLayerNormalization", f"{x} {o} {norm}", skip, f"{layer}/norm", ms))
        gate, up = (product(f"{layer}/n", f"{layer}/{part}", hidden, inner) for part in ("gate", "up"))
        nodes += [
            node("Sigmoid", gate, f"{layer}/s", f"{layer}/sigmoid"),
            node("Mul", f"{gate} {layer}/s", f"{layer}/silu", f"{layer}/act"),
            node("Mul", f"{layer}/silu {up}", f"{layer}/m", f"{layer}/mul"),
        ]
        down = product(f"{layer}/m", f"{layer}/down", inner, hidden)
        x, n = f"{layer}/z", f"{layer}/zn"
        norm = weight(f"{layer}/last", hidden)
        nodes.append(node("SkipSimplifiedLayerNormalization", f"{layer}/x {down} {norm}", f"{n} - - {x}", norm, ms))
    product(n, "head", hidden, words, "logits")
    ids = value("ids", ["batch_size", "sequence_length"], int64)
    mask = value("mask", ["batch_size", "total_sequence_length"], int64)
    logits = value("logits", ["batch_size", "sequence_length", words], f16)
    return model(graph(nodes, [ids, mask, *past], [logits, *present], weights), opsets={"": 17, ms: 1})


def linear(weight: TensorProto | None = None) -> ModelProto:
    """x (batch, 4) @ w (4, 3) + b (3) -> y, ReLU."""
    w = tensor("w", np.zeros((4, 3), np.float32)) if weight is None else weight
    return model(
        graph(
            [
                node("MatMul", "x w", "xw", "fc/MatMul"),
                node("Add", "xw b", "pre", "fc/Add"),
                node("Relu", "pre", "y", "act"),
            ],
            [value("x", ["batch", 4])],
            [value("y", ["batch", 3])],
            [w, tensor("b", np.zeros(3, np.float32))],
        )
    )


def varint(number: int) -> bytes:
    result = b""
    while number > 127:
        result += bytes([number & 127 | 128])
        number >>= 7
    return result + bytes([number])


def part(number: int, content: bytes) -> bytes:
    """A length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def number(number: int, content: int) -> bytes:
    """A varint protobuf field."""
    return varint(number << 3) + varint(content)


def nested_ifs(depth: int) -> bytes:
    """A model whose If holds an If that holds an If …, which onnx itself could not write; else, x is handed on."""
    body = part(1, node("Identity", "x", "y0").SerializeToString()) + part(12, value("y0").SerializeToString())
    for level in range(1, depth + 1):
        branch = part(1, b"then_branch") + part(6, body) + number(20, AttributeProto.GRAPH)
        leaf = part(1, node("Identity", "x", f"e{level}").SerializeToString())
        leaf += part(12, value(f"e{level}").SerializeToString())
        other = part(1, b"else_branch") + part(6, leaf) + number(20, AttributeProto.GRAPH)
        inner = part(1, b"c") + part(2, f"y{level}".encode()) + part(4, b"If") + part(5, branch) + part(5, other)
        body = part(1, inner) + part(12, value(f"y{level}").SerializeToString())
    inputs = part(11, value("x").SerializeToString()) + part(11, value("c", (), TensorProto.BOOL).SerializeToString())
    return number(1, 8) + part(8, number(2, 17)) + part(7, body + inputs)
