"""CUTLASS's memory-efficient attention by its parts.

The kernel keeps a tile of queries and walks over tiles of keys, one block of threads a tile. Each warp has 32 queries
and 32 keys (or columns of the result); scores pass through shared memory between the two products, and masks, maxima,
exponentials and conversions take many instructions: they, not the matrix unit, fill the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.attention import dropout
from neusight_onnx.laws.base import Column, Columns

WARP_ROWS = 32
"""Queries, and keys or columns of the result, of a warp."""

SPLIT_PRODUCTS = 3.0
"""Products in TF32 for one in FP32 (``OpMultiplyAddFastF32``): the machine code has 192 HMMA.1688.F32.TF32 where one
each would be 64."""

SCHEDULERS = 4.0
"""Warp schedulers of an SM, each of which issues an instruction a clock (Volta and later, NVIDIA's white papers)."""

MASK_INSTRUCTIONS = 220.0
"""Instructions of a warp and step that load and add a mask: 218 to 238 as counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """The kernel for one range of head sizes: tile (``queries``, ``keys``), warps of a block, blocks that registers
    leave room for on an SM (``__launch_bounds__``), shared memory of a block.

    Instructions of a warp and step beside the products': ``fixed``, a 32nd part of the queries' width (``depth``), a
    further block of ``keys`` columns of the result (``column_block``), as counted.
    """

    queries: int
    keys: int
    warps: int
    resident: int
    shared_bytes: int
    fixed: float
    depth: float
    column_block: float = 0.0


_AMPERE, _TURING, _VOLTA = 80, 75, 70
_NARROW, _WIDE = 16, 32

BUILDS: Mapping[tuple[int, int], tuple[Build, Build, Build]] = {
    (_AMPERE, _NARROW): (
        Build(queries=64, keys=64, warps=4, resident=4, shared_bytes=18944, fixed=1024, depth=25),
        Build(queries=64, keys=128, warps=8, resident=2, shared_bytes=52224, fixed=1122, depth=25),
        Build(queries=32, keys=128, warps=4, resident=4, shared_bytes=51200, fixed=845, depth=71, column_block=981),
    ),
    (_AMPERE, _WIDE): (
        Build(queries=64, keys=64, warps=4, resident=3, shared_bytes=36352, fixed=2431, depth=404),
        Build(queries=64, keys=128, warps=8, resident=1, shared_bytes=86016, fixed=3114, depth=380),
        Build(queries=32, keys=128, warps=4, resident=3, shared_bytes=76288, fixed=3059, depth=409, column_block=3006),
    ),
    (_TURING, _NARROW): (
        Build(queries=64, keys=64, warps=4, resident=3, shared_bytes=18944, fixed=1080, depth=51),
        Build(queries=32, keys=128, warps=4, resident=3, shared_bytes=26112, fixed=1252, depth=61),
        Build(queries=32, keys=128, warps=4, resident=3, shared_bytes=34816, fixed=849, depth=70, column_block=1149),
    ),
    (_TURING, _WIDE): (
        Build(queries=64, keys=64, warps=4, resident=3, shared_bytes=22016, fixed=1616, depth=380),
        Build(queries=32, keys=128, warps=4, resident=3, shared_bytes=25600, fixed=2670, depth=428),
        Build(queries=32, keys=128, warps=4, resident=3, shared_bytes=27920, fixed=1959, depth=456, column_block=3325),
    ),
    (_VOLTA, _NARROW): (
        Build(queries=64, keys=64, warps=4, resident=3, shared_bytes=17920, fixed=1495, depth=83),
        Build(queries=32, keys=128, warps=4, resident=3, shared_bytes=25600, fixed=1879, depth=90),
        Build(queries=32, keys=128, warps=4, resident=3, shared_bytes=33920, fixed=1393, depth=100, column_block=1691),
    ),
    (_VOLTA, _WIDE): (
        Build(queries=64, keys=64, warps=4, resident=3, shared_bytes=22016, fixed=1616, depth=404),
        Build(queries=32, keys=128, warps=4, resident=3, shared_bytes=25600, fixed=2670, depth=468),
        Build(queries=32, keys=128, warps=4, resident=3, shared_bytes=27920, fixed=1959, depth=476, column_block=3325),
    ),
}
"""By the code's generation and width: for values of up to 64 columns, up to 128, and more, whose result goes through
memory. Tiles, warps and shared memory: launches of torch 2.9.1 on stand-ins for CUDA's libraries. Instructions: its
machine code interpreted with the arguments of those launches, 1,024 keys less 512
(``benchmarks/evidence/attention_kernels.md``). FP32 on Volta: its loops, and beside them Turing's.
"""

ONNXRUNTIME_MIDDLE: Mapping[int, Build] = {
    _NARROW: Build(queries=32, keys=128, warps=4, resident=4, shared_bytes=42496, fixed=1122, depth=25),
    _WIDE: Build(queries=32, keys=128, warps=4, resident=3, shared_bytes=67584, fixed=3114, depth=380),
}
"""By width: what ONNX Runtime has since Ampere for values of 65 to 128 columns, where PyTorch has tiles of 64 queries.
Tiles, warps and shared memory: launches of onnxruntime-gpu 1.31.1 on stand-ins; blocks: 16 warps an SM, 12 in FP32
(``kMinBlocksPerSm`` of the kernel's source). Instructions: a warp's share of a step is the same 32 x 32, so those of
PyTorch's, though each warp copies twice as much into shared memory."""

_VALUES = (64, 128)
"""Columns of values up to which the first two builds go; narrower ones are padded to it."""


def build_of(cols: Columns, gpu: GpuSpec) -> dict[str, Column]:
    """Each kernel's build: its fields as columns, and ``width_v``, the columns of values that are multiplied."""
    capability = gpu.compute_capability or 0.0
    generation = _AMPERE if capability >= 8.0 else _TURING if capability >= 7.5 else _VOLTA
    narrow, wide = BUILDS[generation, _NARROW], BUILDS[generation, _WIDE]
    place = np.searchsorted(_VALUES, cols["v"])
    is_wide = cols["query_bytes"] > 2.0

    def field(name: str) -> Column:
        values = [[float(getattr(build, name)) for build in builds] for builds in (narrow, wide)]
        found: Column = np.where(is_wide, np.array(values[1])[place], np.array(values[0])[place])
        if generation == _AMPERE:
            own = [float(getattr(ONNXRUNTIME_MIDDLE[width], name)) for width in (_NARROW, _WIDE)]
            found = np.where((cols["by_onnxruntime"] > 0) & (place == 1), np.where(is_wide, own[1], own[0]), found)
        return found

    names = ("queries", "keys", "warps", "resident", "shared_bytes", "fixed", "depth", "column_block")
    found = {name: field(name) for name in names}
    padded = np.array([*_VALUES, 0])[place]
    found["width_v"] = np.where(place == len(_VALUES), 128.0 * np.ceil(cols["v"] / 128.0), padded)
    return found


def rate(cols: Columns, gpu: GpuSpec) -> Column:
    """FLOP/s of its products at their peak: of 16 bits on the matrix unit, of FP32 as three in TF32 there, since
    Ampere, or on vector lanes."""
    peaks = gpu.peak_flops_per_s
    wide = peaks["tf32"] / SPLIT_PRODUCTS if "tf32" in peaks else peaks["fp32"]
    return np.where(cols["query_bytes"] > 2.0, wide, peaks.get("fp16", peaks["fp32"]))


def issue_cycles(cols: Columns, gpu: GpuSpec) -> Column:
    """Cycles of an SM in which a step's instructions beside the products' are issued."""
    build = build_of(cols, gpu)
    blocks = np.ceil(build["width_v"] / 128.0) - 1.0
    masked = MASK_INSTRUCTIONS * (cols["mask_bytes"] > 0)
    dropped = WARP_ROWS * dropout.EFFICIENT * cols["dropout"]  # a warp's 32 x 32 pairs are 32 a thread
    each = build["fixed"] + build["depth"] * np.ceil(cols["d"] / 32.0) + build["column_block"] * blocks
    found: Column = (each + masked + dropped) * build["warps"] / SCHEDULERS
    return found


def energy_share(cols: Columns, gpu: GpuSpec) -> Column:
    """Products on the pipe for one that counts, which take so many times its energy."""
    return np.where((cols["query_bytes"] > 2.0) & ("tf32" in gpu.peak_flops_per_s), SPLIT_PRODUCTS, 1.0)


def loaded_bytes(cols: Columns, gpu: GpuSpec) -> Column:
    """Bytes that a step's warps load from shared memory: each its 32 rows of either operand, and the scores once."""
    build = build_of(cols, gpu)
    columns = 32.0 * np.ceil(cols["d"] / 32.0) + build["width_v"]
    size = cols["query_bytes"]
    found: Column = size * (2.0 * WARP_ROWS * columns * build["warps"] + build["queries"] * build["keys"])
    return found


def resident_blocks(cols: Columns, gpu: GpuSpec, shared_bytes: float, reserved_bytes: float) -> Column:
    """Blocks on an SM: as many as registers and shared memory hold."""
    build = build_of(cols, gpu)
    return np.maximum(
        np.minimum(build["resident"], np.floor(shared_bytes / (build["shared_bytes"] + reserved_bytes))), 1.0
    )
