"""The size of every symbol of the inputs: what was fixed, what follows from it, and a default for what is left free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from neusight_onnx.errors import BindingError, shown
from neusight_onnx.graph.batch_dimension import unnamed_batch
from neusight_onnx.graph.binding_text import check_size
from neusight_onnx.graph.dimension_roles import (
    LENGTH_ROLES,
    Lengths,
    Place,
    is_made_up,
    keeps_cache,
    roles_of,
    size_of_role,
)
from neusight_onnx.graph.model import Model
from neusight_onnx.graph.names import option
from neusight_onnx.graph.paged_sizes import Derived
from neusight_onnx.graph.size_formulas import Formula, formula_of


@dataclass(slots=True, kw_only=True)
class SymbolSizes:
    """Sizes of symbols while they become known, and what fixed each; ``defaults`` are those that the user left free."""

    symbols: dict[str, int] = field(default_factory=dict)
    causes: dict[str, str] = field(default_factory=dict)
    defaults: set[str] = field(default_factory=set)
    disputed: dict[str, str] = field(default_factory=dict)
    has_default_length: bool = False

    def fix(self, symbol: str, size: int, cause: str, *, of_input: bool = False) -> None:
        """``of_input``: so says the given shape of an input, which another input's shape may contradict.

        Runtimes don't hold inputs to the names of their dimensions, and exporters reuse a name where sizes differ (the
        lengths of an encoder's and a decoder's tokens): the first size stands for the symbol, each input keeps its own.
        """
        known = self.symbols.setdefault(symbol, size)
        if known != size and self.causes[symbol] == cause:
            raise BindingError(f"{cause} makes {shown(symbol)!r} both {known} and {size}; give one size")
        if known != size and of_input:
            self.disputed.setdefault(
                symbol, f"{cause} makes {shown(symbol)!r} {size}, but {self.causes[symbol]} made it {known}"
            )
        elif known != size:
            raise BindingError(
                f"{cause} makes {shown(symbol)!r} {size}, but {self.causes[symbol]} made it {known}; give one size"
            )
        self.causes.setdefault(symbol, cause)


def complete(
    model: Model,
    places: Mapping[str, list[Place]],
    sizes: SymbolSizes,
    lengths: Lengths,
    fixed: Mapping[str, tuple[int, str]],
    derived: Mapping[str, Derived],
    totals: Mapping[str, int],
) -> list[str]:
    """Fixes every symbol of the inputs that is still free; returns a line for each default.

    ``fixed``: sizes that operators and their weights fix, by symbol, and what they are; ``derived``: those that other
    sizes make. ``totals``: how many tokens, past and new, the user said beyond the symbols of inputs, by what says it.
    """
    plain = {name for name in places if formula_of(name, frozenset()) is None}
    expressions: dict[str, Formula] = {}
    for name in places:
        expression = formula_of(name, plain - {name})
        if expression is not None:
            expressions[name] = expression
    _solve(expressions, sizes)
    free = [name for name in places if name not in sizes.symbols and name not in expressions]
    roles = roles_of({name: where for name, where in places.items() if name not in expressions})
    has_past = keeps_cache(roles, places, model.graph.inputs)
    # a cache that is as long as a window doesn't tell how many tokens came before, channels are no length
    roles.update({name: "window" for name in fixed if name in roles})
    roles.update({name: "derived" for name in derived if name in roles})
    assumptions = []
    sizes.defaults.update(free)
    # What is computed from others comes after them.
    after = {name: {"past": 1, "total": 2}.get(roles[name], 0) for name in free}
    after |= {name: 3 + place for place, name in enumerate(derived)}
    unnamed = unnamed_batch(model) if any(is_made_up(name) for name in free) else ()
    for name in sorted(free, key=after.__getitem__):
        made = derived[name].size(sizes.symbols) if name in derived else None
        if made is not None:
            size, note = made, derived[name].note
        elif name in fixed:
            size, note = fixed[name][0], f"default: {fixed[name][1]}"
        else:
            size, note = _default(name, roles, sizes, lengths, totals, has_past=has_past)
        sizes.fix(name, size, note)
        sizes.has_default_length |= roles[name] in LENGTH_ROLES
        changed_by = "--batch N" if name in unnamed else option("--dim", name, "N")
        assumptions.append(f"{shown(name)} = {size} ({note}, the model leaves it free; {changed_by} changes it)")
    if has_past:
        _require_room(roles, sizes, totals)
    for name, expression in expressions.items():
        result = expression.size(sizes.symbols)
        if name in sizes.symbols:
            if result is not None and result != sizes.symbols[name]:
                raise BindingError(
                    f"{sizes.causes[name]} makes {shown(name)!r} {sizes.symbols[name]}, but its formula gives "
                    f"{result}; bind its parts instead"
                )
        elif result is None or result <= 0:
            parts = ", ".join(f"{part} = {sizes.symbols[part]}" for part in sorted(expression.names))
            raise BindingError(
                f"the dimension {shown(name)!r} can't be had from {parts}; bind it with --dim or --shape"
            )
        else:
            check_size(result, f"the dimension {shown(name)!r}")
            sizes.fix(name, result, "its formula")
    return assumptions


def _require_room(roles: Mapping[str, str], sizes: SymbolSizes, totals: Mapping[str, int]) -> None:
    """Raises BindingError where all tokens, past and new, are fewer than the new ones."""
    new = [name for name, role in roles.items() if role == "sequence" and name in sizes.symbols]
    if len(new) != 1:  # an encoder's tokens aren't in a decoder's cache
        return
    counted = {name: sizes.symbols[name] for name, role in roles.items() if role == "total" and name in sizes.symbols}
    for name, size in (counted | dict(totals)).items():
        if size < sizes.symbols[new[0]]:
            raise BindingError(
                f"{shown(name)} = {size} counts past and new tokens, but {shown(new[0])} = "
                f"{sizes.symbols[new[0]]} are new alone; raise the one or lower the other "
                f"({option('--dim' if name in sizes.symbols else '--value', name, 'N')})"
            )


def _default(
    name: str,
    roles: Mapping[str, str],
    sizes: SymbolSizes,
    lengths: Lengths,
    totals: Mapping[str, int],
    *,
    has_past: bool,
) -> tuple[int, str]:
    """The size of a free symbol, and in words how it came about.

    Exporters may give each input symbols of its own (torch's s10, s86): free ones follow what the user bound.
    """
    role = roles[name]
    sequence = next((other for other, its_role in roles.items() if its_role == "sequence"), None)
    new, new_name = (1, "1") if sequence is None else (sizes.symbols.get(sequence, 0), shown(sequence))
    said = {
        other: size
        for other, size in sizes.symbols.items()
        if roles.get(other) in ("past", "total") and other not in sizes.defaults
    }
    totals = {other: size for other, size in said.items() if roles[other] == "total"} | dict(totals)
    if role == "sequence" and list(roles.values()).count("sequence") == 1:
        for before, length in said.items():
            for whole, size in totals.items():
                if roles[before] == "past" and size > length:  # a buffer for all of it may be longer
                    return size - length, f"default: {shown(whole)} - {shown(before)}"
    if role == "total" and has_past:
        past = next((other for other, its_role in roles.items() if its_role == "past"), None)
        if past is not None:
            return sizes.symbols[past] + new, f"default: {shown(past)} + {new_name}"
    # Without a cache a mask is as long as the sequence. Two sequences (encoder, decoder) need not be alike.
    alike = {"batch": "batch", "past": "past", "total": "sequence", "source": "source"}.get(role)
    for other, size in sizes.symbols.items():
        if alike is not None and roles.get(other) == alike and other not in sizes.defaults:
            return size, f"default: as {shown(other)}"
    if role == "past":
        for other, size in totals.items():
            if size >= new:
                return size - new, f"default: {shown(other)} - {new_name}"
    return size_of_role(role, lengths, has_past=has_past), "default"


def _solve(expressions: Mapping[str, Formula], sizes: SymbolSizes) -> None:
    """A bound formula with one unknown name gives that name: "past + 1" = 128 says past = 127."""
    for text, expression in expressions.items():
        unknown = [name for name in expression.names if name not in sizes.symbols]
        if text not in sizes.symbols or len(unknown) != 1:
            continue
        name, wanted = unknown[0], sizes.symbols[text]
        low, high = (expression.size({**sizes.symbols, name: trial}) for trial in (0, 1))
        if low is None or high is None or high == low:
            continue
        solution = (wanted - low) // (high - low)
        if solution >= 0 and expression.size({**sizes.symbols, name: solution}) == wanted:
            sizes.fix(name, solution, sizes.causes[text])
