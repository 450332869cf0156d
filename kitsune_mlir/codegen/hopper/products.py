"""Products of a warpgroup: which boxes it multiplies, when it waits, and when it gives slots back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.memory import element_of
from kitsune_mlir.mlir import ir

from . import tf32, warps, wgmma
from .background import Background
from .fragments import Fragment, Lanes
from .mbarrier import Slot
from .product_plan import Product, Segment
from .rings import Rings, numbers_of, slots_of
from .stash import Stash
from .stores import Boxes

LONG = 4  # chunks of streamed operands; a product of more is a loop
Operand = Fragment | Stash | None
Words = ir.Value | list[ir.Value]  # a descriptor, or what is in registers
Sums = list[ir.Value]
Ready = Callable[[int, Sums], None]
Begin = Callable[[int], Sums] | None  # what the sums of a set begin with; None: zero
At = tuple[Segment, int, int, Operand]  # a chunk's segment, its part and number there, the operand


class Products:
    """`free` gives, by set, values that nothing needs any more: a product's sums begin in their registers, which are
    never without a value, for undefined ones would stay alive around the loop over tiles. `boxes` reads boxes of the
    warpgroup."""

    def __init__(self, rings: Rings, boxes: Boxes):
        self.rings, self.background = rings, Background()
        self.free: dict[int, Callable[[], Sums]] = {}
        self._boxes = boxes

    def registers(self) -> list[ir.Value]:
        """What is in the registers of all sets, to carry it around a loop."""
        return [x for number in sorted(self.free) for x in self.free[number]()]

    def take_registers(self, carried: list[ir.Value]) -> None:
        """Takes `registers` up in a loop: sets of equal size."""
        each = len(carried) // len(self.free)
        for number in sorted(self.free):
            self.free[number] = partial(list, carried[number * each : (number + 1) * each])

    def run(self, product: Product, operands: list[Operand], ready: Ready, begin: Begin = None) -> None:
        """One pass over k. `ready` is called, in code, with the number of a set and its sums, as soon as they are
        there: the next set's products may run then. An operand that comes through a ring is None; of an exchanged tile
        it is the CTA's own share."""
        long = product.chunks > LONG and all(segment.rows_map is not None for segment in product.segments)
        if product.segments[0].pieces > 1:
            self._exact(product, operands, ready, begin)
        elif long and product.nbytes == 2:
            self._looped(product, ready, begin)
        elif long and all(segment.is_whole(segment.chunks - 1) for segment in product.segments[:-1]):
            self._summed(product, ready, begin)
        else:
            self._unrolled(product, operands, ready, begin)
        if product.passes == 1:
            self._free_exchange(product)

    def _unrolled(self, product: Product, operands: list[Operand], ready: Ready, begin: Begin) -> None:
        turns, used = product.turns(), None
        sums: dict[int, Sums] = {}
        whole: tuple[int, ...] = ()  # sets whose last chunk is in flight
        for turn in turns:
            if turn is not turns[0] or len(turn) > 1:
                self.background.settle()  # it may read this set's registers
            chunks = list(self._chunks(product, operands))
            places = len(chunks) if turn is not turns[0] else product.undisturbed
            for number, (segment, part, chunk, operand) in enumerate(chunks):
                (a,) = self._operand(segment, part, chunk, operand)
                for one in turn:
                    start = sums.get(one) or self._begin(product, one, begin)
                    anew = one not in sums and begin is None
                    sums[one] = self.multiply(product, start, a, segment.steps(chunk), anew)
                    for ended in whole:
                        self._end(ended, sums[ended], 1, ready)
                    whole = ()
                    self.background.advance(places - number)
                    if used is not None:
                        wgmma.wait(1)
                        self.rings.release(used, self._boxes)
                    used = self.rings.step_on(segment.rows_map is not None and one == turn[-1])
            whole = turn
        self.background.settle()
        for ended in whole:
            self._end(ended, sums[ended], 0, ready)
        assert used is not None
        self.rings.release(used, self._boxes)

    def _free_exchange(self, product: Product) -> None:
        """Tells the other CTAs of the cluster that they may send their next tiles: the product that is the last to read
        the present one has ended. A product of several passes reads it in every pass (`each_pass`)."""
        if product.frees:
            assert self.rings.exchange is not None
            if product.nbytes == 4:  # warps read for themselves
                warps.barrier(self._boxes.barrier, wgmma.THREADS)
            self.rings.exchange.release()

    def _chunks(self, product: Product, operands: list[Operand]) -> Iterator[At]:
        for segment, operand in zip(product.segments, operands):
            for leg in segment.legs:
                for part in range(segment.parts):
                    for chunk in leg:
                        yield segment, part, chunk, operand

    def _operand(self, segment: Segment, part: int, chunk: int, operand: Operand) -> list[Words]:
        """A chunk of the left operand, as each piece of the weight is multiplied with; waits for it."""
        if part:
            assert self.rings.exchange is not None
            while self.rings.exchange.sent <= chunk:  # other CTAs do not wait for what this one sends later
                self.background.advance_one()
            self.rings.exchange.receive(part, chunk)
            box = self.rings.exchange.box(part, chunk)
            return [wgmma.descriptor(box)] if segment.nbytes == 2 else self._read(segment, box, segment.steps(chunk))
        if isinstance(operand, Fragment):
            start, steps = chunk * wgmma.STEPS, range(segment.steps(chunk))
            words = [word for step in steps for word in operand.step(start + step)]
            return [words] if segment.nbytes == 2 else [*tf32.operands(words, segment.pieces)]
        box = self.streamed_box(self.rings.tile) if operand is None else operand.box(chunk)
        return [wgmma.descriptor(box)] if segment.nbytes == 2 else self._read(segment, box, segment.steps(chunk))

    def _read(self, segment: Segment, box: Int, steps: int) -> list[Words]:
        """Steps of a box of f32 elements, for each piece of the weight."""
        words = [word for step in range(steps) for word in self._boxes.read(box, step)]
        return [*tf32.operands(words, segment.pieces)]

    def _begin(self, product: Product, number: int, begin: Begin = None) -> Sums:
        """The registers of a set, whatever is in them, or what its sums begin with."""
        if begin is not None:
            return begin(number)
        count = product.columns // 2
        found = self.free.pop(number)() if number in self.free else []
        return found if len(found) == count else wgmma.zeros(product.columns)

    def _end(self, number: int, sums: Sums, pending: int, ready: Ready) -> None:
        """Waits for a set's products; `pending` later ones may run."""
        whole = wgmma.wait_for(sums, pending)
        self.free[number] = partial(list, whole)
        ready(number, whole)

    def multiply(
        self, product: Product, sums: Sums, a: Words, steps: int, first: ir.Value | bool, slot: Slot | None = None
    ) -> Sums:
        """Issues a chunk for one set of columns, with the weights in the next slot or in one that was waited for."""
        if slot is None:
            slot = self.rings.weight
            self.rings.weights.wait_full(slot)
        b = wgmma.descriptor(self.rings.weights.place(slot))
        return wgmma.multiply(str(element_of(product.op.operands[1])), sums, a, b, steps, first)

    def _looped(self, product: Product, ready: Ready, begin: Begin) -> None:
        """The same, of streamed operands with many chunks: a loop over k."""
        rings, (turn,), count = self.rings, product.turns(), product.columns // 2
        self.background.settle()

        def chunk(number: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            sums = [carried[one * count : (one + 1) * count] for one in turn]
            before, state = carried[len(turn) * count :][:4], carried[len(turn) * count + 4 :]
            rings.resume(state)
            used = slots_of(before)
            first = device.equal(number, 0)
            a = wgmma.descriptor(self.streamed_box(self.rings.tile))
            for one in turn:
                sums[one] = self.multiply(product, sums[one], a, wgmma.STEPS, first if begin is None else False)
                wgmma.wait(1)
                rings.release(used, self._boxes, unless=first if one == turn[0] else None)
                used = rings.step_on(one == turn[-1])
            return [*(x for each in sums for x in each), *numbers_of(used), *rings.state()]

        assert rings.tile is not None
        start = [x for one in turn for x in self._begin(product, one, begin)]
        start += [*numbers_of((rings.weight, rings.tile)), *rings.state()]
        results = device.loop(0, product.chunks, 1, chunk, start)
        last = results[len(turn) * count :]
        rings.resume(last[4:])
        for one in turn:
            self._end(one, results[one * count : (one + 1) * count], 0, ready)
        self.rings.release(slots_of(last), self._boxes)

    def _summed(self, product: Product, ready: Ready, begin: Begin) -> None:
        """The same of f32 elements, in one set. Their words are read anew for each chunk, whose products end before the
        next are read."""
        rings, count = self.rings, product.columns // 2
        self.background.settle()

        def chunk(number: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            rings.resume(carried[count:])
            (words,) = self._read(product.segments[0], self.streamed_box(rings.tile), wgmma.STEPS)
            first = device.equal(number, 0) if begin is None else False
            total = self.multiply(product, carried[:count], words, wgmma.STEPS, first)
            used = rings.step_on(True)
            total = wgmma.wait_for(total)
            rings.release(used, self._boxes)
            return [*total, *rings.state()]

        results = device.loop(0, product.chunks, 1, chunk, [*self._begin(product, 0, begin), *rings.state()])
        rings.resume(results[count:])
        self.free[0] = partial(list, results[:count])
        ready(0, results[:count])

    def _exact(self, product: Product, operands: list[Operand], ready: Ready, begin: Begin) -> None:
        """Products of f32 elements in full precision, in one set: chunk by chunk, all in the same registers; many whole
        chunks of streamed operands in a loop."""
        self.background.settle()
        added, total = self._begin(product, 0), wgmma.zeros(product.columns) if begin is None else begin(0)
        for repeats, run in groupby(self._chunks(product, operands), _repeats):
            chunks = list(run)
            if repeats and len(chunks) > LONG:
                added, total = self._exact_loop(product, chunks[0][0], len(chunks), added, total)
                continue
            for segment, part, chunk, operand in chunks:
                words = self._operand(segment, part, chunk, operand)
                added = self._exact_chunk(product, added, words, segment.steps(chunk), segment.rows_map is not None)
                total = wgmma.add(total, added)
        self.free[0] = partial(list, added)
        ready(0, total)

    def _exact_loop(
        self, product: Product, segment: Segment, chunks: int, added: Sums, total: Sums
    ) -> tuple[Sums, Sums]:
        """So many streamed chunks from a segment on: the last one's sums, and those of all."""
        rings, count = self.rings, len(total)

        def chunk(number: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            rings.resume(carried[2 * count :])
            words = self._read(segment, self.streamed_box(rings.tile), wgmma.STEPS)
            added = self._exact_chunk(product, carried[:count], words, wgmma.STEPS, True)
            return [*added, *wgmma.add(carried[count : 2 * count], added), *rings.state()]

        results = device.loop(0, chunks, 1, chunk, [*added, *total, *rings.state()])
        rings.resume(results[2 * count :])
        return results[:count], results[count : 2 * count]

    def _exact_chunk(self, product: Product, spare: Sums, words: list[Words], steps: int, streamed: bool) -> Sums:
        """The sums of one chunk in the registers `spare`, small terms first; `streamed` says that its tile's slot is
        done with."""
        high, low = words
        upper = self.rings.weight
        sums = self.multiply(product, spare, low, steps, True)
        used = [self.rings.step_on(False)]
        sums = self.multiply(product, sums, high, steps, False)
        sums = self.multiply(product, sums, high, steps, False, upper)
        used.append(self.rings.step_on(streamed))
        sums = wgmma.wait_for(sums)
        for slots in used:
            self.rings.release(slots, self._boxes)
        return sums

    def streamed_box(self, slot: Slot | None) -> Int:
        """A box of the tile's rows, which it waits for; where those of the warpgroup begin."""
        tiles = self.rings.tiles
        assert tiles is not None and slot is not None
        tiles.wait_full(slot)
        if tiles.slot_bytes == wgmma.ROWS * wgmma.BOX_ROW:
            return tiles.place(slot)
        return device.add(tiles.place(slot), device.mul(self._boxes.first_row, wgmma.BOX_ROW))

    def each_pass(self, product: Product, lanes: Lanes, first: Int, each: Callable[[Lanes, Int], None]) -> None:
        """Calls `each`, in code, for every one of several passes over the product's columns, `first` and on, with the
        lanes standing there and the pass's first column."""

        def body(start: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            self.rings.resume(carried)
            self.free.clear()
            each(lanes.shifted(start, product.bound and lanes.limit or product.bound), device.add(first, start))
            return self.rings.state()

        self.background.settle()
        self.rings.resume(device.loop(0, product.n, product.columns, body, self.rings.state()))
        self.free.clear()
        self._free_exchange(product)


def _repeats(at: At) -> bool:
    """Whether a chunk is like others before and behind it: a whole one that is streamed."""
    segment, _, chunk, _ = at
    return segment.rows_map is not None and segment.is_whole(chunk)
