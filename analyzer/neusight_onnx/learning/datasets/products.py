"""Products on matrix units: of serving frameworks on NVIDIA GPUs, and tuned ones on AMD's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import SpecError
from neusight_onnx.gpu import load_gpu
from neusight_onnx.kernels import Gemm, Kernel
from neusight_onnx.learning.datasets.parts import Part, device_part, parts_by_dtype
from neusight_onnx.learning.datasets.tables import Table, grouped, has_columns, ints, read_table, strings, take

TENSOR_CORE_GEMM = "tensor_core_gemm/gemm.parquet"
AMD_GEMM = "tensor_core_gemm/aiter_gemm_amd.parquet"

_MATRIX_UNIT_FORMATS: Mapping[str, tuple[str, DataType, DataType, DataType]] = {
    "bfloat16": ("bfloat16", DataType.BFLOAT16, DataType.BFLOAT16, DataType.BFLOAT16),
    # activations arrive in 16 bits: the rows include the kernel that converts them
    "fp8": ("float8e4m3fn", DataType.FLOAT8E4M3FN, DataType.BFLOAT16, DataType.FLOAT8E4M3FN),
    "fp8_static": ("float8e4m3fn", DataType.FLOAT8E4M3FN, DataType.BFLOAT16, DataType.FLOAT8E4M3FN),
    "sq": ("int8", DataType.INT8, DataType.INT8, DataType.INT8),
    "int8_wo": ("bfloat16+int8", DataType.BFLOAT16, DataType.BFLOAT16, DataType.INT8),
    "int4_wo": ("bfloat16+int4", DataType.BFLOAT16, DataType.BFLOAT16, DataType.INT4),
    "nvfp4": ("float4e2m1", DataType.FLOAT4E2M1, DataType.BFLOAT16, DataType.FLOAT4E2M1),
}
"""The file's formats: the predictor's label, what is multiplied, what activations and weights are stored as.

``fp8_static`` takes the activations' scale as given; it is judged by ``fp8``'s predictor, not trained on. ``fp8_block``
has a scale a block of 128: other kernels, without a predictor (its frameworks differ by up to 20 times)."""

_LONE = frozenset({("sq", "trtllm"), ("int8_wo", "trtllm"), ("int4_wo", "trtllm")})
"""Formats and frameworks whose rows are of one run each, between two events: multiples of 1.024 us, an event's tick.

Their weights come from DRAM, whatever their size (an L40S takes 19 us for 8-16 MB of them, .69 of its DRAM's peak,
where replays of the other formats take 8), and the events' own time is in them (:func:`_events_ms`)."""

_ROTATING = ("sglang",)
"""Frameworks whose replays go round as many copies of the activations as of the weights.

16-bit products of up to 128 columns and 256 rows and more on an L40S read activations of up to 17 MB (96 MB of L2,
five copies: 19) at 900-1,000 GB/s and larger ones at 600-650, three quarters of its DRAM's peak; vLLM's and
TensorRT-LLM's at 1,100 to 1,900 up to 90 MB. On A100, H100 and B200 SGLang's are slower likewise from a fifth to all of
the L2 (a half of it: 1,030 GB/s and 1,580, 2,100 and 2,900, 4,500 and 6,000). FP8 on the L40S shows it, too. Those that
write a large output for a short reduction take as long by all three: the output is one."""

_SMALL = {"m": 64, "n": 512, "k": 256}
"""Sizes up to which a product takes as long as any launch: what a lone run takes beyond a replay is the events'."""

_SEARCHED = frozenset({("fp8", "trtllm"), ("fp8_static", "trtllm")})
"""Formats and frameworks whose activations have one scale a tensor, which two kernels before the product find and
apply.

TensorRT-LLM's, which take 9 us where they are smallest, what its two quantisers take alone (quantize.parquet); its rows
with a static scale take as long on L40S (.99-1.00 of each other, at any size), so that they hold both, too. SGLang and
vLLM have a scale a row, found while the row is converted."""

