"""Trees of an exported predictor, walked without onnxruntime: for a few rows its session takes longer to build.

The same comparisons in float32, leaves summed in float32 tree by tree: the numbers are onnxruntime's to the last bit,
which a test holds for all that is shipped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.graph.wire import BYTES, fields, varints

_GRAPH, _NODE, _ATTRIBUTE = 7, 1, 5
_REAL, _INTEGER = 0x3D, 0x40
"""What stands before each number of a list: its field and wire type."""
_TYPE_BYTES = 3
"""Behind the list the attribute says its type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """Nodes of all trees, by number: ``left`` is where ``feature`` is at most ``threshold``; a leaf has a ``value``."""

    roots: NDArray[np.int64]
    is_leaf: NDArray[np.bool_]
    feature: NDArray[np.int64]
    threshold: NDArray[np.float32]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    value: NDArray[np.float32]

    def sums(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """What the leaves that each row reaches add up to; ``features``: (n, features), result (n,)."""
        rows, trees = len(features), len(self.roots)
        flat = np.ascontiguousarray(features).reshape(-1)
        start = np.repeat(np.arange(rows) * features.shape[1], trees)
        at = np.tile(self.roots, rows)
        going = np.flatnonzero(~self.is_leaf[at])
        while going.size:
            here = at[going]
            below = flat[start[going] + self.feature[here]] <= self.threshold[here]
            here = np.where(below, self.left[here], self.right[here])
            at[going] = here
            going = going[~self.is_leaf[here]]
        # one after another, as a sum over all at once would not
        found: NDArray[np.float32] = np.cumsum(self.value[at].reshape(rows, trees), axis=1, dtype=np.float32)[:, -1]
        return found


def read_forest(content: bytes) -> Forest:
    """The trees of a model as ``learning.export`` writes it; ValueError where it is none.

    A tree's nodes stand together, its root with the number 0 first, and leaves in the order of their weights.
    """
    graph = _part(content, 0, len(content), _GRAPH)
    ensemble = _part(content, *graph, _NODE)
    lists = {}
    for number, wire, start, stop in fields(content, *ensemble):
        if number == _ATTRIBUTE and wire == BYTES:
            _, _, name, behind = next(fields(content, start, stop))
            lists[content[name:behind].decode()] = content[behind : stop - _TYPE_BYTES]
    own = _integers(lists["nodes_nodeids"])
    left, right = (_integers(lists[f"nodes_{side}nodeids"]) for side in ("true", "false"))
    roots = np.flatnonzero(own == 0)
    first = np.repeat(roots, np.diff([*roots, len(own)]))
    place = np.empty_like(own)
    place[first + own] = np.arange(len(own))
    is_leaf = left == right
    value = np.zeros(len(own), np.float32)
    value[is_leaf] = _reals(lists["target_weights"])
    return Forest(
        roots=roots,
        is_leaf=is_leaf,
        feature=_integers(lists["nodes_featureids"]),
        threshold=_reals(lists["nodes_values"]),
        left=place[first + left],
        right=place[first + right],
        value=value,
    )


def _part(content: bytes, start: int, stop: int, wanted: int) -> tuple[int, int]:
    """Where the first field of that number begins and ends."""
    for number, wire, first, last in fields(content, start, stop):
        if number == wanted and wire == BYTES:
            return first, last
    raise ValueError(f"no field {wanted}")


def _integers(entries: bytes) -> NDArray[np.int64]:
    tags, numbers = varints(entries).reshape(-1, 2).T.astype(np.int64)
    if np.any(tags != _INTEGER):
        raise ValueError("a list of integers isn't written one by one")
    return numbers


def _reals(entries: bytes) -> NDArray[np.float32]:
    found = np.frombuffer(entries, np.dtype([("tag", "u1"), ("number", "<f4")]))
    if np.any(found["tag"] != _REAL):
        raise ValueError("a list of floats isn't written one by one")
    return found["number"].astype(np.float32)
