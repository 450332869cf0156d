"""Boxes that end with a tensor's last row (`last` of kitsune.copy): what products make of slots that they fill in part
is right in the interpreter and in the simulator, where all else in these slots is no number."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from functions import Function
from test_gpu_models import check, interface_of
from test_gpu_scheduled import BOUNDS, drawn
from test_schedule_products import LINEAR, refused, scheduled

from kitsune_mlir import mlir
from kitsune_mlir.codegen import gpu
from kitsune_mlir.codegen.hopper import mbarrier
from kitsune_mlir.codegen.schedule.extents import rows_left
from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.frontend import import_model
from kitsune_mlir.mlir import arith, ir
from kitsune_mlir.passes import pipeline, priced_product, product_kernel, schedule_events
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.product_tiles import choose
from kitsune_mlir.precision import give
from kitsune_mlir.runtime.gpu import GpuRunner
from kitsune_mlir.schedule import run
from kitsune_mlir.tools.gpusim.device import SimulatedDevice
from kitsune_mlir.tools.gpusim.faults import Deadlock

STEPS = (
    "prepare-linalg",
    "convolutions-to-products",
    "schedule-products",
    "convert-kitsune-to-gpu",
    "convert-linalg-to-gpu",
)


def lasts(module):
    """By ring the last rows of the copies into it, in their order."""
    found = {}
    for copy in mlir.walk(module, "kitsune.copy"):
        if copy.opview.elements is None:
            found.setdefault(dialect.ring_of(copy.operands[0]).label, []).append(copy.opview.last_rows)
    return found


def linear(m, n, k=136):
    """The module of a product of rows and rows, scheduled and proven; it fits the copy engine's rows."""
    module = mlir.parse(LINEAR.format(m=m, n=n, k=k), mlir.context())
    pipeline.run(module, [pipeline.make(name, "", "sm_90a") for name in ("schedule-products", "verify-dataflow")])
    return module


@pytest.fixture
def asked(monkeypatch):
    """A function that has tiles chosen as it is told."""

    def ask(**given):
        monkeypatch.setattr(priced_product, "choose", lambda *args, **own: choose(*args, **own | given))

    return ask


TILES = {  # what choose is asked for, sizes; last rows of both operands
    "one warpgroup": ({"widths": (64,)}, (129, 300, 136), {"left": {8}, "right": {48}}),
    "whole tiles": ({"widths": (64,)}, (128, 256, 136), {"left": {None}, "right": {None}}),
    "few rows": ({"widths": (64,)}, (40, 120, 1032), {"left": {40}, "right": {56}}),
    "two sets": ({"widths": (256,)}, (300, 520, 200), {"left": {48}, "right": {8}}),
    "the second set is the last": ({"widths": (256,)}, (300, 456, 200), {"left": {48}, "right": {None, 72}}),
    "sets of other widths": ({"widths": (192,)}, (130, 200, 200), {"left": {8}, "right": {8}}),
    "nothing in the second set": ({"widths": (192,)}, (130, 304, 200), {"left": {8}, "right": {112, 8}}),
    "columns between boxes": ({"widths": (80,)}, (129, 184, 136), {"left": {8}, "right": {24}}),
    "a cluster": ({"widths": (64,), "clusters": (2,), "most_split": 1}, (100, 200, 520), {"left": {40}, "right": {8}}),
}


@pytest.mark.parametrize("name", TILES)
def test_forms(name, asked):
    """In the interpreter, which has no numbers where no copy wrote; in other orders."""
    given, (m, n, k), wanted = TILES[name]
    asked(**given)
    module = linear(m, n, k)
    assert {ring: set(rows) for ring, rows in lasts(module).items()} == wanted
    rng = np.random.default_rng(0)
    left, right = (np.float32(rng.integers(-8, 8, (size, k))) for size in (m, n))
    (kernel,) = dialect.kernels(module)
    for seed in range(2):
        (found,) = run(kernel, [left, right], ctas=4, seed=seed)
        np.testing.assert_array_equal(found.sum(0) if found.ndim == 3 else found, left @ right.T)


@pytest.mark.parametrize("turned, wanted", [((False, False), "left"), ((True, True), "right"), ((True, False), "")])
def test_operands_whose_rows_are_along_k_have_whole_boxes(turned, wanted):
    """Left m x k, or turned k x m; right k x n, or turned n x k."""
    found = lasts(scheduled(2, 72, 136, 200, turned))
    assert {ring for ring, rows in found.items() if None not in rows} == ({wanted} if wanted else set())


def test_a_number_of_rows_that_is_open_has_whole_boxes():
    text = LINEAR.format(m="?", n=136, k=136).replace("tensor.empty()", "tensor.empty(%d)")
    rows = "  %0 = arith.constant 0 : index\n  %d = tensor.dim %a, %0 : tensor<?x136xbf16>\n"
    text = text.replace("  %e = ", f"{rows}  %e = ")
    module = mlir.parse(text, mlir.context())
    pipeline.run(module, [pipeline.make(name, "", "sm_90a") for name in ("schedule-products", "verify-dataflow")])
    assert set(lasts(module)["left"]) == {None}


def test_windows_have_whole_boxes():
    convolution = torch.nn.Conv2d(64, 40, 3).bfloat16()
    program = import_model(convolution, (torch.randn(2, 64, 9, 9, dtype=torch.bfloat16),))
    steps = ["prepare-linalg", "convolutions-to-products", "schedule-products"]
    pipeline.run(program.module, [pipeline.make(step, "", "sm_90a") for step in steps])
    found = lasts(program.module)
    assert [set(rows) for rows in found.values()].count({None}) == 1 and len(found) == 2


