"""Where the file contradicts itself or its opset: warnings of an inference, which goes on."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from neusight_onnx.errors import shown
from neusight_onnx.graph.bindings import BoundInputs
from neusight_onnx.graph.cache_branches import left_empty
from neusight_onnx.graph.cache_lengths import kept_buffers
from neusight_onnx.graph.dimension_roles import places_of
from neusight_onnx.graph.model import (
    Declared,
    Graph,
    Notice,
    Value,
)
from neusight_onnx.graph.names import option
from neusight_onnx.graph.shapes.walk import Walk
from neusight_onnx.graph.signatures import first_version, known_runtime
from neusight_onnx.graph.versions import OPEN_DOMAIN


def note_stale(graph: Graph, own: Mapping[str, Value], walk: Walk) -> None:
    # inputs are bound as declared, or refused; a declared 0 is free
    known = walk.stale.keys() | {declared.name for declared in graph.inputs}
    zero_is_free = any(_is_bound_otherwise(declared, own) for declared in graph.inputs)
    for declared in (*graph.declared.values(), *graph.outputs):
        value = own.get(declared.name)
        if declared.name in known or value is None or value.shape is None or declared.shape is None:
            continue
        if value.kind != "tensor" or value.is_bound:
            continue
        dims = tuple(None if dim == 0 and zero_is_free else dim for dim in declared.shape)
        if _contradicts(dims, value.shape):
            shown = ", ".join("?" if dim is None else str(dim) for dim in declared.shape)
            walk.stale[declared.name] = (
                f"'{declared.name}' is declared as [{shown}] but its shape is {list(value.shape)}"
            )


def _is_bound_otherwise(declared: Declared, own: Mapping[str, Value]) -> bool:
    """Whether an input declares a 0 that was read as free."""
    value = own.get(declared.name)
    shape = None if value is None else value.shape
    if declared.shape is None or shape is None or len(shape) != len(declared.shape):
        return False
    return any(dim == 0 != size for dim, size in zip(declared.shape, shape, strict=True))


def _contradicts(declared: tuple[int | str | None, ...], shape: tuple[int, ...]) -> bool:
    if declared == shape:
        return False
    if len(declared) != len(shape):
        return True
    return any(isinstance(dim, int) and dim >= 0 and dim != size for dim, size in zip(declared, shape, strict=True))


def stale_notices(stale: Mapping[str, str]) -> list[Notice]:
    if not stale:
        return []
    first, *others = stale.values()
    more = f", and {len(others):,} more are" if others else ""
    message = f"{first}{more}: the file's value_info is stale, the inferred shapes are used"
    return [Notice(code="stale-value-info", message=message, details=tuple(others))]


def contradicted_symbols(graph: Graph, bound: BoundInputs, values: Mapping[str, Value]) -> list[Notice]:
    """One notice for each symbol whose size the user gave and that the graph computes another size of.

    No operator need refuse that: the length of a mask and that of past and new keys meet in none if a mask is only
    summed over, or broadcasts.
    """
    given = {symbol: size for symbol, size in bound.symbols.items() if symbol not in bound.defaults}
    places = places_of(graph.inputs)
    notices = []
    for symbol, computed in computed_sizes(graph, given, values).items():
        sizes = {size: name for size, name in computed.items() if size != given[symbol]}
        if not sizes:
            continue
        where = "in the inputs" if symbol in places else "as it was given"
        message = (
            f"{shown(symbol)!r} is {given[symbol]} {where}, but the graph makes it "
            + " and ".join(f"{size} in {shown(name)!r}" for size, name in sizes.items())
            + ": inputs that contradict each other, or a wrong name in the file; the computed sizes are used"
            + (f" ({option('--dim', symbol, str(next(iter(sizes))))} would agree)" if len(sizes) == 1 else "")
        )
        notices.append(Notice(code="dim-contradiction", message=message))
    return notices


def computed_sizes(
    graph: Graph, symbols: Container[str], values: Mapping[str, Value], *, bounds: bool = False
) -> dict[str, dict[int, str]]:
    """Of those of ``symbols`` that the file writes at what nodes give: each size there, with the first that has it.

    ``bounds``: of values whose shape depends on data alone; else of the others.
    """
    passed_over = {declared.name for declared in graph.inputs}
    passed_over |= left_empty(graph, values) | kept_buffers(graph, values)
    computed: dict[str, dict[int, str]] = {}
    for declared in (*graph.outputs, *graph.declared.values()):
        value = values.get(declared.name)
        if declared.name in passed_over or value is None or value.is_bound is not bounds or value.shape is None:
            continue
        if declared.shape is None or len(declared.shape) != len(value.shape):
            continue
        for symbol, size in zip(declared.shape, value.shape, strict=True):
            if isinstance(symbol, str) and symbol in symbols:
                computed.setdefault(symbol, {}).setdefault(size, declared.name)
    return computed


def too_new_notices(graph: Graph) -> list[Notice]:
    """One for each operator that the opset which the model imports does not have yet."""
    users: dict[tuple[str, str, int], str] = {}
    pending = [graph]
    while pending:
        current = pending.pop()
        for node in current.nodes:
            if node.version and node.domain != OPEN_DOMAIN:
                users.setdefault((node.domain, node.op_type, node.version), node.name)
            for item in node.attributes.values():
                pending += [body for body in (item if isinstance(item, tuple) else (item,)) if isinstance(body, Graph)]
    notices = []
    for (domain, op_type, version), name in users.items():
        first = first_version(domain, op_type)
        if first is not None and version < first:
            notices.append(
                Notice(
                    code="operator-newer-than-opset",
                    message=f"{op_type} came with opset {first}, the model imports {version} ('{shown(name)}' is the "
                    "first): runtimes refuse it",
                    node=name,
                )
            )
    return notices


def ignored_notices(ignored: Mapping[tuple[str, str, str], Sequence[str]]) -> list[Notice]:
    """One for each attribute that its operator does not have: most often of another version of it, or misspelt."""
    notices = []
    for (domain, op_type, attribute), nodes in ignored.items():
        where = f"in ONNX Runtime up to {known_runtime()}" if domain == OPEN_DOMAIN else "at the model's opset"
        more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
        notices.append(
            Notice(
                code="unknown-attribute",
                message=f"{shown(op_type)} has no attribute '{shown(attribute)}' {where}: ignored "
                f"('{shown(nodes[0])}'{more}); ONNX Runtime refuses such a model",
                node=nodes[0],
            )
        )
    return notices
