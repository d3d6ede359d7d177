"""PyTorch's autocast: which operators run in 16 bits, which in float32, which as their operands are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.every_run import is_computed
from neusight_onnx.graph.model import Declared, InferredGraph, Node, Value
from neusight_onnx.lowering.precision import PLAIN
from neusight_onnx.lowering.recast import FP32, Recast, casts, is_before_the_run, listed
from neusight_onnx.lowering.residual_sums import sums_in_place

# Lists of CUDA's autocast: ATen/autocast_mode.h of PyTorch 2.5.1 (AT_FORALL_LOWER_PRECISION_FP, AT_FORALL_FP32,
# AT_FORALL_FP32_SET_OPT_DTYPE, AT_FORALL_PROMOTE), by the ONNX operators that its functions are exported as.

_PRODUCTS = frozenset(
    {
        *(("", name) for name in ("Attention", "Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul")),
        # cuDNN's recurrent kernels have an autocast rule of their own (cudnn_rnn), which casts all operands
        *(("", name) for name in ("GRU", "LSTM", "PRelu", "RNN")),
        *(("neusight", name) for name in ("Linear", "ScaledDotProductAttention")),
        *(
            ("com.microsoft", name)
            for name in (
                "Attention",
                "DecoderMaskedMultiHeadAttention",
                "DecoderMaskedSelfAttention",
                "FusedConv",
                "FusedGemm",
                "FusedMatMul",
                "FusedMatMulActivation",
                "GemmFastGelu",
                "GroupQueryAttention",
                "LongformerAttention",
                "MultiHeadAttention",
                "NhwcConv",
                "NhwcFusedConv",
                "PackedAttention",
                "PackedMultiHeadAttention",
                "PagedAttention",
                "SparseAttention",
                "TransposeMatMul",
            )
        ),
    }
)
_WEIGHTS_ALONE = frozenset(
    {
        *(("com.microsoft", name) for name in ("MatMulBnb4", "MatMulFpQ4", "MatMulNBits")),
        *(("neusight", name) for name in ("QuantizedGemm", "QuantizedLinear", "QuantizedMatMul")),
    }
)
"""Products with quantised weights: activations alone are cast."""

_IN_FP32 = frozenset(
    {
        *(("", name) for name in ("Acos", "Asin", "Cosh", "CumProd", "CumSum", "Exp", "Log", "Pow", "Reciprocal")),
        *(("", name) for name in ("ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "Resize", "Sinh", "Softplus")),
        *(("", name) for name in ("GroupNormalization", "LayerNormalization", "LpNormalization", "Tan", "Upsample")),
        # of PyTorch 2.1-2.5 only the formula's steps are listed (pow, rsqrt), which leave it in float32
        *(("", name) for name in ("RMSNormalization", "SimplifiedLayerNormalization")),
        *(("", name) for name in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")),
        # torchvision's own rules of autocast
        *(("", name) for name in ("DeformConv", "NonMaxSuppression", "RoiAlign")),
        ("neusight", "Rsqrt"),
        *(
            ("com.microsoft", name)
            for name in (
                "CDist",
                "EmbedLayerNormalization",
                "GroupNorm",
                "SimplifiedLayerNormalization",
                "SkipGroupNorm",
                "SkipLayerNormalization",
                "SkipSimplifiedLayerNormalization",
            )
        ),
        # no rule of autocast: what they hand to their bodies and back is taken to have one type
        *(("", name) for name in ("If", "Loop", "Scan", "SequenceMap")),
    }
)
_RESIZING = frozenset({("", "Resize"), ("", "Upsample")})
"""What a compiler's trace decomposes before autocast sees it: its type is the operand's (``upsample_nearest2d_vec`` and
its like in ``torch/_decomp``, registered below autocast; PyTorch 2.9.1 generates 16 bits for all modes)."""

_TO_FP32 = frozenset(
    {
        *(("", name) for name in ("LogSoftmax", "ReduceL1", "ReduceL2", "ReduceProd", "ReduceSum", "Softmax")),
        ("neusight", "MaskedSoftmax"),
    }
)
"""Given float32 as the result's type instead of a cast: one kernel reads 16 bits and writes 32."""

