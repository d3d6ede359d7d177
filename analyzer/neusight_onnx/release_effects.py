"""What of an earlier release's ways a model meets: most that a release did otherwise concerns other models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any

from neusight_onnx.kernels import NodeWork
from neusight_onnx.preparation import PreparedModel, prepare
from neusight_onnx.releases import Change
from neusight_onnx.runtime import Runtime

_MOST_WORKS = 20_000
"""Nodes to lower anew, if each change were tried twice: about half a second. Larger models have all changes told."""


def changes_met(
    prepared: PreparedModel, works_of: Callable[[PreparedModel], Sequence[NodeWork]]
) -> tuple[Change, ...] | None:
    """The later changes that matter to a model: made in its release alone, or undone in the newest alone, they change
    what is executed (two may hide each other from one of the two sides).

    ``works_of``: what is executed of a prepared model. It is prepared anew for the release and for the newest, and then
    only for changes of what was asked of the runtime on the way. None where that could take long.
    """
    runtime = prepared.runtime
    changes = runtime.undone(training=prepared.trained is not None)
    if not changes:
        return ()
    if 2 * len(changes) * len(prepared.work) > _MOST_WORKS:
        return None
    later = [change for change in runtime.history.after(runtime.described_release) if not change.only_widens]
    known: list[tuple[Runtime, list[object]]] = []

    def executed(undone: Iterable[Change], asked: set[str] | None = None) -> list[object]:
        variant = runtime.undoing(undone)
        for other, works in known:
            if other == variant:
                return works
        run = variant if asked is None else watched(variant, asked)
        works = list(_executed(works_of(_prepared_for(run, prepared))))
        known.append((variant, works))
        return works

    asked_then: set[str] = set()
    asked_now: set[str] = set()
    then, now = executed(later, asked_then), executed((), asked_now)
    return tuple(
        change
        for change in changes
        if (not asked_then.isdisjoint(change.names) and executed(each for each in later if each is not change) != then)
        or (not asked_now.isdisjoint(change.names) and executed((change,)) != now)
    )


def watched(runtime: Runtime, asked: set[str]) -> Runtime:
    """``runtime``, which adds to ``asked`` the fields of it that are read, and the rules of which it is asked whether
    it lacks them."""

    class Watched(Runtime):
        __slots__ = ()

        def __getattribute__(self, name: str) -> Any:
            asked.add(name)
            return super().__getattribute__(name)

        def run_with(self, **state: bool) -> Runtime:
            return watched(runtime.run_with(**state), asked)

    class Lacks(frozenset[str]):
        def __contains__(self, name: object) -> bool:
            asked.add(str(name))
            return super().__contains__(name)

    values = {each.name: getattr(runtime, each.name) for each in fields(runtime)}
    return Watched(**{**values, "lacks": Lacks(runtime.lacks)})


def _prepared_for(runtime: Runtime, prepared: PreparedModel) -> PreparedModel:
    return prepare(
        prepared.shaped,
        precision=prepared.precision,
        runtime=runtime,
        include_io=prepared.include_io,
        training=None if prepared.trained is None else prepared.trained.plan,
        memory=prepared.memory,
    )


def _executed(works: Sequence[NodeWork]) -> Iterator[object]:
    """What costs time of works, and whose fault it is that something doesn't run."""
    for work in works:
        if work.kernels or work.host_operation or work.unsupported is not None:
            yield work.kernels, work.alternatives, work.count, work.host_waits, work.unsupported
