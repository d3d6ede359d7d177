"""AMD, FP32: what Winograd's algorithms save of a convolution's multiply-adds."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, prod

from neusight_onnx.kernels import Conv

WINOGRAD_SAVING = 4.0
"""Multiply-adds of a direct convolution over the fewest of a Winograd algorithm of MIOpen: its multi-pass gradients of
weights, F(3x3, 4x4)."""
OUTPUTS, _TAPS, _PRODUCTS = 2, 3, 4
"""Of F(2, 3), an axis: outputs and taps of a piece, and its multiply-adds (MIOpen's ``ConvBinWinogradRxSf2x3``;
``f3x2`` takes as many)."""


def winograd_saving(kernel: Conv) -> float:
    """Multiply-adds of a direct convolution over those of Winograd in one kernel; 0 where MIOpen has none.

    A filter is made of pieces of three taps; a stride has its places one by one, each a filter of its own, so that
    3x3 saves 2.25 times with stride 1 and nothing with stride 2. A third of MIOpen's 3x3 with stride 1 run it, and
    strided gradients of inputs, too (find database).
    """
    if kernel.direction == "weight":
        return _weight_saving(kernel)
    if len(kernel.filter) != 2 or kernel.groups > 1 or prod(kernel.dilations) > 1 or prod(kernel.filter) == 1:
        return 0.0
    sides = zip(kernel.filter, kernel.strides, strict=True)
    pieces = [
        (side, sum(-(-(side - place) // (step * _TAPS)) for place in range(min(step, side)))) for side, step in sides
    ]
    return prod(side * OUTPUTS / (_PRODUCTS * count) for side, count in pieces)


def _weight_saving(kernel: Conv) -> float:
    """The same of a gradient of weights, whose outputs are the filter's taps and whose taps are the result's positions.

    F(2, 3) or F(3, 2), the better one; groups and 1x1 as well, no stride (529 in the find database, 414 an MI50's).
    """
    if len(kernel.filter) != 2 or prod(kernel.dilations) > 1 or prod(kernel.strides) > 1:
        return 0.0
    axes = [(side, max(out, 1)) for side, out in zip(kernel.filter, kernel.out, strict=True)]
    return max(
        prod(side * out / (_PRODUCTS * ceil(side / outputs) * ceil(out / taps)) for side, out in axes)
        for outputs, taps in ((OUTPUTS, _TAPS), (_TAPS, OUTPUTS))
    )


_PASSES: Mapping[tuple[tuple[int, ...], tuple[int, ...]], Mapping[int, int]] = {
    ((3, 3), (1, 1)): {6: 8, 5: 7, 4: 6},
    ((5, 5), (1, 1)): {4: 8},
    ((3, 3), (2, 2)): {2: 5, 3: 7},
}
"""Filter and strides -> positions of the result in a piece -> elements of a transformed piece, both an axis.

``ConvWinograd3x3MultipassWrW<3-6>``, ``<3-5>``, ``<3-4>`` and ``<5-4>`` in the find database, and with a stride of 2
``<3-2>`` and ``<3-3>``: there even and odd taps meet elements of their own, so that F(2, r) and F(1, r) make a piece.
"""


def passes(kernel: Conv) -> tuple[float, float]:
    """Products of a gradient of weights by Winograd in several passes, one for each element of a transformed piece,
    and pieces in all images; zeros where MIOpen has none."""
    sides = _PASSES.get((kernel.filter, kernel.strides), {})
    if not sides or kernel.direction != "weight" or kernel.groups > 1 or prod(kernel.dilations) > 1:
        return 0.0, 0.0
    found = [
        (float(elements**2), float(kernel.n * prod(ceil(out / side) for out in kernel.out)))
        for side, elements in sides.items()
    ]
    return min(found, key=lambda pair: pair[0] * pair[1])
