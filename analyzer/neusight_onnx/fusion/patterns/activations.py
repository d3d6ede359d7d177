"""Activation functions that exporters write out: GELU, SiLU, GLU, HardSwish, Mish, Softplus."""

from __future__ import annotations

from math import isclose, pi, sqrt

from neusight_onnx.fusion.patterns.search import LONGEST_CHAIN, OWN, Match, Search, Trail
from neusight_onnx.graph.model import Node


def _halved_product(trail: Trail, one_plus: str, x: str) -> str | None:
    """Walks down from (1 + f(x)) over ``* x`` and ``* 0.5`` in any order; the result's name, None if it isn't there."""
    search = trail.search
    wanted = {"x", "half"}
    name = one_plus
    while wanted:
        node = trail.down(name, "Mul", "Div")
        if node is None:
            return None
        other = trail.other(node, name)
        if other is None:
            return None
        if node.op_type == "Div":
            if not search.is_number(other, 2.0) or node.inputs[1] != other:
                return None
            wanted.discard("half")
        elif "half" in wanted and search.is_number(other, 0.5):
            if len(wanted) == 2 and search.runtime == "onnxruntime":
                return None  # it knows (x * y) * 0.5 and (x * 0.5) * y, and not x * (0.5 * y)
            wanted.discard("half")
        elif "x" in wanted and trail.root(other) == x:
            wanted.discard("x")
        elif len(wanted) == 2 and (inner := trail.up(other, "Mul", "Div")) is not None:
            factor = trail.other(inner, x)
            wanted_factor = 0.5 if inner.op_type == "Mul" else 2.0
            if factor is None or not search.is_number(factor, wanted_factor):
                return None
            wanted.clear()
        else:
            return None
        name = node.outputs[0]
    return name


def gelu_erf(search: Search, anchor: Node) -> Match | str:
    """x / 2 * (1 + erf(x / sqrt 2))."""
    trail = Trail(search)
    trail.add(anchor)
    scaled = trail.up(anchor.inputs[0], "Div", "Mul")
    if scaled is None:
        return "erf's input is not a scaled value"
    if scaled.op_type == "Div":
        x = scaled.inputs[0]
        if not search.is_number(scaled.inputs[1], sqrt(2.0)):
            return "erf's input is not divided by the root of 2"
    elif search.runtime == "onnxruntime":
        return "erf's input is multiplied: ONNX Runtime's GeluFusion asks for a division by the root of 2"
    else:
        found = [name for name in scaled.inputs if not search.is_number(name, sqrt(0.5))]
        if len(found) != 1:
            return "erf's input is not divided by the root of 2"
        x = found[0]
    x = trail.root(x)
    plus = trail.down(anchor.outputs[0], "Add")
    if plus is None or not any(search.is_number(name, 1.0) for name in plus.inputs):
        return "1 is not added to erf"
    result = _halved_product(trail, plus.outputs[0], x)
    if result is None:
        return "the sum is not multiplied by half of erf's argument"
    return trail.finish("Gelu", (x,), result, version=20, attributes={"approximate": "none"})


