"""What a kernel asks of a GPU, and what kernels of several classes wait for."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from neusight_onnx.gpu import GpuSpec

SECTOR_BYTES = 32
"""Unit of DRAM and L2 traffic on NVIDIA GPUs (CUDA best practices guide); AMD's is 64, used alike here."""

VECTOR_BITS = 128
"""What a thread copies at once where runs are whole vectors (PyTorch's ``CatArrayBatchedCopy_vectorized``, copies of
slices by elements that its iterator merges to a row)."""

BLOCK_REDUCTION_US = 3.0
"""Serial part of a reduction in a block: load latency plus a tree, about 4-7 kcycles (row law of LayerNorm: 6,900)."""
SERIAL_ITERATION_CYCLES = 600.0
"""One more loop iteration of a block that waits for DRAM (row law of LayerNorm: 620 cycles)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a kernel asks of a GPU, efficiencies included; times in us.

    ``bytes`` go through L2, and through DRAM as far as ``working_set`` (default: ``bytes``) exceeds L2;
    ``memory_efficiency`` is relative to an elementwise kernel; ``compute_us`` and ``serial_us`` are final,
    ``fixed_us`` adds to everything else. A tile is a block of ``tile_threads``.
    """

    bytes: float
    compute_us: float = 0.0
    serial_us: float = 0.0
    fixed_us: float = 0.0
    memory_efficiency: float = 1.0
    working_set: float | None = None
    launches: int = 1
    tile_count: float = 1.0
    tile_threads: float = 128.0
    wave_count: float | None = None

    def waves(self, gpu: GpuSpec) -> float:
        """Rounds in which the GPU executes the tiles: those said, else as many at once as its threads allow."""
        resident = gpu.sm_count * max(1.0, gpu.max_threads_per_sm / self.tile_threads)
        return max(1.0, ceil(self.tile_count / resident) if self.wave_count is None else self.wave_count)
