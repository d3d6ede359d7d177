"""A graph on its way to 16 bits: its values in their types, and the casts that this takes.

Three ways, by runtime (docs/precision.md has the lists):

- PyTorch (eager, compiled): autocast. Products take their operands in 16 bits, a list of operators takes float32, the
  others follow their operands. Weights stay in float32 and are cast in every run, once each.
- ONNX Runtime: its converter makes the whole file 16-bit, but for a list of operators.
- TensorRT: its builder's flag; weights are converted when the engine is built, inputs and outputs stay as they are.
  A file with 8- and 4-bit floats or weights in 4 bits was converted before, but for a list of operators.

A cast is a Cast node of its own, with the origin of the node that needs it. ``autocast`` is PyTorch's way,
``conversion`` the others'; ``few_bit_weights`` stores weights alone in few bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Attribute, Node, Value, made_name
from neusight_onnx.lowering.precision import KEPT_FOR_THE_RUN, PLAIN

FP32 = DataType.FLOAT32


_CALLS = frozenset({"Attention", "ScaledDotProductAttention"})


@dataclass(slots=True)
class Recast:
    """One graph on its way: its values as they become, the nodes with their casts, what was counted.

    ``cast``: names of casts that later nodes read again. ``low`` is the 16-bit type. ``is_traced``: for a compiler.
    ``shares_casts``: whoever reads a value in a type reads one cast of it, of parameters always.
    """

    low: DataType
    is_traced: bool
    shares_casts: bool
    caches_weights: bool
    values: dict[str, Value]
    nodes: list[Node] = field(default_factory=list)
    cast: dict[tuple[str, DataType], str] = field(default_factory=dict)
    memo: dict[tuple[int, DataType, bool], Value] = field(default_factory=dict)
    wide: Counter[str] = field(default_factory=Counter)
    activation_casts: int = 0
    weight_casts: int = 0
    computed: set[str] = field(default_factory=set)

    def is_plain(self, name: str) -> bool:
        value = self.values.get(name)
        return value is not None and value.dtype in PLAIN and value.kind == "tensor"

    def retype(self, name: str, dtype: DataType) -> None:
        """Gives the value ``name`` another plain type."""
        value = self.values.get(name)
        if value is not None and value.dtype in PLAIN and value.dtype is not dtype:
            self.values[name] = self.typed(value, dtype, runs=False)

    def typed(self, value: Value, dtype: DataType, *, runs: bool) -> Value:
        """``value`` in another type, one object for equal ones; ``runs``: made in every run, not when loading."""
        key = (id(value), dtype, runs)
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = replace(
                value,
                dtype=dtype,
                is_constant=value.is_constant and not runs,
                is_cast_weight=value.is_constant and runs,
                data=None if runs else value.data,
            )
        return found

    def as_type(self, node: Node, name: str, dtype: DataType) -> str:
        """The name of ``name`` in ``dtype`` for ``node``, cast before it if need be."""
        value = self.values.get(name)
        if value is None or value.dtype not in PLAIN or value.dtype is dtype or value.kind != "tensor":
            return name
        known = self.cast.get((name, dtype))
        if known is not None:
            return known
        is_weight = value.is_constant
        # equal loops over what all attention reads, a mask, are one kernel of a compiler's
        is_shared = self.shares_casts or is_weight or (self.is_traced and node.op_type in _CALLS)
        reader = () if is_shared else (node.name,)
        made = made_name(name, dtype.label, *reader)
        attributes = CASTS[dtype, is_weight and self.caches_weights]
        self.nodes.append(
            Node(
                name=made_name(node.name, "cast", name),
                op_type="Cast",
                version=13,
                inputs=(name,),
                outputs=(made,),
                attributes=attributes,
                origins=node.stands_for,
            )
        )
        self.values[made] = self.typed(value, dtype, runs=True)
        if is_shared:
            self.cast[name, dtype] = made
        self.weight_casts += is_weight
        self.activation_casts += not is_weight
        return made

    def with_inputs(self, node: Node, dtype: DataType, *, first_only: bool = False) -> Node:
        """The node behind casts of its operands to ``dtype``, of all or of the first one."""
        places = node.inputs[:1] if first_only else node.inputs
        inputs = (*(self.as_type(node, name, dtype) for name in places), *node.inputs[len(places) :])
        return node if inputs == node.inputs else replace(node, inputs=inputs)

    def finish(self, node: Node, dtype: DataType | None) -> None:
        """Appends a node whose plain results are of ``dtype`` (None: as they were)."""
        self.nodes.append(node)
        if dtype is not None:
            for name in node.outputs:
                self.retype(name, dtype)


CASTS: Mapping[tuple[DataType, bool], Mapping[str, Attribute]] = {
    (dtype, kept): {"to": dtype.onnx_code, **({KEPT_FOR_THE_RUN: 1} if kept else {})}
    for dtype in PLAIN
    for kept in (False, True)
}


def casts(count: int) -> str:
    return f"{count:,} cast" if count == 1 else f"{count:,} casts"


def listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


def is_before_the_run(node: Node, values: Mapping[str, Value]) -> bool:
    """Whether nothing of a node is left to do in a run: its results are constants or known numbers."""
    for name in node.outputs:
        value = values.get(name)
        if value is None or not (value.is_constant or value.data is not None):
            return False
    return True
