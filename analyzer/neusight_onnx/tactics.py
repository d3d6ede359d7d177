"""Which type each layer of an engine runs in on a GPU, of those that its builder was allowed.

TensorRT's builder times the kernels of every type that it was allowed for a layer, and what converts tensors between
layers of different types, and keeps the fastest ("Reduced Precision" in the developer guide of TensorRT 8: a flag
allows a type, "TensorRT will still choose a higher-precision kernel if it results in a faster overall runtime"). So a
format that is asked for makes no layer slower: one may stay in 16 bits beside int8, and in float32 beside both.

Where the format is one that only a file's QuantizeLinear and DequantizeLinear can ask for (FP8, FP4), which layers get
them is the choice of who quantises the model, which is taken to be made alike; everything else there is in the types
that the file has. Layers that a file stores quantised have no choice, and aren't here; nor have weights of 4 bits
beside activations in 16, which are stored so to be small, whatever the sizes of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf
from typing import TypeAlias

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.model import InferredGraph, Node, Value
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
from neusight_onnx.lowering.products import in_tf32
from neusight_onnx.precision import takes_tf32
from neusight_onnx.predictor import Predictors, predict

Ways: TypeAlias = tuple[tuple[Kernel, ...], ...]
"""Kernels of a node, and others that would do the same."""


@dataclass(frozen=True, slots=True)
class Form:
    """A way to run a layer, by the bits of the type that it reads and of the one that it writes."""

    reads: int
    writes: int


WIDE, NARROW, BETWEEN, FULL, FULL_TO_WIDE = FORMS = (
    Form(reads=16, writes=16),
    Form(reads=8, writes=8),
    Form(reads=8, writes=16),
    Form(reads=32, writes=32),
    Form(reads=32, writes=16),
)
"""In 16 bits; in the narrow format (of 8 bits or fewer); one that reads that and writes 16 bits; in float32, or TF32 on
the GPUs that have it; in float32 with a kernel behind it that converts the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A node of the work that may run in several types.

    ``at``: its place in the work; ``ways``: its kernels in each form that it has, and what else they could be
    (``NodeWork.alternatives``), of which the quickest are run.
    ``source``: the place among the layers of the one whose result it reads, if nothing writes that anew in between.
    ``conversions``: the kernel that turns what the source wrote, by its bits, into what the layer reads; nothing where
    none is needed. ``weight``: its name, None for a layer without one.
    """

    at: int
    ways: Mapping[Form, Ways]
    source: int | None = None
    conversions: Mapping[tuple[int, int], Kernel] = field(default_factory=dict)
    weight: str | None = None

    def before(self, own: Form, of_source: Form | None) -> Kernel | None:
        """The kernel that converts its operand."""
        return None if of_source is None else self.conversions.get((of_source.writes, own.reads))

    @property
    def is_narrowable(self) -> bool:
        """Whether it may read the narrow format."""
        return NARROW in self.ways or BETWEEN in self.ways


@dataclass(frozen=True, slots=True, kw_only=True)
class Tactics:
    """The layers of a model with a choice, in the order of the work; ``format_label`` and ``wide_label`` name the
    types: the narrow format, "" where there is none, and that of 16 bits."""

    layers: tuple[Layer, ...]
    format_label: str
    wide_label: str


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
        operand = _operand(before) if own.inputs and is_input(own.inputs[0]) else None
        quantised = None if operand is None else _turn("quantize", operand, DataType.INT8)
        found.append(replace(work, kernels=(*kernels[:-1], *([] if quantised is None else [quantised]), last)))
    return tuple(found)


def find_tactics(
    graph: InferredGraph,
    works: Sequence[NodeWork],
    wide: Sequence[NodeWork],
    *,
    products: DataType | None,
    may_stay_full: bool,
) -> Tactics | None:
    """The layers with a choice. ``works`` and ``wide`` stand for the same nodes in one order: those that differ have
    the narrow format in the first, whose activations are ``products``, and 16 bits in the second.

    ``may_stay_full``: convolutions and linear layers may run in float32, too, as the file stores them.
    """
    places = {work.node: at for at, work in enumerate(works)}
    edges = _Edges.of(graph, works, places)
    found = [
        at
        for at, (new, old) in enumerate(zip(works, wide, strict=True))
        if new.kernels != old.kernels or (may_stay_full and (_has_full(old.kernels) or edges.is_border(at)))
    ]
    if not found:
        return None
    index = {at: number for number, at in enumerate(found)}
    sources = [edges.source(at, index) for at in found]
    layers: list[Layer] = []
    label = ""
    known = _Known()
    for at, source in zip(found, sources, strict=True):
        hands_on = may_stay_full and edges.feeds_layers_alone(at, index)
        if edges.is_border(at):
            layers.append(_border(works[at], at, source, hands_on=hands_on))
            continue
        old = wide[at].kernels[-1]
        if isinstance(old, Gemm | Conv | Pooling):
            label = label or (old.input.dtype if isinstance(old, Pooling) else old.dtype).label
        names = edges.inputs.get(works[at].node, ())
        ways = known.ways(works[at], wide[at], full=may_stay_full, enters=source is None, hands_on=hands_on)
        layers.append(
            Layer(
                at=at,
                ways=ways,
                source=source,
                conversions={} if source is None else known.conversions(ways, layers[source].ways),
                weight=names[1] if isinstance(old, Gemm | Conv) and len(names) > 1 else None,
            )
        )
    return Tactics(layers=tuple(layers), format_label="" if products is None else products.label, wide_label=label)


class _Known:
    """Ways and conversions of the layers that were met: those of equal layers are one object."""

    def __init__(self) -> None:
        self._ways: dict[object, Mapping[Form, Ways]] = {}
        self._conversions: dict[tuple[int, int], Mapping[tuple[int, int], Kernel]] = {}

    def ways(self, work: NodeWork, wide: NodeWork, *, full: bool, enters: bool, hands_on: bool) -> Mapping[Form, Ways]:
        key = (work.kernels, wide.kernels, len(wide.alternatives), enters, hands_on)
        found = self._ways.get(key)
        if found is None:
            found = _ways(work, wide)
            if full and _has_full(wide.kernels):
                found |= _full_ways(wide, enters=enters, hands_on=hands_on)
            self._ways[key] = found
        return found

    def conversions(
        self, ways: Mapping[Form, Ways], of_source: Mapping[Form, Ways]
    ) -> Mapping[tuple[int, int], Kernel]:
        key = id(ways), id(of_source)
        found = self._conversions.get(key)
        if found is None:
            found = self._conversions[key] = _conversions(ways, of_source)
        return found


def _ways(work: NodeWork, wide: NodeWork) -> dict[Form, Ways]:
    """The forms in 16 bits and in the narrow format of a node, which has the one in ``wide``, the other in ``work``."""
    found: dict[Form, Ways] = {WIDE: (wide.kernels, *wide.alternatives)}
    kernel, old, narrow = work.kernels[-1], wide.kernels[-1], (work.kernels, *work.alternatives)
    if work.kernels == wide.kernels:
        return found
    if isinstance(kernel, Conv) and isinstance(old, Conv) and kernel.output_dtype is _written(old):
        found[BETWEEN] = narrow
        return found
    found[NARROW] = narrow
    if between := _between(kernel, old, work.kernels[:-1]):
        found[BETWEEN] = between
    return found


def _full_ways(wide: NodeWork, *, enters: bool, hands_on: bool) -> dict[Form, Ways]:
    """The forms in float32 of a layer that has the one in 16 bits in ``wide``.

    ``enters``: no layer makes what it reads, so that a kernel converts it. ``hands_on``: layers alone read its result.
    """
    kernel = wide.kernels[0]
    assert isinstance(kernel, Gemm | Conv)
    operand, result = _operand(kernel), _result(kernel)
    assert operand is not None
    before = (_cast(operand, DataType.FLOAT32),) if enters else ()
    ways = tuple(map(_full, (wide.kernels, *wide.alternatives)))
    behind = _cast(replace(result, dtype=DataType.FLOAT32), result.dtype)
    found: dict[Form, Ways] = {FULL_TO_WIDE: tuple((*before, *way, behind) for way in ways)}
    if hands_on:
        found[FULL] = tuple((*before, *way) for way in ways)
    return found


def _has_full(way: tuple[Kernel, ...]) -> bool:
    """Whether kernels are a convolution or a linear layer in 16 bits alone, which may run in float32."""
    match way:
        case (
            Gemm(b_is_weight=True, batch=1, dtype=dtype, a_dtype=None, b_dtype=None, output_dtype=None)
            | Conv(direction="forward", dtype=dtype, input_dtype=None, weight_dtype=None, output_dtype=None),
        ):
            return dtype.bits == 16
        case _:
            return False


def _full(way: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """The kernels of such a layer in float32: one or several products, some with pointwise work behind.

    What is added to a result is in 16 bits, as everything that isn't known to be in float32: a kernel converts it; one
    that compilers generate reads either.
    """
    found: list[Kernel] = []
    for kernel in way:
        match kernel:
            case Gemm() | Conv():
                added = [_result(kernel)] * kernel.epilogue.count("add")
                if kernel.extra_read_bytes:
                    added.append(TensorSpec(dtype=kernel.dtype, shape=(kernel.extra_read_bytes // 2,)))
                found += [_cast(tensor, DataType.FLOAT32) for tensor in added]
                full = replace(
                    kernel, dtype=DataType.FLOAT32, accumulator=None, extra_read_bytes=2 * kernel.extra_read_bytes
                )
                found.append(replace(full, channels_last=False) if isinstance(full, Conv) else full)
            case Elementwise():
                product, *others = kernel.inputs
                inputs = (replace(product, dtype=DataType.FLOAT32), *others)
                found.append(replace(kernel, inputs=inputs, output=replace(kernel.output, dtype=DataType.FLOAT32)))
            case _:
                raise AssertionError(f"{type(kernel).__name__} is no part of a layer that has a form in float32")
    return tuple(found)


def _border(work: NodeWork, at: int, source: int | None, *, hands_on: bool) -> Layer:
    """The kernel that converts an input or an output of the model, which float32 behind it or before does without."""
    (cast,) = work.kernels
    if source is not None:
        return Layer(at=at, ways={FULL: ((),)}, source=source, conversions=dict.fromkeys(((16, 32), (8, 32)), cast))
    return Layer(at=at, ways={FULL_TO_WIDE: (work.kernels,)} | ({FULL: ((),)} if hands_on else {}))


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


@dataclass(frozen=True, slots=True)
class _Edges:
    """Who makes and who reads each value of a graph, bodies included; ``inputs`` and ``outputs``: of each node;
    ``values``: those of the graph itself."""

    works: Sequence[NodeWork]
    places: Mapping[str, int]
    made_by: Mapping[str, str]
    read_by: Mapping[str, Sequence[str]]
    inputs: Mapping[str, tuple[str, ...]]
    outputs: Mapping[str, tuple[str, ...]]
    entering: frozenset[str]
    leaving: frozenset[str]
    values: Mapping[str, Value]

    @classmethod
    def of(cls, graph: InferredGraph, works: Sequence[NodeWork], places: Mapping[str, int]) -> _Edges:
        nodes: list[Node] = []
        leaving: set[str] = set()
        pending = [graph]
        while pending:
            part = pending.pop()
            pending += part.bodies.values()
            nodes += part.graph.nodes
            leaving.update(declared.name for declared in part.graph.outputs)
        read_by: dict[str, list[str]] = {}
        for node in nodes:
            for name in node.inputs:
                read_by.setdefault(name, []).append(node.name)
        return cls(
            works=works,
            places=places,
            made_by={name: node.name for node in nodes for name in node.outputs},
            read_by=read_by,
            inputs={node.name: node.inputs for node in nodes},
            outputs={node.name: node.outputs for node in nodes},
            entering=frozenset(declared.name for declared in graph.graph.inputs),
            leaving=frozenset(leaving),
            values=graph.values,
        )

    def source(self, at: int, index: Mapping[int, int]) -> int | None:
        """The layer before place ``at`` whose result is what stands there reads first, through nodes that move nothing;
        ``index``: the layers' places."""
        names = self.inputs.get(self.works[at].node, ())
        while names:
            node = self.made_by.get(names[0])
            place = None if node is None else self.places.get(node)
            if node is None or place is None:
                return None
            if place in index:
                return index[place] if place < at else None
            if not self._is_view(place):
                return None
            names = self.inputs.get(node, ())
        return None

    def feeds_layers_alone(self, at: int, index: Mapping[int, int]) -> bool:
        """Whether all that reads the result of what stands at ``at`` are layers whose source it is."""
        pending = list(self.outputs.get(self.works[at].node, ()))
        while pending:
            name = pending.pop()
            if name in self.leaving:
                return False
            for reader in self.read_by.get(name, ()):
                place = self.places.get(reader)
                if place is None or self.inputs[reader].index(name) or self.inputs[reader].count(name) > 1:
                    return False
                if place in index:
                    continue
                if not self._is_view(place):
                    return False
                pending += self.outputs[reader]
        return True

    def is_border(self, at: int) -> bool:
        """Whether what stands at ``at`` is a kernel that converts a float32 input of the model to 16 bits, or back to
        a float32 output."""
        work = self.works[at]
        if work.op_type != "Cast" or len(work.kernels) != 1 or not isinstance(work.kernels[0], Movement):
            return False
        (read, *_), (written, *_) = self.inputs[work.node], self.outputs[work.node]
        if read in self.entering:
            return self._is_full(read) and self._is_wide(written)
        return written in self.leaving and self._is_wide(read) and self._is_full(written)

    def _is_full(self, name: str) -> bool:
        return name in self.values and self.values[name].dtype is DataType.FLOAT32

    def _is_wide(self, name: str) -> bool:
        return name in self.values and self.values[name].dtype in (DataType.FLOAT16, DataType.BFLOAT16)

    def _is_view(self, at: int) -> bool:
        return not self.works[at].kernels and self.works[at].merged_into is None


