"""GPU files: every shipped one is sound, every name resolves, every fault is told in one line."""

from __future__ import annotations

import csv
import os
import pickle
import re
import time
import tomllib
from collections.abc import Callable
from dataclasses import asdict, replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from neusight_onnx import analyze, compare
from neusight_onnx.cli import main
from neusight_onnx.data_files import data_folder
from neusight_onnx.errors import BindingError, NeusightError, OptionError, SpecError
from neusight_onnx.gpu import GpuSpec, available_gpus, checked_gpu, find_gpus, gpu_names, load_gpu, table
from neusight_onnx.gpu.changes import changed_gpu
from neusight_onnx.gpu.keys import LIST_KEYS, NUMBER_KEYS, PEAK_KEYS, TEXT_KEYS
from neusight_onnx.gpu.machines import gpu_count_of_instance, instance_gpus
from neusight_onnx.gpu.power import idle_w
from neusight_onnx.gpu.template import template_of

GPUS = {gpu.name: gpu for gpu in available_gpus()}

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
    ("v100-sxm2-32gb", {"fp32": 15.67, "fp16": 125}),
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
        pytest.param("v100-sxm2-32gb", 125, id="no-integers"),
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
    "volta": {"fp16": 1024},
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


# -- names ---------------------------------------------------------------------------------------------------

NAMES = [
    ("a100", "a100-sxm-80gb"),
    ("h100", "h100-sxm"),
    ("v100", "v100-sxm2-32gb"),
    ("p100", "p100-pcie-16gb"),
    ("h200", "h200-sxm"),
    ("h800", "h800-sxm"),
    ("b200", "b200-sxm"),
    ("b300", "b300-sxm"),
    ("4090", "rtx-4090"),
    ("5090", "rtx-5090"),
    ("a6000", "rtx-a6000"),
    ("l4", "l4"),
    ("mi250", "mi250"),
    ("a100-40gb", "a100-sxm-40gb"),
    ("a100-pcie", "a100-pcie-80gb"),
    ("jetson-agx-orin", "jetson-agx-orin-64gb"),
    ("Tesla T4", "t4"),
    ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
    ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb"),
    ("Tesla P100-PCIE-16GB", "p100-pcie-16gb"),
    ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
    ("A100-SXM4-40GB", "a100-sxm-40gb"),
    ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
    ("NVIDIA H100 80GB HBM3", "h100-sxm"),
    ("NVIDIA H100 PCIe", "h100-pcie"),
    ("NVIDIA H100 NVL", "h100-nvl"),
    ("NVIDIA H200", "h200-sxm"),
    ("NVIDIA GH200 480GB", "gh200"),
    ("NVIDIA B200", "b200-sxm"),
    ("NVIDIA L40S", "l40s"),
    ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server"),
    ("NVIDIA GeForce RTX 4090", "rtx-4090"),
    ("GeForce RTX 2080 Ti", "rtx-2080-ti"),
    ("NVIDIA GeForce RTX 4060 Ti", "rtx-4060-ti-16gb"),
    ("Quadro RTX 8000", "quadro-rtx-8000"),
    ("AMD Instinct MI210", "mi210"),
    ("AMD Instinct(TM) MI300X", "mi300x"),
    ("AMD Instinct™ MI100", "mi100"),
    ("AMD Radeon RX 7900 XTX", "rx-7900-xtx"),
    ("NVIDIA Jetson AGX Orin Developer Kit", "jetson-agx-orin-64gb"),  # /proc/device-tree/model
    ("AD102 [GeForce RTX 4090]", "rtx-4090"),  # lspci
    ("GH100 [H100 SXM5 80GB]", "h100-sxm"),
    ("GA100 [A100 PCIe 80GB]", "a100-pcie-80gb"),
    ("Aldebaran/MI200 [Instinct MI210]", "mi210"),  # rocm-smi, from pci.ids
    ("Arcturus GL-XL [Instinct MI100]", "mi100"),
    ("A100-SXM-80GB", "a100-sxm-80gb"),
    ("a100_sxm_80gb", "a100-sxm-80gb"),
    ("  a100 sxm 80gb ", "a100-sxm-80gb"),
    ("RTX4090", "rtx-4090"),
    ("rtx 3080 ti", "rtx-3080-ti"),
]


@pytest.mark.parametrize(("name", "expected"), NAMES, ids=[row[0].strip() for row in NAMES])
def test_name_resolves(name: str, expected: str) -> None:
    assert load_gpu(name).name == expected
    assert load_gpu(name.upper()).name == expected


@pytest.mark.parametrize("name", GPUS)
def test_every_name_of_a_spec_resolves_to_it(name: str) -> None:
    gpu = GPUS[name]
    for own in (gpu.name, gpu.label, *gpu.aliases, *gpu.device_names):
        assert load_gpu(own) == gpu, own


ORINS = (
    "jetson-agx-orin-32gb, jetson-agx-orin-64gb, jetson-orin-nano-8gb, jetson-orin-nano-super, jetson-orin-nx-16gb, "
    "jetson-orin-nx-8gb"
)

