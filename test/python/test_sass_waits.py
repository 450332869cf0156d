"""No kernel reads the sums of products before they are there, in what ptxas makes of it."""

import re

import pytest
import sass_waits
import torch
from torch import nn
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.codegen import ptxas
from kitsune_mlir.planning import target

pytestmark = pytest.mark.skipif(ptxas.find() is None or sass_waits.find() is None, reason="no ptxas, or no nvdisasm")

KERNEL = """
\t.text.product0:
        /*4ce0*/                   HGMMA.64x64x16.F32.BF16 R24, gdesc[UR16], R24, gsb0 ;
        /*4cf0*/                   WARPGROUP.DEPBAR.LE gsb0, 0x1 ;
        /*4d20*/                   IMAD.SHL.U32 R4, R3, 0x2, RZ ;
        /*4dc0*/                   F2FP.BF16.F32.PACK_AB R19, R50, R46 ;
        /*4e90*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
        /*4ec0*/              @!P1 F2FP.BF16.F32.PACK_AB R25, RZ, R25 ;
"""


def test_what_reads_early_is_found():
    assert sass_waits._early(KERNEL.splitlines()) == ["F2FP.BF16.F32.PACK_AB R19, R50, R46"]


class Convolved(nn.Module):
    def forward(self, x, weight):
        return F.conv2d(x, weight, padding=1)


class Multiplied(nn.Module):
    def forward(self, x, y):
        return x @ y


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("module", "shapes"),
    [
        (Convolved(), [(32, 256, 7, 7), (512, 256, 3, 3)]),  # patches of images of odd width, channels first
        (Multiplied(), [(256, 512), (512, 333)]),
        (Multiplied(), [(8, 200, 96), (8, 96, 77)]),
    ],
)
def test_rows_of_odd_length(module, shapes, dtype):
    compiled = kitsune_mlir.compile(module, tuple(torch.zeros(s, dtype=dtype) for s in shapes), target="sm_90a")
    texts = [text for text in re.split(r"(?m)^// kitsune section.*$", compiled.ptx) if "wgmma" in text]
    assert texts
    assert not sass_waits.early_reads({text: ptxas.assemble(text, target.load("sm_90a")).cubin for text in texts})


def test_kernels_are_told_apart():
    """Of several that are read at once, the one whose waits for products are gone."""
    compiled = kitsune_mlir.compile(
        Multiplied(), (torch.zeros(256, 512).half(), torch.zeros(512, 256).half()), target="sm_90a"
    )
    cubin = ptxas.assemble(compiled.ptx, target.load("sm_90a")).cubin
    (code,) = sass_waits.codes_of(cubin)
    lines = sass_waits.disassembled(code, "sm_90a")
    broken = bytearray(code)
    for number, line in enumerate(lines):
        if "WARPGROUP.DEPBAR" in line:
            broken[16 * number : 16 * (number + 1)] = bytes.fromhex("18790000000000000000000000c00f00")  # NOP
    kernels = {"before": cubin, "broken": cubin.replace(code, bytes(broken)), "behind": cubin}
    found = sass_waits.early_reads(kernels)
    assert list(found) == ["broken"] and any("F2FP" in read for read in found["broken"])
