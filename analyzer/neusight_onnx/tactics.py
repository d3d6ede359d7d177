"""Which layers of an engine run in a narrow format on a GPU, and which stay in 16 bits.

TensorRT's builder times the kernels of every type that it was allowed for a layer, and what converts tensors between
layers of different types, and keeps the fastest ("Reduced Precision" in the developer guide of TensorRT 8: a flag
allows a type, "TensorRT will still choose a higher-precision kernel if it results in a faster overall runtime"). So a
format that is asked for never makes an engine slower. Where the format is one that only a file's QuantizeLinear and
DequantizeLinear can ask for (FP8, FP4), which layers get them is the choice of who quantises the model, which is taken
to be made alike. Layers that a file stores quantised have no choice, and aren't here; nor have weights of 4 bits beside
activations in 16, which are stored so to be small, whatever the sizes of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from typing import TypeAlias

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.model import InferredGraph, Node
from neusight_onnx.kernels import (
    Conv,
    Elementwise,
    GatherScatter,
    Gemm,
    Kernel,
    Movement,
    NodeWork,
    Pooling,
    TensorSpec,
)
from neusight_onnx.predictor import Predictors, predict

Ways: TypeAlias = tuple[tuple[Kernel, ...], ...]
"""Kernels of a node, and others that would do the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A node of the work that may run in either type.

    ``at``: its place in the work; ``narrow`` and ``wide``: its kernels in the format and in 16 bits, and what else they
    could be (``NodeWork.alternatives``), of which the quickest are run; ``between``: those that read the format and
    write 16 bits, none where there are no such kernels (none are ``narrow`` where it has to write 16 bits).
    ``source``: the place among the layers of the one whose result it reads, if nothing writes that anew in between.
    ``widens``: that one hands on the narrow format, so that reading it in 16 bits takes a kernel that converts it,
    ``narrows``: it hands on 16 bits unless it is narrow itself; None where no kernel is needed. ``weight``: its name,
    None for a layer without one.
    """

    at: int
    narrow: Ways
    wide: Ways
    between: Ways = ()
    source: int | None = None
    narrows: Kernel | None = None
    widens: Kernel | None = None
    weight: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tactics:
    """The layers of a model with a choice, in the order of the work; ``format_label`` and ``wide_label`` name the
    types."""

    layers: tuple[Layer, ...]
    format_label: str
    wide_label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The work on a GPU. ``wide_count`` layers of ``count`` with a weight stay in 16 bits, which takes
    ``wide_weight_bytes`` more for weights."""

    works: tuple[NodeWork, ...]
    count: int
    wide_count: int
    wide_weight_bytes: int


def at_the_borders(graph: InferredGraph, narrow: Sequence[NodeWork], wide: Sequence[NodeWork]) -> tuple[NodeWork, ...]:
    """``narrow`` with what int8 takes where it begins and ends; ``wide``: the same nodes in 16 bits.

    A convolution writes 16 bits where something reads them that has no kernel for int8, or where they leave the model;
    one that reads an input of the model, which has the type that it is bound with, has it quantised by a kernel before
    (the reformatting of inputs that TensorRT's profiles list as a layer, as remembered).
    """
    differing = {new.node for new, old in zip(narrow, wide, strict=True) if new.kernels != old.kernels}
    works = {work.node: work for work in narrow}
    readers: dict[str, list[Node]] = {}
    leaving: set[str] = set()
    made_by: dict[str, Node] = {}
    pending = [graph]
    while pending:
        part = pending.pop()
        pending += part.bodies.values()
        leaving.update(declared.name for declared in part.graph.outputs)
        for node in part.graph.nodes:
            made_by.update((name, node) for name in node.outputs)
            for name in node.inputs:
                readers.setdefault(name, []).append(node)
    entering = {declared.name for declared in graph.graph.inputs}

    @cache
    def takes_int8(name: str) -> bool:
        if name in leaving:
            return False
        for node in readers.get(name, ()):
            work = works.get(node.name)
            if work is not None and work.merged_into is not None:
                work = works.get(work.merged_into)
            if work is None or work.node in differing:
                continue
            if work.kernels and not isinstance(work.kernels[-1], Movement | GatherScatter):
                return False
            is_same = bool(work.parts) or name == node.inputs[0]  # a view of it, or it is a part of what is joined
            if not work.kernels and is_same and not all(map(takes_int8, node.outputs)):
                return False
        return True

    def is_input(name: str) -> bool:
        while name not in entering:
            maker = made_by.get(name)
            work = None if maker is None else works.get(maker.name)
            if maker is None or work is None or work.kernels or work.merged_into is not None or not maker.inputs:
                return False
            name = maker.inputs[0]
        return True

    found = []
    nodes = {node.name: node for node in made_by.values()}
    for work, old in zip(narrow, wide, strict=True):
        own, kernels = nodes.get(work.node), work.kernels
        last = kernels[-1] if kernels else None
        if own is None or work.node not in differing or not isinstance(last, Conv) or last.dtype is not DataType.INT8:
            found.append(work)
            continue
        before = old.kernels[-1]
        if isinstance(before, Conv) and not all(map(takes_int8, own.outputs)):
            last = replace(last, output_dtype=_written(before))
        quantised = _conversion(before, last, "quantize") if own.inputs and is_input(own.inputs[0]) else None
        found.append(replace(work, kernels=(*kernels[:-1], *([] if quantised is None else [quantised]), last)))
    return tuple(found)


