"""Builds files as they were measured, where the graphs at hand are others, with the index that ``models.py`` reads.

    python3.8 benchmarks/as_measured.py FOLDER onnxruntime-1.4
    python3.8 benchmarks/as_measured.py FOLDER transformer-deploy
    python3.8 benchmarks/as_measured.py FOLDER nvidia-bert

Each recipe wants a Python with the packages of its time (:data:`RECIPES`), all of them on PyPI; no GPU, no weights,
nothing of this project. ``models.py SHARED --as-measured FOLDER`` judges the rows that a file fits a second time,
beside the graph at hand. Weights are arbitrary and become references to data that is never written. Models that are
there stay, so that it can be run again.

- ``onnxruntime-1.4``: the transformers page of ONNX Runtime 1.4. GPT-2 with its cache and BERT go through the tool that
  the page names, in its release of that time (``onnxruntime-tools``): exported by PyTorch 1.5 from transformers 3.0,
  then rewritten by its optimiser, in FP32 and FP16, as its benchmarks do. Attention and cache are one operator. What
  TorchScript ran are files of their own, as exported.
- ``transformer-deploy``: MiniLM and two RoBERTas as that project's ``convert_model`` of 2021 wrote them, as remembered:
  exported with opset 12, batch and length left free; then, in FP16 for ONNX Runtime, rewritten by the optimiser of 1.9
  as a BERT, GELU approximated. TensorRT and PyTorch ran the export, or the module.
- ``nvidia-bert``: the BERT of NVIDIA's DeepLearningExamples under Triton, written anew here. As remembered of its
  modelling code: layer normalization where apex isn't used is a formula that squares by a product, the bias of the
  first feed-forward layer is added in front of the activation, heads are put in order by permutations of reshaped
  projections, a mask of 0 and 1 becomes 0 and -10000; it is converted to FP16 before it is exported with opset 13, the
  batch left free.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import math
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import onnx
import onnx.numpy_helper
import torch
from torch import Tensor, nn
from torch.nn import functional

RECIPES = {
    "onnxruntime-1.4": "torch==1.5.1 transformers==3.0.2 onnx==1.7.0 onnxruntime==1.4.0 onnxruntime-tools==1.4.2",
    "transformer-deploy": (
        "torch==1.10.2 transformers==4.12.5 onnx==1.10.2 onnxruntime==1.9.0 coloredlogs packaging sympy"
    ),
    "nvidia-bert": "torch==1.10.2 onnx==1.10.2",
}
"""What ``pip install`` gets in a Python 3.8, with "numpy<1.24" and "protobuf<3.21" each time."""
LARGEST_INLINE_BYTES = 1024
"""Constants of more bytes become references; the shapes of a graph don't follow from those."""
DEPLOYED = {
    "minilm": "philschmid/MiniLM-L6-H384-uncased-sst2",
    "roberta_base": "cardiffnlp/twitter-roberta-base-sentiment",
    "roberta_large": "roberta-large-mnli",
}
BERT_ROWS = "PyTorch/LanguageModeling/BERT/triton/"


@dataclass(frozen=True)
class Entry:
    """A file and its rows: what they call the model, how their runtime begins, their number format."""

    file: str
    csv_model: str
    source_repo: str
    runtime: str
    dtype: str


ENTRIES = (
    *(
        Entry(f"{kind}_{form}.onnx", model, "microsoft/onnxruntime", runtime, dtype)
        for kind, model in (("gpt2", "gpt2 (decode, 1 new token)"), ("bert", "bert-base-uncased"))
        for form, runtime, dtype in (
            ("fp32", "onnxruntime 1.4.0", "fp32"),
            ("fp16", "onnxruntime 1.4.0", "fp16"),
            ("raw", "torchscript 1.5.1", "fp32"),
        )
    ),
    *(
        Entry(f"{kind}_{form}.onnx", model, "ELS-RD/transformer-deploy", runtime, dtype)
        for kind, model in DEPLOYED.items()
        for form, runtime, dtype in (
            ("raw", "ONNX Runtime (vanilla)", "FP32"),
            ("raw", "Pytorch", "FP32"),
            ("raw", "Pytorch", "FP16"),
            ("raw", "TensorRT", "FP16"),
            ("fp16", "ONNX Runtime (optimized)", "FP16"),
        )
    ),
    *(
        Entry(f"nvidia_bert_{kind}.onnx", BERT_ROWS + kind, "NVIDIA/DeepLearningExamples", "Triton", "float16")
        for kind in ("large", "dist4l", "dist6l")
    ),
)


def write_index(folder: Path) -> None:
    """Lists the folder's files in its ``index.csv``."""
    there = [asdict(entry) for entry in ENTRIES if (folder / entry.file).exists()]
    with (folder / "index.csv").open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(asdict(ENTRIES[0])))
        writer.writeheader()
        writer.writerows(there)
    print(f"{len(there)} lines in {folder / 'index.csv'}")


