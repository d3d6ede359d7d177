"""Tensors of an ONNX file: what a TensorProto says, and the data of the small ones that shapes are computed from.

Weights' bytes are stepped over, inside the file and outside.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import BY_ONNX_CODE, DataType
from neusight_onnx.errors import ModelError, shown
from neusight_onnx.graph.model import Array, Initializer
from neusight_onnx.graph.raw import ExternalData, ExternalFiles
from neusight_onnx.graph.wire import BYTES, VARINT, Buffer, fields, same_width, signed, varints

MAX_ELEMENTS = 2**48
"""A tensor of more elements is a damaged file: 2**48 bytes are 280 TB."""

MAX_RANK = 64
"""numpy's own limit is 32 or 64 dimensions; onnxruntime's kernels stop at 8."""

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


class TensorDecoder:
    """Decodes the tensors of one file; ``text`` gives the characters between two places of its bytes.

    ``stripped`` lists the tensors whose bytes are gone altogether, with their size in bytes.
    """

    def __init__(self, buffer: Buffer, text: Callable[[int, int], str], external_files: ExternalFiles) -> None:
        self.buffer = buffer
        self.stripped: list[tuple[str, int]] = []
        self._text = text
        self._external_files = external_files

    def tensor(self, position: int, end: int) -> Initializer:
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
                    dims.append(signed(start))
                elif wire == BYTES:
                    if stop - start > 10 * MAX_RANK:
                        raise ModelError(f"has a tensor with more than {MAX_RANK} dimensions")
                    dims.extend(varints(buffer[start:stop]).tolist())
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
        if not is_kept(dtype, count):
            return Initializer(name=name, dtype=dtype, shape=shape, stored_at=start)
        return Initializer(name=name, dtype=dtype, shape=shape, data=from_bytes(dtype, shape, self.buffer[start:stop]))

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
            # float_data and double_data are packed as raw_data is, where the type is theirs
            number, wire, start, stop = typed[0]
            packed = wire == BYTES and {4: DataType.FLOAT32, 10: DataType.FLOAT64}.get(number) is dtype
            whole = packed and stop - start == dtype.bytes_of(count)
            return Initializer(name=name, dtype=dtype, shape=shape, stored_at=start if whole else None)
        buffer = self.buffer
        pieces: list[Array] = []
        for number, wire, start, stop in typed:
            if wire == VARINT:
                pieces.append(np.array([signed(start)], np.int64))
            elif stop - start > 10 * max(count, 1) * 2:
                raise _contradicting(name, dtype, shape)
            elif number in (4, 10):
                width = 4 if number == 4 else 8
                same_width(start, stop, width)
                pieces.append(np.frombuffer(buffer[start:stop], f"<f{width}"))
            elif wire == BYTES and number != 6:
                pieces.append(varints(buffer[start:stop]))
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
        return Initializer(
            name=name,
            dtype=dtype,
            shape=shape,
            data=array,
            external=location,
            missing=missing,
            stored_at=offset if array is None and not missing else None,
        )

    def sparse_tensor(self, position: int, end: int) -> Initializer:
        """A SparseTensorProto; runtimes make it dense when they load the model, so its zeros count as bytes."""
        values: Initializer | None = None
        indices: Initializer | None = None
        dims: list[int] = []
        for number, wire, start, stop in fields(self.buffer, position, end):
            if number == 1 and wire == BYTES:
                values = self.tensor(start, stop)
            elif number == 2 and wire == BYTES:
                indices = self.tensor(start, stop)
            elif number == 3 and wire == VARINT and len(dims) <= MAX_RANK:
                dims.append(signed(start))
            elif number == 3 and wire == BYTES:
                if stop - start > 10 * MAX_RANK:
                    raise ModelError(f"has a tensor with more than {MAX_RANK} dimensions")
                dims.extend(varints(self.buffer[start:stop]).tolist())
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
