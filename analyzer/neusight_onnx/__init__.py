"""neusight-onnx: how fast an ONNX model runs on a GPU that you do not have, from the graph alone."""

__version__ = "0.1.0"