def write_without_weights(model: onnx.ModelProto, path: Path) -> None:
    """Writes a model; large constants in floating point become references into a file that isn't there."""
    widths = {onnx.TensorProto.FLOAT: 4, onnx.TensorProto.FLOAT16: 2}
    offset = 0
    constants = [a.t for node in model.graph.node if node.op_type == "Constant" for a in node.attribute]
    for tensor in [*model.graph.initializer, *constants]:
        length = widths.get(tensor.data_type, 0) * math.prod(tensor.dims)
        if length <= LARGEST_INLINE_BYTES:
            continue
        for field in ("raw_data", "float_data", "int32_data"):
            tensor.ClearField(field)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", path.name + ".data"), ("offset", offset), ("length", length)):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)
        offset += length
    path.write_bytes(model.SerializeToString())


def onnxruntime_1_4(folder: Path) -> None:
    """GPT-2 and BERT base by the tools of ONNX Runtime 1.4, whose modules import each other from their folder."""
    tools = importlib.import_module("onnxruntime_tools")
    sys.path.insert(0, str(Path(str(tools.__file__)).parent / "transformers"))
    for make in (_gpt2, _bert):
        with tempfile.TemporaryDirectory() as made:
            make(Path(made), folder)


def _gpt2(made: Path, folder: Path) -> None:
    if (folder / "gpt2_fp16.onnx").exists():
        return
    transformers = importlib.import_module("transformers")
    tool = importlib.import_module("gpt2_helper")
    config = transformers.GPT2Config()
    raw = str(made / "raw.onnx")
    tool.Gpt2Helper.export_onnx(tool.MyGPT2LMHeadModel(config).eval(), torch.device("cpu"), raw)
    write_without_weights(onnx.load(raw), folder / "gpt2_raw.onnx")
    for name in ("fp32", "fp16"):
        optimised = str(made / f"{name}.onnx")
        tool.Gpt2Helper.optimize_onnx(raw, optimised, name == "fp16", config.n_head, config.n_embd)
        write_without_weights(onnx.load(optimised), folder / f"gpt2_{name}.onnx")


def _bert(made: Path, folder: Path) -> None:
    if (folder / "bert_fp16.onnx").exists():
        return
    transformers = importlib.import_module("transformers")
    tool = importlib.import_module("onnx_exporter")
    precision = importlib.import_module("benchmark_helper").Precision
    config = transformers.BertConfig()
    raw = str(made / "raw.onnx")
    axes = {0: "batch_size", 1: "seq_len"}
    torch.onnx.export(
        transformers.BertModel(config).eval(),
        (torch.arange(1, 9).reshape(1, 8),),
        raw,
        opset_version=11,
        input_names=["input_ids"],
        output_names=["output_1", "output_2"],
        dynamic_axes={"input_ids": axes, "output_1": axes, "output_2": {0: "batch_size"}},
    )
    write_without_weights(onnx.load(raw), folder / "bert_raw.onnx")
    for name, kind in (("fp32", precision.FLOAT32), ("fp16", precision.FLOAT16)):
        optimised = str(made / f"{name}.onnx")
        heads, width = config.num_attention_heads, config.hidden_size
        tool.optimize_onnx_model(raw, optimised, "bert", heads, width, True, kind, False, True, {})
        write_without_weights(onnx.load(optimised), folder / f"bert_{name}.onnx")


