"""Multiply-adds of nodes against a count of every single one: loops over all indices, no formula in common with ours.

By convention taps on padding count, and an entry of a triangular mask that is not computed does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pytest

from graphs import inferred
from neusight_onnx.lowering import lower

Shape = tuple[int, ...]


def count(*ranges: Iterable[object]) -> int:
    """Index by index."""
    return sum(1 for _ in product(*(list(each) for each in ranges)))


def indices(*sizes: int) -> Iterator[Shape]:
    return product(*map(range, sizes))


def windows(size: int, tap_count: int, stride: int, dilation: int, before: int, behind: int) -> list[int]:
    """Where a window begins that lies within the padded axis."""
    places = range(-before, size + behind)
    return [
        place
        for place in range(-before, size + behind, stride)
        if all(place + tap * dilation in places for tap in range(tap_count))
    ]


def conv(
    x: Shape,
    w: Shape,
    *,
    strides: Sequence[int] = (1, 1, 1),
    dilations: Sequence[int] = (1, 1, 1),
    pads: Sequence[tuple[int, int]] = ((0, 0),) * 3,
) -> int:
    """Each sample, filter, place of the window, channel of the group, tap."""
    starts = [
        windows(size, taps, stride, dilation, *pad)
        for size, taps, stride, dilation, pad in zip(x[2:], w[2:], strides, dilations, pads, strict=False)
    ]
    return count(range(x[0]), range(w[0]), *starts, range(w[1]), *map(range, w[2:]))


def scattered(x: Shape, w: Shape) -> int:
    """A transposed convolution: each element of the input, times each filter of its group and tap."""
    return count(indices(*x), range(w[1]), indices(*w[2:]))


def matmul(a: Shape, b: Shape) -> int:
    left = (1, *a) if len(a) == 1 else a
    right = (*b, 1) if len(b) == 1 else b
    batch = np.broadcast_shapes(left[:-2], right[:-2])
    return count(indices(*batch), range(left[-2]), range(right[-1]), range(left[-1]))


def over(**sizes: int) -> int:
    """Every assignment of the letters."""
    return count(*map(range, sizes.values()))


def recurrent(gates: int, steps: int, b: int, inputs: int, h: int, directions: int = 1) -> int:
    """At each step each gate of each unit takes a product with the inputs and one with the last state."""
    each = (range(directions), range(steps), range(b), range(gates), range(h))
    return count(*each, range(inputs)) + count(*each, range(h))


def attention(
    b: int,
    h: int,
    s: int,
    t: int,
    d: int,
    v: int,
    *,
    causal: bool = False,
    offset: int | None = None,
    window: int | None = None,
) -> int:
    """Each query against each key that it sees (d), and the same weight times each value (v).

    Query i stands at ``offset`` + i, by default so that the last one stands at the last key.
    """
    first = t - s if offset is None else offset
    total = 0
    for _, _, query, key in indices(b, h, s, t):
        place = first + query
        if causal and key > place:
            continue
        if window is not None and key <= place - window:
            continue
        total += count(range(d)) + count(range(v))
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A node, and its multiply-adds counted one by one."""

    node: str
    inputs: dict[str, Shape]
    macs: int
    weights: dict[str, Shape] = field(default_factory=dict)
    constants: dict[str, object] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)
    opset: int = 17


def conv_case(attributes: str, x: Shape, w: Shape, macs: int, op: str = "Conv", bias: bool = False) -> Case:
    names = "x, w, b" if bias else "x, w"
    weights = {"w": w, "b": (w[0],)} if bias else {"w": w}
    return Case(
        node=f"y = {op}<{attributes}>({names})" if attributes else f"y = {op}({names})",
        inputs={"x": x},
        weights=weights,
        macs=macs,
    )


def matmul_case(a: Shape, b: Shape) -> Case:
    return Case(node="y = MatMul(a, b)", inputs={"a": a, "b": b}, macs=matmul(a, b))


