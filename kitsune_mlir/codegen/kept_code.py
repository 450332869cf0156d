"""The PTX of kernels, and what ptxas made of it, kept in a folder between processes: for a kernel that is the same
again neither LLVM nor ptxas is run.

The folder is what the environment variable KITSUNE_CACHE names, and is made where there is none; without the variable
nothing is kept. An entry is known by a hash of all that its maker is given, and of the maker: ptxas's version, or the
versions of MLIR and LLVM and the sources of what runs them. What is damaged counts as not there, and what cannot be
written is not kept; what nobody asked for in a month is removed, and what was asked for longest ago beyond 512 MiB.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import zlib
from functools import cache
from importlib import metadata
from pathlib import Path

from kitsune_mlir import mlir
from kitsune_mlir.errors import UserError
from kitsune_mlir.files import output

FOLDER = "KITSUNE_CACHE"
_SUFFIX = ".kept"
_PACKAGES = ("torch-mlir", "llvmlite")
_MONTH_S, _MOST_BYTES = 30 * 24 * 3600, 512 << 20


def folder() -> Path | None:
    """Where code is kept, if it is."""
    named = os.environ.get(FOLDER)
    return Path(named) if named else None


def key_of(*parts: str | bytes) -> str:
    """What an entry is known by."""
    digests = (hashlib.sha256(part.encode() if isinstance(part, str) else part).digest() for part in parts)
    return hashlib.sha256(b"".join(digests)).hexdigest()


@cache
def generator() -> str:
    """What generates PTX: the sources of this folder, and the versions of the packages that they use."""
    sources = [Path(mlir.__file__), *sorted(Path(__file__).parent.rglob("*.py"))]
    return key_of(*(f"{name} {metadata.version(name)}" for name in _PACKAGES), *(path.read_bytes() for path in sources))


def find(key: str) -> tuple[bytes, str] | None:
    """What was made, and what its maker said of it, if they were kept whole."""
    if (kept := folder()) is None:
        return None
    path = kept / f"{key}{_SUFFIX}"
    try:
        head, _, packed = path.read_bytes().partition(b"\n")
        known = json.loads(head)
        if known["sha256"] != hashlib.sha256(packed).hexdigest():
            return None
        os.utime(path)  # it has been asked for
        return zlib.decompress(packed), str(known["said"])
    except (OSError, ValueError, TypeError, KeyError, zlib.error):
        return None


def keep(key: str, made: bytes, said: str = "") -> None:
    """Keeps them for `find`."""
    if (kept := folder()) is None:
        return
    packed = zlib.compress(made, 1)
    head = json.dumps({"sha256": hashlib.sha256(packed).hexdigest(), "said": said})
    with contextlib.suppress(OSError, UserError):
        kept.mkdir(parents=True, exist_ok=True)
        _forget_old(kept)
        with output(kept / f"{key}{_SUFFIX}") as file:
            file.write(head.encode() + b"\n" + packed)


@cache
def _forget_old(kept: Path) -> None:
    """Once in a process."""
    found = []
    for path in kept.glob(f"*{_SUFFIX}"):
        with contextlib.suppress(OSError):  # another process may remove it
            found.append((path.stat().st_mtime, path.stat().st_size, path))
    total = 0
    for asked, size, path in sorted(found, reverse=True):
        total += size
        if total > _MOST_BYTES or asked < time.time() - _MONTH_S:
            with contextlib.suppress(OSError):
                path.unlink()
