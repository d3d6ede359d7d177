"""Strides: views, copies, and what matrix products do with them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs import inferred
from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Gemm, Movement, NodeWork
from neusight_onnx.lowering import lower
from neusight_onnx.lowering.views import copy_kernel, pointwise_strides
from neusight_onnx.strides import (
    contiguous_strides,
    expand_strides,
    is_channels_last,
    is_contiguous,
    regrouped_order,
    view_strides,
)


@pytest.mark.parametrize(
    ("shape", "strides", "new", "expected"),
    [
        ((2, 3, 4), (12, 4, 1), (6, 4), (4, 1)),
        ((2, 3, 4), (12, 4, 1), (2, 2, 6), (12, 6, 1)),
        ((6, 4), (4, 1), (2, 3, 2, 2), (12, 4, 2, 1)),
        ((2, 3, 4), (12, 1, 3), (2, 12), None),
        ((2, 3, 4), (12, 1, 3), (2, 3, 2, 2), (12, 1, 6, 3)),
        ((8, 16, 32, 4), (2048, 4, 64, 1), (128, 32, 4), None),
        ((1, 16, 32, 4), (2048, 4, 64, 1), (16, 32, 4), (4, 64, 1)),
        ((4, 5), (0, 1), (20,), None),
        ((2, 3, 5), (0, 0, 1), (6, 5), (0, 1)),
        ((2, 3, 5), (0, 5, 1), (6, 5), None),
        ((4, 6), (12, 2), (2, 2, 6), (24, 12, 2)),
        ((1, 1), (7, 9), (1, 1, 1), (1, 1, 1)),
        ((0, 3), (3, 1), (3, 0), (1, 1)),
    ],
    ids=[
        "merge",
        "regroup",
        "split",
        "permuted can't merge",
        "permuted can split",
        "heads of a batch can't merge",
        "heads of one sample can",
        "repeated rows",
        "repeats merge with repeats",
        "repeats don't merge with rows",
        "strided rows",
        "nothing but ones",
        "empty",
    ],
)
def test_view_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], new: tuple[int, ...], expected: tuple[int, ...] | None
) -> None:
    assert view_strides(shape, strides, new) == expected


@pytest.mark.parametrize(
    ("grouped", "order", "target", "expected"),
    [
        ((6, 4, 5), (0, 2, 1), (2, 3, 5, 4), (0, 1, 3, 2)),
        ((2, 3, 20), (1, 0, 2), (3, 2, 4, 5), (1, 0, 2, 3)),
        ((2, 12, 5), (0, 2, 1), (2, 5, 3, 4), (0, 3, 1, 2)),
        ((6, 4, 5), (0, 2, 1), (3, 2, 5, 4), None),
        ((6, 4, 5), (0, 2, 1), (6, 5, 4), None),
        ((4, 6, 5), (0, 2, 1), (4, 5, 6), None),
    ],
    ids=["batch and heads", "the last two", "the middle", "split otherwise", "not split again", "across dims"],
)
def test_a_transpose_between_reshapes(
    grouped: tuple[int, ...], order: tuple[int, ...], target: tuple[int, ...], expected: tuple[int, ...] | None
) -> None:
    shape = (2, 3, 4, 5)
    assert regrouped_order(shape, grouped, order, target) == expected
    if expected is not None:
        array = np.arange(120).reshape(shape)
        assert (array.reshape(grouped).transpose(order).reshape(target) == array.transpose(expected)).all()


@st.composite
def _views(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """A permuted, sliced array's shape and strides, and another shape of as many elements."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    array = np.zeros(tuple(size + draw(st.integers(0, 1)) for size in shape), dtype=np.int8)
    array = array[tuple(slice(0, size) for size in shape)].transpose(draw(st.permutations(range(len(shape)))))
    factors = [factor for size in array.shape for factor in ((2, 2) if size == 4 else (size,))]
    factors = list(draw(st.permutations(factors)))
    new: list[int] = []
    for factor in factors:
        if new and draw(st.booleans()):
            new[-1] *= factor
        else:
            new.append(factor)
    return array.shape, array.strides, tuple(new)


@settings(max_examples=300, deadline=None)
@given(_views())
def test_view_strides_agree_with_numpy(case: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]) -> None:
    shape, strides, new = case
    base = np.arange(int(np.sum((np.array(shape) - 1) * np.array(strides))) + 1)
    array = np.lib.stride_tricks.as_strided(base, shape, tuple(8 * stride for stride in strides))
    found = view_strides(shape, strides, new)
    shares = np.shares_memory(array.reshape(new), base)
    assert (found is not None) == shares
    if found is not None:
        view = np.lib.stride_tricks.as_strided(base, new, tuple(8 * stride for stride in found))
        assert np.array_equal(view, array.reshape(new))


