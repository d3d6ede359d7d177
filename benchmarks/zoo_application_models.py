"""Models of applications that the other zoos lack, with random weights, exported as ``zoo_vision_models.py`` does.

    python -P zoo_application_models.py FOLDER [NAMES...] [--forms FORM,...] [--list]

Restoration of images (``spandrel``, ``spandrel_extra_arches``), graph networks (``torch_geometric``), vision, speech
and time series of transformers 5, policies of robots, tables, recommendation, and parts that deployed models have and
no library of these: a speech detector with its state, a warp in three dimensions, an acoustic model with durations.
What each file is beside, and what is needed, stands in ``zoo_export.py``.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

sys.path.append(str(Path(__file__).parent))
import zoo_export as zoo

sys.path.pop()  # this folder has modules that are called like those that libraries look for
torch.backends.mha.set_fastpath_enabled(False)  # its operator has no form in ONNX

Built, Outputs, entry, hf, images = zoo.Built, zoo.Outputs, zoo.entry, zoo.hf, zoo.images


# images restored

RESTORERS: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "nafnet": (
        "spandrel.architectures.NAFNet",
        "NAFNet",
        {"width": 32, "enc_blk_nums": [1, 1], "middle_blk_num": 1, "dec_blk_nums": [1, 1]},
        128,
    ),
    "restormer": (
        "spandrel_extra_arches.architectures.Restormer",
        "Restormer",
        {"num_blocks": [1, 1, 1, 1], "num_refinement_blocks": 1},
        64,
    ),
    "swinir": (
        "spandrel.architectures.SwinIR",
        "SwinIR",
        {"depths": [2, 2], "num_heads": [6, 6], "embed_dim": 60, "img_size": 64, "window_size": 8,
         "upscale": 4, "upsampler": "nearest+conv"},
        64,
    ),
    "hat": (
        "spandrel.architectures.HAT",
        "HAT",
        {"depths": [2], "num_heads": [6], "embed_dim": 96, "window_size": 16, "upscale": 4,
         "upsampler": "pixelshuffle"},
        64,
    ),
    "dat": (
        "spandrel.architectures.DAT",
        "DAT",
        {"depth": [2], "num_heads": [6], "embed_dim": 60, "split_size": [8, 8], "img_size": 64},
        64,
    ),
    "scunet": ("spandrel.architectures.SCUNet", "SCUNet", {"config": [1, 1, 1, 1, 1, 1, 1]}, 64),
    "realcugan": ("spandrel.architectures.RealCUGAN", "UpCunet2x", {}, 64),
    "fbcnn": ("spandrel.architectures.FBCNN", "FBCNN", {}, 64),
    "uformer": ("spandrel.architectures.Uformer", "Uformer", {"depths": [1] * 9, "img_size": 128}, 128),
    "span": ("spandrel.architectures.SPAN", "SPAN", {"num_in_ch": 3, "num_out_ch": 3}, 64),
    "plksr": ("spandrel.architectures.PLKSR", "PLKSR", {"n_blocks": 2}, 64),
    "grl": ("spandrel.architectures.GRL", "GRL", {"img_size": 64, "depths": [2], "num_heads_window": [3],
                                                  "num_heads_stripe": [3], "embed_dim": 96}, 64),
}  # fmt: skip
"""Name -> module, architecture, what is smaller than published, size of images."""

for _name, (_module, _class, _sizes, _size) in RESTORERS.items():

    def _restorer(
        module: str = _module, kind: str = _class, sizes: dict[str, Any] = _sizes, size: int = _size
    ) -> Built:
        package = importlib.import_module(module)
        architecture = getattr(package, kind, None)
        if architecture is None:
            parts = [item for key, item in sys.modules.items() if key.startswith(module + ".")]
            architecture = next(getattr(item, kind) for item in parts if hasattr(item, kind))
        return Outputs(architecture(**sizes)), (images(size, 1),)

    entry(f"sr_{_name}")(_restorer)


# graphs

for _name, _class, _more in (
    ("gcn", "GCN", {}),
    ("gat", "GAT", {"v2": True, "heads": 4}),
    ("gin", "GIN", {}),
    ("sage", "GraphSAGE", {"aggr": "max"}),
    ("pna", "PNA", {"aggregators": ["mean", "min", "max", "std"], "scalers": ["identity", "amplification"],
                    "deg": torch.tensor([0, 10, 20, 10])}),
):  # fmt: skip

    def _graph(kind: str = _class, more: dict[str, Any] = _more) -> Built:
        from torch_geometric.nn import models

        model = getattr(models, kind)(32, 64, num_layers=2, out_channels=64, **more)
        return Outputs(model), (torch.randn(100, 32), torch.randint(0, 100, (2, 400)))

    entry(f"pyg_{_name}", batched=False)(_graph)


@entry("pyg_schnet", batched=False, forms=("dynamo", "ts"))
def _schnet() -> Built:
    from torch_geometric.nn import models

    class Called(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = models.SchNet(hidden_channels=64, num_filters=64, num_interactions=2)

        def forward(self, z: torch.Tensor, pos: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            net = self.net
            row, column = edges
            weight = (pos[row] - pos[column]).norm(dim=-1)
            features = net.distance_expansion(weight)
            h = net.embedding(z)
            for block in net.interactions:
                h = h + block(h, edges, weight, features)
            return torch.as_tensor(net.lin2(net.act(net.lin1(h))).sum(0))

    return Called(), (torch.randint(1, 10, (30,)), torch.randn(30, 3), torch.randint(0, 30, (2, 200)))


# transformers' newer ones

hf(
    "owlvit",
    "OwlViTConfig",
    "OwlViTForObjectDetection",
    {"vision_config": {"num_hidden_layers": 2}, "text_config": {"num_hidden_layers": 2}},
    lambda: (images(768, 1), torch.randint(3, 1000, (2, 16)), torch.ones(2, 16, dtype=torch.int64)),
    lambda m, x, i, a: m(input_ids=i, pixel_values=x, attention_mask=a).to_tuple()[:2],
    batched=False,
)
hf("timesfm_25", "TimesFm2_5Config", "TimesFm2_5Model", {"num_hidden_layers": 2}, lambda: (torch.randn(2, 512),))
hf("parakeet_encoder", "ParakeetEncoderConfig", "ParakeetEncoder", {"num_hidden_layers": 2},
   lambda: (torch.randn(2, 160, 80), torch.ones(2, 160, dtype=torch.int64)),
   lambda m, x, a: m(x, attention_mask=a))  # fmt: skip
hf("wavlm", "WavLMConfig", "WavLMForCTC", {"num_hidden_layers": 2}, lambda: (torch.randn(2, 16_000),))
hf("sew_d", "SEWDConfig", "SEWDForCTC", {"num_hidden_layers": 2}, lambda: (torch.randn(2, 16_000),))
hf("mgp_str", "MgpstrConfig", "MgpstrForSceneTextRecognition", {"num_hidden_layers": 2},
   lambda: (torch.randn(1, 3, 32, 128),), lambda m, x: m(x).to_tuple()[0])  # fmt: skip
hf("seggpt", "SegGptConfig", "SegGptModel", {"num_hidden_layers": 4}, lambda: (images(448, 1), images(448, 1),
   images(448, 1)), lambda m, x, p, q: m(pixel_values=x, prompt_pixel_values=p,
   prompt_masks=q).to_tuple()[0])  # fmt: skip
hf("vitdet", "VitDetConfig", "VitDetModel", {"num_hidden_layers": 2, "window_block_indices": [0], "window_size": 14},
   lambda: (images(224, 1),))  # fmt: skip
hf("swiftformer", "SwiftFormerConfig", "SwiftFormerForImageClassification", {}, lambda: (images(224),))
hf("textnet", "TextNetConfig", "TextNetModel", {}, lambda: (images(256, 1),))
hf("esm2", "EsmConfig", "EsmForMaskedLM", {"num_hidden_layers": 2, "vocab_size": 33, "pad_token_id": 1,
   "hidden_size": 320, "num_attention_heads": 20, "intermediate_size": 1280, "position_embedding_type": "rotary",
   "token_dropout": True, "mask_token_id": 32, "emb_layer_norm_before": False},
   lambda: (torch.randint(4, 24, (2, 64)), torch.ones(2, 64, dtype=torch.int64)),
   lambda m, i, a: m(i, attention_mask=a))  # fmt: skip


# parts of deployed models


class Detector(nn.Module):
    """Speech or none, of a chunk with what came before it: spectra by convolution, a cell, one step."""

    def __init__(self) -> None:
        super().__init__()
        self.spectra = nn.Conv1d(1, 258, 256, stride=128, bias=False)
        self.encoder = nn.Sequential(
            *(nn.Conv1d(129, 128, 3, padding=1), nn.ReLU()),
            *(nn.Conv1d(128, 64, 3, 2, 1), nn.ReLU()),
            *(nn.Conv1d(64, 64, 3, 2, 1), nn.ReLU()),
            *(nn.Conv1d(64, 128, 3, padding=1), nn.ReLU()),
        )
        self.cell = nn.LSTMCell(128, 128)
        self.head = nn.Sequential(nn.Dropout(0.1), nn.ReLU(), nn.Conv1d(128, 1, 1), nn.Sigmoid())

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        padded = functional.pad(x, (0, 64), mode="reflect")
        real, imaginary = self.spectra(padded[:, None]).chunk(2, 1)
        y = self.encoder(torch.sqrt(real**2 + imaginary**2)).mean(-1)
        h, c = self.cell(y, (state[0], state[1]))
        return self.head(h[..., None])[..., 0], torch.stack((h, c))


@entry("own_speech_detector", batched=False)
def _detector() -> Built:
    return Detector(), (torch.randn(1, 576), torch.randn(2, 1, 128))


class Warp(nn.Module):
    """Features in three dimensions, moved along sparse motions: what animates a portrait."""

    def __init__(self) -> None:
        super().__init__()
        self.hourglass = nn.Conv3d(64, 16, 3, padding=1)
        self.mask = nn.Conv3d(16, 11, 7, padding=3)
        self.out = nn.Conv2d(32 * 8, 64, 3, padding=1)

    def forward(self, feature: torch.Tensor, motion: torch.Tensor) -> torch.Tensor:
        b = feature.shape[0]
        moved = functional.grid_sample(
            feature.repeat_interleave(11, 0), motion.reshape(b * 11, 8, 32, 32, 3), align_corners=False
        )
        masks = self.mask(self.hourglass(functional.interpolate(feature, scale_factor=(1, 1, 1)).repeat(1, 2, 1, 1, 1)))
        weights = torch.softmax(masks, 1)[:, :, None]
        deformed = (moved.reshape(b, 11, 32, 8, 32, 32) * weights).sum(1)
        return torch.as_tensor(self.out(deformed.flatten(1, 2)))


@entry("own_warp3d", opset=20, batched=False, forms=("ts", "dynamo"))
def _warp() -> Built:
    return Warp(), (torch.randn(1, 32, 8, 32, 32), torch.rand(1, 11, 8, 32, 32, 3))


class Matting(nn.Module):
    """A frame with the states of the frames before it, in a gated convolution at each scale."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, 2, 1)
        self.gates = nn.Conv2d(64, 64, 3, padding=1)
        self.candidate = nn.Conv2d(64, 32, 3, padding=1)
        self.box = nn.Conv2d(32, 4, 1)

    def forward(self, x: torch.Tensor, state: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        del scale
        small = functional.interpolate(x, scale_factor=0.5, mode="bilinear", align_corners=False)
        y = torch.relu(self.stem(small))
        r, z = torch.sigmoid(self.gates(torch.cat((y, state), 1))).chunk(2, 1)
        state = (1 - z) * state + z * torch.tanh(self.candidate(torch.cat((y, r * state), 1)))
        out = functional.interpolate(self.box(state), x.shape[2:], mode="bilinear", align_corners=False)
        return out, state


@entry("own_matting")
def _matting() -> Built:
    return Matting(), (images(256, 1), torch.randn(1, 32, 64, 64), torch.tensor([0.25]))


class Tuned(nn.Module):
    """Rows of a table beside labelled rows: attention between columns and between rows, as TabPFN's."""

    def __init__(self, width: int = 192, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Linear(1, width)
        self.label = nn.Linear(1, width)
        self.columns = nn.ModuleList(nn.MultiheadAttention(width, 6, batch_first=True) for _ in range(layers))
        self.rows = nn.ModuleList(nn.MultiheadAttention(width, 6, batch_first=True) for _ in range(layers))
        self.feed = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width * 4), nn.GELU(), nn.Linear(width * 4, width)) for _ in range(layers)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        train = y.shape[0]
        labels = functional.pad(self.label(y[:, None]), (0, 0, 0, x.shape[0] - train))
        h = torch.cat((self.embed(x[..., None]), labels[:, None]), 1)
        for columns, rows, feed in zip(self.columns, self.rows, self.feed, strict=True):
            h = h + columns(h, h, h, need_weights=False)[0]
            t = h.transpose(0, 1)
            t = t + rows(t, t[:, :train], t[:, :train], need_weights=False)[0]
            h = t.transpose(0, 1)
            h = functional.layer_norm(h + feed(h), (h.shape[-1],))
        return torch.as_tensor(self.head(h[train:, -1]))