LANES = "vector lanes"
_LANE_ROWS = 8
_LANE_CAPABILITIES = (8.9, 12.0)
"""TensorRT-LLM multiplies FP8 of so few rows by a kernel of its own on vector lanes there (``cuda_scaled_mm``, as its
linear layer is remembered): on an L40S times go with m up to 8 rows and fall to half with 9, on H100 and B200 they
don't."""

HELD = "weights held in L2"
_HELD: Mapping[tuple[str, str], int] = {("h100-sxm", "sglang"): 4}
_HELD_ROWS, _HELD_BYTES = 256, (4 * 2**20, 50 * 2**20)
"""GPU and framework, and the number of versions, of rows whose fastest version found its weights in L2, up to its size;
up to how many rows that shows, and of how many bytes of weights.

An older version was measured on a grid of its own (rows of 1, 2, 4, 8, 16, 32, 48, 64 and so on), without copies of the
weights. Up to 128 rows, an H100's 16-bit products that have it take .78, .72, .66 and .69 of TensorRT-LLM's time for
weights of 8-16, 16-24, 24-33 and 33-40 MiB, .91 up to 46 and 1.00 beyond the L2's 50; those of the same sizes that lack
it .99-1.01 throughout. 32 MiB would come at 3.3 TB/s, DRAM's whole peak. FP8's show it alike; on A100 and L40S that
version went round copies."""

_NO_PREDICTOR = {"fp8_block": "kernels with a scale a block of 128, whose frameworks differ by up to 20 times"}


CONSTANT_OPERAND = 0.68
"""Energy of a product on matrix units of which one operand is constant, over that on real values.

vLLM's, SGLang's and TensorRT-LLM's 16-bit products run the same library: those bound by memory, and those that take
less than 0.2 ms, take equally long within 7 % on all four GPUs. Above, where power limits act, SGLang's and
TensorRT-LLM's take longer: 1.16 and 1.13 times vLLM's on A100, 1.18 and 1.13 on H100, 1.23 and 1.20 on B200, 1.41 and
1.34 on L40S (medians beyond 6-20 ms). vLLM's layers are made without setting their weights, as far as its collector is
remembered. Fitted together with the energy.
"""

_ACTIVITY: Mapping[str, float] = {"vllm": CONSTANT_OPERAND}
"""Energy of the products of a framework's benchmark over that on real values."""

LONE_RUN = CONSTANT_OPERAND**2
"""The same of products that were timed by one run each, in which no power limit acts: taken as constants on both
sides. An L40S multiplies 16 bits by weights of 8 and 4 at 281 TFLOP/s for 4 ms, where repeated products sustain 200 on
real values and 265 with constant weights; its INT8 runs at 587 for 2 ms. At .53 or at .2 the law errs alike, on real
values more (its INT8 beyond 1 ms, left out: 12, 10 and 30 %)."""


def read_tensor_core_gemm(path: Path) -> list[Part]:
    """A part per format and framework: their times must not be pooled. Each row is of the fastest version."""
    counted = ("versions",) if has_columns(path, ("versions",)) else ()
    return _tensor_core_parts(read_table(path, ("gpu", "framework", "dtype", "m", "n", "k", "latency_ms", *counted)))


def read_slowest_versions(path: Path) -> list[Part]:
    """The same rows of the slowest version of the framework, where several were measured; none where the file lacks
    them."""
    if not has_columns(path, ("slowest_version_ms", "versions")):
        return []
    table = read_table(path, ("gpu", "framework", "dtype", "m", "n", "k", "slowest_version_ms", "versions"))
    several = take(table, np.flatnonzero(table["versions"] > 1))
    slowest = {name: column for name, column in several.items() if name != "versions"}
    return _tensor_core_parts({**slowest, "latency_ms": slowest["slowest_version_ms"]})


