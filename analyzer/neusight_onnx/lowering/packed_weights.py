"""Operators whose weights are packed in 2 to 8 bits and multiplied by floats: bytes at the true bit width."""

from __future__ import annotations

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Elementwise, GatherScatter, Gemm, Normalization, TensorSpec
from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.quantized_parameters import parameter_bytes
from neusight_onnx.lowering.registry import Kernels, Outcome, lowers

PACKED = {2: DataType.UINT2, 4: DataType.UINT4, 8: DataType.UINT8, 16: DataType.UINT16}


@lowers("MatMulNBits", domain="com.microsoft", gives="gemm", note="weights of 2, 4 or 8 bits, scales a block")
def matmul_nbits(context: NodeContext) -> Outcome:
    """A (..., k) @ B, stored as (n, blocks, bytes): n * k weights of ``bits`` bits, the last block padded."""
    k, n = context.integer("K", 1), context.integer("N", 1)
    out = context.out()
    packed = PACKED.get(context.integer("bits", 4), DataType.UINT8)
    # a last block that is padded
    beyond = max(context.spec(1).byte_count - packed.bytes_of(n * k), 0)
    kernel = Gemm(
        m=out.element_count // max(n, 1),
        n=n,
        k=k,
        transpose_b=True,
        b_is_weight=True,
        dtype=context.dtype(0),
        b_dtype=packed,
        epilogue=("bias",) if context.has(5) else (),
        extra_read_bytes=parameter_bytes(context, 2, 3, 4) + beyond,
    )
    return Kernels(kernels=(kernel,))


def _narrow(context: NodeContext, m: int, n: int, place: int, epilogue: tuple[str, ...]) -> Gemm:
    """A product with weights of ``bits`` bits; ``place`` is that of their scales."""
    return Gemm(
        m=m,
        n=n,
        k=context.integer("K", 1),
        transpose_b=True,
        b_is_weight=True,
        dtype=context.dtype(0),
        b_dtype=PACKED.get(context.integer("bits", 4), DataType.UINT8),
        epilogue=epilogue,
        extra_read_bytes=parameter_bytes(context, place),
    )


def _skipped_norm(context: NodeContext, rows: int, first_sum: int) -> tuple[Normalization, ...]:
    """The normalization (and the sum before it, perhaps written as output ``first_sum``) in front of the products."""
    if not context.has(2):
        return ()
    cols = context.integer("K", 1)
    norm = Normalization(
        method="rms",
        rows=rows,
        cols=cols,
        parameter_count=cols,
        dtype=context.dtype(0),
        fused=("add",) if context.has(1) else (),
        extra_inputs=(context.spec(1),) if context.has(1) else (),
        extra_outputs=context.other_outputs(first_sum),
    )
    return (norm,)


@lowers("MatMulNBitsQkv", domain="com.microsoft", gives="gemm", note="a normalization and three products")
def narrow_qkv(context: NodeContext) -> Outcome:
    rows = context.spec(0).element_count // max(context.integer("K", 1), 1)
    widths = (context.integer("Nq", 1), context.integer("Nkv", 1), context.integer("Nkv", 1))
    products = tuple(
        _narrow(context, rows, width, place, ("bias",) if context.has(place + 1) else ())
        for width, place in zip(widths, (4, 7, 10), strict=True)
    )
    return Kernels(kernels=(*_skipped_norm(context, rows, 3), *products))


@lowers("MatMulNBitsMlp", domain="com.microsoft", gives="gemm", note="a normalization, two products, gate times value")
def narrow_mlp(context: NodeContext) -> Outcome:
    rows = context.spec(0).element_count // max(context.integer("K", 1), 1)
    width = context.integer("N", 1)
    gate, value = (
        _narrow(context, rows, width, place, ("bias",) if context.has(place + 1) else ()) for place in (4, 7)
    )
    out = context.out()
    joined = Elementwise(operations=(context.text("activation", "silu"), "mul"), inputs=(out, out), output=out)
    return Kernels(kernels=(*_skipped_norm(context, rows, 1), gate, value, joined))


@lowers(
    "MatMulNBitsQLoRA", domain="com.microsoft", gives="gemm", note="the product, and two narrow ones of the adapter"
)
def narrow_adapted(context: NodeContext) -> Outcome:
    rows = context.spec(0).element_count // max(context.integer("K", 1), 1)
    width, rank = context.integer("N", 1), context.shape(3)[0]
    small = PACKED.get(context.integer("lora_bits", 4), DataType.UINT8)
    dtype = context.dtype(0)
    down = Gemm(
        m=rows,
        n=rank,
        k=context.integer("K", 1),
        transpose_b=True,
        b_is_weight=True,
        dtype=dtype,
        b_dtype=small,
        extra_read_bytes=parameter_bytes(context, 4),
    )
    up = Gemm(
        m=rows,
        n=width,
        k=rank,
        transpose_b=True,
        b_is_weight=True,
        dtype=dtype,
        b_dtype=small,
        epilogue=("add",),
        extra_read_bytes=parameter_bytes(context, 6),
    )
    return Kernels(kernels=(_narrow(context, rows, width, 2, ()), down, up))


@lowers("MatMulBnb4", "MatMulFpQ4", domain="com.microsoft", gives="gemm", note="weights of 4 bits")
def matmul_four_bits(context: NodeContext) -> Outcome:
    out = context.out()
    k = context.integer("K", context.shape(0)[-1])
    n = context.integer("N", out.shape[-1])
    kernel = Gemm(
        m=out.element_count // max(n, 1),
        n=n,
        k=k,
        transpose_b=True,
        b_is_weight=True,
        dtype=context.dtype(0),
        b_dtype=DataType.UINT4,
        extra_read_bytes=parameter_bytes(context, 2),
    )
    return Kernels(kernels=(kernel,))


@lowers("MatMulBlockQuantizedFp4Weight", "MatMulBlockQuantizedFp8Weight", domain="com.microsoft", gives="gemm")
def matmul_float_blocks(context: NodeContext) -> Outcome:
    out = context.out()
    n = out.shape[-1]
    four = "Fp4" in context.node.op_type
    kernel = Gemm(
        m=out.element_count // max(n, 1),
        n=n,
        k=context.shape(0)[-1],
        transpose_b=True,
        b_is_weight=True,
        dtype=context.dtype(0),
        b_dtype=DataType.FLOAT4E2M1 if four else DataType.FLOAT8E4M3FN,
        extra_read_bytes=parameter_bytes(context, 2, 3),
    )
    return Kernels(kernels=(kernel,))


@lowers("GatherBlockQuantized", domain="com.microsoft", gives="gather_scatter", note="rows at their true bit width")
def gather_blocks(context: NodeContext) -> Outcome:
    out, places = context.out(), context.spec(1)
    bits = context.integer("bits", 4)
    packed = PACKED.get(bits, DataType.UINT8)
    gathered = GatherScatter(
        operation="embedding",
        moved=out.element_count,
        run=out.shape[-1] if out.shape else 1,
        dtype=packed,
        index_count=places.element_count,
        index_dtype=places.dtype,
    )
    values = TensorSpec(dtype=packed, shape=out.shape)
    block = max(context.integer("block_size", 128), 1)
    parameters = (-(-out.element_count // block),)
    read = [values, TensorSpec(dtype=out.dtype, shape=parameters)]
    if context.has(3):
        read.append(TensorSpec(dtype=packed, shape=parameters))
    widened = Elementwise(operations=("dequantize",), inputs=tuple(read), output=out)
    return Kernels(kernels=(gathered, widened))
