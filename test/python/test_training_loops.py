"""Training through torch.compile(model, backend="kitsune") as loops do it: state that the model changes, checks of
values, passes that run again, optimizers that are compiled, and batches of other sizes."""

import copy
import functools
import warnings

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, vmap
from torch.nn import functional as F

from kitsune_mlir import torch_backend


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch_backend._warn.cache_clear()


def compiled(function, **options):
    return torch.compile(function, backend="kitsune", **options)


def close(found, wanted, tolerance=1e-4):
    found, wanted = torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(wanted)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance * max(1e-3, float(b.abs().max())))


def both(run, model):
    """What a training loop of a model and of how it is called gives; compiled, nothing of it may run as torch does."""
    found = []
    for wrap in (lambda function: function, compiled):
        torch.manual_seed(1)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="kitsune backend")
            found.append(run(copy.deepcopy(model), wrap))
    close(found[1], found[0])


def steps(*shapes, optimizer=torch.optim.SGD):
    """A loop of three steps, whose loss is the model's result: losses, gradients of the first and the state behind."""

    def run(model, wrap):
        call, optimize, found = wrap(model), optimizer(model.parameters(), 0.05), []
        for _ in range(3):
            loss = call(*(torch.randn(shape) for shape in shapes))
            optimize.zero_grad()
            loss.backward()
            found += [loss.detach().clone(), *(p.grad.clone() for p in model.parameters())]
            optimize.step()
        return [*found, *(value.clone() for value in model.state_dict().values())]

    return run


class Loss(nn.Module):
    """Modules in a loss that a function computes."""

    def __init__(self, function, *modules):
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(modules)

    def forward(self, *args):
        return self.function(*self.layers, *args)


def test_classes_that_are_checked():
    def dice(layer, x):
        found = layer(x).softmax(-1)
        wanted = F.one_hot(x[:, :3].argmax(-1), 3).to(x.dtype)
        return 1 - (found * wanted).sum() / (found.sum() + wanted.sum())

    torch.manual_seed(0)
    both(steps((9, 5)), Loss(dice, nn.Linear(5, 3)))


def test_matrices_that_are_checked():
    def likelihood(layer, x):
        z = layer(x)
        factor = torch.linalg.cholesky(z @ z.mT + torch.eye(len(x)))
        return torch.cholesky_solve(x[:, :1], factor).sum() + factor.diagonal().log().sum()

    torch.manual_seed(0)
    both(steps((6, 5)), Loss(likelihood, nn.Linear(5, 3)))


@pytest.mark.parametrize("norm", [nn.utils.spectral_norm, nn.utils.parametrizations.spectral_norm])
def test_state_that_the_backward_pass_wants_as_it_was(norm):
    """A power iteration changes a buffer in each of two calls; the gradients are of what it was."""
    torch.manual_seed(0)
    model = Loss(lambda layer, x, y: F.relu(1 - layer(x)).mean() + layer(y).square().mean(), norm(nn.Linear(5, 4)))
    both(steps((3, 5), (3, 5)), model)


def test_counts_and_means_that_move():
    class Codes(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.calls = nn.Linear(5, 4), 0
            self.register_buffer("codes", torch.randn(7, 4))
            self.register_buffer("used", torch.ones(7))

        def forward(self, x):
            z = self.layer(x)
            one = F.one_hot(torch.cdist(z, self.codes).argmin(1), 7).to(x.dtype)
            q = one @ self.codes
            with torch.no_grad():
                self.used.mul_(0.9).add_(one.sum(0), alpha=0.1)
                self.codes.lerp_((one.t() @ z) / one.sum(0)[:, None].clamp(min=1), 0.1)
            return (z + (q - z).detach()).square().mean() + F.mse_loss(z, q.detach())

    torch.manual_seed(0)
    both(steps((9, 5)), Codes())


def test_a_backward_pass_runs_again():
    def run(model, wrap):
        y = wrap(model)(torch.randn(4, 5))
        y.sum().backward(retain_graph=True)
        y.square().sum().backward()
        return [p.grad for p in model.parameters()]

    both(run, nn.Sequential(nn.Linear(5, 6), nn.GELU(), nn.LayerNorm(6), nn.Linear(6, 2)))


def test_gradients_of_gradients():
    """Of a compiled pass there are none, which torch says; within a compiled function they are gradients like any."""
    model, x = (
        nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1, bias=False)),
        torch.randn(5, 2, requires_grad=True),
    )
    y = compiled(model)(x)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        torch.autograd.grad(y.sum(), x, create_graph=True)[0].square().sum().backward()

    def residual(model, x):
        def u(z):
            return model(z).squeeze(-1)

        return (vmap(hessian(u))(x)[:, 0, 0] - vmap(grad(u))(x)[:, 1]).square().mean()

    both(steps((5, 2)), Loss(residual, model))


