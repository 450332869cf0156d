"""Products outside pipelines on chips without warpgroup products, on the stand-in GPU: warps that copy and multiply by
themselves (mma.sync, cp.async)."""

from types import SimpleNamespace

import open_products
import pytest
import torch
from convolution_models import FORMS, ran
from functions import Function
from test_gpu_models import interface_of
from test_gpu_scheduled import drawn, run

from kitsune_mlir.codegen import gpu
from kitsune_mlir.codegen.ampere import cp_async
from kitsune_mlir.codegen.hopper import mbarrier
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.schedule.warp_agent import WarpCode
from kitsune_mlir.frontend import import_model
from kitsune_mlir.passes import pipeline
from kitsune_mlir.planning import product_tiles
from kitsune_mlir.planning import target as targets
from kitsune_mlir.runtime.gpu import GpuRunner
from kitsune_mlir.tools.gpusim import Deadlock, MemoryFault
from kitsune_mlir.tools.gpusim.device import SimulatedDevice

pytestmark = pytest.mark.usefixtures("unassembled")


@pytest.fixture(scope="module")
def few(gpu_of):
    """The path of the description of an A100 of two SMs."""
    return gpu_of(2, "sm_80")


@pytest.mark.parametrize("left", [False, True], ids=["m x k", "k x m"])
@pytest.mark.parametrize("right", [False, True], ids=["k x n", "n x k"])
def test_orders_of_dimensions(left, right, few):
    """The sizes fill no tile, and rows no whole number of 16 bytes."""
    b, m, n, k = 2, 65, 77, 83
    shapes = (b, k, m) if left else (b, m, k), (b, n, k) if right else (b, k, n)

    def function(x, y):
        return torch.bmm(x.mT if left else x, y.mT if right else y)

    device = run(function, drawn(*shapes, dtype=torch.float16 if left else torch.bfloat16), few, 1)
    assert device.pipeline_launches == 1


@pytest.mark.parametrize("across", [False, True], ids=["rows", "columns"])
def test_tiles_of_32_rows_a_warp(across, few, monkeypatch):
    """Four tiles of 128 x 128, and what follows them."""
    product_tiles.choose.cache_clear()
    monkeypatch.setattr(product_tiles, "COLUMNS", (128,))
    found = product_tiles.choose(1, 256, 256, 200, across, 1, targets.load(few), work=2.0)
    assert found.copy_rows == 128

    def function(x, y, bias, whole):
        return torch.relu((x.mT @ y if across else x @ y.mT) + bias) + whole

    shapes = ((200, 256), (200, 256)) if across else ((256, 200), (256, 200))
    device = run(function, drawn(*shapes, (256,), (256, 256)), few, 1)
    assert device.pipeline_launches == 1
    product_tiles.choose.cache_clear()


def test_an_operand_that_is_kept(few):
    device = run(lambda x, y: torch.relu(x @ y.mT), drawn((900, 200), (40, 200)), few, 1)
    assert device.pipeline_launches == 1


def test_a_row_group(few):
    """Softmax on the tiles of a product."""
    device = run(lambda x, y: (x @ y).softmax(-1), drawn((300, 64), (64, 64)), few, 1)
    assert device.pipeline_launches == 1


def test_a_long_sum_in_parts(few):
    device = run(lambda x, y: x.t() @ y, drawn((3000, 40), (3000, 72)), few, 1)
    assert device.pipeline_launches == 1


def test_any_number_of_rows(few):
    rows = torch.export.Dim("rows", min=0, max=100_000)
    calls = [drawn((count, 64), (96, 64)) for count in (1, 130)]
    device = run(lambda x, y: x @ y.t(), drawn((70, 64), (96, 64)), few, 1, (({0: rows}, {}),), calls)
    assert device.pipeline_launches == 3


@pytest.mark.parametrize("name", ["70 channels", "3 channels, strides of 2"])
def test_convolutions(name, few):
    """Windows are read granule by granule."""
    make, shape = FORMS[name]
    assert ran(make(), shape, few, launches=1) == 1


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_f32_in_pieces(precision, few):
    args = drawn((70, 100), (100, 72), (72,), dtype=torch.float32)
    device = run(lambda x, y, bias: x @ y + bias, args, few, 1, precision=precision)
    assert device.pipeline_launches == 1


_release, _product = WarpCode._release, WarpCode._product


def _early(self, op):
    """Releases the slots of a product, then multiplies."""
    for slot in list(op.operands)[1:]:
        _release(self, SimpleNamespace(operands=[slot]))
    _product(self, op)


def _not_again(self, op):
    """Slots that `_early` has released."""


MUTANTS = {  # what takes the place of a function
    "an arrival before the copies have landed": [
        (cp_async, "arrive", lambda barrier: mbarrier.arrive(barrier, device.equal(0, 0)))
    ],
    "slots that are released before they are read": [
        (WarpCode, "_product", _early),
        (WarpCode, "_release", _not_again),
    ],
    "slots that nobody releases": [(WarpCode, "_release", _not_again)],
}


@pytest.mark.parametrize("name", MUTANTS)
def test_kernels_that_are_broken(name, few, monkeypatch):
    """Are found to be so, as a race, as a deadlock or by their numbers."""
    for mutant in MUTANTS[name]:
        monkeypatch.setattr(*mutant)
    with pytest.raises((MemoryFault, Deadlock, AssertionError)):
        run(lambda x, y: x @ y.mT, drawn((200, 1000), (130, 1000)), few, 1)


def test_a_wait_in_vain_is_reported(few, monkeypatch):
    """A kernel whose waits have a budget ends, and says for which ring it waited."""
    monkeypatch.setattr(WarpCode, "_release", _not_again)
    args = drawn((64, 1000), (64, 1000))
    program = import_model(Function(lambda x, y: x @ y.mT), args)
    for name in ("prepare-linalg", "schedule-products", "convert-kitsune-to-gpu", "convert-linalg-to-gpu"):
        options = "wait-budget=20" if name == "convert-kitsune-to-gpu" else ""
        pipeline.run(program.module, [pipeline.make(name, options, few)])
    section = gpu.build(program.module, targets.load(few))
    constants = interface_of(program).constants()
    runner = GpuRunner(section.manifest, section.files, constants, SimulatedDevice(program.module, 0))
    with pytest.raises(Deadlock, match="reported: CTA 0 waits, at tile 0, for a .* slot of the ring of"):
        interface_of(program).call(runner, args, {})


@pytest.mark.parametrize("name", ["rows", "sums of heads", "turned weights", "retention"])
def test_open_sizes(name, few):
    """Threads copy boxes of tensors whose strides depend on an open size, and of lines that have been made longer."""
    function, shapes, (args, *calls) = open_products.drawn(name, torch.bfloat16)
    assert run(function, args, few, 1, (shapes,), calls).pipeline_launches


@pytest.mark.parametrize("name", ["pairs that are scaled", "weights of pairs", "all sizes"])
def test_several_open_sizes(name, few):
    function, shapes, (args, *calls) = open_products.drawn_apart(name, torch.bfloat16)
    assert run(function, args, few, 1, (shapes,), calls).pipeline_launches == 1 + len(calls)
