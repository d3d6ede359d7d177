"""The sizes that a model's inputs leave open, as options of the command line and keys of a target give them."""

from __future__ import annotations

from collections.abc import Iterable

from neusight_onnx.checks.subject import Subject
from neusight_onnx.graph.batch_dimension import unnamed_batch
from neusight_onnx.graph.model import Declared, Dim
from neusight_onnx.graph.names import option, options
from neusight_onnx.report.quantities import printable

MOST_NAMED = 12
"""Names in one finding."""


def key(name: str) -> str:
    """A name as a key of TOML."""
    bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if bare else f'"{printable(name)}"'


def written_size(dim: Dim, subject: Subject) -> str:
    """A dimension as an example of --shape has it: N where it is open."""
    if isinstance(dim, str):
        size = None if subject.shaped is None else subject.shaped.bound.symbols.get(dim)
        return "N" if size is None else str(size)
    return str(dim) if dim else "N"


def whole_shape(declared: Declared, subject: Subject) -> str:
    """What gives the whole shape of an input that declares one."""
    sizes = [written_size(dim, subject) for dim in declared.shape or ()]
    return (
        f"{option('--shape', declared.name, 'x'.join(sizes))}, or shapes = "
        f"{{ {key(declared.name)} = [{', '.join(sizes)}] }} in the target"
    )


def is_formula(symbol: str) -> bool:
    """Whether a symbol follows from others ("past + 1"), so that it is left to them."""
    return any(mark in symbol for mark in "+*/%(") or " - " in symbol


def open_sizes(subject: Subject) -> str | None:
    """What gives the sizes that the inputs leave open: ``--dim`` with their names, ``--batch`` for a batch that has
    none, ``--shape`` for inputs with other dims that have none; None where nothing is open."""
    bindings = subject.target.bindings
    names: dict[str, None] = {}
    shapes: list[Declared] = []
    batch_is_open = False
    for declared in subject.model.graph.inputs:
        if declared.name in bindings.values or declared.kind == "map" or declared.shape is None:
            continue
        nameless = [axis for axis, dim in enumerate(declared.shape) if dim is None or dim == 0]
        if declared.name in bindings.shapes or (nameless and nameless != [0]) or (nameless and len(declared.shape) < 2):
            shapes.append(declared)
            continue
        batch_is_open = batch_is_open or bool(nameless)
        names |= dict.fromkeys(dim for dim in declared.shape if isinstance(dim, str) and not is_formula(dim))
    made_up = [name for name in unnamed_batch(subject.model) if name in names]
    named = [name for name in names if name not in made_up]
    asked, keys = [], []
    if batch_is_open or made_up:  # a name that the exporter made up is another one in its next file
        asked.append("--batch N")
        keys.append("batch = N")
    if named:
        shown = named[:MOST_NAMED]
        asked.append(options("--dim", dict.fromkeys(shown, "N")))
        keys.append(f"dims = {{ {_listed(f'{key(name)} = N' for name in shown)} }}")
    ways = [f"{' '.join(asked)}, or {' and '.join(keys)} in the target"] if asked else []
    ways += [whole_shape(declared, subject) for declared in shapes[:MOST_NAMED]]
    return "; ".join(ways) or None


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(texts)
