"""Allocators, scratch, caches, verdicts and the largest batch, each against figures worked out by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from onnx.parser import parse_model

from models import decoder
from neusight_onnx import analyze
from neusight_onnx.backward import make_training
from neusight_onnx.cli import main
from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import BindingError, ModelError
from neusight_onnx.graph.model import Declared, Graph, InferredGraph, Initializer, Node, Value
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.kernels import Attention, Conv, Elementwise, Gemm, Kernel, Movement, NodeWork, Sort, TensorSpec
from neusight_onnx.memory import in_two_buffers, largest_batch, memory_on, run_memory, verdict
from neusight_onnx.memory.allocators import arena_bytes, caching_bytes, planned_bytes
from neusight_onnx.memory.caches import cache_pairs
from neusight_onnx.memory.largest import MOST_BATCH
from neusight_onnx.memory.order import demand_order
from neusight_onnx.memory.workspace import scratch_of
from neusight_onnx.report.memory import largest_batch_text
from neusight_onnx.report.model import FITS, LargestBatch, MemoryEstimate
from neusight_onnx.report.quantities import capacity
from report_cases import GPU, REPORT

ROOT = Path(__file__).parents[1]
F32 = DataType.FLOAT32
MIB = 1 << 20


# --- allocators -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allocate", "sizes", "requests", "expected"),
    [
        pytest.param(caching_bytes, [], [], 0, id="nothing"),
        # 1 B takes 512 B of a segment of 2 MiB
        pytest.param(caching_bytes, [1], [1], 2 * MIB, id="a small one"),
        # two of 1 MiB fill a small segment, the third needs another
        pytest.param(caching_bytes, [MIB] * 3, [1, 2, 3], 4 * MIB, id="small segments"),
        # 1 MiB + 1 B is large: a segment of 20 MiB holds 19 blocks of 1 MiB + 512 B, and no 20th
        pytest.param(caching_bytes, [MIB + 1] * 19, range(1, 20), 20 * MIB, id="a large segment"),
        pytest.param(caching_bytes, [MIB + 1] * 20, range(1, 21), 40 * MIB, id="another large segment"),
        # from 10 MiB on a segment of its own, rounded to 2 MiB
        pytest.param(caching_bytes, [11 * MIB], [1], 12 * MIB, id="its own segment"),
        pytest.param(caching_bytes, [10 * MIB - 512, 10 * MIB], [1, 2], 20 * MIB, id="in a large segment's rest"),
        # given back, it is used again; joined neighbours, too
        pytest.param(caching_bytes, [12 * MIB] * 2, [1, -1, 2], 12 * MIB, id="again"),
        pytest.param(
            caching_bytes, [6 * MIB, 6 * MIB, 12 * MIB, 8 * MIB], [1, 2, -1, -2, 3, 4], 20 * MIB, id="neighbours join"
        ),
        # 12 MiB are free, but in two places
        pytest.param(
            caching_bytes, [6 * MIB, 6 * MIB, 8 * MIB, 12 * MIB], [1, 2, 3, -1, -3, 4], 32 * MIB, id="fragmented"
        ),
        # 12 MiB in a segment of 13 -> 14 MiB: the 1 MiB or less that is left stays with it
        pytest.param(caching_bytes, [14 * MIB, 13 * MIB, MIB + 1], [1, -1, 2, 3], 34 * MIB, id="no split for 1 MiB"),
        pytest.param(arena_bytes, [1], [1], MIB, id="first region"),
        pytest.param(arena_bytes, [MIB, MIB], [1, 2], 3 * MIB, id="regions double"),
        pytest.param(arena_bytes, [5 * MIB], [1], 8 * MIB, id="doubled until it fits"),
        # after one that was doubled to fit the next is no larger: 8, then 8 again
        pytest.param(arena_bytes, [5 * MIB, 5 * MIB], [1, 2], 16 * MIB, id="a chunk less than twice is not split"),
        pytest.param(arena_bytes, [3 * MIB, MIB], [1, 2], 8 * MIB, id="3 of 4 MiB is not split either"),
        pytest.param(arena_bytes, [2 * MIB, 4 * MIB, MIB, MIB], [1, 2, -2, 3, 4], 6 * MIB, id="twice is split"),
        pytest.param(planned_bytes, [1, 300], [1, 2], 256 + 512, id="rounded to 256"),
        # a 1024 | b 256 after it; a goes; c 768 and d 256 lie in its place
        pytest.param(planned_bytes, [1024, 256, 768, 256], [1, 2, -1, 3, 4], 1280, id="gaps"),
        # b alone is left at 1024: c needs 1280, more than the gap: behind b
        pytest.param(planned_bytes, [1024, 256, 1280], [1, 2, -1, 3], 1280 + 1280, id="a gap too small"),
        pytest.param(planned_bytes, [1024, 256, 1280], [1, 2, -2, -1, 3], 1280, id="the end grows"),
        pytest.param(planned_bytes, [0, 256], [1, 2, -1], 256, id="empty"),
    ],
)
def test_allocators(
    allocate: Callable[[Sequence[int], Sequence[int]], int], sizes: list[int], requests: Sequence[int], expected: int
) -> None:
    assert allocate(sizes, requests) == expected


# --- scratch ----------------------------------------------------------------------------------------------------------

CONV = Conv(n=2, c=8, k=16, spatial=(16, 16), out=(16, 16), filter=(3, 3), strides=(1, 1), dilations=(1, 1), dtype=F32)
ATTENTION = Attention(b=2, h=4, g=4, s=8, t=32, d=16, v=16, dtype=F32)
COPIED = Movement(operation="copy", dtype=F32, shape=(10,), read=40, written=40)
GEMM = Gemm(m=1, n=25, k=4, dtype=F32)
SPEC = TensorSpec(dtype=F32, shape=(5,))
ADD = Elementwise(operations=("add",), inputs=(SPEC,), output=SPEC)
WIDE, NARROW = TensorSpec(dtype=F32, shape=(10,)), TensorSpec(dtype=DataType.INT8, shape=(10,))
QUANTISE = Elementwise(operations=("quantize",), inputs=(WIDE,), output=NARROW)
DEQUANTISE = Elementwise(operations=("dequantize",), inputs=(NARROW,), output=WIDE)


@pytest.mark.parametrize(
    ("kernels", "expected"),
    [
        pytest.param((GEMM,), (0, 0, 0), id="none"),
        # indices: 4 B x (16 x 16 places + 8 x 9 of the filter); Winograd: 36 float32 for each of 2 x 4 x 4 tiles of
        # 8 + 16 channels, and for 8 x 16 filters
        pytest.param((CONV,), (0, 4 * (256 + 72), 4 * 36 * (32 * 24 + 128)), id="convolution"),
        pytest.param((replace(CONV, strides=(2, 2)),), (0, 1312, 1312), id="no Winograd with strides"),
        pytest.param((replace(CONV, groups=8, k=8),), (0, 4 * (256 + 9), 4 * (256 + 9)), id="no Winograd in groups"),
        # one float32 a query; scores twice
        pytest.param((ATTENTION,), (0, 4 * 2 * 4 * 8, 2 * 4 * 2 * 4 * 8 * 32), id="attention"),
        # no scores: a float32 number a query, and for each of 64 parts of 64 keys one more and 16 sums
        pytest.param(
            (replace(ATTENTION, library="onnxruntime", t=4096),), (0, 256, 256 + 64 * 256 * 17), id="fused, in parts"
        ),
        # 2 x 4 x 64 blocks of queries: keys aren't split
        pytest.param(
            (replace(ATTENTION, library="pytorch", s=4096, t=4096),),
            (0, 4 * 2 * 4 * 4096, 4 * 2 * 4 * 4096 * 18),
            id="fused, a long prompt",
        ),
        # a buffer of keys and int64 indices
        pytest.param(
            (Sort(operation="sort", rows=3, cols=100, kept=100, dtype=F32, output_bytes=1),), (0, 3600, 3600), id="sort"
        ),
        # both copies are there while the product runs
        pytest.param((COPIED, COPIED, GEMM), (80, 80, 80), id="copies"),
        # what the product hands to the addition; the copy is still held
        pytest.param((COPIED, GEMM, ADD), (140, 140, 140), id="a product inside"),
        # ten elements in a byte each
        pytest.param((QUANTISE, GEMM), (10, 10, 10), id="an operand is quantised"),
        # the small one is gone when the product runs
        pytest.param((QUANTISE, DEQUANTISE, GEMM), (50, 50, 50), id="an operand is rounded"),
        # both operands in four bytes an element are there while the product runs
        pytest.param((QUANTISE, DEQUANTISE, DEQUANTISE, GEMM), (80, 80, 80), id="both operands are dequantised"),
    ],
)
def test_scratch(kernels: tuple[Kernel, ...], expected: tuple[int, int, int]) -> None:
    assert scratch_of(NodeWork(node="n", op_type="Op", kernels=kernels)) == expected


def test_attention_that_may_not_be_fused_may_hold_its_scores() -> None:
    kernel = replace(ATTENTION, library="onnxruntime")
    assert scratch_of(NodeWork(node="n", op_type="QAttention", kernels=(kernel,))).high == 2 * 4 * 2 * 4 * 8 * 32
    assert scratch_of(NodeWork(node="n", op_type="Attention", kernels=(kernel,))).high == 256 * 18


# --- order ------------------------------------------------------------------------------------------------------------


def test_demand_order() -> None:
    """a, b are read by c; d by nobody, the last: it comes first. Of c's inputs the later producer, b, comes first."""
    nodes = [Node(name=name, op_type="Op", outputs=(name,)) for name in "abcd"]
    order = demand_order(nodes, [("x",), ("x",), ("a", "b"), ("a",)])
    assert [nodes[at].name for at in order] == ["a", "d", "b", "c"]


