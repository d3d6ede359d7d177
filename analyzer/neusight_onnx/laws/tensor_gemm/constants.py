"""The constants of the law of products on matrix units: priors, and what is fitted; NVIDIA's GPUs and AMD's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.bandwidth import HBM, channel_share, is_amd, memory_family
from neusight_onnx.laws.base import Constant, Constants
from neusight_onnx.laws.matrix_units import asynchronous, exposed_share

_STUDY = "prior: study of the shared tensor-core measurements; fitted here"

CONSTANTS: tuple[Constant, ...] = (
    Constant(
        name="floor_us",
        prior=2.8,
        prior_log_sd=0.3,
        source="the smallest products, replayed in a CUDA graph, take 1.6-2.5 us, those of 4096 x 4096 and a few rows "
        "3-4 us more than their bytes; fitted",
    ),
    Constant(
        name="floor_us_async",
        prior=2.8,
        prior_log_sd=0.3,
        source="the same on Hopper and data-centre Blackwell: 1.7-2.5 us for the smallest; fitted",
    ),
    Constant(name="pipe_overhead", prior=1.05, prior_log_sd=0.05, source=_STUDY),
    Constant(
        name="narrow_overhead",
        prior=1.2,
        prior_log_sd=0.2,
        source="the same beside it for products of 8 bits and less: cuBLASLt's largest in FP8, less the kernels that "
        "convert, reach .7-.78 of the peak on B200 and H100, where 16-bit ones reach .76-.94; fitted",
    ),
    Constant(name="tile_overhead", prior=0.14, prior_log_sd=0.4, source=_STUDY),
    Constant(name="tile_exponent", prior=1.5, prior_log_sd=0.2, source=_STUDY),
    Constant(
        name="step_ns",
        prior=0.7,
        prior_log_sd=0.7,
        source="a byte of k that a block goes through, however little it multiplies: what loads in flight leave of the "
        "memory's latency. FP8 products of a few tiles take .7 (B200, H100) to 1.1 ns (L40S), INT8 ones 2 ns; fitted",
    ),
    Constant(
        name="epilogue_k",
        prior=120.0,
        prior_log_sd=0.3,
        source="prologue and epilogue of a tile, as steps of k: 110-130 over the generations; " + _STUDY,
    ),
    Constant(
        name="energy_pj",
        prior=2.8,
        prior_log_sd=0.2,
        source="board energy of a 16-bit FLOP on real values by mma instructions in 16 nm at 1.4 GHz, so that an A100 "
        "sustains 250-270 of 312 TFLOP/s at 400 W; fitted",
    ),
    Constant(
        name="throttle_ms",
        prior=0.5,
        prior_log_sd=0.5,
        source="measured by a few repetitions, shorter kernels run at the boost clock: the same products by two "
        "frameworks, one with weights that switch little, take equally long below it and up to 1.4 times above; fitted",
    ),
    Constant(
        name="dram_efficiency",
        prior=0.857,
        prior_log_sd=0.07,
        source="share of HBM's peak at which operands stream, of a channel of CHANNEL_GB_S (channel_share): .82 of an "
        "A100-80GB's, whose products of few rows take one of two times 9 % apart in each framework, .88 of a V100's, "
        "which reads 500,000 x 512 weights for 8 rows at .87 (DeepBench); fitted",
    ),
    Constant(
        name="dram_efficiency_async",
        prior=HBM.fraction,
        prior_log_sd=0.05,
        source="the same where a unit of its own fetches tiles: as streaming kernels have it; fitted",
    ),
    Constant(
        name="dram_efficiency_gddr",
        prior=0.82,
        prior_log_sd=0.07,
        source="the same of GDDR with ECC, whose channels are of one kind: weights of 64 MB and more stream at .82-.84 "
        "of an L40S's peak; fitted",
    ),
    Constant(name="reload_knee", prior=1.0, prior_log_sd=0.5, source="as the FP32 law's; fitted"),
    Constant(
        name="l2_bytes_per_clock",
        prior=64.0,
        prior_log_sd=0.2,
        source="bytes an SM gets from L2 in a clock: 64 by design; hardly identified, so its prior is tight",
    ),
    Constant(
        name="l2_stream_bytes_per_clock",
        prior=12.0,
        prior_log_sd=0.3,
        source="bytes a clock and SM of operands that L2 still holds, where that is more than DRAM brings: activations "
        "of few columns 12 on A100, 6-8 on L40S, 17 on H100; weights of few rows 8 on L40S; fitted",
    ),
    Constant(name="norm", prior=4.0, prior_log_sd=0.6, source="power of the norm that joins competing times; fitted"),
    Constant(
        name="norm_async",
        prior=4.0,
        prior_log_sd=0.6,
        source="the same where loads and products are issued apart, so that they hide each other better; fitted",
    ),
    Constant(name="split_us", prior=1.5, prior_log_sd=0.4, source="a second kernel adds the parts of a split; fitted"),
    Constant(
        name="convert_us",
        prior=2.0,
        prior_log_sd=0.5,
        source="launch of the kernel that converts the activations; " + _STUDY,
    ),
    Constant(
        name="convert_passes",
        prior=1.5,
        prior_log_sd=0.3,
        source="times that the activations' bytes (read as stored, written as multiplied) are moved; " + _STUDY,
    ),
    Constant(
        name="unpack_overhead",
        prior=0.3,
        prior_log_sd=0.5,
        source="of weights that are stored narrower than multiplied: added share of the pipe's time; fitted",
    ),
)


def _stream_share(gpu: GpuSpec, constants: Constants) -> float:
    """Share of DRAM's peak at which operands stream on NVIDIA's GPUs: of HBM by its channels, of GDDR one number."""
    if not memory_family(gpu).by_channel:
        return constants["dram_efficiency_gddr"]
    name = "dram_efficiency_async" if asynchronous(gpu) else "dram_efficiency"
    return channel_share(gpu, constants[name])


def own_constants(gpu: GpuSpec, constants: Constants) -> Constants:
    """The constants with those in their places that asynchronous GPUs, and kinds of memory, have of their own.

    Loads hide behind the products of a slow pipe nearly as well as behind asynchronous ones: the norm of other GPUs
    lies between the two, by :func:`exposed_share`. ``norm_of_lanes``: that of kernels on vector lanes, which
    issue their loads themselves and whose rate isn't halved.
    """
    own = {"norm_of_lanes": constants["norm"]}
    if not is_amd(gpu):
        own["dram_efficiency"] = _stream_share(gpu, constants)
    if not asynchronous(gpu):
        norm, hidden = constants["norm"], 1.0 - exposed_share(gpu)
        return {**constants, **own, "norm": norm ** (1.0 - hidden) * constants.get("norm_async", norm) ** hidden}
    return {**{name: constants.get(f"{name}_async", value) for name, value in constants.items()}, **own}


_AMD_PRIORS: Mapping[str, Constant] = {
    constant.name: constant
    for constant in (
        Constant(
            name="pipe_overhead",
            prior=1.5,
            prior_log_sd=0.2,
            source="AMD's matrix cores: the largest bf16 products reach .51-.60 of their peak on MI300X and MI325X "
            "(stas00/ml-engineering, maximum achievable matmul FLOPS), less than a tile's overheads explain; fitted",
        ),
        Constant(
            name="dram_efficiency",
            prior=0.68,
            prior_log_sd=0.1,
            source="tuned products of few rows get 3.5 TB/s of 5.3 on MI300X and MI308X; fitted",
        ),
        Constant(
            name="floor_us", prior=4.0, prior_log_sd=0.3, source="the smallest tuned products take 4-5 us; fitted"
        ),
        Constant(name="tile_overhead", prior=0.2, prior_log_sd=0.5, source="as NVIDIA's, less certain; fitted"),
    )
}


def amd_constants(constants: Sequence[Constant]) -> tuple[Constant, ...]:
    """Constants with what is expected of AMD's matrix cores and libraries."""
    return tuple(_AMD_PRIORS.get(each.name, each) for each in constants if each.name != "dram_efficiency_gddr")


