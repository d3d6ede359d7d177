"""Quantities and names as a person reads them: three or four significant digits, a fitting unit, one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_DECIMAL = ("", "k", "M", "G", "T", "P", "E")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def significant(value: float, digits: int = 3) -> str:
    """``value`` with so many significant digits, never in exponent form: 1234.5 -> "1,230", 0.01234 -> "0.0123"."""
    if value == 0:
        return "0"
    # rounding first: 9.999 has its first digit at the tens once it is rounded
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    return f"{float(f'{mantissa}e{exponent}'):,.{max(digits - 1 - int(exponent), 0)}f}"


def scaled(value: float, unit: str, digits: int = 3) -> str:
    """``value`` with a decimal prefix before ``unit``: (6.56e10, "FLOP") -> "65.6 GFLOP"."""
    magnitude = abs(value)
    step = 0
    # 999.5 and above would be rounded to 1000 with three digits
    while magnitude >= 1000 - 0.5 * 10 ** (3 - digits) and step < len(_DECIMAL) - 1:
        magnitude /= 1000
        step += 1
    if step == 0 and value == int(value):
        return f"{int(value)} {unit}".rstrip()  # a small count is exact: 4 FLOP, not 4.00
    return f"{significant(value / 1000**step, digits)} {_DECIMAL[step]}{unit}".rstrip()


def parameters(count: int) -> str:
    """Parameters as people count those of models, in thousands, millions, billions: "25.6 M", "3.03 B"."""
    return scaled(count, "").replace("k", "K").replace("G", "B")


def duration(latency_us: float, *, plain: bool = False, digits: int = 3) -> str:
    """A time given in microseconds: "812 µs", "12.3 ms", "1.25 s". ``plain`` writes "us" for "µs"."""
    if latency_us >= 999_500:
        return f"{significant(latency_us / 1e6, digits)} s"
    if latency_us >= 999.5:
        return f"{significant(latency_us / 1e3, digits)} ms"
    return f"{significant(latency_us, digits)} {'us' if plain else 'µs'}"


def duration_range(low_us: float, high_us: float, *, plain: bool = False) -> str:
    """Two times in the unit of the larger: (5930, 12200) -> "5.93-12.2 ms", (800, 1200) -> "0.800-1.20 ms"."""
    text = duration(high_us, plain=plain)
    scale = {"s": 1e6, "ms": 1e3}.get(text.rpartition(" ")[2], 1.0)
    return f"{significant(low_us / scale)}-{text}"


def capacity(byte_count: float) -> str:
    """Memory in binary units, as ``nvidia-smi`` counts it: 85899345920 -> "80.0 GiB"."""
    value = float(byte_count)
    step = 0
    while abs(value) >= 999.5 and step < len(_BINARY) - 1:
        value /= 1024
        step += 1
    return f"{byte_count} B" if step == 0 else f"{significant(value)} {_BINARY[step]}"


def percent(share: float) -> str:
    """A share of 1 in per cent: "79.5 %", "100 %"; what is above zero never reads as zero."""
    value = 100 * share
    if 0 < value < 0.05:
        return "<0.1 %"
    return f"{value:.0f} %" if value >= 99.95 or value == 0 else f"{value:.1f} %"


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """ "1 node", "2 nodes"."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def dims_text(dims: Mapping[str, int | str | tuple[int, ...]], separator: str = " ") -> str:
    """ "m=4096 n=1024 filter=3x3"; names are made printable."""
    return separator.join(f"{printable(name)}={size_text(value)}" for name, value in dims.items())


_TILE_SIZES = ("m", "n", "k", "rows", "cols", "elements")


def tile_text(tile: Mapping[str, int]) -> str:
    """A tile as people write it, what it spans first: "64x128 split_k=8"; the number of its threads is left out."""
    span = "x".join(str(tile[name]) for name in _TILE_SIZES if name in tile)
    rest = [f"{name}={size}" for name, size in tile.items() if name not in (*_TILE_SIZES, "threads") and size != 1]
    return " ".join(part for part in (span, *rest) if part)


def size_text(value: int | str | tuple[int, ...]) -> str:
    """A dim's value on one line: 4096, "3x3", "layer"."""
    if isinstance(value, tuple):
        return shape_text(value)
    return printable(value) if isinstance(value, str) else str(value)


def shape_text(shape: Sequence[int | str | None]) -> str:
    """ "8x3x224x224", with "?" for what is not declared; "scalar" for rank 0; with names "batch x 3 x 224 x 224"."""
    times = " x " if any(isinstance(dim, str) for dim in shape) else "x"
    return times.join("?" if dim is None else printable(str(dim)) for dim in shape) or "scalar"


def printable(text: str) -> str:
    """``text`` on one line, without anything that steers a terminal: such characters become backslash escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


NAME_WIDTH = 200
"""Of a node's name in a line for people: files may have names of any length."""


def shorten(text: str, width: int, ellipsis: str = "…") -> str:
    """``text`` in at most ``width`` characters; the middle goes, since both ends of a node's name tell it apart."""
    if len(text) <= width:
        return text
    if width <= len(ellipsis):
        return ellipsis[:width]
    kept = width - len(ellipsis)
    tail = (kept * 2 + 2) // 3  # the end of a path names the operator: it gets two thirds
    return text[: kept - tail] + ellipsis + text[len(text) - tail :]
