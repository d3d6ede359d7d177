"""The stand-ins for CUDA's libraries: PyTorch on a GPU that isn't there, and ``measurements/`` on it from end to end.

They run where a torch with CUDA is: in this environment, or in the site-packages that NEUSIGHT_TORCH_SITE names.
"""

from __future__ import annotations

import csv
import importlib.util
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from measurements.cases import cases_of, default_kernels, write_shapes
from measurements.plan import ordered, stratum
from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import Kernel, Softmax

ROOT = Path(__file__).parent.parent
KERNEL_US = 5.0
"""What a kernel takes on the stand-ins' clock (``benchmarks/standin/cudart.c``)."""


def torch_site() -> Path:
    """Folder that a torch with CUDA is installed in."""
    named = os.environ.get("NEUSIGHT_TORCH_SITE")
    found = importlib.util.find_spec("torch") if named is None else None
    site = Path(named) if named else Path(found.origin).parents[1] if found and found.origin else None
    if site is None or not (site / "torch" / "lib" / "libtorch_cuda.so").is_file():
        pytest.skip("no torch with CUDA, here or where NEUSIGHT_TORCH_SITE says")
    if any(shutil.which(tool) is None for tool in ("gcc", "nm", "readelf")):
        pytest.skip("gcc and binutils are needed")
    return site


def standin_module() -> ModuleType:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return importlib.import_module("cuda_standin")
    finally:
        sys.path.pop(0)


@pytest.fixture(scope="module")
def pretended(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, str]]:
    """GPU -> environment of a process that has it."""
    site = torch_site()
    cuda_standin = standin_module()

    def make(gpu: str) -> dict[str, str]:
        folder = tmp_path_factory.mktemp(gpu)
        cuda_standin.build(site, folder, load_gpu(gpu))
        variables = cuda_standin.environment(folder)
        places = os.pathsep.join((str(ROOT), str(ROOT / "analyzer"), str(site)))
        path = os.pathsep.join((str(folder), os.environ["PATH"]))
        return {**os.environ, **variables, "PYTHONPATH": places, "PATH": path}

    return make


def test_a_wheel_that_brings_its_own_libraries(tmp_path: Path) -> None:
    """As PyTorch 1.5: CUDA's runtime under a name with a hash, cuBLAS linked into the file that calls it."""
    if any(shutil.which(tool) is None for tool in ("gcc", "nm", "readelf")):
        pytest.skip("gcc and binutils are needed")
    bundled = "libcudart-80664282.so.10.2"
    (tmp_path / "runtime.c").write_text("int cudaMalloc() { return 0; }")
    (tmp_path / "runtime.map").write_text("libcudart.so.10.2 { global: *; };")
    (tmp_path / "caller.c").write_text(
        "int cudaMalloc(); int cublasSgemm_v2() { return cudaMalloc(); } int helper() { return cublasSgemm_v2(); }"
    )
    shared = ["gcc", "-shared", "-fPIC", "-w", "-o"]
    named = [f"-Wl,-soname,{bundled}", "-Wl,--version-script=runtime.map"]
    subprocess.run([*shared, bundled, "runtime.c", *named], cwd=tmp_path, check=True)
    subprocess.run([*shared, "caller.so", "caller.c", bundled], cwd=tmp_path, check=True)
    cuda_standin, caller = standin_module(), tmp_path / "caller.so"
    assert cuda_standin.functions_of(caller, tmp_path) == {"libcudart.so.10.2": ["cudaMalloc"]}
    assert cuda_standin.bundled_name(caller, "libcudart.so.10.2") == bundled
    assert cuda_standin.bundled_name(caller, "libcuda.so.1") is None
    assert cuda_standin.functions_inside(caller) == {"libcublas.so.inside": ["cublasSgemm_v2"]}


