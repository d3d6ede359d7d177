"""``scaled_dot_product_attention`` where PyTorch has no fused kernel: which calls these are, and what runs instead.

Both as torch 2.9.1 launches them on stand-ins for CUDA's libraries (``benchmarks/evidence/attention_kernels.md``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import (
    Attention,
    Elementwise,
    Gemm,
    Kernel,
    Movement,
    NodeWork,
    Reduction,
    Softmax,
    TensorSpec,
)
from neusight_onnx.lowering.normalization import fill
from neusight_onnx.runtime import Runtime

AMPERE = 8.0
"""The compute capability from which on PyTorch has FlashAttention 2, and 3xTF32 in the memory-efficient kernel."""
VOLTA = 7.0
"""The compute capability from which on there are matrix units."""
FLASH_MOST = 256
"""The widest head of FlashAttention (``check_head_dim_size_flash`` of ATen's sdp_utils.cpp)."""


def has_fused_kernel(kernel: Attention, runtime: Runtime, *, capability: float | None = None) -> bool:
    """Whether PyTorch has a fused kernel for a call of four dimensions; on GPUs since Ampere where none is given.

    FlashAttention takes 16 bits without a mask, heads of up to 256 and key heads that query heads share; the
    memory-efficient kernel up to FP32 and masks, a key head for each query head, and heads in multiples of what its
    matrix units load: 8 elements of 16 bits, 4 of FP32 since Ampere (``minimum_gemm_alignment``).
    """
    if not runtime.calls_attention or (kernel.mask is not None and not runtime.attention_masks):
        return False
    since_ampere = capability is None or capability >= AMPERE
    narrow = kernel.dtype.bits == DataType.FLOAT16.bits
    if since_ampere and takes_flash(kernel):
        return True
    if kernel.h != kernel.g or kernel.dtype.bits > DataType.FLOAT32.bits:
        return False
    volta = capability is None or capability >= VOLTA
    step = 8 if narrow and volta else 4 if since_ampere else 1
    return kernel.d % step == kernel.v % step == 0


def takes_flash(kernel: Attention) -> bool:
    """Whether FlashAttention computes it, on GPUs since Ampere."""
    narrow = kernel.dtype.bits == DataType.FLOAT16.bits
    return narrow and kernel.mask is None and kernel.d == kernel.v <= FLASH_MOST


def by_formula_on(works: Sequence[NodeWork], runtime: Runtime, capability: float | None) -> Sequence[NodeWork]:
    """``works`` with attention by its formula where a GPU before Ampere has no kernel for it.

    Heads are taken to lie between the tokens' elements, as models permute them: a batch of several is copied.
    """
    if capability is None or capability >= AMPERE:
        return works
    if not any(_falls_back(kernel, runtime, capability) for work in works for kernel in work.kernels):
        return works
    found = []
    for work in works:
        kernels: list[Kernel] = []
        for kernel in work.kernels:
            if isinstance(kernel, Attention) and _falls_back(kernel, runtime, capability):
                kernels += by_formula(kernel, runtime, copied=(kernel.b > 1,) * 3)
            else:
                kernels.append(kernel)
        found.append(replace(work, kernels=tuple(kernels)))
    return tuple(found)


def _falls_back(kernel: Kernel, runtime: Runtime, capability: float) -> bool:
    return (
        isinstance(kernel, Attention)
        and not kernel.backward
        and not has_fused_kernel(kernel, runtime, capability=capability)
    )


def by_formula(
    kernel: Attention,
    runtime: Runtime,
    *,
    batch: tuple[int, ...] | None = None,
    copied: Sequence[bool] = (False, False, False),
) -> tuple[Kernel, ...]:
    """Queries (*batch, s, d), keys (*batch, t, d) and values (*batch, t, v), by default of batch (b, h).

    ``_scaled_dot_product_attention_math``: queries and keys are scaled by the root of the factor each, their product is
    masked, its softmax multiplied with the values. Keys and values that heads share are repeated. Since 2.5 16 bits are
    widened to FP32, the result and the weights, which nobody reads, cast back, and rows without any key zeroed.
    Dropped weights are a kernel of their own behind the softmax, which writes a mask, too.
    ``copied``: which of the three a product copies first, since its dimensions of the batch aren't one in memory;
    repeated ones aren't copied again. A compiler merges what stands between the products.
    """
    batch = (kernel.b, kernel.h) if batch is None else batch
    given = kernel.dtype
    wide = DataType.FLOAT32 if runtime.widens_attention and given.bits < DataType.FLOAT32.bits else given
    if runtime.name == "compiled":
        return (*cached(kernel), *_compiled(kernel, batch, wide, runtime))
    queries, keys, values = (
        TensorSpec(dtype=wide, shape=(*batch, rows, columns))
        for rows, columns in ((kernel.s, kernel.d), (kernel.t, kernel.d), (kernel.t, kernel.v))
    )
    scores = TensorSpec(dtype=wide, shape=(*batch, kernel.s, kernel.t))
    product, weighted = _products(kernel, batch, wide)
    softmax = Softmax(rows=prod(scores.shape[:-1]), cols=kernel.t, dtype=wide)
    mask = None if kernel.mask is None else replace(kernel.mask, dtype=_mask_dtype(kernel))
    masking: list[Kernel] = [*as_numbers(kernel)]
    if kernel.causal and not runtime.calls_attention:  # models keep a triangle
        seen = TensorSpec(dtype=DataType.BOOL, shape=(kernel.s, kernel.t))
        masking += [Elementwise(operations=("where",), inputs=(seen, scores), output=scores)]
    elif kernel.causal:
        triangle = TensorSpec(dtype=wide, shape=(kernel.s, kernel.t))
        masking += _triangle(triangle)
        masking += [Elementwise(operations=("add",), inputs=(scores, triangle), output=scores)]
    if mask is not None:
        masking += [Elementwise(operations=("add",), inputs=(scores, mask), output=scores)]
    if not runtime.calls_attention:  # before 2.0 models scale the scores
        scaled = Elementwise(operations=("mul",), inputs=(scores,), output=scores)
        dropped = _dropped(scores) if kernel.dropout else ()
        return (*cached(kernel), *_repeated(kernel, wide), product, scaled, *masking, softmax, *dropped, weighted)
    shared = kernel.h // max(kernel.g, 1)
    narrow = wide is not given
    casts = [
        _cast(given, wide, spec.element_count // (1 if place == 0 else shared))
        for place, spec in enumerate((queries, keys, values))
        if narrow
    ]
    scaled_queries, scaled_keys = (
        Elementwise(operations=("mul",), inputs=(spec,), output=spec) for spec in (queries, keys)
    )
    copies = [
        _copy(spec) if is_copied and (place == 0 or shared == 1) else None
        for place, (spec, is_copied) in enumerate(zip((queries, keys, values), copied, strict=True))
    ]
    return (
        *cached(kernel),
        *casts,
        scaled_queries,
        *_repeated(kernel, wide),
        scaled_keys,
        *(copy for copy in copies[:2] if copy is not None),
        product,
        *masking,
        softmax,
        *(_zeroed(scores) if runtime.widens_attention else ()),
        *(_dropped(scores) if kernel.dropout else ()),
        *((_cast(wide, given, scores.element_count),) if narrow else ()),
        *(copy for copy in copies[2:] if copy is not None),
        weighted,
        *((_cast(wide, given, weighted.batch * weighted.m * weighted.n),) if narrow else ()),
    )


def _compiled(kernel: Attention, batch: tuple[int, ...], wide: DataType, runtime: Runtime) -> tuple[Kernel, ...]:
    """Casts, scales and repetition are one kernel for each operand, mask and softmax one between the products."""
    zeros = ("eq", "where") if runtime.widens_attention else ()
    narrow = wide is not kernel.dtype
    product, weighted = _products(kernel, batch, wide)
    shared = kernel.h // max(kernel.g, 1)
    prepared = []
    for place, (rows, columns) in enumerate(((kernel.s, kernel.d), (kernel.t, kernel.d), (kernel.t, kernel.v))):
        steps = (*(("cast",) if narrow else ()), *(("mul",) if place < 2 else ()))
        if not steps and shared == 1:
            continue
        read = (*batch[:-1], batch[-1] // (1 if place == 0 else shared), rows, columns)
        prepared.append(
            Elementwise(
                operations=steps or ("copy",),
                inputs=(TensorSpec(dtype=kernel.dtype, shape=read),),
                output=TensorSpec(dtype=wide, shape=(*batch, rows, columns)),
                generated=True,
            )
        )
    masks = () if kernel.mask is None else (kernel.mask,)
    softmax = Softmax(
        rows=prod(batch) * kernel.s,
        cols=kernel.t,
        dtype=wide,
        fused=(*(("where",) if kernel.causal else ()), *(("add",) if masks else ()), *zeros),
        extra_inputs=masks,
        generated=True,
    )
    scores = TensorSpec(dtype=wide, shape=(*batch, kernel.s, kernel.t))
    return (*prepared, product, softmax, *(_dropped(scores) if kernel.dropout else ()), weighted)


def _products(kernel: Attention, batch: tuple[int, ...], wide: DataType) -> tuple[Gemm, Gemm]:
    """(s, d) @ (d, t) and (s, t) @ (t, v)."""
    count = prod(batch)
    return (
        Gemm(batch=count, m=kernel.s, n=kernel.t, k=kernel.d, transpose_b=True, dtype=wide),
        Gemm(batch=count, m=kernel.s, n=kernel.v, k=kernel.t, dtype=wide),
    )


def cached(kernel: Attention) -> tuple[Kernel, ...]:
    """What attention by its formula gets keys and values from a cache by: a copy of those before and the new ones."""
    stored = kernel.kv_dtype or kernel.dtype
    written = stored.bytes_of(kernel.cache_write_elements)
    copy = Movement(
        operation="concat", dtype=stored, shape=(kernel.cache_write_elements,), read=written, written=written
    )
    return (copy,) if written else ()


def _mask_dtype(kernel: Attention) -> DataType:
    assert kernel.mask is not None
    return kernel.dtype if kernel.mask.dtype is DataType.BOOL else kernel.mask.dtype


def as_numbers(kernel: Attention) -> tuple[Kernel, ...]:
    """A mask of truth values made one of zeros and minus infinities: two numbers, and a selection of them
    (``convert_boolean_attn_mask``)."""
    if kernel.mask is None or kernel.mask.dtype is not DataType.BOOL:
        return ()
    numbers = replace(kernel.mask, dtype=kernel.dtype)
    return _selected(kernel.mask, numbers)


def _selected(condition: TensorSpec, numbers: TensorSpec) -> tuple[Kernel, ...]:
    one = fill(replace(numbers, shape=()))
    return one, one, Elementwise(operations=("where",), inputs=(condition,), output=numbers)


def _triangle(mask: TensorSpec) -> tuple[Kernel, ...]:
    """A causal mask (s, t): ones, their lower triangle, and numbers of it."""
    seen = replace(mask, dtype=DataType.BOOL)
    triangle = Movement(
        operation="copy", dtype=seen.dtype, shape=seen.shape, read=seen.byte_count, written=seen.byte_count
    )
    return (fill(seen), triangle, *_selected(seen, mask))


def _repeated(kernel: Attention, dtype: DataType) -> tuple[Kernel, ...]:
    """Keys and values (b, g, t, d) copied to (b, h, t, d) for the heads that share them (``repeat_interleave``)."""
    if kernel.h == kernel.g:
        return ()
    return tuple(
        Movement(
            operation="expand",
            dtype=dtype,
            shape=(kernel.b, kernel.h, kernel.t, width),
            read=dtype.bytes_of(kernel.b * kernel.g * kernel.t * width),
            written=dtype.bytes_of(kernel.b * kernel.h * kernel.t * width),
        )
        for width in (kernel.d, kernel.v)
    )


def _dropped(scores: TensorSpec) -> tuple[Kernel, ...]:
    mask = replace(scores, dtype=DataType.BOOL)
    return (Elementwise(operations=("dropout",), inputs=(scores,), output=scores, extra_outputs=(mask,)),)


def _zeroed(scores: TensorSpec) -> tuple[Kernel, ...]:
    """Rows of ``scores`` without any key made zeros behind their softmax (``_safe_softmax``)."""
    *rows, t = scores.shape
    unseen = replace(scores, dtype=DataType.BOOL)
    found = replace(unseen, shape=(*rows, 1))
    return (
        Elementwise(operations=("eq",), inputs=(scores,), output=unseen),
        Reduction(operation="and", outputs=prod(rows), reduced=t, dtype=DataType.BOOL, output=found),
        fill(replace(scores, shape=())),
        Elementwise(operations=("where",), inputs=(found, scores), output=scores),
    )


def _cast(source: DataType, target: DataType, count: int) -> Movement:
    return Movement(
        operation="cast", dtype=source, shape=(count,), read=source.bytes_of(count), written=target.bytes_of(count)
    )


def _copy(spec: TensorSpec) -> Movement:
    return Movement(operation="copy", dtype=spec.dtype, shape=spec.shape, read=spec.byte_count, written=spec.byte_count)
