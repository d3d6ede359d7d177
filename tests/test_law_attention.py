"""The law of fused attention: what libraries choose, steps, bytes and bounds, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernel_formats import predictor_label
from neusight_onnx.kernels import Attention, Gemm, Kernel, TensorSpec
from neusight_onnx.laws.analytic.estimate import analytic_estimate
from neusight_onnx.laws.attention.kernel_choice import OTHER_KERNELS_LOG_SD, UNKNOWN_PARTS_LOG_SD
from neusight_onnx.laws.attention.law import ATTENTION, CUDNN_ATTENTION, FLASH2_ATTENTION
from neusight_onnx.laws.attention.rates import stream_fraction
from neusight_onnx.laws.attention.schedule import pin
from neusight_onnx.laws.attention.step import step_of
from neusight_onnx.laws.base import Law, LawResult
from neusight_onnx.laws.catalog import ATTENTION_FORMATS, apply_law, law_of
from neusight_onnx.predictor import predict

BF16, FP16, FP8, FP32 = DataType.BFLOAT16, DataType.FLOAT16, DataType.FLOAT8E4M3FN, DataType.FLOAT32
PRIORS = {constant.name: constant.prior for constant in ATTENTION.constants}

# without overheads, a softmax or a power limit: products at the peak of the pipe, so that times are plain arithmetic
PLAIN = {
    **PRIORS,
    "pipe_overhead": 1.0,
    "pipe_overhead_tcgen05": 1.0,
    "exp_overhead": 1e-12,
    "step_cycles": 0.0,
    "step_latency_cycles": 0.0,
    "block_cycles": 0.0,
    "row_cycles": 0.0,
    "energy_pj": 1e-6,
}

A100, H100, B200, L40S = "a100-sxm-80gb", "h100-sxm", "b200-sxm", "l40s"


def encoder(b: int, h: int, s: int, d: int = 128) -> Attention:
    return Attention(b=b, h=h, g=h, s=s, t=s, d=d, v=d, dtype=BF16)


def prefill(b: int, h: int, g: int, s: int, d: int = 128, **more: object) -> Attention:
    return replace(Attention(b=b, h=h, g=g, s=s, t=s, d=d, v=d, causal=True, dtype=BF16), **more)


def decode(b: int, h: int, g: int, t: int, d: int = 128, **more: object) -> Attention:
    return replace(Attention(b=b, h=h, g=g, s=1, t=t, d=d, v=d, causal=True, dtype=BF16, past_in_l2=True), **more)


def law(kernel: Attention, gpu: str, constants: dict[str, float] | None = None) -> LawResult:
    return ATTENTION.estimate(ATTENTION.columns((kernel,)), load_gpu(gpu), PRIORS if constants is None else constants)


def chosen(kernel: Attention, gpu: str) -> dict[str, float]:
    columns = ATTENTION.pin(ATTENTION.columns((kernel,)), load_gpu(gpu), PRIORS)
    return {name: float(column[0]) for name, column in columns.items()}


@pytest.mark.parametrize(
    ("kernel", "label"),
    [
        pytest.param(encoder(1, 1, 8), "bfloat16", id="bf16"),
        pytest.param(replace(encoder(1, 1, 8), dtype=FP16), "bfloat16", id="fp16-as-bf16"),
        pytest.param(replace(encoder(1, 1, 8), dtype=FP16, kv_dtype=FP8), "bfloat16+float8e4m3fn", id="fp8-cache"),
        pytest.param(
            replace(encoder(1, 1, 8), dtype=BF16, kv_dtype=DataType.INT8), "bfloat16+float8e4m3fn", id="int8-cache"
        ),
        pytest.param(replace(encoder(1, 1, 8), kv_dtype=DataType.INT4), "bfloat16+int4", id="int4-cache-has-none"),
        pytest.param(replace(encoder(1, 1, 8), kv_dtype=FP32), "bfloat16", id="wider-cache"),
        pytest.param(replace(encoder(1, 1, 8), dtype=FP8), "float8e4m3fn", id="fp8"),
        pytest.param(replace(encoder(1, 1, 8), backward=True), "bfloat16 backward", id="backward-is-another-kernel"),
        pytest.param(replace(encoder(1, 1, 8), dtype=FP32), "float32", id="fp32"),
        pytest.param(replace(encoder(1, 1, 8), dtype=FP32, kv_dtype=FP16), "float32", id="fp32-with-a-narrow-cache"),
    ],
)
def test_the_predictor_of_attention(kernel: Attention, label: str) -> None:
    assert predictor_label(kernel) == label
    assert (law_of("attention", label) is ATTENTION) is (label in ATTENTION_FORMATS)


@pytest.mark.parametrize(
    ("kernel", "gpu", "expected"),
    [
        # 2 x 4 heads, 512 queries: 8 tiles of 64 each see 1, 1, 2, 2, 3, 3, 4, 4 tiles of 128 keys
        pytest.param(
            prefill(2, 4, 4, 512), A100, {"tile_q": 64, "tile_k": 128, "blocks": 64, "steps": 8 * 22}, id="fa2"
        ),
        # packed: 4 heads share keys, 2048 rows; tiles of 32 queries
        pytest.param(prefill(2, 4, 1, 512), H100, {"tile_q": 128, "blocks": 32, "packed": 1}, id="fa3-packs"),
        pytest.param(prefill(2, 4, 1, 512, d=64), H100, {"tile_q": 192, "blocks": 2 * 11}, id="fa3-narrow-heads"),
        # two tiles of 256 a head go through 256 and 512 keys, 6 tiles of 128; the corners of the mask cancel
        pytest.param(
            prefill(2, 4, 1, 512), B200, {"tile_q": 256, "blocks": 16, "packed": 0, "steps": 8 * 6}, id="blackwell"
        ),
        pytest.param(encoder(1, 300, 512), B200, {"tile_q": 256, "blocks": 600, "split_k": 1}, id="fa4"),
        pytest.param(encoder(1, 2, 4096), B200, {"blocks": 2 * 16 * 4, "split_k": 4, "longest": 8}, id="fa4-splits"),
        pytest.param(encoder(1, 2, 4096), A100, {"tile_q": 128, "blocks": 64, "split_k": 1}, id="fa2-encoder"),
        # one block a sequence: 16 of 216 places, 8 tiles of keys; all 8 parts fill best
        pytest.param(decode(8, 8, 2, 1024), A100, {"blocks": 128, "split_k": 8, "longest": 1}, id="decode-splits"),
        # 108 SMs hold 216 blocks: from .8 of them on nothing is split
        pytest.param(decode(173, 8, 1, 1024), A100, {"blocks": 173, "split_k": 1}, id="decode-is-full"),
        # 100 blocks: 2 parts fill .926 of 216 places, which is the best below 128 parts
        pytest.param(decode(100, 8, 1, 1024), A100, {"blocks": 200, "split_k": 2}, id="decode-two-parts"),
        # heads that share keys fill two tiles of 64 rows: as vLLM launches them on a stand-in
        pytest.param(decode(4, 128, 1, 8192), A100, {"blocks": 4 * 2 * 22, "split_k": 22}, id="decode-two-tiles"),
        pytest.param(decode(1, 71, 1, 2048, d=64), A100, {"blocks": 2 * 8, "split_k": 8}, id="decode-71-heads"),
        # 148 SMs have room for 9 parts of 16 blocks, but one has 256 keys at least, 512 of 8 bits
        pytest.param(decode(8, 8, 2, 1024), B200, {"tile_q": 16, "split_k": 4, "blocks": 64}, id="decode-tcgen05"),
        pytest.param(decode(8, 8, 2, 1024, kv_dtype=FP8), B200, {"split_k": 2}, id="decode-tcgen05-fp8-cache"),
        pytest.param(decode(8, 8, 2, 8192), B200, {"split_k": 9}, id="decode-tcgen05-many-keys"),
        pytest.param(decode(8, 8, 2, 1024, window=256), A100, {"packed": 0, "blocks": 64}, id="window-unpacked"),
        pytest.param(
            decode(8, 8, 2, 1024, window=256, kv_dtype=FP8), L40S, {"packed": 1, "split_k": 2}, id="fp8-cache-packed"
        ),
        # the window leaves one of 64 tiles of keys and a part of the next: too few to cut
        pytest.param(
            decode(8, 8, 2, 8192, window=128), H100, {"split_k": 1, "longest": 2, "blocks": 16}, id="window-fa3"
        ),
        # 9 tiles of a window of 1,024: 8 parts fill the SMs with two heads; of all keys' 64 tiles, 16 x 64 x 1.1 / 132
        # are 9 an SM, which makes 8 parts, too
        pytest.param(
            decode(8, 8, 2, 8192, window=1024), H100, {"split_k": 8, "longest": 2, "added": 1}, id="window-split-fa3"
        ),
        # keys 873 to 1,000 lie in tiles 6 and 7 of 128, keys 897 to 1,024 in tile 7 alone
        pytest.param(decode(300, 8, 2, 1000, window=128), B200, {"longest": 2, "steps": 1200}, id="window-straddles"),
        pytest.param(decode(300, 8, 2, 1024, window=128), B200, {"longest": 1, "steps": 600}, id="window-in-a-tile"),
        # four tiles of keys are never cut
        pytest.param(decode(1, 8, 8, 512), H100, {"split_k": 1, "added": 0, "longest": 4}, id="few-steps-fa3"),
        # 5 tiles, 8 heads: as many parts as SMs allow, of 8 x 5 x 1.1 / 132 steps
        pytest.param(decode(1, 8, 8, 640), H100, {"split_k": 5, "added": 1, "longest": 1}, id="five-steps-fa3"),
        # 128 heads of many sequences leave no room, but one sequence's 32 would: the second kernel runs for one part
        pytest.param(decode(64, 32, 32, 4096), H100, {"split_k": 1, "added": 1}, id="nothing-to-add-fa3"),
        pytest.param(decode(1, 128, 128, 4096), H100, {"split_k": 1, "added": 0}, id="one-sequence-is-full-fa3"),
        # 16 x 5 blocks on 78 SMs: 16 x 128 x 1.1 / 78 are 29 steps, 128 / 29 are 5 parts
        pytest.param(decode(2, 32, 8, 16384), "h20", {"split_k": 5, "blocks": 80}, id="more-than-sms-fa3"),
        # prompts of few heads are cut as well: 64 blocks of 8 steps, 4.3 each for an SM
        pytest.param(prefill(1, 8, 8, 1024), H100, {"split_k": 2, "added": 1}, id="prompts-split-fa3"),
        pytest.param(prefill(1, 32, 4, 1024), H100, {"split_k": 1, "added": 0}, id="prompts-are-full-fa3"),
        # FlashInfer decodes with 16 rows of queries, 4 warps with fragments of 16 keys: heads of 64 leave 50 KiB less 2
        # for 4 of them, of 8 KiB
        pytest.param(
            decode(1, 8, 1, 300, d=64, kv_dtype=FP8), L40S, {"tile_q": 16, "tile_k": 256}, id="fp8-cache-decode"
        ),
        # 16 blocks on 284 places, no part with less than 128 keys; prompts as well
        pytest.param(decode(8, 8, 2, 1024, kv_dtype=FP8), L40S, {"blocks": 128, "split_k": 8}, id="fp8-cache-splits"),
        pytest.param(
            prefill(1, 64, 64, 256, kv_dtype=FP8), L40S, {"blocks": 256, "split_k": 2}, id="fp8-cache-splits-prompts"
        ),
        pytest.param(decode(8, 8, 2, 128), H100, {"split_k": 1, "blocks": 16}, id="few-keys-fa3"),
        # FlashInfer by packed rows: 4 heads share keys, so 4 x 16, 4 x 17 and 4 x 4 of them
        pytest.param(prefill(1, 4, 1, 16, kv_dtype=FP8), L40S, {"tile_q": 64, "tile_k": 128}, id="fp8-cache-64-rows"),
        pytest.param(prefill(1, 4, 1, 17, kv_dtype=FP8), L40S, {"tile_q": 128, "tile_k": 64}, id="fp8-cache-68-rows"),
        pytest.param(prefill(1, 4, 1, 4, kv_dtype=FP8), L40S, {"tile_q": 16, "tile_k": 128}, id="fp8-cache-16-rows"),
        pytest.param(
            prefill(1, 4, 1, 64, d=256, kv_dtype=FP8), L40S, {"tile_q": 64, "tile_k": 32}, id="fp8-cache-wide-heads"
        ),
        # TensorRT-LLM's prompts in FP8 keep heads apart, a decoding step packs them
        pytest.param(
            prefill(2, 4, 1, 512, dtype=FP8), H100, {"packed": 0, "tile_q": 128, "tile_k": 256, "blocks": 32}, id="fp8"
        ),
        pytest.param(prefill(2, 4, 1, 512, d=256, dtype=FP8), H100, {"packed": 0, "tile_k": 128}, id="fp8-wide-heads"),
        pytest.param(prefill(2, 4, 1, 1, dtype=FP8), B200, {"packed": 0, "blocks": 8}, id="fp8-one-token"),
        pytest.param(decode(2, 4, 1, 1024, dtype=FP8), H100, {"packed": 1}, id="fp8-decode"),
        # AMD: 2 key heads of 8; Composable Kernel's fmha_fwd, which ONNX Runtime calls, has the tile of prompts
        pytest.param(
            decode(2, 8, 2, 1024, library="pytorch"), "mi300x", {"packed": 1, "tile_q": 16, "split_k": 8}, id="ck-packs"
        ),
        pytest.param(
            decode(2, 8, 2, 1024, library="onnxruntime"),
            "mi300x",
            {"packed": 0, "tile_q": 128, "blocks": 16, "split_k": 1},
            id="ck-of-onnxruntime-does-not",
        ),
    ],
)
def test_what_libraries_choose(kernel: Attention, gpu: str, expected: dict[str, float]) -> None:
    found = chosen(kernel, gpu)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("gpu", ["mi300x", "mi210", A100])
def test_each_head_reads_its_keys_again_in_onnxruntimes_decoding(gpu: str) -> None:
    """As many steps as query heads; PyTorch's blocks take those that share keys at once."""
    alone, shared = decode(64, 8, 8, 4096), decode(64, 64, 8, 4096)
    steps = {
        library: chosen(replace(shared, library=library), gpu)["steps"]
        / chosen(replace(alone, library=library), gpu)["steps"]
        for library in ("pytorch", "onnxruntime")
    }
    assert steps == {"pytorch": 1.0, "onnxruntime": 8.0}


