"""Pipelines' kernels, run on a stand-in device that checks every access: right numbers in any order of CTAs and warps,
where warps multiply by themselves as where warpgroups do."""

import gpu_steps
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_graphs import graphs
from sample_models import program_of
from test_gpu_models import BOUNDS, check, interface_of
from torch import nn

from examples.models import gat, meshgraphnets, mlp, nerf, transformer
from kitsune_mlir.codegen import gpu
from kitsune_mlir.codegen.ampere import cp_async, ldmatrix
from kitsune_mlir.codegen.hopper import warps
from kitsune_mlir.codegen.hopper.mbarrier import Ring
from kitsune_mlir.codegen.hopper.stores import Boxes
from kitsune_mlir.codegen.schedule.granules import TensorGranules
from kitsune_mlir.frontend import import_model
from kitsune_mlir.planning import target as targets
from kitsune_mlir.precision import give
from kitsune_mlir.runtime.gpu import GpuRunner
from kitsune_mlir.tools.gpusim.device import SimulatedDevice
from kitsune_mlir.tools.gpusim.faults import Deadlock, MemoryFault

pytestmark = pytest.mark.usefixtures("unassembled")

CHIPS = ("sm_80", "sm_90a")


@pytest.fixture(scope="session")
def small_gpus(gpu_of):
    """By chip, the path of the description of a GPU of four SMs."""
    return {chip: gpu_of(4, chip) for chip in CHIPS}


def compiled(model, args, path, shape="auto", dynamic_shapes=None, tile=0, convert=None, place="", precision="highest"):
    """The program, and what is generated for it; `convert` are options of the passes that make kernels."""
    if dynamic_shapes is None:
        program = program_of(model, tuple(args))
    else:
        program = import_model(model, args, dynamic_shapes=dynamic_shapes)
    give(program.module, precision)
    placed = {"place-stages": f"shape={shape} tile-rows={tile} {place}"}
    gpu_steps.place(program.module, path, gpu_steps.SUMMED | placed)
    declined = gpu_steps.convert(program.module, path, convert)
    assert not declined or "chained" not in shape, declined
    return program, gpu.build(program.module, targets.load(path))


def runner_on(program, section, seed=0):
    """A runner of it, and the device."""
    device = SimulatedDevice(program.module, seed)
    return GpuRunner(section.manifest, section.files, interface_of(program).constants(), device), device


def runner_of(model, args, path, shape="auto", dynamic_shapes=None, seed=0, **options):
    """The program, and a runner of it with its pipelines, on a device."""
    program, section = compiled(model, args, path, shape, dynamic_shapes, **options)
    return program, *runner_on(program, section, seed)


MODELS = {
    "mlp": lambda dtype: mlp(rows=40, widths=(24, 48, 40, 6), dtype=dtype),
    "nerf": lambda dtype: nerf(samples=24, width=32, depth=6, dtype=dtype),
    "transformer": lambda dtype: transformer(tokens=12, width=32, hidden=48, dtype=dtype),
    "meshgraphnets": lambda dtype: meshgraphnets(nodes=24, edges=56, width=24, blocks=1, dtype=dtype),
    "gat": lambda dtype: gat(nodes=24, edges=60, inputs=20, width=12, dtype=dtype),
}


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_agrees_with_torch(name, dtype, small_gpus):
    """Twice, so that the second run finds what the first left in the workspace."""
    torch.manual_seed(3)
    model, args = MODELS[name](dtype)
    with torch.no_grad():
        wanted = model(*args)
    program, runner, device = runner_of(model, args, small_gpus["sm_80"])
    for _ in range(2):
        check(program, runner, args, wanted, BOUNDS[dtype])
    assert device.pipeline_launches


def block():
    """Odd widths, a normalisation between products, an input that is read twice."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.norm, self.down = nn.Linear(13, 37), nn.LayerNorm(37), nn.Linear(37, 13)

        def forward(self, x):
            x = torch.tanh(x)
            return x + self.down(torch.relu(self.norm(self.up(x))))

    torch.manual_seed(5)
    return Block().eval()


@pytest.mark.parametrize("chip", CHIPS)
def test_any_number_of_rows_in_any_order(chip, small_gpus):
    model = block()
    rows = torch.export.Dim("rows", min=0)
    program, section = compiled(model, (torch.randn(9, 13),), small_gpus[chip], dynamic_shapes=({0: rows},))
    for seed in range(3):
        runner, device = runner_on(program, section, seed)
        for count in (33, 1, 0, 16, 150, 17):
            x, before = torch.randn(count, 13), device.pipeline_launches
            check(program, runner, (x,), model(x).detach(), 1e-5)
            assert (device.pipeline_launches > before) == (count > 0)


@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    graph=graphs(most_steps=7),
    rows=st.sampled_from([[1], [16], [37], [2, 9]]),
    chip=st.sampled_from(CHIPS),
    seed=st.integers(0, 99),
)
def test_random_graphs(graph, rows, chip, seed, small_gpus):
    """Right up to ten times torch's own error, which a normalisation of near equals makes large."""
    (model, width), data = graph, torch.Generator().manual_seed(seed)
    x = torch.empty(*rows, width).uniform_(-2, 2, generator=data)
    with torch.no_grad():
        torchs, exact = model.eval()(x), model.double()(x.double())
    program, runner, _ = runner_of(model.float(), (x,), small_gpus[chip], seed=seed)
    interface = interface_of(program)
    for _ in range(2):
        found = interface.flat_results(interface.call(runner, (x,), {}))
        for a, b, c in zip(found, torchs, exact, strict=True):
            assert (a - c).norm() <= 10 * (b - c).norm() + 1e-5 * c.norm() + 1e-6


