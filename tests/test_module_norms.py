"""RMS normalizations of models in 16 bits: what a file that was exported in float32 doesn't show of their modules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from graphs import inferred
from neusight_onnx import analyze
from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.module_norms import with_module_norms
from neusight_onnx.kernels import Elementwise, Movement, NodeWork, Reduction
from neusight_onnx.lowering import lower_laid_out
from neusight_onnx.lowering.precision import as_precision

NORM = (
    "s = Pow(x, two)\nm = ReduceMean<axes=[-1], keepdims=1>(s)\ne = Add(m, eps)\nr = Sqrt(e)\n"
    "i = Reciprocal(r)\nn = Mul(x, i)\ny = Mul(g, n)"
)
LLAMA = ["cast", "mul", "mean", "add", "rsqrt", "mul", "cast", "mul"]
"""What torch 2.9.1 launches for transformers' LlamaRMSNorm in float16 on stand-ins for CUDA's libraries."""


def named(works: tuple[NodeWork, ...]) -> list[str]:
    kernels = [kernel for work in works for kernel in work.kernels]
    assert all(isinstance(kernel, Elementwise | Movement | Reduction) for kernel in kernels)
    return [getattr(kernel, "operation", None) or kernel.operations[0] for kernel in kernels]  # type: ignore[union-attr]


def test_a_module_of_16_bits_computes_in_float32() -> None:
    constants = {"two": 2.0, "eps": 1e-6}
    graph = inferred(NORM, {"x": (4, 64)}, constants=constants, weights={"g": (64,)}, opset=17)
    marked = with_module_norms(as_precision(graph, DataType.FLOAT16), runtime="eager")
    works = lower_laid_out(marked, runtime="eager").works
    assert named(works) == LLAMA
    cast, square = works[-1].kernels[:2]
    assert (cast.read_bytes, cast.write_bytes, square.read_bytes) == (2 * 4 * 64, 4 * 4 * 64, 4 * 4 * 64)
    assert marked.assumptions[-1].startswith("1 RMS normalization that the graph writes out")


@pytest.mark.parametrize("runtime", ["compiled", "onnxruntime", "tensorrt"])
def test_other_runtimes_have_rules_of_their_own(runtime: str) -> None:
    graph = inferred(NORM, {"x": (4, 64)}, constants={"two": 2.0, "eps": 1e-6}, weights={"g": (64,)}, opset=17)
    assert with_module_norms(graph, runtime=runtime) is graph


@pytest.mark.parametrize(("precision", "expected"), [("fp16-model", 1), ("int4w", 1), ("fp32", 0), ("fp16", 0)])
def test_precision_decides(precision: str, expected: int, tmp_path: Path) -> None:
    """Autocast has lists of its own."""
    file = tmp_path / "norm.onnx"
    weights = {"two": np.array(2.0, np.float32), "eps": np.array(1e-6, np.float32), "g": np.ones(64, np.float32)}
    graph = onnx.parser.parse_graph(
        "norm (float[4, 64] x) => (float[4, 64] y) { s = Pow(x, two) m = ReduceMean<axes=[-1]>(s) e = Add(m, eps) "
        "r = Sqrt(e) n = Div(x, r) y = Mul(n, g) }"
    )
    graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), file)
    report = analyze(file, gpu="a100", runtime="eager", precision=precision)
    assert sum("RMS normalization" in said for said in report.assumptions) == expected
