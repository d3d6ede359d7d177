"""What PyTorch executed inside real models, beside the kernels that the graph is lowered to, and their times.

    python benchmarks/operators.py SHARED [-o FILE]

SHARED is the folder with ``data/neusight/operators_in_models_dev.parquet`` (operators measured one by one inside the
models; one layer is listed, the others are equal), ``data/neusight/operator_graphs.parquet`` (what the published
predictions were made from) and ``models/neusight/``. For every measured case of inference the operators outside the
layers and those of the first layer are matched with kernels of ours: same class, same name of the operation, same
number of elements written. What is left on either side needs an explanation below; the exit code is 1 if something
has none. For one GPU a model both lists are printed side by side; then, for all cases, the predicted time over the
measured one by kind of operator, and what the published tool's list leaves out.

Measured times hold the host's launch time: a part of the case's own floor is taken off (see ``kernel_time_us``).
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from neusight_onnx.fusion.patterns.registry import recognise
from neusight_onnx.gpu import load_gpu
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.read import read_model
from neusight_onnx.graph.shapes import infer
from neusight_onnx.kernels import (
    KERNEL_CLASSES,
    Elementwise,
    GatherScatter,
    Gemm,
    Kernel,
    Movement,
    NodeWork,
    Normalization,
    Reduction,
    Softmax,
)
from neusight_onnx.laws.bandwidth import is_amd
from neusight_onnx.learning.heldout import LAUNCH_SHARES
from neusight_onnx.lowering import lower
from neusight_onnx.operator_host import operator_host_us
from neusight_onnx.predictor import predict
from neusight_onnx.runtime import get_runtime
from neusight_onnx.stream import Step, stream_time_us

Row = dict[str, Any]
OPERATORS = Path("data/neusight/operators_in_models_dev.parquet")
MODELS = {
    "bert_large": "bert_large",
    "gpt2_large": "gpt2_large",
    "gpt3_xl": "gpt3_xl",
    "gpt3_27": "gpt3_2.7b",
    "opt_13": "opt_1.3b",
}
"""Names of the measurements and of the model files."""

LAYER = re.compile(r"(?:(?<=layer\.)|(?<=layers\.)|(?<=/h\.))\d+(?=/)")
"""The number of a layer in a node's name."""

HOST = {
    "size", "dim", "getitem", "getattr", "finfo", "view", "permute", "transpose", "expand", "split", "unsqueeze",
    "dropout", "type_as", "type", "tensor", "eq", "ne", "input_ids", "output", "get_attr",
}  # fmt: skip
"""Operators without a kernel, or that answer with a Python number."""

NAMES = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "pow": "pow_scalar", "tanh": "tanh", "gelu": "gelu",
    "where": "where", "max": "max", "relu": "relu", "masked_fill": "where", "masked_fill_": "where", "lt": "lt",
    "softmax": "softmax", "layer_norm": "layer", "matmul": "matmul", "bmm": "matmul", "addmm": "linear",
    "contiguous": "copy", "reshape": "copy", "to": "cast", "bool": "cast", "long": "cast", "embedding": "embedding",
    "cumsum": "cumsum", "ones": "fill", "full": "fill", "arange": "fill",
}  # fmt: skip

DECIDED_BY_TIME = {"contiguous", "reshape", "to", "bool", "long"}
"""Operators that launch a kernel only if there is something to do; then they take longer than a view does."""

LONGER_THAN_A_VIEW = 1.25
"""So many times the case's median view: launching takes 1.4 times as long as a view or more, views vary by a tenth."""

TINY_US = 2.0
"""What a kernel takes at least (start and drain: the laws' launch constant)."""

INSIDE = "copy inside matmul"

OURS_ONLY = {INSIDE: "PyTorch copies inside matmul: measured as part of it"}
"""Why a kernel of ours has no measured operator."""


@dataclass(frozen=True)
class Operator:
    """One line of either list: operation, elements written, where it stands, what it took (measured ones)."""

    name: str
    elements: int
    where: str
    detail: str
    in_layer: bool
    latency_ms: float = 0.0


@dataclass(frozen=True)
class Pair:
    """A measured operator and our kernel's node, or one of them with the reason why the other is missing."""

    measured: Operator | None
    ours: Operator | None
    reason: str | None

    @property
    def unexplained(self) -> bool:
        return self.reason is None and (self.measured is None or self.ours is None)


