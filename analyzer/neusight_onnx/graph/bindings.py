"""Gives every input a concrete shape: what the user binds, then stated defaults for what the model leaves free."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TypeVar

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import BindingError
from neusight_onnx.graph.model import Array, Declared, Dim, Graph, Model, Node, Notice, Value
from neusight_onnx.graph.names import is_written, named, option
from neusight_onnx.graph.signatures import first_version
from neusight_onnx.graph.wire import NUMPY_TYPES, shown

T = TypeVar("T")

MAX_SIZE = 2**31 - 1
"""Of one dimension: indices of GPU kernels and most runtimes are 32 bits wide."""

MAX_ELEMENTS = 2**48
"""Of one input: 2**48 bytes are a thousand times the memory of any GPU."""

MAX_VALUE_ELEMENTS = 65_536
"""Of a ``--value``: shapes depend on small tensors only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bindings:
    """What the user fixes: sizes of symbols, shapes of inputs (or of values that nothing else gives a shape),
    values of inputs on which shapes depend, and trip counts of loops by node name. ``batch`` is the size of the model's
    batch, whatever that is called there: see :func:`find_batch`."""

    dims: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    values: Mapping[str, Array] = field(default_factory=dict)
    trip_counts: Mapping[str, int] = field(default_factory=dict)
    batch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundInputs:
    """``values`` maps every graph input to what is known of it; ``symbols`` every symbol of the inputs (expressions
    such as "past + 1" too) to its size. ``assumptions`` has a line for each size that is a default.
    ``has_default_length``: some length is one, so that other :class:`Lengths` would bind the inputs differently.
    ``defaults`` are the symbols whose size is a default. ``batch``: the size that the user gave the batch as such;
    where the model has no symbol for it, ``symbols`` has it as "batch"."""

    values: Mapping[str, Value]
    symbols: Mapping[str, int]
    assumptions: tuple[str, ...] = ()
    warnings: tuple[Notice, ...] = ()
    has_default_length: bool = False
    defaults: frozenset[str] = frozenset()
    batch: int | None = None


def make_bindings(
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, Array] | None = None,
    trip_counts: Mapping[str, int] | None = None,
    batch: int | None = None,
) -> Bindings:
    """Bindings from a caller's mappings; BindingError where a size is no integer or a value no array of numbers."""
    return Bindings(
        dims={str(name): _whole(size, f"the size of '{name}'") for name, size in (dims or {}).items()},
        shapes={
            str(name): tuple(_whole(size, f"a size of '{name}'") for size in _listed_sizes(name, shape))
            for name, shape in (shapes or {}).items()
        },
        values={str(name): _number_array(name, value) for name, value in (values or {}).items()},
        trip_counts={
            str(name): _whole(count, f"the trip count of '{name}'") for name, count in (trip_counts or {}).items()
        },
        batch=None if batch is None else _whole(batch, "the batch"),
    )


def _whole(size: object, what: str) -> int:
    if isinstance(size, bool | np.bool_) or not isinstance(size, int | np.integer):
        raise BindingError(f"{what} is {size!r}; give an integer")
    return int(size)


def _listed_sizes(name: str, shape: object) -> Sequence[object]:
    if isinstance(shape, str) or not isinstance(shape, Sequence):
        raise BindingError(f"the shape of '{name}' is {shape!r}; give a tuple of integers")
    return shape


def _number_array(name: str, value: object) -> Array:
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise BindingError(f"the value of '{name}' is {value!r}; give numbers")
    return array


# --- what users write -------------------------------------------------------------------------------------------------


_SEVERAL = "; sweep and compare take several"


def parse_dim(text: str) -> dict[str, int]:
    """``"batch=8,seq=128"`` -> {"batch": 8, "seq": 128}."""
    result: dict[str, int] = {}
    for part in text.split(","):
        name, separator, size = part.rpartition("=")
        name = name.strip()
        if not separator or not name:
            several = result and re.fullmatch(r"\s*(\d+|\.\.\.|\d+\.\..*)\s*", part)
            comma = ", and \\x2c for a comma within a name" if "," in text else ""
            comma = _SEVERAL if several else comma
            raise BindingError(
                f"--dim {shown(text)}: {shown(part)!r} is no binding; write NAME=SIZE, e.g. batch=8{comma}"
            )
        if re.fullmatch(r"\s*\d+\.\..*", size):
            raise BindingError(f"--dim {shown(part)}: {shown(size)!r} is a range, give one size{_SEVERAL}")
        value = parse_size(size, f"--dim {shown(part)}")
        if result.setdefault(name, value) != value:
            raise BindingError(f"--dim {shown(text)}: {shown(name)!r} is given twice; keep one of the sizes")
    return result


def parse_size(text: str, where: str) -> int:
    """A size; ``where`` begins the message of the BindingError for what is none. 0 may be one: an empty cache."""
    size = _integer(text, where)
    _check_size(size, where, least=0)
    return size


