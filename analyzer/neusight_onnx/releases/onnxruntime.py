"""What changed in ONNX Runtime's CUDA provider and in its optimiser until the release that is described."""

from __future__ import annotations

from neusight_onnx.releases import History

ONNXRUNTIME = History(project="ONNX Runtime", first=(1, 4), newest=(1, 31))
