"""Matrix products: MatMul, Gemm and their fused and contributed forms."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import cast

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Conv, Elementwise, Gemm, Kernel, Movement
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.matrix_operands import Operand, is_cast_weight, is_weight, operand_of
from neusight_onnx.lowering.registry import RULES, Kernels, Outcome, lowers
from neusight_onnx.strides import expand_strides, view_strides


def product(context: NodeContext, *, linear: bool = False, epilogue: tuple[str, ...] = ()) -> tuple[Kernel, ...]:
    """``numpy.matmul`` of inputs 0 and 1: copies that strides make necessary, then the Gemm.

    A right operand of rank 2 takes the left one's batch into its rows: ``(..., k) @ (k, n) -> (m, k) @ (k, n)``.
    Elsewhere ``(b, m, k) @ (b, k, n)``, b being the broadcast product of the leading dimensions.
    ``linear``: the weight is that of PyTorch's Linear, which keeps it as (n, k).
    """
    left, right = context.shape(0), context.shape(1)
    out = context.out()
    k = left[-1]
    m = left[-2] if len(left) > 1 else 1
    n = right[-1] if len(right) > 1 else 1
    dtype = context.dtype(0)
    output_dtype = None if out.dtype is dtype else out.dtype
    weight = is_weight(context, 1)
    if len(right) <= 2 and not (len(left) == 2 and len(right) == 2 and not context.lazy):
        rows = prod(left[:-1])
        folded = operand_of(context, 0)
        if len(left) > 2 and context.lazy and not weight and view_strides(left, folded.strides, (rows, k)) is None:
            return _batched(context, left, right, output_dtype, epilogue)
        transposed, folded = folded.reshaped((rows, k)).for_blas()
        other = operand_of(context, 1)
        stored, other = (other.reshaped((k, n)) if len(right) < 2 else other).for_blas()
        gemm = Gemm(
            m=rows,
            n=n,
            k=k,
            transpose_a=transposed,
            transpose_b=stored or linear,
            b_is_weight=weight,
            b_is_cast_weight=is_cast_weight(context, 1),
            dtype=dtype,
            output_dtype=output_dtype,
            epilogue=epilogue,
        )
        return (*folded.copies, *other.copies, gemm)
    if len(left) <= 2 and len(right) <= 2:
        gemm = Gemm(
            m=m,
            n=n,
            k=k,
            transpose_b=linear,
            b_is_weight=weight,
            b_is_cast_weight=is_cast_weight(context, 1),
            dtype=dtype,
            output_dtype=output_dtype,
            epilogue=epilogue,
        )
        return (gemm,)
    return _batched(context, left, right, output_dtype, epilogue)


def _batched(
    context: NodeContext,
    left: tuple[int, ...],
    right: tuple[int, ...],
    output_dtype: DataType | None,
    epilogue: tuple[str, ...],
) -> tuple[Kernel, ...]:
    first, second = operand_of(context, 0), operand_of(context, 1)
    if len(left) == 1:
        first = Operand((1, *left), (0, *first.strides), first.dtype)
    if len(right) == 1:
        second = Operand((*right, 1), (*second.strides, 1), second.dtype)
    m, k = first.shape[-2:]
    n = second.shape[-1]
    batch_shape = _broadcast(first.shape[:-2], second.shape[:-2])
    batch = prod(batch_shape)
    a_batch, b_batch = prod(first.shape[:-2]), prod(second.shape[:-2])
    copies: tuple[Movement, ...] = ()
    transpose_a = transpose_b = False
    if context.lazy:
        folded = []
        for operand in (first, second):
            shape = (*batch_shape, *operand.shape[-2:])
            strides = expand_strides(operand.shape, operand.strides, shape)
            expanded = Operand(shape, strides, operand.dtype)
            if context.executor.contiguous_stacks:
                expanded = expanded.contiguous()
            folded.append(expanded.reshaped((batch, *operand.shape[-2:])).for_blas())
        (transpose_a, first), (transpose_b, second) = folded
        copies = (*first.copies, *second.copies)
        a_batch = batch if first.copies else min(a_batch, batch)
        b_batch = batch if second.copies else min(b_batch, batch)
    gemm = Gemm(
        batch=batch,
        m=m,
        n=n,
        k=k,
        a_batch=None if a_batch == batch else a_batch,
        b_batch=None if b_batch == batch else b_batch,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        b_is_weight=is_weight(context, 1),
        b_is_cast_weight=is_cast_weight(context, 1),
        dtype=first.dtype,
        output_dtype=output_dtype,
        epilogue=epilogue,
    )
    return (*copies, gemm)


def _broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    rank = max(len(left), len(right))
    left = (1,) * (rank - len(left)) + left
    right = (1,) * (rank - len(right)) + right
    return tuple(b if a == 1 else a for a, b in zip(left, right, strict=True))


@lowers("MatMul", gives="gemm", note="a right operand of rank 2 takes the batch into m")
def matmul(context: NodeContext) -> Outcome:
    # What PyTorch multiplies with a constant matrix behind a batch is a Linear's weight, kept as (n, k).
    linear = context.lazy and len(context.shape(1)) == 2 and (is_weight(context, 1) or is_cast_weight(context, 1))
    return Kernels(kernels=product(context, linear=linear))


@lowers("Linear", domain="neusight", gives="gemm", note="recognised: MatMul and the addition of a constant bias")
def linear(context: NodeContext) -> Outcome:
    """In eager mode rows that don't follow each other in memory get their bias from a kernel of its own, and so do
    layers of more dimensions than the release flattens.

    (aten's ``linear`` flattens what is contiguous and calls ``addmm``; else it is ``matmul``, then ``add_``.)
    """
    rank, flattened = len(context.shape(0)), context.executor.flattens
    apart = context.layout(0) is not None or (flattened is not None and rank > flattened)
    if context.runtime == "eager" and rank > 2 and apart:
        out = context.out()
        add = Elementwise(operations=("add",), inputs=(out, context.spec(2)), output=out)
        return Kernels(kernels=(*product(context, linear=True), add))
    return Kernels(kernels=bias_before(context, product(context, linear=context.lazy, epilogue=("bias",))))


def bias_before(context: NodeContext, kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """Where the runtime writes the bias to all rows of the result first and adds the product to it (beta is 1).

    ONNX Runtime's Gemm spreads it by ``BroadcastBiasKernel``, ``addmm`` of early PyTorch by a copy of what is expanded,
    as today's does for one column or one feature, which cuBLASLt isn't asked for (``addmm_out_cuda_impl``).
    """
    last = kernels[-1]
    if not isinstance(last, Gemm) or last.epilogue[:1] not in (("bias",), ("add",)):
        return kernels
    to_one = context.runtime == "eager" and last.epilogue[:1] == ("bias",) and 1 in (last.n, last.k)
    if not (context.executor.bias_first or to_one):
        return kernels
    out = last.output_dtype or last.dtype
    size = out.bytes_of(last.batch * last.m * last.n)
    vector = last.epilogue[0] == "bias"
    in_pytorch = context.lazy
    spread = Movement(
        operation="bias" if vector and not in_pytorch else "copy",
        dtype=out,
        shape=(last.batch * last.m, last.n),
        read=out.bytes_of(last.n) if vector else size,
        written=size,
        library="" if in_pytorch else "onnxruntime",
    )
    return (*kernels[:-1], spread, replace(last, epilogue=("add", *last.epilogue[1:])))


@lowers("SharedLinear", domain="neusight", gives="gemm", note="recognised: linear layers of one input, as one product")
def shared_linear(context: NodeContext) -> Outcome:
    """x (..., k) by several (k, n): one product with all their columns."""
    source = context.shape(0)
    weights = [context.shape(index) for index in range(1, len(context.inputs))]
    kernel = Gemm(
        m=prod(source[:-1]),
        n=sum(shape[1] for shape in weights),
        k=source[-1],
        b_is_weight=True,
        dtype=context.dtype(0),
        b_dtype=None if context.dtype(1) is context.dtype(0) else context.dtype(1),
        output_dtype=None if context.out().dtype is context.dtype(0) else context.out().dtype,
    )
    return Kernels(kernels=(kernel,))


@lowers("BiasByParts", domain="neusight", gives="elementwise", note="recognised: of queries, keys and values")
def bias_by_parts(context: NodeContext) -> Outcome:
    """x (..., parts * n) + a vector: a kernel a part."""
    parts, out = context.integer("parts", 1), context.out()
    part = replace(out, shape=(prod(out.shape[:-1]), out.shape[-1] // parts))
    kernel = Elementwise(operations=("add",), inputs=(part, replace(part, shape=part.shape[1:])), output=part)
    return Kernels(kernels=(kernel,) * parts)


@lowers(
    "WithEpilogue", domain="neusight", gives="depends", note="recognised: a product and what it applies to its sums"
)
def with_epilogue(context: NodeContext) -> Outcome:
    """The kernel of the product, whose inputs come first, with the epilogue; the other inputs are its operands."""
    count = context.integer("product_inputs", 2)
    inner = replace(
        context,
        node=replace(
            context.node,
            op_type=context.text("product", ""),
            domain=context.text("product_domain", ""),
            inputs=context.node.inputs[:count],
        ),
        inputs=context.inputs[:count],
    )
    outcome = RULES[(inner.node.domain, inner.node.op_type)].function(inner)
    assert isinstance(outcome, Kernels)
    last = outcome.kernels[-1]
    assert isinstance(last, Gemm | Conv)
    steps = cast("tuple[str, ...]", context.node.attributes["epilogue"])
    extra = last.extra_read_bytes
    operands = iter(range(count, len(context.inputs)))
    for step in steps:
        if step in ("add", "bias", "mul"):
            operand = context.spec(next(operands))
            extra += operand.byte_count if step == "mul" else 0  # the others are counted by their names
    kernel = replace(last, epilogue=(*last.epilogue, *steps), extra_read_bytes=extra)
    return Kernels(kernels=(*outcome.kernels[:-1], kernel), layouts=outcome.layouts, host_waits=outcome.host_waits)


@lowers("Gemm", gives="gemm", note="in onnxruntime the bias is written to all rows before")
def gemm(context: NodeContext) -> Outcome:
    return Kernels(kernels=bias_before(context, gemm_kernels(context, ())))


@lowers("FusedGemm", domain="com.microsoft", gives="gemm")
def fused_gemm(context: NodeContext) -> Outcome:
    activation = context.text("activation", "").lower()
    return Kernels(kernels=gemm_kernels(context, (activation,) if activation else ()))


def gemm_kernels(context: NodeContext, activation: tuple[str, ...]) -> tuple[Kernel, ...]:
    """A' (m, k) @ B' (k, n) (+ C, unidirectionally broadcast)."""
    first, second = operand_of(context, 0), operand_of(context, 1)
    copies: tuple[Movement, ...] = ()
    stored_a = stored_b = False
    if context.lazy:
        stored_a, first = first.for_blas()
        stored_b, second = second.for_blas()
        copies = (*first.copies, *second.copies)
    swap_a, swap_b = context.integer("transA", 0) == 1, context.integer("transB", 0) == 1
    m, k = reversed(first.shape) if swap_a else first.shape
    n = second.shape[0] if swap_b else second.shape[1]
    epilogue: tuple[str, ...] = ()
    extra = 0
    if context.has(2) and context.real("beta", 1.0) != 0.0:
        bias = context.spec(2)
        if bias.element_count == n and (not bias.shape or bias.shape[-1] == n):
            epilogue = ("bias",)
        elif bias.element_count == m * n:
            epilogue = ("add",)
        else:
            epilogue, extra = ("broadcast_add",), bias.byte_count
    kernel = Gemm(
        m=m,
        n=n,
        k=k,
        transpose_a=swap_a != stored_a,
        transpose_b=swap_b != stored_b,
        b_is_weight=is_weight(context, 1),
        b_is_cast_weight=is_cast_weight(context, 1),
        dtype=context.dtype(0),
        b_dtype=None if context.dtype(1) is context.dtype(0) else context.dtype(1),
        output_dtype=None if context.out().dtype is context.dtype(0) else context.out().dtype,
        epilogue=(*epilogue, *activation),
        extra_read_bytes=extra,
    )
    return (*copies, kernel)


@lowers("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation", domain="com.microsoft", gives="gemm")
def fused_matmul(context: NodeContext) -> Outcome:
    """``transA``/``B`` swap the last two dimensions, ``transBatchA``/``B`` move the first one before the last."""
    shapes = []
    for index, flag, batch_flag in ((0, "transA", "transBatchA"), (1, "transB", "transBatchB")):
        shape = context.shape(index)
        if context.integer(batch_flag, 0) and len(shape) > 2:
            shape = (*shape[1:-1], shape[0], shape[-1])
        if context.integer(flag, 0) and len(shape) > 1:
            shape = (*shape[:-2], shape[-1], shape[-2])
        shapes.append(shape)
    activation = context.text("activation", "").lower()
    kernel = matmul_dims(
        shapes[0],
        shapes[1],
        dtype=context.dtype(0),
        transpose_a=context.integer("transA", 0) == 1,
        transpose_b=context.integer("transB", 0) == 1,
        b_is_weight=is_weight(context, 1),
        epilogue=(activation,) if activation else (),
    )
    return Kernels(kernels=(kernel,))


def matmul_dims(
    left: tuple[int, ...],
    right: tuple[int, ...],
    *,
    dtype: DataType,
    transpose_a: bool = False,
    transpose_b: bool = False,
    b_is_weight: bool = False,
    epilogue: tuple[str, ...] = (),
    b_dtype: DataType | None = None,
    output_dtype: DataType | None = None,
    extra_read_bytes: int = 0,
) -> Gemm:
    """The Gemm of ``numpy.matmul`` for contiguous operands of these shapes."""
    k = left[-1]
    n = right[-1] if len(right) > 1 else 1
    if len(right) <= 2 and not transpose_a:
        batch, m, a_batch, b_batch = 1, prod(left[:-1]), None, None
    else:
        m = left[-2] if len(left) > 1 else 1
        batch_shape = _broadcast(left[:-2], right[:-2])
        batch = prod(batch_shape)
        a_count, b_count = prod(left[:-2]), prod(right[:-2])
        a_batch = None if a_count == batch else a_count
        b_batch = None if b_count == batch else b_count
    return Gemm(
        batch=batch,
        m=m,
        n=n,
        k=k,
        a_batch=a_batch,
        b_batch=b_batch,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        b_is_weight=b_is_weight,
        dtype=dtype,
        b_dtype=b_dtype,
        output_dtype=output_dtype,
        epilogue=epilogue,
        extra_read_bytes=extra_read_bytes,
    )


@lowers("GemmFastGelu", domain="com.microsoft", gives="gemm")
def gemm_gelu(context: NodeContext) -> Outcome:
    epilogue = ("bias", "gelu_tanh") if context.has(2) else ("gelu_tanh",)
    kernel = matmul_dims(
        context.shape(0),
        context.shape(1),
        dtype=context.dtype(0),
        b_is_weight=is_weight(context, 1),
        epilogue=epilogue,
    )
    return Kernels(kernels=(kernel,))


@lowers("GemmFloat8", domain="com.microsoft", gives="gemm")
def gemm_float8(context: NodeContext) -> Outcome:
    return Kernels(kernels=gemm_kernels(context, ()))


@lowers("SparseToDenseMatMul", "MatMulPacked", domain="com.microsoft", gives="gemm", note="counted as dense")
def dense_matmul(context: NodeContext) -> Outcome:
    kernel = matmul_dims(context.shape(0), context.shape(1), dtype=context.dtype(1), b_is_weight=is_weight(context, 1))
    return Kernels(kernels=(kernel,))


@lowers("RouterGateUpProj", domain="com.microsoft", gives="gemm", note="router, gate and value in one product")
def router_product(context: NodeContext) -> Outcome:
    kernel = matmul_dims(
        context.shape(0),
        context.shape(1),
        dtype=context.dtype(0),
        b_is_weight=is_weight(context, 1),
        epilogue=(context.text("activation", "swiglu"),),
    )
    return Kernels(kernels=(kernel,))


@lowers("CDist", domain="com.microsoft", gives="gemm", note="distances by (a - b)^2 = a^2 - 2ab + b^2")
def pairwise_distance(context: NodeContext) -> Outcome:
    (m, k), n = context.shape(0), context.shape(1)[0]
    kernel = Gemm(m=m, n=n, k=k, transpose_b=True, dtype=context.dtype(0), epilogue=("square", "add_norms", "sqrt"))
    return Kernels(kernels=(kernel,))
