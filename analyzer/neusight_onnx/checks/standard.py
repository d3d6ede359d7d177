"""NSX2xx, too: what of a file breaks the standard, so that ONNX Runtime, which looks, refuses to load it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from neusight_onnx.checks.registry import Found, Scope, checks
from neusight_onnx.checks.subject import Subject
from neusight_onnx.graph.bodies import nodes_of
from neusight_onnx.graph.model import InferredGraph, Node, Value, file_name
from neusight_onnx.graph.schema_types import Types, lacking_type
from neusight_onnx.graph.signatures import first_version
from neusight_onnx.graph.versions import OPEN_DOMAIN
from neusight_onnx.report.quantities import counted
from neusight_onnx.report.verdict import Severity
from neusight_onnx.runtime import get_runtime

_SEVERITIES = {"onnxruntime": Severity.ERROR, "tensorrt": Severity.WARNING}
"""ONNX Runtime fails to load such a file; what TensorRT's parser does wasn't tried; PyTorch runs the model that the
file was exported from."""


def _severity(subject: Subject) -> Severity:
    return _SEVERITIES.get(get_runtime(subject.target.runtime).name, Severity.NOTE)


@checks(
    "NSX206",
    "opset not imported",
    severity=Severity.ERROR,
    scope=Scope.MODEL,
    explanation="The model doesn't say which version of ONNX's operators it uses, or says one below 1, where they "
    "begin. The standard demands it since IR version 3, and runtimes refuse the model.",
    fix="set opset_import to the version that the exporter wrote for, or export again",
)
def opset_missing(subject: Subject) -> Iterator[Found]:
    opsets = subject.model.opsets
    if any(version < 1 for version in opsets.values()):
        yield Found(message="the model imports an opset below 1, where opsets begin")
    elif not opsets or ("" not in opsets and any(not node.domain for node in subject.model.graph.nodes)):
        yield Found(message="the model imports no opset of ai.onnx")


@checks(
    "NSX208",
    "nothing to execute",
    severity=Severity.WARNING,
    scope=Scope.TARGET,
    explanation="The graph has no nodes, so that there is nothing to predict: the export went wrong, or the file is a "
    "stub. An error where a limit of latency or throughput was to be judged.",
    fix="export the model again",
)
def no_nodes(subject: Subject) -> Iterator[Found]:
    judged = subject.target.limits.judge_time
    if not subject.model.graph.nodes:
        yield Found(
            message="the model has no nodes" + (", so no limit was judged" if judged else ""),
            severity=Severity.ERROR if judged else None,
        )


@checks(
    "NSX209",
    "attribute that the operator doesn't have",
    severity=Severity.ERROR,
    scope=Scope.WORK,
    explanation="A node has an attribute that its operator doesn't have at the model's opset: misspelt, or of another "
    "version, so that the operator doesn't do what was meant. ONNX Runtime refuses to load the model; it is ignored "
    "here. A warning with --runtime tensorrt, a note where the file isn't what runs (eager, compiled).",
    fix="correct or remove the attribute, or export with the opset that has it",
)
def unknown_attribute(subject: Subject) -> Iterator[Found]:
    for notice in () if subject.shaped is None else subject.shaped.inferred.warnings:
        if notice.code == "unknown-attribute":
            yield Found(message=notice.message, node=notice.node, severity=_severity(subject))


@checks(
    "NSX212",
    "name given twice",
    severity=Severity.ERROR,
    scope=Scope.WORK,
    explanation="Two nodes of one graph have the same name, or a value in the body of an If, Loop or Scan has the name "
    "of one around it, as tools leave it that copy nodes or join models. ONNX Runtime refuses to load the model; what "
    "bears a name again is told apart by a number here. A warning with --runtime tensorrt, a note where the file isn't "
    "what runs (eager, compiled).",
    fix="name nodes and values apart (onnx.compose.add_prefix does so for a model that is joined to another)",
)
def name_given_twice(subject: Subject) -> Iterator[Found]:
    for notice in subject.model.warnings:
        if notice.code == "shadowed-value" or (notice.code == "duplicate-node-name" and notice.node is not None):
            yield Found(message=notice.message.partition(";")[0], node=notice.node, severity=_severity(subject))


# --- types ------------------------------------------------------------------------------------------------------------


@checks(
    "NSX210",
    "declared type is wrong",
    severity=Severity.ERROR,
    scope=Scope.WORK,
    explanation="An output, or the file's value_info, declares another element type than the graph computes, as tools "
    "leave it that convert types, or the branches of an If give two types. ONNX Runtime refuses to load the model. A "
    "warning with --runtime tensorrt, a note where the file isn't what runs (eager, compiled).",
    fix="remove the value_info and run onnx.shape_inference anew; declare outputs by the types that they have",
)
def declared_types(subject: Subject) -> Iterator[Found]:
    if subject.shaped is None or not _types_are_sure(subject):
        return
    wrong: dict[str, str] = {}
    for graph in _graphs(subject.shaped.inferred):
        made = {name for node in graph.graph.nodes for name in node.outputs}
        for declared in (*graph.graph.outputs, *graph.graph.declared.values()):
            value = graph.values.get(declared.name)
            if declared.name not in made or declared.dtype is None or value is None or value.dtype is None:
                continue
            if value.kind == declared.kind == "tensor" and value.dtype is not declared.dtype:
                name = file_name(declared.name)
                wrong[name] = f"'{name}' is declared as {declared.dtype.label} and is {value.dtype.label}"
        wrong |= _by_branch(graph)
    if wrong:
        first, text = next(iter(wrong.items()))
        more = f" (and {counted(len(wrong) - 1, 'more value')})" if len(wrong) > 1 else ""
        yield Found(message=f"{text}{more}", node=first, severity=_severity(subject))


@checks(
    "NSX211",
    "type that the operator doesn't take at this opset",
    severity=Severity.ERROR,
    scope=Scope.WORK,
    explanation="Operators gain number formats with opsets: Conv has bfloat16 since 22, Cast FP8 since 19. At the "
    "opset that the model imports the operator has not the one that a node reads or gives. ONNX Runtime refuses to "
    "load the model. A warning with --runtime tensorrt, a note where the file isn't what runs (eager, compiled).",
    fix="export with an opset that has the type (the message says which), or in another type",
)
def types_of_the_opset(subject: Subject) -> Iterator[Found]:
    if subject.shaped is None or not _types_are_sure(subject):
        return
    groups: dict[str, list[str]] = {}
    known: dict[tuple[object, ...], str | None] = {}
    for graph in _graphs(subject.shaped.inferred):
        for node in graph.graph.nodes:
            if node.domain or node.version < 1:
                continue
            inputs, outputs = _dtypes(node.inputs, graph.values), _dtypes(node.outputs, graph.values)
            key = (node.op_type, node.version, inputs, outputs)
            if key not in known:
                known[key] = lacking_type(node.op_type, node.version, inputs, outputs)
            reason = known[key]
            if reason is not None:
                groups.setdefault(reason, []).append(file_name(node.name))
    for reason, nodes in groups.items():
        count = counted(len(dict.fromkeys(nodes)), "node")
        yield Found(message=f"{reason} ({count})", node=nodes[0], severity=_severity(subject))


def _by_branch(graph: InferredGraph) -> Iterator[tuple[str, str]]:
    """Results of every If that have one type by one branch and another by the other, by name, in words."""
    for node in graph.graph.nodes:
        branches = [graph.bodies.get((node.name, f"{name}_branch")) for name in ("then", "else")]
        if node.op_type != "If" or None in branches:
            continue
        made = [_dtypes(tuple(item.name for item in body.graph.outputs), body.values) for body in branches if body]
        for name, then, otherwise in zip(node.outputs, *made, strict=False):
            if then is not None and otherwise is not None and then is not otherwise:
                yield name, f"'{file_name(name)}' is {then.label} or {otherwise.label}, by the branch of its If"


def _dtypes(names: tuple[str, ...], values: Mapping[str, Value]) -> Types:
    found = (values.get(name) for name in names)
    return tuple([value.dtype if value is not None and value.kind == "tensor" else None for value in found])


def _graphs(graph: InferredGraph) -> Iterator[InferredGraph]:
    yield graph
    for body in graph.bodies.values():
        yield from _graphs(body)


def _types_are_sure(subject: Subject) -> bool:
    """Whether no type was guessed: behind an operator that nobody knows all of them are only likely."""
    return all(_is_known(node) for node in nodes_of(subject.model.graph))


def _is_known(node: Node) -> bool:
    return node.domain == OPEN_DOMAIN or first_version(node.domain, node.op_type) is not None
