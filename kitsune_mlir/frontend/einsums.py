"""Sums of products over a few channels, as a matrix of colours has them: `einsum("ij,njhw->nihw", matrix, image)`.

torch takes an einsum apart into transposes, so that it is a product of matrices, and back. Of channels that are few,
and do not lie along lines of memory, each is a product by itself, whose sums are elementwise: nothing is transposed,
and what makes the channels is computed with them. So are weighted sums of vectors of few coordinates no products.
Of several summed indices torch takes the first of the alphabet first, which here is the first of the larger operand.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .working import working

FEW = 4  # channels

_EQUATION = re.compile(r"([A-Za-z]+),([A-Za-z]+)->([A-Za-z]+)")


_einsum = torch.ops.aten.einsum.default


def einsum(equation: str, operands: Sequence[Tensor], **options: Any) -> Any:
    """Of two operands, and one index that both have and the result has not; any other is taken apart by torch."""
    equation, operands = _summed_alone(equation, operands)
    found = _of_channels(equation, operands)
    if found is None:
        found = _of_vectors(equation, operands)
    if found is None:
        renamed = _as_they_lie(equation, operands)
        return _einsum._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, renamed, operands, **options)
    return found


def _summed_alone(equation: str, operands: Sequence[Tensor]) -> tuple[str, list[Tensor]]:
    """The same of operands that are summed first along indices that nothing else has, `einsum("bio,bic->bc", ...)`."""
    parsed = _EQUATION.fullmatch(equation.replace(" ", ""))
    if parsed is None or len(operands) != 2:
        return equation, list(operands)
    *terms, result = parsed.groups()
    found = []
    for x, term, other in zip(operands, terms, reversed(terms), strict=True):
        alone = [letter for letter in term if letter not in other + result and term.count(letter) == 1]
        dims = [term.index(letter) for letter in alone]
        if dims:
            is_single = all(isinstance(x.shape[dim], int) and x.shape[dim] == 1 for dim in dims)
            x = x.squeeze(dims) if is_single else x.sum(dims)
        found.append(("".join(letter for letter in term if letter not in alone), x))
    (left, a), (right, b) = found
    if not left or not right:  # a number, which an equation has no letters for here
        return equation, list(operands)
    return f"{left},{right}->{result}", [a, b]


def _as_they_lie(equation: str, operands: Sequence[Tensor]) -> str:
    """The same with several summed indices named in the order in which the larger operand has them: torch sums in that
    of the alphabet, and turns both operands for it."""
    parsed = _EQUATION.fullmatch(equation.replace(" ", ""))
    if parsed is None or len(operands) != 2:
        return equation
    *terms, result = parsed.groups()
    larger, _ = max(zip(terms, operands, strict=True), key=lambda each: each[1].dim())
    summed = [letter for letter in dict.fromkeys(larger) if letter in terms[0] and letter in terms[1]]
    summed = [letter for letter in summed if letter not in result]
    names = str.maketrans(dict(zip(summed, sorted(summed), strict=True)))
    return ",".join(term.translate(names) for term in terms) + "->" + result


def _of_channels(equation: str, operands: Sequence[Tensor]) -> Tensor | None:
    parsed = _EQUATION.fullmatch(equation.replace(" ", ""))
    if parsed is None or len(operands) != 2 or not all(x.is_floating_point() for x in operands):
        return None
    *terms, result = parsed.groups()
    summed = {*terms[0], *terms[1]} - {*result}
    if len(summed) != 1 or any(len({*term}) < len(term) for term in (*terms, result)):
        return None
    (channel,) = summed
    larger, image = max(zip(terms, operands, strict=True), key=lambda each: len(each[0]))
    if not all(channel in term for term in terms) or len(larger) < 3 or larger[-1] == channel:
        return None
    count = image.shape[larger.index(channel)]
    if not isinstance(count, int) or not 0 < count <= FEW:
        return None
    kind = torch.promote_types(operands[0].dtype, operands[1].dtype)
    parts = [_parts(working(x.to(kind)), term, channel, result) for x, term in zip(operands, terms, strict=True)]
    return functools.reduce(torch.add, [a * b for a, b in zip(*parts, strict=True)]).to(kind)


def _of_vectors(equation: str, operands: Sequence[Tensor]) -> Tensor | None:
    """Weighted sums of vectors of few coordinates, `einsum("bijc,bij->bic", vectors, weights)`, as just that."""
    parsed = _EQUATION.fullmatch(equation.replace(" ", ""))
    if parsed is None or len(operands) != 2 or not all(x.is_floating_point() for x in operands):
        return None
    *terms, result = parsed.groups()
    (of_weights, weights), (term, vectors) = sorted(zip(terms, operands, strict=True), key=lambda each: len(each[0]))
    coordinate, summed = term[-1], {*term} - {*result}
    if len({*term}) < len(term) or len({*of_weights}) < len(of_weights) or len(term) < 3 or not summed <= {*of_weights}:
        return None
    if {*term} ^ {*of_weights} != {coordinate} or result != "".join(each for each in term if each not in summed):
        return None
    count = vectors.shape[-1]
    if not summed or coordinate in summed or not isinstance(count, int) or not 1 < count <= FEW:
        return None
    kind = torch.promote_types(vectors.dtype, weights.dtype)
    each = working(weights.to(kind)).permute(_order(of_weights, term)).unsqueeze(-1)
    return (working(vectors.to(kind)) * each).sum([term.index(letter) for letter in summed]).to(kind)


def _parts(x: Tensor, term: str, channel: str, result: str) -> list[Tensor]:
    """The channels of an operand, each with the result's dimensions, of one element where it has none."""
    dim = term.index(channel)
    # The dimension of the one channel stands for one that the operand has not, if possible where it is.
    named = [term.replace(channel, letter) for letter in result if letter not in term] or [term.replace(channel, "")]
    letters = next((own for own in named if _order(own, result) == sorted(_order(own, result))), named[0])
    shape = tuple(slice(None) if letter in letters else None for letter in result)
    found = []
    for number in range(x.shape[dim]):
        part = x.narrow(dim, number, 1) if len(letters) == len(term) else x.select(dim, number)
        found.append(part.permute(_order(letters, result))[shape])
    return found


def _order(term: str, result: str) -> list[int]:
    """Where the result's dimensions are among an operand's."""
    return [term.index(letter) for letter in result if letter in term]


EINSUMS = {_einsum: einsum}
