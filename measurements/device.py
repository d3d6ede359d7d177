"""Times kernels on a CUDA device by replaying CUDA graphs. torch is imported here, and only when a run begins.

A graph holds many launches of one kernel, one behind the other on one stream; what is reported is its time over their
number, the gap between two kernels of a graph included (about a microsecond), the host's part not. Each launch takes
the next of several sets of operands, as many as exceed the L2 twice over, so that operands come from DRAM; kernels too
small for that take one set, which stays in the L2, and are marked "warm". Results have memory of their own in each set.
"""

from __future__ import annotations

import gc
import os
import subprocess
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import import_module
from math import ceil
from typing import Any

from measurements.calls import call_for
from measurements.cases import Case
from measurements.session import LOST_REASON, DeviceLostError, SkipCaseError, Timing
from neusight_onnx.errors import NeusightError
from neusight_onnx.gpu import load_gpu
from neusight_onnx.learning.measured import COLD, WARM

WARM_UPS = 4
"""Launches before the capture: cuDNN chooses its algorithm in the first, libraries take their workspaces."""
COLD_FACTOR = 2.0
"""Operands of all sets over the L2's size from which on none of them is still there when its turn comes again."""
MOST_SETS = 256
GRAPH_US = 1000.0
MOST_LAUNCHES = 512
REPEAT_US = 2000.0
"""Least time between two events: what the host adds at both ends is then below half a per cent."""
REPEATS = (3, 11)
MEMORY_SHARE = 0.8
"""Of the free memory, what operands and results may take."""
USUAL_L2_BYTES = 64 << 20
CLOCK_PERIOD_S = 2.0
WAKING_S = 1.0
"""Work before the first case: an idle card's clocks are a fifth of those under load (an H200: 345 of 1,980 MHz)."""


def require_torch() -> Any:
    """torch with a CUDA device. Raises NeusightError, with what would do, where there is none."""
    try:
        torch = import_module("torch")
    except ModuleNotFoundError as error:
        raise NeusightError("torch is not installed: pip install 'neusight-onnx[measure]'") from error
    if not torch.cuda.is_available() or torch.version.cuda is None:
        raise NeusightError("torch finds no CUDA device; measure on a machine with an NVIDIA GPU and its driver")
    return torch


