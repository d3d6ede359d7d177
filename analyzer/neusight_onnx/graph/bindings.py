"""Gives every input a concrete shape: what the user binds, then stated defaults for what the model leaves free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TypeVar

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import BindingError, shown
from neusight_onnx.graph.batch_dimension import Batch, find_batch, has_batch
from neusight_onnx.graph.binding_text import check_shape, check_size, listed, written_dims, written_shape
from neusight_onnx.graph.cache_branches import cache_branches
from neusight_onnx.graph.cache_lengths import present_lengths, total_lengths
from neusight_onnx.graph.cache_sizes import cache_sizes
from neusight_onnx.graph.dimension_roles import (
    DEFAULT_LENGTHS,
    LENGTH_ROLES,
    Lengths,
    Place,
    is_batch_symbol,
    places_of,
    role_of,
    roles_of,
    size_of_role,
)
from neusight_onnx.graph.model import Array, Declared, Graph, Model, Node, Notice, Value
from neusight_onnx.graph.names import is_pattern, is_written, matching, named, option
from neusight_onnx.graph.paged_sizes import paged_sizes
from neusight_onnx.graph.signatures import first_version
from neusight_onnx.graph.sizes_by_weights import channel_sizes
from neusight_onnx.graph.symbol_sizes import SymbolSizes, complete
from neusight_onnx.graph.tensors import NUMPY_TYPES

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bindings:
    """What the user fixes: sizes of symbols, shapes of inputs (or of values that nothing else gives a shape),
    values of inputs on which shapes depend (or of what a node makes, where sizes are read from it and nothing in the
    graph tells them), and trip counts of loops by node name. ``batch`` is the size of the model's batch, whatever that
    is called there: see :func:`find_batch`."""

    dims: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    values: Mapping[str, Array] = field(default_factory=dict)
    trip_counts: Mapping[str, int] = field(default_factory=dict)
    batch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundInputs:
    """``values`` maps every graph input to what is known of it; ``symbols`` every symbol of the inputs (expressions
    such as "past + 1" too) to its size. ``assumptions`` has a line for each size that is a default.
    ``has_default_length``: some length is one, so that other :class:`Lengths` would bind the inputs differently.
    ``defaults`` are the symbols whose size is a default. ``batch``: the size that the user gave the batch as such;
    where the model has no symbol for it, ``symbols`` has it as "batch"."""

    values: Mapping[str, Value]
    symbols: Mapping[str, int]
    assumptions: tuple[str, ...] = ()
    warnings: tuple[Notice, ...] = ()
    has_default_length: bool = False
    defaults: frozenset[str] = frozenset()
    batch: int | None = None


def make_bindings(
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, Array] | None = None,
    trip_counts: Mapping[str, int] | None = None,
    batch: int | None = None,
) -> Bindings:
    """Bindings from a caller's mappings; BindingError where a size is no integer or a value no array of numbers."""
    for what, given in (("dims", dims), ("shapes", shapes), ("values", values), ("trip_counts", trip_counts)):
        if given is not None and not isinstance(given, Mapping):
            raise BindingError(f"{what} is {shown(repr(given))}; give a mapping of names, such as {{'batch': 8}}")
    return Bindings(
        dims={str(name): _whole(size, f"the size of '{name}'") for name, size in (dims or {}).items()},
        shapes={
            str(name): tuple(_whole(size, f"a size of '{name}'") for size in _listed_sizes(name, shape))
            for name, shape in (shapes or {}).items()
        },
        values={str(name): _number_array(name, value) for name, value in (values or {}).items()},
        trip_counts={
            str(name): _whole(count, f"the trip count of '{name}'") for name, count in (trip_counts or {}).items()
        },
        batch=None if batch is None else _whole(batch, "the batch"),
    )


def _whole(size: object, what: str) -> int:
    if isinstance(size, bool | np.bool_) or not isinstance(size, int | np.integer):
        raise BindingError(f"{what} is {size!r}; give an integer")
    return int(size)


def _listed_sizes(name: str, shape: object) -> Sequence[object]:
    if isinstance(shape, str) or not isinstance(shape, Sequence):
        raise BindingError(f"the shape of '{name}' is {shape!r}; give a tuple of integers")
    return shape