_SOFTMAXES = frozenset({("", "LogSoftmax"), ("", "Softmax")})
"""One kernel for float16 only (its half_to_float); bfloat16 is cast before."""

_WIDEST = frozenset({("", "GridSample"), ("com.microsoft", "GridSample"), ("neusight", "Addcmul")})
"""Operands are cast to the widest type among them; others promote inside their kernel."""

_AS_FIRST = frozenset(
    {
        *(("", name) for name in ("BatchNormalization", "Clip", "Dropout", "InstanceNormalization", "Pad")),
        ("", "DequantizeLinear"),
    }
)
"""Their type is that of the first operand, whatever parameters have."""

_BODIES = frozenset({("", name) for name in ("If", "Loop", "Scan", "SequenceMap")})


def autocast(graph: InferredGraph, low: DataType, *, runtime: str, in_training: bool = False) -> InferredGraph:
    """``graph``, recognised and in float32, as PyTorch runs it under ``torch.autocast("cuda", low)``.

    An activation is cast for every operator that needs it in another type. So it is compiled for inference, too: the
    normalization before BERT's queries, keys and values writes three casts (PyTorch 2.4.1 and 2.9.1). Only what is
    compiled to be trained has each cast once (``fx_graph_cse`` of AOTAutograd's partitioner). A weight is cast once a
    run: autocast keeps it until its context ends, which is that of one run.
    """
    is_traced = runtime != "eager"
    work = Recast(
        low=low,
        is_traced=is_traced,
        shares_casts=is_traced and in_training,
        caches_weights=not is_traced,
        values={},
    )
    made = _autocast(graph, work, {}, {})
    said = [
        f"{low.label} by PyTorch's autocast: products run in it",
        f"weights stay in float32 and are cast in every run, once each ({casts(work.weight_casts)}; --precision "
        f"{'fp16' if low is DataType.FLOAT16 else 'bf16'}-model has them stored in 16 bits)",
        f"{casts(work.activation_casts)} of activations",
    ]
    if work.wide:
        said.append(f"in float32 by autocast's lists: {listed(work.wide)}")
    return replace(made, assumptions=(*made.assumptions, "; ".join(said)))


def _autocast(
    graph: InferredGraph, work: Recast, outer: Mapping[str, Value], cast: Mapping[tuple[str, DataType], str]
) -> InferredGraph:
    values = dict(graph.values)
    if outer:
        values.update((name, value) for name, value in outer.items() if name in values)
        values.update((made, outer[made]) for made in cast.values())
    whole = work.values, work.nodes, work.cast
    work.values, work.nodes, work.cast = values, [], dict(cast)
    bodies = dict(graph.bodies)
    by_node: dict[str, list[tuple[str, str]]] = {}
    for key in bodies:
        by_node.setdefault(key[0], []).append(key)
    in_place = sums_in_place(graph)
    for node in graph.graph.nodes:
        if is_before_the_run(node, values) and not is_computed(
            node, [values.get(name) for name in node.outputs], work.computed
        ):
            work.nodes.append(node)
            continue
        _autocast_node(node, work, keeps_first=node.name in in_place)
        for key in by_node.get(node.name, ()):
            # what autocast keeps for the run serves bodies, too; the rest is cast where it is needed
            served = {
                pair: made for pair, made in work.cast.items() if work.caches_weights and values[pair[0]].is_constant
            }
            bodies[key] = _autocast(bodies[key], work, values, served)
    outputs = graph.graph.outputs
    if outer:  # a body hands on what the node around it was inferred with
        outputs = tuple(_handed_on(declared, work) for declared in outputs)
    else:
        outputs = tuple(_as_value(declared, values) for declared in outputs)
    nodes = tuple(work.nodes)
    work.values, work.nodes, work.cast = whole
    return replace(graph, graph=replace(graph.graph, nodes=nodes, outputs=outputs), values=values, bodies=bodies)


