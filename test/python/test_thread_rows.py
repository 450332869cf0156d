"""Rows of few numbers, each of which a thread has: one kernel for what stacks, slices and sums them."""

import random

import pytest
import torch
from functions import Function
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.errors import UserError
from kitsune_mlir.tools.gpusim import Simulation

ROWS = torch.export.Dim("rows", min=2)


def times(a, b):
    """Products of quaternions."""
    aw, ax, ay, az = a.unbind(-1)
    bw, bx, by, bz = b.unbind(-1)
    w, x = aw * bw - ax * bx - ay * by - az * bz, aw * bx + ax * bw + ay * bz - az * by
    return torch.stack([w, x, aw * by - ax * bz + ay * bw + az * bx, aw * bz + ax * by - ay * bx + az * bw], -1)


def covariance(q, s):
    """R S S' R' of a rotation, which is a quaternion's, and of scales."""
    w, x, y, z = F.normalize(q, dim=-1).unbind(-1)
    ones = [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)]
    twos = [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)]
    threes = [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]
    m = torch.stack([*ones, *twos, *threes], -1).view(*q.shape[:-1], 3, 3) * s.exp()[..., None, :]
    return m @ m.mT


def chain(q, bones):
    """Places of joints, one behind the other."""
    at, turned, places = torch.zeros_like(bones[:, 0]), q[:, 0], []
    for j in range(q.shape[1]):
        t = 2 * torch.linalg.cross(turned[:, 1:], bones[:, j])
        at = at + bones[:, j] + turned[:, :1] * t
        places.append(at)
        turned = times(turned, q[:, j])
    return torch.stack(places, 1), turned


def boxes(x):
    """Corners, areas and classes of boxes."""
    xy, wh = x[..., :2], x[..., 2:4].exp()
    corners = torch.cat([xy - wh / 2, xy + wh / 2], -1).clamp(-1, 1)
    area = (corners[..., 2] - corners[..., 0]) * (corners[..., 3] - corners[..., 1])
    return torch.cat([corners, area[..., None], x[..., 4:].softmax(-1)], -1)


def lorenz(x):
    def slope(x):
        a, b, c = x.unbind(-1)
        return torch.stack([10 * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c], -1)

    for _ in range(2):
        first = slope(x)
        x = x + 0.005 * (first + slope(x + 0.01 * first))
    return x


def whole_numbers(a):
    stacked = torch.stack([a[:, 0] * 3 + a[:, 1], (a[:, 1] ^ a[:, 2]) & 7, a[:, 2]], -1)
    return stacked[:, :2] * a[:, 1:3] + 1


def of_all(p, m):
    """A matrix that all rows share, and zeros beside."""
    h = torch.stack([p[:, 0] * m[0, 0] + p[:, 1] * m[0, 1], p[:, 0] * m[1, 0] + p[:, 1] * m[1, 1]], -1)
    return torch.cat([h[:, 1:], torch.zeros_like(h), h[:, :1]], -1)[:, 0:4:3] + m[1]


def searched(x, w, i):
    """The places of numbers between the edges of bins, and edges by number."""
    edges = F.pad(w.softmax(-1).cumsum(-1), (1, 0))
    found = (x[..., None] >= edges[..., 1:-1]).sum(-1, keepdim=True)
    low, wide = edges.gather(-1, found), (edges[..., 1:] - edges[..., :-1]).gather(-1, found)
    return torch.cat([(x[..., None] - low) / wide, edges.gather(-1, i)], -1)


torch.manual_seed(0)
MODELS = {
    "products": (lambda a, b: times(times(a, b), a) * 2 + times(b, a), [(300, 4), (300, 4)]),
    "products of two dimensions": (lambda a, b: times(times(a, b), a) + times(b, a), [(3, 70, 4), (3, 70, 4)]),
    "covariances": (covariance, [(200, 4), (200, 3)]),
    "a chain": (chain, [(70, 3, 4), (70, 3, 3)]),
    "boxes": (boxes, [(2, 40, 24)]),
    "steps": (lorenz, [(130, 3)]),
    "vectors": (lambda a, b: torch.linalg.cross(torch.linalg.cross(a, b), F.normalize(b, dim=-1)), [(99, 3), (99, 3)]),
    "factors": (lambda a: torch.linalg.cholesky(a @ a.mT + 4 * torch.eye(4)), [(65, 4, 4)]),
    "what all rows share": (of_all, [(100, 2), (2, 2)]),
}


def compiled(function, args, target, is_open=False):
    shapes = (tuple({0: ROWS} for _ in args),) if is_open else None
    return kitsune_mlir.compile(Function(function), args, target=target, dynamic_shapes=shapes)


