"""What operators demand of the ranks of their inputs and of the values of their attributes, as a table.

A rule of shape inference asks its inputs only for what it needs. What the standard demands beyond that stands here, so
that a node that no runtime takes is refused and not costed as something else: `Softmax` over an axis that isn't there,
`Gemm` of three dimensions, `auto_pad` of a word that doesn't exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from neusight_onnx.graph.model import Node, Value
from neusight_onnx.graph.shapes.context import broadcast_shapes

Ranks: TypeAlias = "tuple[int, int | None] | None"
"""The least and the most dimensions of an input (None: any number)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one operator demands from version ``since`` of its domain on.

    ``ranks``: of each input. ``axis``: the attribute that counts dimensions of input 0, from either end. ``words``:
    what an attribute may say. ``positive``: attributes whose numbers must be at least 1. ``sizes``: letters for the
    dimensions of each input, equal letters being equal sizes ("." any size, "..." any more dimensions, "4h" four times
    h). ``onto``: inputs that must broadcast to input 0. ``divides``: an attribute, and the input and axis that it must
    divide.
    """

    ranks: tuple[Ranks, ...] = ()
    axis: str = ""
    words: Mapping[str, frozenset[str]] = field(default_factory=dict)
    positive: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    onto: tuple[int, ...] = ()
    divides: tuple[tuple[str, int, int], ...] = ()
    since: int = 1


_VECTOR: Ranks = (1, 1)
_MATRIX: Ranks = (2, 2)
_WINDOW = ("kernel_shape", "strides", "dilations")
_PADDING = {"auto_pad": frozenset({"", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"})}
_DIRECTION = {"direction": frozenset({"forward", "reverse", "bidirectional"})}
_COERCED = frozenset({"Softmax", "LogSoftmax", "Hardmax"})
_BLOCKS = {"mode": frozenset({"DCR", "CRD"})}
_POOL = Demand(ranks=((2, None),), words=_PADDING, positive=_WINDOW)
_PAGED = Demand(
    ranks=(_MATRIX, None, None, (2, None), None, _VECTOR, _VECTOR, _MATRIX), positive=("num_heads", "kv_num_heads")
)
_LOSS = Demand(ranks=((2, None), (1, None), _VECTOR), sizes=("n ...", "n ..."))


def _cell(gates: int) -> Demand:
    """X (t, b, i), W (d, gates * h, i), R (d, gates * h, h), B (d, 2 * gates * h)."""
    return Demand(
        ranks=((3, 3), (3, 3), (3, 3), _MATRIX),
        words=_DIRECTION,
        positive=("hidden_size",),
        sizes=(". . i", f"d {gates}h i", f"d {gates}h h", f"d {2 * gates}h"),
    )


def _conv(kernel: int) -> Demand:
    """X (n, c, ...), W (k, c / groups, ...) at the place ``kernel``; B (k) behind it."""
    ranks: list[Ranks] = [(3, None), *[None] * (kernel - 1), (3, None)]
    sizes = ["..."] * kernel + ["k ..."] + (["k"] if kernel == 1 else [])
    return Demand(
        ranks=tuple(ranks),
        words=_PADDING,
        positive=(*_WINDOW, "group"),
        sizes=tuple(sizes),
        divides=(("group", kernel, 0),),
    )


def _rows(*onto: int) -> Demand:
    return Demand(ranks=((1, None),), axis="axis", onto=onto)


_HEADS = Demand(ranks=((3, 5),), positive=("num_heads",), divides=(("num_heads", 0, 2),))

DEMANDS: Mapping[tuple[str, str], Demand] = {
    ("", "AffineGrid"): Demand(ranks=((3, 3), _VECTOR)),
    ("", "Attention"): Demand(ranks=((3, 4), (3, 4), (3, 4))),
    ("", "AveragePool"): _POOL,
    ("", "BatchNormalization"): Demand(
        ranks=((1, None), _VECTOR, _VECTOR, _VECTOR, _VECTOR), sizes=(". c ...", "c", "c", "c", "c"), since=9
    ),
    ("", "Col2Im"): Demand(ranks=((2, 3), _VECTOR, _VECTOR)),
    ("", "ConstantOfShape"): Demand(ranks=(_VECTOR,)),
    ("", "Conv"): _conv(1),
    ("", "ConvInteger"): _conv(1),
    ("", "ConvTranspose"): Demand(
        ranks=((3, None), (3, None), _VECTOR),
        words=_PADDING,
        positive=(*_WINDOW, "group"),
        divides=(("group", 0, 1),),
    ),
    ("", "DepthToSpace"): Demand(ranks=((4, 4),), words=_BLOCKS, positive=("blocksize",)),
    ("", "Det"): Demand(ranks=((2, None),)),
    ("", "Expand"): Demand(ranks=(None, _VECTOR)),
    ("", "EyeLike"): Demand(ranks=(_MATRIX,)),
    ("", "GRU"): _cell(3),
    ("", "Gemm"): Demand(ranks=(_MATRIX, _MATRIX, (0, 2))),
    ("", "GlobalAveragePool"): Demand(ranks=((2, None),)),
    ("", "GlobalMaxPool"): Demand(ranks=((2, None),)),
    ("", "GridSample"): Demand(
        ranks=((3, None), (3, None)),
        words={"padding_mode": frozenset({"zeros", "border", "reflection"})},
        sizes=("n ...", "n ..."),
    ),
    ("", "GroupNormalization"): Demand(ranks=((2, None),), positive=("num_groups",)),
    ("", "Hardmax"): _rows(),
    ("", "InstanceNormalization"): Demand(ranks=((2, None), _VECTOR, _VECTOR), sizes=(". c ...", "c", "c")),
    ("", "LRN"): Demand(ranks=((2, None),), positive=("size",)),
    ("", "LSTM"): _cell(4),
    ("", "LayerNormalization"): _rows(1, 2),
    ("", "LogSoftmax"): _rows(),
    ("", "LpNormalization"): _rows(),
    ("", "LpPool"): _POOL,
    ("", "MatMul"): Demand(ranks=((1, None), (1, None))),
    ("", "MaxPool"): _POOL,
    ("", "MaxUnpool"): Demand(ranks=((2, None), (2, None), _VECTOR), positive=_WINDOW),
    ("", "NegativeLogLikelihoodLoss"): _LOSS,
    ("", "OneHot"): Demand(ranks=((0, None), (0, 1), _VECTOR)),
    ("", "Pad"): Demand(words={"mode": frozenset({"constant", "reflect", "edge", "wrap"})}),
    ("", "QLinearConv"): _conv(3),
    ("", "RMSNormalization"): _rows(1),
    ("", "RNN"): _cell(1),
    ("", "Reshape"): Demand(ranks=(None, _VECTOR)),
    ("", "Resize"): Demand(words={"mode": frozenset({"nearest", "linear", "cubic"})}),
    ("", "ReverseSequence"): Demand(ranks=((2, None), _VECTOR)),
    ("", "RotaryEmbedding"): Demand(ranks=((3, 4),)),
    ("", "Softmax"): _rows(),
    ("", "SoftmaxCrossEntropyLoss"): _LOSS,
    ("", "SpaceToDepth"): Demand(ranks=((4, 4),), words=_BLOCKS, positive=("blocksize",)),
    ("", "Trilu"): Demand(ranks=((2, None),)),
    ("com.microsoft", "DecoderMaskedMultiHeadAttention"): _HEADS,
    ("com.microsoft", "FusedConv"): _conv(1),
    ("com.microsoft", "GroupQueryAttention"): Demand(ranks=((3, 3),), positive=("num_heads", "kv_num_heads")),
    ("com.microsoft", "MatMulNBits"): Demand(positive=("K", "N", "block_size")),
    ("com.microsoft", "MultiHeadAttention"): _HEADS,
    ("com.microsoft", "PagedAttention"): _PAGED,
    ("com.microsoft", "RotaryEmbedding"): Demand(ranks=((3, 4),)),
    ("com.microsoft", "SkipLayerNormalization"): Demand(ranks=((2, 3),), onto=(1, 2, 3, 4)),
    ("com.microsoft", "SkipSimplifiedLayerNormalization"): Demand(ranks=((2, 3),), onto=(1, 2, 3)),
    ("com.microsoft", "SparsePagedAttention"): _PAGED,
}
"""The rules of operators that are not here ask for all that there is to ask."""


def unmet(node: Node, inputs: Sequence[Value | None]) -> str | None:
    """Which demand the node does not meet; None if it meets all, as far as the inputs' shapes are known."""
    demand = DEMANDS.get((node.domain, node.op_type))
    if demand is None or 0 < node.version < demand.since:
        return None
    return (
        _wrong_rank(node, demand, inputs)
        or _wrong_attribute(node, demand, inputs)
        or (_wrong_size(node, demand, inputs) if demand.sizes or demand.onto else None)
    )


