"""The time of a convolution on matrix units: that of the algorithm which its library takes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws import matrix_unit_power, matrix_units
from neusight_onnx.laws.bandwidth import is_amd
from neusight_onnx.laws.base import Column, Columns, Constants, LawResult
from neusight_onnx.laws.tensor_conv.direct import THREAD_CHANNELS, by_channels, element_us
from neusight_onnx.laws.tensor_conv.dram import cold_bytes, dram_rate
from neusight_onnx.laws.tensor_conv.image_products import between_us, image_times, images_us
from neusight_onnx.laws.tensor_conv.implicit_gemm import PARTS, joined_us
from neusight_onnx.laws.tensor_conv.miopen_lanes import is_fp32
from neusight_onnx.laws.tensor_conv.miopen_solvers import VOLUMES_LOG_SD, assembled_times, has_volumes, taken_us
from neusight_onnx.laws.tensor_conv.tiles import is_of_later_kernels, with_tiles
from neusight_onnx.laws.tensor_conv.transposes import miopen_transposes_us, transposes_us
from neusight_onnx.laws.tensor_conv.winograd import WINOGRAD_SAVING
from neusight_onnx.laws.tensor_gemm.constants import own_constants


def ideal_us(cols: Columns, gpu: GpuSpec) -> Column:
    """Roofline: FLOPs at the dense peak of the pipe, what exceeds L2 and filters that it has lost at the peak of DRAM,
    whichever takes longer.

    Winograd's saving isn't in it but in FP32: its transforms run on vector lanes and keep matrix units waiting. Of
    250,000 measured convolutions in 16 bits a handful is faster than the direct one at the peak, by 8 % at most.
    """
    flops_us = 1e6 * cols["flops"] / matrix_units.peaks(gpu, cols["pipe"])
    beyond = np.maximum(cols["read_bytes"] + cols["write_bytes"] - gpu.l2_bytes, 0.0)
    memory = np.maximum(beyond, cold_bytes(cols)) / gpu.memory_bytes_per_s
    saved_us = 1e6 * cols["flops"] / WINOGRAD_SAVING / gpu.peak_flops_per_s["fp32"]
    saves = is_fp32(cols) & (cols["winograd_saving"] > 0.0)
    least_us = np.where(saves, np.minimum(flops_us, saved_us), flops_us)
    passes = cols["passes"] * cols["pass_pieces"] * cols["c_each"] * cols["k_each"]
    passes_us = 2e6 * passes / matrix_units.peaks(gpu, cols["pipe"])
    least_us = np.where(is_fp32(cols) & (passes > 0.0), np.minimum(least_us, passes_us), least_us)
    return np.maximum(least_us, 1e6 * memory)


def algorithms_us(
    cols: Columns, gpu: GpuSpec, c: Constants, tile: NDArray[np.float64], image_tile: NDArray[np.float64]
) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Times of implicit GEMM, of a product an image and of a kernel an element, (3, kernels); the first one's parts."""
    parts = assembled_times(cols, gpu, c, tile)
    product = joined_us(parts, c) + transposes_us(cols, gpu, c)
    if is_amd(gpu):
        product = taken_us(cols, gpu, c, tile, assembled_us=product)
    return np.stack([product, images_us(cols, gpu, c, image_tile), element_us(cols, gpu, c)]), parts


