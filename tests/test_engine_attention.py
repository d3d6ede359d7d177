"""Attention as engines fuse it: which formulas, which heads, which operands, and what stays outside."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from engine_graphs import ATTENTION, HEADS, TOKENS, built, shown
from graphs import inferred, split, value_info
from neusight_onnx.analysis import analyze
from neusight_onnx.fusion.runtimes import fusion_verdicts
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.runtime import RUNTIMES

PACKED = """
t = Transpose<perm=[2,0,3,1,4]>(x)
a, b, c = Split<axis=0, num_outputs=3>(t)
q = Reshape(a, heads)
k = Reshape(b, heads)
v = Reshape(c, heads)
s = Mul(q, scale)
u = Transpose<perm=[0,1,3,2]>(k)
p = MatMul(s, u)
w = Softmax<axis=-1>(p)
o = MatMul(w, v)
"""
"""Queries, keys and values out of one tensor, as timm's vision transformers have it."""


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param(PACKED, ["attention"], id="split"),
        pytest.param(
            PACKED.replace("a, b, c = Split<axis=0, num_outputs=3>(t)\n", "")
            .replace("Reshape(a, heads)", "Gather(t, i0)")
            .replace("Reshape(b, heads)", "Gather(t, i1)")
            .replace("Reshape(c, heads)", "Gather(t, i2)"),
            ["attention"],
            id="indexed",
        ),
        # as exporters write the scale of their own attention: from the size of a head, on both factors
        pytest.param(
            PACKED.replace("s = Mul(q, scale)", "z = Shape<start=-1>(q)\ns = Mul(q, scale)").replace(
                "p = MatMul(s, u)", "e = Mul(u, scale)\np = MatMul(s, e)"
            ),
            ["attention"],
            id="split, PyTorch's own attention",
        ),
        # as torch.onnx's dynamo exporter writes it: unbind as Slices, keys transposed with batch and heads as one dim
        pytest.param(
            PACKED.replace(
                "a, b, c = Split<axis=0, num_outputs=3>(t)\n",
                "a = Slice(t, n0, n1, n0)\nb = Slice(t, n1, n2, n0)\nc = Slice(t, n2, n3, n0)\n",
            ).replace(
                "u = Transpose<perm=[0,1,3,2]>(k)",
                "f = Reshape(k, folded)\ng = Transpose<perm=[0,2,1]>(f)\nu = Reshape(g, unfolded)",
            ),
            ["attention"],
            id="sliced, keys folded",
        ),
        # keys of another order than the Transpose's: elements of a head and tokens change places in memory
        pytest.param(
            PACKED.replace(
                "u = Transpose<perm=[0,1,3,2]>(k)",
                "f = Reshape(k, folded)\ng = Transpose<perm=[1,0,2]>(f)\nu = Reshape(g, unfolded)",
            ),
            ["movement transpose", "movement split", "movement transpose", "attention"],
            id="keys folded, no Transpose of keys",
        ),
        # the Transpose's result is a tensor of its own: the three lie in it
        pytest.param(
            PACKED.replace("(x)\n", "(x)\nr = Relu(t)\n"),
            ["elementwise transpose relu", "attention"],
            id="read by others",
        ),
        # elements of a head are not next to each other, which fused attention asks for
        pytest.param(
            PACKED.replace("perm=[2,0,3,1,4]", "perm=[2,0,3,4,1]"),
            ["movement transpose", "attention"],
            id="heads that are not dense",
        ),
    ],
)
def test_fused_attention_reads_by_strides(nodes: str, expected: list[str]) -> None:
    """x is (batch, tokens, 3, heads, 16)."""
    graph = inferred(
        nodes,
        {"x": (2, 16, 3, 4, 16)},
        constants={
            "scale": np.float16(0.35),
            "heads": [2, 4, 16, 16],
            "folded": [8, 16, 16],
            "unfolded": [2, 4, 16, 16],
            **{f"i{i}": np.int64(i) for i in range(3)},
            **{f"n{i}": [i] for i in range(4)},
        },
        types={"x": 10},
        outputs=["o", *(["r"] if "r =" in nodes else [])],
        opset=20,
    )
    assert shown(graph, "tensorrt") == expected


BIASED = PACKED.replace("(x)\n", "(r)\n").replace(
    "t = ", "m = MatMul(x, l)\nf = Add(m, vector)\nr = Reshape(f, packed)\nt = ", 1
)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param(BIASED, ["gemm", *["elementwise add"] * 3, "attention"], id="attention alone reads it"),
        # TorchScript's exporter computes the scale from the size of a head: no element is read for that
        pytest.param(
            BIASED.replace("s = Mul(q, scale)", "z = Shape<start=-1>(q)\ns = Mul(q, scale)"),
            ["gemm", *["elementwise add"] * 3, "attention"],
            id="attention and a Shape",
        ),
        pytest.param(
            BIASED + "z = Relu(f)\n", ["gemm bias", "attention", "elementwise relu"], id="something else does, too"
        ),
    ],
)
def test_the_bias_of_queries_keys_and_values_is_added_behind_their_product(nodes: str, expected: list[str]) -> None:
    """A kernel for each of the three parts; x is (batch, tokens, 64)."""
    graph = inferred(
        nodes,
        {"x": (2, 16, 64)},
        weights={"l": (64, 192), "vector": (192,)},
        constants={"scale": np.float16(0.35), "heads": [2, 4, 16, 16], "packed": [2, 16, 3, 4, 16]},
        types={"x": 10, "l": 10, "vector": 10},
        outputs=["o", *(["z"] if "z =" in nodes else [])],
        opset=20,
    )
    assert sorted(shown(graph, "tensorrt")) == sorted(expected)


