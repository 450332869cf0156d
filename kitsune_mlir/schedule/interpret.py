"""Runs a scheduled kernel in numpy: every copy of every agent of every CTA a coroutine, in random order.

Asynchronous work is done at a random later time, but no later than somebody waits for it: a slot is full only after the
copies into it have landed, and a product reads its slots at the latest when a release takes its token or its sums are
settled. So what a schedule forgets to wait for is found as a fault (`rings.py`) or as wrong numbers.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.dialects.checks import defined_by
from kitsune_mlir.errors import UserError
from kitsune_mlir.mlir import ir, location
from kitsune_mlir.operations import operations_of

from . import between, numeric, steps
from .between import Between
from .gather_rows import gather_rows
from .look_up import look_up
from .outputs import write, write_rows
from .rings import Ring, ScheduleFault
from .steps import Cluster, Cta, Frame, Output, Run, Step

LANDS, READS = 0.3, 0.2  # how likely a pending copy lands, a pending product is done, at each step of an agent


def run(
    kernel: dialect.KernelOp,
    arguments: Sequence[Any],
    ctas: int = 2,
    seed: int = 0,
    shapes: Sequence[Sequence[int]] = (),
) -> list[np.ndarray]:
    """Runs a kernel once; see `Program.run`."""
    return Program(kernel).run(arguments, ctas, seed, shapes)


@dataclass
class _Part:
    """What CTAs do that do the same: agents with their steps."""

    op: Any
    agents: list[tuple[dialect.AgentOp, tuple[list[Step], list[int]]]]

    @property
    def setup(self) -> list[ir.Operation]:
        """What stands beside agents."""
        ops = operations_of(self.op.block)
        return [op for op in ops if op.name != dialect.AgentOp.OPERATION_NAME]


class Program:
    """A kernel that can be run many times."""

    def __init__(self, kernel: dialect.KernelOp):
        self.kernel = kernel
        self._parts = [
            _Part(part, [(agent, self._block(agent.block)) for agent in part.agents]) for part in kernel.parts
        ]
        self._inputs = kernel.inputs
        if len(kernel.result_ops) < len(kernel.written):
            raise UserError(f"kernel '{kernel.label}' writes outputs that no kitsune.result takes")

    def run(
        self, arguments: Sequence[Any], ctas: int = 2, seed: int = 0, shapes: Sequence[Sequence[int]] = ()
    ) -> list[np.ndarray]:
        """The kernel's outputs, bf16 as float32. `arguments` are those of the function that the kernel stands in;
        `shapes` the outputs' sizes, needed where they are not static. Raises ScheduleFault for what a schedule must not
        do."""
        with np.errstate(all="ignore"):
            outside: dict[int, Any] = {}
            for value in self._inputs:
                self._evaluate(value, arguments, outside)
            outputs = [self._output(op, shapes) for op in self.kernel.result_ops]
            if ctas % self.kernel.cluster:
                raise UserError(f"kernel '{self.kernel.label}' runs in clusters of {self.kernel.cluster} CTAs")
            shared = self._between(outside) if self.kernel.has_roles else []
            frames = [frame for part in self._parts for frame in self._frames(part, ctas, outside, outputs)]
            _Launch(frames, random.Random(seed)).run()
            for ring in shared:
                ring.check_end()
        for i, output in enumerate(outputs):
            if not output.written.all():
                at = tuple(int(x) for x in np.argwhere(~output.written)[0])
                where = location(self.kernel.operation.location)
                raise ScheduleFault(f"{where}: kernel '{self.kernel.label}' never writes element {at} of output {i}")
        return [output.data for output in outputs]

    def _evaluate(self, value: ir.Value, arguments: Sequence[Any], outside: dict[int, Any]) -> Any:
        """A value from around the kernel: an argument of its function, or computed from those."""
        key = hash(value)
        if key in outside:
            return outside[key]
        owner = value.owner
        if isinstance(owner, ir.Block):
            number = ir.BlockArgument(value).arg_number
            if number >= len(arguments):
                raise UserError(f"kernel '{self.kernel.label}' wants argument {number} of its function")
            outside[key] = numeric.from_array(arguments[number], value.type)
        else:
            op = owner.operation
            operands = [self._evaluate(operand, arguments, outside) for operand in numeric.operands_of(op)]
            outside.update(zip(map(hash, op.results), numeric.compile_op(op)(operands), strict=True))
        return outside[key]

    def _output(self, result: ir.OpView, shapes: Sequence[Sequence[int]]) -> Output:
        type_ = ir.RankedTensorType(result.results[0].type)
        if shapes:
            shape = list(shapes[result.position])
        elif type_.has_static_shape:
            shape = list(type_.shape)
        else:
            raise UserError(f"kernel '{self.kernel.label}' has an output of open size; give the outputs' shapes")
        return Output(numeric.empty(shape, numeric.element(type_)), np.zeros(shape, bool))

    def _between(self, outside: dict[int, Any]) -> list[Between]:
        """The rings between roles, and what else stands there, of which all CTAs know."""
        found = []
        for op in operations_of(self.kernel.block):
            if op.name == dialect.AllocRingOp.OPERATION_NAME:
                found.append(Between(op.opview))
                outside[hash(op.results[0])] = found[-1]
            elif op.name != dialect.ROLE:
                values = numeric.compile_op(op)([outside[hash(value)] for value in numeric.operands_of(op)])
                outside.update(zip(map(hash, op.results), values, strict=True))
        return found

    def _frames(
        self, part: _Part, ctas: int, outside: dict[int, Any], outputs: list[Output]
    ) -> Iterator[tuple[Frame, Run]]:
        """The copies of all agents in all CTAs of a part, which says how many these are where it is a role."""
        count = part.op.cta_count or ctas
        clusters = [Cluster() for _ in range(count)]
        for number in range(count):
            yield from self._cta(part, number, count, outside, outputs, clusters)

    def _cta(
        self,
        part: _Part,
        number: int,
        ctas: int,
        outside: dict[int, Any],
        outputs: list[Output],
        clusters: list[Cluster],
    ) -> Iterator[tuple[Frame, Run]]:
        """The copies of all agents in a CTA, each with what it is to do."""
        cluster, rank = divmod(number, size := self.kernel.cluster)
        cta, values = Cta([], outputs, rank, clusters[cluster]), dict(outside)
        clusters[cluster].ctas.append(cta)
        for op in part.setup:
            operands = [values[hash(operand)] for operand in numeric.operands_of(op)]
            match op.name:
                case "kitsune.alloc_ring":
                    cta.rings.append(Ring(op.opview))
                    found = [cta.rings[-1]]
                case "kitsune.tiles":
                    boxes = (-(-extent // size) for extent, size in zip(operands, op.opview.sizes, strict=True))
                    found = [cluster, math.prod(boxes), ctas // size]
                case _:
                    found = numeric.compile_op(op)(operands)
            values.update(zip(map(hash, op.results), found, strict=True))
        place = f"CTA {number}" + (f" of role '{part.op.label}'" if self.kernel.has_roles else "")
        for agent, block in part.agents:
            for copy in range(agent.count):
                text = f"copy {copy} of '{agent.label}' in {place}"
                own = values | {hash(agent.block.arguments[0]): copy}
                frame = Frame(cta, agent.label, copy, agent.count, text, own)
                yield frame, _go(block, frame)

    def _block(self, block: ir.Block) -> tuple[list[Step], list[int]]:
        """A block's steps, and what it yields."""
        ops = operations_of(block)
        yields = [hash(v) for v in ops.pop().operands] if ops and ops[-1].name == "scf.yield" else []
        return [self._step(op) for op in ops], yields

    def _step(self, op: ir.Operation) -> Step:
        operands, results = [hash(v) for v in op.operands], [hash(v) for v in op.results]
        where = location(op.location)
        match op.name:
            case "scf.for":
                return self._for(op, operands, results)
            case "scf.if":
                return self._if(op, operands, results)
            case "kitsune.acquire" | "kitsune.wait":
                if op.operands[0].owner.operation.opview.is_between_roles:
                    return between.opens(op.name, where, operands[0], results[0])
                tile = dialect.tile_of(op.results[0])
                return steps.open_slot(op.name, where, operands[0], results[0], tile)
            case "kitsune.fill":
                return between.fill(op, where) if op.opview.is_between_roles else steps.fill(where, operands)
            case "kitsune.split":
                return steps.split(where, operands, op.opview.is_turned)
            case "kitsune.commit" | "kitsune.release":
                return steps.close(op.name, where, operands)
            case "kitsune.stow":
                return steps.stow(op, where, operands, results)
            case "kitsune.copy":
                return steps.copy(op, where, operands, results)
            case "kitsune.sums":
                return steps.sums(op, operands, results)
            case "kitsune.product":
                return steps.product(op, where, operands, results)
            case "kitsune.settle":
                return steps.settle(op, operands, results)
            case "kitsune.rank":
                return lambda frame: frame.values.update({results[0]: frame.cta.rank})
            case "kitsune.meet":
                return steps.meet(where, self.kernel.cluster, operands[0], results[0])
            case "kitsune.send":
                return steps.send(where, operands)
            case "kitsune.collect":
                return steps.collect(where, self.kernel.cluster, operands)
            case "kitsune.total":
                return steps.total(op, where, self.kernel.cluster, operands[0], results[0])
            case "kitsune.look_up":
                return look_up(op, operands, results)
            case "kitsune.read":
                return steps.read(op, where, operands, results)
            case "kitsune.gather_rows":
                return gather_rows(where, operands, results)
            case "kitsune.prefetch":
                return lambda frame: frame.values[operands[0]].check_open(frame.at(where), "producer")
            case "kitsune.write":
                return write(op, where, operands)
            case "kitsune.write_rows":
                return write_rows(op, where, operands)
        function, operands = numeric.compile_op(op), [hash(v) for v in numeric.operands_of(op)]

        def compute(frame: Frame) -> None:
            frame.values.update(zip(results, function([frame.values[o] for o in operands])))

        return compute

    def _for(self, op: ir.Operation, operands: list[int], results: list[int]) -> Step:
        block = op.regions[0].blocks[0]
        body, (turn, *arguments) = self._block(block), [hash(argument) for argument in block.arguments]
        over_tiles = defined_by(op.operands[0], dialect.TilesOp.OPERATION_NAME)

        def loop(frame: Frame) -> Run:
            values = frame.values
            lower, upper, step, *carried = [values[o] for o in operands]
            for i in range(lower, upper, step):
                values.update(zip(arguments, carried, strict=True))
                values[turn] = i
                if over_tiles:
                    frame.tile = i
                yield from _go(body, frame)
                carried = [values[y] for y in body[1]]
            values.update(zip(results, carried))

        return loop

    def _if(self, op: ir.Operation, operands: list[int], results: list[int]) -> Step:
        blocks = [self._block(region.blocks[0]) if len(region.blocks) else ([], []) for region in op.regions]

        def branch(frame: Frame) -> Run:
            taken = blocks[0 if frame.values[operands[0]] else 1]
            yield from _go(taken, frame)
            frame.values.update(zip(results, [frame.values[y] for y in taken[1]]))

        return branch


