"""Reading model files: what is in them, names and order, functions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from models import function, graph, linear, model, node, number, part, reference, tensor, value
from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Declared, Graph, Initializer
from neusight_onnx.graph.read import read_model, read_model_bytes
from read_models import codes, doubling, read, saved

SHARED = Path(os.environ.get("NEUSIGHT_SHARED", Path(__file__).parents[2] / "shared"))


def summary(read_in: Graph) -> list[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
    return [(n.name, n.op_type, n.inputs, n.outputs) for n in read_in.nodes]


# --- what is in a file ------------------------------------------------------------------------------------------------


def test_a_plain_model(tmp_path: Path) -> None:
    proto = linear()
    proto.producer_name, proto.producer_version = "pytorch", "2.9"
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    got = read_model(path)
    assert summary(got.graph) == [
        ("fc/MatMul", "MatMul", ("x", "w"), ("xw",)),
        ("fc/Add", "Add", ("xw", "b"), ("pre",)),
        ("act", "Relu", ("pre",), ("y",)),
    ]
    assert got.graph.inputs == (Declared(name="x", dtype=DataType.FLOAT32, shape=("batch", 4)),)
    assert got.graph.outputs == (Declared(name="y", dtype=DataType.FLOAT32, shape=("batch", 3)),)
    weights = {name: (w.dtype, w.shape, w.byte_count) for name, w in got.graph.initializers.items()}
    assert weights == {"w": (DataType.FLOAT32, (4, 3), 48), "b": (DataType.FLOAT32, (3,), 12)}
    assert (got.ir_version, got.opsets, got.producer) == (8, {"": 17}, "pytorch 2.9")
    assert got.byte_count == path.stat().st_size
    digest = subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True).stdout.split()[0]
    assert got.sha256 == digest
    assert got.warnings == ()
    assert all(n.version == 17 and n.origins[0].name == n.name for n in got.graph.nodes)


ATTRIBUTES: list[tuple[str, object, object]] = [
    ("int", 3, 3),
    ("negative", -7, -7),
    ("smallest", -(2**63), -(2**63)),
    ("float", 0.5, 0.5),
    ("string", "ReLU é", "ReLU é"),
    ("ints", [1, -2, 3], (1, -2, 3)),
    ("floats", [0.25, -1.5], (0.25, -1.5)),
    ("strings", ["a", "é"], ("a", "é")),
    ("many_ints", list(range(-5000, 5000)), tuple(range(-5000, 5000))),
    ("many_floats", [0.5 * i for i in range(5000)], tuple(0.5 * i for i in range(5000))),
    ("many_strings", ["LEAF"] * 3000, ("LEAF",) * 3000),
]


@pytest.mark.parametrize(("given", "expected"), [row[1:] for row in ATTRIBUTES], ids=[row[0] for row in ATTRIBUTES])
def test_attributes(given: object, expected: object) -> None:
    proto = model(graph([node("Op", "", "y", domain="ours", zz=1, a=given)]), opsets={"ours": 1})
    assert read(proto).graph.nodes[0].attributes == {"zz": 1, "a": expected}


@pytest.mark.parametrize("packed", [False, True], ids=["unpacked", "packed"])
@pytest.mark.parametrize(("field", "dtype"), [(7, DataType.FLOAT32), (8, DataType.INT64)], ids=["floats", "ints"])
def test_a_list_of_millions_is_only_counted(field: int, dtype: DataType, packed: bool) -> None:
    """Unpacked, each entry has a tag: 0x3d and four bytes, or 0x40 and a varint."""
    count = 2_500_000
    entry = b"\0\0\x80\x3f" if field == 7 else b"\x01"
    entries = part(field, entry * count) if packed else ((b"\x3d" if field == 7 else b"\x40") + entry) * count
    attribute = part(1, b"a") + entries + number(20, 6 if field == 7 else 7)
    main = part(1, part(2, b"y") + part(4, b"TreeEnsemble") + part(5, attribute))
    got = read_model_bytes(number(1, 8) + part(8, number(2, 17)) + part(7, main)).graph.nodes[0].attributes["a"]
    assert got == Initializer(name="a", dtype=dtype, shape=(count,))


def test_attributes_that_are_no_numbers() -> None:
    sparse = helper.make_sparse_tensor(
        tensor("s", np.array([5.0, 7.0], np.float32)), tensor("i", np.array([1, 3])), [2, 2]
    )
    type_proto = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.INT64, ["n"]))
    body = graph([node("Identity", "x", "inner")], [], [value("inner")], name="body")
    attributes = (
        read(
            model(
                graph(
                    [
                        node(
                            "Op",
                            "x",
                            "y",
                            domain="ours",
                            t=tensor("t", np.array([1, 2])),
                            sp=sparse,
                            ty=type_proto,
                            g=body,
                            gs=[body, body],
                            raw=b"\xff\xfe",
                        )
                    ],
                    [value("x")],
                ),
                opsets={"ours": 1},
            )
        )
        .graph.nodes[0]
        .attributes
    )
    t, sp = attributes["t"], attributes["sp"]
    assert isinstance(t, Initializer)
    assert t.data is not None
    assert t.data.tolist() == [1, 2]
    assert isinstance(sp, Initializer)
    assert sp.data is not None
    assert sp.data.tolist() == [[0.0, 5.0], [0.0, 7.0]]
    assert attributes["ty"] == Declared(name="", dtype=DataType.INT64, shape=("n",), kind="sequence")
    assert attributes["raw"] == b"\xff\xfe"
    g, gs = attributes["g"], attributes["gs"]
    assert isinstance(g, Graph)
    assert isinstance(gs, tuple)
    assert all(isinstance(item, Graph) for item in gs)
    names = [output for item in (g, *gs) if isinstance(item, Graph) for n in item.nodes for output in n.outputs]
    assert names[0] == "inner"
    assert len(set(names)) == 3


NO_TYPE_OF_FILES = (DataType.TFLOAT32,)
DTYPES = [
    dtype for dtype in DataType if dtype not in (DataType.STRING, DataType.UINT2, DataType.INT2, *NO_TYPE_OF_FILES)
]
NOT_KEPT = tuple(dtype for dtype in DataType if dtype.label.startswith(("float8", "float4")))


@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.label)
def test_small_tensors_keep_their_data(dtype: DataType, raw: bool) -> None:
    numbers = np.array([[0, 1, 0], [3, 1, 2]])
    if dtype.label.startswith("int"):
        numbers = -numbers
    if dtype is DataType.BOOL:
        numbers = numbers.clip(0, 1)
    array = numbers.astype(helper.tensor_dtype_to_np_dtype(dtype.onnx_code))
    if raw:
        proto = numpy_helper.from_array(array, "t")
    else:
        proto = helper.make_tensor("t", dtype.onnx_code, array.shape, array.flatten().tolist())
    got = read(model(graph([], initializers=[proto]))).graph.initializers["t"]
    assert (got.dtype, got.shape, got.byte_count) == (dtype, (2, 3), (6 * dtype.bits + 7) // 8)
    if dtype in NOT_KEPT or (not raw and dtype in (DataType.INT4, DataType.UINT4)):
        assert got.data is None
        return
    assert got.data is not None
    assert not got.data.flags.writeable
    assert got.data.astype(np.complex128).tolist() == numbers.tolist()


@pytest.mark.parametrize(
    ("array", "kept"),
    [
        pytest.param(np.zeros(64, np.float32), True, id="64-floats"),
        pytest.param(np.zeros(65, np.float32), False, id="65-floats"),
        pytest.param(np.zeros(65_536, np.int64), True, id="65536-int64"),
        pytest.param(np.zeros(65_537, np.int64), False, id="65537-int64"),
        pytest.param(np.zeros(1024, np.int8), True, id="1024-int8"),
        pytest.param(np.zeros(1025, np.int8), False, id="1025-int8"),
        pytest.param(np.zeros((0, 7), np.float32), True, id="no-elements"),
    ],
)
def test_which_tensors_keep_their_data(array: np.ndarray, kept: bool) -> None:
    got = read(model(graph([], initializers=[tensor("t", array)]))).graph.initializers["t"]
    assert got.shape == array.shape
    assert not got.missing
    assert (got.data is not None) == kept


SHAPES: list[tuple[str, onnx.ValueInfoProto, Declared]] = [
    ("static", value("x", [2, 3]), Declared(name="x", dtype=DataType.FLOAT32, shape=(2, 3))),
    ("scalar", value("x", []), Declared(name="x", dtype=DataType.FLOAT32, shape=())),
    ("no-shape", value("x", None), Declared(name="x", dtype=DataType.FLOAT32, shape=None)),
    ("symbol", value("x", ["n", None]), Declared(name="x", dtype=DataType.FLOAT32, shape=("n", None))),
    ("minus-one", value("x", [-1, 0]), Declared(name="x", dtype=DataType.FLOAT32, shape=(None, 0))),
    ("question-mark", value("x", ["?", "-1"]), Declared(name="x", dtype=DataType.FLOAT32, shape=(None, None))),
    (
        "sequence",
        helper.make_tensor_sequence_value_info("x", TensorProto.INT64, ["n"]),
        Declared(name="x", dtype=DataType.INT64, shape=("n",), kind="sequence"),
    ),
    (
        "optional",
        helper.make_value_info("x", helper.make_optional_type_proto(helper.make_tensor_type_proto(7, [2]))),
        Declared(name="x", dtype=DataType.INT64, shape=(2,), kind="optional"),
    ),
    (
        "map",
        helper.make_value_info("x", helper.make_map_type_proto(8, helper.make_tensor_type_proto(1, []))),
        Declared(name="x", dtype=DataType.FLOAT32, shape=(), kind="map"),
    ),
    ("no-type", onnx.ValueInfoProto(name="x"), Declared(name="x")),
]


@pytest.mark.parametrize(("proto", "expected"), [row[1:] for row in SHAPES], ids=[row[0] for row in SHAPES])
def test_declared(proto: onnx.ValueInfoProto, expected: Declared) -> None:
    got = read(model(graph([], [proto]))).graph
    assert got.inputs == (expected,)
    assert got.declared == {"x": expected}


def test_initializers_listed_as_inputs_are_no_inputs() -> None:
    proto = model(graph([node("Add", "x w", "y")], [value("x"), value("w")], [value("y")], [tensor("w", np.ones(3))]))
    assert [declared.name for declared in read(proto).graph.inputs] == ["x"]


@pytest.mark.parametrize(
    ("version", "node", "listed", "expected"),
    [
        (8, "y = MatMul(x, w)", True, ["constants-as-inputs"]),
        (8, "y = MatMul(x, w)", False, []),
        (3, "y = MatMul(x, w)", True, []),  # had to list them
        (8, "y = Add(x, w)", True, []),  # nothing would be folded
    ],
)
def test_weights_that_a_caller_may_replace(version: int, node: str, listed: bool, expected: list[str]) -> None:
    """ONNX Runtime treats them as inputs with a default and folds nothing into them."""
    beside = ", float[4, 4] w" if listed else ""
    model = onnx.parser.parse_model(
        f"""<ir_version: {version}, opset_import: ["": 8]>
        g (float[4, 4] x{beside}) => (float[4, 4] y) {{ {node} }}"""
    )
    model.graph.initializer.append(numpy_helper.from_array(np.ones((4, 4), np.float32), "w"))
    assert codes(read(model)) == expected


def test_a_graph_in_two_pieces_is_their_sum() -> None:
    """Protobuf merges a message field that occurs twice; onnx.load does so too."""
    first, second = linear(), model(graph([node("Relu", "y", "z")]))
    proto = first.SerializeToString() + part(7, second.graph.SerializeToString())
    assert len(onnx.load_model_from_string(proto).graph.node) == 4
    assert [n.op_type for n in read_model_bytes(proto).graph.nodes] == ["MatMul", "Add", "Relu", "Relu"]


# --- names and order --------------------------------------------------------------------------------------------------


def test_node_names_become_unique() -> None:
    proto = model(
        graph(
            [
                node("Relu", "x", "a", "n"),
                node("Relu", "a", "b", "n"),
                node("Relu", "b", "c"),
                node("Relu", "c", "d", "n_1"),
                node("Relu", "d", "e", "n"),
                node("Relu", "e", "f", "Relu_2"),
            ],
            [value("x")],
        )
    )
    got = read(proto)
    assert [n.name for n in got.graph.nodes] == ["n", "n_2", "Relu_2_1", "n_1", "n_3", "Relu_2"]
    assert codes(got) == ["duplicate-node-name"]
    assert "2 nodes" in got.warnings[0].message
    assert "'n'" in got.warnings[0].message


def test_names_in_branches_become_unique() -> None:
    def branch(op: str) -> onnx.GraphProto:
        return graph([node(op, "x", "a"), node("Neg", "a", "out", "last")], [], [value("out")], name=op)

    proto = model(
        graph(
            [
                node("If", "c", "y", "choose", then_branch=branch("Relu"), else_branch=branch("Exp")),
                node("Neg", "y", "a", "last"),
            ],
            [value("x"), value("c", (), TensorProto.BOOL)],
            [value("a")],
        )
    )
    got = read(proto).graph
    then, otherwise = got.nodes[0].attributes["then_branch"], got.nodes[0].attributes["else_branch"]
    assert isinstance(then, Graph)
    assert isinstance(otherwise, Graph)
    assert summary(then) == [
        ("choose/Relu_0", "Relu", ("x",), ("a_2",)),
        ("last_2", "Neg", ("a_2",), ("out_1",)),
    ]
    assert summary(otherwise) == [
        ("choose/Exp_0", "Exp", ("x",), ("a_1",)),
        ("last_1", "Neg", ("a_1",), ("out",)),
    ]
    assert [o.name for o in then.outputs] == ["out_1"]
    assert summary(got)[1] == ("last", "Neg", ("y",), ("a",))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)], ids=str)
def test_nodes_are_sorted(order: tuple[int, ...]) -> None:
    nodes = [node("Relu", "x", "a", "first"), node("Exp", "a", "b", "second"), node("Add", "a b", "y", "third")]
    got = read(model(graph([nodes[i] for i in order], [value("x")], [value("y")])))
    assert [n.name for n in got.graph.nodes] == ["first", "second", "third"]
    assert codes(got) == ([] if order == (0, 1, 2) else ["unsorted-nodes"])


def test_what_a_branch_reads_counts_for_the_order() -> None:
    branch = graph([node("Neg", "late", "out")], [], [value("out")])
    proto = model(
        graph(
            [
                node("If", "c", "y", "choose", then_branch=branch, else_branch=branch),
                node("Relu", "x", "late", "early"),
            ],
            [value("x"), value("c", (), TensorProto.BOOL)],
        )
    )
    assert [n.name for n in read(proto).graph.nodes] == ["early", "choose"]


def test_a_long_chain_in_reverse_is_sorted_without_recursion() -> None:
    count = 20_000
    nodes = [node("Relu", f"v{i}", f"v{i + 1}", f"n{i}") for i in reversed(range(count))]
    got = read(model(graph(nodes, [value("v0")])))
    assert [n.name for n in got.graph.nodes] == [f"n{i}" for i in range(count)]


# --- functions --------------------------------------------------------------------------------------------------------


def test_functions_are_inlined_with_a_trail() -> None:
    inner = function("Scale", "x f", "y", [node("Mul", "x f", "y", "Mul")])
    outer = function(
        "Lin",
        "x w b",
        "y",
        [
            node("MatMul", "x w", "t", "MatMul"),
            node("Scale", "t b", "u", "scale", domain="local"),
            node("Relu", "u", "y"),
        ],
    )
    proto = model(
        graph(
            [
                node("Lin", "x w b", "h", "first", domain="local"),
                node("Lin", "h w b", "y", "second", domain="local"),
            ],
            [value("x"), value("w"), value("b")],
            [value("y")],
        ),
        [inner, outer],
        {"": 17, "local": 1},
    )
    assert summary(read(proto).graph) == [
        ("first/MatMul", "MatMul", ("x", "w"), ("first/t",)),
        ("first/scale/Mul", "Mul", ("first/t", "b"), ("first/u",)),
        ("first/Relu_2", "Relu", ("first/u",), ("h",)),
        ("second/MatMul", "MatMul", ("h", "w"), ("second/t",)),
        ("second/scale/Mul", "Mul", ("second/t", "b"), ("second/u",)),
        ("second/Relu_2", "Relu", ("second/u",), ("y",)),
    ]


def test_attributes_of_functions() -> None:
    """Given, defaulted, left out, handed on to an inner function, used within a subgraph."""
    branch = graph([helper.make_node("Flatten", ["x"], ["f"])], [], [value("f")])
    branch.node[0].attribute.append(reference("axis", "axis", AttributeProto.INT))
    nodes = [node("LeakyRelu", "x", "a", "leaky"), node("Inner", "a", "b", "in", domain="local")]
    nodes[0].attribute.append(reference("alpha", "alpha", AttributeProto.FLOAT))
    nodes[1].attribute.append(reference("axis", "axis", AttributeProto.INT))
    nodes.append(node("If", "c", "y", "if", then_branch=branch, else_branch=branch))
    inner_node = node("Softmax", "x", "y", "soft")
    inner_node.attribute.append(reference("axis", "axis", AttributeProto.INT))
    outer = function("Outer", "x c", "y", nodes, ["axis"], [helper.make_attribute("alpha", 0.25)])
    inner = function("Inner", "x", "y", [inner_node], ["axis"])
    proto = model(
        graph(
            [
                node("Outer", "x c", "p", "one", domain="local", axis=2),
                node("Outer", "p c", "q", "two", domain="local", axis=3, alpha=0.5),
                node("Outer", "q c", "r", "three", domain="local"),
            ],
            [value("x"), value("c", (), TensorProto.BOOL)],
        ),
        [outer, inner],
        {"": 17, "local": 1},
    )
    nodes_by_name = {n.name: n for n in read(proto).graph.nodes}
    assert [nodes_by_name[f"{call}/leaky"].attributes for call in ("one", "two", "three")] == [
        {"alpha": 0.25},
        {"alpha": 0.5},
        {"alpha": 0.25},
    ]
    assert [nodes_by_name[f"{call}/in/soft"].attributes for call in ("one", "two", "three")] == [
        {"axis": 2},
        {"axis": 3},
        {},
    ]
    branches = [nodes_by_name[f"{call}/if"].attributes["then_branch"] for call in ("one", "two")]
    assert [b.nodes[0].attributes for b in branches if isinstance(b, Graph)] == [{"axis": 2}, {"axis": 3}]
    assert [b.nodes[0].inputs for b in branches if isinstance(b, Graph)] == [("x",), ("p",)]


def test_a_function_has_its_own_opsets_and_may_replace_an_operator() -> None:
    relu = function("Relu", "x", "y", [node("Max", "x x", "y", "max")], opsets={"": 13}, domain="")
    proto = model(graph([node("Relu", "x", "y", "act"), node("Neg", "y", "z", "neg")], [value("x")]), [relu])
    assert [(n.name, n.op_type, n.version) for n in read(proto).graph.nodes] == [
        ("act/max", "Max", 13),
        ("neg", "Neg", 17),
    ]


def test_optional_inputs_unused_outputs_and_inputs_handed_through() -> None:
    both = function("Both", "x s", "y same", [node("Clip", "x s", "y", "clip"), node("Identity", "x", "same", "id")])
    through = function("Through", "x", "x1 x2", [node("Relu", "x", "x1", "relu"), node("Neg", "x1", "x2", "neg")])
    echo = function("Echo", "x", "x", [])
    proto = model(
        graph(
            [
                node("Both", "x", "a", "both", domain="local"),
                node("Through", "a", "- b", "through", domain="local"),
                node("Echo", "b", "c", "echo", domain="local"),
            ],
            [value("x")],
        ),
        [both, through, echo],
        {"": 17, "local": 1},
    )
    assert summary(read(proto).graph) == [
        ("both/clip", "Clip", ("x", ""), ("a",)),
        ("both/id", "Identity", ("x",), ("both/same",)),
        ("through/relu", "Relu", ("a",), ("through/x1",)),
        ("through/neg", "Neg", ("through/x1",), ("b",)),
        ("echo/Identity_1", "Identity", ("b",), ("c",)),
    ]


def test_doubling_functions() -> None:
    assert len(read(doubling(10)).graph.nodes) == 1024


# --- size and speed ---------------------------------------------------------------------------------------------------


def test_two_gigabytes_of_weights_are_stepped_over(tmp_path: Path) -> None:
    """A sparse file: y = x (b, 1024) @ w (524288, 1024)^T, 2 GiB inline, which protobuf itself could not parse."""
    rows = 524_288
    head = number(1, rows) + number(1, 1024) + number(2, 1) + part(8, b"w") + b"\x4a" + b"\x80\x80\x80\x80\x08"
    tensor_size = len(head) + rows * 1024 * 4
    main = part(1, node("Gemm", "x w", "y", transB=1).SerializeToString())
    main += part(11, value("x", ["b", 1024]).SerializeToString()) + b"\x2a" + varint_of(tensor_size) + head
    content = number(1, 8) + part(8, number(2, 17)) + b"\x3a" + varint_of(len(main) + rows * 1024 * 4) + main
    path = tmp_path / "big.onnx"
    with path.open("wb") as file:
        file.write(content)
        file.truncate(len(content) + rows * 1024 * 4)
    program = f"""
