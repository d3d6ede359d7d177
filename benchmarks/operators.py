"""What PyTorch executed inside real models, beside the kernels that the graph is lowered to.

    python benchmarks/operators.py SHARED [MODEL ...]

SHARED is the folder with ``data/neusight/operators_in_models_dev.parquet`` (operators measured one by one inside the
models; one layer is listed, the others are equal) and ``models/neusight/``. For each model the operators outside the
layers and those of the first layer are listed in the measured order, each with the kernel of ours that it is matched
with: same class, same name of the operation, same number of elements written. What is left on either side needs an
explanation below; the exit code is 1 if something has none.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from neusight_onnx.fusion.patterns import recognise
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.read import read_model
from neusight_onnx.graph.shapes import infer
from neusight_onnx.kernels import (
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
from neusight_onnx.lowering import lower

Row = dict[str, Any]
MODELS = {
    "bert_large": "bert_large",
    "gpt2_large": "gpt2_large",
    "gpt3_xl": "gpt3_xl",
    "gpt3_27": "gpt3_2.7b",
    "opt_13": "opt_1.3b",
}
"""Names of the measurements and of the model files."""

LATER_LAYER = re.compile(r"(?:layer|layers|h)\.([1-9]\d*)/")

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

MEASURED_ONLY = {
    "fill": "positions from the shape alone: known before the run",
    "add": "positions from the shape alone: known before the run",
}
"""Why a measured operator of little work has no kernel of ours; asked only for what happens once, never in a layer."""

INSIDE = "copy inside matmul"

OURS_ONLY = {
    INSIDE: "PyTorch copies inside matmul: measured as part of it",
    "cast": "the export casts positions that PyTorch finds to be integers already",
}


@dataclass(frozen=True)
class Operator:
    """One line of either list: operation, elements written, where it stands, what it took (measured ones)."""

    name: str
    elements: int
    where: str
    detail: str
    in_layer: bool
    latency_ms: float = 0.0


def measured(rows: list[Row]) -> list[Operator]:
    """Operators with a kernel, in order of execution."""
    found = []
    layer = False
    for row in rows:
        node = row["node"]
        layer = layer or bool(re.search(r"layers?_0_|_h_0_", node))
        if re.search(r"pooler|ln_f|final_layer_norm$|lm_head", node) and "layers_0" not in node:
            layer = False
        name = _measured_name(node, row["op"])
        shape = ast.literal_eval(row["output_shape"])
        if name in HOST or prod(shape) == 1 or row["op"] in ("placeholder", "output", "get_attr"):
            continue
        if name in DECIDED_BY_TIME and row["latency_ms"] < 0.02:
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
        if LATER_LAYER.search(work.node):
            continue
        in_layer = bool(re.search(r"(?:layer|layers|h)\.0/", work.node))
        for kernel in work.kernels:
            name, elements = _described(kernel)
            if name == "copy" and work.op_type == "MatMul":
                name = INSIDE
            detail = f"{work.op_type} {work.node}"
            found.append(Operator(name=name, elements=elements, where=work.node, detail=detail, in_layer=in_layer))
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


def compare(name: str, rows: list[Row], works: tuple[NodeWork, ...]) -> list[str]:
    """Prints both lists side by side; returns the differences that have no explanation."""
    theirs = measured(rows)
    open_kernels: dict[tuple[str, int, bool], list[Operator]] = defaultdict(list)
    mine = ours(works)
    for operator in mine:
        open_kernels[operator.name, operator.elements, operator.in_layer].append(operator)
    unexplained = []
    print(f"\n{name}: {len(theirs)} measured operators with a kernel, {len(mine)} kernels of ours")
    for layer in (False, True):
        print(f"  {'first layer' if layer else 'once'}")
        for operator in (item for item in theirs if item.in_layer == layer):
            waiting = open_kernels[operator.name, operator.elements, layer]
            if waiting:
                verdict = f"= {waiting.pop(0).detail}"
            else:
                reason = None if layer else MEASURED_ONLY.get(operator.name)
                verdict = f"- {reason or 'NOT IN OURS'}"
                if reason is None:
                    unexplained.append(f"{name}: {operator.where} {operator.detail} is not in ours")
            print(f"    {operator.where:52.52} {operator.elements:>11} {operator.latency_ms:9.3f} ms {verdict}")
    for operator in (item for waiting in open_kernels.values() for item in waiting):
        reason = OURS_ONLY.get(operator.name)
        if operator.in_layer and operator.name != INSIDE:
            reason = None
        if operator.elements <= 1:
            reason = "one number"
        print(f"    {'':52} {operator.elements:>11} {'':12} + {operator.detail}: {reason or 'NOT MEASURED'}")
        if reason is None:
            unexplained.append(f"{name}: {operator.name} of {operator.detail} was not measured")
    layer_kernels = [operator for operator in mine if operator.in_layer]
    hidden = sum(operator.name == INSIDE for operator in layer_kernels)
    print(f"  a layer: {len(layer_kernels) - hidden} kernels and {hidden} copies inside matmul")
    return unexplained


def main(arguments: list[str]) -> int:
    shared = Path(arguments[0])
    table = pq.read_table(shared / "data" / "neusight" / "operators_in_models_dev.parquet").to_pylist()
    unexplained = []
    for name in arguments[1:] or MODELS:
        rows = [row for row in table if row["model"] == name and row["mode"] == "inf"]
        if not rows:
            print(f"{name}: not measured in inference")
            continue
        batch, gpu = min((-row["batch"], row["gpu"]) for row in rows)
        batch = -batch
        chosen = [row for row in rows if (row["batch"], row["gpu"]) == (batch, gpu)]
        sequence = chosen[0]["sequence"]
        model = read_model(shared / "models" / "neusight" / f"{MODELS[name]}.onnx")
        graph = infer(model, Bindings(dims={"batch": batch, "seq": sequence}))
        works = lower(recognise(graph, runtime="eager"), runtime="eager")
        title = f"{name} (batch {batch}, sequence {sequence}, measured on {gpu})"
        unexplained += compare(title, chosen, works)
    print()
    for line in unexplained:
        print(f"unexplained: {line}")
    print(f"{len(unexplained)} unexplained differences")
    return 1 if unexplained else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python benchmarks/operators.py SHARED [MODEL ...]")
    sys.exit(main(sys.argv[1:]))
