"""Fused attention: the rules of its operators, and what runtimes make of them.

Rules: of ai.onnx (:mod:`.standard`), of com.microsoft (:mod:`.contrib`; those that language models decode by in
:mod:`.cached`), of linear attention (:mod:`.linear`).

PyTorch's fused kernels want operands of a certain form (:mod:`.pytorch_operands`), and where it has none it computes
the formula (:mod:`.formula`). ONNX Runtime's CUDA provider runs one kernel or several (:mod:`.provider`; for ai.onnx's
operator :mod:`.provider_standard`).
"""

from neusight_onnx.lowering.attention import cached, contrib, linear, standard

__all__ = ["cached", "contrib", "linear", "standard"]
