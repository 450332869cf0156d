"""Results of open size that are one value twice, an input, or a view: each is given back as a tensor of its own; and
results whose parts have names."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from functions import Function

import kitsune_mlir
from kitsune_mlir import UserError


class Returns(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x):
        y = self.layer(x)
        return y, y, x, x.view(-1, 2, 4), torch.relu(y)


def test_results_of_open_size_are_owned_once():
    model = Returns().eval()
    compiled = kitsune_mlir.compile(model, (torch.randn(6, 8),), dynamic_shapes=({0: torch.export.Dim("rows")},))
    for rows in (6, 1, 9):
        x = torch.randn(rows, 8)
        found, wanted = compiled(x), model(x)
        torch.testing.assert_close(found, wanted)
        assert len({value.data_ptr() for value in found}) == len(found)


class Extrema(NamedTuple):
    largest: torch.Tensor
    smallest: torch.Tensor


@dataclass
class Heads:
    logits: torch.Tensor
    extrema: Extrema
    loss: torch.Tensor | None = None


@dataclass
class Output(OrderedDict):
    """As transformers has them: a dict that knows its items as attributes."""

    logits: torch.Tensor

    def __post_init__(self):
        self["logits"] = self.logits


torch.utils._pytree.register_pytree_node(
    Output, lambda output: (list(output.values()), None), lambda values, _: Output(*values), serialized_type_name="Out"
)


def test_results_have_the_names_that_the_model_gives_them(tmp_path):
    def function(x):
        return Heads(x * 2, Extrema(x.amax(0), x.amin(0))), x.max(0), Output(x + 1)

    x = torch.randn(3, 4)
    compiled = kitsune_mlir.compile(Function(function), (x,))
    compiled.save(tmp_path / "model.kitsune")
    for run in (compiled, kitsune_mlir.load(tmp_path / "model.kitsune")):
        heads, (values, places), output = run(x)
        wanted = x.max(0)
        assert heads.loss is None and torch.equal(heads.extrema.largest, values)
        assert torch.equal(places, wanted.indices) and torch.equal(run(x)[1].indices, places)
        assert torch.equal(heads.logits, x * 2) and torch.equal(output.logits, output[0])
        assert torch.equal(output["logits"], x + 1)
        with pytest.raises(AttributeError, match="no result 'loss': the results are logits"):
            _ = output.loss


@dataclass
class Batch:
    values: torch.Tensor
    weights: torch.Tensor | None = None
    scale: float = 2.0


torch.export.register_dataclass(Batch, serialized_type_name="test.Batch")


class OfBatches(torch.nn.Module):
    def forward(self, batches, extra: Batch):
        first, second = batches
        assert first.weights is None
        return Batch(first.values * first.scale + second.values * second.weights, extra.values.sum(0))


def test_dataclasses_as_arguments(tmp_path):
    """Those that torch knows, of which fields may hold nothing: a call has such objects, or tuples of their fields."""

    def example(rows):
        x, y = torch.randn(rows, 3), torch.randn(rows, 3)
        return [Batch(x), Batch(y, x.exp())], Batch(x + y)

    rows = torch.export.Dim("rows")
    shapes = [[{0: rows}, None], [{0: rows}, {0: rows}, None]], [{0: rows}, None]  # fields that hold something
    compiled = kitsune_mlir.compile(OfBatches(), example(4), dynamic_shapes=shapes)
    batches, extra = example(7)
    wanted = OfBatches()(batches, extra)
    for run in compiled, kitsune_mlir.load(compiled.save(tmp_path / "batches.kitsune")):
        found = run(batches, extra)
        torch.testing.assert_close((found.values, found.weights, found.scale), (wanted.values, wanted.weights, 2.0))
    tuples = [(batch.values, batch.weights, batch.scale) for batch in (*batches, extra)]
    torch.testing.assert_close(compiled(tuples[:2], tuples[2]).values, wanted.values)
    with pytest.raises(UserError, match="must be an object with fields named values, weights, scale, found"):
        compiled(batches, extra.values)
