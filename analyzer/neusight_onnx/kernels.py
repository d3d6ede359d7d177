"""Kernel classes: what a GPU executes, with exact work and traffic, independent of any GPU.

Units: ``flops`` counts floating-point (or integer, for integer types) operations, one multiply-add being 2;
``read_bytes`` and ``write_bytes`` are the unique bytes of operands at their true bit width, each counted once
(what caches lose is the predictor's business).

A kernel is a value: two layers of the same shape are equal kernels. Where a kernel came from stands in
:class:`NodeWork`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias

from neusight_onnx.dtypes import DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """Dtype and shape of a tensor that a kernel touches."""

    dtype: DataType
    shape: tuple[int, ...]

    @property
    def element_count(self) -> int:
        return prod(self.shape)

    @property
    def byte_count(self) -> int:
        return self.dtype.bytes_of(self.element_count)


def _bytes(specs: tuple[TensorSpec, ...]) -> int:
    return sum(spec.byte_count for spec in specs)


def _operation_flops(operations: tuple[str, ...]) -> int:
    """FLOPs an element of fused operations, reductions over the same rows among them."""
    return sum(ROW_FLOPS.get(name, ELEMENTWISE_FLOPS.get(name, 1)) for name in operations)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """``(b, m, k) @ (b, k, n) -> (b, m, n)``, with what is fused behind it.

    ``a_batch`` and ``b_batch`` are 1 where one operand is shared by the whole batch (read once), else ``batch``.
    ``b_is_weight``: the right operand is a constant of the model (a linear layer). ``transpose_a`` and
    ``transpose_b`` describe memory: the operand is stored (k, m), (n, k). ``dtype`` is the type that is
    multiplied, ``a_dtype``/``b_dtype`` what the operands are stored as (weight-only quantisation differs),
    ``output_dtype`` what is written. ``tensor_scale``: a left operand that is stored wider than multiplied gets one
    scale for the whole tensor, whose greatest value a kernel looks for before another converts; else each row has its
    own, found while it is converted. ``extra_read_bytes``: scales, zero points. ``epilogue`` names fused
    operations in order ("bias", "relu", "gelu", "add", …); "bias" reads n elements, "add" reads m x n.
    ``repeated``: the weight comes from L2 where it fits, as when one kernel is repeated to be measured; in a model
    the other layers have been there since, and ``kept_in_l2`` is the share of it that L2 holds from the run before.
    ``unsplit``: a measured kernel whose blocks add up the whole reduction; libraries may share it among several.
    ``rotated``: each repetition takes the next of several left operands, as of
    several weights; else all take one, which may still lie in L2, as what the layer before has written.
    ``burst``: measured within some ms, at the boost clock until a power limit acts; a model that runs on has the clock
    that the limit sustains. ``activity``: energy of an operation on the operands' values over that on real ones:
    constants, with which some benchmarks fill them, switch few transistors.
    ``accumulator``: the type of the sums where it is the multiplied one (FP16 in FP16); None: FP32, or INT32.
    ``on_lanes``: of FP16, by kernels of FP32's lanes though the GPU may have matrix units.
    ``uneven_rows``: the rows of all entries where ``m`` is the most that one has, as in a grouped product of experts.
    """

    batch: int = 1
    m: int
    n: int
    k: int
    a_batch: int | None = None
    b_batch: int | None = None
    transpose_a: bool = False
    transpose_b: bool = False
    b_is_weight: bool = False
    dtype: DataType
    a_dtype: DataType | None = None
    b_dtype: DataType | None = None
    output_dtype: DataType | None = None
    tensor_scale: bool = False
    epilogue: tuple[str, ...] = ()
    extra_read_bytes: int = 0
    repeated: bool = False
    kept_in_l2: float = 0.0
    rotated: bool = False
    unsplit: bool = False
    burst: bool = False
    activity: float = 1.0
    accumulator: DataType | None = None
    on_lanes: bool = False
    uneven_rows: int | None = None

    @property
    def rows(self) -> int:
        """The output's rows, of all entries of the batch."""
        return self.batch * self.m if self.uneven_rows is None else self.uneven_rows

    @property
    def macs(self) -> int:
        return self.rows * self.n * self.k

    @property
    def flops(self) -> int:
        return 2 * self.macs + len(self.epilogue) * self.rows * self.n

    @property
    def read_bytes(self) -> int:
        a_rows = self.rows if self.a_batch is None else self.a_batch * self.m
        b_batch = self.batch if self.b_batch is None else self.b_batch
        total = (self.a_dtype or self.dtype).bytes_of(a_rows * self.k)
        total += (self.b_dtype or self.dtype).bytes_of(b_batch * self.k * self.n)
        return total + self.beside_read_bytes

    @property
    def beside_read_bytes(self) -> int:
        """What is read beside both operands: scales, zero points, biases, what is added to the output."""
        out = self.output_dtype or self.dtype
        biases = out.bytes_of(self.n) * self.epilogue.count("bias")
        added = out.bytes_of(self.rows * self.n) * self.epilogue.count("add")
        return biases + added + self.extra_read_bytes

    @property
    def write_bytes(self) -> int:
        return (self.output_dtype or self.dtype).bytes_of(self.rows * self.n)


