"""Elements that take long and that many elements of their reader take each are computed once; so are those that tensor
cores multiply, which take them from memory.

    %g = linalg.generic ... ins(%i) { math.powf, math.log1p } : tensor<8xf32>
    %e = tensor.expand_shape %g : tensor<8x1x1xf32>
    %y = linalg.generic ... ins(%x, %e) : tensor<8x768x768xf32>

MLIR's fusion puts an operator that one other reads into it: each of %y's 4.7 million elements would compute its power.
A kernel of its own for %g takes a microsecond. While fusion runs, its result goes through a call of a function that
nothing is known of (codegen/fused_loops.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from math import prod

from kitsune_mlir import example_sizes, rows
from kitsune_mlir.codegen.fused_loops import behind_calls, ends_of_loops
from kitsune_mlir.codegen.gpu_products import LEAST as LEAST_PRODUCT
from kitsune_mlir.contraction import match_product
from kitsune_mlir.mlir import ir, walk
from kitsune_mlir.operations import is_generic, only_user
from kitsune_mlir.planning.kernel_cost import DEAR_EXACT

from .stacked_elements import is_stack

LEAST = 1 << 24  # instructions of threads, together, that are worth a launch: an H100 has about so many a microsecond


@contextlib.contextmanager
def kept_apart(main: ir.Operation) -> Iterator[None]:
    """While fusion runs: such operators of @main stay by themselves."""
    known: dict[ir.Operation, int] = {}
    made = [op.results[0] for op in walk(main, "linalg.generic") if _is_repeated(op, known)]
    with behind_calls(main, list(dict.fromkeys([*made, *ends_of_loops(main)]))):
        yield


def _is_repeated(op: ir.Operation, known: dict[ir.Operation, int]) -> bool:
    """Whether the one reader of an elementwise operator would compute its elements so often that it takes longer than a
    launch. The work of those before it is `known`."""
    if len(op.results) != 1 or not rows.is_tensor(op.results[0]) or not rows.Structured(op).is_elementwise():
        return False
    reader = _reader(op.results[0])
    if reader is not None and _is_product(reader) and _computes(op):
        return True
    if reader is None or reader.name != "linalg.generic":
        return False
    loops = _loops(reader)[:-1] if is_stack(reader) else _loops(reader)  # a thread has all of a place then
    more = prod(loops) - prod(example_sizes.shape_of(op.results[0]))
    return more > 0 and more * _work(op, known) >= LEAST


def _is_product(op: ir.Operation) -> bool:
    """Whether tensor cores multiply it, unless it computes what it multiplies (gpu_products.py)."""
    product = match_product(op) if op.name.startswith("linalg.") else None
    if product is None:
        return False
    summed = example_sizes.shape_of(product.left)[product.left_roles.index("k")]
    return prod(example_sizes.shape_of(op.results[0])) * summed > LEAST_PRODUCT


def _computes(op: ir.Operation) -> bool:
    """Whether its elements are more than others, or the same ones of a wider type."""
    return any(
        inner.operation.name not in ("linalg.yield", "arith.extf") for inner in rows.Structured(op).body.operations
    )


def _reader(value: ir.Value) -> ir.Operation | None:
    """What alone reads a tensor, in whatever shape."""
    reader = only_user(value)
    while reader is not None and reader.name in rows.RESHAPES:
        reader = only_user(reader.results[0])
    return reader


def _loops(op: ir.Operation) -> list[int]:
    """The turns of an operator's loops."""
    s = rows.Structured(op)
    found = [1] * len(s.iterators)
    for map_, operand in zip(s.maps, op.operands, strict=True):
        if rows.is_tensor(operand):
            for expr, size in zip(map_.results, example_sizes.shape_of(operand), strict=True):
                if (loop := rows.dim_of(expr)) is not None:
                    found[loop] = max(found[loop], size)
    return found


def _work(op: ir.Operation, known: dict[ir.Operation, int]) -> int:
    """Instructions of an element, with those of what it alone reads; 0 where none of them takes long."""
    if op in known:
        return known[op]
    s = rows.Structured(op)
    dear = sum(DEAR_EXACT.get(inner.operation.name, 0) for inner in s.body.operations)
    for operand in s.given:
        made = rows.producer(operand)
        while made is not None and made.name in rows.RESHAPES:
            made = rows.producer(made.operands[0])
        if not is_generic(made):
            continue
        if _reader(made.results[0]) is not None and rows.Structured(made).is_elementwise():
            dear += _work(made, known)
    known[op] = dear
    return dear
