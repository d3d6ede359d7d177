"""Attention of com.microsoft as ONNX Runtime's CUDA provider executes it: one kernel, or products around a softmax.

Its operators ask in turn for Flash Attention, TensorRT's fused kernels and CUTLASS's memory-efficient attention, and
else run by parts (``attention.cc``, ``multihead_attention.cc`` and ``attention_impl.cu`` of
``onnxruntime/contrib_ops/cuda/bert``, as remembered; the names of kernels and their calls of cuBLAS, whose text its
error messages hold, are those in libonnxruntime_providers_cuda.so of onnxruntime-gpu 1.31.1). What decides is known
before a GPU is: the type, the kind of mask, the number of queries, a cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import (
    APPENDING,
    BY_CUDNN,
    BY_XQA,
    CUDNN_ATTENTION_CAPABILITY,
    Attention,
    Elementwise,
    Gemm,
    Kernel,
    Movement,
    NodeWork,
    Softmax,
    TensorSpec,
)
from neusight_onnx.runtime import Runtime

FEWEST_QUERIES_FP32 = 256
"""Queries from which on attention in FP32 is one (memory-efficient) kernel: ORT_MIN_SEQ_LEN_EFFICIENT_ATTENTION_FP32's
default in ``contrib_ops/cpu/bert/attention_common.h``, as remembered."""
XQA_HEADS = frozenset({64, 128, 256})
XQA_GROUPS = frozenset({1, 2, 4, 5, 8, 16, 32})
"""Sizes of heads, and heads that share keys, that XQA takes in 16 bits (texts of onnxruntime-gpu 1.31.1's errors)."""
AMPERE = 8.0
"""The compute capability from which on it has FlashAttention 2."""
_HEAD_STEP = 8
"""Sizes of heads that fused kernels take are multiples of it."""


def is_one_kernel(
    attention: Attention,
    *,
    padding: TensorSpec | None,
    having: str = "any",
    with_cache: bool = False,
    takes_bias: bool = False,
) -> bool:
    """Whether an attention operator finds a fused kernel among those that the release has (``having``:
    :attr:`~neusight_onnx.runtime.Runtime.fused_attention`).

    ``padding``: its operand that says which keys are there; fused kernels know lengths, (b,) in 16 bits and (3 b + 2,)
    in any, but no masks (b, t) or larger. ``with_cache``: past keys come in or present ones go out, of an operator
    whose fused kernels know none. ``takes_bias``: they add a bias to the scores (``attention.mask``).
    """
    if having == "none" or (having == "lengths" and (padding is None or attention.dtype.bits > 16)):
        return False
    if with_cache or (attention.mask is not None and not takes_bias):
        return False
    if attention.d % _HEAD_STEP or attention.v % _HEAD_STEP:
        return False
    if padding is not None:
        if len(padding.shape) != 1:
            return False
        if attention.dtype.bits > 16 and padding.shape[0] != 3 * attention.b + 2:
            return False
    return attention.dtype.bits <= 16 or attention.s >= FEWEST_QUERIES_FP32


def fused_variants(runtime: Runtime) -> tuple[str, ...]:
    """What com.microsoft's Attention and MultiHeadAttention ask for before FlashAttention; opset 23's asks for none."""
    return (BY_CUDNN,) if runtime.fused_attention == "cudnn" else ()


def grouped_variants(
    attention: Attention, runtime: Runtime, *, decodes: bool, softcap: bool, sinks: bool
) -> tuple[str, ...]:
    """The same of GroupQueryAttention, whose past and present keys are taken to be one buffer, as ONNX Runtime GenAI
    binds them. ``decodes``: one query behind a cache.

    As onnxruntime-gpu 1.31.1 launches it: XQA and FlashAttention that writes the cache itself want one buffer, cuDNN
    isn't asked about windows, ``softcap`` and ``sinks`` (a score a head beside those of the keys).
    """
    plain = not softcap and attention.mask is None
    by_cudnn = plain and not sinks and attention.window is None and bool(fused_variants(runtime))
    if not decodes:
        return (BY_CUDNN,) if by_cudnn else ()
    takes = attention.d in XQA_HEADS and attention.h % attention.g == 0 and attention.h // attention.g in XQA_GROUPS
    if runtime.has_xqa and plain and takes:
        return (BY_XQA,)
    return (BY_CUDNN, APPENDING) if by_cudnn else (APPENDING,)


def appending_on(works: Sequence[NodeWork], capability: float | None) -> Sequence[NodeWork]:
    """``works`` without the kernels that append new keys where, on a GPU of that compute capability, FlashAttention
    itself writes the cache."""

    def appends(kernel: Kernel) -> bool:
        if capability is None or capability < AMPERE:
            return False
        if not isinstance(kernel, Attention) or APPENDING not in kernel.variants:
            return False
        return BY_CUDNN not in kernel.variants or capability < CUDNN_ATTENTION_CAPABILITY

    def of(work: NodeWork) -> NodeWork:
        return work.with_kernels(work.kernels[-1:]) if work.kernels and appends(work.kernels[-1]) else work

    return tuple(map(of, works))


_LEAST_CAPABILITY = {BY_XQA: AMPERE, BY_CUDNN: CUDNN_ATTENTION_CAPABILITY, APPENDING: AMPERE}


def asked_on(works: Sequence[NodeWork], capability: float | None) -> Sequence[NodeWork]:
    """``works`` whose attention asks only for kernels that there are on a GPU of that compute capability; on AMD's
    (None) for none of NVIDIA's."""

    def has(variant: str) -> bool:
        least = _LEAST_CAPABILITY.get(variant)
        return least is None or (capability is not None and capability >= least)

    def kernel_on(kernel: Kernel) -> Kernel:
        if not isinstance(kernel, Attention) or all(map(has, kernel.variants)):
            return kernel
        return replace(kernel, variants=tuple(filter(has, kernel.variants)))

    def work_on(work: NodeWork) -> NodeWork:
        if not any(isinstance(kernel, Attention) for kernel in work.kernels):
            return work
        kernels = tuple(map(kernel_on, work.kernels))
        if any(BY_XQA in kernel.variants for kernel in work.kernels if isinstance(kernel, Attention)) and not has(
            BY_XQA
        ):
            # the counters that its blocks are told apart by
            kernels = tuple(item for item in kernels if not (isinstance(item, Movement) and item.operation == "fill"))
        return work.with_kernels(kernels)

    return tuple(map(work_on, works))


def by_parts(attention: Attention, *, padding: TensorSpec | None) -> tuple[Kernel, ...]:
    """(b, h, s, d) @ (b, h, d, t), a softmax that takes scale, mask and causality along, @ (b, h, t, v), heads merged.

    Queries, keys and values lie heads first already; every pair is multiplied, also where causality hides it.
    """
    b, h, s, t, dtype = attention.b, attention.h, attention.s, attention.t, attention.dtype
    scores = Gemm(batch=b * h, m=s, n=t, k=attention.d, transpose_b=True, dtype=dtype)
    operands = tuple(spec for spec in (padding, attention.mask) if spec is not None)
    softmax = Softmax(
        rows=b * h * s, cols=t, dtype=dtype, fused=("add",) * len(operands), extra_inputs=operands, by_block=True
    )
    values = Gemm(batch=b * h, m=s, n=attention.v, k=t, dtype=dtype)
    return (scores, softmax, values, heads_apart(replace(attention, d=attention.v), tokens=s, merged=True))


def heads_apart(attention: Attention, *, tokens: int, merged: bool = False, biased: bool = False) -> Movement:
    """The kernel that reorders (b, tokens, h, d) to (b, h, tokens, d), or back: runs of d elements stay together.

    ``biased``: it adds a vector (h * d) on the way.
    """
    shape = (attention.b, tokens, attention.h, attention.d)
    size = attention.dtype.bytes_of(attention.b * tokens * attention.h * attention.d)
    return Movement(
        operation="transpose",
        dtype=attention.dtype,
        shape=(shape[0], shape[2], shape[1], shape[3]) if merged else shape,
        permutation=(0, 2, 1, 3),
        read=size + (attention.dtype.bytes_of(attention.h * attention.d) if biased else 0),
        written=size,
        flops_per_element=1 if biased else 0,
        run=attention.d,
        library="own",  # blocks are numbered by token, head and batch
    )


def projected_apart(attention: Attention, *, tokens: int, width: int, biased: bool = True) -> Movement:
    """The kernel that splits (b * tokens, width) of queries, keys and values, adds their bias, and puts heads first.

    It runs before fused kernels as well (AddBiasTransposeQKV, ..Cutlass, ..Trt).
    """
    size = attention.dtype.bytes_of(attention.b * tokens * width)
    return Movement(
        operation="transpose",
        dtype=attention.dtype,
        shape=(attention.b, tokens, width // attention.d, attention.d),
        permutation=(0, 2, 1, 3),
        read=size + (attention.dtype.bytes_of(width) if biased else 0),
        written=size,
        flops_per_element=1 if biased else 0,
        run=attention.d,
        library="own",
    )


def cache_joined(present: TensorSpec) -> Movement:
    """The kernel that writes past and new keys and values one behind the other."""
    return Movement(
        operation="concat",
        dtype=present.dtype,
        shape=present.shape,
        read=present.byte_count,
        written=present.byte_count,
        run=present.shape[-1],
        library="own",
    )


def lengths_of(batch: int) -> Elementwise:
    """The kernel of GroupQueryAttention that makes lengths and offsets (b,) of the last key's places (b,)
    (``GetSequenceLengths``)."""
    counts = TensorSpec(dtype=DataType.INT32, shape=(batch,))
    return Elementwise(operations=("add",), inputs=(counts,), output=counts)


def appended(b: int, s: int, h: int, g: int, d: int, dtype: DataType, *, rotary: bool) -> Elementwise | Movement:
    """The kernel of GroupQueryAttention that reads new queries, keys and values (b, s, (h + 2 g) d), rotates the first
    two if asked for, and writes them apart: keys and values behind those of the cache (``UnpackRoPEAppend``)."""
    tokens = TensorSpec(dtype=dtype, shape=(b, s, (h + 2 * g) * d))
    if rotary:
        return Elementwise(operations=("mul", "mul", "add"), inputs=(tokens,), output=tokens)
    return Movement(
        operation="copy",
        dtype=dtype,
        shape=tokens.shape,
        read=tokens.byte_count,
        written=tokens.byte_count,
        run=d,
        library="own",
    )
