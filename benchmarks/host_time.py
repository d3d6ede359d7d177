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
import gc
import importlib
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeAlias  # PyTorch 1.5 runs in Python 3.8

BERT = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
OPERATORS = ("add", "addu", "tanh", "relu", "gelu", "softmax", "ln", "bmm", "linear")


def least_us(run: Callable[[], object], *, rounds: int, runs: int) -> float:
    """The least of ``rounds`` means over ``runs``: what other programs on the machine take is in the others.

    What exists already isn't searched for garbage meanwhile: a program of its own would have less.
    """
    gc.collect()
    gc.freeze()
    best = float("inf")
    for _ in range(rounds):
        begun = time.perf_counter()
        for _ in range(runs):
            run()
        best = min(best, time.perf_counter() - begun)
    return 1e6 * best / runs


Calls: TypeAlias = "dict[str, dict[str, Callable[[], object]]]"
"""Calls by kind (:mod:`neusight_onnx.eager_host` has a figure for each) and name."""


def operators(torch: Any) -> Calls:
    """Calls as a model's code makes them: functions in small letters, modules capitalised."""
    nn, functional = torch.nn, torch.nn.functional

    def zeros(*shape: int) -> Any:
        return torch.zeros(*shape, device="cuda")

    def module(made: Any, *given: Any) -> Callable[[], object]:
        on_gpu = made.cuda().eval()
        return lambda: on_gpu(*given)

    x, heads, scores, image = zeros(1, 8, 768), zeros(1, 12, 8, 64), zeros(1, 12, 8, 8), zeros(1, 64, 56, 56)
    keys, mask, matrix = heads.transpose(-1, -2), scores > 0, zeros(8, 768)
    tokens, weight, places = zeros(1, 8).long(), zeros(768, 768), zeros(8).long()
    columns, steps = zeros(8, 1).long(), zeros(32, 8, 256)
    found: Calls = {
        "linear": {
            "Linear": module(nn.Linear(768, 768), x),
            "Linear without bias": module(nn.Linear(768, 768, bias=False), x),
        },
        "matmul": {
            "matmul of matrices": lambda: torch.matmul(matrix, weight),
            "matmul of heads": lambda: torch.matmul(scores, heads),
            "matmul of heads turned": lambda: torch.matmul(heads, keys),
        },
        "convolution": {
            "Conv2d": module(nn.Conv2d(64, 64, 3, padding=1), image),
            "Conv2d without bias": module(nn.Conv2d(64, 64, 3, padding=1, bias=False), image),
            "ConvTranspose2d": module(nn.ConvTranspose2d(64, 64, 2, stride=2), image),
        },
        "batch normalization": {"BatchNorm2d": module(nn.BatchNorm2d(64), image)},
        "layer normalization": {"LayerNorm": module(nn.LayerNorm(768), x)},
        "group normalization": {
            "GroupNorm": module(nn.GroupNorm(32, 64), image),
            "InstanceNorm2d": module(nn.InstanceNorm2d(64), image),
            "InstanceNorm2d with parameters": module(nn.InstanceNorm2d(64, affine=True), image),
        },
        "activation": {
            "ReLU": module(nn.ReLU(inplace=True), image),
            "GELU": module(nn.GELU(), x),
            "Sigmoid": module(nn.Sigmoid(), x),
            "gelu": lambda: functional.gelu(x),
            "relu": lambda: functional.relu(x),
        },
        "arithmetic": {
            "add": lambda: x + x,
            "add of a number": lambda: x + 1.0,
            "mul": lambda: x * x,
            "pow of a number": lambda: x**2.0,
            "sqrt": lambda: torch.sqrt(x),
            "tanh": lambda: torch.tanh(x),
            "masked_fill": lambda: scores.masked_fill(mask, 0.0),
            "where": lambda: torch.where(mask, scores, scores),
        },
        "softmax": {
            "Softmax": module(nn.Softmax(dim=-1), scores),
            "softmax": lambda: functional.softmax(scores, dim=-1),
        },
        "reduction": {
            "mean of a dimension": lambda: x.mean(-1, keepdim=True),
            "sum of a dimension": lambda: x.sum(-1),
            "argmax": lambda: x.argmax(-1),
        },
        "copy": {
            "contiguous": keys.contiguous,
            "clone": x.clone,
            "cat": lambda: torch.cat((x, x), -1),
            "to another type": lambda: x.to(torch.float16),
            "pad": lambda: functional.pad(image, (1, 1, 1, 1)),
        },
        "embedding": {"Embedding": module(nn.Embedding(1000, 768), tokens)},
        "gather": {
            "index_select": lambda: torch.index_select(matrix, 0, places),
            "indices in brackets": lambda: matrix[places],
            "gather": lambda: torch.gather(matrix, 1, columns),
        },
        "recurrent": {
            "LSTM": module(nn.LSTM(256, 256), steps),
            "LSTM of two layers": module(nn.LSTM(256, 256, num_layers=2), steps),
            "LSTM in two directions": module(nn.LSTM(256, 256, bidirectional=True), steps),
            "GRU": module(nn.GRU(256, 256), steps),
            "RNN": module(nn.RNN(256, 256), steps),
        },
        "row": {
            "Sequential of eight Linear and ReLU": module(nn.Sequential(*[nn.Linear(768, 768), nn.ReLU()] * 8), x),
            "Sequential of eight Conv2d and ReLU": module(
                nn.Sequential(*[nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()] * 8), image
            ),
        },
        "pooling": {
            "MaxPool2d": module(nn.MaxPool2d(3, 2, 1), image),
            "AvgPool2d": module(nn.AvgPool2d(2), image),
            "AdaptiveAvgPool2d": module(nn.AdaptiveAvgPool2d(1), image),
        },
        "sort": {"topk": lambda: torch.topk(x, 5), "sort": lambda: torch.sort(x), "cumsum": lambda: x.cumsum(-1)},
        "resize": {"interpolate": lambda: functional.interpolate(image, scale_factor=2.0, mode="nearest")},
        "view": {
            "view": lambda: x.view(1, 8, 12, 64),
            "permute": lambda: heads.permute(0, 2, 1, 3),
            "transpose": lambda: x.transpose(0, 1),
            "expand": lambda: x.expand(4, 8, 768),
            "slice": lambda: x[:, 1:],
            "chunk (three views)": lambda: x.chunk(3, -1),
            "flatten": lambda: image.flatten(1),
            "contiguous (nothing to do)": x.contiguous,
            "Dropout (no kernel)": module(nn.Dropout(0.1), x),
        },
    }
    if hasattr(functional, "scaled_dot_product_attention"):
        attend = functional.scaled_dot_product_attention
        found["attention"] = {"scaled_dot_product_attention": lambda: attend(heads, heads, heads)}
    return found


