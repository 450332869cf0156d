"""How many operators a module has, and the DRAM bytes that running it moves.

Two ways of running are compared. Bulk-synchronous: every operator is a kernel that reads all its inputs
from DRAM and writes all its outputs there. Planned: a pipeline reads and writes only what crosses its
border, and operators outside pipelines run as above. Caches are left out of both. Sizes are in bytes; those that are
open until the call are the example's (example_sizes.py).
"""

from __future__ import annotations

from math import prod

from kitsune_mlir.dialects.systems import SYSTEMS
from kitsune_mlir.example_sizes import shape_of
from kitsune_mlir.mlir import ir, walk
from kitsune_mlir.operations import producer

PIPELINE = "kitsune.pipeline"
# Data movement that code generation turns into address arithmetic or start values, not operators.
_FREE = {"linalg.fill", "linalg.yield", "linalg.index"}
_MOVES = {"tensor.concat", "tensor.pad", "tensor.gather", "tensor.scatter"}
_OTHERS = {*_MOVES, "kitsune.filter_gradient", "kitsune.firsts", "kitsune.fourier", "kitsune.recurrent", *SYSTEMS}
_VIEWS = {"tensor.cast", "tensor.expand_shape", "tensor.collapse_shape"}
_EMPTY = {"tensor.empty", "linalg.fill", "arith.constant"}


def counts(name: str) -> bool:
    """Whether operations of that name count as operators of the model."""
    return (name.startswith(("linalg.", "tm_tensor.")) and name not in _FREE) or name in _OTHERS


def operators(root: ir.Module | ir.Operation) -> list[ir.Operation]:
    """The operators under `root`, in program order."""
    return [op for op in walk(root) if counts(op.name)]


def tensor_bytes(value: ir.Value) -> int:
    """Bytes of a tensor; 0 for what is none."""
    kind = value.type
    return prod(shape_of(value)) * element_bytes(kind.element_type) if isinstance(kind, ir.RankedTensorType) else 0


def element_bytes(kind: ir.Type) -> int:
    """Bytes of one element in memory: an i1 takes a byte, an index eight."""
    return 8 if isinstance(kind, ir.IndexType) else (kind.width + 7) // 8


def line_bytes(value: ir.Value) -> int:
    """Bytes of a tensor's elements along its last dimension."""
    kind = ir.RankedTensorType(value.type)
    return kind.shape[-1] * element_bytes(kind.element_type)


def operator_bytes(op: ir.Operation) -> int:
    """What one operator reads and writes when it runs alone. A gather reads at most what it writes."""
    written = sum(tensor_bytes(result) for result in op.results)
    read = {_root(value): tensor_bytes(value) for value in op.operands if not _is_start_value(value)}
    for extract in walk(op, "tensor.extract"):
        table = extract.operands[0]
        read.setdefault(_root(table), min(tensor_bytes(table), written))
    return written + sum(read.values())


def pipeline_bytes(pipeline: ir.Operation) -> int:
    """What crosses the border of a pipeline."""
    view = pipeline.opview
    read = {_root(value): tensor_bytes(value) for value in view.inputs if not _is_start_value(value)}
    written = sum(tensor_bytes(result.results[0]) for result in view.result_ops)
    return sum(read.values()) + written


def _root(value: ir.Value) -> ir.Value:
    """The tensor that a chain of views shows."""
    while (owner := _producer(value)) is not None and owner.name in _VIEWS:
        value = owner.operands[0]
    return value


def _is_start_value(value: ir.Value) -> bool:
    """Whether a tensor is an empty or constant start value, which no DRAM read fetches."""
    owner = _producer(_root(value))
    return owner is not None and owner.name in _EMPTY


def _producer(value: ir.Value) -> ir.Operation | None:
    return producer(value)
