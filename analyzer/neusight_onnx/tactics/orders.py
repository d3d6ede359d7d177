"""Which convolutions of an engine in TF32 run in FP32, in an order of their own, because that is quicker.

TensorRT's flag TF32 allows a type, as that of 16 bits does ("TF32 ... is enabled by default"; "TensorRT will still
choose a higher-precision kernel if it results in a faster overall runtime", its developer guide): the builder times
FP32's kernels, too. Those read (n, c, *spatial), where Winograd's algorithm is, and those of TF32 (n, *spatial, c), so
that a tensor is transposed between layers that differ ("reformatting", which the builder counts). What stands between
convolutions and works in either order (pointwise work, pooling, resizing, concatenation) takes the one that is cheaper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.kernels import Conv, Elementwise, Kernel, Movement, NodeWork, Pooling
from neusight_onnx.predictor import Predictors, predict
from neusight_onnx.tactics.edges import Edges

MOST_PASSES = 20
"""Rounds of the search, which ends by itself: each of its steps saves time. Models took at most five."""

_PASSES_ON = frozenset({"Concat", "Split", "Slice", "Identity", "Dropout"})
"""Operators that may have no kernel in an engine and whose result lies as their operand does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edge:
    """A tensor (n, c, *spatial) that the work at ``maker`` writes and that at ``reader`` reads; a transpose's us for
    all runs."""

    maker: int
    reader: int
    shape: tuple[int, ...]
    us: float = 0.0


def in_quickest_order(
    graph: InferredGraph, works: Sequence[NodeWork], gpu: GpuSpec, *, predictors: Predictors | None = None
) -> tuple[tuple[NodeWork, ...], int]:
    """``works`` of ``graph``, those of an engine in TF32, with convolutions in FP32 where that makes the run shorter,
    transposes included; and how many these are.

    A local search, from all in one order, all in the other, and each as it is quickest by itself: never slower than an
    engine all in TF32, nor than one whose convolutions are all in FP32. The builder's own search isn't published.
    """
    own_nodes = {node.name for node in graph.graph.nodes}
    layers = {at: pair for at, work in enumerate(works) if work.node in own_nodes and (pair := _in_fp32(work))}
    us = _times([kernel for pair in layers.values() for kernel in pair], gpu, predictors)
    # by place: us in (n, *spatial, c), and in (n, c, *spatial)
    own = {at: tuple([works[at].count * us[kernel] for kernel in pair]) for at, pair in layers.items()}
    if not any(first < last for last, first in own.values()):
        return tuple(works), 0
    own |= {at: (0.0, 0.0) for at, work in enumerate(works) if at not in layers and _takes_either(work)}
    edges = _edges(graph, works, own)
    us = _times([_transposed(edge, to_first=to) for edge in edges for to in (False, True)], gpu, predictors)
    edges = [
        replace(edge, us=works[edge.reader].count * max(us[_transposed(edge, to_first=to)] for to in (False, True)))
        for edge in edges
    ]
    firsts = _least(own, edges)
    found = list(works)
    for edge in reversed(edges):
        if firsts[edge.maker] != firsts[edge.reader]:
            work, kernel = found[edge.reader], _transposed(edge, to_first=firsts[edge.reader])
            found[edge.reader] = replace(work, kernels=(kernel, *work.kernels), free=None)
    changed = [at for at in layers if firsts[at]]
    for at in changed:
        in_tf32, in_fp32 = layers[at]
        kernels = tuple([in_fp32 if kernel is in_tf32 else kernel for kernel in found[at].kernels])
        found[at] = replace(found[at], kernels=kernels)
    return tuple(found), len(changed)


def _in_fp32(work: NodeWork) -> tuple[Conv, Conv] | None:
    """The convolution of a node in TF32, and the same in FP32; None where it has none."""
    of_tf32 = [kernel for kernel in work.kernels if isinstance(kernel, Conv) and kernel.dtype is DataType.TFLOAT32]
    if len(of_tf32) != 1 or not of_tf32[0].channels_last or work.alternatives:
        return None
    return of_tf32[0], replace(of_tf32[0], dtype=DataType.FLOAT32, channels_last=False)


