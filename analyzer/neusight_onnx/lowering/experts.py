"""Mixtures of experts: products over the experts that tokens choose."""

from __future__ import annotations

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Elementwise, GatherScatter, Gemm, Kernel, Movement, Opaque, Softmax, TensorSpec
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.registry import Kernels, Outcome, Unsupported, lowers

FEW_ROWS = 8
"""Rows (tokens times chosen experts) up to which packed weights are multiplied by vectors."""
LEAST_OF_VECTOR = 512
"""Rows and columns of a weight from which on it is multiplied by vectors; below, tiles of matrix units have it."""
MOST_ROUTED_AT_ONCE = 32
"""Experts among which one kernel chooses for a single token and notes what it chose."""
MOST_SORTED_AT_ONCE = 256
"""Tokens that one block sorts by expert; more take three kernels: counts of blocks, their sums, and places."""
"""All four: what onnxruntime-gpu 1.31.1 launched for 1 to 4,096 tokens, 8 to 256 experts and weights of 128 to 2,880
rows and columns, on stand-ins of an A100 and an H100."""


@lowers(
    "MoE",
    "QMoE",
    domain="com.microsoft",
    gives="depends",
    note="gemms over the k chosen experts of each token, chosen independently",
)
def mixture(context: NodeContext) -> Outcome:
    """tokens * k rows in all through fc1 (hidden -> inner), its activation, and fc2 (inner -> hidden).

    Weights of the experts that some token chooses are read once; the rows are spread evenly over those. Tokens are
    taken to choose independently, each expert as often: what a decoder's few tokens leave out isn't read. Around the
    products, as ONNX Runtime's CUDA kernels: scores of the experts, rows sorted by expert and put together, the k
    results of a token added. A gate (fc1 twice as wide, or fc3 beside it) multiplies in a kernel of its own. MoE joins
    an fc3 to fc1 by copies of both, expert by expert, in every run. Few rows times weights of integers or FP4 are
    products by vectors, which take rows from where they are and gate, where gates and values alternate; those of
    integers add the results.
    """
    if (reason := _refused(context)) is not None:
        return Unsupported(reason=f"{REFUSED_BY_PROVIDER}{reason}")
    quantised = context.node.op_type == "QMoE"
    source = context.spec(0)
    hidden = source.shape[-1]
    tokens = source.element_count // max(hidden, 1)
    chosen = context.integer("k", 1)
    rows = tokens * chosen
    fc1, fc2, fc3 = (2, 5, 8) if quantised else (2, 4, 6)
    wide = _expert_width(context, fc1, _expert_bits(context, fc1, "fc1"), hidden)
    inner = _expert_width(context, fc2, _expert_bits(context, fc2, "fc2"), hidden)
    activation = context.text("activation_type", "relu")
    gated = context.has(fc3) or wide == 2 * inner
    step = {"swiglu": "silu", "geglu": "gelu"}.get(activation, activation)
    stored = context.shape(fc1)[0]
    joined = context.has(fc3) and not quantised
    format_ = context.text("quant_type", "int") if quantised else ""
    by_vector = rows <= FEW_ROWS and not context.dtype(fc1).is_float and format_ in ("int", "fp4")
    alternating = activation == "swiglu" and context.integer("swiglu_fusion", 0) == 1
    gates_inside = by_vector and alternating and min(wide, hidden) >= LEAST_OF_VECTOR
    adds_inside = by_vector and format_ == "int" and min(hidden, inner) >= LEAST_OF_VECTOR

    kernels = [*_routing(context, tokens, stored, rows)]
    if joined:
        size = context.dtype(fc1).bytes_of(inner * hidden)
        copy = Movement(
            operation="copy",
            dtype=context.dtype(fc1),
            shape=(inner, hidden),
            read=size,
            written=size,
            run=inner * hidden,
        )
        kernels += (copy,) * (2 * stored)
    if not gates_inside:
        kernels.append(
            GatherScatter(
                operation="gather",
                moved=rows * hidden,
                run=hidden,
                dtype=source.dtype,
                index_count=rows,
                index_dtype=DataType.INT32,
            )
        )
    epilogue = (step, "mul") if gates_inside else () if gated else (activation,)
    experts = _chosen_experts(stored, tokens, chosen)
    first_type, second_type = _expert_weights(context, fc1, "fc1"), _expert_weights(context, fc2, "fc2")
    columns = 2 * inner if joined else wide
    kernels += _expert_products(context, fc1, rows, experts, columns, hidden, first_type, epilogue)
    if context.has(fc3) and not joined:
        kernels += _expert_products(
            context, fc3, rows, experts, inner, hidden, _expert_weights(context, fc3, "fc3"), ()
        )
    if gated and not gates_inside:
        one = TensorSpec(dtype=source.dtype, shape=(rows, inner))
        kernels.append(Elementwise(operations=(step, "mul"), inputs=(one, one), output=one))
    kernels += _expert_products(
        context, fc2, rows, experts, hidden, inner, second_type, ("mul", "broadcast_add") if adds_inside else ()
    )
    if not adds_inside:
        results = TensorSpec(dtype=source.dtype, shape=(rows, hidden))
        steps = ("mul", "add") * (chosen - 1) + ("mul",)
        kernels.append(Elementwise(operations=steps, inputs=(results,), output=context.out()))
    return Kernels(kernels=tuple(kernels))