import resource, time
from neusight_onnx.graph.read import read_model
before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
weight = read_model({str(path)!r}).graph.initializers["w"]
print(weight.byte_count, time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    size, seconds, kilobytes = map(float, done.stdout.split())
    assert size == 2**31
    assert seconds < 2
    assert kilobytes < 50_000


def varint_of(content: int) -> bytes:
    return number(1, content)[1:]


def test_reading_needs_no_onnx(tmp_path: Path) -> None:
    """Importing onnx would take longer than all of the reading."""
    path = saved(tmp_path, linear())
    program = f"""
import sys
from neusight_onnx.graph.read import read_model
assert len(read_model({str(path)!r}).graph.nodes) == 3
print("onnx" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# --- real models ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not (SHARED / "models").is_dir(), reason="the folder of real models is not here")
def test_real_models_are_read_as_onnx_reads_them() -> None:
    paths = sorted((SHARED / "models").rglob("*.onnx"))[::3]
    assert paths
    for path in paths:
        expected = onnx.load(path, load_external_data=False)
        got = read_model(path)
        if not expected.functions:
            assert [n.op_type for n in got.graph.nodes] == [n.op_type for n in expected.graph.node], path
        assert set(got.graph.initializers) >= {i.name for i in expected.graph.initializer}, path
        for proto in expected.graph.initializer:
            ours = got.graph.initializers[proto.name]
            assert (ours.dtype.onnx_code, ours.shape) == (proto.data_type, tuple(proto.dims)), (path, proto.name)
            if ours.data is not None and proto.data_location == TensorProto.DEFAULT:
                assert np.array_equal(ours.data, numpy_helper.to_array(proto).astype(ours.data.dtype), equal_nan=False)
