"""From nodes to kernels: one rule for each operator, in the file of its family."""

from neusight_onnx.lowering import (
    attention,
    control_flow,
    conv,
    einsum,
    elementwise,
    experts,
    gemm,
    gradient,
    indexing,
    ml,
    movement,
    normalization,
    packed_weights,
    pooling,
    quantized,
    quantized_layers,
    quantized_products,
    recurrent,
    reduction,
    refused,
    sequence,
    signal,
    softmax,
    sorting,
)
from neusight_onnx.lowering.precision import as_precision, stored_precision
from neusight_onnx.lowering.registry import operator_table
from neusight_onnx.lowering.walk import Lowered, lower, lower_laid_out

FAMILIES = (
    attention,
    control_flow,
    conv,
    einsum,
    elementwise,
    experts,
    gemm,
    gradient,
    indexing,
    ml,
    movement,
    normalization,
    packed_weights,
    pooling,
    quantized,
    quantized_layers,
    quantized_products,
    recurrent,
    reduction,
    refused,
    sequence,
    signal,
    softmax,
    sorting,
)
"""The modules that hold rules: importing them fills the table."""

__all__ = [
    "FAMILIES",
    "Lowered",
    "as_precision",
    "lower",
    "lower_laid_out",
    "operator_table",
    "stored_precision",
]
