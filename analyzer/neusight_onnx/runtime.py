"""What executes the model: which runtimes are modelled, and what each release of them does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from math import inf
from typing import Any, Literal

from neusight_onnx.errors import NotSupportedError, OptionError, shown
from neusight_onnx.releases import Change, History, Release, is_before, parse_release, release_text
from neusight_onnx.releases.onnxruntime import ONNXRUNTIME
from neusight_onnx.releases.pytorch import COMPILED, EAGER
from neusight_onnx.releases.tensorrt import EPILOGUES, TENSORRT

NO_HISTORY = History(project="", first=(0,), newest=(0,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What executes the model: what it costs on the host, and what it makes of a graph, as its newest release does.

    ``history``: what earlier releases did otherwise. ``release``: the one that is described, where one was asked for
    (``newer``: one that came after the newest that is known); ``lacks``: the fusion rules that it doesn't have, or no
    longer has.

    Host costs in us: ``kernel_us`` of a launched kernel, ``view_us`` of an operator without one, ``graph_us`` from the
    launch of a captured CUDA graph to its first kernel. ``operator_software``: whether software in front of a launch
    differs by operator, so that :mod:`neusight_onnx.operator_host` adds it to ``kernel_us``; ``scripted``: whether
    TorchScript's interpreter calls the operators, not Python; ``records_gradients``: whether the run forward writes
    down what the one backwards needs; ``layers_in_a_row``: whether the model's code does nothing but call one layer
    after the other. ``host_spread``: the factor each way that the interval allows for a faster or
    slower host. ``captured``: the run is replayed as a CUDA graph, which needs one launch in all.

    ``elementwise``: whose kernels run over elements: "pytorch", "onnxruntime", "generated" (for their
    shapes).
    ``pointwise``: which kernels over elements are merged: "patterns" (those of named formulas only) or "chains".
    ``products``: what a convolution or a matrix product applies before it writes, by "conv" and "gemm" (names of
    operators; "Add" is of a tensor of the result's shape, "bias" of a vector). ``attention``: what becomes of attention
    that a model writes as products and a softmax; below ``attention_capability`` it stays that.
    ``sums_fp16``: whether products and convolutions of FP16 may accumulate in FP16, where that is faster.
    ``has_cudnn7``: whether its convolutions in FP16 are those of cuDNN 7, on Volta and Turing.
    ``units_want_eights``: whether products of FP16 take matrix units only where rows of all operands are multiples of
    8 elements.
    ``row_padding``: what it does about rows of products' operands that aren't whole vectors of 16 bytes (as
    ``Gemm.row_padding``).
    ``conv_layout``: the order that convolutions get their input in. ``takes_order``: whether the caller may have images
    and filters lie as (n, *spatial, c), as which operators then keep them; ``channels_last``: and does. ``reorders``:
    whether a compiler has filters of images lie so where it finds that worth its while.
    ``tf32``: which products of FP32 take TF32 units where there are some unless one says otherwise: "none", "cudnn"
    (those that cuDNN computes: convolutions and recurrent layers) or "all".
    ``folds_quantization``: whether QuantizeLinear and DequantizeLinear around an operator make it one in few bits.
    ``narrow_products``: what becomes of linear layers that are asked for in 8 or 4 bits: "converted" (a kernel converts
    the activations before each), "calibrated" (the layer that makes them does), "widened" (none multiplies so few bits:
    pairs of quantisation stand around products of 16).
    ``packs_experts``: whether it has a mixture of experts with weights in 4 bits (ONNX Runtime's QMoE).
    ``gates_apart``: of which experts in few bits a gate's weights may be a matrix of their own, fc3: "all", those in
    "blocks" of FP8, or "none". ``lacks_activations``: activations of experts that it refuses.
    ``narrow_rows``: up to how many rows it multiplies weights of 2 to 8 bits as they are stored; for more a kernel
    widens them first. None: for any number.
    ``fallback``: what happens to an operator that it has no GPU kernel for: "none" (it has them all), "host" (on the
    CPU, with copies both ways), "refused" (such a model isn't built).
    ``times_kernels``: whether its builder times what could do a node's work on the GPU, and keeps the quickest.
    ``computes_constants``: whether what depends on parameters alone is computed in every run, not once at load.
    ``calls_attention``: whether attention in 16 bits that a graph writes out is one call in the model.
    ``fused_attention``: which of com.microsoft's attention operators find a fused kernel: "none", those whose operand
    for padding is a list of "lengths", "any" that one can take, or "cudnn", which is any and cuDNN's where the GPU
    has them. ``has_xqa``: whether GroupQueryAttention decodes by XQA. ``biases_attention_first``: whether the bias of
    Attention's projection is written to all rows before the product, as Gemm's is, and not added behind it.
    ``norms_in_fp32``: what becomes of a normalization of 16 bits that casts to FP32 in between: "apart", as written;
    "deviation", a kernel that starts at the deviations from the mean; "whole", one kernel.
    ``newest_pow``: the newest opset whose Pow formulas of normalizations and GELU may hold; None: any.
    ``biased_gelu_at_open_sizes``: whether a bias joins GELU whose width isn't known; ``biased_stacks``: whether one
    joins a product of more than two dimensions. ``norms_of_sums_at_open_sizes``: whether a sum joins the normalization
    behind it in a file that leaves sizes open; ``joins_first_bias``: whether a bias that is added as first operand
    does, too; ``converted_sizes_have_names``: whether the tool that converts a file to float16 has onnx name the sizes
    that it can't infer.
    ``drops_neutral``: whether sums with 0 and products with 1 go, where redundant nodes do; ``splits_gathers``:
    whether Gathers that take a tensor apart become one Split. ``has_hard_swish``: whether HardSwish is one kernel.
    ``skip_norm_at_once``: elements that a thread of the kernel that adds a residual and normalizes takes at once, up to
    1,024 columns: 1 or 4; 0: as today's.
    ``widens_attention``: whether PyTorch's formula for attention without a fused kernel computes in FP32.
    ``vector_lookups``: which runs of whole 16 bytes its lookups copy so: "none", "rows" that one index each picks, or
    "any".
    ``lacks_formats``: values of ``--precision`` that it doesn't compute in, "bf16" for "bf16-model", too.
    ``foreach_optimizer``: whether a step's kernels go through many parameters each; ``frees_gradients``: whether
    gradients are given back after a step, not filled with zeros.
    ``attention_masks``: whether the kernel of such a call takes a mask.
    ``flattens``: a linear layer of up to so many dimensions is one product of two (None: of any), else its bias is a
    kernel behind it. ``bias_first``: whether a bias is written to all rows of the result before, and the product added.
    ``contiguous_stacks``: whether stacks of matrices are copied before a product wherever they aren't contiguous,
    though a view would do.
    ``softmax_in_registers``: whether PyTorch's softmax keeps rows of more than 1,024 columns.
    ``norm_kernels``: of a layer normalization (two: moments of the rows, then what they are for).
    ``fused_rms_norm``: whether an RMS normalization that the file has as one operator is one kernel.
    ``vendors``: whose GPUs it runs on; of NVIDIA's, those of compute capability ``least_capability`` to
    ``most_capability``. ``compiled_for``: those that its own kernels are machine code of (a later one of the same
    first number runs it; none: not known), ``has_ptx``: whether the driver compiles them for those after the last.
    ``rewrites``: whether redundant nodes go, parts of a tensor come from one Split, and Transposes move.
    ``computes_shapes``: whether operators that compute shapes are run on the host, one by one, where sizes are open.
    """

    name: str
    description: str
    kernel_us: float
    view_us: float
    host_spread: float
    graph_us: float = 2.5
    operator_software: bool = False
    scripted: bool = False
    records_gradients: bool = False
    layers_in_a_row: bool = False
    captured: bool = False
    elementwise: str = "pytorch"
    pointwise: str = "patterns"
    products: Mapping[str, frozenset[str]] = field(default_factory=dict)
    attention: str = "as written"
    attention_capability: float | None = None
    conv_layout: str = "nchw"
    sums_fp16: bool = False
    has_cudnn7: bool = False
    units_want_eights: bool = False
    row_padding: Literal["", "stored", "copied"] = ""
    takes_order: bool = False
    channels_last: bool = False
    reorders: bool = False
    tf32: Literal["none", "cudnn", "all"] = "none"
    fallback: str = "none"
    folds_quantization: bool = True
    narrow_products: str = "converted"
    packs_experts: bool = False
    gates_apart: Literal["all", "blocks", "none"] = "all"
    lacks_activations: frozenset[str] = frozenset()
    narrow_rows: int | None = None
    rewrites: bool = False
    computes_shapes: bool = False
    times_kernels: bool = False
    vendors: frozenset[str] = frozenset({"NVIDIA", "AMD"})
    least_capability: float = 0.0
    most_capability: float = inf
    compiled_for: tuple[float, ...] = ()
    has_ptx: bool = False
    calls_attention: bool = False
    computes_constants: bool = False
    fused_attention: str = "cudnn"
    biases_attention_first: bool = False
    has_xqa: bool = True
    norms_in_fp32: str = "whole"
    newest_pow: int | None = None
    biased_gelu_at_open_sizes: bool = True
    biased_stacks: bool = True
    norms_of_sums_at_open_sizes: bool = True
    converted_sizes_have_names: bool = True
    joins_first_bias: bool = True
    drops_neutral: bool = True
    splits_gathers: bool = True
    has_hard_swish: bool = True
    skip_norm_at_once: int = 0
    widens_attention: bool = True
    vector_lookups: str = "none"
    lacks_formats: frozenset[str] = frozenset()
    foreach_optimizer: bool = True
    frees_gradients: bool = True
    attention_masks: bool = True
    flattens: int | None = None
    bias_first: bool = False
    contiguous_stacks: bool = False
    softmax_in_registers: bool = True
    norm_kernels: int = 1
    fused_rms_norm: bool = True
    history: History = NO_HISTORY
    release: Release | None = None
    newer: Release | None = None
    lacks: frozenset[str] = frozenset()

    @property
    def label(self) -> str:
        """What ``--runtime`` calls it: with its release where one was asked for."""
        name = TORCHSCRIPT if self.scripted else self.name
        return name if self.release is None else f"{name}@{release_text(self.release)}"

    @property
    def described_release(self) -> Release:
        """The release whose behaviour this is."""
        return self.history.newest if self.release is None else self.release

    def undone(self, *, training: bool) -> tuple[Change, ...]:
        """The later changes without which this release runs a model otherwise than the newest, the first one first."""
        later = list(self.history.after(self.described_release))
        told = [
            change
            for place, change in enumerate(later)
            if not change.only_widens
            and not change.is_overruled(later[place + 1 :])
            and (training or not change.in_training)
        ]
        return tuple(reversed(told))

    def earlier(self, *, training: bool) -> tuple[str, ...]:
        """What this release does on a GPU otherwise than the newest, the first that changed first."""
        return tuple(change.before for change in self.undone(training=training))

    def run_with(self, **state: bool) -> Runtime:
        """The same runtime in a run that differs by ``state``: some of its fields."""
        fields: dict[str, Any] = dict(state)
        return replace(self, **fields)

    def undoing(self, changes: Iterable[Change]) -> Runtime:
        """The newest release, run as this one is, with some changes undone; the newest first."""
        found = _without(RUNTIMES[self.name], changes)
        found = replace(found, release=self.release, captured=self.captured, channels_last=self.channels_last)
        return scripted(found) if self.scripted else found


