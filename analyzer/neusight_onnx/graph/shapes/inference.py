"""The shapes of a whole model: lengths that fit it are found, and what the user gave is held against the result."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from neusight_onnx.errors import BindingError, ModelError, shown
from neusight_onnx.graph.binding_text import listed
from neusight_onnx.graph.bindings import Bindings, BoundInputs, bind_inputs, symbols_of_unknown
from neusight_onnx.graph.dimension_roles import DEFAULT_LENGTHS, is_batch_symbol, places_of, role_of
from neusight_onnx.graph.model import (
    InferredGraph,
    Model,
)
from neusight_onnx.graph.names import option
from neusight_onnx.graph.shapes.context import NEGATIVE
from neusight_onnx.graph.shapes.engine import walk_model
from neusight_onnx.graph.shapes.memo import Memo
from neusight_onnx.graph.shapes.notices import computed_sizes
from neusight_onnx.graph.sizes_by_weights import lengths_of_tables, most_positions

_DECLARED_ZERO = "a dimension that an input declares as 0 is taken as 0, for the model does not accept another size"

_OTHER_DEFAULT = "the first default of a length does not fit the model, so another is taken"

_BY_TABLE = "a length is the one that fits the table of weights that is added to it, as the defaults don't"

_MOST_DEFAULTS = 5
"""So many defaults are named in a message."""


def infer(model: Model, bindings: Bindings | None = None) -> InferredGraph:
    """The dtype and shape of every value of a model, with all dimensions bound.

    Small integer, boolean and floating-point tensors are carried with their content, so that shapes computed in
    the graph (Shape, Gather, Concat, Range, ...) are exact. Where a shape depends on data, the result holds an
    upper bound, marked ``is_bound``, and the assumptions say how it was found; a ``--shape`` for that value makes it
    exact. Unknown operators don't stop the
    walk: what the file declares for their outputs (or a ``--shape`` for that value) stands in, and otherwise
    everything that needs them is unknown, each value naming the first node to blame.

    Raises ModelError (or BindingError, from the inputs) where the shapes contradict an operator, naming the node.
    """
    return bind_and_infer(model, bindings or Bindings())[1]


def bind_and_infer(model: Model, bindings: Bindings, memo: Memo | None = None) -> tuple[BoundInputs, InferredGraph]:
    """Bind the inputs and infer, as :func:`infer` does, and give both.

    Where the model leaves a length free and contradicts its default (a table of 77 positions against 128 tokens),
    the other defaults are tried in turn, also where only a body that may not run contradicts it: the default that
    the fewest nodes refuse is taken. Where none fits, the lengths of tables that the graph adds are tried (1,500
    positions of Whisper's encoder, 3,000 frames). What the user bound is never changed. The fault of the first default
    is raised if none fits, and stands in the assumptions if another does. ``memo``: of this model's graph, to be shared
    between inferences at several sizes.
    """
    memo = memo or Memo(graph=model.graph)
    first: ModelError | None = None
    first_bound: BoundInputs | None = None
    best: tuple[int, BoundInputs, InferredGraph] | None = None
    by_table = False
    for lengths in DEFAULT_LENGTHS:
        bound = bind_inputs(model, bindings, lengths)
        try:
            swallowed, result = walk_model(model, bindings, bound, memo=memo)
        except ModelError as error:
            first, first_bound = first or error, first_bound or bound
        else:
            if best is None or swallowed < best[0]:
                best = (swallowed, bound, result)
            if not swallowed:
                break
        if not bound.has_default_length:
            break
        if lengths is DEFAULT_LENGTHS[-1] and best is None:
            best = _at_a_table_s_length(model, bindings, memo)
            by_table = best is not None
    takes_zero = best is None and any(0 in (declared.shape or ()) for declared in model.graph.inputs)
    if takes_zero:
        bound = bind_inputs(model, bindings, replace(DEFAULT_LENGTHS[0], keeps_zero=True))
        with suppress(ModelError):
            swallowed, result = walk_model(model, bindings, bound, memo=memo)
            best = (swallowed, bound, result)
    if best is None:
        assert first is not None
        assert first_bound is not None
        raise _beyond_positions(model, bindings, _with_defaults(model, first_bound, first))
    _, bound, result = best
    _check_not_empty(model, bindings, bound, result)
    _check_dims_are_taken(model, bindings, result)
    if first is not None:
        reason = f"{_DECLARED_ZERO if takes_zero else _BY_TABLE if by_table else _OTHER_DEFAULT}: {first}"
        result = replace(result, assumptions=(*result.assumptions, reason))
    return bound, result


def _with_defaults(model: Model, bound: BoundInputs, error: ModelError) -> ModelError:
    """``error``, or that it may be due to the defaults of lengths, where a size would be negative."""
    if NEGATIVE not in str(error):
        return error
    places = places_of(model.graph.inputs)
    taken = [name for name in places if name in bound.defaults and not is_batch_symbol(name)][:_MOST_DEFAULTS]
    if not taken:
        return error
    defaults = ", ".join(
        f"{shown(name)} = {bound.symbols[name]} (default; {option('--dim', name, 'N')})" for name in taken
    )
    return ModelError(f"{error}; taken were {defaults}", node=error.node)


def _beyond_positions(model: Model, bindings: Bindings, error: ModelError) -> ModelError | BindingError:
    """``error``, or what explains it: lengths that the user gave and that are beyond the model's positions."""
    table = most_positions(model.graph)
    if table is None:
        return error
    positions, name = table
    places = places_of(model.graph.inputs)
    for symbol, size in bindings.dims.items():
        if symbol in places and size > positions and role_of(symbol, places[symbol]) in ("past", "total", "sequence"):
            return BindingError(
                f"--dim {shown(symbol)}={size}: the model has {positions:,} positions ({shown(name)!r} masks no more), "
                f"past and new ones together; {error}"
            )
    return error


def _at_a_table_s_length(model: Model, bindings: Bindings, memo: Memo) -> tuple[int, BoundInputs, InferredGraph] | None:
    for length in lengths_of_tables(model.graph):
        with suppress(ModelError):
            bound = bind_inputs(model, bindings, replace(DEFAULT_LENGTHS[0], sequence=length))
            swallowed, result = walk_model(model, bindings, bound, memo=memo)
            if not swallowed:
                return swallowed, bound, result
    return None


def _check_not_empty(model: Model, bindings: Bindings, bound: BoundInputs, result: InferredGraph) -> None:
    """BindingError where inputs that the user made empty leave an output empty, too: then nothing is executed."""
    empty = [name for name, value in bound.values.items() if value.shape and 0 in value.shape]
    as_declared = {declared.name for declared in model.graph.inputs if 0 in (declared.shape or ())}
    empty = [name for name in empty if name not in bindings.values and name not in as_declared]
    if not empty:
        return
    for declared in model.graph.outputs:
        value = result.values.get(declared.name)
        if value is not None and value.shape and 0 in value.shape and not value.is_bound:
            raise BindingError(
                f"with '{shown(empty[0])}' empty, the output '{shown(declared.name)}' {list(value.shape)} has no "
                "elements; give the sizes of a run that computes something"
            )


def _check_dims_are_taken(model: Model, bindings: Bindings, result: InferredGraph) -> None:
    """BindingError where the user sizes a symbol that no input has, and everything that has it is of another size."""
    places = places_of(model.graph.inputs)
    unknown = set(symbols_of_unknown(model.graph)) if bindings.dims.keys() - places else set()
    asked = {name: size for name, size in bindings.dims.items() if name not in places and name not in unknown}
    computed = computed_sizes(model.graph, asked, result.values)
    bounds = computed_sizes(model.graph, asked.keys() - computed, result.values, bounds=True)
    for symbol, sizes in (computed | bounds).items():
        if asked[symbol] not in sizes:
            size, name = next(iter(sizes.items()))
            told = (
                f"the data decide it, {size} at most in {shown(name)!r}; "
                + ("give no more" if asked[symbol] > size else f"{option('--shape', name, '…')} sizes that")
                if symbol in bounds
                else f"the graph makes it {size} in {shown(name)!r}; bind what that is made of, "
                f"{listed('symbols', symbol, places)}"
            )
            raise BindingError(f"--dim {shown(symbol)}={asked[symbol]}: no input has this symbol, and {told}")


def at_expected_sizes(model: Model, bindings: Bindings, bound: BoundInputs, inferred: InferredGraph) -> InferredGraph:
    """``inferred`` for counting costs: sizes that depend on data are those expected, where that is known, not bounds.

    So the experts of a mixture share its tokens, which their bounds would count for each of them, as the levels of a
    detector share its boxes, and what nothing in
    the graph limits is as long as the longest dimension of an input, or follows from counts that add up to that. Where
    such sizes contradict each other, they are the most of intervals. One more walk, or two; a graph without such sizes
    comes back as it is. What is expected stands in the assumptions, in place of the bounds.
    """
    if not inferred.expected:
        return inferred
    try:
        _, result = walk_model(model, bindings, bound, at_expected=True)
    except ModelError:  # sizes that are related in a way that isn't understood
        if not inferred.likely:
            return inferred
        try:
            _, result = walk_model(model, bindings, bound, at_expected=True, at_most_likely=True)
        except ModelError:
            return inferred
    kept = [text for text in inferred.assumptions if text.startswith((_OTHER_DEFAULT, _DECLARED_ZERO, _BY_TABLE))]
    shared = {name: shape for name, shape in result.expected.items() if name not in result.likely}
    if not shared:
        return replace(result, assumptions=(*result.assumptions, *kept))
    name, shape = next(iter(shared.items()))
    most = inferred.values[name].shape if name in inferred.values else None
    kind = "columns" if len(shape) > 1 else "elements"
    reason = (
        "the cost takes tokens to be spread evenly over experts, and boxes over levels of a pyramid, at "
        f"{len(shared)} places: '{name}' has "
        f"{shape[-1]} {kind}" + (f", not the {most[-1]} that it can have" if most else "") + "; "
        f"{option('--shape', name, 'x'.join(map(str, shape)))} with another size changes it"
    )
    return replace(result, assumptions=(*result.assumptions, *kept, reason))


def infer_bound(model: Model, bindings: Bindings, bound: BoundInputs) -> InferredGraph:
    """As :func:`infer`, where the inputs are bound already."""
    return walk_model(model, bindings, bound)[1]
