"""Operations read out of MLIR once: an interpreter asks for the same things often, and the bindings are slow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kitsune_mlir.mlir import ir

from . import ptx
from .arithmetic import BINARY, CASTS, DTYPES, UNARY, arithmetic, cast, float_compare, int_compare


@dataclass(frozen=True, eq=False)
class Result:
    """A value by its key. `type` is a numpy dtype where there is one."""

    key: int
    type: Any

    def __hash__(self) -> int:
        return self.key


@dataclass(eq=False)
class Block:
    arguments: list[int]
    operations: list[Op]


@dataclass(eq=False)
class Region:
    blocks: list[Block]


@dataclass(frozen=True)
class Assembly:
    """Inline PTX. The first registers are the `outputs`, the others the operands; `ties` gives the operand that is
    an output's register too."""

    text: str
    statements: tuple[ptx.Statement, ...]
    outputs: int
    ties: dict[int, int]

    @property
    def waits(self) -> bool:
        waiting = ("mbarrier.try_wait", "bar.sync", "barrier.cluster.wait", "bra")
        return any(statement.opcode.startswith(waiting) for statement in self.statements)


@dataclass(eq=False)
class Op:
    """What an interpreter uses of an ir.Operation, under the same names; values are keys."""

    name: str
    operands: list[int]
    operand_types: list[Any]
    results: list[Result]
    attributes: dict[str, ir.Attribute]
    regions: list[Region]
    location: ir.Location
    assembly: Assembly | None
    waits: bool  # whether it contains what may wait for other warps

    @cached_property
    def method(self) -> str:
        """Of an interpreter, that runs it."""
        return "_" + self.name.replace(".", "_")

    @cached_property
    def function(self) -> Callable[..., Any] | None:
        """From its operands to its result, if it depends on nothing else."""
        if self.name in BINARY or self.name in UNARY:
            return arithmetic(self.name, self.results[0].type)
        if self.name.removeprefix("arith.") in CASTS:
            return cast(self.name, self.results[0].type)
        return _FUNCTIONS[self.name](self) if self.name in _FUNCTIONS else None

    @cached_property
    def alignment(self) -> int | None:
        given = self.attributes.get("alignment")
        return ir.IntegerAttr(given).value if given is not None else None

    @cached_property
    def pointers(self) -> list[str]:
        """The operands' types as text."""
        return [str(kind) for kind in self.operand_types]


def _constant(op: Op) -> Callable[..., Any]:
    value, kind = op.attributes["value"], op.results[0].type
    if isinstance(kind, tuple):  # a vector, the same in every thread
        found = np.array(ir.DenseElementsAttr(value)).astype(kind[0]).reshape(1, kind[1])
    else:
        found = np.array(value.value, kind)
    found.flags.writeable = False
    return lambda: found


def _predicate(op: Op) -> int:
    return ir.IntegerAttr(op.attributes["predicate"]).value


def _element(op: Op) -> Callable[..., Any]:
    (place,) = list(ir.DenseI64ArrayAttr(op.attributes["static_position"]))
    return lambda vectors: vectors[:, place]


def _field(op: Op) -> Callable[..., Any]:
    (place,) = list(ir.DenseI64ArrayAttr(op.attributes["position"]))
    return lambda values: values[place]


_WIDTH = {"i1": 1, "i8": 1, "i16": 2, "bf16": 2, "f16": 2, "i32": 4, "f32": 4, "i64": 8, "f64": 8}


def _address(op: Op) -> Callable[..., Any]:
    (index,) = list(ir.DenseI32ArrayAttr(op.attributes["rawConstantIndices"]))
    width = _WIDTH[str(ir.TypeAttr(op.attributes["elem_type"]).value)]
    if len(op.operands) == 1:
        return lambda base: base + index * width
    return lambda base, count: base + np.asarray(count).astype(np.int64) * width


_FUNCTIONS: dict[str, Callable[[Op], Callable[..., Any]]] = {
    "arith.constant": _constant,
    "arith.cmpi": lambda op: int_compare(_predicate(op)),
    "arith.cmpf": lambda op: float_compare(_predicate(op)),
    "arith.select": lambda op: np.where,
    "vector.extract": _element,
    "llvm.extractvalue": _field,
    "llvm.getelementptr": _address,
}


def decode(op: ir.Operation) -> Op:
    """The operation and all it contains."""
    regions = [Region([_block(block) for block in region.blocks]) for region in op.regions]
    assembly = _assembly(op) if op.name == "llvm.inline_asm" else None
    waits = op.name in ("gpu.barrier", "nvvm.cluster.wait", "scf.while") or (assembly is not None and assembly.waits)
    return Op(
        op.name,
        [hash(value) for value in op.operands],
        [kind_of(value.type) for value in op.operands],
        [Result(hash(value), kind_of(value.type)) for value in op.results],
        {name: op.attributes[name] for name in op.attributes},
        regions,
        op.location,
        assembly,
        waits or any(inner.waits for region in regions for block in region.blocks for inner in block.operations),
    )


def _assembly(op: ir.Operation) -> Assembly:
    text = ir.StringAttr(op.attributes["asm_string"]).value
    constraints = ir.StringAttr(op.attributes["constraints"]).value.split(",")
    outputs = sum(constraint.startswith("=") for constraint in constraints)
    ties = {int(tie): i for i, tie in enumerate(constraints[outputs:]) if tie.isdigit()}
    return Assembly(text, ptx.parse(text), outputs, ties)


def _block(block: ir.Block) -> Block:
    return Block([hash(value) for value in block.arguments], [decode(op.operation) for op in block.operations])


def kind_of(kind: ir.Type) -> Any:
    """A numpy dtype for a number; (dtype, count) for a vector; the type itself for the rest."""
    if isinstance(kind, ir.VectorType):
        (count,) = kind.shape
        return np.dtype(DTYPES[str(kind.element_type)]), count
    name = str(kind)
    return np.dtype(DTYPES[name]) if name in DTYPES else kind
