"""Into how many parts AMD's kernels split the reduction of a weight's gradient, by the law and by MIOpen's rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from neusight_onnx.data_files import data_folder
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import Conv
from neusight_onnx.laws.tensor_conv.columns import columns
from neusight_onnx.laws.tensor_conv.implicit_gemm import joined_us
from neusight_onnx.laws.tensor_conv.miopen_solvers import assembled_times, compiled_us, hip_times, mlir_times
from neusight_onnx.laws.tensor_conv.miopen_splits import filling, of_images, of_mlir
from neusight_onnx.laws.tensor_conv.solver_tiles import HIP_TILE, MLIR_TILE
from neusight_onnx.laws.tensor_conv.tiles import TILE, with_tiles
from neusight_onnx.laws.tensor_conv.transposes import transposes_us
from neusight_onnx.predictor import load_predictors
from tensor_conv_cases import BASE, BF16, FP16, WEIGHT_AMD_PRIORS

KERNEL = replace(BASE, direction="weight", n=64, c=128, k=128, spatial=(28, 28), out=(28, 28), channels_last=True)
POINTWISE = replace(KERNEL, filter=(1, 1))


def _parts(of: Any, kernel: Conv, *, gpu: str = "mi100", side: int = 128, rounds: int = 1) -> float:
    """Of a square tile."""
    cols = {name: column[None] for name, column in columns((kernel,)).items()}
    tile = np.array([float(side), float(side), 256.0, float(rounds)])[:, None, None]
    return float(of(cols, load_gpu(gpu), tile)[0, 0])


@pytest.mark.parametrize(
    ("gpu", "rounds", "parts"), [("mi100", 1, 13), ("mi100", 2, 26), ("mi210", 1, 11), ("mi210", 4, 46)]
)
def test_assembled_kernels_fill_the_compute_units(gpu: str, rounds: int, parts: int) -> None:
    """128 by 1,152 weights are 9 tiles, for 120 and 104 units."""
    assert _parts(filling, KERNEL, gpu=gpu, rounds=rounds) == parts


@pytest.mark.parametrize(("kernel", "parts"), [(KERNEL, (3, 7, 13)), (POINTWISE, (12, 24, 49))], ids=["taps", "1x1"])
def test_few_images_of_several_taps_are_split_less(kernel: Conv, parts: tuple[int, ...]) -> None:
    """32 blocks an image; a filter of one tap is split down to 64 positions a part."""
    assert tuple(_parts(filling, replace(kernel, n=n)) for n in (1, 2, 4)) == parts


@pytest.mark.parametrize("gpu", ["mi100", "mi210"])
def test_one_image_takes_as_long_as_four(gpu: str) -> None:
    """128 channels of 3x3 over 112 x 112: 97, 93 and 90 us of one, two and four images on an MI100, 107, 100 and 96 on
    an MI210, beside transposes and zeros."""
    spec = load_gpu(gpu)
    constants = load_predictors(data_folder("predictors"))["conv", "matrix/weight+amd"].constants
    kernel = replace(KERNEL, spatial=(112, 112), out=(112, 112), channels_last=True)
    cols, tile, _ = with_tiles(columns([replace(kernel, n=n) for n in (1, 2, 4)]), spec, constants)
    parts = assembled_times(cols, spec, constants, tile)
    times = joined_us(parts, constants) - parts["launch"]
    assert times == pytest.approx(95.0, rel=0.35)
    assert times[2] < 1.35 * times[0]


@pytest.mark.parametrize(
    ("of", "images", "side", "parts"),
    [
        pytest.param(of_images, 64, 128, 64, id="images divide"),
        pytest.param(of_images, 1024, 128, 256, id="20 blocks a unit: 2,400 over 9 tiles are 266"),
        pytest.param(of_images, 24, 32, 12, id="24 over 144 tiles are 16, which don't divide 24"),
        pytest.param(of_images, 13, 64, 13, id="a prime"),
        pytest.param(of_mlir, 64, 128, 64, id="MLIR's likewise"),
    ],
)
def test_compiled_kernels_have_the_most_parts_that_divide_the_images(
    of: Any, images: int, side: int, parts: int
) -> None:
    # 32 x 32 positions are whole steps of MLIR's
    assert _parts(of, replace(KERNEL, n=images, spatial=(32, 32), out=(32, 32)), side=side) == parts


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        pytest.param({}, 32, id="784 positions of two images are whole steps of 32"),
        pytest.param({"spatial": (7, 7), "out": (7, 7)}, 2, id="49 of 32 images"),
        pytest.param({"k": 96}, 1, id="tiles that don't divide"),
        pytest.param({"dtype": BF16}, 1, id="bfloat16"),
    ],
)
def test_mlir_splits_what_needs_no_padding(changes: dict[str, Any], parts: int) -> None:
    assert _parts(of_mlir, replace(KERNEL, **changes)) == parts


@pytest.mark.parametrize(
    ("gpu", "dtype", "names", "times"),
    [
        pytest.param("mi210", FP16, MLIR_TILE, mlir_times, id="none in HIP for float16 of CDNA2"),
        pytest.param("mi210", BF16, HIP_TILE, hip_times, id="none of MLIR's for bfloat16 there"),
        pytest.param("mi100", BF16, HIP_TILE, hip_times, id="nor on CDNA"),
    ],
)
def test_which_compiler_has_a_gradient(gpu: str, dtype: Any, names: tuple[str, ...], times: Any) -> None:
    spec = load_gpu(gpu)
    cols, tile, _ = with_tiles(columns((replace(KERNEL, dtype=dtype),)), spec, WEIGHT_AMD_PRIORS)
    own = times(cols, spec, WEIGHT_AMD_PRIORS, np.stack([cols[name] for name in names]))
    assert compiled_us(cols, spec, WEIGHT_AMD_PRIORS, tile) == pytest.approx(joined_us(own, WEIGHT_AMD_PRIORS))


def test_the_quicker_compiler_runs() -> None:
    """On an MI100 in float16 both have kernels; of 49 positions MLIR's, unsplit, convert nothing."""
    spec = load_gpu("mi100")
    small = replace(POINTWISE, n=4, c=256, k=256, spatial=(7, 7), out=(7, 7))
    cols, tile, _ = with_tiles(columns((small,)), spec, WEIGHT_AMD_PRIORS)
    hip = joined_us(hip_times(cols, spec, WEIGHT_AMD_PRIORS, np.stack([cols[n] for n in HIP_TILE])), WEIGHT_AMD_PRIORS)
    assert compiled_us(cols, spec, WEIGHT_AMD_PRIORS, tile)[0] < hip[0]


