"""Readers of measured layers, attention, quantisers and convolutions: rows made here -> kernels."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="needs the learning extra")

import pyarrow as pa
import pyarrow.parquet as pq

import neusight_onnx
from neusight_onnx.data_files import data_folder
from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import DataError
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import (
    Attention,
    Conv,
    Elementwise,
    GatherScatter,
    Gemm,
    Kernel,
    Normalization,
    Reduction,
    TensorSpec,
)
from neusight_onnx.learning.datasets.attention import ATTENTION
from neusight_onnx.learning.datasets.conv import DEEPBENCH, MIOPEN_CONV
from neusight_onnx.learning.datasets.llm_layers import LLM_LAYERS, VIDUR_LAYERS
from neusight_onnx.learning.datasets.parts import Part
from neusight_onnx.learning.datasets.products import AMD_GEMM
from neusight_onnx.learning.datasets.quantize import QUANTIZE
from neusight_onnx.learning.datasets.registry import READERS, read_parts
from neusight_onnx.learning.datasets.training_rows import TRAINED_ATTENTION, implementation_levels, read_attention
from neusight_onnx.predictor import estimate, load_predictors, predictor_for

BF16, FP16, FP8 = DataType.BFLOAT16, DataType.FLOAT16, DataType.FLOAT8E4M3FN
CONTEXT, GENERATION, ENCODER = ATTENTION


def parts_of(folder: Path, file: str, rows: list[dict[str, Any]]) -> list[Part]:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({name: [row[name] for row in rows] for name in rows[0]}), path)
    return read_parts(folder)


def kernels_of(parts: list[Part]) -> list[Kernel]:
    return [kernel for part in parts if part.load is not None for kernel in part.load().kernels]


def attention_row(**values: Any) -> dict[str, Any]:
    row = {
        "gpu": "h100-sxm",
        "framework": "vllm",
        "kernel_source": "fa3",
        "attn_dtype": "bfloat16",
        "kv_cache_dtype": "bfloat16",
        "batch_size": 2,
        "isl": 64,
        "step": 0,
        "num_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "window_size": 0.0,
        "latency_ms": 0.01,
    }
    return {**row, **values}


def measured(kernel: Attention, written: int) -> Attention:
    """The kernel as a repeated one, which finds its keys in L2; ``written``: elements that go to the cache."""
    return replace(kernel, cache_write_elements=written, past_in_l2=True, burst=True)


@pytest.mark.parametrize(
    ("file", "row", "variant", "kernel"),
    [
        pytest.param(
            CONTEXT,
            attention_row(window_size=32.0),
            "vllm, fa3",
            measured(Attention(b=2, h=8, g=2, s=64, t=64, d=128, v=128, causal=True, window=32, dtype=BF16), 65_536),
            id="prefill with a window, the cache written: 2 x 2 x 2 x 64 x 128 elements",
        ),
        pytest.param(
            GENERATION,
            attention_row(isl=1, step=1023, kv_cache_dtype="fp8"),
            "vllm, fa3, fp8 cache",
            measured(Attention(b=2, h=8, g=2, s=1, t=1024, d=128, v=128, causal=True, dtype=BF16, kv_dtype=FP8), 1024),
            id="decode from an FP8 cache: the new token counts as a key",
        ),
        pytest.param(
            CONTEXT,
            attention_row(attn_dtype="fp8", kv_cache_dtype="fp8", framework="sglang"),
            "sglang, fa3",
            measured(Attention(b=2, h=8, g=2, s=64, t=64, d=128, v=128, causal=True, dtype=FP8), 0),
            id="FP8 throughout, by a framework that leaves the cache out",
        ),
        pytest.param(
            CONTEXT,
            attention_row(attn_dtype="fp8", kv_cache_dtype="fp8", framework="trtllm"),
            "trtllm, fa3",
            measured(Attention(b=2, h=8, g=2, s=64, t=64, d=128, v=128, causal=True, dtype=FP8), 196_608),
            id="queries of 8 heads are converted with keys and values of 2: 2 x 12 x 64 x 128 elements",
        ),
        pytest.param(
            ENCODER,
            {k: v for k, v in attention_row().items() if k not in ("step", "kv_cache_dtype", "num_key_value_heads")},
            "vllm, fa3",
            measured(Attention(b=2, h=8, g=8, s=64, t=64, d=128, v=128, dtype=BF16), 0),
            id="encoder: a key head for each query head, all pairs",
        ),
    ],
)
def test_attention(file: str, row: dict[str, Any], variant: str, kernel: Attention, tmp_path: Path) -> None:
    (part,) = parts_of(tmp_path, file, [row])
    assert part.load is not None
    found = part.load()
    assert (part.kernel_class, part.dtype, part.variant) == ("attention", kernel.dtype.label, variant)
    assert found.kernels == (kernel,)
    assert found.operation.tolist() == [Path(file).stem]
    assert found.kernel_name.tolist() == ["fa3"]


def test_kernels_of_attention_are_not_pooled_and_unknown_formats_are_named(tmp_path: Path) -> None:
    rows = [attention_row(kernel_source=name, latency_ms=ms) for name, ms in (("fa2", 1.0), ("fa3", 2.0), ("fa2", 3.0))]
    rows += [attention_row(attn_dtype="int3"), attention_row(latency_ms=0.0)]
    parts = parts_of(tmp_path, CONTEXT, rows)
    assert [(part.variant, part.gpu.size, part.load is None) for part in parts] == [
        ("vllm, fa2", 2, False),
        ("vllm, fa3", 1, False),
        ("vllm, fa3, bfloat16 cache", 1, True),
    ]
    assert parts[2].reason == "no number format of this name: int3, bfloat16"
    assert parts[0].load is not None
    assert parts[0].load(np.array([1])).measured_us.tolist() == [3000.0]


@pytest.mark.parametrize(
    ("file", "values", "variant"),
    [
        pytest.param(CONTEXT, {"kernel_source": "vllm_flash_attn"}, "vllm, vllm_flash_attn", id="prefill"),
        pytest.param(
            GENERATION,
            {"kernel_source": "vllm_flash_attn", "gpu": "a100-sxm-80gb", "isl": 1, "num_key_value_heads": 8},
            "vllm, vllm_flash_attn, keys unsplit",
            id="FlashAttention 2 doesn't split keys of single heads",
        ),
        pytest.param(
            GENERATION,
            {"kernel_source": "vllm_flash_attn", "isl": 1, "num_key_value_heads": 8},
            "vllm, vllm_flash_attn",
            id="3 does",
        ),
        pytest.param(
            GENERATION,
            {"kernel_source": "vllm_flash_attn", "gpu": "no such gpu", "isl": 1, "num_key_value_heads": 8},
            "vllm, vllm_flash_attn",
            id="of an unknown GPU nothing is known",
        ),
        pytest.param(
            GENERATION,
            {"kernel_source": "vllm_flash_attn", "isl": 1, "step": 1023},
            "vllm, vllm_flash_attn, few parts",
            id="one release's 3 leaves SMs idle where few heads have many keys",
        ),
        pytest.param(
            GENERATION,
            {"kernel_source": "vllm_flash_attn", "isl": 1, "step": 1023, "head_dim": 64},
            "vllm, vllm_flash_attn",
            id="not where heads are narrow",
        ),
        pytest.param(
            GENERATION,
            {"kernel_source": "vllm_flash_attn_fa3", "isl": 1, "step": 1023},
            "vllm, vllm_flash_attn_fa3",
            id="the next release's doesn't",
        ),
        pytest.param(
            CONTEXT,
            {"kernel_source": "vllm_flash_attn_fa4", "head_dim": 512},
            "vllm, vllm_flash_attn_fa4, wide heads",
            id="wide heads",
        ),
    ],
)
def test_rows_of_attention_that_stand_apart(file: str, values: dict[str, Any], variant: str, tmp_path: Path) -> None:
    (part,) = parts_of(tmp_path, file, [attention_row(**values)])
    assert part.variant == variant


def test_what_a_predictor_of_attention_is_trained_on(tmp_path: Path) -> None:
    """All three files of one framework, without fallbacks and rows with a fault; the cache's format makes another."""
    context = [
        attention_row(latency_ms=0.01),
        attention_row(latency_ms=0.02, kernel_source="vllm_triton_attn"),
        attention_row(latency_ms=0.03, kernel_source="vllm_flash_attn_fa4"),
        attention_row(latency_ms=0.04, framework="sglang"),
        attention_row(latency_ms=0.05, kv_cache_dtype="fp8"),
        attention_row(latency_ms=0.06, attn_dtype="fp8", kv_cache_dtype="fp8", framework="trtllm"),
    ]
    parts_of(tmp_path, CONTEXT, context)
    parts_of(tmp_path, GENERATION, [attention_row(latency_ms=0.07, isl=1, step=9)])
    encoder = [attention_row(latency_ms=0.08), attention_row(latency_ms=0.09, kernel_source="vllm_vit_flash_attn")]
    parts_of(tmp_path, ENCODER, encoder)
    found = {label: read_attention(tmp_path, label) for label in TRAINED_ATTENTION}
    times = {label: None if rows is None else rows.measured_us.tolist() for label, rows in found.items()}
    assert times == {"bfloat16": [10.0, 70.0, 80.0], "bfloat16+float8e4m3fn": [50.0], "float8e4m3fn": [60.0]}
    rows = found["bfloat16"]
    assert rows is not None
    assert rows.operation.tolist() == ["context", "generation", "encoder"]
    assert rows.session.tolist() == [f"h100-sxm/{name}/all" for name in ("context", "generation", "encoder")]


