"""Operations on each element of their inputs."""

from __future__ import annotations

from dataclasses import dataclass

from neusight_onnx.kernels.movement import Move
from neusight_onnx.kernels.operations import operation_flops
from neusight_onnx.kernels.tensors import TensorSpec, bytes_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise:
    """Every output element is a function of one element of each input; inputs broadcast to ``output.shape``.

    ``operations`` are torch-like names in lower case ("add", "gelu", "pow", …); fused kernels list several.
    A scalar operand is no input: it costs no traffic. ``extra_outputs``: what a fused kernel writes beside ``output``.
    ``generated``: a compiler wrote the kernel for these shapes (constant strides, every load on its own), in place of
    a library's kernel for any shape. Its inputs need not broadcast to the output: a concatenation reads parts of it.
    ``access``: how a thread reads: "" as PyTorch's kernel does, "element" one element at a time, "vector" 16 bytes.
    ``library``: whose kernel it is where not PyTorch's: "onnxruntime", or "own" (written for what it does: finding an
    element's place costs nothing that counts). ``moves``: lookups and reorderings that a generated kernel does as it
    reads, each as the kernel that it would be by itself: what its accesses take beside a plain copy's stays.
    """

    operations: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]
    output: TensorSpec
    extra_outputs: tuple[TensorSpec, ...] = ()
    generated: bool = False
    access: str = ""
    library: str = ""
    moves: tuple[Move, ...] = ()

    @property
    def macs(self) -> int:
        return 0

    @property
    def flops(self) -> int:
        return self.output.element_count * operation_flops(self.operations)

    @property
    def read_bytes(self) -> int:
        return bytes_of(self.inputs)

    @property
    def write_bytes(self) -> int:
        return self.output.byte_count + bytes_of(self.extra_outputs)
