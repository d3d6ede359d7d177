"""What of a file each release of ONNX Runtime reads: opsets, IR versions, operators of com.microsoft.

Seen in onnxruntime's wheels on PyPI, the newest patch of each release from 1.4 to 1.32: small files with the next
opset, the next IR version, or one node of an operator were given to it, and what it refused wasn't there yet
(``benchmarks/onnxruntime_reads.py``). An operator's schema is the same in wheels with and without the CUDA provider.
"""

from __future__ import annotations

from collections.abc import Mapping

from neusight_onnx.releases import Release, is_before

LOOKED_AT: Release = (1, 32)
"""The newest release that was looked at; what it executes may not have been."""

OPSETS: Mapping[Release, int] = {
    (1, 4): 12,
    (1, 6): 13,
    (1, 8): 14,
    (1, 9): 15,
    (1, 11): 16,
    (1, 12): 17,
    (1, 14): 18,
    (1, 15): 19,
    (1, 17): 20,
    (1, 18): 21,
    (1, 21): 22,
    (1, 23): 23,
    (1, 24): 25,
    (1, 25): 26,
    (1, 32): 28,
}
"""Release -> the newest opset of ai.onnx that it reads, where that is another than the release before read."""

OPSETS_ML: Mapping[Release, int] = {(1, 4): 2, (1, 11): 3, (1, 17): 4, (1, 18): 5}
"""The same of ai.onnx.ml."""

IR_VERSIONS: Mapping[Release, int] = {
    (1, 4): 7,
    (1, 9): 8,
    (1, 15): 9,
    (1, 18): 10,
    (1, 23): 11,
    (1, 24): 13,
    (1, 32): 14,
}
"""The same of the file format's version."""

_CAME: Mapping[Release, str] = {
    (1, 5): "QLinearSigmoid Trilu",
    (1, 6): "BiasSoftmax DynamicQuantizeLSTM FusedMatMul LongformerAttention QLinearConv QLinearGlobalAveragePool",
    (1, 7): "NhwcMaxPool",
    (1, 8): "BiasDropout IsAllFinite QLinearConcat TorchEmbedding",
    (1, 9): "GridSample NGramRepeatBlock QEmbedLayerNormalization QGemm SparseToDenseMatMul",
    (1, 10): "BifurcationDetector DecoderAttention",
    (1, 11): "BeamSearch NhwcConv",
    (1, 12): "BitmaskBiasDropout BitmaskDropout Snpe",
    (1, 13): "DequantizeBFP DequantizeWithOrder GemmFastGelu GreedySearch QLinearSoftmax QOrderedAttention "
    "QOrderedGelu QOrderedLayerNormalization QOrderedLongformerAttention QOrderedMatMul QuantizeBFP "
    "QuantizeWithOrder",
    (1, 14): "BiasSplitGelu GatedRelativePositionBias GroupNorm MultiHeadAttention QLinearWhere QuickGelu "
    "RelativePositionBias RemovePadding RestorePadding Sampling SkipSimplifiedLayerNormalization",
    (1, 15): "BiasAdd DecoderMaskedMultiHeadAttention DecoderMaskedSelfAttention FusedMatMulActivation "
    "NhwcFusedConv PackedAttention",
    (1, 16): "GroupQueryAttention MatMulBnb4 MatMulFpQ4 MatMulNBits PackedMultiHeadAttention RotaryEmbedding "
    "SkipGroupNorm",
    (1, 17): "DynamicTimeWarping EPContext GemmFloat8 MoE UnfoldTensor WhisperBeamSearch",
    (1, 18): "GemmaRotaryEmbedding QMoE SparseAttention",
    (1, 20): "GatherBlockQuantized",
    (1, 23): "PagedAttention",
    (1, 25): "CausalConvWithState LinearAttention",
    (1, 27): "MatMulNBitsMlp MatMulNBitsQkv",
    (1, 29): "GatedAdd GatedRMSNorm LinearAttentionGate MRotaryEmbedding MatMulBlockQuantizedFp4Weight "
    "MatMulBlockQuantizedFp8Weight",
    (1, 30): "EngramGate GatedDeltaNet NGramHashMapping VarlenCausalConvWithState",
    (1, 31): "BranchwiseRMSNorm DynamicSparseAttention HyperConnectionPostMix HyperConnectionPreMix "
    "PackedSparseAttentionIndexer ScaledSiLU SparseAttentionIndexer SparsePagedAttention "
    "VarlenNGramHashMapping",
    (1, 32): "ConvStateReplay GatedDeltaNetStateReplay GatherPacked HyperConnectionLowRankMix Mamba2Verify "
    "MatMulNBitsQLoRA MatMulPacked MoEGroupRouter MoEPacked PackedSparseAttentionIndexerMerge "
    "RMSNormRotary RouterGateUpProj SpeculativePrefixCommit SwiGLU",
}
"""Release -> operators of com.microsoft that came with it; the others were there in 1.4."""

FIRST_RELEASES: Mapping[tuple[str, str], Release] = {
    ("", "SimplifiedLayerNormalization"): (1, 6),  # ONNX Runtime's own in ONNX's domain
    **{("com.microsoft", name): release for release, names in _CAME.items() for name in names.split()},
}
"""(domain, operator) of ONNX Runtime -> the first release that has it, of those that came after 1.4."""


def newest_read(table: Mapping[Release, int], release: Release) -> int:
    """The newest version that a release reads, of :data:`OPSETS`, :data:`OPSETS_ML` or :data:`IR_VERSIONS`."""
    return max(version for since, version in table.items() if not is_before(release, since))


def first_that_reads(table: Mapping[Release, int], version: int) -> Release | None:
    """The first release that reads a version; None where no known one does."""
    return next((since for since, newest in table.items() if newest >= version), None)
