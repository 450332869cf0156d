"""Output files: whole or not there at all, and never something else than they were. Standard library only."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from .errors import UserError


@contextmanager
def output(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write, binary and seekable, whose contents go to `path` when the block ends without an exception.

    A regular file is replaced in one step, so that nobody sees a part of it; it keeps its mode, and a new one gets
    what the umask leaves. A symbolic link stays, and what it points to is written. What is no regular file (a
    device, a FIFO) is written in place. Raises UserError when the system refuses; then a regular file is as it was.
    """
    try:
        with _in_place(path) if _is_special(path) else _replacing(os.path.realpath(path)) as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UserError(f"cannot write '{os.fspath(path)}': {error.strerror or error}") from error


def _is_special(path: str | os.PathLike[str]) -> bool:
    """Whether the path leads to something that is no regular file, whose place a regular one must not take."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False


@contextmanager
def _in_place(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    with tempfile.TemporaryFile() as file:  # a FIFO cannot be sought in
        yield file
        file.seek(0)
        with open(path, "wb") as target:
            shutil.copyfileobj(file, target)


@contextmanager
def _replacing(path: str) -> Iterator[IO[bytes]]:
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name[:64]}.{secrets.token_hex(8)}")
    number = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)  # less the umask
    try:
        with open(number, "w+b") as file:
            yield file
            file.flush()
            with suppress(FileNotFoundError):
                os.fchmod(number, stat.S_IMODE(os.stat(path).st_mode))
            os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
