"""Small words for building device code: folded 32-bit arithmetic, memory, loops, thread identity.

Wherever an `Int` is taken, a Python number stands for a constant and is folded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from kitsune_mlir.mlir import arith, gpu, ir, llvm, nvvm, scf, vector

GLOBAL, SHARED = 1, 3  # NVPTX address spaces
_LETTERS = {16: "h", 32: "r", 64: "l"}  # of registers, in constraints of inline PTX, by the bits of an integer


@dataclass(frozen=True)
class Offset:
    """`base` + `constant`. The base is between 0 and `span` (None: not known), that of the warp's first thread a
    multiple of `step`. Sums with numbers keep this form, so that a thread's columns can be told apart and compared
    while code is generated."""

    base: ir.Value
    constant: int
    span: int | None = None
    step: int = 1

    def moved(self, distance: int) -> Offset:
        return replace(self, constant=self.constant + distance)

    def quotient(self, size: int) -> int | None:
        """Divided by `size`, where that is one number for all threads."""
        if self.span is None or self.constant < 0:
            return None
        low, high = self.constant // size, (self.constant + self.span) // size
        return low if low == high else None


Int = int | ir.Value | Offset


def i1() -> ir.Type:
    return ir.IntegerType.get_signless(1)


def i32() -> ir.Type:
    return ir.IntegerType.get_signless(32)


def i64() -> ir.Type:
    return ir.IntegerType.get_signless(64)


def narrow(x: ir.Value) -> ir.Value:
    """An index that is known to be less than 2^32, as an i32."""
    return arith.index_cast(i32(), x)


def index(x: ir.Value) -> ir.Value:
    """A number without a sign as an index."""
    return arith.index_castui(ir.IndexType.get(), x)


def value(x: Int) -> ir.Value:
    """An i32 SSA value."""
    if isinstance(x, Offset):
        return arith.addi(x.base, value(x.constant)) if x.constant else x.base
    return arith.constant(i32(), x) if isinstance(x, int) else x


def add(a: Int, b: Int) -> Int:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if isinstance(a, int) and a == 0:
        return b
    if isinstance(b, int) and b == 0:
        return a
    if isinstance(b, Offset):
        a, b = b, a
    if isinstance(a, Offset):
        return a.moved(b) if isinstance(b, int) else Offset(arith.addi(a.base, value(b)), a.constant)
    return arith.addi(value(a), value(b))


def sub(a: Int, b: Int) -> Int:
    if isinstance(a, int) and isinstance(b, int):
        return a - b
    if isinstance(a, Offset) and isinstance(b, int):
        return a.moved(-b)
    return a if isinstance(b, int) and b == 0 else arith.subi(value(a), value(b))


def mul(a: Int, b: Int) -> Int:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if isinstance(b, int):
        a, b = b, a
    if isinstance(a, int) and a in (0, 1):
        return b if a else 0
    return arith.muli(value(a), value(b))


def div(a: Int, b: Int) -> Int:
    """Quotient of a non-negative number."""
    if not isinstance(b, int):
        return arith.divui(value(a), value(b))
    if isinstance(a, int):
        return a // b
    if isinstance(a, Offset) and (quotient := a.quotient(b)) is not None:
        return quotient
    return a if b == 1 else arith.divui(value(a), value(b))


def mod(a: Int, b: Int) -> Int:
    """Remainder of a non-negative number."""
    if not isinstance(b, int):
        return arith.remui(value(a), value(b))
    if isinstance(a, int):
        return a % b
    if isinstance(a, Offset) and (quotient := a.quotient(b)) is not None:
        return a.moved(-quotient * b)
    return 0 if b == 1 else arith.remui(value(a), value(b))


def flattened(index: Sequence[Int], sizes: Sequence[int]) -> Int:
    """The number of what stands at an index, in row-major order."""
    number: Int = 0
    for size, i in zip(sizes, index):
        number = add(mul(number, size), i)
    return number


def unflattened(number: Int, sizes: Sequence[int]) -> list[Int]:
    """The index of a row-major number in dimensions of these sizes."""
    found: list[Int] = []
    for d, size in enumerate(sizes):
        place = div(number, prod(sizes[d + 1 :]))
        found.append(mod(place, size) if d else place)
    return found


def least(a: Int, b: Int) -> Int:
    """The smaller of two signed numbers."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return arith.minsi(value(a), value(b))


