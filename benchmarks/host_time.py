"""What the host takes for operators and models of a PyTorch, and what measured rows show of it.

    STANDIN_LOG= LD_PRELOAD=... python benchmarks/host_time.py run [--gradients]
    python benchmarks/host_time.py floors SHARED

``run`` is for the Python of any PyTorch from 1.5 on, on the stand-ins that ``cuda_standin.py`` builds and whose
variables it prints: kernels take no time there and a launch no driver, so that Python, dispatcher, allocator and
TorchScript's interpreter are what is left, in us on the machine at hand. Models want ``transformers`` or
``torchvision`` beside it; with ``STANDIN_LOG`` naming a file their launches are counted, which makes times longer.
``floors`` prints the fifth percentile of event-timed rows, small kernels behind the host, by GPU and operator.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

BERT = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
OPERATORS = ("add", "addu", "tanh", "relu", "gelu", "softmax", "ln", "bmm", "linear")


def least_us(run: Callable[[], object], *, rounds: int, runs: int) -> float:
    """The least of ``rounds`` means over ``runs``: what other programs on the machine take is in the others."""
    best = float("inf")
    for _ in range(rounds):
        begun = time.perf_counter()
        for _ in range(runs):
            run()
        best = min(best, time.perf_counter() - begun)
    return 1e6 * best / runs


def operators(torch: Any) -> dict[str, Callable[[], object]]:
    """Calls as a model's code makes them, by name: functions in small letters, modules capitalised."""
    nn, functional = torch.nn, torch.nn.functional

    def zeros(*shape: int) -> Any:
        return torch.zeros(*shape, device="cuda")

    x, heads, scores, image = zeros(1, 8, 768), zeros(1, 12, 8, 64), zeros(1, 12, 8, 8), zeros(1, 64, 56, 56)
    keys = heads.transpose(-1, -2)
    linear, norm, softmax, relu = nn.Linear(768, 768).cuda(), nn.LayerNorm(768).cuda(), nn.Softmax(dim=-1), nn.ReLU()
    conv, batch_norm = nn.Conv2d(64, 64, 3, padding=1, bias=False).cuda(), nn.BatchNorm2d(64).cuda().eval()
    dropout = nn.Dropout(0.1).eval()
    return {
        "add": lambda: x + x,
        "add of a number": lambda: x + 1.0,
        "tanh": lambda: torch.tanh(x),
        "softmax": lambda: functional.softmax(scores, dim=-1),
        "matmul of heads": lambda: torch.matmul(scores, heads),
        "contiguous (a copy)": keys.contiguous,
        "ReLU": lambda: relu(x),
        "Softmax": lambda: softmax(scores),
        "LayerNorm": lambda: norm(x),
        "Linear": lambda: linear(x),
        "Conv2d": lambda: conv(image),
        "BatchNorm2d": lambda: batch_norm(image),
        "Dropout (no kernel)": lambda: dropout(x),
        "view": lambda: x.view(1, 8, 12, 64),
        "permute": lambda: heads.permute(0, 2, 1, 3),
        "contiguous (nothing to do)": x.contiguous,
    }


def models(torch: Any) -> dict[str, tuple[Any, Any]]:
    """Models with arbitrary weights, and an input of each: of the packages that are there."""
    found: dict[str, tuple[Any, Any]] = {}
    try:
        transformers = importlib.import_module("transformers")
    except ImportError:
        pass
    else:
        tokens = torch.ones(1, 8, dtype=torch.long).cuda()
        for name, sizes in (("BERT base", BERT), ("MiniLM-L6-H384", MINILM)):
            config = transformers.BertConfig(torchscript=True, **sizes)
            if hasattr(config, "_attn_implementation"):
                config._attn_implementation = "eager"
            found[name] = (transformers.BertModel(config), tokens)
    try:
        torchvision = importlib.import_module("torchvision")
    except ImportError:
        pass
    else:
        found["ResNet-50"] = (torchvision.models.resnet50(), torch.zeros(1, 3, 224, 224).cuda())
    return found


def launches(run: Callable[[], object]) -> str:
    """Lines that a run adds to the stand-ins' log; "" without one."""
    log = os.environ.get("STANDIN_LOG")
    if not log:
        return ""
    before = os.path.getsize(log)
    run()
    with open(log) as file:
        file.seek(before)
        return str(len(file.readlines()))


def run_all(*, gradients: bool) -> None:
    torch: Any = importlib.import_module("torch")
    if not torch.cuda.is_available():
        torch.cuda._check_driver = lambda: None  # cuda_standin.py says why 1.5 asks
    torch.set_num_threads(1)
    torch.set_grad_enabled(gradients)
    print(f"torch {torch.__version__}, gradients {'recorded' if gradients else 'off'}\n\n| operator | us |\n|---|---:|")
    for name, call in operators(torch).items():
        call()
        print(f"| {name} | {least_us(call, rounds=300, runs=20):.1f} |")
    print("\n| model | launches | eager, ms | TorchScript, ms |\n|---|---:|---:|---:|")
    for name, (model, given) in models(torch).items():
        wrapped = _traceable(torch, model).cuda().eval()
        traced = torch.jit.trace(wrapped, given, check_trace=False)
        times = []
        for run in (lambda m=wrapped, x=given: m(x), lambda m=traced, x=given: m(x)):
            for _ in range(5):
                run()
            times.append(least_us(run, rounds=200, runs=1) / 1e3)
        counts = "; ".join(launches(lambda m=m, x=given: m(x)) for m in (wrapped, traced)).strip("; ")
        print(f"| {name} | {counts} | {times[0]:.2f} | {times[1]:.2f} |")


def _traceable(torch: Any, model: Any) -> Any:
    """The model with its results as a tuple: tracing takes no dict."""

    class Traceable(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, given: Any) -> Any:
            result = self.model(given)
            return result if isinstance(result, torch.Tensor) else (result[0], result[1])

    return Traceable()


def floors(shared: Path) -> None:
    pyarrow: Any = importlib.import_module("pyarrow.parquet")  # PyTorch's Python has none
    rows = pyarrow.read_table(
        shared / "data/neusight/kernels_fp32.parquet", columns=["split", "gpu", "op", "latency_ms"]
    )
    times: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows.to_pylist():
        if row["split"] == "train" and row["op"] in OPERATORS:
            times[row["gpu"], row["op"]].append(1e3 * row["latency_ms"])
    print(f"| us | {' | '.join(OPERATORS)} |\n|---|{'---:|' * len(OPERATORS)}")
    for gpu in sorted({gpu for gpu, _ in times}):
        found = [sorted(times[gpu, operator]) for operator in OPERATORS]
        print(f"| {gpu} | {' | '.join(f'{each[len(each) // 20]:.1f}' if each else '' for each in found)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run").add_argument("--gradients", action="store_true", help="as where nobody turns them off")
    commands.add_parser("floors").add_argument("shared", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "run":
        sys.path.pop(0)  # packages import others that are called as files here
        run_all(gradients=arguments.gradients)
    elif not (arguments.shared / "data/neusight").is_dir():
        sys.exit(f"error: {arguments.shared} has no data/neusight")
    else:
        floors(arguments.shared)


if __name__ == "__main__":
    main()
