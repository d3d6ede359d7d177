"""Device memory of a run: weights, tensors alive, library workspace, the allocator's share, the driver's context."""

from neusight_onnx.memory.estimate import (
    STANDING_ASSUMPTIONS,
    RunMemory,
    memory_on,
    run_memory,
    verdict,
    with_more_weights,
)
from neusight_onnx.memory.l2 import kept_in_l2, run_bytes
from neusight_onnx.memory.largest import in_two_buffers, largest_batch
from neusight_onnx.memory.parameters import parameter_summary
from neusight_onnx.memory.policy import available_bytes

__all__ = [
    "STANDING_ASSUMPTIONS",
    "RunMemory",
    "available_bytes",
    "in_two_buffers",
    "kept_in_l2",
    "largest_batch",
    "memory_on",
    "parameter_summary",
    "run_bytes",
    "run_memory",
    "verdict",
    "with_more_weights",
]
