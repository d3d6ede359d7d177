"""Reports put together by hand: a fixed one that every format's golden file is made from, and its hard variants."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.model import Notice
from neusight_onnx.report.model import (
    Coverage,
    FusionSummary,
    HostSummary,
    KernelRow,
    LargestBatch,
    LiveTensor,
    MemoryEstimate,
    MemoryPoint,
    ModelSummary,
    NearMiss,
    Report,
    SavedTensor,
    Settings,
    Totals,
    TrainingSummary,
    UnsupportedNode,
    ValueSummary,
)

GPU = GpuSpec(
    name="a100-sxm-80gb",
    label="NVIDIA A100-SXM4-80GB",
    vendor="NVIDIA",
    architecture="Ampere",
    compute_capability=8.0,
    process_nm=7.0,
    sm_count=108,
    fp32_lanes_per_sm=64,
    clock_hz=1.41e9,
    warp_size=32,
    memory_bytes=80 * 2**30,
    memory_type="HBM2e",
    memory_bytes_per_s=2.039e12,
    l2_bytes=40 * 2**20,
    l1_bytes_per_sm=192 * 2**10,
    shared_memory_bytes_per_sm=164 * 2**10,
    register_bytes_per_sm=256 * 2**10,
    max_threads_per_sm=2048,
    power_w=400.0,
    peak_flops_per_s=MappingProxyType({"fp32": 1.9492e13, "tf32": 1.56e14, "fp16": 3.12e14}),
    sources=("a datasheet",),
    notes=("a note",),
    device_names=("NVIDIA A100-SXM4-80GB",),
    aliases=("a100",),
    asked_as="a100",
    also_named=("a100-sxm-40gb",),
)

MODEL = ModelSummary(
    path="models/tiny_block.onnx",
    sha256="ab" * 32,
    ir_version=8,
    opsets={"": 17, "com.microsoft": 1},
    node_count=9,
    parameter_count=8_393_728,
    weight_bytes=33_574_912,
    inputs=(ValueSummary(name="x", dtype="float32", shape=(8, 512, 1024)),),
    outputs=(
        ValueSummary(name="y", dtype="float32", shape=(8, 512, 1024)),
        ValueSummary(name="mask", dtype=None, shape=None),
    ),
)


def gemm_row(layer: int, latency_us: float) -> KernelRow:
    """The first linear layer of a block's MLP: 2 * 4096 * 4096 * 1024 FLOPs and one addition an output element."""
    return KernelRow(
        id=f"{layer}.0",
        phase="forward",
        kernel_class="gemm",
        op_types=("MatMul", "Add"),
        nodes=(f"/h.{layer}/mlp/fc/MatMul", f"/h.{layer}/mlp/fc/Add"),
        dtype="float32",
        dims={"m": 4096, "n": 4096, "k": 1024, "epilogue": "bias"},
        count=1,
        flops=2 * 4096 * 4096 * 1024 + 4096 * 4096,
        read_bytes=4 * (4096 * 1024 + 1024 * 4096 + 4096),
        write_bytes=4 * 4096 * 4096,
        tile={"m": 128, "n": 128, "k": 8},
        tile_count=1024,
        wave_count=10,
        utilization=0.8123456789,
        bound="compute",
        latency_us=latency_us,
        latency_low_us=latency_us * 0.9,
        latency_high_us=latency_us * 1.15,
        predictor="gemm-fp32",
        method="learned",
    )


SOFTMAX = KernelRow(
    id="2.0",
    phase="forward",
    kernel_class="softmax",
    op_types=("Softmax",),
    nodes=("/h.0/attn/Softmax",),
    dtype="float32",
    dims={"rows": 65536, "cols": 512},
    count=2,
    flops=2 * 5 * 65536 * 512,
    read_bytes=2 * 4 * 65536 * 512,
    write_bytes=2 * 4 * 65536 * 512,
    tile={},
    tile_count=65536,
    wave_count=38,
    utilization=0.91,
    bound="memory",
    latency_us=290.0,
    latency_low_us=270.0,
    latency_high_us=320.0,
    predictor="softmax-fp32",
    method="learned",
)

