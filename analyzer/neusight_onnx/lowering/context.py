"""What a rule sees of its node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Array, InferredGraph, Node, Origin, Value
from neusight_onnx.kernels import Movement, TensorSpec
from neusight_onnx.lowering.views import AS_EXPORTED, Layout, Order, copy_kernel, latest
from neusight_onnx.runtime import Runtime
from neusight_onnx.strides import (
    channels_last_strides,
    contiguous_strides,
    is_channels_last,
    is_contiguous,
    suggests_channels_last,
)

LAZY_VIEWS = frozenset({"eager", "compiled"})
"""Runtimes whose tensors have strides, so that Transpose, Slice, Expand and Reshape move nothing by themselves."""


SEPARATE_BIAS = frozenset({"eager", "onnxruntime"})
"""Runtimes that add a convolution's bias in a kernel of its own: PyTorch by ``output.add_(bias)``, ONNX Runtime's CUDA
provider by cudnnAddTensor, unless its option fuse_conv_bias is set (it isn't by default)."""


@dataclass(frozen=True, slots=True)
class NodeContext:
    """One node with the facts of its values. Inputs and outputs that are absent are None.

    ``executor``: the runtime that executes it, ``runtime`` its name.
    ``layouts`` maps the values that aren't contiguous to their strides; it is empty in runtimes without views.
    ``order``: which convolutions work channels last whatever their input.
    """

    node: Node
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value | None, ...]
    executor: Runtime
    layouts: Mapping[str, Layout]
    graph: InferredGraph
    order: Order = AS_EXPORTED

    @property
    def runtime(self) -> str:
        return self.executor.name

    @property
    def lazy(self) -> bool:
        return self.runtime in LAZY_VIEWS

    @property
    def version(self) -> int:
        return self.node.version

    def value(self, index: int) -> Value | None:
        """The input at ``index``, None if it is absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def shape(self, index: int) -> tuple[int, ...]:
        """The shape of an input that must be there."""
        value = self.inputs[index]
        assert value is not None
        assert value.shape is not None
        return value.shape

    def dtype(self, index: int) -> DataType:
        value = self.inputs[index]
        assert value is not None
        return value.dtype or DataType.FLOAT32

    def spec(self, index: int) -> TensorSpec:
        """Dtype and shape of an input; dimensions that a view only repeats count as 1."""
        shape = self.shape(index)
        layout = self.layouts.get(self.node.inputs[index])
        if layout is not None and 0 in layout.strides:
            shape = tuple(1 if stride == 0 else size for size, stride in zip(shape, layout.strides, strict=True))
        return TensorSpec(dtype=self.dtype(index), shape=shape)

    def out(self, index: int = 0) -> TensorSpec:
        """Dtype and shape of an output that must be there."""
        value = self.outputs[index]
        assert value is not None
        assert value.shape is not None
        return TensorSpec(dtype=value.dtype or DataType.FLOAT32, shape=value.shape)

    def has_output(self, index: int) -> bool:
        """Whether an output is asked for, with a known shape."""
        if index >= len(self.outputs):
            return False
        value = self.outputs[index]
        return value is not None and value.shape is not None

    def other_outputs(self, start: int = 1) -> tuple[TensorSpec, ...]:
        """The outputs from ``start`` on that are asked for."""
        return tuple(self.out(index) for index in range(start, len(self.outputs)) if self.has_output(index))

    def data(self, index: int) -> Array | None:
        """The value of an input, if it is known."""
        value = self.value(index)
        return None if value is None or value.data_low is not None else value.data

    def ints(self, index: int) -> tuple[int, ...] | None:
        """The value of an input of integers, flat, if it is known."""
        data = self.data(index)
        return None if data is None else tuple(int(item) for item in np.asarray(data).reshape(-1))

    def number(self, index: int) -> float | None:
        """The value of an input of one element, if it is known."""
        data = self.data(index)
        if data is None or data.size != 1 or not np.issubdtype(data.dtype, np.number):
            return None
        return float(cast("float", np.asarray(data).reshape(-1)[0]))

    def integer(self, name: str, default: int) -> int:
        value = self.node.attributes.get(name)
        return value if isinstance(value, int) else default

    def real(self, name: str, default: float) -> float:
        value = self.node.attributes.get(name)
        return float(value) if isinstance(value, int | float) else default

    def text(self, name: str, default: str) -> str:
        value = self.node.attributes.get(name)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        return value if isinstance(value, str) else default

    def integers(self, name: str) -> tuple[int, ...] | None:
        value = self.node.attributes.get(name)
        if isinstance(value, tuple) and all(isinstance(item, int) for item in value):
            return cast("tuple[int, ...]", value)
        return None

    def length(self, name: str) -> int:
        """The number of elements of a list attribute, or of a tensor attribute; 0 if it is absent."""
        value = self.node.attributes.get(name)
        if isinstance(value, tuple):
            return len(value)
        count = getattr(value, "element_count", None)
        return count if isinstance(count, int) else 0

    def strides(self, index: int) -> tuple[int, ...]:
        """Strides of an input in elements."""
        layout = self.layouts.get(self.node.inputs[index])
        return contiguous_strides(self.shape(index)) if layout is None else layout.strides

    def layout(self, index: int) -> Layout | None:
        """The layout of an input, None if it is contiguous."""
        return self.layouts.get(self.node.inputs[index])

    def view(self, index: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Layout | None:
        """The layout of a view of an input: None if it is contiguous. This node joins those that made it."""
        if not self.lazy or is_contiguous(shape, strides):
            return None
        before = self.layout(index)
        own = self.node.stands_for
        return Layout(strides=strides, origins=latest((*(() if before is None else before.origins), *own)))

    def contiguous(self, index: int, *, channels_last: bool = False) -> tuple[Movement, ...]:
        """The copy that an operator makes which needs its input in row-major order; () if it lies so.

        ``channels_last``: one that lies in the order (n, *spatial, c) is wanted in that, without gaps.
        """
        layout = self.layout(index)
        if layout is None:
            return ()
        if channels_last and self.channels_last(index):
            return self.dense_channels_last(index)
        return (copy_kernel(self.dtype(index), self.shape(index), layout.strides),)

    def dense_channels_last(self, index: int) -> tuple[Movement, ...]:
        """The copy that an operator makes which needs its input in (n, *spatial, c) order; () if it lies so."""
        shape, strides = self.shape(index), self.strides(index)
        if is_channels_last(shape, strides):
            return ()
        order = (0, *range(2, len(shape)), 1)
        seen = [tuple(sizes[axis] for axis in order) for sizes in (shape, strides)]
        return (copy_kernel(self.dtype(index), seen[0], seen[1]),)

    def channels_last(self, index: int) -> bool:
        """Whether PyTorch takes an input for one in (n, *spatial, c) order, with gaps or without."""
        layout = self.layout(index)
        return layout is not None and suggests_channels_last(self.shape(index), layout.strides)

    def channels_last_output(self, index: int = 0) -> tuple[Layout | None, ...]:
        """Layouts of the first output if it lies in (n, *spatial, c) order, as the input at ``index`` does."""
        layout = self.layout(index)
        if layout is None or not self.channels_last(index):
            return ()
        shape = self.out().shape
        if len(shape) != len(self.shape(index)):
            return ()
        return written_channels_last(shape, layout.origins)


def written_channels_last(shape: tuple[int, ...], origins: tuple[Origin, ...] = ()) -> tuple[Layout | None, ...]:
    """Layouts of a first output (n, c, *spatial) that is written as (n, *spatial, c): () where that is row-major."""
    strides = channels_last_strides(shape)
    return () if is_contiguous(shape, strides) else (Layout(strides=strides, origins=origins),)