def waiting(width):
    """A tile so wide that it waits in shared memory for its product."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(40, width), nn.ReLU(), nn.Linear(width, 24))


class Equal(nn.Module):
    """Equal layers, which are one loop, over weights that it selects."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(5))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


FORMS = {
    "odd widths, bf16": (block, 13, torch.bfloat16, "highest"),
    "odd widths, f16": (block, 13, torch.float16, "highest"),
    "a tile waits, bf16": (lambda: waiting(320), 40, torch.bfloat16, "highest"),
    "a tile waits, f32": (lambda: waiting(128), 40, torch.float32, "highest"),
    "a tile waits, tf32": (lambda: waiting(160), 40, torch.float32, "high"),
    "equal layers, bf16": (Equal, 64, torch.bfloat16, "highest"),
    "equal layers, f32": (Equal, 64, torch.float32, "highest"),
    "equal layers, tf32": (Equal, 64, torch.float32, "high"),
}


@pytest.mark.parametrize("name", FORMS)
def test_chains_of_warps(name, small_gpus):
    """One kernel each, without warpgroups."""
    make, width, dtype, precision = FORMS[name]
    torch.manual_seed(1)
    model, x = make().to(dtype).eval(), torch.randn(150, width).to(dtype)
    with torch.no_grad():
        torchs, exact = model(x), model.double()(x.double())
    options = {"shape": "chained", "precision": precision}
    program, runner, device = runner_of(model.to(dtype), (x,), small_gpus["sm_80"], **options)
    bound = 2 * ((torchs - exact).norm() / exact.norm()).item() + torch.finfo(dtype).eps
    bound = 2e-3 if precision == "high" and dtype == torch.float32 else max(bound, 5e-6)
    check(program, runner, (x,), exact.to(dtype), bound)
    assert device.pipeline_launches == 1


def nothing(_):
    return lambda *arguments, **options: None


# What is broken in a chain of warps, how, and what the simulator finds then.
MUTATIONS = {
    "slots are not given back": (Ring, "release", nothing, Deadlock, "CTA 0 .* arrivals and 0 bytes are missing"),
    "copies are not told": (cp_async, "arrive", nothing, Deadlock, "CTA 0 .* arrivals and 0 bytes are missing"),
    "no wait for a full slot": (Ring, "wait_full", nothing, MemoryFault, "reads what (nobody wrote|is written)"),
    "no wait for a free slot": (Ring, "wait_empty", nothing, MemoryFault, "writes what is (read|written)"),
    "no order among lanes": (warps, "sync", nothing, MemoryFault, "what is (read|written) at the same time"),
    "no end of rows": (TensorGranules, "_size", lambda _: lambda *_: 1 << 20, MemoryFault, "is in no tensor"),
    "rows of another warp": (
        ldmatrix,
        "left",
        lambda left: lambda start, first, lane, across: left(start, 16, lane, across),
        (AssertionError, MemoryFault),
        r"^\d|what is",
    ),
    "a tile that waits is not stored": (Boxes, "write_words", nothing, MemoryFault, "reads what nobody wrote"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_finds_broken_kernels(name, small_gpus, monkeypatch):
    owner, attribute, broken, error, said = MUTATIONS[name]
    monkeypatch.setattr(owner, attribute, broken(getattr(owner, attribute)))
    model, x = waiting(320).bfloat16(), torch.randn(300, 40, dtype=torch.bfloat16)
    program, runner, _ = runner_of(model, (x,), small_gpus["sm_80"], "chained")
    with pytest.raises(error, match=said):
        check(program, runner, (x,), model(x).detach(), 1e-2)


def test_a_debug_kernel_that_hangs_ends_with_a_report(small_gpus, monkeypatch):
    model, convert = waiting(320).bfloat16(), gpu_steps.watched(1000)
    x = torch.randn(300, 40, dtype=torch.bfloat16)
    program, runner, _ = runner_of(model, (x,), small_gpus["sm_80"], "chained", convert=convert)
    check(program, runner, (x,), model(x).detach(), 1e-2)
    monkeypatch.setattr(Ring, "release", nothing(None))
    program, runner, _ = runner_of(model, (x,), small_gpus["sm_80"], "chained", convert=convert)
    report = r"reported: .*for a free slot of the ring of \w+: slot \d, parity [01] \(.*\.py:\d+\)"
    with pytest.raises(Deadlock, match=report):
        check(program, runner, (x,), model(x).detach(), 1e-2)


def test_long_sums_of_f32_are_not_cut_off(small_gpus):
    """Of numbers of one sign, which tensor cores make a little smaller with every instruction."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(1024, 8), nn.ReLU(), nn.Linear(8, 8)), torch.rand(9, 1024)
    for parameter in model.parameters():
        parameter.data.abs_()
    program, runner, _ = runner_of(model, (x,), small_gpus["sm_80"], "chained")
    check(program, runner, (x,), model.double()(x.double()).detach().float(), 1e-6)
