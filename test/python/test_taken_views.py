"""Elements that are taken by number of slices, and of what has something around it, of probabilities; sums of
exponentials of few long rows, in parts."""

import pytest
import torch
from functions import Function, on_both
from torch.export import Dim
from torch.nn import functional as F

from kitsune_mlir.errors import UserError

OPEN = ({0: Dim("b", min=2, max=1 << 20)},) * 2


def accepted(draft, target):
    """What a larger model would have chosen as well, and what is left of its probabilities behind that."""
    q, p = draft.float().softmax(-1), target.float().softmax(-1)
    tokens = draft.argmax(-1)
    ratio = p[:, :-1].gather(-1, tokens[..., None])[..., 0] / q.gather(-1, tokens[..., None])[..., 0]
    count = (ratio > 0.5).int().cumprod(1).sum(1)
    at = count[:, None, None].expand(-1, 1, p.shape[-1])
    left = p.gather(1, at)[:, 0] - F.pad(q, (0, 0, 0, 1)).gather(1, at)[:, 0]
    return count, left.clamp(min=0)


def taken_beside(x, i):
    p = F.pad(x.softmax(-1)[:, ::2, 3:], (2, 1), value=-1.0)
    return p.gather(-1, i[:, ::2, None]), torch.logsumexp(x, -1)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("columns", [97, 2 * 8192])
def test_speculative_decoding(small_gpu, columns):
    args = [torch.randn(3, n, columns).bfloat16() for n in (4, 5)]
    others = [torch.randn(5, n, columns).bfloat16() for n in (4, 5)]
    cpu, gpu = on_both(Function(accepted), tuple(args), small_gpu, dynamic_shapes=(OPEN,))
    for given in (args, others):
        count, left = accepted(*given)
        for found in (cpu(*given), gpu(*given)):
            assert torch.equal(torch.as_tensor(found[0]), count)
            assert torch.allclose(torch.as_tensor(found[1]), left, atol=1e-7, rtol=1e-4)


@pytest.mark.usefixtures("unassembled")
def test_rows_of_infinities(small_gpu):
    """A part of a row, all of one, and one number of another."""
    x, i = torch.randn(3, 4, 2 * 8192) * 3, torch.randint(0, 2 * 8192, (3, 4))
    x[0, 1, :8192], x[1, 2], x[2, 0, 5] = -torch.inf, -torch.inf, torch.inf
    cpu, gpu = on_both(Function(taken_beside), (x, i), small_gpu, dynamic_shapes=(OPEN,))
    for given in ((x, i), (torch.randn(5, 4, 2 * 8192), i[[0, 1, 2, 1, 0]])):
        for run in (cpu, gpu):
            for found, y in zip(run(*given), taken_beside(*given), strict=True):
                assert torch.allclose(torch.as_tensor(found), y, rtol=1e-5, equal_nan=True)


@pytest.mark.parametrize("wrong", [9, -1])
def test_no_element_of_what_is_around(wrong):
    """A number that is none of a padded tensor is an error, and not what stands around it."""

    def taken(x, i):
        return F.pad(x * 2, (2, 1)).gather(-1, i)

    program, simulated = on_both(Function(taken), (torch.randn(40, 6), torch.randint(0, 9, (40, 2))))
    args = torch.randn(40, 6), torch.randint(0, 9, (40, 2))
    for run in (program, simulated):
        torch.testing.assert_close(torch.as_tensor(run(*args)), taken(*args))
    args[1][5, 1] = wrong
    for run in (program, simulated):
        with pytest.raises(UserError, match="an index is out of range"):
            run(*args)
