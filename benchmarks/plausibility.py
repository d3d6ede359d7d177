"""Whether predictions make sense on GPUs that nobody measured: ``python benchmarks/plausibility.py [--limit N]``.

No measurement is needed: physics says what must hold. Prints the rates of large products, attention and convolutions
on many GPUs of ``specs/`` beside their peaks, and then what contradicts:

- *ceiling*: a share of a pipe's peak that libraries hardly reach (GeForce cards do, whose clocks pass the stated ones);
- *better GPU*: at least as good in every figure, and slower;
- *figure raised*: one figure of a GPU that nobody measured is raised by a quarter, and a kernel gets slower;
- *jump*: the same by a hundredth, and the time changes by far more than that;
- *more work*: twice as many rows, columns, steps of k, images or keys, and quicker;
- *fewer bits*: a large product on a unit for fewer bits, and slower.

What has a reason is counted by that and not among what contradicts (``explained``): a rule of a library's that splits
the keys of attention or multiplies few rows on lanes, rows of a normalization that are in flight together and
outgrow the L2, and a jump where the SM with the most tiles has one fewer (170 SMs take 512 in four rounds, 172 in
three).

Each of them is a table by kernel class and format: how many cases, the worst of them. Deterministic; a minute.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from math import ceil

from neusight_onnx.data_files import data_folder
from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec, load_gpu
from neusight_onnx.gpu.power import idle_w
from neusight_onnx.kernels import (
    Attention,
    Conv,
    Elementwise,
    GatherScatter,
    Gemm,
    Kernel,
    Movement,
    Normalization,
    Reduction,
    Softmax,
    TensorSpec,
)
from neusight_onnx.laws.matrix_units import pipe_of, serves
from neusight_onnx.laws.normalization import resident_rows
from neusight_onnx.laws.tensor_gemm.int8_lanes import VECTOR_ROWS
from neusight_onnx.predictor import Prediction, Predictors, load_predictors, predict

FP32, TF32, FP16, BF16 = DataType.FLOAT32, DataType.TFLOAT32, DataType.FLOAT16, DataType.BFLOAT16
INT8, FP8, FP4, INT4 = DataType.INT8, DataType.FLOAT8E4M3FN, DataType.FLOAT4E2M1, DataType.INT4


@dataclass(frozen=True, kw_only=True)
class Format:
    """How a linear layer is stored and multiplied; ``inputs``: what is handed in where that is wider."""

    name: str
    multiplied: DataType
    inputs: DataType | None = None
    weights: DataType | None = None
    outputs: DataType | None = None

    def product(self, m: int, n: int, k: int, batch: int = 1) -> Gemm:
        return Gemm(
            batch=batch,
            m=m,
            n=n,
            k=k,
            dtype=self.multiplied,
            a_dtype=self.inputs,
            b_dtype=self.weights,
            output_dtype=self.outputs,
            b_is_weight=batch == 1,
            transpose_b=batch == 1,
        )


FORMATS = (
    Format(name="fp32", multiplied=FP32),
    Format(name="tf32", multiplied=TF32),
    Format(name="fp16", multiplied=FP16),
    Format(name="bf16", multiplied=BF16),
    Format(name="fp8", multiplied=FP8, inputs=FP16, outputs=FP16),
    Format(name="int8", multiplied=INT8, outputs=FP16),
    Format(name="int8w", multiplied=FP16, weights=INT8),
    Format(name="int4w", multiplied=FP16, weights=INT4),
    Format(name="fp4", multiplied=FP4, inputs=BF16, outputs=BF16),
)
LINEAR = ((4096, 4096), (28672, 8192), (8192, 28672), (1024, 1024))
"""Columns and depth of linear layers: of 8 and 70 billion parameters, of BERT-large."""
ROWS = tuple(2**power for power in range(15))
COLUMNS = tuple(2**power for power in range(9, 16))
DEPTHS = tuple(2**power for power in range(9, 16))
BATCHES = tuple(2**power for power in range(9))


def conv(n: int, c: int, k: int, side: int, window: int, stride: int, dtype: DataType, groups: int = 1) -> Conv:
    out = (side - 1) // stride + 1
    return Conv(
        n=n,
        c=c,
        k=k,
        groups=groups,
        spatial=(side, side),
        out=(out, out),
        filter=(window, window),
        strides=(stride, stride),
        dilations=(1, 1),
        dtype=dtype,
        channels_last=dtype is not FP32,
    )


CONVOLUTIONS: Mapping[str, tuple[int, int, int, int, int, int]] = {
    # channels in and out, side, window, stride, groups: of ResNet-50 and ConvNeXt
    "stem": (3, 64, 224, 7, 2, 1),
    "3x3x64": (64, 64, 56, 3, 1, 1),
    "1x1x256": (64, 256, 56, 1, 1, 1),
    "3x3x256": (256, 256, 14, 3, 1, 1),
    "1x1x2048": (512, 2048, 7, 1, 1, 1),
    "depthwise7": (192, 192, 28, 7, 1, 192),
}


def attention(b: int, s: int, t: int, dtype: DataType = FP16, kv: DataType | None = None) -> Attention:
    return Attention(b=b, h=32, g=8, s=s, t=t, d=128, v=128, causal=s > 1, dtype=dtype, kv_dtype=kv)


def vector(kind: str, rows: int, cols: int, dtype: DataType) -> Kernel:
    tensor = TensorSpec(dtype=dtype, shape=(rows, cols))
    size = rows * cols * dtype.bits // 8
    match kind:
        case "add":
            return Elementwise(operations=("add",), inputs=(tensor, tensor), output=tensor)
        case "gelu":
            return Elementwise(operations=("gelu",), inputs=(tensor,), output=tensor)
        case "softmax":
            return Softmax(rows=rows, cols=cols, dtype=dtype)
        case "sum":
            output = TensorSpec(dtype=dtype, shape=(rows,))
            return Reduction(operation="sum", outputs=rows, reduced=cols, dtype=dtype, output=output)
        case "transpose":
            return Movement(
                operation=kind, dtype=dtype, shape=(rows, cols), permutation=(1, 0), read=size, written=size
            )
        case "layer" | "rms":
            count = cols * (2 if kind == "layer" else 1)
            return Normalization(method=kind, rows=rows, cols=cols, parameter_count=count, dtype=dtype)
        case _:
            return GatherScatter(
                operation=kind,
                moved=rows * cols,
                run=cols,
                dtype=dtype,
                index_count=rows,
                index_dtype=DataType.INT64,
            )


VECTORS = ("add", "gelu", "softmax", "sum", "transpose", "layer", "rms")

Series = Mapping[str, tuple[str, tuple[Kernel, ...]]]
"""Name -> its class with the format, kernels each of which does twice the work of the one before."""


def series() -> Series:
    found: dict[str, tuple[str, tuple[Kernel, ...]]] = {}

    def add(family: str, name: str, kernels: Iterable[Kernel]) -> None:
        found[f"{family} {name}"] = family, tuple(kernels)

    for form in FORMATS:
        family = f"gemm {form.name}"
        for n, k in LINEAR:
            add(family, f"m x {n} x {k}", (form.product(m, n, k) for m in ROWS))
        for m in (1, 64, 2048):
            add(family, f"{m} x n x 4096", (form.product(m, n, 4096) for n in COLUMNS))
            add(family, f"{m} x 4096 x k", (form.product(m, 4096, k) for k in DEPTHS))
        if form.weights is None and form.inputs is None:
            add(family, "b of 128 x 128 x 64", (form.product(128, 128, 64, b) for b in BATCHES[1:]))
    for dtype in (FP32, FP16, INT8):
        for name, (c, k, side, window, stride, groups) in CONVOLUTIONS.items():
            kernels = (conv(n, c, k, side, window, stride, dtype, groups) for n in BATCHES)
            add(f"conv {dtype.label}", f"n of {name}", kernels)
    caches = (("16 bit", FP16, None), ("kv8", FP16, FP8), ("fp8", FP8, FP8))
    for label, dtype, kv in caches:
        family = f"attention {label}"
        add(family, "prefill, keys", (attention(1, t, t, dtype, kv) for t in ROWS[7:]))
        add(family, "prefill 512, batch", (attention(b, 512, 512, dtype, kv) for b in BATCHES))
        for b in (1, 64):
            add(family, f"decode {b}, keys", (attention(b, 1, t, dtype, kv) for t in ROWS[7:]))
        add(family, "decode 2048, batch", (attention(b, 1, 2048, dtype, kv) for b in BATCHES))
    for kind in VECTORS:
        for dtype in (FP32, FP16):
            for cols in (768, 4096):
                add(f"{kind} {dtype.label}", f"rows of {cols}", (vector(kind, rows, cols, dtype) for rows in ROWS[3:]))
    return found


def runs(kernel: Kernel, gpu: GpuSpec) -> bool:
    """Whether the GPU has units for the kernel's format; AMD's products with narrow weights and others' are alike."""
    if not isinstance(kernel, Gemm | Conv | Attention) or kernel.dtype is FP32:
        return True
    if isinstance(kernel, Attention) and kernel.kv_dtype is FP8 and "fp8" not in gpu.peak_flops_per_s:
        return False
    return serves(gpu, kernel.dtype)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A prediction that contradicts: what kind, of which class, how far (1: not at all), in words."""

    kind: str
    family: str
    by: float
    text: str


class Times:
    """Predictions of all kernels on GPUs, made once for each."""

    def __init__(self, kernels: Sequence[Kernel], predictors: Predictors) -> None:
        self._kernels, self._predictors = kernels, predictors
        self._found: dict[str, dict[Kernel, Prediction]] = {}

    def of(self, gpu: GpuSpec) -> Mapping[Kernel, Prediction]:
        if gpu.name not in self._found:
            self._found[gpu.name] = predicted(self._kernels, gpu, self._predictors)
        return self._found[gpu.name]


def predicted(kernels: Sequence[Kernel], gpu: GpuSpec, predictors: Predictors) -> dict[Kernel, Prediction]:
    known = [kernel for kernel in dict.fromkeys(kernels) if runs(kernel, gpu)]
    return dict(zip(known, predict(known, gpu, predictors=predictors), strict=True))


def laws_alone(predictors: Predictors) -> Predictors:
    """Predictors to which no GPU is near any that was measured, so that their trees say nothing."""
    return {key: replace(predictor, gpu_vectors=()) for key, predictor in predictors.items()}


# --- GPUs

FIGURES = ("sm_count", "clock_hz", "memory_bytes_per_s", "l2_bytes", "power_w")
"""Raised alone; with memory goes the power that it takes."""


def raised(gpu: GpuSpec, figure: str, factor: float) -> GpuSpec:
    """The GPU with one figure better by ``factor``, and what follows from it: peaks and the L2's rate by units x clock,
    power that faster memory takes before any arithmetic."""
    name = f"{gpu.name} {figure} x{factor:g}"
    match figure:
        case "sm_count" | "clock_hz":
            found = replace(gpu, sm_count=round(gpu.sm_count * factor)) if figure == "sm_count" else gpu
            clock_hz = gpu.clock_hz * (factor if figure == "clock_hz" else 1.0)
            actual = found.sm_count / gpu.sm_count * clock_hz / gpu.clock_hz
            return replace(
                found,
                name=name,
                clock_hz=clock_hz,
                peak_flops_per_s={pipe: peak * actual for pipe, peak in gpu.peak_flops_per_s.items()},
                l2_bytes_per_s=gpu.l2_bytes_per_s * actual if gpu.l2_bytes_per_s else None,
            )
        case "memory_bytes_per_s":
            faster = gpu.memory_bytes_per_s * factor
            return replace(gpu, name=name, memory_bytes_per_s=faster, idle_power_w=idle_w(gpu))
        case "l2_bytes":
            return replace(gpu, name=name, l2_bytes=round(gpu.l2_bytes * factor))
        case _:
            return replace(gpu, name=name, power_w=gpu.power_w * factor)


def stated(gpu: GpuSpec) -> dict[str, float]:
    """What a GPU's file states, in total and for each SM: with both, no way to share out work is slower."""
    figures = {
        **gpu.peak_flops_per_s,
        "memory": gpu.memory_bytes_per_s,
        "l2": gpu.l2_bytes,
        "threads": gpu.sm_count * gpu.max_threads_per_sm,
    }
    each = {f"{name} of an SM": value / gpu.sm_count for name, value in figures.items()}
    return {**figures, **each, "power": gpu.power_w, "sms": gpu.sm_count, "clock": gpu.clock_hz}


