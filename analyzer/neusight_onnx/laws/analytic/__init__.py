"""Kernels without a predictor: the roofline with stated efficiencies, launch and serial time.

For every kernel::

    T = launches * 2 us + (Tm^4 + Tl^4 + Tc^4 + Ts^4)^(1/4)

with Tm the bytes that go through DRAM, Tl those that go through L2, Tc the arithmetic, Ts what can't be done in
parallel. Each efficiency has its source or derivation beside it. Such an estimate is good to about a factor of two:
``HALF_WIDTH_LOG`` is its 80 % interval.

``estimate`` is this formula; ``work`` says what a kernel asks of a GPU, and ``products``, ``rows``, ``places`` and
``sorting`` work that out for the classes; ``pipes`` has the peaks of arithmetic.
"""
