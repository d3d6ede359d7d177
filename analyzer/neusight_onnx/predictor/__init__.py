"""Predicts kernels: law x exp(weight x residual).

:mod:`.manifest` has what is shipped, :mod:`.choice` which predictor stands for a kernel, :mod:`.trees` the residuals
(the only module that imports onnxruntime) and :mod:`.forest` how they are walked without it, :mod:`.estimates` a
predictor's answer and :mod:`.intervals` how wide it is, :mod:`.predictions` all of it for the kernels of a run.
"""

from neusight_onnx.predictor.choice import predictor_for
from neusight_onnx.predictor.estimates import Estimate, analytic_answer, estimate
from neusight_onnx.predictor.manifest import (
    HeldOut,
    Predictor,
    PredictorInfo,
    Predictors,
    list_predictors,
    load_predictors,
    without_gpu,
)
from neusight_onnx.predictor.prediction import Prediction
from neusight_onnx.predictor.predictions import predict

__all__ = [
    "Estimate",
    "HeldOut",
    "Prediction",
    "Predictor",
    "PredictorInfo",
    "Predictors",
    "analytic_answer",
    "estimate",
    "list_predictors",
    "load_predictors",
    "predict",
    "predictor_for",
    "without_gpu",
]
