"""What allocators take from the device for a sequence of requests: blocks are rounded, kept and split.

A request is a positive storage number + 1, its return the same number negative; ``sizes`` are the storages' bytes.
The first requests are the weights, which are never returned.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence

_APART = 1
"""Addresses between two segments, so that blocks of different ones never look like neighbours."""


class _Blocks:
    """Free blocks of one pool by size and by place; all operations are logarithmic but for moving list entries."""

    __slots__ = ("by_end", "by_size", "by_start", "reserved_bytes", "top")

    def __init__(self) -> None:
        self.by_size: list[tuple[int, int]] = []
        self.by_start: dict[int, int] = {}
        self.by_end: dict[int, int] = {}
        self.reserved_bytes = 0
        self.top = 0

    def extend(self, byte_count: int) -> None:
        """A new segment, free as a whole."""
        self._add(self.top, byte_count)
        self.top += byte_count + _APART
        self.reserved_bytes += byte_count

    def take(self, byte_count: int) -> tuple[int, int] | None:
        """(start, size) of the smallest free block that is large enough, the first of those in memory."""
        place = bisect_left(self.by_size, (byte_count, -1))
        if place == len(self.by_size):
            return None
        size, start = self.by_size.pop(place)
        del self.by_start[start]
        del self.by_end[start + size]
        return start, size

    def grow(self, byte_count: int) -> tuple[int, int]:
        """(start, size) of ``byte_count`` at the end of the only segment, which grows as far as need be."""
        start = self.by_end.get(self.top, self.top)
        if start != self.top:
            self._remove(start, self.top - start)
        self.top = self.reserved_bytes = start + byte_count
        return start, byte_count

    def give(self, start: int, size: int) -> None:
        """Returns a block; it joins its free neighbours."""
        if not size:
            return
        before = self.by_end.get(start)
        if before is not None:
            joined = self.by_start[before]
            self._remove(before, joined)
            start, size = before, size + joined
        after = self.by_start.get(start + size)
        if after is not None:
            self._remove(start + size, after)
            size += after
        self._add(start, size)

    def _add(self, start: int, size: int) -> None:
        insort(self.by_size, (size, start))
        self.by_start[start] = size
        self.by_end[start + size] = start

    def _remove(self, start: int, size: int) -> None:
        del self.by_size[bisect_left(self.by_size, (size, start))]
        del self.by_start[start]
        del self.by_end[start + size]


CACHING_ROUND = 512
CACHING_SMALL = 1 << 20
CACHING_SMALL_SEGMENT = 2 << 20
CACHING_LARGE_SEGMENT = 20 << 20
CACHING_LARGE = 10 << 20
"""PyTorch's caching allocator: requests are rounded to 512 B; up to 1 MiB they come from segments of 2 MiB, below
10 MiB from segments of 20 MiB, above from segments of their own size rounded to 2 MiB. A block is split if 512 B or
more (small) or more than 1 MiB (large) would be left. From the constants of its public source (CUDACachingAllocator:
kMinBlockSize, kSmallSize, kSmallBuffer, kLargeBuffer, kMinLargeAlloc, kRoundLarge), as remembered."""


def caching_bytes(sizes: Sequence[int], requests: Iterable[int]) -> int:
    """Bytes that PyTorch's caching allocator has reserved in the end: segments are never given back meanwhile."""
    small, large = _Blocks(), _Blocks()
    held: dict[int, tuple[_Blocks, int, int]] = {}
    for request in requests:
        if request < 0:
            pool, start, size = held.pop(-request)
            pool.give(start, size)
            continue
        size = max(-(-sizes[request - 1] // CACHING_ROUND), 1) * CACHING_ROUND
        pool = small if size <= CACHING_SMALL else large
        found = pool.take(size)
        if found is None:
            if pool is small:
                segment = CACHING_SMALL_SEGMENT
            elif size < CACHING_LARGE:
                segment = CACHING_LARGE_SEGMENT
            else:
                segment = -(-size // CACHING_SMALL_SEGMENT) * CACHING_SMALL_SEGMENT
            pool.extend(segment)
            found = pool.take(size)
            assert found is not None
        start, whole = found
        left = whole - size
        if left >= CACHING_ROUND if pool is small else left > CACHING_SMALL:
            pool.give(start + size, left)
            whole = size
        held[request] = (pool, start, whole)
    return small.reserved_bytes + large.reserved_bytes


ARENA_ROUND = 256
ARENA_FIRST_REGION = 1 << 20
ARENA_LARGEST_REGION = 1 << 30
ARENA_DEAD = 128 << 20
"""ONNX Runtime's arena (BFCArena): requests are rounded to 256 B; a region is added when no chunk is large enough, of
1 MiB at first and twice the last one later, up to 1 GiB, or doubled until the request fits (kNextPowerOfTwo, the
default arena_extend_strategy). A chunk is split if it is at least twice the request or 128 MiB would lie idle. The
figures are what it logs when a session begins (initial_chunk_size_bytes, initial_growth_chunk_size_bytes,
max_dead_bytes_per_chunk, max_power_of_two_extend_bytes; onnxruntime 1.32); when it splits is as remembered of its
public source. Weights are requests like any other, one each: so the CUDA provider of 1.31 logs them when a session
begins on stand-ins for CUDA's libraries (20 of 65 MiB: regions of 128, 128, 256, 512 and 1024 MiB, as here), in an
order of its own, so that the sum is a region off at times (16 of 64 MiB and 3 of 300: 2,176 MiB, 2,048 here)."""


def arena_bytes(sizes: Sequence[int], requests: Iterable[int]) -> int:
    """Bytes of the regions that ONNX Runtime's arena has in the end."""
    blocks = _Blocks()
    held: dict[int, tuple[int, int]] = {}
    region = ARENA_FIRST_REGION
    for request in requests:
        if request < 0:
            start, size = held.pop(-request)
            blocks.give(start, size)
            continue
        size = max(-(-sizes[request - 1] // ARENA_ROUND), 1) * ARENA_ROUND
        found = blocks.take(size)
        if found is None:
            grown = region < size
            while region < size:
                region *= 2
            blocks.extend(region)
            if not grown:
                region = min(2 * region, max(ARENA_LARGEST_REGION, region))
            found = blocks.take(size)
            assert found is not None
        start, whole = found
        if whole >= 2 * size or whole - size >= ARENA_DEAD:
            blocks.give(start + size, whole - size)
            whole = size
        held[request] = (start, whole)
    return blocks.reserved_bytes


PLANNED_ROUND = 256
"""Alignment of tensors in a block that is laid out beforehand: that of cudaMalloc (CUDA programming guide), and
observed of ONNX Runtime."""


def planned_bytes(sizes: Sequence[int], requests: Iterable[int]) -> int:
    """Length of one block in which every storage gets its place as it is asked for: the smallest gap that is large
    enough, else at the end. So ONNX Runtime lays out its second run, as observed (tests/test_memory_ort.py)."""
    blocks = _Blocks()
    held: dict[int, tuple[int, int]] = {}
    for request in requests:
        if request < 0:
            blocks.give(*held.pop(-request))
            continue
        size = -(-sizes[request - 1] // PLANNED_ROUND) * PLANNED_ROUND
        if not size:
            held[request] = (0, 0)
            continue
        found = blocks.take(size) or blocks.grow(size)
        start, whole = found
        if whole > size:
            blocks.give(start + size, whole - size)
        held[request] = (start, size)
    return blocks.reserved_bytes


ALLOCATORS = {"caching": caching_bytes, "arena": arena_bytes, "planned": planned_bytes}
"""By the name that a policy has for it."""
