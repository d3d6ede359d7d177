"""The benchmark of measured models: which release measured a row, and what stands beside it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the learning extra")

from neusight_onnx.graph.read import read_model
from neusight_onnx.runtime import get_runtime

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
BERT = "PyTorch/LanguageModeling/BERT/triton/large/README.md"


@pytest.fixture(scope="module")
def models() -> Iterator[Any]:
    """The program, which finds its neighbours beside it; tests have modules of the same names."""
    sys.path.append(str(BENCHMARKS))
    specification = importlib.util.spec_from_file_location("benchmark_of_models", BENCHMARKS / "models.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    yield module
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture
def rows(models: Any) -> Any:
    """What it imports of its neighbour that reads the rows."""
    return sys.modules[models.matching.__module__]


@pytest.mark.parametrize(
    ("label", "path", "runtime", "expected"),
    [
        ("pytorch eager 1.13 nhwc cu117", "results/a.csv", "eager", "1.13"),
        ("pytorch+torch.compile 2.9.1 nchw cu128", "results/a.csv", "compiled", "2.9"),
        ("torchscript 1.5.1", "transformers/README.md", "torchscript", "1.5"),
        ("onnxruntime 1.4.0 CUDA EP, optimizer+IO binding", "transformers/README.md", "onnxruntime", "1.4"),
        ("Triton, ONNX Runtime", BERT, "onnxruntime", "1.9"),
        ("Triton, ONNX Runtime with TensorRT accelerator", BERT, "tensorrt", "8.0"),
        ("Triton, PyTorch", BERT, "torchscript", "1.10"),
        ("TensorRT (FP16)", "docs/benchmarks.md", "tensorrt", "8.2"),
        ("Paddle Inference + TensorRT", "docs/en/models/HRNet_en.md", "tensorrt", "7.0"),
        ("framework native", "elsewhere/README.md", "eager", None),
    ],
)
def test_the_release_of_a_row(rows: Any, label: str, path: str, runtime: str, expected: str | None) -> None:
    assert rows.release_of(label, path, runtime) == expected


@pytest.mark.parametrize(("release", "has_sums"), [("1.4", False), ("1.9", False), ("1.14", True), (None, True)])
def test_a_rewritten_gpt2_is_one_that_its_release_reads(
    models: Any, tmp_path: Path, release: str | None, has_sums: bool
) -> None:
    """1.4 and 1.9 refuse a SkipLayerNormalization that hands on its sum."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    pytest.importorskip("sympy", reason="the optimiser needs it")
    text = """
        <ir_version: 9, opset_import: ["" : 17]>
        g (float[1, 4, 8] a, float[1, 4, 8] b, float[8] scale, float[8] shift) => (float[1, 4, 8] y) {
            sum = Add(a, b)
            normal = LayerNormalization(sum, scale, shift)
            y = Add(sum, normal)
        }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "gpt2.onnx")
    wanted = models.Wanted(
        folder=Path(), file="", model="", is_vision=False, dims=(), runtime="onnxruntime", channels_last=False,
        include_io=False, group="", source="", gpu="", precision="fp16", batch=1, size="", measured_ms=1.0,
        release=release,
    )  # fmt: skip
    made = models.rewritten(tmp_path / "gpt2.onnx", tmp_path, has_sums=wanted.has_sums)
    operators = {node.op_type for node in read_model(made).graph.nodes}
    assert operators == ({"SkipLayerNormalization", "Add"} if has_sums else {"LayerNormalization", "Add"})


def test_releases_of_sources_are_known(rows: Any) -> None:
    for source in rows.SOURCES:
        assert source.why
        for runtime, release in source.releases.items():
            assert get_runtime(f"{runtime}@{release}").newer is None


def test_a_release_that_is_as_todays_is_predicted_once(models: Any) -> None:
    def called(runtime: str, release: str | None) -> str:
        wanted = models.Wanted(
            folder=Path(), file="", model="", is_vision=False, dims=(), runtime=runtime, channels_last=False,
            include_io=False, group="", source="", gpu="", precision="fp16", batch=1, size="", measured_ms=1.0,
            release=release,
        )  # fmt: skip
        return str(wanted.called)

    assert called("eager", "1.13") == "eager@1.13"
    assert called("eager", "2.9") == "eager"
    assert called("tensorrt", "8.0") == "tensorrt@8.0"
    assert called("tensorrt", None) == "tensorrt"


def test_todays_figures_stand_beside(models: Any) -> None:
    case = models.Case(
        model="m", file="f", is_vision=False, group="eager", source="pytorch eager 1.13", gpu="t4", precision="fp16",
        batch=1, size="", measured_ms=10.0, ours_ms=9.0, low_ms=8.0, high_ms=10.0, kernel_ms=9.0, analytic_share=0.0,
        class_shares={"gemm": 1.0}, release="1.13",
    )  # fmt: skip
    other = models.replace(case, ours_ms=5.0, low_ms=4.0, high_ms=6.0, release="")
    today = {models.identity_of(other): other}
    text = models.table([case], {}, every=1, today=today)
    rows = [row.split() for row in text.splitlines() if "10.0%" in row or "50.0%" in row]
    assert ["today's", "release"] in [row[:2] for row in rows]
    assert "batch 1 within a factor of 1.5 (80 %): 1 of 1, 100% (today's release: 0, 0%)" in text
    assert "    today's release" not in models.table([case], {}, every=1)


ROW = {
    "gpu": "T4", "model": "ResNet18", "phase": "infer", "dtype": "FP16", "runtime": "Paddle Inference + TensorRT",
    "batch": "4", "input": "crop 224", "latency_ms": 1.5, "metric": "latency_ms",
    "source_repo": "PaddlePaddle/PaddleClas",
    "source_path": "docs/en/models/ResNet_and_vd_en.md", "note": "",
}  # fmt: skip
COLUMNS = "file,csv_model,source_repo,img_size,sequence,applies_to_rows,notes"


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """SHARED with a graph of ``known`` alone, and a folder with graphs of it and of ResNet18."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        ROW,
        ROW | {"input": "crop 288"},
        ROW | {"model": "known"},
        ROW | {"source_repo": "elsewhere"},
    ]
    data = tmp_path / "data" / "end_to_end"
    data.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), data / "measured_models_dev.parquet")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "index_e2e.csv").write_text(f"{COLUMNS}\na/known.onnx,known,,224.0,,,\n")
    more = tmp_path / "more"
    more.mkdir()
    paddle = "PaddlePaddle/PaddleClas"
    (more / "index.csv").write_text(
        f"{COLUMNS},family\nresnet18.onnx,ResNet18,{paddle},224,,,,ResNet\nknown.onnx,known,{paddle},224,,,,Other\n"
    )
    return tmp_path, more


