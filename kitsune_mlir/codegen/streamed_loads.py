"""Words that a kernel reads once (vector.load {nontemporal}) leave L2 first, so that what it comes back to stays there
(PTX ISA, createpolicy; ld: .level::cache_hint). LLVM's back end has no such load."""

from __future__ import annotations

from kitsune_mlir.mlir import arith, ir, memref, vector, walk

from .pipeline import device

_KINDS = ("f32", "i32")


def expand_streamed_loads(module: ir.Operation) -> None:
    """Puts PTX in the place of such loads in a gpu.module, of two or four elements of 32 bits."""
    for op in walk(module, "vector.load"):
        kind = ir.VectorType(op.results[0].type)
        streamed = "nontemporal" in op.attributes and ir.BoolAttr(op.attributes["nontemporal"]).value
        if not streamed or str(kind.element_type) not in _KINDS or kind.shape not in ([2], [4]):
            continue
        with op.location, ir.InsertionPoint(op):
            words = _load(_address(op), kind)
            op.results[0].replace_all_uses_with(vector.from_elements(kind, words))
        op.erase()


def _address(op: ir.Operation) -> ir.Value:
    """Where a load begins, i64."""
    buffer, *indices = op.operands
    _, offset, *rest = memref.extract_strided_metadata(buffer)
    place = offset
    for index, stride in zip(indices, rest[len(indices) :], strict=True):
        place = arith.addi(place, arith.muli(index, stride))
    nbytes = arith.muli(place, arith.ConstantOp.create_index(4).result)
    start = memref.extract_aligned_pointer_as_index(buffer)
    return arith.index_cast(ir.IntegerType.get_signless(64), arith.addi(start, nbytes))


def _load(address: ir.Value, kind: ir.VectorType) -> list[ir.Value]:
    element, count = kind.element_type, kind.shape[0]
    names = ", ".join(f"${number}" for number in range(count))
    text = f"""{{
.reg .b64 first;
createpolicy.fractional.L2::evict_first.b64 first, 1.0;
ld.global.L1::no_allocate.L2::cache_hint.v{count}.b32 {{{names}}}, [${count}], first;
}}"""
    return device.assembled(text, [element] * count, address, memory=False)
