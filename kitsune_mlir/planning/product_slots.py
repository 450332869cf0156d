"""How many chunks of operands shared memory holds at a time, for tiles that want more than as many as fit."""

from __future__ import annotations

GROUP = 2  # chunks that are multiplied for one set of sums, then for the other
_MOST_ALTERNATING = 12  # slots of either operand


def alternating_slots(left: int, right: int, room: int) -> tuple[int, int]:
    """Slots of the left and of the right operand, of so many bytes each, of tiles that alternate, in so many bytes; (0,
    0) where these hold too few. A group's chunks of the left one stay for both sets."""
    best = min(room // (left + 2 * right), _MOST_ALTERNATING // 2)
    if best < GROUP:
        return 0, 0
    slots = max(2 * GROUP, best)
    return slots, min(_MOST_ALTERNATING, (room - slots * left) // right)


def making_slots(pieces: int, slot: int, wholes: int, room: int, all_made: bool) -> tuple[int, int]:
    """Slots of either operand, of so many bytes together, where pieces are made in the kernel, and of what they are
    made of, in so many bytes; (0, 0) where these hold too few. What is copied wants to be so while the chunk before is
    multiplied, and where one piece is, which takes less than memory does to answer, while several are."""
    deeper = ((4, 4), (3, 3), (2, 3)) if pieces == 1 else ()
    for depth, count in (*deeper, (2, 2), (1, 2) if all_made else (2, 1), (1, 1)):
        if depth * pieces * slot + count * wholes <= room:
            return depth * pieces, count
    return 0, 0
