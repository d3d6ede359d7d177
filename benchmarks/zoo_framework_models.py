"""Exports models of Keras, Paddle, scikit-learn, LightGBM and XGBoost by the converters that their users take.

    python -P zoo_framework_models.py FOLDER FRAMEWORK [NAMES...]

FRAMEWORK is ``keras`` (tf2onnx), ``paddle`` (paddle2onnx) or ``tables`` (skl2onnx, onnxmltools). Each is imported when
asked for, in any Python that has it (tensorflow and tf2onnx; paddlepaddle and paddle2onnx; scikit-learn, skl2onnx,
onnxmltools, lightgbm and xgboost), and onnx with onnxruntime; nothing of this project is, and nothing downloaded.
Weights are random, trees are fitted to random rows. NAME__FRAMEWORK.json beside a file is as ``zoo_export.py``
writes it, for ``zoo_vision.py`` to judge: the sizes of a run and the shape of every value that ONNX Runtime computed on
the CPU without optimising, or why it did not. A converter may abort its process: what is there is not made anew.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

Exporter = Callable[[Path], None]
BATCH, OPEN = 2, 64
"""Sizes of dimensions that a file leaves open: the first of an input, and the others."""

TYPES = {
    "tensor(float)": np.float32,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(string)": np.object_,
}


def keras_models() -> dict[str, Exporter]:
    """Keras' applications and layers of its own, by tf2onnx, with an open batch."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras
    import tensorflow as tf
    import tf2onnx

    layers, applications = keras.layers, keras.applications

    def texts() -> Any:
        ids = keras.Input((None,), dtype="int32")
        x = layers.Embedding(20_000, 128, mask_zero=True)(ids)
        x = layers.GRU(64)(layers.Bidirectional(layers.LSTM(128, return_sequences=True))(x))
        return keras.Model(ids, layers.Dense(1, activation="sigmoid")(x))

    def encoder(activation: str) -> Any:
        ids = keras.Input((64,), dtype="int32")
        x = layers.Embedding(8_000, 256)(ids)
        for _ in range(2):
            x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 64)(x, x))
            x = layers.LayerNormalization()(x + layers.Dense(256)(layers.Dense(1_024, activation=activation)(x)))
        return keras.Model(ids, layers.Dense(5)(layers.GlobalAveragePooling1D()(x)))

    def unet() -> Any:
        image = keras.Input((128, 128, 3))
        first = layers.Conv2D(32, 3, padding="same", activation="relu")(image)
        x = layers.SeparableConv2D(64, 3, padding="same")(layers.MaxPooling2D()(first))
        x = layers.Conv2DTranspose(32, 3, strides=2, padding="same")(layers.BatchNormalization()(x))
        x = layers.UpSampling2D(2, interpolation="bilinear")(layers.Concatenate()([x, first]))
        return keras.Model(image, layers.Conv2D(4, 1)(x))

    def series() -> Any:
        rows = keras.Input((None, 40))
        x = layers.Conv1D(64, 5, padding="causal", dilation_rate=2, activation="relu")(rows)
        return keras.Model(rows, layers.Dense(10)(layers.GlobalMaxPooling1D()(layers.DepthwiseConv1D(3)(x))))

    def frames() -> Any:
        images = keras.Input((8, 32, 32, 1))
        return keras.Model(images, layers.Conv2D(1, 3)(layers.ConvLSTM2D(16, 3, padding="same")(images)))

    models: dict[str, Callable[[], Any]] = {
        "mobilenetv2": lambda: applications.MobileNetV2(weights=None),
        "mobilenetv3": lambda: applications.MobileNetV3Small(weights=None),
        "resnet50": lambda: applications.ResNet50(weights=None),
        "efficientnetb0": lambda: applications.EfficientNetB0(weights=None),
        "xception": lambda: applications.Xception(weights=None),
        "densenet121": lambda: applications.DenseNet121(weights=None),
        "convnext": lambda: applications.ConvNeXtTiny(weights=None),
        "lstm_gru": texts,
        "encoder_relu": lambda: encoder("relu"),
        "encoder_gelu": lambda: encoder("gelu"),
        "unet": unet,
        "conv1d": series,
        "convlstm": frames,
    }

    def exporter(build: Callable[[], Any]) -> Exporter:
        def run(path: Path) -> None:
            model = build()
            kinds = [
                tf.TensorSpec((None, *item.shape[1:]), item.dtype, name=f"input_{place}")
                for place, item in enumerate(model.inputs)
            ]
            called = tf.function(lambda *given: model(list(given)), input_signature=kinds)
            tf2onnx.convert.from_function(called, input_signature=kinds, opset=17, output_path=str(path))

        return run

    return {name: exporter(build) for name, build in models.items()}


