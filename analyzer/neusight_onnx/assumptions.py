"""What a report says that it assumes, and what it warns of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from neusight_onnx.assembly import Counted, Placed, stream_steps
from neusight_onnx.batch import batch_of
from neusight_onnx.compatibility import last_release, not_compiled_for
from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.quantization import rounding_apart
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.gpu.generation import said_of_unknown
from neusight_onnx.graph.model import InferredGraph, Notice
from neusight_onnx.kernel_formats import kernel_dtype
from neusight_onnx.kernels import Attention, Conv, Elementwise, Gemm, HostWork, NodeWork, Transfer
from neusight_onnx.laws.analytic import PIPE_FALLBACK
from neusight_onnx.laws.host import (
    HOST_BYTES_PER_S,
    HOST_FLOPS_PER_S,
    HOST_INT8_PRODUCTS_PER_S,
    HOST_PRODUCTS_PER_S,
    PCIE_EFFICIENCY,
    host_share,
    link_bytes_per_s,
)
from neusight_onnx.lowering.layouts import wants_channels_last
from neusight_onnx.lowering.products import EXPERTS
from neusight_onnx.lowering.widened_weights import widened_products
from neusight_onnx.memory import RunMemory, available_bytes, kept_in_l2, run_bytes
from neusight_onnx.operator_host import call_us
from neusight_onnx.precision import AUTO, TF32_BY_CUDNN, Precision, takes_tf32
from neusight_onnx.preparation import PreparedModel
from neusight_onnx.releases import Change, release_text
from neusight_onnx.report.model import (
    TIGHT,
    Coverage,
    KernelRow,
    Settings,
    Totals,
    UnsupportedNode,
)
from neusight_onnx.report.quantities import capacity, counted, percent, significant
from neusight_onnx.runtime import Runtime
from neusight_onnx.stream import SLOWER_ON_CHIP, stream_time_us

if TYPE_CHECKING:
    from neusight_onnx.tactics import Chosen, Tactics

_QUANTIZED_BITS = 8


def of_the_gpu(spec: GpuSpec) -> Iterator[str]:
    """Which GPU is meant, where the name that was given is not its alone."""
    if spec.also_named:
        *rest, last = (f"'{name}'" for name in spec.also_named)
        others = f"{', '.join(rest)} or {last}" if rest else last
        which = "the others" if rest else "the other"
        yield f"GPU: '{spec.asked_as}' is taken as '{spec.name}'; --gpu {others} for {which}"
    elif spec.asked_as is not None:
        yield (
            f"GPU: '{spec.asked_as}' is taken as one '{spec.name}' (which GPUs a cloud's machine has is from general "
            "knowledge)"
        )
    if (said := said_of_unknown(spec)) is not None:
        yield f"GPU: {said}"


def of_the_batch(inferred: InferredGraph, settings: Settings) -> Iterator[str]:
    """How many samples a run is taken to be, where no dim is named as a batch."""
    _, guessed = batch_of(inferred, settings.dims, settings.batch)
    if guessed is not None:
        yield guessed


def of_the_run(prepared: PreparedModel) -> Iterator[str]:
    """What was asked for and is not the default: a short report has it among its assumptions."""
    yield from of_a_newer_release(prepared.runtime)
    if prepared.runtime.undone(training=prepared.trained is not None):
        yield (
            f"{prepared.runtime.label}: what later releases do otherwise is as in that one (docs/releases.md; "
            "'analyze' says what of it the model meets)"
        )
    yield from prepared.said
    if prepared.runtime.captured:
        yield "runs are replayed as CUDA graphs (--cuda-graph)"
    if prepared.include_io:
        yield "inputs are copied from the host and outputs back (--include-io)"


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


def share_by_data(coverage: Coverage) -> Iterator[str]:
    """Which share of the time hangs on shapes that depend on data."""
    if coverage.data_dependent_share > 0:
        yield (
            f"{percent(coverage.data_dependent_share)} of the kernels' time goes to tensors whose shape depends on "
            "data: counted at the greatest that it can be, or as is stated here"
        )


def range_of_branches(counted: Counted, totals: Totals, runtime: Runtime) -> Iterator[str]:
    """The latency if every undecided If took its faster branch, beside the one that is shown."""
    if counted.faster is None or not counted.said:
        return
    steps = stream_steps(counted.faster, lambda prediction: prediction.latency_us, runtime)
    least_ms = stream_time_us(steps, runtime) / 1e3
    least, shown = f"{least_ms:.3g} ms", f"{totals.latency_ms:.3g} ms"
    if least != shown:
        yield (
            "if every If whose condition is not known took its faster branch, the latency would be "
            f"{least}, not {shown}"
        )


def of_the_stored_precision(settings: Settings, asked: str, runtime: Runtime) -> Iterator[str]:
    """What the model is computed in, and whether that is as it is stored."""
    if asked == AUTO and settings.precision == DataType.TFLOAT32.label:
        yield (
            f"precision tf32: float32 as stored in the model, multiplied in TF32, which {runtime.name} does unasked on "
            "this GPU (--precision fp32 keeps to IEEE FP32)"
        )
    elif settings.precision == TF32_BY_CUDNN:
        yield (
            f"precision {TF32_BY_CUDNN}: float32 as stored in the model; convolutions and recurrent layers multiply "
            "TF32, which PyTorch has cuDNN do unasked on this GPU (torch.backends.cudnn.allow_tf32), other "
            "products are in IEEE FP32 (--precision fp32 keeps to that everywhere, tf32 narrows all)"
        )
    else:
        stored = "as stored in the model" if asked == AUTO else "as asked; the file may store another"
        yield f"precision {settings.precision} ({stored}; --precision changes it)"


def of_the_chip(runtime: Runtime, spec: GpuSpec) -> Iterator[str]:
    """That nothing is known of the host of a system on a chip, and what it takes of the memory."""
    if spec.shares_memory:
        yield (
            f"the CPU shares the GPU's memory: of {capacity(spec.memory_bytes)} the operating system and other "
            f"programs are taken to hold {capacity(spec.memory_bytes - available_bytes(spec))}, which isn't measured"
        )
    if spec.shares_memory and not runtime.captured:
        yield (
            f"the host is taken to launch {runtime.name}'s kernels as fast as a server's: no CPU on the GPU's chip was "
            "measured. It is slower, so that runs of many small kernels take longer (--cuda-graph: one launch): the "
            f"interval ends where it takes {SLOWER_ON_CHIP * runtime.host_spread:g} times as long"
        )


def _software_said(runtime: Runtime) -> str:
    """What eager mode's operators take beside their launches."""
    least, conv, linear = (call_us(kind, runtime) for kind in ("elementwise", "conv", "linear"))
    return (
        f"{least:.0f} us of software a pointwise operator, {conv:.0f} a convolution, {linear:.0f} a linear layer, with "
        "the model's code around it, on a server of 2018 to 2022, "
    )


