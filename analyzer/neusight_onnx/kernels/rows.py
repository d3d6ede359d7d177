"""What goes over rows or windows of a tensor: softmax, normalization, reduction, pooling."""

from __future__ import annotations

from dataclasses import dataclass

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels.movement import Move
from neusight_onnx.kernels.operations import ROW_FLOPS, operation_flops
from neusight_onnx.kernels.tensors import TensorSpec, bytes_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax:
    """Softmax (or log-softmax) over ``cols`` of each of ``rows``; 5 FLOPs an element.

    ``inner`` > 1: the axis is not the last one, neighbours along it are ``inner`` elements apart.
    ``fused``: pointwise operations before and after it, whose operands are in ``extra_inputs`` and whose results may
    be written as well (``extra_outputs``).
    ``backward``: the gradient of the input from that of the result, with the result in ``extra_inputs``: a sum over the
    row, then one operation an element. ``generated``: a compiler wrote the kernel, in place of PyTorch's. ``by_block``:
    a block of threads takes a row, however short. ``library`` and ``moves`` are as in :class:`Elementwise`.
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
    moves: tuple[Move, ...] = ()

    @property
    def macs(self) -> int:
        return 0

    @property
    def is_streamed(self) -> bool:
        """Whether it is a generated kernel whose rows stay on chip."""
        return self.generated and not self.backward

    @property
    def flops(self) -> int:
        return (ROW_FLOPS["softmax"] + operation_flops(self.fused)) * self.rows * self.cols

    @property
    def read_bytes(self) -> int:
        return self.dtype.bytes_of(self.rows * self.cols) + bytes_of(self.extra_inputs)

    @property
    def write_bytes(self) -> int:
        return (self.output_dtype or self.dtype).bytes_of(self.rows * self.cols) + bytes_of(self.extra_outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalization:
    """Normalization of ``rows`` groups of ``cols`` elements each.

    ``method``: "layer", "rms", "group", "instance", "batch" (batch at inference: statistics are given, so it
    is a scale and shift per channel, one pass; in training "statistics" is in ``fused``), "lp", "local_response".
    ``parameter_count``: elements of scale, shift and given statistics, read once. ``fused``: e.g. ("add",) for a
    residual added before, whose operand is in ``extra_inputs`` and whose sum may be written as well
    (``extra_outputs``). ``access`` is as in :class:`Elementwise`. ``backward``: the gradient of the input, from the
    input and the result's gradient (in ``extra_inputs``, with the statistics that were saved). ``generated``: a
    compiler wrote the kernel, in place of PyTorch's. ``library`` and ``moves`` are as in :class:`Elementwise`.
    ``at_once``: elements of a residual and its normalization that a thread of an early ONNX Runtime takes at once; 0:
    as today's. ``is_split``: all SMs share the rows, however few ("group" and "instance").
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
    is_split: bool = False
    moves: tuple[Move, ...] = ()

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
        return (per_element + operation_flops(self.fused)) * self.rows * self.cols

    @property
    def read_bytes(self) -> int:
        return self.dtype.bytes_of(self.rows * self.cols + self.parameter_count) + bytes_of(self.extra_inputs)

    @property
    def write_bytes(self) -> int:
        return (self.output_dtype or self.dtype).bytes_of(self.rows * self.cols) + bytes_of(self.extra_outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """``outputs`` results, each over ``reduced`` elements: sum, mean, max, argmax, cumulative sums, norms.

    ``inner`` > 1: reduced elements are ``inner`` apart in memory. ``output`` is what is written (all elements
    for a cumulative sum, and where ``fused`` says what is done with the result before it is written).
    ``fused``: operations on the elements, before and after it; ``epilogue``: operations on the results, one a row.
    ``extra_inputs`` and ``extra_outputs`` are as in :class:`Softmax`, ``library`` and ``moves`` as in
    :class:`Elementwise`.
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
    moves: tuple[Move, ...] = ()

    @property
    def macs(self) -> int:
        return 0

    @property
    def flops(self) -> int:
        per_element = ROW_FLOPS.get(self.operation, 1) + operation_flops(self.fused)
        return (per_element * self.reduced + operation_flops(self.epilogue)) * self.outputs

    @property
    def read_bytes(self) -> int:
        return self.dtype.bytes_of(self.outputs * self.reduced) + bytes_of(self.extra_inputs)

    @property
    def write_bytes(self) -> int:
        return self.output.byte_count + bytes_of(self.extra_outputs)


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
        return self.input.byte_count + bytes_of(self.extra_inputs)

    @property
    def write_bytes(self) -> int:
        return self.output.byte_count + bytes_of(self.extra_outputs)
