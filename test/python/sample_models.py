"""Models that are imported once for all tests that start from them: the small sample models, and others."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch
from torch import nn

from examples.models import SMALL
from kitsune_mlir import mlir
from kitsune_mlir.frontend import import_model
from kitsune_mlir.program import Program


def imported(name: str, dtype: torch.dtype) -> tuple[nn.Module, tuple[Any, ...], Program]:
    """The model in evaluation mode, inputs, and a copy of the program that the caller may rewrite."""
    model, args, program = _imported(name, dtype)
    return model, args, dataclasses.replace(program, module=mlir.clone(program.module))


@functools.cache
def _imported(name: str, dtype: torch.dtype) -> tuple[nn.Module, tuple[Any, ...], Program]:
    torch.manual_seed(3)
    model, args = SMALL[name](dtype)
    return model.eval(), args, import_model(model.eval(), args)


def program_of(model: nn.Module, args: tuple[Any, ...]) -> Program:
    """A copy of the program that the caller may rewrite; for the same objects again, torch exports nothing."""
    program = _program_of(model, args)
    return dataclasses.replace(program, module=mlir.clone(program.module))


_program_of = functools.lru_cache(maxsize=2)(import_model)
