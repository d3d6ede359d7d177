"""Trees walked without onnxruntime: its numbers to the last bit, for all that is shipped."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from neusight_onnx.data_files import data_folder
from neusight_onnx.errors import PredictorError
from neusight_onnx.predictor import Predictor, load_predictors
from neusight_onnx.predictor.forest import read_forest
from neusight_onnx.predictor.trees import FEW_ROWS, residuals

SHIPPED = load_predictors(data_folder("predictors"))


@pytest.mark.parametrize("predictor", [pytest.param(found, id=found.name) for found in SHIPPED.values()])
def test_walked_as_onnxruntime_does(predictor: Predictor) -> None:
    content = predictor.path.read_bytes()
    forest = read_forest(content)
    random = np.random.default_rng(0)
    low, high = predictor.feature_low, predictor.feature_high
    features = random.uniform(low - 0.1, high + 0.1, (500, len(low))).astype(np.float32)
    # on thresholds themselves, and what no comparison holds for
    for row, node in enumerate(random.choice(np.flatnonzero(~forest.is_leaf), 200)):
        features[row, forest.feature[node]] = forest.threshold[node]
    features[200:210, random.integers(0, len(low), 10)] = np.nan
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # several sum parts of their own
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    theirs = session.run(None, {"features": features})[0][:, 0]
    np.testing.assert_array_equal(forest.sums(features), theirs)
    np.testing.assert_array_equal(forest.sums(features[:1]), theirs[:1])


def test_few_rows_and_many_are_one_answer() -> None:
    predictor = SHIPPED["softmax", "float32"]
    low, high = predictor.feature_low, predictor.feature_high
    features = np.random.default_rng(1).uniform(low, high, (FEW_ROWS + 1, len(low))).astype(np.float32)
    np.testing.assert_array_equal(residuals(predictor, features)[:FEW_ROWS], residuals(predictor, features[:FEW_ROWS]))


@pytest.mark.parametrize("cut", [0, 100, 10_000])
def test_a_file_without_the_trees_is_refused(cut: int, tmp_path: Path) -> None:
    predictor = SHIPPED["softmax", "float32"]
    content = predictor.path.read_bytes()[:cut]
    path = tmp_path / "softmax_fp32.onnx"
    path.write_bytes(content)
    damaged = replace(predictor, path=path, sha256=hashlib.sha256(content).hexdigest())
    with pytest.raises(PredictorError, match=r"holds no trees as they are exported .*make predictors"):
        residuals(damaged, np.zeros((1, len(predictor.feature_low)), np.float32))
