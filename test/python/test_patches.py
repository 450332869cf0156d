"""Convolutions whose tiles are patches of images (planning/patch_tiles.py, passes/patch_kernel.py)."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest
import torch
from convolution_models import BATCH, Residual, ran
from hypothesis import given, settings
from hypothesis import strategies as st
from test_schedule_products import WINDOWS, refused
from torch import nn

from kitsune_mlir import compile, mlir
from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.dialects.products import Window
from kitsune_mlir.errors import UserError
from kitsune_mlir.passes import pipeline, priced_product
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.patch_tiles import MOST_ELEMENTS, _Form, choose_patches, takes_patches
from kitsune_mlir.planning.windows import Windows
from kitsune_mlir.schedule import run

TARGET = targets.load("sm_90a")


@pytest.fixture
def patched(monkeypatch):
    """Patches are always the fastest, in tiles of so many copies and columns where these are given."""

    def force(copies=None, columns=64):
        def chosen(images, outputs, windows, target, across, words, *others):
            found = choose_patches(images, outputs, windows, target, across, words, *others)
            if copies is not None and found is not None:
                patch = (columns // 8, 8) if across else (8, 8 * copies)
                form = _Form(copies, columns, patch, across, target, 2 if words else 1)
                found = form.tiles(images, outputs, windows, *others)
            return found and replace(found, microseconds=0.0)

        monkeypatch.setattr(priced_product, "choose_patches", chosen)

    return force


CONVOLUTIONS = {
    "odd sizes": (lambda: nn.Conv2d(64, 40, 3, padding=1), (2, 64, 9, 19)),
    "dilated": (lambda: nn.Conv2d(64, 32, 3, dilation=2, padding=2), (1, 64, 11, 13)),
    "72 channels, no padding": (lambda: nn.Conv2d(72, 33, (2, 3)), (1, 72, 10, 12)),
    "lines of 16 bytes": (lambda: nn.Conv2d(64, 64, 3, padding=1), (1, 64, 8, 16)),
    "a residual": (lambda: Residual(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()), (1, 64, 6, 10)),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_channels_second(name, copies, small_gpu, patched):
    """The windows are the product's columns; two warpgroups have different outputs."""
    make, shape = CONVOLUTIONS[name]
    patched(copies, 48)
    assert ran(make(), shape, small_gpu) == 1


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_channels_last(name, copies, small_gpu, patched):
    """Between convolutions the windows are its rows; two warpgroups have patches side by side."""
    make, shape = CONVOLUTIONS[name]
    module = make()
    outputs = module(torch.zeros(shape)).shape[1]
    patched(copies)
    assert ran(nn.Sequential(module, nn.ReLU(), nn.Conv2d(outputs, 16, 1)), shape, small_gpu) >= 1


@pytest.mark.usefixtures("unassembled")
def test_an_open_number_of_images(small_gpu, patched):
    patched()
    module = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 24, 3, padding=1))
    assert ran(module, (2, 64, 6, 9), small_gpu, calls=(1, 3), dynamic_shapes={"args": ({0: BATCH},)}) == 2 * 3