def _has_own_type(kernel: Kernel) -> bool:
    """Whether a layer that stays in 16 bits can't write the narrow format: products sum and write one type."""
    return isinstance(kernel, Gemm | Conv | Pooling)


def _conversions(ways: Mapping[Form, Ways], of_source: Mapping[Form, Ways]) -> Mapping[tuple[int, int], Kernel]:
    """What turns the operand of a layer into the type that it reads, by the bits of what its source wrote."""
    wide = _operand(ways[WIDE][0][-1])
    if wide is None:
        return {}
    full = replace(wide, dtype=DataType.FLOAT32)
    if WIDE not in of_source:  # what converts an input of the model, which a layer behind it may do as well
        casts = of_source.get(FULL_TO_WIDE)
        return {} if casts is None else dict.fromkeys(((32, 16), (32, 8)), casts[0][0])
    behind = of_source[WIDE][0][-1]
    narrows = next((_operand(ways[form][0][-1]) for form in (NARROW, BETWEEN) if form in ways), None)
    # of products in the narrow format 16 bits come out as well
    hands_on_narrow = NARROW in of_source and isinstance(behind, Conv | Pooling)
    found: dict[tuple[int, int], Kernel] = {}
    if narrows is not None and narrows != wide:
        if _has_own_type(behind):
            found[16, 8] = _turn("quantize", wide, narrows.dtype)
        if hands_on_narrow:
            found[8, 16] = _turn("dequantize", narrows, wide.dtype)
        found[32, 8] = _turn("quantize", full, narrows.dtype)
    elif hands_on_narrow:
        found[8, 16] = _turn("dequantize", replace(wide, dtype=DataType.INT8), wide.dtype)
    found[32, 16] = _cast(full, wide.dtype)
    if FULL_TO_WIDE in ways:
        found[16, 32] = _cast(wide, DataType.FLOAT32)
        before = replace(wide, dtype=DataType.INT8)
        found[8, 32] = _turn("dequantize", before, DataType.FLOAT32) if hands_on_narrow else found[16, 32]
    return {bits: kernel for bits, kernel in found.items() if any(form.writes == bits[0] for form in of_source)}


