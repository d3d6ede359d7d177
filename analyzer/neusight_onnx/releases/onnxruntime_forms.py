"""What an operator of com.microsoft looks like to each release of ONNX Runtime: its attributes, inputs and outputs.

Seen in onnxruntime's wheels as what ``onnxruntime_files.py`` has: of each operator of 1.32 a node with too many inputs
or outputs was given to each release, which says how many it takes, and a node with each attribute (of numbers and
texts), which it knows or not (``benchmarks/onnxruntime_reads.py``). What values an attribute may have and what types an
input may have isn't known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from neusight_onnx.graph.model import Node
from neusight_onnx.releases import Release, is_before, release_text

_CAME: Mapping[Release, str] = {
    (1, 5): "TransposeMatMul.alpha",
    (1, 8): "QLinearAveragePool.channels_last",
    (1, 9): "Attention.qkv_hidden_sizes",
    (1, 11): "FusedMatMul.transBatchA FusedMatMul.transBatchB",
    (1, 12): "BeamSearch.decoder_start_token_id",
    (1, 13): "BiasSoftmax.axis BiasSoftmax.is_inner_broadcast",
    (1, 14): "Attention.mask_filter_value Attention.past_present_share_buffer Attention.scale "
    "BeamSearch.vocab_size DecoderAttention.mask_filter_value DequantizeBFP.block_dim "
    "GreedySearch.vocab_size QAttention.mask_filter_value QAttention.past_present_share_buffer "
    "QAttention.scale QuantizeBFP.block_dim",
    (1, 15): "Attention.do_rotary EmbedLayerNormalization.mask_index_type MultiHeadAttention.scale "
    "QAttention.do_rotary",
    (1, 16): "DecoderMaskedSelfAttention.do_rotary GroupNorm.channels_last",
    (1, 17): "Attention.rotary_embedding_dim DecoderMaskedMultiHeadAttention.output_qk "
    "GroupQueryAttention.do_rotary GroupQueryAttention.local_window_size "
    "GroupQueryAttention.rotary_interleaved MatMulBnb4.training_mode MatMulBnb4.transB "
    "MatMulNBits.accuracy_level MultiHeadAttention.unidirectional RotaryEmbedding.num_heads "
    "RotaryEmbedding.rotary_embedding_dim",
    (1, 18): "MoE.normalize_routing_weights",
    (1, 19): "GroupQueryAttention.smooth_softmax MoE.use_sparse_mixer QMoE.expert_weight_bits "
    "QMoE.use_sparse_mixer RotaryEmbedding.is_packed_batching",
    (1, 20): "GroupQueryAttention.softcap",
    (1, 23): "GatherBlockQuantized.bits GroupQueryAttention.qk_output MoE.activation_alpha MoE.activation_beta "
    "MoE.swiglu_fusion MoE.swiglu_limit QMoE.activation_alpha QMoE.activation_beta QMoE.block_size "
    "QMoE.swiglu_fusion QMoE.swiglu_limit",
    (1, 25): "GroupQueryAttention.k_quant_type GroupQueryAttention.kv_cache_bit_width GroupQueryAttention.v_quant_type",
    (1, 27): "QMoE.quant_type",
    (1, 28): "GroupQueryAttention.qk_norm_epsilon MatMulNBits.weight_prepacked QMoE.weights_prepacked",
    (1, 29): "CausalConvWithState.state_window GroupQueryAttention.sliding_window_cache "
    "LinearAttention.state_window PagedAttention.k_cache_dtype PagedAttention.k_quant_type "
    "PagedAttention.kv_cache_layout PagedAttention.qk_norm_epsilon PagedAttention.rotary_offset "
    "PagedAttention.v_cache_dtype PagedAttention.v_head_size PagedAttention.v_quant_type",
    (1, 30): "CausalConvWithState.channels_last CausalConvWithState.dilation GroupQueryAttention.causal "
    "PagedAttention.is_causal",
    (1, 31): "GatedRMSNorm.activation NGramHashMapping.reset_on_eos QMoE.accuracy_level "
    "QMoE.fc1_expert_weight_bits QMoE.fc2_expert_weight_bits QMoE.fc3_expert_weight_bits",
    (1, 32): "CausalConvWithState.input_channel_offset CausalConvWithState.input_channels "
    "CausalConvWithState.state_channels_last CausalConvWithState.state_length "
    "CausalConvWithState.state_update_capacity DynamicSparseAttention.output_bf16 "
    "GatedDeltaNet.gate_lower_bound GroupQueryAttention.k_norm_epsilon GroupQueryAttention.q_norm_epsilon "
    "MoE.swiglu_limit_after_activation PackedSparseAttentionIndexer.indexshare_state_policy "
    "PackedSparseAttentionIndexer.max_output_entries QMoE.swiglu_limit_after_activation "
    "VarlenCausalConvWithState.delta_offset VarlenCausalConvWithState.group_size",
}
"""Release -> attributes that operators gained with it, that they didn't come with."""