def test_what_is_not_known_of_onnxruntimes_decoding_on_amd_widens_its_interval() -> None:
    doubts = [
        law(replace(kernel, library="onnxruntime"), "mi300x").doubt_log_sd
        for kernel in (decode(8, 32, 8, 4096), prefill(8, 32, 8, 512))
    ]
    assert [float(doubt[0]) for doubt in doubts if doubt is not None] == [UNKNOWN_PARTS_LOG_SD, OTHER_KERNELS_LOG_SD]


@pytest.mark.parametrize("gpu", [A100, H100, B200, L40S])
def test_products_take_their_flops_at_the_dense_peak(gpu: str) -> None:
    """Full tiles in full rounds on every SM, no mask: 4 b h s t d FLOPs over the peak."""
    spec = load_gpu(gpu)
    kernel = encoder(spec.sm_count, 3, 1536)
    # without what loading operands from shared memory adds to them
    compute = law(kernel, gpu, {**PLAIN, "norm": 60.0}).parts_us["compute"][0]
    flops = 4.0 * kernel.b * kernel.h * 1536 * 1536 * 128
    assert compute == pytest.approx(1e6 * flops / spec.peak_flops_per_s["bf16"], rel=1e-6)


@pytest.mark.parametrize(("gpu", "share"), [(A100, 1.0), (L40S, 1.0), ("rtx-4090", 0.512), ("rtx-5090", 0.512)])
def test_what_the_pipe_does_not_do_takes_as_many_clocks_on_a_halved_one(gpu: str, share: float) -> None:
    """A fifth more of the products' time on a whole pipe; GeForce's has 256 of 500 multiply-adds a clock and SM."""
    kernel = encoder(load_gpu(gpu).sm_count, 3, 1536)
    plain, longer = (
        law(kernel, gpu, {**PLAIN, "norm": 60.0, "pipe_overhead": overhead}).parts_us["compute"][0]
        for overhead in (1.0, 1.2)
    )
    assert longer / plain == pytest.approx(1.0 + 0.2 * share, rel=1e-4)


