"""Shared memory of one role: an offset for every stored tile, reused when its last reader is done."""

from __future__ import annotations

from dataclasses import dataclass

ALIGN = 128


@dataclass(frozen=True)
class Block:
    """A tile of `nbytes`, written by nest `birth`, read last by nest `death` (numbers in program order)."""

    key: int
    nbytes: int
    birth: int
    death: int


def allocate(blocks: list[Block], start: int = 0) -> tuple[dict[int, int], int]:
    """Offsets by key, first fit, and the total. Tiles alive in a common nest do not overlap."""
    placed: list[tuple[int, Block]] = []
    offsets: dict[int, int] = {}
    end = start
    for block in sorted(blocks, key=lambda b: (-b.nbytes, b.birth)):
        rivals = sorted(
            (at, at + other.nbytes) for at, other in placed if other.birth <= block.death and block.birth <= other.death
        )
        place = start
        for low, high in rivals:
            if place + block.nbytes <= low:
                break
            place = max(place, -(-high // ALIGN) * ALIGN)
        offsets[block.key] = place
        placed.append((place, block))
        end = max(end, place + block.nbytes)
    return offsets, end
