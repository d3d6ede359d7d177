"""The kernels that torch.compile's default backend makes of models, as JSON, a line a model. No GPU is needed.

    python inductor_kernels.py MODELS... [--batch 64] [--precision fp16|fp32]

It imports PyTorch (with CUDA), timm and transformers, and nothing of this project, so that any Python that has those
runs it; ``fusion_inductor.py`` does, on the stand-ins for CUDA's libraries that ``cuda_standin.py`` builds. MODELS are
names of timm's with the size of their images (``resnet50:224``), or ``ARCHITECTURE:sequence`` for one of
:data:`TEXT_MODELS`. Weights are what initialisation leaves: Inductor looks at shapes, strides and number formats only.

A model is traced as a user's: ``torch.compile`` around it, called in ``torch.inference_mode()`` and, for FP16, under
``torch.autocast("cuda")``. Inductor runs to the end of its scheduling; what it would generate and launch, a kernel
a node, is read off there (:func:`_kernel_of`). Then the graph is run by PyTorch's eager kernels, which the stand-ins
ignore, to get to the next graph, where the model is in several.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch
import torch._dynamo
from torch._inductor import compile_fx, ir
from torch._inductor.graph import GraphLowering
from torch._inductor.scheduler import BaseSchedulerNode, ExternKernelSchedulerNode, NopKernelSchedulerNode, Scheduler
from torch._inductor.virtualized import V
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

TEXT_MODELS = {
    "bert-base": ("BertConfig", {}),
    "bert-large": (
        "BertConfig",
        {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
    ),
    "roberta-base": ("RobertaConfig", {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}),
    "gpt2": ("GPT2Config", {"use_cache": False}),
}
"""Architectures of transformers: the name of the configuration's class, and what differs from its defaults."""

LIBRARY_CALLS = (
    ("convolution", "conv"),
    ("addmm", "gemm"),
    ("baddbmm", "gemm"),
    ("bmm", "gemm"),
    ("mm", "gemm"),
    ("scaled_dot_product", "attention"),
)
"""Parts of the names of library calls, with the kernel class that is ours; others keep their name."""


