"""Device memory of a run: weights, tensors alive, library workspace, the allocator's share, the driver's context."""

from neusight_onnx.memory.estimate import (
    STANDING_ASSUMPTIONS,
    RunMemory,
    memory_on,
    run_memory,
    verdict,
    with_more_weights,
)
from neusight_onnx.memory.largest import largest_batch
from neusight_onnx.memory.parameters import parameter_summary

__all__ = [
    "STANDING_ASSUMPTIONS",
    "RunMemory",
    "largest_batch",
    "memory_on",
    "parameter_summary",
    "run_memory",
    "verdict",
    "with_more_weights",
]
