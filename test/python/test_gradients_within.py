"""Gradients that a model computes of its own layers, by torch.autograd.grad and torch.func, and distributions."""

import pytest
import torch
from torch import nn
from torch.distributions import Normal
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

import kitsune_mlir


class Field(nn.Module):
    def __init__(self, of):
        super().__init__()
        self.net, self.of = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)), of

    def forward(self, x):
        return self.of(self.net, x)


def forces(net, x):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        (first,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        return first, torch.autograd.grad(first.square().sum(), x)[0]


def functional(net, x):
    energy = lambda point: net(point).sum()  # noqa: E731
    return vmap(grad(energy))(x), vmap(jacrev(net))(x), vmap(hessian(energy))(x)


def density(net, x):
    return Normal(net(x), x.exp()).log_prob(x)


class Energies(nn.Module):
    """A model without parameters, of which torch takes what it computes with for constants."""

    def forward(self, x):
        pairs = x[:, :, None] - x[:, None]
        energy = lambda p: ((p - p.round()).square().sum(-1).clamp(min=0.1) ** -3).sum()  # noqa: E731
        return grad(energy)(pairs), vmap(grad(lambda p: p.square().sum()))(x)


def test_a_model_without_parameters():
    x = torch.randn(2, 5, 3)
    torch.testing.assert_close(kitsune_mlir.compile(Energies(), (x,))(x), Energies()(x), rtol=1e-5, atol=1e-5)


class Untraced(nn.Module):
    def forward(self, x):
        return grad(lambda p: p.sum() if p.sum().item() > 0 else p.square().sum())(x)


def test_transforms_end_with_a_trace_that_fails():
    with pytest.raises(kitsune_mlir.UnsupportedError):
        kitsune_mlir.compile(Untraced(), (torch.randn(3),))
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0


def by_numbers(net, x):
    """A derivative by a number of the model's own, which torch.func multiplies Python's numbers with."""
    width = lambda scale: net(x) / (2 * scale * scale)  # noqa: E731
    return jacrev(width)(torch.tensor(1.3))


@pytest.mark.parametrize("of", [forces, functional, density, by_numbers])
def test_as_torch_computes_them(of):
    model = Field(of).eval()
    compiled = kitsune_mlir.compile(model, (torch.randn(5, 3),))
    x = torch.randn(5, 3)
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-6)


def forward(net, x):
    energy = lambda point, scale: (net(point).sum() * scale, scale)  # noqa: E731
    seconds, scales = vmap(lambda point: jacfwd(energy, 1, has_aux=True)(point, point[0]))(x)
    return jvp(net, (x,), (x.cos(),)), vmap(hessian(lambda point: net(point).sum()))(x), seconds, scales


def test_forward_derivatives_of_open_batches():
    """torch itself takes the example's size for all."""
    model = Field(forward).eval()
    compiled = kitsune_mlir.compile(model, (torch.randn(5, 3),), dynamic_shapes=({0: torch.export.Dim("n", min=2)},))
    x = torch.randn(9, 3)
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-6)


NORMS = {
    "batch": [nn.Linear(3, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.GELU()],
    "running": [nn.Linear(3, 8), nn.BatchNorm1d(8).eval()],
    "image": [nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 4, 1), nn.BatchNorm1d(4, affine=False).eval(), nn.Flatten()],
    "instance": [nn.Unflatten(1, (1, 3)), nn.InstanceNorm1d(1, affine=True), nn.Flatten()],
}


@pytest.mark.parametrize("layers", NORMS.values(), ids=NORMS)
def test_forward_derivatives_through_norms_of_open_batches(layers):
    """Without a range torch takes the example's size in silence."""
    model = Field(lambda _, x: jvp(nn.Sequential(*layers), (x,), (x.cos(),)))
    shapes = ({0: torch.export.Dim.AUTO},)
    compiled = kitsune_mlir.compile(model, (torch.randn(5, 3),), dynamic_shapes=shapes)
    x = torch.randn(9, 3)
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)


def test_forces_of_open_batches_of_points():
    """Layers of three dimensions, of which torch itself takes the example's rows for all."""
    model = Field(lambda net, x: -grad(lambda points: net(points).square().sum())(x)).eval()
    shapes = ({0: torch.export.Dim("n", min=2)},)
    compiled = kitsune_mlir.compile(model, (torch.randn(4, 5, 3),), dynamic_shapes=shapes)
    x = torch.randn(7, 5, 3)
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-6)


class Layers(nn.Module):
    """A Jacobian of each row, and derivatives along a direction, of layers that have kernels of their own in torch."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 8), *layers, nn.Linear(8, 2))

    def forward(self, x):
        alone = lambda row: self.layers(row[None])[0]  # noqa: E731
        return vmap(jacrev(alone))(x), vmap(jacfwd(alone))(x), *jvp(self.layers, (x,), (x.cos(),))


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("layers", [[nn.SiLU(), nn.LayerNorm(8), nn.GELU()], [nn.GELU("tanh"), nn.Mish()]])
def test_layers_with_kernels(layers, is_open):
    model = Layers(*layers).eval()
    shapes = ({0: torch.export.Dim("n", min=2)},) if is_open else None
    compiled = kitsune_mlir.compile(model, (torch.randn(5, 3),), dynamic_shapes=shapes)
    x = torch.randn(9 if is_open else 5, 3)
    for found, wanted in zip(compiled(x), model(x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_no_forward_derivative_is_left_of_a_failed_trace():
    class Left(nn.Module):
        def forward(self, x):
            return jvp(lambda y: y.square() if y.sum().item() > 0 else y, (x,), (x,))

    with pytest.raises(kitsune_mlir.UnsupportedError):
        kitsune_mlir.compile(Left(), (torch.randn(3),))
    value, moved = jvp(torch.sin, (torch.ones(3),), (torch.ones(3),))
    torch.testing.assert_close(moved, torch.cos(torch.ones(3)))
