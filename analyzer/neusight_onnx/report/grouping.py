"""Kernels summed up for a reader: by class, by what bounds them, and equal ones taken together."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from neusight_onnx.lowering.walk import UNKNOWN_BECAUSE
from neusight_onnx.report.model import KernelRow, Report, UnsupportedNode
from neusight_onnx.report.quantities import counted

_MOST_NODES_NAMED = 3
_MOST_OPERATORS_NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A part of the total latency. ``kernel_count`` counts runs of kernels; ``share`` is of the whole model."""

    label: str
    kernel_count: int
    latency_us: float
    share: float
    flops: int
    byte_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelGroup:
    """Equal kernels at several places in the model, e.g. the same layer of every block.

    ``row`` is the first of them; ``run_count`` and ``latency_us`` are those of all together.
    """

    row: KernelRow
    place: str
    run_count: int
    latency_us: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsupportedGroup:
    """Unsupported nodes of one operator with one reason; ``node`` is the first.

    ``behind_count``: nodes that fail only because the shapes behind these are unknown.
    """

    op_type: str
    reason: str
    node: str
    node_count: int
    behind_count: int = 0

    @property
    def extent(self) -> str:
        """How many nodes it is about: "2 nodes", "1 node and 57 behind it"."""
        if not self.behind_count:
            return counted(self.node_count, "node")
        return f"{counted(self.node_count, 'node')} and {self.behind_count:,} behind {_it(self.node_count)}"


def _it(count: int) -> str:
    return "it" if count == 1 else "them"


def by_kernel_class(report: Report) -> tuple[Slice, ...]:
    """The kernels' time by class, the longest first; the host's overhead is no class."""
    return _slices(report, ((row.kernel_class, row) for row in report.kernels))


def by_bound(report: Report) -> tuple[Slice, ...]:
    """The kernels' time by what bounds it, the longest first, and the host's overhead as "host"."""
    slices = list(_slices(report, ((row.bound, row) for row in report.kernels)))
    overhead_us = report.totals.overhead_ms * 1e3
    if overhead_us > 0:
        share = _share(overhead_us, report)
        slices.append(Slice(label="host", kernel_count=0, latency_us=overhead_us, share=share, flops=0, byte_count=0))
    return tuple(slices)


def slowest(report: Report) -> tuple[KernelGroup, ...]:
    """Equal kernels together, the longest total time first."""
    groups: dict[tuple[object, ...], list[KernelRow]] = defaultdict(list)
    for row in report.kernels:
        key = (row.phase, row.kernel_class, row.op_types, row.dtype, tuple(row.dims.items()), row.predictor, row.bound)
        groups[key].append(row)
    found = []
    for rows in groups.values():
        latency_us = sum(row.latency_us for row in rows)
        found.append(
            KernelGroup(
                row=rows[0],
                place=common_name([place_of(row) for row in rows]),
                run_count=sum(row.count for row in rows),
                latency_us=latency_us,
                share=_share(latency_us, report),
            )
        )
    return tuple(sorted(found, key=lambda group: -group.latency_us))


def unsupported_groups(nodes: Sequence[UnsupportedNode]) -> tuple[UnsupportedGroup, ...]:
    """Unsupported nodes by operator and reason, what hangs on most nodes first.

    A node that lacks a shape because of another one belongs to that one's group: the first cause is named, once.
    """
    causes = {node.node: (node.op_type, node.reason) for node in nodes}
    groups: dict[tuple[str, str], list[str]] = {}
    behind: Counter[tuple[str, str]] = Counter()
    for node in nodes:
        cause = node.reason.removeprefix(UNKNOWN_BECAUSE) if node.reason.startswith(UNKNOWN_BECAUSE) else node.node
        key = causes.get(cause, (node.op_type, node.reason))
        if cause == node.node or cause not in causes:
            groups.setdefault(key, []).append(node.node)
        else:
            behind[key] += 1
            groups.setdefault(key, [])
    found = (
        UnsupportedGroup(
            op_type=op_type, reason=reason, node=names[0], node_count=len(names), behind_count=behind[op_type, reason]
        )
        for (op_type, reason), names in groups.items()
    )
    return tuple(sorted(found, key=lambda group: -(group.node_count + group.behind_count)))


