"""Loss, optimizer, accumulation, dropout: what a step of training has beside the gradients."""

from __future__ import annotations

import pytest
from onnx import helper

from graphs import inferred, split
from neusight_onnx.backward import as_trained, make_training, train
from neusight_onnx.backward.form import dropout_places
from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import TrainingError
from neusight_onnx.fusion.called_attention import with_called_attention
from neusight_onnx.fusion.patterns.registry import recognise
from neusight_onnx.graph.model import InferredGraph
from neusight_onnx.kernels import Attention
from neusight_onnx.lowering import lower_laid_out
from neusight_onnx.lowering.autocast import autocast
from neusight_onnx.memory import run_memory
from training_graphs import FIRST, TWO_LAYERS, W, X, attention_block, backwards, shown, shown_whole, trained


def test_cross_entropy_and_adamw() -> None:
    """(4, 16): log-softmax and a mean forwards; zeros, targets and log-softmax's gradient backwards."""
    result = trained(inferred(FIRST + "y = Relu (h)", X, weights=W), make_training(optimizer="adamw"))[2]
    loss = [work for work in result.works if work.op_type == "loss"]
    assert [shown(kernel) for kernel in loss[0].kernels] == ["softmax 4x16", "mean 1 of 4"]
    assert [shown(kernel) for kernel in loss[1].kernels] == ["fill 64", "scatter 4", "softmax backward 4x16"]
    steps = [shown(kernel) for work in result.works if work.phase == "optimizer" for kernel in work.kernels]
    whole, two = "[128] -> 128", "[128, 128] -> 128"
    expected = [f"mul {whole}", f"lerp {two}", f"mul {whole}", f"addcmul {two}", f"sqrt {whole}", f"div {whole}"]
    assert steps == [*expected, f"add {whole}", "addcdiv [128, 128, 128] -> 128"]


@pytest.mark.parametrize("runtime", ["eager", "eager@1.13"])
def test_a_fused_step_is_one_kernel(runtime: str) -> None:
    """fused=True: weight, gradient and two moments are read, all but the gradient written; nothing else exists."""
    plan = make_training(optimizer="adamw-fused")
    form = as_trained(recognise(inferred(FIRST + "y = Relu (h)", X, weights=W), runtime="eager"), plan).graph
    lowered = lower_laid_out(form, runtime="eager")
    result = train(form, lowered.works, lowered.strides, plan, runtime)
    (step,) = [kernel for work in result.works if work.node == "optimizer/fused_adamw" for kernel in work.kernels]
    assert (step.read_bytes, step.write_bytes) == (4 * 4 * 128, 3 * 4 * 128)
    assert result.optimizer.temporary_bytes == 0


def test_accumulated_gradients() -> None:
    """Three runs: the kernels three times, two additions to each gradient, one step."""
    graph = inferred(FIRST + "y = Relu (h)", X, weights=W)
    result = trained(graph, make_training(optimizer="sgd", grad_accumulation=3))[2]
    counts = {(work.op_type, work.phase): work.count for work in result.works if work.kernels}
    assert counts["MatMul", "forward"] == counts["MatMul", "backward"] == counts["loss", "backward"] == 3
    assert counts["AccumulateGrad", "backward"] == 2
    assert counts["Optimizer", "optimizer"] == 1


BLOCKS = """
[/net/layer.0/up/Gemm] a = Gemm <transB=1> (x, w0)
[/net/layer.0/Relu] b = Relu (a)
[/net/layer.0/down/Gemm] c = Gemm <transB=1> (b, v0)
[/net/layer.1/up/Gemm] d = Gemm <transB=1> (c, w1)
[/net/layer.1/Relu] e = Relu (d)
[/net/layer.1/down/Gemm] f = Gemm <transB=1> (e, v1)
[/net/head/Gemm] y = Gemm <transB=1> (f, h)
"""
BLOCK_WEIGHTS = {"w0": (16, 8), "v0": (8, 16), "w1": (16, 8), "v1": (8, 16), "h": (2, 8)}


def blocks_graph() -> InferredGraph:
    nodes = []
    for line in BLOCKS.strip().splitlines():
        name, _, text = line.removeprefix("[").partition("] ")
        node = split(text)[0]
        node.name = name
        nodes.append(node)
    return inferred(nodes, X, weights=BLOCK_WEIGHTS)


