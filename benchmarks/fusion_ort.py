"""Our graph for ``--runtime onnxruntime`` beside the file that ONNX Runtime's own optimiser writes, by operator.

    python benchmarks/fusion_ort.py MODELS... [--cuda SITE-PACKAGES --stand-ins FOLDER [--python FILE]] [-o FILE]

MODELS are ONNX files, or folders whose files are taken. Weights that are not there are zeros (a sparse file stands for
them): the optimiser decides by structure, not by values. It runs at level "all" on the CPU provider without a GPU; the
passes that its CUDA provider doesn't have are switched off (:data:`CPU_PASSES`), and what only the CUDA provider would
merge is read from our graph as what it is made of (:data:`APART`).

With --cuda it is the CUDA provider's own graph: that of the onnxruntime-gpu in SITE-PACKAGES, prepared without a GPU by
the stand-ins that ``cuda_standin.py`` has built in FOLDER. Copies between host and GPU are in it. Ours is that of the
release which is installed there (``--runtime onnxruntime@RELEASE``); an early one wants a Python of its time.

Operators that shapes are computed with count on neither side: we know such values before the run.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import onnx
import onnxruntime

from neusight_onnx import __version__
from neusight_onnx.errors import NeusightError
from neusight_onnx.fusion.runtimes import fused_graph
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.model import InferredGraph, Node
from neusight_onnx.graph.read import read_model
from neusight_onnx.kernels import HostWork
from neusight_onnx.lowering import lower_laid_out
from neusight_onnx.lowering.placement import place
from neusight_onnx.preparation import infer_shapes
from neusight_onnx.runtime import get_runtime

T = TypeVar("T")

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

COPIES = ("MemcpyFromHost", "MemcpyToHost")
"""Nodes that move values between providers: they follow from where nodes are placed, which is compared."""

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
    """One model: nodes of the file, of ONNX Runtime's and of our graph by operator.

    ``on_cpu``: with the CUDA provider, operators that either side leaves to the CPU, theirs and ours.
    """

    name: str
    before: Counter[str]
    theirs: Counter[str]
    ours: Counter[str]
    on_cpu: tuple[Counter[str], Counter[str]] = (Counter(), Counter())

    @property
    def differences(self) -> dict[str, tuple[int, int]]:
        return _differing(self.theirs, self.ours)


def _differing(theirs: Counter[str], ours: Counter[str]) -> dict[str, tuple[int, int]]:
    names = sorted(set(theirs) | set(ours))
    return {name: (theirs[name], ours[name]) for name in names if theirs[name] != ours[name]}


def _listed(differences: Mapping[str, tuple[int, int]]) -> str:
    return ", ".join(f"{name} {theirs} / {ours}" for name, (theirs, ours) in differences.items())


def sizes_for(path: Path) -> dict[str, int]:
    """A size for every open dim: 2 for a batch, 16 for others."""
    model = read_model(path)
    free = {dim for item in model.graph.inputs for dim in item.shape or () if isinstance(dim, str)}
    return {name: 2 if "batch" in name else 16 for name in sorted(free)}


def with_weights(path: Path, folder: Path) -> Path:
    """A copy of a model in ``folder`` with its weights beside it, zeros where there are none.

    A boolean constant of (1, 1, n, n) is a causal mask, lower triangular as GPT-2's modules register it: rewriting
    rules look at it, and zeros stop them.
    """
    model = onnx.load(path, load_external_data=False)
    needed: dict[str, int] = {}
    masks: list[tuple[str, int, int]] = []
    constants = (attribute.t for node in _all_nodes(model.graph) for attribute in node.attribute)
    for tensor in (*model.graph.initializer, *constants):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            count = 1
            for size in tensor.dims:
                count *= size
            width = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
            offset = int(entries.get("offset", 0))
            end = offset + int(entries.get("length") or count * width)
            needed[entries["location"]] = max(needed.get(entries["location"], 0), end)
            if tensor.data_type == onnx.TensorProto.BOOL and list(tensor.dims) == [1, 1, *tensor.dims[-1:] * 2]:
                masks.append((entries["location"], offset, tensor.dims[-1]))
    copy = folder / path.name
    copy.write_bytes(path.read_bytes())
    for location, size in needed.items():
        given = path.parent / location
        target = folder / location
        target.parent.mkdir(parents=True, exist_ok=True)
        if given.is_file() and given.stat().st_size >= size:
            shutil.copyfile(given, target)  # a link out of the model's folder is refused since ONNX Runtime 1.31
        else:
            with target.open("wb") as file:
                file.truncate(size)
                for _, offset, length in (mask for mask in masks if mask[0] == location):
                    file.seek(offset)
                    file.write(np.tri(length, dtype=bool).tobytes())
    return copy


@dataclass(frozen=True, kw_only=True)
class Cuda:
    """Where onnxruntime-gpu is installed, and the stand-ins for CUDA's libraries that it is run with."""

    site_packages: Path
    stand_ins: Path
    python: str = sys.executable

    @property
    def version(self) -> str:
        found = sorted(self.site_packages.glob("onnxruntime_gpu-*.dist-info"))
        if not found:
            raise RuntimeError(f"no onnxruntime-gpu in {self.site_packages}")
        return found[-1].name.removeprefix("onnxruntime_gpu-").removesuffix(".dist-info")

    def optimise(self, model: Path, written: Path) -> list[tuple[str, str]]:
        """Has the CUDA provider write its graph; operator and name of the nodes that it leaves to the CPU.

        Raises:
            RuntimeError: it failed; with ONNX Runtime's last line.
        """
        environment = {**os.environ, "LD_LIBRARY_PATH": str(self.stand_ins.resolve())}
        script = [self.python, str(Path(__file__).with_name("cuda_graph.py")), str(self.site_packages)]
        done = subprocess.run([*script, str(model), str(written)], capture_output=True, text=True, env=environment)
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["failed without a message"])[-1])
        return _placed_on_cpu(done.stderr)


