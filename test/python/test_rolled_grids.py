"""Steps on periodic grids: what is rolled is read where it lies, of known sizes or open ones, a kernel a step."""

import functools
import operator
import random

import pytest
import torch
from functions import Function, computed
from torch.export import Dim
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.bench.fields_images import ShallowWater
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")
OPEN = {0: Dim("h", min=2, max=999), 1: Dim("w", min=2, max=999)}
SIZES = [(6, 9), (2, 2), (3, 17)]


def check(function, count, kinds, sizes=SIZES, kind=torch.float32, target="sm_90a"):
    """Compares what a function gives of so many grids of several sizes, and says what its kernels are."""
    shapes = ((OPEN,) * count,) if len(sizes) > 1 else None
    example = grids(count, sizes[0], kind)
    compiled = kitsune_mlir.compile(Function(function), example, target=target, dynamic_shapes=shapes)
    if target != "cpu" and kinds is not None:
        assert computed(compiled) == kinds
    for size in sizes:
        x = grids(count, size, kind)
        found = (compiled if target == "cpu" else Simulation(compiled, seed=1))(*x)
        wanted = function(*x)
        for one, other in zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]:
            torch.testing.assert_close(torch.as_tensor(one), other)


def grids(count, shape, kind):
    made = [torch.randn(shape) if kind.is_floating_point else torch.randint(0, 2, shape) for _ in range(count)]
    return tuple(one.to(kind) for one in made)


def laplacian(x):
    return x.roll(1, 0) + x.roll(-1, 0) + x.roll(1, 1) + x.roll(-1, 1) - 4 * x


def shallow_water(*given):
    return tuple(x[0] for x in ShallowWater(2)(*(x.unsqueeze(0) for x in given)))


def life(x):
    around = sum(x.roll((i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
    return ((around == 3) | ((x == 1) & (around == 2))).to(x.dtype)


@pytest.mark.parametrize("sizes", [SIZES, [(48, 64)]], ids=["open", "known"])
def test_a_step_is_a_kernel(sizes):
    """Three quantities, of which products are rolled."""
    check(shallow_water, 3, ["gather"] * 2, sizes)


def test_on_a_cpu():
    check(shallow_water, 3, [], target="cpu")
    check(lambda x: x.roll((2, -5, 40), (0, 1, 0)) * x + torch.fft.fftshift(x), 1, [], target="cpu")


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.int64])
def test_neighbours_of_open_grids(kind):
    check(life if kind == torch.int64 else laplacian, 1, ["gather"], kind=kind)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.roll(7, 0) + x.roll((-1, 2), (0, 1)) + x.roll(-40, 1),
        lambda x: x.roll((2, 3), (0, 0)) - x.roll(4),
        lambda x: x.roll(2, 0).roll(-1, 1).roll(3, -1) * x,
        lambda x: (x * x + 1).roll(1, 1) - (x * x + 1),
        lambda x: torch.fft.fftshift(x) + torch.fft.ifftshift(x, dim=-1),
        lambda x: x.roll((-x.shape[1] - 1, 3 * x.shape[0]), (0, 1)) * 2,
    ],
    ids=["far", "all", "rolls of rolls", "of what is computed", "to the middle", "by sizes"],
)
def test_open_rolls(function):
    check(function, 1, ["gather"])


@pytest.mark.parametrize("sizes", [SIZES, [(48, 64)]], ids=["open", "known"])
def test_fluxes_are_computed_where_their_neighbours_are_read(sizes):
    """Lax and Friedrichs' steps: seven products of three quantities, each read in two or four places."""

    def step(h, u, v):
        def around(q):
            return (q.roll(1, 0) + q.roll(-1, 0) + q.roll(1, 1) + q.roll(-1, 1)) / 4

        def along(q, dim):
            return 0.01 * (q.roll(-1, dim) - q.roll(1, dim)) / 2

        hu, hv, p = h * u, h * v, 4.9 * h * h
        new = around(h) - along(hu, 1) - along(hv, 0)
        u = (around(hu) - along(hu * u + p, 1) - along(hu * v, 0)) / (new * new + 1)
        v = (around(hv) - along(hv * u, 1) - along(hv * v + p, 0)) / (new * new + 1)
        return new, u, v

    check(lambda *x: step(*step(*step(*x))), 3, None, sizes)
    check(lambda *x: step(*x), 3, ["gather"] * 2, sizes)  # the new v takes neighbours of the new u