def test_gradients_of_samples():
    def run(model, wrap):
        def loss(parameters, x, y):
            return F.cross_entropy(functional_call(model, parameters, (x[None],)), y[None])

        parameters = {name: p.detach() for name, p in model.named_parameters()}
        return wrap(vmap(grad(loss), (None, 0, 0)))(parameters, torch.randn(4, 5), torch.tensor([0, 2, 1, 1]))

    both(run, nn.Sequential(nn.Linear(5, 6), nn.SiLU(), nn.Linear(6, 3)))


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("name", ["SGD", "AdamW", "RMSprop", "NAdam", "Rprop"])
def test_optimizers(name, each):
    options = {"momentum": 0.9, "nesterov": True} if name == "SGD" else {}

    def run(model, wrap):
        optimizer = getattr(torch.optim, name)(model.parameters(), 0.01, foreach=each, **options)
        step = wrap(lambda: optimizer.step())
        for _ in range(3):
            optimizer.zero_grad()
            F.mse_loss(model(torch.randn(5, 4)), torch.randn(5, 3)).backward()
            step()
        return list(model.state_dict().values())

    torch.manual_seed(0)
    both(run, nn.Linear(4, 3))


def test_lists_of_tensors():
    a, b = [[torch.rand(n) + 0.5 for n in (3, 2)] for _ in range(2)]

    def lists(a, b):
        each = (
            torch._foreach_add(a, b, alpha=2),
            torch._foreach_mul(a, [2.0, 3.0]),
            torch._foreach_addcdiv(a, b, a, 0.5),
        )
        more = torch._foreach_addcmul(a, b, a, [0.5, 2.0]), torch._foreach_pow(2.0, a)
        return (
            each,
            more,
            torch._foreach_lerp(a, b, 0.25),
            torch._foreach_norm(a),
            torch._foreach_maximum(a, 1.0),
            torch._foreach_sqrt(b),
        )

    with torch.no_grad():
        close(compiled(lists)(a, b), lists(a, b))


