"""Judges 16-bit products on GPUs that were not measured, of generations that were, without having looked at them.

    python benchmarks/same_generation.py SHARED > benchmarks/results/same_generation.txt

SHARED holds data/. Products on RTX 3090, RTX A6000 and RTX 4090 are in LLMServingSim's profiles of LLM layers alone; no
predictor is trained on these, but figures of the law were read off them (``Figures``). Here each of the three is judged
with the figures that the others show: ``derived`` has a rule for each, which reads no row of the judged GPU. A
figure that no other GPU shows keeps the value that corrects nothing. Fitted constants are the shipped ones, of A100,
H100, L40S and B200. All rows of 5 us and more count.

Not blind even so: the form of the law, these rules among it, was chosen with all three in sight, and the exponent of
energy by clock (``clock.ENERGY_EXPONENT``) rests on them among others; its other possible values are tried, as are
those of what a halved pipe leaves exposed of a small tile's loads (``matrix_units.EXPOSED_EXPONENT``).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from neusight_onnx import load_gpu
from neusight_onnx.data_files import data_folder
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.kernels import Gemm
from neusight_onnx.laws import clock, matrix_unit_power, matrix_units
from neusight_onnx.laws.bandwidth import GDDR6_BARE, GDDR6X, memory_family
from neusight_onnx.laws.base import Constants, LawResult
from neusight_onnx.laws.catalog import apply_law
from neusight_onnx.laws.tensor_gemm import memory
from neusight_onnx.laws.tensor_gemm.law import TENSOR_GEMM
from neusight_onnx.learning.datasets.llm_layers import LLM_LAYERS
from neusight_onnx.learning.datasets.parts import Part
from neusight_onnx.learning.datasets.products import TENSOR_CORE_GEMM
from neusight_onnx.learning.datasets.registry import read_parts
from neusight_onnx.learning.datasets.tables import Table, read_table
from neusight_onnx.learning.datasets.training_rows import TRAINED_VARIANTS
from neusight_onnx.predictor import Predictor, estimate, load_predictors, predictor_for, without_gpu

JUDGED = ("rtx-3090", "rtx-a6000", "rtx-4090")
TRAINED = "h100-sxm"
"""The trained GPU that the source holds as well."""
MEASURED_7NM, MEASURED_4N = "a100-sxm-80gb", "l40s"
"""The trained GPUs with mma instructions, by process."""
LEAST_US = 5.0


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Figures of the law that rest on the judged layers; the defaults correct nothing.

    ``boost``: highest clock of GeForce cards over the stated boost clock (``GEFORCE_BOOST``). ``bare_gddr``: DRAM rate
    of GDDR without ECC over the fitted share of the peak (``BARE_GDDR_GAIN``). ``energy_4n``: energy of mma in 4N over
    what the process says (``_ADA_MMA_ENERGY``).
    """

    boost: float = 1.0
    bare_gddr: float = 1.0
    energy_4n: float = 1.0


NEUTRAL = Figures()
SHIPPED = Figures(
    boost=matrix_unit_power.GEFORCE_BOOST,
    bare_gddr=memory.BARE_GDDR_GAIN,
    energy_4n=matrix_unit_power._ADA_MMA_ENERGY,
)


@contextmanager
def law_with(figures: Figures) -> Iterator[None]:
    """The law with such figures."""
    with ExitStack() as stack:
        for module, name, value in (
            (matrix_unit_power, "GEFORCE_BOOST", figures.boost),
            (memory, "BARE_GDDR_GAIN", figures.bare_gddr),
            (matrix_unit_power, "_ADA_MMA_ENERGY", figures.energy_4n),
        ):
            stack.enter_context(patch.object(module, name, value))
        yield


@dataclass(frozen=True, kw_only=True)
class Card:
    """Products measured on a GPU: ``kernels`` are different ones, ``measured_us`` their medians; ``rows_us`` and
    ``kernel_of`` (index) have an entry for each row."""

    gpu: GpuSpec
    kernels: tuple[Gemm, ...]
    measured_us: NDArray[np.float64]
    rows_us: NDArray[np.float64]
    kernel_of: NDArray[np.int64]

    def select(self, mask: NDArray[np.bool_]) -> Card:
        """Some of the kernels, a row each."""
        kept = np.flatnonzero(mask)
        found = self.measured_us[kept]
        kernels = tuple(self.kernels[i] for i in kept.tolist())
        return Card(gpu=self.gpu, kernels=kernels, measured_us=found, rows_us=found, kernel_of=np.arange(kept.size))

    def sizes(self, name: str) -> NDArray[np.float64]:
        """m, n or k of each kernel."""
        return np.array([getattr(kernel, name) for kernel in self.kernels], dtype=np.float64)

    @property
    def flops(self) -> NDArray[np.float64]:
        """FLOPs of each kernel."""
        return 2.0 * self.sizes("m") * self.sizes("n") * self.sizes("k")


