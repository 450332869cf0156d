"""Numbers that are computed of open sizes, where these say what they are: no size is negative.

    %n = tensor.dim %x, %c1                        %n = tensor.dim %x, %c1
    %m = affine.apply (s0 + 1) [%n]         =>     %m = affine.apply (s0 + 1) [%n]
    %a = arith.minsi %m, %c0                       ... %c0 ...
    %b = arith.minsi %n, %m                        ... %n ...

So slices, whose ends torch-mlir looks for on both sides, begin and end where they are known to, and tensors that are
cut out of others are known to be as long as these (by prepare-linalg).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kitsune_mlir import example_sizes, rows
from kitsune_mlir.dialects.checks import constant
from kitsune_mlir.mlir import arith, attr_int, ir
from kitsune_mlir.program import NO_SYMBOL

from .broadcast_reads import symbol_of

_SAME = ("arith.index_cast", "arith.index_castui", "arith.extsi", "arith.extui")
# By the number of arith.CmpIPredicate: what is certain of a - b where its least or its largest number says so.
_HOLDS: Mapping[int, Callable[[int, int], bool]] = {
    0: lambda least, most: least == most == 0,
    1: lambda least, most: least > 0 or most < 0,
    2: lambda least, most: most < 0,
    3: lambda least, most: most <= 0,
    4: lambda least, most: least > 0,
    5: lambda least, most: least >= 0,
}
_OPPOSITE = {0: 1, 1: 0, 2: 5, 3: 4, 4: 3, 5: 2}
_FAR = 1 << 62  # no number is larger


@dataclass(frozen=True)
class _Number:
    """A number and so many times others, which are no less than 0 where they are sizes."""

    known: int
    terms: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(known: int, terms: Mapping[str, int]) -> _Number:
        return _Number(known, tuple(sorted((name, times) for name, times in terms.items() if times)))

    def plus(self, other: _Number, times: int = 1) -> _Number:
        terms = dict(self.terms)
        for name, own in other.terms:
            terms[name] = terms.get(name, 0) + times * own
        return _Number.of(self.known + times * other.known, terms)

    def scaled(self, times: int) -> _Number:
        return _Number(0).plus(self, times)

    @property
    def least(self) -> int:
        return self.known if all(times > 0 and name[0] == _SIZE for name, times in self.terms) else -_FAR

    @property
    def most(self) -> int:
        return self.known if all(times < 0 and name[0] == _SIZE for name, times in self.terms) else _FAR


_SIZE, _OTHER = "s", "o"  # with which the names of terms begin


def fold_sizes(main: ir.Operation) -> None:
    """Replaces such numbers of a function."""
    numbers = _Numbers()
    first: dict[tuple[str, _Number], ir.Value] = {}
    for op in [op.operation for op in main.regions[0].blocks[0].operations]:
        if len(op.results) != 1 or not isinstance(op.results[0].type, ir.IndexType | ir.IntegerType):
            continue
        value = op.results[0]
        if str(value.type) == "i1":
            continue
        found, key = numbers.of(value), (str(value.type), numbers.of(value))
        if op.name == "tensor.dim" or op.name == "arith.constant" or not op.name.startswith(("arith.", "affine.")):
            first.setdefault(key, value)
            continue
        if not found.terms:
            with op.location, ir.InsertionPoint(op):
                value.replace_all_uses_with(arith.constant(value.type, found.known))
        elif key in first:
            value.replace_all_uses_with(first[key])
        else:
            first[key] = value


@dataclass
class _Numbers:
    """What the numbers of a function are."""

    known: dict[ir.Value, _Number] = field(default_factory=dict)
    names: dict[object, str] = field(default_factory=dict)

    def of(self, value: ir.Value) -> _Number:
        """What a number is."""
        if value not in self.known:
            op = rows.producer(value)
            found = None if op is None else self._computed(op)
            self.known[value] = self._term(value, _OTHER) if found is None else found
        return self.known[value]

    def _term(self, what: object, kind: str) -> _Number:
        return _Number(0, ((self.names.setdefault(what, f"{kind}{len(self.names)}"), 1),))

    def _computed(self, op: ir.Operation) -> _Number | None:
        if op.name == "arith.constant":
            known = constant(op.results[0])
            return None if known is None else _Number(known)
        if op.name == "tensor.dim":
            axis = constant(op.operands[1])
            return None if axis is None else self._size(op.operands[0], axis)
        if op.name == "affine.apply":
            map_ = ir.AffineMapAttr(op.attributes["map"]).value
            of = list(map(self.of, op.operands))
            found = example_sizes.evaluated(map_.results[0], map_.n_dims, of, self._of_two)
            return _Number(found) if isinstance(found, int) else found
        if op.name in _SAME:
            return self.of(op.operands[0])
        if op.name == "arith.select":
            holds = self._holds(op.operands[0])
            return None if holds is None else self.of(op.operands[1 if holds else 2])
        if not op.name.startswith("arith.") or len(op.operands) != 2:
            return None
        a, b = map(self.of, op.operands)
        if op.name not in ("arith.minsi", "arith.maxsi"):
            return self._of_two(op.name[len("arith.") :], a, b)
        apart = a.plus(b, -1)
        if apart.most <= 0:
            return a if op.name == "arith.minsi" else b
        if apart.least >= 0:
            return b if op.name == "arith.minsi" else a
        least = min(a.least, b.least) if op.name == "arith.minsi" else max(a.least, b.least)
        return self._term(op.results[0], _SIZE) if least >= 0 else None

    def _size(self, tensor: ir.Value, axis: int) -> _Number:
        """A size of a tensor: a number, that of a result's operand, or that of an argument, of which some are the
        same."""
        kind = ir.RankedTensorType(tensor.type)
        if not kind.is_dynamic_dim(axis):
            return _Number(kind.shape[axis])
        found = rows.source_of_size(tensor, axis)
        if isinstance(found, ir.Value):
            return self.of(found)
        if not found[0].type.is_dynamic_dim(found[1]):
            return _Number(found[0].type.shape[found[1]])
        symbol = symbol_of(*found)
        return self._term(found if symbol == NO_SYMBOL else symbol, _SIZE)

    def _of_two(self, name: str, a: _Number | int | None, b: _Number | int | None) -> _Number | None:
        """What an operation makes of two numbers."""
        if a is None or b is None:
            return None
        a, b = (_Number(x) if isinstance(x, int) else x for x in (a, b))
        if name in ("addi", "subi"):
            return a.plus(b, 1 if name == "addi" else -1)
        if name == "muli" and not (a.terms and b.terms):
            return a.scaled(b.known) if a.terms else b.scaled(a.known)
        if name == "muli":
            return self._term((name, *sorted((a, b), key=str)), _SIZE) if min(a.least, b.least) >= 0 else None
        divides = name in ("divsi", "divui", "floordivsi", "ceildivsi", "ceildivui", "remsi", "remui")
        return self._term((name, a, b), _SIZE) if divides and a.least >= 0 and b.least > 0 else None

    def _holds(self, condition: ir.Value) -> bool | None:
        """Whether a condition holds, where that is certain."""
        op = rows.producer(condition)
        if op is None or op.name != "arith.cmpi" or (predicate := attr_int(op, "predicate")) not in _HOLDS:
            return None
        apart = self.of(op.operands[0]).plus(self.of(op.operands[1]), -1)
        if _HOLDS[predicate](apart.least, apart.most):
            return True
        return False if _HOLDS[_OPPOSITE[predicate]](apart.least, apart.most) else None