@dataclass(frozen=True)
class Case:
    """A measured case: its operators' rows, our works of the whole model, how the two match."""

    model: str
    sequence: int
    batch: int
    gpu: str
    rows: tuple[Row, ...]
    works: tuple[NodeWork, ...]
    pairs: tuple[Pair, ...]

    @property
    def title(self) -> str:
        return f"{self.model} {self.sequence} x {self.batch} {self.gpu}"


def measured(rows: Sequence[Row]) -> list[Operator]:
    """Operators with a kernel, in order of execution."""
    found = []
    layer = False
    views = [row["latency_ms"] for row in rows if re.match(r"(view|permute|transpose|expand)(_\d+)?$", row["node"])]
    shortest_ms = LONGER_THAN_A_VIEW * statistics.median(views)
    for row in rows:
        node = row["node"]
        layer = layer or bool(re.search(r"layers?_0_|_h_0_", node))
        if re.search(r"pooler|ln_f|final_layer_norm$|lm_head", node) and "layers_0" not in node:
            layer = False
        name = _measured_name(node, row["op"])
        shape = ast.literal_eval(row["output_shape"])
        if name in HOST or prod(shape) == 1 or row["op"] in ("placeholder", "output", "get_attr"):
            continue
        if name in DECIDED_BY_TIME and row["latency_ms"] < shortest_ms:
            continue
        found.append(
            Operator(
                name=NAMES.get(name, name),
                elements=prod(shape),
                where=node,
                detail=f"{row['input_shapes']} -> {row['output_shape']}",
                in_layer=layer,
                latency_ms=row["latency_ms"],
            )
        )
    return found


def _measured_name(node: str, op: str) -> str:
    if op == "call_module":
        for ending, name in (
            ("dropout", "dropout"), ("drop", "dropout"), ("norm", "layer_norm"), ("activation_fn", "relu"),
            ("pooler_activation", "tanh"), ("embeddings", "embedding"), ("embed_tokens", "embedding"),
            ("wte", "embedding"), ("wpe", "embedding"),
        ):  # fmt: skip
            if node.endswith(ending):
                return name
        return "layer_norm" if re.search(r"ln_(1|2|f)$", node) else "addmm"
    return re.sub(r"_\d+$", "", node)


def ours(works: tuple[NodeWork, ...]) -> list[Operator]:
    """Kernels outside the layers and of the first one."""
    found = []
    for work in works:
        layer = LAYER.search(work.node)
        if layer and layer[0] != "0":
            continue
        for kernel in work.kernels:
            name, elements = _described(kernel)
            if name == "copy" and work.op_type == "MatMul":
                name = INSIDE
            detail = f"{work.op_type} {work.node}"
            found.append(Operator(name=name, elements=elements, where=work.node, detail=detail, in_layer=bool(layer)))
    return found


def _described(kernel: Kernel) -> tuple[str, int]:
    match kernel:
        case Gemm():
            return ("linear" if kernel.b_is_weight else "matmul"), kernel.batch * kernel.m * kernel.n
        case Elementwise():
            return kernel.operations[-1], kernel.output.element_count
        case Softmax():
            return "softmax", kernel.rows * kernel.cols
        case Normalization():
            return kernel.method, kernel.rows * kernel.cols
        case GatherScatter():
            return kernel.operation, kernel.moved
        case Movement():
            return kernel.operation, prod(kernel.shape)
        case Reduction():
            return kernel.operation, kernel.output.element_count
        case _:
            return type(kernel).__name__.lower(), 0


def match(rows: Sequence[Row], works: tuple[NodeWork, ...]) -> list[Pair]:
    """Pairs in the order of the measurements, then what is ours alone."""
    waiting: dict[tuple[str, int, bool], list[Operator]] = defaultdict(list)
    for operator in ours(works):
        waiting[operator.name, operator.elements, operator.in_layer].append(operator)
    pairs = []
    for operator in measured(rows):
        same = waiting[operator.name, operator.elements, operator.in_layer]
        if same:
            pairs.append(Pair(operator, same.pop(0), None))
        else:
            pairs.append(Pair(operator, None, None))
    left = (operator for operators in waiting.values() for operator in operators)
    return pairs + [
        Pair(None, operator, "one number" if operator.elements <= 1 else OURS_ONLY.get(operator.name))
        for operator in left
    ]


