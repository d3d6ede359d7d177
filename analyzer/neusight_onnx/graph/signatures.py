"""What a node of each operator may look like: how many inputs and outputs, which attributes of which type.

The table beside this module, ``signatures.txt``, holds it for every version of the standard's operators and for those
of ONNX Runtime. It is derived from the schemas that onnx and ONNX Runtime publish (a test compares and rewrites it),
so that reading a model doesn't have to import onnx. One line an operator and version, where it differs from the
version before::

    Conv 1 sso/f1,f1,f1 s auto_pad:s dilations:I group:i kernel_shape:I pads:I strides:I

Inputs and outputs: ``s`` must be there, ``o`` may be left out, ``v`` any number (a number behind: at least so many in
all). Behind a slash, what elements each input may have: ``f`` floats, ``i`` integers, ``b`` booleans, ``s`` strings,
``c`` complex numbers, ``*`` anything; widths are not looked at, but inputs with the same digit have the same type (the
last place holds for all that ``v`` takes). Attributes: ``i`` integer, ``f`` float, ``s`` string,
``t`` tensor, ``p`` sparse tensor, ``g`` graph, ``y`` type; upper case: a list of them; ``!``: required. A line in
brackets names the domain of those that follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from neusight_onnx.dtypes import DataType
from neusight_onnx.graph.model import Attribute, Declared, Graph, Initializer, Node, Value
from neusight_onnx.graph.versions import OPEN_DOMAIN

_DIGITS = "0123456789"
_TABLE = Path(__file__).with_name("signatures.txt")

_KINDS: Mapping[str, tuple[str, type | tuple[type, ...]]] = {
    "i": ("an integer", int),
    "f": ("a number", (float, int)),
    "s": ("a string", (str, bytes)),
    "t": ("a tensor", Initializer),
    "p": ("a sparse tensor", Initializer),
    "g": ("a graph", Graph),
    "y": ("a type", Declared),
}
_LISTS: Mapping[str, tuple[str, type | tuple[type, ...]]] = {
    "I": ("a list of integers", int),
    "F": ("a list of numbers", (float, int)),
    "S": ("a list of strings", (str, bytes)),
    "T": ("a list of tensors", Initializer),
    "P": ("a list of sparse tensors", Initializer),
    "G": ("a list of graphs", Graph),
    "Y": ("a list of types", Declared),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One operator from ``version`` on; the letters are those of the module's docstring."""

    version: int
    inputs: str
    least_inputs: int
    most_inputs: int | None
    least_outputs: int
    most_outputs: int | None
    attributes: Mapping[str, str]
    required: tuple[str, ...]
    elements: tuple[tuple[str, str], ...]
    is_open: bool


ELEMENTS: Mapping[DataType, str] = {
    dtype: "f"
    if dtype.is_float
    else "i"
    if dtype.is_integer
    else {DataType.BOOL: "b", DataType.STRING: "s"}.get(dtype, "c")
    for dtype in DataType
}
_NAMES = {"f": "floats", "i": "integers", "b": "booleans", "s": "strings", "c": "complex numbers"}


def fault(node: Node) -> str | None:
    """Why no runtime takes the node, whatever its inputs are; None if its form is right or the operator is unknown."""
    signature = signature_of(node.domain, node.op_type, node.version)
    if signature is None:
        return None
    count, most = len(node.inputs), signature.most_inputs
    if count < signature.least_inputs or (most is not None and count > most) or "" in node.inputs:
        reason = _wrong_inputs(node, signature)
        if reason is not None:
            return reason
    count, most = len(node.outputs), signature.most_outputs
    if count < signature.least_outputs or (most is not None and count > most):
        if count < signature.least_outputs:
            return f"has {_counted(count, 'output')}, needs {signature.least_outputs}"
        if any(node.outputs[most:]) and not signature.is_open:
            return f"has {_counted(count, 'output')}, can have {most}"
    kinds = signature.attributes
    for name, value in node.attributes.items():
        kind = kinds.get(name)
        if kind is not None and not _is_of_kind(value, kind):
            return f"attribute {name} is not {(_KINDS.get(kind) or _LISTS[kind])[0]}"
    for name in signature.required:
        if name not in node.attributes:
            return f"lacks the attribute {name}"
    return None


