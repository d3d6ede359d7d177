"""The protobuf wire format of ONNX files, read straight into plain values; the bytes of weights are never touched.

Only what the analysis needs is decoded: a field that is not needed, a weight's payload above all, is stepped over by
its length, so a file of many gigabytes costs what its graph costs. Field numbers are those of onnx.proto
(onnx/onnx.proto in the onnx repository, part of the ONNX specification). Reading this way takes about as long as
walking the generated protobuf classes, never loads a weight, and needs no import of onnx (160 ms).

Every fault in the bytes raises :class:`ModelError` without the file's name, which the caller adds.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import BY_ONNX_CODE, DataType
from neusight_onnx.errors import ModelError
from neusight_onnx.graph.model import Array, Attribute, Declared, Dim, Initializer

Buffer: TypeAlias = "bytes | mmap.mmap"

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

MAX_DEPTH = 64
"""Subgraphs nested deeper are refused; real models nest 3 or 4 deep."""

MAX_ELEMENTS = 2**48
"""A tensor of more elements is a damaged file: 2**48 bytes are 280 TB."""

MAX_ATTRIBUTE_ENTRIES = 2_000_000
"""A longer list (huge tree ensembles) becomes an Initializer without data: as Python numbers it takes over 64 MB."""

MAX_FIELDS = 2_000_000
"""Of one message: a graph has at most a million nodes, and a long list is not decoded field by field."""

MAX_RANK = 64
"""numpy's own limit is 32 or 64 dimensions; onnxruntime's kernels stop at 8."""


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
    functions: dict[tuple[str, str, str], RawFunction]


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


def shown(name: str, limit: int = 80) -> str:
    """``name`` as it can stand in a one-line message: cut at ``limit`` characters, nothing unprintable."""
    short = name if len(name) <= limit else name[:limit] + "…"
    return short if short.isprintable() else short.encode("unicode_escape").decode("ascii")


# --- the wire format itself -------------------------------------------------------------------------------------------


def varint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """The unsigned varint at ``position`` and the position behind it."""
    result = shift = 0
    while position < end:
        byte = buffer[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7
        if shift > 63:
            raise ModelError(f"is damaged at byte {position}: a number runs on for more than 10 bytes")
    raise _truncated(end)


def fields(buffer: Buffer, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(field number, wire type, start, stop) of each field of the message in ``buffer[position:end]``.

    For a varint ``start`` is the value itself; for the others ``buffer[start:stop]`` is the payload.
    """
    left = MAX_FIELDS
    while position < end:
        left -= 1
        if not left:
            raise ModelError(f"has a part with more than {MAX_FIELDS:,} fields; it looks like a bomb")
        key = buffer[position]
        if key < 0x80:
            position += 1
        else:
            key, position = varint(buffer, position, end)
        wire = key & 7
        number = key >> 3
        if number == 0:
            raise ModelError(f"is damaged at byte {position}: no field has the number 0")
        if wire == BYTES:
            if position < end and (length := buffer[position]) < 0x80:
                position += 1
            else:
                length, position = varint(buffer, position, end)
            stop = position + length
            if stop > end:
                raise _truncated(end)
            yield number, wire, position, stop
            position = stop
        elif wire == VARINT:
            if position < end and (value := buffer[position]) < 0x80:
                position += 1
            else:
                value, position = varint(buffer, position, end)
            yield number, wire, value, position
        elif wire in (FIXED32, FIXED64):
            stop = position + (4 if wire == FIXED32 else 8)
            if stop > end:
                raise _truncated(end)
            yield number, wire, position, stop
            position = stop
        else:
            raise ModelError(f"is damaged at byte {position}: a field of the unknown kind {wire}")


