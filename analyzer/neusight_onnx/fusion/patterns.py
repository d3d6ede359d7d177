"""Subgraphs that a runtime executes as one kernel, though exporters write them as several operators.

Each rule starts at an anchor, an operator that is rare in its subgraph, looks up and down from there, and either
finds everything or says why not. Nothing but the subgraph may use its inner values. A graph is searched once, in
linear time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import isclose, pi, sqrt

import numpy as np

from neusight_onnx.graph.model import Attribute, Declared, InferredGraph, Node, Origin, Value

EVERYWHERE = frozenset({"eager", "compiled", "onnxruntime", "tensorrt"})
COMPILERS = frozenset({"compiled", "onnxruntime", "tensorrt"})
BUT_ORT = frozenset({"eager", "compiled", "tensorrt"})
"""Formulas that ONNX Runtime's optimiser leaves as they are written."""
OWN = "neusight"
"""Domain of operators that stand only in recognised graphs, where ai.onnx has none that fits."""
LONGEST_CHAIN = 16
"""Steps that a rule walks along equal operators: no real subgraph has as many, and time stays linear in the graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The operator that replaces ``nodes``; the last of them in the graph's order writes its output."""

    nodes: tuple[Node, ...]
    op_type: str
    inputs: tuple[str, ...]
    output: str
    domain: str = ""
    version: int | None = None
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One rule: ``find`` is asked at every node whose operator is in ``anchors``, if the runtime is in ``runtimes``."""

    name: str
    anchors: tuple[str, ...]
    runtimes: frozenset[str]
    find: Callable[[Search, Node], Match | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a rule said of an anchor: the nodes that it merged, or why it did not."""

    rule: str
    node: str
    merged: tuple[str, ...] = ()
    reason: str | None = None


@dataclass(slots=True)
class Search:
    """The graph, indexed: who makes and who uses a value, which values must stay, which nodes are merged already.

    ``fixed``: the file fixes all sizes of its inputs; ``declared``: what it says itself of inner values.
    """

    values: Mapping[str, Value]
    producers: dict[str, Node]
    consumers: dict[str, list[Node]]
    kept: frozenset[str]
    runtime: str
    fixed: bool = True
    declared: Mapping[str, Declared] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def shape(self, name: str) -> tuple[int, ...] | None:
        value = self.values.get(name)
        return None if value is None else value.shape

    def number(self, name: str) -> float | None:
        """The value of a known scalar (or tensor of one element)."""
        value = self.values.get(name)
        if value is None or value.data is None or value.data.size != 1:
            return None
        if not (np.issubdtype(value.data.dtype, np.number) or value.data.dtype.kind == "V"):
            return None
        return float(value.data.reshape(-1)[0])

    def is_number(self, name: str, wanted: float) -> bool:
        found = self.number(name)
        # float16 constants hold three digits
        return found is not None and isclose(found, wanted, rel_tol=2e-3)

    def is_constant(self, name: str) -> bool:
        value = self.values.get(name)
        return value is not None and value.is_constant

    def are_alike(self, *names: str) -> bool:
        """Whether a runtime that knows no sizes before the run can tell that values have one shape: all sizes are
        fixed, or the file declares the same sizes and symbols for them."""
        if self.fixed:
            return True
        shapes = {None if (known := self.declared.get(name)) is None else known.shape for name in names}
        shape = shapes.pop()
        return not shapes and shape is not None and None not in shape

    def is_transparent(self, node: Node) -> bool:
        """Whether a node passes its input on: Identity, Dropout without a mask, a Cast to the same type."""
        if node.domain:
            return False
        if node.op_type == "Identity":
            return True
        if node.op_type == "Cast":
            source, target = self.values.get(node.inputs[0]), self.values.get(node.outputs[0])
            return source is not None and target is not None and source.dtype is target.dtype
        return False

    def is_float_cast(self, node: Node) -> bool:
        if node.domain or node.op_type != "Cast":
            return False
        source, target = self.values.get(node.inputs[0]), self.values.get(node.outputs[0])
        known = source is not None and target is not None and source.dtype is not None and target.dtype is not None
        return known and source.dtype.is_float and target.dtype.is_float  # type: ignore[union-attr]  # known says so