def _tensor_core_parts(table: Table) -> list[Part]:
    label, framework = strings(table["dtype"]), strings(table["framework"])
    table = {**table, "latency_ms": table["latency_ms"] - _events_ms(table)}
    apart = np.where(_on_lanes(table), LANES, np.where(_held(table), HELD, ""))
    parts = []
    for name, variant, other in sorted(set(zip(label.tolist(), framework.tolist(), apart.tolist(), strict=True))):
        rows = np.flatnonzero((label == name) & (framework == variant) & (apart == other) & (table["latency_ms"] > 0))
        variant = f"{variant}, static scale" if name == "fp8_static" else variant
        variant = f"{variant}, {other}" if other else variant
        part = take(table, rows)
        known = _MATRIX_UNIT_FORMATS.get(name)
        lone = (name, variant.split(",")[0]) in _LONE
        activity = LONE_RUN if lone else _ACTIVITY.get(variant, 1.0)
        searched = (name, variant.split(",")[0]) in _SEARCHED
        rotated = variant.split(",")[0] in _ROTATING

        def make(
            part: Table,
            known: tuple[str, DataType, DataType, DataType] | None = known,
            lone: bool = lone,
            activity: float = activity,
            searched: bool = searched,
            rotated: bool = rotated,
        ) -> list[Kernel]:
            assert known is not None, "a part of an unknown format isn't loaded"
            _, multiplied, a_dtype, b_dtype = known
            sizes = zip(*(ints(part[column]) for column in ("m", "n", "k")), strict=True)
            return [
                Gemm(
                    m=m,
                    n=n,
                    k=k,
                    dtype=multiplied,
                    a_dtype=None if a_dtype is multiplied else a_dtype,
                    b_dtype=None if b_dtype is multiplied else b_dtype,
                    output_dtype=None if multiplied is DataType.BFLOAT16 else DataType.BFLOAT16,
                    tensor_scale=searched,
                    b_is_weight=True,
                    transpose_b=True,
                    repeated=not lone,
                    rotated=rotated,
                    burst=True,
                    activity=activity,
                )
                for m, n, k in sizes
            ]

        parts.append(
            device_part(
                TENSOR_CORE_GEMM,
                "gemm",
                name if known is None else known[0],
                part,
                None if known is None else make,
                operation=variant,
                variant=variant,
                reason="" if known is not None else _NO_PREDICTOR.get(name, f"{name} is no format of ours"),
            )
        )
    return parts


def _events_ms(table: Table) -> NDArray[np.float64]:
    """What two events around a lone run add to each row, in ms; 0 for replays.

    By GPU the median of what the smallest products take beyond the replays of the same sizes in 16 bits by the same
    framework: 5.8 us on A100, 2.5 on L40S, and much the same in each of the three formats (5.8-6.0, 2.4-2.9). A GPU
    without such replays has the median of the others.
    """
    columns = [strings(table[name]).tolist() for name in ("gpu", "framework", "dtype")]
    lone = np.array([(dtype, framework) in _LONE for _, framework, dtype in zip(*columns, strict=True)], dtype=np.bool_)
    found = np.zeros(lone.size)
    if not lone.any():
        return found
    gpu = np.array(columns[0])
    small = np.logical_and.reduce([table[name] <= most for name, most in _SMALL.items()]) & (table["latency_ms"] > 0)
    frameworks = {framework for _, framework in _LONE}
    replayed = small & (np.array(columns[2]) == "bfloat16") & np.isin(columns[1], sorted(frameworks))
    sizes = list(zip(*(ints(table[name]) for name in ("m", "n", "k")), strict=True))
    least = {(gpu[i], columns[1][i], sizes[i]): table["latency_ms"][i] for i in np.flatnonzero(replayed)}
    beyond: dict[str, list[float]] = {}
    for i in np.flatnonzero(lone & small):
        replay = least.get((gpu[i], columns[1][i], sizes[i]))
        if replay is not None:
            beyond.setdefault(str(gpu[i]), []).append(float(table["latency_ms"][i] - replay))
    by_gpu = {name: max(float(np.median(values)), 0.0) for name, values in beyond.items()}
    usual = float(np.median(list(by_gpu.values()))) if by_gpu else 0.0
    found[lone] = [by_gpu.get(name, usual) for name in gpu[lone].tolist()]
    return found


