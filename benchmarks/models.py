"""Whole models measured in public against what the analyser says of their graphs, by runtime and GPU.

    python benchmarks/models.py SHARED [--more FOLDER]... [--as-measured FOLDER] [--only TEXT] [--every N]
                                [--format text|json] [-o FILE]

SHARED holds ``data/end_to_end/measured_models*.parquet`` and ``models/index_e2e.csv``, which says which graph fits
which rows. These rows judge: nothing is trained or tuned on them. What was measured how stands with each group:

- timm (vision models, images as the file has them): PyTorch, autocast to FP16, mean step; eager and torch.compile,
  images in (n, c, h, w) order; eager with images and filters in (n, h, w, c) order, a group of its own ("channels
  last"); steps of training, too, with cross-entropy and SGD with momentum (the default of timm's benchmark, as
  remembered), dropout as the file has it;
- NVIDIA's BERT under Triton: the server's compute time (that of PyTorch isn't waited for there: its client's average);
- transformer-deploy, ONNX Runtime's transformers page: latencies as printed;
- PaddleClas: as printed by its ``tools/infer/predict.py``, whose timer holds the copies of input and output between
  host and GPU (``copy_from_cpu``, ``copy_to_cpu``; as remembered), so that ours holds them, too.

Each row is judged under the release that measured it (``--runtime NAME@RELEASE``): the one that its label states, else
that of its source's date (``SOURCES`` in ``measured_rows.py``, with the reasons). The figures under today's release, as
if that had run them, stand beside them, in the lines that end in "today's release".

Rows of ONNX Runtime that were measured on a file that its transformers' optimiser had rewritten are judged on what the
same tool makes of the graph (its weights being zeros, a causal mask lower triangular; of a GPT-2 without what the
release that measured it refuses to read), where sympy is installed, which it needs; else on the file as it is, which
runs more kernels. They are a group of their own, in which both tables of ONNX Runtime's transformers page are ("ONNX
Runtime uses optimizer for model optimization, and IO binding is enabled", as remembered; the label of one says so).

Where the graph at hand isn't the file that was measured and the recipe of that is known, ``--as-measured FOLDER`` has
the file built anew (``as_measured.py`` makes such a folder and says which they are). Its rows are judged twice: on the
graph at hand, as without the option, and on that file, in groups of their own ("file as measured"). The targets have a
line each in which those files stand for the graphs at hand.

FOLDER has graphs of further models, built anew from public definitions (``more_models.py`` makes such a folder), and
``index.csv`` with columns of ``index_e2e.csv``. Read are ``file`` (in FOLDER), ``csv_model`` (what the rows call the
model, without "timm/"), ``source_repo`` (of its rows; empty: of any), ``img_size`` or ``sequence``,
``applies_to_rows`` and ``notes``, and ``family``, which it alone has. Such graphs stand for what was measured by name
and size; they judge the rows for which SHARED has none, in groups of their own ("equivalent graph"), never in the
targets. ``--only "equivalent graph"`` leaves these.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from measured_rows import Wanted, matching
from measured_tables import Case, identity_of, table, under_today
from neusight_onnx.analysis import predict_report
from neusight_onnx.backward.plan import make_training
from neusight_onnx.errors import NeusightError
from neusight_onnx.gpu import load_gpu
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.model import Model
from neusight_onnx.graph.read import read_model
from neusight_onnx.lowering.precision import stored_precision
from neusight_onnx.precision import resolve
from neusight_onnx.preparation import PreparedModel, infer_shapes, prepare


def rewritten(path: Path, folder: Path, *, has_sums: bool) -> Path:
    """What ONNX Runtime's optimiser of transformers makes of a BERT or GPT-2; ImportError where it lacks something.

    ``has_sums``: whether the release that runs it has normalizations that hand on the sum that they normalize.
    """
    from onnxruntime.transformers.fusion_options import FusionOptions
    from onnxruntime.transformers.optimizer import optimize_model

    from fusion_ort import with_weights

    logging.disable(logging.WARNING)
    source = with_weights(path, folder)
    # the tool finds a BERT's heads by itself; of a GPT-2 it wants to be told: those of the smallest
    kind, heads, width = ("gpt2", 12, 768) if path.name.startswith("gpt2") else ("bert", 0, 0)
    options = FusionOptions(kind)
    if kind == "gpt2" and not has_sums:  # a GPT-2 reads each sum once more, behind the normalization
        options.enable_skip_layer_norm = options.enable_embed_layer_norm = False
    made = optimize_model(
        str(source), model_type=kind, num_heads=heads, hidden_size=width, opt_level=0, optimization_options=options
    )
    target = folder / "rewritten.onnx"
    made.save_model_to_file(str(target), use_external_data_format=True)
    return target


def _read(row: Wanted, left_out: dict[str, int]) -> Model:
    path = row.folder / row.file
    if not row.is_rewritten:
        return read_model(path)
    with tempfile.TemporaryDirectory() as folder:
        try:
            return read_model(rewritten(path, Path(folder), has_sums=row.has_sums))
        except ImportError as error:
            left_out[f"{path.name} judged as it is, not as ONNX Runtime's optimiser rewrites it: {error}"] = 1
            return read_model(path)


def _place(row: Wanted) -> tuple[object, ...]:
    """Rows with one file, and then with one preparation, are neighbours."""
    return row.folder, row.file, row.is_rewritten, row.called, row.group, row.include_io, row.precision, row.dims


def judged(rows: Sequence[Wanted], left_out: dict[str, int]) -> list[Case]:
    """Ours beside each row; models are read once, prepared once for each runtime and size."""
    cases: list[Case] = []
    last: tuple[tuple[object, ...], Model] | None = None
    prepared: dict[tuple[object, ...], PreparedModel] = {}
    for row in sorted(rows, key=_place):
        try:
            wanted = (row.folder, row.file, row.is_rewritten, row.has_sums)
            if last is None or last[0] != wanted:
                last = (wanted, _read(row, left_out))
                prepared = {}
            model = last[1]
            key = (row.called, row.group, row.include_io, row.precision, row.dims)
            if key not in prepared:
                prepared = {key: _prepared(model, row)}
            report = predict_report(prepared[key], load_gpu(row.gpu), asked_precision=row.precision)
        except NeusightError as error:
            reason = f"{row.file}: {str(error)[:150]}"
            left_out[reason] = left_out.get(reason, 0) + 1
            continue
        kernel_us = sum(kernel.latency_us for kernel in report.kernels)
        classes: dict[str, float] = {}
        for kernel in report.kernels:
            classes[kernel.kernel_class] = classes.get(kernel.kernel_class, 0.0) + kernel.latency_us / kernel_us
        totals = report.totals
        cases.append(
            Case(
                model=row.model,
                file=row.file,
                is_vision=row.is_vision,
                group=row.group,
                source=row.source,
                gpu=row.gpu,
                precision=row.precision,
                batch=row.batch,
                size=row.size,
                measured_ms=row.measured_ms,
                ours_ms=totals.latency_ms,
                low_ms=totals.latency_low_ms,
                high_ms=totals.latency_high_ms,
                kernel_ms=totals.kernel_ms,
                analytic_share=report.coverage.latency_share["analytic"],
                class_shares=classes,
                release=row.release or "",
                family=row.family,
            )
        )
    return cases


def judged_both(rows: Sequence[Wanted], left_out: dict[str, int]) -> tuple[list[Case], dict[tuple[object, ...], Case]]:
    """Ours beside each row under the release that measured it, and those under today's of the rows where it differs."""
    others = [replace(row, release=None) for row in rows if row.called != row.runtime]
    today = judged(others, {})
    return judged(rows, left_out), {identity_of(case): case for case in today}