def is_better(gpu: GpuSpec, other: GpuSpec) -> bool:
    """Of one instruction set, at least as good in every figure, to a thousandth, and better in one."""
    if (gpu.vendor, gpu.compute_capability, gpu.architecture) != (
        other.vendor,
        other.compute_capability,
        other.architecture,
    ):
        return False
    if gpu.memory_type[:4] != other.memory_type[:4]:
        return False
    first, second = stated(gpu), stated(other)
    if first.keys() != second.keys():
        return False
    shares = [first[name] / second[name] for name in first]
    return min(shares) >= 0.999 and max(shares) > 1.001


# --- what contradicts

RAISED, NUDGED = 1.25, 1.01
SLOWER, QUICKER = 0.02, 0.03
"""From which share on a case counts: what rounding of tiles makes is no finding."""
LEAST_US = 0.5
MOST_OF_PEAK = 0.95


def pipe_share(kernel: Kernel, found: Prediction, gpu: GpuSpec) -> float:
    """FLOP/s over the dense peak of the kernel's format at the stated boost clock."""
    if not isinstance(kernel, Gemm | Conv | Attention) or (isinstance(kernel, Conv) and kernel.dtype is FP32):
        return 0.0  # FP32's convolutions by Winograd take fewer FLOPs
    peaks = gpu.peak_flops_per_s
    peak = peaks.get("fp32_matrix", peaks["fp32"]) if kernel.dtype is FP32 else peaks[pipe_of(kernel.dtype)]
    if isinstance(kernel, Attention) and kernel.kv_dtype is FP8:
        peak = peaks["fp8"]  # some kernels convert the queries
    return 2.0 * kernel.macs / (found.latency_us * 1e-6) / peak


