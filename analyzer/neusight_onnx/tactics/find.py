"""The layers of a model with a choice: their kernels in each type, and what lies between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.kernels import (
    Conv,
    Elementwise,
    Gemm,
    Kernel,
    NodeWork,
    Pooling,
    TensorSpec,
)
from neusight_onnx.tactics.edges import Edges
from neusight_onnx.tactics.layers import BETWEEN, FULL, FULL_TO_WIDE, NARROW, WIDE, Form, Layer, Tactics, Ways
from neusight_onnx.tactics.operands import cast, operand_of, result_of, turn, written


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
    edges = Edges.of(graph, works, places)
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
    if isinstance(kernel, Conv) and isinstance(old, Conv) and kernel.output_dtype is written(old):
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
    operand, result = operand_of(kernel), result_of(kernel)
    assert operand is not None
    before = (cast(operand, DataType.FLOAT32),) if enters else ()
    ways = tuple(map(_full, (wide.kernels, *wide.alternatives)))
    behind = cast(replace(result, dtype=DataType.FLOAT32), result.dtype)
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
                added = [result_of(kernel)] * kernel.epilogue.count("add")
                if kernel.extra_read_bytes:
                    added.append(TensorSpec(dtype=kernel.dtype, shape=(kernel.extra_read_bytes // 2,)))
                found += [cast(tensor, DataType.FLOAT32) for tensor in added]
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
    (conversion,) = work.kernels
    if source is not None:
        return Layer(
            at=at, ways={FULL: ((),)}, source=source, conversions=dict.fromkeys(((16, 32), (8, 32)), conversion)
        )
    return Layer(at=at, ways={FULL_TO_WIDE: (work.kernels,)} | ({FULL: ((),)} if hands_on else {}))


def _has_own_type(kernel: Kernel) -> bool:
    """Whether a layer that stays in 16 bits can't write the narrow format: products sum and write one type."""
    return isinstance(kernel, Gemm | Conv | Pooling)


def _conversions(ways: Mapping[Form, Ways], of_source: Mapping[Form, Ways]) -> Mapping[tuple[int, int], Kernel]:
    """What turns the operand of a layer into the type that it reads, by the bits of what its source wrote."""
    wide = operand_of(ways[WIDE][0][-1])
    if wide is None:
        return {}
    full = replace(wide, dtype=DataType.FLOAT32)
    narrows = next((operand_of(ways[form][0][-1]) for form in (NARROW, BETWEEN) if form in ways), None)
    if WIDE not in of_source:  # what converts an input of the model, which a layer behind it may do as well
        casts = of_source.get(FULL_TO_WIDE)
        if casts is None:
            return {}
        by_bits = dict.fromkeys(((32, 16), (32, 8)), casts[0][0])
        if narrows is not None and narrows != wide:  # one kernel reads the input and writes int8
            by_bits |= {(16, 8): turn("quantize", wide, narrows.dtype), (32, 8): turn("quantize", full, narrows.dtype)}
        return by_bits
    behind = of_source[WIDE][0][-1]
    # of products in the narrow format 16 bits come out as well
    hands_on_narrow = NARROW in of_source and isinstance(behind, Conv | Pooling)
    found: dict[tuple[int, int], Kernel] = {}
    if narrows is not None and narrows != wide:
        if _has_own_type(behind):
            found[16, 8] = turn("quantize", wide, narrows.dtype)
        if hands_on_narrow:
            found[8, 16] = turn("dequantize", narrows, wide.dtype)
        found[32, 8] = turn("quantize", full, narrows.dtype)
    elif hands_on_narrow:
        found[8, 16] = turn("dequantize", replace(wide, dtype=DataType.INT8), wide.dtype)
    found[32, 16] = cast(full, wide.dtype)
    if FULL_TO_WIDE in ways:
        found[16, 32] = cast(wide, DataType.FLOAT32)
        before = replace(wide, dtype=DataType.INT8)
        found[8, 32] = turn("dequantize", before, DataType.FLOAT32) if hands_on_narrow else found[16, 32]
    return {bits: kernel for bits, kernel in found.items() if any(form.writes == bits[0] for form in of_source)}


def _between(narrow: Kernel, wide: Kernel, before: tuple[Kernel, ...]) -> Ways:
    """A convolution in int8 that writes 16 bits: TensorRT's library has such beside those that write int8
    (``sm80_xmma_fprop_implicit_gemm_i8f16_i8i32_f32_*`` and ``*_interleaved_i8f16_*``, TensorRT for RTX 1.7), and none
    in 16 bits that write int8."""
    if not isinstance(narrow, Conv) or not isinstance(wide, Conv) or narrow.dtype is not DataType.INT8:
        return ()
    return ((*before, replace(narrow, output_dtype=written(wide))),)