@entry("own_tabpfn", batched=False)
def _tabpfn() -> Built:
    return Tuned(), (torch.randn(120, 20), torch.randint(0, 3, (100,)).float())


class Durations(nn.Module):
    """Text to frames by predicted durations, an LSTM over each, adaptive norms, an inverse transform by convolution."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.text = nn.Embedding(178, width)
        self.cell = nn.LSTM(width, width // 2, batch_first=True, bidirectional=True)
        self.steps = nn.Linear(width, 50)
        self.frames = nn.LSTM(width, width // 2, batch_first=True, bidirectional=True)
        self.style = nn.Linear(128, width * 2)
        self.norm = nn.InstanceNorm1d(width, affine=True)
        self.up = nn.ConvTranspose1d(width, 64, 20, 10, 5)
        self.out = nn.Conv1d(64, 22, 7, padding=3)
        self.wave = nn.ConvTranspose1d(22, 1, 20, 5, bias=False)

    def forward(self, ids: torch.Tensor, style: torch.Tensor, speed: torch.Tensor) -> torch.Tensor:
        h, _ = self.cell(self.text(ids))
        durations = torch.round(torch.sigmoid(self.steps(h)).sum(-1) / speed).clamp(min=1).long()[0]
        placed = torch.repeat_interleave(torch.arange(ids.shape[1]), durations)
        aligned = functional.one_hot(placed, ids.shape[1]).to(h.dtype)
        frames, _ = self.frames(aligned @ h)
        gain, shift = self.style(style)[..., None].chunk(2, 1)
        y = (1 + gain) * self.norm(frames.transpose(1, 2)) + shift
        y = y + torch.sin(y * 0.5) ** 2 / 0.5
        return torch.as_tensor(self.wave(torch.exp(self.out(functional.leaky_relu(self.up(y), 0.1)))))


@entry("own_durations", batched=False, forms=("ts",))
def _durations() -> Built:
    return Durations(), (torch.randint(0, 178, (1, 40)), torch.randn(1, 128), torch.ones(1))


class Firing(nn.Module):
    """Tokens from frames by weights that are summed until one is full (Paraformer's), without a loop."""

    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, width, 3, padding=1)
        self.weight = nn.Linear(width, 1)
        self.memory = nn.Conv1d(width, width, 11, padding=5, groups=width, bias=False)
        self.out = nn.Linear(width, 8404)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        alphas = torch.sigmoid(self.weight(torch.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)))[..., 0]
        summed = alphas.cumsum(-1)
        fired = torch.floor(summed)
        change = functional.pad(fired[:, 1:] - fired[:, :-1], (1, 0)) > 0
        weighted = (x * alphas[..., None]).cumsum(1)
        taken = weighted[change]
        tokens = taken - functional.pad(taken[:-1], (0, 0, 1, 0))
        y = tokens[None] + self.memory(tokens[None].transpose(1, 2)).transpose(1, 2)
        return torch.as_tensor(self.out(y))


