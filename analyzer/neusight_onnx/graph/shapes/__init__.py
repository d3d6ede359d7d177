"""Shape inference: every value's dtype and shape, with all dimensions bound."""

from neusight_onnx.graph.shapes import (  # noqa: F401  # importing a family registers its rules
    attention,
    contrib,
    control_flow,
    creation,
    data_dependent,
    elementwise,
    indexing,
    layout,
    loop,
    machine_learning,
    matrix,
    normalization,
    quantized,
    recurrent,
    reduction,
    sequence,
    slicing,
    spectrum,
    window,
)
from neusight_onnx.graph.shapes.bodies import any_of
from neusight_onnx.graph.shapes.inference import at_expected_sizes, bind_and_infer, infer, infer_bound
from neusight_onnx.graph.shapes.memo import Memo
from neusight_onnx.graph.shapes.told_counts import with_told_counts

__all__ = ["Memo", "any_of", "at_expected_sizes", "bind_and_infer", "infer", "infer_bound", "with_told_counts"]