def parse_batch(text: str) -> int:
    """``"8"`` -> 8, of an option that is about the batch alone."""
    where = f"--batch {shown(text)}"
    if re.fullmatch(r"\s*\d+\s*(,|\.\.).*", text):
        raise BindingError(f"{where}: give one size{_SEVERAL}")
    size = _integer(text, where)
    _check_size(size, where)
    return size


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """``"x=1x3x224x224"``, ``"x:1x3x224x224"``, ``"s=scalar"`` -> (name, shape)."""
    name, separator, shape = text.rpartition("=")
    if not separator:
        name, separator, shape = text.rpartition(":")
    name, shape = name.strip(), shape.strip().lower()
    if not separator or not name or not shape:
        raise BindingError(
            f"--shape {shown(text)} is no shape; write NAME=1x3x224x224, or NAME=scalar for one without dimensions"
        )
    if shape == "scalar":
        return name, ()
    sizes = tuple(_integer(size, f"--shape {shown(text)}") for size in re.split(r"[x,]", shape.strip("[]()")))
    _check_shape(sizes, f"--shape {shown(text)}", least=0)
    return name, sizes


def parse_value(text: str) -> tuple[str, Array]:
    """``"n=16000"``, ``"n=[1,3,8]"``, ``"flag=true"`` (or True) -> (name, array of int64, float64 or bool)."""
    name, separator, written = text.partition("=")
    name = name.strip()
    if not separator or not name:
        raise BindingError(f"--value {shown(text)} is no value; write INPUT=16000 or INPUT=[1,3,8]")
    complaint = f"--value {shown(text)}: {shown(written)!r} is neither a number nor a list of numbers"
    if len(written) > 1_000_000:
        raise BindingError(f"{complaint}, and too long")
    try:
        parsed = json.loads(re.sub(r"\b(True|False)\b", lambda match: match[0].lower(), written))
    except (ValueError, RecursionError):
        raise BindingError(f"{complaint}; write INPUT=16000 or INPUT=[1,3,8]") from None
    flat: list[int | float | bool] = []
    shape = _flatten(parsed, flat, complaint, 0)
    if len(flat) > MAX_VALUE_ELEMENTS:
        raise BindingError(f"--value {shown(text)}: more than {MAX_VALUE_ELEMENTS:,} elements; no shape needs so many")
    if flat and all(isinstance(item, bool) for item in flat):
        kind = "bool"
    elif any(isinstance(item, float) for item in flat):
        kind = "float64"
    else:
        kind = "int64"
        if any(not -(2**63) <= item < 2**63 for item in flat):
            raise BindingError(f"--value {shown(text)}: a number does not fit 64 bits")
    array: Array = np.array(flat, kind).reshape(shape)
    array.setflags(write=False)
    return name, array


def parse_trip_count(text: str) -> tuple[str, int]:
    """``"node=5"`` -> (node, 5)."""
    name, separator, count = text.rpartition("=")
    name = name.strip()
    if not separator or not name:
        raise BindingError(f"--trip-count {shown(text)} is no trip count; write NODE=5")
    value = _integer(count, f"--trip-count {shown(text)}")
    if not 0 <= value <= MAX_SIZE:
        raise BindingError(f"--trip-count {shown(text)}: give a number from 0 to {MAX_SIZE:,}")
    return name, value


def _integer(text: str, where: str) -> int:
    text = text.strip()
    if not re.fullmatch(r"[+-]?\d{1,30}", text, re.ASCII):
        raise BindingError(f"{where}: {shown(text, 40)!r} is no whole number")
    return int(text)


def _check_size(size: int, where: str, *, least: int = 1) -> None:
    """``least`` is 0 where it isn't known yet whether the size may be 0: see :func:`_check_empty`."""
    if size < least:
        raise BindingError(f"{where}: a size must be positive, not {size}")
    if size > MAX_SIZE:
        raise BindingError(f"{where}: {size} is more than a dimension can have ({MAX_SIZE:,})")


def _check_shape(shape: Sequence[int], where: str, *, least: int = 1) -> None:
    for size in shape:
        _check_size(size, where, least=least)
    if prod(shape) > MAX_ELEMENTS:
        raise BindingError(f"{where}: {prod(shape):,} elements are more than a tensor can have here (2^48)")


def _flatten(item: object, flat: list[int | float | bool], complaint: str, depth: int) -> tuple[int, ...]:
    if isinstance(item, bool | int | float):
        flat.append(item)
        return ()
    if not isinstance(item, list) or depth > 8:
        raise BindingError(f"{complaint}; write INPUT=16000 or INPUT=[1,3,8]")
    shapes = [_flatten(part, flat, complaint, depth + 1) for part in item]
    if any(shape != shapes[0] for shape in shapes):
        raise BindingError(f"{complaint}: its rows differ in length")
    return (len(shapes), *(shapes[0] if shapes else ()))


# --- symbols ----------------------------------------------------------------------------------------------------------

