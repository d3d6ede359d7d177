"""Builds models that were measured in public and for which no graph is at hand, and exports their graphs.

    python -P more_models.py FOLDER [NAMES...]

FOLDER gets a file for each model and size, and ``index.csv`` in the layout that ``models.py --more FOLDER`` reads. With
NAMES (of files, without ".onnx") only these are exported, and the index has the lines of all that are there. It imports
PyTorch, timm, torchvision and transformers, nothing of this project, and downloads nothing; -P, as this folder has
modules that are called like others'.

They are other people's definitions of the same networks, at the sizes of the rows:

- PaddleClas' by timm and torchvision; what neither has (widths, depths, stems) is put together here from their parts;
- FasterTransformer's BERT, whose PyTorch rows ran the encoder alone, by transformers.

``params_published_m`` is what the network's authors or PaddleClas' tables say of its parameters, in millions (as
remembered), and stands in the index beside those of the graph with the difference in per cent. ``gmacs_onnx`` are
multiply-adds of one image, or of a sequence of 32, as torch counts them.

Exported by the exporter on TorchScript in eval mode, where it folds batch normalizations into convolutions as the
engines do that were measured; the batch is free. Weights of more than 1 KiB are references to external data that is
never written. Values are arbitrary, different in each tensor, so that the exporter merges none.

Types are checked where PyTorch isn't installed: what it returns and what replaces its methods is unknown there, hence
the ``type: ignore``.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import timm
import torch
import torchvision.models as tv
from timm.models.densenet import DenseNet
from timm.models.mobilenetv3 import _gen_lcnet
from timm.models.res2net import Bottle2neck
from timm.models.resnest import ResNestBottleneck
from timm.models.resnet import BasicBlock, Bottleneck, ResNet
from timm.models.xception import Block, Xception
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from torchvision.models.mobilenetv3 import MobileNetV3, _mobilenet_v3_conf

sys.path.append(str(Path(__file__).parent))
from zoo_export import strip

sys.path.pop()  # this folder has modules that are called like those that libraries look for

PADDLE = "PaddlePaddle/PaddleClas"
FASTER = "NVIDIA/FasterTransformer"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A network: what the rows call it, how it is built, and its input: an image of ``size`` or, without, a sequence of
    vectors of ``width``."""

    names: Sequence[str]
    family: str
    build: Callable[[], nn.Module]
    params_published_m: float | None
    size: int = 224
    width: int = 0
    source: str = PADDLE
    notes: str = ""
    has_views: bool = False
    """Of sizes that a trace computes, which :class:`WithoutConvolving` can't pass on."""

    @property
    def stem(self) -> str:
        name = self.names[0].replace(" ", "")
        return f"{name}_{self.size}" if self.size else name


# networks of parts


class ConvBn(nn.Sequential):
    def __init__(
        self, c: int, k: int, size: int, stride: int = 1, groups: int = 1, act: type[nn.Module] | None = nn.ReLU
    ):
        super().__init__(
            nn.Conv2d(c, k, size, stride, size // 2, groups=groups, bias=False),
            nn.BatchNorm2d(k),
            *([act()] if act else []),
        )


def classified(features: nn.Module, channels: int) -> nn.Module:
    return nn.Sequential(features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def mobilenet_v1(scale: float) -> nn.Module:
    """Howard et al. 2017: a filter of 3x3, then thirteen pairs of a depthwise and a pointwise one."""
    plan = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
    c = int(32 * scale)
    layers: list[nn.Module] = [ConvBn(3, c, 3, 2)]
    for channels, stride in plan:
        k = int(channels * scale)
        layers += [ConvBn(c, c, 3, stride, groups=c), ConvBn(c, k, 1)]
        c = k
    return classified(nn.Sequential(*layers), c)


def mobilenet_v3(kind: str, scale: float) -> nn.Module:
    """Howard et al. 2019, with a last layer of 1,280 at every width and in the small form, too, as in PaddleClas."""
    setting, _ = _mobilenet_v3_conf(f"mobilenet_v3_{kind}", width_mult=scale)
    return MobileNetV3(setting, 1280)


class SwishShuffleUnits(nn.Module):
    """A ShuffleNetV2 with SiLU in the place of ReLU."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        for module in list(network.modules()):
            for name, part in module.named_children():
                if isinstance(part, nn.ReLU):
                    setattr(module, name, nn.SiLU())
        self.network = network

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.network(images)  # type: ignore[no-any-return]


def shufflenet(*channels: int) -> nn.Module:
    return tv.ShuffleNetV2([4, 8, 4], list(channels))


DEEP = {"stem_type": "deep", "stem_width": 32, "avg_down": True}
"""What PaddleClas calls vd: three filters of 3x3 in front, pooling before the shortcut's 1x1."""
DEPTHS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 12, 48, 3),
}


