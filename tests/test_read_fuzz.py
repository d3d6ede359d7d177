"""Damaged model files give a ModelError in one line or a sound model, in bounded time; ``make fuzz`` goes on longer."""

from __future__ import annotations

import os
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.mutations import mutated, originals
from neusight_onnx.errors import BindingError, ModelError
from neusight_onnx.graph.bindings import Bindings, bind_inputs
from neusight_onnx.graph.model import Graph
from neusight_onnx.graph.read import read_model_bytes
from neusight_onnx.memory import parameter_summary

CASES = int(os.environ.get("NEUSIGHT_FUZZ_CASES", "500"))
ORIGINALS = originals()


@pytest.mark.parametrize("content", ORIGINALS, ids=range(len(ORIGINALS)))
def test_the_fuzzed_models_are_sound(content: bytes) -> None:
    """Else the fuzzing would never get past the reader's first check."""
    bind_inputs(read_model_bytes(content), Bindings())


@settings(max_examples=CASES, deadline=None)
@given(which=st.integers(0, len(ORIGINALS) - 1), seed=st.integers(0, 2**32))
def test_fuzz_reading(which: int, seed: int) -> None:
    content = mutated(ORIGINALS[which], random.Random(seed))
    start = time.perf_counter()
    try:
        read = read_model_bytes(content)
        assert_sound(read.graph, set())
        parameter_summary(read)
        bind_inputs(read, Bindings())
    except (ModelError, BindingError) as error:
        message = str(error)
        assert message.isprintable()
        assert len(message) < 1000
    assert time.perf_counter() - start < 5


def assert_sound(graph: Graph, outer: set[str]) -> None:
    """Every value that is read was made before, by one node; every node's name is its own."""
    known = outer | {declared.name for declared in graph.inputs} | set(graph.initializers)
    for node in graph.nodes:
        assert all(name in known for name in node.inputs if name)
        for value in node.attributes.values():
            for body in (value,) if isinstance(value, Graph) else value if isinstance(value, tuple) else ():
                if isinstance(body, Graph):
                    assert_sound(body, known)
        made = {name for name in node.outputs if name}
        assert not made & known
        known |= made
    assert all(declared.name in known for declared in graph.outputs)
    names = [node.name for node in graph.nodes]
    assert len(set(names)) == len(names)
