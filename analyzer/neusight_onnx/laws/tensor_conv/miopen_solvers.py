"""AMD: which of MIOpen's solvers take a convolution: assembled kernels, or those that a compiler made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import Conv, Kernel
from neusight_onnx.laws import matrix_units
from neusight_onnx.laws.bandwidth import is_amd
from neusight_onnx.laws.base import Columns, Constants
from neusight_onnx.laws.tensor_conv.implicit_gemm import joined_us, times
from neusight_onnx.laws.tensor_conv.miopen_lanes import has_lanes, has_matrix_cores, is_fp32, lanes_us, winograd_us
from neusight_onnx.laws.tensor_conv.miopen_passes import passes_us
from neusight_onnx.laws.tensor_conv.solver_tiles import COMPILED_TILE, HIP_TILE, LYING_TILE, MLIR_TILE, own_tile


def has_first_bf16(gpu: GpuSpec) -> bool:
    """Whether an AMD GPU has CDNA's first instructions for bfloat16, at half the rate of float16 (MI100).

    MIOpen's assembled kernels, and those that MLIR makes, want the later ones (``v_mfma_f32_*_bf16_1k``): no solver of
    either kind is among the MI100's 20,000 convolutions in bfloat16, while they run most of its float16 and of the
    MI210's bfloat16 (find database).
    """
    peaks = gpu.peak_flops_per_s
    return is_amd(gpu) and peaks.get("bf16", 0.0) < peaks.get("fp16", 0.0)


_FIRST_BF16_RATE = 0.5
"""MIOpen's compiled kernels multiply bfloat16 by CDNA's first instructions on CDNA2, too, at half the rate of float16:
there 1x1 convolutions that the same solver runs in both take 1.2-1.4 times as long, those of assembled kernels 1.0."""

_HALF_PIPES = ("fp16", "fp16_accumulate")

_CDNA2_NM, _CDNA_WAVE = 6.0, 64
"""Process of CDNA2, of which no later one of AMD's is made but RDNA3's smallest, whose waves are of 32."""


def taken_us(
    cols: Columns, gpu: GpuSpec, c: Constants, tile: NDArray[np.float64], *, assembled_us: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Implicit GEMM by the quicker of the solvers that take a convolution, in us; infinite where none does.

    ``assembled_us``: the time of the assembled kernels, did they take all. What each takes is what MIOpen's find
    database has of 16-bit convolutions.
    """
    compiled = compiled_us(cols, gpu, c, tile)
    # no assembled kernel that reads (n, *spatial, c) is among the 6,900 16-bit ones in groups
    found = np.where(cols["groups"] > 1.0, np.inf, assembled_us)
    if has_first_bf16(gpu):
        bf16 = np.equal(cols["pipe"], matrix_units.PIPES.index("bf16"))
        if np.any(reads_as_they_lie(cols, gpu)):
            found = np.minimum(found, as_they_lie_us(cols, gpu, c, tile))
        found = np.where(bf16, compiled, np.minimum(found, compiled))
    else:
        # no compiled kernel is among the MI210's gradients of inputs in bfloat16
        alone = is_first_bf16(cols, gpu) & (cols["data"] > 0)
        found = np.where(alone, found, np.minimum(found, compiled))
    lanes = has_lanes(cols, gpu) & ("lanes_overhead" in c)
    on_cores = np.where(lanes & (not has_matrix_cores(gpu)), np.inf, found)
    on_cores = np.where(has_no_product(cols, gpu), np.inf, on_cores)
    # assembled kernels are for two axes
    on_cores = np.where(cols["rank"] > 2.0, np.where(has_volumes(cols, gpu), compiled, np.inf), on_cores)
    if not np.any(lanes):
        return on_cores
    on_lanes = np.minimum(lanes_us(cols, gpu, c, tile), winograd_us(cols, gpu, c, tile))
    if "passes_us" in c:
        on_lanes = np.minimum(on_lanes, passes_us(cols, gpu, c, tile))
    return np.where(lanes, np.minimum(on_cores, on_lanes), on_cores)


