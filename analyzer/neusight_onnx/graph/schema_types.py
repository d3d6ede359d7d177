"""Which element types an operator of the standard takes and gives at an opset, by onnx's schemas.

:mod:`~neusight_onnx.graph.signatures` tells floats from integers without onnx, for every analysis; this tells widths.
"""

from __future__ import annotations

from neusight_onnx.dtypes import DataType

Types = tuple[DataType | None, ...]


def lacking_type(op_type: str, version: int, inputs: Types, outputs: Types) -> str | None:
    """What of its types an operator of ai.onnx doesn't have at an opset, and when it got it; None if it has all."""
    at_hand = _lacking_at(op_type, version, inputs, outputs)
    if at_hand is None:
        return None
    from onnx import defs

    newest = defs.onnx_opset_version()
    since = next(
        (each for each in range(version + 1, newest + 1) if _lacking_at(op_type, each, inputs, outputs) is None), None
    )
    gained = f"it has since opset {since}" if since else f"no opset up to {newest} has"
    return f"{op_type} {at_hand} at opset {version}, which {gained}"


def _lacking_at(op_type: str, version: int, inputs: Types, outputs: Types) -> str | None:
    from onnx import defs  # takes 160 ms to import, which an analysis doesn't pay

    if version > defs.onnx_opset_version():
        return None  # NSX205 says that, and NSX504 what an opset doesn't have
    try:
        schema = defs.get_schema(op_type, version, "")
    except defs.SchemaError:
        return None
    for verb, places, types in (("takes no", schema.inputs, inputs), ("gives no", schema.outputs, outputs)):
        for at, dtype in enumerate(types):
            if dtype is not None and places and _written(dtype) not in places[min(at, len(places) - 1)].types:
                return f"{verb} {dtype.label} as {places[min(at, len(places) - 1)].name}"
    return None


_NAMES = {DataType.FLOAT32: "float", DataType.FLOAT64: "double"}


def _written(dtype: DataType) -> str:
    """A tensor of this type as schemas write it."""
    return f"tensor({_NAMES.get(dtype, dtype.label)})"
