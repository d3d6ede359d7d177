"""Judges the front end on a folder of real models.

    python benchmarks/frontend.py MODELS [--format text|json] [--only PART] [--verbose] [--no-others] [--no-scale]

MODELS holds ``.onnx`` files at any depth, and may hold ``truth/*.json``, each with the inputs that a model was run with
and the dtype and shape that every value of its main graph then had. For each model: nodes, different operators, nodes
that are not supported, values of right, bounded, wrong and unknown shape, seconds of inference, and the memory that
reading, inferring and lowering took at their peak. Without a truth a value can only be known, bounded or unknown, with
default bindings.

A value counts as *right* if dtype and shape are those of the run, *bounded* if the result says that it is a bound and
the run's dimensions lie between its ends, *wrong* if it is neither, *unknown* if no shape was found. Two passes: shapes
of the inputs only, and with the content of small inputs of integers and booleans as well (``--value``).

Beside it the same counts, with the inputs' shapes bound, for ``onnx.shape_inference`` (strict mode off, data
propagation on) and, where they can be imported, onnxruntime's ``symbolic_shape_infer`` (needs sympy) and onnx-tool.

Then how the front end scales: a chain of 100,000 nodes against one of 10,000, and a file with 2 GiB of inline weights.
Exit code 1 if a model can't be read, a value is wrong with the inputs' content given, one is unknown, a node is not
supported in a model that ONNX Runtime loads (as ``MODELS/index.csv`` says), or a target of scale is missed.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import os
import pickle
import platform
import resource
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import helper, shape_inference

from neusight_onnx.dtypes import BY_ONNX_CODE, DataType
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.model import Array, Graph, InferredGraph, Value
from neusight_onnx.graph.read import read_model, read_model_bytes
from neusight_onnx.graph.shapes import infer
from neusight_onnx.inspection import inspect_model
from neusight_onnx.lowering import lower

T = TypeVar("T")

VALUE_ELEMENTS = 16
"""Inputs up to this size are given with their content in the second pass: scalars and small vectors, no token ids."""

LIMIT_S = 60
"""What any tool gets for one model."""

CHAIN_RATIO = 12.0
BIG_SECONDS, BIG_MEGABYTES = 2.0, 400.0
"""Targets: 100,000 nodes against 10,000; 2 GiB of weights against a small model."""


# --- Each judgement in a process of its own ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call gave in a process of its own, or why it gave nothing; ``megabytes`` is what it added at its peak."""

    result: Any
    error: str | None
    megabytes: float


