"""Models of other fields that go step by step: running sums and products, simulations; and those of systems of
equations (fields_systems.py)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import fields_systems as y


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


Inputs = tuple[tuple[int, ...] | Callable[[], Tensor], ...]  # shapes of normal values, or what makes one


def _ends(*shape: int) -> Tensor:
    return (torch.rand(shape) < 0.02).float()


def _sorted(*shape: int) -> Tensor:
    return torch.rand(shape).sort(-1)[0]


def _scores(*shape: int) -> Tensor:
    return -torch.randn(shape).abs()


def _times(low: float, high: float, count: int) -> Tensor:
    return torch.rand(count) * (high - low) + low


def _radii(*shape: int) -> Tensor:
    return torch.rand(shape) * 0.2


def _process(batch: int, known: int, wanted: int) -> Inputs:
    return (batch, known, 4), (batch, known), (batch, wanted, 4)


def _rollout(count: int, steps: int) -> Inputs:
    return (count, steps), (count, steps), partial(_ends, count, steps), (count,)


def _densities(count: int, size: int) -> Inputs:
    return (count, size), (count, size), (count, size, size)


_TIMES = partial(_times, 0.4, 0.9, 16), partial(_times, 0.05, 0.35, 16)
_BALLS: Inputs = (16, 256, 3), (16, 256, 3), partial(_radii, 16, 256)
_RAYS: Inputs = (8192, 128), (8192, 128, 3), partial(_sorted, 8192, 128)
# fmt: off
# By name what it is, the module and its inputs of f32, of all of which the first size is open until the call.
MODELS: dict[str, tuple[str, Callable[[], nn.Module], Inputs]] = {
    "gaussian-process-32": ("64 sets of 32 points", lambda: y.GaussianProcess(4), _process(64, 32, 100)),
    "gaussian-process-64": ("64 sets of 64 points", lambda: y.GaussianProcess(4), _process(64, 64, 100)),
    "gaussian-process-128": ("4 sets of 128 points", lambda: y.GaussianProcess(4), _process(4, 128, 500)),
    "kalman-6": ("a filter of six numbers", lambda: y.KalmanFilter(6, 3), ((4096, 8, 3),)),
    "kalman-16": ("a filter of 16 numbers", lambda: y.KalmanFilter(16, 12), ((512, 6, 12),)),
    "ridge-heads": ("regressions of episodes", y.RidgeHeads, ((128, 25, 64), (128, 25, 5), (128, 75, 64))),
    "whitening": ("groups of features", y.Whitening, ((64, 256, 48),)),
    "normal-4": ("densities in four dimensions", y.NormalLogLikelihood, _densities(8192, 4)),
    "normal-24": ("densities in 24 dimensions", y.NormalLogLikelihood, _densities(4096, 24)),
    "newton-4": ("steps in four dimensions", y.Inverses, ((8192, 4, 4), (8192, 4))),
    "newton-20": ("steps in 20 dimensions", y.Inverses, ((1024, 20, 20), (1024, 20))),
    "volume-rendering": ("colours of rays", VolumeRendering, _RAYS),
    "advantages": ("sums from the end", Advantages, _rollout(4096, 128)),
    "advantages-by-step": ("the same as a loop", AdvantagesByStep, _rollout(4096, 64)),
    "holt-winters": ("levels, trends and seasons", HoltWinters, ((16384, 72),)),
    "garch": ("a likelihood of 120 steps", Garch, ((16384, 120),)),
    "transducer": ("a loss of speech", Transducer, (partial(_scores, 64, 20, 41), partial(_scores, 64, 20, 40))),
    "heston": ("paths of two numbers", Heston, ((65536, 64, 2),)),
    "asian-options": ("paths of a sum", BlackScholesPaths, ((65536, 252),)),
    "spheres": ("forces of all pairs", Spheres, _BALLS),
    "series-features": ("as tsfresh has them", SeriesFeatures, ((4096, 512),)),
    "robust-statistics": ("medians of rows", RobustStatistics, ((4096, 1000),)),
    "soft-warping": ("by anti-diagonals", SoftWarping, ((512, 24), (512, 24))),
    "drawdowns": ("losses from the best so far", DrawDowns, ((8192, 252),)),
    "dpm-solver": ("a step with thresholds", SolverStep, (*((16, 4, 32, 32),) * 3, *_TIMES)),
    "selective": ("a recurrence in logarithms", Selective, ((8, 1024, 256),) * 3),
}
# fmt: on
