"""What ``benchmarks/plausibility.py`` counts as having a reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.plausibility import A_ROUND_LESS, FORMATS, LANES_BY_RULE, growing, jumps
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


@pytest.mark.parametrize(
    ("sm_count", "kind"),
    # 512 tiles: four rounds of 170 SMs; three of 172, four of 169
    [(172, A_ROUND_LESS), (169, "jump")],
)
def test_a_jump_of_a_round_less_has_a_reason(sm_count: int, kind: str) -> None:
    gpu = load_gpu("rtx-5090")
    kernel = FORMATS[0].product(4096, 1024, 1024)
    (found,) = predict((kernel,), gpu)
    before = replace(found, latency_us=100.0, tile={"n": 128, "m": 64, "split_k": 1}, tile_count=512)
    twin = replace(gpu, sm_count=sm_count)
    table = {"rows": ("gemm fp32", (kernel,))}
    after = replace(before, latency_us=80.0)
    cases = list(jumps(table, "more SMs", {kernel: before}, {kernel: after}, (gpu, twin)))
    assert [case.kind for case in cases] == [kind]
