"""What the free dimensions of inputs stand for, by their names and places, and the sizes that they have by default."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from neusight_onnx.graph.model import Declared

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
    return role_of(symbol, [Place(input=declared, axis=0)]) == "batch"


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
_SOURCE_WORDS = frozenset({"encoder", "enc", "source", "src", "cross"})
_TARGET_WORDS = frozenset({"decoder", "dec", "target", "tgt"})
_STATE_WORDS = frozenset({"state", "states", "hidden", "h", "c", "h0", "c0", "hx", "cx", "hn", "cn"})
_MADE_UP = re.compile(r"^(s\d+|u\d+|unk__\d+|dim_?\d*|.*dynamicdimension.*|dynamic|.*_dim_\d+|axis\w*)$")
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


def is_made_up(symbol: str) -> bool:
    """Whether an exporter made up the name."""
    return _MADE_UP.match(symbol.lower()) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a free dimension stands."""

    input: Declared
    axis: int

    @property
    def rank(self) -> int:
        return len(self.input.shape or ())


LENGTH_ROLES = frozenset({"sequence", "total", "past", "audio", "source"})
"""Roles whose default is one of ``Lengths``."""


def roles_of(places: Mapping[str, Sequence[Place]]) -> dict[str, str]:
    """The role of each symbol, as :func:`role_of` has it, and "source": in a model that keeps keys and values,
    the length of what an encoder read before. A step of decoding appends nothing to it."""
    roles = {name: role_of(name, where) for name, where in places.items()}
    if "past" not in roles.values():
        return roles
    return {
        name: "source" if role in LENGTH_ROLES and _is_source(name, places[name]) else role
        for name, role in roles.items()
    }


_CACHE_WORDS = frozenset({"past", "cache", "kv"})
"""Words of inputs that hold keys and values."""
_BUFFER_WORDS = frozenset({"past", "cache"})
"""Those of them that nothing else is called by, whatever the rank."""


def is_called_cache(name: str) -> bool:
    """Whether the name of an input says that it holds keys and values."""
    return not _BUFFER_WORDS.isdisjoint(_words(name))


def keeps_cache(roles: Mapping[str, str], places: Mapping[str, Sequence[Place]], inputs: Iterable[Declared]) -> bool:
    """Whether a model keeps keys and values: the length of what came before is free, or a buffer for all of it is an
    input, of a free length or a fixed one (what TensorScatter writes into)."""
    if "past" in roles.values():
        return True
    buffers = [name for name, role in roles.items() if role == "total" and _is_in_cache(places[name])]
    return bool(buffers) or any(
        len(declared.shape or ()) == 4
        and is_called_cache(declared.name)
        and all(isinstance(dim, int) and dim > 1 for dim in (declared.shape or ())[1:])
        for declared in inputs
    )


def _is_in_cache(places: Sequence[Place]) -> bool:
    """Whether a dimension that isn't the first stands in an input of keys and values."""
    return any(set(_words(place.input.name)) & _CACHE_WORDS for place in places) and any(
        place.axis > 0 for place in places
    )


def _is_source(symbol: str, places: Sequence[Place]) -> bool:
    """By the symbol's words, or, where an exporter made it up, by those of all inputs that it stands in."""
    names = [place.input.name for place in places] if is_made_up(symbol) else [symbol]
    words = [set(_words(name)) for name in names]
    return all(said & _SOURCE_WORDS and not said & _TARGET_WORDS for said in words)


def role_of(symbol: str | None, places: Sequence[Place]) -> str:
    """batch, sequence, past, total, image, channels, audio or other, for a symbol or an unnamed dimension (None)."""
    first = places[0]
    input_words = set(_words(first.input.name))
    in_cache = _is_in_cache(places)
    if symbol is not None and not is_made_up(symbol):
        words = set(_words(symbol))
        if is_batch_symbol(symbol) or (words & _AUDIO_WORDS and first.axis == 0 and first.rank >= 2):
            return "batch"
        if words & _TOTAL_WORDS and (words & (_SEQUENCE_WORDS | _PAST_WORDS) or len(words) == 1):
            return "total"
        if words & _PAST_WORDS:
            # (b, heads, length, size of a head): the last one is no length, whatever words it is called by
            return "other" if all(place.rank == 4 and place.axis == 3 for place in places) else "past"
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
    # A recurrent state is (layers, batch, size); an encoder's "hidden states" are (batch, length, size).
    if first.rank == 3 and (input_words & _SOURCE_WORDS or not input_words & _STATE_WORDS):
        return "sequence"
    return "other"


def _is_signal(places: Sequence[Place]) -> bool:
    """Whether a free length belongs to raw samples: floats of shape (batch, length), where tokens would be integers and
    the features of a table are as many as the model has weights for."""
    return all(
        place.rank == 2 and place.axis == 1 and place.input.dtype is not None and place.input.dtype.is_float
        for place in places
    )


def size_of_role(role: str, lengths: Lengths, *, has_past: bool) -> int:
    """The default size of a dimension with a role; ``has_past``: the model has a cache."""
    match role:
        case "sequence":
            return 1 if has_past else lengths.sequence
        case "total" | "source":
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
    role = role_of(symbol, [Place(input=declared, axis=axis)])
    return size_of_role(role, DEFAULT_LENGTHS[0], has_past=False)


def places_of(inputs: Iterable[Declared]) -> dict[str, list[Place]]:
    """Where each symbol of the inputs stands."""
    places: dict[str, list[Place]] = {}
    for declared in inputs:
        for axis, dim in enumerate(declared.shape or ()):
            if isinstance(dim, str):
                places.setdefault(dim, []).append(Place(input=declared, axis=axis))
    return places
