"""The run backwards as values: what each node's gradient launches, reads, leaves and keeps."""

from __future__ import annotations

from dataclasses import dataclass

from neusight_onnx.kernels import NodeWork, TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A weight that is trained."""

    name: str
    spec: TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A gradient that a step leaves for a value. ``shares``: the value whose gradient's memory it is, if any.
    ``added``: there was one already, to which this one is added."""

    name: str
    byte_count: int
    shares: str | None = None
    added: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The gradient of one node. ``reads``: values whose gradients end here. ``saved``: values kept for it from the run
    forward; ``kept_bytes``: what else is."""

    work: NodeWork
    reads: tuple[str, ...]
    makes: tuple[Made, ...]
    saved: tuple[str, ...]
    kept_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Backward:
    """``steps`` in the order of the run backwards; the parameters that a gradient reaches, in the file's order.
    ``losses``: the results that the loss is taken of. ``said``: what was assumed."""

    steps: tuple[Step, ...]
    parameters: tuple[Parameter, ...]
    losses: tuple[str, ...]
    said: tuple[str, ...]
