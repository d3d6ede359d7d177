"""The table of shape rules: every operator has one, and only one."""

from __future__ import annotations

import pytest
from onnx import defs

from neusight_onnx.graph.shapes.registry import RULES, rule
from shape_texts import inferred, shape


def test_every_operator_of_the_installed_onnx_has_a_rule() -> None:
    missing = {
        (schema.domain, schema.name) for schema in defs.get_all_schemas() if (schema.domain, schema.name) not in RULES
    }
    assert not missing, "onnx's own inference stands in for these; write their rules"


def test_a_second_claim_on_an_operator_is_refused() -> None:
    with pytest.raises(ValueError, match="two shape rules"):
        rule("Conv")(lambda ctx: ())


def test_an_operator_without_a_rule_is_inferred_by_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Conv", "Split"):
        monkeypatch.delitem(RULES, ("", name))
    text = """g (float[2, 4, 9] x, float[6, 4, 3] w) => (float[a] y) <int64[2] parts = {2, 4}> {
        y = Conv<strides = [2]>(x, w)
        p, q = Split<axis = 1>(y, parts)
    }"""
    result = inferred(text)
    assert [shape(result, name) for name in ("y", "p", "q")] == [(2, 6, 4), (2, 2, 4), (2, 4, 4)]
