"""overlap-launches: a kernel's launch overlaps the end of the kernel before it.

    gpu.func @k(...) kernel {                      gpu.func @k(...) kernel {
      %t = nvvm.read.ptx.sreg.tid.x                  nvvm.griddepcontrol launch_dependents
      ...                                     =>     %t = nvvm.read.ptx.sreg.tid.x
      %x = memref.load %a[%i]                        ...
                                                     nvvm.griddepcontrol wait
                                                     %x = memref.load %a[%i]

Kernels of a model run one after another, and between two of them a GPU stands still for a microsecond or more. Here
each says at its start that the next one's thread blocks may take their places as soon as all of its own have theirs,
and waits itself, before it first touches memory that others see, until the one before it has ended (PTX ISA,
griddepcontrol). The runtime launches such kernels with the attribute "programmatic stream serialization".

What no kernel of the program writes is there before that. Threads that read nothing else, which code generation marks
by the tensors that they read, do not wait: weights are on the chip when the kernel before has ended.

    scf.if %feeds {...} {kitsune.reads = [1]}      scf.if %feeds {...} {kitsune.reads = [1]}
    %x = memref.load %a[%i]                   =>   nvvm.griddepcontrol wait
                                                   %x = memref.load %a[%i]

A tensor is constant so if at each of the kernel's calls it is an argument of @main that @main only reads, or computed
of weights alone when the program is loaded (codegen/constant_tensors.py). The first kernel of a run begins when all
before the run has ended (runtime/prepared.py), and no later one before it.

That cannot hang: a kernel's blocks begin to take room only when all blocks of the one before have theirs, and wait for
nothing but its end. It cannot race: who waits for a kernel's end waits for the end of all before it, for that kernel
waited for them, or began when they had ended; each has threads that wait. Only chips of compute capability 9.0 and
later know the instruction.

A kernel of many thread blocks, which come one after another, is left alone: each of them would wait for a moment. And
one that has a great many loads on their way (kitsune.begins_alone) does not begin before the end of the one before it:
on an SM that still runs that one, most of the memory that is its cache is the other's shared memory, and stays that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kitsune_mlir.codegen.constant_tensors import constant_tensors
from kitsune_mlir.codegen.hopper.frame import BEGINS_ALONE, READS
from kitsune_mlir.codegen.host_program import PIPELINE
from kitsune_mlir.dialects.checks import constant
from kitsune_mlir.mlir import ir, nvvm, walk
from kitsune_mlir.planning import target as targets

from .base import ModulePass

MOST_BLOCKS = 16  # an SM, about two times what it holds: of more, each would wait for a moment
# What may stand in front of the wait: nothing here touches memory outside the thread block.
_LOCAL = ("arith.", "nvvm.read.", "nvvm.mbarrier.init", "nvvm.fence.mbarrier.init", "gpu.thread_id", "gpu.block_id")
_LOCAL += ("llvm.mlir.", "llvm.ptrtoint", "llvm.inttoptr", "llvm.getelementptr", "nvvm.barrier", "gpu.barrier")
_LOCAL += ("nvvm.setmaxregister", "gpu.return")
_LOCAL_ASSEMBLY = ("mbarrier.init", "prefetch.tensormap")
_LOCAL += ("scf.yield", "nvvm.elect.sync", "nvvm.cluster.arrive", "nvvm.cluster.wait")


@dataclass(frozen=True)
class OverlapLaunches(ModulePass):
    """target: what the kernels are for, a name or the path of a description."""

    name: ClassVar[str] = "overlap-launches"
    target: str = "sm_90a"

    def run(self, module: ir.Module) -> None:
        target = targets.load(self.target)
        if not target.overlaps_launches:
            return
        many = {
            str(op.attributes["kernel"])
            for op in walk(module, "gpu.launch_func")
            if _blocks(op) > target.sms * MOST_BLOCKS
        }
        marked = any(READS in op.attributes for op in walk(module, "scf.if"))
        constant = constant_tensors(module) if marked else None
        for function in walk(module, "gpu.func"):
            if "kernel" in function.attributes or "gpu.kernel" in function.attributes:
                if f"@{_name(function.parent)}::@{_name(function)}" not in many:
                    _overlap(function, None if constant is None else constant.get(_pipeline(function.parent), set()))


def _name(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["sym_name"]).value


def _pipeline(module: ir.Operation) -> str:
    return ir.StringAttr(module.attributes[PIPELINE]).value if PIPELINE in module.attributes else ""


def _blocks(launch: ir.Operation) -> int:
    """The thread blocks of a launch; 0 where that is open until the call."""
    return constant(launch.opview.gridSizeX) or 0


def _overlap(kernel: ir.Operation, constant: set[int] | None) -> None:
    block = kernel.regions[0].blocks[0]
    with kernel.context, kernel.location:
        if BEGINS_ALONE not in kernel.attributes:
            _wait(block, constant)
        with ir.InsertionPoint.at_block_begin(block):
            nvvm.griddepcontrol("launch_dependents")


def _wait(block: ir.Block, constant: set[int] | None) -> None:
    """Waits where the block first touches what may change; where that is in a branch beside threads that read constant
    tensors alone, in both branches. None: no branch of the module says what its threads read."""
    for op in block.operations:
        op = op.operation
        if _is_local(op) or (constant is not None and _is_early(op, constant)):
            continue
        marked = constant is not None and op.name == "scf.if" and not op.results
        if marked and any(_is_early(inner, constant) for inner in walk(op, "scf.if")):
            for region in op.regions:
                for branch in region:
                    _wait(branch, constant)
            continue
        with ir.InsertionPoint(op):
            nvvm.griddepcontrol("wait")
        return


def _is_early(op: ir.Operation, constant: set[int]) -> bool:
    """Whether it is a branch of threads that read constant tensors alone."""
    return READS in op.attributes and constant.issuperset(ir.DenseI64ArrayAttr(op.attributes[READS]))


def _is_local(op: ir.Operation) -> bool:
    if op.name == "scf.if":
        return all(_is_local(inner.operation) for region in op.regions for block in region for inner in block)
    if op.name == "llvm.inline_asm":
        return ir.StringAttr(op.attributes["asm_string"]).value.startswith(_LOCAL_ASSEMBLY)
    return op.name.startswith(_LOCAL)
