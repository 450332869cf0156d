"""A consumer warpgroup at work on its 64 rows of a tile: the stages in order, tiles handed on in registers.

What the code computes comes from the stage bodies through the evaluator (codegen/pipeline/evaluate.py); the files
of this folder say where it stands: sums and held tiles in registers, boxes of weights in the rings.
"""

from __future__ import annotations

from math import prod

from kitsune_mlir.codegen import index_checks
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.memory import Memory, element_of, shape_of
from kitsune_mlir.codegen.pipeline.nests import kitsune_label
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir

from . import cluster, warps
from .fragments import Fragment, Lanes, PairedMemory, rows_of_tile
from .outgoing import Around, Outgoing
from .products import Products
from .program import Block, Program
from .rings import Rings
from .rolling import follows_alike, rolls
from .stage_code import Place, RowValues, StageCode
from .stash import Stash


class Consumer:
    """Emits the code of one tile."""

    def __init__(self, program: Program, lanes: Lanes, rings: Rings, around: Around):
        self._program, self._lanes, self._rings, self._around = program, lanes, rings, around
        self.products = Products(rings, around.boxes)
        self._outgoing = Outgoing(program, around)
        self._tiles: dict[str, Fragment | Stash | RowValues] = {}  # by queue
        shares = {columns: self._share_lanes(columns) for columns in program.shares}
        self._place = Place(program, lanes, shares, around, self.products, self._outgoing)

    def _share_lanes(self, columns: int) -> tuple[Lanes, Int]:
        """The thread in the CTA's share of a tile, of so many columns, and the share's first column. A single column
        is no share: each CTA has it."""
        exchange = self._rings.exchange
        if exchange is None or columns == 1:
            return self._lanes, 0
        start = device.mul(cluster.rank(), columns)
        return self._lanes.shifted(device.value(start), columns * exchange.ctas, columns), start

    def emit(self) -> None:
        with index_checks.reported_behind():
            for block in self._program.blocks:
                with block.stage.operation.location:
                    if len(block.stages) == 1:
                        self._stage(block, 0)
                    else:
                        self._loop(block)
            self.products.background.settle()

    def _loop(self, block: Block) -> None:
        """Equal stages: the tile between them and the rings' slots go round. Of a tile that is still being worked on
        when the next stage begins, what is there goes round; the first stage then stands before the loop, unless the
        tile that it takes is left as the loop leaves one."""
        (got,), (put,) = ([kitsune_label(op.operands[0]) for op in ops] for ops in (block.stage.gets, block.stage.puts))
        last = kitsune_label(block.stages[-1].puts[0].operands[0])
        rolling, outside, begin = rolls(block, self._program), dict(self._tiles), 0
        if not rolling:
            self.products.background.settle()
        elif not follows_alike(block, self._program):
            self._stage(block, 0)
            begin = 1
        tile = self._tiles[put if begin else got]
        if isinstance(tile, Stash):
            self._tiles[last] = self._loop_of_stashes(block, got, tile)
            return
        if not isinstance(tile, Fragment):
            raise UnsupportedError("equal stages take up a tile in registers only")
        words = list(tile.held)

        def handed_on(tile: Fragment) -> list[ir.Value]:
            sums = self.products.registers() if rolling else []
            return [*self._rings.state(), *(tile.held[key] for key in words), *sums]

        def taken_up(number: Int, carried: list[ir.Value]) -> Fragment:
            """The tile that stage `number` works on."""
            self.products.background.clear()
            known = self._rings.resume(carried)
            there = dict(zip(words, known))
            if not rolling:
                self.products.free.clear()
                return tile.with_held(there)
            self.products.take_registers(known[len(words) :])
            before = device.sub(number, 1)
            stage = StageCode(self._place, block, before, self._residents(block, before))
            return stage.resume(next(iter(block.nests)), there)

        def body(number: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            self._tiles[got] = taken_up(number, carried)
            self._stage(block, number)
            if not rolling:
                self.products.background.settle()
            result = self._tiles[put]
            assert isinstance(result, Fragment)
            return handed_on(result)

        count = len(block.stages)
        result = taken_up(count, device.loop(begin, count, 1, body, handed_on(tile)))
        self._tiles = outside | {last: result}  # others may still take the tile that the first stage took

    def _loop_of_stashes(self, block: Block, got: str, tile: Stash) -> Stash:
        """Equal stages whose tiles wait in the same boxes, one after another."""

        def body(number: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            self._rings.resume(carried)
            self.products.free.clear()
            self._tiles[got] = tile
            self._stage(block, number)
            return self._rings.state()

        self._rings.resume(device.loop(0, len(block.stages), 1, body, self._rings.state()))
        self.products.free.clear()
        return tile

    def _residents(self, block: Block, number: Int) -> dict[int, Memory]:
        return {hash(value): self._resident(block, value, number) for value in block.stage.residents}

    def _memories(self, block: Block, number: Int) -> dict[int, Memory]:
        """Where the values stand that stage `number` of a block reads."""
        memories: dict[int, Memory] = {}
        for get in block.stage.gets:
            if (label := kitsune_label(get.operands[0])) not in self._around.queues:
                key, tile = hash(get.results[0]), self._tiles[label]
                if isinstance(tile, Fragment):
                    tile = tile.taken_up()
                    tile.spread_out(block.spread.get(key, ()))
                memories[key] = tile
        for load in block.stage.loads:
            key, tile = hash(load.operands[0]), load.results[0]
            whole, stride = self._around.tensors[key], self._around.strides.get(key)
            memories[hash(tile)] = rows_of_tile(whole, tile, self._around.first_row, self._lanes, stride)
        return memories | self._residents(block, number)

    def _stage(self, block: Block, number: Int) -> None:
        """Stage `number` of a block."""
        memories = self._memories(block, number)
        stage = StageCode(self._place, block, number, memories)
        stage.mark()
        for nest in block.nests:
            with (nest.op or nest.value.owner).location:
                stage.emit(nest)
        for put in block.stage.puts:
            if (label := kitsune_label(put.operands[0])) not in self._around.queues:
                tile = memories[hash(put.operands[1])]
                assert isinstance(tile, Fragment | Stash | RowValues)
                self._tiles[label] = tile
        self._outgoing.hand_over(block.stage)

    def _resident(self, block: Block, value: ir.Value, number: Int) -> Memory:
        shape = shape_of(value)
        stride = self._around.strides.get(hash(value)) or (prod(shape[1:]) if len(shape) > 1 else prod(shape))
        if (at := block.vectors.get(hash(value))) is None:
            return PairedMemory(self._around.tensors[hash(value)], element_of(value), shape, stride)
        if not isinstance(number, int):
            number = warps.here(number)
        place = device.add(device.mul(number, block.vector_step), at)
        pointer = device.offset(self._around.vectors, place, ir.IntegerType.get_signless(8))
        return PairedMemory(pointer, element_of(value), shape, stride)