# --- caches -----------------------------------------------------------------------------------------------------------


def with_cache(*nodes: Node, length: int = 4) -> InferredGraph:
    """past (2, 3, 4, 5) and new (2, 3, 1, 5) make present (2, 3, length, 5), float32."""
    shapes = {
        "past": (2, 3, 4, 5),
        "new": (2, 3, 1, 5),
        "three": (2, 3, 3, 5),
        "present": (2, 3, length, 5),
        "y": (2, 3, length, 5),
    }
    values = {name: Value(dtype=F32, shape=shapes.get(name, (1,))) for node in nodes for name in node.outputs}
    values |= {name: Value(dtype=F32, shape=shapes[name]) for name in ("past", "new", "three")}
    return InferredGraph(
        graph=Graph(
            name="g",
            nodes=nodes,
            inputs=(Declared(name="past"), Declared(name="new")),
            outputs=(Declared(name="present"),),
            initializers={},
            declared={},
        ),
        values=values,
    )


JOIN = Node(name="join", op_type="Concat", inputs=("past", "new"), outputs=("present",))
SHARING = Node(
    name="attention",
    op_type="GroupQueryAttention",
    domain="com.microsoft",
    inputs=("new", "new", "new", "past"),
    outputs=("y", "present"),
)


@pytest.mark.parametrize(
    ("graph", "sharing", "peak_bytes", "low_bytes", "high_bytes"),
    [
        # past 480, new 120, present 600; at the low end the past's 480 go when the present is there
        pytest.param(with_cache(JOIN, length=5), "twice", 1200, 720, 1200, id="Concat"),
        # past and present are one buffer of 600 (the longer); y 600 beside it
        pytest.param(with_cache(SHARING, length=5), "once", 1320, 1320, 1320, id="GroupQueryAttention"),
        pytest.param(
            with_cache(replace(JOIN, inputs=("new", "past")), length=5), "twice", 1200, 1080, 1200, id="swapped"
        ),
        pytest.param(with_cache(replace(JOIN, op_type="Add"), length=5), "none", 1200, 1200, 1200, id="no cache"),
    ],
)
def test_caches(graph: InferredGraph, sharing: str, peak_bytes: int, low_bytes: int, high_bytes: int) -> None:
    work = [NodeWork(node=node.name, op_type=node.op_type, kernels=(COPIED,)) for node in graph.graph.nodes]
    run = run_memory(graph, work, "eager")
    assert memory_on(run, GPU).cache_sharing == sharing
    found = run.found
    assert (found.peak_bytes, found.low_peak_bytes, found.high_peak_bytes) == (peak_bytes, low_bytes, high_bytes)