def test_levels_of_other_frameworks_at_the_same_shapes(tmp_path: Path) -> None:
    """SGLang takes 1.5 times vLLM's time at 20 common shapes, its other kernel has 19.

    TensorRT-LLM's rows, which hold a kernel before, and Triton's don't count.
    """
    sizes = range(1, 21)
    rows = [attention_row(batch_size=b, latency_ms=0.01 * b) for b in sizes]
    rows += [attention_row(batch_size=b, latency_ms=0.015 * b, framework="sglang") for b in (*sizes, 99)]
    rows += [attention_row(batch_size=b, latency_ms=0.03, framework="trtllm") for b in sizes]
    rows += [
        attention_row(batch_size=b, latency_ms=0.03, framework="sglang", kernel_source="fa4") for b in range(1, 20)
    ]
    rows += [attention_row(batch_size=b, latency_ms=0.09, framework="sglang", kernel_source="triton") for b in sizes]
    parts_of(tmp_path, CONTEXT, rows)
    trained = read_attention(tmp_path, "bfloat16")
    assert trained is not None
    assert implementation_levels(tmp_path, trained) == {"h100-sxm": [pytest.approx(np.log(1.5))]}


def test_a_folder_without_a_format_of_attention_has_no_rows_of_it(tmp_path: Path) -> None:
    parts_of(tmp_path, CONTEXT, [attention_row()])
    assert read_attention(tmp_path, "float8e4m3fn") is None


