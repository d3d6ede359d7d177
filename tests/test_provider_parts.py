"""What ONNX Runtime's CUDA provider launches for one operator: as onnxruntime-gpu 1.31.1 does on stand-ins.

The names of kernels are those of the classes here: fills are the driver's, ``reduce`` a sum of the provider's own or
cuDNN's call.
"""

from __future__ import annotations

from collections import Counter

import pytest
from onnx import TensorProto

from graphs import inferred
from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.runtimes import fused_graph
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import Elementwise, Gemm, Kernel, Movement, NodeWork, Normalization, Reduction, Sort
from neusight_onnx.lowering import lower
from neusight_onnx.predictor import predict
from neusight_onnx.runtime import RUNTIMES

HALF = TensorProto.FLOAT16
IMAGE = (2, 64, 28, 28)

CASES = {
    # name: nodes, shape of x, launches, and constants
    "mean of images": ("y = ReduceMean<axes=[2, 3]>(x)", IMAGE, "reduce div", {}),
    "mean of 2,048 columns": ("y = ReduceMean<axes=[1]>(x)", (96, 2048), "fill reduce div", {}),
    "mean of 2,047 columns": ("y = ReduceMean<axes=[1]>(x)", (96, 2047), "reduce div", {}),
    "mean over what is in front": ("y = ReduceMean<axes=[0]>(x)", (64, 1000), "fill reduce div", {}),
    "mean of one row of tokens": ("y = ReduceMean<axes=[1]>(x)", (1, 197, 384), "fill reduce div", {}),
    "mean in the middle, cuDNN's": ("y = ReduceMean<axes=[1]>(x)", (2, 197, 384), "fill reduce", {}),
    "mean of everything": ("y = ReduceMean(x)", (2, 197, 384), "fill reduce div", {}),
    "sum of rows": ("y = ReduceSum(x, a)", (2, 197, 384), "reduce", {"a": [2]}),
    "greatest, cuDNN's": ("y = ReduceMax<axes=[2]>(x)", (2, 197, 384), "fill reduce", {}),
    "length of rows, cuDNN's": ("y = ReduceL2<axes=[2]>(x)", (2, 197, 384), "fill reduce", {}),
    "sum of squares": ("y = ReduceSumSquare<axes=[1]>(x)", (64, 512), "mul reduce", {}),
    "place of the greatest": ("y = ArgMax<axis=1>(x)", (2, 21, 64, 64), "fill reduce cast", {}),
    "place of the greatest in a row": ("y = ArgMax<axis=-1>(x)", (2, 77), "reduce", {}),
    "softmax of the last dimension": ("y = Softmax<axis=-1>(x)", (2, 8, 64), "softmax", {}),
    "softmax of another": ("y = Softmax<axis=1>(x)", (2, 8, 64), "transpose softmax transpose", {}),
    "softmax of another, ones behind": ("y = Softmax<axis=1>(x)", (2, 8, 1), "copy softmax copy", {}),
    "instances of two samples": (
        "y = InstanceNormalization(x, w, w)",
        IMAGE,
        "fill fill fill fill norm sub+mul+mul+add",
        {"w": [1.0] * 64},
    ),
    "instances of one": ("y = InstanceNormalization(x, w, w)", (1, *IMAGE[1:]), "norm", {"w": [1.0] * 64}),
    "nearest": ('y = Resize<mode="nearest">(x, , s)', IMAGE, "add resize", {"s": [1.0, 1.0, 2.0, 2.0]}),
    "to the same size": ('y = Resize<mode="nearest">(x, , s)', IMAGE, "copy", {"s": [1.0] * 4}),
    "ones change places": ("y = Transpose<perm=[0, 2, 3, 1]>(x)", (2, 320, 1, 1), "copy", {}),
    "pads nothing": ("y = Pad(x, p)", (4, 8), "copy", {"p": [0, 0, 0, 0]}),
    "slice to the end that there is": ("y = Slice(x, b, e)", (4, 8), "copy", {"b": [0], "e": [4]}),
    "slice to any end": ("y = Slice(x, b, e)", (4, 8), "", {"b": [0], "e": [2**63 - 1]}),
    "an output that is a view": ("y = Flatten(x)", (4, 8, 2), "copy", {}),
    "expands nothing": ("n = Shape(x)\ny = Expand(x, n)", (4, 8), "copy expand", {}),
    "expands nothing by constants": ("y = Expand(x, s)", (4, 8), "", {"s": [1, 1]}),
    "a cast to its own type that gives an output": ("y = Cast<to=1>(x)", (4, 8), "cast", {}),
    "places of what isn't zero": ("y = NonZero(x)", (4, 8), "reduce fill add sort", {}),
    "one operand summed": ('y = Einsum<equation="bij->bi">(x)', (4, 16, 32), "reduce copy", {}),
}


