"""Models that another generator than our own drew, and that were refused, or crashed, or gave kernels that do not run:
as small as they still did. Each is right in the simulator."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")


class Model(nn.Module):
    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args):
        return self.function(self, *args)


def joined_again(m, x):
    """One column sliced off a layer and put beside the others again, as NeRF's density is."""
    v = m.a(x)
    return torch.cat([v[:, :3].sigmoid(), v[:, 3:].relu()], -1)


def beside_its_own_product(m, x, y):
    return m.b(torch.cat([x, y, m.a(torch.cat([x, y], -1))], -1))


def with_a_filled_part(m, x, y):
    return torch.cat([y, m.a(x), torch.ones_like(x), x], -1)


def returned_and_read(m, x):
    v = m.a(x.transpose(1, 2)).transpose(1, 2)
    return v, v * torch.linspace(0, 1, 14)


def tied(m, x):
    """Equal layers that share one weight and one bias."""
    h = m.a(x)
    for _ in range(6):
        h = h + torch.tanh(m.b(h)) / 6
    return h


def handed_on_in_another(m, x):
    """A tile that products alone read, and that is a part of one that is handed on."""
    v = torch.cat([x, F.leaky_relu(m.a(x))], -1)
    v = torch.cat([v, F.leaky_relu(m.b(v))], -1)
    v = F.layer_norm(m.c(v) * m.d(v), [10])
    v = torch.cat([v, F.silu(m.e(v))], -1)
    return torch.cat([v, F.silu(m.f(v))], -1)


