"""Functions that torch-mlir has not, or has wrong: running extrema, medians, special functions, some convolutions."""

import math

import pytest
import torch
from decomposed_functions import TARGETS, check_error, results
from torch.nn import functional as F

FLOATS = [torch.float32, torch.bfloat16, torch.float16]
SPECIAL = [0.0, -0.0, 1, 2, -1, -2, 0.5, 1e-30, -1e-30, 1e30, -3e38, 1e-42, math.inf, -math.inf, math.nan]


def normal(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def ties():
    """Few numbers, NaN among the first and the later ones, infinities."""
    x = torch.randint(-3, 4, (5, 37), generator=torch.Generator().manual_seed(0)).float()
    x[1, [7, 20]], x[2, [3, 30]], x[3, 0], x[4] = math.nan, math.inf, -math.inf, -math.inf
    return x


RUNS = {
    "ties": (-1, ties()),
    "ties of bf16": (-1, ties().bfloat16()),
    "columns": (0, ties()),
    "in between": (1, normal(3, 17, 4)),
    "integers": (1, torch.arange(60).view(3, 20) % 7),
    "truth": (1, torch.arange(60).view(3, 20) % 7 > 5),
    "a number": (0, torch.tensor(2.0)),
    "one": (1, normal(3, 1)),
    "long": (1, normal(2, 1031)),
}
SHARED = ("ties of bf16", "columns", "in between", "a number", "one", "long")  # the same rule for both: `max` has them


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "name, operator",
    [*((name, torch.cummax) for name in RUNS), *((name, torch.cummin) for name in RUNS if name not in SHARED)],
)
def test_running_extrema(name, operator, target):
    dim, x = RUNS[name]
    for found, wanted in zip(
        results(lambda x: tuple(operator(x, dim)), x, target=target), operator(x, dim), strict=True
    ):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("target", TARGETS)