_INPUTS: Mapping[str, str] = {
    "Attention": "1.4 3-5, 1.9 3-6, 1.14 3-7, 1.15 2-7",
    "BeamSearch": "1.11 6-10, 1.12 5-10, 1.16 5-12",
    "DecoderMaskedMultiHeadAttention": "1.15 3-10, 1.16 1-11",
    "DequantizeLinear": "1.4 3-3, 1.17 2-3",
    "DynamicSparseAttention": "1.31 11-17, 1.32 11-20",
    "EmbedLayerNormalization": "1.4 7-8, 1.10 7-9",
    "EngramGate": "1.30 5-5, 1.31 5-6",
    "FusedConv": "1.4 2-3, 1.8 2-4",
    "FusedGemm": "1.4 3-3, 1.13 2-3",
    "GatedAdd": "1.29 3-3, 1.32 3-4",
    "GatedDeltaNet": "1.30 3-11, 1.31 1-11",
    "GatedRelativePositionBias": "1.14 6-6, 1.16 6-7",
    "GreedySearch": "1.13 2-6, 1.14 2-7",
    "GroupQueryAttention": "1.16 7-7, 1.17 7-9, 1.22 7-11, 1.23 7-12, 1.25 7-14, 1.28 7-16, 1.32 7-17",
    "MatMulNBits": "1.16 3-4, 1.18 3-5, 1.19 3-6",
    "MoE": "1.17 4-6, 1.18 5-8",
    "MultiHeadAttention": "1.14 2-6, 1.15 1-8, 1.22 1-10",
    "NGramHashMapping": "1.30 3-4, 1.31 3-7",
    "PackedSparseAttentionIndexer": "1.31 16-18, 1.32 16-22",
    "PagedAttention": "1.23 8-10, 1.29 8-17",
    "QMoE": "1.18 7-11, 1.24 7-14, 1.25 7-15, 1.27 6-21",
    "QuantizeLinear": "1.4 3-3, 1.17 2-3",
    "SkipLayerNormalization": "1.4 4-5, 1.7 3-5",
    "VarlenCausalConvWithState": "1.30 5-6, 1.32 5-8",
    "WhisperBeamSearch": "1.17 5-14, 1.18 5-15",
}
"""Release and how many inputs it takes, least and most, of operators where that changed."""

_OUTPUTS: Mapping[str, str] = {
    "CausalConvWithState": "1.25 2-2, 1.32 2-3",
    "DecoderMaskedMultiHeadAttention": "1.15 1-3, 1.17 1-4",
    "DynamicSparseAttention": "1.31 1-3, 1.32 1-4",
    "EmbedLayerNormalization": "1.4 2-2, 1.10 2-3, 1.15 1-3",
    "EngramGate": "1.30 1-1, 1.31 1-2",
    "GroupQueryAttention": "1.16 3-3, 1.23 3-4, 1.27 1-4",
    "MultiHeadAttention": "1.14 1-1, 1.15 1-3, 1.22 1-4",
    "PackedSparseAttentionIndexer": "1.31 6-7, 1.32 6-9",
    "SkipLayerNormalization": "1.4 1-3, 1.14 1-4",
}
"""The same of outputs."""


def newer_forms(node: Node, release: Release) -> Iterator[tuple[str, Release]]:
    """What of a node of com.microsoft came after ``release``, which has the operator; and with which release."""
    for name in node.attributes:
        since = attributes_since().get((node.op_type, name))
        if since is not None and is_before(release, since):
            yield f"no attribute {name} of {node.op_type}, which came with {release_text(since)}", since
    for table, places, what in ((_INPUTS, node.inputs, "input"), (_OUTPUTS, node.outputs, "output")):
        ranges = _ranges(table.get(node.op_type, ""))
        known = [found for found in ranges if not is_before(release, found[0])]
        fitting = [since for since, least, most in ranges if least <= len(places) <= most and is_before(release, since)]
        if known and fitting and not known[-1][1] <= len(places) <= known[-1][2]:
            _, least, most = known[-1]
            takes = f"{most}" if least == most else f"{least} to {most}"
            has = f"{len(places)} {what}{'s' * (len(places) != 1)}"
            yield f"{node.op_type} with {takes} {what}s: one of {has} came with {release_text(fitting[0])}", fitting[0]


@cache
def attributes_since() -> Mapping[tuple[str, str], Release]:
    """(operator, attribute) -> the release that it came with."""
    found: dict[tuple[str, str], Release] = {}
    for release, names in _CAME.items():
        for name in names.split():
            op_type, _, attribute = name.partition(".")
            found[op_type, attribute] = release
    return found


@cache
def _ranges(text: str) -> tuple[tuple[Release, int, int], ...]:
    """The (release, least, most) of an entry: "1.4 3-5, 1.9 3-6"."""
    found = []
    for part in text.split(", ") if text else ():
        release, counts = part.split()
        major, minor = map(int, release.split("."))
        least, most = map(int, counts.split("-"))
        found.append(((major, minor), least, most))
    return tuple(found)