def ceilings(table: Series, gpu: GpuSpec, times: Mapping[Kernel, Prediction]) -> Iterator[Finding]:
    for name, (family, kernels) in table.items():
        for kernel in kernels:
            if kernel in times:
                share = pipe_share(kernel, times[kernel], gpu)
                if share > MOST_OF_PEAK:
                    yield Finding(
                        kind="ceiling", family=family, by=share, text=f"{gpu.name}: {name}: {size_of(kernel)}"
                    )


def size_of(kernel: Kernel) -> str:
    match kernel:
        case Gemm():
            return f"{kernel.m} x {kernel.n} x {kernel.k}" + (f", {kernel.batch} of them" if kernel.batch > 1 else "")
        case Conv():
            return f"{kernel.n} images"
        case Attention():
            return f"{kernel.b} x {kernel.s} queries, {kernel.t} keys"
        case Softmax() | Normalization():
            return f"{kernel.rows} rows"
        case Elementwise():
            return f"{kernel.output.shape[0]} rows"
        case Movement():
            return f"{kernel.shape[0]} rows"
        case Reduction():
            return f"{kernel.outputs} rows"
        case _:
            return str(kernel)


ROWS_IN_FLIGHT = "rows in flight outgrow the L2"
SPLIT_BY_RULE = "a library's rule splits keys otherwise"
LANES_BY_RULE = "a library's rule multiplies few rows on lanes"
A_ROUND_LESS = "the busiest SM has fewer tiles"
HELD = 0.25
"""Share of the L2 from which on rows in flight lose lines: the law's fitted half is at .6, with a slope."""