class _Launch:
    """Agents that run beside each other, and asynchronous work beside them."""

    def __init__(self, frames: list[tuple[Frame, Run]], random_: random.Random):
        self.frames, self.random = frames, random_

    def run(self) -> None:
        ready, blocked = list(self.frames), []
        while ready:
            i = self.random.randrange(len(ready))
            going = next(ready[i][1], None)
            if going:
                self._some_work(ready[i][0].cta)
                ready, blocked = ready + blocked, []
                continue
            ended = ready.pop(i)
            if going is False:
                blocked.append(ended)
            if not ready and blocked:
                self._land_or_fail(blocked)
                ready, blocked = blocked, []
        for cta in dict.fromkeys(frame.cta for frame, _ in self.frames):
            for ring in cta.rings:
                ring.check_end()

    def _some_work(self, cta: Cta) -> None:
        if cta.products and self.random.random() < READS:
            cta.products.pop(self.random.randrange(len(cta.products))).finish()
        if cta.copies and self.random.random() < LANDS:
            cta.copies.pop(self.random.randrange(len(cta.copies))).land()

    def _land_or_fail(self, blocked: list[tuple[Frame, Run]]) -> None:
        """Nobody can go on: some copy lands, or all wait for ever."""
        pending = [cta for cta in dict.fromkeys(frame.cta for frame, _ in blocked) if cta.copies]
        if not pending:
            raise ScheduleFault("deadlock: " + "; ".join(frame.at(frame.waits) for frame, _ in blocked))
        copies = self.random.choice(pending).copies
        copies.pop(self.random.randrange(len(copies))).land()


def _go(block: tuple[list[Step], list[int]], frame: Frame) -> Run:
    for step in block[0]:
        waiting = step(frame)
        if waiting is not None:
            yield from waiting
