"""Operators whose output's size is the content of an input that is not known: what that content can be.

The least and the most that the graph leaves possible (see ``ranges``), each element a size of its own. Where nothing in
the graph limits a size from above (a duration that a network predicts, the greatest of the lengths in an input), it is
taken to be at most :data:`MOST`, an assumption that is stated with the option that replaces it. Costs are not counted
for that, nor for a limit beyond it, but for a size that is likely: what follows from likely counts (see ``counts``),
else the longest dimension of an input; what an exporter computes so counts frames, positions or segments of the input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from neusight_onnx.graph.model import Node, Value
from neusight_onnx.graph.shapes.context import MAX_DATA, NUMPY, Session
from neusight_onnx.graph.shapes.counts import likely_counts
from neusight_onnx.graph.shapes.ranges import ends_of

MOST = 65_536
"""A size that depends on data is not taken to exceed this where nothing in the graph limits it: ten minutes of speech
in frames of 10 ms, the positions of a long context. An assumption, generous on purpose: it is to be a bound."""

_LARGEST = 2.0**31
"""A limit beyond the largest size of a dimension is none."""

_SIZE, _START, _LIMIT, _STEP, _WIDTH, _FACTOR = "size", "start", "limit", "step", "width", "factor"

PLACES: Mapping[tuple[str, str], Mapping[int, str]] = {
    ("", "AffineGrid"): {1: _SIZE},
    ("", "BlackmanWindow"): {0: _SIZE},
    ("", "CenterCropPad"): {1: _SIZE},
    ("", "ConstantOfShape"): {0: _SIZE},
    ("", "Expand"): {1: _SIZE},
    ("", "HammingWindow"): {0: _SIZE},
    ("", "HannWindow"): {0: _SIZE},
    ("", "MaxUnpool"): {2: _SIZE},
    ("", "OneHot"): {1: _SIZE},
    ("", "Pad"): {1: _WIDTH},
    ("com.microsoft", "Pad"): {1: _WIDTH},
    ("", "Range"): {0: _START, 1: _LIMIT, 2: _STEP},
    ("com.microsoft", "Range"): {0: _START, 1: _LIMIT, 2: _STEP},
    ("", "Reshape"): {1: _SIZE},
    ("", "Resize"): {2: _FACTOR, 3: _SIZE},
    ("", "Tile"): {1: _SIZE},
    ("", "Upsample"): {1: _FACTOR},
}
"""Where an operator reads sizes, and what they are to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The inputs of a node with the ends of what was unknown. ``likely``: with a likely size where nothing limits it,
    None if all is limited. ``at_most_likely``: as ``inputs``, with that as the most. ``sources``: what the likely sizes
    were computed from."""

    inputs: list[Value | None]
    likely: list[Value | None] | None
    at_most_likely: list[Value | None]
    sources: frozenset[str] = frozenset()


def possible_sizes(node: Node, inputs: Sequence[Value | None], session: Session, longest: int) -> Sizes | None:
    """What the sizes that the node reads can be; None if it reads none, or their number is not known.

    ``longest``: the longest dimension of the model's inputs.
    """
    result = list(inputs)
    likely = list(inputs)
    at_most = list(inputs)
    sources: frozenset[str] = frozenset()
    is_limited = True
    is_found = False
    for place, kind in PLACES.get((node.domain, node.op_type), {}).items():
        value = inputs[place] if place < len(inputs) else None
        if value is None or value.data is not None:
            continue
        if value.shape is None or value.is_bound or value.dtype not in NUMPY or not 0 < value.element_count <= MAX_DATA:
            continue
        ends = ends_of(node.inputs[place], session)
        low, high = (np.array(np.broadcast_to(end, value.shape)) for end in ends)
        if kind in (_STEP, _FACTOR) and not ((low > 0).all() and np.isfinite(high).all()):
            return None
        least = 0.0 if kind is _SIZE else -float(MOST)
        if kind is _SIZE:
            low = np.maximum(low, 1 if node.op_type == "Expand" else 0)
            if node.op_type == "Reshape":
                high = _within_elements(inputs[0], low, high)
        if kind not in (_SIZE, _LIMIT) and (high > _LARGEST).any() | (low < -_LARGEST).any():
            return None
        open_ends = high > MOST
        counts = likely_counts(node.inputs[place], session, longest, MOST)
        counted = None if counts is None else _as_sizes(node, counts.data, least)
        is_found = True
        if counts is not None and counted is not None and counts.sources and counts.is_told:
            low = high = middle = counted
        else:
            is_limited = is_limited and not open_ends.any()
            low = np.clip(low, least, _LARGEST)
            high = np.maximum(np.where(high > _LARGEST, MOST, high), low)
            middle = np.where(open_ends, np.clip(longest, low, high) if counted is None else counted, high)
            sources |= frozenset() if counts is None else counts.sources
        result[place] = _with_content(value, low, high)
        likely[place] = _with_content(value, middle, middle)
        at_most[place] = _with_content(value, np.minimum(low, middle), middle)
    if not is_found:
        return None
    return Sizes(inputs=result, likely=None if is_limited else likely, at_most_likely=at_most, sources=sources)


def _as_sizes(node: Node, counts: np.ndarray, least: float) -> np.ndarray:
    """Counts as the node takes them: none is possible, of what the ends alone would take as one at least."""
    if node.op_type == "Reshape":
        return counts  # -1 is what the others leave
    if node.op_type == "Expand":
        counts = np.where(counts < 0, 1, counts)
    return np.asarray(np.clip(counts, least, _LARGEST))


def _within_elements(source: Value | None, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """A dimension of a Reshape has at most as many elements as there are, over what the known ones take; none, any."""
    if source is None or source.shape is None or not source.element_count:
        return high
    taken = prod(int(size) for size, other in zip(low.ravel(), high.ravel(), strict=True) if size == other and size > 0)
    return np.where(low == high, high, np.minimum(high, prod(source.shape) // max(taken, 1)))


def _with_content(value: Value, low: np.ndarray, high: np.ndarray) -> Value:
    dtype = NUMPY[value.dtype] if value.dtype is not None else np.dtype(np.float64)
    least, most = low.astype(dtype), high.astype(dtype)
    return replace(value, data=most, data_low=None if np.array_equal(least, most) else least)
