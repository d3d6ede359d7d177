"""Shapes as ONNX Runtime knows them before a run of a file that leaves sizes open: by number, by symbol, or not at all.

Its loader infers them with onnx's rules: what the file declares of inputs and of inner values is handed on by operators
that keep or broadcast dimensions. Behind a Reshape to a computed shape it knows nothing, unless the file declares it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count, zip_longest

from neusight_onnx.graph.model import Declared, Dim, Graph, InferredGraph, Node, Value

Shape = tuple[Dim, ...]

_AS_FIRST = frozenset(
    {
        *("Abs", "Cast", "Ceil", "Clip", "Cos", "Dropout", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid"),
        *("Not", "IsInf", "IsNaN", "Round", "Sign"),
        *("HardSwish", "Identity", "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax", "Mish", "Neg", "QuickGelu"),
        *("RMSNormalization", "Reciprocal", "Relu", "Sigmoid", "SimplifiedLayerNormalization", "Sin", "Softmax"),
        *("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "Softplus", "Sqrt", "Swish", "Tanh"),
    }
)
"""Their first result has the shape of their first operand."""
_BROADCAST = frozenset(
    {
        *("Add", "Div", "Max", "Min", "Mod", "Mul", "PRelu", "Pow", "Sub", "Sum", "Where"),
        *("And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Or", "Xor"),
    }
)
_RESHAPE_NAMED = 14
"""The version of Reshape from which on onnx's inference names the sizes of a computed shape."""
_ALL = _BROADCAST | {"Gather", "MatMul"}
"""Whose result hangs on the shapes of all operands."""


def known_shapes(graph: Graph, values: Mapping[str, Value], *, names: bool = False) -> dict[str, Shape]:
    """Known dimensions of a graph's values (None: one that isn't known); without those of unknown rank.

    ``values``: of constants alone the shapes are read, as those of others hang on the sizes of one run. ``names``: what
    isn't known has a name of its own, as onnx's inference writes shapes into a file (how many dimensions a result of
    ONNX's operators has it knows).
    """
    new_names = (f"unknown {number}" for number in count())

    def named(shape: Shape) -> Shape:
        return tuple(next(new_names) if names and dim is None else dim for dim in shape)

    found = {name: declared.shape for name, declared in graph.declared.items() if declared.shape is not None} | {
        declared.name: declared.shape for declared in graph.inputs if declared.shape is not None
    }

    def shape_of(name: str) -> Shape | None:
        if name in found:
            return found[name]
        value = values.get(name)
        is_number = value is not None and value.data is not None and value.shape == ()
        return value.shape if value is not None and (value.is_constant or is_number) else None

    for node in graph.nodes:
        if not node.outputs or node.outputs[0] in found:
            continue
        operands = [shape_of(name) for name in node.inputs if name]
        if operands and None not in operands[: len(node.inputs) if node.op_type in _ALL else 1]:
            made = _made(node, [operand for operand in operands if operand is not None])
            value = values.get(node.outputs[0])
            if made is not None and value is not None and value.shape is not None and len(made) == len(value.shape):
                found[node.outputs[0]] = named(made)
        unnamed = node.op_type == "Reshape" and node.version < _RESHAPE_NAMED
        for name in node.outputs if names and not node.domain and not unnamed else ():
            value = values.get(name)
            if name not in found and value is not None and value.shape is not None and not value.is_constant:
                known = _known_by_weights(node, operands[:1], len(value.shape), values)
                found[name] = named(known or (None,) * len(value.shape))
    return found


def with_named_shapes(graph: InferredGraph) -> InferredGraph:
    """``graph`` as ONNX Runtime's float16 converter writes it: it has onnx infer all shapes, which the file then
    declares, sizes that aren't known by names of their own."""
    declared = dict(graph.graph.declared)
    for name, shape in known_shapes(graph.graph, graph.values, names=True).items():
        said = declared.get(name)
        if said is None or said.shape is None:
            value = graph.values.get(name)
            declared[name] = Declared(name=name, dtype=None if value is None else value.dtype, shape=shape)
    return replace(graph, graph=replace(graph.graph, declared=declared))


def _made(node: Node, operands: list[Shape]) -> Shape | None:
    """The shape of a node's first result, whose operands' are known; None if it isn't."""
    first = operands[0]
    if node.op_type in _AS_FIRST:
        return first
    if node.op_type in _BROADCAST:
        return _broadcast(*operands)
    if node.op_type == "MatMul" and not node.domain:
        left, right = operands
        return (*_broadcast(left[:-2], right[:-2]), left[-2], right[-1]) if min(len(left), len(right)) > 1 else None
    if node.op_type == "Transpose":
        order = node.attributes.get("perm", tuple(reversed(range(len(first)))))
        places = [place for place in order if isinstance(place, int)] if isinstance(order, tuple) else []
        return tuple(first[place] for place in places) if sorted(places) == list(range(len(first))) else None
    if node.op_type == "Gather":
        axis = node.attributes.get("axis", 0)
        if isinstance(axis, int) and -len(first) <= axis < len(first):
            axis %= len(first)
            return (*first[:axis], *operands[1], *first[axis + 1 :])
    return None


def _known_by_weights(
    node: Node, first: Sequence[Shape | None], rank: int, values: Mapping[str, Value]
) -> Shape | None:
    """The dimensions of a result of ``rank`` that a convolution's weight or the axes of a reduction tell."""
    other = values.get(node.inputs[1]) if len(node.inputs) > 1 else None
    if node.op_type == "Conv" and other is not None and other.shape:
        return (None, other.shape[0], *(None,) * (rank - 2))
    if not node.op_type.startswith("Reduce") and node.op_type != "Unsqueeze":
        return None
    given = node.attributes.get("axes")
    axes = [axis for axis in given if isinstance(axis, int)] if isinstance(given, tuple) else None
    if other is not None:
        axes = None if other.data is None else other.data.ravel().tolist()
    elif axes is None:
        axes = list(range(rank))
    if axes is None or not node.attributes.get("keepdims", 1) or not rank:
        return None
    ones = {axis % rank for axis in axes}
    left = iter(first[0] or () if first else ())
    if node.op_type == "Unsqueeze":
        return tuple(1 if place in ones else next(left, None) for place in range(rank))
    return tuple(1 if place in ones else dim for place, dim in zip_longest(range(rank), left))


def _broadcast(*shapes: Shape) -> Shape:
    made: list[Dim] = []
    for dims in zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        others = {dim for dim in dims if dim != 1}
        numbers = [dim for dim in others if isinstance(dim, int)]
        made.append(1 if not others else numbers[0] if numbers else others.pop() if len(others) == 1 else None)
    return tuple(reversed(made))
