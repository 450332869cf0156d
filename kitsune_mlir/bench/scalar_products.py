"""Contractions that run without tensor cores where the target has some: none of a model may be large."""

from __future__ import annotations

import re
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.compiler import Compiled
from kitsune_mlir.example_sizes import shape_of
from kitsune_mlir.mlir import ir, linalg, location, walk
from kitsune_mlir.operations import end_of
from kitsune_mlir.passes.convolutions import FEW
from kitsune_mlir.passes.thin_products import THIN
from kitsune_mlir.planning.thin_products import SMALL

MOST = 1_000_000  # multiply-adds of one that is no matter
FEW_RESULTS = 4  # that read one window, which threads compute where it lies, of however many elements
AFTER, LAST = "schedule-products", "schedule-rows"  # what is left then becomes loops, but for thin products
_ENTRY = re.compile(r"\.entry\s+([\w.$]+)(.*?)(?=\.entry|\Z)", re.DOTALL)
_TENSOR = re.compile(r"\b(mma\.sync|wgmma\.mma_async)\b")
_FLOATS = (ir.BF16Type, ir.F16Type, ir.F32Type)


def scalar_products(compiled: Compiled, target: str) -> list[str]:
    """A line for each contraction of more than MOST multiply-adds that is in no kernel of its own or of a pipeline, and
    for each of these kernels that is said to have a product and has no instruction of tensor cores. No line for a thin
    product, of few rows or columns, that was predicted to be faster as sums over rows, where warps that share a row
    read each number once, and has such a kernel."""
    found = []
    for after in (AFTER, LAST):
        module = compiled.module(f"{target}:{after}")
        for op in walk(module):
            outside = op.name.startswith("linalg.") and op.parent.name == "func.func"
            left = outside and (THIN in op.attributes) == (after == LAST)
            if left and (count := multiply_adds(op)) > MOST:
                found.append(f"{location(op.location)}: {op.name} of {count} multiply-adds")
    texts = dict(_ENTRY.findall(compiled.ptx))
    for launch in compiled.plan["launches"]:
        multiplies = launch["form"] == "scheduled product" or "matmul" in launch["computes"]
        if multiplies and not _TENSOR.search(texts[launch["kernel"]]):
            found.append(f"{launch['location']}: '{launch['kernel']}', {launch['computes']}")
    return found


def multiply_adds(op: ir.Operation) -> int:
    """How many numbers an operator multiplies and adds up, where elements of both factors are used several times, those
    of windows by more results than a window is read by where it lies, and no tile of tensor cores would be mostly
    empty; else 0."""
    maps = linalg.get_indexing_maps(op)
    if len(op.operands) < 3 or len(op.results) != 1 or maps is None or not _adds_up(op):
        return 0
    sizes: dict[int, int] = {}
    for value, attribute in zip(op.operands, maps, strict=True):
        for size, expression in zip(shape_of(value), attribute.value.results, strict=True):
            if isinstance(expression, ir.AffineDimExpr):
                sizes[expression.position] = size
    long = {loop for loop, size in sizes.items() if size > 1}
    *factors, result = (long & set().union(*map(rows.loops_of, attribute.value.results)) for attribute in maps)
    shared = [prod(sizes[loop] for loop in long - loops) for loops in factors]
    if result == long or min(shared) <= (FEW_RESULTS if _has_windows(maps) else 1):
        return 0
    if _has_windows(maps) and min(shared) * prod(sizes[loop] for loop in long - result) <= 2 * FEW:
        return 0
    if all(sizes[loop] <= SMALL for loop in long - result.intersection(*factors)):
        return 0
    return prod(sizes.values())


def _has_windows(maps: ir.ArrayAttr) -> bool:
    return any(len(rows.loops_of(expression)) > 1 for attribute in maps for expression in attribute.value.results)


def _adds_up(op: ir.Operation) -> bool:
    """Whether its body adds a product to what was there, of floating-point numbers that tensor cores multiply."""
    kinds = [ir.RankedTensorType(v.type).element_type for v in op.operands if rows.is_tensor(v)]
    if not all(isinstance(kind, _FLOATS) for kind in kinds):
        return False
    body = op.regions[0].blocks[0]
    names = [inner.operation.name for inner in body.operations]
    total = end_of(body).operands[0].owner
    adds = not isinstance(total, ir.Block) and total.operation.name == "arith.addf"
    return adds and body.arguments[-1] in list(total.operands) and "arith.mulf" in names
