"""How threads share a gradient by filters: all taps and channels have a thread, which holds few sums and words."""

import random

from kitsune_mlir.planning.filter_gradient import (
    MOST_SUMS,
    MOST_TAPS,
    MOST_WORDS,
    Convolution,
    columns,
    left_over,
    share,
)


def drawn(draw: random.Random) -> Convolution:
    dims = draw.choice([1, 2, 2, 3])
    kernel = tuple(draw.randint(1, {1: 60, 2: 9, 3: 4}[dims]) for _ in range(dims))
    stride, dilation = (tuple(draw.choice([1, 1, 2, 3]) for _ in range(dims)) for _ in range(2))
    padding = tuple(draw.randint(0, d * (k - 1) // 2) for k, d in zip(kernel, dilation, strict=True))
    sizes = tuple(d * (k - 1) + draw.randint(1, 60) for k, d in zip(kernel, dilation, strict=True))
    forms = zip(sizes, kernel, stride, dilation, padding, strict=True)
    places = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, d, p in forms)
    groups, inputs, outputs = draw.randint(2, 300), draw.choice([1, 1, 3, 4]), draw.choice([1, 1, 2, 4])
    return Convolution(
        batch=draw.randint(1, 64),
        sizes=sizes,
        places=places,
        example=places,
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        padding=padding,
        groups=groups,
        inputs=inputs,
        outputs=outputs,
        element_bytes=draw.choice([2, 4]),
    )


def test_all_is_shared():
    draw = random.Random(0)
    for _ in range(500):
        of = drawn(draw)
        found = share(of, 132)
        rows = 1
        for taps in of.kernel[:-1]:
            rows *= taps
        assert found.taps * found.segments >= of.kernel[-1] > found.taps * (found.segments - 1)
        assert found.rows * found.row_parts >= rows > found.rows * (found.row_parts - 1)
        assert of.neighbours % found.together == 0
        lanes = found.together * found.lanes * found.channel_blocks(of.channels)
        assert lanes >= of.channels
        assert found.taps <= MOST_TAPS and found.sums <= MOST_SUMS
        words = max(1, found.together * of.element_bytes // 4)
        strip = found.strip + len(columns(of, found.strip, found.taps))
        assert found.strip == 1 or strip * words <= MOST_WORDS
        assert found.parts >= 1


def test_strips_are_of_one_length_where_they_can_be():
    of = Convolution(64, (14, 14), (14, 14), (14, 14), (7, 7), (1, 1), (1, 1), (3, 3), 192, 1, 1, 2)
    found = share(of, 132)
    assert found.strip == 14 and not left_over(14, found.strip)
    assert left_over(None, 8) and left_over(15, 8) and not left_over(15, 1)