_BATCH_NAMES = frozenset(
    {
        "batch",
        "batchsize",
        "batch_size",
        "batchdim",
        "batch_dim",
        "batches",
        "bsz",
        "bs",
        "b",
        "n",
        "nb",
        "nbatch",
        "n_batch",
        "num_batch",
        "num_batches",
        "dynamic_batch",
        "batch_axis",
        "batch_num",
        "bsize",
        "minibatch",
    }
)


def is_batch_symbol(name: str) -> bool:
    """Whether a symbol's name says that it is the batch."""
    lowered = name.lower()
    words = set(_words(lowered))
    return lowered in _BATCH_NAMES or ("batch" in words and not words & _SEQUENCE_WORDS)


def can_be_batch(symbol: str, declared: Declared) -> bool:
    """Whether a free first dimension of an input may be the batch: it isn't named as something else."""
    return _role(symbol, [_Place(input=declared, axis=0)]) == "batch"


_SEQUENCE_WORDS = frozenset(
    {
        "seq",
        "seqs",
        "seqlen",
        "sequence",
        "length",
        "len",
        "lengths",
        "time",
        "times",
        "timesteps",
        "timestep",
        "steps",
        "tokens",
        "token",
        "t",
        "s",
        "l",
        "text",
        "words",
        "frames",
    }
)
_PAST_WORDS = frozenset({"past", "cache", "cached", "kv", "memory", "mem", "p"})
_TOTAL_WORDS = frozenset({"total", "max"})
_IMAGE_WORDS = frozenset(
    {
        "height",
        "width",
        "h",
        "w",
        "hw",
        "rows",
        "cols",
        "columns",
        "image_height",
        "image_width",
        "img",
        "imgsz",
        "size",
    }
)
_CHANNEL_WORDS = frozenset({"channel", "channels", "c", "ch"})
_AUDIO_WORDS = frozenset({"samples", "sample", "audio", "wave", "waveform", "wav", "signal"})
_AUTOMATIC = re.compile(r"^(s\d+|u\d+|unk__\d+|dim_?\d*|.*dynamicdimension.*|dynamic|.*_dim_\d+|axis\w*)$")
"""Names that exporters make up (torch's s77, tf2onnx's unk__12, Paddle's DynamicDimension.0); they tell nothing."""

_DEFAULT_IMAGE = 224
_DEFAULT_CHANNELS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Default lengths: tokens (or steps) of a sequence, and samples of raw audio.

    With a cache the default is one step of decoding: 1 new token behind ``sequence`` - 1 past ones.
    """

    sequence: int
    audio: int
    keeps_zero: bool = False
    """A dimension that an input declares as 0 is taken as such; some exporters write 0 for one that is free."""


DEFAULT_LENGTHS = (
    Lengths(sequence=128, audio=16_000),
    Lengths(sequence=64, audio=512),
    Lengths(sequence=16, audio=576),
)
"""The first is the default; the others are for models whose tables or windows the first does not fit: CLIP takes 77
tokens, Silero VAD a window of 512 samples (576 with its context)."""


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a free dimension stands."""

    input: Declared
    axis: int

    @property
    def rank(self) -> int:
        return len(self.input.shape or ())


def _role(symbol: str | None, places: Sequence[_Place]) -> str:
    """batch, sequence, past, total, image, channels, audio or other, for a symbol or an unnamed dimension (None)."""
    first = places[0]
    input_words = set(_words(first.input.name))
    in_cache = any(set(_words(place.input.name)) & {"past", "cache", "kv"} for place in places) and any(
        place.axis > 0 for place in places
    )
    if symbol is not None and not _AUTOMATIC.match(symbol.lower()):
        words = set(_words(symbol))
        if is_batch_symbol(symbol) or (words & _AUDIO_WORDS and first.axis == 0 and first.rank >= 2):
            return "batch"
        if words & _TOTAL_WORDS and (words & (_SEQUENCE_WORDS | _PAST_WORDS) or len(words) == 1):
            return "total"
        if words & _PAST_WORDS:
            return "past"
        if words & _AUDIO_WORDS:
            return "audio"
        if first.rank in (4, 5) and words & _IMAGE_WORDS and first.axis > 0:
            return "image"
        if words & _CHANNEL_WORDS and first.axis > 0:
            return "channels"
        if words & _SEQUENCE_WORDS or any(word.endswith(("len", "length", "seq")) for word in words):
            return "audio" if _is_signal(places) else "sequence"
        if {"height", "width"} & words:
            return "image"
    if any(place.axis == 0 and place.rank >= 2 for place in places):
        return "batch"
    if in_cache:
        return "past" if first.axis == first.rank - 2 else "other"
    if "mask" in input_words and first.rank == 2:
        return "total"
    if first.rank == 4:
        sizes = first.input.shape or ()
        channels_last = isinstance(sizes[3], int) and sizes[3] in (1, 3, 4)
        if channels_last or first.axis >= 2:
            return "image"
        return "channels"
    if _is_signal(places) or (first.rank in (1, 2) and input_words & _AUDIO_WORDS):
        return "audio"
    if first.rank == 2 and first.input.dtype is not None and first.input.dtype.is_integer:
        return "sequence"
    if first.rank == 3 and not input_words & {
        "state",
        "states",
        "hidden",
        "h",
        "c",
        "h0",
        "c0",
        "hx",
        "cx",
        "hn",
        "cn",
    }:
        return "sequence"
    return "other"


