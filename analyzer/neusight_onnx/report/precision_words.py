"""What a run's precision is called where the file itself stores products in fewer bits than its floats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from neusight_onnx.report.model import Report
from neusight_onnx.report.quantities import percent

_OF_LAYERS = frozenset({"conv", "gemm"})
"""Classes of kernels that ``--precision`` gives few bits, where the runtime has them."""
_FORMATS = {
    **{"int8": "int8", "uint8": "int8", "int4": "int4", "uint4": "int4", "float4e2m1": "fp4"},
    **dict.fromkeys(("float8e4m3fn", "float8e5m2", "float8e4m3fnuz", "float8e5m2fnuz"), "fp8"),
}
"""What types of 8 and 4 bits are called as a precision."""


def narrow_formats(dtypes: Iterable[str]) -> tuple[str, ...]:
    """The formats of 8 and 4 bits among the types that products of a run multiply."""
    return tuple(sorted({_FORMATS[dtype] for dtype in dtypes if dtype in _FORMATS}))


def precision_text(precision: str, stored: Sequence[str]) -> str:
    """ "int8 as stored, rest fp32" for a run in ``precision`` with products in a ``stored`` format; else "fp32"."""
    if not stored or precision in _FORMATS.values():
        return precision
    return f"{' and '.join(stored)} as stored, rest {precision}"


def short_precision(precision: str, stored: Sequence[str]) -> str:
    """:func:`precision_text` for a column: "int8+fp32"."""
    return precision if precision in _FORMATS.values() else "+".join((*stored, precision))


NEARLY_ALL = 0.99
"""Share of the FLOPs from which a format is said without it."""


def precision_of(report: Report) -> str:
    """:func:`precision_text` of a report; "fp8 in 12 % of products' FLOPs" where that is all it concerns, "fp8 stored,
    products in bfloat16" where layers' weights are widened again."""
    precision = report.settings.precision
    if precision not in _FORMATS.values():
        return precision_text(precision, report.settings.product_formats)
    products = [row for row in report.kernels if row.kernel_class in _OF_LAYERS]
    every = sum(row.flops for row in products)
    narrow = sum(row.flops for row in products if _FORMATS.get(row.dtype) == precision)
    if not narrow and (wide := sorted({row.dtype for row in products if "b_is_weight" in row.dims})):
        return f"{precision} stored, products in {' and '.join(wide)}"
    if every and narrow < NEARLY_ALL * every:
        return f"{precision} in {percent(narrow / every)} of products' FLOPs"
    return precision
