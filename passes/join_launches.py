"""join-launches: small kernels that do not depend on one another are one launch, side by side; few blocks that do, one
block that does them in turn.

    gpu.launch_func @a blocks in (%c3) args(%x, %p)        gpu.launch_func @joined_0 blocks in (%c4)
    gpu.launch_func @b blocks in (%c1) args(%y, %q)   =>       args(%c3, %x, %p, %y, %q, %r)
    gpu.launch_func @c blocks in (%c1) args(%q, %r)

    gpu.func @joined_0(%count, ...) kernel attributes {kitsune.joined = ["a_0", "b_0, then c_0"]} {
      %block = gpu.block_id x
      %first = arith.cmpi ult, %block, %count
      scf.if %first {
        ...                     // @a, as block %block
      } else {
        ...                     // @b
        gpu.barrier
        ...                     // @c
      }

A launch takes as long again as a small kernel computes, and one that is small leaves most of the GPU idle. Which calls
are joined planning/joined_launches.py decides by price, at the example's sizes where some are open. Calls of pipelines
and copies stay as they are, and so does what is computed once, when the program is loaded (runtime/weight_steps.py).

No block waits for another, so a launch cannot hang: blocks side by side share no buffer that one of them writes.
Kernels in turn are of one block each, or of a few that are known, which a loop goes through; all threads of the block
are at each barrier between them (PTX ISA, bar.sync), behind which they see what others of the block have written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import prod
from typing import ClassVar, NamedTuple

from kitsune_mlir import example_sizes, weights
from kitsune_mlir.codegen.gpu_buffers import root_of
from kitsune_mlir.codegen.gpu_kernel import MODULE, SHARED, KernelNames, as_value, in_shared_memory
from kitsune_mlir.codegen.gpu_parts import lie_apart
from kitsune_mlir.codegen.host_program import CALL_OPERATIONS, dtype, manifest_of, written
from kitsune_mlir.codegen.kernel_work import JOINED, work_of
from kitsune_mlir.errors import InternalError
from kitsune_mlir.mlir import arith, attr_int, clone, clone_on, gpu, ir, memref, replace_op, scf, walk
from kitsune_mlir.operations import operations_of, producer
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.joined_launches import Call, join_calls
from kitsune_mlir.runtime.host_program import BYTES, Launch, Plan, make_plan
from kitsune_mlir.runtime.weight_steps import CALLS, split, touched_buffers

from .base import ModulePass

REGISTERS = 32  # of a thread, before ptxas has said
_ARGUMENTS = 6  # operands of a launch in front of its arguments: its grid and its block


@dataclass(frozen=True)
class JoinLaunches(ModulePass):
    """target: what the kernels are for, a name or the path of a description."""

    name: ClassVar[str] = "join-launches"
    target: str = "sm_90a"

    def run(self, module: ir.Module) -> None:
        mains = [op for op in walk(module, "func.func") if op.opview.name.value == "main"]
        launched = [op for main in mains for op in walk(main, "gpu.launch_func")]
        if len(launched) < 2:
            return
        (main,) = mains
        functions = _functions(module)
        operations, calls = _of_run(module, main, functions)
        launches = join_calls(calls, targets.load(self.target))
        if len(launches) == len(calls):
            return
        with module.context:
            _Joined(main, functions).write([[[operations[n] for n in strand] for strand in one] for one in launches])


def _functions(module: ir.Module) -> dict[str, ir.Operation]:
    """The kernels of operators, by name."""
    return {
        ir.StringAttr(op.attributes["sym_name"]).value: op
        for part in walk(module, "gpu.module")
        if ir.StringAttr(part.attributes["sym_name"]).value == MODULE
        for op in walk(part, "gpu.func")
    }


def _of_run(
    module: ir.Module, main: ir.Operation, functions: dict[str, ir.Operation]
) -> tuple[list[ir.Operation], list[Call]]:
    """The calls that are made in each run, in order, and what is known of each."""
    manifest = manifest_of(clone(module))
    own = weights.numbers(main)
    bound = [number in own for number in range(len(manifest["arguments"]))]
    parts, buffers = split(manifest, bound), touched_buffers(manifest)
    sizes = [tuple(example_sizes.shape_of(argument)) for argument in main.regions[0].blocks[0].arguments]
    sizes += [tuple(kept["shape"]) for kept in parts.kept]
    run = manifest | {"program": parts.rest, "arguments": manifest["arguments"] + parts.kept}
    made = _made(run, sizes)
    numbers = [number for number, step in enumerate(manifest["program"]) if step["op"] in CALLS]
    found = dict(zip(numbers, walk(main, *CALL_OPERATIONS), strict=True))
    known = {op: f"results of {number}" for number, op in found.items()}
    in_run = {id(step): number for number, step in enumerate(parts.rest)}
    changed = {f"a{number}" for number in range(len(bound))}
    changed &= set().union(*(changes for _, changes in buffers.values()))
    buffered = set().union(*(touched for touched, _ in buffers.values()))
    operations, given, calls = [], list[_Given | None](), list[Call]()
    for number, op in found.items():
        step = in_run.get(id(manifest["program"][number]))
        if step is None:
            continue
        touched, changes = buffers[number]
        if changed and any(name.startswith("a") for name in touched):
            touched, changes = touched | {"arguments"}, changes | ({"arguments"} if changes & changed else set())
        touched, changes = touched | {known[call] for call in _asked(op)}, changes | {known[op]}
        call = _call(op, made.get(step), frozenset(touched | changes), frozenset(changes), functions)
        shared = [call.shared_with(other) for other in calls]
        apart = [n for n, names in enumerate(shared) if names and buffered.issuperset(names)]
        given.append(_given(op, functions))
        apart = [n for n in apart if _lie_apart(given[-1], given[n])]
        operations.append(op)
        calls.append(replace(call, apart=frozenset(apart)))
    return operations, calls


class _Given(NamedTuple):
    """The buffers that a launch is given, and those of them that its kernel writes."""

    buffers: list[ir.Value]
    written: list[ir.Value]


def _given(op: ir.Operation, functions: dict[str, ir.Operation]) -> _Given | None:
    """None for what is no launch of an operator."""
    function = functions.get(_kernel(op)) if op.name == "gpu.launch_func" else None
    if function is None:
        return None
    given = list(op.operands)[_ARGUMENTS:]
    buffers = [value for value in given if isinstance(value.type, ir.MemRefType)]
    return _Given(buffers, [given[number] for number in written(function)])


def _lie_apart(one: _Given | None, other: _Given | None) -> bool:
    """Whether two launches of operators surely have no element in common that one of them writes."""
    if one is None or other is None:
        return False
    pairs = [(a, b) for a in one.buffers for b in other.buffers if a in one.written or b in other.written]
    return all(lie_apart(a, b) for a, b in pairs if root_of(a) == root_of(b))


def _asked(op: ir.Operation) -> set[ir.Operation]:
    """The calls of whose results an operation is given views, or sizes."""
    found, waiting, seen = set(), [op], {op}
    while waiting:
        for value in waiting.pop().operands:
            owner = producer(value)
            if owner is None or owner in seen:
                continue
            seen.add(owner)
            if owner.name in CALL_OPERATIONS:
                found.add(owner)
            else:
                waiting.append(owner)
    return found


def _made(run: dict[str, object], sizes: Sequence[tuple[int, ...]]) -> dict[int, Launch]:
    """The launches of operators at given sizes of the arguments, by step; none where those can't be."""
    try:
        plan = make_plan(run, sizes)
    except InternalError:
        plan = Plan()
    return {call.step: call for call in plan.calls if isinstance(call, Launch)}


