"""How GPUs are called: by their words, by what several of them share, and by the machines that clouds rent them in."""

from __future__ import annotations

import re
from collections.abc import Iterable

_BRANDS = frozenset({"nvidia", "tesla", "geforce", "amd", "instinct", "radeon"})
_TRADE_MARKS = re.compile(r"\((?:tm|r)\)|[™®]")
_OF_JETSON = re.compile(r"\(nvgpu\)|\bdeveloper kit\b")
"""What stands behind a Jetson's name: its driver (nvidia-smi's "Orin (nvgpu)"), its board (/proc/device-tree/model)."""
_CARD_OF_CHIP = re.compile(r"[^\[\]]*\[([^\[\]]+)\]\s*")
"""The card behind its chip, as lspci and rocm-smi print it: "Aldebaran/MI200 [Instinct MI210]"."""
_SEPARATORS = re.compile(r"[\s_-]+")
_SOCKET = re.compile(r"sxm\d")
_MEMORY = re.compile(r"(\d{1,4})gb")
_EDITIONS = frozenset({"sxm", "pcie", "nvl", "server", "workstation", "max", "q"})
"""Words that, like a memory's size, tell GPUs of one name apart."""


def words(name: str) -> list[str]:
    """The words of a name in lower case, without trade marks, leading brands and a Jetson's driver and board."""
    plain = _OF_JETSON.sub(" ", _TRADE_MARKS.sub(" ", card_of(name).casefold()))
    found = [word for word in _SEPARATORS.split(plain) if word]
    while len(found) > 1 and found[0] in _BRANDS:
        del found[0]
    return found


def card_of(name: str) -> str:
    """The name of the card where that of its chip stands before it, else ``name``."""
    found = _CARD_OF_CHIP.fullmatch(name)
    return name if found is None else found[1]


def plain_words(text: str) -> frozenset[str]:
    """The words of any text in lower case, brands included."""
    return frozenset(word for word in _SEPARATORS.split(_TRADE_MARKS.sub(" ", text.casefold())) if word)


def name_key(name: str) -> str:
    """Two names of a GPU are the same when their keys are."""
    return "".join(words(name))


def gibibytes(word: str) -> int | None:
    """The memory's size that a word of a name says: 24 of "24gb"; None of any other word."""
    found = _MEMORY.fullmatch(word)
    return int(found[1]) if found else None


def also_named(name: str, resolved: str, names: Iterable[str]) -> tuple[str, ...]:
    """Those of ``names`` that ``name`` may mean as well as ``resolved``, all canonical: they have all of its words, and
    beyond these only sizes of memory, sockets and editions. "v100" may be v100-pcie-16gb, but not v100s-pcie-32gb.
    """
    wanted = _comparable(words(name))
    known = wanted | _comparable(words(resolved))
    return tuple(
        other
        for other in names
        if other != resolved and wanted <= (of_other := _comparable(words(other))) and _only_editions(of_other - known)
    )


def with_words(name: str, names: Iterable[str]) -> tuple[str, ...]:
    """Those of ``names`` that have all words of ``name``: quadro-rtx-6000 and rtx-6000-ada for "rtx 6000"."""
    wanted = _comparable(words(name))
    return tuple(other for other in names if wanted and wanted <= _comparable(words(other)))


def _comparable(found: Iterable[str]) -> set[str]:
    return {"sxm" if _SOCKET.fullmatch(word) else word for word in found}


def _only_editions(found: Iterable[str]) -> bool:
    return all(word in _EDITIONS or gibibytes(word) is not None for word in found)


