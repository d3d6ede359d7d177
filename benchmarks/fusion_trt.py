"""Our kernels for ``--runtime tensorrt`` beside the layers of the engine that TensorRT for RTX builds, node by node.

    python benchmarks/fusion_trt.py MODELS... --trt SITE-PACKAGES [--capability 8.6] [--dim NAME=SIZE] [-o FILE]

MODELS are ONNX files, or folders whose files are taken. Both sides get the same copy of a file: sizes bound, every
floating-point value in FP16 (``--precision fp32`` leaves them; a file with Q/DQ pairs keeps its INT8), weights that are
not there drawn at random. Engines are built ahead of time for a compute capability, which needs no GPU; such a builder
can't time kernels, so that ours are what they are before the quickest way is chosen for a GPU. The list of layers,
which the builder logs, has the ONNX nodes of each.

Compared are the nodes that compute: a kernel is alike if both sides have one of the same nodes. Operators that only
move, view or convert (:data:`MOVERS`) may go with either neighbour. Kernels of nothing but those are counted.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from fusion_ort import files_of
from neusight_onnx import __version__
from neusight_onnx.errors import NeusightError
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.read import read_model
from neusight_onnx.kernels import KERNEL_CLASSES
from neusight_onnx.lowering.precision import stored_precision
from neusight_onnx.precision import resolve
from neusight_onnx.preparation import infer_shapes, prepare

CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "12.0")
"""Compute capabilities that the builder takes."""

MOVERS = frozenset(
    {"Cast", "Concat", "Constant", "ConstantOfShape", "DepthToSpace", "DequantizeLinear", "Dropout", "Expand"}
    | {"Flatten", "Gather", "Identity", "Pad", "QuantizeLinear", "Reshape", "Shape", "Slice", "SpaceToDepth", "Split"}
    | {"Squeeze", "Tile", "Transpose", "Unsqueeze"}
)
"""Operators that compute nothing: they may be part of the kernel before or behind, or of none."""

SYNCHRONISING = frozenset({"signal", "wait"})
"""Layers that order streams, which are no kernels."""

FLOAT_OPERANDS = {"Resize": (1, 2), "Upsample": (1,)}
"""Operands that the standard has in FP32 whatever the data's type is."""

LARGEST_HALF = float(np.finfo(np.float16).max)


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A kernel of an engine: its kind ("gemm", "kgen" for generated ones ...), and the nodes it does the work of."""

    name: str
    kind: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One model at one compute capability. ``differing``: how often kernels of the same operators differ, theirs and
    ours; ``movements``: kernels that only move, on either side."""

    name: str
    capability: str
    theirs: int
    ours: int
    alike: int
    movements: tuple[int, int]
    attention: tuple[int, int]
    differing: Counter[tuple[tuple[str, ...], tuple[str, ...]]]


def layers_of(text: str) -> list[Layer]:
    """The kernels of a builder's list of layers."""
    found = []
    for line in text.splitlines():
        if line.startswith("I/O Tensors"):
            break
        match = re.match(r"Name: (.*?), LayerType: ([^,]*), ", line)
        if match is None or match.group(2) in SYNCHRONISING:
            continue
        nodes = re.findall(r"\[ONNX Layer: ([^\]]*)\]", line.rpartition("Metadata:")[2])
        found.append(Layer(name=match.group(1), kind=match.group(2), nodes=tuple(dict.fromkeys(nodes))))
    return found