def test_shapes_of_attention_are_one_with_and_without_the_cache_written(tmp_path: Path) -> None:
    names = ("vllm_flash_attn", "fa3")
    parts_of(tmp_path, CONTEXT, [attention_row(kernel_source=name) for name in names])
    rows = read_attention(tmp_path, "bfloat16")
    assert rows is not None
    assert [kernel.write_bytes for kernel in rows.kernels] == [2 * 2 * 64 * 8 * 128 + 2 * 65_536, 2 * 2 * 64 * 8 * 128]
    assert rows.shape_group.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("file", "gpu", "source", "writes"),
    [
        pytest.param(CONTEXT, "a100-sxm-80gb", "vllm_flash_attn", True, id="A100's prompts"),
        pytest.param(CONTEXT, "l40s", "vllm_flash_attn", False, id="L40S's are the earlier release's"),
        pytest.param(CONTEXT, "h100-sxm", "vllm_flash_attn", False, id="so are H100's"),
        pytest.param(GENERATION, "a100-sxm-80gb", "vllm_flash_attn", True, id="A100's decoding"),
        pytest.param(GENERATION, "l40s", "vllm_flash_attn", True, id="L40S's decoding"),
        pytest.param(GENERATION, "l40s", "vllm_flashinfer", True, id="L40S's decoding by FlashInfer"),
        pytest.param(GENERATION, "b200-sxm", "vllm_flashinfer", False, id="B200's is the earlier release's"),
    ],
)
def test_whose_times_hold_the_writing_of_the_cache(
    file: str, gpu: str, source: str, writes: bool, tmp_path: Path
) -> None:
    (part,) = parts_of(tmp_path, file, [attention_row(gpu=gpu, kernel_source=source, num_key_value_heads=2)])
    assert part.load is not None
    (kernel,) = part.load().kernels
    assert isinstance(kernel, Attention)
    assert kernel.cache_write_elements == (2 * 2 * 2 * 64 * 128 if writes else 0)