_INSTANCES: tuple[tuple[str, str], ...] = (
    # Amazon EC2, "Accelerated computing" in its list of instance types
    ("p3.*", "v100-sxm2-16gb"),
    ("p3dn.*", "v100-sxm2-32gb"),
    ("p4d.*", "a100-sxm-40gb"),
    ("p4de.*", "a100-sxm-80gb"),
    ("p5.*", "h100-sxm"),
    ("p5e.*", "h200-sxm"),
    ("p5en.*", "h200-sxm"),
    ("p6-b200.*", "b200-sxm"),
    ("p6-b300.*", "b300-sxm"),
    ("g4dn.*", "t4"),
    ("g5.*", "a10g"),
    ("g6.*", "l4"),
    ("gr6.*", "l4"),
    ("g6e.*", "l40s"),
    # Google Compute Engine, "GPU machine types"
    ("a2-highgpu-*g", "a100-sxm-40gb"),
    ("a2-megagpu-16g", "a100-sxm-40gb"),
    ("a2-ultragpu-*g", "a100-sxm-80gb"),
    ("a3-highgpu-*g", "h100-sxm"),
    ("a3-megagpu-8g", "h100-sxm"),
    ("a3-edgegpu-8g", "h100-sxm"),
    ("a3-ultragpu-8g", "h200-sxm"),
    ("a4-highgpu-8g", "b200-sxm"),
    ("a4x-highgpu-4g", "gb200"),
    ("g2-standard-*", "l4"),
    # Microsoft Azure, "GPU accelerated virtual machine sizes"; those with a part of a GPU (NV6ads_A10_v5) are left out
    ("nc*s_v2", "p100-pcie-16gb"),
    ("nc*s_v3", "v100-pcie-16gb"),
    ("nd40rs_v2", "v100-sxm2-32gb"),
    ("nc*as_t4_v3", "t4"),
    ("nv36ads_a10_v5", "a10"),
    ("nv36adms_a10_v5", "a10"),
    ("nv72ads_a10_v5", "a10"),
    ("nc*ads_a100_v4", "a100-pcie-80gb"),
    ("nd96asr_v4", "a100-sxm-40gb"),
    ("nd96amsr_a100_v4", "a100-sxm-80gb"),
    ("nc40ads_h100_v5", "h100-nvl"),
    ("nc80adis_h100_v5", "h100-nvl"),
    ("nd96isr_h100_v5", "h100-sxm"),
    ("nd96isr_h200_v5", "h200-sxm"),
    ("nd96isr_mi300x_v5", "mi300x"),
    # Oracle Cloud Infrastructure, "Compute Shapes"
    ("vm.gpu3.*", "v100-sxm2-16gb"),
    ("bm.gpu3.8", "v100-sxm2-16gb"),
    ("bm.gpu4.8", "a100-sxm-40gb"),
    ("bm.gpu.a100-v2.8", "a100-sxm-80gb"),
    ("vm.gpu.a10.*", "a10"),
    ("bm.gpu.a10.4", "a10"),
    ("bm.gpu.l40s.4", "l40s"),
    ("bm.gpu.h100.8", "h100-sxm"),
    ("bm.gpu.h200.8", "h200-sxm"),
    ("bm.gpu.b200.8", "b200-sxm"),
    ("bm.gpu.mi300x.8", "mi300x"),
)
"""Name of a machine that a cloud rents -> the GPU in it, one or several. From general knowledge of the providers' pages
that are named; these were not opened. Machines whose GPU has no file, and those with a part of a GPU, are left out."""


def gpu_of_instance(name: str) -> str | None:
    """The canonical name of the GPU in a cloud's machine; None where no such machine is known.

    Azure's "Standard_" may be left out; SageMaker puts "ml." before the names of EC2. A family ("g5") stands for its
    machines.
    """
    wanted = name.strip().casefold().removeprefix("standard_").removeprefix("ml.")
    return next((gpu for pattern, gpu in _INSTANCES if _is_machine(wanted, pattern)), None)


def _is_machine(name: str, pattern: str) -> bool:
    family = pattern.removesuffix(".*")
    return name == family or re.fullmatch(re.escape(pattern).replace(r"\*", "[a-z0-9-]+"), name) is not None


def instance_gpus() -> tuple[str, ...]:
    """The canonical names of all GPUs that :func:`gpu_of_instance` gives."""
    return tuple(dict.fromkeys(gpu for _, gpu in _INSTANCES))
