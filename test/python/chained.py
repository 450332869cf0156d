"""What tests of scheduled chains share."""

import torch

from kitsune_mlir.tools.gpusim import Simulation

CHAINED = {"place-stages": "shape=chained tile-rows=128"}


def agrees(compiled, model, *args):
    """In the simulator the model gives what torch's gives, in 16 bits."""
    found = Simulation(compiled, seed=1)(*args)
    with torch.no_grad():
        wanted = model(*args)
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
    for one, other in pairs:
        torch.testing.assert_close(torch.as_tensor(one), other, rtol=2e-2, atol=2e-2)
