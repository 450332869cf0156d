"""What ptxas makes of the waits for products on warpgroups: instructions that read sums which are not yet waited for.

ptxas 13.0 joins two conversions to 16 bits that it finds apart into one, and has moved such a one in front of the wait
for the products whose sums it reads. In PTX everything is in order then; only the machine code shows it.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

BYTES = 16  # of an instruction
_LINE = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\d\s+)?(.*?)\s*;")
_PRODUCT = re.compile(r"HGMMA\.\d+x(\d+)x\d+\.\S*\s+R(\d+)")
_WAIT = re.compile(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x([0-9a-f]+)")
_REGISTER = re.compile(r"(?<![A-Z0-9])R(\d+)(\.64)?")


def find() -> str | None:
    """The path of nvdisasm: on PATH, or in its wheel; None without one."""
    if found := shutil.which("nvdisasm"):
        return found
    return next((str(path) for folder in sys.path for path in Path(folder, "nvidia").glob("*/bin/nvdisasm")), None)


def early_reads(cubins: Mapping[str, bytes], chip: str = "sm_90a") -> dict[str, list[str]]:
    """Instructions of cubins, in the order in which they stand, that name a register of a product's sums between the
    product and a wait that it has passed, by the cubin's name; cubins without any are left out. A register behind
    another product of f16 sums may be none of its own. All are read at once: nvdisasm takes longer to start than to
    read a kernel."""
    found = dict[str, list[str]]()
    codes = [(name, code) for name, cubin in cubins.items() for code in codes_of(cubin)]
    lines = disassembled(b"".join(code for _, code in codes), chip)
    for name, code in codes:
        own, lines = lines[: len(code) // BYTES], lines[len(code) // BYTES :]
        if early := _early(own):
            found.setdefault(name, []).extend(early)
    assert not lines
    return found


def disassembled(code: bytes, chip: str) -> list[str]:
    """The line that nvdisasm writes of each instruction."""
    nvdisasm = find()
    assert nvdisasm is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "code.bin")
        path.write_bytes(code)
        command = [nvdisasm, "-ndf", "--binary", chip.upper().replace("_", "").replace("A", "a"), path]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line for line in text.splitlines() if _LINE.match(line)]


def codes_of(cubin: bytes) -> list[bytes]:
    """The instructions of each kernel of a cubin, which is an ELF file of 64 bits."""
    (headers,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<3H", cubin, 58)
    sections = [struct.unpack_from("<2I4Q", cubin, headers + i * size) for i in range(count)]
    start = sections[names][4]
    return [
        cubin[offset : offset + length]
        for name, _, _, _, offset, length in sections
        if cubin.startswith(b".text.", start + name)
    ]


def _early(lines: list[str]) -> list[str]:
    """Those of a kernel."""
    found, groups, now = list[str](), list[set[int]](), set[int]()
    for line in lines:
        if (match := _LINE.match(line)) is None:
            continue
        instruction = match[1]
        if product := _PRODUCT.match(instruction):
            count = int(product[1]) // (2 if ".F32" in instruction else 4)
            now |= set(range(int(product[2]), int(product[2]) + count))
            if "gsb0" in instruction:
                groups, now = [*groups, now], set()
        elif wait := _WAIT.match(instruction):
            left = int(wait[1], 16)
            groups = groups[-left:] if left else []
        elif not instruction.startswith(("BRA", "EXIT")):
            read = {int(n) + more for n, wide in _REGISTER.findall(instruction) for more in range(1 + bool(wide))}
            if read & now.union(*groups):
                found.append(instruction)
    return found
