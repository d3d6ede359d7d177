"""How operators line up on the host and kernels on the GPU.

The GPU runs one stream in order; the host hands it operator after operator. A kernel starts when the one
before has ended *and* the host has launched it, so that small kernels wait for the host and large ones hide it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.runtime import Runtime

SLOWER_ON_CHIP = 2.0
"""How many times what a slow server takes the CPU on a GPU's chip may need for launches and the software before them: a
core of a Jetson AGX Orin (Cortex-A78AE, 2.2 GHz) does half of what a server's does, as remembered; none was measured,
nor its driver. The time itself stays a server's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operator on its way through the stream: its kernels' times on the GPU (none for a view), ``count`` times.

    ``host_waits``: the host goes on only when they have ended (PyTorch needs the size of what ``nonzero`` found before
    it can allocate it), so that the stream runs dry and what comes next waits for its launch.
    ``host_us``: what the host takes up to the launch of each kernel, or for the view; (): as the runtime has it.
    """

    kernel_us: tuple[float, ...] = ()
    count: int = 1
    host_waits: bool = False
    host_us: tuple[float, ...] = ()

    def host_times_us(self, runtime: Runtime) -> tuple[float, ...]:
        """What the host takes for each kernel of one run; of a view one time."""
        if self.host_us:
            return self.host_us
        return (runtime.kernel_us,) * len(self.kernel_us) if self.kernel_us else (runtime.view_us,)


def stream_time_us(steps: Iterable[Step], runtime: Runtime, *, host_factor: float = 1.0) -> float:
    """Microseconds from the first operator's dispatch until the last kernel has ended, never below the kernels' sum.

    ``host_factor``: the host takes so many times the runtime's costs. A captured run is launched once.
    """
    if runtime.captured:
        busy_us = sum(step.count * sum(step.kernel_us) for step in steps)
        return busy_us + host_factor * runtime.graph_us if busy_us else 0.0
    host = 0.0
    gpu = 0.0
    for step in steps:
        launch_us = [host_factor * each_us for each_us in step.host_times_us(runtime)]
        if not step.kernel_us:
            host += step.count * launch_us[0]
            continue
        if step.host_waits:
            for taken, duration in zip(launch_us, step.kernel_us, strict=True):
                host += taken
                gpu = max(gpu, host) + duration
            again = launched = 0.0  # from one end to the next: all launched and run on an empty stream
            for taken, duration in zip(launch_us, step.kernel_us, strict=True):
                launched += taken
                again = max(again, launched) + duration
            gpu += (step.count - 1) * again
            host = gpu
            continue
        for taken, duration in zip(launch_us, step.kernel_us, strict=True):
            first_launch = host + taken
            host += step.count * taken
            # repeated, either the GPU is the slower side (first launch, all durations) or the host (last launch, one)
            gpu = max(max(gpu, first_launch) + step.count * duration, host + duration)
    return max(gpu, host)


def host_time_us(steps: Iterable[Step], runtime: Runtime) -> float:
    """Microseconds that the host takes to hand over all steps, waiting for nothing."""
    if runtime.captured:
        return runtime.graph_us
    return sum(step.count * sum(step.host_times_us(runtime)) for step in steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A span of the run: the host hands over an operator, and the GPU executes one of its kernels.

    ``step`` and ``kernel`` are places in the steps and in the kernels of one (None: a view, which the GPU never sees).
    It stands for ``run_count`` runs in a row. Times in us since the first operator's dispatch; of a view both GPU times
    are 0.
    """

    step: int
    kernel: int | None
    run_count: int
    host_start_us: float
    host_us: float
    gpu_start_us: float
    gpu_us: float


def stream_launches(steps: Iterable[Step], runtime: Runtime, *, most_runs: int = 32) -> Iterator[Launch]:
    """The spans behind :func:`stream_time_us`, in order: the last of them ends when that says.

    A step that is repeated more than ``most_runs`` times is one span a kernel, from the first start to the last end;
    where the host waits for it, its kernels have shares of that as their times are. Of a captured run the host's only
    span is that of its first kernel.
    """
    host = 0.0
    gpu = 0.0
    if runtime.captured:
        gpu = runtime.graph_us
        yield from _replayed(steps, gpu)
        return
    for place, step in enumerate(steps):
        spans, each = (step.count, 1) if step.count <= most_runs else (1, step.count)
        host_us = step.host_times_us(runtime)
        if not step.kernel_us:
            for _ in range(spans if host_us[0] else 0):
                cost = each * host_us[0]
                yield Launch(
                    step=place,
                    kernel=None,
                    run_count=each,
                    host_start_us=host,
                    host_us=cost,
                    gpu_start_us=0.0,
                    gpu_us=0.0,
                )
                host += cost
            continue
        if step.host_waits:
            for _ in range(spans):
                launches = list(_waited_for(place, step.kernel_us, each, host, gpu, host_us))
                yield from launches
                host = gpu = launches[-1].gpu_start_us + launches[-1].gpu_us
            continue
        for index, duration in enumerate(step.kernel_us):
            for _ in range(spans):
                host_start = host
                start = max(gpu, host + host_us[index])
                host += each * host_us[index]
                gpu = max(start + each * duration, host + duration)
                yield Launch(
                    step=place,
                    kernel=index,
                    run_count=each,
                    host_start_us=host_start,
                    host_us=host - host_start,
                    gpu_start_us=start,
                    gpu_us=gpu - start,
                )


def _replayed(steps: Iterable[Step], gpu: float) -> Iterator[Launch]:
    """The spans of a captured run, whose first kernel starts at ``gpu``."""
    host_us = gpu
    for place, step in enumerate(steps):
        for index, duration in enumerate(step.kernel_us):
            lasting = step.count * duration
            yield Launch(
                step=place,
                kernel=index,
                run_count=step.count,
                host_start_us=0.0,
                host_us=host_us,
                gpu_start_us=gpu,
                gpu_us=lasting,
            )
            gpu += lasting
            host_us = 0.0


def _waited_for(
    place: int, kernel_us: tuple[float, ...], count: int, host: float, gpu: float, launch_us: tuple[float, ...]
) -> Iterator[Launch]:
    """The spans of ``count`` runs of a step that the host waits for, from ``host`` on, the GPU busy until ``gpu``."""
    start = max(gpu, host + launch_us[0])
    again = ahead = 0.0  # from one run's end to the next one's; from its start to a launch
    for index, (duration, taken) in enumerate(zip(kernel_us, launch_us, strict=True)):
        begun = max(gpu, host + ahead + taken)
        gpu = begun + duration
        again = max(again, ahead + taken) + duration
        if count == 1:
            yield Launch(
                step=place,
                kernel=index,
                run_count=1,
                host_start_us=host + ahead,
                host_us=taken,
                gpu_start_us=begun,
                gpu_us=duration,
            )
        ahead += taken
    if count == 1:
        return
    lasting, whole = gpu + (count - 1) * again - start, sum(kernel_us)
    for index, duration in enumerate(kernel_us):
        share = lasting * (duration / whole if whole else 1 / len(kernel_us))
        # the host goes in step with the GPU, a launch ahead
        yield Launch(
            step=place,
            kernel=index,
            run_count=count,
            host_start_us=start - launch_us[0],
            host_us=share,
            gpu_start_us=start,
            gpu_us=share,
        )
        start += share


def host_factors(runtime: Runtime, gpu: GpuSpec) -> tuple[float, float]:
    """What the interval's two ends multiply the host's time by: a faster host, a slower one."""
    return 1.0 / runtime.host_spread, runtime.host_spread * (SLOWER_ON_CHIP if gpu.shares_memory else 1.0)