def apart(call: Callable[[], T], limit_s: int = LIMIT_S) -> Outcome:
    """Calls in a forked process, so that memory is counted for it alone and nothing that dies takes us along."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(limit_s)
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # other tools print; the process ends with it
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result: Any = None
        error: str | None = None
        try:
            result = call()
        except Exception as fault:  # other people's tools raise whatever they like
            text = str(fault).splitlines()
            error = f"{type(fault).__name__}: {text[0] if text else ''}"[:200]
        megabytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump((result, error, megabytes), pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(child, 0)
    if not content:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        what = f"more than {limit_s} s" if number == signal.SIGALRM else f"died of signal {number}"
        return Outcome(None, what, 0.0)
    return Outcome(*pickle.loads(content))  # written by our own child


# --- Counting ---------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Counts:
    """How many values came out how; ``examples`` names what is not right."""

    right: int = 0
    bounded: int = 0
    wrong: int = 0
    unknown: int = 0
    seconds: float = 0.0
    megabytes: float = 0.0
    error: str | None = None
    examples: list[str] = field(default_factory=list)

    def add(self, other: Counts) -> None:
        self.right += other.right
        self.bounded += other.bounded
        self.wrong += other.wrong
        self.unknown += other.unknown
        self.seconds += other.seconds
        self.megabytes = max(self.megabytes, other.megabytes)


@dataclass(kw_only=True)
class Row:
    """One model; ``others`` maps the name of another tool to its counts. ``has_truth``: right and wrong were judged."""

    model: str
    has_truth: bool
    nodes: int = 0
    operators: int = 0
    unsupported: int = 0
    values: int = 0
    loads: bool = True
    reasons: list[str] = field(default_factory=list)
    shapes_only: Counts = field(default_factory=Counts)
    with_values: Counts = field(default_factory=Counts)
    others: dict[str, Counts] = field(default_factory=dict)


def judge(values: Mapping[str, Value], truth: Mapping[str, Any], counts: Counts) -> None:
    """Adds every value of ``truth`` to ``counts``."""
    for name, item in truth["values"].items():
        value = values.get(name)
        shape = None if value is None else value.shape
        if "sequence" in item:
            _judge_sequence(name, None if value is None else value.elements, item, counts)
            continue
        expected = tuple(item["shape"])
        if value is None or shape is None:
            counts.unknown += 1
            cause = value.unknown_because if value else "no node"
            counts.examples.append(f"{name}: unknown because of {cause}, is {list(expected)}")
            continue
        label = None if value.dtype is None else value.dtype.label.replace("string", "object")
        least = value.shape_low or (0,) * len(shape)
        inside = len(shape) == len(expected) and all(
            low <= truth_size <= most for low, truth_size, most in zip(least, expected, shape, strict=True)
        )
        if label == item["dtype"] and shape == expected and not value.is_bound:
            counts.right += 1
        elif label == item["dtype"] and value.is_bound and inside:
            counts.bounded += 1
        else:
            counts.wrong += 1
            bound = " (bound)" if value.is_bound else ""
            counts.examples.append(f"{name}: {label} {list(shape)}{bound} is {item['dtype']} {list(expected)}")


def _judge_sequence(name: str, known: tuple[Value, ...] | None, item: Mapping[str, Any], counts: Counts) -> None:
    if known is None:
        counts.unknown += 1
        counts.examples.append(f"{name}: unknown sequence")
    elif len(known) == item["len"] and all(
        "shape" not in b or a.shape == tuple(b["shape"]) for a, b in zip(known, item["sequence"], strict=True)
    ):
        counts.right += 1
    else:
        counts.wrong += 1
        counts.examples.append(f"{name}: {[member.shape for member in known]} is {item['sequence']}")


# --- Ours -------------------------------------------------------------------------------------------------------------


def recorded_bindings(truth: Mapping[str, Any], *, with_values: bool) -> Bindings:
    """The inputs of the run: their shapes, and the content of small ones."""
    shapes = {name: tuple(item["shape"]) for name, item in truth["inputs"].items() if "shape" in item}
    values: dict[str, Array] = {}
    if with_values:
        for name, item in truth["inputs"].items():
            if item.get("dtype", "").startswith(("int", "uint", "bool")) and "value" in item:
                array = np.array(item["value"], item["dtype"]).reshape(item["shape"])
                if array.size <= VALUE_ELEMENTS:
                    values[name] = array
    return Bindings(shapes=shapes, values=values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What our front end says of one model."""

    nodes: int
    operators: int
    unsupported: int
    reasons: list[str]
    values: int
    counts: Counts


def ours(path: Path, truth: Mapping[str, Any] | None, *, with_values: bool) -> Facts:
    """Read, infer, lower; without a truth with default bindings, known values counting as right."""
    model = read_model(path)
    bindings = Bindings() if truth is None else recorded_bindings(truth, with_values=with_values)
    start = time.perf_counter()
    result = infer(model, bindings)
    counts = Counts(seconds=time.perf_counter() - start)
    unsupported = [work for work in lower(result, runtime="eager") if work.unsupported is not None]
    named = [name for node in result.graph.nodes for name in node.outputs if name]
    if truth is None:
        _count_known(result, named, counts)
    else:
        judge(result.values, truth, counts)
    return Facts(
        nodes=len(list(_nodes(model.graph))),
        operators=len(set(_nodes(model.graph))),
        unsupported=len(unsupported),
        reasons=sorted({f"{work.op_type}: {work.unsupported}" for work in unsupported})[:5],
        values=len(named) if truth is None else len(truth["values"]),
        counts=counts,
    )


def _count_known(result: InferredGraph, names: list[str], counts: Counts) -> None:
    for name in names:
        value = result.values[name]
        if value.is_bound:
            counts.bounded += 1
        elif value.shape is None and value.elements is None:
            counts.unknown += 1
            counts.examples.append(f"{name}: unknown because of {value.unknown_because}")
        else:
            counts.right += 1


