"""Damage for model files: bytes flipped and cut; protobuf fields changed, swapped, copied, with lengths kept right."""

from __future__ import annotations

import random

import numpy as np
from onnx import AttributeProto, ModelProto, TensorProto, helper

from models import (
    external_tensor,
    function,
    graph,
    linear,
    model,
    nested_ifs,
    node,
    reference,
    tensor,
    value,
    varint,
)

Field = tuple[int, int, bytes | int]
"""Number, wire type, payload (an integer for wire type 0)."""

EXTREMES = (0, 1, 2**7, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
TEXTS = (b"", b"\xff\xfe", b"../../etc/passwd", b"/etc/passwd", b"x" * 100_000, b"a\nb", b"-1", b"x", b"y", b"F1")


def originals() -> list[bytes]:
    """Small models that between them use every part of the format."""
    return [
        linear().SerializeToString(),
        linear(external_tensor("w", [4, 3], "w.bin", offset=0, length=48)).SerializeToString(),
        shapes().SerializeToString(),
        control_flow().SerializeToString(),
        functions().SerializeToString(),
        nested_ifs(8),
        quantised().SerializeToString(),
        router().SerializeToString(),
        sequences().SerializeToString(),
    ]


def shapes() -> ModelProto:
    """x (b, s, 8) reshaped by shape arithmetic, sliced, expanded; constants of several kinds."""
    return model(
        graph(
            [
                node("Shape", "x", "sizes"),
                node("Constant", "", "zero", value=tensor("", np.array(0))),
                node("Gather", "sizes zero", "b", axis=0),
                node("Constant", "", "axes", value_ints=[0]),
                node("Unsqueeze", "b axes", "b1"),
                node("Concat", "b1 rest", "target", axis=0),
                node("Reshape", "x target", "flat"),
                node("Slice", "flat from to", "part"),
                node("Expand", "part wide", "big"),
                node("Conv", "image filter", "features", kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=2),
                node("Softmax", "big", "y", axis=-1),
            ],
            [value("x", ["b", "s", 8]), value("image", [1, 4, 8, 8])],
            [value("y", None), value("features", [1, 6, 8, 8])],
            [
                tensor("rest", np.array([-1])),
                tensor("from", np.array([0, 1])),
                tensor("to", np.array([2**31, 5])),
                tensor("wide", np.array([3, 1, 1])),
                tensor("filter", np.zeros((6, 2, 3, 3), np.float32)),
                helper.make_tensor("typed", TensorProto.INT64, [4], [1, 2, 3, 4]),
            ],
        )
    )


def control_flow() -> ModelProto:
    """An If within a Loop; the branches read outer values."""
    then = graph([node("MatMul", "state w", "t")], [], [value("t", [4, 4])], name="then")
    otherwise = graph([node("Relu", "state", "e")], [], [value("e", [4, 4])], name="else")
    body = graph(
        [
            node("If", "go", "next", "choose", then_branch=then, else_branch=otherwise),
            node("Identity", "go", "go_on"),
            node("Identity", "next", "kept"),
        ],
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("state", [4, 4])],
        [value("go_on", [], TensorProto.BOOL), value("next", [4, 4]), value("kept", [4, 4])],
        name="body",
    )
    return model(
        graph(
            [node("Loop", "trips yes x", "last all", "loop", body=body), node("Add", "last bias", "y")],
            [value("x", [4, 4])],
            [value("y", [4, 4]), value("all", [None, 4, 4])],
            [
                tensor("trips", np.array(5)),
                tensor("yes", np.array(True)),
                tensor("w", np.zeros((4, 4), np.float32)),
                tensor("bias", np.zeros(4, np.float32)),
            ],
        )
    )


def functions() -> ModelProto:
    """A function that calls another one, with attributes handed on."""
    inner = node("LeakyRelu", "x", "y")
    inner.attribute.append(reference("alpha", "alpha", AttributeProto.FLOAT))
    call = node("F1", "t", "y", domain="local")
    call.attribute.append(reference("alpha", "alpha", AttributeProto.FLOAT))
    return model(
        graph(
            [node("F2", "x w", "h", "a", domain="local", alpha=0.5), node("F2", "h w", "y", "b", domain="local")],
            [value("x", ["b", 4]), value("w", [4, 4])],
            [value("y", ["b", 4])],
        ),
        [
            function("F1", "x", "y", [inner], ["alpha"]),
            function("F2", "x w", "y", [node("MatMul", "x w", "t"), call], [], [helper.make_attribute("alpha", 0.1)]),
        ],
        {"": 17, "local": 1},
    )