def _handed_on(declared: Declared, work: Recast) -> Declared:
    value = work.values.get(declared.name)
    if value is None or value.dtype is not work.low or not work.nodes:
        return declared
    last = next((node for node in reversed(work.nodes) if declared.name in node.outputs), None)
    return declared if last is None else replace(declared, name=work.as_type(last, declared.name, FP32))


def _as_value(declared: Declared, values: Mapping[str, Value]) -> Declared:
    value = values.get(declared.name)
    if value is None or value.dtype not in PLAIN or declared.dtype is value.dtype:
        return declared
    return replace(declared, dtype=value.dtype)


def _autocast_node(node: Node, work: Recast, *, keeps_first: bool) -> None:
    """``keeps_first``: the result has the type of the first operand, into which it is written."""
    key = (node.domain, node.op_type)
    if key in _PRODUCTS:
        work.finish(work.with_inputs(node, work.low), work.low)
    elif key in _WEIGHTS_ALONE:
        work.finish(
            work.with_inputs(node, work.low, first_only=True), work.low if work.is_plain(node.inputs[0]) else None
        )
    elif (
        (key in _IN_FP32 and not (work.is_traced and key in _RESIZING))
        or (key in _SOFTMAXES and work.low is DataType.BFLOAT16)
        or _divides_a_number(node, work)
    ):
        changed = work.with_inputs(node, FP32)
        if key not in _BODIES:
            work.wide[node.op_type] += 1
        work.finish(changed, FP32)
    elif key in _TO_FP32:
        work.wide[node.op_type] += 1
        work.finish(node, FP32)
    elif key in _WIDEST:
        widest = _widest(node.inputs, work)
        work.finish(node if widest is None else work.with_inputs(node, widest), widest)
    else:
        # a cast between plain types is one that export wrote for a float32 model: .to(x.dtype), which follows, too
        first = keeps_first or key in _AS_FIRST or key in _RESIZING or node.op_type in ("Cast", "CastLike")
        follows = node.inputs[:1] if first else node.inputs
        work.finish(node, _widest(follows, work))


def _divides_a_number(node: Node, work: Recast) -> bool:
    """``number / tensor`` is a reciprocal in PyTorch (``__rtruediv__``)."""
    if node.op_type != "Div" or node.domain or len(node.inputs) != 2:
        return False
    first = work.values.get(node.inputs[0])
    return first is not None and first.is_constant and first.shape is not None and first.element_count == 1


def _widest(names: tuple[str, ...], work: Recast) -> DataType | None:
    """The type that plain operands promote to: numbers don't count beside tensors. None: there is no plain operand.

    By ``torch.result_type`` a parameter with a dimension is a tensor, be it of a single element, as a learned scale is.
    """
    numbers = tensors = 0
    for name in names:
        value = work.values.get(name)
        if value is None or value.dtype not in PLAIN or value.kind != "tensor":
            continue
        wide = 2 if value.dtype is FP32 else 1
        if not value.shape or (value.is_constant and value.element_count == 1 and not _is_parameter(name)):
            numbers = max(numbers, wide)
        else:
            tensors = max(tensors, wide)
    found = tensors or numbers
    return None if not found else (FP32 if found == 2 else work.low)


def _is_parameter(name: str) -> bool:
    """Whether a constant is a module's parameter, which PyTorch's exporters name by its path (``stem.act.scale``).

    What they make of Python's numbers has names such as ``val_3``, ``onnx::Mul_7`` and ``/stem/Constant_output_0``.
    """
    *path, last = name.split(".")
    return bool(path) and last.isidentifier() and all(part.isidentifier() or part.isdigit() for part in path)