@pytest.mark.parametrize(
    ("shape", "operands", "expected"),
    [
        ((2, 3, 4), [((2, 3, 4), (12, 4, 1))], (12, 4, 1)),
        ((2, 3, 4), [((2, 3, 4), (12, 1, 3))], (12, 1, 3)),
        ((2, 3, 4), [((2, 3, 4), (12, 1, 3)), ((2, 3, 4), (12, 4, 1))], (12, 1, 3)),
        ((2, 3, 4), [((2, 3, 4), (12, 4, 1)), ((2, 3, 4), (12, 1, 3))], (12, 4, 1)),
        ((2, 3, 4), [((4,), (1,)), ((2, 3, 4), (12, 1, 3))], (12, 1, 3)),
        ((2, 3, 4), [((2, 3, 4), (0, 4, 1))], (12, 4, 1)),
        ((2, 3), [((2, 3), (6, 2))], (3, 1)),
    ],
    ids=["contiguous", "permuted", "first decides", "first decides, other way", "vector", "repeated", "gaps close"],
)
def test_pointwise_results_keep_their_operands_order(
    shape: tuple[int, ...],
    operands: list[tuple[tuple[int, ...], tuple[int, ...]]],
    expected: tuple[int, ...],
) -> None:
    assert pointwise_strides(shape, operands) == expected


def test_contiguity() -> None:
    assert contiguous_strides((2, 3, 4)) == (12, 4, 1)
    assert is_contiguous((2, 1, 4), (4, 99, 1))
    assert not is_contiguous((2, 3), (1, 2))
    assert is_channels_last((2, 3, 4, 5), (60, 1, 15, 3))
    assert not is_channels_last((2, 3, 4, 5), contiguous_strides((2, 3, 4, 5)))
    assert expand_strides((3, 1), (1, 1), (2, 3, 4)) == (0, 1, 0)


def test_a_copy_reads_repeated_elements_once() -> None:
    kernel = copy_kernel(DataType.FLOAT32, (8, 3, 4), (0, 4, 1))
    assert (kernel.read_bytes, kernel.write_bytes) == (48, 384)


def test_a_copy_names_the_source_in_memory_order() -> None:
    kernel = copy_kernel(DataType.FLOAT32, (8, 16, 32, 4), (2048, 4, 64, 1))
    assert kernel.shape == (8, 32, 16, 4)
    assert kernel.permutation == (0, 2, 1, 3)


def summary(works: tuple[NodeWork, ...]) -> list[str]:
    """One word a kernel: what a Movement does, how a Gemm's operands lie, else the class."""
    words = []
    for work in works:
        for kernel in work.kernels:
            match kernel:
                case Movement(operation=operation):
                    words.append(operation)
                case Gemm(transpose_a=a, transpose_b=b):
                    words.append("gemm " + ("t" if a else "n") + ("t" if b else "n"))
                case _:
                    words.append(type(kernel).__name__.lower())
    return words


HEADS = """
    q4 = Reshape(q, heads)
    qt = Transpose<perm=[0,2,1,3]>(q4)
    k4 = Reshape(k, heads)
    kt = Transpose<perm=[0,2,3,1]>(k4)
    y = MatMul(qt, kt)
"""
OPT = """
    q4 = Reshape(q, heads)
    qt = Transpose<perm=[0,2,1,3]>(q4)
    q3 = Reshape(qt, flat)
    k4 = Reshape(k, heads)
    kt = Transpose<perm=[0,2,1,3]>(k4)
    k3 = Reshape(kt, flat)
    kk = Transpose<perm=[0,2,1]>(k3)
    y = MatMul(q3, kk)
"""
MERGED = """
    x4 = Transpose<perm=[0,2,1,3]>(x)
    x3 = Reshape(x4, merged)
    y = MatMul(x3, w)
"""


