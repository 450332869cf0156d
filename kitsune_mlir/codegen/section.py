"""What a target's code generator hands to the artifact."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

_MARK = b"\n// kitsune section "  # a comment in PTX; a linker's output may be followed by anything


@dataclass(frozen=True)
class Section:
    """One target's share of an artifact: a manifest that its runner reads, and the files it names.

    `manifest` holds only what JSON can say; `files` maps short names ("main.so", "kernels.ptx") to contents.
    """

    manifest: dict[str, Any]
    files: dict[str, bytes] = field(default_factory=dict)


def seal(section: Section) -> Section:
    """The section with the manifest's sha256 at the end of each file of code (".so", ".ptx"): code relies on the sizes
    in the manifest that it was generated with, and `is_sealed` tells whether this is that manifest."""
    ending = _ending(section.manifest)
    files = {name: data.partition(_MARK)[0] + ending if is_code(name) else data for name, data in section.files.items()}
    return Section(section.manifest, files)


def is_sealed(section: Section) -> bool:
    """Whether each file of code was generated with just this manifest."""
    ending = _ending(section.manifest)
    return all(data.endswith(ending) for name, data in section.files.items() if is_code(name))


def is_code(name: str) -> bool:
    """Whether a file of a section carries the manifest's sha256; a cubin does not, for its PTX is always beside it."""
    return name.endswith((".so", ".ptx"))


def _ending(manifest: dict[str, Any]) -> bytes:
    canonical = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    return _MARK + hashlib.sha256(canonical).hexdigest().encode() + b"\n"
