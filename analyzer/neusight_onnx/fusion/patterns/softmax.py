"""Softmax and what runs in one kernel with it: its logarithm, scale and mask, the products of attention."""

from __future__ import annotations

from neusight_onnx.fusion.patterns.normalizations import reduced_axes
from neusight_onnx.fusion.patterns.search import LONGEST_CHAIN, OWN, Match, Search, Trail
from neusight_onnx.graph.model import Node


def log_softmax(search: Search, anchor: Node) -> Match | str:
    """log(softmax(x))."""
    trail = Trail(search)
    trail.add(anchor)
    log = trail.down(anchor.outputs[0], "Log")
    if log is None:
        return "its result is not only taken the logarithm of"
    return trail.finish(
        "LogSoftmax", (anchor.inputs[0],), log.outputs[0], version=anchor.version, attributes=anchor.attributes
    )


def over_last_axis(search: Search, softmax: Node) -> bool:
    shape = search.shape(softmax.inputs[0])
    axis = softmax.attributes.get("axis", -1 if softmax.version >= 13 else 1)
    return bool(shape) and isinstance(axis, int) and axis % len(shape or ()) == len(shape or ()) - 1


def _scaled(trail: Trail, name: str) -> tuple[str, str] | None:
    """(value, scalar) if ``name`` is their product, which joins the trail then alone."""
    attempt = Trail(trail.search)
    node = attempt.up(name, "Mul")
    if node is None:
        return None
    for value, scalar in (tuple(node.inputs), tuple(reversed(node.inputs))):
        if trail.search.shape(scalar) in ((), (1,)) and trail.search.shape(value) not in ((), (1,)):
            trail.add(*attempt.nodes.values())
            return value, scalar
    return None


def attention(search: Search, anchor: Node) -> Match | str:
    """softmax((q * s) @ (k^T * s) + mask) @ v: PyTorch's exporters write scaled_dot_product_attention so.

    Scaling *both* factors by the root of the scale is their signature: attention that a model writes itself scales
    one of them, or the product, and runs operator by operator. A scale of 1 (Whisper's) is dropped; then the other
    thing that no model writes itself tells: keys that are transposed as (b h, t, d), between two Reshapes
    (``aten_scaled_dot_product_attention`` of onnxscript's torchlib).
    """
    if not over_last_axis(search, anchor):
        return "the softmax isn't over the last axis"
    trail = Trail(search)
    trail.add(anchor)
    mask: tuple[str, ...] = ()
    scores = trail.up(anchor.inputs[0], "MatMul", "Add")
    if scores is not None and scores.op_type == "Add":
        makers = [(operand, search.producers.get(trail.root(operand))) for operand in scores.inputs]
        found = [operand for operand, maker in makers if maker is not None and maker.op_type == "MatMul"]
        if len(found) != 1:
            return "the softmax isn't over a product and a mask"
        mask = tuple(operand for operand in scores.inputs if operand != found[0])
        scores = trail.up(found[0], "MatMul")
    if scores is None:
        return "the softmax isn't over a product"
    query, key = (_scaled(trail, operand) for operand in scores.inputs)
    if query is None and key is None and _swapped_by_torchlib(search, scores.inputs[1]):
        return _attention(trail, anchor, (scores.inputs[0], scores.inputs[1]), mask)
    if query is None or key is None:
        return "not both factors of the product are scaled: attention that the model writes itself"
    same = trail.root(query[1]) == trail.root(key[1])
    if not same and (search.number(query[1]) is None or search.number(query[1]) != search.number(key[1])):
        return "the two factors are scaled differently"
    return _attention(trail, anchor, (query[0], key[0]), mask)


def swapped_keys(search: Search, anchor: Node) -> Match | str:
    """Keys of scaled_dot_product_attention that torchlib transposes as (b h, t, d): PyTorch's kernel reads them as they
    lie, and between the two Reshapes they would be copied."""
    trail = Trail(search)
    product = trail.up(anchor.inputs[0], "MatMul", "Add")
    if product is not None and product.op_type == "Add":
        product = next((made for name in product.inputs if (made := trail.up(name, "MatMul")) is not None), None)
    if product is None:
        return "the softmax isn't over a product"
    scaled = _scaled(trail, product.inputs[1])
    swapped = Trail(search)
    nodes = _swapped_by_torchlib(search, product.inputs[1] if scaled is None else scaled[0])
    if not nodes:
        return "its keys are not transposed between two Reshapes"
    if any(len(search.consumers.get(node.outputs[0], ())) != 1 for node in nodes):
        return "its transposed keys are read by others, too"
    swapped.add(*nodes)
    last, _, first = nodes
    attributes = {"perm": (0, 1, 3, 2)}
    return swapped.finish("Transpose", (first.inputs[0],), last.outputs[0], version=13, attributes=attributes)


