"""What ptxas made of PTX, kept in a folder between processes: a kernel is assembled again only where it is another one.

The folder is what the environment variable KITSUNE_CACHE names, and is made where there is none; without the variable
nothing is kept. An entry is known by a hash of all that ptxas is given, and of what it says of its own version. What is
damaged counts as not there, and what cannot be written is not kept; what nobody asked for in a month is removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kitsune_mlir.errors import UserError
from kitsune_mlir.files import output

FOLDER = "KITSUNE_CACHE"
_SUFFIX = ".ptxas"
_MONTH_S = 30 * 24 * 3600


def folder() -> Path | None:
    """Where code is kept, if it is."""
    named = os.environ.get(FOLDER)
    return Path(named) if named else None


def key_of(parts: Sequence[str]) -> str:
    """What an entry is known by: texts, of which none runs into the next."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def find(key: str) -> tuple[bytes, str] | None:
    """The cubin and what ptxas said, if they were kept whole."""
    if (kept := folder()) is None:
        return None
    path = kept / f"{key}{_SUFFIX}"
    try:
        head, _, cubin = path.read_bytes().partition(b"\n")
        known = json.loads(head)
        if known["cubin"] != hashlib.sha256(cubin).hexdigest():
            return None
        os.utime(path)  # it has been asked for
        return cubin, str(known["said"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def keep(key: str, cubin: bytes, said: str) -> None:
    """Keeps them for `find`."""
    if (kept := folder()) is None:
        return
    head = json.dumps({"cubin": hashlib.sha256(cubin).hexdigest(), "said": said})
    with contextlib.suppress(OSError, UserError):
        kept.mkdir(parents=True, exist_ok=True)
        _forget_old(kept)
        with output(kept / f"{key}{_SUFFIX}") as file:
            file.write(head.encode() + b"\n" + cubin)


@cache
def _forget_old(kept: Path) -> None:
    """Once in a process."""
    for path in kept.glob(f"*{_SUFFIX}"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - _MONTH_S:
                path.unlink()
