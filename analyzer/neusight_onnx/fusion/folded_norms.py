"""Batch normalizations that an export folded into convolutions, and that PyTorch's model still runs."""

from __future__ import annotations

import re
from dataclasses import replace

from neusight_onnx.graph.model import InferredGraph, Node, made_name

STATISTICS_VERSION = 14
"""Opset from which an attribute of BatchNormalization says that it trains."""

_MADE_BY_EXPORTER = re.compile(r"onnx::Conv(Transpose)?_\d+")
"""Names that torch.onnx (TorchScript) gives to weights that no module has: those of convolutions with a batch
normalization folded into them (eval_peephole; torch 1.7 and later)."""
_CONVOLUTIONS = ("Conv", "ConvTranspose")


def with_folded_norms(graph: InferredGraph) -> InferredGraph:
    """:func:`unfolded`, and said so: PyTorch runs the model's normalizations, not the sums that the file has.

    So does what it compiles: Inductor folds them when it freezes a model, which it doesn't by default
    (``config.freezing``, ``config.efficient_conv_bn_eval_fx_passes``).
    """
    found, count = unfolded(graph)
    if not count:
        return graph
    said = (
        f"{count:,} batch {'normalization' if count == 1 else 'normalizations'} that the export folded into "
        "convolutions: the model runs them (the exporter named what it made of them, no module does)"
    )
    return replace(found, assumptions=(*found.assumptions, said))


def unfolded(graph: InferredGraph) -> tuple[InferredGraph, int]:
    """The graph with the batch normalizations that PyTorch's exporter folded into convolutions, and how many.

    In eval mode it does. The weights that TorchScript's makes have names of its own, while those of a module keep
    theirs: a convolution whose weight and bias both have such names was folded. Of equal weights, as the biases of a
    model that was never trained are, it stores one and has an Identity make the others
    (_jit_pass_onnx_deduplicate_initializers). Dynamo's exporter (onnxscript's ``_fuse_batchnorm.py``) keeps the
    weight's name and calls the bias that a convolution hadn't by it, ``conv.weight_bias``. The bias stands for the
    shift; scale and statistics are made up anew.
    """
    nodes: list[Node] = []
    values = dict(graph.values)
    initializers = dict(graph.graph.initializers)
    stored = {name: name for name in initializers}
    for node in graph.graph.nodes:
        if node.op_type == "Identity" and not node.domain and node.inputs[0] in stored:
            stored[node.outputs[0]] = stored[node.inputs[0]]
    convolutions = [node for node in graph.graph.nodes if node.op_type in _CONVOLUTIONS and len(node.inputs) == 3]
    by_dynamo = {f"{node.inputs[1]}_bias" for node in convolutions}
    count = 0
    for node in graph.graph.nodes:
        if not (
            node.op_type in _CONVOLUTIONS
            and len(node.inputs) == 3
            and all(name in stored for name in node.inputs[1:])
            and (node.inputs[2] in by_dynamo or all(map(_MADE_BY_EXPORTER.fullmatch, node.inputs[1:])))
        ):
            nodes.append(node)
            continue
        weight, shift = node.inputs[1:]
        target = node.outputs[0]
        inner = made_name(target, "convolved")
        values[inner] = values[target]
        made = []
        for part in ("scale", "mean", "variance"):
            name = made_name(shift, part)
            initializers[name] = replace(initializers[stored[shift]], name=name, data=None)
            values[name] = replace(values[shift], data=None)
            made.append(name)
        scale, mean, variance = made
        nodes.append(replace(node, inputs=(node.inputs[0], weight), outputs=(inner,)))
        nodes.append(
            Node(
                name=made_name(node.name, "norm"),
                op_type="BatchNormalization",
                version=STATISTICS_VERSION,
                inputs=(inner, scale, shift, mean, variance),
                outputs=(target,),
                origins=node.stands_for,
            )
        )
        count += 1
    if not count:
        return graph, 0
    inner_graph = replace(graph.graph, nodes=tuple(nodes), initializers=initializers)
    return replace(graph, graph=inner_graph, values=values), count