SCATTER = Node(name="write", op_type="TensorScatter", inputs=("past", "new"), outputs=("present",))


@pytest.mark.parametrize(
    ("graph", "new_tokens"),
    [
        pytest.param(with_cache(JOIN, length=5), 1, id="Concat"),
        pytest.param(with_cache(replace(JOIN, inputs=("past", "three")), length=7), 3, id="three"),
        pytest.param(with_cache(SHARING, length=5), 1, id="GroupQueryAttention"),
        pytest.param(with_cache(SHARING, length=4), 1, id="GroupQueryAttention in a buffer of the greatest length"),
        pytest.param(with_cache(SHARING, length=9), 1, id="GroupQueryAttention, a present of another length"),
        pytest.param(with_cache(SCATTER, length=4), 1, id="TensorScatter"),
        pytest.param(
            with_cache(replace(SHARING, op_type="PagedAttention"), length=4), None, id="paged, without a table"
        ),
        pytest.param(with_cache(replace(JOIN, op_type="Add"), length=5), None, id="no cache"),
    ],
)
def test_tokens_that_a_cache_grows_by(graph: InferredGraph, new_tokens: int | None) -> None:
    work = [NodeWork(node=node.name, op_type=node.op_type, kernels=(COPIED,)) for node in graph.graph.nodes]
    assert memory_on(run_memory(graph, work, "eager"), GPU).new_token_count == new_tokens


