"""Where an operator runs that the runtime has no GPU kernel for, and what moves between host and GPU.

ONNX Runtime gives a node to its CPU provider when the CUDA one has no kernel, and puts copies between; TensorRT builds
no engine of a model that its parser can't read. Shape arithmetic that is known before the run is neither: it is free.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import InferredGraph, Node, Value
from neusight_onnx.kernel_formats import kernel_dtype
from neusight_onnx.kernels import HostWork, Kernel, NodeWork, Opaque, Transfer
from neusight_onnx.lowering.engine_parser import why_refused
from neusight_onnx.lowering.known_on_gpu import OWN, Known, host_inputs, where_known
from neusight_onnx.runtime import Runtime


def _named(text: str) -> frozenset[str]:
    return frozenset(text.split())


ORT_CUDA: Mapping[str, frozenset[str]] = {
    "": _named(
        """
        Abs Add Affine And ArgMax ArgMin Attention AveragePool BatchNormalization Cast Ceil Clip Compress Concat
        ConcatFromSequence ConstantOfShape Conv ConvTranspose Cos Crop CumSum DeformConv DepthToSpace DequantizeLinear
        Div Dropout Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather GatherElements GatherND Gelu Gemm
        GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual GridSample HardSigmoid HardSwish Identity If
        ImageScaler InstanceNormalization IsInf IsNaN LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log
        LogSoftmax Loop LpNormalization MatMul MatMulInteger Max MaxPool MemcpyFromHost MemcpyToHost Min Mod Mul Neg
        NonMaxSuppression NonZero Not OneHot Or PRelu Pad ParametricSoftplus Pow QuantizeLinear RMSNormalization RNN
        RandomNormal RandomNormalLike RandomUniform RandomUniformLike Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum
        ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize
        ReverseSequence RoiAlign RotaryEmbedding Round ScaledTanh Scan Scatter ScatterElements ScatterND Selu
        SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength Shape Shrink Sigmoid
        Sign SimplifiedLayerNormalization Sin Size Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub
        Sum Tanh TensorScatter ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze Upsample Where Xor
        """
    ),
    "com.microsoft": _named(
        """
        Attention BeamSearch BiasAdd BiasDropout BiasGelu BiasSoftmax BiasSplitGelu BitmaskBiasDropout BitmaskDropout
        BranchwiseRMSNorm CausalConvWithState ComplexMul ComplexMulConj ConvTransposeWithDynamicPads DecoderAttention
        DecoderMaskedMultiHeadAttention DecoderMaskedSelfAttention DequantizeLinear DequantizeWithOrder
        DynamicSparseAttention DynamicTimeWarping EmbedLayerNormalization EngramGate FastGelu FusedConv FusedMatMul
        GatedAdd GatedDeltaNet GatedRMSNorm GatedRelativePositionBias GatherBlockQuantized Gelu GemmFloat8
        GemmaRotaryEmbedding GreedySearch GridSample GroupNorm GroupQueryAttention HyperConnectionPostMix
        HyperConnectionPreMix Inverse Irfft LinearAttention LinearAttentionGate LongformerAttention MRotaryEmbedding
        MatMulBlockQuantizedFp4Weight MatMulBlockQuantizedFp8Weight MatMulBnb4 MatMulNBits MoE MultiHeadAttention
        NGramHashMapping NGramRepeatBlock NhwcConv PackedAttention PackedMultiHeadAttention PackedSparseAttentionIndexer
        PagedAttention QAttention QMoE QOrderedAttention QOrderedGelu QOrderedLayerNormalization
        QOrderedLongformerAttention QOrderedMatMul QuantizeLinear QuantizeWithOrder QuickGelu RelativePositionBias
        RemovePadding RestorePadding Rfft RotaryEmbedding Sampling ScaledSiLU SkipGroupNorm SkipLayerNormalization
        SkipSimplifiedLayerNormalization SparseAttention SparseAttentionIndexer SparsePagedAttention TransposeMatMul
        UnfoldTensor VarlenCausalConvWithState VarlenNGramHashMapping WhisperBeamSearch
        """
    ),
    "ai.onnx.ml": frozenset({"LabelEncoder"}),
}
"""Operators that ONNX Runtime's CUDA provider has kernels for: from the type names of its kernels in
libonnxruntime_providers_cuda.so of onnxruntime-gpu 1.31.1 (templates over several operators, as pooling, by hand)."""

ORT_CUDA_LAST_VERSION: Mapping[str, int] = dict.fromkeys(
    ("Dropout", "Elu", "EyeLike", "InstanceNormalization", "MaxPool", "Selu", "ThresholdedRelu"), 21
)
"""Last opset up to which the provider has a kernel, for operators that opset 22 defines anew and whose kernels weren't
registered for it: a file of opset 22 or later has its MaxPool run by the CPU."""

_SMALL = frozenset({DataType.INT8, DataType.UINT8, DataType.INT16})
_BYTES = frozenset({DataType.INT8, DataType.UINT8})
_WIDE = frozenset({DataType.INT32, DataType.INT64})

ORT_CUDA_LACKS: Mapping[str, frozenset[DataType]] = {
    **dict.fromkeys(("ArgMax", "ArgMin"), _BYTES | _WIDE),
    "Clip": frozenset({DataType.INT32, DataType.UINT32}),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _BYTES),
    "DequantizeLinear": _WIDE | {DataType.INT16, DataType.UINT16},
    "Einsum": _WIDE,
    **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mod"), _SMALL),
    **dict.fromkeys(("Max", "Min"), _BYTES),
    "GatherND": _SMALL | {DataType.INT32, DataType.UINT32},
    "GridSample": frozenset({DataType.FLOAT16, DataType.FLOAT64}),
    "LpNormalization": frozenset({DataType.FLOAT64}),
    "MatMul": _WIDE | {DataType.UINT32},
    "MatMulInteger": frozenset({DataType.UINT8}),
    "Pad": _BYTES | _WIDE | {DataType.UINT32},
    "QuantizeLinear": frozenset({DataType.INT16, DataType.UINT16}),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceMean", "ReduceProd"), frozenset({DataType.INT64})),
    **dict.fromkeys(("ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"), _WIDE),
    **dict.fromkeys(("ReduceMax", "ReduceMin"), frozenset({DataType.BOOL})),
    "Relu": frozenset({DataType.INT8, DataType.INT32}),
    "Resize": frozenset({DataType.INT8}),
    "Tile": _SMALL | {DataType.BOOL, DataType.UINT32},
}
"""Types of the first operand for which the provider has no kernel where it has some for others: integers above all,
INT32 biases of quantised models among them. MatMulInteger's must all be INT8; dynamic quantisation hands it UINT8.
QuantizeLinear's is the type of its result.