def _wrong_rank(node: Node, demand: Demand, inputs: Sequence[Value | None]) -> str | None:
    for place, (ranks, value) in enumerate(zip(demand.ranks, inputs, strict=False)):
        if ranks is not None and value is not None and value.shape is not None and value.kind == "tensor":
            rank = len(value.shape)
            least, most = ranks
            if rank < least or (most is not None and rank > most):
                return f"input {_shown(node, place, value.shape)} has rank {rank}, not {_range(least, most)}"
    return None


def impossible(node: Node) -> str | None:
    """Which attribute no input makes right: a word that there is not, a stride of 0; None if all may be."""
    demand = DEMANDS.get((node.domain, node.op_type))
    return None if demand is None or 0 < node.version < demand.since else _impossible_attribute(node, demand)


def _impossible_attribute(node: Node, demand: Demand) -> str | None:
    attributes = node.attributes
    for name, words in demand.words.items():
        word = attributes.get(name)
        if isinstance(word, str) and word not in words:
            return f"attribute {name} is {word!r}, not one of {', '.join(sorted(filter(None, words)))}"
    for name in demand.positive:
        number = attributes.get(name)
        numbers = number if isinstance(number, tuple) else (number,)
        if any(isinstance(item, int) and item < 1 for item in numbers):
            return f"attribute {name} is {number if isinstance(number, int) else list(numbers)}, not positive"
    return None