def einsum_case(equation: str, macs: int, *shapes: Shape) -> Case:
    names = "abcd"[: len(shapes)]
    return Case(
        node=f'y = Einsum<equation = "{equation}">({", ".join(names)})',
        inputs=dict(zip(names, shapes, strict=True)),
        macs=macs,
    )


def cell_case(op: str, gates: int, attributes: str, x: Shape, h: int, directions: int = 1, layout: int = 0) -> Case:
    steps, b = (x[1], x[0]) if layout else x[:2]
    return Case(
        node=f"y, yh = {op}<hidden_size = {h}{attributes}>(x, w, r)",
        inputs={"x": x},
        weights={"w": (directions, gates * h, x[2]), "r": (directions, gates * h, h)},
        macs=recurrent(gates, steps, b, x[2], h, directions),
    )


IMAGE, FILTERS = (2, 4, 7, 6), (6, 4, 3, 2)
INT32, INT64, FLOAT16 = 6, 7, 10
CASES = {
    "conv": conv_case("", IMAGE, FILTERS, conv(IMAGE, FILTERS)),
    "conv with a bias": conv_case("", IMAGE, FILTERS, conv(IMAGE, FILTERS), bias=True),
    "conv 1x1": conv_case("", IMAGE, (6, 4, 1, 1), conv(IMAGE, (6, 4, 1, 1))),
    "conv padded": conv_case("pads = [1, 0, 2, 1]", IMAGE, FILTERS, conv(IMAGE, FILTERS, pads=((1, 2), (0, 1)))),
    "conv strided": conv_case("strides = [2, 3]", IMAGE, FILTERS, conv(IMAGE, FILTERS, strides=(2, 3))),
    "conv dilated": conv_case("dilations = [2, 3]", IMAGE, FILTERS, conv(IMAGE, FILTERS, dilations=(2, 3))),
    "conv strided, dilated and padded": conv_case(
        "strides = [2, 1], dilations = [2, 2], pads = [2, 1, 1, 2]",
        IMAGE,
        FILTERS,
        conv(IMAGE, FILTERS, strides=(2, 1), dilations=(2, 2), pads=((2, 1), (1, 2))),
    ),
    "conv in groups": conv_case("group = 2", IMAGE, (6, 2, 3, 2), conv(IMAGE, (6, 2, 3, 2))),
    "conv depthwise": conv_case("group = 4", IMAGE, (4, 1, 3, 3), conv(IMAGE, (4, 1, 3, 3))),
    "conv depthwise, two filters a channel": conv_case("group = 4", IMAGE, (8, 1, 3, 3), conv(IMAGE, (8, 1, 3, 3))),
    # 7 x 6 places by 2 are 4 x 3, of 3 taps: (4 - 1) * 2 + 3 - 7 = 2 and (3 - 1) * 2 + 2 - 6 = 0 of padding
    "conv SAME_UPPER": conv_case(
        'auto_pad = "SAME_UPPER", strides = [2, 2]',
        IMAGE,
        FILTERS,
        conv(IMAGE, FILTERS, strides=(2, 2), pads=((1, 1), (0, 0))),
    ),
    "conv SAME_LOWER": conv_case(
        'auto_pad = "SAME_LOWER"', IMAGE, FILTERS, conv(IMAGE, FILTERS, pads=((1, 1), (1, 0)))
    ),
    "conv VALID": conv_case('auto_pad = "VALID"', IMAGE, FILTERS, conv(IMAGE, FILTERS)),
    "conv 1-D": conv_case("strides = [2]", (2, 3, 9), (5, 3, 4), conv((2, 3, 9), (5, 3, 4), strides=(2,))),
    "conv 3-D": conv_case(
        "pads = [1, 1, 1, 1, 1, 1]",
        (1, 2, 4, 3, 4),
        (3, 2, 2, 2, 3),
        conv((1, 2, 4, 3, 4), (3, 2, 2, 2, 3), pads=((1, 1),) * 3),
    ),
    "transposed": conv_case("", IMAGE, (4, 3, 3, 2), scattered(IMAGE, (4, 3, 3, 2)), op="ConvTranspose"),
    "transposed, strided and padded": conv_case(
        "strides = [2, 2], pads = [1, 1, 1, 1], output_padding = [1, 0]",
        IMAGE,
        (4, 3, 3, 3),
        scattered(IMAGE, (4, 3, 3, 3)),
        op="ConvTranspose",
    ),
    "transposed in groups": conv_case(
        "group = 2", IMAGE, (4, 3, 3, 2), scattered(IMAGE, (4, 3, 3, 2)), "ConvTranspose"
    ),
    "transposed depthwise": conv_case(
        "group = 4", IMAGE, (4, 1, 2, 2), scattered(IMAGE, (4, 1, 2, 2)), "ConvTranspose"
    ),
    "transposed 1-D": conv_case(
        "strides = [3]", (2, 3, 5), (3, 4, 4), scattered((2, 3, 5), (3, 4, 4)), op="ConvTranspose"
    ),
    "transposed 3-D": conv_case(
        "", (1, 2, 2, 3, 2), (2, 3, 2, 2, 2), scattered((1, 2, 2, 3, 2), (2, 3, 2, 2, 2)), op="ConvTranspose"
    ),
    "matmul": matmul_case((3, 5), (5, 4)),
    "matmul of vectors": matmul_case((5,), (5,)),
    "vector times matrix": matmul_case((5,), (5, 4)),
    "matrix times vector": matmul_case((3, 5), (5,)),
    "vector times batch": matmul_case((5,), (2, 5, 4)),
    "batch times vector": matmul_case((2, 3, 5), (5,)),
    "batch times matrix": matmul_case((2, 3, 5), (5, 4)),
    "matrix times batch": matmul_case((3, 5), (2, 5, 4)),
    "batch times batch": matmul_case((2, 3, 5), (2, 5, 4)),
    "a batch of one is repeated": matmul_case((1, 3, 5), (6, 5, 4)),
    "batches broadcast on both sides": matmul_case((2, 1, 3, 5), (1, 4, 5, 2)),
    "batches of different rank": matmul_case((4, 3, 5), (2, 4, 5, 2)),
    "gemm": Case(node="y = Gemm(a, b)", inputs={"a": (3, 5), "b": (5, 4)}, macs=over(m=3, n=4, k=5)),
    "gemm, left transposed": Case(
        node="y = Gemm<transA = 1>(a, b)", inputs={"a": (5, 3), "b": (5, 4)}, macs=over(m=3, n=4, k=5)
    ),
    "gemm, right transposed, with c": Case(
        node="y = Gemm<transB = 1, alpha = 0.5>(a, b, c)",
        inputs={"a": (3, 5), "b": (4, 5), "c": (4,)},
        macs=over(m=3, n=4, k=5),
    ),
    "gemm, both transposed, c a column": Case(
        node="y = Gemm<transA = 1, transB = 1>(a, b, c)",
        inputs={"a": (5, 3), "b": (4, 5), "c": (3, 1)},
        macs=over(m=3, n=4, k=5),
    ),
    "FusedMatMul, right transposed": Case(
        node="y = com.microsoft.FusedMatMul<transB = 1>(a, b)",
        inputs={"a": (2, 3, 5), "b": (2, 4, 5)},
        macs=over(b=2, m=3, n=4, k=5),
    ),
    "MatMulInteger": Case(
        node="y = MatMulInteger(a, b)",
        inputs={"a": (2, 3, 5), "b": (5, 4)},
        types={"a": 2, "b": 3},
        macs=matmul((2, 3, 5), (5, 4)),
    ),
    "einsum: a product": einsum_case("ij,jk->ik", over(i=3, j=5, k=4), (3, 5), (5, 4)),
    "einsum: a product, implicit": einsum_case("ij,jk", over(i=3, j=5, k=4), (3, 5), (5, 4)),
    "einsum: a batch": einsum_case("bij,bjk->bik", over(b=2, i=3, j=5, k=4), (2, 3, 5), (2, 5, 4)),
    "einsum: heads": einsum_case("bhsd,bhtd->bhst", over(b=2, h=3, s=4, t=5, d=6), (2, 3, 4, 6), (2, 3, 5, 6)),
    "einsum: ellipsis": einsum_case("...ij,...jk->...ik", over(b=2, c=3, i=2, j=4, k=5), (2, 3, 2, 4), (2, 3, 4, 5)),
    "einsum: an ellipsis that broadcasts": einsum_case(
        "...ij,jk->...ik", over(b=2, c=3, i=2, j=4, k=5), (2, 3, 2, 4), (4, 5)
    ),
    "einsum: two letters contracted": einsum_case(
        "bhsd,hdk->bsk", over(b=2, h=3, s=4, d=5, k=6), (2, 3, 4, 5), (3, 5, 6)
    ),
    "einsum: three operands, from left to right": einsum_case(
        "ij,jk,kl->il", over(i=3, j=5, k=4) + over(i=3, k=4, l=2), (3, 5), (5, 4), (4, 2)
    ),
    "LSTM": cell_case("LSTM", 4, "", (5, 2, 3), 4),
    "LSTM in both directions": cell_case("LSTM", 4, ', direction = "bidirectional"', (5, 2, 3), 4, directions=2),
    "LSTM in reverse": cell_case("LSTM", 4, ', direction = "reverse"', (3, 2, 6), 5),
    "LSTM, batch first": cell_case("LSTM", 4, ", layout = 1", (2, 5, 3), 4, layout=1),
    "GRU": cell_case("GRU", 3, "", (5, 2, 3), 4),
    "GRU in both directions": cell_case("GRU", 3, ', direction = "bidirectional"', (4, 3, 2), 5, directions=2),
    "GRU, linear before reset": cell_case("GRU", 3, ", linear_before_reset = 1", (5, 1, 3), 4),
    "RNN": cell_case("RNN", 1, "", (6, 2, 3), 4),
    "RNN in both directions": cell_case("RNN", 1, ', direction = "bidirectional"', (6, 2, 3), 4, directions=2),
    "attention": Case(
        node="y = Attention(q, k, v)",
        inputs={"q": (2, 3, 4, 8), "k": (2, 3, 6, 8), "v": (2, 3, 6, 5)},
        macs=attention(2, 3, 4, 6, 8, 5),
        opset=23,
    ),
    "attention of three dimensions": Case(
        node="y = Attention<q_num_heads = 3, kv_num_heads = 3>(q, k, v)",
        inputs={"q": (2, 4, 24), "k": (2, 6, 24), "v": (2, 6, 15)},
        macs=attention(2, 3, 4, 6, 8, 5),
        opset=23,
    ),
    "attention, grouped queries": Case(
        node="y = Attention(q, k, v)",
        inputs={"q": (2, 6, 4, 8), "k": (2, 2, 6, 8), "v": (2, 2, 6, 8)},
        macs=attention(2, 6, 4, 6, 8, 8),
        opset=23,
    ),
    "attention, causal": Case(
        node="y = Attention<is_causal = 1>(q, k, k)",
        inputs={"q": (2, 3, 5, 8), "k": (2, 3, 5, 8)},
        macs=attention(2, 3, 5, 5, 8, 8, causal=True),
        opset=23,
    ),
    "attention, causal, keys behind the queries": Case(
        node="y = Attention<is_causal = 1>(q, k, k)",
        inputs={"q": (1, 2, 3, 8), "k": (1, 2, 7, 8)},
        macs=attention(1, 2, 3, 7, 8, 8, causal=True, offset=0),
        opset=23,
    ),
    "attention, causal, behind a cache": Case(
        node="y, pk, pv = Attention<is_causal = 1>(q, k, k, , past, past)",
        inputs={"q": (1, 2, 3, 8), "k": (1, 2, 3, 8), "past": (1, 2, 4, 8)},
        macs=attention(1, 2, 3, 7, 8, 8, causal=True),
        opset=23,
    ),
    "MultiHeadAttention": Case(
        node="y = com.microsoft.MultiHeadAttention<num_heads = 3>(q, k, v)",
        inputs={"q": (2, 4, 24), "k": (2, 6, 24), "v": (2, 6, 15)},
        macs=attention(2, 3, 4, 6, 8, 5),
    ),
    "MultiHeadAttention, one direction": Case(
        node="y = com.microsoft.MultiHeadAttention<num_heads = 3, unidirectional = 1>(q, k, k)",
        inputs={"q": (2, 5, 24), "k": (2, 5, 24)},
        types={"q": FLOAT16, "k": FLOAT16},  # ONNX Runtime runs FP32 by parts, whole
        macs=attention(2, 3, 5, 5, 8, 8, causal=True),
    ),
    "GroupQueryAttention, a prefill": Case(
        node="y = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2>(q, k, k, , , n, t)",
        inputs={"q": (2, 5, 32), "k": (2, 5, 16), "n": (2,)},
        constants={"t": np.array(5, np.int32)},
        types={"n": INT32},
        macs=attention(2, 4, 5, 5, 8, 8, causal=True),
    ),
    "GroupQueryAttention, a token behind a cache, packed": Case(
        node="y, pk, pv = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2>(q, , , past, past, n, t)",
        inputs={"q": (2, 1, 64), "past": (2, 2, 9, 8), "n": (2,)},
        constants={"t": np.array(10, np.int32)},
        types={"n": INT32},
        macs=attention(2, 4, 1, 10, 8, 8, causal=True),
    ),
    "GroupQueryAttention, a window": Case(
        node="y, pk, pv = com.microsoft.GroupQueryAttention<num_heads = 2, kv_num_heads = 2, local_window_size = 3>"
        "(q, k, k, past, past, n, t)",
        inputs={"q": (1, 4, 16), "k": (1, 4, 16), "past": (1, 2, 5, 8), "n": (1,)},
        constants={"t": np.array(9, np.int32)},
        types={"n": INT32},
        macs=attention(1, 2, 4, 9, 8, 8, causal=True, window=3),
    ),
    # the projection (8 x 8) @ (8 x 24), then two heads of 4
    "Attention with its projection": Case(
        node="y = com.microsoft.Attention<num_heads = 2>(x, w, b)",
        inputs={"x": (2, 4, 8)},
        weights={"w": (8, 24), "b": (24,)},
        macs=over(b=2, s=4, k=8, n=24) + attention(2, 2, 4, 4, 4, 4),
    ),
    "CausalConvWithState": Case(
        node="y, t = com.microsoft.CausalConvWithState(x, w)",
        inputs={"x": (2, 8, 6)},
        weights={"w": (8, 1, 4)},
        macs=over(b=2, c=8, s=6, taps=4),
    ),
    "MatMulNBits": Case(
        node="y = com.microsoft.MatMulNBits<K = 32, N = 6, bits = 4, block_size = 16>(x, w, s)",
        inputs={"x": (2, 3, 32)},
        weights={"w": (6, 2, 8), "s": (6, 2)},
        types={"w": 2},
        macs=over(b=2, s=3, n=6, k=32),
    ),
    # 5 tokens go to 2 experts each
    "MoE": Case(
        node='y = com.microsoft.MoE<k = 2, activation_type = "relu">(x, p, w1, , w2)',
        inputs={"x": (5, 4), "p": (5, 4)},
        weights={"w1": (4, 6, 4), "w2": (4, 4, 6)},
        macs=over(t=5, k=2, i=6, h=4) + over(t=5, k=2, h=4, i=6),
    ),
}


@pytest.mark.parametrize("runtime", ["eager", "onnxruntime"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_multiply_adds_are_those_of_every_index(case: Case, runtime: str) -> None:
    graph = inferred(
        case.node, case.inputs, weights=case.weights, constants=case.constants, types=case.types, opset=case.opset
    )
    (work,) = lower(graph, runtime=runtime)
    assert sum(kernel.macs for kernel in work.kernels) == case.macs
