"""What TensorRT for RTX makes of pairs of quantisation, beside our kernels for ``--runtime tensorrt``; no GPU needed.

    python benchmarks/trt_quantized.py SITE-PACKAGES [--capability 7.5 --capability 8.6] [-o FILE]

Each graph isolates one question about INT8 and FP8: where QuantizeLinear and DequantizeLinear end up, and which
kernels compute in few bits. A kernel is said with the type it reads first and those it writes. The rules of
``fusion/quantization/moves.py`` and ``fusion/quantization/`` follow what the script prints, but where it says
otherwise of convolutions and products: this builder's write floats and leave the rounding to a generated kernel, while
TensorRT's developer guide has kernels that round.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

from fusion_trt import CAPABILITIES, SYNCHRONISING, built
from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.read import read_model
from neusight_onnx.kernels import KERNEL_CLASSES, Kernel
from neusight_onnx.lowering.precision import stored_precision
from neusight_onnx.precision import resolve
from neusight_onnx.preparation import infer_shapes, prepare

KINDS = {"correlation": "conv", "kgen": "generated", "runtime_fusion": "gemm"}
TYPES = {"Half": "f16", "Float": "f32", "Int8": "i8", "FP8": "f8", "float16": "f16", "float32": "f32", "int8": "i8"}
TYPES |= {"float8e4m3fn": "f8"}

CHANNELS, TOKENS, WIDTH = 64, 128, 768
CONV = "Conv<pads=[1, 1, 1, 1]>"
MAXIMA = "MaxPool<kernel_shape=[2, 2], strides=[2, 2]>"
WIDE_MAXIMA = "MaxPool<kernel_shape=[5, 5], pads=[2, 2, 2, 2]>"
TWO = f"""
    x0 = Pair(x, s0)
    c1 = {CONV}(x0, w1)
    a = Relu(c1)
    c2 = {CONV}(x0, w2)
    g = Sigmoid(c2)
    b = Mul(c2, g)
