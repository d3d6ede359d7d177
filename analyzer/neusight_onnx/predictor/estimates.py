"""A predictor's answer for kernels of its class: law x exp(weight x residual), with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from math import exp
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import SpecError
from neusight_onnx.gpu import GpuSpec, load_gpu
from neusight_onnx.gpu.generation import is_unknown
from neusight_onnx.gpu.spec import plain_architecture
from neusight_onnx.kernels import Attention, Conv, Gemm, HostWork, Kernel
from neusight_onnx.predictor.intervals import Spread, half_widths
from neusight_onnx.predictor.manifest import Predictor
from neusight_onnx.predictor.neighbours import (
    LATER_GENERATION,
    LEAST_SHARE,
    alike_of,
    before,
    lessened,
    runs_kernels_of,
    share_of,
    worse_of,
)
from neusight_onnx.predictor.trees import residuals
from neusight_onnx.similarity import NEGLIGIBLE, carried_over, gpu_weight, nearest_of, remoteness, shape_weight

if TYPE_CHECKING:
    from neusight_onnx.laws.base import Column, Columns, Law, LawResult


UNKNOWN_INSTRUCTIONS_LOG_SD = 0.3
"""Doubt (log) where matrix units are of a generation that isn't known, as where other kernels run than were measured
(``laws.attention.kernel_choice.OTHER_KERNELS_LOG_SD``): an H100's figures make a large 16-bit product 1.6 times as
long (.47 in log) by mma as by tcgen05. A judgement."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A predictor's answer for n kernels on one GPU: the law, the latency with its interval in us, n entries each.

    ``level_share``: share of the interval's variance (in log) that is the GPU's level.
    """

    law: LawResult
    latency_us: Column
    low_us: Column
    high_us: Column
    level_share: Column


def estimate(kernels: Sequence[Kernel], gpu: GpuSpec, predictor: Predictor) -> Estimate:
    """Applies a predictor to kernels of its class; latency is at least the ideal time, and so is the interval."""
    if predictor.narrow_operands:
        return _of_narrow_operands(kernels, gpu, predictor)
    from neusight_onnx.laws.bandwidth import is_amd

    near = gpu_weight(gpu, predictor.gpu_vectors)
    shared = _shared_of(kernels, predictor)
    law, latency, inside = _with_residual(kernels, gpu, predictor, shared)
    if near < 1.0:
        latency = _among_neighbours(kernels, gpu, predictor, latency, shared)
    in_l2 = _in_l2_us(latency, law)
    law, latency = _issued(kernels, gpu, law, np.maximum(latency, law.least_us))
    widths = predictor.amd_interval if is_amd(gpu) else predictor.interval
    remote = remoteness(gpu, predictor.law_vectors)
    spread = half_widths(widths, gpu, near, inside, remote, _doubt_log_sd(kernels, gpu, law), law.untold_log_sd)
    less, more, level_share = _doubt_of_reuse(kernels, gpu, law, latency, in_l2, spread)
    quicker = _quicker_share(shared, gpu, predictor, law, near, inside)
    # which kernel a library has is no kernel's own error
    level_share = 1.0 - (1.0 - level_share) / (1.0 - np.log(quicker) / spread.width) ** 2
    low = np.maximum(latency * less * quicker * np.exp(-spread.width), law.ideal_us)
    high = latency * more * np.exp(spread.width)
    law = _with_missed(law)
    return Estimate(law=law, latency_us=latency, low_us=low, high_us=high, level_share=level_share)


def _quicker_share(
    shared: _Shared, gpu: GpuSpec, predictor: Predictor, law: LawResult, near: float, inside: Column
) -> Column | float:
    """What the low end falls by, as a quicker kernel of the library may run: all of it where nothing shows which does,
    elsewhere as far as the GPU is from measured ones."""
    if shared.law.quicker is None:
        return 1.0
    unseen, untold = shared.law.quicker(shared.columns, gpu, predictor.constants, law)
    found: Column = np.minimum(unseen ** (1.0 - near * inside), untold)
    return found


def _in_l2_us(latency_us: Column, law: LawResult) -> Column:
    """The latency if the L2 holds all that fits."""
    held = latency_us if law.reuse is None else latency_us * law.reuse.less
    return np.maximum(held, law.ideal_us)


def _with_missed(law: LawResult) -> LawResult:
    """The law with the bytes that are assumed to miss the L2 in its part of memory; features see the part without."""
    if law.reuse is None or "memory" not in law.parts_us:
        return law
    parts = {**law.parts_us, "memory": np.maximum(law.parts_us["memory"], law.reuse.memory_us)}
    return replace(law, parts_us=parts)


def _doubt_of_reuse(
    kernels: Sequence[Kernel], gpu: GpuSpec, law: LawResult, latency_us: Column, in_l2_us: Column, spread: Spread
) -> tuple[Column | float, Column | float, Column]:
    """(factor of the low end, of the high end, level share) by what is assumed of the L2, which a run has in common."""
    if law.reuse is None:
        return 1.0, 1.0, spread.level_share
    less = np.minimum(_issued(kernels, gpu, law, in_l2_us)[1] / latency_us, 1.0)
    more = law.reuse.more
    own = (1.0 - spread.level_share) * spread.width**2
    wider = spread.width + np.log(np.maximum(1.0 / less, more))
    return less, more, np.asarray(1.0 - own / wider**2, dtype=np.float64)


def _doubt_log_sd(kernels: Sequence[Kernel], gpu: GpuSpec, law: LawResult) -> Column | None:
    """The law's doubt about constants that no measured GPU shows, and that about instructions that nobody knows."""
    from neusight_onnx.laws.matrix_units import serves

    if not is_unknown(gpu):
        return law.doubt_log_sd
    multiplies = [isinstance(kernel, Gemm | Conv | Attention) and serves(gpu, kernel.dtype) for kernel in kernels]
    unknown = np.where(multiplies, UNKNOWN_INSTRUCTIONS_LOG_SD, 0.0)
    return unknown if law.doubt_log_sd is None else np.hypot(unknown, law.doubt_log_sd)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """What answers for the same kernels on several GPUs have in common: the law and its columns of the kernels, and its
    features of them on measured GPUs, by name, as they are asked for."""

    law: Law
    columns: Columns
    features: dict[str, NDArray[np.float32]] = field(default_factory=dict)


