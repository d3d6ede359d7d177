"""NSX2xx: the file itself, and what lies beside it."""

from __future__ import annotations

from collections.abc import Iterator

from neusight_onnx.checks.registry import Found, Scope, checks
from neusight_onnx.checks.subject import Subject
from neusight_onnx.readable import unread
from neusight_onnx.report.verdict import Severity
from neusight_onnx.runtime import get_runtime


def _noticed(subject: Subject, code: str) -> Iterator[Found]:
    for notice in subject.model.warnings:
        if notice.code == code:
            yield Found(message=notice.message.partition("; analysed from")[0], node=notice.node)


@checks(
    "NSX201",
    "external data missing",
    severity=Severity.ERROR,
    scope=Scope.MODEL,
    explanation="The model keeps tensors in files beside it, and such a file is not there. Analysis needs types and "
    "shapes only, but every runtime refuses to load the model.",
    fix="ship the file in the model's folder, under the name that the model uses",
)
def external_data_missing(subject: Subject) -> Iterator[Found]:
    yield from _noticed(subject, "external-data-missing")


@checks(
    "NSX202",
    "external data cut short",
    severity=Severity.ERROR,
    scope=Scope.MODEL,
    explanation="A file of external data is shorter than the tensors in it need: it was cut off, or belongs to "
    "another export of the model.",
    fix="fetch or export the model and its data again, both together",
)
def external_data_short(subject: Subject) -> Iterator[Found]:
    yield from _noticed(subject, "external-data-short")


@checks(
    "NSX203",
    "weights stripped",
    severity=Severity.ERROR,
    scope=Scope.MODEL,
    explanation="Tensors have types and shapes but no bytes, in the file or beside it: a graph that was published "
    "without its weights. No runtime can execute it.",
    fix="export the model with its weights",
)
def weights_stripped(subject: Subject) -> Iterator[Found]:
    yield from _noticed(subject, "weights-stripped")


@checks(
    "NSX204",
    "IR version unknown",
    severity=Severity.ERROR,
    scope=Scope.MODEL,
    explanation="The file format's version is newer than what is known here. Runtimes refuse IR versions that are "
    "newer than they are.",
    fix="export with an older onnx (or set ir_version), or update the runtime and neusight-onnx's onnx package",
)
def ir_version(subject: Subject) -> Iterator[Found]:
    yield from _noticed(subject, "ir-version-newer")


@checks(
    "NSX205",
    "opset unknown",
    severity=Severity.ERROR,
    scope=Scope.MODEL,
    explanation="The model imports an operator set that is newer than what is known here, so operators may mean "
    "something else than what was analysed. Runtimes refuse opsets that are newer than they are; of a release "
    "that a target names, NSX213 says so.",
    fix="export with an older opset, or update the runtime and neusight-onnx's onnx package",
)
def opset(subject: Subject) -> Iterator[Found]:
    yield from _noticed(subject, "opset-newer")


@checks(
    "NSX213",
    "newer than the release of its runtime",
    severity=Severity.ERROR,
    scope=Scope.TARGET,
    explanation="The target names a release of ONNX Runtime (onnxruntime@1.9) that refuses the file: it reads opsets "
    "and IR versions up to those of its time, and of com.microsoft the operators that it came with, with the "
    "attributes, inputs and outputs that they had. What was judged stands for a file like this one that the "
    "release takes. Which release came with what is known of 1.4 to 1.32, by what they refuse (what 1.32 executes was "
    "not looked at: it is predicted as 1.31); values of attributes, types of inputs and releases of other runtimes "
    "aren't looked at (TensorRT's parser goes by operators, PyTorch runs the model itself).",
    fix="take a later release, or export the model for this one",
)
def newer_than_the_release(subject: Subject) -> Iterator[Found]:
    for found in unread(subject.model, get_runtime(subject.target.runtime)):
        yield Found(message=found.message, node=found.node, fix=found.fix)