def _call(
    op: ir.Operation,
    launch: Launch | None,
    touched: frozenset[str],
    written: frozenset[str],
    functions: dict[str, ir.Operation],
) -> Call:
    function = functions.get(launch.kernel) if launch is not None else None
    if launch is None or function is None or (*launch.block[1:], *launch.grid[1:]) != (1, 1, 1, 1):
        return Call(touched, written)
    if launch.cluster > 1 or launch.shared_bytes:
        return Call(touched, written)
    owner = producer(op.operands[0])
    known = owner is not None and owner.name == "arith.constant"
    arguments = frozenset((hash(value), _nbytes(value)) for value in list(op.operands)[_ARGUMENTS:])
    work = work_of(function, launch, REGISTERS)
    blocks, shared = launch.grid[0] if known else None, _shared_bytes(function)
    return Call(touched, written, work, blocks, arguments=arguments, shared=shared)


def _nbytes(value: ir.Value) -> int:
    """The bytes of a kernel's parameter; a buffer's are those of its descriptor."""
    return 8 * (3 + 2 * ir.MemRefType(value.type).rank) if isinstance(value.type, ir.MemRefType) else 8


def _threads(function: ir.Operation) -> int:
    """The threads of a block of a kernel; all parts of a launch have as many."""
    return ir.DenseI32ArrayAttr(function.attributes["known_block_size"])[0]