PRINTED_FOR_SEVERAL = [
    ("Orin (nvgpu)", f"give one of {ORINS}$"),  # nvidia-smi on every Jetson of the generation
    ("Orin", f"give one of {ORINS}$"),  # torch.cuda.get_device_name()
    ("AMD Instinct MI250X / MI250", "mi250x, mi250 are known here; give what it is"),  # libdrm's amdgpu.ids, for HIP
    ("AMD Instinct MI250X/MI250", "mi250x, mi250 are known here"),
    ("AMD Instinct MI60 / MI50", "mi50 is known here"),
    ("Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M]", "rx-7900-xtx is known here"),  # pci.ids
]


@pytest.mark.parametrize(("name", "message"), PRINTED_FOR_SEVERAL, ids=[row[0] for row in PRINTED_FOR_SEVERAL])
def test_a_driver_s_name_of_several_gpus_lists_them(name: str, message: str) -> None:
    with pytest.raises(SpecError, match=f"several are called so; .*{message}"):
        load_gpu(name)


def test_a_path_is_no_driver_s_name() -> None:
    with pytest.raises(SpecError, match="no such file"):
        load_gpu("runs/t4")


def test_names_are_unique() -> None:
    owners: dict[str, set[str]] = {}
    for gpu in GPUS.values():
        for own in (gpu.name, gpu.label, *gpu.aliases, *gpu.device_names):
            owners.setdefault(re.sub(r"[\s_-]", "", own.lower()), set()).add(gpu.name)
    assert {own: names for own, names in owners.items() if len(names) > 1} == {}


def test_alias_is_fast() -> None:
    """Nothing of it read before: every analysis starts here."""
    load_gpu("a100")
    seconds = []
    for _ in range(7):
        table._find.cache_clear()
        table._shipped.cache_clear()
        start = time.perf_counter()
        load_gpu("a100")
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.005


SHARED = [
    ("v100", "v100-sxm2-32gb", "v100-pcie-16gb v100-pcie-32gb v100-sxm2-16gb"),  # a V100S is another GPU
    ("V100 SXM2", "v100-sxm2-32gb", "v100-sxm2-16gb"),
    ("a100-80gb", "a100-sxm-80gb", "a100-pcie-80gb"),
    ("a100-pcie", "a100-pcie-80gb", "a100-pcie-40gb"),
    ("h100", "h100-sxm", "h100-nvl h100-pcie"),
    ("NVIDIA GeForce RTX 4060 Ti", "rtx-4060-ti-16gb", "rtx-4060-ti-8gb"),  # nvidia-smi prints it for both
    ("3080", "rtx-3080", "rtx-3080-12gb"),  # nor is a 3080 Ti called so
    ("rtx pro 6000", "rtx-pro-6000-server", "rtx-pro-6000-max-q rtx-pro-6000-workstation"),
    ("p4d.24xlarge", "a100-sxm-40gb", ""),
    ("Standard_NC24ads_A100_v4", "a100-pcie-80gb", ""),
    ("NC4as_T4_v3", "t4", ""),
    ("ml.g5.2xlarge", "a10g", ""),
    ("a3-highgpu-8g", "h100-sxm", ""),
    ("P4d", "a100-sxm-40gb", ""),
    ("g5", "a10g", ""),
    ("Standard_NV36ads_A10_v5", "a10", ""),
    ("g4-standard-96", "rtx-pro-6000-server", ""),
]


@pytest.mark.parametrize(("name", "resolved", "others"), SHARED, ids=[row[0] for row in SHARED])
def test_a_name_of_several_says_which(name: str, resolved: str, others: str) -> None:
    gpu = load_gpu(f" {name} ")
    assert (gpu.name, gpu.asked_as, gpu.also_named) == (resolved, name, tuple(others.split()))
    assert gpu == GPUS[resolved]


@pytest.mark.parametrize(
    "name", ["t4", "rtx-4090", "h100-nvl", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "l4 24gb"]
)
def test_a_name_of_one_says_nothing(name: str) -> None:
    gpu = load_gpu(name)
    assert (gpu.asked_as, gpu.also_named) == (None, ())


@pytest.mark.parametrize("name", ["g5.", "g5.*", "p5.[x]", "g2-standard-", "g2-standard", "g5 xlarge", "g4ad.xlarge"])
def test_what_no_cloud_calls_a_machine_is_unknown(name: str) -> None:
    with pytest.raises(SpecError, match="unknown GPU"):
        load_gpu(name)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("g5.7xlarge", "no such size of that machine; give one of xlarge, 2xlarge, 4xlarge"),
        ("ml.g5.7xlarge", "no such size"),
        ("a2-highgpu-3g", "no such size of that machine; give one of 1, 2, 4, 8"),
        ("p2.xlarge", "that machine has NVIDIA's K80"),
        ("p2", "that machine has NVIDIA's K80"),
        ("g4ad.4xlarge", "AMD's Radeon Pro V520"),
        ("Standard_NV6ads_A10_v5", "a part of an A10"),
    ],
)
def test_machines_that_there_are_not_or_whose_gpu_has_no_file(name: str, says: str) -> None:
    with pytest.raises(SpecError, match=re.escape(f"unknown GPU '{name}': ") + f".*{re.escape(says)}"):
        load_gpu(name)


