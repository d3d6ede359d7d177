"""What of an earlier release's ways a model meets: most that a release did otherwise concerns other models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from neusight_onnx.kernels import NodeWork
from neusight_onnx.preparation import PreparedModel, prepare
from neusight_onnx.releases import Change
from neusight_onnx.runtime import Runtime

_MOST_WORKS = 20_000
"""Nodes to lower anew, of all changes together: about half a second. Larger models have all changes told."""


def changes_met(
    prepared: PreparedModel, works_of: Callable[[PreparedModel], Sequence[NodeWork]]
) -> tuple[Change, ...] | None:
    """The later changes that matter to a model: made in its release alone, or undone in the newest alone, they change
    what is executed (two may hide each other from one of the two sides).

    ``works_of``: what is executed of a prepared model, which is lowered anew for each change. None where that would
    take long.
    """
    runtime = prepared.runtime
    changes = runtime.undone(training=prepared.trained is not None)
    if not changes:
        return ()
    if 2 * len(changes) * len(prepared.work) > _MOST_WORKS:
        return None

    def executed(runtime: Runtime) -> list[object]:
        return list(_executed(works_of(_prepared_for(runtime, prepared))))

    later = list(runtime.history.after(runtime.described_release))
    asked, newest = list(_executed(works_of(prepared))), executed(runtime.undoing(()))
    return tuple(
        change
        for change in changes
        if executed(runtime.undoing(other for other in later if other is not change)) != asked
        or executed(runtime.undoing((change,))) != newest
    )


def _prepared_for(runtime: Runtime, prepared: PreparedModel) -> PreparedModel:
    return prepare(
        prepared.shaped,
        precision=prepared.precision,
        runtime=runtime,
        include_io=prepared.include_io,
        training=None if prepared.trained is None else prepared.trained.plan,
    )


def _executed(works: Sequence[NodeWork]) -> Iterator[object]:
    """What costs time of works, and whose fault it is that something doesn't run."""
    for work in works:
        if work.kernels or work.host_operation or work.unsupported is not None:
            yield work.kernels, work.alternatives, work.count, work.host_waits, work.unsupported
