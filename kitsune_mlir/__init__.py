"""Kitsune-MLIR: exported PyTorch models as spatial pipelines on a GPU.

    compiled = kitsune_mlir.compile(model, (x,), target="cpu")
    y = compiled(x)
    compiled.save("model.kitsune")
    y = kitsune_mlir.load("model.kitsune")(x)

Nothing heavy is imported until it is used: `load` runs without torch, torch-mlir and llvmlite.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compiler import Compiled, compile, compile_program
    from .errors import InternalError, KitsuneError, UnsupportedError, UserError
    from .loaded import Loaded, load

    __version__: str

_HOMES = {
    "compile": "compiler",
    "compile_program": "compiler",
    "Compiled": "compiler",
    "load": "loaded",
    "Loaded": "loaded",
    "KitsuneError": "errors",
    "UserError": "errors",
    "UnsupportedError": "errors",
    "InternalError": "errors",
}
__all__ = [
    "Compiled",
    "InternalError",
    "KitsuneError",
    "Loaded",
    "UnsupportedError",
    "UserError",
    "compile",
    "compile_program",
    "load",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib import metadata

        return metadata.version("kitsune-mlir")
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
