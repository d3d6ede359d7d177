"""Checks before a model ships: may it run there, and does it keep to its limits?"""

from neusight_onnx.checks.limits import Limits, parse_limits
from neusight_onnx.checks.run import MISTAKEN, check, explained, rules
from neusight_onnx.checks.subject import Target

__all__ = ["MISTAKEN", "Limits", "Target", "check", "explained", "parse_limits", "rules"]