def vidur_row(op: str, **values: Any) -> dict[str, Any]:
    row = {
        "gpu": "a100-sxm-80gb",
        "dtype": "float16",
        "model": "meta-llama/Llama-2-70b-hf",
        "op": op,
        "num_tokens": 16,
        "tp": 2,
        "n_head": 64,
        "n_kv_head": 8,
        "n_embd": 8192,
        "n_expanded_embd": 28672,
        "gated": True,
        "gemm_m": None,
        "gemm_n": None,
        "gemm_k": None,
        "latency_ms": 0.01,
    }
    return {**row, **values}


def spec(*shape: int, dtype: DataType = FP16) -> TensorSpec:
    return TensorSpec(dtype=dtype, shape=shape)


PHI = {"model": "microsoft/phi-2", "tp": 1, "n_head": 32, "n_kv_head": 32, "n_embd": 2560, "gated": False}


@pytest.mark.parametrize(
    ("row", "kernel"),
    [
        pytest.param(
            vidur_row("mlp_up_proj", gemm_m=16.0, gemm_n=28672.0, gemm_k=8192.0),
            Gemm(m=16, n=28672, k=8192, dtype=FP16, b_is_weight=True, transpose_b=True, repeated=True, burst=True),
            id="projection",
        ),
        pytest.param(
            vidur_row("input_layernorm"),
            Normalization(method="rms", rows=16, cols=8192, parameter_count=8192, dtype=FP16, access="element"),
            id="RMSNorm is not cut among GPUs",
        ),
        pytest.param(
            vidur_row("input_layernorm", **PHI),
            Normalization(method="layer", rows=16, cols=2560, parameter_count=5120, dtype=FP16),
            id="LayerNorm",
        ),
        pytest.param(
            vidur_row("mlp_act"),
            Elementwise(
                operations=("silu", "mul"), inputs=(spec(16, 14336),) * 2, output=spec(16, 14336), access="element"
            ),
            id="gated activation of half the width",
        ),
        pytest.param(
            vidur_row("mlp_act", **PHI, n_expanded_embd=10240),
            Elementwise(operations=("gelu_tanh",), inputs=(spec(16, 10240),), output=spec(16, 10240), access="element"),
            id="GELU",
        ),
        pytest.param(
            vidur_row("attn_rope"),
            Elementwise(
                operations=("mul", "mul", "add"),
                inputs=(spec(16, 36, 128), spec(16, 1, 128)),
                output=spec(16, 36, 128),
                access="element",
            ),
            id="RoPE of 32 query and 4 key heads",
        ),
        pytest.param(
            vidur_row("attn_rope", **PHI),
            Elementwise(
                operations=("mul", "mul", "add"),
                inputs=(spec(16, 64, 32), spec(16, 1, 32)),
                output=spec(16, 64, 32),
                access="element",
            ),
            id="RoPE of 32 of 80 elements",
        ),
        pytest.param(
            vidur_row("add"),
            Elementwise(operations=("add",), inputs=(spec(16, 8192), spec(16, 8192)), output=spec(16, 8192)),
            id="residual",
        ),
        pytest.param(
            vidur_row("emb"),
            GatherScatter(
                operation="embedding",
                moved=16 * 8192,
                run=8192,
                dtype=FP16,
                index_count=16,
                index_dtype=DataType.INT64,
                access="element",
            ),
            id="embedding",
        ),
    ],
)
def test_vidur_layers(row: dict[str, Any], kernel: Kernel, tmp_path: Path) -> None:
    assert kernels_of(parts_of(tmp_path, VIDUR_LAYERS, [row])) == [kernel]


