"""What a check looks at: a target with everything that was worked out about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from neusight_onnx.checks.limits import Limits
from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import BindingError, ModelError, shown
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.bindings import Bindings, make_bindings
from neusight_onnx.graph.contents import NOTHING, Contents
from neusight_onnx.graph.model import Array, Model
from neusight_onnx.kernels import NodeWork
from neusight_onnx.padding_gain import PaddingGain
from neusight_onnx.precision import Precision
from neusight_onnx.preparation import PreparedModel, ShapedModel
from neusight_onnx.report.model import HostSummary, MemoryEstimate, Totals
from neusight_onnx.runtime import DEFAULT_RUNTIME

if TYPE_CHECKING:
    from neusight_onnx.backward import Training


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One thing to be checked: a model on a GPU, at sizes, under limits. ``name`` stands in the report.

    ``training``: a step of training is judged, not a run of inference. ``cuda_graph``: the run is replayed as a graph;
    ``include_io``: with the copies of inputs and outputs; ``channels_last``: images and filters lie as (n, h, w, c).
    Sizes are given as :func:`~neusight_onnx.analyze` takes them (``dims``, ``shapes``, ``values``, ``trip_counts``,
    ``batch``) or made into ``bindings``, which holds them from then on. BindingError for both, and for what is no size.
    """

    name: str
    model: str | Path | Model
    gpu: str | Path | GpuSpec
    precision: str = "auto"
    runtime: str = DEFAULT_RUNTIME
    training: Training | None = None
    cuda_graph: bool = False
    include_io: bool = False
    channels_last: bool = False
    bindings: Bindings = field(default_factory=Bindings)
    limits: Limits = field(default_factory=Limits)
    allow: tuple[tuple[str, str], ...] = ()
    """(code, reason) of the findings that are allowed for this target."""
    allow_written: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    """Those of ``allow`` that stand in a configuration, not in an option."""
    written_in: Path | None = field(default=None, compare=False)
    """The configuration that the target stands in; None: no file has it."""
    dims: InitVar[Mapping[str, int] | None] = None
    shapes: InitVar[Mapping[str, Sequence[int]] | None] = None
    values: InitVar[Mapping[str, Array] | None] = None
    trip_counts: InitVar[Mapping[str, int] | None] = None
    batch: InitVar[int | None] = None

    def __post_init__(
        self,
        dims: Mapping[str, int] | None,
        shapes: Mapping[str, Sequence[int]] | None,
        values: Mapping[str, Array] | None,
        trip_counts: Mapping[str, int] | None,
        batch: int | None,
    ) -> None:
        given = make_bindings(dims, shapes, values, trip_counts, batch)
        if given == Bindings():
            return
        if self.bindings != Bindings():
            raise BindingError(f"target '{shown(self.name)}' has sizes beside its bindings; give either")
        object.__setattr__(self, "bindings", given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A target, read, shaped, lowered and predicted, as far as that goes.

    ``unread`` says why the model can't be read: all else is empty then.
    ``shaped`` is None where the shapes don't agree, ``fault`` says why; all behind it is None then, too. ``stored``
    is the type of most plain floats in the file. ``totals`` is None where the GPU can't run the precision, or
    the runtime not on the GPU, which ``not_predicted`` says; ``host`` and ``executed_precision`` are theirs.
    ``product_formats``: of 8 and 4 bits, those that products are computed in.
    ``opaque`` is the work that is not supported; ``kernel_types`` has (type, whether for a product of matrices) of all
    kernels.
    ``assumptions``: what stands in for what neither the model nor the target says.
    """

    target: Target
    model: Model
    gpu: GpuSpec
    parameter_count: int
    stored: DataType
    precision: Precision
    not_predicted: str | None
    unread: ModelError | None = None
    shaped: ShapedModel | None = None
    fault: ModelError | None = None
    prepared: PreparedModel | None = None
    opaque: tuple[NodeWork, ...] = ()
    kernel_types: frozenset[tuple[DataType, bool]] = frozenset()
    totals: Totals | None = None
    host: HostSummary | None = None
    executed_precision: str | None = None
    product_formats: tuple[str, ...] = ()
    memory: MemoryEstimate | None = None
    assumptions: tuple[str, ...] = ()
    share_at_bounds: float = 0.0
    """Of the kernels' time, what goes to sizes that data decide, counted at the most that they can be."""
    padding: PaddingGain | None = None
    """What padded rows of products would save, where that counts."""
    contents: Contents = NOTHING
    """What the large constants of the file hold."""
    little_narrowed: str | None = None
    """That the format which the target asks for concerns hardly anything of the model."""

    @property
    def computes_in_fp16(self) -> bool:
        """Whether the target's plain floats are of 16 bits and narrow range, by wish or as they are stored."""
        return (self.precision.plain or self.stored) is DataType.FLOAT16
