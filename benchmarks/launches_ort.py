"""Our kernels for ``--runtime onnxruntime`` beside what ONNX Runtime's CUDA provider launches, by operator; no GPU.

    python benchmarks/launches_ort.py MODELS... --cuda SITE-PACKAGES --stand-ins FOLDER [--python FILE] [-o FILE]

MODELS are ONNX files, or folders whose files are taken. Each runs twice on the onnxruntime-gpu in SITE-PACKAGES, with
the stand-ins that ``cuda_standin.py`` has built in FOLDER; open dims are 2 for a batch, else 16. A launch is a kernel,
a call of cuBLAS or cuDNN, a copy or fill on the device, or a copy between providers. Nothing is computed: what depends
on data (NonZero, NonMaxSuppression) finds nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fusion_ort import COPIES, SAME, Cuda, each_compared, sizes_for, tell, with_weights
from neusight_onnx import __version__
from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import NeusightError
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.read import read_model
from neusight_onnx.kernels import HostWork, Transfer
from neusight_onnx.precision import resolve
from neusight_onnx.preparation import infer_shapes, prepare

OVER_PCIE = ("copy\thost to device", "copy\tdevice to host", "copy\thost to host")
"""Copies of inputs and outputs, and between providers: these are nodes of their own there (COPIES), transfers here."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One model: launches by operator, theirs and ours."""

    name: str
    theirs: Counter[str]
    ours: Counter[str]

    @property
    def differences(self) -> dict[str, tuple[int, int]]:
        names = sorted(set(self.theirs) | set(self.ours))
        return {name: (self.theirs[name], self.ours[name]) for name in names if self.theirs[name] != self.ours[name]}


def launched(path: Path, sizes: Mapping[str, int], cuda: Cuda) -> Counter[str]:
    """Launches of a run by operator.

    Raises:
        RuntimeError: it failed; with the last line that was said.
    """
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = with_weights(path, folder)
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(cuda.stand_ins.resolve()),
            "STANDIN_LOG": str(folder / "log"),
            "STANDIN_TIMES": "1",
        }
        script = [cuda.python, str(Path(__file__).with_name("cuda_launches.py")), str(cuda.site_packages)]
        done = subprocess.run(
            [*script, str(model), json.dumps(dict(sizes))], capture_output=True, text=True, env=environment
        )
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["failed without a message"])[-1])
    for line in done.stdout.splitlines():
        op_type, provider, launches = json.loads(line)
        count = sum(op_type in COPIES or not launch.startswith(OVER_PCIE) for launch in launches)
        if count and provider == "CUDAExecutionProvider":
            found[SAME.get(op_type, op_type)] += count
    return found


def ours_of(path: Path, sizes: Mapping[str, int]) -> Counter[str]:
    shaped = infer_shapes(read_model(path), make_bindings(dict(sizes), None, None, None))
    prepared = prepare(shaped, precision=resolve("auto", DataType.FLOAT32), runtime="onnxruntime")
    found: Counter[str] = Counter()
    for work in prepared.work:
        for kernel in work.kernels:
            if isinstance(kernel, Transfer) and not work.is_boundary:
                found["MemcpyFromHost" if kernel.direction == "to_device" else "MemcpyToHost"] += work.count
        if any(isinstance(kernel, HostWork) for kernel in work.kernels):
            continue
        count = work.count * sum(not isinstance(kernel, Transfer) for kernel in work.kernels)
        if count:
            found[SAME.get(work.op_type, work.op_type)] += count
    return found


def table(compared: Sequence[Compared], failed: Mapping[str, str], cuda: Cuda) -> str:
    alike = sum(not item.differences for item in compared)
    near = sum(abs(item.theirs.total() - item.ours.total()) <= 0.01 * item.theirs.total() for item in compared)
    lines = [
        "# Our kernels beside ONNX Runtime's launches",
        "",
        f"neusight-onnx {__version__}, onnxruntime-gpu {cuda.version} on stand-ins (`cuda_standin.py`), "
        f"Python {platform.python_version()}.",
        f"{alike} of {len(compared)} models have as many launches for every operator, "
        f"{near} as many in all within 1 %.",
        "",
        "| model | ONNX Runtime | ours | operators that differ: ONNX Runtime / ours |",
        "|---|---:|---:|---|",
    ]
    for item in compared:
        said = ", ".join(f"{name} {theirs} / {ours}" for name, (theirs, ours) in item.differences.items())
        lines.append(f"| {item.name} | {item.theirs.total():,} | {item.ours.total():,} | {said} |")
    lines += [f"\n{name}: {reason}" for name, reason in failed.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--cuda", type=Path, required=True, metavar="SITE-PACKAGES")
    parser.add_argument("--stand-ins", type=Path, required=True, metavar="FOLDER", help="made by cuda_standin.py")
    parser.add_argument("--python", default=sys.executable, metavar="FILE", help="which runs it (default: this one)")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    cuda = Cuda(site_packages=arguments.cuda, stand_ins=arguments.stand_ins, python=arguments.python)

    def both(path: Path) -> Compared:
        sizes = sizes_for(path)
        return Compared(name=path.stem, theirs=launched(path, sizes, cuda), ours=ours_of(path, sizes))

    compared, failed = each_compared(arguments.models, both, (NeusightError, RuntimeError))
    tell(table(compared, failed, cuda), arguments.output)


if __name__ == "__main__":
    main()
