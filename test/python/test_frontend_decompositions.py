"""Decompositions compute what torch does, out of operators that are good for pipelines."""

import importlib
import math

import pytest
import torch
from functions import Function
from torch import nn
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.frontend import attention, composite_operators, decompositions
from kitsune_mlir.frontend.decompositions import table
from kitsune_mlir.tools.gpusim import Simulation

aten = torch.ops.aten


def decomposed(function, *args):
    """(torch's result, the decomposed graph's result, the names of its operators)"""

    class Model(nn.Module):
        def forward(self, *values):
            return function(*values)

    with torch.no_grad(), composite_operators.kept():
        exported = torch.export.export(Model(), args, strict=False).run_decompositions(table())
        operators = [str(node.target) for node in exported.graph.nodes if node.op == "call_function"]
        return function(*args), exported.module()(*args), operators


def check(function, *args, tolerance=1e-6):
    wanted, found, operators = decomposed(function, *args)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
    return operators


X = torch.randn(6, 16, generator=torch.Generator().manual_seed(0))
W, B = torch.linspace(0.5, 1.5, 16), torch.linspace(-1, 1, 16)
IMAGE = torch.randn(2, 3, 4, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_elu_keeps_the_digits_of_small_numbers(dtype):
    """e^x - 1, each step rounded, has none left of numbers below the type's epsilon."""

    class Model(nn.Module):
        def forward(self, x):
            return F.elu(x), F.selu(x), F.elu(x, alpha=0.5)

    x = (X * 1e-3).to(dtype)
    with torch.no_grad():
        found = kitsune_mlir.compile(Model(), (x,), target="cpu")(x)
        for a, b in zip(found, Model()(x.double()), strict=True):
            assert ((a.double() - b).norm() / b.norm()).item() < torch.finfo(dtype).eps


def test_mish_from_end_to_end():
    """Small numbers, large ones of either sign, and none: as torch, and to its digits."""
    x = torch.cat([torch.linspace(-80, 80, 4001), X.flatten() * 1e-3, torch.tensor([-1e4, 1e30, math.inf, math.nan])])
    found = kitsune_mlir.compile(nn.Mish(), (x,), target="cpu")(x)
    torch.testing.assert_close(found.double(), F.mish(x.double()), rtol=4e-6, atol=1e-35, equal_nan=True)


CASES = {
    "layer_norm": (lambda x: F.layer_norm(x, (16,), W, B), X),
    "layer_norm_plain": (lambda x: F.layer_norm(x, (16,)), X),
    "layer_norm_two_dims": (lambda x: F.layer_norm(x, (4, 4)), IMAGE),
    "rms_norm": (lambda x: F.rms_norm(x, (16,), W, 1e-5), X),
    "rms_norm_default_eps": (lambda x: F.rms_norm(x, (16,)), X),
    "batch_norm": (lambda x: F.batch_norm(x, B[:3], W[:3], W[3:6], B[3:6]), IMAGE),
    "batch_norm_plain": (lambda x: F.batch_norm(x, B[:3], W[:3]), IMAGE),
    "softmax": (lambda x: F.softmax(x, 1), X),
    "softmax_first_dim": (lambda x: F.softmax(x, 0), X),
    "log_softmax": (lambda x: F.log_softmax(x, -1), X),
    "gelu": (F.gelu, X),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), X),
    "square": (lambda x: x**2, X),
    "cube": (lambda x: x**3, X),
    "root": (lambda x: x.abs() ** 0.5, X),
    "inverse_root": (lambda x: (x.abs() + 1) ** -0.5, X),
    "inverse": (lambda x: (x.abs() + 1) ** -1, X),
    "seventh": (lambda x: x**7, X),
    "integer_square": (lambda x: x**2, torch.arange(5)),
    "mean": (lambda x: x.mean(1), X),
    "mean_of_all": (lambda x: x.mean(), X),
    "mean_keepdim": (lambda x: x.mean((0, 1), keepdim=True), X),
    "index_add": (lambda x: torch.zeros(4, 16).index_add(0, torch.tensor([0, 3, 3, 1, 0, 0]), x), X),
    "index_add_scaled": (lambda x: torch.ones(6, 20).index_add(1, torch.arange(16), x, alpha=2), X),
    "index_add_integers": (lambda x: torch.zeros(3).long().index_add(0, torch.tensor([0, 2, 2]), x), torch.arange(3)),
    "embedding_bag_sum": (lambda i: F.embedding_bag(i, X, mode="sum"), torch.tensor([[0, 5], [2, 2]])),
    "embedding_bag_mean": (lambda i: F.embedding_bag(i, X, mode="mean"), torch.tensor([[0, 5], [2, 2]])),
    "embedding_bag_max": (lambda i: F.embedding_bag(i, X, mode="max"), torch.tensor([[0, 5], [2, 2]])),
}


