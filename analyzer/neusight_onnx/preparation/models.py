"""A model as preparation leaves it: with its shapes, and as a runtime executes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from neusight_onnx.collection import no_collection
from neusight_onnx.fusion.runtimes import FusedBefore
from neusight_onnx.graph.bindings import Bindings, BoundInputs, named_as_in
from neusight_onnx.graph.model import InferredGraph, Model, Node
from neusight_onnx.graph.shapes import Memo, at_expected_sizes, bind_and_infer, with_told_counts
from neusight_onnx.kernels import NodeWork
from neusight_onnx.lowering.free_works import FreeWorks
from neusight_onnx.lowering.known_numbers import works_of_known
from neusight_onnx.lowering.shape_arithmetic import Folded
from neusight_onnx.memory import RunMemory
from neusight_onnx.precision import Precision
from neusight_onnx.report.model import NearMiss
from neusight_onnx.runtime import Runtime

if TYPE_CHECKING:
    from neusight_onnx.backward import Trained
    from neusight_onnx.tactics import Tactics


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedModel:
    """A model with its dims bound and its shapes inferred: the same for every precision, runtime and GPU.

    ``bindings`` are what the user bound, ``bound`` what became of the inputs. ``inferred`` holds bounds where shapes
    depend on data, ``expected`` the sizes that costs are counted with. ``memo``: for inferring it at other sizes.
    """

    model: Model
    bindings: Bindings
    bound: BoundInputs
    inferred: InferredGraph
    expected: InferredGraph
    memo: Memo


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOtherSizes:
    """What preparing a model leaves for its other sizes: what doesn't hang on them. Of one model and one way to run
    it."""

    fused: FusedBefore = field(default_factory=FusedBefore)
    free: FreeWorks = field(default_factory=FreeWorks)
    folded: Folded = field(default_factory=Folded)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedModel:
    """A shaped model as a runtime executes it: patterns recognised, every node lowered; the same for every GPU.

    ``include_io``: the work has the copies of inputs and outputs. ``said``: why there is no CUDA graph, if one was
    asked for that can't be. ``tactics``: the layers that an engine's builder may keep in a wider type on a GPU where
    the one that was asked for is slower; None where it has no choice. ``unfused``: before anything was merged;
    ``merged``: what became of it by the runtime's rules, before a builder chooses among ways. ``near_misses``: None
    where nobody asked.
    ``in_full``: the model in the float32 of its file, where a flag allowed an engine's builder 16 bits beside it and
    what converts between them takes a share worth a second look.
    ``known``: nodes that give numbers alone, which neither the graphs nor the work hold
    (:mod:`~neusight_onnx.lowering.known_numbers`). ``others``: for preparing the model in the same way at other sizes.
    """

    shaped: ShapedModel
    precision: Precision
    graph: InferredGraph
    work: tuple[NodeWork, ...]
    runtime: Runtime
    memory: RunMemory
    merged: tuple[NodeWork, ...]
    near_misses: tuple[NearMiss, ...] | None
    unfused: InferredGraph
    include_io: bool = False
    said: tuple[str, ...] = ()
    trained: Trained | None = None
    work_in_tf32: tuple[NodeWork, ...] | None = None
    tactics: Tactics | None = None
    in_full: PreparedModel | None = None
    known: tuple[Node, ...] = ()
    others: AtOtherSizes = field(default_factory=AtOtherSizes)


def every_work(prepared: PreparedModel, works: Sequence[NodeWork]) -> list[NodeWork]:
    """``works`` of a prepared model with those of the nodes that it has apart, in front: one for each node at least."""
    return [*works_of_known(prepared.known), *works]


def infer_shapes(model: Model, bindings: Bindings, memo: Memo | None = None) -> ShapedModel:
    """The first step of :func:`analyze`, to be shared between analyses of one model at the same sizes.

    ``memo``: one of ``model.graph``, to be shared between analyses at other sizes: nodes whose inputs are what they
    were at one of them are not inferred again.
    """
    bindings = named_as_in(model, bindings)
    memo = memo or Memo(graph=model.graph)
    with no_collection():
        bindings = with_told_counts(model, bindings, memo)
        bound, inferred = bind_and_infer(model, bindings, memo)
        expected = at_expected_sizes(model, bindings, bound, inferred)
    return ShapedModel(model=model, bindings=bindings, bound=bound, inferred=inferred, expected=expected, memo=memo)
