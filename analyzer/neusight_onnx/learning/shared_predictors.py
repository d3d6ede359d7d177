"""The predictors that all formats of matrix units share, those of FP32 convolutions on AMD and of their gradients on
NVIDIA, and the rows that each is trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from neusight_onnx.dtypes import BY_LABEL, DataType
from neusight_onnx.kernel_formats import MATRIX_FORMATS, OF_DATA, OF_WEIGHT, kernel_dtype, measured_format
from neusight_onnx.kernels import Conv, Kernel
from neusight_onnx.laws.bandwidth import is_amd
from neusight_onnx.laws.matrix_units import serves
from neusight_onnx.learning.datasets.conv import DEEPBENCH, MIOPEN_CONV
from neusight_onnx.learning.datasets.own import OWN, own_files
from neusight_onnx.learning.datasets.parts import Measurements, Part, known_gpus, one_after_another
from neusight_onnx.learning.datasets.products import AMD_GEMM, OTHER_KERNELS
from neusight_onnx.learning.datasets.registry import read_parts
from neusight_onnx.learning.entry import DTYPE_SUFFIX, UNSEEN_WEIGHTS
from neusight_onnx.learning.residuals import ResidualSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPredictor:
    """A predictor of all formats of matrix units: its class and label, the file and the rows that it is trained on.

    ``measured``: labels of the file's parts. ``formats``: labels of kernels that those rows stand for.
    ``unseen_weights``: weights of the residual on unseen GPUs that are tried. ``left_out``: kernels whose rows aren't
    trained on.
    """

    kernel_class: str
    label: str
    file: str
    measured: tuple[str, ...]
    formats: tuple[str, ...]
    settings: ResidualSettings
    unseen_weights: tuple[float, ...] = UNSEEN_WEIGHTS
    left_out: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.kernel_class}_{DTYPE_SUFFIX[self.label]}"

    @property
    def amd(self) -> bool:
        return self.label.endswith("+amd")

    @property
    def on_matrix_units(self) -> bool:
        return self.label.startswith("matrix")

    @property
    def directions(self) -> tuple[str, ...]:
        """Directions of the convolutions that it is trained on."""
        if OF_WEIGHT in self.label:
            return ("weight",)
        return ("data",) if OF_DATA in self.label else ("forward", "data")

    def takes(self, part: Part) -> bool:
        """Whether it is trained on rows of the part, if they are of its maker's GPUs."""
        return (
            part.file == self.file
            and part.kernel_class == self.kernel_class
            and part.dtype in self.measured
            and (part.kernel_class != "conv" or part.variant in self.directions)
            and part.variant not in OTHER_KERNELS
        )

    def operation(self, part: Part) -> str:
        """What rows of the part are called in its figures: direction or implementation, and format."""
        dtype = BY_LABEL[part.dtype]
        return f"{part.variant} {part.dtype if self.kernel_class == 'conv' else measured_format(dtype)}"


_SIXTEEN_BITS = ("float16", "bfloat16")
_CONVOLUTIONS = ResidualSettings(
    tree_count=400, leaf_count=128, learning_rate=0.08, rows_per_leaf=15, l2=1.0, row_limit=400_000
)
"""MIOpen's find database: a hundred thousand convolutions a GPU, whose solver follows the exact sizes."""

_TRIED_ALONE = ("ConvMlirIgemmFwd", "ConvMlirIgemmBwd", "ConvMlirIgemmWrW")
"""Solvers of an MI50 that its find database has for two thirds of its FP32 convolutions, as if no other had been tried:
3x3 filters at stride 1 run at 7-8 TFLOP/s by them, at 20-23 by Winograd elsewhere in it, on shapes alike. MIOpen takes
the fastest of those that apply, so these say nothing of what runs where all are tried."""

