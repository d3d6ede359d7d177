"""Stand-ins for CUDA's libraries that compute nothing: PyTorch and ONNX Runtime run models without a GPU.

    python benchmarks/cuda_standin.py SITE-PACKAGES -o FOLDER [--gpu a100]

SITE-PACKAGES is where ``torch`` (2.0 to 2.9, of CUDA 11.7 and 12; 1.5, of CUDA 10.2) or ``onnxruntime-gpu`` (1.31, of
CUDA 13) is installed, and with it ``nvidia-cuda-runtime`` (for CUDA 13 ``nvidia-cuda-crt``, too, for PyTorch before 2.4
``nvidia-cuda-nvcc``, both with ``-cu11`` for 1.5) for the headers; PyTorch 2 wants ``nvidia-nccl`` and ``nvidia-nvtx``
there. gcc and binutils (nm, readelf) are needed. Programs see a device with the figures of ``--gpu``'s file in
``specs/``. What is in memory is what the host put there.

ONNX Runtime looks for the libraries in ``LD_LIBRARY_PATH``: a session on its CUDA provider can be made, which places
nodes, optimises the graph for this provider and writes it (``optimized_model_filepath``). PyTorch knows where its
own are, so that the stand-ins are loaded first (``LD_PRELOAD``, :func:`environment`). 1.5 asks another copy of CUDA's
runtime, inside ``libtorch_python``, whether there is a driver: ``torch.cuda._check_driver = lambda: None`` goes on
without it, events don't work. Its wheel has cuBLAS and cuDNN inside, which run themselves where their stand-ins are
left out of ``LD_PRELOAD`` (all but ``libcuda`` and ``libcudart``). Then models run in eager mode and under CUDA graphs;
``STANDIN_LOG`` names a file that gets a line for each launch (the kernel's name, grid and block) and
for each call of cuBLAS, cuBLASLt and cuDNN that would launch kernels. ``standin/cudart.c`` says what else can be set.

What a library's file calls and ``standin/`` doesn't define returns success, and where it creates something, a
pointer that nobody reads.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from neusight_onnx.errors import NeusightError
from neusight_onnx.gpu import GpuSpec, load_gpu

CUDNN = "libcudnn.so.9"
CUDNN_VERSION = (9, 13, 0)
"""Where neither its header nor what torch requires says which one it is."""

CALLERS = ("onnxruntime/capi/libonnxruntime_providers_cuda.so", "torch/lib/*.so")
"""Files that call CUDA's libraries."""

DEFINES = ("nvidia/*/include", "triton/backends/nvidia/include")
"""Where ``crt/host_defines.h`` may lie, which CUDA's headers include."""

HANDLES = re.compile(r"Create(?!Tiled)|Instantiate|LoadData|GetKernel")
"""Calls whose first argument is where the address of something new goes."""

LAUNCHES = re.compile(
    r"cudnn\w+Forward\w*|cudnn(?:Add|Op|Reduce|Transform)Tensor|cublas(?:[SDCZ](?:ge|copy|scal)|Gemm)\w+"
)
"""Calls of cuBLAS and cuDNN that run kernels in the stream of their first argument, a handle: one is counted for each
that ``standin/`` says nothing more of."""

SOURCES = Path(__file__).parent / "standin"
DEFINITION = re.compile(r"^(?:int|void|unsigned|size_t|const char) \**(\w+)\(", re.MULTILINE)
"""A function in C as the sources there begin one."""

PREAMBLE = """#include <stdlib.h>
#include <string.h>
static char thing[65536];
"""
TEXTS = ("cudnnGetErrorString", "cudnnGetLastErrorString", "cublasGetStatusName", "cublasGetStatusString")
"""Functions that return a text."""

RESERVED_SHARED_BYTES = 1024
"""Shared memory that CUDA keeps of a block's from compute capability 8.0 on (CUDA C++ Programming Guide)."""


