"""Between which numbers an integer of a linalg body lies, as far as constants say: what is clamped to the rows of a
table is one of them, and nothing need check it.

    %i = arith.maxsi (arith.minsi %n, 31), 0                                            0 to 31
    %j = arith.select (arith.cmpi slt, %i, 0), (arith.addi %i, 32), %i                  the same: %i is not negative
"""

from __future__ import annotations

from collections.abc import Callable

from kitsune_mlir.mlir import attr_int, ir
from kitsune_mlir.operations import made_by, producer

Range = tuple[int, int]  # the least and the greatest that it may be
_MOST = 200  # values that are looked at
_WORD = (-(1 << 63), (1 << 63) - 1)
_RULES: dict[str, Callable[[Range, Range], Range]] = {
    "arith.addi": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "arith.subi": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "arith.muli": lambda a, b: (min(p := [x * y for x in a for y in b]), max(p)),
    "arith.minsi": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "arith.maxsi": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}
_LESS = {2: (0, 1), 4: (1, 0)}  # slt and sgt of arith.CmpIPredicate: which operand is to be the lesser
_NO_MORE = {3: (0, 1), 5: (1, 0)}  # sle and sge
_SAME = ("arith.extsi", "arith.index_cast", "arith.trunci")


def is_within(value: ir.Value, count: int) -> bool:
    """Whether an integer is known to be one of so many numbers from 0 on."""
    least, greatest = _Ranges().of(value)
    return least >= 0 and greatest < count


class _Ranges:
    """The ranges of values, each found once."""

    def __init__(self) -> None:
        self._found: dict[ir.Value, Range] = {}

    def of(self, value: ir.Value) -> Range:
        """That of its type, where no more is known."""
        kind = value.type
        width = kind.width if isinstance(kind, ir.IntegerType) else 64
        whole = (0, 1) if width == 1 else (-(1 << (width - 1)), (1 << (width - 1)) - 1)
        if value not in self._found and len(self._found) < _MOST:
            self._found[value] = whole
            least, greatest = self._computed(value)
            if whole[0] <= least and greatest <= whole[1]:  # nothing goes round
                self._found[value] = least, greatest
        return self._found.get(value, whole)

    def _computed(self, value: ir.Value) -> Range:
        op = producer(value)
        if op is None or not isinstance(value.type, ir.IntegerType | ir.IndexType):
            return _WORD
        operands = list(op.operands)
        if op.name == "arith.constant":
            number = attr_int(op, "value")
            return number, number
        if op.name == "arith.select":
            truth = self._truth(operands[0])
            sides = [self.of(side) for side, at in zip(operands[1:], (True, False)) if truth in (None, at)]
            return min(side[0] for side in sides), max(side[1] for side in sides)
        if op.name == "arith.extsi" and operands[0].type.width == 1:
            return -1, 0
        if op.name in _SAME:
            return self.of(operands[0])
        if op.name == "arith.extui":
            found = self.of(operands[0])
            return found if found[0] >= 0 else _WORD
        return _RULES[op.name](*map(self.of, operands)) if op.name in _RULES else _WORD

    def _truth(self, condition: ir.Value) -> bool | None:
        """What a comparison of integers gives, where their ranges say so."""
        op = made_by(condition, "arith.cmpi")
        if op is None:
            return None
        predicate = attr_int(op, "predicate")
        order = (_LESS | _NO_MORE).get(predicate)
        if order is None:
            return None
        (least, greatest), (least_other, greatest_other) = (self.of(op.operands[i]) for i in order)
        equal = int(predicate in _NO_MORE)
        if greatest < least_other + equal:
            return True
        return False if least >= greatest_other + equal else None
