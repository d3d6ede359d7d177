"""Builds models of vision, audio, diffusion and detection with random weights, and exports them by PyTorch's exporters.

    python -P zoo_vision_models.py FOLDER [NAMES...] [--forms FORM,...] [--list]
    python -P zoo_vision_models.py FOLDER [NAMES...] --quantised
    LD_PRELOAD=... STANDIN_LOG=FILE python -P zoo_vision_models.py FOLDER [NAMES...] --launches

It imports PyTorch, the libraries that the models are from (timm, torchvision, torchaudio, transformers, diffusers,
ultralytics, segmentation-models-pytorch; for quantised ones onnxruntime and NVIDIA's modelopt) and nothing of this
project, so that any Python that has those runs it; -P, as this folder has modules that are called like others'. Nothing
is downloaded. Each model is exported as :data:`FORMS` says: by the exporter on TorchScript with an open batch ("ts"),
by the one on ``torch.export`` as it stands ("dynamo"), and some in float16 ("ts-fp16"). Beside each file
NAME__FORM.onnx a NAME__FORM.json says

- ``inputs``: their shapes, and for these
- ``shapes``: of every value that ONNX Runtime computes on the CPU without optimising;
- ``flops``: of one run of the module, as ``torch.utils.flop_counter`` counts (products and convolutions, 2 a
  multiply-add);
- ``fault``: what stopped the exporter, where something did.

Weights of more than 1 KiB are then taken out of the file, which keeps a reference to external data that isn't there.
With --launches each model is run on the stand-ins for CUDA's libraries that ``cuda_standin.py`` builds (the variables
are those that it prints), and NAME.launches gets a line for each kernel: operator, class, kernel.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("YOLO_OFFLINE", "true")

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional

Built = tuple[nn.Module, tuple[torch.Tensor, ...]]
FORMS = ("ts", "dynamo")
"""How models are exported."""

HALVED = (
    "timm_shvit_s1",
    "timm_efficientvit_m0",
    "timm_mobilenetv4_conv_small",
    "tv_shufflenet_v2_x1_0",
    "own_crnn",
    "own_pointnet",
    "timm_hiera_tiny_224",
    "timm_swinv2_tiny_window8_256",
    "smp_fpn",
    "hf_clip",
    "timm_levit_128",
    "yolo_yolo11n",
)
"""Models that are exported in float16, too, which a CPU takes long for."""

LIMIT_S = 120
"""What one export may take."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One model: ``build`` makes the module and its inputs; ``batched`` tells which inputs have a batch in front."""

    build: Callable[[], Built]
    forms: Sequence[str] = FORMS
    batched: bool = True
    opset: int = 17
    shapes: bool = True


ZOO: dict[str, Entry] = {}


def entry(
    name: str, *, forms: Sequence[str] = FORMS, batched: bool = True, opset: int = 17, shapes: bool = True
) -> Callable[[Callable[[], Built]], Callable[[], Built]]:
    """Registers what builds a model under a name."""

    def register(build: Callable[[], Built]) -> Callable[[], Built]:
        ZOO[name] = Entry(build=build, forms=forms, batched=batched, opset=opset, shapes=shapes)
        return build

    return register


def images(size: int = 224, batch: int = 2, channels: int = 3) -> torch.Tensor:
    return torch.randn(batch, channels, size, size)


class Outputs(nn.Module):
    """Calls a module and returns its tensors in a row, whatever it packs them in."""

    def __init__(self, module: nn.Module, call: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.module = module
        self.call = call

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        result = self.call(self.module, *inputs) if self.call else self.module(*inputs)
        return tuple(tensors_of(result))


def tensors_of(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in tensors_of(item)]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_of(item)]
    if hasattr(value, "to_tuple"):
        return tensors_of(value.to_tuple())
    return []


# timm

TIMM = {
    "vit_small_patch14_reg4_dinov2": 224,
    "vit_small_patch16_dinov3": 224,
    "vit_base_patch16_siglip_224": 224,
    "eva02_tiny_patch14_224": 224,
    "beit_base_patch16_224": 224,
    "hiera_tiny_224": 224,
    "mobilenetv4_conv_small": 224,
    "mobilenetv4_hybrid_medium": 224,
    "efficientvit_m0": 224,
    "efficientvit_b0": 224,
    "efficientformerv2_s0": 224,
    "fastvit_t8": 256,
    "convnextv2_atto": 224,
    "swinv2_tiny_window8_256": 256,
    "focalnet_tiny_srf": 224,
    "pvt_v2_b0": 224,
    "mixer_s32_224": 224,
    "ghostnet_100": 224,
    "regnetx_002": 224,
    "coatnet_nano_rw_224": 224,
    "maxxvitv2_nano_rw_256": 256,
    "xcit_nano_12_p16_224": 224,
    "levit_128": 224,
    "poolformer_s12": 224,
    "tiny_vit_5m_224": 224,
    "mambaout_femto": 224,
    "nest_tiny": 224,
    "twins_pcpvt_small": 224,
    "sequencer2d_s": 224,
    "gcvit_xxtiny": 224,
    "crossvit_tiny_240": 240,
    "convmixer_768_32": 224,
    "mvitv2_tiny": 224,
    "volo_d1_224": 224,
    "starnet_s1": 224,
    "repvgg_a0": 224,
    "gmlp_s16_224": 224,
    "davit_tiny": 224,
    "rdnet_tiny": 224,
    "bat_resnext26ts": 256,
    "lambda_resnet26t": 256,
    "halonet26t": 256,
    "botnet26t_256": 256,
    "eca_nfnet_l0": 224,
    "tresnet_m": 224,
    "vit_relpos_small_patch16_224": 224,
    "resnetv2_50x1_bit": 224,
    "deit3_small_patch16_224": 224,
    "cait_xxs24_224": 224,
    "samvit_base_patch16_224": 224,
    "swiftformer_xs": 224,
    "shvit_s1": 224,
    "naflexvit_base_patch16_gap": 224,
}


def register_timm() -> None:
    for name, size in TIMM.items():

        def build(name: str = name, size: int = size) -> Built:
            import timm

            try:
                model = timm.create_model(name, img_size=size)
            except TypeError:  # takes images of any size
                model = timm.create_model(name)
            return model.eval(), (images(size),)

        entry(f"timm_{name}", forms=("dynamo",) if "dinov3" in name else FORMS)(build)


register_timm()


# torchvision

