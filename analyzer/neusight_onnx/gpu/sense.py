"""Whether the figures of a GPU go together: peaks with units and clock, bandwidth with memory, power with both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neusight_onnx.errors import SpecError
from neusight_onnx.gpu.generation import NEWEST_KNOWN
from neusight_onnx.gpu.keys import PEAK_KEYS, VENDORS
from neusight_onnx.gpu.spec import GpuSpec, plain_architecture

FP32_PEAK_TOLERANCE = 2.2
"""AMD's datasheets count dual-issued or packed FP32 twice; more than that is a slip. NVIDIA's count no lane twice: half
the lanes that a generation has (64 for 128) are a slip there."""

LEAST_FP32_SHARE = 0.7
"""A file whose peak is less of what its units and clock give has a figure of another GPU in it; one at the
base clock is within. Those that are shipped have 0.97 to 1.08."""

_MOST_FP32_TFLOPS_PER_W = 0.85
"""Twice what the thriftiest that is shipped has (L4: 30.3 TFLOP/s within 72 W); its least limit is 40 W."""

_DENSE_BY_CAPABILITY: Mapping[float, Mapping[str, int]] = {
    3.0: {},
    3.2: {},
    3.5: {},
    3.7: {},
    5.0: {},
    5.2: {},
    5.3: {},
    6.0: {},
    6.1: {"int8": 1024},
    6.2: {"int8": 1024},
    7.0: {"fp16": 1024, "int8": 512},
    7.2: {"fp16": 1024, "int8": 2048},
    7.5: {"fp16": 1024, "int8": 2048},
    8.0: {"tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096},
    8.6: {"tf32": 512, "fp16": 1024, "bf16": 1024, "int8": 2048},
    8.7: {"tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096},
    8.8: {"tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096},
    8.9: {"tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048},
    9.0: {"tf32": 2048, "fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192},
    10.0: {"tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16_384, "int8": 16_384, "fp4": 32_768},
    10.1: {"tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16_384, "int8": 16_384, "fp4": 32_768},
    10.3: {"tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16_384, "int8": 16_384, "fp4": 49_152},
    11.0: {"tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16_384, "int8": 16_384, "fp4": 32_768},
    12.0: {"tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048, "fp4": 4096},
    12.1: {"tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048, "fp4": 4096},
}

_DENSE_BY_ARCHITECTURE: Mapping[str, Mapping[str, int]] = {
    "cdna": {"fp32_matrix": 256, "fp16": 1024, "bf16": 512, "int8": 1024},
    "cdna2": {"fp32_matrix": 256, "fp16": 1024, "bf16": 1024, "int8": 1024},
    "cdna3": {"fp32_matrix": 256, "tf32": 1024, "fp16": 2048, "bf16": 2048, "fp8": 4096, "int8": 4096},
    "cdna4": {"fp32_matrix": 256, "fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192, "fp4": 16_384},
    "rdna3": {"fp16": 512, "bf16": 512, "int8": 512},
}
"""Most dense operations a clock of one SM or compute unit, by generation: the vendors' white papers
(``tests/test_gpu.py`` holds the shipped GPUs against them). GeForce cards have half of some. Those of no shipped GPU
are all others that NVIDIA has made (CUDA's list of compute capabilities), from general knowledge: 7.2 is Xavier's,
8.8 taken for Orin's 8.7, 10.1 and 11.0 Thor's (1,035 TFLOP/s in FP4 by 20 SMs at 1.57 GHz), 12.1 the GB10's (500 by 48
at 2.5)."""


def formats_of(gpu: GpuSpec) -> frozenset[str]:
    """The number formats that matrix units of a GPU's generation have, whatever peaks its file states; none where the
    generation isn't known. What comes after the known ones has all that the newest has."""
    if gpu.compute_capability is None:
        return frozenset(_DENSE_BY_ARCHITECTURE.get(plain_architecture(gpu.architecture), ()))
    return frozenset(_DENSE_BY_CAPABILITY.get(min(gpu.compute_capability, NEWEST_KNOWN), ()))


