"""Our kernels for ``--runtime compiled`` beside those that torch.compile's default backend, Inductor, makes.

    python benchmarks/fusion_inductor.py MODELS... --python PYTHON --stand-ins FOLDER [--batch 64] [--precision fp16]
        [--kernels FOLDER] [--show] [-o FILE]

MODELS are ONNX files named as in timm, or folders of such (a suffix after ``__`` doesn't count). PYTHON is one with
PyTorch and timm; ``inductor_kernels.py`` runs in it on the stand-ins for CUDA's libraries that ``cuda_standin.py`` has
built in FOLDER, so that no GPU is needed. What it finds is kept in --kernels, for the next time. --show prints the
generated kernels of both between the library calls.

Compared are the library calls (products, convolutions, fused attention, others) and the generated kernels: their
number, and the bytes that they read and write, each tensor once in a kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cuda_standin import environment
from neusight_onnx import __version__
from neusight_onnx.errors import NeusightError
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.model import Model
from neusight_onnx.graph.read import read_model
from neusight_onnx.kernels import (
    Attention,
    Conv,
    Elementwise,
    Gemm,
    Kernel,
    Movement,
    Normalization,
    Reduction,
    Softmax,
)
from neusight_onnx.lowering.precision import stored_precision
from neusight_onnx.precision import resolve
from neusight_onnx.preparation import infer_shapes, prepare

LIBRARY = ("conv", "gemm", "attention")
TEXT = {"bert_base_uncased": "bert-base:128", "roberta_base": "roberta-base:128", "gpt2": "gpt2:128"}
"""Files of ``../shared/models`` of architectures that ``inductor_kernels.py`` builds, for 128 tokens."""


@dataclass(frozen=True, kw_only=True)
class Launched:
    """One kernel: ``kind`` is "conv", "gemm", "attention", "pointwise", "reduction", or the name of another call."""

    kind: str
    name: str
    read_bytes: int
    write_bytes: int

    @property
    def is_generated(self) -> bool:
        return self.kind in ("pointwise", "reduction")


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One model: the kernels of both sides, and of how many graphs theirs are."""

    name: str
    versions: dict[str, str]
    theirs: tuple[Launched, ...]
    ours: tuple[Launched, ...]
    graph_count: int
    differing_calls: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Inductor:
    """Where PyTorch is, and what it is run on."""

    python: Path
    stand_ins: Path
    cache: Path
    batch: int
    precision: str

    def kernels(self, model: str) -> dict[str, Any]:
        """What ``inductor_kernels.py`` prints for a model of timm's.

        Raises:
            RuntimeError: it failed; with the last line of its message.
        """
        kept = self.cache / f"{model.replace(':', '-')}-{self.precision}-b{self.batch}.json"
        if not kept.is_file():
            variables = {**os.environ, **environment(self.stand_ins), "PYTHONPATH": ""}
            script = Path(__file__).with_name("inductor_kernels.py")
            asked = ["--batch", str(self.batch), "--precision", self.precision, model]
            done = subprocess.run(
                [str(self.python), "-P", str(script), *asked], capture_output=True, text=True, env=variables
            )
            if done.returncode:
                raise RuntimeError((done.stderr.strip().splitlines() or ["failed without a message"])[-1])
            if "error" in json.loads(done.stdout):
                raise RuntimeError(json.loads(done.stdout)["error"])
            self.cache.mkdir(parents=True, exist_ok=True)
            kept.write_text(done.stdout)
        found: dict[str, Any] = json.loads(kept.read_text())
        return found


def theirs_of(found: dict[str, Any]) -> tuple[Launched, ...]:
    return tuple(
        Launched(
            kind=kernel["kind"],
            name=kernel["name"],
            read_bytes=sum(kernel["read"].values()),
            write_bytes=sum(kernel["written"].values()),
        )
        for graph in found["graphs"]
        for kernel in graph["kernels"]
    )


def _asked(path: Path, model: Model) -> str:
    """What to ask ``inductor_kernels.py`` for: the architecture that the file is named after, and its images' size."""
    name = path.stem.partition("__")[0]
    if name in TEXT:
        return TEXT[name]
    shape = model.graph.inputs[0].shape or ()
    return f"{name}:{shape[-1]}" if shape and isinstance(shape[-1], int) else name


def ours_of(model: Model, *, batch: int, precision: str) -> tuple[Launched, ...]:
    """Our kernels for a model, in the order of their execution."""
    free = {dim for item in model.graph.inputs for dim in item.shape or () if isinstance(dim, str)}
    dims = {name: batch if "batch" in name else 128 for name in sorted(free)}
    shaped = infer_shapes(model, make_bindings(dims, None, None, None))
    asked = resolve(precision, stored_precision(model))
    prepared = prepare(shaped, precision=asked, runtime="compiled")
    return tuple(_launched(kernel) for work in prepared.work for kernel in work.kernels for _ in range(work.count))


def _launched(kernel: Kernel) -> Launched:
    match kernel:
        case Conv():
            kind, name = "conv", ""
        case Gemm():
            kind, name = "gemm", ""
        case Attention():
            kind, name = "attention", ""
        case Movement():
            kind, name = "pointwise", kernel.operation
        case Elementwise():
            kind, name = "pointwise", ",".join(kernel.operations)
        case Normalization():
            kind, name = "reduction", ",".join((kernel.method, *kernel.fused))
        case Softmax():
            kind, name = "reduction", ",".join(("softmax", *kernel.fused))
        case Reduction():
            kind, name = "reduction", ",".join((kernel.operation, *kernel.fused, *kernel.epilogue))
        case _:
            kind, name = type(kernel).__name__.lower(), ""
    return Launched(kind=kind, name=name, read_bytes=round(kernel.read_bytes), write_bytes=round(kernel.write_bytes))