@pytest.mark.parametrize(
    ("header", "metadata", "expected"),
    [
        (None, None, (9, 13, 0)),
        (None, "Requires-Dist: nvidia-cudnn-cu11 (==8.5.0.96) ; platform_system == 'Linux'", (8, 5, 0)),
        (None, "Requires-Dist: nvidia-cudnn-cu12==9.1.0.70; platform_system == 'Linux'", (9, 1, 0)),
        ("#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 10\n#define CUDNN_PATCHLEVEL 2\n", None, (9, 10, 2)),
    ],
    ids=["unknown", "torch 1.13", "torch 2.4", "header"],
)
def test_which_cudnn_is_pretended(
    header: str | None, metadata: str | None, expected: tuple[int, int, int], tmp_path: Path
) -> None:
    if header is not None:
        include = tmp_path / "nvidia" / "cudnn" / "include"
        include.mkdir(parents=True)
        (include / "cudnn_version.h").write_text(header)
    if metadata is not None:
        (tmp_path / "torch-2.0.0.dist-info").mkdir()
        (tmp_path / "torch-2.0.0.dist-info" / "METADATA").write_text(f"Name: torch\n{metadata}\n")
    assert standin_module().cudnn_version(tmp_path) == expected


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small kernel of each kind."""
    first: dict[tuple[str, str], Kernel] = {}
    for case in ordered(cases_of(default_kernels())):
        if case.kernel.read_bytes + case.kernel.write_bytes < 64e6:
            first.setdefault(stratum(case)[:2], case.kernel)
    path = tmp_path_factory.mktemp("shapes") / "shapes.txt"
    write_shapes(path, list(first.values()))
    return path


def measured(environment: dict[str, str], shapes: Path, output: Path, *options: str) -> list[dict[str, str]]:
    command = [sys.executable, "-m", "measurements", "run", "--shapes", str(shapes), "--output", str(output)]
    done = subprocess.run([*command, "--minutes", "1", *options], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    with output.open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("gpu", ["a100-sxm-80gb", "t4", "rtx-4090", "h200-sxm"])
def test_measurements_run_from_end_to_end(
    gpu: str, pretended: Callable[[str], dict[str, str]], shapes: Path, tmp_path: Path
) -> None:
    """Every case is timed in a graph, 5 us a kernel. A case has one; reductions may set memory before."""
    environment = pretended(gpu)
    rows = measured(environment, shapes, tmp_path / "own.csv")
    spec = load_gpu(gpu)
    assert {(row["gpu"], row["device_name"]) for row in rows} == {(gpu, spec.device_names[0])}
    assert {row["sm_clock_mhz"] for row in rows} == {str(round(spec.clock_hz / 1e6))}
    reasons = Counter(row["reason"] for row in rows if row["status"] != "measured")
    old = spec.compute_capability is not None and spec.compute_capability < 8
    assert set(reasons) <= ({f"no {name} below compute capability 8.0" for name in ("bf16", "tf32")} if old else set())
    assert len(rows) - sum(reasons.values()) > 60
    for row in rows:
        if row["status"] == "measured":
            count = float(row["latency_us"]) / KERNEL_US
            most = 2 if row["kernel_class"] == "reduction" else 1
            assert count == pytest.approx(round(count)), row
            assert 1 <= round(count) <= most, row
    evaluated = subprocess.run(
        [sys.executable, "-m", "neusight_onnx", "predictors", "evaluate", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "analyzer")},
        capture_output=True,
        text=True,
    )
    assert evaluated.returncode == 0, evaluated.stderr
    assert "conv float16" in evaluated.stdout


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("error:softmax", "the GPU takes no more work in this process after: CUDA error: an illegal memory access"),
        ("abort:softmax", "the process ended while it was timed"),
    ],
    ids=["a kernel that fails", "a process that ends"],
)
def test_a_kernel_that_fails_costs_its_cases_alone(
    fault: str, reason: str, pretended: Callable[[str], dict[str, str]], shapes: Path, tmp_path: Path
) -> None:
    environment = {**pretended("a100"), "STANDIN_FAULT": fault}
    rows = measured(environment, shapes, tmp_path / "own.csv")
    lost = [row for row in rows if row["status"] != "measured"]
    assert {row["kernel_class"] for row in lost} == {"softmax"}
    assert all(row["reason"].startswith(reason) for row in lost)
    assert len({(row["kernel"], row["precision"], row["layout"]) for row in rows}) == len(rows) > 90


def test_a_device_without_the_memory_is_told(pretended: Callable[[str], dict[str, str]], tmp_path: Path) -> None:
    """Scores of 32 heads by 8,192 x 8,192 are 4.3 GB in 16 bits; read, written and once more to spare is too much."""
    path = tmp_path / "shapes.txt"
    write_shapes(path, [Softmax(rows=32 * 8192, cols=8192, dtype=DataType.FLOAT32)])
    rows = measured(pretended("t4"), path, tmp_path / "own.csv")
    assert [row["reason"] for row in rows] == ["needs 25.8 GB of memory", "needs 51.5 GB of memory"]


def test_priorities_may_be_asked_for_one_by_one(pretended: Callable[[str], dict[str, str]]) -> None:
    """As cuDNN 7 does: CUDA's runtime takes NULL for the one that isn't wanted."""
    code = """