def check(program, function, args, bound=2e-6):
    wanted, found = function(*(x.double() if x.is_floating_point() else x for x in args)), Simulation(program)(*args)
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, wanted)), strict=True):
        torch.testing.assert_close(torch.as_tensor(a).to(b.dtype), b, rtol=0, atol=bound * float(b.abs().max()))


def rows_kernels(program):
    return [launch for launch in program.plan["launches"] if launch["form"] == "scheduled rows"]


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", MODELS)
def test_one_kernel(name, small_gpu):
    function, shapes = MODELS[name]
    args = tuple(torch.randn(shape) for shape in shapes)
    program = compiled(function, args, small_gpu)
    assert len(rows_kernels(program)) == 1 and len(program.plan["launches"]) <= 2
    check(program, function, args)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", ["a chain", "covariances"])
def test_open_rows(name, small_gpu):
    function, shapes = MODELS[name]
    program = compiled(function, tuple(torch.randn(shape) for shape in shapes), small_gpu, is_open=True)
    assert len(program.plan["launches"]) == 1
    for count in (2, 33, 300):
        check(program, function, tuple(torch.randn(count, *shape[1:]) for shape in shapes))


@pytest.mark.usefixtures("unassembled")
def test_other_types(small_gpu):
    args = (torch.randint(0, 1000, (101, 3)),)
    program = compiled(whole_numbers, args, small_gpu)
    assert len(rows_kernels(program)) == 1
    check(program, whole_numbers, args)
    check(compiled(boxes, (torch.randn(37, 16).half(),), small_gpu), boxes, (torch.randn(37, 16).half(),), 2e-3)


@pytest.mark.parametrize("width", [36, 48])
def test_registers(small_gpu, width):
    """Of rows that fit no thread the first operators are a kernel, or none is; nothing is spilled."""

    def turned(a, b):
        for _ in range(2):
            a = torch.cat([a[:, 7:] * b[:, 7:], a[:, :7] + 1], 1)
        return torch.cat([a[:, 5:], a[:, :5]], 1) * b

    args = torch.randn(70, width), torch.randn(70, width)
    program = compiled(turned, args, small_gpu)
    assert all(not kernel.get("spill_stores") for kernel in program.plan["kernels"])
    assert (len(program.plan["launches"]) == 1) == (width == 36)
    check(program, turned, args)


def searched_args(count):
    return torch.rand(count), torch.randn(count, 6), torch.randint(0, 7, (count, 2))


def test_elements_by_number(small_gpu):
    """Rows that are padded and summed up, and of which elements are taken by numbers: those of data are checked."""
    program = compiled(searched, searched_args(70), small_gpu, is_open=True)
    assert len(program.plan["launches"]) == 1
    for count in (2, 33, 70):
        check(program, searched, searched_args(count), 2e-5)
    for wrong in (7, -1, 1 << 33):
        x, w, i = searched_args(40)
        i[13, 1] = wrong
        with pytest.raises(UserError, match="an index is out of range"):
            Simulation(program)(x, w, i)


def drawn(seed):
    """A function of a matrix of few columns and of numbers of columns, of steps that are drawn."""
    draw = random.Random(seed)
    steps = [draw.randrange(8) for _ in range(draw.randint(4, 8))]
    numbers = [draw.randint(1, 3) for _ in steps]

    def function(x, i):
        first = x
        for step, number in zip(steps, numbers):
            if step == 0 and x.shape[1] < 12:
                x = F.pad(x, (number, number - 1), value=number / 2)
            elif step == 1:
                x = x.cumsum(-1) / number
            elif step == 2:
                x = torch.cat([x.gather(-1, i % x.shape[1]), x[:, number % x.shape[1] :]], -1)[:, :13]
            elif step == 3:
                x = torch.cat([x[:, ::2], x.amax(-1, keepdim=True)], -1)
            elif step == 4:
                x = x.softmax(-1) - x.gather(-1, x.argmax(-1, keepdim=True) * 0 + x.shape[1] - 1)
            elif step == 5:
                place = (x > number / 3).sum(-1, keepdim=True)
                x = x + F.pad(x, (1, 0)).gather(-1, place)
            elif step == 6:
                x = torch.stack([x, x * number], -1).flatten(1)[:, :11]
            else:
                x = x.roll(number, -1) + first[:, :1]
        return x

    return function


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("seed", range(10))
def test_drawn_rows(seed, small_gpu):
    function, args = drawn(seed), (torch.randn(45, 5), torch.randint(0, 60, (45, 2)))
    program = compiled(function, args, small_gpu, is_open=seed % 2 == 0)
    check(program, function, args, 1e-5)