def of_the_runtime(settings: Settings, asked: str, runtime: Runtime, spec: GpuSpec) -> Iterator[str]:
    """What every run of a runtime assumes: what its host costs, where the inputs are, what isn't counted."""
    of_release = f"{runtime.description}, as of release {release_text(runtime.described_release)}"
    if runtime.captured:
        yield (
            f"runtime {runtime.label}: {of_release}, replayed as a CUDA graph: {runtime.graph_us:g} us of host "
            "time in all (--no-cuda-graph changes it); capturing it is not counted"
        )
    else:
        yield (
            f"runtime {runtime.label}: {of_release}; {runtime.kernel_us:g} us of host time a kernel, "
            f"{_software_said(runtime) if runtime.operator_software else ''}"
            f"{runtime.view_us:g} us an operator without one (--runtime changes it)"
        )
    if settings.include_io:
        way = "within the memory that they share" if spec.shares_memory else "over PCIe"
        yield f"inputs are copied from the host and outputs back, {way}, before and after everything else"
    else:
        yield "inputs are on the GPU already; copies from and to the host are not counted"
    if runtime.fallback != "none":
        yield "loading, optimising and building the model are not counted, nor is the first run"
    if asked == "fp32" and runtime.tf32 != "none" and takes_tf32(spec):
        what = "products" if runtime.tf32 == "all" else "convolutions and recurrent layers"
        yield (
            f"{runtime.name} takes TF32 for {what} of FP32 on this GPU, unless it is told not to: as asked, this is "
            "IEEE FP32"
        )


