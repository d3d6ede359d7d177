"""What depends on parameters alone: PyTorch computes it in every run, engines once."""

from __future__ import annotations

import pytest

from graphs import inferred
from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.runtimes import fused_graph
from neusight_onnx.kernels import Elementwise, Gemm, Normalization, Reduction
from neusight_onnx.lowering import lower
from neusight_onnx.lowering.autocast import autocast
from neusight_onnx.lowering.walk import CONSTANT
from neusight_onnx.runtime import RUNTIMES

# a table of positions, normalised and projected, as DeBERTa has it
PROJECTED = """
    n = LayerNormalization(table, gamma, beta)
    p = MatMul(n, w)
    r = Reshape(p, target)
    h = Transpose<perm=[1, 2, 0]>(r)
    y = MatMul(x, h)
"""
WEIGHTS = {"table": (32, 64), "gamma": (64,), "beta": (64,), "w": (64, 64)}


def projected() -> object:
    return inferred(PROJECTED, {"x": (4, 8, 16)}, weights=WEIGHTS, constants={"target": [32, 4, 16]})


@pytest.mark.parametrize("runtime", ["eager", "compiled"])
def test_pytorch_normalises_and_projects_parameters_in_every_run(runtime: str) -> None:
    works = {work.op_type: work for work in lower(projected(), runtime=runtime) if work.node != "y"}
    (norm,) = works["LayerNormalization"].kernels
    assert isinstance(norm, Normalization)
    assert (norm.rows, norm.cols) == (32, 64)
    products = [
        kernel for work in lower(projected(), runtime=runtime) for kernel in work.kernels if isinstance(kernel, Gemm)
    ]
    assert [(kernel.m, kernel.n, kernel.k) for kernel in products] == [(32, 64, 64), (8, 32, 16)]
    # what only arranges what was computed is a view
    assert works["Reshape"].free not in (None, CONSTANT)


@pytest.mark.parametrize("runtime", ["onnxruntime", "tensorrt"])
def test_engines_compute_it_once(runtime: str) -> None:
    works = lower(projected(), runtime=runtime)
    assert [work.free for work in works[:4]] == [CONSTANT] * 4


@pytest.mark.parametrize(
    ("nodes", "weights", "constants"),
    [
        pytest.param(
            "t = Transpose<perm=[1, 0]>(w)\ny = MatMul(x, t)", {"w": (32, 64)}, {}, id="a-parameter-transposed"
        ),
        pytest.param("t = Cast<to=1>(w)\ny = MatMul(x, t)", {"w": (64, 32)}, {}, id="a-parameter-cast"),
        pytest.param("t = Sqrt(number)\ny = Div(x, t)", {}, {"number": 64.0}, id="a-number"),
        pytest.param("t = ConstantOfShape(size)\ny = MatMul(x, t)", {}, {"size": [64, 32]}, id="a-filled-parameter"),
    ],
)
def test_how_a_file_keeps_parameters_is_no_work(
    nodes: str, weights: dict[str, tuple[int, ...]], constants: dict[str, object]
) -> None:
    graph = inferred(nodes, {"x": (4, 64)}, weights=weights, constants=constants)
    first, _ = lower(graph, runtime="eager")
    assert first.free == CONSTANT


def test_autocast_projects_parameters_in_16_bits() -> None:
    cast = autocast(projected(), DataType.FLOAT16, runtime="eager")
    products = [kernel for work in lower(cast, runtime="eager") for kernel in work.kernels if isinstance(kernel, Gemm)]
    assert [kernel.dtype for kernel in products] == [DataType.FLOAT16, DataType.FLOAT16]


def test_standardised_weights_are_three_kernels_in_eager_mode() -> None:
    """(1, 16, 27): the statistics of 16 channels, the inverse deviation of each, the result, as of NFNets."""
    graph = inferred(
        """
        m = ReduceMean<axes=[0, 1], keepdims=0>(moved)
        k = ReduceMean<axes=[0, 1]>(moved)
        d = Sub(moved, k)
        q = Mul(d, d)
        v = ReduceMean<axes=[0, 1], keepdims=0>(q)
        b = BatchNormalization<training_mode=1>(weight, gain, zeros, m, v)
        f = Reshape(b, filter)
        y = Conv(x, f)
        """,
        {"x": (1, 3, 8, 8)},
        weights={"weight": (1, 16, 27), "moved": (1, 27, 16), "gain": (16,), "zeros": (16,)},
        constants={"filter": [16, 3, 3, 3]},
    )
    eager = fused_graph(graph, RUNTIMES["eager"])
    kernels = [kernel for work in lower(eager, runtime="eager") for kernel in work.kernels]
    statistics, inverse, result = kernels[:3]
    assert isinstance(statistics, Reduction)
    assert (statistics.outputs, statistics.reduced) == (16, 27)
    assert isinstance(inverse, Elementwise)
    assert inverse.output.shape == (16,)
    assert isinstance(result, Normalization)
    assert (result.rows, result.cols) == (16, 27)
