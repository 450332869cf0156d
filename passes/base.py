"""What every pass is: a frozen dataclass whose fields are its options."""

from __future__ import annotations

import abc
from typing import ClassVar

from kitsune_mlir.mlir import ir


class ModulePass(abc.ABC):
    """A pass over a builtin.module.

    Subclasses are frozen dataclasses; a field is a command-line option of the same name (`_` written
    `-`) of type int, float, bool or str, with a default. `name` is what users type and, with `_` for
    `-`, the file the pass stands in. A pass declines with `mlir.remark`, fails by raising a
    KitsuneError or by emitting an error diagnostic and raising ir.MLIRError.
    """

    name: ClassVar[str]

    @abc.abstractmethod
    def run(self, module: ir.Module) -> None:
        """Rewrites the module in place."""
