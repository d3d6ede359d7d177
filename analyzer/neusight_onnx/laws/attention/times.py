"""The competing times of fused attention, and what stands beside them, in seconds."""

from __future__ import annotations

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.attention import memory_efficient
from neusight_onnx.laws.attention.dram import dram_of
from neusight_onnx.laws.attention.kernel_choice import MEMORY_EFFICIENT, has_narrow_keys, is_mma_in_fp8, unit_of
from neusight_onnx.laws.attention.rates import pipe_indices
from neusight_onnx.laws.attention.second_kernels import cache_s, idle_launch_s, parts_s, regroup_s
from neusight_onnx.laws.attention.step import Step, step_of
from neusight_onnx.laws.base import Column, Columns, Constants
from neusight_onnx.laws.gemm.machine import process_energy
from neusight_onnx.laws.matrix_unit_power import clock_had, sustained_level, unit_energy

LAST_BLOCKS = 0.95
"""Of the longest block's steps, what SMs wait for it (``_last_steps``)."""


def times(cols: Columns, gpu: GpuSpec, c: Constants) -> dict[str, Column]:
    """Competing times in s, and ``products`` and ``softmax`` of a step in cycles of an SM; ``cols`` are pinned.

    ``start``: what a block takes beside its steps, while memory is idle: before the first key is asked for and after
    the last has come. Kernels on tcgen05 start while the one before ends (``enable_pdl`` of FlashInfer's calls).
    """
    sms, blocks = float(gpu.sm_count), cols["blocks"]
    step, dram = step_of(cols, gpu, c), dram_of(cols, gpu, c)
    at_boost, latency, block = _blocks_s(cols, gpu, c, step)
    keys = cols["seen_bytes"]
    l2_rate = c["l2_bytes_per_clock"] * gpu.clock_hz
    panels = (
        np.maximum(blocks / sms, 1.0)
        * (cols["steps"] / blocks)
        * cols["tile_k"]
        * cols["kv_bytes"]
        * (cols["d"] + cols["v"])
    )
    l2 = (panels + cols["mask_reads"] / sms) / l2_rate
    energy = cols["steps"] * (cols["tile_q"] * cols["tile_k"]) * _pair_energy(cols, gpu, c)
    level = sustained_level(gpu, c, energy, at_boost, (latency, dram.time_s, l2))
    compute = at_boost / clock_had(at_boost, level, cols["burst"], gpu, c)
    from_l2 = (1.0 - dram.miss) / (l2_rate * np.minimum(sms, blocks))
    first = (cols["io_bytes"] + keys / cols["longest"]) * (dram.miss / dram.bytes_per_s + from_l2)
    floor = "floor_cycles_mma" if unit_of(cols, gpu) == "mma" else "floor_cycles"
    return {
        "compute": compute,
        "latency": latency,
        "start": block * (unit_of(cols, gpu) != "tcgen05"),
        "memory": dram.time_s,
        "l2": l2,
        "products": step.products,
        "softmax": step.softmax,
        "floor": np.full(blocks.shape, c[floor] / gpu.clock_hz),
        # memory's share of the time has them already
        "beside": c["io_exposed"] * np.minimum(first, compute) * compute / (compute + dram.time_s)
        + cache_s(cols, gpu, c, dram.miss / dram.bytes_per_s)
        + parts_s(cols, gpu, c)
        + idle_launch_s(cols, gpu, c)
        + regroup_s(cols, gpu, c),
    }


def _blocks_s(cols: Columns, gpu: GpuSpec, c: Constants, step: Step) -> tuple[Column, Column, Column]:
    """Time of all blocks on all SMs at the boost clock, of the longest block, and of one beside its steps, in s."""
    unit, sms, clock = unit_of(cols, gpu), float(gpu.sm_count), gpu.clock_hz
    blocks, longest = cols["blocks"], cols["longest"]
    flashinfer = has_narrow_keys(cols) & (unit == "mma")
    start = np.where(flashinfer, c["block_cycles_flashinfer"], c["block_cycles"])
    # two tiles of 128 on tcgen05 are stored by warps of their own
    stored_rows = np.minimum(np.minimum(cols["tile_q"], cols["rows"]), 128.0 if unit == "tcgen05" else np.inf)
    # another block's steps on the same SM hide its rows
    hidden = (cols["resident"] > 1.0) & (blocks > sms) & (unit == "mma")
    block = start + np.where(hidden, 0.0, c["row_cycles"] * stored_rows * step.width / 256.0)
    steps = cols["steps"] / blocks
    # where blocks are alike, SMs wait for the last round's
    rounds = np.ceil(np.maximum(blocks / sms, 1.0))
    work = rounds * steps
    if unit == "mma":
        uneven = blocks / sms * steps + _last_steps(steps, longest)
        work = np.where(is_mma_in_fp8(cols, gpu), work, np.maximum(work, uneven))
    share = block / cols["resident"]
    # what the first of several rounds waits for, no other hides
    first = steps * np.maximum(step.alone - step.beside_others, 0.0) + block - share
    at_boost = (work * step.beside_others + rounds * share + np.where(rounds > 1.0, first, 0.0)) / clock
    return at_boost, (longest * step.alone + block) / clock, block / clock


def _last_steps(steps: Column, longest: Column) -> Column:
    """Steps that SMs wait for the last blocks, beyond their share of all steps; ``steps``: a block's on average.

    Under a causal mask blocks start from the first queries to the last (``m_block = blockIdx.x`` of FlashAttention 2),
    so that the longest come last. Simulated (two places an SM, each next block to the first that is free; 2 to 128
    blocks a head, 72 to 142 SMs, 1 to 20 blocks an SM): .96 of the longest on average, .75 with two blocks a head.
    Blocks that are alike leave nothing of this.
    """
    unlike = np.clip(2.0 * (1.0 - steps / longest), 0.0, 1.0)
    found: Column = LAST_BLOCKS * np.sqrt(unlike) * longest
    return found


def _pair_energy(cols: Columns, gpu: GpuSpec, c: Constants) -> Column:
    """Energy of a pair's products and softmax, in FLOPs by mma in 16 nm; a head's padding is zeros, which switch
    nothing."""
    of_products = unit_energy(gpu, pipe_indices(cols, gpu))
    if MEMORY_EFFICIENT in cols:
        of_products = of_products * memory_efficient.energy_share(cols, gpu)
    width = cols["d"] + cols["v"]
    found: Column = 2.0 * width * of_products + c["softmax_flops"] * process_energy(gpu.process_nm)
    return found
