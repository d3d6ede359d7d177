"""A layer of an engine in the types that it may run in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from neusight_onnx.kernels import (
    Kernel,
)

Ways: TypeAlias = tuple[tuple[Kernel, ...], ...]
"""Kernels of a node, and others that would do the same."""


@dataclass(frozen=True, slots=True)
class Form:
    """A way to run a layer, by the bits of the type that it reads and of the one that it writes."""

    reads: int
    writes: int


WIDE, NARROW, BETWEEN, FULL, FULL_TO_WIDE = FORMS = (
    Form(reads=16, writes=16),
    Form(reads=8, writes=8),
    Form(reads=8, writes=16),
    Form(reads=32, writes=32),
    Form(reads=32, writes=16),
)
"""In 16 bits; in the narrow format (of 8 bits or fewer); one that reads that and writes 16 bits; in float32, or TF32 on
the GPUs that have it; in float32 with a kernel behind it that converts the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A node of the work that may run in several types.

    ``at``: its place in the work; ``ways``: its kernels in each form that it has, and what else they could be
    (``NodeWork.alternatives``), of which the quickest are run.
    ``source``: the place among the layers of the one whose result it reads, if nothing writes that anew in between.
    ``conversions``: the kernel that turns what the source wrote, by its bits, into what the layer reads; nothing where
    none is needed. ``weight``: its name, None for a layer without one.
    """

    at: int
    ways: Mapping[Form, Ways]
    source: int | None = None
    conversions: Mapping[tuple[int, int], Kernel] = field(default_factory=dict)
    weight: str | None = None

    def before(self, own: Form, of_source: Form | None) -> Kernel | None:
        """The kernel that converts its operand."""
        return None if of_source is None else self.conversions.get((of_source.writes, own.reads))

    @property
    def is_narrowable(self) -> bool:
        """Whether it may read the narrow format."""
        return NARROW in self.ways or BETWEEN in self.ways


@dataclass(frozen=True, slots=True, kw_only=True)
class Tactics:
    """The layers of a model with a choice, in the order of the work; ``format_label`` and ``wide_label`` name the
    types: the narrow format, "" where there is none, and that of 16 bits."""

    layers: tuple[Layer, ...]
    format_label: str
    wide_label: str
