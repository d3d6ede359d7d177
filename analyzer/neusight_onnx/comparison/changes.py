"""What a change of a model cost: one report against another."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from neusight_onnx import __version__
from neusight_onnx.analysis import analyze
from neusight_onnx.comparison.saved import Kernels, Saved, as_saved, read_report
from neusight_onnx.errors import ComparisonError, OptionError, shown
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.model import Array, Model
from neusight_onnx.precision import AUTO
from neusight_onnx.report.difference import Difference, KernelChange
from neusight_onnx.report.model import Report
from neusight_onnx.report.precision_words import precision_text
from neusight_onnx.report.quantities import shape_text

if TYPE_CHECKING:
    from neusight_onnx.backward import Training

SAME_TIME_SHARE = 1e-4
"""Equal kernels whose times differ by less are unchanged: the JSON rounds each to six digits."""


def diff(
    old: str | Path | Model | Report,
    new: str | Path | Model | Report,
    *,
    gpu: str | Path | GpuSpec | None = None,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    values: Mapping[str, Array] | None = None,
    trip_counts: Mapping[str, int] | None = None,
    batch: int | None = None,
    precision: str = "auto",
    runtime: str | None = None,
    cuda_graph: bool = False,
    include_io: bool = False,
    channels_last: bool = False,
    training: Training | None = None,
    limit: float | None = None,
) -> Difference:
    """``old`` against ``new``: models, which are analysed on ``gpu``, or reports (values, or files ``*.json``).

    Inputs must agree in their number, types and shapes: else the times are of different work. They are matched by name,
    or in order where a name differs, which is a note then. ``limit``: the growth of latency that is allowed, 0.05 for
    5 %. Raises ComparisonError for reports that don't compare, and a NeusightError as
    :func:`~neusight_onnx.analyze` does.
    """
    for given in (old, new):
        if not isinstance(given, str | Path | Model | Report):
            raise OptionError(f"{shown(repr(given))} is no model and no report; give a path, a Model or a Report")
    _check_limit(limit)
    settings = (gpu, dims, shapes, values, trip_counts, batch, runtime, cuda_graph, include_io, channels_last, training)
    if (any(settings) or precision != AUTO) and not any(map(_is_model, (old, new))):
        raise ComparisonError(
            "two reports are compared as they are: leave out --gpu, the sizes and how the model is run, or give models"
        )
    sides: list[Saved] = []
    for given in (old, new):
        if isinstance(given, Report):
            sides.append(as_saved(given))
        elif not isinstance(given, Model) and is_report(given):
            sides.append(read_report(Path(given)))
        else:
            if gpu is None:
                if not isinstance(given, Model):
                    _refuse_unreadable(Path(given))
                raise ComparisonError("comparing models needs a GPU; give --gpu NAME, or two reports in JSON")
            report = analyze(
                given,
                gpu=gpu,
                dims=dims,
                shapes=shapes,
                values=values,
                trip_counts=trip_counts,
                batch=batch,
                precision=precision,
                runtime=runtime,
                cuda_graph=cuda_graph,
                include_io=include_io,
                channels_last=channels_last,
                training=training,
            )
            sides.append(as_saved(report))
    return _difference(sides[0], sides[1], limit)


def _check_limit(limit: float | None) -> None:
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int | float)):
        raise OptionError(f"limit is {shown(repr(limit))}; give a share, a number such as 0.05 for 5 %")
    if limit is not None and not 0 <= limit < inf:
        raise ComparisonError(f"limit is {limit!r}; give a share from 0, such as 0.05 for 5 %")


def _is_model(given: str | Path | Model | Report) -> bool:
    return not isinstance(given, Report) and (isinstance(given, Model) or not is_report(given))


def _refuse_unreadable(path: Path) -> None:
    """ComparisonError for what is no file: neither a model nor a report, whose name would say so."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):
        why = "does not exist"
    except OSError as error:
        why = f"can't be read ({(error.strerror or 'unknown fault').lower()})"
    else:
        why = "" if stat.S_ISREG(mode) else "is a folder" if stat.S_ISDIR(mode) else "is no regular file"
    if why:
        raise ComparisonError(f"{path} {why}; give a model, or a report of analyze --format json in a file *.json")


def is_report(path: str | Path) -> bool:
    """Whether a file is taken for a report and not for a model: by its name, ``*.json``."""
    return str(path).lower().endswith(".json")


def parse_limit(text: str) -> float:
    """``"5%"`` -> 0.05; ComparisonError for what is no share."""
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*%", text.strip()) if len(text) <= 40 else None
    if found is None:
        raise ComparisonError(f"--fail-over {text[:40]!a} is no share; write it in per cent, such as 5%")
    return float(found[1]) / 100


def _difference(old: Saved, new: Saved, limit: float | None) -> Difference:
    notes = [*_check_inputs(old, new), *_settings(old, new)]
    changes = []
    for form in dict.fromkeys((*old.kernels, *new.kernels)):
        change = _change(form, old.kernels.get(form), new.kernels.get(form))
        if change is not None:
            changes.append(change)
    changes = _paired(changes)
    changes.sort(key=lambda change: -abs(change.delta_us))
    return Difference(
        tool_version=__version__,
        old=old.side,
        new=new.side,
        kernels=tuple(changes),
        new_unsupported=tuple(_more(new.unsupported, old.unsupported)),
        gone_unsupported=tuple(_more(old.unsupported, new.unsupported)),
        notes=tuple(notes),
        limit=limit,
    )


