"""The largest size of a dim for which a run still fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from neusight_onnx.errors import NeusightError
from neusight_onnx.memory.estimate import verdict
from neusight_onnx.memory.policy import FITS_SHARE
from neusight_onnx.report.model import FITS, LargestBatch, MemoryEstimate

MOST_BATCH = 1 << 20
"""Sizes beyond it are not tried: no runtime is used so, and memory that hardly grows would be followed forever."""

TRIED_ABOVE = 6
"""Sizes above an answer that are tried where memory goes in steps: they may fit again. PyTorch's allocator leaves more
or less of its blocks unused from size to size (a step of training ResNet-50 on a T4: up to 142, and 146)."""

_A_STEP = 3.0
"""How much more the size above the answer takes than sizes do on average, where memory goes in steps; where memory
goes with the square of sizes it is 2."""


def largest_batch(
    measure: Callable[[int], MemoryEstimate], symbol: str, start: int, known: MemoryEstimate
) -> LargestBatch:
    """The largest size of ``symbol`` whose verdict is "fits", found with few calls of ``measure``.

    Allocators take memory in blocks, so that a larger size can need a little less: where the size above the answer
    takes a step up, :data:`TRIED_ABOVE` sizes are tried, and so on from the largest of these that fits. Of sizes that
    fit and don't in turns over a longer way, some above the answer may fit.

    ``known`` is the estimate for ``start``. Memory is nearly a straight line in the size, so that two points lead close
    to the answer; what is returned was computed at the answer and at the answer + 1. Where ``measure`` raises a
    NeusightError the model does not allow that size, which ends the search there, too.
    """
    seen: dict[int, MemoryEstimate | None] = {start: known}
    refused = ""

    def fits(size: int) -> bool:
        nonlocal refused
        if size not in seen:
            try:
                seen[size] = measure(size)
            except NeusightError as error:
                seen[size] = None
                refused = str(error)
        found = seen[size]
        return found is not None and found.verdict == FITS

    limit = FITS_SHARE * known.available_bytes
    if fits(start):
        low, high = start, MOST_BATCH + 1
    else:
        low, high = 0, start
    # What does not grow with the batch, as a first idea of the line through the sizes tried.
    line = [(0, known.high_bytes - known.activation_bytes), (start, known.high_bytes)]
    side = stride = 0
    bisecting = False
    while high - low > 1:
        (first, first_bytes), (second, second_bytes) = line
        slope = (second_bytes - first_bytes) / (second - first)
        size = int(second + (limit - second_bytes) / slope) if slope > 0 else high
        # The line is only nearly straight, and allocators take memory in steps: where it moves the same end twice, it
        # leads on too slowly. Then strides grow from that end until the answer is between, and halves find it.
        if bisecting:
            size = (low + high) // 2
        elif stride and side > 0:
            size = max(size, low + stride)
        elif stride:
            size = min(size, high - stride)
        size = min(max(size, low + 1), high - 1)
        moved = 1 if fits(size) else -1
        bisecting = bisecting or (moved != side and stride > 1)
        stride = max(2 * stride, 1) if moved == side else 0
        side = moved
        if moved > 0:
            low = size
        else:
            high = size
        found = seen[size]
        if found is not None:
            line = [line[1] if line[0][0] == 0 or abs(line[1][0] - size) > 1 else line[0], (size, found.high_bytes)]
    while low > 1 and _steps_up(seen, low, start):
        above = next((size for size in range(min(low + TRIED_ABOVE, MOST_BATCH), low + 1, -1) if fits(size)), low)
        if above == low:
            break
        low = above
        while low < MOST_BATCH and fits(low + 1):
            low += 1
    return _answer(symbol, low, seen.get(low), seen.get(low + 1), refused)


def in_two_buffers(memory: MemoryEstimate) -> MemoryEstimate:
    """A run whose past and present keys and values, counted in one buffer (``cache_sharing`` "once"), are bound to two:
    the cache once more."""
    peak_bytes, high_bytes = memory.peak_bytes + memory.cache_bytes, memory.high_bytes + memory.cache_bytes
    judged = verdict(peak_bytes, high_bytes, memory.available_bytes)
    return replace(memory, peak_bytes=peak_bytes, high_bytes=high_bytes, verdict=judged)


def _steps_up(seen: Mapping[int, MemoryEstimate | None], size: int, start: int) -> bool:
    """Whether memory goes up by a step behind ``size``, not by what sizes take on average."""
    first, here, following = seen.get(start), seen.get(size), seen.get(size + 1)
    if first is None or here is None or following is None or size == start:
        return False
    average = (here.high_bytes - first.high_bytes) / (size - start)
    return following.high_bytes - here.high_bytes > _A_STEP * average


def _answer(
    symbol: str, size: int, here: MemoryEstimate | None, following: MemoryEstimate | None, refused: str
) -> LargestBatch:
    if following is not None:
        limited_by = "the GPU's memory"
    elif size >= MOST_BATCH:
        limited_by = f"larger sizes were not tried than {MOST_BATCH:,}"
    else:
        limited_by = f"the model does not allow {size + 1:,}: {refused}"
    return LargestBatch(
        symbol=symbol,
        size=size,
        peak_bytes=0 if here is None else here.peak_bytes,
        high_bytes=0 if here is None else here.high_bytes,
        next_peak_bytes=None if following is None else following.peak_bytes,
        next_high_bytes=None if following is None else following.high_bytes,
        limited_by=limited_by,
    )
