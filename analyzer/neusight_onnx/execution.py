"""What is executed of a prepared model on a GPU, as its runtime's builder chooses, with the time of each node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from neusight_onnx.assembly import Placed, counted_works, joined_views, quickest, stream_steps, with_predictions
from neusight_onnx.assumptions.formats import of_fp32_beside_tf32, of_tactics
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.kernel_formats import kernel_dtype
from neusight_onnx.kernels import Attention, Conv, Gemm, HostWork, NodeWork, Recurrent
from neusight_onnx.memory import RunMemory, kept_in_l2, run_memory, with_more_weights
from neusight_onnx.precision import Precision, in_tf32, said_of_missing_tf32, takes_tf32
from neusight_onnx.predictor import Predictors, predict
from neusight_onnx.preparation import PreparedModel
from neusight_onnx.releases import release_text
from neusight_onnx.report.model import Settings
from neusight_onnx.report.precision_words import narrow_formats
from neusight_onnx.runnable import require_units
from neusight_onnx.stream import stream_time_us


def precision_on(prepared: PreparedModel, spec: GpuSpec) -> Precision:
    """What the model is computed in on a GPU: float32 may be multiplied in TF32 by a runtime that does so unasked."""
    if prepared.work_in_tf32 is None or not takes_tf32(spec):
        return prepared.precision
    return in_tf32(prepared.precision, by_cudnn=prepared.runtime.tf32 == "cudnn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is executed on a GPU, where that isn't the same on all: the work, its memory, and what there is to say."""

    works: Sequence[NodeWork]
    memory: RunMemory
    said: tuple[str, ...] = ()


def run_on(prepared: PreparedModel, spec: GpuSpec, predictors: Predictors | None = None) -> Run:
    """The work as it is executed on a GPU, where the runtime's kernels aren't those of all GPUs.

    NotSupportedError where it has products that the GPU has no units for.

    ``predictors``: what an engine's builder is taken to find when it times a layer's kernels; default the shipped ones.
    """
    works: Sequence[NodeWork] = prepared.work
    if prepared.work_in_tf32 is not None and takes_tf32(spec):
        works = prepared.work_in_tf32
    memory = prepared.memory
    said: tuple[str, ...] = ()
    if prepared.tactics is not None:
        from neusight_onnx.tactics import choose

        chosen = choose(prepared.tactics, works, spec, predictors=predictors)
        if any(new.kernels != old.kernels for new, old in zip(chosen.works, works, strict=True)):
            # what lies between layers hangs on the formats that they got here
            timeline = memory.found.timeline is not None
            memory = run_memory(prepared.graph, chosen.works, prepared.runtime.name, timeline=timeline)
            memory = with_more_weights(memory, chosen.more_weight_bytes)
        works, said = chosen.works, of_tactics(prepared.tactics, chosen)
    elif prepared.runtime.times_kernels:
        from neusight_onnx.tactics import in_quickest_order

        works, fp32_count = in_quickest_order(prepared.graph, works, spec, predictors=predictors)
        if fp32_count:
            timeline = memory.found.timeline is not None
            memory = run_memory(prepared.graph, works, prepared.runtime.name, timeline=timeline)
            said = (of_fp32_beside_tf32(fp32_count, works),)
    least = prepared.runtime.attention_capability
    if least is not None and spec.compute_capability is not None and spec.compute_capability < least:
        from neusight_onnx.fusion.engine_attention import by_parts

        works = tuple(by_parts(work) for work in works)
    if prepared.runtime.calls_attention and prepared.trained is None:
        from neusight_onnx.lowering.attention.formula import by_formula_on

        works = by_formula_on(works, prepared.runtime, spec.compute_capability)
    if prepared.runtime.name == "onnxruntime":
        from neusight_onnx.lowering.attention.provider import appending_on, asked_on

        works = asked_on(appending_on(works, spec.compute_capability), spec.compute_capability)
    require_units(works, prepared.runtime, spec)
    if prepared.work_in_tf32 is not None and (missing := said_of_missing_tf32(spec, prepared.runtime.name)):
        said = (*said, missing)
    return Run(works=works, memory=memory, said=said)