def compare(path: Path, inductor: Inductor) -> Compared:
    """One file through both."""
    model = read_model(path)
    found = inductor.kernels(_asked(path, model))
    theirs = theirs_of(found)
    ours = ours_of(model, batch=inductor.batch, precision=inductor.precision)
    calls = [Counter(item.kind for item in side if not item.is_generated) for side in (theirs, ours)]
    differing = {
        kind: (calls[0][kind], calls[1][kind])
        for kind in sorted({*calls[0], *calls[1]})
        if calls[0][kind] != calls[1][kind]
    }
    return Compared(
        name=path.stem,
        versions=found["versions"],
        theirs=theirs,
        ours=ours,
        graph_count=len(found["graphs"]),
        differing_calls=differing,
    )


def _between_calls(kernels: Sequence[Launched]) -> Iterator[tuple[str, list[Launched]]]:
    """The generated kernels before each library call, with what is called (nothing for the last ones)."""
    waiting: list[Launched] = []
    for kernel in kernels:
        if kernel.is_generated:
            waiting.append(kernel)
            continue
        yield f"{kernel.kind} {kernel.read_bytes:,} -> {kernel.write_bytes:,}", waiting
        waiting = []
    yield "", waiting


def side_by_side(item: Compared) -> str:
    """The generated kernels of both sides between the library calls, for a reader who looks for what differs."""
    lines = [item.name]
    sides = [list(_between_calls(side)) for side in (item.theirs, item.ours)]
    for place in range(max(map(len, sides))):
        for title, side in zip(("theirs", "ours"), sides, strict=True):
            call, waiting = side[place] if place < len(side) else ("-", [])
            lines += [
                f"    {title:6} {kernel.kind:9} {kernel.read_bytes:>13,} -> {kernel.write_bytes:>13,}  "
                f"{kernel.name[:90]}"
                for kernel in waiting
            ]
            lines.append(f"  {title:6} {call}")
    return "\n".join(lines)


def _generated(kernels: Sequence[Launched]) -> tuple[int, float, float]:
    """(kernels, GB read, GB written) of what is generated."""
    own = [kernel for kernel in kernels if kernel.is_generated]
    return len(own), sum(kernel.read_bytes for kernel in own) / 1e9, sum(kernel.write_bytes for kernel in own) / 1e9


def _percent(ours: float, theirs: float) -> str:
    return f"{100 * (ours / theirs - 1):+.1f}" if theirs else "-"


def table(compared: Sequence[Compared], failed: dict[str, str], inductor: Inductor) -> str:
    named = ", ".join(f"{name} {version}" for name, version in compared[0].versions.items())
    lines = [
        "# Our kernels beside Inductor's",
        "",
        f"neusight-onnx {__version__}, {named}; batch {inductor.batch}, {inductor.precision}"
        + (" (autocast)" if inductor.precision == "fp16" else "")
        + ", inference, code generated without a GPU.",
        "Generated kernels: their number, and what they read and write, each tensor once in a kernel.",
        "",
        "| model | graphs | library calls | generated kernels: Inductor | ours | % | GB moved: Inductor | ours | % | "
        "calls that differ: Inductor / ours |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for item in compared:
        theirs, ours = _generated(item.theirs), _generated(item.ours)
        calls = sum(not kernel.is_generated for kernel in item.theirs)
        cells = [item.name, str(item.graph_count), f"{calls:,}", f"{theirs[0]:,}", f"{ours[0]:,}"]
        cells.append(_percent(ours[0], theirs[0]))
        moved = (sum(theirs[1:]), sum(ours[1:]))
        cells += [f"{moved[0]:.2f}", f"{moved[1]:.2f}", _percent(moved[1], moved[0])]
        cells.append(", ".join(f"{kind} {a} / {b}" for kind, (a, b) in item.differing_calls.items()))
        lines.append(f"| {' | '.join(cells)} |")
    lines += [f"\n{name}: {reason}" for name, reason in failed.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--python", type=Path, required=True, help="a Python with PyTorch (CUDA) and timm")
    parser.add_argument("--stand-ins", type=Path, required=True, metavar="FOLDER", help="made by cuda_standin.py")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--precision", choices=("fp16", "fp32"), default="fp16")
    parser.add_argument("--kernels", type=Path, default=Path("build/inductor"), metavar="FOLDER")
    parser.add_argument("--show", action="store_true", help="print the generated kernels of both between calls")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    inductor = Inductor(
        python=arguments.python,
        stand_ins=arguments.stand_ins,
        cache=arguments.kernels,
        batch=arguments.batch,
        precision=arguments.precision,
    )
    compared: list[Compared] = []
    failed: dict[str, str] = {}
    given = [path for item in arguments.models for path in (sorted(item.glob("*.onnx")) if item.is_dir() else [item])]
    for path in given:
        try:
            compared.append(compare(path, inductor))
        except (NeusightError, RuntimeError) as error:
            failed[path.stem] = str(error).splitlines()[0][:150]
            continue
        if arguments.show:
            print(side_by_side(compared[-1]))
    if not compared:
        sys.exit(f"error: nothing to compare: {failed}")
    text = table(compared, failed, inductor)
    if arguments.output:
        arguments.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