class CudaTimer:
    """The first visible CUDA device."""

    def __init__(
        self,
        *,
        gpu: str = "",
        case_s: float = 0.5,
        choose: bool = True,
        kernel_names: bool = False,
        warm: bool = False,
    ) -> None:
        """``gpu``: what to call it (default: as predictions do); ``case_s``: most time a case; ``choose``: let cuDNN
        try its algorithms; ``kernel_names``: ask the profiler what ran; ``warm``: one set of operands for all launches,
        so that what fits the L2 stays there."""
        self._torch = require_torch()
        self._most_sets = 1 if warm else MOST_SETS
        self._case_us = case_s * 1e6
        self._kernel_names = kernel_names
        torch = self._torch
        torch.cuda.init()
        # older versions collect garbage before every capture: what is there by now, modules mostly, isn't looked at
        gc.collect()
        gc.freeze()
        torch.backends.cudnn.benchmark = choose
        # attention is to be one kernel; where there is none that does it, the case is skipped with what torch says
        torch.backends.cuda.enable_math_sdp(False)
        self._properties = torch.cuda.get_device_properties(0)
        self._capability = tuple(torch.cuda.get_device_capability(0))
        self._gpu = gpu or _canonical(self._properties.name)
        self._l2_bytes = int(getattr(self._properties, "L2_cache_size", 0)) or _l2_bytes(self._gpu)
        self._stream = torch.cuda.Stream()
        self._clocks = Clocks(torch)
        self._fixed = {
            "device_name": self._properties.name,
            "compute_capability": ".".join(map(str, self._capability)),
            "cudnn_benchmark": int(choose),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "driver": self._clocks.driver,
        }

    @property
    def gpu(self) -> str:
        """Canonical name of the GPU where it is a known one."""
        return self._gpu

    def wake(self) -> None:
        """Keeps the card busy until its clocks are up. Raises NeusightError where it does nothing at all."""
        torch = self._torch
        try:
            square = torch.randn(4096, 4096, device="cuda").half()
            until = time.monotonic() + WAKING_S
            while time.monotonic() < until:
                for _ in range(10):
                    torch.mm(square, square)
                torch.cuda.synchronize()
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:160]
            raise NeusightError(
                f"{self._properties.name} does no work: {reason}; does another process hold it?"
            ) from error

    def close(self) -> None:
        """Ends the reading of clocks."""
        gc.unfreeze()
        self._clocks.close()

    def facts(self) -> Mapping[str, object]:
        """Versions, and the clocks as they were read last."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return {**self._fixed, **self._clocks.latest(), "measured_at": now}

    def time(self, case: Case) -> Timing:
        """Times a case. Raises SkipCaseError where it can't be run here, DeviceLostError where nothing can any more."""
        torch = self._torch
        if self._capability < (8, 0) and case.precision in ("bf16", "tf32"):
            raise SkipCaseError(f"no {case.precision} below compute capability 8.0")
        tf32 = case.precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        try:
            with torch.inference_mode():
                return self._timed(case)
        except torch.cuda.OutOfMemoryError as error:
            torch.cuda.empty_cache()
            raise SkipCaseError("out of memory") from error
        except SkipCaseError:
            raise
        except Exception as error:  # whatever a library may raise: one case is not worth a run
            reason = " ".join(str(error).split())[:160] or type(error).__name__
            self._check_alive(reason)
            raise SkipCaseError(reason) from error

    def _check_alive(self, reason: str) -> None:
        """Whether the next case can be timed: a capture that broke off may leave random numbers or memory unusable."""
        torch = self._torch
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            numbers = torch.randn(8, device="cuda")
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self._stream):
                kept = numbers + numbers
            graph.replay()
            torch.cuda.synchronize()
            del graph, kept
        except RuntimeError as error:
            raise DeviceLostError(f"{LOST_REASON} after: {reason}; run again") from error

    def _timed(self, case: Case) -> Timing:
        torch, stream = self._torch, self._stream
        set_bytes = case.kernel.read_bytes + case.kernel.write_bytes
        count = self._set_count(set_bytes)
        call = call_for(case, torch, "cuda")
        shared = call.shared()
        sets = [call.operands() for _ in range(count)]
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(stream):
            for i in range(WARM_UPS):
                call.run(shared, sets[i % count])
            begin.record()
            for i in range(2):
                call.run(shared, sets[i % count])
            end.record()
        end.synchronize()
        rough_us = max(begin.elapsed_time(end) * 1e3 / 2, 0.5)
        # the capture's first replay, and each repeat with one replay ahead of it
        least = (2 * REPEATS[0] + 1) * rough_us
        if least > 4 * self._case_us:
            raise SkipCaseError(f"a launch takes {rough_us / 1e3:.0f} ms")
        if count > 1 and count * least > self._case_us:
            count = max(int(self._case_us / least), 1)
            sets = sets[:count]
        rounds = max(int(min(GRAPH_US / rough_us, MOST_LAUNCHES, self._case_us / least) / count), 1)
        launches = rounds * count
        name = self._name_of(call.run, shared, sets[0]) if self._kernel_names else ""

        kept: list[Any] = [None] * count
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(launches):
                kept[i % count] = call.run(shared, sets[i % count])
        with torch.cuda.stream(stream):
            graph.replay()
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            graph_us = max(begin.elapsed_time(end) * 1e3, 1.0)
            replays = max(ceil(REPEAT_US / graph_us), 1)
            repeats = int(self._case_us / (graph_us * (replays + 1)))
            repeats = min(max(repeats, REPEATS[0]), REPEATS[1])
            times = []
            for _ in range(repeats):
                graph.replay()  # the GPU is busy while the host queues what is timed
                begin.record()
                for _ in range(replays):
                    graph.replay()
                end.record()
                end.synchronize()
                times.append(begin.elapsed_time(end) * 1e3 / (replays * launches))
        del graph, kept, sets, shared
        times.sort()
        return Timing(
            latency_us=_quantile(times, 0.5),
            low_us=_quantile(times, 0.1),
            high_us=_quantile(times, 0.9),
            launches=launches,
            repeats=repeats,
            buffer_sets=count,
            set_bytes=set_bytes,
            cache=COLD if count * set_bytes >= COLD_FACTOR * self._l2_bytes else WARM,
            kernel_name=name,
        )

    def _set_count(self, set_bytes: int) -> int:
        """Sets of operands that a case takes turns with: enough to be cold, else one."""
        torch = self._torch
        free, _ = torch.cuda.mem_get_info()
        free += torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        # one more result than there are sets is alive, and a library's workspace may be as large
        if 3 * set_bytes > MEMORY_SHARE * free:
            raise SkipCaseError(f"needs {3 * set_bytes / 1e9:.1f} GB of memory")
        wanted = ceil(COLD_FACTOR * self._l2_bytes / max(set_bytes, 1))
        fits = int(MEMORY_SHARE * free / max(set_bytes, 1)) - 2
        return wanted if wanted <= min(self._most_sets, fits) else 1

    def _name_of(self, run: Any, shared: Any, own: Any) -> str:
        """Names of the kernels of one launch, in order; empty where the profiler doesn't tell."""
        torch = self._torch
        try:
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
                run(shared, own)
                torch.cuda.synchronize()
            cuda = torch.autograd.DeviceType.CUDA
            return " + ".join(event.name for event in profile.events() if event.device_type == cuda)
        except Exception:  # whatever a profiler may raise: the name is worth no case
            return ""


