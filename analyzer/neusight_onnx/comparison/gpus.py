"""The GPUs of a comparison, each different one once and under a name that no other has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from neusight_onnx.gpu import GpuSpec


def told_apart(gpus: Sequence[str | Path | GpuSpec], specs: Sequence[GpuSpec]) -> Mapping[str, GpuSpec]:
    """Name in the comparison -> the GPU as it is called in itself, in order; ``specs`` are those that ``gpus`` mean.

    Equal GPUs are one, but for machines of a cloud: each that is asked for by its own name is one, since it may have a
    price of its own, and keeps that name ("g5.xlarge"). Where several have the same name, a file's is its path as it
    was given ("d/my.toml"), and specs that a caller made are numbered ("l40s (2)").
    """
    different: list[tuple[str | Path | GpuSpec, GpuSpec]] = []
    for given, spec in zip(gpus, specs, strict=True):
        if all((spec, machine_of(spec)) != (other, machine_of(other)) for _, other in different):
            different.append((given, spec))
    owners = Counter(spec.name for _, spec in different)
    taken = {spec.name for _, spec in different}
    found: dict[str, GpuSpec] = {}
    for given, spec in different:
        name = spec.name
        if owners[name] > 1 and not isinstance(given, GpuSpec) and Path(given).suffix.lower() == ".toml":
            name = str(given)
        elif spec.asked_as is not None and machine_of(spec) is not None:
            name = spec.asked_as
        number = 1
        while name in found or (name != spec.name and name in taken):
            number += 1
            name = f"{spec.name} ({number})"
        found[name] = spec
    return found


def machine_of(spec: GpuSpec) -> str | None:
    """The machine that a GPU was asked for by, in lower case; None of one that was asked for by its own name."""
    return None if spec.asked_as is None or spec.also_named else spec.asked_as.casefold()


def called(name: str, spec: GpuSpec) -> GpuSpec:
    """The GPU under the name that it has in the comparison."""
    return spec if spec.name == name else replace(spec, name=name)
