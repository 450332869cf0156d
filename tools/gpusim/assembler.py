"""Runs a piece of inline PTX for the threads of a mask. Copies and products are in files of their own."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from . import copies, matrices, phases, products, thread_copies, wgmma
from .arithmetic import DTYPES
from .barriers import MBarrier, known
from .clocks import SPACES
from .decode import MOVES, Op
from .faults import MemoryFault, unknown
from .lanes import some, spread
from .mma import to_tf32
from .ptx import Statement

if TYPE_CHECKING:
    from .warp_agent import WarpAgent


_NUMBERS = {
    f"{sign}{bits}": np.dtype(f"{kind}{bits // 8}")
    for sign, kind in (("u", "u"), ("s", "i"), ("b", "u"))
    for bits in (32, 64)
}
_FUNCTIONS = {
    "add": operator.add,
    "sub": operator.sub,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    **{f"setp.{name}": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
}
_CALCULATION = re.compile(rf"({'|'.join(_FUNCTIONS)})\.({'|'.join(_NUMBERS)})".replace("setp.", r"setp\."))


class Assembler:
    """`products` are queued and not yet issued, which read the values of registers in `left`; `sums` is the last one
    issued."""

    def __init__(self, agent: WarpAgent, op: Op, mask: np.ndarray):
        self.agent, self.cta, self.op, self.mask = agent, agent.cta, op, mask
        self.products: list[Any] = []
        self.left: dict[int, Any] = {}
        self.sums: wgmma.Product | None = None
        self._written: dict[Any, Any] = {}  # by register
        self._next = 0  # statement

    def run(self) -> list[Any]:
        """The operation's results; none where it comes to it again."""
        assembly, statements = self.op.assembly, self.op.assembly.statements
        frame = self.agent.frames[-1]
        at, count = frame.at, len(statements)
        while self._next < count:
            self._next += 1
            self._do(statements[self._next - 1])
            if frame.at != at:
                return []
        if self.products:
            products.issue(self)
        if not self.op.results:
            return []
        if self.sums is not None:
            return [self.sums]
        found = [wgmma.settled(self.read(register)) for register in assembly.results]
        return [found[0] if isinstance(self.op.results[0].type, np.dtype) else found]

    def _do(self, statement: Statement) -> None:
        mask = self.mask
        if statement.guard:
            holds = spread(self.read(statement.guard), mask.shape)
            mask = mask & (holds ^ statement.inverted)
            if not some(mask):
                return
        _meaning(statement.opcode)(self, mask, *statement.operands)

    def branch(self, mask: np.ndarray, label: str) -> None:
        """Back: others take their turns, then the text starts again."""
        if mask is not self.mask and some(mask != self.mask):
            raise AssertionError(f"threads part in '{self.op.assembly.text}'")
        place = self.op.assembly.statements.index(Statement(":", (label,)))
        if place >= self._next:
            self._next = place
        else:
            self.agent.again()
            self.agent.polled()

    def read(self, operand: Any) -> Any:
        """A register's value, or a number."""
        if operand in self._written:
            return self._written[operand]
        if (number := self.op.assembly.given.get(operand)) is not None:
            return self.agent.values[self.op.operands[number]]
        return np.array(operand, np.int64) if isinstance(operand, int) else self.agent.special(operand)

    def register(self, operand: Any) -> int:
        """The register outside of the text that an operand is, which a loop writes in each of its turns."""
        return self.op.operands[self.op.assembly.given[operand]]

    def write(self, register: str, value: Any) -> None:
        self._written[register] = value

    def number(self, operand: Any, mask: np.ndarray) -> int:
        """The number in a register or [register], the same in all threads of the mask."""
        if isinstance(operand, list):
            (operand,) = operand
        if type(operand) is int:
            return operand
        return self.agent.number_of(self.read(operand), mask, f"an operand of '{self.op.assembly.text}'")

    def alike(self, operand: Any, mask: np.ndarray) -> list[np.ndarray]:
        """The masks of those threads for which a register or [register] has one number."""
        value = np.asarray(self.read(operand[0] if isinstance(operand, list) else operand))
        if value.ndim == 0:
            return [mask]
        numbers = np.unique(value[mask])
        return [mask] if len(numbers) == 1 else [mask & (value == number) for number in numbers]

    def one(self, mask: np.ndarray) -> None:
        """Checks that it is one thread's."""
        if (count := self.agent.lanes(mask).count) != 1:
            raise MemoryFault(f"{count} threads of CTA {self.cta.number} do '{self.op.assembly.text}'")

    def mbarrier(self, operand: Any, mask: np.ndarray) -> MBarrier:
        return self.reached(operand, mask)[0]

    def reached(self, operand: Any, mask: np.ndarray) -> tuple[MBarrier, bool]:
        """An mbarrier, and whether it is another CTA's."""
        owner, place = self.cta.cluster.resolve(self.number(operand, mask))
        barrier = self.agent.mbarrier(owner, place, mask)
        if owner is not self.cta:
            known(barrier)
            for warp in self.agent.warps(mask):
                owner.reach(int(warp), int(self.agent.clocks.now[warp]))
        return barrier, owner is not self.cta


