"""GPU files of users: what may be left out, and every fault told in one line."""

from __future__ import annotations

import csv
import os
import re
import tomllib
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from gpu_files import GPUS, RTX_4090
from neusight_onnx import analyze, compare
from neusight_onnx.cli import main
from neusight_onnx.data_files import data_folder
from neusight_onnx.errors import BindingError, NeusightError, OptionError, SpecError
from neusight_onnx.gpu import checked_gpu, gpu_names, load_gpu
from neusight_onnx.gpu.changes import changed_gpu
from neusight_onnx.gpu.keys import LIST_KEYS, NUMBER_KEYS, PEAK_KEYS, TEXT_KEYS
from neusight_onnx.gpu.power import idle_w
from neusight_onnx.gpu.template import template_of


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
        pytest.param({"cuda_graph": "no"}, OptionError, "cuda_graph is 'no'; give True or False", id="cuda_graph"),
        pytest.param({"include_io": "no"}, OptionError, "include_io is 'no'; give True or False", id="include_io"),
        pytest.param({"channels_last": 0}, OptionError, "channels_last is 0; give True or False", id="channels_last"),
        pytest.param({"dims": ["batch"]}, BindingError, "dims is ['batch']; give a mapping", id="dims"),
    ],
)
def test_arguments_of_another_type(arguments: dict[str, Any], kind: type[NeusightError], says: str) -> None:
    with pytest.raises(kind, match=re.escape(says)):
        analyze(Path(__file__).parents[1] / "examples" / "resnet50.onnx", gpu="t4", **arguments)


def test_every_shipped_gpu_passes() -> None:
    assert all(checked_gpu(gpu) is gpu for gpu in GPUS.values())
