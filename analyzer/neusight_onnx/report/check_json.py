"""The result of a check for programs (schema version 1, only grows)."""

from __future__ import annotations

from neusight_onnx.report.json_text import Json, json_text, rounded
from neusight_onnx.report.machine import known, tokens_json
from neusight_onnx.report.verdict import Finding, MistakenTarget, TargetVerdict, Verdict
from neusight_onnx.runtime import release_of

SCHEMA_VERSION = 1


def verdict_to_json(verdict: Verdict) -> str:
    """The result as JSON; docs/report-schema.md describes every key."""
    return json_text(
        {
            "schema_version": SCHEMA_VERSION,
            "tool": {"name": "neusight-onnx", "version": verdict.tool_version},
            "passed": verdict.passed,
            "fail_on": verdict.fail_on.value,
            "config": verdict.config,
            "targets": [*map(_target, verdict.targets), *map(_mistaken, verdict.mistaken)],
            "findings": [_finding(finding, verdict) for finding in verdict.findings],
        }
    )


def _target(target: TargetVerdict) -> dict[str, Json]:
    totals, memory = target.totals, target.memory
    return {
        "name": target.name,
        "passed": target.passed,
        "model": target.model,
        "gpu": target.gpu.name,
        "mode": target.mode,
        "precision": target.precision,
        "product_formats": list(target.product_formats),
        "runtime": target.runtime,
        "runtime_release": release_of(target.runtime),
        "cuda_graph": target.cuda_graph,
        "include_io": target.include_io,
        "channels_last": target.channels_last,
        "dims": dict(target.dims),
        "limits": dict(target.limits),
        "at": target.at,
        "latency_ms": None if totals is None else known(totals, totals.latency_ms),
        "latency_low_ms": None if totals is None else known(totals, totals.latency_low_ms),
        "latency_high_ms": None if totals is None else known(totals, totals.latency_high_ms),
        "throughput_per_s": None if totals is None else known(totals, totals.throughput_per_s),
        "tokens_per_s": None if totals is None else tokens_json(totals),
        "batch_size": None if totals is None else totals.batch_size,
        "host_ms": None if target.host is None else rounded(target.host.host_ms),
        "host_bound": None if target.host is None else target.host.is_bound,
        "host_free_from_batch": None if target.host is None else target.host.free_from_batch,
        "not_predicted": target.not_predicted,
        "memory_bytes": None if memory is None else memory.peak_bytes,
        "memory_high_bytes": None if memory is None else memory.high_bytes,
        "memory_verdict": None if memory is None else memory.verdict,
        "parameter_count": target.parameter_count,
        "unsupported_count": target.unsupported_count,
        "checks": list(target.codes),
        "assumptions": list(target.assumptions),
    }


def _mistaken(target: MistakenTarget) -> dict[str, Json]:
    """A target that wasn't judged: what was asked for, and no figures."""
    figures = ("latency_ms", "latency_low_ms", "latency_high_ms", "throughput_per_s", "tokens_per_s", "batch_size")
    host = ("host_ms", "host_bound", "host_free_from_batch")
    memory = ("memory_bytes", "memory_high_bytes", "memory_verdict")
    return {
        "name": target.name,
        "passed": False,
        "model": target.model,
        "gpu": target.gpu,
        "mode": target.mode,
        "precision": target.precision,
        "product_formats": [],
        "runtime": target.runtime,
        "runtime_release": None,
        "cuda_graph": target.cuda_graph,
        "include_io": target.include_io,
        "channels_last": target.channels_last,
        "dims": dict(target.dims),
        "limits": dict(target.limits),
        "at": target.at,
        **dict.fromkeys((*figures, *host)),
        "not_predicted": target.mistake,
        **dict.fromkeys((*memory, "parameter_count", "unsupported_count")),
        "checks": [],
        "assumptions": [],
    }


def _finding(finding: Finding, verdict: Verdict) -> dict[str, Json]:
    return {
        "code": finding.code,
        "title": finding.title,
        "severity": finding.severity.value,
        "fails": verdict.fails(finding),
        "model": finding.model,
        "node": finding.node,
        "message": finding.message,
        "fix": finding.fix,
        "targets": list(finding.targets),
        "allowed": finding.allowed,
    }