@dataclass(slots=True)
class Trail:
    """The nodes that an attempt has walked over, in the order of walking.

    ``casts``: casts between floating-point types are part of the subgraph, too.
    """

    search: Search
    casts: bool = False
    nodes: dict[str, Node] = field(default_factory=dict)

    def _passes(self, node: Node) -> bool:
        return self.search.is_transparent(node) or (self.casts and self.search.is_float_cast(node))

    def add(self, *nodes: Node) -> None:
        self.nodes.update((node.name, node) for node in nodes)

    def root(self, name: str) -> str:
        """The value behind transparent nodes, which join the trail."""
        for _ in range(LONGEST_CHAIN):
            node = self.search.producers.get(name)
            if node is None or not self._passes(node):
                break
            self.add(node)
            name = node.inputs[0]
        return name

    def up(self, name: str, *op_types: str) -> Node | None:
        """The node that makes a value (behind transparent ones), if it is one of ``op_types``."""
        node = self.search.producers.get(self.root(name))
        if node is None or node.domain or node.op_type not in op_types:
            return None
        self.add(node)
        return node

    def down(self, name: str, *op_types: str) -> Node | None:
        """The only user of a value (transparent ones skipped), if it is one of ``op_types``."""
        for _ in range(LONGEST_CHAIN):
            users = self.search.consumers.get(name, ())
            if len(users) != 1 or name in self.search.kept:
                return None
            node = users[0]
            if node.domain == "" and node.op_type in op_types:
                self.add(node)
                return node
            if not self._passes(node):
                return None
            self.add(node)
            name = node.outputs[0]
        return None

    def other(self, node: Node, *names: str) -> str | None:
        """The input of a binary node that isn't one of ``names`` (compared behind transparent nodes)."""
        if len(node.inputs) != 2:
            return None
        first, second = node.inputs
        mine = {self.root(name) for name in names}
        if self.root(first) in mine:
            return second
        if self.root(second) in mine:
            return first
        return None

    def finish(
        self,
        op_type: str,
        inputs: tuple[str, ...],
        output: str,
        *,
        domain: str = "",
        version: int | None = None,
        attributes: Mapping[str, Attribute] | None = None,
    ) -> Match | str:
        """The match, if nothing outside uses an inner value; transparent nodes that others use, too, stay outside."""
        search = self.search
        inputs = tuple([self.root(name) for name in inputs])
        nodes = dict(self.nodes)
        for node in reversed(tuple(nodes.values())):
            if self._passes(node) and output not in node.outputs and self._leaks(node, nodes):
                del nodes[node.name]
        for node in nodes.values():
            if node.name in search.taken:
                return f"{node.name} is part of another kernel"
            if output not in node.outputs and self._leaks(node, nodes):
                return f"the value of {node.name} is used elsewhere, too"
        return Match(
            nodes=tuple(nodes.values()),
            op_type=op_type,
            inputs=inputs,
            output=output,
            domain=domain,
            version=version,
            attributes=attributes or {},
        )

    def _leaks(self, node: Node, nodes: Mapping[str, Node]) -> bool:
        return any(
            name in self.search.kept or any(user.name not in nodes for user in self.search.consumers.get(name, ()))
            for name in node.outputs
            if name
        )


# --- The rules --------------------------------------------------------------------------------------------------------


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


def _gelu_erf(search: Search, anchor: Node) -> Match | str:
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


def _gelu_tanh(search: Search, anchor: Node) -> Match | str:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))."""
    trail = Trail(search)
    trail.add(anchor)
    outer = trail.up(anchor.inputs[0], "Mul")
    if outer is None:
        return "tanh's input is not a scaled value"
    found = [name for name in outer.inputs if not search.is_number(name, sqrt(2.0 / pi))]
    if len(found) != 1:
        return "tanh's input is not scaled by the root of 2 / pi"
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


def _cube(trail: Trail, name: str, x: str) -> str | None:
    """How 0.044715 * x^3 is written: "Pow", "Mul", or None where it isn't that."""
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
            if trail.root(node.inputs[0]) != x or exponent not in (2.0, 3.0):
                return None
            powers += int(exponent)
            kind = "Pow"
        else:
            return None
        if powers > 3 or len(pending) > LONGEST_CHAIN or len(trail.nodes) > 2 * LONGEST_CHAIN:
            return None
    return kind if kappa and powers == 3 else None


