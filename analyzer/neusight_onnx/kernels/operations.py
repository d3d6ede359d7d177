"""Operations an element, by convention: a count for reports, not a cost."""

from __future__ import annotations

ELEMENTWISE_FLOPS: dict[str, int] = {
    "exp": 4,
    "log": 4,
    "sqrt": 2,
    "rsqrt": 2,
    "div": 1,
    "pow": 10,
    "pow_scalar": 2,
    "tanh": 6,
    "sigmoid": 6,
    "erf": 8,
    "gelu": 12,
    "gelu_tanh": 14,
    "silu": 7,
    "mish": 12,
    "softplus": 8,
    "statistics": 4,
    "sin": 6,
    "cos": 6,
    "gelu_backward": 16,
    "gelu_tanh_backward": 20,
    "silu_backward": 10,
    "mish_backward": 18,
    "tanh_backward": 3,
    "sigmoid_backward": 3,
    "addcmul": 3,
    "addcdiv": 3,
    "lerp": 3,
    **dict.fromkeys(("cast", "concat", "copy", "expand", "fill", "flip", "gather", "pad"), 0),
    **dict.fromkeys(("slice", "split", "tile", "transpose"), 0),
}
"""Operations per element by convention (a count for reports, not a cost: predictors learn cost); others are 1,
and moving an element is none, in a kernel of its own or not."""

ROW_FLOPS: dict[str, int] = {"softmax": 5, "layer": 6, "group": 6, "instance": 6, "rms": 4, "lp": 3}
"""Operations per element of reductions that are more than one pass, by convention; other reductions are 1."""


def operation_flops(operations: tuple[str, ...]) -> int:
    """FLOPs an element of fused operations, reductions over the same rows among them."""
    return sum(ROW_FLOPS.get(name, ELEMENTWISE_FLOPS.get(name, 1)) for name in operations)