def find_tactics(
    graph: InferredGraph,
    narrow: Sequence[NodeWork],
    wide: Sequence[NodeWork],
    *,
    products: DataType,
) -> Tactics | None:
    """The layers whose work differs between ``narrow`` and ``wide``, which stand for the same nodes in one order.

    ``products``: what activations are converted to.
    """
    made_by, inputs = _edges(graph)
    places = {work.node: at for at, work in enumerate(narrow)}
    differing = [at for at, (new, old) in enumerate(zip(narrow, wide, strict=True)) if new.kernels != old.kernels]
    if not differing:
        return None
    index = {at: number for number, at in enumerate(differing)}
    layers: list[Layer] = []
    label = ""
    for at in differing:
        work = narrow[at]
        names = inputs.get(work.node, ())
        source = _source(names, made_by, inputs, places, narrow, index, at)
        kernel, old = work.kernels[-1], wide[at].kernels[-1]
        if isinstance(old, Gemm | Conv | Pooling):
            label = label or (old.input.dtype if isinstance(old, Pooling) else old.dtype).label
        narrows = widens = None
        if source is not None:
            behind = layers[source].wide[0][-1]
            narrows = _conversion(old, kernel, "quantize") if _has_own_type(behind) else None
            widens = _conversion(kernel, old, "dequantize") if isinstance(behind, Conv | Pooling) else None
        has_weight = isinstance(kernel, Gemm | Conv) and len(names) > 1
        ways = (work.kernels, *work.alternatives)
        must_widen = isinstance(kernel, Conv) and isinstance(old, Conv) and kernel.output_dtype is _written(old)
        layers.append(
            Layer(
                at=at,
                narrow=() if must_widen else ways,
                wide=(wide[at].kernels, *wide[at].alternatives),
                between=ways if must_widen else _between(kernel, old, work.kernels[:-1]),
                source=source,
                narrows=narrows,
                widens=widens,
                weight=names[1] if has_weight else None,
            )
        )
    return Tactics(layers=tuple(layers), format_label=products.label, wide_label=label)


def choose(
    tactics: Tactics, works: Sequence[NodeWork], gpu: GpuSpec, *, predictors: Predictors | None = None
) -> Chosen:
    """The work with the layers in the types that make the run on ``gpu`` shortest."""
    layers = tactics.layers
    known = _times(layers, gpu, predictors)
    forms = _fastest([_Costs.of(layer, works[layer.at].count, known) for layer in layers])
    found = list(works)
    wide_weights: dict[str, int] = {}
    with_weight = wide = 0
    for number, layer in enumerate(layers):
        own = forms[number]
        ways = (layer.wide, layer.narrow, layer.between)[own]
        if layer.source is not None and _reads(own) != _writes(forms[layer.source]):
            before = layer.narrows if _reads(own) else layer.widens
            ways = ways if before is None else tuple((before, *way) for way in ways)
        found[layer.at] = replace(works[layer.at], kernels=ways[0], alternatives=ways[1:])
        if layer.weight is not None:
            with_weight += 1
            wide += own == _WIDE
            if own == _WIDE:
                wide_weights[layer.weight] = _weight_bytes(layer.wide[0][-1]) - _weight_bytes(
                    (layer.narrow or layer.between)[0][-1]
                )
    return Chosen(works=tuple(found), count=with_weight, wide_count=wide, wide_weight_bytes=sum(wide_weights.values()))


_WIDE, _NARROW, _BETWEEN = _FORMS = (0, 1, 2)
"""A layer in 16 bits; in the format; one that reads the format and writes 16 bits."""


def _reads(form: int) -> bool:
    """Whether a layer reads the narrow format."""
    return form != _WIDE


def _writes(form: int) -> bool:
    """Whether a layer hands on the narrow format."""
    return form == _NARROW


@dataclass(frozen=True, slots=True)
class _Costs:
    """Times of a layer in us, by form (infinite for one that it doesn't have), and of what converts its operand to 16
    bits and to the format."""

    us: tuple[float, float, float]
    convert_us: tuple[float, float]
    source: int | None

    @classmethod
    def of(cls, layer: Layer, count: int, known: Mapping[Kernel, float]) -> _Costs:
        wide, narrow, between = (
            count * min((sum(known[kernel] for kernel in way) for way in ways), default=inf)
            for ways in (layer.wide, layer.narrow, layer.between)
        )
        before = [0.0 if kernel is None else count * known[kernel] for kernel in (layer.widens, layer.narrows)]
        return cls(us=(wide, narrow, between), convert_us=(before[0], before[1]), source=layer.source)

    def at(self, own: int, of_source: int) -> float:
        """What the layer takes, its operand's conversion included."""
        turned = self.source is not None and _reads(own) != _writes(of_source)
        return self.us[own] + (self.convert_us[_reads(own)] if turned else 0.0)


