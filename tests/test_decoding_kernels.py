"""Which kernels decode in PyTorch and ONNX Runtime, and what grid they have: each row as torch 2.9.1 and
onnxruntime-gpu 1.31.1 (earlier ones where said) launched it on stand-ins for CUDA, by
``benchmarks/evidence/attention_kernels.md``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto

from graphs import inferred
from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import APPENDING, BY_CUDNN, BY_XQA, IN_PAGES, Attention, Kernel, Movement, NodeWork
from neusight_onnx.laws.attention.kernel_choice import CUDNN, FLASH2, NEWEST, XQA, kernel_of
from neusight_onnx.laws.attention.law import ATTENTION, BY_KERNEL
from neusight_onnx.lowering import lower
from neusight_onnx.lowering.attention.provider import appending_on, asked_on
from neusight_onnx.lowering.own_kernels import with_own_kernels
from neusight_onnx.predictor.predictions import predict
from neusight_onnx.runtime import get_runtime

HALF, INT32 = TensorProto.FLOAT16, TensorProto.INT32
PRIORS = {constant.name: constant.prior for constant in ATTENTION.constants}
A100, H100, RTX_4090 = "a100-sxm-80gb", "h100-sxm", "rtx-4090"


def grouped(
    b: int, h: int, g: int, *, past: int = 4095, s: int = 1, d: int = 128, release: str = "", **attributes: object
) -> tuple[NodeWork, ...]:
    """GroupQueryAttention of ``past`` and ``s`` new tokens in ONNX Runtime, in one buffer."""
    given = "".join(f", {name}={value}" for name, value in attributes.items())
    node = (
        f"y, nk, nv = com.microsoft.GroupQueryAttention<num_heads={h}, kv_num_heads={g}{given}>(q, k, v, pk, pv, n, t)"
    )
    shapes = {"q": (b, s, h * d), "k": (b, s, g * d), "v": (b, s, g * d), "n": (b,), "t": ()}
    shapes |= {"pk": (b, g, past, d), "pv": (b, g, past, d)}
    types = dict.fromkeys(shapes, HALF) | {"n": INT32, "t": INT32}
    runtime = get_runtime("onnxruntime" + release)
    return with_own_kernels(lower(inferred(node, shapes, types=types), runtime=runtime.name + release), runtime)


def attention_of(works: tuple[NodeWork, ...]) -> Attention:
    (found,) = (kernel for work in works for kernel in work.kernels if isinstance(kernel, Attention))
    return found


def step(b: int, h: int, g: int, t: int = 4096, **more: object) -> Attention:
    """A step of decoding in PyTorch, or of opset 23's Attention in ONNX Runtime."""
    kernel = Attention(b=b, h=h, g=g, s=1, t=t, d=128, v=128, causal=True, dtype=DataType.FLOAT16, library="pytorch")
    return replace(kernel, **more)


def pinned(kernel: Attention, gpu: str) -> dict[str, float]:
    used = kernel_of(kernel, load_gpu(gpu))
    law = BY_KERNEL.get(used, ATTENTION)
    columns = law.pin(law.columns((kernel,)), load_gpu(gpu), PRIORS)
    return {name: float(column[0]) for name, column in columns.items()}


@pytest.mark.parametrize(
    ("works", "gpu", "used"),
    [
        pytest.param(grouped(1, 32, 8), A100, XQA, id="xqa"),
        pytest.param(grouped(1, 32, 8), H100, XQA, id="xqa-on-hopper"),
        pytest.param(grouped(1, 32, 32, d=64), "rtx-5090", XQA, id="a-key-head-each"),
        pytest.param(grouped(1, 32, 8, local_window_size=1024), A100, XQA, id="xqa-with-a-window"),
        pytest.param(grouped(1, 32, 8, d=96), A100, FLASH2, id="heads-of-96"),
        pytest.param(grouped(1, 24, 8), A100, FLASH2, id="three-heads-share"),
        pytest.param(grouped(1, 24, 8), "h20", CUDNN, id="three-heads-share-on-hopper"),
        pytest.param(grouped(1, 24, 8, local_window_size=1024), H100, FLASH2, id="three-heads-share-in-a-window"),
        pytest.param(grouped(1, 32, 8, softcap=30.0), H100, FLASH2, id="softcap"),
        pytest.param(grouped(1, 32, 8, s=4), A100, FLASH2, id="four-queries"),
        pytest.param(grouped(1, 32, 8, s=4), H100, CUDNN, id="four-queries-on-hopper"),
        pytest.param(grouped(1, 32, 8, release="@1.27"), H100, FLASH2, id="before-xqa"),
        pytest.param(grouped(1, 32, 8, s=512, past=0, release="@1.27"), H100, FLASH2, id="before-cudnn"),
        pytest.param(grouped(1, 32, 8, s=512, past=0), A100, NEWEST, id="a-prompt"),
    ],
)
def test_which_kernel_grouped_queries_find(works: tuple[NodeWork, ...], gpu: str, used: str) -> None:
    assert kernel_of(attention_of(works), load_gpu(gpu)) == used


