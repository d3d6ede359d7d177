"""Language and sequence models as real exporters write them, through `analyze`: what is refused, wrong or slow.

    python benchmarks/zoo_language.py build FOLDER [--only PATTERNS] [--exporter torch,transformers,…]
    python benchmarks/zoo_language.py judge FOLDER [--only PATTERNS] [--format text|markdown] [-o FILE]

``build`` wants torch, transformers, onnx and onnxruntime, and for its exporters onnxscript (``transformers``: the
exporter of its own that it has from release 5.24 on), optimum-onnx (``optimum``) and onnxruntime-genai (``genai``), in
whatever Python they are installed; those that are missing are passed over with a line. Configurations have the sizes
that each family publishes (the ``config.json`` of the model that the name says; experts are fewer) but two or four
layers; weights are as memory comes, nothing is downloaded. Each file is written without its weights, with a ``.json``
beside it: the sizes that it was run at, the shape of every value as ONNX Runtime's CPU provider computed it
(optimisation off), and the FLOPs that torch counts for the same model and sizes.

``judge`` wants this package only. Each file at the recorded sizes: are all shapes those of the run, are products' FLOPs
torch's; then :data:`CASES`: what is refused, unsupported, and how many kernels. Exit code 1 if a file fails, a shape is
wrong or unknown, or an operator has no model.
"""

from __future__ import annotations

import argparse
import fnmatch
import gc
import importlib.util
import json
import platform
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LAYERS = 2
VOCABULARY = 8_192
"""Of language models: embeddings would be most of a file of two layers, and their shape is no other at 128,256."""