@pytest.mark.parametrize(("gpu", "measured_us"), [("mi100", 1586.7), ("mi210", 1596.3)])
def test_assembled_kernels_hide_their_loads(gpu: str, measured_us: float) -> None:
    """1,024 images of 28 x 28, 128 channels of 3x3 over (n, h, w, c): .81 of the peak on both."""
    spec = load_gpu(gpu)
    constants = load_predictors(data_folder("predictors"))["conv", "matrix/weight+amd"].constants
    cols, tile, _ = with_tiles(columns((replace(KERNEL, n=1024),)), spec, constants)
    found = joined_us(assembled_times(cols, spec, constants, tile), constants) + transposes_us(cols, spec, constants)
    assert found[0] == pytest.approx(measured_us, rel=0.12)
    assert constants["assembled_norm"] > constants["norm"]
    assert cols[TILE[3]][0] > 1.0


@pytest.mark.parametrize(
    ("times", "names", "norm"), [(hip_times, HIP_TILE, "hip_norm"), (mlir_times, MLIR_TILE, "mlir_norm")]
)
def test_each_compiler_hides_its_loads_as_far_as_its_own_norm_says(
    times: Any, names: tuple[str, ...], norm: str
) -> None:
    spec = load_gpu("mi100")
    cols, _, _ = with_tiles(columns((KERNEL,)), spec, WEIGHT_AMD_PRIORS)
    tile = np.stack([cols[name] for name in names])

    def at(value: float) -> float:
        constants = {**WEIGHT_AMD_PRIORS, norm: value}
        return float(joined_us(times(cols, spec, constants, tile), constants)[0])

    parts = times(cols, spec, WEIGHT_AMD_PRIORS, tile)
    in_turn = parts["launch"][0] + 1e6 * sum(parts[name][0] for name in ("compute", "memory", "l2", "issue"))
    assert at(1.0) == pytest.approx(in_turn)
    assert at(4.0) < at(2.0) < at(1.0)


def test_loads_and_moves_of_mlir_are_its_own() -> None:
    """Of single elements, 7 x 7 positions: MLIR's take less than half of HIP's clocks for addresses on either GPU."""
    spec = load_gpu("mi100")
    kernel = replace(KERNEL, channels_last=False, spatial=(7, 7), out=(7, 7), filter=(1, 1))
    cols, _, _ = with_tiles(columns((kernel,)), spec, WEIGHT_AMD_PRIORS)
    tile = np.stack([cols[name] for name in HIP_TILE])

    def issue(times: Any, **changes: float) -> float:
        return float(times(cols, spec, {**WEIGHT_AMD_PRIORS, **changes}, tile)["issue"][0])

    assert issue(mlir_times) < issue(hip_times)
    assert issue(mlir_times, mlir_address=1.0, mlir_operations=10.0) == pytest.approx(issue(hip_times))
    assert issue(mlir_times, address_overhead=9.0, move_operations=99.0) == pytest.approx(issue(mlir_times))