@pytest.mark.parametrize(
    ("node", "shapes", "used"),
    [
        ("com.microsoft.MultiHeadAttention<num_heads=8>(q, k, v)", dict.fromkeys("qkv", (2, 64, 512)), CUDNN),
        ("com.microsoft.Attention<num_heads=8>(x, w, b)", {"x": (2, 64, 512), "w": (512, 1536), "b": (1536,)}, CUDNN),
        ("Attention(q, k, v)", dict.fromkeys("qkv", (2, 8, 64, 64)), FLASH2),
    ],
    ids=lambda given: given.partition("<")[0] if isinstance(given, str) else "",
)
def test_operators_of_com_microsoft_ask_cudnn(node: str, shapes: dict[str, tuple[int, ...]], used: str) -> None:
    graph = inferred(f"y = {node}", shapes, types=dict.fromkeys(shapes, HALF), opset=23)
    works = with_own_kernels(lower(graph, runtime="onnxruntime"), get_runtime("onnxruntime"))
    assert kernel_of(attention_of(works), load_gpu(H100)) == used
    assert kernel_of(attention_of(works), load_gpu(A100)) == NEWEST


@pytest.mark.parametrize(
    ("kernel", "gpu", "grid"),
    [
        # XQA: parts of key heads, as many as one block an SM allows, each of 256 keys at least
        (attention_of(grouped(1, 32, 8)), A100, {"split_k": 13, "blocks": 13 * 8, "tile_q": 16, "tile_k": 256}),
        (attention_of(grouped(1, 32, 8)), RTX_4090, {"split_k": 16, "blocks": 16 * 8, "resident": 1}),
        (attention_of(grouped(1, 32, 8)), "h20", {"split_k": 9, "blocks": 9 * 8}),
        (attention_of(grouped(2, 32, 8, past=511)), A100, {"split_k": 2}),
        (attention_of(grouped(16, 32, 8)), A100, {"split_k": 1, "blocks": 8 * 16}),
        (attention_of(grouped(16, 8, 1)), "h20", {"split_k": 4, "blocks": 4 * 16}),
        (attention_of(grouped(1, 32, 32)), A100, {"split_k": 3, "blocks": 3 * 32, "tile_q": 16}),
        (attention_of(grouped(1, 32, 1)), A100, {"tile_q": 32}),
        # FlashAttention that writes the cache: a block a head, parts by key heads, and its tile for parts at one, too
        (attention_of(grouped(1, 24, 8)), A100, {"split_k": 11, "blocks": 11 * 24, "tile_q": 64, "tile_k": 128}),
        (attention_of(grouped(1, 28, 4)), A100, {"split_k": 16, "blocks": 16 * 28}),
        (attention_of(grouped(1, 24, 8, local_window_size=1024)), A100, {"split_k": 8}),
        (attention_of(grouped(16, 24, 8)), RTX_4090, {"split_k": 1, "blocks": 16 * 24, "tile_q": 64, "tile_k": 128}),
        # ONNX Runtime's takes parts for one block an SM, of several queries as well
        (attention_of(grouped(1, 32, 8, s=4)), A100, {"split_k": 3, "blocks": 3 * 32}),
        (step(1, 32, 8, library="onnxruntime"), A100, {"split_k": 3, "blocks": 3 * 32, "packed": 0}),
        (step(1, 32, 8, library="onnxruntime"), "h20", {"split_k": 2, "blocks": 2 * 32}),
        (step(16, 32, 8, library="onnxruntime"), A100, {"blocks": 16 * 32, "tile_q": 128, "tile_k": 64}),
        (step(16, 32, 32, library="onnxruntime"), RTX_4090, {"blocks": 16 * 32, "tile_q": 64, "tile_k": 64}),
        (step(1, 32, 8, library="onnxruntime", variants=(IN_PAGES,)), A100, {"blocks": 32, "tile_q": 64}),
        # PyTorch's packs, and takes them for two
        (step(1, 32, 8), A100, {"split_k": 16, "blocks": 16 * 8, "packed": 1, "tile_q": 64}),
        (step(16, 32, 8), A100, {"split_k": 3, "blocks": 3 * 128}),
        (step(16, 32, 8), H100, {"split_k": 2, "blocks": 2 * 128}),
        (step(1, 32, 32), H100, {"split_k": 7}),
        (step(16, 32, 32), A100, {"split_k": 1, "blocks": 16 * 32, "tile_q": 128, "tile_k": 64}),
        (step(16, 32, 32, t=512), RTX_4090, {"split_k": 1, "tile_q": 128, "tile_k": 32}),
        # of prompts, too
        (step(1, 12, 12, 512, s=512, d=64, v=64, causal=False), A100, {"split_k": 2, "blocks": 8 * 2 * 12}),
        (step(1, 16, 16, 256, s=256, causal=False), A100, {"split_k": 2, "blocks": 4 * 2 * 16}),
        (step(1, 8, 8, 1024, s=1024, d=64, v=64, causal=False), A100, {"split_k": 4, "blocks": 16 * 4 * 8}),
    ],
    ids=str,
)
def test_grids(kernel: Attention, gpu: str, grid: dict[str, float]) -> None:
    found = pinned(kernel, gpu)
    assert {name: found[name] for name in grid} == grid