def _number_array(name: str, value: object) -> Array:
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise BindingError(f"the value of '{name}' is {value!r}; give numbers")
    return array


MAX_COUNT = 1 << 31
"""No more than the largest size of a dimension is given as the content of what sizes are read from."""

SYMBOL_CONTRADICTION = "symbol-contradiction"
"""The code of the warning that two inputs were given different sizes of one symbol."""


def named_as_in(model: Model, bindings: Bindings) -> Bindings:
    """``bindings`` with names in the form that messages write them in (escapes, cut at the end) as the model has them,
    and a shape for each name that a pattern of names matches.

    BindingError where two forms of one name, or two patterns, are bound to different things.
    """
    names = (*bindings.dims, *bindings.shapes, *bindings.values, *bindings.trip_counts)
    if not any(is_written(name) for name in names) and not any(is_pattern(name) for name in bindings.shapes):
        return bindings
    inputs = {declared.name for declared in model.graph.inputs}
    symbols = set(places_of(model.graph.inputs))
    nodes = list(_all_nodes(model.graph))
    values = inputs | {output for node in nodes for output in node.outputs}
    loops = {node.name for node in nodes if node.op_type in ("Loop", "Scan")}
    return replace(
        bindings,
        dims=_named("--dim", bindings.dims, symbols),
        shapes=_matched(_named("--shape", bindings.shapes, values), values),
        values=_named("--value", bindings.values, values),
        trip_counts=_named("--trip-count", bindings.trip_counts, loops),
    )


def _named(option_name: str, bound: Mapping[str, T], known: set[str]) -> Mapping[str, T]:
    result: dict[str, T] = {}
    for text, item in bound.items():
        name = named(text, known)
        if not np.array_equal(result.setdefault(name, item), item):  # type: ignore[arg-type]  # numbers, shapes, arrays
            raise BindingError(f"{option_name} gives {shown(name)!r} twice, and not the same; keep one of them")
    return result


def _matched(shapes: Mapping[str, tuple[int, ...]], known: set[str]) -> Mapping[str, tuple[int, ...]]:
    """``shapes`` with the names of ``known`` that each pattern matches in its place; a name by itself comes first."""
    patterns = {text: shape for text, shape in shapes.items() if text not in known and is_pattern(text)}
    alone = {name: shape for name, shape in shapes.items() if name not in patterns}
    found: dict[str, tuple[int, ...]] = {}
    for pattern, shape in patterns.items():
        for name in matching(pattern, known) or (pattern,):  # what matches nothing is refused as an unknown name is
            if name not in alone and found.setdefault(name, shape) != shape:
                raise BindingError(f"--shape patterns give {shown(name)!r} twice, and not the same; keep one of them")
    return {**alone, **found}


