"""What is counted of stages' operators, and that it is what their kernels do."""

import pytest
import torch
from torch import nn

from kitsune_mlir.frontend import import_model
from kitsune_mlir.mlir import walk
from kitsune_mlir.passes import pipeline
from kitsune_mlir.passes.stage_cost import REDUCED, stage_cost


def costs(model, *args):
    module = import_model(model.eval(), args).module
    pipeline.run(module, [pipeline.make(step) for step in ("prepare-linalg", "partition-dataflow", "design-pipeline")])
    return [stage_cost(op.opview) for op in walk(module, "kitsune.stage")]


def after_a_layer(function, kind):
    """Operations on a row of 64 behind a product, beside those of the product alone."""

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 64)

        def forward(self, x):
            return function(self.layer(x))

    x = torch.randn(256, 64, dtype=kind)
    plain, more = (
        sum(cost.simt_ops for cost in costs(model, x)) for model in (nn.Linear(64, 64).to(kind), Layer().to(kind))
    )
    return more - plain


@pytest.mark.parametrize("function", [torch.tanh, torch.exp, torch.log1p, torch.sin])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_functions_are_cheaper_where_they_are_rounded_to_16_bits(function, kind):
    assert 0 < 2 * after_a_layer(function, kind) <= after_a_layer(function, torch.float32)


def test_conversions_are_not_counted():
    assert after_a_layer(torch.relu, torch.bfloat16) == after_a_layer(torch.relu, torch.float32) == 64


def test_sums_over_a_row_are_dearer_than_a_sum_of_two():
    row_sums = after_a_layer(lambda y: y - y.mean(-1, keepdim=True), torch.float32)
    assert row_sums >= 64 * (REDUCED + 1)


class Dense(nn.Module):
    """Each layer's result stands behind all before it."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64 * (1 + i), 64) for i in range(3)])

    def forward(self, x):
        for layer in self.layers:
            x = torch.cat([x, torch.relu(layer(x))], -1)
        return x


def test_only_what_was_there_before_is_copied_into_a_concatenation():
    """By operators that run one at a time: what they compute is written in its place."""
    row_bytes = 64 * 2
    x = torch.randn(256, 64, dtype=torch.bfloat16)
    found = costs(Dense().bfloat16(), x)
    assert sum(cost.plain_bytes for cost in found) <= 2 * 3 * row_bytes
    assert sum(cost.dram_bytes for cost in found) <= (3 + 1 + 4) * row_bytes