def test_turing_without_flash_attention_2_keeps_what_it_had() -> None:
    asked = step(16, 32, 8, library="onnxruntime", variants=(BY_CUDNN, APPENDING))
    found, newest = (latencies([kernel], "t4") for kernel in (asked, replace(asked, library="", variants=())))
    assert found == newest


@pytest.mark.parametrize(
    ("works", "capability", "count"),
    [
        pytest.param(grouped(1, 32, 8), 8.0, 4, id="xqa"),  # counters of its blocks are set to zero before
        pytest.param(grouped(1, 24, 8), 8.0, 1, id="flash-attention"),
        pytest.param(grouped(1, 24, 8), 9.0, 3, id="cudnn"),
        pytest.param(grouped(1, 24, 8), 7.5, 3, id="turing"),
        pytest.param(grouped(1, 24, 8), None, 3, id="amd"),
        pytest.param(grouped(1, 32, 8, softcap=30.0), 9.0, 1, id="softcap"),
    ],
)
def test_flash_attention_writes_the_cache_itself(
    works: tuple[NodeWork, ...], capability: float | None, count: int
) -> None:
    (work,) = appending_on(works, capability)
    assert len(work.kernels) == count


@pytest.mark.parametrize(
    ("works", "capability", "variants"),
    [
        pytest.param(grouped(1, 32, 8), None, (), id="amd-has-no-xqa"),
        pytest.param(grouped(1, 24, 8), None, (), id="nor-cudnn"),
        pytest.param(grouped(1, 32, 8), 7.5, (), id="nor-has-turing"),
        pytest.param(grouped(1, 32, 8), 8.0, (BY_XQA,), id="ampere"),
        pytest.param(grouped(1, 24, 8), 8.0, (APPENDING,), id="cudnn-from-hopper-on"),
        pytest.param(grouped(1, 24, 8), 9.0, (BY_CUDNN, APPENDING), id="hopper"),
    ],
)
def test_attention_asks_for_what_the_gpu_has(
    works: tuple[NodeWork, ...], capability: float | None, variants: tuple[str, ...]
) -> None:
    assert attention_of(tuple(asked_on(works, capability))).variants == variants


@pytest.mark.parametrize(("capability", "fills"), [(8.0, 1), (7.5, 0), (None, 0)])
def test_counters_are_set_for_xqa_alone(capability: float | None, fills: int) -> None:
    (work,) = asked_on(grouped(4, 32, 8), capability)
    found = [kernel for kernel in work.kernels if isinstance(kernel, Movement) and kernel.operation == "fill"]
    assert [kernel.write_bytes for kernel in found] == [4 * 4 * 8] * fills


@pytest.mark.parametrize(("s", "variants"), [(512, ()), (1, (BY_XQA,))])
def test_sinks_keep_cudnn_out(s: int, variants: tuple[str, ...]) -> None:
    """GroupQueryAttention of 64 heads on 8 of 64 with head_sink, as gpt-oss has it: FlashAttention, and XQA."""
    node = "y, nk, nv = com.microsoft.GroupQueryAttention<num_heads=64, kv_num_heads=8>(q, , , pk, pv, n, t, , , , , k)"
    shapes = {"q": (1, s, 80 * 64), "n": (1,), "t": (), "k": (64,), "pk": (1, 8, 64, 64), "pv": (1, 8, 64, 64)}
    types = dict.fromkeys(shapes, HALF) | {"n": INT32, "t": INT32}
    assert attention_of(lower(inferred(node, shapes, types=types), runtime="onnxruntime")).variants == variants


