"""Attention that a model writes itself and a compiler replaces: the patterns of PyTorch 2.1's Inductor.

``fx_passes/fuse_attention.py`` of that version knows, for tensors of four dimensions at inference,

- 1 and 2: ``softmax(q @ k^T / s) @ v`` and ``softmax(q @ k^T * s) @ v``, s being a number, where the products need no
  copies of permuted operands: with a batch of one they don't,
- 11: the first of them with such copies, q, k and v being permuted from (b, s, h, d) right before,
- 5: an added mask, but only without copies; permuted and masked (BERT) came with 2.2, a selecting mask (GPT-2) with
  2.3.

The unmasked ones are replaced here. Pattern 5 is not: its own mask has the shape of the scores, and whether a broadcast
one is taken could not be established.

TensorRT has fused kernels for attention in 16 and 8 bits, with any scale and an added or selecting mask, for heads of
at most 256 that are a multiple of 8 (developer guide, "Multi-Head Attention Fusion"). They read queries, keys and
values where they lie as (b, s, h, d), so that the Transposes around them are gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from neusight_onnx.dtypes import DataType
from neusight_onnx.fusion.patterns import Verdict
from neusight_onnx.graph.model import InferredGraph, Node, Origin
from neusight_onnx.kernels import Attention, Gemm, Kernel, NodeWork, Softmax

SCALES = ("div", "mul")
HEADS_FIRST = (0, 2, 1, 3)
"""(b, s, h, d) -> (b, h, s, d)."""
KEYS_TRANSPOSED = (0, 2, 3, 1)
"""The same and its last two dimensions swapped, which exporters write as one Transpose."""
SWAPPED = (0, 1, 3, 2)


def replace_attention(graph: InferredGraph) -> InferredGraph:
    """``graph`` (recognised for "compiled") with unmasked attention as one operator, in bodies, too.

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
    uses = Counter(_read(graph))
    found: dict[str, Node] = {}
    gone: set[str] = set()
    for softmax in anchors:
        scores = makers.get(softmax.inputs[0])
        product = readers.get(softmax.outputs[0])
        inner = (softmax.inputs[0], softmax.outputs[0])
        if scores is None or product is None or any(uses[name] != 1 for name in inner):
            continue
        if _is_attention(graph, scores, softmax, product, makers):
            origins = [origin for node in (scores, softmax, product) for origin in _origins(node)]
            found[product.name] = replace(
                product,
                op_type="ScaledDotProductAttention",
                domain="neusight",
                inputs=(*scores.inputs, product.inputs[1]),
                origins=tuple(dict.fromkeys(origins)),
            )
            gone.update((scores.name, softmax.name))
    if not found:
        return graph
    kept = tuple(found.get(node.name, node) for node in nodes if node.name not in gone)
    return replace(graph, graph=replace(graph.graph, nodes=kept))


LARGEST_HEAD = 256
HEAD_STEP = 8
FUSED_TYPES = frozenset({DataType.FLOAT16, DataType.BFLOAT16, DataType.INT8, DataType.FLOAT8E4M3FN})
ENGINE_RULE = "attention in one kernel"


def fuse_attention(graph: InferredGraph) -> tuple[InferredGraph, tuple[Verdict, ...]]:
    """``graph`` (recognised for "tensorrt") with attention as one operator, in bodies, too, and why some isn't."""
    bodies = {key: fuse_attention(body)[0] for key, body in graph.bodies.items()}
    if any(bodies[key] is not body for key, body in graph.bodies.items()):
        graph = replace(graph, bodies=bodies)
    nodes = graph.graph.nodes
    anchors = [
        node for node in nodes if (node.domain, node.op_type) in (("", "Softmax"), ("neusight", "MaskedSoftmax"))
    ]
    if not anchors:
        return graph, ()
    makers = {name: node for node in nodes for name in node.outputs}
    readers: dict[str, Node] = {name: node for node in nodes for name in node.inputs}
    uses = Counter(_read(graph))
    found: dict[str, Node] = {}
    gone: set[str] = set()
    verdicts: list[Verdict] = []
    for softmax in anchors:
        scores, product = makers.get(softmax.inputs[0]), readers.get(softmax.outputs[0])
        reason = _engine_refusal(graph, scores, softmax, product, uses)
        if reason is not None or scores is None or product is None:
            verdicts.append(Verdict(rule=ENGINE_RULE, node=softmax.name, reason=reason))
            continue
        masks = [name for name in softmax.inputs[1:] if graph.values[name].shape not in ((), (1,))]
        names = [*scores.inputs[:2], product.inputs[1]]
        around: list[Node] = []
        for name in names:
            maker = makers.get(name)
            if maker is not None and uses[name] == 1 and _permutation(maker) in (HEADS_FIRST, KEYS_TRANSPOSED):
                around.append(maker)
        behind = readers.get(product.outputs[0])
        if behind is not None and uses[product.outputs[0]] == 1 and _permutation(behind) == HEADS_FIRST:
            around.append(behind)
        for node in around:
            found[node.name] = replace(node, op_type="InPlace", domain="neusight", attributes={})
        origins = [origin for node in (scores, softmax, product) for origin in _origins(node)]
        found[product.name] = replace(
            product,
            op_type="ScaledDotProductAttention",
            domain="neusight",
            inputs=(*names, *masks[-1:]),
            attributes={"transposed_key": int(scores.attributes.get("transB", 0) != 1)},
            origins=tuple(dict.fromkeys(origins)),
        )
        gone.update((scores.name, softmax.name))
        verdicts.append(
            Verdict(rule=ENGINE_RULE, node=softmax.name, merged=tuple(item.name for item in (scores, softmax, product)))
        )
    if not found:
        return graph, tuple(verdicts)
    kept = tuple(found.get(node.name, node) for node in nodes if node.name not in gone)
    return replace(graph, graph=replace(graph.graph, nodes=kept)), tuple(verdicts)


