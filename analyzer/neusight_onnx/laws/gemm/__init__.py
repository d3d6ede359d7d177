"""The law of matrix products: tiles over SMs, each limited by its pipe, memory, caches and the card's power.

``(b, m, k) @ (b, k, n) -> (b, m, n)``. A library covers the output with tiles; each SM works through its share of
them. Times of the pipe, of DRAM, of L2 and of shared memory compete (p-norm); a floor is added. The tile is the one
of the architecture's menu with the smallest time; one row or column has kernels without tiles (:mod:`.gemv`).
Everything is vectorised over kernels; inside, arrays have shape (candidates, kernels).

What the measured GPUs don't identify (``issue_overhead``, the energies of processes below 12 nm, matrix cores' energy)
was set by hand so that SGEMM rates agree with public ones *as remembered* (H100, RTX 3090, RTX 4090, RTX A6000, A10);
no document was opened for them. Single-kernel rates, no model's latency. Until such GPUs are measured their predictions
rest on that, and ``doubt`` widens their interval.

:mod:`.machine` is what the law takes from a GPU, its clock among it; :mod:`.memory` what DRAM moves, :mod:`.times` the
competing times, :mod:`.tiles` the choice among tiles (:mod:`.pascal`: of Pascal's library with a bias,
:mod:`.volta`: of Volta's and Turing's for batches), :mod:`.estimate` the law's answer.
"""