def quantised() -> ModelProto:
    """Pairs around a convolution and a product with weights of 4 bits; a QLinear operator of com.microsoft."""
    one = [tensor("s", np.array(0.1, np.float32)), tensor("z", np.array(3, np.uint8))]
    return model(
        graph(
            [
                node("DequantizeLinear", "x s z", "xf"),
                node("DequantizeLinear", "w s wz", "wf"),
                node("Conv", "xf wf", "c", pads=[1, 1, 1, 1]),
                node("Relu", "c", "r"),
                node("QuantizeLinear", "r s z", "q"),
                node("QLinearAdd", "q s z q s z s z", "a", domain="com.microsoft"),
                node("DequantizeLinear", "a s z", "af"),
                node("Reshape", "af rows", "m"),
                node("DequantizeLinear", "narrow scales", "nf", axis=0, block_size=8),
                node("MatMul", "m nf", "y"),
            ],
            [value("x", ["b", 4, 4, 4], TensorProto.UINT8)],
            [value("y", None)],
            [
                *one,
                tensor("wz", np.array(0, np.int8)),
                tensor("w", np.zeros((4, 4, 3, 3), np.int8)),
                tensor("rows", np.array([-1, 16])),
                helper.make_tensor("narrow", TensorProto.INT4, [16, 6], [1] * 96),
                tensor("scales", np.ones((2, 6), np.float32)),
            ],
        ),
        opsets={"": 21, "com.microsoft": 1},
        ir_version=10,
    )


def router() -> ModelProto:
    """A mixture of experts without a capacity: what an expert gets depends on data."""
    return model(
        graph(
            [
                node("MatMul", "x gate", "p"),
                node("TopK", "p two", "best choice"),
                node("OneHot", "choice four levels", "hot"),
                node("Transpose", "hot", "mask", perm=[2, 1, 0]),
                node("Gather", "mask first", "slice"),
                node("NonZero", "slice", "places"),
                node("Split", "places", "ranks tokens", axis=0, num_outputs=2),
                node("Squeeze", "tokens axis", "rows"),
                node("Gather", "x rows", "taken"),
                node("MatMul", "taken w", "h"),
                node("Unsqueeze", "rows last", "at"),
                node("ScatterND", "x at h", "y", reduction="add"),
            ],
            [value("x", ["n", 8])],
            [value("y", ["n", 8])],
            [
                tensor("gate", np.zeros((8, 4), np.float32)),
                tensor("w", np.zeros((8, 8), np.float32)),
                tensor("two", np.array([2])),
                tensor("four", np.array(4)),
                tensor("first", np.array(1)),
                tensor("levels", np.array([0, 1])),
                tensor("axis", np.array([0])),
                tensor("last", np.array([1])),
            ],
        ),
        opsets={"": 18},
    )


def sequences() -> ModelProto:
    """Lists, an optional, attention with a cache, a recurrent layer, a scan."""
    step = graph(
        [node("Add", "h e", "h2"), node("Identity", "h2", "o")],
        [value("h", [4]), value("e", [4])],
        [value("h2", [4]), value("o", [4])],
        name="step",
    )
    return model(
        graph(
            [
                node("SequenceConstruct", "x x", "list"),
                node("SequenceInsert", "list x", "longer"),
                node("ConcatFromSequence", "longer", "joined", axis=0),
                node("SplitToSequence", "joined", "parts", axis=1, keepdims=1),
                node("SequenceAt", "parts where", "part"),
                node("Scan", "start x", "final all", body=step, num_scan_inputs=1),
                node("LSTM", "time w r", "states hidden cell", hidden_size=3, direction="bidirectional"),
                node(
                    "GroupQueryAttention",
                    "q k k past past lengths total",
                    "attended nk nv",
                    domain="com.microsoft",
                    num_heads=4,
                    kv_num_heads=2,
                ),
            ],
            [
                value("x", ["n", 4]),
                value("time", ["t", 2, 5]),
                value("q", ["b", "s", 32]),
                value("k", ["b", "s", 16]),
                value("past", ["b", 2, "p", 8]),
                value("lengths", ["b"], TensorProto.INT32),
                value("total", [], TensorProto.INT32),
            ],
            [value(name, None) for name in ("part", "final", "all", "states", "attended", "nk")],
            [
                tensor("where", np.array(1)),
                tensor("start", np.zeros(4, np.float32)),
                tensor("w", np.zeros((2, 12, 5), np.float32)),
                tensor("r", np.zeros((2, 12, 3), np.float32)),
            ],
        ),
        opsets={"": 18, "com.microsoft": 1},
    )


