"""Images and grids of few channels, and reads between places, as image processing and graphics write them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .zoo_images import conv


class BilateralFilter(nn.Module):
    """[n, 3, h, w] -> the same: means of 5 x 5 neighbours, weighed by nearness and alike brightness."""

    def __init__(self, radius: int = 2, spread: float = 1.5, alike: float = 0.1):
        super().__init__()
        self.radius, self.spread, self.alike = radius, spread, alike

    def forward(self, x: Tensor) -> Tensor:
        r, (height, width) = self.radius, x.shape[-2:]
        padded = F.pad(x, (r, r, r, r), mode="reflect")
        total, weights = torch.zeros_like(x), torch.zeros_like(x[:, :1])
        for dy in range(2 * r + 1):
            for dx in range(2 * r + 1):
                near = padded[:, :, dy : dy + height, dx : dx + width]
                distance = ((dy - r) ** 2 + (dx - r) ** 2) / (2 * self.spread**2)
                weight = torch.exp(-((near - x) ** 2).mean(1, keepdim=True) / (2 * self.alike**2) - distance)
                total, weights = total + weight * near, weights + weight
        return total / weights


class UnfoldedBilateralFilter(nn.Module):
    """[n, 3, h, w] -> the same: a bilateral filter of windows that F.unfold makes."""

    def __init__(self, radius: int = 2, alike: float = 0.1):
        super().__init__()
        self.radius, self.alike = radius, alike

    def forward(self, x: Tensor) -> Tensor:
        (n, c, height, width), r, size = x.shape, self.radius, 2 * self.radius + 1
        windows = F.unfold(F.pad(x, (r, r, r, r), mode="reflect"), size).view(n, c, size * size, height, width)
        weight = torch.exp(-((windows - x.unsqueeze(2)) ** 2).mean(1, keepdim=True) / (2 * self.alike**2))
        return (windows * weight).sum(2) / weight.sum(2)


class GuidedFilter(nn.Module):
    """guide [n, 1, h, w], x [n, 1, h, w] -> x as a local linear function of the guide."""

    def __init__(self, radius: int = 4, eps: float = 1e-3):
        super().__init__()
        self.radius, self.eps = radius, eps

    def box(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, 2 * self.radius + 1, 1, self.radius, count_include_pad=False)

    def forward(self, guide: Tensor, x: Tensor) -> Tensor:
        mean, mean_x = self.box(guide), self.box(x)
        covariance = self.box(guide * x) - mean * mean_x
        a = covariance / (self.box(guide * guide) - mean * mean + self.eps)
        b = mean_x - a * mean
        return self.box(a) * guide + self.box(b)


def _smaller(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, 2)


def _as_large(x: Tensor, other: Tensor) -> Tensor:
    return F.interpolate(x, size=other.shape[-2:], mode="bilinear", align_corners=False)


class ExposureFusion(nn.Module):
    """Three exposures [k, 3, h, w] -> [1, 3, h, w], fused by pyramids of their details and weights."""

    def __init__(self, levels: int = 4):
        super().__init__()
        self.levels = levels
        kernel = torch.tensor([[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]])
        self.register_buffer("laplacian", kernel.view(1, 1, 3, 3))

    def weights(self, x: Tensor) -> Tensor:
        contrast = F.conv2d(x.mean(1, keepdim=True), self.laplacian, padding=1).abs()
        exposed = torch.exp(-((x - 0.5) ** 2) / 0.08).prod(1, keepdim=True)
        found = contrast * x.std(1, keepdim=True) * exposed + 1e-6
        return found / found.sum(0, keepdim=True)

    def forward(self, x: Tensor) -> Tensor:
        weight, fused = self.weights(x), []
        for _ in range(self.levels - 1):
            smaller = _smaller(x)
            fused.append((weight * (x - _as_large(smaller, x))).sum(0, keepdim=True))
            x, weight = smaller, _smaller(weight)
        result = (weight * x).sum(0, keepdim=True)
        for detail in reversed(fused):
            result = _as_large(result, detail) + detail
        return result


class ColourCube(nn.Module):
    """[n, 3, h, w] in 0 to 1 -> the same: three cubes of colours, mixed for each image, read between their entries."""

    def __init__(self, cubes: int = 3, size: int = 33):
        super().__init__()
        self.cubes = nn.Parameter(torch.rand(cubes, 3, size, size, size))
        self.mix = nn.Linear(3, cubes)

    def forward(self, x: Tensor) -> Tensor:
        mixed = torch.einsum("nk,kcdhw->ncdhw", self.mix(x.mean((2, 3))).softmax(-1), self.cubes)
        places = (x.permute(0, 2, 3, 1) * 2 - 1).unsqueeze(1)
        return F.grid_sample(mixed, places, mode="bilinear", padding_mode="border", align_corners=True).squeeze(2)


class IndexedColourCube(nn.Module):
    """[n, 3, h, w] in 0 to 1 -> the same: a cube of colours whose eight corners are taken by number."""

    def __init__(self, size: int = 17):
        super().__init__()
        self.size, self.cube = size, nn.Parameter(torch.rand(size, size, size, 3))

    def forward(self, x: Tensor) -> Tensor:
        at = x.permute(0, 2, 3, 1).clamp(0, 1) * (self.size - 1)
        low = at.floor().clamp(max=self.size - 2)
        part, low = at - low, low.long()
        found = torch.zeros_like(at)
        for corner in range(8):
            up = [(corner >> axis) & 1 for axis in range(3)]
            r, g, b = (low[..., axis] + up[axis] for axis in range(3))
            weight = torch.ones_like(part[..., :1])
            for axis in range(3):
                weight = weight * (part[..., axis : axis + 1] if up[axis] else 1 - part[..., axis : axis + 1])
            found = found + weight * self.cube[r, g, b]
        return found.permute(0, 3, 1, 2)


class ShallowWater(nn.Module):
    """height, u, v [n, h, w] each -> the same after some steps on a periodic grid."""

    def __init__(self, steps: int = 4, dt: float = 0.01):
        super().__init__()
        self.steps, self.dt = steps, dt

    def forward(self, height: Tensor, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        def along(x: Tensor, dim: int) -> Tensor:
            return (torch.roll(x, -1, dim) - torch.roll(x, 1, dim)) * 0.5

        for _ in range(self.steps):
            new_u = u - self.dt * (u * along(u, 2) + v * along(u, 1) + 9.8 * along(height, 2))
            new_v = v - self.dt * (u * along(v, 2) + v * along(v, 1) + 9.8 * along(height, 1))
            height = height - self.dt * (along(height * u, 2) + along(height * v, 1))
            u, v = new_u, new_v
        return height, u, v


class SmallSegmenter(nn.Module):
    """[n, 3, h, w] -> [n, 8, h, w]: a small encoder and decoder."""

    def __init__(self, width: int = 16, classes: int = 8):
        super().__init__()
        self.first = nn.Sequential(conv(3, width, 3), conv(width, width, 3))
        self.second = nn.Sequential(conv(width, 2 * width, 3, 2), conv(2 * width, 2 * width, 3))
        self.third = nn.Sequential(conv(2 * width, 4 * width, 3, 2), conv(4 * width, 4 * width, 3))
        self.up = conv(6 * width, 2 * width, 3)
        self.last = conv(3 * width, width, 3)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        second = self.second(first)
        third = self.third(second)
        second = self.up(torch.cat([_as_large(third, second), second], 1))
        return self.head(self.last(torch.cat([_as_large(second, first), first], 1)))


class Demosaic(nn.Module):
    """[n, 1, h, w] of a Bayer pattern -> [n, 3, h, w]: colours from bilinear filters, chosen by place, and a matrix."""

    def __init__(self) -> None:
        super().__init__()
        cross = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]) / 4
        corners = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 1.0]]) / 4
        sides = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]) / 2
        self.register_buffer("filters", torch.stack([cross, corners, sides, sides.t()]).unsqueeze(1))
        self.register_buffer("colours", torch.eye(3) * 1.2 - 0.1)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        cross, corners, across, down = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), self.filters).split(1, 1)
        row = (torch.arange(height, device=x.device) % 2).view(1, 1, -1, 1).bool()
        column = (torch.arange(width, device=x.device) % 2).view(1, 1, 1, -1).bool()
        red = torch.where(row, torch.where(column, corners, down), torch.where(column, across, x))
        green = torch.where(row ^ column, x, cross)
        blue = torch.where(row, torch.where(column, x, across), torch.where(column, down, corners))
        rgb = torch.cat([red, green, blue], 1)
        return torch.einsum("ij,njhw->nihw", self.colours, rgb).clamp(0, 1).pow(1 / 2.2)


class TriplaneFeatures(nn.Module):
    """points [n, p, 3] in -1 to 1 -> [n, p, 32]: the sum of what three planes have there."""

    def __init__(self, channels: int = 32, size: int = 128):
        super().__init__()
        self.planes = nn.Parameter(torch.randn(3, channels, size, size))

    def forward(self, points: Tensor) -> Tensor:
        n, count = points.shape[:2]
        sides = torch.stack([points[..., [0, 1]], points[..., [0, 2]], points[..., [1, 2]]], 1)
        planes = self.planes.unsqueeze(0).expand(n, -1, -1, -1, -1).flatten(0, 1)
        found = F.grid_sample(planes, sides.flatten(0, 1).unsqueeze(2), align_corners=False)
        return found.view(n, 3, -1, count).sum(1).transpose(1, 2)


class PlaneSweep(nn.Module):
    """features [n, 32, h, w], others [n, 32, h, w], homographies [n, d, 3, 3] -> their agreement [n, d, h, w]."""

    def forward(self, features: Tensor, others: Tensor, homographies: Tensor) -> Tensor:
        n, c, height, width = features.shape
        depths = homographies.shape[1]
        y, x = torch.meshgrid(
            torch.arange(height, dtype=features.dtype, device=features.device),
            torch.arange(width, dtype=features.dtype, device=features.device),
            indexing="ij",
        )
        at = torch.stack([x, y, torch.ones_like(x)]).view(3, -1)
        moved = homographies @ at
        moved = moved[:, :, :2] / moved[:, :, 2:].clamp(min=1e-3)
        scale = torch.tensor([2.0 / (width - 1), 2.0 / (height - 1)], device=features.device).view(1, 1, 2, 1)
        grid = (moved * scale - 1).transpose(2, 3).reshape(n, depths * height, width, 2)
        warped = F.grid_sample(others, grid, align_corners=True).view(n, c, depths, height, width)
        return (warped * features.unsqueeze(2)).mean(1)


class DeformableConvolution(nn.Module):
    """[n, 32, h, w] -> [n, 32, h, w]: nine places around each, moved by what a convolution says, and a product."""

    def __init__(self, channels: int = 32):
        super().__init__()
        self.offsets = nn.Conv2d(channels, 18, 3, padding=1)
        self.weight = nn.Conv2d(9 * channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        n, c, height, width = x.shape
        offset = self.offsets(x).view(n, 9, 2, height, width)
        y = torch.arange(height, dtype=x.dtype, device=x.device).view(1, -1, 1)
        z = torch.arange(width, dtype=x.dtype, device=x.device).view(1, 1, -1)
        taken = []
        for tap in range(9):
            at_y = y + offset[:, tap, 0] + (tap // 3 - 1)
            at_x = z + offset[:, tap, 1] + (tap % 3 - 1)
            grid = torch.stack([2 * at_x / (width - 1) - 1, 2 * at_y / (height - 1) - 1], -1)
            taken.append(F.grid_sample(x, grid, align_corners=True))
        return self.weight(torch.cat(taken, 1))


class SoftWarp(nn.Module):
    """Two frames [n, 3, h, w] and flows [n, 4, h, w], a mask [n, 1, h, w] -> the frame between."""

    def forward(self, first: Tensor, second: Tensor, flow: Tensor, mask: Tensor) -> Tensor:
        n, _, height, width = first.shape
        y = torch.linspace(-1, 1, height, device=first.device).view(1, -1, 1).expand(n, -1, width)
        x = torch.linspace(-1, 1, width, device=first.device).view(1, 1, -1).expand(n, height, -1)

        def warp(frame: Tensor, flow: Tensor) -> Tensor:
            moved = torch.stack([x + flow[:, 0] * (2 / (width - 1)), y + flow[:, 1] * (2 / (height - 1))], -1)
            return F.grid_sample(frame, moved, padding_mode="border", align_corners=True)

        part = torch.sigmoid(mask)
        return warp(first, flow[:, :2]) * part + warp(second, flow[:, 2:]) * (1 - part)
