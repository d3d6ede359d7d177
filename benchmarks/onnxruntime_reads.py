"""What of a file an onnxruntime reads: the newest opsets and IR version, and which operators of com.microsoft it has,
with which attributes and how many inputs and outputs.

Run it with the Python and the wheel of a release (1.4 to 1.14 need Python 3.8), once a release::

    python3.8 -m pip install --target build/ort-1.4 onnxruntime==1.4.0
    PYTHONPATH=build/ort-1.4 python3.8 benchmarks/onnxruntime_reads.py OPERATORS.txt

``OPERATORS.txt`` has operators, one a line: those of the newest release, as ``graph/signatures.txt`` has them behind
[com.microsoft]. Of each a file with one such node is loaded: "not a registered function" says that it isn't there, any
other answer that it is; a node with far too many inputs or outputs is refused with how many it may have, and one with
an attribute that isn't known with "Unrecognized attribute". Each file has a process of its own: some crash one. Files
are written here byte by byte, since no onnx package fits every release. The tables of ``releases/onnxruntime_files.py``
and ``releases/onnxruntime_forms.py`` are what it printed.
"""

from __future__ import annotations

import os
import re
import struct
import sys

import onnxruntime


def integer(number: int) -> bytes:
    rest, low = number >> 7, number & 127
    return bytes([low | 128]) + integer(rest) if rest else bytes([low])


def field(place: int, payload: bytes) -> bytes:
    return integer(place << 3 | 2) + integer(len(payload)) + payload


def number(place: int, value: int) -> bytes:
    return integer(place << 3) + integer(value)


def value(name: bytes) -> bytes:
    """A ValueInfoProto: one float, of one dimension of any size."""
    kind = number(1, 1) + field(2, field(1, b""))
    return field(1, name) + field(2, field(1, kind))


ATTRIBUTES = {
    "f": (1, struct.pack("<Bf", 2 << 3 | 5, 1.0)),
    "i": (2, number(3, 1)),
    "s": (3, field(4, b"a")),
    "F": (6, struct.pack("<Bf", 7 << 3 | 5, 1.0)),
    "I": (7, number(8, 1)),
    "S": (8, field(9, b"a")),
}
"""Kind of an attribute, as in signatures.txt -> its type and a value, as an AttributeProto has them."""
NO_OPSET = re.compile("opset|under development|guarantees|No Op registered")
COUNTS = re.compile(r"has (input|output) size \d+ not in range \[min=(\d+), max=(\d+)\]")
MANY = 60


def model(
    operator: str,
    domain: str = "",
    opset: int = 11,
    ir_version: int = 4,
    *,
    version: int = 1,
    inputs: int = 1,
    outputs: int = 1,
    attribute: tuple[str, str] | None = None,
) -> bytes:
    """A ModelProto of one node from x to y0; ``version`` is its domain's."""
    names = [b"y%d" % place for place in range(outputs)]
    node = field(1, b"x") * inputs + b"".join(field(2, name) for name in names) + field(4, operator.encode())
    if attribute is not None:
        kind, content = ATTRIBUTES[attribute[1]]
        node += field(5, field(1, attribute[0].encode()) + content + number(20, kind))
    imports = field(8, number(2, opset))
    if domain:
        node += field(7, domain.encode())
        imports += field(8, field(1, domain.encode()) + number(2, version))
    graph = field(1, node) + field(2, b"g") + field(11, value(b"x"))
    graph += b"".join(field(12, value(name)) for name in names or [b"y0"])
    return number(1, ir_version) + field(7, graph) + imports


def refusal(content: bytes) -> str:
    """Why a file is refused; "" if it isn't, "a crash" if there was one."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        except Exception as error:  # each release has errors of its own
            os.write(writing, str(error).encode()[:4000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    return "a crash" if os.waitpid(child, 0)[1] else said


def counts(operator: str, what: str, **given: int) -> tuple[int, int] | None:
    """The least and the most inputs (or outputs) of an operator; None where it wasn't said."""
    found = COUNTS.search(refusal(model(operator, "com.microsoft", **{**given, f"{what}s": MANY})))
    return (int(found[2]), int(found[3])) if found is not None and found[1] == what else None


def form(operator: str, attributes: dict[str, str]) -> str:
    """An operator with the inputs, outputs and attributes that it may have: "MoE 5-8 1-1 k activation_type"."""
    takes = counts(operator, "input")
    inputs = takes[0] if takes else 1
    gives = counts(operator, "output", inputs=inputs)
    outputs = gives[0] if gives else 1
    known = [
        name
        for name, kind in attributes.items()
        if kind in ATTRIBUTES
        and f"Unrecognized attribute: {name} "
        not in refusal(model(operator, "com.microsoft", inputs=inputs, outputs=outputs, attribute=(name, kind)))
    ]
    return " ".join([operator, *("-".join(map(str, each)) if each else "?" for each in (takes, gives)), *known])


def main(operators: dict[str, dict[str, str]]) -> None:
    onnxruntime.set_default_logger_severity(4)
    opsets = [version for version in range(7, 40) if not refusal(model("Relu", opset=version))]
    of_ml = [
        version
        for version in range(1, 12)
        if not NO_OPSET.search(refusal(model("Scaler", "ai.onnx.ml", version=version)))
    ]
    ir_versions = [version for version in range(3, 30) if not refusal(model("Relu", ir_version=version))]
    known = [name for name in operators if "is not a registered" not in refusal(model(name, "com.microsoft"))]
    print(
        f"onnxruntime {onnxruntime.__version__}: opset {max(opsets)}, of ai.onnx.ml {max(of_ml)}, "
        f"IR version {max(ir_versions)}"
    )
    print(f"{len(known)} of {len(operators)} operators; of each its inputs, outputs and attributes:")
    for name in known:
        print(form(name, operators[name]))


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        rows = [line.split() for line in file]
    main({name: dict(part.rstrip("!").split(":") for part in rest if ":" in part) for name, *rest in rows})
