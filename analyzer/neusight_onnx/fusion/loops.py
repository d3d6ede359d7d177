"""What a loop compiler makes of eager kernels: PyTorch's Inductor in its default mode, as of PyTorch 2.9.

It works on the kernels that lowering gave to each node, in two steps that mirror Inductor's own:

1. *Inlining.* A pointwise value isn't computed where it is defined but where it is used, through any view. It is
   written to memory only where it must be (a library or the caller reads it) or where computing it again is dear.
2. *Scheduling.* Kernels that write such buffers, and reductions, merge with the kernels that read them, if both run
   over the same elements in the same order and no third kernel stands between them. A reduction's kernel also takes
   the pointwise work over its rows before and after it, and other reductions over the same rows.

Products, convolutions, sorts, scans, fused attention and what has no rule here stay library calls: nothing merges
with them. Views are index arithmetic. A copy that a library needs (dense matrices) computes what it copies. A softmax
or a normalization is a reduction, which leaves statistics, and pointwise work. A concatenation is a loop over its
result, or no kernel: what makes a part writes it at its place in the result, and what lies elsewhere is copied.

Engines compile chains by the same two steps, with their own choice where Inductor has a fixed rule (``engine``).

Where the rules come from: the thresholds are documented options of ``torch._inductor.config``; the behaviour is that
of its public sources (``ir.StorageBox``, ``ir.ConcatKernel``, ``lowering.cat``, ``scheduler.Scheduler``,
``fx_passes/post_grad.py``, ``kernel/conv.py``), and of the kernels that 2.9.1 generates for models
(``benchmarks/fusion_inductor.py``).
Left out on purpose: fusion of kernels that only share an input (Inductor asks for equal offsets, so that parts of one
product don't count) and splitting of long reductions. What it replaces before: :mod:`neusight_onnx.fusion.attention`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TypeAlias

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import InferredGraph, Node, Value
from neusight_onnx.kernels import (
    ELEMENTWISE_FLOPS,
    Conv,
    Elementwise,
    GatherScatter,
    Gemm,
    Kernel,
    Movement,
    NodeWork,
    Normalization,
    Pooling,
    Reduction,
    Softmax,
    TensorSpec,
)
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
LARGEST_WINDOW = 25
"""``should_fallback_max_pool_with_indices``, ``_avg_poolnd``: pooling of larger windows is a call of PyTorch's."""
RESIZE_TAPS = {"linear": 2, "cubic": 4}
"""Elements along each axis that an interpolated one is made of."""
MOST_LOOPS = 64
"""``max_fusion_size``: values that were to be written, and reductions, that one kernel may hold."""

POINTWISE_MOVES = frozenset(
    {"cast", "concat", "copy", "expand", "fill", "flip", "pad", "resize", "slice", "split", "tile", "transpose"}
)
"""Movements that compilers write as loops: every output element is one input element, at a computed place."""
REORDERING_MOVES = POINTWISE_MOVES - {"cast", "copy", "fill"} | {"gather"}
REORDERING = frozenset({"RotaryEmbedding", "GemmaRotaryEmbedding", "MRotaryEmbedding", "Glu", "BiasSplitGelu"})
"""Pointwise operators that combine elements at different places."""
GATHERS = frozenset({"embedding", "gather"})
SCANS = ("cum",)
"""Prefixes of reductions that stay library calls."""
ROW_METHODS = frozenset({"layer", "rms", "lp", "group", "instance"})
DECOMPOSED = {"gelu": 6, "gelu_tanh": 12, "silu": 2, "mish": 6, "softplus": 4, "hardswish": 4, "hardsigmoid": 3}
"""Operations that one name stands for, by its formula; others count as one."""
BATCH_NORM = ("sub", "mul", "mul", "add")
WIDENED = frozenset(
    {"elu", "gelu", "gelu_tanh", "hardsigmoid", "hardswish", "leaky_relu", "mish", "selu", "silu", "softplus"}
)
"""Functions whose decompositions compute in FP32 (``pw_cast_for_opmath`` and type promotion in ``torch/_decomp``)."""
OPERAND_TWICE = frozenset({"gelu", "gelu_tanh", "hardswish", "mish", "silu"})
"""Those of them that two operations of the formula take the operand of."""
STATISTICS = {"layer": 2, "group": 2, "instance": 2, "rms": 1, "softmax": 2}
"""Numbers a row that a reduction leaves for the pointwise rest of its formula: mean and variance, maximum and sum."""
_NORMED = ("sub", "mul", "mul", "add")
APPLIED = {
    "layer": _NORMED,
    "group": _NORMED,
    "instance": _NORMED,
    "rms": ("mul", "mul"),
    "softmax": ("sub", "exp", "div"),
}
"""That rest."""
SPLIT_COLUMNS = 8192
"""Longer rows are reduced in two kernels where there are few (``reduction_split_factor``); nothing merges behind."""
SPLIT_ROWS = 200
"""So few: twice the GPU's multiprocessors. About a hundred stand for those, as graphs are prepared for all GPUs."""
BODIES = frozenset({"If", "Loop", "Scan", "SequenceMap"})
NO_VIEWS = frozenset({"Shape", "Size", "SequenceLength"})
"""Free operators that look at nothing but the shape."""
IN_PLACE = "its parts are written at their places in it"
UNUSED = "nothing uses its result: a compiler drops it"

HALVES = frozenset({DataType.FLOAT16, DataType.BFLOAT16})
GENERATED = Elementwise | Softmax | Normalization
BY_PARTS = frozenset({"BiasByParts"})
"""Nodes that are a kernel for each part of their result already."""
RowKernel: TypeAlias = Softmax | Normalization | Reduction
Key: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Read:
    """Elements of a value in memory (``root``) that a loop reads, through a view.

    ``aligned``: in the order of the loop's own elements, all of the value, each once (or repeated as its shape says).
    ``per_row``: a statistic of the rows that the elements lie in.
    """

    root: str
    view: str
    spec: TensorSpec
    aligned: bool
    per_row: bool = False


