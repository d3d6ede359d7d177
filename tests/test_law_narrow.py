"""Vector kernels in 16 and 8 bits."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest

from neusight_onnx import load_gpu
from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Elementwise, Kernel, Normalization, Softmax, TensorSpec
from neusight_onnx.laws.narrow import READ_KNEE, WRITE_SHARE, through_dram
from neusight_onnx.predictor import predict

FP16, FP32 = DataType.FLOAT16, DataType.FLOAT32


def added(rows: int, cols: int, dtype: DataType = FP16, access: str = "") -> Elementwise:
    spec = TensorSpec(dtype=dtype, shape=(rows, cols))
    return Elementwise(operations=("add",), inputs=(spec, spec), output=spec, access=access)


def normalized(rows: int, cols: int, dtype: DataType = FP16, access: str = "", method: str = "layer") -> Normalization:
    return Normalization(method=method, rows=rows, cols=cols, parameter_count=2 * cols, dtype=dtype, access=access)


def time_us(kernel: Kernel, gpu: str = "h100") -> float:
    return predict([kernel], load_gpu(gpu))[0].latency_us


def test_what_goes_through_dram() -> None:
    """RTX 4090: 72 MB of L2 that every SM reaches; A100: 40 MB, of which it reaches half."""
    mebi = 2.0**20
    read, write = np.array([7.2 * mebi, 720 * mebi]), np.array([7.2 * mebi, 720 * mebi])
    found = through_dram(read, write, load_gpu("rtx-4090")) / mebi
    assert found[0] == pytest.approx(7.2 * (1 - exp(-0.1 / READ_KNEE)))
    assert found[1] == pytest.approx(720 + 720 - WRITE_SHARE * 72)
    halved = through_dram(np.array([2.0 * mebi]), np.zeros(1), load_gpu("a100")) / mebi
    assert halved[0] == pytest.approx(2.0 * (1 - exp(-0.1 / READ_KNEE)))


@pytest.mark.parametrize("dtype", [FP16, DataType.BFLOAT16, DataType.FLOAT8E4M3FN, DataType.INT8])
def test_large_kernels_take_their_bytes(dtype: DataType) -> None:
    """Against the same in FP32: as many times less as there are bytes less, but for what the L2 holds back."""
    kernel, wide = added(65_536, 8192, dtype), added(65_536, 8192, FP32)
    assert time_us(kernel) == pytest.approx(time_us(wide) * dtype.bits / 32, rel=0.06)


@pytest.mark.parametrize(
    ("kernel", "wide"),
    [
        (added(4096, 4096), added(4096, 4096, FP32)),
        (normalized(4096, 4096), normalized(4096, 4096, FP32)),
        (normalized(4096, 4096, method="rms"), normalized(4096, 4096, FP32, method="rms")),
        (Softmax(rows=65_536, cols=512, dtype=FP16), Softmax(rows=65_536, cols=512, dtype=FP32)),
    ],
    ids=["add", "layer", "rms", "softmax"],
)
def test_half_the_bytes_take_less_and_no_less_than_a_third(kernel: Kernel, wide: Kernel) -> None:
    assert 1 / 3 < time_us(kernel) / time_us(wide) < 0.75


MEASURED = {
    # vLLM's layers, us: Vidur on A100-80GB and H100 (fp16), LLMServingSim on RTX 4090 (bf16)
    "addition of 200 MB, H100": (added(4096, 8192), "h100", 62.5),
    "addition of 200 MB, A100": (added(4096, 8192), "a100", 112.0),
    "norm by elements, A100": (normalized(4096, 8192, access="element", method="rms"), "a100", 194.0),
    "norm by elements, H100": (normalized(4096, 8192, access="element", method="rms"), "h100", 124.0),
    # PyTorch's own (phi-2 has nn.LayerNorm)
    "LayerNorm, A100": (normalized(4096, 2560), "a100", 43.0),
    "LayerNorm of few rows, A100": (normalized(256, 2560), "a100", 8.0),
    "LayerNorm, H100": (normalized(4096, 2560), "h100", 21.0),
    # 1,024 threads a row, 216 rows a wave: 2, 2, 4 and 5 waves begun
    "256 norms by elements, A100": (normalized(256, 4096, access="element", method="rms"), "a100", 8.0),
    "384 norms by elements, A100": (normalized(384, 4096, access="element", method="rms"), "a100", 9.5),
    "768 norms by elements, A100": (normalized(768, 4096, access="element", method="rms"), "a100", 16.0),
    "1,024 norms by elements, A100": (normalized(1024, 4096, access="element", method="rms"), "a100", 20.0),
    "512 norms by elements, H100": (normalized(512, 4096, access="element", method="rms"), "h100", 7.0),
    "2,048 norms by elements, H100": (normalized(2048, 8192, access="element", method="rms"), "h100", 58.0),
    "a lone row by elements, A100": (normalized(1, 8192, access="element", method="rms"), "a100", 8.0),
}


@pytest.mark.parametrize("name", MEASURED)
def test_measured_layers(name: str) -> None:
    kernel, gpu, measured_us = MEASURED[name]
    assert time_us(kernel, gpu) == pytest.approx(measured_us, rel=0.2)


@pytest.mark.parametrize("gpu", ["a100-pcie-40gb", "t4", "h100", "mi210"])
@pytest.mark.parametrize(("rows", "cols"), [(200_704, 768), (200_704, 256), (64, 1024)])
def test_layer_norm_in_half_the_bytes_takes_no_longer(rows: int, cols: int, gpu: str) -> None:
    """PyTorch's kernel makes as many loads, each of half the bytes."""
    assert time_us(normalized(rows, cols), gpu) <= time_us(normalized(rows, cols, FP32), gpu)