@pytest.mark.parametrize("gpu", [A100, H100, B200, L40S])
def test_a_causal_mask_halves_the_steps(gpu: str) -> None:
    causal, full = (
        found["steps"] * found["tile_q"] * found["tile_k"]
        for found in (chosen(prefill(4, 32, 32, 16384), gpu), chosen(encoder(4, 32, 16384), gpu))
    )
    assert 0.5 < causal / full < 0.52


@pytest.mark.parametrize(
    ("kernel", "gpu", "expected"),
    [
        # queries, keys and values of 128 x 2 bytes: 16 + 64 KB of 164 and of 100
        pytest.param(prefill(2, 8, 2, 512), A100, {"tile_q": 64, "tile_k": 128, "resident": 2}, id="a100"),
        pytest.param(prefill(2, 8, 2, 512), L40S, {"tile_q": 64, "tile_k": 128, "resident": 1}, id="l40s"),
        pytest.param(prefill(2, 8, 2, 512), "rtx-a6000", {"tile_k": 128, "resident": 1}, id="a6000"),
        # 32 + 64 KB
        pytest.param(prefill(2, 8, 2, 512, d=256), A100, {"tile_k": 64, "resident": 1}, id="a100-256"),
        pytest.param(encoder(2, 8, 512, 64), L40S, {"tile_q": 128, "tile_k": 128, "resident": 2}, id="encoder-64"),
        pytest.param(encoder(2, 8, 512, 80), L40S, {"tile_q": 128, "tile_k": 64, "resident": 2}, id="encoder-80"),
        pytest.param(encoder(2, 8, 512), L40S, {"tile_q": 128, "tile_k": 32, "resident": 2}, id="encoder-128"),
        pytest.param(encoder(2, 8, 512), A100, {"tile_q": 128, "tile_k": 64, "resident": 2}, id="encoder-128-a100"),
        # eight warps: 48 + 48 KB, and 64 + 64 of A100's
        pytest.param(encoder(2, 8, 512, 192), L40S, {"tile_q": 128, "warps": 8, "resident": 2}, id="encoder-192"),
        pytest.param(encoder(2, 8, 512, 256), A100, {"tile_q": 128, "warps": 8}, id="encoder-256-a100"),
        pytest.param(encoder(2, 8, 512, 256), L40S, {"tile_q": 64, "warps": 4, "resident": 1}, id="encoder-256"),
    ],
)
def test_blocks_that_shared_memory_holds(kernel: Attention, gpu: str, expected: dict[str, float]) -> None:
    found = chosen(kernel, gpu)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("kernel", "gpu", "queries", "keys"),
    [
        pytest.param(prefill(2, 8, 8, 512), A100, 128, 64, id="a100"),
        pytest.param(prefill(2, 8, 8, 512), "rtx-4090", 64, 64, id="ada-is-square"),
        pytest.param(prefill(2, 8, 8, 512), "rtx-5090", 128, 64, id="blackwell-is-not"),
        pytest.param(prefill(2, 8, 8, 512, d=96), "rtx-a6000", 64, 64, id="ga102-is-square"),
        pytest.param(prefill(2, 8, 8, 512, d=64), "rtx-4090", 128, 128, id="narrow-heads"),
        pytest.param(encoder(2, 8, 512), "rtx-4090", 128, 32, id="without-a-mask"),
    ],
)
def test_tiles_of_flash_attention_2_in_pytorch_have_no_pages(
    kernel: Attention, gpu: str, queries: int, keys: int
) -> None:
    columns = FLASH2_ATTENTION.columns((kernel,))
    found = ATTENTION.pin(columns, load_gpu(gpu), PRIORS)
    assert (found["tile_q"][0], found["tile_k"][0]) == (queries, keys)


