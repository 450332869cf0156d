"""The kitsune dialect itself and its types; `kitsune.py` has the operations."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from kitsune_mlir.mlir import bytecode, ext, ir


class Kitsune(ext.Dialect, name="kitsune"):
    """The dialect."""

    _definition: bytes = b""  # in IRDL, as the first context had it built

    @classmethod
    def _emit_module(cls) -> ir.Module:
        """Reading what was built takes half as long as building it, which every context would do again."""
        if not cls._definition:
            cls._definition = bytecode(super()._emit_module())
        return ir.Module.parse(cls._definition)


class Ring(Kitsune.Type, name="ring"):
    """`!kitsune.ring<TILE, DEPTH>`: the type of a queue, a bounded first-in-first-out ring of tiles.

    TILE is the ranked tensor type of one entry; DEPTH, at least 1, the number of entries. (IRDL keeps
    types and operations in one name space, so it cannot be called `queue` too.)
    """

    elem: ir.TypeAttr
    depth: ir.IntegerAttr

    @property
    def tile(self) -> ir.Type:
        return ir.TypeAttr(self.elem).value

    @property
    def slots(self) -> int:
        return ir.IntegerAttr(self.depth).value


class Slot(Kitsune.Type, name="slot"):
    """`!kitsune.slot<TILE>`: an open slot of a ring in shared memory."""

    elem: ir.TypeAttr


class Acc(Kitsune.Type, name="acc"):
    """`!kitsune.acc<TILE>`: sums of products, which may still be in flight."""

    elem: ir.TypeAttr


def tile_of(value: ir.Value) -> ir.Type:
    """The tile that a slot, sums or registers hold."""
    return ir.TypeAttr(value.type.elem).value if isinstance(value.type, Slot | Acc) else value.type


class Token(Kitsune.Type, name="token"):
    """`!kitsune.token`: asynchronous work that was begun."""


class Outputs(Kitsune.Type, name="outputs"):
    """`!kitsune.outputs`: all that a pipeline computes; `kitsune.result` takes one tensor out of it."""


def ring_type(tile: ir.Type, depth: int) -> Ring:
    """The type of a queue of `depth` tiles of tensor type `tile`."""
    return Ring.get(tile, ir.IntegerAttr.get(ir.IntegerType.get_signless(64, tile.context), depth))
