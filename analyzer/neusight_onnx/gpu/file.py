"""Reads a GPU file: datasheet units become base units, what can't be is refused."""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from neusight_onnx.data_files import data_folder
from neusight_onnx.errors import SpecError
from neusight_onnx.gpu.keys import (
    LIST_KEYS,
    NUMBER_KEYS,
    PEAK_KEYS,
    TEXT_KEYS,
    check_keys,
    number_of,
    quoted,
    text_of,
    texts_of,
    vendor_of,
)
from neusight_onnx.gpu.sense import (
    FP32_PEAK_TOLERANCE,
    LEAST_FP32_SHARE,
    MOST_OF_DENSE,
    check_bandwidth,
    check_dense_peaks,
    check_fp32_peak,
    check_idle_power,
    check_l2_bandwidth,
    check_power,
    check_vendor_keys,
)
from neusight_onnx.gpu.spec import GpuSpec

_MAX_FILE_BYTES = 1 << 20  # a GPU file takes 2 KB


def read_own(path: Path) -> GpuSpec:
    """A file that was given by its path. Outside ``specs/`` that is its only name: other ones, often left over from the
    file that it was copied from, would claim to be those of another GPU, so they are left out."""
    spec = read_spec(path)
    if path.resolve().parent == data_folder("specs").resolve():
        return spec
    return replace(spec, aliases=(), device_names=())


def read_spec(path: Path) -> GpuSpec:
    where = f"GPU file {quoted(str(path), 300)[1:-1]}"
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
    check_keys(table, where)
    number = {key.name: number_of(key, table[key.name], where) for key in NUMBER_KEYS if key.name in table}
    text = {key: text_of(key, table[key], where) for key in TEXT_KEYS if key in table}
    texts = {key: texts_of(key, table[key], where) if key in table else () for key in LIST_KEYS}
    vendor = vendor_of(text["vendor"], where)
    check_vendor_keys(vendor, number, where)
    most = MOST_OF_DENSE if vendor == "NVIDIA" else FP32_PEAK_TOLERANCE
    check_fp32_peak(number, where, least=LEAST_FP32_SHARE, most=most)
    check_power(number["fp32_tflops"], number["tdp_w"], where)
    check_idle_power(number.get("idle_power_w"), number["tdp_w"], where)
    check_dense_peaks(number, text["architecture"], where)
    check_bandwidth(number, text["memory_type"], where)
    if "l2_bandwidth_gb_s" in number:
        check_l2_bandwidth(number["l2_bandwidth_gb_s"], number["memory_bandwidth_gb_s"], where)

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
        idle_power_w=number.get("idle_power_w"),
        last_level_cache_bytes=whole("last_level_cache_mb", 2**20),
        memory_bus_bits=whole("memory_bus_bits", 1),
        inline_ecc=whole("inline_ecc", 1),
        scaleup_bytes_per_s=scaled("scaleup_gb_s", 1e9),
        pcie_generation=number.get("pcie_generation"),
        pcie_lane_count=whole("pcie_lanes", 1),
        gpus_per_card=whole("gpus_per_card", 1),
        sources=texts["sources"],
        notes=texts["notes"],
        aliases=texts["aliases"],
        device_names=texts["device_names"],
    )
