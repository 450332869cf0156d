"""Discrete Fourier transforms.

Those of n numbers along a dimension, n a product of small primes, are operators of their own (kitsune.fourier), which
both targets have code for. Any other is one product with a matrix of cosines and sines; of both parts side by side,

    [re | im] @ [[cos, -sin], [sin, cos]]       the angle of row j and column k is 2 pi (j k mod n) / n

with `sin` negated for the inverse. Where n is large and has divisors, n = a b, it is a transform of a numbers, a factor
for each, and one of b numbers (Cooley and Tukey). Of real numbers half of the results say all: the others are their
conjugates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from operator import getitem
from typing import Any, NamedTuple

import torch
from torch.fx import Node

from kitsune_mlir.planning.fourier import fits

from .own_operators import FOURIER, FOURIER_TO_REAL
from .real_pairs import Calls, Pair, Part

aten = torch.ops.aten

_DENSE = 512  # the most numbers that are transformed by one product where there is another way

OVER = {"": None, "2": (-2, -1), "n": None}  # the dimensions that an operator transforms when it is given none
TRANSFORMS = {
    getattr(aten, f"fft_{name}{over}"): (half, to_real, inverse, over)
    for name, half, to_real, inverse in (
        ("fft", False, False, False),
        ("ifft", False, False, True),
        ("rfft", True, False, False),
        ("irfft", True, True, True),
        ("hfft", True, True, False),
        ("ihfft", True, False, True),
    )
    for over in OVER
}
_PARTS = (aten._fft_r2c, aten._fft_c2c, aten._fft_c2r)  # what torch takes these apart into
POWERS = {None: (0.0, -1.0), "backward": (0.0, -1.0), "ortho": (-0.5, -0.5), "forward": (-1.0, 0.0)}


def transform(node: Node, parts: Pair, to: Calls) -> Pair | Node | None:
    """What a transform computes of an operand's parts; None where a size is open until the call."""
    said = _of_parts if node.target.overloadpacket in _PARTS else _as_called
    half, to_real, inverse, sizes, dims, power = said(node)
    value = node.args[0].meta["val"]
    dims = [dim % value.dim() for dim in dims]
    for dim, size in zip(dims, sizes, strict=True):
        if not isinstance(value.shape[dim], int):
            if not isinstance(size, int) or size < 0:
                return None
            parts = _of_known_size(parts, dim, size, to)
            value = parts[0].meta["val"]
    if to_real and sizes[-1] is None:
        sizes[-1] = 2 * (value.shape[dims[-1]] - 1)
    sizes = [value.shape[dim] if size in (None, -1) else size for size, dim in zip(sizes, dims, strict=True)]
    order = list(zip(dims, sizes, strict=True))
    if half and not to_real:
        order = [order[-1], *order[:-1]]  # of real numbers first, of which half the results are kept
    for i, (dim, size) in enumerate(order):
        last = i == len(order) - 1
        kept = size // 2 + 1 if half and not to_real and i == 0 else size
        along = _Along(to, dim, size, inverse, float(math.prod(sizes)) ** power if last else 1.0)
        parts = along.to_real(parts) if to_real and last else along.of_all(parts, kept)
    re, im = parts
    return re if to_real else (re, im)


def _of_known_size(parts: Pair, dim: int, size: int, to: Calls) -> Pair:
    """Numbers along a dimension of an open size, made longer by as many zeros as are wanted, and cut."""

    def cut(part: Part) -> Part:
        if not isinstance(part, Node):
            return part
        behind = part.meta["val"].dim() - 1 - dim
        longer = to.call(aten.constant_pad_nd.default, part, [*[0] * (2 * behind + 1), size], 0.0)
        return to.call(aten.slice.Tensor, longer, dim, 0, size)

    re, im = map(cut, parts)
    return re, im


def is_transform(packet: Any) -> bool:
    """Whether `transform` knows an operator."""
    return packet in TRANSFORMS or packet in _PARTS


class _Call(NamedTuple):
    """A transform: whether one side is real, of which half the numbers of the other say all; sizes, None where they are
    those of the operand; and the power of the count of numbers by which results are scaled."""

    half: bool
    to_real: bool  # whether the real side is that of the results
    inverse: bool
    sizes: list[int | None]
    dims: list[int]
    power: float


def _as_called(node: Node) -> _Call:
    half, to_real, inverse, over = TRANSFORMS[node.target.overloadpacket]
    rank = node.args[0].meta["val"].dim()
    names = [argument.name for argument in node.target._schema.arguments]
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    power = POWERS[given.get("norm")][inverse]
    if over == "":
        return _Call(half, to_real, inverse, [given.get("n")], [given.get("dim", -1)], power)
    sizes, dims = given.get("s"), given.get("dim", OVER[over])
    if dims is None:
        dims = range(rank - len(sizes), rank) if sizes is not None else range(rank)
    return _Call(half, to_real, inverse, list(sizes) if sizes is not None else [None] * len(dims), list(dims), power)


