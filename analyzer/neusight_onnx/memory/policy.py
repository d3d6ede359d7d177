"""How each runtime manages device memory, and the constants of its allocator, its libraries and its context.

None of the figures below was measured by this project: it had no GPU to measure on. Each says where it is from.
"""

from __future__ import annotations

from dataclasses import dataclass

from neusight_onnx.gpu import GpuSpec

MIB = 1 << 20

CONTEXT_LOW_BYTES = 300_000_000
CONTEXT_BYTES = 500_000_000
CONTEXT_HIGH_BYTES = 700_000_000
"""CUDA context with the loaded modules of the framework, cuBLAS and cuDNN: 300 to 700 MB by the survey of public
figures that the project was given (driver, GPU and loading of modules decide); it names no document and gives no
figure for one runtime apart from another, so that all have the same range here. Expected is the middle. The same is
assumed for AMD's HIP, for which no figure was found."""

WORKSPACE_BYTES = (2 * 4096 + 8 * 16) * 1024
"""cuBLAS workspace of a handle and stream in PyTorch: CUBLAS_WORKSPACE_CONFIG=:4096:2:16:8 (PyTorch's documentation,
"CUDA semantics", section "cuBLAS workspaces")."""

CUBLAS_WORKSPACE_BYTES = 4 * MIB
"""cuBLAS's own default workspace before compute capability 9.0, for runtimes that set none (cuBLAS documentation,
cublasSetWorkspace)."""

HOPPER_WORKSPACE_BYTES = 32 * MIB
"""From compute capability 9.0 on NVIDIA recommends 32 MiB (cuBLAS documentation, cublasSetWorkspace), and PyTorch
follows."""

FITS_SHARE = 0.9
"""Up to this share of the memory the high end counts as fitting. What is left covers what a process can't have: cards
with GDDR memory give a sixteenth of it to ECC (a T4's 16 GB show as 15 GiB), the driver keeps 1 to 2 %, and other
processes (a desktop, a monitor) take some. The share is this project's choice."""

SYSTEM_BYTES = 1536 * MIB
"""What the CPU's programs and the operating system hold of memory that the GPU shares with them. A judgement, as no
board was measured: a Jetson's desktop idles at 1 to 2 GiB with what firmware keeps (as users print it by ``free`` and
``tegrastats``, remembered); a process of inference on the host is in it, a desktop's other programs aren't."""


def available_bytes(gpu: GpuSpec) -> int:
    """The GPU's memory, less what the system takes where it is the CPU's as well (half of it at most)."""
    if not gpu.shares_memory:
        return gpu.memory_bytes
    return gpu.memory_bytes - min(SYSTEM_BYTES, gpu.memory_bytes // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """``allocator``: "caching" (PyTorch's), "arena" (ONNX Runtime's) or "planned" (one block laid out beforehand).

    ``in_place``: operators whose result takes the memory of an operand that nobody needs any more; None: all that work
    element by element. ``demand_order``: nodes run in the order of ONNX Runtime's topological sort, else in the file's.
    ``hands_over``: a result may take the memory of a dead one of the same shape and type, which is then not given back
    meanwhile. ``library_workspace_bytes``: what cuBLAS holds below compute capability 9.0.
    """

    allocator: str
    in_place: frozenset[str] | None
    demand_order: bool
    hands_over: bool
    library_workspace_bytes: int
    described: str


ORT_IN_PLACE = frozenset(
    {"Celu", "Clip", "Elu", "HardSigmoid", "LeakyRelu", "LogSoftmax", "Relu", "Selu", "Sigmoid", "Softmax"}
    | {"Softplus", "Softsign", "Tanh", "ThresholdedRelu"}
)
"""Operators of ONNX Runtime whose kernels work in place: observed of its CPU provider (1.32; tests/test_memory_ort.py);
the CUDA provider could not be observed."""

POLICIES: dict[str, Policy] = {
    # Eager operators allocate their result before their operands can go; a module written with inplace=True does not,
    # which the file doesn't tell: that is the low end.
    "eager": Policy(
        allocator="caching",
        in_place=frozenset(),
        demand_order=False,
        hands_over=False,
        library_workspace_bytes=WORKSPACE_BYTES,
        described="PyTorch's caching allocator: blocks of 512 B, segments of 2 MiB, 20 MiB or more; nothing in place",
    ),
    # torch._inductor.config.inplace_buffers is on by default.
    "compiled": Policy(
        allocator="caching",
        in_place=None,
        demand_order=False,
        hands_over=False,
        library_workspace_bytes=WORKSPACE_BYTES,
        described="PyTorch's caching allocator: blocks of 512 B, segments of 2 MiB, 20 MiB or more; generated kernels "
        "write in place, and what they keep to themselves takes none",
    ),
    # Its kernels declare what they can do in place (MayInplace), and the planner does it; its arena doubles.
    "onnxruntime": Policy(
        allocator="arena",
        in_place=ORT_IN_PLACE,
        demand_order=True,
        hands_over=True,
        library_workspace_bytes=CUBLAS_WORKSPACE_BYTES,
        described="ONNX Runtime's arena: chunks of 256 B, regions that double from 1 MiB to 1 GiB, or until a "
        "larger request fits (kNextPowerOfTwo); pointwise results in place",
    ),
    "tensorrt": Policy(
        allocator="planned",
        in_place=None,
        demand_order=False,
        hands_over=False,
        library_workspace_bytes=CUBLAS_WORKSPACE_BYTES,
        described="one block for activations, planned when the engine is built; pointwise results in place",
    ),
}


def library_workspace_bytes(gpu: GpuSpec, policy: Policy) -> int:
    """What the BLAS library holds as long as it is loaded."""
    newer = gpu.vendor.lower() == "nvidia" and (gpu.compute_capability or 0.0) >= 9.0
    return HOPPER_WORKSPACE_BYTES if newer else policy.library_workspace_bytes
