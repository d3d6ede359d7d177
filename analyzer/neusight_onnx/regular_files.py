"""Files that a user names: whole or not at all, and no pipe or device, which may never end."""

from __future__ import annotations

import errno
import stat
from pathlib import Path


def read_at_most(path: Path, byte_count: int) -> bytes:
    """The first bytes of a regular file, one more than ``byte_count`` of one that is larger.

    OSError where it can't be read, with "not a regular file" for a pipe, socket or device: opening one may wait for
    ever. ValueError for a path with a zero byte.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "not a regular file")
    with path.open("rb") as file:
        return file.read(byte_count + 1)
