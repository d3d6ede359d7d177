"""What autograd keeps of a run forward: predicted from the graph, beside PyTorch's own saved tensors."""

from __future__ import annotations

from pathlib import Path

import pytest

from neusight_onnx.backward import make_training
from neusight_onnx.graph.bindings import make_bindings
from neusight_onnx.graph.read import read_model
from neusight_onnx.precision import FORMATS
from neusight_onnx.preparation import infer_shapes, prepare

FOLDER = Path(__file__).parent / "trained"

# (bytes of saved tensors, of parameters), measured by trained_models.py with torch 2.14 on a CPU, whose derivative
# formulas are those of the GPU.
MEASURED = {
    "perceptron": (262144, 5292072),
    "resnet": (2465024, 1249960),
    "bert": (3677696, 3441056),
    "gpt": (3677696, 3437056),
    "mobilenet": (16260736, 42856),
}
BATCH = {"perceptron": 32, "resnet": 4, "bert": 2, "gpt": 2, "mobilenet": 4}
WITHIN = 0.05


RECOMPUTED = {"bert": 329216, "gpt": 329216}
"""The same with ``torch.utils.checkpoint`` around each layer."""


def predicted(name: str, recompute: str = "none") -> tuple[int, int]:
    """(bytes kept of the run forward, bytes of the parameters that are trained)."""
    bindings = make_bindings({"batch": BATCH[name]}, None, None, None)
    shaped = infer_shapes(read_model(FOLDER / f"{name}.onnx"), bindings)
    plan = make_training(optimizer="adamw", loss="none", recompute=recompute)
    prepared = prepare(shaped, precision=FORMATS["fp32"], runtime="eager", training=plan)
    assert prepared.trained is not None
    saved = sum(tensor.byte_count for tensor in prepared.memory.saved)
    return saved, sum(parameter.spec.byte_count for parameter in prepared.trained.parameters)


@pytest.mark.parametrize("name", MEASURED)
def test_saved_tensors(name: str) -> None:
    saved, parameters = MEASURED[name]
    assert predicted(name) == (pytest.approx(saved, rel=WITHIN), parameters)


@pytest.mark.parametrize("name", RECOMPUTED)
def test_saved_tensors_of_recomputed_layers(name: str) -> None:
    assert predicted(name, "blocks")[0] == pytest.approx(RECOMPUTED[name], rel=WITHIN)


@pytest.mark.parametrize("name", MEASURED)
def test_torch_keeps_what_was_recorded(name: str) -> None:
    pytest.importorskip("torch", reason="the extra 'torch' is not installed: the recorded bytes stand")
    from trained_models import parameter_bytes, saved_bytes

    assert (saved_bytes(name), parameter_bytes(name)) == MEASURED[name]
    if name in RECOMPUTED:
        assert saved_bytes(name, recompute=True) == RECOMPUTED[name]
