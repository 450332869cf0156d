"""Chains of stages in the registers of warpgroups, on the stand-in device: right numbers in any order of warps."""

import pytest
import torch
from test_gpu_models import check
from test_gpu_pipelines import MODELS, runner_of
from torch import nn

from kitsune_mlir.tools.gpusim.launcher import Launcher

pytestmark = pytest.mark.usefixtures("unassembled")

TYPES = {torch.bfloat16: 2e-2, torch.float16: 4e-3}


def maps_of(runner) -> int:
    """How many tensor maps the program's pipelines use: none where no pipeline is chained."""
    launchers = [x for part in vars(runner).values() if isinstance(part, dict) for x in part.values()]
    return sum(len(x._launch.get("maps", [])) for x in launchers if isinstance(x, Launcher))


def run(model, args, target, bound, launches=1, tile=128, **options):
    """Each launch has an order of its own, and finds what the one before left: one is enough where a kernel keeps
    nothing. Tiles are those of two warpgroups, or of one (64 rows); 0 has placement choose, which takes the latter for
    few rows."""
    model = model.eval()
    with torch.no_grad():
        wanted = model(*args)
    program, runner, device = runner_of(model, args, target, "chained", tile=tile, **options)
    for _ in range(launches):
        check(program, runner, args, wanted, bound)
    assert device.pipeline_launches and maps_of(runner)
    return device.described


@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"gat"}))
def test_models(name, small_gpu):
    torch.manual_seed(3)
    model, args = MODELS[name](torch.bfloat16)
    run(model, args, small_gpu, TYPES[torch.bfloat16], launches=2, tile=0)


def mlp(dtype, widths, activation):
    torch.manual_seed(7)
    layers = [part for a, b in zip(widths, widths[1:]) for part in (nn.Linear(a, b), activation())]
    return nn.Sequential(*layers[:-1]).to(dtype)


@pytest.mark.parametrize(
    "widths, rows, dtype, tile",
    [
        ((64, 64, 64), 1, torch.bfloat16, 64),
        ((13, 37, 6), 129, torch.float16, 128),
        ((256, 128, 128, 128, 8), 128, torch.float16, 64),
    ],
    ids=str,
)
def test_widths_and_rows(widths, rows, dtype, tile, small_gpu):
    run(mlp(dtype, widths, nn.ReLU), (torch.randn(rows, widths[0], dtype=dtype),), small_gpu, TYPES[dtype], tile=tile)


class Slopes(nn.Module):
    """Layers that differ in a number alone, and in no tensor's shape."""

    def __init__(self, slopes):
        super().__init__()
        self.slopes = slopes
        self.layers = nn.ModuleList(nn.Linear(64, 64, bias=False) for _ in slopes)

    def forward(self, x):
        for layer, slope in zip(self.layers, self.slopes):
            x = nn.functional.leaky_relu(layer(x), slope)
        return x


def test_layers_that_differ_in_a_constant(small_gpu):
    torch.manual_seed(5)
    model = Slopes([0.9, 0.1, 0.9, -0.7, 0.5]).bfloat16()
    run(model, (torch.randn(130, 64, dtype=torch.bfloat16),), small_gpu, TYPES[torch.bfloat16])


def test_the_widest_tiles_of_one_cta_wait_in_shared_memory(small_gpu):
    args = (torch.randn(40, 48, dtype=torch.float16),)
    (launch,) = run(mlp(torch.float16, (48, 384, 384, 40), nn.ReLU), args, small_gpu, TYPES[torch.float16])
    assert launch["cluster"] == 1


class SideBySide(nn.Module):
    """A product of long tiles that are all streamed."""

    def __init__(self, *widths):
        super().__init__()
        self.first, self.second = nn.Linear(sum(widths), 64), nn.Linear(64, 24)

    def forward(self, *tiles):
        return self.second(torch.relu(self.first(torch.cat(tiles, 1))))


def test_long_operands_side_by_side(small_gpu):
    torch.manual_seed(2)
    widths = 136, 200, 128  # not all of them whole chunks
    args = tuple(torch.randn(70, width, dtype=torch.bfloat16) for width in widths)
    run(SideBySide(*widths).bfloat16(), args, small_gpu, 2e-2)


class TwoWide(nn.Module):
    """A product of two tiles that both wait in shared memory."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.both = nn.LayerNorm(320), nn.LayerNorm(320), nn.Linear(640, 64)

    def forward(self, x, y):
        return self.both(torch.cat([self.left(x), self.right(y)], 1))


def test_two_tiles_of_one_product_wait_in_boxes_of_their_own(small_gpu):
    torch.manual_seed(0)
    args = tuple(torch.randn(70, 320, dtype=torch.bfloat16) for _ in range(2))
    run(TwoWide().bfloat16(), args, small_gpu, 2e-2)


class AroundALoop(nn.Module):
    """A tile that equal layers take, and what follows them too."""

    def __init__(self, width):
        super().__init__()
        self.first, self.last = nn.Linear(64, width), nn.Linear(width, 64)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, x):
        x = y = torch.relu(self.first(x))
        for layer in self.layers:
            y = torch.relu(layer(y))
        return self.last(y + x)


@pytest.mark.parametrize("width", [64, 256])
def test_a_tile_goes_around_a_loop(width, small_gpu):
    torch.manual_seed(0)
    run(AroundALoop(width).bfloat16(), (torch.randn(128, 64, dtype=torch.bfloat16),), small_gpu, 2e-2)


@pytest.mark.parametrize("first", [nn.ReLU, nn.SiLU])
def test_a_loop_follows_a_tile_that_is_left_alike_or_not(first, small_gpu):
    """Equal layers of more than one set of sums, whose tiles are worked on while the next begins."""
    model = mlp(torch.bfloat16, (64, 136, 136, 136, 136, 24), nn.ReLU)
    model[1] = first()
    run(model, (torch.randn(40, 64, dtype=torch.bfloat16),), small_gpu, TYPES[torch.bfloat16])
