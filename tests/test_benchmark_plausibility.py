"""What ``benchmarks/plausibility.py`` counts as having a reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.plausibility import FORMATS, LANES_BY_RULE, growing
from neusight_onnx.gpu import load_gpu
from neusight_onnx.predictor import predict


@pytest.mark.parametrize(
    ("name", "gpu", "rows", "kind"),
    [
        pytest.param("int8", "a100-sxm-80gb", (4, 8), LANES_BY_RULE, id="int8-lanes-end-at-four-rows"),
        pytest.param("int8", "a100-sxm-80gb", (8, 16), "more work", id="int8-both-on-matrix-units"),
        pytest.param("int8", "a100-sxm-80gb", (2, 4), "more work", id="int8-both-on-lanes"),
        pytest.param("fp16", "a100-sxm-80gb", (4, 8), "more work", id="fp16-has-no-such-rule"),
        pytest.param("int8", "mi300x", (4, 8), "more work", id="nor-has-amd"),
    ],
)
def test_few_rows_on_lanes_have_a_reason_to_take_longer(name: str, gpu: str, rows: tuple[int, int], kind: str) -> None:
    form = next(form for form in FORMATS if form.name == name)
    smaller, larger = (form.product(m, 65536, 256) for m in rows)
    spec = load_gpu(gpu)
    (answer,) = predict([larger], spec)
    times = {smaller: replace(answer, latency_us=2 * answer.latency_us), larger: answer}
    (finding,) = growing({"rows": ("gemm", (smaller, larger))}, spec, times)
    assert finding.kind == kind