import ctypes
runtime = ctypes.CDLL(None)
least, greatest = ctypes.c_int(9), ctypes.c_int(9)
print(runtime.cudaDeviceGetStreamPriorityRange(None, ctypes.byref(greatest)), greatest.value)
print(runtime.cudaDeviceGetStreamPriorityRange(ctypes.byref(least), None), least.value)
"""
    done = subprocess.run([sys.executable, "-c", code], env=pretended("t4"), capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("0 -5\n0 0\n", 0), done.stderr[-2000:]


def test_the_log_names_what_is_launched(pretended: Callable[[str], dict[str, str]], tmp_path: Path) -> None:
    """A linear layer in 16 bits is one product with its bias, a GELU one kernel of PyTorch's, a convolution cuDNN's."""
    program = """
import torch
functional = torch.nn.functional
x = torch.empty(64, 64, device="cuda", dtype=torch.half)
maps = torch.empty(2, 32, 8, 8, device="cuda", dtype=torch.half)
weight = torch.empty(16, 32, 3, 3, device="cuda", dtype=torch.half)
functional.linear(x, x, x[0])
functional.gelu(x)
functional.conv2d(maps, weight, padding=1)
"""
    log = tmp_path / "log"
    environment = {**pretended("a100"), "STANDIN_LOG": str(log)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    product, gelu, convolution = log.read_text().splitlines()
    assert product.startswith("library\tcublasLtMatmul\tm=64 n=64 k=64 batch=1")
    assert gelu.startswith("kernel\t")
    assert "GeluCUDAKernel" in gelu
    assert convolution.startswith(
        "library\tcudnn\tconvolution forward w=16x32x3x3/288x9x3x1:2 x=2x32x8x8/2048x64x8x1:2"
    )


def test_recurrent_layers_find_their_weights(pretended: Callable[[str], dict[str, str]], tmp_path: Path) -> None:
    """PyTorch asks cuDNN where each gate's weights lie and refuses gaps. Two fills make an LSTM's states."""
    program = """
import torch
layer = torch.nn.LSTM(8, 16, num_layers=2, bidirectional=True).cuda()
given = torch.zeros(5, 2, 8, device="cuda")
open(LOG, "w").close()
with torch.no_grad():
    assert layer(given)[0].shape == (5, 2, 32)
"""
    log = tmp_path / "log"
    environment = {**pretended("a100"), "STANDIN_LOG": str(log)}
    subprocess.run([sys.executable, "-c", program.replace("LOG", repr(str(log)))], env=environment, check=True)
    h, c, layer = log.read_text().splitlines()
    assert "FillFunctor" in h
    assert "FillFunctor" in c
    assert layer == "library\tcudnn\trecurrent forward mode=2 algorithm=3 layers=2 directions=2 input=8 hidden=16"
