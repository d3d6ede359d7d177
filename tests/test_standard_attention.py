"""ai.onnx's Attention in ONNX Runtime: each row as onnxruntime-gpu 1.31.1 launched it on stand-ins for CUDA."""

from __future__ import annotations

import pytest
from onnx import TensorProto

from graphs import inferred
from neusight_onnx.kernels import Attention, Elementwise, Gemm, Kernel, Movement, Reduction, Softmax
from neusight_onnx.lowering import lower

HALF, SINGLE = TensorProto.FLOAT16, TensorProto.FLOAT
LETTERS = {
    # of our kernels, in the order of launches: TransposeCtx and TransposeQKV, FillInt32, ConcatNewToPastKVFused,
    # Ungroup, ConvertBoolMaskToAttentionBias, ZeroFullyMaskedRows, a copy by the driver
    "transpose": "t",
    "add": "l",
    "concat": "c",
    "expand": "u",
    "cast": "b",
    "and": "z",
    "copy": "d",
    "mul": "s",
}


def letter(kernel: Kernel) -> str:
    match kernel:
        case Attention():
            return "A"
        case Gemm():
            return "G"
        case Softmax():
            return "S"
        case Elementwise(operations=(operation,)) | Movement(operation=operation) | Reduction(operation=operation):
            return LETTERS[operation]
    raise AssertionError(kernel)


def kernels_of(
    kind: int,
    *,
    heads_first: bool = True,
    new: int = 64,
    past: int = 0,
    keys: int | None = None,
    groups: int = 8,
    d: int = 64,
    mask: int | None = None,
    causal: bool = False,
    presents: bool = False,
    products: bool = False,
) -> tuple[Kernel, ...]:
    """Of two sequences and 8 heads: ``new`` queries and, unless ``keys`` says otherwise, keys; ``mask``: its type."""
    keys = new if keys is None else keys
    shapes = {"q": (2, 8, new, d), "k": (2, groups, keys, d), "v": (2, groups, keys, d)}
    counted = ""
    if not heads_first:
        shapes = {name: (2, tokens, heads * d) for name, (_, heads, tokens, _) in shapes.items()}
        counted = f"q_num_heads=8, kv_num_heads={groups}, "
    if mask is not None:
        shapes["m"] = (2, 1, new, past + keys)
    if past:
        shapes |= {"pk": (2, groups, past, d), "pv": (2, groups, past, d)}
    operands = ["q", "k", "v", *(["m" if mask is not None else ""] if mask is not None or past else [])]
    results = ["y", *(["nk", "nv"] if presents or past or products else []), *(["qk"] if products else [])]
    operands += ["pk", "pv"] if past else []
    node = f"{', '.join(results)} = Attention<{counted}is_causal={int(causal)}>({', '.join(operands)})"
    types = dict.fromkeys(shapes, kind) | ({} if mask is None else {"m": mask})
    (work,) = lower(inferred(node, shapes, types=types, opset=23), runtime="onnxruntime")
    return work.kernels


@pytest.mark.parametrize(
    ("given", "launched"),
    [
        ({}, "tAt"),
        ({"causal": True}, "tAt"),
        ({"groups": 2}, "tAt"),
        ({"heads_first": False}, "A"),
        ({"heads_first": False, "groups": 2}, "A"),
        ({"mask": HALF}, "tAzt"),
        ({"mask": TensorProto.BOOL}, "tbAzt"),
        ({"mask": HALF, "groups": 2}, "tuuAzt"),
        ({"mask": HALF, "groups": 2, "heads_first": False}, "uuAz"),
        ({"new": 1, "past": 63, "groups": 2}, "tlttclAt"),
        ({"new": 1, "past": 63, "mask": HALF}, "tlttcAzt"),
        ({"new": 1, "past": 63, "mask": HALF, "groups": 2}, "tlttcuuAzt"),
        ({"new": 1, "past": 63, "mask": TensorProto.BOOL, "groups": 2}, "tlttcuubAzt"),
        ({"new": 1, "past": 63, "mask": HALF, "groups": 2, "heads_first": False}, "lcuuAz"),
        ({"presents": True, "groups": 2}, "tAtdd"),
        ({"presents": True, "groups": 2, "heads_first": False}, "Att"),
        # keys beside a mask in fours, heads in eights
        ({"mask": HALF, "keys": 12}, "tAzt"),
        ({"mask": HALF, "keys": 63}, "GSG"),
        ({"d": 36}, "GSG"),
        ({"new": 1, "past": 61, "mask": HALF, "groups": 2}, "lttcGSG"),
        ({"new": 1, "past": 61, "mask": HALF, "groups": 2, "heads_first": False}, "tlcGSGt"),
        ({"products": True}, "GsSGdd"),
    ],
    ids=str,
)
def test_in_16_bits(given: dict[str, object], launched: str) -> None:
    assert "".join(map(letter, kernels_of(HALF, **given))) == launched


@pytest.mark.parametrize(
    ("given", "launched"),
    [
        ({}, "tAt"),
        ({"mask": SINGLE}, "tAzt"),
        ({"heads_first": False}, "A"),
        ({"groups": 2}, "GSG"),
        ({"groups": 2, "mask": TensorProto.BOOL}, "bGSG"),
        ({"groups": 2, "heads_first": False}, "tttGSGt"),
        ({"new": 1, "past": 63, "groups": 2}, "lttcGSG"),
        ({"new": 1, "past": 63, "groups": 2, "mask": SINGLE, "heads_first": False}, "tlcGSGt"),
        ({"presents": True, "groups": 2}, "GSGdd"),
    ],
    ids=str,
)
def test_in_fp32(given: dict[str, object], launched: str) -> None:
    assert "".join(map(letter, kernels_of(SINGLE, **given))) == launched


def test_heads_that_share_keys_beside_a_mask_read_copies_of_their_own() -> None:
    """(2, 2, 64, 64) to (2, 8, 64, 64), twice; the kernel reads eight heads of keys and writes no cache."""
    _, _, _, _, _, first, second, core, *_ = kernels_of(HALF, new=1, past=63, mask=HALF, groups=2)
    for copies in (first, second):
        assert (copies.read_bytes, copies.write_bytes) == (2 * 2 * 2 * 64 * 64, 2 * 2 * 8 * 64 * 64)
    assert isinstance(core, Attention)
    assert (core.g, core.cache_write_elements) == (8, 0)


def test_scores_in_16_bits_are_written_in_32() -> None:
    scores, softmax, _ = kernels_of(HALF, d=36)
    assert scores.write_bytes == softmax.read_bytes == 4 * 2 * 8 * 64 * 64
    assert softmax.write_bytes == 2 * 2 * 8 * 64 * 64
