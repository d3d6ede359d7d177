"""What ``check`` finds in constants, small and large, wherever their bytes lie; the floats are written bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from models import graph, model, node, tensor, value
from neusight_onnx.checks import Target, check
from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.contents import contents_of
from neusight_onnx.graph.read import read_model

BITS = {
    TensorProto.FLOAT16: (np.uint16, 0x3C00, 0x7E00, 0xFC00),
    TensorProto.BFLOAT16: (np.uint16, 0x3F80, 0x7FC0, 0xFF80),
    TensorProto.FLOAT: (np.uint32, 0x3F800000, 0x7FC00000, 0xFF800000),
    TensorProto.DOUBLE: (np.uint64, 0x3FF0000000000000, 0x7FF8000000000000, 0xFFF0000000000000),
}
"""Type -> unsigned integers of its width, and the bits of 1, NaN and minus infinity (IEEE 754)."""


def written(dtype: int, count: int, place: int, which: int) -> TensorProto:
    """Ones, but for one element of NaN (2), minus infinity (3) or 1 (1)."""
    kind, *bits = BITS[dtype]
    data = np.full(count, bits[0], kind)
    data[place] = bits[which - 1]
    return helper.make_tensor("w", dtype, [count], data.tobytes(), raw=True)


def saved(folder: Path, weight: TensorProto, *, op: str = "Mul", external: bool = False) -> Path:
    """A model that multiplies (or so) by a vector."""
    dtype, count = weight.data_type, weight.dims[0]
    main = graph(
        [node(op, "x w", "y", "it")], [value("x", ("batch", count), dtype)], [value("y", None, dtype)], [weight]
    )
    path = folder / "model.onnx"
    onnx.save(model(main), path, save_as_external_data=external, location="weights.bin", size_threshold=0)
    return path


def found(path: Path, precision: str = "auto", batch: int = 2, **dims: int) -> dict[str, str]:
    """Code of NSX6xx -> its message."""
    target = Target(
        name="x", model=path, gpu="a100-sxm-80gb", precision=precision, bindings=make_bindings({"batch": batch, **dims})
    )
    return {each.code: each.message for each in check(target).findings if each.code.startswith("NSX6")}


@pytest.mark.parametrize("external", [False, True], ids=["inside", "outside"])
@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize(("count", "place"), [(64, 0), (65, 64), (5_000_000, 4_999_999)])
def test_nan_is_found_at_every_size(tmp_path: Path, external: bool, dtype: int, count: int, place: int) -> None:
    assert "NSX603" in found(saved(tmp_path, written(dtype, count, place, 2), external=external))


@pytest.mark.parametrize("dtype", BITS)
def test_other_bits_are_numbers(tmp_path: Path, dtype: int) -> None:
    assert "NSX603" not in found(saved(tmp_path, written(dtype, 300, 70, 3)))
    assert found(saved(tmp_path, written(dtype, 300, 70, 1))) == {}


@pytest.mark.parametrize("count", [64, 65])
@pytest.mark.parametrize(
    ("number", "says"),
    [(-1e9, "-1e+09"), (65504.0, ""), (-65505.0, "-65505"), (-np.inf, "")],
    ids=["mask", "last", "beyond", "infinite"],
)
def test_range_of_float16(tmp_path: Path, count: int, number: float, says: str) -> None:
    data = np.ones(count, np.float32)
    data[3] = number
    messages = found(saved(tmp_path, tensor("w", data), op="Add"), "fp16")
    assert set(messages) == ({"NSX601"} if says else set())
    assert says in "".join(messages.values())
    assert found(saved(tmp_path, tensor("w", data), op="Min"), "fp16") == {}


def test_infinite_in_float16_itself(tmp_path: Path) -> None:
    assert "-inf" in found(saved(tmp_path, written(TensorProto.FLOAT16, 65, 1, 3)))["NSX601"]


def moved(folder: Path) -> Path:
    """A weight with NaN behind a Constant, transposed before it is read."""
    data = np.ones((9, 9), np.float32)
    data[0, 8] = np.nan
    nodes = [
        node("Constant", "", "c", value=tensor("", data)),
        node("Transpose", "c", "t", perm=[1, 0]),
        node("MatMul", "x t", "y", "fc"),
    ]
    path = folder / "moved.onnx"
    onnx.save(model(graph(nodes, [value("x", ("batch", 9))], [value("y", None)])), path)
    return path


def in_branch(folder: Path) -> Path:
    """A branch of an If that reads a weight from around it."""
    data = np.full(80, np.nan, np.float32)
    then = graph([node("Mul", "x w", "a")], [], [value("a", None)])
    otherwise = graph([node("Neg", "x", "b")], [], [value("b", None)])
    nodes = [node("If", "c", "y", "choice", then_branch=then, else_branch=otherwise)]
    inputs = [value("x", ("batch", 80)), value("c", (), TensorProto.BOOL)]
    path = folder / "branch.onnx"
    onnx.save(model(graph(nodes, inputs, [value("y", None)], [tensor("w", data)])), path)
    return path


def typed(folder: Path) -> Path:
    """Elements in float_data, as early exporters wrote them."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [70], [1.0] * 69 + [float("nan")])
    return saved(folder, weight)


