"""Two products with a softmax between them, as one kernel: in the simulator beside float64, and when it is taken."""

import numpy as np
import pytest
import torch
from attention_steps import STEPS, Block, Sliced, attentions, scheduled, tensors
from drawn_attention import BOUNDS, exact
from functions import Function
from test_gpu_models import check, interface_of
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir import mlir
from kitsune_mlir.bench import random_attention
from kitsune_mlir.codegen import gpu
from kitsune_mlir.frontend import import_model
from kitsune_mlir.passes import pipeline
from kitsune_mlir.planning import target as targets
from kitsune_mlir.runtime.gpu import GpuRunner
from kitsune_mlir.schedule import run as interpret
from kitsune_mlir.tools.gpusim import Simulation
from kitsune_mlir.tools.gpusim.device import SimulatedDevice

LOWER = ["convert-kitsune-to-gpu", "convert-linalg-to-gpu"]


def run(model, args, target):
    """Runs a model, all of whose attention is one kernel, on the device, which is given, and compares with float64."""
    program = scheduled(model, args, target)
    assert len(attentions(program)) == 1
    pipeline.run(program.module, [pipeline.make(name, "", target) for name in LOWER])
    section = gpu.build(program.module, targets.load(target))
    assert all(not kernel.get("spill_stores") for kernel in section.manifest["kernels"]), section.manifest["kernels"]
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
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_zero_for_a_largest_number_of_none(dtype, always, small_gpu):
    """Rows whose first columns are masked, and whose others are far below the zero that is taken off these."""

    def attend(query, key, value):
        scores = (query @ key.mT).to(dtype) - 110  # all integers, which bf16 has
        scores = scores.masked_fill(torch.arange(320) < 200, float("-inf"))
        largest = scores.amax(-1, keepdim=True)
        weights = (scores - torch.where(largest == float("-inf"), 0.0, largest)).exp()
        return (weights / (weights.sum(-1, keepdim=True) + 1e-20)).to(value.dtype) @ value

    args = tuple(x.clamp(-1, 1).round() for x in tensors((1, 2, 64, 16), *[(1, 2, 320, 16)] * 2))
    compiled = kitsune_mlir.compile(Function(attend), args, target=small_gpu)
    assert "attention0" in [launch["kernel"] for launch in compiled.plan["launches"]]
    found = torch.as_tensor(Simulation(compiled, seed=1)(*args))
    torch.testing.assert_close(found.float(), attend(*args).float(), rtol=2e-2, atol=2e-2)


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


@pytest.mark.usefixtures("unassembled")
def test_a_slope_of_one_head(small_gpu):
    """It has neither rows nor columns, and is the same for all chunks of these."""

    def attend(query, key, value):
        slope = torch.exp2(-torch.arange(1, 2, dtype=torch.float32)).view(1, 1, 1, 1)
        far = torch.arange(key.shape[2]) - torch.arange(query.shape[2])[:, None]
        scores = query @ key.mT + (slope * far).to(query.dtype)
        return scores.softmax(-1) @ value

    args = tensors((1, 1, 70, 32), (1, 1, 200, 32), (1, 1, 200, 32))
    compiled = kitsune_mlir.compile(Function(attend), args, target=small_gpu)
    assert [launch["kernel"] for launch in compiled.plan["launches"]][-1] == "attention0"
    found, wanted = torch.as_tensor(Simulation(compiled, seed=1)(*args)), attend(*(x.double() for x in args))
    error, own = ((x.double() - wanted).norm() / wanted.norm() for x in (found, attend(*args)))
    assert error <= 2 * own + BOUNDS[args[0].dtype]


def test_operands_are_read_where_they_lie(small_gpu):
    """Nothing is sliced, transposed or copied around the kernel."""
    args = tensors((2, 130, 96))
    device = run(Block(96, 2).bfloat16(), args, small_gpu)
    assert (device.pipeline_launches, device.launches) == (2, 0)


@pytest.mark.parametrize("form", [(4, 4), (4, 2), (3, 3, True)], ids=str)
def test_slices_are_read_where_they_lie(form, small_gpu, request):
    if form != (4, 2):
        request.getfixturevalue("unassembled")
    device = run(Sliced(64, *form).bfloat16(), tensors((2, 70, 64)), small_gpu)
    assert (device.pipeline_launches, device.launches) == (2, 0)


@pytest.mark.parametrize("apart", [0, 1, 2])
def test_slices_of_slices_are_read_where_they_lie(apart, small_gpu):
    """Columns of queries, and of keys and values, which are sliced again: by whole parts, with a dimension of their
    own, and some of the heads alone."""

    def attend(whole):
        queries, both = whole.split([64, 128], -1)
        if apart == 0:
            keys, values = both.chunk(2, -1)
        elif apart == 1:
            keys, values = both.unflatten(-1, (2, 64)).unbind(-2)
        else:
            queries, keys, values = queries[..., 32:], both[..., 16:48], both[..., 96:]
        heads = [x.unflatten(-1, (-1, 16)).transpose(1, 2) for x in (queries, keys, values)]
        return F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)

    device = run(Function(attend), tensors((2, 70, 192)), small_gpu)
    assert (device.pipeline_launches, device.launches) == (1, 0)


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
def test_operands_whose_rows_lie_along_columns(function, width, small_gpu, request):
    """One operand of the scores is the other way round in memory, and its boxes have more of k than there is."""
    if width < 80:
        request.getfixturevalue("unassembled")
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


def test_few_columns_share_multiprocessors(small_gpu):
    """Tiles of one turn have nothing to run beside their own products: three CTAs of an SM are beside each other, each
    of which goes round its loop."""
    args = tensors(*3 * [(5, 12, 26, 24)])
    (kernel,) = attentions(scheduled(Function(F.scaled_dot_product_attention), args, small_gpu))
    assert kernel.ctas_per_sm == 3
    run(Function(F.scaled_dot_product_attention), args, small_gpu)


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


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("heads", [1, 4])
def test_one_head_of_keys_and_one_sequence(heads, masked, small_gpu):
    """Their products are in no batch, and yet no stages of a pipeline."""

    def function(query, key, value):
        return F.scaled_dot_product_attention(query, key, value, is_causal=masked, enable_gqa=heads > 1)

    args = tensors((1, heads, 80, 32), (1, 1, 80, 32), (1, 1, 80, 32))
    compiled = kitsune_mlir.compile(Function(function), args, target=small_gpu)
    assert [launch["kernel"] for launch in compiled.plan["launches"]] == ["attention0"]
    found, wanted = Simulation(compiled, seed=1)(*args).double(), function(*(x.double() for x in args))
    assert (found - wanted).norm() <= BOUNDS[args[0].dtype] * wanted.norm()


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