def read_cards(parts: Sequence[Part]) -> dict[str, Card]:
    """The products of 5 us and more, by GPU."""
    rows: dict[str, dict[Gemm, list[float]]] = {}
    for part in parts:
        assert part.load is not None
        found = part.load(np.arange(len(part.gpu)))
        for kernel, gpu, us in zip(found.kernels, found.gpu.tolist(), found.measured_us.tolist(), strict=True):
            assert isinstance(kernel, Gemm)
            if us >= LEAST_US:
                rows.setdefault(gpu, {}).setdefault(kernel, []).append(us)
    return {
        gpu: Card(
            gpu=load_gpu(gpu),
            kernels=tuple(own),
            measured_us=np.array([float(np.median(each)) for each in own.values()]),
            rows_us=np.concatenate([np.array(each) for each in own.values()]),
            kernel_of=np.repeat(np.arange(len(own)), [len(each) for each in own.values()]),
        )
        for gpu, own in rows.items()
    }


def law_alone(card: Card, constants: Constants) -> LawResult:
    """The law alone, with the figures in force."""
    return apply_law(TENSOR_GEMM, card.kernels, card.gpu, constants).result


def log_error(card: Card, constants: Constants) -> NDArray[np.float64]:
    """log(predicted / measured) of each kernel by the law alone, with the figures in force."""
    found: NDArray[np.float64] = np.log(law_alone(card, constants).latency_us / card.measured_us)
    return found


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a monotonic function changes its sign; where it doesn't, the end that comes nearest to it."""
    at_low, at_high = function(low), function(high)
    if at_low * at_high > 0.0:
        return low if abs(at_low) < abs(at_high) else high
    for _ in range(12):
        middle = (low + high) / 2.0
        low, high = (middle, high) if function(middle) * at_low > 0.0 else (low, middle)
    return (low + high) / 2.0


FEW_ROWS, LARGE_WEIGHTS = 16, 400e6
"""Products that DRAM bounds: rows at most, and bytes of weights at least (a stream's start hardly counts)."""
TOP = 0.999
"""Quantile of the rate that stands for the highest: the ten or twenty best of a card's products."""
LONG_MS = 3.0
"""Products that a power limit holds whatever came before (``_ADA_MMA_ENERGY``)."""
EXPOSED_EXPONENTS = (0.0, 1.0, 2.0, 3.0)
"""Other powers of a halved pipe's rate that are tried for what a small tile doesn't hide (``EXPOSED_EXPONENT``): 0 is
the same part of a pipe's time, 1 as many clocks."""


def median_error(card: Card, figures: Figures, constants: Constants) -> float:
    """Median of log(predicted / measured) by the law alone."""
    with law_with(figures):
        return float(np.median(log_error(card, constants)))


def energy_in_4n(measured: Card, figures: Figures, constants: Constants) -> float:
    """With which a GPU's products under its power limit come out right in the median."""
    long = measured.select(measured.measured_us > 1e3 * LONG_MS)
    return root(lambda value: median_error(long, replace(figures, energy_4n=value), constants), 0.7, 2.0)


def streamed_share(card: Card) -> float:
    """Share of DRAM's peak at which products of few rows stream large weights, the median."""
    weights = np.array([kernel.n * kernel.k * kernel.dtype.bytes_of(1) for kernel in card.kernels])
    own = card.select((card.sizes("m") <= FEW_ROWS) & (weights >= LARGE_WEIGHTS))
    moved = np.array([kernel.read_bytes + kernel.write_bytes for kernel in own.kernels])
    return float(np.median(moved / own.measured_us * 1e6)) / card.gpu.memory_bytes_per_s


def top_rate(card: Card) -> float:
    """The highest rate over the stated peak."""
    rates = card.flops / card.measured_us * 1e6 / card.gpu.peak_flops_per_s["bf16"]
    return float(np.quantile(rates, TOP))