def _truncated(end: int) -> ModelError:
    return ModelError(f"is damaged or cut short: a field runs past its end at byte {end}; get the file again")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _varints(data: bytes) -> Array:
    """All varints of ``data``, which holds nothing else, as int64."""
    if not data:
        return np.zeros(0, np.int64)
    raw = np.frombuffer(data, np.uint8)
    stops = np.flatnonzero(raw < 0x80)
    if not len(stops) or stops[-1] != len(raw) - 1:
        raise ModelError("is damaged: a packed list of numbers is cut short")
    starts = np.concatenate(([0], stops[:-1] + 1))
    lengths = stops - starts + 1
    longest = int(lengths.max())
    if longest > 10:
        raise ModelError("is damaged: a packed number runs on for more than 10 bytes")
    result = np.zeros(len(stops), np.uint64)
    for index in range(longest):
        longer = lengths > index
        result[longer] |= (raw[starts[longer] + index] & 0x7F).astype(np.uint64) << np.uint64(7 * index)
    return result.view(np.int64)


_CHUNK_BYTES = 4 << 20
"""How much of a long list is decoded at once."""

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


# --- ONNX -------------------------------------------------------------------------------------------------------------

_KEPT_ELEMENTS = 64
"""Any tensor this small keeps its data: scalars, scales of Resize, pads, thresholds."""

_KEPT_INDEX_ELEMENTS = 65_536
"""int32 and int64 tensors this small keep it too: shapes are computed from them (axes, indices, position tables)."""

_KEPT_OTHER_ELEMENTS = 1024
"""Bool and the other integer types: conditions and masks, but no quantised weights to speak of."""

NUMPY_TYPES: dict[DataType, np.dtype[np.generic]] = {
    DataType.FLOAT32: np.dtype("<f4"),
    DataType.UINT8: np.dtype("u1"),
    DataType.INT8: np.dtype("i1"),
    DataType.UINT16: np.dtype("<u2"),
    DataType.INT16: np.dtype("<i2"),
    DataType.INT32: np.dtype("<i4"),
    DataType.INT64: np.dtype("<i8"),
    DataType.BOOL: np.dtype("?"),
    DataType.FLOAT16: np.dtype("<f2"),
    DataType.FLOAT64: np.dtype("<f8"),
    DataType.UINT32: np.dtype("<u4"),
    DataType.UINT64: np.dtype("<u8"),
    DataType.COMPLEX64: np.dtype("<c8"),
    DataType.COMPLEX128: np.dtype("<c16"),
}


def is_kept(dtype: DataType, count: int) -> bool:
    """Whether a tensor of ``count`` elements is small enough that its data is worth having."""
    if dtype is DataType.INT64 or dtype is DataType.INT32:
        return count <= _KEPT_INDEX_ELEMENTS
    if dtype is DataType.STRING or (dtype not in NUMPY_TYPES and dtype is not DataType.BFLOAT16):
        return dtype in (DataType.INT4, DataType.UINT4) and count <= _KEPT_ELEMENTS
    if dtype is DataType.BOOL or dtype.is_integer:
        return count <= _KEPT_OTHER_ELEMENTS
    return count <= _KEPT_ELEMENTS


def from_bytes(dtype: DataType, shape: tuple[int, ...], data: bytes) -> Array:
    """``data`` (little endian, packed) as a read-only array; bfloat16 becomes float32, 4-bit types 8-bit ones."""
    kind = NUMPY_TYPES.get(dtype)
    if kind is not None:
        return np.frombuffer(data, kind).reshape(shape)
    if dtype is DataType.BFLOAT16:
        return _bfloat16(np.frombuffer(data, "<u2"), shape)
    assert dtype in (DataType.INT4, DataType.UINT4)
    packed = np.frombuffer(data, np.uint8)
    nibbles = np.stack((packed & 0xF, packed >> 4), axis=-1).reshape(-1)[: prod(shape)]
    if dtype is DataType.INT4:
        nibbles = np.where(nibbles > 7, nibbles.astype(np.int16) - 16, nibbles).astype(np.int8)
    return _frozen(nibbles.reshape(shape))


def _bfloat16(bits: Array, shape: tuple[int, ...]) -> Array:
    return _frozen((bits.astype(np.uint32) << np.uint32(16)).view(np.float32).reshape(shape))


def _frozen(array: Array) -> Array:
    array.setflags(write=False)
    return array


