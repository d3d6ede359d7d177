"""Softmax, normalizations and pooling; reductions and sorts."""

from __future__ import annotations

import numpy as np

from lowering_cases.case import INT32, Case, ew, moved
from neusight_onnx.kernels import (
    Attention,
    Elementwise,
    Gemm,
    Movement,
    Normalization,
    Pooling,
    Recurrent,
    Reduction,
    Softmax,
    Sort,
)

NORMS = [
    Case(
        name="layer",
        nodes="y = LayerNormalization<axis=-1>(x, g, b)",
        inputs={"x": (2, 3, 8)},
        weights={"g": (8,), "b": (8,)},
        expected=[(Normalization, {"method": "layer", "rows": 6, "cols": 8, "parameter_count": 16})],
    ),
    Case(
        name="layer over two axes",
        nodes="y = LayerNormalization<axis=1>(x, g)",
        inputs={"x": (2, 3, 8)},
        weights={"g": (3, 8)},
        expected=[(Normalization, {"rows": 2, "cols": 24, "parameter_count": 24})],
    ),
    Case(
        # as torch 2.9.1 launches LeViT on stand-ins: its own kernel, not cuDNN's, behind two of the running statistics
        name="batch normalization of features, eager",
        nodes="y = BatchNormalization(x, s, b, m, v)",
        inputs={"x": (8, 16)},
        weights=dict.fromkeys("sbmv", (16,)),
        expected=[
            moved("copy", 4 * 16, 4 * 16),
            ew("rsqrt", read=4 * 16, written=4 * 16),
            (Normalization, {"rows": 128, "cols": 1}),
        ],
    ),
    Case(
        name="batch",
        nodes="y = BatchNormalization(x, s, b, m, v)",
        inputs={"x": (2, 3, 4, 4)},
        weights={"s": (3,), "b": (3,), "m": (3,), "v": (3,)},
        expected=[
            (Normalization, {"method": "batch", "rows": 6, "cols": 16, "parameter_count": 12, "write_bytes": 384})
        ],
    ),
    # a row for each channel; 6 operations an element: mean, variance, scale, shift; 3 means and 3 variances are written
    Case(
        name="batch in training",
        nodes="y, rm, rv = BatchNormalization<training_mode=1>(x, s, b, m, v)",
        inputs={"x": (2, 3, 4, 4)},
        weights={"s": (3,), "b": (3,), "m": (3,), "v": (3,)},
        expected=[
            (Elementwise, {"operations": ("add",)}),  # the module counts its runs
            (
                Normalization,
                {
                    "method": "batch",
                    "rows": 3,
                    "cols": 32,
                    "fused": ("statistics",),
                    "flops": 6 * 96,
                    "read_bytes": 4 * (96 + 12),
                    "write_bytes": 4 * (96 + 6),
                },
            ),
        ],
    ),
    Case(
        name="batch of opset 9, whose other outputs say nothing",
        nodes="y, a, c, d, e = BatchNormalization(x, s, b, m, v)",
        inputs={"x": (2, 3, 4, 4)},
        weights={"s": (3,), "b": (3,), "m": (3,), "v": (3,)},
        opset=9,
        expected=[(Normalization, {"method": "batch", "rows": 6, "fused": (), "write_bytes": 384})],
    ),
    # (1, 2, 4, 6) products of queries and keys are written, too
    Case(
        name="attention that gives its products",
        nodes="y, , , qk = Attention(q, k, k)",
        inputs={"q": (1, 2, 4, 8), "k": (1, 2, 6, 8)},
        opset=23,
        expected=[(Attention, {"read_bytes": 4 * (64 + 2 * 96), "write_bytes": 4 * (64 + 48)})],
    ),
    # 10 steps of 2 x 32, and the last hidden and cell state of 2 x 32 each
    Case(
        name="lstm with its last states",
        nodes="y, yh, yc = LSTM<hidden_size=32>(x, w, r)",
        inputs={"x": (10, 2, 16)},
        weights={"w": (1, 128, 16), "r": (1, 128, 32)},
        expected=[(Gemm, {}), (Recurrent, {"write_bytes": 4 * (640 + 2 * 64)})],
    ),
    Case(
        name="dropout in training with its mask",
        nodes="y, m = Dropout(x, r, t)",
        inputs={"x": (4, 8)},
        constants={"r": 0.5, "t": np.array(True)},
        expected=[(Elementwise, {"read_bytes": 128, "write_bytes": 128 + 32})],
    ),
    # the values are the input's own; the mask holds 1 byte for each
    Case(
        name="dropout at inference with a mask that is read",
        nodes="y, m = Dropout(x)",
        inputs={"x": (4, 8)},
        expected=[(Movement, {"read_bytes": 0, "write_bytes": 32})],
    ),
    # without views the values are written, too
    Case(
        name="dropout at inference with a mask that is read, without views",
        nodes="y, m = Dropout(x)",
        inputs={"x": (4, 8)},
        runtime="onnxruntime",
        expected=[
            (Movement, {"read_bytes": 128, "write_bytes": 128}),
            (Movement, {"read_bytes": 0, "write_bytes": 32}),
        ],
    ),
    Case(
        name="layer normalization with its statistics",
        nodes="y, mean, inv = LayerNormalization(x, s)",
        inputs={"x": (4, 8)},
        weights={"s": (8,)},
        expected=[(Normalization, {"write_bytes": 4 * (32 + 2 * 4)})],
    ),
    Case(
        name="instance",
        nodes="y = InstanceNormalization(x, s, b)",
        inputs={"x": (2, 3, 4, 4)},
        weights={"s": (3,), "b": (3,)},
        runtime="compiled",
        expected=[(Normalization, {"method": "instance", "rows": 6, "cols": 16, "parameter_count": 6})],
    ),
    Case(
        name="instance in eager: scale and shift a sample, then cuDNN's batch normalization",
        nodes="y = InstanceNormalization(x, s, b)",
        inputs={"x": (2, 3, 4, 4)},
        weights={"s": (3,), "b": (3,)},
        expected=[
            moved("copy", read=12, written=24),
            moved("copy", read=12, written=24),
            (Normalization, {"method": "batch", "rows": 6, "cols": 16, "fused": ("statistics",)}),
        ],
    ),
    Case(
        name="instance in eager without scale and shift: PyTorch's own",
        nodes="y = InstanceNormalization(x, s, b)",
        inputs={"x": (2, 3, 4, 4)},
        constants={"s": [1.0, 1.0, 1.0], "b": [0.0, 0.0, 0.0]},
        expected=[
            (Reduction, {"operation": "channel_moments", "outputs": 6, "reduced": 16}),
            ew("rsqrt", read=24, written=24),
            (Normalization, {"method": "batch", "rows": 6, "cols": 16, "parameter_count": 0}),
        ],
    ),
    Case(
        name="group",
        nodes="y = GroupNormalization<num_groups=2>(x, s, b)",
        inputs={"x": (2, 6, 4, 4)},
        weights={"s": (6,), "b": (6,)},
        opset=21,
        runtime="compiled",
        expected=[(Normalization, {"method": "group", "rows": 4, "cols": 48})],
    ),
    Case(
        name="group in eager: moments of 2 x 2 groups, factor and summand of 2 x 6 channels, all elements",
        nodes="y = GroupNormalization<num_groups=2>(x, s, b)",
        inputs={"x": (2, 6, 4, 4)},
        weights={"s": (6,), "b": (6,)},
        opset=21,
        expected=[
            (Reduction, {"operation": "channel_moments", "outputs": 4, "reduced": 48, "write_bytes": 4 * 8}),
            ew("mul", "mul", "sub", read=4 * (4 + 4 + 6 + 6), written=4 * 2 * 12),
            ew("mul", "add", read=4 * (192 + 12 + 12), written=4 * 192),
        ],
    ),
    Case(
        name="group in eager without positions: two kernels",
        nodes="y = GroupNormalization<num_groups=2>(x, s, b)",
        inputs={"x": (2, 6)},
        weights={"s": (6,), "b": (6,)},
        opset=21,
        expected=[
            (Reduction, {"operation": "channel_moments", "outputs": 4, "reduced": 3}),
            ew("sub", "mul", "mul", "add", read=4 * (12 + 4 + 4 + 6 + 6), written=48),
        ],
    ),
    Case(
        name="RMS",
        nodes="y = RMSNormalization<axis=-1>(x, g)",
        inputs={"x": (2, 3, 8)},
        weights={"g": (8,)},
        opset=23,
        expected=[(Normalization, {"method": "rms", "rows": 6, "cols": 8, "flops": 4 * 48})],
    ),
    Case(
        name="skip",
        nodes="y, m, v, s = com.microsoft.SkipLayerNormalization(x, z, g, b)",
        inputs={"x": (2, 3, 8), "z": (2, 3, 8)},
        weights={"g": (8,), "b": (8,)},
        expected=[(Normalization, {"fused": ("add",), "read_bytes": 4 * (48 + 48 + 16)})],
    ),
    Case(
        name="softmax over the last axis",
        nodes="y = Softmax<axis=-1>(x)",
        inputs={"x": (2, 3, 8)},
        expected=[(Softmax, {"rows": 6, "cols": 8, "inner": 1})],
    ),
    Case(
        name="softmax over channels",
        nodes="y = Softmax<axis=1>(x)",
        inputs={"x": (2, 3, 8)},
        expected=[(Softmax, {"rows": 16, "cols": 3, "inner": 8})],
    ),
    Case(
        name="softmax of opset 11 flattens",
        nodes="y = Softmax<axis=1>(x)",
        inputs={"x": (2, 3, 8)},
        opset=11,
        expected=[(Softmax, {"rows": 2, "cols": 24, "inner": 1})],
    ),
]
REDUCTIONS = [
    Case(
        name="mean over the last axis",
        nodes="y = ReduceMean<axes=[-1]>(x)",
        inputs={"x": (2, 3, 8)},
        expected=[(Reduction, {"operation": "mean", "outputs": 6, "reduced": 8, "inner": 1, "write_bytes": 24})],
    ),
    Case(
        name="sum over a middle axis, axes as input",
        nodes="y = ReduceSum<keepdims=0>(x, a)",
        inputs={"x": (2, 3, 8)},
        constants={"a": [1]},
        expected=[(Reduction, {"outputs": 16, "reduced": 3, "inner": 8})],
    ),
    Case(
        name="over everything",
        nodes="y = ReduceMax<keepdims=0>(x)",
        inputs={"x": (2, 3)},
        expected=[(Reduction, {"outputs": 1, "reduced": 6})],
    ),
    Case(
        name="argmax",
        nodes="y = ArgMax<axis=1, keepdims=0>(x)",
        inputs={"x": (2, 3, 8)},
        expected=[(Reduction, {"operation": "argmax", "outputs": 16, "reduced": 3, "write_bytes": 128})],
    ),
    Case(
        name="cumulative sum",
        nodes="y = CumSum(x, a)",
        inputs={"x": (2, 8)},
        constants={"a": 1},
        expected=[(Reduction, {"outputs": 2, "reduced": 8, "write_bytes": 64})],
    ),
    Case(
        name="max pooling writes indices in eager",
        nodes="y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x)",
        inputs={"x": (1, 2, 4, 4)},
        expected=[(Pooling, {"window": 4, "read_bytes": 128, "write_bytes": 8 * (4 + 8)})],
    ),
    Case(
        name="max pooling elsewhere does not",
        nodes="y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x)",
        inputs={"x": (1, 2, 4, 4)},
        runtime="onnxruntime",
        expected=[(Pooling, {"write_bytes": 32})],
    ),
    Case(
        name="regions, aligned: four neighbours a sample, 2 x 2 samples where the ratio adapts",
        nodes="y = RoiAlign<output_height=3, output_width=2>(x, r, i)",
        inputs={"x": (1, 2, 40, 40), "r": (4, 4)},
        constants={"i": [0, 0, 0, 0]},
        # 48 elements look at 16 each, of 3,200
        expected=[(Pooling, {"window": 16, "read_bytes": 4 * 768, "write_bytes": 4 * 48})],
    ),
    Case(
        name="regions, aligned, of so many samples",
        nodes="y = RoiAlign<output_height=3, output_width=2, sampling_ratio=3>(x, r, i)",
        inputs={"x": (1, 2, 40, 40), "r": (4, 4)},
        constants={"i": [0, 0, 0, 0]},
        # 48 x 36 of 3,200
        expected=[(Pooling, {"window": 36, "read_bytes": 4 * 1728, "write_bytes": 4 * 48})],
    ),
    Case(
        name="regions, cropped and resized: four neighbours",
        nodes="y = com.microsoft.CropAndResize(x, r, i, s)",
        inputs={"x": (1, 2, 40, 40), "r": (4, 4)},
        constants={"i": [0, 0, 0, 0], "s": [3, 2]},
        types={"i": INT32, "s": INT32},
        expected=[(Pooling, {"window": 4, "read_bytes": 4 * 192, "write_bytes": 4 * 48})],
    ),
    Case(
        name="global average",
        nodes="y = GlobalAveragePool(x)",
        inputs={"x": (1, 2, 4, 4)},
        expected=[(Pooling, {"operation": "global_average", "window": 16, "flops": 32})],
    ),
    Case(
        name="top k",
        nodes="y, i = TopK<axis=-1>(x, k)",
        inputs={"x": (3, 16)},
        constants={"k": [4]},
        expected=[(Sort, {"rows": 3, "cols": 16, "kept": 4, "output_bytes": 12 * (4 + 8)})],
    ),
    Case(
        name="non-zero at its bound",
        nodes="y = NonZero(x)",
        inputs={"x": (4, 16)},
        expected=[(Sort, {"operation": "nonzero", "cols": 64, "kept": 64})],
    ),
]
