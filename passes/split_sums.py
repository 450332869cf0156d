"""Reductions over several dimensions, or over one of many elements, in two: first those along rows, which a row group
does, then the others.

    %s = linalg.generic {iterator_types = ["reduction", "parallel", "reduction", "reduction"]} ins(%x : 16x64x56x56) ...
  =>
    %r = tensor.collapse_shape %x ... into tensor<16x64x3136xf32>
    %p = linalg.generic {iterator_types = ["parallel", "parallel", "reduction"]} ins(%r) ...      // 16x64
    %s = linalg.generic {iterator_types = ["reduction", "parallel"]} ins(%p) ...

So all of a GPU reads the tensor, in words, however few the results are, and computes what is elementwise before. Sizes
that are open until the call are no columns: of them a row has none. Several sums for each of many channels are left to
convert-linalg-to-gpu.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeVar

from kitsune_mlir import example_sizes, rows
from kitsune_mlir.codegen.gpu_reduction import Combiner, combiners
from kitsune_mlir.generics import generic, map_of
from kitsune_mlir.mlir import ir, linalg, replace_op, tensor
from kitsune_mlir.operations import element_type, operations_of
from kitsune_mlir.planning.row_tiles import WIDEST

from .reshapes import reshaped
from .row_groups import Space, root, space_of, users

COLUMNS = range(64, WIDEST + 1)  # of a row: enough for a warp, and such as a CTA's registers hold
LEAST = 1 << 13  # elements that are worth two kernels
WORD, MANY_RESULTS = 8, 32  # elements of rows that are whole words; results that are many
MOST_ROWS = 264  # of many elements each: more keep a GPU busy as they are
_WIDE = 1024  # columns of a part of one of more rows than that, of few results

_Size = TypeVar("_Size")  # known, or None


def split_sums(block: ir.Block, others: Container[ir.Value]) -> None:
    """Rewrites such reductions of a block but those that give `others`, whose rows kernels go through."""
    waiting = operations_of(block, "linalg.generic")
    parts_of = parts_in(block, others)
    alike = Counter(tuple(found.sizes) for op in waiting if (found := parts_of(op)) is not None and found.has_channels)
    while waiting:
        op = waiting.pop()
        if (found := parts_of(op)) is None or (found.has_channels and alike[tuple(found.sizes)] > 1):
            continue
        s = found.s
        (combiner,) = combiners(s.body, s.inputs, other=True) or [None]
        if combiner is not None:
            with op.location, ir.InsertionPoint(op):
                across = found.split(combiner)
            replace_op(op, across.results[0])
            waiting.append(across)


def parts_in(
    block: ir.Block, others: Container[ir.Value], alone: bool = True
) -> Callable[[ir.Operation], Parts | None]:
    """What says of a reduction of a block in which parts it is done; None for what is done in one, as those that give
    `others` are. `alone`: where it is left as it is that other than sums are made of what it reads, which would have
    other rows. What is made anew of the parts does not ask for that."""
    reductions = operations_of(block, "linalg.generic")
    spaces = [(op, space) for op in reductions if (space := space_of(op)) is not None]
    long_ = {space.columns for op, space in spaces if _is_long(op, space)}

    def parts_of(op: ir.Operation) -> Parts | None:
        s = rows.Structured(op)
        if "reduction" not in s.iterators or len(op.results) != 1 or s.index_ops() or s.tables():
            return None
        return None if op.results[0] in others else _find(s, long_, alone)

    return parts_of


def _is_long(op: ir.Operation, space: Space) -> bool:
    """Whether a reduction is of rows that are worth a kernel which goes through them, and so many that they keep a GPU
    busy as they are."""
    return space.columns > WIDEST and prod(example_sizes.shape_of(op.results[0])) > MOST_ROWS


@dataclass(frozen=True)
class Parts:
    """A reduction, of loops of these sizes, None where one is open, those from number `first` on along rows of so many
    columns."""

    s: rows.Structured
    sizes: list[int | None]
    first: int
    columns: int

    @property
    def has_channels(self) -> bool:
        """Whether many results stand between loops that are reduced, as channels do between images and their elements,
        and rows are whole words. One kernel for what is elementwise and for several sums of it takes less time then:
        of a batch norm's gradients, of 32 x 64 x 56 x 56, 12.8 us are predicted, 20.3 of rows and of what is left."""
        kinds = self.s.iterators[: self.first]
        if "reduction" not in kinds or "parallel" not in kinds[kinds.index("reduction") :] or self.columns % WORD:
            return False
        return prod(size or 1 for size, kind in zip(self.sizes, kinds) if kind == "parallel") >= MANY_RESULTS

    @property
    def outer(self) -> list[int | None]:
        """The sizes of the loops around the columns."""
        count = prod(self.sizes[self.first :]) // self.columns
        return [*self.sizes[: self.first], *([count] if count > 1 else [])]

    def split(self, combiner: Combiner) -> ir.Operation:
        """Builds both operators; gives the second one."""
        return self.across(self.along(combiner), combiner)

    def along(self, combiner: Combiner) -> ir.Value:
        """The reduction of each row alone, of the outer loops."""
        loops, inputs, maps = len(self.outer) + 1, list[ir.Value](), list[ir.AffineMap]()
        for value, map_ in zip(self.s.given, self.s.maps):
            taken, own = self.taken(value, map_)
            inputs.append(taken)
            maps.append(map_of(loops, own))
        return self.summed(combiner, inputs, maps, self.s.body)

    def summed(
        self,
        combiner: Combiner,
        inputs: Sequence[ir.Value],
        maps: Sequence[ir.AffineMap],
        body: ir.Block | Callable[..., ir.Value],
    ) -> ir.Value:
        """What `body` makes of inputs of the outer loops and the columns, for each row."""
        outer, kind = self.outer, element_type(self.s.op.results[0])
        sizes = [self._open_size(loop) if size is None else size for loop, size in enumerate(outer)]
        start = linalg.fill(combiner.neutral(), outs=[tensor.empty(sizes, kind)])
        loops = len(outer) + 1
        maps, iterators = [*maps, map_of(loops, range(loops - 1))], ["parallel"] * (loops - 1) + ["reduction"]
        return generic(inputs, [start], maps, iterators, body).results[0]

    def taken(self, value: ir.Value, map_: ir.AffineMap) -> tuple[ir.Value, list[int | None]]:
        """An input with rows of so many columns, and the loops, of the outer ones and the columns, that it has."""
        found, outer = _dims(map_), self.outer
        if not any(loop is not None and loop >= self.first for loop in found):
            return value, found
        own = [loop for loop in found if loop is not None and loop < self.first]
        shape = [*(self.sizes[d] for d in own), *outer[self.first :], self.columns]
        return reshaped(value, shape), [*own, *range(self.first, len(outer) + 1)]

    def across(self, along: ir.Value, combiner: Combiner) -> ir.Operation:
        """The reduction of what there is of each row."""
        s, loops = self.s, len(self.outer)
        result = map_of(loops, _dims(s.maps[s.inputs]))
        iterators = [*s.iterators[: self.first], *["reduction"] * (loops - self.first)]
        out = [s.op.operands[s.inputs]]
        return generic([along], out, [map_of(loops, range(loops)), result], iterators, combiner.join)

    def _open_size(self, loop: int) -> ir.Value:
        """That of a loop that is open, as an input has it."""
        value, d = next((v, _dims(m).index(loop)) for v, m in zip(self.s.op.operands, self.s.maps) if loop in _dims(m))
        return rows.size_of(value, d)