def bind_inputs(model: Model, bindings: Bindings, lengths: Lengths = DEFAULT_LENGTHS[0]) -> BoundInputs:
    """A concrete shape for every input of ``model``; ``lengths`` are the defaults of what is a length.

    Order of precedence: ``--shape`` and ``--value``, ``--dim`` and ``--batch``, formulas over bound symbols, defaults;
    a batch is 1.
    Raises BindingError for names that the model does not have, ranks or sizes that contradict it, and a ``--dim`` that
    contradicts a ``--shape``. Shapes of two inputs that contradict each other in a symbol are kept, with a warning.
    """
    inputs = {declared.name: declared for declared in model.graph.inputs}
    _check_names(model, bindings, inputs)
    places = places_of(inputs.values())
    sizes = SymbolSizes()
    shapes, values = _given(bindings, inputs, sizes)
    batch = None if bindings.batch is None else _bind_batch(model, bindings.batch, sizes, shapes)
    fixed = channel_sizes(model.graph) | cache_sizes(model.graph)
    totals = total_lengths(model.graph, values)
    if bindings.dims.keys() - places:  # of outputs alone
        totals.update({name: bindings.dims[name] for name in present_lengths(model.graph) if name in bindings.dims})
    assumptions = complete(model, places, sizes, lengths, fixed, paged_sizes(model.graph), totals)
    _check_every_empty(inputs, shapes, values, places, sizes)
    warnings = [
        Notice(
            code=SYMBOL_CONTRADICTION,
            message=f"{text}: each input keeps the shape that it was given, elsewhere {shown(symbol)!r} is "
            f"{sizes.symbols[symbol]}",
        )
        for symbol, text in sizes.disputed.items()
    ]
    branches = _branches(model, places, sizes, values)
    bound: dict[str, Value] = {}
    for name, declared in inputs.items():
        shape = shapes.get(name)
        if shape is None and declared.shape is not None and declared.kind != "map":
            first = bindings.batch if batch is not None and name in batch.inputs else None
            shape, line = _bound_shape(model, declared, sizes, lengths, first)
            if line:
                assumptions.append(line)
        if shape is None and declared.kind != "map":
            warnings.append(
                Notice(
                    code="input-shape-unknown",
                    message=f"the model declares no shape for its input {shown(name)!r}; "
                    f"{option('--shape', name, '…')} gives it",
                )
            )
        if name in branches and shape is not None and prod(shape) == 1:
            values[name] = np.full(shape, branches[name])
            assumptions.append(_branch_taken(name, branches[name], len(shape)))
        bound[name] = Value(
            dtype=declared.dtype,
            shape=shape,
            data=values.get(name),
            kind=declared.kind,
            unknown_because=name if shape is None else None,
        )
    return BoundInputs(
        values=bound,
        symbols=sizes.symbols,
        assumptions=tuple(assumptions),
        warnings=tuple(warnings),
        has_default_length=sizes.has_default_length,
        defaults=frozenset(sizes.defaults),
        batch=bindings.batch,
    )


def _branches(
    model: Model, places: Mapping[str, list[Place]], sizes: SymbolSizes, values: Mapping[str, Array]
) -> dict[str, bool]:
    """What inputs that choose between branches are where nobody said: that the past is read, unless it is empty."""
    past = [symbol for symbol, role in roles_of(places).items() if role == "past"]
    caches = {place.input.name for symbol in past for place in places[symbol]}
    is_empty = not any(sizes.symbols.get(symbol) for symbol in past)
    kinds = {declared.name: declared.dtype for declared in model.graph.inputs}
    return {
        name: reads is not is_empty
        for name, reads in cache_branches(model.graph, caches).items()
        if name not in values and kinds[name] is DataType.BOOL
    }


def _branch_taken(name: str, taken: bool, rank: int) -> str:
    other = "[" * rank + str(int(not taken)) + "]" * rank
    return (
        f"{shown(name)} = {int(taken)} (default: the branch for this length of the past; "
        f"{option('--value', name, other)} takes the other)"
    )


def _given(
    bindings: Bindings, inputs: Mapping[str, Declared], sizes: SymbolSizes
) -> tuple[dict[str, tuple[int, ...]], dict[str, Array]]:
    """The shapes and values of inputs that the user gives; what they and ``--dim`` say of symbols goes to ``sizes``."""
    shapes: dict[str, tuple[int, ...]] = {}
    values: dict[str, Array] = {}
    for name, shape in bindings.shapes.items():
        cause = f"--shape {shown(name)}={written_shape(shape)}"
        check_shape(shape, cause, least=0 if name in inputs else 1)
        if name in inputs:
            shapes[name] = _match(inputs[name], shape, sizes, cause)
    for name, array in bindings.values.items():
        if name not in inputs:
            continue  # what a node makes: the walk takes it
        values[name] = _as_declared(inputs[name], array)
        shape = _match(inputs[name], array.shape, sizes, f"--value {shown(name)}")
        if shapes.setdefault(name, shape) != shape:
            raise BindingError(
                f"--value {shown(name)} has the shape {written_shape(shape)}, "
                f"--shape says {written_shape(shapes[name])}"
            )
    for symbol, size in bindings.dims.items():
        cause = f"--dim {shown(symbol)}={size}"
        check_size(size, cause, least=0)
        sizes.fix(symbol, size, cause)
    return shapes, values


