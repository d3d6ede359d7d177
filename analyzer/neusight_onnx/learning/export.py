"""Writes a LightGBM regressor as an ONNX ``TreeEnsembleRegressor``.

LightGBM compares ``float64(feature) <= threshold`` with a float64 threshold; ONNX compares in float32. For float32
features the two agree if the threshold is rounded *down* to float32: no float32 lies between the two values.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper

from neusight_onnx.learning.extras import require

OPSET_ML = 3
OPSET = 17
IR_VERSION = 8


def round_down(threshold: float) -> float:
    """The largest float32 that is not above ``threshold``, as a Python float."""
    rounded = np.float32(threshold)
    if float(rounded) > threshold:
        rounded = np.nextafter(rounded, np.float32(-np.inf))
    return float(rounded)


def to_onnx(booster: Any, *, name: str, feature_count: int) -> bytes:
    """The trees as a model with input "features", float32 (n, ``feature_count``), and output "residual", (n, 1)."""
    nodes: dict[str, list[Any]] = {key: [] for key in ("tree", "node", "feature", "value", "mode", "true", "false")}
    targets: dict[str, list[Any]] = {key: [] for key in ("tree", "node", "weight")}
    for tree, info in enumerate(booster.dump_model()["tree_info"]):
        pending = [(info["tree_structure"], 0)]
        taken = 1
        while pending:
            node, number = pending.pop()
            nodes["tree"].append(tree)
            nodes["node"].append(number)
            if "leaf_value" in node:
                nodes["feature"].append(0)
                nodes["value"].append(0.0)
                nodes["mode"].append("LEAF")
                nodes["true"].append(0)
                nodes["false"].append(0)
                targets["tree"].append(tree)
                targets["node"].append(number)
                targets["weight"].append(float(node["leaf_value"]))
                continue
            assert node["decision_type"] == "<=", "only numeric features are trained on"
            left, right = taken, taken + 1
            taken += 2
            nodes["feature"].append(int(node["split_feature"]))
            nodes["value"].append(round_down(float(node["threshold"])))
            nodes["mode"].append("BRANCH_LEQ")
            nodes["true"].append(left)
            nodes["false"].append(right)
            pending.append((node["right_child"], right))
            pending.append((node["left_child"], left))
    ensemble = helper.make_node(
        "TreeEnsembleRegressor",
        ["features"],
        ["residual"],
        domain="ai.onnx.ml",
        aggregate_function="SUM",
        n_targets=1,
        nodes_treeids=nodes["tree"],
        nodes_nodeids=nodes["node"],
        nodes_featureids=nodes["feature"],
        nodes_values=nodes["value"],
        nodes_modes=nodes["mode"],
        nodes_truenodeids=nodes["true"],
        nodes_falsenodeids=nodes["false"],
        target_treeids=targets["tree"],
        target_nodeids=targets["node"],
        target_ids=[0] * len(targets["tree"]),
        target_weights=targets["weight"],
    )
    graph = helper.make_graph(
        [ensemble],
        name,
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", feature_count])],
        [helper.make_tensor_value_info("residual", TensorProto.FLOAT, ["n", 1])],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", OPSET_ML)]
    model = helper.make_model(graph, opset_imports=opsets, producer_name="neusight-onnx", ir_version=IR_VERSION)
    encoded: bytes = model.SerializeToString(deterministic=True)
    return encoded


PARITY_ROWS = 20_000
"""Rows on which the export is compared, at least."""


def parity_rows(features: NDArray[np.float32], *, seed: int) -> NDArray[np.float32]:
    """The rows themselves and, up to ``PARITY_ROWS``, new ones that take each feature from a row of its own."""
    missing = PARITY_ROWS - len(features)
    if missing <= 0 or not len(features):
        return features
    random = np.random.default_rng(seed)
    mixed = np.stack([random.choice(features[:, i], missing) for i in range(features.shape[1])], axis=1)
    return np.concatenate([features, mixed])


def parity(model: bytes | Path, booster: Any, features: NDArray[np.float32]) -> float:
    """Largest relative difference of exp(residual) between onnxruntime and LightGBM over the rows."""
    onnxruntime = require("onnxruntime")
    source = str(model) if isinstance(model, Path) else model
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    exported = session.run(None, {"features": features})[0][:, 0].astype(np.float64)
    original = booster.predict(features.astype(np.float64), num_threads=1)
    return float(np.max(np.abs(np.expm1(exported - original)))) if len(features) else 0.0
