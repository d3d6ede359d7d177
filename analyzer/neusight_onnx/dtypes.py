"""Element types of tensors: names, widths in bits, ONNX codes."""

from __future__ import annotations

from enum import Enum


class DataType(Enum):
    """An element type of ONNX's ``TensorProto.DataType``; the value is (name, bits, ONNX code).

    ``bits`` is the true width: 4-bit types take half a byte. Strings have no fixed width; they count as
    8 bits an element, and every kernel on strings is on the host anyway.
    """

    FLOAT32 = ("float32", 32, 1)
    UINT8 = ("uint8", 8, 2)
    INT8 = ("int8", 8, 3)
    UINT16 = ("uint16", 16, 4)
    INT16 = ("int16", 16, 5)
    INT32 = ("int32", 32, 6)
    INT64 = ("int64", 64, 7)
    STRING = ("string", 8, 8)
    BOOL = ("bool", 8, 9)
    FLOAT16 = ("float16", 16, 10)
    FLOAT64 = ("float64", 64, 11)
    UINT32 = ("uint32", 32, 12)
    UINT64 = ("uint64", 64, 13)
    COMPLEX64 = ("complex64", 64, 14)
    COMPLEX128 = ("complex128", 128, 15)
    BFLOAT16 = ("bfloat16", 16, 16)
    FLOAT8E4M3FN = ("float8e4m3fn", 8, 17)
    FLOAT8E4M3FNUZ = ("float8e4m3fnuz", 8, 18)
    FLOAT8E5M2 = ("float8e5m2", 8, 19)
    FLOAT8E5M2FNUZ = ("float8e5m2fnuz", 8, 20)
    UINT4 = ("uint4", 4, 21)
    INT4 = ("int4", 4, 22)
    FLOAT4E2M1 = ("float4e2m1", 4, 23)
    FLOAT8E8M0 = ("float8e8m0", 8, 24)
    UINT2 = ("uint2", 2, 25)
    INT2 = ("int2", 2, 26)
    TFLOAT32 = ("tf32", 32, -1)
    """float32 in memory that is multiplied with 10 bits of its fraction (TF32): what kernels may compute in, and no
    type of ONNX: no tensor of a file has it."""

    def __init__(self, label: str, bits: int, onnx_code: int) -> None:
        self.label = label
        self.bits = bits
        self.onnx_code = onnx_code

    def __hash__(self) -> int:
        return self.onnx_code

    @property
    def is_float(self) -> bool:
        """True for every floating-point type, narrow ones included."""
        return self.label.startswith(("float", "bfloat", "tf"))

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers (not for bool)."""
        return self.label.startswith(("int", "uint"))

    def bytes_of(self, element_count: int) -> int:
        """Bytes that ``element_count`` packed elements take, rounded up."""
        return (element_count * self.bits + 7) // 8


BY_ONNX_CODE: dict[int, DataType] = {dtype.onnx_code: dtype for dtype in DataType if dtype.onnx_code > 0}
BY_LABEL: dict[str, DataType] = {dtype.label: dtype for dtype in DataType}
