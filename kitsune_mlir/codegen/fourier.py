"""Discrete Fourier transforms, for the CPU and the GPU alike: kitsune.fourier while tensors become buffers, and the
arithmetic of a pass.

    %x:2 = "kitsune.fourier"(%re, %im) {size = 1024, ...}   =>   %x:2 = call @kitsune_fourier0(%waves, %re, %im)

A pass of radix r over n numbers, of which transforms of s each are made, has a butterfly for each b < n / r. It takes
the numbers b + i n / r, i < r, turns number i by i (b mod s) / (r s) of a circle, transforms them, and gives those at
(b - b mod s) r + b mod s + i s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kitsune_mlir.dialects.fourier import FourierOp
from kitsune_mlir.mlir import arith, ir, replace_op, walk
from kitsune_mlir.operations import slice_of, users_of
from kitsune_mlir.planning.fourier import radices
from kitsune_mlir.rows import is_size_of

from .outlined import Call, calls, outlined

CALL = "kitsune_fourier"  # what a kitsune.fourier is a call of while tensors become buffers
_LOADED = 4
_SAID = ("dimension", "size", "scale", "inverse")


class Complex(NamedTuple):
    """A number's parts."""

    re: ir.Value
    im: ir.Value


@dataclass(frozen=True)
class Transform(Call):
    """What a call transforms, and how. `waves` are the numbers of a circle (n x 2), exp(2 pi i j / n)."""

    dimension: int
    size: int
    scale: float
    inverse: bool

    @property
    def waves(self) -> ir.Value:
        return self.call.operands[0]

    @property
    def parts(self) -> list[ir.Value]:
        return list(self.call.operands)[1:]

    @property
    def element(self) -> ir.Type:
        return ir.MemRefType(self.parts[0].type).element_type

    @property
    def given(self) -> int:
        """How many numbers operands have along the dimension."""
        return int(ir.MemRefType(self.parts[0].type).shape[self.dimension])

    @property
    def kept(self) -> int:
        """The same of results."""
        return int(ir.MemRefType(self.call.results[0].type).shape[self.dimension])

    @property
    def is_real(self) -> bool:
        """Whether results are real, of the first half of the numbers."""
        return len(self.call.results) == 1


class Pass(NamedTuple):
    """A pass of that radix, where transforms of `done` numbers each are made already of `size` in all."""

    size: int
    done: int
    radix: int

    @property
    def butterflies(self) -> int:
        return self.size // self.radix


def passes(size: int) -> list[Pass]:
    """Those of a transform of so many numbers."""
    found, done = list[Pass](), 1
    for radix in radices(size) or ():
        found.append(Pass(size, done, radix))
        done *= radix
    return found


def outline_transforms(module: ir.Module) -> None:
    """Makes calls of kitsune.fouriers, which bufferization takes for calls of code from elsewhere."""
    for op in walk(module, FourierOp.OPERATION_NAME):
        _cut(op)
    for position, op in enumerate(walk(module, FourierOp.OPERATION_NAME)):
        with op.context, op.location:
            given = [_waves(op), *op.operands]
        own, call = outlined(module, op, f"{CALL}{position}", given, [result.type for result in op.results])
        for said in _SAID:
            if said in op.attributes:
                own.attributes[said] = op.attributes[said]
        for old, new in zip(op.results, call.results, strict=True):
            old.replace_all_uses_with(new)
        op.erase()


