"""Elements at places that tensors without dimensions say, read and written, of known and of open sizes."""

import pytest
import torch

import kitsune_mlir
from kitsune_mlir.errors import UnsupportedError, UserError


def row(x, i):
    x[i] = 1.0


def column(x, i):
    x[:, i] = x[:, 0] * 3


def element(x, i):
    x[1, i] = 5.0


def added(x, i):
    x[..., i] += 1


def lower(x, i):
    x[:2, i] = torch.arange(2)


def crossing(x, i):
    x[i, i - 1] = x[i, i]


def beside_others(x, i):
    x[torch.arange(2), i] = 9.0


def new_dimension(x, i):
    x[:, i, None] = x[:, :1]


def window(x, i):
    end = i + 2
    x[:, i:end] = x[:, :2] * 3


def added_to_windows(x, i):
    x[i : i + 1] += 1
    x[i, 1:3] += x[0, 0]
    x[:, i - 1 : i + 1] *= 2


def crossing_windows(x, i):
    x[i - 1 : i + 1, i : i + 1] = x[:2, :1]


def at_a_number(x, i):
    start = i.item()
    x[:, start : start + 2] = x[:, start : start + 1]


WRITES = row, column, element, added, lower, crossing, beside_others, new_dimension
WINDOW_WRITES = window, added_to_windows, crossing_windows, at_a_number
READS = {
    "row": lambda x, i: x[i],
    "column": lambda x, i: x[:, i],
    "last dimension": lambda x, i: x[..., i] * 2,
    "element": lambda x, i: x[i, i],
    "computed": lambda x, i: x[i + 1, i // 2] + x[-i],
    "beside others": lambda x, i: x[torch.arange(3), i],
    "before others": lambda x, i: x[i, torch.arange(3)],
    "between": lambda x, i: x[:, None, i, ...],
    "with new dimensions": lambda x, i: x[None, i, :, None],
    "every column": lambda x, i: torch.stack([x[:, j] * i for j in torch.arange(4)]),
}


WINDOWS = {
    "columns": lambda x, i: x[:, i : i + 2] * 2,
    "row": lambda x, i: x[i : i + 1].squeeze(0) + x[i - 1],
    "computed": lambda x, i: x[1:, 2 * i - 1 : 2 + (i + i) - 1],
    "second elements": lambda x, i: x[:, i - 1 : i + 2 : 2],
    "place and window": lambda x, i: x[None, i, i - 1 : i + 1],
    "parts": lambda x, i: x.narrow(1, i, 2) + torch.narrow(x, 1, i.item() - 1, 2),
    "as many as there are": lambda x, i: torch.cat([x, x * 2])[i - 1 : x.shape[0] + i - 1],
}


class Writes(torch.nn.Module):
    def __init__(self, write):
        super().__init__()
        self.write = write

    def forward(self, x, i):
        x = x.clone()
        self.write(x, i)
        return x


class Reads(torch.nn.Module):
    def __init__(self, read):
        super().__init__()
        self.read = read

    def forward(self, x, i):
        return self.read(x, i)


def check(model, is_open, places=(2, 0, -2)):
    shapes = ({0: torch.export.Dim("rows", min=2)}, None) if is_open else None
    compiled = kitsune_mlir.compile(model, (torch.randn(4, 5), torch.tensor(2)), dynamic_shapes=shapes)
    for place in places:
        args = torch.randn(7 if is_open else 4, 5), torch.tensor(place)
        torch.testing.assert_close(torch.as_tensor(compiled(*args)), model(*args))


@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
@pytest.mark.parametrize("write", WRITES)
def test_writes(write, is_open):
    check(Writes(write), is_open)


@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
@pytest.mark.parametrize("name", READS)
def test_reads(name, is_open):
    check(Reads(READS[name]), is_open)


@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
@pytest.mark.parametrize("model", [*map(Reads, WINDOWS.values()), *map(Writes, WINDOW_WRITES)])
def test_windows(model, is_open):
    """Between two numbers that are as far apart as the trace says."""
    check(model, is_open, places=(1, 2))


def test_windows_that_torch_cuts():
    """Those of other sizes than others are no results."""
    compiled = kitsune_mlir.compile(Reads(WINDOWS["columns"]), (torch.randn(4, 5), torch.tensor(2)))
    x = torch.randn(4, 5)
    torch.testing.assert_close(compiled(x, torch.tensor(-3)), x[:, -3:-1] * 2)
    for place in (4, -1, -6):
        with pytest.raises(UserError, match="out of range"):
            compiled(x, torch.tensor(place))


class Cache(torch.nn.Module):
    """A step of attention that writes its key at the place of its token."""

    def __init__(self, of_one=False):
        super().__init__()
        self.of_one = of_one
        self.register_buffer("keys", torch.zeros(2, 3, 8, 4))
        self.key = torch.nn.Linear(4, 12)

    def forward(self, x, place):
        key = self.key(x).view(2, 3, 4)
        if self.of_one:
            self.keys[:, :, place : place + 1] = key[:, :, None]
        else:
            self.keys[:, :, place] = key
        scores = (key[:, :, None] @ self.keys.mT).masked_fill(torch.arange(8) > place, -torch.inf)
        return scores.softmax(-1) @ self.keys


@torch.no_grad()
@pytest.mark.parametrize("of_one", [False, True])
def test_a_cache_is_filled(of_one):
    model = Cache(of_one)
    compiled = kitsune_mlir.compile(model, (torch.randn(2, 4), torch.tensor(3)))
    for place in range(4):
        args = torch.randn(2, 4), torch.tensor(place)
        torch.testing.assert_close(torch.as_tensor(compiled(*args)), model(*args))


def test_places_out_of_range():
    compiled = kitsune_mlir.compile(Writes(row), (torch.randn(4, 5), torch.tensor(2)))
    with pytest.raises(UserError, match="out of range"):
        compiled(torch.randn(4, 5), torch.tensor(4))


def test_what_is_read_is_not_written_through():
    """Refused, for all that torch writes there is the copy."""

    def write(x, i):
        x[i].mul_(2)
        x[:, i][1:].add_(1)

    try:
        check(Writes(write), is_open=False)
    except UnsupportedError as error:
        assert "in place" in str(error) or "depends on the data" in str(error)