def _swish(search: Search, anchor: Node) -> Match | str:
    """x * sigmoid(x)."""
    trail = Trail(search)
    trail.add(anchor)
    product = trail.down(anchor.outputs[0], "Mul")
    if product is None:
        return "sigmoid's result is not only multiplied"
    x = trail.root(anchor.inputs[0])
    other = trail.other(product, anchor.outputs[0])
    if other is None or trail.root(other) != x:
        return "sigmoid's result is multiplied by another value than its argument"
    return trail.finish("Swish", (x,), product.outputs[0], version=24)


def _glu(search: Search, anchor: Node) -> Match | str:
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


def _hard_swish(search: Search, anchor: Node) -> Match | str:
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


def _clipped(search: Search, anchor: Node) -> Match | str:
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


def _mish(search: Search, anchor: Node) -> Match | str:
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


def _softplus(search: Search, anchor: Node) -> Match | str:
    """log(1 + exp(x))."""
    trail = Trail(search)
    trail.add(anchor)
    x = _log_one_plus_exp(trail, anchor)
    if x is None:
        return "its argument is not 1 + exp(x)"
    return trail.finish("Softplus", (x,), anchor.outputs[0], version=22)


def _log_softmax(search: Search, anchor: Node) -> Match | str:
    """log(softmax(x))."""
    trail = Trail(search)
    trail.add(anchor)
    log = trail.down(anchor.outputs[0], "Log")
    if log is None:
        return "its result is not only taken the logarithm of"
    return trail.finish(
        "LogSoftmax", (anchor.inputs[0],), log.outputs[0], version=anchor.version, attributes=anchor.attributes
    )


def _rsqrt(search: Search, anchor: Node) -> Match | str:
    """1 / sqrt(x): exporters write PyTorch's rsqrt as two operators."""
    trail = Trail(search)
    trail.add(anchor)
    inverse = trail.down(anchor.outputs[0], "Reciprocal", "Div")
    if inverse is None:
        return "the root is not only inverted"
    if inverse.op_type == "Div" and not (
        search.is_number(inverse.inputs[0], 1.0) and trail.root(inverse.inputs[1]) == anchor.outputs[0]
    ):
        return "the root divides another value than 1"
    return trail.finish("Rsqrt", (anchor.inputs[0],), inverse.outputs[0], domain=OWN)


def _reduced_axes(search: Search, node: Node) -> tuple[int, ...] | None:
    """The axes of a ReduceMean as non-negative numbers, None where they aren't known or dimensions are dropped."""
    shape = search.shape(node.inputs[0])
    if shape is None or node.attributes.get("keepdims", 1) != 1:
        return None
    axes = node.attributes.get("axes")
    if axes is None and len(node.inputs) > 1 and node.inputs[1]:
        value = search.values.get(node.inputs[1])
        if value is None or value.data is None:
            return None
        axes = tuple(int(axis) for axis in value.data.reshape(-1))
    if not isinstance(axes, tuple):
        return None
    return tuple(sorted(int(axis) % len(shape) for axis in axes if isinstance(axis, int)))


def _squared(trail: Trail, name: str) -> str | None:
    """The value whose square ``name`` is."""
    node = trail.up(name, "Pow", "Mul")
    if node is None:
        return None
    if node.op_type == "Pow":
        return trail.root(node.inputs[0]) if trail.search.is_number(node.inputs[1], 2.0) else None
    first, second = (trail.root(operand) for operand in node.inputs)
    return first if first == second else None


def _inverse_root(trail: Trail, mean: Node) -> tuple[str, Node] | str:
    """Down from a mean of squares: + epsilon, root, inverse; (the value that is scaled by it, the node that scales)."""
    plus = trail.down(mean.outputs[0], "Add")
    if plus is None:
        return "no epsilon is added to the mean of squares"
    other = trail.other(plus, mean.outputs[0])
    if other is None or trail.search.number(other) is None:
        return "no epsilon is added to the mean of squares"
    root = trail.down(plus.outputs[0], "Sqrt", "Pow")
    if root is None:
        return "no root is taken"
    if root.op_type == "Pow" and not trail.search.is_number(root.inputs[1], 0.5):
        if not trail.search.is_number(root.inputs[1], -0.5):
            return "no root is taken"
        inverse: Node = root
    else:
        divided = trail.down(root.outputs[0], "Div", "Reciprocal")
        if divided is None:
            return "nothing is divided by the root"
        if divided.op_type == "Div" and not trail.search.is_number(divided.inputs[0], 1.0):
            return divided.inputs[0], divided
        inverse = divided
    product = trail.down(inverse.outputs[0], "Mul")
    if product is None:
        return "nothing is divided by the root"
    scaled = trail.other(product, inverse.outputs[0])
    return "nothing is divided by the root" if scaled is None else (scaled, product)


