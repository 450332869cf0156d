"""Models of other fields that solve systems of equations, of batches that are open until the call."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class GaussianProcess(nn.Module):
    """The posterior of Gaussian processes, a batch of data sets: x [b, n, d], y [b, n], points [b, m, d] -> mean and
    variance [b, m], and the logarithm of the evidence [b]."""

    def __init__(self, dims: int):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(dims))
        self.noise = nn.Parameter(torch.tensor(-2.0))

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """The kernel of squared distances, of all pairs: [b, n, d] and [b, m, d] -> [b, n, m]."""
        a, b = a * self.scale.exp(), b * self.scale.exp()
        squares = (a.unsqueeze(-2) - b.unsqueeze(-3)).square().sum(-1)
        return torch.exp(-0.5 * squares)

    def forward(self, x: Tensor, y: Tensor, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        one = torch.eye(x.shape[-2], dtype=x.dtype, device=x.device)
        factor = torch.linalg.cholesky(self.kernel(x, x) + (self.noise.exp() + 1e-4) * one)
        weights = torch.cholesky_solve(y.unsqueeze(-1), factor)
        across = self.kernel(x, points)
        mean = (across.mT @ weights).squeeze(-1)
        half = torch.linalg.solve_triangular(factor, across, upper=False)
        variance = 1.0 - half.square().sum(-2)
        fit = (y * weights.squeeze(-1)).sum(-1)
        evidence = -0.5 * fit - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return mean, variance, evidence


class KalmanFilter(nn.Module):
    """Steps of a Kalman filter of a batch of series: observations [b, t, m] -> means [b, t, n]."""

    def __init__(self, state: int, seen: int):
        super().__init__()
        self.move = nn.Parameter(torch.eye(state) + 0.1 * torch.randn(state, state))
        self.look = nn.Parameter(torch.randn(seen, state) / state**0.5)
        self.drift, self.noise = nn.Parameter(torch.eye(state) * 0.1), nn.Parameter(torch.eye(seen) * 0.5)

    def forward(self, seen: Tensor) -> Tensor:
        mean = seen.new_zeros(seen.shape[0], self.move.shape[0])
        spread = torch.eye(self.move.shape[0], device=seen.device).expand(seen.shape[0], -1, -1)
        found = []
        for t in range(seen.shape[1]):
            mean, spread = mean @ self.move.T, self.move @ spread @ self.move.T + self.drift
            cross = spread @ self.look.T
            gain = torch.linalg.solve(self.look @ cross + self.noise, cross.mT).mT
            mean = mean + (gain @ (seen[:, t] - mean @ self.look.T).unsqueeze(-1)).squeeze(-1)
            spread = spread - gain @ self.look @ spread
            found.append(mean)
        return torch.stack(found, 1)


class RidgeHeads(nn.Module):
    """Ridge regressions of the features of each episode, as few-shot learning has them: support [b, n, d], labels
    [b, n, c], queries [b, m, d] -> [b, m, c]."""

    def forward(self, support: Tensor, labels: Tensor, queries: Tensor) -> Tensor:
        gram = support.mT @ support + 0.1 * torch.eye(support.shape[-1], device=support.device)
        return queries @ torch.linalg.solve(gram, support.mT @ labels)


class Whitening(nn.Module):
    """Whitened features of groups, by the inverse of a Cholesky factor: [g, n, d] -> [g, n, d]."""

    def forward(self, x: Tensor) -> Tensor:
        x = x - x.mean(1, keepdim=True)
        spread = x.mT @ x / (x.shape[1] - 1) + 1e-3 * torch.eye(x.shape[-1], device=x.device)
        return torch.linalg.solve_triangular(torch.linalg.cholesky(spread), x.mT, upper=False).mT


class NormalLogLikelihood(nn.Module):
    """The logarithms of densities of normal numbers whose covariances are made of parts of their own: [b, d], [b, d],
    [b, d, d] -> [b]."""

    def forward(self, x: Tensor, mean: Tensor, parts: Tensor) -> Tensor:
        factor = torch.linalg.cholesky(parts @ parts.mT + torch.eye(x.shape[-1], dtype=x.dtype, device=x.device))
        z = torch.linalg.solve_triangular(factor, (x - mean).unsqueeze(-1), upper=False).squeeze(-1)
        return -0.5 * z.square().sum(-1) - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


class Inverses(nn.Module):
    """Newton steps by inverses of matrices: [b, n, n], [b, n] -> [b, n]."""

    def forward(self, hessian: Tensor, gradient: Tensor) -> Tensor:
        damped = hessian @ hessian.mT + torch.eye(hessian.shape[-1], device=hessian.device)
        return -(torch.linalg.inv(damped) @ gradient.unsqueeze(-1)).squeeze(-1)
