"""What two reports are compared by, from a report or from its JSON in a file."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neusight_onnx.errors import ComparisonError
from neusight_onnx.regular_files import read_at_most
from neusight_onnx.report.difference import Side
from neusight_onnx.report.machine import to_json
from neusight_onnx.report.model import SCHEMA_VERSION, Report

_MAX_FILE_BYTES = 1 << 28
_MOST_COUNTED = 1 << 63
"""No size, count or number of bytes reaches it: ONNX's are 64-bit integers. Nor does a time: it would be 292,000
years in microseconds."""

_ROUNDED_SHARE = 1e-3
"""By more than this the kernels' times and a total don't differ by their six digits: they were seen to by 1e-5."""

MOST_NODES = 3
"""Nodes of equal kernels that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Equal kernels of a report, together."""

    nodes: tuple[str, ...]
    count: int
    latency_us: float


_PLAN = ("optimizer", "loss", "recompute", "grad_accumulation", "dropout", "freeze")
"""What a step of training is made of, of what its report says."""

Form = tuple[str, str, str]
"""Class, dtype, dims in JSON: kernels that have these in common are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A report as its JSON says it, figures rounded as there.

    ``inputs``: (name, dtype, shape) of the model's inputs. ``unsupported``: number of nodes by (operator, reason).
    ``training``: what a step of training is made of, in words; empty at inference.
    """

    side: Side
    inputs: tuple[tuple[str, str | None, tuple[int, ...] | None], ...]
    kernels: Mapping[Form, Kernels]
    unsupported: Mapping[tuple[str, str], int]
    training: Mapping[str, str]


def read_report(path: Path) -> Saved:
    """A report that ``analyze --format json`` wrote; ComparisonError for anything else, and for a newer schema."""
    try:
        content = read_at_most(path, _MAX_FILE_BYTES)
    except FileNotFoundError:
        raise ComparisonError(f"{path} does not exist; give a model, or a report of analyze --format json") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ComparisonError(f"{path} can't be read ({reason}); give another file") from None
    if len(content) > _MAX_FILE_BYTES:
        raise ComparisonError(f"{path} is larger than 256 MiB, so no report; give one of analyze --format json")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ComparisonError(f"{path} is not JSON ({reason}); give a report of analyze --format json") from None
    version = document.get("schema_version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise ComparisonError(
            f"{path} has schema version {version}, this version of neusight-onnx reads up to {SCHEMA_VERSION}; "
            "update it, or make the report anew"
        )
    if version != SCHEMA_VERSION or "kernels" not in document or "totals" not in document:
        raise ComparisonError(f"{path} is JSON, but no report of analyze --format json; give one")
    return _saved(document, str(path))


def as_saved(report: Report) -> Saved:
    """A report of now, by what its JSON says, so that it compares equal with a saved one of the same figures."""
    return _saved(json.loads(to_json(report)), report.model.path)


def _saved(document: Mapping[str, Any], source: str) -> Saved:
    try:
        return _read(document, source)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else f"does not read as one ({str(error)[:80]})"
        raise ComparisonError(f"{source} is no whole report: it {what}; make it anew") from None


def _read(document: Mapping[str, Any], source: str) -> Saved:
    model, totals, settings = document["model"], document["totals"], document["settings"]
    groups: dict[Form, list[Mapping[str, Any]]] = {}
    classes: dict[str, float] = {}
    for row in _list(document["kernels"]):
        form = (
            _text(row["kernel_class"]),
            _text(row["dtype"]),
            json.dumps(_mapping(row["dims"]), sort_keys=True, allow_nan=False),
        )
        groups.setdefault(form, []).append(row)
        classes[form[0]] = classes.get(form[0], 0.0) + _number(row["latency_us"]) / 1e3
    _check_times(totals, sum(classes.values()))
    return Saved(
        side=Side(
            source=source,
            model_path=_text(model["path"]),
            gpu=_text(document["gpu"]["name"]),
            precision=_text(settings["precision"]),
            runtime=_text(settings["runtime"]),
            runtime_release=None if (release := settings.get("runtime_release")) is None else _text(release),
            dims={_text(name): _count(size) for name, size in settings["dims"].items()},
            latency_ms=_number(totals["latency_ms"] or 0),
            latency_low_ms=_number(totals["latency_low_ms"] or 0),
            latency_high_ms=_number(totals["latency_high_ms"] or 0),
            throughput_per_s=_number(totals["throughput_per_s"] or 0),
            memory_bytes=_count(totals["memory"]["peak_bytes"]) if totals.get("memory") else None,
            overhead_ms=_number(totals["overhead_ms"]),
            kernel_count=sum(_count(row["count"]) for row in document["kernels"]),
            unsupported_count=len(document["unsupported"]),
            partial=bool(totals["partial"]),
            classes=classes,
            mode=_text(settings.get("mode", "inference")),
            cuda_graph=bool(settings.get("cuda_graph", False)),
            include_io=bool(settings.get("include_io", False)),
            channels_last=bool(settings.get("channels_last", False)),
            tokens_per_s=None if (tokens := totals.get("tokens_per_s")) is None else _number(tokens),
            product_formats=tuple(map(_text, settings.get("product_formats", ()))),
        ),
        inputs=tuple(
            (
                _text(item["name"]),
                None if item["dtype"] is None else _text(item["dtype"]),
                None if item["shape"] is None else tuple(_count(size) for size in item["shape"]),
            )
            for item in model["inputs"]
        ),
        kernels={form: _together(rows) for form, rows in groups.items()},
        unsupported=Counter((_text(item["op_type"]), _text(item["reason"])) for item in document["unsupported"]),
        training={name: _in_words(item) for name, item in document.get("training", {}).items() if name in _PLAN},
    )


def _check_times(totals: Mapping[str, Any], kernels_ms: float) -> None:
    """ValueError where a run's times contradict each other as those of no report do.

    Null stands for a latency of which nothing could be costed. Else the kernels, which take ``kernels_ms``, and the
    host add up to it.
    """
    stated = [totals[key] for key in ("latency_low_ms", "latency_ms", "latency_high_ms")]
    if None in stated and (any(time is not None for time in stated) or not totals["partial"]):
        raise ValueError("its latency is null, though it is costed")
    low_ms, latency_ms, high_ms = (_number(time or 0) for time in stated)
    taken_ms = kernels_ms + _number(totals["overhead_ms"])
    if not math.isclose(latency_ms, taken_ms, rel_tol=_ROUNDED_SHARE):
        took = f"{taken_ms:.6g} ms in kernels and for the host"
        raise ValueError(f"its latency is {json.dumps(stated[1])}, though it has {took}")
    if not low_ms <= latency_ms <= high_ms:
        raise ValueError(f"its interval of {low_ms:.6g} to {high_ms:.6g} ms lacks its latency")


def _in_words(item: object) -> str:
    """A part of a training plan: a number or a name, rates of dropout by place, patterns of what is frozen."""
    if item is None:
        return "as in the file"
    if isinstance(item, Mapping):
        return _text(", ".join(f"{place}={rate}" for place, rate in item.items())) or "off"
    if isinstance(item, list | tuple):
        return _text(", ".join(map(str, item))) or "nothing"
    return _text(str(item))


def _together(rows: Sequence[Mapping[str, Any]]) -> Kernels:
    names = [_text(row["nodes"][0]) for row in rows if row["nodes"]]
    return Kernels(
        nodes=tuple(names[:MOST_NODES]),
        count=sum(_count(row["count"]) for row in rows),
        latency_us=sum(_number(row["latency_us"]) for row in rows),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def _list(value: object) -> Sequence[Mapping[str, Any]]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.40} is no list of kernels")
    return value


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r:.40} are no dims")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MOST_COUNTED:
        raise ValueError(f"{value!r:.40} is no time")
    return float(value)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST_COUNTED:
        raise ValueError(f"{value!r:.40} is no count")
    return value