@pytest.mark.parametrize("make", [moved, in_branch, typed])
def test_where_constants_are(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    assert set(found(make(tmp_path))) == {"NSX603"}


def causal(folder: Path, size: int | str) -> Path:
    """A mask that is made of the length: -1e9 where a token is later."""
    c = {"zero": np.int64(0), "one": np.int64(1), "ax0": np.array([0]), "ax1": np.array([1])}
    c |= {"neg": np.float32(-1e9), "f0": np.float32(0)}
    nodes = [
        node("Shape", "x", "s", start=1, end=2),
        node("Squeeze", "s ax0", "n"),
        node("Range", "zero n one", "r"),
        node("Unsqueeze", "r ax0", "a"),
        node("Unsqueeze", "r ax1", "b"),
        node("LessOrEqual", "a b", "m"),
        node("Where", "m f0 neg", "mask", "where"),
        node("Add", "x mask", "y", "masked"),
    ]
    main = graph(
        nodes,
        [value("x", ("batch", size, size))],
        [value("y", None)],
        [tensor(name, np.array(data)) for name, data in c.items()],
    )
    path = folder / "causal.onnx"
    onnx.save(model(main), path)
    return path


@pytest.mark.parametrize("size", [8, 64, 65])
def test_the_verdict_is_the_same_at_every_size(tmp_path: Path, size: int) -> None:
    free = found(causal(tmp_path, "seq"), "fp16", seq=size)
    fixed = found(causal(tmp_path, size), "fp16")
    assert set(free) == set(fixed) == {"NSX601"}
    assert "-1e+09" in free["NSX601"]
    assert "-1e+09" in fixed["NSX601"]


def test_what_is_beyond_the_limit_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, written(TensorProto.FLOAT, 300, 70, 2))
    contents = contents_of(read_model(path), limit_bytes=1199)
    assert (contents.left_out_bytes, dict(contents.found)) == (1200, {})
    assert contents_of(read_model(path), limit_bytes=1200).left_out_bytes == 0
    monkeypatch.setattr("neusight_onnx.checks.run.contents_of", lambda model: contents_of(model, limit_bytes=0))
    target = Target(name="x", model=path, gpu="t4", bindings=make_bindings({"batch": 2}))
    assert any("1,200 bytes of weights were not looked at" in each for each in check(target).targets[0].assumptions)


def test_a_file_that_has_changed_says_nothing(tmp_path: Path) -> None:
    read = read_model(saved(tmp_path, written(TensorProto.FLOAT, 300, 70, 2)))
    weight = read.graph.initializers["w"]
    extremes = contents_of(read).of(weight)
    assert weight.dtype is DataType.FLOAT32
    assert extremes is not None
    assert extremes.has_nan
    saved(tmp_path, written(TensorProto.FLOAT, 301, 70, 2))
    assert contents_of(read).of(weight) is None
