"""Attention that is drawn, run in the simulator and compared with float64."""

import numpy as np
import torch

from kitsune_mlir.bench import random_attention

BOUNDS = {torch.bfloat16: 8e-3, torch.float16: 1e-3, torch.float32: 2e-3}


def exact(model, args):
    return model.double()(*(x.double() if x.is_floating_point() else x for x in args))


def compare(module, of, simulation, seed, within=None):
    """Compares attention of other sizes than the example's with float64."""
    args = random_attention.arguments(of, seed)
    own = module(*args).double()
    found = simulation(*args)
    found = torch.as_tensor(np.asarray((found if isinstance(found, torch.Tensor) else found[0]).float())).double()
    wanted = exact(random_attention.Attention(of), args)
    error, bound = ((x - wanted).norm() / wanted.norm() for x in (found, own))
    assert error <= 2 * bound + (within or BOUNDS[of.dtype]) / 2, of
