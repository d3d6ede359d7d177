"""Models that are deployed at present, with random weights, exported as ``zoo_vision_models.py`` exports its own.

    python -P zoo_deployed_models.py FOLDER [NAMES...] [--forms FORM,...] [--list]

Towers of vision-language models, documents and tables, detection with its post-processing, speech and codecs, time
series, point clouds, diffusion of images and video: widths as published, few layers. What each file is beside, and
what is needed, stands in ``zoo_export.py``; open_clip_torch is needed, too. Entries that begin with ``ultra_``
are written by Ultralytics' own ``export()``: with non-maximum suppression, in float16, with open sizes.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

sys.path.append(str(Path(__file__).parent))
import zoo_export as zoo

sys.path.pop()  # this folder has modules that are called like those that libraries look for
torch.backends.mha.set_fastpath_enabled(False)  # its operator has no form in ONNX

Built, Outputs, entry, hf, diffusion, images = (
    zoo.Built,
    zoo.Outputs,
    zoo.entry,
    zoo.hf,
    zoo.diffusion,
    zoo.images,
)


def ids(length: int, batch: int = 1, most: int = 1000) -> torch.Tensor:
    return torch.randint(3, most, (batch, length))


def sub(config: str, **sizes: Any) -> Any:
    """A configuration inside another one."""
    import transformers

    return getattr(transformers, config)(**sizes)


# towers of vision-language models, and encoders of images

hf("dinov3_vits", "DINOv3ViTConfig", "DINOv3ViTModel", {"num_hidden_layers": 3}, lambda: (images(224),))
hf("dinov3_convnext", "DINOv3ConvNextConfig", "DINOv3ConvNextModel", {"depths": [1, 1, 3, 1]}, lambda: (images(224),))
hf("aimv2", "Aimv2VisionConfig", "Aimv2VisionModel", {"num_hidden_layers": 3}, lambda: (images(224),))
hf(
    "smolvlm_vision",
    "SmolVLMVisionConfig",
    "SmolVLMVisionTransformer",
    {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 3,
     "image_size": 512, "patch_size": 16},
    lambda: (images(512),),
)  # fmt: skip
hf(
    "internvl_vision",
    "InternVLVisionConfig",
    "InternVLVisionModel",
    {"num_hidden_layers": 2, "image_size": [448, 448]},
    lambda: (images(448, 1),),
)


def _grid() -> torch.Tensor:
    return torch.tensor([[1, 16, 16]])


for _name, _config, _class in (
    ("qwen25_vl_vision", "Qwen2_5_VLVisionConfig", "Qwen2_5_VisionTransformerPretrainedModel"),
    ("qwen3_vl_vision", "Qwen3VLVisionConfig", "Qwen3VLVisionModel"),
):

    def _tower(config_name: str = _config, class_name: str = _class) -> Built:
        import transformers
        from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl
        from transformers.models.qwen3_vl import modeling_qwen3_vl

        wide = {"hidden_size": 1280, "num_heads": 16, "fullatt_block_indexes": [1], "out_hidden_size": 2048}
        deep = {"deepstack_visual_indexes": [0, 1]}
        depth = "depth"
        names = {depth: 2, **(wide if "2_5" in config_name else deep)}
        config = getattr(transformers, config_name)(**names)
        module = modeling_qwen2_5_vl if "2_5" in config_name else modeling_qwen3_vl
        model = getattr(module, class_name)._from_config(config, attn_implementation="sdpa").eval()
        grid = _grid()
        width = config.in_channels * config.temporal_patch_size * config.patch_size**2
        return Outputs(model, lambda m, x: m(x, grid_thw=grid)), (torch.randn(256, width),)

    entry(f"hf_{_name}", batched=False)(_tower)

hf(
    "pixtral_vision",
    "PixtralVisionConfig",
    "PixtralVisionModel",
    {"num_hidden_layers": 2, "image_size": 256},
    lambda: (images(256, 1),),
    batched=False,
)
hf(
    "florence2",
    "Florence2Config",
    "Florence2ForConditionalGeneration",
    {"text_config": {"model_type": "bart", "encoder_layers": 2, "decoder_layers": 2, "d_model": 768,
                     "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072, "encoder_attention_heads": 12,
                     "decoder_attention_heads": 12, "vocab_size": 8192},
     "vision_config": {"depths": [1, 1, 2, 1], "projection_dim": 768}, "image_token_id": 8000},
    lambda: (images(224, 1), torch.cat((torch.full((1, 50), 8000), ids(8)), 1), ids(4)),
    lambda m, x, i, d: m(pixel_values=x, input_ids=i, decoder_input_ids=d, use_cache=False).logits,
    batched=False,
)  # fmt: skip
hf("blip2_vision", "Blip2VisionConfig", "Blip2VisionModel", {"num_hidden_layers": 2}, lambda: (images(224),))
hf(
    "vjepa2",
    "VJEPA2Config",
    "VJEPA2Model",
    {"num_hidden_layers": 2, "pred_num_hidden_layers": 1, "frames_per_clip": 8},
    lambda: (torch.randn(1, 8, 3, 256, 256),),
    lambda m, x: m(x, skip_predictor=True).last_hidden_state,
)
hf("gemma3_vision", "SiglipVisionConfig", "SiglipVisionModel",
   {"hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16, "num_hidden_layers": 2,
    "image_size": 448, "patch_size": 14}, lambda: (images(448, 1),))  # fmt: skip


for _name in ("ViT-B-32", "coca_ViT-B-32", "convnext_base", "MobileCLIP-S1", "ViT-B-16-SigLIP"):

    def _open_clip(name: str = _name) -> Built:
        import open_clip

        config = open_clip.get_model_config(name)
        for part in ("vision_cfg", "text_cfg", "multimodal_cfg"):
            if "layers" in config.get(part, {}) and isinstance(config[part]["layers"], int):
                config[part]["layers"] = 2
        config["text_cfg"].pop("hf_tokenizer_name", None)
        kind = open_clip.CoCa if "multimodal_cfg" in config else open_clip.CustomTextCLIP
        if not config.pop("custom_text", "multimodal_cfg" in config):
            kind = open_clip.CLIP
        model = kind(**config).eval()
        size = config["vision_cfg"]["image_size"]
        length = config["text_cfg"].get("context_length", 77)

        def call(m: Any, x: torch.Tensor, text: torch.Tensor) -> Any:
            return m.encode_image(x), m.encode_text(text)

        return Outputs(model, call), (images(size if isinstance(size, int) else size[0]), ids(length, 2))

    entry(f"oc_{_name.lower().replace('-', '_')}")(_open_clip)


# documents, tables, text in images

hf(
    "layoutlmv3",
    "LayoutLMv3Config",
    "LayoutLMv3ForTokenClassification",
    {"num_hidden_layers": 2},
    lambda: (ids(128), torch.randint(0, 500, (1, 128, 1)).expand(-1, -1, 4).contiguous(), images(224, 1)),
    lambda m, i, b, x: m(input_ids=i, bbox=b, pixel_values=x).logits,
)
hf(
    "table_transformer",
    "TableTransformerConfig",
    "TableTransformerForObjectDetection",
    {"encoder_layers": 2, "decoder_layers": 2, "use_timm_backbone": False, "use_pretrained_backbone": False,
     "backbone": None, "backbone_kwargs": None, "backbone_config": {"model_type": "resnet", "out_features": ["stage4"],
                                                                    "depths": [2, 2, 2, 2], "layer_type": "basic",
                                                                    "hidden_sizes": [64, 128, 256, 512]}},
    lambda: (images(320, 1),),
)  # fmt: skip
hf(
    "trocr_decoder",
    "TrOCRConfig",
    "TrOCRForCausalLM",
    {"decoder_layers": 2, "cross_attention_hidden_size": 768, "use_cache": False},
    lambda: (ids(16, 2), torch.randn(2, 577, 768)),
    lambda m, i, e: m(input_ids=i, encoder_hidden_states=e).logits,
)
hf(
    "donut_decoder",
    "MBartConfig",
    "MBartForCausalLM",
    {"decoder_layers": 2, "d_model": 1024, "vocab_size": 8192, "is_decoder": True, "add_cross_attention": True,
     "use_cache": False, "scale_embedding": True, "add_final_layer_norm": True},
    lambda: (ids(16, 2), torch.randn(2, 1200, 1024)),
    lambda m, i, e: m(input_ids=i, encoder_hidden_states=e).logits,
)  # fmt: skip
hf("ppocr_det", "PPOCRV5MobileDetConfig", "PPOCRV5MobileDetForObjectDetection", {}, lambda: (images(320, 1),))
hf("pp_doclayout_v3", "PPDocLayoutV3Config", "PPDocLayoutV3ForObjectDetection", {}, lambda: (images(320, 1),))
hf("slanext", "SLANeXtConfig", "SLANeXtForTableRecognition", {}, lambda: (images(512, 1),), batched=False)


# detection, segmentation, depth, matching

hf("eomt", "EomtConfig", "EomtForUniversalSegmentation", {"num_hidden_layers": 4, "num_blocks": 2,
   "image_size": 256, "hidden_size": 384, "num_attention_heads": 6}, lambda: (images(256, 1),),
   lambda m, x: m(x).to_tuple()[:2])  # fmt: skip
hf("sam3_vision", "Sam3VisionConfig", "Sam3VisionModel",
   {"backbone_config": {"model_type": "sam3_vit_model", "num_hidden_layers": 2, "global_attn_indexes": [1],
                        "image_size": 336}}, lambda: (images(336, 1),))  # fmt: skip
hf("zoedepth", "ZoeDepthConfig", "ZoeDepthForDepthEstimation",
   {"backbone_config": {"model_type": "beit", "num_hidden_layers": 4, "image_size": 256, "out_indices": [1, 2, 3, 4],
                        "reshape_hidden_states": False, "use_relative_position_bias": True}},
   lambda: (images(256, 1),))  # fmt: skip
hf("efficient_loftr", "EfficientLoFTRConfig", "EfficientLoFTRModel", {},
   lambda: (torch.rand(1, 2, 3, 192, 256),), batched=False)  # fmt: skip


# speech, codecs, music

hf("parakeet_ctc", "ParakeetCTCConfig", "ParakeetForCTC", {"encoder_config": {"num_hidden_layers": 2}},
   lambda: (torch.randn(1, 400, 80), torch.ones(1, 400, dtype=torch.int64)),
   lambda m, x, mask: m(x, attention_mask=mask).logits)  # fmt: skip
hf("moonshine_decoder", "MoonshineConfig", "MoonshineModel",
   {"encoder_num_hidden_layers": 1, "decoder_num_hidden_layers": 2},
   lambda: (ids(8), torch.randn(1, 40, 288)),
   lambda m, i, e: m.decoder(input_ids=i, encoder_hidden_states=e, use_cache=False).last_hidden_state)  # fmt: skip
hf("musicgen_decoder", "MusicgenDecoderConfig", "MusicgenForCausalLM", {"num_hidden_layers": 2, "use_cache": False},
   lambda: (torch.randint(0, 2048, (4, 24)), torch.randn(1, 12, 1024)),
   lambda m, i, e: m(input_ids=i, encoder_hidden_states=e).logits, batched=False)  # fmt: skip
hf("seamless_speech", "SeamlessM4Tv2Config", "SeamlessM4Tv2Model",
   {"speech_encoder_layers": 2, "encoder_layers": 1, "decoder_layers": 1, "t2u_encoder_layers": 1,
    "t2u_decoder_layers": 1, "vocab_size": 8192},
   lambda: (torch.randn(1, 200, 160), torch.ones(1, 200, dtype=torch.int64)),
   lambda m, x, mask: m.speech_encoder(x, attention_mask=mask).last_hidden_state)  # fmt: skip
hf("voxtral_encoder", "VoxtralEncoderConfig", "VoxtralEncoder", {"num_hidden_layers": 2},
   lambda: (torch.randn(1, 128, 3000),))  # fmt: skip
hf("clap_audio", "ClapAudioConfig", "ClapAudioModel", {"depths": [1, 1, 2, 1]},
   lambda: (torch.randn(1, 1, 1001, 64), torch.tensor([[False]])),
   lambda m, x, longer: m(input_features=x, is_longer=longer).last_hidden_state, batched=False)  # fmt: skip
hf("speecht5_decoder", "SpeechT5Config", "SpeechT5ForTextToSpeech", {"encoder_layers": 2, "decoder_layers": 2},
   lambda: (ids(24, most=80), torch.randn(1, 32, 80), torch.randn(1, 512)),
   lambda m, i, y, s: m(input_ids=i, decoder_input_values=y, speaker_embeddings=s, use_cache=False).spectrogram,
   )  # fmt: skip
hf("dac_quantised", "DacConfig", "DacModel", {}, lambda: (torch.randn(1, 1, 8192),),
   lambda m, x: m(x).audio_values)  # fmt: skip
hf("mimi_decoder", "MimiConfig", "MimiModel", {"num_hidden_layers": 2}, lambda: (torch.randint(0, 2048, (1, 8, 25)),),
   lambda m, codes: m.decode(codes).audio_values)  # fmt: skip
hf("univnet", "UnivNetConfig", "UnivNetModel", {}, lambda: (torch.randn(1, 50, 100), torch.randn(1, 50, 64)),
   lambda m, x, noise: m(x, noise).waveforms, batched=False)  # fmt: skip


class _Vocos(nn.Module):
    """Vocos (Siuzdak 2023): ConvNeXt blocks over frames, magnitudes and phases, an inverse Fourier transform written
    as a product with cosines and sines, and overlapping windows added by a transposed convolution."""

    class Block(nn.Module):
        def __init__(self, width: int, inner: int) -> None:
            super().__init__()
            self.depthwise = nn.Conv1d(width, width, 7, padding=3, groups=width)
            self.norm = nn.LayerNorm(width)
            self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
            self.scale = nn.Parameter(torch.ones(width))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.norm(self.depthwise(x).transpose(1, 2))
            return x + (self.scale * self.down(functional.gelu(self.up(y)))).transpose(1, 2)

    def __init__(self, mels: int = 100, width: int = 512, size: int = 1024, hop: int = 256, blocks: int = 4) -> None:
        super().__init__()
        self.first = nn.Conv1d(mels, width, 7, padding=3)
        self.norm, self.last_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.blocks = nn.ModuleList(self.Block(width, 3 * width) for _ in range(blocks))
        self.head = nn.Linear(width, size + 2)
        self.inverse = nn.ConvTranspose1d(size + 2, 1, size, stride=hop, padding=(size - hop) // 2, bias=False)

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.first(mel).transpose(1, 2)).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        magnitude, phase = self.head(self.last_norm(x.transpose(1, 2))).transpose(1, 2).chunk(2, 1)
        magnitude = magnitude.exp().clamp(max=1e2)
        return self.inverse(torch.cat((magnitude * phase.cos(), magnitude * phase.sin()), 1))


@entry("own_vocos")
def _vocos() -> Built:
    return _Vocos().eval(), (torch.randn(2, 100, 94),)


class _StreamingAsr(nn.Module):
    """A transducer's step: an LSTM over the last token, joined with one frame of the encoder."""

    def __init__(self, vocabulary: int = 1025, width: int = 640, encoder: int = 512) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True)
        self.frame, self.token = nn.Linear(encoder, width), nn.Linear(width, width)
        self.out = nn.Linear(width, vocabulary)

    def forward(
        self, tokens: torch.Tensor, frames: torch.Tensor, h: torch.Tensor, c: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        y, (h, c) = self.lstm(self.embed(tokens), (h, c))
        joint = torch.relu(self.frame(frames)[:, :, None] + self.token(y)[:, None])
        return self.out(joint), h, c


@entry("own_rnnt_step", batched=False)
def _rnnt() -> Built:
    state = torch.zeros(2, 4, 640)
    return _StreamingAsr().eval(), (ids(1, 4), torch.randn(4, 1, 512), state, state.clone())


# time series

hf("timesfm", "TimesFmConfig", "TimesFmModel", {"num_hidden_layers": 2},
   lambda: (torch.randn(2, 512), torch.zeros(2, 512, dtype=torch.int64), torch.zeros(2, 1, dtype=torch.int64)),
   lambda m, x, pad, f: m(x, pad, f).last_hidden_state)  # fmt: skip
hf("chronos_bolt_t5", "T5Config", "T5EncoderModel",
   {"num_layers": 2, "d_model": 512, "d_ff": 2048, "num_heads": 8, "vocab_size": 2},
   lambda: (torch.randn(4, 33, 512), torch.ones(4, 33, dtype=torch.int64)),
   lambda m, x, mask: m(inputs_embeds=x, attention_mask=mask).last_hidden_state)  # fmt: skip
hf("patchtsmixer", "PatchTSMixerConfig", "PatchTSMixerForPrediction",
   {"context_length": 512, "num_input_channels": 7, "prediction_length": 96, "d_model": 48},
   lambda: (torch.randn(8, 512, 7),), lambda m, x: m(past_values=x).prediction_outputs)  # fmt: skip


# point clouds


class _PointPillars(nn.Module):
    """PointPillars (Lang et al. 2019): points of a pillar by one layer and a maximum, scattered onto a plane."""

    def __init__(self, size: int = 248, width: int = 64) -> None:
        super().__init__()
        self.size, self.width = size, width
        self.point = nn.Linear(9, width, bias=False)
        self.norm = nn.BatchNorm1d(width)
        self.down = nn.ModuleList(
            nn.Sequential(
                *(
                    layer
                    for i in range(4)
                    for layer in (
                        nn.Conv2d(a if i == 0 else b, b, 3, stride=2 if i == 0 else 1, padding=1, bias=False),
                        nn.BatchNorm2d(b),
                        nn.ReLU(),
                    )
                )
            )
            for a, b in ((width, 64), (64, 128), (128, 256))
        )
        self.up = nn.ModuleList(
            nn.Sequential(nn.ConvTranspose2d(c, 128, k, stride=k, bias=False), nn.BatchNorm2d(128), nn.ReLU())
            for c, k in ((64, 1), (128, 2), (256, 4))
        )
        self.head = nn.Conv2d(384, 42, 1)

    def forward(self, points: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
        x = self.point(points)
        x = torch.relu(self.norm(x.transpose(1, 2)).transpose(1, 2)).amax(1)
        plane = torch.zeros(self.size * self.size, self.width, dtype=x.dtype)
        plane = plane.index_put((cells,), x)
        y = plane.t().reshape(1, self.width, self.size, self.size)
        kept = []
        for down, up in zip(self.down, self.up, strict=True):
            y = down(y)
            kept.append(up(y))
        return self.head(torch.cat(kept, 1))


@entry("own_pointpillars", batched=False)
def _pillars() -> Built:
    return _PointPillars().eval(), (torch.randn(6000, 32, 9), torch.randperm(248 * 248)[:6000])


class _SetAbstraction(nn.Module):
    """PointNet++ (Qi et al. 2017) with its samplers: furthest points by a loop of distances and argmax, balls by
    distances and a sort, shared layers, a maximum."""

    def __init__(self, centres: int = 32, near: int = 32) -> None:
        super().__init__()
        self.centres, self.near = centres, near
        self.layers = nn.Sequential(
            nn.Conv2d(6, 64, 1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 128, 1), nn.BatchNorm2d(128), nn.ReLU()
        )

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        b, n, _ = points.shape
        distance = torch.full((b, n), 1e10)
        last = torch.zeros(b, dtype=torch.int64)
        chosen = []
        for _ in range(self.centres):
            chosen.append(last)
            centre = points.gather(1, last[:, None, None].expand(-1, 1, 3))
            distance = torch.minimum(distance, ((points - centre) ** 2).sum(-1))
            last = distance.argmax(-1)
        index = torch.stack(chosen, 1)
        centres = points.gather(1, index[..., None].expand(-1, -1, 3))
        apart = torch.cdist(centres, points)
        near = apart.sort(-1)[1][..., : self.near]
        flat = near.reshape(b, -1, 1)
        rows = points.gather(1, flat.expand(-1, -1, 3)).reshape(b, self.centres, self.near, 3)
        pairs = torch.cat((rows - centres[:, :, None], rows), -1).permute(0, 3, 1, 2)
        return self.layers(pairs).amax(-1)


@entry("own_pointnet2", batched=False)
def _pointnet2() -> Built:
    return _SetAbstraction().eval(), (torch.randn(2, 1024, 3),)


# diffusion of images and video

_time = zoo.time_step
diffusion("sdxl_controlnet", "ControlNetModel",
          {"cross_attention_dim": 2048, "attention_head_dim": [5, 10, 20], "layers_per_block": 1,
           "block_out_channels": (320, 640, 1280), "transformer_layers_per_block": [1, 1, 1],
           "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
           "addition_embed_type": "text_time", "addition_time_embed_dim": 256,
           "projection_class_embeddings_input_dim": 2816, "use_linear_projection": True},
          lambda: (torch.randn(1, 4, 32, 32), _time(), torch.randn(1, 77, 2048), torch.randn(1, 3, 256, 256),
                   torch.randn(1, 1280), torch.randn(1, 6)),
          lambda m, x, t, c, h, e, i: m(x, t, c, h, added_cond_kwargs={"text_embeds": e, "time_ids": i}))  # fmt: skip
diffusion("ltx_video", "LTXVideoTransformer3DModel", {"num_layers": 2},
          lambda: (torch.randn(1, 192, 128), torch.randn(1, 64, 4096), _time(), torch.ones(1, 64)),
          lambda m, x, c, t, mask: m(x, c, t, mask, num_frames=3, height=8, width=8), batched=False,
          forms=("dynamo",))  # fmt: skip
diffusion("hunyuan_video", "HunyuanVideoTransformer3DModel",
          {"num_layers": 1, "num_single_layers": 1, "num_refiner_layers": 1, "num_attention_heads": 24,
           "attention_head_dim": 128, "text_embed_dim": 4096, "pooled_projection_dim": 768, "guidance_embeds": True},
          lambda: (torch.randn(1, 16, 3, 16, 16), _time().long(), torch.randn(1, 64, 4096),
                   torch.ones(1, 64, dtype=torch.int64), torch.randn(1, 768), torch.tensor([6000.0])),
          lambda m, x, t, c, mask, p, g: m(x, t, c, mask, p, guidance=g), batched=False, forms=("dynamo",))  # fmt: skip
diffusion("mochi", "MochiTransformer3DModel", {"num_layers": 2},
          lambda: (torch.randn(1, 12, 2, 16, 16), torch.randn(1, 32, 4096), _time(),
                   torch.ones(1, 32, dtype=torch.int64)),
          lambda m, x, c, t, mask: m(x, c, t, mask), batched=False)  # fmt: skip
diffusion("auraflow", "AuraFlowTransformer2DModel", {"num_mmdit_layers": 1, "num_single_dit_layers": 1,
          "num_attention_heads": 12},
          lambda: (torch.randn(1, 4, 32, 32), torch.randn(1, 64, 2048), torch.tensor([0.5])),
          lambda m, x, c, t: m(x, c, t), batched=False)  # fmt: skip
diffusion("lumina2", "Lumina2Transformer2DModel", {"num_layers": 2, "num_refiner_layers": 1, "cap_feat_dim": 2304},
          lambda: (torch.randn(1, 16, 32, 32), torch.tensor([0.5]), torch.randn(1, 64, 2304),
                   torch.ones(1, 64, dtype=torch.bool)),
          lambda m, x, t, c, mask: m(x, t, c, mask), batched=False, forms=("dynamo",))  # fmt: skip
diffusion("cogview4", "CogView4Transformer2DModel", {"num_layers": 2},
          lambda: (torch.randn(1, 16, 32, 32), torch.randn(1, 64, 4096), _time(), torch.tensor([[256.0, 256.0]]),
                   torch.tensor([[256.0, 256.0]]), torch.zeros(1, 2)),
          lambda m, x, c, t, a, b, d: m(x, c, t, a, b, d), batched=False)  # fmt: skip
diffusion("chroma", "ChromaTransformer2DModel", {"num_layers": 1, "num_single_layers": 1, "approximator_layers": 2},
          lambda: (torch.randn(1, 256, 64), torch.randn(1, 64, 4096), torch.tensor([0.5]), torch.zeros(256, 3),
                   torch.zeros(64, 3)),
          lambda m, x, c, t, ii, ti: m(x, c, t, img_ids=ii, txt_ids=ti), batched=False)  # fmt: skip
diffusion("svd", "UNetSpatioTemporalConditionModel",
          {"block_out_channels": (320, 640), "layers_per_block": 1, "num_attention_heads": (5, 10), "num_frames": 8,
           "down_block_types": ("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
           "up_block_types": ("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal")},
          lambda: (torch.randn(1, 8, 8, 16, 16), _time(), torch.randn(1, 1, 1024), torch.tensor([[6.0, 127.0, 0.02]])),
          lambda m, x, t, c, ids: m(x, t, c, ids), batched=False)  # fmt: skip
diffusion("ltx_vae", "AutoencoderKLLTXVideo",
          {"block_out_channels": (64, 128, 256, 256), "decoder_block_out_channels": (64, 128, 256, 256),
           "layers_per_block": (1, 1, 1, 1, 1), "decoder_layers_per_block": (1, 1, 1, 1, 1)},
          lambda: (torch.randn(1, 128, 2, 4, 4),), lambda m, z: m.decode(z), batched=False)  # fmt: skip
diffusion("oobleck", "AutoencoderOobleck", {}, lambda: (torch.randn(1, 64, 16),), lambda m, z: m.decode(z))


# Ultralytics' own export

ULTRALYTICS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "yolo11n_nms": ("yolo11n", 320, {"nms": True}),
    "yolo11n_seg_nms": ("yolo11n-seg", 320, {"nms": True}),
    "yolo11n_pose_nms": ("yolo11n-pose", 320, {"nms": True, "batch": 2}),
    "yolo11n_obb": ("yolo11n-obb", 320, {}),
    "yolo11n_obb_nms": ("yolo11n-obb", 320, {"nms": True}),
    "yolo12n_dynamic": ("yolo12n", 320, {"dynamic": True}),
    "yolov8n_half": ("yolov8n", 320, {"half": True}),
    "yolov8n_nms_dynamic": ("yolov8n", 320, {"nms": True, "dynamic": True}),
    "yolov8s_worldv2": ("yolov8s-worldv2", 320, {}),
    "yolov9c_seg": ("yolov9c-seg", 320, {}),
    "yolov10n": ("yolov10n", 320, {"dynamic": True}),
    "yolo26n": ("yolo26n", 320, {"dynamic": True}),
    "yolo26n_seg": ("yolo26n-seg", 320, {"dynamic": True}),
    "yolo26n_pose": ("yolo26n-pose", 320, {}),
    "yolo26n_obb": ("yolo26n-obb", 320, {}),
    "yolo11n_cls": ("yolo11n-cls", 224, {"dynamic": True}),
    "rtdetr_resnet50": ("rtdetr-resnet50", 320, {"dynamic": True}),
    "fastsam_s": ("yolov8s-seg", 320, {"dynamic": True}),
}
"""File -> its configuration, size of images, options of ``export()``."""


def ultralytics(folder: Path, name: str) -> dict[str, Any]:
    """Writes FOLDER/ultra_NAME__own.onnx by Ultralytics' ``export()``; what is to be said of it."""
    import ultralytics as library

    source, size, options = ULTRALYTICS[name]
    torch.manual_seed(0)
    model = (library.RTDETR if "rtdetr" in source else library.YOLO)(f"{source}.yaml")
    batch = options.get("batch", 2 if options.get("dynamic") else 1)
    image = torch.rand(batch, 3, size, size)
    path = folder / f"ultra_{name}__own.onnx"
    said: dict[str, Any] = {"model": f"ultra_{name}", "form": "own", "inputs": {"images": list(image.shape)}}
    said["flops"] = zoo.counted_flops(Outputs(model.model.eval().fuse()), (image,))
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        model.ckpt_path = model.model.pt_path = str(Path(scratch) / "model.pt")
        written = model.export(format="onnx", imgsz=size, simplify=False, **options)
        shutil.move(written, path)
    said["export_s"] = round(time.perf_counter() - start, 1)
    try:
        said["shapes"] = zoo.shapes_of(path, (image,), ("images",))
    except Exception as error:  # whatever ONNX Runtime raises is said
        said["shape_fault"] = f"{type(error).__name__}: {str(error)[:300]}"
    zoo.strip(path)
    path.with_suffix(".json").write_text(json.dumps(said))
    return said


def _own(name: str) -> Callable[[], Built]:
    def build() -> Built:
        raise NotImplementedError(f"{name} is written by ultralytics()")

    return build


for _name in ULTRALYTICS:
    entry(f"ultra_{_name}", forms=("own",))(_own(_name))

_export = zoo.export


def export(folder: Path, name: str, form: str) -> dict[str, Any]:
    """Exports an entry by what writes it."""
    if form == "own":
        return ultralytics(folder, name.removeprefix("ultra_"))
    return _export(folder, name, form)


zoo.export = export

if __name__ == "__main__":
    sys.exit(zoo.main(__doc__))
