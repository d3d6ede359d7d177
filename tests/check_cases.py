"""Models with one fault each, for the tests of ``check``: a target, and the codes that must be found, no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper

from models import external_tensor, graph, linear, model, node, tensor, value
from neusight_onnx.checks import Target
from neusight_onnx.checks.limits import Limits, parse_limits
from neusight_onnx.gpu import GpuSpec, load_gpu
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.read import read_model_bytes

I64 = TensorProto.INT64
F16, BF16, F8, F4 = TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT4E2M1


def limits(**texts: str | int) -> Limits:
    return parse_limits({name.replace("_", "-"): text for name, text in texts.items()}, "--")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``codes``: what must be found, with the node of the first where it is given; ``notes``: those that are notes."""

    model: Callable[[], ModelProto]
    codes: frozenset[str]
    gpu: str | GpuSpec = "a100-sxm-80gb"
    precision: str = "auto"
    runtime: str = "eager"
    dims: Mapping[str, int] = field(default_factory=lambda: {"batch": 2})
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    batch: int | None = None
    cuda_graph: bool = False
    limits: Limits = field(default_factory=Limits)
    node: str | None = None
    notes: frozenset[str] = frozenset()
    says: str = ""
    fix: str = ""

    def target(self) -> Target:
        return Target(
            name="case",
            model=read_model_bytes(self.model().SerializeToString(), label="case.onnx"),
            gpu=self.gpu,
            precision=self.precision,
            runtime=self.runtime,
            cuda_graph=self.cuda_graph,
            bindings=make_bindings(self.dims, self.shapes, batch=self.batch),
            limits=self.limits,
        )


def codes(*numbers: int) -> frozenset[str]:
    return frozenset(f"NSX{number}" for number in numbers)


def one(
    nodes: Sequence[NodeProto],
    *,
    x: Sequence[int | str | None] | None = ("batch", 4),
    y: Sequence[int | str | None] | None = None,
    weights: Sequence[TensorProto] = (),
    dtype: int = TensorProto.FLOAT,
    opsets: Mapping[str, int] | None = None,
) -> Callable[[], ModelProto]:
    """A model from x to y."""
    main = graph(nodes, [value("x", x, dtype)], [value("y", y, dtype)], weights)
    return lambda: model(main, opsets=opsets or {"": 17, "acme": 1, "com.microsoft": 1})


SQUARE = tensor("w", np.eye(5, dtype=np.float32))


def branching(*, before: bool | None = None, dtype: int = TensorProto.FLOAT) -> Callable[[], ModelProto]:
    """z by one branch or the other, of which the second gives ``dtype``; the first names a value "h" as a Relu does
    that stands before the If or behind it (None: there is none)."""
    then = graph([node("Neg", "x", "h"), node("Neg", "h", "a")], [], [value("a", None)])
    otherwise = graph([node("Cast", "x", "b", to=dtype)], [], [value("b", None, dtype)])
    nodes = [node("If", "c", "z", "choice", then_branch=then, else_branch=otherwise)]
    if before is not None:
        nodes.insert(0 if before else 1, node("Relu", "x", "h", "act"))
    inputs = [value("x", ("batch", 4)), value("c", (), TensorProto.BOOL)]
    return lambda: model(graph(nodes, inputs, [value("z", None)]), opsets={"": 17})


