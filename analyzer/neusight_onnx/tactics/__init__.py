"""Which type each layer of an engine runs in on a GPU, of those that its builder was allowed.

TensorRT's builder times the kernels of every type that it was allowed for a layer, and what converts tensors between
layers of different types, and keeps the fastest ("Reduced Precision" in the developer guide of TensorRT 8: a flag
allows a type, "TensorRT will still choose a higher-precision kernel if it results in a faster overall runtime"). So a
format that is asked for makes no layer slower: one may stay in 16 bits beside int8, and in float32 beside both.

Where the format is one that only a file's QuantizeLinear and DequantizeLinear can ask for (FP8, FP4), which layers get
them is the choice of who quantises the model, which is taken to be made alike; everything else there is in the types
that the file has. Layers that a file stores quantised have no choice, and aren't here; nor have weights of 4 bits
beside activations in 16, which are stored so to be small, whatever the sizes of a run.
"""

from __future__ import annotations

from neusight_onnx.tactics.borders import at_the_borders
from neusight_onnx.tactics.choice import Chosen, choose
from neusight_onnx.tactics.find import find_tactics
from neusight_onnx.tactics.layers import BETWEEN, FORMS, FULL, FULL_TO_WIDE, NARROW, WIDE, Form, Layer, Tactics
from neusight_onnx.tactics.orders import in_quickest_order

__all__ = [
    "BETWEEN",
    "FORMS",
    "FULL",
    "FULL_TO_WIDE",
    "NARROW",
    "WIDE",
    "Chosen",
    "Form",
    "Layer",
    "Tactics",
    "at_the_borders",
    "choose",
    "find_tactics",
    "in_quickest_order",
]