def _is_signal(places: Sequence[_Place]) -> bool:
    """Whether a free length belongs to raw samples: floats of shape (batch, length), where tokens would be integers and
    the features of a table are as many as the model has weights for."""
    return all(
        place.rank == 2 and place.axis == 1 and place.input.dtype is not None and place.input.dtype.is_float
        for place in places
    )


def _default_size(role: str, lengths: Lengths, *, has_past: bool) -> int:
    match role:
        case "sequence":
            return 1 if has_past else lengths.sequence
        case "total":
            return lengths.sequence
        case "past":
            return lengths.sequence - 1
        case "image":
            return _DEFAULT_IMAGE
        case "channels":
            return _DEFAULT_CHANNELS
        case "audio":
            return lengths.audio
        case _:
            return 1


def default_size(symbol: str, declared: Declared, axis: int) -> int:
    """The size of a free symbol that stands at this place of a value, and in no input."""
    role = _role(symbol, [_Place(input=declared, axis=axis)])
    return _default_size(role, DEFAULT_LENGTHS[0], has_past=False)


# --- expressions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expression:
    """A symbol that is a formula over others, such as "past_sequence_length + 1"."""

    text: str
    tree: ast.expr
    names: frozenset[str]

    def size(self, symbols: Mapping[str, int]) -> int | None:
        try:
            return _evaluate(self.tree, symbols)
        except (ZeroDivisionError, OverflowError):
            return None


def _expression(text: str, known: frozenset[str] | set[str]) -> _Expression | None:
    """``text`` as a formula whose names are all ``known`` symbols; None if it is a plain name."""
    if len(text) > 300 or not (re.search(r"[-+*/%(]", text) or text.isdigit()):
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name):
                if name not in _FUNCTIONS:
                    names.add(name)
            case ast.Constant(value=int(value)) if value.bit_length() < 64:
                pass
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.FloorDiv() | ast.Mod()):
                pass
            case ast.UnaryOp(op=ast.USub()):
                pass
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _FUNCTIONS:
                pass
            case ast.Load() | ast.operator() | ast.unaryop():
                pass
            case _:
                return None
    if not names <= known:
        return None
    return _Expression(text=text, tree=tree, names=frozenset(names))


_FUNCTIONS = frozenset({"max", "min", "Max", "Min", "floor", "ceil", "ceiling", "FloorDiv", "floordiv"})


def _evaluate(tree: ast.expr, symbols: Mapping[str, int]) -> int | None:
    match tree:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return symbols.get(name)
        case ast.UnaryOp(operand=operand):
            value_or_none = _evaluate(operand, symbols)
            return None if value_or_none is None else -value_or_none
        case ast.Call(func=ast.Name(id=function), args=arguments):
            given = [_evaluate(argument, symbols) for argument in arguments]
            values = [value for value in given if value is not None]
            if not values or len(values) != len(given):
                return None
            match function.lower():
                case "max":
                    return max(values)
                case "min":
                    return min(values)
                case "floordiv" if len(values) == 2:
                    return values[0] // values[1]
                case _:
                    return values[0]
        case ast.BinOp(left=left_tree, op=operator, right=right_tree):
            left, right = _evaluate(left_tree, symbols), _evaluate(right_tree, symbols)
            if left is None or right is None:
                return None
            match operator:
                case ast.Add():
                    result = left + right
                case ast.Sub():
                    result = left - right
                case ast.Mult():
                    result = left * right
                case ast.Mod():
                    result = left % right
                case _:
                    # Sizes are whole: exporters write "/" for the floor division of a stride.
                    result = left // right
            return result if abs(result) < 2**64 else None
        case _:
            return None


