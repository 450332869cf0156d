"""Runs a persistent kernel on the CPU: its CTAs by turns, the threads of a CTA in lockstep.

A CTA is a coroutine that stops after every atomic operation and whenever a loop that waits goes round. Who
goes on is drawn from a seeded generator, so a seed is an interleaving.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import simt_mma
from simt import Simt
from simt_decode import Block, Op
from simt_memory import Clock, MemoryFault, Region, Space

from kitsune_mlir import mlir
from kitsune_mlir.mlir import ir

WAITS, GOES_ON = "waits", "goes on"
_ENDS = ("scf.yield", "scf.condition", "gpu.return")
_BRANCHES = ("scf.if", "scf.for", "scf.while")
_ACQUIRE = re.compile(r"ld\.acquire\.gpu\.global\.u32 \$0, \[\$1\];")
_RELEASE = re.compile(r"red\.release\.gpu\.global\.add\.u32 \[\$0\], \$1;")
_FETCH_ADD = re.compile(r"atom\.acq_rel\.gpu\.global\.add\.u32 \$0, \[\$1\], \$2;")
_WIDTH = {"i8": 1, "i16": 2, "bf16": 2, "f16": 2, "i32": 4, "f32": 4, "i64": 8, "f64": 8}
Turns = Generator[str, None, list[Any]]


class Deadlock(AssertionError):
    """Every CTA that is left waits."""


@dataclass
class Counters:
    """What atomic operations have made: a clock for each address (see simt_memory.py), and how many there were."""

    ctas: int
    released: dict[int, np.ndarray] = field(default_factory=dict)
    version: int = 0

    def at(self, address: int) -> np.ndarray:
        return self.released.setdefault(address, np.zeros(self.ctas, np.int64))


def run(
    kernel: Op,
    arguments: Sequence[int],
    memory: Space,
    launch: dict[str, Any],
    rng: np.random.Generator,
) -> Counters:
    """One launch; pointer arguments are addresses in `memory`. Gives the counters that it used.

    Raises MemoryFault, or Deadlock with every CTA that waits, on which address, and where in the model."""
    counters = Counters(launch["ctas"])
    ctas = [Cta(kernel, arguments, memory, launch, number, counters) for number in range(launch["ctas"])]
    left = {cta: cta.turns() for cta in ctas}
    waits_since: dict[Cta, int] = {}
    with np.errstate(all="ignore"):
        while left:
            ready = [cta for cta in left if waits_since.get(cta) != counters.version]
            if not ready:
                raise Deadlock("; ".join(str(cta) for cta in left))
            cta = ready[rng.integers(len(ready))]
            event = next(left[cta], None)
            if event is None:
                del left[cta]
            elif event == WAITS:
                waits_since[cta] = counters.version
    return counters


class Cta(Simt):
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
        self.block_id = np.array(number, np.int32)
        self.thread_id = np.arange(self.threads, dtype=np.int32)
        content = np.full(launch["shared_bytes"], 0xFF, np.uint8)
        self._shared = Space([Region("shared memory", 0, content, writable=True, tracked=True)])
        self._clock, self._shared_clock = Clock(number, launch["ctas"]), Clock(0, 1)
        self._polls = "nothing"
        self.values: dict[int, Any] = {}

    def __str__(self) -> str:
        return f"CTA {self.number} waits: {self._polls}"

    def turns(self) -> Iterator[str]:
        entry = self.function.regions[0].blocks[0]
        self.values.update(zip(entry.arguments, map(np.array, self.arguments), strict=True))
        yield from self._turns(entry, np.ones(self.threads, np.bool_))

    def _see(self, value: int) -> Any:
        return self.values[value]

    def _turns(self, block: Block, mask: np.ndarray) -> Turns:
        for op in block.operations:
            if op.name in _ENDS:
                return self._all(op.operands)
            before = self._counters.version
            try:
                if op.name in _BRANCHES:
                    results = yield from getattr(self, f"_turns_{op.name[4:]}")(op, mask)
                else:
                    results = self._operation(op, mask)
            except MemoryFault as fault:
                if not fault.located:
                    fault.args, fault.located = (f"{fault}, at {mlir.location(op.location)}",), True
                raise
            for result, value in zip(op.results, results, strict=True):
                self.values[result.key] = value
            if self._counters.version != before and op.name not in _BRANCHES:
                yield GOES_ON
        return []

    def _turns_if(self, op: Op, mask: np.ndarray) -> Turns:
        condition = np.broadcast_to(self._see(op.operands[0]), mask.shape)
        found: list[list[Any] | None] = []
        for region, side in zip(op.regions, (mask & condition, mask & ~condition), strict=True):
            runs = len(region.blocks) and np.any(side)
            found.append((yield from self._turns(region.blocks[0], side)) if runs else None)
        if not op.results:
            return []
        if found[0] is None or found[1] is None:
            return found[0] or found[1] or [np.zeros(mask.shape, result.type) for result in op.results]
        return [np.where(condition, a, b) for a, b in zip(*found, strict=True)]

    def _turns_for(self, op: Op, mask: np.ndarray) -> Turns:
        index, end, step, *state = self._all(op.operands)
        body = op.regions[0].blocks[0]
        while np.any(active := mask & (index < end)):
            self.values.update(zip(body.arguments, [index, *state], strict=True))
            new = yield from self._turns(body, active)
            together = np.array_equal(active, mask)
            state = new if together else [np.where(active, a, b) for a, b in zip(new, state, strict=True)]
            index = index + step
        return state

    def _turns_while(self, op: Op, mask: np.ndarray) -> Turns:
        """A loop that waits: others take their turns each time it goes round."""
        before, after = (region.blocks[0] for region in op.regions)
        state, active, out = self._all(op.operands), mask, None
        while True:
            self.values.update(zip(before.arguments, state, strict=True))
            condition, *passed = yield from self._turns(before, active)
            out = passed if out is None else [np.where(active, a, b) for a, b in zip(passed, out, strict=True)]
            active = active & condition
            if not np.any(active):
                return out
            self.values.update(zip(after.arguments, passed, strict=True))
            state = yield from self._turns(after, active)
            yield WAITS

    def _arith_constant(self, op: Op, mask: np.ndarray) -> list[Any]:
        return [np.array(op.attributes["value"].value, op.results[0].type)]

    def _gpu_barrier(self, op: Op, mask: np.ndarray) -> list[Any]:
        if not np.all(mask):
            raise MemoryFault(f"CTA {self.number} has a barrier that thread {np.argmin(mask)} does not reach")
        self._clock.barrier()
        self._shared_clock.barrier()
        return []

    def _nvvm_read_ptx_sreg_tid_x(self, op: Op, mask: np.ndarray) -> list[Any]:
        return [self.thread_id]

    def _nvvm_read_ptx_sreg_ctaid_x(self, op: Op, mask: np.ndarray) -> list[Any]:
        return [self.block_id]

    def _llvm_mlir_addressof(self, op: Op, mask: np.ndarray) -> list[Any]:
        return [np.array(0)]

    def _llvm_getelementptr(self, op: Op, mask: np.ndarray) -> list[Any]:
        base, *dynamic = self._all(op.operands)
        (raw,) = list(ir.DenseI32ArrayAttr(op.attributes["rawConstantIndices"]))
        count = np.asarray(dynamic[0]).astype(np.int64) if dynamic else raw
        return [base + count * _WIDTH[str(ir.TypeAttr(op.attributes["elem_type"]).value)]]

    def _memory(self, pointer: Any) -> tuple[Space, Clock]:
        """By the number of the address space in a pointer's type."""
        return {
            "!llvm.ptr<1>": (self._global, self._clock),
            "!llvm.ptr<3>": (self._shared, self._shared_clock),
        }[str(pointer)]

    def _llvm_load(self, op: Op, mask: np.ndarray) -> list[Any]:
        kind = op.results[0].type
        dtype, count = kind if isinstance(kind, tuple) else (kind, 1)
        space, clock = self._memory(op.operand_types[0])
        addresses = np.broadcast_to(self._see(op.operands[0]), mask.shape)[mask]
        found = space.load(addresses, dtype, count, _align(op, dtype, count), clock, self.thread_id[mask])
        result = np.full((self.threads, dtype.itemsize * count), 0xFF, np.uint8).view(dtype)
        result[mask] = found
        return [result if isinstance(kind, tuple) else result[:, 0]]

    def _llvm_store(self, op: Op, mask: np.ndarray) -> list[Any]:
        value, pointer = self._all(op.operands)
        space, clock = self._memory(op.operand_types[1])
        addresses = np.broadcast_to(pointer, mask.shape)[mask]
        value = np.asarray(value)
        value = value if value.ndim == 2 else np.broadcast_to(value, mask.shape)[:, None]
        align = _align(op, value.dtype, value.shape[1])
        space.store(addresses, value[mask], align, clock, self.thread_id[mask])
        return []

    def _vector_from_elements(self, op: Op, mask: np.ndarray) -> list[Any]:
        return [np.stack([np.broadcast_to(x, mask.shape) for x in self._all(op.operands)], -1)]

    def _vector_bitcast(self, op: Op, mask: np.ndarray) -> list[Any]:
        dtype, _ = op.results[0].type
        return [np.ascontiguousarray(self._see(op.operands[0])).view(dtype)]

    def _vector_extract(self, op: Op, mask: np.ndarray) -> list[Any]:
        (place,) = list(ir.DenseI64ArrayAttr(op.attributes["static_position"]))
        return [self._see(op.operands[0])[:, place]]

    def _llvm_extractvalue(self, op: Op, mask: np.ndarray) -> list[Any]:
        (place,) = list(ir.DenseI64ArrayAttr(op.attributes["position"]))
        return [self._see(op.operands[0])[place]]

    def _llvm_inline_asm(self, op: Op, mask: np.ndarray) -> list[Any]:
        text = ir.StringAttr(op.attributes["asm_string"]).value
        values = self._all(op.operands)
        if (parts := simt_mma.parse(text)) is not None:
            return [self._mma(parts, ir.StringAttr(op.attributes["constraints"]).value, values, mask)]
        assert np.count_nonzero(mask) == 1, f"'{text}' by several threads"
        address = int(np.broadcast_to(values[0], mask.shape)[mask][0])
        if _ACQUIRE.fullmatch(text):
            return [self._poll(address, op)]
        number = int(np.broadcast_to(values[1], mask.shape)[mask][0])
        assert _RELEASE.fullmatch(text) or _FETCH_ADD.fullmatch(text), f"no such instruction here: {text}"
        before = self._add(address, number)
        if op.results:
            self._clock.acquire(self._counters.at(address))
        return [before] if op.results else []

    def _counter(self, address: int) -> tuple[Region, int]:
        """Its region and place."""
        if address % 4:
            raise MemoryFault(f"a counter at {address:#x}")
        region = self._global.find(address)
        return region, address - region.start

    def _poll(self, address: int, op: Op) -> np.ndarray:
        region, place = self._counter(address)
        region.read(place + np.arange(4)[None], self._clock, np.zeros(1, np.int64), initial=True)
        value = region.bytes[place : place + 4].view(np.int32)[0]
        self._clock.acquire(self._counters.at(address))
        self._polls = f"byte {place} of {region.name} is {value}, at {mlir.location(op.location)}"
        return value

    def _add(self, address: int, number: int) -> np.ndarray:
        """Releases what the CTA did before its last barrier. Not noted as a read: whoever acquires comes after it."""
        region, place = self._counter(address)
        counter = region.bytes[place : place + 4].view(np.int32)
        before = counter[0].copy()
        counter[0] += np.int32(number)
        self._counters.released[address] = np.maximum(self._counters.at(address), self._clock.seen)
        self._counters.version += 1
        return before

    def _mma(self, parts: dict[str, str], constraints: str, values: list[Any], mask: np.ndarray) -> list[np.ndarray]:
        """Registers are found by the constraints: an input tied to an output has its number."""
        outputs = constraints.count("=")
        inputs = constraints.split(",")[outputs:]
        names = [f"${tie}" if tie.isdigit() else f"${outputs + i}" for i, tie in enumerate(inputs)]
        registers = dict(zip(names, values, strict=True))
        if not np.array_equal(mask, np.repeat(mask[:: simt_mma.LANES], simt_mma.LANES)):
            raise MemoryFault(f"CTA {self.number} has a product that some lanes of a warp do not reach")
        a, b, c = ([np.broadcast_to(registers[r], mask.shape) for r in parts[name].split(", ")] for name in "abc")
        assert parts["d"].split(", ") == [f"${i}" for i in range(outputs)]
        return list(simt_mma.mma(parts["kind"], int(parts["k"]), a, b, c))


def _align(op: Op, dtype: np.dtype, count: int) -> int:
    given = op.attributes.get("alignment")
    return ir.IntegerAttr(given).value if given is not None else dtype.itemsize * count
