"""What an hour of each GPU costs, by options or in a file."""

from __future__ import annotations

import csv
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from neusight_onnx.errors import ComparisonError, SpecError, shown
from neusight_onnx.gpu import GpuSpec, load_gpu
from neusight_onnx.gpu.machines import gpu_count_of_instance, gpu_of_instance
from neusight_onnx.regular_files import read_at_most

_MAX_FILE_BYTES = 1 << 20
_HOURS = {"h": 1.0, "hr": 1.0, "hour": 1.0, "min": 1 / 60, "s": 1 / 3600, "day": 24.0}
_PRICE = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,2})?)\s*(?:/\s*([a-z]+))?", re.IGNORECASE)
_EXAMPLE = "write a100=2.1/h"
_TOML_EXAMPLE = "write a100 = 2.1"
_CSV_EXAMPLE = "write lines such as a100,2.1"
CSV_COLUMNS = ("gpu", "price_per_h")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Price of an hour by a GPU's canonical name, or by the path of its file; ``currency`` is what the list of prices
    calls it, "" if it doesn't.

    ``files``: the GPUs of those paths; a file's price is that GPU's and no other's of its name.
    ``expected``: the GPUs that were priced one by one, each of which should be compared; a file may have more.
    ``machines``: canonical names of GPUs that were priced by the name of a cloud's machine -> that name, of several the
    one whose GPUs cost least; the price of one with several GPUs is divided among them, where how many it has is known.
    ``of_machines``: what an hour of a GPU costs in each of the machines that were priced, by their names. A GPU that is
    asked for by such a name has its price.
    ``unknown``: the lines of a list that name no GPU or machine known here, and why; they price nothing.
    """

    per_h: Mapping[str, float] = field(default_factory=dict)
    currency: str = ""
    expected: tuple[str, ...] = ()
    files: Mapping[str, GpuSpec] = field(default_factory=dict)
    machines: Mapping[str, str] = field(default_factory=dict)
    of_machines: Mapping[str, float] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()

    def over(self, base: Prices) -> Prices:
        """These, and those of ``base`` for other GPUs."""
        files = {path: spec for path, spec in base.files.items() if self.of(spec) is None}
        others = {name: price for name, price in base.per_h.items() if name in files or name not in base.files}
        return Prices(
            per_h={**others, **self.per_h},
            files={**files, **self.files},
            currency=self.currency or base.currency,
            expected=tuple(dict.fromkeys((*base.expected, *self.expected))),
            machines={name: machine for name, machine in base.machines.items() if name not in self.per_h}
            | dict(self.machines),
            of_machines={
                name: price for name, price in base.of_machines.items() if gpu_of_instance(name) not in self.per_h
            }
            | dict(self.of_machines),
            unknown=(*base.unknown, *self.unknown),
        )

    def of(self, spec: GpuSpec) -> float | None:
        """The price of an hour of a GPU as it is called in itself: its file's, else that of its name."""
        if spec.asked_as is not None and spec.asked_as in self.of_machines:
            return self.of_machines[spec.asked_as]
        path = next((path for path, priced in self.files.items() if priced == spec), spec.name)
        return self.per_h.get(path)

    def machine_of(self, spec: GpuSpec) -> str | None:
        """The machine whose price :meth:`of` gives; None where that is the GPU's own."""
        return spec.asked_as if spec.asked_as in self.of_machines else self.machines.get(spec.name)


def as_prices(given: object) -> Prices:
    """Prices as Python gives them: a :class:`Prices`, a mapping such as ``{"l4": 0.8, "t4": "0.35/h"}`` (a number is of
    an hour) or the path of a file that :func:`read_prices` reads; None: no prices.

    ComparisonError for anything else.
    """
    if given is None:
        return Prices()
    if isinstance(given, Prices):
        return given
    if isinstance(given, str | Path):
        return read_prices(Path(given))
    if not isinstance(given, Mapping):
        raise ComparisonError(
            f"prices is {shown(repr(given))}; give a mapping such as {{'l4': 0.8}}, or the path of a TOML or CSV file"
        )
    example = "give a number of an hour, such as 2.1, or a text such as '2.1/h'"
    return _by_gpu(_of_mapping(given, "prices", example), load_gpu, example)


