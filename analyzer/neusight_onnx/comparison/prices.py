"""What an hour of each GPU costs, by options or in a file."""

from __future__ import annotations

import csv
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from neusight_onnx.errors import ComparisonError, SpecError, shown
from neusight_onnx.gpu import GpuSpec, load_gpu
from neusight_onnx.gpu.machines import gpu_count_of_instance

_MAX_FILE_BYTES = 1 << 20
_HOURS = {"h": 1.0, "hr": 1.0, "hour": 1.0, "min": 1 / 60, "s": 1 / 3600, "day": 24.0}
_PRICE = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,2})?)\s*(?:/\s*([a-z]+))?", re.IGNORECASE)
_EXAMPLE = "write a100=2.1/h"
CSV_COLUMNS = ("gpu", "price_per_h")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Price of an hour by a GPU's canonical name, or by the path of its file; ``currency`` is what the list of prices
    calls it, "" if it doesn't.

    ``files``: the GPUs of those paths; a file's price is that GPU's and no other's of its name.
    ``expected``: the GPUs that were priced one by one, each of which should be compared; a file may have more.
    ``machines``: canonical names of GPUs that were priced by the name of a cloud's machine -> that name; the price
    of one with several GPUs is divided among them, where how many it has is known.
    """

    per_h: Mapping[str, float] = field(default_factory=dict)
    currency: str = ""
    expected: tuple[str, ...] = ()
    files: Mapping[str, GpuSpec] = field(default_factory=dict)
    machines: Mapping[str, str] = field(default_factory=dict)

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
        )

    def of(self, spec: GpuSpec) -> float | None:
        """The price of an hour of a GPU as it is called in itself: its file's, else that of its name."""
        path = next((path for path, priced in self.files.items() if priced == spec), spec.name)
        return self.per_h.get(path)


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
    found = _by_gpu(entries, load)
    return replace(found, expected=tuple(found.per_h))


def read_prices(path: Path, load: Callable[[str], GpuSpec] = load_gpu) -> Prices:
    """The prices in a TOML file (``[per-hour]`` with ``a100 = 2.1``, and ``currency = "USD"``) or in a CSV file with
    the columns ``gpu,price_per_h``. Raises ComparisonError for what can't be read or be meant."""
    text = _read(path)
    if path.suffix.lower() == ".csv":
        return _by_gpu(_csv_entries(text, path), load)
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
    entries = []
    for name, price in listed.items():
        if isinstance(price, bool) or not isinstance(price, int | float | str):
            raise ComparisonError(f"{path}: the price of {name[:60]!a} is no number; write a100 = 2.1")
        where = f"{path}: {name[:60]!a} = {price!a:.60}"
        entries.append((name, price if isinstance(price, str) and "/" in price else f"{price}/h", where))
    return replace(_by_gpu(entries, load), currency=currency)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
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
    reader = csv.reader(text.splitlines(), strict=True)
    try:
        rows = [(reader.line_num, row) for row in reader if row and not row[0].startswith("#")]
    except csv.Error as error:
        raise ComparisonError(
            f"{path}, line {reader.line_num} is not CSV ({error}); write lines such as a100,2.1"
        ) from None
    heads = tuple(cell.strip().lower() for cell in rows[0][1]) if rows else ()
    heads = heads[:2] if not any(heads[2:]) else heads
    if heads != CSV_COLUMNS:
        raise ComparisonError(f"{path}: the first line is not {','.join(CSV_COLUMNS)}; begin with it")
    if len(rows) == 1:
        raise ComparisonError(f"{path} has no prices; write lines such as a100,2.1")
    for number, row in rows[1:]:
        where = f"{path}, line {number}: {shown(','.join(row))}"
        while len(row) > len(CSV_COLUMNS) and not row[-1].strip():  # a comma at the end
            del row[-1]
        if len(row) != len(CSV_COLUMNS):
            raise ComparisonError(f"{where} has {len(row)} cells; write lines such as a100,2.1")
        price = row[1].strip()
        yield row[0].strip(), price if "/" in price else f"{price}/h", where


def _by_gpu(
    entries: Sequence[tuple[str, str, str]] | Iterator[tuple[str, str, str]], load: Callable[[str], GpuSpec]
) -> Prices:
    """(name, price, where it is written) as prices by canonical name or path, each GPU once."""
    per_h: dict[str, float] = {}
    files: dict[str, GpuSpec] = {}
    machines: dict[str, str] = {}
    for name, text, where in entries:
        price = _price(text, where)
        try:
            spec = load(name)
        except SpecError as error:
            raise ComparisonError(f"{where}: {error}") from None
        is_machine = spec.asked_as is not None and not spec.also_named
        price /= (gpu_count_of_instance(name) if is_machine else None) or 1
        key = spec.name
        if Path(name).suffix.lower() == ".toml":
            key = next((path for path, known in files.items() if known == spec), name)
            files[key] = spec
        if not math.isclose(per_h.setdefault(key, price), price):
            raise ComparisonError(f"{where}: {key} has another price already; keep one of them")
        if is_machine and spec.asked_as is not None:
            machines[spec.name] = spec.asked_as
    return Prices(per_h=per_h, files=files, machines=machines)


def _price(text: str, where: str) -> float:
    parts = _PRICE.fullmatch(text) if len(text) <= 60 else None
    if parts is None:
        raise ComparisonError(f"{where} is no price; {_EXAMPLE}")
    hours = _HOURS.get((parts[2] or "").lower())
    if hours is None:
        which = f"{parts[2][:20]!a} is no unit of time here" if parts[2] else "a unit of time is missing"
        raise ComparisonError(f"{where}: {which}; {_EXAMPLE}")
    price = float(parts[1]) / hours
    if not 0 <= price < math.inf:
        raise ComparisonError(f"{where}: a price can't be below zero or without end; {_EXAMPLE}")
    return price
