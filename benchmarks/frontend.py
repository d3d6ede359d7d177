"""Judges the front end on a folder of real models: ``python benchmarks/frontend.py MODELS [--format json]``.

``MODELS`` holds .onnx files and truth/*.json, each with the inputs that a model was run with and the dtype and shape
that every value of its main graph then had. For each model with a truth: nodes, values with right, bounded, wrong and
unknown shape, seconds; beside it the same counts for ``onnx.shape_inference`` (strict mode off, data propagation on)
with the same inputs bound. Then the models without a truth, with default bindings: values of unknown shape.

A value counts as *right* if dtype and shape are those of the run, *bounded* if the result says that it is a bound and
the run's dimensions lie between its ends, *wrong* if it is neither, *unknown* if no shape was found. Two passes:
shapes of the inputs only, and with the content of small inputs of integers and booleans as well (``--value``).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import shape_inference

from neusight_onnx.dtypes import BY_ONNX_CODE
from neusight_onnx.errors import NeusightError
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.model import Array, InferredGraph, Value
from neusight_onnx.graph.read import read_model
from neusight_onnx.graph.shapes import infer

_VALUE_ELEMENTS = 16
"""Inputs up to this size are given with their content in the second pass: scalars and small vectors, no token ids."""


@dataclass(kw_only=True)
class Counts:
    """How many values came out how; ``examples`` names what is not right."""

    right: int = 0
    bounded: int = 0
    wrong: int = 0
    unknown: int = 0
    seconds: float = 0.0
    error: str | None = None
    examples: list[str] = field(default_factory=list)

    def add(self, other: Counts) -> None:
        self.right += other.right
        self.bounded += other.bounded
        self.wrong += other.wrong
        self.unknown += other.unknown
        self.seconds += other.seconds


@dataclass(kw_only=True)
class Row:
    """One model."""

    model: str
    nodes: int
    values: int
    shapes_only: Counts
    with_values: Counts
    onnx: Counts | None = None


def _recorded_bindings(truth: Mapping[str, Any], *, with_values: bool) -> Bindings:
    shapes = {name: tuple(item["shape"]) for name, item in truth["inputs"].items() if "shape" in item}
    values: dict[str, Array] = {}
    if with_values:
        for name, item in truth["inputs"].items():
            if item.get("dtype", "").startswith(("int", "uint", "bool")) and "value" in item:
                array = np.array(item["value"], item["dtype"]).reshape(item["shape"])
                if array.size <= _VALUE_ELEMENTS:
                    values[name] = array
    return Bindings(shapes=shapes, values=values)


def _judge(values: Mapping[str, Value], truth: Mapping[str, Any], counts: Counts) -> None:
    for name, item in truth["values"].items():
        value = values.get(name)
        shape = None if value is None else value.shape
        if "sequence" in item:
            known = None if value is None else value.elements
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
            continue
        expected = tuple(item["shape"])
        if value is None or shape is None:
            counts.unknown += 1
            counts.examples.append(
                f"{name}: unknown because of {value.unknown_because if value else 'no node'}, is {list(expected)}"
            )
            continue
        label = None if value.dtype is None else value.dtype.label.replace("string", "object")
        if label == item["dtype"] and shape == expected and not value.is_bound:
            counts.right += 1
        elif (
            label == item["dtype"]
            and value.is_bound
            and len(shape) == len(expected)
            and all(
                low <= b <= a for low, b, a in zip(value.shape_low or (0,) * len(shape), expected, shape, strict=True)
            )
        ):
            counts.bounded += 1
        else:
            counts.wrong += 1
            bound = " (bound)" if value.is_bound else ""
            counts.examples.append(f"{name}: {label} {list(shape)}{bound} is {item['dtype']} {list(expected)}")


def ours(path: Path, truth: Mapping[str, Any], *, with_values: bool) -> tuple[Counts, int, InferredGraph | None]:
    """Our counts for one model, its number of nodes, and the inference itself."""
    counts = Counts()
    start = time.perf_counter()
    try:
        model = read_model(path)
        start = time.perf_counter()
        result = infer(model, _recorded_bindings(truth, with_values=with_values))
    except NeusightError as error:
        counts.error = str(error)
        counts.unknown = len(truth["values"])
        return counts, 0, None
    counts.seconds = time.perf_counter() - start
    _judge(result.values, truth, counts)
    return counts, len(model.graph.nodes), result


def theirs(path: Path, truth: Mapping[str, Any]) -> Counts:
    """The counts of onnx's own inference with the inputs' shapes bound."""
    counts = Counts()
    model = onnx.load(str(path), load_external_data=False)
    for graph_input in model.graph.input:
        recorded = truth["inputs"].get(graph_input.name)
        if recorded is None or "shape" not in recorded or not graph_input.type.HasField("tensor_type"):
            continue
        shape = graph_input.type.tensor_type.shape
        del shape.dim[:]
        for size in recorded["shape"]:
            shape.dim.add().dim_value = size
    start = time.perf_counter()
    try:
        inferred = shape_inference.infer_shapes(model, data_prop=True)
    except (shape_inference.InferenceError, RuntimeError, ValueError) as error:
        counts.error = str(error).splitlines()[0] if str(error) else type(error).__name__
        counts.unknown = len(truth["values"])
        return counts
    counts.seconds = time.perf_counter() - start
    values: dict[str, Value] = {}
    for info in [*inferred.graph.value_info, *inferred.graph.output]:
        if not info.type.HasField("tensor_type"):
            continue
        tensor = info.type.tensor_type
        dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
        known = tensor.HasField("shape") and None not in dims
        values[info.name] = Value(
            dtype=BY_ONNX_CODE.get(tensor.elem_type),
            shape=tuple(dim for dim in dims if dim is not None) if known else None,
        )
    _judge(values, truth, counts)
    counts.examples.clear()
    return counts


def judge_folder(folder: Path, *, compare: bool, only: str) -> tuple[list[Row], list[dict[str, Any]]]:
    """A row for each model with a truth, and for each without: its unknown values with default bindings."""
    rows = []
    judged = set()
    for truth_path in sorted((folder / "truth").glob("*.json")):
        truth = json.loads(truth_path.read_text())
        if only not in truth["model"]:
            judged.add(truth["model"])
            continue
        path = folder / truth["model"]
        judged.add(truth["model"])
        shapes_only, nodes, _ = ours(path, truth, with_values=False)
        with_values, _, _ = ours(path, truth, with_values=True)
        rows.append(
            Row(
                model=truth["model"],
                nodes=nodes,
                values=len(truth["values"]),
                shapes_only=shapes_only,
                with_values=with_values,
                onnx=theirs(path, truth) if compare else None,
            )
        )
    others = []
    for path in sorted(folder.rglob("*.onnx")):
        name = str(path.relative_to(folder))
        if name in judged or only not in name:
            continue
        start = time.perf_counter()
        entry: dict[str, Any] = {"model": name, "values": 0, "unknown": 0, "bounded": 0, "error": None}
        try:
            result = infer(read_model(path), Bindings())
        except NeusightError as error:
            entry["error"] = str(error)
        else:
            named = [output for node in result.graph.nodes for output in node.outputs if output]
            entry["values"] = len(named)
            found = [result.values[output] for output in named]
            entry["bounded"] = sum(value.is_bound for value in found)
            lost = [value for value in found if value.shape is None and value.elements is None]
            entry["unknown"] = len(lost)
            entry["because"] = sorted({value.unknown_because or "?" for value in lost})[:5]
        entry["seconds"] = time.perf_counter() - start
        others.append(entry)
    return rows, others


def _print_text(rows: list[Row], others: list[dict[str, Any]], *, verbose: bool) -> None:
    header = f"{'model':58} {'nodes':>6} {'values':>6} | {'right':>6} {'bound':>5} {'wrong':>5} {'unkn':>5} {'ms':>6}"
    header += f" | {'bound':>5} {'wrong':>5} {'unkn':>5} with values | {'wrong':>5} {'unkn':>5} {'ms':>6} onnx"
    print(header)
    totals = [Counts(), Counts(), Counts()]
    for row in rows:
        a, b, c = row.shapes_only, row.with_values, row.onnx or Counts()
        for total, counts in zip(totals, (a, b, c), strict=True):
            total.add(counts)
        print(
            f"{row.model[-58:]:58} {row.nodes:6} {row.values:6} | {a.right:6} {a.bounded:5} {a.wrong:5} {a.unknown:5} "
            f"{1000 * a.seconds:6.1f} | {b.bounded:5} {b.wrong:5} {b.unknown:5}             | "
            f"{c.wrong:5} {c.unknown:5} {1000 * c.seconds:6.1f}"
        )
        if a.error or b.error:
            print(f"    error: {a.error or b.error}")
        if c.error:
            print(f"    onnx: {c.error[:120]}")
        if verbose or a.wrong or b.wrong:
            for example in dict.fromkeys([*a.examples, *b.examples]):
                print(f"    {example}")
    a, b, c = totals
    print(f"\n{len(rows)} models, {sum(row.values for row in rows)} values")
    for label, counts in (("shapes only", a), ("with values", b), ("onnx", c)):
        print(
            f"  {label:12} right {counts.right}, bounded {counts.bounded}, wrong {counts.wrong}, "
            f"unknown {counts.unknown}, {counts.seconds:.2f} s"
        )
    print(f"\nmodels without a truth: {len(others)}; those with unknown values or an error:")
    for entry in others:
        if entry["error"] or entry["unknown"]:
            print(f"  {entry['model']}: {entry['unknown']} of {entry['values']} unknown {entry.get('because', '')}")
            if entry["error"]:
                print(f"    {entry['error'][:300]}")
    values = sum(entry["values"] for entry in others)
    unknown = sum(entry["unknown"] for entry in others)
    bounded = sum(entry["bounded"] for entry in others)
    print(f"  {values} values, {unknown} unknown, {bounded} bounded")


def main() -> int:
    """Exit status 1 if a model that has a truth can't be inferred, or a value is wrong with the inputs' content given.

    (Shapes of inputs alone can't decide what their content decides; the table shows those values as well.)
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("models", type=Path)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--only", default="", help="judge only models whose path contains this")
    parser.add_argument("--no-onnx", action="store_true", help="leave onnx's own inference out")
    parser.add_argument("--verbose", action="store_true", help="name each value that is not right")
    arguments = parser.parse_args()
    if not (arguments.models / "truth").is_dir():
        print(f"{arguments.models}: no folder truth/ in it", file=sys.stderr)
        return 2
    rows, others = judge_folder(arguments.models, compare=not arguments.no_onnx, only=arguments.only)
    if arguments.format == "json":
        print(json.dumps({"models": [asdict(row) for row in rows], "without_truth": others}, indent=1))
    else:
        _print_text(rows, others, verbose=arguments.verbose)
    faulty = any(row.with_values.wrong or row.with_values.error or row.shapes_only.error for row in rows)
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
