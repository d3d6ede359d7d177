"""GPU files: what every shipped one says follows from units, clocks and generations."""

from __future__ import annotations

import pickle
from dataclasses import asdict
from pathlib import Path

import pytest

from gpu_files import GPUS, RTX_4090
from neusight_onnx.gpu import GpuSpec, gpu_names, load_gpu

# Names that the users of the published method and of the issue tracker rely on.
PROMISED = """
p4 p40 p100-pcie-16gb p100-sxm2-16gb v100-pcie-16gb v100-pcie-32gb v100-sxm2-32gb t4 a100-pcie-40gb a100-sxm-40gb
a100-pcie-80gb a100-sxm-80gb a30 a10 a10g a16 a2 a40 rtx-a6000 rtx-a5000 rtx-a4000 rtx-2080-ti rtx-3090 rtx-4090
rtx-5090 l4 l20 l40 l40s rtx-6000-ada h100-sxm h100-pcie h100-nvl h200-sxm h20 gh200 b200-sxm b300-sxm gb200 gb300
rtx-pro-6000-server jetson-agx-orin-64gb mi50 mi100 mi210 mi250 mi250x mi300x mi325x mi350x mi355x
"""


def test_promised_gpus_are_there() -> None:
    promised = PROMISED.split()
    assert len(promised) == 51
    assert set(promised) <= set(gpu_names())
    assert gpu_names() == tuple(GPUS) == tuple(sorted(GPUS))
    # one that is added or taken out changes the list in specs/README.md of those that are left out, too
    assert len(GPUS) == 123


# -- figures -------------------------------------------------------------------------------------------------

# Base units worked out by hand from the datasheets.
FIGURES = [
    ("a100-sxm-80gb", "sm_count", 108),
    ("a100-sxm-80gb", "clock_hz", 1_410_000_000),
    ("a100-sxm-80gb", "memory_bytes", 85_899_345_920),  # 81,920 MiB in nvidia-smi
    ("a100-sxm-80gb", "memory_bytes_per_s", 2_039_000_000_000),
    ("a100-sxm-80gb", "l2_bytes", 41_943_040),
    ("a100-sxm-80gb", "shared_memory_bytes_per_sm", 167_936),  # cudaDeviceProp of an A100
    ("a100-sxm-80gb", "register_bytes_per_sm", 65_536 * 4),
    ("a100-sxm-80gb", "power_w", 400),
    ("a100-sxm-80gb", "scaleup_bytes_per_s", 300e9),
    ("h100-sxm", "l2_bytes", 52_428_800),
    ("t4", "max_threads_per_sm", 1024),
    ("t4", "l1_bytes_per_sm", 96 * 1024),
    ("v100-sxm2-32gb", "l1_bytes_per_sm", 128 * 1024),
    ("rtx-2080-ti", "l2_bytes", 5_767_168),  # 5.5 MB
    ("l40s", "l2_bytes", 96 * 1024 * 1024),
    ("l4", "sm_count", 58),  # some tables say 60; 58 x 128 x 2 x 2.04 GHz = 30.3 TFLOPS
    ("p4", "sm_count", 20),
    ("mi210", "warp_size", 64),
    ("mi250", "sm_count", 104),  # one die
    ("mi250", "memory_bytes", 64 * 2**30),
    ("mi250", "memory_bytes_per_s", 1.6385e12),
    ("mi250x", "l2_bytes", 8 * 2**20),
    ("mi300x", "last_level_cache_bytes", 256 * 2**20),
    ("rx-7900-xtx", "warp_size", 32),
    ("gh200", "sm_count", 132),
    ("gb200", "sm_count", 152),
]


@pytest.mark.parametrize(("name", "field", "expected"), FIGURES, ids=[f"{row[0]}-{row[1]}" for row in FIGURES])
def test_base_units(name: str, field: str, expected: float) -> None:
    assert getattr(GPUS[name], field) == pytest.approx(expected, rel=1e-12)


