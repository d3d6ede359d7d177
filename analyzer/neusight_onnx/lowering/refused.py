"""Operators that are known and have no model: each with its reason, so that a report can say it.

An operator that is in no table at all is reported as unknown; these are decided.
"""

from __future__ import annotations

from neusight_onnx.lowering.context import NodeContext
from neusight_onnx.lowering.registry import RULES, Outcome, Unsupported, lowers

_GENERATION = "how often its decoder runs depends on what it generates"
_SPECULATION = "bookkeeping of one server's speculative decoding; what it costs is not published"
_SPARSE = "which keys it selects depends on data, and its cost on how it selects them"
_ONE_ENGINE = "holds another engine's compiled model, which can't be read"
_LAYOUT = "an inner layout of ONNX Runtime that no exporter writes; save with the level 'extended'"
PLUGIN_REASON = "a TensorRT plugin; its cost is not published"
_FUSED_BLOCK = "one model's fused block; its kernel is not published"

REASONS: dict[str, dict[str, str]] = {
    "": {
        "DisentangledAttention_TRT": PLUGIN_REASON,
        "DynamicSlice": "an experiment that never became part of an opset",
        "EfficientNMS_TRT": PLUGIN_REASON,
        "GRUUnit": "an experiment that never became part of an opset",
        "GivenTensorFill": "an experiment that never became part of an opset",
        "MultilevelCropAndResize_TRT": PLUGIN_REASON,
        "PyramidROIAlign_TRT": PLUGIN_REASON,
    },
    "com.microsoft": {
        "BeamSearch": _GENERATION,
        "BifurcationDetector": _SPECULATION,
        "ConvStateReplay": _SPECULATION,
        "DynamicSparseAttention": _SPARSE,
        "EPContext": _ONE_ENGINE,
        "EngramGate": _FUSED_BLOCK,
        "GatedDeltaNetStateReplay": _SPECULATION,
        "GreedySearch": _GENERATION,
        "HyperConnectionLowRankMix": _FUSED_BLOCK,
        "Mamba2Verify": _SPECULATION,
        "MoEGroupRouter": _FUSED_BLOCK,
        "MoEPacked": "weights packed for one kernel, whose layout is not published",
        "NGramHashMapping": "integer hashing; its kernel is not published",
        "PackedSparseAttentionIndexer": _SPARSE,
        "PackedSparseAttentionIndexerMerge": _SPARSE,
        "QOrderedLongformerAttention": "attention in the tile layouts of one GPU generation",
        "Sampling": _GENERATION,
        "Snpe": _ONE_ENGINE,
        "SparseAttentionIndexer": _SPARSE,
        "SpeculativePrefixCommit": _SPECULATION,
        "VarlenNGramHashMapping": "integer hashing; its kernel is not published",
        "WhisperBeamSearch": _GENERATION,
    },
    "com.ms.internal.nhwc": dict.fromkeys(
        (
            "AveragePool",
            "BatchNormalization",
            "Conv",
            "ConvTranspose",
            "DepthToSpace",
            "GlobalAveragePool",
            "GlobalLpPool",
            "GlobalMaxPool",
            "GridSample",
            "InstanceNormalization",
            "LRN",
            "LpPool",
            "MaxPool",
            "MaxUnpool",
            "QLinearAveragePool",
            "QLinearConv",
            "QLinearConvTranspose",
            "Resize",
            "SpaceToDepth",
        ),
        _LAYOUT,
    ),
}
"""domain -> operator -> why it has no model."""

PLUGINS = frozenset(name for name, reason in REASONS[""].items() if reason is PLUGIN_REASON)
"""Operators of ai.onnx in form that TensorRT alone has."""


def is_plugin(domain: str, op_type: str) -> bool:
    """Whether a node is a plugin of TensorRT's. Its parser looks plugins up by the operator's type, whatever the domain
    (``importPluginFactory`` of onnx-tensorrt, as remembered), and names of those in its library end in _TRT."""
    if (domain, op_type) in RULES:
        return not domain and op_type in PLUGINS
    return op_type in PLUGINS or op_type.endswith("_TRT")


def _refuse(context: NodeContext) -> Outcome:
    node = context.node
    return Unsupported(reason=RULES[node.domain, node.op_type].note)


for _domain, _operators in REASONS.items():
    for _op_type, _reason in _operators.items():
        lowers(_op_type, domain=_domain, gives="unsupported", note=_reason, needs_shapes=False)(_refuse)
