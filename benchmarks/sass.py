"""Runs threads of a CUDA kernel's machine code and counts their instructions, without a GPU.

What ``nvdisasm -c`` prints of a kernel (compute capability 7.5 to 9.0) is interpreted for one thread at a time:
integers, predicates and branches exactly, floating point in single precision, memory as far as the thread wrote it
itself (what it didn't write reads as a given word). So loops and branches are taken as a launch of a given size takes
them, and each instruction that a warp issues is counted once, by the pipe that executes it. An instruction whose
predicate is false takes its issue slot, too, but no pipe.

Which pipe: NVIDIA's CUDA programming guide, "Throughput of Native Arithmetic Instructions", counts what follows apart:
FP32 and integer multiply-adds, other integer and logic instructions, halves, conversions and special functions. Loads
and stores: global, shared and local memory, shuffles.
"""

from __future__ import annotations

import math
import re
import struct
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

MASK = 0xFFFFFFFF
LINE = re.compile(r"^\s*(?:/\*([0-9a-f]+)\*/)?\s*(?:(@!?U?P[0-9T]+)\s+)?([A-Z][A-Z0-9_.]*)\s*(.*?)\s*;")
LABEL = re.compile(r"^\s*(\.L_x?_?\d+|\.L_[\w$]+|[\w$]+):\s*$")
CONSTANT = re.compile(r"^c\[(?:0x)?([0-9a-f]+)\]\s*\[(.*)\]$")

PIPES: Mapping[str, frozenset[str]] = {
    "fp32": frozenset(["FFMA", "FADD", "FMUL", "FSWZADD", "FFMA32I", "FADD32I", "FMUL32I"]),
    "imad": frozenset(["IMAD", "IDP", "IDP4A"]),
    "half": frozenset(["HADD2", "HMUL2", "HFMA2", "HSETP2", "HSET2", "HMNMX2", "HADD2_32I", "HFMA2_32I", "HMUL2_32I"]),
    "xu": frozenset(["MUFU", "F2F", "F2I", "I2F", "I2I", "FRND", "POPC", "FLO", "BREV"]),
    "fp64": frozenset(["DADD", "DMUL", "DFMA", "DSETP", "DMMA"]),
    "memory": frozenset(
        ["LDG", "STG", "LD", "ST", "LDS", "STS", "LDL", "STL", "SHFL", "ATOM", "ATOMS", "ATOMG", "RED"]
    ),
    "control": frozenset(
        [
            "BRA",
            "BSSY",
            "BSYNC",
            "BMOV",
            "EXIT",
            "CALL",
            "RET",
            "BAR",
            "NOP",
            "WARPSYNC",
            "S2R",
            "S2UR",
            "CS2R",
            "DEPBAR",
            "MEMBAR",
            "YIELD",
            "ERRBAR",
            "R2UR",
            "BREAK",
            "BRX",
            "CGAERRBAR",
            "ULDC",
            "LDC",
            "LDCU",
            "VOTE",
            "VOTEU",
            "B2R",
            "NANOSLEEP",
            "CCTL",
        ]
    ),
}
"""Opcodes by pipe; what is in none of them is "alu" (with a U in front: "control", the uniform pipe, issued alike)."""


@cache
def pipe_of(opcode: str) -> str:
    base = opcode.split(".")[0]
    for pipe, members in PIPES.items():
        if base in members:
            return pipe
    return "control" if base.startswith("U") and base not in ("UNKNOWN",) else "alu"


@dataclass(frozen=True, slots=True)
class Instruction:
    guard: str
    opcode: str
    operands: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A kernel's instructions, and where its labels stand."""

    name: str
    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int]


@dataclass(slots=True)
class Trace:
    """What one thread issued: instructions by pipe, their sum in ``issued``; what it asked of global memory.

    ``loads`` and ``load_bytes`` are those of global memory; ``in_flight_bytes``: most bytes that were asked for before
    one of them was used.
    """

    pipes: Counter[str] = field(default_factory=Counter)
    opcodes: Counter[str] = field(default_factory=Counter)
    issued: int = 0
    loads: int = 0
    load_bytes: int = 0
    stores: int = 0
    in_flight_bytes: int = 0


def parse(text: str, name: str) -> Code:
    """The kernel called ``name`` from what nvdisasm prints."""
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    inside = False
    for line in text.splitlines():
        if line.startswith("\t.section") or line.startswith("//----"):
            if inside and instructions:
                break
            continue
        match = LABEL.match(line)
        if match:
            if match.group(1) == name:
                inside = True
            labels[match.group(1)] = len(instructions)
            continue
        match = LINE.match(line)
        if match and inside:
            _, guard, opcode, rest = match.groups()
            rest = re.sub(r"&\w+=\{[^}]*\}|&\w+=\S+|\?\w+|\(\*.*?\*\)", "", rest)
            operands = tuple(part.strip() for part in _split(rest)) if rest.strip() else ()
            instructions.append(Instruction(guard or "", opcode, operands, line.strip()))
    return Code(name=name, instructions=tuple(instructions), labels=labels)


