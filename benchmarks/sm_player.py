"""Plays the machine code of a CUDA kernel's blocks on an SM, cycle by cycle, without a GPU.

All warps of a block are interpreted (``sass.py``), and what they issued is played on an SM of four schedulers: an
instruction waits the cycles and for the scoreboards that its control code names, which the compiler wrote for the
hardware; a barrier waits for the block's last warp; pipes and the queue of memory instructions take what
``ort_instructions.py`` says. Latencies of what has no fixed one are published measurements (``LATENCY``). A load of a
sector that the block has asked for before hits L1, as does one of what every block reads (weights, a mask), once an
earlier block has read it. DRAM's bandwidth and L1's size are left out.
"""

from __future__ import annotations

import heapq
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path

import ort_instructions
import sass

LATENCY: Mapping[str, float] = {
    "global": 466.0,
    "again": 34.0,
    "LDS": 24.0,
    "SHFL": 24.0,
    "xu": 20.0,
    "S2R": 22.0,
    "barrier": 20.0,
    "store": 12.0,
}
"""Cycles until a result is there, each as remembered from the publication beside it, not looked up:

- global: from DRAM that is idle. A100 466, H100 479, RTX 4090 541 (Luo et al., "Benchmarking and Dissecting the Nvidia
  Hopper GPU Architecture via Microbenchmarking", 2024); A100 290 (Abdelkhalik et al.,
  "Demystifying the Nvidia Ampere Architecture through Microbenchmarking and Instruction-level Analysis", 2022); V100
  375 to 425 (Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018).
- again: a hit in L1. V100 28 (Jia et al. 2018), T4 32 (Jia et al., "Dissecting the NVidia Turing T4 GPU via
  Microbenchmarking", 2019), A100 33 (Abdelkhalik et al.) to 38 (Luo et al.).
- LDS: V100 and T4 19 (Jia et al. 2018, 2019), A100 23 (Abdelkhalik et al.) to 29, RTX 4090 30 (Luo et al.).
- SHFL: 22 to 25 on Volta and later (Jia et al. 2019 for T4; others taken for alike).
- xu: special functions and conversions, 18 to 23 on A100 (Abdelkhalik et al.).
- S2R, barrier, store (until operands are read): no publication is remembered; taken for about as long.
"""

INTERVAL: Mapping[str, float] = {"fp32": 2.0, "imad": 2.0, "alu": 2.0, "half": 2.0, "xu": 8.0, "fp64": 16.0}
"""Cycles of a scheduler's pipe a warp: 16 lanes, special functions 4 (``ort_instructions.LANES``)."""
SECTOR = 32
"""Bytes that L1 asks for at once (NVIDIA's profiling guide of Nsight Compute: 4 sectors a line)."""
QUEUE = 16.0
"""Memory instructions that an SM takes before a warp waits; it executes one a cycle."""
SCHEDULERS = 4
MAX_REGISTERS = 65_536

