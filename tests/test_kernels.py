"""Kernel classes: work and traffic, worked out by hand."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import (
    KERNEL_CLASSES,
    Attention,
    Conv,
    Elementwise,
    GatherScatter,
    Gemm,
    HostWork,
    Kernel,
    Movement,
    NodeWork,
    Normalization,
    Opaque,
    Pooling,
    Recurrent,
    Reduction,
    Softmax,
    Sort,
    TensorSpec,
    Transfer,
)

F32, F16, I8, I32, I64, U4 = (
    DataType.FLOAT32,
    DataType.FLOAT16,
    DataType.INT8,
    DataType.INT32,
    DataType.INT64,
    DataType.UINT4,
)


def spec(*shape: int, dtype: DataType = F32) -> TensorSpec:
    return TensorSpec(dtype=dtype, shape=shape)


CASES: list[tuple[str, Kernel, int, int, int, int]] = [
    # name, kernel, macs, flops, read, written
    ("gemm", Gemm(m=3, n=5, k=7, dtype=F32), 105, 210, 4 * (21 + 35), 60),
    ("gemm: bias", Gemm(m=3, n=5, k=7, dtype=F32, epilogue=("bias",)), 105, 225, 4 * (21 + 35 + 5), 60),
    ("gemm: added matrix", Gemm(m=3, n=5, k=7, dtype=F32, epilogue=("add",)), 105, 225, 4 * (21 + 35 + 15), 60),
    ("gemm: batch", Gemm(batch=2, m=3, n=5, k=7, dtype=F32), 210, 420, 8 * (21 + 35), 120),
    ("gemm: shared right", Gemm(batch=2, b_batch=1, m=3, n=5, k=7, dtype=F32), 210, 420, 4 * (42 + 35), 120),
    ("gemm: shared left", Gemm(batch=2, a_batch=1, m=3, n=5, k=7, dtype=F32), 210, 420, 4 * (21 + 70), 120),
    (
        "gemm: 4-bit weights",
        Gemm(m=2, n=8, k=16, dtype=F16, b_dtype=U4, extra_read_bytes=12),
        256,
        512,
        2 * 32 + 64 + 12,
        32,
    ),
    ("gemm: int8 to int32", Gemm(m=2, n=4, k=8, dtype=I8, output_dtype=I32), 64, 128, 16 + 32, 32),
    (
        "conv",
        Conv(n=2, c=3, k=8, spatial=(6, 6), out=(4, 4), filter=(3, 3), strides=(1, 1), dilations=(1, 1), dtype=F32),
        2 * 16 * 8 * 3 * 9,
        2 * 2 * 16 * 8 * 3 * 9,
        4 * (2 * 3 * 36 + 8 * 3 * 9),
        4 * 2 * 8 * 16,
    ),
    (
        "conv: depthwise",
        Conv(
            n=1,
            c=8,
            k=8,
            groups=8,
            spatial=(6, 6),
            out=(4, 4),
            filter=(3, 3),
            strides=(1, 1),
            dilations=(1, 1),
            dtype=F32,
        ),
        16 * 8 * 9,
        2 * 16 * 8 * 9,
        4 * (8 * 36 + 8 * 9),
        4 * 8 * 16,
    ),
    (
        "conv: transposed runs over its input",
        Conv(
            n=1,
            c=4,
            k=6,
            groups=2,
            spatial=(5,),
            out=(11,),
            filter=(3,),
            strides=(2,),
            dilations=(1,),
            transposed=True,
            dtype=F32,
        ),
        5 * 4 * 6 // 2 * 3,
        2 * 5 * 4 * 6 // 2 * 3,
        4 * (20 + 6 * 2 * 3),
        4 * 66,
    ),
    (
        "conv: gradient of the input reads the output's",
        Conv(
            n=2,
            c=3,
            k=8,
            spatial=(6, 6),
            out=(4, 4),
            filter=(3, 3),
            strides=(1, 1),
            dilations=(1, 1),
            direction="data",
            dtype=F32,
        ),
        2 * 16 * 8 * 3 * 9,
        2 * 2 * 16 * 8 * 3 * 9,
        4 * (2 * 8 * 16 + 8 * 3 * 9),
        4 * 2 * 3 * 36,
    ),
    (
        "conv: gradient of the weight in the weight's type",
        Conv(
            n=2,
            c=3,
            k=8,
            spatial=(6, 6),
            out=(4, 4),
            filter=(3, 3),
            strides=(1, 1),
            dilations=(1, 1),
            direction="weight",
            dtype=F16,
            weight_dtype=F32,
        ),
        2 * 16 * 8 * 3 * 9,
        2 * 2 * 16 * 8 * 3 * 9,
        2 * (2 * 3 * 36 + 2 * 8 * 16),
        4 * 8 * 3 * 9,
    ),
    (
        "elementwise: broadcast operand read once",
        Elementwise(operations=("add",), inputs=(spec(4, 8, 8), spec(1, 1, 8)), output=spec(4, 8, 8)),
        0,
        256,
        4 * (256 + 8),
        1024,
    ),
    (
        "elementwise: gelu",
        Elementwise(operations=("gelu",), inputs=(spec(10),), output=spec(10)),
        0,
        120,
        40,
        40,
    ),
    ("softmax", Softmax(rows=6, cols=7, dtype=F32), 0, 5 * 42, 168, 168),
    (
        "softmax: mask in half precision",
        Softmax(rows=6, cols=8, dtype=F32, output_dtype=F16, fused=("add",), extra_inputs=(spec(8),)),
        0,
        6 * 48,
        192 + 32,
        96,
    ),
    (
        "layer normalization",
        Normalization(method="layer", rows=3, cols=10, parameter_count=20, dtype=F32),
        0,
        180,
        4 * 50,
        120,
    ),
    ("reduction", Reduction(operation="sum", outputs=4, reduced=9, dtype=F32, output=spec(4)), 0, 36, 144, 16),
    (
        "reduction: 4 x 9 elements are added and multiplied, 4 results added and rooted (2 FLOPs)",
        Reduction(
            operation="sum",
            outputs=4,
            reduced=9,
            dtype=F32,
            output=spec(4),
            fused=("mul",),
            epilogue=("add", "sqrt"),
        ),
        0,
        2 * 36 + 3 * 4,
        144,
        16,
    ),
    (
        "reduction of a softmax: 5 + 1 for each of 4 x 9 elements",
        Reduction(operation="softmax", outputs=4, reduced=9, dtype=F32, output=spec(4), fused=("sum", "concat")),
        0,
        6 * 36,
        144,
        16,
    ),
    (
        "elementwise: moving within a kernel is no arithmetic",
        Elementwise(operations=("cast", "concat", "pad", "tanh"), inputs=(spec(10),), output=spec(10)),
        0,
        60,
        40,
        40,
    ),
    (
        "softmax and what is fused by its own count: 5 + 6",
        Softmax(rows=6, cols=7, dtype=F32, fused=("tanh",)),
        0,
        11 * 42,
        168,
        168,
    ),
    (
        "pooling with indices",
        Pooling(
            operation="max",
            input=spec(1, 2, 6, 6),
            output=spec(1, 2, 3, 3),
            window=4,
            extra_outputs=(spec(18, dtype=I64),),
        ),
        0,
        72,
        288,
        72 + 144,
    ),
    (
        "attention: grouped queries read fewer keys",
        Attention(b=2, h=8, g=2, s=4, t=6, d=16, v=16, dtype=F32),
        2 * 8 * 24 * 32,
        2 * 2 * 8 * 24 * 32 + 5 * 2 * 8 * 24,
        4 * (2 * 8 * 4 * 16 + 2 * 2 * 6 * 32),
        4 * 2 * 8 * 4 * 16,
    ),
    (
        "gather",
        GatherScatter(operation="embedding", moved=60, run=10, dtype=F32, index_count=6, index_dtype=I64),
        0,
        0,
        240 + 48,
        240,
    ),
    (
        "scatter copies its base",
        GatherScatter(operation="scatter", moved=6, run=1, dtype=F32, index_count=6, index_dtype=I64, base=spec(100)),
        0,
        0,
        24 + 48 + 400,
        24 + 400,
    ),
    ("movement", Movement(operation="copy", dtype=F32, shape=(4, 4), read=64, written=64), 0, 0, 64, 64),
    ("sort", Sort(operation="topk", rows=2, cols=16, kept=4, dtype=F32, output_bytes=96), 0, 2 * 16 * 4, 128, 96),
    (
        "lstm steps",
        Recurrent(cell="lstm", steps=10, directions=1, b=2, h=32, gates=4, dtype=F32),
        10 * 2 * 32 * 32 * 4,
        2 * 10 * 2 * 32 * 32 * 4 + 10 * 10 * 2 * 32 * 4,
        4 * (4 * 32 * 32 + 10 * 2 * 32 * 4),
        4 * 10 * 2 * 32,
    ),
    ("opaque", Opaque(operation="fft", operation_count=99, dtype=F32, read=8, written=16), 0, 99, 8, 16),
    ("transfer", Transfer(direction="to_host", dtype=F32, byte_count=64), 0, 0, 64, 64),
    ("host", HostWork(operation="unique", operation_count=9, dtype=F32, read=8, written=16), 0, 9, 8, 16),
]


@pytest.mark.parametrize(
    ("kernel", "macs", "flops", "read", "written"), [row[1:] for row in CASES], ids=[row[0] for row in CASES]
)
def test_work_and_traffic(kernel: Kernel, macs: int, flops: int, read: int, written: int) -> None:
    assert (kernel.macs, kernel.flops, kernel.read_bytes, kernel.write_bytes) == (macs, flops, read, written)


def test_every_class_has_a_case() -> None:
    assert {type(row[1]) for row in CASES} == set(KERNEL_CLASSES)


def counted_pairs(s: int, t: int, causal: bool, window: int | None) -> int:
    """Query i stands at key t - s + i; it sees keys up to itself if causal, the last ``window`` of what it sees."""
    total = 0
    for query in range(s):
        last = min(t - s + query, t - 1) if causal else t - 1
        seen = max(last + 1, 0)
        total += min(seen, window) if window is not None else seen
    return total


@pytest.mark.parametrize("s", [1, 2, 5, 9])
@pytest.mark.parametrize("t", [1, 4, 5, 12])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize("window", [None, 1, 3, 20])
def test_attended_pairs_equal_a_count(s: int, t: int, causal: bool, window: int | None) -> None:
    kernel = Attention(b=1, h=1, g=1, s=s, t=t, d=4, v=4, causal=causal, window=window, dtype=F32)
    assert kernel.pair_count == counted_pairs(s, t, causal, window)


STRIDED = Conv(
    n=2,
    c=6,
    k=8,
    groups=2,
    spatial=(8, 8),
    out=(4, 4),
    filter=(3, 3),
    strides=(2, 2),
    dilations=(1, 1),
    dtype=F32,
)
UP = replace(STRIDED, c=8, k=6, spatial=(4, 4), out=(8, 8), transposed=True)


@pytest.mark.parametrize(
    ("kernel", "product"),
    [
        pytest.param(STRIDED, (2, 2 * 16, 4, 3 * 9), id="forward"),
        # 4 x 9 taps, of which a quarter meets an output: 9
        pytest.param(replace(STRIDED, direction="data"), (2, 2 * 64, 3, 9), id="data"),
        pytest.param(replace(STRIDED, direction="weight"), (2, 4, 3 * 9, 2 * 16), id="weight"),
        pytest.param(UP, (2, 2 * 64, 3, 9), id="transposed-is-the-data-of-the-other-way"),
        pytest.param(replace(UP, direction="data"), (2, 2 * 16, 4, 3 * 9), id="transposed-data"),
        pytest.param(replace(UP, direction="weight"), (2, 4, 3 * 9, 2 * 16), id="transposed-weight"),
        pytest.param(replace(STRIDED, spatial=(0, 8), out=(0, 4), direction="data"), (2, 0, 3, 0), id="nothing"),
    ],
)
def test_implicit_product_of_each_direction(kernel: Conv, product: tuple[int, int, int, int]) -> None:
    assert kernel.implicit_gemm == product
    b, m, n, k = kernel.implicit_gemm
    assert b * m * n * k == kernel.macs


def test_work_by_other_kernels_keeps_all_else() -> None:
    found = Elementwise(operations=("gelu",), inputs=(spec(8),), output=spec(8))
    work = NodeWork(
        node="step",
        op_type="AdamW",
        origins=(("step", "AdamW"),),
        kernels=(found,),
        alternatives=((found,),),
        free="of its own",
        unsupported="of its own",
        count=3,
        branch=("if/then",),
        host_operation=True,
        host_waits=True,
        merged_into="other",
        written=True,
        parts=("part",),
        is_boundary=True,
        phase="optimizer",
        tensors_each=36.0,
        on_host_because="its version",
    )
    defaults = NodeWork(node="", op_type="")
    assert all(getattr(work, each.name) != getattr(defaults, each.name) for each in fields(NodeWork))
    assert work.with_kernels((found, found)) == replace(work, kernels=(found, found))
