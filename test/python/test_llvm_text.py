"""Float constants as LLVM 24 prints them, read back by llvmlite's LLVM with the same bits."""

import struct

import llvmlite.binding as llvm_binding
import pytest

from kitsune_mlir import mlir
from kitsune_mlir.codegen.llvm_text import for_llvmlite

CONSTANTS = {
    "f32": [0x3FB8AA3B, 0x3DCCCCCD, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001, 0x00000001, 0x3F800000],
    "f64": [0x3FB999999999999A, 0x7FF0000000000000, 0xFFF8000000000123, 0x0000000000000001, 0x3FF0000000000000],
    "f16": [0x2E66, 0x7C00, 0xFC00, 0x7E00, 0x3C00],
    "bf16": [0x3DCD, 0x7F80, 0xFF80, 0x7FC0, 0x3F80],
}


@pytest.mark.parametrize("kind", CONSTANTS)
def test_constants_keep_their_bits(kind):
    stores = "\n".join(
        f"%c{i} = llvm.mlir.constant(0x{bits:0{int(kind.strip('bf')) // 4}X} : {kind}) : {kind}\n"
        f"llvm.store volatile %c{i}, %p : {kind}, !llvm.ptr"
        for i, bits in enumerate(CONSTANTS[kind])
    )
    module = mlir.parse(f"llvm.func @f(%p: !llvm.ptr) {{ {stores}\n llvm.return }}", mlir.context())
    text = for_llvmlite(mlir.llvm.translate_module_to_llvmir(module.operation))
    read = str(llvm_binding.parse_assembly(text))
    spelled = [line.split()[3].rstrip(",") for line in read.splitlines() if "store volatile" in line]
    assert [_bits(token, kind) for token in spelled] == CONSTANTS[kind]


def _bits(token: str, kind: str) -> int:
    """The bits of an older LLVM's spelling."""
    if kind in ("f16", "bf16"):
        return int(token[3:], 16)
    wide = int(token, 16) if token.startswith("0x") else struct.unpack("<Q", struct.pack("<d", float(token)))[0]
    if kind == "f64":
        return wide
    if (wide >> 52) & 0x7FF == 0x7FF:
        return wide >> 63 << 31 | 0xFF << 23 | (wide >> 29) & 0x7FFFFF
    return struct.unpack("<I", struct.pack("<f", struct.unpack("<d", struct.pack("<Q", wide))[0]))[0]


def test_operands_without_a_type_of_their_own_and_strings():
    text = for_llvmlite(
        "define float @f(float %x) {\n  %1 = fmul float %x, f0x3FB8AA3B\n"
        '  %2 = call float asm sideeffect "f0x00000000 1.0", "=f,f"(float +inf)\n  ret float %1\n}\n'
    )
    assert "fmul float %x, 0x3FF7154760000000" in text
    assert '"f0x00000000 1.0", "=f,f"(float 0x7FF0000000000000) convergent' in text
    llvm_binding.parse_assembly(text)


def test_atomic_operations_order_nothing():
    """No instruction gives the largest of floats: the loop of exchanges would have all memory of the system wait."""
    body = "%o = llvm.atomicrmw fmaximum %p, %x acq_rel : !llvm.ptr, f32\n llvm.return"
    module = mlir.parse(f"llvm.func @f(%p: !llvm.ptr, %x: f32) {{ {body} }}", mlir.context())
    text = for_llvmlite(mlir.llvm.translate_module_to_llvmir(module.operation))
    (line,) = [line for line in str(llvm_binding.parse_assembly(text)).splitlines() if "atomicrmw" in line]
    assert 'syncscope("device") monotonic' in line