@dataclass(slots=True)
class _Loop:
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
    reads: dict[Key, _Read] = field(default_factory=dict)
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
class _Group:
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
    reads: dict[Key, _Read] = field(default_factory=dict)
    writes: dict[str, TensorSpec] = field(default_factory=dict)
    row_kernels: list[tuple[str, RowKernel, Key | None]] = field(default_factory=list)
    alone: tuple[Kernel, ...] = ()
    joined: _Group | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a node is to the compiler. ``role``: "pointwise", "reduction" or "library".

    ``reads``: inputs of a loop with what is read of each. ``copies``: of a library call, with the input that each
    copies. ``kernels``: without the copies that strided loads make unnecessary. ``reorders``: an output element isn't
    made from the input elements at its own place. ``parts``: of a concatenation, its inputs with elements. ``again``:
    of a loop over neighbours, how often it reads its operands beyond once.
    """

    role: str
    kernels: tuple[Kernel, ...]
    reads: tuple[tuple[str, TensorSpec], ...] = ()
    buffers: tuple[str, ...] = ()
    copies: tuple[tuple[Movement, str], ...] = ()
    operations: tuple[str, ...] = ()
    reorders: bool = False
    parts: tuple[str, ...] = ()
    again: int | None = None


def merge_loops(
    graph: InferredGraph,
    works: Sequence[NodeWork],
    strides: Mapping[str, tuple[int, ...]],
    *,
    engine: bool = False,
) -> tuple[NodeWork, ...]:
    """``works`` of ``graph`` with what a compiler merges in one node's work, each body on its own.

    ``strides`` are those of values that aren't contiguous, in elements. The work of a merged kernel stands at the last
    of its nodes and lists all of them as origins; the others are free with the reason. Linear in the graph's size.
    ``engine``: an inference engine compiles, which keeps biases in products, has libraries write parts of a
    concatenation, too, and doesn't compute a value anew where that moves more bytes than to write it once.
    """
    places = {work.node: place for place, work in enumerate(works)}
    result = list(works)
    pending = [graph]
    while pending:
        current = pending.pop()
        pending.extend(current.bodies.values())
        own = {node.name: works[places[node.name]] for node in current.graph.nodes if node.name in places}
        for work in _Compiler(current, own, strides, engine).merged():
            result[places[work.node]] = work
    return tuple(result)


@dataclass(slots=True)
class _Compiler:
    """One graph on its way through both steps.

    ``roots``: (value in memory, view of it) of a name; ``uses``: how nodes use a root ("loop", "hint": in a loop
    over neighbours, "reduction", "part" of a concatenation, "buffer": must be in memory); ``kept``: roots that outlive
    the graph. ``pending``: values that are computed where they are used. ``owners``, ``readers``: kernels that write
    and read a root. ``library``: kernels of library calls by node; ``origins``: nodes whose work a node's kernels do;
    ``sizes``: elements of what a node's pointwise work makes. ``placed``: concatenations with those of their parts that
    are written at their places; ``parts``: values that are such a part. ``fixed``: values whose layout a library call
    has settled; ``flexible``: those that a loop writes, in whatever order a library call wants
    (``require_stride_order`` of ``ir.ExternKernel`` has such a buffer laid out so, and copies others). ``reduced``:
    results of reductions. ``widened``: values that a user computes on in FP32; ``stored``: those that are written in
    another type than the model says. ``peeled``: library calls without the bias that the compiler adds, and the bias.
    ``outs``: products of matrices, which the library writes where it is told (``ir.ExternKernelOut``).
    """

    graph: InferredGraph
    works: Mapping[str, NodeWork]
    strides: Mapping[str, tuple[int, ...]]
    engine: bool = False
    roots: dict[str, tuple[str, str]] = field(default_factory=dict)
    plans: dict[str, _Plan] = field(default_factory=dict)
    uses: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    kept: set[str] = field(default_factory=set)
    pending: dict[str, _Loop] = field(default_factory=dict)
    owners: dict[str, _Group] = field(default_factory=dict)
    readers: dict[str, list[_Group]] = field(default_factory=lambda: defaultdict(list))
    groups: list[_Group] = field(default_factory=list)
    library: dict[str, tuple[Kernel, ...]] = field(default_factory=dict)
    origins: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    sizes: dict[str, int] = field(default_factory=dict)
    placed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    parts: set[str] = field(default_factory=set)
    fixed: set[str] = field(default_factory=set)
    flexible: set[str] = field(default_factory=set)
    reduced: set[str] = field(default_factory=set)
    widened: set[str] = field(default_factory=set)
    stored: dict[str, DataType] = field(default_factory=dict)
    peeled: dict[str, tuple[Gemm | Conv, TensorSpec]] = field(default_factory=dict)
    outs: set[str] = field(default_factory=set)

    def merged(self) -> list[NodeWork]:
        """The work of every node that changes."""
        nodes = [node for node in self.graph.graph.nodes if node.name in self.works]
        for node in nodes:
            self._look(node)
        for declared in self.graph.graph.outputs:
            self.kept.add(self._root(declared.name)[0])
        for body in self.graph.bodies.values():
            self.kept.update(self._root(name)[0] for name in _named(body) if name)
        for node in nodes:
            plan = self.plans.get(node.name)
            if plan is not None and plan.role == "library" and len(plan.kernels) == 1:
                self._peel(node, plan.kernels[0])
        for node in nodes:
            plan = self.plans.get(node.name)
            if plan is not None:
                self._build(node, plan)
        return self._emit(nodes)

    # --- What each node is --------------------------------------------------------------------------------------------

    def _root(self, name: str) -> tuple[str, str]:
        return self.roots.get(name, (name, name))

    def _look(self, node: Node) -> None:
        """Finds out what a node is: a view, or a plan; and who uses which value how."""
        work = self.works[node.name]
        outputs = [self.graph.values.get(name) for name in node.outputs if name]
        if outputs and all(value is not None and (value.is_constant or value.data is not None) for value in outputs):
            return
        if work.free is not None:
            self._look_through(node, outputs)
            return
        plan = (
            self._plan(node, work) if work.kernels else _Plan("library", (), buffers=tuple(filter(None, node.inputs)))
        )
        self.plans[node.name] = plan
        if plan.role != "library" and not plan.parts:
            self.flexible.update(filter(None, node.outputs))
        if plan.role == "reduction":
            kind = "loop" if not self.engine and _casts_first(plan.kernels[0]) else "reduction"
        elif plan.parts:
            kind = "part"
        else:
            kind = "loop" if plan.again is None else "hint"
        twice = kind == "loop" and not OPERAND_TWICE.isdisjoint(plan.operations)
        again = 2 if not self.engine and (twice or self._is_applied(plan)) else 1
        widens = not WIDENED.isdisjoint(plan.operations) or (
            plan.operations == ("cast",) and _writes_fp32(plan.kernels[-1])
        )
        for name, _ in plan.reads:
            self.uses[self._root(name)[0]].extend([kind] * again)
            if widens:
                self.widened.add(self._root(name)[0])
        for _, name in plan.copies:
            root = self._root(name)[0]
            # a convolution is given a view: what that shows is in memory (``ExternKernel.realize_input``)
            shown = not self.engine and root != name and isinstance(plan.kernels[-1], Conv)
            self.uses[root].append("buffer" if shown else "loop")
        for name in plan.buffers:
            self.uses[self._root(name)[0]].append("buffer")

    def _look_through(self, node: Node, outputs: Sequence[Value | None]) -> None:
        if node.op_type in NO_VIEWS and not node.domain:
            return
        names = [name for name in node.inputs if name]
        values = [self.graph.values.get(name) for name in names]
        tensors = all(value is None or value.kind == "tensor" for value in (*values, *outputs))
        if node.op_type in BODIES or not tensors:
            for name in names:
                self.uses[self._root(name)[0]].append("buffer")
            return
        for name, value in zip(names[1:], values[1:], strict=True):
            if value is None or not (value.is_constant or value.data is not None):
                self.uses[self._root(name)[0]].append("buffer")
        if not names:
            return
        root, view = self._root(names[0])
        for name in node.outputs:
            if name:
                self.roots[name] = (root, view if self._is_same(names[0], name) else name)

    def _is_same(self, before: str, after: str) -> bool:
        """Whether a view shows all elements of what it is a view of, in the same order."""
        first, second = self._shape(before), self._shape(after)
        if first is None or second is None or prod(first) != prod(second):
            return False
        strides = self.strides.get(after)
        return strides == self.strides.get(before) and (strides is None or first == second)

    def _shape(self, name: str) -> tuple[int, ...] | None:
        value = self.graph.values.get(name)
        return None if value is None else value.shape

    def _is_number(self, name: str) -> bool:
        """Whether a value is one number that the compiler knows, and writes into the kernel."""
        value = self.graph.values.get(name)
        known = value is not None and (value.is_constant or value.data is not None) and value.shape is not None
        return known and value is not None and value.element_count == 1

    def _spec(self, name: str) -> TensorSpec | None:
        """What a loop reads of a value: dimensions that a view only repeats count as 1."""
        value = self.graph.values.get(name)
        if value is None or value.shape is None:
            return None
        shape = value.shape
        strides = self.strides.get(name)
        if strides is not None and 0 in strides:
            shape = tuple(1 if stride == 0 else size for size, stride in zip(shape, strides, strict=True))
        return TensorSpec(dtype=value.dtype or DataType.FLOAT32, shape=shape)

    def _plan(self, node: Node, work: NodeWork) -> _Plan:
        kernels = work.kernels if self.engine else tuple(_as_reduction(kernel) for kernel in work.kernels)
        names = [name for name in node.inputs if name]
        if node.op_type in BY_PARTS:
            return _Plan("library", kernels, buffers=tuple(names))
        specs = [self._spec(name) for name in names]
        single = len([name for name in node.outputs if name]) == 1 and self._shape(node.outputs[0]) is not None
        rest = tuple(kernel for kernel in kernels if not _is_copy(kernel)) or kernels[-1:]
        if single and None not in specs:
            shown = [spec for spec in specs if spec is not None]
            loop = None if self.engine else _neighbours_plan(node, rest, names, shown)
            loop = loop or _pointwise_plan(node, rest, names, shown, frozenset(filter(self._is_number, names)))
            if loop is not None:
                return loop
        row_kernel = rest[0] if len(rest) == 1 else None
        if names and specs[0] is not None and isinstance(row_kernel, RowKernel) and _is_loop(row_kernel):
            return _Plan("reduction", rest, reads=((names[0], specs[0]),), buffers=tuple(names[1:]))
        copies = tuple(kernel for kernel in kernels if isinstance(kernel, Movement) and _is_copy(kernel))
        paired = self._paired(copies, names) if len(rest) + len(copies) == len(kernels) and copies else None
        if paired is None:
            return _Plan("library", kernels, buffers=tuple(names))
        paired = tuple((copy, name) for copy, name in paired if name in self.strides or name not in self.flexible)
        copied = {name for _, name in paired}
        return _Plan("library", rest, buffers=tuple(name for name in names if name not in copied), copies=paired)

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
        spec, shape = self._spec(name), self._shape(name)
        if spec is None or shape is None or spec.dtype is not copy.dtype:
            return False
        size = spec.dtype.bytes_of(prod(shape))
        return copy.read == spec.byte_count and size > 0 and copy.written % size == 0

    def _peel(self, node: Node, kernel: Kernel) -> None:
        """Notes where the compiler adds a bias itself: the library call needs none in memory then."""
        bare = self._peeled(node, kernel)
        if bare is None:
            return
        self.peeled[node.name] = bare
        bias = self.uses[self._root(node.inputs[2])[0]]
        bias[bias.index("buffer")] = "loop"

    def _is_applied(self, plan: _Plan) -> bool:
        """Whether a reduction leaves statistics of each row, and what is done with them is pointwise."""
        if self.engine or plan.role != "reduction":
            return False
        (kernel,) = plan.kernels
        assert isinstance(kernel, RowKernel)
        known = isinstance(kernel, Normalization) or (isinstance(kernel, Softmax) and not plan.buffers)
        return known and _row_name(kernel) in STATISTICS and not getattr(kernel, "fused", ())

    # --- Step 1: inlining ---------------------------------------------------------------------------------------------

    def _build(self, node: Node, plan: _Plan) -> None:
        if plan.role == "library":
            self._call(node, plan)
            return
        if plan.parts and not self.engine and not self._joins_in_a_loop(node, plan):
            self._concatenate(node, plan)
            return
        spec = self._spec(node.outputs[0]) or plan.reads[0][1]
        row_kernel = plan.kernels[0] if plan.role == "reduction" else None
        assert row_kernel is None or isinstance(row_kernel, RowKernel)
        n = spec.element_count if row_kernel is None else prod(_space(row_kernel)[:2])
        output = node.outputs[0]
        strides = self.strides.get(output)
        loop = _Loop(node=node, output=output, spec=spec, n=n, strides=strides, row_kernel=row_kernel)
        for name, read in plan.reads:
            self._take(loop, name, read, reorders=plan.reorders)
        loop.members[node.name] = plan.operations
        loop.again += plan.again or 0
        loop.buffers = tuple([self._root(name)[0] for name in plan.buffers])
        if len(loop.members) == 1 and not isinstance(plan.kernels[0], Pooling):
            loop.kernels = plan.kernels
        if row_kernel is None:
            self.sizes[node.name] = n
            if plan.parts and self.engine and self._must_write(loop):
                self._concatenate(node, plan)
                return
            self._define(loop)
        elif self._is_kept(node):
            if self._is_applied(plan):
                self._apply(node, plan, loop, spec)
                return
            self._schedule(loop, main=next(iter(loop.reads)) if len(loop.reads) == 1 else None)

    def _apply(self, node: Node, plan: _Plan, loop: _Loop, spec: TensorSpec) -> None:
        """Splits a softmax or a normalization in its statistics, a reduction, and the pointwise rest of its formula.

        The rest is computed where it is used, as any pointwise value: in the reduction's kernel if it runs over the
        same rows in their order, else from the operand, which is read again.
        """
        (kernel,) = plan.kernels
        assert isinstance(kernel, RowKernel)
        rows, _, _ = _space(kernel)
        name = _row_name(kernel)
        count = STATISTICS[name]
        shape = (*spec.shape[:-1], 1) if spec.shape and prod(spec.shape[:-1]) == rows else (rows,)
        loop.kernels = ()
        loop.output = f"{node.outputs[0]} statistics"
        loop.spec = TensorSpec(dtype=DataType.FLOAT32, shape=(count, rows) if count > 1 else (rows,))
        self._schedule(loop, main=next(iter(loop.reads)) if len(loop.reads) == 1 else None)
        self.owners.pop(node.outputs[0], None)
        rest = _Loop(node=node, output=node.outputs[0], spec=spec, n=loop.n, strides=self.strides.get(node.outputs[0]))
        for operand, read in plan.reads:
            self._take(rest, operand, read, reorders=False)
        statistic = TensorSpec(dtype=DataType.FLOAT32, shape=shape)
        for place in range(count):
            rest.reads[(loop.output, str(place))] = _Read(loop.output, str(place), statistic, True, per_row=True)
        for root, item in zip(loop.buffers, plan.buffers, strict=True):
            found = self._spec(item)
            if found is not None:
                rest.reads.setdefault((root, root), _Read(root, root, found, True))
        rest.members[node.name] = APPLIED[name]
        self.sizes[node.name] = rest.n
        self._define(rest)

    def _is_kept(self, node: Node) -> bool:
        """Whether any output is asked for."""
        return any(name in self.kept or self.uses.get(name) for name in node.outputs)

    def _take(self, loop: _Loop, name: str, spec: TensorSpec, *, reorders: bool) -> None:
        """Adds an operand: computed in the loop if it isn't in memory, else read."""
        root, view = self._root(name)
        if root in self.stored:
            spec = replace(spec, dtype=self.stored[root])
        source = self.pending.get(root)
        if source is not None and self.engine and self._is_dear_anew(source, loop.n):
            del self.pending[root]
            self._schedule(source)
            source = None
        aligned = not reorders and self._is_aligned(loop, name, spec)
        if source is None:
            loop.reads.setdefault((root, view), _Read(root, view, spec, aligned))
            return
        loop.members.update(source.members)
        loop.again += source.again
        shown = spec.element_count
        for key, read in source.reads.items():
            if shown < source.n and read.spec.element_count > shown:
                part = TensorSpec(dtype=read.spec.dtype, shape=(shown,))
                read = _Read(read.root, f"{read.view} by {name}", part, False)
                key = (read.root, read.view)
            elif not aligned and read.aligned:
                read = replace(read, aligned=False)
            loop.reads.setdefault(key, read)

    def _is_dear_anew(self, source: _Loop, n: int) -> bool:
        """Whether special functions are worth a kernel of their own, in place of computing each for all ``n`` elements
        that one element of theirs is broadcast to."""
        flops = sum(ELEMENTWISE_FLOPS.get(name, 1) for names in source.members.values() for name in names)
        return (n - source.n) * flops > FLOPS_ANEW

    def _is_aligned(self, loop: _Loop, name: str, spec: TensorSpec) -> bool:
        """Whether an operand lies in the order of the loop's elements, or in that of the dimensions that it has."""
        root, view = self._root(name)
        whole = self._shape(root)
        if whole is None or prod(whole) != spec.element_count:
            return False
        if loop.row_kernel is not None:
            return view == root and (self.engine or self._is_in_rows(name, loop.row_kernel))
        if spec.element_count == loop.n:
            return self.strides.get(name) == loop.strides
        return loop.strides is None and (view == root or _in_order(self.strides.get(name), spec.shape))

    def _is_in_rows(self, name: str, kernel: RowKernel) -> bool:
        """Whether the elements that a reduction combines lie side by side, a row after the other: only then does a loop
        over memory write what the reduction's loops read in their order ("memory deps did not match")."""
        shape, strides = self._shape(name), self.strides.get(name)
        _, cols, inner = _space(kernel)
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

    def _define(self, loop: _Loop) -> None:
        """Leaves a pointwise value to those who use it, or has it written."""
        if not self.uses.get(loop.output) and loop.output not in self.kept:
            return
        if self._must_write(loop):
            if self._is_stored_wide(loop):
                loop.spec = replace(loop.spec, dtype=DataType.FLOAT32)
                loop.kernels = ()
                self.stored[loop.output] = DataType.FLOAT32
            self._schedule(loop)
        else:
            self.pending[loop.output] = loop

    def _is_stored_wide(self, loop: _Loop) -> bool:
        """Whether a value of 16 bits is written in FP32: computed so, and a user widens it, which leaves no cast
        between (``joint_graph.pointless_convert``)."""
        if self.engine or loop.output in self.kept or loop.spec.dtype not in HALVES or loop.output not in self.widened:
            return False
        own = loop.members.get(loop.node.name, ())
        return own == BATCH_NORM or not WIDENED.isdisjoint(own)

    def _must_write(self, loop: _Loop) -> bool:
        """Whether a pointwise value is written to memory, rather than computed wherever it is used."""
        uses = self.uses.get(loop.output, [])
        dear = loop.load_count > READS_TO_ACCUMULATE or loop.cost > OPERATIONS_TO_INLINE
        again = len(uses) > 1 and loop.load_count > READS_TO_REUSE
        if self.engine and len(uses) > 1:
            read, size = sum(item.spec.byte_count for item in loop.reads.values()), loop.spec.byte_count
            again = len(uses) * read > read + (1 + len(uses)) * size
        again = again or ("hint" in uses and loop.load_count > 1)
        return loop.output in self.kept or dear or again or "buffer" in uses

    def _joins_in_a_loop(self, node: Node, plan: _Plan) -> bool:
        """Whether a concatenation is one loop over its result that computes each part under a mask (``lowering.cat``).

        So it is for a few parts, if only pointwise work uses the result and one part at least needn't be written for
        it, or if all parts would have to be copied and none is made from a reduction's results.
        """
        if len(plan.parts) > MOST_JOINED:
            return False
        loose = [self._is_loose(name) for name in plan.parts]
        uses = self.uses.get(node.outputs[0], [])
        if any(loose) and uses and set(uses) <= POINTWISE_USES and node.outputs[0] not in self.kept:
            return True
        return all(loose) and not any(self._is_of_reduction(name) for name in plan.parts)

    def _is_loose(self, name: str) -> bool:
        """Whether a part of a concatenation isn't written at its place in it by what makes it: nothing does so far, or
        it lies elsewhere."""
        root, _ = self._root(name)
        return root in self.pending or name != root or not self._may_place(root)

    def _is_of_reduction(self, name: str) -> bool:
        """Whether a part is the result of a reduction, or computed from such right here."""
        root, _ = self._root(name)
        source = self.pending.get(root)
        roots = [root] if source is None else [read.root for read in source.reads.values()]
        return any(root in self.reduced for root in roots)

    def _concatenate(self, node: Node, plan: _Plan) -> None:
        """A concatenation: each part is written at its place by what makes it, or copied there by a kernel of its own.

        In place are pointwise values and reductions that no view stands before, of Inductor if no library call has
        settled their layout (``ConcatKernel.realize_into``), of engines also what libraries write ("merging of
        concatenation layers by directing layer outputs to the correct eventual destination", TensorRT developer
        guide). What is computed behind a view is computed for its part alone.
        """
        (kernel,) = plan.kernels
        assert isinstance(kernel, Movement)
        whole = _Group(n=0, level=0, is_library=True)
        output = node.outputs[0]
        placed: list[str] = []
        copied: list[str] = []
        roots: list[str] = []
        self.sizes[node.name] = prod(kernel.shape)
        for name in plan.parts:
            root, view = self._root(name)
            direct = name == root or (self.engine and view == root)
            if direct and (root in self.pending or self._may_place(root)):
                if root in self.pending:
                    self._schedule(self.pending.pop(root))
                placed.append(name)
                roots.append(root)
                self.parts.add(root)
            elif root in self.pending:
                roots.append(self._part(node, kernel, (name,)))
            else:
                copied.append(name)
        kernels = [tuple(copied)] if copied and self.engine else [(name,) for name in copied]
        roots += [self._part(node, kernel, names) for names in kernels]
        whole.level = max((self._read_by(whole, root) for root in roots), default=0)
        self.placed[node.name] = tuple(placed)
        self.owners[output] = whole

    def _may_place(self, root: str) -> bool:
        """Whether a value in memory may lie in a concatenation: it is no part of one yet, and nobody else's memory."""
        owner = self._owner(root)
        if owner is None or root in self.parts or root in self.kept:
            return False
        return self.engine or not (owner.is_library or root in self.fixed) or root in self.outs

    def _part(self, node: Node, kernel: Movement, names: tuple[str, ...]) -> str:
        """Has parts of a concatenation computed at their places, or copied there; the name of what is written."""
        specs = [spec for name in names if (spec := self._spec(name)) is not None]
        shapes = [shape for name in names if (shape := self._shape(name)) is not None]
        axis = next((at for at, sizes in enumerate(zip(*shapes, kernel.shape, strict=True)) if len(set(sizes)) > 1), 0)
        joined = tuple(sum(sizes) if at == axis else sizes[0] for at, sizes in enumerate(zip(*shapes, strict=True)))
        written = TensorSpec(dtype=kernel.dtype, shape=joined)
        whole = self.strides.get(node.outputs[0])
        ordered = whole is not None and suggests_channels_last(kernel.shape, whole)
        loop = _Loop(
            node=node,
            output=f"{names[0]} in {node.outputs[0]}",
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
        self._schedule(loop)
        return loop.output

    def _call(self, node: Node, plan: _Plan) -> None:
        """A library call: its operands are in memory; copies compute what they copy."""
        group = _Group(n=0, level=0, is_library=True)
        emitted: list[Kernel] = []
        level = 0
        for copy, name in plan.copies:
            spec, shape = self._spec(name), self._shape(name)
            assert spec is not None
            assert shape is not None
            written = TensorSpec(dtype=spec.dtype, shape=shape)
            loop = _Loop(node=node, output="", spec=written, n=written.element_count)
            self._take(loop, name, spec, reorders=True)
            for read in loop.reads.values():
                level = max(level, self._read_by(group, read.root))
            if not loop.members:
                emitted.append(copy)
                continue
            operations = (*_operations(loop.members.values()), "copy")
            emitted.append(_elementwise(operations, self._operands(loop.reads.values()), (written,)))
            self.origins[node.name].update(dict.fromkeys(loop.members))
        peeled = self.peeled.get(node.name)
        for name in plan.buffers:
            if peeled is not None and name == node.inputs[2]:
                continue
            self.fixed.add(self._root(name)[0])
            level = max(level, self._read_by(group, self._root(name)[0]))
        group.level = level + 1
        if peeled is None:
            for name in node.outputs:
                if name:
                    self.owners[name] = group
                    if (
                        isinstance(plan.kernels[-1] if plan.kernels else None, Gemm)
                        and len(self._shape(name) or ()) == 2
                    ):
                        self.outs.add(name)
            self.library[node.name] = (*emitted, *plan.kernels)
            return
        bare, bias = peeled
        product = f"{node.outputs[0]} before bias"
        self.owners[product] = group
        self.library[node.name] = (*emitted, bare)
        output = self._spec(node.outputs[0])
        assert output is not None
        strides = self.strides.get(node.outputs[0])
        loop = _Loop(node=node, output=node.outputs[0], spec=output, n=output.element_count, strides=strides)
        loop.reads[(product, product)] = _Read(product, product, output, True)
        self._take(loop, node.inputs[2], bias, reorders=False)
        loop.members[node.name] = ("add",)
        self.sizes[node.name] = loop.n
        self._define(loop)

    def _peeled(self, node: Node, kernel: Kernel) -> tuple[Gemm | Conv, TensorSpec] | None:
        """(the call without its bias, the bias) where the compiler adds the bias itself.

        Convolutions always ("cuDNN is slower with it", says Inductor); products (``addmm``) if only pointwise work
        uses the result (``should_prefer_unfused_addmm``).
        """
        if not isinstance(kernel, Gemm | Conv) or kernel.epilogue != ("bias",) or len(node.inputs) < 3:
            return None
        if self.engine:
            return None
        output, bias = self._spec(node.outputs[0]), self._spec(node.inputs[2])
        if output is None or bias is None or len(node.outputs) != 1:
            return None
        uses = self.uses.get(node.outputs[0], [])
        if isinstance(kernel, Conv):
            shape = (kernel.k, *(1 for _ in kernel.out))
            return replace(kernel, epilogue=()), TensorSpec(dtype=bias.dtype, shape=shape)
        if not uses or node.outputs[0] in self.kept or any(use != "loop" for use in uses):
            return None
        return replace(kernel, epilogue=()), TensorSpec(dtype=bias.dtype, shape=(kernel.n,))

    # --- Step 2: scheduling -------------------------------------------------------------------------------------------

    def _owner(self, root: str) -> _Group | None:
        group = self.owners.get(root)
        if group is None:
            return None
        while group.joined is not None:
            if group.joined.joined is not None:
                group.joined = group.joined.joined
            group = group.joined
        self.owners[root] = group
        return group

    def _read_by(self, group: _Group, root: str) -> int:
        """Notes that ``group`` reads a value in memory; the level of who wrote it (0: it was there)."""
        self.readers[root].append(group)
        owner = self._owner(root)
        if owner is None or owner is group:
            return 0
        owner.is_read = True
        return owner.level

    def _schedule(self, loop: _Loop, main: Key | None = None) -> None:
        """Writes a value: in a kernel of its own, or in those that it reads from.

        Kernels may merge if none that stays apart has to run between them. Levels answer that without a search: who
        reads from a kernel is on a higher level, so that kernels on one level don't wait for each other.
        """
        space = None if loop.row_kernel is None else self._space_of(loop)
        producers: dict[int, tuple[_Group, list[_Read]]] = {}
        for read in loop.reads.values():
            owner = self._owner(read.root)
            if owner is not None:
                producers.setdefault(id(owner), (owner, []))[1].append(read)
        beside = [owner for root in loop.buffers if (owner := self._owner(root)) is not None]
        chosen: list[_Group] = []
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
            self._read_by(group, root)
        if loop.row_kernel is not None:
            self.reduced.update(filter(None, loop.node.outputs))
            rows, cols, inner = _space(loop.row_kernel)
            group.is_split = not self.engine and rows < SPLIT_ROWS and cols > SPLIT_COLUMNS and inner == 1
            group.row_kernels.append((loop.node.name, loop.row_kernel, main))
        group.writes[loop.output] = loop.spec
        self.owners.update((name, group) for name in (loop.output, *loop.node.outputs[1:]) if name)

    def _space_of(self, loop: _Loop) -> tuple[int, int, int]:
        """(rows, columns, distance of neighbours in a row) of a reduction, as they lie in memory: what is done with
        statistics runs in the order of the result, other work in that of the operand."""
        assert loop.row_kernel is not None
        rows, cols, inner = _space(loop.row_kernel)
        if self.engine or not loop.node.inputs:
            return rows, cols, inner
        looked = loop.node.outputs[0] if self._is_applied(self.plans[loop.node.name]) else loop.node.inputs[0]
        if self._is_in_rows(looked, loop.row_kernel):
            return rows, cols, 1
        return rows, cols, max(inner, 2)

    def _joined(self, groups: Sequence[_Group], loop: _Loop, level: int, space: tuple[int, int, int] | None) -> _Group:
        if not groups:
            group = _Group(n=loop.n, level=level, space=space, alone=loop.kernels)
            group.members.update(loop.members)
            group.reads.update(loop.reads)
            self.groups.append(group)
            return group
        group = max(groups, key=lambda item: len(item.members))
        group.alone = ()
        group.level = level
        for other in groups:
            if other is not group:
                group.members.update(other.members)
                group.reads.update(other.reads)
                group.writes.update(other.writes)
                group.row_kernels.extend(other.row_kernels)
                group.is_read = group.is_read or other.is_read
                group.space = group.space or other.space
                group.n = max(group.n, other.n)
                other.joined = group
        group.space = group.space or space
        group.n = max(group.n, loop.n)
        group.members.update(loop.members)
        group.reads.update(loop.reads)
        return group

    # --- What came of it ----------------------------------------------------------------------------------------------

    def _operands(self, reads: Iterable[_Read]) -> tuple[TensorSpec, ...]:
        """What is read: of several views of one value no more than all of it; single numbers are no traffic."""
        by_root: dict[str, list[TensorSpec]] = {}
        for read in reads:
            by_root.setdefault(read.root, []).append(read.spec)
        specs = []
        for root, views in by_root.items():
            whole = self._spec(root)
            again = whole is not None and sum(view.element_count for view in views) > whole.element_count
            specs.extend([whole] if len(views) > 1 and again and whole is not None else views)
        wide = tuple(spec for spec in specs if spec.element_count != 1)
        return wide or tuple(specs[:1])

    def _emit(self, nodes: Sequence[Node]) -> list[NodeWork]:
        order = {node.name: place for place, node in enumerate(nodes)}
        kernels: dict[str, list[Kernel]] = {name: list(given) for name, given in self.library.items()}
        merged_into: dict[str, str] = {}
        written: set[str] = set()
        for group in self.groups:
            if group.joined is not None:
                continue
            members = sorted(group.members, key=order.__getitem__)
            carrier = members[-1]
            outside = [read for read in group.reads.values() if self._owner(read.root) is not group]
            results = {root: spec for root, spec in group.writes.items() if self._is_written(root, group)}
            if not results:
                root, spec = next(reversed(group.writes.items()))
                results = {root: spec}
            written.update(results)
            merged = self._kernel(group, members, outside, tuple(results.values()))
            kernels.setdefault(carrier, []).append(merged)
            if group.is_split and isinstance(merged, Reduction):
                kernels[carrier].append(_second_step(merged))
            self.origins[carrier].update(dict.fromkeys(members))
            for name in members[:-1]:
                merged_into.setdefault(name, carrier)
        for name, own in self.origins.items():
            for member in own:
                if member != name:
                    merged_into.setdefault(member, name)
        return [
            self._work(node, kernels.get(node.name, ()), merged_into, written)
            for node in nodes
            if node.name in self.plans and self.plans[node.name].kernels
        ]

    def _is_written(self, root: str, group: _Group) -> bool:
        if root in self.kept or "buffer" in self.uses.get(root, ()):
            return True
        for reader in self.readers.get(root, ()):
            while reader.joined is not None:
                reader = reader.joined
            if reader is not group:
                return True
        return False

    def _kernel(
        self, group: _Group, members: Sequence[str], outside: Sequence[_Read], results: tuple[TensorSpec, ...]
    ) -> Kernel:
        if len(group.alone) == 1:
            kernel = group.alone[0]
            if isinstance(kernel, Movement) and kernel.operation in POINTWISE_MOVES and kernel.permutation is None:
                return replace(kernel, library="own")
            return replace(kernel, generated=True) if isinstance(kernel, GENERATED) else kernel
        if group.row_kernels:
            return self._row_kernel(group, members, outside, results)
        return _elementwise(_operations(group.members[name] for name in members), self._operands(outside), results)

    def _row_kernel(
        self, group: _Group, members: Sequence[str], outside: Sequence[_Read], results: tuple[TensorSpec, ...]
    ) -> Kernel:
        """The reduction that names a kernel (a normalization or a softmax before a plain one) with all around it."""
        node, kernel, main = min(group.row_kernels, key=lambda item: isinstance(item[1], Reduction))
        rows, cols, inner = _space(kernel)
        n = rows * cols
        others = {name: (_row_name(other),) for name, other, _ in group.row_kernels if name != node}
        around = {name: others.get(name) or group.members[name] for name in members if name != node}
        # what has no more elements than there are rows is computed once a row, wherever in the kernel it is used
        per_row = {name for name in around if name not in others and self.sizes[name] <= rows < n}
        parameters = (
            {self._root(name)[0] for name in self.plans[node].buffers} if self._is_applied(self.plans[node]) else ()
        )
        reads = [read for read in outside if read.root not in parameters]
        full = [read for read in reads if read.spec.element_count == n]
        chosen = next((read for read in full if (read.root, read.view) == main), None)
        chosen = chosen or next((read for read in full if read.spec.dtype is kernel.dtype), None)
        if chosen is None and not self.engine:
            # rows are made from what lies in another type, or from parts
            chosen = next((read for read in full if read.spec.dtype.is_float), None) or _largest_part(reads, n)
        if chosen is not None:
            reads.remove(chosen)
            if chosen.spec.dtype.is_float and chosen.spec.dtype is not kernel.dtype:
                # a cast before it is part of the kernel: rows are read as they are stored
                given_dtype = kernel.dtype if isinstance(kernel, Reduction) else kernel.output_dtype or kernel.dtype
                kernel = _stored_as(kernel, chosen.spec.dtype, given_dtype)
        given = () if isinstance(kernel, Reduction) else kernel.extra_inputs
        extra = (*given, *(spec for spec in self._operands(reads) if spec.element_count != 1))
        results = tuple(sorted(results, key=lambda spec: -spec.element_count))
        if isinstance(kernel, Reduction) or results[0].element_count != n:
            fused = _operations(own for name, own in around.items() if name not in per_row)
            return Reduction(
                operation=_row_name(kernel),
                outputs=rows,
                reduced=cols,
                inner=inner,
                dtype=kernel.dtype,
                output=results[0],
                fused=(*(() if isinstance(kernel, Reduction) else kernel.fused), *fused),
                epilogue=_operations(own for name, own in around.items() if name in per_row),
                extra_inputs=extra,
                extra_outputs=results[1:],
            )
        output_dtype = None if results[0].dtype is kernel.dtype else results[0].dtype
        return replace(
            kernel,
            generated=True,
            output_dtype=output_dtype,
            fused=(*kernel.fused, *_operations(around.values())),
            extra_inputs=extra,
            extra_outputs=(*kernel.extra_outputs, *results[1:]),
        )

    def _work(
        self, node: Node, kernels: Sequence[Kernel], merged_into: Mapping[str, str], written: set[str]
    ) -> NodeWork:
        work = self.works[node.name]
        placed = self.placed.get(node.name)
        if kernels:
            origins = dict.fromkeys(
                origin for member in self.origins.get(node.name, ()) for origin in self.works[member].origins
            )
            origins.update(dict.fromkeys(work.origins))
            return replace(work, kernels=tuple(kernels), origins=tuple(origins), parts=placed or ())
        carrier = merged_into.get(node.name)
        if placed is not None and carrier is None:
            return replace(work, kernels=(), free=IN_PLACE, host_operation=False, written=True, parts=placed)
        return replace(
            work,
            kernels=(),
            free=UNUSED if carrier is None else f"merged into the kernel of {carrier}",
            host_operation=False,
            merged_into=carrier,
            written=placed is not None or any(name in written for name in node.outputs),
            parts=placed or (),
        )


def _second_step(kernel: Reduction) -> Reduction:
    """What reduces the parts of rows that a first kernel has reduced."""
    return Reduction(
        operation=kernel.operation,
        outputs=kernel.outputs,
        reduced=-(-kernel.reduced // SPLIT_COLUMNS),
        dtype=kernel.output.dtype,
        output=kernel.output,
    )


def _largest_part(reads: Sequence[_Read], n: int) -> _Read | None:
    """What most of ``n`` elements of rows are read from, where nothing has them all; None if they are made from few."""
    largest = max(reads, key=lambda read: read.spec.element_count, default=None)
    return largest if largest is not None and n < 2 * largest.spec.element_count < 2 * n else None


def _may_merge(
    loop: _Loop,
    space: tuple[int, int, int] | None,
    shared: tuple[int, int, int] | None,
    owner: _Group,
    reads: Sequence[_Read],
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


def _named(graph: InferredGraph) -> Iterable[str]:
    """Names that a body and its bodies read."""
    for node in graph.graph.nodes:
        yield from node.inputs
    for declared in graph.graph.outputs:
        yield declared.name
    for body in graph.bodies.values():
        yield from _named(body)


def _as_reduction(kernel: Kernel) -> Kernel:
    """Average pooling over a whole image is a mean (``adaptive_avg_pool2d`` to one element)."""
    if isinstance(kernel, Pooling) and kernel.operation == "global_average" and not kernel.extra_inputs:
        outputs = kernel.output.element_count
        return Reduction(
            operation="mean", outputs=outputs, reduced=kernel.window, dtype=kernel.input.dtype, output=kernel.output
        )
    return kernel


def _casts_first(kernel: Kernel) -> bool:
    """Whether a softmax of 16 bits is told to give 32: its formula begins with a cast then."""
    return isinstance(kernel, Softmax) and kernel.output_dtype is not None and kernel.output_dtype is not kernel.dtype


def _writes_fp32(kernel: Kernel) -> bool:
    return isinstance(kernel, Movement) and kernel.written > kernel.read


def _is_copy(kernel: Kernel) -> bool:
    return isinstance(kernel, Movement) and kernel.operation == "copy"


def _neighbours_plan(
    node: Node, kernels: tuple[Kernel, ...], names: Sequence[str], specs: Sequence[TensorSpec]
) -> _Plan | None:
    """The plan of small windows and of resizing, which Inductor writes as loops over their output, None for others.

    ``lowering.py``: pooling of windows of up to 25 elements, nearest neighbours; a decomposition for linear and cubic
    ones. Each element is a masked load, or an index, and an operation. What they read is written before, unless it is
    made from one load (``realize_hint``).
    """
    if len(kernels) != 1 or not names:
        return None
    (kernel,) = kernels
    match kernel:
        case Pooling(operation="max" | "average", window=window, extra_outputs=()) if window <= LARGEST_WINDOW:
            taps = window
            each: tuple[str, ...] = ("where", "max" if kernel.operation == "max" else "add")
        case Movement(operation="resize"):
            mode = node.attributes.get("mode", "nearest")
            changed = sum(old != new for old, new in zip(specs[0].shape, kernel.shape, strict=True))
            taps = RESIZE_TAPS.get(mode if isinstance(mode, str) else "", 1) ** changed
            each = ("copy", "mul") if taps > 1 else ("copy",)
        case _:
            return None
    return _Plan(
        "pointwise",
        kernels,
        reads=((names[0], specs[0]),),
        operations=each * taps,
        reorders=True,
        again=taps - 1,
    )


def _pointwise_plan(
    node: Node,
    kernels: tuple[Kernel, ...],
    names: Sequence[str],
    specs: Sequence[TensorSpec],
    numbers: frozenset[str],
) -> _Plan | None:
    """The plan of a node whose kernels are loops over its output, None if they aren't.

    ``numbers``: operands that are known numbers; they aren't read. The operand of resizing must be in memory, as
    PyTorch's ``upsample`` functions ask for it.
    """
    operations: list[str] = []
    taken = list(zip(names, specs, strict=True))
    for kernel in kernels:
        match kernel:
            case Elementwise(operations=own):
                operations.extend(own)
            case Movement(operation=operation) if operation in POINTWISE_MOVES:
                operations.append(operation)
                if operation != "concat":
                    taken = [] if operation == "fill" else taken[:1]
            case GatherScatter(operation=operation) if operation in GATHERS and len(kernels) == 1 and len(taken) >= 2:
                moved = min(kernel.moved, taken[0][1].element_count)
                shape = (moved,) if moved != kernel.moved else (moved // max(kernel.run, 1), kernel.run)
                taken = [(names[0], TensorSpec(dtype=kernel.dtype, shape=shape)), taken[1]]
                operations.append("gather")
            case Normalization(method="batch", fused=()) if len(kernels) == 1 and len(taken) == 5:
                rank = len(specs[0].shape)
                channel = [
                    (name, TensorSpec(dtype=spec.dtype, shape=(*spec.shape, *(1 for _ in range(rank - 2)))))
                    for name, spec in taken[1:]
                ]
                taken = [taken[0], *channel]
                operations.extend(BATCH_NORM)
            case _:
                return None
    reads = [item for item in taken if item[0] not in numbers] or taken[:1]
    only = kernels[0] if len(kernels) == 1 else None
    if isinstance(only, Elementwise) and len(only.inputs) == len(reads):
        reads = [(name, spec) for (name, _), spec in zip(reads, only.inputs, strict=True)]
    if "resize" in operations:
        return _Plan("library", kernels, buffers=tuple(name for name, _ in reads))
    reorders = node.op_type in REORDERING or not REORDERING_MOVES.isdisjoint(operations)
    joins = operations == ["concat"] and len(kernels) == 1 and node.op_type == "Concat"
    parts = tuple(name for name, spec in zip(names, specs, strict=True) if spec.element_count) if joins else ()
    return _Plan("pointwise", kernels, reads=tuple(reads), operations=tuple(operations), reorders=reorders, parts=parts)


def _is_loop(kernel: RowKernel) -> bool:
    """Whether a compiler writes this reduction itself."""
    match kernel:
        case Reduction(operation=operation):
            return not operation.startswith(SCANS)
        case Normalization(method=method):
            return method in ROW_METHODS
        case Softmax():
            return True


def _space(kernel: RowKernel) -> tuple[int, int, int]:
    """(rows, columns, distance of neighbours in a row)."""
    match kernel:
        case Reduction():
            return kernel.outputs, kernel.reduced, kernel.inner
        case Softmax():
            return kernel.rows, kernel.cols, kernel.inner
        case Normalization():
            return kernel.rows, kernel.cols, 1


def _stored_as(kernel: RowKernel, dtype: DataType, written: DataType) -> RowKernel:
    """The kernel with rows that are stored as ``dtype`` and results as ``written``."""
    if isinstance(kernel, Reduction):
        return replace(kernel, dtype=dtype)
    return replace(kernel, dtype=dtype, output_dtype=None if written is dtype else written)


def _row_name(kernel: RowKernel) -> str:
    match kernel:
        case Reduction():
            return kernel.operation
        case Softmax():
            return "softmax"
        case Normalization():
            return kernel.method


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


def _is_row_statistic(spec: TensorSpec, rows: int, loop: _Loop) -> bool:
    """Whether an operand is one number a row: it has the loop's leading dimensions and 1 in place of the others."""
    shape = loop.spec.shape
    if spec.element_count != rows or len(spec.shape) != len(shape) or prod(shape) != loop.n:
        return False
    own = list(spec.shape)
    while own and own[-1] == 1:
        own.pop()
    return tuple(own) == shape[: len(own)]


def _operations(given: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple([name for names in given for name in names])


def _elementwise(
    operations: tuple[str, ...], inputs: tuple[TensorSpec, ...], results: tuple[TensorSpec, ...]
) -> Elementwise:
    """The kernel over the largest of ``results``."""
    output, *others = sorted(results, key=lambda spec: -spec.element_count)
    return Elementwise(operations=operations, inputs=inputs, output=output, extra_outputs=tuple(others), generated=True)