def estimate(cols: Columns, gpu: GpuSpec, constants: Constants) -> LawResult:
    """The law's answer; ``cols`` may carry pinned tiles."""
    cols, tile, image_tile = with_tiles(cols, gpu, constants)
    constants = own_constants(gpu, constants)
    times, parts = algorithms_us(cols, gpu, constants, tile, image_tile)
    least = times.min(axis=0)
    weights = (least / times) ** constants["choice_norm"]
    latency = (weights * np.where(np.isfinite(times), times, 0.0)).sum(axis=0) / weights.sum(axis=0)
    best = np.argmin(times, axis=0)
    by_image, by_element = best == 1, best == 2
    image = image_times(cols, gpu, constants, image_tile)
    threads = 256.0
    shown = np.where(by_image, image_tile, tile)
    blocks = np.where(by_image, cols["images"] * image["blocks"], parts["blocks"])
    of_thread = np.where(by_channels(cols, gpu), THREAD_CHANNELS, 1.0)
    blocks = np.where(by_element, np.ceil(cols["outputs"] / of_thread / threads), blocks)
    resident = np.where(by_image, image["occupancy"], parts["occupancy"])
    resident = np.where(by_element, max(gpu.max_threads_per_sm / threads, 1.0), resident)
    traffic = 1e6 * (cols["read_bytes"] + cols["write_bytes"]) / dram_rate(cols, gpu, constants)

    own = _parts_us(cols, gpu, constants, times=times, product=parts, image=image, by_image=by_image)
    compute_share = 1e6 * parts["compute"] / latency

    return LawResult(
        latency_us=latency,
        ideal_us=ideal_us(cols, gpu),
        parts_us={
            "compute": np.where(by_element, times[2] - constants["floor_us"], own["compute"]),
            "memory": np.where(by_element, traffic, own["memory"]),
            **{name: np.where(by_element, 0.0, own[name]) for name in ("l2", "issue", "latency")},
            "launch": own["launch"],
        },
        tile={
            "n": np.where(by_element, 1.0, shown[0]),
            "m": np.where(by_element, threads, shown[1]),
            "threads": np.where(by_element, threads, shown[2]),
            "split_k": np.where(by_element, 1.0, shown[3]),
        },
        tile_count=blocks,
        wave_count=np.maximum(np.ceil(blocks / (gpu.sm_count * resident)), 1.0),
        doubt_log_sd=np.hypot(
            matrix_unit_power.clock_doubt(gpu, parts["level"], compute_share),
            np.where(has_volumes(cols, gpu), VOLUMES_LOG_SD, 0.0),
        ),
        untold_log_sd=matrix_unit_power.format_doubt(gpu, cols["pipe"], parts["level"], compute_share),
        unmeasured=is_of_later_kernels(cols, gpu),
    )


def _parts_us(
    cols: Columns,
    gpu: GpuSpec,
    c: Constants,
    *,
    times: NDArray[np.float64],
    product: dict[str, NDArray[np.float64]],
    image: dict[str, NDArray[np.float64]],
    by_image: NDArray[np.bool_],
) -> dict[str, NDArray[np.float64]]:
    """Competing times in us of implicit GEMM, or of the products of images: what bounds a convolution.

    On AMD steps that wait for loads are latency, and so is a series of launches, but for the one that any kernel has:
    calls, gathers and sums beside a product, and transposes, whose instructions and bytes compete as the product's do.
    Gathers reach a fifth of DRAM's peak: what binds them are their loads and addresses.
    """
    competing = {name: 1e6 * np.where(by_image, cols["images"] * image[name], product[name]) for name in PARTS}
    launch = np.where(by_image, image["launch"], product["launch"])
    if not is_amd(gpu):
        # behind transposes runs a kernel that memory needn't bound
        transposes = np.where(by_image, 0.0, transposes_us(cols, gpu, c))
        is_bound = product["memory"] >= np.maximum.reduce([product[name] for name in PARTS])
        moved = np.where(is_bound, competing["memory"] + transposes, np.maximum(competing["memory"], transposes))
        memory = np.where(by_image, competing["memory"], moved)
        return {**competing, "memory": memory, "latency": np.zeros_like(launch), "launch": launch}
    launches_us, issued_us, moved_us = miopen_transposes_us(cols, gpu, c)
    # kernels that read tensors as they lie are the quicker ones where the time is less than with transposes
    is_transposed = ~by_image & (times[0] >= joined_us(product, c) + launches_us + np.hypot(issued_us, moved_us))
    between, gathered = between_us(cols, gpu, c)
    beside = np.where(is_transposed, launches_us, 0.0) + np.maximum(product["launch"] - c["floor_us"], 0.0)
    waits = 1e6 * np.where(by_image, cols["images"] * image["waits"], product["waits"])
    issued = np.where(by_image, gathered, np.where(is_transposed, issued_us, 0.0))
    return {
        **competing,
        "memory": competing["memory"] + np.where(is_transposed, moved_us, 0.0),
        "issue": competing["issue"] - waits + issued,
        "latency": np.where(by_image, between, beside) + waits,
        "launch": np.where(by_image, image["launch"], np.minimum(launch, c["floor_us"])),
    }