def test_running_logarithms_of_sums_do_not_overflow(target):
    x = ties() * 100
    found = results(lambda x: x.logcumsumexp(-1), x, target=target)[0]
    torch.testing.assert_close(found, x.logcumsumexp(-1), rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("length", [7, 8])
@pytest.mark.parametrize("operator", [torch.median, torch.nanmedian], ids=["median", "without NaN"])
def test_medians(operator, length, target):
    x = normal(5, length)
    x[1, 3], x[2], x[3, 0], x[4, [0, 6]] = math.nan, math.nan, math.inf, math.nan
    values, places, whole = results(lambda x: (*operator(x, 1), operator(x)), x, target=target)
    for found, wanted in ((values, operator(x, 1)[0]), (whole, operator(x))):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(x.gather(1, places[:, None])[:, 0], values, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("target", TARGETS)
def test_medians_of_integers(target):
    x = torch.arange(24).view(4, 6) * 7 % 11
    assert torch.equal(results(lambda x: x.median(1, True)[0], x, target=target)[0], x.median(1, True)[0])


def check_digits(function, *args, target, digits):
    """Each number is good to so many of its type's epsilons, and zero, infinite or NaN where the exact one is."""
    found, exact = results(function, *args, target=target)[0], function(*(x.double() for x in args))
    kind = torch.finfo(found.dtype)
    for condition in (torch.isnan, torch.isposinf, torch.isneginf):
        assert torch.equal(condition(found), condition(exact.to(found.dtype)))
    finite = exact.to(found.dtype).isfinite()
    off = (found.double() - exact)[finite].abs()
    assert (off <= digits * kind.eps * exact[finite].abs() + kind.smallest_normal * kind.eps).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [*FLOATS, torch.float64], ids=str)
def test_hypot(dtype, target):
    sizes = torch.logspace(-37, 37, 300, dtype=torch.float64) * normal(300)
    left, right = torch.meshgrid(torch.tensor(SPECIAL), torch.tensor(SPECIAL), indexing="ij")
    x, y = torch.cat([sizes, left.flatten()]), torch.cat([sizes * normal(300).roll(1), right.flatten()])
    check_digits(torch.hypot, x.to(dtype), y.to(dtype), target=target, digits=1)


APPROXIMATE = (torch.erfc, torch.erfinv)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("function", [torch.erfc, torch.erfinv, torch.lgamma, torch.digamma], ids=lambda f: f.__name__)
def test_special_functions(function, dtype, target):
    x = torch.cat([torch.tensor(SPECIAL), torch.linspace(-12, 9, 2001)]).to(dtype)
    check_digits(function, x, target=target, digits=6 if function in APPROXIMATE and dtype == torch.float32 else 1)


def bessel_functions(x):
    return torch.special.i0(x), torch.special.i0e(x), torch.special.i1(x), torch.special.i1e(x)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("number", range(4))
def test_bessel_functions(number, target):
    x = torch.cat([torch.tensor([0.0, 1e-30, 3.75, -3.75, 100, math.inf, math.nan]), torch.linspace(-85, 85, 801)])
    x = x[x.isfinite()] if number % 2 else x  # torch's own are NaN of infinity
    check_digits(lambda x: bessel_functions(x)[number], x, target=target, digits=80 if number in (0, 2) else 8)


@pytest.mark.parametrize("target", TARGETS)
def test_parts_of_normal_distributions(target):
    x = torch.linspace(-9, 12, 700)
    check_digits(torch.special.erfcx, x, target=target, digits=300)  # of the exponential of a square
    check_digits(torch.special.log_ndtr, torch.linspace(-30, -1, 300), target=target, digits=12)
    check_digits(torch.special.ndtri, torch.linspace(1e-6, 1, 801), target=target, digits=12)


@pytest.mark.parametrize("target", TARGETS)
def test_extrema_beside_nan_and_angles(target):
    x, y = torch.tensor([1.0, math.nan, 3, math.nan, -0.0, -2]), torch.tensor([2.0, 5, math.nan, math.nan, 4, -3])

    def functions(x, y):
        whole = x.nan_to_num().long(), y.nan_to_num().long()
        return torch.fmin(x, y), torch.fmax(x, y.half()), torch.fmax(*whole), torch.angle(x), torch.angle(whole[0])

    for found, wanted in zip(results(functions, x, y, target=target), functions(x, y), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("target", TARGETS)
def test_one_image_without_a_batch(target):
    def pools(x):
        return F.max_pool1d(x[0], 2), F.max_pool2d(x, 3, 2, 1), F.max_pool3d(x[None], 2)

    x = normal(4, 6, 8)
    for found, wanted in zip(results(pools, x, target=target), pools(x), strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("target", TARGETS)
def test_averages_of_volumes_over_windows_of_several_sizes(target):
    check_error(lambda x: F.adaptive_avg_pool3d(x, (2, 3, 5)), normal(2, 4, 7, 12), target=target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("include_self", [True, False])
def test_means_by_index_of_elements(include_self, target):
    index = torch.arange(40).view(5, 8) * 7 % 3

    def means(x, y):
        return torch.scatter_reduce(x, 0, index, y, "mean", include_self=include_self)

    check_error(means, normal(4, 8), normal(5, 8), target=target)


@pytest.mark.parametrize("target", TARGETS)
def test_truth_along_several_dimensions(target):
    def functions(x):
        return (x > -2).all((0, 2)), (x > 2).any((0, -1), keepdim=True), (x > -9).all((0, 1, 2)), (x << 3), (x >> 1)

    x = torch.arange(24).view(2, 3, 4) % 7 - 3
    for found, wanted in zip(results(functions, x, target=target), functions(x), strict=True):
        assert found.dtype == wanted.dtype and torch.equal(found, wanted)


TRANSPOSED = {
    "plain": {},
    "strides": {"stride": 2, "padding": 1, "output_padding": 1},
    "all": {"stride": 3, "dilation": 2, "padding": 2, "output_padding": 2},
    "cut": {"stride": 2, "padding": 3},
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name, dims", [*((name, 2) for name in TRANSPOSED), ("all", 1)])
def test_transposed_convolutions_of_one_channel_a_group(name, dims, target):
    function = {1: F.conv_transpose1d, 2: F.conv_transpose2d}[dims]
    x, weight, bias = normal(2, 4, *(9, 7)[:dims]), normal(4, 1, *(3, 2)[:dims]), normal(4)
    for dtype in (torch.float32, torch.bfloat16):
        args = [part.to(dtype) for part in (x, weight, bias)]
        check_error(lambda *args: function(*args, groups=4, **TRANSPOSED[name]), *args, target=target)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_products_that_are_added(dtype, target):
    matrix, vector = normal(6, 300).to(dtype), normal(300).to(dtype)
    added = lambda z, x, y: torch.addmv(z, x, y, beta=2, alpha=3)  # noqa: E731
    check_error(added, vector[:6].clone(), matrix, vector, target=target)
    stacks = normal(4, 5).to(dtype), normal(3, 4, 60).to(dtype), normal(3, 60, 5).to(dtype)
    check_error(lambda z, x, y: torch.addbmm(z, x, y, beta=2, alpha=3), *stacks, target=target)


PAIRS = {
    "Euclid's, near one another": lambda x, y: torch.cdist(x + 100, y + 100),
    "Euclid's, by a product": lambda x, y: torch.cdist(x, y, compute_mode="use_mm_for_euclid_dist"),
    "Euclid's, many": lambda x, y: torch.cdist(x.repeat(1, 8, 1), y),
    "Manhattan's": lambda x, y: torch.cdist(x, y, p=1),
    "of pairs": lambda x, y: torch.pdist(x[0]) + torch.pdist(x[0], p=1),
    "the third": lambda x, y: torch.cdist(x, y, p=3),
    "the largest": lambda x, y: torch.cdist(x, y, p=math.inf),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PAIRS)
def test_distances_of_pairs(name, target):
    check_error(PAIRS[name], normal(2, 4, 5), normal(2, 3, 5) + 1, target=target)


BITS = {
    "or": lambda i, j, b: (i | 3, b | False),
    "xor": lambda i, j, b: (i ^ 3, 5 ^ i, b ^ True),
    "shifts": lambda i, j, b: (i << j, i >> j, 1 << j, 1024 >> j),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", BITS)
def test_bits_and_numbers(name, target):
    args = torch.arange(-20, 20, dtype=torch.int32), torch.arange(40) % 7, torch.arange(40) % 3 > 0
    for found, wanted in zip(results(BITS[name], *args, target=target), BITS[name](*args), strict=True):
        assert found.dtype == wanted.dtype and torch.equal(found, wanted)


SEARCHES = {
    "one row of boundaries": lambda x, rows: torch.searchsorted(rows[0], x),
    "each row its own": lambda x, rows: torch.searchsorted(rows, x),
    "from the right": lambda x, rows: torch.searchsorted(rows, x, right=True, out_int32=True),
    "side": lambda x, rows: torch.searchsorted(rows[0].contiguous(), x, side="right"),
    "in an order": lambda x, rows: torch.searchsorted(rows.flip(-1), x, sorter=torch.arange(6).flip(0).expand(3, 6)),
}


@pytest.mark.filterwarnings("ignore:.*non-contiguous")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SEARCHES)
def test_places_among_boundaries(name, target):
    """Some elements are boundaries, before the first and behind the last; one is NaN."""
    rows = torch.tensor([[-2.0, -1, 0, 0, 1, 2]]) + torch.arange(3.0)[:, None]
    x = torch.tensor([[-3.0, -2, 0, 0.5, 2, 9, math.nan]]).repeat(3, 1)
    found, wanted = results(SEARCHES[name], x, rows, target=target)[0], SEARCHES[name](x, rows)
    assert found.dtype == wanted.dtype and torch.equal(found, wanted)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("count", [65, 127, 128])
def test_places_among_many_boundaries(count, target):
    """By halves: of one row, and of each row its own, from both sides."""
    rows = (normal(3, count) * 4).round().sort(-1).values
    x = torch.cat([rows[:, ::5], rows[:, ::7] + 0.5, torch.tensor([-99, 99, math.nan, math.inf]).expand(3, 4)], 1)

    def places(x, rows):
        alone = torch.bucketize(x[0, 0], rows[1])
        return torch.searchsorted(rows, x), torch.searchsorted(rows, x, right=True), torch.bucketize(x, rows[1]), alone

    for found, wanted in zip(results(places, x, rows, target=target), places(x, rows), strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_numbers_are_rounded_before_they_are_compared(kind):
    """0.1 of f32 is not 0.1 of f64; 1e6 is infinite in f16."""
    x = torch.tensor([0.1, 0.5, -2.0, torch.inf, torch.nan]).to(kind)

    def compared(x):
        return x == 0.1, x != 0.1, x <= 0.1, x < 1e6, x == 1e6, x > -0.3

    for found, wanted in zip(results(compared, x, target="cpu"), compared(x), strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("value", [1, 2.5, True])
@pytest.mark.parametrize("number", [1, 1.5, -1, True])
def test_constants_compared_with_numbers(value, number):
    """A tensor that the model makes, and numbers of its own kind and of others."""

    def compared(x):
        constant = torch.full((4,), value)
        return tuple(each(constant, number) for each in (torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge))

    x = normal(4)
    for found, wanted in zip(results(compared, x, target="cpu"), compared(x), strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_margins_of_classes_that_are_named_up_to_a_mark(reduction):
    """torch's own decomposition counts what stands behind the mark, too."""
    named = torch.tensor([[3, 0, -1, 1, 1], [2, -1, -1, -1, 4]])
    check_error(lambda x: F.multilabel_margin_loss(x, named, reduction=reduction), normal(2, 5), target="cpu")