TORCHVISION = {
    "shufflenet_v2_x1_0": ("models", 224),
    "deeplabv3_mobilenet_v3_large": ("models.segmentation", 256),
    "lraspp_mobilenet_v3_large": ("models.segmentation", 256),
    "fcn_resnet50": ("models.segmentation", 224),
    "densenet121": ("models", 224),
    "googlenet": ("models", 224),
}


def register_torchvision() -> None:
    for name, (module, size) in TORCHVISION.items():

        def build(name: str = name, module: str = module, size: int = size) -> Built:
            import importlib

            keys: dict[str, Any] = {"weights": None}
            if "segmentation" in module:
                keys["weights_backbone"] = None
            model = getattr(importlib.import_module(f"torchvision.{module}"), name)(**keys)
            return Outputs(model.eval()), (images(size),)

        entry(f"tv_{name}")(build)
    for name in (
        "fasterrcnn_mobilenet_v3_large_320_fpn",
        "maskrcnn_resnet50_fpn",
        "keypointrcnn_resnet50_fpn",
        "ssd300_vgg16",
        "ssdlite320_mobilenet_v3_large",
        "fcos_resnet50_fpn",
        "retinanet_resnet50_fpn_v2",
    ):

        def build_detector(name: str = name) -> Built:
            import torchvision

            model = getattr(torchvision.models.detection, name)(
                weights=None, weights_backbone=None, **({"min_size": 256, "max_size": 320} if "resnet" in name else {})
            )
            return Outputs(model.eval(), lambda module, image: module([image])), (torch.rand(3, 256, 320),)

        entry(f"tv_{name}", forms=("ts",), batched=False)(build_detector)
    for name, frames, size in (
        ("r3d_18", 8, 112),
        ("r2plus1d_18", 8, 112),
        ("s3d", 16, 224),
        ("mvit_v2_s", 16, 224),
        ("swin3d_t", 8, 112),
    ):

        def build_video(name: str = name, frames: int = frames, size: int = size) -> Built:
            import torchvision

            model = getattr(torchvision.models.video, name)(weights=None)
            return model.eval(), (torch.randn(1, 3, frames, size, size),)

        entry(f"tv_{name}", forms=("ts", "dynamo"), batched=name in ("r3d_18", "r2plus1d_18", "s3d"))(build_video)


register_torchvision()


@entry("tv_raft_small", forms=("ts", "dynamo"))
def _raft() -> Built:
    import torchvision

    model = torchvision.models.optical_flow.raft_small(weights=None).eval()
    return Outputs(model, lambda module, a, b: module(a, b, num_flow_updates=3)[-1]), (images(128, 1), images(128, 1))


# ultralytics

for _name, _size in {
    "yolov5n": 320,
    "yolov8n": 320,
    "yolov8n-seg": 320,
    "yolov8n-pose": 320,
    "yolov8n-obb": 320,
    "yolov9t": 320,
    "yolov10n": 320,
    "yolo11n": 320,
    "yolo12n": 320,
    "rtdetr-l": 320,
}.items():

    def _yolo(name: str = _name, size: int = _size) -> Built:
        from ultralytics import RTDETR, YOLO

        model = (RTDETR if "rtdetr" in name else YOLO)(f"{name}.yaml").model.eval().fuse()
        for module in model.modules():
            if hasattr(module, "export"):
                module.export, module.format, module.dynamic = True, "onnx", True
        return Outputs(model), (images(size),)

    entry(f"yolo_{_name}")(_yolo)


# segmentation-models-pytorch

for _arch in (
    "Unet",
    "UnetPlusPlus",
    "FPN",
    "PSPNet",
    "MAnet",
    "DeepLabV3Plus",
    "UPerNet",
    "Segformer",
    "Linknet",
    "PAN",
):

    def _smp(arch: str = _arch) -> Built:
        import segmentation_models_pytorch as smp

        return getattr(smp, arch)(
            "resnet34" if arch != "Unet" else "efficientnet-b0", encoder_weights=None, classes=4
        ).eval(), (images(256),)

    entry(f"smp_{_arch.lower()}", forms=("ts", "dynamo"))(_smp)


# transformers


def _transformer(
    config_name: str,
    class_name: str,
    changed: dict[str, Any],
    inputs: Callable[[], tuple[torch.Tensor, ...]],
    call: Callable[..., Any] | None = None,
) -> Callable[[], Built]:
    def build() -> Built:
        import transformers

        config = getattr(transformers, config_name)(**changed)
        model = getattr(transformers, class_name)._from_config(config).eval()
        return Outputs(model, call), inputs()

    return build


def _hf(
    name: str,
    config: str,
    model: str,
    changed: dict[str, Any],
    inputs: Callable[[], tuple[torch.Tensor, ...]],
    call: Callable[..., Any] | None = None,
    **more: Any,
) -> None:
    entry(f"hf_{name}", **more)(_transformer(config, model, changed, inputs, call))


