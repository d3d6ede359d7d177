"""The constants of the law of matrix products, with their priors."""

from __future__ import annotations

from neusight_onnx.laws.base import Constant

CONSTANTS: tuple[Constant, ...] = (
    Constant(
        name="floor_us",
        prior=2.5,
        prior_log_sd=0.0,
        source="an elementwise kernel's start and drain (2 us), and the prologue and epilogue of a tile, 0.5 us: a "
        "trip to DRAM and two barriers; not fitted: event-timed data can't tell it from host time",
    ),
    Constant(
        name="pipe_overhead",
        prior=1.05,
        prior_log_sd=0.05,
        source="hand-tuned SGEMM reaches 0.95 of the FP32 peak of an SM; fitted",
    ),
    Constant(
        name="tile_overhead",
        prior=0.10,
        prior_log_sd=0.5,
        source="prior: study of the shared FP32 measurements; fitted here",
    ),
    Constant(
        name="tile_exponent",
        prior=1.5,
        prior_log_sd=0.3,
        source="prior: study of the shared FP32 measurements; fitted here",
    ),
    Constant(
        name="latency_warps",
        prior=1.5,
        prior_log_sd=0.5,
        source="an SM needs several warps in flight to hide the latency of its FMAs and loads: four times what one on "
        "each of four schedulers waits, over its FMAs; prior: study of the shared FP32 measurements; fitted here",
    ),
    Constant(
        name="epilogue_k",
        prior=25.0,
        prior_log_sd=0.5,
        source="prologue and epilogue of a tile, as steps of k; prior: study of the shared FP32 measurements; fitted "
        "here",
    ),
    Constant(
        name="issue_overhead",
        prior=0.20,
        prior_log_sd=0.0,
        source="not fitted, no such GPU in the data: an 8x8 register tile issues 4 LDS.128 for 64 FMA (0.0625), "
        "global loads, barriers and addresses about 0.05, register bank conflicts about 0.08; SMs with 128 "
        "lanes and single issue (cc 8.6 and later) lose these slots; H100 SGEMM then reaches 0.79 of its "
        "peak, public figures are 0.75-0.80",
    ),
    Constant(
        name="energy_pj",
        prior=15.3,
        prior_log_sd=0.12,
        source="board energy of one FP32 FLOP in 16/12 nm at 1.4 GHz: a P4 has 59 W for 4.6-4.8 TFLOP/s at .92 GHz "
        "(12.5 pJ, times 1.52^.6), a T4 43 W for 3.8-4.1 at .77 (10.9 pJ, times 1.81^.6); fitted",
    ),
    Constant(
        name="energy_7nm",
        prior=0.73,
        prior_log_sd=0.2,
        source="the same on NVIDIA's 7 nm die against 16/12 nm, with its 40 MB of L2 and five stacks of HBM; prior: "
        "halfway (in log) between the foundry's 0.5 and data sheets (FP32 a W: V100 SXM2 52 GFLOP/s, A100 SXM4 49); "
        "fitted: products that keep the lanes of an A100 with 250 W busy are 5-11 % slower in 30 ms than in 1 ms, "
        "others are not, and none on a P100",
    ),
    Constant(
        name="throttle_ms",
        prior=0.2,
        prior_log_sd=0.5,
        source="prior: study of the shared FP32 measurements; fitted here: shorter kernels on an idle card run at "
        "the boost clock",
    ),
    Constant(
        name="small_tile_energy",
        prior=0.10,
        prior_log_sd=0.4,
        source="small tiles move more bytes per FLOP; prior: study of the shared FP32 measurements; fitted here",
    ),
    Constant(
        name="dram_efficiency",
        prior=0.70,
        prior_log_sd=0.15,
        source="streams reach 0.75-0.9 of the DRAM peak, tiles less; fitted",
    ),
    Constant(
        name="spill_knee",
        prior=2.0,
        prior_log_sd=0.4,
        source="an operand that passes between two uses, over L2 bytes, at which half of it is read again, inverse; "
        "prior: half of L2 is free for it; fitted",
    ),
    Constant(
        name="reload_efficiency",
        prior=0.17,
        prior_log_sd=0.2,
        source="share of the DRAM peak that an operand stored along k gets when strips of tiles read it again, 32 "
        "bytes of a row at a time (Pascal): P4 and P100 linear layers with 64x64 and 32x128 tiles move 0.13-0.18 of "
        "it; fitted",
    ),
    Constant(
        name="row_fade",
        prior=0.2,
        prior_log_sd=0.3,
        source="reload_efficiency is that of rows of 4 KiB and falls with this power of their length: long rows share "
        "fewer of DRAM's pages. Strips of 64x64 tiles on a P4 move .27 of the peak at k = 150, .17 at 1,500, .12 at "
        "6,000, .10 at 30,000; fitted",
    ),
    Constant(
        name="row_ns",
        prior=9.0,
        prior_log_sd=0.2,
        source="Pascal: what an SM waits for each row of a tile in eight steps of k where rows outgrow a page: at "
        "k > 16,384 an SM of the P100 and one of the P4 (32x128 tiles) run 45-50 GFLOP/s, whatever the grid and the "
        "DRAM; fitted",
    ),
    Constant(
        name="fetch_gain",
        prior=2.0,
        prior_log_sd=0.4,
        source="from Volta on L2 fetches 64 bytes from DRAM where 32 are asked for (CUDA's L2 fetch granularity), "
        "which serves the next step along k, too: blocks that drifted apart lose less; fitted",
    ),
    Constant(
        name="l2_bytes_per_clock",
        prior=32.0,
        prior_log_sd=0.3,
        source="bytes an SM gets from L2 in a clock: 64 by design, half is sustained; fitted",
    ),
    Constant(
        name="camping",
        prior=6.0,
        prior_log_sd=0.5,
        source="AMD: rows of an operand stored along k that lie multiples of 128 KiB apart slow L2, as if they met in "
        "few of its channels: linear layers of MI210 and MI100 run at 13 and 22 TFLOP/s with k = 32,768, at 12 and 10 "
        "with 65,536, at 29-33 with 12,288 and 30,522. How much longer L2 takes at 128 KiB, three times that from 256 "
        "KiB on; fitted",
    ),
    Constant(
        name="shared_efficiency",
        prior=1.0,
        prior_log_sd=0.15,
        source="shared memory gives 128 bytes a clock and SM; broadcasts halve the 4 (1/r + 1/c) bytes an FMA of an "
        "r x c register tile needs",
    ),
    Constant(
        name="drift_span",
        prior=60.0,
        prior_log_sd=0.3,
        source="blocks of a wave drift apart by one such part of the reduction: P4 (2 MB of L2) loses its reuse from "
        "k = 2,000 on, V100 (6 MB) from 30,000; fitted",
    ),
    Constant(
        name="drift_efficiency",
        prior=0.5,
        prior_log_sd=0.3,
        source="share of the DRAM peak that unshared panels get: rows of 32 bytes, far apart; P4 and P100; fitted",
    ),
    Constant(
        name="norm",
        prior=5.0,
        prior_log_sd=0.2,
        source="power of the norm that joins competing times; prior: study of the shared FP32 measurements; fitted "
        "here",
    ),
    Constant(
        name="split_us",
        prior=6.0,
        prior_log_sd=0.4,
        source="a second kernel adds the parts of a split reduction; fitted",
    ),
    Constant(
        name="matrix_overhead",
        prior=1.30,
        prior_log_sd=0.1,
        source="AMD's FP32 matrix cores reach 0.70-0.75 of their peak in MI100 and MI210 data; fitted",
    ),
)
