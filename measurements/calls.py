"""Kernels as PyTorch calls on random operands. torch is handed in, so that this module imports without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from measurements.cases import Case, padding_of, window_of
from measurements.session import SkipCaseError
from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import (
    Attention,
    Conv,
    Elementwise,
    GatherScatter,
    Gemm,
    Movement,
    Normalization,
    Pooling,
    Reduction,
    Softmax,
    TensorSpec,
)

Operands: TypeAlias = tuple[Any, ...]
"""Tensors of torch, which has no types here: torch is not installed where types are checked."""

VOCABULARY_BYTES = 1 << 28
LARGEST_VOCABULARY = 50_000
"""Rows of an embedding's table: GPT-2's, less where rows are long."""

SCALAR = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """``shared`` operands are made once; each set of ``operands`` is as large as what the kernel reads."""

    shared: Callable[[], Operands]
    operands: Callable[[], Operands]
    run: Callable[[Operands, Operands], Any]


def call_for(case: Case, torch: Any, device: str) -> Call:
    """What runs a case. Raises SkipCaseError where this PyTorch has no such call."""
    kernel = case.kernel

    def random(*shape: int, dtype: DataType) -> Any:
        return torch.randn(*shape, dtype=getattr(torch, dtype.label), device=device)

    def nothing() -> Operands:
        return ()

    def plain(operands: Callable[[], Operands], run: Callable[[Operands], Any]) -> Call:
        return Call(shared=nothing, operands=operands, run=lambda shared, own: run(own))

    match kernel:
        case Conv():
            return _convolution(kernel, case.layout, torch, random)
        case Gemm():
            return _product(kernel, torch, random)
        case Attention():
            return _attention(kernel, torch, random)
        case Softmax():
            softmax = torch.log_softmax if kernel.log else torch.softmax
            outer = kernel.rows // kernel.inner
            shape, axis = (
                ((kernel.rows, kernel.cols), 1) if kernel.inner == 1 else ((outer, kernel.cols, kernel.inner), 1)
            )
            return plain(lambda: (random(*shape, dtype=kernel.dtype),), lambda own: softmax(own[0], axis))
        case Normalization():
            return _norm(kernel, torch, random)
        case Elementwise():
            return _pointwise(kernel, torch, random)
        case Reduction():
            reduce = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax}[kernel.operation]
            sizes = (kernel.outputs // kernel.inner, kernel.reduced, kernel.inner)
            return plain(lambda: (random(*sizes, dtype=kernel.dtype),), lambda own: reduce(own[0], 1))
        case Pooling():
            return _pooling(kernel, torch, random)
        case GatherScatter():
            return _embedding(kernel, torch, random, device)
        case Movement(permutation=tuple() as axes):
            return plain(
                lambda: (random(*kernel.shape, dtype=kernel.dtype),), lambda own: own[0].permute(axes).contiguous()
            )
        case _:
            raise SkipCaseError(f"no call for a {type(kernel).__name__}")


Random: TypeAlias = Callable[..., Any]


def _none() -> Operands:
    return ()


def _convolution(kernel: Conv, layout: str, torch: Any, random: Random) -> Call:
    padding = padding_of(kernel)
    if padding is None:
        raise SkipCaseError("no padding gives this output")
    rank = len(kernel.spatial)
    convolve = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d}[rank]

    def laid_out(tensor: Any) -> Any:
        return tensor.contiguous(memory_format=torch.channels_last) if layout == "nhwc" else tensor

    def operands() -> Operands:
        source = laid_out(random(kernel.n, kernel.c, *kernel.spatial, dtype=kernel.dtype))
        weight = laid_out(random(kernel.k, kernel.c // kernel.groups, *kernel.filter, dtype=kernel.dtype))
        if kernel.direction == "forward":
            return source, weight
        return source, weight, laid_out(random(kernel.n, kernel.k, *kernel.out, dtype=kernel.dtype))

    def forward(shared: Operands, own: Operands) -> Any:
        source, weight = own
        return convolve(source, weight, None, kernel.strides, padding, kernel.dilations, kernel.groups)

    def backward(shared: Operands, own: Operands) -> Any:
        source, weight, gradient = own
        wanted = [kernel.direction == "data", kernel.direction == "weight", False]
        found = torch.ops.aten.convolution_backward(
            gradient,
            source,
            weight,
            None,
            list(kernel.strides),
            list(padding),
            list(kernel.dilations),
            False,
            [0] * rank,
            kernel.groups,
            wanted,
        )
        return found[0] if kernel.direction == "data" else found[1]

    return Call(shared=_none, operands=operands, run=forward if kernel.direction == "forward" else backward)


def _product(kernel: Gemm, torch: Any, random: Random) -> Call:
    batched = kernel.batch > 1
    has_bias = "bias" in kernel.epilogue

    def stored(rows: int, cols: int, transposed: bool) -> Any:
        shape = (cols, rows) if transposed else (rows, cols)
        tensor = random(*((kernel.batch, *shape) if batched else shape), dtype=kernel.dtype)
        return tensor.transpose(-1, -2) if transposed else tensor

    def operands() -> Operands:
        left = stored(kernel.m, kernel.k, kernel.transpose_a)
        right = stored(kernel.k, kernel.n, kernel.transpose_b)
        return (left, right, random(kernel.n, dtype=kernel.dtype)) if has_bias else (left, right)

    def run(shared: Operands, own: Operands) -> Any:
        if batched:
            return torch.bmm(own[0], own[1])
        return torch.addmm(own[2], own[0], own[1]) if has_bias else torch.mm(own[0], own[1])

    return Call(shared=_none, operands=operands, run=run)


def _attention(kernel: Attention, torch: Any, random: Random) -> Call:
    """Queries, keys and values lie as models have them: (b, s, h, d), seen as (b, h, s, d)."""
    attend = torch.nn.functional.scaled_dot_product_attention
    # the argument is newer than the function
    grouped = {"enable_gqa": True} if kernel.g < kernel.h else {}

    def heads(rows: int, count: int) -> Any:
        return random(kernel.b, rows, count, kernel.d, dtype=kernel.dtype).transpose(1, 2)

    def operands() -> Operands:
        return heads(kernel.s, kernel.h), heads(kernel.t, kernel.g), heads(kernel.t, kernel.g)

    def run(shared: Operands, own: Operands) -> Any:
        return attend(*own, is_causal=kernel.causal, **grouped)

    return Call(shared=_none, operands=operands, run=run)


def _norm(kernel: Normalization, torch: Any, random: Random) -> Call:
    if kernel.method == "layer":
        count = kernel.parameter_count // max(kernel.cols, 1)

        def rows() -> Operands:
            parameters = tuple(random(kernel.cols, dtype=kernel.dtype) for _ in range(count))
            return random(kernel.rows, kernel.cols, dtype=kernel.dtype), *parameters

        def layer(shared: Operands, own: Operands) -> Any:
            return torch.nn.functional.layer_norm(own[0], (kernel.cols,), *own[1:])

        return Call(shared=_none, operands=rows, run=layer)
    channels = kernel.parameter_count // 4

    def maps() -> Operands:
        # FP32 as autocast leaves them: with statistics in 16 bits PyTorch runs three kernels in place of cuDNN's one
        parameters = tuple(random(channels, dtype=DataType.FLOAT32).abs() for _ in range(4))
        return random(kernel.rows // channels, channels, kernel.cols, dtype=kernel.dtype), *parameters

    def batch(shared: Operands, own: Operands) -> Any:
        source, mean, variance, scale, shift = own
        return torch.nn.functional.batch_norm(source, mean, variance, scale, shift, False)

    return Call(shared=_none, operands=maps, run=batch)


def _pointwise(kernel: Elementwise, torch: Any, random: Random) -> Call:
    functional, (name,) = torch.nn.functional, kernel.operations

    def operands() -> Operands:
        return tuple(_made(spec, random) for spec in kernel.inputs)

    binary = {"add": torch.add, "mul": torch.mul, "sub": torch.sub, "div": torch.div}
    if name in binary:
        both = binary[name]
        if len(kernel.inputs) == 1:
            return Call(shared=_none, operands=operands, run=lambda shared, own: both(own[0], SCALAR))
        return Call(shared=_none, operands=operands, run=lambda shared, own: both(own[0], own[1]))
    unary: dict[str, Callable[[Any], Any]] = {
        "relu": torch.relu,
        "gelu": functional.gelu,
        "gelu_tanh": lambda tensor: functional.gelu(tensor, approximate="tanh"),
        "silu": functional.silu,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "exp": torch.exp,
        "hardswish": functional.hardswish,
        "hardsigmoid": functional.hardsigmoid,
        "neg": torch.neg,
        "sqrt": torch.sqrt,
        "erf": torch.erf,
    }
    if name not in unary:
        raise SkipCaseError(f"no call for {name}")
    one = unary[name]
    return Call(shared=_none, operands=operands, run=lambda shared, own: one(own[0]))


def _made(spec: TensorSpec, random: Random) -> Any:
    return random(*spec.shape, dtype=spec.dtype)


def _pooling(kernel: Pooling, torch: Any, random: Random) -> Call:
    functional = torch.nn.functional
    told = window_of(kernel)

    def operands() -> Operands:
        return (_made(kernel.input, random),)

    if kernel.operation == "global_average":
        return Call(shared=_none, operands=operands, run=lambda shared, own: functional.adaptive_avg_pool2d(own[0], 1))
    if told is None:
        raise SkipCaseError("the window can't be told from the sizes")
    pool = functional.max_pool2d if kernel.operation == "max" else functional.avg_pool2d
    return Call(shared=_none, operands=operands, run=lambda shared, own: pool(own[0], *told))


def _embedding(kernel: GatherScatter, torch: Any, random: Random, device: str) -> Call:
    """Random rows of one table, other ones in each set."""
    count = kernel.moved // kernel.run
    rows = max(min(LARGEST_VOCABULARY, VOCABULARY_BYTES // kernel.dtype.bytes_of(kernel.run)), 1)

    def table() -> Operands:
        return (random(rows, kernel.run, dtype=kernel.dtype),)

    def indices() -> Operands:
        return (torch.randint(0, rows, (count,), device=device),)

    def run(shared: Operands, own: Operands) -> Any:
        return torch.nn.functional.embedding(own[0], shared[0])

    return Call(shared=table, operands=indices, run=run)
