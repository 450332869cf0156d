"""Scalar arithmetic as Python expressions: `a * b + 1.0` builds arith operations at the insertion point.

Numbers take the type of the operand beside them. Comparisons are ordered (false for NaN) on floats and
signed on integers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from kitsune_mlir.codegen.pipeline.device import assembly, either
from kitsune_mlir.mlir import arith, ir, math, scf

Number = int | float


class Scalar:
    """An SSA value of float, integer or index type with operators."""

    __slots__ = ("value",)

    def __init__(self, value: ir.Value):
        self.value = value

    @property
    def real(self) -> bool:
        return isinstance(self.value.type, ir.FloatType)

    @property
    def width(self) -> int:
        """Bits of the type; 32 or 64 for the floats that elementary functions are written for."""
        return self.value.type.width

    @property
    def single(self) -> bool:
        return isinstance(self.value.type, ir.F32Type)

    def const(self, number: Number) -> Scalar:
        """A constant of this value's type."""
        kind = self.value.type
        if self.real:
            return Scalar(arith.constant(kind, float(number)))
        if isinstance(kind, ir.IntegerType) and kind.width > 64:
            return Scalar(arith.ConstantOp(kind, ir.Attribute.parse(f"{number} : {kind}")).result)
        return Scalar(arith.constant(kind, int(number)))

    def _of(self, other: Scalar | Number) -> ir.Value:
        return other.value if isinstance(other, Scalar) else self.const(other).value

    def _binary(self, other: Scalar | Number, real: Callable, whole: Callable, swap: bool = False) -> Scalar:
        operands = (self.value, self._of(other))
        return Scalar((real if self.real else whole)(*(reversed(operands) if swap else operands)))

    def __add__(self, other: Scalar | Number) -> Scalar:
        return self._binary(other, arith.addf, arith.addi)

    def __sub__(self, other: Scalar | Number) -> Scalar:
        return self._binary(other, arith.subf, arith.subi)

    def __mul__(self, other: Scalar | Number) -> Scalar:
        return self._binary(other, arith.mulf, arith.muli)

    def __truediv__(self, other: Scalar | Number) -> Scalar:
        return self._binary(other, arith.divf, arith.divsi)

    def __rsub__(self, other: Number) -> Scalar:
        return self._binary(other, arith.subf, arith.subi, swap=True)

    def __rtruediv__(self, other: Number) -> Scalar:
        return self._binary(other, arith.divf, arith.divsi, swap=True)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Scalar:
        return Scalar(arith.negf(self.value)) if self.real else 0 - self

    def __abs__(self) -> Scalar:
        return Scalar(math.absf(self.value)) if self.real else select(self < 0, -self, self)

    def __and__(self, other: Scalar | Number) -> Scalar:
        return Scalar(arith.andi(self.value, self._of(other)))

    def __or__(self, other: Scalar | Number) -> Scalar:
        return Scalar(arith.ori(self.value, self._of(other)))

    def __xor__(self, other: Scalar | Number) -> Scalar:
        return Scalar(arith.xori(self.value, self._of(other)))

    def __lshift__(self, other: Scalar | Number) -> Scalar:
        return Scalar(arith.shli(self.value, self._of(other)))

    def __rshift__(self, other: Scalar | Number) -> Scalar:
        """Arithmetic: keeps the sign."""
        return Scalar(arith.shrsi(self.value, self._of(other)))

    def _compare(self, other: Scalar | Number, real: str, whole: str) -> Scalar:
        if self.real:
            return Scalar(arith.cmpf(arith.CmpFPredicate[real], self.value, self._of(other)))
        return Scalar(arith.cmpi(arith.CmpIPredicate[whole], self.value, self._of(other)))

    def __lt__(self, other: Scalar | Number) -> Scalar:
        return self._compare(other, "OLT", "slt")

    def __le__(self, other: Scalar | Number) -> Scalar:
        return self._compare(other, "OLE", "sle")

    def __gt__(self, other: Scalar | Number) -> Scalar:
        return self._compare(other, "OGT", "sgt")

    def __ge__(self, other: Scalar | Number) -> Scalar:
        return self._compare(other, "OGE", "sge")

    def equals(self, other: Scalar | Number) -> Scalar:
        return self._compare(other, "OEQ", "eq")

    def differs(self, other: Scalar | Number) -> Scalar:
        """Ordered on floats too: a NaN neither equals nor differs."""
        return self._compare(other, "ONE", "ne")

    def is_nan(self) -> Scalar:
        return self._compare(self, "UNO", "ne")

    def bits(self) -> Scalar:
        """A float's bits as an integer of the same width."""
        return Scalar(arith.bitcast(ir.IntegerType.get_signless(self.width), self.value))

    def as_real(self, like: Scalar) -> Scalar:
        """An integer's bits as a float of `like`'s type."""
        return Scalar(arith.bitcast(like.value.type, self.value))

    def to_real(self, like: Scalar) -> Scalar:
        """A signed integer's value as a float of `like`'s type; a float's, in `like`'s precision."""
        if not self.real:
            return Scalar(arith.sitofp(like.value.type, self.value))
        if self.width == like.width:
            return self
        return Scalar((arith.extf if self.width < like.width else arith.truncf)(like.value.type, self.value))

    def to_double(self) -> Scalar:
        """An f32's value as f64."""
        return Scalar(arith.extf(ir.F64Type.get(), self.value))

    def to_int(self, width: int) -> Scalar:
        """A float's whole part, or an integer, as a signed integer of `width` bits."""
        kind = ir.IntegerType.get_signless(width)
        if self.real:
            return Scalar(arith.fptosi(kind, self.value))
        if self.width == width:
            return self
        return Scalar((arith.extsi if self.width < width else arith.trunci)(kind, self.value))

    def rint(self) -> Scalar:
        return Scalar(math.roundeven(self.value))

    def sqrt(self) -> Scalar:
        return Scalar(math.sqrt(self.value))

    def copysign(self, sign: Scalar) -> Scalar:
        return Scalar(math.copysign(self.value, sign.value))

    def clamp(self, low: Number, high: Number) -> Scalar:
        """NaN stays NaN."""
        return Scalar(arith.minimumf(arith.maximumf(self.value, self._of(low)), self._of(high)))