def _shared_of(kernels: Sequence[Kernel], predictor: Predictor) -> _Shared:
    from neusight_onnx.laws.catalog import law_of

    law = law_of(predictor.kernel_class, predictor.dtype)
    assert law is not None, "a predictor without a law isn't loaded"
    return _Shared(law=law, columns=law.columns(kernels))


def _with_residual(
    kernels: Sequence[Kernel], gpu: GpuSpec, predictor: Predictor, shared: _Shared
) -> tuple[LawResult, Column, Column]:
    """The law, the latency with as much of the trees' residual as carries over to the GPU, in us, and how far within
    what was measured each kernel is."""
    from neusight_onnx.laws.catalog import apply_law, features_elsewhere

    used = shared.law
    answer = apply_law(used, kernels, gpu, predictor.constants, shared.columns)
    law = answer.result
    names = used.feature_names
    told = 1.0 if law.unmeasured is None else np.where(law.unmeasured, 0.0, 1.0)

    def inside(of: NDArray[np.float32], *, any_remainder: bool = False) -> Column:
        low, high = predictor.feature_low, predictor.feature_high
        return told * shape_weight(of, low, high, names, any_remainder=any_remainder)

    def of_the_nearest() -> NDArray[np.float32] | None:
        other = _measured_gpu(predictor.gpus[nearest_of(gpu, predictor.gpu_vectors)])
        if other is None:
            return None
        if used.counterpart is not None:  # which kernels they are there hangs on the GPU here
            return features_elsewhere(used, kernels, gpu, other, predictor.constants)
        if other.name not in shared.features:
            found = features_elsewhere(used, kernels, gpu, other, predictor.constants, shared.columns)
            shared.features[other.name] = found
        return shared.features[other.name]

    near = gpu_weight(gpu, predictor.gpu_vectors)
    carried = carried_over(
        partial(residuals, predictor),
        inside,
        answer.features,
        near,
        predictor.unseen_weight,
        of_the_nearest,
        # a remainder that wasn't measured: no less of the residual, and the law's interval
        applied_of=partial(inside, any_remainder=True),
    )
    return law, law.latency_us * np.exp(carried.correction), carried.inside


def _among_neighbours(
    kernels: Sequence[Kernel], gpu: GpuSpec, predictor: Predictor, latency_us: Column, shared: _Shared
) -> Column:
    """The latency, held to what measured GPUs of the same generation show (``neighbours``)."""
    vectors = predictor.gpu_vectors

    def nearness(other: GpuSpec) -> float:
        return gpu_weight(other, vectors)

    measured = alike_of(gpu, predictor.gpus, vectors, _measured_gpu)
    worse = [worse_of(gpu, spec) for spec in measured]
    nearest = _measured_gpu(predictor.gpus[nearest_of(gpu, vectors)]) if vectors else None
    if nearest is not None and plain_architecture(nearest.architecture) == plain_architecture(gpu.architecture):
        worse += lessened(gpu, nearest, nearness)
    # one that is no nearer to what was measured knows no more
    least = max(nearness(gpu), NEGLIGIBLE)
    for other in worse:
        if nearness(other) > least:
            latency_us = np.minimum(latency_us, _with_residual(kernels, other, predictor, shared)[1])
    if shared.law.same_kernels:
        found = [spec for name in predictor.gpus if (spec := _measured_gpu(name)) is not None]
        for other in [before(gpu, spec) for spec in found if runs_kernels_of(gpu, spec)]:
            if nearness(other) > least:
                limit = LATER_GENERATION * _with_residual(kernels, other, predictor, shared)[1]
                latency_us = np.minimum(latency_us, limit)
    for other in measured:
        share = share_of(other, gpu)
        if share > LEAST_SHARE:
            latency_us = np.maximum(latency_us, share * _with_residual(kernels, other, predictor, shared)[1])
    return latency_us


