"""Models of the latest families, with random weights, exported as ``zoo_vision_models.py`` exports its own.

    python -P zoo_newest_models.py FOLDER [NAMES...] [--forms FORM,...] [--list]

Promptable segmentation, detection by words, depth, towers of vision-language models, speech, time series, diffusion of
images and video, graphs and tables: widths as published, few layers. What each file is beside, and what is needed,
stands in ``zoo_vision_models.py``. Beside its forms an entry may have ``op23`` (``torch.export``, opset 23, whose
Attention, RotaryEmbedding and RMSNormalization are operators), and ``op23-fp16`` and ``op23-bf16`` of the same.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

_found = importlib.util.spec_from_file_location("zoo_vision_models", Path(__file__).with_name("zoo_vision_models.py"))
assert _found is not None
assert _found.loader is not None
zoo = importlib.util.module_from_spec(_found)  # -P: this folder has modules that are called like others'
sys.modules["zoo_vision_models"] = zoo
_found.loader.exec_module(zoo)
zoo.ZOO.clear()
zoo.HALVED = ()
torch.backends.mha.set_fastpath_enabled(False)  # its operator has no form in ONNX

Built, Outputs, entry, hf, diffusion, images = (
    zoo.Built,
    zoo.Outputs,
    zoo.entry,
    zoo._hf,
    zoo._diffusion,
    zoo.images,
)
NEW = ("ts", "dynamo", "op23-bf16")
HALF = ("ts", "ts-fp16", "dynamo", "op23-fp16")


def ids(length: int, batch: int = 1, most: int = 1000) -> torch.Tensor:
    return torch.randint(3, most, (batch, length))


# segmentation that is prompted, detection by words and without, depth

hf("sam3_vision", "Sam3VisionConfig", "Sam3VisionModel",
   {"backbone_config": {"model_type": "sam3_vit_model", "num_hidden_layers": 2, "global_attn_indexes": [1],
                        "image_size": 336}}, lambda: (images(336, 1),), forms=HALF)  # fmt: skip
hf("sam2_hiera", "Sam2VisionConfig", "Sam2VisionModel",
   {"backbone_config": {"model_type": "sam2_hiera_det_model", "image_size": [512, 512]}},
   lambda: (images(512, 1),), forms=HALF)  # fmt: skip
hf("edgetam", "EdgeTamVisionConfig", "EdgeTamVisionModel", {}, lambda: (images(512, 1),), forms=NEW)
hf("grounding_dino", "GroundingDinoConfig", "GroundingDinoForObjectDetection",
   {"encoder_layers": 2, "decoder_layers": 2, "num_queries": 100,
    "text_config": {"model_type": "bert", "num_hidden_layers": 2}},
   lambda: (images(320, 1), ids(16), torch.zeros(1, 16, dtype=torch.int64), torch.ones(1, 16, dtype=torch.int64)),
   lambda m, x, i, t, mask: m(x, input_ids=i, token_type_ids=t, attention_mask=mask).to_tuple()[:2],
   batched=False, forms=NEW)  # fmt: skip
hf("mm_grounding_dino", "MMGroundingDinoConfig", "MMGroundingDinoForObjectDetection",
   {"encoder_layers": 2, "decoder_layers": 2, "num_queries": 100,
    "text_config": {"model_type": "bert", "num_hidden_layers": 2}},
   lambda: (images(320, 1), ids(16), torch.zeros(1, 16, dtype=torch.int64), torch.ones(1, 16, dtype=torch.int64)),
   lambda m, x, i, t, mask: m(x, input_ids=i, token_type_ids=t, attention_mask=mask).to_tuple()[:2],
   batched=False, forms=NEW)  # fmt: skip
hf("omdet", "OmDetTurboConfig", "OmDetTurboForObjectDetection",
   {"decoder_num_layers": 2, "num_queries": 100, "use_timm_backbone": False, "backbone": None,
    "backbone_config": {"model_type": "swin", "out_indices": [2, 3, 4], "depths": [1, 1, 2, 1], "image_size": 640}},
   lambda: (images(640, 1), ids(8, 3), torch.ones(3, 8, dtype=torch.int64), ids(8),
            torch.ones(1, 8, dtype=torch.int64), torch.tensor([3])),
   lambda m, x, c, cm, t, tm, s: m(x, c, cm, t, tm, s).to_tuple()[:2], batched=False, forms=NEW)  # fmt: skip
hf("rf_detr", "RfDetrConfig", "RfDetrForObjectDetection", {"decoder_layers": 2}, lambda: (images(448, 1),), forms=HALF)
hf("lw_detr", "LwDetrConfig", "LwDetrForObjectDetection",
   {"decoder_layers": 2, "backbone_config": {"model_type": "lw_detr_vit", "image_size": 512,
                                             "pretrain_image_size": 224, "num_hidden_layers": 10,
                                             "out_indices": [2, 4, 5, 9]}},
   lambda: (images(512, 1),), forms=HALF)  # fmt: skip
hf("deimv2", "Deimv2Config", "Deimv2ForObjectDetection", {}, lambda: (images(320, 1),), forms=HALF)
hf("owlv2", "Owlv2Config", "Owlv2ForObjectDetection",
   {"vision_config": {"num_hidden_layers": 2, "image_size": 384}, "text_config": {"num_hidden_layers": 2}},
   lambda: (ids(16, 2), images(384, 1), torch.ones(2, 16, dtype=torch.int64)),
   lambda m, i, x, a: m(i, x, a).to_tuple()[:2], batched=False, forms=NEW)  # fmt: skip
hf("depth_pro", "DepthProConfig", "DepthProForDepthEstimation",
   {"patch_model_config": {"model_type": "dinov2", "num_hidden_layers": 12, "hidden_size": 192,
                           "num_attention_heads": 3, "patch_size": 16, "image_size": 384},
    "image_model_config": {"model_type": "dinov2", "num_hidden_layers": 2, "hidden_size": 192,
                           "num_attention_heads": 3, "patch_size": 16, "image_size": 384},
    "fov_model_config": {"model_type": "dinov2", "num_hidden_layers": 2, "hidden_size": 192,
                         "num_attention_heads": 3, "patch_size": 16, "image_size": 384},
    "fusion_hidden_size": 64},
   lambda: (images(1536, 1),), batched=False, forms=("ts", "dynamo"), shapes=False)  # fmt: skip
hf("dinov2_depth", "DepthAnythingConfig", "DepthAnythingForDepthEstimation",
   {"backbone_config": {"model_type": "dinov2", "hidden_size": 384, "num_hidden_layers": 4, "num_attention_heads": 6,
                        "image_size": 518, "patch_size": 14, "out_indices": [1, 2, 3, 4], "apply_layernorm": True,
                        "reshape_hidden_states": False}, "reassemble_hidden_size": 384,
    "neck_hidden_sizes": [48, 96, 192, 384], "fusion_hidden_size": 64},
   lambda: (images(518, 1),), forms=HALF)  # fmt: skip
hf("vitpose", "VitPoseConfig", "VitPoseForPoseEstimation",
   {"backbone_config": {"model_type": "vitpose_backbone", "num_hidden_layers": 3, "out_indices": [3]}},
   lambda: (torch.randn(1, 3, 256, 192),), forms=NEW)  # fmt: skip
hf("lightglue", "LightGlueConfig", "LightGlueForKeypointMatching", {"num_hidden_layers": 2},
   lambda: (torch.rand(1, 2, 3, 120, 160),), batched=False, forms=("ts", "dynamo"))  # fmt: skip
hf("vitmatte", "VitMatteConfig", "VitMatteForImageMatting",
   {"backbone_config": {"model_type": "vitdet", "num_hidden_layers": 4, "hidden_size": 384, "num_attention_heads": 6,
                        "image_size": 256, "num_channels": 4, "window_size": 14, "window_block_indices": [0, 1, 3],
                        "residual_block_indices": [2], "out_features": ["stage4"], "pretrain_image_size": 224,
                        "use_relative_position_embeddings": True}},
   lambda: (images(256, 1, 4),), forms=NEW)  # fmt: skip

# towers of vision-language models

hf("siglip2_naflex", "Siglip2VisionConfig", "Siglip2VisionModel", {"num_hidden_layers": 2},
   lambda: (torch.randn(1, 256, 768), torch.ones(1, 256, dtype=torch.int64), torch.tensor([[16, 16]])),
   lambda m, x, mask, s: m(x, pixel_attention_mask=mask, spatial_shapes=s).last_hidden_state,
   batched=False, forms=NEW)  # fmt: skip
hf("radio", "RadioConfig", "RadioModel", {"num_hidden_layers": 2}, lambda: (images(224, 1),), forms=NEW)
hf("llama4_vision", "Llama4VisionConfig", "Llama4VisionModel", {"num_hidden_layers": 2, "image_size": 336},
   lambda: (images(336, 1),), batched=False, forms=NEW)  # fmt: skip
hf("gemma3n_audio", "Gemma3nAudioConfig", "Gemma3nAudioEncoder", {"conf_num_hidden_layers": 2},
   lambda: (torch.randn(1, 200, 128), torch.zeros(1, 200, dtype=torch.bool)),
   lambda m, x, mask: m(x, mask).to_tuple()[0], batched=False, forms=NEW)  # fmt: skip
hf("qwen2_audio", "Qwen2AudioEncoderConfig", "Qwen2AudioEncoder", {"encoder_layers": 2},
   lambda: (torch.randn(1, 128, 3000),), forms=NEW)  # fmt: skip
hf("idefics3_vision", "Idefics3VisionConfig", "Idefics3VisionTransformer",
   {"num_hidden_layers": 2, "image_size": 364, "patch_size": 14}, lambda: (images(364, 1),),
   batched=False, forms=NEW)  # fmt: skip
hf("mllama_vision", "MllamaVisionConfig", "MllamaVisionModel",
   {"num_hidden_layers": 2, "num_global_layers": 1, "image_size": 448, "intermediate_layers_indices": [0, 1],
    "vision_output_dim": 3840},
   lambda: (torch.randn(1, 1, 4, 3, 448, 448), torch.tensor([[6]]), torch.ones(1, 1, 4, dtype=torch.int64)),
   lambda m, x, r, mask: m(x, r, mask).last_hidden_state, batched=False, forms=NEW)  # fmt: skip
hf("aria_projector", "InstructBlipQFormerConfig", "InstructBlipQFormerModel",
   {"num_hidden_layers": 2}, lambda: (ids(16), torch.ones(1, 48, dtype=torch.int64), torch.randn(1, 32, 768),
                                      torch.randn(1, 257, 1408)),
   lambda m, i, mask, q, e: m(i, mask, query_embeds=q, encoder_hidden_states=e).last_hidden_state,
   batched=False, forms=NEW)  # fmt: skip

# speech

hf("whisper_turbo_decoder", "WhisperConfig", "WhisperForConditionalGeneration",
   {"d_model": 1280, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 20,
    "decoder_attention_heads": 20, "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120, "num_mel_bins": 128},
   lambda: (ids(4), torch.randn(1, 1500, 1280)),
   lambda m, i, e: m.proj_out(m.model.decoder(input_ids=i, encoder_hidden_states=e, use_cache=False)[0]),
   forms=HALF)  # fmt: skip
hf("moonshine_encoder", "MoonshineConfig", "MoonshineModel", {"encoder_num_hidden_layers": 2},
   lambda: (torch.randn(1, 16000),), lambda m, x: m.encoder(x).last_hidden_state, forms=NEW)  # fmt: skip
hf("wav2vec2_bert", "Wav2Vec2BertConfig", "Wav2Vec2BertModel", {"num_hidden_layers": 2},
   lambda: (torch.randn(1, 200, 160), torch.ones(1, 200, dtype=torch.int64)),
   lambda m, x, mask: m(x, attention_mask=mask).last_hidden_state, forms=NEW)  # fmt: skip
hf("wavlm", "WavLMConfig", "WavLMModel", {"num_hidden_layers": 2}, lambda: (torch.randn(1, 16000),),
   lambda m, x: m(x).last_hidden_state, forms=NEW)  # fmt: skip
hf("granite_speech_encoder", "GraniteSpeechEncoderConfig", "GraniteSpeechCTCEncoder", {"num_layers": 2},
   lambda: (torch.randn(1, 400, 160),), lambda m, x: m(x), batched=False, forms=NEW)  # fmt: skip
hf("fastspeech2_conformer", "FastSpeech2ConformerConfig", "FastSpeech2ConformerModel",
   {"encoder_layers": 2, "decoder_layers": 2}, lambda: (ids(24, most=70),),
   lambda m, i: m(i).spectrogram, batched=False, forms=("ts", "dynamo"))  # fmt: skip


class _Voice(nn.Module):
    """Parts of a StyleTTS 2 decoder (Kokoro's): LSTMs over phonemes, adaptive instance normalization by a style,
    Snake activations, transposed convolutions, and an inverse short-time Fourier transform."""

    class Block(nn.Module):
        def __init__(self, width: int, style: int, dilation: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
            self.conv2 = nn.Conv1d(width, width, 3, padding=1)
            self.fc1, self.fc2 = nn.Linear(style, 2 * width), nn.Linear(style, 2 * width)
            self.norm = nn.InstanceNorm1d(width, affine=True)
            self.alpha = nn.Parameter(torch.ones(1, width, 1))

        def normed(self, x: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
            gamma, beta = made[:, :, None].chunk(2, 1)
            x = (1 + gamma) * self.norm(x) + beta
            return torch.as_tensor(x + (1 / self.alpha) * torch.sin(self.alpha * x) ** 2)

        def forward(self, x: torch.Tensor, style: torch.Tensor) -> torch.Tensor:
            y = self.conv1(self.normed(x, self.fc1(style)))
            return x + torch.as_tensor(self.conv2(self.normed(y, self.fc2(style))))

    def __init__(self, width: int = 512, style: int = 128, fft: int = 20, hop: int = 5) -> None:
        super().__init__()
        self.embed = nn.Embedding(178, width)
        self.lstm = nn.LSTM(width + style, width // 2, batch_first=True, bidirectional=True)
        self.duration = nn.Linear(width, 50)
        self.blocks = nn.ModuleList(self.Block(width // 4, style, d) for d in (1, 3, 5))
        self.up = nn.ConvTranspose1d(width, width // 4, 20, stride=10, padding=5)
        self.post = nn.Conv1d(width // 4, fft + 2, 7, padding=3)
        self.fft, self.hop = fft, hop
        self.register_buffer("window", torch.hann_window(fft))

    def forward(self, tokens: torch.Tensor, style: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.embed(tokens)
        x, _ = self.lstm(torch.cat((x, style[:, None].expand(-1, x.shape[1], -1)), -1))
        durations = torch.sigmoid(self.duration(x)).sum(-1)
        y = self.up(x.transpose(1, 2))
        for block in self.blocks:
            y = block(y, style)
        y = self.post(functional.leaky_relu(y))
        half = self.fft // 2 + 1
        magnitude, phase = torch.exp(y[:, :half]), torch.sin(y[:, half:])
        basis = torch.fft.ifft(torch.eye(self.fft))[:half].real.to(y.dtype)
        frames = torch.einsum("bct,cn->bnt", magnitude * torch.cos(phase), basis) * self.window[:, None]
        wave = functional.fold(
            frames, (1, (frames.shape[-1] - 1) * self.hop + self.fft), (1, self.fft), stride=(1, self.hop)
        )
        return durations, wave[:, 0, 0]


@entry("own_voice", forms=("ts", "dynamo"), batched=False)
def _voice() -> Built:
    return _Voice().eval(), (ids(40, most=170), torch.randn(1, 128))


# time series, tables, graphs

hf("timesfm25", "TimesFm2_5Config", "TimesFm2_5Model", {"num_hidden_layers": 2},
   lambda: (torch.randn(1, 512), torch.zeros(1, 512)),
   lambda m, x, pad: m(past_values=x, past_values_padding=pad).last_hidden_state, batched=False, forms=NEW)  # fmt: skip
hf("chronos_bolt_t5", "T5Config", "T5EncoderModel", {"num_layers": 2, "d_model": 512, "vocab_size": 2},
   lambda: (torch.randn(2, 33, 512), torch.ones(2, 33)),
   lambda m, x, mask: m(inputs_embeds=x, attention_mask=mask).last_hidden_state, forms=NEW)  # fmt: skip
hf("autoformer", "AutoformerConfig", "AutoformerModel",
   {"prediction_length": 24, "context_length": 48, "encoder_layers": 1, "decoder_layers": 1, "lags_sequence": [1, 2],
    "num_time_features": 2},
   lambda: (torch.randn(1, 50), torch.randn(1, 50, 2), torch.ones(1, 50), torch.randn(1, 24), torch.randn(1, 24, 2)),
   lambda m, v, t, o, fv, ft: m(v, t, o, future_values=fv, future_time_features=ft).last_hidden_state,
   batched=False, forms=("ts", "dynamo"))  # fmt: skip


class _GroupMixer(nn.Module):
    """A layer of a forecaster over groups (Chronos-2's): attention over time with rotated positions and then over the
    series of a batch, by RMS normalization and a gated feed-forward layer."""

    def __init__(self, width: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.embed = nn.Linear(48, width)
        self.parts = nn.ModuleList(
            nn.ModuleDict({"qkv": nn.Linear(width, 3 * width, bias=False), "out": nn.Linear(width, width, bias=False),
                           "norm": nn.RMSNorm(width)}) for _ in range(2)
        )  # fmt: skip
        self.norm = nn.RMSNorm(width)
        self.gate, self.up, self.down = (nn.Linear(a, b, bias=False) for a, b in
                                         ((width, 3072), (width, 3072), (3072, width)))  # fmt: skip
        self.head = nn.Linear(width, 21 * 16)

    def attend(
        self, part: Any, x: torch.Tensor, mask: torch.Tensor, rope: tuple[torch.Tensor, torch.Tensor] | None
    ) -> Any:
        q, k, v = part["qkv"](part["norm"](x)).unflatten(-1, (3, self.heads, self.size)).unbind(-3)
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        if rope is not None:
            cosine, sine = rope
            q, k = (
                y * cosine + torch.cat((-y[..., self.size // 2 :], y[..., : self.size // 2]), -1) * sine for y in (q, k)
            )
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)
        return x + part["out"](y.transpose(1, 2).flatten(2))

    def forward(self, patches: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
        x = self.embed(patches)
        steps = torch.arange(x.shape[1], device=x.device)
        angles = torch.outer(steps.to(x.dtype), 10_000 ** (-torch.arange(0, self.size, 2) / self.size).to(x.dtype))
        angles = torch.cat((angles, angles), -1)
        full = torch.zeros(1, 1, x.shape[1], x.shape[1], dtype=x.dtype)
        x = self.attend(self.parts[0], x, full, (angles.cos(), angles.sin()))
        same = groups[:, None] == groups[None, :]
        mask = torch.zeros(same.shape, dtype=x.dtype).masked_fill(~same, torch.finfo(x.dtype).min)[None, None]
        x = self.attend(self.parts[1], x.transpose(0, 1), mask, None).transpose(0, 1)
        y = self.norm(x)
        return torch.as_tensor(self.head(x + self.down(functional.silu(self.gate(y)) * self.up(y))))


@entry("own_chronos2", forms=NEW, batched=False)
def _chronos2() -> Built:
    return _GroupMixer().eval(), (torch.randn(8, 64, 48), torch.tensor([0, 0, 0, 1, 1, 2, 2, 3]))


class _GraphAttention(nn.Module):
    """GATv2 and a sum over edges, as PyTorch Geometric writes them: gather, softmax by target node, scatter."""

    def __init__(self, width: int = 256, heads: int = 8) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(128, width), nn.Linear(128, width)
        self.score = nn.Parameter(torch.randn(1, heads, width // heads))
        self.heads, self.out = heads, nn.Linear(width, 40)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges[0], edges[1]
        left, right = (part(x).view(x.shape[0], self.heads, -1) for part in (self.left, self.right))
        scores = (functional.leaky_relu(left[source] + right[target], 0.2) * self.score).sum(-1)
        where = target[:, None].expand_as(scores)
        top = torch.full((x.shape[0], self.heads), -1e9, dtype=x.dtype).scatter_reduce(0, where, scores, "amax")
        weights = torch.exp(scores - top[target])
        total = torch.zeros_like(top).scatter_add(0, where, weights)
        weights = weights / (total[target] + 1e-9)
        sent = left[source] * weights[..., None]
        summed = torch.zeros_like(left).index_add(0, target, sent)
        return torch.as_tensor(self.out(functional.elu(summed.flatten(1))))


@entry("own_gat", forms=("ts", "dynamo"), batched=False)
def _gat() -> Built:
    return _GraphAttention().eval(), (torch.randn(2000, 128), torch.randint(0, 2000, (2, 16000)))


# diffusion of images and video

_time = zoo._time
diffusion("sd35_large", "SD3Transformer2DModel",
          {"sample_size": 64, "num_layers": 2, "num_attention_heads": 38, "attention_head_dim": 64,
           "joint_attention_dim": 4096, "caption_projection_dim": 2432, "pooled_projection_dim": 2048,
           "dual_attention_layers": (0,), "qk_norm": "rms_norm"},
          lambda: (torch.randn(1, 16, 32, 32), torch.randn(1, 64, 4096), torch.randn(1, 2048), _time()),
          lambda m, x, c, p, t: m(x, c, p, t), forms=("ts", "dynamo", "op23-bf16"))  # fmt: skip
diffusion("flux2", "Flux2Transformer2DModel",
          {"num_layers": 1, "num_single_layers": 1, "num_attention_heads": 16, "joint_attention_dim": 4096},
          lambda: (torch.randn(1, 256, 128), torch.randn(1, 64, 4096), torch.tensor([0.5]), torch.zeros(256, 4),
                   torch.zeros(64, 4), torch.tensor([4.0])),
          lambda m, x, c, t, ii, ti, g: m(x, c, t, ii, ti, g), batched=False, forms=NEW)  # fmt: skip
diffusion("z_image", "ZImageTransformer2DModel",
          {"n_layers": 2, "n_refiner_layers": 1, "dim": 1536, "n_heads": 12, "n_kv_heads": 12},
          lambda: (torch.randn(16, 1, 32, 32), torch.tensor([0.5]), torch.randn(64, 2560)),
          lambda m, x, t, c: m([x], t, [c])[0], batched=False, forms=NEW)  # fmt: skip
diffusion("qwen_image", "QwenImageTransformer2DModel",
          {"num_layers": 1, "num_attention_heads": 12},
          lambda: (torch.randn(1, 256, 64), torch.randn(1, 64, 3584), torch.tensor([0.5])),
          lambda m, x, c, t: m(x, c, torch.ones(1, 64, dtype=torch.int64), t, [(1, 16, 16)]), batched=False,
          forms=NEW)  # fmt: skip
diffusion("wan22", "WanTransformer3DModel",
          {"num_layers": 2, "num_attention_heads": 12, "ffn_dim": 4096, "in_channels": 16, "out_channels": 16},
          lambda: (torch.randn(1, 16, 3, 16, 16), _time().long(), torch.randn(1, 64, 4096)),
          lambda m, x, t, c: m(x, t, c), batched=False, forms=NEW)  # fmt: skip
diffusion("hunyuan_video15", "HunyuanVideo15Transformer3DModel",
          {"num_layers": 1, "num_refiner_layers": 1, "num_attention_heads": 8},
          lambda: (torch.randn(1, 65, 3, 16, 16), _time().long(), torch.randn(1, 64, 3584),
                   torch.ones(1, 64, dtype=torch.int64)),
          lambda m, x, t, c, mask: m(x, t, c, mask, encoder_hidden_states_2=torch.randn(1, 16, 1472),
                                     encoder_attention_mask_2=torch.ones(1, 16, dtype=torch.int64),
                                     image_embeds=torch.zeros(1, 8, 1152)), batched=False, forms=NEW)  # fmt: skip
diffusion("sana_video", "SanaVideoTransformer3DModel", {"num_layers": 1},
          lambda: (torch.randn(1, 16, 3, 16, 16), torch.randn(1, 64, 2304), _time()),
          lambda m, x, c, t: m(x, c, t), batched=False, forms=NEW)  # fmt: skip
diffusion("hidream", "HiDreamImageTransformer2DModel",
          {"num_layers": 1, "num_single_layers": 1, "num_attention_heads": 8, "attention_head_dim": 128,
           "caption_channels": [4096, 4096], "text_emb_dim": 2048, "num_routed_experts": 4,
           "num_activated_experts": 2, "axes_dims_rope": [64, 32, 32], "max_resolution": [64, 64],
           "in_channels": 16, "out_channels": 16, "llama_layers": [0, 0], "patch_size": 2},
          lambda: (torch.randn(1, 16, 64, 64), _time(), torch.randn(1, 32, 4096), torch.randn(1, 1, 32, 4096),
                   torch.randn(1, 2048)),
          lambda m, x, t, c, n, p: m(x, t, encoder_hidden_states_t5=c, encoder_hidden_states_llama3=n,
                                     pooled_embeds=p), batched=False, forms=NEW)  # fmt: skip
diffusion("cosmos", "CosmosTransformer3DModel",
          {"num_layers": 1, "num_attention_heads": 8, "in_channels": 16, "out_channels": 16,
           "concat_padding_mask": False},
          lambda: (torch.randn(1, 16, 3, 16, 16), _time(), torch.randn(1, 64, 1024)),
          lambda m, x, t, c: m(x, t, c, fps=24), batched=False, forms=NEW)  # fmt: skip
diffusion("dc_ae", "AutoencoderDC",
          {"encoder_block_out_channels": (128, 256, 512), "decoder_block_out_channels": (128, 256, 512),
           "encoder_layers_per_block": (1, 1, 1), "decoder_layers_per_block": (1, 1, 1),
           "encoder_block_types": ("ResBlock", "ResBlock", "EfficientViTBlock"),
           "decoder_block_types": ("ResBlock", "ResBlock", "EfficientViTBlock"),
           "encoder_qkv_multiscales": ((), (), (5,)), "decoder_qkv_multiscales": ((), (), (5,)),
           "decoder_norm_types": "rms_norm", "decoder_act_fns": "silu", "latent_channels": 32},
          lambda: (torch.randn(1, 32, 16, 16),), lambda m, z: m.decode(z), batched=False, forms=NEW)  # fmt: skip
diffusion("qwen_vae", "AutoencoderKLQwenImage", {"base_dim": 32, "num_res_blocks": 1},
          lambda: (torch.randn(1, 16, 1, 16, 16),), lambda m, z: m.decode(z), batched=False, forms=NEW)  # fmt: skip

_export = zoo.export


def export(folder: Path, name: str, form: str) -> dict[str, Any]:
    """Exports an entry in one form; what is to be said of it."""
    if not form.startswith("op23"):
        return dict(_export(folder, name, form))
    torch.manual_seed(0)
    module, inputs = zoo.ZOO[name].build()
    kind = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(form.partition("-")[2])
    module.eval()
    if kind is not None:
        module = module.to(kind)
        inputs = tuple(item.to(kind) if item.is_floating_point() else item for item in inputs)
    label = f"{name}__{form}"
    path = folder / f"{label}.onnx"
    names = [f"input{index}" for index in range(len(inputs))]
    start = time.perf_counter()
    with torch.no_grad():
        program = torch.onnx.export(
            module, inputs, input_names=names, opset_version=23, dynamo=True, verbose=False, optimize=True
        )
        assert program is not None
        program.save(str(path), external_data=True)
    said: dict[str, Any] = {
        "model": name,
        "form": form,
        "inputs": {key: list(item.shape) for key, item in zip(names, inputs, strict=True)},
        "export_s": round(time.perf_counter() - start, 1),
    }
    if kind is not torch.float16:
        said["flops"] = zoo.counted_flops(module, inputs)
    zoo.strip(path)
    (folder / f"{label}.json").write_text(json.dumps(said))
    return said


zoo.export = export

if __name__ == "__main__":
    sys.exit(zoo.main())
