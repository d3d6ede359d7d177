"""From what is alive to what a run needs of a GPU's memory: a range, its parts and a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.kernels import NodeWork
from neusight_onnx.memory.allocators import ALLOCATORS, planned_bytes
from neusight_onnx.memory.caches import CachePair, cache_pairs
from neusight_onnx.memory.liveness import Liveness, live_tensors
from neusight_onnx.memory.policy import (
    CONTEXT_BYTES,
    CONTEXT_HIGH_BYTES,
    CONTEXT_LOW_BYTES,
    FITS_SHARE,
    POLICIES,
    Policy,
    available_bytes,
    library_workspace_bytes,
)
from neusight_onnx.memory.stored import as_stored
from neusight_onnx.memory.workspace import uses_blas
from neusight_onnx.report.model import DOES_NOT_FIT, FITS, TIGHT, LiveTensor, MemoryEstimate, SavedTensor
from neusight_onnx.report.quantities import capacity

if TYPE_CHECKING:
    from neusight_onnx.backward import Trained

_MOST_TENSORS = 10
"""Tensors alive at the peak that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMemory:
    """What a run needs of any GPU: the same for all, so that comparing GPUs walks the graph once.

    ``weights``: bytes of each weight, ``touched_weight_bytes`` those of all that aren't rows of a table looked up.
    ``uses_blas``: some kernel goes through the BLAS library.
    ``reserved_bytes``: what the allocator takes, by the bytes of the library's workspace (filled as GPUs ask).
    ``saved``: in training, what the run forward leaves for the run backwards.
    """

    found: Liveness
    policy: Policy
    caches: tuple[CachePair, ...]
    weights: tuple[int, ...]
    touched_weight_bytes: int
    uses_blas: bool
    alive: tuple[LiveTensor, ...]
    reserved_bytes: dict[int, int]
    saved: tuple[SavedTensor, ...] = ()


def run_memory(
    graph: InferredGraph,
    work: Sequence[NodeWork],
    runtime: str,
    *,
    timeline: bool = False,
    trained: Trained | None = None,
) -> RunMemory:
    """Walks ``graph``, whose nodes became ``work`` (found by node name; bodies included), as ``runtime`` executes it.

    Weights: constants that some kernel reads, at their true bit width, once each; constants folded at load time count
    like weights. Tensors: what is alive at once, see :func:`live_tensors`, each in the type that its kernel writes
    (:func:`~neusight_onnx.memory.stored.as_stored`). ``runtime`` decides the allocator, the order, and what goes in
    place (:data:`~neusight_onnx.memory.policy.POLICIES`). Values of unknown shape count nothing.
    ``timeline``: also the bytes alive after each node. ``trained``: a step of training; ``work`` is its run forward.
    """
    policy = POLICIES[runtime]
    caches = cache_pairs(graph)
    saved: tuple[SavedTensor, ...] = ()
    if trained is None:
        works = {item.node: item for item in work}
        found = live_tensors(as_stored(graph, works), works, policy, caches, timeline=timeline)
    else:
        from neusight_onnx.memory.training import training_tensors

        step = training_tensors(graph, work, trained, policy, caches, timeline=timeline)
        found, saved = step.found, step.saved
    return RunMemory(
        found=found,
        policy=policy,
        caches=caches,
        weights=tuple(found.weight_sizes()),
        touched_weight_bytes=found.whole_weight_bytes(),
        uses_blas=any(map(uses_blas, work)),
        alive=tuple(found.alive_at_peak()),
        reserved_bytes={},
        saved=saved,
    )


def with_more_weights(run: RunMemory, byte_count: int) -> RunMemory:
    """``run`` with so many bytes of weights more, as where some are stored wider on a GPU."""
    if not byte_count:
        return run
    return replace(
        run,
        weights=(*run.weights, byte_count),
        touched_weight_bytes=run.touched_weight_bytes + byte_count,
        reserved_bytes={},
    )