PAGED = """
    <ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
    g (float16[tokens, 512] q, int32[offsets] offsets, int32[batch] past, int32[batch, most] table,
       float16[blocks, 256, 2, 64] pk, float16[blocks, 256, 2, 64] pv) => (float16[tokens, 256] y,
       float16[blocks, 256, 2, 64] nk, float16[blocks, 256, 2, 64] nv)
    { y, nk, nv = com.microsoft.PagedAttention<num_heads = 4, kv_num_heads = 2>(q, , , pk, pv, offsets, past, table) }
"""


@pytest.mark.parametrize(
    ("dims", "new_tokens"), [({}, 1), ({"tokens": 24}, 3), ({"tokens": 12}, 1.5)], ids=["decoding", "several", "uneven"]
)
def test_new_tokens_of_a_paged_cache(dims: dict[str, int], new_tokens: float) -> None:
    """Those of all sequences lie in one row: their share of it is each one's."""
    report = analyze(read_model_bytes(parse_model(PAGED).SerializeToString()), gpu="l4", batch=8, dims=dims)
    assert (report.totals.batch_size, report.totals.memory.new_token_count) == (8, new_tokens)
    assert report.totals.tokens_per_s == pytest.approx(8 * new_tokens / report.totals.latency_ms * 1e3)


@pytest.mark.parametrize(
    ("dims", "new_tokens", "cached_tokens"),
    [({"total_sequence_length": 2048}, 1, 2048), ({"past_sequence_length": 0, "sequence_length": 512}, 512, 512)],
    ids=["decoding", "prompt"],
)
def test_a_decoder_as_genai_exports_it(dims: dict[str, int], new_tokens: int, cached_tokens: int) -> None:
    report = analyze(read_model_bytes(decoder().SerializeToString()), gpu="l4", batch=8, dims=dims)
    totals, memory = report.totals, report.totals.memory
    assert (report.unsupported, totals.batch_size, memory.new_token_count) == ((), 8, new_tokens)
    assert totals.tokens_per_s == pytest.approx(8 * new_tokens / totals.latency_ms * 1e3)
    # keys and values of 2 layers, 8 sequences, 2 groups of 64 in 16 bits, once: GroupQueryAttention writes in place
    assert (memory.cache_sharing, memory.cache_bytes) == ("once", 2 * 2 * 8 * 2 * cached_tokens * 64 * 2)
    # the embedding and the head, the products of two layers; 2 tables of 4,096 x 32 and 5 norms; scales are none
    assert report.model.parameter_count == 256_000 * 2 + 2 * (256 * 768 + 3 * 256 * 512) + 263_424
    assert totals.read_bytes > memory.weight_bytes / 2


