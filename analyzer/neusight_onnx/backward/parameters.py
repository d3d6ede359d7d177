"""Which weights are trained, and which values depend on them: those that need a gradient."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from neusight_onnx.backward.freezing import Frozen, Readers, readers_of
from neusight_onnx.backward.recurrent_weights import RECURRENT
from neusight_onnx.backward.registry import INPUTS, SILENT, has_gradient, is_differentiable
from neusight_onnx.errors import TrainingError, shown
from neusight_onnx.graph.bodies import reads_of
from neusight_onnx.graph.model import InferredGraph, Node
from neusight_onnx.kernels import TensorSpec

BODIES = frozenset({"If", "Loop", "Scan", "SequenceMap"})

_NORMS = ("BatchNormalization", "InstanceNormalization", "LayerNormalization", "RMSNormalization")

_ONE_NUMBER = {
    **dict.fromkeys(_NORMS, (1, 2)),
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "Linear"), (2,)),
    "PRelu": (1,),
}
"""Inputs that are parameters of one element, if they have one; elsewhere a single number is a constant of the
program, but for one that has a module's name."""

_OF_A_MODULE = re.compile(r"\w+(\.\w+)+")
"""Names of weights as PyTorch's exporters keep them, of those below the model itself; the constants that they write are
called otherwise (onnx::Mul_12, /head/Constant_output_0, val_7)."""

_VIEWS = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze"})

_ALL_RESULTS = BODIES | RECURRENT | {"Split"}
"""Operators of which every result is computed from what is trained; of others the first."""