def resnet(depth: int, *, deep: bool = False, groups: int = 1, width: int = 64, se: bool = False) -> nn.Module:
    block = BasicBlock if depth < 50 else Bottleneck
    more = DEEP if deep else {}
    return ResNet(
        block,
        DEPTHS[depth],
        cardinality=groups,
        base_width=width,
        block_args={"attn_layer": "se"} if se else None,
        **more,
    )


def res2net(depth: int, width: int, scale: int, *, deep: bool) -> nn.Module:
    more = DEEP if deep else {}
    return ResNet(Bottle2neck, DEPTHS[depth], base_width=width, block_args={"scale": scale}, **more)


def senet154_vd() -> nn.Module:
    return ResNet(
        Bottleneck, DEPTHS[152], cardinality=64, base_width=4, stem_type="deep", stem_width=64, avg_down=True,
        block_args={"attn_layer": "se"},
    )  # fmt: skip


def resnest_fast() -> nn.Module:
    return ResNet(
        ResNestBottleneck, DEPTHS[50], cardinality=1, base_width=64,
        block_args={"radix": 1, "avd": True, "avd_first": True}, **DEEP,
    )  # fmt: skip


def xception(middle: int, entry: Sequence[Callable[[], nn.Module]] = ()) -> nn.Module:
    """Chollet's network with ``middle`` blocks in its middle flow; it has eight itself. ``entry`` come before them."""
    network = Xception()
    further = [Block(728, 728, 3, 1) for _ in range(middle - 8)]
    network.block4 = nn.Sequential(*(make() for make in entry), network.block4)
    network.block11 = nn.Sequential(network.block11, *further)
    return network


def without_excitation(network: nn.Module) -> nn.Module:
    for module in network.modules():
        if hasattr(module, "se"):
            module.se = nn.Identity()
    return network


def bert_encoder() -> nn.Module:
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertEncoder

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = BertEncoder(BertConfig(attn_implementation="eager"))

        def forward(self, vectors: torch.Tensor) -> torch.Tensor:
            return self.encoder(vectors)[0]  # type: ignore[no-any-return]

    return Encoder()


def by_timm(name: str) -> Callable[[], nn.Module]:
    return partial(timm.create_model, name)


# what was measured


def _resnets() -> Iterator[Entry]:
    for depth, params in ((18, 11.69), (34, 21.80), (50, 25.56), (101, 44.55), (152, 60.19)):
        yield Entry(names=(f"ResNet{depth}",), family="ResNet", build=partial(resnet, depth), params_published_m=params)
    yield Entry(names=("ResNet50_vc",), family="ResNet", build=by_timm("resnet50c"), params_published_m=25.58)
    for depth, params in ((18, 11.71), (34, 21.82), (50, 25.58), (101, 44.57), (152, 60.21), (200, 74.74)):
        names = [f"ResNet{depth}_vd", f"ResNet{depth}_vd_ssld"]
        names += ["ResNet50_vd_v2", "ResNet50_vd_ssld_v2"] if depth == 50 else []
        yield Entry(names=names, family="ResNet vd", build=partial(resnet, depth, deep=True), params_published_m=params)
    yield Entry(
        names=("Fix_ResNet50_vd_ssld_v2",), family="ResNet vd", build=partial(resnet, 50, deep=True), size=320,
        params_published_m=25.58,
    )  # fmt: skip
    for depth, params in ((18, 11.80), (34, 21.98), (50, 28.09)):
        yield Entry(
            names=(f"SE_ResNet{depth}_vd",), family="SE-ResNet", build=partial(resnet, depth, deep=True, se=True),
            params_published_m=params,
        )  # fmt: skip