COMMON = {
    "num_hidden_layers": LAYERS,
    "vocab_size": VOCABULARY,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
"""Of the rows below with a "+"."""

TABLE = """
llama-3.2-1b LlamaForCausalLM LlamaConfig causal + hidden_size=2048 intermediate_size=8192 num_attention_heads=32 \\
    num_key_value_heads=8 head_dim=64 max_position_embeddings=131072 rope_theta=500000.0 tie_word_embeddings=true
qwen2.5-0.5b Qwen2ForCausalLM Qwen2Config causal + hidden_size=896 intermediate_size=4864 num_attention_heads=14 \\
    num_key_value_heads=2 max_position_embeddings=32768 tie_word_embeddings=true
qwen3-0.6b Qwen3ForCausalLM Qwen3Config causal + hidden_size=1024 intermediate_size=3072 num_attention_heads=16 \\
    num_key_value_heads=8 head_dim=128 max_position_embeddings=40960 tie_word_embeddings=true
qwen3-moe-30b Qwen3MoeForCausalLM Qwen3MoeConfig causal + hidden_size=2048 intermediate_size=6144 \\
    moe_intermediate_size=768 num_experts=16 num_experts_per_tok=8 num_attention_heads=32 num_key_value_heads=4 \\
    head_dim=128
gemma-2-2b Gemma2ForCausalLM Gemma2Config causal + hidden_size=2304 intermediate_size=9216 num_attention_heads=8 \\
    num_key_value_heads=4 head_dim=256
gemma-3-1b Gemma3ForCausalLM Gemma3TextConfig causal + hidden_size=1152 intermediate_size=6912 num_attention_heads=4 \\
    num_key_value_heads=1 head_dim=256 sliding_window=512 layer_types=["sliding_attention","full_attention"]
mistral-7b MistralForCausalLM MistralConfig causal + hidden_size=4096 intermediate_size=14336 num_attention_heads=32 \\
    num_key_value_heads=8 sliding_window=4096
phi-3-mini Phi3ForCausalLM Phi3Config causal + hidden_size=3072 intermediate_size=8192 num_attention_heads=32 \\
    num_key_value_heads=32 max_position_embeddings=4096 original_max_position_embeddings=4096
phi-4-mini Phi3ForCausalLM Phi3Config causal + hidden_size=3072 intermediate_size=8192 num_attention_heads=24 \\
    num_key_value_heads=8 max_position_embeddings=4096 original_max_position_embeddings=4096 \\
    partial_rotary_factor=0.75
phi-2 PhiForCausalLM PhiConfig causal + hidden_size=2560 intermediate_size=10240 num_attention_heads=32 \\
    partial_rotary_factor=0.4
gpt2 GPT2LMHeadModel GPT2Config causal n_layer=2
pythia-410m GPTNeoXForCausalLM GPTNeoXConfig causal + hidden_size=1024 intermediate_size=4096 num_attention_heads=16
falcon-7b FalconForCausalLM FalconConfig causal + hidden_size=4544 num_attention_heads=71 multi_query=true \\
    parallel_attn=true bias=false
bloom-560m BloomForCausalLM BloomConfig causal + hidden_size=1024 n_layer=2 n_head=16
opt-350m OPTForCausalLM OPTConfig causal + hidden_size=1024 ffn_dim=4096 num_attention_heads=16 \\
    do_layer_norm_before=false word_embed_proj_dim=512
deepseek-v2-lite DeepseekV2ForCausalLM DeepseekV2Config causal + hidden_size=2048 intermediate_size=10944 \\
    moe_intermediate_size=1408 n_routed_experts=8 n_shared_experts=2 num_experts_per_tok=6 num_attention_heads=16 \\
    num_key_value_heads=16 kv_lora_rank=512 q_lora_rank=null qk_nope_head_dim=128 qk_rope_head_dim=64 v_head_dim=128 \\
    first_k_dense_replace=1 topk_group=1 n_group=1
deepseek-v3 DeepseekV3ForCausalLM DeepseekV3Config causal + hidden_size=2048 intermediate_size=4096 \\
    moe_intermediate_size=1024 n_routed_experts=8 n_shared_experts=1 num_experts_per_tok=4 num_attention_heads=32 \\
    num_key_value_heads=32 kv_lora_rank=512 q_lora_rank=1536 qk_nope_head_dim=128 qk_rope_head_dim=64 v_head_dim=128 \\
    first_k_dense_replace=1 topk_group=1 n_group=1
mixtral MixtralForCausalLM MixtralConfig causal + hidden_size=1024 intermediate_size=3584 num_local_experts=8 \\
    num_experts_per_tok=2 num_attention_heads=16 num_key_value_heads=4
gpt-oss-20b GptOssForCausalLM GptOssConfig causal + hidden_size=2880 intermediate_size=2880 num_local_experts=4 \\
    num_experts_per_tok=4 num_attention_heads=64 num_key_value_heads=8 head_dim=64 sliding_window=128
granite-3-2b GraniteForCausalLM GraniteConfig causal + hidden_size=2048 intermediate_size=8192 \\
    num_attention_heads=32 num_key_value_heads=8
olmo-2-1b Olmo2ForCausalLM Olmo2Config causal + hidden_size=2048 intermediate_size=8192 num_attention_heads=16 \\
    num_key_value_heads=16
stablelm-3b StableLmForCausalLM StableLmConfig causal + hidden_size=2560 intermediate_size=6912 \\
    num_attention_heads=32 num_key_value_heads=32
lfm2-350m Lfm2ForCausalLM Lfm2Config causal + hidden_size=1024 intermediate_size=6656 num_attention_heads=16 \\
    num_key_value_heads=8 layer_types=["conv","full_attention"]
lfm2-8b-a1b Lfm2MoeForCausalLM Lfm2MoeConfig causal + num_hidden_layers=3 num_dense_layers=1 hidden_size=2048 \\
    intermediate_size=7168 moe_intermediate_size=1792 num_experts=8 num_experts_per_tok=4 num_attention_heads=32 \\
    num_key_value_heads=8 layer_types=["conv","full_attention","conv"]
mamba-130m MambaForCausalLM MambaConfig causal + hidden_size=768 state_size=16
mamba2-130m Mamba2ForCausalLM Mamba2Config causal + hidden_size=768 num_heads=24 head_dim=64 state_size=128 \\
    n_groups=1 chunk_size=256
smollm3-3b SmolLM3ForCausalLM SmolLM3Config causal + hidden_size=2048 intermediate_size=11008 num_attention_heads=16 \\
    num_key_value_heads=4 no_rope_layers=[1,0]
glm-4-9b Glm4ForCausalLM Glm4Config causal + hidden_size=4096 intermediate_size=13696 num_attention_heads=32 \\
    num_key_value_heads=2 head_dim=128 partial_rotary_factor=0.5
ernie-4.5-0.3b Ernie4_5ForCausalLM Ernie4_5Config causal + hidden_size=1024 intermediate_size=3072 \\
    num_attention_heads=16 num_key_value_heads=2 head_dim=128
olmo-3-7b Olmo3ForCausalLM Olmo3Config causal + hidden_size=4096 intermediate_size=11008 num_attention_heads=32 \\
    num_key_value_heads=32 layer_types=["sliding_attention","full_attention"]
command-r7b Cohere2ForCausalLM Cohere2Config causal + hidden_size=4096 intermediate_size=14336 \\
    num_attention_heads=32 num_key_value_heads=8 layer_types=["sliding_attention","full_attention"]
gemma-3n-e2b Gemma3nForCausalLM Gemma3nTextConfig causal + num_hidden_layers=4 hidden_size=2048 \\
    intermediate_size=8192 num_attention_heads=8 num_key_value_heads=2 head_dim=256 vocab_size_per_layer_input=8192 \\
    num_kv_shared_layers=2 activation_sparsity_pattern=[0.95,0.95,0.0,0.0] \\
    layer_types=["sliding_attention","full_attention","sliding_attention","full_attention"]
granite-4-h-tiny GraniteMoeHybridForCausalLM GraniteMoeHybridConfig causal + hidden_size=1536 intermediate_size=512 \\
    shared_intermediate_size=1024 num_local_experts=8 num_experts_per_tok=6 num_attention_heads=12 \\
    num_key_value_heads=4 mamba_n_heads=48 mamba_d_head=64 mamba_d_state=128 mamba_n_groups=1 \\
    layer_types=["mamba","attention"]
falcon-h1-0.5b FalconH1ForCausalLM FalconH1Config causal + hidden_size=1024 intermediate_size=2048 \\
    num_attention_heads=8 num_key_value_heads=2 head_dim=64 mamba_d_ssm=1536 mamba_n_heads=24 mamba_d_head=64 \\
    mamba_d_state=128 mamba_n_groups=1 mamba_chunk_size=128
qwen3-next Qwen3NextForCausalLM Qwen3NextConfig causal + hidden_size=2048 intermediate_size=5120 \\
    moe_intermediate_size=512 shared_expert_intermediate_size=512 num_experts=8 num_experts_per_tok=4 \\
    num_attention_heads=16 num_key_value_heads=2 head_dim=256 layer_types=["linear_attention","full_attention"]
rwkv-169m RwkvForCausalLM RwkvConfig causal + hidden_size=768
llama-4-scout Llama4ForCausalLM Llama4TextConfig causal + num_hidden_layers=4 hidden_size=2048 intermediate_size=2048 \\
    intermediate_size_mlp=4096 num_attention_heads=16 num_key_value_heads=8 head_dim=128 num_local_experts=4 \\
    interleave_moe_layer_step=2 attention_chunk_size=8 no_rope_layers=[1,1,1,0]
glm-4.5-air Glm4MoeForCausalLM Glm4MoeConfig causal + hidden_size=2048 intermediate_size=5472 num_attention_heads=48 \\
    num_key_value_heads=8 head_dim=128 n_routed_experts=8 use_qk_norm=true
glm-4.7-flash Glm4MoeLiteForCausalLM Glm4MoeLiteConfig causal + n_routed_experts=8 mlp_layer_types=["dense","sparse"]
deepseek-v3.2 DeepseekV32ForCausalLM DeepseekV32Config causal + hidden_size=2048 intermediate_size=4096 \\
    moe_intermediate_size=1024 num_attention_heads=32 num_key_value_heads=32 n_routed_experts=16 n_group=4 \\
    topk_group=2 \\
    num_experts_per_tok=4 index_topk=8 index_n_heads=16 mlp_layer_types=["dense","sparse"] \\
    layer_types=["indexed_attention","indexed_attention"]
kimi-linear-48b KimiLinearForCausalLM KimiLinearConfig causal + num_hidden_layers=3 intermediate_size=4608 \\
    num_experts=8 \\
    num_experts_per_token=4 mlp_layer_types=["dense","sparse","sparse"] \\
    layer_types=["linear_attention","linear_attention","full_attention"]
qwen3.5-4b Qwen3_5ForCausalLM Qwen3_5TextConfig causal + hidden_size=2048 intermediate_size=6144 \\
    num_attention_heads=8 \\
    num_key_value_heads=2 linear_num_value_heads=16 layer_types=["linear_attention","full_attention"]
bamba-9b BambaForCausalLM BambaConfig causal + hidden_size=2048 intermediate_size=7168 num_attention_heads=16 \\
    num_key_value_heads=4 mamba_n_heads=64 attn_layer_indices=[1]
zamba2-1.2b Zamba2ForCausalLM Zamba2Config causal + hidden_size=1024 intermediate_size=4096 num_attention_heads=16 \\
    num_key_value_heads=16 layers_block_type=["linear_attention","hybrid"]
jamba JambaForCausalLM JambaConfig causal + hidden_size=1024 intermediate_size=3584 num_attention_heads=8 \\
    num_key_value_heads=2 num_experts=4 attn_layer_period=2 attn_layer_offset=1 mamba_dt_rank=64 use_mamba_kernels=false
nemotron-h NemotronHForCausalLM NemotronHConfig causal + num_hidden_layers=4 hidden_size=2048 num_attention_heads=16 \\
    intermediate_size=5376 mamba_num_heads=64 moe_intermediate_size=1922 moe_shared_expert_intermediate_size=1922
falcon-mamba FalconMambaForCausalLM FalconMambaConfig causal + hidden_size=1024 use_mambapy=false
recurrent-gemma-2b RecurrentGemmaForCausalLM RecurrentGemmaConfig causal + hidden_size=1280 num_attention_heads=5 \\
    num_hidden_layers=3
xlstm-7b xLSTMForCausalLM xLSTMConfig causal + hidden_size=1024 embedding_dim=1024 num_blocks=2 num_heads=4
olmo-hybrid OlmoHybridForCausalLM OlmoHybridConfig causal + hidden_size=1536 intermediate_size=4096 \\
    num_attention_heads=12 num_key_value_heads=12 layer_types=["linear_attention","full_attention"]
ernie-4.5-21b-a3b Ernie4_5_MoeForCausalLM Ernie4_5_MoeConfig causal + hidden_size=2560 num_attention_heads=20 \\
    num_key_value_heads=4 moe_num_experts=8 moe_layer_start_index=1 moe_layer_end_index=1
dots.llm1 Dots1ForCausalLM Dots1Config causal + hidden_size=2048 num_attention_heads=16 num_key_value_heads=16 \\
    intermediate_size=5472 n_routed_experts=8 num_experts_per_tok=4 first_k_dense_replace=1
minimax-text-01 MiniMaxForCausalLM MiniMaxConfig causal + hidden_size=1536 intermediate_size=2304 \\
    num_attention_heads=16 \\
    num_key_value_heads=2 head_dim=128 num_local_experts=4 block_size=8 \\
    layer_types=["linear_attention","full_attention"]
minimax-m2 MiniMaxM2ForCausalLM MiniMaxM2Config causal + hidden_size=1536 intermediate_size=768 \\
    num_attention_heads=24 \\
    num_key_value_heads=4 num_local_experts=8 num_experts_per_tok=4
longcat-flash LongcatFlashForCausalLM LongcatFlashConfig causal + num_layers=1 hidden_size=1536 ffn_hidden_size=3072 \\
    num_attention_heads=16 n_routed_experts=8 zero_expert_num=4 moe_topk=4 expert_ffn_hidden_size=512
bitnet-2b BitNetForCausalLM BitNetConfig causal + hidden_size=2560 intermediate_size=6912 num_attention_heads=20 \\
    num_key_value_heads=5
diffllama DiffLlamaForCausalLM DiffLlamaConfig causal + hidden_size=2048 intermediate_size=8192 \\
    num_attention_heads=32 \\
    num_key_value_heads=8
gemma-4-e2b Gemma4ForCausalLM Gemma4TextConfig causal + num_hidden_layers=4 hidden_size=1536 intermediate_size=6144 \\
    vocab_size_per_layer_input=8192 num_kv_shared_layers=2 \\
    layer_types=["sliding_attention","full_attention","sliding_attention","full_attention"]
exaone-4 Exaone4ForCausalLM Exaone4Config causal + hidden_size=2048 intermediate_size=4096 num_attention_heads=32 \\
    num_key_value_heads=8 layer_types=["sliding_attention","full_attention"]
mimo-v2-flash MiMoV2FlashForCausalLM MiMoV2FlashConfig causal + hidden_size=2048 intermediate_size=4096 \\
    num_attention_heads=32 num_key_value_heads=4 moe_intermediate_size=1024 n_routed_experts=8 num_experts_per_tok=4 \\
    layer_types=["full_attention","sliding_attention"] mlp_layer_types=["dense","sparse"]
apertus-8b ApertusForCausalLM ApertusConfig causal + hidden_size=4096 intermediate_size=14336 num_attention_heads=32 \\
    num_key_value_heads=8
nanochat NanoChatForCausalLM NanoChatConfig causal +
lfm3 Lfm3ForCausalLM Lfm3Config causal + num_hidden_layers=3 layer_types=["conv","full_attention","sliding_attention"]
minicpm3-4b MiniCPM3ForCausalLM MiniCPM3Config causal +
phi-3.5-moe PhimoeForCausalLM PhimoeConfig causal + hidden_size=2048 intermediate_size=3200 num_attention_heads=16 \\
    num_key_value_heads=4 num_local_experts=8
jetmoe-8b JetMoeForCausalLM JetMoeConfig causal +
deepseek-v4 DeepseekV4ForCausalLM DeepseekV4Config causal + hidden_size=2048 moe_intermediate_size=1024 \\
    num_attention_heads=16 q_lora_rank=512 n_routed_experts=8 num_experts_per_tok=4 \\
    layer_types=["heavily_compressed_attention","compressed_sparse_attention"]
afmoe AfmoeForCausalLM AfmoeConfig causal + num_experts=8 layer_types=["sliding_attention","full_attention"]
bert-base BertModel BertConfig encoder num_hidden_layers=2
distilbert DistilBertForSequenceClassification DistilBertConfig encoder n_layers=2
minilm-l6 BertModel BertConfig sentence num_hidden_layers=2 hidden_size=384 num_attention_heads=12 \\
    intermediate_size=1536
roberta-base RobertaForSequenceClassification RobertaConfig encoder num_hidden_layers=2
modernbert-base ModernBertForMaskedLM ModernBertConfig encoder + num_hidden_layers=4 cls_token_id=1 sep_token_id=2
deberta-v3-base DebertaV2ForSequenceClassification DebertaV2Config encoder num_hidden_layers=2 vocab_size=8192 \\
    hidden_size=768 num_attention_heads=12 \\
    intermediate_size=3072 relative_attention=true position_buckets=256 norm_rel_ebd="layer_norm" share_att_key=true \\
    pos_att_type=["p2c","c2p"] position_biased_input=false max_relative_positions=-1
bge-reranker-base XLMRobertaForSequenceClassification XLMRobertaConfig encoder num_hidden_layers=2 num_labels=1
gte-reranker-modernbert ModernBertForSequenceClassification ModernBertConfig encoder + num_hidden_layers=4 \\
    cls_token_id=1 sep_token_id=2 num_labels=1 classifier_pooling="mean"
eurobert-210m EuroBertModel EuroBertConfig encoder + hidden_size=768 intermediate_size=3072 num_attention_heads=12 \\
    num_key_value_heads=12
nomic-embed NomicBertModel NomicBertConfig encoder + hidden_size=768 intermediate_size=3072 num_attention_heads=12
albert-base AlbertModel AlbertConfig encoder num_hidden_layers=2 hidden_size=768 num_attention_heads=12 \\
    intermediate_size=3072
electra-small ElectraForSequenceClassification ElectraConfig encoder num_hidden_layers=2
mpnet-base MPNetModel MPNetConfig encoder num_hidden_layers=2
longformer-base LongformerModel LongformerConfig encoder num_hidden_layers=2 vocab_size=8192 attention_window=512
clip-text CLIPTextModelWithProjection CLIPTextConfig encoder num_hidden_layers=2
t5-small T5ForConditionalGeneration T5Config seq2seq vocab_size=8192 num_layers=2 decoder_start_token_id=0
nllb-600m M2M100ForConditionalGeneration M2M100Config seq2seq vocab_size=8192 encoder_layers=2 decoder_layers=2 \\
    d_model=1024 encoder_attention_heads=16 decoder_attention_heads=16 encoder_ffn_dim=4096 decoder_ffn_dim=4096
opus-mt MarianMTModel MarianConfig seq2seq vocab_size=8192 encoder_layers=2 decoder_layers=2 d_model=512 \\
    encoder_attention_heads=8 decoder_attention_heads=8 encoder_ffn_dim=2048 decoder_ffn_dim=2048 pad_token_id=0 \\
    decoder_start_token_id=0
mt5-small MT5ForConditionalGeneration MT5Config seq2seq vocab_size=8192 num_layers=2 decoder_start_token_id=0
bart-base BartForConditionalGeneration BartConfig seq2seq vocab_size=8192 encoder_layers=2 decoder_layers=2 \\
    d_model=768 \\
    encoder_attention_heads=12 decoder_attention_heads=12 encoder_ffn_dim=3072 decoder_ffn_dim=3072
whisper-base WhisperForConditionalGeneration WhisperConfig speech2seq encoder_layers=2 decoder_layers=2 d_model=512 \\
    encoder_attention_heads=8 decoder_attention_heads=8 encoder_ffn_dim=2048 decoder_ffn_dim=2048 vocab_size=51865
wav2vec2-base Wav2Vec2ForCTC Wav2Vec2Config audio num_hidden_layers=2
hubert-large HubertForCTC HubertConfig audio num_hidden_layers=2 hidden_size=1024 num_attention_heads=16 \\
    intermediate_size=4096 \\
    feat_extract_norm="layer" do_stable_layer_norm=true
"""
"""Name, classes of the model and of its configuration in transformers, task, what differs from the defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One model: the names of its classes in transformers and what its configuration says besides its defaults.

    ``task`` is ``causal`` (with keys and values where it keeps them), ``encoder``, ``sentence``, ``seq2seq``,
    ``speech2seq`` or ``audio``.
    """

    config: str
    model: str
    task: str
    sizes: Mapping[str, Any]


def _family(line: str) -> tuple[str, Family]:
    name, model, config, task, *rest = line.split()
    sizes: dict[str, Any] = dict(COMMON) if rest[:1] == ["+"] else {}
    for item in rest:
        key, found, text = item.partition("=")
        if found:
            sizes[key] = json.loads(text)
    return name, Family(config=config, model=model, task=task, sizes=sizes)


FAMILIES: dict[str, Family] = dict(
    _family(line) for line in TABLE.replace("\\\n", "").splitlines() if line and not line.startswith(" ")
)

BATCH, NEW, PAST, SAMPLES, WINDOW = 2, 6, 10, 16_000, 4_096


def _torch_model(family: Family, *, attention: str | None = None) -> Any:
    import transformers

    config = getattr(transformers, family.config)(**family.sizes)
    config.architectures = [family.model]
    if family.config == "Llama4TextConfig":
        _without_complex_numbers()
    if attention:
        config._attn_implementation = attention
    with _no_initialisation():
        model = getattr(transformers, family.model)(config).eval()
    for number, parameter in enumerate(model.parameters()):
        parameter.data.view(-1)[:1] = number / 1024  # optimisers merge what reads equal weights
    return model, config


def _without_complex_numbers() -> None:
    """Llama 4's rotation in cosines and sines: no exporter has the complex numbers that transformers writes."""
    import torch
    from transformers.models.llama4 import modeling_llama4

    def angles(self: Any, x: Any, position_ids: Any) -> Any:
        frequencies = position_ids[:, :, None].float() * self.inv_freq[None, None, :].float()
        return torch.stack((frequencies.cos(), frequencies.sin()), -1) * self.attention_scaling

    def rotated(xq: Any, xk: Any, turns: Any) -> Any:
        cosine, sine = (part[:, :, None, :] for part in turns.unbind(-1))

        def turned(x: Any) -> Any:
            a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
            return torch.stack((a * cosine - b * sine, a * sine + b * cosine), -1).flatten(3).type_as(x)

        return turned(xq), turned(xk)

    modeling_llama4.Llama4TextRotaryEmbedding.forward = angles
    modeling_llama4.apply_rotary_emb = rotated


def _no_initialisation() -> Any:
    """Weights as memory comes, zeros mostly: a third of an export's time is in random numbers that nothing reads."""
    try:
        from transformers.initialization import no_init_weights
    except ImportError:  # before transformers 5
        from transformers.modeling_utils import no_init_weights
    return no_init_weights()


def _inputs(
    family: Family, config: Any, *, cached: bool, batch: int = BATCH, new: int = NEW, past: int = PAST
) -> dict[str, Any]:
    import torch
    from transformers import DynamicCache

    if family.task == "audio":
        return {"input_values": torch.randn(batch, SAMPLES)}
    if family.task == "speech2seq":
        return {
            "input_features": torch.randn(batch, 80, 3000),
            "decoder_input_ids": torch.randint(3, 1000, (batch, new)),
        }
    ids = torch.randint(3, 1000, (batch, new))
    if family.task == "seq2seq":
        return {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "decoder_input_ids": torch.randint(3, 1000, (batch, new)),
        }
    if not cached:
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    heads, size = _kept(family)
    cache = DynamicCache(config=config)
    for layer in range(config.num_hidden_layers):
        cache.update(torch.randn(batch, heads, past, size), torch.randn(batch, heads, past, size), layer)
    return {
        "input_ids": ids,
        "attention_mask": torch.ones(batch, past + new, dtype=torch.long),
        "past_key_values": cache,
    }


def _counted_flops(family: Family, *, cached: bool, new: int) -> int | None:
    """What torch counts for products and convolutions with attention written out; ``None`` if it can't run so."""
    from torch import no_grad
    from torch.utils.flop_counter import FlopCounterMode

    try:
        model, config = _torch_model(family, attention="eager")
        if hasattr(model, "set_experts_implementation"):
            model.set_experts_implementation("eager")  # the counter doesn't know grouped products
        with FlopCounterMode(display=False) as counter, no_grad():
            model(**_inputs(family, config, cached=cached, new=new))
    except Exception:  # whatever a model's own code raises without its exporter's set-up: no count to compare with
        return None
    return int(counter.get_total_flops())


# --- exporters: each writes FOLDER/NAME.onnx with its weights beside it -----------------------------------------------


def _by_torch(family: Family, folder: Path, *, dynamo: bool, half: bool = False) -> Path:
    """``torch.onnx.export``, by tracing (TorchScript) or ``torch.export``; without a cache, dims dynamic."""
    import torch

    model, config = _torch_model(family, attention=None if dynamo else "eager")
    if half:
        model = model.half()
    inputs = _inputs(family, config, cached=False)
    if family.task == "causal":
        model.config.use_cache = False
        inputs["use_cache"] = False
    names = [name for name, value in inputs.items() if isinstance(value, torch.Tensor)]
    if half:
        inputs = {
            k: v.half() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for k, v in inputs.items()
        }

    class Called(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *arguments: Any) -> Any:
            outputs = self.model(
                **dict(zip(names, arguments, strict=True)), **({"use_cache": False} if "use_cache" in inputs else {})
            )
            outputs = outputs.to_tuple() if hasattr(outputs, "to_tuple") else outputs
            return outputs[0]

    path = folder / "model.onnx"
    arguments = tuple(inputs[name] for name in names)
    if dynamo:
        dims = tuple(
            {0: torch.export.Dim.DYNAMIC, **({1: torch.export.Dim.DYNAMIC} if inputs[n].ndim == 2 else {})}
            for n in names
        )
        torch.onnx.export(
            Called(),
            arguments,
            str(path),
            input_names=names,
            dynamo=True,
            dynamic_shapes=(dims,),
            external_data=True,
            opset_version=18 if not half else 23,
            verbose=False,
        )
    else:
        axes = {
            n: {0: "batch", **({1: ("decoder_" if "decoder" in n else "") + "sequence"} if inputs[n].ndim == 2 else {})}
            for n in names
        }
        torch.onnx.export(
            Called(),
            arguments,
            str(path),
            input_names=names,
            output_names=["output"],
            dynamo=False,
            dynamic_axes=axes,
            opset_version=17,
        )
    return path


def _by_transformers(
    family: Family, folder: Path, *, fused: str | None, cached: bool, half: bool, dynamic: bool = True
) -> Path:
    """transformers' own exporter (``torch.export`` below), and ONNX Runtime's operators if ``fused``."""
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    model, config = _torch_model(family)
    inputs = _inputs(family, config, cached=cached)
    if half:
        import torch

        model = model.half()
        if "past_key_values" in inputs:
            for layer in inputs["past_key_values"].layers:
                layer.keys, layer.values = layer.keys.half(), layer.values.half()
        inputs = {
            k: v.half() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for k, v in inputs.items()
        }
    options: dict[str, Any] = {"dynamic": dynamic}
    if fused:
        options["ort_fusions"] = fused
    exported = OnnxExporter().export(model, inputs, config=OnnxConfig(**options))
    exported.save_pretrained(str(folder))
    return folder / "model.onnx"


def _saved(family: Family, folder: Path) -> None:
    """The model and a tokenizer of a few words as a checkpoint, for the exporters that read one."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    model, _ = _torch_model(family)
    if family.task in ("causal", "seq2seq", "speech2seq"):
        model.generation_config.pad_token_id = 0
    model.save_pretrained(folder)
    words = Tokenizer(WordLevel({"<unk>": 3, "<pad>": 0, "<s>": 1, "</s>": 2, "a": 4}, unk_token="<unk>"))
    PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)
    if family.task in ("audio", "speech2seq"):
        import transformers

        extractor = (
            transformers.WhisperFeatureExtractor()
            if family.task == "speech2seq"
            else transformers.Wav2Vec2FeatureExtractor()
        )
        extractor.save_pretrained(folder)


OPTIMUM_TASKS = {
    "causal": "text-generation-with-past",
    "encoder": "feature-extraction",
    "sentence": "feature-extraction",
    "seq2seq": "text2text-generation-with-past",
    "speech2seq": "automatic-speech-recognition-with-past",
    "audio": "automatic-speech-recognition",
}


def _by_optimum(family: Family, folder: Path) -> list[Path]:
    """Optimum's export (``torch.onnx.export`` by tracing), with past keys and values where the family keeps them."""
    from optimum.exporters.onnx import main_export

    with tempfile.TemporaryDirectory() as checkpoint:
        _saved(family, Path(checkpoint))
        main_export(
            checkpoint,
            output=folder,
            task=OPTIMUM_TASKS[family.task],
            do_validation=False,
            no_post_process=False,
            device="cpu",
        )
    return sorted(folder.glob("*.onnx"))


def _by_genai(family: Family, folder: Path, *, precision: str, provider: str) -> Path:
    """ONNX Runtime GenAI's model builder."""
    import onnxruntime_genai

    models = Path(onnxruntime_genai.__file__).parent / "models"
    sys.path.insert(0, str(models))
    from builder import create_model, parse_extra_options  # onnxruntime-genai's module

    with tempfile.TemporaryDirectory() as checkpoint, tempfile.TemporaryDirectory() as cache:
        _saved(family, Path(checkpoint))
        where = ("zoo", checkpoint, str(folder), precision, provider, cache)
        create_model(*where, **parse_extra_options(*where, []))
    return folder / "model.onnx"


def _by_optimiser(family: Family, folder: Path, *, kind: str, half: bool) -> Path:
    """``onnxruntime.transformers``' optimiser over the file that tracing writes."""
    from onnxruntime.transformers.optimizer import optimize_model

    with tempfile.TemporaryDirectory() as raw:
        source = _by_torch(family, Path(raw), dynamo=False)
        sizes = family.sizes
        heads = sizes.get("num_attention_heads", 12)
        optimised = optimize_model(
            str(source),
            model_type=kind,
            num_heads=heads,
            hidden_size=sizes.get("hidden_size", 768),
            opt_level=1,
            use_gpu=False,
        )
        if half:
            optimised.convert_float_to_float16(keep_io_types=False)
        path = folder / "model.onnx"
        optimised.save_model_to_file(str(path), use_external_data_format=True)
    return path


def _taggers() -> dict[str, Callable[[Path, bool], Path]]:
    """LSTM and GRU taggers of plain torch modules."""

    def export(cell: str) -> Callable[[Path, bool], Path]:
        def run(folder: Path, dynamo: bool) -> Path:
            import torch

            class Tagger(torch.nn.Module):
                def __init__(self) -> None:
                    super().__init__()
                    self.embedding = torch.nn.Embedding(20_000, 256)
                    self.cell = getattr(torch.nn, cell)(256, 512, num_layers=2, bidirectional=True, batch_first=True)
                    self.out = torch.nn.Linear(1024, 32)

                def forward(self, ids: Any) -> Any:
                    return torch.log_softmax(self.out(self.cell(self.embedding(ids))[0]), -1)

            path = folder / "model.onnx"
            ids = torch.randint(0, 20_000, (BATCH, NEW))
            if dynamo:
                free = torch.export.Dim.DYNAMIC
                torch.onnx.export(
                    Tagger().eval(),
                    (ids,),
                    str(path),
                    input_names=["input_ids"],
                    dynamo=True,
                    external_data=True,
                    dynamic_shapes=({0: free, 1: free},),
                    verbose=False,
                )
            else:
                torch.onnx.export(
                    Tagger().eval(),
                    (ids,),
                    str(path),
                    input_names=["input_ids"],
                    dynamo=False,
                    dynamic_axes={"input_ids": {0: "batch", 1: "sequence"}},
                    opset_version=17,
                )
            return path

        return run

    return {"lstm-tagger": export("LSTM"), "gru-tagger": export("GRU")}


# --- what a run says --------------------------------------------------------------------------------------------------


def _feeds(model: Any, heads: tuple[int, int], new: int) -> dict[str, Any]:
    """Inputs of the recorded sizes by the names that exporters give: one size for each symbol, the first that fits.

    ``heads``: how many heads of keys and values are kept, and the size of each. ``new``: tokens behind the past.
    """
    import numpy as np
    import onnx

    symbols: dict[str, int] = {}

    def size(dim: Any, name: str, axis: int) -> int:
        symbol = dim.dim_param
        if not symbol or symbol.isdigit():  # torch's exporter writes sizes that it found out as names
            return int(symbol or dim.dim_value)
        if symbol not in symbols:
            symbols[symbol] = _size_by_name(symbol, name, axis, heads, new, has_past=has_past)
        return symbols[symbol]

    graph = model.graph
    initial = {item.name for item in graph.initializer}
    inputs = [item for item in graph.input if item.name not in initial]
    has_past = any("past" in item.name or "cache" in item.name for item in inputs)
    feeds = {}
    for item in inputs:
        kind = item.type.tensor_type
        shape = tuple(size(dim, item.name, axis) for axis, dim in enumerate(kind.shape.dim))
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if "mask" in item.name:
            array = np.ones(shape, dtype)
        elif "position" in item.name:
            array = np.broadcast_to(np.arange(shape[-1]) + (PAST if has_past else 0), shape).astype(dtype)
        elif dtype.kind in "iu":
            array = np.random.default_rng(0).integers(3, 100, shape).astype(dtype)
        elif dtype.kind == "b":
            array = np.ones(shape, dtype)
        else:
            array = (np.random.default_rng(0).standard_normal(shape) * 0.1).astype(dtype)
        feeds[item.name] = array
    return feeds


def _size_by_name(symbol: str, name: str, axis: int, heads: tuple[int, int], new: int, *, has_past: bool) -> int:
    is_cache = name.startswith("past") or ".key" in name or ".value" in name
    if axis == 0:
        return BATCH
    if is_cache and axis in (1, 3):
        return heads[axis // 2]
    if is_cache and "sliding" in symbol:
        return WINDOW
    if is_cache:
        return new if "encoder" in name.replace("decoder", "") else PAST
    if "mask" in name and has_past and "encoder" not in name:
        return PAST + new
    if name == "input_values":
        return SAMPLES
    return new


def _true_shapes(
    path: Path, heads: tuple[int, int], new: int
) -> tuple[dict[str, list[int]], dict[str, list[int]], str]:
    """Shapes of the inputs and of every value as ONNX Runtime's CPU provider computes them, and why there are none."""
    import onnx
    import onnxruntime

    model = onnx.load(path, load_external_data=False)
    feeds = _feeds(model, heads, new)
    sizes = {name: list(array.shape) for name, array in feeds.items()}
    del model.graph.output[len(model.graph.output) :]
    known = {item.name for item in model.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in known:
                model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
                known.add(name)
    exposed = path.with_name("exposed.onnx")
    onnx.save(model, exposed)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    try:
        session = onnxruntime.InferenceSession(str(exposed), options, providers=["CPUExecutionProvider"])
        results = session.run(None, feeds)
    except Exception as error:  # any fault of a run is the reason why there is no truth
        return sizes, {}, str(error).splitlines()[0][:200]
    shapes = {}
    for item, value in zip(session.get_outputs(), results, strict=True):
        if hasattr(value, "shape"):
            shapes[item.name] = list(value.shape)
    return sizes, shapes, ""


def _kept(family: Family) -> tuple[int, int]:
    """Heads of keys and values that a cache keeps, and the size of each."""
    import transformers

    config = getattr(transformers, family.config)(**family.sizes)
    count = getattr(config, "num_attention_heads", None) or getattr(config, "n_head", None) or 1
    kept = 1 if getattr(config, "multi_query", False) else getattr(config, "num_key_value_heads", None) or count
    return kept, getattr(config, "head_dim", None) or config.hidden_size // count


def _record(made: Path, target: Path, *, heads: tuple[int, int], new: int, flops: int | None) -> None:
    """Writes ``target`` without weights and what a run said beside it."""
    import onnx

    sizes, shapes, fault = _true_shapes(made, heads, new)
    model = onnx.load(made, load_external_data=False)
    onnx.save(model, target)
    if target.stat().st_size > 64_000_000:
        stripped = onnx.load(target, load_external_data=False)
        target.unlink()
        onnx.save(stripped, target, save_as_external_data=True, location=target.name + ".data", size_threshold=1024)
        (target.parent / (target.name + ".data")).unlink()
    facts = {"inputs": sizes, "shapes": shapes, "fault": fault, "flops": flops}
    target.with_suffix(".json").write_text(json.dumps(facts))


def _jobs(exporters: set[str]) -> dict[str, tuple[str, Family | None, bool, Callable[[Path], Path | list[Path]]]]:
    """``name -> (exporter, family, whether keys and values are kept, what writes it)``."""
    jobs: dict[str, tuple[str, Family | None, bool, Callable[[Path], Path | list[Path]]]] = {}

    def add(
        name: str, exporter: str, family: Family | None, cached: bool, run: Callable[[Path], Path | list[Path]]
    ) -> None:
        if exporter in exporters:
            jobs[name] = (exporter, family, cached, run)

    states = (  # what they keep is other than keys and values of one size, or fails to export
        "mamba-130m",
        "mamba2-130m",
        "rwkv-169m",
        "lfm2-350m",
        "lfm2-8b-a1b",
        "granite-4-h-tiny",
        "falcon-h1-0.5b",
        "qwen3-next",
        "kimi-linear-48b",
        "qwen3.5-4b",
        "bamba-9b",
        "zamba2-1.2b",
        "jamba",
        "nemotron-h",
        "falcon-mamba",
        "recurrent-gemma-2b",
        "xlstm-7b",
        "olmo-hybrid",
        "minimax-text-01",
        "lfm3",
        "gemma-4-e2b",
        "deepseek-v2-lite",
        "deepseek-v3",
        "deepseek-v3.2",
        "deepseek-v4",
        "glm-4.7-flash",
        "longcat-flash",
        "mimo-v2-flash",
        "minicpm3-4b",
    )
    for name, family in FAMILIES.items():
        f = family
        add(f"{name}.torchscript", "torch", f, False, lambda p, f=f: _by_torch(f, p, dynamo=False))
        add(f"{name}.dynamo", "torch", f, False, lambda p, f=f: _by_torch(f, p, dynamo=True))
        cached = family.task == "causal" and name not in states
        add(
            f"{name}.hf",
            "transformers",
            f,
            cached,
            lambda p, f=f, c=cached: _by_transformers(f, p, fused=None, cached=c, half=False),
        )
        add(
            f"{name}.hf-ort-fp16",
            "transformers",
            f,
            cached,
            lambda p, f=f, c=cached: _by_transformers(f, p, fused="cuda", cached=c, half=True),
        )
        add(f"{name}.optimum", "optimum", f, True, lambda p, f=f: _by_optimum(f, p))
        if family.task == "causal":
            for precision, provider in (("fp16", "cuda"), ("int4", "cuda"), ("fp32", "cpu")):
                add(
                    f"{name}.genai-{precision}",
                    "genai",
                    f,
                    True,
                    lambda p, f=f, r=precision, e=provider: _by_genai(f, p, precision=r, provider=e),
                )
    for name in ("llama-3.2-1b", "bert-base", "qwen3-0.6b"):
        f = FAMILIES[name]
        add(f"{name}.dynamo-op23-fp16", "torch", f, False, lambda p, f=f: _by_torch(f, p, dynamo=True, half=True))
        add(
            f"{name}.hf-static",
            "transformers",
            f,
            False,
            lambda p, f=f: _by_transformers(f, p, fused=None, cached=False, half=False, dynamic=False),
        )
    for name, kind in (
        ("bert-base", "bert"),
        ("roberta-base", "bert"),
        ("gpt2", "gpt2"),
        ("t5-small", "t5"),
        ("bart-base", "bart"),
        ("clip-text", "clip"),
        ("minilm-l6", "bert"),
        ("distilbert", "bert"),
    ):
        f = FAMILIES[name]
        for half in (False, True):
            add(
                f"{name}.optimiser" + ("-fp16" if half else ""),
                "optimiser",
                f,
                False,
                lambda p, f=f, k=kind, h=half: _by_optimiser(f, p, kind=k, half=h),
            )
    for name, run in _taggers().items():
        add(f"{name}.torchscript", "torch", None, False, lambda p, r=run: r(p, False))
        add(f"{name}.dynamo", "torch", None, False, lambda p, r=run: r(p, True))
    return jobs


NEEDS = {
    "torch": "torch",
    "transformers": "transformers.exporters",
    "optimum": "optimum.exporters.onnx",
    "genai": "onnxruntime_genai",
    "optimiser": "onnxruntime.transformers",
}


def build(folder: Path, only: str, exporters: set[str], *, again: bool) -> int:
    """Exports what ``only`` matches into ``folder``; how many failed."""
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0

    def there(module: str) -> bool:
        try:
            return importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            return False

    for exporter in sorted(exporters):
        if not there(NEEDS[exporter]):
            print(f"{exporter}: {NEEDS[exporter]} isn't installed in {sys.executable}")
    exporters = {exporter for exporter in exporters if there(NEEDS[exporter])}
    for name, (exporter, family, cached, run) in _jobs(exporters).items():
        done = list(folder.glob(f"{name}*.json")) or (folder / f"{name}.failed").exists()
        if not any(fnmatch.fnmatch(name, pattern) for pattern in only.split(",")) or (done and not again):
            continue
        start = time.perf_counter()
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            try:
                made = run(Path(scratch))
                files = made if isinstance(made, list) else [made]
                new = (
                    1 if exporter == "genai" else NEW
                )  # its operators take one new token of several samples with a past
                counted = _counted_flops(family, cached=cached and family.task == "causal", new=new) if family else None
                for file in files:
                    target = folder / (f"{name}.onnx" if len(files) == 1 else f"{name}.{file.stem}.onnx")
                    heads = _kept(family) if family else (1, 1)
                    _record(file, target, heads=heads, new=new, flops=counted if len(files) == 1 else None)
                print(f"{name}: {len(files)} files, {time.perf_counter() - start:.0f} s", flush=True)
            except (Exception, SystemExit) as error:  # whatever an exporter throws is a line, the others go on
                failed += 1
                (folder / f"{name}.failed").write_text("".join(traceback.format_exception(error))[-4000:])
                print(
                    f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:160] if str(error) else ''}",
                    flush=True,
                )
        gc.collect()
    return failed


# --- what we say of them ----------------------------------------------------------------------------------------------

RUNTIMES = ("eager", "compiled", "onnxruntime", "tensorrt")
CASES = (
    *((runtime, "auto", "h100") for runtime in RUNTIMES),
    *(("onnxruntime", precision, "h100") for precision in ("fp16-model", "int8", "int4w")),
    *(("tensorrt", precision, "h100") for precision in ("fp16", "int8", "fp8")),
    *(("eager", "fp16", "h100"), ("compiled", "bf16", "h100")),
    *(("onnxruntime", "auto", "a100"), ("tensorrt", "auto", "l4"), ("eager", "auto", "mi300x")),
)
"""Runtime, precision, GPU."""

PRODUCTS = ("gemm", "conv", "attention", "recurrent")


@dataclass(kw_only=True)
class Judged:
    """One file: counts of its values, our products' FLOPs over torch's, and by runtime the kernels, those of attention,
    and the operators without a model; ``refused`` are whole analyses, ``faults`` what no user should see."""

    name: str
    nodes: int = 0
    right: int = 0
    bounded: int = 0
    wrong: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    flops: float | None = None
    kernels: dict[str, int] = field(default_factory=dict)
    attention: dict[str, int] = field(default_factory=dict)
    unsupported: set[str] = field(default_factory=set)
    not_parsed: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_wanting(self) -> bool:
        return bool(self.wrong or self.unknown or self.unsupported or self.faults)


def judged(path: Path) -> Judged:
    """One file at the sizes of its run: its shapes, then :data:`CASES`."""
    from neusight_onnx import analyze
    from neusight_onnx.errors import NeusightError
    from neusight_onnx.inspection import inspect_model

    facts = json.loads(path.with_suffix(".json").read_text())
    shapes = {name: tuple(shape) for name, shape in facts["inputs"].items()}
    result = Judged(name=path.stem)
    try:
        inspection = inspect_model(path, shapes=shapes)
    except NeusightError as error:
        result.faults.append(f"inspect: {error}")
        return result
    result.nodes = inspection.node_count
    for name, shape in facts["shapes"].items():
        found = inspection.values.get(name)
        if found is None or found.shape is None:
            result.unknown.append(name)
        elif tuple(shape) == found.shape:
            result.right += 1
        elif found.is_bound:
            result.bounded += 1
        else:
            result.wrong.append(f"{name} {list(found.shape)}, not {shape}")
    for runtime, precision, gpu in CASES:
        where = f"{runtime}, {precision}, {gpu}"
        start = time.perf_counter()
        try:
            report = analyze(path, gpu=gpu, runtime=runtime, precision=precision, shapes=shapes)
        except NeusightError as error:
            result.refused[where] = str(error)
            continue
        except Exception as error:  # what is looked for
            result.faults.append(f"{where}: {type(error).__name__}: {error}")
            continue
        result.seconds = max(result.seconds, time.perf_counter() - start)
        for node in report.unsupported:
            kind = result.not_parsed if "parser" in node.reason else result.unsupported
            kind.add(node.op_type)
        if gpu != CASES[0][2] or precision != "auto":
            continue
        result.kernels[runtime] = sum(row.count for row in report.kernels)
        result.attention[runtime] = sum(row.count for row in report.kernels if row.kernel_class == "attention")
        if runtime == "eager" and facts["flops"]:
            products = sum(row.flops for row in report.kernels if row.kernel_class in PRODUCTS)
            result.flops = products / facts["flops"]
    return result


def table(rows: Sequence[Judged], *, markdown: bool) -> str:
    """The rows as text, and what is wanting in words."""
    head = ("file", "nodes", "right", "bounded", "wrong", "unknown", "FLOPs", "kernels", "attention", "no model", "s")
    lines = [
        f"Python {platform.python_version()}; at the sizes that each file was run at; FLOPs: our products over torch's "
        "count; kernels and those of attention: eager, compiled, onnxruntime, tensorrt, as stored, on an H100; "
        f"s: the slowest of {len(CASES)} analyses",
        "",
    ]
    if markdown:
        lines += ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    for row in rows:
        cells = [row.name, row.nodes, row.right, row.bounded, len(row.wrong), len(row.unknown)]
        cells.append("" if row.flops is None else f"{row.flops:.2f}")
        cells += ["/".join(str(counts.get(name, "-")) for name in RUNTIMES) for counts in (row.kernels, row.attention)]
        cells += [", ".join(sorted(row.unsupported)), f"{row.seconds:.2f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |" if markdown else "  ".join(map(str, cells)))
    reasons = Counter(reason for row in rows for reason in row.refused.values())
    parsed = Counter(name for row in rows for name in row.not_parsed)
    lines += [
        "",
        f"{len(rows)} files, {sum(row.is_wanting for row in rows)} wanting: {sum(row.right for row in rows)} values of "
        f"the right shape, {sum(row.bounded for row in rows)} bounded, {sum(len(row.wrong) for row in rows)} wrong, "
        f"{sum(len(row.unknown) for row in rows)} unknown.",
        "Not in TensorRT's parser (files): "
        + (", ".join(f"{name} {count}" for name, count in sorted(parsed.items())) or "none"),
        f"Refused, of {len(rows) * len(CASES)} analyses: {reasons.total()}",
        *(f"- {count} times: {reason}" for reason, count in reasons.most_common()),
    ]
    faults = [f"- {row.name}: {fault}" for row in rows for fault in (*row.faults, *row.wrong[:3])]
    return "\n".join([*lines, *(["Faults:", *faults] if faults else [])])


def judge(folder: Path, only: str) -> list[Judged]:
    files = sorted(path for path in folder.glob("*.onnx") if path.with_suffix(".json").exists())
    return [judged(path) for path in files if any(fnmatch.fnmatch(path.stem, pattern) for pattern in only.split(","))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("build", help="export the models into a folder")
    judging = commands.add_parser("judge", help="analyse those of a folder")
    for command in (making, judging):
        command.add_argument("folder", type=Path)
        command.add_argument("--only", default="*", help="names that are taken, with wildcards, separated by commas")
    making.add_argument("--exporter", default=",".join(NEEDS))
    making.add_argument("--again", action="store_true", help="those that are there, too")
    judging.add_argument("--format", choices=("text", "markdown"), default="text")
    judging.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    # transformers looks for a package that is called as our kernels.py beside this file.
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]
    if given.command == "build":
        return min(build(given.folder, given.only, set(given.exporter.split(",")), again=given.again), 1)
    rows = judge(given.folder, given.only)
    if not rows:
        sys.exit(f"error: no .onnx files with a .json beside them in {given.folder}")
    text = table(rows, markdown=given.format == "markdown")
    if given.output:
        given.output.write_text(text + "\n")
    print(text)
    return 1 if any(row.is_wanting for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