@pytest.mark.parametrize("library", ["pytorch", "onnxruntime"])
@pytest.mark.parametrize("gpu", [A100, L40S, "rtx-5090", "v100-sxm2-16gb", "mi300x"])
def test_a_causal_mask_leaves_a_short_prompt_its_blocks(gpu: str, library: str) -> None:
    # torch 2.9.1 launches 1 x 64 x 16 blocks of 128 x 128 for both (heads of 64, as A100, RTX 3090, L40S, 5090)
    full = replace(encoder(64, 16, 128, 64), library=library)
    blocks = [chosen(replace(full, causal=causal), gpu)["blocks"] for causal in (False, True)]
    assert blocks == [64 * 16, 64 * 16]


@pytest.mark.parametrize(
    ("kernel", "gpu", "expected"),
    [
        # keys stand in one piece: the tiles of run_mha_fwd_hdim*, however few the queries
        pytest.param(encoder(2, 8, 64, 64), L40S, {"tile_q": 128, "tile_k": 128}, id="few-rows"),
        pytest.param(encoder(2, 8, 64, 80), L40S, {"tile_q": 128, "tile_k": 64, "resident": 2}, id="few-rows-80"),
        pytest.param(decode(2, 8, 8, 512), L40S, {"tile_q": 64, "tile_k": 128}, id="cut-into-parts"),
    ],
)
def test_tiles_of_flash_attention_2(kernel: Attention, gpu: str, expected: dict[str, float]) -> None:
    found = chosen(kernel, gpu)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("d", "masked", "unmasked", "fp8", "few", "few_fp8"),
    [
        pytest.param(64, (192, 128), (192, 192), (192, 160), (64, 192), (64, 128), id="64"),
        pytest.param(80, (192, 128), (192, 144), (192, 128), (192, 128), (192, 128), id="80"),
        pytest.param(128, (128, 128), (128, 176), (128, 160), (64, 128), (64, 96), id="128"),
        pytest.param(192, (128, 96), (128, 112), (128, 160), (128, 96), (128, 160), id="192"),
        pytest.param(256, (128, 80), (128, 80), (128, 128), (128, 80), (128, 128), id="256"),
    ],
)
def test_tiles_of_flash_attention_3(
    d: int,
    masked: tuple[int, int],
    unmasked: tuple[int, int],
    fp8: tuple[int, int],
    few: tuple[int, int],
    few_fp8: tuple[int, int],
) -> None:
    """As vLLM's launches on a stand-in for an H100."""
    prompt, step = prefill(2, 8, 8, 512, d=d), decode(2, 32, 8, 512, d=d)
    kernels = (prompt, encoder(2, 8, 512, d), replace(prompt, kv_dtype=FP8), step, replace(step, kv_dtype=FP8))
    tiles = [chosen(kernel, H100) for kernel in kernels]
    assert [(tile["tile_q"], tile["tile_k"]) for tile in tiles] == [masked, unmasked, fp8, few, few_fp8]
    assert chosen(replace(step, causal=False), H100)["tile_k"] == few[1]


def test_flash_attention_3_always_has_a_second_kernel_behind_a_mask() -> None:
    """A fill where none adds parts, one that adds nothing where one sequence might have had parts; encoders have one
    before that makes the schedule, and the one that adds nothing, too, of many keys; cuDNN and others have none."""
    slow = {**PRIORS, "idle_launch_us": 1002.0}

    def more_us(kernel: Attention, gpu: str = H100, law: Law = ATTENTION) -> float:
        columns, spec = law.columns((kernel,)), load_gpu(gpu)
        slower, usual = (law.estimate(columns, spec, c).latency_us[0] for c in (slow, PRIORS))
        return float(slower - usual)

    launch_us = 1000.0 * 1.7e9 / load_gpu(H100).clock_hz
    unsplit, emptied, cut = decode(1, 8, 8, 512), decode(64, 32, 32, 4096), decode(1, 8, 8, 4096)
    for kernel in (unsplit, replace(unsplit, causal=False), emptied, prefill(4, 32, 8, 2048)):
        assert more_us(kernel) == pytest.approx(launch_us)
    assert more_us(cut) == 0.0
    assert more_us(encoder(8, 16, 256)) == pytest.approx(launch_us)
    assert more_us(encoder(64, 16, 1024, 64)) == pytest.approx(2.0 * launch_us)
    assert more_us(unsplit, B200) == more_us(unsplit, A100) == more_us(unsplit, H100, CUDNN_ATTENTION) == 0.0


def test_kernels_on_mma_have_a_floor_of_their_own() -> None:
    """FlashAttention 2's, on any GPU, and no other's."""
    kernel, slow = encoder(1, 1, 8), {**PRIORS, "floor_cycles_mma": PRIORS["floor_cycles_mma"] + 1e6}
    for found, gpu, cycles in (
        (ATTENTION, A100, 1e6),
        (FLASH2_ATTENTION, H100, 1e6),
        (ATTENTION, H100, 0.0),
        (ATTENTION, B200, 0.0),
    ):
        spec = load_gpu(gpu)
        usual, slower = (found.estimate(found.columns((kernel,)), spec, c).latency_us[0] for c in (PRIORS, slow))
        assert slower - usual == pytest.approx(1e6 * cycles / spec.clock_hz)


@pytest.mark.parametrize(("gpu", "cycles"), [(A100, 2000.0), (H100, 0.0)])
def test_nothing_hides_the_start_of_the_first_of_several_rounds(gpu: str, cycles: float) -> None:
    """Two blocks an SM hide each other's start, but not where both are the first: half of 4,000 cycles is on top."""
    spec, constants = load_gpu(gpu), {**PLAIN, "block_cycles": 4000.0}
    sequences = (spec.sm_count, 2 * spec.sm_count)
    one, two = (law(decode(b, 1, 1, 64), gpu, constants).parts_us["compute"][0] for b in sequences)
    assert two - 2.0 * one == pytest.approx(1e6 * cycles / spec.clock_hz, abs=1e-3)


def test_another_block_on_an_sm_hides_the_rows_of_a_block() -> None:
    """Of FlashAttention 2's two; where an SM has one, nothing does."""
    rows = {**PLAIN, "row_cycles": 1000.0}
    spec = load_gpu(A100)
    few, many = (prefill(b, 1, 1, 64) for b in (spec.sm_count, 2 * spec.sm_count))
    more = [
        law(kernel, A100, rows).parts_us["compute"][0] - law(kernel, A100, PLAIN).parts_us["compute"][0]
        for kernel in (few, many)
    ]
    assert more == pytest.approx([1e6 * 64 * 1000.0 / 2.0 / spec.clock_hz, 0.0])


