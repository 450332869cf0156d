"""Operators on numbers where they are apt to differ from torch's: infinities, NaN, integers that wrap, booleans."""

from math import inf, nan

import pytest
import torch
from functions import Function, on_both

REAL = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.5, 7.0, 1e10, inf, -inf, nan]
WHOLE = [0, 1, -1, 2, -2, 3, 7, -7, 100, 127, -127]
LARGE = {torch.int32: [2**31 - 1, 2**16, 46341], torch.int64: [2**63 - 1, 2**31 - 1, 2**32 + 1, 2**62, -(2**31) - 1]}


def of_real_numbers(x, y):
    return {
        "floor": torch.floor_divide(x, y),
        "floor by a number": (x // 3, x // -0.5),
        "trunc": torch.div(x, y, rounding_mode="trunc"),
        "threshold": torch.nn.functional.threshold(x, 0.5, 2.0),
    }


def of_whole_numbers(x, y):
    return {
        "floor": x // torch.where(y == 0, 2, y),
        "floor by a number": (x // 3, x // -3),
        "powers": (x**y, 2**y, x**2),
        "threshold": torch.nn.functional.threshold(x, 1, 2),
        "nan_to_num": x.nan_to_num(),
    }


def of_booleans(x, y):
    return {"clamp": (x.clamp(min=y), x.clamp(max=y)), "powers": (x**2, x**0, x.square())}


def cases():
    for dtype in (torch.float32, torch.bfloat16):
        yield of_real_numbers, torch.tensor(REAL, dtype=dtype)
    for dtype in (torch.int8, torch.int32, torch.int64):
        yield of_whole_numbers, torch.tensor([*WHOLE, *LARGE.get(dtype, [])], dtype=dtype)
    yield of_whole_numbers, torch.tensor([0, 1, 2, 3, 7, 100, 128, 200, 255], dtype=torch.uint8)
    yield of_booleans, torch.tensor([False, True])


@pytest.mark.parametrize(("function", "numbers"), list(cases()), ids=lambda x: str(getattr(x, "dtype", "")))
def test_operators(function, numbers):
    """Each number is paired with each."""
    args = [each.contiguous() for each in torch.meshgrid(numbers, numbers, indexing="ij")]
    wanted = torch.utils._pytree.tree_flatten_with_path(function(*args))[0]
    for call in on_both(Function(function), args):
        found = torch.utils._pytree.tree_leaves(call(*args))
        for (path, one), other in zip(wanted, found, strict=True):
            torch.testing.assert_close(torch.as_tensor(other), one, rtol=0, atol=0, equal_nan=True, msg=str(path))


def test_angles_of_zeros_that_are_known():
    """MLIR folds them to NaN."""

    def angles(x):
        zeros = torch.zeros_like(x)
        return torch.cat([torch.atan2(x, x), torch.atan2(zeros, zeros), torch.atan2(-zeros, -zeros)])

    x = torch.tensor([0.0, -0.0, 1.0, -1.0])
    for call in on_both(Function(angles), (x,)):
        torch.testing.assert_close(torch.as_tensor(call(x)), angles(x))