def _nodes(graph: Graph) -> list[str]:
    """The operator of every node, those of bodies included."""
    found = []
    for node in graph.nodes:
        found.append(f"{node.domain}::{node.op_type}")
        for attribute in node.attributes.values():
            for body in attribute if isinstance(attribute, tuple) else (attribute,):
                if isinstance(body, Graph):
                    found += _nodes(body)
    return found


# --- Others -----------------------------------------------------------------------------------------------------------


def _bound(path: Path, truth: Mapping[str, Any]) -> onnx.ModelProto:
    """The file with the run's shapes in place of its inputs' own."""
    model = onnx.load(str(path), load_external_data=False)
    for graph_input in model.graph.input:
        recorded = truth["inputs"].get(graph_input.name)
        if recorded is None or "shape" not in recorded or not graph_input.type.HasField("tensor_type"):
            continue
        shape = graph_input.type.tensor_type.shape
        del shape.dim[:]
        for size in recorded["shape"]:
            shape.dim.add().dim_value = size
    return model


def _written(model: onnx.ModelProto) -> dict[str, Value]:
    """What the value_info of a model says."""
    values: dict[str, Value] = {}
    for info in [*model.graph.value_info, *model.graph.output]:
        if info.type.HasField("tensor_type"):
            tensor = info.type.tensor_type
            dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
            known = tensor.HasField("shape") and None not in dims
            shape = tuple(dim for dim in dims if dim is not None) if known else None
            values[info.name] = Value(dtype=BY_ONNX_CODE.get(tensor.elem_type), shape=shape)
    return values


def by_onnx(path: Path, truth: Mapping[str, Any]) -> Counts:
    """onnx's own inference."""
    model = _bound(path, truth)
    start = time.perf_counter()
    inferred = shape_inference.infer_shapes(model, data_prop=True)
    counts = Counts(seconds=time.perf_counter() - start)
    judge(_written(inferred), truth, counts)
    return counts


def by_symbolic(path: Path, truth: Mapping[str, Any]) -> Counts:
    """ONNX Runtime's symbolic inference."""
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    model = _bound(path, truth)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # it leaves files behind where it runs
        return _by_symbolic(SymbolicShapeInference, model, truth)


def _by_symbolic(tool: Any, model: onnx.ModelProto, truth: Mapping[str, Any]) -> Counts:
    start = time.perf_counter()
    inferred = tool.infer_shapes(model, auto_merge=True)
    counts = Counts(seconds=time.perf_counter() - start)
    judge(_written(inferred), truth, counts)
    return counts


def by_onnx_tool(path: Path, truth: Mapping[str, Any]) -> Counts:
    """onnx-tool, which executes what shapes need on arrays; it says nothing of dtypes, so they count as right."""
    import onnx_tool

    inputs = {
        name: np.array(item["value"], item["dtype"]).reshape(item["shape"])
        if "value" in item
        else np.zeros(item["shape"], item["dtype"])
        for name, item in truth["inputs"].items()
        if "shape" in item and item["dtype"] != "object"
    }
    start = time.perf_counter()
    model = onnx_tool.Model(_bound(path, truth), {"constant_folding": False, "verbose": False})
    model.graph.shape_infer(inputs)
    counts = Counts(seconds=time.perf_counter() - start)
    values = {}
    labels = {dtype.label: dtype for dtype in DataType}
    for name, tensor in model.graph.tensormap.items():
        shape = tuple(int(size) for size in tensor.get_shape()) if tensor.get_shape() is not None else None
        dtype = labels.get(truth["values"].get(name, {}).get("dtype", ""))
        values[name] = Value(dtype=dtype, shape=shape)
    judge(values, truth, counts)
    return counts


