"""Attention that PyTorch has no fused kernel for: which calls, on which GPUs, and what is launched (torch 2.9.1 on
stand-ins for CUDA's libraries, benchmarks/evidence/attention_kernels.md)."""

from __future__ import annotations

import pytest

from graphs import inferred
from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Attention, Gemm, NodeWork, TensorSpec
from neusight_onnx.lowering import lower_laid_out
from neusight_onnx.lowering.attention.formula import by_formula_on, has_fused_kernel
from neusight_onnx.runtime import get_runtime

F16, BF16, F32, F64 = DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32, DataType.FLOAT64
EAGER = get_runtime("eager")


def call(dtype: DataType, *, d: int = 64, v: int | None = None, groups: int = 8, masked: bool = False) -> Attention:
    mask = TensorSpec(dtype=dtype, shape=(2, 1, 256, 512)) if masked else None
    return Attention(b=2, h=8, g=groups, s=256, t=512, d=d, v=d if v is None else v, mask=mask, dtype=dtype)


@pytest.mark.parametrize(
    ("kernel", "turing", "ampere"),
    [
        pytest.param(call(F16), True, True, id="float16"),
        pytest.param(call(F16, groups=2), False, True, id="float16, grouped keys"),
        pytest.param(call(F16, groups=2, masked=True), False, False, id="float16, grouped keys, a mask"),
        pytest.param(call(F16, d=36), False, True, id="float16, heads of 36 (padded)"),
        pytest.param(call(F16, d=36, masked=True), False, False, id="float16, heads of 36, a mask"),
        pytest.param(call(F16, d=260), False, False, id="float16, heads of 260"),
        pytest.param(call(F16, d=264), True, True, id="float16, heads of 264"),
        pytest.param(call(F16, d=64, v=32), True, True, id="float16, values narrower than keys"),
        pytest.param(call(F32, d=36, masked=True), True, True, id="float32, heads of 36, a mask"),
        pytest.param(call(F32, d=34), True, False, id="float32, heads of 34"),
        pytest.param(call(F32, groups=2), False, False, id="float32, grouped keys"),
        pytest.param(call(F64), False, False, id="float64"),
    ],
)
def test_which_calls_have_a_fused_kernel(kernel: Attention, turing: bool, ampere: bool) -> None:
    assert [has_fused_kernel(kernel, EAGER, capability=capability) for capability in (7.0, 7.5)] == [turing] * 2
    assert [has_fused_kernel(kernel, EAGER, capability=capability) for capability in (8.0, 9.0, None)] == [ampere] * 3


def named(kernel: object) -> str:
    operation = getattr(kernel, "operation", None) or "+".join(getattr(kernel, "operations", ()))
    return operation or type(kernel).__name__


SAFE = ["Softmax", "eq", "and", "fill", "where"]
SELECTED = ["fill", "fill", "where"]