def _scale_and_shift(trail: Trail, name: str, size: int) -> tuple[str, tuple[str, ...], Trail]:
    """Constant ``* gamma`` and ``+ beta`` of ``size`` elements behind ``name``, as far as they are there."""
    search = trail.search

    def fits(candidate: str | None) -> bool:
        shape = None if candidate is None else search.shape(candidate)
        return (
            candidate is not None
            and search.is_constant(candidate)
            and shape is not None
            and int(np.prod(shape, dtype=np.int64)) == size
        )

    attempt = Trail(search, casts=trail.casts, nodes=dict(trail.nodes))
    scale = attempt.down(name, "Mul")
    gamma = None if scale is None else attempt.other(scale, name)
    if scale is None or gamma is None or not fits(gamma):
        return name, (), trail
    trail, name, found = attempt, scale.outputs[0], (gamma,)
    attempt = Trail(search, casts=trail.casts, nodes=dict(trail.nodes))
    shift = attempt.down(name, "Add")
    beta = None if shift is None else attempt.other(shift, name)
    if shift is None or beta is None or not fits(beta):
        return name, found, trail
    return shift.outputs[0], (*found, beta), attempt


def _last_axes(search: Search, mean: Node, x: str) -> tuple[int, int] | str:
    """(first axis, elements in a row) if the mean is over the last axes of ``x``."""
    axes = _reduced_axes(search, mean)
    shape = search.shape(x)
    if axes is None or shape is None:
        return "the axes of the mean aren't known, or are dropped"
    if not axes or axes != tuple(range(axes[0], len(shape))):
        return "the mean isn't over the last axes"
    return axes[0], int(np.prod(shape[axes[0] :], dtype=np.int64))


def _cast_back(trail: Trail, x: str, result: str) -> str:
    """``result``, or its only user if that casts it to the type of ``x``, as a kernel with wider inner sums does."""
    values = trail.search.values
    before, after = values.get(x), values.get(result)
    if before is None or after is None or before.dtype is after.dtype:
        return result
    attempt = Trail(trail.search, nodes=dict(trail.nodes))
    cast = attempt.down(result, "Cast")
    target = None if cast is None else values.get(cast.outputs[0])
    if cast is None or target is None or target.dtype is not before.dtype:
        return result
    trail.add(*attempt.nodes.values())
    return cast.outputs[0]


def _layer_norm(search: Search, anchor: Node) -> Match | str:
    """(x - mean x) / sqrt(mean (x - mean x)^2 + epsilon) * gamma + beta, the mean of squares being the anchor."""
    trail = Trail(search, casts=True)
    trail.add(anchor)
    deviation = _squared(trail, anchor.inputs[0])
    if deviation is None:
        return "not a mean of squares"
    centred = trail.up(deviation, "Sub")
    if centred is None:
        return "what is squared is no deviation from a mean"
    mean = trail.up(centred.inputs[1], "ReduceMean")
    x = trail.root(centred.inputs[0])
    if mean is None or trail.root(mean.inputs[0]) != x:
        return "what is squared is no deviation from a mean"
    rows = _last_axes(search, anchor, x)
    if isinstance(rows, str):
        return rows
    if _reduced_axes(search, mean) != _reduced_axes(search, anchor):
        return "the two means are over different axes"
    inverse = _inverse_root(trail, anchor)
    if isinstance(inverse, str):
        return inverse
    scaled, last = inverse
    if trail.root(scaled) != deviation:
        twin = trail.up(scaled, "Sub")
        again = None if twin is None else trail.up(twin.inputs[1], "ReduceMean")
        if twin is None or again is None or trail.root(twin.inputs[0]) != x or trail.root(again.inputs[0]) != x:
            return "another value than the deviation is divided by the root"
    axis, size = rows
    result, parameters, trail = _scale_and_shift(trail, last.outputs[0], size)
    if search.runtime == "onnxruntime":
        maker = search.producers.get(trail.root(anchor.inputs[0]))
        if maker is None or maker.op_type != "Pow" or len(parameters) < 2:
            return "ONNX Runtime's LayerNormFusion asks for a pow, a scale and a shift"
    result = _cast_back(trail, x, result)
    return trail.finish("LayerNormalization", (x, *parameters), result, version=17, attributes={"axis": axis})