def prepared(path: Path, target: Path, dims: Mapping[str, int], *, half: bool) -> onnx.ModelProto:
    """Writes the copy that both sides get, and returns it: sizes bound, each node with a name of its own, all weights
    inside; ``half``: with FP16 wherever the file has FP32."""
    model = onnx.load(path, load_external_data=False)
    _make_symmetric(model.graph)
    float_names = frozenset(_float_operands(model.graph))
    random = np.random.default_rng(0)
    names: set[str] = set()

    def settle(tensor: TensorProto, name: str) -> None:
        if tensor.data_location == TensorProto.EXTERNAL:
            tensor.CopyFrom(numpy_helper.from_array(_stored(tensor, path.parent, random), tensor.name))
        if half and tensor.data_type == TensorProto.FLOAT and name not in float_names:
            array = np.clip(numpy_helper.to_array(tensor), -LARGEST_HALF, LARGEST_HALF)
            tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float16), tensor.name))

    def convert(nodes: Iterable[onnx.NodeProto]) -> None:
        for place, node in enumerate(nodes):
            if not node.name or node.name in names:
                node.name = f"{node.op_type}_{place}_{len(names)}"
            names.add(node.name)
            result = node.output[0] if node.output else ""
            for attribute in node.attribute:
                settle(attribute.t, result)
                if half and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                    attribute.i = TensorProto.FLOAT16
                if half and node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                    held = attribute.f if attribute.name == "value_float" else list(attribute.floats)
                    value = numpy_helper.from_array(np.array(held, np.float32))
                    settle(value, result)
                    attribute.CopyFrom(onnx.helper.make_attribute("value", value))
                if attribute.HasField("g"):
                    convert_graph(attribute.g)

    def convert_graph(graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            settle(tensor, tensor.name)
        for value in (*graph.input, *graph.output):
            if half and value.type.tensor_type.elem_type == TensorProto.FLOAT:
                value.type.tensor_type.elem_type = TensorProto.FLOAT16
        del graph.value_info[:]
        convert(graph.node)

    convert_graph(model.graph)
    for function in model.functions:
        convert(function.node)
    bound = {item.dim_param for value in model.graph.input for item in value.type.tensor_type.shape.dim}
    for value in model.graph.input:
        for item in value.type.tensor_type.shape.dim:
            if item.dim_param:
                name = item.dim_param
                item.dim_value = dims.get(name, 2 if "batch" in name else 128)
    for value in model.graph.output:
        for item in value.type.tensor_type.shape.dim:
            if item.dim_param in bound:
                item.Clear()
    onnx.save(model, target)
    return model


def _make_symmetric(graph: onnx.GraphProto) -> None:
    """Quantisation as TensorRT's parser asks for it, of a file that ONNX Runtime's quantiser wrote: INT8 about zero,
    and biases that aren't quantised. The graph stays what it is; the numbers no longer mean anything."""
    held = {tensor.name: tensor for tensor in graph.initializer}
    for node in [node for node in graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")]:
        data, scale = held.get(node.input[0]), held.get(node.input[1])
        if data is not None and scale is not None and data.data_type == TensorProto.INT32:
            value = numpy_helper.to_array(data) * numpy_helper.to_array(scale)
            graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), node.output[0]))
            graph.node.remove(node)
            continue
        for tensor in (data if node.op_type == "DequantizeLinear" else None, held.get((*node.input, "", "")[2])):
            if tensor is not None and tensor.data_type in (TensorProto.INT8, TensorProto.UINT8):
                array = numpy_helper.to_array(tensor)
                array = np.zeros_like(array, np.int8) if tensor is not data else array.astype(np.int8)
                tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _float_operands(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield from (node.input[place] for place in FLOAT_OPERANDS.get(node.op_type, ()) if place < len(node.input))
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _float_operands(attribute.g)


def _stored(tensor: TensorProto, folder: Path, random: np.random.Generator) -> np.ndarray:
    """A weight that lies beside the file, or random numbers of its type and shape where that was never written."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    beside, count = folder / entries["location"], prod(tensor.dims)
    if beside.is_file():
        offset = int(entries.get("offset", 0))
        return np.fromfile(beside, kind, count=count, offset=offset).reshape(tuple(tensor.dims))
    if not np.issubdtype(kind, np.floating):
        return np.zeros(tuple(tensor.dims), kind)
    drawn = random.standard_normal(count, dtype=np.float32) * 0.02
    if len(tensor.dims) == 1:
        drawn = np.abs(drawn) + 0.5  # scales and variances, which are positive
    return drawn.astype(kind).reshape(tuple(tensor.dims))


def built(site_packages: Path, model: Path, capabilities: Sequence[str]) -> dict[str, str]:
    """The builder's lists of layers, by capability, and its "version".

    Raises:
        RuntimeError: it took the model not, with its message.
    """
    script = [sys.executable, str(Path(__file__).with_name("trt_engine.py")), str(site_packages), str(model)]
    done = subprocess.run([*script, *capabilities], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["failed without a message"])[0])
    answer: dict[str, str] = json.loads(done.stdout)
    return answer


def compare(name: str, model: onnx.ModelProto, path: Path, capability: str, layers: Sequence[Layer]) -> Compared:
    """One engine beside our kernels, merged as they are for GPUs with fused attention."""
    read = read_model(path)
    shaped = infer_shapes(read, make_bindings({}, None, None, None))
    works = prepare(shaped, precision=resolve("auto", stored_precision(read)), runtime="tensorrt").work
    rows = [(work, kernel) for work in works for kernel in work.kernels for _ in range(work.count)]
    kinds = {node.name: node.op_type for node in model.graph.node}
    theirs = [frozenset(layer.nodes) for layer in layers]
    ours = [frozenset(name for name, _ in work.origins) or frozenset((work.node,)) for work, _ in rows]
    computing = {node for node in kinds if kinds[node] not in MOVERS}
    shared = computing & frozenset().union(*theirs) & frozenset().union(*ours)
    sides = ([nodes & shared for nodes in theirs], [nodes & shared for nodes in ours])
    alike, differing = 0, Counter[tuple[tuple[str, ...], tuple[str, ...]]]()
    for left, right in _together(*sides):
        parts = tuple(tuple(sorted(_said(nodes, kinds) for nodes in side)) for side in (left, right))
        if parts[0] == parts[1]:
            alike += len(left)  # also where of two convolutions the other one takes their sum
        else:
            differing[(parts[0], parts[1])] += 1
    return Compared(
        name=name,
        capability=capability,
        theirs=len(theirs),
        ours=len(ours),
        alike=alike,
        movements=(sum(not nodes for nodes in sides[0]), sum(not nodes for nodes in sides[1])),
        attention=(
            sum("_mha_" in layer.name for layer in layers),
            sum(KERNEL_CLASSES[type(kernel)] == "attention" for _, kernel in rows),
        ),
        differing=differing,
    )


def _together(
    theirs: Sequence[frozenset[str]], ours: Sequence[frozenset[str]]
) -> Iterator[tuple[list[frozenset[str]], list[frozenset[str]]]]:
    """Kernels of both sides that have nodes in common, directly or through others."""
    root: dict[str, str] = {}

    def find(node: str) -> str:
        while root.setdefault(node, node) != node:
            root[node] = root[root[node]]
            node = root[node]
        return node

    for nodes in (*theirs, *ours):
        first, *others = sorted(nodes) or [""]
        for other in others:
            root[find(other)] = find(first)
    groups: defaultdict[str, tuple[list[frozenset[str]], list[frozenset[str]]]] = defaultdict(lambda: ([], []))
    for place, side in enumerate((theirs, ours)):
        for nodes in side:
            if nodes:
                groups[find(min(nodes))][place].append(nodes)
    yield from groups.values()


def _said(nodes: Iterable[str], kinds: Mapping[str, str]) -> str:
    counted = Counter(kinds[node] for node in nodes)
    return " ".join(f"{count} {kind}" if count > 1 else kind for kind, count in sorted(counted.items()))


def table(compared: Sequence[Compared], failed: Mapping[str, str], version: str, precision: str) -> str:
    lines = [
        "# Our kernels beside TensorRT's layers",
        "",
        f"neusight-onnx {__version__}, TensorRT for RTX {version} (engines built ahead of time, without a GPU), "
        f"{precision}, Python {platform.python_version()}.",
        "Kernels of the same computing nodes count as alike; *moves*: kernels of none; *attention*: fused.",
        "",
        "| model | capability | TensorRT | ours | alike | moves: TensorRT / ours | attention: TensorRT / ours |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {item.name} | {item.capability} | {item.theirs} | {item.ours} | {item.alike} | "
        f"{item.movements[0]} / {item.movements[1]} | {item.attention[0]} / {item.attention[1]} |"
        for item in compared
    ]
    lines += ["", "## Kernels that differ", "", "| model | times | TensorRT | ours |", "|---|---:|---|---|"]
    for item in compared:
        for (theirs, ours), count in item.differing.most_common(8):
            cells = " | ".join(_shortened(side) for side in (theirs, ours))
            lines.append(f"| {item.name}, {item.capability} | {count} | {cells} |")
    lines += [f"\n{name}: {reason}" for name, reason in failed.items()]
    return "\n".join(lines) + "\n"


def _shortened(side: Sequence[str]) -> str:
    counted = Counter(side)
    parts = [f"{count} x ({what})" if count > 1 else f"({what})" for what, count in counted.items()]
    text = ", ".join(parts) or "in no kernel"
    return text if len(text) <= 200 else f"{text[:200]} ... ({len(side)} kernels)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--trt", type=Path, required=True, metavar="SITE-PACKAGES", help="where TensorRT for RTX lies")
    parser.add_argument("--capability", action="append", choices=CAPABILITIES, help="8.6 where none is given")
    parser.add_argument("--precision", choices=("fp16", "fp32"), default="fp16")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE", help="else 2 for a batch, 128")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    capabilities = arguments.capability or ["8.6"]
    dims = {name: int(size) for name, _, size in (item.partition("=") for item in arguments.dim)}
    compared: list[Compared] = []
    failed: dict[str, str] = {}
    version = "(unknown)"
    for path in files_of(arguments.models):
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / path.name
            try:
                model = prepared(path, copy, dims, half=arguments.precision == "fp16")
                answer = built(arguments.trt, copy, capabilities)
                version = answer["version"]
                for capability in capabilities:
                    layers = layers_of(answer[capability])
                    compared.append(compare(path.stem, model, copy, capability, layers))
            except (NeusightError, RuntimeError) as error:
                failed[path.stem] = str(error).splitlines()[0][:200]
    if not compared:
        sys.exit(f"error: nothing to compare: {failed}")
    text = table(compared, failed, version, arguments.precision)
    if arguments.output:
        arguments.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
