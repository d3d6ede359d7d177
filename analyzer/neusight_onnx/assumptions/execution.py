"""What a report assumes of how kernels are executed: rates, clocks, layouts, caches, copies, the host's operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from neusight_onnx.assembly import Placed
from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import Attention, Conv, Gemm, HostWork, Transfer
from neusight_onnx.laws.analytic.pipes import PIPE_FALLBACK
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
from neusight_onnx.memory import RunMemory, kept_in_l2, run_bytes
from neusight_onnx.report.quantities import capacity, counted, percent, significant
from neusight_onnx.runtime import Runtime

if TYPE_CHECKING:
    pass


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
    """Whether a convolution could take Winograd's algorithm but for its order (``laws/conv/``)."""
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