def of_a_newer_release(runtime: Runtime) -> Iterator[str]:
    """That a release that was asked for isn't known yet."""
    if runtime.newer is not None:
        yield (
            f"{runtime.name} {release_text(runtime.newer)} is newer than what is known: taken as "
            f"{release_text(runtime.described_release)}, the newest release that is"
        )


def of_the_last_release(runtime: Runtime, spec: GpuSpec) -> Iterator[str]:
    """Which release is the last for a GPU that the one described doesn't take; that it isn't compiled for the GPU."""
    if (older := last_release(runtime, spec)) is not None:
        yield older
    if (compiled := not_compiled_for(runtime, spec)) is not None:
        yield compiled


def of_the_provider(runtime: Runtime, spec: GpuSpec) -> Iterator[str]:
    """Which execution provider of ONNX Runtime is meant on a GPU that its CUDA provider isn't for."""
    if runtime.name == "onnxruntime" and spec.vendor != "NVIDIA":
        # the provider's page of ONNX Runtime's documentation, as remembered: "removed since 1.23"
        yield (
            f"onnxruntime on a GPU by {spec.vendor}: kernels as the CUDA provider's but for those of NVIDIA alone "
            "(XQA, cuDNN), as its ROCm provider has them, which releases up to 1.22 contain; MIGraphX, the provider of "
            "later ones, isn't modelled"
        )


