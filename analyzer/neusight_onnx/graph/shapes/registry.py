"""One operator, one rule: the table that inference is driven by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from neusight_onnx.graph.model import Value
from neusight_onnx.graph.shapes.context import NodeContext

Rule: TypeAlias = Callable[[NodeContext], Sequence[Value]]
"""From a node whose inputs are known to the values of its outputs, in order.

A rule raises :class:`~neusight_onnx.graph.shapes.context.UnknownShape` (most often through the context's
accessors) where it can't tell, and ``ModelError`` where the shapes contradict the operator. It may give more
values than the node has outputs, never fewer than it names.
"""

RULES: dict[tuple[str, str], Rule] = {}
"""(domain, op_type) -> rule; "" is ai.onnx."""

RANDOM: set[tuple[str, str]] = set()
"""Operators whose result isn't constant even if all their inputs are."""


INTERVALS: set[tuple[str, str]] = set()
"""Operators whose rules take values that depend on data as they are, and so run once for both ends."""


def rule(
    *op_types: str, domain: str = "", deterministic: bool = True, intervals: bool = False
) -> Callable[[Rule], Rule]:
    """Claim operators of one domain for the decorated rule; a second claim on the same operator is refused."""

    def claim(function: Rule) -> Rule:
        for op_type in op_types:
            key = (domain, op_type)
            if key in RULES:
                raise ValueError(f"{domain or 'ai.onnx'}.{op_type} has two shape rules")
            RULES[key] = function
            if not deterministic:
                RANDOM.add(key)
            if intervals:
                INTERVALS.add(key)
        return function

    return claim
