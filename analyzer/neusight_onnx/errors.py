"""What a user can cause, and can mend. The CLI prints the message on one line and exits with ``exit_code``."""

from __future__ import annotations


class NeusightError(Exception):
    """A fault in what the user gave: the message says what is wrong, where, and what would do.

    ``code`` is stable and machine-readable; it never changes once released.
    """

    code = "error"
    exit_code = 2


class ModelError(NeusightError):
    """The model file can't be read, or contradicts itself. ``node`` names the operator at fault, where it is one.

    ``at_any_size``: whether it is so whatever sizes the inputs have; False where that isn't known.
    """

    code = "model"

    def __init__(self, message: str = "", *, node: str | None = None, at_any_size: bool = False) -> None:
        super().__init__(message)
        self.node = node
        self.at_any_size = at_any_size


class BindingError(NeusightError):
    """A ``--dim``, ``--shape`` or ``--value`` that the model does not have, or that contradicts another."""

    code = "binding"


class SpecError(NeusightError):
    """An unknown GPU, or a GPU file with a missing, unknown or impossible key."""

    code = "gpu"


class PredictorError(NeusightError):
    """A predictor is missing, or is not the one that its manifest describes."""

    code = "predictor"


class DataError(NeusightError):
    """Measured data that can't be read."""

    code = "data"


class NotSupportedError(NeusightError):
    """Something that neusight-onnx has no model of yet; the message says what is supported."""

    code = "unsupported"


class OptionError(NeusightError, TypeError):
    """An argument from Python of a type that it can't have: no precision, a runtime that is a number."""

    code = "option"


class OutputError(NeusightError):
    """The report can't be written where it should go."""

    code = "output"


class CheckError(NeusightError):
    """A limit, an allowance or a configuration of ``check`` that can't be meant."""

    code = "check"


class ComparisonError(NeusightError):
    """Something asked of ``compare``, ``sweep``, ``diff`` or a what-if that can't be meant."""

    code = "comparison"


class TrainingError(NeusightError):
    """A way of training that can't be meant, or a model with nothing to train."""

    code = "training"


def shown(name: str, limit: int = 80) -> str:
    """``name`` as it can stand in a one-line message: cut at ``limit`` characters, nothing unprintable."""
    short = name if len(name) <= limit else name[:limit] + "…"
    return short if short.isprintable() else short.encode("unicode_escape").decode("ascii")