def test_further_graphs_fill_what_has_none(models: Any, folders: tuple[Path, Path]) -> None:
    shared, more = folders
    alone, left_out = models.matching(shared)
    assert [row.model for row in alone] == ["known"]
    assert left_out == {"no graph of the model": 3}
    found, left_out = models.matching(shared, [more])
    assert [(row.folder, row.file, row.group, row.family) for row in found] == [
        (more, "resnet18.onnx", "tensorrt, equivalent graph", "ResNet"),
        (shared / "models", "a/known.onnx", "tensorrt", ""),
    ]
    # another size, another source
    assert sum(left_out.values()) == 2


def test_a_folder_without_an_index_is_refused(models: Any, folders: tuple[Path, Path]) -> None:
    shared, _ = folders
    with pytest.raises(SystemExit, match=r"index\.csv is not an index of graphs"):
        models.matching(shared, [shared])


def test_equivalents_are_in_no_target(models: Any) -> None:
    case = models.Case(
        model="m", file="timm/m.onnx", is_vision=False, group="onnxruntime, equivalent graph", source="onnxruntime",
        gpu="t4", precision="fp16", batch=8, size="", measured_ms=10.0, ours_ms=9.0, low_ms=8.0, high_ms=10.0,
        kernel_ms=9.0, analytic_share=0.0, class_shares={"gemm": 1.0}, family="MobileNet",
    )  # fmt: skip
    primary = models.replace(case, group="onnxruntime", family="")
    alone = models.table([case], {}, every=1)
    assert "Targets" not in alone
    assert "MobileNet: onnxruntime, t4, fp16" in alone
    both = [case, models.replace(case, batch=1), primary, models.replace(primary, batch=1)]
    targets = models.table(both, {}, every=1).split("By runtime")[0]
    target = next(row for row in targets.splitlines() if row.startswith("onnxruntime, fp16, batch >= 8"))
    assert target.removeprefix("onnxruntime, fp16, batch >= 8 (median <= 20 %)").split()[0] == "1"
    assert "1 of 1, 100%" in targets


