"""Matrix products: MatMul in all its types, Gemm, Einsum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Value
from neusight_onnx.graph.shapes.context import NodeContext, broadcast_shapes
from neusight_onnx.graph.shapes.registry import rule


def matmul_shape(ctx: NodeContext, first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """``(*batch, m, k) @ (*batch, k, n) -> (*batch, m, n)``, vectors as numpy.matmul takes them."""
    if not first or not second:
        raise ctx.error(f"cannot multiply scalars: {ctx.shown()}")
    a = (1, *first) if len(first) == 1 else first
    b = (*second, 1) if len(second) == 1 else second
    if a[-1] != b[-2]:
        ctx.require(False, f"cannot multiply {list(first)} by {list(second)}: {a[-1]} is not {b[-2]} ({ctx.shown()})")
    batch = broadcast_shapes(a[:-2], b[:-2])
    if batch is None:
        ctx.require(False, f"the batches of {list(first)} and {list(second)} do not broadcast ({ctx.shown()})")
        rank = max(len(a), len(b)) - 2
        pick = min if ctx.low_run else max
        x = (1,) * (rank - len(a) + 2) + a[:-2]
        y = (1,) * (rank - len(b) + 2) + b[:-2]
        batch = tuple(q if p == 1 else p if q == 1 else pick(p, q) for p, q in zip(x, y, strict=True))
    rows = () if len(first) == 1 else (a[-2],)
    columns = () if len(second) == 1 else (b[-1],)
    return batch + rows + columns


@rule("MatMul")
def _matmul(ctx: NodeContext) -> Sequence[Value]:
    first, second = ctx.shape(0), ctx.shape(1)
    if len(second) == 2 and len(first) >= 2 and first[-1] == second[0]:
        shape = (*first[:-1], second[1])
    else:
        shape = matmul_shape(ctx, first, second)
    return (ctx.tensor(ctx.dtype(0), shape),)


@rule("MatMulInteger")
def _matmul_integer(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(DataType.INT32, matmul_shape(ctx, ctx.shape(0), ctx.shape(1))),)


@rule("MatMulInteger16", domain="com.microsoft")
def _matmul_integer_16(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(DataType.INT32, matmul_shape(ctx, ctx.shape(0), ctx.shape(1))),)


@rule("Gemm")
@rule("FusedGemm", "GemmFloat8", domain="com.microsoft")
def _gemm(ctx: NodeContext) -> Sequence[Value]:
    """``(m, k) @ (k, n) -> (m, n)``, either operand stored transposed."""
    a, b = ctx.shape(0), ctx.shape(1)
    if len(a) != 2 or len(b) != 2:
        raise ctx.error(f"needs matrices, not {ctx.shown(0, 1)}")
    m, k = (a[1], a[0]) if ctx.integer("transA", 0) else a
    other_k, n = (b[1], b[0]) if ctx.integer("transB", 0) else b
    if k != other_k:
        ctx.require(False, f"cannot multiply {ctx.shown(0, 1)}: {k} is not {other_k}")
    if ctx.node.op_type == "Gemm" and ctx.has(2) and broadcast_shapes((m, n), ctx.shape(2)) != (m, n):
        ctx.require(False, f"{ctx.shown(2)} does not broadcast to its result {[m, n]}")
    dtype = ctx.dtype(0) if ctx.node.op_type != "GemmFloat8" else ctx.type_attribute("dtype", DataType.FLOAT32)
    return (ctx.tensor(dtype, (m, n)),)


@rule("Einsum")
def _einsum(ctx: NodeContext) -> Sequence[Value]:
    """Letters name dimensions; "..." stands for leading ones that broadcast; absent output: letters that occur once."""
    equation = ctx.text("equation", "").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(ctx.inputs):
        raise ctx.error(f"its equation {equation} names {len(terms)} operands, it has {len(ctx.inputs)}")
    sizes: dict[str, int] = {}
    ellipsis: tuple[int, ...] = ()
    for index, term in enumerate(terms):
        shape = ctx.shape(index)
        before, dots, behind = term.partition("...")
        hidden = len(shape) - len(before) - len(behind)
        if hidden < 0 or (hidden and not dots):
            raise ctx.error(f"its equation {equation} does not fit {ctx.shown()}")
        if dots:
            joined = broadcast_shapes(ellipsis, shape[len(before) : len(before) + hidden])
            if joined is None:
                raise ctx.error(f"the dimensions behind ... in {equation} do not broadcast: {ctx.shown()}")
            ellipsis = joined
        letters = before + behind
        for letter, size in zip(letters, shape[: len(before)] + shape[len(before) + hidden :], strict=True):
            known = sizes.get(letter, 1)
            if known != size and known != 1 and size != 1:
                ctx.require(False, f"'{letter}' in {equation} is both {known} and {size}: {ctx.shown()}")
            sizes[letter] = max(known, size) if known != 0 and size != 0 else 0
    if not arrow:
        letters = left.replace("...", "").replace(",", "")
        once = sorted(letter for letter in set(letters) if letters.count(letter) == 1)
        right = ("..." if "..." in left else "") + "".join(once)
    before, dots, behind = right.partition("...")
    lost = [letter for letter in before + behind if letter not in sizes]
    if lost:
        raise ctx.error(f"the output of its equation {equation} has {lost[0]!r}, which no operand has")
    result = [*(sizes[letter] for letter in before), *(ellipsis if dots else ()), *(sizes[x] for x in behind)]
    return (ctx.tensor(ctx.dtype(0), result),)


@rule("Inverse", domain="com.microsoft")
def _inverse(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.same(),)


@rule("TransposeMatMul", "FusedMatMul", "FusedMatMulActivation", domain="com.microsoft")
def _fused_matmul(ctx: NodeContext) -> Sequence[Value]:
    """MatMul with either operand's last two dimensions swapped, or its batch moved between them."""
    shapes = []
    for index, side in ((0, "A"), (1, "B")):
        shape = ctx.shape(index)
        if len(shape) >= 2:
            order = list(range(len(shape)))
            if ctx.integer(f"transBatch{side}", 0):
                order = [*order[1:-1], order[0], order[-1]]
            if ctx.integer(f"trans{side}", 0):
                order[-1], order[-2] = order[-2], order[-1]
            shape = tuple(shape[axis] for axis in order)
        shapes.append(shape)
    return (ctx.tensor(ctx.dtype(0), matmul_shape(ctx, shapes[0], shapes[1])),)


