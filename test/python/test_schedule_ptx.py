"""What ptxas says of scheduled kernels: no spills, no stack, products that overlap (no wgmma run one after another)."""

import functools
import sys
from pathlib import Path

import pytest
import torch
from functions import Function

sys.path.append(str(Path(__file__).parents[2] / "bench"))
import check_gpu_schedules as checks

from kitsune_mlir import mlir, precision
from kitsune_mlir.bench import random_products
from kitsune_mlir.codegen import ptx, ptxas
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.frontend import import_model
from kitsune_mlir.passes import pipeline
from kitsune_mlir.passes.priced_product import PricedProduct
from kitsune_mlir.planning import target

pytestmark = pytest.mark.skipif(ptxas.find() is None, reason="there is no ptxas")
LOWER = ["convert-kitsune-to-gpu", "convert-linalg-to-gpu"]
BF16, F32 = torch.bfloat16, torch.float32
LAST = {"last rows": BF16, "last rows of pieces": F32}  # of which boxes are shorter than others
FORMS = {  # a function, shapes, type, whether a product is issued before the one before it has ended
    "large": (torch.bmm, ((2, 4096, 4096), (2, 4096, 4096)), BF16, True),
    "one chunk": (torch.bmm, ((512, 128, 64), (512, 64, 128)), BF16, False),
    "epilogue": (lambda x, y, b: torch.relu(x @ y + b), ((1000, 256), (256, 512), (512,)), BF16, True),
    "row group": (lambda x, y: (x @ y).softmax(-1), ((8192, 256), (256, 256)), BF16, True),
    "parts of k": (lambda x, y: x.t() @ y, ((70000, 142), (70000, 512)), BF16, True),
    "by number": (lambda x, w, n: torch.bmm(x, w[n.long()]), ((40, 64, 1024), (8, 1024, 2048), (40,)), BF16, True),
    "pieces": (torch.bmm, ((2, 512, 512), (2, 512, 512)), F32, False),
    "tf32": (lambda x, y: x @ y.mT, ((2048, 1024), (2000, 1024)), F32, True),
    "tf32, turned": (lambda x, y: x.t() @ y, ((70001, 256), (70001, 512)), F32, True),
    "tf32, one turned": (torch.bmm, ((64, 512, 192), (64, 192, 64)), F32, True),
    **{name: (lambda x, y: x @ y.mT, ((200, 4096), (4096, 4096)), kind, kind == BF16) for name, kind in LAST.items()},
}


def check(module, machine):
    """The PTX of the module's scheduled kernels, of which ptxas has no complaint."""
    pipeline.run(module, [pipeline.make(name, "", machine.name) for name in LOWER])
    kernels = [kernel for kernel in mlir.walk(module, "gpu.module") if "kitsune.pipeline" in kernel.attributes]
    texts = [ptx.to_ptx(kernel, machine) for kernel in kernels]
    for text in texts:
        result = ptxas.assemble(text, machine)
        for kernel in result.kernels.values():
            assert (kernel.stack, kernel.spill_stores, kernel.spill_loads) == (0, 0, 0)
        assert not result.warnings
    return texts


@functools.cache
def imported(name):
    """A form as a program, which is copied where it is changed."""
    function, shapes, dtype, _ = FORMS[name]
    program = import_model(Function(function), tuple(torch.randn(shape, dtype=dtype) for shape in shapes))
    precision.give(program.module, "high" if name.startswith("tf32") else "highest")
    return program


def texts_of(name, machine):
    """The PTX of a form's kernels."""
    module = imported(name).module.operation.clone()
    steps = ["prepare-linalg", "schedule-products", "schedule-rows"]
    pipeline.run(module, [pipeline.make(step, "", machine) for step in steps])
    return check(module, target.load(machine))


@pytest.mark.parametrize("name", FORMS)
def test_products(name, monkeypatch):
    if name in LAST:  # boxes whose pieces are made in the kernel have all rows
        monkeypatch.setattr(PricedProduct, "before_us", lambda _: 0.0)
    texts = texts_of(name, "sm_90a")
    assert ".maxntid 512" in texts[0] or "turned" not in name  # with a warpgroup that turns
    assert ("wgmma.wait_group.sync.aligned \t1;" in texts[0]) == FORMS[name][3]
    assert "mbarrier.complete_tx" in texts[0] or name not in LAST


