"""Work without a class of its own."""

from __future__ import annotations

from dataclasses import dataclass

from neusight_onnx.dtypes import DataType

TREE_NODE_BYTES = 16
"""Of a tree's node: feature, threshold, two children, of 4 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeWalk:
    """``rows`` samples that go down ``trees`` trees of ``nodes`` nodes in all, ``depth`` nodes each, leaf included."""

    rows: int
    trees: int
    depth: int
    nodes: int

    @property
    def visits(self) -> int:
        """Nodes that are looked at; each says which one is next."""
        return self.rows * self.trees * self.depth

    @property
    def node_bytes(self) -> int:
        return TREE_NODE_BYTES * self.nodes

    @property
    def read_bytes(self) -> int:
        """Of the nodes that are looked at, each once at most."""
        return TREE_NODE_BYTES * min(self.visits, self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSteps:
    """``steps`` tokens that update ``states`` of (d, v) one after the other, as linear attention does.

    ``gated``: the state decays before; ``delta``: what it holds for the key is read before, too. ``spread``: what a
    block has of it: "columns" (32 of them), "warps" (a column each), "states" (all of one), or "chunks" (half of one,
    for which it takes 64 tokens at once).
    """

    states: int
    steps: int
    d: int
    v: int
    gated: bool
    delta: bool
    spread: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opaque:
    """Real work that fits no other class (FFT, tree ensembles, string kernels that are not on the host, …).

    ``walk``: down trees, if that is what it is; ``read`` has its nodes. ``state_steps``: of linear attention.
    """

    operation: str
    operation_count: int
    dtype: DataType
    read: int
    written: int
    walk: TreeWalk | None = None
    state_steps: StateSteps | None = None

    @property
    def macs(self) -> int:
        return 0

    @property
    def flops(self) -> int:
        return self.operation_count

    @property
    def read_bytes(self) -> int:
        return self.read

    @property
    def write_bytes(self) -> int:
        return self.written
