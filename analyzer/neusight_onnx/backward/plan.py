"""How a model is trained: what a user may choose, checked where it enters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from neusight_onnx.errors import TrainingError, shown

OPTIMIZERS = ("adamw", "adamw-fused", "adam", "adam-fused", "momentum", "sgd", "none")
LOSSES = ("cross-entropy", "mse", "none")
RECOMPUTE = ("none", "blocks", "all")
MOST_ACCUMULATED = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropout:
    """Rates behind the softmax of attention, at the end of a residual branch, and behind the embeddings."""

    attention: float = 0.0
    residual: float = 0.0
    embedding: float = 0.0

    @property
    def is_off(self) -> bool:
        return not (self.attention or self.residual or self.embedding)


DROPOUT_KINDS = ("attention", "residual", "embedding")


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One step of training. The optimizer runs once after ``grad_accumulation`` runs forward and backward.

    ``freeze``: patterns (as a shell writes them) of parameters that stay as they are. ``dropout``: the rates
    where models drop something, None where the file says so. ``gradients_held``: the gradients of the step
    before are still there, so that all are added to (a loop that never clears them).
    """

    optimizer: str = "adamw"
    loss: str = "cross-entropy"
    recompute: str = "none"
    grad_accumulation: int = 1
    freeze: tuple[str, ...] = ()
    dropout: Dropout | None = None
    gradients_held: bool = False


def make_training(
    *,
    optimizer: str = "adamw",
    loss: str = "cross-entropy",
    recompute: str = "none",
    grad_accumulation: int = 1,
    freeze: Sequence[str] = (),
    dropout: str | float | None = None,
) -> Training:
    """The plan of these options; raises TrainingError for one that can't be meant.

    ``dropout``: a rate, its text, rates by kind ("attention=0.1,residual=0.1"), "off", or None (as the file says).
    """
    for option, value, known in (
        ("optimizer", optimizer, OPTIMIZERS),
        ("loss", loss, LOSSES),
        ("recompute", recompute, RECOMPUTE),
    ):
        if value not in known:
            raise TrainingError(f"{option} {shown(value)!r} is not known; choose one of {', '.join(known)}")
    if not 1 <= grad_accumulation <= MOST_ACCUMULATED:
        raise TrainingError(
            f"gradients accumulated over {grad_accumulation} runs; give a number from 1 to {MOST_ACCUMULATED:,}"
        )
    if any(not pattern for pattern in freeze):
        raise TrainingError("the pattern of frozen parameters is empty; write a name, or a pattern such as 'encoder*'")
    return Training(
        optimizer=optimizer,
        loss=loss,
        recompute=recompute,
        grad_accumulation=grad_accumulation,
        freeze=tuple(freeze),
        dropout=_dropout(dropout),
    )


def _dropout(dropout: str | float | None) -> Dropout | None:
    if dropout is None:
        return None
    if dropout == "off":
        return Dropout()
    text = str(dropout)
    if "=" not in text:
        rate = _rate(text, text)
        return Dropout(attention=rate, residual=rate, embedding=rate)
    rates: dict[str, float] = {}
    for part in text.split(","):
        kind, _, rate_text = (piece.strip() for piece in part.partition("="))
        if kind not in DROPOUT_KINDS or kind in rates:
            problem = "is given twice" if kind in rates else f"is no place; there are {', '.join(DROPOUT_KINDS)}"
            raise TrainingError(f"dropout {shown(text)!r}: {shown(kind)!r} {problem}")
        rates[kind] = _rate(rate_text, text)
    return Dropout(**rates)


def _rate(text: str, whole: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not (isfinite(rate) and 0.0 <= rate < 1.0):
        raise TrainingError(
            f"dropout {shown(whole)!r} is no rate; give one from 0 to below 1, such as 0.1 or "
            "attention=0.1,residual=0.1, or 'off'"
        )
    return rate
