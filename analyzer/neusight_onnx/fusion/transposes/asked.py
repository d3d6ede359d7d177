"""The values that a pass asked for, and what it could tell of each: the same at other sizes, so is what it did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from neusight_onnx.graph.model import Value


class AskedValues(dict[str, Value]):
    """Values by name that remembers for which names it was asked."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        super().__init__(values)
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> Value:
        self.asked.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)


@dataclass(frozen=True, slots=True)
class Facts:
    """What values told a pass that asks for ranks, dimensions of 1 and constants, and for no other size."""

    values: tuple[tuple[str, Value | None, object], ...]

    @classmethod
    def of(cls, values: Mapping[str, Value], asked: set[str]) -> Facts:
        return cls(tuple([(name, values.get(name), _fact(values.get(name))) for name in asked]))

    def hold_of(self, values: Mapping[str, Value]) -> bool:
        """Whether these values tell the same."""
        find = values.get
        return all((value := find(name)) is before or _fact(value) == fact for name, before, fact in self.values)


def _fact(value: Value | None) -> object:
    if value is None:
        return None
    shape, data = value.shape, value.data
    return (
        None if shape is None else (len(shape), shape.count(1)),
        value.is_constant,
        None if data is None else data.size,
        data.tobytes() if data is not None and value.is_constant else None,
    )
