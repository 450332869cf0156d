"""Bufferizes @main and turns all its linalg into GPU kernels: the bulk-synchronous path under everything.

    func.func @main(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
      %y = linalg.generic {...} ins(%x : tensor<?x8xf32>) outs(%e : tensor<?x8xf32>) { ... }
      %z = func.call @pipeline_0(%y) : (tensor<?x8xf32>) -> tensor<?x8xf32>
      return %z : tensor<?x8xf32>
    }

becomes

    func.func @main(%x: memref<?x8xf32>) -> memref<?x8xf32> {
      %y = memref.alloc(%rows) : memref<?x8xf32>
      gpu.launch_func @kernels::@generic_0 blocks in (%blocks, %c1, %c1) threads in (%c256, %c1, %c1)
          args(%x : memref<?x8xf32>, %y : memref<?x8xf32>)
      %z = func.call @pipeline_0(%y) : (memref<?x8xf32>) -> memref<?x8xf32>
      return %z : memref<?x8xf32>
    }
    gpu.module @kernels { gpu.func @generic_0(%x: ..., %y: ...) kernel { ... } }

Of @main only allocations, views, copies, sizes, launches and calls of pipelines are left; every result is
a buffer of its own. Calls of functions without a body (pipelines: see convert-kitsune-to-gpu) stay.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from kitsune_mlir import rows
from kitsune_mlir.codegen import gpu_placed
from kitsune_mlir.codegen.bufferize import bufferize
from kitsune_mlir.codegen.filter_gradient import outline_filter_gradients
from kitsune_mlir.codegen.firsts import outline_firsts
from kitsune_mlir.codegen.fourier import outline_transforms
from kitsune_mlir.codegen.gpu_buffers import Fills
from kitsune_mlir.codegen.gpu_filter_gradient import lower_filter_gradients
from kitsune_mlir.codegen.gpu_firsts import lower_firsts
from kitsune_mlir.codegen.gpu_follow import follower
from kitsune_mlir.codegen.gpu_fourier import lower_transforms
from kitsune_mlir.codegen.gpu_kernel import Kernels, extent
from kitsune_mlir.codegen.gpu_linalg import lower_generic
from kitsune_mlir.codegen.gpu_loops import hoist, unroll
from kitsune_mlir.codegen.gpu_order import lower_orders, outline_orders
from kitsune_mlir.codegen.gpu_parts import IDLE, lower_copy, write_in_place
from kitsune_mlir.codegen.gpu_recurrent import lower_recurrent
from kitsune_mlir.codegen.gpu_scan import lower_scans, without_fills
from kitsune_mlir.codegen.gpu_scatter import lower_scatters
from kitsune_mlir.codegen.gpu_serial import check_host, keep_loaded, lower_serial
from kitsune_mlir.codegen.gpu_sort import lower_sorts
from kitsune_mlir.codegen.gpu_systems import lower_systems
from kitsune_mlir.codegen.gpu_transposes import fuse_transposes, turn_gathers
from kitsune_mlir.codegen.gpu_twice import store_twice
from kitsune_mlir.codegen.gpu_views import erase_unread, layout_of
from kitsune_mlir.codegen.host_program import scalar_name
from kitsune_mlir.codegen.math_marks import mark_narrowed
from kitsune_mlir.codegen.recurrent import outline_recurrent
from kitsune_mlir.codegen.systems import outline_systems
from kitsune_mlir.errors import UserError
from kitsune_mlir.mlir import func, ir, memref, run_passes, walk
from kitsune_mlir.operations import end_of, made_by, operations_of
from kitsune_mlir.planning import target as targets
from kitsune_mlir.program import CHANGED, MEMORY, OWN_MEMORY
from kitsune_mlir.runtime.host_arithmetic import OPERATIONS

from .apart_elements import kept_apart
from .base import ModulePass
from .changed_arguments import write_changed
from .columns_together import compute_columns_together
from .concatenation_readers import read_parts
from .early_casts import cast_early
from .edited_parts import edit_where_computed
from .extracted_slices import read_where_sliced
from .gathered_reductions import size_reductions
from .joined_reads import read_joined, read_moved
from .long_sums import sum_in_columns
from .merged_loops import merge_loops
from .neighbour_arithmetic import compute_neighbours
from .neighbours_together import compute_together
from .padded_reshapes import pad_joined
from .padded_slices import read_padded_slices
from .parts_of_several import write_to_each
from .repeated_elements import repeat_elements
from .rolled_reads import read_rolled
from .scatters_together import bring_scatters_together
from .self_padding import read_padded
from .shared_elements import share_elements
from .shared_sums import share_sums
from .sliced_elements import compute_parts
from .split_windows import split_windows
from .stacked_elements import stack_elements
from .unit_dims import drop_unit_dims, drop_unit_loops
from .window_reads import read_windows

_SIMPLIFY = "builtin.module(canonicalize,cse)"
_FUSE = "builtin.module(func.func(linalg-fuse-elementwise-ops),canonicalize,cse)"
_ROUNDS = 3  # of dropped dimensions: what is fused then may read others
_ONCE = "builtin.module(cse)"
_GENERALIZE = "builtin.module(func.func(linalg-generalize-named-ops))"
_TIDY = "builtin.module(lower-affine,canonicalize,cse)"
_TO_LOOPS = "builtin.module(func.func(tm-tensor-to-loops))"
# Numbers operations that are equal on purpose, so that CSE leaves them apart.
_UNIQUE = "kitsune.number"
_TENSOR_RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.cast")
_RESHAPES = ("memref.expand_shape", "memref.collapse_shape")
# What may stay on the host, besides the scalar operations that a host program knows.
_HOST = ("arith.constant", "affine.apply", "memref.", "gpu.launch_func", "func.call", "func.return")


@dataclass(frozen=True)
class ConvertLinalgToGpu(ModulePass):
    """Linalg on tensors -> gpu.launch_func; see the file's head. target: what the kernels are for, a name or the path
    of a description."""

    name: ClassVar[str] = "convert-linalg-to-gpu"
    target: str = "sm_90a"

    def run(self, module: ir.Module) -> None:
        unroll(_main(module))
        with module.context:
            read_padded(_main(module))
            read_padded_slices(_main(module))
            stack_elements(_main(module))
            read_rolled(_main(module))
            read_parts(_main(module))
            read_joined(_main(module))
            read_moved(_main(module))
            read_where_sliced(_main(module))
            compute_parts(_main(module))
            edit_where_computed(_main(module))
        run_passes(module, _SIMPLIFY)  # kernels too
        with _kernels_aside(module):
            with module.context:
                turn_gathers(_main(module))
            main = _main(module)
            with main.context, main.location, kept_apart(main.operation):
                run_passes(module, _FUSE)
                if compute_neighbours(_main(module)):
                    run_passes(module, _FUSE)
                for _ in range(_ROUNDS):
                    if not drop_unit_dims(_main(module)) | split_windows(_main(module)):
                        break
                    run_passes(module, _FUSE, _FUSE)  # what reads windows is fused with them once its reshapes are
                for _ in range(_ROUNDS):
                    if not share_sums(_main(module)):
                        break
                    run_passes(module, _FUSE)
                if compute_columns_together(_main(module)):
                    run_passes(module, _FUSE)
                for _ in range(_ROUNDS):  # what a reader makes of it itself has other readers than it had
                    if not repeat_elements(_main(module)) | size_reductions(_main(module)):
                        break
                    run_passes(module, _FUSE)
                if compute_together(_main(module)):
                    run_passes(module, _FUSE)
            main = _main(module)
            with main.context, main.location:
                cast_early(main)
                pad_joined(main)
                read_windows(main)
                share_elements(main)
                fuse_transposes(main, [number == OWN_MEMORY for number in _memory(main, len(main.type.results))])
                drop_unit_loops(main)
                merge_loops(main)
                sum_in_columns(main)
                bring_scatters_together(main)
                without_fills(main)
                write_to_each(main)
            run_passes(module, _ONCE)  # of equal empty tensors one, which _own_outputs tells apart
            outline_orders(module, _main(module))
            outline_transforms(module)
            outline_firsts(module)
            outline_systems(module)
            outline_recurrent(module)
            target = targets.load(self.target)
            outline_filter_gradients(module, target.sms)
            _own_outputs(_main(module))
            bufferize(module)
            hoist(module)
            main = _main(module)
            gpu_placed.place(module, main)
            write_changed(main, _changed(main), _memory(main, len(main.type.results)))
            _place_results(main)
            run_passes(module, _GENERALIZE, _TIDY)
            kernels = Kernels(module, target.adds_words, target.has_tensor_cores)
            for op in walk(main, "linalg.generic"):
                mark_narrowed(op.regions[0].blocks[0])
            lower_transforms(module, main, kernels)
            lower_firsts(module, main, kernels)
            lower_systems(module, main, kernels)
            lower_recurrent(module, main, kernels, target)
            lower_filter_gradients(module, main, kernels)
            lower_orders(main, kernels)
            lower_scatters(main, kernels, target)
            lower_scans(main, kernels)
            lower_sorts(main, kernels)
            run_passes(module, _TO_LOOPS)
            keep_loaded(main, kernels)
            write_in_place(main)
            store_twice(main)
            fills = Fills()
            operations = operations_of(main.body.blocks[0])
            done: set[int] = set()
            for number, op in enumerate(operations):
                if number in done:
                    continue
                if op.name == "memref.copy":
                    fills.seen(op)
                    lower_copy(op, kernels)
                else:
                    after = follower(operations, number, IDLE)
                    _lower(op, kernels, fills, None if after is None else operations[after])
                    if after is not None:
                        operations[after].erase()
                        done.add(after)
            check_host(main)
            kernels.prune(module)
            run_passes(module, _TIDY)


@contextlib.contextmanager
def _kernels_aside(module: ir.Module) -> Iterator[None]:
    """Without the kernels of pipelines, which are done: every pass would go through their many operations again."""
    kernels = [kernel.detach_from_parent() for kernel in walk(module, "gpu.module")]
    yield
    for kernel in kernels:
        ir.InsertionPoint.at_block_begin(module.body).insert(kernel)


def _main(module: ir.Module) -> func.FuncOp:
    for op in walk(module, "func.func"):
        if op.opview.name.value == "main":
            return op.opview
    raise UserError("convert-linalg-to-gpu needs a function @main")


def _own_outputs(main: func.FuncOp) -> None:
    """Gives each linalg operation an output of its own, where several share a fill or an empty tensor, or a view of
    one: otherwise all but one are bufferized to a copy of the shared one, or write where another has written, and
    what reads buffers counts on one writer."""
    for op in reversed(walk(main, *_TENSOR_RESHAPES)):
        if _is_view_of_nothing(op):
            for use in list(op.results[0].uses)[1:]:
                with main.context, ir.InsertionPoint(use.owner):
                    use.owner.operands[use.operand_number] = op.clone().results[0]
    numbers = itertools.count()
    for name in ("linalg.fill", "tensor.empty"):
        for op in walk(main, name):
            for use in list(op.results[0].uses)[1:]:
                with main.context, ir.InsertionPoint(use.owner):
                    copy = op.clone()
                    copy.attributes[_UNIQUE] = ir.IntegerAttr.get(ir.IndexType.get(), next(numbers))
                use.owner.operands[use.operand_number] = copy.results[0]


def _is_view_of_nothing(op: ir.Operation) -> bool:
    """Whether a reshape is one of an empty tensor or of a fill."""
    made: ir.Operation | None = op
    while made is not None and made.name in _TENSOR_RESHAPES:
        made = rows.producer(made.operands[0])
    return made is not None and made.name in ("linalg.fill", "tensor.empty")


def _place_results(main: func.FuncOp) -> None:
    """Makes every result a view of a buffer, where @main says that it may share it with other results or is an
    argument's, or else an allocation, in whatever shape, that is returned once; the rest is copied."""
    block = main.body.blocks[0]
    end = end_of(block)
    numbers = _memory(main, len(end.operands))
    owners: dict[int, int] = {}  # by buffer, whose it is
    with main.context, main.location, ir.InsertionPoint(end):
        for i, value in enumerate(list(end.operands)):
            layout = layout_of(value) if numbers[i] != OWN_MEMORY else None
            if layout is not None and _may_show(layout.buffer, numbers[i], owners):
                owners[hash(layout.buffer)] = numbers[i]
                if layout.buffer != value:
                    end.operands[i] = layout.emit(ir.MemRefType(value.type).shape)
                continue
            root = _reshaped(value)
            if _is_made(root) and hash(root) not in owners:
                owners[hash(root)] = OWN_MEMORY
                continue
            kind = ir.MemRefType(value.type)
            sizes = [extent(value, d) for d in range(kind.rank) if kind.is_dynamic_dim(d)]
            own = memref.alloc(ir.MemRefType.get(kind.shape, kind.element_type), sizes, [])
            memref.CopyOp(value, own)
            end.operands[i] = own
        results = [value.type for value in end.operands]
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(main.type.inputs, results))
    erase_unread(block)