This, ``ORT_CUDA_LAST_VERSION`` and ``ORT_CUDA_16_BITS``: where onnxruntime-gpu 1.31.1 places each single-node model of
the standard's tests, in eleven types and all versions of its operator (``benchmarks/cuda_standin.py``: no GPU is needed
for it)."""

ORT_FUNCTIONS = _named(
    """
    Bernoulli CastLike CausalConvWithState CenterCropPad GroupNormalization LinearAttention Mish
    NegativeLogLikelihoodLoss SequenceMap SoftmaxCrossEntropyLoss SwiGLU Swish
    """
)
"""Operators that ai.onnx defines by others (functions of its schemas) and that neither provider has a kernel for: those
are run in their place. Where the CPU provider has one (its list: onnxruntime 1.32), the node is given to it."""

REFUSED_BY = "TensorRT's parser has no "
"""How the reason of a node begins that TensorRT refuses."""
REFUSED = REFUSED_BY + "{lacking}: no engine is built of this model as it is"

ORT_CUDA_16_BITS = _named("DequantizeLinear GroupQueryAttention QuantizeLinear SparseAttention")
"""Operators of com.microsoft that the provider has for FP16 and BF16 alone, by the same placing; FP32 is the CPU's."""


def why_on_host(node: Node, values: Mapping[str, Value]) -> str | None:
    """Why ONNX Runtime gives a node to the CPU, as follows "it has no GPU kernel"; None where it has one.

    "": no kernel at all; else the version, type or form that the provider has none for.
    """
    if node.domain == OWN:
        return None
    kernels = ORT_CUDA.get(node.domain, frozenset())
    if node.op_type not in kernels:
        return None if node.domain == "" and node.op_type in ORT_FUNCTIONS else ""
    if node.domain == "com.microsoft":
        # what is quantised isn't floating: the second operand is the scale
        place = 1 if node.op_type == "DequantizeLinear" else 0
        value = values.get(node.inputs[place]) if len(node.inputs) > place else None
        lacks = node.op_type in ORT_CUDA_16_BITS and value is not None and value.dtype is DataType.FLOAT32
        return "for float32, only for float16 and bfloat16" if lacks else None
    if node.domain:
        return None
    last = ORT_CUDA_LAST_VERSION.get(node.op_type, node.version)
    if node.version > last:
        return f"for opset {node.version}, only up to {last}"
    lacking = _lacking_type(node, values)
    if lacking is not None:
        return f"for {lacking.label}, only for other types"
    return _lacking_form(node)


