"""Masks of truth values that an exporter wrote as numbers: PyTorch makes numbers of them in every call."""

from __future__ import annotations

import pytest

from graphs import inferred
from neusight_onnx.fusion.patterns.registry import recognise
from neusight_onnx.fusion.truth_masks import with_truth_masks
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.kernels import Attention
from neusight_onnx.lowering import lower_laid_out

CALL = (
    "q{n} = Mul(q, scale)\nt{n} = Mul(t, scale)\np{n} = MatMul(q{n}, t{n})\nm{n} = Add(p{n}, mask)\n"
    "w{n} = Softmax<axis=-1>(m{n})\ny{n} = MatMul(w{n}, v)\n"
)
SELECTED = "mask = Where(keep, zero, lowest)\n"
HEADS = {"q": (2, 4, 16, 8), "t": (2, 4, 8, 24), "v": (2, 4, 24, 8), "keep": (2, 1, 16, 24)}


def calls(nodes: str, lowest: float = -65504.0) -> InferredGraph:
    constants = {"scale": [0.6], "zero": 0.0, "lowest": lowest}
    graph = inferred(nodes, HEADS, constants=constants, types={"keep": 9})
    return recognise(graph, runtime="eager")


@pytest.mark.parametrize("lowest", [-65504.0, float("-inf")])
def test_each_call_makes_numbers_of_the_mask(lowest: float) -> None:
    """As torch 2.9.1 launches two layers of a LlamaForCausalLM on stand-ins: two fills and a selection in each."""
    graph = with_truth_masks(calls(SELECTED + CALL.format(n=1) + CALL.format(n=2), lowest))
    assert [node.inputs[3] for node in graph.graph.nodes if "Attention" in node.op_type] == ["keep", "keep"]
    assert not any(node.op_type == "Where" for node in graph.graph.nodes)
    for work in lower_laid_out(graph, runtime="eager").works:
        if work.op_type == "ScaledDotProductAttention":
            assert len(work.kernels) == 4
            assert isinstance(work.kernels[-1], Attention)
            assert work.kernels[-1].mask is not None
            assert work.kernels[-1].mask.byte_count == 4 * 2 * 16 * 24


def test_a_selection_that_others_read_stays() -> None:
    graph = with_truth_masks(calls(SELECTED + CALL.format(n=1) + "z = Relu(mask)"))
    assert sum(node.op_type == "Where" for node in graph.graph.nodes) == 1


def test_a_mask_that_hides_little_is_the_models_own() -> None:
    graph = calls(SELECTED + CALL.format(n=1), lowest=-100.0)
    assert with_truth_masks(graph) is graph
