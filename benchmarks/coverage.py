"""Every model of a folder through `analyze`: which share of its nodes became kernels, is free, is not supported.

    python benchmarks/coverage.py MODELS [--gpu a100] [--runtime eager] [--format text|markdown] [-o FILE]

MODELS holds ``.onnx`` files at any depth, and may hold ``index.csv`` (``file``, ``checker``: whether onnx.checker
accepts it). Free sizes take the stated defaults; ``--precision fp32``, as models of every precision are among them.
Exit code 1 if a model that the checker accepts fails or has less than 95 % of its nodes supported.
"""

from __future__ import annotations

import argparse
import csv
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from neusight_onnx import analyze
from neusight_onnx.errors import NeusightError

LEAST_SUPPORTED = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model: node counts, latency in ms and wall seconds of the analysis; ``fault`` if it was refused."""

    file: str
    checked: bool
    nodes: int = 0
    kernels: int = 0
    free: int = 0
    unsupported: int = 0
    latency_ms: float = 0.0
    seconds: float = 0.0
    fault: str = ""

    @property
    def is_short(self) -> bool:
        """Whether a model that counts misses the target."""
        supported = 1 - self.unsupported / self.nodes if self.nodes else 1.0
        return self.checked and (bool(self.fault) or supported < LEAST_SUPPORTED)


def analyzed(models: Path, gpu: str, runtime: str) -> list[Row]:
    """A row for each model under ``models``."""
    checked: dict[str, bool] = {}
    index = models / "index.csv"
    if index.is_file():
        with index.open(newline="") as handle:
            checked = {row["file"]: row["checker"] == "ok" for row in csv.DictReader(handle)}
    rows = []
    for path in sorted(models.rglob("*.onnx")):
        file = str(path.relative_to(models))
        start = time.perf_counter()
        try:
            report = analyze(path, gpu=gpu, precision="fp32", runtime=runtime)
        except NeusightError as error:
            rows.append(Row(file=file, checked=checked.get(file, True), fault=str(error)))
            continue
        coverage = report.coverage
        rows.append(
            Row(
                file=file,
                checked=checked.get(file, True),
                nodes=coverage.node_count,
                kernels=coverage.kernel_node_count,
                free=coverage.free_node_count,
                unsupported=coverage.unsupported_node_count,
                latency_ms=report.totals.latency_ms,
                seconds=time.perf_counter() - start,
            )
        )
    return rows


def table(rows: list[Row], gpu: str, runtime: str, *, markdown: bool) -> str:
    """The rows as text, and how many miss the target."""
    head = ("model", "nodes", "kernels", "free", "unsupported", f"ms on {gpu}", "seconds")
    lines = [f"Python {platform.python_version()}, {platform.machine()}; {gpu}, fp32, {runtime}, default sizes", ""]
    if markdown:
        lines += ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    else:
        lines.append(f"{head[0]:<64}" + "".join(f"{name:>13}" for name in head[1:]))
    for row in rows:
        cells = [str(row.nodes), str(row.kernels), str(row.free), str(row.unsupported)]
        cells += [f"{row.latency_ms:.3f}", f"{row.seconds:.2f}"]
        name = row.file + ("" if row.checked else " (checker refuses it)")
        if row.fault:
            cells = [f"refused: {row.fault}", *[""] * (len(cells) - 1)]
        lines.append(
            "| " + " | ".join([name, *cells]) + " |"
            if markdown
            else f"{name:<64}" + "".join(f"{cell:>13}" for cell in cells)
        )
    done = [row for row in rows if not row.fault]
    nodes = sum(row.nodes for row in done)
    short = [row.file for row in rows if row.is_short]
    lines += [
        "",
        f"{len(done)} of {len(rows)} models analysed; {nodes} nodes, "
        f"{sum(row.kernels for row in done)} in kernels, {sum(row.free for row in done)} free, "
        f"{sum(row.unsupported for row in done)} unsupported; {sum(row.seconds for row in done):.1f} s",
        f"accepted by the checker, yet refused or below {LEAST_SUPPORTED:.0%}: {len(short)} {short[:10]}",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("--gpu", default="a100")
    parser.add_argument("--runtime", default="eager")
    parser.add_argument("--format", choices=("text", "markdown"), default="text")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    rows = analyzed(arguments.models, arguments.gpu, arguments.runtime)
    if not rows:
        sys.exit(f"error: no .onnx files under {arguments.models}")
    text = table(rows, arguments.gpu, arguments.runtime, markdown=arguments.format == "markdown")
    if arguments.output:
        arguments.output.write_text(text + "\n")
    print(text)
    return 1 if any(row.is_short for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
