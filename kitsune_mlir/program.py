"""What every front end returns and everything after it starts from: linalg, and what its values are."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kitsune_mlir.signature import Signature
from kitsune_mlir.size_conditions import Condition

if TYPE_CHECKING:
    from kitsune_mlir.mlir import ir

# Element types by the name they have here: (MLIR type, numpy type that holds it).
ELEMENT_TYPES: dict[str, tuple[str, type]] = {
    "f64": ("f64", np.float64),
    "f32": ("f32", np.float32),
    "f16": ("f16", np.float16),
    "bf16": ("bf16", np.uint16),  # numpy has no bfloat16: the bits
    "i64": ("i64", np.int64),
    "i32": ("i32", np.int32),
    "i16": ("i16", np.int16),
    "i8": ("i8", np.int8),
    "u8": ("i8", np.uint8),
    "i1": ("i1", np.bool_),
}


# An attribute of @main: for each result the number of its memory. Results of equal numbers may be views of one buffer,
# those of a number below that of the arguments views of that argument; a result of OWN_MEMORY shares it with nothing.
# Without the attribute all results have memory of their own.
MEMORY, OWN_MEMORY = "kitsune.memory", -1
# For each argument the numbers of its sizes that are open until the call, others -1: those of one number are equal in
# every call. Without the attribute nothing is known of them.
SYMBOLS, NO_SYMBOL = "kitsune.symbols", -1
# The arguments that the program may write: results that are their new contents have the argument's memory, too.
CHANGED = "kitsune.changed"


def named_symbol(name: str, least: int | None, most: int | None) -> str:
    """The name of an open size with the least and the largest that it may be, where there are such: `s0`, `s0:5:64`.
    One that is computed of another is named by it: `2*s0+1`."""
    return name if least is None and most is None else f"{name}:{least or ''}:{most or ''}"


@functools.cache
def terms_of_symbol(symbol: str) -> tuple[str, int, int]:
    """The open size of which one of this name is so many times as much, and so much more: ("s0", 2, 1) of `2*s0+1`."""
    name = symbol.partition(":")[0]
    found = re.fullmatch(r"([1-9][0-9]*)\*(\w+)\+(-?[0-9]+)", name, re.ASCII)
    return (name, 1, 0) if found is None else (found[2], int(found[1]), int(found[3]))


@functools.cache
def range_of_symbol(symbol: str) -> tuple[int, int | None]:
    """The least and the largest size that one of this name may be; None for any."""
    _, least, most = (*symbol.split(":"), "", "")[:3]
    return int(least or 0), int(most) if most else None


@dataclass(frozen=True)
class TensorSpec:
    """Name, element type (a key of ELEMENT_TYPES) and sizes (None: dynamic) of a tensor.

    `symbols` names, where they are known, the dynamic sizes: those of one name are equal in every call, and in the
    range that the name has (`named_symbol`). An input's dimension d is number `order[d]` of the caller's tensor, whose
    elements lie so; without an `order` both have the same dimensions.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    symbols: tuple[str | None, ...] = field(default=(), compare=False)
    order: tuple[int, ...] = field(default=(), compare=False)

    @property
    def given(self) -> TensorSpec:
        """The caller's tensor."""
        if not self.order:
            return self
        places = sorted(range(len(self.order)), key=self.order.__getitem__)
        shape, symbols = ([of[place] for place in places] if of else () for of in (self.shape, self.symbols))
        return TensorSpec(self.name, self.dtype, tuple(shape), tuple(symbols))

    @property
    def numpy_dtype(self) -> np.dtype:
        """The numpy type that holds it; bf16 is held as the bits, in uint16."""
        return np.dtype(ELEMENT_TYPES[self.dtype][1])

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join('?' if size is None else str(size) for size in self.shape)}]"


@dataclass
class Argument:
    """One argument of @main. `kind` is "parameter", "buffer", "constant" or "input".

    `value` is None for inputs; for the others a C-contiguous array of `spec.numpy_dtype` that shares
    memory with the model's tensor (unless that is on another device or not contiguous). `example` are the sizes that it
    was exported with, None where these are not known.
    """

    spec: TensorSpec
    kind: str
    value: np.ndarray | None = None
    example: tuple[int | None, ...] | None = None


@dataclass
class Output:
    """One result of @main. `kind` is "result", or "mutation": the new contents of argument `mutates`."""

    spec: TensorSpec
    kind: str = "result"
    mutates: int | None = None


@dataclass
class Program:
    """A model as linalg on tensors.

    `module` has one func.func @main, whose arguments and results are `arguments` and `outputs` in
    order. `signature` (see kitsune_mlir.signature) maps a Python call to the "input" arguments and the
    "result" outputs to what the call returns. `conditions` are what is asked of the open sizes of each call
    (kitsune_mlir/size_conditions.py), by the names that the arguments' specs have for them.
    """

    name: str
    module: ir.Module
    arguments: list[Argument] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    signature: Signature = field(default_factory=dict)
    conditions: list[Condition] = field(default_factory=list)

    @property
    def inputs(self) -> list[Argument]:
        return [argument for argument in self.arguments if argument.kind == "input"]

    @property
    def results(self) -> list[Output]:
        return [output for output in self.outputs if output.kind == "result"]