WHOLE = {
    "a place": (lambda x, w, b: F.conv2d(x, w, b), (3, 24, 1, 1), (10, 24, 1, 1)),
    "an image": (lambda x, w, b: F.conv2d(x, w, b, stride=2), (3, 6, 5, 4), (10, 6, 5, 4)),
    "a line": (lambda x, w, b: F.conv1d(x, w, b), (3, 6, 5), (10, 6, 5)),
    "transposed": (lambda x, w, b: F.conv_transpose2d(x, w, b, stride=3), (3, 24, 1, 1), (24, 10, 4, 3)),
    "wide patches": (lambda x, w, b: F.conv2d(x, w, b, stride=(2, 23)), (2, 3, 6, 46), (10, 3, 2, 23)),
}


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("name", WHOLE)
def test_convolutions_of_whole_images_are_linear_layers(name, biased):
    function, shape, filters = WHOLE[name]
    bias = torch.linspace(-1, 1, 10) if biased else None
    normal = torch.Generator().manual_seed(len(name))
    x, weight = torch.randn(shape, generator=normal), torch.randn(filters, generator=normal)
    assert "aten.convolution.default" not in check(lambda x, w: function(x, w, bias), x, weight, tolerance=1e-5)


OTHERS = {
    "zeros around": (lambda x, w: F.conv2d(x, w, padding=1), (10, 6, 5, 5)),
    "a smaller filter": (F.conv2d, (10, 6, 5, 4)),
    "groups": (lambda x, w: F.conv2d(x, w, groups=2), (10, 3, 5, 5)),
    "narrow patches": (lambda x, w: F.conv2d(x, w, stride=2), (10, 6, 2, 2)),
    "transposed": (F.conv_transpose2d, (6, 10, 2, 2)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_convolutions_stay(name):
    function, filters = OTHERS[name]
    x, weight = torch.randn(2, 6, 5, 5), torch.randn(filters)
    assert "aten.convolution.default" in check(function, x, weight, tolerance=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_value(name):
    check(*CASES[name])


@pytest.mark.parametrize(
    "function",
    [CASES[name][0] for name in ("layer_norm", "rms_norm", "softmax", "gelu_tanh", "mean")] + [lambda x: x.sum(1)],
)
def test_16_bit_types_are_computed_in_f32(function):
    wide = torch.randn(6, 16) * 4
    for dtype in (torch.bfloat16, torch.float16):
        wanted, found, _ = decomposed(function, wide.to(dtype))
        assert found.dtype == wanted.dtype
        exact = function(wide.to(dtype).double().float())
        torch.testing.assert_close(found.float(), exact, rtol=2**-7, atol=2**-7)


QUERY, KEY, VALUE = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 7, 8), torch.randn(2, 4, 7, 6)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scale": 0.3},
        {"is_causal": True},
        {"attn_mask": torch.randn(5, 7)},
        {"attn_mask": torch.randn(2, 1, 5, 7)},
        {"attn_mask": torch.arange(35).view(5, 7) % 3 > 0},
        {"attn_mask": (torch.arange(5) != 2)[:, None].expand(5, 7)},  # a row that sees nothing
    ],
    ids=["plain", "scaled", "causal", "added", "added to each", "masked", "masked row"],
)
def test_attention(options):
    operators = check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options), QUERY, KEY, VALUE)
    assert operators.count("aten.bmm.default") == 2 and "aten.max.dim" not in operators


