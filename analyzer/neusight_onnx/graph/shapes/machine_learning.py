"""ai.onnx.ml: classical models as scikit-learn, LightGBM and XGBoost export them. n rows, f features, e classes."""

from __future__ import annotations

from collections.abc import Sequence

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Value
from neusight_onnx.graph.shapes.context import NodeContext
from neusight_onnx.graph.shapes.registry import rule

_ML = "ai.onnx.ml"
_F32 = DataType.FLOAT32


@rule("ArrayFeatureExtractor", domain=_ML)
def _extract(ctx: NodeContext) -> Sequence[Value]:
    """(..., f), indices (1, k) or (k) -> (..., k); a vector becomes (1, k)."""
    shape = ctx.shape(0)
    count = 1
    for size in ctx.shape(1):
        count *= size
    lead = shape[:-1] if len(shape) > 1 else (1,)
    return (ctx.tensor(ctx.dtype(0), (*lead, count)),)


@rule("Binarizer", "Imputer", domain=_ML)
def _like(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(),)


@rule("Scaler", "Normalizer", domain=_ML)
def _to_float(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(dtype=_F32),)


@rule("LabelEncoder", domain=_ML)
def _label_encoder(ctx: NodeContext) -> Sequence[Value]:
    """The type of the values that the attributes map to; opset 1: strings to int64 and back."""
    dtype = None
    for name, candidate in (
        ("values_int64s", DataType.INT64),
        ("values_floats", _F32),
        ("values_strings", DataType.STRING),
    ):
        if ctx.attribute(name) is not None:
            dtype = candidate
    tensor = ctx.tensor_attribute("values_tensor")
    if tensor is not None:
        dtype = tensor.dtype
    if dtype is None:
        dtype = DataType.INT64 if ctx.dtype(0) is DataType.STRING else DataType.STRING
    return (ctx.same(dtype=dtype),)


@rule("CategoryMapper", domain=_ML)
def _category_mapper(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(dtype=DataType.INT64 if ctx.dtype(0) is DataType.STRING else DataType.STRING),)


@rule("CastMap", domain=_ML)
def _cast_map(ctx: NodeContext) -> Sequence[Value]:
    """A map becomes a row; SPARSE has as many columns as ``max_map`` says."""
    dtype = {"TO_FLOAT": _F32, "TO_STRING": DataType.STRING, "TO_INT64": DataType.INT64}.get(
        ctx.text("cast_to", "TO_FLOAT")
    )
    if ctx.text("map_form", "DENSE") == "SPARSE":
        return (ctx.tensor(dtype, (1, ctx.integer("max_map", 1))),)
    return (Value(dtype=dtype, shape=None, unknown_because=ctx.value(0).unknown_because or ctx.node.name),)


@rule("DictVectorizer", domain=_ML)
def _dict_vectorizer(ctx: NodeContext) -> Sequence[Value]:
    count = ctx.list_length("string_vocabulary") or ctx.list_length("int64_vocabulary") or 0
    return (ctx.tensor(ctx.dtype(0), (1, count)),)


@rule("FeatureVectorizer", domain=_ML)
def _feature_vectorizer(ctx: NodeContext) -> Sequence[Value]:
    """(n, f) each -> (n, sum of the dimensions that the attribute states)."""
    first = ctx.shape(0)
    sizes = ctx.integer_list("inputdimensions") or tuple(ctx.shape(i)[-1] for i in range(len(ctx.inputs)))
    rows = first[0] if len(first) > 1 else 1
    return (ctx.tensor(_F32, (rows, sum(sizes))),)


@rule("OneHotEncoder", domain=_ML)
def _one_hot_encoder(ctx: NodeContext) -> Sequence[Value]:
    """(...) -> (..., categories)."""
    count = ctx.list_length("cats_int64s") or ctx.list_length("cats_strings") or 0
    return (ctx.tensor(_F32, (*ctx.shape(0), count)),)


