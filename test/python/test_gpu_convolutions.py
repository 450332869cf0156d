"""Convolutions as products of filters and windows, on the stand-in GPU, beside torch."""

from dataclasses import replace
from math import prod

import pytest
import torch
from convolution_models import BATCH, FORMS, Residual, block, ran
from test_gpu_scheduled import run
from torch import nn

from kitsune_mlir import compile
from kitsune_mlir.bench import zoo
from kitsune_mlir.dialects import schedule
from kitsune_mlir.frontend import import_model
from kitsune_mlir.mlir import ir, walk
from kitsune_mlir.passes import convolutions, pipeline, schedule_products, tap_sums
from kitsune_mlir.planning import product_tiles
from kitsune_mlir.tools.gpusim import Simulation

# Copies of each kind, of which ptxas is asked: by lines, images and volumes, by strides, and of folded channels.
ASSEMBLED = ("padded", "strides of 2", "70 channels", "lines", "volumes", "3 channels, strides of 2", "patches")


@pytest.mark.parametrize("name", FORMS)
def test_one(name, small_gpu, request):
    if name not in ASSEMBLED:
        request.getfixturevalue("unassembled")
    make, shape = FORMS[name]
    assert ran(make(), shape, small_gpu) == 1


GROUPED = {
    "4 channels": (lambda: nn.Conv2d(128, 128, 3, padding=1, groups=32), (2, 128, 9, 7)),
    "one block": (lambda: block(64, 64, 3, padding=1, stride=2, groups=8), (3, 64, 9, 11)),
    "64 channels": (lambda: nn.Conv2d(128, 64, 3, groups=2, dilation=2), (1, 128, 11, 9)),
    "24 channels": (lambda: block(384, 384, 3, padding=1, groups=16), (1, 384, 5, 6)),
    "more outputs": (lambda: nn.Conv2d(128, 192, (3, 1), padding=(1, 0), groups=4), (2, 128, 6, 5)),
    "no whole chunks": (lambda: nn.Conv2d(116, 58, 3, padding=1, groups=2), (2, 116, 7, 6)),
    "3 channels": (lambda: nn.Conv2d(6, 16, 5, padding=2, groups=2), (2, 6, 16, 12)),
    "single elements": (lambda: block(128, 64, 1, groups=16), (2, 128, 8, 8)),
    "single elements, one block": (lambda: nn.Conv2d(48, 96, 1, groups=3), (2, 48, 8, 8)),
    "lines": (lambda: nn.Conv1d(128, 128, 5, padding=2, groups=8), (2, 128, 50)),
    "one place": (lambda: nn.Conv2d(128, 64, 4, groups=4), (5, 128, 4, 4)),
}


@pytest.mark.parametrize("outputs", [192, 256])
def test_narrow_chunks_of_tiles_with_two_sets_of_sums(outputs, small_gpu, monkeypatch):
    """Products read the columns that were copied, and no others."""
    priced = product_tiles._tiles

    def dear(*of, **more):
        tiles = priced(*of, **more)
        form = next(one for one in of if isinstance(one, product_tiles._Form))
        return tiles if tiles is None or form.alternates else replace(tiles, microseconds=1e3 * tiles.microseconds)

    monkeypatch.setattr(product_tiles, "_tiles", dear)
    model = nn.Sequential(nn.Conv2d(48, outputs, 3, stride=2), nn.SiLU(), nn.Conv2d(outputs, 16, 3))
    assert ran(model, (2, 48, 13, 17), small_gpu) == 2


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("shapes", [None, ({0: torch.export.Dim("images")},)], ids=["known", "open"])
def test_many_small_images(shapes):
    """Each image's product is so small that threads would do it, whose operands are in memory, as windows are not."""
    model, args = nn.Conv2d(8, 16, 2).bfloat16().eval(), (torch.randn(64, 8, 5, 5).bfloat16(),)
    compiled = compile(model, args, target="sm_90a", dynamic_shapes=shapes)
    assert [launch["kernel"] for launch in compiled.plan["launches"]] == ["elementwise_0", "product0"]
    torch.testing.assert_close(Simulation(compiled)(*args), model(*args), rtol=2e-2, atol=2e-2)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", GROUPED)
def test_groups(name, small_gpu):
    make, shape = GROUPED[name]
    assert ran(make(), shape, small_gpu) == 1


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("precision", ["highest", "high"])
def test_groups_of_f32(precision, small_gpu):
    module = nn.Conv2d(128, 128, 3, padding=1, groups=8).eval()
    assert run(module, (torch.randn(2, 128, 5, 6),), small_gpu, precision=precision).pipeline_launches == 1


