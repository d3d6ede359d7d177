"""Shape inference against onnx's own operator tests: some 1,900 models of one operator with expected outputs.

Each model is inferred twice. With the content of its inputs, every output must have exactly the dtype and shape of the
expected one, and content that inference computed must be the expected content. With the shapes of the inputs only,
nothing may be wrong: an output is exact, a bound that is not below the expected shape, or unknown.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.backend.test.case import node as node_cases

from neusight_onnx import analyze
from neusight_onnx.dtypes import BY_ONNX_CODE, DataType
from neusight_onnx.errors import NeusightError
from neusight_onnx.graph.bindings import Bindings, BoundInputs
from neusight_onnx.graph.model import InferredGraph, Value
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.graph.shapes import infer_bound
from neusight_onnx.graph.shapes.context import MAX_DATA, NUMPY
from neusight_onnx.inspection import inspect_model
from neusight_onnx.lowering import lower

DEPENDS_ON_DATA = {
    "test_image_decoder": "the size of the image stands in its bytes",
    "test_string_split": "how many pieces stands in the strings, whose content is not carried",
    "test_strnorm": "which strings are stop words",
    "test_nonmaxsuppression": "which boxes overlap",
    "test_range_bfloat16": "content of this type is not carried",
    "test_unique_bfloat16": "content of this type is not carried",
}
"""Beginnings of the names of cases whose output shape is decided by content that inference does not look at."""


def _array(content: Any) -> np.ndarray[Any, Any]:
    """Cases hold arrays, lists of one tensor, and protobufs where numpy lacks the type."""
    if isinstance(content, list):
        content = content[0]
    return onnx.numpy_helper.to_array(content) if isinstance(content, onnx.TensorProto) else np.asarray(content)


def _dtype(tensor: onnx.TypeProto) -> DataType | None:
    return BY_ONNX_CODE.get(tensor.tensor_type.elem_type)


def _value(declared: onnx.TypeProto, content: Any, *, with_data: bool) -> Value:
    match declared.WhichOneof("value"):
        case "optional_type":
            inner = declared.optional_type.elem_type
            if content is None or (isinstance(content, list) and content and content[0] is None):
                return Value(dtype=_dtype(inner), shape=None, kind="optional", elements=())
            member = _value(inner, content, with_data=with_data)
            return Value(dtype=member.dtype, shape=member.shape, kind="optional", elements=(member,))
        case "sequence_type":
            inner = declared.sequence_type.elem_type
            members = tuple(_value(inner, item, with_data=with_data) for item in content)
            shape = members[0].shape if members else None
            return Value(dtype=_dtype(inner), shape=shape, kind="sequence", elements=members)
    array = _array(content)
    dtype = _dtype(declared)
    carried = None
    if with_data and dtype in NUMPY and array.size <= MAX_DATA:
        carried = array.astype(NUMPY[dtype])
    return Value(dtype=dtype, shape=array.shape, data=carried)


def _infer(model: onnx.ModelProto, inputs: Sequence[Any], *, with_data: bool) -> InferredGraph:
    initializers = {tensor.name for tensor in model.graph.initializer}
    declared = [item for item in model.graph.input if item.name not in initializers]
    values = {
        item.name: _value(item.type, content, with_data=with_data)
        for item, content in zip(declared, inputs, strict=False)
    }
    return infer_bound(read_model_bytes(model.SerializeToString()), Bindings(), BoundInputs(values=values, symbols={}))


def _faults(name: str, value: Value, declared: onnx.TypeProto, expected: Any, *, with_data: bool) -> Iterator[str]:
    kind = declared.WhichOneof("value")
    if kind == "optional_type":
        if value.kind != "optional":
            declared = declared.optional_type.elem_type
            kind = declared.WhichOneof("value")
        else:
            return
    if kind == "sequence_type":
        if value.elements is None:
            if with_data:
                yield f"{name}: the members are unknown"
            return
        if len(value.elements) != len(expected):
            yield f"{name}: {len(value.elements)} members instead of {len(expected)}"
            return
        for index, (member, item) in enumerate(zip(value.elements, expected, strict=True)):
            yield from _faults(f"{name}[{index}]", member, declared.sequence_type.elem_type, item, with_data=with_data)
        return
    array = _array(expected)
    if value.shape is None:
        if with_data and not name.startswith(tuple(DEPENDS_ON_DATA)):
            yield f"{name}: unknown, expected {array.shape}"
        return
    if value.dtype is not _dtype(declared):
        yield f"{name}: {value.dtype} instead of {_dtype(declared)}"
    if value.is_bound:
        if len(value.shape) != array.ndim or any(a < b for a, b in zip(value.shape, array.shape, strict=True)):
            yield f"{name}: bound {value.shape} of {array.shape}"
        low = value.shape_low or ()
        if any(a > b for a, b in zip(low, array.shape, strict=False)):
            yield f"{name}: least {low} of {array.shape}"
        if with_data and not name.startswith(tuple(DEPENDS_ON_DATA)):
            yield f"{name}: only a bound {value.shape}, expected {array.shape}"
    elif value.shape != array.shape:
        yield f"{name}: {value.shape} instead of {array.shape}"
    elif value.data is not None and value.dtype in NUMPY:
        low_data = value.data if value.data_low is None else value.data_low
        close = {"rtol": 1e-2 if value.dtype is DataType.FLOAT16 else 1e-4, "atol": 1e-5, "equal_nan": True}
        below = np.asarray(low_data <= array) | np.isclose(low_data, array, **close)
        above = np.asarray(array <= value.data) | np.isclose(value.data, array, **close)
        if not (below & above).all():
            yield f"{name}: {value.data!r} instead of {array!r}"


@pytest.fixture(scope="module")
def cases() -> Mapping[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in node_cases.collect_testcases(None)}


@pytest.mark.parametrize("with_data", [True, False], ids=["with content", "shapes only"])
def test_operator_cases_of_onnx(cases: Mapping[str, Any], *, with_data: bool) -> None:
    faults = []
    judged = 0
    for case_name, case in cases.items():
        for inputs, outputs in case.data_sets or ():
            try:
                result = _infer(case.model, inputs, with_data=with_data)
            except NeusightError as error:
                faults.append(f"{case_name}: {error}")
                continue
            if any(trips.source == "assumed" for trips in result.trip_counts.values()):
                assert not with_data or case_name.startswith(tuple(DEPENDS_ON_DATA)), case_name
                continue  # an assumed trip count is no bound
            for declared, expected in zip(case.model.graph.output, outputs, strict=False):
                judged += 1
                value = result.values[declared.name]
                label = f"{case_name} {declared.name}"
                faults += _faults(label, value, declared.type, expected, with_data=with_data)
    assert judged > 1_500
    assert not faults, "\n" + "\n".join(faults)


def _given(case: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The content of the inputs that hold plain numbers, as a user gives it with ``--value``."""
    initializers = {tensor.name for tensor in case.model.graph.initializer}
    declared = [item for item in case.model.graph.input if item.name not in initializers]
    given = {}
    for item, content in zip(declared, case.data_sets[0][0], strict=False):
        if item.type.WhichOneof("value") == "tensor_type" and _dtype(item.type) in NUMPY:
            array = _array(content)
            if array.size <= MAX_DATA:
                given[item.name] = array.astype(NUMPY[_dtype(item.type)])  # type: ignore[index]  # it is in NUMPY
    return given


