"""What a convolution or a matrix product applies to its sums before it writes them: an engine's epilogues.

A product takes the operators behind it as long as nothing else reads the value between, the runtime has a kernel with
that epilogue, and the operand of an addition is a vector over the columns (channels) or one tensor of the result's
shape. Products that share their left operand become one (queries, keys and values of attention). Both in linear time.

What a generated kernel takes instead, seen in engines of TensorRT for RTX 1.7 (``benchmarks/results/fusion_trt.md``):
biases and a residual sum in front of a normalization that is their only reader, which then writes no sum; the bias of
queries, keys and values in front of fused attention; an activation of :data:`GENERATED` behind a convolution where a
reduction reads it (squeeze and excitation).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import cast

from neusight_onnx.fusion.patterns.search import LONGEST_CHAIN, OWN, Verdict
from neusight_onnx.graph.model import InferredGraph, Node, Origin, Value, file_name, kept_values, made_name
from neusight_onnx.runtime import Runtime

CONVOLUTIONS = frozenset({("", "Conv"), ("", "ConvTranspose")})
PRODUCTS = frozenset(
    {("", "Gemm"), ("", "MatMul"), ("com.microsoft", "FusedMatMul"), (OWN, "Linear"), (OWN, "SharedLinear")}
)
DEQUANTIZING = {
    "QuantizedConv": "conv",
    "QuantizedConvTranspose": "conv",
    **dict.fromkeys(("QuantizedGemm", "QuantizedLinear", "QuantizedMatMul"), "gemm"),
}
"""Products of quantised operands, which write floats where nothing quantises them again."""
KERNEL_NAMES = {"Clip": "clamp", "Swish": "silu", "LeakyRelu": "leaky_relu", "HardSwish": "hardswish"}
"""What the operators are called in kernels, where that isn't their name in lower case."""
GENERATED = frozenset({"Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Swish"})
"""Activations that libraries' convolutions don't have: the compiler generates the epilogue, or a kernel behind."""
VIEWS = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
NORMALIZATIONS = frozenset({"LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"})
REDUCTIONS = frozenset({"ReduceMax", "ReduceMean", "ReduceSum"})
EPILOGUE = "epilogue of a product"
ELSEWHERE = "is used elsewhere"


@dataclass(slots=True)
class _Walk:
    """A graph, indexed, with what was merged so far."""

    values: Mapping[str, Value]
    consumers: Mapping[str, list[Node]]
    kept: frozenset[str]
    taken: set[str] = field(default_factory=set)

    def shape(self, name: str) -> tuple[int, ...] | None:
        value = self.values.get(name)
        return None if value is None else value.shape

    def is_constant(self, name: str) -> bool:
        value = self.values.get(name)
        return value is not None and value.is_constant


def fuse_epilogues(graph: InferredGraph, runtime: Runtime) -> tuple[InferredGraph, tuple[Verdict, ...]]:
    """``graph`` with the products of ``runtime``, and why a product didn't take the operator behind it; bodies, too.

    The new node stands where the last of its nodes stood, has its name, and lists all of them as origins.
    """
    if not runtime.products:
        return graph, ()
    bodies = {key: fuse_epilogues(body, runtime)[0] for key, body in graph.bodies.items()}
    graph = _share_operands(graph)
    nodes = graph.graph.nodes
    walk = _indexed(graph)
    merged: dict[str, Node] = {}
    apart: dict[str, tuple[Node, Node]] = {}
    verdicts: list[Verdict] = []
    for node in nodes:
        kind = _kind(node)
        if kind is None or len(node.outputs) != 1 or node.name in walk.taken:
            continue
        followers, epilogue, operands, output, reason = _behind(walk, node, runtime.products[kind], kind)
        if kind == "gemm" and set(epilogue) <= {"bias", "add"} and _is_normalized(walk, output):
            if node.op_type == "Linear":
                apart[node.name] = _taken_apart(node)
            continue
        if node.op_type == "Linear" and not followers and (parts := _parts_attended(walk, output)):
            apart[node.name] = _taken_apart(node, parts)
            continue
        if reason is not None and not (followers and reason.endswith(ELSEWHERE)):
            verdicts.append(Verdict(rule=EPILOGUE, node=node.name, reason=reason))
        if not followers:
            continue
        walk.taken.update(item.name for item in (node, *followers))
        verdicts.append(Verdict(rule=EPILOGUE, node=node.name, merged=tuple(item.name for item in (node, *followers))))
        last = followers[-1]
        merged[last.name] = Node(
            name=last.name,
            op_type="WithEpilogue",
            domain=OWN,
            version=node.version,
            inputs=(*node.inputs, *operands),
            outputs=(output,),
            attributes={
                **node.attributes,
                "product": node.op_type,
                "product_domain": node.domain,
                "product_inputs": len(node.inputs),
                "epilogue": tuple(epilogue),
            },
            origins=_origins((node, *followers)),
        )
    if not merged and not apart:
        return replace(graph, bodies=bodies), tuple(verdicts)
    left = [
        part
        for node in nodes
        if node.name not in walk.taken or node.name in merged
        for part in apart.get(node.name, (merged.get(node.name, node),))
    ]
    written = {name for node in left for name in node.outputs}
    gone = {name for node in nodes if node.name in walk.taken for name in node.outputs} - written
    values = {name: value for name, value in graph.values.items() if name not in gone}
    values |= {product.outputs[0]: graph.values[bias.outputs[0]] for product, bias in apart.values()}
    result = replace(graph, graph=replace(graph.graph, nodes=tuple(left)), values=values, bodies=bodies)
    return result, tuple(verdicts)