def test_views_of_what_lies_otherwise_than_torchs_own(monkeypatch, gpu_of):
    """A rule's result that has no view where torch's own has one, as attention of torch 2.11."""
    rule = attention.attention
    turned = lambda *args, **options: rule(*args, **options).transpose(-3, -2).contiguous().transpose(-3, -2)  # noqa: E731
    monkeypatch.setitem(decompositions._OWN, aten.scaled_dot_product_attention.default, turned)
    monkeypatch.setattr(decompositions, "_own_table", decompositions._own_table.__wrapped__)

    class Model(nn.Module):
        def forward(self, q, k, v):
            return F.scaled_dot_product_attention(q, k, v).view(q.shape[0] * q.shape[1], -1)

    args = tuple(torch.randn(2, 4, 16, 8) for _ in range(3))
    found = Simulation(kitsune_mlir.compile(Model(), args, target=gpu_of(4)), seed=1)(*args)
    torch.testing.assert_close(torch.as_tensor(found), Model()(*args), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.local_response_norm(x, 3),
        lambda x: F.avg_pool2d(x[None], 3, 2, 1),
        lambda x: F.avg_pool2d(x, 3, 2, 1),
        lambda x: x.cumsum(-1),
        lambda x: x + torch.arange(2047, dtype=x.dtype)[-16:],
        lambda x: torch.roll(x, (3, 1), (-1, 0)),
    ],
    ids=["local response norm", "average", "average of one image", "running sum", "numbers", "rolled"],
)
def test_16_bit_sums_do_not_overflow(function, gpu_of):
    class Model(nn.Module):
        def forward(self, x):
            return function(x)

    x = (150 + 10 * torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(1))).half()  # three squares overflow
    found = torch.as_tensor(Simulation(kitsune_mlir.compile(Model(), (x,), target=gpu_of(4)), seed=1)(x))
    torch.testing.assert_close(found.double(), function(x.double()), rtol=2e-3, atol=0.3)


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_rolls_along_an_open_dimension(target, gpu_of):
    """By more than there is of it, too."""

    class Model(nn.Module):
        def forward(self, x):
            return x.roll(7, 0) + x.roll((-1, 2), (0, 1)) + x.roll(-4)

    shapes = ({0: torch.export.Dim("rows", min=2, max=64)},)
    target = target if target == "cpu" else gpu_of(4)
    compiled = kitsune_mlir.compile(Model(), (torch.rand(8, 3),), target=target, dynamic_shapes=shapes)
    call = compiled if target == "cpu" else Simulation(compiled, seed=1)
    for count in (8, 2, 5, 20):
        x = torch.rand(count, 3)
        torch.testing.assert_close(torch.as_tensor(call(x)), Model()(x))


def test_grouped_queries_multiply_each_key_once():
    key, value = KEY[:, :2], VALUE[:, :2]
    for causal in (False, True):
        operators = check(
            lambda q, k, v, c=causal: F.scaled_dot_product_attention(q, k, v, is_causal=c, enable_gqa=True),
            QUERY,
            key,
            value,
        )
        assert not any("expand" in name or "index" in name or "cat" in name for name in operators)


def test_flash_attention_for_cpu_gives_the_logarithm_of_the_sums():
    query, key = QUERY, torch.randn(2, 4, 5, 8)
    rule = table()[aten._scaled_dot_product_flash_attention_for_cpu.default]
    out, logsumexp = rule(query, key, key)
    scores = query @ key.transpose(-1, -2) / math.sqrt(8)
    torch.testing.assert_close(logsumexp, scores.logsumexp(-1))
    torch.testing.assert_close(out, F.scaled_dot_product_attention(query, key, key))


