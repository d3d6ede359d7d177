"""What products read from DRAM, and what L2 keeps of their operands between two uses."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.bandwidth import GDDR6_BARE, GDDR6X, has_partitioned_l2, is_amd, memory_family
from neusight_onnx.laws.base import Constants
from neusight_onnx.laws.matrix_units import PIPES
from neusight_onnx.laws.tiled import Grid, wave_of

WEIGHT_COPIES = 5.0
"""The measured replays go round so many copies of the weights (study of the data): what they leave in L2 is reused.
The output is the same in every product, and so are the activations, but in SGLang's rows (``Gemm.rotated``)."""

RESIDENT_FILL, RESIDENT_SHARPNESS = 0.9, 24.0
"""Share of L2 up to which operands stay, and how sharply that ends: an L40S reads 16 MB of weights (five copies: 80 MB
of 96) at two to three times its DRAM rate, 20 MB at none; writes 80 MB of output at twice that rate, 96 MB at none."""

FILLING_PIPES = ("fp8", "fp4")
FILLED = 1.04
"""Pipes whose trained kernels (TensorRT-LLM's) go round as many copies of the weights as the L2 has room for, begun
ones counted and ``WEIGHT_COPIES`` at most, and the share of the L2 up to which these stay: in FP8 and in 16 bits an
L40S reads weights of 24, 32, 48 and 96 MiB (4, 3, 2 and 1 times 96) at 1.4-1.9 TB/s, of 25, 50 and 100 at 1.0, of
28-30, 36-42, 56-84 and 112 MiB at .7; of 16-18 (5 times) at 2.0, of 20 at 1.0, of 21 at .7."""

PARTITIONED_FILL = 0.75
"""Of that where L2 is two partitions that each serve half of the SMs (``has_partitioned_l2``): activations stream
faster than DRAM up to 26 MB of an A100's 40, 40 of an H100's 50, 95 of a B200's 126."""


def l2_bytes_held(gpu: GpuSpec) -> float:
    """Bytes of L2 up to which data that are used again and again stay there; half of them do at that size."""
    return RESIDENT_FILL * (PARTITIONED_FILL if has_partitioned_l2(gpu) else 1.0) * gpu.l2_bytes


_FILLING = np.array([name in FILLING_PIPES for name in PIPES])


