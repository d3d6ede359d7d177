"""Of an If whose condition isn't known before the run one branch is counted: the costlier one. Here that is decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from neusight_onnx.errors import shown
from neusight_onnx.graph.names import option
from neusight_onnx.kernels import NodeWork

NOT_COUNTED = "the other branch of its If is counted"

Cost = tuple[float, ...]
"""What a branch is judged by, the first number first; costs of nodes add up number by number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One If: what each of its branches ("then", "else") costs, and which is counted.

    ``node`` is the file's. In a loop whose trips differ an If is decided for each trip; here such trips are one
    decision for each branch that was counted.
    """

    node: str
    counted: str
    costs: Mapping[str, Cost]
    partial: frozenset[str] = frozenset()
    """Branches some of whose nodes are not supported: they cost more than stands here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """``left_out``: places of the works in branches that aren't counted. ``decisions``: innermost first."""

    left_out: frozenset[int]
    decisions: tuple[Decision, ...]


def choose_branches(works: Sequence[NodeWork], costs: Sequence[Cost], *, least: bool = False) -> Choice:
    """The costlier branch of every undecided If is counted (``least``: the other one), innermost decisions first.

    ``costs``: of each work, all its trips together. Equal costs: the then-branch.
    """
    kept = {place: work.branch for place, work in enumerate(works) if work.branch}
    file_names = {work.node: work.origins[0][0] for work in works if work.origins}
    merged: dict[tuple[str, str], dict[str, Cost]] = {}
    open_branches = set()
    for work in works:
        for mark in work.branch if work.unsupported is not None else ():
            node, _, name = mark.rpartition("/")
            open_branches.add((file_names.get(node, node), name))
    left_out: set[int] = set()
    while depth := max(map(len, kept.values()), default=0):
        deepest = [place for place, branch in kept.items() if len(branch) == depth]
        sums: dict[tuple[str, ...], dict[str, Cost]] = {}
        for place in deepest:
            *around, last = kept[place]
            node, _, name = last.rpartition("/")
            branches = sums.setdefault((*around, node), {"then": (), "else": ()})
            branches[name] = _sum(branches[name], costs[place])
        counted: dict[tuple[str, ...], str] = {}
        for path, branches in sums.items():
            pick = min if least else max
            counted[path] = pick(branches, key=lambda name: branches[name])
            node = file_names.get(path[-1], path[-1])
            total = merged.setdefault((node, counted[path]), {"then": (), "else": ()})
            for name in branches:
                total[name] = _sum(total[name], branches[name])
        for place in deepest:
            *around, last = kept.pop(place)
            node, _, name = last.rpartition("/")
            if counted[(*around, node)] != name:
                left_out.add(place)
            elif around:
                kept[place] = tuple(around)
    decisions = [
        Decision(
            node=node,
            counted=branch,
            costs=branches,
            partial=frozenset(name for name in branches if (node, name) in open_branches),
        )
        for (node, branch), branches in merged.items()
    ]
    return Choice(left_out=frozenset(left_out), decisions=tuple(decisions))


def _sum(first: Cost, second: Cost) -> Cost:
    return tuple(map(sum, zip(first, second, strict=True))) if first else second


def decisions_said(
    decisions: Sequence[Decision],
    deciders: Mapping[str, str],
    written: Callable[[Cost], str],
    *,
    counted: str,
    other: str,
) -> list[str]:
    """A sentence for each decision that matters: what is counted, what the other branch costs, and what would decide.

    ``written`` writes a cost; ``counted`` and ``other`` are words: "the slower branch", "would take".
    """
    said = []
    for decision in decisions:
        lighter = "else" if decision.counted == "then" else "then"
        most, least = decision.costs[decision.counted], decision.costs[lighter]
        if not any(most):
            continue
        decider = deciders.get(decision.node)
        said.append(
            f"If '{shown(decision.node)}': its condition is not known before the run; {counted} '{decision.counted}' "
            f"({written(most)}) is counted, '{lighter}' {other} "
            + (
                f"at least {written(least)}, for not all of it is supported"
                if lighter in decision.partial
                else written(least)
            )
            + (f"; {option('--value', decider, '...')} decides it" if decider is not None else "")
        )
    return said
