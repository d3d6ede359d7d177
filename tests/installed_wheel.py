"""Run by ``make dist-check`` with the Python of an environment that holds only the wheel, outside the checkout.

It is no pytest module: the environment has no pytest.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import neusight_onnx
from neusight_onnx.data_files import data_folder

SITE_PACKAGES = Path(sysconfig.get_path("purelib")).resolve()


def run(*arguments: str) -> str:
    """Standard output of a command of the environment; its errors are shown, and end the check."""
    command = [str(Path(sys.executable).parent / arguments[0]), *arguments[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def main(model: str) -> None:
    package = Path(neusight_onnx.__file__).resolve().parent
    assert package == SITE_PACKAGES / "neusight_onnx", package
    for folder in ("specs", "predictors"):
        path = data_folder("specs" if folder == "specs" else "predictors")
        assert path == package / folder, path
        assert path.is_dir(), path
        assert not list(path.rglob("*.py")), path
    for name in ("analyzer", "specs", "predictors", "tests", "benchmarks", "examples", "make_models"):
        assert importlib.util.find_spec(name) is None, f"{name} became an import name"

    assert "a100-sxm-80gb" in run("neusight-onnx", "gpus", "a100")
    report = json.loads(run("neusight-onnx", "analyze", model, "--gpu", "a100", "--dim", "batch=8", "--format", "json"))
    assert report["gpu"]["name"] == "a100-sxm-80gb"
    assert report["totals"]["latency_ms"] > 0
    assert report["coverage"]["latency_share"]["learned"] > 0, "the shipped predictors were not used"
    text = run("python", "-m", "neusight_onnx", "analyze", model, "--gpu", "NVIDIA A100-SXM4-80GB", "--dim", "batch=8")
    assert "latency" in text.lower()
    print(f"the wheel works from {Path.cwd().name}/: {report['totals']['latency_ms']:.2f} ms for {model} on an A100")


if __name__ == "__main__":
    main(sys.argv[1])
