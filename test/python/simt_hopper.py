"""What Hopper's operations and inline PTX do to warps that run apart: mbarriers, tensor copies, warpgroup products."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import simt_wgmma
from simt import DTYPES
from simt_agents import Agent, Scheduler
from simt_barriers import MBarrier, NamedBarrier
from simt_clocks import Clocks, EngineClock, WarpClock
from simt_decode import Op
from simt_instructions import Counters, Exit
from simt_memory import MemoryFault, Region, Space
from simt_ptx import Statement
from simt_tma import MAP_BYTES, Box, read_box

from kitsune_mlir.mlir import ir

WARPGROUP = 128
MAPS_AT = 1 << 60  # the address of the kernel's parameter of tensor maps


@dataclass
class ProductUnit:
    """The products of one warpgroup."""

    component: int
    issued: int = 0
    fenced: bool = False
    open: list[simt_wgmma.Product] = field(default_factory=list)
    groups: list[list[simt_wgmma.Product]] = field(default_factory=list)


class CtaState:
    """What the agents of a CTA share."""

    def __init__(self, number: int, launch: dict[str, Any], maps: Sequence[Box], clocks: Clocks):
        self.number, self.maps, self.clocks, self.threads = number, maps, clocks, launch["threads"]
        content = np.full(launch["shared_bytes"], 0xFF, np.uint8)
        self.shared = Region("shared memory", 0, content, writable=True, tracked=True)
        self.space, self.clock = Space([self.shared]), WarpClock(clocks, number)
        self.mbarriers: dict[int, MBarrier] = {}
        self.named: dict[int, NamedBarrier] = {}
        self.units: dict[int, ProductUnit] = {}
        self.in_flight = 0
        self.agents: list[WarpAgent] = []  # that have not ended


class Copy:
    """A tensor copy in flight: its bytes are there, and counted, when it gets its turn."""

    def __init__(self, cta: CtaState, place: int, content: np.ndarray, barrier: MBarrier, scheduler: Scheduler):
        self.cta, self.place, self.content, self.barrier, self.scheduler = cta, place, content, barrier, scheduler
        cta.in_flight += 1
        barrier.in_flight += 1

    def turn(self) -> bool:
        self.cta.shared.bytes[self.place : self.place + len(self.content)] = self.content
        self.cta.in_flight -= 1
        self.scheduler.add(self.barrier.land(len(self.content)))
        return False


class WarpAgent(Agent):
    """Warps of one warpgroup."""

    def __init__(
        self,
        kernel: Op,
        arguments: Sequence[int],
        memory: Space,
        cta: CtaState,
        first: int,
        counters: Counters,
        scheduler: Scheduler,
    ):
        self.function, self.arguments = kernel, arguments
        self.cta, self.scheduler, self._counters, self._global = cta, scheduler, counters, memory
        self.number, self.first, self.clocks = cta.number, first, cta.clocks
        self.threads = min(WARPGROUP, cta.threads - first)
        self.thread_id = np.arange(first, first + self.threads, dtype=np.int32)
        self.block_id = np.array(cta.number, np.int32)
        self._shared, self._clock, self._shared_clock = cta.space, cta.clock, cta.clock
        self.mask, self.values, self.polls = np.ones(self.threads, np.bool_), {}, "nothing"
        cta.agents.append(self)
        self._counted = -1  # how many atomic operations it has seen while it waits

    def __str__(self) -> str:
        warps = self._cta_warps(self.mask)
        return f"CTA {self.number} warps {warps[0]} to {warps[-1]}: {self.waits_for or self.polls}"

    def fork(self) -> WarpAgent:
        other = WarpAgent(
            self.function, self.arguments, self._global, self.cta, self.first, self._counters, self.scheduler
        )
        self.copy_to(other)
        return other

    def ended(self) -> None:
        self.cta.agents.remove(self)
        if not self.cta.agents and self.cta.in_flight:
            raise MemoryFault(f"CTA {self.number} ends with {self.cta.in_flight} copies in flight")

    def polled(self) -> None:
        self.pause = True
        self.waits_for = None if self._counted != self._counters.version else self._counters
        self._counted = self._counters.version

    def _cta_warps(self, mask: np.ndarray) -> np.ndarray:
        return self.first // 32 + np.flatnonzero(mask.reshape(-1, 32).any(1))

    def _warps(self, mask: np.ndarray) -> np.ndarray:
        """The components of warps with active threads."""
        return self.number * self.clocks.warps + self._cta_warps(mask)

    def _number(self, value: Any, mask: np.ndarray, what: str) -> int:
        """A value that is the same for all active threads."""
        value = np.asarray(value)
        if value.ndim == 0:
            return int(value)
        found = value[mask]
        if (found != found[0]).any():
            raise MemoryFault(f"{what} differs between threads of a warpgroup")
        return int(found[0])

    def _one(self, mask: np.ndarray, what: str) -> None:
        if np.count_nonzero(mask) != 1:
            raise MemoryFault(f"{np.count_nonzero(mask)} threads of {self.number} do {what}")

    # Barriers of threads.

    def _gpu_barrier(self, op: Op, mask: np.ndarray) -> list[Any]:
        self._barrier(0, self.cta.threads, mask)
        return []

    def _barrier(self, number: int, threads: int, mask: np.ndarray) -> None:
        if not 0 <= number <= 15 or threads % 32:
            raise MemoryFault(f"there is no barrier {number} of {threads} threads")
        if (mask != np.repeat(mask.reshape(-1, 32).any(1), 32)).any() or (mask != self.mask).any():
            missing = self.thread_id[np.argmax(self.mask & ~mask)]
            raise MemoryFault(f"CTA {self.number} has a barrier that thread {missing} does not reach")
        barrier = self.cta.named.setdefault(number, NamedBarrier(f"barrier {number}"))
        self.pause, self.waits_for = True, barrier
        self.scheduler.add(_joined(barrier.arrive(self, self._warps(mask), threads, self.clocks)))

    # Counters in global memory.

    def _released(self, mask: np.ndarray) -> np.ndarray:
        self.pause = True
        return self.clocks.release(self._warps(mask))

    def _acquired(self, clock: np.ndarray, mask: np.ndarray) -> None:
        self.clocks.acquire(self._warps(mask), clock)

    # Operations.

    def _llvm_ptrtoint(self, op: Op, mask: np.ndarray) -> list[Any]:
        return [np.asarray(self._see(op.operands[0])).astype(op.results[0].type)]

    def _llvm_bitcast(self, op: Op, mask: np.ndarray) -> list[Any]:
        kind, value = op.results[0].type, np.asarray(self._see(op.operands[0]))
        dtype, vector = (kind[0], True) if isinstance(kind, tuple) else (kind, False)
        words = np.ascontiguousarray(np.broadcast_to(value, (self.threads, *value.shape[1:])).reshape(self.threads, -1))
        return [words.view(dtype) if vector else words.view(dtype)[:, 0]]

    def _nvvm_fence_mbarrier_init(self, op: Op, mask: np.ndarray) -> list[Any]:
        return []

    def _nvvm_fence_proxy(self, op: Op, mask: np.ndarray) -> list[Any]:
        self.clocks.fence_proxy(self._warps(mask))
        return []

    def _nvvm_elect_sync(self, op: Op, mask: np.ndarray) -> list[Any]:
        lanes = mask.reshape(-1, 32)
        elected = np.zeros_like(lanes)
        elected[np.arange(len(lanes)), lanes.argmax(1)] = lanes.any(1)
        return [elected.reshape(-1)]

    def _nvvm_setmaxregister(self, op: Op, mask: np.ndarray) -> list[Any]:
        count = ir.IntegerAttr(op.attributes["regCount"]).value
        if count % 8 or not 24 <= count <= 256:
            raise MemoryFault(f"setmaxnreg of {count} registers")
        if not mask.all() or len(mask) != WARPGROUP:
            raise MemoryFault("setmaxnreg that some warps of the warpgroup do not reach")
        return []

    def _nvvm_wgmma_fence_aligned(self, op: Op, mask: np.ndarray) -> list[Any]:
        self._unit(mask).fenced = True
        return []

    def _nvvm_wgmma_commit_group_sync_aligned(self, op: Op, mask: np.ndarray) -> list[Any]:
        self._commit(mask)
        return []

    def _nvvm_wgmma_wait_group_sync_aligned(self, op: Op, mask: np.ndarray) -> list[Any]:
        self._wait_products(ir.IntegerAttr(op.attributes["group"]).value, mask)
        return []

    def _llvm_inline_asm(self, op: Op, mask: np.ndarray) -> list[Any]:
        if op.assembly.text == "exit;":
            if (mask != self.mask).any():
                raise MemoryFault(f"CTA {self.number} has a warp that ends without some of its threads")
            raise Exit
        if op.assembly.statements[0].opcode.startswith(("mma.", "ld.", "red.", "atom.")):
            return super()._llvm_inline_asm(op, mask)
        return Assembler(self, op, mask).run()

    # Shared memory's addresses.

    def mbarrier(self, address: int, mask: np.ndarray) -> MBarrier:
        """Whose making the warps of the mask have seen."""
        if address not in self.cta.mbarriers:
            raise MemoryFault(f"there is no mbarrier at {address:#x}")
        barrier = self.cta.mbarriers[address]
        by, now = barrier.made
        warps = self._warps(mask)
        if ((self.clocks.seen[warps, by] < now) & (warps != by)).any():
            raise MemoryFault(f"{barrier.name} is used while it is made")
        return barrier

    def engine_clock(self, component: int, now: int, mask: np.ndarray) -> EngineClock:
        """Of what warps issue: it comes after what each of them has seen."""
        warps = self._warps(mask)
        seen = self.clocks.seen[warps]
        seen[np.arange(len(warps)), warps] = self.clocks.now[warps]
        return EngineClock(self.clocks, component, now, seen.min(0))

    # Products.

    def _unit(self, mask: np.ndarray) -> ProductUnit:
        if len(mask) != WARPGROUP or not mask.all():
            raise MemoryFault(f"CTA {self.number} has a warpgroup's operation that some of its threads do not reach")
        if self.first not in self.cta.units:
            name = f"a product of CTA {self.number} warpgroup {self.first // WARPGROUP}"
            self.cta.units[self.first] = ProductUnit(self.clocks.component(name))
        return self.cta.units[self.first]

    def _commit(self, mask: np.ndarray) -> None:
        unit = self._unit(mask)
        unit.groups.append(unit.open)
        unit.open = []

    def _wait_products(self, pending: int, mask: np.ndarray) -> None:
        unit, warps = self._unit(mask), self._warps(mask)
        done = unit.groups[: max(len(unit.groups) - pending, 0)]
        unit.groups = unit.groups[len(done) :]
        for product in (product for group in done for product in group):
            product.done = True
            self.clocks.seen[warps, unit.component] = product.number
        if not pending:
            unit.fenced = False


def _joined(agents: list[WarpAgent]) -> list[WarpAgent]:
    """Agents that a barrier let go on, those of a warpgroup at the same place made one."""
    found: list[WarpAgent] = []
    for agent in agents:
        first = next((a for a in found if a.cta is agent.cta and a.first == agent.first and a.meets(agent)), None)
        if first is None:
            found.append(agent)
        else:
            first.join(agent)
            agent.cta.agents.remove(agent)
    return found


def _settled(value: Any) -> Any:
    """An array, unless it is of a product in flight."""
    return np.asarray(value) if isinstance(value, simt_wgmma.Sum) and value.product.done else value


class Assembler:
    """Runs one piece of inline PTX for the threads of a mask."""

    def __init__(self, agent: WarpAgent, op: Op, mask: np.ndarray):
        self.agent, self.cta, self.op, self.mask = agent, agent.cta, op, mask
        self._inputs = agent._all(op.operands)
        self._registers: dict[str, Any] = {}
        self._products: list[tuple[Any, ...]] = []
        self._sums: Any = None

    def run(self) -> list[Any]:
        assembly = self.op.assembly
        for statement in assembly.statements:
            self._do(statement)
            if self.agent.pause and self.agent.waits_for is not None:
                return []
        if self._products:
            self._issue()
        if not self.op.results:
            return []
        if self._sums is not None:
            return [self._sums]
        found = [_settled(self._read(f"${i}")) for i in range(assembly.outputs)]
        return [found[0] if isinstance(self.op.results[0].type, np.dtype) else found]

    def _do(self, statement: Statement) -> None:
        mask = self.mask
        if statement.guard:
            holds = np.broadcast_to(self._registers[statement.guard], mask.shape)
            mask = mask & (holds ^ statement.inverted)
            if not mask.any():
                return
        if shape := simt_wgmma.shape_of(statement.opcode):
            self._product(shape, statement.operands)
        elif statement.opcode in _PTX:
            _PTX[statement.opcode](self, mask, *statement.operands)
        elif statement.opcode.startswith("cp.async.bulk.tensor."):
            self._load_box(mask, statement)
        else:
            raise AssertionError(f"no such instruction here: {statement.opcode} in '{self.op.assembly.text}'")

    def _read(self, operand: Any) -> Any:
        if isinstance(operand, int):
            return np.array(operand, np.int64)
        if operand in self._registers:
            return self._registers[operand]
        number, outputs = int(operand[1:]), self.op.assembly.outputs
        return self._inputs[self.op.assembly.ties[number] if number < outputs else number - outputs]

    def _number(self, operand: Any, mask: np.ndarray) -> int:
        if isinstance(operand, list):
            (operand,) = operand
        return self.agent._number(self._read(operand), mask, f"an operand of '{self.op.assembly.text}'")

    def _barrier(self, operand: Any, mask: np.ndarray) -> MBarrier:
        return self.agent.mbarrier(self._number(operand, mask), mask)

    def _binary(function: Callable[[Any, Any], Any]) -> Callable[..., None]:  # noqa: N805
        def do(self: Assembler, mask: np.ndarray, to: str, a: Any, b: Any) -> None:
            self._registers[to] = function(self._read(a), self._read(b))

        return do

    def _branch(self, mask: np.ndarray, label: str) -> None:
        raise AssertionError(f"a branch that is taken in '{self.op.assembly.text}'")

    def _mbarrier_init(self, mask: np.ndarray, place: list[str], count: Any) -> None:
        self.agent._one(mask, "mbarrier.init")
        address, clocks = self._number(place, mask), self.agent.clocks
        if address % 8 or address < 0 or address + 8 > len(self.cta.shared.bytes):
            raise MemoryFault(f"an mbarrier at {address:#x} of {len(self.cta.shared.bytes)} bytes")
        thread = self.agent.thread_id[mask]
        self.cta.shared.write(address + np.arange(8)[None], self.cta.clock, thread)
        name = f"the mbarrier at {address:#x} of CTA {self.cta.number}"
        by = int(self.agent._warps(mask)[0])
        self.cta.mbarriers[address] = MBarrier(name, self._number(count, mask), clocks, by)

    def _mbarrier_arrive(self, mask: np.ndarray, _: str, place: list[str]) -> None:
        barrier = self._barrier(place, mask)
        released = self.agent._released(mask)
        self.agent.scheduler.add(barrier.arrive(int(np.count_nonzero(mask)), released))

    def _mbarrier_expect(self, mask: np.ndarray, _: str, place: list[str], nbytes: Any) -> None:
        self._barrier(place, mask).expect(self._number(nbytes, mask) * int(np.count_nonzero(mask)))
        self._mbarrier_arrive(mask, _, place)

    def _mbarrier_wait(self, mask: np.ndarray, to: str, place: list[str], parity: Any) -> None:
        barrier = self._barrier(place, mask)
        if not barrier.passed(self._number(parity, mask)):
            barrier.waiters.append(self.agent)
            self.agent.frames[-1].at -= 1  # it asks again
            self.agent.pause, self.agent.waits_for = True, barrier
            return
        self.agent._acquired(barrier.clock, mask)
        self._registers[to] = np.array(True)

    def _bar_sync(self, mask: np.ndarray, number: Any, threads: Any) -> None:
        self.agent._barrier(self._number(number, mask), self._number(threads, mask), mask)

    def _load_box(self, mask: np.ndarray, statement: Statement) -> None:
        rank = statement.opcode.removeprefix("cp.async.bulk.tensor.")[0]
        if statement.opcode != (
            f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ):
            raise AssertionError(f"no such instruction here: {statement.opcode}")
        agent = self.agent
        agent._one(mask, statement.opcode)
        to, (map_, at), place = statement.operands
        box = self._map(self._number(map_, mask))
        if len(at) != len(box.box) or len(at) != int(rank):
            raise MemoryFault(f"{len(at)} coordinates in a tensor of {len(box.box)} dimensions")
        address, barrier = self._number(to, mask), self._barrier(place, mask)
        if address % box.align:
            raise MemoryFault(f"a box at {address:#x} is not aligned to {box.align} bytes")
        if address < 0 or address + box.nbytes > len(self.cta.shared.bytes):
            raise MemoryFault(f"a box at {address:#x} goes beyond the end of shared memory")
        source = agent._global.find(box.pointer)
        content, read = read_box(source, box, [self._number(x, mask) for x in at])
        clock = agent.engine_clock(barrier.component, barrier.completed + 1, mask)
        if len(read):
            source.engine_read(read, clock)
        self.cta.shared.engine_write(slice(address, address + box.nbytes), clock)
        self.cta.shared.bytes[address : address + box.nbytes] = 0xFF
        agent.scheduler.add([Copy(self.cta, address, content, barrier, agent.scheduler)])
        agent.pause = True

    def _map(self, address: int) -> Box:
        number, rest = divmod(address - MAPS_AT, MAP_BYTES)
        if rest or not 0 <= number < len(self.cta.maps):
            raise MemoryFault(f"there is no tensor map {number}")
        return self.cta.maps[number]

    def _prefetch_map(self, mask: np.ndarray, place: list[str]) -> None:
        self._map(self._number(place, mask))

    def _fence_proxy(self, mask: np.ndarray) -> None:
        self.agent.clocks.fence_proxy(self.agent._warps(mask))

    def _pass(self, mask: np.ndarray) -> None:
        pass

    def _commit(self, mask: np.ndarray) -> None:
        self._issue()
        self.agent._commit(mask)

    def _wait_products(self, mask: np.ndarray, pending: int) -> None:
        self.agent._wait_products(pending, mask)

    def _product(self, shape: simt_wgmma.Shape, operands: Sequence[Any]) -> None:
        d, a, b, accumulates, *flags = operands
        assert flags == ([1, 1, 0] if isinstance(a, tuple) else [1, 1, 0, 0]), f"no such product here: {flags}"
        assert d == tuple(f"${i}" for i in range(shape.n // 2)) and len(self.op.assembly.ties) == shape.n // 2
        left = [self._read(word) for word in a] if isinstance(a, tuple) else self._number(a, self.mask)
        adds = bool(self._number(accumulates, self.mask))
        self._products.append((shape, left, self._number(b, self.mask), adds))

    def _issue(self) -> None:
        """The products since the last commit, which sum to the same registers."""
        if not self._products:
            return
        shape = self._products[0][0]
        unit = self.agent._unit(self.mask)
        assert all(product[0] == shape for product in self._products) and all(p[3] for p in self._products[1:])
        sums = [self._read(f"${i}") for i in range(shape.n // 2)] if self._sums is None else self._sums
        in_registers = isinstance(self._products[0][1], list)
        chained = isinstance(sums[0], simt_wgmma.Sum) and not sums[0].product.done
        if not unit.fenced and (in_registers or not chained):
            raise MemoryFault("a product uses registers without a wgmma.fence since the last wait")
        unit.issued += 1
        clock = self.agent.engine_clock(unit.component, unit.issued, self.mask)
        if in_registers:
            words = [word for _, left, _, _ in self._products for word in left]
            a = simt_wgmma.fragment(words, shape.element)
        else:
            a = self._matrix([left for _, left, _, _ in self._products], simt_wgmma.ROWS, shape.element, clock)
        b = self._matrix([right for _, _, right, _ in self._products], shape.n, shape.element, clock)
        total = a @ b.T
        if self._products[0][3]:
            total += simt_wgmma.matrix_of(sums)
        self._sums = simt_wgmma.Product(unit.issued, total)
        unit.open.append(self._sums)
        self._products = []
        self.agent.pause = True

    def _matrix(self, descriptors: Sequence[int], rows: int, element: str, clock: EngineClock) -> np.ndarray:
        """[rows, k] from shared memory."""
        chunks = np.concatenate([simt_wgmma.descriptor(bits).chunks(rows) for bits in descriptors], 1)
        shared, first, last = self.cta.shared, int(chunks.min()), int(chunks.max()) + 1
        if last * 16 > len(shared.bytes):
            raise MemoryFault("a matrix descriptor goes beyond the end of shared memory")
        if chunks.size == last - first:
            shared.engine_read(slice(first * 16, last * 16), clock)
        else:
            shared.engine_read((np.sort(chunks, axis=None)[:, None] * 16 + np.arange(16)).reshape(-1), clock)
        content = shared.bytes[: last * 16].reshape(-1, 16)[chunks]
        return simt_wgmma.widened(content.reshape(rows, -1), element)

    def _pack(element: str, clamps: bool = False) -> Callable[..., None]:  # noqa: N805
        """cvt of two numbers to a word; the first operand is the high half."""

        def do(self: Assembler, mask: np.ndarray, to: str, high: Any, low: Any) -> None:
            pair = [np.broadcast_to(np.asarray(self._read(x), np.float32), mask.shape) for x in (low, high)]
            both = np.stack(pair, -1)
            both = np.where(both < 0, np.float32(0), both) if clamps else both
            self._registers[to] = both.astype(DTYPES[element]).view(np.int32)[:, 0]

        return do

    _PTX = {
        "setp.ne.b32": _binary(operator.ne),
        "setp.eq.b32": _binary(operator.eq),
        "add.s64": _binary(operator.add),
        "bra": _branch,
        "mbarrier.init.shared::cta.b64": _mbarrier_init,
        "mbarrier.arrive.shared::cta.b64": _mbarrier_arrive,
        "mbarrier.arrive.expect_tx.shared::cta.b64": _mbarrier_expect,
        "mbarrier.try_wait.parity.shared::cta.b64": _mbarrier_wait,
        "bar.sync": _bar_sync,
        "prefetch.tensormap": _prefetch_map,
        "fence.proxy.async": _fence_proxy,
        "fence.proxy.async.shared::cta": _fence_proxy,
        "wgmma.fence.sync.aligned": lambda self, mask: setattr(self.agent._unit(mask), "fenced", True),
        "wgmma.commit_group.sync.aligned": _commit,
        "wgmma.wait_group.sync.aligned": _wait_products,
        "cvt.rn.bf16x2.f32": _pack("bf16"),
        "cvt.rn.f16x2.f32": _pack("f16"),
        "cvt.rn.relu.bf16x2.f32": _pack("bf16", clamps=True),
        "cvt.rn.relu.f16x2.f32": _pack("f16", clamps=True),
    }


_PTX: dict[str, Callable[..., None]] = Assembler._PTX