def _rms_norm(search: Search, anchor: Node) -> Match | str:
    """x / sqrt(mean x^2 + epsilon) * gamma."""
    trail = Trail(search, casts=True)
    trail.add(anchor)
    x = _squared(trail, anchor.inputs[0])
    if x is None:
        return "not a mean of squares"
    rows = _last_axes(search, anchor, x)
    if isinstance(rows, str):
        return rows
    inverse = _inverse_root(trail, anchor)
    if isinstance(inverse, str):
        return inverse
    scaled, last = inverse
    if trail.root(scaled) != x:
        return "another value than what is squared is divided by the root"
    if search.runtime == "onnxruntime" and any(node.op_type == "Reciprocal" for node in trail.nodes.values()):
        return "the root is inverted: ONNX Runtime's SimplifiedLayerNormFusion asks for a division"
    axis, size = rows
    attempt = Trail(search, casts=True, nodes=dict(trail.nodes))
    scale = attempt.down(last.outputs[0], "Mul")
    gamma = None if scale is None else attempt.other(scale, last.outputs[0])
    shape = None if gamma is None else search.shape(gamma)
    attributes: dict[str, Attribute] = {"axis": axis}
    fits = shape is not None and int(np.prod(shape, dtype=np.int64)) == size
    if scale is not None and gamma is not None and fits and search.is_constant(gamma):
        result = _cast_back(attempt, x, scale.outputs[0])
        return attempt.finish("RMSNormalization", (x, gamma), result, version=23, attributes=attributes)
    result = _cast_back(trail, x, last.outputs[0])
    return trail.finish("RMSNormalization", (x,), result, version=23, attributes=attributes)


def _group_norm(search: Search, anchor: Node) -> Match | str:
    """Reshape to (n, groups, rest), InstanceNormalization, Reshape back, * gamma + beta per channel."""
    trail = Trail(search)
    trail.add(anchor)
    before = trail.up(anchor.inputs[0], "Reshape")
    if before is None:
        return "its input is not reshaped"
    x = before.inputs[0]
    outer, inner = search.shape(x), search.shape(anchor.inputs[0])
    if outer is None or inner is None or len(outer) < 2 or len(inner) != 3 or inner[0] != outer[0]:
        return "its input is not (n, groups, rest)"
    groups = inner[1]
    if groups == 0 or outer[1] % groups:
        return "the channels don't divide into the groups"
    after = trail.down(anchor.outputs[0], "Reshape")
    if after is None or search.shape(after.outputs[0]) != outer:
        return "its result is not reshaped back"
    result, parameters, trail = _scale_and_shift(trail, after.outputs[0], outer[1])
    return trail.finish("GroupNormalization", (x, *parameters), result, version=21, attributes={"num_groups": groups})


def _linear(search: Search, anchor: Node) -> Match | str:
    """x @ constant matrix + constant vector."""
    weight = search.shape(anchor.inputs[1])
    if weight is None or len(weight) != 2 or not search.is_constant(anchor.inputs[1]):
        return "the right operand is no constant matrix"
    trail = Trail(search)
    trail.add(anchor)
    plus = trail.down(anchor.outputs[0], "Add")
    if plus is None:
        return "nothing is added to the product alone"
    bias = trail.other(plus, anchor.outputs[0])
    shape = None if bias is None else search.shape(bias)
    if bias is None or shape is None or not search.is_constant(bias):
        return "what is added is no constant"
    if not shape or shape[-1] != weight[1] or any(size != 1 for size in shape[:-1]):
        return "what is added is no vector over the columns"
    if search.shape(plus.outputs[0]) != search.shape(anchor.outputs[0]):
        return "the addition changes the shape"
    if search.runtime == "onnxruntime" and len(shape) != 1:
        return "the vector has more dimensions than one, which ONNX Runtime's MatMulAddFusion doesn't take"
    if search.runtime == "onnxruntime" and not search.fixed and len(search.shape(anchor.inputs[0]) or ()) > 2:
        return "of more than two dimensions, and the file leaves sizes open: MatMulAddFusion asks for fixed ones"
    return trail.finish("Linear", (*anchor.inputs, bias), plus.outputs[0], domain=OWN)


