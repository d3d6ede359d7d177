"""Writes notes and shapes into a copy of a model file, on the level of protobuf's wire format.

Whatever is not touched is copied byte by byte from the file, weights above all: they are neither decoded nor held in
memory, so that a file of two gigabytes takes what its graph takes. Field numbers are those of onnx.proto.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import ModelError
from neusight_onnx.graph.raw import FunctionKey
from neusight_onnx.graph.read import opened_model
from neusight_onnx.graph.source import Source, SourceGraph, SourceNode
from neusight_onnx.graph.wire import BYTES, Buffer, fields, name_text

MOST_BYTES = 2**31 - 1
"""Protobuf refuses larger messages."""

_COPIED_BYTES = 4 << 20

_MODEL_GRAPH, _MODEL_METADATA, _MODEL_FUNCTION = 7, 14, 25
_GRAPH_NODE, _GRAPH_INPUT, _GRAPH_OUTPUT, _GRAPH_VALUE = 1, 11, 12, 13
_NODE_ATTRIBUTE, _NODE_METADATA = 5, 9
_ATTRIBUTE_NAME, _ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS = 1, 6, 11
_FUNCTION_NAME, _FUNCTION_NODE, _FUNCTION_DOMAIN, _FUNCTION_OVERLOAD = 1, 7, 10, 13


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorType:
    """Element type and shape of a value; a dimension that is not known is None."""

    dtype: DataType
    shape: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """What is written. ``prefix`` begins every key; entries of an earlier run that begin so are left out.

    ``of_node``: key and text for a node of the file. ``of_graph``: types by the names that the values have in the file,
    for a graph and whether it is the main one, whose inputs and outputs they replace, too. ``of_model``: for the file.
    """

    prefix: str
    of_model: Mapping[str, str]
    of_node: Callable[[SourceNode], Mapping[str, str]]
    of_graph: Callable[[SourceGraph], Mapping[str, TensorType]]


@dataclass(slots=True, kw_only=True)
class _Pieces:
    """A message as it will be written: spans of the file (start, stop), and bytes of ours."""

    parts: list[tuple[int, int] | bytes] = field(default_factory=list)
    byte_count: int = 0

    def copy(self, start: int, stop: int) -> None:
        last = self.parts[-1] if self.parts else None
        if isinstance(last, tuple) and last[1] == start:
            self.parts[-1] = (last[0], stop)
        else:
            self.parts.append((start, stop))
        self.byte_count += stop - start

    def add(self, data: bytes) -> None:
        self.parts.append(data)
        self.byte_count += len(data)

    def embed(self, number: int, inner: _Pieces) -> None:
        """``inner`` as the field ``number`` of this message."""
        self.add(_key(number) + _varint(inner.byte_count))
        for part in inner.parts:
            if isinstance(part, tuple):
                self.copy(*part)
            else:
                self.add(part)


def write_notes(path: Path, source: Source, notes: Notes, file: BinaryIO) -> None:
    """Writes ``path`` with ``notes`` to ``file``; ``source`` is what :func:`read_source` made of the same file.

    Raises ModelError if the file is no longer that one, or if it would become too large for protobuf.
    """
    with opened_model(path) as buffer, path.open("rb") as original:
        try:
            pieces = _model(buffer, source, notes)
        except StopIteration:
            raise ModelError("has changed while it was read") from None
        if pieces.byte_count > MOST_BYTES:
            raise ModelError(
                f"with notes would have {pieces.byte_count:,} bytes, more than a protobuf file may have "
                f"({MOST_BYTES:,}); save it with its weights in an external file first"
            )
        for part in pieces.parts:
            if isinstance(part, bytes):
                file.write(part)
            else:
                _copy(original, part, file)


def _copy(original: BinaryIO, span: tuple[int, int], file: BinaryIO) -> None:
    """In blocks, from the file rather than from its mapping, whose pages would count as memory of ours."""
    start, stop = span
    original.seek(start)
    while start < stop:
        block = original.read(min(_COPIED_BYTES, stop - start))
        if not block:
            raise ModelError("became shorter while it was copied")
        file.write(block)
        start += len(block)


def _spans(buffer: Buffer, start: int, stop: int) -> Iterator[tuple[int, int, int, int, int]]:
    """(field number, wire type, start of the field, start and stop of its payload)."""
    begin = start
    for number, wire, first, last in fields(buffer, start, stop):
        yield number, wire, begin, first, last
        begin = last


def _model(buffer: Buffer, source: Source, notes: Notes) -> _Pieces:
    made = _Pieces()
    graphs = [span for span in _spans(buffer, 0, len(buffer)) if span[0] == _MODEL_GRAPH and span[1] == BYTES]
    nodes = iter(source.graph.nodes)
    known: set[FunctionKey] = set()
    for number, wire, begin, start, stop in _spans(buffer, 0, len(buffer)):
        if number == _MODEL_GRAPH and wire == BYTES:
            # a graph in several pieces is their sum: the types stand behind the last one
            is_last = begin == graphs[-1][2]
            types = notes.of_graph(source.graph)
            made.embed(number, _graph(buffer, start, stop, nodes, types, notes, is_main=True, is_last=is_last))
        elif number == _MODEL_FUNCTION and wire == BYTES:
            key = _function_key(buffer, start, stop)
            function = source.functions.get(key)
            if function is None or key in known:
                made.copy(begin, stop)
            else:
                known.add(key)
                made.embed(number, _function(buffer, start, stop, iter(function.nodes), notes))
        elif number == _MODEL_METADATA and wire == BYTES and _is_ours(buffer, start, stop, notes):
            continue
        else:
            made.copy(begin, stop)
    for name, text in notes.of_model.items():
        made.add(_entry(_MODEL_METADATA, notes.prefix + name, text))
    return made


def _function_key(buffer: Buffer, start: int, stop: int) -> FunctionKey:
    texts = {_FUNCTION_NAME: "", _FUNCTION_DOMAIN: "", _FUNCTION_OVERLOAD: ""}
    for number, wire, first, last in fields(buffer, start, stop):
        if wire == BYTES and number in texts:
            texts[number] = name_text(buffer[first:last])
    domain = texts[_FUNCTION_DOMAIN]
    return "" if domain == "ai.onnx" else domain, texts[_FUNCTION_NAME], texts[_FUNCTION_OVERLOAD]


def _function(buffer: Buffer, start: int, stop: int, nodes: Iterator[SourceNode], notes: Notes) -> _Pieces:
    made = _Pieces()
    for number, wire, begin, first, last in _spans(buffer, start, stop):
        if number == _FUNCTION_NODE and wire == BYTES:
            made.embed(number, _node(buffer, first, last, next(nodes), notes))
        else:
            made.copy(begin, last)
    return made


def _graph(
    buffer: Buffer,
    start: int,
    stop: int,
    nodes: Iterator[SourceNode],
    types: Mapping[str, TensorType],
    notes: Notes,
    *,
    is_main: bool,
    is_last: bool = True,
) -> _Pieces:
    made = _Pieces()
    declared: set[str] = set()
    for number, wire, begin, first, last in _spans(buffer, start, stop):
        if wire != BYTES:
            made.copy(begin, last)
        elif number == _GRAPH_NODE:
            made.embed(number, _node(buffer, first, last, next(nodes), notes))
        elif number == _GRAPH_VALUE and _name_of(buffer, first, last) in types:
            continue
        elif number in (_GRAPH_INPUT, _GRAPH_OUTPUT):
            name = _name_of(buffer, first, last)
            declared.add(name)
            if is_main and name in types:
                made.embed(number, _declared(buffer, first, last, types[name]))
            else:
                made.copy(begin, last)
        else:
            made.copy(begin, last)
    if is_last:
        for name, known in types.items():
            if name not in declared:
                made.add(_field(_GRAPH_VALUE, _field(1, name.encode()) + _field(2, _type(known))))
    return made


def _declared(buffer: Buffer, start: int, stop: int, known: TensorType) -> _Pieces:
    """A ValueInfoProto with another type."""
    made = _Pieces()
    for number, wire, begin, _, last in _spans(buffer, start, stop):
        if number != 2 or wire != BYTES:
            made.copy(begin, last)
    made.add(_field(2, _type(known)))
    return made


def _node(buffer: Buffer, start: int, stop: int, node: SourceNode, notes: Notes) -> _Pieces:
    made = _Pieces()
    for number, wire, begin, first, last in _spans(buffer, start, stop):
        if number == _NODE_ATTRIBUTE and wire == BYTES and node.bodies:
            made.embed(number, _attribute(buffer, first, last, node, notes))
        elif number == _NODE_METADATA and wire == BYTES and _is_ours(buffer, first, last, notes):
            continue
        else:
            made.copy(begin, last)
    for key, text in notes.of_node(node).items():
        made.add(_entry(_NODE_METADATA, notes.prefix + key, text))
    return made


def _attribute(buffer: Buffer, start: int, stop: int, node: SourceNode, notes: Notes) -> _Pieces:
    name = ""
    count = 0
    for number, wire, first, last in fields(buffer, start, stop):
        if wire == BYTES and number == _ATTRIBUTE_NAME:
            name = name_text(buffer[first:last])
        count += wire == BYTES and number in (_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS)
    bodies = node.bodies.get(name, ())
    made = _Pieces()
    pending = iter(bodies)
    for number, wire, begin, first, last in _spans(buffer, start, stop):
        # an attribute that a file gives twice is copied as it is: one of the two was read
        if wire == BYTES and number in (_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS) and count == len(bodies):
            body = next(pending)
            types = notes.of_graph(body)
            made.embed(number, _graph(buffer, first, last, iter(body.nodes), types, notes, is_main=False))
        else:
            made.copy(begin, last)
    return made


def _is_ours(buffer: Buffer, start: int, stop: int, notes: Notes) -> bool:
    """Whether a StringStringEntryProto has one of our keys."""
    return any(
        number == 1 and wire == BYTES and name_text(buffer[first : min(last, first + 64)]).startswith(notes.prefix)
        for number, wire, first, last in fields(buffer, start, stop)
    )


def _name_of(buffer: Buffer, start: int, stop: int) -> str:
    name = ""
    for number, wire, first, last in fields(buffer, start, stop):
        if number == 1 and wire == BYTES:
            name = name_text(buffer[first:last])
    return name


# --- protobuf, written ------------------------------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _key(number: int) -> bytes:
    return _varint(number << 3 | BYTES)


def _field(number: int, payload: bytes) -> bytes:
    return _key(number) + _varint(len(payload)) + payload


def _entry(number: int, key: str, text: str) -> bytes:
    """A StringStringEntryProto as the field ``number``."""
    return _field(number, _field(1, key.encode()) + _field(2, text.encode("utf-8", "backslashreplace")))


def _type(known: TensorType) -> bytes:
    """A TypeProto of a tensor: a dimension without a size is one without a value."""
    dims = b"".join(_field(1, b"" if size is None else b"\x08" + _varint(size)) for size in known.shape)
    return _field(1, b"\x08" + _varint(known.dtype.onnx_code) + _field(2, dims))
