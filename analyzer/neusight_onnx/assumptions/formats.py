"""What a report says of number formats: what a precision changed, what stayed as it was, and by whose choice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from neusight_onnx.assembly import Placed
from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.quantization.at_run_time import rounding_apart
from neusight_onnx.fusion.quantization.static import QUANTIZED
from neusight_onnx.graph.model import Notice
from neusight_onnx.kernel_formats import kernel_dtype
from neusight_onnx.kernels import Conv, Elementwise, Gemm, NodeWork
from neusight_onnx.lowering.products import EXPERTS
from neusight_onnx.lowering.widened_weights import widened_products
from neusight_onnx.precision import Precision, is_of_pairs
from neusight_onnx.report.model import KernelRow
from neusight_onnx.report.quantities import counted, percent
from neusight_onnx.runtime import Runtime

if TYPE_CHECKING:
    from neusight_onnx.tactics import Chosen, Tactics


_QUANTIZED_BITS = 8


def of_tactics(tactics: Tactics, chosen: Chosen) -> tuple[str, ...]:
    """How many layers an engine keeps in a wider type than was asked for because that is quicker on the GPU."""
    said = (
        (chosen.wide_count, chosen.count, tactics.format_label, tactics.wide_label),
        (chosen.full_count, chosen.full_choices, tactics.format_label or tactics.wide_label, chosen.full_label),
    )
    return tuple(
        f"{f'all {every:,}' if wide == every else f'{wide:,} of {every:,}'} convolutions and linear layers that could "
        f"be {narrow} stay in {wider}, which is quicker there, what converts their operands included: a builder that "
        "times both takes the quicker"
        for wide, every, narrow, wider in said
        if wide
    )


def of_fp32_beside_tf32(fp32_count: int, works: Sequence[NodeWork]) -> str:
    """How many convolutions of an engine in TF32 run in FP32 because that is quicker on the GPU."""
    in_tf32 = sum(
        isinstance(kernel, Conv) and kernel.dtype is DataType.TFLOAT32 for work in works for kernel in work.kernels
    )
    return (
        f"{fp32_count:,} of {fp32_count + in_tf32:,} convolutions that may multiply TF32 run in FP32, which is quicker "
        "there (by Winograd's algorithm, say), what transposes their operands included: a builder that times both "
        "takes the quicker"
    )


def of_permitted_fp32(works: Sequence[Placed]) -> Iterator[str]:
    """How many kernels that may multiply TF32 run in FP32, as a library takes the quicker one."""
    allowed = [
        prediction.in_fp32
        for item in works
        for kernel, prediction in zip(item.work.kernels, item.predictions, strict=True)
        if kernel_dtype(kernel) is DataType.TFLOAT32
    ]
    if any(allowed):
        yield (
            f"{sum(allowed):,} of {counted(len(allowed), 'kernel')} that may multiply TF32 "
            f"{'runs' if sum(allowed) == 1 else 'run'} in FP32 and {'is' if sum(allowed) == 1 else 'are'} shown as "
            "float32: TF32 is a permission, and libraries take the quicker kernel (such as Winograd's or a "
            "matrix-vector product)"
        )


def of_precision(precision: Precision, runtime: Runtime, works: Sequence[NodeWork]) -> Iterator[str]:
    """What a precision changes of ``works``; autocast and converters say themselves what they did."""
    plain, name = precision.plain, precision.name
    doubles = sum(any(kernel_dtype(kernel) is DataType.FLOAT64 for kernel in work.kernels) for work in works)
    if doubles and (plain is not None or precision.products is not None):
        yield f"{name}: {counted(doubles, 'node stays', 'nodes stay')} in float64, as the file has it"
    if precision.products is DataType.TFLOAT32:
        what = "" if precision.by_cudnn else "products, attention, "
        yield (
            f"{what}convolutions and recurrent layers of float32 multiply TF32; no kernel in it was measured: its "
            "products rest on the law of 16-bit ones with the TF32 peak"
        )
    elif precision.weights is not None:
        rest = plain.label if plain is not None else "the types that the file stores"
        changed, kept = _linear_layers(precision, works)
        if kept:
            yield (
                f"{name}: {kept:,} {'product keeps' if kept == 1 else 'products keep'} the weights that the file "
                "stores quantised, and multiply as it says"
            )
        if not changed and _had_a_choice(runtime, works):
            return
        if not changed:
            yield f"{name}: no other product has constant weights, so that none changes; the rest runs in {rest}"
            return
        yield f"{name}: {_said_of_linear_layers(precision, runtime, rest)}; everything else runs in {rest}"
    elif plain is not None and plain.bits == 16 and not precision.mixed:
        yield f"{name}: the whole model in {plain.label}, weights stored so; nothing stays in float32"


def _had_a_choice(runtime: Runtime, works: Sequence[NodeWork]) -> bool:
    """Whether an engine's builder kept linear layers in 16 bits that it could have had otherwise."""
    return runtime.narrow_products == "calibrated" and any(
        isinstance(kernel, Gemm) and kernel.b_is_weight and kernel.batch == 1
        for work in works
        for kernel in work.kernels
    )


