"""Stage functions as the C++ runtime calls them: bare pointers, one after another."""

from __future__ import annotations

import math

from kitsune_mlir.cpu_symbols import STAGE
from kitsune_mlir.mlir import func, ir, llvm, walk
from kitsune_mlir.runtime.cpu_pipelines import STAGE_PREFIX


def stage_functions(module: ir.Module) -> list[func.FuncOp]:
    return [op.opview for op in walk(module, "func.func") if STAGE in op.attributes]


def argument_types(function: func.FuncOp) -> list[ir.MemRefType]:
    return [ir.MemRefType(kind) for kind in function.type.inputs]


def add_entry(module: ir.Module, name: str, types: list[ir.MemRefType]) -> None:
    """Adds `void kitsune_stage_NAME(void* const* pointers)`, which calls the lowered stage function @NAME.

    That one takes MLIR's descriptors in pieces (two pointers, offset, sizes, strides); its memrefs are
    static, so all but the pointer are constants.
    """
    with module.context, ir.Location.unknown():
        pointer = ir.Type.parse("!llvm.ptr")
        external = ir.Attribute.parse("#llvm.linkage<external>")
        with ir.InsertionPoint(module.body):
            kind = ir.TypeAttr.get(ir.Type.parse("!llvm.func<void (ptr)>"))
            entry = llvm.LLVMFuncOp(STAGE_PREFIX + name, kind, linkage=external)
        block = entry.regions[0].blocks.append(pointer)
        with ir.InsertionPoint(block):
            values: list[ir.Value] = []
            for i, memref_type in enumerate(types):
                cell = llvm.GEPOp(pointer, block.arguments[0], [], [i], pointer, 0)
                values += _descriptor(llvm.LoadOp(pointer, cell.result).result, memref_type)
            llvm.CallOp(None, values, [], [], callee=name)
            llvm.ReturnOp()


def _descriptor(data: ir.Value, kind: ir.MemRefType) -> list[ir.Value]:
    word = ir.IntegerType.get_signless(64)
    strides = [math.prod(list(kind.shape)[d + 1 :]) for d in range(kind.rank)]
    numbers = (0, *kind.shape, *strides)
    return [data, data, *(llvm.ConstantOp(word, ir.IntegerAttr.get(word, number)).result for number in numbers)]
