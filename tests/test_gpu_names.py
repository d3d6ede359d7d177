"""Names of GPUs and machines: every one resolves, or is refused in one line that says which there are."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from gpu_files import GPUS
from neusight_onnx.errors import SpecError
from neusight_onnx.gpu import GpuSpec, available_gpus, find_gpus, load_gpu, table
from neusight_onnx.gpu.machines import gpu_count_of_instance, instance_gpus

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
    ("AMD Instinct MI308X OAM", "mi308x"),
    ("AMD Instinct MI325X VF", "mi325x"),
    ("AMD Instinct MI350X VF", "mi350x"),
    ("AMD Instinct MI355X OAM", "mi355x"),
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
        ("BM.GPU.MI355X.8", 8),
        ("g7e.12xlarge", 2),
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