def test_the_gpus_of_clouds_are_known() -> None:
    assert set(instance_gpus()) <= GPUS.keys()


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("p5.48xlarge", 8),
        ("p5.4xlarge", 1),
        ("ml.g5.12xlarge", 4),
        ("g6e.xlarge", 1),
        ("a2-highgpu-4g", 4),
        ("a2-megagpu-16g", 16),
        ("g2-standard-96", 8),
        ("Standard_NC96ads_A100_v4", 4),
        ("VM.GPU3.2", 2),
        ("BM.GPU.H100.8", 8),
        ("p5", None),  # a family
        ("g5.3xlarge", None),  # no such size
        ("a2-highgpu-400g", None),
        ("a100", None),  # no machine
    ],
)
def test_how_many_gpus_a_machine_has(name: str, count: int | None) -> None:
    assert gpu_count_of_instance(name) == count


MEMORY_BEHIND = [("l4 24gb", "l4"), ("RTX 4090 24GB", "rtx-4090"), ("A10-24GB", "a10"), ("t4-16gb", "t4")]


@pytest.mark.parametrize(("name", "expected"), MEMORY_BEHIND, ids=[row[0] for row in MEMORY_BEHIND])
def test_memory_behind_a_name(name: str, expected: str) -> None:
    assert load_gpu(name).name == expected


def test_memory_of_another_gpu_is_refused() -> None:
    with pytest.raises(SpecError, match="unknown GPU 'l4 48gb': nearest are l4"):
        load_gpu("l4 48gb")


VAGUE = [
    ("rtx 6000", "several are called so; give one of quadro-rtx-6000, rtx-6000-ada, rtx-pro-6000-max-q"),
    ("v100-16gb", "several are called so; give one of v100-pcie-16gb, v100-sxm2-16gb"),
    ("laptop", "give one of rtx-3060-laptop, rtx-3070-laptop, "),
    ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "a MIG instance is a part of a GPU"),
]