def weight_copies(
    cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Whether the measured replays of each product's format fill the L2 with copies of its weights, and how many."""
    filled: NDArray[np.bool_] = _FILLING[cols["pipe"].astype(np.int64)]
    fitting = np.ceil(gpu.l2_bytes / (cols["b"] * cols["n"] * cols["k"] * cols["b_bytes"]))
    return filled, np.where(filled, np.clip(fitting, 1.0, WEIGHT_COPIES), WEIGHT_COPIES)


def kept_share(bytes_: NDArray[np.float64], held: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Share of operands that are still in L2 when so many bytes pass between two uses; 0..1."""
    kept: NDArray[np.float64] = 1.0 / (1.0 + (bytes_ / held) ** RESIDENT_SHARPNESS)
    return kept


BARE_GDDR_GAIN = 1.11
"""DRAM rate of GDDR6X, and of GDDR6 without ECC, against the L40S's GDDR6 with ECC, as shares of the peak: products of
up to 16 rows stream weights of 400 MB and more at .935 of it on RTX A6000 and 4090, .91 on RTX 3090 and .833 on L40S.
Codes for errors that lie among the data take a sixteenth of the bytes at least. GDDR7 is taken to be alike, as it is
for streaming kernels."""


def stream_gain(gpu: GpuSpec) -> float:
    """DRAM rate of the GPU's kind of GDDR against the fitted share of the peak (``dram_efficiency_gddr``); 1 of HBM."""
    return BARE_GDDR_GAIN if memory_family(gpu) in (GDDR6X, GDDR6_BARE) else 1.0


STREAM_NORM = 4.0
"""Power of the norm that joins the rates of DRAM and of the compute units that load from it."""
SUM_BYTES_PER_CLOCK = 16.0
"""Bytes a clock and compute unit that AMD's kernels write and read of the parts of a split reduction, after its blocks
have ended. An MI308X multiplies 384 x 384 x 7,168 in 16 bits in 30 us by 8 parts, of which pipe, floor and a second
launch explain 25. In 8 bits aiter's assembled kernels add in place: their parts cost no more."""


def stream_rates(
    gpu: GpuSpec, c: Constants, blocks: NDArray[np.float64]
) -> tuple[NDArray[np.float64] | float, NDArray[np.float64] | float]:
    """Bytes/s at which so many blocks stream operands from DRAM, and from L2."""
    dram: NDArray[np.float64] | float = c["dram_efficiency"] * stream_gain(gpu) * gpu.memory_bytes_per_s
    if is_amd(gpu):
        fetched = np.minimum(blocks, float(gpu.sm_count)) * c.get("cu_stream_bytes_per_clock", np.inf) * gpu.clock_hz
        dram = (dram**-STREAM_NORM + fetched**-STREAM_NORM) ** (-1.0 / STREAM_NORM)
    return dram, np.maximum(dram, c["l2_stream_bytes_per_clock"] * float(gpu.sm_count) * gpu.clock_hz)


def operands_s(
    cols: Mapping[str, NDArray[np.float64]],
    gpu: GpuSpec,
    dram: NDArray[np.float64] | float,
    l2: NDArray[np.float64] | float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times in s to move every operand once: what DRAM gives, at ``dram`` bytes/s, and what L2 still holds, at ``l2``.
    A kernel takes the sum."""
    b, m, n, k = cols["b"], cols["m"], cols["n"], cols["k"]
    a_all, b_all, output = cols["a_bytes"] * b * m * k, cols["b_bytes"] * b * k * n, cols["write_bytes"]
    unique, beside = a_all + b_all + output, cols["beside_bytes"]
    held = l2_bytes_held(gpu)
    kept = kept_share(unique + beside, held)
    filled, copies = weight_copies(cols, gpu)
    # what was converted has just been written, whatever it was converted from
    rotated = cols["rotated"] * (cols["converted_bytes"] == 0.0)
    scales = beside * cols["unpacks"]
    others = unique + beside + (copies - 1.0) * (b_all + scales + rotated * a_all)
    kept_a = np.where(rotated > 0.0, kept_share(others, held), kept)
    kept_b = cols["repeated"] * kept_share(others, np.where(filled, FILLED / RESIDENT_FILL, 1.0) * held)
    kept_b = np.maximum(kept_b, cols["kept_in_l2"])
    operands = ((b_all + scales, kept_b), (a_all, kept_a), (output + beside - scales, kept))
    missed = sum((bytes_ * (1.0 - held_share) for bytes_, held_share in operands), np.zeros(1))
    found = sum((bytes_ * held_share for bytes_, held_share in operands), np.zeros(1))
    return missed / dram, found / l2


def reloaded_bytes(
    cols: Mapping[str, NDArray[np.float64]],
    gpu: GpuSpec,
    c: Constants,
    tile: NDArray[np.float64],
    grid: Grid,
    kz: NDArray[np.float64],
    *,
    whole_tiles: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """Bytes that waves read from DRAM again; ``whole_tiles``: they read whole tiles, be they beyond the operands."""
    t1, t2, _, _ = tile
    b, m, n, k = cols["b"], cols["m"], cols["n"], cols["k"]
    wave = wave_of(grid, tile)
    # a last round of fewer blocks fetches less
    rounds = grid.blocks / wave.blocks
    columns = np.where(whole_tiles, wave.n * t1, np.minimum(wave.n * t1, n))
    rows = np.where(whole_tiles, wave.m * t2, np.minimum(wave.m * t2, m))
    reload = rounds * wave.entries * kz * (columns * cols["b_bytes"] + rows * cols["a_bytes"])
    a_all, b_all = cols["a_bytes"] * b * m * k, cols["b_bytes"] * b * k * n
    spill = c["reload_knee"] * ((a_all + b_all) / b) / gpu.l2_bytes
    found: NDArray[np.float64] = np.maximum(reload - (a_all + b_all + cols["write_bytes"]), 0.0) * spill / (1.0 + spill)
    return found


def split_sums(
    cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, split: NDArray[np.float64]
) -> tuple[NDArray[np.float64] | float, NDArray[np.float64] | float]:
    """What the parts of a split reduction cost: bytes beside the operands', and s after the product."""
    partial = np.where(split > 1.0, 4.0 * cols["b"] * cols["m"] * cols["n"] * split, 0.0)
    if not is_amd(gpu):
        return partial, 0.0
    added = np.where(cols["multiplied_bytes"] < 2.0, 0.0, 2.0 * partial)
    return 0.0, added / (SUM_BYTES_PER_CLOCK * float(gpu.sm_count) * gpu.clock_hz)
