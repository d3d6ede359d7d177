"""What an ONNX file says, as it stands there: protobuf's messages as plain values, nothing looked up or inlined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from neusight_onnx.graph.model import Attribute, Declared, Initializer

FunctionKey = tuple[str, str, str]
"""Domain ("" for ai.onnx), name and overload of a function, as a node calls it."""


class Reference(NamedTuple):
    """An attribute of a function's body that takes its value from the function's attribute ``name``."""

    name: str


class RawNode(NamedTuple):
    """A NodeProto. ``plain``: its attributes hold neither subgraphs nor references, so they need no work."""

    name: str
    op_type: str
    domain: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute | RawGraph | tuple[RawGraph, ...] | Reference]
    plain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RawGraph:
    """A GraphProto, nodes in the file's order, names as they stand there."""

    name: str
    nodes: list[RawNode]
    inputs: list[Declared]
    outputs: list[Declared]
    value_info: list[Declared]
    initializers: dict[str, Initializer]
    duplicate_initializers: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFunction:
    """A FunctionProto. ``defaults``: attributes that have one; ``attributes``: all names."""

    name: str
    domain: str
    overload: str
    inputs: list[str]
    outputs: list[str]
    attributes: list[str]
    defaults: Mapping[str, Attribute | RawGraph | tuple[RawGraph, ...] | Reference]
    nodes: list[RawNode]
    opsets: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawModel:
    """A ModelProto."""

    ir_version: int
    producer: str
    opsets: dict[str, int]
    graph: RawGraph
    functions: dict[FunctionKey, RawFunction]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalData:
    """Where a tensor's bytes lie outside the model file, as the model says; ``byte_count`` is what its shape needs."""

    tensor: str
    location: str
    offset: int
    byte_count: int


class ExternalFiles(Protocol):
    """What the decoder asks about bytes outside the model file."""

    def look(self, data: ExternalData, *, wanted: bool) -> tuple[bool, bytes | None]:
        """Whether the bytes are missing, and the bytes themselves if they are ``wanted`` and there.

        Raises ModelError for a location that is not allowed.
        """
        ...