def nothing_costed(report: Report) -> str | None:
    """Why no time could be worked out at all: the first cause; None where something could, or nothing takes time."""
    if report.kernels or not report.totals.partial:
        return None
    causes = (notice.message for notice in report.warnings if notice.code == "input-shape-unknown")
    first = next(iter(report.unsupported), None)
    return next(causes, None) or (
        f"{first.op_type} '{first.node}': {first.reason}" if first else "nothing is supported"
    )


def interval_assumption(report: Report) -> tuple[str, ...]:
    """How the interval was made, to stand with the assumptions; nothing where there is no interval."""
    totals = report.totals
    if not totals.interval_method or nothing_costed(report) is not None:
        return ()
    return (f"{totals.interval * 100:.0f} % interval: {totals.interval_method}",)


_MOST_ALIKE = 2
_NAME = re.compile(r"'[^']*'|--[a-z-]+ \S+")
_FIGURE = re.compile(r"\d[\d.,]*")


def folded(sentences: Iterable[str]) -> list[str]:
    """Sentences that differ in names only, or in names and figures (one for each of 96 experts, of ten NonZero): the
    first two, and how many are like them. Other figures of one name are another statement."""
    alike: dict[str, list[str]] = {}
    seen: set[tuple[str, ...]] = set()
    for sentence in _machines_together(_gpus_together(_sizes_together(sentences))):
        kind = _FIGURE.sub("0", _NAME.sub("'", sentence))
        named = (kind, *_NAME.findall(sentence))
        alike.setdefault(sentence if named in seen else kind, []).append(sentence)
        seen.add(named)
    shown = []
    for group in alike.values():
        if len(group) <= _MOST_ALIKE + 1:
            shown += group
        else:
            more = len(group) - _MOST_ALIKE
            shown += [*group[: _MOST_ALIKE - 1], f"{group[_MOST_ALIKE - 1]} (and {more} more like this)"]
    return shown


_OPEN_SIZE = re.compile(r"(.+ = \d+) \(default, the model leaves it free; --dim ('?)(.+)=N\2 changes it\)")


_MOST_OPTIONS = 4
_MOST_SIZES = 12


def _sizes_together(sentences: Iterable[str]) -> list[str]:
    """Sizes that stand in for open dims in one sentence, where the first is (graph/bindings.py has one for each)."""
    found = list(sentences)
    if any(match is not None and match[2] for match in map(_OPEN_SIZE.fullmatch, found)):
        return found

    def together(sizes: Sequence[re.Match[str]]) -> str:
        names = ",".join(f"{match[3]}=N" for match in sizes) if len(sizes) <= _MOST_OPTIONS else "NAME=N,..."
        said = [match[1] for match in sizes[:_MOST_SIZES]]
        more = f" and {len(sizes) - len(said)} more" if len(sizes) > len(said) else ""
        return f"{', '.join(said)}{more} (defaults, the model leaves them free; --dim {names} changes them)"

    return _together(found, _OPEN_SIZE, together)


_ONE_OF_SEVERAL = re.compile(r"GPU: ('[^']+') is taken as ('[^']+'); --gpu (.+) for the others?")
_OF_A_MACHINE = re.compile(r"GPU: ('[^']+') is taken as one ('[^']+') (\(which GPUs a cloud's machine has .+\))")


def _gpus_together(sentences: Iterable[str]) -> list[str]:
    """Names that several GPUs share in one sentence (assumptions/run.py has one for each)."""

    def together(matches: Sequence[re.Match[str]]) -> str:
        first, *more = matches
        others = [match[3].replace(" or ", ", ") for match in matches]
        taken = [f"{first[1]} is taken as {first[2]} (not {others[0]})"]
        taken += [f"{match[1]} as {match[2]} (not {other})" for match, other in zip(more, others[1:], strict=True)]
        return f"GPUs: {', '.join(taken)}; --gpu takes any of them"

    return _together(sentences, _ONE_OF_SEVERAL, together)