def wrong_elements(node: Node, inputs: Sequence[Value | None]) -> str | None:
    """Which input has elements that the operator can't have; None if none has, as far as their types are known."""
    signature = signature_of(node.domain, node.op_type, node.version)
    if signature is None or not signature.elements:
        return None
    first: dict[str, tuple[int, DataType]] = {}
    for place, value in enumerate(inputs):
        if value is None or value.dtype is None or value.kind != "tensor":
            continue
        allowed, shared = signature.elements[min(place, len(signature.elements) - 1)]
        if allowed != "*" and ELEMENTS[value.dtype] not in allowed:
            wanted = " or ".join(_NAMES[letter] for letter in allowed)
            return f"input {node.inputs[place]} holds {value.dtype.label}, it can have {wanted}"
        if shared:
            other, dtype = first.setdefault(shared, (place, value.dtype))
            if dtype is not value.dtype:
                return (
                    f"its inputs {node.inputs[other]} and {node.inputs[place]} hold {dtype.label} and "
                    f"{value.dtype.label}, they must have one type"
                )
    return None


def unknown_attributes(node: Node) -> Iterator[str]:
    """Attributes that the operator does not have, nothing being known of what they would change.

    ONNX Runtime's own, which begin with two underscores, are left out. Operators of com.microsoft may gain some with a
    release that isn't known here.
    """
    signature = signature_of(node.domain, node.op_type, node.version)
    if signature is None:
        return
    for name in node.attributes:
        if name not in signature.attributes and not name.startswith("__"):
            yield name


def _wrong_inputs(node: Node, signature: Signature) -> str | None:
    count = len(node.inputs)
    if count < signature.least_inputs:
        return f"has {_counted(count, 'input')}, needs {signature.least_inputs}"
    most = signature.most_inputs
    if most is not None and any(node.inputs[most:]) and not signature.is_open:
        return f"has {_counted(count, 'input')}, can have {most}"
    for place, (name, need) in enumerate(zip(node.inputs, signature.inputs, strict=False)):
        if need == "s" and not name:
            return f"input {place} is missing"
    return None


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _is_of_kind(value: Attribute, kind: str) -> bool:
    single = _KINDS.get(kind)
    if single is not None:
        return isinstance(value, single[1])
    if isinstance(value, tuple):
        return not value or isinstance(value[0], _LISTS[kind][1])
    return isinstance(value, Initializer)  # a list of numbers too long to be kept


@cache
def signature_of(domain: str, op_type: str, version: int) -> Signature | None:
    """The signature that holds at ``version`` of the domain (0: the newest); None if there is none."""
    found: Signature | None = None
    for line in _lines().get((domain, op_type), ()):
        since, inputs, outputs, *attributes = line.split()
        if found is None or not version or int(since) <= version:
            found = _parsed(int(since), inputs, outputs, attributes, domain)
    return found if found is None or not version or found.version <= version else None


def first_version(domain: str, op_type: str) -> int | None:
    """The first version of the domain that has the operator; None for one that is not in the table."""
    lines = _lines().get((domain, op_type))
    return int(lines[0].split()[0]) if lines else None


@cache
def known_runtime() -> str:
    """The release of ONNX Runtime that the table holds the operators of, "1.32"."""
    _, _, release = _TABLE.read_text("ascii").partition("onnxruntime ")
    return ".".join(release.split(maxsplit=1)[0].split(".")[:2])


def _parsed(since: int, inputs: str, outputs: str, attributes: list[str], domain: str) -> Signature:
    pairs = [attribute.split(":") for attribute in attributes]
    inputs, _, elements = inputs.partition("/")
    places, least_inputs, most_inputs = _arity(inputs)
    _, least_outputs, most_outputs = _arity(outputs)
    return Signature(
        version=since,
        inputs=places,
        least_inputs=least_inputs,
        most_inputs=most_inputs,
        least_outputs=least_outputs,
        most_outputs=most_outputs,
        attributes={name: kind.removesuffix("!") for name, kind in pairs},
        required=tuple(name for name, kind in pairs if kind.endswith("!")),
        elements=tuple((kind.rstrip(_DIGITS), kind.lstrip("fibsc*")) for kind in elements.split(","))
        if elements
        else (),
        is_open=domain == OPEN_DOMAIN,
    )


def _arity(text: str) -> tuple[str, int, int | None]:
    """Letters of the places, the least number of them, the most (None: any)."""
    letters = text.rstrip(_DIGITS)
    number = text.removeprefix(letters)
    letters = letters.removeprefix("-")
    least = int(number) if number else letters.count("s")
    return letters, least, None if "v" in letters else len(letters)


@cache
def _lines() -> Mapping[tuple[str, str], list[str]]:
    table: dict[tuple[str, str], list[str]] = {}
    domain = ""
    for line in _TABLE.read_text("ascii").splitlines():
        if line.startswith("#"):
            continue
        if line.startswith("["):
            domain = line.strip("[]")
        else:
            op_type, _, rest = line.partition(" ")
            table.setdefault((domain, op_type), []).append(rest)
    return table