def _find(s: rows.Structured, long_: Container[int], alone: bool) -> Parts | None:
    """None for a reduction that stays as it is. Loops of an open size are none along rows: how large they are taken to
    be is the example's. Of rows of `long_` columns there are others, such as those of a softmax before a sum of all."""
    sizes, examples, loops = _sizes(s, rows.known_sizes), _sizes(s, example_sizes.shape_of), len(s.iterators)
    if prod(examples) < LEAST:
        return None
    last = next((n for n, kind in enumerate(reversed(s.iterators)) if kind != "reduction"), loops)
    last = min(last, next((n for n, size in enumerate(reversed(sizes)) if size is None), loops))
    columns_of = {n: prod(sizes[loops - n :]) for n in range(1, last + 1)}
    fitting = [n for n, columns in columns_of.items() if columns in COLUMNS or columns in long_]
    first = loops - fitting[-1] if fitting else loops - 1
    if not last or not _are_rows(s, first):
        return None
    if fitting:
        is_none = "reduction" not in s.iterators[:first] or _reads_slices(s)  # which is asked last: it goes far
        return None if is_none else Parts(s, sizes, first, prod(sizes[first:]))
    columns = max((n for n in COLUMNS if sizes[first] % n == 0), default=None)
    results = prod(size for size, kind in zip(examples, s.iterators) if kind == "parallel")
    if columns is None or (columns < _WIDE and prod(examples[:first]) > MOST_ROWS):
        return None
    stays = sizes[first] < COLUMNS.stop or results > MOST_ROWS or (alone and not _is_summed_alone(s))
    return None if stays or _reads_slices(s) else Parts(s, sizes, first, columns)