def test_open_sizes_keep_a_bias_apart() -> None:
    """MatMulAddFusion asks for fixed sizes: with an open batch, whatever it is bound to, the bias stays a kernel."""
    graph = inferred("m = MatMul(x, w)\ny = Add(m, b)", TOKENS, weights={"w": (16, 32), "b": (32,)})
    (declared,) = graph.graph.inputs
    opened = replace(graph, graph=replace(graph.graph, inputs=(replace(declared, shape=("batch", 6, 16)),)))
    assert shown(graph, "onnxruntime") == ["movement bias", "gemm add"]
    assert shown(opened, "onnxruntime") == ["gemm", "elementwise add"]
    assert shown(opened, "tensorrt") == ["gemm bias"]
    (reason,) = [item.reason for item in fusion_verdicts(opened, RUNTIMES["onnxruntime"]) if item.rule == "linear"]
    assert reason == "of more than two dimensions, and the file leaves sizes open: MatMulAddFusion asks for fixed ones"


PARTS = ["gemm", "softmax div add", "gemm"]


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        pytest.param({"q": (2, 4, 6, 26), "k": (2, 4, 6, 26), "v": (2, 4, 6, 26)}, PARTS, id="26, no multiple of 8"),
        pytest.param({"q": (2, 4, 6, 256), "k": (2, 4, 6, 256), "v": (2, 4, 6, 256)}, ["attention"], id="256"),
        pytest.param({"q": (2, 4, 6, 264), "k": (2, 4, 6, 264), "v": (2, 4, 6, 264)}, PARTS, id="264"),
        pytest.param({"q": (2, 4, 6, 8), "k": (2, 4, 6, 8), "v": (2, 4, 6, 8)}, PARTS, id="8"),
        pytest.param({"v": (2, 4, 6, 32)}, PARTS, id="values of another width"),
        pytest.param(
            {"q": (1, 1, 6, 16), "k": (1, 1, 6, 16), "v": (1, 1, 6, 16), "mask": (1, 1, 1, 6)},
            PARTS,
            id="one head in all",
        ),
    ],
)
def test_heads_that_the_fused_kernel_takes(shapes: dict[str, tuple[int, ...]], expected: list[str]) -> None:
    """Multiples of 8 by TensorRT's guide; the rest as engines of TensorRT for RTX 1.7 have it."""
    assert shown(built(ATTENTION, HEADS | shapes, half=True), "tensorrt") == expected


WINDOWS = """
t = Transpose<perm=[0,1,3,2]>(k)
p = MatMul(q, t)
b = Add(p, bias)
r = Reshape(b, windows)
a = Add(r, mask)
g = Reshape(a, heads)
w = Softmax<axis=-1>(g)
y = MatMul(w, v)
"""
"""Attention of shifted windows, as Swin has it: a bias of each head, a mask of each window."""
NO_NUMBERS = """
t = Transpose<perm=[0,1,3,2]>(k)
p = MatMul(q, t)
s = Mul(p, root)
a = Add(s, mask)
w = Softmax<axis=-1>(a)
n = IsNaN(w)
z = Where(n, zero, w)
y = MatMul(z, v)
"""
"""Rows without any key become zeros, as PyTorch's newer exporter writes it."""


@pytest.mark.parametrize(
    ("nodes", "shapes", "expected"),
    [
        pytest.param(WINDOWS, {}, ["attention"], id="windows"),
        pytest.param(
            WINDOWS.replace("(b, windows)", "(b, swapped)").replace("Add(r, mask)", "Relu(r)"),
            {},
            ["gemm", "softmax add relu", "gemm"],
            id="windows, a Reshape that takes rows apart",
        ),
        pytest.param(NO_NUMBERS, {"mask": (4, 1, 1, 6)}, ["attention"], id="rows without keys"),
        pytest.param(
            NO_NUMBERS.replace("n = IsNaN(w)\nz = Where(n, zero, w)", "n = Greater(mask, zero)\nz = Where(n, w, zero)"),
            {"mask": (4, 1, 1, 6)},
            ["attention"],
            id="weights that are selected",
        ),
        pytest.param(
            NO_NUMBERS.replace("n = IsNaN(w)\nz = Where(n, zero, w)", "z = Relu(w)"),
            {"mask": (4, 1, 1, 6)},
            ["gemm", "softmax mul add relu", "gemm"],
            id="weights that something computes with",
        ),
        pytest.param(
            WINDOWS.replace(
                "r = Reshape(b, windows)\na = Add(r, mask)\ng = Reshape(a, heads)", "g = Clip(b, zero, root)"
            ),
            {},
            ["attention"],
            id="scores within limits",
        ),
    ],
)
def test_what_lies_between_the_products_of_attention(
    nodes: str, shapes: dict[str, tuple[int, ...]], expected: list[str]
) -> None:
    inputs = dict.fromkeys(("q", "k", "v"), (4, 3, 6, 16)) | {"bias": (1, 3, 6, 6), "mask": (2, 1, 6, 6)} | shapes
    constants = {
        "windows": [2, 2, 3, 6, 6],
        "swapped": [4, 3, 36],
        "heads": [4, 3, 6, 6],
        "zero": np.float16(0),
        "root": np.float16(0.25),
    }
    used = set(re.findall(r"\w+", nodes))
    graph = inferred(
        nodes,
        {name: shape for name, shape in inputs.items() if name in used},
        constants={name: value for name, value in constants.items() if name in used},
        types=dict.fromkeys(inputs, 10),
        outputs=["y"],
        opset=20,
    )
    assert shown(graph, "tensorrt") == expected