# --- the batch --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Where a model's inputs have the batch: its ``symbols``, and ``inputs`` whose first dimension has no name."""

    symbols: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What reports call it: its first symbol."""
        return self.symbols[0] if self.symbols else "batch"


def find_batch(model: Model, asked: str, size: int | None = None) -> Batch:
    """The batch of ``model``: the symbols that are named so, else what is free in front of inputs and may be it.

    Nameless first dimensions of inputs of two dimensions and more belong to it. A batch that the file fixes is found if
    it has the wanted ``size`` already. Raises BindingError, which begins with ``asked``, where there is none, and where
    several symbols with names of their own could be it.
    """
    inputs = [declared for declared in model.graph.inputs if declared.shape and declared.kind != "map"]
    nameless = tuple(
        declared.name for declared in inputs if len(declared.shape or ()) > 1 and (declared.shape or ())[0] in (None, 0)
    )
    places = _places(inputs)
    names = frozenset(places)
    places = {name: found for name, found in places.items() if _expression(name, names - {name}) is None}
    symbols = [name for name in places if is_batch_symbol(name)]
    if not symbols:
        symbols = [name for name, found in places.items() if _role(name, found) == "batch"]
        telling = [name for name in symbols if not _AUTOMATIC.match(name.lower())]
        if len(telling) > 1:
            found = " or ".join(f"{shown(name)} (of {shown(places[name][0].input.name)})" for name in telling[:6])
            raise BindingError(f"{asked}: the batch could be {found}; say which, {option('--dim', telling[0], 'N')}")
    if symbols or nameless:
        return Batch(symbols=tuple(symbols), inputs=nameless)
    several = [declared for declared in inputs if len(declared.shape or ()) > 1]
    if several and all((declared.shape or ())[0] == size for declared in several):
        return Batch()
    if several and all(isinstance((declared.shape or ())[0], int) for declared in several):
        first = several[0]
        raise BindingError(
            f"{asked}: the file fixes the first dimension of its inputs ({shown(first.name)} is "
            f"{_written_dims(first.shape or ())}); export the model with a symbolic one"
        )
    known = _listed("symbols", "batch", places)
    raise BindingError(f"{asked}: no dimension of the inputs looks like a batch; {known}; --dim binds what has a name")


# --- binding ----------------------------------------------------------------------------------------------------------


SYMBOL_CONTRADICTION = "symbol-contradiction"
"""The code of the warning that two inputs were given different sizes of one symbol."""


@dataclass(slots=True, kw_only=True)
class _Sizes:
    """Sizes of symbols while they become known, and what fixed each; ``defaults`` are those that the user left free."""

    symbols: dict[str, int] = field(default_factory=dict)
    causes: dict[str, str] = field(default_factory=dict)
    defaults: set[str] = field(default_factory=set)
    disputed: dict[str, str] = field(default_factory=dict)
    has_default_length: bool = False

    def fix(self, symbol: str, size: int, cause: str, *, of_input: bool = False) -> None:
        """``of_input``: so says the given shape of an input, which another input's shape may contradict.

        Runtimes don't hold inputs to the names of their dimensions, and exporters reuse a name where sizes differ (the
        lengths of an encoder's and a decoder's tokens): the first size stands for the symbol, each input keeps its own.
        """
        known = self.symbols.setdefault(symbol, size)
        if known != size and self.causes[symbol] == cause:
            raise BindingError(f"{cause} makes {shown(symbol)!r} both {known} and {size}; give one size")
        if known != size and of_input:
            self.disputed.setdefault(
                symbol, f"{cause} makes {shown(symbol)!r} {size}, but {self.causes[symbol]} made it {known}"
            )
        elif known != size:
            raise BindingError(
                f"{cause} makes {shown(symbol)!r} {size}, but {self.causes[symbol]} made it {known}; give one size"
            )
        self.causes.setdefault(symbol, cause)


def named_as_in(model: Model, bindings: Bindings) -> Bindings:
    """``bindings`` with names in the form that messages write them in (escapes, cut at the end) as the model has them.

    BindingError where two forms of one name are bound to different things.
    """
    names = (*bindings.dims, *bindings.shapes, *bindings.values, *bindings.trip_counts)
    if not any(is_written(name) for name in names):
        return bindings
    inputs = {declared.name for declared in model.graph.inputs}
    symbols = set(_places(model.graph.inputs))
    nodes = list(_all_nodes(model.graph))
    values = inputs | {output for node in nodes for output in node.outputs}
    loops = {node.name for node in nodes if node.op_type in ("Loop", "Scan")}
    return replace(
        bindings,
        dims=_named("--dim", bindings.dims, symbols),
        shapes=_named("--shape", bindings.shapes, values),
        values=_named("--value", bindings.values, inputs),
        trip_counts=_named("--trip-count", bindings.trip_counts, loops),
    )


def _named(option_name: str, bound: Mapping[str, T], known: set[str]) -> Mapping[str, T]:
    result: dict[str, T] = {}
    for text, item in bound.items():
        name = named(text, known)
        if not np.array_equal(result.setdefault(name, item), item):  # type: ignore[arg-type]  # numbers, shapes, arrays
            raise BindingError(f"{option_name} gives {shown(name)!r} twice, and not the same; keep one of them")
    return result


def bind_inputs(model: Model, bindings: Bindings, lengths: Lengths = DEFAULT_LENGTHS[0]) -> BoundInputs:
    """A concrete shape for every input of ``model``; ``lengths`` are the defaults of what is a length.

    Order of precedence: ``--shape`` and ``--value``, ``--dim`` and ``--batch``, formulas over bound symbols, defaults;
    a batch is 1.
    Raises BindingError for names that the model does not have, ranks or sizes that contradict it, and a ``--dim`` that
    contradicts a ``--shape``. Shapes of two inputs that contradict each other in a symbol are kept, with a warning.
    """
    inputs = {declared.name: declared for declared in model.graph.inputs}
    _check_names(model, bindings, inputs)
    places = _places(inputs.values())
    sizes = _Sizes()
    shapes: dict[str, tuple[int, ...]] = {}
    values: dict[str, Array] = {}
    for name, shape in bindings.shapes.items():
        cause = f"--shape {shown(name)}={_written(shape)}"
        _check_shape(shape, cause, least=0 if name in inputs else 1)
        if name in inputs:
            shapes[name] = _match(inputs[name], shape, sizes, cause)
    for name, array in bindings.values.items():
        values[name] = _as_declared(inputs[name], array)
        shape = _match(inputs[name], array.shape, sizes, f"--value {shown(name)}")
        if shapes.setdefault(name, shape) != shape:
            raise BindingError(
                f"--value {shown(name)} has the shape {_written(shape)}, --shape says {_written(shapes[name])}"
            )
    for symbol, size in bindings.dims.items():
        cause = f"--dim {shown(symbol)}={size}"
        _check_size(size, cause, least=0)
        sizes.fix(symbol, size, cause)
    batch = None if bindings.batch is None else _bind_batch(model, bindings.batch, sizes, shapes)
    assumptions = _complete(places, sizes, lengths)
    given = {dim for name in values for dim in inputs[name].shape or ()}
    for symbol, size in sizes.symbols.items():
        if size == 0 and symbol not in given:  # an empty list is a value like any other
            _check_empty(symbol, places.get(symbol, ()), sizes.causes[symbol])
    for name, shape in shapes.items():
        for axis, dim in enumerate(inputs[name].shape or (None,) * len(shape)):
            if shape[axis] == 0 and dim != 0 and not isinstance(dim, str) and name not in values:
                place = _Place(input=inputs[name], axis=axis)
                _check_empty(None, [place], f"--shape {shown(name)}={_written(shape)}")
    warnings = [
        Notice(
            code=SYMBOL_CONTRADICTION,
            message=f"{text}: each input keeps the shape that it was given, elsewhere {shown(symbol)!r} is "
            f"{sizes.symbols[symbol]}",
        )
        for symbol, text in sizes.disputed.items()
    ]
    bound: dict[str, Value] = {}
    for name, declared in inputs.items():
        bound_shape = shapes.get(name)
        if bound_shape is None and declared.shape is not None and declared.kind != "map":
            first = bindings.batch if batch is not None and name in batch.inputs else None
            bound_shape, line = _bound_shape(model, declared, sizes, lengths, first)
            if line:
                assumptions.append(line)
        if bound_shape is None and declared.kind != "map":
            warnings.append(
                Notice(
                    code="input-shape-unknown",
                    message=f"the model declares no shape for its input {shown(name)!r}; "
                    f"{option('--shape', name, '…')} gives it",
                )
            )
        bound[name] = Value(
            dtype=declared.dtype,
            shape=bound_shape,
            data=values.get(name),
            kind=declared.kind,
            unknown_because=name if bound_shape is None else None,
        )
    return BoundInputs(
        values=bound,
        symbols=sizes.symbols,
        assumptions=tuple(assumptions),
        warnings=tuple(warnings),
        has_default_length=sizes.has_default_length,
        defaults=frozenset(sizes.defaults),
        batch=bindings.batch,
    )


def _has_batch(model: Model) -> bool:
    try:
        find_batch(model, "")
    except BindingError:
        return False
    return True


def _bind_batch(model: Model, size: int, sizes: _Sizes, shapes: Mapping[str, tuple[int, ...]]) -> Batch:
    cause = f"--batch {size}"
    _check_size(size, cause)
    batch = find_batch(model, cause, size)
    for symbol in batch.symbols or (batch.name,):
        sizes.fix(symbol, size, cause)
    for name in batch.inputs:
        if name in shapes and shapes[name][0] != size:
            raise BindingError(f"{cause}: --shape {shown(name)} says {_written(shapes[name])}; give one size")
    return batch


def _check_empty(symbol: str | None, places: Sequence[_Place], cause: str) -> None:
    """A size of 0 has a meaning only where it makes a cache empty: nothing came before, as in a prefill."""
    if not places or _role(symbol, places) != "past":
        raise BindingError(
            f"{cause}: a size must be positive, not 0; only the length of what a cache holds already can be 0"
        )


def _written(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) if shape else "scalar"


def _places(inputs: Iterable[Declared]) -> dict[str, list[_Place]]:
    places: dict[str, list[_Place]] = {}
    for declared in inputs:
        for axis, dim in enumerate(declared.shape or ()):
            if isinstance(dim, str):
                places.setdefault(dim, []).append(_Place(input=declared, axis=axis))
    return places


def _check_names(model: Model, bindings: Bindings, inputs: Mapping[str, Declared]) -> None:
    """Every name that is bound must be one of the model's."""
    if bindings.dims:
        places = _places(inputs.values())
        known = set(places)
        for declared in model.graph.declared.values():
            known.update(dim for dim in declared.shape or () if isinstance(dim, str))
        for name in bindings.dims:
            if name not in known:
                symbols = _listed("symbols", name, {**places, **dict.fromkeys(_symbols_of_unknown(model.graph))})
                hint = "; --batch binds the batch, whatever its name" if is_batch_symbol(name) else ""
                raise BindingError(f"--dim {shown(name)}: the model has no symbol of this name; {symbols}{hint}")
    for name in bindings.shapes:
        if name not in inputs and not _has_value(model.graph, name):
            outputs = dict.fromkeys(output for node in _all_nodes(model.graph) for output in node.outputs if output)
            raise BindingError(
                f"--shape {shown(name)}: the model has no input or value of this name; "
                f"{_listed('inputs', name, inputs)}; {_listed('values', name, outputs)}"
            )
    for name in bindings.values:
        if name not in inputs:
            raise BindingError(
                f"--value {shown(name)}: the model has no input of this name; {_listed('inputs', name, inputs)}"
            )
    if bindings.trip_counts:
        loops = {node.name for node in _all_nodes(model.graph) if node.op_type in ("Loop", "Scan")}
        for name in bindings.trip_counts:
            if name not in loops:
                raise BindingError(
                    f"--trip-count {shown(name)}: the model has no Loop or Scan node of this name; "
                    f"{_listed('loops', name, loops)}"
                )


