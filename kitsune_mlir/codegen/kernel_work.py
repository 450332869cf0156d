"""What a kernel of the plain path does at given sizes, read off its gpu.func: for the price of a launch.

The threads of one block, from the middle of the grid, are followed at once: an integer is an array with an element for
each thread, which shows the addresses that a warp's load touches. An innermost loop is followed for a few turns, and
the others are taken to be like these. Branches go where sizes and the threads' numbers lead. Of floats in memory is
known where they come from alone: both branches are taken, and a loop whose turns depend on them is taken to have one.
An integer that is loaded is made up from its address, one that is made of floats from theirs: threads that load the
same ones go to the same row of a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kitsune_mlir.codegen.followed_numbers import Array, computed, constant
from kitsune_mlir.codegen.math_simplify import FAST, SHORT
from kitsune_mlir.mlir import attr_int, ir
from kitsune_mlir.operations import end_of
from kitsune_mlir.planning.kernel_cost import (
    ADDRESSED,
    BY_CONSTANT,
    DEAR_EXACT,
    DEAR_FAST,
    DEAR_SHORT,
    DIVISION,
    LINE,
    SECTOR,
    TRIES,
    WARP,
    WIDE_PRODUCT,
    BlockWork,
    KernelWork,
    beside,
    loop_cycles,
    straight_cycles,
    whole,
)
from kitsune_mlir.runtime.host_program import BYTES, Launch, View

TURNS_HINT = "kitsune.turns"  # of a loop whose bounds are in memory: how many turns it has on average
# Of a kernel that is several side by side: what each is; its first parameters are the blocks of all but the last.
JOINED = "kitsune.joined"
SHARE_HINT = "kitsune.share"  # of a branch that depends on numbers in memory: how many of a hundred threads take it
TURNS = 8  # of an innermost loop that are followed
_TRIED = (4, 5, 8, 9)  # such, by the number of arith.AtomicRMWKind
_POINTER = 44  # bits of an address within a buffer
_ROWS = 1021  # numbers that a loaded integer may be
_ALIKE = 64  # bytes of shared memory in which integers are taken to be the same: they are put there to go together
_FREE = frozenset(
    """arith.constant arith.index_cast arith.index_castui gpu.block_id gpu.grid_dim gpu.return
    gpu.thread_id memref.cast memref.dim scf.yield vector.extract vector.from_elements""".split()
)


_WIDE_PRODUCT = "mma.sync.aligned.m8n8k4.row.col.f64"
_DIVISIONS = ("arith.div", "arith.rem", "arith.ceildiv", "arith.floordiv")


def work_of(function: ir.Operation, launch: Launch, registers: int) -> KernelWork:
    """The work of a launch of the kernel `function`, whose threads have so many registers each."""
    blocks, threads = launch.grid[0] * launch.grid[1] * launch.grid[2], launch.block[0]
    strands = len(ir.ArrayAttr(function.attributes[JOINED])) if JOINED in function.attributes else 1
    counts = [given[1] for given in launch.arguments[: strands - 1] if not isinstance(given, View)]
    works, first = [], 0
    for count in [*counts, blocks - sum(counts)]:
        if count:
            reader = _Reader(function, launch, first + count // 2)
            works.append(whole(reader.work, count, threads, registers, reader.sizes))
        first += count
    return beside(works)


def instructions_of(op: ir.Operation) -> int:
    """About how many instructions an operation of a kernel's body is."""
    if op.name.startswith(_DIVISIONS) and not op.name.endswith("f"):
        owner = op.operands[1].owner
        constant = not isinstance(owner, ir.Block) and owner.operation.name == "arith.constant"
        return BY_CONSTANT if constant else DIVISION
    if op.name == "llvm.inline_asm" and _WIDE_PRODUCT in ir.StringAttr(op.attributes["asm_string"]).value:
        return WIDE_PRODUCT
    dear = DEAR_FAST if FAST in op.attributes else DEAR_SHORT if SHORT in op.attributes else DEAR_EXACT
    return dear.get(op.name, 1)


@dataclass(frozen=True)
class _Turn:
    """Where code runs: threads that are there, how often a block runs it, and how many turns of it are followed."""

    mask: Array
    times: float
    trips: float = 1.0  # of the innermost loop around it


@dataclass
class _Thread:
    """What one thread does in a stretch of code."""

    instructions: float = 0.0
    loads: int = 0
    missed: float = 0.0
    inner: float = 0.0  # cycles of the loops and branches in it


