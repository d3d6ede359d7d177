"""What is trained of modules that PyTorch exports for training: each parameter that autograd gives a gradient to."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neusight_onnx import analyze
from neusight_onnx.backward import make_training

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional


def module(parts: dict[str, Any], forward: Callable[..., Any], **parameters: Any) -> Any:
    """A module below a Sequential, as most are: its parameters have names with a dot."""

    class Made(nn.Module):  # type: ignore[misc,name-defined]  # torch is there or not
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)
            for name, value in parameters.items():
                setattr(self, name, nn.Parameter(value))

        def forward(self, x: Any) -> Any:
            return forward(self, x)

    return nn.Sequential(Made())


def linear(n: int = 16) -> dict[str, Any]:
    return {"linear": nn.Linear(16, n)}


MODULES: dict[str, Callable[[], Any]] = {
    "a bag of embeddings": lambda: nn.Sequential(nn.EmbeddingBag(10, 16, mode="mean"), nn.Linear(16, 4)),
    "the last state of an LSTM": lambda: module(
        {"cell": nn.LSTM(16, 12, batch_first=True), "head": nn.Linear(12, 4)},
        lambda self, x: self.head(self.cell(x)[1][0][-1]),
    ),
    "a GRU of two layers": lambda: module(
        {"cell": nn.GRU(16, 12, 2, batch_first=True)}, lambda self, x: self.cell(x)[0]
    ),
    "a temperature": lambda: module(linear(), lambda self, x: (self.linear(x) * self.t).softmax(-1), t=torch.ones(1)),
    "a gate of one number": lambda: module(
        linear(), lambda self, x: x + self.t.tanh() * self.linear(x), t=torch.ones(1)
    ),
    "one output": lambda: nn.Sequential(nn.Linear(16, 1)),
    "a slope for all": lambda: nn.Sequential(nn.Linear(16, 16), nn.PReLU()),
    "a product with a vector": lambda: module(linear(), lambda self, x: self.linear(x) @ self.v, v=torch.ones(16)),
    "a scale of an input's normalization": lambda: module(
        linear(),
        lambda self, x: self.linear(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.g),
        g=torch.ones(16),
    ),
    "weight normalization": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(16, 8))),
    "an einsum of three": lambda: module(
        {}, lambda self, x: torch.einsum("btd,rd,re->bte", x, self.a, self.b), a=torch.ones(4, 16), b=torch.ones(4, 8)
    ),
    "relative positions": lambda: module(
        linear(8),
        lambda self, x: self.linear(x) + self.table[torch.arange(64) % 15].reshape(8, 8),
        table=torch.ones(15),
    ),
}


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
def test_every_parameter_is_trained(tmp_path: Path, make: Callable[[], Any]) -> None:
    model = make().train()
    bags = any(isinstance(part, nn.EmbeddingBag) for part in model)
    x = torch.ones(2, 6, dtype=torch.long) if bags else torch.ones(2, 8, 16)
    gradients = torch.autograd.grad(model(x).sum(), list(model.parameters()), allow_unused=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (x,),
            str(tmp_path / "m.onnx"),
            dynamo=False,
            training=torch.onnx.TrainingMode.TRAINING,
            do_constant_folding=False,
        )
    report = analyze(tmp_path / "m.onnx", gpu="a100", training=make_training(loss="mse"))
    assert report.training is not None
    expected = sum(gradient.numel() for gradient in gradients if gradient is not None)
    assert report.training.trained_parameter_count == expected
    assert not report.totals.partial
