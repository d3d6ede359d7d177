"""A kernel as one line of JSON, and back: how files of measurements and lists of shapes hold it."""

from __future__ import annotations

import json
import math
from dataclasses import MISSING, fields
from functools import cache
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from neusight_onnx.dtypes import BY_LABEL, DataType
from neusight_onnx.kernels import KERNEL_CLASSES, Conv, GatherScatter, Kernel, Move, Movement, TensorSpec

_CLASSES = {kernel_class.__name__: kernel_class for kernel_class in KERNEL_CLASSES}

_MAY_BE_NONE = frozenset({"read", "written", "operation_count", "index_count", "permutation"})
"""Fields of kernels that may be 0, or hold it, though they have no default: a fill reads nothing, axes count from 0."""

_MOST_OF_A_SIZE = 1 << 63
"""Sizes stay below it, as ONNX's, which are 64-bit integers."""


def kernel_to_text(kernel: Kernel) -> str:
    """A kernel as one line of JSON: its class and what is not at its default."""
    found: dict[str, Any] = {"class": type(kernel).__name__}
    for item in fields(kernel):
        value = getattr(kernel, item.name)
        if item.default is MISSING or value != item.default:
            found[item.name] = _plain(value)
    return json.dumps(found, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, DataType):
        return value.label
    if isinstance(value, TensorSpec):
        return {"dtype": value.dtype.label, "shape": list(value.shape)}
    if isinstance(value, Movement | GatherScatter):
        return json.loads(kernel_to_text(value))
    return [_plain(member) for member in value] if isinstance(value, tuple) else value


def kernel_from_text(text: str) -> Kernel:
    """The kernel of ``kernel_to_text``. Raises ValueError, with what is wrong, if it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("the kernel is no JSON") from None
    name = found.pop("class", None) if isinstance(found, dict) else None
    kernel_class = _CLASSES.get(name) if isinstance(name, str) else None
    if kernel_class is None:
        raise ValueError(f"the kernel is of no class that is known ({', '.join(_CLASSES)})")
    known = {item.name: item for item in fields(kernel_class)}
    unknown = sorted(set(found) - set(known))
    if unknown:
        raise ValueError(f"a {kernel_class.__name__} has no {', '.join(unknown)}")
    types = _types(kernel_class)
    values = {name: _typed(value, types[name], name) for name, value in found.items()}
    for name, value in values.items():
        # what may be none of is 0 by default, or a count of what is moved or computed beside the sizes
        counts_none = known[name].default == 0 or name in _MAY_BE_NONE
        if not counts_none and _has_zero(value):
            raise ValueError(f"{name} is {found[name]!r:.40}: a size is 1 or more")
    missing = [name for name, item in known.items() if item.default is MISSING and name not in values]
    if missing:
        raise ValueError(f"the {kernel_class.__name__} lacks {', '.join(missing)}")
    kernel: Kernel = kernel_class(**values)
    if (fault := _contradiction(kernel)) is not None:
        raise ValueError(fault)
    return kernel


def _contradiction(kernel: Kernel) -> str | None:
    """What of a kernel's fields can't be true together."""
    match kernel:
        case Conv(spatial=spatial, out=out, filter=window, strides=strides, dilations=dilations):
            if not spatial or len({len(sizes) for sizes in (spatial, out, window, strides, dilations)}) > 1:
                return "spatial, out, filter, strides and dilations are not one size for each dimension"
            if kernel.c % kernel.groups or kernel.k % kernel.groups:
                return f"groups {kernel.groups} does not divide c {kernel.c} and k {kernel.k}"
        case Movement(permutation=tuple(axes), shape=shape) if sorted(axes) != list(range(len(shape))):
            return f"permutation {list(axes)!r:.40} is none of the {len(shape)} axes of shape"
    return None


@cache
def _types(kernel_class: type) -> dict[str, Any]:
    return get_type_hints(kernel_class)


def _has_zero(value: Any) -> bool:
    if isinstance(value, TensorSpec):
        return 0 in value.shape
    if isinstance(value, tuple):
        return any(_has_zero(member) for member in value)
    return isinstance(value, int) and not isinstance(value, bool) and value == 0


def _typed(value: Any, wanted: Any, name: str) -> Any:
    """A JSON value as the type ``wanted`` of the field ``name``; ValueError if it is none."""
    members = get_args(wanted)
    if NoneType in members:
        return None if value is None else _typed(value, members[0], name)
    if members == get_args(Move):
        found = kernel_from_text(json.dumps(value))
        if not isinstance(found, members):
            raise ValueError(f"{name} is {value!r:.40} and no movement or lookup")
        return found
    if get_origin(wanted) is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{name} is {value!r:.40} and no list")
        return tuple(_typed(member, members[0], name) for member in value)
    if get_origin(wanted) is Literal:
        if value not in members:
            raise ValueError(f"{name} is {value!r:.40} and none of {', '.join(members)}")
        return value
    if wanted is TensorSpec:
        if not isinstance(value, dict):
            raise ValueError(f"{name} is {value!r:.40} and no tensor")
        return TensorSpec(**{part: _typed(value.get(part), kind, name) for part, kind in _types(TensorSpec).items()})
    if wanted is DataType:
        if not isinstance(value, str) or value not in BY_LABEL:
            raise ValueError(f"{name} is {value!r:.40} and no number format")
        return BY_LABEL[value]
    return _scalar(value, wanted, name)


def _scalar(value: Any, wanted: type, name: str) -> bool | int | float | str:
    if wanted is bool and isinstance(value, bool):
        return value
    if wanted is str and isinstance(value, str):
        return value
    if wanted is float and type(value) in (int, float) and 0 <= value < math.inf:
        return float(value)
    if wanted is int and type(value) is int and 0 <= value < _MOST_OF_A_SIZE:
        return value
    what = {bool: "neither true nor false", str: "no text", float: "no share", int: "no size"}[wanted]
    raise ValueError(f"{name} is {value!r:.40} and {what}")