@pytest.mark.parametrize(("name", "said"), VAGUE, ids=[row[0] for row in VAGUE])
def test_vague_names_are_refused(name: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_gpu(name)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300


# what is looked for, some that it finds, and what all that it finds are, and no other GPU
FOUND = [
    ("hopper", "gh200 h100-sxm h20", lambda gpu: gpu.architecture == "Hopper"),
    (
        "RTX 6000",
        "quadro-rtx-6000 rtx-6000-ada rtx-pro-6000-server",
        lambda gpu: re.search(r"rtx-(pro-)?6000", gpu.name),
    ),
    ("ada laptop", "rtx-4050-laptop rtx-4090-laptop", lambda gpu: "Ada" in gpu.architecture and "laptop" in gpu.name),
    ("cdna2", "mi210 mi250 mi250x", lambda gpu: gpu.architecture == "CDNA2"),
    ("v100", "v100-sxm2-32gb", lambda gpu: gpu.name == "v100-sxm2-32gb"),  # a name is the GPU that it names
]


@pytest.mark.parametrize(("text", "some", "belongs"), FOUND, ids=[row[0] for row in FOUND])
def test_gpus_are_found_by_words(text: str, some: str, belongs: Callable[[GpuSpec], object]) -> None:
    found = [gpu.name for gpu in find_gpus(text)]
    assert set(some.split()) <= set(found)
    assert found == [gpu.name for gpu in available_gpus() if belongs(gpu)]


def test_words_of_no_gpu() -> None:
    for text in ("hopper laptop", "", "-"):
        with pytest.raises(SpecError, match="unknown GPU"):
            find_gpus(text)


UNKNOWN = [
    ("a1000", "are a100-sxm-80gb, a100-sxm-40gb, a10"),
    ("rtx-4091", "rtx-4090"),
    ("H100 SMX", "h100-sxm"),
    ("mi300a", "mi300x"),
    ("Tesla V100-SXM3-32GB", "v100-sxm2-32gb"),
    ("NVIDIA GeForce RTX 4095 Laptop GPU", "rtx-4090-laptop"),
    ("GeForce RTX 4090 Foo", "rtx-4090, rtx-4090-d"),
]


@pytest.mark.parametrize(("name", "nearest"), UNKNOWN, ids=[row[0] for row in UNKNOWN])
def test_unknown_name_lists_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_gpu(name)
    message = str(caught.value)
    assert message.startswith(f"unknown GPU {name!r}: nearest are ")
    assert nearest in message.split(";")[0]
    assert "`neusight-onnx gpus` lists all" in message


def test_several_names_in_one_are_told_apart() -> None:
    with pytest.raises(SpecError, match=r"these are 2 names; give one, or.+: 't4' and 'h100-pcie'$"):
        load_gpu("t4, h100 pcie")
    with pytest.raises(SpecError, match="nearest are"):
        load_gpu("t4,h900")


HOSTILE = ["", " ", "-", "nvidia", "h100é", "\x00", "a\nb", "\ud800", "a" * 10_000, "\U0001f525", "..", "README"]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_name_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_gpu(name)
    message = str(caught.value)
    assert message.startswith("unknown GPU ")
    assert message.isascii()
    assert "\n" not in message
    assert len(message) < 300


# -- files ---------------------------------------------------------------------------------------------------


def shipped(name: str) -> str:
    return (data_folder("specs") / f"{name}.toml").read_text(encoding="utf-8")


def test_user_file_has_the_keys_of_a_shipped_one(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(shipped("l4").replace("tdp_w = 72", "tdp_w = 144"), encoding="utf-8")
    gpu = load_gpu(file)
    assert (gpu.name, gpu.power_w, gpu.sm_count) == ("mine", 144, 58)
    assert load_gpu(str(file)) == gpu
    (tmp_path / "extensionless").write_text(shipped("l4"), encoding="utf-8")
    assert load_gpu(f"{tmp_path}{os.sep}extensionless").sm_count == 58


MINIMAL = """
vendor = "AMD"
architecture = "Future"
process_nm = 2
sm_count = 100
fp32_lanes_per_sm = 128
boost_mhz = 2000
warp_size = 32
max_threads_per_sm = 2048
l2_mb = 64
memory_gb = 100
memory_type = "HBM5"
memory_bandwidth_gb_s = 10_000
tdp_w = 1000.0
fp32_tflops = 51.2
"""
NVIDIA = MINIMAL.replace("AMD", "NVIDIA") + "compute_capability = 9.0\n"


def test_optional_keys_may_be_left_out(tmp_path: Path) -> None:
    file = tmp_path / "future.toml"
    file.write_text(MINIMAL, encoding="utf-8")
    gpu = load_gpu(file)
    assert gpu.label == gpu.name == "future"
    assert gpu.peak_flops_per_s == {"fp32": 51.2e12}
    optional = (
        gpu.compute_capability,
        gpu.l1_bytes_per_sm,
        gpu.shared_memory_bytes_per_sm,
        gpu.register_bytes_per_sm,
        gpu.l2_bytes_per_s,
        gpu.pcie_generation,
    )
    assert optional == (None,) * 6


@pytest.mark.parametrize(
    ("content", "vendor", "warp_size"),
    [
        pytest.param(NVIDIA.replace("NVIDIA", "nvidia"), "NVIDIA", 32, id="letters of either case"),
        pytest.param(MINIMAL, "AMD", 32, id="RDNA"),
        pytest.param(MINIMAL.replace("warp_size = 32", "warp_size = 64"), "AMD", 64, id="CDNA"),
    ],
)
def test_vendors(content: str, vendor: str, warp_size: int, tmp_path: Path) -> None:
    (tmp_path / "gpu.toml").write_text(content, encoding="utf-8")
    gpu = load_gpu(tmp_path / "gpu.toml")
    assert (gpu.vendor, gpu.warp_size) == (vendor, warp_size)


def test_a_copied_file_does_not_claim_the_names_of_its_source(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(shipped("h100-sxm"), encoding="utf-8")
    gpu = load_gpu(tmp_path / "mine.toml")
    assert (gpu.name, gpu.aliases, gpu.device_names) == ("mine", (), ())
    assert load_gpu(data_folder("specs") / "h100-sxm.toml") == load_gpu("h100")
    assert "h100" in load_gpu("h100").aliases


REQUIRED = sorted(line.split(" = ")[0] for line in MINIMAL.split("\n") if line)


def test_required_keys_are_those_declared() -> None:
    assert (
        sorted([key.name for key in NUMBER_KEYS if key.required] + [key for key in TEXT_KEYS if key != "label"])
        == REQUIRED
    )


@pytest.mark.parametrize("key", REQUIRED)
def test_missing_key_is_named(key: str, tmp_path: Path) -> None:
    file = tmp_path / "gpu.toml"
    file.write_text("\n".join(line for line in MINIMAL.split("\n") if not line.startswith(f"{key} ")), encoding="utf-8")
    with pytest.raises(SpecError, match=rf"gpu\.toml: key '{key}' \(.+\) is missing; add"):
        load_gpu(file)


H100 = (Path(__file__).parent.parent / "specs" / "h100-sxm.toml").read_text(encoding="utf-8")
MI300X = (Path(__file__).parent.parent / "specs" / "mi300x.toml").read_text(encoding="utf-8")
RTX_4090 = (Path(__file__).parent.parent / "specs" / "rtx-4090.toml").read_text(encoding="utf-8")
SUMS_APART = f"fp16_accumulate_tflops = 330.3\n{RTX_4090}"


def with_value(content: str, key: str, value: float | str) -> str:
    changed, count = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", content)
    assert count == 1, f"{key} is not in the file"
    return changed


@pytest.mark.parametrize(
    ("content", "key", "value", "most"),
    [
        # 132 SMs x 4096 x 1.98 GHz
        pytest.param(H100, "fp16_tflops", 1979, "1071", id="fp16 of an H100"),
        pytest.param(H100, "bf16_tflops", 1979, "1071", id="bf16"),
        pytest.param(H100, "tf32_tflops", 989, "535.3", id="tf32"),
        pytest.param(H100, "fp8_tflops", 3958, "2141", id="fp8"),
        pytest.param(H100, "int8_tops", 3958, "2141", id="int8"),
        # 304 compute units x 2048 x 2.1 GHz
        pytest.param(MI300X, "fp16_tflops", 2614.9, "1307", id="fp16 of an MI300X"),
        # 128 SMs x 2048 x 2.52 GHz; its FP16 and FP8 are half of that (their sparse figures: below)
        pytest.param(RTX_4090, "int8_tops", 1321, "660.6", id="int8 of a GeForce"),
    ],
)
def test_sparse_peaks_are_refused(content: str, key: str, value: float, most: str, tmp_path: Path) -> None:
    file = tmp_path / "gpu.toml"
    file.write_text(with_value(content, key, value), encoding="utf-8")
    with pytest.raises(
        SpecError, match=rf"'{key}' is {value:g}, but .* do {most} at most: give the dense peak"
    ) as caught:
        load_gpu(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "key", "value", "does"),
    [
        # 5,120 bits x 4.8 / 3 to 6.4 x 3 Gbit/s
        pytest.param(
            H100, "memory_bandwidth_gb_s", 33500, "memory_bus_bits = 5120 does about 1024 to 12288", id="h100"
        ),
        pytest.param(
            H100, "memory_bandwidth_gb_s", 335, "memory_bus_bits = 5120 does about 1024 to", id="h100, a tenth"
        ),
        pytest.param(
            H100, "memory_bus_bits", 512, "memory_bus_bits = 512 does about 102 to 1229", id="the bus is wrong"
        ),
        # 24 GB are 6 pairs of chips, 192 bits, at 19 / 1.6 Gbit/s at least, 512 bits at 24 x 1.6 at most
        pytest.param(RTX_4090, "memory_bandwidth_gb_s", 10080, "24 GB does about 285 to 2458", id="no bus"),
        pytest.param(RTX_4090, "memory_bandwidth_gb_s", 100.8, "24 GB does about 285 to", id="no bus, a tenth"),
    ],
)
def test_bandwidths_that_memory_does_not_have_are_refused(
    content: str, key: str, value: float, does: str, tmp_path: Path
) -> None:
    file = tmp_path / "gpu.toml"
    file.write_text(with_value(content, key, value), encoding="utf-8")
    with pytest.raises(SpecError, match=rf"'memory_bandwidth_gb_s' is .*{re.escape(does)}.* a memory_type of its own"):
        load_gpu(file)


def test_memory_of_a_kind_that_is_not_known_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "gpu.toml"
    content = with_value(with_value(H100, "memory_bandwidth_gb_s", 33500), "l2_bandwidth_gb_s", 50000)
    file.write_text(with_value(content, "memory_type", '"HBM9"'), encoding="utf-8")
    assert load_gpu(file).memory_bytes_per_s == 33.5e12


def test_slips_of_the_point_in_bandwidths_are_found(tmp_path: Path) -> None:
    """In a copy of any shipped file, but for ten times a narrow bus that isn't stated; half and twice are taken."""
    taken = []
    file = tmp_path / "gpu.toml"
    for name, gpu in GPUS.items():
        for factor in (0.1, 0.5, 2, 10):
            value = gpu.memory_bytes_per_s / 1e9 * factor
            content = re.sub("^l2_bandwidth_gb_s.*\n", "", shipped(name), flags=re.MULTILINE)  # may be less than that
            file.write_text(with_value(content, "memory_bandwidth_gb_s", value), encoding="utf-8")
            try:
                load_gpu(file)
            except SpecError:
                continue
            taken.append((name, factor))
    narrow = [name for name, factor in taken if factor == 10]
    assert all(GPUS[name].memory_bus_bits is None and GPUS[name].memory_bytes_per_s < 450e9 for name in narrow)
    assert [name for name, factor in taken if factor == 0.1] == []
    assert {(name, factor) for name in GPUS for factor in (0.5, 2)} <= set(taken)


def test_peaks_of_generations_that_are_not_known_are_taken(tmp_path: Path) -> None:
    """A GPU on paper may do more a clock, if it doesn't claim to be of today's generation."""
    file = tmp_path / "gpu.toml"
    content = with_value(with_value(H100, "compute_capability", 13.0), "fp16_tflops", 1979)
    file.write_text(with_value(content, "fp8_tflops", 3958), encoding="utf-8")
    assert load_gpu(file).peak_flops_per_s["fp16"] == 1979e12


@pytest.mark.parametrize(
    ("content", "key", "value", "fault"),
    [
        # the sparse figure of a GeForce lies below what full-rate cards of its generation do
        pytest.param(RTX_4090, "fp16_tflops", 330.3, "'fp16_tflops' is 330.3 and 'fp8_tflops' 330.3", id="geforce"),
        pytest.param(
            with_value(H100, "compute_capability", 13.0), "fp16_tflops", 1979, "'fp8_tflops' 1979", id="on-paper"
        ),
        pytest.param(H100, "fp16_tflops", 100, "'tf32_tflops' is 494.5 and 'fp16_tflops' 100", id="a-digit-lost"),
        pytest.param(
            MI300X.replace("CDNA3", "CDNA9"), "bf16_tflops", 2614.9, "no matrix unit does more in bfloat16", id="bf16"
        ),
        pytest.param(
            f"fp16_accumulate_tflops = 0\n{RTX_4090}",
            "fp16_accumulate_tflops",
            660.6,
            "do 330.* at most",
            id="sparse-sums",
        ),
        pytest.param(
            f"fp16_accumulate_tflops = 0\n{RTX_4090}",
            "fp16_accumulate_tflops",
            82.6,
            "or twice as fast",
            id="slow-sums",
        ),
        pytest.param(
            with_value(SUMS_APART, "compute_capability", 13.0),
            "fp16_accumulate_tflops",
            3958,
            "or twice as fast",
            id="sums-on-paper",
        ),
    ],
)
def test_peaks_that_contradict_each_other(content: str, key: str, value: float, fault: str, tmp_path: Path) -> None:
    file = tmp_path / "gpu.toml"
    file.write_text(with_value(content, key, value), encoding="utf-8")
    with pytest.raises(SpecError, match=fault) as caught:
        load_gpu(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["bf16_tflops", "tf32_tflops", "fp8_tflops", "fp4_tflops", "fp16_accumulate_tflops"])
def test_units_that_have_a_later_format_have_fp16(key: str, tmp_path: Path) -> None:
    file = tmp_path / "gpu.toml"
    kept = re.sub(r"(?m)^(?!fp32_)\w+_(tflops|tops) = .*\n", "", H100)
    file.write_text(f"{key} = 500\nint8_tops = 1979\n" + with_value(kept, "compute_capability", 13.0), encoding="utf-8")
    with pytest.raises(SpecError, match=f"'{key}' is 500, and 'fp16_tflops'.* is missing: add") as caught:
        load_gpu(file)
    assert "\n" not in str(caught.value)
    file.write_text("int8_tops = 1979\n" + with_value(kept, "compute_capability", 13.0), encoding="utf-8")
    assert "fp16_tflops" not in kept
    assert "fp16" not in load_gpu(file).peak_flops_per_s


@pytest.mark.parametrize(
    ("capability", "key", "value"),
    [
        ("7.0", "bf16_tflops", 125),
        ("8.0", "fp8_tflops", 624),
        ("6.0", "fp16_tflops", 21.2),
        ("9.0", "fp4_tflops", 4000),
        ("6.1", "fp16_accumulate_tflops", 20),
    ],
    ids=["bf16 on Volta", "fp8 on Ampere", "packed halves on Pascal", "fp4 on Hopper", "FP16 sums on Pascal"],
)
def test_formats_that_a_generation_lacks(capability: str, key: str, value: float, tmp_path: Path) -> None:
    file = tmp_path / "gpu.toml"
    kept = re.sub(r"(?m)^(?!fp32_)\w+_(tflops|tops) = .*\n", "", H100)
    file.write_text(f"{key} = {value}\n" + with_value(kept, "compute_capability", capability), encoding="utf-8")
    with pytest.raises(SpecError, match=f"'{key}' is {value}, but units of compute capability .* have no instructions"):
        load_gpu(file)


BAD_VALUES = ["0", "-1", "nan", "inf", "-inf", '"80"', "true", "[]", "{}", "1e300", "2024-01-01", "9" * 400]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param(key.name, value, id=f"{key.name}-{value[:10]}")
        for key in NUMBER_KEYS
        for value in BAD_VALUES
        if key.low > 0 or value != "0"
    ],
)
def test_impossible_number_is_refused(key: str, value: str, tmp_path: Path) -> None:
    file = tmp_path / "gpu.toml"
    kept = [line for line in MINIMAL.split("\n") if not line.startswith(f"{key} ")]
    file.write_text("\n".join([*kept, f"{key} = {value}"]), encoding="utf-8")
    with pytest.raises(SpecError, match=rf"gpu\.toml: key '{key}' is .+: give .+ from .+ to .+") as caught:
        load_gpu(file)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(tmp_path))


