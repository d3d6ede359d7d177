"""The weights that ``--freeze`` means: by their names, or by the modules of the nodes that read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from neusight_onnx.errors import shown
from neusight_onnx.graph.bodies import reads_of
from neusight_onnx.graph.model import InferredGraph, file_name

_PASSED_ON = frozenset({"Cast", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators behind which a weight is still one: exporters read one that modules share through an Identity each."""
_WITH_WEIGHT = frozenset({"Conv", "ConvTranspose", "Gemm", "Linear", "MatMul"})
_ROLES = {1: "weight", 2: "bias"}
"""By their place among a layer's inputs, what PyTorch's modules call its parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """What a pattern means: weights of such names, then others that only nodes of such modules read.

    ``left``: other weights that such nodes read, too, which stay trained: further nodes read them, or their own names
    are those of other modules.
    """

    pattern: str
    by_name: tuple[str, ...]
    by_module: tuple[str, ...]
    left: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.by_name, *self.by_module)


@dataclass(frozen=True, slots=True)
class Readers:
    """By weight, and for each node that reads it, the names that a pattern may match."""

    names: Mapping[str, Sequence[tuple[str, ...]]]

    def meant_by(self, pattern: str, weights: Sequence[str]) -> Frozen:
        """Which of ``weights`` a shell's pattern means."""
        by_name: list[str] = []
        by_module: list[str] = []
        left: list[str] = []
        for weight in weights:
            if fnmatchcase(weight, pattern):
                by_name.append(weight)
                continue
            matched = [any(fnmatchcase(name, pattern) for name in names) for names in self.names.get(weight, ())]
            if any(matched):
                (by_module if all(matched) and not _names_a_module(weight) else left).append(weight)
        return Frozen(pattern=pattern, by_name=tuple(by_name), by_module=tuple(by_module), left=tuple(left))


def readers_of(graph: InferredGraph, weights: Sequence[str]) -> Readers:
    """The nodes that read ``weights``, as they are or moved.

    PyTorch's TorchScript exporter calls weights that it transposes or folds onnx::MatMul_12, and the nodes that read
    them after their modules: /blocks/blocks.0/attn/qkv/MatMul.
    """
    found: dict[str, list[tuple[str, ...]]] = {name: [] for name in weights}
    source = {name: name for name in weights}
    for node in graph.graph.nodes:
        reads = (*node.inputs, *(name for name in reads_of(node) if name not in node.inputs))
        for index, name in enumerate(reads):
            if name not in source:
                continue
            if node.op_type in _PASSED_ON and index == 0:
                source[node.outputs[0]] = source[name]
                continue
            role = _ROLES.get(index, "") if node.op_type in _WITH_WEIGHT else ""
            names = [text for origin in node.stands_for for text in _names(file_name(origin.name), role)]
            found[source[name]].append(tuple(names))
    return Readers(found)


def said_of(frozen: Frozen, elements: Mapping[str, int]) -> Iterator[str]:
    """What was matched otherwise than by name; that most of what a pattern's nodes read stays trained, where it does.

    ``elements``: how many each weight has.
    """
    pattern = shown(frozen.pattern)
    if frozen.by_module:
        yield (
            f"training: --freeze '{pattern}' means {len(frozen.by_name):,} of the file's tensors by name and "
            f"{len(frozen.by_module):,} by the nodes that read them (such as '{shown(frozen.by_module[0])}')"
        )
    left, still = (sum(elements[name] for name in names) for names in (frozen.left, frozen.names))
    if left > still:
        named = ", ".join(f"'{shown(name)}'" for name in frozen.left[:3])
        more = f" and {len(frozen.left) - 3:,} more" if len(frozen.left) > 3 else ""
        yield (
            f"training: --freeze '{pattern}' freezes {still:,} weights, but nodes of that name read {left:,} more that "
            f"are trained ({named}{more}): other nodes read them, too, or they have another module's name"
        )


def _names(node: str, role: str) -> Iterator[str]:
    """The names of a node that a pattern may match: its own, and those of the parameter's module in dots.

    A part of a path that repeats the one before it (/layer1/layer1.0/conv1/Conv) is the same module's.
    """
    yield node
    path = node.strip("/").split("/")
    yield "/".join(path)
    module: list[str] = []
    for part in path[:-1]:
        if module and part.startswith(f"{module[-1]}."):
            module[-1] = part
        else:
            module.append(part)
    if module:
        yield ".".join((*module, path[-1]))
        if role:
            yield ".".join((*module, role))


def _names_a_module(weight: str) -> bool:
    """Whether a weight's own name says where it belongs, as exporters keep those of modules: blocks.0.norm1.bias."""
    return "." in weight and "::" not in weight and "/" not in weight
