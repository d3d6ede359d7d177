"""GPUs of a generation that nobody knows yet: which instructions they are taken to have, and that it is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from neusight_onnx import analyze
from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import SpecError
from neusight_onnx.gpu import GpuSpec, changed_gpu, load_gpu
from neusight_onnx.gpu.generation import instructions, said_of_unknown
from neusight_onnx.gpu.sense import formats_of
from neusight_onnx.kernels import Attention, Elementwise, Gemm, TensorSpec
from neusight_onnx.predictor import Prediction, predict

SPECS = Path(__file__).parents[1] / "specs"
EXAMPLE = Path(__file__).parents[1] / "examples" / "resnet50.onnx"
PRODUCT = Gemm(batch=1, m=8192, n=8192, k=8192, dtype=DataType.FLOAT16, b_is_weight=True, transpose_b=True)


def as_generation(name: str, capability: float, memory_type: str | None = None) -> GpuSpec:
    spec = load_gpu(name)
    return replace(spec, compute_capability=capability, memory_type=memory_type or spec.memory_type)


def product_on(spec: GpuSpec) -> Prediction:
    return predict([PRODUCT], spec)[0]


@pytest.mark.parametrize(
    ("name", "capability", "memory_type", "expected"),
    [
        ("h100-sxm", 9.0, None, "wgmma"),
        ("h100-sxm", 11.0, None, "tcgen05"),
        ("rtx-5090", 12.0, None, "mma"),
        ("rtx-5090", 12.1, "HBM3", "mma"),  # a known one is what it is
        ("mi300x", None, None, "mma"),
        ("h100-sxm", 13.0, None, "tcgen05"),  # HBM
        ("h100-sxm", 29.0, "GDDR7", "tcgen05"),  # 3,800 FLOPs a clock and SM
        ("a100-sxm-80gb", 13.0, "GDDR7", "mma"),  # 2,050
        ("rtx-5090", 13.0, None, "mma"),
    ],
)
def test_instructions(name: str, capability: float | None, memory_type: str | None, expected: str) -> None:
    spec = replace(as_generation(name, 0.0, memory_type), compute_capability=capability)
    assert instructions(spec) == expected


@pytest.mark.parametrize("capability", [12.5, 13.0, 18.0, 29.0])
def test_a_later_data_centre_gpu_falls_off_no_cliff(capability: float) -> None:
    """With the same figures it is as quick as data-centre Blackwell, and surer of nothing."""
    known, unknown = (product_on(as_generation("h100-sxm", each)) for each in (11.0, capability))
    assert unknown.latency_us == pytest.approx(known.latency_us, rel=0.01)
    assert unknown.high_us / unknown.latency_us > 1.2 * known.high_us / known.latency_us


def test_a_later_consumer_gpu_is_as_quick_as_the_last() -> None:
    known, unknown = (product_on(as_generation("rtx-5090", each)) for each in (12.1, 13.0))
    assert unknown.latency_us == pytest.approx(known.latency_us, rel=0.02)
    assert unknown.high_us / unknown.latency_us > 1.1 * known.high_us / known.latency_us


@pytest.mark.parametrize(
    ("name", "capability", "said"),
    [
        ("h100-sxm", 13.0, "data-centre Blackwell (compute capability 10.0, tcgen05), because it has HBM3"),
        ("rtx-5090", 14.0, "consumer Blackwell (compute capability 12.0, mma), because it has no HBM"),
    ],
)
def test_a_report_says_what_is_assumed_of_an_unknown_generation(name: str, capability: float, said: str) -> None:
    report = analyze(EXAMPLE, gpu=as_generation(name, capability))
    assert [text for text in report.assumptions if said in text and f"{capability:.1f} is of a generation" in text]


def test_attention_of_an_unknown_generation_is_that_of_the_one_it_is_taken_for() -> None:
    """PyTorch runs FlashAttention 2 by mma on data-centre Blackwell, and on what is taken for it."""
    kernel = Attention(b=8, h=16, g=16, s=1024, t=1024, d=64, v=64, dtype=DataType.FLOAT16, library="pytorch")
    taken_for, unknown = (predict([kernel], as_generation("b200", capability))[0] for capability in (10.0, 13.0))
    assert unknown.latency_us == pytest.approx(taken_for.latency_us, rel=0.02)


@pytest.mark.parametrize(("name", "known"), [("h100-sxm", 9.0), ("b200", 10.0)])
@pytest.mark.parametrize("d", [64, 128])
def test_kernels_in_mma_are_no_slower_on_a_later_gpu_of_the_same_figures(name: str, known: float, d: int) -> None:
    """An H100's attention by mma is that of an SM of its rate, whatever its generation is called."""
    kernel = Attention(b=8, h=16, g=16, s=2048, t=2048, d=d, v=d, dtype=DataType.FLOAT16, library="pytorch")
    before, later = (predict([kernel], as_generation(name, capability))[0] for capability in (known, 13.0))
    assert later.latency_us == pytest.approx(before.latency_us, rel=0.05)


