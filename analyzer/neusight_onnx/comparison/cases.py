"""One model on several GPUs, in several precisions, runtimes and sizes, in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from neusight_onnx import __version__
from neusight_onnx.comparison.assumed import assumed_by_all, widened_at_some
from neusight_onnx.comparison.gpus import called, told_apart
from neusight_onnx.comparison.grid import bindings_at, combinations, size_lists, with_batch_named
from neusight_onnx.comparison.prices import Prices, as_prices
from neusight_onnx.errors import ComparisonError, ModelError, NeusightError, NotSupportedError, OptionError, shown
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.gpu.machines import gpu_count_of_instance, gpu_of_instance
from neusight_onnx.graph.model import Array, Model, Notice
from neusight_onnx.lowering.precision import stored_precision
from neusight_onnx.outcome import Outcome, predict_outcome
from neusight_onnx.precision import Precision, resolve
from neusight_onnx.preparation import PreparedModel, ShapedModel
from neusight_onnx.report.comparison import Case, Comparison, SortKey, in_tokens
from neusight_onnx.report.quantities import counted, dims_text, significant
from neusight_onnx.runnable import refused
from neusight_onnx.runtime import default_runtime, get_runtime
from neusight_onnx.workbench import Workbench

if TYPE_CHECKING:
    from neusight_onnx.backward import Training


def compare(
    model: str | Path | Model,
    *,
    gpus: str | Path | GpuSpec | Sequence[str | Path | GpuSpec],
    dims: Mapping[str, int | Sequence[int]] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    values: Mapping[str, Array] | None = None,
    trip_counts: Mapping[str, int] | None = None,
    batch: int | Sequence[int] | None = None,
    precisions: str | Sequence[str] = ("auto",),
    runtimes: str | Sequence[str] = (),
    cuda_graph: bool = False,
    include_io: bool = False,
    channels_last: bool = False,
    prices: Prices | Mapping[str, float | str] | str | Path | None = None,
    sort: str = "latency",
    training: Training | None = None,
) -> Comparison:
    """Predicts every combination of ``gpus``, ``precisions``, ``runtimes`` and sizes of ``dims``, and sorts them.

    Each of the four is one or several. GPUs of the same name that differ are cases of their own, a file's under its
    path; a price by their name holds for those that have none of their own.
    A dim (and ``batch``, the dim that is the batch, whatever the model calls it) has one size or several; there are at
    most :data:`~neusight_onnx.comparison.grid.MOST_CASES` cases. What they share (the file, shapes, lowering) is worked
    out once; each has the figures of :func:`~neusight_onnx.analyze`.
    ``prices``: of an hour of a GPU, ``{"l4": 0.8, "t4": "0.35/h"}``, or the path of a TOML or CSV file of them.
    Sizes that the model refuses are left out with a warning, unless it refuses all.
    ``runtimes``: "onnxruntime" where none is given. ``training``: steps of training in place of runs of inference, in
    "eager" where no runtime is given.
    Raises a NeusightError as that does, with the case named; ComparisonError for sorting by cost without ``prices``.
    """
    key = _sort_key(sort)
    priced = as_prices(prices)
    if key is SortKey.COST and not priced.per_h:
        raise ComparisonError("sorting by cost needs prices; give --price NAME=AMOUNT/h or --prices FILE")
    gpus, precisions = _several(gpus, precisions)
    labels = _labels(runtimes, channels_last=channels_last, in_training=training is not None)
    bench = Workbench()
    named = told_apart(gpus, [bench.gpu(gpu) for gpu in gpus])
    specs = [called(name, spec) for name, spec in named.items()]
    asked = size_lists(dims, batch)
    combinations(asked, others=len(specs) * len(labels) * len(set(precisions)))  # refused before the file is read
    read = bench.model(model)
    lists, batch_name = with_batch_named(read, asked)
    stored = stored_precision(read)
    resolved = tuple(dict.fromkeys(resolve(name, stored) for name in precisions))
    able, left_out = _able(read, resolved, labels, specs, in_training=training is not None)
    several = [name for name, sizes in lists.items() if len(sizes) > 1]
    found = _Found(prices=priced, own_specs=named, left_out=left_out)
    prepared = partial(
        bench.prepared,
        training=training,
        cuda_graph=cuda_graph,
        include_io=include_io,
        channels_last=channels_last,
    )
    for sizes in combinations(lists):
        bindings = bindings_at(sizes, batch_name, shapes, values, trip_counts)
        try:
            shaped = bench.shaped(read, bindings)
        except NeusightError as error:
            if not several:
                raise
            found.refuse(f"with {dims_text({name: sizes[name] for name in several})}: {error}", error)
            continue
        found.predict(shaped, sizes, able, prepared)
    cases, has_best = found.ranked(key)
    settings = {
        "gpu": len(specs) > 1,
        "precision": len({case.precision for case in cases}) > 1,
        "runtime": len(labels) > 1,
    }
    return Comparison(
        tool_version=__version__,
        model_path=read.path,
        model_sha256=read.sha256,
        cases=cases,
        sort=key,
        has_best=has_best,
        varied=(*(name for name, varies in settings.items() if varies), *several),
        currency=priced.currency,
        mode="inference" if training is None else "training",
        cuda_graph=all(found.captured),
        include_io=include_io,
        channels_last=channels_last,
        assumptions=(*assumed_by_all(found.assumptions, found.settings), *_rests_on(priced, list(named.values()))),
        warnings=tuple(dict.fromkeys((*read.warnings, *found.said(), *_unused(priced, [*named.values(), *specs])))),
    )


def _several(
    gpus: str | Path | GpuSpec | Sequence[str | Path | GpuSpec], precisions: str | Sequence[str]
) -> tuple[tuple[str | Path | GpuSpec, ...], tuple[str, ...]]:
    """GPUs and precisions, of which one may stand for itself; OptionError and ComparisonError for none."""
    _require_names(gpus, "gpus")
    _require_names(precisions, "precisions")
    gpus = (gpus,) if isinstance(gpus, str | Path | GpuSpec) else tuple(gpus)
    precisions = (precisions,) if isinstance(precisions, str) else tuple(precisions)
    if not precisions:
        raise ComparisonError("precisions is empty; give one or several, such as 'auto', or leave it out")
    if not gpus:
        raise ComparisonError("there is nothing to compare; give a --gpu, or several, or --all-gpus")
    return gpus, precisions


def _require_names(given: object, what: str) -> None:
    """OptionError for what is neither a name (or a GPU) nor several."""
    if not isinstance(given, str | Path | GpuSpec | Iterable):
        raise OptionError(f"{what} is {shown(repr(given))}; give a name, or a list of names")


def _labels(runtimes: str | Sequence[str], *, channels_last: bool, in_training: bool) -> tuple[str, ...]:
    """What the runtimes are called, each once; the default where none is given."""
    named = (runtimes,) if isinstance(runtimes, str) else runtimes
    asked = named or (default_runtime(training=in_training),)
    return tuple(dict.fromkeys(get_runtime(name, channels_last=channels_last).label for name in asked))


@dataclass(slots=True, kw_only=True)
class _Found:
    """What the cases of a comparison have said so far.

    ``own_specs``: each GPU as it is called in itself, by the name that it is compared by. ``settings``: precision,
    runtime, GPU and sizes that each case was asked for with; ``widens``: what :func:`widened_at_some` asks of them.
    ``left_out``, ``impossible``: GPUs, runtimes and sizes without a case.
    """

    prices: Prices
    own_specs: Mapping[str, GpuSpec]
    left_out: list[Notice]
    cases: list[Case] = field(default_factory=list)
    captured: list[bool] = field(default_factory=list)
    seen: set[tuple[object, ...]] = field(default_factory=set)
    assumptions: list[tuple[str, ...]] = field(default_factory=list)
    settings: list[tuple[str, ...]] = field(default_factory=list)
    widens: dict[tuple[str, ...], set[bool]] = field(default_factory=dict)
    warnings: dict[Notice, None] = field(default_factory=dict)
    impossible: list[Notice] = field(default_factory=list)
    first_fault: NeusightError | None = None

    def refuse(self, said: str, error: NeusightError) -> None:
        """Sizes that the model can't have; raises the error of a slip, with the sizes named."""
        if not isinstance(error, ModelError):
            raise type(error)(said) from None
        self.first_fault = self.first_fault or ModelError(f"the model refuses all of these sizes; {said}")
        self.impossible.append(Notice(code="refused", message=f"left out {said}"))

    def predict(
        self,
        shaped: ShapedModel,
        sizes: Mapping[str, int],
        able: Mapping[tuple[Precision, str], Sequence[GpuSpec]],
        prepared_for: Callable[..., PreparedModel],
    ) -> None:
        """The cases at some sizes; ``prepared_for``: prepares a shaped model for a ``precision`` and a ``runtime``."""
        for (precision, runtime), those in able.items():
            try:
                prepared = prepared_for(shaped, precision=precision, runtime=runtime)
            except NotSupportedError as error:  # what training has no model of: a format, a runtime
                self._leave_out(error)
                continue
            self.warnings |= dict.fromkeys(prepared.graph.warnings)
            self.captured.append(prepared.runtime.captured)
            for spec in those:
                try:
                    outcome = predict_outcome(prepared, spec)
                except NotSupportedError as error:
                    self._leave_out(error)
                    continue
                self._add(spec, precision.name, runtime, sizes, shaped.bound.symbols, outcome)

    def ranked(self, key: SortKey) -> tuple[tuple[Case, ...], bool]:
        """The cases by ``key``, and whether the first is the best; raises the first fault where there are none."""
        if not self.cases:
            assert self.first_fault is not None
            raise self.first_fault
        told_in_tokens = in_tokens(self.cases)
        self.cases.sort(key=lambda case: _rank(case, key, told_in_tokens))
        return tuple(self.cases), _rank(self.cases[0], key, told_in_tokens) < (False, False, inf)

    def said(self) -> Iterator[Notice]:
        """What cases were warned of, what their widths differ in, and what has no case."""
        yield from self.warnings
        yield from widened_at_some(self.widens)
        yield from self.impossible
        yield from self.left_out

    def _leave_out(self, error: NotSupportedError) -> None:
        self.first_fault = self.first_fault or error
        self.left_out.append(Notice(code="runtime", message=f"left out: {error}"))

    def _add(
        self,
        spec: GpuSpec,
        precision: str,
        runtime: str,
        sizes: Mapping[str, int],
        symbols: Mapping[str, int],
        outcome: Outcome,
    ) -> None:
        """A case, unless it is there: what is stored, what a runtime makes of it and what is asked for may be one."""
        key = (spec.name, outcome.precision, runtime, tuple(sizes.items()))
        if key in self.seen:
            return
        self.seen.add(key)
        self.assumptions.append(outcome.assumptions)
        self.settings.append((precision, runtime, spec.name, *(f"{name}={size}" for name, size in sizes.items())))
        self.widens.setdefault((precision, runtime), set()).add(outcome.widens)
        self.warnings |= dict.fromkeys(outcome.warnings)
        self.cases.append(
            Case(
                gpu=spec,
                gpu_model=self.own_specs[spec.name].name,
                precision=outcome.precision,
                product_formats=outcome.product_formats,
                runtime=runtime,
                dims=dict(symbols),
                totals=outcome.totals,
                bound_shares=outcome.bound_shares,
                unsupported_count=len(outcome.unsupported),
                price_per_h=self.prices.of(self.own_specs[spec.name]),
            )
        )