def derived(cards: Sequence[Card], measured_4n: Card, constants: Constants) -> Figures:
    """The figures that some cards show, one after the other, the mean of what they ask for; else neutral ones.

    The rules are those that the docstrings of the constants tell, or the nearest to them that code can be.
    """
    figures = replace(NEUTRAL, energy_4n=energy_in_4n(measured_4n, NEUTRAL, constants))
    streaming = [card for card in cards if memory_family(card.gpu) in (GDDR6X, GDDR6_BARE)]
    if streaming:
        gain = np.mean([streamed_share(card) for card in streaming]) / streamed_share(measured_4n)
        figures = replace(figures, bare_gddr=float(gain))
    halved = [card for card in cards if card.gpu.halves_fp32_sums]
    if halved:
        # the pipe at its peak takes what it takes elsewhere, so that the clock is higher by as much
        boost = float(np.mean([top_rate(card) for card in halved])) * constants["pipe_overhead"]
        figures = replace(figures, boost=boost)
    return figures


def errors(card: Card, predictor: Predictor, figures: Figures) -> NDArray[np.float64]:
    """Predicted over measured, less 1, of every row: what the tool says with such figures."""
    with law_with(figures):
        found = estimate(card.kernels, card.gpu, predictor).latency_us
    error: NDArray[np.float64] = found[card.kernel_of] / card.rows_us - 1.0
    return error


def with_exponent(
    exponent: float, card: Card, figures: Figures, predictor: Predictor, trained: dict[str, Card]
) -> NDArray[np.float64]:
    """Errors with another exponent of energy by clock, energies told by an A100 and an L40S anew."""
    with patch.object(clock, "ENERGY_EXPONENT", exponent):
        long = trained[MEASURED_7NM].select(trained[MEASURED_7NM].measured_us > 1e3 * LONG_MS)
        constants = dict(predictor.constants)
        energy = root(lambda value: median_error(long, figures, {**constants, "energy_pj": value}), 1.5, 5.0)
        constants["energy_pj"] = energy
        figures = replace(figures, energy_4n=energy_in_4n(trained[MEASURED_4N], figures, constants))
        return errors(card, replace(predictor, constants=constants), figures)


def scatter_percent(card: Card) -> tuple[int, float]:
    """(pairs, mean deviation of a row in %) of products that were measured several times, by different layers.

    Two rows of one product differ by the root of two times what one is off.
    """
    again = np.flatnonzero(np.diff(card.kernel_of) == 0)
    gaps = np.abs(np.diff(np.log(card.rows_us)))[again]
    return int(gaps.size), 100.0 * float(np.mean(gaps)) / float(np.sqrt(2.0)) if gaps.size else 0.0


ATTENTION_LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj")
SAME_ATTENTION = ("meta-llama/Llama-3.1-8B", "microsoft/Phi-mini-MoE-instruct", "mistralai/Mixtral-8x7B-v0.1")
"""Models of the source whose attention has the same projections: 4,096 wide, 32 heads of 128, 8 of keys."""


def between_models(table: Table) -> dict[str, NDArray[np.float64]]:
    """log(time in one model's profile / time of the same product in another's), by GPU; of 5 us and more."""
    measured: dict[tuple[str, str, int, float], dict[str, list[float]]] = {}
    names = ("gpu", "layer", "tp", "tokens", "model", "latency_ms")
    for gpu, layer, tp, tokens, model, ms in zip(*(table[name].tolist() for name in names), strict=True):
        if layer in ATTENTION_LAYERS and model in SAME_ATTENTION and 1e3 * ms >= LEAST_US:
            measured.setdefault((gpu, layer, tp, tokens), {}).setdefault(model, []).append(ms)
    found: dict[str, list[float]] = {}
    for (gpu, *_), models in measured.items():
        if len(models) > 1:
            first, other = (np.median(models[model]) for model in SAME_ATTENTION if model in models)
            found.setdefault(gpu, []).append(float(np.log(first / other)))
    return {gpu: np.array(ratios) for gpu, ratios in found.items()}


def line(name: str, error: NDArray[np.float64]) -> str:
    """A row of the table."""
    absolute = 100.0 * np.abs(error)
    return f"  {name:44}{np.mean(absolute):7.1f}{np.median(absolute):8.1f}{100.0 * np.median(error):+8.1f}"


