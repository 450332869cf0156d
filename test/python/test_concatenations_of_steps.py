"""Steps of a recurrence that move what the last one has made: soft dynamic time warping by its diagonals."""

import pytest
import torch
from functions import on_both
from torch import nn

pytestmark = pytest.mark.usefixtures("unassembled")


class Warping(nn.Module):
    """Each diagonal is computed of the two before it, of which one is moved by a place."""

    def forward(self, costs):
        first = torch.full_like(costs[:, :, 0], 9.0)
        before, last = first, torch.where(torch.arange(costs.shape[1]) == 0, costs[:, :, 0], 9.0)
        for step in range(1, costs.shape[2]):
            moved = [torch.cat([torch.full((costs.shape[0], 1), 9.0), one[:, :-1]], 1) for one in (last, before)]
            least = -torch.logsumexp(-torch.stack([last, *moved], -1), -1)
            before, last = last, least + costs[:, :, step]
        return last[:, -1]


def test_many_steps_are_computed_in_one_another():
    """Concatenations in one another were deeper than Python's stack."""
    model, costs = Warping(), torch.rand(3, 5, 11)
    for run in on_both(model, (costs,)):
        torch.testing.assert_close(run(costs), model(costs), atol=1e-5, rtol=1e-5)
