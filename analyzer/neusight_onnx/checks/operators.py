"""NSX5xx: operators that are unknown, have no model of their cost, or don't belong to the model's opset."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from neusight_onnx.checks.registry import Found, Scope, checks
from neusight_onnx.checks.subject import Subject
from neusight_onnx.fusion.quantization.at_run_time import rounding_kernels
from neusight_onnx.graph.bodies import nodes_of
from neusight_onnx.graph.model import Node, file_name
from neusight_onnx.graph.signatures import first_version
from neusight_onnx.graph.versions import LAST_OPSETS, OPEN_DOMAIN
from neusight_onnx.kernels import HostWork, NodeWork, Transfer
from neusight_onnx.lowering import operator_table
from neusight_onnx.lowering.experts import REFUSED_BY_PROVIDER
from neusight_onnx.lowering.placement import REFUSED_BY
from neusight_onnx.lowering.refused import is_plugin
from neusight_onnx.lowering.registry import HOST_ALONE
from neusight_onnx.lowering.walk import UNKNOWN_BECAUSE, UNKNOWN_HERE
from neusight_onnx.preparation import why_uncaptured
from neusight_onnx.report.quantities import counted, scaled
from neusight_onnx.report.verdict import Severity
from neusight_onnx.runnable import BY_PAIRS, ENGINE_LACKS, SYMMETRIC, quantised_for_others, refused_pair, runtime_misfit


def _qualified(node: Node) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain else node.op_type


@checks(
    "NSX501",
    "operator unknown to the runtime",
    severity=Severity.ERROR,
    scope=Scope.TARGET,
    explanation="The operator is neither of ONNX nor of ONNX Runtime: a custom one, or a misspelt name. Without the "
    "library that brings it, no runtime loads the model; its cost is unknown here. `neusight-onnx operators` "
    "lists those that are known. Plugins of TensorRT (EfficientNMS_TRT, ...) are known to it alone.",
    fix="export it as standard operators or as an ONNX function; else make sure that the runtime has its library",
)
def unknown_operator(subject: Subject) -> Iterator[Found]:
    known = {(domain, op_type) for domain, op_type, _, _ in operator_table()}
    unknown: dict[tuple[str, str], list[str]] = {}
    plugins: dict[str, list[str]] = {}
    for node in nodes_of(subject.model.graph):
        if is_plugin(node.domain, node.op_type):
            if subject.target.runtime.partition("@")[0] != "tensorrt":
                plugins.setdefault(node.op_type, []).append(node.name)
        elif (node.domain, node.op_type) not in known:
            unknown.setdefault((node.domain, _qualified(node)), []).append(node.name)
    for name, nodes in plugins.items():
        yield Found(
            message=f"{name} is a plugin of TensorRT, which {subject.target.runtime} doesn't have "
            f"({counted(len(nodes), 'node')})",
            node=nodes[0],
            fix="run the model by --runtime tensorrt, or export it without the plugin",
        )
    for (domain, name), nodes in unknown.items():
        what = "not a known operator" if domain else "no operator of ONNX, though in its domain"
        yield Found(
            message=f"{name} is {what} ({counted(len(nodes), 'node')})",
            node=nodes[0],
            fix=None
            if domain
            else "export the model by another opset or exporter: this one left the framework's own operator in it, and "
            "ONNX Runtime refuses the file",
        )


def _accepted(subject: Subject) -> Severity | None:
    """Where the user said how many unsupported nodes are fine, NSX106 judges them and the rest is information."""
    return Severity.NOTE if subject.target.limits.max_unsupported is not None else None


@checks(
    "NSX502",
    "operator without a model of its cost",
    severity=Severity.WARNING,
    scope=Scope.TARGET,
    explanation="The operator is known, but its cost can't be predicted (in this form), so it counts as nothing and "
    "the totals are a lower bound. The message says why. With --max-unsupported it is a note.",
    fix="accept it with --max-unsupported N, or express it by other operators",
)
def unmodelled_operator(subject: Subject) -> Iterator[Found]:
    if not subject.opaque:
        return
    known = {(domain, op_type) for domain, op_type, _, _ in operator_table()}
    operators = {node.name: node for node in nodes_of(subject.model.graph)}
    groups: dict[tuple[str, str], list[NodeWork]] = {}
    for work in subject.opaque:
        node = operators.get(work.node)
        reason = work.unsupported or ""
        unknown = (  # NSX501 says that
            node is not None and (node.domain, node.op_type) not in known and not is_plugin(node.domain, node.op_type)
        )
        if not unknown and not reason.startswith((UNKNOWN_BECAUSE, UNKNOWN_HERE, REFUSED_BY, REFUSED_BY_PROVIDER)):
            groups.setdefault((work.op_type, reason), []).append(work)
    for (op_type, reason), works in groups.items():
        yield Found(
            message=f"{op_type}: {reason} ({counted(len(works), 'node')})",
            node=works[0].node,
            severity=_accepted(subject),
        )


@checks(
    "NSX503",
    "shapes unknown behind a node",
    severity=Severity.WARNING,
    scope=Scope.TARGET,
    explanation="A node's output shape can't be inferred and the file doesn't declare it, so that the nodes behind it "
    "can't be costed and count as nothing. With --max-unsupported it is a note.",
    fix="give the shape of the node's output with --shape VALUE=1x3x8",
)
def unknown_shapes(subject: Subject) -> Iterator[Found]:
    causes = Counter(
        work.node if work.unsupported.startswith(UNKNOWN_HERE) else work.unsupported.removeprefix(UNKNOWN_BECAUSE)
        for work in subject.opaque
        if work.unsupported is not None and work.unsupported.startswith((UNKNOWN_BECAUSE, UNKNOWN_HERE))
    )
    operators = {node.name: _qualified(node) for node in nodes_of(subject.model.graph)} if causes else {}
    groups: dict[str, list[str]] = {}
    for cause in causes:
        groups.setdefault(operators.get(cause, cause), []).append(cause)
    for operator, nodes in groups.items():
        others = f" and {len(nodes) - 1:,} more {operator}" if len(nodes) > 1 else ""
        count = sum(causes[node] for node in nodes)
        yield Found(
            message=f"shapes behind it{others} are unknown: {counted(count, 'node')} can't be costed",
            node=nodes[0],
            severity=_accepted(subject),
        )


@checks(
    "NSX504",
    "operator not in the model's opset",
    severity=Severity.WARNING,
    scope=Scope.MODEL,
    explanation="The model uses an operator that the opset it imports doesn't have yet, or no longer. The onnx "
    "checker and most runtimes refuse that; ONNX Runtime accepts some in models that its own optimiser wrote.",
    fix="export with an opset that has the operator",
)
def opset_mismatch(subject: Subject) -> Iterator[Found]:
    wrong: dict[tuple[str, str, int], list[str]] = {}
    for node in nodes_of(subject.model.graph):
        # a domain that isn't imported has no version; ONNX Runtime's has one only
        if node.version and node.domain != OPEN_DOMAIN:
            first, last = first_version(node.domain, node.op_type) or 1, _last(node.domain, node.op_type)
            if not first <= node.version <= last:
                wrong.setdefault((node.domain, node.op_type, node.version), []).append(node.name)
    for (domain, op_type, version), nodes in wrong.items():
        first = first_version(domain, op_type) or 1
        has = f"came with opset {first}" if version < first else f"ended with opset {_last(domain, op_type)}"
        yield Found(message=f"{op_type} {has}, the model imports {version} ({_many(nodes)})", node=nodes[0])


@checks(
    "NSX505",
    "operator that the runtime runs on the CPU",
    severity=Severity.WARNING,
    scope=Scope.TARGET,
    explanation="ONNX Runtime's CUDA provider has no kernel for the operator, so that it runs on the CPU: the GPU "
    "waits, what it reads is copied to the host and what it gives is copied back, and the run can't be captured as a "
    "CUDA graph. The copies and an estimate of the CPU's work are in the latency. What handles text or decodes "
    "images runs on the CPU in every runtime, and its time isn't counted.",
    fix="express it by operators that have kernels (where some opsets or types have: in those), or move it out of the "
    "model",
)
def runs_on_the_cpu(subject: Subject) -> Iterator[Found]:
    groups: dict[tuple[str, str], list[NodeWork]] = {}
    uncounted: dict[tuple[str, str], list[NodeWork]] = {}
    for work in () if subject.prepared is None else subject.prepared.work:
        if work.free in HOST_ALONE:
            uncounted.setdefault((work.op_type, work.free or ""), []).append(work)
        elif any(isinstance(kernel, HostWork) for kernel in work.kernels):
            groups.setdefault((work.op_type, work.on_host_because or ""), []).append(work)
    for (op_type, why), works in groups.items():
        moved = sum(kernel.byte_count for work in works for kernel in work.kernels if isinstance(kernel, Transfer))
        lacking = f"{op_type} has no GPU kernel in {subject.target.runtime}{f' {why}' if why else ''}"
        yield Found(
            message=f"{lacking} ({counted(len(works), 'node')}): it runs on the CPU, {scaled(moved, 'B')} are copied",
            node=works[0].node,
        )
    for (op_type, reason), works in uncounted.items():
        yield Found(
            message=f"{op_type}: {reason} ({counted(len(works), 'node')}), whose time isn't counted",
            node=works[0].node,
            fix="do it in front of the model, which then takes numbers",
        )


@checks(
    "NSX506",
    "operator that the runtime doesn't take",
    severity=Severity.ERROR,
    scope=Scope.TARGET,
    explanation="TensorRT's parser doesn't know the operator, so that no engine can be built of the model as it is. "
    "The node counts as nothing here, and the totals are a lower bound, which is what a plugin may leave; of operators "
    "that quantise or multiply what is quantised (DynamicQuantizeLinear, ConvInteger, QLinearConv, ...) nothing is "
    "predicted. Or it knows the operator and not this form "
    "(Attention with softcap or a cache, Resize with antialias, TopK of more than 3,840 elements, tensors of INT16 and "
    "unsigned integers). "
    "QuantizeLinear and DequantizeLinear must round to INT8, INT4, FP8 or FP4 about zero (no zero point but 0), of "
    "INT32 biases and UINT8 weights there is none; nothing is predicted then. ONNX Runtime refuses forms of a "
    "mixture of experts that its CUDA provider has no kernels for (QMoE with weights of the gate apart from fc1).",
    fix="express it by other operators, give TensorRT a plugin, or run the model by --runtime onnxruntime",
)
def refused_by_the_runtime(subject: Subject) -> Iterator[Found]:
    groups: dict[str, list[NodeWork]] = {}
    for work in subject.opaque:
        if (work.unsupported or "").startswith((REFUSED_BY, REFUSED_BY_PROVIDER)):
            groups.setdefault(work.unsupported or "", []).append(work)
    for reason, works in groups.items():
        first, _ = works[0].at_fault
        if reason.startswith(REFUSED_BY_PROVIDER):
            fix: str | None = "export the mixture with swiglu whose fc1 holds the gate, too (swiglu_fusion=1 or 2)"
        elif any(f" no {op_type}:" in reason for op_type in ENGINE_LACKS):
            fix = f"{BY_PAIRS}, or run the model by --runtime onnxruntime"
        else:
            fix = None
        yield Found(message=f"{reason} ({counted(len(works), 'node')})", node=file_name(first), fix=fix)
    pair = refused_pair(subject.model.graph, subject.target.runtime)
    if pair is not None:
        yield Found(
            message=f"{pair.op_type} {pair.reason}{pair.more}",
            node=pair.node,
            fix=f"{SYMMETRIC}, or run the model by --runtime onnxruntime",
        )


@checks(
    "NSX507",
    "runtime that doesn't run on this GPU",
    severity=Severity.ERROR,
    scope=Scope.TARGET,
    explanation="The runtime is made for the GPUs of another vendor (TensorRT for NVIDIA's), or its compiler for newer "
    "ones (Triton, of torch.compile, for Volta and later), or the release that the target names takes no such GPU or "
    "has no such number format: nothing is predicted.",
    fix="take the runtime or the release that the finding names, or another GPU",
)
def not_for_this_gpu(subject: Subject) -> Iterator[Found]:
    found = runtime_misfit(subject.model, subject.precision, subject.target.runtime, subject.gpu)
    if found is not None:
        yield Found(message=found.reason, fix=found.remedy)


@checks(
    "NSX508",
    "quantised graph that the runtime computes in floats",
    severity=Severity.WARNING,
    scope=Scope.TARGET,
    explanation="The graph has QuantizeLinear and DequantizeLinear around its products, or --precision int8 puts them "
    "there, and the runtime folds none of them on a GPU (ONNX Runtime's CUDA provider): each is a kernel of its own, "
    "products run in floats, and the model is slower than the one that it was made from.",
    fix="run it by --runtime tensorrt, or deploy the model that is not quantised",
)
def computed_in_floats(subject: Subject) -> Iterator[Found]:
    if subject.prepared is None or subject.prepared.runtime.folds_quantization:
        return
    apart = rounding_kernels(subject.prepared.work)
    if apart:
        kernels = counted(sum(apart.values()), "kernel")
        yield Found(
            message=f"{subject.target.runtime} runs {kernels} that only quantise or dequantise, and products in floats",
            node=next(iter(apart)),
            fix=None
            if refused_pair(subject.model.graph, "tensorrt") is None
            else f"{SYMMETRIC} and run it by --runtime tensorrt, or deploy the model that is not quantised",
        )


@checks(
    "NSX509",
    "quantised file that PyTorch doesn't run",
    severity=Severity.WARNING,
    scope=Scope.TARGET,
    explanation="The file has ONNX's operators of quantisation (QuantizeLinear, DequantizeLinear, ...), and the target "
    "names PyTorch as its runtime (eager, compiled), which runs no such file: what is predicted is its way of "
    "launching with kernels in few bits that it doesn't have. A model that PyTorch quantises itself is predicted by "
    "the float file and --precision.",
    fix="run the file by --runtime tensorrt or onnxruntime, or give the one that is not quantised and --precision int8",
)
def not_of_pytorch(subject: Subject) -> Iterator[Found]:
    message = quantised_for_others(subject.model.graph, subject.target.runtime)
    if message is not None:
        yield Found(message=message.partition(";")[0])


@checks(
    "NSX510",
    "CUDA graph that can't be captured",
    severity=Severity.ERROR,
    scope=Scope.TARGET,
    explanation="The target asks for CUDA graphs, and the host has something to do in the middle of the run: it waits "
    "for a result, copies what it computes of sizes, or decides a branch or a trip. ONNX Runtime's CUDA provider "
    "refuses such a session, or fails as it captures the run. In other runtimes it is a warning: what captures the run "
    "as a whole fails there, too. What is predicted is the run without CUDA graphs.",
    fix="leave CUDA graphs out, or take what the finding names out of the model",
)
def not_captured(subject: Subject) -> Iterator[Found]:
    prepared = subject.prepared
    if not subject.target.cuda_graph or prepared is None or prepared.runtime.captured:
        return
    reason = why_uncaptured(prepared)
    if reason is not None:
        refuses = prepared.runtime.name == "onnxruntime"
        yield Found(
            message=f"the run can't be captured in {prepared.runtime.label}: {reason}",
            severity=Severity.ERROR if refuses else Severity.WARNING,
        )


def _last(domain: str, op_type: str) -> float:
    return math.inf if domain else LAST_OPSETS.get(op_type, math.inf)


def _many(nodes: Sequence[str]) -> str:
    return counted(len(nodes), "node")