def _are_rows(s: rows.Structured, first: int) -> bool:
    """Whether each input has the loops in order, and of those from number `first` on all or none; and one has all: what
    is between the operators is then a part of it."""
    most, loops = 0, len(s.iterators)
    for map_ in s.maps[: s.inputs]:
        found = _dims(map_)
        rest = [loop for loop in found if loop is not None and loop >= first]
        own = [loop for loop in found if loop is not None]
        if _has_others(map_) or own != sorted(set(own)) or rest and rest != list(range(first, loops)):
            return False
        most = max(most, len(own))
    return most == loops and not _has_others(s.maps[s.inputs])


def _dims(map_: ir.AffineMap) -> list[int | None]:
    """The loops that are an operand's indices, None for one that is the first."""
    return [rows.dim_of(result) for result in map_.results]


def _has_others(map_: ir.AffineMap) -> bool:
    """Whether an index is neither a loop nor the first."""
    return any(rows.dim_of(result) is None and not rows.is_first(result) for result in map_.results)


def _is_summed_alone(s: rows.Structured) -> bool:
    """Whether of the elementwise operators that come before, for each element, nothing but sums is made, whose rows
    they can take: what else reads them, such as the numbers that a norm scales, has other rows."""
    count = prod(_sizes(s, example_sizes.shape_of))
    seen, waiting = list[ir.Operation](), [rows.producer(root(value)) for value in s.given]
    while waiting:
        op = waiting.pop()
        if op is None or op in seen or not _is_flat(op) or prod(example_sizes.shape_of(op.results[0])) != count:
            continue
        seen.append(op)
        readers = [user for user in users(op.results[0]) if user.name != "tensor.dim"]
        if any(user.name != "linalg.generic" for user in readers):
            return False
        waiting += [*readers, *(rows.producer(root(value)) for value in op.operands if rows.is_tensor(value))]
    return True


def _is_flat(op: ir.Operation) -> bool:
    return op.name == "linalg.generic" and "reduction" not in rows.Structured(op).iterators


def _reads_slices(s: rows.Structured) -> bool:
    """Whether what it sums is computed element by element of parts of tensors, whose rows lie apart: the kernel of a
    single sum reads them where they are."""
    seen, waiting = {s.op}, [s]
    while waiting:
        reader = waiting.pop()
        for value in reader.given:
            op = rows.producer(root(value)) if rows.is_tensor(value) else None
            if op is None or op in seen:
                continue
            seen.add(op)
            if op.name == "tensor.extract_slice":
                return True
            if op.name == "linalg.generic" and (made := rows.Structured(op)).is_elementwise():
                waiting.append(made)
    return False


def _sizes(s: rows.Structured, shape: Callable[[ir.Value], Sequence[_Size]]) -> list[_Size]:
    """Those of the loops, as `shape` says the sizes of tensors."""
    found = dict[int, _Size]()
    for value, map_ in zip(s.op.operands, s.maps, strict=True):
        for size, loop in zip(shape(value), _dims(map_)) if rows.is_tensor(value) else ():
            if loop is not None:
                found[loop] = size
    return [found[loop] for loop in range(len(s.iterators))]