_FIRST = re.compile(r"^\s*/\*[0-9a-f]+\*/.*;\s*/\* 0x[0-9a-f]{16} \*/\s*$")
_SECOND = re.compile(r"^\s*/\* 0x([0-9a-f]{16}) \*/\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """What the compiler says to an instruction's scheduler: cycles until the warp's next one (``stall``), the
    scoreboards that it sets until its result is there (``sets``) and until its operands are read (``frees``), 7 for
    none, and those that it ``waits`` for, a bit each."""

    stall: int
    sets: int
    frees: int
    waits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An instruction that a warp issued; ``opcode`` "" if its predicate was false. Of a load from global memory, the
    ``sector`` that its first lane reads; ``is_shared`` if every block reads the same."""

    control: Control
    opcode: str
    sector: int | None = None
    is_shared: bool = False


def controls(text: str, name: str) -> list[Control]:
    """Of the kernel called ``name``, from what ``nvdisasm -c -hex`` prints: bits 41 to 61 of the upper word."""
    found: list[Control] = []
    inside = expected = False
    for line in text.splitlines():
        if line.startswith(("\t.section", "//----")):
            if found:
                break
            continue
        label = sass.LABEL.match(line)
        if label:
            inside = inside or label.group(1) == name
            continue
        if _FIRST.match(line):
            expected = inside
            continue
        second = _SECOND.match(line)
        if second and expected:
            bits = int(second.group(1), 16) >> 41
            found.append(Control(stall=bits & 15, sets=bits >> 5 & 7, frees=bits >> 8 & 7, waits=bits >> 11 & 63))
            expected = False
    return found


class Recorder(sass.Thread):
    """A thread that keeps what it issued, in order."""

    def steps(self, table: Sequence[Control], limit: int = 100_000) -> list[Step]:
        counter, found = 0, []
        for _ in range(limit):
            instruction, control = self.code.instructions[counter], table[counter]
            counter += 1
            if instruction.guard and not self.predicate(instruction.guard.lstrip("@")):
                found.append(Step(control=control, opcode=""))
                continue
            base = instruction.opcode.split(".")[0]
            sector = None
            if base in ("LDG", "LD"):
                address = re.findall(r"\[([^\[\]]*)\]", " ".join(instruction.operands))[-1]
                sector = self.offset(re.sub(r"\.(64|U32|X\d+)", "", address)) // SECTOR
            found.append(Step(control=control, opcode=base, sector=sector))
            if base == "EXIT":
                return found
            if base in ("BRA", "CALL", "BRX", "RET"):
                counter = self._jump(base, instruction, counter)
            else:
                self._execute(base, instruction)
        raise sass.NotInterpretedError(f"{self.code.name}: more than {limit} instructions")


@dataclass(slots=True)
class _Block:
    number: int
    left: int
    waiting: list[_Warp] = field(default_factory=list)
    arrivals: dict[int, float] = field(default_factory=dict)
    """When a sector is in L1."""


@dataclass(slots=True)
class _Warp:
    block: _Block
    place: int
    counter: int = 0
    scoreboards: list[float] = field(default_factory=lambda: [0.0] * 6)


def played(warps: Sequence[Sequence[Step]], *, resident: int, blocks: int) -> list[float]:
    """Cycles at which each of ``blocks`` equal blocks ends on an SM that holds ``resident`` of them."""
    queue: list[tuple[float, int, _Warp]] = []
    slots, memory = [0.0] * SCHEDULERS, 0.0
    pipes = [dict[str, float]() for _ in range(SCHEDULERS)]
    ends: list[float] = []
    shared: dict[int, float] = {}
    started = 0

    def push(at: float, warp: _Warp) -> None:
        heapq.heappush(queue, (at, warp.block.number * len(warps) + warp.place, warp))

    def start(at: float) -> None:
        nonlocal started
        block = _Block(number=started, left=len(warps))
        started += 1
        for place in range(len(warps)):
            push(at, _Warp(block=block, place=place))

    def release(block: _Block, at: float) -> None:
        if block.left == len(block.waiting):
            for warp in block.waiting:
                push(at + LATENCY["barrier"], warp)
            block.waiting = []

    for _ in range(min(resident, blocks)):
        start(0.0)
    while queue:
        now, _, warp = heapq.heappop(queue)
        step = warps[warp.place][warp.counter]
        scheduler = (warp.block.number + warp.place) % SCHEDULERS
        pipe = sass.pipe_of(step.opcode) if step.opcode else "control"
        at = max(now, slots[scheduler], pipes[scheduler].get(pipe, 0.0), memory - QUEUE if pipe == "memory" else 0.0)
        for board, ready in enumerate(warp.scoreboards):
            if step.control.waits >> board & 1:
                at = max(at, ready)
        if at > now:
            push(at, warp)
            continue
        slots[scheduler] = now + 1.0
        pipes[scheduler][pipe] = now + INTERVAL.get(pipe, 0.0)
        latency = LATENCY.get(step.opcode, LATENCY["xu"] if pipe == "xu" else 6.0)
        if pipe == "memory":
            memory = max(memory, now) + 1.0
            if step.sector is not None:
                arrivals = shared if step.is_shared else warp.block.arrivals
                arrival = arrivals.setdefault(step.sector, now + LATENCY["global"])
                latency = max(LATENCY["again"], arrival - now)
            elif step.opcode not in LATENCY:
                latency = LATENCY["store"]
            latency += memory - now
        if step.control.sets < 6:
            warp.scoreboards[step.control.sets] = now + latency
        if step.control.frees < 6:
            warp.scoreboards[step.control.frees] = max(warp.scoreboards[step.control.frees], now + LATENCY["store"])
        warp.counter += 1
        if step.opcode == "EXIT":
            warp.block.left -= 1
            if not warp.block.left:
                ends.append(now)
                if started < blocks:
                    start(now + 1.0)
            else:
                release(warp.block, now)
        elif step.opcode == "BAR":
            warp.block.waiting.append(warp)
            release(warp.block, now)
        else:
            push(now + max(step.control.stall, 1), warp)
    return ends


def a_row(warps: Sequence[Sequence[Step]], resident: int) -> float:
    """Cycles that a block takes an SM which is never short of them."""
    ends = played(warps, resident=resident, blocks=8 * resident)
    return (ends[-1] - ends[resident - 1]) / (len(ends) - resident)


def alone(warps: Sequence[Sequence[Step]]) -> float:
    """Cycles that a block takes which has the SM to itself; what every block reads is in L1."""
    first, second = played(warps, resident=1, blocks=2)
    return second - first


def warps_of(
    launch: ort_instructions.Launch, function: sass.Function, nvdisasm: Path, word: int
) -> list[Sequence[Step]]:
    """What the warps of a block in the middle of the grid issue, by their first lanes; memory reads as ``word``."""
    command = [str(nvdisasm), "-c", "-hex", "-fun", str(function.symbol), str(function.cubin)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    plain = "\n".join(re.sub(r"/\* 0x[0-9a-f]{16} \*/", "", line) for line in text.splitlines())
    code, table = sass.parse(plain, launch.name), controls(text, launch.name)
    if len(table) != len(code.instructions):
        raise sass.NotInterpretedError(f"{launch.name}: {len(table)} control codes")
    bank = sass.constant_bank(function, launch.grid, launch.block, launch.arguments)
    middle = prod(launch.grid) // 3
    found, others = (
        [
            Recorder(code, bank, _special(launch, place, 32 * warp), word).steps(table)
            for warp in range(-(-prod(launch.block) // 32))
        ]
        for place in (middle, middle + 1)
    )
    return [_with_shared(*pair) for pair in zip(found, others, strict=True)]


def _special(launch: ort_instructions.Launch, place: int, thread: int) -> dict[str, int]:
    """Special registers of a thread of the block at a place in the grid."""
    names = "XYZ"
    found = {}
    for register, index, sizes in (("TID", thread, launch.block), ("CTAID", place, launch.grid)):
        for name, size in zip(names, sizes, strict=True):
            found[f"SR_{register}.{name}"] = index % size
            index //= size
    return found


def _with_shared(steps: Sequence[Step], neighbours: Sequence[Step]) -> Sequence[Step]:
    """A warp's steps, told which loads the next block does at the same place."""
    if len(steps) != len(neighbours):
        return steps
    return [
        replace(step, is_shared=True) if step.sector is not None and step.sector == other.sector else step
        for step, other in zip(steps, neighbours, strict=True)
    ]


def resident_blocks(threads: int, registers: int, most_threads: int) -> int:
    """Blocks that an SM of ``most_threads`` holds, 32 at most; a warp's registers come in units of 256."""
    warps = -(-threads // 32)
    return max(min(most_threads // (32 * warps), MAX_REGISTERS // (warps * 256 * -(-registers // 8)), 32), 1)