def text_of(channels, filter_):
    """A convolution of three images of 9 x 7 pixels, its places, and the columns of an element of its filter."""
    depth, places = -(-channels // 64) * 64, (9, 7)
    numbers = {"dilations": (1, 1), "filter": filter_, "low": (1, 1), "places": places, "strides": (1, 1)}
    windows = ", ".join(f"{name} = array<i64: {a}, {b}>" for name, (a, b) in numbers.items())
    columns = prod(filter_) * depth
    return WINDOWS.format(channels=channels, columns=columns, places=prod(places), windows=windows), places, depth


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("channels, filter_", [(64, (3, 3)), (136, (1, 3)), (8, (3, 2))])
def test_the_interpreter_agrees(channels, filter_, swapped, patched):
    """Both orders of the operands, on integers, which sums hold exactly."""
    patched()
    text, places, depth = text_of(channels, filter_)
    filters = prod(filter_)
    if swapped:
        text = text.replace("tensor<3x63x40xf32>", "tensor<3x40x63xf32>").replace("(b, m, k)>, ", "(m, k)>, ")
        text = text.replace("-> (n, k)>", "-> (b, n, k)>").replace("ins(%m, %w : ", "ins(%w, %m : ")
        kinds = [f"tensor<{kind}x{filters * depth}xbf16>" for kind in (f"3x{prod(places)}", "40")]
        text = text.replace(", ".join(kinds), ", ".join(kinds[::-1]))
    module = mlir.parse(text, mlir.context())
    steps = [pipeline.make("schedule-products", "", "sm_90a"), pipeline.make("verify-dataflow", "", "sm_90a")]
    pipeline.run(module, steps)
    (kernel,) = dialect.kernels(module)
    assert mlir.walk(kernel, "kitsune.product")[0].opview.right_window is None or swapped
    random = np.random.default_rng(channels)
    x = random.integers(-2, 3, (3, 9, 7, channels)).astype(np.float32)
    f = random.integers(-2, 3, (40, *filter_, channels)).astype(np.float32)
    rows = np.pad(f, [(0, 0)] * 3 + [(0, depth - channels)]).reshape(40, -1)
    found = run(kernel, [x, rows])[0]
    around = np.pad(x, [(0, 0), (1, 9), (1, 9), (0, 0)])
    wanted = sum(around[:, y : y + places[0], x : x + places[1]] @ f[:, y, x].T for y, x in np.ndindex(*filter_))
    wanted = wanted.transpose(0, 3, 1, 2) if swapped else wanted
    np.testing.assert_array_equal(found.reshape(wanted.shape), wanted)


@given(
    *(st.integers(1, 80) for _ in range(3)),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
)
@settings(deadline=None, max_examples=200)
def test_chosen_tiles_fit(channels, height, width, filter_, dilation, across, words):
    """Slots and what tiles leave through fit shared memory, and a copy's windows lie in a slot."""
    windows = Windows((height, width), 8 * channels, filter_, (1, 1), (1, 1), (dilation, dilation), (height, width))
    found = choose_patches(3, 72, windows, TARGET, across, words, 2.0, 2, 256)
    assert (found is None) == (not takes_patches(windows))
    if found is None:
        assert prod(filter_) == 1 or prod(filter_) > MOST_ELEMENTS
        return
    seen = windows.seen(found.patch)
    filters = found.rows if across else found.columns
    held = 128 * (found.slots * prod(seen) + found.right_slots * filters)
    assert held + (found.copies * 2 * 64 * 128 if found.copied else 0) <= TARGET.shared_bytes
    down, right = windows.element(prod(filter_) - 1)
    count = found.columns if across else 64
    window = Window(down * seen[1] + right, seen[1], 0 if across else 8)
    assert window.rows(0 if across else found.copies - 1, count)[-1] == prod(seen) - 1


@pytest.mark.usefixtures("unassembled")
def test_a_filter_of_most_elements_has_a_kernel_and_one_of_more_another():
    model = nn.Conv2d(64, 64, 7, padding=3).bfloat16().eval()
    compiled = compile(model, (torch.randn(8, 64, 32, 32).bfloat16(),), target="sm_90a")
    assert not any("patches" in launch["computes"] for launch in compiled.plan["launches"])
    model = nn.Conv2d(128, 64, 5, padding=2).bfloat16().eval()
    compiled = compile(model, (torch.randn(8, 128, 64, 64).bfloat16(),), target="sm_90a")
    (launch,) = [launch for launch in compiled.plan["launches"] if "patches" in launch["computes"]]
    assert f"k {25 * 128}" in launch["computes"] and len(launch["tile"]) == 4


def released_without(text, ring):
    """The first product of the chunk of pixels that is released at the end is followed by its release at once."""
    lines = text.splitlines()
    ring_name = next(line.split(" = ")[0].strip() for line in lines if f'sym_name = "{ring}"' in line)
    waits = [line for line in lines if f'"kitsune.wait"({ring_name})' in line]
    slot, kind = waits[0].split(" = ")[0].strip(), waits[0].split("-> ")[1]
    first = next(i for i, line in enumerate(lines) if "kitsune.product" in line and f"{slot}," in line)
    last = next(i for i, line in enumerate(lines) if f'"kitsune.release"({slot},' in line)
    del lines[last]
    lines.insert(first + 1, f'"kitsune.release"({slot}) {{operandSegmentSizes = array<i32: 1, 0>}} : ({kind}) -> ()')
    return "\n".join(lines)


def scheduled():
    """The text of a convolution in tiles of two patches."""
    module = mlir.parse(text_of(64, (3, 3))[0], mlir.context())
    pipeline.run(module, [pipeline.make(name, "", "sm_90a") for name in ("schedule-products", "verify-dataflow")])
    return str(module)


def test_a_slot_that_is_released_with_no_token_is_refused(patched):
    patched(2)
    said = refused(mlir.parse(released_without(scheduled(), "left"), mlir.context()))
    assert "closes a slot of ring 'left' without the token of the product that reads it" in said


def test_a_window_beyond_its_slot_is_refused(patched):
    patched(2)
    text = scheduled()
    assert "window = array<i64: 38, 18, 8>" in text
    with pytest.raises(UserError, match="sees row 181 of"):
        mlir.parse(text.replace("window = array<i64: 38, 18, 8>", "window = array<i64: 40, 18, 8>"), mlir.context())
