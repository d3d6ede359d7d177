"""Stand-ins for CUDA's libraries that compute nothing: ONNX Runtime's CUDA provider prepares models without a GPU.

    python benchmarks/cuda_standin.py SITE-PACKAGES -o FOLDER [--compute-capability 8.0]

SITE-PACKAGES is where ``onnxruntime-gpu`` (1.31, of CUDA 13), ``nvidia-cuda-runtime`` and ``nvidia-cuda-crt`` (headers)
are installed; gcc and binutils (nm, readelf) are needed. With FOLDER on ``LD_LIBRARY_PATH`` a session of that ONNX
Runtime can be made on the CUDA provider: it places nodes, optimises the graph for this provider and writes it
(``optimized_model_filepath``), all of which looks at the graph and at properties of the device only. Whatever it would
run gives memory as it was.

The stand-ins have one device with 80 GB. A call returns success, one that creates something a pointer that nobody
reads, memory is the host's.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

CUDNN = "libcudnn.so.9"
"""Opened at run time by the name, so that the provider's file doesn't list its functions as undefined."""

HANDLES = re.compile(r"Create(?!Tiled)|Instantiate|LoadData|GetKernel")
"""Calls whose first argument is where the address of something new goes."""

DEFINED: dict[str, str] = {
    "cudaGetDeviceCount": "(int *count) { *count = 1; return 0; }",
    "cudaGetDevice": "(int *device) { *device = 0; return 0; }",
    "cudaGetDeviceProperties": """(struct cudaDeviceProp *p, int device) {
  memset(p, 0, sizeof *p);
  strcpy(p->name, "stand-in");
  p->major = MAJOR; p->minor = MINOR;
  p->totalGlobalMem = MEMORY;
  p->multiProcessorCount = 108; p->warpSize = 32;
  p->maxThreadsPerBlock = 1024; p->maxThreadsPerMultiProcessor = 2048;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024; p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647; p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->sharedMemPerBlock = 49152; p->sharedMemPerBlockOptin = 166912; p->sharedMemPerMultiprocessor = 167936;
  p->l2CacheSize = 41943040;
  return 0;
}""",
    "cudaDeviceGetAttribute": """(int *value, int attribute, int device) {
  struct cudaDeviceProp p;
  cudaGetDeviceProperties(&p, device);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = p.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = p.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = p.sharedMemPerMultiprocessor; break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    default: *value = 1;
  }
  return 0;
}""",
    "cudaMalloc": "(void **p, size_t n) { *p = host(n); return 0; }",
    "cudaMallocFromPoolAsync": "(void **p, size_t n, void *pool, void *stream) { *p = host(n); return 0; }",
    "cudaMallocHost": "(void **p, size_t n) { *p = host(n); return 0; }",
    "cudaHostAlloc": "(void **p, size_t n, unsigned flags) { *p = host(n); return 0; }",
    "cudaFree": "(void *p) { free(p); return 0; }",
    "cudaFreeHost": "(void *p) { free(p); return 0; }",
    "cudaFreeAsync": "(void *p, void *stream) { free(p); return 0; }",
    "cudaMemGetInfo": "(size_t *free_bytes, size_t *total) { *free_bytes = *total = MEMORY; return 0; }",
    "cudaDriverGetVersion": "(int *version) { *version = 13000; return 0; }",
    "cudaRuntimeGetVersion": "(int *version) { *version = 13000; return 0; }",
    "cudaMemcpy": "(void *to, const void *from, size_t n, int kind) { memcpy(to, from, n); return 0; }",
    "cudaMemcpyAsync": "(void *to, const void *from, size_t n, int kind, void *s) { memcpy(to, from, n); return 0; }",
    "cudaMemset": "(void *p, int value, size_t n) { memset(p, value, n); return 0; }",
    "cudaMemsetAsync": "(void *p, int value, size_t n, void *stream) { memset(p, value, n); return 0; }",
    "cudaEventElapsedTime": "(float *ms, void *start, void *end) { *ms = 1; return 0; }",
    "cudaPointerGetAttributes": """(struct cudaPointerAttributes *a, const void *p) {
  memset(a, 0, sizeof *a);
  a->type = cudaMemoryTypeDevice;
  return 0;
}""",
    "cudaFuncGetAttributes": """(struct cudaFuncAttributes *a, const void *function) {
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024;
  a->binaryVersion = a->ptxVersion = 10 * MAJOR + MINOR;
  return 0;
}""",
    "cudaGetDriverEntryPointByVersion": """(const char *name, void **p, unsigned version, unsigned long long flags,
    int *found) {
  *p = (void *)cudaFree;
  if (found) *found = 0;
  return 0;
}""",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": "(int *blocks) { *blocks = 2; return 0; }",
    "cudaStreamIsCapturing": "(void *stream, int *status) { *status = 0; return 0; }",
    "cudnnGetStream": "(void *handle, void **stream) { *stream = thing; return 0; }",
    "cudnnDropoutGetStatesSize": "(void *handle, size_t *n) { *n = 1024; return 0; }",
    "cudnnGetReductionWorkspaceSize": "(void *handle, void *r, void *a, void *c, size_t *n) { *n = 0; return 0; }",
}
"""Signature and body of the functions that return an int and do something."""

OTHERS: dict[str, str] = {
    "__cudaRegisterFatBinary": "void **__cudaRegisterFatBinary(void *binary) { return (void **)thing; }",
    "cudnnGetVersion": "size_t cudnnGetVersion(void) { return 91300; }",
    **{
        name: f'const char *{name}(int status) {{ return "stand-in"; }}'
        for name in (
            "cudaGetErrorString",
            "cudaGetErrorName",
            "cudnnGetErrorString",
            "cublasGetStatusName",
            "cublasGetStatusString",
        )
    },
}
"""Functions that return something else."""

PREAMBLE = """#include <stdlib.h>
#include <string.h>
static char thing[65536];
"""
RUNTIME = """#include <driver_types.h>
#define MEMORY (80ull << 30)
static void *host(size_t n) { return aligned_alloc(256, (n + 511) / 256 * 256); }
"""


def functions_of(provider: Path) -> dict[str, list[str]]:
    """Functions of CUDA's libraries that the provider's file calls, by library."""
    listed = subprocess.run(
        ["nm", "-D", "--undefined-only", "--with-symbol-versions", str(provider)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found: defaultdict[str, list[str]] = defaultdict(list)
    for line in listed.splitlines():
        name, _, library = line.split()[-1].partition("@")
        if library.lstrip("@").startswith(("libcu", "libcublas")):
            found[library.lstrip("@")].append(name)
        elif re.match(r"cu[A-Z]", name):
            found["libcuda.so.1"].append(name)
    needed = subprocess.run(["readelf", "-d", str(provider)], capture_output=True, text=True, check=True).stdout
    for library in re.findall(r"\[(libcu[a-zA-Z]+\.so\.\d+)\]", needed):
        found.setdefault(library, [])
    names = re.findall(rb"(?<=\0)cudnn[A-Z][A-Za-z]+(?:_v\d)?(?=\0)", provider.read_bytes())
    found[CUDNN] = sorted({name.decode() for name in names})
    return dict(found)


def source_of(library: str, names: list[str], capability: tuple[int, int]) -> str:
    """C source of one library."""
    runtime = library.startswith("libcudart")
    lines = [PREAMBLE, f"#define MAJOR {capability[0]}", f"#define MINOR {capability[1]}"]
    if runtime:
        # what others of the library's functions call stands first
        names = ["cudaGetDeviceProperties", "cudaFree", *sorted(set(names) - {"cudaGetDeviceProperties", "cudaFree"})]
        lines.append(RUNTIME)
    for name in names:
        if name in OTHERS:
            lines.append(OTHERS[name])
        elif name in DEFINED:
            lines.append(f"int {name}{DEFINED[name]}")
        elif HANDLES.search(name):
            lines.append(f"int {name}(void **made) {{ *made = thing; return 0; }}")
        else:
            lines.append(f"int {name}() {{ return 0; }}")
    return "\n".join(lines) + "\n"


def build(site_packages: Path, folder: Path, capability: tuple[int, int]) -> None:
    """All libraries into ``folder``.

    Raises:
        FileNotFoundError: ``site_packages`` lacks the provider's library or CUDA's headers.
        subprocess.CalledProcessError: nm or gcc failed.
    """
    provider = site_packages / "onnxruntime/capi/libonnxruntime_providers_cuda.so"
    headers = next(iter(site_packages.glob("nvidia/*/include/driver_types.h")), None)
    if not provider.is_file():
        raise FileNotFoundError(f"{provider} is not there: install onnxruntime-gpu")
    if headers is None:
        raise FileNotFoundError(f"no driver_types.h in {site_packages}: install nvidia-cuda-runtime, nvidia-cuda-crt")
    folder.mkdir(parents=True, exist_ok=True)
    for library, names in functions_of(provider).items():
        source = folder / f"{library}.c"
        source.write_text(source_of(library, names, capability))
        versions = folder / f"{library}.map"
        versions.write_text(f"{library} {{ global: *; }};\n")
        linked = [f"-Wl,-soname,{library}", f"-Wl,--version-script={versions}"]
        # gnu89: a function declared without parameters takes any
        options = ["-w", "-std=gnu89", "-shared", "-fPIC", "-O1", "-I", str(headers.parent), *linked]
        subprocess.run(["gcc", *options, str(source), "-o", str(folder / library)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site_packages", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--compute-capability", default="8.0")
    arguments = parser.parse_args()
    major, _, minor = arguments.compute_capability.partition(".")
    try:
        build(arguments.site_packages, arguments.output, (int(major), int(minor or 0)))
    except (FileNotFoundError, subprocess.CalledProcessError, ValueError) as error:
        sys.exit(f"error: {error}")
    print(f"built in {arguments.output}: put it on LD_LIBRARY_PATH")


if __name__ == "__main__":
    main()
