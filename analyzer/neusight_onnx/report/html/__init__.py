"""The report as one HTML file that needs no network: what stands in it, and the page around it."""

from neusight_onnx.report.html.page import to_html
from neusight_onnx.report.html.sweep import sweep_to_html

__all__ = ["sweep_to_html", "to_html"]
