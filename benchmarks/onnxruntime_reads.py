"""What of a file an onnxruntime reads: the newest opset and IR version, and which operators of com.microsoft it has.

Run it with the Python and the wheel of a release (1.4 to 1.14 need Python 3.8), once a release::

    python3.8 -m pip install --target build/ort-1.4 onnxruntime==1.4.0
    PYTHONPATH=build/ort-1.4 python3.8 benchmarks/onnxruntime_reads.py OPERATORS.txt

``OPERATORS.txt`` names operators, one a line: those of the newest release. Of each a file with one such node is loaded:
"not a registered function" says that it isn't there, any other answer that it is. Files are written here byte by byte,
since no onnx package fits every release. The tables of ``releases/onnxruntime_files.py`` are what it printed.
"""

from __future__ import annotations

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


def model(operator: str, domain: str = "", opset: int = 11, ir_version: int = 4) -> bytes:
    """A ModelProto of one node from x to y."""
    node = field(1, b"x") + field(2, b"y") + field(4, operator.encode())
    imports = field(8, number(2, opset))
    if domain:
        node += field(7, domain.encode())
        imports += field(8, field(1, domain.encode()) + number(2, 1))
    graph = field(1, node) + field(2, b"g") + field(11, value(b"x")) + field(12, value(b"y"))
    return number(1, ir_version) + field(7, graph) + imports


def refusal(content: bytes) -> str | None:
    try:
        onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    except Exception as error:  # each release has errors of its own
        return str(error)
    return None


def main(operators: list[str]) -> None:
    onnxruntime.set_default_logger_severity(4)
    opsets = [version for version in range(7, 40) if refusal(model("Relu", opset=version)) is None]
    ir_versions = [version for version in range(3, 30) if refusal(model("Relu", ir_version=version)) is None]
    answers = {name: refusal(model(name, "com.microsoft")) or "" for name in operators}
    known = [name for name, answer in answers.items() if "is not a registered" not in answer]
    print(f"onnxruntime {onnxruntime.__version__}: opset {max(opsets)}, IR version {max(ir_versions)}")
    print(f"{len(known)} of {len(operators)} operators: {' '.join(known)}")


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        main(file.read().split())
