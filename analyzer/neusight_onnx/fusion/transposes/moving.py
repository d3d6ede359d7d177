"""A graph while its Transposes move: nodes by name, who makes and who reads a value, values made anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from neusight_onnx.fusion.transposes.orders import Order, moved_data, order_of
from neusight_onnx.graph.model import Declared, Node, Origin, Value, made_name

Recipe: TypeAlias = "Callable[[Mapping[str, Value]], Value]"
"""What becomes a value, of the values that there are: at other sizes of the model as well."""


@dataclass(slots=True)
class Moving:
    """A graph on its way: nodes by name, who makes and who reads a value.

    ``kept``: values that must stay. ``sized``: those whose sizes ONNX Runtime knows; ``declared``: what the file says,
    in the new order for values that are made anew (``PermuteDims`` of its transpose optimiser).
    ``rankless``: those of which it doesn't even know how many dimensions they have.
    ``transposed``: those that a Transpose makes. ``fixed``: the file leaves no size of an input open.
    ``recipes``: how values were made, in order.
    """

    values: dict[str, Value]
    kept: frozenset[str]
    sized: set[str]
    declared: dict[str, Declared]
    nodes: dict[str, Node] = field(default_factory=dict)
    makers: dict[str, str] = field(default_factory=dict)
    readers: dict[str, dict[str, None]] = field(default_factory=dict)
    transposed: set[str] = field(default_factory=set)
    fixed: bool = False
    rankless: frozenset[str] = frozenset()
    made: int = 0
    recipes: list[tuple[str, Recipe]] = field(default_factory=list)

    def add(self, node: Node) -> None:
        own, readers = node.name, self.readers
        self.nodes[own] = node
        for name in node.outputs:
            if name:
                self.makers[name] = own
        for name in node.inputs:
            read = readers.get(name)
            if read is None:
                readers[name] = {own: None}
            else:
                read[own] = None
        if node.op_type == "Transpose" and order_of(node) is not None:
            self.transposed.update(node.outputs)

    def drop(self, node: Node) -> None:
        del self.nodes[node.name]
        self.transposed.difference_update(node.outputs)
        for name in node.outputs:
            self.makers.pop(name, None)
        for name in node.inputs:
            self.readers[name].pop(node.name, None)

    def change(self, node: Node, new: Node) -> None:
        """Puts ``new``, which has the same name, in the place of ``node``."""
        self.drop(node)
        self.add(new)

    def maker(self, name: str) -> Node | None:
        made_by = self.makers.get(name)
        return None if made_by is None else self.nodes[made_by]

    def rank(self, name: str) -> int | None:
        value = self.values.get(name)
        return None if value is None or value.shape is None else len(value.shape)

    def numbers(self, name: str) -> tuple[int, ...] | None:
        """Integers that the file has as constants."""
        value = self.values.get(name)
        if value is None or not value.is_constant or value.data is None or value.data_low is not None:
            return None
        return tuple(int(item) for item in value.data.reshape(-1)) if value.data.dtype.kind in "iu" else None

    def constant(self, numbers: Sequence[int], like: str) -> str:
        """A new constant of integers, of the type of ``like``."""
        name = self.new_name(like)
        self.make(name, partial(_of_numbers, like, tuple(numbers)))
        return name

    def make(self, name: str, recipe: Recipe) -> None:
        """A new value, ``name``."""
        self.values[name] = recipe(self.values)
        self.recipes.append((name, recipe))

    def new_name(self, name: str) -> str:
        self.made += 1
        return made_name(name, "moved", str(self.made))

    def reordered(self, name: str, order: Order) -> str:
        """A new value: ``name`` with its dimensions in another order."""
        made = self.new_name(name)
        if name in self.sized:
            self.sized.add(made)
        said = self.declared.get(name)
        if said is not None and said.shape is not None and len(said.shape) == len(order):
            self.declared[made] = replace(said, name=made, shape=tuple(said.shape[place] for place in order))
        self.make(made, partial(_in_order, name, order))
        return made

    def is_read(self, node: Node) -> bool:
        return any(name in self.kept or self.readers.get(name) for name in node.outputs)


def _of_numbers(like: str, numbers: tuple[int, ...], values: Mapping[str, Value]) -> Value:
    value = values[like]
    assert value.data is not None
    return replace(value, data=np.array(numbers, value.data.dtype), shape=(len(numbers),))


def _in_order(name: str, order: Order, values: Mapping[str, Value]) -> Value:
    value = values[name]
    assert value.shape is not None
    low = value.shape_low
    return replace(
        value,
        shape=tuple(value.shape[place] for place in order),
        shape_low=None if low is None else tuple(low[place] for place in order),
        data=moved_data(value.data, order),
        data_low=moved_data(value.data_low, order),
    )


def name_also(work: Moving, node: Node, origins: Sequence[Origin]) -> Node:
    """``node`` stands for more of the file's nodes, which are gone."""
    new = replace(node, origins=tuple(dict.fromkeys((*node.stands_for, *origins))))
    work.nodes[node.name] = new
    return new


def in_order(work: Moving, places: Sequence[str]) -> Iterator[Node]:
    """The nodes, each behind those that make its inputs, otherwise as they stood."""
    done: set[str] = set()
    makers, nodes = work.makers, work.nodes
    # what is made by a node that isn't done yet, of those that stand: all that a place waits for
    waiting = set(makers)
    for name in (*places, *nodes):
        if name not in nodes or name in done:
            continue
        pending = [name]
        while pending:
            node = nodes[pending[-1]]
            waited = (
                () if waiting.isdisjoint(node.inputs) else [makers[item] for item in node.inputs if item in waiting]
            )
            if waited and node.name not in done:
                pending.extend(waited)
                continue
            pending.pop()
            if node.name not in done:
                done.add(node.name)
                waiting.difference_update(node.outputs)
                yield node
