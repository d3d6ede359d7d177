"""Machines that clouds rent: which GPU is in them, and how many."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple


class _Machines(NamedTuple):
    """Machines by their names' pattern, whose ``*`` is a size, and the canonical name of their GPU.

    ``gpu_count``: of all of them, or by size: there are no others.
    """

    pattern: str
    gpu: str
    gpu_count: int | Mapping[str, int]


_AS_NAMED: Mapping[str, int] = {"1": 1, "2": 2, "4": 4, "8": 8}
_SMALL: Mapping[str, int] = {"xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "16xlarge": 1}
_G5: Mapping[str, int] = {**_SMALL, "12xlarge": 4, "24xlarge": 4, "48xlarge": 8}
_G7E: Mapping[str, int] = {"2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "12xlarge": 2, "24xlarge": 4, "48xlarge": 8}

_INSTANCES: tuple[_Machines, ...] = (
    # Amazon EC2, "Accelerated computing" in its list of instance types
    _Machines("p3.*", "v100-sxm2-16gb", {"2xlarge": 1, "8xlarge": 4, "16xlarge": 8}),
    _Machines("p3dn.*", "v100-sxm2-32gb", {"24xlarge": 8}),
    _Machines("p4d.*", "a100-sxm-40gb", {"24xlarge": 8}),
    _Machines("p4de.*", "a100-sxm-80gb", {"24xlarge": 8}),
    _Machines("p5.*", "h100-sxm", {"4xlarge": 1, "48xlarge": 8}),
    _Machines("p5e.*", "h200-sxm", {"48xlarge": 8}),
    _Machines("p5en.*", "h200-sxm", {"48xlarge": 8}),
    _Machines("p6-b200.*", "b200-sxm", {"48xlarge": 8}),
    _Machines("p6-b300.*", "b300-sxm", {"48xlarge": 8}),
    _Machines("g4dn.*", "t4", {**_SMALL, "12xlarge": 4, "metal": 8}),
    _Machines("g5.*", "a10g", _G5),
    _Machines("g6.*", "l4", _G5),
    _Machines("gr6.*", "l4", {"4xlarge": 1, "8xlarge": 1}),
    _Machines("g6e.*", "l40s", _G5),
    _Machines("g7e.*", "rtx-pro-6000-server", _G7E),
    # Google Compute Engine, "GPU machine types"
    _Machines("a2-highgpu-*g", "a100-sxm-40gb", _AS_NAMED),
    _Machines("a2-megagpu-16g", "a100-sxm-40gb", 16),
    _Machines("a2-ultragpu-*g", "a100-sxm-80gb", _AS_NAMED),
    _Machines("a3-highgpu-*g", "h100-sxm", _AS_NAMED),
    _Machines("a3-megagpu-8g", "h100-sxm", 8),
    _Machines("a3-edgegpu-8g", "h100-sxm", 8),
    _Machines("a3-ultragpu-8g", "h200-sxm", 8),
    _Machines("a4-highgpu-8g", "b200-sxm", 8),
    _Machines("a4x-highgpu-4g", "gb200", 4),
    _Machines("g2-standard-*", "l4", {"4": 1, "8": 1, "12": 1, "16": 1, "24": 2, "32": 1, "48": 4, "96": 8}),
    _Machines("g4-standard-*", "rtx-pro-6000-server", {"48": 1, "96": 2, "192": 4, "384": 8}),
    # Microsoft Azure, "GPU accelerated virtual machine sizes"; those with a part of a GPU (NV6ads_A10_v5) are left out
    _Machines("nc*s_v2", "p100-pcie-16gb", {"6": 1, "12": 2, "24": 4, "24r": 4}),
    _Machines("nc*s_v3", "v100-pcie-16gb", {"6": 1, "12": 2, "24": 4, "24r": 4}),
    _Machines("nd40rs_v2", "v100-sxm2-32gb", 8),
    _Machines("nc*as_t4_v3", "t4", {"4": 1, "8": 1, "16": 1, "64": 4}),
    _Machines("nv36ads_a10_v5", "a10", 1),
    _Machines("nv36adms_a10_v5", "a10", 1),
    _Machines("nv72ads_a10_v5", "a10", 2),
    _Machines("nc*ads_a100_v4", "a100-pcie-80gb", {"24": 1, "48": 2, "96": 4}),
    _Machines("nd96asr_v4", "a100-sxm-40gb", 8),
    _Machines("nd96amsr_a100_v4", "a100-sxm-80gb", 8),
    _Machines("nc40ads_h100_v5", "h100-nvl", 1),
    _Machines("nc80adis_h100_v5", "h100-nvl", 2),
    _Machines("nd96isr_h100_v5", "h100-sxm", 8),
    _Machines("nd96isr_h200_v5", "h200-sxm", 8),
    _Machines("nd96isr_mi300x_v5", "mi300x", 8),
    # Oracle Cloud Infrastructure, "Compute Shapes"
    _Machines("vm.gpu3.*", "v100-sxm2-16gb", {"1": 1, "2": 2, "4": 4}),
    _Machines("bm.gpu3.8", "v100-sxm2-16gb", 8),
    _Machines("bm.gpu4.8", "a100-sxm-40gb", 8),
    _Machines("bm.gpu.a100-v2.8", "a100-sxm-80gb", 8),
    _Machines("vm.gpu.a10.*", "a10", {"1": 1, "2": 2}),
    _Machines("bm.gpu.a10.4", "a10", 4),
    _Machines("bm.gpu.l40s.4", "l40s", 4),
    _Machines("bm.gpu.h100.8", "h100-sxm", 8),
    _Machines("bm.gpu.h200.8", "h200-sxm", 8),
    _Machines("bm.gpu.b200.8", "b200-sxm", 8),
    _Machines("bm.gpu.mi300x.8", "mi300x", 8),
    _Machines("bm.gpu.mi355x.8", "mi355x", 8),
    _Machines("bm.gpu.mi355x-v1.8", "mi355x", 8),
)
"""Machines that clouds rent, with one GPU or several of a kind. From general knowledge of the providers' pages
that are named; these were not opened. Machines whose GPU has no file, and those with a part of a GPU, are left out."""


def gpu_of_instance(name: str) -> str | None:
    """The canonical name of the GPU in a cloud's machine; None where no such machine is known.

    Azure's "Standard_" may be left out; SageMaker puts "ml." before the names of EC2. A family ("g5") stands for its
    machines.
    """
    found = _machine(name)
    return None if found is None else found[0].gpu


def gpu_count_of_instance(name: str) -> int | None:
    """How many GPUs a cloud's machine has; None where that isn't known, as of a family."""
    found = _machine(name)
    if found is None:
        return None
    machines, size = found
    if size is None:
        return None
    return machines.gpu_count if isinstance(machines.gpu_count, int) else machines.gpu_count[size]


_WITHOUT_A_FILE: tuple[tuple[str, str], ...] = (
    ("p2", "NVIDIA's K80"),
    ("g3", "NVIDIA's M60"),
    ("g3s", "NVIDIA's M60"),
    ("g4ad", "AMD's Radeon Pro V520"),
    ("g5g", "NVIDIA's T4G"),
    ("g6f", "a part of an L4"),
    ("gr6f", "a part of an L4"),
    ("nv*s_v3", "NVIDIA's M60"),
    ("nv*as_v4", "a part of AMD's MI25"),
    ("nv*ads_a10_v5", "a part of an A10"),
)
"""Families of machines, or names of them with a size, whose GPU has no file, and what it is; known as the others."""


def why_not_an_instance(name: str) -> str | None:
    """Why there is no GPU of what looks like a cloud's machine, and what would do; None for any other name."""
    wanted = _plain(name)
    if _machine(name) is not None:
        return None
    for machines in _INSTANCES:
        if not isinstance(machines.gpu_count, int) and _size_of(machines.pattern, wanted) is not None:
            return f"there is no such size of that machine; give one of {', '.join(machines.gpu_count)}"
    for family, gpu in _WITHOUT_A_FILE:
        pattern = family if "*" in family else f"{family}.*"
        if wanted == family or _size_of(pattern, wanted) is not None:
            return f"that machine has {gpu}, which no file here describes; give a .toml file of your own"
    return None


def _machine(name: str) -> tuple[_Machines, str | None] | None:
    """The row of a machine, and its size: "" where all have one, None of a family."""
    wanted = _plain(name)
    for machines in _INSTANCES:
        if wanted == machines.pattern.removesuffix(".*") != machines.pattern:
            return machines, None
        size = _size_of(machines.pattern, wanted)
        if size is not None and (isinstance(machines.gpu_count, int) or size in machines.gpu_count):
            return machines, size
    return None


def _plain(name: str) -> str:
    """A machine's name without what only some write before it."""
    return name.strip().casefold().removeprefix("standard_").removeprefix("ml.")


def _size_of(pattern: str, wanted: str) -> str | None:
    """What stands for the ``*`` of a pattern, "" where it has none; None where the pattern doesn't fit."""
    found = re.fullmatch(re.escape(pattern).replace(r"\*", "([a-z0-9-]+)"), wanted)
    return None if found is None else "".join(found.groups())


def instance_gpus() -> tuple[str, ...]:
    """The canonical names of all GPUs that :func:`gpu_of_instance` gives."""
    return tuple(dict.fromkeys(machines.gpu for machines in _INSTANCES))
