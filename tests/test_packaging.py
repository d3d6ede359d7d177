"""What is shipped: the contents of wheel and sdist, where data lies, and that make's targets are told of."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from functools import cache
from pathlib import Path

import pytest

import neusight_onnx
from neusight_onnx.data_files import data_folder

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DATA_FOLDERS = ("specs", "predictors")


def build(kind: str, folder: Path) -> Path:
    """Builds "wheel" or "sdist" of the checkout as pip would, with the environment's own hatchling; packed at zlib's
    quickest level, since only what is in it is looked at."""
    pytest.importorskip("hatchling", reason="building needs hatchling, which is in the dev extra")
    code = (
        "import functools, gzip, zlib, hatchling.build as b; zlib.Z_DEFAULT_COMPRESSION = zlib.Z_BEST_SPEED; "
        "gzip.GzipFile = functools.partial(gzip.GzipFile, compresslevel=1); "
        f"print(b.build_{kind}({str(folder)!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    with zipfile.ZipFile(build("wheel", tmp_path_factory.mktemp("wheel"))) as archive:
        return frozenset(archive.namelist())


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    with tarfile.open(build("sdist", tmp_path_factory.mktemp("sdist"))) as archive:
        return frozenset(name.split("/", 1)[1] for name in archive.getnames() if "/" in name)


def files_of(folder: Path, *suffixes: str) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix in suffixes and "__pycache__" not in path.parts
    }


def test_wheel_holds_the_package_and_its_data(wheel: frozenset[str]) -> None:
    kinds = (".py", ".typed", ".txt", ".css", ".js")
    package = {f"neusight_onnx/{name}" for name in files_of(ROOT / "analyzer/neusight_onnx", *kinds)}
    data = {
        f"neusight_onnx/{folder}/{name}"
        for folder in DATA_FOLDERS
        for name in files_of(ROOT / folder, ".toml", ".onnx", ".json", ".md")
    }
    assert "neusight_onnx/specs/a100-sxm-80gb.toml" in data
    assert package | data <= wheel


def test_wheel_claims_one_import_name(wheel: frozenset[str]) -> None:
    assert {name.split("/")[0].split("-")[0] for name in wheel} == {"neusight_onnx"}
    assert not any(re.match(r"neusight_onnx/(specs|predictors)/.*\.py", name) for name in wheel)


def test_sdist_is_enough_to_build_and_test(sdist: frozenset[str]) -> None:
    needed = {"pyproject.toml", "README.md", "LICENSE", "Makefile", "CONTRIBUTING.md", ".ci/run"}
    for folder in ("analyzer", "tests", "examples", *DATA_FOLDERS):
        needed |= {f"{folder}/{name}" for name in files_of(ROOT / folder, ".py", ".toml", ".onnx", ".json", ".md")}
    assert needed <= sdist


@pytest.mark.parametrize("folder", DATA_FOLDERS)
def test_data_folders_hold_no_code(folder: str) -> None:
    assert list((ROOT / folder).rglob("*.py")) == []


def test_data_is_found_beside_the_module_or_at_the_root() -> None:
    package = Path(neusight_onnx.__file__).resolve().parent
    installed = package.parent.name != "analyzer"
    for folder in (data_folder("specs"), data_folder("predictors")):
        assert folder.is_dir()
        assert folder.parent == (package if installed else ROOT)


def test_data_is_found_from_any_folder(tmp_path: Path) -> None:
    code = "from neusight_onnx import gpu; print(gpu.load_gpu('a100').name)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "a100-sxm-80gb"


def test_version_is_one() -> None:
    assert PYPROJECT["project"]["version"] == neusight_onnx.__version__


@cache
def imported_by(path: Path) -> frozenset[str]:
    """Top-level names that a file imports, in functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return frozenset(names)


def imported(folder: Path) -> set[str]:
    names = set().union(*map(imported_by, folder.rglob("*.py")))
    only_for_type_checkers = {"_typeshed"}
    return names - set(sys.stdlib_module_names) - only_for_type_checkers - {"neusight_onnx"}


def declared(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", requirement)[0].replace("-", "_") for requirement in requirements}


def test_every_import_is_declared() -> None:
    runtime = declared(PYPROJECT["project"]["dependencies"])
    learning = declared(PYPROJECT["project"]["optional-dependencies"]["learning"])
    package = ROOT / "analyzer/neusight_onnx"
    assert imported(package) <= runtime | learning
    for path in package.iterdir():
        if path.is_dir() and path.name != "learning":
            assert imported(path) <= runtime, path.name


def test_every_dependency_is_justified() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    project = PYPROJECT["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    names = {re.split(r"[^\w-]", requirement)[0] for group in groups for requirement in group} - {"neusight-onnx"}
    assert [name for name in sorted(names) if f"| `{name}` |" not in text] == []


# -- make ----------------------------------------------------------------------------------------------------

TARGETS = (
    "demo test check check-rest lint format types dist-check predictors bench-accuracy bench-kernels bench-operators "
    "bench-instructions bench-frontend bench-coverage bench-plausibility bench-same-generation bench-models "
    "bench-fusion bench-fusion-cuda bench-launches-ort bench-fusion-inductor bench-fusion-trt bench-speed "
    "fuzz clean help"
)


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        key: value for key, value in os.environ.items() if key not in {"MAKEFLAGS", "MAKELEVEL", "DATA", "MODELS"}
    }
    return subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True, check=False, env=environment)


def test_help_lists_every_target() -> None:
    listed = re.findall(r"^  make ([a-z-]+)", make("help").stdout, re.MULTILINE)
    assert sorted(listed) == sorted(TARGETS.split())


@pytest.mark.parametrize(
    ("target", "variable"),
    [("predictors", "DATA"), ("bench-accuracy", "DATA"), ("bench-kernels", "DATA"), ("bench-frontend", "MODELS")],
)
def test_missing_folder_is_told_in_one_line(target: str, variable: str, tmp_path: Path) -> None:
    (tmp_path / ".created").touch()
    (tmp_path / ".installed-dev").touch()
    missing = make(target, f"VENV={tmp_path}")
    assert missing.returncode != 0
    assert f"make {target} {variable}=...: give the folder" in missing.stderr
    absent = make(target, f"VENV={tmp_path}", f"{variable}={tmp_path}/absent")
    assert absent.returncode != 0
    assert "is no folder; give the folder" in absent.stderr


def test_old_python_is_told_in_one_line(tmp_path: Path) -> None:
    old = tmp_path / "python3.9"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.1"\nexit 1\n', encoding="utf-8")
    old.chmod(0o755)
    done = make("demo", f"VENV={tmp_path}/venv", f"PYTHON={old}")
    assert done.returncode != 0
    assert f"Python 3.11 or newer is needed, but {old} is Python 3.9.1; name another" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_ci_runs_every_check_once() -> None:
    text = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert re.findall(r"^make ([a-z-]+)", text, re.MULTILINE) == ["test", "check-rest"]
    assert os.access(ROOT / ".ci/run", os.X_OK)
    check = re.search(r"^check: (.*?) ##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert check is not None
    assert check[1].split() == ["test", "check-rest"]
