"""How many elements of a mask can be non-zero, where the graph itself caps it.

A router with a capacity (Switch Transformers and its kin) writes ``mask = chosen * (cumsum(chosen, axis) <= c)``,
``chosen`` being one-hot: along ``axis`` the running count rises by at least one at each chosen element, so at most
``c`` of them pass. What is gathered through such a mask is at most ``c`` rows a line, not all of them.

A detector keeps what is ``softmax(x, axis) > t``: a line of a softmax adds up to 1, so fewer than ``1 / t`` of its
elements pass.
"""

from __future__ import annotations

from math import ceil, floor, prod
from typing import NamedTuple

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Node
from neusight_onnx.graph.shapes.context import Data, Session

MAX_STEPS = 24
"""Nodes between the mask and the comparison that caps it; routers have about six."""

_SAME_COUNT = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Cast"})
"""Operators that keep how many elements are non-zero (a cast of small integers and booleans does)."""


_SOME_OF = _SAME_COUNT | {"Slice", "Split"}
"""Operators whose result holds elements of their input, each at most once."""

_ROUNDING = 1e-4
"""What the elements of a softmax may add up to beyond 1, computed in single precision; generous."""


class Cap(NamedTuple):
    """At most ``most`` elements are non-zero, because ``why``."""

    most: int
    why: str


def most_nonzero(name: str, session: Session) -> Cap | None:
    """At most so many elements of the value are non-zero; None where nothing caps them (but their number)."""
    for _ in range(MAX_STEPS):
        node = _producer(name, session)
        if node is None:
            return None
        if node.op_type in _SAME_COUNT:
            name = node.inputs[0]
            continue
        value = session.value(name)
        if value is None or value.shape is None:
            return None
        if node.op_type in ("Greater", "GreaterOrEqual", "Less", "LessOrEqual"):
            return _above_a_share(node, session)
        caps = _caps(name, session, MAX_STEPS)
        total = prod(value.shape)
        counts = [total // value.shape[axis] * cap for axis, cap in caps.items() if value.shape[axis] > cap]
        return Cap(min(counts), "a running count caps the elements of its input that are not zero") if counts else None
    return None


def _above_a_share(node: Node, session: Session) -> Cap | None:
    """softmax > t, or t < softmax: in each line fewer than 1 / t elements."""
    value, limit = node.inputs if node.op_type.startswith("Greater") else node.inputs[::-1]
    threshold = _scalar(limit, session)
    if threshold is None or not threshold > 0:
        return None
    for _ in range(MAX_STEPS):
        source = _producer(value, session)
        if source is None or (source.op_type not in _SOME_OF and source.op_type not in ("Softmax", "Gather")):
            return None
        if source.op_type == "Softmax":
            break
        if source.op_type == "Gather":
            index = session.value(source.inputs[1])
            if index is None or index.shape is None or index.is_bound or prod(index.shape) != 1:
                return None
        value = source.inputs[0]
    else:
        return None
    result = session.value(source.inputs[0])
    if result is None or not result.shape:
        return None
    rank = len(result.shape)
    # up to opset 12 everything from the axis on is one line
    axis = source.attributes.get("axis", -1 if source.version >= 13 else 1)
    if not isinstance(axis, int) or not -rank <= axis < rank:
        return None
    line = result.shape[axis] if source.version >= 13 else prod(result.shape[axis % rank :])
    count = prod(result.shape) // max(line, 1) * floor((1 + _ROUNDING) / threshold)
    return Cap(
        count,
        f"each line of a softmax adds up to 1, so at most {floor((1 + _ROUNDING) / threshold)} pass {threshold:g}",
    )


def _caps(name: str, session: Session, steps: int) -> dict[int, int]:
    """axis -> at most so many elements of each line along that axis are non-zero."""
    node = _producer(name, session)
    value = session.value(name)
    if node is None or steps == 0 or value is None or value.shape is None:
        return {}
    rank = len(value.shape)
    match node.op_type:
        case "Cast" | "Identity":
            return _caps(node.inputs[0], session, steps - 1)
        case "Gather":
            index = session.value(node.inputs[1])
            source = session.value(node.inputs[0])
            if index is None or index.shape != () or source is None or source.shape is None:
                return {}
            axis = node.attributes.get("axis") or 0
            if not isinstance(axis, int):
                return {}
            axis %= len(source.shape)
            caps = _caps(node.inputs[0], session, steps - 1)
            return {other - (other > axis): cap for other, cap in caps.items() if other != axis}
        case "Mul" | "And":
            caps = {}
            for mine, other in (node.inputs[:2], node.inputs[1::-1]):
                operand = session.value(mine)
                if operand is not None and operand.shape == value.shape:
                    caps.update(_caps(mine, session, steps - 1))
                    caps.update(_capped_by(mine, other, rank, session))
            return caps
        case _:
            return {}


def _capped_by(chosen: str, condition: str, rank: int, session: Session) -> dict[int, int]:
    """The cap that ``condition`` = (cumsum(chosen, axis) <= constant) puts on ``chosen``."""
    comparison = _producer(_behind_casts(condition, session), session)
    if comparison is None or comparison.op_type not in ("LessOrEqual", "Less"):
        return {}
    limit = _scalar(comparison.inputs[1], session)
    running = _producer(_behind_casts(comparison.inputs[0], session), session)
    if limit is None or running is None or running.op_type != "CumSum" or running.attributes.get("exclusive"):
        return {}
    axis = _scalar(running.inputs[1], session)
    source = _behind_casts(chosen, session)
    if axis is None or _behind_casts(running.inputs[0], session) != source or not _counts(source, session):
        return {}
    cap = ceil(limit) - 1 if comparison.op_type == "Less" else int(limit // 1)
    return {int(axis) % rank: max(cap, 0)} if -rank <= axis < rank else {}


def _counts(name: str, session: Session) -> bool:
    """Whether every element is 0 or at least 1: a boolean, or a one-hot of such values."""
    value = session.value(name)
    if value is not None and value.dtype is DataType.BOOL:
        return True
    node = _producer(name, session)
    if node is None or node.op_type != "OneHot":
        return False
    levels = _data(node.inputs[2], session)
    return levels is not None and bool(np.all((levels == 0) | (levels >= 1)))


def _behind_casts(name: str, session: Session) -> str:
    for _ in range(MAX_STEPS):
        node = _producer(name, session)
        if node is None or node.op_type not in ("Cast", "Identity"):
            break
        name = node.inputs[0]
    return name


def _producer(name: str, session: Session) -> Node | None:
    node = session.producer(name)
    return node if node is not None and node.domain == "" and node.inputs else None


def _data(name: str, session: Session) -> Data | None:
    value = session.value(name)
    return None if value is None or value.data_low is not None else value.data


def _scalar(name: str, session: Session) -> float | None:
    data = _data(name, session)
    return float(data.ravel()[0]) if data is not None and data.size == 1 else None
