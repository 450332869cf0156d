"""Models of other fields that go step by step: systems of equations, running sums and products, simulations."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


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
    """The logarithms of densities of normal numbers with covariances of their own: [b, d], [b, d], [b, d, d] -> [b]."""

    def forward(self, x: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
        factor = torch.linalg.cholesky(spread)
        z = torch.linalg.solve_triangular(factor, (x - mean).unsqueeze(-1), upper=False).squeeze(-1)
        return -0.5 * z.square().sum(-1) - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


class Inverses(nn.Module):
    """Newton steps by inverses of matrices: [b, n, n], [b, n] -> [b, n]."""

    def forward(self, hessian: Tensor, gradient: Tensor) -> Tensor:
        damped = hessian @ hessian.mT + torch.eye(hessian.shape[-1], device=hessian.device)
        return -(torch.linalg.inv(damped) @ gradient.unsqueeze(-1)).squeeze(-1)


class VolumeRendering(nn.Module):
    """Colours and depths of rays through a field: densities [r, s], colours [r, s, 3], places [r, s]."""

    def forward(self, density: Tensor, colour: Tensor, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        steps = torch.cat([places[:, 1:] - places[:, :-1], torch.full_like(places[:, :1], 1e10)], -1)
        alpha = 1.0 - torch.exp(-F.relu(density) * steps)
        ones = torch.ones_like(alpha[:, :1])
        through = torch.cumprod(torch.cat([ones, 1.0 - alpha + 1e-10], -1), -1)[:, :-1]
        weights = alpha * through
        seen = (weights.unsqueeze(-1) * colour).sum(-2)
        return seen + (1.0 - weights.sum(-1, keepdim=True)), (weights * places).sum(-1), weights


class Advantages(nn.Module):
    """PPO's generalised advantages, by running sums from the end: rewards, values, ends [n, t], last [n]."""

    def forward(self, rewards: Tensor, values: Tensor, ends: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        gamma, trace = 0.99, 0.95
        following = torch.cat([values[:, 1:], last.unsqueeze(1)], 1)
        deltas = rewards + gamma * following * (1 - ends) - values
        t = torch.arange(rewards.shape[1], device=rewards.device, dtype=rewards.dtype)
        weights = (gamma * trace) ** t
        found = torch.flip(torch.cumsum(torch.flip(deltas * weights, (1,)), 1), (1,)) / weights
        returns = found + values
        return (found - found.mean(1, keepdim=True)) / (found.std(1, keepdim=True) + 1e-8), returns


class AdvantagesByStep(nn.Module):
    """The same step by step, as most code has it."""

    def forward(self, rewards: Tensor, values: Tensor, ends: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        following, found, carried = last, [], torch.zeros_like(last)
        for t in reversed(range(rewards.shape[1])):
            alive = 1 - ends[:, t]
            delta = rewards[:, t] + 0.99 * following * alive - values[:, t]
            carried = delta + 0.99 * 0.95 * alive * carried
            following = values[:, t]
            found.append(carried)
        advantages = torch.stack(found[::-1], 1)
        return advantages, advantages + values


class HoltWinters(nn.Module):
    """Levels, trends and seasons of series, step by step: [n, t] -> fitted [n, t]."""

    def __init__(self, period: int = 12):
        super().__init__()
        self.period = period
        self.weights = nn.Parameter(torch.tensor([0.0, -1.0, -1.0]))

    def forward(self, x: Tensor) -> Tensor:
        a, b, c = torch.sigmoid(self.weights).unbind()
        level, trend = x[:, : self.period].mean(1), torch.zeros_like(x[:, 0])
        seasons = [x[:, i] - level for i in range(self.period)]
        fitted = []
        for t in range(x.shape[1]):
            season = seasons[t % self.period]
            fitted.append(level + trend + season)
            new = a * (x[:, t] - season) + (1 - a) * (level + trend)
            trend = b * (new - level) + (1 - b) * trend
            seasons[t % self.period] = c * (x[:, t] - new) + (1 - c) * season
            level = new
        return torch.stack(fitted, 1)


class Garch(nn.Module):
    """The log-likelihood of GARCH(1, 1): returns [n, t] -> [n]."""

    def __init__(self) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.tensor([-3.0, -2.0, 1.0]))

    def forward(self, x: Tensor) -> Tensor:
        omega, alpha, beta = F.softplus(self.raw[0]), torch.sigmoid(self.raw[1]), torch.sigmoid(self.raw[2])
        variance, found = x.var(1), torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            found = found - 0.5 * (variance.log() + x[:, t].square() / variance)
            variance = omega + alpha * x[:, t].square() + beta * variance
        return found


class Transducer(nn.Module):
    """A transducer's loss, by running logarithms of sums along labels in each frame: blank and label scores
    [b, t, u + 1] and [b, t, u] -> [b]."""

    def forward(self, blank: Tensor, label: Tensor) -> Tensor:
        alpha = F.pad(label[:, 0].cumsum(-1), (1, 0))
        for t in range(1, blank.shape[1]):
            stay = alpha + blank[:, t - 1]
            moves = F.pad(label[:, t].cumsum(-1), (1, 0))
            alpha = torch.logcumsumexp(stay - moves, -1) + moves
        return -(alpha[:, -1] + blank[:, -1, -1])


class Heston(nn.Module):
    """Prices of calls by paths of Heston's model: normal numbers [n, t, 2] -> price and error []."""

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        steps = z.shape[1]
        dt, rho, kappa, theta, xi = 1.0 / steps, -0.7, 2.0, 0.04, 0.3
        price, variance = torch.zeros_like(z[:, 0, 0]), torch.full_like(z[:, 0, 0], 0.04)
        for t in range(steps):
            first = z[:, t, 0]
            second = rho * first + (1 - rho**2) ** 0.5 * z[:, t, 1]
            positive = variance.clamp(min=0)
            root = (positive * dt).sqrt()
            price = price + (0.02 - 0.5 * positive) * dt + root * first
            variance = variance + kappa * (theta - positive) * dt + xi * root * second
        payoff = (100 * price.exp() - 100).clamp(min=0) * 0.98
        return payoff.mean(), payoff.std() / z.shape[0] ** 0.5


class BlackScholesPaths(nn.Module):
    """Asian and barrier options of paths by a running sum: normal numbers [n, t] -> two prices."""

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        dt = 1.0 / z.shape[1]
        paths = 100 * torch.exp(torch.cumsum((0.02 - 0.02) * dt + 0.2 * dt**0.5 * z, 1))
        asian = (paths.mean(1) - 100).clamp(min=0).mean()
        alive = (paths.amax(1) < 130).to(z.dtype)
        return asian, ((paths[:, -1] - 100).clamp(min=0) * alive).mean()


class Spheres(nn.Module):
    """Forces of spheres that touch: places, speeds [b, n, 3], radii [b, n] -> new places and speeds."""

    def forward(self, places: Tensor, speeds: Tensor, radii: Tensor) -> tuple[Tensor, Tensor]:
        apart = places.unsqueeze(2) - places.unsqueeze(1)
        distance = apart.norm(dim=-1) + torch.eye(places.shape[1], device=places.device)
        normal = apart / distance.unsqueeze(-1)
        overlap = (radii.unsqueeze(2) + radii.unsqueeze(1) - distance).clamp(min=0)
        overlap = overlap * (1 - torch.eye(places.shape[1], device=places.device))
        closing = ((speeds.unsqueeze(2) - speeds.unsqueeze(1)) * normal).sum(-1)
        push = (1000 * overlap - 5 * closing * (overlap > 0)).unsqueeze(-1) * normal
        speeds = speeds + 1e-3 * (push.sum(2) + torch.tensor([0.0, 0.0, -9.8], device=places.device))
        return places + 1e-3 * speeds, speeds


class SeriesFeatures(nn.Module):
    """Features of series as tsfresh has them: [n, t] -> [n, 12]."""

    def forward(self, x: Tensor) -> Tensor:
        mean, deviation = x.mean(1, keepdim=True), x.std(1, keepdim=True)
        z = (x - mean) / (deviation + 1e-6)
        steps = x[:, 1:] - x[:, :-1]
        lags = [(z[:, k:] * z[:, :-k]).mean(1) for k in (1, 2, 3)]
        crossings = (z[:, 1:].sign() != z[:, :-1].sign()).float().sum(1)
        total = torch.cumsum(z, 1)
        found = [
            mean.squeeze(1),
            deviation.squeeze(1),
            z.pow(3).mean(1),
            z.pow(4).mean(1),
            *lags,
            steps.abs().sum(1),
            steps.square().mean(1).sqrt(),
            crossings,
            total.amax(1) - total.amin(1),
            x.median(1).values,
        ]
        return torch.stack(found, 1)


class RobustStatistics(nn.Module):
    """Medians, their deviations, and a winsorised mean of rows: [n, t] -> [n, 3]."""

    def forward(self, x: Tensor) -> Tensor:
        middle = x.median(1, keepdim=True).values
        spread = (x - middle).abs().median(1, keepdim=True).values * 1.4826
        kept = torch.minimum(torch.maximum(x, middle - 3 * spread), middle + 3 * spread)
        return torch.cat([middle, spread, kept.mean(1, keepdim=True)], 1)


class SoftWarping(nn.Module):
    """Soft dynamic time warping by anti-diagonals: a, b [n, t] -> [n]."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        size, gamma = a.shape[1], 0.1
        costs = (a.unsqueeze(2) - b.unsqueeze(1)).square()
        huge = 1e6
        before = F.pad(costs.new_zeros(a.shape[0], 1), (0, size), value=huge)
        last = torch.full_like(before, huge)
        for d in range(2, 2 * size + 1):
            first, end = max(1, d - size), min(size, d - 1)
            rows = torch.arange(first, end + 1, device=a.device)
            cost = costs[:, rows - 1, d - rows - 1]
            three = torch.stack([last[:, first : end + 1], last[:, first - 1 : end], before[:, first - 1 : end]], -1)
            value = cost - gamma * torch.logsumexp(-three / gamma, -1)
            before, last = last, F.pad(value, (first, size - end), value=huge)
        return last[:, size]


class DrawDowns(nn.Module):
    """What strategies lose from their best so far: returns [n, t] -> worst losses, Sharpe and Calmar ratios [n]."""

    def forward(self, returns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        wealth = torch.cumprod(1 + 0.01 * returns, 1)
        best = torch.cummax(wealth, 1).values
        loss = ((best - wealth) / best).amax(1)
        sharpe = returns.mean(1) / (returns.std(1) + 1e-6)
        return loss, sharpe, (wealth[:, -1] - 1) / (loss + 1e-6)


class SolverStep(nn.Module):
    """A second-order step of DPM-Solver++ with thresholds: x, noise, before [b, c, h, w] and times [b]."""

    def forward(
        self, x: Tensor, noise: Tensor, before: Tensor, time: Tensor, following: Tensor
    ) -> tuple[Tensor, Tensor]:
        def signal(t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            log = (-0.25 * t**2 * 19.9 - 0.05 * t).view(-1, 1, 1, 1)
            alpha = log.exp()
            sigma = (1 - alpha**2).clamp(min=1e-6).sqrt()
            return alpha, sigma, log - sigma.log()

        (alpha, sigma, here), (alpha2, sigma2, there) = signal(time), signal(following)
        start = (x - sigma * noise) / alpha
        limit = torch.quantile(start.abs().flatten(1), 0.95, dim=1).clamp(min=1).view(-1, 1, 1, 1)
        start = torch.minimum(torch.maximum(start, -limit), limit) / limit
        h = there - here
        both = 1.5 * start - 0.5 * before
        return sigma2 / sigma * x - alpha2 * torch.expm1(-h) * both, start


class Selective(nn.Module):
    """A linear recurrence by running sums in logarithms, and its gate: x, gate [b, t, d], decay [b, t, d]."""

    def forward(self, x: Tensor, gate: Tensor, decay: Tensor) -> Tensor:
        log = F.logsigmoid(decay)
        total = torch.cumsum(log, 1)
        value = torch.log(F.softplus(x) + 1e-6) + torch.log1p(-log.exp())
        state = torch.exp(total + torch.logcumsumexp(value - total, 1))
        return state * F.silu(gate)