def llm_row(layer: str, profiler: str = "v1 vLLM", **values: float | str | None) -> dict[str, Any]:
    counts = ("tokens", "sequences", "prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    row: dict[str, Any] = dict.fromkeys(counts, float("nan"))
    row |= {"gpu": "rtx-4090", "model": "meta-llama/Llama-3.1-8B", "tp": 2, "layer": layer, "profiler": profiler}
    return {**row, "latency_ms": 0.02, **values}


@pytest.mark.parametrize(
    ("row", "kernel"),
    [
        pytest.param(
            llm_row("qkv_proj", tokens=16.0),
            Gemm(m=16, n=3072, k=4096, dtype=BF16, b_is_weight=True, transpose_b=True),
            id="(32 + 2 x 8) heads of 128 on two GPUs",
        ),
        pytest.param(
            llm_row("down_proj", "v0 layers", tokens=16.0),
            Gemm(m=16, n=4096, k=7168, dtype=BF16, b_is_weight=True, transpose_b=True, repeated=True, burst=True),
            id="product of v0",
        ),
        pytest.param(
            llm_row("expert.w2", "v0 layers", tokens=16.0, model="microsoft/Phi-mini-MoE-instruct"),
            Gemm(m=16, n=4096, k=960, dtype=BF16, b_is_weight=True, transpose_b=True, repeated=True, burst=True),
            id="an expert stays whole on two GPUs",
        ),
        pytest.param(
            llm_row("lm_head", sequences=3.0),
            Gemm(m=3, n=64128, k=4096, dtype=BF16, b_is_weight=True, transpose_b=True),
            id="a token of each sequence",
        ),
        pytest.param(
            llm_row("layernorm", tokens=16.0),
            Normalization(
                method="rms",
                rows=16,
                cols=4096,
                parameter_count=4096,
                dtype=BF16,
                fused=("add",),
                extra_inputs=(spec(16, 4096, dtype=BF16),),
                extra_outputs=(spec(16, 4096, dtype=BF16),),
            ),
            id="RMSNorm with the residual",
        ),
        pytest.param(
            llm_row("attention", prefill_chunk=64.0, kv_prefill=128.0, n_decode=0.0, kv_decode=0.0),
            Attention(b=1, h=16, g=4, s=64, t=192, d=128, v=128, causal=True, dtype=BF16),
            id="prefill behind a cache",
        ),
        pytest.param(
            llm_row("attention", prefill_chunk=0.0, kv_prefill=0.0, n_decode=5.0, kv_decode=128.0),
            Attention(b=5, h=16, g=4, s=1, t=128, d=128, v=128, causal=True, dtype=BF16),
            id="decode",
        ),
    ],
)
def test_llm_layers(row: dict[str, Any], kernel: Kernel, tmp_path: Path) -> None:
    assert kernels_of(parts_of(tmp_path, LLM_LAYERS, [row])) == [kernel]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (llm_row("input_layernorm", "v0 layers", tokens=16.0), "of this profiler only the products are credible"),
        (llm_row("sampler", sequences=16.0), "several kernels in one figure"),
        (llm_row("qkv_proj", tokens=16.0, model="some/other"), "sizes of the model are not known"),
        (
            llm_row("attention", prefill_chunk=8.0, kv_prefill=8.0, n_decode=8.0, kv_decode=8.0),
            "prefill and decode in one figure",
        ),
    ],
    ids=["v0 norm", "sampler", "unknown model", "mixed step"],
)
def test_llm_layers_without_a_kernel(row: dict[str, Any], reason: str, tmp_path: Path) -> None:
    (part,) = parts_of(tmp_path, LLM_LAYERS, [row])
    assert part.load is None
    assert part.reason == reason


def test_parts_that_are_joined_keep_the_order_of_the_rows_asked_for(tmp_path: Path) -> None:
    rows = [llm_row("o_proj", tokens=float(m), tp=tp, latency_ms=m / 1e3) for m, tp in ((1, 1), (2, 2), (3, 1), (4, 2))]
    (part,) = parts_of(tmp_path, LLM_LAYERS, rows)
    assert part.load is not None
    whole = part.load()
    assert [(k.m, k.k) for k in whole.kernels if isinstance(k, Gemm)] == [(1, 4096), (3, 4096), (2, 2048), (4, 2048)]
    some = part.load(np.array([3, 0]))
    assert [k.m for k in some.kernels if isinstance(k, Gemm)] == [4, 1]
    assert some.measured_us.tolist() == [4.0, 1.0]