# ``graph_us``: the host launches a graph of a straight line of kernels in 2.5 us and about 1 ns a kernel (CUDA 12.6,
# Ampere and later; 2 us and 0.2 us a kernel in CUDA 11.8: NVIDIA's blog "Constant Time Launch for Straight-Line CUDA
# Graphs", 2024). What any launch takes to reach the GPU, about 5 us, is counted with none, graph or kernel.
RUNTIMES: dict[str, Runtime] = {
    # A launch: 4-6 us, what event timing shows beside the kernel and the software on six hosts (another 4-6 us, the
    # second event, come with no model); software by operator, its factor and its spread: operator_host.py.
    "eager": Runtime(
        name="eager",
        description="PyTorch eager mode, one stream",
        kernel_us=5.0,
        view_us=3.2,  # 1.1 us on the machine that the software was measured on
        host_spread=1.9,
        operator_software=True,
        takes_order=True,
        calls_attention=True,
        computes_constants=True,
        # torch 2.9.1: torch.backends.cudnn.conv.fp32_precision and .rnn.fp32_precision are "tf32", that of
        # torch.backends.cuda.matmul "none"; both reach cuDNN's math type (ATen/cudnn/Descriptors.h)
        tf32="cudnn",
        # embedding, index_select and x[i] of the first dimension (launches of torch 2.9.1 on stand-ins for CUDA's
        # libraries: vectorized_gather_kernel<16>); other dimensions, several indices, and narrower rows by element
        vector_lookups="rows",
        history=EAGER,
    ),
    # What torch.compile generates launches its kernels from Python without the dispatcher: a plain CUDA launch (4-6 us,
    # the same survey) and a few bytecodes, so the upper half of that; views are gone. Its default mode replays no CUDA
    # graph. Library calls still go through the dispatcher, but come with large kernels, which hide the host.
    "compiled": Runtime(
        name="compiled",
        description="PyTorch torch.compile, default mode, one stream",
        kernel_us=5.5,
        view_us=0.0,
        host_spread=1.4,
        pointwise="chains",
        takes_order=True,
        # as eager: its convolutions and recurrent layers are ATen's, those of one tap, too (torch._inductor.config's
        # conv_1x1_as_mm is False)
        tf32="cudnn",
        reorders=True,
        row_padding="copied",  # torch._inductor.config.shape_padding is True (2.9.1)
        # Inductor refuses older ones: "too old to be supported by the triton GPU compiler" (torch._inductor.scheduler)
        least_capability=7.0,
        calls_attention=True,
        computes_constants=True,
        # PTX that Triton 3.5 makes of Inductor's form of an embedding: v4 loads and stores, 7 instructions an element
        vector_lookups="any",
        history=COMPILED,
    ),
    # Its executor walks a prepared list in C++: a plain launch (4-6 us, the same survey; the upper end, as cuBLAS and
    # cuDNN choose an algorithm on the way), and 0.2 us to look up inputs and to take memory from the arena, all that a
    # Reshape or an operator on a shape costs: 0.16-0.22 us each in chains of 200 to 1,000 operators (1.32,
    # inputs bound, CPU provider on an AMD EPYC). Other hosts weren't measured, so that the spread is wide.
    # What it merges was read off the files that its optimiser (1.32, level "all") writes, and off the operators that
    # its CUDA provider has (1.31): docs/runtimes.md. CUDA provider's defaults: use_tf32=1, prefer_nhwc=0,
    # cudnn_conv fuses no bias (fuse_conv_bias=0). FP16 accumulates in FP32: its convolutions hand cuDNN the type FLOAT
    # for half and bfloat16 (the call of cudnnSetConvolutionNdDescriptor in its libraries, 1.18 and 1.31, disassembled),
    # its products ask cuBLAS for COMPUTE_32F but where ORT_CUDA_GEMM_OPTIONS says compute_16f (as remembered).
    "onnxruntime": Runtime(
        name="onnxruntime",
        description="ONNX Runtime, CUDA execution provider, one stream",
        kernel_us=6.0,
        view_us=0.2,
        host_spread=1.5,
        tf32="all",
        rewrites=True,
        computes_shapes=True,
        elementwise="onnxruntime",
        # "ONNX Runtime leverages the TensorRT execution provider for quantization on GPU" (its docs, "Quantize ONNX
        # models"): the passes that fold Q/DQ pairs are those of the CPU provider
        folds_quantization=False,
        narrow_products="widened",
        packs_experts=True,
        gates_apart="blocks",
        # neither name is in the CUDA provider of 1.31, which says "Unsupported MoE activation type" of others than it
        # has; the schema of 1.32, of which PyPI has no wheel with that provider yet, says that CUDA has both
        lacks_activations=frozenset({"geglu", "relu2"}),
        narrow_rows=16,  # lowering/widened_weights.py
        bias_first=True,  # onnxruntime/core/providers/cuda/math/gemm.cc: beta is 1 where there is a bias
        fallback="host",
        lacks=frozenset({"activation into convolution", "sum and activation into convolution"}),
        compiled_for=(7.5, 8.0, 8.6, 8.9, 9.0, 12.0),  # machine code in onnxruntime-gpu 1.31 of PyPI, which has no PTX
        history=ONNXRUNTIME,
    ),
    # An engine is a list of launches and no more: 3.8 us a kernel of 2.9 us launched from C++ without waiting (V100;
    # NVIDIA's blog "Getting Started with CUDA Graphs", 2019: 3.4 us in a graph), so 4. Fusions: "Types of Fusions" of
    # NVIDIA's TensorRT developer guide; what Myelin, its compiler of transformers, merges is public in outline only:
    # chains of pointwise operators and reductions over the same rows, and epilogues of matrix products. Which epilogues
    # those are was read off engines that TensorRT for RTX 1.7 builds without a GPU: each operator behind a convolution
    # and behind a product, for compute capabilities 7.5 and 8.6 (benchmarks/results/fusion_trt.md).
    # FP16 accumulates in either type: names of its kernels have the accumulator in them, "f16f16_f16f16_f16" beside
    # "f16f16_f16f32_f32" in products and convolutions, but "bf16bf16_bf16f32_f32" and "*_e4m3f32_f32" alone
    # (TensorRT for RTX 1.7); the builder takes the fastest.
    "tensorrt": Runtime(
        name="tensorrt",
        description="TensorRT engine, one stream",
        kernel_us=4.0,
        view_us=0.0,
        host_spread=1.5,
        elementwise="generated",
        pointwise="chains",
        products=EPILOGUES,
        attention="one kernel",
        attention_capability=7.5,  # fused attention came with kernels for Turing and later
        conv_layout="nhwc in 16 and 8 bits, nchw in FP32",
        sums_fp16=True,
        # "TensorRT implicitly pads the tensors to the nearest multiple of alignment", K and N of MatrixMultiply among
        # them (its developer guide, "Tensor Core Alignment"; as remembered)
        row_padding="stored",
        tf32="all",
        narrow_products="calibrated",
        times_kernels=True,
        fallback="refused",
        vendors=frozenset({"NVIDIA"}),
        least_capability=7.5,
        history=TENSORRT,
    ),
}

