"""Files that a user names: whole or not at all. Of pipes and devices, which may never end, only what a shell opened."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

STANDARD_INPUT = Path("/dev/stdin")

_OPENED = re.compile(r"/(?:dev|proc/self)/fd/([0-9]{1,6})")


def read_at_most(path: Path, byte_count: int) -> bytes:
    """The first bytes of a regular file, one more than ``byte_count`` of one that is larger; or of the pipe that a
    shell gives a command as ``<(...)`` or its standard input (/dev/fd/63, /dev/stdin), which can be read once.

    OSError where it can't be read, with "not a regular file" for another pipe, a socket or a device: opening one may
    wait for ever. ValueError for a path with a zero byte.
    """
    mode = path.stat().st_mode
    descriptor = _opened(path) if stat.S_ISFIFO(mode) else None
    if descriptor is None and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "not a regular file")
    with path.open("rb") if descriptor is None else os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read(byte_count + 1)


def _opened(path: Path) -> int | None:
    """The descriptor that a path stands for; None of any other."""
    if path == STANDARD_INPUT:
        return 0
    found = _OPENED.fullmatch(str(path))
    return None if found is None else int(found[1])
