"""Step 1: a pointwise value is computed where it is used, and written to memory only where it must be."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from math import prod

from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.loops.loop import Group, Key, Loop, Read, elementwise_kernel, flattened
from neusight_onnx.fusion.loops.plans import BATCH_NORM, Plan, as_generated, generated_move
from neusight_onnx.fusion.loops.row_kernels import APPLIED, STATISTICS, RowKernel, row_name, space_of
from neusight_onnx.fusion.loops.scheduling import Schedule
from neusight_onnx.fusion.loops.survey import WIDENED, Survey
from neusight_onnx.graph.model import Node, made_name
from neusight_onnx.kernels import ELEMENTWISE_FLOPS, GENERATED, Gemm, Kernel, Movement, Pooling, TensorSpec
from neusight_onnx.strides import channels_last_strides, suggests_channels_last

READS_TO_REUSE = 4
"""``realize_reads_threshold``: a value with several users is computed in each of them up to so many reads."""
READS_TO_ACCUMULATE = 8
"""``realize_acc_reads_threshold``: a value with more reads is written whoever uses it."""
OPERATIONS_TO_INLINE = 30
"""``realize_opcount_threshold``: loads and operations of a value beyond which it is written whoever uses it."""
FLOPS_ANEW = 2_000_000
"""An engine writes a value that is broadcast rather than to spend so many FLOPs more: what a kernel's launch (2 us)
takes at 10 TFLOP/s, where a FLOP of special functions by our count stands for ten issue slots."""
MOST_JOINED = 8
"""``max_pointwise_cat_inputs``: parts of a concatenation that may be one loop."""
POINTWISE_USES = frozenset({"loop", "part"})
"""Users of a concatenation that are pointwise, or another one."""
HALVES = frozenset({DataType.FLOAT16, DataType.BFLOAT16})


@dataclass(slots=True)
class Inlining:
    """A graph on its way through step 1; what it writes, the schedule of step 2 takes at once.

    ``pending``: values that are computed where they are used. ``library``: kernels of library calls by node;
    ``origins``: nodes whose work a node's kernels do; ``sizes``: elements of what a node's pointwise work makes.
    ``placed``: concatenations with those of their parts that are written at their places; ``parts``: values that are
    such a part. ``fixed``: values whose layout a library call has settled. ``stored``: values that are written in
    another type than the model says. ``outs``: products of matrices, which the library writes where it is told
    (``ir.ExternKernelOut``).
    """

    looked: Survey
    schedule: Schedule
    pending: dict[str, Loop] = field(default_factory=dict)
    library: dict[str, tuple[Kernel, ...]] = field(default_factory=dict)
    origins: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    sizes: dict[str, int] = field(default_factory=dict)
    placed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    parts: set[str] = field(default_factory=set)
    fixed: set[str] = field(default_factory=set)
    stored: dict[str, DataType] = field(default_factory=dict)
    outs: set[str] = field(default_factory=set)

    def build(self, node: Node, plan: Plan) -> None:
        """Takes the next node: what it is decides who computes it, and where (:class:`.plans.Plan`)."""
        if plan.role == "library":
            self._call(node, plan)
            return
        if plan.parts and not self.looked.engine and not self._joins_in_a_loop(node, plan):
            self._concatenate(node, plan)
            return
        spec = self.looked.spec(node.outputs[0]) or plan.reads[0][1]
        row_kernel = plan.kernels[0] if plan.role == "reduction" else None
        assert row_kernel is None or isinstance(row_kernel, RowKernel)
        n = spec.element_count if row_kernel is None else prod(space_of(row_kernel)[:2])
        output = node.outputs[0]
        strides = self.looked.strides.get(output)
        loop = Loop(node=node, output=output, spec=spec, n=n, strides=strides, row_kernel=row_kernel)
        most = 0
        for name, read in plan.reads:
            before = loop.load_count
            self._take(loop, name, read, reorders=plan.reorders)
            most = max(most, loop.load_count - before)
        copy = self.looked.ordered.get(output)
        if copy is not None and row_kernel is None and strides is None:
            # written in the order that a library call wants, it is read in another one
            moved = replace(copy, library=GENERATED)
            for key, item in loop.reads.items():
                if item.aligned and item.spec.element_count == n:
                    loop.reads[key] = replace(item, reordered=moved)
        loop.members[node.name] = plan.operations
        loop.again += plan.again or 0
        if plan.parts and self.looked.engine:
            # an element is one part's: DenseNet-264's concatenations of up to 65 parts are loops in TensorRT's engines
            loop.again -= loop.load_count - most
        loop.buffers = tuple([self.looked.root(name)[0] for name in plan.buffers])
        if len(loop.members) == 1 and not isinstance(plan.kernels[0], Pooling):
            loop.kernels = plan.kernels
        if row_kernel is None:
            self.sizes[node.name] = n
            if plan.halfway and self.looked.is_kept(node):
                self._interpolate(plan, loop)
                return
            if plan.parts and self.looked.engine and self._must_write(loop):
                self._concatenate(node, plan)
                return
            self._define(loop)
        elif self.looked.is_kept(node):
            if self.looked.is_applied(plan):
                self._apply(node, plan, loop, spec)
                return
            self.schedule.write(loop, main=next(iter(loop.reads)) if len(loop.reads) == 1 else None)

    def _apply(self, node: Node, plan: Plan, loop: Loop, spec: TensorSpec) -> None:
        """Splits a softmax or a normalization in its statistics, a reduction, and the pointwise rest of its formula.

        The rest is computed where it is used, as any pointwise value: in the reduction's kernel if it runs over the
        same rows in their order, else from the operand, which is read again.
        """
        (kernel,) = plan.kernels
        assert isinstance(kernel, RowKernel)
        rows, _, _ = space_of(kernel)
        name = row_name(kernel)
        count = STATISTICS[name]
        shape = (*spec.shape[:-1], 1) if spec.shape and prod(spec.shape[:-1]) == rows else (rows,)
        loop.kernels = ()
        loop.output = made_name(node.outputs[0], "statistics")
        loop.spec = TensorSpec(dtype=DataType.FLOAT32, shape=(count, rows) if count > 1 else (rows,))
        self.schedule.write(loop, main=next(iter(loop.reads)) if len(loop.reads) == 1 else None)
        self.schedule.owners.pop(node.outputs[0], None)
        rest = Loop(
            node=node, output=node.outputs[0], spec=spec, n=loop.n, strides=self.looked.strides.get(node.outputs[0])
        )
        for operand, read in plan.reads:
            self._take(rest, operand, read, reorders=False)
        statistic = TensorSpec(dtype=DataType.FLOAT32, shape=shape)
        for place in range(count):
            rest.reads[(loop.output, str(place))] = Read(loop.output, str(place), statistic, True, per_row=True)
        for root, item in zip(loop.buffers, plan.buffers, strict=True):
            found = self.looked.spec(item)
            if found is not None:
                rest.reads.setdefault((root, root), Read(root, root, found, True))
        rest.members[node.name] = APPLIED[name]
        self.sizes[node.name] = rest.n
        self._define(rest)

    def _interpolate(self, plan: Plan, loop: Loop) -> None:
        """Writes what an interpolation makes halfway, in FP32, and leaves the last step to those who use the result.

        That step of two values in 16 bits reads its fourth neighbour from the operand.
        """
        narrow = loop.spec.dtype in HALVES
        if plan.halfway == 1 and not narrow:
            self.schedule.write(loop)
            return
        wide = replace(loop.spec, dtype=DataType.FLOAT32)
        rest = Loop(node=loop.node, output=loop.output, spec=loop.spec, n=loop.n, strides=loop.strides)
        rest.members[loop.node.name] = ("add",) if plan.halfway > 1 else ("cast",)
        if plan.halfway > 1 and narrow:
            rest.reads.update(loop.reads)
        aligned: dict[Key, Read] = {}
        for place in range(plan.halfway):
            name = made_name(loop.output, "halfway", str(place))
            reads = {**loop.reads, **aligned}
            self.schedule.write(replace(loop, output=name, spec=wide, reads=reads, kernels=()))
            aligned[name, name] = Read(name, name, wide, True)
        rest.reads.update(aligned)
        self._define(rest)

    def _take(self, loop: Loop, name: str, spec: TensorSpec, *, reorders: bool) -> None:
        """Adds an operand: computed in the loop if it isn't in memory, else read."""
        root, view = self.looked.root(name)
        if root in self.stored:
            spec = replace(spec, dtype=self.stored[root])
        source = self.pending.get(root)
        if source is not None and self.looked.engine and self._is_dear_anew(source, loop.n):
            del self.pending[root]
            self.schedule.write(source)
            source = None
        aligned = not reorders and self.looked.is_aligned(loop, name, spec)
        if source is None:
            is_plain = not (aligned or reorders or loop.row_kernel)
            reordered = self.looked.reordered(loop, name, spec) if is_plain else None
            loop.reads.setdefault((root, view), Read(root, view, spec, aligned, reordered=reordered))
            return
        loop.members.update(source.members)
        loop.again += source.again
        shown = spec.element_count
        for key, read in source.reads.items():
            if shown < source.n and read.spec.element_count > shown:
                part = TensorSpec(dtype=read.spec.dtype, shape=(shown,))
                read = Read(read.root, made_name(read.view, "by", name), part, False)
                key = (read.root, read.view)
            elif not aligned and read.aligned:
                read = replace(read, aligned=False)
            loop.reads.setdefault(key, read)

    def _is_dear_anew(self, source: Loop, n: int) -> bool:
        """Whether special functions are worth a kernel of their own, in place of computing each for all ``n`` elements
        that one element of theirs is broadcast to."""
        flops = sum(ELEMENTWISE_FLOPS.get(name, 1) for names in source.members.values() for name in names)
        return (n - source.n) * flops > FLOPS_ANEW

    def _define(self, loop: Loop) -> None:
        """Leaves a pointwise value to those who use it, or has it written."""
        if not self.looked.uses.get(loop.output) and loop.output not in self.looked.kept:
            return
        if self._must_write(loop):
            if self._is_stored_wide(loop):
                loop.spec = replace(loop.spec, dtype=DataType.FLOAT32)
                loop.kernels = ()
                self.stored[loop.output] = DataType.FLOAT32
            self.schedule.write(loop)
        else:
            self.pending[loop.output] = loop

    def _is_stored_wide(self, loop: Loop) -> bool:
        """Whether a value of 16 bits is written in FP32: computed so, and a user widens it, which leaves no cast
        between (``joint_graph.pointless_convert``)."""
        if (
            self.looked.engine
            or loop.output in self.looked.kept
            or loop.spec.dtype not in HALVES
            or loop.output not in self.looked.widened
        ):
            return False
        own = loop.members.get(loop.node.name, ())
        return own == BATCH_NORM or not WIDENED.isdisjoint(own)

    def _must_write(self, loop: Loop) -> bool:
        """Whether a pointwise value is written to memory, rather than computed wherever it is used."""
        uses = self.looked.uses.get(loop.output, [])
        dear = loop.load_count > READS_TO_ACCUMULATE or loop.cost > OPERATIONS_TO_INLINE
        again = len(uses) > 1 and loop.load_count > READS_TO_REUSE
        if self.looked.engine and len(uses) > 1:
            read, size = sum(item.spec.byte_count for item in loop.reads.values()), loop.spec.byte_count
            again = len(uses) * read > read + (1 + len(uses)) * size
        again = again or ("hint" in uses and loop.load_count > 1)
        return loop.output in self.looked.kept or dear or again or "buffer" in uses

    def _joins_in_a_loop(self, node: Node, plan: Plan) -> bool:
        """Whether a concatenation is one loop over its result that computes each part under a mask (``lowering.cat``).

        So it is for a few parts, if only pointwise work uses the result and one part at least needn't be written for
        it, or if all parts would have to be copied and none is made from a reduction's results.
        """
        if len(plan.parts) > MOST_JOINED:
            return False
        loose = [self._is_loose(name) for name in plan.parts]
        uses = self.looked.uses.get(node.outputs[0], [])
        if any(loose) and uses and set(uses) <= POINTWISE_USES and node.outputs[0] not in self.looked.kept:
            return True
        return all(loose) and not any(self._is_of_reduction(name) for name in plan.parts)

    def _is_loose(self, name: str) -> bool:
        """Whether a part of a concatenation isn't written at its place in it by what makes it: nothing does so far, or
        it lies elsewhere."""
        root, _ = self.looked.root(name)
        return root in self.pending or name != root or not self._may_place(root)

    def _is_of_reduction(self, name: str) -> bool:
        """Whether a part is the result of a reduction, or computed from such right here."""
        root, _ = self.looked.root(name)
        source = self.pending.get(root)
        roots = [root] if source is None else [read.root for read in source.reads.values()]
        return any(root in self.schedule.reduced for root in roots)

    def _concatenate(self, node: Node, plan: Plan) -> None:
        """A concatenation: each part is written at its place by what makes it, or copied there by a kernel of its own.

        In place are pointwise values and reductions that no view stands before, of Inductor if no library call has
        settled their layout (``ConcatKernel.realize_into``), of engines also what libraries write ("merging of
        concatenation layers by directing layer outputs to the correct eventual destination", TensorRT developer
        guide). What is computed behind a view is computed for its part alone.
        """
        (kernel,) = plan.kernels
        assert isinstance(kernel, Movement)
        whole = Group(n=0, level=0, is_library=True)
        output = node.outputs[0]
        placed: list[str] = []
        copied: list[str] = []
        roots: list[str] = []
        self.sizes[node.name] = prod(kernel.shape)
        for name in plan.parts:
            root, view = self.looked.root(name)
            direct = name == root or (self.looked.engine and view == root)
            if direct and (root in self.pending or self._may_place(root)):
                if root in self.pending:
                    self.schedule.write(self.pending.pop(root))
                placed.append(name)
                roots.append(root)
                self.parts.add(root)
            elif root in self.pending:
                roots.append(self._part(node, kernel, (name,)))
            else:
                copied.append(name)
        kernels = [tuple(copied)] if copied and self.looked.engine else [(name,) for name in copied]
        roots += [self._part(node, kernel, names) for names in kernels]
        whole.level = max((self.schedule.note_read(whole, root) for root in roots), default=0)
        self.placed[node.name] = tuple(placed)
        self.schedule.owners[output] = whole

    def _may_place(self, root: str) -> bool:
        """Whether a value in memory may lie in a concatenation: it is no part of one yet, and nobody else's memory."""
        owner = self.schedule.owner_of(root)
        if owner is None or root in self.parts or root in self.looked.kept:
            return False
        return self.looked.engine or not (owner.is_library or root in self.fixed) or root in self.outs

    def _part(self, node: Node, kernel: Movement, names: tuple[str, ...]) -> str:
        """Has parts of a concatenation computed at their places, or copied there; the name of what is written."""
        specs = [spec for name in names if (spec := self.looked.spec(name)) is not None]
        shapes = [shape for name in names if (shape := self.looked.shape(name)) is not None]
        axis = next((at for at, sizes in enumerate(zip(*shapes, kernel.shape, strict=True)) if len(set(sizes)) > 1), 0)
        joined = tuple(sum(sizes) if at == axis else sizes[0] for at, sizes in enumerate(zip(*shapes, strict=True)))
        written = TensorSpec(dtype=kernel.dtype, shape=joined)
        whole = self.looked.strides.get(node.outputs[0])
        ordered = whole is not None and suggests_channels_last(kernel.shape, whole)
        loop = Loop(
            node=node,
            output=made_name(names[0], "in", node.outputs[0]),
            spec=written,
            n=written.element_count,
            strides=channels_last_strides(joined) if ordered else None,
        )
        for name, spec in zip(names, specs, strict=True):
            self._take(loop, name, spec, reorders=len(names) > 1)
        loop.members[node.name] = ("concat",)
        if len(loop.members) == 1:
            read = sum(spec.byte_count for spec in specs)
            loop.kernels = (replace(kernel, shape=joined, read=read, written=written.byte_count),)
        self.schedule.write(loop)
        return loop.output

    def _call(self, node: Node, plan: Plan) -> None:
        """A library call: its operands are in memory; copies compute what they copy."""
        group = Group(n=0, level=0, is_library=True)
        emitted: list[Kernel] = []
        level = 0
        for copy, name in plan.copies:
            spec, shape = self.looked.spec(name), self.looked.shape(name)
            assert spec is not None
            assert shape is not None
            written = TensorSpec(dtype=spec.dtype, shape=shape)
            loop = Loop(node=node, output="", spec=written, n=written.element_count)
            self._take(loop, name, spec, reorders=True)
            for read in loop.reads.values():
                level = max(level, self.schedule.note_read(group, read.root))
            if not loop.members:
                emitted.append(as_generated(copy) or copy)
                continue
            operations = (*flattened(loop.members.values()), "copy")
            moves = self.looked.moves(loop.members, loop.reads.values())
            if (move := generated_move(copy)) is not None:
                moves = (*moves, move)
            emitted.append(elementwise_kernel(operations, self.looked.operands(loop.reads.values()), (written,), moves))
            self.origins[node.name].update(dict.fromkeys(loop.members))
        peeled = self.looked.peeled.get(node.name)
        for name in plan.buffers:
            if peeled is not None and name == node.inputs[2]:
                continue
            self.fixed.add(self.looked.root(name)[0])
            level = max(level, self.schedule.note_read(group, self.looked.root(name)[0]))
        group.level = level + 1
        if peeled is None:
            for name in node.outputs:
                if name:
                    self.schedule.owners[name] = group
                    if (
                        isinstance(plan.kernels[-1] if plan.kernels else None, Gemm)
                        and len(self.looked.shape(name) or ()) == 2
                    ):
                        self.outs.add(name)
            self.library[node.name] = (*emitted, *plan.kernels)
            return
        bare, bias = peeled
        product = made_name(node.outputs[0], "before bias")
        self.schedule.owners[product] = group
        self.library[node.name] = (*emitted, bare)
        output = self.looked.spec(node.outputs[0])
        assert output is not None
        strides = self.looked.strides.get(node.outputs[0])
        loop = Loop(node=node, output=node.outputs[0], spec=output, n=output.element_count, strides=strides)
        loop.reads[(product, product)] = Read(product, product, output, True)
        self._take(loop, node.inputs[2], bias, reorders=False)
        loop.members[node.name] = ("add",)
        self.sizes[node.name] = loop.n
        self._define(loop)