def named(kernel: Kernel) -> str:
    match kernel:
        case Movement():
            return kernel.operation
        case Elementwise():
            return "+".join(kernel.operations)
        case Reduction():
            return "reduce"
        case Normalization():
            return "norm"
        case _:
            return type(kernel).__name__.lower()


def work_of(
    nodes: str,
    shape: tuple[int, ...],
    constants: dict[str, object] | None = None,
    *,
    runtime: str = "onnxruntime",
    kind: int = TensorProto.FLOAT,
    **others: tuple[int, ...],
) -> NodeWork:
    names = {"x": shape, **others}
    types = dict.fromkeys(names, kind)
    return lower(inferred(nodes, names, constants=constants, types=types), runtime=runtime)[-1]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_launches_of_an_operator(case: tuple[str, tuple[int, ...], str, dict[str, object]]) -> None:
    nodes, shape, expected, constants = case
    assert " ".join(map(named, work_of(nodes, shape, constants).kernels)) == expected


def test_a_view_that_gives_an_output_is_a_copy_behind_equal_ones() -> None:
    nodes = "a = Flatten(x)\nb = Relu(a)\nc = Reshape(b, shape)\nz = Relu(c)\ny = Flatten(z)"
    graph = inferred(nodes, {"x": (4, 8, 2)}, constants={"shape": [4, 8, 2]})
    first, *_, last = lower(graph, runtime="onnxruntime")
    assert (first.kernels, [named(kernel) for kernel in last.kernels]) == ((), ["copy"])


SUPPRESSION = [
    # boxes a class, threshold, launches for each class
    ("one block sorts", 4864, None, "fill sort gatherscatter fill sort fill fill add transfer add copy"),
    (
        "counted by digits",
        4865,
        None,
        "fill fill fill reduce add fill copy fill copy fill copy fill copy gatherscatter fill sort fill fill add "
        "transfer add copy",
    ),
    ("a threshold", 300, 0.5, "fill sort gatherscatter reduce transfer fill sort fill fill add transfer add copy"),
    ("a threshold that all pass", 300, 0.0, "fill sort gatherscatter fill sort fill fill add transfer add copy"),
]


@pytest.mark.parametrize(("boxes", "threshold", "launches"), [row[1:] for row in SUPPRESSION])
def test_a_suppression_runs_class_by_class(boxes: int, threshold: float | None, launches: str) -> None:
    """Each of 2 x 3 classes by kernels of its own, behind which the host reads how many boxes are left."""
    constants = {"most": [5], "iou": [0.5]} | ({} if threshold is None else {"least": [threshold]})
    work = work_of(f"y = NonMaxSuppression(x, s, {', '.join(constants)})", (2, boxes, 4), constants, s=(2, 3, boxes))
    assert (" ".join(map(named, work.kernels)), work.count, work.host_waits) == (launches, 6, True)
    other = work_of("y = NonMaxSuppression(x, s, most)", (2, 9, 4), {"most": [5]}, s=(2, 3, 9), runtime="eager")
    assert (len(other.kernels), other.count) == (1, 1)


def test_a_box_that_is_suppressed_already_is_passed_over() -> None:
    """Its bit is in shared memory: 5 of 8,400 boxes that are kept read their rows of the mask, 400 take longer."""
    few, many = (
        Sort(
            operation="nms",
            rows=1,
            cols=8400,
            kept=kept,
            dtype=DataType.FLOAT32,
            output_bytes=8400 * 8400 // 8,
            library="onnxruntime",
        )
        for kept in (5, 4000)
    )
    quick, slow = (item.latency_us for item in predict([few, many], load_gpu("a100")))
    assert slow > 2.0 * quick


@pytest.mark.parametrize("runtime", ["eager", "compiled", "tensorrt"])
def test_other_runtimes_launch_one_kernel(runtime: str) -> None:
    # eager mode's instance normalization is a batch normalization between copies (tests/test_operator_host.py)
    normalization = () if runtime == "eager" else ("instances of two samples",)
    for name in ("mean of images", "nearest", *normalization):
        nodes, shape, _, constants = CASES[name]
        assert len(work_of(nodes, shape, constants, runtime=runtime).kernels) == 1, name


def test_places_in_16_bits_are_looked_for_in_32() -> None:
    kernels = work_of("y = ArgMax<axis=1>(x)", (2, 21, 64), kind=HALF).kernels
    assert [named(kernel) for kernel in kernels] == ["fill", "cast", "reduce", "cast"]


