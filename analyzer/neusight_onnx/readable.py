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
    LOOKED_AT,
    OPSETS,
    OPSETS_ML,
    first_that_reads,
    newest_read,
)
from neusight_onnx.releases.onnxruntime_forms import newer_forms
from neusight_onnx.runtime import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """What of a file a release doesn't read, and what would do: two sentences. ``node``: the first that has it."""

    message: str
    fix: str
    node: str | None = None


def unread(model: Model, runtime: Runtime) -> Iterator[Unread]:
    """What of a file ONNX Runtime's ``release`` refuses, which its newest may take: the opsets, the IR version, and
    operators of com.microsoft by name and by their attributes and how many inputs and outputs they have.

    Nothing where no release was asked for, or one that is newer than all whose files were looked at; nor of other
    runtimes: PyTorch runs the model that the file was exported from, and TensorRT's parser goes by operators, not by
    versions.
    """
    if runtime.name != "onnxruntime" or runtime.release is None:
        return
    release = runtime.newer or runtime.release
    if is_before(LOOKED_AT, release):
        return
    called = f"{runtime.name}@{release_text(release)}"
    for domain, table in (("", OPSETS), ("ai.onnx.ml", OPSETS_ML)):
        opset, newest_opset = model.opsets.get(domain, 0), newest_read(table, release)
        if opset > newest_opset:
            whose = domain or "ai.onnx"
            older = f"opset {newest_opset}{f' of {domain}' if domain else ''} or an older one"
            yield Unread(
                message=f"{called} reads opsets of {whose} up to {newest_opset}, the file imports {opset}",
                fix=_either(first_that_reads(table, opset), f"export the model with {older}"),
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
    later: dict[tuple[str, Release, str], list[str]] = {}
    for node in nodes_of(model.graph):
        since = FIRST_RELEASES.get((node.domain, node.op_type))
        if since is not None and is_before(release, since):
            lacks = f"no {node.op_type}, which came with {release_text(since)}"
            later.setdefault((lacks, since, "export the model without the operator"), []).append(node.name)
        elif node.domain == "com.microsoft":
            for form, since in newer_forms(node, release):
                later.setdefault((form, since, "export the model without it"), []).append(node.name)
    for (lacks, since, otherwise), nodes in later.items():
        count = "1 node" if len(nodes) == 1 else f"{len(nodes):,} nodes"
        yield Unread(message=f"{called} has {lacks} ({count})", fix=_either(since, otherwise), node=nodes[0])


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
