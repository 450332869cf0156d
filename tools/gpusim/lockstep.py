"""Runs a gpu.func of a single operator on the CPU: every thread of some CTAs at once, each SSA value a numpy array
over threads.

Threads go in lockstep, so shuffles and barriers are right; divergence is masks. Every memory access is
checked against the buffer it goes to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kitsune_mlir import mlir
from kitsune_mlir.codegen.hopper import cluster
from kitsune_mlir.mlir import attr_int, ir

from . import index_reports, mma, word_updates
from .arithmetic import dtype_of
from .decode import Block, Op
from .faults import MemoryFault, unknown
from .lanes import some, spread

TOGETHER = 1 << 16  # threads that run at once
_ENDS = frozenset(("scf.yield", "scf.condition", "gpu.return", "memref.atomic_yield"))
# By the number of arith.AtomicRMWKind: addf, addi, andi, ori, maximumf, maxnumf, maxs, minimumf, minnumf, mins.
_ATOMICS = {
    **{0: np.add, 1: np.add, 2: np.bitwise_and, 14: np.bitwise_or},
    **{4: np.maximum, 5: np.fmax, 6: np.maximum, 8: np.minimum, 9: np.fmin, 10: np.minimum},
}


def _outside(indices: np.ndarray, size: int) -> np.ndarray:
    """Which are negative, or at least a size: negative ones are large without a sign."""
    return indices.view(np.uint64) >= np.uint64(size)


@dataclass
class MemRef:
    """Elements of a flat array."""

    data: np.ndarray
    offset: int | np.ndarray  # of each thread, in shared memory
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def address(self, indices: Sequence[Any], mask: np.ndarray) -> np.ndarray:
        total = np.empty(mask.shape, np.int64)
        total[...] = self.offset
        for index, size, stride in zip(indices, self.shape, self.strides, strict=True):
            index = np.asarray(index).astype(np.int64, copy=False)
            if some(wrong := _outside(index, size)) and some(mask & wrong):
                index = spread(index, mask.shape)
                raise MemoryFault(f"index {index[mask].min()}..{index[mask].max()} in a dimension of {size}")
            total += index if stride == 1 else index * stride
        if some(wrong := _outside(total, self.data.size)):
            total *= mask  # what threads that are not here have is no place
            if some(mask & wrong):
                raise MemoryFault(f"element {total.max()} of a buffer of {self.data.size}")
        return total

    def holds(self, address: int, count: int) -> bool:
        """Whether so many elements from an address on are among its own, where these lie side by side."""
        first = self.data.ctypes.data + self.offset * self.data.itemsize
        end = first + int(np.prod(self.shape)) * self.data.itemsize
        return first <= address and address + count * self.data.itemsize <= end


class Shared(MemRef):
    """A buffer in the shared memory of each of `blocks` blocks of so many threads. An element that another thread wrote
    may be read behind a barrier only, and where its lanes met, by threads of the same warp; atomic operations do not
    wait for each other."""

    def __init__(self, kind: ir.MemRefType, blocks: int, threads: int):
        size = int(np.prod(kind.shape))
        strides = tuple(int(np.prod(kind.shape[i + 1 :])) for i in range(kind.rank))
        data = np.full(blocks * size * dtype_of(kind.element_type).itemsize, 0xFF, np.uint8)
        offset = np.repeat(np.arange(blocks) * size, threads)
        super().__init__(data.view(dtype_of(kind.element_type)), offset, tuple(kind.shape), strides)
        # Since the last barrier; -2 - w where warp w has met since.
        self.writers, self.updaters = (np.full(blocks * size, -1) for _ in range(2))
        self._touched = False  # since the last barrier
        self.size, self._senders = size, np.zeros(blocks * size, np.bool_)  # by other blocks, since their last barrier

    def sent(self, address: np.ndarray, ranks: np.ndarray, values: np.ndarray, mask: np.ndarray, cluster: int) -> None:
        """Words that go to the same places of other blocks of a cluster, of these ranks."""
        blocks = address // self.size
        places = address + (blocks - blocks % cluster + ranks - blocks) * self.size
        self.data[places[mask]] = values[mask]
        self._senders[places[mask]] = True

    def met_cluster(self) -> None:
        """A barrier of all threads of each cluster."""
        self.barrier()
        self._senders[:] = False

    def read(self, address: np.ndarray, mask: np.ndarray) -> None:
        if some(self._senders[address] & mask):
            raise MemoryFault("shared memory that another CTA wrote is read before a barrier of their cluster")
        if self._touched:
            for found in (self.writers, self.updaters):
                self._check(found[address], mask)

    def written(self, address: np.ndarray, mask: np.ndarray) -> None:
        self.writers[address[mask]] = np.flatnonzero(mask)
        self._touched = True

    def updated(self, address: np.ndarray, mask: np.ndarray) -> None:
        self._check(self.writers[address], mask)
        self.updaters[address[mask]] = np.flatnonzero(mask)
        self._touched = True

    def barrier(self) -> None:
        if self._touched:
            self.writers[:] = self.updaters[:] = -1
            self._touched = False

    def met(self) -> None:
        """The lanes of each warp met."""
        if not self._touched:
            return
        for found in (self.writers, self.updaters):
            found[:] = np.where(found >= 0, -2 - found // 32, found)

    @staticmethod
    def _check(writer: np.ndarray, mask: np.ndarray) -> None:
        if not some(writer != -1):
            return
        threads = np.arange(len(mask))
        own = (writer == -1) | (writer == threads) | (writer == -2 - threads // 32)
        if some(mask & ~own):
            raise MemoryFault("shared memory that another thread wrote is read before a barrier")


class Lockstep:
    """One launch."""

    def __init__(
        self, function: Op, arguments: Sequence[Any], grid: Sequence[int], block: Sequence[int], cluster: int = 1
    ):
        assert tuple(block[1:]) == (1, 1) and tuple(grid[1:]) == (1, 1) and grid[0] % cluster == 0
        self.cluster = cluster
        self.function, self.arguments, self.blocks, self.threads = function, arguments, grid[0], block[0]

    def run(self) -> None:
        step = max(1, TOGETHER // self.threads // self.cluster) * self.cluster
        entry, given = self.function.regions[0].blocks[0], self.function.source.regions[0].blocks[0].arguments
        behind = [ir.MemRefType(buffer.type) for buffer in list(given)[len(self.arguments) :]]
        with np.errstate(all="ignore"):
            for first in range(0, self.blocks, step):
                count = min(step, self.blocks - first)
                self.block_id = np.repeat(np.arange(first, first + count), self.threads)
                self.thread_id = np.tile(np.arange(self.threads), count)
                self.shared = [Shared(kind, count, self.threads) for kind in behind]
                self.values: dict[int, Any] = dict(self.function.constants)
                self.values.update(zip(entry.arguments, [*self.arguments, *self.shared], strict=True))
                self._block(entry, np.ones(self.block_id.shape, np.bool_))

    def _see(self, value: int) -> Any:
        return self.values[value]

    def _all(self, values: Sequence[int]) -> list[Any]:
        return [self.values[value] for value in values]

    def _block(self, block: Block, mask: np.ndarray) -> list[Any]:
        """Runs a block for the threads of the mask; gives its terminator's operands."""
        values = self.values
        for op in block.operations:
            step = op.step
            if step is not None:
                step(values)
            elif op.name in _ENDS:
                return self._all(op.operands)
            else:
                for result, value in zip(op.results, self._operation(op, mask), strict=True):
                    values[result.key] = value
        return []

    def _operation(self, op: Op, mask: np.ndarray) -> list[Any]:
        method = getattr(self, op.method, None)
        if method is None:
            raise unknown(op.name)
        return method(op, mask)

    def _arith_bitcast(self, op: Op, mask: np.ndarray) -> list[Any]:
        return [np.asarray(self._see(op.operands[0])).view(op.results[0].type)]

    def _math_fma(self, op: Op, mask: np.ndarray) -> list[Any]:
        a, b, c = (np.asarray(value) for value in self._all(op.operands))
        return [(a.astype(np.float64) * b + c).astype(c.dtype)]

    def _math_isnan(self, op: Op, mask: np.ndarray) -> list[Any]:
        return [np.isnan(self._see(op.operands[0]))]

    def _gpu_block_id(self, op: Op, mask: np.ndarray) -> list[Any]:
        return [self.block_id]

    def _gpu_thread_id(self, op: Op, mask: np.ndarray) -> list[Any]:
        return [self.thread_id]

    def _gpu_barrier(self, op: Op, mask: np.ndarray) -> list[Any]:
        # Lockstep makes it idle, but all threads of a block must be here.
        together = mask.reshape(-1, self.threads)
        if not np.all(together == together[:, :1]):
            raise MemoryFault("a barrier that some threads of a CTA do not reach")
        for buffer in self.shared:
            buffer.barrier()
        return []

    def _nvvm_griddepcontrol(self, op: Op, mask: np.ndarray) -> list[Any]:
        return []  # kernels run one after another here

    def _nvvm_bar_warp_sync(self, op: Op, mask: np.ndarray) -> list[Any]:
        _whole_warps(mask, "a barrier of a warp")
        for buffer in self.shared:
            buffer.met()
        return []

    def _nvvm_vote_sync(self, op: Op, mask: np.ndarray) -> list[Any]:
        _whole_warps(mask, "a ballot")
        lanes = np.broadcast_to(self._see(op.operands[1]), mask.shape).reshape(-1, 32).astype(np.uint32)
        found = np.sum(lanes << np.arange(32, dtype=np.uint32), 1, dtype=np.uint32)
        return [np.repeat(found, 32).view(np.int32)]

    def _gpu_shuffle(self, op: Op, mask: np.ndarray) -> list[Any]:
        value, other, _ = self._all(op.operands)
        lanes = np.broadcast_to(value, mask.shape).reshape(-1, 32)
        _whole_warps(mask, "a shuffle")
        if np.ndim(other):
            other = np.broadcast_to(other, mask.shape).reshape(-1, 32)
        own, mode = np.arange(32), str(op.attributes["mode"])
        places = own ^ other if "xor" in mode else np.where(own < other, own, own - other) if "up" in mode else other
        # Most often all warps do the same, which numpy takes as whole columns.
        found = np.take_along_axis(lanes, places, 1) if np.ndim(places) == 2 else lanes[:, np.broadcast_to(places, 32)]
        return [found.reshape(-1), np.ones(mask.shape, np.bool_)]

    def _llvm_inline_asm(self, op: Op, mask: np.ndarray) -> list[Any]:
        text = op.assembly.text
        if word_updates.run(text, [m for m in self.arguments if isinstance(m, MemRef)], self._all(op.operands), mask):
            return []
        if text in (cluster.INIT, cluster.EXPECT):
            return []
        if text == cluster.SEND:
            place, _, rank, word = (np.broadcast_to(x, mask.shape) for x in self._all(op.operands))
            self._send(place, rank, word.view(np.float32), mask)
            return []
        if text in (cluster.MEET, cluster.AWAIT):  # all have sent
            self._awaited(mask)
            return []
        if (parts := mma.parse(text)) is not None:
            return [self._mma(parts, self._all(op.operands), mask)]
        if not index_reports.is_report(text):
            raise unknown(f"the instruction '{text}'")
        index_reports.run(text, self._see(op.operands[0]) != 0, mask)
        return []

    def _awaited(self, mask: np.ndarray) -> None:
        if not np.all(mask):
            raise MemoryFault("a barrier that some threads of a cluster do not reach")
        for buffer in self.shared:
            buffer.met_cluster()

    def _send(self, place: np.ndarray, rank: np.ndarray, word: np.ndarray, mask: np.ndarray) -> None:
        """A word of each thread to shared memory of its cluster; `place` is where its own has it."""
        for buffer in self.shared:
            own = (address := (place - buffer.data.ctypes.data) // 4) - buffer.offset
            if np.all((own >= 0) & (own < buffer.size) | ~mask):
                buffer.sent(np.where(mask, address, 0), rank, word, mask, self.cluster)
                return
        raise MemoryFault("a word that goes to no buffer in shared memory")

    def _mma(self, parts: dict[str, str], operands: Sequence[Any], mask: np.ndarray) -> np.ndarray:
        """A product of whole warps; the sums, which come first, are in the registers of the results."""
        _whole_warps(mask, "a product")
        count = len(parts["c"].split(", "))
        registers = {
            f"${i if i < count else i + count}": np.broadcast_to(x, mask.shape) for i, x in enumerate(operands)
        }
        a, b, c = ([registers[register] for register in parts[name].split(", ")] for name in "abc")
        return mma.mma(parts["kind"], int(parts["k"]), a, b, c)

    def _memref_extract_aligned_pointer_as_index(self, op: Op, mask: np.ndarray) -> list[Any]:
        buffer = self._see(op.operands[0])
        first = buffer.offset * buffer.data.itemsize if isinstance(buffer, Shared) else 0  # a block's own
        return [np.asarray(buffer.data.ctypes.data + first, np.int64)]

    def _memref_extract_strided_metadata(self, op: Op, mask: np.ndarray) -> list[Any]:
        buffer = self._see(op.operands[0])
        return [buffer, *(np.array(number, np.int64) for number in (buffer.offset, *buffer.shape, *buffer.strides))]

    def _memref_dim(self, op: Op, mask: np.ndarray) -> list[Any]:
        buffer, dim = self._all(op.operands)
        return [np.array(buffer.shape[int(dim)], np.int64)]

    def _memref_load(self, op: Op, mask: np.ndarray) -> list[Any]:
        buffer, *indices = self._all(op.operands)
        address = buffer.address(indices, mask)
        if isinstance(buffer, Shared):
            buffer.read(address, mask)
        return [buffer.data[address]]

    def _memref_store(self, op: Op, mask: np.ndarray) -> list[Any]:
        value, buffer, *indices = self._all(op.operands)
        address = buffer.address(indices, mask)
        if isinstance(buffer, Shared):
            buffer.written(address, mask)
        buffer.data[address[mask]] = np.broadcast_to(value, mask.shape)[mask]
        return []

    def _vector_load(self, op: Op, mask: np.ndarray) -> list[Any]:
        buffer, *indices = self._all(op.operands)
        return [buffer.data[self._elements(op, buffer, indices, mask, op.results[0].type[1])]]

    def _vector_store(self, op: Op, mask: np.ndarray) -> list[Any]:
        value, buffer, *indices = self._all(op.operands)
        where = self._elements(op, buffer, indices, mask, value.shape[1])
        buffer.data[where[mask]] = np.broadcast_to(value, where.shape)[mask]
        return []

    def _vector_from_elements(self, op: Op, mask: np.ndarray) -> list[Any]:
        return [np.stack([np.broadcast_to(x, mask.shape) for x in self._all(op.operands)], 1)]

    def _vector_broadcast(self, op: Op, mask: np.ndarray) -> list[Any]:
        _, count = op.results[0].type
        return [np.repeat(np.broadcast_to(self._see(op.operands[0]), mask.shape)[:, None], count, 1)]

    @staticmethod
    def _elements(op: Op, buffer: MemRef, indices: Sequence[Any], mask: np.ndarray, count: int) -> np.ndarray:
        """Where the elements of each thread's vector, so many, are; buffers begin at multiples of any word."""
        first = buffer.address(indices, mask)
        last = buffer.address([*indices[:-1], np.asarray(indices[-1]) + count - 1], mask)
        if np.any(mask & (last - first != count - 1)):
            raise MemoryFault("a vector of elements that are no neighbours")
        align = op.alignment
        if np.any(mask & (first * buffer.data.itemsize % align != 0)):
            raise MemoryFault(f"a vector that begins at no multiple of {align} bytes")
        return first[:, None] + np.where(mask[:, None], np.arange(count), 0)

    def _memref_atomic_rmw(self, op: Op, mask: np.ndarray) -> list[Any]:
        value, buffer, *indices = self._all(op.operands)
        kind = attr_int(op, "kind")
        where = buffer.address(indices, mask)
        if isinstance(buffer, Shared):
            buffer.updated(where, mask)
        address = where[mask]
        updates = np.broadcast_to(value, mask.shape)[mask]
        before = np.zeros(mask.shape, buffer.data.dtype)
        for thread, where, update in zip(np.flatnonzero(mask), address, updates, strict=True):
            before[thread] = buffer.data[where]  # one after another: ufunc.at does not know bfloat16
            buffer.data[where] = _ATOMICS[kind](buffer.data[where], update)
        return [before]

    def _scf_if(self, op: Op, mask: np.ndarray) -> list[Any]:
        condition = np.broadcast_to(self._see(op.operands[0]), mask.shape)
        found = []
        for region, side in zip(op.regions, (mask & condition, mask & ~condition), strict=True):
            run = len(region.blocks) and some(side)
            found.append(self._block(region.blocks[0], side) if run else None)
        if not op.results:
            return []
        if found[0] is None or found[1] is None:
            return found[0] or found[1] or [np.zeros(mask.shape, dtype_of(r.type)) for r in op.results]
        return [np.where(condition, a, b) for a, b in zip(*found, strict=True)]

    def _scf_for(self, op: Op, mask: np.ndarray) -> list[Any]:
        index, end, step, *state = self._all(op.operands)
        body = op.regions[0].blocks[0]
        while some(active := mask & (index < end)):
            self.values.update(zip(body.arguments, [index, *state], strict=True))
            new = self._block(body, active)
            alike = np.array_equal(active, mask)
            state = new if alike else [np.where(active, a, b) for a, b in zip(new, state, strict=True)]
            index = index + step
        return state

    def _scf_while(self, op: Op, mask: np.ndarray) -> list[Any]:
        before, after = (region.blocks[0] for region in op.regions)
        state, active, out = self._all(op.operands), mask, None
        while True:
            self.values.update(zip(before.arguments, state, strict=True))
            condition, *passed = self._block(before, active)
            out = passed if out is None else [np.where(active, a, b) for a, b in zip(passed, out, strict=True)]
            active = active & condition
            if not some(active):
                return out
            self.values.update(zip(after.arguments, passed, strict=True))
            state = self._block(after, active)


def _whole_warps(mask: np.ndarray, what: str) -> None:
    lanes = mask.reshape(-1, 32)
    if some(lanes != lanes[:, :1]):
        raise MemoryFault(f"{what} that some lanes of a warp do not reach")


def kernels(module: ir.Module) -> dict[str, ir.Operation]:
    """The plain path's kernels by name."""
    return {ir.StringAttr(op.attributes["sym_name"]).value: op for op in mlir.walk(module, "gpu.func")}
