"""GPU files that tests write and change."""

from __future__ import annotations

from pathlib import Path

from neusight_onnx.gpu import available_gpus

GPUS = {gpu.name: gpu for gpu in available_gpus()}

RTX_4090 = (Path(__file__).parent.parent / "specs" / "rtx-4090.toml").read_text(encoding="utf-8")
