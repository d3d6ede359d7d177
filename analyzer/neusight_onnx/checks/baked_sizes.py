"""NSX303: dims that are free in name only. A Reshape's target, a table or a weight holds the size of the export."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from neusight_onnx.checks.registry import Found, Scope, checks
from neusight_onnx.checks.size_options import is_formula
from neusight_onnx.checks.subject import Subject
from neusight_onnx.errors import BindingError, ModelError
from neusight_onnx.graph.batch_dimension import unnamed_batch
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.bodies import reads_of
from neusight_onnx.graph.dimension_roles import is_batch_symbol
from neusight_onnx.graph.model import Declared, InferredGraph, Model, Node, Value
from neusight_onnx.graph.shapes import bind_and_infer
from neusight_onnx.preparation import ShapedModel
from neusight_onnx.report.verdict import Severity

MOST_PROBES = 4
"""Symbols that are tried one by one: each costs an inference, and models with more of them name one thing twice."""

_STEP = 32
"""Longer dims are tried so much shorter: images and windows that must divide by a power of two still do, and sums such
as total = past + new still hold when all parts but one shrink alike."""

_JOINS = frozenset({"Add", "Concat", "Div", "Expand", "Gemm", "MatMul", "Mul", "Reshape", "Sub", "Where"})
"""Operators that fail at another size because a constant operand holds the old one. A convolution or pooling may as
well fail since its window outgrew the input, which says nothing about the export."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Probe:
    """The model at other sizes: what came of it."""

    sizes: Mapping[str, int]
    inferred: InferredGraph | None
    fault: ModelError | None


@checks(
    "NSX303",
    "dim declared free but baked in",
    severity=Severity.WARNING,
    scope=Scope.SHAPES,
    explanation="The model declares the dim as free, yet works at one size only: a Reshape target, a position table "
    "or a weight holds the size that the model was exported with. It is found by inferring all shapes once more "
    "at another size; the sizes of a Resize are compared with its batch. An error where the target's own size is one "
    "that doesn't work.",
    fix="export with the dim dynamic (dynamic_axes or dynamic_shapes, and no Python numbers made of sizes), or fix it",
)
def baked_in(subject: Subject) -> Iterator[Found]:
    if subject.shaped is None:
        yield from _baked_against_the_target(subject)
        return
    resized = list(_resized_to_one_batch(subject.shaped.inferred, None, Severity.ERROR))
    yield from resized or _baked(subject.model, subject.target.bindings, subject.shaped)


def _baked_against_the_target(subject: Subject) -> Iterator[Found]:
    """The target's own sizes don't work: do the model's defaults, and which of the sizes is it?"""
    given = subject.target.bindings
    if subject.fault is None:
        return
    for symbols, other in _other_sizes(subject.model, given):
        try:
            bound, inferred = bind_and_infer(subject.model, other)
        except (ModelError, BindingError):
            continue
        if _holds_a_size(subject.fault, subject.model, inferred):
            works = ", ".join(str(bound.symbols.get(symbol)) for symbol in symbols)
            fails = ", ".join(str(size) for size in symbols.values())
            names = ", ".join(f"'{symbol}'" for symbol in symbols)
            one = len(symbols) == 1
            yield Found(
                message=f"{names} {'is' if one else 'are'} declared free, but {works} {'works' if one else 'work'} and "
                f"{fails} {'does' if one else 'do'} not: {subject.fault}",
                node=next(iter(symbols)),
                severity=Severity.ERROR,
            )
            return


_SIDES = (224, 640, 256, 384, 512)
"""Sides of images that models are exported at, tried where a model doesn't work at its defaults either."""


def _other_sizes(model: Model, given: Bindings) -> Iterator[tuple[Mapping[str, int], Bindings]]:
    """Given sizes that may be the ones that don't work, and the bindings with others in their place: one after the
    other, then those of images together, whose height and width hang on each other."""
    for symbol, size in given.dims.items():
        rest = {name: other for name, other in given.dims.items() if name != symbol}
        yield {symbol: size}, replace(given, dims=rest)
    if given.batch is not None:
        symbol = next(iter(unnamed_batch(model)), None) or next(iter(_batch_symbols(model)), "batch")
        yield {symbol: given.batch}, replace(given, batch=None)
    sides = {name: size for name, size in given.dims.items() if not is_batch_symbol(name)}
    if len(sides) > 1:
        rest = {name: size for name, size in given.dims.items() if name not in sides}
        yield sides, replace(given, dims=rest)
        for side in _SIDES:
            yield sides, replace(given, dims={**rest, **dict.fromkeys(sides, side)})


def _batch_symbols(model: Model) -> Iterator[str]:
    """The symbols of inputs that are named as a batch is."""
    for declared in model.graph.inputs:
        yield from (dim for dim in declared.shape or () if isinstance(dim, str) and is_batch_symbol(dim))


def _baked(model: Model, bindings: Bindings, shaped: ShapedModel) -> Iterator[Found]:
    base = shaped.bound.symbols
    places = {
        symbol: axis
        for declared in reversed(model.graph.inputs)
        for axis, symbol in enumerate(declared.shape or ())
        if isinstance(symbol, str)
    }
    # a value that the user gave has a size of its own: its dims stay
    fixed = {dim for declared in model.graph.inputs if declared.name in bindings.values for dim in declared.shape or ()}
    sizes = {
        symbol: size - _STEP if size > _STEP else size + 1
        for symbol, size in base.items()
        if symbol in places and not is_formula(symbol) and symbol not in fixed and (size > _STEP or not places[symbol])
    }
    if not sizes:
        return
    # what the user gave a shape keeps it at other sizes, and so does what is made of it
    kept = _made_of(model, {name for name in bindings.shapes if name not in _sized(model, sizes)})
    together = _probe(model, bindings, shaped, sizes)
    if together.inferred is not None:
        yield from _unchanged(model, shaped, together, kept)
        yield from _resized_to_one_batch(together.inferred, shaped.inferred, None)
        return
    behind = {node.name for node in model.graph.nodes if not kept.isdisjoint(node.outputs)}
    for symbol, size in list(sizes.items())[:MOST_PROBES]:
        alone = together if len(sizes) == 1 else _probe(model, bindings, shaped, {symbol: size})
        if alone.fault is None or alone.fault.node in behind:
            continue
        if _holds_a_size(alone.fault, model, shaped.inferred):
            yield Found(
                message=f"'{symbol}' is declared free, but {base[symbol]} works and {size} does not: {alone.fault}",
                node=symbol,
            )


