"""What sizes of multiples of 8 elements would save in products whose rows are no whole vectors of 16 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from neusight_onnx.assembly import Placed
from neusight_onnx.dtypes import DataType
from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.model import file_name
from neusight_onnx.kernels import Gemm
from neusight_onnx.predictor import Predictors, predict

LEAST_SHARE = 0.02
"""Of the kernels' time, what padding must save to be worth a word."""

_FORMATS = frozenset({DataType.FLOAT16, DataType.BFLOAT16, DataType.TFLOAT32})
_ELEMENTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddingGain:
    """Of a run: the node whose products would gain the most, its product's (m, n, k), how long it takes and would take
    with padded rows, in us; and ``others``, how many more nodes would gain, with ``saved_us``, what all would save."""

    node: str
    sizes: tuple[int, int, int]
    latency_us: float
    padded_us: float
    others: int
    saved_us: float


def padding_gain(
    counted: Sequence[Placed], spec: GpuSpec, *, kept_in_l2: float, predictors: Predictors | None
) -> PaddingGain | None:
    """None where padding would save nothing that counts."""
    found = [
        (item, kernel, prediction.latency_us)
        for item in counted
        for kernel, prediction in zip(item.work.kernels, item.predictions, strict=True)
        if isinstance(kernel, Gemm) and kernel.dtype in _FORMATS and (kernel.n % _ELEMENTS or kernel.k % _ELEMENTS)
    ]
    if not found:
        return None
    padded = predict(
        [replace(kernel, row_padding="stored") for _, kernel, _ in found],
        spec,
        predictors=predictors,
        kept_in_l2=kept_in_l2,
    )
    gains = [
        (item.work.count * (now - answer.latency_us), file_name(item.work.node), kernel, now, answer.latency_us)
        for (item, kernel, now), answer in zip(found, padded, strict=True)
        if now > answer.latency_us
    ]
    saved = sum(gain for gain, *_ in gains)
    if not gains or saved < LEAST_SHARE * sum(item.latency_us for item in counted):
        return None
    _, node, kernel, now, then = max(gains, key=lambda gain: gain[0])
    return PaddingGain(
        node=node,
        sizes=(kernel.batch * kernel.m, kernel.n, kernel.k),
        latency_us=now,
        padded_us=then,
        others=len({name for _, name, *_ in gains} - {node}),
        saved_us=saved,
    )
