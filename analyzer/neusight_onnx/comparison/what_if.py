"""The same model under a change: another precision, runtime or size, or a GPU with other figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import ComparisonError, NeusightError, shown
from neusight_onnx.gpu import GpuSpec, changed_gpu
from neusight_onnx.graph.binding_text import parse_dim, parse_size
from neusight_onnx.graph.bindings import Bindings
from neusight_onnx.graph.dimension_roles import is_batch_symbol
from neusight_onnx.graph.model import Model
from neusight_onnx.lowering.precision import stored_precision
from neusight_onnx.outcome import predict_outcome
from neusight_onnx.precision import resolve
from neusight_onnx.report.model import Variant
from neusight_onnx.runnable import require_runnable
from neusight_onnx.runtime import get_runtime
from neusight_onnx.workbench import Workbench

if TYPE_CHECKING:
    from neusight_onnx.backward import Training

KEYS = ("precision", "runtime", "cuda_graph", "include_io", "channels_last", "batch", "dim.NAME", "gpu.KEY")
_SWITCH = {"on": True, "true": True, "off": False, "false": False}
_EXAMPLE = "write runtime=tensorrt, batch=16 or gpu.memory_bandwidth_gb_s=4800"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of a model: on which GPU, in which precision and runtime, at which sizes."""

    gpu: GpuSpec
    precision: str
    runtime: str
    bindings: Bindings
    training: Training | None = None
    cuda_graph: bool = False
    include_io: bool = False
    channels_last: bool = False


def changed(question: Question, text: str, option: str) -> Question:
    """The question under the changes of ``text``, such as "gpu.memory_bandwidth_gb_s=4800,runtime=compiled".

    Raises ComparisonError for what is no change, and the errors of a GPU, a size, a precision or a runtime.
    """
    with _named(option, text):
        return _changed(question, text, f"{option} {shown(text)}")


@contextmanager
def _named(option: str, text: str) -> Iterator[None]:
    """Errors within name the option that they are due to."""
    try:
        yield
    except NeusightError as error:
        where = f"{option} {shown(text)}"
        if str(error).startswith(where):
            raise
        raise type(error)(f"{where}: {error}") from None


def _changed(question: Question, text: str, where: str) -> Question:
    figures: dict[str, float] = {}
    seen: set[str] = set()
    for part in text.split(","):
        key, separator, value = (piece.strip() for piece in part.partition("="))
        if not separator or not key or not value:
            raise ComparisonError(f"{where}: '{shown(part)}' is no change; {_EXAMPLE}")
        if key.replace("-", "_") in KEYS:
            key = key.replace("-", "_")  # as the option and the key of neusight.toml are written
        if key in seen:
            raise ComparisonError(f"{where}: '{shown(key)}' is changed twice; keep one")
        seen.add(key)
        if key == "precision":
            resolve(value, DataType.FLOAT32)  # refuses what is no precision
            question = replace(question, precision=value)
        elif key == "runtime":
            get_runtime(value)
            question = replace(question, runtime=value)
        elif key in ("cuda_graph", "include_io", "channels_last"):
            if value not in _SWITCH:
                raise ComparisonError(f"{where}: {key} is '{shown(value)}'; write {key}=on or {key}=off")
            is_on = _SWITCH[value]
            match key:
                case "cuda_graph":
                    question = replace(question, cuda_graph=is_on)
                case "include_io":
                    question = replace(question, include_io=is_on)
                case _:
                    question = replace(question, channels_last=is_on)
        elif key == "batch":
            others = {name: size for name, size in question.bindings.dims.items() if not is_batch_symbol(name)}
            size = parse_size(value, f"batch={value}")
            question = replace(question, bindings=replace(question.bindings, dims=others, batch=size))
        elif key.startswith("dim."):
            sizes: Mapping[str, int] = parse_dim(f"{key.removeprefix('dim.')}={value}")
            dims = {**question.bindings.dims, **sizes}
            batch = None if any(map(is_batch_symbol, sizes)) else question.bindings.batch
            question = replace(question, bindings=replace(question.bindings, dims=dims, batch=batch))
        elif key.startswith("gpu."):
            figures[key.removeprefix("gpu.")] = _figure(value, where)
        else:
            raise ComparisonError(f"{where}: nothing is called '{shown(key)}'; known are {', '.join(KEYS)}; {_EXAMPLE}")
    if figures:
        question = replace(question, gpu=changed_gpu(question.gpu, figures, where))
    return question


def _figure(value: str, where: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ComparisonError(f"{where}: '{shown(value)}' is no number; {_EXAMPLE}")
    return number


def variants(model: Model, base: Question, changes: Sequence[str]) -> tuple[Variant, ...]:
    """The model under each of ``changes`` (each of them alone, on top of ``base``), in order."""
    bench = Workbench()
    stored = stored_precision(model)
    found = []
    for text in changes:
        question = changed(base, text, "--what-if")
        with _named("--what-if", text):
            precision = resolve(question.precision, stored)
            require_runnable(
                model, precision, question.runtime, question.gpu, in_training=question.training is not None
            )
            get_runtime(question.runtime, channels_last=question.channels_last)
            shaped = bench.shaped(model, question.bindings)
            prepared = bench.prepared(
                shaped,
                precision=precision,
                runtime=question.runtime,
                training=question.training,
                cuda_graph=question.cuda_graph,
                include_io=question.include_io,
                channels_last=question.channels_last,
            )
        outcome = predict_outcome(prepared, question.gpu)
        found.append(
            Variant(
                changes=text,
                precision=outcome.precision,
                product_formats=outcome.product_formats,
                totals=outcome.totals,
                bound_shares=outcome.bound_shares,
                unsupported_count=len(outcome.unsupported),
                warnings=tuple(replace(notice, message=f"{text}: {notice.message}") for notice in outcome.warnings),
            )
        )
    return tuple(found)
