"""What a constant of a module holds, as bytes."""

from __future__ import annotations

import re

import numpy as np

from kitsune_mlir.errors import InternalError
from kitsune_mlir.mlir import ir, parse, run_passes, walk


def content_of(value: ir.Attribute) -> bytes:
    """The elements of a constant, row-major; i1 as bytes. Raises InternalError for what is no constant of numbers."""
    if not isinstance(value, ir.DenseElementsAttr):
        return _blob(value)
    kind = ir.RankedTensorType(value.type)
    if isinstance(kind.element_type, ir.BF16Type):  # the bindings do not read it: its bits, folded to i16
        bits = str(kind).replace("bf16", "i16")
        source = (
            f"func.func @bits() -> {bits} {{ %0 = arith.constant {value}\n"
            f"%1 = arith.bitcast %0 : {kind} to {bits}\nreturn %1 : {bits} }}"
        )
        folded = parse(source, value.context)
        run_passes(folded, "builtin.module(canonicalize)")
        value = walk(folded, "arith.constant")[0].attributes["value"]
    return np.ascontiguousarray(np.array(value)).tobytes()


def _blob(value: ir.Attribute) -> bytes:
    """The elements of a constant that the context holds under a name (dense_resource). The bindings give them in print
    alone: hexadecimal digits, first of four bytes that hold the alignment."""
    with value.context, ir.Location.unknown():
        holder = ir.Module.create()
        holder.operation.attributes["kitsune.constant"] = value
        found = re.search(r'"0x([0-9A-Fa-f]{8,})"', holder.operation.get_asm())
    if found is None:
        raise InternalError(f"a constant is given by {str(value)[:80]}, whose elements cannot be read")
    return bytes.fromhex(found[1])[4:]
