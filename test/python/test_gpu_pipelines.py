"""Pipelines' kernels, run on a stand-in device that checks every access: right numbers in any order of CTAs."""

import dataclasses

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
from kitsune_mlir.codegen.pipeline import device as words
from kitsune_mlir.codegen.pipeline import loops, products
from kitsune_mlir.codegen.pipeline.kernel import PipelineKernel
from kitsune_mlir.codegen.pipeline.ring import Ring
from kitsune_mlir.frontend import import_model
from kitsune_mlir.planning import target as targets
from kitsune_mlir.precision import give
from kitsune_mlir.runtime.gpu import GpuRunner
from kitsune_mlir.tools.gpusim.device import SimulatedDevice
from kitsune_mlir.tools.gpusim.faults import Deadlock, MemoryFault

pytestmark = pytest.mark.usefixtures("unassembled")

SHAPES = ("fused", "spatial")


def compiled(model, args, path, shape, dynamic_shapes=None, tile=16, convert=None, place="", precision="highest"):
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


def runner_of(model, args, path, shape, dynamic_shapes=None, seed=0, **options):
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


@pytest.mark.parametrize("dtype, shape", list(zip(BOUNDS, SHAPES)), ids=["f32-fused", "bf16-spatial"])
@pytest.mark.parametrize("name", MODELS)
def test_agrees_with_torch(name, dtype, shape, small_gpu):
    """Twice, so that the second run finds what the first left in the workspace."""
    torch.manual_seed(3)
    model, args = MODELS[name](dtype)
    with torch.no_grad():
        wanted = model(*args)
    program, runner, device = runner_of(model, args, small_gpu, shape)
    for _ in range(2):
        check(program, runner, args, wanted, BOUNDS[dtype])
    assert device.pipeline_launches


def block():
    """Odd widths, a normalisation between products, an input that is read twice: a ring with two consumers."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.norm, self.down = nn.Linear(13, 37), nn.LayerNorm(37), nn.Linear(37, 13)

        def forward(self, x):
            x = torch.tanh(x)
            return x + self.down(torch.relu(self.norm(self.up(x))))

    torch.manual_seed(5)
    return Block().eval()


@pytest.mark.parametrize("shape", SHAPES)
def test_any_number_of_rows_in_any_order(shape, small_gpu):
    model = block()
    rows = torch.export.Dim("rows", min=0)
    program, section = compiled(model, (torch.randn(9, 13),), small_gpu, shape, dynamic_shapes=({0: rows},))
    for seed in range(3):
        runner, device = runner_on(program, section, seed)
        launches = 0
        for count in (33, 1, 0, 16, 150, 17):
            x = torch.randn(count, 13)
            check(program, runner, (x,), model(x).detach(), 1e-5)
            launches += count > 0
            assert device.pipeline_launches == launches


@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    graph=graphs(most_steps=7),
    rows=st.sampled_from([[1], [16], [37], [2, 9]]),
    shape=st.sampled_from(SHAPES),
    tile=st.sampled_from([16, 48]),
    seed=st.integers(0, 99),
)
def test_random_graphs(graph, rows, shape, tile, seed, small_gpu):
    """Right up to ten times torch's own error, which a normalisation of near equals makes large."""
    (model, width), data = graph, torch.Generator().manual_seed(seed)
    x = torch.empty(*rows, width).uniform_(-2, 2, generator=data)
    with torch.no_grad():
        torchs, exact = model.eval()(x), model.double()(x.double())
    program, runner, _ = runner_of(model.float(), (x,), small_gpu, shape, tile=tile, seed=seed)
    interface = interface_of(program)
    for _ in range(2):
        found = interface.flat_results(interface.call(runner, (x,), {}))
        for a, b, c in zip(found, torchs, exact, strict=True):
            assert (a - c).norm() <= 10 * (b - c).norm() + 1e-5 * c.norm() + 1e-6


def nothing(_):
    return lambda *arguments: None


def swapped(weight_of):
    def broken(op, memory):
        weight = weight_of(op, memory)
        return dataclasses.replace(weight, stride_k=weight.stride_n, stride_n=weight.stride_k)

    return broken


# The shape, what is broken in it, how, and what the simulator finds then.
MUTATIONS = {
    "no publish": ("spatial", Ring, "publish", nothing, Deadlock, "CTA 1 waits: byte .* of the workspace is 0, at"),
    "no release": ("spatial", Ring, "release", nothing, Deadlock, "CTA 0 waits"),
    "no wait for a tile": ("spatial", Ring, "wait_full", nothing, MemoryFault, "reads what nobody wrote"),
    "no wait for a slot": ("spatial", Ring, "wait_empty", nothing, MemoryFault, "writes what is read"),
    "no clearing": ("spatial", PipelineKernel, "_finish", nothing, MemoryFault, "a counter that is not zero"),
    "no barriers": ("fused", words, "barrier", nothing, MemoryFault, "reads what is written at the same time"),
    "no barriers between CTAs": ("spatial", words, "barrier", nothing, MemoryFault, "what is"),
    "no padding": ("fused", loops, "emit_padding", nothing, MemoryFault, "reads what nobody wrote: .* shared memory"),
    "no clamping": ("fused", words, "least", lambda _: lambda a, b: a, MemoryFault, "is in no tensor"),
    "wrong strides": ("fused", products, "weight_of", swapped, (AssertionError, MemoryFault), r"^\d|in no tensor"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_finds_broken_kernels(name, small_gpu, monkeypatch):
    shape, owner, attribute, broken, error, said = MUTATIONS[name]
    monkeypatch.setattr(owner, attribute, broken(getattr(owner, attribute)))
    model, x = block(), torch.randn(150, 13)
    program, runner, _ = runner_of(model, (x,), small_gpu, shape)
    with pytest.raises(error, match=said):
        check(program, runner, (x,), model(x).detach(), 1e-5)


def test_a_debug_kernel_that_hangs_ends_with_a_report(small_gpu, monkeypatch):
    model, x = block(), torch.randn(40, 13)
    program, runner, _ = runner_of(model, (x,), small_gpu, "spatial", convert=gpu_steps.watched(1000))
    check(program, runner, (x,), model(x).detach(), 1e-5)
    monkeypatch.setattr(Ring, "publish", nothing(None))
    program, runner, _ = runner_of(model, (x,), small_gpu, "spatial", convert=gpu_steps.watched(1000))
    report = r"reported: .*the tile of queue '\w+': its counter is 0, wanted 1 \(.*test_gpu_pipelines.py:\d+\)"
    with pytest.raises(Deadlock, match=report):
        check(program, runner, (x,), model(x).detach(), 1e-5)


def test_long_sums_of_f32_are_not_cut_off(small_gpu):
    """Of numbers of one sign, which tensor cores make a little smaller with every instruction."""
    torch.manual_seed(0)
    model, x = nn.Linear(1024, 8), torch.rand(9, 1024)
    model.weight.data.abs_()
    program, runner, _ = runner_of(model, (x,), small_gpu, "fused")
    check(program, runner, (x,), model.double()(x.double()).detach().float(), 6e-7)
