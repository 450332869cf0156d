"""Numbers that a model reads from tensors and that have to be sizes of its inputs, as the longest of lengths is."""

import pytest
import torch
from functions import Function
from torch.export import Dim
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")


def attended(x, lengths):
    """As torchaudio's Conformer and others mask what is behind each sequence."""
    places = torch.arange(int(lengths.max().item())).expand(x.shape[0], -1)
    seen = (places < lengths.unsqueeze(1)).view(x.shape[0], 1, 1, x.shape[1])
    return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], attn_mask=seen)


def strided(x, lengths):
    """The longest is as long as what a layer leaves of the tokens, a quotient."""
    x, lengths = F.avg_pool1d(x.mT, 3, 2, 1).mT, (lengths - 1) // 2 + 1
    places = torch.arange(int(lengths.max().item()))
    return (x * (places < lengths.unsqueeze(1)).unsqueeze(-1)).sum(1)


def drawn(batch, tokens):
    torch.manual_seed(tokens)
    lengths = torch.randint(1, tokens + 1, (batch,))
    lengths[batch // 2] = tokens
    return torch.randn(batch, tokens, 16), lengths


@pytest.mark.parametrize("function", [attended, strided])
@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_the_longest_of_lengths(function, target, small_gpu):
    batch, tokens = Dim("batch", min=2, max=99), Dim("tokens", min=3, max=999)
    shapes = (({0: batch, 1: tokens}, {0: batch}),)
    chip = small_gpu if target == "gpu" else target
    compiled = kitsune_mlir.compile(Function(function), drawn(3, 20), target=chip, dynamic_shapes=shapes)
    run = Simulation(compiled) if target == "gpu" else compiled
    for sizes in ((3, 20), (2, 33), (5, 3)):
        x, lengths = drawn(*sizes)
        wanted = function(x.double(), lengths)
        torch.testing.assert_close(torch.as_tensor(run(x, lengths)).double(), wanted, rtol=1e-5, atol=1e-5)