@pytest.mark.parametrize(("parts", "peak_bytes"), [((), 1320), (("n",), 1200)], ids=["copied", "in place"])
def test_parts_that_lie_in_a_concatenation_need_no_memory_of_their_own(parts: tuple[str, ...], peak_bytes: int) -> None:
    """past 480, new 120, n 120, present 600, of which n's 120 are n."""
    made = Node(name="made", op_type="Relu", inputs=("new",), outputs=("n",))
    graph = with_cache(made, replace(JOIN, inputs=("past", "n")), length=5)
    graph = replace(graph, values={**graph.values, "n": graph.values["new"]})
    work = [NodeWork(node=node.name, op_type=node.op_type, kernels=(COPIED,)) for node in graph.graph.nodes]
    work[1] = replace(work[1], parts=parts)
    found = run_memory(graph, work, "compiled").found
    assert found.peak_bytes == peak_bytes
    assert found.live_bytes == 1200
    work[1] = replace(work[1], kernels=(), free="in place", written=True, parts=parts)
    assert run_memory(graph, work, "compiled").found.peak_bytes == peak_bytes


def test_a_cache_that_a_conversion_casts_is_two_buffers() -> None:
    """The model's past and present stay float32; GroupQueryAttention reads and writes their casts."""
    nodes = (
        Node(name="1", op_type="Cast", inputs=("past",), outputs=("p",)),
        replace(SHARING, inputs=("new", "new", "new", "p"), outputs=("y", "both")),
        Node(name="2", op_type="Cast", inputs=("both",), outputs=("present",)),
    )
    graph = with_cache(*nodes, length=5)
    (pair,) = cache_pairs(graph)
    assert (pair.past, pair.present, pair.shared, pair.new_tokens) == ("past", "present", False, 1)


def test_a_cache_is_followed_through_all_that_exporters_pack_it_with() -> None:
    """Six views before the Concat and six behind, as split, sliced, squeezed, reshaped and cast caches have."""
    before = [Node(name=f"b{i}", op_type="Identity", inputs=(f"p{i}",), outputs=(f"p{i + 1}",)) for i in range(6)]
    behind = [Node(name=f"a{i}", op_type="Identity", inputs=(f"n{i}",), outputs=(f"n{i + 1}",)) for i in range(6)]
    before[0], behind[-1] = replace(before[0], inputs=("past",)), replace(behind[-1], outputs=("present",))
    graph = with_cache(*before, Node(name="c", op_type="Concat", inputs=("p6", "new"), outputs=("n0",)), *behind)
    joined = {**graph.values, "n0": Value(dtype=F32, shape=(2, 3, 5, 5))}
    pairs = cache_pairs(replace(graph, values=joined))
    assert [(pair.past, pair.present) for pair in pairs] == [("past", "present")]


