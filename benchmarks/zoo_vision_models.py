"""Builds models of vision, audio, diffusion and detection with random weights, and exports them by PyTorch's exporters.

    python -P zoo_vision_models.py FOLDER [NAMES...] [--forms FORM,...] [--list]
    python -P zoo_vision_models.py FOLDER [NAMES...] --quantised
    LD_PRELOAD=... STANDIN_LOG=FILE python -P zoo_vision_models.py FOLDER [NAMES...] --launches

They are timm's, torchvision's, torchaudio's, transformers', diffusers', ultralytics' and segmentation-models-pytorch's.
What is written beside each file, and what else is needed, stands in ``zoo_export.py``.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

sys.path.append(str(Path(__file__).parent))
from zoo_export import FORMS, Built, Outputs, diffusion, entry, hf, images, main, time_step

sys.path.pop()  # this folder has modules that are called like those that libraries look for

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


_resnet = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "backbone_kwargs": None}
hf(
    "detr",
    "DetrConfig",
    "DetrForObjectDetection",
    {"encoder_layers": 2, "decoder_layers": 2},
    lambda: (images(256, 1), torch.ones(1, 256, 256, dtype=torch.int64)),
    lambda m, x, mask: m(pixel_values=x, pixel_mask=mask),
)
hf(
    "conditional_detr",
    "ConditionalDetrConfig",
    "ConditionalDetrForObjectDetection",
    {"encoder_layers": 2, "decoder_layers": 2},
    lambda: (images(256, 1),),
)
hf(
    "deformable_detr",
    "DeformableDetrConfig",
    "DeformableDetrForObjectDetection",
    {"encoder_layers": 2, "decoder_layers": 2},
    lambda: (images(256, 1),),
)
hf("rt_detr_v2", "RTDetrV2Config", "RTDetrV2ForObjectDetection", {}, lambda: (images(320, 1),))
hf("d_fine", "DFineConfig", "DFineForObjectDetection", {}, lambda: (images(320, 1),))
hf(
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
hf(
    "mask2former",
    "Mask2FormerConfig",
    "Mask2FormerForUniversalSegmentation",
    {"encoder_layers": 2, "decoder_layers": 3},
    lambda: (images(256, 1),),
    lambda m, x: m(x).to_tuple()[:2],
    batched=False,
)
hf(
    "maskformer",
    "MaskFormerConfig",
    "MaskFormerForInstanceSegmentation",
    {},
    lambda: (images(256, 1),),
    lambda m, x: m(x).to_tuple()[:2],
    batched=False,
)
hf(
    "sam_encoder",
    "SamVisionConfig",
    "SamVisionModel",
    {"num_hidden_layers": 4, "global_attn_indexes": [1, 3], "image_size": 512},
    lambda: (images(512, 1),),
)
hf(
    "sam_decoder",
    "SamConfig",
    "SamModel",
    {"vision_config": {"num_hidden_layers": 1, "image_size": 512}},
    lambda: (torch.randn(1, 256, 64, 64), torch.rand(1, 1, 2, 2) * 512, torch.ones(1, 1, 2, dtype=torch.int64)),
    lambda m, e, p, labels: m(image_embeddings=e, input_points=p, input_labels=labels).to_tuple()[:2],
    batched=False,
)
hf("sam2_encoder", "Sam2VisionConfig", "Sam2VisionModel", {}, lambda: (images(1024, 1),), shapes=False)
hf(
    "clip",
    "CLIPConfig",
    "CLIPModel",
    {"vision_config": {"num_hidden_layers": 3}, "text_config": {"num_hidden_layers": 3}},
    lambda: (torch.randint(0, 1000, (2, 77)), images(224), torch.ones(2, 77, dtype=torch.int64)),
    lambda m, ids, x, mask: m(input_ids=ids, pixel_values=x, attention_mask=mask).to_tuple()[:4],
)
hf(
    "siglip2",
    "Siglip2VisionConfig",
    "Siglip2VisionModel",
    {"num_hidden_layers": 3},
    lambda: (torch.randn(2, 256, 768), torch.ones(2, 256, dtype=torch.int64), torch.tensor([[16, 16], [16, 16]])),
    lambda m, x, mask, s: m(x, pixel_attention_mask=mask, spatial_shapes=s).to_tuple()[:2],
)
hf(
    "swin2sr",
    "Swin2SRConfig",
    "Swin2SRForImageSuperResolution",
    {"depths": [2, 2], "num_heads": [6, 6], "embed_dim": 60},
    lambda: (images(64, 1),),
)
hf(
    "dpt",
    "DPTConfig",
    "DPTForDepthEstimation",
    {"num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], "image_size": 256},
    lambda: (images(256, 1),),
)
hf(
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
hf("upernet", "UperNetConfig", "UperNetForSemanticSegmentation", {}, lambda: (images(256, 1),))
hf(
    "vitpose",
    "VitPoseConfig",
    "VitPoseForPoseEstimation",
    {
        "backbone_config": {"model_type": "vitpose_backbone", "num_hidden_layers": 4, "out_indices": [4]},
        "use_simple_decoder": False,
    },
    lambda: (torch.randn(1, 3, 256, 192),),
)
hf(
    "owlv2",
    "Owlv2VisionConfig",
    "Owlv2VisionModel",
    {"num_hidden_layers": 3, "image_size": 480},
    lambda: (images(480, 1),),
)
hf(
    "grounding_dino",
    "GroundingDinoConfig",
    "GroundingDinoForObjectDetection",
    {"encoder_layers": 2, "decoder_layers": 2, "text_config": {"model_type": "bert", "num_hidden_layers": 2}},
    lambda: (images(256, 1), torch.randint(1000, 2000, (1, 8)), torch.ones(1, 8, dtype=torch.int64)),
    lambda m, x, ids, mask: m(pixel_values=x, input_ids=ids, attention_mask=mask).to_tuple()[:2],
    batched=False,
)
hf(
    "superpoint",
    "SuperPointConfig",
    "SuperPointForKeypointDetection",
    {},
    lambda: (torch.rand(1, 3, 240, 320),),
    batched=False,
)
hf("videomae", "VideoMAEConfig", "VideoMAEModel", {"num_hidden_layers": 3}, lambda: (torch.randn(1, 16, 3, 224, 224),))
hf(
    "timesformer",
    "TimesformerConfig",
    "TimesformerModel",
    {"num_hidden_layers": 3, "image_size": 112},
    lambda: (torch.randn(1, 8, 3, 112, 112),),
)
hf("cvt", "CvtConfig", "CvtForImageClassification", {"depth": [1, 1, 2]}, lambda: (images(224, 1),))
hf("ast", "ASTConfig", "ASTForAudioClassification", {"num_hidden_layers": 3}, lambda: (torch.randn(1, 1024, 128),))
hf(
    "wav2vec2_conformer",
    "Wav2Vec2ConformerConfig",
    "Wav2Vec2ConformerForCTC",
    {"num_hidden_layers": 2, "position_embeddings_type": "relative"},
    lambda: (torch.randn(1, 16000),),
)
hf(
    "wav2vec2_bert",
    "Wav2Vec2BertConfig",
    "Wav2Vec2BertForCTC",
    {"num_hidden_layers": 2, "vocab_size": 40},
    lambda: (torch.randn(1, 200, 160),),
)
hf("hubert", "HubertConfig", "HubertModel", {"num_hidden_layers": 2}, lambda: (torch.randn(1, 16000),))
hf(
    "whisper_encoder",
    "WhisperConfig",
    "WhisperModel",
    {"encoder_layers": 2, "decoder_layers": 1},
    lambda: (torch.randn(1, 80, 3000),),
    lambda m, x: m.encoder(x),
)
hf(
    "moonshine_encoder",
    "MoonshineConfig",
    "MoonshineModel",
    {"encoder_num_hidden_layers": 2, "decoder_num_hidden_layers": 1},
    lambda: (torch.randn(1, 16000),),
    lambda m, x: m.encoder(x),
)
hf(
    "encodec",
    "EncodecConfig",
    "EncodecModel",
    {},
    lambda: (torch.randn(1, 1, 24000),),
    lambda m, x: m.decoder(m.encoder(x)),
    forms=("ts", "dynamo"),
)
hf("dac", "DacConfig", "DacModel", {}, lambda: (torch.randn(1, 1, 16384),), lambda m, x: m.decoder(m.encoder(x)))
hf(
    "mimi",
    "MimiConfig",
    "MimiModel",
    {"num_hidden_layers": 2},
    lambda: (torch.randn(1, 1, 24000),),
    lambda m, x: m.encoder(x),
)
hf("hifigan", "SpeechT5HifiGanConfig", "SpeechT5HifiGan", {}, lambda: (torch.randn(1, 100, 80),))
hf("vits", "VitsConfig", "VitsModel", {}, lambda: (torch.randint(0, 38, (1, 40)),), forms=("ts",), batched=False)
hf(
    "fastspeech2",
    "FastSpeech2ConformerConfig",
    "FastSpeech2ConformerModel",
    {"encoder_layers": 2, "decoder_layers": 2},
    lambda: (torch.randint(0, 70, (1, 30)),),
    lambda m, ids: m(ids).to_tuple()[:1],
    forms=("ts",),
    batched=False,
)
hf(
    "donut_swin",
    "DonutSwinConfig",
    "DonutSwinModel",
    {"image_size": 224, "depths": [1, 1, 2, 1]},
    lambda: (images(224, 1),),
)
hf(
    "lightglue_superglue",
    "SuperGlueConfig",
    "SuperGlueForKeypointMatching",
    {},
    lambda: (torch.rand(1, 2, 3, 120, 160),),
    forms=("ts",),
    batched=False,
)
hf(
    "pix2struct_vision",
    "Pix2StructVisionConfig",
    "Pix2StructVisionModel",
    {"num_hidden_layers": 3},
    lambda: (torch.cat((torch.randint(0, 40, (1, 512, 2)).float(), torch.randn(1, 512, 768)), -1),),
)
hf(
    "florence_davit",
    "ClvpEncoderConfig",
    "ClvpEncoder",
    {"num_hidden_layers": 2, "use_rotary_embedding": True},
    lambda: (torch.randint(0, 200, (1, 64)),),
    forms=("ts",),
)
hf(
    "patchtst",
    "PatchTSTConfig",
    "PatchTSTForPrediction",
    {"context_length": 512, "patch_length": 16, "patch_stride": 16, "num_input_channels": 7, "prediction_length": 96},
    lambda: (torch.randn(2, 512, 7),),
    lambda m, x: m(past_values=x).prediction_outputs,
    forms=("ts", "dynamo"),
)


# diffusers


diffusion(
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
    lambda: (torch.randn(2, 4, 32, 32), time_step(), torch.randn(2, 77, 768)),
    lambda m, x, t, c: m(x, t, c),
)
diffusion(
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
    lambda: (torch.randn(2, 4, 32, 32), time_step(), torch.randn(2, 77, 2048), torch.randn(2, 1280), torch.randn(2, 6)),
    lambda m, x, t, c, e, i: m(x, t, c, added_cond_kwargs={"text_embeds": e, "time_ids": i}),
)
diffusion(
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
diffusion(
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
diffusion(
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
    lambda: (torch.randn(1, 16, 64, 64), torch.randn(1, 154, 4096), torch.randn(1, 2048), time_step()),
    lambda m, x, c, p, t: m(hidden_states=x, encoder_hidden_states=c, pooled_projections=p, timestep=t),
)
diffusion(
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
diffusion(
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
    lambda: (torch.randn(1, 4, 32, 32), torch.randn(1, 120, 4096), time_step()),
    lambda m, x, c, t: m(
        x, encoder_hidden_states=c, timestep=t, added_cond_kwargs={"resolution": None, "aspect_ratio": None}
    ),
)
diffusion(
    "sana",
    "SanaTransformer2DModel",
    {"num_layers": 2, "caption_channels": 2304},
    lambda: (torch.randn(1, 32, 32, 32), torch.randn(1, 120, 2304), time_step()),
    lambda m, x, c, t: m(x, encoder_hidden_states=c, timestep=t),
)
diffusion(
    "wan",
    "WanTransformer3DModel",
    {"num_layers": 2, "num_attention_heads": 12, "attention_head_dim": 128, "ffn_dim": 8960},
    lambda: (torch.randn(1, 16, 3, 32, 32), time_step(), torch.randn(1, 128, 4096)),
    lambda m, x, t, c: m(x, t, c),
    batched=False,
)
diffusion(
    "wan_vae",
    "AutoencoderKLWan",
    {"base_dim": 32},
    lambda: (torch.randn(1, 16, 1, 16, 16),),
    lambda m, z: m.decode(z),
    forms=("ts", "dynamo"),
    batched=False,
)
diffusion(
    "cogvideox",
    "CogVideoXTransformer3DModel",
    {"num_layers": 2, "sample_width": 16, "sample_height": 16, "sample_frames": 9},
    lambda: (torch.randn(1, 3, 16, 16, 16), torch.randn(1, 226, 4096), time_step()),
    lambda m, x, c, t: m(x, c, t),
    batched=False,
)
diffusion(
    "controlnet",
    "ControlNetModel",
    {"cross_attention_dim": 768, "attention_head_dim": 8, "layers_per_block": 1},
    lambda: (torch.randn(1, 4, 32, 32), time_step(), torch.randn(1, 77, 768), torch.randn(1, 3, 256, 256)),
    lambda m, x, t, c, h: m(x, t, c, h),
)
diffusion("taesd", "AutoencoderTiny", {}, lambda: (torch.randn(1, 4, 32, 32),), lambda m, z: m.decode(z))
diffusion(
    "ddpm",
    "UNet2DModel",
    {
        "sample_size": 64,
        "block_out_channels": (128, 256, 256),
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
    },
    lambda: (torch.randn(1, 3, 64, 64), time_step()),
    lambda m, x, t: m(x, t),
)
diffusion(
    "stable_audio_dit",
    "StableAudioDiTModel",
    {"num_layers": 2},
    lambda: (torch.randn(1, 64, 256), time_step(), torch.randn(1, 64, 768), torch.randn(1, 1, 1536)),
    lambda m, x, t, c, g: m(x, t, encoder_hidden_states=c, global_hidden_states=g),
    batched=False,
)
diffusion(
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


# quantised files


# launches


if __name__ == "__main__":
    sys.exit(main(__doc__, halved=HALVED))