@pytest.mark.parametrize("gpu", ["a100-pcie-40gb", "t4", "mi210", "mi300x"])
@pytest.mark.parametrize(("rows", "cols"), [(4096, 1025), (1 << 20, 1), (64, 50_257)])
def test_softmax_in_half_the_bytes_takes_no_longer(rows: int, cols: int, gpu: str) -> None:
    """Rows of 1,025 columns fill a vector with half the loads; an MI210 would take a fifth longer by the law alone."""
    narrow, wide = (Softmax(rows=rows, cols=cols, dtype=dtype) for dtype in (FP16, FP32))
    assert time_us(narrow, gpu) <= time_us(wide, gpu)


def test_loading_single_elements_costs_time() -> None:
    assert time_us(normalized(4096, 4096, access="element", method="rms")) > 1.4 * time_us(
        normalized(4096, 4096, access="vector", method="rms")
    )


def test_predictions_name_the_law_and_are_wider() -> None:
    for kernel in (added(512, 4096), normalized(512, 4096), Softmax(rows=512, cols=512, dtype=FP16)):
        (found,) = predict([kernel], load_gpu("h100"))
        assert found.method == "learned"
        assert found.predictor.endswith("_fp32")
        assert found.low_us < found.latency_us < found.high_us


def test_softmax_that_was_played_alone_is_doubted_more() -> None:
    """Rows of more than 1,024 columns are played from NVIDIA's machine code; on AMD's GPUs not even that."""

    def width(cols: int, gpu: str, library: str) -> float:
        kernel = Softmax(rows=100_000, cols=cols, dtype=FP16, library=library)
        (found,) = predict([kernel], load_gpu(gpu))
        return found.high_us / found.low_us

    for gpu in ("h200-sxm", "l40s", "mi300x"):
        assert width(2048, gpu, "onnxruntime") > 1.1 * width(1024, gpu, "onnxruntime")
    assert width(2048, "mi300x", "onnxruntime") > width(2048, "h200-sxm", "onnxruntime")