def most(a: Int, b: Int) -> Int:
    """The larger of two signed numbers."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return arith.maxsi(value(a), value(b))


def is_less(a: Int, b: int) -> bool | None:
    """Whether a < b, where that is known while code is generated."""
    if isinstance(a, int):
        return a < b
    if isinstance(a, Offset) and a.span is not None:
        if a.constant + a.span < b:
            return True
        return False if a.constant >= b else None
    return None


def less(a: Int, b: Int) -> ir.Value:
    """a < b, signed, as i1."""
    return arith.cmpi(arith.CmpIPredicate.slt, value(a), value(b))


def flipped(x: ir.Value) -> ir.Value:
    """The other truth, or the other parity."""
    return arith.xori(x, arith.constant(x.type, 1))


def below(a: Int, b: Int) -> ir.Value:
    """a < b, without a sign: a negative number is below none."""
    return arith.cmpi(arith.CmpIPredicate.ult, value(a), value(b))


def equal(a: Int, b: Int) -> ir.Value:
    return arith.cmpi(arith.CmpIPredicate.eq, value(a), value(b))


def differs(a: Int, b: Int) -> ir.Value:
    return arith.cmpi(arith.CmpIPredicate.ne, value(a), value(b))


def has_bit(number: ir.Value, bit: int) -> ir.Value:
    """Whether a number has one of these bits."""
    return differs(arith.andi(number, value(bit)), 0)


def pointer_type(space: int) -> ir.Type:
    return ir.Type.parse(f"!llvm.ptr<{space}>")


def offset(pointer: ir.Value, count: Int, element: ir.Type) -> ir.Value:
    """The address `count` elements on; 64-bit counts may be i64 values."""
    if isinstance(count, Offset):
        return offset(offset(pointer, count.base, element), count.constant, element)
    if isinstance(count, int) and count == 0:
        return pointer
    dynamic, raw = ([], [count]) if isinstance(count, int) else ([count], [-(2**31)])
    return llvm.GEPOp(pointer.type, pointer, dynamic, raw, element, None).result


def further(
    pointer: ir.Value,
    count: Int,
    stride: int,
    element: ir.Type,
    sizes: Sequence[ir.Value] = (),
    extend: Callable[[ir.Type, ir.Value], ir.Value] = arith.extui,
) -> ir.Value:
    """The address `count` (without a sign unless `extend` says so, or i64) times `stride` elements on, and times these
    sizes, computed in 64 bits."""
    number = value(count)
    wide = number if number.type == i64() else extend(i64(), number)
    far = arith.muli(wide, arith.constant(i64(), stride))
    for size in sizes:
        far = arith.muli(far, arith.extui(i64(), size))
    return offset(pointer, far, element)


def shared(place: Int) -> ir.Value:
    """The pointer of an address (i32) in shared memory."""
    return llvm.IntToPtrOp(pointer_type(SHARED), value(place)).result


def load(pointer: ir.Value, type_: ir.Type, align: int | None = None, streamed: bool = False) -> ir.Value:
    """Loads; what is `streamed` is not kept in L1 (codegen/streamed.py)."""
    return llvm.LoadOp(type_, pointer, alignment=align, nontemporal=streamed or None).result


def store(x: ir.Value, pointer: ir.Value, align: int | None = None, streamed: bool = False) -> None:
    """The same of what is stored."""
    llvm.StoreOp(x, pointer, alignment=align, nontemporal=streamed or None)


def load_together(pointer: ir.Value, count: int, element: ir.Type, streamed: bool = False) -> list[ir.Value]:
    """So many neighbours, by one access, at a multiple of their size."""
    if count == 1:
        return [load(pointer, element)]
    return parts(load(pointer, ir.VectorType.get([count], element), count * element.width // 8, streamed))


def store_together(values: Sequence[ir.Value], pointer: ir.Value, streamed: bool = False) -> None:
    """The same of values of one type that are stored."""
    if len(values) == 1:
        store(values[0], pointer)
    else:
        store(whole(values), pointer, len(values) * values[0].type.width // 8, streamed)


def parts(values: ir.Value) -> list[ir.Value]:
    """The elements of a vector."""
    return [vector.extract(values, [], [i]) for i in range(ir.VectorType(values.type).shape[0])]


def whole(values: Sequence[ir.Value]) -> ir.Value:
    """The vector of these elements."""
    return vector.from_elements(ir.VectorType.get([len(values)], values[0].type), list(values))


def assembly(text: str, *operands: Int, result: ir.Type | None = None, **how: bool) -> ir.Value | None:
    """`assembled` with one result or none."""
    found = assembled(text, [] if result is None else [result], *operands, **how)
    return found[0] if found else None


def assembled(
    text: str,
    results: Sequence[ir.Type],
    *operands: Int,
    tied: Sequence[ir.Value] = (),
    memory: bool = True,
    effects: bool = True,
    early: bool = False,
) -> list[ir.Value]:
    """Inline PTX, only for what no operation covers. The first registers, from $0 on, are those of the results, then
    come as many for what is `tied` to the results, in the same registers, then the operands, of which truths (i1) are
    words. `memory`: no access to memory passes it; `effects`: it stays where it is; `early`: no operand is in the
    register of a result."""
    given = [_as_word(value(x)) for x in operands]
    constraints = [f"={'&' if early else ''}{_letter(kind)}" for kind in results] + [str(i) for i in range(len(tied))]
    constraints += [_letter(x.type) for x in given] + (["~{memory}"] if memory else [])
    type_ = results[0] if len(results) == 1 else llvm.StructType.get_literal(list(results)) if results else None
    op = llvm.InlineAsmOp(type_, [*tied, *given], text, ",".join(constraints), has_side_effects=effects)
    if len(results) < 2:
        return list(op.results)
    return [llvm.extractvalue(kind, op.results[0], [number]) for number, kind in enumerate(results)]


def where(condition: int, *instructions: str) -> str:
    """PTX instructions for the threads in which the operand of this number holds; predicated, for a branch between
    products would end their overlap."""
    predicated = "".join(f"@p {instruction}\n" for instruction in instructions)
    return f"{{\n.reg .pred p;\nsetp.ne.b32 p, ${condition}, 0;\n{predicated}}}"


def _as_word(x: ir.Value) -> ir.Value:
    """A truth as an i32; another value as it is."""
    kind = x.type
    return arith.extui(i32(), x) if isinstance(kind, ir.IntegerType) and kind.width == 1 else x


def _letter(kind: ir.Type) -> str:
    """The constraint that asks for a register of a type."""
    if isinstance(kind, ir.IntegerType):
        return _LETTERS[kind.width]
    return "l" if isinstance(kind, llvm.PointerType) else {ir.F32Type: "f", ir.F64Type: "d"}[type(kind)]


def signal(counter: ir.Value) -> None:
    """One thread: adds 1 to a counter (u32 in global memory), releasing at GPU scope what came before."""
    assembly("red.release.gpu.global.add.u32 [$0], $1;", counter, 1)


def thread() -> ir.Value:
    return nvvm.ThreadIdXOp().result


def cta() -> ir.Value:
    return nvvm.BlockIdXOp().result


def ctas() -> ir.Value:
    """The CTAs of the launch."""
    return nvvm.GridDimXOp().result


def barrier() -> None:
    """All threads of the CTA; orders their memory accesses (PTX ISA: bar.sync)."""
    gpu.BarrierOp()


@contextlib.contextmanager
def when(condition: ir.Value) -> Iterator[ir.Operation]:
    """Code for the threads in which `condition` holds; gives the branch."""
    branch = scf.IfOp(condition)
    with ir.InsertionPoint(branch.then_block):
        yield branch.operation
        scf.YieldOp([])


def choose(
    condition: ir.Value, type_: ir.Type, then: Callable[[], ir.Value], other: Callable[[], ir.Value]
) -> ir.Value:
    """A value computed by one of two pieces of code."""
    return either(condition, lambda: [then()], lambda: [other()], [type_])[0]


def either(
    condition: ir.Value,
    then: Callable[[], Sequence[ir.Value] | None],
    other: Callable[[], Sequence[ir.Value] | None],
    types: Sequence[ir.Type] = (),
) -> list[ir.Value]:
    """One of two pieces of code, and the values that it gives, if there are any."""
    branch = scf.IfOp(condition, list(types), has_else=True)
    for block, make in ((branch.then_block, then), (branch.else_block, other)):
        with ir.InsertionPoint(block):
            scf.YieldOp(make() or [])
    return list(branch.results)


def loop(
    start: Int,
    stop: Int,
    step: Int,
    body: Callable[[ir.Value, list[ir.Value]], list[ir.Value]],
    carried: Sequence[ir.Value] = (),
) -> list[ir.Value]:
    """A counted loop; `body` takes the counter and the carried values and gives their successors."""
    op = scf.ForOp(value(start), value(stop), value(step), list(carried))
    with ir.InsertionPoint(op.body):
        scf.YieldOp(body(op.induction_variable, list(op.inner_iter_args)))
    return list(op.results)
