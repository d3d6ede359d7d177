"""Options that several commands share: one name, one help text, one meaning."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer

from neusight_onnx.errors import NeusightError


class TableFormat(StrEnum):
    RICH = "rich"
    JSON = "json"


class GpuFormat(StrEnum):
    RICH = "rich"
    JSON = "json"
    CSV = "csv"
    TOML = "toml"


class ListFormat(StrEnum):
    RICH = "rich"
    JSON = "json"
    MARKDOWN = "markdown"


class Precision(StrEnum):
    AUTO = "auto"
    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP16_MODEL = "fp16-model"
    BF16_MODEL = "bf16-model"
    INT8 = "int8"
    INT4W = "int4w"
    FP8 = "fp8"
    FP4 = "fp4"


class RuntimeName(StrEnum):
    """Names that a shell completes; a release may stand behind one ("onnxruntime@1.9")."""

    EAGER = "eager"
    COMPILED = "compiled"
    ONNXRUNTIME = "onnxruntime"
    TENSORRT = "tensorrt"
    TORCHSCRIPT = "torchscript"


def runtimes_begun(incomplete: str) -> list[str]:
    """For a shell that completes ``--runtime``: the runtimes whose names begin so."""
    return [name.value for name in RuntimeName if name.startswith(incomplete)]


def _known_runtime(called: str | None) -> str | None:
    from neusight_onnx.runtime import get_runtime

    if called is not None:
        try:
            get_runtime(called)
        except NeusightError as error:
            raise typer.BadParameter(str(error)) from None
    return called


def gpus_begun(incomplete: str) -> list[str]:
    """For a shell that completes ``--gpu``: the names of shipped GPUs that begin so; none, and it takes files."""
    from neusight_onnx.data_files import data_folder

    return sorted(path.stem for path in data_folder("specs").glob("*.toml") if path.stem.startswith(incomplete.lower()))


def list_begun(names: type[StrEnum]) -> Callable[[str], list[str]]:
    """For a shell that completes a list of ``names``: with each name that its last one may become."""

    def begun(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [
            f"{before}{comma}{name}" for name in names if name.startswith(last) and name.value not in before.split(",")
        ]

    return begun


# Paths stay texts until they are used: what is wrong with one is then said by who reads it, an empty one included.
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="The ONNX file; its weights are not needed.")]
BatchOption = Annotated[
    str | None,
    typer.Option("--batch", metavar="SIZE", help="Size of the batch, whatever the model calls it: 8."),
]
BatchListOption = Annotated[
    list[str] | None,
    typer.Option(
        "--batch", metavar="SIZES", help="Sizes of the batch, whatever the model calls it: 1,8,32 or 1..64*2."
    ),
]
DimOption = Annotated[
    list[str] | None,
    typer.Option("--dim", metavar="NAME=SIZE", help="Size of a symbolic dim: batch=8, or batch=8,seq=512."),
]
DimListOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dim", metavar="NAME=SIZES", help="Sizes of a symbolic dim: batch=1,8,32 or batch=1..64*2,seq=128..512+128."
    ),
]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=SHAPE",
        help="Shape of an input (or of a value that is not known): ids=8x512, or ids=8x512,step=scalar; "
        "'boxes_*=200x4' is one for every name that the pattern matches.",
    ),
]
ValueOption = Annotated[
    list[str] | None,
    typer.Option(
        "--value",
        metavar="NAME=VALUE",
        help="Value of an input (or of counts that a network predicts) that shapes depend on: n=16 or n=[1,3].",
    ),
]
TripCountOption = Annotated[
    list[str] | None,
    typer.Option("--trip-count", metavar="NODE=N", help="How often the body of a Loop or Scan runs."),
]
# A list, so that a second one can be refused: a plain text would be the last one given, without a word.
OneGpuOption = Annotated[
    list[str],
    typer.Option(
        "--gpu", metavar="NAME|FILE.toml", help="A GPU's name, or a file about it.", autocompletion=gpus_begun
    ),
]
GpusOption = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu",
        metavar="NAME|FILE.toml",
        help="A GPU's name, or a file about it; several as a100,l4, or repeated.",
        autocompletion=gpus_begun,
    ),
]
OutputOption = Annotated[
    str | None,
    typer.Option("-o", "--output", metavar="FILE", help="Write to this file instead of standard output."),
]
TableFormatOption = Annotated[TableFormat, typer.Option("--format", help="How to print it.")]
PrecisionOption = Annotated[
    Precision,
    typer.Option(
        "--precision",
        metavar="FORMAT",
        help=f"Number format: {', '.join(list(Precision)[:-1])} or {list(Precision)[-1]}; auto is what the model is "
        "stored in, float32 in TF32 where the runtime multiplies it so unasked.",
    ),
]
CudaGraphOption = Annotated[
    bool, typer.Option("--cuda-graph/--no-cuda-graph", help="Replay the run as a CUDA graph: no host time a kernel.")
]
IncludeIoOption = Annotated[
    bool, typer.Option("--include-io", help="Count the copies of inputs and outputs from and to the host.")
]
ChannelsLastOption = Annotated[
    bool,
    typer.Option(
        "--channels-last/--no-channels-last",
        help="Images and filters lie as (n, h, w, c), as PyTorch's memory_format=torch.channels_last.",
    ),
]
DEFAULT_RUNTIMES = "onnxruntime, in training eager"
RuntimeOption = Annotated[
    str | None,
    typer.Option(
        "--runtime",
        metavar="NAME[@RELEASE]",
        help="What executes the model: eager, torchscript, compiled, onnxruntime or tensorrt; "
        "an older release as onnxruntime@1.9.",
        show_default=DEFAULT_RUNTIMES,
        autocompletion=runtimes_begun,
        callback=_known_runtime,
    ),
]