def gelu_tanh(search: Search, anchor: Node) -> Match | str:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))."""
    trail = Trail(search)
    trail.add(anchor)
    outer = trail.up(anchor.inputs[0], "Mul")
    if outer is None:
        return "tanh's input is not a scaled value"
    found = [name for name in outer.inputs if not search.is_number(name, sqrt(2.0 / pi))]
    if len(found) != 1:
        return _gelu_tanh_of_factors(search, anchor)
    total = trail.up(found[0], "Add")
    if total is None:
        return "tanh's input has no cubic term"
    for x, term in (tuple(total.inputs), tuple(reversed(total.inputs))):
        x = trail.root(x)
        attempt = Trail(search, nodes=dict(trail.nodes))
        cube = _cube(attempt, term, x)
        if cube is None:
            continue
        if cube == "Pow" and search.runtime == "eager":
            return "the cube is a pow: Hugging Face's own formula, which runs operator by operator"
        if cube == "Mul" and search.runtime == "onnxruntime":
            return "the cube is a product: ONNX Runtime's FastGeluFusion asks for a pow"
        plus = attempt.down(anchor.outputs[0], "Add")
        if plus is None or not any(search.is_number(name, 1.0) for name in plus.inputs):
            return "1 is not added to tanh"
        result = _halved_product(attempt, plus.outputs[0], x)
        if result is None:
            return "the sum is not multiplied by half of tanh's argument"
        return attempt.finish("Gelu", (x,), result, version=20, attributes={"approximate": "tanh"})
    return "tanh's input has no cubic term"


def _gelu_tanh_of_factors(search: Search, anchor: Node) -> Match | str:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * x * (1 + 0.044715 * x^2))), as BLOOM writes it."""
    if search.runtime == "eager":
        return "tanh's input is a product of three: the model's own formula, which runs operator by operator"
    trail = Trail(search)
    trail.add(anchor)
    scaled, x, term = False, None, None
    pending = [anchor.inputs[0]]
    while pending:
        item = pending.pop()
        if search.is_number(item, sqrt(2.0 / pi)) and not scaled:
            scaled = True
        elif (node := trail.up(item, "Mul")) is not None:
            pending.extend(node.inputs)
        elif (beside := _beside_one(trail, item)) is not None and term is None:
            term = beside
        elif x is None:
            x = trail.root(item)
        else:
            return "tanh's input has factors beside x, the root of 2 / pi, and 1 + 0.044715 x^2"
        if len(pending) > LONGEST_CHAIN:
            return "tanh's input has many factors"
    if not scaled or x is None or term is None:
        return "tanh's input is not scaled by the root of 2 / pi"
    if _cube(trail, term, x, power=2) is None:
        return "tanh's input has no factor 1 + 0.044715 x^2"
    plus = trail.down(anchor.outputs[0], "Add")
    if plus is None or not any(search.is_number(name, 1.0) for name in plus.inputs):
        return "1 is not added to tanh"
    result = _halved_product(trail, plus.outputs[0], x)
    if result is None:
        return "the sum is not multiplied by half of tanh's argument"
    return trail.finish("Gelu", (x,), result, version=20, attributes={"approximate": "tanh"})


def _beside_one(trail: Trail, name: str) -> str | None:
    """What 1 is added to; None (and nothing joins the trail) if a value isn't such a sum."""
    node = trail.search.producers.get(trail.root(name))
    if node is None or node.domain or node.op_type != "Add":
        return None
    others = [item for item in node.inputs if not trail.search.is_number(item, 1.0)]
    if len(others) != 1:
        return None
    trail.add(node)
    return others[0]


def _cube(trail: Trail, name: str, x: str, *, power: int = 3) -> str | None:
    """How 0.044715 * x^3 (or another ``power``) is written: "Pow", "Mul", or None where it isn't that."""
    search = trail.search
    powers = 0
    kappa = False
    kind = "Mul"
    pending = [name]
    while pending:
        item = pending.pop()
        if trail.root(item) == x:
            powers += 1
        elif search.is_number(item, 0.044715):
            kappa = True
        elif (node := trail.up(item, "Mul")) is not None:
            pending.extend(node.inputs)
        elif (node := trail.up(item, "Pow")) is not None:
            exponent = search.number(node.inputs[1])
            if trail.root(node.inputs[0]) != x or exponent not in (2.0, 3.0) or not search.knows(node):
                return None
            powers += int(exponent)
            kind = "Pow"
        else:
            return None
        if powers > power or len(pending) > LONGEST_CHAIN or len(trail.nodes) > 2 * LONGEST_CHAIN:
            return None
    return kind if kappa and powers == power else None


def swish(search: Search, anchor: Node) -> Match | str:
    """x * sigmoid(x); ONNX Runtime also takes x * sigmoid(alpha x) (QuickGeluFusion)."""
    trail = Trail(search)
    trail.add(anchor)
    product = trail.down(anchor.outputs[0], "Mul")
    if product is None:
        return "sigmoid's result is not only multiplied"
    x = trail.root(anchor.inputs[0])
    other = trail.other(product, anchor.outputs[0])
    if other is not None and trail.root(other) == x:
        return trail.finish("Swish", (x,), product.outputs[0], version=24)
    if other is not None and search.runtime == "onnxruntime":
        scaled = trail.up(x, "Mul")
        alpha = None if scaled is None else trail.other(scaled, other)
        factor = None if alpha is None or not search.is_constant(alpha) else search.number(alpha)
        if factor is not None:
            return trail.finish("Swish", (other,), product.outputs[0], version=24, attributes={"alpha": factor})
    return "sigmoid's result is multiplied by another value than its argument"


def glu(search: Search, anchor: Node) -> Match | str:
    """left * sigmoid(right), the halves of a Split."""
    trail = Trail(search)
    trail.add(anchor)
    split = trail.up(anchor.inputs[0], "Split")
    if split is None or len(split.outputs) != 2 or trail.root(anchor.inputs[0]) != split.outputs[1]:
        return "sigmoid's argument is not the second half of a split"
    product = trail.down(anchor.outputs[0], "Mul")
    if product is None:
        return "sigmoid's result is not only multiplied"
    other = trail.other(product, anchor.outputs[0])
    if other is None or trail.root(other) != split.outputs[0]:
        return "sigmoid's result is not multiplied by the first half"
    axis = split.attributes.get("axis", 0)
    return trail.finish("Glu", (split.inputs[0],), product.outputs[0], domain=OWN, attributes={"axis": axis})


