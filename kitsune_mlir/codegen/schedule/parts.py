"""Parts of tiles that were computed and stand in a warpgroup's registers, as words or as one f32 an element."""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.codegen.hopper import wgmma
from kitsune_mlir.codegen.hopper.fragments import BLOCK, HALVES, Fragment, Lanes, blocks_of, is_packed
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.dialects import schedule
from kitsune_mlir.mlir import arith, ir
from kitsune_mlir.operations import producer
from kitsune_mlir.rows import Structured

from .stores import Half


def part(op: schedule.PartOp, halves: Sequence[Half], lanes: Lanes) -> Fragment:
    """Computes a part. f32 is kept as it is: LLVM would make a sum with one, where that is a product, a single
    instruction, and keep both factors for it."""
    value, kind = op.operands[0], ir.RankedTensorType(op.results[0].type)
    width = ir.RankedTensorType(value.type).shape[1]
    tile = Fragment(lanes, kind.element_type, tuple(kind.shape))
    packs = is_packed(kind.element_type) and not op.is_wide
    for block in range(blocks_of(kind.shape[1])):
        column = lanes.column(op.first_column // BLOCK + block, 0)
        for h in HALVES:
            pair = [_element(halves[h], value, column.moved(e), width) for e in (0, 1)]
            tile.put(block, h, pair, packs)
    if not is_packed(kind.element_type):
        tile.pin()
    return tile


def _element(half: Half, value: ir.Value, column: device.Offset, width: int) -> ir.Value:
    """An element of a tile; zero beyond its columns."""
    x = half.evaluator(value, [half.row, column])
    if device.is_less(column, width) is True:
        return x
    zero = arith.constant(x.type, 0 if isinstance(x.type, ir.IntegerType) else 0.0)
    return arith.select(device.less(column, width), x, zero)


def leaving(value: ir.Value, halves: Sequence[Half], lanes: Lanes, known: object) -> Fragment:
    """A tile as it leaves, box by box: what is not in registers is computed then."""
    if isinstance(known, Fragment):
        return known
    kind = ir.RankedTensorType(value.type)
    tile = Fragment(lanes, kind.element_type, tuple(kind.shape))

    def compute(block: int) -> None:
        if block >= blocks_of(tile.width):
            return
        for h in HALVES:
            pair = [_element(halves[h], value, lanes.column(block, e), tile.width) for e in (0, 1)]
            tile.put(block, h, pair, is_packed(kind.element_type))

    tile.compute = compute
    return tile


def is_of_tensors(value: ir.Value) -> bool:
    """Whether a tile is computed by element of what threads load out of rows of tensors where it is used."""
    waiting, seen = [value], set[ir.Value]()
    while waiting:
        value = waiting.pop()
        op = producer(value)
        if op is None or value in seen:
            continue
        seen.add(value)
        if op.name == "linalg.generic":
            waiting += Structured(op).given
        elif op.name == schedule.ReadOp.OPERATION_NAME and not isinstance(op.operands[0].type, schedule.Slot):
            if ir.RankedTensorType(value.type).rank == 2 and "together" not in op.attributes:
                return True
    return False


def spread(tile: Fragment, columns: Sequence[int]) -> Fragment:
    """The same tile, whose threads have told each other these columns."""
    found = Fragment(tile.lanes, tile.element, tile.shape, tile.words, tile.values, compute=tile.make)
    found.spread_out(columns)
    return found


def joined(parts: Sequence[Fragment], type_: ir.Type) -> Fragment | None:
    """Parts side by side as one tile; None where one of them, but for the last, does not end with a block."""
    if any(tile.width % BLOCK for tile in parts[:-1]):
        return None
    kind = ir.RankedTensorType(type_)
    found, first = Fragment(parts[0].lanes, kind.element_type, tuple(kind.shape)), 0
    for tile in parts:
        found.words.update(((first + block, h), word) for (block, h), word in tile.words.items())
        found.values.update(((first + block, h, e), x) for (block, h, e), x in tile.values.items())
        found.spread.update(((BLOCK * first + column, h), x) for (column, h), x in tile.spread.items())
        first += blocks_of(tile.width)
    return found


def left_words(tile: Fragment) -> list[ir.Value]:
    """A tile as a product's left operand: four words for each step of its columns."""
    steps = -(-tile.width * tile.element.width // 8 // wgmma.STEP_BYTES)
    return [word for step in range(steps) for word in tile.step(step)]


def registers(tiles: Sequence[Fragment]) -> list[ir.Value] | None:
    """What stands in the registers of wide tiles side by side, in the order of sums; None where they have none of their
    own."""
    found = []
    for tile in tiles:
        places = [(block, h, e) for block in range(blocks_of(tile.width)) for h in HALVES for e in (0, 1)]
        own = [x for place in places if (x := tile.values.get(place)) is not None and isinstance(x.type, ir.F32Type)]
        if len(own) < len(places):
            return None
        found += own
    return found


def of_sums(sums: Sequence[ir.Value], type_: ir.Type, lanes: Lanes) -> Fragment:
    """A tile of sums that were settled."""
    kind = ir.RankedTensorType(type_)
    tile = Fragment(lanes, kind.element_type, tuple(kind.shape))
    for i, x in enumerate(sums):
        tile.values[i // 4, i // 2 % 2, i % 2] = x
    return tile


def is_along_columns(value: ir.Value) -> bool:
    """Whether a vector has a number for each column of tiles, as a mask of keys does, by what reads it."""
    left, seen = [value], {value}
    while left:
        for use in left.pop().uses:
            reader = use.owner.operation
            if reader.name != "linalg.generic":
                continue
            s = Structured(reader)
            if len(s.iterators) == 1:
                if use.operand_number < s.inputs and (made := reader.results[0]) not in seen:
                    seen.add(made)
                    left.append(made)
            elif s.maps[use.operand_number] == ir.AffineMap.get(2, 0, [ir.AffineDimExpr.get(1)]):
                return True
    return False
