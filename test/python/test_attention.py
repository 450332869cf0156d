"""Two products with a softmax between them, as one kernel: in the simulator beside float64, and when it is taken."""

import numpy as np
import pytest
import torch
from functions import Function
from test_gpu_models import check, interface_of
from torch import nn
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir import mlir
from kitsune_mlir.bench import random_attention
from kitsune_mlir.codegen import gpu
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
BOUNDS = {torch.bfloat16: 8e-3, torch.float16: 1e-3}


def scheduled(model, args, target, dynamic_shapes=None):
    program = import_model(model, args, dynamic_shapes=dynamic_shapes)
    pipeline.run(program.module, [pipeline.make(name, "", target) for name in STEPS])
    return program


def attentions(program):
    return [op.opview for op in walk(program.module, "kitsune.kernel") if op.opview.label.startswith("attention")]


def tensors(*shapes, dtype=torch.bfloat16):
    torch.manual_seed(sum(map(sum, shapes)))
    return tuple(torch.randn(shape).to(dtype) for shape in shapes)


def exact(model, args):
    return model.double()(*(x.double() if x.is_floating_point() else x for x in args))


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
@pytest.mark.parametrize("seed", [0, 1, 4, 9, 12, 16, 19, 26, 33])
def test_drawn(seed, small_gpu):
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
def test_masked_rows(mask, small_gpu):
    """Rows whose first columns, or all, are masked: by what is added to scores, or taken for them."""

    def attend(query, key, value):
        return F.scaled_dot_product_attention(query, key, value, mask)

    args = tensors(*[(1, 2, 200, 32)] * 3)
    compiled = kitsune_mlir.compile(Function(attend), args, target=small_gpu)
    assert [launch["kernel"] for launch in compiled.plan["launches"]] == ["attention0"]
    found = Simulation(compiled, seed=1)(*args)
    found = found if isinstance(found, torch.Tensor) else found[0]
    torch.testing.assert_close(found.float(), attend(*args).float(), rtol=1e-2, atol=1e-2)


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


@pytest.mark.parametrize(
    "shapes, dtype, reason",
    [
        ([(2, 128, 64)] * 3, torch.float32, "not of 16 bits"),
        ([(8, 1, 64), (8, 128, 64), (8, 128, 64)], torch.bfloat16, "a single one"),
        ([(2, 128, 64), (2, 128, 64), (2, 128, 512)], torch.bfloat16, "fit the registers"),
    ],
    ids=["f32", "one row", "wide values"],
)
def test_what_is_refused_is_said(shapes, dtype, reason, small_gpu):
    program = import_model(Function(lambda q, k, v: (q @ k.mT).softmax(-1) @ v), tensors(*shapes, dtype=dtype))
    with mlir.collect_remarks() as said:
        pipeline.run(program.module, [pipeline.make(name, "", small_gpu) for name in STEPS[:2]])
    assert not attentions(program)
    assert any(reason in remark.message for remark in said), said
