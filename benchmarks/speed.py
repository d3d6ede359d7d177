"""How long `analyze` takes: cold as a process, warm in one, how cost grows with the graph, what `check`
adds, and what the 64 points of a sweep take beside one.

    python benchmarks/speed.py [MODEL.onnx] [--gpu a100] [--runs 5]

The yardstick, in the same run: a Python process that imports onnx and onnxruntime, loads the same file and runs
``onnx.shape_inference.infer_shapes(data_prop=True)``. Without MODEL a chain of 5,000 nodes is made.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx
from onnx import TensorProto, helper

YARDSTICK = (
    "import sys, onnx, onnxruntime; m = onnx.load(sys.argv[1], load_external_data=False); "
    "onnx.shape_inference.infer_shapes(m, data_prop=True)"
)


def chain(path: Path, node_count: int) -> Path:
    """Writes a model of ``node_count`` nodes: MatMul, Add, Relu in turn, weights external and absent."""
    nodes, weights = [], []
    width = 256
    previous = "x"
    for index in range(node_count):
        current = f"v{index}"
        kind = ("MatMul", "Add", "Relu")[index % 3]
        inputs = [previous]
        if kind != "Relu":
            shape = (width, width) if kind == "MatMul" else (width,)
            tensor = TensorProto(name=f"w{index}", data_type=TensorProto.FLOAT, dims=shape)
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="weights.bin")
            weights.append(tensor)
            inputs.append(tensor.name)
        nodes.append(helper.make_node(kind, inputs, [current], name=f"n{index}"))
        previous = current
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", width])],
        [helper.make_tensor_value_info(previous, TensorProto.FLOAT, None)],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def seconds(command: list[str], runs: int) -> tuple[list[float], list[float]]:
    """Wall and CPU seconds of each of ``runs`` processes, after one that is not counted."""
    wall, cpu = [], []
    for run in range(runs + 1):
        start, before = time.perf_counter(), os.times()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end, after = time.perf_counter(), os.times()
        if run:
            wall.append(end - start)
            cpu.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return wall, cpu


def spread(wall: list[float], cpu: list[float]) -> str:
    """Median, least and most, in seconds; the least CPU time, which other work on the machine moves least."""
    return f"{statistics.median(wall):6.3f} s  ({min(wall):.3f} to {max(wall):.3f}, CPU time from {min(cpu):.2f})"


FIVE = ("a100", "h100", "l4", "t4", "v100")


def check_ratio(model: Path, runs: int) -> float:
    """CPU seconds of a check with a limit on five GPUs over those of one analysis, in one process, medians."""
    from neusight_onnx import analyze, check
    from neusight_onnx.checks import Target
    from neusight_onnx.checks.limits import parse_limits

    limits = parse_limits({"max-latency": "1s", "max-memory": "fits"}, "")
    targets = [Target(name=gpu, model=model, gpu=gpu, limits=limits) for gpu in FIVE]
    one, five = [], []
    for run in range(runs + 1):
        start = time.process_time()
        analyze(model, gpu=FIVE[0])
        middle = time.process_time()
        check(targets)
        if run:
            one.append(middle - start)
            five.append(time.process_time() - middle)
    return statistics.median(five) / statistics.median(one)


def sweep_ratio(model: Path, gpu: str) -> tuple[float, float] | None:
    """CPU seconds of processes that predict one point and 64 (8 x 8 sizes of the first two dims); None without two."""
    from neusight_onnx.graph.read import read_model

    names = list(
        dict.fromkeys(
            dim for item in read_model(model).graph.inputs for dim in item.shape or () if isinstance(dim, str)
        )
    )
    if len(names) < 2:
        return None
    tool = [str(Path(sys.executable).parent / "neusight-onnx"), "sweep", str(model), "--gpu", gpu, "--format", "csv"]
    one = [tool[0], "analyze", *tool[2:]]
    grid = [*tool, "--dim", f"{names[0]}=1..8", "--dim", f"{names[1]}=64..512+64"]
    found = []
    for command in (one, grid):
        before = os.times()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = os.times()
        found.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return found[0], found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--gpu", default="a100")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    from neusight_onnx import analyze

    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}")
    print(f"medians of {arguments.runs} runs")
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model or chain(Path(folder) / "chain.onnx", 5000)
        tool = Path(sys.executable).parent / "neusight-onnx"
        cold = seconds([str(tool), "analyze", str(model), "--gpu", arguments.gpu, "--format", "json"], arguments.runs)
        yardstick = seconds([sys.executable, "-c", YARDSTICK, str(model)], arguments.runs)
        ratio = statistics.median(cold[0]) / statistics.median(yardstick[0])
        print(f"{model.name}")
        print(f"  cold analyze --format json   {spread(*cold)}")
        print(f"  import, load, infer_shapes   {spread(*yardstick)}")
        print(f"  ratio                        {ratio:6.2f}    (target: at most 3)")
        warm = []
        for run in range(arguments.runs + 1):
            start = time.process_time()
            analyze(model, gpu=arguments.gpu)
            if run:
                warm.append(time.process_time() - start)
        print(f"  warm analyze() in one process{statistics.median(warm):6.3f} s  (CPU time; target: at most 0.5)")
        ratio = check_ratio(model, arguments.runs)
        print(f"  check on {len(FIVE)} GPUs over one analyze {ratio:6.2f}    (CPU time; target: at most 2)")
        swept = sweep_ratio(model, arguments.gpu)
        if swept is not None:
            print(f"  one point, 64 points         {swept[0]:6.2f} s, {swept[1]:6.2f} s  (CPU time of the process)")
            print(f"  ratio                        {swept[1] / swept[0]:6.2f}    (target: at most 10)")
        print("growth, warm, chains of MatMul, Add, Relu (CPU time)")
        for count in (1250, 2500, 5000, 10000, 20000):
            path = chain(Path(folder) / f"chain{count}.onnx", count)
            start = time.process_time()
            analyze(path, gpu=arguments.gpu)
            print(f"  {count:>6} nodes  {time.process_time() - start:6.3f} s")


if __name__ == "__main__":
    main()