def _bind_batch(model: Model, size: int, sizes: SymbolSizes, shapes: Mapping[str, tuple[int, ...]]) -> Batch:
    cause = f"--batch {size}"
    check_size(size, cause)
    batch = find_batch(model, cause, size)
    for symbol in batch.symbols or (batch.name,):
        sizes.fix(symbol, size, cause)
    for name in batch.inputs:
        if name in shapes and shapes[name][0] != size:
            raise BindingError(f"{cause}: --shape {shown(name)} says {written_shape(shapes[name])}; give one size")
    return batch


def _check_empty(symbol: str | None, places: Sequence[Place], cause: str) -> None:
    """A size of 0 has a meaning only where it makes a cache empty: nothing came before, as in a prefill."""
    if not places or role_of(symbol, places) != "past":
        raise BindingError(
            f"{cause}: a size must be positive, not 0; only the length of what a cache holds already can be 0"
        )


def _check_every_empty(
    inputs: Mapping[str, Declared],
    shapes: Mapping[str, tuple[int, ...]],
    values: Mapping[str, Array],
    places: Mapping[str, Sequence[Place]],
    sizes: SymbolSizes,
) -> None:
    """BindingError for a symbol or a given dimension of size 0 that can't have it."""
    given = {dim for name in values for dim in inputs[name].shape or ()}
    for symbol, size in sizes.symbols.items():
        if size == 0 and symbol not in given:  # an empty list is a value like any other
            _check_empty(symbol, places.get(symbol, ()), sizes.causes[symbol])
    for name, shape in shapes.items():
        for axis, dim in enumerate(inputs[name].shape or (None,) * len(shape)):
            if shape[axis] == 0 and dim != 0 and not isinstance(dim, str) and name not in values:
                place = Place(input=inputs[name], axis=axis)
                _check_empty(None, [place], f"--shape {shown(name)}={written_shape(shape)}")


def _check_names(model: Model, bindings: Bindings, inputs: Mapping[str, Declared]) -> None:
    """Every name that is bound must be one of the model's."""
    if bindings.dims:
        places = places_of(inputs.values())
        known = set(places)
        for declared in model.graph.declared.values():
            known.update(dim for dim in declared.shape or () if isinstance(dim, str))
        for name in bindings.dims:
            if name not in known:
                symbols = listed("symbols", name, {**places, **dict.fromkeys(symbols_of_unknown(model.graph))})
                hint = "; --batch binds the batch, whatever its name" if is_batch_symbol(name) else ""
                raise BindingError(f"--dim {shown(name)}: the model has no symbol of this name; {symbols}{hint}")
    for name in bindings.shapes:
        if name not in inputs and not _has_value(model.graph, name):
            outputs = dict.fromkeys(output for node in _all_nodes(model.graph) for output in node.outputs if output)
            raise BindingError(
                f"--shape {shown(name)}: the model has no input or value of this name; "
                f"{listed('inputs', name, inputs)}; {listed('values', name, outputs)}"
            )
    made = {output for node in model.graph.nodes for output in node.outputs} if bindings.values.keys() - inputs else ()
    for name, array in bindings.values.items():
        if name in inputs:
            continue
        if name not in made:
            raise BindingError(
                f"--value {shown(name)}: the model has no input of this name; {listed('inputs', name, inputs)}"
            )
        if array.size and not 0 <= float(array.min()) <= float(array.max()) <= MAX_COUNT:
            raise BindingError(f"--value {shown(name)}: sizes are read from it; give numbers from 0 to {MAX_COUNT:,}")
    if bindings.trip_counts:
        loops = {node.name for node in _all_nodes(model.graph) if node.op_type in ("Loop", "Scan")}
        for name in bindings.trip_counts:
            if name not in loops:
                raise BindingError(
                    f"--trip-count {shown(name)}: the model has no Loop or Scan node of this name; "
                    f"{listed('loops', name, loops)}"
                )


def symbols_of_unknown(graph: Graph) -> Iterator[str]:
    """Symbols that the file declares for what unknown operators give."""
    for node in graph.nodes:
        if first_version(node.domain, node.op_type) is None:
            for name in node.outputs:
                declared = graph.declared.get(name)
                yield from (dim for dim in (declared.shape or () if declared else ()) if isinstance(dim, str))


