"""What moves or gathers elements."""

from __future__ import annotations

from lowering_cases.case import INT64, Case, ew, moved
from neusight_onnx.kernels import GatherScatter, Gemm, Movement

MOVEMENTS = [
    Case(
        name="concat",
        nodes="y = Concat<axis=1>(x, z)",
        inputs={"x": (2, 3), "z": (2, 5)},
        expected=[moved("concat", 64, 64)],
    ),
    Case(
        name="slice",
        nodes="y = Slice(x, s, e, a)",
        inputs={"x": (4, 8)},
        constants={"s": [1], "e": [5], "a": [1]},
        runtime="onnxruntime",
        expected=[moved("slice", 64, 64)],
    ),
    Case(
        name="slice of what lies together",
        nodes="y = Slice(x, s, e)",
        inputs={"x": (4, 8)},
        constants={"s": [1], "e": [3]},
        runtime="onnxruntime",
        expected=[moved("copy", 64, 64)],
    ),
    Case(
        name="slice of every other row",
        nodes="y = Slice(x, s, e, a, t)",
        inputs={"x": (4, 8)},
        constants={"s": [0], "e": [4], "a": [0], "t": [2]},
        runtime="onnxruntime",
        expected=[moved("slice", 64, 64)],
    ),
    Case(
        name="slice backwards",
        nodes="y = Slice(x, s, e, a, t)",
        inputs={"x": (4, 8)},
        constants={"s": [-1], "e": [-100], "a": [0], "t": [-1]},
        expected=[moved("flip", 128, 128)],
    ),
    Case(
        name="pad: a fill and a copy in eager",
        nodes="y = Pad(x, p)",
        inputs={"x": (4, 8)},
        constants={"p": [0, 1, 0, 1]},
        expected=[moved("fill", 0, 160), moved("copy", 128, 128)],
    ),
    Case(
        name="pad: one kernel elsewhere",
        nodes="y = Pad(x, p)",
        inputs={"x": (4, 8)},
        constants={"p": [0, 1, 0, 1]},
        runtime="onnxruntime",
        expected=[moved("pad", 128, 160)],
    ),
    Case(
        name="gradient of pointwise operators: a fill of ones, two products, a sum where a value is used twice",
        nodes="""c = Add(a, b)
                 d = Mul(c, a)
                 da, db = ai.onnx.preview.training.Gradient<xs=["a", "b"], y="d">(a, b)""",
        inputs={"a": (4, 8), "b": (4, 8)},
        expected=[
            moved("fill", 0, 128),
            ew("mul", read=256, written=128),
            ew("mul", read=256, written=128),
            ew("add", read=256, written=128),
        ],
    ),
    Case(
        name="gradient of a matrix product: (m, n) @ (n, k) and (k, m) @ (m, n)",
        nodes="""y = MatMul(x, w)
                 dx, dw = ai.onnx.preview.training.Gradient<xs=["x", "w"], y="y">(x, w)""",
        inputs={"x": (4, 8), "w": (8, 3)},
        expected=[
            moved("fill", 0, 48),
            (Gemm, {"m": 4, "n": 8, "k": 3, "transpose_b": True, "macs": 96}),
            (Gemm, {"m": 8, "n": 3, "k": 4, "transpose_a": True, "macs": 96}),
        ],
    ),
    Case(
        name="tile",
        nodes="y = Tile(x, r)",
        inputs={"x": (4, 8)},
        constants={"r": [1, 3]},
        expected=[moved("tile", 128, 384)],
    ),
    Case(
        name="transpose",
        nodes="y = Transpose<perm=[1,0]>(x)",
        inputs={"x": (4, 8)},
        runtime="onnxruntime",
        expected=[(Movement, {"operation": "transpose", "shape": (4, 8), "permutation": (1, 0), "read_bytes": 128})],
    ),
    Case(
        name="pixel shuffle",
        nodes='y = DepthToSpace<blocksize=2, mode="CRD">(x)',
        inputs={"x": (1, 8, 3, 3)},
        expected=[(Movement, {"shape": (1, 2, 2, 2, 3, 3), "permutation": (0, 1, 4, 2, 5, 3), "read_bytes": 288})],
    ),
    Case(
        name="nearest resize",
        nodes='y = Resize<mode="nearest">(x, roi, scales)',
        inputs={"x": (1, 2, 3, 3)},
        constants={"scales": [1.0, 1.0, 2.0, 2.0], "roi": []},
        expected=[(Movement, {"operation": "resize", "read_bytes": 72, "write_bytes": 288, "flops": 0})],
    ),
    Case(
        name="embedding",
        nodes="y = Gather(w, i)",
        inputs={"i": (2, 3)},
        weights={"w": (100, 8)},
        types={"i": INT64},
        expected=[
            (
                GatherScatter,
                {"operation": "embedding", "moved": 48, "run": 8, "read_bytes": 192 + 48, "write_bytes": 192},
            )
        ],
    ),
    Case(
        name="gather elements",
        nodes="y = GatherElements<axis=1>(x, i)",
        inputs={"x": (3, 8), "i": (3, 2)},
        types={"i": INT64},
        expected=[(GatherScatter, {"moved": 6, "run": 1, "index_count": 6})],
    ),
    Case(
        name="gather n-d",
        nodes="y = GatherND(x, i)",
        inputs={"x": (3, 4, 8), "i": (5, 2)},
        types={"i": INT64},
        expected=[(GatherScatter, {"moved": 40, "run": 8, "index_count": 10})],
    ),
    Case(
        name="scatter n-d copies its base",
        nodes="y = ScatterND(x, i, u)",
        inputs={"x": (10, 8), "i": (3, 1), "u": (3, 8)},
        types={"i": INT64},
        expected=[(GatherScatter, {"moved": 24, "run": 8, "read_bytes": 96 + 24 + 320, "write_bytes": 96 + 320})],
    ),
]