FAULTS = [
    ("unknown key", MINIMAL + "boost_ghz = 2\n", r"unknown key 'boost_ghz': 'boost_mhz' is the nearest known key"),
    (
        "slip in a required key",
        MINIMAL.replace("memory_bandwidth", "bandwith"),
        r"unknown key 'bandwith_gb_s': 'memory_bandwidth_gb_s' is the nearest known key",
    ),
    (
        "slip in an optional key",
        MINIMAL + "l2_bandwith_gb_s = 5\n",
        r"unknown key 'l2_bandwith_gb_s': 'l2_bandwidth_gb_s' is the nearest known key",
    ),
    ("odd warp", NVIDIA.replace("warp_size = 32", "warp_size = 33"), r"'warp_size' is 33: a GPU by NVIDIA has 32 "),
    (
        "wave on NVIDIA",
        NVIDIA.replace("warp_size = 32", "warp_size = 64"),
        r"'warp_size' is 64: a GPU by NVIDIA has 32 ",
    ),
    ("odd wave", MINIMAL.replace("warp_size = 32", "warp_size = 48"), r"'warp_size' is 48: a GPU by AMD has 32 or 64 "),
    (
        "capability on AMD",
        MINIMAL + "compute_capability = 9.0\n",
        r"'compute_capability' is 9: only GPUs by NVIDIA .*remove",
    ),
    (
        "capability missing on NVIDIA",
        MINIMAL.replace('"AMD"', '"NVIDIA"'),
        r"'compute_capability' is missing: it decides",
    ),
    (
        "capability as compilers write it",
        with_value(H100, "compute_capability", "90"),
        r"'compute_capability' is 90: give CUDA compute capability, such as 8\.9 \(of sm_89\), as a number",
    ),
    ("another vendor", NVIDIA.replace('"NVIDIA"', '"Intel"'), r"'vendor' is 'Intel': give NVIDIA or AMD"),
    ("unknown table", MINIMAL + "[memory]\ngb = 80\n", r"unknown key 'memory'"),
    ("fraction of an SM", MINIMAL.replace("sm_count = 100", "sm_count = 99.5"), r"'sm_count' is 99.5: give .* whole"),
    ("clock in GHz", MINIMAL.replace("boost_mhz = 2000", "boost_mhz = 2.0"), r"'boost_mhz' is 2.0: give .* in MHz"),
    ("peak of the tensor cores", MINIMAL.replace("51.2", "989"), r"'fp32_tflops' is 989, but .* gives 51.2"),
    (
        "half the lanes on NVIDIA",
        with_value(RTX_4090, "fp32_lanes_per_sm", 64),
        r"'fp32_tflops' is 82.58, but .* gives 41.29: correct whichever",
    ),
    ("half the peak", MINIMAL.replace("51.2", "25.6"), r"'fp32_tflops' is 25.6, but .* gives 51.2: correct whichever"),
    # 66.9 TFLOP/s, twice as many a watt as an L4's 30.3 by 72 W
    ("power of a hundredth", with_value(H100, "tdp_w", 7), r"'tdp_w' is 7, but 66.91 TFLOP/s in FP32 take 78.7 W"),
    (
        "L2 slower than memory",
        MINIMAL + "l2_bandwidth_gb_s = 9999\n",
        r"'l2_bandwidth_gb_s' is 9999 and 'memory_bandwidth_gb_s' 10000, but whatever memory delivers passes the L2",
    ),
    ("vendor is a number", NVIDIA.replace('"NVIDIA"', "7"), r"'vendor' is 7: give one line of text"),
    ("empty architecture", MINIMAL.replace('"Future"', '""'), r"'architecture' is '': give one line"),
    ("line break in a text", MINIMAL + 'label = "a\\nb"\n', r"'label' is 'a\\nb': give one line"),
    ("aliases is a text", MINIMAL + 'aliases = "x"\n', r"'aliases' is 'x': give a list of texts"),
    ("a source is a number", MINIMAL + "sources = [1]\n", r"'sources' is 1: give one line of text"),
    ("not TOML", "boost mhz: 1410", r"not TOML \(.+\); correct it there"),
    ("key twice", MINIMAL + "tdp_w = 5\n", r"not TOML \(.+\); correct it there"),
    ("number of 10,000 digits", MINIMAL.replace("100\n", "1" * 10_000 + "\n"), r"not TOML \(.+\)|'sm_count' is 1"),
    ("deep nesting", "a = " + "[" * 100_000, r"not TOML"),
    ("empty", "", r"key 'vendor' \(.+\) is missing, and so are"),
    ("over 1 MB", MINIMAL + "#" * 1_100_000, r"larger than 1 MB"),
]