def _has_value(graph: Graph, name: str) -> bool:
    return name in graph.declared or any(name in node.outputs for node in _all_nodes(graph))


def _all_nodes(graph: Graph) -> Iterator[Node]:
    pending = [graph]
    while pending:
        current = pending.pop()
        for node in current.nodes:
            yield node
            for value in node.attributes.values():
                if isinstance(value, Graph):
                    pending.append(value)
                elif isinstance(value, tuple):
                    pending.extend(body for body in value if isinstance(body, Graph))


def _match(declared: Declared, shape: tuple[int, ...], sizes: SymbolSizes, cause: str) -> tuple[int, ...]:
    """Checks a given shape against the declared one and takes over the sizes of symbols."""
    if declared.shape is None:
        return shape
    if len(shape) != len(declared.shape):
        raise BindingError(
            f"{cause}: {written_shape(shape)} has {len(shape)} dimensions, the model declares "
            f"{len(declared.shape)}: {written_dims(declared.shape)}"
        )
    for axis, (size, dim) in enumerate(zip(shape, declared.shape, strict=True)):
        if isinstance(dim, str):
            sizes.fix(dim, size, cause, of_input=True)
        elif dim is not None and dim > 0 and dim != size:
            raise BindingError(
                f"{cause}: dimension {axis} is {size}, the model fixes it at {dim}: {written_dims(declared.shape)}"
            )
    return shape


def _as_declared(declared: Declared, array: Array) -> Array:
    """The value in the input's declared type; it must survive the conversion."""
    kind = None if declared.dtype is None else NUMPY_TYPES.get(declared.dtype)
    if declared.dtype is DataType.BFLOAT16:
        kind = np.dtype(np.float32)
    if kind is None:
        if declared.dtype is None:
            return array
        raise BindingError(
            f"--value {shown(declared.name)}: an input of type {declared.dtype.label} takes no value here"
        )
    with np.errstate(all="ignore"):
        converted = array.astype(kind)
        exact = kind.kind == "f" or bool(np.array_equal(converted.astype(array.dtype), array))
    if not exact:
        assert declared.dtype is not None
        raise BindingError(
            f"--value {shown(declared.name)}: the value does not fit the input's type {declared.dtype.label}"
        )
    converted.setflags(write=False)
    return converted


def _bound_shape(
    model: Model, declared: Declared, sizes: SymbolSizes, lengths: Lengths, first: int | None
) -> tuple[tuple[int, ...], str | None]:
    """The shape of an input with its symbols bound and defaults for nameless dimensions, and the line that says so.

    ``first``: the size that the first dimension was given, which has no name.
    """
    shape: list[int] = []
    free: list[int] = []
    dims = declared.shape or ()
    for axis, dim in enumerate(dims):
        if isinstance(dim, str):
            shape.append(sizes.symbols[dim])
        elif axis == 0 and first is not None:
            shape.append(first)
        elif dim is None or (dim == 0 and not lengths.keeps_zero):
            free.append(axis)
            role = role_of(None, [Place(input=declared, axis=axis)])
            shape.append(size_of_role(role, lengths, has_past=False))
            sizes.has_default_length |= role in LENGTH_ROLES
        else:
            shape.append(dim)
    name = shown(declared.name)
    check_shape(shape, f"input {name}", least=0)
    if not free:
        return tuple(shape), None
    which = (
        f"dimension {free[0]} is a default, the model leaves it free"
        if len(free) == 1
        else f"dimensions {', '.join(map(str, free))} are defaults, the model leaves them free"
    )
    if any(dims[axis] == 0 for axis in free):
        which += f"; it declares {list(dims)}, where 0 is read as free"
    changed_by = f"{option('--shape', declared.name, written_shape(shape))} with other sizes"
    if free == [0] and len(shape) > 1 and has_batch(model):
        changed_by = "--batch N"
    return tuple(shape), f"{name} = {written_shape(shape)} ({which}; {changed_by} changes it)"
