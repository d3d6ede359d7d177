"""Attention of serving frameworks: prefill, decoding, encoders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import SpecError
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import Attention, Kernel
from neusight_onnx.learning.datasets.parts import Part, device_part
from neusight_onnx.learning.datasets.tables import Table, grouped, ints, read_table, strings, take

ATTENTION = tuple(f"attention/{name}.parquet" for name in ("context", "generation", "encoder"))

_ATTENTION_FORMATS = {"bfloat16": DataType.BFLOAT16, "fp8": DataType.FLOAT8E4M3FN}

TIMED_ALONE: Mapping[str, tuple[str, ...] | None] = {
    "sglang": None,
    "trtllm": (),
    "vllm": ("vllm_flash_attn", "vllm_flashinfer", "vllm_triton_attn"),
}
"""Implementations by framework whose times hold the attention alone (None: all of them).

vLLM's other kernels are those of a later release, whose times hold the kernel that appends keys and values to the cache
as well: between the two lie 2.5 us and 1.1 (H100) to 3 (B200) times the time of its bytes at the DRAM's peak.
TensorRT-LLM splits, rotates and converts queries, keys and values in one kernel before, so that queries count as
written, too.
"""

LATER_RELEASE: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("context", "a100-sxm-80gb"): ("vllm_flash_attn",),
    ("generation", "a100-sxm-80gb"): ("vllm_flash_attn",),
    ("generation", "l40s"): ("vllm_flash_attn", "vllm_flashinfer"),
}
"""Kernels of ``TIMED_ALONE`` by file and GPU whose rows hold the kernel that writes the cache all the same.

An A100's prompts of the same heads and keys in all take longer the more tokens they are: 57 us for 8 sequences of 128
tokens of 32 heads, 130 for 64 of 4, 9.8 ns a token of 512 elements and more (543 pairs), half of that for 256, as one
block a token takes; SGLang's, by the same kernel of attention, 59.7 and 60.3. Its decoding of one token to no others
takes what its prompts of one token do. An L40S's decoding takes 1.01 times (153 shapes in 16 bits) and 1.003 (150 with
a cache in 8) what the later release's does, in the smallest as well, where its prompts are 2.7 us apart."""

_ATTENTION_FAULTS: Mapping[str, str] = {
    "vllm_vit_flash_attn": "slowed",
    "vllm_flash_attn_fa4": "wide heads",
}
"""Kernels of a framework whose rows are judged, but trained on nowhere.

``vllm_vit_flash_attn``: an encoder of 16 heads of 64 with 8 x 4,096 tokens takes an H100 3.7 ms, the next release's
kernel 1.2 ms, while smaller ones agree: something else ran on these cards. ``vllm_flash_attn_fa4`` stands in on H100
for heads of more than 256, which no other kernel there has."""


def _unsplit(gpu: NDArray[np.str_], source: NDArray[np.str_], table: Table) -> NDArray[np.bool_]:
    """Decoding with FlashAttention 2 where every query head has keys of its own: its entry for sequences of several
    lengths cuts rows of keys into parts only together with packing. PyTorch and ONNX Runtime call another entry."""
    flash = np.isin(source, ("vllm_flash_attn", "vllm_flash_attn_fa2"))
    alone = (table["num_heads"] == table["num_key_value_heads"]) & (table["isl"] == 1)
    older = {name: _capability(name) < 9.0 for name in set(gpu[flash & alone].tolist())}
    found: NDArray[np.bool_] = flash & alone & np.array([older.get(name, False) for name in gpu.tolist()])
    return found


def _few_parts(gpu: NDArray[np.str_], source: NDArray[np.str_], table: Table) -> NDArray[np.bool_]:
    """Decoding of many keys with the earlier release's FlashAttention 3 where heads are wider than 64 and keys have few
    of them: 16 x 16,384 keys of 8 bits in one head of 128 take an H100 103-111 us, 2 x 16,384 in eight heads 41, and
    the next release 44 and 42. Its scheduler leaves SMs idle."""
    flash = (source == "vllm_flash_attn") & (table["isl"] == 1) & (table["isl"] + table["step"] >= MANY_KEYS)
    few = (table["head_dim"] > 64) & (table["num_key_value_heads"] < 8) & ~(table["window_size"] > 0)
    hopper = {name: 9.0 <= _capability(name) < 10.0 for name in set(gpu[flash & few].tolist())}
    found: NDArray[np.bool_] = flash & few & np.array([hopper.get(name, False) for name in gpu.tolist()])
    return found


