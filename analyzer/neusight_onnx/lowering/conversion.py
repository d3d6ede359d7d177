"""The whole of a file converted to 16 bits beforehand: ONNX Runtime's converter, TensorRT's builder flag, NVIDIA's."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Declared, InferredGraph, Node, Value, made_name
from neusight_onnx.lowering.precision import as_precision
from neusight_onnx.lowering.recast import CASTS, FP32, Recast, casts, is_before_the_run, listed

# DEFAULT_OP_BLOCK_LIST of onnxruntime.transformers.float16 (1.32), those of ai.onnx that take floats at run time
_BLOCKED = frozenset(
    ("", name)
    for name in (
        "CumSum",
        "Max",
        "Min",
        "NonMaxSuppression",
        "RandomUniformLike",
        "Range",
        "RoiAlign",
        "TopK",
        "Upsample",
    )
)
_BLOCKED_BY_SCHEMA = frozenset(("", name) for name in ("Celu", "NonMaxSuppression", "Range"))
"""What NVIDIA's Model Optimizer leaves in float32 (0.47, ``autocast/precisionconverter.py``): Celu, NonMaxSuppression,
and what takes no float16 by onnx's schemas at opsets 19 to 26, of the operators that may run in a kernel. It lists
Upsample, too, which its conversion to opset 19 makes a Resize."""


def converted(
    graph: InferredGraph,
    low: DataType,
    *,
    runtime: str,
    keeps_io: bool = True,
    caches: Collection[str] = (),
    by_flag: bool = False,
) -> InferredGraph:
    """``graph`` as a converter or TensorRT's builder makes it 16-bit: weights are converted beforehand.

    ``keeps_io``: inputs and outputs but those of ``caches`` keep their types, with a cast behind or before each; so do
    the operators of a converter's block list. ``by_flag``: TensorRT's builder converts it, not who makes the file.
    """
    blocked = _BLOCKED if runtime == "onnxruntime" else frozenset() if by_flag else _BLOCKED_BY_SCHEMA
    original = graph
    graph = as_precision(graph, low)
    work = Recast(low=low, is_traced=True, shares_casts=True, caches_weights=False, values=dict(graph.values))
    kept = {item.name for item in (*original.graph.inputs, *original.graph.outputs) if item.name not in caches}
    if not keeps_io:
        kept = set()
    renamed = _cast_inputs(original, kept, work)
    outputs = {name for name in kept if _is_wide(original.values.get(name))}
    for node in graph.graph.nodes:
        if is_before_the_run(node, work.values):
            work.nodes.append(node)
            continue
        if not renamed.keys().isdisjoint(node.inputs):
            node = replace(node, inputs=tuple(renamed.get(name, name) for name in node.inputs))
        if (node.domain, node.op_type) in blocked:
            _run_wide(node, work)
        else:
            work.nodes.append(node)
    declared_outputs = []
    for declared in graph.graph.outputs:
        if declared.name in outputs and work.is_plain(declared.name) and work.nodes:
            declared_outputs.append(_cast_output(declared, work))
        else:
            declared_outputs.append(declared)
    said = _said(work, runtime, keeps_io=keeps_io, converts_caches=bool(caches), by_flag=by_flag)
    return replace(
        graph,
        graph=replace(
            graph.graph,
            nodes=tuple(work.nodes),
            outputs=tuple(declared_outputs),
            inputs=tuple(
                stored if stored.name in kept else made
                for stored, made in zip(original.graph.inputs, graph.graph.inputs, strict=True)
            ),
        ),
        values=work.values,
        assumptions=(*graph.assumptions, said),
    )


def _said(work: Recast, runtime: str, *, keeps_io: bool, converts_caches: bool, by_flag: bool) -> str:
    """Who converted the file, what keeps its type, and how many casts that takes."""
    if by_flag:
        who = "TensorRT's builder flag"
    elif runtime == "tensorrt":
        who = "a conversion of the file as NVIDIA's Model Optimizer's"
    elif work.low is DataType.FLOAT16:
        who = "ONNX Runtime's float16 conversion"
    else:
        who = "a conversion as ONNX Runtime's for float16, which makes no other type"
    said = [
        f"{work.low.label} by {who}: weights are converted beforehand, inputs and outputs "
        + ("keep their types" if keeps_io else "too")
        + (", but for keys and values of earlier tokens" if keeps_io and converts_caches else ""),
        f"{casts(work.activation_casts)} a run",
    ]
    if work.wide:
        said.append(f"in float32 by its block list: {listed(work.wide)}")
    if by_flag:
        said.append("a layer takes it where that is quicker")
    return "; ".join(said)


def _is_wide(value: Value | None) -> bool:
    return value is not None and value.dtype is FP32 and value.kind == "tensor"


def _cast_inputs(graph: InferredGraph, kept: Collection[str], work: Recast) -> dict[str, str]:
    """Casts behind the inputs of ``kept`` that something reads; the names that then stand for them."""
    read = {name for node in graph.graph.nodes for name in node.inputs}
    renamed = {}
    for declared in graph.graph.inputs:
        value = graph.values.get(declared.name)
        if value is None or not _is_wide(value) or declared.name not in kept:
            continue
        work.values[declared.name] = value
        if declared.name in read:
            first = next(node for node in graph.graph.nodes if declared.name in node.inputs)
            renamed[declared.name] = work.as_type(first, declared.name, work.low)
    return renamed


def _cast_output(declared: Declared, work: Recast) -> Declared:
    last = next((node for node in reversed(work.nodes) if declared.name in node.outputs), work.nodes[-1])
    return replace(declared, name=work.as_type(last, declared.name, FP32), dtype=FP32)


def _run_wide(node: Node, work: Recast) -> None:
    """A node of the block list between casts: to float32 before it, back behind it."""
    work.wide[node.op_type] += 1
    inputs = tuple(
        name if (value := work.values.get(name)) is None or value.is_constant else work.as_type(node, name, FP32)
        for name in node.inputs
    )
    narrow = [name for name in node.outputs if work.is_plain(name)]
    wide = {name: made_name(name, FP32.label) for name in narrow}
    work.nodes.append(replace(node, inputs=inputs, outputs=tuple(wide.get(name, name) for name in node.outputs)))
    for name, made in wide.items():
        value = work.values[name]
        work.values[made] = work.typed(value, FP32, runs=False)
        work.nodes.append(
            Node(
                name=made_name(node.name, "cast", made),
                op_type="Cast",
                version=13,
                inputs=(made,),
                outputs=(name,),
                attributes=CASTS[work.low, False],
                origins=node.stands_for,
            )
        )
        work.cast[name, FP32] = made
        work.activation_casts += 1