def _wrong_attribute(node: Node, demand: Demand, inputs: Sequence[Value | None]) -> str | None:
    attributes = node.attributes
    if demand.axis in attributes and inputs[0] is not None and inputs[0].shape is not None:
        axis, rank = attributes[demand.axis], len(inputs[0].shape)
        # where everything from the axis on is one row, the axis may be behind the last one: rows of one element
        most = rank if node.op_type in _COERCED and 0 < node.version < 13 else rank - 1
        if isinstance(axis, int) and not -rank <= axis <= most:
            return f"axis {axis} is outside the rank {rank} of {_shown(node, 0, inputs[0].shape)}"
    if (alone := _impossible_attribute(node, demand)) is not None:
        return alone
    for name, place, axis in demand.divides:
        number, shape = attributes.get(name), _exact(inputs, place)
        if isinstance(number, int) and shape is not None and axis < len(shape) and shape[axis] % number:
            return f"attribute {name} is {number}, which does not divide {_shown(node, place, shape)} at axis {axis}"
    return None


def _wrong_size(node: Node, demand: Demand, inputs: Sequence[Value | None]) -> str | None:
    """Which sizes contradict each other; those that depend on data are not compared."""
    found: dict[str, tuple[int, str]] = {}
    for place, pattern in enumerate(demand.sizes):
        shape = _exact(inputs, place)
        if shape is None:
            continue
        for size, letter in zip(shape, pattern.split(), strict=False):
            if letter.startswith("."):
                continue
            name = letter[-1]
            times = int(letter[:-1] or 1)
            if size % times:
                return f"{_shown(node, place, shape)}: {size} is not a multiple of {times}"
            text = _shown(node, place, shape)
            known = found.setdefault(name, (size // times, text))
            if known[0] * times != size:
                wanted = f"{size} is not {known[0] * times}"
                return f"{text}: {wanted}" if text == known[1] else f"{text} does not fit {known[1]}: {wanted}"
    target = _exact(inputs, 0)
    for place in demand.onto:
        shape = _exact(inputs, place)
        if target is not None and shape is not None and broadcast_shapes(target, shape) != target:
            return f"{_shown(node, place, shape)} does not broadcast to {_shown(node, 0, target)}"
    return None


def _exact(inputs: Sequence[Value | None], place: int) -> tuple[int, ...] | None:
    value = inputs[place] if place < len(inputs) else None
    return None if value is None or value.is_bound or value.kind != "tensor" else value.shape


def _shown(node: Node, place: int, shape: tuple[int, ...]) -> str:
    return f"{node.inputs[place]} {list(shape)}"


def _range(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} or more"
    return str(least) if least == most else f"{least} to {most}"