def _said_of_linear_layers(precision: Precision, runtime: Runtime, rest: str) -> str:
    """What becomes of linear layers in ``precision``, whose ``weights`` are narrower than ``rest``, the other types."""
    products, weights = precision.products, precision.weights
    assert weights is not None
    stored = f"weights are stored as {weights.label}"
    layers = "linear layers, whose weights are constants"
    if products is None:
        if runtime.packs_experts:
            layers = "linear layers and experts, whose weights are constants"
        beside = f"{layers}: {stored} beside activations in {rest}"
        if runtime.narrow_rows is None:
            return beside
        return f"{beside}, and widened by a kernel of {runtime.name} before products of over {runtime.narrow_rows} rows"
    if runtime.narrow_products == "calibrated":
        what = "convolutions and linear layers" if products is DataType.INT8 else "linear layers"
        return (
            f"{what} with constant weights multiply {products.label}, with scales from calibration (or QuantizeLinear "
            "nodes), each activation quantised by the layer that makes it"
        )
    if is_of_pairs(precision, runtime.narrow_products):
        return (
            "convolutions, Gemm and MatMul as quantize_static writes them where op_types_to_quantize names these alone "
            "(by default it puts pairs around Add, Mul, Concat and others, too, which take longer still and aren't "
            f"counted: analyse the quantised file): {runtime.name}'s CUDA provider multiplies no "
            f"{products.label} between QuantizeLinear and DequantizeLinear, so that in every run kernels of their own "
            "take what these operators read and write there and back and weights back, and the CPU biases, around "
            f"products of {rest} (--runtime tensorrt multiplies {products.label})"
        )
    if runtime.narrow_products == "widened":
        return f"{layers}: {stored} and widened inside products of {rest}"
    return f"{layers}: {stored}, activations are converted to {products.label} before each product"


def of_widened_weights(precision: Precision, runtime: Runtime, works: Sequence[NodeWork]) -> Iterator[str]:
    """That products with weights of few bits, as the file stores them, have more rows than their kernels take."""
    if precision.weights is None and (count := widened_products(works, runtime)):
        yield (
            f"{counted(count, 'product')} of over {runtime.narrow_rows} rows with weights of few bits, as stored: "
            f"before each a kernel of {runtime.name} widens all its weights in every run; up to {runtime.narrow_rows} "
            "rows it multiplies them as they are"
        )


def _linear_layers(precision: Precision, works: Sequence[NodeWork]) -> tuple[int, int]:
    """How many products and convolutions have the types of ``precision``, and how many products the file's.

    A product that is left as it is, its operands being widened by kernels before it, has the types, too; so has one
    that ``quantize_static`` wrote a DequantizeLinear for.
    """
    changed = kept = 0
    wanted = precision.products or precision.weights
    for work in works:
        if work.op_type == "DequantizeLinear":
            changed += any(op_type in QUANTIZED for _, op_type in work.origins)
        if widened := _is_widened(work, precision):
            changed += widened
            continue
        for kernel in work.kernels:
            if isinstance(kernel, Conv):
                changed += kernel.dtype is precision.products
            elif isinstance(kernel, Gemm) and kernel.b_is_weight:
                stored = kernel.b_dtype or kernel.dtype
                if wanted in (kernel.dtype, stored):
                    changed += 1
                elif stored.bits <= _QUANTIZED_BITS:
                    kept += 1
    return changed, kept


