"""Whether the release of a runtime that was asked for reads a file at all: what of it came with a later one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from neusight_onnx.graph.bodies import nodes_of
from neusight_onnx.graph.model import Model, Notice
from neusight_onnx.releases import Release, is_before, release_text
from neusight_onnx.releases.onnxruntime_files import (
    FIRST_RELEASES,
    IR_VERSIONS,
    OPSETS,
    first_that_reads,
    newest_read,
)
from neusight_onnx.runtime import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """What of a file a release doesn't read, and what would do: two sentences. ``node``: the first that has it."""

    message: str
    fix: str
    node: str | None = None


def unread(model: Model, runtime: Runtime) -> Iterator[Unread]:
    """What of a file ONNX Runtime's ``release`` refuses, which its newest may take: the opset, the IR version, and
    operators of com.microsoft by name (what forms of them a release has isn't looked at).

    Nothing where no release was asked for, or one that is newer than all that is known.
    """
    if runtime.name != "onnxruntime" or runtime.release is None or runtime.newer is not None:
        return
    release, called = runtime.release, runtime.label
    opset, newest_opset = model.opsets.get("", 0), newest_read(OPSETS, release)
    if opset > newest_opset:
        yield Unread(
            message=f"{called} reads opsets of ai.onnx up to {newest_opset}, the file imports {opset}",
            fix=_either(first_that_reads(OPSETS, opset), f"export the model with opset {newest_opset} or an older one"),
        )
    newest_ir = newest_read(IR_VERSIONS, release)
    if model.ir_version > newest_ir:
        yield Unread(
            message=f"{called} reads IR versions up to {newest_ir}, the file has {model.ir_version}",
            fix=_either(
                first_that_reads(IR_VERSIONS, model.ir_version),
                f"write the file with ir_version {newest_ir}, where it holds nothing newer",
            ),
        )
    later: dict[tuple[str, Release], list[str]] = {}
    for node in nodes_of(model.graph):
        since = FIRST_RELEASES.get((node.domain, node.op_type))
        if since is not None and is_before(release, since):
            later.setdefault((node.op_type, since), []).append(node.name)
    for (op_type, since), nodes in later.items():
        count = "1 node" if len(nodes) == 1 else f"{len(nodes):,} nodes"
        yield Unread(
            message=f"{called} has no {op_type}, which came with {release_text(since)} ({count})",
            fix=_either(since, "export the model without the operator"),
            node=nodes[0],
        )


def unread_notices(model: Model, runtime: Runtime) -> Iterator[Notice]:
    """:func:`unread` as warnings of a prediction, which is made all the same."""
    for found in unread(model, runtime):
        yield Notice(
            code="newer-than-release",
            message=f"{found.message}: that release refuses the file, and what is predicted stands for one like it; "
            f"{found.fix}",
            node=found.node,
        )


def _either(since: Release | None, otherwise: str) -> str:
    return otherwise if since is None else f"take --runtime onnxruntime@{release_text(since)} or later, or {otherwise}"
