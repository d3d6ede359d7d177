"""What several analyses share is worked out once: the file, its shapes at some sizes, its lowering for a runtime."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from neusight_onnx.errors import ModelError
from neusight_onnx.gpu import GpuSpec, checked_gpu, load_gpu
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.model import Model
from neusight_onnx.graph.read import read_model
from neusight_onnx.graph.shapes import Memo
from neusight_onnx.precision import Precision
from neusight_onnx.preparation import AtOtherSizes, PreparedModel, ShapedModel, infer_shapes, prepare

if TYPE_CHECKING:
    from neusight_onnx.backward import Training

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
_Way: TypeAlias = "tuple[Precision, str, Training | None, bool, bool, bool]"
"""How a model is prepared: what :meth:`Workbench.prepared` takes beside the shapes."""


def kept(store: dict[K, T], key: K, make: Callable[[], T]) -> T:
    """What ``store`` has under ``key``, made now if it has nothing there."""
    if key not in store:
        store[key] = make()
    return store[key]


def fingerprint(bindings: Bindings) -> str:
    """Equal for bindings that bind alike."""
    values = {name: (array.shape, array.dtype.str, array.tobytes()) for name, array in bindings.values.items()}
    parts = (bindings.dims, bindings.shapes, values, bindings.trip_counts)
    return repr([bindings.batch, *(sorted(part.items()) for part in parts)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Workbench:
    """What has been worked out so far, by what it was made from. Everything stays until the bench goes."""

    models: dict[str, Model] = field(default_factory=dict)
    gpus: dict[str, GpuSpec] = field(default_factory=dict)
    shaped_models: dict[tuple[int, str], ShapedModel | ModelError] = field(default_factory=dict)
    prepared_models: dict[tuple[int, _Way], PreparedModel] = field(default_factory=dict)
    memos: dict[int, Memo] = field(default_factory=dict)
    others: dict[tuple[int, _Way], AtOtherSizes] = field(default_factory=dict)

    def model(self, model: str | Path | Model) -> Model:
        """The model in a file, read once."""
        return model if isinstance(model, Model) else kept(self.models, str(model), lambda: read_model(model))

    def gpu(self, gpu: str | Path | GpuSpec) -> GpuSpec:
        """The GPU of a name or in a file, looked up once."""
        if isinstance(gpu, GpuSpec):
            return checked_gpu(gpu)
        return kept(self.gpus, f"{type(gpu).__name__} {gpu}", lambda: load_gpu(gpu))

    def shaped(self, model: Model, bindings: Bindings) -> ShapedModel:
        """The model at these sizes; ModelError where it has no shapes there, BindingError for a slip."""
        memo = kept(self.memos, id(model.graph), lambda: Memo(graph=model.graph))
        key = id(model), fingerprint(bindings)
        found = kept(self.shaped_models, key, lambda: _shapes_or_fault(model, bindings, memo))
        if isinstance(found, ModelError):
            raise found
        return found

    def prepared(
        self,
        shaped: ShapedModel,
        *,
        precision: Precision,
        runtime: str,
        training: Training | None = None,
        cuda_graph: bool = False,
        include_io: bool = False,
        channels_last: bool = False,
    ) -> PreparedModel:
        """The shaped model as ``runtime`` executes or trains it; in a CUDA graph, with copies of inputs and outputs,
        with images channels last."""
        way = (precision, runtime, training, cuda_graph, include_io, channels_last)
        others = kept(self.others, (id(shaped.model), way), AtOtherSizes)
        return kept(
            self.prepared_models,
            (id(shaped), way),
            lambda: prepare(
                shaped,
                precision=precision,
                runtime=runtime,
                training=training,
                cuda_graph=cuda_graph,
                include_io=include_io,
                channels_last=channels_last,
                others=others,
            ),
        )


def _shapes_or_fault(model: Model, bindings: Bindings, memo: Memo) -> ShapedModel | ModelError:
    try:
        return infer_shapes(model, bindings, memo)
    except ModelError as fault:
        return fault