MOST_OF_DENSE = 1.4
"""A peak above this share of units x rate x boost clock is no dense one. Vendors compute with clocks of .87 (H100 NVL)
to 1 of the boost; a figure for sparse matrices is twice the dense one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryKind:
    """What a kind of memory can do: Gbit/s of a pin from the slowest to the fastest, bits of one device (a chip, a
    stack of HBM), the most GB behind these, and bits of the widest bus that there may be."""

    slowest: float
    fastest: float
    device_bits: int
    device_gb: float
    widest_bits: int


_MEMORY_KINDS: Mapping[str, MemoryKind] = {
    "gddr5": MemoryKind(slowest=4, fastest=9, device_bits=32, device_gb=2, widest_bits=512),
    "gddr5x": MemoryKind(slowest=10, fastest=14, device_bits=32, device_gb=2, widest_bits=512),
    "gddr6": MemoryKind(slowest=10, fastest=24, device_bits=32, device_gb=4, widest_bits=512),
    "gddr6x": MemoryKind(slowest=19, fastest=24, device_bits=32, device_gb=4, widest_bits=512),
    "gddr7": MemoryKind(slowest=18.1, fastest=48, device_bits=32, device_gb=6, widest_bits=512),
    "hbm2": MemoryKind(slowest=1.4, fastest=2.5, device_bits=1024, device_gb=8, widest_bits=8192),
    "hbm2e": MemoryKind(slowest=2.4, fastest=3.6, device_bits=1024, device_gb=24, widest_bits=8192),
    "hbm3": MemoryKind(slowest=4.8, fastest=6.4, device_bits=1024, device_gb=32, widest_bits=16_384),
    "hbm3e": MemoryKind(slowest=5.6, fastest=9.8, device_bits=1024, device_gb=48, widest_bits=16_384),
    "hbm4": MemoryKind(slowest=6.4, fastest=13, device_bits=2048, device_gb=64, widest_bits=65_536),
    "lpddr4x": MemoryKind(slowest=3.2, fastest=4.3, device_bits=32, device_gb=8, widest_bits=512),
    "lpddr5": MemoryKind(slowest=4.2, fastest=8.6, device_bits=32, device_gb=16, widest_bits=1024),
    "lpddr5x": MemoryKind(slowest=6.4, fastest=10.7, device_bits=32, device_gb=16, widest_bits=1024),
}
"""Rates and sizes of the standards (JEDEC's JESD212 GDDR5, JESD232 GDDR5X, JESD250 GDDR6, JESD239 GDDR7, JESD235 HBM2
and HBM2E, JESD238 HBM3, JESD270 HBM4, JESD209 LPDDR; Micron's GDDR6X), HBM3E's of its makers, from general knowledge;
the slowest are those of cards on the market. GDDR's GB count two chips on the same 32 bits. Memory of any other name
isn't held against anything."""

_SLACK_OVER_BUS = 3.0
"""Lets through half and twice a GPU's bandwidth, which people try out, but no slip of the point, which is tenfold, and
no bits for bytes: the fastest of a kind is less than 8/3 of the slowest."""

_SLACK = 1.6
"""The same where the bus isn't stated, whose possible widths are slack already."""


def check_vendor_keys(vendor: str, number: Mapping[str, float], where: str) -> None:
    """What a maker's GPUs can't have."""
    warp_size = number["warp_size"]
    if warp_size not in VENDORS[vendor]:
        sizes = " or ".join(map(str, VENDORS[vendor]))
        raise SpecError(f"{where}: key 'warp_size' is {warp_size:g}: a GPU by {vendor} has {sizes} threads; correct it")
    if vendor == "NVIDIA" and "compute_capability" not in number:
        raise SpecError(
            f"{where}: key 'compute_capability' is missing: it decides which tiles NVIDIA's libraries choose; "
            "give the GPU's own, or for a GPU on paper that of the generation it resembles (9.0 is Hopper's)"
        )
    if "compute_capability" in number:
        check_capability(number["compute_capability"], vendor, where)


def check_capability(capability: float, vendor: str, where: str) -> None:
    """Only NVIDIA's GPUs have one; among the generations that are known there is none but these, one after them may be
    anything."""
    if vendor != "NVIDIA":
        raise SpecError(f"{where}: key 'compute_capability' is {capability:g}: only GPUs by NVIDIA have one; remove it")
    if capability in _DENSE_BY_CAPABILITY or capability > NEWEST_KNOWN:
        return
    known = ", ".join(f"{each:.1f}" for each in sorted(_DENSE_BY_CAPABILITY))
    raise SpecError(
        f"{where}: key 'compute_capability' is {capability:g}, which no GPU has: there are {known}; for a GPU on paper "
        f"give that of the generation it resembles, or one above {NEWEST_KNOWN:.1f}"
    )


def check_fp32_peak(
    number: Mapping[str, float],
    where: str,
    *,
    least: float = 1 / FP32_PEAK_TOLERANCE,
    most: float = FP32_PEAK_TOLERANCE,
) -> None:
    """A multiply-add a clock on each lane is what makes the FP32 peak; a figure far from it is for something else."""
    lanes = number["sm_count"] * number["fp32_lanes_per_sm"]
    computed_tflops = lanes * 2 * number["boost_mhz"] * 1e6 / 1e12
    ratio = number["fp32_tflops"] / computed_tflops
    if not least <= ratio <= most:
        raise SpecError(
            f"{where}: key 'fp32_tflops' is {number['fp32_tflops']:g}, but sm_count x fp32_lanes_per_sm x 2 x boost_mhz"
            f" gives {computed_tflops:.4g}: correct whichever is wrong (fp32_tflops counts the vector lanes only)"
        )


def check_power(fp32_tflops: float, tdp_w: float, where: str) -> None:
    """Arithmetic takes energy: a limit that the peak is far beyond lacks a digit."""
    least = fp32_tflops / _MOST_FP32_TFLOPS_PER_W
    if tdp_w < least:
        raise SpecError(
            f"{where}: key 'tdp_w' is {tdp_w:g}, but {fp32_tflops:g} TFLOP/s in FP32 take {least:.3g} W at the very "
            "least: give the power limit in W"
        )


def check_idle_power(idle_power_w: float | None, tdp_w: float, where: str) -> None:
    """With nothing to do a card stays below its limit."""
    if idle_power_w is not None and idle_power_w >= tdp_w:
        raise SpecError(
            f"{where}: key 'idle_power_w' is {idle_power_w:g}, but the power limit 'tdp_w' is {tdp_w:g}: give what the "
            "card draws with nothing to do, or leave it out"
        )


def check_bandwidth(number: Mapping[str, float], memory_type: str, where: str) -> None:
    """The bandwidth is the width of the bus times a pin's rate; without the width, between what the kind of memory does
    over the narrowest bus that such a memory needs and over the widest one."""
    kind = _MEMORY_KINDS.get(memory_type.casefold())
    if kind is None:
        return
    gbit_per_s = 8 * number["memory_bandwidth_gb_s"]
    bits = number.get("memory_bus_bits")
    narrowest = kind.device_bits * max(1.0, number["memory_gb"] / kind.device_gb)
    slack = _SLACK_OVER_BUS if bits else _SLACK
    least = kind.slowest / slack * (bits or narrowest)
    most = kind.fastest * slack * (bits or kind.widest_bits)
    if least <= gbit_per_s <= most:
        return
    over = f"over memory_bus_bits = {bits:g}" if bits else f"with {number['memory_gb']:g} GB"
    raise SpecError(
        f"{where}: key 'memory_bandwidth_gb_s' is {number['memory_bandwidth_gb_s']:g}, but {memory_type} {over} does "
        f"about {least / 8:.0f} to {most / 8:.0f} GB/s ({kind.slowest:g} to {kind.fastest:g} Gbit/s a pin): correct "
        "whichever is wrong, or give a GPU on paper a memory_type of its own, such as 'HBM9'"
    )


def check_l2_bandwidth(l2_gb_s: float, memory_gb_s: float, where: str) -> None:
    """All that is read from memory goes through the L2, which therefore is the faster of the two on every GPU."""
    if l2_gb_s < memory_gb_s:
        raise SpecError(
            f"{where}: key 'l2_bandwidth_gb_s' is {l2_gb_s:g} and 'memory_bandwidth_gb_s' {memory_gb_s:g}, but "
            "whatever memory delivers passes the L2, which is no slower on any GPU: correct it, or leave it out (it "
            "then follows from SMs and clock)"
        )


def check_dense_peaks(number: Mapping[str, float], architecture: str, where: str) -> None:
    """Peaks of matrix units against what a known generation's can do dense; vendors print the sparse figure as well."""
    capability = number.get("compute_capability")
    if capability is None:
        rates = _DENSE_BY_ARCHITECTURE.get(plain_architecture(architecture))
        generation = f"of {architecture}"
    else:
        rates = _DENSE_BY_CAPABILITY.get(capability)
        generation = f"of compute capability {capability:g}"
    for key, pipe in PEAK_KEYS.items():
        if key not in number or pipe == "fp32" or rates is None:
            continue
        unit = "fp16" if pipe == "fp16_accumulate" else pipe
        if unit not in rates:
            raise SpecError(
                f"{where}: key '{key}' is {number[key]:g}, but units {generation} have no instructions for this format:"
                " remove it, or correct the generation"
            )
        dense = number["sm_count"] * rates[unit] * number["boost_mhz"] * 1e6 / 1e12
        if number[key] > MOST_OF_DENSE * dense:
            raise SpecError(
                f"{where}: key '{key}' is {number[key]:g}, but {number['sm_count']:g} units {generation} at boost_mhz "
                f"do {dense:.4g} at most: give the dense peak (figures for sparse matrices are twice as high), or "
                "correct units, clock or generation"
            )
    _check_ratios(number, where)


_LEAST_RATIO = 1.5

_WIDER_THAN: Mapping[str, str] = {
    "fp16_tflops": "tf32_tflops",
    "fp8_tflops": "fp16_tflops",
    "fp4_tflops": "fp8_tflops",
}
"""Format -> the one of twice its bits, at half its rate (TF32 and FP8 to FP4 also less) on all units that have both."""

_WITH_FP16 = ("fp16_accumulate_tflops", "bf16_tflops", "tf32_tflops", "fp8_tflops", "fp4_tflops")
"""Formats that no unit has without FP16: the first matrix units had it alone (Volta), the others came later. 8-bit
integers don't say so: a P4 multiplies them without."""

_MOST_OF_HALVED = 2.2
"""FP16 that accumulates in FP16 over the same in FP32: 2 on GeForce cards, else 1, and what rounding leaves."""


def _check_ratios(number: Mapping[str, float], where: str) -> None:
    """Peaks against each other, in any generation: one that is sparse among dense ones stands out."""
    advice = "give dense peaks that accumulate in FP32 (figures for sparse matrices are twice as high)"
    for key, wider in _WIDER_THAN.items():
        if key in number and wider in number and number[key] < _LEAST_RATIO * number[wider]:
            raise SpecError(
                f"{where}: key '{wider}' is {number[wider]:g} and '{key}' {number[key]:g}, but matrix units do twice "
                f"as many operations of half the bits: {advice}"
            )
    summed = number.get("fp16_accumulate_tflops")
    for key in _WITH_FP16:
        if key in number and "fp16_tflops" not in number:
            raise SpecError(
                f"{where}: key '{key}' is {number[key]:g}, and 'fp16_tflops', the dense peak that accumulates in FP32, "
                "is missing: add what the datasheet says, as all units that have the one format have the other"
            )
    if summed is not None and not 1.0 <= summed / number["fp16_tflops"] <= _MOST_OF_HALVED:
        raise SpecError(
            f"{where}: key 'fp16_accumulate_tflops' is {summed:g} and 'fp16_tflops' {number['fp16_tflops']:g}, but "
            "FP16 that accumulates in FP16 is as fast as in FP32, or twice as fast (GeForce): give dense peaks of both"
        )
    if "fp16_tflops" in number and number.get("bf16_tflops", 0.0) > MOST_OF_DENSE * number["fp16_tflops"]:
        raise SpecError(
            f"{where}: key 'bf16_tflops' is {number['bf16_tflops']:g} and 'fp16_tflops' {number['fp16_tflops']:g}, but "
            f"no matrix unit does more in bfloat16: {advice}"
        )
