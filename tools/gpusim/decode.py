"""Operations read out of MLIR once: an interpreter asks for the same things often, and the bindings are slow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from kitsune_mlir import mlir
from kitsune_mlir.mlir import attr_int, ir

from . import ptx, wgmma
from .arithmetic import BINARY, CASTS, DTYPES, UNARY, arithmetic, cast, float_compare, int_compare
from .index_reports import is_report

MOVES = frozenset(f"mov.{kind}" for kind in ("b32", "u32", "s32", "b64", "u64", "s64"))


@dataclass(eq=False, slots=True)
class Result:
    """A value by its key. `type` is a numpy dtype where there is one. Not frozen, which would take longer to make."""

    key: int
    type: Any

    def __hash__(self) -> int:
        return self.key


@dataclass(eq=False)
class Block:
    """`operations` without constants, which are the kernel's (`Op.constants`)."""

    arguments: list[int]
    operations: list[Op]


@dataclass(eq=False)
class Region:
    blocks: list[Block]


@dataclass(frozen=True)
class Assembly:
    """Inline PTX. The first registers are the `outputs`, the others the `inputs`, which are its operands; `ties` gives
    the operand that is an output's register too, `floats` are the outputs of f32."""

    text: str
    statements: tuple[ptx.Statement, ...]
    outputs: int
    inputs: int
    ties: dict[int, int]
    floats: frozenset[str]

    @cached_property
    def given(self) -> dict[Any, int]:
        """The registers that have a value at the start, and the numbers of the operands that they are."""
        apart = {f"${self.outputs + i}": i for i in range(self.inputs)}
        return apart | {f"${output}": i for output, i in self.ties.items()}

    @cached_property
    def results(self) -> tuple[str, ...]:
        """The registers of the outputs."""
        return tuple(f"${i}" for i in range(self.outputs))

    @cached_property
    def tied(self) -> int:
        """How many of the first outputs are operands too."""
        return next(i for i in range(self.outputs + 1) if i not in self.ties)

    @cached_property
    def moved(self) -> Any:
        """What it moves to its result, a register or a number, where it does nothing else; None for other texts."""
        first, *more = self.statements
        moves = not more and not first.guard and first.opcode in MOVES and first.operands[0] == "$0"
        return first.operands[1] if moves and self.outputs == 1 else None

    @cached_property
    def is_plain(self) -> bool:
        """Whether it is one instruction that any kernel may have (instructions.py), not just one whose warps run
        apart."""
        if is_report(self.text):
            return True
        first, *more = self.statements
        return not more and first.opcode.startswith(("mma.", "ld.acquire.", "red.", "atom."))

    @cached_property
    def waits(self) -> bool:
        waiting = ("mbarrier.try_wait", "mbarrier.test_wait", "bar.sync", "barrier.cluster.wait", "bra")
        return any(statement.opcode.startswith(waiting) for statement in self.statements)


class once:
    """functools.cached_property without the lock that it takes in Python 3.11: there are thousands of operations."""

    def __init__(self, function: Callable[[Any], Any]):
        self.function = function

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, op: Any, owner: type) -> Any:
        found = op.__dict__[self.name] = self.function(op)
        return found


@dataclass(eq=False)
class Op:
    """What an interpreter uses of an ir.Operation, under the same names; values are keys."""

    name: str
    operands: list[int]
    results: list[Result]
    regions: list[Region]
    assembly: Assembly | None
    waits: bool  # whether it contains what may wait for other warps
    source: ir.Operation
    constants: dict[int, np.ndarray]  # of all that was decoded with it, by key; no block has them among its operations

    @property
    def attributes(self) -> ir.OpAttributeMap:
        return self.source.attributes

    @property
    def location(self) -> ir.Location:
        return self.source.location

    @once
    def method(self) -> str:
        """The name of an interpreter's method that runs it."""
        return "_" + self.name.replace(".", "_")

    @cached_property
    def alignment(self) -> int | None:
        return mlir.attr_int(self.source, "alignment")

    @cached_property
    def pointers(self) -> list[str]:
        """The operands' types as text."""
        return [str(value.type) for value in self.source.operands]

    @once
    def step(self) -> Callable[[dict[int, Any]], None] | None:
        """What computes its result from its operands, from values to values, if that depends on nothing else."""
        if self.assembly is not None:
            return _move(self)
        function_of = _pure(self.name)
        if function_of is None:
            return None
        function, operands, to = function_of(self), self.operands, self.results[0].key
        if len(operands) == 1:
            (a,) = operands

            def step(values: dict[int, Any]) -> None:
                values[to] = function(values[a])

        elif len(operands) == 2:
            a, b = operands

            def step(values: dict[int, Any]) -> None:
                values[to] = function(values[a], values[b])

        else:

            def step(values: dict[int, Any]) -> None:
                values[to] = function(*[values[key] for key in operands])

        return step