def _split(operands: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for character in operands:
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [*parts, current]


def _float(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits & MASK))[0])


def _bits(value: float) -> int:
    try:
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    except OverflowError:
        return 0x7F800000 if value > 0 else 0xFF800000


def _half(bits: int) -> float:
    return float(struct.unpack("<e", struct.pack("<H", bits & 0xFFFF))[0])


def _half_bits(value: float) -> int:
    try:
        return int(struct.unpack("<H", struct.pack("<e", value))[0])
    except (OverflowError, ValueError):
        return 0x7C00 if value > 0 else 0xFC00


def _signed(value: int) -> int:
    value &= MASK
    return value - (1 << 32) if value & 0x80000000 else value


class NotInterpretedError(Exception):
    """An instruction that the interpreter doesn't know."""


class Thread:
    """One thread of a launch.

    ``constants``: bank 0 as the driver fills it (sizes of the launch, the kernel's arguments); ``special``: registers
    such as SR_TID.X; ``word``: what memory reads as where the thread wrote nothing.
    """

    def __init__(self, code: Code, constants: bytes, special: Mapping[str, int], word: int) -> None:
        self.code = code
        self.constants = constants
        self.special = special
        self.word = word
        self.registers: dict[str, int] = {}
        self.predicates: dict[str, bool] = {}
        self.memory: dict[tuple[str, int], int] = {}
        self.pending: dict[str, int] = {}
        self.trace = Trace()
        self.calls: list[int] = []

    # operands

    def constant(self, bank: int, offset: int) -> int:
        if bank != 0 or offset < 0 or offset + 4 > len(self.constants):
            return 0
        return int(struct.unpack_from("<I", self.constants, offset)[0])

    def raw(self, operand: str) -> tuple[int, bool, bool, bool, str]:
        """(bits, negated, absolute, inverted, suffix such as H0_H0) of a source operand."""
        text = operand.strip()
        negated = absolute = inverted = False
        while True:
            if text.startswith("-") and not re.match(r"-(0x)?[0-9]|-INF|-QNAN", text):
                negated, text = not negated, text[1:]
            elif text.startswith("~"):
                inverted, text = True, text[1:]
            elif text.startswith("|"):
                absolute, text = True, text.replace("|", "")
            else:
                break
        suffix = ""
        match = CONSTANT.match(text) or re.match(r"^c\[(?:0x)?([0-9a-f]+)\]\s*\[([^]]*)\](\..*)$", text)
        if match:
            if match.lastindex == 3:
                suffix = match.group(3)
            return (
                self.constant(int(match.group(1), 16), self.offset(match.group(2))),
                negated,
                absolute,
                inverted,
                suffix,
            )
        if re.match(r"^U?R(Z|\d+)", text):
            name, _, suffix = text.partition(".")
            return self.read(name), negated, absolute, inverted, suffix
        if text in ("INF", "+INF"):
            return 0x7F800000, negated, absolute, inverted, "float"
        if text == "-INF":
            return 0xFF800000, negated, absolute, inverted, "float"
        if "QNAN" in text or "SNAN" in text:
            return 0x7FC00000, negated, absolute, inverted, "float"
        if text.startswith("SR_") or text.startswith("SRZ"):
            return self.special.get(text, 0), negated, absolute, inverted, ""
        if re.match(r"^-?0x[0-9a-f]+$", text):
            return int(text, 16) & MASK, negated, absolute, inverted, ""
        if re.match(r"^-?[0-9.]+(e[+-]?\d+)?$", text):
            if re.match(r"^-?\d+$", text):
                return int(text) & MASK, negated, absolute, inverted, "decimal"
            return _bits(float(text)), negated, absolute, inverted, "float"
        raise NotInterpretedError(f"operand {operand}")

    def offset(self, text: str) -> int:
        total = 0
        for part in re.findall(r"[+-]?[^+-]+", text.replace(" ", "")):
            sign = -1 if part.startswith("-") else 1
            part = part.lstrip("+-")
            if part.startswith(("R", "UR")):
                name = part.split(".")[0]
                total += sign * _signed(self.read(name))
            elif part.startswith("desc"):
                continue
            else:
                total += sign * int(part, 16)
        return total

    def read(self, name: str) -> int:
        if name in self.pending:
            self._arrive()
        return self.registers.get(name, 0)

    def _arrive(self) -> None:
        self.trace.in_flight_bytes = max(self.trace.in_flight_bytes, sum(self.pending.values()))
        self.pending.clear()

    def integer(self, operand: str) -> int:
        bits, negated, absolute, inverted, suffix = self.raw(operand)
        if suffix in ("B0", "B1", "B2", "B3"):
            bits = bits >> 8 * int(suffix[1]) & 0xFF
        if suffix in ("H0", "H1", "H0_H0", "H1_H1"):
            bits = bits >> 16 * int(suffix[1]) & 0xFFFF
        if absolute:
            bits = abs(_signed(bits))
        if inverted:
            bits = ~bits
        if negated:
            bits = -bits
        return bits & MASK

    def real(self, operand: str) -> float:
        bits, negated, absolute, _, suffix = self.raw(operand)
        if suffix == "decimal":
            value = float(_signed(bits))
        elif suffix.strip(".") in ("H0_H0", "H1_H1"):
            value = _half(bits >> (16 if "H1" in suffix else 0))
        else:
            value = _float(bits)
        value = abs(value) if absolute else value
        return -value if negated else value

    def pair(self, operand: str) -> tuple[float, float]:
        """Two halves of an operand."""
        bits, negated, absolute, _, suffix = self.raw(operand)
        suffix = suffix.strip(".").replace("reuse", "").strip(".")
        if suffix in ("float", "decimal"):
            value = _float(bits) if suffix == "float" else float(_signed(bits))
            low = high = value
        elif suffix == "F32":
            low = high = _float(bits)
        else:
            low, high = _half(bits), _half(bits >> 16)
            if suffix == "H0_H0":
                high = low
            elif suffix == "H1_H1":
                low = high
        if absolute:
            low, high = abs(low), abs(high)
        return (-low, -high) if negated else (low, high)

    def predicate(self, operand: str) -> bool:
        text = operand.strip()
        inverted = text.startswith("!")
        name = text.lstrip("!").split(".")[0]
        value = True if name in ("PT", "UPT") else self.predicates.get(name, False)
        return value != inverted

    def write(self, operand: str, value: int) -> None:
        name = operand.strip().split(".")[0]
        self.pending.pop(name, None)
        if name not in ("RZ", "URZ"):
            self.registers[name] = value & MASK

    def set_predicate(self, operand: str, value: bool) -> None:
        name = operand.strip()
        if name not in ("PT", "UPT"):
            self.predicates[name] = value

    def wide(self, operand: str) -> int:
        """A pair of registers, or constants."""
        text = operand.strip()
        negated = text.startswith("-") and not text.startswith("-0x")
        text = text.lstrip("-") if negated else text
        if text.startswith(("R", "UR")):
            name = text.split(".")[0]
            prefix = "UR" if name.startswith("UR") else "R"
            if name.endswith("Z"):
                return 0
            number = int(name[len(prefix) :])
            value = self.read(name) | self.read(f"{prefix}{number + 1}") << 32
        else:
            match = CONSTANT.match(text)
            if match:
                offset = self.offset(match.group(2))
                value = self.constant(0, offset) | self.constant(0, offset + 4) << 32
                if int(match.group(1), 16):
                    value = 0
            else:
                value = int(text, 16) & (2**64 - 1)
        return -value if negated else value

    def write_wide(self, operand: str, value: int) -> None:
        name = operand.strip().split(".")[0]
        if name.endswith("Z"):
            return
        prefix = "UR" if name.startswith("UR") else "R"
        number = int(name[len(prefix) :])
        self.write(name, value & MASK)
        self.write(f"{prefix}{number + 1}", value >> 32 & MASK)

    # execution

    def run(self, limit: int = 400_000) -> Trace:
        """Until the thread ends.

        Raises NotInterpretedError for an unknown instruction, or after ``limit`` of them.
        """
        counter = 0
        for _ in range(limit):
            instruction = self.code.instructions[counter]
            self.trace.issued += 1
            counter += 1
            if instruction.guard and not self.predicate(instruction.guard.lstrip("@")):
                continue
            self.trace.pipes[pipe_of(instruction.opcode)] += 1
            self.trace.opcodes[instruction.opcode] += 1
            base = instruction.opcode.split(".")[0]
            if base == "EXIT":
                self._arrive()
                return self.trace
            if base in ("BRA", "CALL", "BRX", "RET"):
                counter = self._jump(base, instruction, counter)
            else:
                try:
                    self._execute(base, instruction)
                except (NotInterpretedError, ValueError, IndexError, KeyError, ZeroDivisionError) as error:
                    raise NotInterpretedError(f"{instruction.text}: {error}") from error
        raise NotInterpretedError(f"{self.code.name}: more than {limit} instructions")

    def _jump(self, base: str, instruction: Instruction, counter: int) -> int:
        operands = list(instruction.operands)
        while len(operands) > 1:
            if not self.predicate(operands.pop(0)):
                return counter
        if base == "RET":
            return self.calls.pop()
        match = re.search(r"`\((.*?)\)", operands[0])
        if not match or match.group(1) not in self.code.labels:
            raise NotInterpretedError(instruction.text)
        if base == "CALL":
            self.calls.append(counter)
        return self.code.labels[match.group(1)]

    def _execute(self, base: str, instruction: Instruction) -> None:
        operands = instruction.operands
        modifiers = instruction.opcode.split(".")[1:]
        name = base[1:] if base.startswith("U") and base[1:] in _UNIFORM else base
        method = getattr(self, f"_op_{name.lower()}", None)
        if method is not None:
            method(operands, modifiers)
        elif name in _NOTHING:
            return
        elif name in _MEMORY:
            self._access(name, operands, modifiers)
        else:
            raise NotInterpretedError("unknown")

    def _access(self, name: str, operands: Sequence[str], modifiers: Sequence[str]) -> None:
        bits = next((int(m) for m in modifiers if m in ("64", "128")), 32)
        for size in ("U8", "S8", "U16", "S16"):
            if size in modifiers:
                bits = int(size[1:])
        space = name[2:] or "G"
        store = name.startswith("ST")
        address = next(part for part in operands if "[" in part)
        inside = re.findall(r"\[([^\[\]]*)\]", address)[-1]
        place = self.offset(re.sub(r"\.(64|U32|X\d+)", "", inside)) if inside else 0
        words = max(1, bits // 32)
        if store:
            source = operands[operands.index(address) + 1]
            for index in range(words):
                self.memory[space, place + 4 * index] = self._part(source, index)
            if space == "G":
                self.trace.stores += 1
            return
        target = operands[0] if not operands[0].startswith("P") else operands[1]
        register = target.split(".")[0]
        self._reread(inside)
        for index in range(words):
            value = self.memory.get((space, place + 4 * index), self.word)
            if bits < 32:
                value &= (1 << bits) - 1
            part = self._register(register, index)
            self.write(part, value)
            if space == "G" and part not in ("RZ",):
                self.pending[part] = bits // 8 if words == 1 else 4
        if space == "G":
            self.trace.loads += 1
            self.trace.load_bytes += bits // 8

    def _reread(self, inside: str) -> None:
        for part in re.findall(r"U?R\d+", inside):
            self.read(part)

    def _register(self, name: str, step: int) -> str:
        if name.endswith("Z"):
            return name
        prefix = "UR" if name.startswith("UR") else "R"
        return f"{prefix}{int(name[len(prefix) :]) + step}"

    def _part(self, source: str, step: int) -> int:
        name = source.strip().split(".")[0]
        return self.read(self._register(name, step))

    # integers

    def _op_mov(self, operands: Sequence[str], _: Sequence[str]) -> None:
        self.write(operands[0], self.integer(operands[1]))

    def _op_s2r(self, operands: Sequence[str], _: Sequence[str]) -> None:
        self.write(operands[0], self.special.get(operands[1].strip(), 0))

    _op_s2ur = _op_cs2r = _op_s2r

    def _op_r2ur(self, operands: Sequence[str], _: Sequence[str]) -> None:
        self.write(operands[-2], self.integer(operands[-1]))

    def _op_ldc(self, operands: Sequence[str], modifiers: Sequence[str]) -> None:
        match = re.match(r"^c\[(?:0x)?([0-9a-f]+)\]\s*\[(.*)\]$", operands[1].strip())
        assert match
        offset = self.offset(match.group(2))
        bank = int(match.group(1), 16)
        value = self.constant(bank, offset)
        self.write(operands[0], value)
        if "64" in modifiers:
            self.write(self._register(operands[0].strip(), 1), self.constant(bank, offset + 4))
        if "U8" in modifiers or "S8" in modifiers:
            self.write(operands[0], value & 0xFF)

    _op_uldc = _op_ldcu = _op_ldc

    def _op_imad(self, operands: Sequence[str], modifiers: Sequence[str]) -> None:
        parts = list(operands)
        carry_out = parts.pop(1).strip() if re.match(r"^\s*U?P[0-9T]$", parts[1]) else None
        carry_in = "X" in modifiers
        if "WIDE" in modifiers:
            a, b = self.integer(parts[1]), self.integer(parts[2])
            product = a * b if "U32" in modifiers else _signed(a) * _signed(b)
            self.write_wide(parts[0], product + self.wide(parts[3]))
            return
        a, b = self.integer(parts[1]), self.integer(parts[2])
        if "HI" in modifiers:
            # the addend is the upper word of a pair
            third = self.wide(parts[3]) if not parts[3].strip().endswith("Z") else 0
            product = (a * b if "U32" in modifiers else _signed(a) * _signed(b)) + third
            self.write(parts[0], product >> 32)
            return
        total = a * b + self.integer(parts[3]) + (int(self.predicate(parts[4])) if carry_in and len(parts) > 4 else 0)
        if carry_out:
            self.set_predicate(carry_out, total > MASK)
        self.write(parts[0], total)

    def _op_iadd3(self, operands: Sequence[str], modifiers: Sequence[str]) -> None:
        parts = [part.strip() for part in operands]
        carries = []
        while re.match(r"^U?P[0-9T]$", parts[1]):
            carries.append(parts.pop(1))
        total = sum(self.integer(part) for part in parts[1:4])
        # -x is ~x + 1, whose carry counts for x = 0
        total += sum(
            1 << 32
            for part in parts[1:4]
            if part.startswith("-")
            and not part.startswith("-0x")
            and self.integer(part) == 0
            and not part.endswith("Z")
        )
        if "X" in modifiers:
            total = 0
            for part in parts[1:4]:
                total += self.integer(part)
            total += sum(int(self.predicate(part)) for part in parts[4:])
        if carries:
            self.set_predicate(carries[0], total >> 32 & 1 == 1 or total >> 33 & 1 == 1)
            for other in carries[1:]:
                self.set_predicate(other, total >> 33 & 1 == 1)
        self.write(parts[0], total)

    def _op_viadd(self, operands: Sequence[str], _: Sequence[str]) -> None:
        self.write(operands[0], self.integer(operands[1]) + self.integer(operands[2]))

    def _op_iadd(self, operands: Sequence[str], _: Sequence[str]) -> None:
        self.write(operands[0], self.integer(operands[1]) + self.integer(operands[2]))

    def _op_lea(self, operands: Sequence[str], modifiers: Sequence[str]) -> None:
        parts = [part.strip() for part in operands]
        carry = parts.pop(1) if re.match(r"^U?P[0-9T]$", parts[1]) else None
        if "HI" in modifiers:
            if "SX32" in modifiers:  # the upper word is the sign's
                parts.insert(3, "RZ")
            low, high = self.integer(parts[1]), self.integer(parts[3])
            shift = self.integer(parts[4])
            value = (high << 32 | low) << shift >> 32
            if "SX32" in modifiers:
                value = _signed(low) << shift >> 32
            value = (value & MASK) + self.integer(parts[2])
            if "X" in modifiers and len(parts) > 5:
                value += int(self.predicate(parts[5]))
            self.write(parts[0], value)
            return
        shift = self.integer(parts[3])
        total = (self.integer(parts[1]) << shift & MASK) + self.integer(parts[2])
        if carry:
            self.set_predicate(carry, total > MASK)
        self.write(parts[0], total)

    def _op_shf(self, operands: Sequence[str], modifiers: Sequence[str]) -> None:
        low, amount, high = (self.integer(part) for part in operands[1:4])
        wide = 64 if "S64" in modifiers or "U64" in modifiers else 32
        amount = min(amount, wide) if "W" not in modifiers else amount % wide
        value = high << 32 | low
        signed = "S32" in modifiers or "S64" in modifiers
        if "R" in modifiers:
            if signed and value >> 63:
                value -= 1 << 64
            shifted = value >> amount
            self.write(operands[0], shifted >> 32 if "HI" in modifiers else shifted)
        else:
            shifted = value << amount
            self.write(operands[0], shifted >> 32 if "HI" in modifiers else shifted)

    def _op_lop3(self, operands: Sequence[str], modifiers: Sequence[str]) -> None:
        parts = [part.strip() for part in operands]
        out = parts.pop(0) if re.match(r"^U?P[0-9T]$", parts[0]) else None
        a, b, c = (self.integer(part) for part in parts[1:4])
        table = int(parts[4], 16)
        result = 0
        for index in range(8):
            if table >> index & 1:
                result |= (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
        result &= MASK
        del modifiers
        if out:
            self.set_predicate(out, result != 0)
        self.write(parts[0], result)

    def _op_plop3(self, operands: Sequence[str], _: Sequence[str]) -> None:
        parts = [part.strip() for part in operands]
        a, b, c = (self.predicate(part) for part in parts[2:5])
        index = (int(a) << 2) | (int(b) << 1) | int(c)
        self.set_predicate(parts[0], bool(int(parts[5], 16) >> index & 1))
        self.set_predicate(parts[1], bool(int(parts[6], 16) >> index & 1))

    def _compare(self, modifiers: Sequence[str], a: float, b: float) -> bool:
        for modifier in modifiers:
            match modifier.removesuffix("U") if modifier not in ("NEU", "NUM", "NAN") else modifier:
                case "GE":
                    return a >= b
                case "GT":
                    return a > b
                case "LE":
                    return a <= b
                case "LT":
                    return a < b
                case "EQ":
                    return a == b
                case "NE" | "NEU":
                    return a != b
                case "NAN":
                    return math.isnan(a) or math.isnan(b)
                case "NUM":
                    return not (math.isnan(a) or math.isnan(b))
        raise NotInterpretedError(f"comparison {modifiers}")

    def _combined(self, modifiers: Sequence[str], compared: bool, other: bool) -> bool:
        if "OR" in modifiers:
            return compared or other
        if "XOR" in modifiers:
            return compared != other
        return compared and other

    def _set(self, operands: Sequence[str], modifiers: Sequence[str], a: float, b: float) -> None:
        other = self.predicate(operands[4]) if len(operands) > 4 else True
        compared = self._compare(modifiers, a, b)
        self.set_predicate(operands[0], self._combined(modifiers, compared, other))
        self.set_predicate(operands[1], self._combined(modifiers, not compared, other))

    def _op_isetp(self, operands: Sequence[str], modifiers: Sequence[str]) -> None:
        a, b = self.integer(operands[2]), self.integer(operands[3])
        if "EX" in modifiers:
            # the upper words of a comparison in 64 bits, whose lower words are the last operand
            signed = "U32" not in modifiers
            high = (_signed(a), _signed(b)) if signed else (a, b)
            lower = self.predicate(operands[5])
            if high[0] != high[1] or "EQ" in modifiers or "NE" in modifiers:
                compared = self._compare(modifiers, *high)
                if high[0] == high[1]:
                    compared = lower
            else:
                compared = lower
            self.set_predicate(operands[0], self._combined(modifiers, compared, self.predicate(operands[4])))
            self.set_predicate(operands[1], self._combined(modifiers, not compared, self.predicate(operands[4])))
            return
        if "U32" in modifiers:
            self._set(operands, modifiers, a, b)
        else:
            self._set(operands, modifiers, _signed(a), _signed(b))

    def _op_sel(self, operands: Sequence[str], _: Sequence[str]) -> None:
        self.write(operands[0], self.integer(operands[1] if self.predicate(operands[3]) else operands[2]))

    def _op_imnmx(self, operands: Sequence[str], modifiers: Sequence[str]) -> None:
        a, b = self.integer(operands[1]), self.integer(operands[2])
        if "U32" not in modifiers:
            a, b = _signed(a), _signed(b)
        self.write(operands[0], min(a, b) if self.predicate(operands[3]) else max(a, b))

    _op_vimnmx = _op_imnmx

    def _op_viaddmnmx(self, operands: Sequence[str], modifiers: Sequence[str]) -> None:
        """The lesser or the greater of a sum of two and a third; RELU: not below 0."""
        a, b = (self.integer(operands[1]) + self.integer(operands[2])) & MASK, self.integer(operands[3])
        if "U32" not in modifiers:
            a, b = _signed(a), _signed(b)
        found = min(a, b) if self.predicate(operands[4]) else max(a, b)
        self.write(operands[0], max(found, 0) if "RELU" in modifiers else found)

    def _op_iabs(self, operands: Sequence[str], _: Sequence[str]) -> None:
        self.write(operands[0], abs(_signed(self.integer(operands[1]))))

    def _op_prmt(self, operands: Sequence[str], _: Sequence[str]) -> None:
        a, selector, b = (self.integer(part) for part in operands[1:4])
        pool = (b << 32 | a).to_bytes(8, "little")
        result = 0
        for index in range(4):
            pick = selector >> 4 * index & 0xF
            byte = pool[pick & 7]
            if pick & 8:
                byte = 0xFF if byte & 0x80 else 0
            result |= byte << 8 * index
        self.write(operands[0], result)

    def _op_sgxt(self, operands: Sequence[str], modifiers: Sequence[str]) -> None:
        width = self.integer(operands[2])
        value = self.integer(operands[1]) & ((1 << width) - 1)
        if "U32" not in modifiers and width and value >> width - 1:
            value -= 1 << width
        self.write(operands[0], value)

    def _op_bmsk(self, operands: Sequence[str], _: Sequence[str]) -> None:
        self.write(operands[0], ((1 << self.integer(operands[2])) - 1) << self.integer(operands[1]))

    def _op_flo(self, operands: Sequence[str], _: Sequence[str]) -> None:
        value = self.integer(operands[1])
        self.write(operands[0], value.bit_length() - 1 if value else MASK)

    def _op_popc(self, operands: Sequence[str], _: Sequence[str]) -> None:
        self.write(operands[0], self.integer(operands[1]).bit_count())

    def _op_p2r(self, operands: Sequence[str], _: Sequence[str]) -> None:
        bits = sum(1 << index for index in range(7) if self.predicates.get(f"P{index}"))
        self.write(operands[0], bits)

    def _op_r2p(self, operands: Sequence[str], _: Sequence[str]) -> None:
        bits, mask = self.integer(operands[1]), self.integer(operands[2])
        for index in range(7):
            if mask >> index & 1:
                self.predicates[f"P{index}"] = bool(bits >> index & 1)

    # floating point

    def _op_fadd(self, operands: Sequence[str], _: Sequence[str]) -> None:
        self.write(operands[0], _bits(self.real(operands[1]) + self.real(operands[2])))

    def _op_fmul(self, operands: Sequence[str], _: Sequence[str]) -> None:
        self.write(operands[0], _bits(self.real(operands[1]) * self.real(operands[2])))

    def _op_ffma(self, operands: Sequence[str], _: Sequence[str]) -> None:
        a, b, c = (self.real(part) for part in operands[1:4])
        self.write(operands[0], _bits(a * b + c))

    def _op_fsetp(self, operands: Sequence[str], modifiers: Sequence[str]) -> None:
        self._set(operands, modifiers, self.real(operands[2]), self.real(operands[3]))

    def _op_fset(self, operands: Sequence[str], modifiers: Sequence[str]) -> None:
        compared = self._compare(modifiers, self.real(operands[1]), self.real(operands[2]))
        self.write(operands[0], _bits(1.0) if compared else 0)

    def _op_fsel(self, operands: Sequence[str], _: Sequence[str]) -> None:
        self.write(operands[0], _bits(self.real(operands[1] if self.predicate(operands[3]) else operands[2])))

    def _op_fmnmx(self, operands: Sequence[str], _: Sequence[str]) -> None:
        a, b = self.real(operands[1]), self.real(operands[2])
        self.write(operands[0], _bits(min(a, b) if self.predicate(operands[3]) else max(a, b)))

    def _op_fchk(self, operands: Sequence[str], _: Sequence[str]) -> None:
        self.set_predicate(operands[0], False)

    def _op_mufu(self, operands: Sequence[str], modifiers: Sequence[str]) -> None:
        value = self.real(operands[1])
        try:
            match modifiers[0]:
                case "RCP":
                    result = 1.0 / value
                case "RSQ":
                    result = 1.0 / math.sqrt(value)
                case "SQRT":
                    result = math.sqrt(value)
                case "EX2":
                    result = 2.0**value
                case "LG2":
                    result = math.log2(value)
                case "SIN":
                    result = math.sin(value)
                case "COS":
                    result = math.cos(value)
                case "TANH":
                    result = math.tanh(value)
                case _:
                    raise NotInterpretedError(f"function {modifiers}")
        except (ZeroDivisionError, ValueError, OverflowError):
            result = math.inf
        self.write(operands[0], _bits(result))

    def _op_f2f(self, operands: Sequence[str], modifiers: Sequence[str]) -> None:
        if modifiers[:2] == ["F16", "F32"]:
            self.write(operands[0], _half_bits(self.real(operands[1])))
        else:
            self.write(operands[0], self.integer(operands[1]))

    def _op_f2fp(self, operands: Sequence[str], modifiers: Sequence[str]) -> None:
        if "BF16" in modifiers:
            values = [_bits(self.real(part)) >> 16 for part in operands[1:3]]
        else:
            values = [_half_bits(self.real(part)) for part in operands[1:3]]
        self.write(operands[0], values[0] << 16 | values[1])

    def _op_i2f(self, operands: Sequence[str], modifiers: Sequence[str]) -> None:
        value = self.integer(operands[1])
        number = float(value if "U32" in modifiers else _signed(value))
        self.write(operands[0], _half_bits(number) if "F16" in modifiers else _bits(number))

    _op_i2fp = _op_i2f

    def _op_f2i(self, operands: Sequence[str], modifiers: Sequence[str]) -> None:
        value = self.real(operands[1])
        if not math.isfinite(value):
            value = 0.0
        self.write(operands[0], int(value))
        if any(m in ("S64", "U64") for m in modifiers):
            self.write_wide(operands[0], int(value))

    def _op_frnd(self, operands: Sequence[str], _: Sequence[str]) -> None:
        self.write(operands[0], _bits(float(math.floor(self.real(operands[1])))))

    def _halves(self, operands: Sequence[str], modifiers: Sequence[str], low: float, high: float) -> None:
        if "F32" in modifiers:
            self.write(operands[0], _bits(low))
        elif "BF16_V2" in modifiers or "BF16" in modifiers:
            self.write(operands[0], _bits(high) >> 16 << 16 | _bits(low) >> 16)
        else:
            self.write(operands[0], _half_bits(high) << 16 | _half_bits(low))

    def _op_hadd2(self, operands: Sequence[str], modifiers: Sequence[str]) -> None:
        a, b = self.pair(operands[1]), self.pair(operands[2])
        self._halves(operands, modifiers, a[0] + b[0], a[1] + b[1])

    def _op_hmul2(self, operands: Sequence[str], modifiers: Sequence[str]) -> None:
        a, b = self.pair(operands[1]), self.pair(operands[2])
        self._halves(operands, modifiers, a[0] * b[0], a[1] * b[1])

    def _op_hfma2(self, operands: Sequence[str], modifiers: Sequence[str]) -> None:
        if "MMA" in modifiers:
            modifiers = [m for m in modifiers if m != "MMA"]
        if len(operands) > 4:  # two numbers in place of a pair
            first = self.pair(operands[1])
            second = (self.real(operands[3]), self.real(operands[2]))
            third = self.pair(operands[4])
        else:
            first, second, third = (self.pair(part) for part in operands[1:4])
        self._halves(operands, modifiers, first[0] * second[0] + third[0], first[1] * second[1] + third[1])

    def _op_hmnmx2(self, operands: Sequence[str], modifiers: Sequence[str]) -> None:
        a, b = self.pair(operands[1]), self.pair(operands[2])
        pick = min if self.predicate(operands[3]) else max
        self._halves(operands, modifiers, pick(a[0], b[0]), pick(a[1], b[1]))

    def _op_hsetp2(self, operands: Sequence[str], modifiers: Sequence[str]) -> None:
        a, b = self.pair(operands[2]), self.pair(operands[3])
        other = self.predicate(operands[4])
        low, high = self._compare(modifiers, a[0], b[0]), self._compare(modifiers, a[1], b[1])
        self.set_predicate(operands[0], self._combined(modifiers, low, other))
        self.set_predicate(operands[1], self._combined(modifiers, high, other))

    # other lanes of the warp do the same

    def _op_shfl(self, operands: Sequence[str], _: Sequence[str]) -> None:
        self.set_predicate(operands[0], True)
        self.write(operands[1], self.integer(operands[2]))

    def _op_vote(self, operands: Sequence[str], _: Sequence[str]) -> None:
        for part in operands[:-1]:
            if re.match(r"^\s*U?P[0-9T]$", part):
                self.set_predicate(part, self.predicate(operands[-1]))
            else:
                self.write(part, MASK if self.predicate(operands[-1]) else 0)

    _op_voteu = _op_vote


_UNIFORM = frozenset(
    [
        "MOV",
        "IADD3",
        "IMAD",
        "LEA",
        "SHF",
        "LOP3",
        "ISETP",
        "SEL",
        "PLOP3",
        "PRMT",
        "SGXT",
        "BMSK",
        "FLO",
        "POPC",
        "P2R",
        "R2P",
        "VOTE",
        "IMNMX",
    ]
)
_NOTHING = frozenset(
    [
        "BSSY",
        "BSYNC",
        "BMOV",
        "BAR",
        "CGAERRBAR",
        "NOP",
        "WARPSYNC",
        "DEPBAR",
        "MEMBAR",
        "YIELD",
        "ERRBAR",
        "BREAK",
        "NANOSLEEP",
        "CCTL",
        "B2R",
        "RED",
        "ATOM",
        "ATOMG",
        "ATOMS",
        "UCGABAR_ARV",
        "UCGABAR_WAIT",
    ]
)
_MEMORY = frozenset(["LDG", "STG", "LD", "ST", "LDS", "STS", "LDL", "STL"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A kernel in a cubin: its place in the symbol table, where its arguments lie, what a thread and a block hold.

    ``arguments``: (offset, size) of each in bytes; they begin at ``bank_offset`` of constant bank 0.
    """

    cubin: Path
    symbol: int
    arguments: tuple[tuple[int, int], ...]
    bank_offset: int
    registers: int
    shared_bytes: int


_PARAMETER, _BANK, _REGISTERS = 0x17, 0x0A, 0x2F
"""Attributes of the sections .nv.info."""


def functions_of(cubin: Path) -> dict[str, Function]:
    """The kernels of a cubin, by their mangled names."""
    data = cubin.read_bytes()
    offset, entry, count, _ = struct.unpack_from("<Q10xHHH", data, 0x28)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + entry * index) for index in range(count)]
    strings_at = sections[struct.unpack_from("<H", data, 0x3E)[0]][4]

    def text(at: int) -> str:
        return data[at : data.index(b"\0", at)].decode()

    names = [text(strings_at + section[0]) for section in sections]
    symbols: dict[int, tuple[str, int]] = {}
    for section in sections:
        if section[1] == 2:
            strings = sections[section[6]][4]
            for index in range(section[5] // section[9]):
                name, kind, _, _, _, _ = struct.unpack_from("<IBBHQQ", data, section[4] + section[9] * index)
                symbols[index] = (text(strings + name), kind)
    texts = {name.removeprefix(".text.") for name in names if name.startswith(".text.")}
    by_name = {name: index for index, (name, kind) in symbols.items() if kind & 0xF == 2 and name in texts}
    registers: dict[int, int] = {}
    arguments: dict[str, list[tuple[int, int, int]]] = {}
    banks: dict[str, int] = {}
    shared: dict[str, int] = {}
    for name, section in zip(names, sections, strict=True):
        if name.startswith(".nv.shared."):
            shared[name.removeprefix(".nv.shared.")] = section[5]
        if not name.startswith(".nv.info"):
            continue
        kernel = name.removeprefix(".nv.info").removeprefix(".")
        at, end = section[4], section[4] + section[5]
        while at + 4 <= end:
            form, attribute, size = struct.unpack_from("<BBH", data, at)
            body = at + 4
            at = body + (size if form == 4 else 0)
            if form != 4:
                continue
            if attribute == _PARAMETER:
                _, ordinal, place, packed = struct.unpack_from("<IHHI", data, body)
                arguments.setdefault(kernel, []).append((ordinal, place, packed >> 18))
            elif attribute == _BANK:
                banks[kernel] = struct.unpack_from("<IHH", data, body)[1]
            elif attribute == _REGISTERS:
                index, value = struct.unpack_from("<II", data, body)
                registers[index] = value
    return {
        name: Function(
            cubin=cubin,
            symbol=index,
            arguments=tuple((place, size) for _, place, size in sorted(arguments.get(name, []))),
            bank_offset=banks.get(name, 0x160),
            registers=registers.get(index, 0),
            shared_bytes=shared.get(name, 0),
        )
        for name, index in by_name.items()
    }


def constant_bank(function: Function, grid: Sequence[int], block: Sequence[int], arguments: bytes) -> bytes:
    """Bank 0: the block's and the grid's sizes, then the arguments."""
    start = function.bank_offset
    bank = bytearray(start + len(arguments) + 64)
    struct.pack_into("<6I", bank, 0, *block, *grid)
    bank[start : start + len(arguments)] = arguments
    return bytes(bank)


def disassembled(nvdisasm: Path, function: Function) -> str:
    """What nvdisasm prints of a kernel."""
    command = [str(nvdisasm), "-c", "-fun", str(function.symbol), str(function.cubin)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