GATHER = KernelRow(
    id="3.0",
    phase="forward",
    kernel_class="gather_scatter",
    op_types=("Gather",),
    nodes=("/embed/Gather",),
    dtype="float32",
    dims={"operation": "gather", "moved": 4194304, "run": 1024, "shape": (4096, 1024)},
    count=1,
    flops=0,
    read_bytes=16809984,
    write_bytes=16777216,
    tile={},
    tile_count=0,
    wave_count=0,
    utilization=0.6,
    bound="floor",
    latency_us=30.25,
    latency_low_us=20.0,
    latency_high_us=60.5,
    predictor="analytic",
    method="analytic",
)

KERNELS = (gemm_row(0, 2200.0), gemm_row(1, 2200.0), SOFTMAX, GATHER)
KERNEL_US = 2200.0 + 2200.0 + 290.0 + 30.25
OVERHEAD_US = 79.75

TRAINING = TrainingSummary(
    optimizer="adamw",
    loss="cross-entropy",
    recompute="none",
    grad_accumulation=2,
    dropout={"attention": 0.1, "residual": 0.1, "embedding": 0.0},
    freeze=("embeddings*",),
    trained_parameter_count=8_000_000,
    gradient_bytes=32_000_000,
    optimizer_state_bytes=64_000_000,
    master_weight_bytes=0,
    saved_bytes=5_000,
    saved=(SavedTensor(node="norm", name="", byte_count=1_000), SavedTensor(node="fc", name="h", byte_count=4_000)),
)

REPORT = Report(
    tool_version="0.1.0",
    model=MODEL,
    gpu=GPU,
    settings=Settings(mode="inference", precision="fp32", runtime="eager", dims={"batch": 8, "seq": 512}),
    totals=Totals(
        latency_ms=(KERNEL_US + OVERHEAD_US) / 1e3,
        latency_low_ms=4.3,
        latency_high_ms=5.5,
        interval=0.8,
        interval_method="from the errors of the predictors on GPUs that they were not fitted on",
        kernel_ms=KERNEL_US / 1e3,
        overhead_ms=OVERHEAD_US / 1e3,
        throughput_per_s=8 / ((KERNEL_US + OVERHEAD_US) / 1e6),
        batch_size=8,
        flops=sum(row.flops for row in KERNELS),
        macs=2 * 4096 * 4096 * 1024,
        read_bytes=sum(row.read_bytes for row in KERNELS),
        write_bytes=sum(row.write_bytes for row in KERNELS),
        phases={"forward_ms": (KERNEL_US + OVERHEAD_US) / 1e3, "backward_ms": 0.0, "optimizer_ms": 0.0},
        memory=MemoryEstimate(
            low_bytes=470_000_000,
            peak_bytes=33_574_912 + 150_994_944 + 8_519_680 + 6_000_000 + 500_000_000,
            high_bytes=899_089_536,
            weight_bytes=33_574_912,
            activation_bytes=150_994_944,
            input_bytes=16_777_216,
            output_bytes=16_777_216,
            cache_bytes=0,
            cache_sharing="none",
            workspace_bytes=8_519_680,
            allocator_bytes=6_000_000,
            context_bytes=500_000_000,
            available_bytes=80 * 2**30,
            verdict="fits",
            peak_node="/h.0/mlp/act/Gelu",
            peak_tensors=(
                LiveTensor(name="/h.0/mlp/fc_out", kind="activation", byte_count=67_108_864, node="/h.0/mlp/fc/Add"),
                LiveTensor(name="/h.0/mlp/act_out", kind="activation", byte_count=50_331_648, node="/h.0/mlp/act/Gelu"),
                LiveTensor(name="x", kind="input", byte_count=16_777_216),
                LiveTensor(name="y", kind="output", byte_count=16_777_216, node="/h.0/Add"),
            ),
            assumptions=("an allocator that rounds",),
            timeline=(
                MemoryPoint(node="/h.0/mlp/fc/Add", live_bytes=83_886_080, peak_bytes=100_663_296),
                MemoryPoint(node="/h.0/mlp/act/Gelu", live_bytes=83_886_080, peak_bytes=150_994_944),
            ),
            largest_batch=LargestBatch(
                symbol="batch",
                size=3_520,
                peak_bytes=67_000_000_000,
                high_bytes=77_300_000_000,
                next_peak_bytes=67_100_000_000,
                next_high_bytes=77_400_000_000,
                limited_by="the GPU's memory",
            ),
        ),
        partial=True,
    ),
    coverage=Coverage(
        node_count=9,
        kernel_node_count=6,
        free_node_count=2,
        unsupported_node_count=1,
        latency_share={"learned": 4690.0 / KERNEL_US, "analytic": 30.25 / KERNEL_US, "unsupported": 0.0},
        free_reasons={"a view: no data moves": 2},
    ),
    kernels=KERNELS,
    unsupported=(UnsupportedNode(node="/Mystery", op_type="my.domain::Mystery", reason="no rule for this operator"),),
    fusion=FusionSummary(
        fused_kernel_count=2,
        fused_node_count=7,
        saved_kernel_count=5,
        saved_bytes=3_000_000,
        near_misses=(NearMiss(rule="linear", node="/head", reason="nothing is added to the product alone"),),
    ),
    host=HostSummary(host_ms=0.03),
    assumptions=("seq = 512, a default (--dim seq=N changes it)",),
    warnings=(
        Notice(code="partial", message="1 node is not supported: the totals are a lower bound"),
        Notice(code="stale_value_info", message="the declared shape is wrong", node="/h.0/attn/Softmax"),
    ),
)

