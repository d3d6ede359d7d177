"""The protobuf wire format: fields of messages, numbers of variable length.

Every fault in the bytes raises :class:`ModelError` without the file's name, which the caller adds.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from neusight_onnx.errors import ModelError
from neusight_onnx.graph.model import Array

Buffer: TypeAlias = "bytes | mmap.mmap"

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

MAX_FIELDS = 2_000_000
"""Of one message: a graph has at most a million nodes, and a long list is not decoded field by field."""


NUL = "\\x00"
"""How :func:`name_text` writes that character."""


def name_text(raw: bytes) -> str:
    """A name as we spell it: escapes keep what is no UTF-8 apart and printable, and NUL for names that we make."""
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        name = raw.decode("utf-8", "backslashreplace")
    return name.replace("\0", NUL)


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
    raise truncated(end)


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
                raise truncated(end)
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
                raise truncated(end)
            yield number, wire, position, stop
            position = stop
        else:
            raise ModelError(f"is damaged at byte {position}: a field of the unknown kind {wire}")


def truncated(end: int) -> ModelError:
    """What to raise for a field that runs past the end of what holds it."""
    return ModelError(f"is damaged or cut short: a field runs past its end at byte {end}; get the file again")


def signed(value: int) -> int:
    """An int64 from the unsigned number that its varint is read as."""
    return value - (1 << 64) if value >> 63 else value


def varints(data: bytes) -> Array:
    """All varints of ``data``, which holds nothing else, as int64."""
    if not data:
        return np.zeros(0, np.int64)
    raw = np.frombuffer(data, np.uint8)
    ends = raw < 0x80
    if ends.all():
        return raw.astype(np.int64)
    stops = np.flatnonzero(ends)
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


def same_width(start: int, stop: int, width: int) -> None:
    """ModelError unless the bytes from ``start`` to ``stop`` are whole numbers of ``width`` bytes."""
    if (stop - start) % width:
        raise ModelError(f"is damaged at byte {start}: a list of {width}-byte numbers has {stop - start} bytes")
