"""Which library's kernels of fused attention run, and in which instructions.

``scaled_dot_product_attention`` of PyTorch 2.9 takes FlashAttention 2 where it may (16 bits, no mask, compute
capability 8.0 and later), else CUTLASS's fused multi-head attention: FP32, a mask, Volta and Turing. Its order is
flash, memory-efficient, formula, cuDNN, on Hopper and Blackwell as well: what torch 2.9.1 launches on stand-ins for
CUDA's libraries for compute capabilities 7.0 to 12.0 (``benchmarks/evidence/attention_kernels.md``). Neither it nor
ONNX Runtime has FlashAttention 3 or 4, so that on Hopper and data-centre Blackwell they multiply by mma instructions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.gpu.generation import instructions
from neusight_onnx.kernels import Attention
from neusight_onnx.laws.bandwidth import capability
from neusight_onnx.laws.base import Columns

FLASH2, MEMORY_EFFICIENT, NEWEST = "flash2", "memory_efficient", ""
"""Kernels of a library: FlashAttention 2 by mma, CUTLASS's, or those that are the fastest on the GPU by any library."""

FLASH2_CAPABILITY = 8.0
WIDEST_FLASH2_HEAD = 256
"""What FlashAttention 2 takes (ATen's ``check_flash_attention_hardware_support``, ``check_head_dim_size_flash``)."""

OTHER_KERNELS_LOG_SD = 0.3
"""Doubt (log) where other kernels run than were measured: FlashAttention 2 needs Ampere (its README), Volta and Turing
have CUTLASS's memory-efficient attention, AMD's GPUs Composable Kernel's. A judgement."""

OTHER_PIPE_LOG_SD = 0.15
"""The same where FlashAttention 2 was measured on other GPUs' mma instructions only. A judgement."""


_FP32 = (DataType.FLOAT32, DataType.TFLOAT32)


def kernel_of(kernel: Attention, gpu: GpuSpec) -> str:
    """``FLASH2``, ``MEMORY_EFFICIENT`` or ``NEWEST``: what its library runs on the GPU.

    On Turing and Volta ONNX Runtime has kernels of TensorRT's, and 8 bits are nobody's of the two.
    """
    capability = gpu.compute_capability
    stored = kernel.kv_dtype or kernel.dtype
    if not kernel.library or capability is None or min(kernel.dtype.bits, stored.bits) < DataType.FLOAT16.bits:
        return NEWEST
    if kernel.dtype.bits > DataType.FLOAT16.bits:
        return MEMORY_EFFICIENT if kernel.dtype in _FP32 else NEWEST
    if "fp16" not in gpu.peak_flops_per_s:
        return NEWEST
    if capability < FLASH2_CAPABILITY:
        return MEMORY_EFFICIENT if kernel.library == "pytorch" else NEWEST
    if kernel.mask is not None or kernel.d != kernel.v or kernel.d > WIDEST_FLASH2_HEAD:
        return MEMORY_EFFICIENT
    return FLASH2 if instructions(gpu) != "mma" else NEWEST


def unit_of(cols: Columns, gpu: GpuSpec) -> str:
    """The instruction that the kernels are written in."""
    return "mma" if FLASH2 in cols or MEMORY_EFFICIENT in cols else instructions(gpu)


def has_narrow_keys(cols: Columns) -> NDArray[np.bool_]:
    """Whether keys are stored in fewer bits than queries."""
    found: NDArray[np.bool_] = cols["kv_bytes"] < cols["query_bytes"]
    return found


def is_prompt_in_8_bits(cols: Columns) -> NDArray[np.bool_]:
    """Whether queries are in 8 bits with no keys before them, which was measured with TensorRT-LLM's kernels of
    prompts: they don't pack."""
    found: NDArray[np.bool_] = (cols["query_bytes"] < 2.0) & (cols["t"] <= cols["s"])
    return found


def is_flash3_in_fp8(cols: Columns, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Whether FlashAttention 3 multiplies in FP8."""
    found: NDArray[np.bool_] = (cols["kv_bytes"] < 2.0) & ~is_prompt_in_8_bits(cols) & (instructions(gpu) == "wgmma")
    return found


def is_mma_in_fp8(cols: Columns, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Whether TensorRT-LLM's kernels of prompts in FP8 run on mma, which need compute capability 8.9."""
    prompt = (cols["query_bytes"] < 2.0) & (is_prompt_in_8_bits(cols) | (cols["s"] > 1))
    found: NDArray[np.bool_] = prompt & (instructions(gpu) == "mma") & (capability(gpu) >= 8.9)
    return found


def doubt_log_sd(cols: Columns, gpu: GpuSpec) -> float:
    """Standard deviation (log) that no left-out GPU shows."""
    if MEMORY_EFFICIENT in cols:
        return OTHER_KERNELS_LOG_SD
    if FLASH2 in cols:
        return OTHER_PIPE_LOG_SD
    return OTHER_KERNELS_LOG_SD if gpu.compute_capability is None or gpu.compute_capability < 8.0 else 0.0
