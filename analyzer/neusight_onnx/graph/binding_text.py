"""How sizes, shapes and values are written: what users type, and what messages about it say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from math import prod

import numpy as np

from neusight_onnx.errors import BindingError, shown
from neusight_onnx.graph.model import Array, Dim

MAX_SIZE = 2**31 - 1
"""Of one dimension: indices of GPU kernels and most runtimes are 32 bits wide."""

MAX_ELEMENTS = 2**48
"""Of one input: 2**48 bytes are a thousand times the memory of any GPU."""

MAX_VALUE_ELEMENTS = 65_536
"""Of a ``--value``: shapes depend on small tensors only."""


_SEVERAL = "; sweep and compare take several"


def parse_dim(text: str) -> dict[str, int]:
    """``"batch=8,seq=128"`` -> {"batch": 8, "seq": 128}."""
    result: dict[str, int] = {}
    for part in text.split(","):
        name, separator, size = part.rpartition("=")
        name = name.strip()
        if not separator or not name:
            several = result and re.fullmatch(r"\s*(\d+|\.\.\.|\d+\.\..*)\s*", part)
            comma = ", and \\x2c for a comma within a name" if "," in text else ""
            comma = _SEVERAL if several else comma
            raise BindingError(
                f"--dim {shown(text)}: {shown(part)!r} is no binding; write NAME=SIZE, e.g. batch=8{comma}"
            )
        if re.fullmatch(r"\s*\d+\.\..*", size):
            raise BindingError(f"--dim {shown(part)}: {shown(size)!r} is a range, give one size{_SEVERAL}")
        value = parse_size(size, f"--dim {shown(part)}")
        if result.setdefault(name, value) != value:
            raise BindingError(f"--dim {shown(text)}: {shown(name)!r} is given twice; keep one of the sizes")
    return result


def parse_size(text: str, where: str) -> int:
    """A size; ``where`` begins the message of the BindingError for what is none. 0 may be one: an empty cache."""
    size = _integer(text, where)
    check_size(size, where, least=0)
    return size


def parse_batch(text: str) -> int:
    """``"8"`` -> 8, of an option that is about the batch alone."""
    where = f"--batch {shown(text)}"
    if re.fullmatch(r"\s*\d+\s*(,|\.\.).*", text):
        raise BindingError(f"{where}: give one size{_SEVERAL}")
    size = _integer(text, where)
    check_size(size, where)
    return size


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """``"x=1x3x224x224"``, ``"x:1x3x224x224"``, ``"s=scalar"`` -> (name, shape)."""
    name, separator, shape = text.rpartition("=")
    if not separator:
        name, separator, shape = text.rpartition(":")
    name, shape = name.strip(), shape.strip().lower()
    if not separator or not name or not shape:
        raise BindingError(
            f"--shape {shown(text)} is no shape; write NAME=1x3x224x224, or NAME=scalar for one without dimensions"
        )
    if shape == "scalar":
        return name, ()
    sizes = tuple(_integer(size, f"--shape {shown(text)}") for size in re.split(r"[x,]", shape.strip("[]()")))
    check_shape(sizes, f"--shape {shown(text)}", least=0)
    return name, sizes


def parse_value(text: str) -> tuple[str, Array]:
    """``"n=16000"``, ``"n=[1,3,8]"``, ``"flag=true"`` (or True) -> (name, array of int64, float64 or bool)."""
    name, separator, written = text.partition("=")
    name = name.strip()
    if not separator or not name:
        raise BindingError(f"--value {shown(text)} is no value; write INPUT=16000 or INPUT=[1,3,8]")
    complaint = f"--value {shown(text)}: {shown(written)!r} is neither a number nor a list of numbers"
    if len(written) > 1_000_000:
        raise BindingError(f"{complaint}, and too long")
    try:
        parsed = json.loads(re.sub(r"\b(True|False)\b", lambda match: match[0].lower(), written))
    except (ValueError, RecursionError):
        raise BindingError(f"{complaint}; write INPUT=16000 or INPUT=[1,3,8]") from None
    flat: list[int | float | bool] = []
    shape = _flatten(parsed, flat, complaint, 0)
    if len(flat) > MAX_VALUE_ELEMENTS:
        raise BindingError(f"--value {shown(text)}: more than {MAX_VALUE_ELEMENTS:,} elements; no shape needs so many")
    if flat and all(isinstance(item, bool) for item in flat):
        kind = "bool"
    elif any(isinstance(item, float) for item in flat):
        kind = "float64"
    else:
        kind = "int64"
        if any(not -(2**63) <= item < 2**63 for item in flat):
            raise BindingError(f"--value {shown(text)}: a number does not fit 64 bits")
    array: Array = np.array(flat, kind).reshape(shape)
    array.setflags(write=False)
    return name, array


def parse_trip_count(text: str) -> tuple[str, int]:
    """``"node=5"`` -> (node, 5)."""
    name, separator, count = text.rpartition("=")
    name = name.strip()
    if not separator or not name:
        raise BindingError(f"--trip-count {shown(text)} is no trip count; write NODE=5")
    value = _integer(count, f"--trip-count {shown(text)}")
    if not 0 <= value <= MAX_SIZE:
        raise BindingError(f"--trip-count {shown(text)}: give a number from 0 to {MAX_SIZE:,}")
    return name, value


def _integer(text: str, where: str) -> int:
    text = text.strip()
    if not re.fullmatch(r"[+-]?\d{1,30}", text, re.ASCII):
        raise BindingError(f"{where}: {shown(text, 40)!r} is no whole number")
    return int(text)


def check_size(size: int, where: str, *, least: int = 1) -> None:
    """Raises BindingError, which begins with ``where``, for what no dimension can have.

    ``least`` is 0 where it isn't known yet whether the size may be 0: of a cache only.
    """
    if size < least:
        raise BindingError(f"{where}: a size must be positive, not {size}")
    if size > MAX_SIZE:
        raise BindingError(f"{where}: {size} is more than a dimension can have ({MAX_SIZE:,})")


def check_shape(shape: Sequence[int], where: str, *, least: int = 1) -> None:
    """As :func:`check_size`, for all sizes of a shape and their product."""
    for size in shape:
        check_size(size, where, least=least)
    if prod(shape) > MAX_ELEMENTS:
        raise BindingError(f"{where}: {prod(shape):,} elements are more than a tensor can have here (2^48)")


def _flatten(item: object, flat: list[int | float | bool], complaint: str, depth: int) -> tuple[int, ...]:
    if isinstance(item, bool | int | float):
        flat.append(item)
        return ()
    if not isinstance(item, list) or depth > 8:
        raise BindingError(f"{complaint}; write INPUT=16000 or INPUT=[1,3,8]")
    shapes = [_flatten(part, flat, complaint, depth + 1) for part in item]
    if any(shape != shapes[0] for shape in shapes):
        raise BindingError(f"{complaint}: its rows differ in length")
    return (len(shapes), *(shapes[0] if shapes else ()))


# --- what messages say ------------------------------------------------------------------------------------------------


def written_shape(shape: Sequence[int]) -> str:
    """A shape as ``--shape`` takes it."""
    return "x".join(map(str, shape)) if shape else "scalar"


def written_dims(dims: Sequence[Dim]) -> str:
    """What a file declares: symbols by name, "?" for a free dimension without one."""
    return shown("x".join("?" if dim is None or dim == 0 else str(dim) for dim in dims) or "scalar", 200)


def listed(what: str, wanted: str, known: Iterable[str]) -> str:
    """The names that there are, the nearest first."""
    names = list(known)
    if not names:
        return f"it has no {what}"
    # Imported here: only a mistake needs it.
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(b=wanted[:100].lower())

    def likeness(name: str) -> float:
        matcher.set_seq1(name[:100].lower())
        return -matcher.ratio()

    names = sorted(names[:1000], key=likeness)
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"its {what}: {', '.join(shown(name, 60) for name in names[:10])}{more}"