HOSTILE = "\x1b[31m/evil\nname|with`ticks`\u202e[bold]markup[/bold]\r\x00"
"""A node's name that would break a line, a table, a terminal or Rich's markup."""


def hostile_report() -> Report:
    """The fixed report with names of the worst kind wherever the model's file decides them."""
    row = replace(KERNELS[0], nodes=(HOSTILE,), op_types=(HOSTILE,), dims={HOSTILE: HOSTILE})
    memory = REPORT.totals.memory
    assert memory.largest_batch is not None
    memory = replace(
        memory,
        peak_node=HOSTILE,
        peak_tensors=(LiveTensor(name=HOSTILE, kind="activation", byte_count=5, node=HOSTILE),),
        timeline=(MemoryPoint(node=HOSTILE, live_bytes=5, peak_bytes=5),),
        largest_batch=replace(memory.largest_batch, symbol=HOSTILE, next_high_bytes=None, limited_by=HOSTILE),
    )
    return replace(
        REPORT,
        totals=replace(REPORT.totals, memory=memory),
        model=replace(REPORT.model, path=HOSTILE, inputs=(ValueSummary(name=HOSTILE, dtype=None, shape=None),)),
        settings=replace(REPORT.settings, dims={HOSTILE: 8}),
        kernels=(row, *KERNELS[1:]),
        unsupported=(UnsupportedNode(node=HOSTILE, op_type=HOSTILE, reason=HOSTILE),),
        assumptions=(HOSTILE,),
        warnings=(Notice(code="odd", message=HOSTILE, node=HOSTILE),),
    )


def empty_report() -> Report:
    """A model of free nodes only: no kernel, no time."""
    return replace(
        REPORT,
        totals=replace(
            REPORT.totals,
            latency_ms=0.0,
            latency_low_ms=0.0,
            latency_high_ms=0.0,
            kernel_ms=0.0,
            overhead_ms=0.0,
            throughput_per_s=0.0,
            flops=0,
            macs=0,
            read_bytes=0,
            write_bytes=0,
            phases={"forward_ms": 0.0, "backward_ms": 0.0, "optimizer_ms": 0.0},
            partial=False,
        ),
        coverage=Coverage(
            node_count=2,
            kernel_node_count=0,
            free_node_count=2,
            unsupported_node_count=0,
            latency_share={"learned": 0.0, "analytic": 0.0, "unsupported": 0.0},
            free_reasons={"a view: no data moves": 2},
        ),
        kernels=(),
        unsupported=(),
        warnings=(),
    )
