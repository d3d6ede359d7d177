"""What lies beside the GPU: copies over its link to the host, and operators that the CPU computes."""

from __future__ import annotations

from math import log, sqrt

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import HostWork, TreeWalk

PCIE_LANE_BYTES_PER_S = 0.985e9
"""A lane of PCIe 3.0 in one direction: 8 GT/s, 128 of 130 bits; each generation doubles it."""
PCIE_DEFAULT = (4.0, 16)
"""Generation and lanes where the GPU's file names none: what cards since 2020 have."""
PCIE_EFFICIENCY = 0.6
"""Copies reach about .8 of it from pinned memory (12-13 GB/s over PCIe 3.0 x16), half of that from pageable: which of
them a program uses, its file doesn't tell. The same share is taken of memory that host and GPU share."""
TRANSFER_US = 8.0
"""What the host's wait for the end of a copy adds to its launch (assumed)."""
HOST_PRODUCTS_PER_S = 1e12
HOST_INT8_PRODUCTS_PER_S = 3e12
"""Operations of products and convolutions that a server's CPU does in floats and in 8 bits: eight cores at three
quarters of what ONNX Runtime's CPU provider reaches on one (AVX-512 with VNNI, 2.3 GHz: 150 to 175 and 450 to 690
GFLOP/s in convolutions of 64 to 256 channels, one thread)."""
HOST_FLOPS_PER_S = 20e9
HOST_BYTES_PER_S = 10e9
"""What any other operator reaches on a CPU: a few cores with vector instructions, caches missed (assumed)."""
HOST_ON_CHIP = 0.2
"""Of those products, what the CPU of a system on a chip does: eight cores at three quarters of their peak, which is two
multiply-adds of 128 bits a clock at 2.2 GHz (Cortex-A78AE of a Jetson AGX Orin; Arm's Cortex-A78 optimization guide)
makes .21e12 and .84e12."""
HOST_CORES = 6.0
"""What those eight cores at three quarters come to where work is shared among them."""
VISIT_NS, FAR_VISIT_NS = 5.5, 100.0
VISIT_NEAR_BYTES = 4e6
"""A node of a tree that one thread looks at: a load, and a branch that only that load decides. onnxruntime 1.31 on a
CPU (one thread, features that are new in each run, balanced trees) took 5.2 to 6 ns a node where all nodes, 16 bytes
each, are .2 MB, 5 to 9 where they are 4 MB, 8 to 16 at 13 and 33 MB, 36 to 43 at 260 MB: beyond what is near as the
root of the size. Seldom more than a load from memory. The same features again and again, which its branch predictor
learns, took 1.5 to 5."""
TREES_ALONE, ROWS_ALONE = 80, 50
"""Up to so many trees of one row, and from 2 to so many rows, one thread works alone (``parallel_tree_`` and
``parallel_N_`` of its tree_ensemble_common.h, as remembered)."""
SHARING_US = 5.0
"""What it takes to wake the others (assumed)."""
HOST_HALF_WIDTH_LOG = log(4.0)
"""What the host's own kernels may err: two cores or 32, with or without instructions for 8 bits."""


def link_bytes_per_s(gpu: GpuSpec) -> float:
    """Nominal rate of a copy between host and GPU: of PCIe, one way, or of the memory that they share, where a copy
    reads and writes ("CUDA for Tegra", NVIDIA's application note: all of it lies in the same DRAM)."""
    if gpu.shares_memory:
        return gpu.memory_bytes_per_s / 2.0
    generation = gpu.pcie_generation or PCIE_DEFAULT[0]
    lanes = gpu.pcie_lane_count or PCIE_DEFAULT[1]
    return float(PCIE_LANE_BYTES_PER_S * 2.0 ** (generation - 3.0) * lanes)


def host_share(gpu: GpuSpec) -> float:
    """Of a server's products, what the CPU beside a GPU does."""
    return HOST_ON_CHIP if gpu.shares_memory else 1.0


def walk_us(walk: TreeWalk) -> float:
    """Down trees on the CPU: each node waits for the one before, where a core's caches or its memory hold it."""
    each_ns = min(VISIT_NS * sqrt(max(walk.node_bytes / VISIT_NEAR_BYTES, 1.0)), FAR_VISIT_NS)
    us = 1e-3 * each_ns * walk.visits
    is_alone = walk.trees <= TREES_ALONE if walk.rows <= 1 else walk.rows <= ROWS_ALONE
    return us if is_alone else min(us, us / HOST_CORES + SHARING_US)


def host_us(kernel: HostWork, gpu: GpuSpec) -> float:
    if kernel.walk is not None:
        features_bytes = kernel.read - kernel.walk.read_bytes
        return walk_us(kernel.walk) + 1e6 * (features_bytes + kernel.written) / HOST_BYTES_PER_S
    is_narrow = kernel.dtype.is_integer and kernel.dtype.bits <= 8
    products = 2 * kernel.macs / (HOST_INT8_PRODUCTS_PER_S if is_narrow else HOST_PRODUCTS_PER_S)
    products /= host_share(gpu)
    others = max(kernel.flops - 2 * kernel.macs, 0) / HOST_FLOPS_PER_S
    return 1e6 * (products + others + (kernel.read + kernel.written) / HOST_BYTES_PER_S)
