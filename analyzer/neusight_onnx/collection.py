"""Garbage collection, and when not to."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Pauses garbage collection: it would walk a large graph again and again (a third of the time) and find nothing.

    Graphs, kernels and reports are values without cycles; reference counts free them.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