def paddle_models() -> dict[str, Exporter]:
    """Paddle's vision models, an encoder and a text recogniser as PaddleOCR's, by paddle2onnx."""
    import paddle
    from paddle import nn
    from paddle.static import InputSpec

    class Recogniser(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.Sequential(
                *(nn.Conv2D(3, 32, 3, 2, 1), nn.BatchNorm2D(32), nn.Hardswish()),
                *(nn.Conv2D(32, 128, 3, (2, 1), 1), nn.BatchNorm2D(128), nn.ReLU(), nn.AvgPool2D((12, 2))),
            )
            self.cells = nn.LSTM(128, 96, 2, direction="bidirect")
            self.head = nn.Linear(192, 6_625)

        def forward(self, x: Any) -> Any:
            y, _ = self.cells(self.convs(x).squeeze(2).transpose([0, 2, 1]))
            return nn.functional.softmax(self.head(y), axis=-1)

    class Encoder(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(8_000, 256)
            self.layers = nn.TransformerEncoder(
                nn.TransformerEncoderLayer(256, 4, 1_024, 0.0, activation="gelu"), num_layers=2
            )
            self.head = nn.Linear(256, 2)

        def forward(self, x: Any) -> Any:
            return self.head(self.layers(self.embedding(x))[:, 0])

    vision = paddle.vision.models
    models: dict[str, tuple[Callable[[], Any], list[int], str]] = {
        "mobilenetv3": (vision.mobilenet_v3_large, [-1, 3, 224, 224], "float32"),
        "resnet18": (vision.resnet18, [-1, 3, 224, 224], "float32"),
        "googlenet": (vision.googlenet, [-1, 3, 224, 224], "float32"),
        "recogniser": (Recogniser, [-1, 3, 48, 320], "float32"),
        "encoder": (Encoder, [-1, -1], "int64"),
    }

    def exporter(build: Callable[[], Any], shape: list[int], dtype: str) -> Exporter:
        def run(path: Path) -> None:
            model = build()
            model.eval()
            given = [InputSpec(shape, dtype, "x")]
            paddle.onnx.export(model, str(path.with_suffix("")), input_spec=given, opset_version=17)

        return run

    return {name: exporter(*model) for name, model in models.items()}


def table_models() -> dict[str, Exporter]:
    """Estimators of rows, fitted to 2,000 random ones of 20 columns."""
    import lightgbm
    import onnxmltools
    import skl2onnx
    import xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType
    from sklearn import ensemble, linear_model, mixture, naive_bayes, neighbors, neural_network, svm
    from sklearn.decomposition import PCA
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, QuantileTransformer, StandardScaler

    rows = np.random.default_rng(0).standard_normal((2_000, 20)).astype(np.float32)
    classes = (rows[:, 0] > 0.5).astype(int) + (rows[:, 1] > 0)
    sums = rows[:, 0] * 3 + rows[:, 1]

    def by_skl2onnx(estimator: Any, wanted: Any, **options: Any) -> Exporter:
        def run(path: Path) -> None:
            path.write_bytes(skl2onnx.to_onnx(estimator.fit(rows, wanted), rows[:1], **options).SerializeToString())

        return run

    def by_onnxmltools(convert: Any, estimator: Any, wanted: Any, **options: Any) -> Exporter:
        def run(path: Path) -> None:
            kinds = [("input", FloatTensorType([None, rows.shape[1]]))]
            made = convert(estimator.fit(rows, wanted), initial_types=kinds, target_opset=15, **options)
            path.write_bytes(made.SerializeToString())

        return run

    logistic = linear_model.LogisticRegression
    polynomial = make_pipeline(SimpleImputer(), StandardScaler(), PolynomialFeatures(2), PCA(10), logistic())
    boosted = onnxmltools.convert_lightgbm, lightgbm.LGBMClassifier(verbose=-1), classes
    return {
        "extra_trees": by_skl2onnx(ensemble.ExtraTreesClassifier(50), classes),
        "ada_boost": by_skl2onnx(ensemble.AdaBoostClassifier(n_estimators=20), classes),
        "forest_ml5": by_skl2onnx(ensemble.RandomForestRegressor(50), sums, target_opset={"": 22, "ai.onnx.ml": 5}),
        "isolation_forest": by_skl2onnx(
            ensemble.IsolationForest(n_estimators=20), None, target_opset={"": 17, "ai.onnx.ml": 3}
        ),
        "stacking": by_skl2onnx(
            ensemble.StackingClassifier([("a", logistic()), ("b", ensemble.RandomForestClassifier(20))]), classes
        ),
        "svr": by_skl2onnx(svm.SVR(), sums),
        "svc": by_skl2onnx(svm.SVC(probability=True), classes),
        "neighbours": by_skl2onnx(neighbors.KNeighborsClassifier(5), classes),
        "naive_bayes": by_skl2onnx(naive_bayes.GaussianNB(), classes),
        "mixture": by_skl2onnx(mixture.GaussianMixture(4), None),
        "gaussian_process": by_skl2onnx(GaussianProcessRegressor(), sums),
        "mlp": by_skl2onnx(neural_network.MLPClassifier((256, 128), max_iter=5), classes),
        "polynomial": by_skl2onnx(polynomial, classes),
        "quantiles": by_skl2onnx(make_pipeline(QuantileTransformer(n_quantiles=100), logistic()), classes),
        "lightgbm": by_onnxmltools(*boosted, zipmap=False),
        "lightgbm_zipmap": by_onnxmltools(*boosted),
        "lightgbm_split": by_onnxmltools(
            onnxmltools.convert_lightgbm, lightgbm.LGBMRegressor(verbose=-1), sums, split=20
        ),
        "xgboost": by_onnxmltools(onnxmltools.convert_xgboost, xgboost.XGBClassifier(n_estimators=50), classes),
    }


FRAMEWORKS: Mapping[str, Callable[[], dict[str, Exporter]]] = {
    "keras": keras_models,
    "paddle": paddle_models,
    "tables": table_models,
}


def facts(path: Path) -> dict[str, Any]:
    """``inputs`` and ``shapes`` of a run on the CPU, every node's outputs asked for, or ``shape_fault``."""
    import onnxruntime

    model = onnx.load(str(path))
    asked = {item.name for item in model.graph.output}
    weights = {item.name for item in model.graph.initializer}
    sizes = {
        item.name: [
            dim.dim_value or (OPEN if axis else BATCH) for axis, dim in enumerate(item.type.tensor_type.shape.dim)
        ]
        for item in model.graph.input
        if item.name not in weights
    }
    for node in model.graph.node:
        for output in node.output:
            if output and output not in asked:
                model.graph.output.append(onnx.ValueInfoProto(name=output))
                asked.add(output)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        feeds = {item.name: np.ones(sizes[item.name], TYPES[item.type]) for item in session.get_inputs()}
        results = session.run(None, feeds)
    except Exception as error:  # whatever ONNX Runtime raises is said
        return {"inputs": sizes, "shape_fault": f"{type(error).__name__}: {str(error)[:300]}"}
    named = zip(session.get_outputs(), results, strict=True)
    return {
        "inputs": sizes,
        "shapes": {item.name: list(value.shape) for item, value in named if isinstance(value, np.ndarray)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("framework", choices=sorted(FRAMEWORKS))
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    models = FRAMEWORKS[given.framework]()
    for name in given.names or models:
        path = given.folder / f"{name}__{given.framework}.onnx"
        said = path.with_suffix(".json")
        if said.exists():
            continue
        try:
            models[name](path)
        except (Exception, SystemExit) as error:  # whatever a converter raises: the others are still made
            print(name, f"{type(error).__name__}: {str(error)[:200]}", flush=True)
            continue
        found = {"model": name, "form": given.framework, **facts(path)}
        said.write_text(json.dumps(found))
        print(name, found.get("shape_fault", ""), flush=True)


if __name__ == "__main__":
    sys.exit(main())