@pytest.mark.parametrize(("name", "share"), [("a100-sxm-80gb", "100 %"), ("h100-sxm", "63 %"), ("b200", "32 %")])
def test_a_report_says_what_mma_reaches_on_an_unknown_generation(name: str, share: str) -> None:
    said = said_of_unknown(as_generation(name, 13.0))
    assert said is not None
    assert f"FlashAttention 2, reach {share} of the peak" in said


LARGE = TensorSpec(shape=(4096, 4096), dtype=DataType.FLOAT32)
SPELLINGS = ("CDNA 3", "cdna3", "AMD CDNA™ 3")
KERNELS = (
    PRODUCT,
    replace(PRODUCT, dtype=DataType.FLOAT32),
    replace(PRODUCT, m=64, n=2048, k=2048),
    Attention(b=8, h=16, g=16, s=1024, t=1024, d=64, v=64, dtype=DataType.FLOAT16),
    Elementwise(operations=("relu",), inputs=(LARGE,), output=LARGE),
)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_an_amd_generation_is_told_however_it_is_spelt(spelling: str) -> None:
    spec = load_gpu("mi300x")
    found, expected = (predict(KERNELS, gpu) for gpu in (replace(spec, architecture=spelling), spec))
    assert [one.latency_us for one in found] == [one.latency_us for one in expected]
    assert formats_of(replace(spec, architecture=spelling)) == formats_of(spec)


@pytest.mark.parametrize("name", ["mi100", "mi210", "mi300x", "mi355x"])
def test_matrix_cores_are_told_by_the_generation(name: str) -> None:
    """All of CDNA has them, whether or not a file states their rate in FP32."""
    spec = load_gpu(name)
    without = {pipe: rate for pipe, rate in spec.peak_flops_per_s.items() if pipe != "fp32_matrix"}
    found, expected = (predict(KERNELS, gpu) for gpu in (replace(spec, peak_flops_per_s=without), spec))
    assert [one.latency_us for one in found] == pytest.approx([one.latency_us for one in expected], rel=0.01)


def test_a_report_says_nothing_of_a_known_generation() -> None:
    report = analyze(EXAMPLE, gpu=as_generation("h100-sxm", 11.0))
    assert not [text for text in report.assumptions if "is of a generation" in text]


@pytest.mark.parametrize(
    ("capability", "fault"),
    [
        (4.5, "'compute_capability' is 4.5, which no GPU has"),
        (9.5, "'compute_capability' is 9.5, which no GPU has"),
        (5.2, "'tf32_tflops' is 494.5, but units of compute capability 5.2 have no instructions"),
        (12.1, "units of compute capability 12.1 at boost_mhz do"),
    ],
)
def test_what_no_generation_has_is_refused(capability: float, fault: str, tmp_path: Path) -> None:
    file = tmp_path / "gpu.toml"
    text = (SPECS / "h100-sxm.toml").read_text(encoding="utf-8")
    file.write_text(text.replace("compute_capability = 9.0", f"compute_capability = {capability}"), encoding="utf-8")
    with pytest.raises(SpecError, match=fault):
        load_gpu(file)
    with pytest.raises(SpecError, match=fault):
        changed_gpu(load_gpu("h100-sxm"), {"compute_capability": capability}, "--set")
