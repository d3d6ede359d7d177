"""Batch normalization by the batch's own statistics, forward and backward, as PyTorch runs it.

What launches, and how rows are split among blocks, is what PyTorch 2.9.1 does on stand-ins for CUDA's libraries:

- Images in FP32, and in FP16 with parameters in FP32 (autocast), are cuDNN's; BF16, and FP16 parameters, PyTorch's own.
- In row-major order PyTorch's statistics have one block of 512 threads a channel, an element a thread at a time
  (``batch_norm_collect_statistics_kernel``), and so has the whole run backwards (``batch_norm_backward_kernel``). What
  cuDNN does there isn't known; it is taken to be one block a channel, too (``CUDNN_BATCHNORM_SPATIAL``).
- In channels last, and of features without positions, blocks of 32 channels go through up to 128 parts of the rows,
  then a second kernel through the elements: (2, 128) blocks of (32, 16) threads for 64 channels, forward and backward
  alike. cuDNN is asked for ``CUDNN_BATCHNORM_SPATIAL_PERSISTENT`` there, which is taken to go by its bytes, too.
- TorchInductor writes a reduction and pointwise work in either order. Where rows are long and few, or elements lie
  apart, a small kernel adds parts up; backwards one for each of both sums.
- A module counts its runs in a kernel of its own (``num_batches_tracked``).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Elementwise, Kernel, Normalization, Reduction, TensorSpec
from neusight_onnx.lowering.context import NodeContext

SPLIT_COLUMNS, SPLIT_ROWS = 8192, 200
"""Inductor reduces longer rows in two kernels where there are fewer (``reduction_split_factor``)."""
SPLIT_APART = 128
"""The same for any number of rows whose elements lie apart: 128 are one kernel's, 6,272 two kernels'."""
LEAST_PARTS, PART = 64, 2048
"""How many parts those then are, of how many elements at most: 49 of 6,272 elements, 64 of 12,544, 1,568 of 3.2 M."""

_WELFORD = ("sub", "div", "mul")
_SUMS = ("sub", "mul", "add")


@dataclass(frozen=True, slots=True)
class BatchNorm:
    """A batch normalization of (n, c, *spatial) that takes the statistics of ``channels`` over ``elements`` each."""

    dtype: DataType
    images: int
    channels: int
    positions: int
    parameter_count: int
    is_compiled: bool
    lies_apart: bool
    by_cudnn: bool
    is_module: bool

    @property
    def elements(self) -> int:
        return self.images * self.positions

    @property
    def is_split(self) -> bool:
        """Whether a channel's elements are split among blocks."""
        return self.is_compiled or self.lies_apart

    def forward(self) -> tuple[Kernel, ...]:
        counter = TensorSpec(dtype=DataType.INT64, shape=())
        counted = (Elementwise(operations=("add",), inputs=(counter,), output=counter),) if self.is_module else ()
        if self.by_cudnn and not self.is_split:
            return (*counted, self._in_one())
        return (*counted, *self._statistics(), self._applied())

    def backward(self, gradient: TensorSpec) -> tuple[Kernel, ...]:
        """All three gradients: two sums a channel, then the input's by elements; ``gradient`` is the result's."""
        saved = TensorSpec(dtype=DataType.FLOAT32, shape=(self.channels, 2))
        if not self.is_split:
            return (self._in_one(backward=True, extra_inputs=(gradient, saved)),)
        sums = self._reduction("norm_parameters", _SUMS, extra_inputs=(gradient,))
        return (
            sums,
            *self._second_steps(sums, 2),
            self._applied(backward=True, extra_inputs=(gradient, saved)),
        )

    def _statistics(self) -> tuple[Kernel, ...]:
        """Mean and variance of each channel; what becomes of them: inverse deviations, running statistics."""
        if self.is_compiled:
            moments = self._reduction("moments", _WELFORD)
            return (moments, *self._second_steps(moments, 1))
        moments = self._reduction("moments" if self.is_split else "channel_moments", _WELFORD)
        if self.by_cudnn:
            return (moments,)
        vector = TensorSpec(dtype=DataType.FLOAT32, shape=(self.channels,))
        running = 2 if self.is_module else 0
        update = Elementwise(
            operations=("rsqrt", *("mul", "add") * running),
            inputs=(vector,) * (2 + running if running else 1),
            output=vector,
            extra_outputs=(vector,) * running,
        )
        return (moments, update)

    def _reduction(
        self, operation: str, fused: tuple[str, ...], extra_inputs: tuple[TensorSpec, ...] = ()
    ) -> Reduction:
        return Reduction(
            operation=operation,
            outputs=self.channels,
            reduced=self.elements,
            inner=self.channels if self.lies_apart else 1,
            dtype=self.dtype,
            output=TensorSpec(dtype=DataType.FLOAT32, shape=(self.channels, 2)),
            fused=fused,
            extra_inputs=extra_inputs,
        )

    def _second_steps(self, first: Reduction, count: int) -> tuple[Reduction, ...]:
        """What adds up the parts of channels that TorchInductor's first kernel leaves."""
        few_and_long = self.channels < SPLIT_ROWS and self.elements > SPLIT_COLUMNS
        is_finished = not (few_and_long or (self.lies_apart and self.elements > SPLIT_APART))
        if not self.is_compiled or is_finished:
            return ()
        step = Reduction(
            operation="sum_parts",
            outputs=self.channels,
            reduced=max(LEAST_PARTS, ceil(self.elements / PART)),
            dtype=DataType.FLOAT32,
            output=first.output,
        )
        return (step,) * count

    def _applied(self, *, backward: bool = False, extra_inputs: tuple[TensorSpec, ...] = ()) -> Normalization:
        """The pass through the elements, once the statistics or sums are there."""
        return Normalization(
            method="batch",
            rows=self.images * self.channels,
            cols=self.positions,
            parameter_count=self.parameter_count,
            backward=backward,
            dtype=self.dtype,
            extra_inputs=extra_inputs,
            generated=self.is_compiled,
        )

    def _in_one(self, *, backward: bool = False, extra_inputs: tuple[TensorSpec, ...] = ()) -> Normalization:
        """One kernel with a block for each channel, which goes through its elements twice."""
        return Normalization(
            method="batch",
            rows=self.channels,
            cols=self.elements,
            parameter_count=self.parameter_count,
            backward=backward,
            dtype=self.dtype,
            fused=("statistics",),
            extra_inputs=extra_inputs,
            extra_outputs=() if backward else (TensorSpec(dtype=DataType.FLOAT32, shape=(self.channels, 2)),),
        )


def batch_norm_of(context: NodeContext) -> BatchNorm:
    """What a BatchNormalization node is in training; ``own_statistics``: a function's, which keeps nothing running."""
    shape = context.shape(0)
    channels = shape[1] if len(shape) > 1 else 1
    is_function = context.integer("own_statistics", 0) == 1
    dtype, parameters = context.dtype(0), context.dtype(1)
    is_narrow = dtype is DataType.BFLOAT16 or (dtype is DataType.FLOAT16 and parameters is not DataType.FLOAT32)
    return BatchNorm(
        dtype=dtype,
        images=shape[0] if shape else 1,
        channels=channels,
        positions=prod(shape[2:]),
        parameter_count=sum(context.spec(index).element_count for index in (1, 2, 3, 4) if context.has(index)),
        is_compiled=context.runtime == "compiled",
        lies_apart=len(shape) == 2 or context.channels_last(0),
        by_cudnn=len(shape) > 2 and not is_narrow and not is_function,
        is_module=not is_function,
    )
