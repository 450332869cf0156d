"""Rows that a mask selects stay, and count for nothing: as torch has it, on a CPU and in the GPU simulator."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.tools.gpusim.simulation import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")


class Loops(nn.Module):
    """Self loops are replaced by one for each node, as PyG's layers do; `form` is what is done with the edges."""

    def __init__(self, form):
        super().__init__()
        self.form = form

    def forward(self, x, ends, weights):
        mask = ends[0] != ends[1]
        kept, weights, nodes = ends[:, mask], weights[mask], torch.arange(x.shape[0])
        if self.form == "loops":
            kept = torch.cat([kept, torch.stack([nodes, nodes])], 1)
            weights = torch.cat([weights, torch.ones(x.shape[0])])
        messages = x[kept[0]] * weights.view(-1, 1)
        into = kept[1].view(-1, 1).expand_as(messages)
        sums = torch.zeros_like(x).scatter_add(0, into, messages)
        start = torch.full_like(x, 0.25)
        most = start.scatter_reduce(0, into, messages, "amax", include_self=False)
        least = start.scatter_reduce(0, into, messages, "amin")
        count = torch.zeros(x.shape[0], dtype=torch.int64).index_add(0, kept[1], torch.ones_like(kept[1]))
        return sums, most, least, count


@pytest.mark.parametrize("form", ["loops", "alone"])
def test_replaced_loops(form, small_gpu):
    """Isolated nodes, duplicates, loops alone, no edges; sizes are open."""
    torch.manual_seed(1)
    n, e = torch.export.Dim("n"), torch.export.Dim("e")

    def arguments(nodes, edges, loops=0):
        ends = torch.randint(0, max(1, nodes // 2), (2, edges))
        ends[1, :loops] = ends[0, :loops]
        return torch.randn(nodes, 6), ends, torch.randn(edges)

    model = Loops(form)
    compiled = kitsune_mlir.compile(
        model, arguments(9, 40, 5), target=["cpu", small_gpu], dynamic_shapes=({0: n}, {1: e}, {0: e})
    )
    simulation = Simulation(compiled)
    for args in (arguments(9, 40, 5), arguments(5, 3, 3), arguments(4, 0), arguments(30, 64, 1)):
        wanted = model(*args)
        for run in (compiled, simulation):
            for found, right in zip(run(*args), wanted, strict=True):
                torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)


class Written(nn.Module):
    """In place, as PyG keeps the weights of loops that are there."""

    def forward(self, ends, weights):
        loops, own = ends[0] == ends[1], torch.full((9,), 0.5)
        own[ends[0][loops]] = weights[loops]
        return own * 2, torch.zeros(9).index_put((ends[0][~loops],), torch.tensor(3.0))


def test_rows_that_are_written(small_gpu):
    torch.manual_seed(3)
    ends, weights = torch.randint(0, 9, (2, 20)), torch.randn(20)
    ends[:, :4] = torch.tensor([1, 8, 0, 5])
    ends[1, 4:] = (ends[0, 4:] + 1) % 9  # no loops
    compiled = kitsune_mlir.compile(Written(), (ends, weights), target=["cpu", small_gpu])
    for run in (compiled, Simulation(compiled)):
        for found, right in zip(run(ends, weights), Written()(ends, weights), strict=True):
            torch.testing.assert_close(found, right)


class Changed(nn.Module):
    """What ChebConv and convolutions of points do with selected edges: rows of these are selected again and changed in
    place, the largest of all is taken, and rows are normalised, turned and multiplied."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)).eval()
        self.turn = nn.Parameter(torch.randn(4, 4))

    def forward(self, x, ends, weights):
        mask = ends[0] != ends[1]
        kept, weights = ends[:, mask], weights[mask]
        kept, weights = torch.cat([kept, torch.arange(9).expand(2, 9)], 1), torch.cat([weights, torch.ones(9)])
        weights = 2 * weights / weights.max()
        odd = kept[0] % 2 == 1
        weights[odd] -= 1
        weights[kept[1] == 0] = 0.5
        a, b = x[kept[0]][:], x[kept[1]]
        rows = self.net(torch.cat([torch.cross(a, b, dim=1), torch.stack([a.norm(dim=1), weights, weights], 1)], 1))
        rows = torch.matmul(rows.unsqueeze(1), self.turn).squeeze(1)
        return torch.zeros(9, 4).index_add(0, kept[1], rows)


class WithAll(nn.Module):
    """A mask of which torch knows that it selects as many rows as there are, as GPSConv has of one graph."""

    def forward(self, x, y):
        dense, mask = (x + y).unsqueeze(0), torch.ones(1, x.shape[0], dtype=torch.bool)
        return dense[mask] + y


@pytest.mark.parametrize("model, args", [
    (Changed(), (torch.randn(9, 3), torch.randint(0, 9, (2, 40)), torch.rand(40))),
    (WithAll(), (torch.randn(9, 3), torch.randn(9, 3))),
], ids=["changed", "all"])  # fmt: skip
def test_selected_rows_that_are_selected_again(model, args, small_gpu):
    with torch.no_grad():
        compiled = kitsune_mlir.compile(model, args, target=["cpu", small_gpu])
        for run in (compiled, Simulation(compiled)):
            torch.testing.assert_close(run(*args), model(*args), rtol=1e-4, atol=1e-5)


class Padded(nn.Module):
    """What pads a list of edges is no row number."""

    def forward(self, x, senders, receivers):
        real = senders >= 0
        return torch.zeros_like(x).index_add(0, receivers[real], x[senders[real]])


def test_what_is_left_out_may_be_anything(small_gpu):
    torch.manual_seed(2)
    x, senders, receivers = torch.randn(7, 4), torch.randint(0, 7, (12,)), torch.randint(0, 7, (12,))
    senders[8:], receivers[8:] = -1, 1 << 40
    compiled = kitsune_mlir.compile(Padded(), (x, senders, receivers), target=["cpu", small_gpu])
    for run in (compiled, Simulation(compiled)):
        torch.testing.assert_close(run(x, senders, receivers), Padded()(x, senders, receivers))


REFUSED = {
    "returned": lambda x, mask: x[mask],
    "numbered": lambda x, mask: x[mask] * torch.arange(x[mask].shape[0]).view(-1, 1),
    "so many": lambda x, mask: x[: x[mask].shape[0]].sum(),
    "placed": lambda x, mask: x[:, mask[:4]].argmax(),
    "of several masks": lambda x, mask: torch.zeros(9, 4).index_add(0, x[mask][:, 0].long(), x[mask] * x[~mask]),
}


@pytest.mark.parametrize("form", REFUSED)
def test_others_are_refused(form):
    class Model(nn.Module):
        def forward(self, x, mask):
            return REFUSED[form](x, mask)

    with pytest.raises(UnsupportedError, match="depends on the data"):
        kitsune_mlir.compile(Model(), (torch.rand(6, 4), torch.tensor([True, False] * 3)), target="cpu")


def test_activations_that_torch_does_not_call_pointwise():
    """hardswish and log_sigmoid have no such tag, in torch 2.11 leaky_relu has none either."""

    class Model(nn.Module):
        def forward(self, x, edges):
            kept = edges[:, edges[0] != edges[1]]
            rows = F.logsigmoid(F.hardswish(F.leaky_relu(x[kept[0]], 0.2)))
            return torch.zeros_like(x).index_add(0, kept[1], rows)

    torch.manual_seed(3)
    args = torch.randn(9, 16), torch.randint(0, 9, (2, 60))
    with torch.no_grad():
        torch.testing.assert_close(kitsune_mlir.compile(Model(), args)(*args), Model()(*args), rtol=1e-5, atol=1e-5)


def losses(x, y, mask, rows, classes):
    """What is trained is often some of what there is: elements, tokens, or rows, at least one here."""
    elements = F.mse_loss(x[mask], y[mask]), F.smooth_l1_loss(x[mask], y[mask], reduction="sum"), x[mask].abs().mean()
    ours = x[rows].sum(0) / x[rows].shape[0], x[rows].mean(0), x[rows].amax(0), x[:, y[0] > -3].mean(1)
    right = (x[rows].argmax(-1) == classes[rows]).float().mean(), torch.masked_select(y, mask).sum() / mask.sum()
    of_classes = (
        F.cross_entropy(x[rows], classes[rows]),
        F.nll_loss(x.log_softmax(-1)[rows], classes[rows], reduction="sum"),
    )
    return *elements, *ours, *right, *of_classes


def written(x, y, mask, rows, classes):
    """Elements of a mask are changed where they are, by others of the same mask and by a number of them."""
    near, far = x.clone(), x.clone()
    near[mask] = y[mask]
    far[:, 1:][mask[:, 1:]] *= y[:, 1:][mask[:, 1:]].sin() / y[mask].numel()
    tokens = torch.zeros(*x.shape, 4)
    tokens[mask] = y.unsqueeze(-1).expand(*y.shape, 3)[mask] @ torch.ones(3, 4)
    return near, far, tokens, x.masked_scatter(mask, y[mask])


def reduced(x, y, mask, rows, classes):
    """Rows that are selected, along their dimension and along all, of which nothing says where they are."""
    kept, columns = x[rows], x[:, y[0] > -0.5]
    spreads = kept.std(), kept.var(0, correction=0), torch.std(columns, (0, 1), keepdim=True, correction=0)
    norms = columns.norm(), columns.norm(3), columns.norm(float("inf")), kept.norm(dim=0), columns.norm(-1, dim=1)
    sums = (
        kept.prod(0),
        kept.T @ kept,
        kept.cumsum(0).amax(0),
        (kept.softmax(0) * kept).sum(0),
        kept.log_softmax(0).max(),
    )
    alike = torch.linalg.norm(columns), torch.dist(kept, kept - 1, 3), torch.linalg.vector_norm(kept, keepdim=True)
    return *spreads, *norms, *sums, *alike, columns.amax(), columns.amin(1), kept.max(0).values, (columns > 1).any(1)


def places(x, y, mask, rows, classes):
    """Where a mask is true, as numbers: as indices of all that they are the places of, and each by itself."""
    where, near = torch.where(mask), x.clone()
    near[where] = y[where]
    near[rows.int().nonzero().squeeze(1)] *= 2
    first, second = where
    pairs = torch.zeros(x.shape[1]).index_add(0, second, x[first, 0] * y[where] + first)
    last = mask.nonzero()[:, 1].float().mean() + mask.nonzero(as_tuple=True)[0].sum()
    experts = torch.zeros_like(x)
    for chosen in torch.stack([mask, ~mask]):
        column, row = torch.where(chosen.T)
        experts.index_add_(0, row, (x[None, row].flatten(0, 1) @ torch.eye(x.shape[1])) * y[row, column, None])
    return near, pairs, experts, x.index_select(0, torch.where(rows)[0]).sum(0), last


@pytest.mark.parametrize("form", [losses, written, reduced, places])
def test_masked_elements(form, small_gpu):
    """Masks of several dimensions, of any number of rows and columns."""

    class Model(nn.Module):
        def forward(self, *args):
            return form(*args)

    def arguments(count, columns):
        rows = torch.arange(count) % 2 == 0
        mask = torch.randn(count, columns) > 0.2
        mask[0, :2] = True
        return torch.randn(count, columns), torch.randn(count, columns), mask, rows, torch.arange(count) % columns

    torch.manual_seed(4)
    n, m = torch.export.Dim("n", max=64), torch.export.Dim("m", min=2, max=64)
    both = {0: n, 1: m}
    sizes = ((both, both, both, {0: n}, {0: n}),)
    compiled = kitsune_mlir.compile(Model(), arguments(5, 7), target=["cpu", small_gpu], dynamic_shapes=sizes)
    for args in (arguments(1, 3), arguments(9, 4)):
        for run in (compiled, Simulation(compiled)):
            for found, right in zip(run(*args), form(*args), strict=True):
                torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)


def test_the_number_of_selected_rows(small_gpu):
    """It is the mask's, not that of all rows, which stay."""

    class Model(nn.Module):
        def forward(self, x, ends):
            kept = ends[:, ends[0] != ends[1]]
            sums = torch.zeros_like(x).index_add(0, kept[0], x[kept[1]])
            return sums / kept.shape[1], sums / max(2.0 * kept.numel(), 1)

    torch.manual_seed(5)
    args = torch.randn(6, 3), torch.randint(0, 6, (2, 20))
    compiled = kitsune_mlir.compile(Model(), args, target=["cpu", small_gpu])
    for run in (compiled, Simulation(compiled)):
        for found, right in zip(run(*args), Model()(*args), strict=True):
            torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)


class Known(nn.Module):
    """Masks that no input changes: a buffer, and all pairs but those of one thing with itself."""

    def __init__(self):
        super().__init__()
        self.register_buffer("lower", torch.ones(5, 5).tril(-1).bool())

    def forward(self, x):
        own = torch.eye(5, dtype=torch.bool)
        return x[:, self.lower], (x[0] * 2)[~own].view(5, 4), x[..., torch.tensor([True, False, True, True, False])]


def test_masks_that_are_known(small_gpu):
    batch = torch.export.Dim("batch", max=16)
    compiled = kitsune_mlir.compile(
        Known(), (torch.randn(3, 5, 5),), target=["cpu", small_gpu], dynamic_shapes=({0: batch},)
    )
    for count in (3, 1, 7):
        x = torch.randn(count, 5, 5)
        for run in (compiled, Simulation(compiled)):
            for found, right in zip(run(x), Known()(x), strict=True):
                torch.testing.assert_close(torch.as_tensor(found), right)
