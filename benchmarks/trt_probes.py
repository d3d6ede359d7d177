"""What TensorRT for RTX merges of small graphs: attention by head, size and mask, operators behind products.

    python benchmarks/trt_probes.py SITE-PACKAGES [--capability 7.5 --capability 8.6] [-o FILE]

Each graph isolates one question; engines are built ahead of time without a GPU (``trt_engine.py``). The rules of
``fusion/engine_attention.py`` and ``fusion/epilogues.py`` follow what it prints.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, parser

from fusion_trt import CAPABILITIES, built, layers_of

OPSET = 23
HALF = TensorProto.FLOAT16


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A graph: its nodes in onnx's text form, shapes of its inputs and weights, values of its constants."""

    nodes: str
    inputs: Mapping[str, tuple[int, ...]]
    weights: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    constants: Mapping[str, object] = field(default_factory=dict)
    conditions: frozenset[str] = frozenset()
    dtype: int = HALF
    outputs: tuple[str, ...] = ("y",)

    def write(self, path: Path) -> None:
        graph = helper.make_graph(
            list(parser.parse_graph(f"g () => () {{\n{self.nodes}\n}}").node),
            "probe",
            [
                helper.make_tensor_value_info(
                    name, TensorProto.BOOL if name in self.conditions else self.dtype, list(shape)
                )
                for name, shape in self.inputs.items()
            ],
            [helper.make_tensor_value_info(name, self.dtype, None) for name in self.outputs],
        )
        random = np.random.default_rng(0)
        for name, shape in self.weights.items():
            values = random.standard_normal(shape) * 0.05
            graph.initializer.append(helper.make_tensor(name, self.dtype, shape, values.ravel()))
        for name, value in self.constants.items():
            array = np.asarray(value)
            kind = TensorProto.INT64 if array.dtype.kind == "i" else self.dtype
            graph.initializer.append(helper.make_tensor(name, kind, array.shape, array.ravel()))
        for node in graph.node:
            node.name = node.output[0]
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
        onnx.save(model, path)