def as_built(prepared: PreparedModel, spec: GpuSpec, predictors: Predictors | None = None) -> PreparedModel:
    """What an engine's builder makes of a model on a GPU: all of it in float32 where a flag allows 16 bits and what
    converts between them outweighs what they save, which :func:`run_on` decides for convolutions and linear layers."""
    full = prepared.in_full
    if full is None or _run_us(full, spec, predictors) >= _run_us(prepared, spec, predictors):
        return prepared
    multiplied = full.work_in_tf32 if takes_tf32(spec) else None
    stored = formats_of_products(full.work)
    stays = f"all but what the file stores in {' and '.join(stored)} stays" if stored else "the whole engine stays"
    return replace(
        full,
        precision=prepared.precision,
        work=full.work if multiplied is None else multiplied,
        work_in_tf32=None,
        said=(
            *full.said,
            f"{stays} in float32, which is quicker than {prepared.precision.name} there, what converts "
            "operands included: a builder that times both takes the quicker",
        ),
    )


def counted_on(prepared: PreparedModel, spec: GpuSpec, predictors: Predictors | None) -> Sequence[Placed]:
    """What is executed, operators in a row that launch nothing being one."""
    run = run_on(prepared, spec, predictors)
    return counted_works(prepared.graph, placed_on(joined_views(run.works), spec, run.memory, predictors)).works


def _run_us(prepared: PreparedModel, spec: GpuSpec, predictors: Predictors | None) -> float:
    counted = counted_on(prepared, spec, predictors)
    steps = stream_steps(counted, lambda prediction: prediction.latency_us, prepared.runtime)
    return stream_time_us(steps, prepared.runtime)


def placed_on(
    work: Sequence[NodeWork], spec: GpuSpec, memory: RunMemory, predictors: Predictors | None = None
) -> list[Placed]:
    kernels = [kernel for item in work for kernel in item.kernels]
    others = [kernel for item in work for way in item.alternatives for kernel in way]
    kept = kept_in_l2(memory, spec)
    predictions = predict([*kernels, *others], spec, predictors=predictors, kept_in_l2=kept)
    placed = with_predictions(work, predictions[: len(kernels)])
    return quickest(placed, predictions[len(kernels) :]) if others else placed


def formats_of_products(works: Sequence[NodeWork]) -> tuple[str, ...]:
    """Of 8 and 4 bits, those that products are computed in, on the GPU or on the host."""
    kernels = (kernel for work in works for kernel in work.kernels)
    products = (kernel for kernel in kernels if isinstance(kernel, Gemm | Conv | Attention | Recurrent | HostWork))
    return narrow_formats({kernel_dtype(kernel).label for kernel in products if kernel.macs})


def _format_name(prepared: PreparedModel, executed: Precision, formats: Sequence[str]) -> str:
    """What a model is computed in, by name: that of its products where no value of it is of floats."""
    if len(formats) != 1 or executed.name == formats[0] or _has_floats(prepared.graph):
        return executed.name
    return formats[0]


def _has_floats(graph: InferredGraph) -> bool:
    """Whether a run is given or makes a value of floats; constants, as scales are, don't count."""
    return any(
        value.dtype is not None and value.dtype.is_float and not value.is_constant for value in graph.values.values()
    ) or any(map(_has_floats, graph.bodies.values()))


def settings_of(prepared: PreparedModel, executed: Precision, works: Sequence[NodeWork]) -> Settings:
    """How a model is run; ``works``: what is executed of it."""
    dims = dict(prepared.shaped.bound.symbols)
    formats = formats_of_products(works)
    return Settings(
        mode="inference" if prepared.trained is None else "training",
        precision=_format_name(prepared, executed, formats),
        product_formats=formats,
        runtime=prepared.runtime.label,
        runtime_release=release_text(prepared.runtime.described_release),
        dims=dims,
        cuda_graph=prepared.runtime.captured,
        include_io=prepared.include_io,
        channels_last=prepared.runtime.channels_last,
        batch=prepared.shaped.bound.batch,
    )
