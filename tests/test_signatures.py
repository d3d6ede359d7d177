"""The table of signatures is that of onnx's and ONNX Runtime's schemas, and nodes that break them are refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import onnx
import onnxruntime
import pytest
from onnx import AttributeProto, TensorProto, defs, helper
from onnxruntime.capi import onnxruntime_pybind11_state as onnxruntime_state

from graphs import inferred, split
from neusight_onnx.errors import ModelError
from neusight_onnx.graph import signatures
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.graph.shapes import infer

KINDS = {
    "INT": "i",
    "FLOAT": "f",
    "STRING": "s",
    "TENSOR": "t",
    "SPARSE_TENSOR": "p",
    "GRAPH": "g",
    "TYPE_PROTO": "y",
    "INTS": "I",
    "FLOATS": "F",
    "STRINGS": "S",
    "TENSORS": "T",
    "SPARSE_TENSORS": "P",
    "GRAPHS": "G",
    "TYPE_PROTOS": "Y",
    "???": "y",
}
"""Names of attribute types in both packages; ONNX Runtime's binding has no name for types."""


LETTERS = {"Single": "s", "Optional": "o", "Variadic": "v"}


def places(formal: Any, least: int) -> str:
    letters = "".join(LETTERS[str(each.option).split(".")[-1]] for each in formal)
    return (letters or "-") + (str(least) if least != letters.count("s") else "")


CATEGORIES = {"string": "s", "bool": "b", "complex64": "c", "complex128": "c", "double": "f"}


def elements(formal: Any) -> str:
    """A letter for each kind of element that an input may have; anything, if it may be no tensor."""
    held = set()
    for each in formal.types:
        inner = each.removeprefix("tensor(").removesuffix(")")
        if inner == each:
            return "*"
        held.add(CATEGORIES.get(inner, "f" if "float" in inner else "i"))
    return "*" if len(held) == 5 else "".join(sorted(held))


def line_of(schema: Any) -> str:
    attributes = [
        f"{name}:{KINDS[str(attribute.type).split('.')[-1]]}{'!' if attribute.required else ''}"
        for name, attribute in sorted(schema.attributes.items())
    ]
    inputs, outputs = places(schema.inputs, schema.min_input), places(schema.outputs, schema.min_output)
    if isinstance(schema, defs.OpSchema) and schema.inputs:
        variables = [each.type_str for each in schema.inputs if each.is_homogeneous]
        several = {each.type_str for each in schema.inputs if str(each.option).endswith("Variadic")}
        several |= {each for each in variables if variables.count(each) > 1}
        shared = [each for each in dict.fromkeys(variables) if each in several]
        kinds = [
            elements(each) + (str(shared.index(each.type_str) + 1) if each.type_str in shared else "")
            for each in schema.inputs
        ]
        inputs += "/" + ",".join(kinds) if set(kinds) != {"*"} else ""
    return " ".join([inputs, outputs, *attributes])


def expected_lines() -> Iterator[str]:
    """onnx's own for the standard's domains, ONNX Runtime's for the others and for what it adds to the standard."""
    standard = {(each.domain, each.name, each.since_version): each for each in defs.get_all_schemas_with_history()}
    names = {(domain, name) for domain, name, _ in standard}
    domains = {domain for domain, _ in names}
    chosen: dict[tuple[str, str, int], Any] = dict(standard)
    for each in onnxruntime_state.get_all_operator_schema():
        added = each.domain in domains and (each.domain, each.name) not in names
        if each.domain == "com.microsoft" or added:
            chosen[each.domain, each.name, each.since_version] = each
    yield f"# onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}"
    domain = ""
    previous = ("", "", "")
    for (found, name, version), schema in sorted(chosen.items(), key=lambda item: item[0]):
        if found != domain:
            domain = found
            yield f"[{domain}]"
        line = line_of(schema)
        if previous != (found, name, line):
            yield f"{name} {version} {line}"
        previous = (found, name, line)


