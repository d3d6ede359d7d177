"""The table of gradients: one operator, one rule; a second claim on the same operator is refused.

A rule says what PyTorch's autograd executes for a node whose result has a gradient: the kernels, which gradients they
leave, and what had to be kept from the run forward. Operators without a rule of their own are differentiated by the
kernels that they became (``by_kernel``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.kernels import Kernel, Movement, Reduction, TensorSpec
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.views import copy_kernel
from neusight_onnx.strides import channels_last_strides, contiguous_strides, is_channels_last, is_contiguous


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The gradient that a node leaves for one of its inputs.

    ``strides``: where its elements lie, None for row-major order. ``shares``: it is the memory of the result's gradient
    (of the output with this index), passed on or seen in another way; None: memory of its own.
    """

    strides: tuple[int, ...] | None = None
    shares: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivative:
    """What a node's gradient takes. ``flows``: by index of the input.

    ``saved``: values of the graph that are kept for it from the run forward (views keep the memory behind them).
    ``kept_bytes``: what the forward kernels leave for it besides: statistics, indices, copies.
    """

    kernels: tuple[Kernel, ...] = ()
    flows: Mapping[int, Flow] = field(default_factory=dict)
    saved: tuple[str, ...] = ()
    kept_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """There is no model of the node's gradient, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class BackwardContext:
    """A node, the kernels that it became, which inputs need a gradient, and where the results' gradients lie.

    ``strides``: of each output's gradient, None in row-major order. ``arrived``: outputs that have a gradient.
    """

    forward: NodeContext
    kernels: tuple[Kernel, ...]
    needs: frozenset[int]
    arrived: frozenset[int]
    strides: Mapping[int, tuple[int, ...] | None]

    @property
    def graph(self) -> InferredGraph:
        return self.forward.graph

    @property
    def op_type(self) -> str:
        return self.forward.node.op_type

    def name(self, index: int) -> str:
        return self.forward.node.inputs[index]

    def shape(self, index: int) -> tuple[int, ...]:
        return self.forward.shape(index)

    def spec(self, index: int) -> TensorSpec:
        return self.forward.spec(index)

    def whole(self, index: int) -> TensorSpec:
        """Dtype and shape of an input, repeated elements counted."""
        return TensorSpec(dtype=self.forward.dtype(index), shape=self.shape(index))

    def out(self, index: int = 0) -> TensorSpec:
        return self.forward.out(index)

    def output_name(self, index: int = 0) -> str:
        return self.forward.node.outputs[index]

    def is_wide(self, index: int) -> bool:
        """Whether an input is a tensor of more than one element, which is read and kept."""
        value = self.forward.value(index)
        return value is not None and value.shape is not None and value.element_count != 1

    def gradient(self, index: int = 0) -> TensorSpec:
        """What a kernel reads of an output's gradient: repeated elements count once."""
        spec, strides = self.out(index), self.strides.get(index)
        if strides is None:
            return spec
        shape = tuple(1 if stride == 0 else size for size, stride in zip(spec.shape, strides, strict=True))
        return TensorSpec(dtype=spec.dtype, shape=shape)

    def gradient_strides(self, index: int = 0) -> tuple[int, ...]:
        strides = self.strides.get(index)
        return contiguous_strides(self.out(index).shape) if strides is None else strides

    def contiguous_gradient(self, index: int = 0) -> tuple[Movement, ...]:
        """The copy that a kernel makes which needs the gradient in row-major order; () if it lies so."""
        strides = self.strides.get(index)
        if strides is None:
            return ()
        spec = self.out(index)
        return (copy_kernel(spec.dtype, spec.shape, strides),)

    def ordered_gradient(self) -> tuple[Movement, ...]:
        """The copy that a kernel over (n, c, *spatial) makes which needs the gradient in the order that the result lies
        in; () if it lies so."""
        spec, strides = self.out(), self.gradient_strides()
        if self.output_name() not in self.forward.layouts:
            return self.contiguous_gradient()
        if is_channels_last(spec.shape, strides):
            return ()
        return (copy_kernel(spec.dtype, spec.shape, strides),)

    def summed(self, index: int) -> tuple[Kernel, ...]:
        """The sum that takes a gradient of the result's shape to that of an input which was broadcast."""
        return reduce_to(self.out(), self.shape(index))

    def own(self, *indices: int) -> dict[int, Flow]:
        """Flows in memory of their own for those of these inputs that need one: channels last where the input is."""
        return {index: Flow(strides=self.lies(index)) for index in indices if index in self.needs}

    def lies(self, index: int) -> tuple[int, ...] | None:
        """Strides of a tensor that is made like an input: channels last or, None, in row-major order."""
        return channels_last_strides(self.shape(index)) if self.forward.channels_last(index) else None


def dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides as flows write them: None in row-major order."""
    return None if is_contiguous(shape, strides) else strides


def reduce_to(gradient: TensorSpec, shape: tuple[int, ...]) -> tuple[Kernel, ...]:
    """The kernel that sums a gradient over the dimensions along which ``shape`` was repeated; () if none was.

    As autograd's ``sum_to_size``: one sum over all of them.
    """
    full = gradient.shape
    padded = (1,) * (len(full) - len(shape)) + shape
    chosen = [axis for axis, (old, new) in enumerate(zip(full, padded, strict=True)) if old != new and new == 1]
    if not chosen:
        return ()
    return (sum_kernel(gradient, tuple(chosen), shape),)


def sum_kernel(
    source: TensorSpec, axes: tuple[int, ...], target: tuple[int, ...], *, extra: tuple[TensorSpec, ...] = ()
) -> Reduction:
    """The sum of ``source`` over ``axes``, written as ``target``."""
    reduced = kept = inner = 1
    last = max(axes)
    for axis, size in enumerate(source.shape):
        if axis in axes:
            reduced *= size
        else:
            kept *= size
        if axis > last:
            inner *= size
    return Reduction(
        operation="sum",
        outputs=kept,
        reduced=reduced,
        inner=max(inner, 1),
        dtype=source.dtype,
        output=TensorSpec(dtype=source.dtype, shape=target),
        extra_inputs=extra,
    )


Function: TypeAlias = "Callable[[BackwardContext], Derivative | Unknown]"

RULES: dict[tuple[str, str], Function] = {}

INPUTS: dict[tuple[str, str], tuple[int, ...]] = {}
"""Inputs through which a gradient can pass, where not all of them are."""


def differentiates(
    *op_types: str, domain: str = "", inputs: tuple[int, ...] | None = None
) -> Callable[[Function], Function]:
    """Registers the decorated function as the gradient of ``op_types`` in ``domain``.

    ``inputs``: those that a gradient passes through, None: all. Raises ValueError where an operator has one already.
    """

    def register(function: Function) -> Function:
        for op_type in op_types:
            key = (domain, op_type)
            if key in RULES:
                raise ValueError(f"the gradient of {domain or 'ai.onnx'}::{op_type} has a rule already: {RULES[key]}")
            RULES[key] = function
            if inputs is not None:
                INPUTS[key] = inputs
        return function

    return register


_LOGIC = frozenset(
    {"And", "Or", "Xor", "Not", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsInf", "IsNaN"}
    | {"BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"}
)
_SHAPES = frozenset({"Shape", "Size", "ConstantOfShape", "Range", "EyeLike", "OneHot", "Constant"})
SILENT = _LOGIC | _SHAPES
"""Operators without a gradient of which nobody expects one."""

STEPS = frozenset({"Floor", "Ceil", "Round", "Sign", "Mod", "Hardmax"})
CHOICES = frozenset({"ArgMax", "ArgMin", "NonZero", "NonMaxSuppression", "Unique", "Multinomial", "Bernoulli"}) | {
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}
NO_GRADIENT = SILENT | STEPS | CHOICES
"""Operators whose derivative is zero wherever it exists, or that choose."""


def has_gradient(domain: str, op_type: str) -> bool:
    """Whether a gradient can pass an operator; quantised ones round, and are no more than an estimate otherwise."""
    if (domain, op_type) in RULES:
        return True
    if op_type in NO_GRADIENT:
        return False
    quantised = "Quantize" in op_type or op_type.startswith(("QLinear", "QAttention", "QGemm", "QMoE", "QOrdered"))
    return not (quantised or "Integer" in op_type or op_type == "MatMulNBits")


def is_differentiable(dtype: DataType | None) -> bool:
    return dtype is not None and dtype.is_float and dtype.bits >= 16