class Decoder:
    """Decodes one file; it holds the bytes and what repeats in them (names, small attributes, types).

    ``stripped`` lists the tensors whose bytes are gone altogether, with their size in bytes.
    """

    def __init__(self, buffer: Buffer, external_files: ExternalFiles) -> None:
        self.buffer = buffer
        self.stripped: list[tuple[str, int]] = []
        self._external_files = external_files
        self._names: dict[bytes, str] = {b"": ""}
        self._attributes: dict[bytes, tuple[str, Attribute | RawGraph | tuple[RawGraph, ...] | Reference, bool]] = {}
        self._types: dict[bytes, tuple[str, DataType | None, tuple[Dim, ...] | None]] = {}

    # The loop over a node's fields is the hot one: it reads tags and lengths in place; ``fields`` does the rest.

    def model(self) -> RawModel:
        """The whole file."""
        buffer = self.buffer
        ir_version = 0
        producer = ["", ""]
        opsets: dict[str, int] = {}
        graphs: list[tuple[int, int]] = []
        functions: dict[tuple[str, str, str], RawFunction] = {}
        for number, wire, start, stop in fields(buffer, 0, len(buffer)):
            if number == 1 and wire == VARINT:
                ir_version = _signed(start)
            elif wire != BYTES:
                continue
            elif number in (2, 3):
                producer[number - 2] = self._text(start, stop)[:100]
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
            # Escapes keep names that are no UTF-8 apart and printable.
            try:
                name = raw.decode()
            except UnicodeDecodeError:
                name = raw.decode("utf-8", "backslashreplace")
            self._names[raw] = name
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
                version = _signed(a)
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
                    tensor = self._tensor(start, stop) if number == 5 else self._sparse_tensor(start, stop)
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
                raise _truncated(end)
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
        buffer = self.buffer
        name = reference = ""
        kind = 0
        integer = 0
        real = 0.0
        text: str | bytes = ""
        tensors: list[Initializer] = []
        graphs: list[RawGraph] = []
        types: list[Declared] = []
        reals: _Numbers[float] = _Numbers()
        integers: _Numbers[int] = _Numbers()
        strings: list[str] = []
        seen = 0
        in_runs = True
        resume = position
        while resume < end:
            position, resume = resume, end
            for number, wire, start, stop in fields(buffer, position, end):
                if wire == VARINT:
                    if number == 3:
                        integer, seen = _signed(start), 2
                    elif number == 20:
                        kind = start
                    elif number == 8:
                        seen = 7
                        integers.add([_signed(start)])
                        if in_runs and integers.count >= 64 and end - stop > 1024:
                            # A long unpacked list: many at once, and go on behind them.
                            run, resume = self._unpacked_integers(stop, min(end, stop + _CHUNK_BYTES))
                            integers.add(run)
                            in_runs = resume != stop
                            if in_runs:
                                break
                            resume = end
                elif wire == BYTES:
                    if number == 1:
                        name = self._text(start, stop)
                    elif number == 4:
                        text, seen = self._string(start, stop), 3
                    elif number == 5:
                        tensors, seen = [self._tensor(start, stop)], 4
                    elif number == 22:
                        tensors, seen = [self._sparse_tensor(start, stop)], 11
                    elif number == 6:
                        graphs, seen = [self._graph([(start, stop)], depth + 1)], 5
                    elif number == 14:
                        types, seen = [self._type(start, stop)], 13
                    elif number == 7:
                        seen = 6
                        self._same_width(start, stop, 4)
                        for at in range(start, stop, _CHUNK_BYTES):
                            reals.add(np.frombuffer(buffer[at : min(at + _CHUNK_BYTES, stop)], "<f4").tolist())
                    elif number == 8:
                        seen = 7
                        if stop - start > 10 * MAX_ATTRIBUTE_ENTRIES:
                            raise ModelError(f"has an attribute {shown(name)!r} with {stop - start:,} bytes of numbers")
                        integers.add(_varints(buffer[start:stop]).tolist())
                    elif number == 9:
                        seen = 8
                        strings.append(self._text(start, stop))
                    elif number == 10:
                        tensors.append(self._tensor(start, stop))
                        seen = 9
                    elif number == 23:
                        tensors.append(self._sparse_tensor(start, stop))
                        seen = 12
                    elif number == 11:
                        graphs.append(self._graph([(start, stop)], depth + 1))
                        seen = 10
                    elif number == 15:
                        types.append(self._type(start, stop))
                        seen = 14
                    elif number == 21:
                        reference = self._text(start, stop)
                elif wire == FIXED32:
                    if number == 2:
                        real, seen = struct.unpack("<f", buffer[start:stop])[0], 1
                    elif number == 7:
                        seen = 6
                        reals.add([struct.unpack("<f", buffer[start:stop])[0]])
                        if in_runs and reals.count >= 64 and end - stop > 1024:
                            run_of_reals, resume = self._unpacked_reals(stop, min(end, stop + _CHUNK_BYTES))
                            reals.add(run_of_reals)
                            in_runs = resume != stop
                            if in_runs:
                                break
                            resume = end
        if reference:
            return name, Reference(reference), False
        value: Attribute | RawGraph | tuple[RawGraph, ...]
        # Files from before IR version 2 leave the type out: then what is there says it.
        match kind or seen:
            case 1:
                value = real
            case 2:
                value = integer
            case 3:
                value = text
            case 4 | 11:
                value = tensors[-1] if tensors else None
            case 5:
                return name, graphs[-1] if graphs else None, not graphs
            case 6:
                value = reals.value(name, DataType.FLOAT32)
            case 7:
                value = integers.value(name, DataType.INT64)
            case 8:
                value = tuple(strings)
            case 9 | 12:
                value = tuple(tensors)
            case 10:
                return name, tuple(graphs), not graphs
            case 13:
                value = types[-1] if types else None
            case 14:
                value = tuple(types)
            case _:
                value = None
        return name, value, True

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
        return _varints(data[:last])[1::2].tolist(), position + last

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

    def _same_width(self, start: int, stop: int, width: int) -> None:
        if (stop - start) % width:
            raise ModelError(f"is damaged at byte {start}: a list of {width}-byte numbers has {stop - start} bytes")

    def _tensor(self, position: int, end: int) -> Initializer:
        """A TensorProto; only a small one's payload is looked at."""
        buffer = self.buffer
        name = ""
        code = 0
        dims: list[int] = []
        payload: tuple[int, int] | None = None
        typed: list[tuple[int, int, int, int]] = []
        external: list[tuple[int, int]] = []
        location = 0
        for number, wire, start, stop in fields(buffer, position, end):
            if number == 1:
                if len(dims) > MAX_RANK:
                    raise ModelError(f"has a tensor with more than {MAX_RANK} dimensions")
                if wire == VARINT:
                    dims.append(_signed(start))
                elif wire == BYTES:
                    if stop - start > 10 * MAX_RANK:
                        raise ModelError(f"has a tensor with more than {MAX_RANK} dimensions")
                    dims.extend(_varints(buffer[start:stop]).tolist())
            elif number == 2 and wire == VARINT:
                code = start
            elif number == 8 and wire == BYTES:
                name = self._text(start, stop)
            elif number == 9 and wire == BYTES:
                payload = (start, stop)
            elif number == 13 and wire == BYTES:
                external.append((start, stop))
            elif number == 14 and wire == VARINT:
                location = start
            elif number in (4, 5, 6, 7, 10, 11):
                typed.append((number, wire, start, stop))
        dtype = BY_ONNX_CODE.get(code)
        if dtype is None:
            raise ModelError(f"has a tensor {shown(name)!r} of the unknown element type {code}")
        shape = tuple(dims)
        count = _element_count(name, shape)
        if location == 1:
            return self._external_tensor(name, dtype, shape, count, external)
        if payload is not None and payload[1] > payload[0]:
            return self._raw_tensor(name, dtype, shape, count, payload)
        if typed:
            return self._typed_tensor(name, dtype, shape, count, typed)
        if count:
            self.stripped.append((name, dtype.bytes_of(count)))
            return Initializer(name=name, dtype=dtype, shape=shape, missing=True)
        data = from_bytes(dtype, shape, b"") if dtype is not DataType.STRING and is_kept(dtype, 0) else None
        return Initializer(name=name, dtype=dtype, shape=shape, data=data)

    def _raw_tensor(
        self, name: str, dtype: DataType, shape: tuple[int, ...], count: int, payload: tuple[int, int]
    ) -> Initializer:
        start, stop = payload
        if dtype is DataType.STRING:
            raise ModelError(f"holds the strings of tensor {shown(name)!r} as raw bytes, which ONNX does not allow")
        if stop - start != dtype.bytes_of(count):
            raise ModelError(
                f"contradicts itself: tensor {shown(name)!r} ({dtype.label}, shape {_shape(shape)}) needs "
                f"{dtype.bytes_of(count)} bytes and has {stop - start}"
            )
        data = from_bytes(dtype, shape, self.buffer[start:stop]) if is_kept(dtype, count) else None
        return Initializer(name=name, dtype=dtype, shape=shape, data=data)

    def _typed_tensor(
        self, name: str, dtype: DataType, shape: tuple[int, ...], count: int, typed: list[tuple[int, int, int, int]]
    ) -> Initializer:
        """Elements in float_data, int32_data, …: packed mostly, one by one in some files."""
        if not is_kept(dtype, count):
            # Only the length is looked at: 4 or 8 bytes an element, for a varint at least one.
            held = sum(1 if wire == VARINT else stop - start for _, wire, start, stop in typed)
            least = {4: 4, 10: 8}.get(typed[0][0], 1) * (count if dtype.bits >= 8 else dtype.bytes_of(count))
            if held < least:
                raise _contradicting(name, dtype, shape)
            return Initializer(name=name, dtype=dtype, shape=shape)
        buffer = self.buffer
        pieces: list[Array] = []
        for number, wire, start, stop in typed:
            if wire == VARINT:
                pieces.append(np.array([_signed(start)], np.int64))
            elif stop - start > 10 * max(count, 1) * 2:
                raise _contradicting(name, dtype, shape)
            elif number in (4, 10):
                width = 4 if number == 4 else 8
                self._same_width(start, stop, width)
                pieces.append(np.frombuffer(buffer[start:stop], f"<f{width}"))
            elif wire == BYTES and number != 6:
                pieces.append(_varints(buffer[start:stop]))
        values = np.concatenate(pieces) if pieces else np.zeros(0, np.int64)
        parts = 2 if dtype in (DataType.COMPLEX64, DataType.COMPLEX128) else 1
        if dtype in (DataType.INT4, DataType.UINT4):
            return Initializer(name=name, dtype=dtype, shape=shape)
        if len(values) != count * parts:
            raise _contradicting(name, dtype, shape)
        if parts == 2:
            data = values.astype("<f4" if dtype is DataType.COMPLEX64 else "<f8").view(NUMPY_TYPES[dtype])
        elif dtype in (DataType.FLOAT16, DataType.BFLOAT16):
            bits = values.astype(np.uint16)
            data = bits.view(np.float16) if dtype is DataType.FLOAT16 else _bfloat16(bits, (count,))
        elif dtype is DataType.UINT64 or dtype is DataType.UINT32:
            data = values.view(np.uint64).astype(NUMPY_TYPES[dtype])
        else:
            data = values.astype(NUMPY_TYPES[dtype])
        return Initializer(name=name, dtype=dtype, shape=shape, data=_frozen(data.reshape(shape)))

    def _external_tensor(
        self, name: str, dtype: DataType, shape: tuple[int, ...], count: int, entries: list[tuple[int, int]]
    ) -> Initializer:
        described: dict[str, str] = {}
        for first, last in entries:
            key = value = ""
            for number, wire, start, stop in fields(self.buffer, first, last):
                if number == 1 and wire == BYTES:
                    key = self._text(start, stop)
                elif number == 2 and wire == BYTES:
                    value = self._text(start, stop)
            described[key] = value
        location = described.get("location", "")
        needed = dtype.bytes_of(count)
        offset = _size(name, "offset", described.get("offset", "0"))
        length = _size(name, "length", described["length"]) if "length" in described else None
        if length is not None and length != needed and dtype is not DataType.STRING:
            raise ModelError(
                f"contradicts itself: tensor {shown(name)!r} ({dtype.label}, shape {_shape(shape)}) needs "
                f"{needed} bytes and its external data has {length}"
            )
        data = ExternalData(tensor=name, location=location, offset=offset, byte_count=needed)
        missing, content = self._external_files.look(data, wanted=is_kept(dtype, count))
        array = None if content is None else from_bytes(dtype, shape, content)
        return Initializer(name=name, dtype=dtype, shape=shape, data=array, external=location, missing=missing)

    def _sparse_tensor(self, position: int, end: int) -> Initializer:
        """A SparseTensorProto; runtimes make it dense when they load the model, so its zeros count as bytes."""
        values: Initializer | None = None
        indices: Initializer | None = None
        dims: list[int] = []
        for number, wire, start, stop in fields(self.buffer, position, end):
            if number == 1 and wire == BYTES:
                values = self._tensor(start, stop)
            elif number == 2 and wire == BYTES:
                indices = self._tensor(start, stop)
            elif number == 3 and wire == VARINT and len(dims) <= MAX_RANK:
                dims.append(_signed(start))
            elif number == 3 and wire == BYTES:
                if stop - start > 10 * MAX_RANK:
                    raise ModelError(f"has a tensor with more than {MAX_RANK} dimensions")
                dims.extend(_varints(self.buffer[start:stop]).tolist())
        if values is None:
            raise ModelError("has a sparse tensor without values")
        shape = tuple(dims)
        count = _element_count(values.name, shape)
        data = None
        if (
            indices is not None
            and values.data is not None
            and indices.data is not None
            and is_kept(values.dtype, count)
        ):
            data = _dense(values.name, values.data, indices.data, shape)
        return Initializer(name=values.name, dtype=values.dtype, shape=shape, data=data)

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
                    dim = _signed(a) if not a >> 63 else None
                elif inner == 2 and inner_wire == BYTES:
                    symbol = self._text(a, b)
                    dim = None if symbol in _UNNAMED else symbol
            dims.append(dim)
            if len(dims) > 1024:
                raise ModelError("declares a shape with more than 1,024 dimensions")
        return tuple(dims)