"""
ONE = TWO[: TWO.index("    c2")]
"""Images: ``a`` is the result of an INT8 convolution and Relu, ``b`` of one and SiLU. ``Pair`` is a QuantizeLinear and
a DequantizeLinear with a scale."""

IMAGES = {
    "MaxPool, rounded behind": f"{ONE}p = {MAXIMA}(a)\nq = Pair(p, s1)\ny = {CONV}(q, w3)",
    "MaxPool of what is rounded": f"{ONE}q = Pair(a, s1)\np = {MAXIMA}(q)\ny = {CONV}(p, w3)",
    "MaxPool, its result in floats, too": f"{ONE}p = {WIDE_MAXIMA}(a)\nq = Pair(p, s1)\nc = {CONV}(q, w3)\n"
    f"y = Add(c, p)",
    "three MaxPool and Concat (SPPF)": f"{ONE}p1 = {WIDE_MAXIMA}(a)\np2 = {WIDE_MAXIMA}(p1)\n"
    f"m = Concat<axis=1>(a, p1, p2)\n"
    "q = Pair(m, s1)\ny = Conv(q, w6)",
    "Concat, rounded behind": f"{TWO}m = Concat<axis=1>(a, b)\nq = Pair(m, s1)\ny = Conv(q, w4)",
    "Concat of parts with one scale": f"{TWO}qa = Pair(a, s1)\nqb = Pair(b, s1)\nm = Concat<axis=1>(qa, qb)\n"
    f"y = Conv(m, w4)",
    "Concat of parts with two scales": f"{TWO}qa = Pair(a, s1)\nqb = Pair(b, s2)\nm = Concat<axis=1>(qa, qb)\n"
    f"q = Pair(m, s3)\n"
    "y = Conv(q, w4)",
    "Concat, two readers of one scale": f"{TWO}m = Concat<axis=1>(a, b)\nq = Pair(m, s1)\nr = Pair(m, s1)\n"
    "c = Conv(q, w4)\nd = Conv(r, w4)\ny = Add(c, d)",
    "Resize, nearest": f'{ONE}p = Resize<mode="nearest">(a, , grow)\nq = Pair(p, s1)\ny = {CONV}(q, w3)',
    "Resize, linear": f'{ONE}p = Resize<mode="linear">(a, , grow)\nq = Pair(p, s1)\ny = {CONV}(q, w3)',
    "AveragePool between pairs": f"{ONE}p = Pair(a, s1)\nm = AveragePool<kernel_shape=[2, 2], strides=[2, 2]>(p)\n"
    f"q = Pair(m, s2)\ny = {CONV}(q, w3)",
    "Split between pairs": f"{ONE}p = Pair(a, s1)\nl, r = Split<axis=1, num_outputs=2>(p)\nm = Concat<axis=1>(r, l)\n"
    f"q = Pair(m, s1)\ny = {CONV}(q, w3)",
    "a view between": f"{ONE}v = Reshape(a, flat)\np = Pair(v, s1)\nq = Reshape(p, image)\ny = {CONV}(q, w3)",
    "SiLU, rounded behind": f"{TWO}q = Pair(b, s1)\ny = {CONV}(q, w3)",
    "SiLU of what is rounded": f"x0 = Pair(x, s0)\nc = {CONV}(x0, w1)\np = Pair(c, s1)\ng = Sigmoid(p)\n"
    f"h = Pair(g, s2)\n"
    f"m = Mul(p, h)\nq = Pair(m, s3)\ny = {CONV}(q, w3)",
    "residual sum, the other rounded": f"x0 = Pair(x, s0)\nc = {CONV}(x0, w1)\nt = Add(c, x0)\nr = Relu(t)\n"
    f"q = Pair(r, s1)\n"
    f"y = {CONV}(q, w3)",
    "residual sum, the other in floats": f"{ONE}p = Pair(a, s1)\nc = {CONV}(p, w2)\nt = Add(c, a)\nr = Relu(t)\n"
    f"q = Pair(r, s2)\n"
    f"y = {CONV}(q, w3)",
    "depthwise": f"x0 = Pair(x, s0)\nc = Conv<group=64, pads=[1, 1, 1, 1]>(x0, d3)\na = Relu(c)\n"
    f"q = Pair(a, s1)\ny = {CONV}(q, w3)",
    "ConvTranspose": f"x0 = Pair(x, s0)\nc = ConvTranspose<strides=[2, 2]>(x0, t2)\na = Relu(c)\n"
    f"q = Pair(a, s1)\ny = {CONV}(q, w3)",
}
C = CHANNELS
FILTERS = {f"w{place}": (C, C, 3, 3) for place in (1, 2, 3)} | {"w4": (C, 2 * C, 1, 1), "w6": (C, 3 * C, 1, 1)}
FILTERS |= {"d3": (C, 1, 3, 3), "t2": (C, C, 2, 2)}

HEADS = "\n".join(
    f"m{c} = MatMul(x0, {c}w)\na{c} = Add(m{c}, {c}b)\nr{c} = Reshape(a{c}, heads)\n"
    f"h{c} = Transpose<perm={order}>(r{c})"
    for c, order in (("q", "[0, 2, 1, 3]"), ("k", "[0, 2, 3, 1]"), ("v", "[0, 2, 1, 3]"))
)
BEHIND = "o = Transpose<perm=[0, 2, 1, 3]>(z)\nj = Reshape(o, joined)\nq = Pair(j, s9)\ny = MatMul(q, ow)"
OF_HEADS = "fq = Pair(hq, s1)\nfk = Pair(hk, s2)\nfv = Pair(hv, s3)\np = MatMul(fq, fk)\n"
TEXTS = {
    "product, GELU, rounded behind": "x0 = Pair(x, s0)\nm = MatMul(x0, qw)\na = Add(m, qb)\ng = Gelu(a)\n"
    "q = Pair(g, s1)\n"
    "y = MatMul(q, ow)",
    "normalization, rounded behind": "n = LayerNormalization<axis=-1>(x, qb, kb)\nq = Pair(n, s1)\ny = MatMul(q, ow)",
    "weights with one scale a column, activations in floats": "y = MatMul(x, qw)",
    "attention in floats between products": f"x0 = Pair(x, s0)\n{HEADS}\np = MatMul(hq, hk)\nc = Mul(p, eighth)\n"
    f"w = Softmax<axis=-1>(c)\nz = MatMul(w, hv)\n{BEHIND}",
    "attention, its operands and weights rounded": f"x0 = Pair(x, s0)\n{HEADS}\n{OF_HEADS}c = Mul(p, eighth)\n"
    f"w = Softmax<axis=-1>(c)\nu = Pair(w, s4)\nz = MatMul(u, fv)\n{BEHIND}",
    "attention, its scores rounded, too": f"x0 = Pair(x, s0)\n{HEADS}\n{OF_HEADS}e = Pair(p, s5)\n"
    f"c = Mul(e, eighth)\n"
    f"w = Softmax<axis=-1>(c)\nu = Pair(w, s4)\nz = MatMul(u, fv)\n{BEHIND}",
}
COLUMNS = {f"{c}w": (WIDTH, WIDTH) for c in "qkvo"}
CONSTANTS: dict[str, object] = {
    "grow": np.array([1, 1, 2, 2], np.float32),
    "flat": [8, C, 784],
    "image": [8, C, 28, 28],
    "heads": [8, TOKENS, 12, 64],
    "joined": [8, TOKENS, WIDTH],
    "eighth": np.float16(0.125),
}


def write(text: str, path: Path, quantised: int) -> None:
    """``text`` in FP16, with pairs of ``quantised`` numbers; weights have one scale a channel, in FP8 one."""
    lines = []
    for line in text.splitlines():
        name, _, rest = line.strip().partition(" = Pair(")
        operands = rest.rstrip(")")
        lines += (
            [
                f"{name}_q = QuantizeLinear({operands}, zero)",
                f"{name} = DequantizeLinear({name}_q, {operands.split(', ')[1]}, zero)",
            ]
            if rest
            else [line]
        )
    of_images = "Conv" in text
    graph = helper.make_graph(
        list(parser.parse_graph("g () => () {\n" + "\n".join(lines) + "\n}").node),
        "probe",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, [8, C, 28, 28] if of_images else [8, TOKENS, WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, None)],
    )
    used = {name for node in graph.node for name in node.input}
    weights = {name: shape for name, shape in (FILTERS if of_images else COLUMNS).items() if name in used}
    is_int8 = quantised == TensorProto.INT8
    random = np.random.default_rng(0)
    dequantisers = []
    for name, shape in weights.items():
        numbers = random.integers(-100, 100, shape) if is_int8 else random.choice([0.5, 1.0, -1.0], shape)
        graph.initializer.append(helper.make_tensor(f"{name}_q", quantised, shape, numbers.ravel().tolist()))
        axis = 1 if not of_images or name == "t2" else 0
        scale = np.full(shape[axis] if is_int8 else (), 0.01, np.float16)
        graph.initializer.append(numpy_helper.from_array(scale, f"{name}_s"))
        placed = {"axis": axis} if is_int8 else {}
        dequantisers.append(helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_s"], [name], **placed))
    if "zero" in used:
        graph.initializer.append(helper.make_tensor("zero", quantised, [], [0]))
    held = dict(CONSTANTS)
    held |= {f"s{place}": np.float16(0.02 + 0.001 * place) for place in range(10)}
    held |= {} if of_images else {f"{c}b": np.ones(WIDTH, np.float16) for c in "qkv"}
    graph.initializer.extend(numpy_helper.from_array(np.asarray(held[name]), name) for name in sorted(used & set(held)))
    nodes = [*dequantisers, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    for node in graph.node:
        node.name = node.output[0]
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


def theirs(text: str) -> list[str]:
    """A builder's list of layers, a kernel each."""
    found = []
    for line in text.splitlines():
        if line.startswith("I/O Tensors"):
            break
        match = re.match(r"Name: (.*?), LayerType: ([^,]*), (.*)", line)
        if match is None or match.group(2) in SYNCHRONISING:
            continue
        before, _, behind = match.group(3).partition("Outputs: [")
        behind = behind.partition("TacticName")[0]
        read, written = (re.findall(r"Datatype: (\w+)", part) for part in (before, behind))
        kind = "attention" if "_mha_" in match.group(1) else KINDS.get(match.group(2), match.group(2))
        found.append(f"{kind} {'+'.join(_short(name) for name in read[:1])} > {' '.join(map(_short, written))}")
    return found