class _Reader:
    """Follows the threads of the block of that number; `work` is what they do."""

    def __init__(self, function: ir.Operation, launch: Launch, number: int):
        self.work = BlockWork()
        self.sizes: dict[int, int] = {}
        self._threads, self._number = launch.block[0], number
        self._pointers: dict[int, View] = {}  # by the number that addresses in them begin with
        self._sectors: dict[int, Array] = {}  # by buffer, those that code outside of loops has brought to the SM
        self._origins: dict[int, Array] = {}  # by hash of an SSA value of floats, what tells it from others
        self._values: dict[int, Any] = {}  # by hash of the SSA value: an Array, a View, or None where not followed
        block = function.regions[0].blocks[0]
        for argument, given in zip(block.arguments, launch.arguments, strict=False):  # behind these, shared memory
            number = given if isinstance(given, View) else given[1]
            self._values[hash(argument)] = np.full((1, 1), number) if isinstance(number, int | float) else number
        for view in (given for given in launch.arguments if isinstance(given, View)):
            self.sizes[view.buffer] = max(self.sizes.get(view.buffer, 0), view.nbytes)
        mask = np.ones((1, self._threads), bool)
        self.work.cycles = self._run(block, _Turn(mask, 1.0))

    def _see(self, value: ir.Value) -> Any:
        return self._values.get(hash(value))

    def _run(self, block: ir.Block, turn: _Turn) -> float:
        """Follows a block of code; gives the cycles of one thread."""
        thread = _Thread()
        for op in block.operations:
            self._operation(op.operation, turn, thread)
        warps = int(np.count_nonzero(_by_warp(turn.mask).any(axis=(0, 2))))
        self.work.instructions += turn.times * warps * thread.instructions
        cycles = loop_cycles if turn.trips > 1 and not thread.inner else straight_cycles
        return cycles(thread.instructions, thread.loads, thread.missed) + thread.inner

    def _operation(self, op: ir.Operation, turn: _Turn, thread: _Thread) -> None:
        match op.name:
            case "scf.if":
                self._if(op, turn, thread)
            case "scf.for":
                self._for(op, turn, thread)
            case "memref.load" | "vector.load":
                missed = self._access(op.operands[0], list(op.operands)[1:], turn, self.work.read, op.results[0])
                thread.loads, thread.missed = thread.loads + 1, thread.missed + missed
                thread.instructions += ADDRESSED
            case "memref.store" | "vector.store":
                self._access(op.operands[1], list(op.operands)[2:], turn, self.work.written)
                thread.instructions += ADDRESSED
            case "memref.atomic_rmw" | "memref.generic_atomic_rmw":
                buffer = next(i for i, v in enumerate(op.operands) if isinstance(v.type, ir.MemRefType))
                if _is_shared(op.operands[buffer]):
                    thread.instructions += ADDRESSED
                    return
                for moved in (self.work.read, self.work.written):
                    self._access(op.operands[buffer], list(op.operands)[buffer + 1 :], turn, moved)
                kind = attr_int(op, "kind") if "kind" in op.attributes else None
                self._atomic(turn, TRIES if kind in _TRIED else 1)
                thread.instructions += ADDRESSED
            case "llvm.inline_asm" if _joins_words(op):
                place = self._see(op.operands[0])
                for moved in (self.work.read, self.work.written):
                    self._touch(*self._pointed(place), turn, moved)
                self._atomic(turn, 1)
                thread.instructions += ADDRESSED
            case _:
                for region in op.regions:  # such as a loop of an unknown number of turns
                    for block in region.blocks:
                        thread.inner += self._run(block, turn)
                if op.name not in _FREE:
                    thread.instructions += 0 if _is_fused(op) else instructions_of(op)
                if len(op.results) == 1:
                    self._values[hash(op.results[0])] = self._computed(op)

    def _if(self, op: ir.Operation, turn: _Turn, thread: _Thread) -> None:
        condition = self._see(op.operands[0])
        found = []
        for region, wanted in zip(op.regions, (True, False)):
            if not len(region.blocks):
                continue
            mask = turn.mask if condition is None else turn.mask & (condition.astype(bool) == wanted)
            if condition is not None and condition.size == 1 and mask.any():  # the same for all: no branch
                for inner in region.blocks[0].operations:
                    self._operation(inner.operation, turn, thread)
            elif mask.any():
                share = attr_int(op, SHARE_HINT) / 100 if SHARE_HINT in op.attributes else 1.0
                thread.inner += share * self._run(region.blocks[0], _Turn(mask, share * turn.times, turn.trips))
            end = end_of(region.blocks[0])
            found.append([self._see(value) for value in end.operands])
        for i, result in enumerate(op.results):
            known = condition is not None and all(isinstance(values[i], np.ndarray) for values in found)
            self._values[hash(result)] = np.where(condition, found[0][i], found[1][i]) if known else None

    def _for(self, op: ir.Operation, turn: _Turn, thread: _Thread) -> None:
        first, last, step = (self._see(value) for value in list(op.operands)[:3])
        block = op.regions[0].blocks[0]
        for value in (*list(block.arguments)[1:], *op.results):
            self._values[hash(value)] = None
        if first is None or last is None or step is None:
            hint = op.attributes[TURNS_HINT] if TURNS_HINT in op.attributes else None
            trips, turns, mask = 1.0 if hint is None else float(ir.IntegerAttr(hint).value), 1, turn.mask
            self._values[hash(block.arguments[0])] = None
        else:
            counts = np.where(turn.mask, -(-(last - first) // np.maximum(step, 1)), 0)
            trips = float(max(0, counts.max()))
            if not trips:
                return
            innermost = not any(inner.operation.name in ("scf.for", "scf.while") for inner in block.operations)
            turns = int(min(trips, TURNS)) if innermost else 1
            numbers = int(trips - turns) // 2 + np.arange(turns)[:, None]
            if len(turn.mask) > 1:  # inside another loop that is followed
                numbers, turns = numbers[:1], 1
            self._values[hash(block.arguments[0])] = first + step * numbers
            mask = turn.mask & (numbers < np.maximum(counts, 1))
        before, self._sectors = self._sectors, {}
        cycles = self._run(block, _Turn(mask, turn.times * trips, trips))
        self._sectors = before
        thread.inner += trips * cycles

    def _atomic(self, turn: _Turn, tries: int) -> None:
        """Counts an atomic operation of each thread."""
        threads = np.count_nonzero(np.broadcast_to(turn.mask, (len(turn.mask), self._threads)))
        self.work.atomics += turn.times * tries * threads / len(turn.mask)

    def _pointed(self, place: Array | None) -> tuple[View | None, Array]:
        """The buffer that addresses lie in, and their bytes there."""
        if place is None:
            return None, self._anywhere()
        view = self._pointers.get(int(place.flat[0]) >> _POINTER)
        return view, place & ((1 << _POINTER) - 1)

    def _anywhere(self) -> Array:
        return np.arange(self._threads)[None] * (7 * LINE)

    def _access(
        self,
        buffer: ir.Value,
        indices: Sequence[ir.Value],
        turn: _Turn,
        moved: dict[int, float],
        result: ir.Value | None = None,
    ) -> float:
        """Counts a load or store; gives the share of it that misses the SM's cache."""
        view, numbers = self._see(buffer), [self._see(index) for index in indices]
        kind, shared = ir.MemRefType(buffer.type), _is_shared(buffer)
        element = kind.element_type
        nbytes = BYTES["i64" if isinstance(element, ir.IndexType) else str(element)]
        if (isinstance(view, View) or shared) and all(number is not None for number in numbers):
            strides, offset = kind.get_strides_and_offset() if shared else (view.strides, view.offset)
            at = sum((n * s for n, s in zip(numbers, strides, strict=True)), np.full((1, 1), offset)) * nbytes
        else:
            at = self._anywhere()
        if isinstance(view, View) and view.is_dense and view.nbytes:  # numbers that are made up may lie beyond it
            at = (at - view.byte_offset) % view.nbytes + view.byte_offset
        if result is not None:
            self._values[hash(result)] = _made_up(element, at // _ALIKE if shared else at)
            self._origins[hash(result)] = at
        return 0.0 if shared else self._touch(view, at, turn, moved)

    def _touch(self, view: View | None, at: Array, turn: _Turn, moved: dict[int, float]) -> float:
        """The same of bytes of a buffer."""
        turns = max(len(at), len(turn.mask))
        shape = (turns, self._threads)
        at, mask = np.broadcast_to(at, shape), np.broadcast_to(turn.mask, shape)
        lines = _distinct_by_row(_warps(at) // LINE, _warps(mask))
        touched = _distinct(at[mask] // SECTOR)
        if isinstance(view, View) and moved is self.work.read:
            before = self._sectors.get(view.buffer, touched[:0])
            self._sectors[view.buffer] = _distinct(np.concatenate([before, touched]))
            touched = touched[~np.isin(touched, before, assume_unique=True, kind="sort")]
        sectors = len(touched)
        once = turn.trips if turns == 1 else turns  # what is the same in every turn misses in the first
        missed = sectors / once if moved is self.work.read else sectors / turns
        self.work.lines += turn.times * lines / turns
        if moved is self.work.written:
            self.work.sent += turn.times * lines / turns
        if isinstance(view, View):
            moved[view.buffer] = moved.get(view.buffer, 0.0) + turn.times * missed * SECTOR
        return min(1.0, missed / max(1.0, lines / turns))

    def _computed(self, op: ir.Operation) -> Any:
        """An operation's only result, where it is followed."""
        if op.name == "arith.constant":
            return constant(op.attributes["value"])
        if op.name == "gpu.thread_id":
            return np.arange(self._threads)[None] if _is_x(op) else np.zeros((1, 1), int)
        if op.name == "gpu.block_id":
            return np.full((1, 1), self._number if _is_x(op) else 0)
        origins = [self._origins[hash(value)] for value in op.operands if hash(value) in self._origins]
        if origins and isinstance(op.results[0].type, ir.FloatType):
            self._origins[hash(op.results[0])] = sum(origins) * 31 + len(self._origins)
        if origins and op.name in ("arith.fptosi", "arith.fptoui"):
            return _made_up(op.results[0].type, sum(origins))
        operands = [self._see(value) for value in op.operands]
        if op.name == "memref.cast":
            return operands[0]
        if op.name == "memref.extract_aligned_pointer_as_index" and isinstance(operands[0], View):
            self._pointers[operands[0].buffer + 1] = operands[0]
            return np.full((1, 1), operands[0].buffer + 1 << _POINTER)
        if op.name == "memref.dim" and isinstance(operands[0], View) and operands[1] is not None:
            return np.full((1, 1), operands[0].shape[int(operands[1].flat[0])])
        if any(not isinstance(operand, np.ndarray) for operand in operands):
            return None
        return computed(op, operands)


def _is_fused(op: ir.Operation) -> bool:
    """Whether a product is one instruction with the sum it goes into."""
    uses = list(op.results[0].uses) if op.name == "arith.mulf" and "contract" in str(op.attributes["fastmath"]) else []
    return len(uses) == 1 and uses[0].owner.name == "arith.addf"


def _joins_words(op: ir.Operation) -> bool:
    """Whether inline assembly joins a word to one in memory (gpu_scatter.py)."""
    text = ir.StringAttr(op.attributes["asm_string"]).value
    return any(f"red.relaxed.gpu.global.{name}" in text for name in ("add.v", "max.s32", "min.s32"))


def _is_shared(buffer: ir.Value) -> bool:
    """Whether a buffer is in a block's shared memory."""
    return ir.MemRefType(buffer.type).memory_space is not None


def _is_x(op: ir.Operation) -> bool:
    return "x" in str(op.attributes["dimension"]).rpartition("dim")[2]


def _made_up(element: ir.Type, at: Array) -> Array | None:
    """Numbers in the place of loaded ones; None for those of floating point."""
    if not isinstance(element, ir.IntegerType | ir.IndexType):
        return None
    numbers = (at * 2654435761 >> 9) % _ROWS
    return numbers % 2 if isinstance(element, ir.IntegerType) and element.width == 1 else numbers


def _by_warp(mask: Array) -> Array:
    """A mask as turns x warps x threads of a warp, none behind the last thread."""
    turns, threads = mask.shape
    padded = np.zeros((turns, -(-threads // WARP) * WARP), mask.dtype)
    padded[:, :threads] = mask
    return padded.reshape(turns, -1, WARP)


def _distinct(numbers: Array) -> Array:
    """Numbers in order, each once: sorting takes a fifth of the time of numpy's own way, a hash table."""
    ordered = np.sort(numbers)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]


def _distinct_by_row(numbers: Array, counted: Array) -> int:
    """How many numbers there are in each row, those that are not counted left out; the sum over the rows."""
    none = np.iinfo(np.int64).min
    ordered = np.sort(np.where(counted, numbers, none), axis=1)
    return int(np.count_nonzero(np.diff(ordered)) + np.count_nonzero(ordered[:, 0] != none))


def _warps(values: Array) -> Array:
    """Values as a list of those of a warp in a turn."""
    return _by_warp(values).reshape(-1, WARP)
