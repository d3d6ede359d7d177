"""What stands in for values that no rule can infer: the user's word, then the file's, then a default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import BindingError, shown
from neusight_onnx.graph.dimension_roles import default_size
from neusight_onnx.graph.model import (
    Declared,
    Graph,
    Initializer,
    Node,
    Value,
)
from neusight_onnx.graph.names import option
from neusight_onnx.graph.shapes.walk import Walk


def stand_in_values(node: Node, graph: Graph, walk: Walk, inputs: Sequence[Value | None], *, cause: str) -> list[Value]:
    """What stands in for the outputs of a node that could not be inferred: the user's word, then the file's."""
    result = []
    for name in node.outputs:
        given = walk.bindings.shapes.get(name) if name else None
        declared = graph.declared.get(name) if name else None
        if declared is None and name:
            declared = next((output for output in graph.outputs if output.name == name), None)
        value = (
            Value(dtype=None, shape=None, unknown_because=cause)
            if declared is None
            else declared_value(declared, walk.symbols, cause=cause)
        )
        if given is not None:
            value = replace(value, shape=tuple(given), unknown_because=None)
        if value.dtype is None and (node.domain, node.op_type) in _TYPED:
            value = replace(value, dtype=_stated_dtype(node, inputs))
        if value.dtype is None:
            value = replace(value, dtype=_likely_dtype(inputs))
            walk.guessed = True
        result.append(value)
    return result


def declared_value(declared: Declared, symbols: Mapping[str, int], *, cause: str | None) -> Value:
    """What the file declares, with symbols replaced by their sizes; shape None if a dimension is left open."""
    shape: list[int] | None = None
    if declared.shape is not None:
        shape = []
        for dim in declared.shape:
            size = symbols.get(dim) if isinstance(dim, str) else dim
            if size is None or size < 0:
                shape = None
                break
            shape.append(size)
    return Value(
        dtype=declared.dtype,
        shape=None if shape is None else tuple(shape),
        kind=declared.kind,
        unknown_because=cause if shape is None else None,
    )


def default_declared(node: Node, graph: Graph, walk: Walk) -> None:
    """Sizes for the symbols that stand in the declared outputs of an unknown operator and nowhere in the inputs."""
    for name in node.outputs:
        declared = graph.declared.get(name) or next((item for item in graph.outputs if item.name == name), None)
        if declared is None or name in walk.bindings.shapes:
            continue
        for axis, dim in enumerate(declared.shape or ()):
            if isinstance(dim, str) and dim not in walk.symbols:
                size = walk.symbols[dim] = default_size(dim, declared, axis)
                walk.assume(
                    f"{shown(dim)} = {size} (default, only what {node.op_type} '{shown(node.name)}' gives has it; "
                    f"{option('--dim', dim, 'N')} changes it)"
                )


def say_what_gives(node: Node, stand_ins: Sequence[Value], walk: Walk) -> None:
    """How the shapes can be given that an unknown operator leaves open: a line for all of its nodes."""
    open_names = [name for name, value in zip(node.outputs, stand_ins, strict=True) if name and value.shape is None]
    if open_names:
        nodes = walk.opened.setdefault((node.domain, node.op_type), {})
        walk.assumptions.pop(_what_gives(node.op_type, nodes), None)
        nodes.setdefault(node.name, open_names[0])
        walk.assume(_what_gives(node.op_type, nodes))


def _what_gives(op_type: str, nodes: Mapping[str, str]) -> str:
    if not nodes:
        return ""
    first, output = next(iter(nodes.items()))
    others = f" and {len(nodes) - 1:,} more" if len(nodes) > 1 else ""
    what = "gives it, so that what follows is counted" if not others else "gives that of the first; each needs its own"
    return (
        f"{op_type} '{shown(first)}'{others}: what shape an unknown operator gives is not known; "
        f"{option('--shape', output, 'AxB')} {what}"
    )


def as_told(name: str, value: Value, shape: tuple[int, ...]) -> Value:
    """A size that depends on data, which the user knows; it must be possible."""
    assert value.shape is not None
    low = value.shape_low or (0,) * len(value.shape)
    if len(shape) != len(value.shape) or any(
        not least <= size <= most for least, size, most in zip(low, shape, value.shape, strict=True)
    ):
        raise BindingError(
            f"--shape {shown(name)}={'x'.join(map(str, shape))}: its shape depends on data, but it is at least "
            f"{list(low)} and at most {list(value.shape)}"
        )
    return replace(value, shape=shape, is_bound=False, shape_low=None)


def check_told(name: str, value: Value, shape: tuple[int, ...]) -> None:
    """BindingError where the user gives a value another shape than it has."""
    if value.kind == "tensor" and value.shape is not None and value.shape != tuple(shape):
        raise BindingError(
            f"--shape {shown(name)}={'x'.join(map(str, shape)) or 'scalar'}: its shape follows from the inputs, it is "
            f"{list(value.shape)}; bind the inputs or symbols that it is made of"
        )


def declared_bounds(node: Node, stand_ins: Sequence[Value], walk: Walk) -> Sequence[Value]:
    """The operator's shape depends on data that isn't known; what the file declares is its word, and no more."""
    result = []
    for name, value in zip(node.outputs, stand_ins, strict=True):
        if name and value.shape and name not in walk.bindings.shapes:
            walk.assume(
                f"{node.op_type} '{name}': its shape depends on data; {list(value.shape)} is what the file declares"
            )
            value = replace(value, is_bound=True, shape_low=(0,) * len(value.shape))
        result.append(value)
    return result


_TYPED = frozenset({("", "ConstantOfShape"), ("", "Range"), ("com.microsoft", "Range")})
"""Operators whose type does not follow from that of the sizes that they read as others' does."""


def _stated_dtype(node: Node, inputs: Sequence[Value | None]) -> DataType | None:
    if node.op_type == "Range":
        return next((value.dtype for value in inputs if value is not None), None)
    content = node.attributes.get("value")
    return content.dtype if isinstance(content, Initializer) else DataType.FLOAT32


def _likely_dtype(inputs: Sequence[Value | None]) -> DataType | None:
    """An unknown operator most often keeps the type of its first floating-point input."""
    known = [value.dtype for value in inputs if value is not None and value.dtype is not None]
    return next((dtype for dtype in known if dtype.is_float), None)