def by_parts(work: NodeWork) -> NodeWork:
    """``work`` with two products and a softmax in place of each fused attention."""
    if not any(isinstance(kernel, Attention) for kernel in work.kernels):
        return work
    kernels: list[Kernel] = []
    for kernel in work.kernels:
        kernels.extend(_parts(kernel) if isinstance(kernel, Attention) else (kernel,))
    return replace(work, kernels=tuple(kernels))


def _parts(kernel: Attention) -> tuple[Kernel, ...]:
    batch = kernel.b * kernel.h
    scores = Gemm(batch=batch, m=kernel.s, n=kernel.t, k=kernel.d, transpose_b=True, dtype=kernel.dtype)
    softmax = Softmax(
        rows=batch * kernel.s,
        cols=kernel.t,
        dtype=kernel.dtype,
        fused=("mul", "add") if kernel.mask is not None else ("mul",),
        extra_inputs=() if kernel.mask is None else (kernel.mask,),
    )
    return scores, softmax, Gemm(batch=batch, m=kernel.s, n=kernel.v, k=kernel.t, dtype=kernel.dtype)


def _engine_refusal(
    graph: InferredGraph, scores: Node | None, softmax: Node, product: Node | None, uses: Counter[str]
) -> str | None:
    """Why a softmax and the products around it aren't one kernel of TensorRT; None if they are."""
    if scores is None or scores.op_type not in ("MatMul", "FusedMatMul") or scores.attributes.get("transA", 0):
        return "the softmax isn't over a product"
    if product is None or product.op_type != "MatMul" or product.domain or product.inputs[0] != softmax.outputs[0]:
        return "its result is not multiplied with values"
    if any(uses[name] != 1 for name in (softmax.inputs[0], softmax.outputs[0])):
        return "the scores or weights are used elsewhere, too"
    names = (*scores.inputs[:2], product.inputs[1])
    values = [graph.values.get(name) for name in names]
    shapes = [value.shape for value in values if value is not None and value.shape is not None]
    if len(shapes) < 3 or any(len(shape) not in (3, 4) for shape in shapes):
        return "queries, keys and values don't have three or four dimensions"
    query = values[0]
    if query is None or query.dtype not in FUSED_TYPES:
        return "it has fused kernels in 16 and 8 bits only"
    if any(shape[-1] > LARGEST_HEAD or shape[-1] % HEAD_STEP for shape in (shapes[0], shapes[2])):
        return f"a head of more than {LARGEST_HEAD}, or of no multiple of {HEAD_STEP}"
    axis = softmax.attributes.get("axis", -1 if softmax.version >= 13 else 1)
    if softmax.op_type == "Softmax" and axis not in (-1, len(shapes[0]) - 1):
        return "the softmax isn't over the last dimension"
    return None


def _is_attention(graph: InferredGraph, scores: Node, softmax: Node, product: Node, makers: dict[str, Node]) -> bool:
    """(b, h, s, d) @ transposed (b, h, t, d), scaled by a number, softmax, @ (b, h, t, v)."""
    if softmax.attributes.get("fused") not in SCALES or len(softmax.inputs) != 2:
        return False
    scale = graph.values.get(softmax.inputs[1])
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
    before = key if _permutation(key) != SWAPPED else makers.get(key.inputs[0])
    permuted = _permutation(before) == (KEYS_TRANSPOSED if before is key else HEADS_FIRST)
    others = all(_permutation(makers.get(name)) == HEADS_FIRST for name in (scores.inputs[0], product.inputs[1]))
    return softmax.attributes.get("fused") == "div" and permuted and others


def _permutation(node: Node | None) -> tuple[int, ...] | None:
    """The permutation of a Transpose that says it; None for any other node."""
    if node is None or node.op_type != "Transpose" or node.domain:
        return None
    axes = node.attributes.get("perm")
    return tuple([axis for axis in axes if isinstance(axis, int)]) if isinstance(axes, tuple) else None


def _origins(node: Node) -> tuple[Origin, ...]:
    return node.origins or (Origin(name=node.name, op_type=node.op_type),)


def _read(graph: InferredGraph) -> Iterable[str]:
    """Every name that the graph, its outputs and its bodies read, as often as they do."""
    for node in graph.graph.nodes:
        yield from node.inputs
    for declared in graph.graph.outputs:
        yield declared.name
    for body in graph.bodies.values():
        yield from _read(body)