def _resnexts() -> Iterator[Entry]:
    for depth, groups, params in ((50, 64, 45.29), (101, 64, 83.46), (152, 32, 60.0), (152, 64, 115.27)):
        yield Entry(
            names=(f"ResNeXt{depth}_{groups}x4d",), family="ResNeXt",
            build=partial(resnet, depth, groups=groups, width=4), params_published_m=params,
        )  # fmt: skip
    for depth, groups in itertools.product((50, 101, 152), (32, 64)):
        yield Entry(
            names=(f"ResNeXt{depth}_vd_{groups}x4d",), family="ResNeXt",
            build=partial(resnet, depth, groups=groups, width=4, deep=True), params_published_m=None,
        )  # fmt: skip
    for width, params in ((16, 194.0), (32, 468.5)):  # of 48, its weights are more than a file may hold
        yield Entry(
            names=(f"ResNeXt101_ 32x{width}d_wsl",), family="ResNeXt wsl",
            build=partial(resnet, 101, groups=32, width=width), params_published_m=params,
        )  # fmt: skip
    yield Entry(
        names=("SE_ResNeXt50_vd_32x4d",), family="SE-ResNeXt",
        build=partial(resnet, 50, groups=32, width=4, deep=True, se=True), params_published_m=27.6,
    )  # fmt: skip
    yield Entry(names=("SENet154_vd",), family="SE-ResNeXt", build=senet154_vd, params_published_m=122.03)
    for depth, params in ((50, 25.7), (101, 45.2), (200, 76.4)):
        yield Entry(
            names=(f"Res2Net{depth}_vd_26w_4s",), family="Res2Net", build=partial(res2net, depth, 26, 4, deep=True),
            params_published_m=params,
        )  # fmt: skip
    yield Entry(names=("RegNetX_4GF",), family="RegNet", build=by_timm("regnetx_040"), params_published_m=22.1)
    for name, build, params in (("", by_timm("resnest50d"), 27.5), ("_fast_1s1x64d", resnest_fast, 26.3)):
        yield Entry(
            names=(f"ResNeSt50{name}",), family="ResNeSt", build=build, params_published_m=params, has_views=True
        )


def _dense() -> Iterator[Entry]:
    for name, params in (("121", 7.98), ("161", 28.68), ("169", 14.15), ("201", 20.01)):
        build = getattr(tv, f"densenet{name}")
        yield Entry(names=(f"DenseNet{name}",), family="DenseNet", build=build, params_published_m=params)
    build = partial(DenseNet, growth_rate=32, block_config=(6, 12, 64, 48))
    yield Entry(names=("DenseNet264",), family="DenseNet", build=build, params_published_m=33.34)
    for name, params in (("68", 12.61), ("92", 37.67), ("98", 61.57), ("107", 86.92), ("131", 79.25)):
        yield Entry(names=(f"DPN{name}",), family="DPN", build=by_timm(f"dpn{name}"), params_published_m=params)


