"""Lines of memory that neighbours' windows see elements of (COLUMN): words of these are loaded once."""

from __future__ import annotations

from dataclasses import dataclass, field

from kitsune_mlir.mlir import arith, ir, vector
from kitsune_mlir.operations import operations_of, users_of

from .gpu_generic import COLUMN, Generic
from .gpu_kernel import See, as_value
from .gpu_word_access import word_at
from .pipeline import device


def window_lines(generic: Generic) -> set[int]:
    """The numbers of the lines of memory that windows see (COLUMN)."""
    return {ir.DenseI64ArrayAttr(op.attributes[COLUMN])[0] for op in marked(generic)}


def are_of_channels(generic: Generic) -> bool:
    """Whether windows see several lines, and of each what stands where a result does: lines are channels."""
    columns = {tuple(ir.DenseI64ArrayAttr(op.attributes[COLUMN]))[1:] for op in marked(generic)}
    return len(window_lines(generic)) > 1 and len(generic.parallel) > 1 and columns == {(1, 0)}


def are_apart(generic: Generic) -> bool:
    """Whether windows over such lines are further apart than neighbours: there are twice as many lines as results."""
    maker = marked(generic)[0].operands[1].owner.operation
    load = maker.operands[1].owner.operation if maker.name == "arith.select" else maker
    lines, results = ir.MemRefType(load.operands[0].type).shape[-2:-1], generic.known_size(generic.parallel[-2])
    return results is not None and bool(lines) and lines[0] >= 2 * results


def marked(generic: Generic) -> list[ir.Operation]:
    """The operations of a body that choose elements of lines."""
    return [op.operation for op in generic.block.operations if COLUMN in op.operation.attributes]


def of_lines(block: ir.Block) -> set[int]:
    """The operations that nothing but elements of lines needs, most of which are parts of words that are there."""
    found = set[int]()
    for op in reversed(operations_of(block)):
        users = [user for result in op.results for user in users_of(result)]
        if users and all(COLUMN in user.attributes or hash(user) in found for user in users):
            found.add(hash(op))
    return found


def in_line(load: ir.Operation) -> list[int] | None:
    """What COLUMN says of the element that is loaded, if that is selected so."""
    users = users_of(load.results[0])
    if len(users) == 1 and users[0].name == "arith.select" and COLUMN not in users[0].attributes:
        users = users_of(users[0].results[0])
    marked = [user for user in users if COLUMN in user.attributes]
    return list(ir.DenseI64ArrayAttr(marked[0].attributes[COLUMN])) if marked else None


@dataclass
class Lines:
    """Elements of lines of memory, for `count` neighbours of `size` from `first` on. Words are loaded once, each of so
    many elements, all of which are in the line or none."""

    first: ir.Value
    size: int
    count: int
    word: int
    elements: dict[tuple[int, int], ir.Value] = field(default_factory=dict)
    words: dict[tuple[int, int], tuple[ir.Value, ir.Value | None]] = field(default_factory=dict)

    def element(self, select: ir.Operation, see: See, number: int) -> ir.Value | None:
        """What a marked select gives neighbour `number`; None where that is no part of a word."""
        line, step, start = ir.DenseI64ArrayAttr(select.attributes[COLUMN])
        if not step:
            return None
        key = (line, number * step + start)
        if key not in self.elements:
            place, part = divmod(key[1], self.word)
            if (line, place) not in self.words:
                self.words[line, place] = self._word(select, see, step, place * self.word)
            word, inside = self.words[line, place]
            found = vector.extract(word, [], [part])
            self.elements[key] = found if inside is None else arith.select(inside, found, see(select.operands[2]))
        return self.elements[key]

    def _word(self, select: ir.Operation, see: See, step: int, start: int) -> tuple[ir.Value, ir.Value | None]:
        """The word that is `start` elements from the first neighbour's, and whether the line has it, if that is not
        certain. Where there is no such line, which a select before this one says, it is what is outside."""
        maker = select.operands[1].owner.operation
        if maker.name == "arith.select":
            word, inside = self._loaded(see(maker.operands[1]).owner.operation, step, start)
            other = vector.broadcast(word.type, see(maker.operands[2]))
            return arith.select(see(maker.operands[0]), word, other), inside
        return self._loaded(see(select.operands[1]).owner.operation, step, start)

    def _loaded(self, load: ir.Operation, step: int, start: int) -> tuple[ir.Value, ir.Value | None]:
        buffer, *outer, _ = load.operands
        length = ir.MemRefType(buffer.type).shape[-1]
        at = self.first if step == 1 else arith.muli(self.first, as_value(step))
        at = arith.addi(at, as_value(start)) if start else at
        if start >= 0 and (self.size - self.count) * step + start + self.word <= length:
            return word_at(buffer, [*outer, at], self.word), None
        inside = device.below(at, as_value(length))
        return word_at(buffer, [*outer, arith.select(inside, at, as_value(0))], self.word), inside