def memory_on(run: RunMemory, gpu: GpuSpec) -> MemoryEstimate:
    """What a run takes of ``gpu``'s memory, and whether that fits."""
    found, policy = run.found, run.policy
    weight_bytes = sum(run.weights)
    library_bytes = library_workspace_bytes(gpu, policy) if run.uses_blas else 0
    if library_bytes not in run.reserved_bytes:
        run.reserved_bytes[library_bytes] = _reserved_bytes(found, run.weights, library_bytes, policy)
    reserved_bytes = run.reserved_bytes[library_bytes]
    alive_bytes = Counter[str]()
    for tensor in run.alive:
        alive_bytes[tensor.kind] += tensor.byte_count
    used_bytes = weight_bytes + library_bytes + found.peak_bytes
    peak_bytes = reserved_bytes + CONTEXT_BYTES
    high_bytes = reserved_bytes + (found.high_peak_bytes - found.peak_bytes) + CONTEXT_HIGH_BYTES
    return MemoryEstimate(
        low_bytes=weight_bytes + library_bytes + found.low_peak_bytes + CONTEXT_LOW_BYTES,
        peak_bytes=peak_bytes,
        high_bytes=high_bytes,
        weight_bytes=weight_bytes,
        activation_bytes=found.peak_bytes
        - alive_bytes["workspace"]
        - alive_bytes["gradient"]
        - alive_bytes["optimizer"],
        gradient_bytes=alive_bytes["gradient"],
        optimizer_bytes=alive_bytes["optimizer"],
        input_bytes=alive_bytes["input"],
        output_bytes=alive_bytes["output"],
        cache_bytes=alive_bytes["cache"],
        cache_sharing=_sharing(run.caches),
        new_token_count=_new_tokens(run.caches),
        workspace_bytes=library_bytes + alive_bytes["workspace"],
        allocator_bytes=reserved_bytes - used_bytes,
        context_bytes=CONTEXT_BYTES,
        available_bytes=available_bytes(gpu),
        verdict=verdict(peak_bytes, high_bytes, available_bytes(gpu)),
        peak_node=found.peak_node,
        peak_tensors=run.alive[:_MOST_TENSORS],
        assumptions=tuple(_assumptions(found, policy, run.caches, alive_bytes["cache"])),
        timeline=None if found.timeline is None else tuple(found.timeline),
    )


def verdict(peak_bytes: int, high_bytes: int, available_bytes: int) -> str:
    """ "fits" if the high end is within 90 % of the memory, "does not fit" if the expected peak exceeds it, else
    "tight"."""
    if peak_bytes > available_bytes:
        return DOES_NOT_FIT
    return FITS if high_bytes <= FITS_SHARE * available_bytes else TIGHT


def _reserved_bytes(found: Liveness, weights: Sequence[int], library_bytes: int, policy: Policy) -> int:
    """What the allocator has taken in the end: for the weights, the library's workspace, and one run."""
    is_arena = policy.allocator == "arena"
    # Under ONNX Runtime the BLAS library takes its workspace from the driver.
    before = [*weights, library_bytes] if library_bytes and not is_arena else list(weights)
    count = len(before)
    sizes = before + found.sizes
    requests = [*range(1, count + 1), *(at + count if at > 0 else at - count for at in found.requests)]
    if is_arena:
        # From the second run on the activations lie in one block; the first run's regions stay.
        own = [at for at in found.requests if found.kinds[abs(at) - 1] == "activation"]
        sizes.append(planned_bytes(found.sizes, own))
        requests.append(len(sizes))
    reserved = ALLOCATORS[policy.allocator](sizes, requests)
    return reserved + (library_bytes if is_arena else 0)


def _sharing(caches: Sequence[CachePair]) -> str:
    if not caches:
        return "none"
    return "once" if all(pair.shared for pair in caches) else "twice"


def _new_tokens(caches: Sequence[CachePair]) -> float | None:
    """The tokens that a sample's own cache grows by; that of another sequence (a decoder's of its encoder) doesn't."""
    return max((pair.new_tokens for pair in caches if pair.new_tokens), default=None)


STANDING_ASSUMPTIONS = 2
"""So many of an estimate's assumptions, the first, hold for every model: what the allocator does, the context."""


def _assumptions(found: Liveness, policy: Policy, caches: Sequence[CachePair], cache_bytes: int) -> Iterator[str]:
    yield policy.described
    yield (
        f"context of {CONTEXT_BYTES / 1e6:.0f} MB ({CONTEXT_LOW_BYTES / 1e6:.0f} to "
        f"{CONTEXT_HIGH_BYTES / 1e6:.0f} MB): public figures, not measured here"
    )
    if caches and all(pair.shared for pair in caches):
        yield (
            "past and present keys and values are bound to the same buffers, as the latency assumes, too: counted once "
            f"(two buffers would take {capacity(cache_bytes)} more)"
        )
    elif caches:
        yield "past and present keys and values are separate buffers: counted twice (low end: once)"
    if found.unknown_count:
        yield f"values of unknown shape ({found.unknown_count:,}) count nothing"