SHARED_PREDICTORS: tuple[SharedPredictor, ...] = (
    SharedPredictor(
        kernel_class="gemm",
        label="matrix+amd",
        file=AMD_GEMM,
        measured=("bfloat16", "float8e4m3fn", "float8e4m3fnuz", "int8"),
        formats=("bfloat16", "float8e4m3fn", "int8"),
        settings=ResidualSettings(),
    ),
    *(
        SharedPredictor(
            kernel_class="conv",
            label=f"matrix{of}",
            file=DEEPBENCH,
            measured=("float16",),
            formats=_SIXTEEN_BITS,
            settings=ResidualSettings(tree_count=100, leaf_count=8, rows_per_leaf=20),
            # Volta and Turing with one library of 2019: what trees learn of its choices says nothing of later ones
            unseen_weights=(0.0,),
        )
        for of in ("", "/weight")
    ),
    *(
        SharedPredictor(
            kernel_class="conv",
            label=f"float32{of}",
            file=DEEPBENCH,
            measured=("float32",),
            formats=("float32",),
            settings=ResidualSettings(tree_count=100, leaf_count=8, rows_per_leaf=20),
            # as above, with a library of 2017 on Pascal
            unseen_weights=(0.0,),
        )
        for of in (OF_DATA, OF_WEIGHT)
    ),
    *(
        SharedPredictor(
            kernel_class="conv",
            label=f"matrix{of}+amd",
            file=MIOPEN_CONV,
            measured=_SIXTEEN_BITS,
            formats=_SIXTEEN_BITS,
            settings=_CONVOLUTIONS,
        )
        for of in ("", "/weight")
    ),
    *(
        SharedPredictor(
            kernel_class="conv",
            label=f"float32{of}+amd",
            file=MIOPEN_CONV,
            measured=("float32",),
            formats=("float32",),
            settings=_CONVOLUTIONS,
            left_out=_TRIED_ALONE,
        )
        for of in ("", "/weight")
    ),
)

SHARED_NAMES = tuple(predictor.name for predictor in SHARED_PREDICTORS)


def shared_parts(shared: SharedPredictor, folder: Path) -> list[Part]:
    """The parts that a shared predictor is trained on, own measurements of such kernels among them."""
    parts = [part for part in read_parts(folder, (shared.file,)) if part.load is not None and shared.takes(part)]
    if shared.kernel_class != "conv" or shared.amd:
        return parts
    formats = {dtype.label for dtype in MATRIX_FORMATS} if shared.on_matrix_units else set(shared.formats)
    own = [part for file in own_files(folder) for part in read_parts(folder, (file,))]
    return parts + [part for part in own if part.kernel_class == "conv" and part.dtype in formats and part.load]


def shared_rows(
    shared: SharedPredictor, parts: Sequence[Part], log: Callable[[str], None], *, sampled: int | None = None
) -> Measurements | None:
    """The rows of the parts that are of its GPUs and directions, each format and direction an operation.

    ``sampled``: at most so many of each GPU and part.
    """
    found = []
    for part in parts:
        assert part.load is not None, "a part without kernels isn't chosen"
        rows = part.load(None if sampled is None else part.sample(sampled))
        specs = known_gpus(rows, log)
        dtype = kernel_dtype(rows.kernels[0])
        served = {name: spec for name, spec in specs.items() if dtype is DataType.FLOAT32 or serves(spec, dtype)}
        mine = {name for name, spec in served.items() if is_amd(spec) == shared.amd}
        kept = np.isin(rows.gpu, sorted(mine)) & np.isfinite(rows.measured_us)
        kept &= ~np.isin(rows.kernel_name, shared.left_out)
        if part.file != shared.file:
            directions = [kernel.direction if isinstance(kernel, Conv) else "" for kernel in rows.kernels]
            kept = kept & np.isin(directions, shared.directions)
        elif shared.kernel_class == "conv" and shared.on_matrix_units and not shared.amd:
            kept = kept & np.array([_fills_loads(kernel) for kernel in rows.kernels])
        rows = rows.select(kept)
        if len(rows):
            gpu = np.array([specs[name].name for name in rows.gpu.tolist()])
            name = shared.operation(part) if part.file == shared.file else f"{OWN} {part.variant} {part.dtype}"
            found.append(replace(rows, gpu=gpu, operation=np.full(len(rows), name), dtype=shared.label))
    return one_after_another(found) if found else None


def _fills_loads(kernel: Kernel) -> bool:
    """Whether channels are a multiple of eight, as DeepBench pads them for tensor cores (as its source is remembered).

    What it pads, images and spectra of 1 and 3 channels, isn't how libraries multiply those since: cuDNN 7.6's kernels
    take 32 channels a tap, however few there are (5x20 taps of one channel take 5 times FP32's time on a T4, 8 times on
    a V100; with 32 a tap the law is 10-16 % off), cuDNN 9.1's have forms for a first layer and ``indexed`` ones.
    """
    assert isinstance(kernel, Conv)
    return kernel.c // kernel.groups % 8 == 0 and kernel.k // kernel.groups % 8 == 0
