"""Our graph for ``--runtime onnxruntime`` beside the file that ONNX Runtime's own optimiser writes, by operator.

    python benchmarks/fusion_ort.py MODELS... [-o FILE]

MODELS are ONNX files, or folders whose files are taken. Weights that are not there are zeros (a sparse file stands for
them): the optimiser decides by structure, not by values. It runs at level "all" on the CPU provider without a GPU; the
passes that its CUDA provider doesn't have are switched off (:data:`CPU_PASSES`), and what only the CUDA provider would
merge is read from our graph as what it is made of (:data:`APART`).

Operators that shapes are computed with count on neither side: we know such values before the run.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnxruntime

from neusight_onnx import __version__
from neusight_onnx.errors import NeusightError
from neusight_onnx.fusion.runtimes import fused_graph
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.model import InferredGraph, Node
from neusight_onnx.graph.read import read_model
from neusight_onnx.preparation import infer_shapes
from neusight_onnx.runtime import RUNTIMES

CPU_PASSES = ["NchwcTransformer", "ConvActivationFusion", "ConvAddActivationFusion", "GemmActivationFusion"]
"""Passes of which ONNX Runtime 1.31's CUDA provider has none, or no kernels for: blocked layouts, activations in
convolutions and in Gemm."""

APART = {"BiasSoftmax": ("Add", "Softmax"), "HardSwish": ("HardSigmoid", "Mul")}
"""What only the CUDA provider merges, or has a kernel for; the CPU provider runs HardSwish by what defines it."""

SAME = {
    "SimplifiedLayerNormalization": "RMSNormalization",
    "QuickGelu": "Swish",
    "FastGelu": "Gelu",
    "BiasGelu": "Gelu with bias",
    "Gelu": "Gelu",
    "Linear": "Gemm",
    "TransposeMatMul": "FusedMatMul",
}
"""One name for what either side calls differently; what both call alike needs none."""

UNSEEN = frozenset(
    {
        "Constant",
        "Identity",
        "Reshape",
        "Squeeze",
        "Unsqueeze",
        "Flatten",
        "Shape",
        "Size",
        "Dropout",
        "ConstantOfShape",
    }
)
"""Operators without a kernel: the optimiser adds Reshapes around a Gemm, and removes others, at no cost."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One model: nodes of the file, of ONNX Runtime's and of our graph by operator."""

    name: str
    before: Counter[str]
    theirs: Counter[str]
    ours: Counter[str]

    @property
    def differences(self) -> dict[str, tuple[int, int]]:
        names = sorted(set(self.theirs) | set(self.ours))
        return {name: (self.theirs[name], self.ours[name]) for name in names if self.theirs[name] != self.ours[name]}


def sizes_for(path: Path) -> dict[str, int]:
    """A size for every open dim: 2 for a batch, 16 for others."""
    model = read_model(path)
    free = {dim for item in model.graph.inputs for dim in item.shape or () if isinstance(dim, str)}
    return {name: 2 if "batch" in name else 16 for name in sorted(free)}


def with_weights(path: Path, folder: Path) -> Path:
    """A copy of a model in ``folder`` with its weights beside it, zeros where there are none."""
    model = onnx.load(path, load_external_data=False)
    needed: dict[str, int] = {}
    constants = (attribute.t for node in _all_nodes(model.graph) for attribute in node.attribute)
    for tensor in (*model.graph.initializer, *constants):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            count = 1
            for size in tensor.dims:
                count *= size
            width = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
            end = int(entries.get("offset", 0)) + int(entries.get("length") or count * width)
            needed[entries["location"]] = max(needed.get(entries["location"], 0), end)
    copy = folder / path.name
    copy.write_bytes(path.read_bytes())
    for location, size in needed.items():
        given = path.parent / location
        target = folder / location
        target.parent.mkdir(parents=True, exist_ok=True)
        if given.is_file() and given.stat().st_size >= size:
            target.symlink_to(given.resolve())
        else:
            with target.open("wb") as file:
                file.truncate(size)
    return copy


def optimised(path: Path, folder: Path) -> onnx.ModelProto:
    """What ONNX Runtime writes for a model, whose missing weights are zeros."""
    copy = with_weights(path, folder)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    # weights stay out of the file that is written: only its nodes are looked at
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "optimised.weights")
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    onnxruntime.InferenceSession(str(copy), options, providers=["CPUExecutionProvider"], disabled_optimizers=CPU_PASSES)
    return onnx.load(folder / "optimised.onnx", load_external_data=False)


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    yield from graph.node
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                if body.node:
                    yield from _all_nodes(body)