@lru_cache(maxsize=64)
def _measured_gpu(name: str) -> GpuSpec | None:
    """A GPU that predictors were fitted on, read once; None where its file isn't here."""
    try:
        return load_gpu(name)
    except SpecError:
        return None


def _of_narrow_operands(kernels: Sequence[Kernel], gpu: GpuSpec, predictor: Predictor) -> Estimate:
    """Products of 16 bits on FP32's lanes: the FP32 product's time, by what its law says that fewer bytes save.

    The residual is that of the FP32 product, whose features it was fitted to; the interval is at least that of a GPU
    that was not measured, for no such product was.
    """
    from neusight_onnx.laws.catalog import apply_law, law_of

    used = law_of(predictor.kernel_class, predictor.dtype)
    assert used is not None, "a predictor without a law isn't loaded"
    law = apply_law(used, kernels, gpu, predictor.constants).result
    wide = estimate([_in_fp32(kernel) for kernel in kernels], gpu, replace(predictor, narrow_operands=False))
    latency = np.maximum(wide.latency_us * np.minimum(law.latency_us / wide.law.latency_us, 1.0), law.least_us)
    least = exp(predictor.interval.unseen)
    return Estimate(
        law=law,
        latency_us=latency,
        low_us=np.maximum(latency / np.maximum(wide.latency_us / wide.low_us, least), law.ideal_us),
        high_us=latency * np.maximum(wide.high_us / wide.latency_us, least),
        level_share=wide.level_share,
    )


def _in_fp32(kernel: Kernel) -> Kernel:
    match kernel:
        case Gemm():
            return replace(kernel, dtype=DataType.FLOAT32, a_dtype=None, b_dtype=None, output_dtype=None)
        case Conv():
            return replace(kernel, dtype=DataType.FLOAT32)
        case _:
            return kernel


def analytic_answer(kernels: Sequence[Kernel], gpu: GpuSpec) -> Estimate:
    """What the analytic law says of kernels that have no predictor; its interval is a judgement."""
    from neusight_onnx.laws.analytic.estimate import HALF_WIDTH_LOG, LEVEL_SHARE, analytic_estimate
    from neusight_onnx.laws.host import HOST_HALF_WIDTH_LOG

    law = analytic_estimate(kernels, gpu)
    in_l2 = _in_l2_us(law.latency_us, law)
    law, latency = _issued(kernels, gpu, law, np.maximum(law.latency_us, law.least_us))
    on_host = np.array([isinstance(kernel, HostWork) for kernel in kernels], dtype=bool)
    width = np.where(on_host, HOST_HALF_WIDTH_LOG, HALF_WIDTH_LOG)
    spread = Spread(width=width, level_share=np.where(on_host, 1.0, LEVEL_SHARE))  # a run has one host
    less, more, level_share = _doubt_of_reuse(kernels, gpu, law, latency, in_l2, spread)
    low = np.maximum(latency * less / np.exp(width), np.minimum(law.ideal_us, latency))
    return Estimate(
        law=_with_missed(law),
        latency_us=latency,
        low_us=low,
        high_us=latency * more * np.exp(width),
        level_share=level_share,
    )


def _issued(kernels: Sequence[Kernel], gpu: GpuSpec, law: LawResult, latency_us: Column) -> tuple[LawResult, Column]:
    """The law's parts and the latency of kernels, held to what their instructions take to be issued and waited for."""
    from neusight_onnx.laws.block_wait import sharpness, with_waits
    from neusight_onnx.laws.issue import SHARPNESS, instructions_per_us, issue_us, with_issue
    from neusight_onnx.laws.issue_power import clock_levels

    issue = issue_us(kernels, gpu)
    if issue is None:
        return law, latency_us
    bound, _ = with_waits(kernels, gpu, issue)
    body = np.maximum(latency_us - law.parts_us["launch"], 0.0)
    level = clock_levels(issue * instructions_per_us(gpu), bound, body, gpu, sharpness=SHARPNESS)
    parts = {**law.parts_us, "compute": np.maximum(law.parts_us["compute"], issue / level)}
    bound, waits = (part / level for part in with_waits(kernels, gpu, issue))
    if waits.any():
        parts["latency"] = np.maximum(law.parts_us.get("latency", 0.0), waits)
    return replace(law, parts_us=parts), with_issue(latency_us, law.parts_us["launch"], bound, sharpness(kernels))
