"""Five small models in PyTorch, whose exports without the weights' bytes lie in ``trained/``.

``python tests/trained_models.py`` (with the extra ``torch``) writes those graphs anew and prints what autograd keeps of
a run forward. Imported without torch it fails: tests ask for torch first.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import onnx
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

FOLDER = Path(__file__).parent / "trained"
KEPT_IN_FILE_BYTES = 256


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(256, 1024), nn.Linear(1024, 1024), nn.Linear(1024, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(functional.relu(self.second(functional.relu(self.first(x)))))


class ResidualBlock(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(after)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(after)
        project = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
        self.project = nn.Identity() if stride == 1 and before == after else project

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(y)) + self.project(x))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 7, 2, 3, bias=False), nn.BatchNorm2d(32))
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks = nn.Sequential(ResidualBlock(32, 32, 1), ResidualBlock(32, 64, 2), ResidualBlock(64, 128, 2))
        self.head = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.blocks(self.pool(functional.relu(self.stem(x))))
        return self.head(torch.flatten(functional.adaptive_avg_pool2d(y, 1), 1))


def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Attention written out; (b, h, s, d) to (b, s, h d)."""
    b, h, s, d = q.shape
    scores = torch.matmul(q, k.transpose(-1, -2)) / d**0.5
    if mask is not None:
        scores = torch.where(mask[:, :, :s, :s], scores, torch.tensor(-1e9))
    return torch.matmul(functional.softmax(scores, -1), v).permute(0, 2, 1, 3).contiguous().view(b, s, h * d)


class EncoderLayer(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(hidden, hidden) for _ in range(3))
        self.output, self.norm = nn.Linear(hidden, hidden), nn.LayerNorm(hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.last_norm = nn.LayerNorm(hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, hidden = x.shape
        split = (b, s, self.heads, hidden // self.heads)
        q, k, v = (layer(x).view(split).permute(0, 2, 1, 3) for layer in (self.query, self.key, self.value))
        x = self.norm(x + self.output(attended(q, k, v, None)))
        return self.last_norm(x + self.down(functional.gelu(self.up(x))))


class DecoderLayer(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.last_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.projection, self.output = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.register_buffer("mask", torch.tril(torch.ones(64, 64, dtype=torch.bool)).view(1, 1, 64, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, hidden = x.shape
        split = (b, s, self.heads, hidden // self.heads)
        q, k, v = (part.view(split).transpose(1, 2) for part in self.projection(self.norm(x)).split(hidden, dim=2))
        x = x + self.output(attended(q, k, v, self.mask))
        return x + self.down(functional.gelu(self.up(self.last_norm(x)), approximate="tanh"))


class Transformer(nn.Module):
    """Encoder: post-norm, as BERT. Decoder: pre-norm, as GPT-2."""

    def __init__(self, layer: Callable[[int, int], nn.Module], *, normalized_first: bool) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(1000, 128), nn.Embedding(64, 128)
        self.norm, self.normalized_first = nn.LayerNorm(128), normalized_first
        self.layers = nn.ModuleList(layer(128, 4) for _ in range(3))
        self.head = nn.Linear(128, 1000, bias=normalized_first)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.positions(torch.arange(ids.shape[1]))
        x = self.norm(x) if self.normalized_first else x
        for layer in self.layers:
            x = layer(x)
        return self.head(x if self.normalized_first else self.norm(x))


class InvertedBlock(nn.Module):
    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.expand, self.expand_norm = nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.depthwise = nn.Conv2d(inner, inner, 3, 1, 1, groups=inner, bias=False)
        self.depthwise_norm = nn.BatchNorm2d(inner)
        self.squeeze, self.excite = nn.Conv2d(inner, inner // 4, 1), nn.Conv2d(inner // 4, inner, 1)
        self.project, self.project_norm = nn.Conv2d(inner, channels, 1, bias=False), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.silu(self.expand_norm(self.expand(x)))
        y = functional.silu(self.depthwise_norm(self.depthwise(y)))
        scale = torch.sigmoid(self.excite(functional.silu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        return x + self.project_norm(self.project(y * scale))


class MobileNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16))
        self.blocks = nn.Sequential(InvertedBlock(16, 64), InvertedBlock(16, 64))
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(functional.hardswish(self.stem(x))).mean((2, 3)))


def _images() -> torch.Tensor:
    return torch.randn(4, 3, 64, 64)


def _ids() -> torch.Tensor:
    return torch.randint(0, 1000, (2, 64))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "perceptron": (Perceptron, lambda: torch.randn(32, 256)),
    "resnet": (ResNet, _images),
    "bert": (lambda: Transformer(EncoderLayer, normalized_first=True), _ids),
    "gpt": (lambda: Transformer(DecoderLayer, normalized_first=False), _ids),
    "mobilenet": (MobileNet, _images),
}


def _again(layer: nn.Module) -> nn.Module:
    """The layer, run forward again before its gradients."""
    run = layer.forward
    layer.forward = lambda x: checkpoint(run, x, use_reentrant=True)  # type: ignore[method-assign]  # of this one alone
    return layer


def saved_bytes(name: str, *, recompute: bool = False) -> int:
    """Bytes that autograd keeps of a run forward: each storage once, parameters, buffers and the input left out.

    ``recompute``: the layers of a transformer are checkpointed, each by itself.
    """
    make, give = MODELS[name]
    model, given = make().train(), give()
    if recompute:
        for layer in model.layers:
            _again(layer)
    held = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers(), given)}
    found: dict[int, int] = {}
    alive = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in held:
            found[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = model(given)
    del result
    return sum(found.values())


def parameter_bytes(name: str) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in MODELS[name][0]().parameters())


def write(name: str) -> None:
    """Exports a model in training mode; of its weights types and shapes stay, no bytes."""
    make, give = MODELS[name]
    path = FOLDER / f"{name}.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            make().train(),
            (give(),),
            path,
            opset_version=17,
            dynamo=False,
            input_names=["x"],
            dynamic_axes={"x": {0: "batch"}},
            training=torch.onnx.TrainingMode.TRAINING,
            do_constant_folding=False,
        )
    model = onnx.load(path)
    place = 0
    for tensor in model.graph.initializer:
        size = len(tensor.raw_data)
        if size > KEPT_IN_FILE_BYTES:
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", f"{name}.weights"), ("offset", str(place)), ("length", str(size))):
                entry = tensor.external_data.add()
                entry.key, entry.value = key, value
            place += size
    for node in model.graph.node:
        node.ClearField("doc_string")
    path.write_bytes(model.SerializeToString())


if __name__ == "__main__":
    for each in MODELS:
        torch.manual_seed(0)
        write(each)
        again = saved_bytes(each, recompute=True) if each in ("bert", "gpt") else None
        print(f'    "{each}": ({saved_bytes(each)}, {parameter_bytes(each)}, {again}),')