def on_lanes_by_rule(smaller: Kernel, larger: Kernel, gpu: GpuSpec) -> bool:
    """Whether a product in INT8 has so few rows that TensorRT-LLM multiplies it on lanes, however long that takes, and
    the larger one has more: 4 rows of 65,536 x 128 take an A100 65 us and an L40S 40, 8 rows 8.5 and 14 (measured)."""
    if not isinstance(smaller, Gemm) or not isinstance(larger, Gemm) or larger.dtype is not INT8:
        return False
    return gpu.vendor == "NVIDIA" and smaller.m <= VECTOR_ROWS < larger.m


def explained(kernel: Kernel, before: Prediction, after: Prediction, gpu: GpuSpec | None = None) -> str | None:
    """Why a kernel may be slower with more SMs or quicker with more work; None if nothing says so.

    A row of a normalization is read twice by one block, and each further SM has further rows in flight in the same L2:
    measured kernels read them from DRAM again. FlashAttention and FlashInfer split keys by counting blocks and SMs
    (num_splits_heuristic, DecodePlan), not by what the parts and the kernel that adds them cost. ``gpu``: the one with
    more SMs, where that is what differs.
    """
    if isinstance(kernel, Attention) and before.tile.get("split_k") != after.tile.get("split_k"):
        return SPLIT_BY_RULE
    if isinstance(kernel, Normalization) and gpu is not None:
        in_flight = min(kernel.rows, resident_rows(gpu)) * kernel.cols * kernel.dtype.bits / 8
        return ROWS_IN_FLIGHT if in_flight > HELD * gpu.l2_bytes else None
    return None


