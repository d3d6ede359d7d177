"""What came of both steps: the kernel of each group, and the work that every node has then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from neusight_onnx.fusion.loops.inlining import Inlining
from neusight_onnx.fusion.loops.loop import Group, Read, elementwise_kernel, flattened
from neusight_onnx.fusion.loops.plans import as_generated
from neusight_onnx.fusion.loops.row_kernels import row_name, second_step, space_of, stored_as
from neusight_onnx.fusion.loops.scheduling import Schedule
from neusight_onnx.fusion.loops.survey import Survey
from neusight_onnx.graph.model import Node, file_name
from neusight_onnx.kernels import (
    Elementwise,
    GatherScatter,
    Kernel,
    Movement,
    NodeWork,
    Normalization,
    Reduction,
    Softmax,
    TensorSpec,
)

IN_PLACE = "its parts are written at their places in it"
UNUSED = "nothing uses its result: a compiler drops it"
GENERATED = Elementwise | Softmax | Normalization


@dataclass(frozen=True, slots=True)
class Emission:
    """The last look at a graph: what both steps left."""

    looked: Survey
    schedule: Schedule
    inlined: Inlining

    def works(self, nodes: Sequence[Node]) -> list[NodeWork]:
        """The works of ``nodes``, in their order, but for those that have no kernel to begin with."""
        order = {node.name: place for place, node in enumerate(nodes)}
        kernels: dict[str, list[Kernel]] = {name: list(given) for name, given in self.inlined.library.items()}
        merged_into: dict[str, str] = {}
        written: set[str] = set()
        for group in self.schedule.groups:
            if group.joined is not None:
                continue
            members = sorted(group.members, key=order.__getitem__)
            carrier = members[-1]
            outside = [read for read in group.reads.values() if self.schedule.owner_of(read.root) is not group]
            results = {root: spec for root, spec in group.writes.items() if self._is_written(root, group)}
            if not results:
                root, spec = next(reversed(group.writes.items()))
                results = {root: spec}
            written.update(results)
            merged = self._kernel(group, members, outside, tuple(results.values()))
            kernels.setdefault(carrier, []).append(merged)
            if group.is_split and isinstance(merged, Reduction):
                kernels[carrier].append(second_step(merged))
            self.inlined.origins[carrier].update(dict.fromkeys(members))
            for name in members[:-1]:
                merged_into.setdefault(name, carrier)
        for name, own in self.inlined.origins.items():
            for member in own:
                if member != name:
                    merged_into.setdefault(member, name)
        return [
            self._work(node, kernels.get(node.name, ()), merged_into, written)
            for node in nodes
            if node.name in self.looked.plans and self.looked.plans[node.name].kernels
        ]

    def _is_written(self, root: str, group: Group) -> bool:
        if root in self.looked.kept or "buffer" in self.looked.uses.get(root, ()):
            return True
        for reader in self.schedule.readers.get(root, ()):
            while reader.joined is not None:
                reader = reader.joined
            if reader is not group:
                return True
        return False

    def _kernel(
        self, group: Group, members: Sequence[str], outside: Sequence[Read], results: tuple[TensorSpec, ...]
    ) -> Kernel:
        if len(group.alone) == 1 and not any(read.reordered for read in outside):
            kernel = group.alone[0]
            if isinstance(kernel, Movement | GatherScatter) and (move := as_generated(kernel)) is not None:
                return move
            return replace(kernel, generated=True) if isinstance(kernel, GENERATED) else kernel
        if group.row_kernels:
            return self._row_kernel(group, members, outside, results)
        return elementwise_kernel(
            flattened(group.members[name] for name in members),
            self.looked.operands(outside),
            results,
            self.looked.moves(members, outside),
        )

    def _row_kernel(
        self, group: Group, members: Sequence[str], outside: Sequence[Read], results: tuple[TensorSpec, ...]
    ) -> Kernel:
        """The reduction that names a kernel (a normalization or a softmax before a plain one) with all around it."""
        node, kernel, main = min(group.row_kernels, key=lambda item: isinstance(item[1], Reduction))
        rows, cols, inner = space_of(kernel)
        n = rows * cols
        others = {name: (row_name(other),) for name, other, _ in group.row_kernels if name != node}
        around = {name: others.get(name) or group.members[name] for name in members if name != node}
        # what has no more elements than there are rows is computed once a row, wherever in the kernel it is used
        per_row = {name for name in around if name not in others and self.inlined.sizes[name] <= rows < n}
        parameters = (
            {self.looked.root(name)[0] for name in self.looked.plans[node].buffers}
            if self.looked.is_applied(self.looked.plans[node])
            else ()
        )
        reads = [read for read in outside if read.root not in parameters]
        full = [read for read in reads if read.spec.element_count == n]
        chosen = next((read for read in full if (read.root, read.view) == main), None)
        chosen = chosen or next((read for read in full if read.spec.dtype is kernel.dtype), None)
        if chosen is None and not self.looked.engine:
            # rows are made from what lies in another type, or from parts
            chosen = next((read for read in full if read.spec.dtype.is_float), None) or _largest_part(reads, n)
            chosen = chosen or next(
                (read for read in reads if read.spec.dtype.is_float and read.spec.element_count > n), None
            )
        beyond: tuple[TensorSpec, ...] = ()
        if chosen is not None:
            reads.remove(chosen)
            if chosen.spec.element_count > n:
                # several elements (of a window, of a short reduction) make one of a row
                beyond = (TensorSpec(dtype=chosen.spec.dtype, shape=(chosen.spec.element_count - n,)),)
            if chosen.spec.dtype.is_float and chosen.spec.dtype is not kernel.dtype:
                # a cast before it is part of the kernel: rows are read as they are stored
                given_dtype = kernel.dtype if isinstance(kernel, Reduction) else kernel.output_dtype or kernel.dtype
                kernel = stored_as(kernel, chosen.spec.dtype, given_dtype)
        given = () if isinstance(kernel, Reduction) else kernel.extra_inputs
        extra = (*given, *beyond, *(spec for spec in self.looked.operands(reads) if spec.element_count != 1))
        results = tuple(sorted(results, key=lambda spec: -spec.element_count))
        if isinstance(kernel, Reduction) or results[0].element_count != n:
            fused = flattened(own for name, own in around.items() if name not in per_row)
            return Reduction(
                operation=row_name(kernel),
                outputs=rows,
                reduced=cols,
                inner=inner,
                dtype=kernel.dtype,
                output=results[0],
                fused=(*(() if isinstance(kernel, Reduction) else kernel.fused), *fused),
                epilogue=flattened(own for name, own in around.items() if name in per_row),
                extra_inputs=extra,
                extra_outputs=results[1:],
                moves=self.looked.moves(members, outside),
            )
        output_dtype = None if results[0].dtype is kernel.dtype else results[0].dtype
        return replace(
            kernel,
            generated=True,
            output_dtype=output_dtype,
            fused=(*kernel.fused, *flattened(around.values())),
            extra_inputs=extra,
            extra_outputs=(*kernel.extra_outputs, *results[1:]),
            moves=self.looked.moves(members, outside),
        )

    def _work(
        self, node: Node, kernels: Sequence[Kernel], merged_into: Mapping[str, str], written: set[str]
    ) -> NodeWork:
        work = self.looked.works[node.name]
        placed = self.inlined.placed.get(node.name)
        if kernels:
            origins = dict.fromkeys(
                origin
                for member in self.inlined.origins.get(node.name, ())
                for origin in self.looked.works[member].origins
            )
            origins.update(dict.fromkeys(work.origins))
            return replace(work, kernels=tuple(kernels), origins=tuple(origins), parts=placed or ())
        carrier = merged_into.get(node.name)
        if placed is not None and carrier is None:
            return replace(work, kernels=(), free=IN_PLACE, host_operation=False, written=True, parts=placed)
        return replace(
            work,
            kernels=(),
            free=UNUSED if carrier is None else f"merged into the kernel of {file_name(carrier)}",
            host_operation=False,
            merged_into=carrier,
            written=placed is not None or any(name in written for name in node.outputs),
            parts=placed or (),
        )


def _largest_part(reads: Sequence[Read], n: int) -> Read | None:
    """What most of ``n`` elements of rows are read from, where nothing has them all; None if they are made from few."""
    largest = max(reads, key=lambda read: read.spec.element_count, default=None)
    return largest if largest is not None and n < 2 * largest.spec.element_count < 2 * n else None
