"""A GPU file to begin with: that of a shipped GPU, with what each key means and whether it may be left out."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping

from neusight_onnx.data_files import data_folder
from neusight_onnx.errors import SpecError
from neusight_onnx.gpu.keys import NUMBER_KEYS, TEXT_KEYS
from neusight_onnx.gpu.power import idle_follows_memory, idle_w
from neusight_onnx.gpu.spec import GpuSpec

_HEAD = """\
# Copied from {name}: change what differs, and give the file by its path: --gpu my_gpu.toml.
# A key's name ends in its unit. KB, MB and GB of memories are binary, all else is decimal; rates are dense and at
# boost_mhz. What may be left out goes with a # in front. specs/README.md says more of each key.
"""


def template_of(spec: GpuSpec) -> str:
    """The text of a GPU file with all keys and the figures of a shipped GPU; SpecError of one that isn't shipped."""
    path = data_folder("specs") / f"{spec.name}.toml"
    if not path.is_file():
        raise SpecError(f"'{spec.name}' is no shipped GPU: a GPU file begins as that of one, such as a100-sxm-80gb")
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    if idle_follows_memory(spec):
        table.setdefault("idle_power_w", round(idle_w(spec), 1))  # it stays where a copy's memory is quicker
    return _HEAD.format(name=spec.name) + "\n" + "".join(f"{line}\n" for line in _lines(table, spec.vendor))


def _lines(table: Mapping[str, object], vendor: str) -> Iterator[str]:
    for key, meaning in TEXT_KEYS.items():
        yield _line(key, table, meaning, is_required=key != "label")
    for number in NUMBER_KEYS:
        if number.name == "compute_capability":
            if vendor == "NVIDIA":
                yield _line(number.name, table, "CUDA compute capability, such as 8.9 (of sm_89)", is_required=True)
        else:
            yield _line(number.name, table, number.meaning, is_required=number.required)


def _line(key: str, table: Mapping[str, object], meaning: str, *, is_required: bool) -> str:
    value = table.get(key)
    text = "" if value is None else f'"{value}"' if isinstance(value, str) else f"{value}"
    entry = f"{key} = {text}" if text else f"# {key} ="
    return f"{entry:<39} # {meaning}; {'required' if is_required else 'may be left out'}"