def growing(table: Series, gpu: GpuSpec, times: Mapping[Kernel, Prediction]) -> Iterator[Finding]:
    for name, (family, kernels) in table.items():
        for smaller, larger in pairwise(kernel for kernel in kernels if kernel in times):
            before, after = times[smaller].latency_us, times[larger].latency_us
            if before > after * (1 + QUICKER) and before - after > LEAST_US:
                text = f"{gpu.name}: {name}: {size_of(smaller)} {before:.1f} us, {size_of(larger)} {after:.1f} us"
                by_rule = LANES_BY_RULE if on_lanes_by_rule(smaller, larger, gpu) else None
                why = by_rule or explained(larger, times[smaller], times[larger])
                yield Finding(kind=why or "more work", family=family, by=before / after, text=text)


def compared(
    kind: str,
    table: Series,
    label: str,
    slow: Mapping[Kernel, Prediction],
    quick: Mapping[Kernel, Prediction],
    least: float,
    more_sms: GpuSpec | None = None,
) -> Iterator[Finding]:
    """Kernels that take longer on ``quick`` than on ``slow``, by more than ``least``; ``more_sms``: the GPU of
    ``quick`` where it has more SMs."""
    for name, (family, kernels) in table.items():
        for kernel in kernels:
            if kernel in slow and kernel in quick:
                before, after = slow[kernel].latency_us, quick[kernel].latency_us
                if after > before * (1 + least) and after - before > LEAST_US * least / SLOWER / 5:
                    text = f"{label}: {name}: {size_of(kernel)} {before:.1f} us, {after:.1f} us"
                    why = explained(kernel, slow[kernel], quick[kernel], more_sms) if more_sms else None
                    yield Finding(kind=why or kind, family=family, by=after / before, text=text)


JUMP = 0.04


def busiest_share(found: Prediction, gpu: GpuSpec) -> float:
    """Elements of the output, times their part of the reduction, that the SM with the most tiles computes; 0 if the
    kernel has none."""
    tile = found.tile
    if "n" not in tile or "m" not in tile:
        return 0.0
    return ceil(found.tile_count / gpu.sm_count) * tile["n"] * tile["m"] / tile.get("split_k", 1)


def jumps(
    table: Series,
    label: str,
    before: Mapping[Kernel, Prediction],
    after: Mapping[Kernel, Prediction],
    gpus: tuple[GpuSpec, GpuSpec],
) -> Iterator[Finding]:
    """Kernels whose time changes by much more than the hundredth that a figure changed. ``gpus``: those of both."""
    for name, (family, kernels) in table.items():
        for kernel in kernels:
            if kernel in before and kernel in after:
                first, second = before[kernel].latency_us, after[kernel].latency_us
                ratio = max(first / second, second / first)
                if ratio > 1 + JUMP and abs(first - second) > LEAST_US:
                    text = f"{label}: {name}: {size_of(kernel)} {first:.1f} us, {second:.1f} us"
                    shares = [
                        busiest_share(found[kernel], gpu) for found, gpu in zip((before, after), gpus, strict=True)
                    ]
                    is_round = min(shares) > 0.0 and 1 + JUMP < ratio <= shares[0] / shares[1] * (1 + JUMP)
                    kind = A_ROUND_LESS if is_round else "jump"
                    yield Finding(kind=kind, family=family, by=ratio, text=text)