VOLUMES_LOG_SD = 0.3
"""Doubt (log) of these, as of other kernels than were measured (attention's ``OTHER_KERNELS_LOG_SD``)."""


def has_volumes(cols: Columns, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Whether MIOpen has implicit GEMM in 16 bits over three axes: on CDNA3 and later.

    Since ROCm 6 it calls Composable Kernel's there (``ConvHipImplicitGemm3DGroupFwdXdlops`` and its like for gradients,
    as remembered; for CDNA2, too). The find database is older: of its 27,000 forward rows over three axes in 16 bits,
    all an MI100's and an MI210's, none has a kernel of implicit GEMM. A depth of 1, which most have, isn't run as two
    axes there: 2,720 of the MI210 in float16 with several taps take 9.5 times as long as the same over two (median;
    3.2 to 37 from the tenth to the ninetieth hundredth). What was measured stands for these two GPUs.
    """
    later = gpu.process_nm < _CDNA2_NM and gpu.warp_size == _CDNA_WAVE and has_matrix_cores(gpu)
    found: NDArray[np.bool_] = (cols["rank"] > 2.0) & (cols["bytes"] == 2.0) & (is_amd(gpu) and later)
    return found


def compiled_us(cols: Columns, gpu: GpuSpec, c: Constants, tile: NDArray[np.float64]) -> NDArray[np.float64]:
    """Implicit GEMM by kernels that a compiler made, which read tensors as they lie, in us. AMD's library has them.

    Channels and taps are one dimension to them, so that neither is padded or begun anew. Their other instructions take
    ``compiled_overhead`` times as long as float16's matrix instructions, with which they compete, and no longer where
    those are slower. Addresses of taps are theirs alone: the largest gradients that assembled kernels have reach as
    much of the peak as forward passes do, .5-.64, on both GPUs of the find database, transposes included.
    """
    if not has_own_splits(c):
        return joined_us(compiled_times(cols, gpu, c, own_tile(cols, COMPILED_TILE, tile)), c)
    hip = joined_us(hip_times(cols, gpu, c, own_tile(cols, HIP_TILE, tile)), c)
    mlir = joined_us(mlir_times(cols, gpu, c, own_tile(cols, MLIR_TILE, tile)), c)
    return np.minimum(
        np.where(lacks_half(cols, gpu), np.inf, hip),
        np.where(is_first_bf16(cols, gpu), np.inf, mlir),
    )


def has_own_splits(c: Constants) -> bool:
    """Whether a law tells apart how each solver splits a reduction and how far assembled kernels hide their loads: that
    of gradients of weights in 16 bits."""
    return "assembled_norm" in c


def assembled_times(
    cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, c: Constants, tile: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """Competing times in s of AMD's assembled kernels, and on NVIDIA of its kernels of implicit GEMM."""
    if "assembled_operations" not in c:
        return times(cols, gpu, c, tile)
    own = {**c, "move_operations": c["assembled_operations"]}
    found = times(
        {**cols, **_channels_together(cols)},
        gpu,
        own,
        tile,
        sums=_assembled_sums(cols),
        address_overhead=c["address_overhead"],
    )
    return {**found, "norm": np.array(c["assembled_norm"])} if has_own_splits(c) else found


