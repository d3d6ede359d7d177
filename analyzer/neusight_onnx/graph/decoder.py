"""The messages of ONNX files, read straight into plain values; the bytes of weights are never touched.

Only what the analysis needs is decoded: a field that is not needed, a weight's payload above all, is stepped over by
its length, so a file of many gigabytes costs what its graph costs. Field numbers are those of onnx.proto
(onnx/onnx.proto in the onnx repository, part of the ONNX specification). Reading this way takes about as long as
walking the generated protobuf classes, never loads a weight, and needs no import of onnx (160 ms).

Every fault in the bytes raises :class:`ModelError` without the file's name, which the caller adds.
"""

from __future__ import annotations

import struct

import numpy as np

from neusight_onnx.dtypes import BY_ONNX_CODE, DataType
from neusight_onnx.errors import ModelError, shown
from neusight_onnx.graph.attribute_fields import MAX_ATTRIBUTE_ENTRIES, AttributeFields
from neusight_onnx.graph.model import Attribute, Declared, Dim, Initializer
from neusight_onnx.graph.raw import ExternalFiles, FunctionKey, RawFunction, RawGraph, RawModel, RawNode, Reference
from neusight_onnx.graph.tensors import TensorDecoder
from neusight_onnx.graph.wire import (
    BYTES,
    FIXED32,
    VARINT,
    Buffer,
    fields,
    name_text,
    same_width,
    signed,
    truncated,
    varint,
    varints,
)

MAX_DEPTH = 64
"""Subgraphs nested deeper are refused; real models nest 3 or 4 deep."""

MAX_NAME_BYTES = 1 << 16
"""A longer name (of a node, value, symbol, file, ...) is refused: reports print names, at about 1 MB/s."""

_CHUNK_BYTES = 4 << 20
"""How much of a long list is decoded at once."""