def over_last_axis(search: Search, softmax: Node) -> bool:
    shape = search.shape(softmax.inputs[0])
    axis = softmax.attributes.get("axis", -1 if softmax.version >= 13 else 1)
    return bool(shape) and isinstance(axis, int) and axis % len(shape or ()) == len(shape or ()) - 1


def _scaled(trail: Trail, name: str) -> tuple[str, str] | None:
    """(value, scalar) if ``name`` is their product."""
    node = trail.up(name, "Mul")
    if node is None:
        return None
    for value, scalar in (tuple(node.inputs), tuple(reversed(node.inputs))):
        if trail.search.shape(scalar) in ((), (1,)) and trail.search.shape(value) not in ((), (1,)):
            return value, scalar
    return None


def _attention(search: Search, anchor: Node) -> Match | str:
    """softmax((q * s) @ (k^T * s) + mask) @ v: PyTorch's exporters write scaled_dot_product_attention so.

    Scaling *both* factors by the root of the scale is their signature: attention that a model writes itself scales
    one of them, or the product, and runs operator by operator.
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
    if query is None or key is None:
        return "not both factors of the product are scaled: attention that the model writes itself"
    same = trail.root(query[1]) == trail.root(key[1])
    if not same and (search.number(query[1]) is None or search.number(query[1]) != search.number(key[1])):
        return "the two factors are scaled differently"
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
        "ScaledDotProductAttention", (query[0], key[0], product.inputs[1], *mask), product.outputs[0], domain=OWN
    )


def _masked_softmax(search: Search, anchor: Node) -> Match | str:
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


def _written_softmax(search: Search, anchor: Node) -> Match | str:
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
    axes = _reduced_axes(search, total)
    if axes is None or len(axes) != 1 or axes != _reduced_axes(search, largest):
        return "maximum and sum are not over one axis"
    return trail.finish("Softmax", (x,), divided.outputs[0], version=13, attributes={"axis": axes[0]})


def _conv_batch_norm(search: Search, anchor: Node) -> Match | str:
    """A BatchNormalization behind a convolution is folded into its weights."""
    trail = Trail(search)
    trail.add(anchor)
    conv = trail.up(anchor.inputs[0], "Conv")
    if conv is None:
        return "it doesn't follow a convolution"
    if not search.is_constant(conv.inputs[1]):
        return "the convolution's weight is no constant"
    return trail.finish(
        "Conv",
        (conv.inputs[0], conv.inputs[1], anchor.inputs[2]),
        anchor.outputs[0],
        version=conv.version,
        attributes=conv.attributes,
    )


_OF_INDICES = frozenset(
    {"Add", "Cast", "Concat", "ConstantOfShape", "Equal", "Expand", "Gather", "Identity", "Mul", "Range", "Reshape"}
    | {"Slice", "Squeeze", "Sub", "Transpose", "Unsqueeze", "Where"}
)
"""Operators that exporters make the indices of a slice with."""
MOST_INDEX_NODES = 128
MOST_SETTLED_NUMBERS = 128
"""Known numbers that the host computes; more of them are a tensor of the GPU."""


def _is_settled(value: Value | None) -> bool:
    known = value is not None and value.data is not None and value.data.size <= MOST_SETTLED_NUMBERS
    return known or (value is not None and value.is_constant)


def _slice_assignment(search: Search, anchor: Node) -> Match | str:
    """``x[..., a:b] = y``: exporters write a ScatterND and make an index for each element, from shapes alone."""
    made: dict[str, Node] = {}
    waiting = [anchor.inputs[1]]
    ranges = 0
    while waiting:
        name = waiting.pop()
        value = search.values.get(name)
        node = search.producers.get(name)
        if node is None or node.name in made or _is_settled(value):
            continue
        if node.op_type in ("Shape", "Size") and not node.domain:
            continue
        if node.domain or node.op_type not in _OF_INDICES or len(made) == MOST_INDEX_NODES:
            return "its indices don't follow from shapes alone"
        made[node.name] = node
        ranges += node.op_type == "Range"
        waiting.extend(node.inputs)
    if not ranges:
        return "its indices are no ranges"
    inner = {**made, anchor.name: anchor}
    shared = True
    while shared:
        shared = False
        for node in tuple(made.values()):
            users = [user.name for name in node.outputs for user in search.consumers.get(name, ())]
            leaks = any(name in search.kept for name in node.outputs) or any(user not in inner for user in users)
            if node.name in inner and (leaks or node.name in search.taken):
                del inner[node.name]
                shared = True
    return Match(
        nodes=tuple(inner.values()),
        op_type="SliceAssignment",
        inputs=(anchor.inputs[0], anchor.inputs[2]),
        output=anchor.outputs[0],
        domain=OWN,
    )


PATTERNS: tuple[Pattern, ...] = (
    Pattern(name="linear", anchors=("MatMul",), runtimes=EVERYWHERE, find=_linear),
    Pattern(name="layer normalization", anchors=("ReduceMean",), runtimes=EVERYWHERE, find=_layer_norm),
    # Hugging Face's RMSNorm is a module of its own formula: several kernels in eager mode.
    Pattern(name="RMS normalization", anchors=("ReduceMean",), runtimes=COMPILERS, find=_rms_norm),
    Pattern(
        name="group normalization",
        anchors=("InstanceNormalization",),
        runtimes=BUT_ORT,
        find=_group_norm,
    ),
    Pattern(name="GELU", anchors=("Erf",), runtimes=EVERYWHERE, find=_gelu_erf),
    Pattern(name="GELU by tanh", anchors=("Tanh",), runtimes=EVERYWHERE, find=_gelu_tanh),
    Pattern(name="Mish", anchors=("Tanh",), runtimes=BUT_ORT, find=_mish),
    Pattern(name="GLU", anchors=("Sigmoid",), runtimes=BUT_ORT, find=_glu),
    Pattern(name="SiLU", anchors=("Sigmoid",), runtimes=EVERYWHERE, find=_swish),
    Pattern(name="HardSwish", anchors=("HardSigmoid",), runtimes=BUT_ORT, find=_hard_swish),
    Pattern(name="HardSwish by clip", anchors=("Clip",), runtimes=BUT_ORT, find=_clipped),
    Pattern(name="Softplus", anchors=("Log",), runtimes=BUT_ORT, find=_softplus),
    Pattern(name="LogSoftmax", anchors=("Softmax",), runtimes=BUT_ORT, find=_log_softmax),
    # onnxruntime fuses attention in another tool, which writes its own operators into the file.
    Pattern(
        name="scaled dot-product attention",
        anchors=("Softmax",),
        runtimes=BUT_ORT,
        find=_attention,
    ),
    # In eager mode scale, mask and softmax are kernels of their own.
    Pattern(
        name="masked softmax", anchors=("Softmax",), runtimes=frozenset({"compiled", "tensorrt"}), find=_masked_softmax
    ),
    Pattern(
        name="softmax by parts", anchors=("Exp",), runtimes=frozenset({"compiled", "tensorrt"}), find=_written_softmax
    ),
    Pattern(
        name="assignment to a slice",
        anchors=("ScatterND",),
        runtimes=frozenset({"eager", "compiled"}),
        find=_slice_assignment,
    ),
    Pattern(name="rsqrt", anchors=("Sqrt",), runtimes=BUT_ORT, find=_rsqrt),
    # PyTorch in eager mode runs the two apart; engines fold one into the other when they load the model.
    Pattern(
        name="batch normalization into convolution",
        anchors=("BatchNormalization",),
        runtimes=frozenset({"onnxruntime", "tensorrt"}),
        find=_conv_batch_norm,
    ),
)
"""In order: a rule takes its nodes from the rules after it, so those that need more of the graph stand first."""


# --- Applying them ----------------------------------------------------------------------------------------------------


def recognise(graph: InferredGraph, *, runtime: str, rules: tuple[Pattern, ...] = PATTERNS) -> InferredGraph:
    """``graph`` with each recognised subgraph replaced by one node, in bodies of control flow, too.

    The new node stands where the last node of the subgraph stood, has its name, and lists all of them as origins.
    Facts of values stay; those of inner values are dropped. A graph without matches comes back as it is.
    """
    matches, _ = _search(graph, runtime, rules, explained=False)
    bodies = {key: recognise(body, runtime=runtime, rules=rules) for key, body in graph.bodies.items()}
    if not matches and all(bodies[key] is body for key, body in graph.bodies.items()):
        return graph
    if not matches:
        return replace(graph, bodies=bodies)
    replaced = {match.output: match for match in matches}
    gone = {node.name for match in matches for node in match.nodes}
    values = dict(graph.values)
    nodes: list[Node] = []
    for node in graph.graph.nodes:
        if node.name not in gone:
            nodes.append(node)
            continue
        match = next((replaced[name] for name in node.outputs if name in replaced), None)
        if match is None:
            for name in node.outputs:
                values.pop(name, None)
            continue
        nodes.append(_replacement(match, node))
    return replace(graph, graph=replace(graph.graph, nodes=tuple(nodes)), values=values, bodies=bodies)


def explain(graph: InferredGraph, *, runtime: str, rules: tuple[Pattern, ...] = PATTERNS) -> tuple[Verdict, ...]:
    """What each rule said at each of its anchors in this graph (not in bodies), in the graph's order."""
    return tuple(_search(graph, runtime, rules, explained=True)[1])