def _channels_together(cols: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """Elements that one load of up to 16 bytes brings of a gradient of weights over (n, *spatial, c), as assembled
    kernels read it: of rows filters, of columns channels.

    A first layer's three channels come one by one. Without that, gradients of 7x7 filters over images came out a
    quarter to a half too fast on both GPUs of the find database, those of whole vectors of channels not.
    """
    whole = (16.0 / cols["bytes"]).astype(np.int64)
    found = {"a_together": cols["k_each"], "b_together": cols["c_each"]}
    return {name: np.gcd(side.astype(np.int64), whole).astype(np.float64) for name, side in found.items()}


def _assembled_sums(cols: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Kernels beside an assembled gradient of weights, whose blocks add up what each has, split or not.

    In float16 pairs of channels are added where they lie (``global_atomic_pk_add_f16``), which only have to be zeroed,
    and so is FP32; a single channel and bfloat16 are added in FP32 and converted after (``need_cast`` in MIOpen's
    solver, as remembered). An MI210 takes 13-20 us longer in bfloat16 for up to 600,000 weights and then with their
    number, for 3 channels as long (4,253 pairs); over (n, *spatial, c) none of either GPU's takes less than 12.5 us,
    which MLIR's, unsplit, do in 4.5.
    """
    adds = is_fp32(cols) | (is_half(cols) & (np.mod(cols["c_each"], 2.0) == 0.0))
    return np.where(adds, 1.0, 2.0)


def compiled_times(
    cols: Mapping[str, NDArray[np.float64]],
    gpu: GpuSpec,
    c: Constants,
    tile: NDArray[np.float64],
    *,
    sums: NDArray[np.float64] | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Competing times of those kernels in s; ``sums`` as :func:`.implicit_gemm.times` has it.

    Split gradients of weights in FP32 are added where they lie, which only has to be zeroed.
    """
    # a filter of one tap has no addresses of its own to make
    addressing = np.where(cols["taps_met"] > 1.0, c["index_overhead"] * c["data_overhead"] ** cols["data"], 1.0)
    own = {**c, "tap_channels": 0.0, "pipe_overhead": c["pipe_overhead"] * c["compiled_overhead"]}
    # MLIR makes none for bfloat16 there; what is left, in HIP, has fewer loads in flight
    is_hip = is_first_bf16(cols, gpu)
    if sums is None and "assembled_operations" in c:
        sums = np.where(tile[3] > 1.0, 1.0, 0.0)
    return times(
        merged(cols),
        gpu,
        own,
        tile,
        slower=compiled_slower(cols, gpu),
        waiting=np.where(is_hip, c["first_waiting"], 1.0),
        addressing=addressing,
        address_overhead=c.get("address_overhead", 0.0),
        sums=sums,
    )


def hip_times(
    cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, c: Constants, tile: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """The same of gradients of weights in HIP, whose sums are converted, split or not."""
    found = compiled_times(cols, gpu, c, tile, sums=np.full_like(cols["m"], 2.0))
    return {**found, "norm": np.array(c["hip_norm"])}


def mlir_times(
    cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, c: Constants, tile: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """The same of those that MLIR makes; unsplit ones write their result.

    Their times hide next to nothing behind one another; their pipe, addresses and moves take less than those in HIP.
    """
    own = {
        **c,
        "compiled_overhead": c["mlir_overhead"],
        "address_overhead": c["mlir_address"],
        "move_operations": c["mlir_operations"],
    }
    found = compiled_times(cols, gpu, own, tile, sums=np.where(tile[3] > 1.0, 2.0, 0.0))
    return {**found, "norm": np.array(c["mlir_norm"])}


def as_they_lie_us(cols: Columns, gpu: GpuSpec, c: Constants, tile: NDArray[np.float64]) -> NDArray[np.float64]:
    """Implicit GEMM in float16 by assembled kernels that read (n, c, *spatial), in us; infinite where none does.

    MIOpen has them for CDNA alone (``ConvAsmImplicitGemmGTCDynamicFwdXdlops`` and its like without ``NHWC``): all 3,340
    of the find database in float16 are an MI100's, 65 of them in groups, which aren't told apart.
    """
    times_us = joined_us(lying_times(cols, gpu, c, own_tile(cols, LYING_TILE, tile)), c)
    return np.where(reads_as_they_lie(cols, gpu), times_us, np.inf)


def reads_as_they_lie(cols: Columns, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Whether those kernels take a convolution."""
    has = is_half(cols) & (cols["groups"] == 1.0) & (cols["channels_last"] == 0.0) & (cols["weight"] == 0.0)
    found: NDArray[np.bool_] = has & (has_first_bf16(gpu) and has_matrix_cores(gpu))
    return found


def lying_times(
    cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec, c: Constants, tile: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """Competing times of those kernels in s."""
    return times(merged(cols), gpu, {**c, "tap_channels": 0.0}, tile, address_overhead=c.get("address_overhead", 0.0))


def is_half(cols: Columns) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.isin(cols["pipe"], [matrix_units.PIPES.index(name) for name in _HALF_PIPES])
    return found


def lacks_half(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec) -> NDArray[np.bool_]:
    """Whether it is a gradient in float16 on CDNA2, whose matrix instructions of float16 make zeros of denormals.

    MIOpen takes those of bfloat16 there (``IsGfx90aFp16altRequired``, as remembered), which its kernels in HIP and on
    vector lanes don't have: of an MI210's 14,000 gradients of weights in float16 none is ``V4R4Xdlops``', five are
    ``ConvAsmBwdWrW1x1``'s.
    """
    cdna2 = not has_first_bf16(gpu) and gpu.process_nm >= _CDNA2_NM and gpu.warp_size == _CDNA_WAVE
    return is_half(cols) & cdna2


def merged(cols: Mapping[str, NDArray[np.float64]]) -> Mapping[str, NDArray[np.float64]]:
    """The product whose channels and taps are one dimension, neither padded."""
    along = cols["weight"] > 0
    return {
        **cols,
        "n": np.where(along, cols["n"] / cols["padded"], cols["n"]),
        "k": np.where(along, cols["k"], cols["k"] / cols["padded"]),
    }


def has_no_product(cols: Columns, gpu: GpuSpec) -> NDArray[np.bool_]:
    """Gradients of inputs in bfloat16 that no kernel of implicit GEMM on CDNA and CDNA2 takes.

    On an MI100 those that don't divide (:func:`_divides`); on an MI210, which has the assembled kernels alone, those in
    groups: a direct kernel or a product an image has all 383 in the find database.
    """
    gradient = is_first_bf16(cols, gpu) & (cols["data"] > 0)
    found: NDArray[np.bool_] = gradient & (cols["divides"] == 0 if has_first_bf16(gpu) else cols["groups"] > 1)
    return found


def is_first_bf16(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec) -> NDArray[np.bool_]:
    """Whether compiled kernels multiply by CDNA's first instructions for bfloat16."""
    is_first = gpu.process_nm >= _CDNA2_NM and gpu.warp_size == _CDNA_WAVE
    found: NDArray[np.bool_] = np.equal(cols["pipe"], matrix_units.PIPES.index("bf16")) & is_first
    return found


def stated_slower(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec) -> NDArray[np.float64]:
    """Time of bfloat16's fastest matrix instructions over float16's; 1 for other formats."""
    peaks = gpu.peak_flops_per_s
    bf16 = np.equal(cols["pipe"], matrix_units.PIPES.index("bf16")) & ("bf16" in peaks and "fp16" in peaks)
    found: NDArray[np.float64] = np.where(bf16, peaks.get("fp16", 1.0) / peaks.get("bf16", 1.0), 1.0)
    return found


def compiled_slower(cols: Mapping[str, NDArray[np.float64]], gpu: GpuSpec) -> NDArray[np.float64]:
    """Time of the matrix instructions of compiled kernels over that of the format's fastest."""
    slower = np.maximum(1.0 / _FIRST_BF16_RATE / stated_slower(cols, gpu), 1.0)
    found: NDArray[np.float64] = np.where(is_first_bf16(cols, gpu), slower, 1.0)
    return found


def counterpart(kernel: Kernel, gpu: GpuSpec, other: GpuSpec) -> Kernel:
    """The convolution on ``other`` whose kernels are those of ``kernel`` on ``gpu``.

    Where one of them has assembled kernels for bfloat16 and the other hasn't, they are those that both have for
    float16; what the other has for the weight's gradient shows it as well (amd_convolutions.md).
    """
    assert isinstance(kernel, Conv)
    differs = has_first_bf16(other) != has_first_bf16(gpu) and (kernel.direction != "weight" or has_first_bf16(other))
    differs = differs and kernel.dtype is DataType.BFLOAT16
    return replace(kernel, dtype=DataType.FLOAT16) if differs else kernel
