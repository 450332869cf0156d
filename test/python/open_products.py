"""Products with sizes that are open until the call, for tests of kernels on several chips."""

import torch

# A function and its arguments' sizes, 70 where they are open; other open sizes are 90, 96 and 5.
IN_A_BATCH = {
    "rows": (lambda x, y, z: torch.relu(torch.bmm(x, y) + z), ((3, 70, 64), (3, 64, 72), (3, 70, 72))),
    "rows of one for all": (lambda x, y: torch.bmm(x.expand(3, -1, -1), y), ((70, 64), (3, 64, 72))),
    "sums": (lambda x, y: torch.bmm(x.mT, y), ((3, 70, 64), (3, 70, 72))),
    "sums of heads": (lambda x, y: torch.einsum("bjhd,bjhe->bhde", x, y), ((2, 70, 3, 64), (2, 70, 3, 72))),
    "heads of each": (lambda x, y: x.transpose(1, 2) @ y.permute(0, 2, 3, 1), ((70, 9, 2, 64), (70, 9, 2, 64))),
}
SEVERAL = {  # the same where several sizes of a product are the open one
    "scores": (lambda x: x @ x.mT, ((3, 70, 64),)),
    "scores of lines": (lambda x, y: torch.relu(x @ y), ((3, 70, 64), (3, 64, 70))),
    "scores that are scaled": (lambda x, y: torch.exp(-(x @ x.mT).abs()) * y, ((3, 70, 40), (70, 70))),
    "weights": (lambda x, y: x @ y, ((3, 70, 70), (3, 70, 72))),
    "turned weights": (lambda x, y: torch.relu(x.mT @ y), ((3, 70, 70), (3, 70, 40))),
    "weights behind": (lambda x, y: x.mT @ y.mT, ((3, 70, 40), (3, 70, 70))),
    "graph": (lambda a, x: torch.relu(a @ x), ((70, 70), (70, 24))),
    "squares": (lambda a, b: a @ b, ((70, 70), (70, 70))),
    "lines of both": (lambda x, y: x @ y.mT, ((2, 33, 70), (2, 40, 70))),
    "retention": (lambda q, k, v, d: (q @ k.mT * d) @ v, ((2, 70, 24), (2, 70, 24), (2, 70, 40), (70, 70))),
    "heads": (
        lambda q, k, v: (torch.relu(q.transpose(1, 2) @ k.transpose(1, 2).mT) @ v.transpose(1, 2)).transpose(1, 2),
        ((2, 70, 2, 24), (2, 70, 2, 24), (2, 70, 2, 40)),
    ),
}
APART = {  # several sizes are open that are not the same
    "pairs": (lambda x, y: torch.relu(x @ y.mT), ((5, 70, 64), (5, 90, 64))),
    "pairs of two sets": (lambda x, y: x @ y.mT, ((70, 64), (90, 64))),
    "pairs that are scaled": (lambda x, y, z: torch.exp(x @ y.mT * 0.1) + z, ((5, 70, 40), (5, 90, 40), (5, 70, 90))),
    "a sum of each": (lambda x, y: x.mT @ y, ((5, 70, 64), (5, 70, 72))),
    "weights of pairs": (lambda p, v: p @ v, ((5, 70, 90), (5, 90, 72))),
    "all sizes": (lambda x, y: torch.relu(x @ y), ((96, 70), (70, 90))),
    "all sizes, turned": (lambda x, y: x.mT @ y, ((2, 70, 90), (2, 70, 96))),
    "sums of lines": (lambda x, y: x @ y.mT, ((96, 70), (90, 70))),
}
CASES = IN_A_BATCH | SEVERAL
_APART = {70: (70, 133, 64, 3), 90: (90, 13, 128, 1), 5: (5, 2, 1, 3), 96: (96, 64, 7, 1)}  # in each of the calls


def drawn_apart(name, dtype):
    """The same of a case of APART."""
    function, sizes = APART[name]
    open_ = {n: torch.export.Dim(f"size{n}", min=1, max=10_000) for n in _APART}
    shapes = tuple({d: open_[n] for d, n in enumerate(size) if n in open_} for size in sizes)
    torch.manual_seed(len(name))
    calls = [[[_APART[n][call] if n in open_ else n for n in size] for size in sizes] for call in range(4)]
    return function, shapes, [tuple(torch.randn(size, dtype=dtype) for size in call) for call in calls]


def drawn(name, dtype):
    """A function, which sizes of its arguments are open, and arguments of the example and of other calls."""
    function, sizes = CASES[name]
    least = 2 if name in SEVERAL else 0
    rows = torch.export.Dim("rows", min=least, max=10_000)
    shapes = tuple({d: rows for d, n in enumerate(size) if n == 70} for size in sizes)
    torch.manual_seed(len(name))
    counts = (70, 133, 64, 3) if least else (70, 130, 1, 0)
    if name == "heads of each":  # so many products, of which each CTA has several
        counts = (70, 13, 1, 0)
    calls = [[[count if n == 70 else n for n in size] for size in sizes] for count in counts]
    return function, shapes, [tuple(torch.randn(size, dtype=dtype) for size in call) for call in calls]