def _lacking_type(node: Node, values: Mapping[str, Value]) -> DataType | None:
    lacking = ORT_CUDA_LACKS.get(node.op_type, frozenset())
    match node.op_type:
        case "MatMulInteger":
            looked_at = node.inputs
        case "QuantizeLinear":
            looked_at = node.outputs
        case _:
            looked_at = node.inputs[:1]
    found = (values[name].dtype for name in looked_at if name in values)
    return next((dtype for dtype in found if dtype in lacking), None)


def _lacking_form(node: Node) -> str | None:
    """Forms of operators that the provider hands on although it has a kernel."""
    match node.op_type:
        case "ArgMax" | "ArgMin" if node.attributes.get("select_last_index", 0):
            return "with select_last_index"
        case "ConvTranspose" if node.attributes.get("auto_pad") in ("SAME_UPPER", "SAME_LOWER"):
            return "with auto_pad, only with pads"
        case "GRU" if not node.attributes.get("linear_before_reset", 0):
            return "without linear_before_reset"
        case "LSTM" if len(node.inputs) > 7 and node.inputs[7]:
            return "with weights of peepholes"
    return None


BESIDE_INPUTS = "where it reads nothing but sizes and inputs of the model"
"""Why a node runs on the CPU that ONNX Runtime prefers there (:mod:`known_on_gpu`)."""

_FREE_STEPS = 8
"""Operators without a kernel in a row that are followed from such an input back to where it was made."""


def refusal_of(node: Node, values: Mapping[str, Value]) -> str | None:
    """Why TensorRT can't build a node of the file; what a rule of ours made stands for operators that it can."""
    if node.domain == OWN or len(node.origins) > 1:
        return None
    lacking = why_refused(node, values)
    return None if lacking is None else REFUSED.format(lacking=lacking)


def refusals(graph: InferredGraph) -> dict[str, str]:
    """Node, of bodies, too -> why TensorRT can't build it."""
    found: dict[str, str] = {}
    pending = [graph]
    while pending:
        current = pending.pop()
        pending.extend(current.bodies.values())
        for node in current.graph.nodes:
            reason = refusal_of(node, current.values)
            if reason is not None:
                found[node.name] = reason
    return found


def _refused(works: Sequence[NodeWork], reasons: Mapping[str, str]) -> tuple[NodeWork, ...]:
    """``works`` without the kernels of what has a refused node of the file in it: a parser reads before it merges.

    It reads nodes of constants and sizes, too.
    """
    result = list(works)
    for at, work in enumerate(works if reasons else ()):
        if work.unsupported is not None or not work.count:
            continue
        names = (work.node, *(name for name, _ in work.origins))
        reason = next((reasons[name] for name in names if name in reasons), None)
        if reason is not None:
            result[at] = replace(
                work, kernels=(), free=None, unsupported=reason, host_operation=False, host_waits=False
            )
    return tuple(result)