def _mobile() -> Iterator[Entry]:
    for label, scale, params in (("_x0_25", 0.25, 0.47), ("_x0_5", 0.5, 1.33), ("_x0_75", 0.75, 2.59), ("", 1.0, 4.23)):
        names = [f"MobileNetV1{label}", *([] if label else ["MobileNetV1_ssld"])]
        yield Entry(names=names, family="MobileNetV1", build=partial(mobilenet_v1, scale), params_published_m=params)
    for label, scale, params in (
        ("_x0_25", 0.25, 1.52), ("_x0_5", 0.5, 1.97), ("_x0_75", 0.75, 2.64), ("", 1.0, 3.50), ("_x1_5", 1.5, 6.87),
        ("_x2_0", 2.0, 11.26),
    ):  # fmt: skip
        names = [f"MobileNetV2{label}", *([] if label else ["MobileNetV2_ssld"])]
        build = partial(tv.mobilenet_v2, width_mult=scale)
        yield Entry(names=names, family="MobileNetV2", build=build, params_published_m=params)
    for kind, figures in (("large", (2.1, 2.7, 3.9, 5.5, 7.4)), ("small", (1.7, 1.9, 2.4, 2.9, 3.6))):
        for scale, params in zip((0.35, 0.5, 0.75, 1.0, 1.25), figures, strict=True):
            name = f"MobileNetV3_{kind}_x{str(scale).replace('.', '_')}"
            yield Entry(
                names=(name, f"{name}_ssld"), family="MobileNetV3", build=partial(mobilenet_v3, kind, scale),
                params_published_m=params,
            )  # fmt: skip
    for label, channels, params in (
        ("_x0_25", (24, 24, 48, 96, 512), 0.60), ("_x0_33", (24, 32, 64, 128, 512), 0.64),
        ("_x0_5", (24, 48, 96, 192, 1024), 1.37), ("", (24, 116, 232, 464, 1024), 2.28),
        ("_x1_5", (24, 176, 352, 704, 1024), 3.50), ("_x2_0", (24, 224, 488, 976, 2048), 7.39),
    ):  # fmt: skip
        build = partial(shufflenet, *channels)
        yield Entry(
            names=(f"ShuffleNetV2{label}",),
            family="ShuffleNetV2",
            build=build,
            params_published_m=params,
            has_views=True,
        )
    yield Entry(
        names=("ShuffleNetV2_swish",), family="ShuffleNetV2", has_views=True, params_published_m=2.28,
        build=lambda: SwishShuffleUnits(shufflenet(24, 116, 232, 464, 1024)),
    )  # fmt: skip
    for label, name, params in (("x0_5", "050", 2.6), ("x1_0", "100", 5.2), ("x1_3", "130", 7.3)):
        yield Entry(
            names=(f"GhostNet_{label}",),
            family="GhostNet",
            build=by_timm(f"ghostnet_{name}"),
            params_published_m=params,
        )
    for label, scale, params in (
        ("x0_25", 0.25, 1.5), ("x0_35", 0.35, 1.6), ("x0_5", 0.5, 1.9), ("x0_75", 0.75, 2.4), ("x1_0", 1.0, 3.0),
        ("x1_5", 1.5, 4.5), ("x2_0", 2.0, 6.5),
    ):  # fmt: skip
        build = partial(_gen_lcnet, "lcnet_100", scale)
        yield Entry(names=(f"PPLCNet_{label}",), family="PP-LCNet", build=build, params_published_m=params)


def _others() -> Iterator[Entry]:
    for number, size, params in (
        (0, 224, 5.29), (1, 240, 7.79), (2, 260, 9.11), (3, 300, 12.23), (4, 380, 19.34), (5, 456, 30.39),
        (6, 528, 43.04), (7, 600, 66.35),
    ):  # fmt: skip
        yield Entry(
            names=(f"EfficientNetB{number}",), family="EfficientNet", build=by_timm(f"efficientnet_b{number}"),
            size=size, params_published_m=params,
        )  # fmt: skip
    yield Entry(
        names=("EfficientNetB0_small", "EfficientNetB0_ small"), family="EfficientNet", params_published_m=4.65,
        build=lambda: without_excitation(timm.create_model("efficientnet_b0")),
    )  # fmt: skip
    for width, params in ((30, 37.71), (40, 57.56), (44, 67.06), (64, 128.06)):
        yield Entry(
            names=(f"HRNet_W{width}_C",), family="HRNet", build=by_timm(f"hrnet_w{width}"), params_published_m=params
        )
    googlenet = partial(tv.googlenet, aux_logits=False, transform_input=False, init_weights=False)
    for size in (224, 299):
        yield Entry(names=("GoogLeNet",), family="Inception", build=googlenet, size=size, params_published_m=6.62)
    twice = (lambda: Block(728, 728, 2, 1),) * 2
    for name, build, params in (
        ("Xception41", partial(xception, 8), 22.86), ("Xception65", partial(xception, 16), 35.9),
        ("Xception71", partial(xception, 16, twice), 37.9),
    ):  # fmt: skip
        yield Entry(names=(name,), family="Xception", build=build, size=299, params_published_m=params)
    yield Entry(names=("AlexNet",), family="AlexNet", build=tv.alexnet, params_published_m=61.10)
    yield Entry(names=("DarkNet53",), family="DarkNet", build=by_timm("darknet53"), size=256, params_published_m=41.6)
    for label, params in (("1_0", 1.25), ("1_1", 1.24)):
        build = getattr(tv, f"squeezenet{label}")
        yield Entry(names=(f"SqueezeNet{label}",), family="SqueezeNet", build=build, params_published_m=params)
    yield Entry(
        names=("bert",), family="BERT", build=bert_encoder, size=0, width=768, source=FASTER, has_views=True,
        params_published_m=85.05, notes="the encoder alone",
    )  # fmt: skip


ENTRIES = (*_resnets(), *_resnexts(), *_dense(), *_mobile(), *_others())

# exporting


