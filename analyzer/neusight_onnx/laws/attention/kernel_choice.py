"""Which library's kernels of fused attention run, and in which instructions.

``scaled_dot_product_attention`` of PyTorch 2.9 takes FlashAttention 2 where it may (16 bits, no mask, compute
capability 8.0 and later), else CUTLASS's fused multi-head attention: FP32, a mask, Volta and Turing. Its order is
flash, memory-efficient, formula, cuDNN, on Hopper and Blackwell as well: what torch 2.9.1 launches on stand-ins for
CUDA's libraries for compute capabilities 7.0 to 12.0 (``benchmarks/evidence/attention_kernels.md``). Neither it nor
ONNX Runtime has FlashAttention 3 or 4, so that on Hopper and data-centre Blackwell they multiply by mma instructions.
ONNX Runtime's operators of com.microsoft ask cuDNN there, and decode grouped queries by XQA (launched alike).
"""

from __future__ import annotations

from math import ceil

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.gpu.generation import instructions
from neusight_onnx.kernels import BY_CUDNN, BY_XQA, CUDNN_ATTENTION_CAPABILITY, IN_PAGES, Attention
from neusight_onnx.laws.bandwidth import capability, is_amd
from neusight_onnx.laws.base import Column, Columns

FLASH2, MEMORY_EFFICIENT, XQA, CUDNN, NEWEST = "flash2", "memory_efficient", "xqa", "cudnn", ""
"""Kernels of a library: FlashAttention 2 by mma, CUTLASS's, XQA's by mma, cuDNN's (taken to be as fast as the newest),
or those that are the fastest on the GPU by any library, as they were measured."""


FLASH2_CAPABILITY = 8.0
WIDEST_FLASH2_HEAD = 256
"""What FlashAttention 2 takes (ATen's ``check_flash_attention_hardware_support``, ``check_head_dim_size_flash``)."""

OTHER_KERNELS_LOG_SD = 0.3
"""Doubt (log) where other kernels run than were measured: FlashAttention 2 needs Ampere (its README), Volta and Turing
have CUTLASS's memory-efficient attention, AMD's GPUs Composable Kernel's. A judgement."""

OTHER_PIPE_LOG_SD = 0.15
"""The same where FlashAttention 2 was measured on other GPUs' mma instructions only, and of XQA, whose tile and whose
warps' share of the keys are those of FlashInfer, which was. A judgement."""

UNKNOWN_PARTS_LOG_SD = 0.6
"""The same of few queries under ONNX Runtime on AMD's GPUs, of which it isn't known but remembered that their keys stay
whole: parts and tiles of 16 rows would be four to ten times as quick. A judgement."""


_FP32 = (DataType.FLOAT32, DataType.TFLOAT32)


def kernel_of(kernel: Attention, gpu: GpuSpec) -> str:
    """What its library runs on the GPU: ``FLASH2``, ``MEMORY_EFFICIENT``, ``XQA``, ``CUDNN`` or ``NEWEST``.

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
    if BY_XQA in kernel.variants:
        return XQA
    asks_cudnn = BY_CUDNN in kernel.variants and capability >= CUDNN_ATTENTION_CAPABILITY
    if asks_cudnn and kernel.d <= WIDEST_FLASH2_HEAD:
        return CUDNN
    if kernel.mask is not None or kernel.d != kernel.v or kernel.d > WIDEST_FLASH2_HEAD:
        return MEMORY_EFFICIENT
    return NEWEST if instructions(gpu) == "mma" and _is_as_measured(kernel, gpu) else FLASH2


FEW_ROWS = 64
"""Queries up to which a step of decoding is one tile of FlashAttention 2 where its keys are cut into parts."""

FULL = 0.8
"""Share of the places on a GPU from which on FlashAttention 2 cuts no keys (its ``num_splits_heuristic``)."""

PLACES = {"pytorch": 2.0, "onnxruntime": 1.0}
"""Blocks an SM that a library has FlashAttention 2 take parts for: of torch 2.9.1 and onnxruntime-gpu 1.31.1, as the
grids of their launches say."""


def split_kernel_keys(d: Column | float) -> Column:
    """Keys of the tile of FlashAttention 2's kernel that cuts them into parts, or reads them in pages, for heads of
    ``d``."""
    return np.where(d <= 64, 256.0, np.where(d <= 128, 128.0, 64.0))


def is_flash2_of_library(cols: Columns, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Whether FlashAttention 2 runs as PyTorch or ONNX Runtime call it, on GPUs that it is for."""
    by_library: NDArray[np.bool_] = (cols["by_onnxruntime"] > 0) | (cols["by_pytorch"] > 0)
    return by_library & (MEMORY_EFFICIENT not in cols) & (capability(gpu) >= FLASH2_CAPABILITY)