def _fastest(costs: Sequence[_Costs]) -> list[int]:
    """The form of each layer, so that all together take the least; the first of those that take as long.

    Exact: a layer reads from one layer at most, which stands before it, so that they form trees, whose leaves are
    decided for each form of their source first.
    """
    # behind[i][f]: the least that all which read from layer i take where it has form f
    behind = [[0.0] * len(_FORMS) for _ in costs]
    for number in reversed(range(len(costs))):
        source = costs[number].source
        if source is not None:
            for of_source in _FORMS:
                behind[source][of_source] += min(
                    costs[number].at(own, of_source) + behind[number][own] for own in _FORMS
                )
    found: list[int] = []
    for number, cost in enumerate(costs):
        of_source = found[cost.source] if cost.source is not None else _WIDE
        totals = [cost.at(own, of_source) + behind[number][own] for own in _FORMS]
        found.append(totals.index(min(totals)))
    return found


def _times(layers: Sequence[Layer], gpu: GpuSpec, predictors: Predictors | None) -> dict[Kernel, float]:
    kernels: dict[Kernel, None] = {}
    for layer in layers:
        kernels.update(dict.fromkeys(kernel for way in (*layer.narrow, *layer.wide, *layer.between) for kernel in way))
        kernels.update(dict.fromkeys(kernel for kernel in (layer.narrows, layer.widens) if kernel is not None))
    unique = tuple(kernels)
    found = predict(unique, gpu, predictors=predictors)
    return {kernel: prediction.latency_us for kernel, prediction in zip(unique, found, strict=True)}


def _edges(graph: InferredGraph) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """The node that makes each value, and each node's inputs, bodies included."""
    made_by: dict[str, str] = {}
    inputs: dict[str, tuple[str, ...]] = {}
    pending = [graph]
    while pending:
        found = pending.pop()
        pending += found.bodies.values()
        for node in found.graph.nodes:
            inputs[node.name] = node.inputs
            made_by.update((name, node.name) for name in node.outputs)
    return made_by, inputs


def _source(
    names: tuple[str, ...],
    made_by: Mapping[str, str],
    inputs: Mapping[str, tuple[str, ...]],
    places: Mapping[str, int],
    works: Sequence[NodeWork],
    index: Mapping[int, int],
    before: int,
) -> int | None:
    """The layer before place ``before`` whose result is the first of ``names``, through nodes that move nothing."""
    while names:
        node = made_by.get(names[0])
        at = None if node is None else places.get(node)
        if node is None or at is None:
            return None
        if at in index:
            return index[at] if at < before else None
        work = works[at]
        if work.kernels or work.merged_into is not None:
            return None
        names = inputs.get(node, ())
    return None


def _has_own_type(kernel: Kernel) -> bool:
    """Whether a layer that stays in 16 bits can't write the narrow format: products sum and write one type."""
    return isinstance(kernel, Gemm | Conv | Pooling)


def _between(narrow: Kernel, wide: Kernel, before: tuple[Kernel, ...]) -> Ways:
    """A convolution in int8 that writes 16 bits: TensorRT's library has such beside those that write int8
    (``sm80_xmma_fprop_implicit_gemm_i8f16_i8i32_f32_*`` and ``*_interleaved_i8f16_*``, TensorRT for RTX 1.7), and none
    in 16 bits that write int8."""
    if not isinstance(narrow, Conv) or not isinstance(wide, Conv) or narrow.dtype is not DataType.INT8:
        return ()
    return ((*before, replace(narrow, output_dtype=_written(wide))),)


def _written(kernel: Conv) -> DataType:
    return kernel.output_dtype or kernel.dtype


def _conversion(before: Kernel, after: Kernel, operation: str) -> Kernel | None:
    """The kernel that turns the operand of ``before`` into that of ``after``."""
    source, target = _operand(before), _operand(after)
    if source is None or target is None or source == target:
        return None
    return Elementwise(operations=(operation,), inputs=(source,), output=target)


def _operand(kernel: Kernel) -> TensorSpec | None:
    match kernel:
        case Gemm():
            return TensorSpec(dtype=kernel.a_dtype or kernel.dtype, shape=(kernel.m, kernel.k))
        case Conv():
            return TensorSpec(dtype=kernel.input_dtype or kernel.dtype, shape=(kernel.n, kernel.c, *kernel.spatial))
        case Pooling():
            return kernel.input
        case _:
            return None


def _weight_bytes(kernel: Kernel) -> int:
    match kernel:
        case Gemm():
            return (kernel.b_dtype or kernel.dtype).bytes_of(kernel.k * kernel.n)
        case Conv():
            return kernel.operand_bytes[1]
        case _:
            return 0
