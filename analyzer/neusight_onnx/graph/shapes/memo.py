"""What rules have said before: models repeat themselves, and so do the sizes of a sweep.

A rule is a function of its node's form and of what is known of its inputs, unless it asks the walk for more (then its
answer is not kept). Equal values are made one object, so that "the same inputs" is a comparison of identities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from neusight_onnx.graph.model import Array, Graph, Initializer, Node, Notice, Value
from neusight_onnx.graph.shapes.context import initializer_value


@dataclass(slots=True, kw_only=True)
class Memo:
    """The answers of rules for the nodes of one graph, which it keeps alive: identities are those of its objects."""

    graph: Graph
    signatures: dict[int, int] = field(default_factory=dict)
    """Identity of a node -> number of its form: equal for nodes that differ in names only."""
    forms: dict[tuple[object, ...], int] = field(default_factory=dict)
    answers: dict[tuple[int, ...], tuple[Value, ...]] = field(default_factory=dict)
    values: dict[tuple[object, ...], Value] = field(default_factory=dict)
    shared: set[int] = field(default_factory=set)
    """Identities of the values in ``values``."""
    initial: dict[int, Value] = field(default_factory=dict)
    given: dict[str, Value] = field(default_factory=dict)
    """What Constant nodes give, once a walk has ended: the same at all sizes."""
    others: tuple[Node, ...] = ()
    """The nodes but those."""
    too_new: tuple[Notice, ...] | None = None
    """What there is to say of operators that the model's opset doesn't have: the same at all sizes."""

    def key(self, node: Node, values: Mapping[str, Value]) -> tuple[int, ...]:
        """What an answer for ``node`` is kept under, its inputs being those of ``values``."""
        signature = self.signatures.get(id(node))
        if signature is None:
            form = (
                node.op_type,
                node.domain,
                node.version,
                *node.attributes,
                *map(id, node.attributes.values()),
                *map(bool, node.inputs),
                None,
                *map(bool, node.outputs),
            )
            signature = self.signatures[id(node)] = self.forms.setdefault(form, len(self.forms))
        return (signature, *[id(values.get(name)) for name in node.inputs])

    def keep(self, key: tuple[int, ...], inputs: Sequence[Value | None], results: Sequence[Value]) -> Sequence[Value]:
        """Keeps an answer if all of it can be shared; gives it with each value as the one object that stands for it."""
        if any(value is not None and id(value) not in self.shared for value in inputs):
            return results  # an object that may go, and its identity with it
        found = [self.one(value) for value in results]
        if all(id(value) in self.shared for value in found):
            self.answers[key] = tuple(found)
        return found

    def settle(self, values: Mapping[str, Value]) -> None:
        """Sets ``given`` and ``others``, all nodes having been walked; those of which something is to be noted stay."""
        others = []
        for node in self.graph.nodes:
            if node.op_type == "Constant" and not node.domain and self.key(node, values) in self.answers:
                self.given.update((name, values[name]) for name in node.outputs if name)
            else:
                others.append(node)
        self.others = tuple(others)

    def initializer(self, initializer: Initializer) -> Value:
        """The value of an initializer of the graph."""
        known = self.initial.get(id(initializer))
        if known is None:
            known = self.initial[id(initializer)] = self.one(initializer_value(initializer))
        return known

    def one(self, value: Value) -> Value:
        """The object that stands for all values equal to this one; itself where it is not plain."""
        is_plain = value.elements is None and value.unknown_because is None and value.length_low is None
        if (
            value.shape is None
            or value.kind != "tensor"
            or value.is_bound
            or value.data_low is not None
            or not is_plain
        ):
            return value
        content = None if value.data is None else _content(value.data)
        if value.data is not None and content is None:
            return value
        found = self.values.setdefault((value.dtype, value.shape, value.is_constant, value.span, content), value)
        if found is value:
            self.shared.add(id(value))
        return found


def _content(data: Array) -> tuple[object, ...] | None:
    """Equal for arrays that are equal bit for bit; None for arrays of objects."""
    return None if data.dtype.hasobject else (data.dtype.str, data.shape, data.tobytes())
