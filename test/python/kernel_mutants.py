"""Mutants of what a lowering derives: counts, bytes, parities, fences, waits and arrivals in the IR of a GPU kernel.

Each instruction of the mechanisms is broken by itself, in each way that it can be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from kitsune_mlir import mlir
from kitsune_mlir.mlir import arith, ir, walk

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
Change = Callable[[ir.Operation], None]


def mutants(text: str) -> Iterator[tuple[str, ir.Module]]:
    """A sentence on what is broken, and the module with that broken; `text` is a module with persistent kernels."""
    whole = mlir.parse(text, mlir.context())
    places = [(number, said) for number, op in enumerate(_candidates(whole)) for said, _ in _ways(op)]
    for number, (place, said) in enumerate(places):
        module = mlir.clone(whole)
        op = _candidates(module)[place]
        dict(_ways(op))[said](op)
        assert module.operation.verify(), said
        yield f"{said} (mutant {number})", module


def _candidates(module: ir.Module) -> list[ir.Operation]:
    """The operations of persistent kernels that may be broken, in order."""
    kernels = [kernel for kernel in walk(module, "gpu.module") if "kitsune.pipeline" in kernel.attributes]
    return [op for kernel in kernels for op in walk(kernel, ASSEMBLY, "arith.xori", *BARRIERS)]


def _ways(op: ir.Operation) -> list[tuple[str, Change]]:
    """The ways in which an operation can be broken."""
    if op.name in BARRIERS:
        return [(f"no {BARRIERS[op.name]}", _erase)]
    if op.name == "arith.xori" and _number(op.operands[1]) == 1 and isinstance(op.results[0].type, ir.IntegerType):
        return [("a parity that is not flipped", _set_operand(1, 0))] if op.results[0].type.width == 32 else []
    if op.name != ASSEMBLY:
        return []
    text = ir.StringAttr(op.attributes["asm_string"]).value
    if INIT in text:
        count = _number(op.operands[1])
        return [(f"{n} arrivals in place of {count}", _set_operand(1, n)) for n in (count - 1, count + 1)]
    if EXPECT in text and (written := EXPECTED.search(text)):
        nbytes = int(written[1])
        return [
            *(
                (f"{n} bytes expected of {nbytes}", _set_text(text.replace(f", {nbytes};", f", {n};")))
                for n in (nbytes // 2, nbytes - 16, nbytes + 16)
            ),
            ("no bytes expected and no arrival", _erase),
        ]
    if EXPECT in text:
        nbytes = _number(op.operands[1])
        return [
            *((f"{n} bytes expected of {nbytes}", _set_operand(1, n)) for n in (nbytes - 16, nbytes + 16)),
            ("no bytes expected and no arrival", _erase),
        ]
    if WAIT in text:
        flipped = text.replace(".reg .pred done;", ".reg .pred done;\n.reg .b32 q;\nxor.b32 q, $1, 1;")
        flipped = flipped.replace("[$0], $1;", "[$0], q;")
        return [("no wait on an mbarrier", _erase), ("a wait for the other parity", _set_text(flipped))]
    if FAR in text:
        return [("no arrival at another CTA", _erase)]
    if SENT in text:
        return [("nothing sent", _erase)]
    if ARRIVE in text:
        (line,) = (line for line in text.split("\n") if ARRIVE in line)
        return [
            ("no arrival", _erase),
            ("an arrival twice", _set_text(text.replace(line, f"{line}\n{line}"))),
            ("an arrival of every thread", _set_text(text.replace("@p ", ""))),
        ]
    if SIGNAL in text:
        return [("no signal", _erase), ("a signal twice", _set_operand(1, 2))]
    if COUNTER in text:
        return [("no wait on a counter", _erase)]
    if FENCE in text:
        return [("no fence between proxies", _erase)]
    if STORED in text:
        return [("no wait for stores", _erase)]
    if found := PENDING.search(text):
        more = PENDING.sub(rf"\1 {int(found[2]) + 1}", text)
        return [(f"a wait for all products but {int(found[2]) + 1}", _set_text(more))]
    if "wgmma.fence" in text:
        return [("no fence before products", _set_text(text.replace("wgmma.fence.sync.aligned;\n", "")))]
    return []


def _erase(op: ir.Operation) -> None:
    op.erase()


def _set_text(text: str) -> Change:
    def change(op: ir.Operation) -> None:
        with op.context:
            op.attributes["asm_string"] = ir.StringAttr.get(text)

    return change


def _set_operand(number: int, value: int) -> Change:
    def change(op: ir.Operation) -> None:
        with op.context, op.location, ir.InsertionPoint(op):
            op.operands[number] = arith.constant(op.operands[number].type, value)

    return change


def _number(value: ir.Value) -> int | None:
    """The number that a value is, where it is a constant."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "arith.constant":
        return None
    attribute = owner.operation.attributes["value"]
    return ir.IntegerAttr(attribute).value if isinstance(attribute, ir.IntegerAttr) else None
