"""Norms, networks, mixtures of experts and convolutions of the random blocks, as people write them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .draw_blocks import EXPERTS, Drawn

BEST = 2  # experts of a token
EPSILON = 1e-5


class WideNorm(nn.Module):
    """A norm by the root of the mean square, written out in f32, as Llama's."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)).to(x.dtype)


def norm(of: Drawn, width: int) -> nn.Module:
    match of.norm:
        case "layer":
            return nn.LayerNorm(width, bias=of.bias)
        case "rms":
            return nn.RMSNorm(width, eps=EPSILON)
        case "wide":
            return WideNorm(width)
    return nn.Identity()


class Gated(nn.Module):
    """A network whose hidden columns are multiplied by others that went through an activation."""

    def __init__(self, of: Drawn):
        super().__init__()
        self.joined = of.network == "swiglu_joined"
        self.activation = F.gelu if of.network == "geglu" else F.silu
        self.up = nn.Linear(of.width, of.hidden * (2 if self.joined else 1), bias=of.bias)
        self.gate = None if self.joined else nn.Linear(of.width, of.hidden, bias=of.bias)
        self.down = nn.Linear(of.hidden, of.width, bias=of.bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            gate, up = self.up(x).chunk(2, -1)
        else:
            gate, up = self.gate(x), self.up(x)
        return self.down(self.activation(gate) * up)


class SquaredRelu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x).square()


class Experts(nn.Module):
    """Each token goes through the best of several SwiGLU networks, in one of the ways in which transformers writes it:
    all networks for all tokens at once ("dense") or one after another ("looped"), rows sorted by expert ("grouped"), or
    the matrices of each token ("gathered")."""

    def __init__(self, of: Drawn):
        super().__init__()
        self.way, hidden = of.network.removeprefix("experts_"), of.hidden // 2
        self.router = nn.Linear(of.width, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.randn(EXPERTS, 2 * hidden, of.width) * of.width**-0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, of.width, hidden) * hidden**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, -2)
        scores = F.softmax(self.router(rows), -1, dtype=torch.promote_types(x.dtype, torch.float32))
        weights, experts = torch.topk(scores, BEST, -1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        return getattr(self, f"_{self._way(x.dtype)}")(rows, weights, experts).view_as(x)

    def _way(self, dtype: torch.dtype) -> str:
        """`grouped_mm` has bf16 alone: a reference of other numbers runs one after another."""
        return "looped" if self.way == "grouped" and dtype != torch.bfloat16 else self.way

    @staticmethod
    def _gated(up: Tensor) -> Tensor:
        gate, up = up.chunk(2, -1)
        return F.silu(gate) * up

    def _dense(self, rows: Tensor, weights: Tensor, experts: Tensor) -> Tensor:
        routing = torch.zeros(rows.shape[0], EXPERTS, dtype=rows.dtype, device=rows.device).scatter(1, experts, weights)
        hidden = self._gated(torch.bmm(rows.expand(EXPERTS, -1, -1), self.up.transpose(1, 2)))
        return (torch.bmm(hidden, self.down.transpose(1, 2)) * routing.t().unsqueeze(-1)).sum(0)

    def _looped(self, rows: Tensor, weights: Tensor, experts: Tensor) -> Tensor:
        found = torch.zeros_like(rows)
        for expert in range(EXPERTS):
            weight = torch.where(experts == expert, weights, 0).sum(-1, keepdim=True)
            found = found + F.linear(self._gated(F.linear(rows, self.up[expert])), self.down[expert]) * weight
        return found

    def _grouped(self, rows: Tensor, weights: Tensor, experts: Tensor) -> Tensor:
        groups, order = torch.sort(experts.reshape(-1))
        counts = torch.histc(groups.float() if rows.device.type == "cpu" else groups.int(), EXPERTS, 0, EXPERTS - 1)
        ends = torch.cumsum(counts, 0, dtype=torch.int32)
        hidden = self._gated(F.grouped_mm(rows[order // BEST], self.up.transpose(1, 2), offs=ends))
        found = F.grouped_mm(hidden, self.down.transpose(1, 2), offs=ends) * weights.reshape(-1)[order].unsqueeze(-1)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.shape[0], device=rows.device)
        return found[back].view(-1, BEST, rows.shape[-1]).sum(1)

    def _gathered(self, rows: Tensor, weights: Tensor, experts: Tensor) -> Tensor:
        chosen = experts.reshape(-1)
        repeated = rows.repeat_interleave(BEST, 0).unsqueeze(-1)
        hidden = self._gated(torch.bmm(self.up[chosen], repeated).squeeze(-1))
        found = torch.bmm(self.down[chosen], hidden.unsqueeze(-1)).squeeze(-1) * weights.reshape(-1, 1)
        return found.view(-1, BEST, rows.shape[-1]).sum(1)


def network(of: Drawn) -> nn.Module:
    if of.network.startswith("experts"):
        return Experts(of)
    if of.network in ("geglu", "swiglu", "swiglu_joined"):
        return Gated(of)
    activations = {"tanh_gelu": nn.GELU("tanh"), "silu": nn.SiLU(), "relu_squared": SquaredRelu()}
    up, down = nn.Linear(of.width, of.hidden, bias=of.bias), nn.Linear(of.hidden, of.width, bias=of.bias)
    if of.network == "low_rank":
        rank = max(of.width // 8, 4)
        up = nn.Sequential(nn.Linear(of.width, rank, bias=False), nn.Linear(rank, of.hidden, bias=of.bias))
    return nn.Sequential(up, activations.get(of.network, nn.GELU()), down)


class Convolutions(nn.Module):
    """A Conformer's: gates, a convolution of each column over the tokens, a batch norm."""

    def __init__(self, width: int, taps: int):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1)
        self.along = nn.Conv1d(width, width, taps, padding=taps // 2, groups=width)
        self.batch_norm, self.down = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        columns = F.glu(self.up(self.norm(x).transpose(1, 2)), 1)
        return self.down(F.silu(self.batch_norm(self.along(columns)))).transpose(1, 2)
