"""Step 2: kernels that write values, and reductions, merge with the kernels that read them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from neusight_onnx.fusion.loops.loop import Group, Key, Loop, Read
from neusight_onnx.fusion.loops.row_kernels import SPLIT_COLUMNS, SPLIT_ROWS, space_of
from neusight_onnx.fusion.loops.survey import Survey
from neusight_onnx.kernels import TensorSpec

MOST_LOOPS = 64
"""``max_fusion_size``: values that were to be written, and reductions, that one kernel may hold."""


@dataclass(slots=True)
class Schedule:
    """The kernels in the making (``groups``). ``owners``, ``readers``: those that write and read a root; ``reduced``:
    results of reductions."""

    looked: Survey
    owners: dict[str, Group] = field(default_factory=dict)
    readers: dict[str, list[Group]] = field(default_factory=lambda: defaultdict(list))
    groups: list[Group] = field(default_factory=list)
    reduced: set[str] = field(default_factory=set)

    def owner_of(self, root: str) -> Group | None:
        """The kernel that writes a value, whatever it has been merged into; None where none in this graph does."""
        group = self.owners.get(root)
        if group is None:
            return None
        while group.joined is not None:
            if group.joined.joined is not None:
                group.joined = group.joined.joined
            group = group.joined
        self.owners[root] = group
        return group

    def note_read(self, group: Group, root: str) -> int:
        """Notes that ``group`` reads a value in memory; the level of who wrote it (0: it was there)."""
        self.readers[root].append(group)
        owner = self.owner_of(root)
        if owner is None or owner is group:
            return 0
        owner.is_read = True
        return owner.level

    def write(self, loop: Loop, main: Key | None = None) -> None:
        """Writes a value: in a kernel of its own, or in those that it reads from.

        Kernels may merge if none that stays apart has to run between them. Levels answer that without a search: who
        reads from a kernel is on a higher level, so that kernels on one level don't wait for each other.
        """
        space = None if loop.row_kernel is None else self._space_of(loop)
        producers: dict[int, tuple[Group, list[Read]]] = {}
        for read in loop.reads.values():
            owner = self.owner_of(read.root)
            if owner is not None:
                producers.setdefault(id(owner), (owner, []))[1].append(read)
        beside = [owner for root in loop.buffers if (owner := self.owner_of(root)) is not None]
        chosen: list[Group] = []
        size = 1
        for owner, reads in producers.values():
            shared = space or next((group.space for group in chosen if group.space), None)
            fits = size + len(owner.writes) <= MOST_LOOPS and owner not in beside
            if fits and _may_merge(loop, space, shared, owner, reads):
                chosen.append(owner)
                size += len(owner.writes)
        apart = [owner.level for owner in (*beside, *(owner for owner, _ in producers.values())) if owner not in chosen]
        level = max((*(group.level for group in chosen), *(level + 1 for level in apart)), default=1)
        joining = [group for group in chosen if not group.is_read or group.level == level]
        group = self._joined(joining, loop, level, space)
        for root in (*loop.buffers, *(read.root for read in loop.reads.values())):
            self.note_read(group, root)
        if loop.row_kernel is not None:
            self.reduced.update(filter(None, loop.node.outputs))
            rows, cols, inner = space_of(loop.row_kernel)
            group.is_split = not self.looked.engine and rows < SPLIT_ROWS and cols > SPLIT_COLUMNS and inner == 1
            group.row_kernels.append((loop.node.name, loop.row_kernel, main))
        group.writes[loop.output] = loop.spec
        self.owners.update((name, group) for name in (loop.output, *loop.node.outputs[1:]) if name)

    def _space_of(self, loop: Loop) -> tuple[int, int, int]:
        """(rows, columns, distance of neighbours in a row) of a reduction, as they lie in memory: what is done with
        statistics runs in the order of the result, other work in that of the operand."""
        assert loop.row_kernel is not None
        rows, cols, inner = space_of(loop.row_kernel)
        if self.looked.engine or not loop.node.inputs:
            return rows, cols, inner
        looked = (
            loop.node.outputs[0] if self.looked.is_applied(self.looked.plans[loop.node.name]) else loop.node.inputs[0]
        )
        if self.looked.is_in_rows(looked, loop.row_kernel):
            return rows, cols, 1
        return rows, cols, max(inner, 2)

    def _joined(self, groups: Sequence[Group], loop: Loop, level: int, space: tuple[int, int, int] | None) -> Group:
        if not groups:
            group = Group(n=loop.n, level=level, space=space, alone=loop.kernels)
            group.take_members(loop.members)
            group.reads.update(loop.reads)
            self.groups.append(group)
            return group
        group = max(groups, key=lambda item: len(item.members))
        group.alone = ()
        group.level = level
        for other in groups:
            if other is not group:
                group.take_members(other.members)
                group.reads.update(other.reads)
                group.writes.update(other.writes)
                group.row_kernels.extend(other.row_kernels)
                group.is_read = group.is_read or other.is_read
                group.space = group.space or other.space
                group.n = max(group.n, other.n)
                other.joined = group
        group.space = group.space or space
        group.n = max(group.n, loop.n)
        group.take_members(loop.members)
        group.reads.update(loop.reads)
        return group


def _may_merge(
    loop: Loop,
    space: tuple[int, int, int] | None,
    shared: tuple[int, int, int] | None,
    owner: Group,
    reads: Sequence[Read],
) -> bool:
    """Whether ``loop`` may run in its producer's kernel: the same elements in the same order, or rows of them."""
    if owner.is_library or owner.is_split or not all(read.aligned for read in reads):
        return False
    if owner.space is None:
        return owner.n == loop.n and all(read.spec.element_count == loop.n for read in reads)
    if shared is not None and shared != owner.space:
        return False
    rows, cols, inner = owner.space
    if loop.n == rows * cols:
        per_row = inner == 1
        return all(
            read.spec.element_count == loop.n
            or (per_row and (read.per_row or _is_row_statistic(read.spec, rows, loop)))
            for read in reads
        )
    return space is None and loop.n == rows and all(read.spec.element_count == rows for read in reads)


def _is_row_statistic(spec: TensorSpec, rows: int, loop: Loop) -> bool:
    """Whether an operand is one number a row: it has the loop's leading dimensions and 1 in place of the others."""
    shape = loop.spec.shape
    if spec.element_count != rows or len(spec.shape) != len(shape) or prod(shape) != loop.n:
        return False
    own = list(spec.shape)
    while own and own[-1] == 1:
        own.pop()
    return tuple(own) == shape[: len(own)]