def told(figures: Figures) -> str:
    """The figures' values, in order."""
    return "".join(f"{getattr(figures, field.name):11.2f}" for field in fields(Figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path)
    data = parser.parse_args().shared / "data"
    cards = read_cards([part for part in read_parts(data, [LLM_LAYERS]) if part.kernel_class == "gemm"])
    parts = read_parts(data, [TENSOR_CORE_GEMM])
    variant = TRAINED_VARIANTS["bfloat16"]
    trained = read_cards([part for part in parts if (part.dtype, part.variant) == ("bfloat16", variant)])
    predictors = load_predictors(data_folder("predictors"))
    seen = cards[TRAINED]
    predictor = predictor_for(seen.kernels[0], seen.gpu, predictors)
    left_out = predictor_for(seen.kernels[0], seen.gpu, without_gpu(predictors, seen.gpu.name))
    assert predictor is not None
    assert left_out is not None
    constants, measured_4n = predictor.constants, trained[MEASURED_4N]

    print("Figures of the law that rest on LLM layers of the judged GPUs, by the cards that tell them\n")
    print(f"  {'':32}" + "".join(f"{field.name:>11}" for field in fields(Figures)))
    print(f"  {'shipped':32}{told(SHIPPED)}")
    of: dict[str, Figures] = {}
    for name in JUDGED:
        of[name] = derived([cards[other] for other in JUDGED if other != name], measured_4n, constants)
        print(f"  {'by the others than ' + name:32}{told(of[name])}")
    print(f"  {'by all three':32}{told(derived([cards[name] for name in JUDGED], measured_4n, constants))}")
    print(f"  {'no correction':32}{told(NEUTRAL)}")

    print("\nShare of DRAM's peak at which products of few rows stream, and highest rate over the stated peak\n")
    for name, card in {**cards, **{f"{gpu} (trained rows)": card for gpu, card in trained.items()}}.items():
        memory_type = card.gpu.memory_type
        print(f"  {name:32}{memory_type:8}{streamed_share(card):7.3f}{top_rate(card):8.2f}")

    print("\nErrors of products of 5 us and more in %: mean, median, median with its sign\n")
    for name in JUDGED:
        card = cards[name]
        print(f"{name}, {card.rows_us.size:,} rows")
        shipped = errors(card, predictor, SHIPPED)
        print(line("shipped", shipped))
        print(line("figures by the others", errors(card, predictor, of[name])))
        print(line("no correction", errors(card, predictor, NEUTRAL)))
        for field in fields(Figures):
            one = replace(SHIPPED, **{field.name: getattr(of[name], field.name)})
            found = errors(card, predictor, one)
            if not np.array_equal(found, shipped):
                print(line(f"  shipped, but {field.name} by the others", found))
        for exponent in (0.5, 0.7):
            found = with_exponent(exponent, card, of[name], predictor, trained)
            print(line(f"  by the others, energy by clock to {exponent:g}", found))
        for exponent in EXPOSED_EXPONENTS if card.gpu.halves_fp32_sums else ():
            with patch.object(matrix_units, "EXPOSED_EXPONENT", exponent):
                found = errors(card, predictor, of[name])
            print(line(f"  by the others, exposed loads to {exponent:g}", found))
    print(f"{TRAINED}, trained on other rows, {seen.rows_us.size:,} rows of the same source")
    print(line("shipped", errors(seen, predictor, SHIPPED)))
    print(line("the GPU left out", errors(seen, left_out, SHIPPED)))
    print(
        "\nScatter of rows of one product: mean deviation of one row in %; and between the profiles of two models whose"
    )
    print("attention has the same projections: the least mean error in % of one prediction for both (half of what they")
    print("differ), median ratio of the two, 10 and 90 % of the ratios\n")
    ratios = between_models(read_table(data / LLM_LAYERS, ("gpu", "layer", "tp", "tokens", "model", "latency_ms")))
    for name in (*JUDGED, TRAINED):
        pairs, percent = scatter_percent(cards[name])
        if not pairs:
            print(f"  {name:14}no product twice")
            continue
        own = ratios[name]
        low, middle, high = np.exp(np.quantile(own, (0.1, 0.5, 0.9)))
        least = 100.0 * float(np.mean(np.abs(own))) / 2.0
        print(
            f"  {name:14}{percent:5.1f}   {pairs:7,} pairs    {least:5.1f}   {own.size:6,} pairs   "
            f"{middle:.2f}   {low:.2f} to {high:.2f}"
        )


if __name__ == "__main__":
    main()
