"""Before both steps: a look at every node of a graph, which says what it is and how values are used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.loops.loop import Loop, Read
from neusight_onnx.fusion.loops.plans import (
    Plan,
    generated_move,
    is_copy,
    neighbours_plan,
    pointwise_plan,
    unrolled_plan,
)
from neusight_onnx.fusion.loops.row_kernels import (
    STATISTICS,
    RowKernel,
    as_reduction,
    casts_first,
    is_loop,
    row_name,
    space_of,
)
from neusight_onnx.graph.model import InferredGraph, Node, Value
from neusight_onnx.kernels import (
    GENERATED,
    Conv,
    Gemm,
    Kernel,
    Move,
    Movement,
    NodeWork,
    Normalization,
    Softmax,
    TensorSpec,
)

WIDENED = frozenset(
    {"elu", "gelu", "gelu_tanh", "hardsigmoid", "hardswish", "leaky_relu", "mish", "selu", "silu", "softplus"}
)
"""Functions whose decompositions compute in FP32 (``pw_cast_for_opmath`` and type promotion in ``torch/_decomp``)."""
WIDE = frozenset({DataType.FLOAT32, DataType.FLOAT64})
"""Types that a cast from 16 bits joins the one before it for (``joint_graph.pointless_convert``)."""
OPERAND_TWICE = frozenset({"gelu", "gelu_tanh", "hardswish", "mish", "silu"})
"""Those of them that two operations of the formula take the operand of."""
BODIES = frozenset({"If", "Loop", "Scan", "SequenceMap"})
NO_VIEWS = frozenset({"Shape", "Size", "SequenceLength"})
"""Free operators that look at nothing but the shape."""
BY_PARTS = frozenset({"BiasByParts"})
"""Nodes that are a kernel for each part of their result already."""


def surveyed(
    graph: InferredGraph, works: Mapping[str, NodeWork], strides: Mapping[str, tuple[int, ...]], *, engine: bool
) -> Survey:
    """What the nodes of ``graph`` that have a work are, and how its values are used (``loops.merge_loops``)."""
    survey = Survey(graph, works, strides, engine)
    nodes = [node for node in graph.graph.nodes if node.name in works]
    for node in nodes:
        survey.look_at(node)
    for declared in graph.graph.outputs:
        survey.kept.add(survey.root(declared.name)[0])
    for body in graph.bodies.values():
        survey.kept.update(survey.root(name)[0] for name in _named(body) if name)
    for node in nodes:
        plan = survey.plans.get(node.name)
        if plan is not None and plan.role == "library" and len(plan.kernels) == 1:
            survey.peel(node, plan.kernels[0])
    return survey


@dataclass(slots=True)
class Survey:
    """What each node of a graph is to the compiler, and who uses which value how: what both steps look up.

    ``roots``: (value in memory, view of it) of a name; ``uses``: how nodes use a root ("loop", "hint": in a loop
    over neighbours, "reduction", "part" of a concatenation, "buffer": must be in memory); ``kept``: roots that outlive
    the graph. ``flexible``: values that a loop writes, in whatever order a library call wants (``require_stride_order``
    of ``ir.ExternKernel`` has such a buffer laid out so, and copies others); ``ordered``: those of which one wants
    another order than row-major, with the copy that this saves. ``widened``: values that a user computes on in FP32.
    ``peeled``: library calls without the bias that the compiler adds, and the bias.
    """

    graph: InferredGraph
    works: Mapping[str, NodeWork]
    strides: Mapping[str, tuple[int, ...]]
    engine: bool = False
    roots: dict[str, tuple[str, str]] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)
    uses: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    kept: set[str] = field(default_factory=set)
    flexible: set[str] = field(default_factory=set)
    ordered: dict[str, Movement] = field(default_factory=dict)
    widened: set[str] = field(default_factory=set)
    peeled: dict[str, tuple[Gemm | Conv, TensorSpec]] = field(default_factory=dict)

    def root(self, name: str) -> tuple[str, str]:
        """(value in memory, view of it) that a name stands for."""
        return self.roots.get(name, (name, name))

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of a value, None where it is unknown."""
        value = self.graph.values.get(name)
        return None if value is None else value.shape

    def _dtype(self, name: str) -> DataType | None:
        value = self.graph.values.get(name)
        return None if value is None else value.dtype

    def is_number(self, name: str) -> bool:
        """Whether a value is one number that the compiler knows, and writes into the kernel."""
        value = self.graph.values.get(name)
        known = value is not None and (value.is_constant or value.data is not None) and value.shape is not None
        return known and value is not None and value.element_count == 1

    def spec(self, name: str) -> TensorSpec | None:
        """What a loop reads of a value: dimensions that a view only repeats count as 1."""
        value = self.graph.values.get(name)
        if value is None or value.shape is None:
            return None
        shape = value.shape
        strides = self.strides.get(name)
        if strides is not None and 0 in strides:
            shape = tuple(1 if stride == 0 else size for size, stride in zip(shape, strides, strict=True))
        return TensorSpec(dtype=value.dtype or DataType.FLOAT32, shape=shape)

    def is_applied(self, plan: Plan) -> bool:
        """Whether a reduction leaves statistics of each row, and what is done with them is pointwise."""
        if self.engine or plan.role != "reduction":
            return False
        (kernel,) = plan.kernels
        assert isinstance(kernel, RowKernel)
        known = isinstance(kernel, Normalization) or (isinstance(kernel, Softmax) and not plan.buffers)
        return known and row_name(kernel) in STATISTICS and not getattr(kernel, "fused", ())

    def is_kept(self, node: Node) -> bool:
        """Whether any output is asked for."""
        return any(name in self.kept or self.uses.get(name) for name in node.outputs)

    def is_in_rows(self, name: str, kernel: RowKernel) -> bool:
        """Whether the elements that a reduction combines lie side by side, a row after the other: only then does a loop
        over memory write what the reduction's loops read in their order ("memory deps did not match")."""
        shape, strides = self.shape(name), self.strides.get(name)
        _, cols, inner = space_of(kernel)
        if strides is None or shape is None:
            return inner == 1
        axis = len(shape)
        after = 1
        while axis and after < inner:
            axis -= 1
            after *= shape[axis]
        reduced: list[int] = []
        combined = 1
        while axis and combined < cols:
            axis -= 1
            combined *= shape[axis]
            reduced.append(axis)
        own = [strides[place] for place in reduced if shape[place] != 1]
        others = [strides[place] for place, size in enumerate(shape) if place not in reduced and size != 1]
        return not own or not others or max(own) < min(stride for stride in others)

    def is_aligned(self, loop: Loop, name: str, spec: TensorSpec) -> bool:
        """Whether an operand lies in the order of the loop's elements, or in that of the dimensions that it has."""
        root, view = self.root(name)
        whole = self.shape(root)
        if whole is None or prod(whole) != spec.element_count:
            return False
        if loop.row_kernel is not None:
            return view == root and (self.engine or self.is_in_rows(name, loop.row_kernel))
        if spec.element_count == loop.n:
            return self.strides.get(name) == loop.strides
        return loop.strides is None and (view == root or _in_order(self.strides.get(name), spec.shape))

    def operands(self, reads: Iterable[Read]) -> tuple[TensorSpec, ...]:
        """What is read: of several views of one value no more than all of it; single numbers are no traffic."""
        by_root: dict[str, list[TensorSpec]] = {}
        for read in reads:
            by_root.setdefault(read.root, []).append(read.spec)
        specs = []
        for root, views in by_root.items():
            whole = self.spec(root)
            again = whole is not None and sum(view.element_count for view in views) > whole.element_count
            specs.extend([whole] if len(views) > 1 and again and whole is not None else views)
        wide = tuple(spec for spec in specs if spec.element_count != 1)
        return wide or tuple(specs[:1])

    def moves(self, members: Iterable[str], reads: Iterable[Read]) -> tuple[Move, ...]:
        """What nodes of one kernel do to the places of elements, and what its ``reads`` reorder."""
        kernels = (kernel for name in members for kernel in self.plans[name].kernels)
        own = [move for kernel in kernels if (move := generated_move(kernel)) is not None]
        return (*own, *(read.reordered for read in reads if read.reordered is not None))

    def reordered(self, loop: Loop, name: str, spec: TensorSpec) -> Movement | None:
        """The copy of an operand into the order of what a loop writes; None if it lies so, or is no whole tensor."""
        shape = self.shape(name)
        given, wanted = self.strides.get(name), loop.strides
        if given == wanted or shape != loop.spec.shape or shape != spec.shape:
            return None
        axes = [axis for axis, size in enumerate(shape) if size != 1]
        source = axes if given is None else sorted(axes, key=lambda axis: -given[axis])
        target = axes if wanted is None else sorted(axes, key=lambda axis: -wanted[axis])
        if source == target:
            return None
        return Movement(
            operation="copy",
            dtype=spec.dtype,
            shape=tuple([shape[axis] for axis in source]),
            permutation=tuple([source.index(axis) for axis in target]),
            read=spec.byte_count,
            written=spec.byte_count,
            library=GENERATED,
        )

    def look_at(self, node: Node) -> None:
        """Finds out what a node is: a view, or a plan; and who uses which value how."""
        work = self.works[node.name]
        outputs = [self.graph.values.get(name) for name in node.outputs if name]
        if outputs and all(value is not None and (value.is_constant or value.data is not None) for value in outputs):
            return
        if work.free is not None:
            self._look_through(node, outputs)
            return
        plan = self._plan(node, work) if work.kernels else Plan("library", (), buffers=tuple(filter(None, node.inputs)))
        self.plans[node.name] = plan
        if plan.role != "library" and not plan.parts:
            self.flexible.update(filter(None, node.outputs))
        if plan.role == "reduction":
            kind = "loop" if not self.engine and casts_first(plan.kernels[0]) else "reduction"
        elif plan.parts:
            kind = "part"
        else:
            kind = "loop" if plan.again is None or plan.unrolls else "hint"
        twice = kind == "loop" and not OPERAND_TWICE.isdisjoint(plan.operations)
        again = 2 if not self.engine and (twice or self.is_applied(plan)) else 1
        casts_up = plan.operations == ("cast",) and self._dtype(node.outputs[0]) in WIDE
        widens = casts_up or not WIDENED.isdisjoint(plan.operations)
        for name, _ in plan.reads:
            self.uses[self.root(name)[0]].extend([kind] * again)
            if widens:
                self.widened.add(self.root(name)[0])
        for _, name in plan.copies:
            root = self.root(name)[0]
            # a convolution is given a view: what that shows is in memory (``ExternKernel.realize_input``)
            shown = not self.engine and root != name and isinstance(plan.kernels[-1], Conv)
            self.uses[root].append("buffer" if shown else "loop")
        for name in plan.buffers:
            self.uses[self.root(name)[0]].append("buffer")

    def _look_through(self, node: Node, outputs: Sequence[Value | None]) -> None:
        if node.op_type in NO_VIEWS and not node.domain:
            return
        names = [name for name in node.inputs if name]
        values = [self.graph.values.get(name) for name in names]
        tensors = all(value is None or value.kind == "tensor" for value in (*values, *outputs))
        if node.op_type in BODIES or not tensors:
            for name in names:
                self.uses[self.root(name)[0]].append("buffer")
            return
        for name, value in zip(names[1:], values[1:], strict=True):
            if value is None or not (value.is_constant or value.data is not None):
                self.uses[self.root(name)[0]].append("buffer")
        if not names:
            return
        root, view = self.root(names[0])
        for name in node.outputs:
            if name:
                self.roots[name] = (root, view if self._is_same(names[0], name) else name)

    def _is_same(self, before: str, after: str) -> bool:
        """Whether a view shows all elements of what it is a view of, in the same order."""
        first, second = self.shape(before), self.shape(after)
        if first is None or second is None or prod(first) != prod(second):
            return False
        strides = self.strides.get(after)
        return strides == self.strides.get(before) and (strides is None or first == second)

    def _plan(self, node: Node, work: NodeWork) -> Plan:
        kernels = work.kernels if self.engine else tuple(as_reduction(kernel) for kernel in work.kernels)
        names = [name for name in node.inputs if name]
        if node.op_type in BY_PARTS:
            return Plan("library", kernels, buffers=tuple(names))
        specs = [self.spec(name) for name in names]
        single = len([name for name in node.outputs if name]) == 1 and self.shape(node.outputs[0]) is not None
        rest = tuple(kernel for kernel in kernels if not is_copy(kernel)) or kernels[-1:]
        if single and None not in specs:
            shown = [spec for spec in specs if spec is not None]
            loop = (
                None if self.engine else neighbours_plan(node, rest, names, shown) or unrolled_plan(rest, names, shown)
            )
            loop = loop or pointwise_plan(node, rest, names, shown, frozenset(filter(self.is_number, names)))
            if loop is not None:
                return loop
        row_kernel = rest[0] if len(rest) == 1 else None
        if names and specs[0] is not None and isinstance(row_kernel, RowKernel) and is_loop(row_kernel):
            return Plan("reduction", rest, reads=((names[0], specs[0]),), buffers=tuple(names[1:]))
        copies = tuple(kernel for kernel in kernels if isinstance(kernel, Movement) and is_copy(kernel))
        paired = self._paired(copies, names) if len(rest) + len(copies) == len(kernels) and copies else None
        if paired is None:
            return Plan("library", kernels, buffers=tuple(names))
        written = {name: copy for copy, name in paired if name not in self.strides and name in self.flexible}
        self.ordered.update(written)
        paired = tuple((copy, name) for copy, name in paired if name not in written)
        copied = {name for _, name in paired}
        return Plan("library", rest, buffers=tuple(name for name in names if name not in copied), copies=paired)

    def _paired(self, copies: Sequence[Movement], names: Sequence[str]) -> tuple[tuple[Movement, str], ...] | None:
        """Each copy with the input that it copies, a strided one before others; None where they can't be told."""
        left = sorted(names, key=lambda name: name not in self.strides)
        pairs = []
        for copy in copies:
            found = next((name for name in left if self._fits(copy, name)), None)
            if found is None:
                return None
            left.remove(found)
            pairs.append((copy, found))
        return tuple(pairs)

    def _fits(self, copy: Movement, name: str) -> bool:
        spec, shape = self.spec(name), self.shape(name)
        if spec is None or shape is None or spec.dtype is not copy.dtype:
            return False
        size = spec.dtype.bytes_of(prod(shape))
        return copy.read == spec.byte_count and size > 0 and copy.written % size == 0

    def peel(self, node: Node, kernel: Kernel) -> None:
        """Notes where the compiler adds a bias itself: the library call needs none in memory then."""
        bare = self._peeled(node, kernel)
        if bare is None:
            return
        self.peeled[node.name] = bare
        bias = self.uses[self.root(node.inputs[2])[0]]
        bias[bias.index("buffer")] = "loop"

    def _peeled(self, node: Node, kernel: Kernel) -> tuple[Gemm | Conv, TensorSpec] | None:
        """(the call without its bias, the bias) where the compiler adds the bias itself.

        Convolutions always ("cuDNN is slower with it", says Inductor); products (``addmm``) if only pointwise work
        uses the result (``should_prefer_unfused_addmm``).
        """
        if not isinstance(kernel, Gemm | Conv) or kernel.epilogue != ("bias",) or len(node.inputs) < 3:
            return None
        if self.engine:
            return None
        output, bias = self.spec(node.outputs[0]), self.spec(node.inputs[2])
        if output is None or bias is None or len(node.outputs) != 1:
            return None
        uses = self.uses.get(node.outputs[0], [])
        if isinstance(kernel, Conv):
            shape = (kernel.k, *(1 for _ in kernel.out))
            return replace(kernel, epilogue=()), TensorSpec(dtype=bias.dtype, shape=shape)
        if not uses or node.outputs[0] in self.kept or any(use != "loop" for use in uses):
            return None
        return replace(kernel, epilogue=()), TensorSpec(dtype=bias.dtype, shape=(kernel.n,))


def _named(graph: InferredGraph) -> Iterable[str]:
    """Names that a body and its bodies read."""
    for node in graph.graph.nodes:
        yield from node.inputs
    for declared in graph.graph.outputs:
        yield declared.name
    for body in graph.bodies.values():
        yield from _named(body)


def _in_order(strides: tuple[int, ...] | None, shape: tuple[int, ...]) -> bool:
    """Whether the dimensions that a view doesn't repeat lie densely, in their order."""
    if strides is None:
        return True
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True
