"""Accesses that say that the kernel does not come back to the memory ({nontemporal}), as PTX has them; LLVM's back end
has no such loads and stores.

What is loaded once by kernels that come back to other memory (vector.load) leaves L2 first, too (PTX ISA, createpolicy;
ld: .level::cache_hint). What passes by (llvm.load, llvm.store) is not kept in L1 alone: the next kernel may want it.
"""

from __future__ import annotations

from kitsune_mlir.mlir import arith, ir, memref, vector, walk

from .pipeline import device

_KINDS = ("f32", "i32")
_WORDS = {32: "b32", 64: "v2.b32", 128: "v4.b32"}  # by the bits of an access


def expand_streamed(module: ir.Operation) -> None:
    """Puts PTX in the place of such accesses in a gpu.module: vector.loads of two or four elements of 32 bits, and
    vectors of one, two or four words that pass by. Others are as if nothing was said."""
    for op in walk(module, "vector.load"):
        kind = ir.VectorType(op.results[0].type)
        if not _is_streamed(op) or str(kind.element_type) not in _KINDS or kind.shape not in ([2], [4]):
            continue
        with op.location, ir.InsertionPoint(op):
            words = _load(_address(op), kind)
            op.results[0].replace_all_uses_with(vector.from_elements(kind, words))
        op.erase()
    for op in [*walk(module, "llvm.load"), *walk(module, "llvm.store")]:
        value = op.results[0] if len(op.results) else op.operands[0]
        if "nontemporal" in op.attributes:
            _pass_by(op, value)


def _is_streamed(op: ir.Operation) -> bool:
    return "nontemporal" in op.attributes and ir.BoolAttr(op.attributes["nontemporal"]).value


def _pass_by(op: ir.Operation, value: ir.Value) -> None:
    """A load or a store of a vector."""
    del op.attributes["nontemporal"]
    kind = ir.VectorType(value.type)
    bits = kind.shape[0] * kind.element_type.width
    if bits not in _WORDS:
        return
    words = ir.VectorType.get([bits // 32], device.i32())
    names = ", ".join(f"${number}" for number in range(bits // 32))
    listed = names if bits == 32 else f"{{{names}}}"
    with op.location, ir.InsertionPoint(op):
        if len(op.results):
            text = f"ld.global.L1::no_allocate.{_WORDS[bits]} {listed}, [${bits // 32}];"
            found = device.assembled(text, [device.i32()] * (bits // 32), op.operands[0], memory=False)
            value.replace_all_uses_with(vector.bitcast(kind, vector.from_elements(words, found)))
        else:
            text = f"st.global.L1::no_allocate.{_WORDS[bits]} [${bits // 32}], {listed};"
            device.assembled(text, [], *device.parts(vector.bitcast(words, value)), op.operands[1])
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