def stored(name: str, shape: Sequence[int], dtype: int) -> TensorProto:
    """A weight of zeros in a type that numpy may not have."""
    bits = {F16: 16, BF16: 16, F8: 8, F4: 4}.get(dtype, 8)
    return helper.make_tensor(name, dtype, shape, bytes(int(np.prod(shape)) * bits // 8), raw=True)


def matmul(dtype: int) -> Callable[[], ModelProto]:
    return one([node("MatMul", "x w", "y", "fc")], weights=[stored("w", (4, 3), dtype)], dtype=dtype)


def dequantized(dtype: int) -> Callable[[], ModelProto]:
    """Both operands of a product in a narrow type, as quantisers write it."""
    nodes = [
        node("DequantizeLinear", "x s", "xf", "dx"),
        node("DequantizeLinear", "w s", "wf", "dw"),
        node("MatMul", "xf wf", "y", "fc"),
    ]
    weights = [stored("w", (32, 8), dtype), tensor("s", np.array(1.0, np.float32))]
    main = graph(nodes, [value("x", ["batch", 32], dtype)], [value("y", ["batch", 8])], weights)
    return lambda: model(main, opsets={"": 23}, ir_version=11)


def divided_by_root() -> ModelProto:
    """Divided by the root of a size, which ONNX Runtime computes on the host."""
    nodes = [
        node("MatMul", "x w", "q"),
        node("Shape", "x", "s", start=1, end=2),
        node("Cast", "s", "f", to=TensorProto.FLOAT),
        node("Sqrt", "f", "r"),
        node("Div", "q r", "y", "div"),
    ]
    return one(nodes, x=("batch", "seq", 64), weights=[tensor("w", np.ones((64, 64), np.float32))])()


def linear_of_four() -> ModelProto:
    return one([node("MatMul", "x w", "y", "fc")], weights=[tensor("w", np.ones((4, 4), np.float32))])()


def integers() -> ModelProto:
    main = graph(
        [node("MatMulInteger", "x w", "y", "fc")],
        [value("x", ["batch", 4], TensorProto.UINT8)],
        [value("y", ["batch", 3], TensorProto.INT32)],
        [tensor("w", np.zeros((4, 3), np.int8))],
    )
    return model(main)


def rounded(
    *,
    dtype: type[np.generic] = np.int8,
    zero: int = 0,
    scale: float = 0.02,
    scales: int = 8,
    axis: int = 0,
    weight: type[np.generic] = np.int8,
    opset: int = 21,
) -> Callable[[], ModelProto]:
    """A convolution whose image and filters (8, 4, 1, 1) are quantised, as quantisers write it."""
    nodes = [
        node("QuantizeLinear", "x s z", "xq", "q"),
        node("DequantizeLinear", "xq s z", "xf", "dx"),
        node("DequantizeLinear", "w ws wz", "wf", "dw", axis=axis),
        node("Conv", "xf wf", "y", "conv"),
    ]
    weights = [
        tensor("s", np.array(scale, np.float32)),
        tensor("z", np.array(zero, dtype)),
        tensor("w", np.ones((8, 4, 1, 1), weight)),
        tensor("ws", np.full(scales, 0.01, np.float32)),
        tensor("wz", np.zeros(scales, weight)),
    ]
    return one(nodes, x=("batch", 4, 6, 6), weights=weights, opsets={"": opset})


def blocks(rows: int, block: int, scales: int) -> Callable[[], ModelProto]:
    """A product with weights (rows, 8) of INT8 in blocks of rows."""
    nodes = [
        node("DequantizeLinear", "w s", "wf", "dw", axis=0, block_size=block),
        node("MatMul", "x wf", "y", "fc"),
    ]
    weights = [tensor("w", np.ones((rows, 8), np.int8)), tensor("s", np.full((scales, 8), 0.01, np.float32))]
    return one(nodes, x=("batch", rows), weights=weights, opsets={"": 21})


def bf16_conv(opset: int) -> Callable[[], ModelProto]:
    weights = [stored("w", (8, 4, 3, 3), BF16)]
    return one(
        [node("Conv", "x w", "y", "conv")], x=("batch", 4, 8, 8), weights=weights, dtype=BF16, opsets={"": opset}
    )


def imports(opsets: Mapping[str, int]) -> ModelProto:
    """A sound model that imports these operator sets alone."""
    proto = linear()
    del proto.opset_import[:]
    proto.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in opsets.items())
    return proto


def nothing() -> ModelProto:
    """A graph that hands its input on."""
    return model(graph([], [value("x", ["batch", 4])], [value("x", ["batch", 4])]))


MISSPELT = one([node("Relu", "x", "y", "act", slope=0.1)])


# a row of the weight is 2,002 bytes
ODD_ROWS = one(
    [node("MatMul", "x w", "y", "head")],
    x=("batch", 1024),
    y=("batch", 1001),
    weights=[tensor("w", np.zeros((1024, 1001), np.float16))],
    dtype=F16,
)

# (2, 4, 4) floats go to the host, two come back
DETERMINANT = one([node("Det", "x", "y", "det")], x=("batch", 4, 4), y=("batch",))


def plugin(op_type: str = "EfficientNMS_TRT", domain: str = "") -> ModelProto:
    """TensorRT's suppression of boxes, as exporters of YOLO write it: some in a domain of their own."""
    attributes = {"background_class": -1, "box_coding": 1, "iou_threshold": 0.5, "max_output_boxes": 10}
    nms = node(
        op_type, "boxes scores", "num kept points classes", "nms", domain=domain,
        plugin_version="1", score_activation=0, score_threshold=0.25, **attributes,
    )  # fmt: skip
    inputs = [value("boxes", ["batch", 20, 4]), value("scores", ["batch", 20, 3])]
    outputs = [value("kept", ["batch", 10, 4])]
    return model(graph([nms], inputs, outputs), opsets={"": 17} | ({domain: 1} if domain else {}))


def declared(*infos: onnx.ValueInfoProto) -> Callable[[], ModelProto]:
    def build() -> ModelProto:
        proto = linear()
        proto.graph.value_info.extend(infos)
        return proto

    return build


def added(constant: float, op_type: str = "Add", dtype: type[np.generic] = np.float32) -> Callable[[], ModelProto]:
    """x and a constant."""
    kind = F16 if dtype is np.float16 else TensorProto.FLOAT
    with np.errstate(over="ignore"):
        weight = tensor("c", np.array(constant, np.float64).astype(dtype))
    return one([node(op_type, "x c", "y", "mask")], weights=[weight], dtype=kind)


def number(name: str, *content: float, dtype: type[np.generic] = np.float32) -> TensorProto:
    return tensor(name, np.array(content, dtype))


def integer(name: str, *content: int) -> TensorProto:
    return tensor(name, np.array(content, np.int64))


def memory(size: int) -> GpuSpec:
    """A T4 with another memory."""
    return replace(load_gpu("t4"), memory_bytes=size)


UNKNOWN = one(
    [
        node("Exp", "x", "e", "exp"),
        node("Mystery", "e", "h", "odd", domain="acme"),
        node("Relu", "h", "y", "act"),
    ],
)
"""The second node's operator is unknown, and so is the shape that the third gets."""

LOST = one([node("Mystery", "x", "h", "odd", domain="acme"), node("Relu", "h", "y", "act")])
"""Nothing of it can be costed."""

GENERATION = one(
    [node("Relu", "x", "y", "act"), node("Snpe", "x", "z", "engine", domain="com.microsoft", DLC="x")],
)

NOTHING = tensor("nothing", np.zeros(0, np.float32))
RESIZED = one(
    [node("Resize", "x nothing nothing sizes", "y", "up")],
    x=("batch", 3, 32, 32),
    weights=[NOTHING, integer("sizes", 1, 3, 64, 64)],
)
RESHAPED = one(
    [node("Reshape", "x target", "y", "flat")],
    x=("batch", 3, 4),
    weights=[integer("target", 1, 12)],
)


def repeated(most: int | None = None) -> ModelProto:
    """A loop that runs as often as an input says, which nobody knows; ``most`` times at most if that is given."""
    body = graph(
        [node("Identity", "go", "goes"), node("Relu", "h", "h2")],
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("h", ["batch", 4])],
        [value("goes", [], TensorProto.BOOL), value("h2", ["batch", 4])],
    )
    return model(
        graph(
            [node("Loop", "n begin x", "y", "repeat", body=body)],
            [
                value("x", ["batch", 4]),
                *([value("n", [], TensorProto.INT64)] if most is None else []),
                value("begin", [], TensorProto.BOOL),
            ],
            [value("y", ["batch", 4])],
            [] if most is None else [onnx.numpy_helper.from_array(np.array(most), "n")],
        )
    )


TOLD = one([node("Mystery", "x", "h", "odd", domain="acme"), node("Relu", "h", "y", "act")], y=("batch", 4))
"""Only the user can say what shape comes out of it, and says it for one batch."""

TOLD_AND_JOINED = one(
    [
        node("Mystery", "x", "h", "odd", domain="acme"),
        node("Relu", "x", "x2"),
        node("Add", "h c", "y", "add"),
    ],
    weights=[tensor("c", np.zeros((2, 4), np.float32))],
)


def counting() -> ModelProto:
    """Rows of 4,096 elements that a mask picks: all 4,096 count unless the user says how many are found."""
    nodes = [
        node("NonZero", "mask", "places", "count"),
        node("Squeeze", "places axes", "index", "flat"),
        node("Gather", "table index", "y", "pick", axis=0),
    ]
    inputs = [value("mask", [4096]), value("table", [4096, 4096])]
    axes = tensor("axes", np.array([0], np.int64))
    return model(graph(nodes, inputs, [value("y", ["found", 4096])], [axes]))