def quantize_row(kernel: str, framework: str = "TRTLLM", version: str = "1", ms: float = 0.01) -> dict[str, Any]:
    shared = {"gpu": "h100-sxm", "m": 64, "k": 128}
    return {**shared, "kernel": kernel, "framework": framework, "version": version, "latency_ms": ms}


def test_quantisers(tmp_path: Path) -> None:
    """The fastest version counts; what is a difference of two timings isn't judged."""
    rows = [quantize_row("scale_matrix", version=name, ms=ms) for name, ms in (("1", 0.03), ("2", 0.02))]
    rows += [quantize_row("computescale"), quantize_row("computescale", "VLLM")]
    rows = [{**entry, "gpu": "warp-9"} for entry in rows]
    parts = {part.variant: part for part in parts_of(tmp_path, QUANTIZE, rows)}
    assert list(parts) == ["trtllm, computescale", "vllm, computescale", "trtllm, scale_matrix"]
    scale, greatest, missing = (
        parts[name] for name in ("trtllm, scale_matrix", "trtllm, computescale", "vllm, computescale")
    )
    assert scale.load is not None
    assert greatest.load is not None
    assert missing.load is None
    found = scale.load()
    assert found.measured_us.tolist() == [20.0]
    assert found.kernels == (
        Elementwise(operations=("quantize",), inputs=(spec(64, 128, dtype=BF16),), output=spec(64, 128, dtype=FP8)),
    )
    (reduction,) = greatest.load().kernels
    assert isinstance(reduction, Reduction)
    assert (reduction.reduced, reduction.read_bytes, reduction.write_bytes) == (8192, 16384, 4)