def _writes(gpu: NDArray[np.str_], operation: str, framework: str, name: str) -> NDArray[np.bool_]:
    """Whether the times of a framework's kernel hold the one that writes the cache, which encoders don't have."""
    alone = TIMED_ALONE.get(framework)
    others = operation != "encoder" and framework in TIMED_ALONE and alone is not None and name not in alone
    later = {known: name in LATER_RELEASE.get((operation, known.lower()), ()) for known in set(gpu.tolist())}
    return np.array([others or later[known] for known in gpu.tolist()], dtype=np.bool_)


MANY_KEYS = 1024
"""Keys from which on a decoding kernel's parts tell."""


def _capability(gpu: str) -> float:
    """Compute capability of a GPU by its name in the files; infinite where it is unknown."""
    try:
        return load_gpu(gpu.lower()).compute_capability or np.inf
    except SpecError:
        return np.inf


def attention_reader(file: str) -> Callable[[Path], list[Part]]:
    """``context``: prefill, causal; ``generation``: one query a sequence; ``encoder``: all pairs, as many key heads.

    One part per number format, that of the cache, framework and kernel: they differ by a factor. Rows repeat a kernel
    in a CUDA graph, so that what fits L2 is there.
    """
    operation = Path(file).stem
    cached = operation != "encoder"
    of_cache = ("step", "num_key_value_heads") if cached else ()
    names = ("batch_size", "isl", "num_heads", "head_dim", "window_size", *of_cache)

    def make(
        table: Table, dtype: DataType, cache: DataType, writes: NDArray[np.bool_], queries_too: bool
    ) -> list[Kernel]:
        size = {name: ints(table[name]) for name in names}
        kernels: list[Kernel] = []
        for i in range(len(size["isl"])):
            queries, batch, width = size["isl"][i], size["batch_size"][i], size["head_dim"][i]
            heads, groups = size["num_heads"][i], size["num_key_value_heads" if cached else "num_heads"][i]
            written = 2 * groups + (heads if queries_too else 0)
            kernels.append(
                Attention(
                    b=batch,
                    h=heads,
                    g=groups,
                    s=queries,
                    t=queries + (size["step"][i] if cached else 0),
                    d=width,
                    v=width,
                    causal=cached,
                    window=size["window_size"][i] or None,
                    dtype=dtype,
                    kv_dtype=None if cache is dtype else cache,
                    cache_write_elements=written * batch * queries * width if writes[i] else 0,
                    past_in_l2=True,
                    burst=True,
                )
            )
        return kernels

    def read(path: Path) -> list[Part]:
        cache = ("kv_cache_dtype",) if cached else ()
        table = read_table(path, ("gpu", "framework", "kernel_source", "attn_dtype", *cache, *names, "latency_ms"))
        source = strings(table["kernel_source"])
        note = np.array([_ATTENTION_FAULTS.get(name, "") for name in source.tolist()], dtype=np.str_)
        if cached:
            gpu = strings(table["gpu"])
            note = np.where(_unsplit(gpu, source, table), "keys unsplit", note)
            note = np.where(_few_parts(gpu, source, table), "few parts", note)
        formats = [table["attn_dtype"], table["kv_cache_dtype" if cached else "attn_dtype"]]
        parts = []
        for key, members in grouped(*formats, table["framework"], source, note):
            label, kept, framework, name, fault = key
            rows = members[table["latency_ms"][members] > 0]
            dtype, cache_dtype = _ATTENTION_FORMATS.get(label), _ATTENTION_FORMATS.get(kept)
            known = dtype is not None and cache_dtype is not None

            def of_format(
                part: Table,
                dtype: DataType | None = dtype,
                cache_dtype: DataType | None = cache_dtype,
                framework: str = framework,
                name: str = name,
            ) -> list[Kernel]:
                assert dtype is not None, "a part of an unknown format isn't loaded"
                assert cache_dtype is not None, "a part of an unknown format isn't loaded"
                writes = _writes(strings(part["gpu"]), operation, framework, name)
                return make(part, dtype, cache_dtype, writes, queries_too=framework == "trtllm")

            details = (f"{framework}, {name}", f"{kept} cache" if kept != label else "", fault)
            if rows.size:
                parts.append(
                    device_part(
                        file,
                        "attention",
                        dtype.label if dtype is not None else label,
                        take(table, rows),
                        of_format if known else None,
                        operation=operation,
                        kernel_name="kernel_source",
                        variant=", ".join(detail for detail in details if detail),
                        reason="" if known else f"no number format of this name: {label}, {kept}",
                    )
                )
        return parts

    return read