PEAKS = [
    ("a100-sxm-80gb", {"fp32": 19.49, "tf32": 156, "fp16": 312, "bf16": 312, "int8": 624}),
    ("v100-sxm2-32gb", {"fp32": 15.67, "fp16": 125, "int8": 62.7}),
    ("p100-pcie-16gb", {"fp32": 9.53}),  # its packed FP16 accumulates in FP16
    ("mi100", {"fp32": 23.1, "fp32_matrix": 46.1, "fp16": 184.6, "bf16": 92.3, "int8": 184.6}),
    ("mi210", {"fp32": 22.6, "fp32_matrix": 45.3, "fp16": 181, "bf16": 181, "int8": 181}),
    ("mi250", {"fp32": 22.6, "fp32_matrix": 45.3, "fp16": 181, "bf16": 181, "int8": 181}),
    (
        "rtx-4090",
        {"fp32": 82.58, "tf32": 82.6, "fp16": 165.2, "bf16": 165.2, "fp8": 330.3, "int8": 660.6},
    ),
    ("rtx-3090", {"fp32": 35.58, "tf32": 35.58, "fp16": 71, "bf16": 71, "int8": 284}),
]


@pytest.mark.parametrize(("name", "tflops"), PEAKS, ids=[row[0] for row in PEAKS])
def test_peak_rates(name: str, tflops: dict[str, float]) -> None:
    peaks = GPUS[name].peak_flops_per_s
    assert set(peaks) == set(tflops)
    for pipe, expected in tflops.items():
        assert peaks[pipe] == pytest.approx(expected * 1e12, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        # NVIDIA's white papers of GA102, Ada, Turing and RTX Blackwell state both rates of GeForce cards
        pytest.param("rtx-3090", 142, id="ampere-geforce"),
        pytest.param("rtx-4090", 330.3, id="ada-geforce"),
        pytest.param("rtx-2080-ti", 107.6, id="turing-geforce"),
        pytest.param("rtx-5090", 419, id="blackwell-geforce"),
        pytest.param("titan-rtx", 130.5, id="turing-at-the-full-rate"),
        pytest.param("rtx-a6000", 154.8, id="workstation"),
        pytest.param("l40", 181, id="halved-in-all-formats"),
        pytest.param("a100-sxm-80gb", 312, id="data-centre"),
        pytest.param("v100-sxm2-32gb", 125, id="integers on vector lanes"),
    ],
)
def test_fp16_that_accumulates_in_fp16(name: str, tflops: float) -> None:
    assert GPUS[name].fp16_accumulate_flops_per_s == pytest.approx(tflops * 1e12, rel=5e-3)


def test_no_matrix_units_accumulate_nothing() -> None:
    assert GPUS["p100-pcie-16gb"].fp16_accumulate_flops_per_s is None


def test_a_stated_rate_of_fp16_sums_holds(tmp_path: Path) -> None:
    file = tmp_path / "gpu.toml"
    file.write_text("fp16_accumulate_tflops = 300\n" + RTX_4090, encoding="utf-8")
    assert load_gpu(file).fp16_accumulate_flops_per_s == 300e12


FP32_EXCEPTIONS = {
    "b200-sxm": "the datasheet's 80 TFLOPS is rounded up from 74.5 at the boost clock",
    "b300-sxm": "as b200-sxm",
}


@pytest.mark.parametrize("name", GPUS)
def test_fp32_peak_follows_from_units(name: str) -> None:
    gpu = GPUS[name]
    computed = gpu.sm_count * gpu.fp32_lanes_per_sm * 2 * gpu.clock_hz
    off = abs(gpu.peak_flops_per_s["fp32"] / computed - 1)
    if name in FP32_EXCEPTIONS:
        assert 0.015 < off < 0.08, "no exception any more: take it off the list"
    else:
        assert off < 0.015


