"""What is computed from what: a loop, what it reads, and the kernel in the making that it becomes part of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from neusight_onnx.fusion.loops.row_kernels import RowKernel
from neusight_onnx.graph.model import Node
from neusight_onnx.kernels import Elementwise, Kernel, Move, Movement, TensorSpec

DECOMPOSED = {"gelu": 6, "gelu_tanh": 12, "silu": 2, "mish": 6, "softplus": 4, "hardswish": 4, "hardsigmoid": 3}
"""Operations that one name stands for, by its formula; others count as one."""
Key: TypeAlias = tuple[str, str]
"""(value in memory, view of it) that a loop reads."""


@dataclass(frozen=True, slots=True)
class Read:
    """Elements of a value in memory (``root``) that a loop reads, through a view.

    ``aligned``: in the order of the loop's own elements, all of the value, each once (or repeated as its shape says).
    ``per_row``: a statistic of the rows that the elements lie in. ``reordered``: a copy between both orders, where
    a whole tensor is read that lies in another order than what the loop writes.
    """

    root: str
    view: str
    spec: TensorSpec
    aligned: bool
    per_row: bool = False
    reordered: Movement | None = None


@dataclass(slots=True)
class Loop:
    """A pointwise value, or the rows of a reduction: what is computed, from what.

    ``members``: operations by node. ``buffers``: roots that a reduction reads beside its rows (its scale, a mask).
    ``strides``: of what it writes, None in row-major order. ``again``: loads of elements that were read before.
    """

    node: Node
    output: str
    spec: TensorSpec
    n: int
    strides: tuple[int, ...] | None = None
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)
    reads: dict[Key, Read] = field(default_factory=dict)
    kernels: tuple[Kernel, ...] = ()
    row_kernel: RowKernel | None = None
    buffers: tuple[str, ...] = ()
    again: int = 0

    @property
    def load_count(self) -> int:
        """Loads for one element."""
        return len(self.reads) + self.again

    @property
    def cost(self) -> int:
        """Loads and operations of one element."""
        return self.load_count + sum(DECOMPOSED.get(name, 1) for names in self.members.values() for name in names)


@dataclass(slots=True)
class Group:
    """A kernel in the making. ``space``: (rows, columns, inner) of its reductions, None where it has none.

    ``level`` is above that of every kernel that it reads from; ``is_read``: whether other kernels read from it yet;
    ``is_split``: its reduction is finished by a second kernel.
    """

    n: int
    level: int
    space: tuple[int, int, int] | None = None
    is_library: bool = False
    is_read: bool = False
    is_split: bool = False
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)
    reads: dict[Key, Read] = field(default_factory=dict)
    writes: dict[str, TensorSpec] = field(default_factory=dict)
    row_kernels: list[tuple[str, RowKernel, Key | None]] = field(default_factory=list)
    alone: tuple[Kernel, ...] = ()
    joined: Group | None = None

    def take_members(self, members: Mapping[str, tuple[str, ...]]) -> None:
        """Adds operations by node; of a node in several steps (an interpolation) those of the longest stand for all."""
        for name, operations in members.items():
            if len(operations) >= len(self.members.get(name, ())):
                self.members[name] = operations


def flattened(given: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The operations of several nodes, in their order, as one kernel lists them."""
    return tuple([name for names in given for name in names])


def elementwise_kernel(
    operations: tuple[str, ...],
    inputs: tuple[TensorSpec, ...],
    results: tuple[TensorSpec, ...],
    moves: tuple[Move, ...],
) -> Elementwise:
    """The kernel over the largest of ``results``, with the ``moves`` that it makes as it reads."""
    output, *others = sorted(results, key=lambda spec: -spec.element_count)
    return Elementwise(
        operations=operations,
        inputs=inputs,
        output=output,
        extra_outputs=tuple(others),
        generated=True,
        moves=moves,
    )
