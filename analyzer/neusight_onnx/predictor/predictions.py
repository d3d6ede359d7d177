"""The time of each of a run's kernels on a GPU, with its interval and what bounds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, exp
from typing import TypeGuard

import numpy as np

from neusight_onnx.data_files import data_folder
from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernel_formats import kernel_dtype, predictor_label
from neusight_onnx.kernels import (
    KERNEL_CLASSES,
    Attention,
    Conv,
    Gemm,
    HostWork,
    Kernel,
    Normalization,
    Recurrent,
    Softmax,
    Transfer,
)
from neusight_onnx.predictor.choice import (
    attention_kernel,
    is_streamed,
    multiplies_nothing,
    on_vector_lanes,
    predictor_for,
)
from neusight_onnx.predictor.estimates import Estimate, analytic_answer, estimate
from neusight_onnx.predictor.manifest import Predictor, Predictors, load_predictors
from neusight_onnx.predictor.moves import has_moves, with_moves, without_moves
from neusight_onnx.predictor.prediction import Prediction

BUSY_SHARE = 0.15
"""Share of a kernel's time that arithmetic at its peak rate must need for "compute"; with less it is other instructions
("issue") where memory at its peak needs so much, else the kernel's own latency (too few tiles, dependent steps).
Chosen, not measured: it decides a word in the report, no time."""
ATTENTION_BACKWARD = 1.16
"""Time of fused attention's multiply-adds backwards over forwards: at best 73 % of A100's peak forwards and 63 %
backwards (FlashAttention-2, Dao 2023)."""

# parts of a law that are one bound to a reader
_BOUND_OF_PART = {"drift": "memory", "kept": "l2", "shared": "compute", "serial": "latency"}


def predict(
    kernels: Sequence[Kernel], gpu: GpuSpec, *, predictors: Predictors | None = None, kept_in_l2: float = 0.0
) -> tuple[Prediction, ...]:
    """Predicts each kernel, in order; one call of onnxruntime per kernel class, equal kernels predicted once.

    ``predictors``: default the shipped ones. ``kept_in_l2``: share of weights and earlier keys that L2 holds from the
    run before (0: all of them come from DRAM). Kernels of a class and dtype without one get the analytic law. Raises
    PredictorError where a predictor is missing or is not the one that its manifest describes.
    """
    turned = [kernel for kernel in kernels if isinstance(kernel, Attention) and kernel.backward]
    if turned:
        rest = [_forward_of(kernel) for kernel in kernels]
        rest += [_keeping_all(_forward_of(kernel)) for kernel in turned]
        answers = predict(rest, gpu, predictors=predictors, kept_in_l2=kept_in_l2)
        answers_for = dict(zip(rest, answers, strict=True))
        return tuple(
            _backward(kernel, answers_for[forward], answers_for[_keeping_all(forward)])
            if isinstance(kernel, Attention) and kernel.backward
            else answers_for[forward]
            for kernel, forward in zip(kernels, rest, strict=False)
        )
    moving = {id(kernel): kernel for kernel in kernels if has_moves(kernel)}
    if moving:
        streams = {key: without_moves(kernel) for key, kernel in moving.items()}
        rest = [streams.get(id(kernel), kernel) for kernel in kernels]
        answers = predict(rest, gpu, predictors=predictors, kept_in_l2=kept_in_l2)
        streamed = {id(kernel): answer for kernel, answer in zip(kernels, answers, strict=True)}
        moved = with_moves(tuple(moving.values()), [streamed[key] for key in moving], gpu)
        streamed.update(zip(moving, moved, strict=True))
        return tuple([streamed[id(kernel)] for kernel in kernels])
    groups: dict[tuple[object, ...], dict[Kernel, None]] = {}
    objects = {id(kernel): kernel for kernel in kernels}  # layers that repeat share theirs, which are slow to compare
    if kept_in_l2:
        objects = {key: _with_kept(kernel, kept_in_l2) for key, kernel in objects.items()}
    for kernel in objects.values():
        # float16 shares bfloat16's predictor, but a GPU may multiply in one of the two only
        label, dtype = predictor_label(kernel), kernel_dtype(kernel)
        kinds = is_streamed(kernel), multiplies_nothing(kernel), on_vector_lanes(kernel), attention_kernel(kernel, gpu)
        key = (KERNEL_CLASSES[type(kernel)], label, dtype, *kinds, isinstance(kernel, Gemm) and kernel.on_lanes)
        groups.setdefault(key, {})[kernel] = None
    shipped = load_predictors(data_folder("predictors")) if predictors is None else predictors
    found: dict[Kernel, Prediction] = {}
    for unique in groups.values():
        members = tuple(unique)
        predictor = predictor_for(members[0], gpu, shipped)
        of_members = _analytic(members, gpu) if predictor is None else _learned(members, gpu, predictor)
        found.update(zip(members, of_members, strict=True))
    twins = {kernel: twin for kernel in found if (twin := _wide_twin(kernel, gpu)) is not None}
    if twins:
        limits = predict(tuple(twins.values()), gpu, predictors=shipped)
        found.update((kernel, _at_most(found[kernel], limit)) for kernel, limit in zip(twins, limits, strict=True))
    lanes = {kernel: replace(kernel, m=1) for kernel in found if _is_of_lanes_alone(kernel, gpu)}
    if lanes:
        of_a_row = predict(tuple(lanes.values()), gpu, predictors=shipped)
        found.update(
            (kernel, _quicker(found[kernel], _with_rows(row, kernel, gpu)))
            for kernel, row in zip(lanes, of_a_row, strict=True)
        )
    permitted = {
        kernel: replace(kernel, dtype=DataType.FLOAT32)
        for kernel, answer in found.items()
        if _may_multiply_fp32(kernel, gpu) and _least_fp32_us(kernel, gpu) < answer.latency_us
    }
    if permitted:
        in_fp32 = predict(tuple(permitted.values()), gpu, predictors=shipped)
        found.update(
            (kernel, _quicker(found[kernel], replace(wide, in_fp32=True)))
            for kernel, wide in zip(permitted, in_fp32, strict=True)
        )
    answers_of = {key: found[kernel] for key, kernel in objects.items()}
    return tuple([answers_of[id(kernel)] for kernel in kernels])


def _with_kept(kernel: Kernel, share: float) -> Kernel:
    return replace(kernel, kept_in_l2=share) if isinstance(kernel, Gemm | Conv | Attention) else kernel


def _may_multiply_fp32(kernel: Kernel, gpu: GpuSpec) -> TypeGuard[Gemm | Conv | Recurrent]:
    """Whether a product, convolution or recurrent layer is in TF32 on units for it, which is a permission: libraries
    keep FP32's kernels in the choice, such as Winograd's and matrix-vector products, and take those that they expect to
    be quicker."""
    from neusight_onnx.laws.matrix_units import serves

    is_tf32 = isinstance(kernel, Gemm | Conv | Recurrent) and kernel.dtype is DataType.TFLOAT32
    return is_tf32 and serves(gpu, DataType.TFLOAT32)


def _least_fp32_us(kernel: Gemm | Conv | Recurrent, gpu: GpuSpec) -> float:
    """What FP32's units need at their peak for a kernel's multiply-adds, below which no prediction of it lies; 0 where
    other kernels may stand for it."""
    from neusight_onnx.laws.analytic.pipes import pipe_flops_per_s
    from neusight_onnx.laws.conv.constants import WINOGRAD_SAVING

    if isinstance(kernel, Recurrent) or (isinstance(kernel, Gemm) and kernel.b_dtype is not None):
        return 0.0
    saved = WINOGRAD_SAVING if isinstance(kernel, Conv) else 1.0
    return 1e6 * 2 * kernel.macs / saved / pipe_flops_per_s(gpu, DataType.FLOAT32)[0]


def _is_of_lanes_alone(kernel: Kernel, gpu: GpuSpec) -> TypeGuard[Gemm]:
    """Whether a product of several rows by weights of fewer bits is on a GPU without matrix units for it."""
    from neusight_onnx.laws.matrix_units import serves

    if not isinstance(kernel, Gemm) or kernel.batch > 1 or kernel.m < 2 or kernel.b_dtype is None:
        return False
    return kernel.b_dtype.bits < kernel.dtype.bits and not serves(gpu, kernel.dtype)


def _with_rows(row: Prediction, kernel: Gemm, gpu: GpuSpec) -> Prediction:
    """One row's product, each weight of which is multiplied for several rows while it is in registers.

    Kernels for narrow weights do so for up to eight (GPTQ's of ExLlama, llama.cpp's matrix-vector products, as their
    sources are remembered): the weights are read once for these, and each further row takes its multiply-adds.
    """
    from neusight_onnx.laws.unpacked_weights import ROWS_OF_A_WEIGHT, lanes_of_rows_s

    passes = ceil(kernel.m / ROWS_OF_A_WEIGHT)
    more_us = 1e6 * lanes_of_rows_s(kernel.m - passes, kernel.n * kernel.k, gpu)
    factor = passes + more_us / row.latency_us
    return replace(
        row,
        latency_us=factor * row.latency_us,
        low_us=factor * row.low_us,
        high_us=factor * row.high_us,
        utilization=row.utilization / factor,
    )


def _quicker(one: Prediction, other: Prediction) -> Prediction:
    return other if other.latency_us < one.latency_us else one


def _wide_twin(kernel: Kernel, gpu: GpuSpec) -> Kernel | None:
    """PyTorch's layer normalization or softmax of the same rows in FP32, for one in 16 or 8 bits, or NVIDIA's depthwise
    convolution; else None.

    Normalization loads four elements at a time whatever their size, softmax 16 bytes: half the bytes take no longer.
    The law of normalization in 16 bits was fitted to rows of 2,560 columns alone, that of softmax to none, and FP32's
    trees know more. A depthwise convolution has the same places and addresses to work out in any format, which bind it.
    """
    from neusight_onnx.laws.catalog import NARROW_LABELS

    match kernel:
        case Conv():
            is_one = kernel.is_depthwise and kernel.k == kernel.c and kernel.direction == "forward"
            if not is_one or kernel.dtype not in (DataType.FLOAT16, DataType.BFLOAT16) or gpu.vendor != "NVIDIA":
                return None
            return replace(kernel, dtype=DataType.FLOAT32, input_dtype=None, weight_dtype=None, output_dtype=None)
        case Normalization(method="layer", access=""):
            is_pytorchs = not kernel.is_streamed
        case Softmax():
            is_pytorchs = not kernel.generated
        case _:
            return None
    if not is_pytorchs or predictor_label(kernel) not in NARROW_LABELS:
        return None
    return replace(
        kernel,
        dtype=DataType.FLOAT32,
        output_dtype=None,
        extra_inputs=tuple([replace(spec, dtype=DataType.FLOAT32) for spec in kernel.extra_inputs]),
        extra_outputs=tuple([replace(spec, dtype=DataType.FLOAT32) for spec in kernel.extra_outputs]),
    )


def _at_most(found: Prediction, limit: Prediction) -> Prediction:
    """``found``, moved with its interval to the latency of ``limit`` where it is longer."""
    share = limit.latency_us / found.latency_us
    if share >= 1.0:
        return found
    return replace(
        found,
        latency_us=limit.latency_us,
        low_us=found.low_us * share,
        high_us=found.high_us * share,
        utilization=min(found.utilization / share, 1.0),
    )


def _forward_of(kernel: Kernel) -> Kernel:
    return replace(kernel, backward=False) if isinstance(kernel, Attention) else kernel


def _keeping_all(kernel: Kernel) -> Kernel:
    return replace(kernel, dropout=False) if isinstance(kernel, Attention) else kernel


def _backward(kernel: Attention, forward: Prediction, keeping_all: Prediction) -> Prediction:
    """Fused attention backwards, which nothing was fitted to: the forward kernel's time for as much more work.

    ``keeping_all``: forwards without dropout, whose numbers are drawn once backwards, too.
    """
    from neusight_onnx.laws.analytic.estimate import HALF_WIDTH_LOG, LEVEL_SHARE

    factor = ATTENTION_BACKWARD * kernel.macs / max(_forward_of(kernel).macs, 1)
    latency_us = factor * keeping_all.latency_us + max(forward.latency_us - keeping_all.latency_us, 0.0)
    return replace(
        forward,
        latency_us=latency_us,
        low_us=latency_us * exp(-HALF_WIDTH_LOG),
        high_us=latency_us * exp(HALF_WIDTH_LOG),
        utilization=keeping_all.utilization * (factor / ATTENTION_BACKWARD) * keeping_all.latency_us / latency_us,
        method="analytic",
        predictor="analytic",
        level_share=LEVEL_SHARE,
    )


def _learned(kernels: tuple[Kernel, ...], gpu: GpuSpec, predictor: Predictor) -> list[Prediction]:
    from neusight_onnx.laws.attention.kernel_choice import MEMORY_EFFICIENT

    answer = estimate(kernels, gpu, predictor)
    if predictor.dtype == MEMORY_EFFICIENT:  # counted, not measured
        return _predictions(kernels, gpu, answer, method="analytic", predictor="analytic")
    return _predictions(kernels, gpu, answer, method="learned", predictor=predictor.name)


def _analytic(kernels: tuple[Kernel, ...], gpu: GpuSpec) -> list[Prediction]:
    return _predictions(kernels, gpu, analytic_answer(kernels, gpu), method="analytic", predictor="analytic")


def _predictions(
    kernels: tuple[Kernel, ...], gpu: GpuSpec, answer: Estimate, *, method: str, predictor: str
) -> list[Prediction]:
    law, latency = answer.law, answer.latency_us
    assert bool(np.all((latency > 0) & np.isfinite(latency))), "a law gives a time for every kernel"
    floor_us = np.broadcast_to(law.parts_us["launch"], latency.shape)
    names = [name for name in law.parts_us if name != "launch"]
    parts_us = np.stack([np.broadcast_to(law.parts_us[name], latency.shape) for name in names])
    # laws add what is beside the floor to it; the roofline knows none
    is_floor = np.maximum(latency - floor_us, law.least_us) <= floor_us
    largest = np.where(is_floor, -1, np.argmax(parts_us, axis=0))
    tiles = {name: values.astype(np.int64).tolist() for name, values in law.tile.items()}
    rows = zip(
        kernels,
        latency.tolist(),
        answer.low_us.tolist(),
        answer.high_us.tolist(),
        law.ideal_us.tolist(),
        law.tile_count.tolist(),
        law.wave_count.tolist(),
        largest.tolist(),
        answer.level_share.tolist(),
        strict=True,
    )
    return [
        Prediction(
            latency_us=time,
            low_us=bottom,
            high_us=top,
            tile={name: values[i] for name, values in tiles.items()},
            tile_count=max(int(tile_count), 1),
            wave_count=max(int(wave_count), 1),
            utilization=min(ideal / time, 1.0),
            bound=_bound(names[part] if part >= 0 else "floor", time, kernel, gpu),
            method=method,
            predictor=predictor,
            level_share=level_share,
        )
        for i, (kernel, time, bottom, top, ideal, tile_count, wave_count, part, level_share) in enumerate(rows)
    ]


def _bound(part: str, latency_us: float, kernel: Kernel, gpu: GpuSpec) -> str:
    """What bounds a kernel, in a reader's words: the largest of the law's parts, or "floor" where that decides.

    A law's time in the pipe holds the instructions beside the model's arithmetic (addresses, loads, unpacking of narrow
    weights), idle rows of tiles and half-empty waves, too. Where its FLOPs at the peak are no good part of it, more
    FLOP/s don't help: "issue". Where memory isn't busy either, nothing is near its limit: "latency".
    """
    from neusight_onnx.laws.analytic.pipes import pipe_flops_per_s

    if isinstance(kernel, Transfer | HostWork):
        if isinstance(kernel, HostWork):
            return "cpu"
        return "memory" if gpu.shares_memory else "pcie"
    name = _BOUND_OF_PART.get(part, part)
    if name != "compute":
        return name
    memory_us = 1e6 * (kernel.read_bytes + kernel.write_bytes) / gpu.memory_bytes_per_s
    accumulator = kernel.accumulator if isinstance(kernel, Gemm | Conv) else None
    compute_us = 1e6 * kernel.flops / pipe_flops_per_s(gpu, kernel_dtype(kernel), accumulator)[0]
    if compute_us >= BUSY_SHARE * latency_us:
        return "compute"
    return "issue" if memory_us >= BUSY_SHARE * latency_us else "latency"