GPT2 = ROW | {
    "gpu": "NVIDIA V100-PCIE-16GB", "model": "gpt2", "dtype": "fp16", "runtime": "onnxruntime 1.4.0 CUDA EP",
    "input": "past=4, new=1", "source_repo": "microsoft/onnxruntime", "source_path": "transformers/README.md",
}  # fmt: skip


@pytest.fixture
def as_measured(tmp_path: Path) -> tuple[Path, Path]:
    """SHARED with a graph of GPT-2 and four rows, and a folder with the file that one of them was measured on."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = tmp_path / "data" / "end_to_end"
    data.mkdir(parents=True)
    others = ({"dtype": "fp32"}, {"runtime": "torchscript 1.5.1"}, {"model": "unknown"})
    rows = [GPT2, *(GPT2 | other for other in others)]
    pq.write_table(pa.Table.from_pylist(rows), data / "measured_models_dev.parquet")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "index_e2e.csv").write_text(f"{COLUMNS}\ne2e_nlp/gpt2_past.onnx,gpt2,,,1,,\n")
    folder = tmp_path / "as_measured"
    folder.mkdir()
    (folder / "index.csv").write_text(
        "file,csv_model,source_repo,runtime,dtype\ngpt2_fp16.onnx,gpt2,microsoft/onnxruntime,onnxruntime 1.4.0,fp16\n"
    )
    return tmp_path, folder


def test_rows_are_judged_on_the_file_as_measured_besides(models: Any, as_measured: tuple[Path, Path]) -> None:
    shared, folder = as_measured
    alone, left_out = models.matching(shared)
    found, also_left_out = models.matching(shared, as_measured=folder)
    assert left_out == also_left_out == {"no graph of the model": 1}
    assert len(alone) == 3
    (added,) = [row for row in found if row not in alone]
    assert (added.folder, added.file) == (folder, "gpt2_fp16.onnx")
    assert added.group == "onnxruntime, optimised file, file as measured"
    # it is what the optimiser has written; the graph at hand is still rewritten
    assert not added.is_rewritten
    assert alone[0].is_rewritten
    with pytest.raises(SystemExit, match="is not an index of files as measured"):
        models.matching(shared, as_measured=shared / "models")


def test_files_as_measured_have_lines_of_their_own(models: Any) -> None:
    case = models.Case(
        model="gpt2", file="gpt2_past.onnx", is_vision=False, group="onnxruntime, optimised file", source="onnxruntime",
        gpu="t4", precision="fp16", batch=8, size="", measured_ms=10.0, ours_ms=20.0, low_ms=18.0, high_ms=22.0,
        kernel_ms=20.0, analytic_share=0.0, class_shares={"gemm": 1.0},
    )  # fmt: skip
    cases = [case, models.replace(case, model="bert", ours_ms=13.0)]
    cases += [models.replace(each, batch=1) for each in cases]
    group = f"{case.group}, file as measured"
    rebuilt = [models.replace(each, ours_ms=11.0, group=group) for each in cases if each.model == "gpt2"]
    targets, rest = models.table(cases + rebuilt, {}, every=1).split("By runtime")
    assert "batch 1 within a factor of 1.5 (80 %): 1 of 2, 50%" in targets
    assert "    the same rows, on files as measured: 2 of 2, 100%" in targets
    lines = {row[:58].strip(): row[58:].split() for row in targets.splitlines() if ":" not in row[:58]}
    assert lines["onnxruntime, fp16, batch >= 8 (median <= 20 %)"][:2] == ["2", "65.0%"]
    assert lines["the same rows, on files as measured"][:2] == ["2", "20.0%"]
    assert any(row.startswith(f"{group}, t4, fp16") for row in rest.splitlines())
    assert any(row.startswith("gpt2, file as measured") for row in rest.splitlines())
    assert "file as measured" not in models.table(cases, {}, every=1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("batch_size", 8), ("seq_len", 1), ("past_seq_len", 4), ("total_seq_len", 5), ("past + new", 5)],
)
def test_open_sizes_of_a_file_with_a_cache(models: Any, name: str, expected: int) -> None:
    assert models.size_of(name, {"batch": 8, "past": 4, "sequence": 1}) == expected
