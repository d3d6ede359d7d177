"""What surrounds all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def plain_surroundings() -> Iterator[None]:
    """Those of a pipe, whatever terminal or service runs the tests: 80 columns, and no word about colours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        for name in ("LINES", "NO_COLOR", "FORCE_COLOR"):
            patch.delenv(name, raising=False)
        yield
