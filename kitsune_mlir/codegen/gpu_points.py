"""A linalg body at points of its loops: what outputs held before, loops that reduce, what is stored."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from kitsune_mlir.mlir import arith, ir, memref, scf

from .affine_index import evaluate
from .gpu_clone import clone_into
from .gpu_generic import Generic, dims_of
from .gpu_kernel import THREADS, Kernel, Kernels, as_value
from .gpu_reduction import Combiner
from .gpu_words import neighbours
from .pipeline import device

PART = 128  # numbers that are summed one by one before they are added to the others


@dataclass
class Point:
    """Indices of the parallel loops, and whether they are inside (None: always). Outside, they are clamped."""

    dims: dict[int, ir.Value]
    inside: ir.Value | None = None


@dataclass(frozen=True)
class Walk:
    """How a thread goes through a loop: from `first` to before `last`, by `step`."""

    first: ir.Value
    last: ir.Value
    step: int = 1

    @staticmethod
    def whole(generic: Generic, kernel: Kernel, loop: int) -> Walk:
        return Walk(as_value(0), as_value(generic.size(loop, kernel.inside)))

    def part(self, number: ir.Value, count: int) -> Walk:
        """That through part `number` of `count`, each of neighbouring points; of one that starts at 0."""
        length = arith.ceildivui(self.last, as_value(count))
        first = arith.minui(arith.muli(number, length), self.last)
        return Walk(first, arith.minui(arith.addi(first, length), self.last))

    def shared(self, number: ir.Value, count: int) -> Walk:
        """That of number `number` of `count` which share the loop, point by point."""
        return Walk(arith.addi(self.first, number), self.last, count)


@dataclass(frozen=True)
class Nest:
    """An operator that becomes kernels. `initial` are what its outputs hold before, where that is one scalar; `joined`
    says how each is accumulated, None where that is not known."""

    generic: Generic
    kernels: Kernels
    initial: list[ir.Value | None]
    joined: list[Combiner] | None

    def kernel(self, threads: int = THREADS) -> Kernel:
        """One that does a part of it."""
        return Kernel(self.kernels, self.generic.op, self.generic.label(), threads)

    def starts(self, kernel: Kernel, points: Sequence[Point]) -> list[ir.Value | None]:
        """What the outputs of each point hold before."""
        fills = list(enumerate(self.initial))
        return [_start(self.generic, kernel, i, point.dims, fill) for point in points for i, fill in fills]

    def finish(self, kernel: Kernel, points: Sequence[Point], found: Sequence[ir.Value]) -> None:
        """Joins to the outputs of each point what was found, and stores them."""
        combine, starts = self.joined * len(points), self.starts(kernel, points)
        store(self.generic, kernel, points, [one.join(a, b) for one, a, b in zip(combine, starts, found, strict=True)])


def _start(
    generic: Generic, kernel: Kernel, position: int, dims: dict[int, ir.Value], fill: ir.Value | None
) -> ir.Value | None:
    """What output `position` holds before; None when it is overwritten unseen."""
    if not generic.reads(position):
        return None
    if fill is not None:
        return kernel.inside(fill)
    indices = evaluate(generic.out_maps[position], _listed(dims, generic))
    return memref.load(kernel.inside(generic.outputs[position]), indices)


def _listed(dims: dict[int, ir.Value], generic: Generic) -> list[ir.Value]:
    """All loop indices in order; those of loops not yet entered are not looked at."""
    count = len(generic.parallel) + len(generic.reduction)
    return [dims.get(d) for d in range(count)]


def store(generic: Generic, kernel: Kernel, points: Sequence[Point], values: Sequence[ir.Value]) -> None:
    """Stores the outputs of each point, one point after the other in `values`; in the place of one that an operator
    behind takes, what that makes of it."""
    rest = iter(values)
    for point in points:
        with contextlib.nullcontext() if point.inside is None else device.when(point.inside):
            found, indices, last = [next(rest) for _ in generic.outputs], _listed(point.dims, generic), generic
            if (after := generic.after) is not None:
                position = after.inputs.index(generic.outputs[0])
                at = evaluate(generic.out_maps[0], indices)
                by_loop = dict(zip(dims_of(after.maps[position]), at, strict=True))
                indices, last = _listed(by_loop, after), after
                found = body_at(after, kernel, by_loop, [None] * len(after.outputs), {position: found[0]})
            for value, buffer, map_ in zip(found, last.outputs, last.out_maps, strict=True):
                memref.store(value, kernel.inside(buffer), evaluate(map_, indices))


def reduce(
    generic: Generic,
    kernel: Kernel,
    points: Sequence[dict[int, ir.Value]],
    loops: Sequence[int],
    state: list[ir.Value | None],
    combine: Sequence[Combiner] | None = None,
    walks: Mapping[int, Walk] | None = None,
    words: int = 1,
) -> list[ir.Value]:
    """The outputs at each point after the loops in `loops`, from the state before them, one point after the
    other; loops are gone through as `walks` says, else whole. Where outputs are joined by `combine`, long sums of f32
    are summed in parts. At a point are so many `words` of neighbours, one after the other."""
    if not loops:
        outs = len(generic.outputs) * words
        parts = [state[k * outs : (k + 1) * outs] for k in range(len(points))]
        return [
            value
            for dims, part in zip(points, parts, strict=True)
            for value in (_clone_words if words > 1 else body_at)(generic, kernel, dims, part)
        ]
    walk = (walks or {}).get(loops[0]) or Walk.whole(generic, kernel, loops[0])

    def over(first: ir.Value, last: ir.Value, before: list[ir.Value | None]) -> list[ir.Value]:
        loop = scf.ForOp(first, last, as_value(walk.step), [value for value in before if value is not None])
        with ir.InsertionPoint(loop.body):
            values = iter(loop.inner_iter_args)
            inner = [None if value is None else next(values) for value in before]
            entered = [{**dims, loops[0]: loop.induction_variable} for dims in points]
            found = reduce(generic, kernel, entered, loops[1:], inner, combine, walks, words)
            scf.yield_([new for new, old in zip(found, before, strict=True) if old is not None])
        results = iter(loop.results)
        return [new if old is None else next(results) for new, old in zip(found, before, strict=True)]

    if len(loops) > 1 or combine is None or not _is_rounded(combine, generic.known_size(loops[0]), walk.step):
        return over(walk.first, walk.last, state)
    parts = scf.ForOp(walk.first, walk.last, as_value(PART * walk.step), state)
    with ir.InsertionPoint(parts.body):
        first = parts.induction_variable
        last = arith.minui(arith.addi(first, as_value(PART * walk.step)), walk.last)
        found = over(first, last, [one.neutral() for one in combine])
        scf.yield_([one.join(a, b) for one, a, b in zip(combine, parts.inner_iter_args, found, strict=True)])
    return list(parts.results)


def _is_rounded(combine: Sequence[Combiner], size: int | None, step: int) -> bool:
    """Whether a loop of so many turns adds up numbers of f32 one by one, each sum a little off."""
    return (size is None or size > 2 * PART * step) and all(one.name == "arith.addf" for one in combine)


def _clone_words(
    generic: Generic, kernel: Kernel, dims: dict[int, ir.Value], state: list[ir.Value | None]
) -> list[ir.Value]:
    """The same of neighbours along the last parallel loop, as many as there are states of all outputs."""
    outs, first = len(generic.outputs), len(generic.inputs)
    held = {first + k: state[k::outs] for k in range(outs)}
    found, _ = neighbours(generic, kernel, dims, len(state) // outs, held)
    return [value for one in found for value in one]


def body_at(
    generic: Generic,
    kernel: Kernel,
    dims: dict[int, ir.Value],
    state: list[ir.Value | None],
    held: Mapping[int, ir.Value] = MappingProxyType({}),
) -> list[ir.Value]:
    """The body's values at one point of the loops. Of some inputs, by number, the element is held."""
    indices = _listed(dims, generic)
    values = {hash(generic.block.arguments[number]): value for number, value in held.items()}
    for number, (argument, operand, map_) in enumerate(
        zip(generic.block.arguments, generic.inputs, generic.maps, strict=False)
    ):
        if number in held or not list(argument.uses):
            continue
        brought = kernel.inside(operand)
        is_buffer = isinstance(operand.type, ir.MemRefType)
        values[hash(argument)] = memref.load(brought, evaluate(map_, indices)) if is_buffer else brought
    outs = list(generic.block.arguments)[len(generic.inputs) :]
    values.update({hash(argument): value for argument, value in zip(outs, state, strict=True) if value is not None})
    return clone_into(generic.block, kernel, values, indices)