_KINDS = {1: "tensor", 4: "sequence", 5: "map", 8: "sparse_tensor", 9: "optional"}

_UNNAMED = frozenset({"", "?", "-1", "None"})
"""What exporters write for a free dimension without a name; two of them are not the same size."""


def _element_count(name: str, shape: tuple[int, ...]) -> int:
    if len(shape) > MAX_RANK:
        raise ModelError(f"has a tensor {shown(name)!r} with {len(shape)} dimensions, more than {MAX_RANK}")
    if any(size < 0 for size in shape):
        raise ModelError(f"has a tensor {shown(name)!r} with a negative dimension: {_shape(shape)}")
    count = prod(shape)
    if count > MAX_ELEMENTS or max(shape, default=0) > MAX_ELEMENTS:
        raise ModelError(f"has a tensor {shown(name)!r} of an impossible size: {_shape(shape)}")
    return count


def _shape(shape: tuple[int, ...]) -> str:
    return shown("x".join(map(str, shape)) or "scalar")


def _contradicting(name: str, dtype: DataType, shape: tuple[int, ...]) -> ModelError:
    return ModelError(
        f"contradicts itself: tensor {shown(name)!r} ({dtype.label}, shape {_shape(shape)}) holds another number of "
        "elements"
    )


def _size(tensor: str, what: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ModelError(
            f"has external data with an impossible {what} {shown(text, 40)!r} for tensor {shown(tensor)!r}"
        )
    return int(text)


def _dense(name: str, values: Array, indices: Array, shape: tuple[int, ...]) -> Array:
    flat = np.zeros(prod(shape), values.dtype)
    if indices.ndim == 2 and indices.shape[1] == len(shape):
        places: NDArray[np.int64] = np.zeros(len(indices), np.int64)
        for axis, size in enumerate(shape):
            column = indices[:, axis].astype(np.int64)
            if len(column) and (int(column.min()) < 0 or int(column.max()) >= size):
                raise ModelError(f"has a sparse tensor {shown(name)!r} with an index outside its shape")
            places = places * size + column
    else:
        places = indices.reshape(-1).astype(np.int64)
    if len(places) != values.size or (len(places) and (int(places.min()) < 0 or int(places.max()) >= flat.size)):
        raise ModelError(f"has a sparse tensor {shown(name)!r} whose indices do not fit its values or shape")
    flat[places] = values.reshape(-1)
    return _frozen(flat.reshape(shape))
