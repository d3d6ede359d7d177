"""Lists and ranges of sizes as people write them ("batch=1,2,4,...,256"), and the cases that several lists make."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from math import prod

from neusight_onnx.errors import BindingError, ComparisonError, shown
from neusight_onnx.graph.batch_dimension import find_batch
from neusight_onnx.graph.binding_text import parse_size
from neusight_onnx.graph.bindings import Bindings, make_bindings
from neusight_onnx.graph.model import Array, Model

MOST_CASES = 1024
"""Cases of one comparison or points of one sweep: each takes up to a second on a large graph."""

GRAMMAR = "write 1,2,8 or 1,2,4,...,256 or 1..8 or 128..1024+128 or 128..4096*2"

BATCH = "--batch"
"""What stands for the batch among dims until the model is read, which may have any name for it; it is the option."""

_RANGE = re.compile(r"(\d{1,18})\s*\.\.\s*(\d{1,18})\s*(?:([*+])\s*(\d{1,18}))?")
_DOTS = ("...", "…")


def parse_dim_lists(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """What the options ``--dim`` say together: the sizes of each dim, in the order in which they are written.

    ``"batch=1,8,32,seq=128..512*2"`` -> {"batch": (1, 8, 32), "seq": (128, 256, 512)}. A comma parts sizes, or dims
    where NAME= follows. Raises BindingError for what is no list, and for a dim that is given twice.
    """
    found: dict[str, tuple[int, ...]] = {}
    for text in texts:
        for name, items in _parts(text):
            if name in found:
                raise BindingError(f"--dim gives {shown(name)!r} twice; write its sizes as one list")
            found[name] = _sizes("--dim", name, items)
    return found


def _parts(text: str) -> list[tuple[str, list[str]]]:
    parts: list[tuple[str, list[str]]] = []
    for part in text.split(","):
        name, separator, item = part.rpartition("=")
        if separator and name.strip():
            parts.append((name.strip(), [item.strip()]))
        elif separator or not parts:
            raise BindingError(f"--dim {shown(text)}: {shown(part)!r} is no binding; write NAME=SIZE or NAME=SIZE,SIZE")
        else:
            parts[-1][1].append(part.strip())
    return parts


def _sizes(option: str, name: str, items: Sequence[str]) -> tuple[int, ...]:
    """The sizes of a list, each once; ``name`` is empty for an option that is about one dim."""
    written = ",".join(items)
    where = f"{option} {shown(f'{name}={written}' if name else written)}"
    sizes: list[int] = []
    for index, item in enumerate(items):
        if item in _DOTS:
            if index + 1 != len(items) - 1 or not items[index + 1].isascii() or not items[index + 1].isdigit():
                raise BindingError(f"{where}: after '...' comes the last size, and nothing else; {GRAMMAR}")
            sizes += _continued(sizes, int(items[index + 1]), where)
            break
        ranged = _RANGE.fullmatch(item)
        if ranged is None and ".." in item:
            raise BindingError(f"{where}: {shown(item)} is no range; {GRAMMAR}")
        sizes += _range(ranged, where) if ranged else [parse_size(item, where)]
        if len(sizes) > MOST_CASES:
            raise _too_many(where)
    for size in sizes:
        parse_size(str(size), where)  # the bounds of a single size hold for each
    return tuple(dict.fromkeys(sizes))


def parse_batch_lists(texts: Sequence[str]) -> tuple[int, ...]:
    """What the options ``--batch`` say together: ``["1,8", "16..64*2"]`` -> (1, 8, 16, 32, 64). Raises as the other."""
    return tuple(dict.fromkeys(size for text in texts for size in _sizes(BATCH, "", _items(text))))


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")]


def size_lists(
    dims: Mapping[str, int | Sequence[int]] | None, batch: int | Sequence[int] | None
) -> dict[str, tuple[int, ...]]:
    """The sizes of each dim, first those of the batch, as :data:`BATCH`."""
    if dims is not None and not isinstance(dims, Mapping):
        raise BindingError(f"dims is {shown(repr(dims))}; give a mapping of names, such as {{'batch': (1, 8)}}")
    given = {**({} if batch is None else {BATCH: batch}), **(dims or {})}
    lists: dict[str, tuple[int, ...]] = {}
    for name, sizes in given.items():
        try:
            lists[name] = (sizes,) if isinstance(sizes, int) else tuple(sizes)
        except TypeError:
            raise BindingError(f"{shown(str(name))} is {shown(repr(sizes))}; give a size or a list of sizes") from None
        if not lists[name]:
            raise BindingError(f"{shown(str(name))} has no sizes; give one, or leave it out")
    return lists


def with_batch_named(
    model: Model, lists: Mapping[str, tuple[int, ...]]
) -> tuple[Mapping[str, tuple[int, ...]], str | None]:
    """``lists`` with the batch as the model calls it, and that name; None where :data:`BATCH` isn't among them.

    BindingError where the model has no batch, or a dim that is the batch has sizes of its own, too.
    """
    if BATCH not in lists:
        return lists, None
    written = ",".join(map(str, lists[BATCH]))
    batch = find_batch(model, f"{BATCH} {written}", lists[BATCH][0])
    both = next((name for name in batch.symbols if name in lists), None)
    if both is not None:
        raise BindingError(f"{BATCH} and --dim {shown(both)} are sizes of the batch both; keep one of them")
    return {batch.name if name == BATCH else name: sizes for name, sizes in lists.items()}, batch.name


def bindings_at(
    sizes: Mapping[str, int],
    batch_name: str | None,
    shapes: Mapping[str, tuple[int, ...]] | None,
    values: Mapping[str, Array] | None,
    trip_counts: Mapping[str, int] | None,
) -> Bindings:
    """The bindings at one choice of ``sizes``, of which ``batch_name`` is the batch."""
    dims = {name: size for name, size in sizes.items() if name != batch_name}
    return make_bindings(dims, shapes, values, trip_counts, None if batch_name is None else sizes[batch_name])


def _too_many(where: str) -> ComparisonError:
    return ComparisonError(f"{where}: more than {MOST_CASES:,} sizes; take larger steps")


def _range(found: re.Match[str], where: str) -> list[int]:
    """``a..b``, ``a..b+step``, ``a..b*factor``: from a on, as far as b."""
    first, last, sign, by = int(found[1]), int(found[2]), found[3] or "+", int(found[4] or 1)
    if last < first:
        raise BindingError(f"{where}: {found[0]} runs backwards; write the smaller size first")
    if by < (2 if sign == "*" else 1) or (sign == "*" and first == 0):
        raise BindingError(f"{where}: {found[0]} never gets further; {GRAMMAR}")
    if sign == "+":
        if (last - first) // by >= MOST_CASES:
            raise _too_many(where)
        return list(range(first, last + 1, by))
    sizes = [first]
    while sizes[-1] * by <= last:
        sizes.append(sizes[-1] * by)
    return sizes


def _continued(before: Sequence[int], last: int, where: str) -> list[int]:
    """What ``...`` stands for, ``last`` included: equal steps or equal factors, whichever the sizes before it have."""
    if len(before) < 2:
        raise BindingError(f"{where}: '...' needs two sizes before it, or better three; {GRAMMAR}")
    steps = {second - first for first, second in pairwise(before)}
    step = before[-1] - before[-2]
    factor = before[-1] // before[-2] if before[-2] else 0
    grows = all(first * factor == second for first, second in pairwise(before))
    if len(steps) == 1 and step > 0 and last > before[-1]:
        count, rest = divmod(last - before[-1], step)
        if rest == 0 and count <= MOST_CASES:
            return [before[-1] + step * (index + 1) for index in range(count)]
        if rest == 0:
            raise _too_many(where)
    if grows and factor > 1 and last > before[-1]:
        sizes = [before[-1]]
        while sizes[-1] < last:
            sizes.append(sizes[-1] * factor)
        if sizes[-1] == last:
            return sizes[1:]
    written = ",".join(map(str, before))
    raise BindingError(f"{where}: no equal steps or factors lead from {written} to {last}; {GRAMMAR}")


def combinations(lists: Mapping[str, Sequence[int]], *, others: int = 1) -> list[dict[str, int]]:
    """Every choice of one size for each dim, the last dim varying fastest.

    ``others``: the number of cases that each choice makes. ComparisonError where there would be more than
    :data:`MOST_CASES` together.
    """
    count = prod(map(len, lists.values())) * others
    if count > MOST_CASES:
        raise ComparisonError(
            f"{count:,} cases are too many, {MOST_CASES:,} are the most at once; give fewer sizes, or several commands"
        )
    return [dict(zip(lists, sizes, strict=True)) for sizes in product(*lists.values())]
