"""What ptxas makes of the waits for products on warpgroups: instructions that read sums which are not yet waited for.

ptxas 13.0 joins two conversions to 16 bits that it finds apart into one, and has moved such a one in front of the wait
for the products whose sums it reads. In PTX everything is in order then; only the machine code shows it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_LINE = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\d\s+)?(.*?)\s*;")
_PRODUCT = re.compile(r"HGMMA\.\d+x(\d+)x\d+\.\S*\s+R(\d+)")
_WAIT = re.compile(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x([0-9a-f]+)")
_REGISTER = re.compile(r"(?<![A-Z0-9])R(\d+)(\.64)?")


def find() -> str | None:
    """The path of nvdisasm: on PATH, or in its wheel; None without one."""
    if found := shutil.which("nvdisasm"):
        return found
    return next((str(path) for folder in sys.path for path in Path(folder, "nvidia").glob("*/bin/nvdisasm")), None)


def early_reads(cubin: bytes) -> list[str]:
    """Instructions of a cubin, in the order in which they stand, that name a register of a product's sums between the
    product and a wait that it has passed. A register behind another product of f16 sums may be none of its own."""
    nvdisasm = find()
    assert nvdisasm is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "code.cubin")
        path.write_bytes(cubin)
        text = subprocess.run([nvdisasm, "-c", path], capture_output=True, text=True, check=True).stdout
    return _early(text)


def _early(text: str) -> list[str]:
    found, groups, now = list[str](), list[set[int]](), set[int]()
    for line in text.splitlines():
        if ".text." in line:
            groups, now = [], set()
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