def _turn(operation: str, tensor: TensorSpec, dtype: DataType) -> Elementwise:
    return Elementwise(operations=(operation,), inputs=(tensor,), output=replace(tensor, dtype=dtype))


def _cast(tensor: TensorSpec, dtype: DataType) -> Elementwise:
    """The kernel that gives a tensor another type. It isn't part of its neighbours: in an engine of TensorRT for RTX
    (1.7) a Cast between a mean and a convolution in float32 is a kernel, as are those of inputs and outputs."""
    return replace(_turn("cast", tensor, dtype), generated=True)


def _between(narrow: Kernel, wide: Kernel, before: tuple[Kernel, ...]) -> Ways:
    """A convolution in int8 that writes 16 bits: TensorRT's library has such beside those that write int8
    (``sm80_xmma_fprop_implicit_gemm_i8f16_i8i32_f32_*`` and ``*_interleaved_i8f16_*``, TensorRT for RTX 1.7), and none
    in 16 bits that write int8."""
    if not isinstance(narrow, Conv) or not isinstance(wide, Conv) or narrow.dtype is not DataType.INT8:
        return ()
    return ((*before, replace(narrow, output_dtype=_written(wide))),)


def _written(kernel: Conv) -> DataType:
    return kernel.output_dtype or kernel.dtype


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


def _result(kernel: Gemm | Conv) -> TensorSpec:
    shape = (kernel.m, kernel.n) if isinstance(kernel, Gemm) else (kernel.n, kernel.k, *kernel.out)
    return TensorSpec(dtype=kernel.output_dtype or kernel.dtype, shape=shape)


def _weight_bytes(way: Sequence[Kernel]) -> int:
    """Bytes of a layer's weights: those of its product, before and behind which kernels may convert."""
    for kernel in way:
        if isinstance(kernel, Gemm):
            return (kernel.b_dtype or kernel.dtype).bytes_of(kernel.k * kernel.n)
        if isinstance(kernel, Conv):
            return kernel.operand_bytes[1]
    return 0
