"""Operations read out of MLIR once: an interpreter asks for the same things often, and the bindings are slow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import simt_ptx
from simt import BINARY, CASTS, DTYPES, UNARY

from kitsune_mlir.mlir import ir


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
    statements: tuple[simt_ptx.Statement, ...]
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
        return "_cast_op" if self.name.removeprefix("arith.") in CASTS else "_" + self.name.replace(".", "_")

    @cached_property
    def function(self) -> Callable[..., np.ndarray] | None:
        """Of its operands, where it calculates with each thread's numbers alone."""
        known, kind = BINARY.get(self.name) or UNARY.get(self.name), self.results and self.results[0].type
        if known is None:
            return None
        if not self.name.startswith("math.") or kind.itemsize >= 4:
            return lambda *arguments: np.asarray(known(*arguments)).astype(kind, copy=False)

        def widened(*arguments: Any) -> np.ndarray:
            wide = [np.asarray(a).astype(np.float32) if a.dtype != np.int64 else a for a in arguments]
            return np.asarray(known(*wide)).astype(kind)

        return widened

    @cached_property
    def constant(self) -> np.ndarray:
        found = np.array(self.attributes["value"].value, self.results[0].type)
        found.flags.writeable = False
        return found

    @cached_property
    def position(self) -> int:
        """In a vector or a struct."""
        if "position" in self.attributes:
            (place,) = list(ir.DenseI64ArrayAttr(self.attributes["position"]))
        else:
            (place,) = list(ir.DenseI64ArrayAttr(self.attributes["static_position"]))
        return place

    @cached_property
    def step(self) -> tuple[int, int]:
        """Of llvm.getelementptr: the index unless an operand says it, and the bytes of an element."""
        (index,) = list(ir.DenseI32ArrayAttr(self.attributes["rawConstantIndices"]))
        return index, _WIDTH[str(ir.TypeAttr(self.attributes["elem_type"]).value)]

    @cached_property
    def alignment(self) -> int | None:
        given = self.attributes.get("alignment")
        return ir.IntegerAttr(given).value if given is not None else None

    @cached_property
    def pointers(self) -> list[str]:
        """The operands' types as text."""
        return [str(kind) for kind in self.operand_types]


_WIDTH = {"i1": 1, "i8": 1, "i16": 2, "bf16": 2, "f16": 2, "i32": 4, "f32": 4, "i64": 8, "f64": 8}


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
    return Assembly(text, simt_ptx.parse(text), outputs, ties)


def _block(block: ir.Block) -> Block:
    return Block([hash(value) for value in block.arguments], [decode(op.operation) for op in block.operations])


def kind_of(kind: ir.Type) -> Any:
    """A numpy dtype for a number; (dtype, count) for a vector; the type itself for the rest."""
    if isinstance(kind, ir.VectorType):
        (count,) = kind.shape
        return np.dtype(DTYPES[str(kind.element_type)]), count
    name = str(kind)
    return np.dtype(DTYPES[name]) if name in DTYPES else kind
