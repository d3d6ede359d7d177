"""What a runtime executes of a model: shapes inferred, patterns merged, every node lowered; the same for every GPU."""

from __future__ import annotations

from neusight_onnx.preparation.capture import why_uncaptured
from neusight_onnx.preparation.merged import fusion_of
from neusight_onnx.preparation.models import AtOtherSizes, PreparedModel, ShapedModel, every_work, infer_shapes
from neusight_onnx.preparation.prepare import prepare
from neusight_onnx.preparation.works import works_of

__all__ = [
    "AtOtherSizes",
    "PreparedModel",
    "ShapedModel",
    "every_work",
    "fusion_of",
    "infer_shapes",
    "prepare",
    "why_uncaptured",
    "works_of",
]