def _swapped_by_torchlib(search: Search, name: str) -> tuple[Node, ...]:
    """The nodes, the last one first, by which a value is (b, h, d, t) of (b, h, t, d) by way of (b h, t, d)."""
    path: list[Node] = []
    for op_type in ("Reshape", "Transpose", "Reshape"):
        node = search.producers.get(name)
        if node is None or node.op_type != op_type:
            return ()
        path.append(node)
        name = node.inputs[0]
    before, after = search.shape(name), search.shape(path[0].outputs[0])
    if path[1].attributes.get("perm") != (0, 2, 1) or before is None or len(before) != 4:
        return ()
    return tuple(path) if after == (*before[:2], before[3], before[2]) else ()


def _attention(trail: Trail, anchor: Node, factors: tuple[str, str], mask: tuple[str, ...]) -> Match | str:
    """What follows the softmax of queries and transposed keys."""
    search = trail.search
    name = anchor.outputs[0]
    users = search.consumers.get(name, ())
    if {user.op_type for user in users} == {"IsNaN", "Where"} and len(users) == 2:
        # rows without any key: not-a-number becomes zero
        trail.add(*users)
        name = next(user.outputs[0] for user in users if user.op_type == "Where")
    product = trail.down(name, "MatMul")
    if product is None or trail.root(product.inputs[0]) != name:
        return "the weights are not only multiplied with values"
    return trail.finish(
        "ScaledDotProductAttention", (*factors, product.inputs[1], *mask), product.outputs[0], domain=OWN
    )


def _is_product(search: Search, name: str) -> bool:
    """Whether a value is a product of two tensors, perhaps scaled by a number."""
    for _ in range(LONGEST_CHAIN):
        node = search.producers.get(name)
        if node is None or node.op_type not in ("FusedMatMul", "MatMul", "Mul", "Div"):
            return False
        if node.op_type in ("FusedMatMul", "MatMul"):
            return True
        name = node.inputs[0] if search.shape(node.inputs[0]) not in ((), (1,)) else node.inputs[1]
        if all(search.shape(item) not in ((), (1,)) for item in node.inputs):
            return False
    return False


def masked_softmax(search: Search, anchor: Node) -> Match | str:
    """softmax(x * scale + mask), or with a selection in place of the sum."""
    if not over_last_axis(search, anchor):
        return "it isn't over the last axis"
    shape = search.shape(anchor.inputs[0])
    trail = Trail(search)
    trail.add(anchor)
    name = anchor.inputs[0]
    steps: list[str] = []
    extra: list[str] = []
    while len(steps) < LONGEST_CHAIN:
        attempt = Trail(search, nodes=dict(trail.nodes))
        node = attempt.up(name, "Add", "Mul", "Div", "Where")
        if node is None or len(search.consumers.get(node.outputs[0], ())) != 1 or node.outputs[0] in search.kept:
            break
        operands = list(node.inputs)
        full = [operand for operand in operands if search.shape(operand) == shape and not search.is_constant(operand)]
        if node.op_type == "Add" and len(full) == 2:  # a mask of each head's own, such as relative positions
            full = [operand for operand in full if _is_product(search, trail.root(operand))]
        if node.op_type == "Where":
            full = [operand for operand in full if operand in node.inputs[1:]]
        if len(full) != 1 or (node.op_type == "Div" and full[0] != node.inputs[0]):
            break
        if node.op_type in ("Mul", "Div") and not all(
            search.shape(operand) in ((), (1,)) for operand in operands if operand != full[0]
        ):
            break
        trail = attempt
        steps.append(node.op_type.lower())
        extra.extend(operand for operand in operands if operand != full[0])
        name = full[0]
    if not steps:
        return "nothing is scaled or masked before it"
    return trail.finish(
        "MaskedSoftmax",
        (name, *extra),
        anchor.outputs[0],
        domain=OWN,
        attributes={"fused": ",".join(reversed(steps))},
    )


def written_softmax(search: Search, anchor: Node) -> Match | str:
    """exp(x - max x) / sum of that."""
    trail = Trail(search)
    trail.add(anchor)
    centred = trail.up(anchor.inputs[0], "Sub")
    largest = None if centred is None else trail.up(centred.inputs[1], "ReduceMax")
    if centred is None or largest is None:
        return "the largest element is not subtracted before"
    x = trail.root(centred.inputs[0])
    if trail.root(largest.inputs[0]) != x:
        return "the largest element of another value is subtracted"
    users = search.consumers.get(anchor.outputs[0], ())
    total = next((user for user in users if user.op_type == "ReduceSum"), None)
    if len(users) != 2 or total is None:
        return "its sum is not taken"
    trail.add(total)
    divided = trail.down(total.outputs[0], "Div")
    if divided is None or tuple(divided.inputs) != (anchor.outputs[0], total.outputs[0]):
        return "it is not divided by its sum"
    axes = reduced_axes(search, total)
    if axes is None or len(axes) != 1 or axes != reduced_axes(search, largest):
        return "maximum and sum are not over one axis"
    return trail.finish("Softmax", (x,), divided.outputs[0], version=13, attributes={"axis": axes[0]})
