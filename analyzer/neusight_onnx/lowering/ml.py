"""Classical models (ai.onnx.ml): dense ones are products, trees are walks, look-ups are gathers."""

from __future__ import annotations

from math import prod

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import (
    Elementwise,
    GatherScatter,
    Gemm,
    Kernel,
    Movement,
    Normalization,
    Opaque,
    TensorSpec,
    TreeWalk,
)
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.elementwise import pointwise
from neusight_onnx.lowering.movement import TEXT
from neusight_onnx.lowering.registry import Free, Kernels, Outcome, lowers

ML = "ai.onnx.ml"


def _rows(context: NodeContext) -> tuple[int, int]:
    """(samples, features)."""
    shape = context.shape(0)
    if len(shape) < 2:
        return 1, prod(shape)
    return shape[0], prod(shape[1:])


def _floats(context: NodeContext) -> DataType:
    dtype = context.dtype(0)
    return dtype if dtype.is_float else DataType.FLOAT32


def _labels(context: NodeContext, rows: int) -> tuple[Kernel, ...]:
    """The largest score of each row, where labels are asked for (text is looked up on the host)."""
    if len(context.outputs) < 2 or not context.has_output(1):
        return ()
    scores = context.out(1)
    label = TensorSpec(dtype=DataType.INT64, shape=(rows,))
    return (Elementwise(operations=("argmax",), inputs=(scores,), output=label),)


@lowers("LinearClassifier", "LinearRegressor", domain=ML, gives="gemm")
def linear(context: NodeContext) -> Outcome:
    rows, features = _rows(context)
    targets = max(context.length("coefficients") // max(features, 1), 1)
    biased = context.length("intercepts") > 0
    transform = context.text("post_transform", "NONE").lower()
    product = Gemm(
        m=rows,
        n=targets,
        k=features,
        b_is_weight=True,
        dtype=_floats(context),
        epilogue=(("bias",) if biased else ()) + ((transform,) if transform != "none" else ()),
    )
    labels = _labels(context, rows) if context.node.op_type == "LinearClassifier" else ()
    return Kernels(kernels=(product, *labels))


@lowers("SVMClassifier", "SVMRegressor", domain=ML, gives="gemm", note="the kernel's matrix, then its weights")
def support_vectors(context: NodeContext) -> Outcome:
    rows, features = _rows(context)
    dtype = _floats(context)
    vectors = context.length("support_vectors") // max(features, 1)
    if not vectors:
        targets = max(context.length("coefficients") // max(features, 1), 1)
        return Kernels(
            kernels=(Gemm(m=rows, n=targets, k=features, b_is_weight=True, dtype=dtype, epilogue=("bias",)),)
        )
    steps = {"RBF": ("square", "exp"), "POLY": ("pow",), "SIGMOID": ("tanh",)}
    shape = context.text("kernel_type", "LINEAR")
    targets = max(context.length("coefficients") // vectors, 1)
    first = Gemm(m=rows, n=vectors, k=features, b_is_weight=True, dtype=dtype, epilogue=steps.get(shape, ()))
    second = Gemm(m=rows, n=targets, k=vectors, b_is_weight=True, dtype=dtype, epilogue=("bias",))
    return Kernels(kernels=(first, second, *_labels(context, rows)))


@lowers("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor", domain=ML, gives="opaque")
def trees(context: NodeContext) -> Outcome:
    """Every row walks down every tree, about log2 of its nodes deep, as in one whose leaves are equally deep."""
    rows, _ = _rows(context)
    trees = context.node.attributes.get("nodes_treeids")
    if isinstance(trees, tuple):
        nodes, count = len(trees), len(set(trees))
    else:
        nodes = context.length("nodes_featureids")
        count = max(context.length("tree_roots"), 1)
    depth = max((nodes // max(count, 1)).bit_length(), 1)
    written = sum(context.out(index).byte_count for index in range(len(context.outputs)) if context.has_output(index))
    walk = TreeWalk(rows=rows, trees=count, depth=depth, nodes=nodes)
    kernel = Opaque(
        operation="trees",
        operation_count=2 * walk.visits,
        dtype=_floats(context),
        read=context.spec(0).byte_count + walk.read_bytes,
        written=written,
        walk=walk,
    )
    return Kernels(kernels=(kernel,))


@lowers("Scaler", domain=ML, gives="elementwise")
def scaler(context: NodeContext) -> Outcome:
    return pointwise(context, ("sub", "mul"), (0,))


@lowers("Imputer", "Binarizer", domain=ML, gives="elementwise")
def threshold(context: NodeContext) -> Outcome:
    return pointwise(context, ("where" if context.node.op_type == "Imputer" else "gt",), (0,))


@lowers("Normalizer", domain=ML, gives="normalization")
def normalizer(context: NodeContext) -> Outcome:
    rows, cols = _rows(context)
    return Kernels(kernels=(Normalization(method="lp", rows=rows, cols=cols, dtype=_floats(context)),))


@lowers("OneHotEncoder", domain=ML, gives="movement", note="text is handled on the host")
def one_hot(context: NodeContext) -> Outcome:
    if context.dtype(0) is DataType.STRING:
        return TEXT
    out = context.out()
    kernel = Movement(
        operation="one_hot",
        dtype=out.dtype,
        shape=out.shape,
        read=context.spec(0).byte_count,
        written=out.byte_count,
    )
    return Kernels(kernels=(kernel,))


@lowers("LabelEncoder", "CategoryMapper", domain=ML, gives="gather_scatter", note="text is handled on the host")
def label_encoder(context: NodeContext) -> Outcome:
    source, out = context.spec(0), context.out()
    if DataType.STRING in (source.dtype, out.dtype):
        return TEXT
    kernel = GatherScatter(
        operation="gather",
        moved=out.element_count,
        run=1,
        dtype=out.dtype,
        index_count=source.element_count,
        index_dtype=source.dtype,
    )
    return Kernels(kernels=(kernel,))


@lowers("ArrayFeatureExtractor", domain=ML, gives="gather_scatter")
def features(context: NodeContext) -> Outcome:
    out, places = context.out(), context.spec(1)
    if out.dtype is DataType.STRING:
        return TEXT
    kernel = GatherScatter(
        operation="gather",
        moved=out.element_count,
        run=1,
        dtype=out.dtype,
        index_count=places.element_count,
        index_dtype=places.dtype,
    )
    return Kernels(kernels=(kernel,))


@lowers("FeatureVectorizer", domain=ML, gives="movement")
def vectorizer(context: NodeContext) -> Outcome:
    out = context.out()
    read = sum(context.spec(index).byte_count for index in range(len(context.inputs)) if context.has(index))
    return Kernels(
        kernels=(Movement(operation="concat", dtype=out.dtype, shape=out.shape, read=read, written=out.byte_count),)
    )


@lowers(
    "ZipMap",
    "DictVectorizer",
    "CastMap",
    domain=ML,
    gives="free",
    note="maps are handled on the host",
    needs_shapes=False,
)
def maps(context: NodeContext) -> Outcome:
    return Free(reason="maps are handled on the host", host=True)