class ScheduledError(Exception):
    """Not an error: the kernels of a graph have been decided on, and aren't to be generated."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--precision", choices=("fp16", "fp32"), default="fp16")
    arguments = parser.parse_args()
    major, minor = torch.cuda.get_device_capability()
    target = GPUTarget("cuda", 10 * major + minor, 32)
    # Triton's own driver is C code that it would compile against libcuda; only the target is asked for here
    driver.set_active(
        types.SimpleNamespace(
            get_current_target=lambda: target,
            get_current_device=lambda: 0,
            get_device_interface=lambda: torch.cuda,
        )
    )
    for name in arguments.models:
        try:
            found = kernels_of(name, batch=arguments.batch, precision=arguments.precision)
        except Exception as error:  # whatever a model's own code raises: the others are still asked for
            found = {"model": name, "error": f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"}
        print(json.dumps(found), flush=True)


def kernels_of(name: str, *, batch: int, precision: str) -> dict[str, Any]:
    """The kernels of each graph of a model, in the order of their execution."""
    graphs: list[dict[str, Any]] = []

    def keep(self: GraphLowering) -> None:
        self.init_wrapper_code()
        if hasattr(self, "_update_scheduler"):
            self._update_scheduler()
        else:  # before 2.5
            self.scheduler = Scheduler(self.buffers)
        graphs.append({"kernels": [kernel for node in self.scheduler.nodes for kernel in _kernel_of(node)]})
        raise ScheduledError

    def backend(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        try:
            compile_fx.compile_fx(module, inputs)
        except Exception as error:
            if not any(isinstance(cause, ScheduledError) for cause in _causes(error)):
                raise
        return module.forward

    GraphLowering.codegen = keep
    torch._dynamo.reset()
    model, inputs = _model(name, batch)
    with (
        torch.inference_mode(),
        torch.autocast("cuda", dtype=torch.float16, enabled=precision == "fp16"),
    ):
        torch.compile(model, backend=backend)(**inputs)
    import timm

    versions = {"torch": torch.__version__, "timm": timm.__version__}
    return {"model": name, "batch": batch, "precision": precision, "versions": versions, "graphs": graphs}


def _model(name: str, batch: int) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """A model on the device, and its inputs of ``batch`` samples by name.

    Texts come with their mask, as from a tokenizer: compiled without one, transformers 5 makes one that repeats a
    column by a stride of zero, which no fused kernel takes.
    """
    architecture, _, length = name.partition(":")
    with torch.device("cuda"):  # initialised there, which the stand-ins leave out
        if architecture in TEXT_MODELS:
            import transformers

            config_name, changed = TEXT_MODELS[architecture]
            config = getattr(transformers, config_name)(**changed)
            text = transformers.AutoModel.from_config(config).eval()
            tokens = torch.zeros(batch, int(length or 128), dtype=torch.int64)
            return text, {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        import timm

        size = int(length or 224)
        return timm.create_model(architecture).eval(), {"x": torch.zeros(batch, 3, size, size)}


def _causes(error: BaseException | None) -> Iterable[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or getattr(error, "inner_exception", None) or error.__context__


def _kernel_of(node: BaseSchedulerNode) -> Iterable[dict[str, Any]]:
    """What one node of the final schedule launches; nothing for views into results and for concatenations in place."""
    if isinstance(node, NopKernelSchedulerNode):
        return
    if isinstance(node, ExternKernelSchedulerNode):
        if isinstance(node.node, ir.MultiOutput):
            return
        name = getattr(node.node, "python_kernel_name", None) or str(getattr(node.node, "op_overload", ""))
        kind = next((kind for part, kind in LIBRARY_CALLS if part in name), name.rsplit("ops.", 1)[-1])
        yield {"kind": kind, "name": name, "read": _read(node), "written": _written(node)}
        return
    parts = node.get_nodes()
    reductions = [
        part.node.data.reduction_type
        for part in parts
        if isinstance(part.node, ir.ComputedBuffer) and isinstance(part.node.data, ir.Reduction)
    ]
    operations = sorted(
        {
            str(origin.target).split(".")[1] if "." in str(origin.target) else str(origin.target)
            for part in parts
            for origin in (part.node.origins if part.node is not None else ())
            if origin.op == "call_function"
        }
    )
    yield {
        "kind": "reduction" if reductions else "pointwise",
        "name": ",".join(operations),
        "size": [int(part) for part in node.group[1]] if len(node.group[1]) == 2 else [],
        "buffers": len(parts),
        "read": _read(node),
        "written": _written(node),
    }


def _read(node: BaseSchedulerNode) -> dict[str, int]:
    """Bytes of each buffer that a kernel reads and doesn't write: each once, and no more than its loops can reach."""
    own = {dep.name for dep in node.read_writes.writes}
    return _bytes(dep for dep in node.read_writes.reads if dep.name not in own)


def _written(node: BaseSchedulerNode) -> dict[str, int]:
    """Bytes of each buffer that somebody beside the kernel reads, or the caller gets."""
    parts = set(node.get_nodes())
    asked = set(V.graph.get_output_names())
    # before 2.5 a node of the schedule makes one buffer, and has its users
    buffers = getattr(node.scheduler, "name_to_buf", None) or node.scheduler.name_to_node
    kept = {
        name
        for name in {dep.name for dep in node.read_writes.writes}
        if name in asked or any(user.node not in parts for user in buffers[name].users)
    }
    return _bytes(dep for dep in node.read_writes.writes if dep.name in kept)


def _bytes(deps: Iterable[Any]) -> dict[str, int]:
    found: defaultdict[str, int] = defaultdict(int)
    for dep in deps:
        if dep.name in V.graph.name_to_buffer or dep.name in V.graph.graph_inputs:
            found[dep.name] += int(V.graph.sizevars.size_hint(dep.numbytes_hint(), fallback=0))
    sizes = {name: _size(name) for name in found}
    return {name: min(count, size) if (size := sizes[name]) else count for name, count in found.items()}


def _size(name: str) -> int:
    buffer = V.graph.name_to_buffer.get(name) or V.graph.graph_inputs.get(name)
    try:
        count = 1
        for size in buffer.get_size():
            count *= int(V.graph.sizevars.size_hint(size, fallback=1))
        return count * buffer.get_dtype().itemsize
    except (AttributeError, NotImplementedError):
        return 0


if __name__ == "__main__":
    sys.exit(main())
