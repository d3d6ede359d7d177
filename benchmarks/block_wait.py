"""How long a block of ONNX Runtime's row kernels waits for itself, from its machine code. No GPU is needed.

    python benchmarks/block_wait.py SITE-PACKAGES [--tools SITE-PACKAGES] [--python PYTHON] [--capability 8.0]
        [--only TEXT...]

SITE-PACKAGES is as for ``ort_instructions.py``, whose cases are launched on stand-ins for CUDA's libraries again; what
they launch is played on an SM (``sm_player.py``). Of an early release SITE-PACKAGES is that of ``--python``, which it
runs in, and ``--tools`` holds cuobjdump and nvdisasm (onnxruntime-gpu 1.11.1: Python 3.8 to 3.10, with
nvidia-cuda-runtime-cu11 and nvidia-cuda-nvcc-cu11; cases that a release doesn't run are left out).

Printed are a block's threads and a thread's registers; in cycles, the issue slots that a row takes, a block alone on
its SM, and what a row takes an SM that holds as many blocks as it can, of 1,024, 1,536 and 2,048 threads.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from math import prod
from pathlib import Path

import onnx

import cuda_standin
import ort_instructions
import sm_player
from neusight_onnx import load_gpu

SM_THREADS = (1024, 1536, 2048)
TOOLS = ("nvidia/*/bin", "triton/backends/nvidia/bin")


def tool(site: Path, name: str) -> Path:
    """A program of CUDA's in a folder of packages; the process ends where it isn't there."""
    found = next((path for place in TOOLS for path in sorted(site.glob(f"{place}/{name}"))), None)
    if found is None:
        sys.exit(f"error: {site} lacks {name} (nvidia-cuda-cuobjdump, nvidia-cuda-nvdisasm)")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site_packages", type=Path)
    parser.add_argument("--tools", type=Path, help="where cuobjdump and nvdisasm are (default: SITE-PACKAGES)")
    parser.add_argument("--python", default=sys.executable, help="runs ONNX Runtime (default: this one)")
    parser.add_argument("--capability", default="8.0", help="of the machine code (default: 8.0)")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="TEXT", help="cases whose label contains one of them"
    )
    options = parser.parse_args()
    site: Path = options.site_packages.resolve()
    tools: Path = (options.tools or site).resolve()
    provider = site / "onnxruntime/capi/libonnxruntime_providers_cuda.so"
    if not provider.is_file():
        sys.exit(f"error: {site} lacks onnxruntime-gpu")
    cuobjdump, nvdisasm = tool(tools, "cuobjdump"), tool(tools, "nvdisasm")
    widths = "".join(f"{threads:>7,}" for threads in SM_THREADS)
    print(f"{'case':46}{'':6}{'threads':>8}{'registers':>10}{'issue':>7}{'alone':>8}{widths}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        cuda_standin.build(site, folder / "stand-ins", load_gpu("a100"))
        architecture = f"sm_{options.capability.replace('.', '')}"
        table = ort_instructions.cubins_of(provider, cuobjdump, architecture, folder / "code")
        layouts = folder / "layouts"
        layouts.write_bytes(ort_instructions.layouts_of(table))
        for case in (*ort_instructions.CASES, *ort_instructions.TOKENS):
            if not any(text in case.label for text in options.only):
                continue
            for dtype in ("half", "float"):
                path = folder / "model.onnx"
                onnx.save(ort_instructions.model_of(case, dtype), path)
                try:
                    launches = ort_instructions.launches_of(path, site, folder / "stand-ins", layouts, options.python)
                except subprocess.CalledProcessError as error:
                    reason = error.stderr.decode(errors="replace").strip().splitlines()[-1:]
                    print(f"{case.label:46}{dtype:6} not run: {''.join(reason)[-100:]}", flush=True)
                    continue
                for launch in launches:
                    if launch.name not in table or case.only not in launch.name:
                        continue
                    function = table[launch.name]
                    warps = sm_player.warps_of(launch, function, nvdisasm, ort_instructions.WORDS[dtype])
                    waits = case in ort_instructions.TOKENS or any(step.opcode == "BAR" for step in warps[0])
                    if not waits:
                        continue
                    threads, registers = prod(launch.block), function.registers
                    held = [sm_player.resident_blocks(threads, registers, most) for most in SM_THREADS]
                    each = {resident: sm_player.a_row(warps, resident) for resident in set(held)}
                    issue = sum(map(len, warps)) / sm_player.SCHEDULERS
                    print(
                        f"{case.label:46}{dtype:6}{threads:8}{registers:10}{issue:7.0f}{sm_player.alone(warps):8.0f}"
                        + "".join(f"{each[resident]:7.0f}" for resident in held),
                        flush=True,
                    )


if __name__ == "__main__":
    main()