def test_images_of_open_sizes():
    """A filter's result, which the backward pass is given, has sizes that are computed of the image's."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3), nn.AdaptiveAvgPool2d(1)
    )

    def run(model, wrap):
        call, found = compiled(model, dynamic=True) if wrap is compiled else model, []
        for rows, width in ((3, 9), (2, 12)):
            model.zero_grad()
            call(torch.randn(rows, 2, width, width)).square().sum().backward()
            found += [p.grad.clone() for p in model.parameters()]
        return found, list(model.state_dict().values())

    both(run, model)


def test_complex_weights():
    """Their gradients are complex results of a program, and what is kept for them may be, too."""

    def spectral(layer, x):
        found = torch.zeros(len(x), 4, 5, dtype=torch.cfloat)
        found[..., :3] = torch.einsum("bix,iox->box", torch.fft.rfft(x)[..., :3], layer.weight)
        return torch.fft.irfft(found, n=8).square().mean() + (layer.weight.abs() ** 2).sum()

    torch.manual_seed(0)
    layer = nn.Module()
    layer.weight = nn.Parameter(torch.randn(2, 4, 3, dtype=torch.cfloat))
    both(steps((3, 2, 8)), Loss(spectral, layer))


@pytest.mark.parametrize(("size", "step"), [(4, 2), (5, 2), (3, 5), (70, 1)])
def test_windows_of_signals(size, step):
    def windows(layer, x):
        return (layer(x).unfold(1, size, step) * torch.arange(1, size + 1)).square().mean()

    torch.manual_seed(0)
    both(steps((2, 81, 3)), Loss(windows, nn.Linear(3, 2)))


@pytest.mark.parametrize("rows", [3, 6])
@pytest.mark.parametrize("name", ["solve", "right", "slogdet", "det", "inv"])
def test_systems(name, rows):
    """Gradients by the matrix, where torch solves by triangles that the forward pass made."""

    def run(layer, x):
        right = layer(x)
        matrix = x @ x.mT + 0.1 * right @ right.mT + torch.eye(rows)
        matrix = torch.cat((matrix[..., :1, :] * 0.5, matrix[..., 1:, :]), -2)  # not symmetric
        if name == "right":
            return torch.linalg.solve(matrix.mT, right.mT, left=False).square().mean()
        if name == "solve":
            return torch.linalg.solve(matrix, right).square().mean()
        found = getattr(torch.linalg, name)(matrix)
        return (found[1] if name == "slogdet" else found).sum() * 0.01

    torch.manual_seed(0)
    both(steps((2, rows, 4)), Loss(run, nn.Linear(4, 5)))


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_systems_by_factors(left, adjoint):
    torch.manual_seed(0)
    for rows in (3, 6):
        matrix, right = torch.randn(2, rows, rows), torch.randn(2, rows, 4)
        given = *torch.linalg.lu_factor(matrix), right if left else right.mT
        torch._dynamo.reset()
        with torch.no_grad():
            found = compiled(functools.partial(torch.linalg.lu_solve, left=left, adjoint=adjoint))(*given)
        close(found, torch.linalg.lu_solve(*given, left=left, adjoint=adjoint))


def test_recurrent_layers():
    """Which Dynamo leaves to torch, unless it is told otherwise."""
    torch.manual_seed(0)
    model = Loss(lambda layer, last, x: last(layer(x)[0]).square().mean(), nn.LSTM(3, 4), nn.Linear(4, 2))
    with torch._dynamo.config.patch(allow_rnn=True):
        both(steps((3, 2, 3)), model)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_distances_of_pairs(p):
    torch.manual_seed(0)  # and a layer without a bias, whose gradient would be 0 but for rounding
    both(steps((5, 4)), Loss(lambda layer, x: F.pdist(layer(x), p).square().mean(), nn.Linear(4, 3, bias=False)))


def test_tables_of_short_rows():
    numbers = torch.tensor([[3, 0], [3, 1]])
    tables = [torch.arange(12.0).view(4, 3) for _ in range(2)]
    with torch.no_grad():
        found = compiled(functools.partial(F.embedding, max_norm=1.0))(numbers, tables[0])
    close([found, tables[0]], [F.embedding(numbers, tables[1], max_norm=1.0), tables[1]])


def test_sparse_gradients_are_torchs():
    table = nn.Embedding(5, 3, sparse=True)
    with pytest.warns(UserWarning, match="gives a sparse tensor; use dense ones"):
        compiled(table)(torch.tensor([1, 3])).sum().backward()
    assert table.weight.grad.is_sparse


@pytest.mark.parametrize("whole", [False, True])
def test_features_of_images_among_tokens(whole):
    """Rows under a mask take those of another model in their order, as models of language and images have it."""

    def run(table, layer, x):
        tokens = x[:, :2].argmax(-1).view(2, 4)
        mask = (tokens == 1).unsqueeze(-1)
        embedded, features = table(tokens), layer(x)
        mask = mask.repeat(1, 1, 3) if whole else mask.expand_as(embedded)
        return (embedded.masked_scatter(mask, features) * torch.arange(24).view(2, 4, 3)).square().mean()

    torch.manual_seed(0)
    both(steps((8, 5)), Loss(run, nn.Embedding(2, 3), nn.Linear(5, 3)))


def test_modes():
    x = torch.randint(0, 4, (6, 9)).float()
    x[0, :4] = torch.nan
    with torch.no_grad():
        for given in (x, x[1:].long(), x[1:].T.bfloat16()):
            torch._dynamo.reset()
            found = compiled(lambda y: torch.mode(y, -1))(given)
            close(list(found), list(torch.mode(given, -1)))


def test_what_torch_cannot_take_apart_runs_as_torch_runs_it():
    """A parameter that is given another one's memory by its `data` while it is trained."""

    class Momentum(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.mean = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            with torch.no_grad():
                for mean, own in zip(self.mean.parameters(), self.net.parameters(), strict=True):
                    mean.data = own.data
            return (self.net(x) - self.mean(x).detach()).square().mean()

    torch._dynamo.reset()
    module, x = Momentum(), torch.randn(3, 4)
    plain = copy.deepcopy(module)
    with pytest.warns(UserWarning, match="torch cannot take it apart"):
        found = torch.compile(module, backend="kitsune")(x)
    torch.testing.assert_close(found, plain(x))
    torch.testing.assert_close(module.mean.weight, plain.mean.weight)