_resnet = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "backbone_kwargs": None}
_hf(
    "detr",
    "DetrConfig",
    "DetrForObjectDetection",
    {"encoder_layers": 2, "decoder_layers": 2},
    lambda: (images(256, 1), torch.ones(1, 256, 256, dtype=torch.int64)),
    lambda m, x, mask: m(pixel_values=x, pixel_mask=mask),
)
_hf(
    "conditional_detr",
    "ConditionalDetrConfig",
    "ConditionalDetrForObjectDetection",
    {"encoder_layers": 2, "decoder_layers": 2},
    lambda: (images(256, 1),),
)
_hf(
    "deformable_detr",
    "DeformableDetrConfig",
    "DeformableDetrForObjectDetection",
    {"encoder_layers": 2, "decoder_layers": 2},
    lambda: (images(256, 1),),
)
_hf("rt_detr_v2", "RTDetrV2Config", "RTDetrV2ForObjectDetection", {}, lambda: (images(320, 1),))
_hf("d_fine", "DFineConfig", "DFineForObjectDetection", {}, lambda: (images(320, 1),))
_hf(
    "yolos",
    "YolosConfig",
    "YolosForObjectDetection",
    {
        "hidden_size": 192,
        "num_hidden_layers": 4,
        "num_attention_heads": 3,
        "intermediate_size": 768,
        "image_size": [256, 256],
    },
    lambda: (images(256, 1),),
)
_hf(
    "mask2former",
    "Mask2FormerConfig",
    "Mask2FormerForUniversalSegmentation",
    {"encoder_layers": 2, "decoder_layers": 3},
    lambda: (images(256, 1),),
    lambda m, x: m(x).to_tuple()[:2],
    batched=False,
)
_hf(
    "maskformer",
    "MaskFormerConfig",
    "MaskFormerForInstanceSegmentation",
    {},
    lambda: (images(256, 1),),
    lambda m, x: m(x).to_tuple()[:2],
    batched=False,
)
_hf(
    "sam_encoder",
    "SamVisionConfig",
    "SamVisionModel",
    {"num_hidden_layers": 4, "global_attn_indexes": [1, 3], "image_size": 512},
    lambda: (images(512, 1),),
)
_hf(
    "sam_decoder",
    "SamConfig",
    "SamModel",
    {"vision_config": {"num_hidden_layers": 1, "image_size": 512}},
    lambda: (torch.randn(1, 256, 64, 64), torch.rand(1, 1, 2, 2) * 512, torch.ones(1, 1, 2, dtype=torch.int64)),
    lambda m, e, p, labels: m(image_embeddings=e, input_points=p, input_labels=labels).to_tuple()[:2],
    batched=False,
)
_hf("sam2_encoder", "Sam2VisionConfig", "Sam2VisionModel", {}, lambda: (images(1024, 1),), shapes=False)
_hf(
    "clip",
    "CLIPConfig",
    "CLIPModel",
    {"vision_config": {"num_hidden_layers": 3}, "text_config": {"num_hidden_layers": 3}},
    lambda: (torch.randint(0, 1000, (2, 77)), images(224), torch.ones(2, 77, dtype=torch.int64)),
    lambda m, ids, x, mask: m(input_ids=ids, pixel_values=x, attention_mask=mask).to_tuple()[:4],
)
_hf(
    "siglip2",
    "Siglip2VisionConfig",
    "Siglip2VisionModel",
    {"num_hidden_layers": 3},
    lambda: (torch.randn(2, 256, 768), torch.ones(2, 256, dtype=torch.int64), torch.tensor([[16, 16], [16, 16]])),
    lambda m, x, mask, s: m(x, pixel_attention_mask=mask, spatial_shapes=s).to_tuple()[:2],
)
_hf(
    "swin2sr",
    "Swin2SRConfig",
    "Swin2SRForImageSuperResolution",
    {"depths": [2, 2], "num_heads": [6, 6], "embed_dim": 60},
    lambda: (images(64, 1),),
)
_hf(
    "dpt",
    "DPTConfig",
    "DPTForDepthEstimation",
    {"num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], "image_size": 256},
    lambda: (images(256, 1),),
)
_hf(
    "depth_anything",
    "DepthAnythingConfig",
    "DepthAnythingForDepthEstimation",
    {
        "backbone_config": {
            "model_type": "dinov2",
            "hidden_size": 384,
            "num_hidden_layers": 4,
            "num_attention_heads": 6,
            "out_features": ["stage1", "stage2", "stage3", "stage4"],
            "image_size": 252,
            "patch_size": 14,
            "reshape_hidden_states": False,
        },
        "reassemble_hidden_size": 384,
    },
    lambda: (images(252, 1),),
)
_hf("upernet", "UperNetConfig", "UperNetForSemanticSegmentation", {}, lambda: (images(256, 1),))
_hf(
    "vitpose",
    "VitPoseConfig",
    "VitPoseForPoseEstimation",
    {
        "backbone_config": {"model_type": "vitpose_backbone", "num_hidden_layers": 4, "out_indices": [4]},
        "use_simple_decoder": False,
    },
    lambda: (torch.randn(1, 3, 256, 192),),
)
_hf(
    "owlv2",
    "Owlv2VisionConfig",
    "Owlv2VisionModel",
    {"num_hidden_layers": 3, "image_size": 480},
    lambda: (images(480, 1),),
)
_hf(
    "grounding_dino",
    "GroundingDinoConfig",
    "GroundingDinoForObjectDetection",
    {"encoder_layers": 2, "decoder_layers": 2, "text_config": {"model_type": "bert", "num_hidden_layers": 2}},
    lambda: (images(256, 1), torch.randint(1000, 2000, (1, 8)), torch.ones(1, 8, dtype=torch.int64)),
    lambda m, x, ids, mask: m(pixel_values=x, input_ids=ids, attention_mask=mask).to_tuple()[:2],
    batched=False,
)
_hf(
    "superpoint",
    "SuperPointConfig",
    "SuperPointForKeypointDetection",
    {},
    lambda: (torch.rand(1, 3, 240, 320),),
    batched=False,
)
_hf("videomae", "VideoMAEConfig", "VideoMAEModel", {"num_hidden_layers": 3}, lambda: (torch.randn(1, 16, 3, 224, 224),))
_hf(
    "timesformer",
    "TimesformerConfig",
    "TimesformerModel",
    {"num_hidden_layers": 3, "image_size": 112},
    lambda: (torch.randn(1, 8, 3, 112, 112),),
)
_hf("cvt", "CvtConfig", "CvtForImageClassification", {"depth": [1, 1, 2]}, lambda: (images(224, 1),))
_hf("ast", "ASTConfig", "ASTForAudioClassification", {"num_hidden_layers": 3}, lambda: (torch.randn(1, 1024, 128),))
_hf(
    "wav2vec2_conformer",
    "Wav2Vec2ConformerConfig",
    "Wav2Vec2ConformerForCTC",
    {"num_hidden_layers": 2, "position_embeddings_type": "relative"},
    lambda: (torch.randn(1, 16000),),
)
_hf(
    "wav2vec2_bert",
    "Wav2Vec2BertConfig",
    "Wav2Vec2BertForCTC",
    {"num_hidden_layers": 2, "vocab_size": 40},
    lambda: (torch.randn(1, 200, 160),),
)
_hf("hubert", "HubertConfig", "HubertModel", {"num_hidden_layers": 2}, lambda: (torch.randn(1, 16000),))
_hf(
    "whisper_encoder",
    "WhisperConfig",
    "WhisperModel",
    {"encoder_layers": 2, "decoder_layers": 1},
    lambda: (torch.randn(1, 80, 3000),),
    lambda m, x: m.encoder(x),
)
_hf(
    "moonshine_encoder",
    "MoonshineConfig",
    "MoonshineModel",
    {"encoder_num_hidden_layers": 2, "decoder_num_hidden_layers": 1},
    lambda: (torch.randn(1, 16000),),
    lambda m, x: m.encoder(x),
)
_hf(
    "encodec",
    "EncodecConfig",
    "EncodecModel",
    {},
    lambda: (torch.randn(1, 1, 24000),),
    lambda m, x: m.decoder(m.encoder(x)),
    forms=("ts", "dynamo"),
)
_hf("dac", "DacConfig", "DacModel", {}, lambda: (torch.randn(1, 1, 16384),), lambda m, x: m.decoder(m.encoder(x)))
_hf(
    "mimi",
    "MimiConfig",
    "MimiModel",
    {"num_hidden_layers": 2},
    lambda: (torch.randn(1, 1, 24000),),
    lambda m, x: m.encoder(x),
)
_hf("hifigan", "SpeechT5HifiGanConfig", "SpeechT5HifiGan", {}, lambda: (torch.randn(1, 100, 80),))
_hf("vits", "VitsConfig", "VitsModel", {}, lambda: (torch.randint(0, 38, (1, 40)),), forms=("ts",), batched=False)
_hf(
    "fastspeech2",
    "FastSpeech2ConformerConfig",
    "FastSpeech2ConformerModel",
    {"encoder_layers": 2, "decoder_layers": 2},
    lambda: (torch.randint(0, 70, (1, 30)),),
    lambda m, ids: m(ids).to_tuple()[:1],
    forms=("ts",),
    batched=False,
)
_hf(
    "donut_swin",
    "DonutSwinConfig",
    "DonutSwinModel",
    {"image_size": 224, "depths": [1, 1, 2, 1]},
    lambda: (images(224, 1),),
)
_hf(
    "lightglue_superglue",
    "SuperGlueConfig",
    "SuperGlueForKeypointMatching",
    {},
    lambda: (torch.rand(1, 2, 3, 120, 160),),
    forms=("ts",),
    batched=False,
)
_hf(
    "pix2struct_vision",
    "Pix2StructVisionConfig",
    "Pix2StructVisionModel",
    {"num_hidden_layers": 3},
    lambda: (torch.cat((torch.randint(0, 40, (1, 512, 2)).float(), torch.randn(1, 512, 768)), -1),),
)
_hf(
    "florence_davit",
    "ClvpEncoderConfig",
    "ClvpEncoder",
    {"num_hidden_layers": 2, "use_rotary_embedding": True},
    lambda: (torch.randint(0, 200, (1, 64)),),
    forms=("ts",),
)
_hf(
    "patchtst",
    "PatchTSTConfig",
    "PatchTSTForPrediction",
    {"context_length": 512, "patch_length": 16, "patch_stride": 16, "num_input_channels": 7, "prediction_length": 96},
    lambda: (torch.randn(2, 512, 7),),
    lambda m, x: m(past_values=x).prediction_outputs,
    forms=("ts", "dynamo"),
)


# diffusers


def _diffusion(
    name: str,
    class_name: str,
    config: dict[str, Any],
    inputs: Callable[[], tuple[torch.Tensor, ...]],
    call: Callable[..., Any],
    **more: Any,
) -> None:
    def build() -> Built:
        import diffusers

        return Outputs(getattr(diffusers, class_name)(**config).eval(), call), inputs()

    entry(f"diff_{name}", **more)(build)


def _time() -> torch.Tensor:
    return torch.tensor([500.0])


_diffusion(
    "sd15_unet",
    "UNet2DConditionModel",
    {
        "cross_attention_dim": 768,
        "attention_head_dim": 8,
        "layers_per_block": 1,
        "block_out_channels": (320, 640, 640),
        "down_block_types": ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
    },
    lambda: (torch.randn(2, 4, 32, 32), _time(), torch.randn(2, 77, 768)),
    lambda m, x, t, c: m(x, t, c),
)
_diffusion(
    "sdxl_unet",
    "UNet2DConditionModel",
    {
        "cross_attention_dim": 2048,
        "attention_head_dim": [5, 10, 10],
        "block_out_channels": (320, 640, 640),
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        "transformer_layers_per_block": [1, 1, 1],
        "layers_per_block": 1,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": 2816,
        "use_linear_projection": True,
    },
    lambda: (torch.randn(2, 4, 32, 32), _time(), torch.randn(2, 77, 2048), torch.randn(2, 1280), torch.randn(2, 6)),
    lambda m, x, t, c, e, i: m(x, t, c, added_cond_kwargs={"text_embeds": e, "time_ids": i}),
)
_diffusion(
    "vae_decoder",
    "AutoencoderKL",
    {
        "block_out_channels": (128, 256, 512, 512),
        "down_block_types": ("DownEncoderBlock2D",) * 4,
        "up_block_types": ("UpDecoderBlock2D",) * 4,
        "layers_per_block": 2,
        "latent_channels": 4,
    },
    lambda: (torch.randn(1, 4, 16, 16),),
    lambda m, z: m.decode(z),
)
_diffusion(
    "vae_encoder",
    "AutoencoderKL",
    {
        "block_out_channels": (128, 256, 512, 512),
        "down_block_types": ("DownEncoderBlock2D",) * 4,
        "up_block_types": ("UpDecoderBlock2D",) * 4,
        "layers_per_block": 2,
        "latent_channels": 4,
    },
    lambda: (torch.randn(1, 3, 128, 128),),
    lambda m, x: m.encoder(x),
)
_diffusion(
    "sd3",
    "SD3Transformer2DModel",
    {
        "sample_size": 64,
        "num_layers": 2,
        "num_attention_heads": 24,
        "attention_head_dim": 64,
        "joint_attention_dim": 4096,
        "caption_projection_dim": 1536,
        "pooled_projection_dim": 2048,
        "pos_embed_max_size": 192,
        "in_channels": 16,
        "out_channels": 16,
    },
    lambda: (torch.randn(1, 16, 64, 64), torch.randn(1, 154, 4096), torch.randn(1, 2048), _time()),
    lambda m, x, c, p, t: m(hidden_states=x, encoder_hidden_states=c, pooled_projections=p, timestep=t),
)
_diffusion(
    "flux",
    "FluxTransformer2DModel",
    {
        "num_layers": 1,
        "num_single_layers": 1,
        "guidance_embeds": True,
        "num_attention_heads": 24,
        "attention_head_dim": 128,
        "joint_attention_dim": 4096,
    },
    lambda: (
        torch.randn(1, 256, 64),
        torch.randn(1, 128, 4096),
        torch.randn(1, 768),
        torch.tensor([0.5]),
        torch.zeros(256, 3),
        torch.zeros(128, 3),
        torch.tensor([3.5]),
    ),
    lambda m, x, c, p, t, ii, ti, g: m(
        hidden_states=x, encoder_hidden_states=c, pooled_projections=p, timestep=t, img_ids=ii, txt_ids=ti, guidance=g
    ),
    batched=False,
)
_diffusion(
    "pixart",
    "PixArtTransformer2DModel",
    {
        "num_layers": 2,
        "sample_size": 32,
        "caption_channels": 4096,
        "cross_attention_dim": 1152,
        "norm_type": "ada_norm_single",
        "num_embeds_ada_norm": 1000,
    },
    lambda: (torch.randn(1, 4, 32, 32), torch.randn(1, 120, 4096), _time()),
    lambda m, x, c, t: m(
        x, encoder_hidden_states=c, timestep=t, added_cond_kwargs={"resolution": None, "aspect_ratio": None}
    ),
)
_diffusion(
    "sana",
    "SanaTransformer2DModel",
    {"num_layers": 2, "caption_channels": 2304},
    lambda: (torch.randn(1, 32, 32, 32), torch.randn(1, 120, 2304), _time()),
    lambda m, x, c, t: m(x, encoder_hidden_states=c, timestep=t),
)
_diffusion(
    "wan",
    "WanTransformer3DModel",
    {"num_layers": 2, "num_attention_heads": 12, "attention_head_dim": 128, "ffn_dim": 8960},
    lambda: (torch.randn(1, 16, 3, 32, 32), _time(), torch.randn(1, 128, 4096)),
    lambda m, x, t, c: m(x, t, c),
    batched=False,
)
_diffusion(
    "wan_vae",
    "AutoencoderKLWan",
    {"base_dim": 32},
    lambda: (torch.randn(1, 16, 1, 16, 16),),
    lambda m, z: m.decode(z),
    forms=("ts", "dynamo"),
    batched=False,
)
_diffusion(
    "cogvideox",
    "CogVideoXTransformer3DModel",
    {"num_layers": 2, "sample_width": 16, "sample_height": 16, "sample_frames": 9},
    lambda: (torch.randn(1, 3, 16, 16, 16), torch.randn(1, 226, 4096), _time()),
    lambda m, x, c, t: m(x, c, t),
    batched=False,
)
_diffusion(
    "controlnet",
    "ControlNetModel",
    {"cross_attention_dim": 768, "attention_head_dim": 8, "layers_per_block": 1},
    lambda: (torch.randn(1, 4, 32, 32), _time(), torch.randn(1, 77, 768), torch.randn(1, 3, 256, 256)),
    lambda m, x, t, c, h: m(x, t, c, h),
)
_diffusion("taesd", "AutoencoderTiny", {}, lambda: (torch.randn(1, 4, 32, 32),), lambda m, z: m.decode(z))
_diffusion(
    "ddpm",
    "UNet2DModel",
    {
        "sample_size": 64,
        "block_out_channels": (128, 256, 256),
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
    },
    lambda: (torch.randn(1, 3, 64, 64), _time()),
    lambda m, x, t: m(x, t),
)
_diffusion(
    "stable_audio_dit",
    "StableAudioDiTModel",
    {"num_layers": 2},
    lambda: (torch.randn(1, 64, 256), _time(), torch.randn(1, 64, 768), torch.randn(1, 1, 1536)),
    lambda m, x, t, c, g: m(x, t, encoder_hidden_states=c, global_hidden_states=g),
    batched=False,
)
_diffusion(
    "dcae",
    "AutoencoderDC",
    {
        "encoder_block_out_channels": (64, 128, 256, 256),
        "decoder_block_out_channels": (64, 128, 256, 256),
        "encoder_layers_per_block": (1, 1, 2, 2),
        "decoder_layers_per_block": (1, 1, 2, 2),
        "encoder_block_types": ("ResBlock", "ResBlock", "ResBlock", "EfficientViTBlock"),
        "decoder_block_types": ("ResBlock", "ResBlock", "ResBlock", "EfficientViTBlock"),
        "encoder_qkv_multiscales": ((), (), (), (5,)),
        "decoder_qkv_multiscales": ((), (), (), (5,)),
        "latent_channels": 32,
        "attention_head_dim": 32,
    },
    lambda: (torch.randn(1, 32, 16, 16),),
    lambda m, z: m.decode(z),
)


# torchaudio


@entry("ta_conformer", forms=("ts", "dynamo"), batched=False)
def _conformer() -> Built:
    import torchaudio

    model = torchaudio.models.Conformer(80, 4, 512, 4, 31).eval()
    return Outputs(model, lambda m, x: m(x, torch.tensor([200, 180]))), (torch.randn(2, 200, 80),)


@entry("ta_hdemucs", forms=("ts", "dynamo"), batched=False)
def _demucs() -> Built:
    import torchaudio

    return torchaudio.models.hdemucs_low(["drums", "vocals"]).eval(), (torch.randn(1, 2, 44100),)


@entry("ta_conv_tasnet", forms=("ts", "dynamo"))
def _tasnet() -> Built:
    import torchaudio

    return torchaudio.models.conv_tasnet_base().eval(), (torch.randn(1, 1, 8000),)


@entry("ta_deepspeech")
def _deepspeech() -> Built:
    import torchaudio

    return torchaudio.models.DeepSpeech(80).eval(), (torch.randn(2, 1, 100, 80),)


@entry("ta_wavernn", forms=("ts", "dynamo"))
def _wavernn() -> Built:
    import torchaudio

    model = torchaudio.models.WaveRNN([5, 5, 8], 512, 200).eval()
    return model, (torch.randn(1, 1, 1200), torch.randn(1, 1, 128, 10))


@entry("ta_melspectrogram", forms=("ts", "dynamo"))
def _mel() -> Built:
    import torchaudio

    return torchaudio.transforms.MelSpectrogram().eval(), (torch.randn(2, 16000),)


# written out: architectures without a library of their own


class _Rrdb(nn.Module):
    """ESRGAN's generator (Wang et al. 2018): dense residual blocks, nearest upsampling."""

    class Dense(nn.Module):
        def __init__(self, width: int, growth: int) -> None:
            super().__init__()
            self.convs = nn.ModuleList(
                nn.Conv2d(width + i * growth, growth if i < 4 else width, 3, padding=1) for i in range(5)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept = [x]
            for conv in self.convs[:-1]:
                kept.append(functional.leaky_relu(conv(torch.cat(kept, 1)), 0.2))
            return x + 0.2 * self.convs[-1](torch.cat(kept, 1))

    def __init__(self, blocks: int = 2, width: int = 64, growth: int = 32) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.ModuleList(nn.Sequential(*(self.Dense(width, growth) for _ in range(3))) for _ in range(blocks))
        self.up = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.first(x)
        y = features
        for block in self.body:
            y = y + 0.2 * block(y)
        y = features + y
        for conv in self.up:
            y = functional.leaky_relu(conv(functional.interpolate(y, scale_factor=2, mode="nearest")), 0.2)
        return self.last(y)


@entry("own_esrgan")
def _esrgan() -> Built:
    return _Rrdb().eval(), (images(64, 1),)


class _PointNet(nn.Module):
    """PointNet++ without its samplers: shared MLPs, k nearest neighbours by distances and topk, maxima over them."""

    def __init__(self, neighbours: int = 16) -> None:
        super().__init__()
        self.neighbours = neighbours
        self.first = nn.Sequential(
            nn.Conv1d(3, 64, 1), nn.BatchNorm1d(64), nn.ReLU(), nn.Conv1d(64, 64, 1), nn.BatchNorm1d(64), nn.ReLU()
        )
        self.edge = nn.Sequential(nn.Conv2d(128, 128, 1), nn.BatchNorm2d(128), nn.LeakyReLU(0.2))
        self.head = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 40))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        x = self.first(points)
        inner = x.transpose(1, 2) @ x
        square = (x**2).sum(1)
        distances = square[:, :, None] - 2 * inner + square[:, None, :]
        index = distances.topk(self.neighbours, dim=-1, largest=False)[1]
        b, n, k = index.shape
        rows = x.transpose(1, 2).gather(1, index.reshape(b, n * k, 1).expand(-1, -1, 64)).reshape(b, n, k, 64)
        centre = x.transpose(1, 2)[:, :, None, :].expand(-1, -1, k, -1)
        edges = torch.cat((rows - centre, centre), -1).permute(0, 3, 1, 2)
        return self.head(self.edge(edges).amax(-1).amax(-1))