@pytest.mark.parametrize(("gpu", "h", "g"), [("mi300x", 28, 4), ("mi300x", 14, 2), ("mi210", 28, 4), ("mi355x", 8, 1)])
def test_a_longer_cache_is_not_quicker_on_amd(gpu: str, h: int, g: int) -> None:
    """A token more halved the parts that an MI300X adds: 36.6 us at 16,384 tokens, 26.7 at 16,385."""
    tokens = sorted(length + more for length in range(1024, 65536, 1024) for more in (0, 1))
    found = np.array(latencies([step(1, h, g, t, library="onnxruntime") for t in tokens], gpu))
    assert (found[1:] / found[:-1]).min() > 0.98


@pytest.mark.parametrize(
    ("kernel", "used"),
    [
        pytest.param(step(16, 32, 8), NEWEST, id="packed-and-cut"),
        pytest.param(step(64, 32, 8), FLASH2, id="uncut"),
        pytest.param(step(1, 32, 8, library="onnxruntime"), FLASH2, id="apart"),
        pytest.param(step(1, 32, 32, library="onnxruntime"), NEWEST, id="a-key-head-each"),
        pytest.param(step(1, 12, 12, 512, s=512), FLASH2, id="a-prompt-that-is-cut"),
        pytest.param(step(8, 12, 12, 512, s=512), NEWEST, id="a-prompt-that-is-not"),
        pytest.param(step(1, 12, 12, 128, s=128), NEWEST, id="a-tile-of-keys"),
    ],
)
def test_the_residual_is_kept_where_kernels_are_as_measured(kernel: Attention, used: str) -> None:
    assert kernel_of(kernel, load_gpu(A100)) == used


def latencies(kernels: list[Attention], gpu: str) -> list[float]:
    given: list[Kernel] = list(kernels)
    return [prediction.latency_us for prediction in predict(given, load_gpu(gpu))]


@pytest.mark.parametrize("gpu", [A100, H100, "l40s", RTX_4090, "rtx-5090", "h20", "b200-sxm"])
@pytest.mark.parametrize(("h", "g"), [(32, 8), (8, 1), (32, 32)])
def test_xqa_takes_no_jumps(gpu: str, h: int, g: int) -> None:
    """Twice the batch takes at most a tenth more than twice the time, never 2 % less."""
    batches = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    found = latencies([step(b, h, g, library="onnxruntime", variants=(BY_XQA,)) for b in batches], gpu)
    grown = np.array(found[1:]) / np.array(found[:-1])
    assert grown.min() > 0.98
    assert grown.max() < 2.2


def test_an_h20_reads_keys_as_fast_as_its_memory_allows() -> None:
    """64 rows by mma left DRAM idle for three quarters of the time; XQA's are 16."""
    kernel = step(64, 32, 8, 32768, library="onnxruntime", variants=(BY_XQA,))
    least = 1e6 * kernel.read_bytes / load_gpu("h20").memory_bytes_per_s
    assert latencies([kernel], "h20")[0] < 1.5 * least


@pytest.mark.parametrize("variants", [(), (APPENDING,), (IN_PAGES,)], ids=str)
def test_heads_that_stand_apart_read_the_keys_again(variants: tuple[str, ...]) -> None:
    """Seven heads on one take an A100 thrice as long at least where each has a block, of 64 or 128 rows."""
    apart = step(32, 28, 4, library="onnxruntime", variants=variants)
    packed = replace(apart, library="")
    found = latencies([packed, apart], A100)
    assert found[1] > 3.0 * found[0]


def test_cudnn_is_taken_to_be_as_fast_as_the_newest_but_is_doubted() -> None:
    asked = Attention(
        b=8,
        h=16,
        g=16,
        s=2048,
        t=2048,
        d=128,
        v=128,
        dtype=DataType.FLOAT16,
        library="onnxruntime",
        variants=(BY_CUDNN,),
    )
    flash = replace(asked, variants=())
    newest = replace(asked, library="")
    by_cudnn, by_flash, by_newest = predict([asked, flash, newest], load_gpu(H100))
    assert by_cudnn.latency_us == pytest.approx(by_newest.latency_us, rel=0.15)
    assert by_cudnn.latency_us < 0.8 * by_flash.latency_us
    assert by_cudnn.high_us / by_cudnn.latency_us > by_newest.high_us / by_newest.latency_us
