"""Convolutions."""

from __future__ import annotations

from lowering_cases.case import F16, INT8, INT32, UINT8, Case, ew, moved
from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Conv, Elementwise

CONV = [
    Case(
        name="2-D without bias",
        nodes="y = Conv<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(x, w)",
        inputs={"x": (2, 3, 8, 8)},
        weights={"w": (4, 3, 3, 3)},
        expected=[(Conv, {"out": (4, 4), "macs": 2 * 16 * 4 * 27, "epilogue": ()})],
    ),
    Case(
        name="the bias is a kernel of its own in eager",
        nodes="y = Conv(x, w, b)",
        inputs={"x": (1, 3, 4, 4)},
        weights={"w": (4, 3, 3, 3), "b": (4,)},
        expected=[(Conv, {"out": (2, 2), "epilogue": ()}), ew("add", read=4 * (16 + 4), written=64)],
    ),
    Case(
        name="and an epilogue elsewhere",
        nodes="y = Conv(x, w, b)",
        inputs={"x": (1, 3, 4, 4)},
        weights={"w": (4, 3, 3, 3), "b": (4,)},
        runtime="tensorrt",
        expected=[(Conv, {"epilogue": ("bias",), "read_bytes": 4 * (48 + 108 + 4), "write_bytes": 64})],
    ),
    Case(
        name="grouped",
        nodes="y = Conv<group=2>(x, w)",
        inputs={"x": (1, 8, 5, 5)},
        weights={"w": (6, 4, 3, 3)},
        expected=[(Conv, {"groups": 2, "macs": 9 * 6 * 4 * 9})],
    ),
    Case(
        name="depthwise with multiplier",
        nodes="y = Conv<group=4>(x, w)",
        inputs={"x": (1, 4, 5, 5)},
        weights={"w": (8, 1, 3, 3)},
        expected=[(Conv, {"c": 4, "k": 8, "groups": 4, "macs": 9 * 8 * 9})],
    ),
    Case(
        name="PyTorch's depthwise kernel adds the bias",
        nodes="y = Conv<group=4>(x, w, b)",
        inputs={"x": (1, 4, 5, 5)},
        weights={"w": (4, 1, 3, 3), "b": (4,)},
        expected=[(Conv, {"groups": 4, "epilogue": ("bias",)})],
    ),
    *(
        Case(
            name=f"depthwise in FP16, {what}",
            nodes=f"y = Conv<group={channels}, strides=[{stride},{stride}]>(x, w, b)",
            inputs={"x": (n, channels, width, width)},
            weights={"w": (channels, 1, taps, taps), "b": (channels,)},
            types=dict.fromkeys("xwb", F16),
            expected=[(Conv, {"epilogue": ("bias",) if is_own else ()}), *([] if is_own else [(Elementwise, {})])],
        )
        # whose kernel torch 2.9.1 launches for these on stand-ins
        for what, n, channels, width, taps, stride, is_own in (
            ("cuDNN's", 32, 32, 112, 3, 1, False),
            ("stride 2 of few channels", 32, 96, 112, 3, 2, True),
            ("stride 2 of many", 32, 512, 14, 5, 2, False),
            ("7 x 7", 8, 96, 56, 7, 1, True),
            ("fewer than 32 channels", 8, 16, 56, 3, 1, True),
        )
    ),
    Case(
        name="depthwise in FP16 over time: cuDNN's",
        nodes="y = Conv<group=64>(x, w, b)",
        inputs={"x": (8, 64, 512)},
        weights={"w": (64, 1, 3), "b": (64,)},
        types=dict.fromkeys("xwb", F16),
        expected=[(Conv, {"epilogue": ()}), (Elementwise, {})],
    ),
    Case(
        name="more zeros behind than in front: PyTorch pads before",
        nodes='y = Conv<auto_pad="SAME_UPPER">(x, w)',
        inputs={"x": (1, 2, 4, 4)},
        weights={"w": (3, 2, 2, 2)},
        expected=[
            moved("fill", read=0, written=4 * 50),
            moved("copy", read=4 * 32, written=4 * 32),
            (Conv, {"spatial": (5, 5), "out": (4, 4)}),
        ],
    ),
    Case(
        name="as many zeros behind as in front",
        nodes='y = Conv<auto_pad="SAME_UPPER">(x, w)',
        inputs={"x": (1, 2, 4, 4)},
        weights={"w": (3, 2, 3, 3)},
        expected=[(Conv, {"spatial": (4, 4), "out": (4, 4)})],
    ),
    Case(
        name="dilated 1-D",
        nodes="y = Conv<dilations=[2]>(x, w)",
        inputs={"x": (2, 3, 10)},
        weights={"w": (4, 3, 3)},
        expected=[(Conv, {"out": (6,), "dilations": (2,), "macs": 2 * 6 * 4 * 9})],
    ),
    Case(
        name="3-D",
        nodes="y = Conv(x, w)",
        inputs={"x": (1, 2, 4, 4, 4)},
        weights={"w": (3, 2, 2, 2, 2)},
        expected=[(Conv, {"out": (3, 3, 3), "macs": 27 * 3 * 2 * 8})],
    ),
    Case(
        name="auto_pad SAME with a stride",
        nodes='y = Conv<auto_pad="SAME_UPPER", strides=[2,2]>(x, w)',
        inputs={"x": (1, 3, 7, 7)},
        weights={"w": (4, 3, 3, 3)},
        expected=[(Conv, {"out": (4, 4), "macs": 16 * 4 * 27})],
    ),
    Case(
        name="transposed",
        nodes="y = ConvTranspose<strides=[2,2], kernel_shape=[2,2]>(x, w)",
        inputs={"x": (1, 16, 16, 16)},
        weights={"w": (16, 8, 2, 2)},
        expected=[(Conv, {"k": 8, "out": (32, 32), "macs": 256 * 16 * 8 * 4, "transposed": True})],
    ),
    Case(
        name="transposed and grouped",
        nodes="y = ConvTranspose<group=2>(x, w)",
        inputs={"x": (1, 4, 5)},
        weights={"w": (4, 3, 3)},
        expected=[(Conv, {"k": 6, "macs": 5 * 4 * 3 * 3})],
    ),
    Case(
        name="int8",
        nodes="y = QLinearConv<pads=[1,1,1,1]>(x, xs, xz, w, ws, wz, ys, yz, b)",
        inputs={"x": (1, 16, 8, 8)},
        weights={"w": (32, 16, 3, 3), "ws": (32,), "b": (32,)},
        constants={"xs": 0.1, "ys": 0.1},
        types={"x": UINT8, "w": INT8, "xz": UINT8, "wz": INT8, "yz": UINT8, "b": INT32},
        expected=[
            (
                Conv,
                {
                    "macs": 294912,
                    "dtype": DataType.UINT8,
                    "weight_dtype": DataType.INT8,
                    "read_bytes": 1024 + 32 * 144 + 128 + 128,
                    "write_bytes": 2048,
                },
            )
        ],
    ),
]