NARROWER = (("tf32", "fp32"), ("bf16", "tf32"), ("fp16", "tf32"), ("fp8", "fp16"), ("int8", "fp16"), ("fp4", "fp8"))
LARGE = ((4096, 4096, 4096), (4096, 28672, 8192), (16384, 8192, 28672))
STREAMED = ((1, 28672, 8192), (16, 28672, 8192))
"""Products of few rows wait for their weights: of fewer bytes for a shorter time."""
STREAMS = (("int8w", "fp16"), ("int4w", "int8w"), ("fp8", "fp16"), ("int8", "fp16"), ("fp4", "fp8"))


def narrower(gpu: GpuSpec, times: Mapping[Kernel, Prediction]) -> Iterator[Finding]:
    by_name = {form.name: form for form in FORMATS}
    for pairs, sizes in ((NARROWER, LARGE), (STREAMS, STREAMED)):
        for narrow, wide in pairs:
            for size in sizes:
                few, many = by_name[narrow].product(*size), by_name[wide].product(*size)
                if few in times and many in times:
                    ratio = times[few].latency_us / times[many].latency_us
                    if ratio > 1 + QUICKER:
                        m, n, k = size
                        text = f"{gpu.name}: {m} x {n} x {k}: {wide} {times[many].latency_us:.0f} us, {narrow} "
                        text += f"{times[few].latency_us:.0f} us"
                        yield Finding(kind="fewer bits", family=f"gemm {narrow}", by=ratio, text=text)


# --- rates

RATED: Mapping[str, Callable[[], Kernel]] = {
    **{form.name: (lambda form=form: form.product(8192, 8192, 8192)) for form in FORMATS if form.weights is None},
    "int4w": lambda: FORMATS[7].product(2048, 8192, 8192),
    "prefill": lambda: attention(8, 4096, 4096),
    "conv3x3": lambda: conv(256, 256, 256, 14, 3, 1, FP16),
}


STREAMING: Mapping[str, Callable[[], Kernel]] = {
    "m=1 fp16": lambda: FORMATS[2].product(1, 28672, 8192),
    "m=1 int4w": lambda: FORMATS[7].product(1, 28672, 8192),
    "decode": lambda: attention(64, 1, 4096),
    "add": lambda: vector("add", 65536, 4096, FP16),
    "rms": lambda: vector("rms", 16384, 8192, FP16),
}


def rates(gpus: Sequence[GpuSpec], predictors: Predictors) -> None:
    compute = {name: make() for name, make in RATED.items()}
    memory = {name: make() for name, make in STREAMING.items()}
    print(
        "Rates: TFLOP/s (share of the dense peak, %) of products 8192^3, prefill, 3x3 convolutions; bytes a second of"
    )
    print("kernels that stream over DRAM's, %; behind ~ the half width of the 80 % interval of the bf16 product, %.")
    width = max(len(gpu.name) for gpu in gpus)
    print(" " * width, *(f"{name:>10}" for name in compute), *(f"{name:>9}" for name in memory))
    for gpu in gpus:
        times = predicted([*compute.values(), *memory.values()], gpu, predictors)
        cells = []
        for kernel in compute.values():
            if kernel in times:
                rate = 2.0 * kernel.macs / times[kernel].latency_us / 1e6
                cells.append(f"{rate:6.0f} {100 * pipe_share(kernel, times[kernel], gpu):3.0f}")
            else:
                cells.append("-")
        shares = []
        for kernel in memory.values():
            if kernel in times:
                moved = (kernel.read_bytes + kernel.write_bytes) / (times[kernel].latency_us * 1e-6)
                shares.append(f"{100 * moved / gpu.memory_bytes_per_s:.0f}")
            else:
                shares.append("-")
        half = times.get(compute["bf16"])
        spread = f"  ~{100 * (half.high_us / half.low_us) ** 0.5 - 100:.0f}" if half else ""
        print(f"{gpu.name:{width}}", *(f"{cell:>10}" for cell in cells), *(f"{cell:>9}" for cell in shares), spread)


