"""The steps of preparation in order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from neusight_onnx.collection import no_collection
from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.kernels import NodeWork
from neusight_onnx.lowering.known_numbers import known_apart
from neusight_onnx.lowering.placement import boundary_copies
from neusight_onnx.lowering.precision import stored_precision
from neusight_onnx.memory import RunMemory, run_memory, with_more_weights
from neusight_onnx.operator_host import is_a_row
from neusight_onnx.precision import AUTO, Precision, as_quantised, resolve
from neusight_onnx.preparation.capture import uncapturable
from neusight_onnx.preparation.merged import near_misses
from neusight_onnx.preparation.models import AtOtherSizes, PreparedModel, ShapedModel
from neusight_onnx.preparation.recognition import as_parsed, recognise
from neusight_onnx.preparation.training import require_training, step_of_training
from neusight_onnx.preparation.ways import allows_by_flags, by_engine, casts_count, tactics_of, ways_of
from neusight_onnx.preparation.works import works_of
from neusight_onnx.runtime import Runtime, get_runtime, require_switches

if TYPE_CHECKING:
    from neusight_onnx.backward import Training


def prepare(
    shaped: ShapedModel,
    *,
    precision: Precision,
    runtime: str | Runtime,
    cuda_graph: bool = False,
    include_io: bool = False,
    channels_last: bool = False,
    memory_timeline: bool = False,
    explain_fusion: bool = False,
    training: Training | None = None,
    others: AtOtherSizes | None = None,
    memory: RunMemory | None = None,
) -> PreparedModel:
    """The second step: what ``runtime`` (what ``--runtime`` calls it, or the thing itself) executes in ``precision``.

    ``cuda_graph``: replayed as a graph, where that is possible; ``include_io``: with the copies of inputs and outputs
    from and to the host. ``channels_last``: images and filters lie as (n, *spatial, c), as PyTorch's
    ``memory_format=torch.channels_last`` has it. ``memory_timeline``: keep the bytes alive after each node;
    ``explain_fusion``: and why rules of the runtime that could have merged nodes didn't. ``training``: a step of
    training, not inference; raises TrainingError where the model has nothing to train. ``others``: shared between
    sizes of the model that are prepared alike. ``memory``: stands for what the run needs, where its work alone matters.
    """
    require_switches(cuda_graph=cuda_graph, include_io=include_io)
    others = AtOtherSizes() if others is None else others
    runtime_model = (
        runtime
        if isinstance(runtime, Runtime)
        else get_runtime(runtime, cuda_graph=cuda_graph, channels_last=channels_last)
    )
    if training is not None:
        require_training(training, precision, runtime_model, include_io)
        runtime_model = runtime_model.run_with(records_gradients=True)
    if precision.weights is not None:
        precision = as_quantised(precision, stored_precision(shaped.model), runtime_model.narrow_products)
    with no_collection():
        # converters change the file before anything is recognised in it; autocast sees the operators that run
        graph, known = (shaped.expected, ()) if training is not None else known_apart(shaped.expected)
        graph = as_parsed(graph, precision, runtime_model, in_training=training is not None)
        recognised, verdicts = recognise(
            graph, precision, runtime_model, training, explained=explain_fusion, before=others.fused
        )
        if runtime_model.operator_software and is_a_row(recognised):
            runtime_model = runtime_model.run_with(layers_in_a_row=True)
        trained = None
        if training is None:
            work = works_of(recognised, runtime_model, others=others, parsed=graph)
        else:
            recognised, work, trained = step_of_training(recognised, training, precision, runtime_model)
        recognised, ways, scale_bytes = ways_of(recognised, work, trained, precision, runtime_model)
        if memory is None:
            memory = run_memory(recognised, ways.work, runtime_model.name, timeline=memory_timeline, trained=trained)
            memory = with_more_weights(memory, scale_bytes)
        merged = ways.work
        ways = by_engine(recognised, ways, runtime_model)
        said: tuple[str, ...] = ()
        if runtime_model.captured and (reason := uncapturable(recognised, ways.work, runtime_model)):
            runtime_model = runtime_model.run_with(captured=False)
            said = (f"no CUDA graph: {reason}",)
        if include_io:
            ways = ways.each(partial(_with_boundary_copies, recognised, memory))
        tactics = tactics_of(recognised, ways, precision, runtime_model)
        in_full = None
        if allows_by_flags(precision, runtime_model) and precision.mixed and casts_count(ways.work):
            in_full = prepare(
                shaped,
                precision=resolve(AUTO, DataType.FLOAT32),
                runtime=runtime_model,
                include_io=include_io,
                memory_timeline=memory_timeline,
                explain_fusion=explain_fusion,
            )
    return PreparedModel(
        shaped=shaped,
        precision=precision,
        graph=recognised,
        work=ways.work if trained is None else trained.works,
        work_in_tf32=ways.in_tf32,
        runtime=runtime_model,
        memory=memory,
        include_io=include_io,
        said=said,
        merged=merged,
        near_misses=near_misses(verdicts) if explain_fusion else None,
        unfused=graph,
        trained=trained,
        tactics=tactics,
        in_full=in_full,
        known=known,
        others=others,
    )


def _with_boundary_copies(graph: InferredGraph, memory: RunMemory, work: Sequence[NodeWork]) -> tuple[NodeWork, ...]:
    """Keys and values of earlier tokens stay on the GPU: what a run gives is what the next one takes."""
    resident = frozenset(name for pair in memory.caches for name in (pair.past, pair.present))
    before, behind = boundary_copies(graph, resident)
    return (*([before] if before else []), *work, *([behind] if behind else []))
