"""@main and stage functions as the runtime calls them: with the address of pointers, one after another."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

from kitsune_mlir.cpu_symbols import STAGE
from kitsune_mlir.mlir import func, ir, llvm, walk
from kitsune_mlir.runtime.cpu_pipelines import STAGE_PREFIX
from kitsune_mlir.runtime.manifest import ENTRY


def stage_functions(module: ir.Module) -> list[func.FuncOp]:
    return [op.opview for op in walk(module, "func.func") if STAGE in op.attributes]


def argument_types(function: func.FuncOp) -> list[ir.MemRefType]:
    return [ir.MemRefType(kind) for kind in function.type.inputs]


def add_entry(module: ir.Module) -> None:
    """Adds `void ENTRY(void* const* cells)`, which calls the lowered @main. A cell has the address of an argument,
    and an argument is the address of a descriptor."""
    name = "_mlir_ciface_main"
    (main,) = (op for op in walk(module, "llvm.func") if ir.StringAttr(op.attributes["sym_name"]).value == name)
    with _entry(module, ENTRY) as (pointer, cells):
        addresses = [_at(_at(cells, i, pointer), 0, pointer) for i in range(len(main.regions[0].blocks[0].arguments))]
        llvm.CallOp(None, addresses, [], [], callee=name)


def add_stage_entry(module: ir.Module, name: str, types: list[ir.MemRefType]) -> None:
    """Adds `void kitsune_stage_NAME(void* const* pointers)`, which calls the lowered stage function @NAME.

    That one takes MLIR's descriptors in pieces (two pointers, offset, sizes, strides); its memrefs are
    static, so all but the pointer are constants.
    """
    with _entry(module, STAGE_PREFIX + name) as (pointer, pointers):
        values = [value for i, kind in enumerate(types) for value in _descriptor(_at(pointers, i, pointer), kind)]
        llvm.CallOp(None, values, [], [], callee=name)


@contextlib.contextmanager
def _entry(module: ir.Module, name: str) -> Iterator[tuple[ir.Type, ir.Value]]:
    """Within the `with`, operations are made in a new function that takes a pointer; given are its type and itself."""
    with module.context, ir.Location.unknown():
        pointer = ir.Type.parse("!llvm.ptr")
        external = ir.Attribute.parse("#llvm.linkage<external>")
        with ir.InsertionPoint(module.body):
            kind = ir.TypeAttr.get(ir.Type.parse("!llvm.func<void (ptr)>"))
            entry = llvm.LLVMFuncOp(name, kind, linkage=external)
        block = entry.regions[0].blocks.append(pointer)
        with ir.InsertionPoint(block):
            yield pointer, block.arguments[0]
            llvm.ReturnOp()


def _at(pointers: ir.Value, i: int, pointer: ir.Type) -> ir.Value:
    """The pointer at place i behind another."""
    cell = llvm.GEPOp(pointer, pointers, [], [i], pointer, 0)
    return llvm.LoadOp(pointer, cell.result).result


def _descriptor(data: ir.Value, kind: ir.MemRefType) -> list[ir.Value]:
    word = ir.IntegerType.get_signless(64)
    strides = [math.prod(list(kind.shape)[d + 1 :]) for d in range(kind.rank)]
    numbers = (0, *kind.shape, *strides)
    return [data, data, *(llvm.ConstantOp(word, ir.IntegerAttr.get(word, number)).result for number in numbers)]