def ours(path: Path) -> list[str]:
    read = read_model(path)
    shaped = infer_shapes(read, make_bindings({}, None, None, None))
    works = prepare(shaped, precision=resolve("auto", stored_precision(read)), runtime="tensorrt").work
    return [_said(kernel) for work in works for kernel in work.kernels for _ in range(work.count)]


def _said(kernel: Kernel) -> str:
    inputs = getattr(kernel, "inputs", ())
    first: DataType | None = inputs[0].dtype if inputs else getattr(kernel, "dtype", None)
    output = getattr(kernel, "output", None)
    last = output.dtype if output is not None else getattr(kernel, "output_dtype", None) or first
    types = "" if first is None or last is None else f" {_short(first.label)} > {_short(last.label)}"
    return KERNEL_CLASSES[type(kernel)] + types


def _short(name: str) -> str:
    return TYPES.get(name, name.lower())


def _listed(kernels: list[str]) -> str:
    counted = [(what, len(list(group))) for what, group in groupby(kernels)]
    return ", ".join(f"{count} x {what}" if count > 1 else what for what, count in counted)


def rows(site: Path, probes: Mapping[str, str], quantised: int, capabilities: list[str]) -> list[str]:
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "probe.onnx"
        for name, text in probes.items():
            write(text, path, quantised)
            said: dict[str, list[str]] = {}
            for capability in capabilities:
                try:
                    answer = _listed(theirs(built(site, path, [capability])[capability]))
                except RuntimeError:
                    answer = "not built"
                said.setdefault(answer, []).append(capability)
            for answer, having in said.items():
                lines.append(f"| {name} | {', '.join(having)} | {answer} | {_listed(ours(path))} |")
    return lines


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("site", type=Path, metavar="SITE-PACKAGES")
    arguments.add_argument("--capability", action="append", choices=CAPABILITIES, help="all where none is given")
    arguments.add_argument("-o", "--output", type=Path)
    given = arguments.parse_args()
    capabilities = given.capability or list(CAPABILITIES)
    lines = ["| graph | capability | TensorRT | ours |", "|---|---|---|---|"]
    lines += rows(given.site, IMAGES, TensorProto.INT8, capabilities)
    lines += rows(given.site, TEXTS, TensorProto.INT8, capabilities)
    of_fp8 = {f"FP8: {name}": text for name, text in TEXTS.items()}
    lines += rows(given.site, of_fp8, TensorProto.FLOAT8E4M3FN, [each for each in capabilities if float(each) >= 8.9])
    text = "\n".join(lines) + "\n"
    if given.output:
        given.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
