"""Options of training, the same for every command that predicts."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from neusight_onnx.errors import TrainingError

if TYPE_CHECKING:
    from neusight_onnx.backward import Training


class Mode(StrEnum):
    INFERENCE = "inference"
    TRAINING = "training"


class Optimizer(StrEnum):
    ADAMW = "adamw"
    ADAM = "adam"
    MOMENTUM = "momentum"
    SGD = "sgd"
    NONE = "none"


class Loss(StrEnum):
    CROSS_ENTROPY = "cross-entropy"
    MSE = "mse"
    NONE = "none"


class Recompute(StrEnum):
    NONE = "none"
    BLOCKS = "blocks"
    ALL = "all"


ModeOption = Annotated[Mode, typer.Option("--mode", help="What is predicted: a run, or a step of training.")]
OptimizerOption = Annotated[
    Optimizer | None,
    typer.Option("--optimizer", help="Training: what steps.", show_default="adamw"),
]
LossOption = Annotated[
    Loss | None,
    typer.Option("--loss", help="Training: the loss behind the results.", show_default="cross-entropy"),
]
RecomputeOption = Annotated[
    Recompute | None,
    typer.Option(
        "--recompute", help="Training: run forward again what isn't kept for the gradients.", show_default="none"
    ),
]
AccumulationOption = Annotated[
    int | None,
    typer.Option(
        "--grad-accumulation", metavar="N", help="Training: runs before each step of the optimizer.", show_default="1"
    ),
]
FreezeOption = Annotated[
    list[str] | None,
    typer.Option("--freeze", metavar="PATTERN", help="Training: weights that stay as they are, such as 'encoder*'."),
]
DropoutOption = Annotated[
    str | None,
    typer.Option(
        "--dropout",
        metavar="RATES|off",
        help="Training: put dropout where models have it, or nowhere.",
        show_default="as the file says",
    ),
]


def training_plan(
    mode: Mode,
    *,
    optimizer: Optimizer | None,
    loss: Loss | None,
    recompute: Recompute | None,
    grad_accumulation: int | None,
    freeze: list[str] | None,
    dropout: str | None,
) -> Training | None:
    """The plan that the options say; None at inference, where none of them may be given."""
    given = {
        "--optimizer": optimizer,
        "--loss": loss,
        "--recompute": recompute,
        "--grad-accumulation": grad_accumulation,
        "--freeze": freeze or None,
        "--dropout": dropout,
    }
    if mode is Mode.INFERENCE:
        named = [option for option, value in given.items() if value is not None]
        if named:
            raise TrainingError(f"{named[0]} is about training; add --mode training")
        return None
    from neusight_onnx.backward import make_training

    return make_training(
        optimizer=(optimizer or Optimizer.ADAMW).value,
        loss=(loss or Loss.CROSS_ENTROPY).value,
        recompute=(recompute or Recompute.NONE).value,
        grad_accumulation=1 if grad_accumulation is None else grad_accumulation,
        freeze=freeze or (),
        dropout=dropout,
    )
