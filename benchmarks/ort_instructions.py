"""Counts the instructions of ONNX Runtime's CUDA kernels, and puts the law's beside them. No GPU is needed.

    python benchmarks/ort_instructions.py SITE-PACKAGES [--capability 8.0,9.0] [--only TEXT] [--format text|json]

SITE-PACKAGES is where ``onnxruntime-gpu``, ``nvidia-cuda-runtime``, ``nvidia-cuda-crt`` (headers),
``nvidia-cuda-cuobjdump`` and ``nvidia-cuda-nvdisasm`` are installed (``make bench-instructions`` does it). Each
operator of ``CASES`` is a model that a session runs on stand-ins of CUDA's libraries (``cuda_standin.py``), which log
what it launches with which arguments; the machine code of those kernels, taken out of the provider's library, is then
interpreted as that launch would execute it (``sass.py``): a thread of several warps of a block in the middle of the
grid, for all. Beside it stands what ``neusight_onnx.laws.issue`` says of the kernels that we lower the same model to,
and the share of its time that the busiest pipe needs against the issue slots (below 1: the slots bind).

Kernels of cuDNN and cuBLAS show as no launch.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import cuda_standin
import sass
from neusight_onnx import load_gpu
from neusight_onnx.fusion.runtimes import fused_graph
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.read import read_model
from neusight_onnx.laws.issue import instructions_of
from neusight_onnx.preparation import infer_shapes, works_of
from neusight_onnx.runtime import RUNTIMES

TYPES = {
    "half": TensorProto.FLOAT16,
    "float": TensorProto.FLOAT,
    "int64": TensorProto.INT64,
    "int32": TensorProto.INT32,
    "bool": TensorProto.BOOL,
}
WORDS = {"half": 0x38003800, "float": 0x3F000000}
"""What memory reads as: .5, twice in 16 bits."""

LANES: Mapping[str, float] = {"fp32": 64, "imad": 64, "alu": 64, "half": 64, "xu": 16, "memory": 32}
"""Results a clock and SM of the pipes, at least, for compute capability 7.5 to 9.0 (NVIDIA's CUDA programming guide,
"Throughput of Native Arithmetic Instructions"; loads and stores: the white papers' LD/ST units, 16 on Turing)."""
SLOTS = 128

RUN = """
import sys
import numpy as np
import onnxruntime
types = {"tensor(float16)": "float16", "tensor(float)": "float32", "tensor(bool)": "bool"}
types.update({"tensor(int64)": "int64", "tensor(int32)": "int32"})  # Python 3.8's, which early releases need
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
options.log_severity_level = 3
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CUDAExecutionProvider"])
session.run(None, {i.name: np.ones(i.shape, types[i.type]) for i in session.get_inputs()})
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An operator on operands of given shapes; ``counted`` elements, those of the first result unless given.

    ``inputs``: shapes, each with its type where it isn't the case's; ``constants`` by their place among the inputs (an
    empty one is left out).
    ``only``: the class of kernels to count, where the operator launches others as well; their names hold it.
    ``is_zero``: memory reads as zeros, where a kernel takes its path from it.
    """

    label: str
    op_type: str
    inputs: Sequence[tuple[int, ...] | tuple[str, tuple[int, ...]]]
    outputs: Sequence[tuple[int, ...]]
    attributes: Mapping[str, object] = field(default_factory=dict)
    constants: Mapping[int, Sequence[int]] = field(default_factory=dict)
    domain: str = ""
    opset: int = 17
    counted: int | None = None
    only: str = ""
    is_zero: bool = False


X, SCORES = (16, 384, 1024), (16, 16, 384, 384)
HEADS = (16, 384, 16, 64)
IMAGES = (8, 64, 56, 56)
IMAGE = (1, 64, 56, 56)
MICROSOFT = "com.microsoft"


def _turned(shape: tuple[int, ...], permutation: tuple[int, ...]) -> Case:
    return Case(
        label=f"Transpose {permutation} of {shape}",
        op_type="Transpose",
        inputs=[shape],
        outputs=[tuple(shape[axis] for axis in permutation)],
        attributes={"perm": permutation},
    )


def _split(shape: tuple[int, ...], axis: int, parts: tuple[int, ...]) -> Case:
    return Case(
        label=f"Split of {shape} into {parts}",
        op_type="Split",
        inputs=[shape],
        outputs=[(*shape[:axis], part, *shape[axis + 1 :]) for part in parts],
        attributes={"axis": axis},
        constants={1: parts},
        counted=prod(shape),
    )


def _attention(keys: int, *mask: tuple[str, tuple[int, ...]]) -> Case:
    """Few keys, so that in FP32, too, no fused kernel takes it; a mask of places keeps fused kernels out in FP16."""
    batch, heads, width = 4, 4, 256
    return Case(
        label=f"softmax of Attention, {keys} keys, {('no', 'lengths', 'a')[len(mask[0][1]) if mask else 0]} mask",
        op_type="Attention",
        inputs=[(batch, keys, width), (width, 3 * width), (3 * width,), *mask],
        outputs=[(batch, keys, width)],
        attributes={"num_heads": heads},
        domain=MICROSOFT,
        counted=batch * heads * keys * keys,
        only="Softmax",
    )


def _linear_attention(rule: str, tokens: int, heads: int = 16, d: int = 128) -> Case:
    """A decay and a rate for each head where the rule has them; what goes out is counted."""
    state, packed, each = (1, heads, d, d), (1, tokens, heads * d), (1, tokens, heads)
    decay = [each] if "gated" in rule else []
    rate = [each] if "delta" in rule else []
    return Case(
        label=f"LinearAttention, {rule}, {tokens} tokens of {heads} heads of {d}",
        op_type="LinearAttention",
        inputs=[packed, packed, packed, state, *decay, *rate],
        outputs=[packed, state],
        attributes={"q_num_heads": heads, "kv_num_heads": heads, "update_rule": rule},
        constants={} if decay or not rate else {4: []},
        domain=MICROSOFT,
    )


def _gated_delta_net(tokens: int, heads: int = 32, d: int = 128) -> Case:
    packed, each, state = (tokens, heads, d), ("float", (tokens, heads)), ("float", (1, heads, d, d))
    return Case(
        label=f"GatedDeltaNet, {tokens} tokens of {heads} heads of {d}",
        op_type="GatedDeltaNet",
        inputs=[packed, packed, packed, each, each, state],
        outputs=[packed, state],
        constants={3: []},
        domain=MICROSOFT,
    )


CASES: tuple[Case, ...] = (
    Case(label="Add of one shape", op_type="Add", inputs=[X, X], outputs=[X]),
    Case(label="Add, vector on the right", op_type="Add", inputs=[X, (1024,)], outputs=[X]),
    Case(label="Add, vector on the left", op_type="Add", inputs=[(1024,), X], outputs=[X]),
    Case(label="Add, vector on the right, one image", op_type="Add", inputs=[IMAGE, (64, 1, 1)], outputs=[IMAGE]),
    Case(label="Add of a mask", op_type="Add", inputs=[SCORES, (16, 1, 1, 384)], outputs=[SCORES]),
    Case(label="Mul, both broadcast", op_type="Mul", inputs=[(16, 384, 1), (16, 1, 1024)], outputs=[X]),
    Case(label="Mul by a number", op_type="Mul", inputs=[X, ()], outputs=[X]),
    Case(label="Div by a number", op_type="Div", inputs=[X, ()], outputs=[X]),
    Case(label="Pow", op_type="Pow", inputs=[X, ()], outputs=[X]),
    *(
        Case(label=name, op_type=name, inputs=[X], outputs=[X], opset=20)
        for name in ("Relu", "Sigmoid", "Tanh", "Erf", "Sqrt", "Exp", "Log", "Gelu", "Clip", "Softplus", "HardSwish")
    ),
    Case(label="Where of one shape", op_type="Where", inputs=[("bool", X), X, X], outputs=[X]),
    Case(label="Where, mask", op_type="Where", inputs=[("bool", (16, 1, 1, 384)), SCORES, ()], outputs=[SCORES]),
    _turned(HEADS, (0, 2, 1, 3)),
    _turned(HEADS, (0, 2, 3, 1)),
    _turned(IMAGES, (0, 2, 3, 1)),
    _turned((8, 20, 50, 50), (0, 2, 3, 1)),
    _turned((8, 3, 224, 224), (0, 2, 3, 1)),
    _turned((1, 3, 224, 224), (0, 2, 3, 1)),
    _turned((1024, 1024), (1, 0)),
    _turned((16, 384, 16, 16, 4), (0, 2, 1, 3, 4)),
    _turned((8, 196, 3, 16, 64), (2, 0, 3, 1, 4)),
    _turned(HEADS, (3, 2, 1, 0)),
    Case(label="Slice", op_type="Slice", inputs=[X], outputs=[(16, 384, 512)], constants={1: [0], 2: [512], 3: [2]}),
    Case(label="Concat", op_type="Concat", inputs=[HEADS, HEADS], outputs=[(16, 768, 16, 64)], attributes={"axis": 1}),
    _split((16, 384, 3072), 2, (1024, 1024, 1024)),
    _split((16, 384, 3072), 2, (1024, 1536, 512)),
    _split((16, 384, 3072), 2, (1536, 1536)),
    _split((16, 384, 56), 2, (28, 28)),
    _split((16, 384, 2049), 2, (683, 683, 683)),
    _split((16, 384, 3840), 2, (768,) * 5),
    _split((16, 3, 384, 64), 1, (1, 1, 1)),
    _split((8, 64, 56, 56), 1, (16, 48)),
    Case(label="Gather", op_type="Gather", inputs=[(30522, 1024), ("int64", (16, 384))], outputs=[X]),
    Case(
        label="Expand",
        op_type="Expand",
        inputs=[(16, 8, 1, 384, 64)],
        outputs=[(16, 8, 4, 384, 64)],
        constants={1: [16, 8, 4, 384, 64]},
    ),
    Case(
        label="Pad",
        op_type="Pad",
        inputs=[IMAGES],
        outputs=[(8, 64, 58, 58)],
        constants={1: [0, 0, 1, 1, 0, 0, 1, 1]},
    ),
    *(
        Case(
            label=f"Resize, {mode}",
            op_type="Resize",
            inputs=[IMAGES],
            outputs=[(8, 64, 112, 112)],
            attributes={"mode": mode},
            constants={1: [], 2: [], 3: [8, 64, 112, 112]},
            is_zero=True,  # the table of places says of none that it is outside
        )
        for mode in ("nearest", "linear", "cubic")
    ),
    *(
        Case(label=f"Softmax of {n}", op_type="Softmax", inputs=[(16, 384, n)], outputs=[(16, 384, n)])
        for n in (32, 128, 197, 384, 1024, 1500, 2000, 2048, 2049, 4096, 8192)
    ),
    *(
        Case(
            label=f"LayerNormalization of {n}",
            op_type="LayerNormalization",
            inputs=[(16, 384, n), (n,), (n,)],
            outputs=[(16, 384, n)],
            opset=16,  # ONNX Runtime's own before ONNX's
        )
        for n in (384, 1024, 4096)
    ),
    *(
        Case(
            label=f"SkipLayerNormalization of {n}",
            op_type="SkipLayerNormalization",
            inputs=[(16, 384, n), (16, 384, n), (n,), (n,)],
            outputs=[(16, 384, n)],
            domain=MICROSOFT,
        )
        for n in (384, 768, 1024)
    ),
    *(
        Case(label=name, op_type=name, inputs=[X, (1024,)], outputs=[X], domain=MICROSOFT)
        for name in ("BiasGelu", "FastGelu")
    ),
    Case(
        label="ReduceMean of rows",
        op_type="ReduceMean",
        inputs=[X],
        outputs=[(16, 384, 1)],
        attributes={"axes": [-1]},
        counted=prod(X),
    ),
    *(  # of 600 the block that is counted sums as many as the average
        Case(label=f"CumSum of {n}", op_type="CumSum", inputs=[(64, n)], outputs=[(64, n)], constants={1: [1]})
        for n in (20, 600)
    ),
    *(_attention(keys, ("int32", (4, keys))) for keys in (16, 48, 128, 200, 384, 512, 1024, 2048)),
    *(_attention(keys, ("int32", (4,))) for keys in (16, 48, 128, 200, 255)),
    *(_attention(keys) for keys in (16, 48, 128, 200, 255)),
    Case(label="Gemm's bias", op_type="Gemm", inputs=[(6144, 1024), (1024, 1024), (1024,)], outputs=[(6144, 1024)]),
)

TOKENS: tuple[Case, ...] = (
    *(_linear_attention(rule, tokens) for rule in ("linear", "gated", "delta", "gated_delta") for tokens in (1, 9, 17)),
    *(_linear_attention("gated_delta", tokens, d=d) for d in (64, 96) for tokens in (1, 9)),
    *(_gated_delta_net(tokens) for tokens in (1, 9, 17)),
)
"""Tokens that update a state one after the other: what each further one takes is ``block_wait.py``'s to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: bytes


def model_of(case: Case, dtype: str) -> onnx.ModelProto:
    typed = [(dtype, item) if not item or isinstance(item[0], int) else item for item in case.inputs]
    inputs = [helper.make_tensor_value_info(f"x{i}", TYPES[name], shape) for i, (name, shape) in enumerate(typed)]
    names = [value.name for value in inputs]
    initializers = []
    for place, values in sorted(case.constants.items()):
        if not values:
            names.insert(place, "")
            continue
        initializers.append(numpy_helper.from_array(np.asarray(values, dtype=np.int64), f"c{place}"))
        names.insert(place, f"c{place}")
    given = [(dtype, item) if not item or isinstance(item[0], int) else item for item in case.outputs]
    outputs = [helper.make_tensor_value_info(f"y{i}", TYPES[name], shape) for i, (name, shape) in enumerate(given)]
    node = helper.make_node(
        case.op_type, names, [value.name for value in outputs], domain=case.domain, **case.attributes
    )
    graph = helper.make_graph([node], "graph", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", case.opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def launches_of(model: Path, site: Path, stand_ins: Path, layouts: Path, python: str = sys.executable) -> list[Launch]:
    """What ONNX Runtime launches for a model, in order; ``python`` is one that its release supports.

    Raises subprocess.CalledProcessError where it doesn't run it.
    """
    log = model.with_suffix(".log")
    log.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(site),
        "LD_LIBRARY_PATH": str(stand_ins),
        "STANDIN_LOG": str(log),
        "STANDIN_ARGUMENTS": str(layouts),
        "ALLOW_RELEASED_ONNX_OPSET_ONLY": "0",  # early releases refuse later opsets whatever the operators
    }
    subprocess.run([python, "-c", RUN, str(model)], env=environment, check=True, capture_output=True)
    return logged(log)


def logged(log: Path) -> list[Launch]:
    """The launches in a log of the stand-ins whose arguments are known."""
    found = []
    for line in log.read_text().splitlines():
        kind, *rest = line.split("\t")
        if kind == "kernel" and len(rest) == 5:
            grid, block = (tuple(map(int, sizes.split(","))) for sizes in rest[1:3])
            found.append(Launch(name=rest[0], grid=grid, block=block, arguments=bytes.fromhex(rest[4])))
    return found


def cubins_of(provider: Path, cuobjdump: Path, architecture: str, folder: Path) -> dict[str, sass.Function]:
    """The provider's kernels for an architecture, by their mangled names."""
    folder.mkdir()
    command = [str(cuobjdump), "-xelf", f".{architecture}", str(provider)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    found: dict[str, sass.Function] = {}
    for cubin in sorted(folder.glob("*.cubin")):
        for name, function in sass.functions_of(cubin).items():
            found.setdefault(name, function)
    return found


def layouts_of(functions: Mapping[str, sass.Function]) -> bytes:
    """Where the arguments of kernels lie, as the stand-ins read it."""
    lines = sorted(
        name.encode() + b"".join(b" %d:%d" % place for place in function.arguments)
        for name, function in functions.items()
    )
    return b"\n".join(lines) + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Instructions of all lanes of a launch: issued, and by pipe."""

    issued: float
    pipes: Mapping[str, float]

    @property
    def busiest(self) -> tuple[str, float]:
        """The pipe that needs the most time, and that over the issue slots'."""
        shares = {pipe: self.pipes.get(pipe, 0.0) / lanes for pipe, lanes in LANES.items()}
        pipe = max(shares, key=shares.__getitem__)
        return pipe, shares[pipe] * SLOTS / self.issued


def count(launch: Launch, function: sass.Function, code: sass.Code, word: int) -> Count:
    """Interprets the first lane of each warp of a block in the middle, of several where there are many alike."""
    bank = sass.constant_bank(function, launch.grid, launch.block, launch.arguments)
    threads, blocks = prod(launch.block), prod(launch.grid)
    warps = -(-threads // 32)
    sampled = range(warps) if warps <= 8 or "Softmax" in launch.name else (0, 1, warps // 2, warps - 1)
    place, (x, y, _) = blocks // 3, launch.grid
    issued, pipes = 0, Counter[str]()
    for warp in sampled:
        thread = warp * 32
        special = {
            "SR_TID.X": thread % launch.block[0],
            "SR_TID.Y": thread // launch.block[0] % launch.block[1],
            "SR_TID.Z": thread // launch.block[0] // launch.block[1],
            "SR_CTAID.X": place % x,
            "SR_CTAID.Y": place // x % y,
            "SR_CTAID.Z": place // x // y,
        }
        trace = sass.Thread(code, bank, special, word).run()
        issued += trace.issued
        pipes.update(trace.pipes)
    lanes = 32.0 * blocks * warps / len(sampled)
    return Count(issued=issued * lanes, pipes={pipe: lanes * number for pipe, number in pipes.items()})


def ours(model: Path, capability: str, only: str) -> float:
    """Instructions that the law gives the kernels that we lower a model to, of class ``only`` if that is given."""
    runtime = RUNTIMES["onnxruntime"]
    shaped = infer_shapes(read_model(model), make_bindings({}, None, None, None))
    works = works_of(fused_graph(shaped.expected, runtime), runtime)
    hopper = float(capability) >= 9.0
    return sum(
        instructions_of(kernel, hopper=hopper) * work.count
        for work in works
        for kernel in work.kernels
        if only in ("", type(kernel).__name__)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site_packages", type=Path)
    parser.add_argument("--capability", default="8.0,9.0", help="of the machine code (default: 8.0,9.0)")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose label contains it")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    site: Path = options.site_packages.resolve()
    provider = site / "onnxruntime/capi/libonnxruntime_providers_cuda.so"
    tools = {name: next(iter(site.glob(f"nvidia/*/bin/{name}")), None) for name in ("cuobjdump", "nvdisasm")}
    cuobjdump, nvdisasm = tools["cuobjdump"], tools["nvdisasm"]
    if not provider.is_file() or cuobjdump is None or nvdisasm is None:
        sys.exit(f"error: {site} lacks onnxruntime-gpu, nvidia-cuda-cuobjdump or nvidia-cuda-nvdisasm")
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        cuda_standin.build(site, folder / "stand-ins", load_gpu("a100"))
        functions = {
            capability: cubins_of(provider, cuobjdump, f"sm_{capability.replace('.', '')}", folder / capability)
            for capability in options.capability.split(",")
        }
        known = next(iter(functions.values()))
        layouts = folder / "layouts"
        layouts.write_bytes(layouts_of(known))
        codes: dict[tuple[str, str], sass.Code] = {}
        for case in CASES:
            if options.only not in case.label:
                continue
            for dtype in ("half", "float"):
                path = folder / "model.onnx"
                onnx.save(model_of(case, dtype), path)
                launched = launches_of(path, site, folder / "stand-ins", layouts)
                elements = case.counted or prod(case.outputs[0])
                for capability, table in functions.items():
                    counts = []
                    for launch in launched:
                        if launch.name not in table or case.only not in launch.name:
                            continue
                        key = capability, launch.name
                        if key not in codes:
                            codes[key] = sass.parse(sass.disassembled(nvdisasm, table[launch.name]), launch.name)
                        word = 0 if case.is_zero else WORDS[dtype]
                        counts.append(count(launch, table[launch.name], codes[key], word))
                    if not counts:
                        continue
                    largest = max(counts, key=lambda item: item.issued)
                    rows.append(
                        {
                            "case": case.label,
                            "dtype": dtype,
                            "capability": capability,
                            "counted": sum(item.issued for item in counts) / elements,
                            "law": ours(path, capability, case.only) / elements,
                            "pipe": largest.busiest[0],
                            "pipe_share": largest.busiest[1],
                            "kernels": [launch.name for launch in launched],
                        }
                    )
                    if options.format == "text":
                        row = rows[-1]
                        print(
                            f"{row['case']:50} {dtype:6}{capability:>5}{row['counted']:8.2f}{row['law']:8.2f}"
                            f"  {row['pipe']} {row['pipe_share']:.2f}",
                            flush=True,
                        )
    if options.format == "json":
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
