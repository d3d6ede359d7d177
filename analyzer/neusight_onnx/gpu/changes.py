"""A GPU with other figures than its own, for what-ifs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from neusight_onnx.errors import SpecError
from neusight_onnx.gpu.keys import NUMBER_KEYS, PEAK_KEYS, number_of, quoted
from neusight_onnx.gpu.power import idle_follows_memory, idle_w
from neusight_onnx.gpu.sense import (
    check_capability,
    check_dense_peaks,
    check_fp32_peak,
    check_idle_power,
    check_l2_bandwidth,
    check_power,
)
from neusight_onnx.gpu.spec import GpuSpec

FIELDS: Mapping[str, tuple[str, float]] = {
    "compute_capability": ("compute_capability", 1),
    "process_nm": ("process_nm", 1),
    "sm_count": ("sm_count", 1),
    "fp32_lanes_per_sm": ("fp32_lanes_per_sm", 1),
    "boost_mhz": ("clock_hz", 1e6),
    "max_threads_per_sm": ("max_threads_per_sm", 1),
    "register_file_kb_per_sm": ("register_bytes_per_sm", 2**10),
    "shared_memory_kb_per_sm": ("shared_memory_bytes_per_sm", 2**10),
    "l1_kb_per_sm": ("l1_bytes_per_sm", 2**10),
    "l2_mb": ("l2_bytes", 2**20),
    "l2_bandwidth_gb_s": ("l2_bytes_per_s", 1e9),
    "last_level_cache_mb": ("last_level_cache_bytes", 2**20),
    "memory_gb": ("memory_bytes", 2**30),
    "memory_bandwidth_gb_s": ("memory_bytes_per_s", 1e9),
    "memory_bus_bits": ("memory_bus_bits", 1),
    "inline_ecc": ("inline_ecc", 1),
    "tdp_w": ("power_w", 1),
    "idle_power_w": ("idle_power_w", 1),
    "pcie_generation": ("pcie_generation", 1),
    "pcie_lanes": ("pcie_lane_count", 1),
    "gpus_per_card": ("gpus_per_card", 1),
    "scaleup_gb_s": ("scaleup_bytes_per_s", 1e9),
}
"""Keys of a GPU file beside peaks that may be changed in a GPU, all numbers but the warp's size: field of the spec, and
its base units in one of the file's."""

_SHORT_KEYS = {
    "mem_bw_gbs": "memory_bandwidth_gb_s",
    "mem_gb": "memory_gb",
    "clock_mhz": "boost_mhz",
    "power_w": "tdp_w",  # as the JSON has it
}

_MAKE_PEAKS = ("sm_count", "boost_mhz")
"""What every peak rate is the product of; that of vector lanes also of ``fp32_lanes_per_sm``."""


def changed_gpu(gpu: GpuSpec, changes: Mapping[str, float], where: str) -> GpuSpec:
    """``gpu`` with other figures, by the keys and in the units of a GPU file; ``where`` stands before complaints.

    More units or another clock scale every peak rate that is not given itself, more lanes of a unit those of vector
    lanes: FP32's, and the others' of a GPU without matrix units. Quicker memory draws no more power with
    nothing to do, unless that is given: the change is one of bandwidth alone. Raises SpecError for an unknown key, an
    impossible figure, or peak rates that no longer go with units and clock.
    """
    known = {key.name: key for key in NUMBER_KEYS if key.name in FIELDS or key.name in PEAK_KEYS}
    fields: dict[str, float | int] = {}
    peaks = dict(gpu.peak_flops_per_s)
    scale = lanes_scale = 1.0
    given: dict[str, float] = {}
    for written, value in changes.items():
        key = _SHORT_KEYS.get(written, written)
        if key not in known:
            from difflib import get_close_matches  # only on this way out

            names = tuple(dict.fromkeys((*known, *_SHORT_KEYS)))
            near = [name for name, (field, _) in FIELDS.items() if field == written]  # the JSON's, in other units
            near += [name for name in names if written and name.startswith(written)]
            near += get_close_matches(written[:60], names, n=1, cutoff=0.5)
            hint = f"'{near[0]}' is the nearest that is known" if near else f"known are {', '.join(names)}"
            raise SpecError(f"{where}: a GPU has no key {quoted(written)}: {hint}")
        if key in given:
            raise SpecError(f"{where}: '{key}' is changed twice; keep one")
        number = number_of(known[key], int(value) if known[key].whole and value == int(value) else value, where)
        given[key] = number
        if key in PEAK_KEYS:
            continue
        field, unit = FIELDS[key]
        before = getattr(gpu, field)
        if key in _MAKE_PEAKS:
            scale *= number * unit / before
        if key == "fp32_lanes_per_sm":
            lanes_scale = number / before
        fields[field] = round(number * unit) if known[key].whole or isinstance(before, int) else number * unit
    if "memory_bandwidth_gb_s" in given and idle_follows_memory(gpu):
        fields.setdefault("idle_power_w", idle_w(gpu))
    on_lanes = {"fp32", *(["int8"] if gpu.int8_on_lanes else [])} if gpu.has_matrix_units else set(peaks)
    peaks = {pipe: rate * scale * (lanes_scale if pipe in on_lanes else 1.0) for pipe, rate in peaks.items()}
    peaks |= {PEAK_KEYS[key]: number * 1e12 for key, number in given.items() if key in PEAK_KEYS}
    changed = replace(gpu, **fields, peak_flops_per_s=peaks)  # type: ignore[arg-type]  # fields and values are those of FIELDS
    if changed.halves_fp32_sums != gpu.halves_fp32_sums:  # the rate of INT8 is another, how FP16 is summed is not
        changed = replace(changed, stated_to_halve=gpu.halves_fp32_sums)
    check_fp32_peak(
        {
            "sm_count": changed.sm_count,
            "fp32_lanes_per_sm": changed.fp32_lanes_per_sm,
            "boost_mhz": changed.clock_hz / 1e6,
            "fp32_tflops": changed.peak_flops_per_s["fp32"] / 1e12,
        },
        where,
    )
    if "compute_capability" in given:
        check_capability(given["compute_capability"], gpu.vendor, where)
        check_dense_peaks(
            {
                "compute_capability": given["compute_capability"],
                "sm_count": changed.sm_count,
                "boost_mhz": changed.clock_hz / 1e6,
                **{key: peaks[pipe] / 1e12 for key, pipe in PEAK_KEYS.items() if pipe in peaks},
            },
            changed.architecture,
            where,
        )
    if "idle_power_w" in given or gpu.idle_power_w is not None:
        check_idle_power(changed.idle_power_w, changed.power_w, where)
    if "tdp_w" in given:
        check_power(changed.peak_flops_per_s["fp32"] / 1e12, changed.power_w, where)
    if "l2_bandwidth_gb_s" in given:
        check_l2_bandwidth(given["l2_bandwidth_gb_s"], changed.memory_bytes_per_s / 1e9, where)
    said = ", ".join(f"{key}={number:g}" for key, number in given.items())
    return replace(
        changed, name=f"{gpu.name} with {said}", label=f"{gpu.label} with {said}", aliases=(), device_names=()
    )