CASES = {
    "sound": Case(model=linear, codes=codes()),
    "sound, every limit kept": Case(
        model=linear,
        codes=codes(),
        limits=limits(
            max_latency="1s", min_throughput="1/s", max_memory="fits", max_unsupported=0, max_parameters="15"
        ),
    ),
    # --- limits
    "latency": Case(model=linear, codes=codes(101), limits=limits(max_latency="1us"), says="the limit 1us"),
    "latency at a bound": Case(
        model=counting,
        codes=codes(101),
        limits=limits(max_latency="200us"),
        dims={},
        says="and without it the limit would be kept",
        fix="--dim with the output's symbol",
    ),
    "latency at the size in use": Case(
        model=counting, codes=codes(), limits=limits(max_latency="200us"), dims={"found": 8}
    ),
    "throughput": Case(model=linear, codes=codes(102), limits=limits(min_throughput="1000000000/s")),
    "memory limit": Case(model=linear, codes=codes(103), limits=limits(max_memory="1MB"), says="the limit 1MB"),
    "memory limit kept": Case(model=linear, codes=codes(), limits=limits(max_memory="2GiB")),
    "does not fit": Case(model=linear, codes=codes(104), gpu=memory(2**28), says="256 MiB"),
    "does not fit, fits asked": Case(
        model=linear, codes=codes(104), gpu=memory(2**28), limits=limits(max_memory="fits")
    ),
    # 500 MB are expected of the context alone, up to 700 MB: 600 MB hold the one and not the other
    "tight": Case(model=linear, codes=codes(105), gpu=memory(600_000_000)),
    "parameters": Case(model=linear, codes=codes(107), limits=limits(max_parameters=14), says="15 parameters"),
    "unsupported": Case(
        model=UNKNOWN, codes=codes(106, 501, 503), limits=limits(max_unsupported=1), notes=codes(503), says="2 nodes"
    ),
    "unsupported, accepted": Case(
        model=UNKNOWN, codes=codes(501, 503), limits=limits(max_unsupported=2), notes=codes(503)
    ),
    "lower bound": Case(model=UNKNOWN, codes=codes(108, 501, 503), limits=limits(max_latency="1s")),
    "lower bound, accepted": Case(
        model=UNKNOWN,
        codes=codes(108, 501, 503),
        limits=limits(min_throughput="1/s", max_unsupported=2),
        notes=codes(108, 503),
    ),
    "nothing to judge": Case(
        model=LOST,
        codes=codes(108, 501, 503),
        limits=limits(max_latency="1s", min_throughput="1/s", max_unsupported=2),
        notes=codes(503),
        says="nothing could be costed",
        fix="give the shapes that they leave open",
    ),
    # --- the file
    "external data missing": Case(model=lambda: linear(external_tensor("w", [4, 3], "w.bin")), codes=codes(201)),
    "weights stripped": Case(
        model=lambda: linear(TensorProto(name="w", dims=[4, 3], data_type=TensorProto.FLOAT)), codes=codes(203)
    ),
    "newer IR": Case(model=lambda: model(linear().graph, ir_version=9999), codes=codes(204), says="9999"),
    "newer opset": Case(model=lambda: model(linear().graph, opsets={"": 9999}), codes=codes(205), says="9999"),
    "newer opset of ONNX Runtime": Case(
        model=lambda: imports({"": 17, "com.microsoft": 99}), codes=codes(205), says="the only one that there is"
    ),
    "newer than the release": Case(
        model=linear,
        codes=codes(213),
        runtime="onnxruntime@1.11",
        says="up to 16, the file imports 17",
        fix="take --runtime onnxruntime@1.12 or later",
    ),
    "of the release": Case(model=linear, codes=codes(), runtime="onnxruntime@1.12"),
    "no opset": Case(model=lambda: imports({}), codes=codes(206), says="no opset of ai.onnx"),
    "opset 0": Case(model=lambda: imports({"": 0}), codes=codes(206), says="below 1"),
    "no nodes": Case(model=nothing, codes=codes(208)),
    "no nodes, a limit": Case(
        model=nothing, codes=codes(208), limits=limits(min_throughput="100/s"), says="no limit was judged"
    ),
    "unknown attribute, onnxruntime": Case(model=MISSPELT, codes=codes(209), runtime="onnxruntime", node="act"),
    "unknown attribute of ONNX Runtime's": Case(
        model=one(
            [node("FusedMatMul", "x w", "y", "fc", "com.microsoft", beta=0.5)],
            weights=[tensor("w", np.zeros((4, 4), np.float32))],
        ),
        codes=codes(209),
        runtime="onnxruntime",
        node="fc",
        says="has no attribute 'beta' in ONNX Runtime up to 1.",
    ),
    "two nodes with one name": Case(
        model=one([node("Relu", "x", "h", "act"), node("Sigmoid", "h", "y", "act")]),
        codes=codes(212),
        runtime="onnxruntime",
        says="'act'",
    ),
    "two nodes with one name, eager": Case(
        model=one([node("Relu", "x", "h", "act"), node("Sigmoid", "h", "y", "act")]), codes=codes(212), notes=codes(212)
    ),
    "a Constant with the name of a node": Case(  # it becomes an initializer
        model=one([node("Constant", "", "h", "act", value_float=1.0), node("Add", "x h", "y", "act")]),
        codes=codes(),
        runtime="onnxruntime",
    ),
    "a branch that gives a value the name of one before it": Case(
        model=branching(before=True), codes=codes(212), runtime="onnxruntime", node="choice", says="'h'"
    ),
    "a branch that gives a value the name of one behind it": Case(
        model=branching(before=False), codes=codes(), runtime="onnxruntime"
    ),
    "branches of two types": Case(
        model=branching(dtype=I64), codes=codes(210), runtime="onnxruntime", node="z", says="'z' is float32 or int64"
    ),
    "unknown attribute, eager": Case(model=MISSPELT, codes=codes(209), notes=codes(209)),
    "declared type is wrong, onnxruntime": Case(
        model=one([node("Relu", "x", "h", "act"), node("Cast", "h", "y", "cast", to=TensorProto.INT64)]),
        codes=codes(210),
        runtime="onnxruntime",
        node="y",
        says="'y' is declared as float32 and is int64",
    ),
    "declared type of an inner value is wrong": Case(
        model=declared(value("xw", ["batch", 3], F16)), codes=codes(210), runtime="onnxruntime", node="xw"
    ),
    "declared type behind an operator that nobody knows": Case(
        model=one(
            [node("Mystery", "x", "h", "odd", domain="acme"), node("Relu", "h", "y", "act")], y=("batch", 4), dtype=F16
        ),
        codes=codes(501),
        runtime="onnxruntime",
        shapes={"h": (2, 4)},
    ),
    "bfloat16 before its opset, onnxruntime": Case(
        model=bf16_conv(17),
        codes=codes(211),
        runtime="onnxruntime",
        node="conv",
        says="Conv takes no bfloat16 as X at opset 17, which it has since opset 22 (1 node)",
    ),
    "bfloat16 before its opset, eager": Case(model=bf16_conv(17), codes=codes(211), notes=codes(211)),
    "bfloat16 at its opset": Case(model=bf16_conv(22), codes=codes(), runtime="onnxruntime"),
    "a cast to FP8 before its opset": Case(
        model=one(
            [
                node("Cast", "x", "q", "narrow", to=F8),
                node("Cast", "q", "y", "wide", to=TensorProto.FLOAT),
            ]
        ),
        codes=codes(211),
        runtime="onnxruntime",
        gpu="l4",
        node="narrow",
        says="gives no float8e4m3fn as output at opset 17, which it has since opset 19",
    ),
    "a shape of 32 bits": Case(
        model=one(
            [node("Reshape", "x target", "y", "flat")],
            weights=[tensor("target", np.array([-1, 2], np.int32))],
            x=("batch", 4),
        ),
        codes=codes(211),
        runtime="onnxruntime",
        says="takes no int32 as shape",
    ),
    # --- shapes
    "elements that an operator can't have": Case(
        model=one([node("Softmax", "x", "y", "soft")], dtype=TensorProto.INT32),
        codes=codes(306),
        node="soft",
        fix="no size that is given changes that",
    ),
    "a shape that the user gave stays": Case(model=TOLD, codes=codes(501), shapes={"h": (2, 4)}),
    "what is made of a shape that the user gave": Case(model=TOLD_AND_JOINED, codes=codes(501), shapes={"h": (2, 4)}),
    "unbound": Case(
        model=linear,
        codes=codes(301),
        dims={},
        limits=limits(max_memory="fits"),
        node="batch",
        says="'batch' of input 'x' is not bound, 1 stands in",
        fix="--dim batch=1 (what stands in), or dims = { batch = 1 } in the target",
    ),
    "unbound, no limit that hangs on it": Case(
        model=linear, codes=codes(301), notes=codes(301), dims={}, limits=limits(max_parameters=100)
    ),
    "several unbound": Case(
        model=one([node("Exp", "x", "y", "exp")], x=("batch", "the seq", 4)),
        codes=codes(109, 301),
        notes=codes(109),
        dims={},
        limits=limits(max_latency="1s"),
        says="'batch' and 'the seq' of input 'x' are not bound, defaults stand in",
        fix="--dim 'batch=1,the seq=128' (what stands in), or dims = { batch = 1, \"the seq\" = 128 } in the target",
    ),
    "names that an exporter made up": Case(
        model=one([node("Exp", "x", "y", "exp")], x=("unk__12", "unk__13", 4)),
        codes=codes(109, 301),
        notes=codes(109),
        dims={},
        limits=limits(max_latency="1s"),
        says="'unk__12' and 'unk__13' of input 'x' are not bound, defaults stand in",
        fix="--batch 1 --dim unk__13=128 (what stands in), or batch = 1 and dims = { unk__13 = 128 } in the target",
    ),
    "a batch that is more to launch than to compute": Case(
        model=linear,
        codes=codes(109),
        notes=codes(109),
        limits=limits(max_latency="1s"),
        says="host-bound: the host takes ",
        fix="--cuda-graph, or cuda-graph = true",
    ),
    "a batch that is enough for the host": Case(
        model=linear, codes=codes(), dims={"batch": 1 << 24}, limits=limits(min_throughput="1/s")
    ),
    "no name": Case(
        model=one([node("Relu", "x", "y")], x=(None, 4)),
        codes=codes(302),
        notes=codes(302),
        dims={},
        node="x",
        says="dimension 0",
        fix="--batch N, or batch = N in the target",
    ),
    "no names": Case(
        model=one([node("Relu", "x", "y")], x=(None, 4, None)),
        codes=codes(302),
        dims={},
        limits=limits(max_memory="fits"),
        node="x",
        says="dimensions 0, 2",
        fix="--shape x=Nx4xN, or shapes = { x = [N, 4, N] } in the target",
    ),
    "a batch without a name that is given": Case(
        model=one([node("Relu", "x", "y")], x=(None, 4)), codes=codes(), dims={}, batch=8
    ),
    "a batch is given, and another dimension has no name": Case(
        model=one([node("Relu", "x", "y")], x=(None, 4, None)),
        codes=codes(302),
        notes=codes(302),
        dims={},
        batch=8,
        says="dimension 2",
        fix="--shape x=Nx4xN",
    ),
    "no shape": Case(
        model=one([node("Relu", "x", "y")], x=None), codes=codes(302, 503), dims={}, node="x", says="declares no shape"
    ),
    "baked into a Reshape": Case(
        model=RESHAPED, codes=codes(303), dims={"batch": 1}, node="batch", says="1 works and 2 does not"
    ),
    "baked into a Reshape, another size wanted": Case(
        model=RESHAPED, codes=codes(303, 306), dims={"batch": 8}, node="batch", says="1 works and 8 does not"
    ),
    "baked into a Reshape, another batch wanted": Case(
        model=RESHAPED, codes=codes(303, 306), dims={}, batch=8, node="batch", says="1 works and 8 does not"
    ),
    "baked into a table of two sides": Case(
        model=one(
            [node("Flatten", "x", "f", "flat", axis=1), node("Add", "f positions", "y", "embed")],
            x=(1, "height", "width"),
            weights=[tensor("positions", np.zeros((1, 640 * 640), np.float32))],
        ),
        codes=codes(303, 306),
        dims={"height": 320, "width": 320},
        node="height",
        says="'height', 'width' are declared free, but 640, 640 work and 320, 320 do not",
    ),
    "a batch in the sizes of a Resize": Case(
        model=RESIZED, codes=codes(303), dims={"batch": 4}, node="up", says="1 works and 4 does not"
    ),
    "a batch in the sizes of a Resize, which the target has": Case(
        model=RESIZED, codes=codes(303), dims={"batch": 1}, node="up", says="1 works and 2 does not"
    ),
    "a Resize to nothing": Case(
        model=one(
            [node("Resize", "x nothing scales", "y", "up")],
            x=("batch", 3, 8, 8),
            weights=[NOTHING, tensor("scales", np.array([1, 1, 0, 0.5], np.float32))],
        ),
        codes=codes(306),
        node="up",
        says="scales [1.0, 1.0, 0.0, 0.5] are not positive",
        fix="no size that is given changes that",
    ),
    "a kernel that isn't its weight's": Case(
        model=one(
            [node("Conv", "x w", "y", "conv", kernel_shape=[5, 5])],
            x=("batch", 4, 8, 8),
            weights=[tensor("w", np.zeros((4, 4, 3, 3), np.float32))],
        ),
        codes=codes(306),
        node="conv",
        fix="no size that is given changes that",
    ),
    "channels in three groups": Case(
        model=one(
            [node("Conv", "x w", "y", "conv", group=3)],
            x=("batch", 4, 8, 8),
            weights=[tensor("w", np.zeros((4, 4, 3, 3), np.float32))],
        ),
        codes=codes(306),
        node="conv",
        fix="no size that is given changes that",
    ),
    "a Reshape that copes": Case(
        model=one([node("Reshape", "x target", "y", "flat")], x=("batch", 3, 4), weights=[integer("target", -1, 12)]),
        codes=codes(),
    ),
    "baked into a table": Case(
        model=one(
            [node("Add", "x positions", "y", "embed")],
            x=(1, "seq", 4),
            weights=[tensor("positions", np.zeros((64, 4), np.float32))],
        ),
        codes=codes(303),
        dims={"seq": 64},
        node="seq",
        says="64 works and 32 does not",
    ),
    "one sample decides for all": Case(
        model=lambda: model(
            graph(
                [
                    node("Greater", "x zero", "above", "above"),
                    node(
                        "If",
                        "above",
                        "y",
                        "choice",
                        then_branch=graph([node("Exp", "x", "a")], [], [value("a", ["batch", 1])]),
                        else_branch=graph([node("Abs", "x", "b")], [], [value("b", ["batch", 1])]),
                    ),
                ],
                [value("x", ["batch", 1])],
                [value("y", ["batch", 1])],
                [number("zero", 0)],
            )
        ),
        codes=codes(303),
        dims={"batch": 1},
        node="batch",
        says="its condition has the shape [2, 1], not one element",
    ),
    "a window that outgrows its input": Case(
        model=one(
            [node("Conv", "x w", "y", "conv")],
            x=(1, 3, "h", "w"),
            weights=[tensor("w", np.zeros((8, 3, 40, 40), np.float32))],
        ),
        codes=codes(),
        dims={"h": 64, "w": 64},
    ),
    "sizes that hang together": Case(
        model=lambda: model(
            graph(
                [node("Add", "a b", "y", "sum")],
                [value("a", ["m", 64]), value("b", ["n", 64])],
                [value("y", ["m", 64])],
            )
        ),
        codes=codes(),
        dims={"m": 64, "n": 64},
    ),
    "an output that stays": Case(
        model=one([node("ReduceMean", "x", "y", "mean", axes=[0])], y=("batch", 4)),
        codes=codes(303),
        dims={"batch": 1},
        node="y",
        says="is 1 whether 'batch' is 1 or 2",
    ),
    "two sizes": Case(
        model=declared(value("xw", ["n", "batch"])), codes=codes(304), node="batch", says="2 in the inputs, 3 in 'xw'"
    ),
    "two sizes of a symbol that no input has": Case(
        model=declared(value("xw", ["n", 3]), value("pre", ["m", "n"])), codes=codes(304), node="n"
    ),
    "stale to a stand-in for 0": Case(
        model=one([node("Relu", "x", "y")], x=(0, 4), y=(0, 4)),
        codes=codes(302),
        notes=codes(302),
        dims={},
        says="dimension 0",
    ),
    "stale": Case(model=declared(value("xw", [7, 3])), codes=codes(305), notes=codes(305), says="[7, 3]"),
    "disagreeing": Case(
        model=one([node("MatMul", "x w", "y", "fc")], weights=[tensor("w", np.zeros((5, 3), np.float32))]),
        codes=codes(306),
        node="fc",
    ),
    "disagreeing, with sizes open": Case(
        model=one(
            [node("MatMul", "x w", "y", "fc")],
            x=(1, "seq len", "width"),
            weights=[SQUARE],
        ),
        codes=codes(306),
        dims={"width": 4, "seq len": 2},
        node="fc",
        fix="give sizes that the model takes: --dim 'seq len=N,width=N', or "
        'dims = { "seq len" = N, width = N } in the target',
    ),
    "disagreeing, with sizes open that have no names": Case(
        model=one([node("MatMul", "x w", "y", "fc")], x=(None, 3, None), weights=[SQUARE]),
        codes=codes(306),
        dims={},
        shapes={"x": (1, 3, 4)},
        node="fc",
        fix="give sizes that the model takes: --shape x=Nx3xN, or shapes = { x = [N, 3, N] } in the target",
    ),
    "disagreeing, with an open batch": Case(
        model=one(
            [node("Concat", "x held", "y", "join", axis=1)],
            x=(None, 4),
            weights=[tensor("held", np.zeros((3, 4), np.float32))],
        ),
        codes=codes(306),
        dims={},
        batch=2,
        node="join",
        fix="give sizes that the model takes: --batch N, or batch = N in the target",
    ),
    "a node that no runtime takes": Case(
        model=one([node("Concat", "x", "y", "join")]),
        codes=codes(306),
        node="join",
        says="attribute axis",
        fix="no size that is given changes that",
    ),
    "trips assumed": Case(
        model=repeated,
        codes=codes(307),
        limits=limits(max_latency="1s"),
        node="repeat",
        says="Loop 'repeat' taken to run once",
    ),
    "trips bounded, limit missed at the most": Case(
        model=lambda: repeated(1000),
        codes=codes(101, 307),
        limits=limits(max_latency="1ms"),
        says="at its most, 1,000 trips",
    ),
    "trips bounded, limit kept at the most": Case(
        model=lambda: repeated(1000), codes=codes(), limits=limits(max_latency="1s", max_memory="fits")
    ),
    "trips assumed, no limit that rests on them": Case(model=repeated, codes=codes(), limits=limits(max_parameters=0)),
    # --- number formats
    "bf16, V100": Case(model=matmul(BF16), codes=codes(401), gpu="v100", node="fc", says="bfloat16"),
    "bf16, T4": Case(model=matmul(BF16), codes=codes(401), gpu="t4"),
    "bf16, A100": Case(model=matmul(BF16), codes=codes()),
    "bf16 asked, T4": Case(model=linear, codes=codes(401), gpu="t4", precision="bf16"),
    "TF32 asked, T4": Case(model=linear, codes=codes(406), gpu="t4", precision="tf32", says="no TF32 units"),
    "TF32 asked, A100": Case(model=linear, codes=codes(), precision="tf32"),
    "INT8 asked, V100": Case(model=linear, codes=codes(403), gpu="v100", precision="int8", says="no INT8 tensor"),
    "INT8 asked, P100": Case(model=linear, codes=codes(403, 406), gpu="p100", precision="int8", says="no INT8"),
    "a limit where nothing is predicted": Case(
        model=linear, codes=codes(108, 406), gpu="t4", precision="tf32", limits=limits(max_latency="1s")
    ),
    "bf16 as fp32, T4": Case(model=matmul(BF16), codes=codes(), gpu="t4", precision="fp32"),
    "fp8, A100": Case(model=dequantized(F8), codes=codes(402)),
    "fp8 in an engine, A100": Case(model=dequantized(F8), codes=codes(402), runtime="tensorrt"),
    "fp8 in an engine, H100": Case(model=dequantized(F8), codes=codes(), gpu="h100", runtime="tensorrt"),
    "fp8 in an engine of 8.6": Case(
        model=dequantized(F8), codes=codes(507), gpu="h100", runtime="tensorrt@8.6", says="doesn't compute in it"
    ),
    "fp8, L4": Case(model=dequantized(F8), codes=codes(), gpu="l4"),
    "fp8, H100": Case(model=dequantized(F8), codes=codes(), gpu="h100"),
    "fnuz, H100": Case(model=dequantized(TensorProto.FLOAT8E4M3FNUZ), codes=codes(402), gpu="h100", says="FNUZ"),
    "fnuz, MI300X": Case(model=dequantized(TensorProto.FLOAT8E4M3FNUZ), codes=codes(), gpu="mi300x"),
    "int8, P4": Case(model=integers, codes=codes(403), gpu="p4"),
    "int8, V100": Case(model=integers, codes=codes(403), gpu="v100"),
    "int8, MI50": Case(model=integers, codes=codes(403), gpu="mi50"),
    "int8, T4": Case(model=integers, codes=codes(), gpu="t4"),
    "int8, L40": Case(model=integers, codes=codes(), gpu="l40"),
    "int8, B300, whose sources disagree": Case(
        model=integers,
        codes=codes(403),
        gpu="b300-sxm",
        says="no rate of b300-sxm's INT8 units is stated",
        fix="state int8_tops in a GPU file",
    ),
    "fp16, P4": Case(model=matmul(F16), codes=codes(404), gpu="p4"),
    "fp16, P100": Case(model=matmul(F16), codes=codes(), gpu="p100"),
    "fp8 asked on a T4": Case(model=linear, codes=codes(402), gpu="t4", precision="fp8", runtime="eager"),
    "strides of 0": Case(
        model=one(
            [node("Conv", "x w", "y", "conv", strides=[0, 1])],
            x=("batch", 4, 8, 8),
            weights=[tensor("w", np.zeros((4, 4, 3, 3), np.float32))],
        ),
        codes=codes(306),
        node="conv",
        says="strides is [0, 1], not positive",
        fix="no size that is given changes that",
    ),
    "too few pads": Case(
        model=one(
            [node("Conv", "x w", "y", "conv", pads=[1, 1])],
            x=("batch", 4, 8, 8),
            weights=[tensor("w", np.zeros((4, 4, 3, 3), np.float32))],
        ),
        codes=codes(306),
        node="conv",
        says="pads [1, 1] do not fit 2 spatial dimensions",
        fix="no size that is given changes that",
    ),
    "no group": Case(
        model=one(
            [node("Conv", "x w", "y", "conv", group=0)],
            x=("batch", 4, 8, 8),
            weights=[tensor("w", np.zeros((4, 4, 3, 3), np.float32))],
        ),
        codes=codes(306),
        node="conv",
        says="group is 0, not positive",
        fix="no size that is given changes that",
    ),
    "fp8 asked of a convolution": Case(
        model=one(
            [node("Conv", "x w", "y", "conv")],
            x=("batch", 4, 8, 8),
            weights=[tensor("w", np.zeros((4, 4, 3, 3), np.float32))],
        ),
        codes=codes(407),
        gpu="h100",
        precision="fp8",
        says="fp8 in eager concerns 0 of 1 products and convolutions",
    ),
    "fp8 asked of a linear layer": Case(model=linear, codes=codes(), gpu="h100", precision="fp8"),
    "odd rows": Case(
        model=ODD_ROWS,
        codes=codes(408),
        notes=codes(408),
        gpu="h100",
        dims={"batch": 4096},
        node="head",
        says="a product of 4,096 x 1,001 x 1,024 takes",
        fix="multiple of 8",
    ),
    "odd rows, padded by the builder": Case(
        model=ODD_ROWS, codes=codes(), gpu="h100", runtime="tensorrt", dims={"batch": 4096}
    ),
    "odd rows of a small part": Case(model=ODD_ROWS, codes=codes(), gpu="t4", dims={"batch": 2}),
    "fp4, H100": Case(model=dequantized(F4), codes=codes(405), gpu="h100"),
    "fp4, B200": Case(model=dequantized(F4), codes=codes(), gpu="b200-sxm"),
    # --- operators
    "runs on the CPU": Case(
        model=DETERMINANT,
        codes=codes(505),
        runtime="onnxruntime",
        node="det",
        says="Det has no GPU kernel in onnxruntime (1 node): it runs on the CPU, 136 B are copied",
    ),
    "has a kernel for an earlier opset": Case(
        model=one([node("MaxPool", "x", "y", "pool", kernel_shape=[2, 2])], x=("batch", 1, 4, 4), opsets={"": 22}),
        codes=codes(505),
        runtime="onnxruntime",
        node="pool",
        says="no GPU kernel in onnxruntime for opset 22, only up to 21 (1 node)",
    ),
    "has a kernel for other types": Case(
        model=one([node("ReduceSumSquare", "x", "y", "squares")], dtype=TensorProto.INT32),
        codes=codes(505),
        runtime="onnxruntime",
        node="squares",
        says="no GPU kernel in onnxruntime for int32, only for other types (1 node)",
    ),
    "has a kernel": Case(model=DETERMINANT, codes=codes()),
    "refused by TensorRT": Case(
        model=DETERMINANT, codes=codes(506), runtime="tensorrt", node="det", says="TensorRT's parser has no Det"
    ),
    "a mixture of experts that ONNX Runtime refuses": Case(
        model=one(
            [node("MoE", "x p w1 bias w2", "y", "experts", domain="com.microsoft", activation_type="relu2")],
            weights=[
                tensor("p", np.zeros((2, 3), np.float32)),
                tensor("w1", np.zeros((3, 8, 4), np.float32)),
                tensor("bias", np.zeros((3, 8), np.float32)),
                tensor("w2", np.zeros((3, 4, 8), np.float32)),
            ],
        ),
        codes=codes(506),
        runtime="onnxruntime",
        dims={"batch": 2},
        node="experts",
        says="ONNX Runtime's CUDA provider takes no MoE with the activation relu2 (1 node)",
        fix="swiglu",
    ),
    "INT8 about zero, TensorRT": Case(model=rounded(), codes=codes(), runtime="tensorrt"),
    "UINT8 about 128, TensorRT": Case(
        model=rounded(dtype=np.uint8, zero=128), codes=codes(506), runtime="tensorrt", node="q", says="zero point 128"
    ),
    "INT8 about 5, TensorRT": Case(
        model=rounded(zero=5), codes=codes(506), runtime="tensorrt", node="q", says="takes 0 alone (1 more alike)"
    ),
    "INT8 about 5 with weights of UINT8, TensorRT": Case(
        model=rounded(zero=5, weight=np.uint8),
        codes=codes(506),
        runtime="tensorrt",
        node="q",
        says="takes 0 alone (1 more alike, 1 for other types or zero points)",
    ),
    "INT16, TensorRT": Case(
        model=rounded(dtype=np.int16), codes=codes(506), runtime="tensorrt", node="q", says="has INT16"
    ),
    "UINT8 weights, TensorRT": Case(
        model=rounded(weight=np.uint8), codes=codes(506), runtime="tensorrt", node="dw", says="a constant of UINT8"
    ),
    "quantised as TensorRT doesn't take it, onnxruntime": Case(
        model=rounded(zero=5), codes=codes(508), runtime="onnxruntime", fix="ActivationSymmetric"
    ),
    "too few scales": Case(
        model=rounded(scales=4), codes=codes(306), node="dw", says="has 4 scales for the 8", fix="quantise the model"
    ),
    "scales along no axis": Case(
        model=rounded(axis=9), codes=codes(306), node="dw", says="axis 9 is none of the 4 dimensions of w"
    ),
    "INT16 before opset 21": Case(
        model=rounded(dtype=np.int16, opset=17), codes=codes(306), node="q", says="int16 came with opset 21"
    ),
    "a QuantizeLinear without inputs, TensorRT": Case(
        model=one([node("QuantizeLinear", "", "y", "q")]), codes=codes(306), runtime="tensorrt", node="q"
    ),
    "an infinite scale": Case(model=rounded(scale=np.inf), codes=codes(604), node="q", says="infinite: inf"),
    "scales of blocks": Case(model=blocks(512, 32, 16), codes=codes()),
    "scales of blocks, the last one shorter": Case(model=blocks(512, 33, 16), codes=codes()),
    "too few scales of blocks": Case(
        model=blocks(512, 33, 15), codes=codes(306), node="dw", says="blocks of 33, which need [16, 8]"
    ),
    "a scale of zero": Case(model=rounded(scale=0.0), codes=codes(604), node="q", says="not positive: 0"),
    "a plugin of TensorRT, onnxruntime": Case(
        model=plugin, codes=codes(501, 502), runtime="onnxruntime", node="nms", says="a plugin of TensorRT"
    ),
    "a plugin of TensorRT": Case(model=plugin, codes=codes(502), runtime="tensorrt", node="nms"),
    **{
        f"a plugin of TensorRT, {op_type} in '{domain}'": Case(
            model=partial(plugin, op_type, domain),
            codes=codes(502),
            runtime="tensorrt",
            node="nms",
            says=f"{op_type}: a TensorRT plugin",
        )
        for op_type, domain in [("EfficientNMS_TRT", "TRT"), ("EfficientNMS_TRT", "custom"), ("BatchedNMS_TRT", "")]
    },
    "a plugin of TensorRT in a domain, onnxruntime": Case(
        model=partial(plugin, domain="TRT"),
        codes=codes(501, 502),
        runtime="onnxruntime",
        node="nms",
        says="a plugin of TensorRT",
    ),
    "TensorRT, MI300X": Case(
        model=matmul(F16), codes=codes(507), gpu="mi300x", runtime="tensorrt", says="it runs on no GPU by AMD"
    ),
    "text": Case(
        model=one(
            [node("StringNormalizer", "x", "y", "lower", case_change_action="LOWER")],
            x=(2,),
            y=(2,),
            dtype=TensorProto.STRING,
        ),
        dims={},
        codes=codes(505),
        runtime="onnxruntime",
        node="lower",
        says="StringNormalizer: text is handled on the host (1 node), whose time isn't counted",
    ),
    "text above a limit, without a kernel to launch": Case(
        model=one(
            [node("StringNormalizer", "x", "y", "lower", case_change_action="LOWER")],
            x=(2,),
            y=(2,),
            dtype=TensorProto.STRING,
        ),
        dims={},
        codes=codes(101, 505),
        runtime="onnxruntime",
        limits=limits(max_latency="1ns"),
        fix="take a faster GPU",
    ),
    "quantised, eager": Case(
        model=dequantized(TensorProto.INT8), codes=codes(509), says="PyTorch runs no file quantised in ONNX"
    ),
    "quantised, compiled": Case(model=dequantized(TensorProto.INT8), codes=codes(509), runtime="compiled"),
    "a quantised table with two readers": Case(  # what it gives is dequantised for each, and a Shape reads none
        model=lambda: model(
            graph(
                [
                    node("Gather", "table i", "xq", "rows"),
                    node("DequantizeLinear", "xq s z", "x", "dq"),
                    node("Shape", "x", "n", "shape"),
                    node("MatMul", "x w", "y", "fc"),
                ],
                [value("i", (3,), I64)],
                [value("y", (3, 4)), value("n", (2,), I64)],
                [
                    tensor("table", np.zeros((9, 4), np.uint8)),
                    tensor("s", np.array(0.1, np.float32)),
                    tensor("z", np.array(7, np.uint8)),
                    tensor("w", np.zeros((4, 4), np.float32)),
                ],
            )
        ),
        dims={},
        codes=codes(508),
        runtime="onnxruntime",
        node="dq",
    ),
    "quantised, onnxruntime": Case(
        model=dequantized(TensorProto.INT8), codes=codes(508), runtime="onnxruntime", says="products in floats"
    ),
    "INT8 asked of onnxruntime": Case(
        model=linear, codes=codes(508), runtime="onnxruntime", precision="int8", says="5 kernels that only quantise"
    ),
    "weights of 4 bits asked of onnxruntime": Case(
        model=linear, codes=codes(), runtime="onnxruntime", precision="int4w"
    ),
    "a framework's operator in ONNX's domain": Case(  # as tf2onnx leaves TensorFlow's of Keras' gelu
        model=one([node("Erfc", "x", "h", "odd"), node("Relu", "h", "y", "act")]),
        codes=codes(501, 503),
        says="Erfc is no operator of ONNX, though in its domain (1 node)",
        fix="another opset or exporter",
    ),
    "nodes of one operator that leave shapes open": Case(
        model=one(
            [
                node("Mystery", "x", "h", "odd", domain="acme"),
                node("Relu", "h", "g", "act"),
                node("Mystery", "x", "u", "odder", domain="acme"),
                node("Add", "u u", "y", "sum"),
                node("Exp", "x", "z", "exp"),
            ]
        ),
        codes=codes(501, 503),
        says="shapes behind it and 1 more acme::Mystery are unknown: 2 nodes can't be costed",
    ),
    "no such operator": Case(model=UNKNOWN, codes=codes(501, 503), node="odd", says="acme::Mystery"),
    "no model of its cost": Case(model=GENERATION, codes=codes(502), node="engine", says="another engine"),
    "newer than the opset": Case(
        model=one([node("Gelu", "x", "y", "act")]), codes=codes(504), node="act", says="came with opset 20"
    ),
    "gone from the opset": Case(
        model=one(
            [node("Upsample", "x s", "y", "up")], x=(1, 1, 2, 2), opsets={"": 10}, weights=[number("s", 1, 1, 2, 2)]
        ),
        codes=codes(504),
        dims={},
        says="ended with opset 9",
    ),
    "a size's root on the host, in a CUDA graph": Case(
        model=divided_by_root,
        codes=codes(510),
        runtime="onnxruntime",
        cuda_graph=True,
        dims={"batch": 2, "seq": 3},
        says="what the host computes of sizes for div is copied",
    ),
    "a size's root, without a graph": Case(
        model=divided_by_root, codes=codes(), runtime="onnxruntime", dims={"batch": 2, "seq": 3}
    ),
    "a run that is captured": Case(model=linear_of_four, codes=codes(), runtime="onnxruntime", cuda_graph=True),
    # --- numerics
    "mask, fp32": Case(model=added(-1e9), codes=codes(601), notes=codes(601), node="mask", says="-1e+09"),
    "mask, fp16 asked": Case(model=added(-1e9), codes=codes(601), precision="fp16", says="-1e+09"),
    "mask, stored in fp16": Case(model=added(-1e9, dtype=np.float16), codes=codes(601), says="-inf"),
    "mask, fp8 in an engine": Case(
        model=added(-1e9), codes=codes(601), precision="fp8", runtime="tensorrt", gpu="h100", says="-1e+09"
    ),
    "mask, fp8 in eager": Case(model=added(-1e9), codes=codes(), precision="fp8", runtime="eager", gpu="h100"),
    "mask, int8 in onnxruntime": Case(model=added(-1e9), codes=codes(), precision="int8", runtime="onnxruntime"),
    "mask, bf16 asked": Case(model=added(-1e9), codes=codes(), precision="bf16"),
    "mask, fp32 asked": Case(model=added(-1e9), codes=codes(), precision="fp32"),
    "epsilon, bf16 asked": Case(model=added(1e-12), codes=codes(), precision="bf16"),
    "mask within the range": Case(model=added(-65504), codes=codes(), precision="fp16"),
    "mask that is infinite": Case(model=added(-np.inf), codes=codes(), precision="fp16"),
    "a bound beyond the range": Case(model=added(1e9, "Min"), codes=codes(), precision="fp16"),
    "epsilon, fp32": Case(model=added(1e-12), codes=codes(602), notes=codes(602), says="1e-12"),
    "epsilon, fp16 asked": Case(model=added(1e-12), codes=codes(602), precision="fp16"),
    "epsilon that holds": Case(model=added(1e-7), codes=codes(), precision="fp16"),
    "epsilon as a bound": Case(model=added(1e-12, "Max"), codes=codes(602), precision="fp16"),
    "one tiny element of a learned vector": Case(
        model=one([node("Add", "x c", "y", "add")], weights=[number("c", 1e-12, 1, 1, 1)]),
        codes=codes(),
        precision="fp16",
    ),
    "mask in a part that stays in fp32": Case(
        model=one(
            [
                node("MatMul", "x w", "m", "fc"),
                node("Cast", "m", "wide", "widen", to=TensorProto.FLOAT),
                node("Add", "wide c", "masked", "mask"),
                node("Cast", "masked", "y", "narrow", to=F16),
            ],
            weights=[tensor("w", np.ones((4, 4), np.float16)), number("c", -1e9)],
            dtype=F16,
        ),
        codes=codes(),
    ),
    "a tiny factor": Case(model=added(1e-12, "Mul"), codes=codes(), precision="fp16"),
    "not a number": Case(model=added(np.nan), codes=codes(603), node="mask"),
    "a constant that another makes": Case(
        model=one(
            [node("Mul", "c d", "m", "made"), node("Add", "x m", "y", "mask")],
            weights=[number("c", -1e5), number("d", 1e4)],
        ),
        codes=codes(601),
        notes=codes(601),
        node="mask",
    ),
}


def file_cases(folder: Path) -> dict[str, tuple[Path, str]]:
    """Models whose fault is in the files beside them, and the code."""
    short = folder / "short.onnx"
    onnx.save(linear(external_tensor("w", [4, 3], "short.bin")), short)
    (folder / "short.bin").write_bytes(bytes(47))
    whole = folder / "whole.onnx"
    onnx.save(linear(external_tensor("w", [4, 3], "whole.bin")), whole)
    (folder / "whole.bin").write_bytes(bytes(48))
    return {"short": (short, "NSX202"), "whole": (whole, "")}