def _classes(ctx: NodeContext) -> tuple[DataType, int]:
    """The type of the labels and how many there are."""
    for name, dtype in (
        ("classlabels_strings", DataType.STRING),
        ("classlabels_ints", DataType.INT64),
        ("classlabels_int64s", DataType.INT64),
    ):
        count = ctx.list_length(name)
        if count:
            return dtype, count
    return DataType.INT64, 0


def _rows(ctx: NodeContext) -> int:
    shape = ctx.shape(0)
    return shape[0] if len(shape) > 1 else 1


@rule("LinearClassifier", domain=_ML)
def _linear_classifier(ctx: NodeContext) -> Sequence[Value]:
    """-> labels (n), scores (n, e); one set of coefficients for two classes still gives two scores."""
    rows = _rows(ctx)
    dtype, count = _classes(ctx)
    intercepts = ctx.list_length("intercepts") or 0
    if not count:
        count = intercepts or (ctx.list_length("coefficients") or 0) // max(ctx.shape(0)[-1], 1)
        count = 2 if count == 1 else count
    return (ctx.tensor(dtype, (rows,)), ctx.tensor(_F32, (rows, count)))


@rule("LinearRegressor", domain=_ML)
def _linear_regressor(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(_F32, (_rows(ctx), ctx.integer("targets", 1))),)


@rule("SVMClassifier", domain=_ML)
def _svm_classifier(ctx: NodeContext) -> Sequence[Value]:
    """-> labels (n), scores: probabilities or votes (n, e); without either, one of each pair of classes."""
    rows = _rows(ctx)
    dtype, count = _classes(ctx)
    has_probabilities = bool(ctx.list_length("prob_a"))
    is_linear = not ctx.list_length("vectors_per_class")
    if has_probabilities or is_linear or count <= 2:
        return (ctx.tensor(dtype, (rows,)), ctx.tensor(_F32, (rows, max(count, 1))))
    return (ctx.tensor(dtype, (rows,)), ctx.tensor(_F32, (rows, count * (count - 1) // 2)))


@rule("SVMRegressor", domain=_ML)
def _svm_regressor(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(_F32, (_rows(ctx), 1)),)


@rule("TreeEnsembleClassifier", domain=_ML)
def _tree_classifier(ctx: NodeContext) -> Sequence[Value]:
    """-> labels (n), scores (n, e)."""
    rows = _rows(ctx)
    dtype, count = _classes(ctx)
    tensor = ctx.tensor_attribute("base_values_as_tensor") or ctx.tensor_attribute("nodes_values_as_tensor")
    return (ctx.tensor(dtype, (rows,)), ctx.tensor(_F32 if tensor is None else tensor.dtype, (rows, count)))


@rule("TreeEnsembleRegressor", domain=_ML)
def _tree_regressor(ctx: NodeContext) -> Sequence[Value]:
    tensor = ctx.tensor_attribute("base_values_as_tensor") or ctx.tensor_attribute("nodes_values_as_tensor")
    dtype = _F32 if tensor is None else tensor.dtype
    return (ctx.tensor(dtype, (_rows(ctx), ctx.integer("n_targets", 1))),)


@rule("TreeEnsemble", domain=_ML)
def _tree_ensemble(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(ctx.dtype(0), (_rows(ctx), ctx.integer("n_targets", 1))),)


@rule("ZipMap", domain=_ML)
def _zip_map(ctx: NodeContext) -> Sequence[Value]:
    """(n, e) -> a sequence of n maps of e entries each; the map's values have the input's type."""
    rows = _rows(ctx)
    entries = ctx.shape(0)[-1]
    member = Value(dtype=ctx.dtype(0), shape=(entries,), kind="map", is_constant=ctx.constant)
    return (
        Value(
            dtype=ctx.dtype(0),
            shape=(entries,),
            kind="sequence",
            elements=(member,) * rows if rows <= 4096 else None,
            is_constant=ctx.constant,
        ),
    )
