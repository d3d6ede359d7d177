"""The types in which layers make the run on a GPU shortest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import (
    Conv,
    Gemm,
    Kernel,
    NodeWork,
)
from neusight_onnx.lowering.products import in_tf32
from neusight_onnx.precision import takes_tf32
from neusight_onnx.predictor import Predictors, predict
from neusight_onnx.tactics.layers import BETWEEN, FULL, FULL_TO_WIDE, NARROW, WIDE, Form, Layer, Tactics, Ways


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The work on a GPU. Of the layers with a weight ``count`` could be in the narrow format, of which ``wide_count``
    stay in 16 bits; ``full_count`` of ``full_choices`` are in float32, by the name of ``full_label``. All that takes
    ``more_weight_bytes`` for weights."""

    works: tuple[NodeWork, ...]
    count: int
    wide_count: int
    full_choices: int
    full_count: int
    full_label: str
    more_weight_bytes: int


def choose(
    tactics: Tactics, works: Sequence[NodeWork], gpu: GpuSpec, *, predictors: Predictors | None = None
) -> Chosen:
    """The work with the layers in the types that make the run on ``gpu`` shortest."""
    in_tf32_there = takes_tf32(gpu)
    layers = _with_tf32(tactics.layers) if in_tf32_there else tactics.layers
    forms = _fastest(_costs(layers, works, _times(layers, gpu, predictors)))
    found = list(works)
    more_weights: dict[str, int] = {}
    count = wide = full_choices = full = 0
    for layer, own in zip(layers, forms, strict=True):
        before = layer.before(own, None if layer.source is None else forms[layer.source])
        ways = layer.ways[own] if before is None else tuple((before, *way) for way in layer.ways[own])
        work = works[layer.at]
        free = None if ways[0] else NOT_CONVERTED
        found[layer.at] = replace(work, kernels=ways[0], alternatives=ways[1:], free=free)
        if layer.weight is not None:
            count += layer.is_narrowable
            wide += layer.is_narrowable and own == WIDE
            full_choices += FULL_TO_WIDE in layer.ways
            full += own.reads == FULL.reads
            asked_for = next(layer.ways[form] for form in (NARROW, BETWEEN, WIDE) if form in layer.ways)
            more_weights[layer.weight] = _weight_bytes(ways[0]) - _weight_bytes(asked_for[0])
    return Chosen(
        works=tuple(found),
        count=count,
        wide_count=wide,
        full_choices=full_choices,
        full_count=full,
        full_label=(DataType.TFLOAT32 if in_tf32_there else DataType.FLOAT32).label,
        more_weight_bytes=sum(more_weights.values()),
    )


NOT_CONVERTED = "no conversion: the layer beside it runs in float32"


def _with_tf32(layers: Sequence[Layer]) -> list[Layer]:
    """``layers`` with the float32 of a GPU that has TF32, which an engine's builder multiplies unasked."""
    known: dict[int, Mapping[Form, Ways]] = {}
    for layer in layers:
        if id(layer.ways) not in known:
            known[id(layer.ways)] = {
                form: tuple([tuple(map(in_tf32, way)) for way in ways]) if form.reads == FULL.reads else ways
                for form, ways in layer.ways.items()
            }
    return [replace(layer, ways=known[id(layer.ways)]) for layer in layers]


@dataclass(frozen=True, slots=True)
class _Costs:
    """Times of a layer in us, by form, and of what converts its operand, by the bits that there are and are read."""

    us: Mapping[Form, float]
    convert_us: Mapping[tuple[int, int], float]
    source: int | None

    def at(self, own: Form, of_source: Form | None) -> float:
        """What the layer takes, its operand's conversion included; infinite in a form that it doesn't have."""
        before = 0.0 if of_source is None else self.convert_us.get((of_source.writes, own.reads), 0.0)
        return self.us.get(own, inf) + before


def _fastest(costs: Sequence[_Costs]) -> list[Form]:
    """The form of each layer, so that all together take the least; the first of those that take as long.

    Exact: a layer reads from one layer at most, which stands before it, so that they form trees, whose leaves are
    decided for each form of their source first.
    """
    # behind[i][f]: the least that all which read from layer i take where it has form f
    behind = [dict.fromkeys(cost.us, 0.0) for cost in costs]
    for number in reversed(range(len(costs))):
        cost, source = costs[number], costs[number].source
        if source is not None:
            for of_source in behind[source]:
                behind[source][of_source] += min(cost.at(own, of_source) + behind[number][own] for own in cost.us)
    found: list[Form] = []
    for number, cost in enumerate(costs):
        before = None if cost.source is None else found[cost.source]
        totals = {own: cost.at(own, before) + behind[number][own] for own in cost.us}
        found.append(min(totals, key=totals.__getitem__))
    return found


def _costs(layers: Sequence[Layer], works: Sequence[NodeWork], known: Mapping[Kernel, float]) -> list[_Costs]:
    """The costs of layers whose kernels take so many us, for all runs of each."""
    us: dict[tuple[int, int], Mapping[Form, float]] = {}
    convert_us: dict[tuple[int, int], Mapping[tuple[int, int], float]] = {}
    found = []
    for layer in layers:
        count = works[layer.at].count
        key, before = (id(layer.ways), count), (id(layer.conversions), count)
        if key not in us:
            us[key] = {
                form: count * min(sum([known[kernel] for kernel in way]) for way in ways)
                for form, ways in layer.ways.items()
            }
        if before not in convert_us:
            convert_us[before] = {bits: count * known[kernel] for bits, kernel in layer.conversions.items()}
        found.append(_Costs(us=us[key], convert_us=convert_us[before], source=layer.source))
    return found


def _times(layers: Sequence[Layer], gpu: GpuSpec, predictors: Predictors | None) -> dict[Kernel, float]:
    kernels: dict[Kernel, None] = {}
    for ways in {id(layer.ways): layer.ways for layer in layers}.values():
        kernels.update(dict.fromkeys(kernel for form in ways.values() for way in form for kernel in way))
    for conversions in {id(layer.conversions): layer.conversions for layer in layers}.values():
        kernels.update(dict.fromkeys(conversions.values()))
    unique = tuple(kernels)
    found = predict(unique, gpu, predictors=predictors)
    return {kernel: prediction.latency_us for kernel, prediction in zip(unique, found, strict=True)}


def _weight_bytes(way: Sequence[Kernel]) -> int:
    """Bytes of a layer's weights: those of its product, before and behind which kernels may convert."""
    for kernel in way:
        if isinstance(kernel, Gemm):
            return (kernel.b_dtype or kernel.dtype).bytes_of(kernel.k * kernel.n)
        if isinstance(kernel, Conv):
            return kernel.operand_bytes[1]
    return 0