SCRIPTED_SOFTWARE = 0.40
"""How much of eager mode's software TorchScript's interpreter takes: mean of .45 (BERT base, 1.5.1), .33 and .42 (BERT
base and ResNet-50, 2.9.1), with real PyTorch on stand-ins for CUDA (``benchmarks/results/host_time.md``)."""
TORCHSCRIPT = "torchscript"
"""What eager mode is called whose operators TorchScript's interpreter calls: the same kernels, less software."""

KNOWN_RUNTIMES = (*RUNTIMES, TORCHSCRIPT)

DEFAULT_RUNTIME = "onnxruntime"
"""Runs of inference: what most who have an ONNX file run it with."""
TRAINING_RUNTIME = "eager"
"""Steps of training: the engines don't train."""


def scripted(eager: Runtime) -> Runtime:
    """PyTorch without Python: a model that was traced or scripted, as Triton's backend for PyTorch runs it."""
    view_us = eager.view_us * SCRIPTED_SOFTWARE
    description = "PyTorch by TorchScript's interpreter, one stream"
    return replace(eager, scripted=True, view_us=view_us, description=description)


def default_runtime(*, training: bool) -> str:
    """What executes a model where nobody says."""
    return TRAINING_RUNTIME if training else DEFAULT_RUNTIME