def of_the_release(runtime: Runtime, changes: Iterable[Change]) -> tuple[str, ...]:
    """What a release that was asked for does otherwise than later ones, a sentence for each change."""
    return tuple(f"{runtime.label}, otherwise than later releases: {change.before}" for change in changes)


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
    if runtime.narrow_products == "widened" and products is DataType.INT8:
        return (
            f"{layers}, and convolutions, as quantize_static writes them where op_types_to_quantize names these alone "
            "(by default it puts pairs around Add, Mul, Concat and others, too, which take longer still and aren't "
            f"counted: analyse the quantised file): {runtime.name}'s CUDA provider multiplies no "
            f"{products.label} between QuantizeLinear and DequantizeLinear, so that in every run kernels of their own "
            f"take activations there and back and weights back, around products of {rest} (--runtime tensorrt "
            f"multiplies {products.label})"
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

    A product that is left as it is, its operands being widened by kernels before it, has the types, too.
    """
    changed = kept = 0
    wanted = precision.products or precision.weights
    for work in works:
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
        yield f"what predicts kernels in other types than float32 (docs/precision.md): {said}"
    if analytic := Counter(row.dtype for row in others if row.method != "learned"):
        named = ", ".join(f"{dtype} ({count})" for dtype, count in analytic.items())
        yield f"kernels without a predictor, by an analytic estimate of stated efficiency: {named}"


def of_pipes(works: Sequence[Placed], spec: GpuSpec) -> Iterator[str]:
    """Which products run at the rate of wider units, because the GPU states none for their type."""
    products = Counter(
        kernel.dtype for item in works for kernel in item.work.kernels if isinstance(kernel, Gemm | Conv | Attention)
    )
    for dtype, count in products.items():
        own, *wider = PIPE_FALLBACK.get(dtype, ("fp32",))
        if own not in spec.peak_flops_per_s:
            instead = next((pipe for pipe in wider if pipe in spec.peak_flops_per_s), "fp32")
            yield (
                f"products in {dtype.label} ({count}): {spec.name} states no rate of {own} units, that of {instead} "
                "stands in"
            )


def of_the_host(works: Sequence[Placed], runtime: Runtime, spec: GpuSpec) -> Iterator[str]:
    """Which operators the CPU computes, and how fast it is taken to be."""
    found = Counter(
        f"{item.work.op_type} {item.work.on_host_because or ''}".strip()
        for item in works
        if any(isinstance(kernel, HostWork) for kernel in item.work.kernels)
    )
    if found:
        named = ", ".join(f"{operation} ({count})" if count > 1 else operation for operation, count in found.items())
        yield (
            f"operators without a GPU kernel in {runtime.name} run on the CPU while the GPU waits: {named}; the CPU is "
            f"taken to do {host_share(spec) * HOST_INT8_PRODUCTS_PER_S / 1e12:g} TOP/s in products of 8 bits, "
            f"{host_share(spec) * HOST_PRODUCTS_PER_S / 1e12:g} TFLOP/s in those of floats and "
            f"{HOST_FLOPS_PER_S / 1e9:g} GFLOP/s else, and to move {HOST_BYTES_PER_S / 1e9:g} GB/s, as eight cores of "
            f"{'such a chip' if spec.shares_memory else 'a server'} do; each may be four times as much or as little. "
            "Copies both ways are counted"
        )


def of_copies(works: Sequence[Placed], spec: GpuSpec) -> Iterator[str]:
    """How fast copies between host and GPU are taken to be, where there are any."""
    if any(isinstance(kernel, Transfer) for item in works for kernel in item.work.kernels):
        said = f"copies between host and GPU run at {PCIE_EFFICIENCY * link_bytes_per_s(spec) / 1e9:.3g} GB/s, "
        said += f"{percent(PCIE_EFFICIENCY)} of "
        if spec.shares_memory:
            yield (
                f"{said}what the memory that they share allows, since a copy reads and writes there; a program that "
                "hands its own memory over (cudaHostAlloc, cudaMallocManaged) copies nothing"
            )
            return
        unstated = spec.pcie_generation is None or spec.pcie_lane_count is None
        yield f"{said}its PCIe link" + (" (4.0 x16 is taken: its file states none)" if unstated else "")


def of_quantization(works: Sequence[Placed], runtime: Runtime) -> Iterator[str]:
    """That a runtime computes a quantised graph in floats."""
    apart = () if runtime.folds_quantization else rounding_apart([item.work for item in works])
    if apart:
        count = counted(sum(len(work.kernels) for work in apart), "kernel")
        yield (
            f"{runtime.name} folds QuantizeLinear and DequantizeLinear on a GPU for weights alone at most: {count} of "
            "their own, products in floats (--runtime tensorrt multiplies in few bits)"
        )


def of_layouts(works: Sequence[Placed], runtime: Runtime, spec: GpuSpec) -> Iterator[str]:
    """In which order images lie where the user chose it; that a library transposes around convolutions on matrix units,
    where it does."""
    if runtime.channels_last:
        yield (
            "images and filters lie channels last, (n, h, w, c), as model.to(memory_format=torch.channels_last) and "
            "images in it (volumes in channels_last_3d) have it; what doesn't keep that order copies"
        )
        if spec.vendor == "AMD":
            yield (
                "on AMD GPUs PyTorch convolves channels last where the environment has PYTORCH_MIOPEN_SUGGEST_NHWC=1, "
                "which is taken for granted; without it each convolution copies"
            )
    kernels = [kernel for item in works for kernel in item.work.kernels if isinstance(kernel, Conv)]
    if runtime.reorders and not runtime.channels_last and any(_lost_winograd(kernel) for kernel in kernels):
        yield (
            "convolutions work channels last, as TorchInductor decides by their FLOPs, whatever the GPU: in IEEE FP32 "
            "3x3 filters are taken to have no Winograd algorithm in that order and may take longer than in --runtime "
            "eager (torch._inductor.config.layout_optimization = False keeps the model's order)"
        )
    as_exported = [kernel for kernel in kernels if wants_channels_last(kernel.dtype) and not kernel.channels_last]
    if not as_exported or spec.compute_capability is None:
        return
    from neusight_onnx.laws.matrix_units import serves

    if any(serves(spec, kernel.dtype) for kernel in as_exported):
        hint = ": --channels-last" if runtime.takes_order and not runtime.channels_last else ""
        yield (
            "convolutions on matrix units find their tensors as the model has them, (n, c, h, w): the library's "
            f"transposes are in their times, but for 1x1 filters (a model in channels-last order has none{hint})"
        )


def _lost_winograd(kernel: Conv) -> bool:
    """Whether a convolution could take Winograd's algorithm but for its order (``laws/conv.py``)."""
    return (
        kernel.channels_last
        and kernel.dtype is DataType.FLOAT32
        and kernel.filter == (3, 3)
        and kernel.strides == kernel.dilations == (1, 1)
        and kernel.groups == 1
        and not kernel.transposed
    )


def of_sums(works: Sequence[Placed], runtime: Runtime, spec: GpuSpec) -> Iterator[str]:
    """That FP16 products accumulate in FP16, where that is faster on the GPU."""
    fast, slow = spec.fp16_accumulate_flops_per_s, spec.peak_flops_per_s.get("fp16")
    if fast is None or slow is None or fast <= slow:
        return
    count = sum(
        kernel.accumulator is DataType.FLOAT16
        for item in works
        for kernel in item.work.kernels
        if isinstance(kernel, Gemm | Conv)
    )
    if count:
        yield (
            f"products and convolutions in float16 ({count}) accumulate in float16, at {significant(fast / 1e12)} "
            f"TFLOP/s on this GPU where sums in float32 have {significant(slow / 1e12)}: {runtime.name} has kernels of "
            "both and takes the fastest; an engine that is held to float32 sums is slower"
        )


LITTLE_IN_L2 = 0.05
"""A share of the weights that L2 holds from run to run which is worth no words."""


def of_the_l2(works: Sequence[Placed], memory: RunMemory, spec: GpuSpec) -> Iterator[str]:
    """That weights stay in L2 between runs, where a good part of them does and kernels are predicted so."""
    from neusight_onnx.laws.matrix_units import serves

    share = kept_in_l2(memory, spec)
    if share >= LITTLE_IN_L2 and any(
        serves(spec, kernel.dtype)
        for item in works
        for kernel in item.work.kernels
        if isinstance(kernel, Conv | Attention) or (isinstance(kernel, Gemm) and kernel.b_is_weight)
    ):
        yield (
            f"runs follow each other: a run touches {capacity(run_bytes(memory))} and L2 is {capacity(spec.l2_bytes)}, "
            f"so that {percent(share)} of the weights of products and convolutions on matrix units are taken to be "
            "there from the run before; after a pause, or beside other work on the GPU, they come from DRAM"
        )


def of_experts(works: Sequence[Placed]) -> Iterator[str]:
    """How tokens are taken to choose among experts: the graph doesn't tell, and it decides which weights are read."""
    count = sum(item.work.op_type in ("MoE", "QMoE") and bool(item.work.kernels) for item in works)
    if count:
        yield (
            f"{counted(count, 'mixture')} of experts: each token chooses its experts independently of the others, all "
            "experts as likely; the weights of those that some token is expected to choose are read, their rows spread "
            "evenly. Uneven choices read fewer weights and fill some products more than others"
        )


LITTLE_BELOW_BOOST = 0.95
"""A sustained clock of this share of the boost clock is worth no words."""


def of_clocks(works: Sequence[Placed], spec: GpuSpec) -> Iterator[str]:
    """That a power limit holds the clock of matrix units down, where it does."""
    kernels = [kernel for item in works for kernel in item.work.kernels if isinstance(kernel, Gemm | Conv)]
    kernels = [kernel for kernel in kernels if kernel.dtype is not DataType.FLOAT32]
    if not kernels:
        return
    from neusight_onnx.laws.matrix_unit_power import sustained_share
    from neusight_onnx.laws.matrix_units import pipe_of_product, serves

    pipes = {kernel.dtype.label: pipe_of_product(kernel) for kernel in kernels if serves(spec, kernel.dtype)}
    shares = {label: sustained_share(spec, pipe) for label, pipe in pipes.items()}
    limited = {label: share for label, share in sorted(shares.items()) if share < LITTLE_BELOW_BOOST}
    if limited:
        said = ", ".join(f"{percent(share)} of the boost clock in {label}" for label, share in limited.items())
        yield (
            f"the run goes on: {spec.power_w:g} W sustain {said} while matrix units are busy; a cool card is faster "
            "for some ms, and so are kernels that wait for memory"
        )


def own_warnings(totals: Totals, unsupported: Sequence[UnsupportedNode], spec: GpuSpec) -> Iterator[Notice]:
    """Warnings that follow from the totals: a lower bound, memory that does not suffice or is tight."""
    if totals.partial:
        count = len(unsupported)
        yield Notice(
            code="partial",
            message=f"{count:,} {'node is' if count == 1 else 'nodes are'} not supported and counted as nothing: "
            "the totals are a lower bound",
        )
    memory = totals.memory
    if not memory.fits:
        yield Notice(
            code="memory",
            message=f"needs about {capacity(memory.peak_bytes)}, {spec.name} has {capacity(memory.available_bytes)}: "
            "it does not fit",
        )
    elif memory.verdict == TIGHT:
        yield Notice(
            code="memory_tight",
            message=f"may need up to {capacity(memory.high_bytes)}, {spec.name} has "
            f"{capacity(memory.available_bytes)} and a process can't have all of it: it is tight",
        )