def attention(
    *,
    b: int = 2,
    h: int = 12,
    s: int = 128,
    t: int = 128,
    d: int = 64,
    v: int | None = None,
    windows: tuple[int, ...] = (),
    between: str = "m = Identity(c)",
    behind: str = "z = Identity(w)",
    dtype: int = HALF,
    outputs: tuple[str, ...] = ("y",),
    **others: tuple[int, ...],
) -> Probe:
    """(b, *windows, h, s, d) x (b, *windows, h, t, d) -> (b, *windows, h, s, v); ``others``: inputs beside."""
    lead = (b, *windows, h)
    axes = [*range(len(lead)), len(lead) + 1, len(lead)]
    nodes = f"u = Transpose<perm={axes}>(k)\np = MatMul(q, u)\nc = Mul(p, scale)\n{between}\n"
    constants: dict[str, object] = {"scale": 0.125, "low": -60000.0, "high": 50.0, "zero": 0.0}
    constants |= {"apart": [b // 2, 2, h, s, t], "whole": [b, h, s, t]}
    return Probe(
        nodes=f"{nodes}w = Softmax<axis=-1>(m)\n{behind}\ny = MatMul(z, v)",
        inputs={"q": (*lead, s, d), "k": (*lead, t, d), "v": (*lead, t, v or d), **others},
        constants={name: value for name, value in constants.items() if name in (nodes + behind)},
        conditions=frozenset(name for name in others if name.startswith("if_")),
        dtype=dtype,
        outputs=outputs,
    )


ATTENTION = {
    **{f"heads of {d}": attention(d=d) for d in (8, 9, 12, 16, 26, 36, 64, 80, 128, 160, 256, 264, 512)},
    **{f"{s} queries, {t} keys": attention(s=s, t=t) for s, t in ((1, 128), (7, 7), (384, 384), (1500, 1500))},
    "BERT's 16 x 384": attention(b=16, s=384, t=384, mask=(16, 1, 1, 384), between="m = Add(c, mask)"),
    "BF16": attention(dtype=TensorProto.BFLOAT16),
    "FP32": attention(dtype=TensorProto.FLOAT),
    "values of another width": attention(v=128),
    "one head of one sample": attention(b=1, h=1),
    "five dimensions": attention(windows=(4,)),
    "six dimensions": attention(windows=(4, 2)),
    "a mask of each sample": attention(mask=(2, 1, 1, 128), between="m = Add(c, mask)"),
    "a bias of each head": attention(mask=(1, 12, 128, 128), between="m = Add(c, mask)"),
    "a mask that selects": attention(if_seen=(2, 1, 128, 128), between="m = Where(if_seen, c, low)"),
    "windows of Swin": attention(
        mask=(1, 2, 1, 128, 128), between="r = Reshape(c, apart)\na = Add(r, mask)\nm = Reshape(a, whole)"
    ),
    "Max of the scores": attention(between="m = Max(c, low)"),
    "Clip of the scores": attention(between="m = Clip(c, low, high)"),
    "Tanh of the scores": attention(between="m = Tanh(c)"),
    "a selection of weights": attention(if_kept=(2, 1, 128, 128), behind="z = Where(if_kept, w, zero)"),
    "weights that are a result": attention(outputs=("y", "z")),
}


def called(
    attributes: str = "",
    *,
    q: tuple[int, ...] = (2, 8, 128, 64),
    kv: tuple[int, ...] | None = None,
    more: str = "",
    dtype: int = HALF,
    **others: tuple[int, ...],
) -> Probe:
    """One Attention node; ``more``: its operands behind q, k and v, whose shapes are ``others``."""
    return Probe(
        nodes=f"y = Attention{attributes}(q, k, v{more})",
        inputs={"q": q, "k": kv or q, "v": kv or q, **others},
        conditions=frozenset(name for name in others if name.startswith("if_")),
        dtype=dtype,
    )


FEW_HEADS, ONE, PAST = (2, 2, 128, 64), (2, 8, 1, 64), (2, 8, 127, 64)
CACHED = """
    t = Concat<axis=2>(past_k, k)
    u = Transpose<perm=[0, 1, 3, 2]>(t)
    p = MatMul(q, u)
    w = Softmax<axis=-1>(p)
    z = Concat<axis=2>(past_v, v)
    y = MatMul(w, z)
"""
RELATIVE = """
    u = Transpose<perm=[0, 2, 1]>(k)
    p = MatMul(q, u)
    r = Reshape(p, places)
    a = Add(r, rows)
    b = Add(a, columns)
    m = Reshape(b, flat)
    w = Softmax<axis=-1>(m)
    y = MatMul(w, v)
"""
CALLED = {
    "Attention": called(),
    "Attention, causal": called("<is_causal=1>"),
    "Attention, four query heads a key head": called(kv=FEW_HEADS),
    "Attention, the same, causal": called("<is_causal=1>", kv=FEW_HEADS),
    "Attention, a mask that selects": called(more=", if_seen", if_seen=(128, 128)),
    "Attention, a bias of each head": called(more=", bias", bias=(1, 8, 128, 128)),
    "Attention, three dimensions": called("<q_num_heads=8, kv_num_heads=8>", q=(2, 128, 512)),
    **{f"Attention, heads of {d}": called(q=(2, 8, 128, d)) for d in (8, 12, 36, 256, 264)},
    "Attention, one query": called(q=ONE, kv=(2, 8, 128, 64)),
    "Attention, one query, FP32": called(q=ONE, kv=(2, 8, 128, 64), dtype=TensorProto.FLOAT),
    "Attention, FP32": called(dtype=TensorProto.FLOAT),
    "Attention, past keys": called(q=ONE, more=", , past_k, past_v", past_k=PAST, past_v=PAST),
    "one query, a cache concatenated": Probe(
        nodes=CACHED, inputs={"q": ONE, "k": ONE, "v": ONE, "past_k": PAST, "past_v": PAST}
    ),
    "relative positions of SAM": Probe(
        nodes=RELATIVE,
        inputs={**dict.fromkeys("qkv", (12, 196, 64)), "rows": (12, 14, 14, 14, 1), "columns": (12, 14, 14, 1, 14)},
        constants={"places": [12, 14, 14, 14, 14], "flat": [12, 196, 196]},
    ),
}

ACTIVATIONS = {
    name: f"a = {name}(x1)"
    for name in ("Relu", "Sigmoid", "Tanh", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Softplus", "Mish")
}
BEHIND = {
    **ACTIVATIONS,
    "SiLU": "g = Sigmoid(x1)\na = Mul(x1, g)",
    "sum": "a = Add(x1, x0)",
    "sum, then Relu": "g = Add(x1, x0)\na = Relu(g)",
    "Relu, then sum": "g = Relu(x1)\na = Add(g, x0)",
    "SiLU, then sum": "g = Sigmoid(x1)\ne = Mul(x1, g)\na = Add(e, x0)",
    "product with another": "a = Mul(x1, x0)",
}


def behind_convolution(nodes: str, *, group: int = 1, size: int = 3) -> Probe:
    """A convolution between others, so that its operands lie as the engine likes."""
    pad, c = size // 2, 64
    return Probe(
        nodes=f"f = Conv(x, w0)\nx0 = Relu(f)\nx1 = Conv<group={group}, pads={[pad] * 4}>(x0, w1, b1)\n{nodes}\n"
        "y = Conv(a, w2)",
        inputs={"x": (8, c, 28, 28)},
        weights={"w0": (c, c, 1, 1), "w1": (c, c // group, size, size), "b1": (c,), "w2": (c, c, 1, 1)},
    )


def behind_product(nodes: str) -> Probe:
    return Probe(
        nodes=f"f = MatMul(x, w0)\nx0 = Relu(f)\nm = MatMul(x0, w1)\nx1 = Add(m, b1)\n{nodes}\ny = MatMul(a, w2)",
        inputs={"x": (8, 128, 768)},
        weights={"w0": (768, 768), "w1": (768, 768), "b1": (768,), "w2": (768, 256)},
    )


EPILOGUES = {
    **{f"convolution, {name}": behind_convolution(nodes) for name, nodes in BEHIND.items()},
    **{f"depthwise, {name}": behind_convolution(BEHIND[name], group=64) for name in ("Relu", "SiLU", "sum")},
    **{f"product, {name}": behind_product(nodes) for name, nodes in BEHIND.items()},
}


def answers(site: Path, probe: Probe, capabilities: Sequence[str], epilogue: bool) -> list[str]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "probe.onnx"
        probe.write(path)
        for capability in capabilities:
            try:
                layers = layers_of(built(site, path, [capability])[capability])
            except RuntimeError:
                found.append("not built")
                continue
            if epilogue:
                multiplied = "m" if "m = MatMul" in probe.nodes else "x1"
                having = [layer.nodes for layer in layers if "a" in layer.nodes]
                merged = any(multiplied in nodes for nodes in having)
                found.append("one kernel" if merged else "apart" if having else "not named")
            else:
                found.append("one kernel" if any("_mha_" in layer.name for layer in layers) else "by parts")
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("site", type=Path, metavar="SITE-PACKAGES")
    arguments.add_argument("--capability", action="append", choices=CAPABILITIES, help="all where none is given")
    arguments.add_argument("-o", "--output", type=Path)
    given = arguments.parse_args()
    capabilities = given.capability or list(CAPABILITIES)
    lines = [f"| graph | {' | '.join(capabilities)} |", f"|---|{'---|' * len(capabilities)}"]
    for probes, epilogue in ((ATTENTION, False), (CALLED, False), (EPILOGUES, True)):
        for name, probe in probes.items():
            said = answers(given.site, probe, capabilities, epilogue)
            lines.append(f"| {name} | {' | '.join(said)} |")
    text = "\n".join(lines) + "\n"
    if given.output:
        given.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