def _symbols_of_unknown(graph: Graph) -> Iterator[str]:
    """Symbols that the file declares for what unknown operators give."""
    for node in graph.nodes:
        if first_version(node.domain, node.op_type) is None:
            for name in node.outputs:
                declared = graph.declared.get(name)
                yield from (dim for dim in (declared.shape or () if declared else ()) if isinstance(dim, str))


def _has_value(graph: Graph, name: str) -> bool:
    return name in graph.declared or any(name in node.outputs for node in _all_nodes(graph))


def _all_nodes(graph: Graph) -> Iterator[Node]:
    pending = [graph]
    while pending:
        current = pending.pop()
        for node in current.nodes:
            yield node
            for value in node.attributes.values():
                if isinstance(value, Graph):
                    pending.append(value)
                elif isinstance(value, tuple):
                    pending.extend(body for body in value if isinstance(body, Graph))


def _listed(what: str, wanted: str, known: Iterable[str]) -> str:
    """The names that there are, the nearest first."""
    names = list(known)
    if not names:
        return f"it has no {what}"
    # Imported here: only a mistake needs it.
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(b=wanted[:100].lower())

    def likeness(name: str) -> float:
        matcher.set_seq1(name[:100].lower())
        return -matcher.ratio()

    names = sorted(names[:1000], key=likeness)
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"its {what}: {', '.join(shown(name, 60) for name in names[:10])}{more}"