def _kind(node: Node) -> str | None:
    """Whose epilogues a node may take: "conv", "gemm"."""
    key = (node.domain, node.op_type)
    if node.domain == OWN and "dequantize" in cast("tuple[str, ...]", node.attributes.get("applied", ())):
        return DEQUANTIZING.get(node.op_type)
    return "conv" if key in CONVOLUTIONS else "gemm" if key in PRODUCTS else None


def _behind(
    walk: _Walk, node: Node, allowed: frozenset[str], kind: str
) -> tuple[list[Node], list[str], list[str], str, str | None]:
    """(operators that the product takes, its epilogue, their operands, what it writes, why it stopped)."""
    output = node.outputs[0]
    shape = walk.shape(output)
    followers: list[Node] = []
    epilogue: list[str] = []
    operands: list[str] = []
    channel = 1 if kind == "conv" else len(shape or ()) - 1
    for _ in range(LONGEST_CHAIN):
        users = walk.consumers.get(output, ())
        if not users:
            return followers, epilogue, operands, output, None
        if output in walk.kept or len(users) != 1:
            return (
                followers,
                epilogue,
                operands,
                output,
                f"the value of {file_name((followers or [node])[-1].name)} {ELSEWHERE}",
            )
        user = users[0]
        if user.domain or shape is None or user.name in walk.taken or len(user.outputs) != 1:
            return followers, epilogue, operands, output, None
        if user.op_type in ("Add", "Sub", "Mul", "Div"):
            if len(user.inputs) != 2 or user.inputs[0] == user.inputs[1] or walk.shape(user.outputs[0]) != shape:
                return (
                    followers,
                    epilogue,
                    operands,
                    output,
                    f"{file_name(user.name)} changes the shape, or has one operand twice",
                )
            other = user.inputs[1] if user.inputs[0] == output else user.inputs[0]
            step, reason = _binary(walk, user, other, shape, channel, allowed, epilogue)
            if step is None:
                return followers, epilogue, operands, output, reason
            epilogue.append(step)
            operands.append(other)
        elif user.op_type in allowed and user.inputs[0] == output:
            if kind == "conv" and user.op_type in GENERATED and _is_reduced(walk, user):
                return followers, epilogue, operands, output, f"the kernel that reads it applies {user.op_type}"
            epilogue.append(KERNEL_NAMES.get(user.op_type, user.op_type.lower()))
        elif user.op_type in ACTIVATIONS:
            return followers, epilogue, operands, output, f"it has no kernel that applies {user.op_type}"
        else:
            return followers, epilogue, operands, output, None
        followers.append(user)
        output = user.outputs[0]
    return followers, epilogue, operands, output, None


def _is_normalized(walk: _Walk, name: str) -> bool:
    """Whether a normalization is the only reader."""
    users = walk.consumers.get(name, ())
    return len(users) == 1 and users[0].op_type in NORMALIZATIONS and name not in walk.kept


def _parts_attended(walk: _Walk, name: str) -> int:
    """How many parts of a value fused attention reads, by views alone; 0 where anything else reads its elements."""
    pending, parts, is_attended = [name], 0, False
    while pending:
        value = pending.pop()
        whole = walk.shape(value)
        if value in walk.kept or whole is None:
            return 0
        for user in walk.consumers.get(value, ()):
            if (user.domain, user.op_type) == (OWN, "ScaledDotProductAttention"):
                is_attended = True
            elif not user.domain and user.op_type in ("Shape", "Size"):
                continue
            elif user.op_type == "InPlace" or (not user.domain and user.op_type in VIEWS):
                part = walk.shape(user.outputs[0])
                parts += len(user.outputs) if part is not None and prod(part) < prod(whole) else 0
                pending.extend(user.outputs)
            else:
                return 0
    return max(parts, 1) if is_attended else 0


def _is_reduced(walk: _Walk, activation: Node) -> bool:
    """Whether a reduction reads an activation's result."""
    return any(user.op_type in REDUCTIONS for user in walk.consumers.get(activation.outputs[0], ()))


ACTIVATIONS = frozenset(
    {"Elu", "Gelu", "HardSigmoid", "HardSwish", "Mish", "PRelu", "Sigmoid", "Softplus", "Swish", "Tanh"}
)
"""Operators of which a reader may expect that a product applies them."""


