"""What every law takes and gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import Kernel

Column: TypeAlias = NDArray[np.float64]
Columns: TypeAlias = Mapping[str, Column]
"""Named columns of equal length, one row a kernel: what a law sees of kernels. Sizes are in elements."""

Constants: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A constant of a law: its prior (median and standard deviation in log) and where the prior comes from."""

    name: str
    prior: float
    prior_log_sd: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """What hangs on how much of a kernel's operands the L2 still holds from the kernels before, which is assumed.

    ``memory_us``: DRAM's peak for the bytes that are assumed to miss; a prediction is not faster. ``less`` (0..1] and
    ``more`` (1 and up): what the time is multiplied by if the L2 holds all that fits, and if DRAM delivers the missed
    bytes no quicker than it does to other kernels.
    """

    memory_us: Column
    less: Column
    more: Column


@dataclass(frozen=True, slots=True, kw_only=True)
class LawResult:
    """What a law says of n kernels on one GPU; every array has n entries.

    ``latency_us`` is the kernel's own time on the GPU, launch floor of the device included, host time not.
    ``ideal_us`` is the time at the roofline (peak of the pipe, peak DRAM bandwidth, unique bytes): a prediction is
    never faster, nor is the low end of its interval. ``reuse``: what is assumed of the L2 beyond that, if anything.
    ``parts_us`` are the competing times by name ("compute", "memory", "l2", "latency", …); the largest names the
    bound. ``tile`` holds the tile's dims by name; ``tile_count`` and ``wave_count`` follow from it. ``doubt_log_sd``:
    standard deviation (log) of the latency from constants that no measured GPU shows; it widens the interval on a GPU
    that was not measured. ``untold_log_sd``: the same from what no kernel shows on any GPU; it widens every interval.
    ``unmeasured``: kernels of a kind that the training data doesn't hold, for which the law stands alone.
    """

    latency_us: Column
    ideal_us: Column
    parts_us: Mapping[str, Column]
    tile: Mapping[str, Column] = field(default_factory=dict)
    tile_count: Column
    wave_count: Column
    doubt_log_sd: Column | None = None
    untold_log_sd: Column | None = None
    unmeasured: NDArray[np.bool_] | None = None
    reuse: Reuse | None = None

    @property
    def least_us(self) -> Column:
        """What no prediction goes below: the roofline, and what is assumed of the L2."""
        return self.ideal_us if self.reuse is None else np.maximum(self.ideal_us, self.reuse.memory_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """A kernel class as the predictor sees it.

    ``columns`` turns kernels into columns; ``estimate`` gives the law's answer on one GPU for given constants;
    ``features`` gives the residual model's inputs, shape (n, len(feature_names)), float32, dimensionless ratios
    only: nothing that identifies a GPU.

    ``pin``, where a law chooses among discrete tiles: returns the columns with the choice under the given constants
    fixed, which makes ``estimate`` smooth in its constants and quick (fitting calls it between its rounds).

    ``constants_of``: kernel class and label of the predictor whose fitted constants it shares, so that what that one
    was measured on carries this law, too.

    ``quicker``: what a quicker kernel of the same library would take over the answer's latency, at most 1, where which
    one runs is known of measured GPUs alone (first), or of none (second): they lower an interval's low end.

    ``counterpart``: the kernel on another GPU (the third) that shows what the law leaves over of one on a GPU (the
    second); None where that is the same kernel on any.

    ``same_kernels``: libraries have the same kernels for all GPUs of the same instructions, so that a later generation
    runs those that were measured.
    """

    kernel_class: str
    constants: tuple[Constant, ...]
    feature_names: tuple[str, ...]
    columns: Callable[[Sequence[Kernel]], Columns]
    estimate: Callable[[Columns, GpuSpec, Constants], LawResult]
    features: Callable[[Columns, GpuSpec, Constants, LawResult], NDArray[np.float32]]
    pin: Callable[[Columns, GpuSpec, Constants], Columns] | None = None
    constants_of: tuple[str, str] | None = None
    quicker: Callable[[Columns, GpuSpec, Constants, LawResult], tuple[Column, Column]] | None = None
    counterpart: Callable[[Kernel, GpuSpec, GpuSpec], Kernel] | None = None
    same_kernels: bool = False


def with_fixed(law: Law, constants: Mapping[str, float]) -> Law:
    """The law with these constants as given, so that only its others are fitted."""
    fixed = tuple(
        replace(constant, prior=constants[constant.name], prior_log_sd=0.0) if constant.name in constants else constant
        for constant in law.constants
    )
    return replace(law, constants=fixed)
