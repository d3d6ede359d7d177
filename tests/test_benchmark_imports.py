"""The names of this package that the benchmarks import exist: no type check sees them."""

from __future__ import annotations

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parent.parent / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=[script.name for script in SCRIPTS])
def test_what_a_benchmark_imports_of_the_package_is_there(script: Path) -> None:
    missing = []
    for statement in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").split(".")[0] == "neusight_onnx":
            module = import_module(statement.module or "")
            missing += [
                f"{statement.module}.{item.name}"
                for item in statement.names
                if not hasattr(module, item.name) and not _is_module(statement.module or "", item.name)
            ]
    assert not missing


def _is_module(package: str, name: str) -> bool:
    return hasattr(import_module(package), "__path__") and find_spec(f"{package}.{name}") is not None