def test_the_table_is_that_of_the_schemas() -> None:
    expected = "\n".join(expected_lines()) + "\n"
    table = signatures._TABLE
    if os.environ.get("NEUSIGHT_UPDATE_GOLDEN"):
        table.write_text(expected, "ascii")
    found = table.read_text("ascii")
    if found.splitlines()[0] != expected.splitlines()[0]:
        pytest.skip(f"made of {found.splitlines()[0].strip('# ')}; other releases are installed")
    assert found == expected, "NEUSIGHT_UPDATE_GOLDEN=1 writes it anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A node that no runtime takes, and what is said of it."""

    node: str
    says: str
    inputs: dict[str, tuple[int, ...]] = field(default_factory=lambda: {"x": (2, 3)})
    weights: dict[str, tuple[int, ...]] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)
    opset: int = 17


def grouped(cache: tuple[int, ...], says: str, attributes: str = "") -> Refused:
    """Two samples' queries of two heads of 16 on one head of keys, behind such a cache."""
    heads = f"num_heads = 2, kv_num_heads = 1{attributes}"
    return Refused(
        node=f"y, a, b = com.microsoft.GroupQueryAttention<{heads}>(q, k, k, pk, pk, n, t)",
        says=says,
        inputs={"q": (2, 1, 32), "k": (2, 1, 16), "pk": cache, "n": (2,), "t": ()},
        types={"n": TensorProto.INT32, "t": TensorProto.INT32},
    )