def _takes_either(work: NodeWork) -> bool:
    if not work.kernels:
        return work.op_type in _PASSES_ON
    return not work.alternatives and all(
        isinstance(kernel, Elementwise | Pooling | Conv)
        or (isinstance(kernel, Movement) and kernel.operation != "transpose")
        for kernel in work.kernels
    )


def _edges(graph: InferredGraph, works: Sequence[NodeWork], own: Mapping[int, object]) -> list[_Edge]:
    """The tensors between works at the places of ``own`` that lie otherwise in another order."""
    places = {work.node: at for at, work in enumerate(works)}
    known = Edges.of(graph, works, places)

    def place_of(node: str) -> int | None:
        at = places.get(node)
        if at is not None and (merged := works[at].merged_into) is not None:
            at = places.get(merged)
        return at

    found: dict[tuple[int, int, str], _Edge] = {}
    for node in graph.graph.nodes:
        reader = place_of(node.name)
        for name in node.inputs:
            made = known.made_by.get(name)
            maker, shape = None if made is None else place_of(made), graph.values[name].shape if name else None
            if reader is None or maker is None or shape is None or reader == maker:
                continue
            if maker in own and reader in own and len(shape) > 2 and shape[1] > 1 and prod(shape[2:]) > 1:
                found[maker, reader, name] = _Edge(maker=maker, reader=reader, shape=tuple(shape))
    return list(found.values())


def _transposed(edge: _Edge, *, to_first: bool) -> Movement:
    """The kernel that turns (n, *spatial, c) into (n, c, *spatial), or back."""
    n, c, *spatial = edge.shape
    rank = len(edge.shape)
    size = DataType.FLOAT32.bytes_of(prod(edge.shape))
    return Movement(
        operation="transpose",
        dtype=DataType.FLOAT32,
        shape=(n, *spatial, c) if to_first else edge.shape,
        permutation=(0, rank - 1, *range(1, rank - 1)) if to_first else (0, *range(2, rank), 1),
        read=size,
        written=size,
    )


def _least(own: Mapping[int, tuple[float, ...]], edges: Sequence[_Edge]) -> dict[int, bool]:
    """By place, whether it works in (n, c, *spatial): the least that the searches end with."""
    starts = [
        dict.fromkeys(own, False),
        dict.fromkeys(own, True),
        {at: first < last for at, (last, first) in own.items()},
    ]
    around: dict[int, list[tuple[int, float]]] = {}
    for edge in edges:
        around.setdefault(edge.maker, []).append((edge.reader, edge.us))
        around.setdefault(edge.reader, []).append((edge.maker, edge.us))
    for firsts in starts:
        for _ in range(MOST_PASSES):
            moved = False
            for at, times in own.items():
                beside = [0.0, 0.0]  # transposes where it works in (n, *spatial, c), and in the other
                for other, us in around.get(at, ()):
                    beside[not firsts[other]] += us
                mine = firsts[at]
                if times[not mine] + beside[not mine] < times[mine] + beside[mine]:
                    firsts[at], moved = not mine, True
            if not moved:
                break
    return min(
        starts,
        key=lambda firsts: (
            sum(times[firsts[at]] for at, times in own.items())
            + sum(edge.us for edge in edges if firsts[edge.maker] != firsts[edge.reader])
        ),
    )


def _times(kernels: Sequence[Kernel], gpu: GpuSpec, predictors: Predictors | None) -> dict[Kernel, float]:
    unique = tuple(dict.fromkeys(kernels))
    answers = predict(unique, gpu, predictors=predictors)
    return {kernel: answer.latency_us for kernel, answer in zip(unique, answers, strict=True)}