def _match(declared: Declared, shape: tuple[int, ...], sizes: _Sizes, cause: str) -> tuple[int, ...]:
    """Checks a given shape against the declared one and takes over the sizes of symbols."""
    if declared.shape is None:
        return shape
    if len(shape) != len(declared.shape):
        raise BindingError(
            f"{cause}: {_written(shape)} has {len(shape)} dimensions, the model declares "
            f"{len(declared.shape)}: {_written_dims(declared.shape)}"
        )
    for axis, (size, dim) in enumerate(zip(shape, declared.shape, strict=True)):
        if isinstance(dim, str):
            sizes.fix(dim, size, cause, of_input=True)
        elif dim is not None and dim > 0 and dim != size:
            raise BindingError(
                f"{cause}: dimension {axis} is {size}, the model fixes it at {dim}: {_written_dims(declared.shape)}"
            )
    return shape


def _written_dims(dims: Sequence[Dim]) -> str:
    return shown("x".join("?" if dim is None or dim == 0 else str(dim) for dim in dims) or "scalar", 200)


def _as_declared(declared: Declared, array: Array) -> Array:
    """The value in the input's declared type; it must survive the conversion."""
    kind = None if declared.dtype is None else NUMPY_TYPES.get(declared.dtype)
    if declared.dtype is DataType.BFLOAT16:
        kind = np.dtype(np.float32)
    if kind is None:
        if declared.dtype is None:
            return array
        raise BindingError(
            f"--value {shown(declared.name)}: an input of type {declared.dtype.label} takes no value here"
        )
    with np.errstate(all="ignore"):
        converted = array.astype(kind)
        exact = kind.kind == "f" or bool(np.array_equal(converted.astype(array.dtype), array))
    if not exact:
        assert declared.dtype is not None
        raise BindingError(
            f"--value {shown(declared.name)}: the value does not fit the input's type {declared.dtype.label}"
        )
    converted.setflags(write=False)
    return converted