def test_quantisers_that_a_replay_keeps_in_the_l2_are_apart(tmp_path: Path) -> None:
    """An H100 has 50 MiB: four of it are 69.9 million elements of 3 bytes, 104.9 million of 2."""
    sizes = {"below": 8192 * 8192, "above": 8192 * 8704}
    rows = [{**quantize_row("scale_matrix"), "m": 8192, "k": size // 8192} for size in sizes.values()]
    rows.append({**quantize_row("computescale"), "m": 8192, "k": 8704})
    found = {part.variant: part.gpu.size for part in parts_of(tmp_path, QUANTIZE, rows)}
    assert found == {
        "trtllm, scale_matrix": 1,
        "trtllm, scale_matrix, replayed in the L2": 1,
        "trtllm, computescale, replayed in the L2": 1,
    }


@pytest.mark.parametrize("gpu", ["h100-sxm", "l40s", "b200-sxm"])
def test_quantisers_take_their_bytes(gpu: str) -> None:
    """None of their kernels is in a fit: every GPU is left out. Measured: 1-5 % on H100, 2-5 on L40S, 7-18 on B200."""
    folder = Path(os.environ.get("NEUSIGHT_SHARED", Path(__file__).parent.parent / ".." / "shared")) / "data"
    if not (folder / QUANTIZE).is_file():
        pytest.skip("no measured quantisers here")
    predictors = load_predictors(data_folder("predictors"))
    judged = 0
    for part in read_parts(folder, (QUANTIZE,)):
        rows = np.flatnonzero(part.gpu == gpu)
        if part.load is None or part.variant not in ("trtllm, scale_matrix", "vllm, scale_matrix") or not rows.size:
            continue
        found = part.load(rows)
        predictor = predictor_for(found.kernels[0], load_gpu(gpu), predictors)
        assert predictor is not None
        answer = estimate(found.kernels, load_gpu(gpu), predictor)
        errors = np.abs(answer.latency_us / found.measured_us - 1.0)
        assert float(np.mean(errors)) < 0.2
        judged += rows.size
    assert judged > 50


def test_tuned_products_are_apart_by_scheme(tmp_path: Path) -> None:
    shared = {"gpu": "mi300x", "b": 1, "m": 16, "n": 32, "k": 64, "latency_ms": 0.01}
    rows = [
        {**shared, "dtype": "bfloat16", "scheme": "bf16_tuned_batched_gemm", "b": 16},
        {**shared, "dtype": "float8_e4m3fnuz", "scheme": "a8w8_blockscale_tuned_gemm_ds_v3"},
        {**shared, "dtype": "float8_e4m3fnuz", "scheme": "a8w8_bpreshuffle_tuned_gemm"},
        {**shared, "dtype": "int8", "scheme": "a8w8_bpreshuffle_tuned_gemm"},
        {**shared, "dtype": "int8", "scheme": "a8w8_tuned_gemm"},
        {**shared, "dtype": "bfloat16", "scheme": "dsv4_bf16_tuned_gemm"},
    ]
    parts = parts_of(tmp_path, AMD_GEMM, rows)
    assert {(part.variant, part.dtype): part.gpu.size for part in parts} == {
        ("tuned", "bfloat16"): 2,
        ("tuned, a scale a block", "float8e4m3fnuz"): 1,
        ("tuned, shuffled weights", "float8e4m3fnuz"): 1,
        ("tuned, shuffled weights", "int8"): 1,
        ("tuned, 8 bits, plain weights", "int8"): 1,
    }
    # composable_kernel's blocks add up the whole reduction: batched products, and FP8
    kernels = [kernel for part in parts if part.load is not None for kernel in part.load().kernels]
    unsplit = {(kernel.dtype.label, kernel.batch) for kernel in kernels if isinstance(kernel, Gemm) and kernel.unsplit}
    assert unsplit == {("bfloat16", 16), ("float8e4m3fnuz", 1)}


def test_int8_of_miopen_judges_nothing(tmp_path: Path) -> None:
    """Its times are a launch's and noise; those in float16 are kernels."""
    row = {"gpu": "mi210", "direction": "fwd", "ndim": 2, "layout": "NCHW", "latency_ms": 0.5, "solver": "GemmFwdRest"}
    row |= {"n": 16, "c": 64, "k": 64, "d": 1, "h": 28, "w": 28, "od": 1, "oh": 28, "ow": 28, "fd": 1, "fh": 3, "fw": 3}
    row |= {"stride": "1x1", "dilation": "1x1", "groups": 1}
    half, int8 = parts_of(tmp_path, MIOPEN_CONV, [{**row, "dtype": "INT8"}, {**row, "dtype": "FP16"}])
    assert (half.dtype, int8.dtype) == ("float16", "int8")
    assert half.load is not None
    assert int8.load is None
    assert int8.reason


def test_deepbench_formats(tmp_path: Path) -> None:
    """FP16 counts where tensor cores multiply; directions are apart; recurrent layers are named, not judged.

    Column-major, the transposed A (64 x 32) is our right operand (32, 64), kept as (64, 32).
    """
    names = ("w", "h", "c", "batch", "s_fw", "r_fh", "pad_w", "pad_h", "stride_w", "stride_h", "m", "n", "k")
    empty: dict[str, Any] = dict.fromkeys(names, float("nan"))
    tensor = "16 bit inputs, 16 bit multiplication, 32 bit addition"
    int8 = "GEMM, Conv: Int8 multiplication, 32 bit accumulation | Sparse Ops, RNN: single precision"
    shared = {**empty, "gpu": "NV V100", "latency_ms": 0.1, "direction": "fwd", "precision": tensor}
    shared |= {"transA": "T", "transB": "N"}
    square = {"w": 14.0, "h": 14.0, "c": 8.0, "batch": 2.0, "s_fw": 3.0, "r_fh": 3.0, "k": 16.0}
    square |= {"pad_w": 1.0, "pad_h": 1.0, "stride_w": 1.0, "stride_h": 1.0}
    rows = [
        {**shared, "op": "gemm", "m": 64.0, "n": 8.0, "k": 32.0},
        {**shared, "op": "gemm", "m": 64.0, "n": 8.0, "k": 32.0, "precision": int8},
        {**shared, "op": "gemm", "m": 64.0, "n": 8.0, "k": 32.0, "precision": "16 bit inputs, 32 bit multiplication"},
        {**shared, **square, "op": "conv"},
        {**shared, **square, "op": "conv", "direction": "bwd_data"},
        {**shared, "op": "rnn_lstm"},
    ]
    parts = parts_of(tmp_path, DEEPBENCH, rows)
    judged = {(part.kernel_class, part.dtype) for part in parts if part.load is not None}
    assert judged == {("gemm", "float16"), ("gemm", "int8"), ("conv", "float16")}
    (products,) = [part.load() for part in parts if part.dtype == "int8" and part.load is not None]
    (product,) = products.kernels
    assert isinstance(product, Gemm)
    assert (product.m, product.n, product.k, product.transpose_a, product.transpose_b) == (8, 64, 32, False, True)
    directions = {part.variant: part.load() for part in parts if part.kernel_class == "conv" and part.load is not None}
    assert set(directions) == {"forward", "data"}
    assert directions["data"].kernels == (replace(directions["forward"].kernels[0], direction="data"),)
    # 16-bit operands are zero there: each of the two takes the energy down to .73
    clocked = {(kernel.burst, kernel.activity) for kernel in directions["forward"].kernels if isinstance(kernel, Conv)}
    assert clocked == {(True, 0.68**2)}
    assert {part.reason for part in parts if part.load is None} == {
        "several kernels in one figure",
        "a mode that no runtime asks for",
    }


def test_filters_that_a_sheet_leaves_empty_are_those_of_the_others(tmp_path: Path) -> None:
    """DeepBench's sheets hold one list: 3x3 where one other sheet has it. Two filters of a size leave it unknown."""
    size = {"w": 14.0, "h": 14.0, "c": 8.0, "batch": 2.0, "k": 16.0, "pad_w": 1.0, "pad_h": 1.0}
    size |= {"stride_w": 1.0, "stride_h": 1.0, "m": float("nan"), "n": float("nan"), "transA": "", "transB": ""}
    stated = {**size, "gpu": "NV V100", "precision": "Float", "op": "conv", "direction": "fwd", "latency_ms": 0.1}
    stated |= {"s_fw": 3.0, "r_fh": 3.0}
    empty = {**stated, "gpu": "NV P100", "latency_ms": 0.2, "s_fw": float("nan"), "r_fh": float("nan")}
    twice = {**stated, "w": 28.0}
    rows = [
        stated,
        empty,
        {**empty, "direction": "bwd_data"},
        twice,
        {**twice, "s_fw": 1.0},
        {**empty, "w": 28.0},
        {**empty, "w": 56.0},
        # of another format's list nothing is taken
        {**empty, "precision": "16 bit inputs, 16 bit multiplication, 32 bit addition"},
    ]
    parts = parts_of(tmp_path, DEEPBENCH, rows)
    found = {part.variant: part.load() for part in parts if part.load is not None}
    kernels = {
        way: [(gpu, kernel) for gpu, kernel in zip(part.gpu, part.kernels, strict=True)] for way, part in found.items()
    }
    restored = [kernel for way in ("forward", "data") for gpu, kernel in kernels[way] if gpu == "p100"]
    assert [(kernel.filter, kernel.spatial) for kernel in restored if isinstance(kernel, Conv)] == [
        ((3, 3), (14, 14))
    ] * 2
    assert sum(part.gpu.size for part in parts if part.load is None) == 3


@pytest.mark.parametrize("file", [CONTEXT, ENCODER, VIDUR_LAYERS, LLM_LAYERS, QUANTIZE, AMD_GEMM, DEEPBENCH])
def test_a_file_without_its_columns_is_refused_by_name(file: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{Path(file).name} has no column"):
        parts_of(tmp_path, file, [{"gpu": "t4", "latency_ms": 1.0}])


def test_contributors_are_told_the_layout_of_a_data_folder() -> None:
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text("utf-8")
    table = text.partition("### Lay out a data folder\n")[2].partition("\n### ")[0]
    rows = [line for line in table.split("\n") if line.startswith("| `")]
    assert set(READERS) <= set(re.findall(r"`([^`*]+\.parquet)`", "\n".join(rows)))
    folder = Path(neusight_onnx.__file__).parent / "learning" / "datasets"
    assert all((folder / reader).is_file() for reader in re.findall(r"`(\w+\.py)` \|$", "\n".join(rows), re.MULTILINE))
