"""AMD, FP32: what Winograd's algorithms save of a convolution's multiply-adds."""

from __future__ import annotations

from math import prod

from neusight_onnx.kernels import Conv

WINOGRAD_SAVING = 4.0
"""Multiply-adds of a direct convolution over the fewest of a Winograd algorithm of MIOpen: its multi-pass gradients of
weights, F(3x3, 4x4)."""
OUTPUTS, _TAPS, _PRODUCTS = 2, 3, 4
"""Of F(2, 3), an axis: outputs and taps of a piece, and its multiply-adds (MIOpen's ``ConvBinWinogradRxSf2x3``;
``f3x2`` takes as many)."""


def winograd_saving(kernel: Conv) -> float:
    """Multiply-adds of a direct convolution over those of Winograd F(2, 3); 0 where MIOpen has none.

    A filter is made of pieces of three taps; a stride has its places one by one, each a filter of its own, so that
    3x3 saves 2.25 times with stride 1 and nothing with stride 2. A third of MIOpen's 3x3 with stride 1 run it, and
    strided gradients of inputs, too (find database).
    """
    if len(kernel.filter) != 2 or kernel.groups > 1 or prod(kernel.dilations) > 1 or prod(kernel.filter) == 1:
        return 0.0
    sides = zip(kernel.filter, kernel.strides, strict=True)
    pieces = [
        (side, sum(-(-(side - place) // (step * _TAPS)) for place in range(min(step, side)))) for side, step in sides
    ]
    return prod(side * OUTPUTS / (_PRODUCTS * count) for side, count in pieces)
