"""What the CPU target computes is what torch computes, where torch-mlir's own way would be wrong or refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import kitsune_mlir


class Function(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def check(function, *args, tolerance=0.0, calls=(), **options):
    """Compiles once, and compares the results of a call with the example arguments, and with each of `calls`."""
    model = Function(function)
    compiled = kitsune_mlir.compile(model, args, **options)
    for call in [args, *calls]:
        found, wanted = (torch.utils._pytree.tree_leaves(result) for result in (compiled(*call), model(*call)))
        assert len(found) == len(wanted)
        for value, expected in zip(found, wanted, strict=True):
            torch.testing.assert_close(value, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def test_nearest_upsampling_to_any_size():
    """Called with its sizes, which need not divide, and with scales besides."""
    upsample = torch.ops.aten.upsample_nearest2d

    def sizes(x):
        return [upsample(x, size) for size in ([7, 9], [3, 2], [8, 12])], upsample(x, [7, 9], 1.75, 1.5)

    check(sizes, torch.randn(1, 2, 4, 6))


def test_nearest_upsampling_repeats_elements():
    def sizes(line, image, block):
        found = [F.interpolate(image, scale_factor=factor) for factor in (2, (4, 1), 3, 1.5)]
        return [*found, F.interpolate(image, (10, 7)), F.interpolate(line, 24), F.interpolate(block, scale_factor=2)]

    args = (torch.randn(2, 3, 6), torch.randn(1, 2, 5, 7), torch.randint(0, 9, (1, 1, 3, 2, 3)).float())
    check(sizes, *args)
    compiled = kitsune_mlir.compile(Function(lambda x: F.interpolate(x, scale_factor=2)), args[1:2], target="sm_90a")
    assert [launch["computes"] for launch in compiled.plan["launches"]] == ["elementwise"]


def test_nearest_upsampling_of_any_number_of_images():
    x, images = torch.randn(2, 3, 4, 5), torch.export.Dim("images", min=0, max=16)
    calls = [(torch.randn(count, 3, 4, 5),) for count in (0, 1, 5)]
    check(lambda x: F.interpolate(x, scale_factor=2), x, calls=calls, dynamic_shapes=(({0: images},),))


def test_adaptive_max_pooling():
    sizes = [((5, 8), (2, 3)), ((6, 3), (3, 5))]
    images = [torch.randn(1, 2, *size) for size, _ in sizes]

    def pools(line, block, *images):
        flat = [F.adaptive_max_pool2d(x, out, return_indices=True) for x, (_, out) in zip(images, sizes, strict=True)]
        return flat, F.adaptive_max_pool1d(line, 3), F.adaptive_max_pool3d(block, (3, 2, 5))

    line = torch.tensor([[1.0, torch.nan, 2, 3, 4, 5, -torch.inf, -torch.inf]])
    check(pools, line, torch.randn(1, 7, 5, 3), *images)


BYTES = torch.tensor([10, 200, 255, 0, 128, 127], dtype=torch.uint8)
OTHER_BYTES = torch.tensor([3, 100, 250, 1, 7, 129], dtype=torch.uint8)


def test_uint8_has_no_sign():
    def arithmetic(x, y):
        alone = x / 2, x * 0.5, x.abs(), -x, ~x, x - 201, x // 3, x % 7, x << 1, x >> 1, x.float(), x.long()
        pairs = x + y, x * y, x // y, x % y, x > y, torch.maximum(x, y), torch.where(x < y, x, y), x + y.to(torch.int8)
        return alone, pairs, (x * 1.5).to(torch.uint8), (x.float() - 300).to(torch.uint8)

    def reductions(x, y):
        table = torch.arange(256.0)
        return (
            x.sum(),
            x.amax(),
            x.min(0),
            x.argmax(),
            x.sort(),
            x.cumsum(0),
            x.view(2, 3) @ y.view(3, 2),
            table[x.long()],
        )

    check(lambda x, y: (arithmetic(x, y), reductions(x, y)), BYTES, OTHER_BYTES)


def test_uint8_that_is_moved_is_not_widened():
    def moves(x):
        return torch.cat([x.view(2, 3).t().flip(0), x.view(3, 2)]), x[torch.tensor([1, 1, 4])], x.view(2, 3).unbind(1)

    compiled = kitsune_mlir.compile(Function(moves), (BYTES,))
    assert "extui" not in compiled.mlir("linalg")
    for found, wanted in zip(
        torch.utils._pytree.tree_leaves(compiled(BYTES)), torch.utils._pytree.tree_leaves(moves(BYTES))
    ):
        assert torch.equal(found, wanted)


def test_divisions_are_exact():
    def divisions(x, y):
        numbers = [(x // n, x % n, torch.div(x, n, rounding_mode="trunc"), torch.fmod(x, n)) for n in (49, -7)]
        return numbers, x // y, torch.div(x, y, rounding_mode="trunc"), torch.fmod(x, y), 7 // y, 7 % y

    x, y = torch.arange(-200, 200), torch.arange(400) % 23 - 11
    large = torch.tensor([2**53 + 1, 2**62 + 7, -(2**61) - 9, 3 * 2**55 - 1]).repeat(100)
    y[y == 0] = 5
    check(divisions, x, y, calls=[(large, y)])
    real = torch.arange(-200.0, 200.0)
    quotients = lambda x, y: (divisions(x, y), x // 0.1, torch.floor(x / 49), torch.floor(x / -7))  # noqa: E731
    check(quotients, real, y.float())
    check(quotients, real.double(), y.double())


def test_division_by_zero_is_an_error_and_the_least_number_has_no_negative():
    compiled = kitsune_mlir.compile(
        Function(lambda x, y: (x % y, x // y)), (torch.ones(2).long(), torch.ones(2).long())
    )
    with pytest.raises(kitsune_mlir.UserError, match="an integer is divided by zero"):
        compiled(torch.tensor([1, 2]), torch.tensor([1, 0]))
    rest, quotient = compiled(torch.tensor([-(2**63), 7]), torch.tensor([-1, -1]))
    assert rest.tolist() == [0, 0] and quotient.tolist() == [-(2**63), -7]


def test_one_tensor_as_two_example_arguments():
    x, y = torch.randn(3), torch.randn(3)
    check(lambda x, y: x - y, x, x, calls=[(x, y)])


def test_elementwise_operators():
    def real(x, y):
        close = torch.isclose(x, y, atol=0.3), torch.isclose(x, x, equal_nan=True)
        signs = torch.signbit(x[:, 1:]), torch.copysign(y, x[:, 1:2]), torch.copysign(x, -2.0)
        numbers = x.nan_to_num(), y.bfloat16().nan_to_num(2.0), x.half().nan_to_num(), x.nan_to_num(0.0, posinf=3.0)
        return torch.isfinite(x), close, signs, numbers, torch.ops.aten.threshold_backward(y, x.double(), 0.5)

    def whole(i, n):
        powers = i**0, i**3, i**7, i**2.5, i**n, 3**n, i ** (n - 2), i ** n.float()
        bounds = i.clamp(-1.5, 2.5), i.clamp(min=0.5), i.clamp(torch.tensor(-1.5), n), torch.clamp_max(i, 1.5)
        return powers, bounds, torch.isfinite(i), torch.signbit(i), torch.ops.aten.threshold_backward(i, n.float(), 1)

    x = torch.tensor([[torch.nan, torch.inf, -torch.inf, -0.0, 0.5], [1.0, -2.0, 0.0, 0.25, torch.inf]])
    check(real, x, x.flip(1) + 0.25, tolerance=1e-6)
    check(whole, torch.tensor([-3, -1, 0, 1, 2, 5]), torch.tensor([0, 3, 2, 5, 1, 4]), tolerance=1e-6)


def test_means_of_nothing_and_of_one_number():
    check(lambda x: (x.mean(0), x.mean(), x.mean(()), x.mean(-1, keepdim=True)), torch.tensor(2.5))
    check(lambda x: (x.mean(1), x.mean(), x.mean(0)), torch.empty(2, 0))


def test_nan_comes_through():
    def elementwise(x, y):
        bounds = x.clamp(-1, 1), x.clamp(min=0), F.relu6(x), F.hardtanh(x), F.hardsigmoid(x), x.clamp(y, y + 1)
        return bounds, torch.maximum(x, y), torch.minimum(x, y), torch.fmax(x, y), x == x, x.clone() == x.view(3, 5)

    def reductions(x):
        extrema = x.max(1), x.min(1), x.argmax(), x.argmin(0), x.amax(0)
        orders = x.sort(1), x.sort(0, descending=True), x.topk(2, 1)
        return extrema, orders, F.max_pool2d(x[None, None], 2, 1, return_indices=True)

    x = torch.tensor([[1, torch.nan, -2, torch.inf, 0.5], [3, 2, -torch.inf, -1, 7], [torch.nan, 1, 2, 8, -0.25]])
    check(lambda x, y: (elementwise(x, y), reductions(x)), x, x.flip(1), tolerance=1e-6)
    check(lambda x: (F.relu6(x), x.sort(1)), x.bfloat16())


def test_bags_begin_where_the_offsets_say():
    table = torch.randn(6, 4)

    def bags(indices, offsets, factors):
        kinds = [F.embedding_bag(indices, table, offsets, mode=mode) for mode in ("sum", "mean", "max")]
        more = F.embedding_bag(
            indices, table, offsets, per_sample_weights=factors, mode="sum", include_last_offset=True
        )
        return kinds, more, F.embedding_bag(indices, table, offsets, mode="mean", padding_idx=2)

    indices, offsets = torch.tensor([1, 5, 2, 2, 0, 3]), torch.tensor([0, 1, 4])
    check(
        bags,
        indices,
        offsets,
        torch.randn(6),
        tolerance=1e-6,
        calls=[(indices, torch.tensor([0, 0, 6]), torch.ones(6))],
    )
    check(lambda i, o: torch.ops.aten._embedding_bag(table, i, o, False, 2), indices, offsets)


def test_bags_of_one_size_are_sums_of_rows():
    rows = torch.export.Dim("rows", min=1, max=64)
    indices, table = torch.randint(6, (4, 3)), torch.randn(6, 4)
    check(
        lambda i: F.embedding_bag(i, table),
        indices,
        tolerance=1e-6,
        calls=[(indices[:2],)],
        dynamic_shapes=(({0: rows},),),
    )


def test_no_row_is_scattered():
    rows = {0: torch.export.Dim("rows", min=0, max=64)}
    into, indices, values = torch.randn(4, 5), torch.tensor([1, 3, 1]), torch.randn(3, 5)
    options = {"dynamic_shapes": ((None, rows, rows),), "calls": [(into, indices[:0], values[:0])]}
    check(
        lambda x, i, y: (x.index_add(0, i, y), x.index_put((i,), y * 0)),
        into,
        indices,
        values,
        tolerance=1e-6,
        **options,
    )


def test_masked_assignments_and_cutting_pads():
    def assign(x, mask, values):
        whole = x.index_put((x > 0,), torch.tensor(2.0)), x.index_put((mask,), values), x.index_put((mask,), values[:1])
        column = x.clone()
        column[:, mask] = values.t()
        return whole, column, x.index_put((mask,), values, accumulate=True)

    check(assign, torch.randn(3, 3), torch.tensor([True, False, True]), torch.randn(2, 3))
    check(lambda x: (F.pad(x, (-2, 1)), F.pad(x, (-2, -1)), F.pad(x, (1, -2, 3, -1), value=2.0)), torch.randn(3, 5))


def test_numbers_read_from_tensors():
    def numbers(x, y, n):
        scaled = x * (2 * float(y) + 1 - float(y) / 4) ** 2 - y.item()
        filled = x.masked_fill(x > y.item(), y.item()), torch.full((2,), float(y))
        return scaled, x + int(n), torch.arange(3) * float(y), filled, int(n) + 1, float(y), x.sum().item()

    check(numbers, torch.randn(3), torch.tensor(0.5), torch.tensor(3), tolerance=1e-5)
    with pytest.raises(
        kitsune_mlir.UnsupportedError, match=r"slice.*test_torch_values.py:\d+ is given a number that depends"
    ):
        kitsune_mlir.compile(Function(lambda x, n: x[: int(n)]), (torch.randn(3), torch.tensor(2)))


def test_a_number_is_returned_by_an_artifact(tmp_path):
    compiled = kitsune_mlir.compile(Function(lambda x: (x * 2, x.sum().item())), (torch.ones(3),))
    doubled, total = kitsune_mlir.load(compiled.save(tmp_path / "a.kitsune"))(torch.arange(3.0))
    assert total == 3.0 and isinstance(total, float) and doubled.tolist() == [0, 2, 4]


def test_elements_at_a_number_that_is_read():
    """Rows and columns, from the end too, of tables as of open sizes; and what is written there."""

    def taken(x, i):
        written = x.clone().index_put((i,), x[0] * 2).index_put((i, i), x[0, 0])
        return x[i], x[:, i] + 1, x[-1 - i], x[i, i], x[(i * 2).item() - i], torch.linspace(0, 1, 6)[i].sqrt(), written

    calls = [(torch.randn(4, 6), torch.tensor(0)), (torch.randn(9, 6), torch.tensor(4))]
    rows = torch.export.Dim("rows", min=3)
    check(taken, torch.randn(7, 6), torch.tensor(3), calls=calls, tolerance=1e-6, dynamic_shapes=(({0: rows}, None),))


def test_models_without_tensor_inputs_return_torch_tensors():
    check(lambda: (torch.ones(3).bfloat16(), torch.arange(3)))
    check(lambda n: torch.ones(3) * n, 4)


def test_views_of_torchs_primitives():
    prims = torch.ops.prims

    def views(x):
        reshaped = prims.split_dim(prims.view_of(x), 1, 2) * 2, prims.squeeze(x[None], [0]) * 2
        return reshaped, prims.transpose(x, [1, 0]) * 2, prims.broadcast_in_dim(x, [2, 3, 6], [0, 2]) * 2

    check(views, torch.randn(2, 6))


def test_what_cannot_be_imported_is_named():
    def refused(function, *args):
        with pytest.raises(kitsune_mlir.UnsupportedError) as error:
            kitsune_mlir.compile(Function(function), args)
        return str(error.value)

    def loop(x):
        return torch.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))

    x = torch.randn(4)
    assert "test_torch_values.py" in (message := refused(loop, x)) and "while_loop" in message
    assert "complex numbers" in refused(lambda x: torch.fft.rfft(x).asin().abs(), x)
    assert "imaginary" in refused(lambda x: x.real, torch.view_as_complex(torch.randn(4, 2)))
