"""The work of nodes that have none, shared between the sizes of one model: most nodes of an exported graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from neusight_onnx.graph.model import Node
from neusight_onnx.kernels import NodeWork

_Key: TypeAlias = "tuple[int, str, int, tuple[str, ...]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeWorks:
    """Works by the identity of the node (or work) that they were made of, which they keep alive."""

    of_nodes: dict[_Key, tuple[Node, NodeWork]] = field(default_factory=dict)
    on_host: dict[int, tuple[NodeWork, NodeWork]] = field(default_factory=dict)

    def of(self, node: Node, reason: str, count: int, branch: tuple[str, ...]) -> NodeWork:
        """The work of a node that is free for ``reason``."""
        key = (id(node), reason, count, branch)
        found = self.of_nodes.get(key)
        if found is None:
            origins = tuple([(origin.name, origin.op_type) for origin in node.stands_for])
            work = NodeWork(
                node=node.name, op_type=node.op_type, origins=origins, free=reason, count=count, branch=branch
            )
            found = self.of_nodes[key] = (node, work)
        return found[1]

    def on_the_host(self, work: NodeWork) -> NodeWork:
        """``work``, which has no kernel, as an operator of the host."""
        found = self.on_host.get(id(work))
        if found is None:
            own = NodeWork(  # as ``replace`` does it in thrice the time, for most nodes
                node=work.node,
                op_type=work.op_type,
                origins=work.origins,
                free=work.free,
                count=work.count,
                branch=work.branch,
                host_operation=True,
            )
            found = self.on_host[id(work)] = (work, own)
        return found[1]
