"""The shipped GPUs, found by every name that they have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from os.path import commonprefix
from pathlib import Path

from neusight_onnx.data_files import data_folder
from neusight_onnx.errors import SpecError
from neusight_onnx.gpu.file import read_own, read_spec
from neusight_onnx.gpu.keys import quoted
from neusight_onnx.gpu.machines import gpu_of_instance, why_not_an_instance
from neusight_onnx.gpu.names import (
    also_named,
    card_of,
    gibibytes,
    name_key,
    plain_words,
    with_words,
    words,
)
from neusight_onnx.gpu.spec import GpuSpec


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
        return read_own(Path(name_or_path))
    found = _find(name_or_path)
    if found is not None:
        return found
    if several := _named_together(name_or_path):
        known = f"{', '.join(several)} {'is' if len(several) == 1 else 'are'} known here"
        raise SpecError(f"unknown GPU {quoted(name_or_path)}: several are called so; {known}; give what it is")
    if "/" in name_or_path or "\\" in name_or_path:
        return read_own(Path(name_or_path))
    raise SpecError(_unknown_name(name_or_path))


def available_gpus() -> tuple[GpuSpec, ...]:
    """All shipped GPUs, ordered by name."""
    return tuple(_shipped(path) for path in _spec_files())


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


_NAMES_IN_FILE = re.compile(rb'^(?:label|aliases|device_names)\s*=\s*(\[[^\]]*\]|"[^"\n]*")', re.MULTILINE)

_QUOTED = re.compile(r'"([^"\n]*)"')


def _spec_files() -> list[Path]:
    folder = data_folder("specs")
    files = sorted(folder.glob("*.toml"), key=lambda path: path.stem)
    if not files:
        raise SpecError(f"no GPU files in {folder}: the installation is incomplete; reinstall neusight-onnx")
    return files


@cache
def _shipped(path: Path) -> GpuSpec:
    """A shipped file, read once per process: a comparison asks for all GPUs."""
    return read_spec(path)


@lru_cache(maxsize=256)
def _find(name: str) -> GpuSpec | None:
    """The shipped GPU of that name, or None; with the names of others that it may mean. Looked up once per process:
    a program that predicts many models names one GPU again and again.

    Parses one file in most cases, found by its name or by a scan of the lines that hold names: parsing all
    of them takes some 0.1 s, and every analysis of a model starts here.
    """
    files = {path.stem: path for path in _spec_files()}
    spec = _find_words(words(name), files)
    if spec is not None:
        others = also_named(name, spec.name, files)
        return replace(spec, asked_as=_one_line(name), also_named=others) if others else spec
    rented = gpu_of_instance(name)
    return None if rented is None else replace(_shipped(files[rented]), asked_as=_one_line(name))


def _one_line(name: str) -> str:
    return " ".join(name.split())


def _find_words(found: Sequence[str], files: Mapping[str, Path]) -> GpuSpec | None:
    """The GPU whose names have the key of these words; a memory's size behind a name that has none must be its own."""
    key = "".join(found)
    canonical = files.get("-".join(found))
    if canonical is not None:
        return _shipped(canonical)
    for path in files.values():
        if name_key(path.stem) == key:
            return _shipped(path)
    for path in files.values():
        if key in _keys_in_file(path):
            spec = _shipped(path)
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
        for written in _QUOTED.findall(found.decode("utf-8", "replace")):
            yield name_key(written)


def _keys_of(spec: GpuSpec) -> Iterator[str]:
    for name in _names_of(spec):
        yield name_key(name)


def _names_of(spec: GpuSpec) -> tuple[str, ...]:
    return (spec.name, spec.label, *spec.aliases, *spec.device_names)


def _named_together(name: str) -> tuple[str, ...]:
    """The known ones of the GPUs that a driver prints one name for, "MI250X / MI250"; () of a path."""
    card = card_of(name)
    parts = card.split("/")
    found = tuple(gpu.name for part in parts if (gpu := _find(part)) is not None)
    is_path = card == name and " / " not in name and len(found) < len(parts)
    return () if is_path or len(parts) == 1 else found


_MOST_NAMED = 6


def _unknown_name(name: str) -> str:
    from difflib import get_close_matches  # only on this way out

    several = [_find(part) for part in name.split(",")] if "," in name else []
    known = [spec.name for spec in several if spec is not None]
    if known and len(known) == len(several):
        return (
            f"unknown GPU {quoted(name)}: these are {len(known)} names; give one, or, where several are taken, each by "
            "itself: " + " and ".join(f"'{each}'" for each in known[:4])
        )
    if (reason := why_not_an_instance(name)) is not None:
        return f"unknown GPU {quoted(name)}: {reason}"
    if "mig" in words(name):
        return (
            f"unknown GPU {quoted(name)}: a MIG instance is a part of a GPU; give a .toml file with the part's SMs, "
            "memory, bandwidth and peak rates, or the whole GPU's name"
        )
    fitting = with_words(name, gpu_names())
    if len(fitting) > 1:
        some = ", ".join(fitting[:_MOST_NAMED])
        more = f" and {len(fitting) - _MOST_NAMED} more" if len(fitting) > _MOST_NAMED else ""
        return f"unknown GPU {quoted(name)}: several are called so; give one of {some}{more}"
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
    return f"unknown GPU {quoted(name)}: {hint}`neusight-onnx gpus` lists all; or give a .toml file"
