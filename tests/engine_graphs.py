"""Small graphs that ONNX Runtime and TensorRT fuse, and how their kernels are shown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graphs import inferred, split
from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.runtimes import fused_graph
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.graph.read import read_model
from neusight_onnx.kernels import KERNEL_CLASSES, Conv, Elementwise, Gemm, Normalization, Softmax
from neusight_onnx.precision import resolve
from neusight_onnx.preparation import PreparedModel, infer_shapes, prepare, works_of
from neusight_onnx.runtime import RUNTIMES

RESNET = Path(__file__).parent.parent / "examples" / "resnet50.onnx"
IMAGE = {"x": (2, 3, 8, 8)}
CONV_RELU = """
c = Conv(x, w, b)
n = BatchNormalization(c, k, k, k, k)
r = Relu(n)
d = Conv(r, w2)
s = Add(d, r)
y = Relu(s)
"""
CONV_WEIGHTS = {"w": (4, 3, 1, 1), "b": (4,), "k": (4,), "w2": (4, 4, 1, 1)}
TOKENS = {"x": (2, 6, 16)}
FEED_FORWARD = """
m = MatMul(x, w)
a = Add(m, b)
g = Gelu(a)
p = MatMul(g, v)
q = Add(p, c)
s = Add(q, x)
y = LayerNormalization(s, scale, shift)
"""
WEIGHTS = {"w": (16, 32), "b": (32,), "v": (32, 16), "c": (16,), "scale": (16,), "shift": (16,)}
HEADS = {"q": (2, 4, 6, 16), "k": (2, 4, 6, 16), "v": (2, 4, 6, 16), "mask": (2, 1, 1, 6)}
ATTENTION = """
t = Transpose<perm=[0,1,3,2]>(k)
p = MatMul(q, t)
s = Div(p, root)
a = Add(s, mask)
p2 = Softmax<axis=-1>(a)
y = MatMul(p2, v)
"""
HALF = dict.fromkeys((*HEADS, "root"), 10)


ALL_WEIGHTS = {True: CONV_WEIGHTS, False: WEIGHTS}


def built(
    nodes: str, inputs: dict[str, tuple[int, ...]], *, half: bool = False, outputs: list[str] | None = None
) -> InferredGraph:
    used = set(nodes.replace("(", " ").replace(")", " ").replace(",", " ").split())
    number = np.float16 if half else np.float32
    return inferred(
        nodes,
        {name: shape for name, shape in inputs.items() if name in used},
        weights={name: shape for name, shape in ALL_WEIGHTS[inputs is IMAGE].items() if name in used - set(inputs)},
        outputs=outputs,
        constants={"root": number(2.8)} if "root" in used else {},
        types=HALF if half else None,
        opset=20,
    )


def shown(graph: InferredGraph, runtime: str) -> list[str]:
    """The kernels, in order: class, and what is fused into it."""
    found = []
    for work in works_of(fused_graph(graph, RUNTIMES[runtime]), RUNTIMES[runtime]):
        for kernel in work.kernels:
            match kernel:
                case Gemm() | Conv():
                    extra = kernel.epilogue
                case Elementwise():
                    extra = kernel.operations
                case Softmax() | Normalization():
                    extra = kernel.fused
                case _:
                    extra = (getattr(kernel, "operation", ""),)
            found.append(" ".join((KERNEL_CLASSES[type(kernel)], *filter(None, extra))))
    return found


TO_HEADS = """
s = Shape(x)
b = Gather(s, i0)
n = Gather(s, i1)
b1 = Unsqueeze(b, axes)
n1 = Unsqueeze(n, axes)
{rows}
t = Concat<axis=0>({target})
y = Reshape(x, t)
"""


BOTH = "m = Mul(b, n)\nm1 = Unsqueeze(m, axes)"


def prepared_for_ort(nodes: str, shape: list[object], folder: Path) -> PreparedModel:
    """A model of one input x at a batch of 2 and 3 tokens."""
    integers = {"i0": 0, "i1": 1, "i2": 2, "i3": 3, "axes": [0], "four": [4], "eight": [8], "minus": [-1]}
    constants = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in integers.items()]
    declared = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    output = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph(split(nodes), "g", [declared], [output], constants)
    path = folder / "heads.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    dims = {"batch": 2, "tokens": 3} if "batch" in shape else {}
    shaped = infer_shapes(read_model(path), make_bindings(dims, None, None, None))
    return prepare(shaped, precision=resolve("auto", DataType.FLOAT32), runtime="onnxruntime")