def backwards(torch: Any) -> Calls:
    """Of one operator in a row of :data:`ROW`: gradients through all of them, by autograd's engine."""
    nn = torch.nn

    def of(calls: Sequence[Callable[[Any], Any]], given: Any, *parameters: Any) -> Callable[[], object]:
        given.requires_grad_()
        last = given
        for call in calls:
            last = call(last)
        gradient = torch.zeros_like(last)
        return lambda: torch.autograd.grad(last, (given, *parameters), gradient, retain_graph=True)

    def module(made: Callable[[], Any], given: Any) -> Callable[[], object]:
        row = [made().cuda().train() for _ in range(ROW)]
        return of(row, given, *(parameter for each in row for parameter in each.parameters()))

    def function(call: Callable[[Any], Any], given: Any) -> Callable[[], object]:
        return of([call] * ROW, given)

    def zeros(*shape: int) -> Any:
        return torch.zeros(*shape, device="cuda")

    image = (1, 64, 56, 56)
    others = [zeros(1, 12, 8, 8).requires_grad_() for _ in range(ROW)]
    return {
        "backward": {
            "Linear": module(lambda: nn.Linear(768, 768), zeros(1, 8, 768)),
            "Linear without bias": module(lambda: nn.Linear(768, 768, bias=False), zeros(1, 8, 768)),
            "matmul of heads": of([partial(torch.matmul, other) for other in others], zeros(1, 12, 8, 8), *others),
            "Conv2d": module(lambda: nn.Conv2d(64, 64, 3, padding=1), zeros(*image)),
            "Conv2d without bias": module(lambda: nn.Conv2d(64, 64, 3, padding=1, bias=False), zeros(*image)),
            "BatchNorm2d": module(lambda: nn.BatchNorm2d(64), zeros(*image)),
            "LayerNorm": module(lambda: nn.LayerNorm(768), zeros(1, 8, 768)),
            "GroupNorm": module(lambda: nn.GroupNorm(32, 64), zeros(*image)),
            "InstanceNorm2d": module(lambda: nn.InstanceNorm2d(64), zeros(*image)),
            "InstanceNorm2d with parameters": module(lambda: nn.InstanceNorm2d(64, affine=True), zeros(*image)),
            "ReLU": module(nn.ReLU, zeros(1, 8, 768)),
            "GELU": module(nn.GELU, zeros(1, 8, 768)),
            "mul of a number": function(lambda x: x * 2.0, zeros(1, 8, 768)),
            "softmax": function(lambda x: x.softmax(-1), zeros(1, 12, 8, 8)),
            "contiguous": function(lambda x: x.transpose(-1, -2).contiguous(), zeros(1, 12, 8, 8)),
            "MaxPool2d": module(lambda: nn.MaxPool2d(3, 1, 1), zeros(*image)),
            "add": function(lambda x: x + 1.0, zeros(1, 8, 768)),
            "transpose": function(lambda x: x.transpose(0, 1), zeros(1, 8, 768)),
        }
    }