def _real(node: Node, name: str, default: float) -> float:
    value = node.attributes.get(name)
    return float(value) if isinstance(value, int | float) else default


def hard_swish(search: Search, anchor: Node) -> Match | str:
    """x * hardsigmoid(x)."""
    if not isclose(_real(anchor, "alpha", 0.2), 1 / 6, rel_tol=1e-3) or _real(anchor, "beta", 0.5) != 0.5:
        return "its slope is not 1/6"
    trail = Trail(search)
    trail.add(anchor)
    product = trail.down(anchor.outputs[0], "Mul")
    if product is None:
        return "the gate is not only multiplied"
    x = trail.root(anchor.inputs[0])
    other = trail.other(product, anchor.outputs[0])
    if other is None or trail.root(other) != x:
        return "the gate is multiplied by another value than its argument"
    return trail.finish("HardSwish", (x,), product.outputs[0], version=22)


def clipped(search: Search, anchor: Node) -> Match | str:
    """clip(x + 3, 0, 6) / 6, and that times x: hardsigmoid and hardswish."""
    low = _real(anchor, "min", float("nan")) if len(anchor.inputs) < 2 else search.number(anchor.inputs[1])
    high = _real(anchor, "max", float("nan")) if len(anchor.inputs) < 3 else search.number(anchor.inputs[2])
    if low != 0.0 or high != 6.0:
        return "it doesn't clip to 0 … 6"
    trail = Trail(search)
    trail.add(anchor)
    shifted = trail.up(anchor.inputs[0], "Add")
    if shifted is None:
        return "3 is not added before"
    found = [name for name in shifted.inputs if not search.is_number(name, 3.0)]
    if len(found) != 1:
        return "3 is not added before"
    x = trail.root(found[0])
    name = anchor.outputs[0]
    scaled = multiplied = False
    while not (scaled and multiplied):
        attempt = Trail(search, nodes=dict(trail.nodes))
        node = attempt.down(name, "Mul", "Div")
        if node is None:
            break
        other = attempt.other(node, name)
        if other is None:
            break
        if node.op_type == "Div":
            if scaled or node.inputs[1] != other or not search.is_number(other, 6.0):
                break
            scaled = True
        elif not scaled and search.is_number(other, 1 / 6):
            scaled = True
        elif not multiplied and attempt.root(other) == x:
            multiplied = True
        else:
            break
        trail = attempt
        name = node.outputs[0]
    if not scaled:
        return "it is not divided by 6"
    return trail.finish("HardSwish" if multiplied else "HardSigmoid", (x,), name, version=22)


def mish(search: Search, anchor: Node) -> Match | str:
    """x * tanh(log(1 + exp(x)))."""
    trail = Trail(search)
    trail.add(anchor)
    soft = trail.up(anchor.inputs[0], "Softplus")
    if soft is not None:
        x = trail.root(soft.inputs[0])
    else:
        log = trail.up(anchor.inputs[0], "Log")
        inner = None if log is None else _log_one_plus_exp(trail, log)
        if inner is None:
            return "tanh's argument is no softplus"
        x = inner
    product = trail.down(anchor.outputs[0], "Mul")
    if product is None:
        return "tanh's result is not only multiplied"
    other = trail.other(product, anchor.outputs[0])
    if other is None or trail.root(other) != x:
        return "tanh's result is multiplied by another value than the softplus' argument"
    return trail.finish("Mish", (x,), product.outputs[0], version=22)


def _log_one_plus_exp(trail: Trail, log: Node) -> str | None:
    total = trail.up(log.inputs[0], "Add")
    if total is None:
        return None
    found = [name for name in total.inputs if not trail.search.is_number(name, 1.0)]
    if len(found) != 1:
        return None
    exponential = trail.up(found[0], "Exp")
    return None if exponential is None else trail.root(exponential.inputs[0])


def softplus(search: Search, anchor: Node) -> Match | str:
    """log(1 + exp(x))."""
    trail = Trail(search)
    trail.add(anchor)
    x = _log_one_plus_exp(trail, anchor)
    if x is None:
        return "its argument is not 1 + exp(x)"
    return trail.finish("Softplus", (x,), anchor.outputs[0], version=22)