def _of_parts(node: Node) -> _Call:
    _, dims, normalization, last = node.args
    power = -0.5 * normalization  # torch's numbers are 0, 1 by the root, 2 by the count
    sizes: list[int | None] = [None] * len(dims)
    if node.target.overloadpacket is aten._fft_c2r:
        return _Call(True, True, True, [*sizes[:-1], last], list(dims), power)
    if node.target.overloadpacket is aten._fft_r2c:
        return _Call(last, False, False, sizes, list(dims), power)
    return _Call(False, False, not last, sizes, list(dims), power)


@dataclass(frozen=True)
class _Along:
    """Transforms of `size` numbers along a dimension, whose results are multiplied with `scale`."""

    to: Calls
    dim: int
    size: int
    inverse: bool
    scale: float

    def of_all(self, parts: Pair, kept: int) -> Pair:
        """The first `kept` results of numbers that are cut, or made longer by zeros, to the size."""
        if self._fits(parts[1] is None):
            re, im = self._own(FOURIER, parts, kept)
            return re, im
        parts = self._fitted(parts, self.size)
        a = _divisor(self.size) if self.size > _DENSE else 1
        if a == 1:
            return self._each(self._dense(parts, kept), self._scaled)
        b, d = self.size // a, self.dim
        parts = self._each(parts, lambda part: self._split(part, a, b))
        parts = replace(self, size=a, scale=1.0).of_all(parts, a)
        parts = self._turned_by_place(parts, a, b)
        parts = replace(self, dim=d + 1, size=b).of_all(parts, b)
        parts = self._each(parts, lambda part: self._joined(part))
        return parts if kept == self.size else self._each(parts, lambda part: self._cut(part, 0, kept))

    def to_real(self, parts: Pair) -> Pair:
        """Real results, of the first half of the numbers, the others being their conjugates. A result is twice the sum
        over that half, but for the first number and the middle one, which have no other."""
        n, to = self.size, self.to
        if self._fits(True):
            re, im = parts
            return self._own(FOURIER_TO_REAL, (re, self._zeros(re) if im is None else im), n), None
        parts = self._fitted(parts, n // 2 + 1)
        if n <= _DENSE or _divisor(n) == 1:
            return self._each(self._dense(parts, n, weighted=True), self._scaled)
        re, im = parts
        im = im if im is not None else self._zeros(re)
        first, middle = self._cut(re, 0, 1), self._cut(re, 1, (n + 1) // 2)
        ends = [self._cut(re, n // 2, n // 2 + 1)] if n % 2 == 0 else []
        none = self._zeros(first)
        turned = to.call(aten.flip.default, middle, [self.dim])
        other = self._cut(im, 1, (n + 1) // 2)
        other_turned = to.negate(to.call(aten.flip.default, other, [self.dim]))
        re = to.call(aten.cat.default, [first, middle, *ends, turned], self.dim)
        im = to.call(aten.cat.default, [none, other, *(none for _ in ends), other_turned], self.dim)
        return self.of_all((re, im), n)

    def _fits(self, real: bool) -> bool:
        """Whether the targets have code for it, of real numbers, or to such."""
        return self.to.dtype in (torch.float32, torch.float64) and fits(self.size, self.to.dtype.itemsize, real)

    def _own(self, operator: Any, parts: Pair, kept: int) -> Any:
        """By an operator of ours."""
        re, im = parts
        found = self.to.call(operator, re, im, self.dim, self.size, kept, self.inverse, self.scale)
        return [self.to.call(getitem, found, i) for i in range(2)] if operator is FOURIER else found

    def _scaled(self, part: Part) -> Part:
        return self.to.multiply(part, self.scale)

    def _dense(self, parts: Pair, kept: int, weighted: bool = False) -> Pair:
        """By one product; `weighted` is that of the first half of the numbers, with real results."""
        to, (re, im) = self.to, parts
        count = self.size // 2 + 1 if weighted else self.size
        cos, sin = self._waves(count, kept)
        if weighted:
            cos, sin = (to.call(aten.mul.Tensor, wave, self._weights(count)) for wave in (cos, sin))
        if not self.inverse:
            sin = to.call(aten.neg.default, sin)  # the imaginary part of each number on the unit circle
        minus = to.call(aten.neg.default, sin)
        rows = [[cos] if weighted else [cos, sin]]
        if im is not None:
            rows.append([minus] if weighted else [minus, cos])
        wide = [to.call(aten.cat.default, row, 1) if len(row) > 1 else row[0] for row in rows]
        matrix = to.call(aten.cat.default, wide, 0) if len(wide) > 1 else wide[0]
        x = self._last(re)
        if im is not None:
            x = to.call(aten.cat.default, [x, self._last(im)], x.meta["val"].dim() - 1)
        shape = list(x.meta["val"].shape)
        flat = to.call(aten.reshape.default, x, [-1, shape[-1]])
        y = to.call(aten.mm.default, flat, matrix)
        y = to.call(aten.view.default, y, [*shape[:-1], matrix.meta["val"].shape[1]])
        if weighted:
            return self._last(y), None
        place = len(shape) - 1
        halves = (to.call(aten.slice.Tensor, y, place, i * kept, (i + 1) * kept) for i in range(2))
        re, im = (self._last(part) for part in halves)
        return re, im

    def _waves(self, rows: int, columns: int) -> tuple[Node, Node]:
        """Cosine and sine of the angles of a matrix."""
        to, n = self.to, self.size
        row, column = (self._count(size) for size in (rows, columns))
        return self._wave(to.call(aten.mul.Tensor, to.call(aten.unsqueeze.default, row, 1), column), n)

    def _wave(self, product: Node, n: int) -> tuple[Node, Node]:
        to = self.to
        turns = to.call(aten.remainder.Scalar, product, n)
        angle = to.call(aten.mul.Scalar, to.typed(turns), 2 * math.pi / n)
        return to.call(aten.cos.default, angle), to.call(aten.sin.default, angle)

    def _count(self, size: int) -> Node:
        return self.to.call(aten.arange.start_step, 0, size, 1, dtype=torch.int64)

    def _weights(self, count: int) -> Node:
        """As a column: two for all numbers but the first and, of an even size, the middle one."""
        to = self.to
        at = to.call(aten.unsqueeze.default, self._count(count), 1)
        alone = to.call(aten.eq.Scalar, at, 0)
        if self.size % 2 == 0:
            alone = to.call(aten.logical_or.default, alone, to.call(aten.eq.Scalar, at, self.size // 2))
        one = to.call(aten.full.default, [], 1.0, dtype=to.dtype)
        two = to.call(aten.full.default, [], 2.0, dtype=to.dtype)
        return to.call(aten.where.self, alone, one, two)

    def _turned_by_place(self, parts: Pair, a: int, b: int) -> Pair:
        """Times the number on the unit circle of angle 2 pi j k / (a b), k the place of `a` and j that of `b`."""
        to, (re, im) = self.to, parts
        k, j = self._count(a), self._count(b)
        cos, sin = self._wave(to.call(aten.mul.Tensor, to.call(aten.unsqueeze.default, k, 1), j), a * b)
        sin = sin if self.inverse else to.call(aten.neg.default, sin)
        behind = re.meta["val"].dim() - self.dim - 2
        cos, sin = (to.call(aten.view.default, wave, [a, b] + [1] * behind) for wave in (cos, sin))
        return (
            to.add(to.multiply(re, cos), to.negate(to.multiply(im, sin))),
            to.add(to.multiply(re, sin), to.multiply(im, cos)),
        )

    def _fitted(self, parts: Pair, size: int) -> Pair:
        def fit(part: Part) -> Node:
            value = part.meta["val"]
            if value.shape[self.dim] >= size:
                return part if value.shape[self.dim] == size else self._cut(part, 0, size)
            shape = list(value.shape)
            shape[self.dim] = size - value.shape[self.dim]
            more = self.to.call(aten.full.default, shape, 0.0, dtype=self.to.dtype)
            return self.to.call(aten.cat.default, [part, more], self.dim)

        return self._each(parts, fit)

    def _each(self, parts: Pair, change: Any) -> Pair:
        re, im = (None if part is None else change(part) for part in parts)
        return re, im

    def _cut(self, part: Node, start: int, end: int) -> Node:
        return self.to.call(aten.slice.Tensor, part, self.dim, start, end)

    def _zeros(self, part: Node) -> Node:
        return self.to.call(aten.full.default, list(part.meta["val"].shape), 0.0, dtype=self.to.dtype)

    def _split(self, part: Node, a: int, b: int) -> Node:
        shape = list(part.meta["val"].shape)
        return self.to.call(aten.reshape.default, part, [*shape[: self.dim], a, b, *shape[self.dim + 1 :]])

    def _joined(self, part: Node) -> Node:
        """The result of place k of `a` and m of `b` is that of place k + a m."""
        d = self.dim
        order = list(range(part.meta["val"].dim()))
        order[d], order[d + 1] = d + 1, d
        turned = self.to.call(aten.permute.default, part, order)
        shape = list(turned.meta["val"].shape)
        return self.to.call(aten.reshape.default, turned, [*shape[:d], shape[d] * shape[d + 1], *shape[d + 2 :]])

    def _last(self, part: Node) -> Node:
        """The part with the dimension exchanged with the last one; done twice it is as before."""
        order = list(range(part.meta["val"].dim()))
        if self.dim == order[-1]:
            return part
        order[self.dim], order[-1] = order[-1], order[self.dim]
        return self.to.call(aten.permute.default, part, order)


def _divisor(n: int) -> int:
    """The largest divisor up to the root."""
    return next(d for d in range(math.isqrt(n), 0, -1) if n % d == 0)