def _able(
    model: Model,
    precisions: Sequence[Precision],
    runtimes: Sequence[str],
    specs: Sequence[GpuSpec],
    *,
    in_training: bool,
) -> tuple[dict[tuple[Precision, str], list[GpuSpec]], list[Notice]]:
    """The GPUs that can run each precision in each runtime, and what is left out, said.

    NotSupportedError where nothing can run.
    """
    found: dict[tuple[Precision, str], list[GpuSpec]] = {}
    reasons: dict[str, str] = {}
    for precision, runtime, spec in product(precisions, runtimes, specs):
        refusal = refused(model, precision, runtime, spec, in_training=in_training)
        if refusal is None:
            found.setdefault((precision, runtime), []).append(spec)
        else:
            reasons[refusal.message] = refusal.what
    if not found:
        raise NotSupportedError(next(iter(reasons)))
    return found, [Notice(code=what, message=f"left out: {reason}") for reason, what in reasons.items()]


def _sort_key(sort: str) -> SortKey:
    try:
        return SortKey(sort)
    except ValueError:
        raise ComparisonError(f"can't sort by {str(sort)[:40]!a}; choose {', '.join(SortKey)}") from None


def _rank(case: Case, key: SortKey, told_in_tokens: bool) -> tuple[bool, bool, float]:
    """What the cases are sorted by: whether it can't run, whether its figures are only bounds, then the figure (as the
    table tells it: of tokens or of samples), infinite where it isn't known."""
    totals = case.totals
    figure: float | None
    match key:
        case SortKey.LATENCY:
            figure = totals.latency_ms if case.is_costed else None
        case SortKey.THROUGHPUT:
            per_s = totals.tokens_per_s if told_in_tokens else totals.throughput_per_s
            figure = None if per_s is None or not case.is_costed else -per_s
        case SortKey.MEMORY:
            figure = totals.memory.peak_bytes
        case SortKey.COST:
            figure = case.token_cost() if told_in_tokens else case.cost()
    return not totals.memory.fits, totals.partial, inf if figure is None else figure