def _quantile(ascending: list[float], share: float) -> float:
    return ascending[min(int(share * len(ascending)), len(ascending) - 1)]


def _canonical(device_name: str) -> str:
    try:
        return load_gpu(device_name).name
    except NeusightError:
        return "-".join(device_name.lower().split())


def _l2_bytes(gpu: str) -> int:
    try:
        return load_gpu(gpu).l2_bytes
    except NeusightError:
        return USUAL_L2_BYTES


class Clocks:
    """Clocks, power and temperature, read by nvidia-smi every two seconds beside the measuring."""

    _QUERY: Mapping[str, str] = {
        "clocks.sm": "sm_clock_mhz",
        "clocks.mem": "memory_clock_mhz",
        "power.draw": "power_w",
        "temperature.gpu": "temperature_c",
    }

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._device = _smi_device(torch)
        self._last: dict[str, str] = {}
        self._ended = threading.Event()
        self.driver = ", ".join(self._ask("driver_version"))
        if not self.driver:  # some containers show a card under no name; a query without one answers for the first
            self._device = []
            self.driver = ", ".join(self._ask("driver_version"))
        self._last = self._read()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def latest(self) -> Mapping[str, object]:
        """What was read last; empty where nvidia-smi says nothing."""
        return dict(self._last)

    def close(self) -> None:
        """Ends the reading."""
        self._ended.set()
        self._thread.join(timeout=10.0)

    def _follow(self) -> None:
        while not self._ended.wait(CLOCK_PERIOD_S):
            found = self._read()
            if found:
                self._last = found

    def _read(self) -> dict[str, str]:
        values = self._ask(",".join(self._QUERY))
        return dict(zip(self._QUERY.values(), values, strict=True)) if len(values) == len(self._QUERY) else {}

    def _ask(self, query: str) -> list[str]:
        command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", *self._device]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=5.0, check=True)
        except (OSError, subprocess.SubprocessError):
            return []
        lines = answer.stdout.strip().splitlines()
        return [value.strip() for value in lines[0].split(",")] if lines else []


def _smi_device(torch: Any) -> list[str]:
    """How nvidia-smi is told which GPU is torch's first: CUDA_VISIBLE_DEVICES renumbers them."""
    uuid = str(getattr(torch.cuda.get_device_properties(0), "uuid", ""))
    if uuid:
        return ["-i", uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    return ["-i", visible or "0"]
