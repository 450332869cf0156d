"""How @main reaches the C++ runtime: a pipeline's function hands over its pointers and its rows.

One array, `kitsune_links`, joins the native code and the runner that loads it: the address of
kitsune_pipeline_run, a mark that a run failed, and a handle for each pipeline in the manifest's order.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kitsune_mlir.cpu_symbols import PLAN
from kitsune_mlir.mlir import arith, func, ir, llvm, memref, scf, walk
from kitsune_mlir.runtime.cpu_pipelines import FAILED, HANDLES, LINKS, NO_THREADS, RUN, UNEQUAL_ROWS

from .cpu_build import dim, index


def define_pipelines(module: ir.Module) -> list[dict[str, Any]]:
    """Gives pipelines their bodies, on memrefs. Returns their plans, as the manifest has them."""
    functions = [op.opview for op in walk(module, "func.func") if PLAN in op.attributes]
    plans = [json.loads(function.attributes[PLAN].value) for function in functions]
    with module.context, ir.Location.unknown():
        kind = ir.MemRefType.get([HANDLES + len(plans)], ir.IntegerType.get_signless(64))
        with ir.InsertionPoint.at_block_begin(module.body):
            memref.GlobalOp(LINKS, kind, initial_value=ir.UnitAttr.get())
        for number, (function, plan) in enumerate(zip(functions, plans, strict=True)):
            with function.location, ir.InsertionPoint(function.add_entry_block()):
                _run(function, kind, number, plan)
                func.ReturnOp([])
    return plans


def _run(function: func.FuncOp, links_type: ir.MemRefType, number: int, plan: dict[str, Any]) -> None:
    word, pointer = ir.IntegerType.get_signless(64), ir.Type.parse("!llvm.ptr")
    arguments = list(function.arguments)
    plan["pointers"] = len(arguments)
    plan["outputs_at"] = len(arguments) - plan.pop("outputs")
    table = memref.alloca(ir.MemRefType.get([len(arguments)], word), [], [])
    for i, argument in enumerate(arguments):
        address = memref.extract_aligned_pointer_as_index(argument)
        memref.store(arith.index_cast(word, address), table, [index(i)])
    rows, unequal = _rows(arguments, plan)
    cells = arith.index_cast(word, memref.extract_aligned_pointer_as_index(table))
    links = memref.get_global(links_type, LINKS)
    run = llvm.IntToPtrOp(pointer, memref.load(links, [index(RUN)])).result
    given = [memref.load(links, [index(HANDLES + number)]), cells, rows]
    done = llvm.CallOp(word, [run, *given], [], []).result
    failed = arith.cmpi(arith.CmpIPredicate.eq, done, arith.constant(word, 0))
    branch = scf.IfOp(failed)
    with ir.InsertionPoint(branch.then_block):
        cause = arith.select(unequal, arith.constant(word, UNEQUAL_ROWS), arith.constant(word, NO_THREADS))
        memref.store(cause, links, [index(FAILED)])
        scf.yield_([])


def _rows(arguments: Sequence[ir.Value], plan: dict[str, Any]) -> tuple[ir.Value, ir.Value]:
    """The rows to run, and whether the streamed arguments differ in theirs; then it is -1, which runs nothing."""
    word = ir.IntegerType.get_signless(64)
    rows = dim(arguments[plan["rows_of"]], 0)
    unequal = arith.constant(ir.IntegerType.get_signless(1), 0)
    streamed = {place for stage in plan["stages"] for kind, place, _ in stage["operands"] if kind == "load"}
    for place in sorted(streamed - {plan["rows_of"]}):
        differs = arith.cmpi(arith.CmpIPredicate.ne, dim(arguments[place], 0), rows)
        unequal = arith.ori(unequal, differs)
    return arith.select(unequal, arith.constant(word, -1), arith.index_cast(word, rows)), unequal
