"""What a model changes in place between two operators, which a rule would have put together, is seen where torch sees
it."""

import pytest
import torch
from functions import Function

import kitsune_mlir


def scores_after(x, y):
    both = torch.cat([x, y], -1)
    x.mul_(2)
    return both.softmax(-1)[..., :-1] + 0


def concatenation(x, y):
    both = torch.cat([x, y], -1)
    both[:, 0] = 5
    return both.softmax(-1)[..., :-1] + 0


def strided_whole(x, y):
    whole = x * 1
    lines = whole.as_strided((3, 4), (2, 5))
    whole[0] = 9
    return lines + 1


def strided_part(x, y):
    whole = x * 1
    whole.as_strided((3, 4), (4, 1))[0].mul_(2)
    return whole + 1


def of_another(x, y):
    lines = (x * 2).t().as_strided((3, 4), (4, 1))
    y.mul_(2)
    return lines + 1, y + 1


def start_of_a_sort(x, y):
    largest = x.sort(-1, descending=True).values
    first = largest[:, :5]
    largest.mul_(2)
    return first + 0, largest[:, :3] + 0


def chosen_places(x, y):
    places = x.expand(1024, -1, -1).topk(2).indices
    flat = places.view(-1)
    places.mul_(20)
    return flat.sort(stable=True)


def repeated_places(x, y):
    places = (y.abs() * 2).long().clamp(max=2)
    spread = places.repeat(1, 16)
    places.add_(1)
    return x.gather(0, spread)


@pytest.mark.parametrize(
    "function",
    [
        *(scores_after, concatenation, strided_whole, strided_part, of_another),
        *(start_of_a_sort, chosen_places, repeated_places),
    ],
)
def test_what_is_written_between(function):
    torch.manual_seed(0)
    args = torch.randn(4, 16), torch.randn(4, 1)
    wanted = function(*(x.clone() for x in args))
    found = kitsune_mlir.compile(Function(function), args, target="cpu")(*(x.clone() for x in args))
    if isinstance(wanted, torch.Tensor):
        found, wanted = [torch.as_tensor(found)], [wanted]
    for ours, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(torch.as_tensor(ours), exact)