def _cut(op: ir.Operation) -> None:
    """Has a transform give no more than the first results that anybody reads."""
    uses = [user for result in op.results for user in users_of(result)]
    kind, d = ir.RankedTensorType(op.results[0].type), op.opview.axis
    kept = {slice_of(user).sizes[d] for user in uses if user.name == "tensor.extract_slice" and _begins(user, d)}
    if len(kept) != 1 or not all(user.name == "tensor.extract_slice" and _begins(user, d) for user in uses):
        return
    shape = list(kind.shape)
    (shape[d],) = kept
    with op.location, ir.InsertionPoint(op):
        narrow = ir.RankedTensorType.get(shape, kind.element_type)
        attributes = {name: op.attributes[name] for name in op.attributes}
        made = ir.Operation.create(op.name, [narrow] * len(op.results), list(op.operands), attributes)
    for old, new in zip(op.results, made.results, strict=True):
        for use in list(old.uses):
            user = use.owner.operation
            if user.results[0].type == narrow:
                replace_op(user, new)
            else:
                user.operands[0] = new
    op.erase()


def _begins(part: ir.Operation, d: int) -> bool:
    """Whether a slice is the first elements of a tensor, fewer than all along dimension d alone."""
    offsets, sizes, steps = slice_of(part)
    whole = ir.RankedTensorType(part.operands[0].type)
    if any(offsets) or any(step != 1 for step in steps) or len(sizes) != part.results[0].type.rank or sizes[d] < 0:
        return False
    open_ = iter(list(part.operands)[1:])
    same = []
    for axis, (size, own) in enumerate(zip(sizes, whole.shape, strict=True)):
        if axis != d and whole.is_dynamic_dim(axis):
            same.append(size < 0 and is_size_of(next(open_), part.operands[0], axis))
        elif axis != d:
            same.append(size == own)
    return all(same)


def transforms(module: ir.Module) -> list[Transform]:
    """Those that calls stand for, after bufferization."""
    found = []
    for op, function in calls(module, CALL):
        said = function.attributes
        dimension, size = (ir.IntegerAttr(said[key]).value for key in ("dimension", "size"))
        scale = ir.FloatAttr(said["scale"]).value
        found.append(Transform(op, function, dimension, size, scale, "inverse" in said))
    return found


def _waves(op: ir.Operation) -> ir.Value:
    kind, size = ir.RankedTensorType(op.operands[0].type).element_type, op.opview.length
    angle = 2 * np.pi * np.arange(size) / size
    numbers = np.stack([np.cos(angle), np.sin(angle)], 1)
    with ir.InsertionPoint(op):
        data = numbers.astype(np.float32 if isinstance(kind, ir.F32Type) else np.float64)
        constant = ir.DenseElementsAttr.get(np.ascontiguousarray(data), type=kind, shape=[size, 2])
        return arith.ConstantOp(ir.RankedTensorType.get([size, 2], kind), constant).result


def turned(numbers: Sequence[Complex], wave: Callable[[int], Complex], inverse: bool) -> list[Complex]:
    """Number i times `wave(i)`, or, unless `inverse`, times the conjugate of that. It is the product of two where i is
    neither small nor a multiple of `_LOADED`, so that little is loaded and little lost."""
    waves: dict[int, Complex] = {}
    for i in range(1, len(numbers)):
        high, low = i // _LOADED * _LOADED, i % _LOADED
        if high and low:
            waves[i] = multiplied(waves[high], waves[low])
        else:
            own = wave(i)
            waves[i] = own if inverse else Complex(own.re, arith.negf(own.im))
    return [numbers[0], *(multiplied(number, waves[i]) for i, number in enumerate(numbers) if i)]


def multiplied(a: Complex, b: Complex) -> Complex:
    """The product of two numbers."""
    return Complex(
        arith.subf(arith.mulf(a.re, b.re), arith.mulf(a.im, b.im)),
        arith.addf(arith.mulf(a.re, b.im), arith.mulf(a.im, b.re)),
    )


def scaled(number: Complex, scale: float) -> Complex:
    """A number times a real one."""
    if scale == 1.0:
        return number
    factor = arith.constant(number.re.type, scale)
    return Complex(arith.mulf(number.re, factor), arith.mulf(number.im, factor))