def parse_prices(texts: Sequence[str], load: Callable[[str], GpuSpec] = load_gpu) -> Prices:
    """``["a100=2.1/h", "t4=0.35/h,l4=0.8/h"]`` as prices. Units: /h, /min, /s, /day.

    ComparisonError for what is no price.
    """
    entries = []
    for text in texts:
        is_list = "," in text and not os.path.isfile(text.rpartition("=")[0])
        for part in text.split(",") if is_list else [text]:
            name, separator, price = part.rpartition("=")
            if not separator or not name.strip():
                said = f": {shown(part)!r} is no GPU with its price" if is_list else " names no GPU"
                raise ComparisonError(
                    f"--price {shown(text)}{said}; {_EXAMPLE}{', or a list a100=2.1/h,l4=.8/h' * is_list}"
                )
            entries.append((name.strip(), price.strip(), f"--price {shown(text)}"))
    found = _by_gpu(entries, load, _EXAMPLE)
    return replace(found, expected=tuple(found.per_h))


def read_prices(path: Path, load: Callable[[str], GpuSpec] = load_gpu) -> Prices:
    """The prices in a TOML file (``[per-hour]`` with ``a100 = 2.1``, and ``currency = "USD"``) or in a CSV file with
    the columns ``gpu,price_per_h``. Where the name doesn't end in .toml or .csv, as a pipe's, the text says which.

    A list may have GPUs and machines that aren't known here. Raises ComparisonError for one that has no others, and for
    what can't be read or be meant."""
    text = _read(path)
    suffix = path.suffix.lower()
    if suffix == ".csv" or (suffix != ".toml" and _begins_as_csv(text)):
        return _by_gpu(_csv_entries(text, path), load, _CSV_EXAMPLE, is_list=True)
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ComparisonError(f"{path} is not TOML ({reason}); correct it, or name a CSV file .csv") from None
    unknown = next((key for key in table if key not in ("currency", "per-hour")), None)
    if unknown is not None:
        raise ComparisonError(f"{path}: unknown key {unknown[:60]!a}: known are currency and the table per-hour")
    currency, listed = table.get("currency", ""), table.get("per-hour")
    if not isinstance(currency, str) or not currency.isprintable() or len(currency) > 12:
        raise ComparisonError(f"{path}: 'currency' is {currency!a:.60}; give a short text such as \"USD\"")
    if not isinstance(listed, dict) or not listed:
        raise ComparisonError(f"{path} has no prices; write a100 = 2.1 under [per-hour]")
    entries = _of_mapping(listed, str(path), _TOML_EXAMPLE)
    return replace(_by_gpu(entries, load, _TOML_EXAMPLE, is_list=True), currency=currency)


def _begins_as_csv(text: str) -> bool:
    """Whether the first line with anything in it is a list of columns: TOML has a table, a key or a remark there."""
    first = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
    return any(mark in first for mark in _DELIMITERS) and "=" not in first and not first.lstrip().startswith("[")


_DELIMITERS = ",;\t"
"""Between cells, as spreadsheets write them: the first of these that the line of columns has."""


def _of_mapping(listed: Mapping[object, object], where: str, example: str) -> Iterator[tuple[str, str, str]]:
    for name, price in listed.items():
        if not isinstance(name, str):
            raise ComparisonError(f"{where}: {name!a:.60} is no name of a GPU; give a text")
        if isinstance(price, bool) or not isinstance(price, int | float | str):
            raise ComparisonError(f"{where}: the price of {name[:60]!a} is no number; {example}")
        text = price if isinstance(price, str) and "/" in price else f"{price}/h"
        yield name, text, f"{where}: {name[:60]!a} = {price!a:.60}"


def _read(path: Path) -> str:
    try:
        content = read_at_most(path, _MAX_FILE_BYTES)
        if len(content) > _MAX_FILE_BYTES:
            raise ComparisonError(f"{path} is larger than 1 MB, so no list of prices; give another file")
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise ComparisonError(f"{path} does not exist; give a TOML or CSV file of prices") from None
    except UnicodeDecodeError:
        raise ComparisonError(f"{path} is not a text in UTF-8; give a TOML or CSV file of prices") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ComparisonError(f"{path} can't be read ({reason}); give a TOML or CSV file of prices") from None


