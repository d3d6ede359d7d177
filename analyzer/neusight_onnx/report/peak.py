"""The peak rate that a model's work is measured by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from neusight_onnx.report.model import KernelRow, Report
from neusight_onnx.report.quantities import percent
from neusight_onnx.runtime import get_runtime

_PIPES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "tf32": "tf32",
    "int8": "int8",
    "float8e4m3fn": "fp8",
    "float4e2m1": "fp4",
}


def peaks_of(report: Report) -> dict[str, float]:
    """The GPU's dense peaks by pipe; "fp16_accumulate" where the runtime sums FP16 in FP16 and that is faster there."""
    peaks = dict(report.gpu.peak_flops_per_s)
    matrix = report.gpu.fp32_matrix_flops_per_s
    peaks |= {} if matrix is None else {"fp32_matrix": matrix}
    summed = report.gpu.fp16_accumulate_flops_per_s or 0.0
    if get_runtime(report.settings.runtime).sums_fp16 and summed > peaks.get("fp16", summed):
        return {**peaks, "fp16_accumulate": summed}
    peaks.pop("fp16_accumulate", None)
    return peaks


def _peak(report: Report) -> tuple[float, str] | None:
    """The peak that the model's FLOP/s are measured by, and its name; None where they are in several types.

    FP32's where 99 % of them are in it, that of another type where 95 % are: autocast leaves some in FP32.
    """
    flops: dict[str, float] = {}
    for row in report.kernels:
        flops[row.dtype] = flops.get(row.dtype, 0.0) + row.flops
    peaks = peaks_of(report)
    if report.totals.flops - flops.get("float32", 0.0) <= 0.01 * report.totals.flops:
        return max(peaks["fp32"], peaks.get("fp32_matrix", 0.0)), "FP32"  # AMD's matrix cores, where there are any
    dtype = max(flops, key=lambda name: flops[name])
    pipe = _PIPES.get(dtype, "")
    if flops[dtype] < 0.95 * report.totals.flops or pipe not in peaks:
        return None
    return max(peaks[pipe], peaks.get(f"{pipe}_accumulate", 0.0)), pipe.upper()


def share_of_peak(report: Report, flops_per_s: float) -> str:
    """Such as " (46.1 % of FP32 peak)", "" where there is no one peak."""
    peak = _peak(report)
    return f" ({percent(flops_per_s / peak[0])} of {peak[1]} peak)" if peak else ""


def beyond_peak(report: Report) -> Iterator[str]:
    """Why a run shows more FLOP/s than the GPU's peak, where it does; else why some of its kernels do."""
    peak = _peak(report)
    peaks = peaks_of(report)
    beyond = {row.id: rate for row in report.kernels if (rate := _share_of_own_peak(row, peaks)) > 1.0}
    share = 0.0
    if peak is not None and report.totals.latency_ms:
        share = report.totals.flops / report.totals.latency_ms * 1e3 / peak[0]
    if share <= 1.0 and not beyond:
        return
    rows = report.kernels if share > 1.0 else [row for row in report.kernels if row.id in beyond]
    reasons = []
    if report.gpu.halves_fp32_sums and any(_PIPES.get(row.dtype, "") in peaks for row in rows):
        reasons.append("the peak is at the boost clock that is stated, which GeForce cards pass if power allows")
    if any(row.id in beyond and row.kernel_class == "conv" and row.dtype == "float32" for row in rows):
        reasons.append("FLOPs are those of direct convolution, of which Winograd's algorithm needs a part")
    if not reasons:
        return
    if share > 1.0 and peak is not None:
        yield f"{percent(share)} of {peak[1]} peak: {'; '.join(reasons)}"
        return
    said = "kernel shows" if len(beyond) == 1 else "kernels show up to"
    yield f"{len(beyond):,} {said} {percent(max(beyond.values()))} of the peak of their format: {'; '.join(reasons)}"


def _share_of_own_peak(row: KernelRow, peaks: Mapping[str, float]) -> float:
    """A kernel's FLOP/s over the peak that is printed for its format; 0 for a format without one."""
    if row.dtype == "float32":
        peak = max(peaks["fp32"], peaks.get("fp32_matrix", 0.0))
    else:
        pipe = _PIPES.get(row.dtype, "")
        peak = max(peaks.get(pipe, 0.0), peaks.get(f"{pipe}_accumulate", 0.0))
    return row.flops / row.latency_us * 1e6 / peak if peak and row.latency_us else 0.0
