"""ONNX graphs of timm's models, built anew for measured rows that have none, with the index that ``models.py`` reads.

    python benchmarks/export_timm.py FOLDER [NAME...] --rows FILE.parquet... [--max-parameters 100e6] [--index-only]

Runs in a Python with PyTorch, timm, onnx and pyarrow; needs no GPU, no weights and no network. ``models.py SHARED
--more FOLDER`` judges what it makes. FILEs have the rows of timm's own benchmark (columns ``model``, ``input``,
``source_repo``); NAMEs choose models, by default all that the rows name, one of each family after the other. Files
that are there stay, so that it can be run again; the index lists what the folder holds.

A graph is what PyTorch's TorchScript exporter writes (opset 17, a free batch, eval mode, timm's default attention).
Weights are references to data that is never written. What timm's benchmark re-parameterised before it measured under
PyTorch 2.9.1 (RepVGG's branches and others', ``timm.utils.model.reparameterize_model``) has two files: each
fits the rows of its releases.

The graphs are of today's timm, the rows of the timm of their day: the rows hold no count of parameters that would
tell a model that has changed since.
"""

from __future__ import annotations

import argparse
import csv
import io
import random
import re
import signal
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import onnx
import pyarrow.parquet as pq
import timm
import torch
from timm.models import model_entrypoint
from timm.utils.model import reparameterize_model

REPARAMETERISED_RELEASE = "2.9.1"
"""Rows of this release were measured with ``--reparam``, as those of ``../shared/models/index_e2e.csv`` showed."""
REPARAMETERISING = ("fuse", "reparameterize", "switch_to_deploy")
"""Methods of modules that ``reparameterize_model`` calls."""
REPARAMETERISED = "__reparam"
OLD_ROWS = f"rows before torch {REPARAMETERISED_RELEASE}"
NEW_ROWS = f"torch {REPARAMETERISED_RELEASE} rows (measured reparameterised)"
"""``models.py`` looks for "2.9.1 rows (" in ``applies_to_rows``."""
LARGEST_INLINE_BYTES = 1024
"""Constants of more bytes become references; the shapes of a graph don't follow from those."""
SECONDS = 150


def family_of(name: str) -> str:
    """The module of timm that defines the architecture: ``resnet`` for ``seresnext50_32x4d``."""
    return str(model_entrypoint(name).__module__.rpartition(".")[2])


def sizes_of(files: Sequence[Path]) -> dict[str, set[int]]:
    """The sizes of the images that each model was measured with."""
    found: dict[str, set[int]] = defaultdict(set)
    for file in files:
        for row in pq.read_table(file, columns=["model", "input", "source_repo"]).to_pylist():
            if row["source_repo"].endswith("image-models") and (size := re.search(r"\d+", row["input"] or "")):
                found[row["model"].removeprefix("timm/")].add(int(size[0]))
    return found


def by_turns(names: Iterable[str]) -> list[str]:
    """One of each family, then another of each, so that any start of the list has as many families as can be."""
    families: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        families[family_of(name)].append(name)
    generator = random.Random(0)
    for members in families.values():
        generator.shuffle(members)
    turns = max(map(len, families.values()), default=0)
    return [members[turn] for turn in range(turns) for members in families.values() if turn < len(members)]


def parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def is_reparameterised(name: str) -> bool:
    """Whether timm's re-parameterisation changes how many parameters a model has."""
    with torch.device("meta"):
        model = timm.create_model(name).eval()
        before = parameters(model)
    if not any(hasattr(module, method) for module in model.modules() for method in REPARAMETERISING):
        return False
    try:
        return parameters(reparameterize_model(model)) != before
    except (NotImplementedError, RuntimeError):
        # merging filters may need their values
        model = timm.create_model(name).eval()
        return parameters(reparameterize_model(model)) != before


def created(name: str, size: int) -> torch.nn.Module:
    try:
        return timm.create_model(name, img_size=size)
    except TypeError:
        # not built for one size
        return timm.create_model(name)


def without_weights(model: onnx.ModelProto, data: str) -> onnx.ModelProto:
    """Large floating-point constants become references into a file ``data``."""
    offset = 0
    for tensor in model.graph.initializer:
        is_float = tensor.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)
        length = len(tensor.raw_data)
        if not is_float or length <= LARGEST_INLINE_BYTES:
            continue
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", data), ("offset", offset), ("length", length)):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)
        offset += length
    return model


def export(name: str, size: int, *, reparameterised: bool, path: Path) -> None:
    """Writes the graph of a model for images of ``size`` x ``size`` pixels and any batch."""
    model = created(name, size).eval()
    if reparameterised:
        model = reparameterize_model(model)
    buffer = io.BytesIO()
    with torch.no_grad():
        torch.onnx.export(
            model,
            (torch.zeros(1, 3, size, size),),
            buffer,
            opset_version=17,
            dynamo=False,
            input_names=["image"],
            output_names=["logits"],
            dynamic_axes={"image": {0: "batch"}, "logits": {0: "batch"}},
        )
    graph = without_weights(onnx.load_from_string(buffer.getvalue()), f"{path.name}.data")
    path.write_bytes(graph.SerializeToString())


def write_index(folder: Path) -> int:
    """Lists the folder's graphs in its ``index.csv``; returns how many."""
    changed: dict[str, bool] = {}
    rows = []
    for path in sorted(folder.glob("*.onnx")):
        name, _, rest = path.stem.partition("__")
        if name not in changed:
            changed[name] = is_reparameterised(name)
        is_new = rest.endswith(REPARAMETERISED)
        rows.append(
            {
                "file": path.name,
                "csv_model": name,
                "source_repo": "huggingface/pytorch-image-models",
                "img_size": rest.removesuffix(REPARAMETERISED),
                "applies_to_rows": NEW_ROWS if is_new else OLD_ROWS if changed[name] else "",
                "family": family_of(name),
                "notes": "",
            }
        )
    with (folder / "index.csv").open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]) if rows else ["file", "csv_model"])
        writer.writeheader()
        writer.writerows(rows)
    return len(rows)


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError(f"took more than {SECONDS} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--rows", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--max-parameters", type=float, default=100e6)
    parser.add_argument("--smallest-only", action="store_true", help="one file a model, of its smallest images")
    parser.add_argument("--index-only", action="store_true", help="list the folder's graphs, make none")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, _too_long)
    measured = sizes_of(arguments.rows)
    known = set(timm.list_models())
    wanted = by_turns(set(arguments.names or measured) & known)
    for name in sorted(set(arguments.names or measured) - known):
        print(f"{name}: not in timm {timm.__version__}", file=sys.stderr)
    for name in [] if arguments.index_only else wanted:
        with torch.device("meta"):
            if parameters(timm.create_model(name)) > arguments.max_parameters:
                continue
        sizes = sorted(measured.get(name, {224}))
        for size in sizes[:1] if arguments.smallest_only else sizes:
            for reparameterised in (False, True) if is_reparameterised(name) else (False,):
                path = arguments.folder / f"{name}__{size}{REPARAMETERISED if reparameterised else ''}.onnx"
                if path.exists():
                    continue
                try:
                    signal.alarm(SECONDS)
                    export(name, size, reparameterised=reparameterised, path=path)
                except Exception as error:  # what an exporter raises is anything; the next model may do
                    print(f"{path.name}: {str(error).splitlines()[0][:150]}", file=sys.stderr)
                finally:
                    signal.alarm(0)
    print(f"{write_index(arguments.folder)} graphs in {arguments.folder / 'index.csv'}")


if __name__ == "__main__":
    main()
