"""The schedule level: what runs on a GPU, in order. A kernel holds rings and agents; an agent's body is its program.

    "kitsune.kernel"() ({
      %lo, %hi, %step = "kitsune.tiles"(%m, %n) {tile = array<i64: 128, 128>} : (index, index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "split", space = "smem", sym_name = "left"} : () -> !x
      "kitsune.agent"() ({                              // a thread that feeds the ring
        scf.for %t = %lo to %hi step %step {
          ...
          %s = "kitsune.acquire"(%x) : (!x) -> !slot
          %d = "kitsune.copy"(%s, %A, %i, %k) {dims = array<i64: 0, 1>, engine = "tma"} : ...
          "kitsune.commit"(%s, %d) : (!slot, !kitsune.token) -> ()

What is decided about a kernel stands here, and nothing that can be derived: no counts of arrivals or bytes, no
parities, no fences, no numbers of outstanding products. A *slot* is opened once (`acquire`, `wait`) and closed once
(`commit`, `release`) on every path; what closes it names the tokens of the asynchronous work that must end before.
Bodies are linalg on tiles.
"""

from .boxes import (
    ACROSS,
    ALIGNED,
    BY_ROWS,
    COPIED,
    COPY_ENGINES,
    GRANULE,
    PATCH,
    STREAMED,
    UNTIL,
    WHOLE,
    CopyOp,
    ReadOp,
    SelectOp,
    WriteOp,
    candidates,
    overwrites,
)
from .kernels import (
    BOX_BYTES,
    COLLECT,
    FILL,
    MOST_OUTBOXES,
    OUTBOX_BYTES,
    ROLE,
    SEND,
    SPLIT,
    STOW,
    TOTAL,
    WRITE_ROWS,
    AgentOp,
    KernelOp,
    TilesOp,
    kernels,
)
from .products import PIECES, PRODUCT_ENGINES, RIGHT_WINDOW, WINDOW, PartOp, ProductOp, SettleOp, SumsOp
from .rings import (
    DSMEM,
    L2,
    AcquireOp,
    AllocRingOp,
    CommitOp,
    ReleaseOp,
    WaitOp,
    distance,
    is_between,
    is_stowed,
    ring_of,
)
from .split import SplitOp
from .types import Acc, Slot, Token, tile_of

__all__ = [
    "ACROSS",
    "Acc",
    "AcquireOp",
    "AgentOp",
    "AllocRingOp",
    "BOX_BYTES",
    "BY_ROWS",
    "COLLECT",
    "COPIED",
    "COPY_ENGINES",
    "CommitOp",
    "CopyOp",
    "DSMEM",
    "FILL",
    "GRANULE",
    "KernelOp",
    "L2",
    "MOST_OUTBOXES",
    "OUTBOX_BYTES",
    "ALIGNED",
    "PATCH",
    "WHOLE",
    "PIECES",
    "PRODUCT_ENGINES",
    "PartOp",
    "ProductOp",
    "RIGHT_WINDOW",
    "ROLE",
    "ReadOp",
    "ReleaseOp",
    "SEND",
    "SPLIT",
    "STOW",
    "SplitOp",
    "SelectOp",
    "SettleOp",
    "Slot",
    "SumsOp",
    "TOTAL",
    "TilesOp",
    "STREAMED",
    "UNTIL",
    "Token",
    "WINDOW",
    "WRITE_ROWS",
    "WaitOp",
    "WriteOp",
    "candidates",
    "distance",
    "is_between",
    "is_stowed",
    "kernels",
    "overwrites",
    "ring_of",
    "tile_of",
    "engines",
]


def engines(products: str) -> tuple[str, str]:
    """The engines of copies and of products, where products are "wgmma" or "mma" (Target.products)."""
    number = 0 if products == "wgmma" else 1
    return COPY_ENGINES[number], PRODUCT_ENGINES[number]
