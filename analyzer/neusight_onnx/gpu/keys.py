"""The keys of a GPU file: what each means, and between which values it is believable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neusight_onnx.errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberKey:
    """A key of a GPU file that holds a number: what it means, and between which values it is believable.

    The range catches slips of the unit (a clock in GHz or Hz); it is wide enough for GPUs that don't exist yet.
    """

    name: str
    meaning: str
    low: float
    high: float
    whole: bool = False
    required: bool = False


NUMBER_KEYS: tuple[NumberKey, ...] = (
    NumberKey(name="compute_capability", meaning="CUDA compute capability, such as 8.9 (of sm_89),", low=3, high=29),
    NumberKey(name="process_nm", meaning="process node in nm", low=0.5, high=60, required=True),
    NumberKey(name="sm_count", meaning="SMs or compute units", low=1, high=4096, whole=True, required=True),
    NumberKey(name="fp32_lanes_per_sm", meaning="FP32 lanes per SM", low=8, high=1024, whole=True, required=True),
    NumberKey(name="boost_mhz", meaning="boost clock in MHz", low=100, high=10_000, required=True),
    NumberKey(name="warp_size", meaning="threads in a warp or wave", low=32, high=64, whole=True, required=True),
    NumberKey(name="max_threads_per_sm", meaning="resident threads", low=64, high=16_384, whole=True, required=True),
    NumberKey(name="register_file_kb_per_sm", meaning="register file in KB", low=16, high=8192),
    NumberKey(name="shared_memory_kb_per_sm", meaning="shared memory (LDS) in KB", low=8, high=8192),
    NumberKey(name="l1_kb_per_sm", meaning="L1 cache in KB", low=4, high=8192),
    NumberKey(name="l2_mb", meaning="L2 cache in MB", low=0.125, high=8192, required=True),
    NumberKey(name="l2_bandwidth_gb_s", meaning="L2 bandwidth in GB/s", low=10, high=1e6),
    NumberKey(name="last_level_cache_mb", meaning="memory-side cache in MB", low=1, high=65_536),
    NumberKey(name="memory_gb", meaning="device memory in GB", low=0.25, high=16_384, required=True),
    NumberKey(name="memory_bandwidth_gb_s", meaning="memory bandwidth in GB/s", low=5, high=200_000, required=True),
    NumberKey(name="memory_bus_bits", meaning="width of the memory bus in bits", low=16, high=131_072, whole=True),
    NumberKey(name="inline_ecc", meaning="ECC among the data of GDDR (1: on)", low=0, high=1, whole=True),
    NumberKey(name="tdp_w", meaning="power limit in W", low=2, high=10_000, required=True),
    NumberKey(name="idle_power_w", meaning="power with clocks up and nothing to do in W", low=0.1, high=10_000),
    NumberKey(name="pcie_generation", meaning="PCIe generation", low=1, high=12),
    NumberKey(name="pcie_lanes", meaning="PCIe lanes", low=1, high=64, whole=True),
    NumberKey(name="gpus_per_card", meaning="such GPUs on one card or module", low=1, high=64, whole=True),
    NumberKey(name="scaleup_gb_s", meaning="link to other GPUs in GB/s, per direction", low=1, high=100_000),
    NumberKey(name="fp32_tflops", meaning="FP32 peak of the vector lanes", low=0.05, high=1e5, required=True),
    NumberKey(name="fp32_matrix_tflops", meaning="FP32 peak of the matrix cores", low=0.05, high=1e6),
    NumberKey(name="tf32_tflops", meaning="dense TF32 peak", low=0.05, high=1e6),
    NumberKey(name="fp16_tflops", meaning="dense FP16 peak, accumulating in FP32", low=0.05, high=1e6),
    NumberKey(name="fp16_accumulate_tflops", meaning="dense FP16 peak, accumulating in FP16", low=0.05, high=1e6),
    NumberKey(name="bf16_tflops", meaning="dense BF16 peak, accumulating in FP32", low=0.05, high=1e6),
    NumberKey(name="fp8_tflops", meaning="dense FP8 peak, accumulating in FP32", low=0.05, high=1e6),
    NumberKey(name="int8_tops", meaning="dense INT8 peak", low=0.05, high=1e6),
    NumberKey(name="fp4_tflops", meaning="dense FP4 peak", low=0.05, high=1e6),
)

TEXT_KEYS: Mapping[str, str] = {
    "label": "the name for people",
    "vendor": "NVIDIA or AMD",
    "architecture": "such as Ampere or CDNA2",
    "memory_type": "such as HBM3 or GDDR6",
}
"""Keys that hold a text; all but ``label`` are required (it defaults to the file's name)."""

LIST_KEYS = ("aliases", "device_names", "sources", "notes")
"""Keys that hold a list of texts; all may be left out."""

PEAK_KEYS: Mapping[str, str] = {
    "fp32_tflops": "fp32",
    "fp32_matrix_tflops": "fp32_matrix",
    "tf32_tflops": "tf32",
    "fp16_tflops": "fp16",
    "fp16_accumulate_tflops": "fp16_accumulate",
    "bf16_tflops": "bf16",
    "fp8_tflops": "fp8",
    "int8_tops": "int8",
    "fp4_tflops": "fp4",
}
"""Key of a peak rate in the file -> its key in ``GpuSpec.peak_flops_per_s``."""

VENDORS: Mapping[str, tuple[int, ...]] = {"NVIDIA": (32,), "AMD": (32, 64)}
"""Makers whose GPUs there are laws for -> threads of a warp (NVIDIA) or wave (AMD: 32 on RDNA, 64 on GCN and CDNA)."""

_MAX_TEXT_LENGTH = 2000


def quoted(value: object, limit: int = 60) -> str:
    """One printable line, at most so long."""
    text = ascii(value)
    return text if len(text) <= limit else f"{text[: limit - 4]}...'"


def check_keys(table: Mapping[str, object], where: str) -> None:
    known = {key.name: key.meaning for key in NUMBER_KEYS} | dict(TEXT_KEYS) | dict.fromkeys(LIST_KEYS, "")
    required = [key for key in TEXT_KEYS if key != "label"] + [key.name for key in NUMBER_KEYS if key.required]
    missing = [key for key in required if key not in table]
    for key in table:
        if key not in known:
            from difflib import get_close_matches  # only on this way out

            # a slip of the pen leaves a required key missing: that one is meant rather than a nearer one
            close = get_close_matches(key[:100], missing, n=1, cutoff=0.6)
            close = close or get_close_matches(key[:100], known, n=1, cutoff=0.5)
            hint = f"'{close[0]}' is the nearest known key; " if close else ""
            raise SpecError(f"{where}: unknown key {quoted(key)}: {hint}rename or remove it")
    if missing:
        first = f"key '{missing[0]}' ({known[missing[0]]}) is missing"
        others = f", and so are {', '.join(missing[1:])}" if missing[1:] else ""
        raise SpecError(f"{where}: {first}{others}; add what the datasheet says")


def number_of(key: NumberKey, value: object, where: str) -> float:
    kind = "a whole number" if key.whole else "a number"
    wanted = f"give {key.meaning} as {kind} from {key.low:g} to {key.high:g}"
    if isinstance(value, bool) or not isinstance(value, int if key.whole else int | float):
        raise SpecError(f"{where}: key '{key.name}' is {quoted(value)}: {wanted}")
    assert isinstance(value, int | float)
    if not key.low <= value <= key.high:  # false for NaN, too
        raise SpecError(f"{where}: key '{key.name}' is {quoted(value)}: {wanted}")
    return value


def text_of(key: str, value: object, where: str) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable() or len(value) > _MAX_TEXT_LENGTH:
        meaning = TEXT_KEYS.get(key, "a text")
        raise SpecError(f"{where}: key '{key}' is {quoted(value)}: give one line of text ({meaning})")
    return value


def texts_of(key: str, value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise SpecError(f"{where}: key '{key}' is {quoted(value)}: give a list of texts")
    return tuple(text_of(key, entry, where) for entry in value)


def vendor_of(text: str, where: str) -> str:
    """The maker as :data:`VENDORS` writes it; laws and libraries' tiles are known for those."""
    for vendor in VENDORS:
        if text.casefold() == vendor.casefold():
            return vendor
    raise SpecError(f"{where}: key 'vendor' is {quoted(text)}: give NVIDIA or AMD, the makers that predictions are for")
