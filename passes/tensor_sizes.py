"""The sizes of a block's tensors as numbers, those too that are open until the call (planning/open_sizes.py).

    %n = tensor.dim %x, %c0 : tensor<?x130x256xbf16>                                          // a number P, say
    %m = affine.apply (s0 * 4) [%n]                                                           // P * 4
    %y = linalg.batch_matmul ins(%q, %k : tensor<?x130x64xbf16>, tensor<?x64x130xbf16>) ...   // P * 4 x 130 x 130

Operators take tensors whose sizes agree: that is how sizes of different tensors are known to be the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import reduce
from math import prod

from kitsune_mlir import example_sizes, rows
from kitsune_mlir.mlir import arith, attr_int, ir, linalg, walk
from kitsune_mlir.planning import open_sizes
from kitsune_mlir.planning.open_rows import UNKNOWN_ROWS
from kitsune_mlir.planning.open_sizes import OpenSizes, is_open
from kitsune_mlir.program import NO_SYMBOL, SYMBOLS

Shape = Callable[[ir.Value], list[int]]  # the sizes of a tensor


def or_none(size: int) -> int | None:
    """A size, None where it is open."""
    return None if is_open(size) else size


def or_dynamic(size: int) -> int:
    """A size as types of tensors have it."""
    return rows.DYNAMIC if is_open(size) else size


class TensorSizes:
    """The sizes of a block's tensors. What all of its operations say of them is learnt when two open sizes turn up that
    may be the same: most programs have but one, of which all others are computed."""

    def __init__(self, block: ir.Block):
        self._sizes = OpenSizes()
        self._given: dict[tuple[ir.Value, int], int] = {}  # open sizes of arguments, by value and dimension
        self._counted: dict[tuple[ir.Value, int], int] = {}  # of numbers that are computed of those alone
        self._fresh: dict[tuple[ir.Value, int], int] = {}  # of other values
        self._examples: dict[int, int] = {}  # of the open ones
        self._shapes: dict[ir.Value, list[int]] = {}  # those found since the last sizes that were found to be the same
        self._in_example: example_sizes.Known | None = None  # while the program does not change
        self._block = block
        self._is_learnt = True  # what arguments say is said first
        self.look_again()

    def look_again(self) -> None:
        """Operations have been erased, and others stand in their place: what no known operation makes is another value.
        The sizes of arguments stay."""
        self._counted, self._fresh, self._shapes = {}, {}, {}
        self._learn_arguments()
        self._is_learnt = False
        self._learn_if_several()

    def forget_erased(self) -> None:
        """Operations have been erased: others may be made where they were, whose results are then taken for theirs."""
        if not self._shapes and not self._fresh and not self._counted:
            return
        there = {result for op in self._block.operations for result in op.operation.results} | {*self._block.arguments}
        self._shapes = {value: sizes for value, sizes in self._shapes.items() if value in there}
        self._fresh, self._counted = (
            {(value, d): size for (value, d), size in sizes.items() if value in there}
            for sizes in (self._fresh, self._counted)
        )

    def _learn_if_several(self) -> None:
        found = (*self._given.values(), *self._counted.values(), *self._fresh.values())
        if self._is_learnt or len({*map(self._sizes.plain, found)}) < 2:
            return
        self._is_learnt, self._in_example = True, example_sizes.Known()
        for op in self._block.operations:
            self._learn(op.operation)
        self._in_example = None

    def is_given(self, size: int) -> bool:
        """Whether it is made of sizes of arguments of the block."""
        given = set(map(self._sizes.plain, self._given.values()))
        return all(one in given for one in open_sizes.factors(size)[1])

    def is_computed(self, size: int) -> bool:
        """The same, or of numbers that are computed of these: `as_value` knows it."""
        known = set(map(self._sizes.plain, (*self._given.values(), *self._counted.values())))
        return all(one in known for one in open_sizes.factors(size)[1])

    def as_value(self, size: int) -> ir.Value:
        """A size that is made of those of arguments of the block, or computed of them, as an index, at the insertion
        point."""
        known, open_ = open_sizes.factors(size)
        places = {
            self._sizes.plain(own): place for place, own in reversed([*self._given.items(), *self._counted.items()])
        }
        found = reduce(arith.muli, (_as_index(*places[one]) for one in open_))
        return found if known == 1 else arith.muli(found, arith.ConstantOp.create_index(known).result)

    def taken(self, size: int) -> int:
        """The size that one is taken to be where it is decided what is fast: the example's."""
        known, open_ = open_sizes.factors(size)
        return known * prod(self._examples[one] for one in open_)

    def shape(self, value: ir.Value) -> list[int]:
        """A tensor's sizes."""
        kind = ir.RankedTensorType(value.type)
        if kind.has_static_shape:
            return list(kind.shape)
        if value not in self._shapes:
            found = self._made(value)
            self._shapes[value] = [
                kind.shape[d]
                if not kind.is_dynamic_dim(d)
                else self._sizes.plain(self._unknown(value, d) if found is None else found[d])
                for d in range(kind.rank)
            ]
        return list(self._shapes[value])

    def are_alike(self, one: ir.Value, other: ir.Value) -> bool:
        """Whether two tensors of one type, the same elements in the same order, are known to have the same sizes."""
        return rows.shape_of(one).count(rows.DYNAMIC) < 2 or self.shape(one) == self.shape(other)

    def _unknown(self, value: ir.Value, d: int) -> int:
        found = self._given if isinstance(value.owner, ir.Block) else self._fresh
        if found is self._fresh and not rows.is_tensor(value) and self._is_of_arguments(value):
            found = self._counted
        if (value, d) not in found:
            size = found[value, d] = self._sizes.fresh()
            known = self._in_example or example_sizes.Known()
            example = known.size(value, d) if rows.is_tensor(value) else known.number(value)
            self._examples[size] = UNKNOWN_ROWS if example is None else example
            self._learn_if_several()
        return found[value, d]

    def _is_of_arguments(self, value: ir.Value) -> bool:
        """Whether a number is computed of constants and sizes of arguments alone, as those before a program are
        (folded_sizes.py)."""
        op = rows.producer(value)
        if op is None or op.block != self._block or len(op.regions):
            return False
        if op.name == "tensor.dim":
            return isinstance(op.operands[0].owner, ir.Block) and self._is_of_arguments(op.operands[1])
        return op.name.startswith(("arith.", "affine.apply")) and all(map(self._is_of_arguments, op.operands))

    def _made(self, value: ir.Value) -> list[int] | None:
        """A tensor's sizes, as the operation that makes it says them; None where it does not."""
        op = rows.producer(value)
        if op is None:
            return None
        if op.name == "tensor.empty":
            return self._listed(ir.RankedTensorType(value.type).shape, list(op.operands))
        if op.name == "tensor.expand_shape":
            return self._listed(ir.RankedTensorType(value.type).shape, list(op.operands)[1:])
        if op.name == "tensor.collapse_shape":
            source = self.shape(op.operands[0])
            return [prod(source[d] for d in group) for group in rows.groups_of(op)]
        if op.name == "tensor.extract_slice":
            counts = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
            first = sum(counts[:2])
            sizes = list(ir.DenseI64ArrayAttr(op.attributes["static_sizes"]))
            found = self._listed(sizes, list(op.operands)[first : first + counts[2]])
            return found if len(found) == ir.RankedTensorType(value.type).rank else None
        if op.name == "tensor.concat":
            dim, first = attr_int(op, "dim"), self.shape(op.operands[0])
            open_ = ir.RankedTensorType(value.type).is_dynamic_dim(dim)
            return [self._unknown(value, d) if d == dim and open_ else size for d, size in enumerate(first)]
        if op.name == "tensor.pad":
            low, high = (ir.DenseI64ArrayAttr(op.attributes[name]) for name in ("static_low", "static_high"))
            kind, sides = ir.RankedTensorType(value.type), zip(self.shape(op.operands[0]), low, high, strict=True)
            wider = [d for d in range(kind.rank) if kind.is_dynamic_dim(d) and (low[d] or high[d])]
            return [self._unknown(value, d) if d in wider else size for d, (size, *_) in enumerate(sides)]
        if op.name == "kitsune.result":
            return self._of_kernel(op)
        if (operand := rows.operand_of_sizes(value)) is not None:
            kind, first = ir.RankedTensorType(value.type), self.shape(operand)
            return [first[d] if kind.is_dynamic_dim(d) else kind.shape[d] for d in range(kind.rank)]
        if op.name.startswith(("linalg.", "tm_tensor.")):
            return self.shape(list(op.operands)[len(op.operands) - len(op.results) + list(op.results).index(value)])
        return None

    def _of_kernel(self, result: ir.Operation) -> list[int] | None:
        """The sizes of what a kernel gives: its open ones as the result says them, or of one whose tiles are of all its
        dimensions, of one open size, perhaps twice, or of some of them, whose sizes they have."""
        (kind,) = (ir.RankedTensorType(value.type) for value in result.results)
        if given := result.opview.size_operands:
            return self._listed(kind.shape, given)
        tiles = walk(result.operands[0].owner, "kitsune.tiles")
        extents = [self.number(extent) for extent in tiles[0].operands] if len(tiles) == 1 else []
        open_ = {extent for extent in extents if is_open(extent)}
        if len(open_) != 1:
            return None
        found = [next(iter(open_)) if size == rows.DYNAMIC else size for size in kind.shape]
        return found if prod(found) == prod(extents) or not Counter(extents) - Counter(found) else None

    def _listed(self, sizes: list[int], numbers: list[ir.Value]) -> list[int]:
        """Sizes, of which the open ones are given."""
        given = iter(numbers)
        return [self.number(next(given)) if size == rows.DYNAMIC else size for size in sizes]

    def number(self, value: ir.Value) -> int:
        """An index that is a size."""
        op = rows.producer(value)
        found = None if op is None else self._computed(op)
        return self._sizes.plain(self._unknown(value, 0) if found is None else found)

    def _computed(self, op: ir.Operation) -> int | None:
        """The size that an operation computes, where it is known how."""
        if op.name == "arith.constant":
            return attr_int(op, "value")
        if op.name == "tensor.dim":
            axis = rows.producer(op.operands[1])
            known = axis is not None and axis.name == "arith.constant"
            return self.shape(op.operands[0])[attr_int(axis, "value")] if known else None
        if op.name == "affine.apply":
            map_ = ir.AffineMapAttr(op.attributes["map"]).value
            numbers = [self.number(value) for value in op.operands]
            return example_sizes.evaluated(map_.results[0], map_.n_dims, numbers, _of_two)
        if op.name == "arith.index_cast":
            return self.number(op.operands[0])
        if op.name in ("arith.muli", "arith.divsi", "arith.divui", "arith.floordivsi"):
            return _joined(op.name == "arith.muli", *map(self.number, op.operands))
        return None

    def _learn_arguments(self) -> None:
        """Which sizes of the program's arguments are the same."""
        holder, first = self._block.owner.operation, dict[int, int]()
        if SYMBOLS not in holder.attributes:
            return
        for argument, symbols in zip(self._block.arguments, ir.ArrayAttr(holder.attributes[SYMBOLS]), strict=True):
            for size, symbol in zip(self.shape(argument), ir.DenseI64ArrayAttr(symbols)):
                if symbol != NO_SYMBOL:
                    self._equate(first.setdefault(symbol, size), size)

    def _learn(self, op: ir.Operation) -> None:
        """That the sizes are the same over which an operation has one loop, or which a reshape makes of each other."""
        if all(ir.RankedTensorType(v.type).has_static_shape for v in (*op.operands, *op.results) if rows.is_tensor(v)):
            return
        if op.name in rows.RESHAPES:
            source, result = self.shape(op.operands[0]), self.shape(op.results[0])
            longer, shorter = (source, result) if op.name == "tensor.collapse_shape" else (result, source)
            for group, size in zip(rows.groups_of(op), shorter, strict=True):
                self._equate(prod(longer[d] for d in group), size)
        elif op.name.startswith("linalg.") and (maps := linalg.get_indexing_maps(op)) is not None:
            loops: dict[int, int] = {}
            for value, map_ in zip(op.operands, maps, strict=True):
                for expr, size in zip(map_.value.results, self.shape(value) if rows.is_tensor(value) else []):
                    if (loop := rows.dim_of(expr)) is not None:
                        self._equate(loops.setdefault(loop, size), size)

    def _equate(self, a: int, b: int) -> None:
        if self._sizes.equate(a, b):
            self._shapes = {}


def _as_index(value: ir.Value, d: int) -> ir.Value:
    """A size of a tensor, or a number that is one, as an index, at the insertion point."""
    if rows.is_tensor(value):
        return rows.size_of(value, d)
    return value if isinstance(value.type, ir.IndexType) else arith.index_cast(ir.IndexType.get(), value)


def _joined(times: bool, a: int, b: int) -> int | None:
    """Two sizes multiplied, or one over another that divides it."""
    if times:
        return a * b
    return a // b if b and a % b == 0 else None


def _of_two(name: str, a: int | None, b: int | None) -> int | None:
    """A product, or a part, of sizes."""
    if a is None or b is None or name not in ("muli", "floordivsi"):
        return None
    return _joined(name == "muli", a, b)