@rule("SparseToDenseMatMul", domain="com.microsoft")
def _sparse_matmul(ctx: NodeContext) -> Sequence[Value]:
    a, b = ctx.shape(0), ctx.shape(1)
    a = a[::-1] if ctx.integer("transA", 0) else a
    b = (*b[:-2], b[-1], b[-2]) if ctx.integer("transB", 0) else b
    return (ctx.tensor(ctx.dtype(1), matmul_shape(ctx, a, b)),)


@rule("GemmFastGelu", domain="com.microsoft")
def _gemm_fast_gelu(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(ctx.dtype(0), matmul_shape(ctx, ctx.shape(0), ctx.shape(1))),)


@rule("CDist", domain="com.microsoft")
def _distances(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(ctx.dtype(0), (ctx.shape(0)[0], ctx.shape(1)[0])),)


@rule("MatMulFpQ4", domain="com.microsoft")
def _matmul_blob(ctx: NodeContext) -> Sequence[Value]:
    shape = tuple(int(size) for size in np.asarray(ctx.known(2)).ravel().tolist())
    return (ctx.tensor(ctx.dtype(0), matmul_shape(ctx, ctx.shape(0), shape)),)


@rule(
    *("MatMulNBits", "MatMulBnb4", "MatMulNBitsQLoRA", "MatMulPacked"),
    domain="com.microsoft",
)
def _matmul_packed(ctx: NodeContext) -> Sequence[Value]:
    """``(..., k) -> (..., n)``: the packed right operand's true size stands in the attributes."""
    shape = ctx.shape(0)
    n, k = ctx.integer("N", 0), ctx.integer("K", 0)
    if ctx.node.op_type != "MatMulBnb4" or ctx.integer("transB", 1):
        ctx.require(bool(shape) and shape[-1] == k, f"its input {list(shape)} does not end in K = {k}")
    else:
        n, k = k, n
    if ctx.node.op_type == "MatMulNBits":
        _require_blocks(ctx, n, k)
    return (ctx.tensor(ctx.dtype(0), (*shape[:-1], n)),)


_STORED_BITS = (2, 4, 8)


def _require_blocks(ctx: NodeContext, n: int, k: int) -> None:
    """What ONNX Runtime refuses of a MatMulNBits: attributes when a session is made (its CPU provider, 1.32), shapes
    that don't follow from them."""
    bits, size = ctx.integer("bits", 4), ctx.integer("block_size", 0)
    if bits not in _STORED_BITS:
        raise ctx.error(f"its bits are {bits}, not 2, 4 or 8")
    if size < 16 or size & (size - 1):
        raise ctx.error(f"its block_size is {size}, not a power of two of 16 or more")
    blocks = -(-k // size)
    packed = -(-blocks * bits // 8)
    is_packed = not ctx.has(3) or ctx.dtype(3) is DataType.UINT8
    scales = ((n * blocks,), (n, blocks))
    expected: dict[int, tuple[tuple[int, ...], ...]] = {
        1: ((n, blocks, size * bits // 8),),
        2: scales,
        3: ((n * packed,), (n, packed)) if is_packed else scales,
        5: ((n,),),
    }
    if ctx.integer("weight_prepacked", 0):
        del expected[1]
    for place, shapes in expected.items():
        shape = ctx.value(place).shape if ctx.has(place) else None
        if shape is not None:
            wanted = " or ".join(str(list(wanted)) for wanted in shapes)
            ctx.require(
                shape in shapes,
                f"its input {ctx.shown(place)} is not {wanted} (N = {n}, K = {k}, bits = {bits}, block_size = {size})",
            )


@rule("MatMulBlockQuantizedFp8Weight", "MatMulBlockQuantizedFp4Weight", domain="com.microsoft")
def _matmul_block_float(ctx: NodeContext) -> Sequence[Value]:
    return (ctx.tensor(ctx.dtype(0), (*ctx.shape(0)[:-1], ctx.shape(1)[0])),)


@rule("MatMulNBitsMlp", domain="com.microsoft")
def _matmul_packed_mlp(ctx: NodeContext) -> Sequence[Value]:
    shape = ctx.shape(0)
    return (ctx.tensor(ctx.dtype(0), (*shape[:-1], ctx.integer("N", 0))), ctx.same())


@rule("MatMulNBitsQkv", domain="com.microsoft")
def _matmul_packed_qkv(ctx: NodeContext) -> Sequence[Value]:
    lead = ctx.shape(0)[:-1]
    q, kv = ctx.integer("Nq", 0), ctx.integer("Nkv", 0)
    dtype = ctx.dtype(0)
    return (*(ctx.tensor(dtype, (*lead, size)) for size in (q, kv, kv)), ctx.same())
