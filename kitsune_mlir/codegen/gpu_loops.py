"""Loops of the host function: unrolled where their turns are work for a whole GPU, else made fit for a kernel of one
thread (gpu_serial.py).

    %r = scf.for %i = %c0 to %c3 step %c1 iter_args(%a = %x) -> (tensor<4x4xf32>) {
      %b = linalg.generic {...} ... %a ...
      scf.yield %b : tensor<4x4xf32>
    }

becomes three times the body, each with the %a and %i of its turn.
"""

from __future__ import annotations

from kitsune_mlir.dialects.checks import constant
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, clone_on, func, ir, location, replace_op, run_passes, walk
from kitsune_mlir.operations import operations_of

TURNS = 64  # each turn has kernels of its own: more of them would take minutes to compile

# Out of a loop goes what is the same in every turn, and the memory of tensors that live for one turn.
_HOIST = "func.func(buffer-hoisting,buffer-loop-hoisting,loop-invariant-code-motion)"


def unroll(main: func.FuncOp) -> None:
    """Unrolls the loops of `main`, on tensors, that hold linalg. Raises UnsupportedError for one whose number of turns
    is not known or too large."""
    while loops := [op for op in walk(main, "scf.for", "scf.while") if _whole(op)]:
        _unroll(loops[0])
        run_passes(main, "func.func(canonicalize,cse)")


def hoist(module: ir.Module) -> None:
    """Allocates in front of loops, on buffers, what they allocate in each turn for that turn."""
    run_passes(module, f"builtin.module({_HOIST})")


def _whole(op: ir.Operation) -> bool:
    return any(inner.name.startswith(("linalg.", "tm_tensor.")) for inner in walk(op) if inner.name != "linalg.index")


def _unroll(loop: ir.Operation) -> None:
    turns = _turns(loop)
    if turns is None or len(turns) > TURNS:
        many = "an unknown number of" if turns is None else str(len(turns))
        raise UnsupportedError(
            f"{location(loop.location)}: a loop of {many} turns over tensors cannot be compiled for a GPU, only one of "
            f"up to {TURNS}"
        )
    block = loop.regions[0].blocks[0]
    *body, end = operations_of(block)
    carried = list(loop.operands)[3:]
    with loop.context, loop.location, ir.InsertionPoint(loop):
        for turn in turns:
            index = arith.constant(loop.operands[0].type, turn)
            values = dict(zip(block.arguments, [index, *carried], strict=True))
            for op in body:
                clone_on(op, values)
            carried = [values.get(value, value) for value in end.operands]
    replace_op(loop, *carried)


def _turns(loop: ir.Operation) -> range | None:
    """The indices of a loop's turns, where its bounds are constants."""
    if loop.name != "scf.for":
        return None
    bounds = [constant(value) for value in list(loop.operands)[:3]]
    return None if None in bounds else range(*bounds)