def _move(op: Op) -> Callable[[dict[int, Any]], None] | None:
    """What moves an operand to its result, as inline PTX says it; None where that does anything else."""
    place = op.assembly.given.get(moved) if isinstance(moved := op.assembly.moved, str) else None
    if place is None:
        return None
    a, to = op.operands[place], op.results[0].key

    def step(values: dict[int, Any]) -> None:
        values[to] = wgmma.settled(values[a])

    return step


def _constant(op: ir.Operation) -> np.ndarray:
    value, kind = op.attributes["value"], kind_of(op.results[0].type)
    if isinstance(kind, tuple):  # a vector, the same in every thread
        dense = ir.DenseElementsAttr(value)  # numpy takes no elements of bf16
        elements = np.full(kind[1], dense.get_splat_value().value) if dense.is_splat else np.array(dense)
        found = elements.astype(kind[0]).reshape(1, kind[1])
    else:
        found = np.array(value.value, kind)
    found.flags.writeable = False
    return found


def _predicate(op: Op) -> int:
    return attr_int(op, "predicate")


def _select(op: Op) -> Callable[..., Any]:
    if not isinstance(op.results[0].type, tuple):
        return np.where
    return lambda chosen, a, b: np.where(chosen[:, None] if np.ndim(chosen) == 1 else chosen, a, b)  # whole vectors


def _number(op: Op) -> np.dtype:
    """The type of a result, or of its elements."""
    kind = op.results[0].type
    return kind[0] if isinstance(kind, tuple) else kind


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
    "arith.cmpi": lambda op: int_compare(_predicate(op)),
    "arith.cmpf": lambda op: float_compare(_predicate(op)),
    "arith.select": _select,
    "vector.extract": _element,
    "llvm.extractvalue": _field,
    "llvm.getelementptr": _address,
}


@cache
def _pure(name: str) -> Callable[[Op], Callable[..., Any]] | None:
    """What an operation of that name computes, which asks for nothing but its operands."""
    if name in BINARY or name in UNARY:
        return lambda op: arithmetic(name, _number(op))
    if name.removeprefix("arith.") in CASTS:
        return lambda op: cast(name, _number(op))
    return _FUNCTIONS.get(name)


def decode(op: ir.Operation) -> Op:
    """The operation and all it contains."""
    return _Decoder().operation(op)


class _Decoder:
    """`kinds` are those of types met so far: few types, asked for often. `constants` are those met so far."""

    def __init__(self) -> None:
        self.kinds: dict[ir.Type, Any] = {}
        self.constants: dict[int, np.ndarray] = {}

    def operation(self, op: ir.Operation) -> Op:
        name = op.name
        regions = [Region([self.block(block) for block in region.blocks]) for region in op.regions]
        assembly = _assembly(op) if name == "llvm.inline_asm" else None
        waits = name in ("gpu.barrier", "nvvm.cluster.wait", "scf.while") or (assembly is not None and assembly.waits)
        if regions and not waits:
            waits = any(x.waits for region in regions for block in region.blocks for x in block.operations)
        results = [Result(hash(value), self.kind(value.type)) for value in op.results]
        operands = [hash(value) for value in op.operands]
        return Op(name, operands, results, regions, assembly, waits, op, self.constants)

    def block(self, block: ir.Block) -> Block:
        decoded = []
        for op in block.operations:
            operation = op.operation
            if operation.name == "arith.constant":
                self.constants[hash(operation.results[0])] = _constant(operation)
            else:
                decoded.append(self.operation(operation))
        return Block([hash(value) for value in block.arguments], decoded)

    def kind(self, kind: ir.Type) -> Any:
        found = self.kinds.get(kind)
        if found is None:
            found = self.kinds[kind] = kind_of(kind)
        return found


def _assembly(op: ir.Operation) -> Assembly:
    text = ir.StringAttr(op.attributes["asm_string"]).value
    return read_assembly(text, ir.StringAttr(op.attributes["constraints"]).value, len(op.operands))


@cache
def read_assembly(text: str, said: str, inputs: int) -> Assembly:
    """Inline PTX with its constraints and so many operands. A kernel has few texts, each many times."""
    constraints = said.split(",")
    outputs = sum(constraint.startswith("=") for constraint in constraints)
    ties = {int(tie): i for i, tie in enumerate(constraints[outputs:]) if tie.isdigit()}
    floats = frozenset(f"${i}" for i, constraint in enumerate(constraints[:outputs]) if constraint.endswith("f"))
    return Assembly(text, ptx.parse(text), outputs, inputs, ties, floats)


def kind_of(kind: ir.Type) -> Any:
    """A numpy dtype for a number; (dtype, count) for a vector; the type itself for the rest."""
    if isinstance(kind, ir.VectorType):
        (count,) = kind.shape
        return np.dtype(DTYPES[str(kind.element_type)]), count
    name = str(kind)
    return np.dtype(DTYPES[name]) if name in DTYPES else kind
