"""GpuSpec: what is known of a GPU. Files hold datasheet units; in here everything is in base units.

A GPU is one TOML file in ``specs/``: its name is the file's name, its other names stand in ``aliases`` and
``device_names``. A user's own file has the same keys (``specs/README.md`` lists them).
"""

from __future__ import annotations

import re
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os.path import commonprefix
from pathlib import Path

from neusight_onnx.data_files import data_folder
from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import SpecError
from neusight_onnx.gpu_names import also_named, gibibytes, gpu_of_instance, name_key, plain_words, with_words, words


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """One GPU (one die where a card carries several and software sees each as a device).

    Rates are dense peaks at the boost clock. ``peak_flops_per_s`` is keyed by the number format of the
    *pipe*: "fp32" (vector lanes), "fp32_matrix" (AMD's matrix cores in FP32), "tf32", "fp16", "bf16", "fp8",
    "int8", "fp4"; a format that the GPU lacks is absent. ``fp16``, ``bf16`` and ``fp8`` accumulate in FP32;
    "fp16_accumulate" is FP16 accumulating in FP16, where a file states it (:attr:`fp16_accumulate_flops_per_s`).
    ``sm_count`` counts SMs (NVIDIA) or compute units (AMD).
    ``shared_memory_bytes_per_sm`` and others may be None where no source states them.
    ``l1_bytes_per_sm`` is the capacity of the L1 cache, on NVIDIA since Volta shared with shared memory.
    ``last_level_cache_bytes``: a memory-side cache behind the L2 (AMD's Infinity Cache).
    ``memory_bus_bits``: width of the bus to memory; with HBM it tells how fast one of its channels is.
    ``device_names`` are what ``nvidia-smi`` and PyTorch print. ``name`` is the canonical name, ``label`` for people.
    ``asked_as`` is the name that it was asked by where that isn't its alone: ``also_named`` are the GPUs that may be
    meant as well ("v100"); without any, it is that of a machine that a cloud rents, with one such GPU or several.
    """

    name: str
    label: str
    vendor: str
    architecture: str
    compute_capability: float | None
    process_nm: float
    sm_count: int
    fp32_lanes_per_sm: int
    clock_hz: float
    warp_size: int
    memory_bytes: int
    memory_type: str
    memory_bytes_per_s: float
    l2_bytes: int
    l1_bytes_per_sm: int | None
    shared_memory_bytes_per_sm: int | None
    register_bytes_per_sm: int | None
    max_threads_per_sm: int
    power_w: float
    peak_flops_per_s: Mapping[str, float]
    l2_bytes_per_s: float | None = None
    last_level_cache_bytes: int | None = None
    memory_bus_bits: int | None = None
    scaleup_bytes_per_s: float | None = None
    pcie_generation: float | None = None
    pcie_lane_count: int | None = None
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    device_names: tuple[str, ...] = ()
    asked_as: str | None = field(default=None, compare=False)
    also_named: tuple[str, ...] = field(default=(), compare=False)

    def peak(self, dtype: DataType) -> float:
        """FLOP/s of the plain (vector, IEEE) pipe for ``dtype``: FP32 lanes for every type without its own."""
        return self.peak_flops_per_s["fp32"] if dtype is not DataType.FLOAT64 else self.peak_flops_per_s["fp32"] / 2

    @property
    def halves_fp32_sums(self) -> bool:
        """Whether matrix units run FP16 at half their rate where they accumulate in FP32: GeForce cards of NVIDIA's.

        They are told by a rate of FP16 that is a quarter of the 8-bit integers', where all others have half of it.
        """
        peaks = self.peak_flops_per_s
        return self.compute_capability is not None and peaks.get("int8", 0.0) > 3.0 * peaks.get("fp16", float("inf"))

    @property
    def fp16_accumulate_flops_per_s(self) -> float | None:
        """Dense peak of FP16 that accumulates in FP16; None without matrix units for FP16.

        What the file states, else that of FP32 sums, twice of it where those are halved: NVIDIA's white papers of
        Turing, GA102 (RTX 3090: 142 and 71 TFLOPS), Ada (RTX 4090: 330.3 and 165.2) and RTX Blackwell (RTX 5090: 419
        and 209.5) state both. On all other cards the two are alike.
        """
        peaks = self.peak_flops_per_s
        if "fp16_accumulate" in peaks or "fp16" not in peaks:
            return peaks.get("fp16_accumulate")
        return peaks["fp16"] * (2.0 if self.halves_fp32_sums else 1.0)


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
    NumberKey(name="tdp_w", meaning="power limit in W", low=2, high=10_000, required=True),
    NumberKey(name="pcie_generation", meaning="PCIe generation", low=1, high=12),
    NumberKey(name="pcie_lanes", meaning="PCIe lanes", low=1, high=64, whole=True),
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

