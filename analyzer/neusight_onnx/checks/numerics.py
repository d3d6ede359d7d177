"""NSX6xx: constants that a narrow number format can't hold, as far as the file shows them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from neusight_onnx.checks.registry import Found, Scope, checks
from neusight_onnx.checks.subject import Subject
from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.bodies import nodes_of
from neusight_onnx.graph.contents import Contents, Extremes
from neusight_onnx.graph.model import Array, InferredGraph, Initializer, Node, file_name
from neusight_onnx.report.quantities import counted
from neusight_onnx.report.verdict import Severity

FP16_MAX = float(np.finfo(np.float16).max)
"""65504, the largest finite binary16 number (IEEE 754)."""

FP16_TINY = float(np.finfo(np.float16).smallest_subnormal)
"""5.96e-8, the least positive one."""

_FLOATS = frozenset({DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32, DataType.FLOAT64})

_RANGES = frozenset({"Clip", "Max", "Min", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"})
"""Beyond the range, a bound or a comparison does what infinity does, and makes no NaN."""

_NO_ARITHMETIC = frozenset(
    {"Cast", "CastLike", "Constant", "Identity", "Loop", "OneHot", "Range", "Resize", "Upsample"}
)
"""Their float operands are sizes and factors for the host, or handed on to whoever computes with them."""

_GUARDS = frozenset({"Add", "Clip", "Div", "Max"})
"""Where a tiny constant keeps something from becoming zero."""


_MOVES = frozenset(
    {
        *("Cast", "Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile"),
        *("Transpose", "Unsqueeze"),
    }
)
"""What they make of a constant holds what the constant does."""


def _constants(graph: InferredGraph) -> Iterator[tuple[Node, DataType, Array]]:
    """(node that reads it, type, content) of the small floating-point constants that something at run time reads."""
    values = graph.values
    for node in graph.graph.nodes:
        if node.op_type in _NO_ARITHMETIC or _is_folded(graph, node):
            continue
        for name in node.inputs:
            value = values.get(name)
            if value is not None and value.data is not None and value.is_constant and value.dtype in _FLOATS:
                yield node, value.dtype, value.data
    for body in graph.bodies.values():
        yield from _constants(body)


def _is_folded(graph: InferredGraph, node: Node) -> bool:
    """Whether all that a node makes is a constant whose content is known: that is looked at where it is read.

    What follows from sizes alone is no such constant, known or not: up to which size it is known is our affair.
    """
    outputs = [graph.values.get(output) for output in node.outputs if output]
    return all(output is not None and output.is_constant and output.data is not None for output in outputs)


def _extremes_of(data: Array) -> Extremes:
    if data.size == 1:
        number = float(data.reshape(-1)[0])
        return Extremes(
            has_nan=math.isnan(number),
            furthest=number if math.isfinite(number) else 0.0,
            infinite=number if math.isinf(number) else 0.0,
        )
    numbers = data.astype(np.float64).reshape(-1)
    finite = numbers[np.isfinite(numbers)]
    endless = numbers[np.isinf(numbers)]
    return Extremes(
        has_nan=bool(np.isnan(numbers).any()),
        furthest=float(finite[np.abs(finite).argmax()]) if finite.size else 0.0,
        infinite=float(endless[0]) if endless.size else 0.0,
    )


def _extremes(
    graph: InferredGraph, contents: Contents, outer: Mapping[str, tuple[Initializer, ...]] | None = None
) -> Iterator[tuple[Node, DataType, Extremes]]:
    """(node that reads it, type, what it holds) of all floating-point constants that something at run time reads."""
    for node, dtype, data in _constants(graph) if outer is None else ():
        yield node, dtype, _extremes_of(data)
    values = graph.values
    made = {**(outer or {}), **{name: (constant,) for name, constant in graph.graph.initializers.items()}}
    for node in graph.graph.nodes:
        content = node.attributes.get("value") if node.op_type == "Constant" else None
        if isinstance(content, Initializer):
            made[node.outputs[0]] = (content,)
            continue
        read = [name for name in node.inputs if name in made]
        if not read:
            continue
        outputs = [values.get(output) for output in node.outputs if output]
        if node.op_type in _MOVES and all(output is not None and output.is_constant for output in outputs):
            moved = read if node.op_type == "Concat" else [name for name in read if name == node.inputs[0]]
            made |= dict.fromkeys(node.outputs, tuple(constant for name in moved for constant in made[name]))
            continue
        if node.op_type in _NO_ARITHMETIC:
            continue
        for name in read:
            value = values.get(name)
            if value is None or value.data is not None or not value.is_constant or value.dtype not in _FLOATS:
                continue
            for constant in made[name]:
                kept = constant.data  # of a type that shapes aren't computed in
                found = contents.of(constant) if kept is None else _extremes_of(kept)
                if found is not None:
                    yield node, value.dtype, found
    for body in graph.bodies.values():
        yield from _extremes(body, contents, made)


def _may_meet_fp16(subject: Subject) -> bool:
    """Whether the target computes in float16, or leaves float32 as it is stored, which may be converted yet: one that
    asks for another format by name has decided."""
    as_stored = subject.precision.plain is None and subject.precision.weights is None
    return subject.computes_in_fp16 or (as_stored and subject.stored is DataType.FLOAT32)


def _severity(subject: Subject) -> Severity:
    """What is wrong in float16 only is a warning there, and worth knowing elsewhere."""
    return Severity.WARNING if subject.computes_in_fp16 else Severity.NOTE


def _stays_wide(subject: Subject, dtype: DataType) -> bool:
    """Whether a constant keeps a wider type in a model that computes in float16: that part was left wide on purpose."""
    return subject.precision.plain is None and subject.stored is DataType.FLOAT16 and dtype is not DataType.FLOAT16


def _summary(found: list[tuple[str, float]], what: str) -> Found:
    shown = ", ".join(f"{number:g}" for number in dict.fromkeys(number for _, number in found[:100]))[:80]
    nodes = dict.fromkeys(node for node, _ in found)
    return Found(message=f"{counted(len(nodes), 'node reads', 'nodes read')} {what}: {shown}", node=found[0][0])


@checks(
    "NSX601",
    "constant beyond FP16's range",
    severity=Severity.WARNING,
    scope=Scope.WORK,
    explanation="float16 ends at 65504. A larger constant, such as the -1e9 of an attention mask, becomes infinite in "
    "it, and infinity makes NaN: a row that is masked as a whole, 0 x inf, inf - inf. A warning where the model "
    "computes in float16 (--precision fp16, what int8, fp8, fp4 and int4w leave in it, or stored so), a note where "
    "float32 stays as it is stored and no other precision is asked for. Bounds of Clip, Max and Min and comparisons "
    "are not meant: infinity serves them as well.",
    fix="use a mask value within the range, such as -1e4, or keep that part in fp32",
)
def beyond_range(subject: Subject) -> Iterator[Found]:
    if subject.shaped is None or not _may_meet_fp16(subject):
        return
    found = []
    for node, dtype, extremes in _extremes(subject.shaped.inferred, subject.contents):
        if node.op_type in _RANGES or _stays_wide(subject, dtype):
            continue
        # what is infinite already was made so by a conversion only where the type is float16 itself
        if dtype is DataType.FLOAT16 and extremes.infinite:
            found.append((file_name(node.name), extremes.infinite))
        elif abs(extremes.furthest) > FP16_MAX:
            found.append((file_name(node.name), extremes.furthest))
    if found:
        summary = _summary(found, "constants beyond float16's range")
        yield Found(message=summary.message, node=summary.node, severity=_severity(subject))


@checks(
    "NSX602",
    "constant below FP16's smallest",
    severity=Severity.WARNING,
    scope=Scope.WORK,
    explanation="The least positive float16 is 5.96e-8. A smaller constant, such as an epsilon of 1e-12, becomes zero "
    "in it, and no longer keeps a division or a logarithm from zero. A warning where the model computes in "
    "float16 (--precision fp16, what int8, fp8, fp4 and int4w leave in it, or stored so), a note where float32 stays "
    "as it is stored and no other precision is asked for. Epsilons that are attributes of a normalization are not "
    "meant: runtimes compute those in float32.",
    fix="use an epsilon of 1e-7 or more, or keep that part in fp32",
)
def below_range(subject: Subject) -> Iterator[Found]:
    if subject.shaped is None or not _may_meet_fp16(subject):
        return
    found = []
    for node, dtype, data in _constants(subject.shaped.inferred):
        if node.op_type not in _GUARDS or _stays_wide(subject, dtype):
            continue
        size = np.abs(data.astype(np.float64))
        below = (size > 0) & (size < FP16_TINY)
        if below.size and below.all():  # a learned vector may well have one tiny element
            found.append((file_name(node.name), float(data[below].flat[0])))
    if found:
        summary = _summary(found, "constants below float16's smallest")
        yield Found(message=summary.message, node=summary.node, severity=_severity(subject))


@checks(
    "NSX603",
    "constant is not a number",
    severity=Severity.ERROR,
    scope=Scope.SHAPES,
    explanation="A constant of the model holds NaN. Whatever is computed with it is NaN, too: training diverged, or "
    "the file is damaged. Weights are looked at up to 4 GiB of a model, in its file and beside it.",
    fix="export the model again from sound weights",
)
def not_a_number(subject: Subject) -> Iterator[Found]:
    if subject.shaped is None:
        return
    found = [
        (file_name(node.name), float("nan"))
        for node, _, extremes in _extremes(subject.shaped.inferred, subject.contents)
        if extremes.has_nan
    ]
    if found:
        yield _summary(found, "constants that are not a number")


@checks(
    "NSX604",
    "scale of quantisation that is not positive and finite",
    severity=Severity.ERROR,
    scope=Scope.SHAPES,
    explanation="A QuantizeLinear or DequantizeLinear has a scale of zero, or below, or an infinite one: divided by "
    "it, values are infinite, NaN or all zero, and so they are multiplied by it. TensorRT refuses scales that are not "
    "positive; other runtimes compute nonsense.",
    fix="quantise the model again with a calibration that saw every tensor",
)
def scale_not_positive(subject: Subject) -> Iterator[Found]:
    if subject.shaped is None:
        return
    found = []
    for node in nodes_of(subject.model.graph):
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") and len(node.inputs) > 1:
            scale = subject.shaped.inferred.values.get(node.inputs[1])
            data = np.ones(1) if scale is None or scale.data is None else scale.data.astype(np.float64)
            wrong = data[(data <= 0) | np.isinf(data)]  # NaN is NSX603's
            if wrong.size:
                found.append((file_name(node.name), float(wrong.flat[0])))
    if found:
        what = "not positive" if min(number for _, number in found) <= 0 else "infinite"
        yield _summary(found, f"scales that are {what}")
