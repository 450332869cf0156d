"""A small residual network: convolutions, batch norm, skips (He et al., arXiv 1512.03385)."""

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Two 3x3 convolutions; the skip is a 1x1 convolution where the size changes."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        same = stride == 1 and inputs == outputs
        self.skip = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.skip(x) + self.second_norm(self.second(y)))


class ResNet(nn.Module):
    """Stem, two blocks, mean over the picture, head: [batch, 3, size, size] -> [batch, classes]."""

    def __init__(self, width: int, classes: int):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.blocks = nn.Sequential(Block(width, width), Block(width, 2 * width, stride=2))
        self.head = nn.Linear(2 * width, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(image)))
        return self.head(self.blocks(x).mean((2, 3)))


def _with_statistics(model: nn.Module) -> nn.Module:
    """Batch norms as after training: means and variances that are not 0 and 1."""
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.running_mean.normal_(std=0.1)
            norm.running_var.uniform_(0.5, 1.5)
    return model


def resblock(batch: int = 2, size: int = 8, width: int = 16, dtype: torch.dtype = torch.float32):
    """(Block, (x [batch, width, size, size],))"""
    model = _with_statistics(Block(width, width)).to(dtype).eval()
    return model, (torch.randn(batch, width, size, size, dtype=dtype),)


def resnet(batch: int = 2, size: int = 12, width: int = 8, classes: int = 10, dtype: torch.dtype = torch.float32):
    """(ResNet, (image [batch, 3, size, size],))"""
    model = _with_statistics(ResNet(width, classes)).to(dtype).eval()
    return model, (torch.randn(batch, 3, size, size, dtype=dtype),)