@entry("own_pointnet")
def _pointnet() -> Built:
    return _PointNet().eval(), (torch.randn(2, 3, 512),)


class _Graph(nn.Module):
    """Two layers of message passing with sums by scatter and a softmax over edges (GAT), mean over nodes."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.embed = nn.Linear(32, width)
        self.layers = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(2))
        self.score = nn.ModuleList(nn.Linear(2 * width, 1) for _ in range(2))
        self.head = nn.Linear(width, 8)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        x = self.embed(nodes)
        source, target = edges[0], edges[1]
        for layer, score in zip(self.layers, self.score, strict=True):
            pairs = torch.cat((x[source], x[target]), -1)
            weight = functional.leaky_relu(score(pairs)).squeeze(-1)
            top = torch.full((x.shape[0],), -1e9, dtype=x.dtype).scatter_reduce(
                0, target, weight, "amax", include_self=True
            )
            weight = (weight - top[target]).exp()
            total = torch.zeros(x.shape[0], dtype=x.dtype).scatter_add(0, target, weight)
            messages = layer(pairs) * (weight / (total[target] + 1e-9))[:, None]
            x = functional.relu(torch.zeros_like(x).index_add(0, target, messages))
        return self.head(x.mean(0))


@entry("own_gnn", batched=False, forms=("ts", "dynamo"))
def _gnn() -> Built:
    return _Graph().eval(), (torch.randn(1000, 32), torch.randint(0, 1000, (2, 5000)))


class _DeformConv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        import torchvision

        self.offset = nn.Conv2d(64, 18, 3, padding=1)
        self.conv = torchvision.ops.DeformConv2d(64, 64, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x, self.offset(x))


@entry("own_deform_conv", opset=19, forms=("dynamo",))
def _deform() -> Built:
    return _DeformConv().eval(), (images(64, 1, 64),)


class _Speech(nn.Module):
    """A CRNN for text in images: convolutions, a bidirectional LSTM, logits (CTC)."""

    def __init__(self) -> None:
        super().__init__()
        widths = (1, 64, 128, 256, 256)
        self.convs = nn.Sequential(
            *(
                nn.Sequential(
                    nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d((2, 2 if b < 256 else 1))
                )
                for a, b in pairwise(widths)
            )
        )
        self.rnn = nn.LSTM(512, 256, 2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(512, 97)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.convs(x)
        y = y.flatten(1, 2).transpose(1, 2)
        return self.head(self.rnn(y)[0]).log_softmax(-1)


@entry("own_crnn")
def _crnn() -> Built:
    return _Speech().eval(), (torch.randn(2, 1, 32, 128),)


# exporting


def export(folder: Path, name: str, form: str) -> dict[str, Any]:
    """Exports a model in one form; what is to be said of it."""
    chosen = ZOO[name]
    torch.manual_seed(0)
    module, inputs = chosen.build()
    module.eval()  # the wrapper, too: the exporter puts back what it finds
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    if form.endswith("fp16"):
        module = module.half()
        inputs = tuple(item.half() if item.is_floating_point() else item for item in inputs)
    label = f"{name}__{form}"
    path = folder / f"{label}.onnx"
    said: dict[str, Any] = {
        "model": name,
        "form": form,
        "inputs": {f"input{index}": list(item.shape) for index, item in enumerate(inputs)},
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
    }
    names = list(said["inputs"])
    start = time.perf_counter()
    with torch.no_grad():
        if form.startswith("ts"):
            axes = {item: {0: "batch"} for item, tensor in zip(names, inputs, strict=True) if tensor.dim() > 1}
            torch.onnx.export(
                module,
                inputs,
                str(path),
                input_names=names,
                opset_version=chosen.opset,
                dynamo=False,
                dynamic_axes=axes if chosen.batched else None,
            )
        else:
            program = torch.onnx.export(
                module, inputs, input_names=names, opset_version=max(chosen.opset, 18), dynamo=True, verbose=False
            )
            assert program is not None
            program.save(str(path), external_data=True)
    said["export_s"] = round(time.perf_counter() - start, 1)
    if not form.endswith("fp16"):
        said["flops"] = counted_flops(module, inputs)
    if chosen.shapes and form != "ts-fp16":
        try:
            said["shapes"] = shapes_of(path, inputs)
        except Exception as error:  # whatever ONNX Runtime raises is said
            said["shape_fault"] = f"{type(error).__name__}: {str(error)[:300]}"
    strip(path)
    (folder / f"{label}.json").write_text(json.dumps(said))
    return said


def counted_flops(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> int:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    # the counter knows the products of attention by parts, and not the CPU's fused kernel
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        module(*inputs)
    return int(counter.get_total_flops())


def shapes_of(path: Path, inputs: tuple[torch.Tensor, ...], names: Sequence[str] | None = None) -> dict[str, list[int]]:
    """Shapes of all values of the main graph, as ONNX Runtime computes them on the CPU; ``names``: of the inputs."""
    import onnxruntime

    model = onnx.load(str(path))
    asked = {value.name for value in model.graph.output}
    for node in model.graph.node:
        for output in node.output:
            if output and output not in asked:
                model.graph.output.append(onnx.ValueInfoProto(name=output))
                asked.add(output)
    copy = path.with_suffix(".all.onnx")
    onnx.save(model, str(copy), save_as_external_data=True, location=copy.name + ".data")
    try:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 2
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(str(copy), options, providers=["CPUExecutionProvider"])
        asked_inputs = [item.name for item in session.get_inputs()]
        feeds = {
            name: item.numpy()
            for name, item in zip(names or [f"input{i}" for i in range(len(inputs))], inputs, strict=True)
            if name in asked_inputs
        }
        results = session.run(None, feeds)
        return {
            output.name: list(result.shape)
            for output, result in zip(session.get_outputs(), results, strict=True)
            if isinstance(result, np.ndarray)
        }
    finally:
        copy.unlink(missing_ok=True)
        Path(str(copy) + ".data").unlink(missing_ok=True)


def strip(path: Path, least_bytes: int = 1024) -> None:
    """Takes the weights out of a file, and away from beside it; their types and shapes stay."""
    model = onnx.load(str(path), load_external_data=False)
    beside: set[str] = set()
    offset = 0

    def out(tensor: onnx.TensorProto) -> None:
        nonlocal offset
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            beside.update(item.value for item in tensor.external_data if item.key == "location")
            width = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
            length = math.prod(tensor.dims) * width
            if length < least_bytes:
                loaded = onnx.TensorProto()
                loaded.CopyFrom(tensor)
                onnx.external_data_helper.load_external_data_for_tensor(loaded, str(path.parent))
                loaded.data_location = onnx.TensorProto.DEFAULT
                del loaded.external_data[:]
                tensor.CopyFrom(loaded)
                return
        else:
            length = len(tensor.raw_data)
            if length < least_bytes:
                return
            tensor.ClearField("raw_data")
        del tensor.external_data[:]
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", "weights"), ("offset", str(offset)), ("length", str(length))):
            item = tensor.external_data.add()
            item.key, item.value = key, value
        offset += length

    for tensor in model.graph.initializer:
        out(tensor)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t") and node.op_type == "Constant":
                out(attribute.t)
    path.write_bytes(model.SerializeToString())
    for name in beside:
        (path.parent / name).unlink(missing_ok=True)


# quantised files

QUANTISED = (
    "timm_resnet18",
    "timm_mobilenetv2_100",
    "timm_vit_tiny_patch16_224",
    "timm_convnext_atto",
    "yolo_yolov8n",
    "timm_efficientvit_b0",
    "smp_fpn",
    "timm_swin_tiny_patch4_window7_224",
)
HOWS = ("qdq", "qoperator", "qdq-channels", "qdq-16bit", "dynamic", "modelopt-int8", "modelopt-fp8", "trt-explicit")
"""ONNX Runtime's static quantisation in its two formats, by channels, with activations of 16 bits, dynamic;
NVIDIA's ModelOpt on ONNX files; and PyTorch's fake quantisation exported as it stands."""


def quantised(folder: Path, name: str, how: str) -> dict[str, Any]:
    """Exports a model as float32, quantises the file, and says what was said of :func:`export`'s."""
    import onnxruntime.quantization as quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    torch.manual_seed(0)
    if name in ZOO:
        module, inputs = ZOO[name].build()
    else:
        import timm

        module, inputs = timm.create_model(name.removeprefix("timm_")).eval(), (images(224),)
    label = f"{name}__{how}"
    path, base = folder / f"{label}.onnx", folder / f"{label}.base.onnx"
    axes = {"input0": {0: "batch"}}
    if how == "trt-explicit":
        fake_quantised(module, inputs)
    with torch.no_grad():
        torch.onnx.export(
            module,
            inputs,
            str(base),
            input_names=["input0"],
            opset_version=19 if "fp8" in how else 17,
            dynamo=False,
            dynamic_axes=axes,
        )

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.left = 2

        def get_next(self) -> dict[str, Any] | None:
            self.left -= 1
            return {"input0": inputs[0].numpy()} if self.left >= 0 else None

    said: dict[str, Any] = {"model": name, "form": how, "inputs": {"input0": list(inputs[0].shape)}}
    if how == "trt-explicit":
        base.rename(path)
    elif how == "dynamic":
        quantization.quantize_dynamic(str(base), str(path))
    elif how.startswith("modelopt"):
        from modelopt.onnx.quantization import quantize

        quantize(
            str(base),
            quantize_mode=how.removeprefix("modelopt-"),
            calibration_data={"input0": inputs[0].numpy()},
            calibration_method="max",
            output_path=str(path),
            calibration_eps=["cpu"],
            high_precision_dtype="fp16" if "fp8" in how else "fp32",
        )
    else:
        prepared = folder / f"{label}.prepared.onnx"
        quant_pre_process(str(base), str(prepared), skip_symbolic_shape=True)
        quantization.quantize_static(
            str(prepared),
            str(path),
            Reader(),
            quant_format=quantization.QuantFormat.QOperator if how == "qoperator" else quantization.QuantFormat.QDQ,
            per_channel="channels" in how,
            activation_type=quantization.QuantType.QInt16
            if "16bit" in how
            else quantization.QuantType.QInt8
            if "qdq" in how
            else quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            extra_options={"ActivationSymmetric": "channels" in how, "UseQDQContribOps": "16bit" in how},
        )
        prepared.unlink()
    base.unlink(missing_ok=True)
    if "fp8" not in how:
        try:
            said["shapes"] = shapes_of(path, inputs)
        except Exception as error:  # whatever ONNX Runtime raises is said
            said["shape_fault"] = f"{type(error).__name__}: {str(error)[:300]}"
    if how == "trt-explicit":
        for part in module.modules():
            part.__dict__.pop("forward", None)
    said["flops"] = counted_flops(module, inputs)
    strip(path)
    path.with_suffix(".json").write_text(json.dumps(said))
    return said