def test_pytorchs_own_attention_in_fp32_is_by_parts() -> None:
    """There are fused kernels in 16 and 8 bits only, whatever the exporter's formula was."""
    nodes = "s = Mul(q, root)\nt = Transpose<perm=[0,1,3,2]>(k)\ne = Mul(t, root)\np = MatMul(s, e)\n"
    nodes += "p2 = Softmax<axis=-1>(p)\ny = MatMul(p2, v)"
    assert shown(built(nodes, HEADS), "tensorrt") == ["movement transpose", "gemm", "softmax mul", "gemm"]
    assert shown(built(nodes, HEADS, half=True), "tensorrt") == ["attention"]


def test_attention_over_five_dimensions() -> None:
    """Windows as a dimension of their own, as NesT has them."""
    nodes = ATTENTION.replace("[0,1,3,2]", "[0,1,2,4,3]")
    shapes = dict.fromkeys(("q", "k", "v"), (2, 4, 5, 6, 16)) | {"mask": (2, 1, 1, 1, 6)}
    assert shown(built(nodes, shapes, half=True), "tensorrt") == ["attention"]


@pytest.mark.parametrize(
    ("gpu", "classes"),
    [
        pytest.param("t4", ["attention"], id="Turing"),
        pytest.param("v100", ["gemm", "softmax", "gemm"], id="Volta"),
    ],
)
def test_fused_attention_has_kernels_since_turing(gpu: str, classes: list[str], tmp_path: Path) -> None:
    model = tmp_path / "attention.onnx"
    heads, mask = (8, 12, 128, 64), (8, 1, 1, 128)  # TensorRT takes fewer tokens by parts, where that is quicker
    inputs = {"q": heads, "k": heads, "v": heads, "mask": mask}
    onnx.save(
        helper.make_model(
            helper.make_graph(
                split(ATTENTION),
                "attention",
                [value_info(name, shape, TensorProto.FLOAT16) for name, shape in inputs.items()],
                [value_info("y", heads, TensorProto.FLOAT16)],
                [numpy_helper.from_array(np.float16(2.8), "root")],
            ),
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=9,
        ),
        model,
    )
    report = analyze(model, gpu=gpu, runtime="tensorrt")
    assert [row.kernel_class for row in report.kernels] == classes
    assert all(len(row.nodes) >= 5 for row in report.kernels)
    first = report.kernels[0].dims
    if gpu == "v100":  # scores: 2 x 4 heads, 6 queries, 6 keys, heads of 16
        assert [first[name] for name in ("batch", "m", "n", "k")] == [96, 128, 128, 64]


DECODE = """
<ir_version: 8, opset_import: ["" : 17]>
decode (float[32, 32, 511, 128] past, float[32, 32, 1, 128] key, float[1, 128] angle) => (float[32, 32, 512, 128] y)
{
  c = Cos(angle)
  s = Sin(angle)
  a = Mul(key, c)
  b = Mul(key, s)
  n = Add(a, b)
  y = Concat<axis=2>(past, n)
}
"""


@pytest.mark.parametrize("gpu", ["v100", "t4", "a100", "h100", "rtx-4090"])
def test_engines_do_not_compute_a_rotary_key_for_the_whole_cache(gpu: str) -> None:
    """More fusion isn't slower: cosines of one position, which 511 others don't ask for."""
    model = read_model_bytes(parser.parse_model(DECODE).SerializeToString())
    reports = {runtime: analyze(model, gpu=gpu, precision="fp32", runtime=runtime) for runtime in RUNTIMES}
    times = {runtime: report.totals.kernel_ms for runtime, report in reports.items()}
    key, _ = reports["tensorrt"].kernels
    assert dict(key.dims)["output"] == (32, 32, 1, 128)
    # the copy of the cache, nearly all of both, is by the law of streams in the one and by an analytic one in the other
    assert times["tensorrt"] < 1.03 * times["onnxruntime"]
    # Inductor's one loop does, under a mask: PyTorch 2.9 generates one loop over the result's elements
    (joined,) = reports["compiled"].kernels
    assert dict(joined.dims)["operations"] == "cos,sin,mul,mul,add,concat"
