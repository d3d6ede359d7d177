"""Attention that a model writes itself and a compiler replaces: the patterns of PyTorch 2.9's Inductor.

``fx_passes/fuse_attention.py`` of that version knows, for tensors of four dimensions at inference,

- 1 and 2: ``softmax(q @ k^T / s) @ v`` and ``softmax(q @ k^T * s) @ v``, s being a number, where the products need no
  copies of permuted operands: with a batch of one they don't,
- 11: the first of them with such copies, q, k and v being permuted from (b, s, h, d) right before,
- 5 and 14: 1 and 11 with an added mask, whatever it broadcasts (BERT; 14 came with PyTorch 2.2),
- 18: a selecting mask, where permuted keys and values are results, too (GPT-2 with a cache). It isn't replaced here.

Which graphs they take was seen in what PyTorch 2.9.1 makes of each form, in FP32 (``benchmarks/inductor_kernels.py``
runs it without a GPU): masked scores that are multiplied by a number match none, nor do those of autocast, whose mask
stays in FP32.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from neusight_onnx.graph.model import InferredGraph, Node

SCALES = ("div", "mul", "div,add")
HEADS_FIRST = (0, 2, 1, 3)
"""(b, s, h, d) -> (b, h, s, d)."""
KEYS_TRANSPOSED = (0, 2, 3, 1)
"""The same and its last two dimensions swapped, which exporters write as one Transpose."""
SWAPPED = (0, 1, 3, 2)


def replace_attention(graph: InferredGraph) -> InferredGraph:
    """``graph`` (recognised for "compiled") with attention as one operator where a pattern has it, in bodies, too.

    The operator stands where the second product stood, has its name, and lists what it replaces as origins. A graph
    without such attention comes back as it is.
    """
    bodies = {key: replace_attention(body) for key, body in graph.bodies.items()}
    if any(bodies[key] is not body for key, body in graph.bodies.items()):
        graph = replace(graph, bodies=bodies)
    nodes = graph.graph.nodes
    anchors = [node for node in nodes if node.op_type == "MaskedSoftmax" and node.domain == "neusight"]
    if not anchors:
        return graph
    makers = {name: node for node in nodes for name in node.outputs}
    readers: dict[str, Node] = {name: node for node in nodes for name in node.inputs}
    uses = Counter(reads_of(graph))
    found: dict[str, Node] = {}
    gone: set[str] = set()
    for softmax in anchors:
        scores = makers.get(softmax.inputs[0])
        product = readers.get(softmax.outputs[0])
        inner = (softmax.inputs[0], softmax.outputs[0])
        if scores is None or product is None or any(uses[name] != 1 for name in inner):
            continue
        if _is_attention(graph, scores, softmax, product, makers):
            origins = [origin for node in (scores, softmax, product) for origin in node.stands_for]
            found[product.name] = replace(
                product,
                op_type="ScaledDotProductAttention",
                domain="neusight",
                inputs=(*scores.inputs, product.inputs[1], *softmax.inputs[1:-1]),
                origins=tuple(dict.fromkeys(origins)),
            )
            gone.update((scores.name, softmax.name))
    if not found:
        return graph
    kept = tuple(found.get(node.name, node) for node in nodes if node.name not in gone)
    return replace(graph, graph=replace(graph.graph, nodes=kept))


def _is_attention(graph: InferredGraph, scores: Node, softmax: Node, product: Node, makers: dict[str, Node]) -> bool:
    """(b, h, s, d) @ transposed (b, h, t, d), scaled by a number, perhaps masked, softmax, @ (b, h, t, v)."""
    steps = softmax.attributes.get("fused")
    if steps not in SCALES or len(softmax.inputs) != 1 + str(steps).count(",") + 1:
        return False
    scale = graph.values.get(softmax.inputs[-1])
    if scale is None or not scale.is_constant or scale.shape not in ((), (1,)):
        return False
    if any(node.op_type != "MatMul" or node.domain for node in (scores, product)):
        return False
    key = makers.get(scores.inputs[1])
    if key is None or key.op_type != "Transpose" or product.inputs[0] != softmax.outputs[0]:
        return False
    names = (*scores.inputs, product.inputs[1])
    shapes = [None if (value := graph.values.get(name)) is None else value.shape for name in names]
    if any(shape is None or len(shape) != 4 for shape in shapes):
        return False
    if all(shape is not None and shape[0] == 1 for shape in shapes):
        return True
    before = key if permutation_of(key) != SWAPPED else makers.get(key.inputs[0])
    permuted = permutation_of(before) == (KEYS_TRANSPOSED if before is key else HEADS_FIRST)
    others = all(permutation_of(makers.get(name)) == HEADS_FIRST for name in (scores.inputs[0], product.inputs[1]))
    return str(steps).startswith("div") and permuted and others


def permutation_of(node: Node | None) -> tuple[int, ...] | None:
    """The permutation of a Transpose that says it; None for any other node."""
    if node is None or node.op_type != "Transpose" or node.domain:
        return None
    axes = node.attributes.get("perm")
    return tuple([axis for axis in axes if isinstance(axis, int)]) if isinstance(axes, tuple) else None


def reads_of(graph: InferredGraph) -> Iterable[str]:
    """Every name whose elements the graph, its outputs and its bodies read, as often as they do."""
    for node in graph.graph.nodes:
        if node.op_type not in ("Shape", "Size") or node.domain:
            yield from node.inputs
    for declared in graph.graph.outputs:
        yield declared.name
    for body in graph.bodies.values():
        yield from reads_of(body)
