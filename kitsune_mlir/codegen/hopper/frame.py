"""Around the body of a warpgroup kernel: its module, its parameters, its shared memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kitsune_mlir.codegen import index_checks
from kitsune_mlir.codegen.math_simplify import FAST, SHORT
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.mlir import ir, llvm

from . import cluster, tma

MAPS = "kitsune.maps"  # on a gpu.func: how many tensor maps its first parameter holds


@dataclass(frozen=True)
class Frame:
    """A kernel's parameters: its tensor maps if it has any, the addresses of its tensors and results, its workspace,
    the sizes that are open until the call (i32), one at least, then the rows of tables that have any number. `base` is
    the address of shared memory, 1024-byte aligned."""

    maps: ir.Value | None
    pointers: list[ir.Value]
    workspace: ir.Value
    sizes: list[ir.Value]
    base: ir.Value


@contextlib.contextmanager
def when_reading(condition: ir.Value, tensors: Iterable[int]) -> Iterator[None]:
    """Code for the threads in which `condition` holds, which read tensors of these numbers alone."""
    with device.when(condition):
        branch = ir.InsertionPoint.current.block.owner
        branch.attributes[READS] = ir.DenseI64ArrayAttr.get(sorted(tensors))
        yield


# On a branch (scf.if) of a kernel: the numbers of the kernel's tensors that its threads read. They write nothing, read
# nothing else that other kernels write, and need not have waited for these where all of the tensors are constant.
READS = "kitsune.reads"
# On a gpu.func: its loads want an SM's whole cache, or it has a great many CTAs, each of which would wait for a moment;
# so it is not launched before the kernel before it has ended.
BEGINS_ALONE = "kitsune.begins_alone"
Body = Callable[[Frame], None]


def build(
    name: str,
    pointers: int,
    maps: int,
    threads: int,
    body: Body,
    ctas: int = 1,
    fast: bool = True,
    resident: int = 1,
    alone: bool = False,
    further: int = 0,
) -> ir.Operation:
    """The gpu.module `name`_kernel, at the insertion point, launched in clusters of `ctas`; `body` emits its code;
    `fast` says that functions need be good to 16-bit elements only; registers are few enough for `resident` CTAs an SM;
    `alone`: it does not begin beside another kernel. So many sizes `further` than one are open until the call."""
    module = device.gpu.GPUModuleOp(f"{name}_kernel")
    module.operation.attributes["kitsune.scheduled"] = ir.UnitAttr.get()
    arguments = [ir.Type.parse("!llvm.ptr")] if maps else []
    arguments += [*[device.pointer_type(device.GLOBAL)] * (pointers + 1), *[device.i32()] * (1 + further)]
    arguments += [device.i64()] * index_checks.open_tables()
    with ir.InsertionPoint(module.bodyRegion.blocks.append()):
        linkage = ir.Attribute.parse("#llvm.linkage<external>")
        shared = ir.Type.parse("!llvm.array<0 x i8>")
        llvm.GlobalOp(shared, "shared", linkage, addr_space=device.SHARED, alignment=tma.ALIGN)
        type_ = ir.FunctionType.get(arguments, [])
        kernel = device.gpu.GPUFuncOp(type_, name, kernel=True, known_block_size=[threads, 1, 1])
        if maps:
            kernel.attributes[MAPS] = ir.IntegerAttr.get(device.i32(), maps)
        kernel.attributes["nvvm.minctasm"] = ir.IntegerAttr.get(device.i32(), resident)
        if ctas > 1:
            cluster.set_size(kernel, ctas)
        kernel.attributes[FAST if fast else SHORT] = ir.UnitAttr.get()
        if alone:
            kernel.attributes[BEGINS_ALONE] = ir.UnitAttr.get()
        with ir.InsertionPoint(kernel.body.blocks.append(*arguments)):
            body(_frame(list(kernel.body.blocks[0].arguments), bool(maps), further))
            device.gpu.ReturnOp([])
    return module.operation


def _frame(given: list[ir.Value], has_maps: bool, further: int) -> Frame:
    """What the arguments of a kernel are, at its begin."""
    end = len(given) - index_checks.open_tables()
    index_checks.know_sizes(given[end:])
    sizes = given[end - 1 - further : end]
    *addresses, workspace = given[: end - 1 - further]
    first = addresses.pop(0) if has_maps else None
    memory = llvm.AddressOfOp(device.pointer_type(device.SHARED), "shared").result
    return Frame(first, addresses, workspace, sizes, llvm.PtrToIntOp(device.i32(), memory).result)