def _shared(function: ir.Operation) -> list[ir.BlockArgument]:
    """The buffers of a kernel in shared memory."""
    arguments = list(function.regions[0].blocks[0].arguments)
    return arguments[len(arguments) - attr_int(function, SHARED, 0) :]


def _shared_bytes(function: ir.Operation) -> int:
    kinds = [ir.MemRefType(argument.type) for argument in _shared(function)]
    return sum(16 + prod(kind.shape) * BYTES[dtype(kind)] for kind in kinds)


@dataclass
class _Part:
    """A launch, which becomes a part of another."""

    op: ir.Operation
    function: ir.Operation

    @property
    def blocks(self) -> ir.Value:
        return self.op.operands[0]

    @property
    def arguments(self) -> list[ir.Value]:
        return list(self.op.operands)[_ARGUMENTS:]


@dataclass
class _Joined:
    """Writes launches in their order at the end of @main, those of several calls with kernels of their own."""

    main: ir.Operation
    functions: dict[str, ir.Operation]
    _names: KernelNames = field(default_factory=KernelNames)
    _placed: set[ir.Operation] = field(default_factory=set)  # by which they are: equal ones have one hash

    def write(self, launches: Sequence[Sequence[Sequence[ir.Operation]]]) -> None:
        *operations, end = operations_of(self.main.regions[0].blocks[0])
        in_run = {op for strands in launches for strand in strands for op in strand}
        for op in operations:
            if op.name in CALL_OPERATIONS and op not in in_run:  # is made once, before all others
                self._bring(op, end)
        joined: list[ir.Operation] = []
        for strands in launches:
            together = [op for strand in strands for op in strand]
            for op in together:
                self._bring(op, end)
            if len(together) > 1:
                parts = [[_Part(op, self.functions[_kernel(op)]) for op in strand] for strand in strands]
                with together[0].location, ir.InsertionPoint(end):
                    self._launch(parts)
                joined += together
        for op in operations:
            self._bring(op, end)
        for op in joined:
            op.erase()
        used = {_kernel(op) for op in walk(self.main, "gpu.launch_func")}
        for name, function in self.functions.items():
            if name not in used:
                function.erase()

    def _bring(self, op: ir.Operation, end: ir.Operation) -> None:
        """Moves an operation, behind what it needs, to the end of @main."""
        if op in self._placed:
            return
        self._placed.add(op)
        for owner in filter(None, map(producer, op.operands)):
            self._bring(owner, end)
        op.move_before(end)

    def _launch(self, strands: Sequence[Sequence[_Part]]) -> None:
        """A launch of strands side by side."""
        one = as_value(1)
        counts = [strand[0].blocks if len(strand) == 1 else one for strand in strands]
        values = list(dict.fromkeys([value for strand in strands for part in strand for value in part.arguments]))
        grid = reduce(arith.addi, counts)
        arguments = [*counts[:-1], *values]
        name = self._kernel(strands, [value.type for value in arguments], values)
        threads = as_value(_threads(strands[0][0].function))
        gpu.LaunchFuncOp([MODULE, name], (grid, one, one), (threads, one, one), arguments)

    def _kernel(self, strands: Sequence[Sequence[_Part]], kinds: Sequence[ir.Type], values: Sequence[ir.Value]) -> str:
        """The name of the kernel whose parameters are the blocks of all strands but the last, then values."""
        first = strands[0][0].function
        with first.location, ir.InsertionPoint(first):
            kind = ir.FunctionType.get(list(kinds), [])
            made = gpu.GPUFuncOp(kind, "joined", kernel=True, known_block_size=[_threads(first), 1, 1])
            entry = made.add_entry_block()
        labels = [", then ".join(_kernel(part.op) for part in strand) for strand in strands]
        made.operation.attributes[JOINED] = ir.ArrayAttr.get([ir.StringAttr.get(label) for label in labels])
        counts, given = list(entry.arguments)[: len(strands) - 1], list(entry.arguments)[len(strands) - 1 :]
        code = _Code(dict(zip(map(hash, values), given, strict=True)))
        with first.location, ir.InsertionPoint(entry):
            code.side_by_side(strands, counts, gpu.block_id(gpu.Dimension.x))
            gpu.ReturnOp([])
            in_shared_memory(made.operation, code.shared)
        return self._names.settle(made.operation, "joined")


