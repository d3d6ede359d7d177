"""Matrix products, convolutions, and the serial products of recurrent cells."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels.tensors import TensorSpec, bytes_of

RowPadding: TypeAlias = Literal["", "stored", "copied"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """``(b, m, k) @ (b, k, n) -> (b, m, n)``, with what is fused behind it.

    ``a_batch`` and ``b_batch`` are 1 where one operand is shared by the whole batch (read once), else ``batch``.
    ``b_is_weight``: the right operand is a constant of the model (a linear layer); ``b_is_cast_weight``: a copy of one
    in another type, which the run has made just before, so that it may lie in L2. ``transpose_a`` and ``transpose_b``
    describe memory: the operand is stored (k, m), (n, k). ``dtype`` is the type that is
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
    ``any_tile``: a batch in FP32 by an engine's own kernels, of whose many tiles its builder takes the quickest; else
    by cuBLAS, which has few for a batch.
    ``row_padding``: what is done about rows that aren't whole vectors of 16 bytes: "" (nothing), "stored" (they lie
    padded in memory), "copied" (kernels copy the operands to padded ones where that is quicker).
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
    b_is_cast_weight: bool = False
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
    any_tile: bool = False
    row_padding: RowPadding = ""
    uneven_rows: int | None = None

    @property
    def is_linear(self) -> bool:
        """Whether it is a linear layer's."""
        return self.b_is_weight or self.b_is_cast_weight

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
    ``kept_in_l2``, ``burst``, ``activity`` and ``accumulator``: as a product's. ``by_cudnn7``: measured with cuDNN 7,
    which has fewer kernels on matrix units for Volta and Turing than the library of today.
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
    by_cudnn7: bool = False

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
        return self.dtype.bytes_of(self.steps * self.directions * self.b * self.h) + bytes_of(self.extra_outputs)
