"""The matrix of windows: in numpy beside torch's unfold, and as the copy engine's model reads it."""

from dataclasses import replace
from itertools import product

import numpy as np
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kitsune_mlir.planning import target
from kitsune_mlir.planning.product_tiles import choose
from kitsune_mlir.planning.tap_sums import TapSums
from kitsune_mlir.planning.windows import Windows, split
from kitsune_mlir.schedule.windows import matrix
from kitsune_mlir.tools.gpusim import tma


@st.composite
def cases(draw, channels):
    """Images, and windows on them that a convolution has."""
    space = range(draw(st.integers(1, 3)))
    sizes = tuple(draw(st.integers(1, 6)) for _ in space)
    kernel = tuple(draw(st.integers(1, 3)) for _ in space)
    strides = tuple(draw(st.integers(1, 4)) for _ in space)
    dilations = tuple(draw(st.integers(1, 2)) for _ in space)
    low, high = (tuple(draw(st.integers(0, 3)) for _ in space) for _ in range(2))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    room = [size + before + behind - own for size, before, behind, own in zip(sizes, low, high, reach)]
    assume(min(room) >= 0)
    places = tuple(left // stride + 1 for left, stride in zip(room, strides))
    found = Windows(sizes, draw(channels), kernel, strides, low, dilations, places)
    return found, high, draw(st.integers(1, 3))


def images_of(windows, batch):
    count = batch * windows.channels * np.prod(windows.sizes)
    shape = (batch, *windows.sizes, windows.channels)
    return np.arange(1, count + 1, dtype=np.float32).reshape(shape)


def pitches_of(windows):
    found = [1]
    for size in (windows.channels, *reversed(windows.sizes)):
        found.append(found[-1] * size)
    return tuple(reversed(found))


@settings(deadline=None)
@given(cases(st.integers(1, 80)))
def test_columns_times_filters_are_a_convolution(case):
    windows, high, batch = case
    images = images_of(windows, batch) % 7 - 3
    filters = np.random.default_rng(0).integers(-2, 3, (2, windows.channels, *windows.filter)).astype(np.float32)
    found = matrix(images, windows, pitches_of(windows))
    last = np.moveaxis(filters, 1, -1)
    last = np.pad(last, [(0, 0)] * (last.ndim - 1) + [(0, windows.depth - windows.channels)])
    convolve = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}[len(windows.sizes)]
    around = [n for before, behind in reversed(list(zip(windows.low, high))) for n in (before, behind)]
    padded = torch.nn.functional.pad(torch.tensor(np.moveaxis(images, -1, 1).copy()), around)
    wanted = convolve(padded, torch.tensor(filters), stride=windows.strides, dilation=windows.dilations)
    own = found @ last.reshape(2, -1).T
    np.testing.assert_array_equal(np.moveaxis(own, -1, 1).reshape(wanted.shape), wanted.numpy())


def test_blocks_of_channels_have_rows_of_their_own():
    whole = Windows((5, 4), 128, (3, 2), (2, 1), (1, 0), (1, 2), (3, 2))
    images = images_of(whole, 2)
    blocks = matrix(images, replace(whole, blocks=2), pitches_of(whole))
    one = replace(whole, channels=64)
    for number in range(2):
        own = np.ascontiguousarray(images[..., number * 64 : (number + 1) * 64])
        np.testing.assert_array_equal(blocks[:, :, number], matrix(own, one, pitches_of(one)))


