"""Attention of sizes that are open until the call: in the simulator beside float64, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from attention_steps import STEPS, Block, Sliced, attentions, scheduled, tensors
from drawn_attention import compare, exact
from functions import Function
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir import mlir
from kitsune_mlir.bench import cases, random_attention
from kitsune_mlir.errors import UserError
from kitsune_mlir.frontend import import_model
from kitsune_mlir.passes import pipeline
from kitsune_mlir.schedule import run as interpret
from kitsune_mlir.tools.gpusim import Simulation


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
def test_tokens_that_are_open(seed, what, small_gpu, request):
    of = random_attention.draw(seed, small=True, open=what)
    of = replace(of, batch=min(of.batch, 2), heads=min(of.heads, 4), key_heads=min(of.key_heads, 4))
    if of.width <= 64:  # which leave registers
        request.getfixturevalue("unassembled")
    module, args = random_attention.Attention(of), random_attention.arguments(of, seed)
    shapes = random_attention.open_sizes(of)
    compiled = kitsune_mlir.compile(module, args, target=small_gpu, dynamic_shapes=shapes)
    assert sum(launch["kernel"] == "attention0" for launch in compiled.plan["launches"]) == 1
    assert not any(launch["kernel"].startswith(("product", "rows")) for launch in compiled.plan["launches"])
    assert all(not kernel.get("spill_stores") for kernel in compiled.plan["kernels"])
    simulation = Simulation(compiled, seed=seed)
    for size in (130, 1):
        sizes = {name: size for name in ("rows", "columns") if what in (name, "tokens")}
        compare(module, replace(of, **sizes), simulation, seed)


@pytest.mark.parametrize("what", ["batch", "rows", "columns", "tokens"])
def test_cases_of_open_sizes_are_exported(what):
    """Also of seeds that draw such sizes as no open one has."""
    for seed in (1, 3):
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


# Heads beside each other with a mask, queries, keys and values in one tensor, a window, biases, pieces of f32.
@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("seed", [3, 4, 12, 14, 15, 20, 36])
def test_all_sizes_are_open(seed, small_gpu):
    """The batch, the rows, and the columns, each of its own: one kernel, for all of them."""
    of = random_attention.draw(seed, small=True, open="all")
    of = replace(of, batch=min(of.batch, 2), heads=min(of.heads, 2), key_heads=min(of.key_heads, 2))
    module, args = random_attention.Attention(of), random_attention.arguments(of, seed)
    compiled = kitsune_mlir.compile(module, args, target=small_gpu, dynamic_shapes=random_attention.open_sizes(of))
    assert sum(launch["kernel"] == "attention0" for launch in compiled.plan["launches"]) == 1
    assert not any(launch["kernel"].startswith(("product", "rows")) for launch in compiled.plan["launches"])
    simulation = Simulation(compiled, seed=seed)
    for batch, rows, columns in ((3, 70, 90), (1, 1, 70), (2, 65, 1)):
        sizes = {"batch": batch, "rows": rows, "columns": rows if of.layout == "joined" else columns}
        compare(module, replace(of, **sizes), simulation, seed)


class Cached(nn.Module):
    """Attention of new tokens to those of a cache and to themselves, in one layer after another."""

    def __init__(self, width=64, heads=2, layers=2):
        super().__init__()
        self.heads, self.layers = heads, nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))

    def forward(self, x, keys, values):
        for layer in self.layers:
            query, key, value = layer(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            key, value = torch.cat([keys, key], 2), torch.cat([values, value], 2)
            x = x + F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        return x


@pytest.mark.usefixtures("unassembled")
def test_a_cache_that_grows(small_gpu):
    """Columns are as many as two open sizes together, which no argument has."""
    model, args = Cached().bfloat16(), tensors((2, 70, 64), *[(2, 2, 90, 32)] * 2)
    batch, tokens, past = (torch.export.Dim(name, min=1) for name in ("batch", "tokens", "past"))
    cache = {0: batch, 2: past}
    compiled = kitsune_mlir.compile(model, args, target=small_gpu, dynamic_shapes=({0: batch, 1: tokens}, cache, cache))
    names = [launch["kernel"] for launch in compiled.plan["launches"]]
    assert [name for name in names if name.startswith("attention")] == ["attention0", "attention0"]
    simulation = Simulation(compiled, seed=1)
    for sizes in ((3, 5, 61), (1, 70, 1)):
        number, length, before = sizes
        args = tensors((number, length, 64), *[(number, 2, before, 32)] * 2)
        wanted = exact(model, args)
        assert (torch.as_tensor(simulation(*args)).double() - wanted).norm() <= 2e-2 * wanted.norm()


@pytest.mark.usefixtures("unassembled")
def test_nothing_of_several_open_sizes(small_gpu):
    """Nothing for no matrices or no queries; without keys there is nothing to weigh."""
    args = tensors(*[(2, 3, 70, 32)] * 3)
    batch, rows, columns = map(torch.export.Dim, ("batch", "rows", "columns"))
    shapes = (({0: batch, 2: rows}, {0: batch, 2: columns}, {0: batch, 2: columns}),)
    compiled = kitsune_mlir.compile(
        Function(F.scaled_dot_product_attention), args, target=small_gpu, dynamic_shapes=shapes
    )
    simulation = Simulation(compiled)
    assert simulation(*(x[:0] for x in args)).shape == (0, 3, 70, 32)
    assert simulation(args[0][:, :, :0], *args[1:]).shape == (2, 3, 0, 32)
    with pytest.raises(UserError, match="kernel 'attention0' wants 1 or more"):
        simulation(args[0], *(x[:, :, :0] for x in args[1:]))


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


@pytest.mark.parametrize("sizes", [{0: 3}, {1: 90}, {0: 3, 1: 90}], ids=["batch", "tokens", "both"])
def test_the_interpreter_agrees_on_open_sizes(sizes, small_gpu):
    args = tensors(*[(2, 150, 32)] * 3)
    open_ = {dim: torch.export.Dim(f"size{dim}") for dim in sizes}
    function = Function(lambda q, k, v: (q @ k.mT).softmax(-1) @ v)
    program = scheduled(function, args, small_gpu, ((open_,) * 3,))
    (kernel,) = attentions(program)
    shape = [sizes.get(dim, size) for dim, size in enumerate((2, 150, 32))]
    args = tensors(*[shape] * 3)
    (found,) = interpret(kernel, [x.float().numpy() for x in args], seed=3, shapes=[shape])
    wanted = function(*(x.double() for x in args))
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted.numpy(), atol=2e-2)


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


@pytest.mark.usefixtures("unassembled")
def test_short_rows_of_an_open_batch():
    """However large the batch: weights that went through DRAM would take longer than all that the kernel computes."""
    args = tensors(*[(2, 12, 128, 64)] * 3, (2, 1, 128, 128))
    attend = Function(lambda query, key, value, mask: F.scaled_dot_product_attention(query, key, value, mask > 0))
    shapes = (({0: torch.export.Dim("batch")},) * 4,)
    compiled = kitsune_mlir.compile(attend, args, target="sm_90a", dynamic_shapes=shapes)
    assert "attention0" in [launch["kernel"] for launch in compiled.plan["launches"]]


@pytest.mark.usefixtures("unassembled")
def test_weights_that_a_products_tiles_cannot_take():
    """A mask by batch, which is open: no kernel of the first product computes the weights, however fast it would be."""
    args = tensors(*[(64, 12, 96, 32)] * 3, (64, 1, 1, 96))
    attend = Function(lambda query, key, value, mask: F.scaled_dot_product_attention(query, key, value, mask > 0))
    shapes = (({0: torch.export.Dim("batch")},) * 4,)
    compiled = kitsune_mlir.compile(attend, args, target="sm_90a", dynamic_shapes=shapes)
    assert "attention0" in [launch["kernel"] for launch in compiled.plan["launches"]]


@pytest.mark.usefixtures("unassembled", "always")
@pytest.mark.parametrize("is_layer", [False, True], ids=["given", "layer"])
def test_windows_of_images_of_an_open_batch(is_layer, small_gpu):
    """Queries, keys and values lie side by side, four windows an image: as many dimensions as boxes have."""
    weight = torch.randn(192, 192).bfloat16() * 0.1

    def windows(x):
        whole = x.view(-1, 2, 8, 2, 8, 192).transpose(2, 3).reshape(-1, 64, 192)
        whole = F.linear(whole, weight.to(x.dtype)) if is_layer else whole
        q, k, v = whole.view(-1, 64, 3, 2, 32).permute(2, 0, 3, 1, 4).unbind(0)
        weights = (q @ k.transpose(-1, -2) * 0.2).softmax(-1)
        return (weights @ v).transpose(1, 2).reshape(-1, 64)

    shapes = (({0: torch.export.Dim("batch", min=2, max=99)},),)
    x = torch.randn(2, 16, 16, 192).bfloat16()
    compiled = kitsune_mlir.compile(Function(windows), (x,), target=small_gpu, dynamic_shapes=shapes)
    kernels = [launch["kernel"] for launch in compiled.plan["launches"]]
    assert "attention0" in kernels and len(kernels) == 3 + is_layer, kernels  # others turn windows and heads
    x = torch.randn(3, 16, 16, 192).bfloat16()
    torch.testing.assert_close(Simulation(compiled)(x).double(), windows(x.double()), rtol=5e-2, atol=5e-2)


class Windowed(nn.Module):
    """Biases by distance, each head's own, a window, and how many tokens a sentence has, as they are written."""

    def __init__(self, heads, window):
        super().__init__()
        self.heads, self.window = heads, window

    def forward(self, q, k, v, lengths):
        places = torch.arange(q.shape[2], device=q.device)
        distance = places[:, None] - places[None]
        slopes = 2.0 ** (-8.0 * torch.arange(1, self.heads + 1, device=q.device) / self.heads)
        bias = -slopes[:, None, None] * distance.abs()
        seen = (distance >= 0) & (distance < self.window) & (places[None, None] < lengths[:, None, None])
        bias = torch.where(seen[:, None], bias[None], -1e4).to(q.dtype)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
