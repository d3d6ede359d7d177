"""Group and instance normalization as PyTorch runs them, forward and backward (launches of torch 2.9.1 on stand-ins).

A group normalization takes the moments of each group, a block a group (``RowwiseMomentsCUDAKernel``); a small kernel
makes a factor and a summand of each channel of each sample from them, the scale and the shift; a pointwise kernel
applies them. Without scale and shift, or without positions, the second is left out. Backwards two sums of each channel
come first, then small kernels for factors of the channels and summands of the groups, a pointwise kernel for the
input's gradient, and one over the samples for those of scale and shift.

An instance normalization is a batch normalization of one sample with n * c channels, whose scale and shift are
repeated before (``instance_norm`` of ATen/native/Normalization.cpp), and their gradients summed over samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Elementwise, Kernel, Movement, Reduction, TensorSpec
from neusight_onnx.lowering.batch_norm import BatchNorm
from neusight_onnx.lowering.context import NodeContext

STATISTIC = DataType.FLOAT32


@dataclass(frozen=True, slots=True)
class GroupNorm:
    """x (n, c, p) in ``groups`` groups of channels; ``is_affine``: with a scale and a shift of c elements."""

    dtype: DataType
    n: int
    c: int
    p: int
    groups: int
    is_affine: bool

    def forward(self) -> tuple[Kernel, ...]:
        x, factor, vector, each = self._elements(), self._of_channels(), self._vector(), self._of_groups()
        if not self.is_affine or self.p == 1:
            steps = ("sub", "mul", *("mul", "add") * self.is_affine)
            operands = (each, each, *(vector, vector) * self.is_affine)
            return (self._moments(), Elementwise(operations=steps, inputs=(x, *operands), output=x))
        parameters = Elementwise(
            operations=("mul", "mul", "sub"),
            inputs=(each, each, vector, vector),
            output=factor,
            extra_outputs=(factor,),
        )
        applied = Elementwise(operations=("mul", "add"), inputs=(x, factor, factor), output=x)
        return (self._moments(), parameters, applied)

    def backward(self, parameters: int) -> tuple[Kernel, ...]:
        """``parameters``: of how many of scale and shift a gradient is asked for."""
        x, factor, each = self._elements(), self._of_channels(), self._of_groups()
        sums = Reduction(
            operation="channel_moments",
            outputs=self.n * self.c,
            reduced=self.p,
            dtype=self.dtype,
            output=TensorSpec(dtype=STATISTIC, shape=(2, self.n, self.c)),
            fused=("mul", "add"),
            extra_inputs=(x,),
        )
        factors = Elementwise(operations=("mul",), inputs=(each, self._vector()), output=factor)
        of_groups = Reduction(
            operation="sum",
            outputs=self.n * self.groups,
            reduced=self.c // self.groups,
            dtype=STATISTIC,
            output=TensorSpec(dtype=STATISTIC, shape=(2, self.n, self.groups)),
            fused=("mul", "mul"),
            extra_inputs=(factor, each, each),
        )
        applied = Elementwise(operations=("mul", "mul", "add", "add"), inputs=(x, factor, x, each, each), output=x)
        of_parameters = Reduction(
            operation="sum",
            outputs=self.c,
            reduced=self.n,
            inner=self.c,
            dtype=STATISTIC,
            output=TensorSpec(dtype=self.dtype, shape=(max(parameters, 1), self.c)),
            fused=("mul", "sub", "mul"),
            extra_inputs=(factor, each, each),
        )
        before = () if self.p == 1 else (sums, factors) if self.is_affine else (sums,)
        return (*before, of_groups, applied, *((of_parameters,) if parameters else ()))

    def _elements(self) -> TensorSpec:
        """x, and what has its shape: (n, groups, c / groups, p)."""
        return TensorSpec(dtype=self.dtype, shape=(self.n, self.groups, self.c // self.groups, self.p))

    def _of_channels(self) -> TensorSpec:
        return TensorSpec(dtype=STATISTIC, shape=(self.n, self.groups, self.c // self.groups, 1))

    def _of_groups(self) -> TensorSpec:
        return TensorSpec(dtype=STATISTIC, shape=(self.n, self.groups, 1, 1))

    def _vector(self) -> TensorSpec:
        """Scale or shift."""
        return TensorSpec(dtype=self.dtype, shape=(self.groups, self.c // self.groups, 1))

    def _moments(self) -> Reduction:
        return Reduction(
            operation="channel_moments",
            outputs=self.n * self.groups,
            reduced=self.c // self.groups * self.p,
            dtype=self.dtype,
            output=TensorSpec(dtype=STATISTIC, shape=(2, self.n, self.groups)),
            fused=("sub", "div", "mul"),
        )


def group_norm_of(context: NodeContext) -> GroupNorm:
    """What a GroupNormalization node over (n, c, *spatial) is."""
    shape = context.shape(0)
    groups = context.integer("num_groups", 0) or context.integer("groups", 1)
    return GroupNorm(
        dtype=context.dtype(0),
        n=shape[0],
        c=shape[1],
        p=prod(shape[2:]),
        groups=groups,
        is_affine=context.has(1),
    )


@dataclass(frozen=True, slots=True)
class InstanceNorm:
    """A batch normalization of n * c channels; ``repeats``: the scale and the shift are copied n times before."""

    norm: BatchNorm
    n: int
    c: int
    parameter_dtype: DataType
    is_affine: bool

    def forward(self) -> tuple[Kernel, ...]:
        size = self.parameter_dtype.bytes_of(self.c)
        copy = Movement(
            operation="copy", dtype=self.parameter_dtype, shape=(self.n, self.c), read=size, written=self.n * size
        )
        return (*((copy, copy) if self.is_affine else ()), *self.norm.forward())

    def backward(self, gradient: TensorSpec, parameters: int) -> tuple[Kernel, ...]:
        """``parameters``: of how many of scale and shift a gradient is asked for; one sample's is theirs already."""
        vector = TensorSpec(dtype=self.parameter_dtype, shape=(self.c,))
        step = Reduction(
            operation="sum", outputs=self.c, reduced=self.n, inner=self.c, dtype=self.parameter_dtype, output=vector
        )
        summed = parameters if self.is_affine and self.n > 1 else 0
        return (*self.norm.backward(gradient), *(step,) * summed)


def instance_norm_of(context: NodeContext) -> InstanceNorm:
    """What an InstanceNormalization node over (n, c, *spatial) is.

    Exporters write a scale of ones and a shift of zeros where the module has none.
    """
    shape = context.shape(0)
    scale, shift = context.data(1), context.data(2)
    is_affine = scale is None or shift is None or bool((scale != 1).any() or (shift != 0).any())
    dtype, parameters = context.dtype(0), context.dtype(1)
    is_narrow = dtype is DataType.BFLOAT16 or (dtype is DataType.FLOAT16 and parameters is not DataType.FLOAT32)
    channels = shape[0] * shape[1]
    norm = BatchNorm(
        dtype=dtype,
        images=1,
        channels=channels,
        positions=prod(shape[2:]),
        parameter_count=2 * channels if is_affine else 0,
        is_compiled=False,
        lies_apart=False,
        by_cudnn=is_affine and not is_narrow,
        is_module=False,
    )
    return InstanceNorm(norm=norm, n=shape[0], c=shape[1], parameter_dtype=parameters, is_affine=is_affine)