@pytest.mark.parametrize("gpu", [A100, H100, B200, L40S])
def test_writing_a_cache_takes_its_launch_whatever_the_clock(gpu: str) -> None:
    step = decode(1, 8, 1, 64)
    alone, writing = (law(replace(step, cache_write_elements=count), gpu).latency_us[0] for count in (0, 256))
    assert writing - alone == pytest.approx(PRIORS["cache_us"], rel=0.05)


@pytest.mark.parametrize(("gpu", "share"), [(H100, 0.93), (B200, 0.93), (A100, 0.83)])
def test_keys_stream_behind_the_first_blocks_start(gpu: str, share: float) -> None:
    """Time grows by the bytes at what DRAM gives reads; what comes before the first of them adds to it, but on tcgen05,
    whose kernels start while the one before ends."""
    spec, kernels = load_gpu(gpu), [decode(256, 8, 1, t) for t in (8192, 16384)]
    alone = {**PLAIN, "norm": 60.0}
    short, long = (law(kernel, gpu, alone).latency_us[0] for kernel in kernels)
    stream_us = 1e6 * 256 * 8192 * 512 / spec.memory_bytes_per_s
    assert stream_us / (long - short) == pytest.approx(share, abs=0.01)
    slow = law(kernels[0], gpu, {**alone, "block_cycles": 2000.0}).latency_us[0]
    begins_us = 0.0 if gpu == B200 else 1e6 * 2000.0 / spec.clock_hz
    assert slow - short == pytest.approx(begins_us, abs=0.1)


def test_a_heads_padding_takes_no_power() -> None:
    """Heads of 80 are multiplied as 96 on an L40S, whose clock the power limit sets."""
    narrow, wide = (law(encoder(32, 16, 4096, d), L40S).parts_us["compute"][0] for d in (80, 96))
    assert narrow < 0.97 * wide
    unlimited = {**PRIORS, "energy_pj": 1e-6}
    narrow, wide = (law(encoder(32, 16, 4096, d), L40S, unlimited).parts_us["compute"][0] for d in (80, 96))
    assert narrow == pytest.approx(wide)


@pytest.mark.parametrize(
    ("kernel", "blocks"),
    [
        pytest.param(prefill(2, 8, 8, 512), 1, id="prompts"),
        pytest.param(encoder(2, 8, 512), 1, id="encoders"),
        pytest.param(decode(2, 8, 2, 512), 2, id="decoding"),
    ],
)
def test_prompts_fill_tensor_memory_with_one_block(kernel: Attention, blocks: int) -> None:
    assert chosen(kernel, B200)["resident"] == blocks


def test_sms_wait_for_the_last_blocks_of_a_causal_mask() -> None:
    """64 blocks of 1 to 32 steps for each of 8 heads, 4.74 an SM: 16.5 x 4.74 steps, and .95 of the longest."""
    spec = load_gpu(A100)
    kernel = prefill(1, 8, 8, 4096)
    steps = chosen(kernel, A100)["steps"]
    # products, and as long for what four warps load of keys and values from shared memory
    step = 2.0 ** (1.0 / 60.0) * 2.0 * 64 * 128 * 256 * spec.sm_count / spec.peak_flops_per_s["bf16"]
    found = law(kernel, A100, {**PLAIN, "norm": 60.0}).parts_us["compute"][0]
    mean = steps / 512
    waited = 0.95 * np.sqrt(2.0 * (1.0 - mean / 32.0)) * 32.0
    assert found == pytest.approx(1e6 * step * (steps / spec.sm_count + waited), rel=2e-3)


def test_an_h20s_memory_streams_as_an_h100s() -> None:
    """Both have channels of 21 GB/s; that an H20 has fewer SMs is nothing to its memory."""
    assert stream_fraction(load_gpu("h20")) == pytest.approx(stream_fraction(load_gpu(H100)), rel=0.01)


def test_loads_from_shared_memory_compete_with_an_a100s_products() -> None:
    """Four warps load 128 keys of 2 x 256 bytes, as long as 64 x 128 x 256 multiply-adds at 1,024 a clock: 2^(1/4)."""
    kernel = prefill(108, 8, 8, 8192)
    plain, joined = (law(kernel, A100, {**PLAIN, "norm": norm}).parts_us["compute"][0] for norm in (60.0, 4.0))
    assert joined / plain == pytest.approx(2**0.25 / 2 ** (1 / 60), rel=1e-3)


@pytest.mark.parametrize(
    ("window", "share"),
    [pytest.param(1024, 0.14, id="1024"), pytest.param(16384, 1.0, id="all")],
)
def test_a_window_leaves_tiles_out(window: int, share: float) -> None:
    """Each of 16,384 queries sees 1,024 keys and not 8,192 on average; tiles of 128 see one more."""
    inside = chosen(prefill(1, 8, 8, 16384, window=window), L40S)["steps"]
    assert inside / chosen(prefill(1, 8, 8, 16384), L40S)["steps"] == pytest.approx(share, abs=0.01)


def test_exponentials_bound_narrow_heads_on_hopper() -> None:
    """Heads of 64: a step of 192 x 128 takes 192 x 128 x 128 x 4 / 2 FLOPs but as many exponentials as any."""
    narrow, wide = (law(encoder(8, 32, 4096, d), H100) for d in (64, 256))
    shares = [result.ideal_us[0] / result.latency_us[0] for result in (narrow, wide)]
    assert shares[0] < 0.5 < 0.55 < shares[1]


FREE_FP8 = {**PLAIN, "pack_cycles": 1e-12, "exposed_mma": 1.0, "vector_instructions": 1e-12}


@pytest.mark.parametrize(
    ("d", "least", "most"), [pytest.param(64, 1.1, 2.0, id="64"), pytest.param(256, 1.0, 1.1, id="256")]
)
def test_blackwell_ultra_has_twice_the_exponentials(d: int, least: float, most: float) -> None:
    """They bind narrow heads; a B300 is a B200 else."""
    b200, b300 = (law(encoder(8, 64, 8192, d), gpu).latency_us[0] for gpu in (B200, "b300-sxm"))
    assert least <= b200 / b300 <= most


def test_mma_converts_probabilities_to_8_bits() -> None:
    kernel = replace(encoder(142, 3, 1536), dtype=FP8)
    plain, packing = (
        law(kernel, L40S, {**FREE_FP8, **more}).parts_us["compute"][0] for more in ({}, {"pack_cycles": 0.25})
    )
    pairs = kernel.b * kernel.h * 1536 * 1536 / 142
    assert packing - plain == pytest.approx(1e6 * 0.25 * pairs / 2.52e9, rel=1e-3)