REFUSED_BY_PROVIDER = "ONNX Runtime's CUDA provider takes no "
"""How the reason of a node begins that makes ONNX Runtime refuse the model."""


def _refused(context: NodeContext) -> str | None:
    """What of a mixture the runtime refuses, as follows "takes no"; None where it takes it."""
    runtime, op_type = context.executor, context.node.op_type
    activation = context.text("activation_type", "relu")
    if activation in runtime.lacks_activations:
        return f"{op_type} with the activation {activation}"
    if op_type != "QMoE" or not context.has(8) or runtime.gates_apart == "all":
        return None
    in_blocks = context.text("quant_type", "int") == "fp8" and context.integer("block_size", 0) > 0
    if in_blocks and runtime.gates_apart == "blocks":
        return None
    but = ", but for FP8 in blocks" if runtime.gates_apart == "blocks" else ""
    return f"QMoE with fc3_experts_weights{but}: they are joined to fc1's"


def _routing(context: NodeContext, tokens: int, experts: int, rows: int) -> list[Kernel]:
    """Scores of (tokens, experts), and the tokens' choices sorted by expert: an index a row, and where each begins."""
    scores = context.spec(1)
    choice = Softmax(rows=tokens, cols=scores.shape[-1], dtype=scores.dtype)
    integers = context.node.op_type == "QMoE" and context.text("quant_type", "int") == "int"
    if integers and tokens == 1 and experts <= MOST_ROUTED_AT_ONCE:
        return [choice]
    index_bytes = DataType.INT32.bytes_of(rows)
    sort = Opaque(
        operation="sort_by_expert",
        operation_count=rows * experts,
        dtype=DataType.INT32,
        read=index_bytes,
        written=2 * index_bytes,
    )
    return [choice, *(sort,) * (1 if tokens <= MOST_SORTED_AT_ONCE else 3)]


def _expert_width(context: NodeContext, place: int, bits: int, hidden: int) -> int:
    """The dimension of an expert's weights that isn't the hidden one; their last dimension may be packed."""
    weights = context.spec(place)
    return 8 * weights.byte_count // bits // max(weights.shape[0] * hidden, 1)


def _chosen_experts(stored: int, tokens: int, chosen: int) -> int:
    """How many of the experts some token chooses, as expected where each token takes ``chosen`` of them by chance."""
    left_out = (1 - min(chosen / max(stored, 1), 1)) ** tokens
    return max(round(stored * (1 - left_out)), 1)


def _expert_products(
    context: NodeContext,
    place: int,
    rows: int,
    experts: int,
    n: int,
    k: int,
    weight: DataType,
    epilogue: tuple[str, ...],
) -> list[Gemm]:
    """``rows`` spread over ``experts``, (m, k) @ (k, n) each, in one grouped product: a block takes a tile of whichever
    expert, so that experts with a row more wait for no others. Empty where there are no rows.

    Of the scales, zero points and biases the experts that have rows read their share.
    """
    quantised = context.node.op_type == "QMoE"
    dtype = context.dtype(0)
    stored = context.shape(place)[0]
    batch = min(experts, rows)
    bias = place + 2 if quantised else place + 1
    beside = [bias]
    if quantised:
        beside += [place + 1, {2: 11, 5: 12, 8: 13}[place]]
    extra = sum(context.spec(index).byte_count for index in beside if context.has(index))
    steps = ("broadcast_add", *epilogue) if context.has(bias) else epilogue
    if not batch:
        return []
    return [
        Gemm(
            batch=batch,
            m=-(-rows // batch),
            n=n,
            k=k,
            b_is_weight=True,
            dtype=dtype,
            b_dtype=None if weight is dtype else weight,
            epilogue=steps,
            extra_read_bytes=extra * batch // stored,
            uneven_rows=rows if rows % batch else None,
        )
    ]


def _expert_bits(context: NodeContext, place: int, name: str) -> int:
    """Bits of an expert's weight: ``expert_weight_bits`` of integers, which are packed into bytes, else as stored."""
    stored = context.dtype(place)
    if context.node.op_type != "QMoE" or stored.is_float:
        return stored.bits
    return context.integer(f"{name}_expert_weight_bits", 0) or context.integer("expert_weight_bits", 4)


def _expert_weights(context: NodeContext, place: int, name: str) -> DataType:
    """The type of experts' weights; 3 bits, for which there is none, are read as 4."""
    stored, bits = context.dtype(place), _expert_bits(context, place, name)
    return (
        stored if bits == stored.bits else {2: DataType.UINT2, 3: DataType.UINT4, 4: DataType.UINT4}.get(bits, stored)
    )
