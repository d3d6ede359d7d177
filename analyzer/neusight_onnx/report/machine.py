"""The report for programs: JSON (docs/report-schema.md describes every key) and CSV, one row a kernel."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from io import StringIO

from neusight_onnx.graph.model import Notice
from neusight_onnx.report.json_text import Json, json_text, record_json, rounded
from neusight_onnx.report.model import (
    SCHEMA_VERSION,
    Coverage,
    FusionSummary,
    KernelRow,
    MemoryEstimate,
    ModelSummary,
    Report,
    Settings,
    Totals,
    TrainingSummary,
    ValueSummary,
    Variant,
)
from neusight_onnx.report.quantities import dims_text, printable

CSV_COLUMNS = (
    "id",
    "phase",
    "kernel_class",
    "op_types",
    "nodes",
    "dtype",
    "dims",
    "count",
    "flops",
    "read_bytes",
    "write_bytes",
    "tile",
    "tile_count",
    "wave_count",
    "utilization",
    "bound",
    "latency_us",
    "latency_low_us",
    "latency_high_us",
    "predictor",
    "method",
)


def to_json(report: Report) -> str:
    """The whole report as JSON text, ASCII only, one kernel a line, with a line break at the end."""
    document: dict[str, Json] = {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "neusight-onnx", "version": report.tool_version},
        "model": _model(report.model),
        "gpu": record_json(report.gpu),
        "settings": _settings(report.settings),
        "totals": _totals(report.totals),
        "coverage": _coverage(report.coverage),
        "fusion": _fusion(report.fusion),
        "host": {
            "host_ms": rounded(report.host.host_ms),
            "is_bound": report.host.is_bound,
            "free_from_batch": report.host.free_from_batch,
        },
        "kernels": [_kernel(row) for row in report.kernels],
        "unsupported": [
            {"node": node.node, "op_type": node.op_type, "reason": node.reason} for node in report.unsupported
        ],
        "assumptions": list(report.assumptions),
        "warnings": [notice_json(notice) for notice in report.warnings],
    }
    if report.training is not None:
        document["training"] = _training(report.training)
    if report.what_if:
        document["what_if"] = [_variant(variant, report.totals) for variant in report.what_if]
    return json_text(document)


def to_csv(report: Report) -> str:
    """One row a kernel under :data:`CSV_COLUMNS`; lists are joined with "; ", dims read "m=4096 n=1024".

    A row is one line: what breaks a line in a name is escaped, for readers that split at line breaks.
    """
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in report.kernels:
        writer.writerow(
            (
                row.id,
                row.phase,
                row.kernel_class,
                printable("; ".join(row.op_types)),
                printable("; ".join(row.nodes)),
                row.dtype,
                dims_text(row.dims),
                row.count,
                row.flops,
                row.read_bytes,
                row.write_bytes,
                dims_text(row.tile),
                row.tile_count,
                row.wave_count,
                rounded(row.utilization),
                row.bound,
                rounded(row.latency_us),
                rounded(row.latency_low_us),
                rounded(row.latency_high_us),
                row.predictor,
                row.method,
            )
        )
    return buffer.getvalue()


def notice_json(notice: Notice) -> dict[str, Json]:
    """A warning; ``node`` only where there is one."""
    found: dict[str, Json] = {"code": notice.code, "message": notice.message}
    if notice.node is not None:
        found["node"] = notice.node
    return found


def value_json(value: ValueSummary) -> dict[str, Json]:
    """An input or output: name, dtype and shape, null where unknown."""
    return {"name": value.name, "dtype": value.dtype, "shape": None if value.shape is None else list(value.shape)}


def _variant(variant: Variant, base: Totals) -> dict[str, Json]:
    ratio = variant.totals.latency_ms / base.latency_ms if base.latency_ms else None
    return {
        "changes": variant.changes,
        "precision": variant.precision,
        "product_formats": list(variant.product_formats),
        "latency_ratio": None if ratio is None else rounded(ratio),
        **figures_json(variant.totals, variant.bound_shares, variant.unsupported_count),
    }


def tokens_json(totals: Totals) -> Json:
    """Tokens a second; null of a model that keeps no keys and values, as :func:`known` has it of others."""
    return None if totals.tokens_per_s is None else known(totals, totals.tokens_per_s)


def known(totals: Totals, value: float) -> float | None:
    """A latency of a run, or what follows from it; None where nothing that takes time could be costed."""
    return rounded(value) if totals.is_costed else None


def figures_json(totals: Totals, bound_shares: Mapping[str, float], unsupported_count: int) -> dict[str, Json]:
    """The figures of one run, the same keys wherever several runs stand beside each other."""
    memory = totals.memory
    return {
        "latency_ms": known(totals, totals.latency_ms),
        "latency_low_ms": known(totals, totals.latency_low_ms),
        "latency_high_ms": known(totals, totals.latency_high_ms),
        "interval": rounded(totals.interval),
        "throughput_per_s": known(totals, totals.throughput_per_s),
        "tokens_per_s": tokens_json(totals),
        "batch_size": totals.batch_size,
        "partial": totals.partial,
        "unsupported_count": unsupported_count,
        "memory_bytes": memory.peak_bytes,
        "memory_high_bytes": memory.high_bytes,
        "memory_available_bytes": memory.available_bytes,
        "memory_verdict": memory.verdict,
        "bound": next(iter(bound_shares), ""),
        "bound_shares": {bound: rounded(share) for bound, share in bound_shares.items()},
    }


def _model(model: ModelSummary) -> dict[str, Json]:
    return {
        "path": model.path,
        "sha256": model.sha256,
        "ir_version": model.ir_version,
        "opsets": dict(model.opsets),
        "node_count": model.node_count,
        "parameter_count": model.parameter_count,
        "weight_bytes": model.weight_bytes,
        "inputs": [value_json(value) for value in model.inputs],
        "outputs": [value_json(value) for value in model.outputs],
    }


def _fusion(fusion: FusionSummary) -> dict[str, Json]:
    found: dict[str, Json] = {
        "fused_kernel_count": fusion.fused_kernel_count,
        "fused_node_count": fusion.fused_node_count,
        "saved_kernel_count": fusion.saved_kernel_count,
        "saved_bytes": fusion.saved_bytes,
    }
    if fusion.near_misses is not None:
        found["near_misses"] = [
            {"rule": item.rule, "node": item.node, "reason": item.reason} for item in fusion.near_misses
        ]
    return found


def _settings(settings: Settings) -> dict[str, Json]:
    return {
        "mode": settings.mode,
        "precision": settings.precision,
        "product_formats": list(settings.product_formats),
        "runtime": settings.runtime,
        "runtime_release": settings.runtime_release,
        "dims": dict(settings.dims),
        "parallelism": dict(settings.parallelism),
        "cuda_graph": settings.cuda_graph,
        "include_io": settings.include_io,
        "channels_last": settings.channels_last,
        "batch": settings.batch,
    }


def _training(training: TrainingSummary) -> dict[str, Json]:
    return {
        "optimizer": training.optimizer,
        "loss": training.loss,
        "recompute": training.recompute,
        "grad_accumulation": training.grad_accumulation,
        "dropout": None if training.dropout is None else dict(training.dropout),
        "freeze": list(training.freeze),
        "trained_parameter_count": training.trained_parameter_count,
        "gradient_bytes": training.gradient_bytes,
        "optimizer_state_bytes": training.optimizer_state_bytes,
        "master_weight_bytes": training.master_weight_bytes,
        "saved_bytes": training.saved_bytes,
        "saved": [
            {"node": tensor.node, "name": tensor.name, "byte_count": tensor.byte_count} for tensor in training.saved
        ],
    }


def _totals(totals: Totals) -> dict[str, Json]:
    return {
        "latency_ms": known(totals, totals.latency_ms),
        "latency_low_ms": known(totals, totals.latency_low_ms),
        "latency_high_ms": known(totals, totals.latency_high_ms),
        "interval": rounded(totals.interval),
        "interval_method": totals.interval_method,
        "kernel_ms": rounded(totals.kernel_ms),
        "overhead_ms": rounded(totals.overhead_ms),
        "throughput_per_s": known(totals, totals.throughput_per_s),
        "tokens_per_s": tokens_json(totals),
        "batch_size": totals.batch_size,
        "flops": totals.flops,
        "macs": totals.macs,
        "read_bytes": totals.read_bytes,
        "write_bytes": totals.write_bytes,
        "phases": {name: rounded(value) for name, value in totals.phases.items()},
        "memory": memory_json(totals.memory),
        "partial": totals.partial,
    }


def memory_json(memory: MemoryEstimate) -> dict[str, Json]:
    """The memory of a run; ``timeline`` and ``largest_batch`` only where they were asked for."""
    document: dict[str, Json] = {
        "low_bytes": memory.low_bytes,
        "peak_bytes": memory.peak_bytes,
        "high_bytes": memory.high_bytes,
        "weight_bytes": memory.weight_bytes,
        "activation_bytes": memory.activation_bytes,
        "input_bytes": memory.input_bytes,
        "output_bytes": memory.output_bytes,
        "cache_bytes": memory.cache_bytes,
        "cache_sharing": memory.cache_sharing,
        "new_token_count": memory.new_token_count,
        "workspace_bytes": memory.workspace_bytes,
        "allocator_bytes": memory.allocator_bytes,
        "context_bytes": memory.context_bytes,
        "gradient_bytes": memory.gradient_bytes,
        "optimizer_bytes": memory.optimizer_bytes,
        "available_bytes": memory.available_bytes,
        "verdict": memory.verdict,
        "fits": memory.fits,
        "peak_node": memory.peak_node,
        "peak_tensors": [
            {"name": tensor.name, "kind": tensor.kind, "byte_count": tensor.byte_count, "node": tensor.node}
            for tensor in memory.peak_tensors
        ],
        "assumptions": list(memory.assumptions),
    }
    if memory.timeline is not None:
        document["timeline"] = [
            {"node": point.node, "live_bytes": point.live_bytes, "peak_bytes": point.peak_bytes}
            for point in memory.timeline
        ]
    if memory.largest_batch is not None:
        found = memory.largest_batch
        document["largest_batch"] = {
            "symbol": found.symbol,
            "size": found.size,
            "peak_bytes": found.peak_bytes,
            "high_bytes": found.high_bytes,
            "next_peak_bytes": found.next_peak_bytes,
            "next_high_bytes": found.next_high_bytes,
            "limited_by": found.limited_by,
            "size_in_one_buffer": found.size_in_one_buffer,
            "size_in_two_buffers": found.size_in_two_buffers,
        }
    return document


def _coverage(coverage: Coverage) -> dict[str, Json]:
    return {
        "node_count": coverage.node_count,
        "kernel_node_count": coverage.kernel_node_count,
        "free_node_count": coverage.free_node_count,
        "unsupported_node_count": coverage.unsupported_node_count,
        "latency_share": {name: rounded(value) for name, value in coverage.latency_share.items()},
        "data_dependent_share": rounded(coverage.data_dependent_share),
        "free_reasons": dict(coverage.free_reasons),
    }


def _kernel(row: KernelRow) -> dict[str, Json]:
    return {
        "id": row.id,
        "phase": row.phase,
        "kernel_class": row.kernel_class,
        "op_types": list(row.op_types),
        "nodes": list(row.nodes),
        "dtype": row.dtype,
        "dims": {name: list(value) if isinstance(value, tuple) else value for name, value in row.dims.items()},
        "count": row.count,
        "flops": row.flops,
        "read_bytes": row.read_bytes,
        "write_bytes": row.write_bytes,
        "tile": dict(row.tile),
        "tile_count": row.tile_count,
        "wave_count": row.wave_count,
        "utilization": rounded(row.utilization),
        "bound": row.bound,
        "latency_us": rounded(row.latency_us),
        "latency_low_us": rounded(row.latency_low_us),
        "latency_high_us": rounded(row.latency_high_us),
        "predictor": row.predictor,
        "method": row.method,
    }
