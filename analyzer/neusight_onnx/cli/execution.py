"""How a model is executed: options that every command has which costs one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from neusight_onnx.cli.options import (
    ChannelsLastOption,
    CudaGraphOption,
    IncludeIoOption,
    Precision,
    PrecisionOption,
    RuntimeOption,
)
from neusight_onnx.errors import TrainingError

if TYPE_CHECKING:
    from neusight_onnx.backward import Training


class Mode(StrEnum):
    INFERENCE = "inference"
    TRAINING = "training"


class Optimizer(StrEnum):
    ADAMW = "adamw"
    ADAMW_FUSED = "adamw-fused"
    ADAM = "adam"
    ADAM_FUSED = "adam-fused"
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


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Whether a step of training is predicted, and which."""

    mode: ModeOption = Mode.INFERENCE
    optimizer: OptimizerOption = None
    loss: LossOption = None
    recompute: RecomputeOption = None
    grad_accumulation: AccumulationOption = None
    freeze: FreezeOption = None
    dropout: DropoutOption = None

    def plan(self) -> Training | None:
        """The plan that the options say; None at inference, where none of them may be given (TrainingError)."""
        given = {
            "--optimizer": self.optimizer,
            "--loss": self.loss,
            "--recompute": self.recompute,
            "--grad-accumulation": self.grad_accumulation,
            "--freeze": self.freeze or None,
            "--dropout": self.dropout,
        }
        if self.mode is Mode.INFERENCE:
            named = [option for option, value in given.items() if value is not None]
            if named:
                raise TrainingError(f"{named[0]} is about training; add --mode training")
            return None
        from neusight_onnx.backward import make_training

        return make_training(
            optimizer=(self.optimizer or Optimizer.ADAMW).value,
            loss=(self.loss or Loss.CROSS_ENTROPY).value,
            recompute=(self.recompute or Recompute.NONE).value,
            grad_accumulation=1 if self.grad_accumulation is None else self.grad_accumulation,
            freeze=self.freeze or (),
            dropout=self.dropout,
        )


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What is run: inference or a step of training, how the host starts it, whether its inputs come from there, and in
    which order images lie."""

    cuda_graph: CudaGraphOption = False
    include_io: IncludeIoOption = False
    channels_last: ChannelsLastOption = False
    training: TrainingOptions


@dataclass(frozen=True, kw_only=True)
class Execution:
    """One number format and one runtime, and what is run in them."""

    precision: PrecisionOption = Precision.AUTO
    runtime: RuntimeOption = None
    run: RunOptions