def other_tools() -> tuple[dict[str, Callable[[Path, Mapping[str, Any]], Counts]], list[str]]:
    """The tools that can be imported here, and a note for each that can't."""
    tools: dict[str, Callable[[Path, Mapping[str, Any]], Counts]] = {"onnx": by_onnx}
    notes = []
    if importlib.util.find_spec("sympy") is not None:
        tools["symbolic"] = by_symbolic
    else:
        notes.append("onnxruntime's symbolic_shape_infer is left out: it needs sympy, which is not installed")
    if importlib.util.find_spec("onnx_tool") is not None:
        tools["onnx-tool"] = by_onnx_tool
    else:
        notes.append("onnx-tool is left out: it is not installed")
    return tools, notes


# --- The folder -------------------------------------------------------------------------------------------------------


def _judged(outcome: Outcome, values: int) -> Counts:
    """The counts of an outcome; where there are none, all values are unknown."""
    counts = Counts(unknown=values, error=outcome.error) if outcome.result is None else outcome.result
    counts.megabytes = outcome.megabytes
    return counts


def judged_model(path: Path, name: str, truth: Mapping[str, Any] | None, *, compare: bool) -> Row:
    """Everything about one model."""
    row = Row(model=name, has_truth=truth is not None, values=len(truth["values"]) if truth else 0)
    for attribute, with_values in (("shapes_only", False), ("with_values", True)):
        if truth is None and with_values:
            break
        outcome = apart(lambda with_values=with_values: ours(path, truth, with_values=with_values))
        if outcome.result is None:
            setattr(row, attribute, _judged(outcome, row.values))
            continue
        facts: Facts = outcome.result
        facts.counts.megabytes = outcome.megabytes
        row.nodes, row.operators, row.values = facts.nodes, facts.operators, facts.values
        row.unsupported, row.reasons = facts.unsupported, facts.reasons
        setattr(row, attribute, facts.counts)
    if compare and truth is not None:
        for tool, call in other_tools()[0].items():
            counts = _judged(apart(lambda call=call: call(path, truth)), row.values)
            counts.examples.clear()
            row.others[tool] = counts
    return row


def judge_folder(folder: Path, *, compare: bool, only: str) -> list[Row]:
    """A row for each model under the folder, those with a truth first."""
    truths = {}
    for path in sorted((folder / "truth").glob("*.json")):
        truth = json.loads(path.read_text())
        truths[truth["model"]] = truth
    loads: dict[str, bool] = {}
    if (folder / "index.csv").is_file():
        with (folder / "index.csv").open(newline="") as handle:
            for entry in csv.DictReader(handle):
                loads[entry["file"]] = entry["ort_loads"] == "ok"
    rows = []
    names = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*.onnx"))]
    for name in sorted(names, key=lambda name: name not in truths):
        if only in name:
            row = judged_model(folder / name, name, truths.get(name), compare=compare)
            row.loads = loads.get(name, True)
            rows.append(row)
    return rows


# --- Scale ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Seconds of CPU for two chains; seconds and megabytes for 2 GiB of weights, and megabytes for a small model."""

    short_s: float
    long_s: float
    big_s: float
    big_megabytes: float
    small_megabytes: float

    @property
    def faults(self) -> list[str]:
        found = []
        if self.long_s > CHAIN_RATIO * self.short_s:
            found.append(f"100,000 nodes take {self.long_s / self.short_s:.1f} times as long as 10,000")
        if self.big_s > BIG_SECONDS:
            found.append(f"2 GiB of weights take {self.big_s:.2f} s")
        if self.big_megabytes - self.small_megabytes > BIG_MEGABYTES:
            found.append(f"2 GiB of weights take {self.big_megabytes - self.small_megabytes:.0f} MB")
        return found


