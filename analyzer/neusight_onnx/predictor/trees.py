"""The fitted residuals: of few kernels by walking the trees, of many in onnxruntime, which only this module imports."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.errors import ModelError, PredictorError
from neusight_onnx.predictor.forest import Forest, read_forest
from neusight_onnx.predictor.manifest import REBUILD, Predictor

FEW_ROWS = 200
"""Up to so many, walking the trees takes less than building a session: of gemm_fp32, 40 ms against 65, and 25 more for
importing onnxruntime; a model seldom has more different kernels of a class."""


def residuals(predictor: Predictor, features: NDArray[np.float32]) -> NDArray[np.float64]:
    """What a predictor's trees say beyond its law, log; ``features``: (n, features), result (n,)."""
    file = predictor.path, predictor.sha256, predictor.name
    if len(features) <= FEW_ROWS:
        return _forest_of(*file).sums(features).astype(np.float64)
    found: NDArray[np.float64] = _session_of(*file).run(None, {"features": features})[0][:, 0].astype(np.float64)
    return found


@lru_cache(maxsize=64)
def _forest_of(path: Path, sha256: str, name: str) -> Forest:
    """Read once per process."""
    content = _content(path, sha256, name)
    try:
        return read_forest(content)
    except (KeyError, ModelError, ValueError) as error:
        raise PredictorError(f"{path} holds no trees as they are exported ({error}); {REBUILD}") from error


@lru_cache(maxsize=64)
def _session_of(path: Path, sha256: str, name: str) -> Any:
    """The trees in onnxruntime, one thread; built once per process."""
    content = _content(path, sha256, name)
    import onnxruntime  # type: ignore[import-untyped]  # it ships no annotations

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _content(path: Path, sha256: str, name: str) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PredictorError(f"can't read predictor {name} ({path}): {error.strerror}; {REBUILD}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise PredictorError(f"{path} is not the file that the manifest describes (sha256 differs); {REBUILD}")
    return content