class Decoder:
    """Decodes one file; it holds the bytes and what repeats in them (names, small attributes, types)."""

    def __init__(self, buffer: Buffer, external_files: ExternalFiles) -> None:
        self.buffer = buffer
        self._tensors = TensorDecoder(buffer, self._text, external_files)
        self._names: dict[bytes, str] = {b"": ""}
        self._attributes: dict[bytes, tuple[str, Attribute | RawGraph | tuple[RawGraph, ...] | Reference, bool]] = {}
        self._types: dict[bytes, tuple[str, DataType | None, tuple[Dim, ...] | None]] = {}

    @property
    def stripped(self) -> list[tuple[str, int]]:
        """The tensors whose bytes are gone altogether, with their size in bytes."""
        return self._tensors.stripped

    # The loop over a node's fields is the hot one: it reads tags and lengths in place; ``fields`` does the rest.

    def model(self) -> RawModel:
        """The whole file."""
        buffer = self.buffer
        ir_version = 0
        producer = ["", ""]
        opsets: dict[str, int] = {}
        graphs: list[tuple[int, int]] = []
        functions: dict[FunctionKey, RawFunction] = {}
        for number, wire, start, stop in fields(buffer, 0, len(buffer)):
            if number == 1 and wire == VARINT:
                ir_version = signed(start)
            elif wire != BYTES:
                continue
            elif number in (2, 3):
                producer[number - 2] = name_text(self.buffer[start : min(stop, start + 400)])[:100]
            elif number == 7:
                graphs.append((start, stop))
            elif number == 8:
                self._opset(start, stop, opsets)
            elif number == 25:
                function = self._function(start, stop)
                functions.setdefault((function.domain, function.name, function.overload), function)
        if not graphs:
            raise ModelError("is no ONNX model: there is no graph in it")
        graph = self._graph(graphs, 0)
        if not (ir_version or opsets or graph.nodes or graph.inputs):
            raise ModelError("is no ONNX model: it has neither an IR version nor opsets nor nodes")
        name = " ".join(part for part in producer if part)
        return RawModel(ir_version=ir_version, producer=name, opsets=opsets, graph=graph, functions=functions)

    def _text(self, start: int, stop: int) -> str:
        return self._name(self.buffer[start:stop])

    def _name(self, raw: bytes) -> str:
        name = self._names.get(raw)
        if name is None:
            if len(raw) > MAX_NAME_BYTES:
                raise ModelError(
                    f"has a name of {len(raw):,} bytes, {shown(name_text(raw[:40]))!r}; it looks like a bomb"
                )
            name = self._names[raw] = name_text(raw)
        return name

    def _domain(self, start: int, stop: int) -> str:
        name = self._text(start, stop)
        return "" if name == "ai.onnx" else name

    def _opset(self, start: int, stop: int, opsets: dict[str, int]) -> None:
        domain, version = "", 0
        for number, wire, a, b in fields(self.buffer, start, stop):
            if number == 1 and wire == BYTES:
                domain = self._domain(a, b)
            elif number == 2 and wire == VARINT:
                version = signed(a)
        opsets[domain] = max(version, opsets.get(domain, 0))

    def _graph(self, spans: list[tuple[int, int]], depth: int) -> RawGraph:
        """The graph in ``spans``: protobuf says that a message given in several pieces is their sum."""
        if depth > MAX_DEPTH:
            raise ModelError(f"nests subgraphs more than {MAX_DEPTH} deep")
        name = ""
        nodes: list[RawNode] = []
        inputs: list[Declared] = []
        outputs: list[Declared] = []
        value_info: list[Declared] = []
        initializers: dict[str, Initializer] = {}
        duplicates: list[str] = []
        node = self._node
        for first, last in spans:
            for number, wire, start, stop in fields(self.buffer, first, last):
                if wire != BYTES:
                    continue
                if number == 1:
                    nodes.append(node(start, stop, depth))
                elif number == 5 or number == 15:
                    tensor = (
                        self._tensors.tensor(start, stop) if number == 5 else self._tensors.sparse_tensor(start, stop)
                    )
                    if tensor.name in initializers:
                        duplicates.append(tensor.name)
                    if tensor.name:  # without one, nothing can read it
                        initializers[tensor.name] = tensor
                elif number == 13:
                    value_info.append(self._declared(start, stop))
                elif number == 11:
                    inputs.append(self._declared(start, stop))
                elif number == 12:
                    outputs.append(self._declared(start, stop))
                elif number == 2:
                    name = self._text(start, stop)
        return RawGraph(
            name=name,
            nodes=nodes,
            inputs=inputs,
            outputs=outputs,
            value_info=value_info,
            initializers=initializers,
            duplicate_initializers=duplicates,
        )

    def _function(self, start: int, stop: int) -> RawFunction:
        name = domain = overload = ""
        inputs: list[str] = []
        outputs: list[str] = []
        attributes: list[str] = []
        defaults: dict[str, Attribute | RawGraph | tuple[RawGraph, ...] | Reference] = {}
        nodes: list[RawNode] = []
        opsets: dict[str, int] = {}
        for number, wire, a, b in fields(self.buffer, start, stop):
            if wire != BYTES:
                continue
            if number == 7:
                nodes.append(self._node(a, b, 0))
            elif number == 1:
                name = self._text(a, b)
            elif number == 4:
                inputs.append(self._text(a, b))
            elif number == 5:
                outputs.append(self._text(a, b))
            elif number == 6:
                attributes.append(self._text(a, b))
            elif number == 9:
                self._opset(a, b, opsets)
            elif number == 10:
                domain = self._domain(a, b)
            elif number == 11:
                key, value, _ = self._attribute(a, b, 0)
                defaults[key] = value
            elif number == 13:
                overload = self._text(a, b)
        return RawFunction(
            name=name,
            domain=domain,
            overload=overload,
            inputs=inputs,
            outputs=outputs,
            attributes=attributes,
            defaults=defaults,
            nodes=nodes,
            opsets=opsets,
        )

    def _node(self, position: int, end: int, depth: int) -> RawNode:
        buffer = self.buffer
        names = self._names
        name = op_type = domain = overload = ""
        inputs: list[str] = []
        outputs: list[str] = []
        attributes: dict[str, Attribute | RawGraph | tuple[RawGraph, ...] | Reference] = {}
        plain = True
        while position < end:
            tag = buffer[position]
            if tag & 7 != BYTES or tag >= 0x80 or position + 1 == end:
                # No field that is needed: step over it.
                position = next(fields(buffer, position, end))[3]
                continue
            length = buffer[position + 1]
            position += 2
            if length >= 0x80:
                length, position = varint(buffer, position - 1, end)
            stop = position + length
            if stop > end:
                raise truncated(end)
            if tag == 0x2A:  # attribute, 5
                key, value, simple = self._attribute(position, stop, depth)
                attributes[key] = value
                plain = plain and simple
            elif tag != 0x32:  # doc_string, 6, may be long
                raw = buffer[position:stop]
                text = names.get(raw)
                if text is None:
                    if tag > 0x42:  # metadata_props, 9, and what is newer
                        position = stop
                        continue
                    text = self._name(raw)
                if tag == 0x0A:  # input, 1
                    inputs.append(text)
                elif tag == 0x12:  # output, 2
                    outputs.append(text)
                elif tag == 0x1A:  # name, 3
                    name = text
                elif tag == 0x22:  # op_type, 4
                    op_type = text
                elif tag == 0x3A:  # domain, 7
                    domain = "" if text == "ai.onnx" else text
                elif tag == 0x42:  # overload, 8
                    overload = text
            position = stop
        return RawNode(name, op_type, domain, overload, tuple(inputs), tuple(outputs), attributes, plain)

    def _attribute(
        self, start: int, stop: int, depth: int
    ) -> tuple[str, Attribute | RawGraph | tuple[RawGraph, ...] | Reference, bool]:
        """(name, value, plain); the same few small attributes (axis, perm, a scalar) make up most of a file."""
        if stop - start > 160:
            return self._attribute_decoded(start, stop, depth)
        raw = self.buffer[start:stop]
        known = self._attributes.get(raw)
        if known is None:
            known = self._attribute_decoded(start, stop, depth)
            if known[2]:
                self._attributes[raw] = known
        return known

    def _attribute_decoded(
        self, position: int, end: int, depth: int
    ) -> tuple[str, Attribute | RawGraph | tuple[RawGraph, ...] | Reference, bool]:
        found = AttributeFields()
        in_runs = True
        resume = position
        while resume < end:
            position, resume = resume, end
            for number, wire, start, stop in fields(self.buffer, position, end):
                if wire == BYTES:
                    self._bytes_of_attribute(found, number, start, stop, depth)
                    continue
                entries = self._number_of_attribute(found, number, wire, start, stop)
                if in_runs and entries >= 64 and end - stop > 1024:
                    # A long unpacked list: many at once, and go on behind them.
                    behind = self._rest_of_run(found, wire, stop, min(end, stop + _CHUNK_BYTES))
                    in_runs = behind != stop
                    if in_runs:
                        resume = behind
                        break
        if found.reference:
            return found.name, Reference(found.reference), False
        return found.name, *found.value()

    def _bytes_of_attribute(self, found: AttributeFields, number: int, start: int, stop: int, depth: int) -> None:
        """Takes a field of an AttributeProto that has a length: a name, text, message or packed list."""
        buffer = self.buffer
        if number == 1:
            found.name = self._text(start, stop)
        elif number == 4:
            found.text, found.seen = self._string(start, stop), 3
        elif number == 5:
            found.tensors, found.seen = [self._tensors.tensor(start, stop)], 4
        elif number == 22:
            found.tensors, found.seen = [self._tensors.sparse_tensor(start, stop)], 11
        elif number == 6:
            found.graphs, found.seen = [self._graph([(start, stop)], depth + 1)], 5
        elif number == 14:
            found.types, found.seen = [self._type(start, stop)], 13
        elif number == 7:
            found.seen = 6
            same_width(start, stop, 4)
            for at in range(start, stop, _CHUNK_BYTES):
                found.reals.add(np.frombuffer(buffer[at : min(at + _CHUNK_BYTES, stop)], "<f4").tolist())
        elif number == 8:
            found.seen = 7
            if stop - start > 10 * MAX_ATTRIBUTE_ENTRIES:
                raise ModelError(f"has an attribute {shown(found.name)!r} with {stop - start:,} bytes of numbers")
            found.integers.add(varints(buffer[start:stop]).tolist())
        elif number == 9:
            found.seen = 8
            found.strings.append(name_text(buffer[start:stop]))
        elif number == 10:
            found.tensors.append(self._tensors.tensor(start, stop))
            found.seen = 9
        elif number == 23:
            found.tensors.append(self._tensors.sparse_tensor(start, stop))
            found.seen = 12
        elif number == 11:
            found.graphs.append(self._graph([(start, stop)], depth + 1))
            found.seen = 10
        elif number == 15:
            found.types.append(self._type(start, stop))
            found.seen = 14
        elif number == 21:
            found.reference = self._text(start, stop)

    def _number_of_attribute(self, found: AttributeFields, number: int, wire: int, start: int, stop: int) -> int:
        """Takes a field of an AttributeProto that is one number; how many the list that it belongs to has by now."""
        if wire == VARINT:
            if number == 3:
                found.integer, found.seen = signed(start), 2
            elif number == 20:
                found.kind = start
            elif number == 8:
                found.seen = 7
                found.integers.add([signed(start)])
                return found.integers.count
        elif wire == FIXED32:
            if number == 2:
                found.real, found.seen = struct.unpack("<f", self.buffer[start:stop])[0], 1
            elif number == 7:
                found.seen = 6
                found.reals.add([struct.unpack("<f", self.buffer[start:stop])[0]])
                return found.reals.count
        return 0

    def _rest_of_run(self, found: AttributeFields, wire: int, position: int, end: int) -> int:
        """Takes the rest of an unpacked list from ``position``; where it ends."""
        if wire == VARINT:
            integers, behind = self._unpacked_integers(position, end)
            found.integers.add(integers)
        else:
            reals, behind = self._unpacked_reals(position, end)
            found.reals.add(reals)
        return behind

    def _unpacked_integers(self, position: int, end: int) -> tuple[list[int], int]:
        """The rest of a run of ``ints`` entries (tag 0x40, varint) from ``position``, and where it ends."""
        data = self.buffer[position:end]
        raw = np.frombuffer(data, np.uint8)
        stops = np.flatnonzero(raw < 0x80)
        stops = stops[: len(stops) // 2 * 2]
        if not len(stops):
            return [], position
        starts = np.concatenate(([0], stops[:-1] + 1))
        tags = (raw[starts[::2]] == 0x40) & (starts[::2] == stops[::2])
        count = len(tags) if tags.all() else int(np.argmin(tags))
        if not count:
            return [], position
        last = int(stops[2 * count - 1]) + 1
        return varints(data[:last])[1::2].tolist(), position + last

    def _unpacked_reals(self, position: int, end: int) -> tuple[list[float], int]:
        """The rest of a run of ``floats`` entries (tag 0x3d, four bytes) from ``position``, and where it ends."""
        length = (end - position) // 5
        data = self.buffer[position : position + 5 * length]
        rows = np.frombuffer(data, np.dtype([("tag", "u1"), ("value", "<f4")]))
        tags = rows["tag"] == 0x3D
        count = len(tags) if tags.all() else int(np.argmin(tags))
        return rows["value"][:count].tolist(), position + 5 * count

    def _string(self, start: int, stop: int) -> str | bytes:
        raw = self.buffer[start:stop]
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return raw

    def _declared(self, position: int, end: int) -> Declared:
        name = ""
        known: tuple[str, DataType | None, tuple[Dim, ...] | None] = ("tensor", None, None)
        for number, wire, start, stop in fields(self.buffer, position, end):
            if wire != BYTES:
                continue
            if number == 1:
                name = self._text(start, stop)
            elif number == 2:
                known = self._type_facts(start, stop)
        kind, dtype, shape = known
        return Declared(name=name, dtype=dtype, shape=shape, kind=kind)

    def _type(self, start: int, stop: int) -> Declared:
        kind, dtype, shape = self._type_facts(start, stop)
        return Declared(name="", dtype=dtype, shape=shape, kind=kind)

    def _type_facts(self, start: int, stop: int) -> tuple[str, DataType | None, tuple[Dim, ...] | None]:
        if stop - start > 4096:
            return self._type_decoded(start, stop, 0)
        raw = self.buffer[start:stop]
        known = self._types.get(raw)
        if known is None:
            known = self._types[raw] = self._type_decoded(start, stop, 0)
        return known

    def _type_decoded(self, position: int, end: int, depth: int) -> tuple[str, DataType | None, tuple[Dim, ...] | None]:
        """A TypeProto: (kind, element type, shape)."""
        if depth > MAX_DEPTH:
            raise ModelError(f"nests types more than {MAX_DEPTH} deep")
        kind = "tensor"
        dtype: DataType | None = None
        shape: tuple[Dim, ...] | None = None
        for number, wire, start, stop in fields(self.buffer, position, end):
            if wire != BYTES or number not in _KINDS:
                continue
            kind = _KINDS[number]
            for inner, inner_wire, a, b in fields(self.buffer, start, stop):
                if number in (1, 8):
                    if inner == 1 and inner_wire == VARINT:
                        dtype = BY_ONNX_CODE.get(a)
                    elif inner == 2 and inner_wire == BYTES:
                        shape = self._shape(a, b)
                elif inner_wire == BYTES and inner == (2 if number == 5 else 1):
                    _, dtype, shape = self._type_decoded(a, b, depth + 1)
        return kind, dtype, shape

    def _shape(self, position: int, end: int) -> tuple[Dim, ...]:
        dims: list[Dim] = []
        for number, wire, start, stop in fields(self.buffer, position, end):
            if number != 1 or wire != BYTES:
                continue
            dim: Dim = None
            for inner, inner_wire, a, b in fields(self.buffer, start, stop):
                if inner == 1 and inner_wire == VARINT:
                    dim = signed(a) if not a >> 63 else None
                elif inner == 2 and inner_wire == BYTES:
                    symbol = self._text(a, b)
                    # torch's exporter writes the sizes that it found out as names
                    dim = None if symbol in _UNNAMED else int(symbol) if _is_number(symbol) else symbol
            dims.append(dim)
            if len(dims) > 1024:
                raise ModelError("declares a shape with more than 1,024 dimensions")
        return tuple(dims)


_KINDS = {1: "tensor", 4: "sequence", 5: "map", 8: "sparse_tensor", 9: "optional"}


def _is_number(symbol: str) -> bool:
    return symbol.isascii() and symbol.isdigit() and len(symbol) < 19  # beyond, it is no size


_UNNAMED = frozenset({"", "?", "-1", "None"})
"""What exporters write for a free dimension without a name; two of them are not the same size."""
