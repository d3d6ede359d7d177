"""What a runtime changes where it is asked for 16 bits: which operators run in them, and the casts that this takes.

Three ways, by runtime (docs/precision.md has the lists):

- PyTorch (eager, compiled): autocast. Products take their operands in 16 bits, a list of operators takes float32, the
  others follow their operands. Weights stay in float32 and are cast in every run, once each.
- ONNX Runtime: its converter makes the whole file 16-bit, but for a list of operators.
- TensorRT: its builder's flag; weights are converted when the engine is built, inputs and outputs stay as they are.
  A file with 8- and 4-bit floats or weights in 4 bits was converted before, but for a list of operators.

A cast is a Cast node of its own, with the origin of the node that needs it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import cast

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.every_run import is_computed
from neusight_onnx.graph.model import Attribute, Declared, InferredGraph, Initializer, Node, Value, made_name
from neusight_onnx.lowering.precision import KEPT_FOR_THE_RUN, PLAIN, as_precision
from neusight_onnx.lowering.residual_sums import sums_in_place

_FP32 = DataType.FLOAT32

# --- PyTorch's autocast -----------------------------------------------------------------------------------------------

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

_CALLS = frozenset({"Attention", "ScaledDotProductAttention"})

# --- ONNX Runtime's conversion ----------------------------------------------------------------------------------------

# DEFAULT_OP_BLOCK_LIST of onnxruntime.transformers.float16 (1.32), those of ai.onnx that take floats at run time
_BLOCKED = frozenset(
    ("", name)
    for name in (
        "CumSum",
        "Max",
        "Min",
        "NonMaxSuppression",
        "RandomUniformLike",
        "Range",
        "RoiAlign",
        "TopK",
        "Upsample",
    )
)
_BLOCKED_BY_SCHEMA = frozenset(("", name) for name in ("Celu", "NonMaxSuppression", "Range"))
"""What NVIDIA's Model Optimizer leaves in float32 (0.47, ``autocast/precisionconverter.py``): Celu, NonMaxSuppression,
and what takes no float16 by onnx's schemas at opsets 19 to 26, of the operators that may run in a kernel. It lists
Upsample, too, which its conversion to opset 19 makes a Resize."""

_BODIES = frozenset({("", name) for name in ("If", "Loop", "Scan", "SequenceMap")})


@dataclass(slots=True)
class _Recast:
    """One graph on its way: its values as they become, the nodes with their casts, what was counted.

    ``cast``: names of casts that later nodes read again. ``low`` is the 16-bit type. ``is_traced``: for a compiler.
    ``shares_casts``: whoever reads a value in a type reads one cast of it, of parameters always.
    """

    low: DataType
    is_traced: bool
    shares_casts: bool
    caches_weights: bool
    values: dict[str, Value]
    nodes: list[Node] = field(default_factory=list)
    cast: dict[tuple[str, DataType], str] = field(default_factory=dict)
    memo: dict[tuple[int, DataType, bool], Value] = field(default_factory=dict)
    wide: Counter[str] = field(default_factory=Counter)
    activation_casts: int = 0
    weight_casts: int = 0
    computed: set[str] = field(default_factory=set)

    def is_plain(self, name: str) -> bool:
        value = self.values.get(name)
        return value is not None and value.dtype in PLAIN and value.kind == "tensor"

    def retype(self, name: str, dtype: DataType) -> None:
        """Gives the value ``name`` another plain type."""
        value = self.values.get(name)
        if value is not None and value.dtype in PLAIN and value.dtype is not dtype:
            self.values[name] = self.typed(value, dtype, runs=False)

    def typed(self, value: Value, dtype: DataType, *, runs: bool) -> Value:
        """``value`` in another type, one object for equal ones; ``runs``: made in every run, not when loading."""
        key = (id(value), dtype, runs)
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = replace(
                value,
                dtype=dtype,
                is_constant=value.is_constant and not runs,
                is_cast_weight=value.is_constant and runs,
                data=None if runs else value.data,
            )
        return found

    def as_type(self, node: Node, name: str, dtype: DataType) -> str:
        """The name of ``name`` in ``dtype`` for ``node``, cast before it if need be."""
        value = self.values.get(name)
        if value is None or value.dtype not in PLAIN or value.dtype is dtype or value.kind != "tensor":
            return name
        known = self.cast.get((name, dtype))
        if known is not None:
            return known
        is_weight = value.is_constant
        # equal loops over what all attention reads, a mask, are one kernel of a compiler's
        is_shared = self.shares_casts or is_weight or (self.is_traced and node.op_type in _CALLS)
        reader = () if is_shared else (node.name,)
        made = made_name(name, dtype.label, *reader)
        attributes = _CASTS[dtype, is_weight and self.caches_weights]
        self.nodes.append(
            Node(
                name=made_name(node.name, "cast", name),
                op_type="Cast",
                version=13,
                inputs=(name,),
                outputs=(made,),
                attributes=attributes,
                origins=node.stands_for,
            )
        )
        self.values[made] = self.typed(value, dtype, runs=True)
        if is_shared:
            self.cast[name, dtype] = made
        self.weight_casts += is_weight
        self.activation_casts += not is_weight
        return made

    def with_inputs(self, node: Node, dtype: DataType, *, first_only: bool = False) -> Node:
        """The node behind casts of its operands to ``dtype``, of all or of the first one."""
        places = node.inputs[:1] if first_only else node.inputs
        inputs = (*(self.as_type(node, name, dtype) for name in places), *node.inputs[len(places) :])
        return node if inputs == node.inputs else replace(node, inputs=inputs)

    def finish(self, node: Node, dtype: DataType | None) -> None:
        """Appends a node whose plain results are of ``dtype`` (None: as they were)."""
        self.nodes.append(node)
        if dtype is not None:
            for name in node.outputs:
                self.retype(name, dtype)


_CASTS: Mapping[tuple[DataType, bool], Mapping[str, Attribute]] = {
    (dtype, kept): {"to": dtype.onnx_code, **({KEPT_FOR_THE_RUN: 1} if kept else {})}
    for dtype in PLAIN
    for kept in (False, True)
}


def autocast(graph: InferredGraph, low: DataType, *, runtime: str, in_training: bool = False) -> InferredGraph:
    """``graph``, recognised and in float32, as PyTorch runs it under ``torch.autocast("cuda", low)``.

    An activation is cast for every operator that needs it in another type. So it is compiled for inference, too: the
    normalization before BERT's queries, keys and values writes three casts (PyTorch 2.4.1 and 2.9.1). Only what is
    compiled to be trained has each cast once (``fx_graph_cse`` of AOTAutograd's partitioner). A weight is cast once a
    run: autocast keeps it until its context ends, which is that of one run.
    """
    is_traced = runtime != "eager"
    work = _Recast(
        low=low,
        is_traced=is_traced,
        shares_casts=is_traced and in_training,
        caches_weights=not is_traced,
        values={},
    )
    made = _autocast(graph, work, {}, {})
    said = [
        f"{low.label} by PyTorch's autocast: products run in it",
        f"weights stay in float32 and are cast in every run, once each ({_casts(work.weight_casts)}; --precision "
        f"{'fp16' if low is DataType.FLOAT16 else 'bf16'}-model has them stored in 16 bits)",
        f"{_casts(work.activation_casts)} of activations",
    ]
    if work.wide:
        said.append(f"in float32 by autocast's lists: {_listed(work.wide)}")
    return replace(made, assumptions=(*made.assumptions, "; ".join(said)))


def _casts(count: int) -> str:
    return f"{count:,} cast" if count == 1 else f"{count:,} casts"


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


def _autocast(
    graph: InferredGraph, work: _Recast, outer: Mapping[str, Value], cast: Mapping[tuple[str, DataType], str]
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
        if _is_before_the_run(node, values) and not is_computed(
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


def _is_before_the_run(node: Node, values: Mapping[str, Value]) -> bool:
    """Whether nothing of a node is left to do in a run: its results are constants or known numbers."""
    for name in node.outputs:
        value = values.get(name)
        if value is None or not (value.is_constant or value.data is not None):
            return False
    return True


def _handed_on(declared: Declared, work: _Recast) -> Declared:
    value = work.values.get(declared.name)
    if value is None or value.dtype is not work.low or not work.nodes:
        return declared
    last = next((node for node in reversed(work.nodes) if declared.name in node.outputs), None)
    return declared if last is None else replace(declared, name=work.as_type(last, declared.name, _FP32))


def _as_value(declared: Declared, values: Mapping[str, Value]) -> Declared:
    value = values.get(declared.name)
    if value is None or value.dtype not in PLAIN or declared.dtype is value.dtype:
        return declared
    return replace(declared, dtype=value.dtype)


def _autocast_node(node: Node, work: _Recast, *, keeps_first: bool) -> None:
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
        changed = work.with_inputs(node, _FP32)
        if key not in _BODIES:
            work.wide[node.op_type] += 1
        work.finish(changed, _FP32)
    elif key in _TO_FP32:
        work.wide[node.op_type] += 1
        work.finish(node, _FP32)
    elif key in _WIDEST:
        widest = _widest(node.inputs, work)
        work.finish(node if widest is None else work.with_inputs(node, widest), widest)
    else:
        # a cast between plain types is one that export wrote for a float32 model: .to(x.dtype), which follows, too
        first = keeps_first or key in _AS_FIRST or key in _RESIZING or node.op_type in ("Cast", "CastLike")
        follows = node.inputs[:1] if first else node.inputs
        work.finish(node, _widest(follows, work))


def _divides_a_number(node: Node, work: _Recast) -> bool:
    """``number / tensor`` is a reciprocal in PyTorch (``__rtruediv__``)."""
    if node.op_type != "Div" or node.domain or len(node.inputs) != 2:
        return False
    first = work.values.get(node.inputs[0])
    return first is not None and first.is_constant and first.shape is not None and first.element_count == 1


def _widest(names: tuple[str, ...], work: _Recast) -> DataType | None:
    """The type that plain operands promote to: numbers don't count beside tensors. None: there is no plain operand.

    By ``torch.result_type`` a parameter with a dimension is a tensor, be it of a single element, as a learned scale is.
    """
    numbers = tensors = 0
    for name in names:
        value = work.values.get(name)
        if value is None or value.dtype not in PLAIN or value.kind != "tensor":
            continue
        wide = 2 if value.dtype is _FP32 else 1
        if not value.shape or (value.is_constant and value.element_count == 1 and not _is_parameter(name)):
            numbers = max(numbers, wide)
        else:
            tensors = max(tensors, wide)
    found = tensors or numbers
    return None if not found else (_FP32 if found == 2 else work.low)


def _is_parameter(name: str) -> bool:
    """Whether a constant is a module's parameter, which PyTorch's exporters name by its path (``stem.act.scale``).

    What they make of Python's numbers has names such as ``val_3``, ``onnx::Mul_7`` and ``/stem/Constant_output_0``.
    """
    *path, last = name.split(".")
    return bool(path) and last.isidentifier() and all(part.isidentifier() or part.isdigit() for part in path)


# --- conversions of the whole file ------------------------------------------------------------------------------------


def converted(
    graph: InferredGraph,
    low: DataType,
    *,
    runtime: str,
    keeps_io: bool = True,
    caches: Collection[str] = (),
    by_flag: bool = False,
) -> InferredGraph:
    """``graph`` as a converter or TensorRT's builder makes it 16-bit: weights are converted beforehand.

    ``keeps_io``: inputs and outputs but those of ``caches`` keep their types, with a cast behind or before each; so do
    the operators of a converter's block list. ``by_flag``: TensorRT's builder converts it, not who makes the file.
    """
    blocked = _BLOCKED if runtime == "onnxruntime" else frozenset() if by_flag else _BLOCKED_BY_SCHEMA
    original = graph
    graph = as_precision(graph, low)
    work = _Recast(low=low, is_traced=True, shares_casts=True, caches_weights=False, values=dict(graph.values))
    kept = {item.name for item in (*original.graph.inputs, *original.graph.outputs) if item.name not in caches}
    if not keeps_io:
        kept = set()
    renamed = _cast_inputs(original, kept, work)
    outputs = {name for name in kept if _is_wide(original.values.get(name))}
    for node in graph.graph.nodes:
        if _is_before_the_run(node, work.values):
            work.nodes.append(node)
            continue
        if not renamed.keys().isdisjoint(node.inputs):
            node = replace(node, inputs=tuple(renamed.get(name, name) for name in node.inputs))
        if (node.domain, node.op_type) in blocked:
            _run_wide(node, work)
        else:
            work.nodes.append(node)
    declared_outputs = []
    for declared in graph.graph.outputs:
        if declared.name in outputs and work.is_plain(declared.name) and work.nodes:
            declared_outputs.append(_cast_output(declared, work))
        else:
            declared_outputs.append(declared)
    if by_flag:
        who = "TensorRT's builder flag"
    elif runtime == "tensorrt":
        who = "a conversion of the file as NVIDIA's Model Optimizer's"
    elif low is DataType.FLOAT16:
        who = "ONNX Runtime's float16 conversion"
    else:
        who = "a conversion as ONNX Runtime's for float16, which makes no other type"
    said = [
        f"{low.label} by {who}: weights are converted beforehand, inputs and outputs "
        + ("keep their types" if keeps_io else "too")
        + (", but for keys and values of earlier tokens" if keeps_io and caches else ""),
        f"{_casts(work.activation_casts)} a run",
    ]
    if work.wide:
        said.append(f"in float32 by its block list: {_listed(work.wide)}")
    if by_flag:
        said.append("a layer takes it where that is quicker")
    return replace(
        graph,
        graph=replace(
            graph.graph,
            nodes=tuple(work.nodes),
            outputs=tuple(declared_outputs),
            inputs=tuple(
                stored if stored.name in kept else made
                for stored, made in zip(original.graph.inputs, graph.graph.inputs, strict=True)
            ),
        ),
        values=work.values,
        assumptions=(*graph.assumptions, "; ".join(said)),
    )


def _is_wide(value: Value | None) -> bool:
    return value is not None and value.dtype is _FP32 and value.kind == "tensor"


def _cast_inputs(graph: InferredGraph, kept: Collection[str], work: _Recast) -> dict[str, str]:
    """Casts behind the inputs of ``kept`` that something reads; the names that then stand for them."""
    read = {name for node in graph.graph.nodes for name in node.inputs}
    renamed = {}
    for declared in graph.graph.inputs:
        value = graph.values.get(declared.name)
        if value is None or not _is_wide(value) or declared.name not in kept:
            continue
        work.values[declared.name] = value
        if declared.name in read:
            first = next(node for node in graph.graph.nodes if declared.name in node.inputs)
            renamed[declared.name] = work.as_type(first, declared.name, work.low)
    return renamed


def _cast_output(declared: Declared, work: _Recast) -> Declared:
    last = next((node for node in reversed(work.nodes) if declared.name in node.outputs), work.nodes[-1])
    return replace(declared, name=work.as_type(last, declared.name, _FP32), dtype=_FP32)


def _run_wide(node: Node, work: _Recast) -> None:
    """A node of the block list between casts: to float32 before it, back behind it."""
    work.wide[node.op_type] += 1
    inputs = tuple(
        name if (value := work.values.get(name)) is None or value.is_constant else work.as_type(node, name, _FP32)
        for name in node.inputs
    )
    narrow = [name for name in node.outputs if work.is_plain(name)]
    wide = {name: made_name(name, _FP32.label) for name in narrow}
    work.nodes.append(replace(node, inputs=inputs, outputs=tuple(wide.get(name, name) for name in node.outputs)))
    for name, made in wide.items():
        value = work.values[name]
        work.values[made] = work.typed(value, _FP32, runs=False)
        work.nodes.append(
            Node(
                name=made_name(node.name, "cast", made),
                op_type="Cast",
                version=13,
                inputs=(made,),
                outputs=(name,),
                attributes=_CASTS[work.low, False],
                origins=node.stands_for,
            )
        )
        work.cast[name, _FP32] = made
        work.activation_casts += 1


# --- products and weights ---------------------------------------------------------------------------------------------

_LINEAR = frozenset(
    {
        *(("", name) for name in ("Gemm", "MatMul")),
        *(("neusight", name) for name in ("Linear", "SharedLinear")),
        *(
            ("com.microsoft", name)
            for name in (
                "Attention",
                "FusedGemm",
                "FusedMatMul",
                "FusedMatMulActivation",
                "GemmFastGelu",
                "TransposeMatMul",
            )
        ),
    }
)
"""What multiplies by its second operand."""

_CONVOLUTIONS = frozenset(
    {
        *(("", name) for name in ("Conv", "ConvTranspose")),
        *(("com.microsoft", name) for name in ("FusedConv", "NhwcConv", "NhwcFusedConv")),
    }
)


_EXPERTS = frozenset({("com.microsoft", "MoE")})
"""Mixtures of experts: weights fc1, fc2 and fc3 are inputs 2, 4 and 6."""


def with_weights(
    graph: InferredGraph, weights: DataType, *, convolutions: bool = False, experts: bool = False
) -> InferredGraph:
    """``graph`` with the weights of its linear layers stored as ``weights``, those that nothing else reads.

    ``convolutions``, ``experts``: theirs, too.
    """
    kinds = _LINEAR | (_CONVOLUTIONS if convolutions else frozenset()) | (_EXPERTS if experts else frozenset())
    bodies = {
        key: with_weights(body, weights, convolutions=convolutions, experts=experts)
        for key, body in graph.bodies.items()
    }
    narrow: set[str] = set()
    others: set[str] = {declared.name for declared in graph.graph.outputs}
    for node in graph.graph.nodes:
        places = _weight_places(node, kinds)
        for place, name in enumerate(node.inputs):
            value = graph.values.get(name)
            if place in places and value is not None and value.is_constant and len(value.shape or ()) >= 2:
                narrow.add(name)
            else:
                others.add(name)
    found = {name for name in narrow - others if graph.values[name].dtype in PLAIN}
    if not found:
        return replace(graph, bodies=bodies)
    values = {**graph.values, **{name: replace(graph.values[name], dtype=weights) for name in found}}
    initializers: dict[str, Initializer] = dict(graph.graph.initializers)
    initializers.update((name, replace(initializers[name], dtype=weights)) for name in found if name in initializers)
    return replace(graph, graph=replace(graph.graph, initializers=initializers), values=values, bodies=bodies)


def narrowed_count(before: InferredGraph, after: InferredGraph) -> int:
    """How many weights :func:`with_weights` stores otherwise."""
    own = sum(
        prod(value.shape or ())
        for name, value in after.values.items()
        if (old := before.values.get(name)) is not None and old.dtype is not value.dtype
    )
    return own + sum(narrowed_count(before.bodies[key], body) for key, body in after.bodies.items())


def _weight_places(node: Node, kinds: frozenset[tuple[str, str]]) -> range:
    """Which inputs of a node are weights that a product of ``kinds`` multiplies by, alone or with an epilogue."""
    key, count = (node.domain, node.op_type), len(node.inputs)
    if key == ("neusight", "WithEpilogue"):
        key = (str(node.attributes["product_domain"]), str(node.attributes["product"]))
        count = cast("int", node.attributes["product_inputs"])
    if key not in kinds or count < 2:
        return range(0)
    if key in _EXPERTS:
        return range(2, 7, 2)
    if key == ("neusight", "SharedLinear"):
        return range(1, count)
    return range(1, 2)
