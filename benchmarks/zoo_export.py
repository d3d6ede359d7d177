"""What the zoos of models that PyTorch exports share: the table of models, the exporters, and what is said of a file.

Its programs (``zoo_vision_models.py``, ``zoo_deployed_models.py``, ``zoo_application_models.py``) import PyTorch, the
libraries that their models are from and nothing of this project, so that any Python that has those runs them::

    python -P PROGRAM FOLDER [NAMES...] [--forms FORM,...] [--list]
    python -P PROGRAM FOLDER [NAMES...] --quantised
    LD_PRELOAD=... STANDIN_LOG=FILE python -P PROGRAM FOLDER [NAMES...] --launches

-P, as this folder has modules that are called like others'. Nothing is downloaded. Each model is exported as
:data:`FORMS` says: by the exporter on TorchScript with an open batch ("ts"), by the one on ``torch.export`` as it
stands ("dynamo"), and some in float16 ("ts-fp16"). Beside each file NAME__FORM.onnx a NAME__FORM.json says

- ``inputs``: their shapes, and for these
- ``shapes``: of every value that ONNX Runtime computes on the CPU without optimising;
- ``flops``: of one run of the module, as ``torch.utils.flop_counter`` counts (products and convolutions, 2 a
  multiply-add);
- ``fault``: what stopped the exporter, where something did.

Weights of more than 1 KiB are then taken out of the file, which keeps a reference to external data that isn't there.
With --quantised (onnxruntime and NVIDIA's modelopt are needed) files are quantised as :data:`HOWS` says. With
--launches each model is run on the stand-ins for CUDA's libraries that ``cuda_standin.py`` builds (the variables are
those that it prints), and NAME.launches gets a line for each kernel: operator, class, kernel.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


def hf(
    name: str,
    config: str,
    model: str,
    changed: dict[str, Any],
    inputs: Callable[[], tuple[torch.Tensor, ...]],
    call: Callable[..., Any] | None = None,
    **more: Any,
) -> None:
    entry(f"hf_{name}", **more)(_transformer(config, model, changed, inputs, call))


def diffusion(
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


def time_step() -> torch.Tensor:
    return torch.tensor([500.0])


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


def main(description: str | None, halved: Sequence[str] = ()) -> None:
    """``description``: what --help says; ``halved``: models that are exported in float16, too."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
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
        turn = list(HOWS) if arguments.quantised else [*ZOO[name].forms, *(["ts-fp16"] if name in halved else [])]
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
