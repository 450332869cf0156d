"""Views of tensors of which two sizes are open until the call, on a CPU and in the GPU simulator."""

import pytest
import torch
from functions import OfOne, on_both
from torch import nn

import kitsune_mlir
from kitsune_mlir.errors import UserError

pytestmark = pytest.mark.usefixtures("unassembled")

BATCH, LENGTH = torch.export.Dim("batch", min=2, max=64), torch.export.Dim("length", min=2, max=64)
SIZES = ((3, 7), (2, 13), (5, 3))


def check(model, shape):
    """The model of a tensor [batch, length, *shape], at the sizes of the example and at others."""
    model = model.eval()
    example = torch.randn(*SIZES[0], *shape)
    with torch.no_grad():
        for run in on_both(model, (example,), dynamic_shapes=({0: BATCH, 1: LENGTH},)):
            for sizes in SIZES:
                x = torch.randn(*sizes, *shape)
                torch.testing.assert_close(torch.as_tensor(run(x)), model(x), rtol=1e-5, atol=1e-5)


def there_and_back(x):
    """Rows of batches and lengths together, then apart again, with columns parted otherwise."""
    batch, length = x.shape[:2]
    rows = x.reshape(batch * length, 4, 4) * 2
    return rows.sum(1).view(batch, -1, 4) + rows.reshape(batch, length, 16)[..., :4]


