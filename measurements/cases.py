"""What may be measured: kernels that PyTorch runs as one call, of architectures or of ONNX models. No torch here."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from math import isqrt, prod
from pathlib import Path
from typing import Any

from neusight_onnx.dtypes import DataType
from neusight_onnx.errors import BindingError, DataError, NeusightError
from neusight_onnx.kernels import (
    Attention,
    Conv,
    Elementwise,
    GatherScatter,
    Gemm,
    Kernel,
    Movement,
    Normalization,
    Pooling,
    Reduction,
    Softmax,
    TensorSpec,
)
from neusight_onnx.learning.kernel_text import kernel_from_text, kernel_to_text
from neusight_onnx.learning.measured import STORED

FP32 = DataType.FLOAT32

FLOATS = (DataType.FLOAT32, DataType.FLOAT16, DataType.BFLOAT16)

UNARY = frozenset(
    {"relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "exp", "hardswish", "hardsigmoid", "neg", "sqrt", "erf"}
)
BINARY = frozenset({"add", "mul", "sub", "div"})
REDUCTIONS = frozenset({"sum", "mean", "max"})
POOLINGS = frozenset({"max", "average", "global_average"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kernel to be timed. ``layout``: "nhwc", or empty for the usual one."""

    kernel: Kernel
    precision: str
    layout: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells cases apart, as the file of measurements holds it."""
        return kernel_to_text(self.kernel), self.precision, self.layout


def padding_of(kernel: Conv) -> tuple[int, ...] | None:
    """Padding, alike on both sides, that gives the output's size, or None if none does (such as SAME with stride 2)."""
    found = []
    rows = zip(kernel.spatial, kernel.out, kernel.filter, kernel.strides, kernel.dilations, strict=True)
    for size, out, window, stride, dilation in rows:
        reach = dilation * (window - 1) + 1
        pad = max(((out - 1) * stride + reach - size + 1) // 2, 0)
        if (size + 2 * pad - reach) // stride + 1 != out:
            return None
        found.append(pad)
    return tuple(found)


def window_of(kernel: Pooling) -> tuple[int, int, int] | None:
    """(window, stride, padding) of a square pooling of two axes that its sizes tell, else None."""
    if len(kernel.input.shape) != 4 or len(kernel.output.shape) != 4:
        return None
    side = isqrt(kernel.window)
    (height, width), (out_height, out_width) = kernel.input.shape[2:], kernel.output.shape[2:]
    if side * side != kernel.window or out_height == 0 or out_width == 0:
        return None
    for stride in (max(round(height / out_height), 1), 1):
        pad = max(((out_height - 1) * stride + side - height + 1) // 2, 0)
        sizes = ((size + 2 * pad - side) // stride + 1 for size in (height, width))
        if stride <= side and 2 * pad <= side and tuple(sizes) == (out_height, out_width):
            return side, stride, pad
    return None


def timeable(kernel: Kernel) -> Kernel | None:
    """The part of a kernel that PyTorch runs as one call, or None: what eager mode runs beside it is left out.

    Convolutions lose their bias and what is fused behind them, products keep a bias. What has several dtypes, fused
    operands, or sizes from which the call can't be told is None.
    """
    found = _bare(kernel)
    if found is None or found.read_bytes == 0 or found.write_bytes == 0:
        return None
    return found


def _bare(kernel: Kernel) -> Kernel | None:
    match kernel:
        case Conv():
            plain = {kernel.input_dtype, kernel.weight_dtype, kernel.output_dtype} <= {None, kernel.dtype}
            known = plain and kernel.dtype in FLOATS and not kernel.transposed and len(kernel.spatial) in (1, 2)
            if not known or padding_of(kernel) is None:
                return None
            # the order of the elements is the case's, and both are timed
            return replace(kernel, epilogue=(), extra_read_bytes=0, extra_write_bytes=0, channels_last=False)
        case Gemm():
            bias = ("bias",) if "bias" in kernel.epilogue and kernel.b_is_weight and kernel.batch == 1 else ()
            plain = {kernel.a_dtype, kernel.b_dtype, kernel.output_dtype} <= {None, kernel.dtype}
            whole = {kernel.a_batch, kernel.b_batch} <= {None, kernel.batch}
            known = plain and whole and kernel.dtype in FLOATS
            return replace(kernel, epilogue=bias, extra_read_bytes=0) if known else None
        case Elementwise():
            return kernel if _is_plain_pointwise(kernel) else None
        case Softmax():
            plain = kernel.output_dtype in (None, kernel.dtype) and not kernel.fused
            return kernel if plain and not kernel.extra_inputs and kernel.dtype in FLOATS else None
        case Normalization():
            plain = kernel.output_dtype in (None, kernel.dtype) and not kernel.fused and kernel.dtype in FLOATS
            channels = kernel.parameter_count // 4
            known = kernel.method == "layer" or (
                kernel.method == "batch" and channels > 0 and kernel.rows % channels == 0
            )
            return replace(kernel, extra_outputs=()) if plain and known and not kernel.extra_inputs else None
        case Reduction():
            plain = not (kernel.fused or kernel.epilogue or kernel.extra_inputs or kernel.extra_outputs)
            known = kernel.operation in REDUCTIONS and kernel.dtype in FLOATS and kernel.outputs % kernel.inner == 0
            return kernel if plain and known and kernel.output.dtype is kernel.dtype else None
        case Pooling():
            known = kernel.operation in POOLINGS and kernel.input.dtype in FLOATS
            told = kernel.operation == "global_average" or window_of(kernel) is not None
            return kernel if known and told and len(kernel.input.shape) == 4 else None
        case Attention():
            plain = kernel.mask is None and kernel.window is None and kernel.kv_dtype in (None, kernel.dtype)
            shaped = kernel.d == kernel.v and kernel.h % kernel.g == 0 and (not kernel.causal or kernel.s == kernel.t)
            known = plain and shaped and kernel.dtype in FLOATS
            return replace(kernel, cache_write_elements=0, extra_outputs=()) if known else None
        case GatherScatter():
            known = kernel.operation == "embedding" and kernel.base is None and kernel.moved % kernel.run == 0
            return kernel if known and kernel.dtype in FLOATS else None
        case Movement():
            whole = kernel.read == kernel.dtype.bytes_of(prod(kernel.shape))
            moved = kernel.operation == "transpose" and kernel.permutation is not None and kernel.written == kernel.read
            return kernel if whole and moved and kernel.dtype in FLOATS else None
        case _:
            return None


def _is_plain_pointwise(kernel: Elementwise) -> bool:
    specs = (*kernel.inputs, kernel.output)
    if len(kernel.operations) != 1 or kernel.extra_outputs or kernel.generated or not kernel.inputs:
        return False
    if len({spec.dtype for spec in specs}) != 1 or kernel.output.dtype not in FLOATS:
        return False
    name, count = kernel.operations[0], len(kernel.inputs)
    return (name in UNARY and count == 1 and kernel.inputs[0].shape == kernel.output.shape) or (
        name in BINARY and count in (1, 2) and any(spec.shape == kernel.output.shape for spec in kernel.inputs)
    )


def recast(kernel: Kernel, dtype: DataType) -> Kernel:
    """The kernel with its floating-point tensors as ``dtype``; bytes that it states itself follow."""

    def other(value: Any) -> Any:
        if isinstance(value, DataType):
            return dtype if value in FLOATS else value
        if isinstance(value, TensorSpec):
            return replace(value, dtype=other(value.dtype))
        return tuple(other(member) for member in value) if isinstance(value, tuple) else value

    changed: Any = replace(kernel, **{item.name: other(getattr(kernel, item.name)) for item in fields(kernel)})
    if isinstance(kernel, Movement):
        size = dtype.bytes_of(prod(kernel.shape))
        return replace(kernel, dtype=dtype, read=size, written=size)
    found: Kernel = changed
    return found


MATRIX_CLASSES = (Conv, Gemm, Attention)


def cases_of(kernels: Iterable[Kernel], *, directions: bool = False) -> list[Case]:
    """Every kernel in the precisions and layouts that say something about it, each once.

    Matrix products of all kinds: fp16, bf16, tf32 (fp32 has public data). Convolutions in NHWC, too, where matrix units
    multiply, and with ``directions`` the gradients of input and weight. The others: fp32 and fp16.
    """
    found: dict[tuple[str, str, str], Case] = {}
    for kernel in kernels:
        plain = timeable(kernel)
        if plain is None:
            continue
        precisions = ("fp16", "bf16", "tf32") if isinstance(plain, MATRIX_CLASSES) else ("fp16", "fp32")
        for precision in precisions:
            typed = recast(plain, STORED[precision])
            layouts = ("", "nhwc") if isinstance(typed, Conv) and len(typed.spatial) == 2 else ("",)
            for layout in layouts:
                for own in _directions(typed) if directions else (typed,):
                    case = Case(kernel=own, precision=precision, layout=layout)
                    found.setdefault(case.key, case)
    return list(found.values())


def _directions(kernel: Kernel) -> tuple[Kernel, ...]:
    if not isinstance(kernel, Conv) or kernel.direction != "forward":
        return (kernel,)
    return (kernel, replace(kernel, direction="data"), replace(kernel, direction="weight"))


# -- the list that ships: layers of public architectures ------------------------------------------------------


def _conv(n: int, c: int, k: int, side: int, window: int, stride: int = 1, groups: int = 1) -> Conv:
    pad = window // 2
    out = (side + 2 * pad - window) // stride + 1
    return Conv(
        n=n,
        c=c,
        k=k,
        groups=groups,
        spatial=(side, side),
        out=(out, out),
        filter=(window, window),
        strides=(stride, stride),
        dilations=(1, 1),
        dtype=FP32,
    )


def _resnet(n: int) -> Iterator[Conv]:
    """ResNet-50 (He et al. 2015): stem, and per stage reduce, 3x3, expand, the strided ones and the shortcut."""
    yield _conv(n, 3, 64, 224, 7, 2)
    before, side = 64, 56
    for width in (64, 128, 256, 512):
        stride = 1 if width == 64 else 2
        yield _conv(n, before, width, side, 1)
        yield _conv(n, width, width, side, 3, stride)
        yield _conv(n, before, 4 * width, side, 1, stride)
        side //= stride
        yield _conv(n, width, 4 * width, side, 1)
        yield _conv(n, 4 * width, width, side, 1)
        yield _conv(n, width, width, side, 3)
        before = 4 * width


def _resnext(n: int) -> Iterator[Conv]:
    """ResNeXt-50 32x4d (Xie et al. 2016): its grouped 3x3."""
    for width, side in ((128, 56), (256, 28), (512, 14), (1024, 7)):
        yield _conv(n, width, width, side, 3, groups=32)


def _mobilenet(n: int) -> Iterator[Conv]:
    """MobileNetV2 (Sandler et al. 2018): stem, expansions, depthwise 3x3, projections."""
    yield _conv(n, 3, 32, 224, 3, 2)
    blocks = ((32, 16, 112, 1, 1), (16, 24, 112, 2, 6), (24, 32, 56, 2, 6), (32, 64, 28, 2, 6), (96, 160, 14, 2, 6))
    for c, k, side, stride, expand in blocks:
        wide = c * expand
        if expand > 1:
            yield _conv(n, c, wide, side, 1)
        yield _conv(n, wide, wide, side, 3, stride, groups=wide)
        yield _conv(n, wide, k, side // stride, 1)
    yield _conv(n, 320, 1280, 7, 1)


def _convnext(n: int) -> Iterator[Conv]:
    """ConvNeXt-T (Liu et al. 2022): patches, depthwise 7x7, and the convolutions between stages."""
    stem = _conv(n, 3, 96, 224, 4, 4)
    yield replace(stem, out=(56, 56), filter=(4, 4))
    for width, side in ((96, 56), (192, 28), (384, 14), (768, 7)):
        yield _conv(n, width, width, side, 7, groups=width)
    for width, side in ((96, 56), (192, 28), (384, 14)):
        yield replace(_conv(n, width, 2 * width, side, 2, 2), out=(side // 2, side // 2))


def _transformer(tokens: int, width: int, expanded: int, *, bias: bool = True) -> Iterator[Kernel]:
    """A block's linear layers: queries, keys and values as one, output, and the two of the MLP."""
    epilogue = ("bias",) if bias else ()
    for n, k in ((3 * width, width), (width, width), (expanded, width), (width, expanded)):
        yield Gemm(m=tokens, n=n, k=k, b_is_weight=True, transpose_b=True, dtype=FP32, epilogue=epilogue)


def _attention(b: int, h: int, s: int, d: int, *, causal: bool, g: int | None = None) -> Iterator[Kernel]:
    """Fused, and as the two products with a softmax between them."""
    yield Attention(b=b, h=h, g=g or h, s=s, t=s, d=d, v=d, causal=causal, dtype=FP32)
    yield Gemm(batch=b * h, m=s, n=s, k=d, transpose_b=True, dtype=FP32)
    yield Softmax(rows=b * h * s, cols=s, dtype=FP32)
    yield Gemm(batch=b * h, m=s, n=d, k=s, dtype=FP32)


def _rows(tokens: int, width: int, expanded: int) -> Iterator[Kernel]:
    """What a block does row by row."""
    narrow, wide = (TensorSpec(dtype=FP32, shape=(tokens, size)) for size in (width, expanded))
    yield Normalization(method="layer", rows=tokens, cols=width, parameter_count=2 * width, dtype=FP32)
    yield Elementwise(operations=("gelu",), inputs=(wide,), output=wide)
    yield Elementwise(operations=("silu",), inputs=(wide,), output=wide)
    yield Elementwise(operations=("add",), inputs=(narrow, narrow), output=narrow)
    yield Elementwise(operations=("mul",), inputs=(wide, wide), output=wide)
    yield Elementwise(operations=("mul",), inputs=(narrow,), output=narrow)
    yield GatherScatter(
        operation="embedding",
        moved=tokens * width,
        run=width,
        dtype=FP32,
        index_count=tokens,
        index_dtype=DataType.INT64,
    )


def _images(n: int) -> Iterator[Kernel]:
    """What vision models do beside convolutions: norms at inference, activations, pooling, means, layouts."""
    for c, side in ((64, 112), (256, 56), (512, 28), (1024, 14), (2048, 7)):
        maps = TensorSpec(dtype=FP32, shape=(n, c, side, side))
        channel = TensorSpec(dtype=FP32, shape=(1, c, 1, 1))
        count = n * c * side * side
        yield Normalization(method="batch", rows=n * c, cols=side * side, parameter_count=4 * c, dtype=FP32)
        yield Elementwise(operations=("relu",), inputs=(maps,), output=maps)
        yield Elementwise(operations=("hardswish",), inputs=(maps,), output=maps)
        yield Elementwise(operations=("add",), inputs=(maps, maps), output=maps)
        yield Elementwise(operations=("add",), inputs=(maps, channel), output=maps)
        pooled = TensorSpec(dtype=FP32, shape=(n, c, 1, 1))
        yield Pooling(operation="global_average", input=maps, output=pooled, window=side * side)
        for operation in ("mean", "sum"):
            yield Reduction(
                operation=operation,
                outputs=n * c,
                reduced=side * side,
                dtype=FP32,
                output=TensorSpec(dtype=FP32, shape=(n, c)),
            )
        yield Reduction(
            operation="max",
            outputs=n * side * side,
            reduced=c,
            inner=side * side,
            dtype=FP32,
            output=TensorSpec(dtype=FP32, shape=(n, side, side)),
        )
        if side % 2 == 0:
            half = TensorSpec(dtype=FP32, shape=(n, c, side // 2, side // 2))
            yield Pooling(operation="max", input=maps, output=half, window=9)
            yield Pooling(operation="average", input=maps, output=half, window=4)
        yield Movement(
            operation="transpose",
            dtype=FP32,
            shape=(n, c, side, side),
            permutation=(0, 2, 3, 1),
            read=4 * count,
            written=4 * count,
        )


def _heads(b: int, s: int, h: int, d: int) -> Iterator[Kernel]:
    """The copies before unfused attention: (b, s, h, d) to (b, h, s, d), and keys to (b, h, d, s)."""
    size = 4 * b * s * h * d
    for permutation in ((0, 2, 1, 3), (0, 2, 3, 1)):
        yield Movement(
            operation="transpose", dtype=FP32, shape=(b, s, h, d), permutation=permutation, read=size, written=size
        )


def default_kernels() -> list[Kernel]:
    """Layers of ResNet-50, ResNeXt-50, MobileNetV2, ConvNeXt-T, ViT-B, BERT base and large, GPT-2 and Llama-like
    decoders, at several batch sizes; in FP32, each once."""
    found: dict[Kernel, None] = {}

    def add(kernels: Iterable[Kernel]) -> None:
        found.update(dict.fromkeys(kernels))

    for n in (1, 8, 32, 128):
        for architecture in (_resnet, _resnext, _mobilenet, _convnext):
            add(architecture(n))
    for n in (1, 8, 64):
        add(_images(n))
    for width, expanded in ((768, 3072), (1024, 4096), (1600, 6400), (4096, 11_008)):
        for tokens in (1, 16, 197, 512, 2048, 8192):
            add(_transformer(tokens, width, expanded, bias=width != 4096))
            add(_rows(tokens, width, expanded))
    for b, h, s, d, causal, g in (
        (1, 12, 128, 64, False, None),
        (8, 12, 197, 64, False, None),
        (8, 12, 512, 64, False, None),
        (32, 16, 384, 64, False, None),
        (1, 16, 1024, 64, True, None),
        (4, 25, 1024, 64, True, None),
        (1, 32, 2048, 128, True, None),
        (4, 32, 2048, 128, True, 8),
        (1, 32, 8192, 128, True, 8),
    ):
        add(_attention(b, h, s, d, causal=causal, g=g))
        add(_heads(b, s, h, d))
    return list(found)


# -- lists from models -----------------------------------------------------------------------------------------


def kernels_of_models(paths: Sequence[Path], batches: Sequence[int]) -> tuple[list[Kernel], list[str]]:
    """Kernels that eager mode runs in ONNX models, each once, with their float tensors in FP32, and what was left out.

    A batch that the file leaves open gets each of ``batches``; other open dims get the defaults of ``analyze``.
    """
    from neusight_onnx.graph.bindings import make_bindings
    from neusight_onnx.graph.read import read_model
    from neusight_onnx.precision import FORMATS
    from neusight_onnx.preparation import infer_shapes, prepare

    stored = FORMATS["fp32"]
    found: dict[Kernel, None] = {}
    faults: list[str] = []
    for path in paths:
        try:
            model = read_model(path)
            shaped = [infer_shapes(model, make_bindings())]
            with suppress(BindingError):  # the file fixes its batch, or has none
                shaped += [infer_shapes(model, make_bindings(batch=batch)) for batch in batches]
            works = [prepare(bound, precision=stored, runtime="eager").work for bound in shaped]
        except NeusightError as error:
            faults.append(f"{path}: {error}")
            continue
        for work in works:
            for node in work:
                for kernel in node.kernels:
                    plain = timeable(kernel)
                    if plain is not None:
                        found[recast(plain, FP32)] = None
    return list(found), faults


def model_files(places: Sequence[Path]) -> list[Path]:
    """The ONNX files among the places and in folders among them. Raises DataError for what isn't there."""
    files = []
    for place in places:
        if place.is_dir():
            files += sorted(place.rglob("*.onnx"))
        elif place.is_file():
            files.append(place)
        else:
            raise DataError(f"{place} does not exist; give ONNX files or folders of them")
    if not files:
        raise DataError(f"no ONNX file in {', '.join(map(str, places))}")
    return files


def write_shapes(path: Path, kernels: Sequence[Kernel]) -> None:
    """A list of kernels as text, one a line. Raises DataError if it can't be written."""
    try:
        path.write_text("".join(f"{kernel_to_text(kernel)}\n" for kernel in kernels), encoding="utf-8")
    except OSError as error:
        raise DataError(f"can't write {path}: {error.strerror}; give another file") from error


def read_shapes(path: Path) -> list[Kernel]:
    """The kernels of such a list. Raises DataError with the line's number where one can't be understood."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise DataError(f"can't read {path}: {reason}; expected a list that `shapes` wrote") from error
    kernels = []
    for number, text in enumerate(lines, start=1):
        try:
            kernels.append(kernel_from_text(text))
        except ValueError as error:
            raise DataError(f"{path}, line {number}: {error}") from error
    return kernels


def say(text: str) -> None:
    """A line for the person who waits."""
    print(text, file=sys.stderr, flush=True)