def test_commands_on_operator_cases_of_onnx(cases: Mapping[str, Any]) -> None:
    """``inspect`` and ``analyze``, with nothing said of the inputs: no other exception than ours, no impossible figure.

    The cases are valid models, so none is refused, either.
    """
    for name, case in cases.items():
        model = read_model_bytes(case.model.SerializeToString())
        assert inspect_model(model).node_count == sum(_node_counts(case.model.graph)) or case.model.functions, name
        report = analyze(model, gpu="a100", precision="fp32")
        assert 0 <= report.totals.latency_low_ms <= report.totals.latency_ms <= report.totals.latency_high_ms < 1e6, (
            name
        )
        assert all(kernel.latency_us > 0 for kernel in report.kernels), name


def _node_counts(graph: onnx.GraphProto) -> Iterator[int]:
    yield len(graph.node)
    for node in graph.node:
        for attribute in node.attribute:
            for body in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _node_counts(body)


def test_no_node_is_unsupported_where_the_inputs_are_given(cases: Mapping[str, Any]) -> None:
    unsupported = []
    for name, case in cases.items():
        if not case.data_sets or name.startswith(tuple(DEPENDS_ON_DATA)):
            continue
        found = inspect_model(read_model_bytes(case.model.SerializeToString()), values=_given(case)).unsupported
        unsupported += [f"{name}: {node.op_type}: {node.reason}" for node in found]
    assert unsupported == []


def test_what_a_node_gives_is_written(cases: Mapping[str, Any]) -> None:
    """Every output that is asked for, also those that most users leave out: masks, indices, states, statistics.

    Only nodes whose kernels stand alone are looked at: views write nothing. A cache that TensorScatter gets from the
    caller and gives back is one buffer, into which it writes the new rows alone.
    """
    short = []
    judged = 0
    for name, case in cases.items():
        if not case.data_sets or len(case.model.graph.node) != 1:
            continue
        if case.model.graph.node[0].op_type == "TensorScatter":
            continue
        graph = _infer(case.model, case.data_sets[0][0], with_data=True)
        works = lower(graph, runtime="onnxruntime")
        if any(work.free or work.unsupported for work in works):
            continue
        judged += 1
        values = [graph.values[item.name] for item in case.model.graph.output]
        asked = sum(
            value.dtype.bytes_of(value.element_count)
            for value in values
            if value.kind == "tensor" and value.shape is not None and value.dtype is not None
        )
        written = sum(work.count * kernel.write_bytes for work in works for kernel in work.kernels)
        if written < asked:
            short.append(f"{name}: {written} bytes of {asked}")
    assert judged > 700
    assert short == []
