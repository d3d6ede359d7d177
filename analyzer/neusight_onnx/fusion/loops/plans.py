"""What a node is to the compiler: a loop, a reduction, or a call of a library, by the kernels that lowering gave it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Node
from neusight_onnx.kernels import (
    GENERATED,
    Elementwise,
    GatherScatter,
    Kernel,
    Move,
    Movement,
    Normalization,
    Pooling,
    Reduction,
    TensorSpec,
)

POINTWISE_MOVES = frozenset(
    {"cast", "concat", "copy", "expand", "fill", "flip", "pad", "resize", "slice", "split", "tile", "transpose"}
)
"""Movements that compilers write as loops: every output element is one input element, at a computed place."""
REORDERING_MOVES = POINTWISE_MOVES - {"cast", "copy", "fill"} | {"gather"}
REORDERING = frozenset({"RotaryEmbedding", "GemmaRotaryEmbedding", "MRotaryEmbedding", "Glu", "BiasSplitGelu"})
"""Pointwise operators that combine elements at different places."""
GATHERS = frozenset({"embedding", "gather"})
BATCH_NORM = ("sub", "mul", "mul", "add")
LARGEST_WINDOW = 25
"""``should_fallback_max_pool_with_indices``, ``_avg_poolnd``: pooling of larger windows is a call of PyTorch's."""
SHORTEST_REDUCTION = 8
"""``config.unroll_reductions_threshold``: a reduction of fewer elements is written out as pointwise work."""
UNROLLED = {"sum": "add", "mean": "add", "max": "max", "min": "min", "prod": "mul"}
RESIZE_TAPS = {"linear": 2, "cubic": 4}
"""Elements along each axis that an interpolated one is made of."""
PLANE = 4
"""Dimensions of images, from which on interpolation is too much arithmetic for one value."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a node is to the compiler. ``role``: "pointwise", "reduction" or "library".

    ``reads``: inputs of a loop with what is read of each. ``copies``: of a library call, with the input that each
    copies. ``kernels``: without the copies that strided loads make unnecessary. ``reorders``: an output element isn't
    made from the input elements at its own place. ``parts``: of a concatenation, its inputs with elements. ``again``:
    of a loop over neighbours, how often it reads its operands beyond once. ``unrolls``: it is a short reduction, in
    which the operand may be computed. ``halfway``: values in FP32, as large as the result, that are written before the
    last step of an interpolation.
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
    unrolls: bool = False
    halfway: int = 0


def neighbours_plan(
    node: Node, kernels: tuple[Kernel, ...], names: Sequence[str], specs: Sequence[TensorSpec]
) -> Plan | None:
    """The plan of small windows and of resizing, which Inductor writes as loops over their output, None for others.

    ``lowering.py``: pooling of windows of up to 25 elements, nearest neighbours; a decomposition for linear and cubic
    ones. Each element is a masked load, or an index, and an operation. What they read is written before, unless it is
    made from one load (``realize_hint``).
    """
    if len(kernels) != 1 or not names:
        return None
    (kernel,) = kernels
    halfway = 0
    match kernel:
        case Pooling(operation="max" | "average", window=window, extra_outputs=()) if window <= LARGEST_WINDOW:
            taps = window
            each: tuple[str, ...] = ("where", "max" if kernel.operation == "max" else "add")
        case Movement(operation="resize"):
            mode = node.attributes.get("mode", "nearest")
            changed = sum(old != new for old, new in zip(specs[0].shape, kernel.shape, strict=True))
            taps = RESIZE_TAPS.get(mode if isinstance(mode, str) else "", 1) ** changed
            each = ("copy", "mul") if taps > 1 else ("copy",)
            halfway = _values_halfway(node, specs[0], kernel) if taps > 1 else 0
        case _:
            return None
    return Plan(
        "pointwise",
        kernels,
        reads=((names[0], specs[0]),),
        operations=each * taps,
        reorders=True,
        again=taps - 1,
        halfway=halfway,
    )


def _values_halfway(node: Node, source: TensorSpec, kernel: Movement) -> int:
    """Values that an interpolation of images writes in FP32 before its last step, since they are more than
    ``realize_opcount_threshold`` operations, most of them for the places of neighbours.

    Two of linear interpolation: a neighbour and what was made along one axis. One, the result before its cast: of cubic
    interpolation, of three axes, with corners aligned, and in FP32 to twice the size, whose factor of .5 is a constant
    that places have already (PyTorch 2.9.1's ``inner_fn_opcount`` of each is 31 to 58).
    """
    if len(kernel.shape) < PLANE or node.attributes.get("antialias", 0):
        return 0
    linear = node.attributes.get("mode") == "linear" and len(kernel.shape) == PLANE
    if not linear or node.attributes.get("coordinate_transformation_mode") == "align_corners":
        return 1
    doubled = any(2 * old == new for old, new in zip(source.shape, kernel.shape, strict=True))
    return 1 if doubled and source.dtype.bits >= DataType.FLOAT32.bits else 2


def unrolled_plan(kernels: tuple[Kernel, ...], names: Sequence[str], specs: Sequence[TensorSpec]) -> Plan | None:
    """The plan of a reduction that is too short for a kernel (``Reduction.create``, ``_unroll_reduction_fn``)."""
    match kernels:
        case (Reduction(fused=(), epilogue=(), extra_inputs=(), extra_outputs=()) as kernel,):
            operation = UNROLLED.get(kernel.operation)
        case _:
            return None
    if operation is None or kernel.output.element_count != kernel.outputs:
        return None
    if not 0 < kernel.reduced < SHORTEST_REDUCTION:
        return None
    operations = (operation,) * (kernel.reduced - 1) + (("div",) if kernel.operation == "mean" else ())
    return Plan(
        "pointwise",
        kernels,
        reads=((names[0], specs[0]),),
        operations=operations,
        reorders=True,
        again=kernel.reduced - 1,
        unrolls=True,
    )


def pointwise_plan(
    node: Node,
    kernels: tuple[Kernel, ...],
    names: Sequence[str],
    specs: Sequence[TensorSpec],
    numbers: frozenset[str],
) -> Plan | None:
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
                    taken = [] if operation == "fill" else [(name, _kept(spec, kernel)) for name, spec in taken[:1]]
            case GatherScatter(operation=operation) if operation in GATHERS and len(kernels) == 1 and len(taken) >= 2:
                moved = min(kernel.moved, taken[0][1].element_count)
                shape = (moved,) if moved != kernel.moved else (moved // max(kernel.run, 1), kernel.run)
                # indices go with the axis that they pick from, whatever dimension of the result has their size
                indices = TensorSpec(dtype=taken[1][1].dtype, shape=(taken[1][1].element_count, 1))
                taken = [(names[0], TensorSpec(dtype=kernel.dtype, shape=shape)), (names[1], indices)]
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
        return Plan("library", kernels, buffers=tuple(name for name, _ in reads))
    reorders = node.op_type in REORDERING or not REORDERING_MOVES.isdisjoint(operations)
    joins = operations == ["concat"] and len(kernels) == 1 and node.op_type == "Concat"
    parts = tuple(name for name, spec in zip(names, specs, strict=True) if spec.element_count) if joins else ()
    return Plan("pointwise", kernels, reads=tuple(reads), operations=tuple(operations), reorders=reorders, parts=parts)


def _kept(spec: TensorSpec, kernel: Movement) -> TensorSpec:
    """What a movement reads of its operand: a slice leaves the rest."""
    if len(kernel.shape) == 0 or kernel.read >= spec.byte_count or kernel.dtype is not spec.dtype:
        return spec
    return TensorSpec(dtype=spec.dtype, shape=(kernel.read * 8 // spec.dtype.bits,))


def generated_move(kernel: Kernel) -> Move | None:
    """A lookup or reordering as the compiler writes it in a loop of several operations, None for other kernels: casts,
    plain copies, fills and repetition read in the order of what they write."""
    match kernel:
        case Movement(operation="copy", permutation=None) | Movement(operation="cast" | "fill" | "expand"):
            return None
        case _:
            return as_generated(kernel)


def as_generated(kernel: Kernel) -> Move | None:
    """A lookup or movement as the compiler writes it, each place being computed from constants; None for others."""
    match kernel:
        case Movement(operation=operation) if operation in POINTWISE_MOVES:
            return replace(kernel, library=GENERATED)
        case GatherScatter(operation=operation) if operation in GATHERS:
            return replace(kernel, library=GENERATED)
        case _:
            return None


def is_copy(kernel: Kernel) -> bool:
    """Whether a kernel only brings elements into the order that a library call wants."""
    return isinstance(kernel, Movement) and kernel.operation == "copy"
