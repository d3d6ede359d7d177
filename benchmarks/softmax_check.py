"""Holds the time of a row's block of softmax (``laws.block_wait``) against PyTorch's, measured in FP32.

    python benchmarks/softmax_check.py SHARED [--sharpness 1.3]

PyTorch 2.1, with which they were measured, and ONNX Runtime 1.31 have the same kernel for rows of more than 1,024
columns: the same block sizes, the same passes. What ``block_wait.py`` found for it in 32 bits is joined with the bytes,
as the law joins it in 16; ``--sharpness`` is that of the join. Printed are medians of measured kernels (8,000 rows and
more, up to 4,100 columns, which stay in L1) in cycles of an SM a row, by columns: what the bytes take at the bandwidth
that the memory family reaches, the SM, both joined, measured (without 2 us for the launch), and the error. Rows that
end in whole turns of the block by vectors ("whole") and the others ("tail") are apart.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from neusight_onnx import GpuSpec, load_gpu
from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Softmax
from neusight_onnx.laws import block_wait
from neusight_onnx.laws.bandwidth import memory_family, p_norm
from neusight_onnx.laws.issue import ISSUE_LANES, LIBRARY, instructions_of

GPUS = ("v100-pcie-32gb", "t4", "a100-pcie-40gb")
LAUNCH_US = 2.0
BINS = (1024, 1400, 1800, 2040, 2056, 3000, 4090, 4100)


def cycles(rows: int, cols: int, gpu: GpuSpec) -> tuple[float, float]:
    """(what the bytes of a row take, what its block takes an SM full of them), in cycles of an SM."""
    kernel = Softmax(rows=rows, cols=cols, dtype=DataType.FLOAT32, library=LIBRARY)
    block = block_wait.softmax_row(kernel)
    issue = instructions_of(kernel, hopper=False) / rows / ISSUE_LANES
    parts = (np.asarray(issue), np.asarray((issue + block.waits) / block.resident(gpu)))
    rate = memory_family(gpu).fraction * gpu.memory_bytes_per_s / gpu.sm_count / gpu.clock_hz
    return (kernel.read_bytes + kernel.write_bytes) / rows / rate, float(p_norm(parts, block_wait.SHARPNESS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path)
    parser.add_argument("--sharpness", type=float, default=block_wait.SOFTMAX_LONG_SHARPNESS)
    options = parser.parse_args()
    table = pd.read_parquet(options.shared / "data/neusight/kernels_fp32.parquet")
    table = table[(table["op"] == "softmax") & (table["rows"] >= 8000) & (table["cols"].between(1025, 4100))]
    print(f"{'GPU':16}{'columns':>14}{'':>7}{'count':>6}{'bytes':>7}{'SM':>7}{'joined':>8}{'measured':>10}{'error':>7}")
    for name in GPUS:
        gpu = load_gpu(name)
        measured = table[table["gpu"] == name].copy()
        found = [cycles(int(row.rows), int(row.cols), gpu) for row in measured.itertuples()]
        measured["bytes"], measured["sm"] = zip(*found, strict=True)
        parts = (measured["bytes"].to_numpy(), measured["sm"].to_numpy())
        measured["joined"] = p_norm(parts, options.sharpness)
        each_s = measured["latency_ms"] * 1e-3 - LAUNCH_US * 1e-6
        measured["cycles"] = each_s * gpu.clock_hz * gpu.sm_count / measured["rows"]
        measured["error"] = measured["joined"] / measured["cycles"] - 1
        measured["ends"] = np.where(measured["cols"] % (4 * measured["block_x"]) == 0, "whole", "tail")
        for (columns, ends), part in measured.groupby([pd.cut(measured["cols"], BINS), "ends"], observed=True):
            middle = part[["bytes", "sm", "joined", "cycles", "error"]].median()
            print(
                f"{name:16}{f'{columns.left + 1:,}-{columns.right:,}':>14}{ends:>7}{len(part):6}{middle['bytes']:7.0f}"
                f"{middle['sm']:7.0f}{middle['joined']:8.0f}{middle['cycles']:10.0f}{middle['error']:7.0%}"
            )
        print(f"{name:16} mean of |error| {measured['error'].abs().mean():.0%}, of {len(measured)} sizes")


if __name__ == "__main__":
    main()
