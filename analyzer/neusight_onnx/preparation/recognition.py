"""The graph that a runtime is given, and what it executes as one in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.folded_norms import with_folded_norms
from neusight_onnx.fusion.known_shapes import with_named_shapes
from neusight_onnx.fusion.patterns.search import Verdict
from neusight_onnx.fusion.runtimes import FusedBefore, fused_and_said
from neusight_onnx.graph.dimension_roles import is_called_cache
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.lowering.precision import as_precision
from neusight_onnx.memory.caches import cache_pairs
from neusight_onnx.precision import Precision, is_of_pairs
from neusight_onnx.preparation.training import in_form_for_training
from neusight_onnx.preparation.ways import allows_by_flags
from neusight_onnx.runtime import Runtime

if TYPE_CHECKING:
    from neusight_onnx.backward import Training


def _in_pytorch(runtime: Runtime) -> bool:
    return runtime.name in ("eager", "compiled")


def as_parsed(graph: InferredGraph, precision: Precision, runtime: Runtime, *, in_training: bool) -> InferredGraph:
    """The graph that the runtime is given: modules as PyTorch has them, converted to ``precision``; nothing merged."""
    if _in_pytorch(runtime):
        from neusight_onnx.fusion.embedding_bags import with_embedding_bags

        graph = with_embedding_bags(graph)
    graph = _before_recognition(graph, precision, runtime)
    narrow_model = precision.plain is not None and precision.plain.bits < DataType.FLOAT32.bits
    if runtime.name == "eager" and narrow_model and not precision.mixed and not in_training:
        from neusight_onnx.fusion.module_norms import with_module_norms

        graph = with_module_norms(graph, runtime=runtime)
    return graph


def recognise(
    parsed: InferredGraph,
    precision: Precision,
    runtime: Runtime,
    training: Training | None,
    *,
    explained: bool,
    before: FusedBefore,
) -> tuple[InferredGraph, tuple[Verdict, ...]]:
    """What the runtime executes as one stands together, in the form for ``training`` if that is asked for, each node
    in the type that autocast gives it; and what the rules said, where that is to be ``explained``."""
    called = parsed
    if runtime.calls_attention and precision.name not in ("fp32", "tf32"):
        from neusight_onnx.fusion.called_attention import with_called_attention

        called = with_called_attention(
            parsed, runtime=runtime, autocast=precision.mixed and precision.plain is not None
        )
    recognised, verdicts = fused_and_said(called, runtime, explained=explained, before=before)
    if training is not None:
        recognised = in_form_for_training(recognised, training)
    elif _in_pytorch(runtime):
        recognised = with_folded_norms(recognised)
        if runtime.name == "eager":
            from neusight_onnx.fusion.truth_masks import with_truth_masks

            recognised = with_truth_masks(recognised)
    if precision.mixed and _in_pytorch(runtime) and precision.plain is not None:
        from neusight_onnx.lowering.autocast import autocast

        recognised = autocast(recognised, precision.plain, runtime=runtime.name, in_training=training is not None)
    return recognised, verdicts


def _cache_names(graph: InferredGraph) -> frozenset[str]:
    """The inputs and outputs that hold keys and values of earlier tokens, an encoder's among them.

    ONNX Runtime's own tools convert them along with the weights: ``convert_to_onnx`` of its Llama and Phi-2
    (``keep_io_types=False``), those of GPT-2 and T5 keep logits at most (``onnxruntime.transformers.models`` of 1.32).
    """
    pairs = cache_pairs(graph)
    if not pairs:
        return frozenset()
    read = (declared.name for declared in graph.graph.inputs if is_called_cache(declared.name))
    return frozenset(read).union(*((pair.past, pair.present) for pair in pairs))


def _before_recognition(graph: InferredGraph, precision: Precision, runtime: Runtime) -> InferredGraph:
    if is_of_pairs(precision, runtime.narrow_products):
        from neusight_onnx.fusion.quantization.static import with_static_quantization

        return with_static_quantization(graph)
    if precision.plain is None:
        return graph
    in_pytorch = _in_pytorch(runtime)
    if precision.mixed and in_pytorch:
        return as_precision(graph, DataType.FLOAT32)
    if precision.mixed or (precision.weights is not None and not in_pytorch):
        from neusight_onnx.lowering.conversion import converted

        # TensorRT takes the types of inputs and outputs from the file, which its quantiser leaves as they are (Model
        # Optimizer's ``direct_io_types`` is False by default); who stores weights in few bits for ONNX Runtime has a
        # decoder's file in 16 bits from end to end, its cache included
        keeps_io = precision.mixed or runtime.name == "tensorrt"
        by_flag = allows_by_flags(precision, runtime)
        caches = _cache_names(graph) if runtime.name == "onnxruntime" else frozenset()
        made = converted(
            graph, precision.plain, runtime=runtime.name, keeps_io=keeps_io, caches=caches, by_flag=by_flag
        )
        names_shapes = precision.mixed and runtime.name == "onnxruntime" and runtime.converted_sizes_have_names
        return with_named_shapes(made) if names_shapes else made
    return as_precision(graph, precision.plain)
