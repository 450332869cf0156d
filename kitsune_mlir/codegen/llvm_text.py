"""LLVM IR text as torch-mlir's LLVM (24) prints it -> as llvmlite's LLVM (22) reads it."""

from __future__ import annotations

import re
import struct

_TOKEN = re.compile(
    r'"[^"]*"'  # strings: inline assembly may look like anything
    r"|\b(?P<type>half|bfloat|float|double)\b"
    r"|(?<![\w%@.$-])(?:f0x(?P<hex>[0-9A-F]+)|(?P<decimal>[-+]?\d+\.\d+(?:e[-+]?\d+)?)"
    r"|(?P<special>[-+](?:inf|qnan|s?nan\(0x[0-9a-fA-F]+\))))"
)
_CONSTANT = re.compile(r"f0x|\d\.\d|[-+](?:inf|qnan|s?nan)")  # is in every line with a float constant
_INLINE_ASSEMBLY = re.compile(r".* call .* asm sideeffect .*")


def for_llvmlite(text: str) -> str:
    """Respells float constants, and marks inline assembly with side effects convergent: it may be a barrier. Atomic
    operations, which MLIR has order all memory of the system, order nothing: a launch's end, or a barrier, does.

    The newer LLVM prints `float f0x3FB8AA3B`, `float 1.996220e-04` and `float +inf`; the older wants the
    bits of the double (`0x3FF7154760000000`; 0xH and 0xR before the bits of half and bfloat) for all that
    is not exact in decimal.
    """
    return "\n".join(map(_line, text.split("\n")))


def _line(line: str) -> str:
    if " asm sideeffect " in line and _INLINE_ASSEMBLY.fullmatch(line):
        line += " convergent"
    if " atomicrmw " in line:
        line = line.replace(" acq_rel", ' syncscope("device") monotonic')
    may_have_one = "f0x" in line or "." in line or "inf" in line or "nan" in line  # a tenth of the time of a search
    return _respell(line) if may_have_one and _CONSTANT.search(line) else line


def _respell(line: str) -> str:
    kind = ""

    def replace(match: re.Match[str]) -> str:
        nonlocal kind
        if match["type"]:
            kind = match["type"]
        elif kind and match["hex"]:
            return _spell(int(match["hex"], 16), kind)
        elif kind and match["decimal"]:
            return _spell(_bits(float(match["decimal"]), kind), kind)
        elif kind and match["special"]:
            return _spell(_special(match["special"], kind), kind)
        return match[0]

    return _TOKEN.sub(replace, line)


def _bits(value: float, kind: str) -> int:
    """The bits of `value` rounded to `kind`."""
    if kind == "double":
        return struct.unpack("<Q", struct.pack("<d", value))[0]
    if kind == "half":
        return struct.unpack("<H", struct.pack("<e", value))[0]
    single = struct.unpack("<I", struct.pack("<f", value))[0]
    if kind == "float":
        return single
    return (single + 0x7FFF + ((single >> 16) & 1)) >> 16


# Bits of the significand, and of the whole.
_WIDTHS = {"half": (10, 16), "bfloat": (7, 16), "float": (23, 32), "double": (52, 64)}


def _special(token: str, kind: str) -> int:
    """The bits of an infinity, a quiet NaN or a signalling one, each perhaps with a payload."""
    mantissa, width = _WIDTHS[kind]
    infinity = (1 << (width - 1)) - (1 << mantissa)
    sign = 1 << (width - 1) if token[0] == "-" else 0
    if token[1:] == "inf":
        return sign | infinity
    payload = int(token[token.index("(") + 1 : -1], 16) if "(" in token else 0
    quiet = 0 if "snan" in token else 1 << (mantissa - 1)
    return sign | infinity | quiet | payload


def _spell(bits: int, kind: str) -> str:
    if kind == "half":
        return f"0xH{bits:04X}"
    if kind == "bfloat":
        return f"0xR{bits:04X}"
    if kind == "float" and (bits >> 23) & 0xFF == 0xFF:  # widened bit by bit: a conversion would quiet a NaN
        bits = (bits >> 31) << 63 | 0x7FF << 52 | (bits & 0x7FFFFF) << 29
    elif kind == "float":
        bits = _bits(struct.unpack("<f", struct.pack("<I", bits))[0], "double")
    return f"0x{bits:016X}"