@pytest.mark.parametrize(
    ("nodes", "kinds", "types", "launched"),
    [
        pytest.param(
            "y = Attention(q, k, v, m)",
            {"m": (2, 1, 16, 24)},
            {"q": F16, "k": F16, "v": F16, "m": F16},
            ["cast"] * 3 + ["mul", "mul", "Gemm", "add", *SAFE, "cast", "Gemm", "cast"],
            id="heads of 36 and a mask",
        ),
        pytest.param(
            "y = Attention(q, k, v, m)",
            {"m": (2, 1, 16, 24), "k": (2, 4, 24, 36), "v": (2, 4, 24, 36)},
            {"q": F16, "k": F16, "v": F16, "m": DataType.BOOL},
            ["cast"] * 3 + ["mul", "expand", "expand", "mul", "Gemm", *SELECTED, "add", *SAFE, "cast", "Gemm", "cast"],
            id="grouped keys and a mask of truth values",
        ),
        pytest.param(
            "a = Transpose<perm=[0,2,1,3]>(qs)\nb = Transpose<perm=[0,2,1,3]>(ks)\nc = Transpose<perm=[0,2,1,3]>(vs)\n"
            "y = Attention<is_causal=1>(a, b, c)",
            {"qs": (2, 16, 8, 34), "ks": (2, 16, 8, 34), "vs": (2, 16, 8, 34)},
            {},
            ["mul", "mul", "copy", "copy", "Gemm", "fill", "copy", *SELECTED, "add", *SAFE, "copy", "Gemm"],
            id="FP32, permuted heads of 34, causal",
        ),
        pytest.param(
            "y = Attention(q, k, v, m)",
            {"q": (2, 8, 16, 64), "k": (2, 8, 24, 64), "v": (2, 8, 24, 64), "m": (2, 1, 16, 24)},
            {"q": F16, "k": F16, "v": F16, "m": DataType.BOOL},
            [*SELECTED, "Attention"],
            id="one kernel behind a mask of truth values",
        ),
        pytest.param(
            "y = Attention(q, k, v)",
            {},
            dict.fromkeys("qkv", F16),
            ["fill", "copy"] * 3 + ["Attention"],
            id="one kernel of padded heads",
        ),
    ],
)
def test_launches(
    nodes: str, kinds: dict[str, tuple[int, ...]], types: dict[str, DataType], launched: list[str]
) -> None:
    inputs = {"q": (2, 8, 16, 36), "k": (2, 8, 24, 36), "v": (2, 8, 24, 36)} | kinds
    used = {name: shape for name, shape in inputs.items() if f"({name}" in nodes or f", {name}" in nodes}
    numbers = {F16: 10, DataType.BOOL: 9}
    graph = inferred(nodes, used, types={name: numbers[dtype] for name, dtype in types.items()}, opset=23)
    works = lower_laid_out(graph, runtime="eager").works
    assert [named(kernel) for work in works for kernel in work.kernels if work.op_type == "Attention"] == launched


def test_a_gpu_before_ampere_computes_grouped_keys_by_the_formula() -> None:
    """In FP32, with copies of permuted queries; keys and values, repeated for the heads, lie dense."""
    works = [NodeWork(node="a", op_type="Attention", kernels=(call(F16, groups=2),))]
    assert by_formula_on(works, EAGER, 8.0) is works
    (work,) = by_formula_on(works, EAGER, 7.5)
    assert [named(kernel) for kernel in work.kernels] == [
        *["cast"] * 3,
        *["mul", "expand", "expand", "mul", "copy", "Gemm"],
        *[*SAFE, "cast", "Gemm", "cast"],
    ]
    assert {kernel.dtype for kernel in work.kernels if isinstance(kernel, Gemm)} == {F32}
    queries, keys = work.kernels[:2]
    assert (queries.read_bytes, keys.read_bytes) == (2 * 2 * 8 * 256 * 64, 2 * 2 * 2 * 512 * 64)


@pytest.mark.parametrize(
    ("dtype", "d", "permuted", "copies"),
    [
        pytest.param(F16, 64, True, 0, id="FlashAttention of permuted heads"),
        pytest.param(F16, 64, False, 1, id="FlashAttention of dense heads"),
        pytest.param(F16, 36, True, 1, id="FlashAttention of padded heads"),
        pytest.param(F32, 64, False, 0, id="memory-efficient"),
    ],
)
def test_the_order_of_the_result(dtype: DataType, d: int, permuted: bool, copies: int) -> None:
    """FlashAttention writes in the order of the queries (strides of torch 2.9.1 on stand-ins)."""
    heads = "q = Transpose<perm=[0,2,1,3]>(x)\n" if permuted else "q = Identity(x)\n"
    nodes = heads + "y = Attention(q, q, q)\nt = Transpose<perm=[0,2,1,3]>(y)\nz = Reshape(t, merged)"
    shape = (2, 16, 8, d) if permuted else (2, 8, 16, d)
    types = {"x": 10} if dtype is F16 else {}
    graph = inferred(nodes, {"x": shape}, constants={"merged": [2, 16, 8 * d]}, types=types, opset=23)
    works = lower_laid_out(graph, runtime="eager").works
    assert sum(len(work.kernels) for work in works if work.op_type in ("Transpose", "Reshape")) == copies