def place(
    graph: InferredGraph,
    works: Sequence[NodeWork],
    runtime: Runtime,
    *,
    known: Known | None = None,
    parsed: InferredGraph | None = None,
) -> tuple[NodeWork, ...]:
    """``works`` as ``runtime`` can run them: those without a GPU kernel on the host, or unsupported with the reason.

    ``known``: of lowering; None: looked for.
    ``parsed``: the graph before anything in it was merged, which is what an engine's parser reads; None: ``graph``.
    """
    if runtime.fallback == "none":
        return tuple(works)
    if runtime.fallback == "refused":
        return _refused(works, refusals(graph if parsed is None else parsed))
    places = {work.node: place for place, work in enumerate(works)}
    result = list(works)
    pending = [graph]
    if known is None:
        known = where_known(graph) if runtime.computes_shapes else Known()
    while pending:
        current = pending.pop()
        pending.extend(current.bodies.values())
        chosen = [
            node
            for node in current.graph.nodes
            if (at := places.get(node.name)) is not None
            and works[at].kernels
            and (why_on_host(node, current.values) is not None or node.name in known.beside_inputs)
        ]
        _copy_for_host(current, {node.name for node in chosen}, places, works, result)
        if not chosen:
            continue
        _to_host(current, chosen, places, works, result)
    if known.on_host:
        _copy_to_device(graph, known.on_host, places, result)
    return tuple(result)


def _copy_to_device(graph: InferredGraph, on_host: Set[str], places: Mapping[str, int], result: list[NodeWork]) -> None:
    """What the CPU computed of sizes is copied in front of the first kernel that reads it, a MemcpyFromHost each.

    Launched as a kernel is: the host doesn't wait for it (the log of the stand-ins has no synchronisation behind one;
    up to 64 KB CUDA copies to the device "asynchronously with respect to the host").
    """
    copied: set[str] = set()
    for node in graph.graph.nodes:
        at = places.get(node.name)
        if at is None or not result[at].kernels or result[at].on_host_because is not None:
            continue
        from_host = host_inputs(node)
        copies: list[Kernel] = []
        for place, name in enumerate(node.inputs):
            value = graph.values.get(name)
            if name not in on_host or name in copied or place in from_host:
                continue
            if value is not None and value.data is not None and not value.is_constant:
                copied.add(name)
                copies.append(transfer("to_device", value, is_waited_for=False))
        if copies:
            result[at] = replace(result[at], kernels=(*copies, *result[at].kernels))


def _copy_for_host(
    graph: InferredGraph,
    on_cpu: set[str],
    places: Mapping[str, int],
    works: Sequence[NodeWork],
    result: list[NodeWork],
) -> None:
    """In front of kernels that read sizes or indices on the host, copies of those that kernels made; each value once.

    The host waits for such a copy, and so for all that was launched before: of an empty result, too, and of one that is
    whole at its bound, since the copy tells how large it is.
    """
    readers = [
        node for node in graph.graph.nodes if host_inputs(node) and node.name not in on_cpu and node.name in places
    ]
    unknown = [
        (node, name)
        for node in readers
        for place in host_inputs(node)
        if place < len(node.inputs) and (name := node.inputs[place])
        if (value := graph.values.get(name)) is not None and _moves(value)
    ]
    if not unknown:
        return
    producers = {name: node for node in graph.graph.nodes for name in node.outputs}
    copied: set[str] = set()
    for node, name in unknown:
        at = places[node.name]
        if name in copied or not (works[at].kernels or _is_open_or_empty(graph, node)):
            continue
        if _is_made_on_gpu(name, producers, on_cpu, places, works):
            copied.add(name)
            kernels = (transfer("to_host", graph.values[name]), *result[at].kernels)
            result[at] = replace(result[at], kernels=kernels, free=None, host_waits=True)


def _is_open_or_empty(graph: InferredGraph, node: Node) -> bool:
    value = graph.values.get(node.outputs[0])
    return value is not None and value.shape is not None and (value.is_bound or 0 in value.shape)