def test_training_batch_norm_is_torch_mlirs():
    rule = table()[aten.batch_norm.default]
    assert rule(IMAGE, None, None, W[:3], W[:3], True, 0.1, 1e-5) is NotImplemented


def test_bf16_products_stay_whole():
    linear = nn.Linear(16, 8).bfloat16()
    _, _, operators = decomposed(linear, X.bfloat16())
    assert operators[-1] == "aten.addmm.default" and not any("_to_copy" in name for name in operators)


def test_what_is_kept_of_composite_operators_is_what_torch_makes():
    """The graph is torch's own, the first time and with what the first has left, also with another rule; and torch has
    its kernels back."""

    class Model(nn.Module):
        def forward(self, x):
            return F.gelu(F.layer_norm(F.linear(x, x), (6,))).square().softmax(-1)

    def code(rules):
        return exported.run_decompositions(rules).graph_module.code

    with torch.no_grad():
        exported = torch.export.export(Model(), (X,), strict=False)
    composite = aten.linear.default, aten.layer_norm.default, aten.square.default, aten.softmax.int, aten.matmul.default
    kernels = [dict(operator.py_kernels) for operator in composite]
    tables = table(), {aten.square.default: lambda x: x * x}
    wanted = [code(rules) for rules in tables]
    assert wanted[0] != wanted[1]
    for _ in range(2):
        with composite_operators.kept():
            assert [code(rules) for rules in tables] == wanted
        assert [dict(operator.py_kernels) for operator in composite] == kernels


def test_tables_are_equal_to_those_before():
    """What is kept of one graph serves the next: also where torch's own compiler brings operators."""
    importlib.import_module("torch._inductor.inductor_prims")
    assert table() == table() and torch.ops.prims.fma.default in table()


def test_sums_of_exponentials_of_few_tensors_are_elementwise():
    x, y, z = torch.randn(3, 5, 8)
    x[0, 0] = y[0, 0] = z[0, 0] = -math.inf
    x[1, 1], y[2, 2] = math.inf, math.nan
    for keepdim in (False, True):
        operators = check(lambda *own, keepdim=keepdim: torch.logsumexp(torch.stack(own), 0, keepdim), x, y, z)
        assert not any("amax" in name or "sum" in name for name in operators)
    assert any("amax" in name or "sumexp" in name for name in check(lambda x: x.logsumexp(1), x))


def test_tensors_without_dimensions_are_reduced():
    def function(x):
        both = [*x.max(0), *x.min(-1), x.argmax(), x.argmin(0), x.amax(0), x.amin(), x.prod(0), x.logsumexp(0)]
        return torch.stack([*both, x.softmax(0), x.log_softmax(-1), x.flip(0)])

    compiled = kitsune_mlir.compile(Function(function), (torch.tensor(1.5),))
    torch.testing.assert_close(compiled(torch.tensor(-0.5)), function(torch.tensor(-0.5)))


@pytest.mark.usefixtures("unassembled")
def test_columns_of_some_rows_are_no_roll(gpu_of):
    """Slices that leave rows of an open number out are not all of the tensor."""

    class Model(nn.Module):
        def forward(self, x):
            some = torch.cat([x[:-1, 2:], x[:-1, :2]], 1)
            return some * 2, torch.cat([x[:, 2:], x[:, :2]], 1) - x

    shapes = ({0: torch.export.Dim("rows", min=3, max=64)},)
    compiled = kitsune_mlir.compile(Model(), (torch.rand(8, 5),), target=gpu_of(4), dynamic_shapes=shapes)
    x = torch.rand(6, 5)
    for found, wanted in zip(Simulation(compiled, seed=1)(x), Model()(x), strict=True):
        torch.testing.assert_close(torch.as_tensor(found), wanted)