_MAX_FILE_BYTES = 1 << 20  # a GPU file takes 2 KB
_MAX_TEXT_LENGTH = 2000
_FP32_PEAK_TOLERANCE = 2.2
"""AMD's datasheets count dual-issued or packed FP32 twice; more than that is a slip. NVIDIA's count no lane twice: half
the lanes that a generation has (64 for 128) are a slip there."""
_LEAST_FP32_SHARE = 0.7
"""A file whose peak is less of what its units and clock give has a figure of another GPU in it; one at the
base clock is within. Those that are shipped have 0.97 to 1.08."""
_MOST_FP32_TFLOPS_PER_W = 0.85
"""Twice what the thriftiest that is shipped has (L4: 30.3 TFLOP/s within 72 W); its least limit is 40 W."""


_DENSE_BY_CAPABILITY: Mapping[float, Mapping[str, int]] = {
    6.0: {},
    6.1: {"int8": 1024},
    7.0: {"fp16": 1024},
    7.5: {"fp16": 1024, "int8": 2048},
    8.0: {"tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096},
    8.6: {"tf32": 512, "fp16": 1024, "bf16": 1024, "int8": 2048},
    8.7: {"tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096},
    8.9: {"tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048},
    9.0: {"tf32": 2048, "fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192},
    10.0: {"tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16_384, "int8": 16_384, "fp4": 32_768},
    10.3: {"tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16_384, "int8": 16_384, "fp4": 49_152},
    12.0: {"tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048, "fp4": 4096},
}
_DENSE_BY_ARCHITECTURE: Mapping[str, Mapping[str, int]] = {
    "cdna": {"fp32_matrix": 256, "fp16": 1024, "bf16": 512, "int8": 1024},
    "cdna2": {"fp32_matrix": 256, "fp16": 1024, "bf16": 1024, "int8": 1024},
    "cdna3": {"fp32_matrix": 256, "tf32": 1024, "fp16": 2048, "bf16": 2048, "fp8": 4096, "int8": 4096},
    "cdna4": {"fp32_matrix": 256, "fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192, "fp4": 16_384},
    "rdna3": {"fp16": 512, "bf16": 512, "int8": 512},
}
"""Most dense operations a clock of one SM or compute unit, by generation: the vendors' white papers
(``tests/test_gpu.py`` holds the shipped GPUs against them). GeForce cards have half of some."""
_MOST_OF_DENSE = 1.4
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


def load_gpu(name_or_path: str | Path) -> GpuSpec:
    """The GPU of this name, or the one that a TOML file describes.

    Names are canonical ones (``a100-sxm-80gb``), aliases (``a100``) and what nvidia-smi and PyTorch print
    ("NVIDIA A100-SXM4-80GB"). Case, spaces, hyphens, underscores, "(TM)" and a leading maker's name or
    brand (NVIDIA, Tesla, GeForce, AMD, Instinct, Radeon) make no difference. A ``Path``, a text that ends in
    ``.toml``, and one with a path separator that is no GPU's name are files.

    Raises SpecError: no such GPU (names the nearest ones), or a file that can't be read, lacks a key, has an
    unknown one, or a value that can't be.
    """
    if isinstance(name_or_path, Path) or name_or_path.lower().endswith(".toml"):
        return _read_own(Path(name_or_path))
    found = _find(name_or_path)
    if found is not None:
        return found
    if "/" in name_or_path or "\\" in name_or_path:
        return _read_own(Path(name_or_path))
    raise SpecError(_unknown_name(name_or_path))


def available_gpus() -> tuple[GpuSpec, ...]:
    """All shipped GPUs, ordered by name."""
    return tuple(_read_spec(path) for path in _spec_files())


def gpu_names() -> tuple[str, ...]:
    """The canonical names of all shipped GPUs, in order."""
    return tuple(path.stem for path in _spec_files())


def find_gpus(text: str) -> tuple[GpuSpec, ...]:
    """The GPUs that ``text`` is the name of, or that have all of its words in names, maker and architecture, by name.

    "hopper", "rtx 6000" and "ada laptop" find several, a name or a TOML file one. Raises SpecError where none is found.
    """
    try:
        return (load_gpu(text),)
    except SpecError:
        wanted = plain_words(text)
        found = tuple(spec for spec in available_gpus() if wanted and wanted <= _all_words(spec))
        if not found:
            raise
        return found


def _all_words(spec: GpuSpec) -> frozenset[str]:
    return plain_words(" ".join((*_names_of(spec), spec.vendor, spec.architecture)))


_FIELDS: Mapping[str, tuple[str, float]] = {
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
    "tdp_w": ("power_w", 1),
}
"""Keys of a GPU file that may be changed in a GPU: field of the spec, and its base units in one of the file's."""

_SHORT_KEYS = {"mem_bw_gbs": "memory_bandwidth_gb_s", "mem_gb": "memory_gb", "clock_mhz": "boost_mhz"}
_MAKE_PEAKS = ("sm_count", "fp32_lanes_per_sm", "boost_mhz")
"""What a peak rate is the product of."""


def changed_gpu(gpu: GpuSpec, changes: Mapping[str, float], where: str) -> GpuSpec:
    """``gpu`` with other figures, by the keys and in the units of a GPU file; ``where`` stands before complaints.

    More units or another clock scale every peak rate that is not given itself. Raises SpecError for an unknown key, an
    impossible figure, or peak rates that no longer go with units and clock.
    """
    known = {key.name: key for key in NUMBER_KEYS if key.name in _FIELDS or key.name in PEAK_KEYS}
    fields: dict[str, float | int] = {}
    peaks = dict(gpu.peak_flops_per_s)
    scale = 1.0
    given: dict[str, float] = {}
    for written, value in changes.items():
        key = _SHORT_KEYS.get(written, written)
        if key not in known:
            from difflib import get_close_matches  # only on this way out

            names = (*known, *_SHORT_KEYS)
            near = [name for name in names if written and name.startswith(written)]
            near += get_close_matches(written[:60], names, n=1, cutoff=0.5)
            hint = f"'{near[0]}' is the nearest that is known" if near else f"known are {', '.join(known)}"
            raise SpecError(f"{where}: a GPU has no key {_shown(written)}: {hint}")
        number = _number(known[key], int(value) if known[key].whole and value == int(value) else value, where)
        given[key] = number
        if key in PEAK_KEYS:
            continue
        field, unit = _FIELDS[key]
        before = getattr(gpu, field)
        if key in _MAKE_PEAKS:
            scale *= number * unit / before
        fields[field] = round(number * unit) if known[key].whole or isinstance(before, int) else number * unit
    peaks = {pipe: rate * scale for pipe, rate in peaks.items()}
    peaks |= {PEAK_KEYS[key]: number * 1e12 for key, number in given.items() if key in PEAK_KEYS}
    changed = replace(gpu, **fields, peak_flops_per_s=peaks)  # type: ignore[arg-type]  # fields and values are those of _FIELDS
    _check_fp32_peak(
        {
            "sm_count": changed.sm_count,
            "fp32_lanes_per_sm": changed.fp32_lanes_per_sm,
            "boost_mhz": changed.clock_hz / 1e6,
            "fp32_tflops": changed.peak_flops_per_s["fp32"] / 1e12,
        },
        where,
    )
    if "tdp_w" in given:
        _check_power(changed.peak_flops_per_s["fp32"] / 1e12, changed.power_w, where)
    said = ", ".join(f"{key}={number:g}" for key, number in given.items())
    return replace(
        changed, name=f"{gpu.name} with {said}", label=f"{gpu.label} with {said}", aliases=(), device_names=()
    )


# -- names ---------------------------------------------------------------------------------------------------

_NAMES_IN_FILE = re.compile(rb'^(?:label|aliases|device_names)\s*=\s*(\[[^\]]*\]|"[^"\n]*")', re.MULTILINE)
_QUOTED = re.compile(r'"([^"\n]*)"')


def _spec_files() -> list[Path]:
    folder = data_folder("specs")
    files = sorted(folder.glob("*.toml"), key=lambda path: path.stem)
    if not files:
        raise SpecError(f"no GPU files in {folder}: the installation is incomplete; reinstall neusight-onnx")
    return files


def _find(name: str) -> GpuSpec | None:
    """The shipped GPU of that name, or None; with the names of others that it may mean.

    Parses one file in most cases, found by its name or by a scan of the lines that hold names: parsing all
    of them takes some 0.1 s, and every analysis of a model starts here.
    """
    files = {path.stem: path for path in _spec_files()}
    spec = _find_words(words(name), files)
    if spec is not None:
        others = also_named(name, spec.name, files)
        return replace(spec, asked_as=_one_line(name), also_named=others) if others else spec
    rented = gpu_of_instance(name)
    return None if rented is None else replace(_read_spec(files[rented]), asked_as=_one_line(name))


def _one_line(name: str) -> str:
    return " ".join(name.split())


def _find_words(found: Sequence[str], files: Mapping[str, Path]) -> GpuSpec | None:
    """The GPU whose names have the key of these words; a memory's size behind a name that has none must be its own."""
    key = "".join(found)
    canonical = files.get("-".join(found))
    if canonical is not None:
        return _read_spec(canonical)
    for path in files.values():
        if name_key(path.stem) == key:
            return _read_spec(path)
    for path in files.values():
        if key in _keys_in_file(path):
            spec = _read_spec(path)
            if key in _keys_of(spec):
                return spec
    *rest, last = found or ("",)
    size = gibibytes(last)
    if size is None or not rest or gibibytes(rest[-1]) is not None:
        return None
    without = _find_words(rest, files)
    return without if without is not None and round(without.memory_bytes / 2**30) == size else None


def _keys_in_file(path: Path) -> Iterator[str]:
    """The keys of a file's names, read without parsing it."""
    for found in _NAMES_IN_FILE.findall(path.read_bytes()):
        for quoted in _QUOTED.findall(found.decode("utf-8", "replace")):
            yield name_key(quoted)


def _keys_of(spec: GpuSpec) -> Iterator[str]:
    for name in _names_of(spec):
        yield name_key(name)


def _names_of(spec: GpuSpec) -> tuple[str, ...]:
    return (spec.name, spec.label, *spec.aliases, *spec.device_names)


_MOST_NAMED = 6


def _unknown_name(name: str) -> str:
    from difflib import get_close_matches  # only on this way out

    several = [_find(part) for part in name.split(",")] if "," in name else []
    known = [spec.name for spec in several if spec is not None]
    if known and len(known) == len(several):
        return (
            f"unknown GPU {_shown(name)}: these are {len(known)} names; give one, or, where a command takes several, "
            "each by itself: --gpu " + " --gpu ".join(known[:4])
        )
    if "mig" in words(name):
        return (
            f"unknown GPU {_shown(name)}: a MIG instance is a part of a GPU; give a .toml file with the part's SMs, "
            "memory, bandwidth and peak rates, or the whole GPU's name"
        )
    fitting = with_words(name, gpu_names())
    if len(fitting) > 1:
        more = f" and {len(fitting) - _MOST_NAMED} more" if len(fitting) > _MOST_NAMED else ""
        return (
            f"unknown GPU {_shown(name)}: several are called so; give one of {', '.join(fitting[:_MOST_NAMED])}{more}"
        )
    canonical: dict[str, str] = {}
    for shipped in available_gpus():
        canonical |= dict.fromkeys(_keys_of(shipped), shipped.name)
    canonical |= {name_key(own): own for own in gpu_names()}
    wanted = name_key(name)[:100]
    close = get_close_matches(wanted, canonical, n=8, cutoff=0.5)
    # What begins alike comes first: a100 before h100 for a1000.
    close.sort(key=lambda key: len(commonprefix([key, wanted])), reverse=True)  # noqa: RUF071 - characters are meant
    nearest = list(dict.fromkeys(canonical[key] for key in close))[:3]
    hint = f"nearest are {', '.join(nearest)}; " if nearest else ""
    return f"unknown GPU {_shown(name)}: {hint}`neusight-onnx gpus` lists all; or give a .toml file"


def _shown(value: object, limit: int = 60) -> str:
    """One printable line, at most so long."""
    text = ascii(value)
    return text if len(text) <= limit else f"{text[: limit - 4]}...'"


# -- files ---------------------------------------------------------------------------------------------------


def _read_own(path: Path) -> GpuSpec:
    """A file that was given by its path. Outside ``specs/`` that is its only name: other ones, often left over from the
    file that it was copied from, would claim to be those of another GPU, so they are left out."""
    spec = _read_spec(path)
    if path.resolve().parent == data_folder("specs").resolve():
        return spec
    return replace(spec, aliases=(), device_names=())


def _read_spec(path: Path) -> GpuSpec:
    where = f"GPU file {_shown(str(path), 300)[1:-1]}"
    content = _read_file(path, where)
    try:
        table = tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise SpecError(f"{where}: not a text in UTF-8; write it as TOML (specs/README.md lists the keys)") from None
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, or a number of too many digits
        reason = " ".join(str(error).split())[:200]
        raise SpecError(f"{where}: not TOML ({reason}); correct it there") from None
    return _spec_of(path.stem, table, where)


def _read_file(path: Path, where: str) -> bytes:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise SpecError(f"{where}: is a folder; give a file in it")
        if not stat.S_ISREG(mode):
            raise SpecError(f"{where}: not a regular file; give a TOML file")
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise SpecError(
            f"{where}: no such file; check the path, or give a name that `neusight-onnx gpus` lists"
        ) from None
    except PermissionError:
        raise SpecError(f"{where}: no permission to read it; change its mode or give another file") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = (error.strerror if isinstance(error, OSError) else None) or "not a path"
        raise SpecError(f"{where}: can't be read ({reason}); give another file") from None
    if len(content) > _MAX_FILE_BYTES:
        raise SpecError(f"{where}: larger than 1 MB, so not the description of a GPU; give another file")
    return content


def _spec_of(name: str, table: Mapping[str, object], where: str) -> GpuSpec:
    """Checks every key and converts to base units; KB, MB and GB of memories are binary, as in datasheets."""
    _check_keys(table, where)
    number = {key.name: _number(key, table[key.name], where) for key in NUMBER_KEYS if key.name in table}
    text = {key: _text(key, table[key], where) for key in TEXT_KEYS if key in table}
    texts = {key: _texts(key, table[key], where) if key in table else () for key in LIST_KEYS}
    vendor = _vendor(text["vendor"], where)
    _check_vendor_keys(vendor, number, where)
    most = _MOST_OF_DENSE if vendor == "NVIDIA" else _FP32_PEAK_TOLERANCE
    _check_fp32_peak(number, where, least=_LEAST_FP32_SHARE, most=most)
    _check_power(number["fp32_tflops"], number["tdp_w"], where)
    _check_dense_peaks(number, text["architecture"], where)
    _check_bandwidth(number, text["memory_type"], where)

    def scaled(key: str, factor: float) -> float | None:
        return number[key] * factor if key in number else None

    def whole(key: str, factor: int) -> int | None:
        return round(number[key] * factor) if key in number else None

    return GpuSpec(
        name=name,
        label=text.get("label", name),
        vendor=vendor,
        architecture=text["architecture"],
        compute_capability=number.get("compute_capability"),
        process_nm=number["process_nm"],
        sm_count=int(number["sm_count"]),
        fp32_lanes_per_sm=int(number["fp32_lanes_per_sm"]),
        clock_hz=number["boost_mhz"] * 1e6,
        warp_size=int(number["warp_size"]),
        memory_bytes=round(number["memory_gb"] * 2**30),
        memory_type=text["memory_type"],
        memory_bytes_per_s=number["memory_bandwidth_gb_s"] * 1e9,
        l2_bytes=round(number["l2_mb"] * 2**20),
        l1_bytes_per_sm=whole("l1_kb_per_sm", 2**10),
        shared_memory_bytes_per_sm=whole("shared_memory_kb_per_sm", 2**10),
        register_bytes_per_sm=whole("register_file_kb_per_sm", 2**10),
        max_threads_per_sm=int(number["max_threads_per_sm"]),
        power_w=number["tdp_w"],
        peak_flops_per_s={pipe: number[key] * 1e12 for key, pipe in PEAK_KEYS.items() if key in number},
        l2_bytes_per_s=scaled("l2_bandwidth_gb_s", 1e9),
        last_level_cache_bytes=whole("last_level_cache_mb", 2**20),
        memory_bus_bits=whole("memory_bus_bits", 1),
        scaleup_bytes_per_s=scaled("scaleup_gb_s", 1e9),
        pcie_generation=number.get("pcie_generation"),
        pcie_lane_count=whole("pcie_lanes", 1),
        sources=texts["sources"],
        notes=texts["notes"],
        aliases=texts["aliases"],
        device_names=texts["device_names"],
    )


def _check_keys(table: Mapping[str, object], where: str) -> None:
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
            raise SpecError(f"{where}: unknown key {_shown(key)}: {hint}rename or remove it")
    if missing:
        first = f"key '{missing[0]}' ({known[missing[0]]}) is missing"
        others = f", and so are {', '.join(missing[1:])}" if missing[1:] else ""
        raise SpecError(f"{where}: {first}{others}; add what the datasheet says")


def _number(key: NumberKey, value: object, where: str) -> float:
    kind = "a whole number" if key.whole else "a number"
    wanted = f"give {key.meaning} as {kind} from {key.low:g} to {key.high:g}"
    if isinstance(value, bool) or not isinstance(value, int if key.whole else int | float):
        raise SpecError(f"{where}: key '{key.name}' is {_shown(value)}: {wanted}")
    assert isinstance(value, int | float)
    if not key.low <= value <= key.high:  # false for NaN, too
        raise SpecError(f"{where}: key '{key.name}' is {_shown(value)}: {wanted}")
    return value


def _text(key: str, value: object, where: str) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable() or len(value) > _MAX_TEXT_LENGTH:
        meaning = TEXT_KEYS.get(key, "a text")
        raise SpecError(f"{where}: key '{key}' is {_shown(value)}: give one line of text ({meaning})")
    return value


def _texts(key: str, value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise SpecError(f"{where}: key '{key}' is {_shown(value)}: give a list of texts")
    return tuple(_text(key, entry, where) for entry in value)


def _vendor(text: str, where: str) -> str:
    """The maker as :data:`VENDORS` writes it; laws and libraries' tiles are known for those."""
    for vendor in VENDORS:
        if text.casefold() == vendor.casefold():
            return vendor
    raise SpecError(f"{where}: key 'vendor' is {_shown(text)}: give NVIDIA or AMD, the makers that predictions are for")


def _check_vendor_keys(vendor: str, number: Mapping[str, float], where: str) -> None:
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
    if vendor == "AMD" and "compute_capability" in number:
        raise SpecError(
            f"{where}: key 'compute_capability' is {number['compute_capability']:g}: "
            "only GPUs by NVIDIA have one; remove it"
        )


def _check_fp32_peak(
    number: Mapping[str, float],
    where: str,
    *,
    least: float = 1 / _FP32_PEAK_TOLERANCE,
    most: float = _FP32_PEAK_TOLERANCE,
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


def _check_power(fp32_tflops: float, tdp_w: float, where: str) -> None:
    """Arithmetic takes energy: a limit that the peak is far beyond lacks a digit."""
    least = fp32_tflops / _MOST_FP32_TFLOPS_PER_W
    if tdp_w < least:
        raise SpecError(
            f"{where}: key 'tdp_w' is {tdp_w:g}, but {fp32_tflops:g} TFLOP/s in FP32 take {least:.3g} W at the very "
            "least: give the power limit in W"
        )


def _check_bandwidth(number: Mapping[str, float], memory_type: str, where: str) -> None:
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


def _check_dense_peaks(number: Mapping[str, float], architecture: str, where: str) -> None:
    """Peaks of matrix units against what a known generation's can do dense; vendors print the sparse figure as well."""
    capability = number.get("compute_capability")
    if capability is None:
        rates = _DENSE_BY_ARCHITECTURE.get(architecture.casefold())
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
        if number[key] > _MOST_OF_DENSE * dense:
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
    if summed is not None and "fp16_tflops" not in number:
        raise SpecError(
            f"{where}: key 'fp16_accumulate_tflops' is {summed:g}, and 'fp16_tflops', the peak that accumulates in "
            "FP32, is missing: add what the datasheet says"
        )
    if summed is not None and not 1.0 <= summed / number["fp16_tflops"] <= _MOST_OF_HALVED:
        raise SpecError(
            f"{where}: key 'fp16_accumulate_tflops' is {summed:g} and 'fp16_tflops' {number['fp16_tflops']:g}, but "
            "FP16 that accumulates in FP16 is as fast as in FP32, or twice as fast (GeForce): give dense peaks of both"
        )
    if "fp16_tflops" in number and number.get("bf16_tflops", 0.0) > _MOST_OF_DENSE * number["fp16_tflops"]:
        raise SpecError(
            f"{where}: key 'bf16_tflops' is {number['bf16_tflops']:g} and 'fp16_tflops' {number['fp16_tflops']:g}, but "
            f"no matrix unit does more in bfloat16: {advice}"
        )