def test_numbers_that_are_rows_of_a_table_are_made_of_whole_boxes():
    """Else numbers of what lies behind a box might be no rows of it."""
    table, found = torch.randn(8, dtype=torch.bfloat16), []
    for function in (lambda x, y: torch.relu(x @ y.mT), lambda x, y: table[(x @ y.mT).clamp(0, 7).long()]):
        program = import_model(Function(function), drawn((129, 136), (72, 136)))
        pipeline.run(program.module, [pipeline.make(step, "", "sm_90a") for step in STEPS[:3]])
        (kernel,) = dialect.kernels(program.module)
        found.append((len(mlir.walk(kernel, "tensor.extract")), set(lasts(program.module)["left"])))
    assert found == [(0, {8}), (1, {None})]


def test_the_proof_refuses_boxes_that_leave_rows_out():
    module = linear(129 + 16, 300)
    copies = [copy for copy in mlir.walk(module, "kitsune.copy") if copy.opview.last_rows == 24]
    copies[0].attributes["last"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64, module.context), 16)
    assert "copies 16 last rows to a slot of ring 'left' where the tensor may have 17" in refused(module)


def test_rows_that_are_left():
    """Of a tensor of 300 rows in boxes of 128 that begin at multiples of a number, some rows further."""
    with mlir.context(), ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            some = arith.index_cast(ir.IndexType.get(), arith.constant(ir.IntegerType.get_signless(32), 7))

            def at(step, further):
                tile = arith.muli(some, arith.ConstantOp.create_index(step).result)
                return arith.addi(tile, arith.ConstantOp.create_index(further).result)

            assert rows_left(300, 128, at(128, 0)) == 44
            assert rows_left(300, 128, at(256, 0)) == 44 and rows_left(456, 128, at(256, 0)) is None
            assert rows_left(300, 128, at(256, 128)) == 0  # the next one begins behind the last row
            assert rows_left(300, 64, at(192, 128)) == 0
            assert rows_left(300, 128, at(1, 0)) == 127
            assert rows_left(20, 128, arith.ConstantOp.create_index(0).result) == 20
            assert rows_left(300, 128, arith.ConstantOp.create_index(0).result) is None


# ---- in the simulator


@pytest.fixture
def simulated(small_gpu, unassembled):
    """A function that runs another one of tensors in the simulator, and compares with float64."""

    def run_in_simulator(function, args, precision="highest"):
        program = import_model(Function(function), args)
        give(program.module, precision)
        pipeline.run(program.module, [pipeline.make(name, "", small_gpu) for name in STEPS])
        section = gpu.build(program.module, targets.load(small_gpu))
        device = SimulatedDevice(program.module, 0)
        runner = GpuRunner(section.manifest, section.files, interface_of(program).constants(), device)
        wanted = function(*(x.double() for x in args)).to(args[0].dtype)
        check(program, runner, args, wanted, BOUNDS.get(args[0].dtype) or BOUNDS[precision])
        assert device.pipeline_launches

    return run_in_simulator


FOLLOWS = {"bias": lambda y, b: y + b, "gelu": lambda y, b: F.gelu(y + b), "softmax": lambda y, b: (y + b).softmax(-1)}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("follow", FOLLOWS)
@pytest.mark.parametrize("m, n", [(129, 257), (200, 64), (300, 300)])
def test_linear_layers(m, n, follow, simulated):
    simulated(lambda x, w, b: FOLLOWS[follow](x @ w.mT, b), drawn((m, 136), (n, 136), (n,)))


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("precision", ["highest", "high"])
@pytest.mark.parametrize("shapes", [((129, 136), (300, 136)), ((2, 75, 136), (2, 257, 136))], ids=str)
def test_products_of_f32(shapes, precision, simulated):
    simulated(lambda x, w: torch.relu(x @ w.mT), drawn(*shapes, dtype=torch.float32), precision)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", TILES)
def test_forms_in_the_simulator(name, asked, simulated):
    given, (m, n, k), _ = TILES[name]
    asked(**given)
    simulated(lambda x, w: F.gelu(x @ w.mT), drawn((m, k), (n, k)))


def test_batches_end_with_a_last_tile_each(simulated):
    simulated(lambda x, w: torch.bmm(x, w.mT).softmax(-1), drawn((3, 75, 72), (3, 64, 72)))


def test_parts_of_a_long_sum(simulated):
    simulated(lambda x, w: x @ w.mT, drawn((75, 3000), (41, 3000)))


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("m, n", [(3000, 41), (41, 3000)])
def test_an_operand_that_is_kept(m, n, simulated):
    simulated(lambda x, w: torch.relu(x @ w.mT), drawn((m, 264), (n, 264)))


def test_bytes_that_no_copy_brings_would_be_waited_for(simulated, monkeypatch):
    monkeypatch.setattr(mbarrier, "complete_where", lambda *_: None)
    with pytest.raises(Deadlock, match=r"[1-9]\d* bytes are missing"):
        simulated(lambda x, w: torch.relu(x @ w.mT), drawn((129, 136), (72, 136)))


def test_rows_that_are_left_out_would_be_no_numbers(simulated, monkeypatch):
    """Where neither the pass nor the proof knows how many rows are left."""
    for module in (product_kernel, schedule_events):
        monkeypatch.setattr(module, "rows_left", lambda *_: 8)
    with pytest.raises(AssertionError, match="nan"):
        simulated(lambda x, w: torch.relu(x @ w.mT), drawn((128 + 30, 136), (72, 136)))