@pytest.mark.parametrize("seed", range(6))
def test_drawn_steps(seed):
    """Sums of products of quantities, each taken where some rolls say, step after step."""
    draw = random.Random(seed)
    terms = [
        [
            ([draw.randrange(3) for _ in range(draw.randint(1, 3))], draw.randint(-2, 2), draw.randrange(2))
            for _ in range(4)
        ]
        for _ in range(3)
    ]

    def product(x, of):
        return (
            torch.stack([x[number] for number in of]).prod(0)
            if seed % 2
            else functools.reduce(operator.mul, (x[number] for number in of))
        )

    def step(*x):
        x = [one.tanh() for one in x] if seed == 3 else x
        return tuple(sum(product(x, of).roll(by, dim) for of, by, dim in own) / 4 for own in terms)

    check(lambda *x: step(*step(*x)), 3, None, [(8, 12)] if seed < 4 else SIZES)


def test_two_quantities_that_read_each_other():
    """A step of both is a kernel."""

    def step(x, y):
        return x + 0.1 * laplacian(x) - x * y, y + 0.05 * laplacian(y) + x * y

    check(lambda x, y: step(*step(x, y)), 2, ["gather"] * 2)


@pytest.mark.parametrize("order", [1, -1])
def test_what_is_larger_is_an_operator_of_its_own(order):
    """Of open sizes a tensor with its edges looks like the tensor; they read neighbours of the same elements."""

    def edged(x):
        x = x.unsqueeze(0)
        edges = F.pad(x, (1, 1, 1, 1), mode="reflect")
        return (x.roll(1, 1) * x.roll(1, 2), edges.sin())[::order]

    check(edged, 1, ["gather"] * 2, [(6, 9), (2, 3), (9, 4)])


def test_dear_functions_are_computed_once():
    check(lambda x: laplacian(x.sin()), 1, ["elementwise", "gather"])


def test_sums_of_rolled_rows():
    check(lambda x: (x.roll(1, 1) * x).sum(1), 1, ["reduce"])


def shifted(x, by, dim):
    """A roll as slices that are joined."""
    return torch.cat([x.narrow(dim, x.shape[dim] - by, by), x.narrow(dim, 0, x.shape[dim] - by)], dim)


def test_joined_slices_are_rolls():
    """Of open sizes as they are of known ones; along both dimensions at once."""

    def back(x):
        return torch.cat([x[1:], x[:1]], 0)

    check(lambda x: shifted(x, 1, 0) + back(x) + shifted(shifted(x, 2, 1), 1, 0) - 4 * x, 1, ["gather"])


def test_stacks_of_rolled_parts():
    """Parts of a tensor are rolled and stacked without a copy of each, along a dimension before open ones."""

    def streamed(x, y):
        f = torch.stack([x, y, x * y])
        return torch.stack([f[0], shifted(f[1], 1, 1), shifted(shifted(f[2], 1, 0), 1, 1)])

    shapes = ((OPEN,) * 2,)
    compiled = kitsune_mlir.compile(
        Function(streamed), grids(2, (6, 9), torch.float32), target="sm_90a", dynamic_shapes=shapes
    )
    assert len(compiled.plan["launches"]) <= 3
    for target in (
        compiled,
        kitsune_mlir.compile(Function(streamed), grids(2, (6, 9), torch.float32), target="cpu", dynamic_shapes=shapes),
    ):
        for size in SIZES:
            given = grids(2, size, torch.float32)
            found = (Simulation(target, seed=1) if target is compiled else target)(*given)
            torch.testing.assert_close(torch.as_tensor(found), streamed(*given))


@pytest.mark.parametrize("batch", [None, {0: Dim("b", min=2, max=999)}], ids=["known", "open"])
def test_shifted_windows_are_rolled_once(batch):
    """Both dimensions of images at once, though what reads them moves their elements."""

    def shifted(x):
        y = x.roll((-1, -2), (1, 2)).view(-1, 2, 3, 4, 2, 8).transpose(2, 3)
        return y.reshape(-1, 6, 8), x.roll((1, 2), (2, 1)).flatten(1).softmax(-1)

    shapes = ((batch,),) if batch else None
    x = torch.randn(3, 6, 8, 8)
    compiled = kitsune_mlir.compile(Function(shifted), (x,), target="sm_90a", dynamic_shapes=shapes)
    assert not any("copy" in kind for kind in computed(compiled))
    for given in [x, *([torch.randn(5, 6, 8, 8)] if batch else [])]:
        for found, wanted in zip(Simulation(compiled, seed=1)(given), shifted(given), strict=True):
            torch.testing.assert_close(torch.as_tensor(found), wanted)
