"""How many elements of a mask are non-zero if a router spreads its tokens evenly, or a detector its boxes over levels.

A mixture of experts without a capacity (Mixtral and its kin) turns the experts that each token chose into a one-hot
tensor and takes the tokens of one expert as the non-zero elements of one slice of it. Any expert may get all of them,
so that is the bound of each; but together the slices hold one element for each choice, so that the cost of all experts
at their bounds is too high by experts / choices. What such a slice holds on average is all choices / experts.

Where tokens are sorted by expert instead (torch's grouped products, which transformers' mixtures are exported with
since release 5), the experts' rows lie between running sums of how many each got: ``Range(ends[i - 1], ends[i])``. Of
few tokens not every expert gets some, and those that get none read no weights: as many get rows as are expected to if
each token chooses by chance, and share them.

A detector pools each box from the level of its pyramid that fits the box's size: ``NonZero(level == 0)`` and so on. Any
level may get all boxes, so that is the bound of each; no box is in two.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from neusight_onnx.graph.model import Initializer, Node
from neusight_onnx.graph.shapes.context import Session, initializer_value

MAX_STEPS = 24
"""Nodes between the mask and the choice that it is made from; routers have about six."""

_SAME_COUNT = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


def even_share(name: str, session: Session) -> int | None:
    """Non-zero elements of a value where it is one expert's slice of a router's choices, all experts getting as many.

    None where the value is no such slice. Rounded up: a token can't be split.
    """
    for _ in range(MAX_STEPS):
        node = _producer(name, session)
        if node is None:
            return None
        match node.op_type:
            case op_type if op_type in _SAME_COUNT:
                name = node.inputs[0]
            case "Mul" | "And":
                # the choice times a mask: at most the choice's share
                shares = [even_share(operand, session) for operand in node.inputs if operand != name]
                return min((share for share in shares if share is not None), default=None)
            case "Gather" | "Slice" | "Split":
                return _share_of_slice(node, name, session)
            case "Equal":
                return _share_of_comparison(node, session)
            case _:
                return None
    return None


class Group(NamedTuple):
    """The rows of one group of those that a running count divides: at most ``most``, and ``share`` as expected."""

    most: int
    share: int


def group_between(start: str, limit: str, session: Session) -> Group | None:
    """The group between two neighbours of a running count of ``most`` choices; None where they are no such.

    ``limit`` is element i of the count of what was chosen among n, ``start`` is element i - 1, or 0 before the first.
    """
    last = _place_in_count(limit, session)
    if last is None:
        return None
    counted, place, size = last
    first = _place_in_count(start, session)
    if place > 0:
        if first is None or first[:2] != (counted, place - 1):
            return None
    elif not _is_zero(start, session):
        return None
    found = _counted_choices(counted, size, session)
    if found is None or size < 1:
        return None
    rows, chosen = found
    left_out = (1 - min(chosen / size, 1)) ** (rows / chosen)
    hit = min(max(round(size * (1 - left_out)), 1), rows)
    each, more = divmod(rows, hit) if hit else (0, 0)
    return Group(most=rows, share=0 if place >= hit else each + (place < more))


def _place_in_count(name: str, session: Session) -> tuple[str, int, int] | None:
    """What a running count sums up, which of its elements the value is, and how many there are."""
    place = 0
    size: int | None = None
    for _ in range(MAX_STEPS):
        node = _producer(name, session)
        if node is None:
            return None
        source = session.value(node.inputs[0])
        if source is None or source.shape is None:
            return None
        match node.op_type:
            case op_type if op_type in _SAME_COUNT:
                name = node.inputs[0]
            case "Split" | "Gather" if size is None and len(source.shape) == 1:
                index = _index_of(node, name, source.shape[0], session)
                if index is None:
                    return None
                place, size, name = index, source.shape[0], node.inputs[0]
            case "CumSum" if size is not None and source.shape == (size,):
                if node.attributes.get("reverse") or node.attributes.get("exclusive"):
                    return None
                return node.inputs[0], place, size
            case _:
                return None
    return None


def _index_of(node: Node, name: str, size: int, session: Session) -> int | None:
    """Which single element of a vector a Split or Gather takes."""
    if node.op_type == "Split":
        return node.outputs.index(name) if len(node.outputs) == size and name in node.outputs else None
    index = session.value(node.inputs[1])
    if index is None or index.data is None or index.data_low is not None or index.data.size != 1:
        return None
    return int(index.data.ravel()[0]) % size


def _is_zero(name: str, session: Session) -> bool:
    value = session.value(name)
    return value is not None and value.data is not None and value.data_low is None and not value.data.any()


def _counted_choices(name: str, size: int, session: Session) -> tuple[int, int] | None:
    """How many choices a vector of counts adds up to, ones that were added to zeros, and how many a token makes."""
    for _ in range(MAX_STEPS):
        node = _producer(name, session)
        if node is None:
            return None
        if node.op_type in _SAME_COUNT:
            name = node.inputs[0]
            continue
        if node.op_type != "ScatterElements" or node.attributes.get("reduction") != "add":
            return None
        chosen = session.value(node.inputs[1])
        if chosen is None or chosen.shape is None or chosen.is_bound or not _is_zero(node.inputs[0], session):
            return None
        if not _is_one(node.inputs[2], session):
            return None
        return prod(chosen.shape), _choices_a_token(node.inputs[1], size, session)
    return None


def _choices_a_token(name: str, size: int, session: Session) -> int:
    """How many of ``size`` a TopK took of each line, whose indices were flattened and sorted since; 1 if unknown."""
    for _ in range(MAX_STEPS):
        node, value = _producer(name, session), session.value(name)
        if node is None or value is None:
            return 1
        source = session.value(node.inputs[0])
        if node.op_type == "TopK" and source is not None and source.shape and name == node.outputs[-1]:
            axis = _axis(node, len(source.shape), -1)
            return max(value.shape[axis], 1) if value.shape and source.shape[axis] == size else 1
        if node.op_type not in (*_SAME_COUNT, "TopK", "Clip", "Div", "Floor"):
            return 1
        name = node.inputs[0]
    return 1


def _is_one(name: str, session: Session) -> bool:
    for _ in range(MAX_STEPS):
        value, node = session.value(name), _producer(name, session)
        if value is not None and value.data is not None:
            return value.data_low is None and bool((value.data == 1).all())
        if node is None or node.op_type not in (*_SAME_COUNT, "Expand"):
            return False
        name = node.inputs[0]
    return False


def _share_of_slice(node: Node, name: str, session: Session) -> int | None:
    """One of ``depth`` slices (or several) along the axis along which just one element of each line is hot."""
    source, result = session.value(node.inputs[0]), session.value(name)
    if source is None or source.shape is None or result is None or result.shape is None or not prod(source.shape):
        return None
    axis = _hot_axis(node.inputs[0], session, MAX_STEPS)
    if axis is None:
        return None
    if node.op_type == "Gather" and _axis(node, len(source.shape)) != axis:
        return None
    depth = source.shape[axis]
    # what is left of the elements, wherever it was cut, holds its part of one hot element a line
    return -(-prod(result.shape) // depth) if prod(result.shape) < prod(source.shape) else None


def _share_of_comparison(node: Node, session: Session) -> int | None:
    """choice == number of an expert, the choice being the index that ArgMax or TopK found among ``depth``; or one of
    several numbers, whose elements are taken for each."""
    for choice, number in (tuple(node.inputs), tuple(reversed(node.inputs))):
        other = session.value(number)
        if other is None or other.data is None or other.data_low is not None or other.data.size != 1:
            continue
        value, depth = session.value(choice), _choice_depth(choice, session) or _numbers_compared(choice, session)
        if depth is not None and value is not None and value.shape is not None:
            return -(-prod(value.shape) // depth)
    return None


def _numbers_compared(name: str, session: Session) -> int | None:
    """With how many numbers a value is compared, so that the places of each are taken; None of fewer than two."""
    numbers = set()
    for node in session.readers(name):
        others = [other for other in node.inputs if other != name]
        if node.op_type == "Equal" and not node.domain and len(others) == 1:
            number = _number(others[0], session)
            if number is not None and _finds_places(node.outputs[0], session):
                numbers.add(number)
    return len(numbers) if len(numbers) > 1 else None


def _number(name: str, session: Session) -> float | None:
    """A constant of one element, whose node may come later than where the walk is."""
    value, node = session.value(name), session.maker(name)
    if value is None and node is not None and node.op_type == "Constant" and not node.domain:
        held = node.attributes.get("value")
        if isinstance(held, Initializer):
            value = initializer_value(held)
        elif isinstance(number := node.attributes.get("value_int"), int):
            return number
    if value is None or value.data is None or value.data_low is not None or value.data.size != 1:
        return None
    return float(value.data.ravel()[0])


def _finds_places(name: str, session: Session) -> bool:
    """Whether the non-zero places of a mask are looked for."""
    readers = session.readers(name)
    return any(
        node.op_type == "NonZero"
        or (node.op_type in _SAME_COUNT and any(each.op_type == "NonZero" for each in session.readers(node.outputs[0])))
        for node in readers
    )


def _hot_axis(name: str, session: Session, steps: int) -> int | None:
    """The axis along which just one element of each line is not zero."""
    node, value = _producer(name, session), session.value(name)
    if node is None or steps == 0 or value is None or value.shape is None:
        return None
    rank = len(value.shape)
    match node.op_type:
        case "Cast" | "Identity":
            return _hot_axis(node.inputs[0], session, steps - 1)
        case "Transpose":
            axis = _hot_axis(node.inputs[0], session, steps - 1)
            permutation = node.attributes.get("perm") or tuple(reversed(range(rank)))
            if axis is None or not isinstance(permutation, tuple) or axis not in permutation:
                return None
            return permutation.index(axis)
        case "OneHot":
            return _axis(node, rank, -1)
        case "Mul" | "And":
            # a mask of the same shape leaves at most one
            for operand in node.inputs:
                other = session.value(operand)
                if other is not None and other.shape == value.shape:
                    axis = _hot_axis(operand, session, steps - 1)
                    if axis is not None:
                        return axis
            return None
        case "Equal":
            # choices (..., 1) == (0, 1, ..., depth - 1)
            for choice, numbers in (tuple(node.inputs), tuple(reversed(node.inputs))):
                other = session.value(numbers)
                if other is None or other.data is None or other.data.size != value.shape[-1] or other.shape is None:
                    continue
                if other.shape[-1:] == value.shape[-1:] and _choice_depth(choice, session) == value.shape[-1]:
                    return rank - 1
            return None
        case _:
            return None


def _choice_depth(name: str, session: Session) -> int | None:
    """Among how many a value of indices was chosen, by ArgMax or TopK."""
    for _ in range(MAX_STEPS):
        node = _producer(name, session)
        if node is None:
            return None
        if node.op_type in _SAME_COUNT:
            name = node.inputs[0]
            continue
        source = session.value(node.inputs[0])
        if source is None or not source.shape:
            return None
        if node.op_type == "ArgMax" or (node.op_type == "TopK" and name == node.outputs[-1]):
            depth = source.shape[_axis(node, len(source.shape), 0 if node.op_type == "ArgMax" else -1)]
            return depth or None
        return None
    return None


def _axis(node: Node, rank: int, default: int = 0) -> int:
    axis = node.attributes.get("axis", default)
    return axis % rank if isinstance(axis, int) and rank else default


def _producer(name: str, session: Session) -> Node | None:
    node = session.producer(name)
    return node if node is not None and node.domain == "" and node.inputs else None
