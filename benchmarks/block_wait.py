"""How long a block of ONNX Runtime's row kernels waits for itself, from its machine code. No GPU is needed.

    python benchmarks/block_wait.py SITE-PACKAGES [--capability 8.0] [--only TEXT]

SITE-PACKAGES is as for ``ort_instructions.py``, whose cases are launched on stand-ins for CUDA's libraries again. All
warps of a block are interpreted (``sass.py``), and what they issued is played on an SM of four schedulers: an
instruction waits the cycles and for the scoreboards that its control code names, which the compiler wrote for the
hardware; a barrier waits for the block's last warp; pipes and the queue of memory instructions take what
``ort_instructions.py`` says. Latencies of what has no fixed one are published measurements (``LATENCY``). DRAM's
bandwidth is left out: bytes have a law of their own. Printed are, in cycles: the issue slots that a row takes, a block
alone on its SM, and what a row takes an SM that holds as many blocks as it can, 1,024 and 2,048 threads.
"""

from __future__ import annotations

import argparse
import heapq
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import onnx

import cuda_standin
import ort_instructions
import sass
from neusight_onnx import load_gpu

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
"""Cycles until a result is there. "global": DRAM, A100 466, H100 479 (Luo et al., "Benchmarking and Dissecting the
Nvidia Hopper GPU Architecture via Microbenchmarking", 2024); "again": what the block read before, in L1, 32 on T4 and
38 on A100; LDS 19 to 30 (Jia et al., "Dissecting the NVidia Turing T4 GPU via Microbenchmarking", 2019, and Luo et
al.; as remembered, like all of these); SHFL as that. The others are taken for short ones."""

INTERVAL: Mapping[str, float] = {"fp32": 2.0, "imad": 2.0, "alu": 2.0, "half": 2.0, "xu": 8.0, "fp64": 16.0}
"""Cycles of a scheduler's pipe a warp: 16 lanes, special functions 4 (``ort_instructions.LANES``)."""
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
    """An instruction that a warp issued; ``opcode`` "" if its predicate was false, ``fresh`` if it reads new memory."""

    control: Control
    opcode: str
    fresh: bool = False


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
        counter, found, seen = 0, [], set[str]()
        for _ in range(limit):
            instruction, control = self.code.instructions[counter], table[counter]
            counter += 1
            if instruction.guard and not self.predicate(instruction.guard.lstrip("@")):
                found.append(Step(control=control, opcode=""))
                continue
            base = instruction.opcode.split(".")[0]
            fresh = False
            if base in ("LDG", "LD"):
                address = re.findall(r"\[([^\[\]]*)\]", " ".join(instruction.operands))[-1]
                place = str(self.offset(re.sub(r"\.(64|U32|X\d+)", "", address)))
                fresh = place not in seen
                seen.add(place)
            found.append(Step(control=control, opcode=base, fresh=fresh))
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
            if step.opcode in ("LDG", "LD"):
                latency = LATENCY["global" if step.fresh else "again"]
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
    ends = played(warps, resident=resident, blocks=20 * resident)
    return (ends[-1] - ends[resident - 1]) / (len(ends) - resident)


def warps_of(launch: ort_instructions.Launch, function: sass.Function, text: str, word: int) -> list[list[Step]]:
    """What the warps of a block in the middle of the grid issue, by their first lanes."""
    bank = sass.constant_bank(function, launch.grid, launch.block, launch.arguments)
    plain = "\n".join(re.sub(r"/\* 0x[0-9a-f]{16} \*/", "", line) for line in text.splitlines())
    code, table = sass.parse(plain, launch.name), controls(text, launch.name)
    place, (x, y, _) = prod(launch.grid) // 3, launch.grid
    found = []
    for warp in range(-(-prod(launch.block) // 32)):
        thread = warp * 32
        special = {
            "SR_TID.X": thread % launch.block[0],
            "SR_TID.Y": thread // launch.block[0] % launch.block[1],
            "SR_TID.Z": thread // launch.block[0] // launch.block[1],
            "SR_CTAID.X": place % x,
            "SR_CTAID.Y": place // x % y,
            "SR_CTAID.Z": place // x // y,
        }
        found.append(Recorder(code, bank, special, word).steps(table))
    return found


def resident_blocks(threads: int, registers: int, most_threads: int) -> int:
    """Blocks that an SM of ``most_threads`` holds; a warp's registers come in units of 256."""
    warps = -(-threads // 32)
    return max(min(most_threads // (32 * warps), MAX_REGISTERS // (warps * 256 * -(-registers // 8))), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site_packages", type=Path)
    parser.add_argument("--capability", default="8.0", help="of the machine code (default: 8.0)")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose label contains it")
    options = parser.parse_args()
    site: Path = options.site_packages.resolve()
    provider = site / "onnxruntime/capi/libonnxruntime_providers_cuda.so"
    tools = {name: next(iter(site.glob(f"nvidia/*/bin/{name}")), None) for name in ("cuobjdump", "nvdisasm")}
    cuobjdump, nvdisasm = tools["cuobjdump"], tools["nvdisasm"]
    if not provider.is_file() or cuobjdump is None or nvdisasm is None:
        sys.exit(f"error: {site} lacks onnxruntime-gpu, nvidia-cuda-cuobjdump or nvidia-cuda-nvdisasm")
    print(f"{'case':52}{'':7}{'threads':>8}{'issue':>8}{'alone':>8}{'1,024':>8}{'2,048':>8}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        cuda_standin.build(site, folder / "stand-ins", load_gpu("a100"))
        architecture = f"sm_{options.capability.replace('.', '')}"
        table = ort_instructions.cubins_of(provider, cuobjdump, architecture, folder / "code")
        layouts = folder / "layouts"
        layouts.write_bytes(ort_instructions.layouts_of(table))
        for case in ort_instructions.CASES:
            if options.only not in case.label:
                continue
            for dtype in ("half", "float"):
                path = folder / "model.onnx"
                onnx.save(ort_instructions.model_of(case, dtype), path)
                for launch in ort_instructions.launches_of(path, site, folder / "stand-ins", layouts):
                    if launch.name not in table or case.only not in launch.name:
                        continue
                    function = table[launch.name]
                    command = [str(nvdisasm), "-c", "-hex", "-fun", str(function.symbol), str(function.cubin)]
                    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                    warps = warps_of(launch, function, text, ort_instructions.WORDS[dtype])
                    if not any(step.opcode == "BAR" for step in warps[0]):
                        continue
                    threads = prod(launch.block)
                    each = [a_row(warps, resident_blocks(threads, function.registers, most)) for most in (1024, 2048)]
                    issue = sum(map(len, warps)) / SCHEDULERS
                    alone = played(warps, resident=1, blocks=1)[0]
                    print(
                        f"{case.label:52}{dtype:7}{threads:8}{issue:8.0f}{alone:8.0f}{each[0]:8.0f}{each[1]:8.0f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
