"""Which pipe multiplies a number format, its peak, and the share of it that large products reach."""

from __future__ import annotations

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.bandwidth import is_amd
from neusight_onnx.laws.elementwise import float64_flops_per_s, float64_matrix_flops_per_s

PIPE_FALLBACK: dict[DataType, tuple[str, ...]] = {
    DataType.TFLOAT32: ("tf32", "fp32"),
    DataType.FLOAT16: ("fp16", "fp32"),
    DataType.BFLOAT16: ("bf16", "fp32"),
    DataType.INT8: ("int8", "fp16", "fp32"),
    DataType.UINT8: ("int8", "fp16", "fp32"),
    DataType.INT4: ("int8", "fp16", "fp32"),
    DataType.UINT4: ("int8", "fp16", "fp32"),
    DataType.FLOAT8E4M3FN: ("fp8", "fp16", "fp32"),
    DataType.FLOAT8E4M3FNUZ: ("fp8", "fp16", "fp32"),
    DataType.FLOAT8E5M2: ("fp8", "fp16", "fp32"),
    DataType.FLOAT8E5M2FNUZ: ("fp8", "fp16", "fp32"),
    DataType.FLOAT4E2M1: ("fp4", "fp8", "fp16", "fp32"),
}
"""Matrix pipe of a dtype, and the next wider ones where the GPU lacks it (operands are converted on the way in)."""

MATRIX_EFFICIENCY = {"nvidia": 0.75, "amd": 0.52}
"""Large dense products on matrix cores: .78-.87 of peak are the best ones on A100, H100, B200; .51-.60 on MI300X and
MI325X (maxima of bf16 products, stas00/ml-engineering). A typical shape stays a little below the best."""
VECTOR_EFFICIENCY = 0.80
"""Large FP32 products on vector lanes: .75-.90 of peak on A100, V100, P100 while the clock holds."""


def pipe_flops_per_s(gpu: GpuSpec, dtype: DataType, accumulator: DataType | None = None) -> tuple[float, float]:
    """(peak FLOP/s, achievable share) of the pipe that multiplies matrices of ``dtype`` and sums in ``accumulator``.

    FP32 means IEEE FP32: matrix cores where AMD has them, vector lanes on NVIDIA (TF32 is a precision of its own). FP64
    has matrix units where they are quicker than lanes.
    """
    if dtype is DataType.FLOAT64:
        return float64_matrix_flops_per_s(gpu), VECTOR_EFFICIENCY
    matrix = MATRIX_EFFICIENCY["amd" if is_amd(gpu) else "nvidia"]
    if dtype is DataType.FLOAT32 and gpu.fp32_matrix_flops_per_s is not None:
        return gpu.fp32_matrix_flops_per_s, matrix
    if dtype is DataType.FLOAT16 and accumulator is dtype and gpu.fp16_accumulate_flops_per_s is not None:
        return gpu.fp16_accumulate_flops_per_s, matrix
    for pipe in PIPE_FALLBACK.get(dtype, ("fp32",)):
        if pipe in gpu.peak_flops_per_s:
            return gpu.peak_flops_per_s[pipe], VECTOR_EFFICIENCY if pipe == "fp32" else matrix
    return gpu.peak_flops_per_s["fp32"], VECTOR_EFFICIENCY


def vector_flops_per_s(gpu: GpuSpec, dtype: DataType) -> float:
    """Peak of the vector lanes: FP32's for every type but FP64."""
    return float64_flops_per_s(gpu) if dtype is DataType.FLOAT64 else gpu.peak_flops_per_s["fp32"]