def functions_of(caller: Path, site_packages: Path) -> dict[str, list[str]]:
    """Functions of CUDA's libraries that a file calls, by library.

    A library whose functions can't be told by their version is left to the real one where that is installed: it loads
    without a GPU.
    """
    listed = _symbols(caller, "--undefined-only")
    found: defaultdict[str, list[str]] = defaultdict(list)
    unversioned: list[str] = []
    for line in listed.splitlines():
        name, _, library = line.split()[-1].partition("@")
        if library.lstrip("@").startswith("libcu"):
            found[library.lstrip("@")].append(name)
        elif re.match(r"cu(?!File)[A-Z]", name):
            found["libcuda.so.1"].append(name)
        elif name.startswith("cublasLt"):
            unversioned.append(name)
    needed = _dynamic_section(caller)
    if unversioned:  # linked without this library itself, which cuBLAS of the same version brings
        release = re.search(r"\[libcublas\.so\.(\d+)\]", needed)
        found[f"libcublasLt.so.{release[1] if release else ''}"].extend(unversioned)
    listed_libraries = re.findall(r"\[(lib(?:cu|nvrtc)\w*\.so\.\d+(?:\.\d+)?)\]", needed)
    for library in (*listed_libraries, *_loaded_first(caller)):
        if not any(site_packages.glob(f"nvidia/*/lib/{library}")):
            found.setdefault(library, [])
    if "onnxruntime" in caller.name:
        # opened at run time by their names, so that the file doesn't list their functions as undefined
        held = caller.read_bytes()
        opened = {"libcuda.so.1": rb"cu[A-Z]"} if b"libcuda.so.1" in held else {}
        if not any(library.startswith("libcudnn.") for library in found):
            opened[CUDNN] = rb"cudnn[A-Z]"
        for library, prefix in opened.items():
            names = re.findall(rb"(?<=\0)" + prefix + rb"[A-Za-z]+(?:_v\d)?(?=\0)", held)
            found[library] = sorted({*found[library], *(name.decode() for name in names)})
    return dict(found)


