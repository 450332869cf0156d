"""Graphs that write nothing are taken apart by one plain trace: as torch takes them apart, to each operator's line."""

import pytest
import torch
from functions import Function
from torch import nn

from kitsune_mlir.frontend import import_model, plain_trace


class Counting(nn.Module):
    """Writes to a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(8))

    def forward(self, x):
        self.count.add_(x.sum(0))
        return x + self.count


def written(x):
    """A view of what the model itself makes is written."""
    y = x * 2
    y[:, 0] += 1
    return y


CASES = {
    "layers": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), (torch.randn(2, 5, 8),), True),
    "images": (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GELU()).eval(),
        (torch.randn(1, 3, 6, 6),),
        True,
    ),
    "an input called as a builtin is": (Function(lambda input: (input, input.sum(), 3)), (torch.randn(4, 8),), True),
    "a rule that adds in place": (nn.GRUCell(8, 8), (torch.randn(4, 8), torch.randn(4, 8)), True),
    "a buffer": (Counting(), (torch.randn(4, 8),), False),
    "a view": (Function(written), (torch.randn(4, 8),), False),
}


@pytest.mark.parametrize("name", CASES)
def test_is_torchs(name, monkeypatch):
    model, args, plain = CASES[name]
    tried = []
    monkeypatch.setattr(plain_trace, "_plain", lambda *given, own=plain_trace._plain: tried.append(1) or own(*given))
    found = import_model(model, args)
    assert bool(tried) == plain
    monkeypatch.setattr(plain_trace, "_KNOWN", False)
    wanted = import_model(model, args)
    one, other = (each.module.operation.get_asm(enable_debug_info=True) for each in (found, wanted))
    assert one == other
    assert [str(each.spec) for each in found.outputs] == [str(each.spec) for each in wanted.outputs]
    assert found.signature == wanted.signature


class Heads(nn.Module):
    """Sizes of views are products of open ones."""

    def forward(self, x):
        batch, tokens, width = x.shape
        heads = x.view(batch, tokens, 2, width // 2).transpose(1, 2).reshape(2 * batch, tokens, width // 2)
        return torch.softmax(heads @ heads.mT, dim=-1) @ heads, heads.sum(1) / tokens


class Halves(nn.Module):
    """Torch's own trace knows that half of twice as many are as many."""

    def forward(self, x):
        return x.repeat(2, 1).view(2, -1, 8).sum(0), x.new_ones(x.shape[0] // 2, 8)


OPEN = {"heads": (Heads(), (torch.randn(3, 5, 8),), True), "halves": (Halves(), (torch.randn(6, 8),), False)}


@pytest.mark.parametrize("name", OPEN)
def test_open_sizes(name, monkeypatch):
    model, args, plain = OPEN[name]
    tried = []
    monkeypatch.setattr(plain_trace, "_plain", lambda *given, own=plain_trace._plain: tried.append(1) or own(*given))
    shapes = ({0: torch.export.Dim("batch", min=2, max=100)},)
    found = import_model(model, args, dynamic_shapes=shapes)
    assert bool(tried) == plain
    monkeypatch.setattr(plain_trace, "_KNOWN", False)
    wanted = import_model(model, args, dynamic_shapes=shapes)
    assert str(found.module) == str(wanted.module)
    assert [each.spec.shape for each in found.outputs] == [each.spec.shape for each in wanted.outputs]
    assert found.signature == wanted.signature
