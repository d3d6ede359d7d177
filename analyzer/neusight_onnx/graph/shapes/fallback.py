"""Operators without a rule of ours: onnx's own inference for that one node, if the operator is onnx's."""

from __future__ import annotations

from collections.abc import Sequence

from neusight_onnx.dtypes import BY_ONNX_CODE
from neusight_onnx.graph.model import Initializer, Node, Value
from neusight_onnx.graph.shapes.context import NodeContext, UnknownShape


def infer_by_schema(ctx: NodeContext) -> Sequence[Value]:
    """The outputs as onnx infers them from dtypes, shapes and known content; UnknownShape if it can't.

    Slow (it builds protobufs), so for rare operators only: new ones that this package has no rule for yet.
    """
    import onnx
    from onnx import defs, numpy_helper, shape_inference

    node = ctx.node
    if node.domain not in _ONNX_DOMAINS or not defs.has(node.op_type, node.domain):
        raise UnknownShape(None)
    version = node.version or defs.onnx_opset_version()
    try:
        schema = defs.get_schema(node.op_type, max_inclusive_version=version, domain=node.domain)
    except defs.SchemaError:
        raise UnknownShape(None) from None
    types = {}
    data = {}
    for name, value in zip(node.inputs, ctx.inputs, strict=True):
        if value is None:
            continue
        if value.kind != "tensor" or value.shape is None or value.dtype is None:
            raise UnknownShape(value.unknown_because)
        types[name] = onnx.helper.make_tensor_type_proto(value.dtype.onnx_code, value.shape)
        if value.data is not None:
            data[name] = numpy_helper.from_array(value.data, name)
    proto = _node_proto(ctx, node)
    try:
        inferred = shape_inference.infer_node_outputs(
            schema, proto, types, data, opset_imports=[onnx.helper.make_opsetid(node.domain, version)]
        )
    except (shape_inference.InferenceError, ValueError, RuntimeError) as fault:
        raise ctx.error(f"onnx's inference refuses it: {str(fault).splitlines()[0]}") from fault
    results = []
    for name in node.outputs:
        proto_type = inferred.get(name)
        if proto_type is None or not proto_type.HasField("tensor_type"):
            results.append(Value(dtype=None, shape=None, unknown_because=node.name))
            continue
        tensor_type = proto_type.tensor_type
        dtype = BY_ONNX_CODE.get(tensor_type.elem_type)
        dims = tensor_type.shape.dim
        if not tensor_type.HasField("shape") or any(not dim.HasField("dim_value") for dim in dims):
            results.append(Value(dtype=dtype, shape=None, unknown_because=node.name))
        else:
            results.append(ctx.tensor(dtype, [dim.dim_value for dim in dims]))
    return results


_ONNX_DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")


def _node_proto(ctx: NodeContext, node: Node):  # type: ignore[no-untyped-def]  # onnx is imported only on demand
    from onnx import helper, numpy_helper

    proto = helper.make_node(node.op_type, list(node.inputs), list(node.outputs), domain=node.domain)
    for name, value in node.attributes.items():
        if value is None:
            continue
        if isinstance(value, Initializer):
            if value.data is None:
                raise UnknownShape(None)
            attribute: object = numpy_helper.from_array(value.data, value.name)
        elif isinstance(value, int | float | str | bytes):
            attribute = value
        elif isinstance(value, tuple) and all(isinstance(item, int | float | str) for item in value):
            attribute = list(value)
        else:
            raise UnknownShape(None)
        proto.attribute.append(helper.make_attribute(name, attribute))
    return proto
