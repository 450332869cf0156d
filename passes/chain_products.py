"""A warpgroup's products in a chain: which boxes it multiplies in which order, when it gives slots back, and the pieces
of other work that stand between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from kitsune_mlir import rows
from kitsune_mlir.chains.operands import is_gathered
from kitsune_mlir.chains.packing import packed_width
from kitsune_mlir.chains.product_plan import Product, Segment, starts_from_zero
from kitsune_mlir.chains.program import Block
from kitsune_mlir.codegen.pipeline.nests import kitsune_label
from kitsune_mlir.dialects import kitsune, schedule
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import attr_int, ir, scf

from .chain_exchange import Exchanged
from .chain_fills import Fill, Filling, Fills
from .chain_kernel import COPY_ROWS, GATHERED, STREAMED, WEIGHTS, ChainKernel
from .chain_stows import Stowed, read_later
from .chain_tiles import Pieces, beside, part, zeros

Operand: TypeAlias = tuple[ir.Value, tuple[ir.Value, ...]]
LONG = 4  # chunks of streamed operands; a product of more is a loop
IN_TURN = 2  # chunks of f32 in a turn of it


@dataclass(frozen=True)
class LoopOfLayers:
    """A loop over equal stages: its counter, and the tensors that each names, by those of the first."""

    counter: ir.Value
    tensors: dict[int, list[ir.Value]]

    def of(self, value: ir.Value) -> list[ir.Value]:
        """The tensor in the place of the first stage's, for each stage."""
        return self.tensors[hash(value)]

    @classmethod
    def over(cls, block: Block, counter: ir.Value) -> LoopOfLayers:
        residents = zip(*(stage.residents for stage in block.stages), strict=True)
        return cls(counter, {hash(first): [first, *more] for first, *more in residents})


@dataclass
class Used:
    """Slots that are given back behind the next product: of weights, where these are not kept, and perhaps of a
    streamed or stowed tile, which the products of these tokens read; the last of them reads the weights."""

    weight: ir.Value | None
    tokens: list[ir.Value]
    tile: ir.Value | None = None

    def release(self) -> None:
        if self.weight is not None:
            schedule.ReleaseOp(self.weight, self.tokens[-1:])
        if self.tile is not None:
            schedule.ReleaseOp(self.tile, self.tokens)