_AMD_PRODUCT_PRIORS: Mapping[str, Constant] = {
    constant.name: constant
    for constant in (
        Constant(
            name="pipe_overhead",
            prior=1.3,
            prior_log_sd=0.1,
            source="an MI308X's largest products in 16 bits reach .54 of its peak, which no power limit holds: 1.35 "
            "beside what a tile of 256x256 loads; fitted",
        ),
        Constant(
            name="tile_overhead",
            prior=1.5,
            prior_log_sd=0.3,
            source="through LDS at 128 bytes a clock: four waves, each a quarter of a 256x256 tile, read 2,048 bytes "
            "and write 1,024 in the 64 clocks that its products take a step of k (1,024 multiply-adds a clock and "
            "compute unit, AMD CDNA 3 ISA): .375, and twice that at half the sides; fitted",
        ),
        Constant(
            name="tile_exponent",
            prior=1.0,
            prior_log_sd=0.1,
            source="operands' bytes of a tile over its products; fitted",
        ),
        Constant(
            name="energy_pj",
            prior=2.9,
            prior_log_sd=0.1,
            source="the same as NVIDIA's: an MI325X's largest products run 1.18 times as fast as an MI300X's, of equal "
            "peak, with 1.33 times its power (.60 and .51 of it, stas00/ml-engineering); fitted",
        ),
        Constant(
            name="dram_efficiency",
            prior=0.82,
            prior_log_sd=0.07,
            source="MI300X, a scale a block, 16 rows by 5,120: 65.5 MB more of weights take 14.4 us more, .86 of the "
            "peak; fitted",
        ),
        Constant(
            name="norm",
            prior=2.0,
            prior_log_sd=0.1,
            source="8-bit products of up to 16 rows take what DRAM takes, those of 64 to 128 nearly the sum of "
            "that and the pipe; fitted",
        ),
    )
}

_CU_STREAM = Constant(
    name="cu_stream_bytes_per_clock",
    prior=22.0,
    prior_log_sd=0.3,
    source="bytes a clock that one compute unit gets from DRAM, what its loads in flight leave of the latency: 10 to "
    "56 blocks of an MI300X, a scale a block, read 128 columns of 5,120 in 14 us each, 22 bytes a clock; an MI308X's "
    "80 get 3.5 TB/s, 21 each; fitted",
)


_BATCHED = Constant(
    name="batched_overhead",
    prior=1.25,
    prior_log_sd=0.1,
    source="composable_kernel's batched products over others: in INT8 of plain weights, unsplit as well, it takes an "
    "MI308X 1.16-1.34 times (median 1.25) what assembled kernels take for the same eight products of .1 ms and more; "
    "fitted",
)
_SHUFFLED = Constant(
    name="shuffled_share",
    prior=0.5,
    prior_log_sd=0.2,
    source="a tile's exposed loads where weights are shuffled, over others': they go from L2 to the registers that "
    "multiply them, and only the other operand through LDS; fitted",
)


def amd_product_constants(constants: Sequence[Constant]) -> tuple[Constant, ...]:
    """Those of products on AMD's matrix cores, with the rate at which a compute unit loads and what sets their kernels
    apart."""
    own = (_AMD_PRODUCT_PRIORS.get(each.name, each) for each in amd_constants(constants))
    return (*own, _CU_STREAM, _BATCHED, _SHUFFLED)