def chain(length: int) -> bytes:
    """Relu after Relu."""
    nodes = [helper.make_node("Relu", [f"v{index}"], [f"v{index + 1}"]) for index in range(length)]
    shown = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [8, 8]) for name in ("v0", f"v{length}")]
    graph = helper.make_graph(nodes, "chain", shown[:1], shown[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


def _varint(number: int) -> bytes:
    result = b""
    while number > 127:
        result += bytes([number & 127 | 128])
        number >>= 7
    return result + bytes([number])


def write_big(path: Path, rows: int) -> None:
    """y = x (b, 1024) @ w (rows, 1024)^T with inline weights: a sparse file, protobuf's bytes written by hand.

    Field numbers: a tensor's dims 1, data_type 2, name 8, raw_data 9; a graph's node 1, initializer 5, input 11,
    output 12; a model's ir_version 1, graph 7, opset_import 8.
    """
    size = rows * 1024 * 4
    head = b"\x08" + _varint(rows) + b"\x08" + _varint(1024) + b"\x10\x01" + b"\x42\x01w" + b"\x4a" + _varint(size)
    node = helper.make_node("Gemm", ["x", "w"], ["y"], transB=1).SerializeToString()
    shown = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape).SerializeToString()
        for name, shape in (("x", ["b", 1024]), ("y", ["b", rows]))
    ]
    main = b"\x0a" + _varint(len(node)) + node
    main += b"".join(key + _varint(len(each)) + each for key, each in zip((b"\x5a", b"\x62"), shown, strict=True))
    main += b"\x2a" + _varint(len(head) + size) + head
    content = b"\x08\x08\x42\x02\x10\x11\x3a" + _varint(len(main) + size) + main
    with path.open("wb") as file:
        file.write(content)
        file.truncate(len(content) + size)


def scale() -> Scale:
    """``inspect`` of chains and of a big file: reading, inference, lowering."""

    def seconds_of(content: bytes) -> float:
        start = time.process_time()
        inspect_model(read_model_bytes(content))
        return time.process_time() - start

    def of_file(path: Path) -> float:
        start = time.perf_counter()
        inspect_model(path)
        return time.perf_counter() - start

    small_chain, long_chain = chain(10_000), chain(100_000)
    shorts, longs = [], []
    for _ in range(2):  # in turn, so that a machine's slow moments meet both
        shorts += [apart(lambda: seconds_of(small_chain)).result for _ in range(4)]
        longs.append(apart(lambda: seconds_of(long_chain)).result)
    short, long = statistics.median(shorts), min(longs)
    with tempfile.TemporaryDirectory() as folder:
        outcomes = []
        for rows in (1024, 524_288):
            path = Path(folder) / f"{rows}.onnx"
            write_big(path, rows)
            outcomes.append(apart(lambda path=path: of_file(path)))
    small, big = outcomes
    return Scale(
        short_s=short,
        long_s=long,
        big_s=big.result,
        big_megabytes=big.megabytes,
        small_megabytes=small.megabytes,
    )


# --- Printing ---------------------------------------------------------------------------------------------------------


def print_text(rows: list[Row], sizes: Scale | None, *, verbose: bool) -> None:
    tools = list(dict.fromkeys(tool for row in rows for tool in row.others))
    print(
        f"{platform.machine()}, {os.cpu_count()} CPU cores, Python {platform.python_version()}, onnx {onnx.__version__}"
    )
    for note in other_tools()[1]:
        print(note)
    print(
        f"\n{'model':52} {'nodes':>6} {'ops':>4} {'unsup':>5} {'values':>6} | {'right':>6} {'bound':>5} {'wrong':>5} "
        f"{'unkn':>5} {'ms':>7} {'MB':>5} | with values: bound, wrong"
        + "".join(f" | {tool + ': wrong, unknown, ms':>28}" for tool in tools)
    )
    for row in rows:
        a, b = row.shapes_only, row.with_values
        right, wrong = (f"{a.right:6}", f"{a.wrong:5}") if row.has_truth else (f"{a.right:5}?", "    ?")
        line = (
            f"{row.model[-52:]:52} {row.nodes:6} {row.operators:4} {row.unsupported:5} {row.values:6} | {right} "
            f"{a.bounded:5} {wrong} {a.unknown:5} {1000 * a.seconds:7.1f} {a.megabytes:5.0f} | "
        )
        line += f"{b.bounded:18} {b.wrong:6}" if row.has_truth else " " * 25
        for tool in tools:
            counts = row.others.get(tool)
            shown = "" if counts is None else f"{counts.wrong:8} {counts.unknown:8} {1000 * counts.seconds:10.1f}"
            line += f" | {shown:>28}"
        print(line)
        for counts, who in ((a, "error"), (b, "error with values"), *((row.others[tool], tool) for tool in row.others)):
            if counts.error:
                print(f"    {who}: {counts.error[:150]}")
        if row.unsupported:
            print(f"    not supported: {'; '.join(row.reasons)[:300]}")
        if verbose or b.wrong or (a.wrong and not row.has_truth):
            for example in dict.fromkeys([*a.examples, *b.examples]):
                print(f"    {example}")
    _print_totals([row for row in rows if row.has_truth], tools)
    untold = [row for row in rows if not row.has_truth]
    print(
        f"{len(untold)} models without a truth: {sum(row.values for row in untold):,} values, "
        f"{sum(row.shapes_only.bounded for row in untold)} bounded, "
        f"{sum(row.shapes_only.unknown for row in untold)} unknown"
    )
    print(
        f"all {len(rows)} models: {sum(row.nodes for row in rows):,} nodes, {sum(row.unsupported for row in rows)} not "
        f"supported, {sum(bool(row.shapes_only.error or row.with_values.error) for row in rows)} refused, at most "
        f"{max((row.shapes_only.megabytes for row in rows), default=0):.0f} MB for one"
    )
    if sizes is not None:
        print(
            f"\nchain of 10,000 nodes {sizes.short_s:.2f} s of CPU, of 100,000 {sizes.long_s:.2f} s: "
            f"{sizes.long_s / sizes.short_s:.1f} times (target {CHAIN_RATIO:g})\n"
            f"2 GiB of inline weights {sizes.big_s:.3f} s (target {BIG_SECONDS:g}), {sizes.big_megabytes:.1f} MB, a "
            f"small model {sizes.small_megabytes:.1f} MB (target: {BIG_MEGABYTES:g} more)"
        )


