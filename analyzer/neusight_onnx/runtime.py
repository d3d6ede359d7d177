"""What executes the model: which runtimes are modelled, what they cost on the host, how kernels line up.

The GPU runs one stream in order; the host hands it operator after operator. A kernel starts when the one
before has ended *and* the host has launched it, so that small kernels wait for the host and large ones hide it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from neusight_onnx.errors import NotSupportedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Host costs of a runtime, in us: ``kernel_us`` of a launched kernel, ``view_us`` of an operator without one.

    ``host_spread``: the factor each way that the interval allows for a faster or slower host.
    """

    name: str
    description: str
    kernel_us: float
    view_us: float
    host_spread: float


RUNTIMES: dict[str, Runtime] = {
    # Host time of an operator with a kernel: 5-10 us, the middle is taken, and the ends are the spread. A plain CUDA
    # launch is 4-6 us of it. Both ranges come from the survey of public figures that the project was given; it names
    # no document for them, and none was opened. A view launches nothing: what is left of 7.5 us without a launch of 5.
    # Plausible beside Llama-3.1-8B decoding on an H100 in that survey: 8.4 ms eager, 5.1 ms replayed as a CUDA graph.
    # That the range holds 80 % of hosts is assumed.
    "eager": Runtime(
        name="eager", description="PyTorch eager mode, one stream", kernel_us=7.5, view_us=2.5, host_spread=1.4
    ),
    # What torch.compile generates launches its kernels from Python without the dispatcher: a plain CUDA launch (4-6 us,
    # the same survey) and a few bytecodes, so the upper half of that; views are gone. Its default mode replays no CUDA
    # graph. Library calls still go through the dispatcher (7.5), but come with large kernels, which hide the host.
    "compiled": Runtime(
        name="compiled",
        description="PyTorch torch.compile, default mode, one stream",
        kernel_us=5.5,
        view_us=0.0,
        host_spread=1.4,
    ),
}

KNOWN_RUNTIMES = ("eager", "compiled", "onnxruntime", "tensorrt")


def get_runtime(name: str) -> Runtime:
    """The runtime's model; raises NotSupportedError for one that is not modelled yet, or not known at all."""
    if name in RUNTIMES:
        return RUNTIMES[name]
    supported = ", ".join(sorted(RUNTIMES))
    if name in KNOWN_RUNTIMES:
        raise NotSupportedError(f"runtime '{name}' has no model yet; supported now: {supported}")
    raise NotSupportedError(f"unknown runtime '{name}'; supported now: {supported}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operator on its way through the stream: its kernels' times on the GPU (none for a view), ``count`` times.

    ``host_waits``: the host goes on only when they have ended (PyTorch needs the size of what ``nonzero`` found before
    it can allocate it), so that the stream runs dry and what comes next waits for its launch.
    """

    kernel_us: tuple[float, ...] = ()
    count: int = 1
    host_waits: bool = False


def stream_time_us(steps: Iterable[Step], runtime: Runtime, *, host_factor: float = 1.0) -> float:
    """Microseconds from the first operator's dispatch until the last kernel has ended, never below the kernels' sum.

    ``host_factor``: the host takes so many times the runtime's costs.
    """
    kernel_us, view_us = host_factor * runtime.kernel_us, host_factor * runtime.view_us
    host = 0.0
    gpu = 0.0
    for step in steps:
        if not step.kernel_us:
            host += step.count * view_us
            continue
        if step.host_waits:
            for duration in step.kernel_us:
                host += kernel_us
                gpu = max(gpu, host) + duration
            again = 0.0  # from one end to the next: all launched and run on an empty stream
            for place, duration in enumerate(step.kernel_us):
                again = max(again, (place + 1) * kernel_us) + duration
            gpu += (step.count - 1) * again
            host = gpu
            continue
        for duration in step.kernel_us:
            first_launch = host + kernel_us
            host += step.count * kernel_us
            # repeated, either the GPU is the slower side (first launch, all durations) or the host (last launch, one)
            gpu = max(max(gpu, first_launch) + step.count * duration, host + duration)
    return max(gpu, host)