def test_a_packed_cache_is_found_behind_views() -> None:
    """past -> Squeeze -> Concat -> Unsqueeze -> present; a mask of int64 that grows is none."""
    nodes = (
        Node(name="1", op_type="Squeeze", inputs=("past",), outputs=("p",)),
        Node(name="2", op_type="Concat", inputs=("p", "new"), outputs=("both",)),
        Node(name="3", op_type="Unsqueeze", inputs=("both",), outputs=("present",)),
    )
    graph = with_cache(*nodes)
    joined = {**graph.values, "both": Value(dtype=F32, shape=(2, 3, 5, 5))}
    pairs = cache_pairs(replace(graph, values=joined))
    assert [(pair.past, pair.present, pair.shared) for pair in pairs] == [("past", "present", False)]
    mask = {**joined, "past": Value(dtype=DataType.INT64, shape=(2, 3, 4, 5))}
    assert cache_pairs(replace(graph, values=mask)) == ()


# --- weights ----------------------------------------------------------------------------------------------------------


def test_a_weight_counts_once_at_its_true_width() -> None:
    """5 int4 in 3 bytes, read by two nodes; 10 float32 in 40; 7 that nobody reads in none."""
    weights = {"w": (DataType.INT4, 5), "v": (F32, 10), "unread": (F32, 7)}
    nodes = (
        Node(name="1", op_type="Op", inputs=("x", "w", "v"), outputs=("a",)),
        Node(name="2", op_type="Op", inputs=("a", "w"), outputs=("y",)),
    )
    values = {name: Value(dtype=dtype, shape=(count,), is_constant=True) for name, (dtype, count) in weights.items()}
    graph = InferredGraph(
        graph=Graph(
            name="g",
            nodes=nodes,
            inputs=(Declared(name="x"),),
            outputs=(Declared(name="y"),),
            initializers={
                name: Initializer(name=name, dtype=dtype, shape=(count,)) for name, (dtype, count) in weights.items()
            },
            declared={},
        ),
        values=values | {name: Value(dtype=F32, shape=(1,)) for name in "xay"},
    )
    work = [NodeWork(node=node.name, op_type="Op", kernels=(COPIED,)) for node in nodes]
    assert memory_on(run_memory(graph, work, "eager"), GPU).weight_bytes == 43


# --- verdict and largest batch ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peak_bytes", "high_bytes", "expected"),
    [(50, 90, "fits"), (50, 91, "tight"), (100, 120, "tight"), (101, 120, "does not fit")],
)
def test_verdict(peak_bytes: int, high_bytes: int, expected: str) -> None:
    assert verdict(peak_bytes, high_bytes, 100) == expected


def estimate(high_bytes: int, available_bytes: int = 100_000) -> MemoryEstimate:
    return replace(
        REPORT.totals.memory,
        peak_bytes=high_bytes,
        high_bytes=high_bytes,
        activation_bytes=high_bytes // 2,
        available_bytes=available_bytes,
        verdict=verdict(high_bytes, high_bytes, available_bytes),
    )


def search(high_bytes: Callable[[int], int], start: int = 1) -> tuple[LargestBatch, int]:
    """The answer, and how often it was measured."""
    calls: list[int] = []

    def measure(size: int) -> MemoryEstimate:
        calls.append(size)
        return estimate(high_bytes(size))

    found = largest_batch(measure, "batch", start, estimate(high_bytes(start)))
    assert len(calls) == len(set(calls))
    return found, len(calls)


