"""The fields of an AttributeProto while they are read, and the value that they make."""

from __future__ import annotations

from typing import Generic, TypeVar

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Attribute, Declared, Initializer
from neusight_onnx.graph.raw import RawGraph

MAX_ATTRIBUTE_ENTRIES = 2_000_000
"""A longer list (huge tree ensembles) becomes an Initializer without data: as Python numbers it takes over 64 MB."""

_Number = TypeVar("_Number", int, float)


class _Numbers(Generic[_Number]):
    """The entries of a list attribute; only their number once there are more than MAX_ATTRIBUTE_ENTRIES."""

    def __init__(self) -> None:
        self.entries: list[_Number] = []
        self.count = 0

    def add(self, entries: list[_Number]) -> None:
        self.count += len(entries)
        if self.count <= MAX_ATTRIBUTE_ENTRIES:
            self.entries.extend(entries)
        else:
            self.entries.clear()

    def value(self, name: str, dtype: DataType) -> tuple[_Number, ...] | Initializer:
        if self.count > MAX_ATTRIBUTE_ENTRIES:
            return Initializer(name=name, dtype=dtype, shape=(self.count,))
        return tuple(self.entries)


class AttributeFields:
    """What the fields of an AttributeProto have said so far. ``kind``: its type by number (AttributeType), 0 where none
    is stated; ``seen``: that of the value that was read last."""

    __slots__ = (
        *("name", "reference", "kind", "seen", "integer", "real", "text"),
        *("tensors", "graphs", "types", "reals", "integers", "strings"),
    )

    def __init__(self) -> None:
        self.name = self.reference = ""
        self.kind = self.seen = self.integer = 0
        self.real = 0.0
        self.text: str | bytes = ""
        self.tensors: list[Initializer] = []
        self.graphs: list[RawGraph] = []
        self.types: list[Declared] = []
        self.reals: _Numbers[float] = _Numbers()
        self.integers: _Numbers[int] = _Numbers()
        self.strings: list[str] = []

    def value(self) -> tuple[Attribute | RawGraph | tuple[RawGraph, ...], bool]:
        """The value, and whether it is plain: without graphs."""
        # Files from before IR version 2 leave the type out: then what is there says it.
        match self.kind or self.seen:
            case 1:
                return self.real, True
            case 2:
                return self.integer, True
            case 3:
                return self.text, True
            case 4 | 11:
                return self.tensors[-1] if self.tensors else None, True
            case 5:
                return self.graphs[-1] if self.graphs else None, not self.graphs
            case 6:
                return self.reals.value(self.name, DataType.FLOAT32), True
            case 7:
                return self.integers.value(self.name, DataType.INT64), True
            case 8:
                return tuple(self.strings), True
            case 9 | 12:
                return tuple(self.tensors), True
            case 10:
                return tuple(self.graphs), not self.graphs
            case 13:
                return self.types[-1] if self.types else None, True
            case 14:
                return tuple(self.types), True
            case _:
                return None, True
