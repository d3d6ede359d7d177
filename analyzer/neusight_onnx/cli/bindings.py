"""What the options --dim, --shape, --value and --trip-count say together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from neusight_onnx.errors import BindingError
from neusight_onnx.graph.bindings import Bindings, parse_dim, parse_shape, parse_trip_count, parse_value
from neusight_onnx.graph.model import Array

T = TypeVar("T")


def parse_bindings(
    dims: Sequence[str], shapes: Sequence[str], values: Sequence[str], trip_counts: Sequence[str]
) -> Bindings:
    """The bindings that the texts of the four options make together; BindingError where two of them differ."""
    return Bindings(
        dims=_merged("--dim", (pair for text in dims for pair in parse_dim(text).items())),
        shapes=_merged("--shape", map(parse_shape, shapes)),
        values=_values(values),
        trip_counts=_merged("--trip-count", map(parse_trip_count, trip_counts)),
    )


def _merged(option: str, pairs: Iterable[tuple[str, T]]) -> Mapping[str, T]:
    merged: dict[str, T] = {}
    for name, value in pairs:
        if merged.setdefault(name, value) != value:
            raise _given_twice(option, name)
    return merged


def _values(texts: Sequence[str]) -> Mapping[str, Array]:
    merged: dict[str, Array] = {}
    for name, value in map(parse_value, texts):
        if not np.array_equal(merged.setdefault(name, value), value):
            raise _given_twice("--value", name)
    return merged


def _given_twice(option: str, name: str) -> BindingError:
    return BindingError(f"{option} gives {name!r} twice, and not the same; keep one of them")
