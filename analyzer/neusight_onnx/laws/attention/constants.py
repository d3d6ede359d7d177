"""The constants of the law of fused attention: priors, and what is fitted."""

from __future__ import annotations

from neusight_onnx.laws.base import Constant

_FITTED = "study of the shared attention measurements (A100, H100, L40S, B200); fitted"

CONSTANTS: tuple[Constant, ...] = (
    Constant(
        name="floor_cycles",
        prior=9000.0,
        prior_log_sd=0.2,
        source="launch and drain on WGMMA and tcgen05: the smallest kernels, replayed in a CUDA graph, take 6-10 us, "
        "12,000 to 20,000 cycles, less a block with one step and FlashAttention 3's second kernel; fitted",
    ),
    Constant(
        name="floor_cycles_mma",
        prior=5000.0,
        prior_log_sd=0.2,
        source="the same on mma, a kernel without schedule or descriptors: L40S's smallest prompts take 5.5 us, A100's "
        "11.3 with the kernel that writes the cache (2.5 us): 13,000 to 14,000 cycles, less a block with a step "
        "(4,400 and 4,000 to 6,000); fitted",
    ),
    Constant(
        name="pipe_overhead",
        prior=1.2,
        prior_log_sd=0.1,
        source="time of a step's products over that at the dense peak: FlashAttention 2 reaches up to .73 of A100's "
        "(Dao 2023), 3 up to .75 of H100's (Shah et al. 2024), with the softmax in it; fitted",
    ),
    Constant(
        name="pipe_overhead_tcgen05",
        prior=1.1,
        prior_log_sd=0.1,
        source="the same where products are issued by one thread and run beside everything else; fitted",
    ),
    Constant(
        name="exp_overhead",
        prior=1.0,
        prior_log_sd=0.2,
        source="time of the softmax over that of its exponentials and vector instructions at their peaks: polynomials "
        "on vector lanes take some of the exponentials; fitted",
    ),
    Constant(
        name="vector_instructions",
        prior=6.0,
        prior_log_sd=0.3,
        source="a pair: scale, maximum, difference, sum, conversion, and a share of the output's rescaling; fitted",
    ),
    Constant(
        name="vector_instructions_tcgen05",
        prior=4.0,
        prior_log_sd=0.3,
        source="the same where two values are scaled or added by one instruction and a maximum takes three (PTX ISA: "
        "fma.f32x2, max with three inputs, sm_100); fitted",
    ),
    Constant(
        name="exposed_mma",
        prior=0.6,
        prior_log_sd=0.2,
        source="share of the shorter of products and softmax that isn't hidden behind the other: only another block's "
        "on the same SM hides it; fitted",
    ),
    Constant(
        name="exposed_wgmma",
        prior=0.35,
        prior_log_sd=0.2,
        source="two warp groups take turns: .50 of the peak with heads of 64, .66 with 128, .75 with 256 (Shah et al. "
        "2024: FP16, forward, 16k) leave .43, .33 and next to nothing",
    ),
    Constant(
        name="exposed_tcgen05",
        prior=0.2,
        prior_log_sd=0.3,
        source="products and softmax are different warps': about .7 of the peak with heads of 128 (FlashAttention 4); "
        "fitted",
    ),
    Constant(name="step_cycles", prior=200.0, prior_log_sd=0.5, source="barriers and loop of a step; " + _FITTED),
    Constant(
        name="step_latency_cycles",
        prior=500.0,
        prior_log_sd=0.5,
        source="what a step waits for where its block is alone on an SM; " + _FITTED,
    ),
    Constant(
        name="block_cycles",
        prior=4000.0,
        prior_log_sd=0.4,
        source="first load, last store, scheduling of a block: blocks of one step take 2,300-6,000 cycles; fitted",
    ),
    Constant(
        name="block_cycles_flashinfer",
        prior=7000.0,
        prior_log_sd=0.4,
        source="of FlashInfer's blocks, which look up their work, their pages and the page table one after the other: "
        "four reads more, of 750 cycles; fitted",
    ),
    Constant(
        name="row_cycles",
        prior=30.0,
        prior_log_sd=0.4,
        source="the same for each row of its tile with heads of 128: rows are loaded and stored; fitted",
    ),
    Constant(
        name="io_exposed",
        prior=0.5,
        prior_log_sd=0.4,
        source="share of the time of queries, output and each block's first keys that no step hides; fitted",
    ),
    Constant(
        name="convert_instructions",
        prior=3.0,
        prior_log_sd=0.4,
        source="an element of keys and values stored in fewer bits: unpacked by every warp that multiplies it; fitted",
    ),
    Constant(
        name="producer_cycles",
        prior=0.15,
        prior_log_sd=0.4,
        source="FlashAttention 3 in FP8: cycles of the warp group that loads, an element of values, which it "
        "transposes in shared memory (WGMMA takes 8-bit operands in one order only); no prior knowledge; fitted",
    ),
    Constant(
        name="pack_cycles",
        prior=1.0 / 32.0,
        prior_log_sd=0.5,
        source="mma with queries of 8 bits: cycles of an SM to convert a probability to them: 16 conversions a clock "
        "(CUDA C++ Programming Guide, all other type conversions), each of two values (PTX ISA: cvt to e4m3x2); fitted",
    ),
    Constant(
        name="energy_pj",
        prior=2.4,
        prior_log_sd=0.2,
        source="board energy of a 16-bit FLOP by mma in 16 nm: 2.96 in the law of products on random values, less as "
        "half of the products have probabilities, positive and mostly small, and switch less; fitted",
    ),
    Constant(
        name="softmax_flops",
        prior=57.0,
        prior_log_sd=0.5,
        source="FLOPs of 16-bit products by mma that take as much energy as a pair's softmax: seven vector "
        "instructions at the 12 pJ an FP32 FLOP and two FLOPs of the FP32 law, over 2.96; fitted",
    ),
    Constant(
        name="throttle_ms",
        prior=0.45,
        prior_log_sd=0.0,
        source="measured by a few repetitions, shorter kernels run at the boost clock: as fitted to 16-bit products",
    ),
    Constant(
        name="dram_efficiency",
        prior=0.97,
        prior_log_sd=0.05,
        source="against an elementwise kernel: keys are read in whole rows; fitted",
    ),
    Constant(
        name="dram_reads",
        prior=0.93,
        prior_log_sd=0.03,
        source="share of the DRAM's peak at which WGMMA's and tcgen05's kernels read keys: hardly anything is written, "
        "so that no channel turns around, whatever its rate (an H100's time grows by 1 us for 3.2 MB of keys, .95 of "
        "its peak, a B200's for 7.4, .93); fitted",
    ),
    Constant(
        name="l2_fill",
        prior=0.95,
        prior_log_sd=0.1,
        source="share of L2 up to which repetitions find their data in it: L40S's knee; fitted",
    ),
    Constant(
        name="l2_partitioned",
        prior=0.6,
        prior_log_sd=0.2,
        source="the same where L2 is two partitions that each serve half of the SMs, so that data stand in both (A100 "
        "white paper); fitted",
    ),
    Constant(
        name="l2_bytes_per_clock",
        prior=40.0,
        prior_log_sd=0.3,
        source="bytes of keys and values that an SM gets in a clock, of 64 by design; " + _FITTED,
    ),
    Constant(
        name="l2_stream_mma",
        prior=0.5,
        prior_log_sd=0.3,
        source="share of the L2's measured bandwidth at which mma's kernels stream keys that it holds, two blocks an "
        "SM that each wait for their tile: an L40S decodes at 2.4-3 TB/s in 16 and 8 bits alike; fitted",
    ),
    Constant(name="norm", prior=4.0, prior_log_sd=0.3, source="power of the norm that joins competing times; fitted"),
    Constant(
        name="split_us",
        prior=2.0,
        prior_log_sd=0.3,
        source="at 1.7 GHz: the kernel that adds the parts of split keys; fitted",
    ),
    Constant(
        name="idle_launch_us",
        prior=2.0,
        prior_log_sd=0.3,
        source="at 1.7 GHz: FlashAttention 3's second kernel where it has nothing to do, as one that adds two parts "
        "(split_us); fitted",
    ),
    Constant(
        name="split_us_mma",
        prior=4.0,
        prior_log_sd=0.5,
        source="the same of FlashAttention 2, whose part kernel differs from the plain one: 12.5 -> 18 us from one "
        "part to two on A100; fitted",
    ),
    Constant(name="split_cycles", prior=100.0, prior_log_sd=0.5, source="the same for each part; fitted"),
    Constant(
        name="split_cycles_mma",
        prior=300.0,
        prior_log_sd=0.5,
        source="of FlashAttention 2, which adds parts one by one; fitted",
    ),
    Constant(
        name="merge_cycles",
        prior=500.0,
        prior_log_sd=0.5,
        source="of FlashInfer's kernel that adds them: cycles of an SM for each row, two or three reads one after the "
        "other by a block, some four or five of which are on an SM; fitted",
    ),
    Constant(
        name="regroup_us",
        prior=3.0,
        prior_log_sd=0.5,
        source="at 1.7 GHz: FlashAttention 2 packs by two copies, of queries and output, where neither the batch nor "
        "the number of key heads is one; fitted",
    ),
    Constant(
        name="cache_us",
        prior=2.5,
        prior_log_sd=0.3,
        source="launch of the kernel that writes the cache, whatever the clock: between releases with and without lie "
        "2.2-2.7 us (L40S, 2.5 GHz), 1.9-2.7 (H100, 2.0) and 2.7-2.9 (B200, 2.0); fitted",
    ),
    Constant(
        name="cache_passes",
        prior=1.2,
        prior_log_sd=0.2,
        source="bytes it moves in DRAM over those read and written; fitted",
    ),
    Constant(
        name="cache_block_cycles",
        prior=3000.0,
        prior_log_sd=0.3,
        source="life of its block, which writes a token's keys and values: releases with and without it differ by "
        "1.6-2.9 us (H100), .8-1.9 (B200) times the rounds of blocks, for 128 to 1,024 elements a token; fitted",
    ),
    Constant(
        name="cache_block_cycles_narrow",
        prior=6000.0,
        prior_log_sd=0.3,
        source="the same where it converts to 8 bits, too: 2.7-4.2 us (H100), 2.8-5 (B200); fitted",
    ),
    Constant(
        name="prepare_us",
        prior=4.0,
        prior_log_sd=0.5,
        source="at 1.7 GHz: TensorRT-LLM's kernel before the attention (splitting, rotating, converting): its smallest "
        "rows in 16 bits take 2-7 us more than vLLM's; fitted",
    ),
    Constant(
        name="prepare_bytes_per_clock",
        prior=15.0,
        prior_log_sd=0.3,
        source="bytes that its SMs move in a clock each: 14 on B200, 18 on H100; fitted",
    ),
    Constant(
        name="prepare_window_cycles",
        prior=40.0,
        prior_log_sd=0.5,
        source="what its rows with a window take more, in cycles of an SM for each token and head: 64 heads of 16,384 "
        "tokens take a B200 440 us where vLLM's, by the same kernel of attention, take 260; no prior knowledge; fitted",
    ),
)
