"""Several runs of one model beside each other: GPUs, sizes, versions, and what would be if something were different."""

from neusight_onnx.comparison.cases import compare
from neusight_onnx.comparison.changes import diff
from neusight_onnx.comparison.points import sweep
from neusight_onnx.comparison.prices import Prices, parse_prices, read_prices

__all__ = ["Prices", "compare", "diff", "parse_prices", "read_prices", "sweep"]
