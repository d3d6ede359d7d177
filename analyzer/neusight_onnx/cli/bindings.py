"""What the options --batch, --dim, --shape, --value and --trip-count say together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from neusight_onnx.errors import BindingError
from neusight_onnx.graph.binding_text import parse_batch, parse_dim, parse_shape, parse_trip_count, parse_value
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.model import Array

T = TypeVar("T")


def parse_bindings(
    dims: Sequence[str],
    shapes: Sequence[str],
    values: Sequence[str],
    trip_counts: Sequence[str],
    *,
    batch: str | None = None,
) -> Bindings:
    """The bindings that the texts of the options make together; BindingError where two of them differ."""
    return Bindings(
        dims=_merged("--dim", (pair for text in dims for pair in parse_dim(text).items())),
        shapes=_merged("--shape", map(parse_shape, _each(shapes))),
        values=_values(_each(values)),
        trip_counts=_merged("--trip-count", map(parse_trip_count, _each(trip_counts))),
        batch=None if batch is None else parse_batch(batch),
    )


def _each(texts: Sequence[str]) -> Iterator[str]:
    """Single bindings of texts such as "ids=8x512,mask=8x512".

    A comma also separates sizes ("ids=8,512") and may be part of a name: it ends a binding only where NAME= follows,
    and only if every part is a binding then.
    """
    for text in texts:
        parts = re.split(r",(?=[^,=]+=)", text)
        yield from parts if all("=" in part for part in parts) else (text,)


def _merged(option: str, pairs: Iterable[tuple[str, T]]) -> Mapping[str, T]:
    merged: dict[str, T] = {}
    for name, value in pairs:
        if merged.setdefault(name, value) != value:
            raise _given_twice(option, name)
    return merged


def _values(texts: Iterable[str]) -> Mapping[str, Array]:
    merged: dict[str, Array] = {}
    for name, value in map(parse_value, texts):
        if not np.array_equal(merged.setdefault(name, value), value):
            raise _given_twice("--value", name)
    return merged


def _given_twice(option: str, name: str) -> BindingError:
    return BindingError(f"{option} gives {name!r} twice, and not the same; keep one of them")