def _change(form: tuple[str, str, str], old: Kernels | None, new: Kernels | None) -> KernelChange | None:
    status = "changed"
    if old is None:
        status = "new"
    elif new is None:
        status = "gone"
    elif old.count == new.count and abs(old.latency_us - new.latency_us) <= SAME_TIME_SHARE * old.latency_us:
        return None
    kernel_class, dtype, dims = form
    shown = new or old
    assert shown is not None
    return KernelChange(
        status=status,
        kernel_class=kernel_class,
        dtype=dtype,
        dims=json.loads(dims),
        nodes=shown.nodes,
        old_count=old.count if old else 0,
        new_count=new.count if new else 0,
        old_us=old.latency_us if old else 0.0,
        new_us=new.latency_us if new else 0.0,
    )


def _paired(changes: Sequence[KernelChange]) -> list[KernelChange]:
    """The changes, a kernel that is gone and one that is new in its stead being one that changed its form."""
    gone = {_origin(item, item.old_count): item for item in changes if item.status == "gone" and item.nodes}
    found, replaced = [], set()
    for item in changes:
        before = gone.get(_origin(item, item.new_count)) if item.status == "new" else None
        if before is None:
            found.append(item)
            continue
        replaced.add(id(before))
        found.append(
            replace(
                item,
                status="changed",
                old_count=before.old_count,
                old_us=before.old_us,
                old_dtype=before.dtype,
                old_dims=before.dims,
            )
        )
    return [item for item in found if id(item) not in replaced]


def _origin(item: KernelChange, count: int) -> tuple[str, tuple[str, ...], int]:
    return item.kernel_class, item.nodes, count


def _more(one: Mapping[tuple[str, str], int], other: Mapping[tuple[str, str], int]) -> list[tuple[str, str, int]]:
    """The operators of ``one`` that ``other`` does not have, or has less often, with the first reason of each."""
    here, there = _by_operator(one), _by_operator(other)
    return [
        (op_type, reason, count - there.get(op_type, (reason, 0))[1])
        for op_type, (reason, count) in here.items()
        if count > there.get(op_type, (reason, 0))[1]
    ]


def _by_operator(unsupported: Mapping[tuple[str, str], int]) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for (op_type, reason), count in unsupported.items():
        first, so_far = found.get(op_type, (reason, 0))
        found[op_type] = (first, so_far + count)
    return found


def _check_inputs(old: Saved, new: Saved) -> list[str]:
    """A note where inputs differ in their names only; ComparisonError where they differ in more."""
    if len(old.inputs) != len(new.inputs):
        raise ComparisonError(
            f"the models have different inputs: {len(old.inputs)} in {old.side.source}, {len(new.inputs)} in "
            f"{new.side.source}; their times are of different work"
        )
    ordered = new
    names = {name for name, _, _ in old.inputs}
    if names == {name for name, _, _ in new.inputs}:
        place = {item[0]: item for item in new.inputs}
        ordered = replace(new, inputs=tuple(place[name] for name, _, _ in old.inputs))
    for (name, dtype, shape), (new_name, new_dtype, new_shape) in zip(old.inputs, ordered.inputs, strict=True):
        if (dtype, shape) != (new_dtype, new_shape):
            raise ComparisonError(
                f"the models have different inputs: '{name}' is {_tensor(dtype, shape)} in {old.side.source}, "
                f"'{new_name}' is {_tensor(new_dtype, new_shape)} in {new.side.source}; bind them alike with --dim or "
                "--shape, or compare other models"
            )
    renamed = [
        f"'{name}' is '{other}' now"
        for (name, _, _), (other, _, _) in zip(old.inputs, ordered.inputs, strict=True)
        if name != other
    ]
    return [f"inputs have other names: {', '.join(renamed)}"] if renamed else []


def _tensor(dtype: str | None, shape: tuple[int, ...] | None) -> str:
    return f"{dtype or 'of unknown type'} {shape_text(shape) if shape is not None else 'of unknown shape'}"


_COPIES = "inputs are copied from the host and outputs back"
_ORDER = "images and filters lie channels last"


_PLANS = {
    "recompute": "what training computes again",
    "grad_accumulation": "how many runs a step of training takes",
    "freeze": "what training freezes",
}


def _settings(old: Saved, new: Saved) -> list[str]:
    """What differs in the settings: then not only the model's change is seen."""
    notes = []
    for what in ("gpu", "mode", "precision", "runtime"):
        before, after = (
            precision_text(saved.side.precision, saved.side.product_formats)
            if what == "precision"
            else getattr(saved.side, what)
            for saved in (old, new)
        )
        if before != after:
            notes.append(f"the {what if what != 'gpu' else 'GPU'} differs: {before}, now {after}")
    assumed = old.side.runtime_release, new.side.runtime_release
    if old.side.runtime == new.side.runtime and None not in assumed and assumed[0] != assumed[1]:
        notes.append(f"the release of {new.side.runtime} that is assumed differs: {assumed[0]}, now {assumed[1]}")
    notes += [
        f"{_PLANS.get(plan, f'the {plan} of training')} differs: {before}, now {new.training[plan]}"
        for plan, before in old.training.items()
        if new.training.get(plan, before) != before
    ]
    for name, what in (
        ("cuda_graph", "runs are replayed as a CUDA graph"),
        ("include_io", _COPIES),
        ("channels_last", _ORDER),
    ):
        which = [side.source for side in (old.side, new.side) if getattr(side, name)]
        if len(which) == 1:
            notes.append(f"{what} in {which[0]} only")
    notes += [
        f"{side.source} has nodes that count as nothing: its latency is a lower bound"
        for side in (old.side, new.side)
        if side.partial
    ]
    return notes
