"""The limits that a model is checked against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """Of ``check``; each may be written several times, which is refused where the limits are read."""

    max_latency: Annotated[
        list[str] | None, typer.Option("--max-latency", metavar="TIME", help="Of one run: 20ms, 800us.")
    ] = None
    min_throughput: Annotated[
        list[str] | None,
        typer.Option("--min-throughput", metavar="RATE", help="Samples: 500/s; tokens: '500 tokens/s'."),
    ] = None
    max_memory: Annotated[
        list[str] | None,
        typer.Option("--max-memory", metavar="SIZE|fits", help="Of the GPU: 14GiB; or that it fits with room."),
    ] = None
    max_unsupported: Annotated[
        list[str] | None, typer.Option("--max-unsupported", metavar="N", help="Nodes without a model of their cost.")
    ] = None
    max_parameters: Annotated[
        list[str] | None, typer.Option("--max-parameters", metavar="N", help="Weights: 25600000, 100M, 7B.")
    ] = None
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at",
            metavar="upper|median",
            help="Where in their ranges latency, throughput and memory are judged.",
            show_default="upper",
        ),
    ] = None

    def written(self) -> Mapping[str, tuple[str, ...]]:
        """What was written for each, by its name in a configuration."""
        return {
            "max-latency": tuple(self.max_latency or ()),
            "min-throughput": tuple(self.min_throughput or ()),
            "max-memory": tuple(self.max_memory or ()),
            "max-unsupported": tuple(self.max_unsupported or ()),
            "max-parameters": tuple(self.max_parameters or ()),
            "at": tuple(self.at or ()),
        }
