"""Results of open size that are one value twice, an input, or a view: each is given back as a tensor of its own."""

import torch

import kitsune_mlir


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