@pytest.mark.parametrize(
    ("d", "cycles"),
    [
        # products at 1,024 multiply-adds a clock; two scales of 64 x 32 pairs and 64 x 128 sums on 128 lanes; four
        # warps load 32 keys and values at 128 bytes a clock and shuffle 32 x 128 values, one of 64 lanes four of them
        pytest.param(128, 2 * 64 * 32 * 128 / 1024 + (2 * 64 * 32 + 64 * 128) / 128 + 256 + 64, id="128"),
        # one block of 64 KB an SM; of 128 threads that each move 40 bytes the L1 holds all
        pytest.param(192, 2 * 64 * 32 * 192 / 1024 + (2 * 64 * 32 + 64 * 192) / 128 + 384 + 96, id="192"),
        # 128 threads of 496 bytes, 28 KB of which the L1 has room for: 1,592 bytes each at 17 bytes a clock and SM
        pytest.param(
            256,
            2 * 64 * 32 * 256 / 1024
            + (2 * 64 * 32 + 64 * 256) / 128
            + 512
            + 128
            + (1 - 28 * 1024 / (128 * 496)) * 128 * 1592 / 17,
            id="256-spilled",
        ),
    ],
)
def test_a_step_of_fp8_on_mma(d: int, cycles: float) -> None:
    """An L40S: 3 heads of 24 x 48 steps on each SM."""
    compute = law(replace(encoder(142, 3, 1536, d), dtype=FP8), L40S, FREE_FP8).parts_us["compute"][0]
    assert compute == pytest.approx(1e6 * 3 * 24 * 48 * cycles / 2.52e9, rel=1e-3)


@pytest.mark.parametrize(
    ("d", "expected"),
    [
        pytest.param(64, {"tile_q": 128, "tile_k": 128, "resident": 2}, id="64"),
        pytest.param(96, {"tile_q": 64, "tile_k": 32, "resident": 2}, id="96"),
        pytest.param(160, {"tile_q": 64, "tile_k": 32, "resident": 1}, id="160"),
    ],
)
@pytest.mark.parametrize("gpu", [L40S, "rtx-5090"])
def test_tiles_of_fp8_on_mma(d: int, expected: dict[str, float], gpu: str) -> None:
    found = chosen(prefill(2, 4, 1, 512, d=d, dtype=FP8), gpu)
    assert {name: found[name] for name in expected} == expected


def test_without_an_fp8_pipe_8_bit_queries_run_in_flash_attention_2() -> None:
    assert chosen(prefill(2, 4, 1, 512, dtype=FP8), A100)["tile_k"] == 128


def test_spilled_registers_bind_narrow_heads_on_ada_alone() -> None:
    """An L40S takes longer for heads of 64 than of 128 (measured: .80 and .67 cycles a pair), an H100 less."""
    kernels = [replace(prefill(16, 16, 4, 8192, d=d), dtype=FP8) for d in (64, 128)]
    narrow, wide = (law(kernel, L40S).latency_us[0] for kernel in kernels)
    assert 1.0 < narrow / wide < 1.3
    narrow, wide = (law(kernel, H100).latency_us[0] for kernel in kernels)
    assert narrow < wide


def test_flash_attention_3_transposes_values_of_8_bits() -> None:
    """An H100: 128 x 4 x 8,192 steps of 160 keys, whose values take the loading warps .15 cycles each."""
    kernel = replace(prefill(33, 4, 4, 4096), kv_dtype=FP8)
    step = 160 * 128 * PRIORS["producer_cycles"]
    steps = chosen(kernel, H100)["steps"] / 132
    assert law(kernel, H100, PLAIN).parts_us["compute"][0] > 1e6 * steps * step / 1.98e9


def test_an_h100_pads_prompts_in_fp8_to_powers_of_two() -> None:
    unlimited = {**PRIORS, "energy_pj": 1e-6}
    kernels = [replace(encoder(132, 2, 1024, d), dtype=FP8) for d in (192, 256)]
    times = [law(kernel, H100, unlimited).parts_us["compute"][0] for kernel in kernels]
    # but for the clock: padding takes no power, and wider heads wait for more bytes
    assert times[0] == pytest.approx(times[1], rel=2e-3)


def test_exponentials_take_little_power() -> None:
    """A B200's attention in FP8 with heads of 64, which exponentials bound, keeps its clock."""
    long = replace(encoder(64, 64, 8192, 64), dtype=FP8)
    with_limit, without = (
        law(long, B200, {**PRIORS, "energy_pj": pj}).latency_us[0] for pj in (PRIORS["energy_pj"], 1e-6)
    )
    assert with_limit < 1.1 * without


def test_decoding_with_mma_is_bound_by_l2_where_it_holds_the_keys() -> None:
    """67 MB of keys and values on an L40S, .5 of 17 bytes a clock and SM: 3.0 TB/s."""
    memory = law(decode(64, 64, 8, 256), L40S).parts_us["memory"][0]
    assert memory == pytest.approx(1e6 * 64 * 8 * 256 * 512 / (0.5 * 142 * 17 * 2.52e9), rel=0.3)


def test_prompts_in_parts_are_added_row_by_row() -> None:
    """FlashInfer on an L40S: 16,384 rows of 500 cycles of one of 142 SMs."""
    kernel = prefill(1, 64, 64, 256, kv_dtype=FP8)
    quick, slow = (law(kernel, L40S, {**PRIORS, "merge_cycles": cycles}).latency_us[0] for cycles in (1e-9, 500.0))
    assert slow - quick == pytest.approx(1e6 * 16384 * 500 / (142 * 2.52e9), rel=1e-6)


def test_decoding_streams_its_keys() -> None:
    """64 x 8,192 keys of 8 x 128 in keys and values of 2 bytes: 2.1 GB, .64 ms at an H100's 3.35 TB/s."""
    result = law(decode(64, 32, 8, 8192), H100)
    stream = 1e6 * 64 * 8192 * 8 * 256 * 2 / 3.35e12
    assert result.ideal_us[0] == pytest.approx(stream, rel=0.03)
    assert 1.0 < result.latency_us[0] / stream < 1.35
    assert max(result.parts_us, key=lambda name: float(result.parts_us[name][0])) == "memory"


def test_fp8_keys_halve_the_stream() -> None:
    kernel = decode(64, 32, 8, 8192)
    whole, half = (law(k, H100).parts_us["memory"][0] for k in (kernel, replace(kernel, kv_dtype=FP8)))
    assert half / whole == pytest.approx(0.5, rel=0.01)


def test_grouped_queries_share_their_keys() -> None:
    groups = [law(decode(64, 32, g, 8192), H100).parts_us["memory"][0] for g in (32, 8)]
    assert groups[1] / groups[0] == pytest.approx(0.25, rel=0.01)


