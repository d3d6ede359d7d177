"""Training: the kernels of the run backwards and of the optimizer's step, from the works of the run forward."""

from neusight_onnx.backward.form import as_trained
from neusight_onnx.backward.plan import LOSSES, OPTIMIZERS, RECOMPUTE, Training, make_training
from neusight_onnx.backward.train import Trained, train

__all__ = ["LOSSES", "OPTIMIZERS", "RECOMPUTE", "Trained", "Training", "as_trained", "make_training", "train"]
