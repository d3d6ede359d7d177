"""The sizes that a model is taken at: options that every command has which reads one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from neusight_onnx.cli.options import (
    BatchListOption,
    BatchOption,
    DimListOption,
    DimOption,
    ShapeOption,
    TripCountOption,
    ValueOption,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neusight_onnx.graph.bindings import Bindings


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Of a command that takes a model at one set of sizes."""

    batch: BatchOption = None
    dim: DimOption = None
    shape: ShapeOption = None
    value: ValueOption = None
    trip_count: TripCountOption = None

    def bindings(self) -> Bindings:
        """What the options say together; BindingError for a slip."""
        from neusight_onnx.cli.bindings import parse_bindings

        return parse_bindings(
            self.dim or (), self.shape or (), self.value or (), self.trip_count or (), batch=self.batch
        )


@dataclass(frozen=True, kw_only=True)
class SizeLists:
    """Of a command that takes a model at several sizes of its dims."""

    batch: BatchListOption = None
    dim: DimListOption = None
    shape: ShapeOption = None
    value: ValueOption = None
    trip_count: TripCountOption = None

    def bindings(self) -> Bindings:
        """What is the same at all sizes; BindingError for a slip."""
        from neusight_onnx.cli.bindings import parse_bindings

        return parse_bindings((), self.shape or (), self.value or (), self.trip_count or ())

    def dims(self) -> Mapping[str, tuple[int, ...]]:
        """The sizes of each named dim; BindingError or ComparisonError for a slip."""
        from neusight_onnx.comparison.grid import parse_dim_lists

        return parse_dim_lists(self.dim or ())

    def batches(self) -> tuple[int, ...] | None:
        """Those of the batch, None where none are given; BindingError or ComparisonError for a slip."""
        from neusight_onnx.comparison.grid import parse_batch_lists

        return parse_batch_lists(self.batch) if self.batch else None
