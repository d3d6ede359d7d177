"""What a card draws before any arithmetic: its power limit leaves the rest."""

from __future__ import annotations

from neusight_onnx.gpu.spec import GpuSpec

IDLE_W_PER_SQRT_GB_S_OF_HBM = 1.3
IDLE_W_PER_GB_S_OF_GDDR = 0.085
"""What a card takes with its clocks up and nothing to do, memory and leakage above all, in W: by the square root of
HBM's bandwidth (faster stacks take less for each bit), in proportion to GDDR's. What nvidia-smi prints for idle cards
in state P0 (as remembered): T4 27 of 70 W, L4 28-30 of 72, A10 55 of 150, L40S about 80 of 350; V100 40-45 of 300,
A100 45-50 (40 GB) and 60-65 (80 GB) of 400, H100 70-75 and H200 75-80 of 700, B200 about 140 of 1000. So the power
limit leaves cards with GDDR and 60-75 W hardly more than half for arithmetic. The fit of
:data:`~neusight_onnx.laws.clock.ENERGY_EXPONENT` is as good with .7 and 1.2 times as much."""

GDDR7_OVER_GDDR6 = 0.7
"""What GDDR7 takes for a GB/s over GDDR6: no card with it is among the measured ones. Samsung says 20 % less than its
GDDR6 of 24 Gb/s (July 2023), Micron and SK hynix half (June and July 2024; all three as remembered): between the two.
In GDDR6's terms an RTX PRO 6000 would take 152 W before any arithmetic, half of what its Max-Q edition may."""

MOST_IDLE = 0.5
"""Share of the power limit that this is at most: a card that is made for less has slower clocks for its memory, too."""

STATIC_POWER = 0.2
"""Share of the power limit for the same where the memory is of another kind or the maker is AMD."""


def idle_follows_memory(gpu: GpuSpec) -> bool:
    """Whether :func:`idle_w` is by the kind and bandwidth of the memory."""
    return gpu.idle_power_w is None and gpu.vendor != "AMD" and gpu.memory_type.upper().startswith(("HBM", "GDDR"))


def idle_w(gpu: GpuSpec) -> float:
    """Power that is gone before any arithmetic, in W: what the file states, else by the memory."""
    gb_s, memory = gpu.memory_bytes_per_s / 1e9, gpu.memory_type.upper()
    if gpu.idle_power_w is not None:
        watts = gpu.idle_power_w
    elif not idle_follows_memory(gpu):
        watts = STATIC_POWER * gpu.power_w
    elif memory.startswith("HBM"):
        watts = IDLE_W_PER_SQRT_GB_S_OF_HBM * gb_s**0.5
    else:
        watts = IDLE_W_PER_GB_S_OF_GDDR * gb_s * (GDDR7_OVER_GDDR6 if memory.startswith("GDDR7") else 1.0)
    return min(watts, MOST_IDLE * gpu.power_w)