def test_masks_of_places_and_of_lengths(is_open, small_gpu):
    """They are computed in the kernel, and no tensor of rows and columns is read for them."""

    def drawn(batch, tokens):
        torch.manual_seed(tokens)
        values = [torch.randn(batch, 3, tokens, 40).bfloat16() for _ in range(3)]
        return *values, torch.randint(1, tokens + 1, (batch,))

    b, t = (torch.export.Dim(name, min=1, max=10_000) for name in "bt")
    shapes = (({0: b, 2: t},) * 3 + ({0: b},)) if is_open else None
    module = Windowed(3, 37)
    compiled = kitsune_mlir.compile(module, drawn(2, 150), target=small_gpu, dynamic_shapes=shapes)
    module_ir = compiled.module("small:schedule-attention")
    (kernel,) = [op for op in mlir.walk(module_ir, "kitsune.kernel") if "attention0" in str(op.attributes["sym_name"])]
    assert all(len(op.operands) == 2 for op in mlir.walk(kernel, "kitsune.read"))  # of a vector, an element
    for batch, tokens in ((2, 150), (1, 1), (3, 70)) if is_open else ((2, 150),):
        args = drawn(batch, tokens)
        found = torch.as_tensor(Simulation(compiled, seed=tokens)(*args))
        wanted = module(*(x.double() if x.is_floating_point() else x for x in args))
        torch.testing.assert_close(found.double(), wanted, rtol=2e-2, atol=2e-2)


