"""Words for the memory of a run, the same in every format."""

from __future__ import annotations

from collections.abc import Iterator

from neusight_onnx.report.model import LargestBatch, LiveTensor, MemoryEstimate
from neusight_onnx.report.quantities import capacity, printable


def memory_parts(memory: MemoryEstimate) -> Iterator[tuple[str, int]]:
    """The parts of the expected peak by name, in bytes; they add up to it."""
    yield "weights", memory.weight_bytes
    yield "inputs", memory.input_bytes
    cache = "KV cache" if memory.cache_sharing == "once" else "KV cache (past and present)"
    yield cache, memory.cache_bytes
    yield "activations", memory.activation_bytes - memory.input_bytes - memory.cache_bytes
    yield "gradients", memory.gradient_bytes
    yield "optimizer", memory.optimizer_bytes
    yield "workspace", memory.workspace_bytes
    yield "allocator", memory.allocator_bytes
    yield "context", memory.context_bytes


def tensor_name(tensor: LiveTensor) -> str:
    """What to call a piece of memory: its value's name, or whose scratch it is."""
    return tensor.name or f"{tensor.kind} of {tensor.node}"


def largest_batch_text(found: LargestBatch) -> str:
    """One sentence: the largest batch that fits, what the next one would take, and which batch fits where past and
    present keys and values are two buffers."""
    apart = found.size_in_two_buffers
    if apart is None or apart >= found.size:
        return _largest_batch(found)
    left = f"{apart:,} fits" if apart else "none fits"
    return f"{_largest_batch(found)} with one buffer for past and present; if they are two, {left}"


def _largest_batch(found: LargestBatch) -> str:
    symbol = printable(found.symbol)
    if found.size == 0:
        assert found.next_high_bytes is not None
        return f"no batch fits: {symbol}=1 may need up to {capacity(found.next_high_bytes)}"
    text = f"largest batch that fits: {symbol}={found.size:,} ({capacity(found.peak_bytes)})"
    if found.next_high_bytes is None:
        return f"{text}; {printable(found.limited_by)}"
    return f"{text}; {found.size + 1:,} may need up to {capacity(found.next_high_bytes)}"