def size_of(name: str, sizes: Mapping[str, int]) -> int:
    """The size of an open dim of a file, by its name."""
    if "batch" in name:
        return sizes["batch"]
    sequence, past = sizes.get("sequence", 1), sizes.get("past", 0)
    if "total" in name or "+" in name:
        return past + sequence
    return past if "past" in name else sequence


def _prepared(model: Model, row: Wanted) -> PreparedModel:
    free = {dim for declared in model.graph.inputs for dim in declared.shape or () if isinstance(dim, str)}
    sizes = dict(row.dims)
    dims = {name: size_of(name, sizes) for name in sorted(free)}
    shaped = infer_shapes(model, make_bindings(dims, None, None, None))
    precision = resolve(row.precision, stored_precision(model))
    plan = make_training(optimizer="momentum") if ", training" in row.group else None
    return prepare(
        shaped,
        precision=precision,
        runtime=row.called,
        channels_last=row.channels_last,
        include_io=row.include_io,
        training=plan,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path)
    parser.add_argument(
        "--more",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="graphs of further models, with their index",
    )
    parser.add_argument(
        "--as-measured", type=Path, metavar="FOLDER", help="files built anew as they were measured, with their index"
    )
    parser.add_argument("--only", default="", help="rows whose model, file or runtime holds this text")
    parser.add_argument("--every", type=int, default=1, help="every n-th row only")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    rows, left_out = matching(arguments.shared, arguments.more, arguments.as_measured)
    rows = [row for row in rows if arguments.only in f"{row.file} {row.model} {row.group} {row.source} {row.gpu}"]
    cases, today = judged_both(rows[:: arguments.every], left_out)
    if not cases:
        sys.exit("error: no row is left to be judged")
    if arguments.format == "json":
        as_today = [case.ours_ms for case in under_today(cases, today)]
        found = [asdict(case) | {"today_ms": ms} for case, ms in zip(cases, as_today, strict=True)]
        text = json.dumps({"cases": found, "left_out": left_out}, indent=1)
    else:
        text = table(cases, left_out, every=arguments.every, today=today)
    if arguments.output:
        arguments.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
