"""Graphs that write nothing are taken apart by one plain trace: as torch takes them apart, to each operator's line."""

from functools import partial

import pytest
import torch
from functions import Function
from torch import nn

from kitsune_mlir import mlir
from kitsune_mlir.frontend import import_model, plain_trace, torch_program
from kitsune_mlir.frontend.decompositions import table
from kitsune_mlir.frontend.recurrent_cells import RECURRENT_CELLS as CELLS


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


def written_beside(x):
    """Another view of what is written is read again."""
    y = x * 2
    z = y.view(8, 4)
    y.relu_()
    return z + y.add_(1).sum()


CASES = {
    "layers": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), (torch.randn(2, 5, 8),), True),
    "images": (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GELU()).eval(),
        (torch.randn(1, 3, 6, 6),),
        True,
    ),
    "layers that write to what is given": (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(True), nn.Dropout(0.2, True)).eval(),
        (torch.randn(1, 3, 6, 6),),
        True,
    ),
    "what is written is read": (Function(written_beside), (torch.randn(4, 8),), False),
    "an input called as a builtin is": (Function(lambda input: (input, input.sum(), 3)), (torch.randn(4, 8),), True),
    "a rule that adds in place": (Function(nn.CosineEmbeddingLoss()), (*torch.randn(2, 4, 8), torch.ones(4)), True),
    "a constant of its own": (
        Function(lambda x: x * torch.tensor([0.5] * 8) + torch.tensor([1.0]) + torch.arange(8)),
        (torch.randn(4, 8),),
        True,
    ),
    "inputs that are no tensors": (
        Function(lambda x, none, number, y: (x * number if none is None else x, y + 1)),
        (torch.randn(4, 8), None, 3, torch.randn(2)),
        True,
    ),
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


class Steps(nn.Module):
    """A loop over a cell."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x, *states):
        for _ in range(2):
            found = self.cell(x, states if len(states) > 1 else states[0])
            states = found if isinstance(found, tuple) else (found,)
        return states


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell, partial(nn.RNNCell, nonlinearity="relu")])
def test_cells(kind, bias, monkeypatch):
    """Cells are not traced a second time for what torch's forms of them write."""
    args = torch.randn(3 if kind is nn.LSTMCell else 2, 4, 8)
    tried = []
    monkeypatch.setattr(
        plain_trace, "_plain", lambda *given, own=plain_trace._plain: tried.append(own(*given)) or tried[0]
    )
    model = Steps(kind(8, 8, bias=bias))
    found = import_model(model, tuple(args))
    assert tried[0] is not None
    monkeypatch.setattr(plain_trace, "_KNOWN", False)
    torchs = mlir.importer("fx_decomp_util").get_decomposition_table()
    monkeypatch.setattr(torch_program, "table", lambda: table() | {op: torchs[op] for op in CELLS if op in torchs})
    assert str(found.module) == str(import_model(model, tuple(args)).module)


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