@pytest.mark.parametrize(("content", "message"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS])
def test_faulty_file_is_refused_in_one_line(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "gpu.toml"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(SpecError, match=message) as caught:
        load_gpu(file)
    assert "gpu.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    os.mkfifo(tmp_path / "pipe.toml")
    cases = {
        "folder.toml": "is a folder",
        "binary.toml": "not a text in UTF-8",
        "pipe.toml": "not a regular file",
        "absent.toml": "no such file",
        "nul\0.toml": "can't be read",
        "x" * 5000 + ".toml": "can't be read",
    }
    for name, message in cases.items():
        with pytest.raises(SpecError, match=message):
            load_gpu(tmp_path / name)
        with pytest.raises(SpecError, match=message):
            load_gpu(f"{tmp_path}/{name}")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "gpu.toml"
    file.write_text(MINIMAL, encoding="utf-8")
    file.chmod(0)
    with pytest.raises(SpecError, match="no permission"):
        load_gpu(file)


def test_readme_lists_every_key() -> None:
    readme = (data_folder("specs") / "README.md").read_text(encoding="utf-8")
    table = readme.split("## Keys")[1].split("## Left out")[0]
    documented = set(
        re.findall(r"`([a-z0-9_]+)`", "\n".join(line.split("|")[1] for line in table.split("\n") if line[:2] == "| "))
    )
    assert documented == {key.name for key in NUMBER_KEYS} | set(TEXT_KEYS) | set(LIST_KEYS)
    assert set(PEAK_KEYS) <= documented


@pytest.mark.parametrize("name", ["a100-sxm-80gb", "mi300x", "p4", "jetson-orin-nano-8gb"])
def test_template_is_a_gpu_file_with_every_key(name: str, tmp_path: Path) -> None:
    gpu = GPUS[name]
    text = template_of(gpu)
    file = tmp_path / f"{name}.toml"
    file.write_text(text, encoding="utf-8")
    found = load_gpu(file)
    assert replace(found, idle_power_w=None) == replace(gpu, aliases=(), device_names=(), sources=(), notes=())
    assert idle_w(found) == pytest.approx(idle_w(gpu), abs=0.05)
    keys = re.findall(r"^(?:# )?([a-z0-9_]+) =", text, re.MULTILINE)
    capability = {"compute_capability"} if gpu.vendor == "AMD" else set()
    assert sorted(keys) == sorted(({key.name for key in NUMBER_KEYS} | set(TEXT_KEYS)) - capability)
    required = {line.split(" =")[0] for line in text.splitlines() if line.endswith("; required")}
    for key in required:
        file.write_text(re.sub(rf"^{key} = .*$", "", text, flags=re.MULTILINE), encoding="utf-8")
        with pytest.raises(SpecError, match=f"'{key}'.* is missing"):
            load_gpu(file)


@pytest.mark.parametrize("name", GPUS)
def test_file_states_units_in_order(name: str) -> None:
    """Files are kept by hand: the keys stand in the declaration's order, so that two files compare line by line."""
    table = tomllib.loads(shipped(name))
    declared = [*list(TEXT_KEYS)[:3], *(key.name for key in NUMBER_KEYS), *LIST_KEYS]
    present = [key for key in table if key != "memory_type"]
    assert present == [key for key in declared if key in table]


def test_gpus_as_csv(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpus", "--format", "csv"]) == 0
    rows = list(csv.DictReader(StringIO(capsys.readouterr().out)))
    assert [row["name"] for row in rows] == list(gpu_names())
    for row in rows:
        gpu = load_gpu(row["name"])
        assert float(row["memory_bytes_per_s"]) == pytest.approx(gpu.memory_bytes_per_s, rel=1e-5)
        assert (row["vendor"], row["sm_count"]) == (gpu.vendor, str(gpu.sm_count))
        rates = {
            key.removesuffix("_flops_per_s"): float(rate) for key, rate in row.items() if "_flops_" in key and rate
        }
        assert rates == pytest.approx(dict(gpu.peak_flops_per_s), rel=1e-5)


def test_a_compute_capability_is_nvidias_alone() -> None:
    with pytest.raises(SpecError, match="--set: key 'compute_capability' is 9: only GPUs by NVIDIA have one"):
        changed_gpu(load_gpu("mi300x"), {"compute_capability": 9.0}, "--set")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        pytest.param({"sm_count": 0}, "'sm_count' is 0: give SMs", id="no SM"),
        pytest.param({"memory_bytes_per_s": float("nan")}, "'memory_bandwidth_gb_s' is nan", id="not a number"),
        pytest.param({"peak_flops_per_s": {}}, "'fp32_tflops' is None", id="no peak"),
        pytest.param({"warp_size": 0}, "'warp_size' is 0", id="no thread"),
        pytest.param({"clock_hz": "fast"}, "'boost_mhz' is 'fast'", id="a text"),
        pytest.param({"vendor": "Intel"}, "'vendor' is 'Intel'", id="another vendor"),
    ],
)
def test_a_spec_from_python_is_held_against_the_same_keys(changes: dict[str, Any], says: str) -> None:
    spec = replace(load_gpu("t4"), **changes)
    example = Path(__file__).parents[1] / "examples" / "resnet50.onnx"
    for predict in (lambda: analyze(example, gpu=spec), lambda: compare(example, gpus=[spec])):
        with pytest.raises(SpecError, match=re.escape(f"GpuSpec 't4': key {says}")):
            predict()


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        pytest.param({"precision": None}, OptionError, "precision is None; give a name", id="precision"),
        pytest.param({"runtime": 5}, OptionError, "runtime is 5; give a name", id="runtime"),
        pytest.param({"dims": ["batch"]}, BindingError, "dims is ['batch']; give a mapping", id="dims"),
    ],
)
def test_arguments_of_another_type(arguments: dict[str, Any], kind: type[NeusightError], says: str) -> None:
    with pytest.raises(kind, match=re.escape(says)):
        analyze(Path(__file__).parents[1] / "examples" / "resnet50.onnx", gpu="t4", **arguments)


def test_every_shipped_gpu_passes() -> None:
    assert all(checked_gpu(gpu) is gpu for gpu in GPUS.values())