@settings(deadline=None)
@given(cases(st.sampled_from([8, 64, 72])), st.data())
def test_the_copy_engine_reads_rows_of_the_matrix(case, data):
    """From any row of any image on: the windows of images behind each other."""
    windows, _, batch = case
    assume(windows.unreadable() is None)
    images = images_of(windows, batch)
    whole = matrix(images, windows, pitches_of(windows)).reshape(-1, windows.columns)
    row = data.draw(st.integers(0, len(whole) - 1))
    element = data.draw(st.integers(0, np.prod(windows.filter) - 1))
    channel = data.draw(st.sampled_from(range(0, windows.depth, 64)))
    described = {
        "element": "f32",
        "dims": [windows.channels, *reversed(windows.sizes), batch],
        "strides": [4 * pitch for pitch in reversed(pitches_of(windows)[:-1])],
        "box": [64, 16],
        "swizzle": 0,
        **{name: list(reversed(getattr(windows, name))) for name in ("lower", "upper")},
        "steps": list(reversed(windows.strides)),
    }
    map_ = tma.encode(described, 0, 0)
    image, place = divmod(row, windows.count)
    begin = [i * stride - low for i, stride, low in zip(split(place, windows.places), windows.strides, windows.low)]
    at = [channel, *reversed(begin), image, *reversed(windows.element(element))]
    offsets, exists, _ = tma._pieces(map_, at)
    found = np.where(exists, images.reshape(-1)[offsets // 4], 0).reshape(16, 64)
    first = element * windows.depth + channel
    wanted = whole[row : row + 16, first : first + 64]
    np.testing.assert_array_equal(found[: len(wanted)], wanted)
    assert not found[len(wanted) :].any()


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_split_numbers_indices_in_order(sizes):
    assert [split(n, tuple(sizes)) for n in range(np.prod(sizes))] == list(product(*map(range, sizes)))


def test_what_the_copy_engine_cannot_read():
    def reason(sizes, kernel=3, stride=1, low=1, dilation=1, places=5):
        rank = len(sizes)
        return Windows(sizes, 8, *((n,) * rank for n in (kernel, stride, low, dilation, places))).unreadable()

    assert reason((5, 5)) is None
    assert reason((5,) * 4) == "it has 4 dimensions of space"
    assert reason((99,), stride=9) == "its windows are 9 elements apart"
    assert "begin (-17, -17, -17)" in reason((5, 5, 5), low=17)
    assert "reaches 300 elements" in reason((99, 99), kernel=2, dilation=300, places=90)


def square(size, channels, kernel):
    """Windows of every place of an image of equal sides, or of a volume, with zeros around it."""
    rank = 2 if kernel == 3 else 3
    ones, sides = (1,) * rank, (size,) * rank
    return Windows(sides, channels, (kernel,) * rank, ones, (kernel // 2,) * rank, ones, sides)


def test_the_price_knows_what_is_behind_the_channels_and_what_the_l2_gives():
    """As an H100 took: 5 x 5 x 5 of a volume of 8 channels in chunks of 64, and 3 x 3 of 16 images of 64 channels."""
    chip = target.load("sm_90a")

    def microseconds(windows, images, outputs):
        chunks = windows.chunks("right", windows.pitches)
        sizes = images, outputs, windows.count, windows.columns
        return choose(*sizes, False, 1, chip, short=frozenset(["left"]), windows=chunks).price.us

    volume = square(64, 8, 5)
    assert 1000 < microseconds(volume, 1, 16) < 1250
    assert microseconds(volume.narrow(volume.pitches), 1, 16) < 400
    assert 11 < microseconds(square(56, 64, 3), 16, 64) < 17


def test_chunks_have_as_many_columns_as_are_copied_soonest():
    found = {n: square(32, n, 3) for n in (3, 16, 24, 40, 64, 72, 96, 128)}
    chunks = {n: own.narrow(own.pitches).chunk for n, own in found.items()}
    assert chunks == {3: 16, 16: 16, 24: 32, 40: 48, 64: 64, 72: 48, 96: 48, 128: 64}


def test_few_outputs_of_many_channels_are_sums():
    chip = target.load("sm_90a")
    for outputs, channels, kernel, sums in (
        (2, 64, 3, True),
        (4, 256, 3, True),
        (64, 64, 3, False),
        (32, 4, 3, False),
    ):
        assert TapSums(8, outputs, square(128, channels, kernel), 2, 1, False).is_faster(chip) == sums
    narrow = square(256, 48, 3)  # of full f32 elements are six pairs of pieces, each read for every element of a filter
    assert TapSums(4, 3, narrow, 4, 6, False).is_faster(chip)
    assert not TapSums(4, 3, narrow, 2, 1, False).is_faster(chip)
