"""The direction of imports, and who may import what: the architecture as a test."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import neusight_onnx

ROOT = Path(neusight_onnx.__file__).parent
EXAMPLE = Path(__file__).parents[1] / "examples" / "resnet50.onnx"

# Rooms in the order in which data flows through them; a room may use itself and those before it.
ROOMS = (
    ("errors", "dtypes", "data_files", "regular_files", "collection", "strides", "gpu_names"),
    ("gpu", "graph"),
    ("releases",),
    ("kernels", "runtime"),
    ("kernel_formats", "operator_host", "compatibility", "readable", "stream"),
    ("fusion", "lowering", "precision"),
    ("runnable",),
    ("backward",),
    ("tiling", "batch"),
    ("laws", "similarity"),
    ("predictor",),
    ("tactics",),
    ("uncertainty",),
    ("report",),
    ("memory",),
    ("preparation",),
    ("release_effects",),
    ("assembly",),
    ("assumptions",),
    ("execution",),
    ("other_batches", "padding_gain"),
    ("outcome",),
    ("analysis", "inspection"),
    ("workbench", "annotation"),
    ("checks",),
    ("comparison",),
    ("learning",),
    ("cli",),
    ("__init__", "__main__"),
)
RANK = {room: rank for rank, rooms in enumerate(ROOMS) for room in rooms}

# A heavy or contested dependency, and the only rooms that may import it.
OWNERS = {
    "onnxruntime": {"predictor"},
    "onnx": {"graph", "learning"},
    "rich": {"report", "cli"},
    "typer": {"cli"},
    "click": {"cli"},
    "lightgbm": {"learning"},
    "scipy": {"learning"},
    "pyarrow": {"learning"},
    "pandas": set(),
    "torch": set(),
}


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@cache
def imports(path: Path) -> list[tuple[int, str, bool]]:
    """(line, module, whether it is imported when the module loads) of every import in a file."""
    tree = ast.parse(path.read_text())
    inside_functions = {
        id(inner)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(outer)
    }
    found = []
    for node in ast.walk(tree):
        at_load = id(node) not in inside_functions
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name, at_load) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            found.append((node.lineno, node.module or "", at_load))
    return found


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_flow_one_way(path: Path) -> None:
    own = room(path)
    assert own in RANK, f"{own} stands in no room of the architecture: add it to ROOMS"
    for line, module, _ in imports(path):
        if module == "neusight_onnx" or not module.startswith("neusight_onnx."):
            continue
        other = module.split(".")[1]
        assert other == own or RANK[other] < RANK[own] or other == "__init__", f"{path}:{line}: {own} imports {other}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_heavy_dependencies_have_owners(path: Path) -> None:
    own = room(path)
    for line, module, _ in imports(path):
        top = module.split(".")[0]
        assert top not in OWNERS or own in OWNERS[top], f"{path}:{line}: {own} imports {top}"


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import neusight_onnx", {"numpy", "onnx", "onnxruntime", "rich", "typer"}),
        ("import neusight_onnx.cli", {"onnx", "onnxruntime", "lightgbm", "scipy", "pyarrow"}),
        (
            "from neusight_onnx.cli import main; main(['analyze', '--help'])",
            {"neusight_onnx.cli.check", "neusight_onnx.cli.compare", "neusight_onnx.cli.sweep", "numpy", "rich"},
        ),
        (
            "import sys; from neusight_onnx.cli import main; "
            f"main(['analyze', {str(EXAMPLE)!r}, '--gpu', 't4', '--format', 'json', '-o', '/dev/null'])",
            {
                "neusight_onnx.fusion.loops",
                "neusight_onnx.fusion.compiled_attention",
                "neusight_onnx.fusion.engine_attention",
                "neusight_onnx.lowering.recast",
                "neusight_onnx.backward",
                "onnx",
                "rich",
            },
        ),
        ("import neusight_onnx.analysis", {"onnxruntime", "rich", "typer", "lightgbm", "scipy", "pyarrow"}),
    ],
    ids=["package", "cli", "one command", "one analysis", "analyze"],
)
def test_cold_imports_stay_light(statement: str, absent: set[str]) -> None:
    program = f"import sys; {statement}; print(*sorted(sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not absent & set(result.stdout.split())