class Pairs(nn.Module):
    """A network of each row beside each other one of its batch."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x):
        length = x.shape[1]
        both = [x.unsqueeze(2).expand(-1, -1, length, -1), x.unsqueeze(1).expand(-1, length, -1, -1)]
        return self.net(torch.cat(both, -1)).squeeze(-1).softmax(-1) @ x


VIEWS = {
    "flattened": ((16,), lambda x: x.flatten(0, 1) + 1),
    "flattened, columns too": ((2, 8), lambda x: x.view(-1, 16) + 1),
    "one behind the other": ((2, 8), lambda x: x.reshape(-1) + 1),
    "heads beside lengths": ((16,), lambda x: x.view(x.shape[0], x.shape[1] * 2, 8) + 1),
    "heads beside batches": ((2, 8), lambda x: x.permute(0, 2, 1, 3).reshape(x.shape[0] * 2, x.shape[1], 8) + 1),
    "lengths and columns": ((16,), lambda x: x.view(x.shape[0], -1) + 1),
    "there and back": ((16,), there_and_back),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(name):
    torch.manual_seed(0)
    shape, function = VIEWS[name]
    check(OfOne(function), shape)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer(norm_first):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True, norm_first=norm_first)
    check(layer, (16,))


def test_pairs():
    torch.manual_seed(0)
    check(Pairs(), (4,))


def test_columns_repeated():
    """torch-mlir says the result's sizes at the call, and that one of them is the rows' it does not see."""
    torch.manual_seed(0)
    layer = nn.Linear(32, 16)
    model, rows = OfOne(lambda x: layer(x.repeat(1, 8))).eval(), torch.export.Dim("rows", min=1, max=100)
    with torch.no_grad():
        for run in on_both(model, (torch.randn(5, 4),), dynamic_shapes=({0: rows},)):
            for count in (5, 1, 40):
                x = torch.randn(count, 4)
                torch.testing.assert_close(torch.as_tensor(run(x)), model(x), rtol=1e-5, atol=1e-5)


def test_an_open_size_that_takes_in_a_known_one():
    """Channels as rows of the batch and back, as where series of many channels are treated one by one."""
    model = OfOne(lambda x: x.reshape(x.shape[0] * 3, 5, -1).softmax(1).reshape(x.shape[0], 3, -1))
    for run in on_both(model, (torch.randn(4, 3, 5, 8),), dynamic_shapes=({0: BATCH},)):
        for batch in (4, 7):
            x = torch.randn(batch, 3, 5, 8)
            torch.testing.assert_close(torch.as_tensor(run(x)), model(x), rtol=1e-5, atol=1e-5)


class Table(nn.Module):
    """What stands at pairs of places, counted from either end, of so many rows as there are pairs."""

    def forward(self, x, i, j):
        return x[i, j], x.expand(2, 5, 6)[:, i, j - 6], x[None][0, i[:, None], j]


def test_an_open_number_of_pairs_of_places():
    model, pairs = Table(), {0: BATCH}

    def draw(count):
        return torch.randn(5, 6), torch.randint(5, (count,)), torch.randint(6, (count,))

    runs = on_both(model, draw(4), dynamic_shapes=(None, pairs, pairs))
    for run in runs:
        for count in (4, 7):
            args = draw(count)
            for found, wanted in zip(run(*args), model(*args), strict=True):
                torch.testing.assert_close(torch.as_tensor(found), wanted, rtol=0, atol=0)
    x, i, j = draw(3)
    with pytest.raises(UserError, match=r"test_open_views.py:\d+: an index is out of range"):
        runs[0](x, i, j + 6)


class Slots(nn.Module):
    """As many rows as columns in each element of a batch, so that a size is given as that of either."""

    def __init__(self):
        super().__init__()
        self.keys, self.values = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        chosen = torch.einsum("bid,bjd->bij", x[:, :3], self.keys(x)).softmax(1)
        return torch.einsum("bjd,bij->bid", self.values(x), chosen)


def test_rows_as_many_as_columns():
    torch.manual_seed(0)
    model = Slots().eval()
    compiled = kitsune_mlir.compile(model, (torch.randn(4, 8, 8),), dynamic_shapes=({0: BATCH},))
    x = torch.randn(7, 8, 8)
    torch.testing.assert_close(torch.as_tensor(compiled(x)), model(x).detach(), rtol=1e-5, atol=1e-5)


class Pixels(nn.Module):
    """Of images of any size: a norm of channels, attention among pixels, and norms of rows of pixels."""

    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x):
        batch, channels, height, width = x.shape
        tokens = self.norm(x).flatten(2).transpose(1, 2)
        found = nn.functional.scaled_dot_product_attention(tokens, tokens, tokens).transpose(1, 2).reshape(x.shape)
        rows = nn.functional.layer_norm(tokens, (channels,)).unflatten(1, (height, width)).permute(0, 3, 1, 2)
        return found + rows, x.flatten(2).softmax(-1).view_as(x)


def test_images_of_any_size():
    sizes = {d: torch.export.Dim(name, min=2, max=64) for d, name in ((0, "batch"), (2, "height"), (3, "width"))}
    model = Pixels().eval()
    for run in on_both(model, (torch.randn(2, 8, 6, 5),), dynamic_shapes=(sizes,)):
        for shape in ((2, 8, 6, 5), (3, 8, 4, 9)):
            x = torch.randn(shape)
            for found, wanted in zip(run(x), model(x), strict=True):
                torch.testing.assert_close(torch.as_tensor(found), wanted.detach(), rtol=1e-4, atol=1e-5)


def test_copies_of_tensors_that_may_be_empty():
    """A view by -1 beside sizes of which one is none divides by it."""
    batch, length = (torch.export.Dim(name, min=0, max=64) for name in ("batch", "length"))
    model = OfOne(lambda x: (x.repeat(1, 2, 1), x.sum(1).repeat(2, x.shape[1]), x.repeat(2, 1, 1, 3)))
    for run in on_both(model, (torch.randn(3, 5, 4),), dynamic_shapes=({0: batch, 1: length},)):
        for sizes in ((3, 5), (1, 1), (0, 3), (2, 0), (0, 0)):
            x = torch.randn(*sizes, 4)
            for found, wanted in zip(run(x), model(x), strict=True):
                torch.testing.assert_close(torch.as_tensor(found), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.view(-1, 2, 4).sum(1),
        lambda x: x.view(x.shape[0] // 2, 2, 4).softmax(0),
        lambda x: torch.stack(x.view(-1, 2, 4).unbind(1)),
        lambda x: x.unflatten(0, (-1, 2)).amax(1),
        lambda x: x.t().reshape(4, -1, 2).sum(-1),
    ],
)
def test_parts_of_sizes_that_nothing_is_said_of(function):
    """torch computes the 2 of what is open, n // (n // 2)."""
    shapes = ({0: torch.export.Dim.AUTO},)
    compiled = kitsune_mlir.compile(OfOne(function), (torch.randn(6, 4),), target="cpu", dynamic_shapes=shapes)
    for rows in (6, 4, 18):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x), function(x))


