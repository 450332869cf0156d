"""Mutants of what a lowering derives: counts, bytes, parities, fences, waits and arrivals in a GPU kernel, as the
simulator has read it.

Each instruction of the mechanisms is broken by itself, in each way that it can be.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from kitsune_mlir.mlir import ir
from kitsune_mlir.tools.gpusim.decode import Block, Op, read_assembly

ASSEMBLY = "llvm.inline_asm"
INIT, EXPECT, WAIT, ARRIVE = (
    "mbarrier.init.",
    "mbarrier.arrive.expect_tx.",
    "mbarrier.try_wait.",
    "mbarrier.arrive.shared",
)
FAR, SENT = "mbarrier.arrive.relaxed.cluster", "st.async.weak"
EXPECTED = re.compile(r"arrive\.expect_tx[^\n]*\], (\d+);")
SIGNAL, COUNTER, STORED = "red.release.gpu.", "ld.acquire.gpu.", "cp.async.bulk.wait_group 0"
FENCE = "fence.proxy.async"
PENDING = re.compile(r"(wgmma\.wait_group\.sync\.aligned) (\d+)")
BARRIERS = {"gpu.barrier": "barrier of the CTA", "nvvm.fence.mbarrier.init": "fence behind mbarrier.init"}
Constants = dict[int, np.ndarray]  # of a kernel, by key
Change = Callable[[Op, Constants], list[Op]]  # what stands in place of an operation


@dataclass
class Mutant:
    """Within the `with`, the kernel is broken as `said`: in one place it has other operations."""

    said: str
    block: Block
    place: int
    broken: list[Op]

    def __enter__(self) -> None:
        self._whole = self.block.operations[self.place]
        self.block.operations[self.place : self.place + 1] = self.broken

    def __exit__(self, *_: object) -> None:
        self.block.operations[self.place : self.place + len(self.broken)] = [self._whole]


def mutants(kernels: Iterable[Op]) -> list[Mutant]:
    """Those of kernels that the simulator has read; they may be broken one at a time."""
    return [
        Mutant(said, block, place, change(block.operations[place], kernel.constants))
        for kernel in kernels
        for block, place in _places(kernel)
        for said, change in _ways(block.operations[place], kernel.constants)
    ]


def _places(op: Op) -> Iterator[tuple[Block, int]]:
    """Where operations stand that an operation contains, in order."""
    for block in itertools.chain.from_iterable(region.blocks for region in op.regions):
        for place, inner in enumerate(block.operations):
            yield block, place
            yield from _places(inner)


def _ways(op: Op, constants: Constants) -> list[tuple[str, Change]]:
    """The ways in which an operation can be broken."""
    if op.name in BARRIERS:
        return [(f"no {BARRIERS[op.name]}", _erased)]
    if op.name == "arith.xori" and _number(op, 1, constants) == 1:
        return [("a parity that is not flipped", _with_operand(1, 0))] if op.results[0].type == np.int32 else []
    if op.name != ASSEMBLY:
        return []
    text = op.assembly.text
    if INIT in text:
        count = _number(op, 1, constants)
        return [(f"{n} arrivals in place of {count}", _with_operand(1, n)) for n in (count - 1, count + 1)]
    if EXPECT in text and (written := EXPECTED.search(text)):
        nbytes = int(written[1])
        return [
            *(
                (f"{n} bytes expected of {nbytes}", _with_text(text.replace(f", {nbytes};", f", {n};")))
                for n in (nbytes // 2, nbytes - 16, nbytes + 16)
            ),
            ("no bytes expected and no arrival", _erased),
        ]
    if EXPECT in text:
        nbytes = _number(op, 1, constants)
        return [
            *((f"{n} bytes expected of {nbytes}", _with_operand(1, n)) for n in (nbytes - 16, nbytes + 16)),
            ("no bytes expected and no arrival", _erased),
        ]
    if WAIT in text:
        flipped = text.replace(".reg .pred done;", ".reg .pred done;\n.reg .b32 q;\nxor.b32 q, $1, 1;")
        flipped = flipped.replace("[$0], $1;", "[$0], q;")
        return [("no wait on an mbarrier", _erased), ("a wait for the other parity", _with_text(flipped))]
    if FAR in text:
        return [("no arrival at another CTA", _erased)]
    if SENT in text:
        return [("nothing sent", _erased)]
    if ARRIVE in text:
        (line,) = (line for line in text.split("\n") if ARRIVE in line)
        return [
            ("no arrival", _erased),
            ("an arrival twice", _with_text(text.replace(line, f"{line}\n{line}"))),
            ("an arrival of every thread", _with_text(text.replace("@p ", ""))),
        ]
    if SIGNAL in text:
        return [("no signal", _erased), ("a signal twice", _with_operand(1, 2))]
    if COUNTER in text:
        return [("no wait on a counter", _erased)]
    if FENCE in text:
        return [("no fence between proxies", _erased)]
    if STORED in text:
        return [("no wait for stores", _erased)]
    if found := PENDING.search(text):
        more = PENDING.sub(rf"\1 {int(found[2]) + 1}", text)
        return [(f"a wait for all products but {int(found[2]) + 1}", _with_text(more))]
    if "wgmma.fence" in text:
        return [("no fence before products", _with_text(text.replace("wgmma.fence.sync.aligned;\n", "")))]
    return []


def _erased(op: Op, constants: Constants) -> list[Op]:
    return []


def _with_text(text: str) -> Change:
    def change(op: Op, constants: Constants) -> list[Op]:
        constraints = ir.StringAttr(op.attributes["constraints"]).value
        return [replace(op, assembly=read_assembly(text, constraints, len(op.operands)))]

    return change


def _with_operand(number: int, value: int) -> Change:
    def change(op: Op, constants: Constants) -> list[Op]:
        key = -len(constants)  # no value's: theirs are addresses
        constants[key] = np.array(value, np.int32)
        return [replace(op, operands=[*op.operands[:number], key, *op.operands[number + 1 :]])]

    return change


def _number(op: Op, operand: int, constants: Constants) -> int | None:
    """The number that an operand is, where it is a constant."""
    found = constants.get(op.operands[operand])
    return int(found) if found is not None and found.ndim == 0 and found.dtype.kind == "i" else None