def test_blocks_run_forward_again() -> None:
    """Kept are what the blocks read (x, which is the model's, and c) and the head's operand f, 4 x 8 each."""
    form, works, result = trained(blocks_graph(), make_training(optimizer="none", loss="none", recompute="blocks"))
    run = [(work.node.removeprefix("/net/"), work.phase) for work in result.works if work.kernels]
    again = [name for name, phase in run if phase == "backward"]
    second = ["layer.1/up/Gemm", "layer.1/Relu", "layer.1/down/Gemm"]
    first = ["layer.0/up/Gemm", "layer.0/Relu", "layer.0/down/Gemm"]
    assert again == ["head/Gemm", *second, *reversed(second), *first, *reversed(first)]
    memory = run_memory(form, works, "eager", trained=result)
    assert [(tensor.name, tensor.byte_count) for tensor in memory.saved] == [("f", 128), ("c", 128)]
    # The most is alive in the first block's Relu, its up's gradient beside its own: x, y, b (4 x 16) and both
    # gradients of 4 x 16, and what the parameters have by then: all but w0's.
    parameters = 16 + 2 * 128 + 128
    assert memory.found.peak_bytes == 4 * (32 + 8 + 64 + 2 * 64 + parameters)


def test_the_whole_runs_forward_again() -> None:
    result = trained(blocks_graph(), make_training(optimizer="none", loss="none", recompute="all"))[2]
    phases = [work.phase for work in result.works if work.kernels]
    assert phases == ["forward"] * 7 + ["backward"] * (7 + 7)


@pytest.mark.parametrize(("recompute", "behind_the_head"), [("none", 768 + 64 + 128 + 64 + 128), ("blocks", 64)])
def test_copies_of_autocast_live_until_their_gradient(recompute: str, behind_the_head: int) -> None:
    """Autocast's context ends with the run forward, which its cache outlives by nothing.

    Behind the gradient of the head there are x, y, the gradients of h and f, and without recomputation what the layers
    keep: the copies of v0, w1 and v1 (256 B each; w0's is for no gradient, as x has none), x's copy, b, c and e. With
    it the second block's input c. In the end x, y and the parameters' gradients are left.
    """
    graph = autocast(blocks_graph(), DataType.BFLOAT16, runtime="eager")
    form, works, result = trained(graph, make_training(optimizer="none", loss="none", recompute=recompute))
    timeline = run_memory(form, works, "eager", trained=result, timeline=True).found.timeline or []
    alive = {point.node: point.live_bytes for point in timeline}
    assert alive["/net/head/Gemm (backward)"] == 128 + 16 + 32 + 64 + behind_the_head
    assert timeline[-1].live_bytes == 128 + 16 + 4 * (4 * 128 + 16)


def test_blocks_without_numbers_are_not_found() -> None:
    graph = inferred(TWO_LAYERS, X, weights={"w": (16, 8), "b": (16,), "w2": (2, 16), "b2": (2,)})
    with pytest.raises(TrainingError, match="the names of nodes show no repeated blocks"):
        trained(graph, make_training(recompute="blocks"))


def test_dropout_stands_where_models_have_it() -> None:
    graph = attention_block()
    names = {node.outputs[0]: node.outputs[0] for node in graph.graph.nodes}
    assert dropout_places(graph) == {names["t"]: "embedding", names["p"]: "attention", names["o"]: "residual"}
    plan = make_training(optimizer="none", loss="none", dropout="attention=0.1")
    _, works, result = trained(graph, plan)
    masks = [work for work in works if work.op_type == "Dropout"]
    assert [shown(kernel) for work in masks for kernel in work.kernels] == ["dropout [144] -> 144"]
    assert masks[0].kernels[0].write_bytes == 144 * 4 + 144, "a mask of a byte an element"
    assert backwards(result)["Dropout"] == ["mul [144, 144] -> 144"]
    off = trained(graph, make_training(optimizer="none", loss="none", dropout="off"))[1]
    assert not any(work.op_type == "Dropout" for work in off)


