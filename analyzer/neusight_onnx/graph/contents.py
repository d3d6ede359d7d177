"""What the large constants of a file hold, which reading a model steps over: whether NaN, and how far they go.

Bytes are read in pieces, never a whole tensor, and only where somebody asks.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import ModelError
from neusight_onnx.graph.bodies import bodies_of, nodes_of
from neusight_onnx.graph.model import Initializer, Model
from neusight_onnx.graph.raw import ExternalData
from neusight_onnx.graph.read import external_path

LOOKED_AT_BYTES = 4 << 30
"""Constants are looked at up to so many bytes of a model: a few seconds from a disk of 1 to 2 GB/s."""

_PIECE_BYTES = 8 << 20

_INFINITE: dict[DataType, tuple[str, int]] = {
    DataType.FLOAT16: ("<u2", 0x7C00),
    DataType.BFLOAT16: ("<u2", 0x7F80),
    DataType.FLOAT32: ("<u4", 0x7F800000),
    DataType.FLOAT64: ("<u8", 0x7FF0000000000000),
}
"""(unsigned integer of the same width, infinity as such): what is greater, but for the sign, is NaN (IEEE 754)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extremes:
    """``furthest``: the finite element farthest from zero, 0 where there is none; ``infinite``: plus or minus infinity
    where an element is, else 0."""

    has_nan: bool
    furthest: float
    infinite: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What was found in the large constants of a model. ``left_out_bytes``: of those beyond :data:`LOOKED_AT_BYTES`."""

    found: Mapping[tuple[str | None, int, DataType, int], Extremes]
    left_out_bytes: int = 0

    def of(self, constant: Initializer) -> Extremes | None:
        """None of a constant that was not looked at."""
        return self.found.get(_place(constant)) if constant.stored_at is not None else None


NOTHING = Contents(found={})


def contents_of(model: Model, limit_bytes: int = LOOKED_AT_BYTES) -> Contents:
    """The extremes of the constants of 16, 32 and 64 bits whose data was not kept, the model's own and those outside.

    The files are those that the model was read from; of one that has changed since, or isn't there, nothing is said.
    """
    found: dict[tuple[str | None, int, DataType, int], Extremes] = {}
    left_out = budget = 0
    path = Path(model.path)
    by_file: dict[str | None, dict[int, Initializer]] = {}
    for constant in _large(model):
        if budget + constant.byte_count > limit_bytes:
            left_out += constant.byte_count
            continue
        assert constant.stored_at is not None
        known = by_file.setdefault(constant.external, {})
        if constant.stored_at not in known:
            budget += constant.byte_count
            known[constant.stored_at] = constant
    for external, constants in by_file.items():
        try:
            place = path if external is None else _outside(path, external, constants)
            if place is None or not stat.S_ISREG(os.stat(place).st_mode):
                continue
            with place.open("rb") as file:
                if external is None and os.fstat(file.fileno()).st_size != model.byte_count:
                    continue
                for offset in sorted(constants):
                    extremes = _extremes(file, constants[offset])
                    if extremes is not None:
                        found[_place(constants[offset])] = extremes
        except (OSError, ValueError, ModelError):
            continue
    return Contents(found=found, left_out_bytes=left_out)


def _large(model: Model) -> Iterator[Initializer]:
    yield from _wanted(model.graph.initializers.values())
    for node in nodes_of(model.graph):
        if node.attributes:
            yield from _wanted(value for value in node.attributes.values() if isinstance(value, Initializer))
            for body in bodies_of(node):
                yield from _wanted(body.initializers.values())


def _wanted(constants: Iterable[Initializer]) -> Iterator[Initializer]:
    return (each for each in constants if each.stored_at is not None and each.dtype in _INFINITE and each.byte_count)


def _outside(model: Path, location: str, constants: Mapping[int, Initializer]) -> Path | None:
    last = constants[max(constants)]
    assert last.stored_at is not None
    return external_path(
        model,
        ExternalData(tensor=last.name, location=location, offset=last.stored_at, byte_count=last.byte_count),
    )


def _place(constant: Initializer) -> tuple[str | None, int, DataType, int]:
    assert constant.stored_at is not None
    return constant.external, constant.stored_at, constant.dtype, constant.element_count


def _extremes(file: BinaryIO, constant: Initializer) -> Extremes | None:
    assert constant.stored_at is not None
    kind, infinity = _INFINITE[constant.dtype]
    width = np.dtype(kind).itemsize
    sign = 1 << (8 * width - 1)
    file.seek(constant.stored_at)
    left = constant.byte_count
    furthest = infinite = None
    has_nan = False
    while left:
        piece = file.read(min(left, _PIECE_BYTES))
        if not piece or len(piece) % width:
            return None
        left -= len(piece)
        bits = np.frombuffer(piece, kind)
        sizes = bits & np.array(sign - 1, kind)
        if int(sizes.max()) >= infinity:
            has_nan = has_nan or bool((sizes > infinity).any())
            endless = np.flatnonzero(sizes == infinity)
            if infinite is None and endless.size:
                infinite = int(bits[endless[0]])
            sizes[sizes >= infinity] = 0
        place = int(sizes.argmax())
        if furthest is None or int(sizes[place]) > furthest & (sign - 1):
            furthest = int(bits[place]) if sizes[place] else 0
    return Extremes(
        has_nan=has_nan,
        furthest=0.0 if furthest is None else _number(furthest, constant.dtype),
        infinite=0.0 if infinite is None else _number(infinite, constant.dtype),
    )


def _number(bits: int, dtype: DataType) -> float:
    kind, _ = _INFINITE[dtype]
    if dtype is DataType.BFLOAT16:
        return float(np.array(bits << 16, "<u4").view("<f4"))
    return float(np.array(bits, kind).view(kind.replace("u", "f")))
