"""Random transformer blocks by seed, as torch modules: what draw_blocks.py drew, and what stands before and behind."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .block_attention import Attention, Given, Rotations
from .block_mixers import MODULES
from .block_networks import Convolutions, network, norm
from .draw_blocks import Drawn, arguments, draw

CHANNELS = 80  # of a sound's frames
CLASSES = 10
PATCH = 4  # the side of an image's patches


class Front(nn.Module):
    """Rows of the model's width: as they come, of numbers of words, of patches of an image or of frames of a sound."""

    def __init__(self, of: Drawn):
        super().__init__()
        self.of = of
        self.words = nn.Embedding(of.vocabulary, of.width) if of.front == "numbers" else None
        self.patches = nn.Conv2d(3, of.width, PATCH, stride=PATCH) if of.front == "patches" else None
        self.frames = nn.Conv1d(CHANNELS, of.width, 3, padding=1) if of.front == "frames" else None
        self.places = nn.Embedding(2 * of.tokens, of.width) if of.positions == "learned" else None

    def forward(self, x: Tensor) -> Tensor:
        if self.words is not None:
            x = self.words(x)
        elif self.patches is not None:
            x = self.patches(x).flatten(2).transpose(1, 2)
        elif self.frames is not None:
            x = F.gelu(self.frames(x.transpose(1, 2))).transpose(1, 2)
        return x if self.places is None else x + self.places(torch.arange(x.shape[1], device=x.device))


class Last(nn.Module):
    """What a model makes of its rows."""

    def __init__(self, of: Drawn):
        super().__init__()
        self.form, self.norm = of.last, norm(of, of.width) if of.last != "nothing" else nn.Identity()
        sizes = {"logits": of.vocabulary, "last": of.vocabulary, "first": of.width, "mean": CLASSES, "classes": CLASSES}
        self.layer = nn.Linear(of.width, sizes[of.last]) if of.last in sizes else nn.Identity()

    def forward(self, x: Tensor, given: Given) -> Tensor:
        match self.form:
            case "mean" if "padding" in given:
                there = given["padding"].unsqueeze(-1)
                return self.layer((self.norm(x) * there).sum(1) / there.sum(1))
            case "mean":
                return self.layer(self.norm(x).mean(1))
            case "classes":
                return self.layer(self.norm(x)).mean(1)
            case "first":
                return torch.tanh(self.layer(self.norm(x)[:, 0]))
            case "last":
                return self.layer(self.norm(x[:, -1]))
        return self.layer(self.norm(x))


class Branch(nn.Module):
    """What is added to the rows, with its norms, by a gate where it is conditioned."""

    def __init__(self, of: Drawn, function: nn.Module):
        super().__init__()
        self.order, self.function, self.norm = of.order, function, norm(of, of.width)
        self.after = norm(of, of.width) if of.order == "sandwich" else nn.Identity()
        self.scale = nn.Parameter(torch.rand(of.width) + 0.5) if of.scaled else None

    def forward(self, x: Tensor, changes: tuple[Tensor, ...] | None, *given: Given) -> Tensor:
        """x with what is added. `changes` are a factor and a shift of norms, and a gate."""
        rows = x if self.order == "post" else self.norm(x)
        if changes is not None:
            rows = rows * (1 + changes[0]) + changes[1]
        found = self.after(self.function(rows, *given))
        found = found if self.scale is None else found * self.scale
        found = found if changes is None else found * changes[2]
        return self.norm(x + found) if self.order == "post" else x + found


class Block(nn.Module):
    """Branches one after another, or one of two functions of the same rows."""

    def __init__(self, of: Drawn, number: int):
        super().__init__()
        mixer, layers = MODULES[of.mixers[number]](of, number), network(of)
        self.parallel = of.order == "parallel"
        self.mixer, self.network = Branch(of, mixer), layers if self.parallel else Branch(of, layers)
        self.cross = Branch(of, Attention(of, number, cross=True)) if of.cross else None
        self.condition = nn.Linear(of.width, 6 * of.width) if of.conditioned else None
        self.convolutions = Convolutions(of.width, 7) if of.convolved else None

    def forward(self, x: Tensor, given: Given) -> Tensor:
        changes: list[Any] = [None, None]
        if self.condition is not None:
            parts = self.condition(F.silu(given["condition"])).unsqueeze(1).chunk(6, -1)
            changes = [parts[:3], parts[3:]]
        if self.parallel:
            x = self.mixer(x, changes[0], given) + self.network(self.mixer.norm(x))
        else:
            x = self.mixer(x, changes[0], given)
        x = x if self.cross is None else self.cross(x, None, given)
        x = x if self.parallel else self.network(x, changes[1])
        return x if self.convolutions is None else x + self.convolutions(x)


class Model(nn.Module):
    """The model that was drawn, of its arguments by their order in `of.names`."""

    def __init__(self, of: Drawn):
        super().__init__()
        self.of, self.front, self.last = of, Front(of), Last(of)
        self.rotations = Rotations(of) if of.rotates and of.tables != "arguments" else None
        self.blocks = nn.ModuleList(Block(of, number) for number in range(len(of.mixers)))

    def forward(self, *args: Tensor) -> Any:
        given = dict(zip(self.of.names, args, strict=True))
        x = self.front(given["x"])
        if self.rotations is not None:
            given["cos"], given["sin"] = self.rotations(x, given)
        for block in self.blocks:
            x = block(x, given)
        x = self.last(x, given)
        if self.of.cache != "joined":
            return x
        return (x, *(tensor for name, tensor in given.items() if name.startswith(("keys", "values"))))


def make(seed: int, small: bool = False, open: str = "") -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The module of a seed, and its arguments."""
    of = draw(seed, small, open)
    torch.manual_seed(seed)
    module = Model(of).eval().requires_grad_(False)
    for layer in module.modules():
        for name, value in (*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False)):
            if name == "running_var" or name == "weight" and value.dim() == 1:
                value.uniform_(0.5, 1.5)
            elif name in ("bias", "running_mean"):
                value.uniform_(-0.5, 0.5)
    return module.to(of.dtype), arguments(of, seed)