class Heads(nn.Module):
    """Attention behind convolutions, whose heads are taken apart by a view of -1."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(3, 3, 3, 2), nn.Conv1d(3, 3, 3, 2), nn.Conv1d(3, 16, 3, 2))

    def forward(self, x):
        rows = self.layers(x).transpose(1, 2)
        heads = rows.unflatten(2, (4, 4)).transpose(1, 2).flatten(0, 1)
        scores = torch.bmm(heads, heads.transpose(1, 2))
        scores = scores.view(-1, 4, scores.size(-2), scores.size(-1)).softmax(-1)
        mixed = torch.bmm(scores.view(-1, scores.size(-2), scores.size(-1)), heads)
        return mixed.view(-1, 4, mixed.size(-2), mixed.size(-1)).permute(0, 2, 1, 3).flatten(2)


def test_heads_beside_sizes_that_convolutions_leave():
    """torch has a quotient of symbols for the 4 that such a view is given."""
    model, sizes = Heads().eval(), ({0: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO},)
    compiled = kitsune_mlir.compile(model, (torch.randn(2, 3, 80),), dynamic_shapes=sizes)
    for batch, length in ((2, 80), (3, 51)):
        x = torch.randn(batch, 3, length)
        torch.testing.assert_close(compiled(x), model(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.nn.functional.pixel_unshuffle(x, 2),
        lambda x: torch.nn.functional.pixel_shuffle(torch.nn.functional.pixel_unshuffle(x, 2).cos(), 2),
        lambda x: x.view(*x.shape[:2], x.shape[2] // 2, 2, x.shape[3] // 2, 2).transpose(3, 4).flatten(4).softmax(-1),
    ],
    ids=["unshuffle", "there and back", "windows"],
)
def test_windows_of_images_of_any_size(function):
    """[n, m] viewed as [n // 2, 2, m // 2, 2], where torch knows only of all elements that none is left over."""
    sizes = ({d: torch.export.Dim.AUTO for d in (0, 2, 3)},)
    for run in on_both(OfOne(function), (torch.randn(2, 4, 8, 12),), dynamic_shapes=sizes):
        for shape in ((2, 4, 8, 12), (3, 4, 6, 10), (1, 4, 4, 6)):
            x = torch.randn(shape)
            torch.testing.assert_close(torch.as_tensor(run(x)), function(x), rtol=1e-5, atol=1e-5)
    compiled = kitsune_mlir.compile(OfOne(function), (torch.randn(2, 4, 8, 12),), dynamic_shapes=sizes)
    with pytest.raises(UserError, match="must hold, as the model was exported"):
        compiled(torch.randn(2, 4, 7, 12))


def test_windows_of_windows():
    """Of channels torch has a product of quotients, each of which is known to be 2."""

    def function(x):
        return torch.nn.functional.pixel_unshuffle(torch.nn.functional.pixel_unshuffle(x, 2).cos(), 2)

    sizes = ({d: torch.export.Dim.AUTO for d in (0, 2, 3)},)
    compiled = kitsune_mlir.compile(OfOne(function), (torch.randn(2, 3, 16, 24),), dynamic_shapes=sizes)
    for shape in ((2, 3, 16, 24), (3, 3, 8, 12)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-5, atol=1e-5)
