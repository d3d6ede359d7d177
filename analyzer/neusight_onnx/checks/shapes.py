"""NSX3xx: dims that are left open or contradict each other, and trips that nothing tells. NSX303 is
:mod:`neusight_onnx.checks.baked_sizes`'s."""

from __future__ import annotations

from collections.abc import Iterator

from neusight_onnx.checks.baked_sizes import comparable
from neusight_onnx.checks.registry import Found, Scope, checks
from neusight_onnx.checks.size_options import MOST_NAMED, key, open_sizes, whole_shape
from neusight_onnx.checks.subject import Subject
from neusight_onnx.checks.thresholds import missed
from neusight_onnx.graph.batch_dimension import unnamed_batch
from neusight_onnx.graph.bodies import nodes_of
from neusight_onnx.graph.cache_branches import left_empty
from neusight_onnx.graph.cache_lengths import kept_buffers
from neusight_onnx.graph.model import InferredGraph, Model, Node, TripCount, file_name
from neusight_onnx.graph.names import option, options
from neusight_onnx.graph.signatures import fault as fault_of_form
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
        if declared.name in passed_over or value is None or not comparable(declared, value):
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