def read_cases(shared: Path) -> Iterator[Case]:
    """Every measured case of inference, matched."""
    table = pq.read_table(shared / OPERATORS).to_pylist()
    by_case: dict[tuple[str, int, int, str], list[Row]] = {}
    for row in table:
        if row["mode"] == "inf":
            by_case.setdefault((row["model"], row["sequence"], row["batch"], row["gpu"]), []).append(row)
    lowered: dict[tuple[str, int, int], tuple[NodeWork, ...]] = {}
    for (name, sequence, batch, gpu), rows in sorted(by_case.items()):
        if (name, sequence, batch) not in lowered:
            model = read_model(shared / "models" / "neusight" / f"{MODELS[name]}.onnx")
            graph = infer(model, Bindings(dims={"batch": batch, "seq": sequence}))
            lowered[name, sequence, batch] = lower(recognise(graph, runtime="eager"), runtime="eager")
        works = lowered[name, sequence, batch]
        yield Case(name, sequence, batch, gpu, tuple(rows), works, tuple(match(rows, works)))


def side_by_side(case: Case) -> list[str]:
    """Both lists as text."""
    lines = ["", case.title]
    for layer in (False, True):
        lines.append(f"  {'first layer' if layer else 'once'}")
        for pair in case.pairs:
            operator = pair.measured or pair.ours
            assert operator is not None, "a pair has at least one side"
            if operator.in_layer != layer:
                continue
            verdict = f"= {pair.ours.detail}" if pair.measured and pair.ours else f"{pair.reason or 'NOT EXPLAINED'}"
            name = pair.measured.where if pair.measured else f"+ {operator.detail}"
            took = f"{operator.latency_ms:9.3f} ms" if pair.measured else f"{'':12}"
            lines.append(f"    {name:60.60} {operator.elements:>11} {took} {verdict}")
    layer_kernels = [pair.ours for pair in case.pairs if pair.ours and pair.ours.in_layer]
    hidden = sum(operator.name == INSIDE for operator in layer_kernels)
    lines.append(f"  a layer: {len(layer_kernels) - hidden} kernels and {hidden} copies inside matmul")
    return lines


def floor_us(case: Case) -> float:
    """What the case's smallest operator with a kernel takes, in us: launching, and a kernel of next to nothing."""
    return min(1e3 * pair.measured.latency_ms for pair in case.pairs if pair.measured)


def kernel_time_us(latency_ms: float, floor: float, kernel_class: str, *, amd: bool) -> float:
    """The kernel's own time in an operator that was measured alone on an idle GPU, at least ``TINY_US``.

    The part of the floor that passes before the kernel starts is taken off, by kernel class, as in the evaluation of
    single kernels, from which these shares come.
    """
    share = LAUNCH_SHARES.get(kernel_class, LAUNCH_SHARES["elementwise"])[amd]
    return max(1e3 * latency_ms - share * floor, TINY_US)


@dataclass(frozen=True)
class NodeTime:
    """A node of the whole model on one GPU: kind of its operator, predicted and measured kernel time in us."""

    kind: str
    predicted_us: tuple[float, ...]
    measured_us: float | None
    work: NodeWork


def node_times(case: Case) -> list[NodeTime]:
    """Every node that takes host time or has kernels; later layers take what the first one took."""
    took = {pair.ours.where: pair.measured for pair in case.pairs if pair.ours and pair.measured}
    kernels = [kernel for work in case.works for kernel in work.kernels]
    spec = load_gpu(case.gpu)
    predictions = iter(predict(kernels, spec))
    floor = floor_us(case)
    found = []
    for work in case.works:
        predicted = tuple(next(predictions).latency_us for _ in work.kernels)
        if not predicted and not work.host_operation:
            continue
        operator = took.get(LAYER.sub("0", work.node))
        kind, time = "", None
        if work.kernels:
            kernel_class = KERNEL_CLASSES[type(work.kernels[-1])]
            kind = _described(work.kernels[-1])[0] if kernel_class == "gemm" else kernel_class
            time = kernel_time_us(operator.latency_ms, floor, kernel_class, amd=is_amd(spec)) if operator else None
        found.append(NodeTime(kind, predicted, time, work))
    return found


def composed_us(times: Sequence[NodeTime], *, from_measured: bool) -> float:
    """The model's time in us by our composition, from predicted or from measured operators (where there are any)."""
    runtime, steps = get_runtime("eager"), []
    for node in times:
        durations = node.predicted_us
        if from_measured and node.measured_us is not None:
            share = node.measured_us / sum(node.predicted_us)
            durations = tuple(share * duration for duration in node.predicted_us)
        work, host_us = node.work, operator_host_us(node.work, runtime)
        steps.append(Step(kernel_us=durations, count=work.count, host_waits=work.host_waits, host_us=host_us))
    return stream_time_us(steps, runtime)


KINDS = ("linear", "matmul", "elementwise", "softmax", "normalization")