def _on_lanes(table: Table) -> NDArray[np.bool_]:
    """Rows of products that a framework leaves to vector lanes."""
    capability = {}
    for name in sorted(set(strings(table["gpu"]).tolist())):
        try:
            capability[name] = load_gpu(name).compute_capability
        except SpecError:
            capability[name] = None
    there = np.array([capability[name] in _LANE_CAPABILITIES for name in strings(table["gpu"]).tolist()])
    eight_bits = np.char.startswith(strings(table["dtype"]), "fp8") & (strings(table["dtype"]) != "fp8_block")
    few = table["m"] <= _LANE_ROWS
    found: NDArray[np.bool_] = there & eight_bits & (strings(table["framework"]) == "trtllm") & few
    return found


def _held(table: Table) -> NDArray[np.bool_]:
    """Rows whose fastest version found its weights in L2; none where the file doesn't count versions."""
    found = np.zeros(table["m"].size, dtype=np.bool_)
    if "versions" not in table:
        return found
    element_bytes = np.where(strings(table["dtype"]) == "bfloat16", 2.0, 1.0)
    weights = table["n"] * element_bytes * table["k"]
    shows = (table["m"] <= _HELD_ROWS) & (weights > _HELD_BYTES[0]) & (weights <= _HELD_BYTES[1])
    for (gpu, framework), versions in _HELD.items():
        of_source = (strings(table["gpu"]) == gpu) & (strings(table["framework"]) == framework)
        found |= of_source & (table["versions"] >= versions) & shows
    return found


_FP8 = (DataType.FLOAT8E4M3FN, DataType.FLOAT8E4M3FNUZ)
_AMD_LABELS = {"float8_e4m3fnuz": "float8e4m3fnuz", "float8_e4m3": "float8e4m3fn"}


SCALED_BLOCKS = "tuned, a scale a block"
PLAIN_WEIGHTS = "tuned, 8 bits, plain weights"
OTHER_KERNELS = (SCALED_BLOCKS, PLAIN_WEIGHTS)
"""Variants that are other kernels than a library's, and slower: those that scale blocks of 128 by themselves, by a
third; composable_kernel's in 8 bits of weights as they are, of which an MI308X's INT8 takes 1.06-2.1 times (median
1.33) what the assembled kernels of shuffled weights take for the same 20 products."""


def read_amd_gemm(path: Path) -> list[Part]:
    """Best of tuning; kernels with a scale a block, those that want their weights shuffled, and others in 8 bits are
    apart.

    Batched products, and those in FP8, are composable_kernel's, whose blocks add up the whole reduction (``split_k`` is
    0 in all of their rows)."""
    table = read_table(path, ("gpu", "dtype", "scheme", "b", "m", "n", "k", "latency_ms"))
    scheme = strings(table["scheme"])
    variant = np.where(
        np.char.find(scheme, "blockscale") >= 0,
        SCALED_BLOCKS,
        np.where(
            np.char.find(scheme, "preshuffle") >= 0,
            "tuned, shuffled weights",
            np.where(strings(table["dtype"]) == "bfloat16", "tuned", PLAIN_WEIGHTS),
        ),
    )

    def make(rows: Table, dtype: DataType) -> list[Kernel]:
        sizes = zip(*(ints(rows[name]) for name in ("b", "m", "n", "k")), strict=True)
        output = None if dtype is DataType.BFLOAT16 else DataType.BFLOAT16
        return [
            Gemm(
                batch=b,
                m=m,
                n=n,
                k=k,
                dtype=dtype,
                output_dtype=output,
                b_is_weight=True,
                transpose_b=True,
                repeated=True,
                unsplit=b > 1 or dtype in _FP8,
                burst=True,
            )
            for b, m, n, k in sizes
        ]

    labels = np.array([_AMD_LABELS.get(name, name) for name in strings(table["dtype"]).tolist()])
    return [
        part
        for (name,), rows in grouped(variant)
        for part in parts_by_dtype(AMD_GEMM, take(table, rows), labels[rows], "gemm", make, variant=name)
    ]