def fma(a: Scalar, b: Scalar | Number, c: Scalar | Number) -> Scalar:
    """a * b + c, rounded once."""
    return Scalar(math.fma(a.value, a._of(b), a._of(c)))


def select(condition: Scalar, yes: Scalar | Number, no: Scalar | Number) -> Scalar:
    """At least one of the two is a Scalar."""
    like = yes if isinstance(yes, Scalar) else no
    assert isinstance(like, Scalar)
    return Scalar(arith.select(condition.value, like._of(yes), like._of(no)))


def branch(
    condition: Scalar, yes: Callable[[], Sequence[Scalar]], no: Callable[[], Sequence[Scalar]], types: list[ir.Type]
) -> list[Scalar]:
    """Executes one side only: for costly sides that are seldom taken."""
    sides = (lambda side=side: [result.value for result in side()] for side in (yes, no))
    return [Scalar(result) for result in either(condition.value, *sides, types)]


def loop(
    state: list[Scalar],
    condition: Callable[[list[Scalar]], Scalar],
    body: Callable[[list[Scalar]], list[Scalar]],
) -> list[Scalar]:
    """`while condition(state): state = body(state)`."""
    types = [part.value.type for part in state]
    places = [ir.Location.current] * len(types)
    op = scf.WhileOp(types, [part.value for part in state])
    before, after = op.before.blocks.append(*types, arg_locs=places), op.after.blocks.append(*types, arg_locs=places)
    with ir.InsertionPoint(before):
        scf.condition(condition([Scalar(part) for part in before.arguments]).value, before.arguments)
    with ir.InsertionPoint(after):
        scf.yield_([part.value for part in body([Scalar(part) for part in after.arguments])])
    return [Scalar(result) for result in op.results]


def polynomial(x: Scalar, coefficients: Sequence[float]) -> Scalar:
    """Horner's scheme; coefficients of 1, x, x^2, ..."""
    total: Scalar | None = None
    for coefficient in reversed(coefficients):
        total = x.const(coefficient) if total is None else fma(total, x, coefficient)
    assert total is not None
    return total


def approximate(instruction: str, *operands: Scalar) -> Scalar:
    """An f32 instruction of the special function unit (PTX ISA 9.7.3): "ex2.approx.f32", ..."""
    places = ", ".join(f"${i}" for i in range(len(operands) + 1))
    given = [x.value for x in operands]
    return Scalar(assembly(f"{instruction} {places};", *given, result=ir.F32Type.get(), memory=False, effects=False))


def rounded(number: float, bits: int = 24) -> float:
    """The number to `bits` significant bits (24: to float32)."""
    if bits == 24:
        return struct.unpack("f", struct.pack("f", number))[0]
    mantissa, exponent = number.hex().split("p")
    scale = 2.0 ** (bits - 1 - int(exponent))
    return round(number * scale) / scale