def _placed_on_cpu(log: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    provider = ""
    for line in re.sub(r"\x1b\[[0-9;]*m", "", log).splitlines():
        if " placed on [" in line:
            provider = line.partition(" placed on [")[2].partition("]")[0]
        elif (node := re.search(r"VerifyEachNodeIsAssigned\w*\]\s+(\w+) \((.*)\)", line)) and provider.startswith(
            "CPU"
        ):
            found.append((node.group(1), node.group(2)))
    return found


def optimised(path: Path, folder: Path) -> onnx.ModelProto:
    """What ONNX Runtime's CPU provider writes for a model, whose missing weights are zeros."""
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


def histogram_of_ours(
    graph: InferredGraph, known: frozenset[str], apart: Mapping[str, tuple[str, ...]] = APART
) -> Counter[str]:
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
            for name in apart.get(node.op_type, (node.op_type,)):
                found[SAME.get(name, name)] += 1
    return found


def _is_known(graph: InferredGraph, node: Node) -> bool:
    values = [graph.values.get(name) for name in node.outputs if name]
    return all(value is not None and (value.is_constant or value.data is not None) for value in values)


def _known_names(graph: InferredGraph, *, constants: bool = True) -> frozenset[str]:
    """Values that are known before the run; ``constants``: or could be, all that they follow from being constant."""
    found = {
        name for name, value in graph.values.items() if value.data is not None or (constants and value.is_constant)
    }
    for body in graph.bodies.values():
        found |= _known_names(body, constants=constants)
    return frozenset(found)


def compare(path: Path, cuda: Cuda | None = None) -> Compared:
    """One file through both."""
    file = onnx.load(path, load_external_data=False)
    shaped = infer_shapes(read_model(path), make_bindings(sizes_for(path), None, None, None))
    known = _known_names(shaped.expected) | _shape_values(file)
    runtime = get_runtime("onnxruntime" if cuda is None else f"onnxruntime@{cuda.version}")
    fused = fused_graph(shaped.expected, runtime)
    before = histogram_of_file(file, known)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if cuda is None:
            written = optimised(path, folder)
            theirs = histogram_of_file(written, known | _shape_values(written))
            return Compared(name=path.stem, before=before, theirs=theirs, ours=histogram_of_ours(fused, known))
        placed = cuda.optimise(with_weights(path, folder), folder / "optimised.onnx")
        written = onnx.load(folder / "optimised.onnx", load_external_data=False)
    known_there = known | _shape_values(written)
    theirs = histogram_of_file(written, known_there)
    for copy in COPIES:
        del theirs[copy]
    shapes = _shape_values(written) | _known_names(shaped.expected, constants=False)
    unknown = {node.name for node in _all_nodes(written.graph) if not _on_host(node, shapes)}
    left = Counter(op_type for op_type, name in placed if op_type not in UNSEEN and name in unknown)
    works = place(fused, lower_laid_out(fused, runtime=runtime).works, runtime)
    ours_left = Counter(work.op_type for work in works if any(isinstance(kernel, HostWork) for kernel in work.kernels))
    return Compared(
        name=path.stem,
        before=before,
        theirs=theirs,
        ours=histogram_of_ours(fused, known, {} if runtime.has_hard_swish else {"HardSwish": APART["HardSwish"]}),
        on_cpu=(left, ours_left),
    )


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


def each_compared(
    given: Sequence[Path], compare_one: Callable[[Path], T], refused: tuple[type[Exception], ...]
) -> tuple[list[T], dict[str, str]]:
    """What came of every file, and why nothing came of the others. Ends the program where nothing came of any."""
    compared: list[T] = []
    failed: dict[str, str] = {}
    for path in files_of(given):
        try:
            compared.append(compare_one(path))
        except refused as error:
            failed[path.stem] = re.sub(r"/\S*/", "", str(error).splitlines()[0])[:150]
    if not compared:
        sys.exit(f"error: nothing to compare: {failed}")
    return compared, failed


def tell(text: str, output: Path | None) -> None:
    """Prints a table, and writes it where that is asked for."""
    if output:
        output.write_text(text)
    print(text)


def table(compared: Sequence[Compared], failed: dict[str, str], cuda: Cuda | None = None) -> str:
    alike = sum(not item.differences for item in compared)
    version, provider = onnxruntime.__version__, f'CPU provider, level "all", without {", ".join(CPU_PASSES)}'
    if cuda is not None:
        version, provider = cuda.version, 'CUDA provider, level "all", prepared without a GPU (`cuda_standin.py`)'
    lines = [
        "# Our graph beside ONNX Runtime's",
        "",
        f"neusight-onnx {__version__}, onnxruntime {version} ({provider}), Python {platform.python_version()}.",
        f"{alike} of {len(compared)} models have the same operators on both sides.",
    ]
    if cuda is not None:
        placed = sum(not _differing(*item.on_cpu) for item in compared)
        lines.append(f"{placed} of {len(compared)} leave the same operators to the CPU.")
    last = "" if cuda is None else " left to the CPU: ONNX Runtime / ours |"
    lines += [
        "",
        "| model | nodes | ONNX Runtime | ours | operators that differ: ONNX Runtime / ours |" + last,
        "|---|---:|---:|---:|---|" + ("" if cuda is None else "---|"),
    ]
    for item in compared:
        cells = [item.name, f"{item.before.total():,}", f"{item.theirs.total():,}", f"{item.ours.total():,}"]
        cells.append(_listed(item.differences))
        if cuda is not None:
            theirs, ours = item.on_cpu
            cells.append(_listed({name: (theirs[name], ours[name]) for name in sorted({*theirs, *ours})}))
        lines.append(f"| {' | '.join(cells)} |")
    lines += [f"\n{name}: {reason}" for name, reason in failed.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--cuda", type=Path, metavar="SITE-PACKAGES", help="where onnxruntime-gpu is installed")
    parser.add_argument("--stand-ins", type=Path, metavar="FOLDER", help="made by cuda_standin.py")
    parser.add_argument("--python", default=sys.executable, metavar="FILE", help="which runs it (default: this one)")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    if (arguments.cuda is None) != (arguments.stand_ins is None):
        parser.error("--cuda and --stand-ins go together")
    cuda = None
    if arguments.cuda is not None:
        cuda = Cuda(site_packages=arguments.cuda, stand_ins=arguments.stand_ins, python=arguments.python)
    refusals = onnxruntime.capi.onnxruntime_pybind11_state
    refused = (NeusightError, RuntimeError, refusals.Fail, refusals.NotImplemented)
    compared, failed = each_compared(arguments.models, lambda path: compare(path, cuda), refused)
    tell(table(compared, failed, cuda), arguments.output)


if __name__ == "__main__":
    main()