_PREPARATION = frozenset({"Add", "Sub", "Mul", "Div"})
_MOVING = frozenset(
    {"Cast", "Concat", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape", "Resize", "Slice", "Split"}
    | {"Squeeze", "Transpose", "Unsqueeze", "Upsample"}
)

_WAVES = frozenset({"Sin", "Cos"})
_VECTOR, _MATRIX = 1, 2
"""How many dimensions above 1 the parameters behind a value have at most."""


def initializers(graph: InferredGraph) -> dict[str, TensorSpec]:
    """Floating-point constants that the file holds, by name, in the number format that they are used in."""
    found = {}
    for name, tensor in graph.graph.initializers.items():
        value = graph.values.get(name)
        dtype = tensor.dtype if value is None or value.dtype is None else value.dtype
        if is_differentiable(dtype):
            found[name] = TensorSpec(dtype=dtype, shape=tensor.shape)
    return found


def frozen_by(graph: InferredGraph, patterns: Sequence[str]) -> list[Frozen]:
    """What each of ``patterns`` freezes; TrainingError for one that names nothing which training would change."""
    if not patterns:
        return []
    names = list(initializers(graph))
    needing = values_needing(graph, frozenset(), [])
    trained = [name for name in names if name in needing]
    readers = readers_of(graph, names)
    found = []
    for pattern in patterns:
        meant = readers.meant_by(pattern, names)
        if needing.keys().isdisjoint(meant.names):
            what = _no_parameter(pattern, meant.names, trained, readers)
            raise TrainingError(f"--freeze {shown(pattern)!r} matches {what}")
        found.append(meant)
    return found


def _no_parameter(pattern: str, matched: Sequence[str], trained: Sequence[str], readers: Readers) -> str:
    """What a pattern matches instead of a parameter, and what would do."""
    what = f"only what is never trained ({quoted(matched)})" if matched else "no parameter"
    for wider in (f"{pattern}*", f"*{pattern}*"):
        count = len(readers.meant_by(wider, trained).names)
        if count:
            return f"{what}; {shown(wider)!r} matches {count:,}"
    return f"{what}; there are {quoted(trained)}"


def quoted(names: Sequence[str]) -> str:
    some = ", ".join(f"'{shown(name)}'" for name in names[:3])
    return f"{some} and {len(names) - 3:,} more" if len(names) > 3 else some or "none"


@dataclass(slots=True, kw_only=True)
class _Singles:
    """Parameters of one element. ``views``: by the name of a view of one (or its own), the parameter."""

    views: dict[str, str]

    def read_by(self, node: Node) -> Iterator[str]:
        """What a node reads as a parameter: the value and what it is a view of."""
        if node.op_type in _VIEWS and node.inputs[0] in self.views:
            self.views[node.outputs[0]] = self.views[node.inputs[0]]
        for index in _ONE_NUMBER.get(node.op_type, ()):
            name = node.inputs[index] if index < len(node.inputs) else ""
            if name in self.views:
                yield from (name, self.views[name])


def values_needing(graph: InferredGraph, frozen: frozenset[str], blocked: list[Node]) -> dict[str, int]:
    """The values that depend on a parameter, and how many dimensions the parameters behind them have at most.

    ``blocked`` gets the nodes behind which a gradient would be wanted and isn't.
    """
    found: dict[str, int] = {}
    singles = _Singles(views={})
    for name, spec in initializers(graph).items():
        if name in frozen:
            continue
        dimensions = sum(size > 1 for size in spec.shape)
        if dimensions or _OF_A_MODULE.fullmatch(name):
            found[name] = min(max(dimensions, _VECTOR), _MATRIX)
        else:
            singles.views[name] = name
    initial = frozenset(found)
    prepared = _prepared(graph)
    for node in graph.graph.nodes:
        if singles.views:
            found.update(dict.fromkeys(singles.read_by(node), _VECTOR))
        inputs = [(index, name) for index, name in enumerate(read_by(node)) if name in found]
        if not inputs:
            continue
        if not has_gradient(node.domain, node.op_type):
            if node.op_type not in SILENT and any(name not in initial for _, name in inputs):
                blocked.append(node)
            continue
        passing = INPUTS.get((node.domain, node.op_type))
        weights = [found[name] for index, name in inputs if passing is None or index in passing]
        if not weights:
            continue
        most = max(weights)
        if node.op_type in _WAVES and most == _VECTOR:
            continue
        vectors_only = all(name in initial and found[name] == _VECTOR for _, name in inputs)
        if node.op_type in _PREPARATION and not node.domain and vectors_only and len(inputs) < len(node.inputs):
            other = next(name for name in node.inputs if name not in found)
            value = graph.values.get(other)
            if other in prepared and value is not None and not value.is_constant:
                continue
        for name in node.outputs if node.op_type in _ALL_RESULTS else node.outputs[:1]:
            value = graph.values.get(name)
            if value is not None and is_differentiable(value.dtype) and value.shape is not None:
                found[name] = most
    return found


def _prepared(graph: InferredGraph) -> frozenset[str]:
    """Values that are still inputs of the graph: whole numbers, and floats that were moved, added to or multiplied."""
    computed: set[str] = set()
    floats = {declared.name for declared in graph.graph.inputs if is_differentiable(declared.dtype)}
    for node in graph.graph.nodes:
        if not computed.isdisjoint(node.inputs) or (
            node.op_type not in _PREPARATION | _MOVING and not floats.isdisjoint(node.inputs)
        ):
            computed.update(node.outputs)
        elif not floats.isdisjoint(node.inputs):
            floats.update(node.outputs)
    return frozenset(graph.values.keys() - computed)


def not_trained(graph: InferredGraph, needing: Mapping[str, int], reached: Container[str]) -> list[str]:
    """Weights that PyTorch might train, but for single numbers that no module names, and that no gradient reaches."""
    read: set[str] = set()
    for node in reversed(graph.graph.nodes):
        if not has_gradient(node.domain, node.op_type) or (node.op_type in _VIEWS and read.isdisjoint(node.outputs)):
            continue
        passing = INPUTS.get((node.domain, node.op_type))
        read.update(name for index, name in enumerate(read_by(node)) if passing is None or index in passing)
    return [name for name in initializers(graph) if name in needing and name in read and name not in reached]


def read_by(node: Node) -> tuple[str, ...]:
    """The inputs of a node in their places, and behind them what its bodies take from around them."""
    if node.op_type not in BODIES:
        return node.inputs
    return (*node.inputs, *(name for name in reads_of(node) if name not in node.inputs))
