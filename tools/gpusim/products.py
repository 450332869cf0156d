"""wgmma in inline PTX: products are queued as a text issues them, and are in flight from its end to a wait."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import wgmma
from .clocks import EngineClock
from .cta import CtaState
from .faults import MemoryFault
from .memory import Places

if TYPE_CHECKING:
    from .assembler import Assembler


def queue(run: Assembler, shape: wgmma.Shape, operands: Sequence[Any]) -> None:
    """One instruction: sums, A, B, whether to add to the sums, signs, and orders where elements have 16 bits."""
    d, a, b, adds, *flags = operands
    signs, orders = flags[:2], flags[2:]
    wanted = 0 if shape.itemsize != 2 else 1 if isinstance(a, tuple) else 2
    if signs != [1, 1] or len(orders) != wanted or not set(orders) <= {0, 1}:
        raise AssertionError(f"no such product here: {flags}")
    across = (orders[0], orders[-1]) if orders else (0, 0)
    assert d == _sums(shape.n // 2) and len(d) <= run.op.assembly.tied, "sums that are not tied"
    left = [run.read(word) for word in a] if isinstance(a, tuple) else run.number(a, run.mask)
    if isinstance(a, tuple):
        run.left.update((run.register(word), value) for word, value in zip(a, left, strict=True))
    run.products.append((shape, left, run.number(b, run.mask), bool(run.number(adds, run.mask)), across))


@functools.cache
def _sums(count: int) -> tuple[str, ...]:
    """The registers of a product's sums, the first outputs of a text."""
    return tuple(f"${i}" for i in range(count))


def issue(run: Assembler) -> None:
    """All that is queued, which sums to the same registers."""
    if not run.products:
        return
    products, run.products = run.products, []
    (shape, first, _, adds, across), agent = products[0], run.agent
    unit = agent.unit(run.mask)
    assert all(product[0] == shape and product[4] == across for product in products)
    assert all(product[3] for product in products[1:])
    sums = [run.read(register) for register in _sums(shape.n // 2)] if run.sums is None else run.sums
    in_registers = isinstance(first, list)
    chained = isinstance(sums[0], wgmma.Sum) and not sums[0].product.done
    if not unit.fenced and (in_registers or not chained):
        raise MemoryFault("a product uses registers without a wgmma.fence since the last wait")
    unit.issued += 1
    clock = agent.engine_clock(unit.component, unit.issued, run.mask)
    if in_registers:
        a = wgmma.fragment([word for product in products for word in product[1]], shape.element)
    else:
        a = _matrix(run.cta, [product[1] for product in products], wgmma.ROWS, shape.element, across[0], clock)
    total = a @ _matrix(run.cta, [product[2] for product in products], shape.n, shape.element, across[1], clock).T
    if adds:
        total += wgmma.matrix_of(sums)
    run.sums = wgmma.Product(unit.issued, total, run.left)
    unit.open.append(run.sums)
    agent.pause = True


def _matrix(
    cta: CtaState, descriptors: Sequence[int], rows: int, element: str, across: int, clock: EngineClock
) -> np.ndarray:
    """[rows, k] from shared memory."""
    chunks, end, read = _chunks(tuple(descriptors), rows, across)
    if end * 16 > len(cta.shared.bytes):
        raise MemoryFault("a matrix descriptor goes beyond the end of shared memory")
    cta.shared.engine_read(read, clock)
    content = cta.shared.bytes[: end * 16].reshape(-1, 16)[chunks]
    if across:
        return wgmma.widened(content.reshape(len(chunks), -1), element)[:, :rows].T
    return wgmma.widened(content.reshape(rows, -1), element)


@functools.lru_cache(maxsize=1024)
def _chunks(descriptors: tuple[int, ...], rows: int, across: int) -> tuple[np.ndarray, int, Places]:
    """Where the chunks of matrices lie that are multiplied together, counted in chunks; the one behind the last; and
    all of them as bytes."""
    found = [wgmma.descriptor(bits) for bits in descriptors]
    if across:
        chunks = np.concatenate([one.chunks_across(rows) for one in found], 0)
    else:
        chunks = np.concatenate([one.chunks(rows) for one in found], 1)
    first, end = int(chunks.min()), int(chunks.max()) + 1
    if chunks.size == end - first:
        return chunks, end, slice(first * 16, end * 16)
    return chunks, end, (np.sort(chunks, axis=None) * 16, 16)
