"""What --freeze means of a file whose exporter renamed weights: PyTorch's gives those of linear layers and of folded
convolutions numbers (onnx::MatMul_12), and nodes the paths of their modules (/blocks/blocks.0/fc/MatMul)."""

from __future__ import annotations

import pytest
from onnx import helper

from graphs import read_graph
from neusight_onnx import Report, analyze
from neusight_onnx.backward import make_training
from neusight_onnx.errors import TrainingError


def freezing(*patterns: str, shared: bool = False) -> Report:
    """A step of two blocks, linear layers with biases of 8 x 8 and 8, and a head of 8 x 4 without one.

    ``shared``: both blocks read the first one's weight, the second through an Identity.
    """
    nodes = [
        helper.make_node("MatMul", ["x", "onnx::MatMul_9"], ["a"], name="/blocks/blocks.0/fc/MatMul"),
        helper.make_node("Add", ["a", "blocks.0.fc.bias"], ["b"], name="/blocks/blocks.0/fc/Add"),
        helper.make_node("Relu", ["b"], ["c"], name="/blocks/blocks.0/act/Relu"),
        helper.make_node("Identity", ["onnx::MatMul_9"], ["again"], name="Identity_0"),
        helper.make_node(
            "MatMul", ["c", "again" if shared else "onnx::MatMul_10"], ["d"], name="/blocks/blocks.1/fc/MatMul"
        ),
        helper.make_node("Add", ["d", "blocks.1.fc.bias"], ["e"], name="/blocks/blocks.1/fc/Add"),
        helper.make_node("MatMul", ["e", "onnx::MatMul_11"], ["y"], name="/head/MatMul"),
    ]
    sizes = {
        "onnx::MatMul_9": (8, 8),
        "blocks.0.fc.bias": (8,),
        "onnx::MatMul_10": (8, 8),
        "blocks.1.fc.bias": (8,),
        "onnx::MatMul_11": (8, 4),
    }
    model = read_graph(nodes, {"x": (16, 8)}, weights=sizes)
    return analyze(model, gpu="a100", training=make_training(freeze=patterns))


def trained_count(report: Report) -> int:
    assert report.training is not None
    return report.training.trained_parameter_count


ALL = 2 * (64 + 8) + 32


@pytest.mark.parametrize(
    ("patterns", "frozen"),
    [
        pytest.param(["blocks.0.*"], 72, id="module in dots"),
        pytest.param(["blocks*"], 144, id="all blocks"),
        pytest.param(["/blocks/blocks.1/*"], 72 - 8, id="a node's own name, which the bias doesn't have"),
        pytest.param(["blocks/blocks.1/*"], 72 - 8, id="without the first slash"),
        pytest.param(["blocks.1.fc.weight"], 64, id="as PyTorch calls the weight"),
        pytest.param(["*.weight"], 64 + 64 + 32, id="all weights"),
        pytest.param(["*.bias"], 16, id="by name alone"),
        pytest.param(["onnx::MatMul_9"], 64, id="the exporter's name"),
        pytest.param(["head*", "blocks.1*"], 32 + 72, id="two patterns"),
    ],
)
def test_weights_go_with_the_modules_that_read_them(patterns: list[str], frozen: int) -> None:
    assert trained_count(freezing(*patterns)) == ALL - frozen


def test_what_was_matched_by_modules_is_said() -> None:
    text = "--freeze 'blocks.0.*' means 1 of the file's tensors by name and 1 by the nodes that read them"
    assert any(text in said for said in freezing("blocks.0.*").assumptions)
    assert not any("by the nodes" in said for said in freezing("*.bias").assumptions)


def test_a_weight_that_others_read_stays_trained_and_is_named() -> None:
    report = freezing("blocks.1*", shared=True)
    assert trained_count(report) == ALL - 64 - 8, "the second block has no weight of its own; its bias is frozen"
    (said,) = [text for text in report.assumptions if "that are trained" in text]
    assert "'blocks.1*' freezes 8 weights, but nodes of that name read 64 more" in said
    assert "'onnx::MatMul_9'" in said


def test_a_pattern_without_a_star_is_told_the_one_that_would_do() -> None:
    with pytest.raises(TrainingError, match=r"'head' matches no parameter; 'head\*' matches 1"):
        freezing("head")
