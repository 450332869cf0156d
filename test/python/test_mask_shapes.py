"""Masks of all shapes that broadcast, of attention with an open batch, open rows and open columns."""

import itertools

import pytest
import torch
from functions import Function
from torch.export import Dim
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")
SHAPES = list(itertools.product(*[(False, True)] * 3))  # by batch, by head, by row


def drawn(batch, rows, columns, shape, is_bool):
    torch.manual_seed(rows)
    sizes = [n if has else 1 for n, has in zip((batch, 2, rows), shape)]
    mask = torch.randn(*sizes, columns)
    q, k, v = (torch.randn(batch, heads, n, 32).bfloat16() for heads, n in ((2, rows), (1, columns), (1, columns)))
    return q, k, v, ((mask > 0) | (torch.arange(columns) == 0) if is_bool else mask.bfloat16())


@pytest.mark.parametrize("shape, is_bool", [(shape, n % 2 == 0) for n, shape in enumerate(SHAPES)])
def test_of_open_sizes(shape, is_bool, small_gpu):
    function = Function(lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True))
    batch, rows, columns = (Dim(name, min=1, max=999) for name in ("batch", "rows", "columns"))
    own = {dim: size for dim, size, has in ((0, batch, shape[0]), (2, rows, shape[2])) if has} | {3: columns}
    shapes = (({0: batch, 2: rows}, {0: batch, 2: columns}, {0: batch, 2: columns}, own),)
    args = drawn(3, 20, 28, shape, is_bool)
    compiled = kitsune_mlir.compile(function, args, target=small_gpu, dynamic_shapes=shapes)
    assert "attention0" in [launch["kernel"] for launch in compiled.plan["launches"]]
    for sizes in ((2, 70, 77), (1, 1, 1)):
        args = drawn(*sizes, shape, is_bool)
        wanted = function(*(x.double() if x.is_floating_point() else x for x in args))
        found = torch.as_tensor(Simulation(compiled)(*args)).double()
        torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


def of_words(q, words, seen):
    """As diffusers' transformers of videos mask words that are none: repeated for each head, as a view."""
    q, k = (x.unflatten(-1, (2, 32)).transpose(1, 2) for x in (q, words))
    mask = ((1 - seen.to(q.dtype)) * -10000.0).unsqueeze(1).repeat_interleave(2, 0)
    mask = mask.view(q.shape[0], 2, -1, mask.shape[-1])
    return F.scaled_dot_product_attention(q, k, k, attn_mask=mask).transpose(1, 2).flatten(2)


def test_one_that_is_repeated_for_each_head(small_gpu):
    def example(batch, words):
        torch.manual_seed(words)
        seen = (torch.arange(words) < torch.randint(1, words, (batch, 1))).float()
        return torch.randn(batch, 48, 64).bfloat16(), torch.randn(batch, words, 64).bfloat16(), seen

    batch, words = Dim("batch", min=1, max=99), Dim("words", min=2, max=999)
    shapes = (({0: batch}, {0: batch, 1: words}, {0: batch, 1: words}),)
    compiled = kitsune_mlir.compile(Function(of_words), example(3, 7), target=small_gpu, dynamic_shapes=shapes)
    assert "attention0" in [launch["kernel"] for launch in compiled.plan["launches"]]
    for sizes in ((2, 77), (1, 5)):
        args = example(*sizes)
        found = torch.as_tensor(Simulation(compiled)(*args)).double()
        torch.testing.assert_close(found, of_words(*(x.double() for x in args)), rtol=2e-2, atol=2e-2)