def _csv_entries(text: str, path: Path) -> Iterator[tuple[str, str, str]]:
    first = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
    delimiter = next((mark for mark in _DELIMITERS if mark in first), ",")
    reader = csv.reader(text.splitlines(), strict=True, delimiter=delimiter)
    try:
        rows = [(reader.line_num, row) for row in reader if row and not row[0].startswith("#")]
    except csv.Error as error:
        raise ComparisonError(
            f"{path}, line {reader.line_num} is not CSV ({error}); write lines such as a100,2.1"
        ) from None
    heads = [re.sub(r"[\s-]+", "_", cell.strip().lower()) for cell in rows[0][1]] if rows else []
    if any(heads.count(column) != 1 for column in CSV_COLUMNS):
        raise ComparisonError(
            f"{path}: the first line doesn't name the columns {' and '.join(CSV_COLUMNS)}; begin with "
            f"{','.join(CSV_COLUMNS)}"
        )
    if len(rows) == 1:
        raise ComparisonError(f"{path} has no prices; {_CSV_EXAMPLE}")
    gpu, price_per_h = map(heads.index, CSV_COLUMNS)
    for number, row in rows[1:]:
        where = f"{path}, line {number}: {shown(','.join(row))}"
        while len(row) > len(heads) and not row[-1].strip():  # a comma at the end
            del row[-1]
        if not max(gpu, price_per_h) < len(row) <= len(heads):
            cells = "1 cell" if len(row) == 1 else f"{len(row)} cells"
            raise ComparisonError(f"{where} has {cells}; write lines as the first one, such as a100,2.1")
        price = row[price_per_h].strip()
        yield row[gpu].strip(), price if "/" in price else f"{price}/h", where


def _by_gpu(
    entries: Iterable[tuple[str, str, str]], load: Callable[[str], GpuSpec], example: str, *, is_list: bool = False
) -> Prices:
    """(name, price, where it is written) as prices by canonical name or path, each GPU once; of machines with the same
    GPU, those whose GPUs cost least.

    ``example``: what a message says to write. ``is_list``: some of the names may be unknown.
    """
    unknown: list[str] = []
    per_h: dict[str, float] = {}
    files: dict[str, GpuSpec] = {}
    machines: dict[str, str] = {}
    of_machines: dict[str, float] = {}
    for name, text, where in entries:
        price = _price(text, where, example)
        try:
            spec = load(name)
        except SpecError as error:
            is_file = Path(name).suffix.lower() == ".toml"
            if not is_list or is_file:
                raise ComparisonError(f"{where}: {error}") from None
            unknown.append(f"{where}: {error}")
            continue
        machine = None if spec.also_named else spec.asked_as
        key = spec.name
        if Path(name).suffix.lower() == ".toml":
            key = next((path for path, known in files.items() if known == spec), name)
            files[key] = spec
        known = per_h.get(key)
        if machine is not None:
            price /= gpu_count_of_instance(name) or 1
            known = of_machines.setdefault(machine, price) if key in machines else known
            of_machines[machine] = price
        if known is not None and not math.isclose(known, price):
            raise ComparisonError(f"{where}: {key} has another price already; keep one of them")
        if machine is None:
            per_h[key] = price
        elif price < per_h.get(key, math.inf):
            per_h[key], machines[key] = price, machine
    if unknown and not per_h:
        raise ComparisonError(unknown[0])
    return Prices(per_h=per_h, files=files, machines=machines, of_machines=of_machines, unknown=tuple(unknown))


def _price(text: str, where: str, example: str) -> float:
    parts = _PRICE.fullmatch(text) if len(text) <= 60 else None
    if parts is None:
        raise ComparisonError(f"{where} is no price; {example}")
    hours = _HOURS.get((parts[2] or "").lower())
    if hours is None:
        which = f"{parts[2][:20]!a} is no unit of time here" if parts[2] else "a unit of time is missing"
        raise ComparisonError(f"{where}: {which}; {example}")
    price = float(parts[1]) / hours
    if not 0 <= price < math.inf:
        raise ComparisonError(f"{where}: a price can't be below zero or without end; {example}")
    return price
