"""Two products with a softmax between them, as one kernel: in the simulator beside float64, and when it is taken."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from drawn_attention import BOUNDS, compare, exact
from functions import Function
from test_gpu_models import check, interface_of
from torch import nn
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir import mlir
from kitsune_mlir.bench import cases, random_attention
from kitsune_mlir.codegen import gpu
from kitsune_mlir.errors import UserError
from kitsune_mlir.frontend import import_model
from kitsune_mlir.mlir import walk
from kitsune_mlir.passes import pipeline
from kitsune_mlir.planning import target as targets
from kitsune_mlir.runtime.gpu import GpuRunner
from kitsune_mlir.schedule import run as interpret
from kitsune_mlir.tools.gpusim import Simulation
from kitsune_mlir.tools.gpusim.device import SimulatedDevice

STEPS = ["prepare-linalg", "schedule-attention", "schedule-products", "schedule-rows", "verify-dataflow"]
LOWER = ["convert-kitsune-to-gpu", "convert-linalg-to-gpu"]


def scheduled(model, args, target, dynamic_shapes=None):
    program = import_model(model, args, dynamic_shapes=dynamic_shapes)
    pipeline.run(program.module, [pipeline.make(name, "", target) for name in STEPS])
    return program


def attentions(program):
    return [op.opview for op in walk(program.module, "kitsune.kernel") if op.opview.label.startswith("attention")]


def tensors(*shapes, dtype=torch.bfloat16):
    torch.manual_seed(sum(map(sum, shapes)))
    return tuple(torch.randn(shape).to(dtype) for shape in shapes)


def run(model, args, target):
    """Runs a model, all of whose attention is one kernel, on the device, which is given, and compares with float64."""
    program = scheduled(model, args, target)
    assert len(attentions(program)) == 1
    pipeline.run(program.module, [pipeline.make(name, "", target) for name in LOWER])
    section = gpu.build(program.module, targets.load(target))
    assert all(not kernel["spill_stores"] for kernel in section.manifest["kernels"]), section.manifest["kernels"]
    device = SimulatedDevice(program.module, 0)
    runner = GpuRunner(section.manifest, section.files, interface_of(program).constants(), device)
    wanted = exact(model, args).to(args[0].dtype)
    check(program, runner, args, wanted, BOUNDS[args[0].dtype])
    return device


# Odd sizes, several tiles of rows and of columns, and each kind of mask.
@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("seed", [0, 1, 4, 9, 12, 16, 19, 26, 33])
def test_drawn(seed, always, small_gpu):
    of = random_attention.draw(seed, small=True)
    module, args = random_attention.make(seed, small=True)
    own = module(*args).double()
    compiled = kitsune_mlir.compile(module, args, target=small_gpu)
    assert sum(launch["kernel"] == "attention0" for launch in compiled.plan["launches"]) == 1
    found = Simulation(compiled, seed=seed)(*args)
    found = torch.as_tensor(np.asarray((found if isinstance(found, torch.Tensor) else found[0]).float())).double()
    wanted = exact(random_attention.make(seed, small=True)[0], args)
    error, bound = ((x - wanted).norm() / wanted.norm() for x in (found, own))
    assert error <= 2 * bound + BOUNDS[of.dtype] / 2, of


# Each layout and way of masks, with a batch of more and of fewer than the example has.
@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("seed", [0, 1, 5, 13, 43, 45, 68])
def test_a_batch_that_is_open(seed, small_gpu):
    of = random_attention.draw(seed, small=True, open="batch")
    module, args = random_attention.make(seed, small=True, open="batch")
    shapes = random_attention.open_sizes(of)
    compiled = kitsune_mlir.compile(module, args, target=small_gpu, dynamic_shapes=shapes)
    assert [launch["kernel"] for launch in compiled.plan["launches"]] == ["attention0"]
    simulation = Simulation(compiled, seed=seed)
    for batch in (of.batch + 1, 1):
        compare(module, replace(of, batch=batch), simulation, seed)


# A causal mask, biases for groups of heads, a window; with columns, and with rows, that are open alone.
@pytest.mark.parametrize(
    "seed, what",
    [(5, "tokens"), (138, "tokens"), (537, "tokens"), (60, "tokens"), (57, "columns"), (43, "columns"), (43, "rows")],
)
def test_tokens_that_are_open(seed, what, small_gpu):
    of = random_attention.draw(seed, small=True, open=what)
    module, args = random_attention.make(seed, small=True, open=what)
    shapes = random_attention.open_sizes(of)
    compiled = kitsune_mlir.compile(module, args, target=small_gpu, dynamic_shapes=shapes)
    assert sum(launch["kernel"] == "attention0" for launch in compiled.plan["launches"]) == 1
    assert not any(launch["kernel"].startswith(("product", "rows")) for launch in compiled.plan["launches"])
    assert all(not kernel["spill_stores"] for kernel in compiled.plan["kernels"])
    simulation = Simulation(compiled, seed=seed)
    for size in (150, 33, 1):
        sizes = {name: size for name in ("rows", "columns") if what in (name, "tokens")}
        compare(module, replace(of, **sizes), simulation, seed)


@pytest.mark.parametrize("what", ["batch", "rows", "columns", "tokens"])
def test_cases_of_open_sizes_are_exported(what):
    """Also of seeds that draw such sizes as no open one has."""
    for seed in range(4):
        module, args, shapes = cases.find(f"attention-{what}-{seed}", None).make()
        assert torch.export.export(module, args, dynamic_shapes=shapes)


def open_tokens(*args):
    size = torch.export.Dim("tokens")
    return tuple({2: size} for _ in args)


@pytest.mark.usefixtures("unassembled")
def test_no_tokens(small_gpu):
    """Nothing for no queries; without keys there is nothing to weigh."""
    args = tensors(*[(2, 3, 70, 32)] * 3)
    shapes = (open_tokens(*args),)
    compiled = kitsune_mlir.compile(
        Function(F.scaled_dot_product_attention), args, target=small_gpu, dynamic_shapes=shapes
    )
    assert Simulation(compiled)(*(x[:, :, :0] for x in args)).shape == (2, 3, 0, 32)
    shapes = (({}, *open_tokens(*args[1:])),)
    compiled = kitsune_mlir.compile(
        Function(F.scaled_dot_product_attention), args, target=small_gpu, dynamic_shapes=shapes
    )
    with pytest.raises(UserError, match="kernel 'attention0' wants 1 or more"):
        Simulation(compiled)(args[0], *(x[:, :, :0] for x in args[1:]))


def test_two_open_sizes_are_refused(small_gpu):
    args = tensors(*[(2, 70, 32)] * 3)
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens")}
    function = Function(lambda q, k, v: (q @ k.mT).softmax(-1) @ v)
    program = import_model(function, args, dynamic_shapes=((sizes, sizes, sizes),))
    with mlir.collect_remarks() as said:
        pipeline.run(program.module, [pipeline.make(name, "", small_gpu) for name in STEPS[:2]])
    assert not attentions(program)
    assert any("two sizes are open" in remark.message for remark in said), said


def test_columns_of_which_an_open_size_is_a_part_are_refused(small_gpu):
    args = tensors((2, 70, 32), (2, 20, 4, 32), (2, 20, 4, 32))
    size = {1: torch.export.Dim("tokens")}

    def attend(query, key, value):
        return (query @ key.flatten(1, 2).mT).softmax(-1) @ value.flatten(1, 2)

    program = import_model(Function(attend), args, dynamic_shapes=(({}, size, size),))
    with mlir.collect_remarks() as said:
        pipeline.run(program.module, [pipeline.make(name, "", small_gpu) for name in STEPS[:2]])
    assert not attentions(program)
    assert any("a part of one of an operand" in remark.message for remark in said), said


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("dim, size", [(0, 3), (1, 77)], ids=["batch", "tokens"])
def test_layers_of_an_open_size(dim, size, small_gpu):
    """Sizes that are what layers before make of those of the input."""
    model = nn.Sequential(Block(96, 2), Block(96, 3)).bfloat16()
    (example,) = tensors((2, 130, 96))
    shapes = ({dim: torch.export.Dim("size")},)
    compiled = kitsune_mlir.compile(model, (example,), target=small_gpu, dynamic_shapes=shapes)
    names = [launch["kernel"] for launch in compiled.plan["launches"]]
    assert [name for name in names if name.startswith("attention")] == ["attention0", "attention1"]
    (x,) = tensors((size, 130, 96) if dim == 0 else (2, size, 96))
    found = Simulation(compiled, seed=1)(x)
    found = torch.as_tensor(np.asarray((found if isinstance(found, torch.Tensor) else found[0]).float())).double()
    wanted = exact(model, (x,))
    assert (found - wanted).norm() <= 2e-2 * wanted.norm()


@pytest.mark.parametrize("dim, size", [(0, 3), (1, 90)], ids=["batch", "tokens"])
def test_the_interpreter_agrees_on_open_sizes(dim, size, small_gpu):
    args = tensors(*[(2, 150, 32)] * 3)
    open_ = {dim: torch.export.Dim("size")}
    function = Function(lambda q, k, v: (q @ k.mT).softmax(-1) @ v)
    program = scheduled(function, args, small_gpu, ((open_,) * 3,))
    (kernel,) = attentions(program)
    args = tensors(*[(size, 150, 32) if dim == 0 else (2, size, 32)] * 3)
    (result,) = kernel.result_ops
    shape = [extent if extent > 0 else size for extent in result.results[0].type.shape]
    (found,) = interpret(kernel, [x.float().numpy() for x in args], seed=3, shapes=[shape])
    wanted = function(*(x.double() for x in args))
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted.numpy(), atol=2e-2)


STEP = torch.arange(200)
NEAR = (STEP <= STEP[:, None]) & (STEP > STEP[:, None] - 30)  # a row's first columns are masked
SOME = NEAR & (STEP[:, None] % 7 != 0)  # rows that have none
LOWEST = torch.finfo(torch.bfloat16).min


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize(
    "mask",
    [
        NEAR,
        SOME,
        torch.where(SOME, 0.0, LOWEST).bfloat16(),
        torch.where(SOME, 0.0, float("-inf")).bfloat16(),
    ],
    ids=["window", "rows of nothing", "the lowest number", "minus infinity"],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "tf32"])
def test_masked_rows(mask, dtype, always, small_gpu):
    """Rows whose first columns, or all, are masked: by what is added to scores, or taken for them."""
    mask = mask if mask.dtype == torch.bool else mask.to(dtype)

    def attend(query, key, value):
        return F.scaled_dot_product_attention(query, key, value, mask)

    args = tensors(*[(1, 2, 200, 32)] * 3, dtype=dtype)
    compiled = kitsune_mlir.compile(Function(attend), args, target=small_gpu, matmul_precision="high")
    assert [launch["kernel"] for launch in compiled.plan["launches"]][-1] == "attention0"
    found = Simulation(compiled, seed=1)(*args)
    found = found if isinstance(found, torch.Tensor) else found[0]
    torch.testing.assert_close(found.float(), attend(*args).float(), rtol=1e-2, atol=1e-2)


def of_all_keys(query, key, value):
    """A mask of keys that is the same for all batches, and computed of nothing but constants (GPSConv in PyG)."""
    hidden = ~torch.ones(1, key.shape[-2], dtype=torch.bool)
    bias = torch.zeros(hidden.shape, dtype=query.dtype).masked_fill_(hidden, float("-inf"))
    return F.scaled_dot_product_attention(query, key, value, bias.view(1, 1, 1, -1).expand(-1, 2, -1, -1))


def beside_one(query, key, value):
    """A weight beside those of scores, from which the largest is taken off a number, too (DNAConv in PyG)."""
    scores = query @ key.mT
    largest = scores.amax(-1, keepdim=True).clamp(min=0)
    weights = (scores - largest).exp()
    return (weights / (weights.sum(-1, keepdim=True) + (0.5 - largest).exp())) @ value


@pytest.mark.parametrize("columns", [200, 64], ids=str)
@pytest.mark.parametrize("function", [of_all_keys, beside_one])
def test_what_graph_networks_attend_by(function, columns, always, small_gpu):
    args = tensors((1, 2, 70, 32), *[(1, 2, columns, 32)] * 2)
    compiled = kitsune_mlir.compile(Function(function), args, target=small_gpu)
    assert "attention0" in [launch["kernel"] for launch in compiled.plan["launches"]]
    wanted = function(*(x.double() for x in args))
    torch.testing.assert_close(Simulation(compiled)(*args).double(), wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("lowest", [torch.finfo(torch.float32).min, -1e9, -1e6, -65504.0, 3e38], ids=str)
def test_numbers_that_take_the_place_of_scores(lowest, small_gpu):
    """What a row's largest number is multiplied to is rounded, the other products are not: all weights are off alike,
    and a row of nothing but one large number has even ones. The scale is no power of two, which would hide it."""

    def attend(query, key, value):
        scores = (query @ key.transpose(-1, -2)).float() * 40**-0.5
        return scores.masked_fill(~SOME, lowest).softmax(-1).to(query.dtype) @ value

    args = tensors(*[(1, 2, 200, 40)] * 3)
    compiled = kitsune_mlir.compile(Function(attend), args, target=small_gpu)
    assert [launch["kernel"] for launch in compiled.plan["launches"]] == ["attention0"]
    found = Simulation(compiled, seed=1)(*args)
    found = found if isinstance(found, torch.Tensor) else found[0]
    torch.testing.assert_close(found.float(), attend(*args).float(), rtol=1e-2, atol=1e-2)


@pytest.mark.usefixtures("unassembled")
def test_a_bias_of_a_factor_for_each_row(small_gpu):
    """What the factors are computed from needs no scores: nothing of it is left beside the kernel (WavLM)."""

    def attend(query, key, value, gate, bias):
        rows = (gate.sigmoid() * 3.0 + 2.0).view(2, 24, 1)
        scores = (query @ key.transpose(-1, -2)).float() + rows * bias
        return scores.softmax(-1).to(query.dtype) @ value

    args = tensors(*[(2, 24, 16)] * 3, (1, 2, 24, 1), (2, 24, 24))
    compiled = kitsune_mlir.compile(Function(attend), args, target=small_gpu)
    assert [launch["kernel"] for launch in compiled.plan["launches"]] == ["attention0"]
    found = Simulation(compiled, seed=1)(*args)
    found = found if isinstance(found, torch.Tensor) else found[0]
    torch.testing.assert_close(found.float(), attend(*args).float(), rtol=2e-2, atol=2e-2)


@pytest.mark.usefixtures("unassembled")
def test_a_bias_that_layers_share(small_gpu):
    """It is computed once, in front of both kernels (T5, MPNet)."""

    def attend(query, key, value, bias, mask):
        bias = bias + mask
        for _ in range(2):
            query = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return query

    args = tensors(*[(1, 2, 40, 16)] * 3, (1, 2, 40, 40), (1, 1, 40, 40))
    compiled = kitsune_mlir.compile(Function(attend), args, target=small_gpu)
    launches = [launch["kernel"] for launch in compiled.plan["launches"]]
    assert len(launches) == 3 and launches[1:] == ["attention0"] * 2
    found = torch.as_tensor(Simulation(compiled, seed=1)(*args))
    torch.testing.assert_close(found.float(), attend(*args).float(), rtol=2e-2, atol=2e-2)


class Block(nn.Module):
    """Queries, keys and values of one product."""

    def __init__(self, width, heads):
        super().__init__()
        torch.manual_seed(width)
        self.heads, self.inputs = heads, nn.Linear(width, 3 * width)

    def forward(self, x):
        query, key, value = self.inputs(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2)


def test_operands_are_read_where_they_lie(small_gpu):
    """Nothing is sliced, transposed or copied around the kernel."""
    args = tensors((2, 130, 96))
    device = run(Block(96, 2).bfloat16(), args, small_gpu)
    assert (device.pipeline_launches, device.launches) == (2, 0)


class Sliced(nn.Module):
    """The same, sliced: queries before keys before values, of which there may be fewer, or head by head."""

    def __init__(self, width, heads, key_heads, by_head=False):
        super().__init__()
        torch.manual_seed(width)
        self.heads, self.by_head, self.sizes = heads, by_head, [heads * 24, key_heads * 24, key_heads * 24]
        self.inputs = nn.Linear(width, sum(self.sizes))

    def forward(self, x):
        x = self.inputs(x)
        if self.by_head:
            parts = x.unflatten(-1, (self.heads, -1)).transpose(1, 2).chunk(3, -1)
        else:
            parts = (part.unflatten(-1, (-1, 24)).transpose(1, 2) for part in x.split(self.sizes, -1))
        return F.scaled_dot_product_attention(*parts, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("form", [(4, 4), (4, 2), (3, 3, True)], ids=str)
def test_slices_are_read_where_they_lie(form, small_gpu):
    device = run(Sliced(64, *form).bfloat16(), tensors((2, 70, 64)), small_gpu)
    assert (device.pipeline_launches, device.launches) == (2, 0)


def test_slices_of_open_tokens_are_read_where_they_lie(small_gpu):
    model, (x,) = Sliced(64, 4, 2).bfloat16(), tensors((2, 70, 64))
    compiled = kitsune_mlir.compile(
        model, (x,), target=small_gpu, dynamic_shapes={"x": {1: torch.export.Dim("tokens", min=2, max=512)}}
    )
    assert [launch["kernel"] for launch in compiled.plan["launches"]] == ["product0", "attention0"]
    for tokens in (70, 3, 131):
        (x,) = tensors((2, tokens, 64))
        found = torch.as_tensor(Simulation(compiled, seed=tokens)(x))
        torch.testing.assert_close(found.float(), model(x).float(), rtol=2e-2, atol=2e-2)


def grouped(query, key, value):
    """Heads side by side, two of queries for each of keys."""
    query, key, value = (x.unflatten(-1, (-1, 24)).transpose(1, 2) for x in (query, key, value))
    return F.scaled_dot_product_attention(query, key, value, enable_gqa=True).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("rows", [130, 70])
def test_rows_of_heads_that_share_keys_are_read_and_written_where_they_lie(rows, small_gpu):
    args = tensors((2, rows, 96), (2, 50, 48), (2, 50, 48))
    device = run(Function(grouped), args, small_gpu)
    assert (device.pipeline_launches, device.launches) == (1, 0)


def turned_keys(query, key, value):
    return (query @ key).softmax(-1) @ value


def turned_queries(query, key, value):
    return (query.mT @ key.mT).softmax(-1) @ value


@pytest.mark.parametrize("width", [24, 32, 80])
@pytest.mark.parametrize("function", [turned_keys, turned_queries])
def test_operands_whose_rows_lie_along_columns(function, width, small_gpu):
    """One operand of the scores is the other way round in memory, and its boxes have more of k than there is."""
    shapes = {
        turned_keys: [(2, 72, width), (2, width, 136), (2, 136, 40)],
        turned_queries: [(2, width, 72), (2, 136, width), (2, 136, 40)],
    }[function]
    run(Function(function), tuple(x / 2 for x in tensors(*shapes)), small_gpu)


def test_the_interpreter_agrees(small_gpu):
    args = tensors((2, 3, 150, 48), (2, 3, 70, 48), (2, 3, 70, 40))
    program = scheduled(Function(F.scaled_dot_product_attention), args, small_gpu)
    (kernel,) = attentions(program)
    (found,) = interpret(kernel, [x.float().numpy() for x in args], seed=3)
    wanted = F.scaled_dot_product_attention(*(x.double() for x in args))
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted.numpy(), atol=1e-2)


def cosine(query, key, value):
    """Weights of what is no score alone, whose largest is not taken off."""
    return (query @ key.mT).exp() @ value


def twice(query, key, value):
    weights = (query @ key.mT).softmax(-1)
    return weights @ value, weights


def shifted(query, key, value):
    """Weights that do not shrink as the largest number grows."""
    scores = query @ key.mT
    return (torch.exp(scores - scores.amax(-1, keepdim=True)) + 1) @ value


@pytest.mark.parametrize("function", [cosine, twice, shifted])
def test_others_are_left(function, small_gpu):
    assert not attentions(scheduled(Function(function), tensors(*[(2, 128, 64)] * 3), small_gpu))


def test_what_is_refused_is_said(small_gpu):
    shapes = [(2, 128, 8192), (2, 128, 8192), (2, 128, 64)]
    program = import_model(Function(lambda q, k, v: (q @ k.mT).softmax(-1) @ v), tensors(*shapes))
    with mlir.collect_remarks() as said:
        pipeline.run(program.module, [pipeline.make(name, "", small_gpu) for name in STEPS[:2]])
    assert not attentions(program)
    assert any("no tiles of it fit" in remark.message for remark in said), said


def test_short_rows_of_an_open_batch():
    """However large the batch: weights that went through DRAM would take longer than all that the kernel computes."""
    args = tensors(*[(2, 12, 128, 64)] * 3, (2, 1, 128, 128))
    attend = Function(lambda query, key, value, mask: F.scaled_dot_product_attention(query, key, value, mask > 0))
    shapes = (({0: torch.export.Dim("batch")},) * 4,)
    compiled = kitsune_mlir.compile(attend, args, target="sm_90a", dynamic_shapes=shapes)
    assert "attention0" in [launch["kernel"] for launch in compiled.plan["launches"]]
