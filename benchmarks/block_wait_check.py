"""Holds the player behind ``block_wait.py`` against kernels that were measured: PyTorch's layer normalization in FP32.

    python benchmarks/block_wait_check.py SITE-PACKAGES SHARED [--python PYTHON] [--tools SITE-PACKAGES]

SITE-PACKAGES is where torch is (2.9.1, of CUDA 12: it has code for compute capability 7.0, 7.5 and 8.0) with what
``cuda_standin.py`` asks for, ``--python`` the interpreter that imports it, ``--tools`` where cuobjdump and nvdisasm are
(default: SITE-PACKAGES, whose triton brings them). SHARED holds the measured kernels: of the test split, those of 768
and 1,024 columns on V100, T4 and A100. PyTorch launches the kernel on stand-ins; its code for that GPU is played.

Printed are cycles of an SM a row: what its bytes take at the bandwidth that the GPU's memory family reaches, what a
block alone takes, what it takes an SM full of them (DRAM's bandwidth left out), the two as the law joins times
(``laws.issue.SHARPNESS``), and the median of what was measured, without 2 us for the launch.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from math import prod
from pathlib import Path

import numpy as np
import pandas as pd

import cuda_standin
import ort_instructions
import sass
import sm_player
from block_wait import tool
from neusight_onnx import load_gpu
from neusight_onnx.laws.bandwidth import memory_family, p_norm
from neusight_onnx.laws.block_wait import most_blocks
from neusight_onnx.laws.issue import SHARPNESS

GPUS = ("v100-pcie-32gb", "t4", "a100-pcie-40gb")
COLUMNS = (768, 1024)
ROWS = 8192
KERNEL = "vectorized_layer_norm_kernelIffLb0"
LAUNCH_US = 2.0
FLOAT_BYTES = 4

RUN = """
import sys
import torch
for columns in map(int, sys.argv[2:]):
    sizes = (int(sys.argv[1]), columns), (columns,), (columns,)
    operands = [torch.empty(size, device="cuda") for size in sizes]
    torch.nn.functional.layer_norm(operands[0], (columns,), *operands[1:])
"""


def kernel_of(library: Path, cuobjdump: Path, architecture: str, folder: Path) -> tuple[str, sass.Function]:
    """The normalization's kernel in a library, by its mangled name."""
    folder.mkdir()
    command = [str(cuobjdump), "-xelf", f"{architecture}.", str(library)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    for cubin in sorted(folder.glob("*.cubin")):
        if KERNEL.encode() in cubin.read_bytes():
            for name, function in sass.functions_of(cubin).items():
                if KERNEL in name:
                    return name, function
        cubin.unlink()
    sys.exit(f"error: {library} has no {KERNEL} for {architecture}")


def launches_of(python: str, stand_ins: Path, layouts: Path, log: Path) -> dict[int, ort_instructions.Launch]:
    """PyTorch's launches of the kernel, by columns."""
    environment = {
        **os.environ,
        **cuda_standin.environment(stand_ins),
        "STANDIN_LOG": str(log),
        "STANDIN_ARGUMENTS": str(layouts),
    }
    command = [python, "-c", RUN, str(ROWS), *map(str, COLUMNS)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return dict(zip(COLUMNS, (launch for launch in ort_instructions.logged(log) if KERNEL in launch.name), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site_packages", type=Path)
    parser.add_argument("shared", type=Path)
    parser.add_argument("--python", default=sys.executable, help="imports torch (default: this one)")
    parser.add_argument("--tools", type=Path, help="where cuobjdump and nvdisasm are (default: SITE-PACKAGES)")
    options = parser.parse_args()
    site: Path = options.site_packages.resolve()
    tools: Path = (options.tools or site).resolve()
    cuobjdump, nvdisasm = tool(tools, "cuobjdump"), tool(tools, "nvdisasm")
    measured = pd.read_parquet(options.shared / "data/neusight/kernels_fp32.parquet")
    measured = measured[(measured["op"] == "ln") & (measured["split"] == "test")]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        cuda_standin.build(site, folder / "stand-ins", load_gpu(GPUS[0]))
        launches: dict[int, ort_instructions.Launch] = {}
        print(f"{'GPU':16}{'columns':>8}{'bytes':>7}{'alone':>7}{'played':>7}{'joined':>7}{'measured':>9}{'error':>7}")
        for label in GPUS:
            gpu = load_gpu(label)
            architecture = f"sm_{round((gpu.compute_capability or 0.0) * 10)}"
            name, function = kernel_of(site / "torch/lib/libtorch_cuda.so", cuobjdump, architecture, folder / label)
            if not launches:
                layouts = folder / "layouts"
                layouts.write_bytes(ort_instructions.layouts_of({name: function}))
                launches = launches_of(options.python, folder / "stand-ins", layouts, folder / "log")
            for columns, launch in launches.items():
                warps = sm_player.warps_of(launch, function, nvdisasm, ort_instructions.WORDS["float"])
                threads = prod(launch.block)
                resident = sm_player.resident_blocks(threads, function.registers, gpu.max_threads_per_sm)
                played = sm_player.a_row(warps, min(resident, most_blocks(gpu)))
                a_second = memory_family(gpu).fraction * gpu.memory_bytes_per_s / gpu.sm_count
                moved = 2 * FLOAT_BYTES * columns / a_second * gpu.clock_hz
                joined = float(p_norm((np.asarray(moved), np.asarray(played)), SHARPNESS))
                rows = measured[(measured["gpu"] == label) & (measured["cols"] == columns)]
                each = (rows["latency_ms"] * 1e-3 - LAUNCH_US * 1e-6) * gpu.clock_hz * gpu.sm_count / rows["rows"]
                print(
                    f"{label:16}{columns:8}{moved:7.0f}{sm_player.alone(warps):7.0f}{played:7.0f}{joined:7.0f}"
                    f"{each.median():9.0f}{joined / each.median() - 1:7.0%}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