def _memory(main: func.FuncOp, results: int) -> list[int]:
    if MEMORY not in main.attributes:
        return [OWN_MEMORY] * results
    return list(ir.DenseI64ArrayAttr(main.attributes[MEMORY]))


def _changed(main: func.FuncOp) -> list[int]:
    """The arguments that may be written."""
    return list(ir.DenseI64ArrayAttr(main.attributes[CHANGED])) if CHANGED in main.attributes else []


def _may_show(buffer: ir.Value, number: int, owners: dict[int, int]) -> bool:
    """Whether a result of memory `number` may be a view of a buffer."""
    if isinstance(buffer.owner, ir.Block):
        return ir.BlockArgument(buffer).arg_number == number
    return owners.get(hash(buffer), number) == number


def _is_made(buffer: ir.Value) -> bool:
    return made_by(buffer, "memref.alloc", "func.call") is not None


def _reshaped(value: ir.Value) -> ir.Value:
    """The dense buffer of which a value is all elements in another shape."""
    while made_by(value, *_RESHAPES) is not None:
        value = value.owner.operation.operands[0]
    return value


def _lower(op: ir.Operation, kernels: Kernels, fills: Fills, after: ir.Operation | None) -> None:
    """Replaces one operation of the host function, unless it may stay there, and the one `after` a reduction."""
    if op.name == "linalg.generic":
        lower_generic(op, kernels, fills, after)
        return
    fills.seen(op)
    if op.name == "memref.store" or not (op.name.startswith(_HOST) or scalar_name(op) in OPERATIONS):
        lower_serial(op, kernels)
