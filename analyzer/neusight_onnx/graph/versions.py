"""Which IR and opset versions are known: those of the installed onnx package."""

from __future__ import annotations

OPEN_DOMAIN = "com.microsoft"
"""ONNX Runtime's: it has one version for ever, and its operators gain inputs and attributes with releases."""

_ALWAYS_KNOWN = {"": 22, "ai.onnx.ml": 5, "ai.onnx.training": 1}
"""Of onnx 1.17, the oldest release that the package installs with; newer versions are looked up in onnx itself."""

_ALWAYS_KNOWN_IR = 10


def newest_known(domain: str) -> int:
    """The newest opset of ``domain`` that the installed onnx defines; 1 for domains that are not onnx's."""
    # Imported here: it takes 160 ms, and only files with something odd or new need it.
    from onnx import helper

    column = _COLUMNS.get(domain)
    if column is None:
        return 1
    return max((int(row[column]) for row in helper.VERSION_TABLE if len(row) > column), default=1)


_COLUMNS = {"": 2, "ai.onnx.ml": 3, "ai.onnx.training": 4}
"""Columns of onnx.helper.VERSION_TABLE: release, IR version, then an opset each."""


def newer_opset(domain: str, version: int) -> int | None:
    """The newest known version of ``domain`` if ``version`` is newer still, else None."""
    if domain == OPEN_DOMAIN:
        return 1 if version > 1 else None
    if domain not in _COLUMNS or version <= _ALWAYS_KNOWN.get(domain, 0):
        return None
    known = newest_known(domain)
    return known if version > known else None


def newer_ir(version: int) -> int | None:
    """The newest known IR version if ``version`` is newer still, else None."""
    if version <= _ALWAYS_KNOWN_IR:
        return None
    from onnx import IR_VERSION

    return int(IR_VERSION) if version > IR_VERSION else None


LAST_OPSETS: dict[str, int] = {"Upsample": 9, "Scatter": 10}
"""Operator of ai.onnx -> the last opset in which it isn't deprecated (onnx.defs; a test compares)."""