@pytest.mark.parametrize(
    ("nodes", "inputs", "constants", "weights", "eager", "onnxruntime"),
    [
        (
            HEADS,
            {"q": (8, 32, 64), "k": (8, 32, 64)},
            {"heads": [8, 32, 4, 16]},
            {},
            ["copy", "copy", "gemm nn"],
            ["transpose", "transpose", "gemm nn"],
        ),
        (
            HEADS,
            {"q": (1, 32, 64), "k": (1, 32, 64)},
            {"heads": [1, 32, 4, 16]},
            {},
            ["gemm nt"],
            ["transpose", "transpose", "gemm nn"],
        ),
        (
            OPT,
            {"q": (8, 32, 64), "k": (8, 32, 64)},
            {"heads": [8, 32, 4, 16], "flat": [32, 32, 16]},
            {},
            ["copy", "copy", "gemm nt"],
            ["transpose", "transpose", "transpose", "gemm nn"],
        ),
        (
            MERGED,
            {"x": (8, 4, 32, 16)},
            {"merged": [8, 32, 64]},
            {"w": (64, 10)},
            ["copy", "gemm nt"],
            ["transpose", "gemm nn"],
        ),
        (
            "t = Transpose<perm=[1,0]>(x)\ny = MatMul(t, z)",
            {"x": (32, 8), "z": (32, 10)},
            {},
            {},
            ["gemm tn"],
            ["transpose", "gemm nn"],
        ),
        (
            "e = Expand(z, shape)\ny = MatMul(x, e)",
            {"x": (4, 8, 16), "z": (1, 16, 10)},
            {"shape": [4, 16, 10]},
            {},
            ["gemm nn"],
            ["expand", "gemm nn"],
        ),
        (
            "y = MatMul(x, z)",
            {"x": (3, 4, 8, 16), "z": (4, 16, 10)},
            {},
            {},
            ["copy", "gemm nn"],
            ["gemm nn"],
        ),
        (
            "t = Transpose<perm=[0,2,1]>(x)\ny = Softmax<axis=-1>(t)",
            {"x": (4, 8, 16)},
            {},
            {},
            ["copy", "softmax"],
            ["transpose", "softmax"],
        ),
        (
            "t = Transpose<perm=[0,2,1]>(x)\nr = Relu(t)\nb = Transpose<perm=[0,2,1]>(r)\ny = Softmax<axis=-1>(b)",
            {"x": (4, 8, 16)},
            {},
            {},
            ["elementwise", "softmax"],
            ["transpose", "elementwise", "transpose", "softmax"],
        ),
        (
            "a, b = Split<axis=2>(x)\ny = Softmax<axis=-1>(a)",
            {"x": (4, 8, 16)},
            {},
            {},
            ["copy", "softmax"],
            ["split", "softmax"],
        ),
        (
            "t = Transpose<perm=[0,3,1,2]>(x)\ny = Conv<kernel_shape=[1,1]>(t, w)",
            {"x": (2, 8, 8, 3)},
            {},
            {"w": (5, 3, 1, 1)},
            ["conv"],
            ["transpose", "conv"],
        ),
        (
            "t = Transpose<perm=[0,1,3,2]>(x)\ny = Conv<kernel_shape=[1,1]>(t, w)",
            {"x": (2, 3, 8, 9)},
            {},
            {"w": (5, 3, 1, 1)},
            ["copy", "conv"],
            ["transpose", "conv"],
        ),
    ],
    ids=[
        "heads of a batch: q and k are copied, k's two transposes in one",
        "heads of one sample: nothing is copied",
        "reshape after transpose copies, k's last transpose is BLAS's",
        "merging heads copies",
        "a transposed matrix is BLAS's",
        "a repeated matrix needs no copy",
        "a partly repeated one does",
        "softmax wants rows",
        "pointwise keeps the order, so that turning back is free",
        "half of a row has gaps",
        "convolution takes channels last",
        "and no other order",
    ],
)
def test_copies(
    nodes: str,
    inputs: dict[str, tuple[int, ...]],
    constants: dict[str, object],
    weights: dict[str, tuple[int, ...]],
    eager: list[str],
    onnxruntime: list[str],
) -> None:
    graph = inferred(nodes, inputs, constants=constants, weights=weights)
    assert summary(lower(graph, runtime="eager")) == eager
    assert summary(lower(graph, runtime="onnxruntime")) == onnxruntime


def test_a_copy_names_the_views_that_made_it_necessary() -> None:
    graph = inferred(HEADS, {"q": (8, 32, 64), "k": (8, 32, 64)}, constants={"heads": [8, 32, 4, 16]})
    works = lower(graph, runtime="eager")
    assert [op_type for _, op_type in works[-1].origins] == ["MatMul", "Transpose", "Transpose"]
    assert all(work.free and work.host_operation for work in works[:-1])


def test_layouts_stay_small() -> None:
    """Each sum has two operands of the same layout: remembering the views of both would double at each step."""
    sums = "\n".join(f"s{index + 1} = Add(s{index}, s{index})" for index in range(60))
    graph = inferred(f"s0 = Transpose<perm=[0,2,1]>(x)\n{sums}\ny = Softmax<axis=-1>(s60)", {"x": (2, 3, 4)})
    last = lower(graph, runtime="eager")[-1]
    assert summary((last,)) == ["copy", "softmax"]
    assert [op_type for _, op_type in last.origins] == ["Softmax", "Transpose"]
