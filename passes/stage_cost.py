"""Counts what a stage of a designed pipeline does for one row, for the cost model."""

from __future__ import annotations

from math import prod

from kitsune_mlir import rows
from kitsune_mlir.chains.operands import is_gathered, is_multiplied_alone, is_read_by_threads, parts_of
from kitsune_mlir.chains.pressure import registers_of
from kitsune_mlir.codegen.hopper.fragments import is_packed
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import element_type, made_by, operations_of, users_of
from kitsune_mlir.planning.cost import ProductCost, StageCost
from kitsune_mlir.planning.kernel_cost import DEAR, DEAR_FAST
from kitsune_mlir.planning.place import QueueCost
from kitsune_mlir.planning.product_tiles import PAIRS
from kitsune_mlir.planning.product_widths import lines
from kitsune_mlir.planning.row_tiles import WIDEST
from kitsune_mlir.precision import tensor_work, tf32_pieces
from kitsune_mlir.traffic import element_bytes
from kitsune_mlir.weights import is_weight

from .block_order import Order
from .operand_layout import GRANULE
from .row_groups import find, root
from .strided_views import is_read_in_place

HELD = 15.0  # operations of an element of a product's wide operand that threads read (H100, rows of 131 elements)
MOVED = 4.0  # times its bytes: what a chained kernel takes from a table and only stores (measured)
# Operations of an element that is added to others of its row, for threads hand these to one another; and those that are
# nothing where neighbours are converted together, or another operation takes a sign (H100, chains with norms).
REDUCED = 2.3
FREE = frozenset(("linalg.yield", "arith.extf", "arith.truncf", "arith.negf"))
_DEAR_16_BITS = {**DEAR_FAST, "math.erf": 6}  # of a GELU, which is one form with what stands around it
_SCHEDULED = ir.BF16Type | ir.F16Type | ir.F32Type  # elements of products that may be kernels of their own


def row_elements(type_: ir.Type) -> int:
    """Elements of one row of a tile (all of a tensor without a row dimension)."""
    shape = list(ir.RankedTensorType(type_).shape)
    return prod(size for size in shape if size != rows.DYNAMIC)


def row_bytes(type_: ir.Type) -> int:
    return row_elements(type_) * element_bytes(ir.RankedTensorType(type_).element_type)


