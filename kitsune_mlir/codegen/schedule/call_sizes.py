"""Which sizes of a kernel's tensors are open until the call, and what tells a launch each of them.

Most kernels have one: all open dimensions of their tensors have it, but for tables of any number of rows. Where results
say their sizes (kitsune.result), there are several: each open dimension of a tensor has its own, which a launch asks
that tensor for. Lines that have been made longer, so that boxes begin at multiples of 16 bytes, do not say how much of
them is there: other tensors do, of which boxes are copied that begin at the same place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Any

from kitsune_mlir import rows
from kitsune_mlir.dialects import schedule
from kitsune_mlir.dialects.checks import constant
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir, walk

Source = tuple[int, int]  # of a size: the number of a tensor, and its dimension


class CallSizes:
    """The open sizes of a kernel that is called with `tensors`, of which those of the numbers `tables` are tables of
    any number of rows."""

    def __init__(self, kernel: schedule.KernelOp, tensors: Sequence[ir.Value], tables: Collection[int]):
        self.kernel, self.tensors, self.tables = kernel, tensors, tables
        self._numbers = {hash(value): number for number, value in enumerate(tensors)}

    @cached_property
    def all(self) -> list[Source]:
        """Where they come from, each once, in the order in which a launch is given them."""
        found = [source for source in self._own if source[0] not in self.tables]
        several = any(result.size_operands for result in self.kernel.result_ops)
        return [source for source in found if source not in self._lengths] if several else found[:1]

    @property
    def _own(self) -> list[Source]:
        return [(number, d) for number, value in enumerate(self.tensors) for d in open_dims(value.type)]

    def of_tensor(self, number: int) -> list[Source]:
        """Where the open sizes of a tensor come from, in their order."""
        own = [source for source in self._own if source[0] == number]
        if len(self.all) < 2:
            return self.all * len(own)
        return [self._lengths.get(source, source) for source in own]

    def of_result(self, result: ir.OpView, kind: ir.Type) -> list[Source]:
        """Where the open sizes of a result come from, which callers take as of this type."""
        if result.size_operands:
            return [self.asked(size) for size in result.size_operands]
        like = self._like.get(result.position)
        source = [(like, 0)] if like is not None else self.all
        return source * len(open_dims(kind))

    def asked(self, size: ir.Value) -> Source:
        """Where a size comes from that a tensor.dim asks for. Raises UnsupportedError for one of a tensor that the
        kernel does not use where it has several."""
        if not self.all:
            return 0, 0
        if (place := self.place(size)) is None:
            raise UnsupportedError(f"kernel '{self.kernel.label}' has several open sizes, of which {size} is none")
        return self.all[place]

    def place(self, size: ir.Value) -> int | None:
        """Which of a launch's sizes one is that a tensor.dim asks for; None where it is none of several."""
        if len(self.all) < 2:
            return 0
        op = rows.producer(size)
        axis = None if op is None or op.name != "tensor.dim" else constant(op.operands[1])
        number = None if op is None or axis is None else self._number(op.operands[0])
        known = number is not None and axis is not None and (number, axis) in self.all
        return self.all.index((number, axis)) if known else None

    def of_tiles(self) -> dict[str, Any]:
        """For a launch of as many CTAs as there are tiles, where their number is open until the call: `times` so many
        in each place, and, of each open size, its number among those of the launch and how much of it a tile has."""
        times, parts, tiles = 1, list[list[int]](), self.kernel.parts[0].tiles
        for extent, size in zip(tiles.operands, tiles.sizes):
            if (known := constant(extent)) is not None:
                times *= -(-known // size)
            elif (place := self.place(extent)) is not None:
                parts.append([place, size])
            else:
                return {}
        return {"tiles": {"times": times, "parts": parts}}

    def _number(self, value: ir.Value) -> int | None:
        """A tensor's, which the kernel may have by another type, as columns of a longer one (place_columns.py)."""
        casts = ((n, rows.producer(tensor)) for n, tensor in enumerate(self.tensors))
        made = (n for n, op in casts if op is not None and op.name == "tensor.cast" and op.operands[0] == value)
        return self._numbers.get(hash(value), next(made, None))

    def streams(self) -> list[Source]:
        """Tensors that have the first of these sizes: all that have an open one where there is one such size; any
        tensor where all sizes are known."""
        if len(self.all) > 1:
            return self.all[:1]
        numbers = (n for n, value in enumerate(self.tensors) if open_dims(value.type) and n not in self.tables)
        found = [(n, open_dims(self.tensors[n].type)[0]) for n in numbers]
        return found or [next((n, 0) for n, value in enumerate(self.tensors) if ir.RankedTensorType(value.type).rank)]

    def given(self, sizes: Sequence[ir.Value]) -> Callable[[Source], ir.Value]:
        """What gives a size in the kernel's code, where a launch's are these: one at least, the first of which also
        stands for what is none."""
        found = dict(zip(self.all, sizes))
        return lambda source: found.get(source, sizes[0])

    @property
    def _like(self) -> dict[int, int]:
        """By the positions of results that do not have the call's rows the numbers of the tensors whose rows these
        have."""
        adding = [op.opview for op in walk(self.kernel, schedule.WRITE_ROWS)]
        return {op.position: self._numbers[hash(tensor)] for op in adding for tensor in op.like}

    @cached_property
    def _lengths(self) -> dict[Source, Source]:
        """Where the lengths of lines that have been made longer come from, where another tensor has them."""
        copies = [op.opview for op in walk(self.kernel, schedule.CopyOp.OPERATION_NAME) if op.opview.elements is None]
        places, longer = dict[int, Source](), list[tuple[Source, int]]()
        for copy in copies:
            for tensor in schedule.candidates(copy.operands[1]):
                if hash(tensor) not in self._numbers:
                    continue
                for d in open_dims(tensor.type):
                    source, at = (self._numbers[hash(tensor)], d), hash(copy.operands[2 + d])
                    if constant(copy.operands[2 + d]) is not None:
                        continue
                    if copy.is_longer and d == tensor.type.rank - 1:
                        longer.append((source, at))
                    else:
                        places[at] = source
        return {source: places[at] for source, at in longer if at in places}


def open_dims(kind: ir.Type) -> list[int]:
    """The dimensions of a tensor that are open until the call."""
    kind = ir.RankedTensorType(kind)
    return [d for d in range(kind.rank) if kind.is_dynamic_dim(d)]