def test_dropout_is_put_within_calls_of_attention() -> None:
    graph = inferred("q = MatMul (x, w)\ny = Attention (q, q, q)", {"x": (2, 2, 6, 8)}, weights={"w": (8, 4)}, opset=23)
    plan = make_training(optimizer="none", loss="none", dropout="attention=0.1")
    form = as_trained(graph, plan)
    assert "training: dropout is put where the file has none: 1 within attention (--dropout)" in form.said
    _, works, result = trained(graph, plan)
    (forward,) = [kernel for work in works for kernel in work.kernels if isinstance(kernel, Attention)]
    (backward,) = [k for step in result.steps for k in step.work.kernels if isinstance(k, Attention)]
    assert forward.dropout
    assert backward.dropout
    assert not any(
        getattr(kernel, "dropout", False)
        for work in trained(graph, make_training(dropout="residual=0.1"))[1]
        for kernel in work.kernels
    )


def test_dropped_weights_of_attention_by_its_formula_are_kept() -> None:
    """2 x 3 x 2 x 6 x 6 weights: a kernel with a mask behind the softmax, one with it backwards."""
    nodes = """
t = Transpose <perm=[0,1,2,4,3]> (k)
q = MatMul (x, w)
s = MatMul (q, t)
p = Softmax <axis=-1> (s)
y = MatMul (p, v)
"""
    graph = inferred(nodes, dict.fromkeys("xkv", (2, 3, 2, 6, 8)), weights={"w": (8, 8)})
    called = with_called_attention(graph, runtime="eager", autocast=True)
    kept_bytes = []
    for rate in ("attention=0.1", "off"):
        _, works, result = trained(called, make_training(optimizer="none", loss="none", dropout=rate))
        is_on = rate != "off"
        forward = [shown_whole(kernel) for work in works for kernel in work.kernels]
        assert ("dropout [432] -> 432 + [432]" in forward) is is_on
        (step,) = [step for step in result.steps if step.work.op_type == "ScaledDotProductAttention"]
        masked = [kernel for kernel in step.work.kernels if kernel.read_bytes == 432 * 4 + 432]
        assert len(masked) == is_on
        kept_bytes.append(step.kept_bytes)
    assert kept_bytes[0] - kept_bytes[1] == 432 * 4 + 432


@pytest.mark.parametrize(
    ("dropout", "lacking"),
    [
        ("0.1", "behind the softmax of attention or at the end of residual branches or behind the embeddings"),
        ("residual=0.1", "at the end of residual branches"),
        ("off", None),
        (None, None),
    ],
)
def test_dropout_without_a_place_is_warned_of(dropout: str | None, lacking: str | None) -> None:
    graph = inferred(FIRST + "y = Relu (h)", X, weights=W)
    warnings = as_trained(graph, make_training(dropout=dropout)).graph.warnings
    assert [notice.message for notice in warnings] == ([f"--dropout: no place was found {lacking}"] if lacking else [])


def test_the_files_own_dropout_runs() -> None:
    graph = inferred(FIRST + "d = Dropout (h, rate)\ny = Relu (d)", X, weights=W, constants={"rate": [0.5]})
    assert backwards(trained(graph)[2])["Dropout"] == ["mul [64, 64] -> 64"]
    idle = inferred(FIRST + "d = Dropout (h, rate)\ny = Relu (d)", X, weights=W, constants={"rate": [0.0]})
    assert "Dropout" not in backwards(trained(idle)[2])


def test_a_folded_batch_normalization_runs_again() -> None:
    """Weight and bias have names of the exporter: 2 x 4 x 8 x 8 results, normalized over 128 in each of 4 channels."""
    weights = {"onnx::Conv_7": (4, 3, 3, 3), "onnx::Conv_8": (4,), "head.weight": (5, 4, 1, 1), "head.bias": (5,)}
    nodes = [
        helper.make_node("Conv", ["x", "onnx::Conv_7", "onnx::Conv_8"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "head.weight", "head.bias"], ["y"]),
    ]
    _, works, result = trained(inferred(nodes, {"x": (2, 3, 8, 8)}, weights=weights))
    forward = [shown(kernel) for work in works for kernel in work.kernels]
    assert forward == ["conv forward", "add [1] -> 1", "batch 4x128", "conv forward", "add [640, 5] -> 640"]
    assert backwards(result)["BatchNormalization"] == ["batch backward 4x128"]
    assert result.parameter_count == 108 + 4 + 4 + 20 + 5, "a scale beside the shift"
