"""Instructions that dropout adds to fused attention: each pair's random number, and what it decides.

Numbers are Philox's, drawn anew in every kernel and never stored. A round of it is two products of 32 by 32 bits, two
exclusive ors of three, and two sums for the next keys (Salmon et al. 2011). Counted from public sources, not measured.
"""

from __future__ import annotations

_ROUND = 6.0

FLASH = (7.0 * _ROUND + 24.0) / 16.0
"""A pair in FlashAttention 2: seven rounds give 16 numbers of a byte (``philox.cuh``); each two are widened to 16 bits,
compared and masked by one instruction each (``dropout.h``)."""

EFFICIENT = 10.0 * _ROUND / 4.0 + 6.0
"""A pair in CUTLASS's memory-efficient attention: ``curand_uniform4`` gives four numbers after ten rounds
(``curand_philox4x32_x.h``); each is made a float and scaled, compared, and a weight in shared memory loaded, multiplied
and stored (``kernel_forward.h`` of ATen's mem_eff_attention)."""