def fake_quantised(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    """Puts PyTorch's fake quantisation around the inputs and weights of convolutions and linear layers."""

    def quantise(values: torch.Tensor, axis: int | None) -> torch.Tensor:
        if axis is None:
            return torch.fake_quantize_per_tensor_affine(values, 0.05, 0, -128, 127)
        scale = torch.full((values.shape[axis],), 0.01)
        return torch.fake_quantize_per_channel_affine(
            values, scale, torch.zeros(values.shape[axis], dtype=torch.int32), axis, -128, 127
        )

    for part in module.modules():
        if isinstance(part, nn.Conv2d):

            def conv(x: torch.Tensor, part: nn.Conv2d = part) -> torch.Tensor:
                return part._conv_forward(quantise(x, None), quantise(part.weight, 0), part.bias)

            part.forward = conv
        elif isinstance(part, nn.Linear):

            def linear(x: torch.Tensor, part: nn.Linear = part) -> torch.Tensor:
                return functional.linear(quantise(x, None), quantise(part.weight, 0), part.bias)

            part.forward = linear


# launches

CLASSES = (
    ("layer_norm|batch_norm|group_norm|rms_norm|RowwiseMoments|ComputeFusedParams|ComputeInternal", "normalization"),
    ("softmax|SoftMax", "softmax"),
    ("fmha|flash|cutlassF|attention", "attention"),
    ("conv_depthwise|conv2d_|Depthwise|deformable", "conv"),
    ("pool", "pooling"),
    ("upsample", "resize"),
    ("CatArray", "concat"),
    ("copy_kernel", "copy"),
    ("reduce_kernel", "reduction"),
    ("grid_sampl|index|gather|scatter|embedding", "gather"),
    ("reflection_pad|replication_pad", "pad"),
    ("sort|topk|radix", "sort"),
    ("fill|FillFunctor", "fill"),
)
"""What a part of the name of a kernel of PyTorch's says of its class; others are elementwise."""


def class_of(line: str) -> str:
    """Class of one line of the stand-ins' log."""
    kind, _, text = line.partition("\t")
    if kind == "library":
        return "gemm" if "cublas" in text else "normalization" if "BatchNorm" in text else "conv"
    if kind in ("copy", "set"):
        return kind
    return next((found for pattern, found in CLASSES if re.search(pattern, text)), "elementwise")


def launched(name: str, log: Path) -> list[list[str]]:
    """What PyTorch launches for a run of a model: operator, class and kernel, in order. Needs the stand-ins."""
    import ctypes
    import subprocess

    from torch.utils._python_dispatch import TorchDispatchMode

    runtime = ctypes.CDLL("libcudart.so.12")

    class Noted(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            sizes = ["x".join(map(str, item.shape)) for item in args if isinstance(item, torch.Tensor)]
            runtime.standin_note(f"{func} {' '.join(sizes)}".encode())
            return func(*args, **(kwargs or {}))

    module, inputs = ZOO[name].build()
    module = module.cuda()
    inputs = tuple(item.cuda() for item in inputs)
    with torch.no_grad():
        module(*inputs)
        start = log.stat().st_size
        with Noted():
            module(*inputs)
    with log.open("rb") as stream:
        stream.seek(start)
        text = subprocess.run(["c++filt"], input=stream.read(), capture_output=True, check=True).stdout.decode()
    found: list[list[str]] = []
    operator = ""
    for line in text.splitlines():
        if line.startswith("note\t"):
            operator = line[5:]
        elif line:
            found.append([operator, class_of(line), line[:160]])
    return found


def _too_long(_signal: int, _frame: object) -> None:
    raise TimeoutError(f"more than {LIMIT_S} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--list", action="store_true", help="print the names, and export nothing")
    parser.add_argument("--quantised", action="store_true", help="what QUANTISED and HOWS say instead")
    parser.add_argument(
        "--launches", action="store_true", help="on the stand-ins: what PyTorch launches, as NAME.launches"
    )
    parser.add_argument("--forms", help="only these, with commas")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(2)
    warnings.filterwarnings("ignore")
    signal.signal(signal.SIGALRM, _too_long)
    for name in arguments.names or (QUANTISED if arguments.quantised else ZOO):
        if arguments.launches:
            written = arguments.folder / f"{name}.launches"
            if written.exists():
                continue
            signal.alarm(LIMIT_S)
            try:
                found = launched(name, Path(os.environ["STANDIN_LOG"]))
            except Exception as error:  # whatever a model's own code raises: the others are still run
                print(name, f"{type(error).__name__}: {str(error)[:300]}", flush=True)
                continue
            finally:
                signal.alarm(0)
            written.write_text("\n".join("\t".join(item) for item in found))
            print(name, len(found), flush=True)
            continue
        turn = list(HOWS) if arguments.quantised else [*ZOO[name].forms, *(["ts-fp16"] if name in HALVED else [])]
        for form in turn:
            if arguments.forms and form not in arguments.forms.split(","):
                continue
            if (arguments.folder / f"{name}__{form}.json").exists():
                continue
            if arguments.list:
                print(name, form)
                continue
            signal.alarm(LIMIT_S)
            try:
                said = (quantised if arguments.quantised else export)(arguments.folder, name, form)
                print(name, form, f"{said.get('export_s', 0)} s", said.get("shape_fault", ""), flush=True)
            except Exception as error:  # whatever a model's own code raises: the others are still exported
                if os.environ.get("ZOO_TRACE"):
                    traceback.print_exc()
                text = f"{type(error).__name__}: {str(error)[:300]}"
                (arguments.folder / f"{name}__{form}.json").write_text(
                    json.dumps({"model": name, "form": form, "fault": text})
                )
                (arguments.folder / f"{name}__{form}.onnx").unlink(missing_ok=True)
                print(name, form, "FAULT", text.replace("\n", " "), flush=True)


if __name__ == "__main__":
    sys.exit(main())