Direction: TypeAlias = Literal["forward", "data", "weight"]
"""What a convolution works out: its output, or in training the gradient of its input or of its weight."""


_MIRRORED: dict[Direction, Direction] = {"forward": "data", "data": "forward", "weight": "weight"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv:
    """Convolution of any rank: input (n, c, *spatial), weight (k, c / groups, *filter), output (n, k, *out).

    For a transposed convolution ``c`` and ``k`` are those of the operator's input and output, and the
    multiply-adds run over the *input* grid. ``extra_write_bytes``: what is written beside the output, as a state that
    is carried on.

    ``direction``: "data" reads the output's gradient and the weight and writes the input's gradient, "weight" reads
    input and output's gradient and writes the weight's. Sizes, strides and dtypes stay those of the forward operator
    (``input_dtype`` is that of the input *and* of its gradient, and so on), the multiply-adds are as many.
    ``channels_last``: input and output lie in memory as (n, *spatial, c), the order of kernels on matrix units.
    ``kept_in_l2``, ``burst``, ``activity`` and ``accumulator``: as a product's.
    """

    n: int
    c: int
    k: int
    groups: int = 1
    spatial: tuple[int, ...]
    out: tuple[int, ...]
    filter: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    transposed: bool = False
    direction: Direction = "forward"
    channels_last: bool = False
    dtype: DataType
    input_dtype: DataType | None = None
    weight_dtype: DataType | None = None
    output_dtype: DataType | None = None
    epilogue: tuple[str, ...] = ()
    extra_read_bytes: int = 0
    extra_write_bytes: int = 0
    kept_in_l2: float = 0.0
    burst: bool = False
    activity: float = 1.0
    accumulator: DataType | None = None

    @property
    def macs(self) -> int:
        grid = prod(self.spatial) if self.transposed else prod(self.out)
        return self.n * grid * self.c * self.k // self.groups * prod(self.filter)

    @property
    def flops(self) -> int:
        return 2 * self.macs + len(self.epilogue) * self.n * self.k * prod(self.out)

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel of input is convolved by itself: an output is a dot product of one window with a filter,
        which no other shares, and no matrix product."""
        return self.groups > 1 and self.groups == self.c

    @property
    def implicit_gemm(self) -> tuple[int, int, int, int]:
        """(b, m, n, k) of the products ``(b, m, k) @ (b, k, n)`` that the convolution is, a group being an entry.

        Forward: (g, n prod(out), k / g, c / g prod(filter)). The gradient of the input, over its grid: (g, n
        prod(spatial), c / g, k / g prod(filter)), of whose taps only the share prod(out) / prod(spatial) meets an
        output where strides skip some. The gradient of the weight reduces over positions: (g, k / g, c / g
        prod(filter), n prod(out)). A transposed convolution is the gradient of the input of one that goes the other
        way round.
        """
        taps, groups = prod(self.filter), self.groups
        c, k, spatial, out = self.c // groups, self.k // groups, prod(self.spatial), prod(self.out)
        direction = self.direction
        if self.transposed:
            c, k, spatial, out = k, c, out, spatial
            direction = _MIRRORED[direction]
        if direction == "weight":
            return groups, k, c * taps, self.n * out
        if direction == "forward":
            return groups, self.n * out, k, c * taps
        return groups, self.n * spatial, c, max(round(k * taps * out / spatial), 1) if spatial else 0

    @property
    def operand_bytes(self) -> tuple[int, int, int]:
        """Bytes of input, weight and output."""
        return (
            (self.input_dtype or self.dtype).bytes_of(self.n * self.c * prod(self.spatial)),
            (self.weight_dtype or self.dtype).bytes_of(self.k * (self.c // self.groups) * prod(self.filter)),
            (self.output_dtype or self.dtype).bytes_of(self.n * self.k * prod(self.out)),
        )

    @property
    def read_bytes(self) -> int:
        source, weight, result = self.operand_bytes
        total = {"forward": source + weight, "data": result + weight, "weight": source + result}[self.direction]
        out = self.output_dtype or self.dtype
        total += out.bytes_of(self.k) * self.epilogue.count("bias")
        total += out.bytes_of(self.n * self.k * prod(self.out)) * self.epilogue.count("add")
        return total + self.extra_read_bytes

    @property
    def write_bytes(self) -> int:
        source, weight, result = self.operand_bytes
        written = {"forward": result, "data": source, "weight": weight}[self.direction]
        return written + self.extra_write_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise:
    """Every output element is a function of one element of each input; inputs broadcast to ``output.shape``.

    ``operations`` are torch-like names in lower case ("add", "gelu", "pow", …); fused kernels list several.
    A scalar operand is no input: it costs no traffic. ``extra_outputs``: what a fused kernel writes beside ``output``.
    ``generated``: a compiler wrote the kernel for these shapes (constant strides, every load on its own), in place of
    a library's kernel for any shape. Its inputs need not broadcast to the output: a concatenation reads parts of it.
    ``access``: how a thread reads: "" as PyTorch's kernel does, "element" one element at a time, "vector" 16 bytes.
    ``library``: whose kernel it is where not PyTorch's: "onnxruntime", or "own" (written for what it does: finding an
    element's place costs nothing that counts).
    """

    operations: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]
    output: TensorSpec
    extra_outputs: tuple[TensorSpec, ...] = ()
    generated: bool = False
    access: str = ""
    library: str = ""

    @property
    def macs(self) -> int:
        return 0

    @property
    def flops(self) -> int:
        return self.output.element_count * _operation_flops(self.operations)

    @property
    def read_bytes(self) -> int:
        return _bytes(self.inputs)

    @property
    def write_bytes(self) -> int:
        return self.output.byte_count + _bytes(self.extra_outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax:
    """Softmax (or log-softmax) over ``cols`` of each of ``rows``; 5 FLOPs an element.

    ``inner`` > 1: the axis is not the last one, neighbours along it are ``inner`` elements apart.
    ``fused``: pointwise operations before and after it, whose operands are in ``extra_inputs`` and whose results may
    be written as well (``extra_outputs``).
    ``backward``: the gradient of the input from that of the result, with the result in ``extra_inputs``: a sum over the
    row, then one operation an element. ``generated``: a compiler wrote the kernel, in place of PyTorch's. ``by_block``:
    a block of threads takes a row, however short. ``library`` is as in :class:`Elementwise`.
    """

    rows: int
    cols: int
    inner: int = 1
    dtype: DataType
    output_dtype: DataType | None = None
    log: bool = False
    backward: bool = False
    fused: tuple[str, ...] = ()
    extra_inputs: tuple[TensorSpec, ...] = ()
    extra_outputs: tuple[TensorSpec, ...] = ()
    generated: bool = False
    by_block: bool = False
    library: str = ""

    @property
    def macs(self) -> int:
        return 0

    @property
    def is_streamed(self) -> bool:
        """Whether it is a generated kernel whose rows stay on chip."""
        return self.generated and not self.backward

    @property
    def flops(self) -> int:
        return (ROW_FLOPS["softmax"] + _operation_flops(self.fused)) * self.rows * self.cols

    @property
    def read_bytes(self) -> int:
        return self.dtype.bytes_of(self.rows * self.cols) + _bytes(self.extra_inputs)

    @property
    def write_bytes(self) -> int:
        return (self.output_dtype or self.dtype).bytes_of(self.rows * self.cols) + _bytes(self.extra_outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalization:
    """Normalization of ``rows`` groups of ``cols`` elements each.

    ``method``: "layer", "rms", "group", "instance", "batch" (batch at inference: statistics are given, so it
    is a scale and shift per channel, one pass; in training "statistics" is in ``fused``), "lp", "local_response".
    ``parameter_count``: elements of scale, shift and given statistics, read once. ``fused``: e.g. ("add",) for a
    residual added before, whose operand is in ``extra_inputs`` and whose sum may be written as well
    (``extra_outputs``). ``access`` is as in :class:`Elementwise`. ``backward``: the gradient of the input, from the
    input and the result's gradient (in ``extra_inputs``, with the statistics that were saved). ``generated``: a
    compiler wrote the kernel, in place of PyTorch's. ``library`` is as in :class:`Elementwise`. ``at_once``: elements
    of a residual and its normalization that a thread of an early ONNX Runtime takes at once; 0: as today's.
    """

    method: str
    rows: int
    cols: int
    parameter_count: int = 0
    backward: bool = False
    dtype: DataType
    output_dtype: DataType | None = None
    fused: tuple[str, ...] = ()
    extra_inputs: tuple[TensorSpec, ...] = ()
    extra_outputs: tuple[TensorSpec, ...] = ()
    access: str = ""
    generated: bool = False
    library: str = ""
    at_once: int = 0

    @property
    def macs(self) -> int:
        return 0

    @property
    def is_streamed(self) -> bool:
        """Whether it is a generated kernel whose rows stay on chip; those of groups and channels are too long."""
        return self.generated and not self.backward and self.method in ("layer", "rms", "lp")

    @property
    def flops(self) -> int:
        per_element = 2 if self.method == "batch" else ROW_FLOPS.get(self.method, 6)
        return (per_element + _operation_flops(self.fused)) * self.rows * self.cols

    @property
    def read_bytes(self) -> int:
        return self.dtype.bytes_of(self.rows * self.cols + self.parameter_count) + _bytes(self.extra_inputs)

    @property
    def write_bytes(self) -> int:
        return (self.output_dtype or self.dtype).bytes_of(self.rows * self.cols) + _bytes(self.extra_outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """``outputs`` results, each over ``reduced`` elements: sum, mean, max, argmax, cumulative sums, norms.

    ``inner`` > 1: reduced elements are ``inner`` apart in memory. ``output`` is what is written (all elements
    for a cumulative sum, and where ``fused`` says what is done with the result before it is written).
    ``fused``: operations on the elements, before and after it; ``epilogue``: operations on the results, one a row.
    ``extra_inputs`` and ``extra_outputs`` are as in :class:`Softmax`, ``library`` as in :class:`Elementwise`.
    """

    operation: str
    outputs: int
    reduced: int
    inner: int = 1
    dtype: DataType
    output: TensorSpec
    fused: tuple[str, ...] = ()
    epilogue: tuple[str, ...] = ()
    extra_inputs: tuple[TensorSpec, ...] = ()
    extra_outputs: tuple[TensorSpec, ...] = ()
    library: str = ""

    @property
    def macs(self) -> int:
        return 0

    @property
    def flops(self) -> int:
        per_element = ROW_FLOPS.get(self.operation, 1) + _operation_flops(self.fused)
        return (per_element * self.reduced + _operation_flops(self.epilogue)) * self.outputs

    @property
    def read_bytes(self) -> int:
        return self.dtype.bytes_of(self.outputs * self.reduced) + _bytes(self.extra_inputs)

    @property
    def write_bytes(self) -> int:
        return self.output.byte_count + _bytes(self.extra_outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooling:
    """A window over space: max, average, lp, global; each output element looks at ``window`` elements.

    ``extra_outputs``: where each maximum was, if that is written. Backwards ("max_backward", ...) the input is the
    gradient of the result, ``extra_inputs`` are the places of the maxima, and each element of the output, the gradient
    of the input, looks at the ``window`` results that it went into.
    ``access`` is as in :class:`Elementwise`: "vector" where channels lie together and a thread takes 16 bytes of them.
    """

    operation: str
    input: TensorSpec
    output: TensorSpec
    window: int
    extra_inputs: tuple[TensorSpec, ...] = ()
    extra_outputs: tuple[TensorSpec, ...] = ()
    access: str = ""

    @property
    def macs(self) -> int:
        return 0

    @property
    def flops(self) -> int:
        return self.output.element_count * self.window

    @property
    def read_bytes(self) -> int:
        return self.input.byte_count + _bytes(self.extra_inputs)

    @property
    def write_bytes(self) -> int:
        return self.output.byte_count + _bytes(self.extra_outputs)


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
        return written + _bytes(self.extra_outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherScatter:
    """Reads or writes through indices: embedding, indexing, scatter.

    ``moved`` elements of ``dtype`` go through ``index_count`` indices of ``index_dtype``, in contiguous runs of
    ``run`` elements. Only what is touched is read; a scatter out of place also copies its ``base`` (all of it
    read and written). ``access`` and ``library`` are as in :class:`Elementwise`.
    """

    operation: str
    moved: int
    run: int
    dtype: DataType
    index_count: int
    index_dtype: DataType
    base: TensorSpec | None = None
    access: str = ""
    library: str = ""

    @property
    def macs(self) -> int:
        return 0

    @property
    def flops(self) -> int:
        return 0

    @property
    def read_bytes(self) -> int:
        total = self.dtype.bytes_of(self.moved) + self.index_dtype.bytes_of(self.index_count)
        return total + (self.base.byte_count if self.base else 0)

    @property
    def write_bytes(self) -> int:
        return self.dtype.bytes_of(self.moved) + (self.base.byte_count if self.base else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """Copies without arithmetic: transpose, concat, slice, pad, expand, tile, cast, copy, fill, resize, split.

    ``read`` are the bytes really read (a slice reads what it keeps); ``permutation`` for transposes, of
    ``shape`` (the source's shape), so that a predictor can tell coalesced from strided. ``run``: elements that stay
    together, each run starting at a multiple of its length on both sides (1: not known to). ``parts``: sizes along its
    axis of what a split gives, where known. ``taps``: of a resize (n, c, *spatial), how many neighbours an element is
    made of (0: not told). ``library`` is as in :class:`Elementwise`.
    """

    operation: str
    dtype: DataType
    shape: tuple[int, ...]
    permutation: tuple[int, ...] | None = None
    read: int
    written: int
    flops_per_element: int = 0
    run: int = 1
    parts: tuple[int, ...] = ()
    taps: int = 0
    library: str = ""

    @property
    def macs(self) -> int:
        return 0

    @property
    def flops(self) -> int:
        return self.flops_per_element * prod(self.shape)

    @property
    def read_bytes(self) -> int:
        return self.read

    @property
    def write_bytes(self) -> int:
        return self.written


@dataclass(frozen=True, slots=True, kw_only=True)
class Sort:
    """Sorting, top-k, unique, non-maximum suppression, non-zero: ``rows`` independent problems of ``cols``.

    ``candidates``: of non-maximum suppression, how many boxes of all problems pass the score's threshold; None: all.
    ``library`` is as in :class:`Elementwise`, of top-k and non-maximum suppression (which ONNX Runtime's sorts before).
    """

    operation: str
    rows: int
    cols: int
    kept: int
    dtype: DataType
    output_bytes: int
    candidates: int | None = None
    library: str = ""

    @property
    def macs(self) -> int:
        return 0

    @property
    def flops(self) -> int:
        return self.rows * self.cols * max(1, (self.cols - 1).bit_length())

    @property
    def read_bytes(self) -> int:
        return self.dtype.bytes_of(self.rows * self.cols)

    @property
    def write_bytes(self) -> int:
        return self.output_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrent:
    """The serial part of an RNN, GRU or LSTM: ``steps`` dependent steps of (b, h) @ (h, gates * h) per direction.

    The product of the inputs with their weights is a Gemm of its own. ``extra_outputs``: the states behind the last
    step, where they are asked for; those of every step are written anyway, for the next one.
    """

    cell: str
    steps: int
    directions: int
    b: int
    h: int
    gates: int
    dtype: DataType
    weight_dtype: DataType | None = None
    extra_outputs: tuple[TensorSpec, ...] = ()

    @property
    def macs(self) -> int:
        return self.steps * self.directions * self.b * self.h * self.h * self.gates

    @property
    def flops(self) -> int:
        return 2 * self.macs + 10 * self.steps * self.directions * self.b * self.h * self.gates

    @property
    def read_bytes(self) -> int:
        weights = (self.weight_dtype or self.dtype).bytes_of(self.directions * self.gates * self.h * self.h)
        return weights + self.dtype.bytes_of(self.steps * self.directions * self.b * self.h * self.gates)

    @property
    def write_bytes(self) -> int:
        return self.dtype.bytes_of(self.steps * self.directions * self.b * self.h) + _bytes(self.extra_outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opaque:
    """Real work that fits no other class (FFT, tree ensembles, string kernels that are not on the host, …)."""

    operation: str
    operation_count: int
    dtype: DataType
    read: int
    written: int

    @property
    def macs(self) -> int:
        return 0

    @property
    def flops(self) -> int:
        return self.operation_count

    @property
    def read_bytes(self) -> int:
        return self.read

    @property
    def write_bytes(self) -> int:
        return self.written


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A copy between host and GPU over PCIe: ``direction`` is "to_host" or "to_device".

    ``is_waited_for``: the host goes on only when it has ended.
    """

    direction: str
    dtype: DataType
    byte_count: int
    is_waited_for: bool = True

    @property
    def macs(self) -> int:
        return 0

    @property
    def flops(self) -> int:
        return 0

    @property
    def read_bytes(self) -> int:
        return self.byte_count

    @property
    def write_bytes(self) -> int:
        return self.byte_count


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWork:
    """An operator that the CPU computes, the GPU waiting. ``mac_count``: of its operations, the multiply-adds of
    products and convolutions of ``dtype``."""

    operation: str
    operation_count: int
    dtype: DataType
    read: int
    written: int
    mac_count: int = 0

    @property
    def macs(self) -> int:
        return self.mac_count

    @property
    def flops(self) -> int:
        return self.operation_count

    @property
    def read_bytes(self) -> int:
        return self.read

    @property
    def write_bytes(self) -> int:
        return self.written


Kernel: TypeAlias = (
    Gemm
    | Conv
    | Elementwise
    | Softmax
    | Normalization
    | Reduction
    | Pooling
    | Attention
    | GatherScatter
    | Movement
    | Sort
    | Recurrent
    | Opaque
    | Transfer
    | HostWork
)

KERNEL_CLASSES: dict[type, str] = {
    Gemm: "gemm",
    Conv: "conv",
    Elementwise: "elementwise",
    Softmax: "softmax",
    Normalization: "normalization",
    Reduction: "reduction",
    Pooling: "pooling",
    Attention: "attention",
    GatherScatter: "gather_scatter",
    Movement: "movement",
    Sort: "sort",
    Recurrent: "recurrent",
    Opaque: "opaque",
    Transfer: "transfer",
    HostWork: "host",
}
"""The report's name of each kernel class."""


ELEMENTWISE_FLOPS: dict[str, int] = {
    "exp": 4,
    "log": 4,
    "sqrt": 2,
    "rsqrt": 2,
    "div": 1,
    "pow": 10,
    "pow_scalar": 2,
    "tanh": 6,
    "sigmoid": 6,
    "erf": 8,
    "gelu": 12,
    "gelu_tanh": 14,
    "silu": 7,
    "mish": 12,
    "softplus": 8,
    "statistics": 4,
    "sin": 6,
    "cos": 6,
    "gelu_backward": 16,
    "gelu_tanh_backward": 20,
    "silu_backward": 10,
    "mish_backward": 18,
    "tanh_backward": 3,
    "sigmoid_backward": 3,
    "addcmul": 3,
    "addcdiv": 3,
    "lerp": 3,
    **dict.fromkeys(("cast", "concat", "copy", "expand", "fill", "flip", "gather", "pad"), 0),
    **dict.fromkeys(("slice", "split", "tile", "transpose"), 0),
}
"""Operations per element by convention (a count for reports, not a cost: predictors learn cost); others are 1,
and moving an element is none, in a kernel of its own or not."""

ROW_FLOPS: dict[str, int] = {"softmax": 5, "layer": 6, "group": 6, "instance": 6, "rms": 4, "lp": 3}
"""Operations per element of reductions that are more than one pass, by convention; other reductions are 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWork:
    """What one node of the graph became: kernels, nothing with a reason, or unsupported with a reason.

    Exactly one of ``kernels`` (non-empty), ``free`` and ``unsupported`` is set. ``count``: how often it runs
    (trip counts of the loops around it). ``branch``: inside an If, "node name/then" or "node name/else"; where Ifs
    are nested, the outer one first.
    ``host_operation``: whether a runtime that interprets the graph still spends host time on it (a view does).
    ``host_waits``: the host can't go on before the node's kernels have ended, since it needs to know how large their
    result is.
    ``merged_into``: the node whose kernel does this node's work, and whose ``origins`` name it; this one is free then.
    ``written`` says whether that kernel writes this node's value all the same, for others to read.
    ``alternatives``: other kernels that would do the same; the quickest on the GPU are run.
    ``parts``: inputs that lie in its result already, as those who made them wrote them there.
    ``is_boundary``: no node of the file, but the copies of the model's inputs or outputs.
    ``phase``: "forward", or in training also "backward" or "optimizer".
    ``tensors_each``: of the optimizer, how many tensors a launch goes through.
    ``on_host_because``: of an operator that the runtime gives to the CPU, which version, type or form of it has no GPU
    kernel; "" where none has.
    """

    node: str
    op_type: str
    origins: tuple[tuple[str, str], ...] = ()
    kernels: tuple[Kernel, ...] = ()
    alternatives: tuple[tuple[Kernel, ...], ...] = ()
    free: str | None = None
    unsupported: str | None = None
    count: int = 1
    branch: tuple[str, ...] = ()
    host_operation: bool = False
    host_waits: bool = False
    merged_into: str | None = None
    written: bool = False
    parts: tuple[str, ...] = ()
    is_boundary: bool = False
    phase: str = "forward"
    tensors_each: float = 1.0
    on_host_because: str | None = None

    def with_kernels(self, kernels: tuple[Kernel, ...]) -> NodeWork:
        """The same work by other kernels: as ``replace`` does it in thrice the time, for most works of a run."""
        return NodeWork(
            node=self.node,
            op_type=self.op_type,
            origins=self.origins,
            kernels=kernels,
            alternatives=self.alternatives,
            free=self.free,
            unsupported=self.unsupported,
            count=self.count,
            branch=self.branch,
            host_operation=self.host_operation,
            host_waits=self.host_waits,
            merged_into=self.merged_into,
            written=self.written,
            parts=self.parts,
            is_boundary=self.is_boundary,
            phase=self.phase,
            on_host_because=self.on_host_because,
        )