def _print_totals(rows: list[Row], tools: list[str]) -> None:
    print(f"\n{len(rows)} models with a truth, {sum(row.values for row in rows):,} values")
    totals = {"shapes only": [row.shapes_only for row in rows], "with values": [row.with_values for row in rows]}
    totals.update({tool: [row.others[tool] for row in rows if tool in row.others] for tool in tools})
    for label, members in totals.items():
        total = Counts()
        for counts in members:
            total.add(counts)
        failed = sum(counts.error is not None for counts in members)
        print(
            f"  {label:12} right {total.right:,}, bounded {total.bounded}, wrong {total.wrong}, unknown "
            f"{total.unknown:,}, {total.seconds:.2f} s, at most {total.megabytes:.0f} MB, failed on {failed} models"
        )


def faults_of(rows: list[Row], sizes: Scale | None) -> list[str]:
    """What misses a target."""
    found = []
    for row in rows:
        counts = row.with_values if row.has_truth else row.shapes_only
        errors = {row.shapes_only.error, row.with_values.error} - {None}
        found += [f"{row.model}: {error}" for error in errors]
        if counts.wrong:
            found.append(f"{row.model}: {counts.wrong} values are wrong")
        if counts.unknown:
            found.append(f"{row.model}: {counts.unknown} values are unknown")
        if row.unsupported and row.loads:
            found.append(f"{row.model}: {row.unsupported} nodes are not supported ({'; '.join(row.reasons)[:150]})")
    return found + (sizes.faults if sizes is not None else [])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--only", default="", help="judge only models whose path contains this")
    parser.add_argument("--no-others", action="store_true", help="leave other tools out")
    parser.add_argument("--no-scale", action="store_true", help="leave chains and the big file out")
    parser.add_argument("--verbose", action="store_true", help="name each value that is not right")
    options = parser.parse_args()
    rows = judge_folder(options.models.resolve(), compare=not options.no_others, only=options.only)
    if not rows:
        print(f"{options.models}: no .onnx file in it", file=sys.stderr)
        return 2
    sizes = None if options.no_scale else scale()
    faults = faults_of(rows, sizes)
    if options.format == "json":
        document = {
            "models": [asdict(row) for row in rows],
            "scale": asdict(sizes) if sizes else None,
            "faults": faults,
        }
        print(json.dumps(document, indent=1))
    else:
        print_text(rows, sizes, verbose=options.verbose)
        print(f"\n{len(faults)} targets missed" if faults else "\nall targets met")
        for fault in faults:
            print(f"  {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
