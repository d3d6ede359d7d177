"""What a model is made of, for a reader and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from neusight_onnx.graph.names import option
from neusight_onnx.report.grouping import folded, unsupported_groups
from neusight_onnx.report.json_text import Json, json_text
from neusight_onnx.report.layout import Canvas, bar, bullets, columns, facts, heading, render
from neusight_onnx.report.machine import notice_json, value_json
from neusight_onnx.report.model import SCHEMA_VERSION, Inspection, NestedInts, ValueFacts
from neusight_onnx.report.quantities import (
    NAME_WIDTH,
    capacity,
    counted,
    parameters,
    percent,
    printable,
    scaled,
    shape_text,
    shorten,
)

if TYPE_CHECKING:
    from rich.console import RenderableType


def inspection_to_json(inspection: Inspection, *, with_values: bool) -> str:
    """The inspection as JSON; ``with_values`` adds dtype and shape of every value."""
    document: dict[str, Json] = {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "neusight-onnx", "version": inspection.tool_version},
        "model": {
            "path": inspection.path,
            "sha256": inspection.sha256,
            "file_bytes": inspection.byte_count,
            "ir_version": inspection.ir_version,
            "producer": inspection.producer,
            "opsets": dict(inspection.opsets),
            "node_count": inspection.node_count,
            "parameter_count": inspection.parameter_count,
            "weight_bytes": inspection.weight_bytes,
            "macs": inspection.macs,
            "flops": inspection.flops,
            "partial": inspection.partial,
        },
        "symbols": {
            symbol.name: {"size": symbol.size, "source": "given" if symbol.given else "default"}
            for symbol in inspection.symbols
        },
        "inputs": [
            {
                "name": value.name,
                "kind": value.kind,
                "dtype": value.dtype,
                "declared": None if value.declared is None else list(value.declared),
                "shape": None if value.shape is None else list(value.shape),
            }
            for value in inspection.inputs
        ],
        "outputs": [value_json(value) for value in inspection.outputs],
        "operators": dict(inspection.operators),
        "unsupported": [
            {"node": node.node, "op_type": node.op_type, "reason": node.reason} for node in inspection.unsupported
        ],
        "assumptions": list(inspection.assumptions),
        "warnings": [notice_json(notice) for notice in inspection.warnings],
    }
    if with_values:
        document["values"] = _values(inspection.values)
        document["bodies"] = {place: _values(values) for place, values in inspection.bodies.items()}
    return json_text(document)


def inspection_to_terminal(inspection: Inspection, canvas: Canvas, *, with_values: bool) -> str:
    """The inspection for a reader; ``with_values`` adds a table of every value."""
    from rich.text import Text

    opsets = ", ".join(f"{printable(domain) or 'ai.onnx'} {version}" for domain, version in inspection.opsets.items())
    least = "at least " if inspection.partial else ""
    work = f"{least}{scaled(inspection.macs, 'MAC')}, {scaled(inspection.flops, 'FLOP')} a run"
    if inspection.partial and not inspection.flops:
        work = "unknown: see 'Not supported'"
    rows: list[tuple[str, RenderableType]] = [
        ("Nodes", Text(f"{inspection.node_count:,} of {counted(len(inspection.operators), 'operator')}")),
        (
            "Parameters",
            Text(f"{parameters(inspection.parameter_count)} in {capacity(inspection.weight_bytes)} of weights"),
        ),
        ("Work", Text(work)),
        ("Opsets", Text(opsets)),
        ("Producer", Text(printable(inspection.producer) or "not stated")),
        ("File", Text(f"{capacity(inspection.byte_count)}, IR version {inspection.ir_version}")),
        ("SHA-256", Text(inspection.sha256, style="dim")),
    ]
    parts: list[RenderableType] = [Text(printable(inspection.path), style="bold"), facts(rows)]
    if inspection.symbols:
        table = [
            (
                f"  {printable(symbol.name)}",
                str(symbol.size),
                "given" if symbol.given else f"default; {option('--dim', symbol.name, 'N')} changes it",
            )
            for symbol in inspection.symbols
        ]
        parts += [
            heading("Symbolic dims"),
            columns((("  name", "left"), ("size", "right"), ("source", "fold")), table, canvas),
        ]
    inputs = [
        (
            f"  {printable(value.name)}",
            value.dtype or "?",
            "?" if value.declared is None else shape_text(value.declared),
            "?" if value.shape is None else shape_text(value.shape),
        )
        for value in inspection.inputs
    ]
    heads = (("  name", "fold"), ("dtype", "left"), ("declared", "fold"), ("as bound", "fold"))
    parts += [heading("Inputs"), columns(heads, inputs, canvas)]
    outputs = [
        (f"  {printable(value.name)}", value.dtype or "?", "?" if value.shape is None else shape_text(value.shape))
        for value in inspection.outputs
    ]
    parts += [heading("Outputs"), columns((("  name", "fold"), ("dtype", "left"), ("shape", "fold")), outputs, canvas)]
    parts += _operators(inspection, canvas)
    if inspection.unsupported:
        items = [
            f"{printable(group.op_type)}: {printable(group.reason)} ({group.extent}, "
            f"first {shorten(printable(group.node), NAME_WIDTH)})"
            for group in unsupported_groups(inspection.unsupported)
        ]
        parts += [heading("Not supported: not in the work above"), bullets(items, canvas, "red")]
    for title, items, style in (
        ("Assumptions", folded(inspection.assumptions), ""),
        ("Warnings", [notice.message for notice in inspection.warnings], "yellow"),
    ):
        if items:
            parts += [heading(title), bullets([printable(item) for item in items], canvas, style)]
    if with_values:
        parts += [heading("Values"), _values_table(inspection.values, canvas)]
        for place, values in inspection.bodies.items():
            parts += [heading(f"Values of {printable(place)}"), _values_table(values, canvas)]
    return render(parts, canvas)


def _operators(inspection: Inspection, canvas: Canvas) -> list[RenderableType]:
    from rich.text import Text

    most = max(inspection.operators.values(), default=0)
    rows = [
        (
            f"  {printable(name)}",
            f"{count:,}",
            percent(count / inspection.node_count),
            Text(bar(count / most, max(canvas.width - 52, 10), canvas), style="cyan"),
        )
        for name, count in sorted(inspection.operators.items(), key=lambda item: (-item[1], item[0]))
    ]
    if not rows:
        return []
    heads = (("  operator", "fold"), ("nodes", "right"), ("share", "right"), ("", "left"))
    return [heading("Operators"), columns(heads, rows, canvas)]


def _values_table(values: Mapping[str, ValueFacts], canvas: Canvas) -> RenderableType:
    rows = []
    for name, value in values.items():
        shape = "?" if value.shape is None else shape_text(value.shape)
        if value.elements is not None:
            shape = f"sequence of {len(value.elements)}"
        elif value.is_bound:
            shape = f"at most {shape}"
        rows.append((f"  {printable(name)}", value.dtype or "?", shape))
    return columns((("  name", "fold"), ("dtype", "left"), ("shape", "fold")), rows, canvas)


def _values(values: Mapping[str, ValueFacts]) -> dict[str, Json]:
    return {name: _facts(value) for name, value in values.items()}


def _facts(value: ValueFacts) -> dict[str, Json]:
    found: dict[str, Json] = {
        "dtype": value.dtype,
        "shape": None if value.shape is None else list(value.shape),
    }
    if value.kind != "tensor":
        found["kind"] = value.kind
    if value.is_bound:
        found["bound"] = True
    if value.value is not None:
        found["value"] = _content(value.value)
    if value.elements is not None:
        found["sequence"] = [_facts(element) for element in value.elements]
        found["len"] = len(value.elements)
    return found


def _content(value: NestedInts) -> Json:
    return [_content(member) for member in value] if isinstance(value, list) else value
