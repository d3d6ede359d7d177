"""``annotate``: the model with what each node costs written into it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neusight_onnx.cli.execution import Execution
from neusight_onnx.cli.files import gpu_file, model_path, one_gpu, target_path
from neusight_onnx.cli.options import ModelArgument, OneGpuOption
from neusight_onnx.cli.output import STANDARD_OUTPUT, check_target, emit_file
from neusight_onnx.cli.progress import working
from neusight_onnx.cli.sizes import Sizes
from neusight_onnx.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neusight_onnx.backward import Training
    from neusight_onnx.graph.bindings import Bindings

EXAMPLES = """\
Examples:

\b
  neusight-onnx annotate model.onnx --gpu a100 --batch 8 -o annotated.onnx
  neusight-onnx annotate model.onnx --gpu a100 -o model.onnx --force
"""


def annotate_command(
    model: ModelArgument,
    gpus: OneGpuOption,
    output: Annotated[
        str,
        typer.Option("-o", "--output", metavar="OUT.onnx", help="The file to write, beside the model's weights."),
    ],
    sizes: Sizes,
    execution: Execution,
    force: Annotated[bool, typer.Option("--force", help="OUT.onnx may be MODEL itself.")] = False,
) -> None:
    """Write MODEL anew with the latency of each node, for Netron. The shape of each value is in it, too."""
    gpu = one_gpu(gpus)
    path, target = model_path(model), target_path(output)
    assert target is not None
    if target == STANDARD_OUTPUT:
        raise OutputError("annotate writes a file; give its name to -o")
    own = [] if force else [(path, "the model itself; --force lets it be replaced")]
    check_target(target, *own, *((file, "the GPU file itself") for file in gpu_file(gpu)))
    with working(f"annotating {path.name} for {gpu}"):
        bindings, training = sizes.bindings(), execution.run.training.plan()
        from neusight_onnx.annotation import annotation_of, write_annotated

        _check_weights(path, target)
        annotation = annotation_of(
            path,
            gpu=gpu,
            dims=bindings.dims,
            shapes=bindings.shapes,
            values=bindings.values,
            trip_counts=bindings.trip_counts,
            batch=bindings.batch,
            precision=execution.precision.value,
            runtime=execution.runtime,
            cuda_graph=execution.run.cuda_graph,
            include_io=execution.run.include_io,
            channels_last=execution.run.channels_last,
            training=training,
        )
        emit_file(lambda file: write_annotated(annotation, file), target)


def model_explorer_text(
    path: Path, gpu: str, bindings: Bindings, execution: Execution, training: Training | None
) -> str:
    """The overlay for Model Explorer; see :func:`~neusight_onnx.report.model_explorer.to_model_explorer`."""
    from neusight_onnx.annotation import annotation_of
    from neusight_onnx.graph.source import SourceNode
    from neusight_onnx.report.model_explorer import to_model_explorer

    annotation = annotation_of(
        path,
        gpu=gpu,
        dims=bindings.dims,
        shapes=bindings.shapes,
        values=bindings.values,
        trip_counts=bindings.trip_counts,
        batch=bindings.batch,
        precision=execution.precision.value,
        runtime=execution.runtime,
        cuda_graph=execution.run.cuda_graph,
        include_io=execution.run.include_io,
        channels_last=execution.run.channels_last,
        training=training,
    )

    def latency_us(node: SourceNode) -> float | None:
        cost = annotation.cost_of(node)
        return cost.latency_us if cost is not None and cost.kernel_classes else None

    title = f"latency on {annotation.report.gpu.label} in us, predicted"
    return to_model_explorer(annotation.source, latency_us, title=title)


def _check_weights(path: Path, target: Path) -> None:
    """Refuses a place that is one of the model's weights, or from which the model would not find them."""
    from neusight_onnx.graph.read import read_model
    from neusight_onnx.inspection import external_files

    locations = external_files(read_model(path))
    # a model that is a link may have its weights beside the file that it links to
    folders = (path.parent, Path(os.path.realpath(path)).parent)
    check_target(
        target, *((folder / name, "a file of the model's weights") for name in locations for folder in folders)
    )
    _refuse_lost(locations, folders, target)


def _refuse_lost(locations: Sequence[str], folders: Sequence[Path], target: Path) -> None:
    """A location is relative to the model's folder and may not leave it: OUT must be where the weights are.

    Links to them elsewhere would not do: onnx refuses weights that are links.
    """
    reached = Path(os.path.realpath(target)).parent
    for location in locations:
        holders = [folder for folder in folders if os.path.exists(folder / location)]
        # weights that are not there are not lost
        if holders and not any(folder.samefile(reached) for folder in holders):
            raise OutputError(
                f"{target} would not find the weights {location}, which a model looks for in its own folder; "
                f"write it to {holders[0]}"
            )
