"""What a report assumes of the run: which GPU, runtime and release are meant, what a batch is, what isn't counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from neusight_onnx.batch import batch_of
from neusight_onnx.compatibility import last_release, not_compiled_for
from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.gpu.generation import said_of_unknown
from neusight_onnx.gpu.machines import gpu_of_instance
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.memory import RunMemory, available_bytes
from neusight_onnx.operator_host import call_us
from neusight_onnx.precision import AUTO, TF32_BY_CUDNN, takes_tf32
from neusight_onnx.preparation import PreparedModel
from neusight_onnx.releases import Change, is_before, release_text
from neusight_onnx.releases.onnxruntime_files import LOOKED_AT
from neusight_onnx.report.model import Settings
from neusight_onnx.report.quantities import capacity
from neusight_onnx.runtime import TORCHSCRIPT, Runtime
from neusight_onnx.stream import SLOWER_ON_CHIP

if TYPE_CHECKING:
    pass


def of_the_gpu(spec: GpuSpec) -> Iterator[str]:
    """Which GPU is meant, where the name that was given is not its alone."""
    if spec.also_named:
        *rest, last = (f"'{name}'" for name in spec.also_named)
        others = f"{', '.join(rest)} or {last}" if rest else last
        which = "the others" if rest else "the other"
        yield f"GPU: '{spec.asked_as}' is taken as '{spec.name}'; --gpu {others} for {which}"
    elif spec.asked_as is not None:
        gpu = gpu_of_instance(spec.asked_as)
        yield (
            f"GPU: '{spec.asked_as}' is taken as one '{gpu}' (which GPUs a cloud's machine has is from general "
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
        stays = f"; {CACHES_STAY}" if prepared.memory.caches else ""
        yield f"inputs are copied from the host and outputs back{stays} (--include-io)"


CACHES_STAY = "past and present keys and values stay on the GPU"


def of_the_caches(settings: Settings, memory: RunMemory) -> Iterator[str]:
    """What of inputs and outputs isn't copied where they are."""
    if settings.include_io and memory.caches:
        yield f"{CACHES_STAY}, which are not copied from and to the host (--include-io)"


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
    elif settings.precision in settings.product_formats and asked != settings.precision:
        yield f"precision {settings.precision}: as stored in the model, which has no floats for --precision to change"
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
    """That what a release executes that was asked for isn't known yet."""
    if runtime.newer is None:
        return
    called, release = (TORCHSCRIPT if runtime.scripted else runtime.name), release_text(runtime.newer)
    taken = f"taken as {release_text(runtime.described_release)}, the newest release that is"
    if runtime.name == "onnxruntime" and not is_before(LOOKED_AT, runtime.newer):
        yield f"{called} {release}: which files it reads is known, but what it executes is not: {taken}"
    else:
        yield f"{called} {release} is newer than what is known: {taken}"


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
