"""What a runtime executes of a model: shapes inferred, patterns merged, every node lowered; the same for every GPU.

:mod:`.prepare` has the steps in order: :mod:`.models` is what they take and leave, :mod:`.recognition` the graph that
the runtime is given and what it merges, :mod:`.works` the kernels of each node, :mod:`.ways` the bits and layouts that
these are executed in. :mod:`.training` and :mod:`.capture` ask what a step of training and a CUDA graph allow,
:mod:`.merged` says what fusion saved.
"""

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
