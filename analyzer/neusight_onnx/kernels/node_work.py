"""What one node of the graph became."""

from __future__ import annotations

import re
from dataclasses import dataclass

from neusight_onnx.kernels.kinds import Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWork:
    """What one node of the graph became: kernels, nothing with a reason, or unsupported with a reason.

    Exactly one of ``kernels`` (non-empty), ``free`` and ``unsupported`` is set. ``count``: how often it runs
    (trip counts of the loops around it). ``branch``: inside an If, "node name/then" or "node name/else"; where Ifs
    are nested, the outer one first.
    ``host_operation``: whether a runtime that interprets the graph still spends host time on it (a view does).
    ``host_waits``: the host can't go on before the node's kernels have ended, since it needs to know how large their
    result is.
    ``merged_into``: the node whose kernel does this node's work, and whose ``origins`` name it; this one is free then.
    ``written`` says whether that kernel writes this node's value all the same, for others to read.
    ``alternatives``: other kernels that would do the same; the quickest on the GPU are run.
    ``parts``: inputs that lie in its result already, as those who made them wrote them there.
    ``is_boundary``: no node of the file, but the copies of the model's inputs or outputs.
    ``phase``: "forward", or in training also "backward" or "optimizer".
    ``tensors_each``: of the optimizer, how many tensors a launch goes through.
    ``on_host_because``: of an operator that the runtime gives to the CPU, which version, type or form of it has no GPU
    kernel; "" where none has.
    """

    node: str
    op_type: str
    origins: tuple[tuple[str, str], ...] = ()
    kernels: tuple[Kernel, ...] = ()
    alternatives: tuple[tuple[Kernel, ...], ...] = ()
    free: str | None = None
    unsupported: str | None = None
    count: int = 1
    branch: tuple[str, ...] = ()
    host_operation: bool = False
    host_waits: bool = False
    merged_into: str | None = None
    written: bool = False
    parts: tuple[str, ...] = ()
    is_boundary: bool = False
    phase: str = "forward"
    tensors_each: float = 1.0
    on_host_because: str | None = None

    @property
    def at_fault(self) -> tuple[str, str]:
        """Name and operator of what ``unsupported`` is about: of the nodes that were merged into an operator of our
        own, the one that the reason names."""
        named = re.search(r"\bno (?:[\w.]+::)?(\w+)", self.unsupported or "")
        found = (origin for origin in self.origins if named is not None and origin[1] == named[1])
        return next(found, (self.node, self.op_type))

    def with_kernels(self, kernels: tuple[Kernel, ...]) -> NodeWork:
        """The same work by other kernels: as ``replace`` does it in thrice the time, for most works of a run."""
        return NodeWork(
            node=self.node,
            op_type=self.op_type,
            origins=self.origins,
            kernels=kernels,
            alternatives=self.alternatives,
            free=self.free,
            unsupported=self.unsupported,
            count=self.count,
            branch=self.branch,
            host_operation=self.host_operation,
            host_waits=self.host_waits,
            merged_into=self.merged_into,
            written=self.written,
            parts=self.parts,
            is_boundary=self.is_boundary,
            phase=self.phase,
            tensors_each=self.tensors_each,
            on_host_because=self.on_host_because,
        )
