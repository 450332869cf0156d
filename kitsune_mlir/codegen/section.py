"""What a target's code generator hands to the artifact."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Section:
    """One target's share of an artifact: a manifest that its runner reads, and the files it names.

    `manifest` holds only what JSON can say; `files` maps short names ("main.so", "kernels.ptx") to contents.
    """

    manifest: dict[str, Any]
    files: dict[str, bytes] = field(default_factory=dict)