def _sized(model: Model, sizes: Mapping[str, int]) -> set[str]:
    """The inputs that have one of these symbols."""
    return {item.name for item in model.graph.inputs if set(item.shape or ()) & sizes.keys()}


def _made_of(model: Model, names: set[str]) -> set[str]:
    """These values, and all that nodes make of them."""
    found = set(names)
    for node in model.graph.nodes if found else ():
        if not found.isdisjoint(reads_of(node)):
            found.update(node.outputs)
    return found


def _probe(model: Model, bindings: Bindings, shaped: ShapedModel, sizes: Mapping[str, int]) -> _Probe:
    """The model with some symbols at other sizes and the others as they are."""
    dims = {name: size for name, size in shaped.bound.symbols.items() if not is_formula(name)}
    sized = _sized(model, sizes)
    shapes = {name: shape for name, shape in bindings.shapes.items() if name not in sized}
    try:
        _, inferred = bind_and_infer(model, replace(bindings, dims={**dims, **sizes}, shapes=shapes))
    except BindingError:
        return _Probe(sizes=sizes, inferred=None, fault=None)  # the sizes hang together in another way
    except ModelError as fault:
        return _Probe(sizes=sizes, inferred=None, fault=fault)
    return _Probe(sizes=sizes, inferred=inferred, fault=None)


def _holds_a_size(fault: ModelError, model: Model, inferred: InferredGraph) -> bool:
    """Whether the node that failed joins its input with a constant, which holds the size that would have worked."""
    node = next((node for node in model.graph.nodes if node.name == fault.node), None)
    if node is not None and node.op_type == "If":
        return True  # its condition is a single element: one sample decides for all
    if node is None or node.op_type not in _JOINS:
        return False
    if node.op_type == "Reshape":
        return _is_constant_target(node, inferred)
    values = [inferred.values.get(name) for name in node.inputs if name]
    return any(value is not None and value.is_constant for value in values)


def _is_constant_target(node: Node, inferred: InferredGraph) -> bool:
    if len(node.inputs) < 2:  # opset 1 has the target in an attribute
        return True
    target = inferred.values.get(node.inputs[1])
    return target is not None and target.is_constant


def _unchanged(model: Model, shaped: ShapedModel, probe: _Probe, kept: set[str]) -> Iterator[Found]:
    """Outputs that declare a symbol in a dim whose size was the same at both sizes, but for those in ``kept``."""
    assert probe.inferred is not None
    for declared in model.graph.outputs:
        before, after = (graph.values.get(declared.name) for graph in (shaped.inferred, probe.inferred))
        if declared.name in kept or not comparable(declared, before) or not comparable(declared, after):
            continue
        assert before is not None
        assert after is not None
        sizes = zip(declared.shape or (), before.shape or (), after.shape or (), strict=True)
        for axis, (symbol, old, new) in enumerate(sizes):
            if isinstance(symbol, str) and symbol in probe.sizes and old == new:
                yield Found(
                    message=f"output '{declared.name}' declares '{symbol}' as dimension {axis}, which is {old} whether "
                    f"'{symbol}' is {shaped.bound.symbols[symbol]} or {probe.sizes[symbol]}",
                    node=declared.name,
                )


def _resized_to_one_batch(
    graph: InferredGraph, before: InferredGraph | None, severity: Severity | None
) -> Iterator[Found]:
    """Resizes whose constant sizes begin with the batch of the export: at another one they would resize samples into
    each other, which runtimes refuse. ``before``: those that did so at the target's sizes are found already."""
    for node in graph.graph.nodes:
        if node.op_type != "Resize" or len(node.inputs) < _RESIZE_SIZES + 1 or not node.inputs[_RESIZE_SIZES]:
            continue
        target = graph.values.get(node.inputs[_RESIZE_SIZES])
        source, made = (graph.values.get(name) for name in (node.inputs[0], node.outputs[0]))
        if target is None or not target.is_constant or not source or not made or not source.shape or not made.shape:
            continue
        if source.shape[0] != made.shape[0] and not source.is_bound:
            size = before.values[node.inputs[0]].shape if before is not None else None
            works = made.shape[0] if size is None else size[0]
            yield Found(
                message=f"Resize node '{node.name}' is given constant sizes {list(made.shape)}, which begin with the "
                f"batch of the export: {works} works and {source.shape[0]} does not",
                node=node.name,
                severity=severity,
                fix="export with the sizes behind the batch made of the input's shape, or give scales in their place",
            )


_RESIZE_SIZES = 3
"""The operand of Resize that has sizes, since opset 11."""


def comparable(declared: Declared, value: Value | None) -> bool:
    """Whether a value has sizes that can be held against the dims that the file declares of it."""
    return (
        value is not None
        and value.kind == "tensor"
        and not value.is_bound
        and value.shape is not None
        and len(value.shape) == len(declared.shape or ())
    )
