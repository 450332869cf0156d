"""Numbers that are computed of open sizes, where these say what they are: no size is negative.

    %n = tensor.dim %x, %c1                        %n = tensor.dim %x, %c1
    %m = affine.apply (s0 + 1) [%n]         =>     %m = affine.apply (s0 + 1) [%n]
    %a = arith.minsi %m, %c0                       ... %c0 ...
    %b = arith.minsi %n, %m                        ... %n ...

So slices, whose ends torch-mlir looks for on both sides, begin and end where they are known to, and tensors that are
cut out of others are known to be as long as these (by prepare-linalg). What is computed of the sizes of arguments alone
stands in front of everything else, where all can have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce

from kitsune_mlir import example_sizes, rows
from kitsune_mlir.dialects.checks import constant
from kitsune_mlir.mlir import arith, attr_int, ir
from kitsune_mlir.operations import made_by, operations_of, padding_of
from kitsune_mlir.planning.linear_sums import LinearSum
from kitsune_mlir.program import NO_SYMBOL, SYMBOLS

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


class _Number(LinearSum):
    """A number of a function. What its terms name is no less than 0 where it is a size."""

    @property
    def least(self) -> int:
        return self.known if all(times > 0 and name[0] == _SIZE for name, times in self.terms.items()) else -_FAR

    @property
    def most(self) -> int:
        return self.known if all(times < 0 and name[0] == _SIZE for name, times in self.terms.items()) else _FAR


_SCALAR = ("arith.", "affine.apply", "tensor.dim")
_SIZE, _OTHER = "s", "o"  # with which the names of terms begin


def fold_sizes(main: ir.Operation) -> None:
    """Replaces such numbers of a function."""
    numbers = Numbers()
    first: dict[tuple[str, _Number], ir.Value] = {}
    for op in operations_of(main.regions[0].blocks[0]):
        if len(op.results) != 1 or not isinstance(op.results[0].type, ir.IndexType | ir.IntegerType):
            continue
        value, kind = op.results[0], str(op.results[0].type)
        if kind == "i1" or not op.name.startswith(_SCALAR):
            continue
        found = numbers.of(value)
        if op.name == "arith.constant":
            continue
        with op.location, ir.InsertionPoint(op):
            if not found.terms:
                new = arith.constant(value.type, found.known)
            elif (kind, found) in first:
                new = first[kind, found]
            elif op.name == "tensor.dim" and not isinstance(op.operands[0].owner, ir.Block):
                new = _moved(found, first)
            else:
                new = None
        if new is None:
            first[kind, found] = value
        else:
            value.replace_all_uses_with(new)
            first.setdefault((kind, found), new)
    _bring_forward(main.regions[0].blocks[0])


def _moved(number: _Number, first: Mapping[tuple[str, _Number], ir.Value]) -> ir.Value | None:
    """A number as another one that is there, and so much more, at the insertion point."""
    for (kind, other), value in first.items():
        if kind == "index" and other.terms == number.terms:
            more = arith.constant(value.type, number.known - other.known)
            return arith.addi(value, more)
    return None


def _bring_forward(block: ir.Block) -> None:
    """Has what is computed of constants and of sizes of arguments stand in front of all other operations."""
    early, behind = set[ir.Value](), None
    for op in operations_of(block):
        known = all(value in early or isinstance(value.owner, ir.Block) for value in op.operands)
        if op.name.startswith(_SCALAR) and known and len(op.results) == 1 and not len(op.regions):
            early.add(op.results[0])
            if behind is not None:
                op.move_before(behind)
        elif behind is None:
            behind = op


@dataclass
class Numbers:
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
        return _Number.of(self.names.setdefault(what, f"{kind}{len(self.names)}"))

    def _computed(self, op: ir.Operation) -> _Number | None:
        if op.name == "arith.constant":
            known = constant(op.results[0])
            return None if known is None else _Number(known)
        if op.name == "tensor.dim":
            axis = constant(op.operands[1])
            return None if axis is None else self.size(op.operands[0], axis)
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

    def size(self, tensor: ir.Value, axis: int) -> _Number:
        """A size of a tensor: a number, that of a result's operand, or that of an argument, of which some are the
        same."""
        kind = ir.RankedTensorType(tensor.type)
        if not kind.is_dynamic_dim(axis):
            return _Number(kind.shape[axis])
        op = rows.producer(tensor)
        if op is not None and op.name == "tensor.pad" and len(op.operands) == 1:
            around = [each[axis] for each in padding_of(op)]
            return self.size(op.operands[0], axis).plus(_Number(sum(around)))
        if op is not None and op.name == "tensor.collapse_shape":
            sizes = [self.size(op.operands[0], d) for d in rows.groups_of(op)[axis]]
            if (product := reduce(partial(self._of_two, "muli"), sizes)) is not None:
                return product
        found = rows.source_of_size(tensor, axis)
        if isinstance(found, ir.Value):
            return self.of(found)
        if not found[0].type.is_dynamic_dim(found[1]):
            return _Number(found[0].type.shape[found[1]])
        symbol = _symbol_of(*found)
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
        if name == "muli" and min(a.least, b.least) >= 0:
            if a.known or b.known or len(a.terms) > 1 or len(b.terms) > 1:
                return self._term((name, frozenset((a, b))), _SIZE)
            ((one, times),), ((other, more),) = a.terms.items(), b.terms.items()
            return self._term((name, frozenset((one, other))), _SIZE).scaled(times * more)
        if (
            name in ("floordivsi", "divui", "divsi")
            and not b.terms
            and b.known > 0
            and (name != "divsi" or a.least >= 0)
        ):
            return self._quotient(a, b.known)  # of sizes, unsigned numbers are as they are
        divides = name in ("ceildivsi", "ceildivui", "remsi", "remui", "divsi", "divui", "floordivsi")
        return self._term((name, a, b), _SIZE) if divides and a.least >= 0 and b.least > 0 else None

    def _quotient(self, a: _Number, by: int) -> _Number:
        """A number divided, and rounded down: the part that it divides, and the rest, which is no less than its least
        divided."""
        whole = _Number(a.known // by, {name: times // by for name, times in a.terms.items() if times % by == 0})
        rest = a.plus(whole, -by)
        if not rest.terms:
            return whole
        least = rest.least // by if rest.least > -_FAR else 0
        kind = _SIZE if rest.least > -_FAR else _OTHER
        return whole.plus(_Number(least)).plus(self._term(("quotient", rest, by), kind))

    def _holds(self, condition: ir.Value) -> bool | None:
        """Whether a condition holds, where that is certain."""
        op = made_by(condition, "arith.cmpi")
        if op is None or (predicate := attr_int(op, "predicate")) not in _HOLDS:
            return None
        apart = self.of(op.operands[0]).plus(self.of(op.operands[1]), -1)
        if _HOLDS[predicate](apart.least, apart.most):
            return True
        return False if _HOLDS[_OPPOSITE[predicate]](apart.least, apart.most) else None


def _symbol_of(value: ir.Value, axis: int) -> int:
    """The number of an open size of a program's argument, NO_SYMBOL where none is known, as for other tensors."""
    if not isinstance(value.owner, ir.Block) or SYMBOLS not in (holder := value.owner.owner.operation).attributes:
        return NO_SYMBOL
    symbols = list(ir.DenseI64ArrayAttr(ir.ArrayAttr(holder.attributes[SYMBOLS])[ir.BlockArgument(value).arg_number]))
    return symbols[axis] if axis < len(symbols) else NO_SYMBOL