def transformer_deploy(folder: Path) -> None:
    """Classifiers of sequences: MiniLM of 6 layers, RoBERTa base and large."""
    optimizer = importlib.import_module("onnxruntime.transformers.optimizer")
    options = importlib.import_module("onnxruntime.transformers.fusion_options").FusionOptions("bert")
    options.enable_gelu_approximation = True
    transformers = importlib.import_module("transformers")
    roberta = {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1, "num_labels": 3}
    wide = {"num_hidden_layers": 24, "hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096}
    small = {"num_hidden_layers": 6, "hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536}
    bert, other = transformers.BertForSequenceClassification, transformers.RobertaForSequenceClassification
    builders = {
        "minilm": lambda: bert(transformers.BertConfig(**small)),
        "roberta_base": lambda: other(transformers.RobertaConfig(**roberta)),
        "roberta_large": lambda: other(transformers.RobertaConfig(**roberta, **wide)),
    }
    for kind, build in builders.items():
        if (folder / f"{kind}_fp16.onnx").exists():
            continue
        names = ["input_ids", *(["token_type_ids"] if kind == "minilm" else []), "attention_mask"]
        given = {name: torch.ones(1, 16, dtype=torch.long) for name in names}
        with torch.no_grad(), tempfile.TemporaryDirectory() as made:
            raw, optimised = (str(Path(made) / f"{form}.onnx") for form in ("raw", "fp16"))
            torch.onnx.export(
                build().eval(),
                (given,),
                raw,
                opset_version=12,
                input_names=names,
                output_names=["output"],
                dynamic_axes={
                    **{name: {0: "batch_size", 1: "sequence"} for name in names},
                    "output": {0: "batch_size"},
                },
            )
            write_without_weights(onnx.load(raw), folder / f"{kind}_raw.onnx")
            rewritten = optimizer.optimize_model(
                raw, "bert", num_heads=0, hidden_size=0, opt_level=1, optimization_options=options
            )
            rewritten.convert_float_to_float16()
            rewritten.save_model_to_file(optimised)
            write_without_weights(onnx.load(optimised), folder / f"{kind}_fp16.onnx")


class FormulaLayerNorm(nn.Module):
    """Layer normalization over the last dimension, each step an operator of its own; the square is a product."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width))
        self.shift = nn.Parameter(torch.rand(width))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        deviation = x - mean
        square = deviation * deviation
        variance = square.mean(-1, keepdim=True)
        return self.scale * ((x - mean) / torch.sqrt(variance + 1e-12)) + self.shift


class Attention(nn.Module):
    """(b, s, d) and a mask (b, 1, 1, s) that is added to the scores -> (b, s, d), in h heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head_width = heads, width // heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm = FormulaLayerNorm(width)

    def split(self, x: Tensor) -> Tensor:
        return torch.reshape(x, (*x.size()[:-1], self.heads, self.head_width))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        queries = self.split(self.query(x)).permute(0, 2, 1, 3)
        keys = self.split(self.key(x)).permute(0, 2, 3, 1)
        values = self.split(self.value(x)).permute(0, 2, 1, 3)
        scores = torch.matmul(queries, keys) / math.sqrt(self.head_width) + mask
        found = torch.matmul(functional.softmax(scores, dim=-1), values).permute(0, 2, 1, 3).contiguous()
        return self.norm(self.out(torch.reshape(found, (*found.size()[:-2], x.size(-1)))) + x)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.widen = nn.Linear(width, inner)
        self.narrow = nn.Linear(inner, width)
        self.norm = FormulaLayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention(x, mask)
        wide = functional.gelu(self.widen.bias + functional.linear(x, self.widen.weight))
        return self.norm(self.narrow(wide) + x)


class QuestionAnswering(nn.Module):
    """Tokens, segments and mask, each (b, s) -> where an answer begins and where it ends, each (b, s)."""

    def __init__(self, layers: int, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.words = nn.Embedding(30528, width)
        self.positions = nn.Embedding(512, width)
        self.segments = nn.Embedding(2, width)
        self.norm = FormulaLayerNorm(width)
        self.layers = nn.ModuleList(Layer(width, heads, inner) for _ in range(layers))
        self.answer = nn.Linear(width, 2)

    def forward(self, tokens: Tensor, segments: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(tokens.size(1), dtype=torch.long).unsqueeze(0).expand_as(tokens)
        x = self.norm(self.words(tokens) + self.positions(places) + self.segments(segments))
        mask = (1.0 - given.unsqueeze(1).unsqueeze(2).to(x.dtype)) * -10000.0
        for layer in self.layers:
            x = layer(x, mask)
        begin, end = self.answer(x).split(1, dim=-1)
        return begin.squeeze(-1), end.squeeze(-1)


def halve(model: onnx.ModelProto) -> None:
    """Makes all of a float32 model float16, as if its module had been before the export: PyTorch of that time has
    no products in FP16 on a CPU."""
    single, half = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
    constants = [a.t for node in model.graph.node if node.op_type == "Constant" for a in node.attribute]
    for tensor in [*model.graph.initializer, *constants]:
        if tensor.data_type == single:
            values = onnx.numpy_helper.to_array(tensor).astype("float16")
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == single:
                attribute.i = half
    for value in [*model.graph.input, *model.graph.output]:
        if value.type.tensor_type.elem_type == single:
            value.type.tensor_type.elem_type = half
    del model.graph.value_info[:]


def nvidia_bert(folder: Path) -> None:
    """BERT large and its two distilled forms (4 layers of 312, 6 of 768) for question answering, 384 tokens."""
    sizes = {"large": (24, 1024, 16, 4096), "dist4l": (4, 312, 12, 1200), "dist6l": (6, 768, 12, 3072)}
    names = ["input__0", "input__1", "input__2", "output__0", "output__1"]
    tokens = torch.ones(2, 384, dtype=torch.long)
    for kind, size in sizes.items():
        path = folder / f"nvidia_bert_{kind}.onnx"
        if path.exists():
            continue
        with torch.no_grad(), tempfile.TemporaryDirectory() as made:
            raw = str(Path(made) / "raw.onnx")
            torch.onnx.export(
                QuestionAnswering(*size).eval(),
                (tokens, tokens, tokens),
                raw,
                opset_version=13,
                input_names=names[:3],
                output_names=names[3:],
                dynamic_axes={name: {0: "batch_size"} for name in names},
            )
            model = onnx.load(raw)
        halve(model)
        write_without_weights(model, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("recipe", choices=sorted(RECIPES), help="; ".join(f"{k}: {v}" for k, v in RECIPES.items()))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    {"onnxruntime-1.4": onnxruntime_1_4, "transformer-deploy": transformer_deploy, "nvidia-bert": nvidia_bert}[
        arguments.recipe
    ](arguments.folder)
    write_index(arguments.folder)


if __name__ == "__main__":
    main()
