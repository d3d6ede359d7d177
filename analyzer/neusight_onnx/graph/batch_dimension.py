"""Where the inputs of a model have its batch."""

from __future__ import annotations

from dataclasses import dataclass

from neusight_onnx.errors import BindingError, shown
from neusight_onnx.graph.binding_text import listed, written_dims
from neusight_onnx.graph.dimension_roles import is_batch_symbol, is_made_up, places_of, role_of
from neusight_onnx.graph.model import Model
from neusight_onnx.graph.names import option
from neusight_onnx.graph.paged_sizes import paged_sizes
from neusight_onnx.graph.size_formulas import formula_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Where a model's inputs have the batch: its ``symbols``, and ``inputs`` whose first dimension has no name."""

    symbols: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What reports call it: its first symbol."""
        return self.symbols[0] if self.symbols else "batch"


def find_batch(model: Model, asked: str, size: int | None = None) -> Batch:
    """The batch of ``model``: the symbols that are named so, else what is free in front of inputs and may be it.

    Nameless first dimensions of inputs of two dimensions and more belong to it. A batch that the file fixes is found if
    it has the wanted ``size`` already. Raises BindingError, which begins with ``asked``, where there is none, and where
    several symbols with names of their own could be it.
    """
    inputs = [declared for declared in model.graph.inputs if declared.shape and declared.kind != "map"]
    nameless = tuple(
        declared.name for declared in inputs if len(declared.shape or ()) > 1 and (declared.shape or ())[0] in (None, 0)
    )
    places = places_of(inputs)
    names = frozenset(places)
    derived = paged_sizes(model.graph)
    places = {
        name: found
        for name, found in places.items()
        if name not in derived and formula_of(name, names - {name}) is None
    }
    symbols = [name for name in places if is_batch_symbol(name)]
    if not symbols:
        symbols = [name for name, found in places.items() if role_of(name, found) == "batch"]
        telling = [name for name in symbols if not is_made_up(name)]
        if len(telling) > 1:
            found = " or ".join(f"{shown(name)} (of {shown(places[name][0].input.name)})" for name in telling[:6])
            raise BindingError(f"{asked}: the batch could be {found}; say which, {option('--dim', telling[0], 'N')}")
    if symbols or nameless:
        return Batch(symbols=tuple(symbols), inputs=nameless)
    several = [declared for declared in inputs if len(declared.shape or ()) > 1]
    if several and all((declared.shape or ())[0] == size for declared in several):
        return Batch()
    if several and all(isinstance((declared.shape or ())[0], int) for declared in several):
        first = several[0]
        raise BindingError(
            f"{asked}: the file fixes the first dimension of its inputs ({shown(first.name)} is "
            f"{written_dims(first.shape or ())}); export the model with a symbolic one"
        )
    known = listed("symbols", "batch", places)
    raise BindingError(f"{asked}: no dimension of the inputs looks like a batch; {known}; --dim binds what has a name")


def has_batch(model: Model) -> bool:
    """Whether :func:`find_batch` finds one."""
    try:
        find_batch(model, "")
    except BindingError:
        return False
    return True


def unnamed_batch(model: Model) -> tuple[str, ...]:
    """The symbols of the batch where an exporter made all of them up, another with each export: ``--batch`` is better.

    Empty where one is named, and where ``--batch`` finds none.
    """
    try:
        symbols = find_batch(model, "").symbols
    except BindingError:
        return ()
    return symbols if all(map(is_made_up, symbols)) else ()