def _kernel(launch: ir.Operation) -> str:
    return ir.SymbolRefAttr(launch.attributes["kernel"]).value[-1]


@dataclass
class _Code:
    """Writes the code of a kernel. `inside` are its forms of host values, by hash; `shared` the buffers in shared
    memory that it has so far."""

    inside: dict[int, ir.Value]
    shared: list[ir.Operation] = field(default_factory=list)

    def side_by_side(self, strands: Sequence[Sequence[_Part]], counts: Sequence[ir.Value], block: ir.Value) -> None:
        """Strands, of which each but the last has so many blocks, from `block` on."""
        strand, *others = strands
        if not others:
            self._in_turn(strand, block)
            return
        branch = scf.IfOp(arith.cmpi(arith.CmpIPredicate.ult, block, counts[0]), has_else=True)
        with ir.InsertionPoint(branch.then_block):
            self._in_turn(strand, block)
            scf.YieldOp([])
        with ir.InsertionPoint(branch.else_block):
            self.side_by_side(others, counts[1:], arith.subi(block, counts[0]))
            scf.YieldOp([])

    def _in_turn(self, strand: Sequence[_Part], block: ir.Value) -> None:
        """One kernel as `block`, or several, all of whose blocks this one is."""
        if len(strand) == 1:
            self._inline(strand[0], block)
            return
        for number, part in enumerate(strand):
            if number:
                gpu.barrier()
            count = attr_int(part.blocks.owner, "value")
            if count == 1:
                self._inline(part, as_value(0))
                continue
            loop = scf.ForOp(as_value(0), as_value(count), as_value(1))
            with ir.InsertionPoint(loop.body):
                self._inline(part, loop.induction_variable)
                if SHARED in part.function.attributes:
                    gpu.barrier()  # before the next block's threads write there
                scf.YieldOp([])

    def _inline(self, part: _Part, block: ir.Value) -> None:
        """A kernel's block of that number."""
        entry = part.function.regions[0].blocks[0]
        own = [memref.AllocaOp(argument.type, [], []).operation for argument in _shared(part.function)]
        self.shared += own
        given = [self.inside[hash(value)] for value in part.arguments] + [buffer.results[0] for buffer in own]
        values = dict(zip(entry.arguments, given, strict=True))
        *body, _ = operations_of(entry)
        for op in body:
            copy = clone_on(op, values)
            if op.name == "gpu.block_id":
                values[op.results[0]] = block
            for each in walk(copy, "gpu.block_id"):
                replace_op(each, block)
