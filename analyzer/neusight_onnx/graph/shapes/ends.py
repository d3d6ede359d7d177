"""Both ends of a value whose size depends on data, and one value from the results at both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neusight_onnx.graph.model import (
    Array,
    Value,
)


def low_end(value: Value) -> Value:
    """The value with every size that depends on data at its least."""
    if not value.is_bound and value.data_low is None:
        return value
    shape = value.shape
    if value.is_bound and shape is not None:
        shape = value.shape_low if value.shape_low is not None else (0,) * len(shape)
    elements = None if value.elements is None else tuple(low_end(element) for element in value.elements)
    data = value.data if value.data_low is None else value.data_low
    return replace(value, shape=shape, data=data, data_low=None, is_bound=False, shape_low=None, elements=elements)


def high_end(value: Value) -> Value:
    """The value with every size that depends on data at its greatest."""
    if not value.is_bound and value.data_low is None:
        return value
    return replace(value, is_bound=False, shape_low=None, data_low=None)


def join_ends(high: Value, low: Value | None) -> Value:
    """One value from the results at both ends."""
    shape = high.shape
    if shape is None:
        return high
    high_floor = (high.shape_low or (0,) * len(shape)) if high.is_bound else shape
    if low is None or low.shape is None or len(low.shape) != len(shape):
        floor = (0,) * len(shape)
        data: Array | None = None
        data_low: Array | None = None
    else:
        low_floor = (low.shape_low or (0,) * len(shape)) if low.is_bound else low.shape
        floor = tuple(min(pair) for pair in zip(high_floor, low_floor, strict=True))
        shape = tuple(max(pair) for pair in zip(shape, low.shape, strict=True))
        data, data_low = _join_data(high.data, low.data)
    is_bound = floor != shape
    if is_bound:
        data = data_low = None
    elements = high.elements
    if elements is not None and low is not None and low.elements is not None:
        elements = (
            tuple(join_ends(a, b) for a, b in zip(elements, low.elements, strict=True))
            if len(elements) == len(low.elements)
            else None
        )
    return replace(
        high,
        shape=shape,
        is_bound=is_bound,
        shape_low=floor if is_bound else None,
        data=data,
        data_low=data_low,
        elements=elements,
    )


def _join_data(high: Array | None, low: Array | None) -> tuple[Array | None, Array | None]:
    if high is None or low is None or high.shape != low.shape:
        return None, None
    if np.array_equal(high, low):
        return high, None
    return np.maximum(high, low), np.minimum(high, low)