def require_switches(**given: object) -> None:
    """OptionError where a keyword that turns something on or off isn't a bool: the text "no" would turn it on."""
    for name, value in given.items():
        if not isinstance(value, bool):
            raise OptionError(f"{name} is {shown(repr(value))}; give True or False")


def get_runtime(called: str, *, cuda_graph: bool = False, channels_last: bool = False) -> Runtime:
    """The runtime that is ``called`` so, as ``--runtime`` has it: NAME, or NAME@RELEASE for one that isn't the newest.

    ``cuda_graph``: replayed as a graph; ``channels_last``: images and filters lie so. A release newer than what is
    known is taken as the newest. Raises NotSupportedError for an unknown runtime, for a release that nothing is known
    of, and for a runtime that chooses the order of tensors itself; OptionError for what is no name or no switch.
    """
    require_switches(cuda_graph=cuda_graph, channels_last=channels_last)
    if not isinstance(called, str):
        raise OptionError(f"runtime is {shown(repr(called))}; give a name, such as 'onnxruntime'")
    name, at, text = called.partition("@")
    if name not in KNOWN_RUNTIMES:
        raise NotSupportedError(f"unknown runtime {name[:40]!a}{_hint(name, at + text)}")
    found = RUNTIMES["eager" if name == TORCHSCRIPT else name]
    if at:
        found = at_release(found, parse_release(text, f"runtime {name}"))
    if name == TORCHSCRIPT:
        found = scripted(found)
    if channels_last and not found.takes_order:
        those = " or ".join(sorted(other.name for other in RUNTIMES.values() if other.takes_order))
        raise NotSupportedError(
            f"channels last is an order that PyTorch's tensors are given; {name} lays them out itself; "
            f"leave --channels-last out, or take runtime {those}"
        )
    return replace(found, captured=cuda_graph, channels_last=channels_last) if cuda_graph or channels_last else found