@entry("own_firing", batched=False, forms=("ts",))
def _firing() -> Built:
    return Firing(), (torch.randn(1, 100, 512),)


class Ranker(nn.Module):
    """Fields of a click: bags, a cross network, attention over what was clicked before (DIN), two towers."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.fields = nn.ModuleList(nn.Embedding(1000, width) for _ in range(8))
        self.bag = nn.EmbeddingBag(5000, width, mode="mean")
        self.items = nn.Embedding(5000, width)
        self.unit = nn.Sequential(nn.Linear(4 * width, 64), nn.PReLU(), nn.Linear(64, 1))
        total = 10 * width
        self.cross = nn.ModuleList(nn.Linear(total, total) for _ in range(2))
        self.deep = nn.Sequential(nn.Linear(total, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 1))

    def forward(
        self, ids: torch.Tensor, words: torch.Tensor, item: torch.Tensor, past: torch.Tensor, length: torch.Tensor
    ) -> torch.Tensor:
        x = [field(ids[:, place]) for place, field in enumerate(self.fields)]
        query = self.items(item)[:, None].expand(-1, past.shape[1], -1)
        keys = self.items(past)
        scores = self.unit(torch.cat((query, keys, query - keys, query * keys), -1))[..., 0]
        mask = torch.arange(past.shape[1])[None] < length[:, None]
        interest = (torch.where(mask, scores, torch.zeros_like(scores))[:, None] @ keys)[:, 0]
        x0 = torch.cat([*x, self.bag(words), interest], -1)
        y = x0
        for layer in self.cross:
            y = x0 * layer(y) + y
        return torch.sigmoid(self.deep(y))


@entry("own_ranker", batched=False)
def _ranker() -> Built:
    return Ranker(), (
        torch.randint(0, 1000, (2, 8)),
        torch.randint(0, 5000, (2, 6)),
        torch.randint(0, 5000, (2,)),
        torch.randint(0, 5000, (2, 50)),
        torch.tensor([20, 50]),
    )


class Policy(nn.Module):
    """Images and joints to a chunk of actions (ACT): a backbone each, an encoder, a decoder over queries."""

    def __init__(self) -> None:
        super().__init__()
        import torchvision

        self.backbone = nn.Sequential(*list(torchvision.models.resnet18(weights=None).children())[:-2])
        self.project = nn.Conv2d(512, 256, 1)
        self.joints = nn.Linear(14, 256)
        self.body = nn.Transformer(256, 8, 1, 1, 1024, batch_first=True)
        self.queries = nn.Parameter(torch.randn(1, 100, 256))
        self.head = nn.Linear(256, 14)

    def forward(self, pictures: torch.Tensor, joints: torch.Tensor) -> torch.Tensor:
        b, n = pictures.shape[:2]
        seen = self.project(self.backbone(pictures.flatten(0, 1)))
        tokens = seen.flatten(2).unflatten(0, (b, n)).permute(0, 1, 3, 2).flatten(1, 2)
        tokens = torch.cat((tokens, self.joints(joints)[:, None]), 1)
        return torch.as_tensor(self.head(self.body(tokens, self.queries.expand(b, -1, -1))))


@entry("own_act_policy", batched=False)
def _policy() -> Built:
    return Policy(), (torch.randn(1, 2, 3, 224, 224), torch.randn(1, 14))


class Pairs(nn.Module):
    """A block over pairs of residues: outer product, triangle multiplication, triangle attention."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.outer = nn.Linear(32 * 32, width)
        self.left, self.right = nn.Linear(128, 32), nn.Linear(128, 32)
        self.norm = nn.LayerNorm(width)
        self.ab, self.gates = nn.Linear(width, width * 2), nn.Linear(width, width * 3)
        self.back = nn.Linear(width, width)
        self.bias = nn.Linear(width, heads, bias=False)
        self.qkv = nn.Linear(width, width * 3, bias=False)

    def forward(self, msa: torch.Tensor, pair: torch.Tensor) -> torch.Tensor:
        mixed = torch.einsum("bsic,bsjd->bijcd", self.left(msa), self.right(msa)) / msa.shape[1]
        pair = pair + self.outer(mixed.flatten(-2))
        z = self.norm(pair)
        g = torch.sigmoid(self.gates(z))
        a, b = (self.ab(z) * g[..., : 2 * z.shape[-1]]).chunk(2, -1)
        pair = pair + self.back(torch.einsum("bikc,bjkc->bijc", a, b)) * g[..., 2 * z.shape[-1] :]
        z = self.norm(pair)
        q, k, v = self.qkv(z).unflatten(-1, (3, self.heads, -1)).permute(3, 0, 1, 4, 2, 5)
        bias = self.bias(z).permute(0, 3, 1, 2)[:, None]
        attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return torch.as_tensor(pair + attended.permute(0, 1, 3, 2, 4).flatten(-2))