def _binary(
    walk: _Walk,
    user: Node,
    other: str,
    shape: tuple[int, ...],
    channel: int,
    allowed: frozenset[str],
    epilogue: list[str],
) -> tuple[str | None, str | None]:
    """(step of the epilogue, why there is none)."""
    added = user.op_type in ("Add", "Sub")
    operand = walk.shape(other)
    if operand is None:
        return None, f"the shape of {other} is not known"
    if walk.is_constant(other):
        padded = (1,) * (len(shape) - len(operand)) + operand
        per_channel = all(size == 1 or (axis == channel and size == shape[axis]) for axis, size in enumerate(padded))
        if not per_channel:
            return None, f"{file_name(user.name)} takes a constant that isn't one number a column"
        if ("bias" if added else "scale") not in allowed:
            return None, f"it has no kernel that applies {user.op_type} by column"
        return ("bias" if added else "mul"), None
    if user.op_type != "Add" or operand != shape:
        return None, f"it has no kernel that applies {user.op_type} with another tensor of shape {operand}"
    if "Add" not in allowed or "add" in epilogue:
        return None, "it adds one tensor at most"
    return "add", None


def _share_operands(graph: InferredGraph) -> InferredGraph:
    """Linear layers of one input become one product, whose parts are read where they lie; biases are added behind it.

    So engines of TensorRT for RTX 1.7 have it: the product of queries, keys and values is plain, and a kernel for each
    of them adds its bias, scales queries, and puts heads where attention reads them.
    """
    groups: dict[tuple[str, int], list[Node]] = defaultdict(list)
    values = graph.values
    for node in graph.graph.nodes:
        if (node.domain, node.op_type) not in ((OWN, "Linear"), ("", "MatMul")) or len(node.outputs) != 1:
            continue
        weight, source = values.get(node.inputs[1]), values.get(node.inputs[0])
        if weight is None or source is None or not weight.is_constant or weight.shape is None or source.is_constant:
            continue
        if len(weight.shape) == 2:
            groups[(node.inputs[0], weight.shape[0])].append(node)
    shared = {key: nodes for key, nodes in groups.items() if len(nodes) > 1}
    if not shared:
        return graph
    parts: dict[str, tuple[Node, ...]] = {}
    made: dict[str, Value] = {}
    for (source_name, _), members in shared.items():
        plain = {
            node.name: node.outputs[0] if node.op_type == "MatMul" else made_name(node.outputs[0], "product")
            for node in members
        }
        made.update((plain[node.name], values[node.outputs[0]]) for node in members)
        product = Node(
            name=members[0].name,
            op_type="SharedLinear",
            domain=OWN,
            version=members[0].version,
            inputs=(source_name, *(node.inputs[1] for node in members)),
            outputs=tuple(plain.values()),
            origins=_origins(members, without="Add"),
        )
        for node in members:
            parts[node.name] = (product,) if node is members[0] else ()
            if node.op_type == "Linear":
                parts[node.name] += (_bias_behind(node, plain[node.name]),)
    nodes = tuple(part for node in graph.graph.nodes for part in parts.get(node.name, (node,)))
    return replace(graph, graph=replace(graph.graph, nodes=nodes), values={**values, **made})


def _taken_apart(linear: Node, parts: int = 1) -> tuple[Node, Node]:
    """A linear layer as a plain product and the sum behind it, a kernel for each of ``parts``."""
    product = made_name(linear.outputs[0], "product")
    plain = replace(
        linear,
        op_type="MatMul",
        domain="",
        version=13,
        inputs=linear.inputs[:2],
        outputs=(product,),
        origins=_origins([linear], without="Add"),
    )
    bias = _bias_behind(linear, product)
    if parts > 1:
        bias = replace(bias, op_type="BiasByParts", domain=OWN, version=1, attributes={"parts": parts})
    return plain, bias


def _bias_behind(linear: Node, product: str) -> Node:
    """The sum of a linear layer's plain product, and its bias."""
    return Node(
        name=made_name(linear.name, "bias"),
        op_type="Add",
        domain="",
        version=14,
        inputs=(product, linear.inputs[2]),
        outputs=linear.outputs,
        origins=_origins([linear], only="Add"),
    )


def _origins(nodes: Iterable[Node], *, without: str = "", only: str = "") -> tuple[Origin, ...]:
    found = [origin for node in nodes for origin in node.stands_for]
    kept = [origin for origin in found if origin.op_type != without and only in ("", origin.op_type)]
    return tuple(dict.fromkeys(kept))


def _indexed(graph: InferredGraph) -> _Walk:
    consumers: dict[str, list[Node]] = defaultdict(list)
    for node in graph.graph.nodes:
        for name in dict.fromkeys(node.inputs):
            consumers[name].append(node)
    return _Walk(values=graph.values, consumers=consumers, kept=kept_values(graph))