def keeps_heads_apart(cols: Columns, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Whether a block has queries of one head in decoding, so that the heads that share keys fetch them each.

    So ONNX Runtime calls FlashAttention 2, and on AMD's GPUs Composable Kernel's ``fmha_fwd``
    (:func:`is_composable_kernel_of_onnxruntime`). PyTorch swaps heads and queries there as on NVIDIA's (both as
    remembered).
    """
    flash2: NDArray[np.bool_] = is_flash2_of_library(cols, gpu) & (cols["by_onnxruntime"] > 0)
    return flash2 | is_composable_kernel_of_onnxruntime(cols, gpu)


def is_composable_kernel_of_onnxruntime(cols: Columns, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Whether ONNX Runtime's ROCm provider, up to 1.22, calls Composable Kernel's ``fmha_fwd`` on AMD's GPUs.

    That entry neither packs heads nor cuts keys into parts, and has a tile of 128 queries for one, too: its kernels for
    parts have an entry of their own, ``fmha_fwd_splitkv``, which the provider doesn't call (as remembered). The wheel
    of onnxruntime-rocm 1.22.2 on PyPI is built without ck_tile, which its GroupQueryAttention says it requires.
    """
    found: NDArray[np.bool_] = (cols["by_onnxruntime"] > 0) & is_amd(gpu)
    return found


def _is_as_measured(kernel: Attention, gpu: GpuSpec) -> bool:
    """Whether FlashAttention 2 by mma runs as it was measured, keys in pages and the heads that share them packed.

    Not so where one query's heads stand apart (ONNX Runtime), nor where many sequences leave its keys uncut: keys in
    one piece then take the tile of prompts. ONNX Runtime never cuts those in pages. Nor is a prompt whose keys are cut.
    """
    steps = kernel.t > kernel.s and kernel.s <= FEW_ROWS
    packs = kernel.s == 1 and kernel.library == "pytorch"
    if steps and (IN_PAGES in kernel.variants or (kernel.h != kernel.g and not packs)):
        return False
    blocks = kernel.b * (kernel.g if packs else kernel.h) * ceil(kernel.s / FEW_ROWS)
    leaves_room = blocks < FULL * PLACES[kernel.library] * gpu.sm_count
    if steps:
        return leaves_room
    return kernel.dropout or not leaves_room or kernel.t <= float(split_kernel_keys(kernel.d))


def unit_of(cols: Columns, gpu: GpuSpec) -> str:
    """The instruction that the kernels are written in."""
    return "mma" if FLASH2 in cols or MEMORY_EFFICIENT in cols or XQA in cols else instructions(gpu)


def has_narrow_keys(cols: Columns) -> NDArray[np.bool_]:
    """Whether keys are stored in fewer bits than queries."""
    found: NDArray[np.bool_] = cols["kv_bytes"] < cols["query_bytes"]
    return found


def follows_a_mask(cols: Columns) -> NDArray[np.bool_]:
    """Whether a kernel is called for a causal mask; one query is, whose mask hides nothing behind a cache."""
    found: NDArray[np.bool_] = (cols["causal"] > 0) | ((cols["s"] == 1) & (cols["t"] > 1))
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


def doubt_log_sd(cols: Columns, gpu: GpuSpec) -> NDArray[np.float64]:
    """Standard deviation (log) of each kernel that no left-out GPU shows."""
    few = is_composable_kernel_of_onnxruntime(cols, gpu) & (cols["s"] <= FEW_ROWS) & (cols["t"] > cols["s"])
    return np.where(few, UNKNOWN_PARTS_LOG_SD, _doubt_of_kernels_log_sd(cols, gpu))


def _doubt_of_kernels_log_sd(cols: Columns, gpu: GpuSpec) -> float:
    """What kernels have in common that run on the GPU."""
    if MEMORY_EFFICIENT in cols or CUDNN in cols:
        return OTHER_KERNELS_LOG_SD
    if FLASH2 in cols or XQA in cols:
        return OTHER_PIPE_LOG_SD
    return OTHER_KERNELS_LOG_SD if gpu.compute_capability is None or gpu.compute_capability < 8.0 else 0.0
