"""The optimizer's step: PyTorch's foreach kernels, each of which goes through many parameters.

In a loop of its own for every operation (``torch.optim``, foreach=True, the default on a GPU): the operations of
``_multi_tensor_adamw`` and its like. A launch takes a limited number of tensors and of chunks. Before that was the
default, each parameter had a kernel for each operation (``_single_tensor_adamw`` and its like). ``fused=True`` asks for
one kernel that does all of a step (``_fused_adamw_``, through as many parameters a launch), which is named after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from neusight_onnx.backward.steps import Parameter
from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Elementwise, Kernel, Movement, NodeWork, TensorSpec
from neusight_onnx.lowering.normalization import fill

CHUNK_ELEMENTS = 65_536
CHUNKS_A_LAUNCH = 320
TENSORS_A_LAUNCH = {1: 110, 2: 64, 3: 48, 4: 36}
"""multi_tensor_apply: elements of a chunk, chunks of a launch, tensors of a launch by the lists that an operation goes
through (constants of PyTorch's MultiTensorApply.cuh, as remembered)."""


@dataclass(frozen=True, slots=True)
class _Pass:
    """One foreach operation: tensors of a parameter's size that it reads, lists that it is given, tensors written.

    ``fused``: the operations of a kernel that does several at once.
    """

    operation: str
    reads: int
    lists: int
    writes: int = 1
    fused: tuple[str, ...] = ()

    def kernel(self, spec: TensorSpec) -> Elementwise:
        return Elementwise(
            operations=self.fused or (self.operation,),
            inputs=(spec,) * self.reads,
            output=spec,
            extra_outputs=(spec,) * (self.writes - 1),
        )


_ADAM = (
    _Pass("lerp", 2, 2),
    _Pass("mul", 1, 1),
    _Pass("addcmul", 2, 3),
    _Pass("sqrt", 1, 2),
    _Pass("div", 1, 1),
    _Pass("add", 1, 1),
    _Pass("addcdiv", 3, 3),
)


def _fused(name: str, *steps: _Pass) -> tuple[_Pass]:
    """Weight, gradient and both moments are read once, all but the gradient written once."""
    return (_Pass(name, 4, 4, writes=3, fused=tuple(step.operation for step in steps)),)


PASSES: dict[str, tuple[_Pass, ...]] = {
    "none": (),
    "sgd": (_Pass("add", 2, 2),),
    "momentum": (_Pass("mul", 1, 1), _Pass("add", 2, 2), _Pass("add", 2, 2)),
    "adam": _ADAM,
    "adamw": (_Pass("mul", 1, 1), *_ADAM),
    "adam-fused": _fused("fused_adam", *_ADAM),
    "adamw-fused": _fused("fused_adamw", _Pass("mul", 1, 1), *_ADAM),
}
"""adam: m = lerp(m, g), v = v b + g g (1 - b), p += m / (sqrt(v) + e); adamw shrinks p before. momentum: b = b m + g,
p -= b. Learning rates and corrections are numbers of the host."""

_ADAM_ALONE = (_Pass("mul", 1, 1), _Pass("add", 2, 2), *_ADAM[1:])
PASSES_ALONE = PASSES | {"adam": _ADAM_ALONE, "adamw": (_Pass("mul", 1, 1), *_ADAM_ALONE)}
"""Of one parameter at a time: m is scaled and added to, which was ``lerp`` only later."""

STATES = {"none": 0, "sgd": 0, "momentum": 1, "adam": 2, "adamw": 2, "adam-fused": 2, "adamw-fused": 2}
"""Tensors of a parameter's size that the optimizer keeps between steps."""

TEMPORARIES = {"none": 0, "sgd": 0, "momentum": 0, "adam": 1, "adamw": 1, "adam-fused": 0, "adamw-fused": 0}
"""Tensors of all parameters' size that exist during the step: the roots of v."""


def is_fused(optimizer: str) -> bool:
    """Whether one kernel does the whole step, through many parameters a launch in every release that has it."""
    return optimizer.endswith("-fused")


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerMemory:
    """Bytes: ``state_bytes`` and ``master_bytes`` last from step to step, ``temporary_bytes`` during one."""

    state_bytes: int
    master_bytes: int
    temporary_bytes: int


def is_mixed(dtype: DataType) -> bool:
    """Whether parameters of a type are trained through float32 copies of them, their master weights."""
    return dtype.bits < DataType.FLOAT32.bits


def optimizer_memory(optimizer: str, parameters: Sequence[Parameter], *, foreach: bool = True) -> OptimizerMemory:
    """States and master weights in float32 where the parameters are narrower, else in the parameters' own type.

    Not ``foreach``: what exists during the step only is of one parameter at a time.
    """
    state = master = temporary = 0
    foreach = foreach or is_fused(optimizer)
    if optimizer == "none":
        return OptimizerMemory(state_bytes=0, master_bytes=0, temporary_bytes=0)
    for parameter in parameters:
        mixed = is_mixed(parameter.spec.dtype)
        dtype = DataType.FLOAT32 if mixed else parameter.spec.dtype
        size = dtype.bytes_of(parameter.spec.element_count)
        state += STATES[optimizer] * size
        during = (TEMPORARIES[optimizer] + mixed) * size  # gradients are cast to float32, too
        temporary = temporary + during if foreach else max(temporary, during)
        master += size if mixed else 0
    return OptimizerMemory(state_bytes=state, master_bytes=master, temporary_bytes=temporary)


def optimizer_works(optimizer: str, parameters: Sequence[Parameter], *, foreach: bool = True) -> Iterator[NodeWork]:
    """The step over all parameters, those of each number format apart, as foreach does; else one after the other."""
    if optimizer == "none":
        return
    foreach = foreach or is_fused(optimizer)
    groups: dict[DataType, list[int]] = {}
    for parameter in parameters:
        groups.setdefault(parameter.spec.dtype, []).append(parameter.spec.element_count)
    for stored, sizes in groups.items():
        passes = (PASSES if foreach else PASSES_ALONE)[optimizer]
        dtype = DataType.FLOAT32 if is_mixed(stored) else stored
        if is_mixed(stored):
            for count, elements in _launches(sizes, 2, foreach=foreach):
                yield _work("cast", _copy(stored, dtype, elements), count, len(sizes))
        for step in passes:
            for count, elements in _launches(sizes, step.lists, foreach=foreach):
                kernel = step.kernel(TensorSpec(dtype=dtype, shape=(elements,)))
                yield _work(step.operation, kernel, count, len(sizes) if foreach else count)
        if is_mixed(stored):
            for count, elements in _launches(sizes, 2, foreach=foreach):
                yield _work("cast", _copy(dtype, stored, elements), count, len(sizes))


def zeroed_gradients(parameters: Sequence[Parameter]) -> Iterator[NodeWork]:
    """``zero_grad(set_to_none=False)``: every gradient is filled with zeros."""
    groups = Counter(parameter.spec for parameter in parameters)
    for spec, count in groups.items():
        yield _work("zero_grad", fill(spec), count, count)


def _launches(sizes: Sequence[int], lists: int, *, foreach: bool) -> list[tuple[int, int]]:
    """(launches, elements of each) of an operation that goes through so many lists of tensors of these sizes.

    ``foreach``: as it cuts all of them into launches, elements on average; else a launch for each tensor.
    """
    if not foreach:
        return [(count, size) for size, count in Counter(sizes).items()]
    chunks = sum(-(-size // CHUNK_ELEMENTS) for size in sizes)
    launches = max(-(-len(sizes) // TENSORS_A_LAUNCH[lists]), -(-chunks // CHUNKS_A_LAUNCH), 1)
    return [(launches, -(-sum(sizes) // launches))]


def _copy(source: DataType, target: DataType, elements: int) -> Movement:
    return Movement(
        operation="cast",
        dtype=source,
        shape=(elements,),
        read=source.bytes_of(elements),
        written=target.bytes_of(elements),
    )


def _work(operation: str, kernel: Kernel, count: int, tensors: int) -> NodeWork:
    """``count`` launches that go through ``tensors`` in all."""
    return NodeWork(
        node=f"optimizer/{operation}",
        op_type="Optimizer",
        origins=(),
        kernels=(kernel,),
        count=count,
        host_operation=True,
        phase="optimizer",
        tensors_each=tensors / count,
    )