def stage_cost(stage: kitsune.StageOp) -> StageCost:
    """What the stage does for one row; the tile's rows must still be `?`."""
    flops = wide = simt = plain_ops = plain = gathered = 0.0
    joined, joined_lines = 0.0, 1.0
    kernels, reduced, products, dear = 0, False, [], _DEAR_16_BITS if _is_of_16_bits(stage) else DEAR
    groups = [group for group in find(Order(stage.block)) if group.space.columns <= WIDEST]
    for group in groups:  # a kernel, beside what makes its inputs and what takes its outputs
        kernels += 1
        plain += 2 * sum(row_bytes(value.type) for value in group.edges if rows.is_tensor(value))
    for op in stage.block.operations:
        op = op.operation
        if op.name == "linalg.matmul":
            k = rows.Structured(op).maps[0].results
            contracted = [size for size, expr in zip(rows.shape_of(op.operands[0]), k) if "d2" in str(expr)]
            work = tensor_work(op)
            operations = 2 * row_elements(op.results[0].type) * max(1, contracted[0]) * work
            flops += operations
            wide += operations if work > 1 else 0.0
            products.append(_product(op))
            if len(parts := parts_of(op.operands[0])) > 1:
                joined += sum(map(row_bytes, (part.type for part in parts)))
                joined_lines = max(joined_lines, *(lines(row_bytes(part.type) // 2) for part in parts))
            held = sum(row_elements(part.type) for part in parts_of(op.operands[0]) if is_read_by_threads(part))
            simt += HELD * held
            if row_bytes(op.operands[0].type) % GRANULE:  # first a kernel that pads its rows
                kernels += 1
                plain += 2 * row_bytes(op.operands[0].type)
        elif op.name == "linalg.generic":
            widest = max(row_elements(value.type) for value in op.operands if rows.is_tensor(value))
            names = [inner.operation.name for inner in op.regions[0].blocks[0].operations]
            plain_ops += widest * sum(DEAR.get(name, 1) for name in names)
            reduces = "reduction" in str(op.attributes["iterator_types"])
            reduced = reduced or reduces
            if not _is_copied(op):
                computed = sum(dear.get(name, 1) for name in names if name not in FREE)
                simt += widest * computed * (REDUCED if reduces else 1)
            if (taken := _gathered_bytes(op)) > 0:
                gathered += MOVED * taken if _is_part(op) and not _is_part_of_operand(op) else taken
                if not _is_part(op):
                    kernels += 1
                    plain += 2 * taken
            if reduces and not any(group.has(op) for group in groups):  # one kernel for it, one for what it is used in
                kernels += 2
                plain += 3 * max(row_bytes(value.type) for value in op.operands if rows.is_tensor(value))
        elif op.name == "tensor.concat" and (copied := [part for part in op.operands if _is_loaded(part)]):
            kernels += 1  # what the pipeline computes is written in its place
            plain += 2 * sum(row_bytes(part.type) for part in copied)
    copied = [op for op in stage.block.operations if _is_copied(op.operation)]
    apart = None not in products and not stage.accumulates and not stage.reduces
    tiles = [op.results[0].type for op in (*stage.gets, *stage.loads)]
    tiles += [op.operands[1].type for op in stage.puts] + [op.operands[0].type for op in stage.stores]
    loads = sum(row_bytes(op.results[0].type) for op in stage.loads)
    stores = sum(row_bytes(op.operands[0].type) for op in stage.stores if not stage.fires_once)
    tables = _tables(stage)
    queues = [op.results[0].type for op in stage.gets] + [op.operands[1].type for op in stage.puts]
    return StageCost(
        name=stage.label,
        unit=stage.unit,
        product_flops=flops,
        wide_flops=wide,
        simt_ops=simt,
        plain_ops=plain_ops,
        weight_bytes=sum(row_bytes(value.type) for value in stage.residents if value not in tables),
        dram_bytes=loads + stores + gathered,
        stored_bytes=stores,
        loaded={hash(op.operands[0]): row_bytes(op.results[0].type) for op in stage.loads},
        queue_bytes=sum(row_bytes(type_) for type_ in queues),
        row_bytes=sum(row_bytes(type_) for type_ in tiles),
        joined_bytes=joined,
        joined_lines=joined_lines,
        kept=max((registers_of(op.results[0]) for op in stage.loads if reduced and _is_kept(op.results[0])), default=0),
        products=tuple(products) if apart else None,
        kernels=kernels if products or kernels else 1,
        plain_bytes=plain if products else max(plain, loads + stores),
        copied_bytes=sum(row_bytes(op.results[0].type) for op in copied),
        copied=len(copied),
        beside=_beside(stage),
    )


def _beside(stage: kitsune.StageOp) -> int:
    """The number of the tensor, or the queue, that a stage multiplies with a weight, where join-products may make one
    product of that and others of the same operand; 0 where it may not."""
    products = operations_of(stage.block, "linalg.matmul")
    if len(products) != 1 or stage.puts or not is_weight(products[0].operands[1]):
        return 0
    left = made_by(products[0].operands[0], kitsune.LoadOp.OPERATION_NAME, kitsune.GetOp.OPERATION_NAME)
    if left is None:
        return 0
    stored = {store.position for store in stage.stores}
    results = [result.results[0] for result in stage.operation.parent.opview.result_ops if result.position in stored]
    return hash(left.operands[0]) if all(map(is_read_in_place, results)) else 0


def _is_copied(op: ir.Operation) -> bool:
    """Whether threads gather an operator's result into shared memory."""
    return op.name == "linalg.generic" and is_gathered(op.results[0])


def _is_kept(tile: ir.Value) -> bool:
    """Whether threads of warpgroups hold a loaded tile packed; of wider elements none was seen to be spilled."""
    return is_packed(element_type(tile)) and not is_multiplied_alone(tile)


def _is_of_16_bits(stage: kitsune.StageOp) -> bool:
    """Whether its kernel has forms of functions that are good to 16 bits: f16's and bf16's take as long (H100)."""
    tiles = [op.results[0].type for op in (*stage.gets, *stage.loads)]
    return any(isinstance(ir.RankedTensorType(type_).element_type, ir.BF16Type | ir.F16Type) for type_ in tiles)


def _gathered_bytes(op: ir.Operation) -> float:
    """Bytes that a linalg.generic takes out of tables for one row."""
    elements = row_elements(op.results[0].type)
    return sum(elements * element_bytes(element_type(table)) for table in _taken_of(op))


def _is_loaded(value: ir.Value) -> bool:
    op = made_by(root(value), kitsune.LoadOp.OPERATION_NAME)
    return op is not None


def _is_part(op: ir.Operation) -> bool:
    """Whether an operator's result is part of a concatenation and nothing else, whose kernel computes it in place."""
    return [user.name for user in users_of(op.results[0])] == ["tensor.concat"]


def _is_part_of_operand(op: ir.Operation) -> bool:
    """Whether an operator's result is part of a concatenation that a product takes, in registers."""
    readers = users_of(op.results[0])
    return any(use.owner.operation.name == "linalg.matmul" for reader in readers for use in reader.results[0].uses)


def _taken_of(op: ir.Operation) -> list[ir.Value]:
    return rows.Structured(op).tables() if op.name == "linalg.generic" else []


def _tables(stage: kitsune.StageOp) -> list[ir.Value]:
    """The residents of which a stage takes rows here and there, not all."""
    return [table for op in stage.block.operations for table in _taken_of(op.operation)]


def _product(op: ir.Operation) -> ProductCost | None:
    """A product as a kernel of its own; None where it has no such form."""
    left, right = (ir.RankedTensorType(value.type) for value in list(op.operands)[:2])
    if not isinstance(left.element_type, _SCHEDULED) or right.element_type != left.element_type:
        return None
    maps = rows.Structured(op).maps
    along_k = maps[1].results[1] == maps[0].results[1]
    owner = rows.producer(op.operands[1])
    turned = owner is not None and owner.name == "linalg.transpose"
    wide = left.element_type.width == 32
    pieces, words = (tf32_pieces(op) + 1, tf32_pieces(op) == 1) if wide else (1, False)
    k, columns = left.shape[1], row_elements(op.results[0].type)
    return ProductCost(columns, k, along_k == turned, len(PAIRS[pieces]), words)


def queue_cost(queue: kitsune.QueueOp, order: dict[str, int]) -> QueueCost:
    producer = queue.producers[0]
    accumulates = any(op.operands[0] == queue.results[0] for op in producer.accumulates)
    consumers = tuple(order[stage.label] for stage in queue.consumers)
    return QueueCost(queue.label, order[producer.label], consumers, row_bytes(queue.ring.tile), accumulates)


def instructions_of(s: rows.Structured) -> int:
    """Instructions of an element, without what loads and stores it."""
    return sum(DEAR.get(op.name, 1) for op in operations_of(s.body)) - 1