def test_keys_of_the_past_come_from_dram_unless_a_kernel_is_repeated() -> None:
    """4 MB of keys fit L2, but in a model other layers have been there since."""
    kernel = decode(1, 32, 8, 1024)
    repeated, in_model = (law(replace(kernel, past_in_l2=held), H100).parts_us["memory"][0] for held in (True, False))
    assert repeated < 0.01
    assert in_model == pytest.approx(1e6 * 1023 * 8 * 256 * 2 / 3.35e12, rel=0.25)
    kept = law(replace(kernel, past_in_l2=False, kept_in_l2=0.75), H100).parts_us["memory"][0]
    assert kept == pytest.approx(in_model / 4, rel=0.01)


def test_a_written_cache_is_a_kernel_of_its_own() -> None:
    """16,384 tokens of 8 heads of 128, keys and values: 67 MB read, 67 MB written; 2 us and at least those bytes."""
    kernel = prefill(8, 32, 8, 2048)
    plain, written = (
        law(replace(kernel, cache_write_elements=count), H100).latency_us[0] for count in (0, 2 * 8 * 8 * 2048 * 128)
    )
    assert 2.0 + 1e6 * 2 * 67.1e6 / 3.35e12 < written - plain < 2.5 * 1e6 * 2 * 67.1e6 / 3.35e12


@pytest.mark.parametrize(
    ("g", "gpu", "blocks_at_once"),
    [
        # a token's block has a thread an element, 128 to 512 of them; an H100's SM holds 2,048, an L40S's 1,536
        pytest.param(1, H100, 132 * 16, id="128-threads"),
        pytest.param(4, H100, 132 * 4, id="512-threads"),
        pytest.param(64, H100, 132 * 4, id="no-more-than-512"),
        pytest.param(4, L40S, 142 * 3, id="ada-holds-fewer"),
    ],
)
def test_a_cache_is_written_by_a_block_a_token(g: int, gpu: str, blocks_at_once: int) -> None:
    kernel = replace(prefill(1, g, g, 1024), cache_write_elements=2 * g * 1024 * 128)
    constants = {**PRIORS, "cache_passes": 1e-12}
    longer, once = (law(kernel, gpu, {**constants, "cache_block_cycles": life}).latency_us[0] for life in (6e4, 3e4))
    assert longer - once == pytest.approx(1e6 * 1024 / blocks_at_once * 3e4 / load_gpu(gpu).clock_hz, rel=1e-6)


def test_keys_of_8_bits_decode_no_slower() -> None:
    """Where the stream of keys takes the time, in 8 bits it takes half of it; an H200's memory outruns its products."""
    most = {"h200-sxm": 0.87}
    for gpu in (H100, B200, "h200-sxm", "rtx-4090", "rtx-5090", L40S, "rtx-pro-6000-server"):
        for b, t in ((64, 8192), (16, 32768), (256, 2048)):
            kernel = decode(b, 32, 8, t)
            whole, half = (law(k, gpu).latency_us[0] for k in (kernel, replace(kernel, kv_dtype=FP8)))
            assert half < most.get(gpu, 0.8) * whole, gpu


def test_a_mask_is_read_by_every_head() -> None:
    kernel = encoder(8, 32, 2048)
    mask = TensorSpec(dtype=BF16, shape=(8, 1, 2048, 2048))
    padding = TensorSpec(dtype=BF16, shape=(8, 2048))
    plain, padded, masked = (law(replace(kernel, mask=m), A100).parts_us["l2"][0] for m in (None, padding, mask))
    assert padded == plain
    # 8 x 32 x 2048 x 2048 values of 2 bytes over 108 SMs of 40 bytes a clock at 1.41 GHz
    assert masked - plain == pytest.approx(1e6 * 8 * 32 * 2048 * 2048 * 2 / (108 * 40 * 1.41e9), rel=1e-6)


GPUS = (A100, H100, B200, L40S, "v100-sxm2-32gb", "t4", "rtx-5090", "mi300x", "mi210", "l4")
SIZES = st.integers(1, 2048)


@settings(max_examples=60, deadline=None)
@given(
    b=st.integers(1, 64),
    g=st.integers(1, 16),
    shared=st.integers(1, 16),
    s=SIZES,
    past=st.integers(0, 4096),
    d=st.sampled_from((16, 64, 72, 80, 96, 128, 192, 256, 576)),
    causal=st.booleans(),
    window=st.one_of(st.none(), st.integers(1, 512)),
    cache=st.sampled_from((None, FP8)),
    gpu=st.sampled_from(GPUS),
)
def test_times_and_features_are_sound(
    b: int,
    g: int,
    shared: int,
    s: int,
    past: int,
    d: int,
    causal: bool,
    window: int | None,
    cache: DataType | None,
    gpu: str,
) -> None:
    kernel = Attention(
        b=b, h=g * shared, g=g, s=s, t=s + past, d=d, v=d, causal=causal, window=window, dtype=FP16, kv_dtype=cache
    )
    spec = load_gpu(gpu)
    used = law_of("attention", predictor_label(kernel))
    assert used is not None
    answer = apply_law(used, (kernel,), spec, PRIORS)
    assert answer.features.shape == (1, len(ATTENTION.feature_names))
    assert np.isfinite(answer.features).all()
    result = answer.result
    for values in (result.latency_us, result.ideal_us, result.tile_count, *result.parts_us.values()):
        assert np.isfinite(values).all()
    assert result.latency_us[0] > 1e6 * PRIORS["floor_cycles"] / spec.clock_hz
    assert result.tile_count[0] >= 1.0


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(Attention(b=1, h=0, g=0, s=4, t=4, d=64, v=64, dtype=FP16), id="no-heads"),
        pytest.param(Attention(b=1, h=4, g=4, s=4, t=0, d=64, v=64, dtype=FP16), id="no-keys"),
        pytest.param(Attention(b=0, h=4, g=4, s=0, t=8, d=64, v=64, causal=True, dtype=FP16), id="empty-batch"),
        pytest.param(Attention(b=1, h=4, g=4, s=32, t=8, d=64, v=64, causal=True, dtype=FP16), id="more-queries"),
    ],
)
def test_odd_sizes_have_a_time(kernel: Attention) -> None:
    for gpu in GPUS:
        result = law(kernel, gpu)
        assert 1.0 < result.latency_us[0] < 50.0