@pytest.mark.parametrize(
    ("high_bytes", "start", "size", "most_calls"),
    [
        # 90,000 is the limit: (90,000 - 10,000) / 7 = 11,428.6
        pytest.param(lambda n: 10_000 + 7 * n, 1, 11_428, 4, id="a line"),
        pytest.param(lambda n: 10_000 + 7 * n, 40_000, 11_428, 4, id="from above"),
        pytest.param(lambda n: 7 * n // 2_000 * 2_000, 1, 13_142, 30, id="steps"),
        pytest.param(lambda n: 50_000 + n * n, 1, 200, 25, id="a parabola"),
        pytest.param(lambda n: 89_000 + 1_000 * n, 1, 1, 3, id="just one"),
        pytest.param(lambda n: 90_001 + n, 1, 0, 1, id="none"),
    ],
)
def test_largest_batch(high_bytes: Callable[[int], int], start: int, size: int, most_calls: int) -> None:
    found, calls = search(high_bytes, start)
    assert found.size == size
    assert found.high_bytes == (high_bytes(size) if size else 0)
    assert found.next_high_bytes == high_bytes(size + 1)
    assert found.limited_by == "the GPU's memory"
    assert calls <= most_calls


def test_a_size_above_that_fits_again_is_found() -> None:
    """Blocks of 4 sizes: 89 fits, 90 to 92 don't, and 93 does."""
    used = {0: 0, 1: 3_000, 2: 3_000, 3: 3_000}

    def high_bytes(size: int) -> int:
        return 900 * size + 6_100 + used[(size - 1) % 4]

    fitting = [size for size in range(1, 200) if high_bytes(size) <= 90_000]
    assert fitting[-3:] == [88, 89, 93]
    assert search(high_bytes)[0].size == 93


def test_more_memory_used_never_makes_the_largest_batch_larger() -> None:
    """Optimizers with more and more states, over the same blocks of activations."""
    sizes = []
    for optimizer in ("none", "momentum", "adamw-fused", "adamw"):
        report = analyze(
            ROOT / "examples" / "resnet50.onnx",
            gpu="t4",
            training=make_training(optimizer=optimizer),
            with_largest_batch=True,
        )
        assert report.totals.memory.largest_batch is not None
        sizes.append(report.totals.memory.largest_batch.size)
    assert sizes == sorted(sizes, reverse=True)


def test_what_never_fills_the_memory_is_not_followed_forever() -> None:
    found, calls = search(lambda n: 1_000)
    assert (found.size, found.next_high_bytes) == (MOST_BATCH, None)
    assert "not tried" in found.limited_by
    assert calls <= 30


def test_a_size_that_the_model_does_not_allow_ends_the_search() -> None:
    def measure(size: int) -> MemoryEstimate:
        if size > 37:
            raise ModelError("Reshape: 37 rows are written down")
        return estimate(1_000 + size)

    found = largest_batch(measure, "batch", 1, estimate(1_001))
    assert (found.size, found.high_bytes, found.next_high_bytes) == (37, 1_037, None)
    assert found.limited_by == "the model does not allow 38: Reshape: 37 rows are written down"


def test_the_largest_batch_hangs_on_no_batch_that_was_asked_for() -> None:
    found = {
        analyze(
            ROOT / "examples" / "resnet50.onnx",
            gpu="a100",
            batch=batch,
            training=make_training(),
            with_largest_batch=True,
        ).totals.memory.largest_batch
        for batch in (1, 64, 256)
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    ("gpu", "runtime"), [("t4", "eager"), ("a100", "compiled")], ids=["a small GPU", "another runtime"]
)
def test_the_largest_batch_of_a_model_is_exact(gpu: str, runtime: str) -> None:
    path = ROOT / "examples" / "bert_base.onnx"
    report = analyze(path, gpu=gpu, runtime=runtime, with_largest_batch=True)
    found = report.totals.memory.largest_batch
    assert found is not None
    at = analyze(path, gpu=gpu, runtime=runtime, dims={"batch": found.size}).totals.memory
    behind = analyze(path, gpu=gpu, runtime=runtime, dims={"batch": found.size + 1}).totals.memory
    assert (at.verdict, at.high_bytes) == ("fits", found.high_bytes)
    assert (behind.verdict, behind.high_bytes) == ("tight", found.next_high_bytes)


def test_the_largest_batch_is_told_for_a_cache_in_two_buffers_too() -> None:
    """GroupQueryAttention's past and present are one buffer, for memory as for latency; a caller may bind two."""
    dims = {"total_sequence_length": 4096}
    model = read_model_bytes(decoder().SerializeToString())
    found = analyze(model, gpu="l4", dims=dims, with_largest_batch=True).totals.memory.largest_batch
    assert found is not None
    assert found.size_in_one_buffer == found.size
    assert found.size_in_two_buffers is not None
    assert found.size_in_two_buffers < found.size
    fits = analyze(model, gpu="l4", batch=found.size, dims=dims).totals.memory
    assert fits.verdict == FITS
    assert in_two_buffers(fits).verdict != FITS
    assert in_two_buffers(fits).high_bytes - fits.high_bytes == fits.cache_bytes
    said = f"two buffers would take {capacity(fits.cache_bytes)} more"
    assert any("the latency assumes" in text and said in text for text in fits.assumptions)
    half = analyze(model, gpu="l4", batch=found.size_in_two_buffers, dims=dims).totals.memory
    assert in_two_buffers(half).verdict == FITS
    assert f"if they are two, {found.size_in_two_buffers:,} fits" in largest_batch_text(found)
    perceptron = Path(__file__).parent / "trained" / "perceptron.onnx"
    other = analyze(perceptron, gpu="l4", with_largest_batch=True).totals.memory.largest_batch
    assert other is not None
    assert (other.size_in_one_buffer, other.size_in_two_buffers) == (None, None)


def test_a_model_without_a_batch_has_no_largest_one(tmp_path: Path) -> None:
    import onnx

    loaded = onnx.load(str(ROOT / "examples" / "resnet50.onnx"), load_external_data=False)
    loaded.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4
    path = tmp_path / "fixed.onnx"
    onnx.save(loaded, str(path))
    with pytest.raises(BindingError, match=r"the largest batch: the file fixes .* \(images is 4x3x224x224\)"):
        analyze(path, gpu="a100", with_largest_batch=True)


# --- command line -----------------------------------------------------------------------------------------------------


COMMANDS = re.findall(r"^neusight-onnx (.*)$", (ROOT / "docs" / "memory.md").read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_page_run(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert main(command.replace("-o report.json", f"-o {tmp_path / 'report.json'}").split()) == 0


def test_the_timeline_is_there_where_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["analyze", str(ROOT / "examples" / "resnet50.onnx"), "--gpu", "a100", "--format", "json"]
    assert main(command) == 0
    memory = json.loads(capsys.readouterr().out)["totals"]["memory"]
    assert "timeline" not in memory
    assert "largest_batch" not in memory
    assert main([*command, "--memory-timeline"]) == 0
    memory = json.loads(capsys.readouterr().out)["totals"]["memory"]
    points = memory["timeline"]
    assert max(point["peak_bytes"] for point in points) == memory["activation_bytes"] + sum(
        tensor["byte_count"] for tensor in memory["peak_tensors"] if tensor["kind"] == "workspace"
    )
    # the image and the 1,000 classes are left
    assert points[-1]["live_bytes"] == 4 * (3 * 224 * 224 + 1000)


def test_the_cpu_of_a_system_on_a_chip_keeps_a_part_of_the_memory(tmp_path: Path) -> None:
    """1.5 GiB of the 8 that a Jetson's CPU and GPU share; all of a card's memory is the GPU's."""
    board = analyze(Path(__file__).parents[1] / "examples" / "resnet50.onnx", gpu="jetson-orin-nano-8gb", batch=1)
    assert board.totals.memory.available_bytes == board.gpu.memory_bytes - 1536 * 2**20
    assert any("1.50 GiB" in text and "shares the GPU's memory" in text for text in board.assumptions)
    card = analyze(Path(__file__).parents[1] / "examples" / "resnet50.onnx", gpu="l4", batch=1)
    assert card.totals.memory.available_bytes == card.gpu.memory_bytes
    assert not any("shares the GPU's memory" in text for text in card.assumptions)
