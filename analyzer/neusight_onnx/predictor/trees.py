"""The fitted residuals. The only module that imports onnxruntime, and only when it runs."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from neusight_onnx.errors import PredictorError
from neusight_onnx.predictor.manifest import REBUILD


@lru_cache(maxsize=64)
def session_of(path: Path, sha256: str, name: str) -> Any:
    """The trees of a predictor in onnxruntime, one thread; loaded once per process."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PredictorError(f"can't read predictor {name} ({path}): {error.strerror}; {REBUILD}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise PredictorError(f"{path} is not the file that the manifest describes (sha256 differs); {REBUILD}")
    import onnxruntime  # type: ignore[import-untyped]  # it ships no annotations

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