class Sloped(nn.Module):
    """Biases by distance, which 16 bits do not hold from 256 on."""

    def forward(self, q, k, v):
        rows, columns = (torch.arange(x.shape[2], device=x.device) for x in (q, k))
        slopes = torch.exp2(-torch.arange(1, 3, device=q.device))
        bias = (slopes[:, None, None] * (columns - rows[:, None])).to(torch.bfloat16)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))


@pytest.mark.usefixtures("unassembled")
def test_biases_of_places_are_rounded(small_gpu):
    """A kernel that computes them rounds them as an operator does that writes them."""
    torch.manual_seed(0)
    args = tuple(torch.randn(1, 2, tokens, 24).bfloat16() for tokens in (20, 400, 400))
    t, s = (torch.export.Dim(name, min=2, max=10_000) for name in "ts")
    compiled = kitsune_mlir.compile(Sloped(), args, target=small_gpu, dynamic_shapes=({2: t}, {2: s}, {2: s}))
    found, wanted = torch.as_tensor(Simulation(compiled, seed=1)(*args)), Sloped()(*(x.double() for x in args))
    assert (found.double() - wanted).norm() <= 5e-3 * wanted.norm()


@pytest.mark.usefixtures("unassembled")
def test_a_mask_for_each_head_of_each_of_an_open_batch(small_gpu):
    """torch's encoder joins a causal mask and one of what is padded to one with batch and heads as one dimension."""

    class Encoded(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(64, 2, 64, batch_first=True)

        def forward(self, x, padded):
            causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            return self.layer(x, src_mask=causal, src_key_padding_mask=padded)

    def example(batch, tokens):
        return torch.randn(batch, tokens, 64), torch.arange(tokens)[None] > torch.randint(1, tokens, (batch, 1))

    torch.manual_seed(0)
    model, size = Encoded().eval(), {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens", min=2, max=500)}
    compiled = kitsune_mlir.compile(model, example(3, 20), target=small_gpu, dynamic_shapes=(size, size))
    assert "attention0" in [launch["kernel"] for launch in compiled.plan["launches"]]
    x, padded = example(2, 37)
    found = torch.as_tensor(Simulation(compiled, seed=1)(x, padded)).double()
    torch.testing.assert_close(found, model.double()(x.double(), padded).detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "f32"])
def test_one_row_of_each_of_many_heads(dtype, small_gpu):
    """A tile of 64 rows has one, but keys and values are read once, where they lie."""

    def pooled(q, both, mask):
        k, v = both.unflatten(-1, (2, 6, 40)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q.unflatten(-1, (6, 1, 40)), k, v, attn_mask=mask[:, None, None])

    def drawn(batch, columns):
        q, both = torch.randn(batch, 240).to(dtype), torch.randn(batch, columns, 480).to(dtype)
        return q, both, torch.arange(columns) < torch.randint(1, columns, (batch, 1))

    batch, columns = Dim("batch", min=2, max=999), Dim("columns", min=2, max=9999)
    shapes = ({0: batch}, {0: batch, 1: columns}, {0: batch, 1: columns})
    compiled = kitsune_mlir.compile(Function(pooled), drawn(9, 70), target=small_gpu, dynamic_shapes=(shapes,))
    alone = [launch["kernel"] for launch in compiled.plan["launches"]] == ["attention0"]
    assert alone == (dtype == torch.bfloat16)
    for args in (drawn(2, 129), drawn(11, 5)):
        found = torch.as_tensor(Simulation(compiled, seed=1)(*args)).double()
        wanted = pooled(*(x.double() if x.is_floating_point() else x for x in args))
        torch.testing.assert_close(found, wanted, rtol=0.02, atol=0.02 if dtype == torch.bfloat16 else 1e-5)
