"""The report as a value: what ``analyze`` returns and every format is made from (schema version 1, only grows)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.graph.model import Notice

SCHEMA_VERSION = 1

NestedInts: TypeAlias = "bool | int | list[NestedInts]"
"""The content of an integer or bool tensor: a number for a scalar, else nested lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSummary:
    """An input or output of the model: name, dtype label (None: unknown), bound shape."""

    name: str
    dtype: str | None
    shape: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSummary:
    """The model file in figures. ``parameter_count`` and ``weight_bytes`` count shared weights once."""

    path: str
    sha256: str
    ir_version: int
    opsets: Mapping[str, int]
    node_count: int
    parameter_count: int
    weight_bytes: int
    inputs: tuple[ValueSummary, ...]
    outputs: tuple[ValueSummary, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the model is run. ``cuda_graph``: replayed as a graph; ``include_io``: inputs and outputs are copied, too;
    ``channels_last``: images and filters lie as (n, h, w, c).

    ``product_formats``: of 8 and 4 bits, those that products are computed in, whatever ``precision`` says of the rest.
    ``runtime``: as ``--runtime`` calls it; ``runtime_release``: the release of it that is assumed.
    ``batch``: the size that was asked for as the batch; None: ``dims`` have it, or it was guessed.
    """

    mode: str
    precision: str
    runtime: str
    dims: Mapping[str, int]
    parallelism: Mapping[str, int] = field(default_factory=dict)
    cuda_graph: bool = False
    include_io: bool = False
    channels_last: bool = False
    batch: int | None = None
    runtime_release: str | None = None
    product_formats: tuple[str, ...] = ()


FITS = "fits"
TIGHT = "tight"
DOES_NOT_FIT = "does not fit"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTensor:
    """A piece of device memory that is alive at the peak: ``byte_count`` exact, before any allocator rounds it.

    ``kind``: "input", "output", "cache" (past or present keys and values), "activation" or "workspace" (what a kernel
    needs while it runs); in training also "saved" (what a node leaves for its gradient beside its results), "gradient"
    (of a parameter) and "optimizer" (its states, master weights). ``node`` made it (None for inputs); ``name`` is the
    value that it was made for.
    """

    name: str
    kind: str
    byte_count: int
    node: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTensor:
    """Memory that the run forward leaves for the gradient of ``node``: the value ``name``, or, where that is empty,
    what the node's kernels keep beside its results (statistics, places of maxima, copies)."""

    node: str
    name: str
    byte_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSummary:
    """How the model is trained, and what training holds beside what inference does.

    ``trained_parameter_count``: weights that a gradient reaches. ``gradient_bytes``, ``optimizer_state_bytes`` and
    ``master_weight_bytes``: all of them together; ``saved_bytes``: what is kept of the run forward, weights and inputs
    left out, the sum of ``saved``. ``dropout``: the rates that were asked for by place, None: as the file says.
    """

    optimizer: str
    loss: str
    recompute: str
    grad_accumulation: int
    dropout: Mapping[str, float] | None
    freeze: tuple[str, ...]
    trained_parameter_count: int
    gradient_bytes: int
    optimizer_state_bytes: int
    master_weight_bytes: int
    saved_bytes: int
    saved: tuple[SavedTensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPoint:
    """Bytes of tensors alive right after ``node`` (``live_bytes``) and the most while it ran (``peak_bytes``)."""

    node: str
    live_bytes: int
    peak_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestBatch:
    """The batch for which the verdict is still "fits" and beyond which it isn't; ``size`` 0: not even a batch of 1.

    Sizes a little above may fit again: allocators take memory in blocks.

    ``symbol`` is the dim that was varied. ``peak_bytes`` and ``high_bytes`` are those of the real computation at
    ``size`` (0 for size 0), ``next_peak_bytes`` and ``next_high_bytes`` at ``size`` + 1, which does not fit
    (``None``: ``size`` is the largest that was tried, ``limited_by`` says why). ``size_in_one_buffer``: ``size`` again
    of a model whose past and present keys and values are counted in one buffer, None of others;
    ``size_in_two_buffers``: where they are two.
    """

    symbol: str
    size: int
    peak_bytes: int
    high_bytes: int
    next_peak_bytes: int | None
    next_high_bytes: int | None
    limited_by: str
    size_in_one_buffer: int | None = None
    size_in_two_buffers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Device memory in bytes, at three levels: ``low_bytes`` <= ``peak_bytes`` (expected) <= ``high_bytes``.

    ``peak_bytes`` is the sum of ``weight_bytes``, ``activation_bytes`` (all tensors alive at the peak, the inputs,
    outputs and caches among them), ``workspace_bytes``, ``allocator_bytes`` (what the allocator takes beyond that),
    ``context_bytes`` and, in training, ``gradient_bytes`` (of parameters, as far as they exist at the peak) and
    ``optimizer_bytes`` (states and master weights). ``input_bytes``, ``output_bytes`` and ``cache_bytes`` are parts of
    ``activation_bytes``;
    ``cache_sharing`` says whether past and present keys and values are one buffer: "none" (there is no cache), "once"
    or "twice". ``new_token_count``: so many tokens a sample are appended to the cache; None without one, or where that
    isn't known.
    ``verdict`` compares the range with ``available_bytes``: "fits", "tight" or "does not fit" (docs/memory.md).
    ``peak_node`` runs at the peak, ``peak_tensors`` are alive then, largest first. ``timeline`` and ``largest_batch``
    are there where they were asked for. ``assumptions`` say what the range rests on.
    """

    low_bytes: int
    peak_bytes: int
    high_bytes: int
    weight_bytes: int
    activation_bytes: int
    input_bytes: int
    output_bytes: int
    cache_bytes: int
    cache_sharing: str
    workspace_bytes: int
    allocator_bytes: int
    context_bytes: int
    available_bytes: int
    verdict: str
    peak_node: str | None = None
    peak_tensors: tuple[LiveTensor, ...] = ()
    assumptions: tuple[str, ...] = ()
    timeline: tuple[MemoryPoint, ...] | None = None
    largest_batch: LargestBatch | None = None
    gradient_bytes: int = 0
    optimizer_bytes: int = 0
    new_token_count: float | None = None

    @property
    def fits(self) -> bool:
        """Whether the expected peak is within the GPU's memory."""
        return self.verdict != DOES_NOT_FIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The whole model. ``interval`` is the share of cases meant to lie within low..high.

    ``kernel_ms`` + ``overhead_ms`` = ``latency_ms``: the kernels' own time, and the time the GPU waits for the host.
    ``partial``: something was unsupported or of unknown shape, so that the figures are a lower bound.
    ``interval_method`` says in a sentence how the interval was made. ``phases`` holds milliseconds under
    "forward_ms", "backward_ms", "optimizer_ms".
    """

    latency_ms: float
    latency_low_ms: float
    latency_high_ms: float
    interval: float
    kernel_ms: float
    overhead_ms: float
    throughput_per_s: float
    batch_size: int
    flops: int
    macs: int
    read_bytes: int
    write_bytes: int
    phases: Mapping[str, float]
    memory: MemoryEstimate
    partial: bool
    interval_method: str = ""

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens that are appended to the cache of keys and values; None for a model that keeps none."""
        count = self.memory.new_token_count
        return None if count is None else self.throughput_per_s * count

    @property
    def is_costed(self) -> bool:
        """Whether any time could be worked out; if not, everything that takes time is unsupported."""
        return self.latency_ms > 0 or not self.partial


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Each node is counted once: it became kernels, is free or is unsupported. Shares of latency sum to 1.

    ``data_dependent_share``: of the kernels' time, what goes to kernels that read or write tensors whose shape
    depends on data, which is counted at its bound or at a size that the assumptions state.
    """

    node_count: int
    kernel_node_count: int
    free_node_count: int
    unsupported_node_count: int
    latency_share: Mapping[str, float]
    free_reasons: Mapping[str, int] = field(default_factory=dict)
    data_dependent_share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One kernel as executed. ``latency_us``, flops and bytes are for all ``count`` runs together."""

    id: str
    phase: str
    kernel_class: str
    op_types: tuple[str, ...]
    nodes: tuple[str, ...]
    dtype: str
    dims: Mapping[str, int | str | tuple[int, ...]]
    count: int
    flops: int
    read_bytes: int
    write_bytes: int
    tile: Mapping[str, int]
    tile_count: int
    wave_count: int
    utilization: float
    bound: str
    latency_us: float
    latency_low_us: float
    latency_high_us: float
    predictor: str
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineSpan:
    """A span of the predicted run, in us since its start: the host hands over an operator, the GPU executes a kernel.

    ``kernel_id`` is that of a :class:`KernelRow`; None: an operator without a kernel, whose GPU times are 0.
    ``run_count``: runs in a row that the span stands for.
    """

    node: str
    op_type: str
    kernel_id: str | None
    run_count: int
    host_start_us: float
    host_us: float
    gpu_start_us: float
    gpu_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NearMiss:
    """A rule of the runtime that could have merged something at ``node`` and didn't, and why."""

    rule: str
    node: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionSummary:
    """What fusion saved: ``fused_kernel_count`` kernels do what ``fused_node_count`` nodes of the file would do in one
    each; ``saved_kernel_count`` kernels and ``saved_bytes`` of traffic fewer. ``near_misses``: None if nobody asked."""

    fused_kernel_count: int = 0
    fused_node_count: int = 0
    saved_kernel_count: int = 0
    saved_bytes: int = 0
    near_misses: tuple[NearMiss, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSummary:
    """``host_ms``: what the host takes to hand over the run. ``is_bound``: longer than the kernels take.

    ``free_from_batch``: where it is, the batch from which on it would no longer be, of its doublings; None
    where the model has no batch to vary, or where none up to 1,024 times it would do.
    """

    host_ms: float = 0.0
    is_bound: bool = False
    free_from_batch: int | None = None


def deciding_first(bounds: Mapping[str, float], *, is_host_bound: bool) -> dict[str, float]:
    """Times or shares of a run by what bounds them, in the order in which they decide its latency.

    The largest first, but "host" before all where the host takes longer than the kernels, however short the GPU waits:
    kernels that were faster would make the wait longer, not the run shorter.
    """
    return dict(sorted(bounds.items(), key=lambda entry: (is_host_bound and entry[0] != "host", -entry[1])))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsupportedNode:
    node: str
    op_type: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The same model under a change: ``changes`` as they were written. ``bound_shares``: as in an outcome.

    ``precision`` is what is executed: another runtime or GPU may make something else of "auto"; so is
    ``product_formats`` (:class:`Settings`). ``warnings``: of this
    variant alone, each naming its change.
    """

    changes: str
    precision: str
    totals: Totals
    bound_shares: Mapping[str, float]
    unsupported_count: int
    product_formats: tuple[str, ...] = ()
    warnings: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What ``analyze`` found; section "The machine-readable report" of the docs describes the JSON made from it.

    ``timeline``: where it was asked for, the run as host and GPU go through it. ``what_if``: the model under changes.
    ``training``: how it is trained; None at inference. ``standing``: those of the assumptions that hold for every run
    of such settings, whatever the model.
    """

    tool_version: str
    model: ModelSummary
    gpu: GpuSpec
    settings: Settings
    totals: Totals
    coverage: Coverage
    kernels: tuple[KernelRow, ...]
    unsupported: tuple[UnsupportedNode, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[Notice, ...]
    timeline: tuple[TimelineSpan, ...] | None = None
    what_if: tuple[Variant, ...] = ()
    fusion: FusionSummary = FusionSummary()
    host: HostSummary = HostSummary()
    training: TrainingSummary | None = None
    standing: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    """A symbolic dim of the inputs: the size it got, and whether it was given or is a default."""

    name: str
    size: int
    given: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSummary:
    """An input as declared (sizes, names of symbols, None where nothing is declared) and as bound."""

    name: str
    kind: str
    dtype: str | None
    declared: tuple[int | str | None, ...] | None
    shape: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFacts:
    """What is known of one value of the graph.

    ``is_bound``: the true shape depends on data, ``shape`` is an upper bound. ``value``: the content of a small
    integer or bool tensor, if it is known. ``elements``: the members of a sequence; None for other kinds and
    where they are not known.
    """

    kind: str
    dtype: str | None
    shape: tuple[int, ...] | None
    is_bound: bool = False
    value: NestedInts | None = None
    elements: tuple[ValueFacts, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What a model is made of, without a GPU.

    ``operators`` counts nodes by operator ("Conv", "com.microsoft::FusedMatMul"), functions inlined, bodies of
    control flow included. ``macs`` and ``flops`` are those of one run with the bound sizes; ``partial``: some nodes are
    not in them (``unsupported``). ``values`` holds the main graph; ``bodies`` those of control-flow nodes by
    "node.attribute".
    """

    tool_version: str
    path: str
    sha256: str
    byte_count: int
    ir_version: int
    producer: str
    opsets: Mapping[str, int]
    node_count: int
    operators: Mapping[str, int]
    parameter_count: int
    weight_bytes: int
    symbols: tuple[Symbol, ...]
    inputs: tuple[InputSummary, ...]
    outputs: tuple[ValueSummary, ...]
    macs: int
    flops: int
    partial: bool
    unsupported: tuple[UnsupportedNode, ...]
    values: Mapping[str, ValueFacts]
    bodies: Mapping[str, Mapping[str, ValueFacts]]
    assumptions: tuple[str, ...]
    warnings: tuple[Notice, ...]
