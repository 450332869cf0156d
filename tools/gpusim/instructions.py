"""What the operations and the inline PTX of a persistent kernel do to one CTA."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kitsune_mlir import mlir

from . import index_reports, mma
from .decode import Assembly, Op
from .faults import MemoryFault, unknown
from .lanes import Lanes, spread
from .lockstep import Lockstep
from .memory import Clock, Region
from .space import Space

_LOAD = re.compile(r"ld\.(acquire|relaxed)\.gpu\.global\.u32 \$0, \[\$1\];")
_ADD = re.compile(
    r"red\.release\.gpu\.global\.add\.u32 \[\$0\], \$1;|atom\.acq_rel\.gpu\.global\.add\.u32 \$0, \[\$1\], \$2;"
)
_SWAP = re.compile(r"atom\.acq_rel\.gpu\.global\.cas\.b32 \$0, \[\$1\], \$2, \$3;")


MASKS = 4096  # that are remembered


class Exit(Exception):
    """All threads of a CTA ended."""


@dataclass
class Counters:
    """What atomic operations have made: a clock of `size` for each address (see memory.py), and how many there
    were."""

    size: int
    released: dict[int, np.ndarray] = field(default_factory=dict)
    version: int = 0

    def at(self, address: int) -> np.ndarray:
        return self.released.setdefault(address, np.zeros(self.size, np.int64))


class Instructions(Lockstep):
    """One CTA. Values are numpy arrays over its threads; those of vectors have a second dimension."""

    def __init__(
        self,
        kernel: Op,
        arguments: Sequence[int],
        memory: Space,
        launch: dict[str, Any],
        number: int,
        counters: Counters,
    ):
        super().__init__(kernel, arguments, (launch["ctas"], 1, 1), (launch["threads"], 1, 1))
        self.number, self._counters, self._global = number, counters, memory
        self.ctas = launch["ctas"]
        self.block_id = np.array(number, np.int32)
        self.thread_id = np.arange(self.threads, dtype=np.int32)
        content = np.full(launch["shared_bytes"], 0xFF, np.uint8)
        self._shared = Space([Region("shared memory", 0, content, writable=True, tracked=True)])
        self._clock, self._shared_clock = Clock(number, launch["ctas"]), Clock(0, 1)
        self.polls = "nothing"
        self.values: dict[int, Any] = {}
        self._lanes: dict[bytes, Lanes] = {}

    def lanes(self, mask: np.ndarray) -> Lanes:
        """What is known of the threads of a mask."""
        key = mask.tobytes()
        found = self._lanes.get(key)
        if found is None:
            if len(self._lanes) >= MASKS:
                self._lanes.clear()
            found = self._lanes[key] = Lanes(mask, self.thread_id)
        return found

    def _see(self, value: int) -> Any:
        return self.values[value]

    def _operation(self, op: Op, mask: np.ndarray) -> list[Any]:
        method = getattr(self, op.method, None)
        if method is None:
            raise unknown(op.name)
        return method(op, mask)

    def _gpu_barrier(self, op: Op, mask: np.ndarray) -> list[Any]:
        if not np.all(mask):
            raise MemoryFault(f"CTA {self.number} has a barrier that thread {np.argmin(mask)} does not reach")
        self._clock.barrier()
        self._shared_clock.barrier()
        return []

    def _nvvm_griddepcontrol(self, op: Op, mask: np.ndarray) -> list[Any]:
        return []  # kernels run one after another here

    def _nvvm_read_ptx_sreg_tid_x(self, op: Op, mask: np.ndarray) -> list[Any]:
        return [self.thread_id]

    def _nvvm_read_ptx_sreg_ctaid_x(self, op: Op, mask: np.ndarray) -> list[Any]:
        return [self.block_id]

    def _nvvm_read_ptx_sreg_nctaid_x(self, op: Op, mask: np.ndarray) -> list[Any]:
        return [np.array(self.ctas, np.int32)]

    def _llvm_mlir_addressof(self, op: Op, mask: np.ndarray) -> list[Any]:
        return [np.array(0)]

    def _llvm_ptrtoint(self, op: Op, mask: np.ndarray) -> list[Any]:
        return [np.asarray(self._see(op.operands[0])).astype(op.results[0].type)]

    def _llvm_inttoptr(self, op: Op, mask: np.ndarray) -> list[Any]:
        return [np.asarray(self._see(op.operands[0])).astype(np.int64)]

    def _memory(self, pointer: str) -> tuple[Space, Clock]:
        """By the number of the address space in a pointer's type."""
        if pointer == "!llvm.ptr<3>":
            return self._shared, self._shared_clock
        assert pointer == "!llvm.ptr<1>", pointer
        return self._global, self._clock

    def _llvm_load(self, op: Op, mask: np.ndarray) -> list[Any]:
        kind = op.results[0].type
        dtype, count = kind if isinstance(kind, tuple) else (kind, 1)
        space, clock = self._memory(op.pointers[0])
        lanes = self.lanes(mask)
        addresses = lanes.of(spread(self._see(op.operands[0]), mask.shape))
        found = space.load(addresses, dtype, count, _align(op, dtype, count), clock, lanes.threads)
        if not lanes.all:
            result = np.full((self.threads, dtype.itemsize * count), 0xFF, np.uint8).view(dtype)
            result[lanes.places] = found
            found = result
        return [found if isinstance(kind, tuple) else found[:, 0]]

    def _llvm_store(self, op: Op, mask: np.ndarray) -> list[Any]:
        value, pointer = self._all(op.operands)
        space, clock = self._memory(op.pointers[1])
        lanes = self.lanes(mask)
        value = np.asarray(value)
        value = value if value.ndim == 2 else spread(value, mask.shape)[:, None]
        if len(value) != mask.size:
            value = np.broadcast_to(value, (mask.size, value.shape[1]))
        align = _align(op, value.dtype, value.shape[1])
        space.store(lanes.of(spread(pointer, mask.shape)), lanes.of(value), align, clock, lanes.threads)
        return []

    def _vector_from_elements(self, op: Op, mask: np.ndarray) -> list[Any]:
        elements = self._all(op.operands)
        found = np.empty((mask.size, len(elements)), op.results[0].type[0])
        for i, element in enumerate(elements):
            found[:, i] = element
        return [found]

    def _vector_broadcast(self, op: Op, mask: np.ndarray) -> list[Any]:
        dtype, count = op.results[0].type
        return [np.repeat(spread(self._see(op.operands[0]), mask.shape)[:, None], count, 1).astype(dtype)]

    def _vector_bitcast(self, op: Op, mask: np.ndarray) -> list[Any]:
        dtype, _ = op.results[0].type
        return [np.ascontiguousarray(self._see(op.operands[0])).view(dtype)]

    def _llvm_inline_asm(self, op: Op, mask: np.ndarray) -> list[Any]:
        text, values = op.assembly.text, self._all(op.operands)
        if index_reports.is_report(text):
            index_reports.run(text, np.asarray(values[0]) != 0, mask)
            return []
        if (parts := mma.parse(text)) is not None:
            return self._mma(parts, op.assembly, values, mask)
        if text == "cvt.rna.tf32.f32 $0, $1;":
            return [mma.to_tf32(spread(values[0], mask.shape), ties_up=True)]
        if text == "exit;":
            if not np.all(mask):
                raise MemoryFault(f"CTA {self.number} ends without thread {np.argmin(mask)}")
            raise Exit
        if self.lanes(mask).count != 1:
            raise MemoryFault(f"{self.lanes(mask).count} threads of CTA {self.number} do '{text}'")
        pointer, *operands = [int(spread(value, mask.shape)[self.lanes(mask).places[0]]) for value in values]
        counter = self._counter(pointer)
        if _LOAD.fullmatch(text):
            result = self._poll(pointer, counter, op, "acquire" in text, mask)
        elif _ADD.fullmatch(text):
            result = self._update(pointer, counter, lambda old: old + operands[0], bool(op.results), mask)
        elif _SWAP.fullmatch(text):
            result = self._update(pointer, counter, lambda old: operands[1] if old == operands[0] else old, True, mask)
        else:
            raise unknown(f"the instruction '{text}'")
        return [result] if op.results else []

    def _counter(self, address: int) -> np.ndarray:
        """Four bytes as an array of one that can be written."""
        if address % 4:
            raise MemoryFault(f"a counter at {address:#x}")
        region = self._global.find(address)
        place = address - region.start
        return region.bytes[place : place + 4].view(np.int32)

    def _poll(self, address: int, counter: np.ndarray, op: Op, acquires: bool, mask: np.ndarray) -> np.ndarray:
        region, value = self._global.find(address), counter[0].copy()
        place = address - region.start
        if acquires:
            region.read(np.array([place]), 4, self._clock, self.lanes(mask).threads, initial=True)
            self._acquired(self._counters.at(address), mask)
            self.polls = f"byte {place} of {region.name} is {value}, at {mlir.location(op.location)}"
        return value

    def _update(
        self, address: int, counter: np.ndarray, change: Callable[[int], int], acquires: bool, mask: np.ndarray
    ) -> np.ndarray:
        """Not noted as a read: whoever acquires comes after it."""
        before = counter[0].copy()
        counter[0] = change(int(before))
        self._counters.released[address] = np.maximum(self._counters.at(address), self._released(mask))
        self._counters.version += 1
        if acquires:
            self._acquired(self._counters.at(address), mask)
        return before

    def _released(self, mask: np.ndarray) -> np.ndarray:
        """The clock of what a release by the thread of the mask publishes: what came before the CTA's last barrier."""
        return self._clock.seen

    def _acquired(self, clock: np.ndarray, mask: np.ndarray) -> None:
        """The thread of the mask comes after what that clock says."""
        self._clock.acquire(clock, int(self.lanes(mask).threads[0]))

    def _mma(self, parts: dict[str, str], assembly: Assembly, values: list[Any], mask: np.ndarray) -> list[Any]:
        registers = {name: spread(values[i], mask.shape) for name, i in assembly.given.items()}
        if not self.lanes(mask).whole_warps:
            raise MemoryFault(f"CTA {self.number} has a product that some lanes of a warp do not reach")
        a, b, c = ([registers[r] for r in parts[name].split(", ")] for name in "abc")
        assert tuple(parts["d"].split(", ")) == assembly.results
        return [mma.mma(parts["kind"], int(parts["k"]), a, b, c)]


def _align(op: Op, dtype: np.dtype, count: int) -> int:
    return dtype.itemsize * count if op.alignment is None else op.alignment