def _machines_together(sentences: Iterable[str]) -> list[str]:
    """The GPUs of several machines in one sentence."""

    def together(matches: Sequence[re.Match[str]]) -> str:
        first, *more = matches
        taken = [f"{first[1]} is taken as one {first[2]}", *(f"{match[1]} as one {match[2]}" for match in more)]
        return f"GPUs: {', '.join(taken)} {first[3]}"

    return _together(sentences, _OF_A_MACHINE, together)


def _together(
    sentences: Iterable[str], form: re.Pattern[str], said: Callable[[Sequence[re.Match[str]]], str]
) -> list[str]:
    """``sentences``, with what is ``said`` of all that have the form in the place of the first, where several do."""
    found = list(sentences)
    matches = {at: match for at, sentence in enumerate(found) if (match := form.fullmatch(sentence)) is not None}
    if len(matches) < 2:
        return found
    first = next(iter(matches))
    found[first] = said(list(matches.values()))
    return [sentence for at, sentence in enumerate(found) if at == first or at not in matches]


def place_of(row: KernelRow) -> str:
    """Where a kernel comes from: its node; for several what their names have in common and the rest of each.

    ("/h.0/fc/MatMul", "/h.0/fc/Add") -> "/h.0/fc/MatMul+Add"; beyond three nodes "/h.0/ln/(9 nodes)".
    """
    if len(row.nodes) <= 1:
        return row.nodes[0] if row.nodes else row.id
    first, last = min(row.nodes), max(row.nodes)
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    prefix = first[: first.rfind("/", 0, length + 1) + 1]
    if len(row.nodes) <= _MOST_NODES_NAMED:
        return prefix + "+".join(node[len(prefix) :] for node in row.nodes)
    return f"{prefix}({len(row.nodes)} nodes)" if len(prefix) > 1 else f"{row.nodes[0]} (+{len(row.nodes) - 1})"


def merged_text(row: KernelRow) -> str:
    """The operators that a kernel stands for, where :func:`place_of` only counts its nodes; else nothing.

    Each operator once, in the order of the nodes: "MatMul+Add+Div+Erf+Mul".
    """
    if len(row.nodes) <= _MOST_NODES_NAMED:
        return ""
    more = "+..." if len(row.op_types) > _MOST_OPERATORS_NAMED else ""
    return "+".join(row.op_types[:_MOST_OPERATORS_NAMED]) + more


def common_name(names: Sequence[str]) -> str:
    """One name for many: numbers that vary become "*", names that differ otherwise are counted.

    ("/h.0/fc", "/h.1/fc") -> "/h.*/fc"; ("/h.0/q", "/h.0/k", "/h.1/q", "/h.1/k") -> "/h.*/q and 1 more".
    """
    alike: dict[tuple[str, ...], list[list[str]]] = defaultdict(list)
    for name in dict.fromkeys(names):
        parts = re.split(r"(\d+)", name)
        alike[tuple(parts[::2])].append(parts)
    members = next(iter(alike.values()))
    first = members[0]
    varying = {i for i in range(1, len(first), 2) if any(parts[i] != first[i] for parts in members)}
    shown = "".join("*" if i in varying else text for i, text in enumerate(first)).replace("(* nodes)", "(nodes)")
    return shown if len(alike) == 1 else f"{shown} and {len(alike) - 1} more"


def _slices(report: Report, labelled: Iterable[tuple[str, KernelRow]]) -> tuple[Slice, ...]:
    groups: dict[str, list[KernelRow]] = defaultdict(list)
    for label, row in labelled:
        groups[label].append(row)
    found = []
    for label, rows in groups.items():
        latency_us = sum(row.latency_us for row in rows)
        found.append(
            Slice(
                label=label,
                kernel_count=sum(row.count for row in rows),
                latency_us=latency_us,
                share=_share(latency_us, report),
                flops=sum(row.flops for row in rows),
                byte_count=sum(row.read_bytes + row.write_bytes for row in rows),
            )
        )
    return tuple(sorted(found, key=lambda part: -part.latency_us))


def _share(latency_us: float, report: Report) -> float:
    total_us = report.totals.latency_ms * 1e3
    return latency_us / total_us if total_us > 0 else 0.0