def butterfly(x: Sequence[Complex], inverse: bool) -> list[Complex]:
    """The transform of a few numbers, unscaled."""
    n = len(x)
    a = next((d for d in (4, 2, 3, 5, 7, 11, 13) if n % d == 0 and n > d), n)
    if a < n:
        return _composed(x, a, n // a, inverse)
    if n == 1:
        return list(x)
    if n == 2:
        return [_plus(*x), _minus(*x)]
    return _four(x, inverse) if n == 4 else _odd(x, inverse)


def _composed(x: Sequence[Complex], a: int, b: int, inverse: bool) -> list[Complex]:
    """The transform of a times b numbers is made of b transforms of a numbers, and a of b."""
    inner = [butterfly(x[j::b], inverse) for j in range(b)]
    found: list[Complex | None] = [None] * (a * b)
    for k in range(a):
        own = [_by_constant(inner[j][k], j * k, a * b, inverse) for j in range(b)]
        found[k::a] = butterfly(own, inverse)
    return [number for number in found if number is not None]


def _four(x: Sequence[Complex], inverse: bool) -> list[Complex]:
    even, odd = (_plus(x[i], x[i + 2]) for i in range(2))
    even_less, odd_less = (_minus(x[i], x[i + 2]) for i in range(2))
    quarter = _by_constant(odd_less, 1, 4, inverse)
    return [_plus(even, odd), _plus(even_less, quarter), _minus(even, odd), _minus(even_less, quarter)]


def _odd(x: Sequence[Complex], inverse: bool) -> list[Complex]:
    """Of an odd prime of numbers: numbers j and n - j have the same cosines, and opposite sines."""
    n, half = len(x), len(x) // 2
    both = [(_plus(x[j], x[n - j]), _minus(x[j], x[n - j])) for j in range(1, half + 1)]
    total = x[0]
    for same, _ in both:
        total = _plus(total, same)
    found: list[Complex] = [total] * n
    for k in range(1, half + 1):
        re, im, re_turned, im_turned = x[0].re, x[0].im, None, None
        for j, (same, opposite) in enumerate(both, 1):
            cos, sin = _wave(j * k, n, inverse)
            cosine, sine = (arith.constant(re.type, value) for value in (cos, sin))
            re, im = arith.addf(re, arith.mulf(cosine, same.re)), arith.addf(im, arith.mulf(cosine, same.im))
            own = arith.mulf(sine, opposite.im), arith.mulf(sine, opposite.re)
            re_turned = own[0] if re_turned is None else arith.addf(re_turned, own[0])
            im_turned = own[1] if im_turned is None else arith.addf(im_turned, own[1])
        found[k] = Complex(arith.subf(re, re_turned), arith.addf(im, im_turned))
        found[n - k] = Complex(arith.addf(re, re_turned), arith.subf(im, im_turned))
    return found


def _by_constant(x: Complex, turn: int, n: int, inverse: bool) -> Complex:
    """Turned by `turn` / n of a circle."""
    turn %= n
    if turn == 0:
        return x
    if 2 * turn == n:
        return Complex(arith.negf(x.re), arith.negf(x.im))
    if 4 * turn in (n, 3 * n):  # by i, or by -i
        upward = (4 * turn == n) == inverse
        return Complex(arith.negf(x.im), x.re) if upward else Complex(x.im, arith.negf(x.re))
    cos, sin = (arith.constant(x.re.type, value) for value in _wave(turn, n, inverse))
    return multiplied(x, Complex(cos, sin))


def _wave(turn: int, n: int, inverse: bool) -> tuple[float, float]:
    """The parts of the number at `turn` / n of a circle, which goes round the other way unless `inverse`."""
    angle = 2 * math.pi * (turn % n) / n
    return math.cos(angle), math.sin(angle) if inverse else -math.sin(angle)


def _plus(a: Complex, b: Complex) -> Complex:
    return Complex(arith.addf(a.re, b.re), arith.addf(a.im, b.im))


def _minus(a: Complex, b: Complex) -> Complex:
    return Complex(arith.subf(a.re, b.re), arith.subf(a.im, b.im))