ROW = 50
"""Operators in a row, for what one takes backwards."""


def optimizers(torch: Any) -> Calls:
    """A step over 160 parameters, as BERT base and ResNet-50 have about so many."""
    found: dict[str, Callable[[], object]] = {}
    kinds = (
        ("SGD", {"momentum": 0.9}),
        ("Adam", {}),
        ("AdamW", {}),
        ("Adam", {"fused": True}),
        ("Adam", {"foreach": False}),
    )
    for name, options in kinds:
        parameters = [torch.nn.Parameter(torch.zeros(64, 64, device="cuda")) for _ in range(160)]
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        how = next(iter(options)) if name == "Adam" and options else ""
        found[f"{name} {how}".strip()] = getattr(torch.optim, name)(parameters, lr=1e-3, **options).step
    return {"optimizer": found}


def autocasts(torch: Any) -> Calls:
    """Under autocast, casts of inputs included; those of weights are kept until it ends."""
    nn = torch.nn
    linear, norm = nn.Linear(768, 768).cuda(), nn.LayerNorm(768).cuda()
    x = torch.zeros(1, 8, 768, device="cuda")
    half = x.half()
    return {
        "autocast": {
            "Linear of FP16": lambda: linear(half),
            "Linear of FP32 (casts it)": lambda: linear(x),
            "LayerNorm of FP16 (casts it)": lambda: norm(half),
            "LayerNorm of FP32": lambda: norm(x),
            "add": lambda: x + x,
        }
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
        for name in VISION:
            found[name] = (getattr(torchvision.models, name)(), torch.zeros(1, 3, 224, 224).cuda())
    return found


VISION = ("resnet50", "vgg16", "mobilenet_v2", "efficientnet_b0", "convnext_tiny", "vit_b_16", "swin_t")
"""Torchvision's models by the functions that make them."""

CALLS_OF = {
    "linear": "addmm mm",
    "matmul": "bmm baddbmm",
    "convolution": "convolution",
    "batch normalization": "native_batch_norm cudnn_batch_norm _native_batch_norm_legit_no_training",
    "layer normalization": "native_layer_norm",
    "group normalization": "native_group_norm",
    "activation": "relu relu_ gelu silu silu_ sigmoid hardtanh hardtanh_ hardsigmoid hardswish hardswish_",
    "softmax": "_softmax",
    "reduction": "mean sum argmax amax var",
    "copy": "clone cat _to_copy copy_ constant_pad_nd roll stack",
    "embedding": "embedding",
    "gather": "index index_select gather",
    "pooling": "max_pool2d_with_indices avg_pool2d _adaptive_avg_pool2d",
    "attention": "_scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention",
    "view": "view _unsafe_view permute transpose t expand slice select unsqueeze squeeze split split_with_sizes unbind "
    "alias detach as_strided",
}
"""Names of the operators below a model's calls that tell its kinds; others are arithmetic."""


def kinds_of(run: Callable[[], object]) -> Mapping[str, int]:
    """How often a run calls each kind: what PyTorch 2's dispatcher sees of it; nothing where there is no such mode.

    A view that belongs to a linear layer, to a product or to a normalization is in their time already.
    """
    try:
        base: Any = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode
    except ImportError:
        return {}
    kind_of = {name: kind for kind, names in CALLS_OF.items() for name in names.split()}
    found: Counter[str] = Counter()

    class Counting(base):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found[kind_of.get(function.__name__.partition(".")[0], "arithmetic")] += 1
            return function(*args, **(kwargs or {}))

    with Counting():
        run()
    inside = 3 * found["linear"] + 5 * found["matmul"]  # t and two views; expand and view of both, and of the result
    found["view"] = max(0, found["view"] - inside)
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
    print(f"torch {torch.__version__}, gradients {'recorded' if gradients else 'off'}")
    least = _print_calls(operators(torch))
    if gradients:
        _print_calls(backwards(torch), runs=2, each=ROW)
        _print_calls(optimizers(torch), runs=2)
        with torch.autocast("cuda", torch.float16):
            _print_calls(autocasts(torch))
    print("\n| model | launches | eager, ms | its operators alone, ms | TorchScript, ms |\n|---|---:|---:|---:|---:|")
    for name, (model, given) in models(torch).items():
        wrapped = _traceable(torch, model).cuda().eval()
        traced = torch.jit.trace(wrapped, given, check_trace=False)
        times = []
        for run in (lambda m=wrapped, x=given: m(x), lambda m=traced, x=given: m(x)):
            for _ in range(5):
                run()
            times.append(least_us(run, rounds=200, runs=1) / 1e3)
        counts = "; ".join(launches(lambda m=m, x=given: m(x)) for m in (wrapped, traced)).strip("; ")
        kinds = kinds_of(lambda m=wrapped, x=given: m(x))
        alone = f"{sum(count * least.get(kind, 0.0) for kind, count in kinds.items()) / 1e3:.2f}" if kinds else ""
        print(f"| {name} | {counts} | {times[0]:.2f} | {alone} | {times[1]:.2f} |", flush=True)


def _print_calls(calls: Calls, *, runs: int = 20, each: int = 1) -> Mapping[str, float]:
    """Prints us and, where they are counted, launches; of one of ``each`` that a call stands for. Means by kind."""
    means: dict[str, float] = {}
    counted = "STANDIN_LOG" in os.environ
    print(f"\n| kind | operator | us |{' launches |' * counted}\n|---|---|---:|{'---:|' * counted}")
    for kind, named in calls.items():
        taken = []
        for name, call in named.items():
            call()
            taken.append(least_us(call, rounds=15 * runs, runs=runs) / each)
            count = launches(call)
            print(f"| {kind} | {name} | {taken[-1]:.1f} |{f' {int(count) / each:g} |' if count else ''}", flush=True)
        means[kind] = sum(taken) / len(taken)
    return means


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