IMAGE = {"x": (1, 3, 9, 9)}
FILTERS = {"w": (4, 3, 3, 3)}
REFUSED = {
    "too many inputs": Refused(node="y = Relu(x, x, x)", says="has 3 inputs, can have 1"),
    "too few inputs": Refused(node="y = Add(x)", says="has 1 input, needs 2"),
    "an input left out": Refused(
        node="y = Where(c, , x)",
        says="input 1 is missing",
        types={"c": TensorProto.BOOL},
        inputs={"c": (2,), "x": (2,)},
    ),
    "too many outputs": Refused(node="y, z = Relu(x)", says="has 2 outputs, can have 1"),
    "an attribute of another type": Refused(node='y = Softmax<axis = "z">(x)', says="attribute axis is not an integer"),
    "a number for a list": Refused(node="y = Transpose<perm = 1>(x)", says="attribute perm is not a list of integers"),
    "a list for a number": Refused(node="y = Softmax<axis = [1]>(x)", says="attribute axis is not an integer"),
    "floats for integers": Refused(node="y = Transpose<perm = [1.0, 0.5]>(x)", says="perm is not a list of integers"),
    "a tensor that is a number": Refused(node="y = Constant<value = 1>()", says="attribute value is not a tensor"),
    "a required attribute is missing": Refused(node="y = Concat(x, x)", says="lacks the attribute axis"),
    "Cast to nothing": Refused(node="y = Cast(x)", says="lacks the attribute to"),
    "heads are missing": Refused(
        node="y = com.microsoft.MultiHeadAttention(q, q, q)",
        says="lacks the attribute num_heads",
        inputs={"q": (2, 3, 8)},
    ),
    "an axis behind the last": Refused(
        node="y = Softmax<axis = 2>(x)", says="axis 2 is outside the rank 2 of x [2, 3]"
    ),
    "an axis before the first": Refused(node="y = LogSoftmax<axis = -3>(x)", says="axis -3 is outside the rank 2"),
    "normalized over no axis": Refused(
        node="y = LayerNormalization<axis = 7>(x, w)", says="axis 7 is outside", weights={"w": (3,)}
    ),
    "softmax of a scalar": Refused(node="y = Softmax(x)", says="has rank 0, not 1 or more", inputs={"x": ()}),
    "Gemm of three dimensions": Refused(
        node="y = Gemm(x, w)", says="x [2, 3, 4] has rank 3, not 2", inputs={"x": (2, 3, 4)}, weights={"w": (4, 5)}
    ),
    "Gemm adds what does not fit": Refused(
        node="y = Gemm(x, w, c)", says="c [5] does not broadcast to its result [2, 6]", weights={"w": (3, 6), "c": (5,)}
    ),
    "kernel_shape is not the weight's": Refused(
        node="y = Conv<kernel_shape = [5, 5]>(x, w)",
        says="kernel_shape [5, 5] is not that of its weight",
        inputs=IMAGE,
        weights=FILTERS,
    ),
    "a bias of other channels": Refused(
        node="y = Conv(x, w, b)",
        says="b [7] does not fit w [4, 3, 3, 3]: 7 is not 4",
        inputs=IMAGE,
        weights={**FILTERS, "b": (7,)},
    ),
    "groups that do not divide the filters": Refused(
        node="y = Conv<group = 3>(x, w)",
        says="group is 3, which does not divide w [4, 1, 3, 3]",
        inputs=IMAGE,
        weights={"w": (4, 1, 3, 3)},
    ),
    "groups that do not divide the channels": Refused(
        node="y = ConvTranspose<group = 2>(x, w)",
        says="group is 2, which does not divide x",
        inputs=IMAGE,
        weights={"w": (3, 3, 3, 3)},
    ),
    "no such padding": Refused(
        node='y = Conv<auto_pad = "SAME">(x, w)',
        says="auto_pad is 'SAME', not one of NOTSET, SAME_LOWER",
        inputs=IMAGE,
        weights=FILTERS,
    ),
    "a stride of nothing": Refused(
        node="y = MaxPool<kernel_shape = [2, 2], strides = [0, 1]>(x)",
        says="strides is [0, 1], not positive",
        inputs=IMAGE,
    ),
    "a dilation backwards": Refused(
        node="y = Conv<dilations = [-1, 1]>(x, w)",
        says="dilations is [-1, 1], not positive",
        inputs=IMAGE,
        weights=FILTERS,
    ),
    "statistics of other channels": Refused(
        node="y = BatchNormalization(x, w, w, w, w)",
        says="w [5] does not fit x [1, 3, 9, 9]: 5 is not 3",
        inputs=IMAGE,
        weights={"w": (5,)},
    ),
    "a scale that does not broadcast": Refused(
        node="y = LayerNormalization(x, w)", says="w [5] does not broadcast to x [2, 3]", weights={"w": (5,)}
    ),
    "LSTM: weights of other inputs": Refused(
        node="y = LSTM<hidden_size = 4>(x, w, r)",
        says="w [1, 16, 9] does not fit x [2, 3, 4]: 9 is not 4",
        inputs={"x": (2, 3, 4)},
        weights={"w": (1, 16, 9), "r": (1, 16, 4)},
    ),
    "LSTM: three gates": Refused(
        node="y = LSTM<hidden_size = 4>(x, w, r)",
        says="r [1, 12, 4] does not fit w [1, 16, 4]: 12 is not 16",
        inputs={"x": (2, 3, 4)},
        weights={"w": (1, 16, 4), "r": (1, 12, 4)},
    ),
    "LSTM: another hidden size": Refused(
        node="y = LSTM<hidden_size = 7>(x, w, r)",
        says="hidden_size is 7, its recurrence weight has 4",
        inputs={"x": (2, 3, 4)},
        weights={"w": (1, 16, 4), "r": (1, 16, 4)},
    ),
    "LSTM: two directions with weights for one": Refused(
        node='y = LSTM<hidden_size = 4, direction = "bidirectional">(x, w, r)',
        says="2 direction(s) do not fit",
        inputs={"x": (2, 3, 4)},
        weights={"w": (1, 16, 4), "r": (1, 16, 4)},
    ),
    "LSTM: no such direction": Refused(
        node='y = LSTM<hidden_size = 4, direction = "both">(x, w, r)',
        says="direction is 'both', not one of",
        inputs={"x": (2, 3, 4)},
        weights={"w": (1, 16, 4), "r": (1, 16, 4)},
    ),
    "heads that do not divide": Refused(
        node="y = com.microsoft.MultiHeadAttention<num_heads = 3>(q, q, q)",
        says="num_heads is 3, which does not divide",
        inputs={"q": (2, 3, 8)},
    ),
    "no heads": Refused(
        node="y = com.microsoft.MultiHeadAttention<num_heads = 0>(q, q, q)",
        says="num_heads is 0, not positive",
        inputs={"q": (2, 3, 8)},
    ),
    "groups of heads that do not divide": Refused(
        node="y = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 3>(q, q, q, , , n, t)",
        says="kv_num_heads 3 does not divide num_heads 4",
        inputs={"q": (2, 3, 8), "n": (2,), "t": ()},
        types={"n": TensorProto.INT32, "t": TensorProto.INT32},
    ),
    "attention: heads of queries and keys differ, joined": Refused(
        node="y = Attention<q_num_heads = 2, kv_num_heads = 2>(q, k, k)",
        says="queries have heads of 8, its keys of 4",
        inputs={"q": (1, 4, 16), "k": (1, 4, 8)},
        opset=23,
    ),
    "attention: heads of queries and keys differ": Refused(
        node="y = Attention(q, k, k)",
        says="queries have heads of 16, its keys of 8",
        inputs={"q": (1, 2, 4, 16), "k": (1, 2, 4, 8)},
        opset=23,
    ),
    "attention: groups of heads that do not divide": Refused(
        node="y = Attention(q, k, k)",
        says="2 heads of keys and values do not divide 3",
        inputs={"q": (1, 3, 4, 8), "k": (1, 2, 4, 8)},
        opset=23,
    ),
    "attention: heads that its inputs haven't": Refused(
        node="y = Attention<q_num_heads = 4, kv_num_heads = 3>(q, q, q)",
        says=r"its kv_num_heads is 3, but input 1 (q [1, 4, 8, 16]) has 4 heads",
        inputs={"q": (1, 4, 8, 16)},
        opset=23,
    ),
    "attention: scores of a stage that isn't": Refused(
        node="y, k, v, p = Attention<qk_matmul_output_mode = 9>(q, q, q)",
        says="its qk_matmul_output_mode is 9, not 0 to 3",
        inputs={"q": (1, 4, 8, 16)},
        opset=23,
    ),
    "projected attention: heads of queries and keys differ": Refused(
        node="y = com.microsoft.Attention<num_heads = 2, qkv_hidden_sizes = [16, 8, 8]>(x, w, b)",
        says="queries have heads of 8, its keys of 4",
        inputs={"x": (1, 4, 16)},
        weights={"w": (16, 32), "b": (32,)},
    ),
    "multi-head attention: heads of queries and keys differ": Refused(
        node="y = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, k)",
        says="queries have heads of 8, its keys of 4",
        inputs={"q": (1, 4, 16), "k": (1, 4, 8)},
    ),
    "grouped-query attention: heads of queries and keys differ": Refused(
        node="y = com.microsoft.GroupQueryAttention<num_heads = 2, kv_num_heads = 1>(q, k, k, , , n, t)",
        says="queries have heads of 16, its keys of 8",
        inputs={"q": (1, 4, 32), "k": (1, 4, 8), "n": (1,), "t": ()},
        types={"n": TensorProto.INT32, "t": TensorProto.INT32},
    ),
    "grouped-query attention: a cache of other samples": grouped(
        (7, 1, 5, 16), "its cache 'pk' has 7 samples, the new keys and values 2"
    ),
    "grouped-query attention: a cache of other heads": grouped(
        (2, 8, 5, 16), "its cache 'pk' has 8 heads, the new keys and values 1"
    ),
    "grouped-query attention: a cache of other sizes": grouped(
        (2, 1, 5, 8), "its cache 'pk' has 8 numbers a head, the new keys and values 16"
    ),
    "grouped-query attention: a cache of 4 bits, two in a byte": grouped(
        (2, 1, 5, 16), "its cache 'pk' has 16 numbers a head, the new keys and values 8", ", kv_cache_bit_width = 4"
    ),
    "multi-head attention: a cache of other heads": Refused(
        node="y, a, b = com.microsoft.MultiHeadAttention<num_heads = 2>(q, q, q, , , , pk, pk)",
        says="its cache 'pk' has 3 heads, the new keys and values 2",
        inputs={"q": (2, 1, 32), "pk": (2, 3, 5, 16)},
    ),
    "projected attention: a cache of other samples": Refused(
        node="y, a = com.microsoft.Attention<num_heads = 2>(x, w, b, , past)",
        says="its cache 'past' has 3 samples, the new keys and values 1",
        inputs={"x": (1, 4, 16), "past": (2, 3, 2, 5, 8)},
        weights={"w": (16, 48), "b": (48,)},
    ),
    "attention: a cache of other sizes": Refused(
        node="y, a, b = Attention(q, q, q, , pk, pk)",
        says="its cache 'pk' has 8 numbers a head, the new keys and values 16",
        inputs={"q": (1, 2, 4, 16), "pk": (1, 2, 5, 8)},
        opset=23,
    ),
    "paged attention: a cache of other heads": Refused(
        node="y, a, b = com.microsoft.PagedAttention<num_heads = 2, kv_num_heads = 2>(q, q, q, pk, pk, o, p, t)",
        says="its cache 'pk' has 4 heads, the new keys and values 2",
        inputs={"q": (1, 32), "pk": (3, 16, 4, 16), "o": (2,), "p": (1,), "t": (1, 3)},
        types=dict.fromkeys(("o", "p", "t"), TensorProto.INT32),
    ),
    "floats for an integer product": Refused(
        node="y = MatMulInteger(x, w)", says="x holds float32, it can have integers", weights={"w": (3, 4)}
    ),
    "text for a number": Refused(
        node="y = Relu(x)", says="x holds string, it can have floats or integers", types={"x": TensorProto.STRING}
    ),
    "floats for indices": Refused(
        node="y = Gather(x, i)", says="i holds float32, it can have integers", inputs={"x": (2, 3), "i": (2,)}
    ),
    "a condition that is a number": Refused(node="y = Where(x, x, x)", says="x holds float32, it can have booleans"),
    "two types in one sum": Refused(
        node="y = Add(x, i)",
        says="its inputs x and i hold float32 and int64, they must have one type",
        inputs={"x": (2, 3), "i": (2, 3)},
        types={"i": TensorProto.INT64},
    ),
    "two types behind each other": Refused(
        node="y = Concat<axis = 0>(x, x, h)",
        says="its inputs x and h hold float32 and float16, they must have one type",
        inputs={"x": (2, 3), "h": (2, 3)},
        types={"h": TensorProto.FLOAT16},
    ),
    "a shape of two dimensions": Refused(
        node="y = Reshape(x, s)",
        says="s [2, 2] has rank 2, not 1",
        inputs={"x": (2, 3), "s": (2, 2)},
        types={"s": TensorProto.INT64},
    ),
    "a skip of another length": Refused(
        node="y = com.microsoft.SkipLayerNormalization(x, s, g)",
        says="s [2, 4, 8] does not broadcast to x [2, 3, 8]",
        inputs={"x": (2, 3, 8), "s": (2, 4, 8)},
        weights={"g": (8,)},
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_no_runtime_takes_is_refused(case: Refused) -> None:
    with pytest.raises(ModelError) as caught:
        inferred(case.node, case.inputs, weights=case.weights, types=case.types, opset=case.opset)
    op_type = split(case.node)[0].op_type
    assert str(caught.value).startswith(f"{op_type} node '{op_type}_0': ")
    assert case.says in str(caught.value)


def test_an_attribute_of_an_unknown_type_is_refused() -> None:
    shape = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph(split("y = Softmax<axis = 1>(x)"), "graph", [shape], [onnx.ValueInfoProto(name="y")])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    integer, unknown = bytes([0xA0, 0x01, AttributeProto.INT]), bytes([0xA0, 0x01, 99])  # field 20, its type
    assert content.count(integer) == 1
    with pytest.raises(ModelError, match="attribute axis is not an integer"):
        infer(read_model_bytes(content.replace(integer, unknown)))


ACCEPTED = {
    "of two axes the later one is another operator's row": ("y = Softmax<axis = 2>(x)", {"x": (2, 3)}, {}, 11),
    "optional inputs at the end, left out": ("y = Clip(x, , )", {"x": (2, 3)}, {}, 17),
    "an optional input in between": ("y = Clip(x, , m)", {"x": (2, 3)}, {"m": ()}, 17),
    "integers for numbers": ("y = LeakyRelu<alpha = 1>(x)", {"x": (2, 3)}, {}, 17),
    "a scale of another type, where that may be": (
        "y = BatchNormalization(x, w, w, m, m)",
        {"x": (1, 3, 4, 4)},
        {"w": (3,), "m": (3,)},
        15,
    ),
    "a scale that broadcasts": (
        "y = GroupNormalization<num_groups = 2>(x, w, w)",
        {"x": (1, 4, 3)},
        {"w": (1, 4)},
        21,
    ),
    "a slope wider than its input": ("y = PRelu(x, w)", {"x": (5,)}, {"w": (2, 5)}, 17),
    "more inputs of an operator that gains some": (
        "y = com.microsoft.FastGelu(x, b, c, d)",
        {"x": (2, 3)},
        {"b": (3,), "c": (3,), "d": (3,)},
        17,
    ),
    "ONNX Runtime's own attributes": ("y = Relu<__backwardpass = 1>(x)", {"x": (2, 3)}, {}, 17),
}


@pytest.mark.parametrize(("node", "inputs", "weights", "opset"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_what_a_runtime_takes_is_taken(
    node: str, inputs: dict[str, tuple[int, ...]], weights: dict[str, tuple[int, ...]], opset: int
) -> None:
    result = inferred(node, inputs, weights=weights, opset=opset)
    assert not [notice for notice in result.warnings if notice.code == "unknown-attribute"]


def test_attributes_that_an_operator_does_not_have_are_named() -> None:
    """ONNX Runtime refuses such a file; others read it, and what it costs is known without them."""
    nodes = "a = Relu<alpha = 0.5>(x)\nb = Relu<alpha = 0.5>(a)\ny = Softmax<axis = 1, beta = 2>(b)"
    result = inferred(nodes, {"x": (2, 3)})
    assert [(notice.code, notice.node) for notice in result.warnings] == [
        ("unknown-attribute", "Relu_0"),
        ("unknown-attribute", "Softmax_2"),
    ]
    assert "Relu has no attribute 'alpha'" in result.warnings[0].message
    assert "('Relu_0' and 1 more)" in result.warnings[0].message


def test_types_say_nothing_once_one_is_only_likely() -> None:
    """What an unknown operator gives is guessed: it may be what the next one needs."""
    nodes = split("i = acme.Pick(x)\ny = Gather(x, i)")
    graph = inferred(nodes, {"x": (2, 3)})
    assert graph.values["y"].shape is None


def test_a_body_that_may_not_run_is_not_refused() -> None:
    body = helper.make_graph(
        split("z = Relu(x, x)"), "body", [], [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 3])]
    )
    good = helper.make_graph(
        split("z = Relu(x)"), "body", [], [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 3])]
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=good, else_branch=body)
    graph = inferred([node], {"x": (2, 3), "c": ()}, types={"c": TensorProto.BOOL})
    assert graph.values["y"].shape == (2, 3)