# Dense operations per clock of one SM or compute unit, by generation, accumulating in FP32 (INT32 for int8): the
# vendors' white papers. GeForce runs FP16 and FP8 with FP32 accumulation at half of its professional siblings' rate.
TENSOR_RATES: dict[str, dict[str, int]] = {
    "pascal with DP4A": {"int8": 1024},
    "volta": {"fp16": 1024, "int8": 512},
    "turing": {"fp16": 1024, "int8": 2048},
    "turing geforce": {"fp16": 512, "int8": 2048},
    "ga100": {"tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096},
    "ga10x": {"tf32": 512, "fp16": 1024, "bf16": 1024, "int8": 2048},
    "ga10x geforce": {"tf32": 256, "fp16": 512, "bf16": 512, "int8": 2048},
    "ada": {"tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048},
    "ada geforce": {"tf32": 256, "fp16": 512, "bf16": 512, "fp8": 1024, "int8": 2048},
    "ada halved": {"tf32": 256, "fp16": 512, "bf16": 512, "fp8": 1024, "int8": 1024},
    "hopper": {"tf32": 2048, "fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192},
    "hopper quartered": {"tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048},
    "blackwell": {"tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16384, "int8": 16384, "fp4": 32768},
    "blackwell ultra": {"tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16384, "fp4": 49152},
    "gb20x": {"tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048, "fp4": 4096},
    "gb20x geforce": {"tf32": 256, "fp16": 512, "bf16": 512, "fp8": 1024, "int8": 2048, "fp4": 4096},
    "gcn": {"fp16": 256, "int8": 512},
    "cdna": {"fp32_matrix": 256, "fp16": 1024, "bf16": 512, "int8": 1024},
    "cdna2": {"fp32_matrix": 256, "fp16": 1024, "bf16": 1024, "int8": 1024},
    "cdna3": {"fp32_matrix": 256, "tf32": 1024, "fp16": 2048, "bf16": 2048, "fp8": 4096, "int8": 4096},
    "cdna4": {"fp32_matrix": 256, "fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192, "fp4": 16384},
    "rdna3": {"fp16": 512, "bf16": 512, "int8": 512},
    "none": {},
}

# The clock at which the vendor states the tensor rates, where it isn't the boost clock: that clock in MHz and why.
TENSOR_CLOCK = {
    "titan-v": (1343, "NVIDIA states 110 TFLOPS, below its own boost clock"),
    "h100-sxm": (1830, "NVIDIA computes tensor rates at 1830 MHz, FP32 at 1980"),
    "h800-sxm": (1830, "as h100-sxm"),
    "h200-sxm": (1830, "as h100-sxm"),
    "gh200": (1830, "as h100-sxm"),
    "h100-pcie": (1620, "the datasheet's 756 TFLOPS on 114 SMs"),
    "h100-nvl": (1545, "the datasheet's 835.5 TFLOPS on 132 SMs"),
    "h200-nvl": (1545, "the datasheet's 836 TFLOPS on 132 SMs"),
    "b200-sxm": (1856, "the datasheet's 2250 TFLOPS on 148 SMs"),
    "b300-sxm": (1856, "as b200-sxm"),
    "gb200": (2008, "the datasheet's 2500 TFLOPS on 152 SMs"),
    "gb300": (2008, "as gb200"),
    "rtx-pro-6000-server": (2430, "its source states dense rates at 2430 MHz"),
}

PEAK_EXCEPTIONS = {
    ("titan-v", "int8"): "vector lanes at the boost clock, not at that of its tensor rate",
    ("b300-sxm", "fp4"): "sources say 12.6 or 14 PFLOPS; the lower is used",
    (
        "a10g",
        "int8",
    ): "its source's 140 TOPS is half of what the A10's rate per SM gives",
}


def generation(gpu: GpuSpec) -> str:
    """The row of TENSOR_RATES, from the compute capability and the product line."""
    geforce = "GeForce" in gpu.label
    by_capability = {
        6.0: "none",
        6.1: "pascal with DP4A",
        7.0: "volta",
        7.5: "turing geforce" if geforce else "turing",
        8.0: "ga100",
        8.6: "ga10x geforce" if geforce or gpu.name == "a10g" else "ga10x",
        8.7: "ga100",
        8.9: "ada geforce" if geforce else "ada halved" if gpu.name in {"l40", "l20"} else "ada",
        9.0: "hopper quartered" if gpu.name == "h20" else "hopper",
        10.0: "blackwell",
        10.3: "blackwell ultra",
        12.0: "gb20x geforce" if geforce else "gb20x",
    }
    by_architecture = {
        "GCN5.1": "gcn",
        "CDNA": "cdna",
        "CDNA2": "cdna2",
        "CDNA3": "cdna3",
        "CDNA4": "cdna4",
        "RDNA3": "rdna3",
    }
    if gpu.compute_capability is None:
        return by_architecture[gpu.architecture]
    return by_capability[gpu.compute_capability]


@pytest.mark.parametrize("name", GPUS)
def test_tensor_peaks_follow_from_units(name: str) -> None:
    gpu = GPUS[name]
    rates = TENSOR_RATES[generation(gpu)]
    assert set(gpu.peak_flops_per_s) == {"fp32", *rates}
    clock_hz = TENSOR_CLOCK[name][0] * 1e6 if name in TENSOR_CLOCK else gpu.clock_hz
    for pipe, rate in rates.items():
        computed = gpu.sm_count * rate * clock_hz
        off = abs(gpu.peak_flops_per_s[pipe] / computed - 1)
        if (name, pipe) in PEAK_EXCEPTIONS:
            assert off > 0.02, "no exception any more: take it off the list"
        else:
            assert off < 0.02, f"{pipe}: {gpu.peak_flops_per_s[pipe]:.4g}, computed {computed:.4g}"


@pytest.mark.parametrize("name", GPUS)
def test_spec_is_complete_and_plausible(name: str) -> None:
    gpu = GPUS[name]
    assert gpu.sources
    assert gpu.label != gpu.name
    assert gpu.vendor in {"NVIDIA", "AMD"}
    assert (gpu.compute_capability is None) == (gpu.vendor == "AMD")
    for field in ("l1_bytes_per_sm", "shared_memory_bytes_per_sm", "register_bytes_per_sm"):
        assert getattr(gpu, field) is not None, field
    assert gpu.max_threads_per_sm % gpu.warp_size == 0
    if gpu.vendor == "NVIDIA" and (gpu.compute_capability or 0) >= 7:  # L1 and shared memory are one
        assert gpu.shared_memory_bytes_per_sm is not None
        assert gpu.l1_bytes_per_sm is not None
        assert gpu.shared_memory_bytes_per_sm < gpu.l1_bytes_per_sm
    # FLOPs per byte at which FP32 stops being bound by memory: 1 to 200 on everything ever sold
    assert 1 < gpu.peak_flops_per_s["fp32"] / gpu.memory_bytes_per_s < 200
    assert not any("nan" in text.lower().split() for text in (*gpu.sources, *gpu.notes))


def test_dies_of_the_same_kind_agree() -> None:
    fields = ("process_nm", "max_threads_per_sm", "shared_memory_bytes_per_sm", "l1_bytes_per_sm", "fp32_lanes_per_sm")
    by_capability: dict[float, set[tuple[float, ...]]] = {}
    for gpu in GPUS.values():
        if gpu.compute_capability is not None:
            by_capability.setdefault(gpu.compute_capability, set()).add(tuple(getattr(gpu, field) for field in fields))
    assert {capability: len(kinds) for capability, kinds in by_capability.items() if len(kinds) > 1} == {}


def test_specs_serialise() -> None:
    gpu = load_gpu("a100")
    assert pickle.loads(pickle.dumps(gpu)) == gpu
    assert asdict(gpu)["peak_flops_per_s"]["tf32"] == 156e12