def ratios(cases: Mapping[str, Sequence[NodeTime]]) -> list[str]:
    """Predicted over measured time by kind of operator, and each kind's share of the measured time."""
    lines = [
        "",
        "Predicted / measured kernel time - 1, summed over the whole model (share of the measured time)",
        "",
        f"{'case':<37}" + "".join(f"{kind:>18}" for kind in (*KINDS, "others")) + f"{'all':>9}",
    ]
    for title, times in cases.items():
        predicted: Counter[str] = Counter()
        found: Counter[str] = Counter()
        for node in times:
            if node.measured_us is not None:
                kind = node.kind if node.kind in KINDS else "others"
                predicted[kind] += sum(node.predicted_us)
                found[kind] += node.measured_us
        whole = found.total()
        cells = ""
        for kind in (*KINDS, "others"):
            text = f"{predicted[kind] / found[kind] - 1:+.1%} ({found[kind] / whole:.1%})" if found[kind] else "-"
            cells += f"{text:>18}"
        lines.append(f"{title:<37}{cells}{predicted.total() / whole - 1:>+9.1%}")
    return lines


def repeats(cases: Sequence[Case]) -> list[str]:
    """How well measured times repeat: equal linear layers of one model, each timed once."""
    lines = [
        "",
        "Equal linear layers of a case: shortest and longest that were measured, in ms, and longest / shortest - 1",
        "",
    ]
    for case in cases:
        equal: dict[str, list[float]] = defaultdict(list)
        for pair in case.pairs:
            if pair.measured and pair.ours and pair.measured.name == "linear" and pair.measured.in_layer:
                equal[pair.measured.detail].append(pair.measured.latency_ms)
        for detail, times in equal.items():
            if len(times) > 1:
                low, high = min(times), max(times)
                lines.append(
                    f"{case.title:<37}{len(times)} of {detail:<36}{low:>9.3f}{high:>9.3f}{high / low - 1:>+9.1%}"
                )
    return lines


def published_lists(shared: Path, cases: Sequence[Case]) -> list[str]:
    """What the published tool's list counts, beside what was measured: one case a model, the largest batch."""
    table = pq.read_table(
        shared / "data" / "neusight" / "operator_graphs.parquet", columns=["graph", "Name", "OpName", "FwOps"]
    ).to_pylist()
    counted: dict[str, dict[str, str]] = {}
    for row in table:
        counted.setdefault(row["graph"], {})[row["Name"]] = row["FwOps"]
    lines = ["", "What the published predictions count (FwOps of operator_graphs.parquet), a layer taken once", ""]
    for name in MODELS:
        of_model = [case for case in cases if case.model == name]
        if not of_model:
            continue
        case = max(of_model, key=lambda case: (case.batch, case.gpu))
        theirs = counted[f"{name}-inf-{case.sequence}-{case.batch}"]
        launched = {pair.measured.where: pair.measured for pair in case.pairs if pair.measured}
        missing = [operator for node, operator in launched.items() if theirs.get(node, "[]") == "[]"]
        nothing = [node for node, kernels in theirs.items() if kernels != "[]" and node not in launched]
        share = sum(o.latency_ms for o in missing if o.in_layer) / sum(
            o.latency_ms for o in launched.values() if o.in_layer
        )
        lines.append(
            f"{name}: {len(launched)} operators with a kernel, {len(missing)} of them cost nothing there "
            f"({', '.join(operator.where for operator in missing) or 'none'}; {share:.1%} of a layer on {case.gpu}); "
            f"{len(nothing)} views or scalars are charged as copies"
        )
    return lines


def main() -> int:
    """Prints the comparison; 1 if a difference has no explanation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    cases = list(read_cases(arguments.shared))
    lines = [
        f"{len(cases)} cases of inference, {sum(len(case.pairs) for case in cases)} operators; ours for eager mode"
    ]
    shown = {(case.model): case for case in cases if case.gpu.startswith("a100")}
    for case in shown.values():
        lines += side_by_side(case)
    lines += ratios({case.title: node_times(case) for case in cases})
    lines += repeats(cases)
    lines += published_lists(arguments.shared, cases)
    bad = [
        f"{case.title}: {operator.where} {operator.name} {operator.elements} {operator.detail}"
        for case in cases
        for pair in case.pairs
        if pair.unexplained and (operator := pair.measured or pair.ours)
    ]
    lines += ["", *(f"unexplained: {line}" for line in bad), f"{len(bad)} unexplained differences"]
    text = "\n".join(lines)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n", encoding="utf-8")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
