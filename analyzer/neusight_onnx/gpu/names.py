"""How GPUs are called: by their words, and by what several of them share."""

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
