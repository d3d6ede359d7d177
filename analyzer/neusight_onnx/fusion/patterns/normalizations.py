"""Layer, RMS and group normalization, and the inverse root, as exporters write them out."""

from __future__ import annotations

import numpy as np

from neusight_onnx.fusion.patterns.search import OWN, Match, Search, Trail
from neusight_onnx.graph.model import Attribute, Node


def rsqrt(search: Search, anchor: Node) -> Match | str:
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


def reduced_axes(search: Search, node: Node) -> tuple[int, ...] | None:
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
        if not trail.search.knows(node):
            return None
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


def _is_vector(search: Search, name: str, size: int) -> bool:
    """Whether a value has one dimension, of ``size`` elements, and a runtime knows before the run that it has one."""
    if search.shape(name) != (size,):
        return False
    known = search.known_shape(name)
    return search.is_constant(name) or (known is not None and len(known) == 1)


def _scale_and_shift(
    trail: Trail, name: str, size: int, *, written_if_absent: bool = False, as_vectors: bool = False
) -> tuple[str, tuple[str, ...], Trail]:
    """Constant ``* gamma`` and ``+ beta`` of ``size`` elements behind ``name``, as far as they are there.

    ``written_if_absent``: a scale that a module lacks is written as 1, a shift as 0, each a tensor of one element.
    ``as_vectors``: of one dimension, constant or not, as ONNX Runtime's LayerNormFusion and SimplifiedLayerNormFusion
    ask (1.32's optimiser, on graphs of each kind).
    """
    search = trail.search

    def fits(candidate: str | None, absent: float) -> bool:
        shape = None if candidate is None else search.shape(candidate)
        if candidate is None or shape is None:
            return False
        if as_vectors:
            return _is_vector(search, candidate, size)
        if not search.is_constant(candidate):
            return False
        is_written = written_if_absent and search.number(candidate) == absent
        return is_written or int(np.prod(shape, dtype=np.int64)) == size

    attempt = Trail(search, casts=trail.casts, nodes=dict(trail.nodes))
    scale = attempt.down(name, "Mul")
    gamma = None if scale is None else attempt.other(scale, name)
    if scale is None or gamma is None or not fits(gamma, 1.0):
        return name, (), trail
    trail, name, found = attempt, scale.outputs[0], (gamma,)
    attempt = Trail(search, casts=trail.casts, nodes=dict(trail.nodes))
    shift = attempt.down(name, "Add")
    beta = None if shift is None else attempt.other(shift, name)
    if shift is None or beta is None or not fits(beta, 0.0):
        return name, found, trail
    return shift.outputs[0], (*found, beta), attempt


def _other_than_ort_asks(search: Search, trail: Trail, axis: int, x: str) -> str:
    """What ONNX Runtime's fusions of a normalization don't take of its formula; "" if it is as they ask."""
    shape = search.shape(x)
    if shape is None or axis != len(shape) - 1:
        return "the mean is over several axes: ONNX Runtime merges one over the last alone"
    if any(node.op_type == "Reciprocal" for node in trail.nodes.values()):
        return "the root is inverted: ONNX Runtime's fusions of normalizations ask for a division"
    if not any(node.op_type == "Sqrt" for node in trail.nodes.values()):
        return "the root is a Pow: ONNX Runtime's fusions of normalizations ask for a Sqrt"
    return ""


def _last_axes(search: Search, mean: Node, x: str) -> tuple[int, int] | str:
    """(first axis, elements in a row) if the mean is over the last axes of ``x``."""
    axes = reduced_axes(search, mean)
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


def _casts_in(trail: Trail) -> bool:
    """Whether casts to another type are part of the subgraph."""
    return any(
        trail.search.is_float_cast(node) and not trail.search.is_transparent(node) for node in trail.nodes.values()
    )


def layer_norm(search: Search, anchor: Node) -> Match | str:
    """(x - mean x) / sqrt(mean (x - mean x)^2 + epsilon) * gamma + beta, the mean of squares being the anchor.

    The square of PyTorch's own layer normalization is exported as a Pow (seen with 1.5, 1.10 and 2.9, opsets 9 to 16):
    a product of the deviation with itself is a module's own formula, which eager mode runs as it is written.
    """
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
    if reduced_axes(search, mean) != reduced_axes(search, anchor):
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
    is_ort = search.runtime == "onnxruntime"
    wanting = _other_than_ort_asks(search, trail, axis, x) if is_ort else ""
    if wanting:
        return wanting
    result, parameters, trail = _scale_and_shift(trail, last.outputs[0], size, as_vectors=is_ort)
    maker = search.producers.get(trail.root(anchor.inputs[0]))
    is_pow = maker is not None and maker.op_type == "Pow"
    if search.runtime == "eager" and not is_pow:
        return "PyTorch's own layer normalization is exported with a Pow: this is a module's own formula"
    if is_ort:
        if not is_pow or len(parameters) < 2:
            return "ONNX Runtime's LayerNormFusion asks for a pow, a scale and a shift"
        if search.executor.norms_in_fp32 != "whole" and _casts_in(trail):
            return "it casts in between, which this release of ONNX Runtime doesn't merge"
    result = _cast_back(trail, x, result)
    return trail.finish("LayerNormalization", (x, *parameters), result, version=17, attributes={"axis": axis})