def mutated(content: bytes, chance: random.Random) -> bytes:
    """``content`` with one to four wounds."""
    for _ in range(chance.randint(1, 4)):
        content = _wounded_bytes(content, chance) if chance.random() < 0.25 else _wounded_fields(content, chance)
    return content


def _wounded_bytes(content: bytes, chance: random.Random) -> bytes:
    if not content:
        return content
    at, length = chance.randrange(len(content)), chance.randint(1, 20)
    match chance.randrange(5):
        case 0:
            return content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]
        case 1:
            return content[:at]
        case 2:
            return content[:at] + content[at + length :]
        case 3:
            return content[:at] + chance.randbytes(length) + content[at:]
        case _:
            return content[: at + length] + content[at:]


def _fields(content: bytes) -> list[Field] | None:
    """The fields of a message, None if it is none."""
    result: list[Field] = []
    position = 0
    while position < len(content):
        key, position = _varint(content, position)
        if key < 8:
            return None
        match key & 7:
            case 0:
                number, position = _varint(content, position)
                if number < 0:
                    return None
                result.append((key >> 3, 0, number))
                continue
            case 1:
                length = 8
            case 5:
                length = 4
            case 2:
                length, position = _varint(content, position)
            case _:
                return None
        if length < 0 or position + length > len(content):
            return None
        result.append((key >> 3, key & 7, content[position : position + length]))
        position += length
    return result


def _varint(content: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while position < len(content) and shift < 70:
        byte = content[position]
        position += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result, position
        shift += 7
    return -1, position


def _written(fields: list[Field]) -> bytes:
    result = bytearray()
    for number, wire, payload in fields:
        result += varint(number << 3 | wire)
        if isinstance(payload, int):
            result += varint(payload & (2**64 - 1))
        else:
            if wire == 2:
                result += varint(len(payload))
            result += payload
    return bytes(result)


def _wounded_fields(content: bytes, chance: random.Random, depth: int = 0) -> bytes:
    """Descends to a random message within and changes one of its fields."""
    fields = _fields(content)
    if not fields:
        return _wounded_bytes(content, chance)
    at = chance.randrange(len(fields))
    number, wire, payload = fields[at]
    if isinstance(payload, bytes) and wire == 2 and depth < 30 and chance.random() < 0.8 and _fields(payload):
        fields[at] = (number, wire, _wounded_fields(payload, chance, depth + 1))
        return _written(fields)
    match chance.randrange(7):
        case 0:
            del fields[at]
        case 1:
            fields.insert(chance.randrange(len(fields) + 1), fields[at])
        case 2:
            other = chance.randrange(len(fields))
            fields[at], fields[other] = fields[other], fields[at]
        case 3:
            fields[at] = (number, 0, chance.choice(EXTREMES))
        case 4:
            fields[at] = (chance.randint(1, 26), wire, payload)
        case 5 if isinstance(payload, int):
            fields[at] = (number, 0, chance.choice([*EXTREMES, payload + 1, payload - 1]))
        case 5:
            fields[at] = (number, 2, chance.choice(TEXTS))
        case _:
            # The content of one field in another: names of other values, a graph in place of a tensor.
            fields[at] = (number, *fields[chance.randrange(len(fields))][1:])
    return _written(fields)
