"""What reads concatenations element by element reads what they are made of, where that lies, in one kernel."""

import pytest
import torch
from functions import Function, computed
from torch.export import Dim
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir import mlir
from kitsune_mlir.passes.joined_reads import read_joined
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")
OPEN = {0: Dim("b", min=1, max=999), 1: Dim("t", min=6, max=999)}

FUNCTIONS = {
    "next, the last again": lambda x: torch.cat([x[:, 1:], x[:, -1:]], 1) - x,
    "next, or nothing": lambda x: F.pad(x[:, 1:], (0, 1)) - x,
    "before, or a number": lambda x: F.pad(x, (1, -1), value=2.5) * x,
    "distances": lambda x: torch.cat([x[:, 1:] - x[:, :-1], torch.full_like(x[:, :1], 1e3)], 1) * x,
    "differences": lambda x: torch.diff(x, dim=1, prepend=x[:, :1]),
    "differences behind": lambda x: torch.diff(x, dim=1, append=x[:, -1:]),
    "shares that are left": lambda x: torch.cat([torch.ones_like(x[:, :1]), 1 - x[:, :-1]], 1) * x,
    "edges again": lambda x: F.pad(x[:, None], (1, 1), mode="replicate")[:, 0, 2:] - x,
    "middle": lambda x: torch.cat([x[:, :2], x[:, 2:-2] * 3 + x[:, :-4], x[:, -2:]], 1) + x,
    "two readers": lambda x: (lambda y: (y * x).exp() + (y - x).abs().cumsum(1)[:, -1:])(
        torch.cat([x[:, 3:], x[:, :3]], 1)
    ),
    "others": lambda x: torch.cat([x * 2, x[:, :3]], 1)[:, 2:-1] * x,
}
APART = {"two readers", "shares that are left"}  # which take a kernel more, or none of the kind


def check(function, shape, open_=None, sizes=(), dtype=torch.float32, kernels=None, count=1):
    given = tuple(torch.randn(shape).to(dtype) for _ in range(count))
    compiled = kitsune_mlir.compile(
        Function(function), given, target="sm_90a", dynamic_shapes=(((open_,) * count),) if open_ else None
    )
    if kernels is not None:
        assert len(computed(compiled)) == kernels
    for size in (shape, *sizes):
        x = tuple(torch.randn(size).to(dtype) for _ in range(count))
        torch.testing.assert_close(torch.as_tensor(Simulation(compiled, seed=2)(*x)), function(*x))
    return compiled


@pytest.mark.parametrize("name", FUNCTIONS)
def test_known_sizes(name):
    check(FUNCTIONS[name], (6, 40), kernels=None if name in APART else 1)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_open_sizes(name):
    check(
        FUNCTIONS[name],
        (6, 40),
        OPEN,
        [(1, 6), (3, 7), (9, 65)],
        kernels=None if name in APART | {"others", "edges again"} else 1,
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64])
def test_types(dtype):
    check(FUNCTIONS["next, the last again"], (5, 33), OPEN, [(2, 6)], dtype, kernels=1)


def test_what_is_read_behind_the_places_of_a_slice_stays():
    """Slices and maps that both shift are not added up."""
    text = """func.func @main(%x: tensor<4x9xf32>) -> tensor<4x6xf32> {
      %a = tensor.extract_slice %x[0, 1] [4, 8] [1, 1] : tensor<4x9xf32> to tensor<4x8xf32>
      %b = tensor.extract_slice %x[0, 8] [4, 1] [1, 1] : tensor<4x9xf32> to tensor<4x1xf32>
      %c = tensor.concat dim(1) %a, %b : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x9xf32>
      %s = tensor.extract_slice %c[0, 1] [4, 7] [1, 1] : tensor<4x9xf32> to tensor<4x7xf32>
      %e = tensor.empty() : tensor<4x6xf32>
      %y = linalg.generic {
        indexing_maps = [affine_map<(i, j) -> (i, j + 1)>, affine_map<(i, j) -> (i, j)>],
        iterator_types = ["parallel", "parallel"]
      } ins(%s : tensor<4x7xf32>) outs(%e : tensor<4x6xf32>) {
      ^bb0(%p: f32, %o: f32):
        linalg.yield %p : f32
      } -> tensor<4x6xf32>
      return %y : tensor<4x6xf32>
    }"""
    module = mlir.parse(text, mlir.context())
    with module.context:
        (main,) = mlir.walk(module, "func.func")
        before = str(module)
        read_joined(main)
        assert str(module) == before


def test_steps_before():
    """Tokens see those before them: whole words of each."""

    def shifted(x):
        return F.pad(x, (0, 0, 1, -1)) * 0.25 + x

    check(shifted, (2, 9, 64), OPEN, [(1, 6, 64), (3, 7, 64)], torch.bfloat16, kernels=1)


def test_a_state_before_all():
    def shifted(x):
        return torch.cat([x[:, -1:].tanh(), x[:, :-1]], 1) * 0.25 + x

    check(shifted, (2, 9, 64), OPEN, [(1, 6, 64), (3, 7, 64)])


def test_sums_read_what_is_joined():
    """A row's sum has its words, whoever joined them."""
    check(lambda x: torch.cat([x[:, 1:], x[:, -1:]], 1).square().sum(1), (64, 512))


@pytest.mark.parametrize("seed", range(8))
def test_drawn_parts(seed):
    """Two to four parts of what is given or computed, in any order, of which all or some is read."""
    draw = torch.Generator().manual_seed(seed)

    def pick(n):
        return int(torch.randint(n, (), generator=draw))

    kinds, dim, cut = [pick(5) for _ in range(2 + pick(3))], pick(2), pick(2)

    def joined(x, y):
        parts = {
            0: lambda: x.narrow(dim, 1, x.shape[dim] - 1),
            1: lambda: y * 2 - x,
            2: lambda: torch.full_like(x.narrow(dim, 0, 3), 0.5),
            3: lambda: x.narrow(dim, 0, 1),
            4: lambda: y.narrow(dim, 1, y.shape[dim] - 1) - y.narrow(dim, 0, y.shape[dim] - 1),
        }
        z = torch.cat([parts[kind]() for kind in kinds], dim)
        return (z.narrow(dim, 1, z.shape[dim] - 1) if cut else z).abs() + 1

    open_ = {0: Dim("r", min=4, max=99), 1: Dim("c", min=4, max=99)} if seed % 2 else None
    check(joined, (7, 12), open_, [(4, 5), (9, 31)] if open_ else [], count=2)


@pytest.mark.parametrize("mode", ["constant", "replicate", "reflect", "circular"])
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
def test_edges_of_images(mode, is_open):
    """Neighbours in images with something around them."""

    def slopes(x):
        p = F.pad(x, (1, 1, 1, 1), mode=mode)
        return p[:, :, 1:-1, 2:] - 2 * p[:, :, 2:, 1:-1] + p[:, :, :-2, :-2] * x

    open_ = {0: Dim("n", min=1, max=9), 2: Dim("h", min=4, max=99), 3: Dim("w", min=4, max=99)}
    sizes = [(1, 3, 5, 4), (2, 3, 4, 21)] if is_open else []
    check(slopes, (2, 3, 7, 10), open_ if is_open else None, sizes, kernels=1)