@pytest.mark.parametrize("stride, copy", [(1, "4d.shared::cluster.global.tile"), (2, "im2col")])
def test_convolutions_in_tf32(stride, copy):
    """Windows as the left operand and as the right one, as f32 words; patches of images where they are neighbours."""
    layers = [torch.nn.Conv2d(64, 64, 3, padding=1, stride=stride) for _ in range(2)]
    program = import_model(torch.nn.Sequential(*layers), (torch.randn(128, 64, 56, 56),))
    precision.give(program.module, "high")
    steps = ["prepare-linalg", "convolutions-to-products", "schedule-products"]
    pipeline.run(program.module, [pipeline.make(step, "", "sm_90a") for step in steps])
    texts = check(program.module, target.load("sm_90a"))
    assert len(texts) == 2 and all(copy in text and "tf32.tf32" in text for text in texts)


@pytest.mark.parametrize("exact", ["highest", "high"])
def test_what_is_added_is_asked_for_before_anything_is_stored(exact):
    """A load behind a store waits for nothing, but stays behind it: what follows would wait for memory again."""
    shapes = (512, 64, 128), (512, 128, 92), (64, 1), (512, 64, 92)
    given = tuple(torch.randn(shape) for shape in shapes)
    program = import_model(Function(lambda x, y, scale, other: (x @ y) * scale + other), given)
    precision.give(program.module, exact)
    steps = ["prepare-linalg", "schedule-products"]
    pipeline.run(program.module, [pipeline.make(step, "", "sm_90a") for step in steps])
    (text,) = check(program.module, target.load("sm_90a"))
    before, *behind = text.split("st.global.v2")
    assert before.count("ld.global.v2") > 16 and len(behind) > 16
    assert not any("ld.global.v2" in part for part in behind)


@pytest.mark.parametrize("name", FORMS)
def test_products_of_warps(name):
    texts = texts_of(name, "sm_80")
    assert "mma.sync" in texts[0] and "cp.async.cg" in texts[0]


@pytest.mark.parametrize("machine", ["sm_86", "sm_89", "sm_100a", "sm_120"])
def test_targets_of_warps(machine):
    assert "mma.sync" in texts_of("large", machine)[0]


@pytest.mark.parametrize("seed", [1, 2, 6, 8, 11, 29])
def test_random_kernels(seed):
    module = checks.parsed(checks.draw(seed).text)
    assert check(module, target.load("sm_90a"))


def test_sums_that_ptxas_has_no_registers_for(monkeypatch):
    monkeypatch.setattr(random_products, "LEAST_AT_LAUNCH", 0)
    module = checks.parsed(checks.draw(232).text)
    said = "a product of 256 columns wants 154 registers of a thread, 512 threads are given 128"
    with pytest.raises(UnsupportedError, match=said):
        pipeline.run(module, [pipeline.make("convert-kitsune-to-gpu", "", "sm_90a")])


def gate(x, w, v, bias, residual):
    """Two products of one operand, with what takes both."""
    return torch.nn.functional.gelu(x @ w.mT + bias) * (x @ v.mT) + residual


@pytest.mark.parametrize("machine", ["sm_90a", "sm_80", "sm_120"])
@pytest.mark.parametrize("m, n, k", [(8192, 1408, 1024), (300, 200, 72), (2000, 51, 130)], ids=str)
def test_gates(m, n, k, machine):
    """Wide tiles, and sizes that divide none: the sums of both products, and what follows, fit the registers."""
    shapes = ((m, k), (n, k), (n, k), (n,), (m, n))
    program = import_model(Function(gate), tuple(torch.randn(shape, dtype=BF16) for shape in shapes))
    steps = ["prepare-linalg", "gated-products", "schedule-products"]
    pipeline.run(program.module, [pipeline.make(step, "", machine) for step in steps])
    (text,) = check(program.module, target.load(machine))
    assert ("wgmma.wait_group.sync.aligned \t2;" in text) == (machine == "sm_90a" and k > 64)