def numbers_of_rows(m, x):
    """A tile of one column, of which its sum over the row goes to the next stage beside it."""
    v = F.rms_norm(torch.tanh(m.a(x)) * torch.sigmoid(m.b(x)), [1], m.n)
    h = m.c(v)
    v = v + m.d(h - torch.tanh(h))
    v = v * (v.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * (m.n + 1)
    found = v.square().sum(-1, keepdim=True) - (v * 2) @ m.w.t() + m.w.square().sum(-1)
    return F.layer_norm(found, [256])


def far_column(m, x):
    """Layers side by side, of which all threads read the last column."""
    v = x
    for layer in (m.a, m.b, m.c):
        v = torch.cat([v, F.relu(layer(v))], -1)
    return v[:, :40], v[:, -1:]


def column_beside(m, x):
    """A slice of columns side by side, each a layer's, that is one of them."""
    v = torch.tanh(m.b(F.relu(m.a(x))))
    u = m.c(v)
    return torch.cat([m.d(u), u, u], -1)[:, :1]


def normal(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


BF16 = torch.bfloat16
CASES = {  # a model and its arguments
    "a column joined again": lambda: (Model(joined_again, a=nn.Linear(16, 4)), normal(169, 16)),
    "a column joined again, bf16": lambda: (
        Model(joined_again, a=nn.Linear(16, 4)).to(BF16),
        normal(169, 16, dtype=BF16),
    ),
    "tiles beside their own product": lambda: (
        Model(beside_its_own_product, a=nn.Linear(32, 3), b=nn.Linear(35, 22)),
        *(normal(4, 5, 8), normal(4, 5, 24)),
    ),
    "an einsum behind a layer": lambda: (
        Model(
            lambda m, x: torch.einsum("...i,oi->...o", m.a(x), m.w) + m.b,
            a=nn.Linear(272, 544, bias=False),
            w=nn.Parameter(0.1 * normal(272, 544)),
            b=nn.Parameter(normal(272)),
        ).to(BF16),
        normal(43, 3, 272, dtype=BF16),
    ),
    "ones beside a layer": lambda: (
        Model(with_a_filled_part, a=nn.Linear(1, 4, bias=False)),
        *(normal(127, 1, 1), normal(127, 1, 4)),
    ),
    "a view that is returned and read": lambda: (Model(returned_and_read, a=nn.Linear(1, 1)), normal(3, 1, 14)),
    "int32 indices": lambda: (
        Model(lambda m, x, i: x[i]),
        *(normal(17, 17), torch.arange(12, dtype=torch.int32) * 5 % 17),
    ),
    "columns in turn": lambda: (
        Model(lambda m, x: torch.roll(m.a(x), 3, dims=-1), a=nn.Linear(25, 1, bias=False)),
        normal(32, 25),
    ),
    "an einsum of one token, beside what it reads": lambda: (
        Model(
            lambda m, x, y: x * (torch.einsum("...i,oi->...o", y, m.w) + m.b) + y,
            w=nn.Parameter(normal(1, 8)),
            b=nn.Parameter(normal(1)),
        ),
        *(normal(9, 1, 8), normal(9, 1, 8)),
    ),
    "a sort of what is repeated": lambda: (
        Model(lambda m, x: torch.sort(x.repeat(1, 2), dim=-1).values),
        normal(5, 14),
    ),
    "heads of which an einsum is stored first": lambda: (  # and was not written at all
        Model(
            lambda m, x: torch.stack([m.a(x), m.b(x), torch.einsum("...i,oi->...o", x, m.w) + m.d, m.c(x)], 1),
            **{"a": nn.Linear(128, 15), "b": nn.Linear(128, 15, bias=False), "c": nn.Linear(128, 15)},
            w=nn.Parameter(0.1 * normal(15, 128)),
            d=nn.Parameter(normal(15)),
        ),
        normal(1, 1, 128),
    ),
    "tied layers": lambda: (Model(tied, a=nn.Linear(1, 32), b=nn.Linear(32, 32)), normal(128, 1)),
    "tied layers, bf16": lambda: (
        Model(tied, a=nn.Linear(40, 32), b=nn.Linear(32, 32)).to(BF16),
        normal(200, 40, dtype=BF16),
    ),
    "a part of what is handed on": lambda: (
        Model(
            handed_on_in_another,
            **{"a": nn.Linear(8, 1, bias=False), "b": nn.Linear(9, 1), "c": nn.Linear(10, 10, bias=False)},
            **{"d": nn.Linear(10, 10, bias=False), "e": nn.Linear(10, 1), "f": nn.Linear(11, 1)},
        ).to(BF16),
        normal(2, 63, 8, dtype=BF16),
    ),
    "a column of layers side by side": lambda: (
        Model(far_column, a=nn.Linear(48, 16), b=nn.Linear(64, 16), c=nn.Linear(80, 16)),
        normal(100, 48),
    ),
    "numbers of rows from stage to stage": lambda: (
        Model(
            numbers_of_rows,
            **{"a": nn.Linear(1, 1, bias=False), "b": nn.Linear(1, 1), "c": nn.Linear(1, 1), "d": nn.Linear(1, 1)},
            w=nn.Parameter(normal(256, 1)),
            n=nn.Parameter(torch.ones(1)),
        ).half(),
        normal(1, dtype=torch.float16),
    ),
    "a column of columns side by side": lambda: (
        Model(column_beside, a=nn.Linear(320, 312), b=nn.Linear(312, 160), c=nn.Linear(160, 1), d=nn.Linear(1, 1)).to(
            BF16
        ),
        normal(1, 320, dtype=BF16),
    ),
    "two convolutions of one image": lambda: (
        Model(lambda m, x: m.a(x) + m.b(x), a=nn.Conv2d(32, 32, 3, padding=1), b=nn.Conv2d(32, 32, 3, padding=1)),
        normal(2, 32, 7, 7),
    ),
    "two convolutions of one image with zeros around it": lambda: (
        Model(
            lambda m, x: m.a(x).sigmoid() * m.b(x), a=nn.Conv2d(3, 32, 3, padding=1), b=nn.Conv2d(3, 32, 5, padding=2)
        ),
        normal(2, 3, 9, 9),
    ),
    "a norm of a number": lambda: (
        Model(lambda m, x: F.layer_norm(x.expand(32, 3), [3]) + 1),
        normal(),
    ),
    "a layer of one number": lambda: (
        Model(lambda m, x: F.linear(torch.outer(x.amax(0, keepdim=True), x[:1]), m.w), w=nn.Parameter(normal(16, 1))),
        normal(17),
    ),
    "a dot of vectors, scaled": lambda: (
        Model(lambda m, x: torch.dot(x, x) * 0.01),
        normal(1600),
    ),
    "one column of every second": lambda: (
        Model(lambda m, x: m.a(x)[:, 0:2:2], a=nn.Linear(13, 2)),
        normal(80, 13),
    ),
    "a mean of rows beside them": lambda: (
        Model(lambda m, x: torch.cat([x, F.relu(x.sum(0, keepdim=True)).expand_as(x)], -1)),
        normal(96, 1),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_models_that_once_failed(name, gpu_of):
    torch.manual_seed(0)
    model, *args = CASES[name]()
    compiled = kitsune_mlir.compile(model, tuple(args), target=gpu_of(4))
    with torch.no_grad():
        wanted = copy.deepcopy(model).double()(*(x.double() if x.is_floating_point() else x for x in args))
        found = Simulation(compiled, seed=1)(*args)
    bound = 1e-5 if args[0].dtype == torch.float32 else 2e-2
    pairs = zip(*(value if isinstance(value, tuple) else (value,) for value in (found, wanted)), strict=True)
    for value, exact in pairs:
        value = torch.as_tensor(value).double()
        assert value.shape == exact.shape and (value - exact).norm() <= bound * exact.norm()