def _is_made_on_gpu(
    name: str,
    producers: Mapping[str, Node],
    on_cpu: set[str],
    places: Mapping[str, int],
    works: Sequence[NodeWork],
) -> bool:
    """Whether a kernel makes the value: it is neither fed nor computed from shapes on the host."""
    for _ in range(_FREE_STEPS):
        node = producers.get(name)
        if node is None or node.name not in places or node.name in on_cpu:
            return False
        if works[places[node.name]].kernels:
            return True
        if not node.inputs or node.op_type in ("Shape", "Size"):
            return False
        name = node.inputs[0]
    return False


def _to_host(
    graph: InferredGraph,
    chosen: Sequence[Node],
    places: Mapping[str, int],
    works: Sequence[NodeWork],
    result: list[NodeWork],
) -> None:
    """Each value is copied once in a direction, as the copies between the providers do."""
    names = {node.name for node in chosen}
    readers: dict[str, list[str]] = defaultdict(list)
    for node in graph.graph.nodes:
        for name in node.inputs:
            readers[name].append(node.name)
    outputs = {declared.name for declared in graph.graph.outputs}
    on_host: set[str] = set()
    for node in chosen:
        arriving: list[Kernel] = []
        for name in dict.fromkeys(node.inputs):
            value = graph.values.get(name)
            if name in on_host or value is None or not _moves(value):
                continue
            on_host.add(name)
            arriving.append(transfer("to_host", value))
        leaving = []
        for name in node.outputs:
            value = graph.values.get(name)
            on_host.add(name)
            is_read = name in outputs or any(reader not in names for reader in readers.get(name, ()))
            if name and value is not None and _moves(value) and is_read:
                leaving.append(transfer("to_device", value))
        work = works[places[node.name]]
        host = HostWork(
            operation=node.op_type.lower(),
            operation_count=sum(kernel.flops for kernel in work.kernels),
            dtype=kernel_dtype(work.kernels[0]),
            read=sum(kernel.read_bytes for kernel in work.kernels),
            written=sum(kernel.write_bytes for kernel in work.kernels),
            mac_count=sum(kernel.macs for kernel in work.kernels),
            walk=next((kernel.walk for kernel in work.kernels if isinstance(kernel, Opaque)), None),
        )
        why = why_on_host(node, graph.values)
        why = BESIDE_INPUTS if why is None else why
        result[places[node.name]] = replace(
            work, kernels=(*arriving, host, *leaving), host_waits=True, on_host_because=why
        )


def _moves(value: Value) -> bool:
    """Whether a value is device memory: no constant, nothing that is known before the run."""
    return value.shape is not None and value.dtype is not None and not value.is_constant and value.data is None


def transfer(direction: str, value: Value, *, is_waited_for: bool = True) -> Transfer:
    dtype = value.dtype or DataType.FLOAT32
    size = dtype.bytes_of(value.element_count)
    return Transfer(direction=direction, dtype=dtype, byte_count=size, is_waited_for=is_waited_for)


def boundary_copies(graph: InferredGraph, resident: Set[str] = frozenset()) -> tuple[NodeWork | None, NodeWork | None]:
    """The copies of the model's inputs to the GPU, and of its outputs back, as work beside the nodes.

    ``resident``: inputs and outputs that stay on the GPU from run to run.
    """
    sides = (
        ("to_device", "(inputs)", graph.graph.inputs),
        ("to_host", "(outputs)", graph.graph.outputs),
    )
    found: list[NodeWork | None] = []
    for direction, name, declared in sides:
        kernels = tuple(_copies(direction, graph, [item.name for item in declared if item.name not in resident]))
        found.append(
            NodeWork(node=name, op_type="Copy", kernels=kernels, host_operation=True, host_waits=True, is_boundary=True)
            if kernels
            else None
        )
    return found[0], found[1]


def _copies(direction: str, graph: InferredGraph, names: Iterable[str]) -> Iterable[Transfer]:
    for name in names:
        value = graph.values.get(name)
        if value is not None and value.shape is not None and value.dtype is not None and value.element_count:
            yield transfer(direction, value)
