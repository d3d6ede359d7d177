"""Parts of the run forward that run again before their gradients, so that nothing but their inputs is kept.

As ``torch.utils.checkpoint`` does it: forward without keeping anything, and once more, keeping everything, when the
gradient of the part's result has arrived.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from neusight_onnx.errors import TrainingError
from neusight_onnx.graph.model import InferredGraph, Node, file_name
from neusight_onnx.kernels import Conv, Gemm, NodeWork

FEWEST_PRODUCTS = 2
"""Products or convolutions of what counts as a block: fewer are a layer within one."""

_DEEPEST = 3
_PARTS = re.compile(r"[/.]+")
_NUMBERED = re.compile(r"(.*?)(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Nodes that run again together, in order, and the values from before them that they read, which are kept."""

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """``place``: which segment a node belongs to, by its name. ``said``: how they were found."""

    all: tuple[Segment, ...] = ()
    place: Mapping[str, int]
    said: tuple[str, ...] = ()

    def reached(self, names: Iterable[str]) -> Segments:
        """Without those of which no node has a gradient: nothing is kept for them, and they don't run again."""
        places = {self.place[name] for name in names if name in self.place}
        return replace(
            self,
            all=tuple(
                segment if index in places else replace(segment, inputs=()) for index, segment in enumerate(self.all)
            ),
            place={name: place for name, place in self.place.items() if place in places},
        )


def segments_of(graph: InferredGraph, works: Sequence[NodeWork], recompute: str) -> Segments:
    """``recompute``: "none", "blocks" (repeated ones, by the numbers in the names of nodes) or "all".

    Raises TrainingError where no blocks are found.
    """
    if recompute == "none":
        return Segments(place={})
    nodes = graph.graph.nodes
    if recompute == "all":
        whole = Segment(nodes=nodes, inputs=())
        said = ("training: the whole run forward runs again before the run backwards (--recompute all)",)
        return Segments(all=(whole,), place=dict.fromkeys((node.name for node in nodes), 0), said=said)
    blocks, pattern = _blocks(nodes, works)
    if len(blocks) < 2:
        raise TrainingError(
            "--recompute blocks: the names of nodes show no repeated blocks (no numbers as in 'layer.0'); "
            "use --recompute all or none"
        )
    place: dict[str, int] = {}
    for index, names in enumerate(blocks):
        place.update(dict.fromkeys(names, index))
    members: list[list[Node]] = [[] for _ in blocks]
    for node in nodes:
        if node.name in place:
            members[place[node.name]].append(node)
    segments = tuple(Segment(nodes=tuple(group), inputs=_inputs(group, graph)) for group in members)
    said = (
        f"training: {len(segments):,} blocks run forward again before their gradients, found by the numbers in nodes' "
        f"names ({pattern}); kept are their inputs (--recompute blocks)",
    )
    return Segments(all=segments, place=place, said=said)


def _inputs(nodes: Sequence[Node], graph: InferredGraph) -> tuple[str, ...]:
    own = {name for node in nodes for name in node.outputs}
    read = dict.fromkeys(name for node in nodes for name in node.inputs if name and name not in own)
    return tuple(name for name in read if name not in graph.graph.initializers)


def _blocks(nodes: Sequence[Node], works: Sequence[NodeWork]) -> tuple[list[list[str]], str]:
    """Names of the nodes of each block, in order, and what their names have in common.

    A name's parts ("/encoder/layer.0/attention/MatMul") that are numbers, or end in one at the first of them, open a
    block; of the levels that they make the one with most blocks counts.
    """
    products = {work.node for work in works if any(isinstance(kernel, Gemm | Conv) for kernel in work.kernels)}
    best: dict[tuple[str, ...], list[str]] = {}
    for level in range(1, _DEEPEST + 1):
        groups: dict[tuple[str, ...], list[str]] = {}
        for node in nodes:
            key = _block_of(file_name(node.name), level)
            if key is not None:
                groups.setdefault(key, []).append(node.name)
        found = {key: names for key, names in groups.items() if len(products.intersection(names)) >= FEWEST_PRODUCTS}
        if len(found) > len(best):
            best = found
    return list(best.values()), _pattern(best)


def _block_of(name: str, level: int) -> tuple[str, ...] | None:
    """The parts of a name as far as its number of that level; None if it has fewer. The last part is the operator's."""
    parts = [part for part in _PARTS.split(name) if part][:-1]
    seen = 0
    for index, part in enumerate(parts):
        numbered = part.isdigit() or (seen == 0 and _NUMBERED.fullmatch(part) is not None)
        # "layer1/layer1.0": the same word twice is one level
        if numbered and not (index and parts[index - 1] == part):
            seen += 1
            if seen == level:
                return tuple(parts[: index + 1])
    return None


def _pattern(blocks: Mapping[tuple[str, ...], list[str]]) -> str:
    """What the names of blocks have in common: the last two parts of the first, its number a "*"."""
    first = next(iter(blocks), ())
    if not first:
        return ""
    last = re.sub(r"\d+$", "*", first[-1])
    return f"'{'.'.join((*first[-2:-1], last)) if last == '*' else last}'"