_OTHER_NAMES = {
    "eager": ("pytorch", "torch", "pytorch-eager", "torch-eager"),
    "compiled": ("compile", "inductor", "torchinductor", "torch.compile", "torch-compile", "torch_compile", "dynamo"),
    "onnxruntime": ("ort", "onnxrt", "onnx-runtime", "onnx_runtime", "onnxruntime-gpu", "onnxruntime_gpu", "cuda"),
    "tensorrt": ("trt", "tensor-rt", "tensor_rt", "nvinfer", "trtexec"),
}
"""What else a runtime is called, as keys that a message names and no option takes."""

_LONGEST_NAME = 40


def _hint(name: str, release: str) -> str:
    """Which runtime a name may mean, with the release that stands behind it; all of them where none is near."""
    plain = name.strip().lower()[:_LONGEST_NAME]
    meant = next((known for known, others in _OTHER_NAMES.items() if plain == known or plain in others), None)
    near = get_close_matches(plain, KNOWN_RUNTIMES, n=1) if meant is None else [meant]
    known = f"supported now: {', '.join(sorted(KNOWN_RUNTIMES))}"
    return f"; did you mean '{near[0]}{release[:_LONGEST_NAME]}'? {known}" if near else f"; {known}"


def release_of(called: str) -> str:
    """The release that is assumed of a runtime that is ``called`` so."""
    return release_text(get_runtime(called).described_release)


def as_runtime(runtime: Runtime | str) -> Runtime:
    """A runtime, or the one that is called so."""
    return get_runtime(runtime) if isinstance(runtime, str) else runtime


def at_release(newest: Runtime, release: Release) -> Runtime:
    """A runtime as it was at a release: every later change of its history undone, the newest first."""
    history = newest.history
    if is_before(release, history.first):
        first, last = release_text(history.first), release_text(history.newest)
        raise NotSupportedError(
            f"runtime {newest.name}@{release_text(release)}: nothing is known of releases of {history.project} before "
            f"{first}; take one from {newest.name}@{first} to {newest.name}@{last}"
        )
    if release[: len(history.newest)] > history.newest:
        return replace(newest, release=history.newest, newer=release)
    return _without(replace(newest, release=release), history.after(release))


def _without(runtime: Runtime, changes: Iterable[Change]) -> Runtime:
    for change in changes:
        fields: dict[str, Any] = dict(change.fields)
        runtime = replace(runtime, lacks=(runtime.lacks | change.lacks) - change.had, **fields)
    return runtime