def _replacement(match: Match, last: Node) -> Node:
    origins: list[Origin] = []
    for node in sorted(match.nodes, key=lambda node: node.name == last.name):
        origins.extend(node.origins or (Origin(name=node.name, op_type=node.op_type),))
    return Node(
        name=last.name,
        op_type=match.op_type,
        domain=match.domain,
        version=last.version if match.version is None else match.version,
        inputs=match.inputs,
        outputs=(match.output,),
        attributes=match.attributes,
        origins=tuple(dict.fromkeys(origins)),
    )


def _search(
    graph: InferredGraph, runtime: str, patterns: tuple[Pattern, ...], *, explained: bool
) -> tuple[list[Match], list[Verdict]]:
    rules = [pattern for pattern in patterns if runtime in pattern.runtimes]
    wanted = {anchor for rule in rules for anchor in rule.anchors}
    anchors: dict[str, list[tuple[int, Node]]] = defaultdict(list)
    for place, node in enumerate(graph.graph.nodes):
        if node.op_type in wanted and not node.domain:
            value = graph.values.get(node.outputs[0])
            if value is None or not (value.is_constant or value.data is not None):
                anchors[node.op_type].append((place, node))
    if not anchors:
        return [], []
    search = _indexed(graph, runtime)
    matches: list[Match] = []
    verdicts: list[tuple[int, Verdict]] = []
    for rule in rules:
        for place, node in (item for anchor in rule.anchors for item in anchors[anchor]):
            if node.name in search.taken:
                continue
            found = rule.find(search, node)
            if isinstance(found, Match):
                matches.append(found)
                search.taken.update(inner.name for inner in found.nodes)
            if explained:
                merged = tuple(inner.name for inner in found.nodes) if isinstance(found, Match) else ()
                reason = None if isinstance(found, Match) else found
                verdicts.append((place, Verdict(rule=rule.name, node=node.name, merged=merged, reason=reason)))
    return matches, [verdict for _, verdict in sorted(verdicts, key=lambda item: item[0])]


def _indexed(graph: InferredGraph, runtime: str) -> Search:
    producers: dict[str, Node] = {}
    consumers: dict[str, list[Node]] = defaultdict(list)
    for node in graph.graph.nodes:
        for name in node.outputs:
            producers[name] = node
        for name in node.inputs:
            users = consumers[name]
            if not users or users[-1] is not node:
                users.append(node)
    kept = {declared.name for declared in graph.graph.outputs}
    for body in graph.bodies.values():
        kept.update(_used(body))
    fixed = all(isinstance(size, int) for declared in graph.graph.inputs for size in declared.shape or ())
    return Search(
        values=graph.values,
        producers=producers,
        consumers=consumers,
        kept=frozenset(kept),
        runtime=runtime,
        fixed=fixed,
        declared=graph.graph.declared,
    )


def _used(graph: InferredGraph) -> Iterable[str]:
    for node in graph.graph.nodes:
        yield from node.inputs
    for declared in graph.graph.outputs:
        yield declared.name
    for body in graph.bodies.values():
        yield from _used(body)