class ChainProducts:
    """The products of a tile. `free` gives, by set of sums, tiles that nothing needs any more; `background` is the work
    that stands between products, and `layers` the loop over equal stages around."""

    def __init__(self, kernel: ChainKernel):
        self.kernel = kernel
        self.filling: Filling = kernel.filling
        self.background: deque[Callable[[], object]] = deque()
        self.free: dict[int, Callable[[], list[ir.Value]]] = {}
        self.layers: LoopOfLayers | None = None
        self.stowed: dict[int, Stowed] = {}  # tiles that wait in shared memory
        self.exchanged: dict[int, Exchanged] = {}  # those that the CTAs of a cluster share
        self.read_later = read_later(kernel.program)

    def _keep(self, value: ir.Value) -> Pieces:
        """Computes a tile and keeps it in registers."""
        raise NotImplementedError

    def _value(self, value: ir.Value) -> ir.Value:
        """A stage's value on the copy's rows."""
        raise NotImplementedError

    def _exact(self, product: Product, operands: list[Operand], ready: Callable[[int, ir.Value], None]) -> None:
        """Products of f32 in full precision."""
        raise NotImplementedError

    def _run(self, product: Product, operands: list[Operand], ready: Callable[[int, ir.Value], None]) -> None:
        """One pass over k; `ready` is called with the number of a set and its sums where these are there."""
        streamed = all(segment.streams for segment in product.segments)
        if product.segments[0].pieces > 1:
            self._exact(product, operands, ready)
        elif streamed and product.chunks > LONG and not self.kernel.keeps:
            self._looped(product, operands, ready)
        else:
            self._unrolled(product, operands, ready)

    def _operands(self, op: ir.Operation) -> list[Operand]:
        """For each part of a product's left operand its tile, and the weight, or those of all layers."""
        found = []
        stack = [op.operands[0]]
        while stack:
            value = stack.pop(0)
            made = rows.producer(value)
            beside_ = made is not None and made.name == "tensor.concat"
            if beside_ and attr_int(made, "dim") == 1:
                stack = [*made.operands, *stack]
            else:
                weights = [op.operands[1]] if self.layers is None else self.layers.of(op.operands[1])
                found.append((value, tuple(map(self.kernel.source, weights))))
        return found

    def _left(self, value: ir.Value, chunk: int) -> ir.Value:
        """A chunk of a part in registers."""
        return self._keep(value).columns(chunk * self.kernel.chunk, chunk * self.kernel.chunk + self.kernel.chunk)

    def _keep_all(self, product: Product, operands: list[Operand]) -> None:
        """Has all parts that are in registers there: what they are read from is on its way together. Behind products
        in flight no load begins before those are issued."""
        for segment, (value, _) in zip(product.segments, operands, strict=True):
            if not segment.streams and hash(value) not in self.stowed:
                self._keep(value)

    def _begin(self, product: Product, number: int) -> ir.Value:
        """New sums of a set; they may begin with a tile's columns."""
        if starts_from_zero(product.op):
            return self._new_sums(product, number)
        sums = schedule.SumsOp([self._first_sums(product, number)], self._acc(product))
        sums.attributes["begin"] = ir.UnitAttr.get()
        return sums.results[0]

    @staticmethod
    def _acc(product: Product) -> schedule.Acc:
        return schedule.Acc.get(ir.RankedTensorType.get([COPY_ROWS, product.columns], ir.F32Type.get()))

    def _new_sums(self, product: Product, number: int) -> ir.Value:
        """Sums of zero, in registers that nothing needs. Where the left operand is read again they are others: ptxas
        makes packed words of a tile anew, for who reads them later, of the registers where the sums are then."""
        acc = self._acc(product)
        over = self.free.pop(number)() if number in self.free else []
        fits = sum(rows.shape_of(tile)[1] for tile in over) == product.columns
        fits = fits and hash(product.op.results[0]) not in self.read_later
        return schedule.SumsOp(over if fits else [], acc).results[0]

    def _multiply(
        self, product: Product, sums: ir.Value, left: ir.Value, weight: Fill, into: Filling
    ) -> tuple[ir.Value, Used]:
        right = self.kernel.wait(weight, into)
        total, token = schedule.ProductOp(
            sums, left, right, self.kernel.product_engine, sums.type, schedule.Token.get()
        ).results
        return total, Used(None if self.kernel.keeps else right, [token])

    def _weight(
        self,
        product: Product,
        segment: Segment,
        source: tuple[ir.Value, ...],
        number: int,
        chunk: int | None,
        piece: int = 0,
        behind: int = 0,
    ) -> Fill:
        """The box of a weight, or of a piece of it, that a set of columns meets at a chunk: of an exchanged tile, at
        one of the CTA so far behind."""
        column = None if chunk is None else chunk * self.kernel.chunk
        ring = f"{WEIGHTS}_{product.columns}" if self.kernel.keeps else WEIGHTS
        row, in_pass = number * product.columns, product.passes > 1
        start = segment.start + piece * packed_width(segment.width * segment.parts)
        share = product.n if self.kernel.cluster > 1 and product.n > 1 else 0  # every CTA has a single column
        part = (behind, segment.width) if segment.parts > 1 else None
        return Fill(ring, source, row, column, product.columns, start, in_pass, share, part)

    def _streamed(self, value: ir.Value, chunk: int | None) -> Fill:
        made = rows.producer(value)
        column = None if chunk is None else chunk * self.kernel.chunk
        if is_gathered(value):
            return Fill(GATHERED, (value,), 0, column, self.kernel.tile_rows)
        if made.name == kitsune.GetOp.OPERATION_NAME:
            source = self.kernel.queues[kitsune_label(made.operands[0])].results[0]
        else:
            source = self.kernel.source(made.operands[0])
        return Fill(STREAMED, (source,), 0, column, self.kernel.box_rows)

    def _reads(self, operands: list[Operand]) -> list[bool]:
        """Counts a product as a reader of stowed tiles; for each operand whether it is the last one."""
        found = []
        for value, _ in operands:
            if (tile := self.stowed.get(hash(value)) or self.exchanged.get(hash(value))) is not None:
                tile.readers -= 1
            found.append(tile is not None and tile.readers == 0)
        return found

    def _closes(self, product: Product, operands: list[Operand]) -> list[bool]:
        """For each operand whether this run gives its tile back; those of a product in passes are behind the last."""
        return self._reads(operands) if product.passes == 1 else [False] * len(operands)

    def _unrolled(self, product: Product, operands: list[Operand], ready: Callable[[int, ir.Value], None]) -> None:
        turns, used = product.turns(), None
        closes = self._closes(product, operands)
        sums: dict[int, ir.Value] = {}
        ending: tuple[int, ...] = ()  # sets whose last chunk is in flight
        for turn in turns:
            if turn is not turns[0] or len(turn) > 1:
                self._settle_background()  # it may read this set's registers
            chunks = [
                (segment, value, source, behind, chunk, closes_it and turn is turns[-1])
                for segment, (value, source), closes_it in zip(product.segments, operands, closes, strict=True)
                for behind, chunk in order(segment)
            ]
            places = len(chunks) if turn is not turns[0] else product.undisturbed
            for number, (segment, value, source, behind, chunk, closes_it) in enumerate(chunks):
                slot, tokens = None, []
                if segment.streams:
                    left = slot = self.kernel.wait(self._streamed(value, chunk), self.filling)
                elif behind:
                    left = self._received(value, behind, chunk)
                    tokens = self.exchanged[hash(value)].tokens[behind, chunk] if product.passes == 1 else []
                    slot = left if closes_it else None
                elif (stowed := self.stowed.get(hash(value))) is not None:
                    left = stowed.slots[chunk]
                    # A pass ends with its products: whoever gives the slot back does not wait for them.
                    tokens = stowed.tokens[chunk] if product.passes == 1 else []
                    slot = left if closes_it else None
                else:
                    self._keep_all(product, operands)
                    left = self._left(value, chunk)
                for one in turn:
                    start = sums[one] if one in sums else self._begin(product, one)
                    weight = self._weight(product, segment, source, one, chunk, behind=behind)
                    sums[one], now = self._multiply(product, start, left, weight, self.filling)
                    for ended in ending:
                        ready(ended, self._settled(ended, sums[ended]))
                    ending = ()
                    self._advance(places - number)
                    if used is not None:
                        used.release()
                    tokens += now.tokens
                    used = Used(now.weight, tokens, slot) if one == turn[-1] else now
            ending = turn
        self._settle_background()
        for ended in ending:
            ready(ended, self._settled(ended, sums[ended]))
        assert used is not None
        used.release()

    def _received(self, value: ir.Value, behind: int, chunk: int) -> ir.Value:
        """A chunk of an exchanged tile of the CTA so far behind. The others do not wait for what this one sends later:
        its own chunk goes first."""
        tile = self.exchanged[hash(value)]
        while tile.sent <= chunk:
            self.background.popleft()()
        return tile.slot(behind, chunk)

    def _settled(self, number: int, sums: ir.Value) -> ir.Value:
        tile = schedule.SettleOp(sums, schedule.tile_of(sums)).results[0]
        self.free[number] = lambda: [tile]
        return tile

    def _looped(self, product: Product, operands: list[Operand], ready: Callable[[int, ir.Value], None]) -> None:
        """The same of streamed operands with many chunks: loops over those of each operand. Slots are given back behind
        the next chunk's first product. Of f32 a turn has two chunks, whose left operands it makes anew in registers:
        no product reads these any more where it ends."""
        self._settle_background()
        (turn,), used, f32 = product.turns(), None, product.nbytes == 4
        sums, each = {one: self._begin(product, one) for one in turn}, IN_TURN if f32 else 1
        for segment, (value, source) in zip(product.segments, operands, strict=True):
            step, first = each * self.kernel.chunk, segment.chunks % each if f32 else 1
            for number in range(first):
                used = self._chunk(product, segment, value, source, turn, sums, used, number, self.filling)
            if segment.chunks == first:
                continue
            if f32 and used is not None:
                used.release()
                used = None
            body: Filling = []
            bounds = first * self.kernel.chunk, segment.chunks * self.kernel.chunk, step
            self.filling.append(Fills("chunks", *bounds, body))
            loop = scf.ForOp(*map(constant_index, bounds), [*(sums[one] for one in turn), *_carried(used)])
            with ir.InsertionPoint(loop.body):
                sums, used = _taken_up(turn, list(loop.inner_iter_args))
                for number in range(each):
                    used = self._chunk(product, segment, value, source, turn, sums, used, None, body, number)
                assert used is not None
                if f32:
                    used.release()
                    used = None
                scf.yield_([*(sums[one] for one in turn), *_carried(used)])
            sums, used = _taken_up(turn, list(loop.results))
        for one in turn:
            ready(one, self._settled(one, sums[one]))
        if used is not None:
            used.release()

    def _chunk(
        self,
        product: Product,
        segment: Segment,
        value: ir.Value,
        source: tuple[ir.Value, ...],
        turn: Sequence[int],
        sums: dict[int, ir.Value],
        used: Used | None,
        chunk: int | None,
        into: Filling,
        further: int = 0,
    ) -> Used:
        """Multiplies a streamed chunk for all sets, or, where a loop counts them, that so many further; gives back what
        was used before behind the first of them."""
        tile = _further(self._streamed(value, chunk), further * self.kernel.chunk)
        slot, tokens = self.kernel.wait(tile, into), []
        for one in turn:
            weight = _further(self._weight(product, segment, source, one, chunk), further * self.kernel.chunk)
            sums[one], now = self._multiply(product, sums[one], slot, weight, into)
            if used is not None:
                used.release()
            tokens += now.tokens
            used = now
        assert used is not None
        return Used(used.weight, tokens, slot)

    def _first_sums(self, product: Product, number: int) -> ir.Value:
        """What the sums of a set begin with; behind the tile's columns, zero."""
        tile, width = self._beginning(product), product.columns * product.sets
        if (missing := width - rows.shape_of(tile)[1]) > 0:
            tile = beside([tile, zeros(rows.shape_of(tile)[0], missing)])
        return part(tile, number * product.columns, product.columns, wide=True)

    def _beginning(self, product: Product) -> ir.Value:
        """The tile that a product's sums begin with; of a product in passes the pass's columns."""
        raise NotImplementedError

    # ---- the background

    def _advance(self, places: int) -> None:
        """A fair part of what is left, with so many places to come, this one included."""
        for _ in range(-(-len(self.background) // max(1, places))):
            self.background.popleft()()

    def _settle_background(self) -> None:
        self._advance(1)


def order(segment: Segment) -> list[tuple[int, int]]:
    """The chunks of an operand in the order of the products: how far behind the CTA is that has each, and its number
    there."""
    return [(behind, chunk) for leg in segment.legs for behind in range(segment.parts) for chunk in leg]


def _further(fill: Fill, columns: int) -> Fill:
    """A box that begins so many columns behind another."""
    return replace(fill, start=fill.start + columns)


def _carried(used: Used | None) -> list[ir.Value]:
    """What a loop over chunks carries besides sums: slots in use, and the tokens of their products."""
    if used is None:
        return []
    assert used.weight is not None and used.tile is not None
    return [used.weight, used.tile, *used.tokens]


def _taken_up(turn: Sequence[int], carried: list[ir.Value]) -> tuple[dict[int, ir.Value], Used | None]:
    """The sums of all sets that a loop over chunks carries, and what is in use."""
    if len(carried) == len(turn):
        return dict(zip(turn, carried)), None
    weight, tile, *tokens = carried[len(turn) :]
    return dict(zip(turn, carried)), Used(weight, tokens, tile)
