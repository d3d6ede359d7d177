"""Operators over elements."""

from __future__ import annotations

from lowering_cases.case import BOOL, Case, ew, moved

ELEMENTWISE = [
    Case(name="relu", nodes="y = Relu(x)", inputs={"x": (4, 4)}, expected=[ew("relu", read=64, written=64)]),
    Case(
        name="a scalar is no traffic",
        nodes="y = Mul(x, s)",
        inputs={"x": (4, 4)},
        constants={"s": 2.0},
        expected=[ew("mul", read=64, written=64)],
    ),
    Case(
        name="broadcast on both sides",
        nodes="y = Add(x, z)",
        inputs={"x": (4, 1), "z": (1, 8)},
        expected=[ew("add", read=48, written=128)],
    ),
    Case(
        name="comparison writes bytes",
        nodes="y = Greater(x, z)",
        inputs={"x": (4, 4), "z": (4, 4)},
        expected=[ew("gt", read=128, written=16)],
    ),
    Case(
        name="where with a broadcast condition",
        nodes="y = Where(c, x, s)",
        inputs={"c": (1, 4), "x": (4, 4)},
        constants={"s": 0.0},
        types={"c": BOOL},
        expected=[ew("where", read=68, written=64)],
    ),
    Case(
        name="a number that is filled in goes into a copy",
        nodes="y = Where(c, s, x)",
        inputs={"c": (1, 4), "x": (4, 4)},
        constants={"s": 0.0},
        types={"c": BOOL},
        expected=[moved("copy", read=64, written=64), ew("where", read=68, written=64)],
    ),
    Case(
        name="square",
        nodes="y = Pow(x, p)",
        inputs={"x": (4,)},
        constants={"p": 2.0},
        expected=[ew("pow_scalar", read=16, written=16)],
    ),
    Case(
        name="root",
        nodes="y = Pow(x, p)",
        inputs={"x": (4,)},
        constants={"p": 0.5},
        expected=[ew("sqrt", read=16, written=16)],
    ),
    Case(
        name="general power",
        nodes="y = Pow(x, p)",
        inputs={"x": (4,), "p": (4,)},
        expected=[ew("pow", read=32, written=16)],
    ),
    Case(
        name="expanded operand is read once",
        nodes="e = Expand(z, shape)\ny = Add(x, e)",
        inputs={"x": (8, 4), "z": (1, 4)},
        constants={"shape": [8, 4]},
        expected=[ew("add", read=128 + 16, written=128)],
    ),
    Case(
        name="sum of three: two kernels in eager",
        nodes="y = Sum(x, z, u)",
        inputs={"x": (4,), "z": (4,), "u": (4,)},
        expected=[ew("add", read=32, written=16)] * 2,
    ),
    Case(
        name="sum of three: one elsewhere",
        nodes="y = Sum(x, z, u)",
        inputs={"x": (4,), "z": (4,), "u": (4,)},
        runtime="tensorrt",
        expected=[ew("add", "add", read=48, written=16)],
    ),
    Case(
        name="cast",
        nodes="y = Cast<to=10>(x)",
        inputs={"x": (8,)},
        expected=[moved("cast", 32, 16)],
    ),
    Case(
        name="gelu",
        nodes='y = Gelu<approximate="tanh">(x)',
        inputs={"x": (8,)},
        opset=20,
        expected=[ew("gelu_tanh", read=32, written=32)],
    ),
    Case(
        name="bias and gelu",
        nodes="y = com.microsoft.BiasGelu(x, b)",
        inputs={"x": (4, 8)},
        weights={"b": (8,)},
        expected=[ew("add", "gelu", read=128 + 32, written=128)],
    ),
]
