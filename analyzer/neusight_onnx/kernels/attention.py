"""Fused attention."""

from __future__ import annotations

from dataclasses import dataclass

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels.products import Gemm
from neusight_onnx.kernels.rows import Softmax
from neusight_onnx.kernels.tensors import TensorSpec, bytes_of

BY_XQA, BY_CUDNN, APPENDING, IN_PAGES = "xqa", "cudnn", "appending", "pages"
"""Variants of attention: XQA, which takes one query of all heads that share keys; cuDNN's; FlashAttention 2 of one
query, which writes the new keys to the cache itself; FlashAttention 2 that looks keys up in pages."""

CUDNN_ATTENTION_CAPABILITY = 9.0
"""Compute capability from which on ONNX Runtime asks cuDNN (launched so as an H100, H20, B200 and RTX 5090, not as an
A100 and RTX 4090). That cuDNN takes what it is asked for no stand-in says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Fused attention: ``(b, h, s, d) x (b, g, t, d) -> (b, h, s, v)`` with g key-value heads, t keys.

    ``causal`` counts only the pairs that are attended to (s queries being the last s of t keys);
    ``window`` limits each query to so many keys. ``mask`` is an additive or boolean mask that is read.
    ``kv_dtype`` is the cache's type; ``cache_write_elements`` are elements of K and V appended to a cache.
    ``extra_outputs``: what is written besides, as the products of queries and keys where they are asked for.
    ``backward``: the gradients of queries, keys and values from that of the result: the scores are made anew and four
    more products follow (FlashAttention, Dao et al. 2022): 2.5 times the work forwards where d and v are equal.
    ``past_in_l2``: keys of the past come from L2 where they fit, as when one kernel is repeated to be measured; in a
    model the other layers have been there since, and ``kept_in_l2`` is the share of them that L2 holds from the run
    before. ``burst``: as a product's. ``library``: whose kernel it is: "pytorch", "onnxruntime", or "" (of whatever
    library is the fastest on the GPU). ``variants``: what its operator in ONNX Runtime asks for in turn
    before plain FlashAttention 2 (``BY_XQA``, ``BY_CUDNN``, ``APPENDING``, ``IN_PAGES``). ``dropout``: it drops
    weights of pairs as it makes them (training); the random numbers are drawn in the kernel, again backwards, and never
    stored.
    """

    b: int
    h: int
    g: int
    s: int
    t: int
    d: int
    v: int
    causal: bool = False
    window: int | None = None
    mask: TensorSpec | None = None
    dtype: DataType
    kv_dtype: DataType | None = None
    cache_write_elements: int = 0
    extra_outputs: tuple[TensorSpec, ...] = ()
    backward: bool = False
    past_in_l2: bool = False
    kept_in_l2: float = 0.0
    burst: bool = False
    library: str = ""
    variants: tuple[str, ...] = ()
    dropout: bool = False

    @property
    def pair_count(self) -> int:
        """(query, key) pairs per batch entry and head."""
        window = self.window or self.t
        if not self.causal:
            return self.s * min(self.t, window)

        def up_to(last: int) -> int:
            """Sum of min(i, window) for i = 1 ... last: queries that see i keys."""
            growing = min(last, window)
            return growing * (growing + 1) // 2 + (last - growing) * window

        return up_to(self.t) - up_to(max(self.t - self.s, 0))

    def parts(self) -> tuple[Gemm, Softmax, Gemm]:
        """What does its work where no kernel is fused: scores, a softmax with scale and mask, their sums of values."""
        batch = self.b * self.h
        softmax = Softmax(
            rows=batch * self.s,
            cols=self.t,
            dtype=self.dtype,
            fused=("mul", "add") if self.mask is not None else ("mul",),
            extra_inputs=() if self.mask is None else (self.mask,),
            generated=True,
        )
        return (
            Gemm(batch=batch, m=self.s, n=self.t, k=self.d, transpose_b=True, dtype=self.dtype),
            softmax,
            Gemm(batch=batch, m=self.s, n=self.v, k=self.t, dtype=self.dtype),
        )

    @property
    def seen_keys(self) -> int:
        """Keys that any query looks at: with a window those behind the first query's are left out."""
        return self.t if self.window is None else min(self.t, self.window + self.s - 1)

    @property
    def macs(self) -> int:
        depth = 3 * self.d + 2 * self.v if self.backward else self.d + self.v
        return self.b * self.h * self.pair_count * depth

    @property
    def flops(self) -> int:
        return 2 * self.macs + 5 * self.b * self.h * self.pair_count

    @property
    def read_bytes(self) -> int:
        cache = self.kv_dtype or self.dtype
        total = self.dtype.bytes_of(self.b * self.h * self.s * self.d)
        total += cache.bytes_of(self.b * self.g * self.seen_keys * (self.d + self.v))
        if self.backward:  # the result, its gradient, and a number a query
            rows = self.b * self.h * self.s
            total += 2 * self.dtype.bytes_of(rows * self.v) + DataType.FLOAT32.bytes_of(rows)
        return total + (self.mask.byte_count if self.mask else 0)

    @property
    def write_bytes(self) -> int:
        cache = self.kv_dtype or self.dtype
        if self.backward:
            keys_and_values = cache.bytes_of(self.b * self.g * self.t * (self.d + self.v))
            return self.dtype.bytes_of(self.b * self.h * self.s * self.d) + keys_and_values
        written = self.dtype.bytes_of(self.b * self.h * self.s * self.v) + cache.bytes_of(self.cache_write_elements)
        return written + bytes_of(self.extra_outputs)