def inputs_of(entry: Entry, batch: int) -> torch.Tensor:
    if entry.size:
        return torch.zeros(batch, 3, entry.size, entry.size)
    return torch.zeros(batch, 32, entry.width)


def filled(module: nn.Module) -> nn.Module:
    """Values that differ between tensors, without drawing them: the exporter merges equal ones."""
    numbers = itertools.count(1)
    with torch.no_grad():
        for tensor in itertools.chain(module.parameters(), module.buffers()):
            tensor.fill_(1.0 + next(numbers) * 1e-3 if tensor.is_floating_point() else 0)
    return module


class WithoutConvolving(TorchDispatchMode):
    """Gives convolutions of a trace, which are its time, zeros of the right shape."""

    def __enter__(self) -> WithoutConvolving:
        self._was = nn.Conv2d._conv_forward
        nn.Conv2d._conv_forward = self._conv  # type: ignore[method-assign,assignment]
        return super().__enter__()  # type: ignore[no-any-return]

    def __exit__(self, *raised: object) -> None:
        nn.Conv2d._conv_forward = self._was  # type: ignore[method-assign]
        super().__exit__(*raised)

    @staticmethod
    def _conv(layer: nn.Conv2d, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        # what the tracer records: conv2d itself is taken apart before it
        return torch._convolution(  # type: ignore[no-any-return,attr-defined]
            x, weight, bias, layer.stride, layer.padding, layer.dilation, False, (0, 0), layer.groups,
            False, False, True, True,
        )  # fmt: skip

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func is not torch.ops.aten._convolution.default:
            return func(*args, **(kwargs or {}))
        x, weight, _, strides, pads, dilations, *_ = args
        n, _, *sizes = map(int, x.shape)
        k, _, *taps = map(int, weight.shape)
        steps = zip(sizes, taps, strides, pads, dilations, strict=True)
        return torch.zeros(
            n, k, *((size + 2 * p - d * (tap - 1) - 1) // stride + 1 for size, tap, stride, p, d in steps)
        )


def _trace(entry: Entry) -> contextlib.AbstractContextManager[object]:
    return contextlib.nullcontext() if entry.has_views else WithoutConvolving()


def export(entry: Entry, folder: Path) -> dict[str, object]:
    """Writes the graph; its line of the index but for what the rows call it."""
    path = folder / f"{entry.stem}.onnx"
    with torch.device("meta"), torch.no_grad():
        module = entry.build().eval()
        counter = FlopCounterMode(display=False)
        with counter:
            module(inputs_of(entry, 1))
    module = filled(module.to_empty(device="cpu"))
    axes = {"input": {0: "batch"} if entry.size else {0: "batch", 1: "sequence"}}
    with torch.no_grad(), warnings.catch_warnings(), _trace(entry):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, (inputs_of(entry, 2),), str(path), dynamo=False, opset_version=17, input_names=["input"],
            output_names=["output"], dynamic_axes=axes | {"output": {0: "batch"}},
        )  # fmt: skip
    strip(path)
    params = sum(parameter.numel() for parameter in module.parameters())
    published = entry.params_published_m
    return {
        "file": path.name,
        "source_repo": entry.source,
        "family": entry.family,
        "img_size": entry.size or "",
        "sequence": "",
        "params": params,
        "params_published_m": published or "",
        "params_diff_pct": f"{(params / 1e6 / published - 1) * 100:.1f}" if published else "",
        "gmacs_onnx": f"{counter.get_total_flops() / 2e9:.3f}",
        "applies_to_rows": "",
        "notes": entry.notes,
    }


def main() -> None:
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    folder.mkdir(parents=True, exist_ok=True)
    index = folder / "index.csv"
    lines: dict[tuple[str, str], dict[str, object]] = {}
    if names and index.exists():
        with index.open(newline="") as handle:
            lines = {(row["file"], row["csv_model"]): dict(row) for row in csv.DictReader(handle)}
    for entry in ENTRIES:
        if names and entry.stem not in names:
            continue
        line = export(entry, folder)
        print(*(line[key] for key in ("file", "params", "params_diff_pct", "gmacs_onnx")), flush=True)
        for name in entry.names:
            lines[line["file"], name] = {"csv_model": name, **line}
        with index.open("w", newline="") as handle:
            writer = csv.DictWriter(handle, next(iter(lines.values())).keys())
            writer.writeheader()
            writer.writerows(lines.values())


if __name__ == "__main__":
    main()