@pytest.mark.parametrize("gpu", [A100, H100, L40S])
def test_no_time_depends_on_what_else_is_asked(gpu: str) -> None:
    kernels: tuple[Kernel, ...] = (encoder(2, 16, 512), decode(16, 32, 8, 4096), prefill(1, 8, 8, 100))
    spec = load_gpu(gpu)
    together = ATTENTION.estimate(ATTENTION.columns(kernels), spec, PRIORS).latency_us
    alone = [ATTENTION.estimate(ATTENTION.columns((kernel,)), spec, PRIORS).latency_us[0] for kernel in kernels]
    assert together.tolist() == alone


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        pytest.param(decode(2, 4, 2, 100, d=8), 2 * 4 * 8 * 2 + 2 * 2 * 100 * 16 * 2, id="all-keys"),
        # of 100 keys the one query sees the last 10
        pytest.param(decode(2, 4, 2, 100, d=8, window=10), 2 * 4 * 8 * 2 + 2 * 2 * 10 * 16 * 2, id="window"),
        # 5 queries, each with its last 10: 14 keys
        pytest.param(
            replace(decode(2, 4, 2, 100, d=8, window=10), s=5), 2 * 4 * 5 * 8 * 2 + 2 * 2 * 14 * 16 * 2, id="queries"
        ),
        pytest.param(prefill(1, 1, 1, 8, d=8, window=64), 8 * 8 * 2 + 8 * 16 * 2, id="window-beyond-the-keys"),
    ],
)
def test_a_window_spares_what_it_hides(kernel: Attention, expected: int) -> None:
    assert kernel.read_bytes == expected


@pytest.mark.parametrize(
    ("gpu", "doubt"),
    [
        pytest.param("t4", OTHER_KERNELS_LOG_SD, id="turing"),
        pytest.param("mi300x", OTHER_KERNELS_LOG_SD, id="amd"),
        pytest.param("rtx-3090", 0.0, id="ampere"),
        pytest.param("rtx-5090", 0.0, id="geforce-blackwell"),
    ],
)
def test_other_kernels_are_doubted(gpu: str, doubt: float) -> None:
    found = law(encoder(2, 16, 512), gpu).doubt_log_sd
    assert found is not None
    assert found.tolist() == [doubt]


@pytest.mark.parametrize(
    ("kernel", "gpu", "queries"),
    [
        pytest.param(decode(32, 32, 8, 4096), "h100-sxm", 64, id="few"),
        pytest.param(decode(32, 32, 8, 4096), "h20", 64, id="slow-pipe"),
        pytest.param(decode(32, 32, 8, 4096, d=256), "h100-sxm", 128, id="wider-heads"),
        pytest.param(replace(decode(32, 128, 1, 4096)), "h100-sxm", 128, id="many-heads-share-keys"),
        pytest.param(prefill(1, 32, 8, 4096), "h100-sxm", 128, id="many-queries"),
    ],
)
def test_flash_attention_3_has_a_tile_of_few_queries(kernel: Attention, gpu: str, queries: int) -> None:
    assert law(kernel, gpu).tile["queries"].tolist() == [queries]


def test_an_h20_decodes_at_the_rate_of_its_pipe() -> None:
    """64 rows of which 4 are queries', at 148 TFLOP/s beside 4 TB/s: between a third and half of what DRAM brings."""
    kernel, gpu = decode(64, 32, 8, 4096), load_gpu("h20")
    share = kernel.read_bytes / gpu.memory_bytes_per_s / (law(kernel, "h20").latency_us[0] * 1e-6)
    assert 0.33 < share < 0.5


def test_fp32_keeps_the_analytic_law() -> None:
    kernel = replace(encoder(2, 16, 512), dtype=FP32)
    assert law_of("attention", predictor_label(kernel)) is None
    assert analytic_estimate((kernel,), load_gpu(A100)).latency_us[0] > 0


@pytest.mark.parametrize("gpu", ["mi210", "mi250x", "mi300x", "mi308x", "mi325x", "mi355x"])
@pytest.mark.parametrize("kernel", [encoder(4, 32, 8192, d=128), encoder(4, 32, 8192), prefill(4, 32, 8, 8192)])
def test_attention_is_no_quicker_than_products_on_amd(kernel: Attention, gpu: str) -> None:
    """Its tiles are no larger than those of the largest products, and exponentials stand beside them."""
    product = Gemm(m=8192, n=8192, k=8192, dtype=FP16, b_is_weight=True, transpose_b=True)
    (attention, alone) = predict((replace(kernel, dtype=FP16), product), load_gpu(gpu))
    assert kernel.flops / attention.latency_us < 0.95 * product.flops / alone.latency_us


@pytest.mark.parametrize(
    ("kernel", "gpu", "overhead"),
    [
        # 128 rows by 4 waves: keys and values are written once and read 4 times, 5 x 16 / 128 of CDNA3's products
        pytest.param(encoder(4, 32, 8192), "mi300x", 1.33 * 1.625, id="prompt"),
        # products take half as many clocks again on CDNA2, and loads as many
        pytest.param(encoder(4, 32, 8192), "mi210", 1.0 + 0.5 * (1.33 * 1.625 - 1.0), id="prompt, CDNA2"),
        # CDNA4's LDS is twice as fast, as its matrix cores are
        pytest.param(encoder(4, 32, 8192), "mi355x", 1.33 * 1.625, id="prompt, CDNA4"),
        # 4 rows of heads that share keys, in 16 of one instruction: 2 x 16 / 16
        pytest.param(decode(32, 32, 8, 4096), "mi300x", 1.33 * 3.0, id="decoding"),
    ],
)
def test_what_amds_products_in_attention_take_beside_matrix_instructions(
    kernel: Attention, gpu: str, overhead: float
) -> None:
    spec = load_gpu(gpu)
    cols = pin(ATTENTION.columns((kernel,)), spec, PRIORS)
    pairs = cols["tile_q"] * cols["tile_k"]
    at_peak = 2.0 * pairs * (kernel.d + kernel.v) * spec.sm_count * spec.clock_hz / spec.peak_flops_per_s["bf16"]
    assert step_of(cols, spec, PRIORS).products / at_peak == pytest.approx(overhead, rel=5e-3)


@pytest.mark.parametrize(
    ("kernel", "tile"),
    [
        pytest.param(encoder(4, 32, 8192, d=64), (128, 64), id="narrow-heads"),
        pytest.param(encoder(4, 32, 8192, d=128), (128, 128), id="wide-heads"),
        pytest.param(decode(32, 32, 8, 4096), (16, 128), id="decoding"),
    ],
)
def test_tiles_of_amds_attention(kernel: Attention, tile: tuple[int, int]) -> None:
    found = law(kernel, "mi300x").tile
    assert (found["queries"][0], found["keys"][0]) == tile


@pytest.mark.parametrize("gpu", ["mi210", "mi300x", "mi308x", "mi355x"])
def test_decoding_on_amd_is_bound_by_its_keys(gpu: str) -> None:
    kernel, spec = decode(32, 32, 8, 4096), load_gpu(gpu)
    assert kernel.read_bytes / spec.memory_bytes_per_s / (law(kernel, gpu).latency_us[0] * 1e-6) > 0.5