def _symbols(file: Path, which: str) -> str:
    """What nm lists of a file's dynamic symbols."""
    command = ["nm", "-D", which, "--with-symbol-versions", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _dynamic_section(file: Path) -> str:
    return subprocess.run(["readelf", "-d", str(file)], capture_output=True, text=True, check=True).stdout


def functions_inside(caller: Path) -> dict[str, list[str]]:
    """Functions of cuBLAS and cuDNN that a file brings itself, linked into it, and calls by name as another's.

    The first library that defines such a name is called: a stand-in that is loaded before. PyTorch until 1.12 is so.
    """
    found: defaultdict[str, list[str]] = defaultdict(list)
    for line in _symbols(caller, "--defined-only").splitlines():
        inside = re.fullmatch(r"(cublasLt|cublas|cudnn)[A-Z]\w*", line.split()[-1].partition("@")[0])
        if inside is not None:
            found[f"lib{inside[1]}.so.inside"].append(inside[0])
    return dict(found)


def bundled_name(caller: Path, library: str) -> str | None:
    """What a wheel calls its own copy of a library (its name with a hash in it); None where it brings none."""
    stem, _, version = library.partition(".so")
    found = re.search(rf"\[({re.escape(stem)}-[0-9a-f]+\.so{re.escape(version)})\]", _dynamic_section(caller))
    return None if found is None else found[1]


def _loaded_first(caller: Path) -> list[str]:
    """Libraries that ONNX Runtime's wheels until 1.14 load by name before the caller, which then doesn't list them.

    Where one of them isn't found, these wheels leave the CUDA provider out.
    """
    listed = caller.with_name("_ld_preload.py")
    return re.findall(r'CDLL\("(lib[^"]+)"', listed.read_text()) if listed.is_file() else []


def source_of(library: str, names: set[str], facts: Mapping[str, object]) -> str:
    """C source of one library: what ``standin/`` has of it, and the other functions that are called."""
    written = SOURCES / f"{library.partition('.')[0].removeprefix('lib')}.c"
    own = written.read_text() if written.is_file() else ""
    lines = [*(f"#define {name} {value}" for name, value in facts.items()), PREAMBLE, own]
    for name in sorted(names - set(DEFINITION.findall(own))):
        if name in TEXTS:
            lines.append(f'const char *{name}(int status) {{ return "stand-in"; }}')
        elif LAUNCHES.fullmatch(name):
            lines.append("int standin_launch(void *stream, const char *line);")
            lines.append(f'int {name}(void **handle) {{ return standin_launch(*handle, "library\\t{name}"); }}')
        elif HANDLES.search(name):
            lines.append(f"int {name}(void **made) {{ *made = thing; return 0; }}")
        else:
            lines.append(f"int {name}() {{ return 0; }}")
    return "\n".join(lines) + "\n"


def cudnn_version(site_packages: Path) -> tuple[int, int, int]:
    """Major, minor and patch of the cuDNN that callers expect: of its header, else as torch requires it."""
    for header in site_packages.glob("nvidia/cudnn/include/cudnn_version.h"):
        parts = re.findall(r"#define\s+CUDNN_(?:MAJOR|MINOR|PATCHLEVEL)\s+(\d+)", header.read_text())
        return int(parts[0]), int(parts[1]), int(parts[2])
    for metadata in site_packages.glob("torch-*.dist-info/METADATA"):
        required = re.search(r"nvidia-cudnn-cu\d+ *\(?==(\d+)\.(\d+)\.(\d+)", metadata.read_text())
        if required is not None:
            return int(required[1]), int(required[2]), int(required[3])
    return CUDNN_VERSION


def facts_of(gpu: GpuSpec, headers: Path, cudnn: tuple[int, int, int], called: int | None = None) -> dict[str, object]:
    """What the sources are told of the device and of the libraries' versions.

    ``called``: the version of CUDA that callers were built with, as headers number it, where these are of a later one.

    Raises:
        FileNotFoundError: The GPU is none of CUDA's, or the headers lack their version.
    """
    if gpu.compute_capability is None:
        raise FileNotFoundError(f"{gpu.name} has no compute capability: give a GPU of NVIDIA's")
    version = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", (headers / "cuda_runtime_api.h").read_text())
    if version is None:
        raise FileNotFoundError(f"{headers}/cuda_runtime_api.h doesn't say its version")
    cuda = called or int(version[1])
    shared = gpu.shared_memory_bytes_per_sm or 65536
    reserved = RESERVED_SHARED_BYTES if gpu.compute_capability >= 8 else 0
    major, minor, patch = cudnn
    return {
        "DEVICE_NAME": '"' + (gpu.device_names[0] if gpu.device_names else gpu.label) + '"',
        "MAJOR": int(gpu.compute_capability),
        "MINOR": round(gpu.compute_capability * 10) % 10,
        "SM_COUNT": gpu.sm_count,
        "MEMORY": f"((size_t){gpu.memory_bytes}ull)",
        "L2_BYTES": gpu.l2_bytes,
        "MAX_THREADS_PER_SM": gpu.max_threads_per_sm,
        "SHARED_PER_SM": shared,
        "SHARED_PER_BLOCK_OPTIN": shared - reserved,
        "CUDA_MAJOR": cuda // 1000,
        "CUDA_MINOR": cuda % 1000 // 10,
        "CUDNN_MAJOR": major,
        "CUDNN_MINOR": minor,
        "CUDNN_PATCH": patch,
        "CUDNN_VERSION_NUMBER": (10_000 if major >= 9 else 1_000) * major + 100 * minor + patch,
    }


def build(site_packages: Path, folder: Path, gpu: GpuSpec) -> None:
    """All libraries into ``folder``, and an ``nvidia-smi``.

    Raises:
        FileNotFoundError: ``site_packages`` lacks what calls CUDA, or CUDA's headers; or the GPU is none of CUDA's.
        subprocess.CalledProcessError: nm or gcc failed.
    """
    callers = sorted(path for caller in CALLERS for path in site_packages.glob(caller))
    headers = next(iter(site_packages.glob("nvidia/*/include/driver_types.h")), None)
    # of a package of its own for CUDA 13; triton, which torch needs, brings it for CUDA 12
    defines = next((found for place in DEFINES for found in site_packages.glob(f"{place}/crt/host_defines.h")), None)
    if not callers:
        raise FileNotFoundError(f"no torch with CUDA and no onnxruntime-gpu in {site_packages}")
    if headers is None or defines is None:
        raise FileNotFoundError(
            f"CUDA's headers aren't in {site_packages}: install nvidia-cuda-runtime and "
            "nvidia-cuda-crt or nvidia-cuda-nvcc"
        )
    names: defaultdict[str, set[str]] = defaultdict(set)
    sonames: dict[str, str] = {}
    for caller in callers:
        for library, called in functions_of(caller, site_packages).items():
            names[library].update(called)
            sonames[library] = bundled_name(caller, library) or sonames.get(library, library)
    runtime = next(library for library in names if library.startswith("libcudart"))
    bundled = sonames[runtime] != runtime
    if bundled:  # no package with headers is of so old a CUDA; its libraries that are linked in are called by name
        for caller in callers:
            for library, called in functions_inside(caller).items():
                names[library].update(called)
                sonames[library] = library
    major, minor = re.findall(r"\d+", runtime.partition(".so")[2])[:2] if bundled else ("0", "0")
    facts = facts_of(gpu, headers.parent, cudnn_version(site_packages), 1000 * int(major) + 10 * int(minor))
    folder.mkdir(parents=True, exist_ok=True)
    for library in sorted(names, key=lambda library: library != runtime):  # others call it
        source = folder / f"{library}.c"
        source.write_text(source_of(library, names[library], facts))
        versions = folder / f"{library}.map"
        versions.write_text(f"{library} {{ global: *; }};\n")
        linked = [f"-Wl,-soname,{sonames[library]}", f"-Wl,--version-script={versions}"]
        if library != runtime:
            linked += [str(folder / runtime), "-Wl,-rpath,$ORIGIN"]
        # gnu89: a function declared without parameters takes any
        included = ["-I", str(headers.parent), "-I", str(defines.parent.parent)]
        options = ["-w", "-std=gnu89", "-shared", "-fPIC", "-O1", "-pthread", *included]
        subprocess.run(["gcc", *options, str(source), *linked, "-o", str(folder / library)], check=True)
    _write_smi(folder / "nvidia-smi", gpu)


def _write_smi(path: Path, gpu: GpuSpec) -> None:
    """Answers a query of nvidia-smi as a card under load would, for the fields that ``measurements`` asks for."""
    clock_mhz = round(gpu.clock_hz / 1e6)
    path.write_text(
        f"""#!/bin/sh
case "$*" in
  *driver_version*) echo 999.0 ;;
  *) echo {clock_mhz}, 1000, {gpu.power_w:.2f}, 60 ;;
esac
"""
    )
    path.chmod(0o755)


def environment(folder: Path) -> dict[str, str]:
    """Variables with which a process takes the stand-ins in ``folder`` for CUDA's libraries."""
    libraries = sorted(str(path.resolve()) for path in folder.glob("lib*.so.*") if path.suffix not in (".c", ".map"))
    return {"LD_LIBRARY_PATH": str(folder.resolve()), "LD_PRELOAD": ":".join(libraries)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site_packages", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--gpu", default="a100", help="whose figures the device has (default: a100)")
    arguments = parser.parse_args()
    try:
        build(arguments.site_packages, arguments.output, load_gpu(arguments.gpu))
    except (FileNotFoundError, subprocess.CalledProcessError, NeusightError) as error:
        sys.exit(f"error: {error}")
    variables = " ".join(f"{name}={value}" for name, value in environment(arguments.output).items())
    print(f"built in {arguments.output}: put it on LD_LIBRARY_PATH, for PyTorch all that follows\n{variables}")


if __name__ == "__main__":
    main()