class Modulated(nn.Module):
    """Filters that are computed for each image: the images are groups of channels of one."""

    def __init__(self, inputs, outputs, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs, size, size) / (inputs**0.5 * size))

    def forward(self, x, style):
        images, channels, *space = x.shape
        filters = (self.weight * style[:, None, :, None, None]).flatten(0, 1)
        x = x.reshape(1, images * channels, *space)
        y = nn.functional.conv2d(x, filters, padding=self.weight.shape[-1] // 2, groups=images)
        return y.view(images, -1, *space)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("size", [1, 3])
def test_filters_for_each_image(size, small_gpu):
    torch.manual_seed(size)
    args = torch.randn(3, 64, 12, 11), torch.rand(3, 64) + 0.5
    assert run(Modulated(64, 64, size).eval(), args, small_gpu).pipeline_launches == 1


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("size", [1, 3])
def test_what_reads_a_result_twice_is_computed_with_it(size, small_gpu):
    """x * sigmoid(x) takes no more kernels than a ReLU, behind each of two convolutions."""
    launches = []
    for activation in (nn.ReLU, nn.SiLU):
        torch.manual_seed(size)
        layers = [layer for i in range(2) for layer in (*block(64, 64, size, padding=size // 2)[:2], activation())]
        model = nn.Sequential(*layers).bfloat16().eval()
        device = run(model, (torch.randn(2, 64, 8, 8).bfloat16(),), small_gpu)
        launches.append((device.pipeline_launches, device.launches))
    assert launches[0] == launches[1]


class Joined(nn.Module):
    """The sum of residual blocks is what one of their last convolutions is followed by, which the other's result comes
    to."""

    def __init__(self, *sizes):
        super().__init__()
        layers = [[nn.Conv1d(64, 64, size, padding=size // 2) for _ in range(2)] for size in sizes]
        self.blocks = nn.ModuleList(nn.ModuleList(pair) for pair in layers)

    def forward(self, x):
        found = []
        for first, second in self.blocks:
            y = torch.relu(first(torch.relu(x))) + x
            found.append(second(torch.relu(y)) + y)
        return torch.relu((found[0] + found[1]) / 2)


@pytest.mark.usefixtures("unassembled")
def test_sums_of_convolutions(small_gpu):
    assert ran(Joined(3, 7), (2, 64, 70), small_gpu) == 4


@pytest.mark.usefixtures("unassembled")
def test_groups_of_an_open_number_of_images(small_gpu):
    module = block(128, 128, 3, padding=1, groups=32)
    assert ran(module, (2, 128, 6, 8), small_gpu, calls=(1, 3), dynamic_shapes={"args": ({0: BATCH},)}) == 3


@pytest.mark.usefixtures("unassembled")
def test_images_are_copied_where_that_is_sooner_done_than_windows_are(monkeypatch):
    """Of 8 channels a row of the filter is 24 numbers, and three chunks of 16 columns as they lie."""
    monkeypatch.setattr(convolutions, "BEFORE_CYCLES", 0)
    monkeypatch.setattr(convolutions, "AROUND_CYCLES", 0)
    module = nn.Sequential(nn.Conv2d(64, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=(2, 1))).bfloat16()
    x = torch.randn(1, 64, 6, 9).bfloat16()
    compiled = compile(module.requires_grad_(False), (x,), target="sm_90a")
    assert "k 96" in compiled.plan["launches"][-1]["computes"]  # 3 x 32, not 9 x 16
    found, wanted = torch.as_tensor(Simulation(compiled)(x)).double(), module.double()(x.double())
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


FEW_OUTPUTS = {
    "zeros around": (lambda: nn.Sequential(nn.Conv2d(64, 3, 3, padding=1), nn.Tanh()), (2, 64, 9, 14)),
    "none around": (lambda: nn.Conv2d(64, 12, 3, bias=False), (2, 64, 9, 14)),
    "all different": (lambda: nn.Conv2d(72, 5, (3, 5), (2, 1), (1, 2), (1, 2)), (2, 72, 9, 14)),
    "volumes": (lambda: nn.Conv3d(64, 2, 3, padding=1), (2, 64, 4, 5, 8)),
    "lines": (lambda: nn.Conv1d(64, 4, 5, padding=2), (2, 64, 50)),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", FEW_OUTPUTS)
def test_few_outputs_are_sums_of_what_elements_give(name, small_gpu, monkeypatch):
    monkeypatch.setattr(tap_sums.TapSums, "is_faster", lambda self, target: True)
    make, shape = FEW_OUTPUTS[name]
    assert ran(make(), shape, small_gpu, calls=(1, 3), dynamic_shapes={"args": ({0: BATCH},)}) == 3
    compiled = compile(make().bfloat16().eval(), (torch.randn(shape).bfloat16(),), target="sm_90a")
    kernels = [launch["kernel"] for launch in compiled.plan["launches"] if "product" in launch["kernel"]]
    assert kernels == ["product0"] and compiled.plan["launches"][-1]["computes"] == "windows"


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("outputs, kernels", [(2, ["product0", "windows_0"]), (64, ["elementwise_0", "product0"])])
def test_which_convolutions_are_such_sums(outputs, kernels):
    module = nn.Conv2d(64, outputs, 3, padding=1).bfloat16().requires_grad_(False)
    compiled = compile(module, (torch.empty(8, 64, 64, 64).bfloat16(),), target="sm_90a")
    assert [launch["kernel"] for launch in compiled.plan["launches"]] == kernels


VOLUMES = {
    "strides of 2": (lambda: nn.Conv3d(20, 15, 3, stride=2, padding=1, groups=5), (2, 20, 5, 6, 7)),
    "all different": (
        lambda: nn.Conv3d(32, 16, (1, 3, 2), (1, 2, 1), (0, 1, 1), (1, 1, 2), groups=4),
        (2, 32, 4, 7, 9),
    ),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", VOLUMES)
def test_groups_of_volumes(name, small_gpu):
    make, shape = VOLUMES[name]
    assert ran(make(), shape, small_gpu, calls=(1, 3), dynamic_shapes={"args": ({0: BATCH},)}) == 3


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("groups", [8, 32])
def test_groups_where_threads_copy(groups):
    module = nn.Conv2d(128, 128, 3, padding=1, groups=groups)
    assert ran(module, (1, 128, 6, 5), "sm_80") == 1


def test_a_channel_a_group_is_no_product(small_gpu):
    module = nn.Conv2d(64, 128, 3, padding=1, groups=64)
    assert ran(module, (2, 64, 9, 9), small_gpu) == 0


def test_groups_that_are_whole_blocks_keep_apart(small_gpu):
    """An infinite number spoils no results of other blocks."""
    module = nn.Conv2d(128, 128, 3, padding=1, groups=2).to(torch.bfloat16).eval()
    x = torch.randn(1, 128, 8, 8).to(torch.bfloat16)
    x[0, 1, 5, 6] = torch.inf
    assert run(lambda x: module(x)[:, 64:], (x,), small_gpu).pipeline_launches == 1


CHAINS = {
    "groups": (
        lambda: Residual(block(96, 128, 1), block(128, 128, 3, padding=1, groups=32), block(128, 96, 1)),
        (2, 96, 8, 7),
        3,
    ),
    "groups and a residual": (lambda: Residual(*[block(128, 128, 3, padding=1, groups=16)] * 2), (1, 128, 8, 7), 2),
    "residual": (lambda: Residual(block(64, 64, 3, padding=1), block(64, 64, 3, padding=1)), (2, 64, 8, 7), 2),
    "bottleneck": (
        lambda: Residual(block(128, 64, 1), block(64, 64, 3, padding=1), block(64, 128, 1)),
        (2, 128, 8, 8),
        3,
    ),
    "two residuals": (
        lambda: nn.Sequential(*(Residual(block(64, 64, 3, padding=1)) for _ in range(2))),
        (1, 64, 10, 9),
        2,
    ),
    "stem and layer": (
        lambda: nn.Sequential(block(3, 64, 7, stride=2, padding=3), block(64, 24, 3)),
        (1, 3, 28, 28),
        2,
    ),
    # Windows of the same sizes over images of the same sizes.
    "dilated by 1, 2 and 3": (
        lambda: nn.Sequential(*(nn.Conv2d(64, 64, 3, padding=by, dilation=by) for by in (1, 2, 3))),
        (1, 64, 9, 8),
        3,
    ),
    "along lines and across": (
        lambda: nn.Sequential(
            *(nn.Conv2d(64, 64, (k, 4 - k), padding=(k // 2, (4 - k) // 2)) for k in (1, 3, 1)),
        ),
        (1, 64, 8, 8),
        3,
    ),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", CHAINS)
def test_several(name, small_gpu):
    make, shape, kernels = CHAINS[name]
    assert ran(make(), shape, small_gpu) == kernels


def test_f16(small_gpu):
    assert ran(nn.Conv2d(64, 24, 3, padding=1), (1, 64, 9, 9), small_gpu, torch.float16) == 1


@pytest.mark.usefixtures("unassembled")
def test_an_open_number_of_images(small_gpu):
    module = Residual(block(64, 64, 3, padding=1), block(64, 64, 3, padding=1))
    assert ran(module, (2, 64, 6, 8), small_gpu, calls=(1, 3), dynamic_shapes={"args": ({0: BATCH},)}) == 2 * 3


@pytest.mark.usefixtures("unassembled")
def test_an_open_number_of_folded_images(small_gpu):
    module = nn.Sequential(block(3, 64, 7, stride=2, padding=3), block(64, 24, 1))
    assert ran(module, (2, 3, 20, 20), small_gpu, calls=(3,), dynamic_shapes={"args": ({0: BATCH},)}) == 2 * 2


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("sizes", [(3, 1, 1), (5, 2, 2, 2), (1, 1), (1, 2)], ids=str)
def test_lines_of_an_open_length(sizes, small_gpu):
    """Rows of the elements that filters see are multiplied on tensor cores."""
    module, shape = nn.Conv1d(64, 48, *sizes).bfloat16().eval(), (1, 64, 50)
    calls = [(torch.randn(1, 64, length).bfloat16(),) for length in (31, 72)]
    length = torch.export.Dim("length", min=10)
    device = run(
        module, (torch.randn(shape).bfloat16(),), small_gpu, calls=calls, dynamic_shapes={"args": ({2: length},)}
    )
    assert device.pipeline_launches == 3


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("across", [0, 2])
def test_slices_of_volumes_of_few_channels_are_images(across, small_gpu):
    """So a row of the filter is one element."""
    sizes = [[3, 5], [1, 2], [1, 2]]
    for each, own in zip(sizes, (1, 2, 0), strict=True):
        each.insert(across, own)
    shape = [20, 22]
    shape.insert(across, 4)
    module = nn.Conv3d(3, 16, *map(tuple, sizes))
    assert ran(module, (2, 3, *shape), small_gpu) == 1
    compiled = compile(module, (torch.randn(2, 3, *shape).bfloat16(),), target=small_gpu)
    assert [launch["computes"].split(",")[1] for launch in compiled.plan["launches"] if launch["tile"]] == [" k 96"]


def test_zeros_are_not_multiplied(small_gpu):
    """An infinite number spoils the windows that see it, and not those where columns of zeros meet it."""
    module = nn.Conv2d(3, 16, 3, padding=1).to(torch.bfloat16).eval()
    x = torch.randn(1, 3, 24, 24).to(torch.bfloat16)
    x[0, 1, 5, 6] = torch.inf
    device = run(lambda x: module(x).clamp(-8, 8), (x,), small_gpu)
    assert device.pipeline_launches == 1


def scalar_loops(module):
    """The multiply-adds of each contraction that is in no kernel."""
    for op in walk(module):
        names = [inner.operation.name for region in op.regions for block in region.blocks for inner in block.operations]
        if op.name.startswith("linalg.") and "arith.mulf" in names and len(op.operands) > 2 and op.results:
            kinds = [ir.RankedTensorType(value.type) for value in op.operands if hasattr(value.type, "shape")]
            reduced = op.name != "linalg.generic" or "reduction" in str(op.attributes["iterator_types"])
            if reduced and op.parent.name == "func.func":
                yield prod(kinds[-1].shape) * prod(kinds[1].shape[1:])


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", ["conv3x3", "conv1x1", "conv-stem", "patch-embedding", "conv3x3-f32", "conv3x3-f16"])
def test_no_large_contraction_is_a_scalar_loop(name):
    model, args, _ = zoo.make(f"zoo/{name}-small", "bf16")
    program = import_model(model, args)
    pipeline.run(program.module, [pipeline.make("prepare-linalg", "", "sm_90a")])
    before = list(scalar_loops(program.module))
    steps = ["convolutions-to-products", "schedule-products"]
    pipeline.run(program.module, [pipeline.make(step, "", "sm_90a") for step in steps])
    assert len(list(schedule.kernels(program.module))) == len(before) > 0
    assert max(before) > 1_000_000 > max(scalar_loops(program.module), default=0)


@pytest.mark.parametrize("shape", [(2, 64, 48), (1, 24, 56), (1, 136, 1030)], ids=str)
def test_transposes(shape, small_gpu):
    """Rectangles of threads of all kinds, and none where sizes are no multiples."""
    x = torch.randn(shape).to(torch.bfloat16)
    assert run(lambda x: x.mT.contiguous() * 2, (x,), small_gpu).pipeline_launches == 0


@pytest.mark.usefixtures("unassembled")
def test_no_row_group_keeps_a_product_that_is_gone(small_gpu, monkeypatch):
    """A convolution of one image is a generic product, which a row group may have taken for a sum over rows."""
    original, seen = schedule_products._Scheduler.schedule, []

    def checked(self):
        before, product = [group for group in self.rows._groups if group.has(self.op)], self.op.results[0]
        done = original(self)
        seen.extend(before)
        assert not [group for group in self.rows._groups if product in group.members]
        return done

    monkeypatch.setattr(schedule_products._Scheduler, "schedule", checked)
    model = nn.Sequential(*(block(64, 64, 3, padding=1) for _ in range(2)), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    compile(model.eval().bfloat16(), (torch.randn(1, 64, 8, 8).bfloat16(),), target=small_gpu)
    assert seen