def _move(run: Assembler, mask: np.ndarray, to: str, value: Any) -> None:
    if isinstance(value, int) and to in run.op.assembly.floats:
        run.write(to, np.array(value, np.uint32).view(np.float32))
    else:
        run.write(to, run.read(value))


def _trap(run: Assembler, mask: np.ndarray) -> None:
    raise MemoryFault(f"CTA {run.cta.number} traps")


def _shuffle(run: Assembler, mask: np.ndarray, to: str, value: Any, lane: Any, clamp: int, members: int) -> None:
    """shfl.sync.idx of whole warps."""
    if (clamp, members) != (0x1F, 0xFFFFFFFF) or not run.agent.lanes(mask).whole_warps:
        raise MemoryFault(f"CTA {run.cta.number} has a shuffle that some lanes of a warp do not reach")
    values, lanes = (spread(run.read(x), mask.shape) for x in (value, lane))
    run.write(to, values[np.arange(len(mask)) // 32 * 32 + lanes % 32])


def _select(run: Assembler, mask: np.ndarray, to: str, a: Any, b: Any, predicate: str) -> None:
    run.write(to, np.where(run.read(predicate), run.read(a), run.read(b)).astype(np.int32))


def _exit(run: Assembler, mask: np.ndarray) -> None:
    run.agent.end_some(mask)


def _look_at(run: Assembler, mask: np.ndarray, to: str, place: Any) -> None:
    """A word that many may load while it changes, which orders nothing."""
    address = run.number(place, mask)
    run.write(to, run.agent._poll(address, run.agent._counter(address), run.op, False, mask))


def _load_counter(run: Assembler, mask: np.ndarray, to: str, place: Any) -> None:
    run.one(mask)
    address = run.number(place, mask)
    run.write(to, run.agent._poll(address, run.agent._counter(address), run.op, True, mask))


def _store_counter(run: Assembler, mask: np.ndarray, place: Any, value: Any) -> None:
    run.one(mask)
    address, new = run.number(place, mask), run.number(value, mask)
    run.agent._update(address, run.agent._counter(address), lambda _: new, False, mask)


def _pass(run: Assembler, mask: np.ndarray, *_: Any) -> None:
    pass


def _pack(element: str, clamps: bool, run: Assembler, mask: np.ndarray, to: str, high: Any, low: Any) -> None:
    """cvt of two numbers to a word; the first operand is the high half."""
    both = np.empty((len(mask), 2), np.float32)
    both[:, 0], both[:, 1] = np.asarray(run.read(low)), np.asarray(run.read(high))
    both = np.where(both < 0, np.float32(0), both) if clamps else both
    run.write(to, both.astype(DTYPES[element]).view(np.int32)[:, 0])


def _bar_reduce(run: Assembler, mask: np.ndarray, to: str, number: Any, threads: Any, vote: str) -> None:
    """barrier.red.or.pred: whether the predicate holds in one of the threads that meet."""
    vote = bool(np.any(spread(run.read(vote), mask.shape) & mask))
    found = run.agent.vote(run.number(number, mask), run.number(threads, mask), mask, vote)
    if found is not None:
        run.write(to, np.array(found))


def _bar_sync(run: Assembler, mask: np.ndarray, number: Any, threads: Any) -> None:
    run.agent.barrier(run.number(number, mask), run.number(threads, mask), mask)


def _cluster_arrive(run: Assembler, mask: np.ndarray) -> None:
    run.agent.cluster_arrive(mask)


def _cluster_wait(run: Assembler, mask: np.ndarray) -> None:
    run.agent.cluster_wait(mask)


def _bar_warp(run: Assembler, mask: np.ndarray, _: Any) -> None:
    run.agent.warp_barrier(mask)


def _mapa(run: Assembler, mask: np.ndarray, to: str, address: Any, rank: Any) -> None:
    run.write(to, run.cta.cluster.map_address(run.read(address), np.asarray(run.read(rank))))


def _store_cluster(run: Assembler, mask: np.ndarray, place: Any, value: Any) -> None:
    """st.shared::cluster: each thread's words."""
    words = value if isinstance(value, tuple) else (value,)
    lanes = run.agent.lanes(mask)
    columns = np.stack([lanes.of(spread(run.read(word), mask.shape)) for word in words], 1)
    (register,) = place
    run.agent.store_cluster(lanes.of(spread(run.read(register), mask.shape)), columns, mask)


def _add_rows(run: Assembler, mask: np.ndarray, place: Any, numbers: tuple[Any, ...]) -> None:
    """red.add of a vector of f32: each thread's neighbours, one thread after another."""
    lanes = run.agent.lanes(mask)
    (register,) = place
    addresses = lanes.of(spread(run.read(register), mask.shape)).astype(np.int64)
    columns = np.stack([lanes.of(spread(run.read(number), mask.shape)) for number in numbers], 1)
    run.agent._global.add(addresses, np.ascontiguousarray(columns, np.float32))


def _prefetch(run: Assembler, mask: np.ndarray, place: Any, nbytes: Any) -> None:
    """cp.async.bulk.prefetch.L2."""
    lanes = run.agent.lanes(mask)
    (register,) = place
    addresses, counts = (lanes.of(spread(run.read(x), mask.shape)) for x in (register, nbytes))
    run.agent._global.prefetch(addresses, counts)


def _add_numbers(run: Assembler, mask: np.ndarray, to: str, a: Any, b: Any) -> None:
    run.write(to, np.asarray(run.read(a), np.float32) + np.asarray(run.read(b), np.float32))


def _to_tf32(run: Assembler, mask: np.ndarray, to: str, value: Any, *, ties_up: bool) -> None:
    run.write(to, to_tf32(spread(run.read(value), mask.shape), ties_up))


def _prefetch_map(run: Assembler, mask: np.ndarray, place: Any) -> None:
    """Looks whether there is such a map: having it early changes nothing."""
    copies.tensor_map(run, mask, place[0] if isinstance(place, list) else place)


def _fence_proxy(run: Assembler, mask: np.ndarray, *, spaces: tuple[str, ...] = SPACES) -> None:
    run.agent.fence_proxy(mask, spaces)


def _fence_release(run: Assembler, mask: np.ndarray) -> None:
    run.agent.clocks.fence_release(run.agent.warps(mask))


def _fence_acquire(run: Assembler, mask: np.ndarray) -> None:
    run.agent.clocks.fence_acquire(run.agent.warps(mask))


def _wgmma_fence(run: Assembler, mask: np.ndarray) -> None:
    run.agent.unit(mask).fenced = True


def _wgmma_commit(run: Assembler, mask: np.ndarray) -> None:
    products.issue(run)
    run.agent.commit_products(mask)


def _wgmma_wait(run: Assembler, mask: np.ndarray, pending: int) -> None:
    run.agent.wait_products(pending, mask)


_INSTRUCTIONS: dict[str, Callable[..., None]] = {
    **copies.INSTRUCTIONS,
    **phases.INSTRUCTIONS,
    **thread_copies.INSTRUCTIONS,
    ":": _pass,
    "bra": Assembler.branch,
    "trap": _trap,
    "exit": _exit,
    "selp.b32": _select,
    "ld.relaxed.gpu.global.u32": _look_at,
    "barrier.cta.red.or.pred": _bar_reduce,
    "shfl.sync.idx.b32": _shuffle,
    "ld.acquire.gpu.global.u32": _load_counter,
    "st.release.gpu.global.u32": _store_counter,
    "mapa.shared::cluster.u32": _mapa,
    "bar.sync": _bar_sync,
    "bar.warp.sync": _bar_warp,
    "fence.release.sync_restrict::shared::cta.cluster": _fence_release,
    "fence.acquire.sync_restrict::shared::cluster.cluster": _fence_acquire,
    "stmatrix.sync.aligned.m8n8.x4.shared.b16": matrices.store,
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16": matrices.load,
    "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16": partial(matrices.load, turns=True),
    "st.shared.b32": _store_cluster,
    "st.shared.v2.f32": _store_cluster,
    "add.f32": _add_numbers,
    "red.relaxed.gpu.global.add.v4.f32": _add_rows,
    "cp.async.bulk.prefetch.L2.global": _prefetch,
    "prefetch.tensormap": _prefetch_map,
    "cvt.rn.tf32.f32": partial(_to_tf32, ties_up=False),
    "cvt.rna.tf32.f32": partial(_to_tf32, ties_up=True),
    "fence.proxy.async": _fence_proxy,
    "fence.proxy.async.global": partial(_fence_proxy, spaces=("global",)),
    "fence.proxy.async.shared::cta": partial(_fence_proxy, spaces=("shared",)),
    "fence.proxy.async.shared::cluster": partial(_fence_proxy, spaces=("shared",)),
    "wgmma.fence.sync.aligned": _wgmma_fence,
    "wgmma.commit_group.sync.aligned": _wgmma_commit,
    "wgmma.wait_group.sync.aligned": _wgmma_wait,
}
_INSTRUCTIONS.update(dict.fromkeys(MOVES, _move))
for _aligned in ("", ".aligned"):
    for _order in ("", ".release"):
        _INSTRUCTIONS[f"barrier.cluster.arrive{_order}{_aligned}"] = _cluster_arrive
    for _order in ("", ".acquire"):
        _INSTRUCTIONS[f"barrier.cluster.wait{_order}{_aligned}"] = _cluster_wait
for _element in ("bf16", "f16"):
    _INSTRUCTIONS[f"cvt.rn.{_element}x2.f32"] = partial(_pack, _element, False)
    _INSTRUCTIONS[f"cvt.rn.relu.{_element}x2.f32"] = partial(_pack, _element, True)
for _kind in ("b32", "u32", "s32", "f32", "b64"):
    for _count in ("", ".v2", ".v4"):
        _INSTRUCTIONS[f"st.shared::cluster{_count}.{_kind}"] = _store_cluster


@cache
def _meaning(opcode: str) -> Callable[..., None]:
    """What an instruction does to a piece's run for the threads of a mask, given its operands."""
    if opcode in _INSTRUCTIONS:
        return _INSTRUCTIONS[opcode]
    if calculation := _CALCULATION.fullmatch(opcode):
        return partial(_calculate, _FUNCTIONS[calculation[1]], _NUMBERS[calculation[2]])
    if shape := wgmma.shape_of(opcode):
        return partial(_queue, shape)
    raise unknown(f"the instruction '{opcode}'")


def _calculate(
    function: Callable[..., Any], kind: np.dtype, run: Assembler, mask: np.ndarray, to: str, *of: Any
) -> None:
    run.write(to, function(*(np.asarray(run.read(x)).astype(kind) for x in of)))


def _queue(shape: wgmma.Shape, run: Assembler, mask: np.ndarray, *operands: Any) -> None:
    products.queue(run, shape, operands)
