"""Attention of ai.onnx (opset 23 on) as ONNX Runtime's CUDA provider executes it: what it launches around the kernel.

Seen where onnxruntime-gpu 1.31.1 ran forty graphs of one such node on stand-ins for CUDA's libraries
(``benchmarks/evidence/attention_kernels.md``): heads or tokens first, FP16 and FP32, grouped keys, masks, caches. Its
fused kernels want tokens first, (b, s, h, d); its products heads first, (b, h, s, d).
"""

from __future__ import annotations

from dataclasses import replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Attention, Elementwise, Kernel, Movement, Reduction, TensorSpec
from neusight_onnx.lowering.attention.formula import cached
from neusight_onnx.lowering.attention.provider import heads_apart, lengths_of

_HEAD_STEP = 8
"""Sizes of heads that fused kernels take are multiples of it (heads of 36 run by parts)."""
_MASK_STEP = 4
"""Keys beside a mask, too (8, 12, 20 and 36 keys are fused, 62 and 63 aren't)."""


def _is_grouped_fp32(attention: Attention) -> bool:
    """Whether several query heads share keys in FP32, which has no fused kernel: FlashAttention takes 16 bits, the
    memory-efficient kernel a key head for each query head."""
    return attention.h != attention.g and attention.dtype.bits > DataType.FLOAT16.bits


def standard_attention(
    attention: Attention, *, tokens_first: bool, past: int = 0, counts_keys: bool = False
) -> tuple[Kernel, ...]:
    """All kernels of the node; ``attention`` is the fused one as others have it.

    ``tokens_first``: operands are (b, tokens, h * d). ``past``: keys of a cache that stand before the new ones;
    ``counts_keys``: how many keys there are is an operand.
    """
    narrow = replace(attention, cache_write_elements=0)
    mask = attention.mask
    converted: tuple[Kernel, ...] = ()
    if mask is not None and mask.dtype is DataType.BOOL:
        converted = (_as_bias(mask, attention.dtype),)
        narrow = replace(narrow, mask=replace(mask, dtype=attention.dtype))
    if not _is_fused(attention):
        return _by_products(attention, narrow, converted, tokens_first=tokens_first, past=past)
    kernels: list[Kernel] = []
    if not tokens_first:
        kernels.append(_turned(attention, attention.h, attention.s, attention.d))
    kernels += _cache(attention, past, turns=not tokens_first)
    if mask is not None:
        if attention.h != attention.g:
            kernels += [_repeated(attention, width) for width in (attention.d, attention.v)]
            narrow = replace(narrow, g=attention.h)
        kernels += [*converted, narrow, _rows_without_keys(narrow)]
    else:
        kernels += [*([lengths_of(attention.b)] if past or counts_keys else []), narrow]
    if not tokens_first:
        kernels.append(_turned(attention, attention.h, attention.s, attention.v, back=True))
    return (*kernels, *_given_out(attention, past, turns=tokens_first))


def _is_fused(attention: Attention) -> bool:
    if _is_grouped_fp32(attention) or attention.extra_outputs:
        return False
    if attention.d % _HEAD_STEP or attention.v % _HEAD_STEP:
        return False
    return attention.mask is None or attention.t % _MASK_STEP == 0


def _by_products(
    attention: Attention, narrow: Attention, converted: tuple[Kernel, ...], *, tokens_first: bool, past: int
) -> tuple[Kernel, ...]:
    """cuBLAS's products of b * g batches, whose rows are the queries of all heads that share keys, (s * h / g, d) @
    (d, t) and (s * h / g, t) @ (t, v); scores are FP32, and a softmax between them scales and masks."""
    b, h, g, s = attention.b, attention.h, attention.g, attention.s
    turned: list[Kernel] = []
    if tokens_first:
        turned.append(_turned(attention, h, s, attention.d, back=True))
        if not past:
            turned += [_turned(attention, g, attention.t, width, back=True) for width in (attention.d, attention.v)]
    scores, softmax, sums = narrow.parts()
    batch, rows = b * g, s * (h // g)
    wide = DataType.FLOAT32 if attention.dtype.bits < DataType.FLOAT32.bits else None
    output = TensorSpec(dtype=attention.dtype, shape=(b, h, s, attention.t))
    kernels: list[Kernel] = [
        *turned,
        *_cache(attention, past, turns=not tokens_first),
        *converted,
        replace(scores, batch=batch, m=rows, output_dtype=wide),
        *(Elementwise(operations=("mul",), inputs=(output,), output=given) for given in attention.extra_outputs),
        replace(softmax, generated=False, dtype=wide or softmax.dtype, output_dtype=wide and attention.dtype),
        replace(sums, batch=batch, m=rows),
    ]
    if tokens_first:
        kernels.append(_turned(attention, h, s, attention.v))
    return (*kernels, *_given_out(attention, past, turns=False))


def _turned(attention: Attention, heads: int, tokens: int, width: int, *, back: bool = False) -> Movement:
    """(b, heads, tokens, width) to (b, tokens, heads, width), or ``back``."""
    return heads_apart(replace(attention, h=heads, d=width), tokens=tokens, merged=not back)


def _cache(attention: Attention, past: int, *, turns: bool) -> list[Kernel]:
    """Lengths, and new keys and values behind those of the past; ``turns``: they come heads first."""
    if not past:
        return []
    new = attention.t - past
    turned = [_turned(attention, attention.g, new, width) for width in (attention.d, attention.v)] if turns else []
    return [lengths_of(attention.b), *turned, *cached(attention)]


def _given_out(attention: Attention, past: int, *, turns: bool) -> list[Kernel]:
    """Keys and values that are asked for although there was no past: copies; ``turns``: heads are put first."""
    if past or not attention.cache_write_elements:
        return []
    widths = (attention.d, attention.v)
    if turns:
        return [_turned(attention, attention.g, attention.t, width, back=True) for width in widths]
    return [_moved("copy", attention, attention.g, width) for width in widths]


def _repeated(attention: Attention, width: int) -> Movement:
    """Keys or values (b, g, t, width) for each of the heads that share them: the kernel with a mask takes no groups."""
    copies = _moved("expand", attention, attention.h, width)
    return replace(copies, read=copies.read * attention.g // attention.h)


def _moved(operation: str, attention: Attention, heads: int, width: int) -> Movement:
    stored = attention.kv_dtype or attention.dtype
    shape = (attention.b, heads, attention.t, width)
    size = stored.bytes_of(attention.b * heads * attention.t * width)
    return Movement(operation=operation, dtype=stored, shape=shape, read=size, written=size)


def _as_bias(mask: TensorSpec, dtype: DataType) -> Movement:
    written = dtype.bytes_of(mask.element_count)
    return Movement(operation="cast", dtype=dtype, shape=mask.shape, read=mask.byte_count, written=written)


def _rows_without_keys(attention: Attention) -> Reduction:
    """``ZeroFullyMaskedRowsKernel``: the mask's rows are searched for a key, and results without one made zeros. Heads
    that share a mask are taken to find it in L2: its bytes count once."""
    assert attention.mask is not None
    rows = max(attention.mask.element_count // max(attention.t, 1), 1)
    found = TensorSpec(dtype=DataType.BOOL, shape=(rows,))
    return Reduction(operation="and", outputs=rows, reduced=attention.t, dtype=attention.mask.dtype, output=found)