@pytest.mark.parametrize(
    ("equation", "left", "right", "expected", "product"),
    [
        pytest.param(
            "bhid,bhjd->bhij",
            (2, 6, 197, 64),
            (2, 6, 197, 64),
            "transpose copy gemm copy",
            (12, 197, 197, 64),
            id="q k",
        ),
        pytest.param(
            "bhwc,hkc->bhwk",
            (2, 14, 14, 96),
            (14, 14, 96),
            "transpose transpose copy gemm transpose copy",
            (14, 28, 14, 96),
            id="relative positions",
        ),
        pytest.param("bnc,cd->bnd", (2, 197, 384), (384, 100), "copy gemm copy", (1, 394, 100, 384), id="linear"),
        pytest.param("i,j->ij", (64,), (32,), "copy gemm copy", (1, 64, 32, 1), id="outer"),
    ],
)
def test_einsum(
    equation: str, left: tuple[int, ...], right: tuple[int, ...], expected: str, product: tuple[int, ...]
) -> None:
    kernels = work_of(f'y = Einsum<equation="{equation}">(x, z)', left, z=right).kernels
    assert " ".join(map(named, kernels)) == expected
    (found,) = [(each.batch, each.m, each.n, each.k) for each in kernels if isinstance(each, Gemm)]
    assert found == product


def test_a_scatter_copies_first() -> None:
    """512 x 64 floats copied, 128 of the rows written through 128 indices."""
    graph = inferred(
        "y = ScatterND(x, i, u)",
        {"x": (512, 64), "i": (128, 1), "u": (128, 64)},
        types={"i": TensorProto.INT64},
    )
    copy, scatter = lower(graph, runtime="onnxruntime")[-1].kernels
    assert (named(copy), copy.read_bytes, copy.write_bytes) == ("copy", 512 * 256, 512 * 256)
    assert (scatter.read_bytes, scatter.write_bytes) == (128 * 256 + 128 * 8, 128 * 256)


@pytest.mark.parametrize(
    ("nodes", "copies"),
    [
        pytest.param("a = Sin(x)\nb = ScatterND(a, i, u)\ny = Sin(b)", 0, id="no other reader"),
        pytest.param(
            "a = Sin(x)\nr = Unsqueeze(a, one)\nq = Squeeze(r, one)\nb = ScatterND(q, i, u)\ny = Sin(b)", 0, id="views"
        ),
        pytest.param("a = Sin(x)\nc = Cos(a)\nb = ScatterND(a, i, u)\ny = Add(b, c)", 1, id="another reader"),
        pytest.param("b = ScatterND(x, i, u)\ny = Sin(b)", 1, id="an input"),
        pytest.param("a = Sin(x)\ny = ScatterND(a, i, u)", 1, id="an output"),
        pytest.param("a = Sin(x)\nb = ScatterElements(a, j, u)\ny = Sin(b)", 1, id="ScatterElements"),
    ],
)
def test_what_is_written_in_place(nodes: str, copies: int) -> None:
    graph = inferred(
        nodes,
        {"x": (512, 64), "i": (128, 1), "j": (128, 64), "u": (128, 64)},
        constants={"one": [1]},
        types={"i": TensorProto.INT64, "j": TensorProto.INT64},
    )
    works = lower(fused_graph(graph, RUNTIMES["onnxruntime"]), runtime="onnxruntime")
    assert sum(named(kernel) == "copy" for work in works for kernel in work.kernels) == copies


def test_group_normalization_runs_as_the_operators_that_define_it() -> None:
    graph = inferred(
        "y = GroupNormalization<num_groups=8>(x, w, w)",
        {"x": IMAGE},
        constants={"w": [1.0] * 8},
        opset=18,
    )
    kernels = lower(graph, runtime="onnxruntime")[-1].kernels
    mean = "fill reduce div"  # 16 rows of 6,272
    assert " ".join(map(named, kernels)) == (f"cast {mean} sub mul {mean} mul sub add sqrt div cast cast mul add")


NORMALIZED = """
t = Transpose<perm=[0, 2, 3, 1]>(x)
m = ReduceMean<axes=[-1]>(t)
c = Sub(t, m)
p = Pow(c, two)
v = ReduceMean<axes=[-1]>(p)
e = Add(v, eps)
s = Sqrt(e)
d = Div(c, s)
g = Mul(d, w)
b = Add(g, w)
y = Transpose<perm=[0, 3, 1, 2]>(b)
"""


@pytest.mark.parametrize(("opset", "normalizations", "transposes"), [(16, 0, 0), (17, 1, 2)])
def test_transposes_move_before_a_normalization_is_found_until_opset_16(
    opset: int, normalizations: int, transposes: int
) -> None:
    """ConvNeXt's normalization of channels: until opset 16 over the second of four dimensions, in parts."""
    graph = inferred(
        NORMALIZED, {"x": (2, 8, 4, 4)}, weights={"w": (8,)}, constants={"two": 2.0, "eps": 1e-6}, opset=opset
    )
    found = Counter(node.op_type for node in fused_graph(graph, RUNTIMES["onnxruntime"]).graph.nodes)
    assert (found["LayerNormalization"], found["Transpose"]) == (normalizations, transposes)
