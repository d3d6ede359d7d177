"""The interpreter of machine code that counts instructions (benchmarks/sass.py)."""

from __future__ import annotations

import importlib.util
import struct
import sys
from pathlib import Path
from typing import Any

import pytest


def _loaded() -> Any:
    path = Path(__file__).parents[1] / "benchmarks" / "sass.py"
    specification = importlib.util.spec_from_file_location("benchmark_of_machine_code", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


sass = _loaded()

# y[i] = x[i] + x[i + 256] .. while i < n, in steps of 256: as nvdisasm prints code for compute capability 7.5
LOOP = """
//--------------------- .text.kernel --------------------------
kernel:
        /*0000*/                   S2R R0, SR_TID.X ;
        /*0010*/                   S2R R3, SR_CTAID.X ;
        /*0020*/                   IMAD R0, R3, 0x400, R0 ;
        /*0030*/                   ISETP.GE.AND P0, PT, R0, c[0x0][0x170], PT ;
        /*0040*/               @P0 EXIT ;
.L_x_0:
        /*0050*/                   MOV R5, 0x4 ;
        /*0060*/                   IMAD.WIDE R2, R0, R5, c[0x0][0x160] ;
        /*0070*/                   LDG.E.SYS R6, [R2] ;
        /*0080*/                   LDG.E.SYS R7, [R2+0x400] ;
        /*0090*/                   IADD3 R0, R0, 0x100, RZ ;
        /*00a0*/                   ISETP.LT.AND P1, PT, R0, c[0x0][0x170], PT ;
        /*00b0*/                   FADD R6, R6, R7 ;
        /*00c0*/                   MUFU.EX2 R6, R6 ;
        /*00d0*/              @!P1 STG.E.SYS [R2], R6 ;
        /*00e0*/               @P1 BRA `(.L_x_0) ;
        /*00f0*/                   EXIT ;
"""


def traced(n: int, *, block: int = 0, thread: int = 0) -> Any:
    function = sass.Function(
        cubin=Path("none"),
        symbol=0,
        arguments=((0, 8), (8, 8), (16, 4)),
        bank_offset=0x160,
        registers=8,
        shared_bytes=0,
    )
    bank = sass.constant_bank(function, (4, 1, 1), (256, 1, 1), struct.pack("<QQi", 0x1000, 0x2000, n))
    code = sass.parse(LOOP, "kernel")
    return sass.Thread(code, bank, {"SR_TID.X": thread, "SR_CTAID.X": block}, 0x3F000000).run()


@pytest.mark.parametrize(
    ("n", "block", "passes"),
    [
        pytest.param(1024, 0, 4, id="four passes"),
        pytest.param(1025, 0, 5, id="the last of one"),
        pytest.param(1025, 1, 1, id="the next block"),
        pytest.param(1024, 1, 0, id="nothing to do"),
    ],
)
def test_loops_run_as_often_as_a_launch_asks(n: int, block: int, passes: int) -> None:
    """5 instructions before the loop, 10 in it (the store's slot, too), 1 behind."""
    trace = traced(n, block=block)
    assert trace.issued == 5 + 10 * passes + (passes > 0)
    assert (trace.loads, trace.load_bytes) == (2 * passes, 8 * passes)
    assert trace.pipes["xu"] == trace.pipes["fp32"] == passes
    assert trace.pipes["imad"] == 1 + passes
    assert trace.stores == (1 if passes else 0)  # only where the last pass' predicate lets it
    assert trace.in_flight_bytes == (8 if passes else 0)


@pytest.mark.parametrize(
    ("line", "register", "expected"),
    [
        pytest.param("IMAD.HI.U32 R1, R2, 0x55555556, RZ ;", "R1", 3, id="a third of 10"),
        pytest.param("SHF.R.U32.HI R1, RZ, 0x1, R2 ;", "R1", 5, id="shift right"),
        pytest.param("LEA R1, R2, R3, 0x2 ;", "R1", 47, id="address"),
        pytest.param("LOP3.LUT R1, R2, R3, RZ, 0x3c, !PT ;", "R1", 10 ^ 7, id="exclusive or"),
        pytest.param("IADD3 R1, -R2, 0x14, RZ ;", "R1", 10, id="difference"),
        pytest.param("IMNMX R1, R2, R3, PT ;", "R1", 7, id="lesser"),
        pytest.param("VIADDMNMX R1, R2, 0xffffffff, R3, !PT ;", "R1", 9, id="greater of a sum"),
        pytest.param("VIADDMNMX.RELU R1, R2, 0xffffff00, R3, PT ;", "R1", 0, id="not below zero"),
        pytest.param('MOV R1, R3 (*"SpillRefill"*) ;', "R1", 7, id="with a remark"),
        pytest.param("PRMT R1, R2, 0x5410, R3 ;", "R1", 7 << 16 | 10, id="two halves"),
        pytest.param("HADD2.F32 R1, -RZ, R4.H0_H0 ;", "R1", 0x3F000000, id="half to float"),
        pytest.param("F2FP.PACK_AB R1, RZ, R5 ;", "R1", 0x3800, id="float to half"),
    ],
)
def test_arithmetic(line: str, register: str, expected: int) -> None:
    """R2 = 10, R3 = 7, R4 and R5 = .5 in 16 and 32 bits."""
    thread = sass.Thread(sass.parse(f"kernel:\n    {line}\n    EXIT ;\n", "kernel"), bytes(1024), {}, 0)
    thread.registers |= {"R2": 10, "R3": 7, "R4": 0x3800, "R5": 0x3F000000}
    thread.run()
    assert thread.registers[register] == expected


def test_unknown_instructions_are_named() -> None:
    code = sass.parse("kernel:\n    HMMA.16816.F32 R4, R4, R8, R4 ;\n    EXIT ;\n", "kernel")
    with pytest.raises(sass.NotInterpretedError, match="HMMA"):
        sass.Thread(code, bytes(1024), {}, 0).run()
