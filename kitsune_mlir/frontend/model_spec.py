"""Models named on a command line: "module:function" or "path/to/file.py:function"."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from types import ModuleType
from typing import Any

from kitsune_mlir.errors import UserError

FORM = "(nn.Module, args) or (nn.Module, args, dynamic_shapes)"


def load_model(spec: str) -> tuple[Any, tuple[Any, ...], Any]:
    """Calls the function and gives (module, args, dynamic_shapes or None).

    The current folder can be imported from. Raises UserError when the module, the function or its
    result is not there, and with file and line when user code fails.
    """
    where, _, function = spec.rpartition(":")
    if not where or not function:
        raise UserError(f"'{spec}' is no model: give module:function or path/to/file.py:function")
    make = getattr(_import(where, spec), function, None)
    if not callable(make):
        raise UserError(f"{spec}: '{where}' has no function '{function}'")
    try:
        made = make()
    except Exception as error:
        raise UserError(f"{spec}: the function failed at {_origin(error)}: {_words(error)}") from error
    if not isinstance(made, tuple | list) or len(made) not in (2, 3):
        raise UserError(f"{spec}: the function must return {FORM}, found a {type(made).__name__}")
    module, args, *shapes = made
    args = tuple(args) if isinstance(args, tuple | list) else (args,)
    return module, args, shapes[0] if shapes else None


def _import(where: str, spec: str) -> ModuleType:
    try:
        if where.endswith(".py"):
            return _import_file(where, spec)
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        return importlib.import_module(where)
    except UserError:
        raise
    except ModuleNotFoundError as error:
        raise UserError(f"{spec}: there is no module '{error.name}' to import") from error
    except Exception as error:
        raise UserError(f"{spec}: importing '{where}' failed at {_origin(error)}: {_words(error)}") from error


def _import_file(path: str, spec: str) -> ModuleType:
    if not os.path.isfile(path):
        raise UserError(f"{spec}: there is no file '{path}'")
    loader = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(path))[0], path)
    module = importlib.util.module_from_spec(loader)
    loader.loader.exec_module(module)
    return module


def _origin(error: Exception) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}:{frame.lineno}"


def _words(error: Exception) -> str:
    first = str(error).strip().splitlines()
    return f"{type(error).__name__}: {first[0]}" if first else type(error).__name__
