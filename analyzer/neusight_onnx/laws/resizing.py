"""What resizing takes beside its bytes, by whose kernel it is.

PyTorch's (``UpSample*.cu``) find a place's neighbours by the coordinate and take them for all images and channels:

- linear and cubic ones over (n, c, *spatial) have a thread for each place of the result, which goes through the n c
  planes one after the other. Threads come in blocks of 512 or 1,024 that fill an SM, so that a small image occupies few
  SMs: 7 of an A100's 108 where 8 x 256 planes get 80 x 80 places;
- nearest ones have a thread for four planes of a place; over (n, h, w, c) nearest and linear ones a thread an element.

Blocks are those that PyTorch 2.9.1 launches on stand-ins for CUDA's libraries; instructions were counted in its code
for compute capability 8.0 with the arguments of such launches, as those of :mod:`neusight_onnx.laws.issue` were.

ONNX Runtime's instructions stand there. An engine's kernel lies (n, *spatial, c) in every format (layers of TensorRT
for RTX 1.7), and is taken to find a place once for 16 bytes of channels.
"""

from __future__ import annotations

from math import ceil, prod

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import Movement
from neusight_onnx.laws.elementwise import integer_lanes_per_sm
from neusight_onnx.laws.issue import issue_lanes

PLANE_INSTRUCTIONS: dict[int, tuple[int, float, float]] = {
    2: (512, 11.8, 14.9),
    4: (1024, 22.8, 29.5),
    8: (512, 76.0, 85.5),
    16: (1024, 81.7, 99.7),
}
"""By neighbours: threads of a block, of which one fills an SM's registers (2 neighbours: four), and instructions of a
thread for each plane in 32 and in 16 bits."""
BLOCKS_PER_SM = {2: 4}

PLANE_CYCLES = 400.0
"""Cycles of a thread for a plane that nothing of the next overlaps, as the code has it: neighbours are loaded together
(262-273 cycles from L2, 466-542 from DRAM on A100, H100 and RTX 4090: Luo et al. 2024), then weighted and stored."""

NEAREST_INSTRUCTIONS = {1: 19.5, 2: 43.75, 3: 164.5}
"""Of an element, by dimensions of space."""
NEAREST_LAST, LINEAR_LAST = 135.0, 206.0
"""Of an element over (n, h, w, c): divisions by sizes that aren't prepared find it."""

ENGINE_PLACE = 70.0
"""Integer operations that find a place (``INDEX_OPERATIONS``), once a vector."""
VECTOR_BITS = 128


def resize_us(kernel: Movement, gpu: GpuSpec) -> tuple[float, float]:
    """Microseconds that a resize's instructions take, and those that its threads wait one load after the other."""
    elements = prod(kernel.shape)
    rate = gpu.sm_count * issue_lanes(gpu) * gpu.clock_hz
    if kernel.library:
        lane_rate = gpu.sm_count * integer_lanes_per_sm(gpu) * gpu.clock_hz
        vectors = elements * kernel.dtype.bits / VECTOR_BITS if kernel.run > 1 else 0.0
        return 1e6 * vectors * ENGINE_PLACE / lane_rate, 0.0
    space = kernel.shape[2:]
    if kernel.taps in PLANE_INSTRUCTIONS and not (kernel.run > 1 and kernel.taps == 4):
        return _by_planes(kernel, gpu)
    if kernel.run > 1 and len(space) == 2:
        each = LINEAR_LAST if kernel.taps > 1 else NEAREST_LAST
    else:
        each = NEAREST_INSTRUCTIONS.get(len(space), max(NEAREST_INSTRUCTIONS.values()))
    return 1e6 * elements * each / rate, 0.0


def _by_planes(kernel: Movement, gpu: GpuSpec) -> tuple[float, float]:
    """A thread for each place, a block or a few an SM, that goes through all planes."""
    threads, wide, narrow = PLANE_INSTRUCTIONS[kernel.taps]
    planes, places = prod(kernel.shape[:2]), prod(kernel.shape[2:])
    blocks = ceil(places / threads)
    each = narrow if kernel.dtype.bits <= 16 else wide
    shared = BLOCKS_PER_SM.get(kernel.taps, 1)
    # blocks of the SM that has most of them
    issued = ceil(blocks / gpu.sm_count) * threads * planes * each / issue_lanes(gpu)
    waited = ceil(blocks / (gpu.sm_count * shared)) * planes * PLANE_CYCLES
    return 1e6 * issued / gpu.clock_hz, 1e6 * waited / gpu.clock_hz