def _is_widened(work: NodeWork, precision: Precision) -> bool:
    """Whether kernels of a work widen operands of ``precision`` to what its product multiplies."""
    return any(
        isinstance(kernel, Elementwise)
        and kernel.operations == ("dequantize",)
        and kernel.inputs[0].dtype in (precision.products, precision.weights)
        for kernel in work.kernels
    ) and any(isinstance(kernel, Conv) or (isinstance(kernel, Gemm) and kernel.b_is_weight) for kernel in work.kernels)


LITTLE_NARROWED = 0.1
"""A share of the products' FLOPs in the format that was asked for below which a run is hardly one in that format."""


def of_little_narrowed(precision: Precision, runtime: Runtime, works: Sequence[NodeWork]) -> Iterator[Notice]:
    """Warns that a format of few bits, which linear layers alone have, concerns hardly anything of the model: of the
    FLOPs, or of the bytes of weights, most of which a mixture's experts have."""
    wanted = precision.products or precision.weights
    if precision.weights is None or precision.plain is None:
        return
    narrow = every = narrow_flops = flops = expert_bytes = weight_bytes = 0
    mixtures: set[str] = set()
    for work in works:
        for kernel in work.kernels:
            if not isinstance(kernel, Gemm | Conv):
                continue
            stored = (kernel.b_dtype if isinstance(kernel, Gemm) else kernel.weight_dtype) or kernel.dtype
            is_narrow = (
                stored.bits <= _QUANTIZED_BITS or wanted in (kernel.dtype, stored) or _is_widened(work, precision)
            )
            if isinstance(kernel, Gemm) and kernel.b_is_weight:
                held = stored.bytes_of(kernel.batch * kernel.k * kernel.n)
                weight_bytes += held
                if work.op_type == EXPERTS and not is_narrow:
                    expert_bytes += held
                    mixtures.add(work.node)
            every, flops = every + 1, flops + kernel.flops
            if is_narrow:
                narrow, narrow_flops = narrow + 1, narrow_flops + kernel.flops
    if every and narrow_flops < LITTLE_NARROWED * flops:
        yield Notice(
            code="little_narrowed",
            message=f"{precision.name} in {runtime.name} concerns {narrow:,} of {every:,} products and convolutions, "
            f"{percent(narrow_flops / flops)} of their FLOPs: what is predicted is {precision.plain.label}",
        )
    elif 2 * expert_bytes > weight_bytes:
        nodes = "1 MoE node" if len(mixtures) == 1 else f"{len(mixtures):,} MoE nodes"
        yield Notice(
            code="little_narrowed",
            message=f"{precision.name} in {runtime.name} concerns linear layers alone: the experts of {nodes}, "
            f"{percent(expert_bytes / weight_bytes)} of the bytes of weights that a run reads, stay in "
            f"{precision.plain.label}",
        )


def other_types(rows: Sequence[KernelRow]) -> Iterator[str]:
    """Names the types other than float32 that kernels compute in, and what predicts them."""
    others = [row for row in rows if row.dtype != DataType.FLOAT32.label and row.flops]
    found = Counter((row.dtype, row.predictor) for row in others if row.method == "learned")
    by_type: dict[str, list[str]] = {}
    for (dtype, predictor), count in found.most_common():
        by_type.setdefault(dtype, []).append(f"{predictor} ({count})")
    if by_type:
        said = "; ".join(f"{dtype} by {', '.join(names)}" for dtype, names in by_type.items())
        yield f"what predicts kernels in other types than float32 (docs/kernel-times.md): {said}"
    if analytic := Counter(row.dtype for row in others if row.method != "learned"):
        named = ", ".join(f"{dtype} ({count})" for dtype, count in analytic.items())
        yield f"kernels without a predictor, by an analytic estimate of stated efficiency: {named}"


def of_quantization(works: Sequence[Placed], runtime: Runtime) -> Iterator[str]:
    """That a runtime computes a quantised graph in floats."""
    apart = () if runtime.folds_quantization else rounding_apart([item.work for item in works])
    if apart:
        count = counted(sum(len(work.kernels) for work in apart), "kernel")
        yield (
            f"{runtime.name} folds QuantizeLinear and DequantizeLinear on a GPU for weights alone at most: {count} of "
            "their own, products in floats (--runtime tensorrt multiplies in few bits)"
        )