def histogram_of_file(model: onnx.ModelProto, known: frozenset[str]) -> Counter[str]:
    """Operators of a file without those that shapes are computed with (whose results we know: ``known``)."""
    return Counter(
        SAME.get(node.op_type, node.op_type)
        for node in _all_nodes(model.graph)
        if node.op_type not in UNSEEN and not _on_host(node, known)
    )


def _on_host(node: onnx.NodeProto, known: frozenset[str]) -> bool:
    return bool(node.output) and all(name in known for name in node.output if name)


def histogram_of_ours(graph: InferredGraph, known: frozenset[str]) -> Counter[str]:
    """The same of our graph; bodies of control flow included."""
    found: Counter[str] = Counter()
    pending = [graph]
    while pending:
        current = pending.pop()
        pending.extend(current.bodies.values())
        settled = {name for name, value in current.values.items() if value.is_constant} | known
        for node in current.graph.nodes:
            if node.inputs and settled.issuperset(filter(None, node.inputs)):
                settled.update(node.outputs)  # a value that the optimisers made, of what is known before the run
            if node.op_type in UNSEEN or _is_known(current, node) or settled.issuperset(filter(None, node.outputs)):
                continue
            for name in APART.get(node.op_type, (node.op_type,)):
                found[SAME.get(name, name)] += 1
    return found


def _is_known(graph: InferredGraph, node: Node) -> bool:
    values = [graph.values.get(name) for name in node.outputs if name]
    return all(value is not None and (value.is_constant or value.data is not None) for value in values)


def _known_names(graph: InferredGraph) -> frozenset[str]:
    found = {name for name, value in graph.values.items() if value.is_constant or value.data is not None}
    for body in graph.bodies.values():
        found |= _known_names(body)
    return frozenset(found)


def compare(path: Path) -> Compared:
    """One file through both."""
    file = onnx.load(path, load_external_data=False)
    shaped = infer_shapes(read_model(path), make_bindings(sizes_for(path), None, None, None))
    known = _known_names(shaped.expected) | _shape_values(file)
    ours = histogram_of_ours(fused_graph(shaped.expected, RUNTIMES["onnxruntime"]), known)
    with tempfile.TemporaryDirectory() as folder:
        written = optimised(path, Path(folder))
    theirs = histogram_of_file(written, known | _shape_values(written))
    return Compared(name=path.stem, before=histogram_of_file(file, known), theirs=theirs, ours=ours)


def _shape_values(model: onnx.ModelProto) -> frozenset[str]:
    """Values of a file that follow from shapes alone."""
    constants = {item.name for item in model.graph.initializer}
    found: set[str] = set()
    for node in model.graph.node:
        inputs = [name for name in node.input if name]
        follows = node.op_type in ("Shape", "Size", "Constant") or (
            bool(inputs) and any(name in found for name in inputs) and all(name in found | constants for name in inputs)
        )
        if follows:
            found.update(node.output)
    return frozenset(found)


def files_of(given: Sequence[Path]) -> list[Path]:
    return [path for item in given for path in (sorted(item.rglob("*.onnx")) if item.is_dir() else [item])]


def table(compared: Sequence[Compared], failed: dict[str, str]) -> str:
    alike = sum(not item.differences for item in compared)
    lines = [
        "# Our graph beside ONNX Runtime's",
        "",
        f'neusight-onnx {__version__}, onnxruntime {onnxruntime.__version__} (CPU provider, level "all", without '
        f"{', '.join(CPU_PASSES)}), Python {platform.python_version()}.",
        f"{alike} of {len(compared)} models have the same operators on both sides.",
        "",
        "| model | nodes | ONNX Runtime | ours | operators that differ: ONNX Runtime / ours |",
        "|---|---:|---:|---:|---|",
    ]
    for item in compared:
        differing = ", ".join(f"{name} {theirs} / {ours}" for name, (theirs, ours) in item.differences.items())
        lines.append(
            f"| {item.name} | {item.before.total():,} | {item.theirs.total():,} | {item.ours.total():,} | {differing} |"
        )
    lines += [f"\n{name}: {reason}" for name, reason in failed.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    compared: list[Compared] = []
    failed: dict[str, str] = {}
    for path in files_of(arguments.models):
        try:
            compared.append(compare(path))
        except (NeusightError, RuntimeError, onnxruntime.capi.onnxruntime_pybind11_state.Fail) as error:
            failed[path.stem] = str(error).splitlines()[0][:150]
    if not compared:
        sys.exit(f"error: nothing to compare: {failed}")
    text = table(compared, failed)
    if arguments.output:
        arguments.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