def _complete(places: Mapping[str, list[_Place]], sizes: _Sizes, lengths: Lengths) -> list[str]:
    """Fixes every symbol of the inputs that is still free; returns a line for each default."""
    plain = {name for name in places if _expression(name, frozenset()) is None}
    expressions: dict[str, _Expression] = {}
    for name in places:
        expression = _expression(name, plain - {name})
        if expression is not None:
            expressions[name] = expression
    _solve(expressions, sizes)
    free = [name for name in places if name not in sizes.symbols and name not in expressions]
    roles = {name: _role(name, where) for name, where in places.items() if name not in expressions}
    has_past = "past" in roles.values()
    assumptions = []
    sizes.defaults.update(free)
    # What is computed from others comes after them.
    for name in sorted(free, key=lambda name: {"past": 1, "total": 2}.get(roles[name], 0)):
        size, note = _default(name, roles, sizes, lengths, has_past=has_past)
        sizes.fix(name, size, note)
        sizes.has_default_length |= roles[name] in _LENGTH_ROLES
        assumptions.append(
            f"{shown(name)} = {size} ({note}, the model leaves it free; {option('--dim', name, 'N')} changes it)"
        )
    for name, expression in expressions.items():
        result = expression.size(sizes.symbols)
        if name in sizes.symbols:
            if result is not None and result != sizes.symbols[name]:
                raise BindingError(
                    f"{sizes.causes[name]} makes {shown(name)!r} {sizes.symbols[name]}, but its formula gives "
                    f"{result}; bind its parts instead"
                )
        elif result is None or result <= 0:
            parts = ", ".join(f"{part} = {sizes.symbols[part]}" for part in sorted(expression.names))
            raise BindingError(
                f"the dimension {shown(name)!r} can't be had from {parts}; bind it with --dim or --shape"
            )
        else:
            _check_size(result, f"the dimension {shown(name)!r}")
            sizes.fix(name, result, "its formula")
    return assumptions


_LENGTH_ROLES = frozenset({"sequence", "total", "past", "audio"})


def _default(
    name: str, roles: Mapping[str, str], sizes: _Sizes, lengths: Lengths, *, has_past: bool
) -> tuple[int, str]:
    """The size of a free symbol, and in words how it came about.

    Exporters may give each input symbols of its own (torch's s10, s86): free ones follow what the user bound.
    """
    role = roles[name]
    sequence = next((other for other, its_role in roles.items() if its_role == "sequence"), None)
    new, new_name = (1, "1") if sequence is None else (sizes.symbols.get(sequence, 0), shown(sequence))
    if role == "total" and has_past:
        past = next(other for other, its_role in roles.items() if its_role == "past")
        return sizes.symbols[past] + new, f"default: {shown(past)} + {new_name}"
    # Without a cache a mask is as long as the sequence. Two sequences (encoder, decoder) need not be alike.
    alike = {"batch": "batch", "past": "past", "total": "sequence"}.get(role)
    for other, size in sizes.symbols.items():
        if alike is not None and roles.get(other) == alike and other not in sizes.defaults:
            return size, f"default: as {shown(other)}"
    if role == "past":
        for other, size in sizes.symbols.items():
            if roles.get(other) == "total" and other not in sizes.defaults and size >= new:
                return size - new, f"default: {shown(other)} - {new_name}"
    return _default_size(role, lengths, has_past=has_past), "default"


def _solve(expressions: Mapping[str, _Expression], sizes: _Sizes) -> None:
    """A bound formula with one unknown name gives that name: "past + 1" = 128 says past = 127."""
    for text, expression in expressions.items():
        unknown = [name for name in expression.names if name not in sizes.symbols]
        if text not in sizes.symbols or len(unknown) != 1:
            continue
        name, wanted = unknown[0], sizes.symbols[text]
        low, high = (expression.size({**sizes.symbols, name: trial}) for trial in (0, 1))
        if low is None or high is None or high == low:
            continue
        solution = (wanted - low) // (high - low)
        if solution >= 0 and expression.size({**sizes.symbols, name: solution}) == wanted:
            sizes.fix(name, solution, sizes.causes[text])


def _bound_shape(
    model: Model, declared: Declared, sizes: _Sizes, lengths: Lengths, first: int | None
) -> tuple[tuple[int, ...], str | None]:
    """The shape of an input with its symbols bound and defaults for nameless dimensions, and the line that says so.

    ``first``: the size that the first dimension was given, which has no name.
    """
    shape: list[int] = []
    free: list[int] = []
    dims = declared.shape or ()
    for axis, dim in enumerate(dims):
        if isinstance(dim, str):
            shape.append(sizes.symbols[dim])
        elif axis == 0 and first is not None:
            shape.append(first)
        elif dim is None or (dim == 0 and not lengths.keeps_zero):
            free.append(axis)
            role = _role(None, [_Place(input=declared, axis=axis)])
            shape.append(_default_size(role, lengths, has_past=False))
            sizes.has_default_length |= role in _LENGTH_ROLES
        else:
            shape.append(dim)
    name = shown(declared.name)
    _check_shape(shape, f"input {name}", least=0)
    if not free:
        return tuple(shape), None
    which = (
        f"dimension {free[0]} is a default, the model leaves it free"
        if len(free) == 1
        else f"dimensions {', '.join(map(str, free))} are defaults, the model leaves them free"
    )
    if any(dims[axis] == 0 for axis in free):
        which += f"; it declares {list(dims)}, where 0 is read as free"
    changed_by = f"{option('--shape', declared.name, _written(shape))} with other sizes"
    if free == [0] and len(shape) > 1 and _has_batch(model):
        changed_by = "--batch N"
    return tuple(shape), f"{name} = {_written(shape)} ({which}; {changed_by} changes it)"