@entry("own_triangles", forms=("ts",))
def _pairs() -> Built:
    return Pairs(), (torch.randn(1, 16, 48, 128), torch.randn(1, 48, 48, 64))


class Spectral(nn.Module):
    """A Fourier neural operator: a transform, a product with few frequencies, and back."""

    def __init__(self, width: int = 32, modes: int = 12) -> None:
        super().__init__()
        self.modes = modes
        self.lift, self.skip, self.project = nn.Conv2d(1, width, 1), nn.Conv2d(width, width, 1), nn.Conv2d(width, 1, 1)
        self.weight = nn.Parameter(torch.randn(width, width, modes, modes, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.lift(x)
        f = torch.view_as_real(torch.fft.rfft2(h))[:, :, : self.modes, : self.modes]
        real = torch.einsum("bixy,ioxy->boxy", f[..., 0], self.weight[..., 0]) - torch.einsum(
            "bixy,ioxy->boxy", f[..., 1], self.weight[..., 1]
        )
        wide = functional.pad(real, (0, h.shape[-1] // 2 + 1 - self.modes, 0, h.shape[-2] - self.modes))
        back = torch.fft.irfft2(torch.complex(wide, wide), s=h.shape[-2:])
        return torch.as_tensor(self.project(functional.gelu(back + self.skip(h))))


@entry("own_spectral", forms=("dynamo",))
def _spectral() -> Built:
    return Spectral(), (images(64, 1, 1),)


class Hashed(nn.Module):
    """Positions to colours by hashed grids (a radiance field's): integers multiplied, mixed and looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ParameterList(nn.Parameter(torch.randn(2**14, 2)) for _ in range(4))
        self.body = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = []
        for level, table in enumerate(self.tables):
            place = torch.floor(x * 16 * 2**level).long()
            hashed = (place[:, 0] ^ (place[:, 1] * 2654435761) ^ (place[:, 2] * 805459861)) % table.shape[0]
            found.append(table[hashed])
        return torch.as_tensor(self.body(torch.cat(found, -1)))


@entry("own_hashed", opset=18, forms=("dynamo",))
def _hashed() -> Built:
    return Hashed(), (torch.rand(4096, 3),)


class Speaker(nn.Module):
    """A speaker's vector: dilated groups of channels, attentive statistics (ECAPA-TDNN)."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.first = nn.Conv1d(80, width, 5, padding=2)
        self.parts = nn.ModuleList(nn.Conv1d(width // 8, width // 8, 3, dilation=2, padding=2) for _ in range(7))
        self.squeeze = nn.Sequential(nn.Conv1d(width, 64, 1), nn.ReLU(), nn.Conv1d(64, width, 1), nn.Sigmoid())
        self.attention = nn.Sequential(nn.Conv1d(width * 3, 64, 1), nn.ReLU(), nn.Tanh(), nn.Conv1d(64, width, 1))
        self.norm = nn.BatchNorm1d(width * 2)
        self.out = nn.Conv1d(width * 2, 192, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x - x.mean(1, keepdim=True)
        h = torch.relu(self.first(x.transpose(1, 2)))
        chunks, done, last = h.chunk(8, 1), [h[:, : h.shape[1] // 8]], None
        for conv, chunk in zip(self.parts, chunks[1:], strict=True):
            last = torch.relu(conv(chunk if last is None else chunk + last))
            done.append(last)
        h = torch.cat(done, 1)
        h = h * self.squeeze(h.mean(-1, keepdim=True))
        mean, deviation = h.mean(-1, keepdim=True), h.var(-1, keepdim=True).clamp(min=1e-8).sqrt()
        weights = self.attention(torch.cat((h, mean.expand_as(h), deviation.expand_as(h)), 1)).softmax(-1)
        mean = (h * weights).sum(-1)
        deviation = ((h**2 * weights).sum(-1) - mean**2).clamp(min=1e-8).sqrt()
        vector = self.out(self.norm(torch.cat((mean, deviation), 1))[..., None])[..., 0]
        return functional.normalize(vector, dim=-1)


@entry("own_speaker")
def _speaker() -> Built:
    return Speaker(), (torch.randn(1, 200, 80),)


class Sparse(nn.Module):
    """A table by steps of attention over columns that sum to one and are mostly none (TabNet's sparsemax)."""

    def __init__(self, columns: int = 54, width: int = 64) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(columns)
        self.masks = nn.ModuleList(nn.Linear(width, columns) for _ in range(3))
        self.steps = nn.ModuleList(nn.Linear(columns, 4 * width) for _ in range(4))
        self.out = nn.Linear(width, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        prior = torch.ones_like(x)
        attended, decided = functional.glu(self.steps[0](x), -1).chunk(2, -1)
        total = torch.zeros_like(decided)
        for mask, step in zip(self.masks, list(self.steps)[1:], strict=True):
            logits = mask(attended) * prior
            ordered, _ = torch.sort(logits, -1, descending=True)
            places = torch.arange(1, logits.shape[-1] + 1, dtype=x.dtype)
            summed = ordered.cumsum(-1) - 1
            support = (places * ordered > summed).sum(-1, keepdim=True)
            chosen = torch.relu(logits - summed.gather(-1, support - 1) / support)
            prior = prior * (1.3 - chosen)
            attended, decided = functional.glu(step(chosen * x), -1).chunk(2, -1)
            total = total + torch.relu(decided)
        return torch.as_tensor(self.out(total))


@entry("own_tabnet")
def _tabnet() -> Built:
    return Sparse(), (torch.randn(8, 54),)


class Memory(nn.Module):
    """Frames that attend to a bank of earlier frames with rotated positions, two dimensions of them (SAM 2's)."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(64, width), nn.Linear(64, width)
        angles = torch.outer(torch.arange(4096).float(), 1 / 10_000 ** (torch.arange(width // 2) / (width // 2)))
        self.register_buffer("angles", angles)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, bank: torch.Tensor) -> torch.Tensor:
        def turned(y: torch.Tensor, repeats: int) -> torch.Tensor:
            cosine = self.angles[: y.shape[1] // repeats].cos().repeat(repeats, 1)
            sine = self.angles[: y.shape[1] // repeats].sin().repeat(repeats, 1)
            a, b = y.unflatten(-1, (-1, 2)).unbind(-1)
            return torch.stack((a * cosine - b * sine, a * sine + b * cosine), -1).flatten(-2)

        frames = bank.shape[1] // x.shape[1]
        q, k, v = turned(self.q(x), 1)[:, None], turned(self.k(bank), frames)[:, None], self.v(bank)[:, None]
        return torch.as_tensor(self.out(functional.scaled_dot_product_attention(q, k, v)[:, 0]) + x)


@entry("own_memory")
def _memory() -> Built:
    return Memory(), (torch.randn(1, 1024, 256), torch.randn(1, 7 * 1024, 64))


class Chunked(nn.Module):
    """A streaming encoder's layer with its caches (Zipformer's, Conformer's): keys, a convolution's past, a shift."""

    def __init__(self, width: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, width * 3), nn.Linear(width, width)
        self.position = nn.Linear(width, width, bias=False)
        self.glu, self.depth = nn.Linear(width, width * 2), nn.Conv1d(width, width, 31, groups=width)
        self.norm = nn.LayerNorm(width)

    def forward(
        self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, past: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        k, v = torch.cat((keys, k), 1), torch.cat((values, v), 1)

        def split(y: torch.Tensor) -> torch.Tensor:
            return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        p = split(self.position(positions))
        content = split(q) @ split(k).transpose(-1, -2)
        place = split(q) @ p.transpose(-1, -2)
        n = place.shape[-1]
        place = functional.pad(place, (1, 0)).reshape(b, self.heads, n + 1, t)[:, :, 1:].reshape(b, self.heads, t, n)
        scores = (content + place[..., : k.shape[1]]) * (w // self.heads) ** -0.5
        x = x + self.out((scores.softmax(-1) @ split(v)).transpose(1, 2).flatten(2))
        y = torch.cat((past, functional.glu(self.glu(x), -1).transpose(1, 2)), -1)
        x = x + functional.silu(self.depth(y)).transpose(1, 2)
        return x, k[:, t:], v[:, t:], y[..., -30:]


@entry("own_chunked", batched=False)
def _chunked() -> Built:
    return Chunked(), (
        torch.randn(1, 16, 256),
        torch.randn(1, 64, 256),
        torch.randn(1, 64, 256),
        torch.randn(1, 256, 30),
        torch.randn(1, 95, 256),
    )


if __name__ == "__main__":
    sys.exit(zoo.main(__doc__))
