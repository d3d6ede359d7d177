"""NSX3xx: dims that are left open, that are open in name only, or that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from neusight_onnx.checks.registry import Found, Scope, checks
from neusight_onnx.checks.size_options import MOST_NAMED, is_formula, key, open_sizes, whole_shape
from neusight_onnx.checks.subject import Subject
from neusight_onnx.checks.thresholds import missed
from neusight_onnx.errors import BindingError, ModelError
from neusight_onnx.graph.batch_dimension import unnamed_batch
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.bodies import nodes_of, reads_of
from neusight_onnx.graph.cache_branches import left_empty
from neusight_onnx.graph.cache_lengths import kept_buffers
from neusight_onnx.graph.dimension_roles import is_batch_symbol
from neusight_onnx.graph.model import Declared, InferredGraph, Model, Node, TripCount, Value, file_name
from neusight_onnx.graph.names import option, options
from neusight_onnx.graph.shapes import bind_and_infer
from neusight_onnx.graph.signatures import fault as fault_of_form
from neusight_onnx.preparation import ShapedModel
from neusight_onnx.report.quantities import counted, shape_text
from neusight_onnx.report.verdict import Severity


@checks(
    "NSX301",
    "symbolic dim not bound",
    severity=Severity.WARNING,
    scope=Scope.TARGET,
    explanation="The model leaves dims free and the target says nothing about them, so that defaults stand in (1 for a "
    "batch, 128 for a sequence, ...): limits of latency, throughput and memory are judged at sizes that may not be "
    "the ones in use. A note where the target has no such limit.",
    fix="bind it: --dim NAME=SIZE, or dims = { NAME = SIZE } in the target",
)
def unbound_symbols(subject: Subject) -> Iterator[Found]:
    if subject.shaped is None or not subject.shaped.bound.defaults:
        return
    bound = subject.shaped.bound
    stand_in = {symbol: bound.symbols[symbol] for symbol in sorted(bound.defaults)}
    inputs = [item.name for item in subject.model.graph.inputs if any(size in stand_in for size in item.shape or ())]
    others = f" and {len(inputs) - 1} more" if len(inputs) > 1 else ""
    names = [f"'{symbol}'" for symbol in stand_in][:MOST_NAMED]
    unnamed = len(stand_in) - len(names)
    last = f"{unnamed} more" if unnamed else names.pop()
    by_batch = {symbol: stand_in[symbol] for symbol in unnamed_batch(subject.model) if symbol in stand_in}
    by_name = {symbol: size for symbol, size in stand_in.items() if symbol not in by_batch}
    asked, keys = [], []
    for size in [*by_batch.values()][:1]:  # a name that the exporter made up is another one in its next file
        asked.append(f"--batch {size}")
        keys.append(f"batch = {size}")
    if by_name:
        asked.append(options("--dim", by_name))
        keys.append(f"dims = {{ {', '.join(f'{key(symbol)} = {size}' for symbol, size in by_name.items())} }}")
    one = len(stand_in) == 1
    listed = f"{', '.join(names)} and {last}" if names else last
    given = f"{' '.join(asked)} (what stands in), or {' and '.join(keys)} in the target"
    yield Found(
        message=f"{listed} of input '{inputs[0]}'{others} "
        + (
            f"is not bound, {bound.symbols[next(iter(stand_in))]} stands in"
            if one
            else "are not bound, defaults stand in"
        ),
        node=next(iter(stand_in)) if one else None,
        severity=_unless_judged(subject),
        fix=None if unnamed else f"give the sizes in use: {given}",
    )


def _unless_judged(subject: Subject) -> Severity | None:
    """A mere note where no limit is judged at the sizes that stand in."""
    return None if subject.target.limits.depend_on_sizes else Severity.NOTE


@checks(
    "NSX302",
    "input without a full shape",
    severity=Severity.WARNING,
    scope=Scope.TARGET,
    explanation="An input declares no shape, or a dim without even a name, and the target doesn't give it: a default "
    "stands in, or nothing that depends on it can be costed. A dim is a note where the target has no limit of latency, "
    "throughput or memory.",
    fix="give it: --shape INPUT=1x3x224x224, or shapes = { INPUT = [1, 3, 224, 224] } in the target",
)
def open_input(subject: Subject) -> Iterator[Found]:
    bindings = subject.target.bindings
    for declared in subject.model.graph.inputs:
        if declared.name in bindings.shapes or declared.name in bindings.values or declared.kind == "map":
            continue
        if declared.shape is None:
            yield Found(message=f"input '{declared.name}' declares no shape", node=declared.name)
        else:
            axes = [str(axis) for axis, dim in enumerate(declared.shape) if dim is None or dim == 0]
            in_front = axes[:1] == ["0"] and len(declared.shape) > 1
            if in_front and bindings.batch is not None:
                del axes[0]
            if axes:
                whole = whole_shape(declared, subject)
                yield Found(
                    message=f"input '{declared.name}' ({shape_text(declared.shape)}) leaves "
                    f"{'dimension' if len(axes) == 1 else 'dimensions'} {', '.join(axes)} open, without a name",
                    node=declared.name,
                    severity=_unless_judged(subject),
                    fix="--batch N, or batch = N in the target" if in_front and axes == ["0"] else whole,
                )


# --- dims that are free in name only ----------------------------------------------------------------------------------

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
        if declared.name in kept or not _comparable(declared, before) or not _comparable(declared, after):
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


def _comparable(declared: Declared, value: Value | None) -> bool:
    return (
        value is not None
        and value.kind == "tensor"
        and not value.is_bound
        and value.shape is not None
        and len(value.shape) == len(declared.shape or ())
    )


# --- contradictions ---------------------------------------------------------------------------------------------------


@checks(
    "NSX304",
    "one symbol, two sizes",
    severity=Severity.WARNING,
    scope=Scope.SHAPES,
    explanation="The file declares dims of several values by one symbol, but they have different sizes: the names "
    "were mixed up by the exporter or by a tool that changed the graph. Runtimes that plan memory by symbols, and "
    "people who read them, are misled.",
    fix="correct the names (onnx.shape_inference with the stale value_info removed), or export again",
)
def contradicting_symbols(subject: Subject) -> Iterator[Found]:
    if subject.shaped is None:
        return
    shaped = subject.shaped
    sizes = {name: (size, "the inputs") for name, size in shaped.bound.symbols.items()}
    passed_over = {declared.name for declared in subject.model.graph.inputs}
    passed_over |= left_empty(subject.model.graph, shaped.inferred.values)
    passed_over |= kept_buffers(subject.model.graph, shaped.inferred.values)
    wrong: dict[str, list[str]] = {}
    for declared in (*subject.model.graph.outputs, *subject.model.graph.declared.values()):
        value = shaped.inferred.values.get(declared.name)
        if declared.name in passed_over or value is None or not _comparable(declared, value):
            continue
        for symbol, size in zip(declared.shape or (), value.shape or (), strict=True):
            if isinstance(symbol, str):
                known, where = sizes.setdefault(symbol, (size, f"'{declared.name}'"))
                if known != size:
                    wrong.setdefault(symbol, []).append(f"{known} in {where}, {size} in '{declared.name}'")
    for symbol, texts in wrong.items():
        more = f", and so on in {counted(len(texts) - 1, 'more value')}" if len(texts) > 1 else ""
        yield Found(message=f"'{symbol}' is {texts[0]}{more}", node=symbol)


@checks(
    "NSX305",
    "declared shapes are stale",
    severity=Severity.NOTE,
    scope=Scope.SHAPES,
    explanation="The file's value_info or outputs declare shapes that the graph contradicts. The inferred ones are "
    "used here, and most runtimes only warn; some tools believe what is declared.",
    fix="remove the value_info and run onnx.shape_inference anew",
)
def stale_shapes(subject: Subject) -> Iterator[Found]:
    if subject.shaped is None:
        return
    for notice in subject.shaped.inferred.warnings:
        if notice.code == "stale-value-info":
            yield Found(message=notice.message.partition(": the file's value_info")[0])


@checks(
    "NSX306",
    "operator refuses its inputs",
    severity=Severity.ERROR,
    scope=Scope.SHAPES,
    explanation="At the target's sizes an operator can't take its inputs or attributes, so the model can't run: the "
    "sizes are not ones that it takes, or the graph contradicts itself. Nothing behind it was judged.",
    fix="give sizes that the model takes (--dim, --shape); `neusight-onnx inspect` shows its inputs",
)
def refused_inputs(subject: Subject) -> Iterator[Found]:
    fault = subject.fault
    if fault is None:
        return
    node = next((node for node in nodes_of(subject.model.graph) if node.name == fault.node), None)
    if node is not None and node.op_type in ("QuantizeLinear", "DequantizeLinear") and fault_of_form(node) is None:
        fix = "quantise the model again: no size that is given changes how its scales and types fit"
    elif fault.at_any_size or _has_fixed_windows(subject.model, node):
        what = "model" if node is None else "node"
        fix = f"export the {what} again as the standard has it: no size that is given changes that"
    else:
        given = open_sizes(subject) or "--dim NAME=N, or --shape INPUT=1x3x224x224"
        fix = f"give sizes that the model takes: {given}"
    yield Found(message=str(fault), node=fault.node, fix=fix)


_WINDOWED = ("Conv", "ConvTranspose", "AveragePool", "MaxPool", "LpPool")


def _has_fixed_windows(model: Model, node: Node | None) -> bool:
    """Whether a node takes no notice of the batch, which is all that the inputs leave free."""
    if node is None or node.op_type not in _WINDOWED:
        return False
    return all(
        isinstance(dim, int) and dim for declared in model.graph.inputs for dim in (declared.shape or (0, 0))[1:]
    )


# --- trips that nothing tells -----------------------------------------------------------------------------------------


def _limits_cost(subject: Subject) -> bool:
    return subject.target.limits.depend_on_sizes


@checks(
    "NSX307",
    "limit judged on an assumed trip count",
    severity=Severity.WARNING,
    scope=Scope.TARGET,
    explanation="How often a loop runs depends on data, so that one trip was counted: latency is that of a single "
    "trip, and what grows with every trip is counted once. A limit that is kept by it says little of the whole run. "
    "Where the most trips are known, those are counted: a limit that is kept is kept by any run, one that is missed "
    "may be kept by the usual run. The trips that limits of latency, throughput and memory are to be judged at have "
    "to be given.",
    fix="say how often it runs: --trip-count NODE=N, or trip-counts = { NODE = N } in the target",
    applies=_limits_cost,
)
def assumed_trips(subject: Subject) -> Iterator[Found]:
    if subject.shaped is None:
        return
    for name, (op_type, trips) in _doubtful(subject.shaped.expected).items():
        takes_option = op_type in ("Loop", "Scan")
        if trips.source == "assumed":
            message = f"limits were judged with {op_type} '{name}' taken to run once"
        elif missed(subject):
            most = counted(trips.count, "trip")
            message = f"a limit is missed with {op_type} '{name}' at its most, {most}; when it ends depends on data"
        else:
            continue  # kept at the most, kept at fewer
        yield Found(
            message=message,
            node=name,
            fix=f"{option('--trip-count', name, 'N')}, or trip-counts = {{ {key(name)} = N }} in the target"
            if takes_option
            else "give the model's inputs so that the length of its sequence is known, or allow it",
        )


def _doubtful(inferred: InferredGraph) -> dict[str, tuple[str, TripCount]]:
    """The file's nodes with a body whose trips are assumed or a bound, those within bodies included."""
    found: dict[str, tuple[str, TripCount]] = {}
    pending = [inferred]
    while pending:
        graph = pending.pop()
        pending += graph.bodies.values()
        doubtful = {name: trips for name, trips in graph.trip_counts.items() if trips.source.startswith(_DOUBTFUL)}
        for node in graph.graph.nodes if doubtful else ():
            if node.name in doubtful:
                found.setdefault(file_name(node.name), (node.op_type, doubtful[node.name]))
    return found


_DOUBTFUL = ("assumed", "at most")
"""What the source of a trip count begins with where the true one depends on data."""
