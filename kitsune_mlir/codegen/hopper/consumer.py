"""A consumer warpgroup at work on its 64 rows of a tile: the stages in order, tiles handed on in registers.

What the code computes comes from the stage bodies through the evaluator (codegen/pipeline/evaluate.py); the files
of this folder say where it stands: sums and held tiles in registers, boxes of weights in the rings.
"""

from __future__ import annotations

from math import prod

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.memory import Memory, element_of, shape_of
from kitsune_mlir.codegen.pipeline.nests import kitsune_label
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir

from .fragments import Fragment, Lanes, PairedMemory, rows_of_tile
from .operands import is_only_operand
from .outgoing import Around, Outgoing
from .products import Products
from .program import Block, Program
from .rings import Rings
from .stage_code import Place, RowValues, StageCode
from .stash import Stash


class Consumer:
    """Emits the code of one tile. `sums` are registers handed from product to product."""

    def __init__(self, program: Program, lanes: Lanes, rings: Rings, around: Around, sums: list[ir.Value]):
        self._program, self._lanes, self._rings, self._around = program, lanes, rings, around
        self._products = Products(rings, sums, around.leader, around.group_rows)
        self._outgoing = Outgoing(program, around)
        self._tiles: dict[str, Fragment | Stash | RowValues] = {}  # by queue
        shares = {columns: self._share_lanes(columns) for columns in program.shares}
        self._place = Place(program, lanes, shares, around, self._products, self._outgoing)

    def _share_lanes(self, columns: int) -> tuple[Lanes, Int]:
        """The thread in the CTA's share of a tile, of so many columns, and the share's first column."""
        exchange = self._rings.exchange
        if exchange is None:
            return self._lanes, 0
        start = device.mul(exchange.rank, columns)
        return self._lanes.shifted(device.value(start), columns * exchange.ctas), start

    def emit(self) -> None:
        for block in self._program.blocks:
            with block.stage.operation.location:
                if len(block.stages) == 1:
                    self._stage(block, 0)
                else:
                    self._loop(block)

    def _loop(self, block: Block) -> None:
        """Equal stages: the tile between them, the sums and the rings' slots go round."""
        got, put = (kitsune_label(op.operands[0]) for op in (block.stage.gets[0], block.stages[-1].puts[0]))
        tile = self._tiles[got]
        if not isinstance(tile, Fragment):
            raise UnsupportedError("equal stages take up a tile in registers only")
        carried_words = tile.words
        if self._rings.exchange is not None and all(is_only_operand(get.results[0]) for get in block.stage.gets):
            carried_words = {}  # products read the exchanged tile
        elif tile.values:
            raise UnsupportedError("equal stages that hand on f32 tiles are not chained")
        keys, words = list(carried_words), list(carried_words.values())

        def body(number: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            count = len(self._products.sums)
            self._products.sums, rest = carried[:count], carried[count:]
            self._tiles[got] = Fragment(tile.lanes, tile.element, tile.shape, dict(zip(keys, rest)))
            self._rings.resume(rest[len(keys) :])
            self._stage(block, number)
            result = self._tiles[kitsune_label(block.stage.puts[0].operands[0])]
            return [*self._products.sums, *(result.words[key] for key in keys), *self._rings.state()]

        start = [*self._products.sums, *words, *self._rings.state()]
        count = len(self._products.sums)
        results = device.loop(0, len(block.stages), 1, body, start)
        self._products.sums, rest = results[:count], results[count:]
        self._tiles[put] = Fragment(tile.lanes, tile.element, tile.shape, dict(zip(keys, rest)))
        self._rings.resume(rest[len(keys) :])

    def _stage(self, block: Block, number: Int) -> None:
        """Stage `number` of a block."""
        memories: dict[int, Memory] = {}
        for get in block.stage.gets:
            if (label := kitsune_label(get.operands[0])) not in self._around.queues:
                memories[hash(get.results[0])] = self._tiles[label]
        for load in block.stage.loads:
            whole, tile = self._around.tensors[hash(load.operands[0])], load.results[0]
            memories[hash(tile)] = rows_of_tile(whole, tile, self._around.first_row, self._lanes)
        for value in block.stage.residents:
            memories[hash(value)] = self._resident(block, value, number)
        stage = StageCode(self._place, block, number, memories)
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
        if (at := block.vectors.get(hash(value))) is None:
            return PairedMemory(self._around.tensors[hash(value)], element_of(value), shape, prod(shape[1:]))
        place = device.add(device.mul(number, block.vector_step), at)
        pointer = device.offset(self._around.vectors, place, ir.IntegerType.get_signless(8))
        return PairedMemory(pointer, element_of(value), shape, prod(shape[1:]))