def rms_norm(search: Search, anchor: Node) -> Match | str:
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
    axis, size = rows
    is_ort = search.runtime == "onnxruntime"
    if is_ort:
        wanting = _other_than_ort_asks(search, trail, axis, x)
        if wanting:
            return wanting
        maker = search.producers.get(trail.root(anchor.inputs[0]))
        if maker is None or maker.op_type != "Pow":
            return "ONNX Runtime's SimplifiedLayerNormFusion asks for a pow"
        if search.executor.norms_in_fp32 == "apart" and _casts_in(trail):
            return "it casts in between, which this release of ONNX Runtime doesn't merge"
    attempt = Trail(search, casts=True, nodes=dict(trail.nodes))
    scale = attempt.down(last.outputs[0], "Mul")
    gamma = None if scale is None else attempt.other(scale, last.outputs[0])
    shape = None if gamma is None else search.shape(gamma)
    attributes: dict[str, Attribute] = {"axis": axis}
    if gamma is None or shape is None:
        fits = False
    elif is_ort:
        fits = _is_vector(search, gamma, size)
    else:
        fits = int(np.prod(shape, dtype=np.int64)) == size and search.is_constant(gamma)
    if scale is not None and gamma is not None and fits:
        result = _cast_back(attempt, x, scale.outputs[0])
        return attempt.finish("RMSNormalization", (x, gamma), result, version=23, attributes=attributes)
    if is_ort:
        return "ONNX Runtime's SimplifiedLayerNormFusion asks for a scale of one dimension"
    result = _cast_back(trail, x, last.outputs[0])
    return trail.finish("RMSNormalization", (x,), result, version=23, attributes=attributes)


def group_norm(search: Search, anchor: Node) -> Match | str:
    """Reshape to (n, groups, rest), InstanceNormalization, Reshape back, * gamma + beta per channel.

    torch.onnx writes both always (symbolic_opset9.group_norm): 1 and 0 where the module has none.
    """
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
    result, parameters, trail = _scale_and_shift(trail, after.outputs[0], outer[1], written_if_absent=True)
    while parameters and outer[1] != 1 and search.number(parameters[-1]) is not None:
        parameters = parameters[:-1]
    return trail.finish("GroupNormalization", (x, *parameters), result, version=21, attributes={"num_groups": groups})


def batch_statistics(search: Search, anchor: Node) -> Match | str:
    """``batch_norm`` by the batch's own statistics (standardised weights of NFNets): exporters write the mean and the
    variance that it takes itself, for running statistics that nobody keeps."""
    if anchor.attributes.get("training_mode", 0) != 1:
        return "it normalises by given statistics"
    if len(anchor.inputs) != 5 or any(
        name in search.kept or search.consumers.get(name) for name in anchor.outputs[1:] if name
    ):
        return "its running statistics are read"
    trail = Trail(search)
    trail.add(anchor)
    x = trail.root(anchor.inputs[0])
    mean = trail.up(anchor.inputs[3], "ReduceMean")
    variance = trail.up(anchor.inputs[4], "ReduceMean")
    squared = None if variance is None else trail.up(variance.inputs[0], "Mul")
    centred = None if squared is None else trail.up(squared.inputs[0], "Sub")
    inner = None if centred is None else trail.up(centred.inputs[1], "ReduceMean")
    if mean is None or centred is None or inner is None:
        return "its statistics are not written out"
    taken = [trail.root(name) for name in (mean.inputs[0], centred.inputs[0], inner.inputs[0])]
    if taken.count(taken[0]) != len(taken) or not (taken[0] == x or _is_stored_again(search, taken[0], x)):
        return "its statistics are another value's"
    scale, bias = anchor.inputs[1:3]
    return trail.finish(
        "BatchNormalization",
        (x, scale, bias, scale, bias),
        anchor.outputs[0],
        version=15,
        attributes={**anchor.attributes, "own_statistics": 1},
    )


def _is_stored_again(search: Search, name: str, x: str) -> bool:
    """Whether both are constants of as many elements: an exporter's transposed copy of a weight."""
    shapes = search.shape(name), search.shape(x)
    if shapes[0] is None or shapes[1] is None or not (search.is_constant(name) and search.is_constant(x)):
        return False
    return sorted(shapes[0]) == sorted(shapes[1])