def _unused(prices: Prices, specs: Sequence[GpuSpec]) -> Sequence[Notice]:
    compared = {spec.name for spec in specs}
    notices = [
        Notice(
            code="unused_price", message=f"a price is given for {name}, which isn't compared; add --gpu {name} for it"
        )
        for name in prices.expected
        if (prices.files[name] not in specs if name in prices.files else name not in compared)
    ]
    if prices.unknown:
        first, *others = prices.unknown
        more = f"; nor from {counted(len(others), 'more line')}" if others else ""
        notices.append(Notice(code="unknown_price", message=f"no price is taken from {first}{more}"))
    return notices


def _rests_on(prices: Prices, specs: Sequence[GpuSpec]) -> Iterator[str]:
    if prices.per_h:
        yield "costs are those of a GPU that is paid by the time and always busy with such runs; a batch of n counts n"
    for spec in specs:
        of_card = spec.gpus_per_card or 1
        if of_card > 1 and prices.of(spec) is not None and prices.machine_of(spec) is None:
            yield (
                f"costs: the price of {spec.name} is taken as that of one of the {of_card} GPUs of its card, whose "
                f"figures these are; divide that of a whole card by {of_card}"
            )
    counts = {name: gpu_count_of_instance(name) for spec in specs if (name := prices.machine_of(spec)) is not None}
    for name, count in counts.items():
        if count is not None and count > 1:
            yield f"costs: the price of '{name}' is divided among its {count} GPUs, as if all of them were busy"
    for name in counts:
        others = [
            f"'{other}' ({significant(price)})"
            for other, price in prices.of_machines.items()
            if gpu_of_instance(other) == gpu_of_instance(name)
            and price != prices.of_machines[name]
            and other not in counts
        ]
        if others:
            listed = ", ".join(others)
            yield f"costs: of machines with the same GPU, '{name}' is counted, not {listed} an hour for each GPU"
    unknown = [name for name, count in counts.items() if count is None]
    if unknown:
        names = ", ".join(f"'{name}'" for name in unknown)
        yield f"costs: a price of {names} is taken as one GPU's; divide that of a machine with several by their number"