# fmt: off
GPUS = (
    "v100-sxm2-32gb", "t4", "titan-rtx", "a100-sxm-80gb", "a100-pcie-80gb", "a100-pcie-40gb", "a30", "a10", "a40",
    "rtx-a6000", "rtx-3090", "rtx-3060", "l4", "l20", "l40", "l40s", "rtx-6000-ada", "rtx-4090", "rtx-4080",
    "rtx-4060", "h100-sxm", "h100-pcie", "h100-nvl", "h200-sxm", "h200-nvl", "h800-sxm", "h20", "gh200", "b200-sxm",
    "b300-sxm", "gb200", "rtx-5090", "rtx-5080", "rtx-pro-6000-server", "rtx-pro-6000-workstation",
    "rtx-pro-6000-max-q", "jetson-agx-orin-64gb", "mi100", "mi210", "mi250", "mi300x", "mi308x", "mi325x", "mi355x",
)
# fmt: on
"""Of every generation with matrix units those that people have, measured or not."""


def findings(gpus: Sequence[GpuSpec], table: Series, predictors: Predictors) -> Iterator[Finding]:
    kernels = list(dict.fromkeys(kernel for _, members in table.values() for kernel in members))
    sized = [form.product(*size) for form in FORMATS for size in (*LARGE, *STREAMED)]
    times = Times([*kernels, *sized], predictors)
    for gpu in gpus:
        found = times.of(gpu)
        yield from ceilings(table, gpu, found)
        yield from growing(table, gpu, found)
        yield from narrower(gpu, found)
        for figure in FIGURES:
            for factor in (NUDGED, RAISED):
                twin = raised(gpu, figure, factor)
                after = predicted(kernels, twin, predictors)
                label = f"{gpu.name}, {figure} x {factor:g}"
                if factor == NUDGED:
                    yield from jumps(table, label, found, after, (gpu, twin))
                else:
                    more = twin if figure == "sm_count" else None
                    yield from compared(f"{figure} raised", table, label, found, after, SLOWER, more)
    for better, other in permutations(gpus, 2):
        if is_better(better, other):
            label = f"{better.name} after {other.name}"
            yield from compared("better GPU", table, label, times.of(other), times.of(better), SLOWER)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=2, help="how many cases of each kind and class are shown")
    parser.add_argument(
        "--gpu", action="append", help="a GPU or a file of one, instead of those listed; may be repeated"
    )
    parser.add_argument("--only", help="only classes that begin so, such as 'gemm fp8'")
    parser.add_argument("--laws", action="store_true", help="the laws alone, as on GPUs that are near no measured one")
    options = parser.parse_args(arguments)
    gpus = [load_gpu(name) for name in options.gpu or GPUS]
    shipped = load_predictors(data_folder("predictors"))
    predictors = laws_alone(shipped) if options.laws else shipped
    rates(gpus, predictors)
    table = {name: found for name, found in series().items() if found[0].startswith(options.only or "")}
    grouped: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in findings(gpus, table, predictors):
        grouped[finding.kind, finding.family].append(finding)
    print("\nWhat contradicts: kinds, with the number of cases and the median and largest of how far")
    reasons = (A_ROUND_LESS, ROWS_IN_FLIGHT, SPLIT_BY_RULE, LANES_BY_RULE)
    for kind in sorted({kind for kind, _ in grouped}, key=lambda kind: (kind in reasons, kind)):
        if kind in reasons:
            print("what has a reason:", end=" ")
        ratios = sorted(case.by for (other, _), cases in grouped.items() if other == kind for case in cases)
        middle = ratios[len(ratios) // 2]
        print(f"{kind:26} {len(ratios):5} cases, {100 * middle - 100:+.1f} %, {100 * ratios[-1] - 100:+.1f} %")
    print()
    for kind, family in sorted(grouped):
        cases = sorted(grouped[kind, family], key=lambda case: -case.by)
        print(f"{kind:26} {family:18} {len(cases):5} cases, the worst {100 * cases[0].by - 100:+.1f} %")
        for case in cases[: options.limit]:
            print(f"    {100 * case.by - 100:+6.1f} %  {case.text}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
